"""An attribute with five values: ten pairs must agree, which is four numbers to find."""

import altair as alt
import numpy as np
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from drawing import AFTER, BEFORE, save

REGIONS = np.array(["centre", "east", "north", "south", "west"])


def people(n: int, seed: int):
    """Return features, labels and regions; the regions differ in their features, and therefore in their rates."""
    rng = np.random.default_rng(seed)
    region = rng.integers(0, 5, n)
    X = rng.normal(size=(n, 3)) + np.array([0.9, 0.4, 0.0, -0.3, -0.7])[region][:, None] * [1.0, 0.6, 0.3]
    X = np.column_stack([X, (region[:, None] == np.arange(4)) * 1.0 + rng.normal(0, 0.4, (n, 4))])
    y = (X[:, 0] + 0.7 * X[:, 1] + rng.normal(size=n) > 0.6).astype(int)
    return X, y, REGIONS[region]


def pictures():
    X, y, region = people(6000, 0)
    new_X, new_y, new_region = people(20_000, 1)
    search = eh.Certified(max_seconds=2)
    fair = eh.FairClassifier(LogisticRegression(), criterion="dp", tolerance=0.03, search=search, random_state=0)
    fair.fit(X, y, sensitive_features={"region": region})
    decisions = {"before": fair.predict_proba(new_X)[:, 1] > 0.5, "after": fair.predict(new_X)}
    rows = [
        {"when": when, "region": name, "rate": float(chosen[new_region == name].mean())}
        for when, chosen in decisions.items()
        for name in REGIONS.tolist()
    ]
    accuracy = {when: float((chosen == new_y).mean()) for when, chosen in decisions.items()}
    chart = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X("rate:Q", title="share of positive decisions on new people", axis=alt.Axis(format="%")),
        y=alt.Y("region:N", title=None),
    )
    colour = alt.Color(
        "when:N",
        scale=alt.Scale(domain=["before", "after"], range=[BEFORE, AFTER]),
        title=None,
        sort=["before", "after"],
    )
    title = f"accuracy {accuracy['before']:.1%} before, {accuracy['after']:.1%} after"
    points = chart.mark_line(color="#cfd8dc").encode(detail="region:N") + chart.mark_circle(size=140).encode(
        color=colour
    )
    return {"five-groups": points.properties(width=420, height=200, title=title)}


if __name__ == "__main__":
    save(pictures())
