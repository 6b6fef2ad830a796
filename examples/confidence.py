"""Met on the sample is not met: the true gap of rules learnt with and without a guarantee, over fifty samples."""

import altair as alt

import evenhand as eh
from drawing import AFTER, BEFORE, WARM, save

TOLERANCE = 0.1


def true_gap(rule, population):
    decisions = rule.decide(population.p_y, population.p_group)
    return eh.metrics.demographic_parity_difference(population.y, decisions, sensitive_features=population.group)


def pictures():
    population = eh.datasets.make_zafar(100_000, random_state=999)
    rows, without = [], 0
    for seed in range(50):
        data = eh.datasets.make_zafar(4000, random_state=seed, iid=True)
        for name, confidence in (("no promise", None), ("confidence 95%", 0.95)):
            options = {"tolerance": TOLERANCE, "confidence": confidence, "random_state": seed}
            try:
                rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_group, **options)
            except eh.InfeasibleError:
                without += 1
                continue
            rows.append({"rule": name, "gap": true_gap(rule, population), "sample": seed})
    title = f"50 samples of 4,000 rows; for {without} of them there is an error and no promise"
    points = (
        alt.Chart(alt.InlineData(rows), title=title)
        .mark_circle(size=50, opacity=0.7)
        .encode(
            x=alt.X("gap:Q", title="difference of selection rates in the population"),
            y=alt.Y("rule:N", title=None, sort=["no promise", "confidence 95%"]),
            yOffset=alt.YOffset("sample:Q"),
            color=alt.Color("rule:N", scale=alt.Scale(range=[AFTER, BEFORE]), legend=None),
        )
    )
    limit = alt.Chart(alt.InlineData([{"gap": TOLERANCE}])).mark_rule(color=WARM, size=2).encode(x="gap:Q")
    return {"confidence": (points + limit).properties(width=440, height=220)}


if __name__ == "__main__":
    save(pictures())
