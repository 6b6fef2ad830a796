"""Two attributes: each separately, and crossed. Parity of each says little about their combinations."""

import altair as alt
import numpy as np

import evenhand as eh
from drawing import AFTER, BEFORE, OTHER, save


def people(n: int, seed: int):
    """Return labels, the two attributes, p(Y|x) and the groups' probabilities; young women fare worst."""
    rng = np.random.default_rng(seed)
    sex, age = rng.choice(["F", "M"], n), rng.choice(["old", "young"], n)
    disfavoured = (sex == "F") & (age == "young")
    p = 1 / (1 + np.exp(-rng.normal(0.3, 1.2, n) + 1.6 * disfavoured))
    y = (rng.random(n) < p).astype(int)
    sure = {"sex": sex[:, None] == ["F", "M"], "age": age[:, None] == ["old", "young"]}
    p_group = {name: 0.8 * known + 0.1 for name, known in sure.items()}
    p_group["sex & age"] = (p_group["sex"][:, :, None] * p_group["age"][:, None, :]).reshape(n, 4)
    return y, {"sex": sex, "age": age}, p, p_group


def pictures():
    y, groups, p, p_group = people(4000, 0)
    criteria = {
        "each attribute": eh.DemographicParity(),
        "crossed": eh.DemographicParity(attribute=eh.Intersection("sex", "age")),
    }
    decisions = {"model alone": (p > 0.5).astype(int)}
    for name, criterion in criteria.items():
        rule = eh.learn_rule(y, groups, p, p_group, criterion=criterion, tolerance=0.02)
        decisions[name] = rule.decide(p, p_group)
    cells = {f"{a}, {b}": (groups["sex"] == a) & (groups["age"] == b) for a in "FM" for b in ("old", "young")}
    rows = [
        {"rule": name, "cell": cell, "rate": float(chosen[inside].mean())}
        for name, chosen in decisions.items()
        for cell, inside in cells.items()
    ]
    order = list(decisions)
    chart = (
        alt.Chart(alt.InlineData(rows))
        .mark_bar()
        .encode(
            x=alt.X("cell:N", title=None, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("rule:N", sort=order),
            y=alt.Y("rate:Q", title="share of positive decisions", axis=alt.Axis(format="%")),
            color=alt.Color(
                "rule:N", sort=order, title=None, scale=alt.Scale(domain=order, range=[BEFORE, OTHER, AFTER])
            ),
        )
    )
    return {"two-attributes": chart.properties(width=400, height=240)}


if __name__ == "__main__":
    save(pictures())
