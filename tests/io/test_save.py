"""A saved classifier comes back whole: the same decisions to the bit, and everything it could do before."""

from __future__ import annotations

import json
import re
import sys
import types
import warnings
import zipfile

import lightgbm
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from evenhand.errors import EvenhandWarning, InputError, MissingExtraError, UntrustedTypesError, WriteError
from evenhand.paper.models import MLP, ResNet18

ROWS = 600


@pytest.fixture(autouse=True)
def quiet():
    """What FairClassifier says of small samples is no matter of these tests."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The auxiliary model hardly", category=EvenhandWarning)
        yield


@pytest.fixture(scope="module")
def data():
    return eh.datasets.make_zafar(ROWS, random_state=0)


@pytest.fixture(scope="module")
def frame(data):
    rng = np.random.default_rng(0)
    words = np.array(["red brick house", "old house", "garden and brick"], dtype=object)
    colour = rng.choice(np.array(["red", "blue", None], dtype=object), ROWS)
    return pd.DataFrame({"a": data.X[:, 0], "b": data.X[:, 1], "colour": colour, "text": rng.choice(words, ROWS)})


def text_pipeline():
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["a"]),
        (OneHotEncoder(handle_unknown="ignore"), ["colour"]),
        (TfidfVectorizer(), "text"),
        remainder="passthrough",
    )
    return make_pipeline(columns, LogisticRegression())


def boosting_pipeline():
    code = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan, max_categories=20
    )
    columns = make_column_transformer(
        (code, make_column_selector(dtype_exclude=np.number)), remainder="passthrough", verbose_feature_names_out=False
    )
    return make_pipeline(columns, HistGradientBoostingClassifier(max_iter=5, categorical_features=[0, 1]))


MODELS = {
    "logistic": LogisticRegression(),
    "boosting": HistGradientBoostingClassifier(max_iter=5),
    "forest": RandomForestClassifier(5),
    "extra trees": ExtraTreesClassifier(5),
    "old boosting": GradientBoostingClassifier(n_estimators=4),
    "bagged trees": BaggingClassifier(DecisionTreeClassifier(max_depth=3), n_estimators=3, max_features=0.5),
    "sigmoid": CalibratedClassifierCV(RandomForestClassifier(3), cv=2),
    "isotonic": CalibratedClassifierCV(LogisticRegression(), method="isotonic", cv=2),
    "votes": VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())], voting="soft"),
    "function": make_pipeline(FunctionTransformer(np.arctan), LogisticRegression()),
}
FRAMES = {"text": text_pipeline(), "categories": boosting_pipeline()}


def fitted(model, data, X=None, **options):
    options = {"tolerance": 0.3, "cv": 2, "random_state": 0, **options}
    X = data.X if X is None else X
    return eh.FairClassifier(model, **options).fit(X, data.y, sensitive_features=data.group)


def check_same(fair, again, X):
    for name in ("decision_function", "predict_proba", "bias_scores", "predict"):
        np.testing.assert_array_equal(getattr(again, name)(X), getattr(fair, name)(X), strict=True)
    assert again.rule_ == fair.rule_
    assert again.explain(X[:3]) == fair.explain(X[:3])
    assert again.diagnostics_ == fair.diagnostics_
    assert params_of(again) == params_of(fair)


def params_of(fair):
    return re.sub(r"0x[0-9a-fA-F]+", "", str(fair.get_params()))


@pytest.mark.parametrize("name", [*MODELS, *FRAMES])
def test_the_loaded_classifier_decides_as_the_saved_one_to_the_bit(name, data, frame, tmp_path):
    X = frame if name in FRAMES else data.X
    fair = fitted({**MODELS, **FRAMES}[name], data, X)
    eh.io.save(fair, tmp_path / "fair.skops")
    again = eh.io.load(tmp_path / "fair.skops")
    check_same(fair, again, X)
    looser, other = fair.with_tolerance(0.4), again.with_tolerance(0.4)
    np.testing.assert_array_equal(other.decision_function(X), looser.decision_function(X))


def test_the_frontier_is_drawn_from_what_the_file_holds(data, tmp_path):
    fair = fitted(LogisticRegression(), data, criterion="dp")
    eh.io.save(fair, tmp_path / "fair.skops")
    again = eh.io.load(tmp_path / "fair.skops")
    assert "_frontier" not in vars(again)
    assert again.frontier() == fair.frontier()


OPTIONS = {
    "ensemble": {"ensemble": True},
    "hold-out": {"cv": 0.4},
    "splitter": {"cv": StratifiedKFold(3)},
    "seeded by a generator": {"random_state": np.random.RandomState(3)},
    "recalibrated": {"recalibrate": True},
    "costs": {"costs": {"false_positive": 1.0, "false_negative": 2.0}},
    "search object": {"search": eh.Directions()},
    "confidence": {"criterion": "dp", "tolerance": 0.9, "confidence": 0.9},
    "composite": {"criterion": eh.DemographicParity() & eh.SelectionBudget(upper=0.7)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_survives(name, data, tmp_path):
    fair = fitted(LogisticRegression(), data, **OPTIONS[name])
    eh.io.save(fair, tmp_path / "fair.skops")
    check_same(fair, eh.io.load(tmp_path / "fair.skops"), data.X)


def test_a_frontier_that_was_drawn_is_not_drawn_again(data, tmp_path):
    fair = fitted(LogisticRegression(), data, criterion="dp")
    drawn = fair.frontier()
    eh.io.save(fair, tmp_path / "fair.skops")
    assert vars(eh.io.load(tmp_path / "fair.skops"))["_frontier"] == drawn
    assert fair.frontier() is drawn


def test_frozen_models_several_attributes_and_the_attribute_at_predict(data, tmp_path):
    rng = np.random.default_rng(0)
    groups = {"sex": np.asarray(data.group), "age": rng.choice(["old", "young"], ROWS)}
    base = FrozenEstimator(LogisticRegression().fit(data.X, data.y))
    auxiliary = FrozenEstimator(RandomForestClassifier(3, random_state=0).fit(data.X, groups["sex"]))
    frozen = eh.FairClassifier(base, auxiliary=auxiliary, criterion="dp", tolerance=0.3, cv=None)
    frozen.fit(data.X, data.y, sensitive_features=groups["sex"])
    crossed = eh.DemographicParity(attribute=eh.Intersection("sex", "age"))
    several = eh.FairClassifier(LogisticRegression(), criterion=crossed, tolerance=0.4, cv=2, random_state=0)
    several.fit(data.X, data.y, sensitive_features=groups)
    for fair in (frozen, several):
        eh.io.save(fair, tmp_path / "fair.skops")
        check_same(fair, eh.io.load(tmp_path / "fair.skops"), data.X)
    seen = eh.FairClassifier(LogisticRegression(), criterion="dp", cv=2, sensitive_at_predict=True, random_state=0)
    seen.fit(data.X, data.y, sensitive_features=groups["sex"])
    eh.io.save(seen, tmp_path / "fair.skops")
    again = eh.io.load(tmp_path / "fair.skops")
    known = {"sensitive_features": groups["sex"]}
    np.testing.assert_array_equal(
        again.decision_function(data.X, **known), seen.decision_function(data.X, **known), strict=True
    )


def test_columns_and_labels_of_any_type_survive(data, frame, tmp_path):
    X = frame[["a", "b"]].assign(sex=np.asarray(data.group))
    y = np.where(np.asarray(data.y) == 1, "hire", "reject")
    fair = eh.FairClassifier(
        LogisticRegression(), sensitive_columns=["sex"], pos_label="hire", tolerance=0.3, cv=2, random_state=0
    ).fit(X, y)
    eh.io.save(fair, tmp_path / "fair.skops")
    again = eh.io.load(tmp_path / "fair.skops")
    check_same(fair, again, X)
    assert again.predict(X.drop(columns="sex")).tolist() == fair.predict(X).tolist()


def test_networks_are_safetensors(data, tmp_path):
    network = make_pipeline(StandardScaler(), MLP(max_epochs=4, lr=0.02, random_state=0))
    fair = fitted(network, data, ensemble=True)
    eh.io.save(fair, tmp_path / "fair.skops")
    with zipfile.ZipFile(tmp_path / "fair.skops") as archive:
        names = archive.namelist()
    assert sum(name.endswith(".safetensors") for name in names) == 4
    again = eh.io.load(tmp_path / "fair.skops")
    check_same(fair, again, data.X)
    before, after = (found.estimator_.estimators[0][-1].net_ for found in (fair, again))
    assert after.seed == before.seed
    assert after.history[:, "valid_loss"] == before.history[:, "valid_loss"]


def test_two_heads_share_one_network_after_loading(data, tmp_path):
    y = np.column_stack([np.asarray(data.y).astype(object), np.asarray(data.group)])
    network = MLP(max_epochs=4, lr=0.02, random_state=0).fit(data.X, y)
    heads = [FrozenEstimator(network.head(k)) for k in (0, 1)]
    fair = eh.FairClassifier(heads[0], auxiliary=heads[1], criterion="dp", tolerance=0.3, cv=None)
    fair.fit(data.X, data.y, sensitive_features=data.group)
    eh.io.save(fair, tmp_path / "fair.skops")
    with zipfile.ZipFile(tmp_path / "fair.skops") as archive:
        assert sum(name.endswith(".safetensors") for name in archive.namelist()) == 1
    check_same(fair, eh.io.load(tmp_path / "fair.skops"), data.X)


def test_a_network_and_a_baseline_are_saved_on_their_own(data, tmp_path):
    from evenhand.paper.baselines import CovarianceBound, WassersteinBarycentre

    network = MLP(max_epochs=3, random_state=0).fit(data.X, data.y)
    eh.io.save(network, tmp_path / "mlp.skops")
    again = eh.io.load(tmp_path / "mlp.skops")
    np.testing.assert_array_equal(again.predict_proba(data.X), network.predict_proba(data.X))
    moved = WassersteinBarycentre(LogisticRegression()).fit(data.X, data.y, sensitive_features=data.group)
    eh.io.save(moved, tmp_path / "jiang.skops")
    groups = {"sensitive_features": data.group}
    np.testing.assert_array_equal(
        eh.io.load(tmp_path / "jiang.skops").predict(data.X, **groups), moved.predict(data.X, **groups)
    )
    bound = CovarianceBound(network=MLP(max_epochs=1), random_state=0)
    bound.fit(data.X, data.y, sensitive_features=data.group)
    with pytest.raises(InputError, match="another network"):
        eh.io.save(bound, tmp_path / "zafar.skops")
    assert not (tmp_path / "zafar.skops").exists()


def test_lightgbm_needs_to_be_trusted_by_name(data, tmp_path):
    fair = fitted(lightgbm.LGBMClassifier(n_estimators=3, verbose=-1), data)
    with pytest.warns(
        EvenhandWarning, match=r"trusted=\['lightgbm.basic.Booster', 'lightgbm.sklearn.LGBMClassifier'\]"
    ):
        eh.io.save(fair, tmp_path / "fair.skops")
    with pytest.raises(UntrustedTypesError, match=r"lightgbm.basic.Booster, lightgbm.sklearn.LGBMClassifier") as caught:
        eh.io.load(tmp_path / "fair.skops")
    again = eh.io.load(tmp_path / "fair.skops", trusted=caught.value.names)
    check_same(fair, again, data.X)
    check_same(fair, eh.io.load(tmp_path / "fair.skops", [lightgbm.Booster, lightgbm.LGBMClassifier]), data.X)


def test_support_vectors_need_to_be_trusted_by_name(data, tmp_path):
    name = "sklearn.svm._classes.SVC"
    fair = fitted(CalibratedClassifierCV(SVC(), cv=2, ensemble=False), data)
    with pytest.warns(EvenhandWarning, match=name):
        eh.io.save(fair, tmp_path / "fair.skops")
    with pytest.raises(UntrustedTypesError, match=name):
        eh.io.load(tmp_path / "fair.skops")
    check_same(fair, eh.io.load(tmp_path / "fair.skops", [name]), data.X)


def test_a_residual_network_is_rebuilt_without_its_first_weights(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(12)]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(path)
    names = np.array([str(path) for path in paths], dtype=object)
    network = ResNet18(weights=None, image_size=32, max_epochs=1, validation=None, random_state=0)
    network.fit(names, np.array([0, 1] * 6))
    network.weights = str(tmp_path / "not there any more")
    eh.io.save(network, tmp_path / "network.skops")
    again = eh.io.load(tmp_path / "network.skops")
    assert again.weights == network.weights
    np.testing.assert_array_equal(again.predict_proba(names), network.predict_proba(names))


def test_the_rule_in_the_file_is_the_rule_as_json(data, tmp_path):
    fair = fitted(LogisticRegression(), data)
    eh.io.save(fair, tmp_path / "fair.skops")
    with zipfile.ZipFile(tmp_path / "fair.skops") as archive:
        texts = [archive.read(name).decode() for name in archive.namelist() if name.startswith("rules/")]
        about = json.loads(archive.read("evenhand.json"))
    assert texts == [fair.rule_.to_json()]
    assert about["versions"]["evenhand"] == eh.__version__


class Halfway:
    """Fails when half of it has been written."""

    def __reduce__(self):
        raise RuntimeError("cannot be written")


def test_a_save_that_fails_leaves_the_old_file_as_it_was(data, tmp_path):
    fair = fitted(LogisticRegression(), data)
    eh.io.save(fair, tmp_path / "fair.skops")
    before = (tmp_path / "fair.skops").read_bytes()
    fair.estimator_.extra_ = Halfway()
    with pytest.raises((InputError, RuntimeError)):
        eh.io.save(fair, tmp_path / "fair.skops")
    fair.estimator_.extra_ = lambda x: x
    with pytest.raises(InputError, match="could not read back"):
        eh.io.save(fair, tmp_path / "fair.skops")
    assert (tmp_path / "fair.skops").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fair.skops"]


class Native(LogisticRegression):
    """Keeps its numbers as bytes in a form of its own, as the models of XGBoost and CatBoost do."""

    def __getstate__(self):
        state = dict(super().__getstate__())
        if "coef_" in state:
            state["coef_"] = bytearray(state["coef_"].tobytes())
        return state

    def __setstate__(self, state):
        state = dict(state)
        if "coef_" in state:
            state["coef_"] = np.frombuffer(bytes(state["coef_"])).reshape(-1, state["n_features_in_"])
        super().__setstate__(state)


class Forgetful(LogisticRegression):
    """Writes a state that it does not read."""

    def __deepcopy__(self, memo):
        return self

    def __setstate__(self, state):
        raise TypeError("cannot be made again")


class Uncopied(LogisticRegression):
    """Cannot even be copied."""

    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")


@pytest.fixture
def third_party(monkeypatch):
    """A module of another library, with models that skops knows nothing of."""
    module = types.ModuleType("nativeboost")
    for kind in (Native, Forgetful, Uncopied):
        made = type(kind.__name__, (kind,), {"__module__": "nativeboost"})
        setattr(module, kind.__name__, made)
    monkeypatch.setitem(sys.modules, "nativeboost", module)
    return module


def test_models_that_keep_bytes_are_loaded_when_trusted_by_name(data, tmp_path, third_party):
    fair = fitted(third_party.Native(), data)
    with pytest.warns(EvenhandWarning, match=r"trusted=\['nativeboost.Native'\]"):
        eh.io.save(fair, tmp_path / "fair.skops")
    with zipfile.ZipFile(tmp_path / "fair.skops") as archive:
        assert any(name.endswith(".bin") for name in archive.namelist())
    with pytest.raises(UntrustedTypesError, match=r"nativeboost\.Native"):
        eh.io.load(tmp_path / "fair.skops")
    check_same(fair, eh.io.load(tmp_path / "fair.skops", ["nativeboost.Native"]), data.X)


@pytest.mark.parametrize(
    ("kind", "reason"), [("Forgetful", "could not read back"), ("Uncopied", "without a safe form")]
)
def test_a_model_that_cannot_be_loaded_is_refused_when_it_is_saved(kind, reason, data, tmp_path, third_party):
    fair = fitted(getattr(third_party, kind)(), data, ensemble=True)
    with pytest.raises(InputError, match=rf"{reason}.*rule_.to_json"):
        eh.io.save(fair, tmp_path / "fair.skops")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_fitted_estimator_of_evenhand_is_refused(data, tmp_path):
    with pytest.raises(NotFittedError):
        eh.io.save(eh.FairClassifier(LogisticRegression()), tmp_path / "fair.skops")
    with pytest.raises(InputError, match="LogisticRegression"):
        eh.io.save(LogisticRegression().fit(data.X, data.y), tmp_path / "fair.skops")
    with pytest.raises(InputError, match="to_json"):
        eh.io.save(fitted(LogisticRegression(), data).rule_, tmp_path / "fair.skops")
    with pytest.raises(WriteError, match=r"cannot be written: No such file or directory\. Make the folder first"):
        eh.io.save(fitted(LogisticRegression(), data), tmp_path / "no" / "fair.skops")


def test_without_its_extra_one_sentence_says_what_to_install(data, tmp_path, monkeypatch):
    fair = fitted(LogisticRegression(), data)
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(MissingExtraError, match=r"evenhand\[io\]"):
        eh.io.save(fair, tmp_path / "fair.skops")
    with pytest.raises(MissingExtraError, match=r"evenhand\[io\]"):
        eh.io.load(tmp_path / "fair.skops")
