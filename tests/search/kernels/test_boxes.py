from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.search.kernels.boxes import (
    FADING,
    SMALL_RADIUS,
    Boxes,
    Outlook,
    copy_box,
    examine,
    halve,
    infeasible,
    side_to_halve,
    tiny,
)
from evenhand.search.kernels.bundles import place_turns
from evenhand.search.kernels.kinds import measure
from kernels import Scene, bundles_of, covers, entry, tally_of
from problems import KINDS

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(KINDS)


def assert_same_box(found, b, centre, radius, rows, sums):
    np.testing.assert_array_equal(found.rows[found.start[b] : found.start[b] + found.size[b]], rows)
    np.testing.assert_allclose(found.centre[b], centre, atol=1e-15)
    np.testing.assert_allclose(found.radius[b], radius, atol=1e-15)
    np.testing.assert_allclose(found.sums[b], sums, atol=1e-12)


@covers(halve)
@settings(max_examples=40)
@given(seed=seeds, n=st.integers(1, 80), k=st.integers(2, 4), few=st.sampled_from([0, 3]))
def test_halve_takes_the_top_box_and_covers_it_with_two(seed, n, k, few):
    scene = Scene(seed, n=n, k=k, few=few)
    if len(scene.rows) == 0:
        return  # such a box is not on a stack
    tally, outlook = tally_of(scene.planes, k + 1), Outlook.room(k + 1, k + 1)
    stack, halves = scene.boxes, Boxes.halves(k + 1, k + 1, len(scene.planes))
    stack.height[0], stack.guess[1], stack.bound[1] = 2, (0.5, 0.8), 3.0
    assert entry(halve)(scene.planes, stack, halves, tally, np.zeros(k + 1)) == len(scene.rows)
    assert stack.height[0] == 1
    assert halves.height[0] == 2
    split = int(np.flatnonzero(halves.centre[0] != halves.centre[1])[0])
    assert split != scene.axis
    for half, sign in enumerate((-1.0, 1.0)):
        centre, radius = scene.centre.copy(), scene.radius.copy()
        radius[split] *= 0.5
        centre[split] += sign * radius[split]
        entry(measure)(scene.planes, halves, half, tally, outlook)
        assert_same_box(halves, half, centre, radius, *scene.sides(centre, radius))
        np.testing.assert_allclose(halves.guess[half], [0.5 * FADING, 0.8 * FADING])
        assert halves.bound[half] == 3.0


def test_halve_looks_at_a_box_that_nobody_has_looked_at_and_does_not_halve_it():
    scene = Scene(3, n=40, k=3)
    stack, halves, tally = Boxes.room(1, 4, 4, 40), Boxes.halves(4, 4, 40), tally_of(scene.planes, 4)
    stack.height[0], stack.size[0], stack.centre[0], stack.radius[0] = 1, -1, scene.centre, scene.radius
    assert entry(halve)(scene.planes, stack, halves, tally, np.zeros(4)) == 40
    assert halves.height[0] == 1
    entry(measure)(scene.planes, halves, 0, tally, Outlook.room(4, 4))
    assert_same_box(halves, 0, scene.centre, scene.radius, scene.rows, scene.sums)


@covers(side_to_halve)
@given(seed=seeds, n=st.integers(1, 60), k=st.integers(2, 5))
def test_side_to_halve_is_the_one_that_open_rows_owe_most_of_their_reach_to(seed, n, k):
    scene = Scene(seed, n=n, k=k)
    part = np.abs(scene.v[scene.rows]) * scene.radius
    shares = (part / part.sum(axis=1, keepdims=True)).sum(axis=0)
    found = entry(side_to_halve)(scene.planes, scene.boxes, 1, len(scene.rows), np.zeros(k + 1))
    assert shares[found] == pytest.approx(shares.max())


def test_side_to_halve_ignores_rows_that_the_box_is_tiny_for():
    scene = Scene(0, n=4, k=2, axis=0)
    scene.planes[:, :3] = [[0.0, 1e-9, 1e-12], [0.0, 1e-9, 1e-12], [0.0, 0.1, 1.0], [0.0, 1e-9, 1e-12]]
    scene.put(np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.3, 0.3]))
    assert entry(side_to_halve)(scene.planes, scene.boxes, 1, 4, np.zeros(3)) == 2


@covers(tiny)
@pytest.mark.parametrize(("radius", "size", "expected"), [(1.0, 1.0, False), (1.0, 1e-9, False), (1e-9, 1.0, True)])
def test_a_box_is_tiny_when_no_open_row_can_tell_its_sides_apart(radius, size, expected):
    scene = Scene(1, n=20, k=2, axis=0)
    scene.planes[:, 1] = size
    scene.put(np.array([1.0, 0.0, 0.0]), np.array([0.0, radius, 0.5 * SMALL_RADIUS]))
    scene.boxes.size[1] = 20
    scene.boxes.rows[5:25] = np.arange(20)
    scene.planes[:, 2] = 1.0
    # One side is short. The other is too, or it matters to no row.
    assert entry(tiny)(scene.planes, scene.boxes, 1) == (expected or radius * size < SMALL_RADIUS)
    scene.planes[7, 1] = 1.0
    assert entry(tiny)(scene.planes, scene.boxes, 1) == expected


@covers(copy_box)
def test_copy_box_copies_a_box_with_its_first_rows():
    scene = Scene(2, n=50, k=3)
    scene.boxes.guess[1], scene.boxes.bound[1] = (0.25, 0.75), 2.0
    target = Boxes.room(4, 4, 4, 60)
    target.start[3] = 11
    for count in (0, len(scene.rows)):
        entry(copy_box)(scene.boxes, 1, target, 3, count)
        assert_same_box(target, 3, scene.centre, scene.radius, scene.rows[:count], scene.sums)
        assert (*target.guess[3], target.bound[3]) == (0.25, 0.75, 2.0)
    assert not target.centre[:3].any()
    assert not target.rows[:11].any()


@covers(infeasible)
@settings(max_examples=60)
@given(seed=seeds, n=st.integers(20, 200), k=st.integers(2, 4), few=st.sampled_from([0, 5]))
def test_an_infeasible_box_holds_no_rule_that_meets_the_bounds(seed, n, k, few):
    scene = Scene(seed, n=n, k=k, axis=0, few=few)
    bundles, outlook = bundles_of(scene.planes, k + 1, 2), Outlook.room(k + 1, k + 1)
    tally = scene.tally()
    entry(measure)(scene.planes, scene.boxes, 1, tally, outlook)
    points = scene.sums_at(scene.points(300))[:, 1:]

    def look(ladder, step):
        box = scene.planes, scene.boxes, 1, 0
        found = entry(infeasible)(*box, step, outlook, ladder, bundles, tally, 0)
        placed = entry(place_turns)(*box, bundles)
        assert entry(infeasible)(*box, step, outlook, ladder, bundles, tally, placed) == found
        return found[0]

    ladder = scene.ladder()._replace(lower=np.full((2, k), -0.02), upper=np.full((2, k), 0.02))
    if look(ladder, 1):
        assert ((points < -0.02) | (points > 0.02)).any(axis=1).all()
    for met in points[:40]:  # bounds that one rule of the box just meets
        assert not look(ladder._replace(lower=met[None] - 1e-6, upper=met[None] + 1e-6), 0)
    # Bounds that are far from all of them are seen to be.
    assert look(ladder._replace(lower=points[:1] + 9.0, upper=points[:1] + 10.0), 0)


@covers(examine)
@settings(max_examples=60)
@given(
    seed=seeds,
    kind=kinds,
    n=st.integers(5, 150),
    k=st.integers(2, 4),
    steps=st.integers(1, 3),
    few=st.sampled_from([0, 5]),
)
def test_examine_bounds_the_rules_of_a_box_and_keeps_its_centre(seed, kind, n, k, steps, few):
    scene = Scene(seed, n=n, k=k, kind=kind, few=few)
    scene.boxes.guess[1] = 0.2
    ladder, incumbent = scene.ladder(0.05, steps), scene.incumbent(steps)
    incumbent.utility[:] = known = scene.sums_at(scene.centre[None])[0, 0] - 0.01
    tools = bundles_of(scene.planes, k + 1, 2), scene.tally(), Outlook.room(k + 1, k + 1)
    args = *tools, ladder, incumbent, 0.0, known
    visits = entry(examine)(scene.planes, scene.boxes, 1, *args)
    assert visits in (0, len(scene.rows))
    level = np.abs(scene.v[scene.rows] @ scene.centre).min(initial=np.inf)
    if scene.centre[0] > 1e-9 and level > 1e-9:
        # The bounds are around what the centre does.
        np.testing.assert_allclose(incumbent.utility, known + 0.01)
        np.testing.assert_array_equal(incumbent.point, [scene.centre] * steps)
    sums = scene.sums_at(scene.points(300))
    for step in range(steps):
        met = ((sums[:, 1:] >= ladder.lower[step]) & (sums[:, 1:] <= ladder.upper[step])).all(axis=1)
        best = sums[met, 0].max(initial=-np.inf)
        if best > incumbent.utility[step] + 1e-9:
            assert best <= max(scene.boxes.bound[1], incumbent.left_behind[step]) + 1e-9
