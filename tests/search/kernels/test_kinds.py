from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.search.kernels import kinds as module
from evenhand.search.kernels.boxes import Boxes, Outlook
from evenhand.search.kernels.kinds import MASK, MOST_KINDS, Kinds, count_halves, find_kinds, measure
from kernels import Scene, covers, entry, tally_of
from problems import KINDS

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(KINDS)
few = st.sampled_from([0, 1, 4])


@covers(find_kinds)
@given(seed=seeds, n=st.integers(1, 200), number=st.integers(1, MOST_KINDS + 3), columns=st.integers(1, 4))
def test_find_kinds_tells_planes_with_other_gains_or_effects_apart(seed, n, number, columns):
    rng = np.random.default_rng(seed)
    drawn = rng.integers(-1, 2, size=(number, columns)) / 7.0
    planes = np.column_stack([rng.normal(size=(n, 3)), drawn[rng.integers(number, size=n)]])
    expected = np.unique(planes[:, 3:], axis=0)
    found = Kinds.room(n)
    assert find_kinds(planes, n, 3, found) == (len(expected) if len(expected) <= MOST_KINDS else 0)
    if len(expected) <= MOST_KINDS:
        np.testing.assert_array_equal(planes[found.rows][found.codes][:, 3:], planes[:, 3:])


def test_planes_of_too_many_kinds_have_none():
    planes = np.arange(2.0 * (MOST_KINDS + 1)).reshape(-1, 2)
    assert find_kinds(planes, MOST_KINDS, 1, Kinds.room(len(planes))) == MOST_KINDS
    assert find_kinds(planes, MOST_KINDS + 1, 1, Kinds.room(len(planes))) == 0


def test_more_planes_than_a_count_can_hold_have_no_kinds(monkeypatch):
    assert len(Kinds.room(100).rows) == MOST_KINDS
    assert MASK + 1 == 2**21
    monkeypatch.setattr(module, "MASK", 99)
    found = Kinds.room(100)
    assert len(found.rows) == 0
    assert find_kinds(np.zeros((100, 3)), 100, 2, found) == 0


@covers(count_halves)
@settings(max_examples=60)
@given(seed=seeds, n=st.integers(1, 80), k=st.integers(2, 5), few=few)
def test_count_halves_tells_open_rows_from_sure_ones_in_both(seed, n, k, few):
    scene = Scene(seed, n=n, k=k, few=few)
    split = (scene.axis + 1) % (k + 1)
    halves, tally = Boxes.halves(k + 1, k + 1, n), tally_of(scene.planes, k + 1)
    entry(count_halves)(scene.planes, scene.boxes, 1, split, 0.5 * scene.radius[split], halves, tally)
    assert tally.number[0] == (min(few and len(tally.kinds), len(scene.rows)) or len(scene.rows))
    for half, sign in enumerate((-1.0, 1.0)):
        centre, radius = scene.centre.copy(), scene.radius.copy()
        radius[split] *= 0.5
        centre[split] += sign * radius[split]
        rows, sums = scene.sides(centre, radius)
        start = halves.start[half]
        np.testing.assert_array_equal(halves.rows[start : start + halves.size[half]], rows)
        # What was surely 1 in the box stays so in its halves.
        halves.sums[half] = scene.sums
        entry(measure)(scene.planes, halves, half, tally, Outlook.room(k + 1, k + 1))
        np.testing.assert_allclose(halves.sums[half], sums, atol=1e-12)
        distance = np.abs(scene.v[scene.rows] @ centre).min(initial=np.inf)
        np.testing.assert_allclose(tally.nearest[half], distance, rtol=1e-9, atol=1e-15)


@covers(measure)
@settings(max_examples=40)
@given(seed=seeds, kind=kinds, n=st.integers(1, 60), k=st.integers(2, 4), few=few)
def test_what_measure_says_of_a_box_holds_for_every_rule_inside_it(seed, kind, n, k, few):
    """What a box is pruned by: no point of it has a utility or a value outside what its open rows allow."""
    scene = Scene(seed, n=n, k=k, kind=kind, most=0.5, few=few)
    outlook = Outlook.room(k + 1, k + 1)
    outlook.multipliers[:] = multipliers = scene.rng.normal(size=k)
    outlook.low[:] = outlook.high[:] = 9.0
    gains, priced = entry(measure)(scene.planes, scene.boxes, 1, scene.tally(), outlook)
    sums = scene.sums_at(scene.points(50))
    assert (sums[:, 0] <= scene.sums[0] + gains + 1e-12).all()
    assert (sums[:, 1:] <= scene.sums[1:] + outlook.high + 1e-12).all()
    assert (sums[:, 1:] >= scene.sums[1:] + outlook.low - 1e-12).all()
    price = np.concatenate([[1.0], -multipliers])
    assert (sums @ price <= scene.sums @ price + priced + 1e-12).all()
    # And nothing looser than the best choices row by row.
    amounts = scene.amounts[scene.rows]
    expected = np.maximum(amounts[:, 0], 0.0).sum(), np.maximum(amounts @ price, 0.0).sum()
    np.testing.assert_allclose((gains, priced), expected, atol=1e-12)
    np.testing.assert_allclose(outlook.high, np.maximum(amounts[:, 1:], 0.0).sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(outlook.low, np.minimum(amounts[:, 1:], 0.0).sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(outlook.middle, scene.sums_at(scene.centre[None])[0], atol=1e-12)
