"""The best mixture of rules, against the linear program over every rule that there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import evenhand as eh
from evenhand.search import NoRule, Problem, mixed
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


def test_a_search_that_is_stopped_leaves_a_true_bound(monkeypatch):
    problem = setting_of(DATA.y, DATA.group, DATA.p_y, DATA.p_joint, criterion="dp").problem([0.01])
    best = mix(problem)
    looked = []
    for most in range(4, best.columns + 1):
        monkeypatch.setattr(mixed, "MOST_COLUMNS", most)
        stopped = mix(problem)
        if isinstance(stopped, NoRule):
            assert not stopped.proven
            continue
        assert stopped.utility <= best.utility + 1e-9
        assert stopped.upper_bound >= best.utility - 1e-9
        looked.append(stopped.upper_bound > stopped.utility + 1e-6)
    # Some were stopped before they were optimal, and said so.
    assert any(looked)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), k=st.sampled_from([1, 2]), tolerance=st.sampled_from([0.0, 0.1, 0.3]))
def test_every_multiplier_bounds_every_mixture(seed, k, tolerance):
    problem = random_problem(seed, n=7, k=k, tolerance=tolerance)
    truth = best_mixture(problem)
    multipliers = np.random.default_rng(seed).normal(size=problem.effects.shape[1])
    priced = mixed._price(problem, multipliers, bounds_only=False)
    bound = priced.upper_bound + mixed._at_bounds(multipliers, problem.lower[0], problem.upper[0])
    assert truth is None or bound >= truth - 1e-9


def test_bounds_that_are_missed_by_rounding_alone_are_met():
    """No decision has a value below 0, and the bound is a rounding error below it."""
    problem = Problem(
        margin=np.array([0.5, -0.2, 0.1]),
        contrasts=np.ones((3, 1)),
        gain=np.array([0.3, -0.2, 0.1]),
        effects=np.ones((3, 1)) / 3,
        lower=np.array([-np.inf]),
        upper=np.array([-5e-10]),
    )
    found = mix(problem)
    assert found.utility == pytest.approx(0.0, abs=1e-8)
    assert problem.excess(found.values) <= 1e-9
