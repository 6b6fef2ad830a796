"""The report of a classifier in one call."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.report import Report


@pytest.fixture(scope="module")
def data():
    return [eh.datasets.make_zafar(800, random_state=seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def fair(data):
    fair = eh.FairClassifier(LogisticRegression(), criterion="dp", tolerance=0.1, cv=2, random_state=0)
    return fair.fit(data[0].X, data[0].y, sensitive_features={"sex": data[0].group})


def test_one_call_writes_the_report_of_the_very_rule(fair, data, tmp_path):
    new = data[1]
    found = fair.report(new.X, new.y, sensitive_features={"sex": new.group}, path=tmp_path / "r.html", title="Mine")
    assert isinstance(found, Report)
    assert found.path.read_text(encoding="utf-8") == found.html()
    step = found.summary["steps"][found.summary["chosen"]]
    assert step["step_tolerance"] == 0.1
    assert [term["z"] for term in step["terms"]] == fair.rule_.z.tolist()
    decided = fair.predict(new.X)
    assert step["accuracy"]["value"] == pytest.approx((decided == new.y).mean())
    audit = eh.audit(new.y, decided, {"sex": new.group}, criterion="dp", tolerance=0.1)
    assert step["verdicts"][0]["gap"]["value"] == pytest.approx(audit.verdicts[0].gap.value)
    assert json.loads(found.json())["title"] == "Mine"
    assert len(found.summary["steps"]) > 10
    assert "What it costs" in found._repr_html_()
    assert str(tmp_path / "r.html") in str(found)


def test_the_groups_may_be_columns_of_x(data):
    frames = [pd.DataFrame(d.X, columns=["a", "b"]).assign(sex=np.asarray(d.group)) for d in data]
    fair = eh.FairClassifier(
        LogisticRegression(), criterion="dp", tolerance=0.1, cv=2, random_state=0, sensitive_columns="sex"
    ).fit(frames[0], data[0].y)
    found = fair.report(frames[1], data[1].y)
    assert found.summary["attributes"] == ["sex"]
    bare = eh.FairClassifier(LogisticRegression(), criterion="dp", tolerance=0.1, cv=2, random_state=0)
    bare.fit(data[0].X, data[0].y, sensitive_features=data[0].group)
    with pytest.raises(eh.InputError, match="as sensitive_features"):
        bare.report(data[1].X, data[1].y)


def test_a_gap_that_the_rule_widens_is_announced_with_intervals(fair, data):
    new = data[1]
    decided = fair.estimator_.predict(new.X)
    rate = {group: decided[new.group == group].mean() for group in np.unique(new.group)}
    low, high = sorted(rate, key=rate.get)
    # Rows on which the model alone has equal rates: the rule, learnt elsewhere, opens a gap between them.
    generator = np.random.default_rng(0)
    keep = np.flatnonzero(new.group == high)
    positive, negative = keep[decided[keep] == 1], keep[decided[keep] == 0]
    wanted = round(rate[low] / (1.0 - rate[low]) * len(negative))
    kept = np.concatenate([generator.choice(positive, wanted, replace=False), negative])
    rows = np.concatenate([np.flatnonzero(new.group == low), kept])
    said = r"widen a gap: demographic parity on sex from [\d.]+ \([\d.]+ to"
    with pytest.warns(eh.EvenhandWarning, match=said) as told:
        found = fair.report(new.X[rows], new.y[rows], sensitive_features={"sex": new.group[rows]})
    assert found.harm == str(told[0].message)
    assert found.harm in str(found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inside = fair.report(new.X[rows], new.y[rows], sensitive_features={"sex": new.group[rows]}, held_out=False)
    assert inside.harm is None
