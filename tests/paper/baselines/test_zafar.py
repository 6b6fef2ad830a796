from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import log_loss

from evenhand.errors import InputError
from evenhand.paper.baselines import CovarianceBound
from evenhand.paper.baselines._covariance import ConstrainedNet, Covariance, coefficients, solve_output
from evenhand.paper.models import MLP
from evenhand.paper.models._data import Examples, Table
from evenhand.paper.models._net import seeded
from evenhand.paper.models.mlp import Perceptron

NETWORK = MLP(hidden=6, max_epochs=10, batch_size=64, lr=0.02)


def covariances(d, y, group, criterion, distance):
    """The definition, written out."""
    found = []
    sides = {"dp": [None], "eo": [0, 1], "eop": [1], "pe": [0]}[criterion]
    indicators = [1] if group.max() == 1 else range(group.max() + 1)
    for side in sides:
        rows = np.ones(len(y), dtype=bool) if side is None else y == side
        signed = d if side is None else np.minimum(0.0, (2 * y - 1) * d)
        g = expit(d) - 0.5 if distance == "probability" else signed
        for index in indicators:
            z = (group == index)[rows].astype(float)
            found.append(np.mean((z - z.mean()) * g[rows]))
    return np.array(found)


@pytest.mark.parametrize(
    ("criterion", "distance"),
    [
        ("dp", "logit"),
        ("eo", "logit"),
        ("eop", "logit"),
        ("pe", "logit"),
        ("dp", "probability"),
        ("eo", "probability"),
    ],
)
def test_the_bound_holds_on_the_training_rows(biased, criterion, distance):
    X, y, group = biased
    free = CovarianceBound(NETWORK, criterion=criterion, distance=distance, bound=np.inf, random_state=0)
    free.fit(X, y, sensitive_features=group)
    found = covariances(free.decision_function(X), y, group, criterion, distance)
    np.testing.assert_allclose(found, free.covariance_, rtol=1e-4, atol=1e-7)
    losses = [log_loss(y, free.predict_proba(X))]
    for share in (0.5, 0.05):
        bound = share * np.abs(found).max()
        fair = CovarianceBound(NETWORK, criterion=criterion, distance=distance, bound=bound, random_state=0)
        fair.fit(X, y, sensitive_features=group)
        kept = covariances(fair.decision_function(X), y, group, criterion, distance)
        assert np.abs(kept).max() <= bound
        assert np.abs(kept).max() >= 0.9 * bound
        losses.append(log_loss(y, fair.predict_proba(X)))
        assert fair.score(X, y) > 0.6
    assert losses[0] < losses[1] < losses[2]


def test_no_covariance_at_all_is_possible_for_demographic_parity(biased):
    X, y, group = biased
    fair = CovarianceBound(NETWORK, bound=0.0, random_state=0).fit(X, y, sensitive_features=group)
    assert np.abs(covariances(fair.decision_function(X), y, group, "dp", "logit")).max() < 1e-6
    assert fair.score(X, y) > 0.6


def test_three_groups_have_a_bound_each():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=600)
    X = rng.normal(size=(600, 2)) + group[:, None]
    y = (X[:, 0] + rng.normal(size=600) > 1.0).astype(int)
    fair = CovarianceBound(NETWORK, bound=0.03, random_state=0).fit(X, y, sensitive_features=group)
    kept = covariances(fair.decision_function(X), y, group, "dp", "logit")
    assert kept.shape == fair.covariance_.shape == (3,)
    assert np.abs(kept).max() <= 0.03


def test_a_tight_bound_closes_the_gap_of_selection_rates(biased):
    X, y, group = biased

    def gap(bound):
        fair = CovarianceBound(NETWORK, bound=bound, distance="probability", random_state=0)
        decided = fair.fit(X, y, sensitive_features=group).predict(X)
        return abs(decided[group == 0].mean() - decided[group == 1].mean())

    assert gap(np.inf) > 0.3
    assert gap(0.002) < 0.1


def test_the_multipliers_alone_bring_the_network_to_the_bound(biased):
    X, y, group = biased
    codes = np.column_stack([y, group]).astype(np.int64)
    covariance = Covariance((None,), "logit", torch.from_numpy(coefficients(y, group, (None,))))

    def train(bound):
        with seeded(0):
            module = Perceptron(3, 6, [2], 0.2)
        options = {"max_epochs": 40, "batch_size": 64, "lr": 0.02, "optimizer": torch.optim.Adam}
        net = ConstrainedNet(module, covariance=covariance, bound=bound, penalty=2.0, interval=3, **options)
        net.train(Examples(Table(X.astype(np.float32)), codes), None)
        with torch.no_grad():
            logits = net.module_(torch.from_numpy(X.astype(np.float32)))[0].double()
        return covariances((logits[:, 1] - logits[:, 0]).numpy(), y, group, "dp", "logit")[0]

    free = train(np.inf)
    assert train(0.3 * free) == pytest.approx(0.3 * free, rel=0.15)


@pytest.mark.parametrize("sides", [(None,), (0, 1)])
def test_the_output_layer_is_the_optimum_of_zafars_problem(biased, sides):
    X, y, group = biased
    codes = np.column_stack([y, group]).astype(np.int64)
    covariance = Covariance(sides, "logit", torch.from_numpy(coefficients(codes[:, 0], codes[:, 1], sides)))
    rows = np.column_stack([X, np.ones(len(X))])

    def loss(theta):
        return np.mean(np.logaddexp(0.0, (1 - 2 * y) * (rows @ theta)))

    def values(theta):
        return covariance(torch.from_numpy(rows @ theta), torch.from_numpy(codes)).numpy()

    free = minimize(loss, np.zeros(4)).x
    bound = 0.3 * np.abs(values(free)).max()
    found = solve_output(X, codes, covariance, bound, free)
    assert np.abs(values(found)).max() <= bound
    limits = [{"type": "ineq", "fun": lambda theta, s=s: bound + s * values(theta)} for s in (-1, 1)]
    best = min(
        minimize(loss, start, method="COBYLA", constraints=limits, options={"maxiter": 4000, "tol": 1e-8}).fun
        for start in (free, 0.3 * free, np.zeros(4))
    )
    assert loss(free) < best
    assert loss(found) <= best + 5e-5


def test_a_solver_that_fails_still_meets_the_bound(biased, monkeypatch):
    X, y, group = biased
    codes = np.column_stack([y, group]).astype(np.int64)
    covariance = Covariance((None,), "logit", torch.from_numpy(coefficients(codes[:, 0], codes[:, 1], (None,))))
    start = np.array([3.0, 1.0, 0.0, -1.0])
    monkeypatch.setattr(
        "evenhand.paper.baselines._covariance.minimize",
        lambda *args, **kwargs: type("Result", (), {"x": np.full(4, np.nan)}),
    )
    found = solve_output(X, codes, covariance, 0.01, start)
    d = X @ found[:3] + found[3]
    assert np.abs(covariances(d, y, group, "dp", "logit")).max() <= 0.01
    np.testing.assert_array_equal(d > 0, X @ start[:3] + start[3] > 0)


def test_a_stopped_training_ends_in_the_same_bits(biased, tmp_path, monkeypatch):
    X, y, group = biased
    options = {"criterion": "eo", "bound": 0.01, "random_state": 0}
    network = clone(NETWORK).set_params(max_epochs=4)
    whole = CovarianceBound(network, **options).fit(X, y, sensitive_features=group)
    original, calls = ConstrainedNet.train_step, [0]

    def stop(self, *args, **kwargs):
        calls[0] += 1
        if calls[0] == 25:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    hasty = MLP(**network.get_params() | {"save_every": 0.0})
    with monkeypatch.context() as patch:
        patch.setattr(ConstrainedNet, "train_step", stop)
        with pytest.raises(KeyboardInterrupt):
            CovarianceBound(hasty, checkpoint=tmp_path, **options).fit(X, y, sensitive_features=group)
    assert len(list(tmp_path.glob("*.pt"))) == 1
    resumed = CovarianceBound(network, checkpoint=tmp_path, **options).fit(X, y, sensitive_features=group)
    assert len(list(tmp_path.glob("*.pt"))) == 1
    np.testing.assert_array_equal(whole.decision_function(X), resumed.decision_function(X))
    assert list(whole.net_.history) == list(resumed.net_.history)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bound": -0.1}, "bound must be positive"),
        ({"bound": 0.0, "criterion": "eo"}, "bound must be positive"),
        ({"bound": float("nan")}, "bound must be positive"),
        ({"distance": "angle"}, "distance must be"),
    ],
)
def test_impossible_options_are_named(biased, options, message):
    X, y, group = biased
    with pytest.raises(InputError, match=message):
        CovarianceBound(NETWORK, **options).fit(X, y, sensitive_features=group)


def test_an_empty_cell_is_named(biased):
    X, y, group = biased
    with pytest.raises(InputError, match="no row of group 1 has the label 0"):
        CovarianceBound(NETWORK, criterion="pe").fit(X, np.where(group == 1, 1, y), sensitive_features=group)
