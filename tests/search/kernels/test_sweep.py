from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.search.kernels.ladder import RESOLUTION
from evenhand.search.kernels.sweep import excess, middle_of, sort_by, sweep
from evenhand.search.sweep import Best, sweep_rows
from kernels import covers, entry
from oracles import sweep_in_numpy
from problems import KINDS, random_problem

seeds = st.integers(0, 2**32 - 1)


@covers(sort_by)
@given(seed=seeds, n=st.integers(0, 200))
def test_sort_by_sorts(seed, n):
    rng = np.random.default_rng(seed)
    keys, order = rng.integers(0, 50, 200) / 7.0, rng.permutation(200)
    chosen = order[:n].copy()
    entry(sort_by)(keys, order, n)
    assert sorted(order[:n]) == sorted(chosen)
    np.testing.assert_array_equal(keys[order[:n]], np.sort(keys[chosen]))


@covers(excess)
@given(seed=seeds, c=st.integers(0, 4))
def test_excess_is_the_largest_distance_from_the_bounds(seed, c):
    rng = np.random.default_rng(seed)
    values, lower, upper = rng.normal(size=c), -rng.random(c), rng.random(c)
    lower[rng.random(c) < 0.3] = -np.inf
    expected = max([0.0, *(lower - values), *(values - upper)])
    assert entry(excess)(values, lower, upper) == expected


@covers(middle_of)
@given(seed=seeds)
def test_middle_of_two_breakpoints_is_between_them(seed):
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.choice([-np.inf, np.inf, 0.0, *rng.normal(size=4)], 2, replace=False))
    middle, wide = middle_of(low, high, 0.0)
    assert wide
    assert low < middle < high


def test_there_is_no_room_between_breakpoints_that_differ_by_rounding():
    assert not middle_of(1.0, 1.0 + 0.5 * RESOLUTION, 0.0)[1]
    assert middle_of(1e-6, 1e-6 + 1e-15, 0.0)[1]
    assert not middle_of(1e-6, 1e-6 + 1e-15, 1.0)[1]  # rounding is relative to the length of the segment


@covers(sweep)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(1, 50))
def test_sweep_finds_the_best_gap_between_breakpoints(seed, kind, n):
    problem = random_problem(seed, n=n, k=2, kind=kind)
    rng = np.random.default_rng(seed)
    level, slope = rng.normal(size=n).round(1), rng.normal(size=n).round(1)
    best = Best.none(problem)
    origin, direction = np.zeros(2), np.array([1.0, 0.0])
    sweep_rows(problem, problem.table, level, slope, origin, direction, best, extra=np.zeros(3))
    truth = sweep_in_numpy(level, slope, problem.table, problem.offset, problem.lower[0], problem.upper[0])
    assert best.utility[0] == pytest.approx(truth, abs=1e-9)


def test_sweep_answers_every_step_and_finds_the_cell_nearest_to_feasible():
    turns = np.array([[0.25, 0.1, 0.2], [0.5, 0.1, 0.2], [0.75, -0.3, 0.2]])
    lower, upper = np.array([[0.55], [0.35]]), np.array([[0.65], [0.65]])
    found, position, closest = np.full(2, -np.inf), np.zeros(2), np.array([np.inf, -np.inf, np.nan])
    sweep(np.arange(3), 3, turns, np.zeros(2), 0.0, 1.0, lower, upper, found, position, closest)
    np.testing.assert_allclose(found, [-0.1, 0.2], atol=1e-15)
    np.testing.assert_allclose(position, [0.875, 0.625])
    np.testing.assert_allclose(closest, [0.15, 0.1, 0.375])  # of the cells that miss the last step's bounds
