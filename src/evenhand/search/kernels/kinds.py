"""Kinds of planes: those with the same gain and the same effects are counted instead of summed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.kernels.decorators import inlined

# Three counts share a number: the open rows, those of them that are 1 at the centre, and the rows that are surely 1.
BITS = 21
MASK = (1 << BITS) - 1
MOST_KINDS = 64


class Kinds(NamedTuple):
    """The kind of each plane, and one plane of each kind. There are no kinds if they would be too many."""

    codes: NDArray[np.int32]
    rows: NDArray[np.int32]

    @classmethod
    def room(cls, n_planes: int) -> Kinds:
        """Return memory for the kinds of this number of planes."""
        return cls(np.zeros(n_planes, dtype=np.int32), np.zeros(MOST_KINDS if n_planes <= MASK else 0, dtype=np.int32))


@inlined
def find_kinds(planes, n, first, kinds):
    """Fill the kinds of the first n planes, whose gains and effects are in the columns from ``first`` on.

    Returns the number of kinds, or 0 if there are too many.
    """
    codes, rows = kinds.codes, kinds.rows
    number = 0
    for i in range(n):
        kind = 0
        while kind < number:
            row = rows[kind]
            c = first
            while c < planes.shape[1] and planes[row, c] == planes[i, c]:
                c += 1
            if c == planes.shape[1]:
                break
            kind += 1
        if kind == number:
            if number == rows.shape[0]:
                return 0
            rows[number] = i
            number += 1
        codes[i] = kind
    return number


class Tally(NamedTuple):
    """The kinds of planes, and memory for the counts of a box's halves.

    ``counts`` has a row for each of ``number[0]`` kinds, or for each open row of the box if there are fewer of them;
    ``rows`` is a plane with its gain and effects. ``nearest`` is the smallest distance of a half's centre from a plane.
    """

    codes: NDArray[np.int32]
    kinds: NDArray[np.int32]
    number: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.int64]
    nearest: FloatArray
    prices: FloatArray

    @classmethod
    def of(cls, kinds: Kinds) -> Tally:
        """Return kinds with their own memory."""
        n = len(kinds.codes)
        number, rows, counts = (
            np.zeros(1, dtype=np.int64),
            np.zeros(n, dtype=np.int32),
            np.zeros((n, 2), dtype=np.int64),
        )
        return cls(*kinds, number, rows, counts, np.zeros(2), np.zeros(len(kinds.rows)))


@inlined
def count_halves(planes, boxes, b, split, half, halves, tally):
    """Count the open rows of a box in both of its halves, which are 2 ``half`` apart along a side, and keep these rows.

    The loop has no branches, because the outcome for a row is effectively random.
    """
    centre, radius, rows, count = boxes.centre[b], boxes.radius[b], boxes.rows[boxes.start[b] :], boxes.size[b]
    first_kept, second_kept = halves.rows[halves.start[0] :], halves.rows[halves.start[1] :]
    codes, kinds, counts, counted, n_coordinates = tally.codes, tally.kinds, tally.counts, tally.rows, centre.shape[0]
    by_kind = 0 < kinds.shape[0] <= count
    number = kinds.shape[0] if by_kind else count
    tally.number[0] = number
    for q in range(number):
        counts[q, 0] = 0
        counts[q, 1] = 0
        counted[q] = kinds[q] if by_kind else rows[q]
    # A point has at least three coordinates: these need no loop. Unsigned numbers are not checked for being negative.
    c0, c1, c2, r0, r1, r2 = centre[0], centre[1], centre[2], radius[0], radius[1], radius[2]
    first_nearest = np.inf
    second_nearest = np.inf
    one = np.uint64(0)
    two = np.uint64(0)
    for position in range(count):
        i = np.uint64(rows[position])
        value = planes[i, 0] * c0 + planes[i, 1] * c1 + planes[i, 2] * c2
        reach = abs(planes[i, 0]) * r0 + abs(planes[i, 1]) * r1 + abs(planes[i, 2]) * r2
        for j in range(3, n_coordinates):
            v = planes[i, j]
            value += v * centre[j]
            reach += abs(v) * radius[j]
        turn = half * planes[i, split]
        reach -= abs(turn)
        below = value - turn
        above = value + turn
        first_kept[one] = i
        second_kept[two] = i
        first_open = np.int64(abs(below) < reach)
        second_open = np.int64(abs(above) < reach)
        one += np.uint64(first_open)
        two += np.uint64(second_open)
        first_nearest = min(first_nearest, abs(below))
        second_nearest = min(second_nearest, abs(above))
        at = np.uint64(codes[i] if by_kind else position)
        first_on = (first_open & np.int64(below > 0.0)) << BITS
        second_on = (second_open & np.int64(above > 0.0)) << BITS
        counts[at, 0] += first_open + first_on + (np.int64(below >= reach) << (2 * BITS))
        counts[at, 1] += second_open + second_on + (np.int64(above >= reach) << (2 * BITS))
    tally.nearest[0] = first_nearest
    tally.nearest[1] = second_nearest
    halves.size[0] = one
    halves.size[1] = two


@inlined
def measure(planes, boxes, b, tally, outlook):
    """Add the rows that are sure in a half to its sums, and sum the possible contributions of its open rows.

    Returns the best gain, and the best gain minus multipliers * effects. ``middle`` gets the sums at the centre,
    ``low`` and ``high`` the smallest and largest sums of each effect of open rows.
    """
    sums, counts, rows, first = boxes.sums[b], tally.counts, tally.rows, boxes.centre.shape[1]
    multipliers, middle, low, high = outlook.multipliers, outlook.middle, outlook.low, outlook.high
    gains = 0.0
    priced = 0.0
    middle[0] = 0.0
    for c in range(low.shape[0]):
        middle[1 + c] = 0.0
        low[c] = 0.0
        high[c] = 0.0
    for q in range(tally.number[0]):
        packed = counts[q, b]
        if packed == 0:
            continue
        i = rows[q]
        opened = 1.0 * (packed & MASK)
        on = 1.0 * ((packed >> BITS) & MASK)
        sure = 1.0 * (packed >> (2 * BITS))
        price = planes[i, first]
        gains += opened * max(price, 0.0)
        middle[0] += on * price
        sums[0] += sure * price
        for c in range(low.shape[0]):
            effect = planes[i, first + 1 + c]
            price -= multipliers[c] * effect
            high[c] += opened * max(effect, 0.0)
            low[c] += opened * min(effect, 0.0)
            middle[1 + c] += on * effect
            sums[1 + c] += sure * effect
        priced += opened * max(price, 0.0)
    for c in range(middle.shape[0]):
        middle[c] += sums[c]
    return gains, priced
