from __future__ import annotations

import fairlearn.reductions
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from evenhand.paper.baselines import Reductions
from evenhand.paper.models import MLP

CONSTRAINTS = {
    "dp": fairlearn.reductions.DemographicParity,
    "eo": fairlearn.reductions.EqualizedOdds,
    "eop": fairlearn.reductions.TruePositiveRateParity,
    "pe": fairlearn.reductions.FalsePositiveRateParity,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("criterion", CONSTRAINTS)
def test_it_agrees_with_fairlearn(biased, criterion):
    X, y, group = biased
    theirs = fairlearn.reductions.ExponentiatedGradient(
        LogisticRegression(), CONSTRAINTS[criterion](difference_bound=0.02), eps=0.02, max_iter=4
    ).fit(X, y, sensitive_features=group)
    ours = Reductions(
        LogisticRegression(), criterion=criterion, tolerance=0.04, eps=0.02, max_iter=4, random_state=11
    ).fit(X, y, sensitive_features=group)
    np.testing.assert_allclose(ours.predict_proba(X), theirs._pmf_predict(X), atol=1e-12)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X, random_state=11))


def test_the_tolerance_bounds_the_difference_of_two_groups_up_to_the_saddle_points_gap(biased):
    X, y, group = biased
    base = LogisticRegression().fit(X, y).predict(X)
    assert abs(base[group == 0].mean() - base[group == 1].mean()) > 0.3
    fair = Reductions(LogisticRegression(), criterion="dp", tolerance=0.05, random_state=0)
    p = fair.fit(X, y, sensitive_features=group).predict_proba(X)[:, 1]
    slack = 2.0 * (0.01 + fair.mitigator_.best_gap_)
    assert abs(p[group == 0].mean() - p[group == 1].mean()) <= 0.05 + slack


def test_a_network_can_be_reweighted(biased):
    X, y, group = biased
    network = MLP(hidden=4, max_epochs=6, batch_size=64, lr=0.02, validation=None, random_state=0)
    fair = Reductions(network, criterion="dp", tolerance=0.1, max_iter=4, random_state=0)
    p = fair.fit(X, y, sensitive_features=group).predict_proba(X)[:, 1]
    base = network.fit(X, y).predict(X)
    before = abs(base[group == 0].mean() - base[group == 1].mean())
    assert abs(p[group == 0].mean() - p[group == 1].mean()) < 0.6 * before
