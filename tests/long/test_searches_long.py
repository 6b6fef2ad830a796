"""Many random problems: certified against the other searches, and against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import evenhand as eh
from evenhand.search import Certified, NoRule
from oracles import best_threshold, exact_cells
from problems import KINDS, assert_never_behind, feasible, random_problem

ON_THE_LINE = 1_000_000
NEVER_BEHIND = 25
EXACT = 2_000


def test_a_million_problems_with_one_contrast_have_the_brute_force_optimum():
    """Ties, weights, copies and degenerate rows; prints how many there were of each outcome."""
    wrong, outcomes = [], {"rule": 0, "no rule": 0}
    search = Certified()
    for seed in range(ON_THE_LINE):
        problem = random_problem(seed, n=3 + seed % 10, k=1, kind=KINDS[seed % len(KINDS)])
        truth, found = best_threshold(problem), search.solve(problem)[0]
        if truth is None:
            outcomes["no rule"] += 1
            right = isinstance(found, NoRule) and found.proven
        else:
            outcomes["rule"] += 1
            right = found.status == "optimal" and abs(found.utility - truth) <= 1e-9
        if not right:
            wrong.append(seed)
    print(f"{ON_THE_LINE:,} problems against brute force: {outcomes}, {len(wrong)} wrong")
    assert wrong == []


@pytest.mark.parametrize("k", range(1, 9))
def test_certified_is_never_behind_over_many_problems(k):
    for seed in range(NEVER_BEHIND):
        n = int(np.random.default_rng(seed).integers(4, 400))
        assert_never_behind(random_problem(seed, n=n, k=k, kind=KINDS[seed % len(KINDS)], tolerance=0.2))


@pytest.mark.parametrize("k", [2, 3])
def test_no_resolved_cell_is_missed_over_many_problems(k):
    for seed in range(EXACT):
        problem = random_problem(seed, n=k + 1 + seed % 6, k=k, kind=KINDS[seed % len(KINDS)])
        if np.linalg.matrix_rank(problem.contrasts) < k:
            continue
        found = Certified(max_seconds=None).solve(problem)[0]
        for decisions, clearance in exact_cells(problem.margin, problem.contrasts).items():
            utility, values = problem.evaluate(np.array(decisions))
            if clearance > 1e-9 and feasible(problem, values):
                assert found.upper_bound >= utility - 1e-9, seed


def test_many_tables_of_coarse_scores_are_decided_as_exact_arithmetic_says():
    for seed in range(20_000):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([10, 20, 50]))
        group = rng.permutation(np.arange(n) < 0.3 * n).astype(int)
        tenths_y, tenths_group = rng.integers(0, 11, n), rng.integers(0, 11, n)
        y = (rng.random(n) < tenths_y / 10).astype(int)
        if len(np.unique(y)) == 1:
            continue
        share = Fraction(int(group.sum()), n)
        margin = [2 * Fraction(int(p), 10) - 1 for p in tenths_y]
        contrast = [(1 - Fraction(int(p), 10)) / (1 - share) - Fraction(int(p), 10) / share for p in tenths_group]
        p_y, p_group = tenths_y / 10, np.column_stack([1 - tenths_group / 10, tenths_group / 10])
        try:
            rule = eh.learn_rule(y, group, p_y, p_group, criterion="dp", tolerance=0.1)
        except eh.InfeasibleError:
            continue
        z = Fraction(float(rule.z[0]))
        exact = [m - z * g > 0 for m, g in zip(margin, contrast, strict=True)]
        np.testing.assert_array_equal(rule.decide(p_y, p_group) == 1, exact, err_msg=str(seed))
