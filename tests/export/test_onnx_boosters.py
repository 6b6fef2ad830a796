"""Boosted trees of other libraries, and forests whose votes are tied, as ONNX."""

from __future__ import annotations

import warnings

import catboost
import lightgbm
import numpy as np
import onnxruntime
import pandas
import pytest
import xgboost
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from classifiers import paper_classifier
from evenhand.errors import DisagreementError, EvenhandWarning, InputError
from evenhand.export import onnx_boosters, onnx_models
from evenhand.export.onnx import classifier_to_onnx


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvenhandWarning)
        # LightGBM names columns itself, and then warns that arrays have no names.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield


@pytest.fixture(scope="module")
def data():
    return eh.datasets.make_zafar(800, random_state=0)


BOOSTERS = {
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=8, verbose=-1, n_jobs=1),
    "xgboost": xgboost.XGBClassifier(n_estimators=8, n_jobs=1),
    "catboost": catboost.CatBoostClassifier(iterations=8, verbose=False, thread_count=1, allow_writing_files=False),
}
BOOSTERS["xgboost in a pipeline"] = make_pipeline(StandardScaler(), BOOSTERS["xgboost"])


def labels(path, X):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["label"], {"X": X})[0].tolist()


@pytest.mark.parametrize("name", BOOSTERS)
def test_boosted_trees_decide_as_python_does(name, data, tmp_path):
    fair = paper_classifier(BOOSTERS[name], criterion="eo", tolerance=0.3, cv=2, random_state=0)
    fair.fit(data.X, data.y, sensitive_features=data.group)
    agreement = classifier_to_onnx(fair, tmp_path / "fair.onnx", data.X)
    assert agreement.rows == len(data.X)
    assert agreement.margin_difference < 1e-5
    new = eh.datasets.make_zafar(500, random_state=1).X
    assert labels(tmp_path / "fair.onnx", new) == fair.predict(new).tolist()


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_missing_values_take_the_branch_that_they_take_in_python(name, data, tmp_path):
    X = np.where(np.random.default_rng(0).random(data.X.shape) < 0.2, np.nan, data.X)
    fair = paper_classifier(BOOSTERS[name], criterion="dp", tolerance=0.3, cv=2, random_state=0)
    fair.fit(X, data.y, sensitive_features=data.group)
    assert classifier_to_onnx(fair, tmp_path / "fair.onnx", X).rows == len(X)


def test_a_frame_of_boosted_trees_has_an_input_for_each_column(data, tmp_path):
    frame = pandas.DataFrame(data.X, columns=["first", "second"])
    fair = paper_classifier(BOOSTERS["lightgbm"], criterion="dp", tolerance=0.3, cv=2, random_state=0)
    fair.fit(frame, data.y, sensitive_features=data.group)
    assert classifier_to_onnx(fair, tmp_path / "fair.onnx", frame).rows == len(frame)


def test_a_booster_that_is_converted_unfaithfully_is_refused(data, tmp_path, monkeypatch):
    fair = paper_classifier(BOOSTERS["xgboost"], criterion="dp", tolerance=0.3, cv=2, random_state=0)
    fair.fit(data.X, data.y, sensitive_features=data.group)
    other = xgboost.XGBClassifier(n_estimators=1, n_jobs=1).fit(data.X, data.y)
    convert = onnx_boosters._converted
    monkeypatch.setattr(onnx_boosters, "_converted", lambda model, edge, width: convert(other, edge, width))
    with pytest.raises(DisagreementError, match="nothing was written"):
        classifier_to_onnx(fair, tmp_path / "fair.onnx", data.X)
    monkeypatch.setattr(onnx_boosters, "_converted", lambda *_: 1 / 0)
    with pytest.raises(InputError, match=r"XGBClassifier cannot be converted to ONNX: .*rule_to_onnx"):
        classifier_to_onnx(fair, tmp_path / "fair.onnx", data.X)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("forest", "trees"), [(RandomForestClassifier, 10), (ExtraTreesClassifier, 6)])
def test_forests_whose_votes_are_tied_are_exported_with_an_unchanged_rule(forest, trees, data, tmp_path, monkeypatch):
    """In single precision the mean of 0.3 and 0.7 is more than a half: tied rows would be decided positively."""
    fair = eh.FairClassifier(
        forest(trees, random_state=0),
        auxiliary=RandomForestClassifier(3, random_state=0),
        criterion="dp",
        tolerance=0.9,
        cv=2,
        random_state=0,
    ).fit(data.X, data.y, sensitive_features=data.group)
    assert fair.rule_.solution_.status == "unchanged"
    new = eh.datasets.make_zafar(1500, random_state=1).X
    assert (fair.predict_proba(new)[:, 1] == 0.5).sum() >= 20
    assert classifier_to_onnx(fair, tmp_path / "fair.onnx", new).margin_difference == 0.0
    assert labels(tmp_path / "fair.onnx", new) == fair.predict(new).tolist()
    monkeypatch.setattr(onnx_models, "FORESTS", ())
    with pytest.raises(DisagreementError, match="within rounding of the boundary"):
        classifier_to_onnx(fair, tmp_path / "stock.onnx", new)


def test_single_trees_and_missing_values_in_forests(data, tmp_path):
    X = np.where(np.random.default_rng(0).random(data.X.shape) < 0.2, np.nan, data.X)
    for model in (DecisionTreeClassifier(max_depth=4), RandomForestClassifier(5, max_depth=6)):
        fair = paper_classifier(model, criterion="eo", tolerance=0.4, cv=2, random_state=0)
        fair.fit(X, data.y, sensitive_features=data.group)
        assert classifier_to_onnx(fair, tmp_path / "fair.onnx", X).margin_difference < 1e-5
