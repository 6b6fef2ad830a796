"""Boxes of points (t, w): which rows are open in them, bounds on these, and how boxes are halved."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.kernels.bundles import bundled, place_turns
from evenhand.search.kernels.decorators import inlined, inner
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
def classify(planes, boxes, b, halves):
    """Split all planes into surely 1 (added to the sums), surely 0 and open (kept), for the first of two boxes.

    The loop has no branches, because the outcome for a row is effectively random.
    """
    centre, radius, kept, sums = boxes.centre[b], boxes.radius[b], halves.rows, halves.sums[0]
    # Unsigned numbers are not checked for being negative, which matters in the inner loops.
    first, n_columns = np.uint64(centre.shape[0]), np.uint64(sums.shape[0])
    # A point has at least three coordinates: these need no loop.
    c0, c1, c2, r0, r1, r2 = centre[0], centre[1], centre[2], radius[0], radius[1], radius[2]
    opened = 0
    for i in range(planes.shape[0]):
        value = planes[i, 0] * c0 + planes[i, 1] * c1 + planes[i, 2] * c2
        reach = abs(planes[i, 0]) * r0 + abs(planes[i, 1]) * r1 + abs(planes[i, 2]) * r2
        for j in range(3, centre.shape[0]):
            value += planes[i, j] * centre[j]
            reach += abs(planes[i, j]) * radius[j]
        kept[opened] = i
        opened += abs(value) < reach
        on = 1.0 if value >= reach else 0.0
        for c in range(n_columns):
            sums[c] += on * planes[i, first + c]
    halves.size[0] = opened


@inlined
def classify_halves(planes, boxes, b, split, halves):
    """Do the same as ``classify`` for the open rows of a box and both of its halves along a side, in one pass."""
    centre, radius, rows, count = boxes.centre[b], boxes.radius[b], boxes.rows[boxes.start[b] :], boxes.size[b]
    first_kept, second_kept = halves.rows[halves.start[0] :], halves.rows[halves.start[1] :]
    first_sums, second_sums = halves.sums[0], halves.sums[1]
    first, three, n_columns = np.uint64(centre.shape[0]), np.uint64(3), np.uint64(first_sums.shape[0])
    half = 0.5 * radius[split]
    # A point has at least three coordinates and a row three amounts: these need no loop, and their sums no memory.
    c0, c1, c2, r0, r1, r2 = centre[0], centre[1], centre[2], radius[0], radius[1], radius[2]
    f0, f1, f2 = first_sums[0], first_sums[1], first_sums[2]
    s0, s1, s2 = second_sums[0], second_sums[1], second_sums[2]
    one = np.uint64(0)
    two = np.uint64(0)
    for position in range(count):
        i = np.uint64(rows[position])
        value = planes[i, 0] * c0 + planes[i, 1] * c1 + planes[i, 2] * c2
        reach = abs(planes[i, 0]) * r0 + abs(planes[i, 1]) * r1 + abs(planes[i, 2]) * r2
        for j in range(3, centre.shape[0]):
            v = planes[i, j]
            value += v * centre[j]
            reach += abs(v) * radius[j]
        turn = half * planes[i, split]
        reach -= abs(turn)
        below = value - turn
        above = value + turn
        first_kept[one] = i
        one += np.uint64(abs(below) < reach)
        second_kept[two] = i
        two += np.uint64(abs(above) < reach)
        on_below = 1.0 if below >= reach else 0.0
        on_above = 1.0 if above >= reach else 0.0
        a0, a1, a2 = planes[i, first], planes[i, first + np.uint64(1)], planes[i, first + np.uint64(2)]
        f0 += on_below * a0
        f1 += on_below * a1
        f2 += on_below * a2
        s0 += on_above * a0
        s1 += on_above * a1
        s2 += on_above * a2
        for c in range(three, n_columns):
            amount = planes[i, first + c]
            first_sums[c] += on_below * amount
            second_sums[c] += on_above * amount
    first_sums[0], first_sums[1], first_sums[2] = f0, f1, f2
    second_sums[0], second_sums[1], second_sums[2] = s0, s1, s2
    halves.size[0] = one
    halves.size[1] = two


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
                for j in range(shares.shape[0]):
                    shares[j] += abs(planes[i, j]) * radius[b, j] / reach
        best = 0
        for j in range(1, shares.shape[0]):
            if shares[j] > shares[best]:
                best = j
        if stride == 1 or shares[best] > 0.0:
            return best
        stride = 1


@inner
def halve(planes, stack, halves, shares):
    """Take a box from the stack and classify its rows for its halves; return how many these are.

    A box whose rows have not been classified is not halved, but classified.
    """
    top = stack.height[0] - 1
    whole = stack.size[top] < 0
    count = planes.shape[0] if whole else stack.size[top]
    split = 0 if whole else side_to_halve(planes, stack, top, count, shares)
    share = 0.0 if whole else 0.5
    for half in range(2):
        copy_box(stack, top, halves, half, count - count)
        halves.centre[half, split] += (half * 2 - 1) * (share * halves.radius[half, split])
        halves.radius[half, split] *= 1.0 - share
        halves.guess[half, 0] *= FADING
        halves.guess[half, 1] *= FADING
    if whole:
        classify(planes, stack, top, halves)
    else:
        classify_halves(planes, stack, top, split, halves)
    stack.height[0] = top
    halves.height[0] = 1 if whole else 2
    return count


@inlined
def measure(planes, boxes, b, outlook):
    """Sum the possible contributions of open rows: (best gain, best gain minus multipliers * effects), and ranges.

    ``middle`` gets the sums at the centre, ``low`` and ``high`` the smallest and largest sums of each effect of open
    rows. The third value returned is the smallest distance of the centre from a plane.
    """
    centre, sums, rows, count = boxes.centre[b], boxes.sums[b], boxes.rows[boxes.start[b] :], boxes.size[b]
    multipliers, middle, low, high = outlook.multipliers, outlook.middle, outlook.low, outlook.high
    first, one, two, n_values = np.uint64(centre.shape[0]), np.uint64(1), np.uint64(2), np.uint64(low.shape[0])
    for c in range(middle.shape[0]):
        middle[c] = sums[c]
    for c in range(low.shape[0]):
        low[c] = 0.0
        high[c] = 0.0
    c0, c1, c2, m0, m1, m2 = centre[0], centre[1], centre[2], sums[0], sums[1], sums[2]
    price1, price2 = multipliers[0], multipliers[1]
    low1, low2, high1, high2 = low[0], low[0], low[0], low[0]
    gains = 0.0
    priced = 0.0
    nearest = np.inf
    for position in range(count):
        i = np.uint64(rows[position])
        value = planes[i, 0] * c0 + planes[i, 1] * c1 + planes[i, 2] * c2
        for j in range(3, centre.shape[0]):
            value += planes[i, j] * centre[j]
        nearest = min(nearest, abs(value))
        on = 1.0 if value > 0.0 else 0.0
        price = planes[i, first]
        gains += max(price, 0.0)
        m0 += on * price
        effect = planes[i, first + one]
        price -= price1 * effect
        high1 += max(effect, 0.0)
        low1 += min(effect, 0.0)
        m1 += on * effect
        effect = planes[i, first + two]
        price -= price2 * effect
        high2 += max(effect, 0.0)
        low2 += min(effect, 0.0)
        m2 += on * effect
        for c in range(two, n_values):
            effect = planes[i, first + one + c]
            price -= multipliers[c] * effect
            high[c] += max(effect, 0.0)
            low[c] += min(effect, 0.0)
            middle[one + c] += on * effect
        priced += max(price, 0.0)
    middle[0], middle[1], middle[2] = m0, m1, m2
    low[0], low[1], high[0], high[1] = low1, low2, high1, high2
    return gains, priced, nearest


@inlined
def infeasible(planes, boxes, b, face, step, outlook, ladder, bundles, number):
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
    least -= bundled(planes, boxes, b, 0.0, violation, bundles, number)
    return least > needed + 1e-9, max(0.05, (at_centre - least) / (scale * plain + 1e-300))


@inner
def examine(planes, boxes, b, bundles, outlook, ladder, incumbent, target, known):
    """Set the bound of a box, -inf if it has nothing better, and keep its centre if that is; return row visits.

    ``known`` is the smallest utility over the steps before the box was processed.
    """
    low, high, multipliers, middle = outlook.low, outlook.high, outlook.multipliers, outlook.middle
    sums, centre, radius, guess, opened = boxes.sums[b], boxes.centre[b], boxes.radius, boxes.guess, boxes.size[b]
    bounds, no_price = boxes.bound, outlook.no_price
    visits = 0
    multipliers_at(centre, ladder, multipliers)
    gains, priced, nearest = measure(planes, boxes, b, outlook)
    if nearest > RESOLUTION and centre[0] > RESOLUTION:
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
            together = bundled(planes, boxes, b, 1.0, no_price, bundles, number)
            visits += opened
            guess[b, 0] = max(0.05, (sums[0] + together - middle[0]) / (ahead + 1e-300))
            gains = min(gains, together)
            bound, last = prune(sums, gains, priced, low, high, multipliers, ladder, incumbent, target)
        if last >= 0:
            hopeless, guess[b, 1] = infeasible(planes, boxes, b, face, last, outlook, ladder, bundles, number)
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
