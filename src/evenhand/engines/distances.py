"""Rows by their distance from a centre: which are constant inside a square of z, and which are not.

In units of typical contrasts, with the size of a row's contrasts being the sum of all of them, the rows that are open
in a cube around a centre are those whose distance |m - z . g| / size is below the cube's radius. In the plane the
direction of a row's contrasts is counted too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import _kernels
from evenhand.engines.gathering import RawRows, check_weight
from evenhand.engines.ground import Ground
from evenhand.engines.line import UNSURE_FROM
from evenhand.engines.schema import Frame, Words
from evenhand.inputs import FloatArray
from evenhand.rules.setting import MARGIN_ROUNDING
from evenhand.search import Problem
from evenhand.search.problem import typical_size

FEWEST_DIRECTIONS, MOST_DIRECTIONS, DIRECTIONS_AT_ONCE = 256, 2048, 8
# Near the centre bins are as fine as directions, up to the distance where rows are usually brought back.
SCALES = _kernels.Bins(2.0**-8, (4, 4, 8), (512, 128, 16), 4 * 512 + 4 * 128 + 8 * 16)
HALF = SCALES.half
BINS = 2 * HALF
# A direction has one place more than bins, so that what is above the last one is there too.
ROW = BINS + 1
# Contrasts this small against their terms have a distance that depends on the order of a sum.
UNSURE_TO = 2.0**-12


@dataclass(frozen=True)
class Grid:
    """How lines are distinguished: a number of directions, and bins of distance that are fine near the centre.

    ``never`` and ``delicate`` are the places of rows without a line, and of rows whose line depends on rounding.
    """

    directions: int

    @classmethod
    def of(cls, n_rows: int) -> Grid:
        """Return the grid for some rows: many directions add noise, as each has its own threshold; few add fuzz."""
        wanted = 2 ** round(np.log2(np.sqrt(n_rows) / 2.0))
        return cls(int(np.clip(wanted, FEWEST_DIRECTIONS, MOST_DIRECTIONS)))

    @property
    def places(self) -> int:
        """The number of bins."""
        return self.directions * ROW

    @property
    def never(self) -> int:
        """The place of rows that are decided 0 throughout; the next one is for those that are decided 1."""
        return self.places

    @property
    def delicate(self) -> int:
        """The place of rows whose line depends on rounding."""
        return self.places + 2

    @property
    def slots(self) -> int:
        """The number of places."""
        return self.places + 3

    @property
    def fuzz(self) -> float:
        """How far the thresholds of one direction's rows can be apart, at a distance of 1 from the centre."""
        return 4.0 / self.directions * (1.0 + 1e-6)

    @cached_property
    def units(self) -> FloatArray:
        """The middle of each direction, of shape (directions, 2)."""
        sides = self.directions // 2
        along = (np.arange(sides) + 0.5) * 2.0 / sides - 1.0
        return np.vstack([np.column_stack([sign * (1.0 - np.abs(along)), along]) for sign in (1.0, -1.0)])


@dataclass(frozen=True, eq=False)
class Lines:
    """The tally of lines: rows by direction and distance from a centre, by label and groups."""

    ground: Ground
    centre: FloatArray
    scale: FloatArray
    weighted: bool
    grid: Grid
    payload: tuple[str, ...] = ()
    width: int = 1
    # Kept between batches: to ask the system for memory for each takes as long as to fill it.
    _room: FloatArray = field(default_factory=lambda: np.empty((1, 0)), repr=False)

    def masks(self, level: int) -> Words:
        """Return that everything is kept."""
        return np.full(1, -1, dtype=np.int64)

    def where(self, dialect: str) -> None:
        """Return None: all rows are counted."""

    def keep(self, frame: Frame) -> Frame:
        """Return all rows."""
        return frame

    @property
    def slots(self) -> int:
        """How many different words there may be."""
        return self.grid.slots * self.ground.n_codes

    @property
    def _tie(self) -> float:
        return MARGIN_ROUNDING * sum(self.ground.options.costs)

    def sql(self, dialect: str) -> list[str]:
        """Return the words as SQL expressions."""
        return [f"({self.place(dialect)}) * {self.ground.n_codes} + {self.ground.code_text()}"]

    def place(self, dialect: str) -> str:
        """Return the SQL expression of a row's direction and distance, as one number."""
        g, sizes, size, level = self._texts(dialect)
        m = self.ground.linear.margin(dialect)
        x = f"(abs({level}) / {size} / {SCALES.finest!r} + 1)"
        octave = f"floor(log2({x}))"
        cases, before, octaves = [], 0, 0
        for number, bins in zip(SCALES.octaves, SCALES.bins, strict=True):
            bin_ = f"{before} + ({octave} - {octaves}) * {bins} + floor(({x} / pow(2, {octave}) - 1) * {bins})"
            before, octaves = before + number * bins, octaves + number
            cases.append(f"WHEN {octave} < {octaves} THEN {bin_}")
        inside = f"least(CASE {' '.join(cases)} ELSE {HALF - 1} END, {HALF - 1})"
        place = f"CASE WHEN {level} >= 0 THEN {HALF} + {inside} ELSE {HALF - 1} - {inside} END"
        if self.grid.directions > 1:
            sides = self.grid.directions // 2
            direction = f"least(floor(({g[1]} / {size} + 1) * {0.5 * sides!r}), {sides - 1})"
            place = f"({direction} + CASE WHEN {g[0]} < 0 THEN {sides} ELSE 0 END) * {ROW} + ({place})"
        never = " AND ".join(f"abs({one}) <= {UNSURE_FROM!r} * {all_}" for one, all_ in zip(g, sizes, strict=True))
        return (
            f"CASE WHEN {never} THEN {self.grid.never} + CASE WHEN {m} > {self._tie!r} THEN 1 ELSE 0 END"
            f" WHEN {size} <= {UNSURE_TO!r} * ({' + '.join(sizes)}) THEN {self.grid.delicate}"
            f" ELSE CAST({place} AS BIGINT) END"
        )

    def _texts(self, dialect: str) -> tuple[list[str], list[str], str, str]:
        """Return the SQL of each contrast, of its terms' size, of the size of all contrasts, and of the level."""
        linear, scale = self.ground.linear, self.scale.tolist()
        g = [f"({linear.contrast(k, dialect)} / {one!r})" for k, one in enumerate(scale)]
        sizes = [f"({linear.size(k, dialect)} / {one!r})" for k, one in enumerate(scale)]
        size = f"({' + '.join(f'abs({one})' for one in g)})"
        moved = " + ".join(f"{z!r} * {one}" for z, one in zip(self.centre.tolist(), g, strict=True))
        return g, sizes, size, f"({linear.margin(dialect)} - ({moved}))"

    def nearness(self, dialect: str) -> str:
        """Return the SQL expression of a row's distance from the centre; a delicate row's is 0."""
        _, sizes, size, level = self._texts(dialect)
        limit = 1.001 * UNSURE_TO
        return f"(CASE WHEN {size} > {limit!r} * ({' + '.join(sizes)}) THEN abs({level}) / {size} ELSE 0 END)"

    def words(self, frame: Frame) -> Words:
        """Return the words of some rows."""
        words = self.places(frame)
        words *= self.ground.n_codes
        words += self.ground.codes_of(frame)
        return words[:, None]

    @cached_property
    def form(self) -> _kernels.Form:
        """The margin and the contrasts, in units of the scale."""
        linear = self.ground.linear
        weights, constants, sizes, size_constants = (
            np.ascontiguousarray((part.T / self.scale).T)
            for part in (linear.weights, linear.constant, linear.sizes, linear.size_constant)
        )
        slope, constant = float(linear.costs[1] + linear.costs[0]), float(linear.costs[0])
        limits = float(self._tie), UNSURE_FROM, UNSURE_TO
        return _kernels.Form(slope, constant, weights, constants, sizes, size_constants, *limits)

    def places(self, frame: Frame) -> NDArray[np.int64]:
        """Return what :meth:`place` computes."""
        scores, n = self.scores(frame)
        places = np.empty(n, dtype=np.int64)
        _kernels.place_lines(scores, self.form, self.centre, self.grid.directions, SCALES, places)
        return places

    def scores(self, frame: Frame) -> tuple[FloatArray, int]:
        """Return the scores that the form is about, one after the other, and how many rows there are."""
        names, n = ("s0", *self.ground.linear.names), len(frame["s0"])
        if self._room.shape[1] < n:
            object.__setattr__(self, "_room", np.empty((len(names), n)))
        for k, name in enumerate(names):
            self._room[k, :n] = frame[name]
        return self._room, n

    def empty(self) -> NDArray[Any]:
        """Return room for the weight of each word."""
        small = not self.weighted and self.ground.n_rows < 1 << 32
        return np.zeros(self.slots, dtype=np.uint32 if small else np.float64)


@dataclass(frozen=True, eq=False)
class InSquare:
    """The choice of the rows whose lines cut the square of some bins around the centre, and of the delicate ones."""

    tally: Lines
    bins: int
    loose: bool = True

    def where(self, dialect: str) -> str:
        """Return the SQL condition, or a quick one that leaves a few more, which :meth:`keep` removes."""
        place = self.tally.place(dialect)
        if dialect == "duckdb":
            return f"{self.tally.nearness(dialect)} <= {1.001 * float(EDGES[HALF + self.bins])!r}"
        first, last = HALF - self.bins, HALF + self.bins - 1
        delicate, places = self.tally.grid.delicate, self.tally.grid.places
        near = f"({place}) < {places} AND ({place}) % {ROW} BETWEEN {first} AND {last}"
        return f"({place}) = {delicate} OR ({near})"

    def keep(self, frame: Frame) -> NDArray[np.bool_]:
        """Tell which rows are wanted."""
        place = self.tally.places(frame)
        at = place % ROW
        found: NDArray[np.bool_] = (place == self.tally.grid.delicate) | (
            (place < self.tally.grid.places) & (at >= HALF - self.bins) & (at < HALF + self.bins)
        )
        return found


def _edges() -> FloatArray:
    side, octave = [], 0
    for octaves, bins in zip(SCALES.octaves, SCALES.bins, strict=True):
        for _ in range(octaves):
            side.append(SCALES.finest * (2.0**octave * (1.0 + np.arange(bins) / bins) - 1.0))
            octave += 1
    whole = np.append(np.concatenate(side), np.inf)
    return np.concatenate([-whole[:0:-1], whole])


EDGES = _edges()


class LineCounts:
    """The weight of each direction and distance, by label and groups, and what they say about boxes of z.

    ``above`` (directions, bins + 1, codes) has the weight of the bins from each on.
    """

    def __init__(self, tally: Lines, counts: NDArray[Any]) -> None:
        ground, grid = tally.ground, tally.grid
        self.ground, self.grid = ground, grid
        self.units = ground.units[ground.kind_of_code]
        apart = counts[grid.places * ground.n_codes :].reshape(3, -1).astype(np.float64)
        self.constant = apart[1] @ self.units
        self.constant[0] += ground.problem.offset
        self.loose = self.units * apart[2][:, None]
        self.delicate = float(apart[2].sum())
        self.above = counts[: grid.places * ground.n_codes].reshape(grid.directions, ROW, ground.n_codes)
        _kernels.sum_from_each_on(self.above)

    @cached_property
    def by_grid(self) -> list[tuple[Grid, NDArray[Any]]]:
        """The same counts in grids of fewer directions, the fewest first: enough for boxes that are wide."""
        found = [(self.grid, self.above)]
        while found[0][0].directions >= DIRECTIONS_AT_ONCE * FEWEST_DIRECTIONS:
            few = Grid(found[0][0].directions // DIRECTIONS_AT_ONCE)
            apart = found[0][1].reshape(few.directions, DIRECTIONS_AT_ONCE, ROW, -1)
            found.insert(0, (few, apart.sum(axis=1, dtype=apart.dtype)))
        return found

    def sums_at(self, place: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return about what the rule at a distance from the centre adds up to, utility and values, and how unsure."""
        on, unsure = (np.zeros(self.ground.n_codes) for _ in range(2))
        reach = self.grid.fuzz * float(np.abs(place).max()) + _kernels.MARGIN
        _kernels.sums_at_place(self.above, self.grid.units, place, reach, SCALES, on, unsure)
        return self.constant + on @ self.units, unsure @ np.abs(self.units) + np.abs(self.loose).sum(axis=0)

    def check(self, found: float, bins: int) -> None:
        """Raise :class:`InputError` where the rows brought back do not weigh what those counted did."""
        check_weight(found, self.open_rows(bins) + self.delicate)

    def open_rows(self, bins: int) -> float:
        """Return the weight of the rows whose lines cut the square of some bins."""
        return float(self.weight_from(HALF - bins).sum() - self.weight_from(HALF + bins).sum())

    def rows_cutting(self, place: FloatArray, axes: FloatArray) -> float:
        """Return about how many rows have lines that cut the parallelogram of some axes around a place; not fewer."""
        threshold, reach = self.grid.units @ place, np.abs(self.grid.units @ axes).sum(axis=1)
        reach = reach + self.grid.fuzz * float(np.abs(place).max() + np.abs(axes).sum())
        low = (np.searchsorted(EDGES, threshold - reach) - 1).clip(0, BINS)
        high = np.searchsorted(EDGES, threshold + reach).clip(0, BINS)
        each = np.arange(self.grid.directions)
        weight = self.above[each, low].sum(dtype=np.float64) - self.above[each, high].sum(dtype=np.float64)
        return float(weight) * self.ground.n_rows / max(float(self.weight_from(0).sum()), 1e-300)

    def sure(self, bins: int) -> FloatArray:
        """Return the sums of the rows that are decided 1 throughout the square of some bins."""
        sums: FloatArray = self.constant + self.weight_from(HALF + bins) @ self.units
        return sums

    def weight_from(self, first: int) -> FloatArray:
        """Return the weight of each code from some bin on, in all directions."""
        weight: FloatArray = self.above[:, first].sum(axis=0, dtype=np.float64)
        return weight


def problem_inside(ground: Ground, raw: RawRows, sure: FloatArray) -> Problem:
    """Return the problem of some rows, and one more that stands for all others: ``sure`` is what those add up to."""
    margin, contrasts, table = ground.arrays(raw)
    constant = sure.copy()
    constant[0] -= ground.problem.offset

    def decide(z: FloatArray) -> NDArray[np.bool_]:
        return np.append(ground.decide(raw, z), True)

    together = np.vstack([table, constant])
    return ground.problem_of(
        np.append(margin, 1.0), np.vstack([contrasts, np.zeros(ground.dimension)]), together, decide
    )


def moved(problem: Problem, origin: FloatArray, axes: FloatArray) -> Problem:
    """Return a problem in other coordinates: z is ``origin + axes @ y``."""
    return replace(
        problem, margin=problem.margin - problem.contrasts @ origin, contrasts=problem.contrasts @ axes, decider=None
    )


def scale_of(contrasts: FloatArray) -> FloatArray:
    """Return a typical size of each contrast, as a power of two."""
    return np.array([2.0 ** np.round(np.log2(typical_size(column))) for column in contrasts.T])
