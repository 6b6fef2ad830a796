"""A watch over decisions, since the start and over the last rows, and a change that each detects."""

import altair as alt
import numpy as np

import evenhand as eh
from drawing import AFTER, WARM, save

DAYS, ROWS, CHANGE = 120, 500, 80


def pictures():
    rng = np.random.default_rng(0)
    watch = eh.Watch("demographic_parity", tolerance=0.05, window=5000, groups=["F", "M"])
    rows = []
    for day in range(DAYS):
        sex = rng.choice(["F", "M"], ROWS)
        behind = 0.02 if day < CHANGE else 0.2
        watch.update(rng.random(ROWS) < 0.4 - behind * (sex == "F"), sex)
        (verdict,) = watch.verdicts
        for name, gap in (("since the start", verdict.since_start), ("last 5,000 rows", verdict.window)):
            rows.append({"day": day + 1, "gap": gap.value, "low": gap.lower, "high": gap.upper, "over": name})
    chart = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X("day:Q", title="day, of 500 decisions each"),
        color=alt.Color("over:N", title=None, sort=None, scale=alt.Scale(range=[AFTER, WARM])),
    )
    scale, axis = alt.Scale(domain=[0, 0.3], clamp=True), alt.Axis(format="%")
    band = chart.mark_area(opacity=0.15, clip=True).encode(
        y=alt.Y("low:Q", title="gap between the selection rates", scale=scale, axis=axis), y2="high:Q"
    )
    line = chart.mark_line(clip=True).encode(y=alt.Y("gap:Q", scale=scale))
    limit = alt.Chart(alt.InlineData([{"y": 0.05}])).mark_rule(strokeDash=[5, 4]).encode(y="y:Q")
    changed = alt.Chart(alt.InlineData([{"x": CHANGE}])).mark_rule(color="#9aa5ab").encode(x="x:Q")
    return {"watch": (changed + band + line + limit).properties(width=480, height=280)}


if __name__ == "__main__":
    save(pictures())
