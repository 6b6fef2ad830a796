from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.search.kernels.bundles import BINS, bundle_planes, bundled, place_turns, worth
from kernels import Scene, bundles_of, covers, entry, tally_of
from problems import KINDS

seeds = st.integers(0, 2**32 - 1)


@covers(bundle_planes)
@given(seed=seeds, n=st.integers(1, 300), k=st.integers(2, 4), depth=st.integers(0, 3))
def test_bundle_planes_makes_a_tree_of_medians(seed, n, k, depth):
    """With few rows for each leaf, the sample is all of them, and the tree can be made by sorting."""
    planes = np.random.default_rng(seed).normal(size=(min(n, 16 << depth), k + 1))
    found = bundles_of(planes, k + 1, depth)
    for axis in range(k + 1):
        direction = planes.copy()
        direction[:, axis] = 0.0
        direction /= np.abs(direction).sum(axis=1, keepdims=True)
        node = np.ones(len(planes), dtype=int)
        for level in range(depth + 1):
            for number in range(1 << level, 2 << level):
                part = np.sort(direction[node == number], axis=0)
                count = len(part)
                if count == 0:
                    expected = found.directions[axis, number // 2]
                    np.testing.assert_array_equal(found.directions[axis, number], expected)
                    continue
                np.testing.assert_allclose(found.directions[axis, number], part[count // 2], atol=1e-15)
                j = int(np.argmax(part[(9 * count) // 10] - part[count // 10]))
                above = direction[:, j] >= found.directions[axis, number, j]
                if level < depth:
                    node = np.where(node == number, 2 * number + above, node)
        np.testing.assert_array_equal(found.codes[axis], node)


def test_planes_with_like_directions_share_a_bundle():
    rng = np.random.default_rng(0)
    angles = np.repeat([0.1, 0.8, 2.0, 2.7], 100) + rng.normal(scale=0.01, size=400)
    planes = np.column_stack([rng.normal(size=400), np.cos(angles), np.sin(angles)])
    found = bundles_of(planes, 3, 2)
    codes, count = zip(
        *(Counter(part).most_common(1)[0] for part in found.codes[0].reshape(4, 100).tolist()), strict=True
    )
    assert sorted(codes) == [4, 5, 6, 7]
    assert min(count) > 85  # the medians are those of a sample
    for angle, code in zip((0.1, 0.8, 2.0, 2.7), codes, strict=True):
        expected = np.array([0.0, np.cos(angle), np.sin(angle)])
        np.testing.assert_allclose(found.directions[0, code], expected / np.abs(expected).sum(), atol=0.01)


@covers(bundled)
@settings(max_examples=60)
@given(
    seed=seeds,
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 200),
    k=st.integers(2, 4),
    depth=st.integers(0, 4),
    few=st.sampled_from([0, 5]),
)
def test_the_bound_of_bundled_planes_holds_for_every_rule_in_a_box_and_is_no_looser_than_the_best_choices(
    seed, kind, n, k, depth, few
):
    scene = Scene(seed, n=n, k=k, kind=kind, few=few)
    if len(scene.rows) == 0:
        return
    weight, prices = float(scene.rng.integers(2)), scene.rng.normal(size=k)
    found = bundles_of(scene.planes, k + 1, depth)
    number = entry(place_turns)(scene.planes, scene.boxes, 1, scene.axis, found)
    bound = entry(bundled)(scene.planes, scene.boxes, 1, weight, prices, found, tally_of(scene.planes, k + 1), number)
    price = (scene.amounts @ np.concatenate([[weight], -prices]))[scene.rows]
    assert bound <= np.maximum(price, 0.0).sum() + 1e-9
    decisions = scene.points(200) @ scene.v[scene.rows].T > 0.0
    assert (decisions @ price).max() <= bound + 1e-9


@covers(place_turns)
@settings(max_examples=60)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(1, 200), k=st.integers(2, 4), depth=st.integers(0, 4))
def test_rows_turn_between_the_bins_where_they_are_placed(seed, kind, n, k, depth):
    scene = Scene(seed, n=n, k=k, kind=kind)
    if len(scene.rows) == 0:
        return
    found = bundles_of(scene.planes, k + 1, depth)
    number = entry(place_turns)(scene.planes, scene.boxes, 1, scene.axis, found)
    start, low, high = found.places[: len(scene.rows)].T
    bundle = start // (BINS + 1)
    codes = found.codes[scene.axis][scene.rows] >> (depth - int(np.log2(number)))
    np.testing.assert_array_equal(bundle, codes - number)
    points = scene.points(200)
    theta = (points - scene.centre) / np.where(scene.radius > 0.0, scene.radius, 1.0)
    reached = start + np.floor(0.5 * BINS * (1.0 - theta @ found.shape[bundle].T))
    decisions = points @ scene.v[scene.rows].T > 0.0
    assert decisions[reached < low].all()
    assert not decisions[reached >= high].any()


@covers(worth)
def test_the_worth_of_a_plane_is_its_gain_less_the_prices_of_its_effects():
    scene = Scene(0, n=20, k=3)
    found = [entry(worth)(scene.planes, i, np.uint64(4), 2.0, np.array([1.0, 0.0, -3.0])) for i in range(20)]
    np.testing.assert_allclose(found, scene.amounts @ [2.0, -1.0, 0.0, 3.0], atol=1e-15)
