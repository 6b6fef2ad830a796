"""An ONNX file decides as Python does, or is not written."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import evenhand as eh
import onnx
from classifiers import paper_classifier
from evenhand.errors import DisagreementError, EvenhandWarning, InputError, MissingExtraError
from evenhand.export import onnx as export
from evenhand.export.onnx import Agreement, classifier_to_onnx, rule_to_onnx
from evenhand.paper.models import MLP
from evenhand.rules.criteria import resolve
from evenhand.rules.system import write_out

ROWS = 1500


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvenhandWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="sklearn.neural_network")
        yield


@pytest.fixture(scope="module")
def data():
    return eh.datasets.make_zafar(ROWS, random_state=0)


def run(path, feeds):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))


def fitted(model, data, X=None, **options):
    options = {"tolerance": 0.3, "cv": 2, "random_state": 0, **options}
    X = data.X if X is None else X
    return paper_classifier(model, **options).fit(X, data.y, sensitive_features=data.group)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    criterion=st.sampled_from(["dp", "eo", "eop", eh.SelectionBudget(upper=0.3), eh.SelectionRatio(0.8)]),
    groups=st.integers(2, 4),
    classes=st.sampled_from([(0, 1), (5, -7), ("it's no", "yes"), (False, True), (True, False), (0.5, 1.0)]),
)
def test_a_rule_has_the_same_margin_to_the_bit(seed, criterion, groups, classes, tmp_path_factory):
    rng = np.random.default_rng(seed)
    names = tuple("abcd"[:groups])
    k = len(write_out(resolve(criterion), {"sex": names}).contrasts)
    rule = eh.Rule.from_criterion(
        criterion,
        groups={"sex": names},
        priors=rng.dirichlet(np.ones(2 * groups)).reshape(2, groups),
        z=rng.normal(size=k) * 0.1,
        classes=classes,
        costs=(1.0, rng.uniform(0.5, 3.0)),
    )
    path = tmp_path_factory.mktemp("rule") / "rule.onnx"
    assert rule_to_onnx(rule, path) == Agreement(10_000, 0.0)
    p, joint = rng.random(200), rng.dirichlet(np.ones(2 * groups), 200).reshape(200, 2, groups)
    columns = joint if rule.needs_joint else joint.sum(axis=1)
    columns = columns if rule.attributes else None
    found = run(path, {"p_y": p} if columns is None else {"p_y": p, "p_group": columns})
    assert found["fair_margin"].tolist() == rule.decision_function(p, columns).tolist()
    assert found["label"].tolist() == rule.decide(p, columns).tolist()


def test_several_attributes_have_an_input_each_and_the_rule_is_in_the_file(tmp_path):
    rule = eh.Rule.from_criterion(
        "dp",
        groups={"sex": ("F", "M"), "a b": ("x", "y", "z")},
        priors={"sex": [0.4, 0.6], "a b": [0.3, 0.3, 0.4]},
        z=[0.1, -0.2, 0.05],
    )
    rule_to_onnx(rule, tmp_path / "rule.onnx")
    rng = np.random.default_rng(0)
    p, sex, other = rng.random(50), rng.dirichlet([1, 1], 50), rng.dirichlet([1, 1, 1], 50)
    found = run(tmp_path / "rule.onnx", {"p_y": p, "p_group_sex": sex, "p_group_a b": other})
    assert found["fair_margin"].tolist() == rule.decision_function(p, {"sex": sex, "a b": other}).tolist()
    properties = {entry.key: entry.value for entry in onnx.load(tmp_path / "rule.onnx").metadata_props}
    assert eh.Rule.from_json(properties["evenhand.rule"]) == rule


def test_a_rule_about_groups_takes_joint_probabilities_where_they_are_given(tmp_path):
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1])
    rng = np.random.default_rng(0)
    p, joint = rng.random(50), rng.dirichlet(np.ones(4), 50).reshape(50, 2, 2)
    assert rule_to_onnx(rule, tmp_path / "rule.onnx", p_y=p, p_group=joint).rows == 50
    assert run(tmp_path / "rule.onnx", {"p_y": p, "p_group": joint})["label"].tolist() == rule.decide(p, joint).tolist()


@pytest.mark.parametrize("joint", [False, True])
def test_what_rounding_took_over_the_edge_is_decided_as_in_python(joint, tmp_path):
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.5])
    p = np.array([1.0 + 5e-7, 1.0, -5e-7, 0.0, 0.5, np.nan])
    groups = np.array([[1.0, 0.0], [1.0 + 5e-7, 0.0], [0.0, 1.0], [-5e-7, 1.0], [0.5, 0.5], [0.5, 0.5]])
    groups = np.stack([groups, np.zeros((6, 2))], axis=1) if joint else groups
    assert rule_to_onnx(rule, tmp_path / "rule.onnx", p_y=p[:5], p_group=groups[:5]) == Agreement(5, 0.0)
    found = run(tmp_path / "rule.onnx", {"p_y": p, "p_group": groups})
    assert found["fair_margin"][:5].tolist() == rule.decision_function(p[:5], groups[:5]).tolist()
    assert found["label"][:5].tolist() == rule.decide(p[:5], groups[:5]).tolist()
    assert np.isnan(found["fair_margin"][5])


EXACT = {
    "logistic": LogisticRegression(),
    "scaled": make_pipeline(StandardScaler(), LogisticRegression()),
    "boosting": HistGradientBoostingClassifier(max_iter=15),
    "boosting in a pipeline": make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=10)),
    "calibrated": CalibratedClassifierCV(LogisticRegression(), cv=2),
    "bayes": GaussianNB(),
    "network": MLPClassifier((5,), max_iter=3, random_state=0),
}
ROUNDED = {
    "forest": RandomForestClassifier(10),
    "extra trees": ExtraTreesClassifier(10),
    "old boosting": GradientBoostingClassifier(n_estimators=5),
    "mlp": make_pipeline(StandardScaler(), MLP(max_epochs=3, lr=0.02)),
}


@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_a_whole_classifier_decides_as_python_does(name, data, tmp_path):
    fair = fitted({**EXACT, **ROUNDED}[name], data)
    new = eh.datasets.make_zafar(ROWS, random_state=1).X
    agreement = classifier_to_onnx(fair, tmp_path / "fair.onnx", data.X)
    assert agreement.rows == ROWS
    assert agreement.margin_difference < (1e-11 if name in EXACT else 1e-5)
    found = run(tmp_path / "fair.onnx", {"X": new})
    assert found["label"].tolist() == fair.predict(new).tolist()
    np.testing.assert_allclose(found["fair_margin"], fair.decision_function(new), rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["probability"], fair.predict_proba(new)[:, 1], rtol=0, atol=1e-6)


def test_ensembles_frozen_models_and_labels_of_any_kind(data, tmp_path):
    y = np.where(np.asarray(data.y) == 1, "hire", "reject")
    ensemble = eh.FairClassifier(
        LogisticRegression(), criterion="dp", ensemble=True, cv=3, tolerance=0.2, pos_label="hire", random_state=0
    ).fit(data.X, y, sensitive_features=data.group)
    base = FrozenEstimator(LogisticRegression().fit(data.X, data.y))
    order = np.asarray([(label, group) for label in (1, 0) for group in ("1", "0")], dtype=object)
    pairs = np.array([f"{label}{group}" for label, group in zip(data.y, data.group, strict=True)])
    codes = np.array([[f"{a}{b}" for a, b in order].index(pair) for pair in pairs])
    flipped = {0: 3, 1: 2, 2: 1, 3: 0}
    auxiliary = FrozenEstimator(HistGradientBoostingClassifier(max_iter=5).fit(data.X, [flipped[c] for c in codes]))
    frozen = eh.FairClassifier(base, auxiliary=auxiliary, tolerance=0.2, cv=None)
    frozen.fit(data.X, data.y, sensitive_features=data.group)
    for fair in (ensemble, frozen):
        classifier_to_onnx(fair, tmp_path / "fair.onnx", data.X)
        found = run(tmp_path / "fair.onnx", {"X": data.X})
        assert found["label"].tolist() == fair.predict(data.X).tolist()


@pytest.mark.parametrize("criterion", ["dp", "eo"])
@pytest.mark.parametrize("base", [LogisticRegression(), HistGradientBoostingClassifier(max_iter=10)], ids=repr)
def test_corrected_probabilities_are_corrected_in_the_graph_too(base, criterion, data, tmp_path):
    groups = {"A": data.group, "B": np.where(data.X[:, 0] > 0, "x", np.where(data.X[:, 1] > 0, "y", "z"))}
    fair = eh.FairClassifier(base, criterion=criterion, tolerance=0.3, recalibrate=True, random_state=0)
    fair.fit(data.X, data.y, sensitive_features=groups)
    # Some of these rows have scores beyond those that the correction was fitted on.
    X = np.concatenate([data.X, 3.0 * data.X])
    assert classifier_to_onnx(fair, tmp_path / "fair.onnx", X).margin_difference < 1e-9
    found = run(tmp_path / "fair.onnx", {"X": X})
    assert found["label"].tolist() == fair.predict(X).tolist()
    np.testing.assert_allclose(found["probability"], fair.predict_proba(X)[:, 1], rtol=0, atol=1e-12)


def test_missing_values_and_categories_take_the_branches_that_they_take_in_python(data, tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([data.X[:, 0], rng.integers(-5, 35, ROWS) * 3.0, data.X[:, 1]])
    X[:, 2] += 0.3 * (X[:, 1] % 2)
    for j in range(3):
        X[rng.random(ROWS) < 0.1, j] = np.nan
    model = HistGradientBoostingClassifier(max_iter=20, categorical_features=[1], min_samples_leaf=5)
    fair = fitted(model, data, X)
    new = X.copy()
    new[:50, 1] = 7777.0
    new[50:100, 1] = -100.0
    assert classifier_to_onnx(fair, tmp_path / "fair.onnx", new).margin_difference < 1e-13
    splits = sum(int(t.nodes["is_categorical"].sum()) for step in fair.estimator_._predictors for t in step)
    assert splits > 5
    halves = fitted(model, data, X * [1.0, 0.5, 1.0])
    with pytest.raises(InputError, match="must be whole numbers"):
        classifier_to_onnx(halves, tmp_path / "fair.onnx", X * [1.0, 0.5, 1.0])


def test_trees_of_one_leaf_and_ensembles_of_boosting(data, tmp_path):
    stumps = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=700)
    fair = fitted(stumps, data, criterion="dp", ensemble=True)
    trees = [tree for model in fair.auxiliary_.estimators for step in model._predictors for tree in step]
    assert any(len(tree.nodes) == 1 for tree in trees)
    assert classifier_to_onnx(fair, tmp_path / "fair.onnx", data.X).margin_difference < 1e-11


def test_a_frame_has_an_input_for_each_column(data, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "a": data.X[:, 0],
            "b": data.X[:, 1],
            "colour": rng.choice(["red", "green", "blue"], ROWS),
            "rooms": rng.integers(1, 5, ROWS),
        }
    )
    linear = make_pipeline(
        make_column_transformer(
            (StandardScaler(), ["a", "b"]),
            (OneHotEncoder(handle_unknown="ignore"), ["colour"]),
            remainder="passthrough",
        ),
        LogisticRegression(),
    )
    boosting = make_pipeline(
        make_column_transformer((OrdinalEncoder(), ["colour"]), remainder="passthrough"),
        HistGradientBoostingClassifier(max_iter=5, categorical_features=[0]),
    )
    for model in (linear, boosting):
        fair = fitted(model, data, X)
        assert classifier_to_onnx(fair, tmp_path / "fair.onnx", X).rows == ROWS
        feeds = {name: X[[name]].to_numpy().astype(object if name == "colour" else float) for name in X}
        assert run(tmp_path / "fair.onnx", feeds)["label"].tolist() == fair.predict(X).tolist()
    bare = fitted(HistGradientBoostingClassifier(max_iter=5), data, X[["a", "b", "rooms"]])
    classifier_to_onnx(bare, tmp_path / "bare.onnx", X[["a", "b", "rooms"]])


@pytest.mark.parametrize("name", ["logistic", "scaled", "calibrated", "network", "forest", "boosting"])
def test_a_plain_model_of_a_frame_has_an_input_for_each_column_too(name, data, tmp_path):
    X = pd.DataFrame({"a": data.X[:, 0], "b b": data.X[:, 1], "rooms": np.arange(ROWS) % 5, "new": data.X[:, 0] > 1})
    fair = fitted({**EXACT, **ROUNDED}[name], data, X)
    assert classifier_to_onnx(fair, tmp_path / "fair.onnx", X).rows == ROWS
    found = run(tmp_path / "fair.onnx", {column: X[[column]].to_numpy().astype(float) for column in X})
    assert found["label"].tolist() == fair.predict(X).tolist()
    np.testing.assert_allclose(found["fair_margin"], fair.decision_function(X), rtol=0, atol=1e-5)


def test_a_graph_that_decides_otherwise_is_not_written(data, tmp_path, monkeypatch):
    fair = fitted(LogisticRegression(), data)
    add_rule = export.add_rule

    def forgetful(graph, rule, p_y, p_group, joint, labels, *strata):
        zero = eh.Rule(rule.groups, rule.events, rule.priors, (), rule.classes, rule.costs)
        add_rule(graph, zero, p_y, p_group, joint, labels, *strata)

    monkeypatch.setattr(export, "add_rule", forgetful)
    with pytest.raises(DisagreementError, match=r"decides \d+ of 1500 rows differently from Python, so nothing was"):
        classifier_to_onnx(fair, tmp_path / "fair.onnx", data.X)

    def rounded(graph, rule, p_y, p_group, joint, labels, *strata):
        kinds = graph.onnx.TensorProto
        coarse = graph.cast(graph.cast(p_y, kinds.FLOAT16), kinds.DOUBLE)
        add_rule(graph, rule, coarse, p_group, joint, labels, *strata)

    monkeypatch.setattr(export, "add_rule", rounded)
    clear = data.X[np.abs(fair.decision_function(data.X)) > 0.1]
    with pytest.raises(DisagreementError, match="more than rounding explains"):
        classifier_to_onnx(fair, tmp_path / "fair.onnx", clear)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_refused_with_the_reason(data, tmp_path):
    class Unknown(GaussianNB):
        pass

    path = tmp_path / "fair.onnx"
    with pytest.raises(InputError, match=r"skl2onnx cannot convert Unknown.*rule_to_onnx"):
        classifier_to_onnx(fitted(Unknown(), data), path, data.X)
    seen = fitted(LogisticRegression(), data, sensitive_at_predict=True)
    with pytest.raises(InputError, match="rule_to_onnx"):
        classifier_to_onnx(seen, path, data.X)
    with pytest.raises(InputError, match="must be a FairClassifier"):
        classifier_to_onnx(LogisticRegression(), path, data.X)
    fair = fitted(LogisticRegression(), data)
    with pytest.raises((InputError, ValueError), match=r"minimum of 1|no rows"):
        classifier_to_onnx(fair, path, data.X[:0])
    mixed = fitted(
        make_pipeline(make_column_transformer((OneHotEncoder(), [2]), remainder="passthrough"), LogisticRegression()),
        data,
        np.column_stack([data.X.astype(object), np.where(data.X[:, 0] > 0, "a", "b").astype(object)]),
    )
    objects = np.column_stack([data.X.astype(object), np.where(data.X[:, 0] > 0, "a", "b").astype(object)])
    with pytest.raises(InputError, match="array of numbers, or a frame"):
        classifier_to_onnx(mixed, path, objects)
    both = eh.FairClassifier(
        HistGradientBoostingClassifier(max_iter=2), auxiliary=RandomForestClassifier(2), tolerance=0.4, cv=2
    ).fit(data.X, data.y, sensitive_features=data.group)
    with pytest.raises(InputError, match=r"skl2onnx cannot convert|one ONNX graph|cannot run"):
        classifier_to_onnx(both, path, data.X)
    strange = eh.Rule.from_criterion("dp", groups={"s": ["a", "b"]}, priors=[0.5, 0.5], z=[0.1], classes=(0, "yes"))
    with pytest.raises(InputError, match="ONNX cannot represent the labels"):
        rule_to_onnx(strange, path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_its_extra_one_sentence_says_what_to_install(package, tmp_path, monkeypatch):
    rule = eh.Rule.from_criterion("dp", groups={"s": ["a", "b"]}, priors=[0.5, 0.5], z=[0.1])
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs {package}: pip install 'evenhand\[onnx\]'"):
        rule_to_onnx(rule, tmp_path / "rule.onnx")
