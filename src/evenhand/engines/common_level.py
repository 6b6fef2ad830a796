"""Predictive parity in the plane: the proof for all levels at once, around a good rule that is known.

A rule better than a known one, with its precisions close enough together at some level, lies near the known one if that
is nearly the best. One pass counts the lines of all rows around it. These counts serve bounds at any level, so boxes of
z are excluded for one range of levels after the other, without reading the table again; ranges and boxes become smaller
together. The rows that are open in what is left are brought back, for as many neighbouring ranges at once as memory
allows, and the branch and bound over the level runs on them in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.engines.distances import EDGES, HALF, Grid, LineCounts, Lines
from evenhand.engines.exclusion import FAR, Exclusion
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.keeping import count_and_keep
from evenhand.engines.opening import sample_of
from evenhand.engines.reading import Reader
from evenhand.engines.strip import Found, InStrip, Part, Strip, inside, solve_part
from evenhand.engines.zoom import first_view, multipliers_of, places_around
from evenhand.inputs import FloatArray
from evenhand.search import Certified

# The first ranges of levels, and the narrowest: they are halved with the boxes.
FIRST_RANGES, NARROWEST = 16, 1 / 512
FIRST_SIZE, SMALLEST_SIZE = 8.0, 1 / 128
BOXES_AT_FIRST, BOXES_A_RANGE, MOST_BOXES = 3000, 400, 20_000
# Boxes are halved until no more rows than these are open.
ENOUGH_ROWS = 20_000

Range = tuple[float, float]
AtLevels = Callable[[Range], Ground]


@dataclass(frozen=True, eq=False)
class Open:
    """A range of levels, and the boxes of z that may hold a better rule with its precisions there."""

    levels: Range
    boxes: FloatArray


@dataclass(frozen=True, eq=False)
class Piece:
    """The part of the plane that may hold a better rule at levels in a range: its rows, and what is sure of others."""

    levels: Range
    tally: Lines
    counts: LineCounts
    strip: Strip
    raw: RawRows
    sure: FloatArray

    def solve(self, ground: Ground, z: FloatArray, to_beat: float) -> Found:
        """Return the best rule under the bounds of a ground that is better than something; z is any rule."""
        counts = self.counts.under(ground)
        part = Part(ground, inside(self.tally.view, self.strip), self.raw, counts.constant + self.sure @ counts.units)
        known = Found(to_beat, z, to_beat, ground.problem, 0, None)
        return solve_part(part, _solver(ground), z, known)


class AllLevels:
    """The lines of all rows, counted around a good rule: where a better one may be, at any level.

    ``at`` returns the rows with the bounds at levels in a range, and ``level`` is that of the good rule.
    """

    def __init__(self, reader: Reader, at: AtLevels, level: float) -> None:
        self.reader, self.at, self.level = reader, at, level
        ground = at((level, level))
        sample = sample_of(ground, reader)
        view, aspect = first_view(ground, sample)
        self.tally = Lines(ground, view, reader.weighted, Grid.of(ground.n_rows, aspect))
        self.counts, self.kept = count_and_keep(reader, self.tally, sample)
        self.gap, self.tried = _solver(ground).gap, 0
        self.enough = min(ENOUGH_ROWS, reader.most)
        self._prices: dict[Range, FloatArray] = {}

    def open_ranges(self, utility: float) -> list[Open] | None:
        """Return all that may hold a rule better than a utility; None where it has no end."""
        whole = np.array([[0.0, 0.0, FAR, FAR, 1.0, 1.0]])
        edges = np.linspace(0.0, 1.0, FIRST_RANGES + 1).tolist()
        ranges = [Open(levels, whole) for levels in itertools.pairwise(edges)]
        found: list[Open] = []
        while ranges:
            one = ranges.pop()
            if self._exclusion(one.levels, utility).bounded():
                found += self._smaller([one], utility, FIRST_SIZE, BOXES_AT_FIRST)
            elif one.levels[1] - one.levels[0] <= NARROWEST:
                return None
            else:
                ranges += _halves(one)
        size = FIRST_SIZE
        while size > SMALLEST_SIZE and self.tried < MOST_BOXES and found and self._rows(found) > self.enough:
            size *= 0.5
            halves = [half for one in found for half in _halves(one)]
            found = self._smaller(halves, utility, size, BOXES_A_RANGE)
        return sorted(found, key=lambda one: one.levels)

    def still_open(self, ranges: list[Open], utility: float) -> list[Open]:
        """Return what may hold a rule better than a utility, of what may hold one better than a lower utility."""
        return self._smaller(ranges, utility, np.inf, BOXES_A_RANGE)

    def _smaller(self, ranges: list[Open], utility: float, size: float, most: int) -> list[Open]:
        """Return the boxes of some ranges that are not excluded, halved until they have a size."""
        found = []
        for one in ranges:
            exclusion = self._exclusion(one.levels, utility)
            left = exclusion.survivors(one.boxes, size, max(most, 4 * len(one.boxes)))
            self.tried += exclusion.boxes
            if len(left):
                found.append(Open(one.levels, left))
        return found

    def _exclusion(self, levels: Range, utility: float) -> Exclusion:
        """Return the exclusion of what is not better, or does not meet the bounds at levels in a range."""
        ground = self.at(levels)
        counts = self.counts.under(ground)
        if levels not in self._prices:
            sums = np.array([counts.constant + weight @ counts.units for weight in self._weights])
            self._prices[levels] = multipliers_of(ground.problem, sums)
        return Exclusion(counts, self._prices[levels], utility + _solver(ground).gap)

    @cached_property
    def _weights(self) -> list[FloatArray]:
        """About the weight of each code that some rules around the centre select."""
        return [self.counts.weight_at(place)[0] for place in places_around(4.0)]

    def nearest(self, ranges: list[Open], level: float) -> slice:
        """Return which ranges around a level have rows that fit in memory together; none if one alone does not."""
        first = int(np.argmin([abs(0.5 * sum(one.levels) - level) for one in ranges]))
        found = slice(first, first)
        wider = [slice(first, first + 1)]
        while wider:
            rows, _, some = min((self._rows(ranges[some]), some.start, some) for some in wider)
            if rows > self.reader.most:
                break
            found = some
            low, high = max(some.start - 1, 0), min(some.stop + 1, len(ranges))
            wider = [one for one in (slice(low, some.stop), slice(some.start, high)) if one != some]
        return found

    def _rows(self, ranges: list[Open]) -> float:
        """Return about how many rows are open in some ranges; not fewer."""
        strip = _strip(ranges)
        return self.counts.rows_cutting(strip.centre, strip.axes)

    def piece(self, ranges: list[Open]) -> Piece | None:
        """Return neighbouring ranges with their rows, in one pass if these were not kept; None if they do not fit."""
        levels = ranges[0].levels[0], ranges[-1].levels[1]
        boxes = np.vstack([one.boxes for one in ranges])[:, :4]
        strip = None if self.kept is None else Strip.inside(boxes, self.kept.size)
        if self.kept is not None and strip is not None:
            _, sure, raw = self.kept.inside(strip)
            return Piece(levels, self.tally, self.counts, strip, raw, sure)
        strip = _strip(ranges)
        radius = float((np.abs(boxes[:, :2]) + boxes[:, 2:4]).max())
        bins = min(int(np.searchsorted(EDGES, 2.0 * radius)) - HALF + 1, HALF - 1)
        choice = InStrip(self.tally, bins, strip, np.zeros(self.tally.ground.n_codes))
        found = self.reader.sorted_rows(choice)
        if found is None:
            return None
        self.counts.check(choice.weight, bins)
        sure = self.counts.weight_from(HALF + bins) + choice.sure
        return Piece(levels, self.tally, self.counts, strip, found, sure)


def _halves(one: Open) -> list[Open]:
    """Return the halves of a range of levels; the range itself if it is narrow."""
    low, high = one.levels
    if high - low <= NARROWEST:
        return [one]
    middle = 0.5 * (low + high)
    return [Open((low, middle), one.boxes), Open((middle, high), one.boxes)]


def _strip(ranges: list[Open]) -> Strip:
    return Strip.around(np.vstack([one.boxes for one in ranges])[:, :4])


def _solver(ground: Ground) -> Certified:
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    return solver
