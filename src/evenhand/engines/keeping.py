"""K = 2: rows that are kept while all are counted, so that they need not be read once more.

A sample tells about where the best rule is. While the lines of all rows are counted around that place, the rows that
are open in a square around it are kept, as large a square as memory allows. If counts prove that all good rules are in
the square, the table need not be read again: all other rows are decided throughout the square as at its centre.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import _kernels
from evenhand.engines.distances import HALF, ROW, LineCounts, Lines
from evenhand.engines.gathering import RawRows
from evenhand.engines.reading import Reader
from evenhand.engines.schema import Columns, Frame
from evenhand.engines.strip import InStrip, Strip
from evenhand.inputs import FloatArray
from evenhand.rules import scores

# The largest square, in units of the sample's uncertainty, and how much smaller the next one is.
LARGEST, SMALLER, SMALLEST = 1.25, 0.9, 2.0**-12
SHARE_OF_THE_ROOM = 0.9


class Keeper:
    """Counts lines, and keeps the rows that are open in a square around the centre: the same ones in every order."""

    def __init__(self, tally: Lines, columns: Columns, most: int, size: float) -> None:
        self.tally, self.columns, self.most, self.size = tally, columns, most, size
        self.counts = tally.empty()
        self._parts: list[tuple[FloatArray, Frame]] = []
        self._number = 0
        self._places, self._kept, self._radii = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)

    def add(self, frame: Frame) -> None:
        """Count some rows, and keep some of them."""
        tally, ground = self.tally, self.tally.ground
        columns, n = tally.scores.of(frame)
        if n > len(self._kept):
            self._places, self._kept, self._radii = (np.empty(n, dtype=kind) for kind in (np.int64, np.int64, float))
        places, radii, grid = self._places[:n], self._radii[:n], (tally.grid.directions, tally.grid.aspect)
        _kernels.measure_lines(columns, tally.form, tally.view.origin, grid, HALF, places, radii)
        weights = np.ascontiguousarray(np.nan_to_num(frame["w"])) if tally.weighted else np.empty(0)
        rows = ground.codes_of(frame), weights
        found = _kernels.count_and_choose(places, radii, rows, ground.n_codes, self.size, self.counts, self._kept)
        if found:
            index = self._kept[:found]
            self._parts.append((radii[index], {name: column[index] for name, column in frame.items()}))
            self._number += found
        while self._number > self.most:
            # The square depends only on how many rows are open in it, so it is the same in every order of the rows.
            self.size = self.size * SMALLER if self.size > SMALLEST else -1.0
            self._parts = [_within(self.size, *part) for part in self._parts]
            self._number = sum(len(radii) for radii, _ in self._parts)

    def rows(self) -> RawRows:
        """Return the kept rows, in the order in which they came."""
        parts, self._parts = self._parts, []
        return RawRows.joined(self.columns, [frame for _, frame in parts])


def _within(size: float, radii: FloatArray, frame: Frame) -> tuple[FloatArray, Frame]:
    inside = np.flatnonzero(radii <= size)
    return radii[inside], {name: column[inside] for name, column in frame.items()}


class Kept:
    """The rows that are open in a square around the centre of some lines, and what the others are decided there."""

    def __init__(self, tally: Lines, counts: LineCounts, raw: RawRows, size: float) -> None:
        self.tally, self.counts, self.raw, self.size = tally, counts, raw, size

    def inside(self, strip: Strip) -> tuple[InStrip, FloatArray, RawRows]:
        """Return the rows that are open in a strip, and the weight of each code of the others that is decided 1."""
        ground, raw = self.tally.ground, self.raw
        choice = InStrip(self.tally, HALF, strip, np.zeros(ground.n_codes))
        wanted = np.flatnonzero(choice.keep({**raw.frame, "n": raw.weight}))
        others = self.counts.weight_from(HALF) - self._above_the_centre()
        return choice, others + choice.sure, raw.sorted(wanted)

    def _above_the_centre(self) -> FloatArray:
        """Return the weight of each code of the kept rows that are counted as decided 1 at the centre."""
        ground, frame = self.tally.ground, self.raw.frame
        places = self.tally.places(frame)
        on: NDArray[np.bool_] = (places < self.tally.grid.places) & (places % ROW >= HALF)
        weight = np.bincount(ground.codes_of(frame)[on], self.raw.weight[on], ground.n_codes)
        return weight.astype(np.float64)


def count_and_keep(reader: Reader, tally: Lines, sample: RawRows) -> tuple[LineCounts, Kept | None]:
    """Count lines in one pass, and keep rows near the centre if the engine streams them here."""
    keeper = Keeper(tally, reader.columns, reader.most, _first_size(tally, sample, reader.most))
    if not reader.stream(keeper.add):
        return LineCounts(tally, reader.count_dense(tally)), None
    counts = LineCounts(tally, keeper.counts)
    counts.check_all()
    if keeper.size <= 0.0:
        return counts, None
    raw = keeper.rows()
    reader.brought += len(raw)
    return counts, Kept(tally, counts, raw, keeper.size)


def _first_size(tally: Lines, sample: RawRows, most: int) -> float:
    """Return the largest square that, by a sample, not too many rows are open in."""
    ground, axes = tally.ground, tally.ground.linear.along(tally.view.axes)
    columns = np.column_stack([sample.frame[name] for name in axes.names])
    contrasts = scores.products(columns, axes.weights) + axes.constant
    level = scores.margin(sample.p_y, ground.options.costs) - contrasts @ tally.view.origin
    radii = np.abs(level) / np.maximum(np.abs(contrasts).sum(axis=1), 1e-300)
    room = SHARE_OF_THE_ROOM * most * sample.n_rows / ground.n_rows
    size = LARGEST
    while sample.rows[radii <= size].sum() > room and size > SMALLEST:
        size *= SMALLER
    return size
