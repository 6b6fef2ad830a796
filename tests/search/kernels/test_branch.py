from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.search.kernels.boxes import Boxes, Outlook
from evenhand.search.kernels.branch import (
    DONE,
    MET,
    OUT_OF_BUDGET,
    OUT_OF_ROOM,
    Limits,
    branch,
    pile_up,
    room_for_halves,
)
from evenhand.search.kernels.leaves import Leaf, enumerator
from kernels import Scene, bundles_of, covers, entry, tally_of

seeds = st.integers(0, 2**32 - 1)


@covers(room_for_halves)
def test_room_for_halves_counts_boxes_and_rows_of_both_arrays():
    planes = np.zeros((10, 6))
    stack, met = Boxes.room(3, 3, 3, 30), Boxes.room(4, 3, 3, 30)
    stack.height[0], stack.start[1], stack.size[1] = 2, 20, 5
    look = entry(room_for_halves)
    assert look(planes, stack, met) == DONE
    stack.size[1] = 6
    assert look(planes, stack, met) == OUT_OF_ROOM
    stack.size[1] = -1  # all planes
    assert look(planes, stack, met) == OUT_OF_ROOM
    stack.start[1] = 10
    assert look(planes, stack, met) == DONE
    stack.height[0] = 3
    assert look(planes, stack, met) == OUT_OF_ROOM
    stack.height[0], met.height[0] = 2, 2
    assert look(planes, stack, met) == MET
    met.height[0], met.start[1] = 1, 11
    assert look(planes, stack, met) == MET


@covers(pile_up)
@pytest.mark.parametrize("counts", [(2, 3), (0, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("bounds", [(1.0, 2.0), (2.0, 1.0)])
def test_pile_up_puts_the_more_promising_half_on_top(counts, bounds):
    halves, stack = Boxes.halves(3, 3, 5), Boxes.room(4, 3, 3, 20)
    halves.height[0], halves.bound[:], halves.size[:] = 2, bounds, counts
    halves.rows[:] = np.arange(12)
    stack.height[0] = 1
    entry(pile_up)(halves, stack, 7)
    order = [half for half in np.argsort(bounds) if counts[half] > 0]
    assert stack.height[0] == 1 + len(order)
    start = 7
    for top, half in enumerate(order, start=1):
        assert stack.bound[top] == bounds[half]
        assert stack.start[top] == start
        rows = halves.rows[halves.start[half] :][: counts[half]]
        np.testing.assert_array_equal(stack.rows[start : start + stack.size[top]], rows)
        start += counts[half]


def search(scene, ladder, incumbent, visits=10**9, nodes=10**9, sizes=(8, 20)):
    k, n = scene.k, len(scene.planes)
    stack, met = (Boxes.room(size, k + 1, k + 1, 400 * n + 64) for size in (400, 65))
    stack.height[0], stack.size[0], stack.bound[0], stack.guess[0] = 1, -1, np.inf, 0.2
    stack.centre[0], stack.radius[0] = scene.centre, scene.radius
    room = stack, Boxes.halves(k + 1, k + 1, n), met
    leaf = Leaf.room(k, k + 1, len(ladder.lower), max(sizes)), enumerator(k == 2)
    bundles, outlook = bundles_of(scene.planes, k + 1, 2), Outlook.room(k + 1, k + 1)
    limits = Limits(*sizes, 0.0, visits, nodes)
    found = branch(
        scene.planes, ladder, bundles, tally_of(scene.planes, k + 1), *room, incumbent, outlook, *leaf, limits
    )
    return found, stack, met


@covers(branch)
@settings(max_examples=25)
@given(seed=seeds, n=st.integers(5, 60), k=st.integers(2, 3), steps=st.integers(1, 2))
def test_branch_finds_nothing_worse_than_random_points_and_proves_its_bound(seed, n, k, steps):
    scene = Scene(seed, n=n, k=k)
    ladder, incumbent = scene.ladder(0.05, steps), scene.incumbent(steps)
    (code, nodes, visits), stack, _ = search(scene, ladder, incumbent)
    assert code == DONE
    assert stack.height[0] == 0
    assert nodes >= 1
    assert visits >= len(scene.planes)
    sums = scene.sums_at(scene.points(500))
    for step in range(steps):
        met = ((sums[:, 1:] >= ladder.lower[step]) & (sums[:, 1:] <= ladder.upper[step])).all(axis=1)
        assert sums[met, 0].max(initial=-np.inf) <= max(incumbent.utility[step], incumbent.left_behind[step]) + 1e-9
        if np.isfinite(incumbent.utility[step]):
            point = incumbent.point[step]
            assert (np.abs(point - scene.centre) <= scene.radius + 1e-12).all()
            np.testing.assert_allclose(scene.sums_at(point[None])[0, 0], incumbent.utility[step], atol=1e-9)


def test_branch_stops_when_a_budget_is_spent():
    scene = Scene(4, n=400, k=3)
    for limit in ({"visits": 500}, {"nodes": 3}):
        (code, nodes, visits), stack, _ = search(scene, scene.ladder(), scene.incumbent(), **limit)
        assert code == OUT_OF_BUDGET
        assert stack.height[0] > 0
        assert nodes >= 3 or visits >= 500


def test_boxes_where_too_many_planes_meet_are_handed_back():
    scene = Scene(4, n=40, k=3, axis=0)
    # All planes go through the centre of the box.
    scene.planes[:, 0] = -(scene.planes[:, 1:4] @ scene.centre[1:]) / scene.centre[0]
    (code, _, _), _, met = search(scene, scene.ladder(9.0), scene.incumbent(), sizes=(4, 6))
    assert code in (DONE, MET)
    assert met.height[0] > 0
    for number in range(met.height[0]):
        assert met.size[number] == met.start[number + 1] - met.start[number] > 6
        assert np.abs(met.centre[number] - scene.centre).max() < 1e-6
