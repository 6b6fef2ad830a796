"""The best mixture of rules, against the linear program over every rule that there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import evenhand as eh
from evenhand.search import NoRule
from evenhand.search.mixed import mix
from oracles import cells_by_linear_program
from problems import random_problem, setting_of


def best_mixture(problem):
    """Return the optimum over mixtures of all rules, by one linear program over every cell of space; or None."""
    cells = cells_by_linear_program(np.column_stack([problem.margin, problem.contrasts]))
    points = [problem.margin > 0.0, *cells]
    found = [problem.evaluate(np.asarray(decisions)) for decisions in points]
    utility, values = np.array([u for u, _ in found]), np.array([v for _, v in found])
    matrix = np.vstack([values.T, -values.T])
    limits = np.concatenate([problem.upper[0], -problem.lower[0]])
    finite = np.isfinite(limits)
    result = linprog(-utility, A_ub=matrix[finite], b_ub=limits[finite], A_eq=np.ones((1, len(points))), b_eq=[1.0])
    return None if result.status == 2 else -result.fun


@pytest.mark.parametrize("k", [1, 2])
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(4, 9),
    tolerance=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
)
def test_a_mixture_is_the_optimum_over_all_rules(k, seed, n, tolerance):
    problem = random_problem(seed, n=n, k=k, tolerance=tolerance)
    truth, found = best_mixture(problem), mix(problem)
    if isinstance(found, NoRule):
        assert truth is None
        return
    assert truth is not None
    assert found.utility == pytest.approx(truth, abs=1e-7)
    assert found.upper_bound == pytest.approx(truth, abs=1e-7)
    assert found.weights.sum() == pytest.approx(1.0)
    assert len(found.weights) <= problem.effects.shape[1] + 1
    assert problem.excess(found.values) <= 1e-8


DATA = eh.datasets.make_zafar(2000, random_state=4)


@pytest.mark.parametrize("criterion", ["dp", "eo", eh.DemographicParity() & eh.SelectionBudget(upper=0.3)])
@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.05])
def test_no_rule_is_better_than_the_best_mixture(criterion, tolerance):
    setting = setting_of(DATA.y, DATA.group, DATA.p_y, DATA.p_joint, criterion=criterion)
    problem = setting.problem([tolerance])
    found = mix(problem)
    assert found.upper_bound == pytest.approx(found.utility, abs=1e-9)
    assert problem.excess(found.values) <= 1e-8
    single = eh.Certified().solve(problem)[0]
    if not isinstance(single, NoRule):
        assert single.utility <= found.utility + 1e-9


def test_more_looks_than_allowed_leave_a_true_bound(monkeypatch):
    from evenhand.search import mixed

    problem = setting_of(DATA.y, DATA.group, DATA.p_y, DATA.p_joint, criterion="eo").problem([0.01])
    best = mix(problem)
    monkeypatch.setattr(mixed, "MOST_COLUMNS", 9)
    stopped = mix(problem)
    if isinstance(stopped, NoRule):
        assert not stopped.proven
    else:
        assert stopped.utility <= best.utility + 1e-9 <= stopped.upper_bound + 2e-9
