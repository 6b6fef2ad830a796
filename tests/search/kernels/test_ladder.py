from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.search.kernels.ladder import (
    FEASIBILITY_SLACK,
    RESOLUTION,
    Incumbent,
    Ladder,
    first_step_met,
    leave_behind,
    multipliers_at,
    offer,
    prune,
)
from kernels import covers, entry

seeds = st.integers(0, 2**32 - 1)


def ladder_of(rng, steps, c):
    """Bounds that grow, on a coarse grid, so that values are often on them; some are infinite."""
    widths = np.sort(rng.integers(0, 4, (steps, c)), axis=0) / 4
    lower, upper = np.where(rng.random(c) < 0.2, -np.inf, -widths), np.where(rng.random(c) < 0.2, np.inf, widths)
    return Ladder(lower, upper, rng.permutation(c), rng.uniform(0.5, 2.0, c))


@covers(first_step_met)
@given(seed=seeds, steps=st.integers(1, 5), c=st.integers(0, 4))
def test_first_step_met_is_the_first_whose_bounds_hold(seed, steps, c):
    rng = np.random.default_rng(seed)
    ladder = ladder_of(rng, steps, c)
    values = rng.integers(-4, 5, c) / 4 + rng.choice([0.0, 0.5 * FEASIBILITY_SLACK, -2.0 * FEASIBILITY_SLACK], c)
    inside = (values >= ladder.lower - FEASIBILITY_SLACK) & (values <= ladder.upper + FEASIBILITY_SLACK)
    expected = [*np.flatnonzero(inside.all(axis=1)), steps][0]
    assert first_step_met(values, ladder.lower, ladder.upper) == expected


@covers(offer)
@given(seed=seeds, steps=st.integers(1, 5))
def test_offer_keeps_a_candidate_where_it_meets_the_bounds_and_is_better(seed, steps):
    rng = np.random.default_rng(seed)
    ladder, point = ladder_of(rng, steps, 2), rng.normal(size=3)
    sums = np.array([0.5, *rng.integers(-4, 5, 2) / 4])
    known = np.sort(0.5 + rng.choice([-np.inf, -1.0, -0.5 * RESOLUTION, 1.0], steps))
    incumbent = Incumbent(known.copy(), np.zeros((steps, 3)), np.full(steps, -np.inf))
    entry(offer)(sums, point, ladder, incumbent)
    better = (np.arange(steps) >= first_step_met(sums[1:], ladder.lower, ladder.upper)) & (known + RESOLUTION < 0.5)
    np.testing.assert_array_equal(incumbent.utility, np.where(better, 0.5, known))
    np.testing.assert_array_equal(incumbent.point, np.where(better[:, None], point, 0.0))


@covers(leave_behind)
@given(seed=seeds, steps=st.integers(1, 5))
def test_leave_behind_raises_the_bound_of_steps_that_know_nothing_as_good(seed, steps):
    rng = np.random.default_rng(seed)
    utility, left, bound = (rng.integers(0, 4, size) / 2.0 for size in (steps, steps, ()))
    incumbent, same = (Incumbent(utility, np.zeros((steps, 3)), left.copy()) for _ in range(2))
    entry(leave_behind)(float(bound), incumbent)
    expected = [max(old, bound) if bound > known else old for old, known in zip(left, utility, strict=True)]
    np.testing.assert_array_equal(incumbent.left_behind, expected)
    same.leave(float(bound))
    np.testing.assert_array_equal(same.left_behind, expected)


@covers(multipliers_at)
@given(seed=seeds, k=st.integers(1, 4), extra=st.integers(0, 2))
def test_multipliers_at_a_centre_are_z_where_their_bound_is_finite(seed, k, extra):
    rng = np.random.default_rng(seed)
    ladder = ladder_of(rng, 2, k + extra)
    ladder = ladder._replace(basis=ladder.basis[:k], scale=ladder.scale[:k])
    centre = np.append(rng.choice([0.0, 1e-5, 0.1, 1.0]), rng.integers(-2, 3, k) / 2)
    found = np.full(k + extra, 9.0)
    entry(multipliers_at)(centre, ladder, found)
    expected = np.zeros(k + extra)
    for contrast in range(k):
        c = ladder.basis[contrast]
        z = centre[1 + contrast] / (centre[0] * ladder.scale[contrast]) if centre[0] >= 1e-4 else 0.0
        expected[c] = z if np.isfinite(ladder.upper[-1, c] if z > 0.0 else ladder.lower[-1, c]) else 0.0
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@covers(prune)
@given(seed=seeds, steps=st.integers(1, 4), n=st.integers(1, 7))
def test_prune_bounds_every_choice_of_the_open_rows(seed, steps, n):
    """All 2^n decisions of the open rows are tried: none that meets a step is above its bound."""
    rng = np.random.default_rng(seed)
    c = 2
    ladder, sums = ladder_of(rng, steps, c), rng.integers(-3, 4, c + 1) / 8
    amounts = rng.integers(-3, 4, (n, c + 1)) / 8
    usable = np.where(np.isfinite(ladder.upper[-1]) & np.isfinite(ladder.lower[-1]), rng.normal(size=c), 0.0)
    price = amounts[:, 0] - amounts[:, 1:] @ usable
    low, high = np.minimum(amounts[:, 1:], 0.0).sum(axis=0), np.maximum(amounts[:, 1:], 0.0).sum(axis=0)
    known, target = np.sort(rng.integers(-8, 9, steps) / 8), float(rng.choice([0.0, 0.25]))
    incumbent = Incumbent(known, np.zeros((steps, 3)), np.full(steps, -np.inf))
    gains, priced = np.maximum(amounts[:, 0], 0.0).sum(), np.maximum(price, 0.0).sum()
    most, last = entry(prune)(sums, gains, priced, low, high, usable, ladder, incumbent, target)
    choices = np.array(np.meshgrid(*[[0.0, 1.0]] * n)).reshape(n, -1).T
    reached = sums + choices @ amounts
    for step in range(steps):
        met = ((reached[:, 1:] >= ladder.lower[step]) & (reached[:, 1:] <= ladder.upper[step])).all(axis=1)
        best = reached[met, 0].max(initial=-np.inf)
        if best > known[step] + target + 1e-9:
            assert last >= step
            assert best <= most + 1e-9
        elif best > known[step] + 1e-9:
            assert best <= max(most, incumbent.left_behind[step]) + 1e-9
    assert (most == -np.inf) == (last == -1)
    assert most <= sums[0] + gains


def test_prune_drops_what_cannot_meet_the_bounds_and_remembers_what_the_gap_hides():
    ladder = Ladder(np.array([[0.1], [-1.0]]), np.array([[0.2], [1.0]]), np.zeros(1, dtype=int), np.ones(1))
    incumbent = Incumbent(np.array([0.0, 0.4]), np.zeros((2, 2)), np.full(2, -np.inf))
    nothing = np.zeros(1)
    found = entry(prune)(np.array([0.5, 0.0]), 0.0, 0.0, nothing, nothing, nothing, ladder, incumbent, 0.2)
    assert found == (-np.inf, -1)
    np.testing.assert_array_equal(incumbent.left_behind, [-np.inf, 0.5])
    found = entry(prune)(np.array([0.5, 0.0]), 0.0, 0.0, nothing, nothing + 0.1, nothing, ladder, incumbent, 0.2)
    assert found == (pytest.approx(0.5), 0)
