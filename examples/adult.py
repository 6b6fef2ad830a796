"""The pictures of the tutorial: Adult before and after, and the trade-off."""

import functools

import altair as alt
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from drawing import AFTER, BEFORE, save

RATES = {"true_positive_rate": "true positive rate", "false_positive_rate": "false positive rate"}


@functools.cache
def fitted():
    """Return the classifier of the tutorial and its held-out people."""
    adult = eh.datasets.load_adult()
    split = adult.splits(random_state=0, sizes=(12_000, 0, 30_000))
    people, others = adult.take(split.train), adult.take(split.test)
    model = LogisticRegression(max_iter=500)
    fair = eh.FairClassifier(model, criterion="equalized_odds", tolerance=0.03, random_state=0)
    return fair.fit(people.X, people.y, sensitive_features={"sex": people.sensitive["sex"]}), others


def pictures():
    fair, others = fitted()
    decisions = {"before": fair.predict_proba(others.X)[:, 1] > 0.5, "after": fair.predict(others.X)}
    rows = []
    for when, chosen in decisions.items():
        for group in eh.audit(others.y, chosen, others.sensitive["sex"]).attributes[0].groups:
            for key, name in RATES.items():
                rate = getattr(group, key)
                bounds = {"value": rate.value, "lower": rate.lower, "upper": rate.upper}
                rows.append({"when": when, "group": group.group, "rate": name, **bounds})
    colours = alt.Scale(domain=["Female", "Male"], range=[AFTER, BEFORE])
    chart = alt.Chart(alt.InlineData(rows)).encode(
        y=alt.Y("when:N", sort=["before", "after"], title=None), color=alt.Color("group:N", scale=colours, title=None)
    )
    x = alt.X("lower:Q", title=None, axis=alt.Axis(format="%"), scale=alt.Scale(zero=False))
    bars = chart.mark_rule(size=3).encode(x=x, x2="upper:Q") + chart.mark_circle(size=90, opacity=1).encode(x="value:Q")
    rates = bars.properties(width=380, height=70).facet(
        row=alt.Row("rate:N", title=None, header=alt.Header(labelAngle=0))
    )
    rates = rates.resolve_scale(x="independent")
    return {"adult-rates": rates, "adult-frontier": fair.frontier().plot().chart.properties(title="")}


if __name__ == "__main__":
    save(pictures())
