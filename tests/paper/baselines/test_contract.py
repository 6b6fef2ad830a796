from __future__ import annotations

import importlib
import pickle
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from evenhand.errors import InputError, MissingExtraError
from evenhand.paper import baselines
from evenhand.paper.baselines import (
    CovarianceBound,
    FairContrastive,
    GroupThresholds,
    Reductions,
    WassersteinBarycentre,
)
from evenhand.paper.models import MLP

NETWORK = MLP(hidden=4, max_epochs=2, batch_size=64, lr=0.02)
BASELINES = {
    "H16": GroupThresholds(LogisticRegression(), grid_size=100, random_state=0),
    "J19": WassersteinBarycentre(LogisticRegression(), random_state=0),
    "Z17": CovarianceBound(NETWORK, random_state=0),
    "P22": FairContrastive(NETWORK, epochs=2, output_epochs=2, projection=8, random_state=0),
    "A18": Reductions(LogisticRegression(), tolerance=0.1, max_iter=3, random_state=0),
}
EACH = pytest.mark.parametrize("name", BASELINES)


def rows_of(baseline, group):
    return {"sensitive_features": group} if baseline.needs_sensitive_at_predict else {}


def test_every_public_baseline_is_tested_here():
    assert {type(baseline).__name__ for baseline in BASELINES.values()} == set(baselines.__all__)
    assert {name: baseline.paper for name, baseline in BASELINES.items()} == {name: name for name in BASELINES}


@EACH
def test_the_constructor_only_assigns(name):
    baseline = BASELINES[name]
    copy = clone(baseline)
    assert set(vars(copy)) == set(baseline.get_params(deep=False))
    for key, value in baseline.get_params(deep=False).items():
        assert getattr(baseline, key) is value
    assert copy.set_params(random_state=5).get_params()["random_state"] == 5


@EACH
def test_fitting_twice_gives_the_same_decisions_and_leaves_the_parameters_alone(name, biased):
    X, y, group = biased
    baseline = clone(BASELINES[name])
    before = {key: repr(value) for key, value in baseline.get_params().items()}
    assert baseline.fit(X, y, sensitive_features=group) is baseline
    first = baseline.predict(X, **rows_of(baseline, group))
    assert {key: repr(value) for key, value in baseline.get_params().items()} == before
    second = clone(baseline).fit(X, y, sensitive_features=group).predict(X, **rows_of(baseline, group))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, baseline.predict(X, **rows_of(baseline, group)))
    thawed = pickle.loads(pickle.dumps(baseline))
    np.testing.assert_array_equal(first, thawed.predict(X, **rows_of(baseline, group)))


@EACH
def test_probabilities_are_those_of_the_two_classes(name, biased):
    X, y, group = biased
    baseline = clone(BASELINES[name]).fit(X, y, sensitive_features=group)
    p = baseline.predict_proba(X, **rows_of(baseline, group))
    assert p.shape == (600, 2)
    assert p.min() >= 0.0
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-9)
    decided = baseline.predict(X, **rows_of(baseline, group))
    assert (decided[p[:, 1] > 0.999] == 1).all()
    assert (decided[p[:, 1] < 0.001] == 0).all()
    assert baseline.score(X, y, sensitive_features=group) == pytest.approx(np.mean(decided == y))
    assert np.mean(decided == y) > 0.6


@EACH
def test_labels_and_groups_may_be_of_any_kind(name, biased):
    X, y, group = biased
    plain = clone(BASELINES[name]).fit(X, y, sensitive_features=group)
    expected = plain.predict(X, **rows_of(plain, group))
    words = np.where(y == 1, "yes", "no")
    letters = np.where(group == 1, "b", "a")
    forms = [letters.tolist(), pd.Series(letters), pl.DataFrame({"race": letters}), {"race": letters}]
    for form in forms[:2] if name in ("P22", "A18") else forms:
        named = clone(BASELINES[name]).fit(X, words, sensitive_features=form)
        assert named.classes_.tolist() == ["no", "yes"]
        assert named.groups_ == ("a", "b")
        decided = named.predict(X, **rows_of(named, form))
        np.testing.assert_array_equal(decided == "yes", expected == 1)


@EACH
def test_bad_input_is_named(name, biased):
    X, y, group = biased
    baseline = clone(BASELINES[name])
    with pytest.raises(NotFittedError):
        baseline.predict(X, **rows_of(baseline, group))
    with pytest.raises(InputError, match="sensitive_features is None"):
        baseline.fit(X, y, sensitive_features=None)
    with pytest.raises(InputError, match="only the group 1"):
        baseline.fit(X, y, sensitive_features=np.ones(600, dtype=int))
    with pytest.raises(InputError, match="one attribute; got"):
        baseline.fit(X, y, sensitive_features={"sex": group, "race": group})
    with pytest.raises(InputError, match=r"two classes; its columns have \[3\]"):
        baseline.fit(X, np.arange(600) % 3, sensitive_features=group)
    with pytest.raises(InputError, match="target y is None"):
        baseline.fit(X, None, sensitive_features=group)
    with pytest.raises(InputError, match="600"):
        baseline.fit(X, y, sensitive_features=group[:-1])


@pytest.mark.parametrize("name", ["H16", "J19"])
def test_what_needs_the_group_says_so(name, biased):
    X, y, group = biased
    baseline = clone(BASELINES[name]).fit(X, y, sensitive_features=group)
    assert baseline.needs_sensitive_at_predict
    with pytest.raises(InputError, match="predict needs sensitive_features"):
        baseline.predict(X)
    with pytest.raises(InputError, match="unknown group 9"):
        baseline.predict(X[:1], sensitive_features=[9])


@pytest.mark.parametrize("name", ["H16", "J19"])
def test_a_frozen_model_stays_as_it_is(name, biased):
    X, y, group = biased
    model = LogisticRegression().fit(X[:300], y[:300])
    coefficients = model.coef_.copy()
    baseline = clone(BASELINES[name]).set_params(estimator=FrozenEstimator(model))
    baseline.fit(X[300:], y[300:], sensitive_features=group[300:])
    np.testing.assert_array_equal(model.coef_, coefficients)
    np.testing.assert_array_equal(baseline.estimator_.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("name", ["H16", "Z17", "A18"])
def test_only_parity_criteria_are_taken(name, biased):
    from evenhand.rules.criteria import SelectionRatio

    X, y, group = biased
    for criterion, message in (
        ("calibration", "Unknown criterion"),
        (SelectionRatio(0.8), "supports only parity criteria"),
    ):
        with pytest.raises(InputError, match=message):
            clone(BASELINES[name]).set_params(criterion=criterion).fit(X, y, sensitive_features=group)


@pytest.mark.parametrize("package", ["fairlearn", "torch", "skorch"])
def test_importing_the_baselines_without_their_extra_says_what_to_install(monkeypatch, package):
    for name in [name for name in sys.modules if name.startswith("evenhand.paper.baselines")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as caught:
        importlib.import_module("evenhand.paper.baselines")
    assert str(caught.value) == f"evenhand.paper.baselines needs {package}: pip install 'evenhand[experiments]'."
