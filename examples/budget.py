"""Limited places: whom a budget selects, with parity between groups and without."""

import altair as alt

import evenhand as eh
from drawing import AFTER, OTHER, save


def pictures():
    data = eh.datasets.make_zafar(4000, random_state=0)
    rows = []
    for percent in range(5, 50, 5):
        budget = eh.SelectionBudget(upper=percent / 100)
        for name, criterion in {"budget alone": budget, "budget and parity": budget & eh.DemographicParity()}.items():
            rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_group, criterion=criterion, tolerance=0.01)
            chosen = rule.decide(data.p_y, data.p_group) == 1
            rows += [
                {
                    "rule": name,
                    "group": f"group {group}",
                    "budget": percent / 100,
                    "rate": chosen[data.group == group].mean(),
                }
                for group in ("0", "1")
            ]
    chart = (
        alt.Chart(alt.InlineData(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("budget:Q", title="share of everyone that may be selected", axis=alt.Axis(format="%")),
            y=alt.Y("rate:Q", title="share of the group that is", axis=alt.Axis(format="%")),
            color=alt.Color("rule:N", title=None, scale=alt.Scale(range=[AFTER, OTHER])),
            strokeDash=alt.StrokeDash("group:N", title=None),
        )
    )
    return {"budget": chart.properties(width=400, height=260)}


if __name__ == "__main__":
    save(pictures())
