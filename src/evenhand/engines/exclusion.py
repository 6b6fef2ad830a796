"""K = 2: parts of the plane that counts of lines prove to contain nothing better than a rule that is known.

In a box of z the rows of one direction turn at one threshold, up to a *fuzz* that is the width of the direction's bin
times the box's distance from the centre. So the most that the rows of a direction can add to a price of utility and
values is known, and with it the most that any rule in the box can make of it.
"""

from __future__ import annotations

import bisect
import itertools
from collections import deque
from collections.abc import Iterable

import numpy as np

from evenhand.engines import _kernels
from evenhand.engines.distances import EDGES, LineCounts
from evenhand.inputs import FloatArray
from evenhand.search import Problem
from evenhand.search.problem import FEASIBILITY_SLACK

FAR, FARTHEST = 64.0, 2.0**20
SMALLEST_PART = 1 / 1024
MOST_BOXES = 20_000
PLACES_A_ROUND, PLACES_NEARBY = 600, 100
SIZES_TO_TRY = tuple(2.0**-k for k in range(2, 12))
# How much larger than the fuzz of a grid's directions a box is that it is used for: fewer directions add less noise.
WIDE = 4.0
DEVIATIONS_ALLOWED = 3.0
# How far above a known utility a bound is looked for, and how small boxes become for it.
STEPS_ABOVE = tuple(1e-5 * 2.0**k for k in range(15))
SMALLEST_FOR_A_BOUND, MOST_FOR_A_BOUND = 1 / 1024, 6000

# How small boxes become, how many are tried, and in which square around the centre they need not be small.
Round = tuple[float, int, float]


class Exclusion:
    """Proofs that boxes of z contain nothing that meets the bounds and is better than a threshold."""

    def __init__(self, histogram: LineCounts, multipliers: FloatArray, threshold: float) -> None:
        self.histogram = histogram
        tests, needed = tests_of(histogram.ground.problem, multipliers, threshold)
        self.prices = np.ascontiguousarray(tests @ histogram.units.T)
        loose = np.maximum(tests @ histogram.loose.T, 0.0).sum(axis=1)
        self.needed = needed - tests @ histogram.constant - loose - FEASIBILITY_SLACK
        self.most = np.empty(len(tests))
        self.boxes = 0

    def excluded(self, box: FloatArray) -> bool:
        """Return whether a box (c1, c2, r1, r2, nearest, farthest) contains nothing of interest."""
        self.boxes += 1
        near = box[4] == box[5] == 1.0
        reach = np.abs(box[:2]) + box[2:4]
        size = max(box[2], box[3] / self.histogram.grid.aspect)
        by_grid = self.histogram.by_grid
        grid, above, _ = next((one for one in by_grid if one[2] @ reach * WIDE <= size), by_grid[-1])
        # The margin is for rows that rounding put into the bin beside theirs.
        fuzz = grid.fuzz(*reach) + _kernels.MARGIN
        _kernels.most_in_box(above, self.prices, EDGES, grid.units, box, fuzz, near, self.most)
        return bool((self.most < self.needed).any())

    def bounded(self) -> bool:
        """Return whether everything far from the centre is excluded."""
        stack = far_parts()
        while stack:
            box = stack.pop()
            if self.excluded(box):
                continue
            if self.boxes > MOST_BOXES or max(box[2], box[3]) <= SMALLEST_PART:
                return False
            stack += _far_halves(box)
        return True

    def survivors(self, boxes: Iterable[FloatArray], smallest: float, most: int, enough: float = 0.0) -> FloatArray:
        """Return parts of some boxes that hold everything of interest in them; large boxes are looked at first.

        Boxes are halved until they are small, or inside the square of a size around the centre that is ``enough``.
        """
        queue, left, most, aspect = deque(boxes), [], self.boxes + most, self.histogram.grid.aspect
        while queue:
            box = queue.popleft()
            if self.excluded(box):
                continue
            small = max(box[2], box[3] / aspect) <= smallest or (np.abs(box[:2]) + box[2:4]).max() <= enough
            if small or self.boxes > most:
                left.append(box)
            else:
                queue.extend(_halves(box, aspect))
        return np.array(left).reshape(-1, 6)


def _halves(box: FloatArray, aspect: float) -> list[FloatArray]:
    """Return the halves of a box, across the side along which more rows turn: the second contrast is the smaller."""
    k = 0 if box[2] >= box[3] / aspect else 1
    halves = [box.copy(), box.copy()]
    for half, side in zip(halves, (-0.5, 0.5), strict=True):
        half[k] += side * box[2 + k]
        half[2 + k] *= 0.5
    return halves


def far_parts() -> list[FloatArray]:
    """Return the boxes beyond the farthest ring: a side of the square, at any distance."""
    parts = []
    for axis, sign, half in itertools.product((0, 1), (-1.0, 1.0), (-0.5, 0.5)):
        box = np.array([half, half, 0.5, 0.5, FAR, np.inf])
        box[axis], box[2 + axis] = sign, 0.0
        parts.append(box)
    return parts


def _far_halves(box: FloatArray) -> list[FloatArray]:
    """Return the parts of a far box: nearer and farther while it is wide in distance, else two parts of its side."""
    first, second = box.copy(), box.copy()
    k = 2 if box[2] > 0.0 else 3
    endless = not np.isfinite(box[5])
    if box[4] < FARTHEST if endless else box[5] / box[4] > 1.0 + 2.0 * box[k]:
        middle = 2.0 * box[4] if endless else np.sqrt(box[4] * box[5])
        first[5] = second[4] = middle
    else:
        first[k - 2] -= 0.5 * box[k]
        second[k - 2] += 0.5 * box[k]
        first[k] *= 0.5
        second[k] *= 0.5
    return [first, second]


def tests_of(problem: Problem, multipliers: FloatArray, threshold: float) -> tuple[FloatArray, FloatArray]:
    """Return prices of utility and values, of shape (tests, 1 + C), and what a rule of interest makes of each at least.

    The first two, the utility itself and the Lagrangian at some multipliers, are about rules that are as good as a
    threshold: far inside the bounds the first tells more, along them the second. The others are the bounds.
    """
    lower, upper = problem.lower[0], problem.upper[0]
    limit = np.where(multipliers > 0.0, upper, np.where(multipliers < 0.0, lower, 0.0))
    tests = [np.eye(1 + len(lower))[0], np.concatenate([[1.0], -multipliers])]
    needed = [threshold, threshold - float(multipliers @ limit)]
    for c in range(len(lower)):
        unit = np.eye(1 + len(lower))[1 + c]
        if lower[c] > -np.inf:
            tests.append(unit)
            needed.append(float(lower[c]))
        if upper[c] < np.inf:
            tests.append(-unit)
            needed.append(-float(upper[c]))
    return np.array(tests), np.array(needed)


def shrunk(
    histogram: LineCounts,
    boxes: FloatArray,
    prices: tuple[FloatArray, float, float],
    rounds: Iterable[Round],
    *,
    improve: bool = True,
) -> tuple[FloatArray, float, FloatArray, int]:
    """Return parts of boxes with everything of interest, the best utility known, where it is, and the boxes tried.

    ``prices`` are the multipliers, the utility of a known rule and the gap allowed. To ``improve`` is to search better
    rules in what is left after each round; that there is a rule with such a utility is only very likely.
    """
    multipliers, threshold, gap = prices
    where, tried = np.zeros(2), 0
    for turn, (smallest, most, enough) in enumerate(rounds):
        exclusion = Exclusion(histogram, multipliers, threshold + gap)
        boxes = exclusion.survivors(boxes, smallest, most, enough)
        tried += exclusion.boxes
        if not len(boxes):
            break
        if not improve:
            continue
        better, place = best_inside(histogram, boxes, turn)
        if better > threshold:
            threshold, where = better, place
    return boxes, threshold, where, tried


def least_bound(histogram: LineCounts, multipliers: FloatArray, threshold: float) -> float:
    """Return a utility that the counts alone prove no rule to exceed, close to that of a known rule if possible."""
    whole = np.array([[0.0, 0.0, FAR, FAR, 1.0, 1.0]])

    def proven(step: int) -> bool:
        exclusion = Exclusion(histogram, multipliers, threshold + STEPS_ABOVE[step])
        return exclusion.bounded() and not len(exclusion.survivors(whole, SMALLEST_FOR_A_BOUND, MOST_FOR_A_BOUND))

    step = bisect.bisect_left(range(len(STEPS_ABOVE)), True, key=proven)
    return threshold + STEPS_ABOVE[step] if step < len(STEPS_ABOVE) else np.inf


def best_inside(histogram: LineCounts, boxes: FloatArray, seed: int) -> tuple[float, FloatArray]:
    """Return the utility that some rule in boxes very likely has, and where: random ones, then closer to the best."""
    rng = np.random.default_rng(seed)
    some = boxes[rng.integers(len(boxes), size=PLACES_A_ROUND)]
    best, where = best_known(histogram, some[:, :2] + some[:, 2:4] * rng.uniform(-1.0, 1.0, (PLACES_A_ROUND, 2)))
    for size in SIZES_TO_TRY:
        better, place = best_known(histogram, where + size * rng.normal(size=(PLACES_NEARBY, 2)))
        if better > best:
            best, where = better, place
    return best, where


def best_known(histogram: LineCounts, places: FloatArray) -> tuple[float, FloatArray]:
    """Return the utility that some rule very likely has that meets the bounds, one of these or z = 0, and where it is.

    Rows whose decision is not known decide independently of each other, so their sum is far smaller than their number.
    A utility that turns out not to be there is noticed when the rows are.
    """
    problem = histogram.ground.problem
    best, where = -np.inf, places[0]
    if histogram.ground.meets(histogram.ground.at_zero):
        best = float(histogram.ground.at_zero[0])
    largest = np.abs(histogram.units).max(axis=0)
    for place in places:
        sums, unsure = histogram.sums_at(place)
        if sums[0] <= best:
            continue
        off = np.minimum(unsure, DEVIATIONS_ALLOWED * np.sqrt(unsure * largest))
        miss = max(problem.excess(sums[1:] - off[1:]), problem.excess(sums[1:] + off[1:]))
        if miss == 0.0 and sums[0] - off[0] > best:
            best, where = float(sums[0] - off[0]), place
    return best, where
