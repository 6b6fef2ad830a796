"""A classifier as an MLflow model: no pickle, the same decisions, a signature and requirements."""

from __future__ import annotations

import warnings

import numpy as np
import pandas
import pytest
import yaml
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.errors import InputError
from evenhand.export import mlflow as export


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        # MLflow's and pydantic's own deprecations.
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def data():
    return eh.datasets.make_zafar(600, random_state=0)


def fitted(data, X, model=None, **options):
    model = LogisticRegression() if model is None else model
    fair = eh.FairClassifier(model, criterion="dp", tolerance=0.1, cv=2, random_state=0, **options)
    return fair.fit(X, np.where(data.y == 1, "yes", "no"), sensitive_features={"sex": data.group})


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_a_classifier_is_saved_and_served_by_mlflow(kind, data, tmp_path):
    import mlflow

    X = data.X if kind == "array" else pandas.DataFrame(data.X, columns=["first", "second"])
    fair = fitted(data, X, HistGradientBoostingClassifier(max_iter=5), pos_label="yes")
    export.save_model(fair, tmp_path / "model", X)
    files = {path.name for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert "fair.skops" in files
    assert not any(name.endswith((".pkl", ".pickle", ".joblib")) for name in files)
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    found = served.predict(X)
    assert found["decision"].tolist() == fair.predict(X).tolist()
    assert found["fair_margin"].tolist() == fair.decision_function(X).tolist()
    assert found["probability"].tolist() == fair.predict_proba(X)[:, 1].tolist()
    assert served.metadata.signature.outputs.input_names() == ["decision", "fair_margin", "probability"]
    if kind == "frame":
        assert served.metadata.signature.inputs.input_names() == ["first", "second"]
    needed = (tmp_path / "model" / "requirements.txt").read_text().split()
    assert {name.split("==")[0] for name in needed} >= {"evenhand", "scikit-learn", "skops"}
    assert (
        yaml.safe_load((tmp_path / "model" / "MLmodel").read_text())["flavors"]["python_function"]["loader_module"]
        == "evenhand.export.mlflow"
    )
    again = export.load_classifier(tmp_path / "model")
    assert again.rule_ == fair.rule_


def test_a_classifier_is_logged_to_a_run(data, tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    fair = fitted(data, data.X, pos_label="yes")
    with mlflow.start_run():
        logged = export.log_model(fair, "fair", data.X)
    found = mlflow.pyfunc.load_model(logged.model_uri).predict(data.X)
    assert found["decision"].tolist() == fair.predict(data.X).tolist()


def test_what_cannot_be_served_is_refused(data, tmp_path):
    import lightgbm

    with pytest.raises(InputError, match="must be a FairClassifier"):
        export.save_model(LogisticRegression(), tmp_path / "model", data.X)
    knows = fitted(data, data.X, pos_label="yes", sensitive_at_predict=True)
    with pytest.raises(InputError, match="does not pass on"):
        export.save_model(knows, tmp_path / "model", data.X)
    trees = fitted(data, data.X, lightgbm.LGBMClassifier(n_estimators=2, verbose=-1), pos_label="yes")
    with pytest.raises(eh.errors.EvenhandError, match="lightgbm"):
        export.save_model(trees, tmp_path / "model", data.X)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="exists already"):
        export.save_model(fitted(data, data.X, pos_label="yes"), tmp_path / "there", data.X)
    with pytest.raises(InputError, match="not an MLflow model of evenhand"):
        export.load_classifier(tmp_path / "there")
    assert not (tmp_path / "model").exists()
