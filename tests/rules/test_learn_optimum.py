"""The optimum of every criterion, from labels, groups and probabilities to the proof, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.search import NoRule
from oracles import best_by_all_cells, best_by_all_pairs_of_lines, best_threshold
from problems import setting_of

BRUTE_FORCE = {1: best_threshold, 2: best_by_all_pairs_of_lines}
CRITERIA = {
    "demographic parity": eh.DemographicParity(),
    "equal opportunity": eh.EqualOpportunity(),
    "predictive equality": eh.PredictiveEquality(),
    "equalized odds": eh.EqualizedOdds(),
    "selection ratio": eh.SelectionRatio(0.8),
    "minimum rate": eh.MinimumRate("tpr", 0.6),
    "selection budget": eh.SelectionBudget(0.2, 0.4),
    "parity within a budget": eh.DemographicParity() & eh.SelectionBudget(upper=0.4),
    "own tolerances": eh.EqualOpportunity(tolerance=0.3) & eh.PredictiveEquality(tolerance=0.1),
    "precision floor": eh.MinimumRate("precision", 0.6),
    "omission ceiling": eh.MaximumRate("for", 0.4),
    "accuracy floor": eh.MinimumRate("accuracy", 0.55),
    "accuracy parity": eh.AccuracyParity(),
    "precision floor and parity": eh.MinimumRate("precision", 0.5, attribute="group") & eh.DemographicParity(),
    "own constraint": eh.LinearConstraint(
        {eh.Event("group", 0, 1): 1.0, eh.Event("group", 1, 1): -0.5, eh.Event("group", 0, kind="accuracy"): 1.0},
        lower=0.3,
        upper=1.2,
    ),
    "odds within a budget": eh.EqualizedOdds() & eh.SelectionBudget(upper=0.6),
}


def draw_setting(seed, criterion, n, evidence, *, tied, weighted, costs):
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(4, 0.7), size=n)
    if tied:
        joint = (joint * 8).round() / 8
        joint[:, 0] = 1.0 - joint[:, 1:].sum(axis=1)
        joint = np.abs(joint) / np.abs(joint).sum(axis=1, keepdims=True)
    cell = np.concatenate([np.repeat(np.arange(4), 2), rng.integers(0, 4, n - 8)])
    return setting_of(
        cell // 2,
        cell % 2,
        joint[:, 2:].sum(axis=1),
        joint.reshape(n, 2, 2),
        criterion=criterion,
        evidence=evidence,
        sample_weight=rng.choice([0.5, 1.0, 3.0], n) if weighted else None,
        costs=costs,
    )


@pytest.mark.parametrize("name", CRITERIA)
@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(9, 40),
    tolerance=st.sampled_from([0.05, 0.2, 0.5]),
    evidence=st.sampled_from(["labels", "model", "both"]),
    tied=st.booleans(),
    weighted=st.booleans(),
    costs=st.sampled_from([None, (1.0, 3.0)]),
)
def test_the_optimum_of_every_criterion_is_the_brute_force_optimum(
    name, seed, n, tolerance, evidence, tied, weighted, costs
):
    options = {"tied": tied, "weighted": weighted, "costs": costs}
    setting = draw_setting(seed, CRITERIA[name], n, evidence, **options)
    if len(setting.system.contrasts) > 2:  # every cell of space: tiny problems only
        setting = draw_setting(seed, CRITERIA[name], 9, evidence, **options)
    problem = setting.problem([tolerance])
    truth = BRUTE_FORCE.get(problem.dimension, best_by_all_cells)(problem)
    result = eh.Certified(max_seconds=None).solve(problem)[0]
    if truth is None:
        assert isinstance(result, NoRule)
        return
    assert not isinstance(result, NoRule)
    assert result.utility == pytest.approx(truth, abs=1e-9)
    assert result.gap == pytest.approx(0.0, abs=1e-9)
