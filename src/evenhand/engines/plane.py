"""K = 2: the certified optimum of rows that do not fit in memory, in a square of z that contains all good rules.

A row is a line in the plane of z, which has two parameters: its direction, that of the row's contrasts, and its signed
distance from a centre. So after labels and groups are counted (:mod:`ground`) and a sample has given a centre,

1. one pass counts the rows by direction and distance, finely where the distance is small;
2. rings of z around the centre, from infinity inwards, and boxes inside the square that is left, are excluded while the
   counts prove that no rule in them meets the bounds and is better than one that is known: in a box of z the rows of
   one direction turn at one threshold, up to a *fuzz* that is the width of the direction's bin times the box's distance
   from the centre;
3. one pass brings back the rows whose lines cut the strip that is left (:mod:`strip`), in pieces where they are too
   many; the others are constant in it, and their sums are known. The branch and bound of
   :mod:`evenhand.search.certified` solves the strip.

Contrasts are measured in units of their typical size, and the size of a row's contrasts is the sum of both: then the
rows that are open in a square are those whose distance is below the square's radius.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from evenhand.engines import _kernels
from evenhand.engines.distances import EDGES, HALF, SCALES, Grid, LineCounts, Lines, View
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.reading import Reader, TooManyError
from evenhand.engines.strip import Found, InStrip, pieces, solve_strip, tests_of
from evenhand.engines.zoom import first_view, multipliers_of, narrowed, places_around
from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule
from evenhand.search import Certified
from evenhand.search.problem import FEASIBILITY_SLACK, Status, conclude

FAR, FARTHEST = 64.0, 2.0**20
RINGS_TO, RING = 2.0**-10, 0.75
SMALLEST_PART = 1 / 1024
MOST_BOXES = 20_000
SMALLEST_RING = 1 / 128
# Boxes inside the square, in two rounds: how small against it, and how many.
ROUNDS = ((1 / 64, 2000), (1 / 2048, 12_000))
PLACES_A_ROUND, PLACES_NEARBY = 1000, 200
SIZES_TO_TRY = tuple(2.0**-k for k in range(2, 12))
WIDE = 2.0
MOST_CENTRES, MOST_THRESHOLDS = 4, 3
MOST_PIECES = 4
DEVIATIONS_ALLOWED = 3.0


class _Exclusion:
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
        size = max(box[2], box[3])
        for grid, above in self.histogram.by_grid:
            # The margin is for rows that rounding put into the bin beside theirs.
            fuzz = grid.fuzz(*reach) + _kernels.MARGIN
            if np.median(fuzz) * WIDE <= size:
                break
        _kernels.most_in_box(above, self.prices, EDGES, grid.units, box, fuzz, near, SCALES, self.most)
        return bool((self.most < self.needed).any())

    def radius(self) -> float:
        """Return the radius of a square outside of which everything is excluded; infinite if there is none."""
        if not all(self._ring_excluded(part) for part in _far_parts()):
            return float(np.inf)
        radius = FAR
        while radius > RINGS_TO and all(self._ring_excluded(part) for part in _ring_parts(radius * RING, radius)):
            radius *= RING
        return radius

    def survivors(self, boxes: Iterable[FloatArray], smallest: float, most: int) -> FloatArray:
        """Return parts of some boxes that hold everything of interest in them; large boxes are looked at first."""
        queue, left, most = deque(boxes), [], self.boxes + most
        while queue:
            box = queue.popleft()
            if self.excluded(box):
                continue
            if max(box[2], box[3]) <= smallest or self.boxes > most:
                left.append(box)
            else:
                queue.extend(_halves(box))
        return np.array(left).reshape(-1, 6)

    def _ring_excluded(self, box: FloatArray) -> bool:
        """Return whether a part of a ring is excluded, if necessary by its parts."""
        stack = [box]
        while stack:
            box = stack.pop()
            if self.excluded(box):
                continue
            far = box[4] != box[5]
            size = max(box[2], box[3])
            if self.boxes > MOST_BOXES:
                return False
            if far:
                if size <= SMALLEST_PART:
                    return False
                stack += _far_halves(box)
                continue
            if size <= SMALLEST_RING * np.abs(box[:2]).max():
                return False
            stack += _halves(box)
        return True


def _halves(box: FloatArray) -> list[FloatArray]:
    """Return the halves of a box, across its longer side."""
    k = 0 if box[2] >= box[3] else 1
    halves = [box.copy(), box.copy()]
    for half, side in zip(halves, (-0.5, 0.5), strict=True):
        half[k] += side * box[2 + k]
        half[2 + k] *= 0.5
    return halves


def _far_parts() -> list[FloatArray]:
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


def _ring_parts(inner: float, outer: float) -> Iterator[FloatArray]:
    """Yield boxes that cover the ring between two squares."""
    middle, thick = 0.5 * (inner + outer), 0.5 * (outer - inner)
    for axis, sign in itertools.product((0, 1), (-1.0, 1.0)):
        reach = outer if axis == 0 else inner
        parts = max(1, int(np.ceil(reach / (2.0 * thick))))
        for part in range(parts):
            box = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0])
            box[axis], box[2 + axis] = sign * middle, thick
            box[1 - axis], box[3 - axis] = (2.0 * part + 1.0) * reach / parts - reach, reach / parts
            yield box


def learn_in_the_plane(ground: Ground, reader: Reader, sample: RawRows) -> Rule:
    """Return the best rule for all rows, with its proof."""
    view, aspect = first_view(ground, sample)
    for _ in range(MOST_CENTRES):
        tally = Lines(ground, view, reader.weighted, Grid.of(ground.n_rows, aspect))
        histogram = LineCounts(tally, reader.count_dense(tally))
        places = places_around(4.0)
        sums = np.array([histogram.sums_at(place)[0] for place in places])
        multipliers = multipliers_of(ground.problem, sums)
        threshold, _ = _best_known(histogram, places)
        if not np.isfinite(threshold):
            # No rule is known: search again around the one closest to the bounds.
            excess = [ground.problem.excess(one[1:]) for one in sums]
            view = View(view.at(places[int(np.argmin(excess))]), view.axes)
            continue
        for _ in range(MOST_THRESHOLDS):
            found = _solve(tally, histogram, reader, multipliers, threshold)
            if not isinstance(found, float):
                break
            threshold = found
        if isinstance(found, Rule):
            return found
        view = narrowed(histogram, view, ground.n_rows)
    raise TooManyError


def _open_boxes(
    histogram: LineCounts, multipliers: FloatArray, threshold: float, gap: float
) -> tuple[FloatArray, float, float, int] | None:
    """Return boxes with everything of interest, the radius of their square, the best threshold and the boxes tried."""
    exclusion = _Exclusion(histogram, multipliers, threshold + gap)
    radius = exclusion.radius()
    if not radius <= FAR:
        return None
    boxes, tried = np.array([[0.0, 0.0, radius, radius, 1.0, 1.0]]), exclusion.boxes
    for turn, (smallest, most) in enumerate(ROUNDS):
        exclusion = _Exclusion(histogram, multipliers, threshold + gap)
        boxes = exclusion.survivors(boxes, smallest * radius, most)
        tried += exclusion.boxes
        if not len(boxes):
            break
        threshold = max(threshold, _best_inside(histogram, boxes, turn))
    return boxes[:, :4], radius, threshold, tried


def _best_inside(histogram: LineCounts, boxes: FloatArray, seed: int) -> float:
    """Return the utility that some rule in boxes very likely has: random ones, then closer and closer to the best."""
    rng = np.random.default_rng(seed)
    some = boxes[rng.integers(len(boxes), size=PLACES_A_ROUND)]
    best, where = _best_known(histogram, some[:, :2] + some[:, 2:4] * rng.uniform(-1.0, 1.0, (PLACES_A_ROUND, 2)))
    for size in SIZES_TO_TRY:
        better, place = _best_known(histogram, where + size * rng.normal(size=(PLACES_NEARBY, 2)))
        if better > best:
            best, where = better, place
    return best


def _solve(
    tally: Lines, histogram: LineCounts, reader: Reader, multipliers: FloatArray, threshold: float
) -> Rule | float | None:
    """Return the best rule; its utility where it is below the threshold; None where the square left is too large."""
    ground = tally.ground
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    opened = _open_boxes(histogram, multipliers, threshold, solver.gap)
    if opened is None:
        return None
    boxes, radius, threshold, tried = opened
    if not len(boxes) and ground.meets(ground.at_zero) and ground.at_zero[0] >= threshold:
        bound = float(ground.at_zero[0]) + solver.gap
        return ground.unchanged("gap" if solver.gap else "optimal", upper_bound=bound, nodes=tried)
    # Lines that cut the square have twice its radius as distance, in units of the larger contrast, and one bin more for
    # what rounding puts beyond an edge.
    bins = min(int(np.searchsorted(EDGES, 2.0 * radius)) - HALF + 1, HALF - 1)
    strips = pieces(boxes, histogram, reader.most) if len(boxes) else []
    if not 0 < len(strips) <= MOST_PIECES:
        return None
    found: Found | None = None
    for strip in strips:
        choice = InStrip(tally, bins, strip, np.zeros(ground.n_codes))
        raw = reader.sorted_rows(choice)
        if raw is None:
            return None
        histogram.check(choice.weight, bins)
        found = solve_strip(choice, histogram, raw).better(found)
    assert found is not None
    at_zero = ground.at_zero
    resolution = ground.problem.resolution
    if ground.meets(at_zero) and at_zero[0] >= found.utility - resolution:
        bound = max(found.bound, at_zero[0])
        status: Status = "optimal" if bound <= at_zero[0] + resolution else "gap"
        return ground.unchanged(status, upper_bound=bound, nodes=found.nodes)
    if not found.utility >= threshold - resolution:
        return found.utility
    solution = conclude(found.problem, 0, found.z, upper_bound=found.bound, nodes=found.nodes)
    return ground.rule(found.problem, replace(solution, stopped=found.stopped))


def _best_known(histogram: LineCounts, places: FloatArray) -> tuple[float, FloatArray]:
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
