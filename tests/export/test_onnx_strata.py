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


def of_two(first, second):
    """Return one of two strata for each row, unchanged by NumPy."""
    found = np.empty(900, dtype=object)
    found[:] = [first if row % 2 else second for row in range(900)]
    return found


@pytest.mark.parametrize("randomize", [False, True])
@pytest.mark.parametrize("thin", [None, 5])
def test_the_largest_and_smallest_whole_strata_are_told_apart(tmp_path, thin, randomize):
    for strata in (of_two(2**63 - 1, 0), of_two(-(2**63), 1), of_two(2**53, 2.0)):
        rule = learnt(strata, thin=thin, criterion=eh.DemographicParity, randomize=randomize)
        assert rule_to_onnx(rule, tmp_path / "rule.onnx").margin_difference == 0.0
        given = {"p_y": DATA.p_y, "p_group": DATA.p_joint, "strata": strata}
        assert rule_to_onnx(rule, tmp_path / "rule.onnx", **given).rows == 900


@pytest.mark.parametrize("randomize", [False, True])
@pytest.mark.parametrize(
    ("strata", "message"),
    [
        ((2**63, 5), r"from -2\^63 to 2\^63 - 1, but a stratum of 'job' is 9223372036854775808: learn"),
        ((-(2**70), 5), "but a stratum of 'job' is -1180591620717411303424"),
        ((1e19, 5.0), r"but a stratum of 'job' is 1e\+19"),
        (("\ud800", "x"), "stratum of 'job' has a character that cannot be written in UTF-8"),
    ],
)
def test_strata_that_onnx_does_not_have_are_refused(tmp_path, strata, message, randomize):
    strata = of_two(*strata)
    rule = learnt(strata, thin=5, criterion=eh.DemographicParity, randomize=randomize)
    for given in ({}, {"p_y": DATA.p_y, "p_group": DATA.p_joint, "strata": strata}):
        with pytest.raises(eh.InputError, match=message):
            rule_to_onnx(rule, tmp_path / "rule.onnx", **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.float32, np.str_, np.uint16])
def test_strata_and_labels_of_numpy_scalars_are_those_of_python(tmp_path, kind):
    strata = [kind(value) for value in WHOLE]
    y = [kind(value) for value in DATA.y]
    mixed = of_two(kind(3), kind(4).item())
    for given in (strata, np.fromiter(strata, object, 900), mixed):
        rule = eh.learn_rule(
            y,
            DATA.group,
            DATA.p_y,
            DATA.p_joint,
            criterion=eh.DemographicParity(within="job"),
            tolerance=0.1,
            strata=given,
            pos_label=kind(1),
        )
        values = {pair[0] for key, pairs in rule.groups.items() if key != "group" for pair in pairs}
        assert {type(value) for value in [*values, *rule.classes]} == {type(kind(1).item())}
        rule_to_onnx(rule, tmp_path / "rule.onnx")
        names = {group: f"p_{group}" for group in rule.groups["group"]}
        assert "job" in rule.to_sql(p_y="p", p_group=names, strata={"job": "job"}, dialect="duckdb")
    model = eh.learn_rule(
        None, None, DATA.p_y, DATA.p_joint, evidence="model", groups=[kind(0), kind(1)], pos_label=kind(2)
    )
    assert {type(value) for value in [*model.groups["group"], model.classes[1]]} == {type(kind(1).item())}


@pytest.mark.parametrize("randomize", [False, True])
def test_no_rows_to_compare_are_refused(tmp_path, randomize):
    for rule, given in (
        (learnt(TEXT, randomize=randomize), {"strata": []}),
        (eh.learn_rule(DATA.y, DATA.group, DATA.p_y, DATA.p_joint, tolerance=0.1, randomize=randomize), {}),
    ):
        with pytest.raises(eh.InputError, match="p_y has no rows: pass some rows"):
            rule_to_onnx(rule, tmp_path / "rule.onnx", p_y=[], p_group=np.zeros((0, 2, 2)), **given)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("label", "has an output 'label', so no column may have this name: rename"),
        ("fair_margin", "has an output 'fair_margin'"),
        ("probability", "has an output 'probability'"),
        ("stratum", "already has an input 'stratum': rename"),
        ("edge_0_0", "uses for its inner edges: rename"),
        ("constant_1", "uses for its inner edges: rename"),
    ],
)
def test_columns_that_have_a_name_of_the_graph_are_refused(tmp_path, name, message):
    X = pd.DataFrame(DATA.X, columns=["a", name]).assign(job=WHOLE)
    fair = classifier(X, eh.DemographicParity(within="job"))
    with pytest.raises(eh.InputError, match=message):
        classifier_to_onnx(fair, tmp_path / "fair.onnx", X)


def test_texts_that_a_file_cannot_hold_are_refused(tmp_path):
    half = {"\ud800": ("F", "M"), "b": ("x", "y")}
    by_name = eh.Rule.from_criterion("dp", groups=half, priors={"\ud800": [0.5] * 2, "b": [0.5] * 2}, z=[0.1, 0.2])
    y = np.where(DATA.y, "\ud800", "no")
    by_label = eh.learn_rule(y, DATA.group, DATA.p_y, DATA.p_joint, tolerance=0.1, pos_label="\ud800")
    by_group = eh.Rule.from_criterion("dp", groups={"a": ("\ud800", "M")}, priors=[0.5] * 2, z=[0.125])
    for rule in (by_name, by_label, by_group):
        with pytest.raises(eh.InputError, match="character that cannot be written in UTF-8"):
            rule_to_onnx(rule, tmp_path / "rule.onnx")
    assert not list(tmp_path.iterdir())


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
