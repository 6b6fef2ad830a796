"""K = 2: the best rule that counts of lines know exactly, and a bound on all rules.

1. Counts in coarse bins, over the whole plane, exclude everything far from the centre, and boxes around it, as they do
   for rows that do not fit in memory (:mod:`exclusion`).
2. What is left is divided into ever smaller boxes (:class:`_Search`). In a box, the rows of a fine bin are decided
   alike, or they are open and count as each price likes best. A box is left where that is not above a known rule.
3. The middle of each box is a rule; if no row is open there, its numbers are known exactly.

The largest bound of what remains is a bound on all rules.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from evenhand.engines._near_kernels import open_in_boxes
from evenhand.engines.distances import LineCounts
from evenhand.engines.exclusion import FAR, Exclusion, best_known, shrunk, tests_of
from evenhand.engines.near_lines import FineLines
from evenhand.engines.zoom import multipliers_of, places_around
from evenhand.errors import InfeasibleError
from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule
from evenhand.search.problem import FEASIBILITY_SLACK, conclude

# How small boxes become before fine bins are looked at, in two rounds, and how many are tried: fewer if rows are few.
SIZES = 1 / 8, 1 / 64
FEWEST_BOXES, MOST_BOXES, ROWS_A_BOX = 200, 3000, 500
REACH = 4.0
MOST_THRESHOLDS = 3
# Bounds above a known rule by one of these are looked for: far from the centre the smallest that is found, near it the
# next one as long as there is work left.
FAR_GAPS = 0.0, 1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1
GAPS = 1e-5, 0.0
# Bins looked at: together in one array, and for one gap.
TOGETHER, MOST_WORK, WORK_OF_A_BOX = 1 << 23, 1 << 31, 100
ROUNDING = 1e-10

# Where the open bins of each box begin, these bins, and the weight of each code that is decided 1 throughout the box.
_Open = tuple[NDArray[np.int64], NDArray[np.int32], FloatArray]


class NearLines:
    """The weight of each bin of lines, by label and groups."""

    def __init__(
        self, tally: FineLines, places: NDArray[np.int64], codes: NDArray[np.int64], weight: FloatArray
    ) -> None:
        ground, grid = tally.ground, tally.grid
        self.tally, self.ground = tally, ground
        coarse = np.minimum(places >> tally.bits, grid.delicate)
        dense = np.bincount(coarse * ground.n_codes + codes, weight, grid.slots * ground.n_codes)
        # Far from the centre all delicate rows may be decided either way.
        self.everywhere = LineCounts(tally, dense.astype(np.float64))
        self.counts = self.everywhere.deciding(tally.sure(places, codes, weight))
        self.unsure = float(self.counts.loose_weight)
        lines = np.flatnonzero(places >> tally.bits < grid.places)
        self.lines = tally.lines_of(places[lines])
        self.codes, self.weight = codes[lines], weight[lines]
        self.at_zero = float(ground.at_zero[0]) if ground.meets(ground.at_zero) else -np.inf

    def search(self) -> _Search:
        """Return the search for the best rule with known numbers, whose bound is on all rules."""
        counts, problem = self.counts, self.ground.problem
        around = places_around(REACH)
        multipliers = multipliers_of(problem, np.array([counts.sums_at(place)[0] for place in around]))
        whole = np.array([[0.0, 0.0, FAR, FAR, 1.0, 1.0]])
        most = int(np.clip(self.ground.n_rows / ROWS_A_BOX, FEWEST_BOXES, MOST_BOXES))
        rounds = [(size, most, 0.0) for size in SIZES]
        boxes, likely, _, _ = shrunk(counts, whole, (multipliers, best_known(counts, around)[0], 0.0), rounds)
        search = _Search(self, multipliers)
        for _ in range(MOST_THRESHOLDS):
            search.run(boxes[:, :4], likely)
            if search.known >= likely - problem.resolution:
                break
            # What made a better rule likely was not there: look at all that is better than what is known.
            likely = search.known
            boxes = whole
            for smallest, many, _ in rounds:
                boxes = Exclusion(counts, multipliers, likely).survivors(boxes, smallest, many)
        search.bound = max(search.bound, self._far(multipliers, max(likely, search.known)))
        return search

    def _far(self, multipliers: FloatArray, known: float) -> float:
        """Return a bound on the rules far from the centre."""
        counts = self.everywhere
        if known > -np.inf:
            for gap in FAR_GAPS:
                if Exclusion(counts, multipliers, known + gap).bounded():
                    return known + gap
        elif Exclusion(counts, multipliers, known).bounded():
            return known
        loose = np.maximum(counts.loose[:, 0], 0.0).sum()
        return float(counts.constant[0] + loose + counts.weight_from(0) @ np.maximum(counts.units[:, 0], 0.0))


class _Search:
    """The search in ever smaller boxes: the best rule with known numbers, and a bound on all rules in the boxes.

    ``place`` is None where the unchanged model is the best, or no rule that meets the bounds is known; ``excess`` is by
    how much the closest rule misses them.
    """

    def __init__(self, near: NearLines, multipliers: FloatArray) -> None:
        counts, ground = near.counts, near.ground
        self.near, self.problem, self.units = near, ground.problem, counts.units
        self.known, self.place, self.sums = near.at_zero, None, ground.at_zero
        self.excess = ground.problem.excess(ground.at_zero[1:])
        self.bound = np.inf
        tests, needed = tests_of(ground.problem, multipliers, 0.0)
        self._prices = tests @ counts.units.T
        self._fixed = tests @ counts.constant + np.maximum(tests @ counts.loose.T, 0.0).sum(axis=1) - needed
        self._work = 0

    place: FloatArray | None

    def run(self, boxes: FloatArray, likely: float) -> None:
        """Search some boxes, outside of which nothing is better than a likely rule, and set the bound."""
        self.bound = np.inf
        for gap in GAPS:
            left = self._left(boxes, max(likely, self.known) + gap)
            self.bound = min(self.bound, max(left, likely + gap, self.known + gap))
            if left > -np.inf:
                break

    def _left(self, boxes: FloatArray, threshold: float) -> float:
        """Return the largest bound of boxes that are not settled when the work is done; -inf if all are."""
        if not len(boxes):
            return -np.inf
        self._work = 0
        n = len(self.near.codes)
        everything = np.array([0, n]), np.arange(n, dtype=np.int32), np.zeros((1, len(self.units)))
        low, high = (boxes[:, :2] - boxes[:, 2:]).min(axis=0), (boxes[:, :2] + boxes[:, 2:]).max(axis=0)
        hull = np.concatenate([0.5 * (low + high), 0.5 * (high - low)])[None]
        stack, left = [(hull, np.zeros(1, dtype=np.int64), everything, np.inf)], -np.inf
        while stack:
            some, parents, inside, bound = stack.pop()
            if self._work > MOST_WORK:
                left = max(left, bound)
                continue
            bounds, inner, settled = self._look(some, parents, inside)
            threshold = max(threshold, self.known)
            better = bounds > threshold + self.problem.resolution
            left = float(bounds[settled & better].max(initial=left))
            # What is below a bound that stays does not matter to it.
            threshold = max(threshold, left)
            kept = np.flatnonzero(better & ~settled & (bounds > threshold))
            # The most promising boxes come last, to be the next that are looked at.
            kept = kept[np.argsort(bounds[kept], kind="stable")]
            stack += _divided(some[kept], _taken(inner, kept), bounds[kept], boxes)
        return left

    def _look(
        self, boxes: FloatArray, parents: NDArray[np.int64], outer: _Open
    ) -> tuple[FloatArray, _Open, NDArray[np.bool_]]:
        """Return the bounds of some boxes, their open bins, and which boxes are settled.

        ``outer`` are the open bins of boxes that they are in. A box is settled if all bins that are open in it are open
        in its middle: smaller boxes would not tell more.
        """
        near, shape = self.near, (len(boxes), 2, len(self.units))
        starts, members, on = outer
        size = int(np.diff(starts)[parents].sum())
        self._work += size + WORK_OF_A_BOX * len(boxes)
        inner, ends = np.empty(size, dtype=np.int32), np.zeros(len(boxes), dtype=np.int64)
        counted, middle = np.zeros(shape), np.zeros(shape)
        used = open_in_boxes(
            near.lines, near.codes, near.weight, (boxes, parents), (starts, members, on), inner, ends, counted, middle
        )
        self._offer(boxes, middle)
        most = self._fixed + counted[:, 0] @ self._prices.T + counted[:, 1] @ np.maximum(self._prices, 0.0).T
        can = (most[:, 2:] >= -FEASIBILITY_SLACK - ROUNDING).all(axis=1)
        bounds = np.where(can, most[:, :2].min(axis=1), -np.inf)
        settled = np.asarray((counted[:, 1] <= middle[:, 1]).all(axis=1))
        return bounds, (np.concatenate([[0], ends]), inner[:used].copy(), counted[:, 0]), settled

    def _offer(self, boxes: FloatArray, middle: FloatArray) -> None:
        """Take the best of the boxes' middles whose numbers are known, if it is better than what is known."""
        counts, problem = self.near.counts, self.problem
        sure = np.flatnonzero(~middle[:, 1].any(axis=1))
        if not len(sure):
            return
        sums = counts.constant + middle[sure, 0] @ self.units
        low, high = (sums + part(counts.loose, 0.0).sum(axis=0) for part in (np.minimum, np.maximum))
        miss = np.maximum(problem.lower[0] - low[:, 1:], high[:, 1:] - problem.upper[0]).max(axis=1, initial=0.0)
        self.excess = min(self.excess, float(miss.min()))
        sums[:, 0] = low[:, 0]
        utility = np.where(miss <= FEASIBILITY_SLACK, sums[:, 0], -np.inf)
        best = int(np.argmax(utility))
        if utility[best] > self.known:
            self.known, self.place, self.sums = float(utility[best]), boxes[sure[best], :2].copy(), sums[best]


def _taken(inner: _Open, kept: NDArray[np.int64]) -> _Open:
    """Return the open bins of some of the boxes."""
    starts, members, on = inner
    sizes = np.diff(starts)[kept]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    index = np.arange(ends[-1]) + np.repeat(starts[kept] - ends[:-1], sizes)
    return ends, members[index], on[kept]


_Task = tuple[FloatArray, NDArray[np.int64], _Open, float]


def _divided(boxes: FloatArray, inner: _Open, bounds: FloatArray, wanted: FloatArray) -> list[_Task]:
    """Return the quarters of some boxes, as far as they are in wanted ones, in parts that can be looked at together."""
    found: list[_Task] = []
    sizes = np.diff(inner[0])
    begin = 0
    while begin < len(boxes):
        end = begin + max(1, int(np.searchsorted(np.cumsum(sizes[begin:]), TOGETHER // 4, side="right")))
        some = np.arange(begin, min(end, len(boxes)))
        quarters, parents = _quarters(boxes[some])
        keep = _overlap(quarters, wanted)
        if keep.any():
            found.append((quarters[keep], parents[keep], _taken(inner, some), float(bounds[some].max())))
        begin = end
    return found


def _quarters(boxes: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return the quarters of each box, and the box that each is in."""
    signs = np.array([(a, b) for a in (-0.5, 0.5) for b in (-0.5, 0.5)])
    middles = boxes[:, None, :2] + signs * boxes[:, None, 2:]
    radii = np.broadcast_to(0.5 * boxes[:, None, 2:], middles.shape)
    quarters = np.concatenate([middles, radii], axis=2).reshape(-1, 4)
    return np.ascontiguousarray(quarters), np.repeat(np.arange(len(boxes)), 4)


def _overlap(boxes: FloatArray, wanted: FloatArray) -> NDArray[np.bool_]:
    """Tell which boxes have a part in one of some others; all small ones, which are where their parents were."""
    if (boxes[0, 2:] < 0.5 * wanted[:, 2:].min(axis=0)).all():
        return np.ones(len(boxes), dtype=bool)
    found = np.zeros(len(boxes), dtype=bool)
    for one in wanted:
        found |= (np.abs(boxes[:, :2] - one[:2]) <= boxes[:, 2:] + one[2:]).all(axis=1)
    return found


def learn_in_lines(near: NearLines) -> Rule:
    """Return the best rule whose numbers are known, or the unchanged model, with the bound on all rules."""
    ground, tally = near.ground, near.tally
    search = near.search()
    if search.known == -np.inf:
        raise _infeasible(near, search)
    bound = max(search.bound, search.known)
    if search.place is None:
        resolved = bound <= search.known + ground.problem.resolution
        rule = ground.unchanged("optimal" if resolved else "gap", upper_bound=bound)
    else:
        sums = search.sums.copy()
        sums[0] -= ground.problem.offset
        # One row stands for all that are decided 1.
        whole = ground.problem_of(np.ones(1), np.zeros((1, 2)), sums[None])
        rule = ground.rule(whole, conclude(whole, 0, tally.view.at(search.place), upper_bound=bound))
    about = {"bins": len(near.weight), "within": float(tally.view.axes[0, 0]), "unsure": near.unsure}
    learned = {**rule.learned_from, "second_round": about}
    return dataclasses.replace(rule, classes=ground.schema.classes, learned_from=learned)


def _infeasible(near: NearLines, search: _Search) -> InfeasibleError:
    """Return an exception that names a tolerance that can be met, if there is one."""
    ground = near.ground
    if not ground.setting.system.moving.any():
        return InfeasibleError("No rule meets these bounds together: loosen one of them, or give it a tolerance.")
    smallest = ground.tolerance + search.excess
    return InfeasibleError(
        f"No rule meets tolerance {ground.tolerance:g} on these {ground.n_rows} rows, as far as their counts tell; a"
        f" rule exists near {smallest:.6g}.",
        smallest_tolerance=smallest,
    )
