"""The price of fairness: the best accuracy at every tolerance, for three criteria, each from one search."""

import altair as alt

import evenhand as eh
from drawing import AFTER, BEFORE, OTHER, save

NAMES = {
    "demographic_parity": "demographic parity",
    "equal_opportunity": "equal opportunity",
    "equalized_odds": "equalized odds",
}


def pictures():
    data = eh.datasets.make_zafar(4000, random_state=0)
    rows, base = [], []
    for criterion, name in NAMES.items():
        curve = eh.frontier(data.y, data.group, data.p_y, data.p_joint, criterion=criterion)
        table = curve.table()
        pairs = zip(table["tolerance"], table["utility"], strict=True)
        rows += [{"criterion": name, "tolerance": t, "accuracy": u} for t, u in pairs]
        base.append({"criterion": name, "tolerance": curve.base_gap, "accuracy": curve.base_utility})
    colour = alt.Color("criterion:N", scale=alt.Scale(range=[AFTER, OTHER, BEFORE]), title=None)
    x = alt.X("tolerance:Q", title="largest allowed difference of rates", axis=alt.Axis(format="%"))
    y = alt.Y("accuracy:Q", scale=alt.Scale(zero=False), axis=alt.Axis(format="%"))
    lines = alt.Chart(alt.InlineData(rows)).mark_line(point=True).encode(x=x, y=y, color=colour)
    points = alt.Chart(alt.InlineData(base)).mark_point(shape="diamond", size=120, filled=True)
    points = points.encode(x=x, y=y, color=colour)
    return {"frontier": (lines + points).properties(width=440, height=280)}


if __name__ == "__main__":
    save(pictures())
