"""Rules and mixtures with strata as ONNX: the stratum is one more input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import evenhand as eh
from evenhand.errors import DisagreementError
from evenhand.export import onnx_strata
from evenhand.export.onnx import classifier_to_onnx, rule_to_onnx

onnxruntime = pytest.importorskip("onnxruntime")

DATA = eh.datasets.make_zafar(900, random_state=0)
TEXT = np.array(["clerk", "driver", "nurse"])[np.arange(900) % 3]
WHOLE = np.arange(900) % 3 + 10


def learnt(strata, *, thin=None, criterion=eh.EqualizedOdds, randomize=False):
    rows = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)
    wanted = criterion(within="job", thin=thin)
    return eh.learn_rule(
        *rows, criterion=wanted, tolerance=0.0 if randomize else 0.1, strata=strata, randomize=randomize
    )


def run(path, names, **feeds):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(list(names), feeds)


@pytest.mark.parametrize("strata", [TEXT, WHOLE], ids=["text", "numbers"])
@pytest.mark.parametrize("thin", [None, 5])
def test_a_rule_decides_by_the_rows_stratum(tmp_path, strata, thin):
    rule = learnt(strata, thin=thin)
    path = tmp_path / "rule.onnx"
    assert rule_to_onnx(rule, path).margin_difference == 0.0
    assert rule_to_onnx(rule, path, p_y=DATA.p_y, p_group=DATA.p_joint, strata=strata).rows == 900
    given = strata.astype(object) if strata is TEXT else strata.astype(np.int64)
    label, margin = run(path, ("label", "fair_margin"), p_y=DATA.p_y, p_group=DATA.p_joint, stratum=given)
    np.testing.assert_array_equal(label, rule.decide(DATA.p_y, DATA.p_joint, strata=strata))
    np.testing.assert_array_equal(margin, rule.decision_function(DATA.p_y, DATA.p_joint, strata=strata))
    given = np.array(["new"] * 900, dtype=object) if strata is TEXT else np.full(900, 99)
    label, margin = run(path, ("label", "fair_margin"), p_y=DATA.p_y, p_group=DATA.p_joint, stratum=given)
    if thin is None:
        assert np.isnan(margin).all()
        assert not label.any()
    else:
        np.testing.assert_array_equal(label, DATA.p_y > 0.5)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_mixture_draws_by_the_weights_of_the_rows_stratum(tmp_path, keyed):
    mixed = learnt(TEXT, thin=5, randomize=True)
    assert len(mixed.rules) > 2
    path = tmp_path / "mixed.onnx"
    rule_to_onnx(mixed, path, keyed=keyed)
    key = np.arange(900, dtype=np.int64)
    feeds = {"p_y": DATA.p_y, "p_group": DATA.p_joint, "stratum": TEXT.astype(object)} | ({"key": key} if keyed else {})
    label, chance = run(path, ("label", "expected_decision"), **feeds)
    drawn = {"key": key} if keyed else {}
    np.testing.assert_array_equal(label, mixed.decide(DATA.p_y, DATA.p_joint, strata=TEXT, **drawn))
    np.testing.assert_array_equal(chance, mixed.expected_decision(DATA.p_y, DATA.p_joint, strata=TEXT))


def test_what_a_graph_cannot_tell_apart_is_refused(tmp_path):
    path = tmp_path / "rule.onnx"
    with pytest.raises(eh.InputError, match="all text or all whole numbers"):
        rule_to_onnx(learnt(WHOLE / 2, criterion=eh.DemographicParity), path)
    plain = eh.learn_rule(DATA.y, DATA.group, DATA.p_y, DATA.p_joint, tolerance=0.1)
    with pytest.raises(eh.InputError, match="strata needs a criterion"):
        rule_to_onnx(plain, path, p_y=DATA.p_y, p_group=DATA.p_group, strata=TEXT)
    with pytest.raises(eh.InputError, match="strata"):
        rule_to_onnx(learnt(TEXT), path, p_y=DATA.p_y, p_group=DATA.p_joint)
    assert not path.exists()


def in_two_columns(*, thin=None, overall=False):
    criterion = eh.DemographicParity(within="job", thin=thin) & eh.EqualOpportunity(within="town", thin=thin)
    criterion = criterion & eh.DemographicParity() if overall else criterion
    strata = {"job": TEXT, "town": np.arange(900) // 2 % 2}
    rows = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)
    return eh.learn_rule(*rows, criterion=criterion, tolerance=0.3, strata=strata, search="smoothed"), strata


@pytest.mark.parametrize("overall", [False, True])
@pytest.mark.parametrize("thin", [None, 5])
def test_several_columns_of_strata_are_one_input_each(tmp_path, thin, overall):
    rule, strata = in_two_columns(thin=thin, overall=overall)
    assert np.count_nonzero(rule.z) > 1
    path = tmp_path / "rule.onnx"
    assert rule_to_onnx(rule, path).margin_difference == 0.0
    assert rule_to_onnx(rule, path, p_y=DATA.p_y, p_group=DATA.p_joint, strata=strata).rows == 900
    feeds = {"p_y": DATA.p_y, "p_group": DATA.p_joint}
    inside = {"stratum_job": TEXT.astype(object), "stratum_town": strata["town"].astype(np.int64)}
    label, margin = run(path, ("label", "fair_margin"), **feeds, **inside)
    np.testing.assert_array_equal(margin, rule.decision_function(DATA.p_y, DATA.p_joint, strata=strata))
    np.testing.assert_array_equal(label, rule.decide(DATA.p_y, DATA.p_joint, strata=strata))
    inside["stratum_job"] = np.array(["new"] * 900, dtype=object)
    (margin,) = run(path, ("fair_margin",), **feeds, **inside)
    if thin is None:
        assert np.isnan(margin).all()
    else:
        known = rule.decision_function(DATA.p_y, DATA.p_joint, strata={**strata, "job": ["new"] * 900})
        np.testing.assert_array_equal(margin, known)


def test_a_row_without_a_stratum_is_compared_as_the_model_decides_it(tmp_path):
    rule, strata = in_two_columns(thin=5)
    some = [None if row % 3 else job for row, job in enumerate(strata["job"])]
    given = {"p_y": DATA.p_y, "p_group": DATA.p_joint, "strata": {**strata, "job": some}}
    assert rule_to_onnx(rule, tmp_path / "rule.onnx", **given).margin_difference == 0.0


def classifier(X, criterion, *, model=None, **options):
    model = LogisticRegression() if model is None else model
    fair = eh.FairClassifier(model, criterion=criterion, tolerance=0.1, cv=2, random_state=0, **options)
    return fair.fit(X, DATA.y, sensitive_features=DATA.group)


@pytest.mark.parametrize("options", [{}, {"recalibrate": True}, {"randomize": True}])
def test_a_whole_classifier_has_its_features_and_the_stratum(tmp_path, options):
    X = pd.DataFrame(np.asarray(DATA.X), columns=["a", "b"]).assign(job=TEXT)
    model = make_pipeline(make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough"))
    model = make_pipeline(*model.named_steps.values(), LogisticRegression())
    fair = classifier(X, eh.EqualOpportunity(within="job", thin=5), model=model, **options)
    path = tmp_path / "fair.onnx"
    assert classifier_to_onnx(fair, path, X[:600]).rows == 1200
    feeds = {name: X[[name]].to_numpy() for name in ("a", "b", "job")} | {"stratum": TEXT.astype(object)}
    key = np.arange(900)
    drawn = {"key": key} if options.get("randomize") else {}
    (label,) = run(path, ("label",), **feeds, **drawn)
    np.testing.assert_array_equal(label, fair.predict(X, **drawn))
    feeds["stratum"] = np.roll(TEXT, 1).astype(object)
    (other,) = run(path, ("label",), **feeds, **drawn)
    p_y, p_group = fair.probabilities(X)
    known = fair.rule_.decide(p_y, {"group": p_group["group"]}, strata=np.roll(TEXT, 1), **drawn)
    np.testing.assert_array_equal(other, known)
    assert (other != label).any()


def test_a_classifier_of_an_array_has_whole_numbers_as_strata_of_two_columns(tmp_path):
    X = np.column_stack([np.asarray(DATA.X), WHOLE, np.arange(900) // 2 % 2])
    criterion = eh.DemographicParity(within="x2", thin=5) & eh.DemographicParity(within="x3", thin=5)
    fair = classifier(X, criterion, search="smoothed")
    path = tmp_path / "fair.onnx"
    # One stratum in the sample: the others are compared all the same.
    assert classifier_to_onnx(fair, path, X[WHOLE == 10]).rows == 600
    feeds = {"X": X, "stratum_x2": WHOLE.astype(np.int64), "stratum_x3": X[:, 3].astype(np.int64)}
    (label,) = run(path, ("label",), **feeds)
    np.testing.assert_array_equal(label, fair.predict(X))


def test_a_graph_that_mistakes_a_stratum_is_not_written(tmp_path, monkeypatch):
    X = np.column_stack([np.asarray(DATA.X), WHOLE])
    fair = classifier(X, eh.DemographicParity(within="x2"))
    places = onnx_strata._places
    monkeypatch.setattr(onnx_strata, "_places", lambda graph, name, members: places(graph, name, members[::-1]))
    with pytest.raises(DisagreementError):
        classifier_to_onnx(fair, tmp_path / "fair.onnx", X[WHOLE == 11])
    assert not list(tmp_path.iterdir())
