from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp as exact_ks_2samp
from sklearn.base import BaseEstimator, ClassifierMixin

from evenhand.errors import InfeasibleError, InputError
from evenhand.paper.baselines import WassersteinBarycentre
from evenhand.paper.baselines.jiang import barycentre, quantile, smallest_strength


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier whose probability is its only column."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.column_stack([1.0 - X[:, 0], X[:, 0]])


def draw(n, seed, n_groups=2):
    rng = np.random.default_rng(seed)
    group = rng.choice(n_groups, size=n, p=np.arange(1, n_groups + 1) / np.arange(1, n_groups + 1).sum())
    scores = rng.beta(1.0 + group, 3.0 - 0.5 * group)
    return scores[:, None], (rng.random(n) < scores).astype(int), group


def ks_2samp(one, other):
    return exact_ks_2samp(one, other, method="asymp")


def gap(decided, group):
    return np.ptp([decided[group == g].mean() for g in np.unique(group)])


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("target", ["mean", "median"])
def test_full_strength_gives_every_group_the_same_distribution(n_groups, target):
    X, y, group = draw(1500, 0, n_groups)
    fair = WassersteinBarycentre(Scores(), target=target).fit(X, y, sensitive_features=group)
    moved = fair.predict_proba(X, sensitive_features=group)[:, 1]
    smallest = np.bincount(group).min()
    for g in range(1, n_groups):
        assert ks_2samp(X[group == 0, 0], X[group == g, 0]).statistic > 0.15
        assert ks_2samp(moved[group == 0], moved[group == g]).statistic <= 1.0 / smallest
    for threshold in (0.2, 0.5, 0.7):
        assert gap(moved > threshold, group) <= 1.0 / smallest


def test_new_rows_have_almost_the_same_distribution():
    X, y, group = draw(4000, 0)
    fair = WassersteinBarycentre(Scores()).fit(X, y, sensitive_features=group)
    X_new, _, new = draw(4000, 1)
    moved = fair.predict_proba(X_new, sensitive_features=new)[:, 1]
    assert ks_2samp(moved[new == 0], moved[new == 1]).pvalue > 0.001
    assert ks_2samp(X_new[new == 0, 0], X_new[new == 1, 0]).pvalue < 1e-9


def test_the_barycentre_is_nearest_to_the_groups():
    rng = np.random.default_rng(2)
    groups = [
        np.sort(rng.normal(size=size) * scale + shift) for size, scale, shift in ((50, 1, 0), (80, 2, 3), (30, 1, 1))
    ]
    u = (np.arange(400) + 0.5) / 400
    weights = np.array([50, 80, 30]) / 160

    def cost(curve, power):
        return sum(w * np.mean(np.abs(quantile(g, u) - curve) ** power) for w, g in zip(weights, groups, strict=True))

    for target, power in (("mean", 2), ("median", 1)):
        best = barycentre(groups, u, target)
        assert (np.diff(best) >= 0).all()
        for _ in range(50):
            assert cost(best, power) <= cost(best + 0.3 * rng.normal() + 0.2 * rng.normal() * u, power) + 1e-12


def test_strength_is_a_straight_way_that_keeps_the_order_inside_a_group():
    X, y, group = draw(300, 3)
    moved = {
        t: WassersteinBarycentre(Scores(), strength=t)
        .fit(X, y, sensitive_features=group)
        .predict_proba(X, sensitive_features=group)[:, 1]
        for t in (0.0, 0.25, 1.0)
    }
    np.testing.assert_array_equal(moved[0.0], X[:, 0])
    np.testing.assert_allclose(moved[0.25], 0.75 * moved[0.0] + 0.25 * moved[1.0])
    for g in (0, 1):
        order = np.argsort(X[group == g, 0])
        assert (np.diff(moved[1.0][group == g][order]) >= 0).all()


@pytest.mark.parametrize("tolerance", [0.3, 0.1, 0.05, 0.02, 0.0])
def test_a_tolerance_takes_the_smallest_strength_that_meets_it(tolerance):
    X, y, group = draw(240, 4)
    full = WassersteinBarycentre(Scores()).fit(X, y, sensitive_features=group)
    target = full.predict_proba(X, sensitive_features=group)[:, 1]
    gaps = {t: gap((1 - t) * X[:, 0] + t * target > 0.5, group) for t in np.linspace(0, 1, 4001)}
    fair = WassersteinBarycentre(Scores(), tolerance=tolerance)
    if min(gaps.values()) > tolerance:
        with pytest.raises(InfeasibleError) as caught:
            fair.fit(X, y, sensitive_features=group)
        assert caught.value.smallest_tolerance == pytest.approx(min(gaps.values()))
        return
    fair.fit(X, y, sensitive_features=group)
    assert gap(fair.predict(X, sensitive_features=group), group) <= tolerance + 1e-12
    first = min(t for t, found in gaps.items() if found <= tolerance + 1e-12)
    assert fair.strength_ <= first + 1e-3
    assert all(found > tolerance for t, found in gaps.items() if t < fair.strength_ - 1e-2)


def test_the_smallest_strength_is_found_at_every_kind_of_edge():
    groups = np.array([0, 0, 1, 1])
    scores, moved = np.array([0.5, 0.2, 0.9, 0.8]), np.array([0.8, 0.3, 0.4, 0.5])
    # At 0: none of group 0, both of group 1. Just after 0 the first row rises; the last falls only at 1.
    assert smallest_strength(scores, moved, groups, 0.5, 1.0) == 0.0
    half = smallest_strength(scores, moved, groups, 0.5, 0.5)
    assert 0.0 < half < 0.8
    even = smallest_strength(scores, moved, groups, 0.5, 0.0)
    assert 0.8 < even < 1.0
    decided = (1 - even) * scores + even * moved > 0.5
    assert decided.tolist() == [True, False, False, True]


def test_ties_block_parity_unless_they_are_spread():
    rng = np.random.default_rng(5)
    group = np.repeat([0, 1], 500)
    X = np.concatenate([rng.choice([0.2, 0.4], 500), rng.choice([0.6, 0.9], 500)])[:, None]
    y = rng.integers(2, size=1000)
    tied = WassersteinBarycentre(Scores()).fit(X, y, sensitive_features=group)
    spread = WassersteinBarycentre(Scores(), spread_ties=True, random_state=0).fit(X, y, sensitive_features=group)
    statistic = {
        name: ks_2samp(*(fair.predict_proba(X, sensitive_features=group)[group == g, 1] for g in (0, 1))).statistic
        for name, fair in (("tied", tied), ("spread", spread))
    }
    assert statistic["spread"] < 0.1
    assert statistic["spread"] < statistic["tied"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 1.5}, "strength must be"),
        ({"target": "mode"}, "target must be"),
        ({"tolerance": -1.0}, "negative"),
    ],
)
def test_impossible_options_are_named(options, message):
    X, y, group = draw(50, 0)
    with pytest.raises(InputError, match=message):
        WassersteinBarycentre(Scores(), **options).fit(X, y, sensitive_features=group)
