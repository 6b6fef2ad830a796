"""Predictive parity in the plane: the proof for all levels at once, around a good rule that is known.

A rule better than a known one, with its precisions close enough together at some level, lies near the known one if that
is nearly the best. One pass counts the lines of all rows around it. These counts serve bounds at any level, so boxes of
z are excluded for one small range of levels after the other, without reading the table again. The rows that are open in
what is left are brought back, and the branch and bound over the level runs on them in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.engines.distances import EDGES, HALF, Grid, LineCounts, Lines
from evenhand.engines.exclusion import FAR, Exclusion
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.keeping import Kept, count_and_keep
from evenhand.engines.reading import Reader
from evenhand.engines.strip import Found, InStrip, Part, Strip, inside, pieces, solve_part
from evenhand.engines.zoom import first_view, multipliers_of, places_around
from evenhand.inputs import FloatArray
from evenhand.search import Certified

# Ranges of levels are halved so often, and boxes of z become half as large with each: down to the last of these sizes.
HALVINGS, FIRST_SIZE, SMALLEST_SIZE = 10, 1.0, 1 / 128
BOXES_AT_FIRST, BOXES_A_RANGE, MOST_BOXES = 3000, 400, 20_000

Range = tuple[float, float]
AtLevels = Callable[[Range], Ground]


@dataclass(frozen=True, eq=False)
class Rest:
    """The part of the plane that may hold a better rule: its rows, and the weight of each code that is sure there."""

    tally: Lines
    counts: LineCounts
    strip: Strip
    raw: RawRows
    sure: FloatArray

    def solve(self, ground: Ground, z: FloatArray, to_beat: float) -> Found:
        """Return the best rule under the bounds of a ground that is better than something."""
        counts = self.counts.under(ground)
        part = Part(ground, inside(self.tally.view, self.strip), self.raw, counts.constant + self.sure @ counts.units)
        solver = ground.options.solver
        assert isinstance(solver, Certified)
        known = Found(to_beat, z, to_beat, ground.problem, 0, None)
        return solve_part(part, solver, z, known)


def rest_of_the_plane(reader: Reader, at: AtLevels, level: float, utility: float) -> Rest | None:
    """Return what may be better than a rule of some utility with its precisions above a level; None if too large."""
    sample = reader.sample
    assert sample is not None
    ground = at((level, level))
    view, aspect = first_view(ground, sample)
    tally = Lines(ground, view, reader.weighted, Grid.of(ground.n_rows, aspect))
    counts, kept = count_and_keep(reader, tally, sample)
    boxes = _Levels(counts, at, utility).survivors()
    if boxes is None:
        return None
    if not len(boxes):
        boxes = np.array([[0.0, 0.0, SMALLEST_SIZE, SMALLEST_SIZE, 1.0, 1.0]])
    return _rows(reader, tally, (counts, kept), boxes[:, :4])


def _rows(reader: Reader, tally: Lines, counted: tuple[LineCounts, Kept | None], boxes: FloatArray) -> Rest | None:
    """Return the rows that are open in some boxes, if memory allows."""
    counts, kept = counted
    strip = None if kept is None else Strip.inside(boxes, kept.size)
    if kept is not None and strip is not None:
        _, sure, raw = kept.inside(strip)
        return Rest(tally, counts, strip, raw, sure)
    strips = pieces(boxes, counts, reader.most)
    if len(strips) > 1:
        return None
    radius = float((np.abs(boxes[:, :2]) + boxes[:, 2:4]).max())
    bins = min(int(np.searchsorted(EDGES, 2.0 * radius)) - HALF + 1, HALF - 1)
    choice = InStrip(tally, bins, strips[0], np.zeros(tally.ground.n_codes))
    found = reader.sorted_rows(choice)
    if found is None:
        return None
    counts.check(choice.weight, bins)
    return Rest(tally, counts, strips[0], found, counts.weight_from(HALF + bins) + choice.sure)


class _Levels:
    """Boxes of z and ranges of levels that may hold a rule better than some utility."""

    def __init__(self, counts: LineCounts, at: AtLevels, utility: float) -> None:
        self.counts, self.at, self.utility = counts, at, utility
        self.weights = [counts.weight_at(place)[0] for place in places_around(4.0)]
        self.boxes = 0

    def survivors(self) -> FloatArray | None:
        """Return boxes that hold everything of interest at any level; None if they have no end, or are too many."""
        first = self._exclusion((0.0, 1.0))
        whole = np.array([[0.0, 0.0, FAR, FAR, 1.0, 1.0]])
        if not first.bounded():
            return None
        open_ranges = [((0.0, 1.0), first.survivors(whole, FIRST_SIZE, BOXES_AT_FIRST))]
        size = FIRST_SIZE
        for _ in range(HALVINGS):
            size = max(0.5 * size, SMALLEST_SIZE)
            open_ranges = [part for one in open_ranges for part in self._halves(*one, size)]
            if self.boxes > MOST_BOXES:
                break
        return np.vstack([np.empty((0, 6)), *(boxes for _, boxes in open_ranges)])

    def _halves(self, levels: Range, boxes: FloatArray, size: float) -> list[tuple[Range, FloatArray]]:
        """Return the halves of a range in which something is left, with the boxes that hold it."""
        low, high = levels
        middle = 0.5 * (low + high)
        found = []
        for half in ((low, middle), (middle, high)):
            exclusion = self._exclusion(half)
            left = exclusion.survivors(boxes, size, max(BOXES_A_RANGE, 2 * len(boxes)))
            self.boxes += exclusion.boxes
            if len(left):
                found.append((half, left))
        return found

    def _exclusion(self, levels: Range) -> Exclusion:
        """Return the exclusion of what is not better, or does not meet the bounds at levels in a range."""
        ground = self.at(levels)
        counts = self.counts.under(ground)
        sums = np.array([counts.constant + weight @ counts.units for weight in self.weights])
        solver = ground.options.solver
        assert isinstance(solver, Certified)
        return Exclusion(counts, multipliers_of(ground.problem, sums), self.utility + solver.gap)
