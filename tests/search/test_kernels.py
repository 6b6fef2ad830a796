from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from evenhand.search import _kernels
from evenhand.search.sweep import Best, sweep_rows
from oracles import merged_in_numpy, sweep_in_numpy
from problems import KINDS, random_problem

seeds = st.integers(0, 2**32 - 1)


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


@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(1, 80), k=st.integers(1, 4))
def test_merged_planes_hold_the_sums_of_their_rows(seed, kind, n, k):
    problem = random_problem(seed, n=n, k=k, kind=kind)
    rows = np.column_stack([problem.margin, -problem.contrasts, problem.gain, problem.effects])
    merged, constant = np.empty_like(rows), np.zeros(1 + k)
    found = _kernels.merge_planes(rows, k + 1, merged, constant)
    planes, expected = merged_in_numpy(rows, k + 1)
    np.testing.assert_allclose(constant, expected, atol=1e-12)
    assert found == len(planes)
    for row in merged[:found]:
        key = tuple(np.round(row[: k + 1] * 2.0**40).astype(np.int64))
        np.testing.assert_allclose(row[k + 1 :], planes[key], atol=1e-12)


@settings(max_examples=50)
@given(seed=seeds, n=st.integers(1, 12), d=st.integers(1, 4))
def test_deepest_point_agrees_with_a_linear_program(seed, n, d):
    rng = np.random.default_rng(seed)
    normals, offsets, half = rng.normal(size=(n, d)), rng.normal(size=n) * 0.5, rng.uniform(0.1, 1.0, d)
    point = np.empty(d)
    depth = _kernels._deepest_point(normals, offsets, n, half, point)
    size = np.abs(normals).sum(axis=1)
    bounds = [*((-h, h) for h in half), (None, None)]
    truth = linprog(np.append(np.zeros(d), -1.0), np.column_stack([-normals, size]), offsets, bounds=bounds)
    assert depth == pytest.approx(-truth.fun, abs=1e-8)
    assert (np.abs(point) <= half + 1e-9).all()


@given(seed=seeds, n=st.integers(0, 30), columns=st.integers(1, 5))
def test_linear_margin_is_the_linear_expression(seed, n, columns):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    q = rng.dirichlet(np.ones(columns), size=n).reshape(n, columns)
    weights, out = rng.normal(size=columns), np.empty(n)
    assert _kernels.linear_margin(-1.0, 2.0, p, q, weights, True, out) == -1
    np.testing.assert_allclose(out, 2.0 * p - 1.0 - q @ weights, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.1, np.inf])
@pytest.mark.parametrize("where", ["p", "q"])
def test_linear_margin_names_the_first_row_that_is_no_probability(bad, where):
    p, q = np.full(5, 0.5), np.full((5, 2), 0.5)
    (p if where == "p" else q[:, 0])[3] = bad
    assert _kernels.linear_margin(0.0, 1.0, p, q, np.zeros(2), True, np.empty(5)) == 3


@settings(max_examples=40)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(1, 60), k=st.integers(2, 4))
def test_the_bounds_of_a_box_hold_for_every_rule_inside_it(seed, kind, n, k):
    """What a box is pruned by: no point of it has a utility or a value outside what its open rows allow."""
    problem = random_problem(seed, n=n, k=k, kind=kind)
    rng = np.random.default_rng(seed)
    rows = np.column_stack([problem.margin, -problem.contrasts, problem.gain, problem.effects])
    planes = np.empty_like(rows)
    n = _kernels.merge_planes(rows, k + 1, planes, np.zeros(k + 1))
    planes = np.ascontiguousarray(planes[:n])
    centre, radius = rng.uniform(-1, 1, k + 1), rng.uniform(0, 0.5, k + 1)
    centre[0] = abs(centre[0]) + radius[0]
    every = np.arange(n, dtype=np.int32)
    kept, sums = np.zeros(n + 1, dtype=np.int32), np.zeros(k + 1)
    shape = (0,) * (k + 1), (0,) * (k + 1)
    opened = _kernels._classify(planes, *shape, every, n, centre, radius, kept, sums)
    multipliers = rng.normal(size=k)
    middle, low, high = sums.copy(), np.zeros(k), np.zeros(k)
    gains, priced, _ = _kernels._measure(planes, *shape, kept, opened, centre, multipliers, middle, low, high)
    for point in centre + rng.uniform(-1, 1, (50, k + 1)) * radius:
        decisions = planes[:, : k + 1] @ point > 0.0
        utility, *values = decisions @ planes[:, k + 1 :]
        values = np.array(values)
        assert utility <= sums[0] + gains + 1e-12
        assert (values <= sums[1:] + high + 1e-12).all()
        assert (values >= sums[1:] + low - 1e-12).all()
        price = utility - multipliers @ values
        assert price <= sums[0] - multipliers @ sums[1:] + priced + 1e-12
    at_centre = planes[:, : k + 1] @ centre > 0.0
    np.testing.assert_allclose(middle, at_centre @ planes[:, k + 1 :], atol=1e-12)
