"""Boxes of points (t, w): which rows are open in them, bounds on these, and how boxes are halved."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.kernels.bundles import bundled, place_turns
from evenhand.search.kernels.decorators import inlined, inner
from evenhand.search.kernels.kinds import count_halves, measure
from evenhand.search.kernels.ladder import RESOLUTION, multipliers_at, offer, prune

SMALL_RADIUS = 1e-8
OPEN_FOR_BUNDLES = 12
FADING, HOPE = 0.97, 0.9
ROWS_FOR_SHARES = 64


class Boxes(NamedTuple):
    """``height[0]`` boxes, one on another.

    Box b is |x - centre[b]| <= radius[b]. ``sums[b]`` is the total of the certain rows; its ``size[b]`` open rows are
    in ``rows`` from ``start[b]`` on. A size of -1 means that no plane has been classified, and all may be open. No rule
    in the box has a utility above ``bound[b]``; ``guess[b]`` is how much the two bounds by bundles are expected to
    gain.
    """

    height: NDArray[np.int64]
    centre: FloatArray
    radius: FloatArray
    sums: FloatArray
    guess: FloatArray
    bound: FloatArray
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    rows: NDArray[np.int32]

    @classmethod
    def room(cls, size: int, n_coordinates: int, n_columns: int, n_rows: int) -> Boxes:
        """Return memory for this number of boxes, and of open rows in all of them."""
        return cls(
            height=np.zeros(1, dtype=np.int64),
            centre=np.zeros((size, n_coordinates)),
            radius=np.zeros((size, n_coordinates)),
            sums=np.zeros((size, n_columns)),
            guess=np.zeros((size, 2)),
            bound=np.zeros(size),
            start=np.zeros(size, dtype=np.int64),
            size=np.zeros(size, dtype=np.int64),
            rows=np.zeros(n_rows, dtype=np.int32),
        )

    @classmethod
    def halves(cls, n_coordinates: int, n_columns: int, n_planes: int) -> Boxes:
        """Return memory for two boxes with as many open rows as there are planes; one more is written to."""
        room = cls.room(2, n_coordinates, n_columns, 2 * (n_planes + 1))
        room.start[1] = n_planes + 1
        return room

    def doubled(self) -> Boxes:
        """Return the same boxes with twice the memory."""
        arrays = {name: getattr(self, name) for name in self._fields if name != "height"}
        return self._replace(**{name: np.concatenate([a, np.zeros_like(a)]) for name, a in arrays.items()})


class Outlook(NamedTuple):
    """The facts about one box: prices, sums at its centre, ranges of its values, and working memory."""

    multipliers: FloatArray
    middle: FloatArray
    low: FloatArray
    high: FloatArray
    violation: FloatArray
    no_price: FloatArray
    shares: FloatArray

    @classmethod
    def room(cls, n_coordinates: int, n_columns: int) -> Outlook:
        """Return memory for the facts about a box."""
        multipliers, low, high, violation, no_price = np.zeros((5, n_columns - 1))
        return cls(multipliers, np.zeros(n_columns), low, high, violation, no_price, np.zeros(n_coordinates))


@inner
def copy_box(source, i, target, j, count):
    """Copy box i of one array of boxes to box j of another, with the first ``count`` of its rows."""
    from_centre, from_radius, from_sums, from_guess = source.centre, source.radius, source.sums, source.guess
    to_centre, to_radius, to_sums, to_guess = target.centre, target.radius, target.sums, target.guess
    from_rows, to_rows, here, there = source.rows, target.rows, source.start[i], target.start[j]
    target.bound[j] = source.bound[i]
    target.size[j] = count
    for c in range(from_centre.shape[1]):
        to_centre[j, c] = from_centre[i, c]
        to_radius[j, c] = from_radius[i, c]
    for c in range(from_sums.shape[1]):
        to_sums[j, c] = from_sums[i, c]
    for c in range(from_guess.shape[1]):
        to_guess[j, c] = from_guess[i, c]
    for r in range(count):
        to_rows[there + r] = from_rows[here + r]


@inlined
def side_to_halve(planes, boxes, b, count, shares):
    """Return the side of a box that contributes most to its open rows' reach: halving it decides the most of them.

    Rows for which the box is tiny do not count: they meet in it, and smaller boxes would be cut by all of them.
    """
    radius, rows, start = boxes.radius, boxes.rows, boxes.start[b]
    for j in range(shares.shape[0]):
        shares[j] = 0.0
    stride = max(1, count // ROWS_FOR_SHARES)
    while True:
        for position in range(start, start + count, stride):
            i = np.uint64(rows[position])
            reach = 0.0
            largest = 0.0
            for j in range(shares.shape[0]):
                part = abs(planes[i, j]) * radius[b, j]
                reach += part
                largest = max(largest, part)
            if largest >= SMALL_RADIUS:
                inverse = 1.0 / reach
                for j in range(shares.shape[0]):
                    shares[j] += abs(planes[i, j]) * radius[b, j] * inverse
        best = 0
        for j in range(1, shares.shape[0]):
            if shares[j] > shares[best]:
                best = j
        if stride == 1 or shares[best] > 0.0:
            return best
        stride = 1


@inner
def halve(planes, stack, halves, tally, shares):
    """Take a box from the stack and count its rows in its halves; return how many these are.

    A box whose rows have not been classified is not halved: all planes are counted in it.
    """
    top = stack.height[0] - 1
    whole = stack.size[top] < 0
    split = 0
    share = 0.0
    if whole:
        stack.size[top] = planes.shape[0]
        for i in range(planes.shape[0]):
            stack.rows[stack.start[top] + i] = i
    else:
        split = side_to_halve(planes, stack, top, stack.size[top], shares)
        share = 0.5
    for half in range(2):
        copy_box(stack, top, halves, half, 0)
        halves.centre[half, split] += (half * 2 - 1) * (share * halves.radius[half, split])
        halves.radius[half, split] *= 1.0 - share
        halves.guess[half, 0] *= FADING
        halves.guess[half, 1] *= FADING
    count_halves(planes, stack, top, split, share * stack.radius[top, split], halves, tally)
    stack.height[0] = top
    halves.height[0] = 1 if whole else 2
    return stack.size[top]


@inlined
def infeasible(planes, boxes, b, face, step, outlook, ladder, bundles, tally, number):
    """Return whether the bundles prove that no rule in the box meets the bounds of a step, and a guess for its parts.

    The direction in which the centre violates the bounds is tried: all rules of the box may violate them there. The
    guess is the share of the plain range that the bundles are expected to leave. ``number`` is the number of bundles if
    the rows' turns have been placed, and 0 otherwise.
    """
    middle, low, high, violation = outlook.middle, outlook.low, outlook.high, outlook.violation
    lower, upper, sums, guess = ladder.lower, ladder.upper, boxes.sums, boxes.guess[b, 1]
    missed = 0.0
    plain = 0.0
    for c in range(violation.shape[0]):
        value = middle[1 + c]
        v = max(value - upper[step, c], 0.0) + min(value - lower[step, c], 0.0)
        violation[c] = v
        missed += v * v
        plain += v * (value - sums[b, 1 + c] - (low[c] if v > 0.0 else high[c]))
    if missed == 0.0 or missed <= HOPE * guess * plain:
        return False, guess
    scale = 1.0 / np.sqrt(missed)
    least = 0.0
    needed = 0.0
    at_centre = 0.0
    for c in range(violation.shape[0]):
        violation[c] *= scale
        v = violation[c]
        least += v * sums[b, 1 + c]
        at_centre += v * middle[1 + c]
        if v != 0.0:
            needed += v * (upper[step, c] if v > 0.0 else lower[step, c])
    if number == 0:
        number = place_turns(planes, boxes, b, face, bundles)
    least -= bundled(planes, boxes, b, 0.0, violation, bundles, tally, number)
    return least > needed + 1e-9, max(0.05, (at_centre - least) / (scale * plain + 1e-300))


@inner
def examine(planes, boxes, b, bundles, tally, outlook, ladder, incumbent, target, known):
    """Set the bound of a half, -inf if it has nothing better, and keep its centre if that is; return row visits.

    ``known`` is the smallest utility over the steps before the box was processed.
    """
    low, high, multipliers, middle = outlook.low, outlook.high, outlook.multipliers, outlook.middle
    sums, centre, radius, guess, opened = boxes.sums[b], boxes.centre[b], boxes.radius, boxes.guess, boxes.size[b]
    bounds, no_price = boxes.bound, outlook.no_price
    visits = 0
    multipliers_at(centre, ladder, multipliers)
    gains, priced = measure(planes, boxes, b, tally, outlook)
    if tally.nearest[b] > RESOLUTION and centre[0] > RESOLUTION:
        offer(middle, centre, ladder, incumbent)
    bound, last = prune(sums, gains, priced, low, high, multipliers, ladder, incumbent, target)
    if last >= 0 and opened > OPEN_FOR_BUNDLES:
        face = opened - opened
        number = opened - opened
        for j in range(1, centre.shape[0]):
            if radius[b, j] < radius[b, face]:
                face = j
        ahead = sums[0] + gains - middle[0]
        if middle[0] + HOPE * guess[b, 0] * ahead <= known + target:
            number = place_turns(planes, boxes, b, face, bundles)
            together = bundled(planes, boxes, b, 1.0, no_price, bundles, tally, number)
            visits += opened
            guess[b, 0] = max(0.05, (sums[0] + together - middle[0]) / (ahead + 1e-300))
            gains = min(gains, together)
            bound, last = prune(sums, gains, priced, low, high, multipliers, ladder, incumbent, target)
        if last >= 0:
            hopeless, guess[b, 1] = infeasible(planes, boxes, b, face, last, outlook, ladder, bundles, tally, number)
            if hopeless:
                bound = -np.inf
    bounds[b] = bound
    return visits


@inner
def tiny(planes, boxes, b):
    """Return whether a box is tiny for all its open rows: each of its sides is short, or does not matter to them."""
    radius, rows, start, count = boxes.radius, boxes.rows, boxes.start[b], boxes.size[b]
    shortest = np.inf
    for j in range(radius.shape[1]):
        if radius[b, j] > 0.0:
            shortest = min(shortest, radius[b, j])
    if shortest >= SMALL_RADIUS:
        return False
    for position in range(start, start + count):
        i = np.uint64(rows[position])
        for j in range(radius.shape[1]):
            if abs(planes[i, j]) * radius[b, j] >= SMALL_RADIUS:
                return False
    return True
