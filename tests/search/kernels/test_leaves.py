from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from evenhand.search.kernels import leaves
from evenhand.search.kernels.ladder import Incumbent, Ladder
from evenhand.search.kernels.leaves import (
    Layout,
    Leaf,
    Simplex,
    deepest_point,
    depth_at,
    enumerate_cells,
    enumerate_plane_cells,
    lay_line,
    lay_out,
    step_off,
)
from kernels import Scene, covers, entry
from oracles import exact_cells
from problems import KINDS

seeds = st.integers(0, 2**32 - 1)


def layout_of(scene):
    layout = Layout.room(scene.k, scene.k + 1, len(scene.rows))
    entry(lay_out)(scene.planes, scene.boxes, 1, layout)
    return layout


@covers(lay_out)
@given(seed=seeds, n=st.integers(1, 40), k=st.integers(2, 4))
def test_lay_out_has_the_open_rows_in_the_coordinates_of_the_box(seed, n, k):
    scene = Scene(seed, n=n, k=k)
    layout, free = layout_of(scene), scene.radius > 0.0
    np.testing.assert_array_equal(layout.free, np.flatnonzero(free))
    np.testing.assert_array_equal(layout.half, scene.radius[free])
    np.testing.assert_allclose(layout.level, scene.v[scene.rows] @ scene.centre, atol=1e-15)
    np.testing.assert_array_equal(layout.slopes, scene.v[scene.rows][:, free])
    np.testing.assert_array_equal(layout.amounts, scene.amounts[scene.rows])


@covers(lay_line)
@given(seed=seeds, n=st.integers(1, 40))
def test_lay_line_follows_a_row_from_side_to_side_of_the_box(seed, n):
    scene = Scene(seed, n=n, k=2)
    layout, line = layout_of(scene), np.zeros((3, 2))
    for p in range(len(scene.rows)):
        low, high = entry(lay_line)(layout, p, line)
        origin, direction, normal = line
        np.testing.assert_allclose([direction @ direction, normal @ normal, direction @ normal], [1, 1, 0], atol=1e-12)
        assert normal @ layout.slopes[p] > 0.0
        assert low < high  # an open row cuts its box
        for s in (low, high):
            point = origin + s * direction
            assert layout.level[p] + layout.slopes[p] @ point == pytest.approx(0.0, abs=1e-9)
            assert (np.abs(point) / layout.half).max() == pytest.approx(1.0, abs=1e-9)


def test_a_row_without_a_line_in_the_box_has_its_ends_the_wrong_way_round():
    layout = Layout(
        np.array([1, 2]), np.ones(2), np.array([1.0, 3.0]), np.array([[0.0, 0.0], [0.0, 1.0]]), np.zeros((2, 3))
    )
    for p in range(2):
        low, high = entry(lay_line)(layout, p, np.zeros((3, 2)))
        assert low > high


@covers(step_off)
@given(seed=seeds, n=st.integers(1, 40))
def test_step_off_stays_in_the_cell_beside_the_line(seed, n):
    scene = Scene(seed, n=n, k=2)
    layout, line = layout_of(scene), np.zeros((3, 2))
    count = len(scene.rows)
    for p in range(count):
        low, high = entry(lay_line)(layout, p, line)
        position = scene.rng.uniform(low, high)
        for toward in (-1.0, 1.0):
            x, y, nearest = entry(step_off)(layout, count, p, line, position, toward)
            on_line = line[0] + position * line[1]
            before, after = (layout.level + layout.slopes @ point for point in (on_line, np.array([x, y])))
            assert (np.abs([x, y]) <= layout.half + 1e-12).all()
            assert nearest == pytest.approx(np.abs(after).min())
            assert np.sign(after[p]) == toward
            others = (np.arange(count) != p) & (np.abs(before) > 1e-9)
            np.testing.assert_array_equal(np.sign(after[others]), np.sign(before[others]))


@covers(deepest_point, depth_at)
@settings(max_examples=50)
@given(seed=seeds, n=st.integers(1, 12), d=st.integers(1, 4))
def test_deepest_point_agrees_with_a_linear_program(seed, n, d):
    rng = np.random.default_rng(seed)
    normals, offsets, half = rng.normal(size=(n, d)), rng.normal(size=n) * 0.5, rng.uniform(0.1, 1.0, d)
    point, simplex = np.empty(d), Simplex.room(d, n + 2)
    for room in simplex:  # what was left there by another box
        room[:] = 7
    depth, visits = entry(deepest_point)(normals, offsets, n, half, point, simplex)
    size = np.abs(normals).sum(axis=1)
    bounds = [*((-h, h) for h in half), (None, None)]
    truth = linprog(np.append(np.zeros(d), -1.0), np.column_stack([-normals, size]), offsets, bounds=bounds)
    assert depth == pytest.approx(-truth.fun, abs=1e-8)
    assert (np.abs(point) <= half + 1e-9).all()
    assert visits >= n + d
    anywhere = rng.normal(size=d)
    expected = ((normals @ anywhere + offsets) / size).min()
    assert entry(depth_at)(normals, offsets, n, anywhere) == pytest.approx(expected)
    assert depth >= expected - 1e-9 or (np.abs(anywhere) > half).any()


def cells_of(scene):
    """Return the decisions of all planes in every cell of the box that has room, in rational arithmetic.

    The sides of the box are rows like the others, and a cell is inside the box if they say so.
    """
    free = np.flatnonzero(scene.radius > 0.0)
    k, opened = len(free), scene.v[scene.rows]
    sides = np.vstack([np.eye(k), -np.eye(k)])
    margin = np.concatenate([opened @ scene.centre, scene.radius[free], scene.radius[free]])
    found = exact_cells(margin, -np.vstack([opened[:, free], sides]))
    inside = {signs[: -2 * k]: clearance for signs, clearance in found.items() if all(signs[-2 * k :])}
    return np.array(list(inside)).reshape(len(inside), -1), np.array(list(inside.values()))


def enumerated(kernel, scene, ladder, incumbent, target=0.0):
    leaf = Leaf.room(scene.k, scene.k + 1, len(ladder.lower), len(scene.rows))
    # Room for both kinds of leaves: K = 2 can be enumerated by either.
    leaf = leaf._replace(cells=leaves.CellsOfLeaf.room(scene.k, scene.k + 1, len(scene.rows)))
    return entry(kernel)(leaf, scene.planes, scene.boxes, 1, ladder, incumbent, target)


def check_enumeration(kernel, scene, steps):
    """Compare the best utility for each step with that of every cell, and what the point found does."""
    cells, clearance = cells_of(scene)
    sums = scene.sums + cells @ scene.amounts[scene.rows]
    widths = np.array([0.05, 0.2, 0.6])[:steps, None]
    ladder = Ladder(np.repeat(-widths, scene.k, 1), np.repeat(widths, scene.k, 1), np.arange(scene.k), np.ones(scene.k))
    incumbent = Incumbent.none(steps, scene.k + 1)
    assert enumerated(kernel, scene, ladder, incumbent) >= len(scene.rows) ** 2
    for step in range(steps):
        met = ((sums[:, 1:] >= ladder.lower[step]) & (sums[:, 1:] <= ladder.upper[step])).all(axis=1)
        # Cells too narrow for doubles may be missed, and are then left behind.
        surely = sums[met & (clearance > 1e-6), 0].max(initial=-np.inf)
        assert incumbent.utility[step] >= surely - 1e-9
        assert incumbent.utility[step] <= sums[met, 0].max(initial=-np.inf) + 1e-9
        if np.isfinite(incumbent.utility[step]):
            point = incumbent.point[step]
            assert (np.abs(point - scene.centre) <= scene.radius + 1e-12).all()
            np.testing.assert_allclose(scene.sums_at(point[None])[0, 0], incumbent.utility[step], atol=1e-9)


@covers(enumerate_plane_cells)
@settings(max_examples=40)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(1, 9), steps=st.integers(1, 3))
def test_enumerate_plane_cells_finds_the_best_of_all_cells(seed, kind, n, steps):
    scene = Scene(seed, n=n, k=2, kind=kind, most=0.9)
    assume(len(scene.rows) > 0)  # without a line there is one cell, whose centre has been looked at
    check_enumeration(enumerate_plane_cells, scene, steps)


@covers(enumerate_cells)
@settings(max_examples=40)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(1, 7), k=st.integers(2, 3), steps=st.integers(1, 3))
def test_enumerate_cells_finds_the_best_of_all_cells(seed, kind, n, k, steps):
    check_enumeration(enumerate_cells, Scene(seed, n=n, k=k, kind=kind, most=0.9), steps)


@covers(enumerate_cells, enumerate_plane_cells)
def test_cells_that_are_no_better_than_what_is_known_change_nothing():
    scene = Scene(5, n=12, k=2, most=0.9)
    for kernel in (enumerate_cells, enumerate_plane_cells):
        incumbent = Incumbent(np.full(1, 9.0), np.zeros((1, 3)), np.full(1, -np.inf))
        enumerated(kernel, scene, scene.ladder(), incumbent)
        assert incumbent.utility[0] == 9.0
        assert incumbent.left_behind[0] == -np.inf
        assert not incumbent.point.any()
