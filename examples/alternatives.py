"""Is there a fairer rule that is as good? The frontier inverted: from an accuracy to the smallest gap."""

import altair as alt

import evenhand as eh
from drawing import AFTER, BEFORE, WARM, save

MARGIN = 0.02


def pictures():
    data = eh.datasets.make_zafar(4000, random_state=0)
    rows = data.y, data.group, data.p_y, data.p_group
    found = eh.alternatives(*rows, decisions=(data.p_y > 0.4).astype(int), margin=MARGIN, held_out=0)
    curve = eh.frontier(*rows)
    enough = found.present.utility - MARGIN
    line = [{"gap": p.gap, "accuracy": p.utility} for p in curve]
    points = [
        {"gap": found.present.gap, "accuracy": found.present.utility, "which": "decisions judged"},
        {"gap": found.alternative.gap, "accuracy": found.alternative.utility, "which": "alternative found"},
    ]
    x = alt.X("gap:Q", title="gap between the selection rates", axis=alt.Axis(format="%"))
    scale = alt.Scale(zero=False, domain=[0.62, 0.78])
    y = alt.Y("accuracy:Q", title="accuracy", scale=scale, axis=alt.Axis(format="%"))
    corner = [{"gap": 0.0, "to": found.present.gap, "accuracy": enough, "top": 0.78}]
    room = alt.Chart(alt.InlineData(corner)).mark_rect(opacity=0.12, color=AFTER)
    room = room.encode(x=x, x2="to:Q", y=y, y2="top:Q")
    best = alt.Chart(alt.InlineData(line)).mark_line(color=BEFORE, strokeWidth=2.5).encode(x=x, y=y)
    marks = alt.Chart(alt.InlineData(points)).mark_point(size=130, filled=True, opacity=1)
    colours = alt.Scale(domain=[p["which"] for p in points], range=[WARM, AFTER])
    marks = marks.encode(
        x=x,
        y=y,
        color=alt.Color("which:N", title=None, scale=colours),
        shape=alt.Shape("which:N", legend=None, sort=None),
    )
    texts = [
        {"gap": 0.004, "accuracy": 0.775, "said": "as good, within the margin, and a smaller gap"},
        {"gap": 0.13, "accuracy": 0.675, "said": "the best rule of each gap: nothing lies above"},
    ]
    words = alt.Chart(alt.InlineData(texts)).mark_text(align="left", fontSize=12).encode(x=x, y=y, text="said:N")
    return {"alternatives": (room + best + marks + words).properties(width=480, height=300)}


if __name__ == "__main__":
    save(pictures())
