"""The certified search compared with the paper's Algorithms 2 and 3, on Adult: the results at small tolerances."""

import altair as alt

import evenhand as eh
from adult import fitted
from drawing import AFTER, BEFORE, OTHER, WARM, save

SEARCHES = {
    "Algorithm 3, 36 directions": eh.Directions(36),
    "Algorithm 3, 360 directions": eh.Directions(360),
    "Algorithm 2, 100 lines": eh.Lines(100),
    "certified": eh.Certified(),
}
TOLERANCES = [0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.03, 0.05]


def pictures():
    held = fitted()[0].held_out_
    rows, missed = [], []
    for name, search in SEARCHES.items():
        options = {"criterion": "equalized_odds", "tolerances": TOLERANCES, "search": search, "random_state": 0}
        curve = eh.frontier(held.y, held.sensitive_features, held.p_y, held.p_group, **options)
        rows += [{"search": name, "tolerance": p.tolerance, "accuracy": p.utility} for p in curve]
        missed += [{"search": name, "tolerance": t} for t in (*curve.unreachable, *curve.not_found)]
    lowest = min(row["accuracy"] for row in rows)
    ranks = {name: lowest - 0.001 * rank for rank, name in enumerate(SEARCHES, start=1)}
    x = alt.X("tolerance:Q", scale=alt.Scale(type="log"), title="tolerance; a cross where a search finds no rule")
    y = alt.Y("accuracy:Q", scale=alt.Scale(zero=False), axis=alt.Axis(format=".1%"))
    colours = alt.Scale(domain=list(SEARCHES), range=[WARM, BEFORE, OTHER, AFTER])
    colour = alt.Color("search:N", scale=colours, title=None)
    chart = alt.Chart(alt.InlineData(rows)).mark_line(point=True).encode(x=x, y=y, color=colour)
    crosses = alt.Chart(alt.InlineData([{**row, "accuracy": ranks[row["search"]]} for row in missed]))
    chart += crosses.mark_point(shape="cross", size=50, angle=45, filled=True).encode(x=x, y=y, color=colour)
    return {"searches": chart.properties(width=440, height=280)}


if __name__ == "__main__":
    save(pictures())
