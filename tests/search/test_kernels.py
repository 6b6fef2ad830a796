from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.optimize import linprog

from evenhand.search import _kernels
from evenhand.search.sweep import Best, sweep_rows
from oracles import merged_in_numpy, sweep_in_numpy
from problems import KINDS, random_problem

seeds = st.integers(0, 2**32 - 1)


def entry(kernel):
    """Return a function that Python can call for a kernel that only others call."""
    return njit(lambda *arguments: kernel(*arguments))


deepest_point, measure, bundled, infeasible = map(
    entry, (_kernels._deepest_point, _kernels._measure, _kernels._bundled, _kernels._infeasible)
)


@given(seed=seeds, n=st.integers(0, 200))
def test_the_sort_of_the_kernels_sorts(seed, n):
    rng = np.random.default_rng(seed)
    keys, order = rng.integers(0, 50, 200) / 7.0, rng.permutation(200)
    chosen = order[:n].copy()
    _kernels.sort_by(keys, order, n)
    assert sorted(order[:n]) == sorted(chosen)
    np.testing.assert_array_equal(keys[order[:n]], np.sort(keys[chosen]))


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
    point, weights = np.empty(d), np.empty(n)
    depth, visits = deepest_point(normals, offsets, n, half, point, weights)
    size = np.abs(normals).sum(axis=1)
    bounds = [*((-h, h) for h in half), (None, None)]
    truth = linprog(np.append(np.zeros(d), -1.0), np.column_stack([-normals, size]), offsets, bounds=bounds)
    assert depth == pytest.approx(-truth.fun, abs=1e-8)
    assert (np.abs(point) <= half + 1e-9).all()
    assert visits >= n + d
    # The weights prove by themselves that no point is deeper.
    assert (weights >= 0.0).all()
    assert (np.abs(weights @ normals) @ half + weights @ offsets) / (weights @ size) == pytest.approx(depth, abs=1e-8)


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
    shape = (0,) * (k + 1), k + 1
    opened = _kernels.classify(planes, *shape, every, n, centre, radius, kept, sums)
    multipliers = rng.normal(size=k)
    middle, low, high = sums.copy(), np.zeros(k), np.zeros(k)
    gains, priced, _ = measure(planes, *shape, kept, opened, centre, multipliers, middle, low, high)
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


@settings(max_examples=60)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(1, 200), k=st.integers(2, 4), depth=st.integers(0, 4))
def test_the_bounds_of_bundles_hold_for_every_rule_in_a_box_and_are_no_looser_than_the_best_choices(
    seed, kind, n, k, depth
):
    problem = random_problem(seed, n=n, k=k, kind=kind)
    rng = np.random.default_rng(seed)
    rows = np.column_stack([problem.margin, -problem.contrasts, problem.gain, problem.effects])
    planes = np.empty_like(rows)
    n = _kernels.merge_planes(rows, k + 1, planes, np.zeros(k + 1))
    planes = np.ascontiguousarray(planes[:n])
    axis = int(rng.integers(k + 1))
    codes, directions = np.zeros(n, dtype=np.int32), np.zeros((2 << depth, k + 1))
    _kernels.bundle_planes(planes, axis, depth, codes, directions)
    assert ((codes >= 1 << depth) & (codes < 2 << depth)).all()
    centre, radius = rng.uniform(-1, 1, k + 1), rng.uniform(0.01, 0.3, k + 1)
    radius[axis], centre[axis] = 0.0, 1.0
    every = np.arange(n, dtype=np.int32)
    kept, sums = np.zeros(n + 1, dtype=np.int32), np.zeros(k + 1)
    shape = (0,) * (k + 1), k + 1
    opened = _kernels.classify(planes, *shape, every, n, centre, radius, kept, sums)
    if opened == 0:
        return
    weight, prices = float(rng.integers(2)), rng.normal(size=k)
    bound = bundled(
        planes, *shape, kept, opened, centre, radius, codes, directions, weight, prices,
        np.zeros((1 << depth, _kernels.BINS + 1)), np.zeros((1 << depth, k + 1)),
    )  # fmt: skip
    price = planes[:, k + 1 :] @ np.concatenate([[weight], -prices])
    open_rows = kept[:opened]
    assert bound <= np.maximum(price[open_rows], 0.0).sum() + 1e-9
    for point in centre + rng.uniform(-1, 1, (200, k + 1)) * radius:
        decisions = planes[open_rows, : k + 1] @ point > 0.0
        assert decisions @ price[open_rows] <= bound + 1e-9


def test_planes_with_like_directions_share_a_bundle():
    rng = np.random.default_rng(0)
    angles = np.repeat([0.1, 0.8, 2.0, 2.7], 100) + rng.normal(scale=0.01, size=400)
    planes = np.column_stack([rng.normal(size=400), np.cos(angles), np.sin(angles)])
    codes, directions = np.zeros(400, dtype=np.int32), np.zeros((8, 3))
    _kernels.bundle_planes(planes, 0, 2, codes, directions)
    found, count = zip(*(Counter(part).most_common(1)[0] for part in codes.reshape(4, 100).tolist()), strict=True)
    assert sorted(found) == [4, 5, 6, 7]
    assert min(count) > 85  # the medians are those of a sample
    for angle, code in zip((0.1, 0.8, 2.0, 2.7), found, strict=True):
        expected = np.array([0.0, np.cos(angle), np.sin(angle)])
        np.testing.assert_allclose(directions[code], expected / np.abs(expected).sum(), atol=0.01)


@settings(max_examples=60)
@given(seed=seeds, n=st.integers(20, 200), k=st.integers(2, 4))
def test_a_box_called_infeasible_holds_no_rule_that_meets_the_bounds(seed, n, k):
    problem = random_problem(seed, n=n, k=k)
    rng = np.random.default_rng(seed)
    planes = np.column_stack([problem.margin, -problem.contrasts, problem.gain, problem.effects])
    codes, directions = np.zeros(n, dtype=np.int32), np.zeros((8, k + 1))
    _kernels.bundle_planes(planes, 0, 2, codes, directions)
    centre, radius = rng.uniform(-2, 2, k + 1), rng.uniform(0.01, 0.3, k + 1)
    radius[0], centre[0] = 0.0, 1.0
    every = np.arange(n, dtype=np.int32)
    kept, sums = np.zeros(n + 1, dtype=np.int32), np.zeros(k + 1)
    shape = (0,) * (k + 1), k + 1
    opened = _kernels.classify(planes, *shape, every, n, centre, radius, kept, sums)
    middle, low, high = sums.copy(), np.zeros(k), np.zeros(k)
    measure(planes, *shape, kept, opened, centre, np.zeros(k), middle, low, high)
    lower, upper = np.full(k, -0.02), np.full(k, 0.02)
    found, _ = infeasible(
        planes, *shape, kept, opened, centre, radius, codes, directions, sums, middle, low, high, lower, upper, 0.0,
        np.zeros(k), np.zeros((4, _kernels.BINS + 1)), np.zeros((4, k + 1)),
    )  # fmt: skip
    points = centre + rng.uniform(-1, 1, (300, k + 1)) * radius
    values = (planes[:, : k + 1] @ points.T > 0.0).T @ planes[:, k + 2 :]
    if found:
        assert ((values < lower) | (values > upper)).any(axis=1).all()
    for met in values[:40]:  # bounds that one rule of the box just meets
        found, _ = infeasible(
            planes, *shape, kept, opened, centre, radius, codes, directions, sums, middle, low, high, met - 1e-6,
            met + 1e-6, 0.0, np.zeros(k), np.zeros((4, _kernels.BINS + 1)), np.zeros((4, k + 1)),
        )  # fmt: skip
        assert not found
