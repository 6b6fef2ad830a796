"""K = 2: the certified optimum of rows that do not fit in memory, in a square of z that contains all good rules.

A row is a line in the plane of z, which has two parameters: its direction, that of the row's contrasts, and its signed
distance from a centre. So after labels and groups are counted (:mod:`ground`) and a sample has given a centre,

1. one pass counts the rows by direction and distance, finely where the distance is small;
2. rings of z around the centre, from infinity inwards, are excluded while the counts prove that no rule in them meets
   the bounds and is better than one that is known: in a box of z the rows of one direction turn at one threshold, up to
   a *fuzz* that is the width of the direction's bin times the box's distance from the centre;
3. one pass fetches the rows whose lines cut the remaining square; the others are constant in it, and their sums
are known from the counts. The branch and bound of :mod:`evenhand.search.certified` solves the square.

Contrasts are measured in units of their typical size, and the size of a row's contrasts is the sum of both: then the
rows that are open in a square are those whose distance is below the square's radius.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from evenhand.engines import _kernels
from evenhand.engines.distances import EDGES, HALF, SCALES, Grid, InSquare, LineCounts, Lines, problems_inside
from evenhand.engines.ground import Ground
from evenhand.engines.reading import Reader, TooManyError
from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule
from evenhand.search import Certified, Problem
from evenhand.search.certified import search_box
from evenhand.search.problem import FEASIBILITY_SLACK, Status, conclude
from evenhand.search.sweep import Best, centred

FAR, FARTHEST = 1.0, 1024.0
RINGS_TO, RING = 2.0**-10, 0.8
SMALLEST_PART = 1 / 1024
MOST_BOXES = 20_000
MOST_CENTRES = 4


class _Exclusion:
    """Proofs that boxes of z contain nothing that meets the bounds and is better than a threshold."""

    def __init__(self, histogram: LineCounts, multipliers: FloatArray, threshold: float) -> None:
        self.histogram, self.threshold = histogram, threshold
        problem = histogram.ground.problem
        lower, upper = problem.lower[0], problem.upper[0]
        self.tests: list[tuple[NDArray[np.float32], NDArray[np.float32], float]] = []
        priced = np.concatenate([[1.0], -multipliers])
        limit = np.where(multipliers > 0.0, upper, np.where(multipliers < 0.0, lower, 0.0))
        self._add(priced, threshold - float(multipliers @ limit))
        for c in range(len(lower)):
            unit = np.eye(1 + len(lower))[1 + c]
            if lower[c] > -np.inf:
                self._add(unit, float(lower[c]))
            if upper[c] < np.inf:
                self._add(-unit, -float(upper[c]))
        self.boxes = 0

    def _add(self, price: FloatArray, needed: float) -> None:
        """Add a test: a rule is of interest only if its sums, at these prices, reach a minimum."""
        above, positive, loose = self.histogram.prices(price)
        constant = float(self.histogram.constant @ price) + loose
        # Single precision is off by no more than this, summed over all directions.
        slack = FEASIBILITY_SLACK + 2.0**-21 * float(np.abs(above).max(axis=1).sum() + positive[:, 0].sum())
        self.tests.append((above, positive, needed - constant - slack))

    def excluded(self, box: FloatArray) -> bool:
        """Return whether a box (c1, c2, r1, r2, nearest, farthest) contains nothing of interest."""
        self.boxes += 1
        near = box[4] == box[5] == 1.0
        # The margin is for rows that rounding put into the bin beside theirs.
        far = float(np.abs(box[:2]).max() + box[2:4].max()) if near else 1.0
        fuzz = self.histogram.grid.fuzz * far + _kernels.MARGIN
        return any(
            _kernels.most_in_box(above, positive, EDGES, self.histogram.grid.units, box, fuzz, near, SCALES) < needed
            for above, positive, needed in self.tests
        )

    def radius(self) -> float:
        """Return the radius of a square outside of which everything is excluded; infinite if there is none."""
        if not all(self._ring_excluded(part) for part in _far_parts()):
            return np.inf
        radius = FAR
        while radius > RINGS_TO and all(self._ring_excluded(part) for part in _ring_parts(radius * RING, radius)):
            radius *= RING
        return radius

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
            if size <= SMALLEST_PART * np.abs(box[:2]).max():
                return False
            k = 0 if box[2] >= box[3] else 1
            for side in (-0.5, 0.5):
                half = box.copy()
                half[k] += side * box[2 + k]
                half[2 + k] *= 0.5
                stack.append(half)
        return True


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


def learn_in_the_plane(ground: Ground, reader: Reader, centre: FloatArray, scale: FloatArray) -> Rule:
    """Return the best rule for all rows, with its proof; the centre is a rule near it, in units of the scale."""
    grid = Grid.of(ground.n_rows)
    for _ in range(MOST_CENTRES):
        tally = Lines(ground, centre, scale, reader.weighted, grid)
        histogram = LineCounts(tally, *reader.count(tally))
        places = _places_to_try(20, 48)
        sums = np.array([histogram.sums_at(place) for place in places])
        multipliers = _multipliers(ground.problem, sums)
        threshold, best = _best_known(histogram, places, sums)
        if not np.isfinite(threshold):
            # No rule is known: search again around the one closest to the bounds.
            excess = [ground.problem.excess(one[1:]) for one in sums]
            centre = centre + places[int(np.argmin(excess))]
            continue
        for size in (2.0**-4, 2.0**-6, 2.0**-7):
            nearer = best + size * _places_to_try(10, 24)
            sums = np.array([histogram.sums_at(place) for place in nearer])
            better, where = _best_known(histogram, nearer, sums)
            if better > threshold:
                threshold, best = better, where
        found = _solve(tally, histogram, reader, multipliers, threshold)
        if found is not None:
            return found
        if not best.any():
            break
        centre = centre + best
    raise TooManyError


def _solve(
    tally: Lines, histogram: LineCounts, reader: Reader, multipliers: FloatArray, threshold: float
) -> Rule | None:
    """Return the best rule, or None if the remaining square is too large, or if the threshold was due to rounding."""
    ground = tally.ground
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    radius = _Exclusion(histogram, multipliers, threshold + solver.gap).radius()
    if not radius <= FAR:
        return None
    # One more bin than the square, so that rows that rounding puts beyond an edge are also fetched.
    bins = int(np.searchsorted(EDGES, radius)) - HALF + 1
    if histogram.open_rows(bins) > 4.0 * reader.most * max(1.0, histogram.open_rows(HALF) / ground.n_rows):
        return None
    raw = reader.rows(InSquare(tally, bins))
    if raw is None:
        return None
    histogram.check(raw, bins)
    inner = float(EDGES[HALF + bins - 1])
    whole, local = problems_inside(tally, histogram, raw, bins)
    best, bound, nodes, stopped = search_box(local, solver, np.full(2, inner), ground.options.random_state)
    kept = _settled(whole, best, tally, inner)
    at_zero = ground.at_zero
    bound = max(bound, kept.utility[0])
    if ground.meets(at_zero) and at_zero[0] >= kept.utility[0] - whole.resolution:
        bound = max(bound, at_zero[0])
        status: Status = "optimal" if bound <= at_zero[0] + whole.resolution else "gap"
        return ground.unchanged(status, upper_bound=bound, nodes=nodes)
    if not kept.utility[0] >= threshold - whole.resolution:
        return None
    solution = conclude(whole, 0, kept.z[0], upper_bound=bound, nodes=nodes)
    return ground.rule(whole, replace(solution, stopped=stopped))


def _settled(whole: Problem, claimed: Best, tally: Lines, radius: float) -> Best:
    """Return a claim as a rule, counted on its own decisions, and inside the square."""
    best = Best.none(whole)
    if np.isfinite(claimed.utility[0]):
        z = (tally.centre + claimed.z[0]) / tally.scale
        best.offer(whole, z)
        if claimed.utility[0] > best.utility[0] + whole.resolution:
            middle = centred(whole, z)
            if (np.abs(middle * tally.scale - tally.centre) <= radius).all():
                best.offer(whole, middle, anywhere=True)
            best.offer(whole, z, anywhere=True)
    return best


def _places_to_try(circles: int, angles_a_circle: int) -> FloatArray:
    """Return rules around the centre: on circles that grow up to 1, and the centre itself."""
    angles = np.arange(angles_a_circle) * (2.0 * np.pi / angles_a_circle)
    sizes = 2.0 ** (0.5 * np.arange(1.0 - circles, 1.0))
    around = np.column_stack([np.cos(angles), np.sin(angles)])
    return np.vstack([np.zeros((1, 2)), *(size * around for size in sizes)])


def _multipliers(problem: Problem, sums: FloatArray) -> FloatArray:
    """Return the prices of the constraints at which no mixture of some rules is better than those allowed."""
    lower, upper = problem.lower[0], problem.upper[0]
    values = sums[:, 1:].T
    above, below = upper < np.inf, lower > -np.inf
    found = linprog(
        -sums[:, 0],
        A_ub=np.vstack([values[above], -values[below]]),
        b_ub=np.concatenate([upper[above], -lower[below]]),
        A_eq=np.ones((1, len(sums))),
        b_eq=[1.0],
        method="highs",
    )
    if found.status != 0:
        return np.zeros(len(lower))
    prices = np.zeros(len(lower))
    marginals = -np.asarray(found.ineqlin.marginals)
    prices[above] += marginals[: int(above.sum())]
    prices[below] -= marginals[int(above.sum()) :]
    return prices


def _best_known(histogram: LineCounts, places: FloatArray, sums: FloatArray) -> tuple[float, FloatArray]:
    """Return the utility of some rule that certainly meets the bounds, and where it is."""
    problem = histogram.ground.problem
    best, where = -np.inf, places[0]
    if histogram.ground.meets(histogram.ground.at_zero):
        best = float(histogram.ground.at_zero[0])
    for k in np.argsort(-sums[:, 0]):
        unsure = histogram.unsure_at(places[k])
        miss = max(problem.excess(sums[k, 1:] - unsure[1:]), problem.excess(sums[k, 1:] + unsure[1:]))
        if miss == 0.0 and sums[k, 0] - unsure[0] > best:
            best, where = float(sums[k, 0] - unsure[0]), places[k]
        if sums[k, 0] < best:
            break
    return best, where
