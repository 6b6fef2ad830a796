from __future__ import annotations

import numpy as np
import pytest
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.linear_model import LogisticRegression

from evenhand.errors import InputError
from evenhand.paper.baselines import GroupThresholds

FAIRLEARN = {
    "demographic_parity": "demographic_parity",
    "equalized_odds": "equalized_odds",
    "equal_opportunity": "true_positive_rate_parity",
    "predictive_equality": "false_positive_rate_parity",
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("criterion", FAIRLEARN)
def test_it_agrees_with_fairlearn(biased, criterion):
    X, y, group = biased
    theirs = ThresholdOptimizer(
        estimator=LogisticRegression(), constraints=FAIRLEARN[criterion], predict_method="predict_proba"
    ).fit(X, y, sensitive_features=group)
    ours = GroupThresholds(LogisticRegression(), criterion=criterion, random_state=3)
    ours.fit(X, y, sensitive_features=group)
    np.testing.assert_allclose(
        ours.predict_proba(X, sensitive_features=group), theirs._pmf_predict(X, sensitive_features=group)
    )
    np.testing.assert_array_equal(
        ours.predict(X, sensitive_features=group),
        theirs.predict(X, sensitive_features=group, random_state=3),
    )


def expected_gap(p, group, rows):
    return abs(p[rows & (group == 0)].mean() - p[rows & (group == 1)].mean())


def test_equalized_odds_hold_in_expectation_on_the_fitting_rows(biased):
    X, y, group = biased
    fair = GroupThresholds(LogisticRegression(), random_state=0).fit(X, y, sensitive_features=group)
    p = fair.predict_proba(X, sensitive_features=group)[:, 1]
    base = LogisticRegression().fit(X, y).predict(X)
    for label in (0, 1):
        assert expected_gap(p, group, y == label) < 0.005
        assert expected_gap(base, group, y == label) > 0.05


def test_a_tolerance_relaxes_demographic_parity(biased):
    X, y, group = biased
    everyone = np.ones(len(y), dtype=bool)
    gaps, accuracies = [], []
    for tolerance in (0.0, 0.1, 0.2):
        fair = GroupThresholds(LogisticRegression(), criterion="dp", tolerance=tolerance, random_state=0)
        p = fair.fit(X, y, sensitive_features=group).predict_proba(X, sensitive_features=group)[:, 1]
        gaps.append(expected_gap(p, group, everyone))
        accuracies.append(np.mean(np.where(y == 1, p, 1 - p)))
        assert gaps[-1] <= tolerance + 0.005
    assert gaps[0] < gaps[1] < gaps[2]
    assert accuracies[0] < accuracies[1] < accuracies[2]


def test_what_it_cannot_do_is_named(biased):
    X, y, group = biased
    with pytest.raises(InputError, match="cannot relax equalized odds"):
        GroupThresholds(LogisticRegression(), tolerance=0.1).fit(X, y, sensitive_features=group)
    with pytest.raises(InputError, match="group 2 has rows of one label only"):
        GroupThresholds(LogisticRegression()).fit(X, y, sensitive_features=np.where(np.arange(600) < 1, 2, group))
