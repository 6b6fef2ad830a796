"""Rows by their distance from a centre: which are constant inside a square of z, and which are not.

In units of typical contrasts, with the size of a row's contrasts being the sum of all of them, the rows that are open
in a cube around a centre are those whose distance |m - z . g| / size is below the cube's radius. In the plane the
direction of a row's contrasts is counted too.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import _kernels
from evenhand.engines.gathering import RawRows, check_weight
from evenhand.engines.ground import Columnar, Ground
from evenhand.engines.line import UNSURE_FROM
from evenhand.engines.schema import Frame, Words
from evenhand.inputs import FloatArray
from evenhand.rules.scores import products
from evenhand.search import Problem
from evenhand.search.problem import typical_size

FEWEST_DIRECTIONS, MOST_DIRECTIONS, DIRECTIONS_AT_ONCE = 128, 1024, 2
# Bins of d / (1 + |d|): they are fine up to where rows are usually brought back, which is about 1 in units of the axes.
HALF = 1 << 11
BINS = 2 * HALF
# A direction has one place more than bins, so that what is above the last one is there too.
ROW = BINS + 1
# Contrasts this small against their terms have a distance that depends on the order of a sum.
UNSURE_TO = 2.0**-12


@dataclass(frozen=True)
class Grid:
    """How lines are distinguished: a number of directions, and bins of distance that are fine near the centre.

    A direction is which contrast is the larger one, its sign, and the other one in units of it: ``slopes``. Where the
    first is the larger one, slopes around 0 are finer by ``aspect``. ``never`` and ``delicate`` are the places of rows
    without a line, and of rows whose line depends on rounding.
    """

    directions: int
    aspect: float = 1.0

    @classmethod
    def of(cls, n_rows: int, aspect: float = 1.0) -> Grid:
        """Return the grid for some rows: many directions add noise, as each has its own threshold; few add fuzz."""
        wanted = 2 ** round(np.log2(3.0 * np.cbrt(n_rows)))
        return cls(int(np.clip(wanted, FEWEST_DIRECTIONS, MOST_DIRECTIONS)), aspect)

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

    @cached_property
    def _slopes(self) -> FloatArray:
        """The edges of the slopes where the first contrast is the larger one, and where the second one is."""
        shares = np.linspace(-1.0, 1.0, self.directions // 4 + 1)
        return np.vstack([shares / (self.aspect - (self.aspect - 1.0) * np.abs(shares)), shares])

    def fuzz(self, first: float, second: float) -> FloatArray:
        """Return how far a row's threshold can be from that of its direction, where z is so far from the centre."""
        fuzz: FloatArray = self._widths[0] * second + self._widths[1] * first
        return fuzz

    def mean_fuzz(self, weight: FloatArray) -> FloatArray:
        """Return the mean of :meth:`fuzz` for directions of some weight, for each unit of both distances."""
        second, first = self._widths @ weight / max(float(weight.sum()), 1e-300)
        return np.array([first, second])

    @cached_property
    def _widths(self) -> FloatArray:
        """Half of the width of each direction's slopes, where the first contrast is the larger one and where not."""
        half = 0.5 * np.diff(self._slopes) * (1.0 + 1e-6) + 1e-12
        none = np.zeros(self.directions // 2)
        return np.vstack([np.concatenate([half[0], half[0], none]), np.concatenate([none, half[1], half[1]])])

    @cached_property
    def units(self) -> FloatArray:
        """The middle of each direction, of shape (directions, 2)."""
        one = np.ones(self.directions // 4)
        first, second = 0.5 * (self._slopes[:, 1:] + self._slopes[:, :-1])
        signs = 1.0, -1.0
        return np.vstack(
            [np.column_stack([sign * one, first]) for sign in signs]
            + [np.column_stack([second, sign * one]) for sign in signs]
        )


@dataclass(frozen=True, eq=False)
class View:
    """A place in the space of z, and axes, the columns of a matrix: coordinates y with ``z = centre + axes @ y``."""

    centre: FloatArray
    axes: FloatArray

    def at(self, y: FloatArray) -> FloatArray:
        """Return the z of some coordinates."""
        z: FloatArray = self.centre + self.axes @ y
        return z

    @cached_property
    def origin(self) -> FloatArray:
        """The centre in units of the axes."""
        origin: FloatArray = np.linalg.solve(self.axes, self.centre).astype(np.float64)
        return origin


@dataclass(frozen=True, eq=False)
class Lines:
    """The tally of lines: rows by direction and distance from a centre, by label and groups."""

    ground: Ground
    view: View
    weighted: bool
    grid: Grid
    payload: tuple[str, ...] = ()
    width: int = 1

    def masks(self, level: int) -> Words:
        """Return that everything is kept."""
        return np.full(1, -1, dtype=np.int64)

    def where(self, dialect: str) -> None:
        """Return None: all rows are counted."""

    def keep(self, frame: Frame) -> Frame:
        """Return all rows."""
        return frame

    def sql(self, dialect: str) -> list[str]:
        """Return the words as SQL expressions."""
        return [f"({self.place(dialect)}) * {self.ground.n_codes} + {self.ground.code_text()}"]

    def place(self, dialect: str) -> str:
        """Return the SQL expression of a row's direction and distance, as one number."""
        g, sizes, size, level = self._texts(dialect)
        m = self.ground.linear.margin(dialect)
        unit = size if self.grid.directions == 1 else f"greatest(abs({g[0]}), abs({g[1]}))"
        place = f"least(floor(({level} / ({unit} + abs({level})) + 1) * {HALF}), {BINS - 1})"
        if self.grid.directions > 1:
            sides, aspect, larger = self.grid.directions // 4, self.grid.aspect, f"abs({g[0]}) >= abs({g[1]})"
            share = (
                f"CASE WHEN {larger} THEN {aspect!r} * {g[1]} / (abs({g[0]}) + {aspect - 1.0!r} * abs({g[1]}))"
                f" ELSE {g[0]} / abs({g[1]}) END"
            )
            side = (
                f"CASE WHEN {larger} THEN CASE WHEN {g[0]} < 0 THEN {sides} ELSE 0 END"
                f" WHEN {g[1]} < 0 THEN {3 * sides} ELSE {2 * sides} END"
            )
            direction = f"least(floor((({share}) + 1) * {0.5 * sides!r}), {sides - 1})"
            place = f"({direction} + {side}) * {ROW} + ({place})"
        never = " AND ".join(f"abs({one}) <= {UNSURE_FROM!r} * {all_}" for one, all_ in zip(g, sizes, strict=True))
        return (
            f"CASE WHEN {never} THEN {self.grid.never} + CASE WHEN {m} > {self.form.tie!r} THEN 1 ELSE 0 END"
            f" WHEN {size} <= {UNSURE_TO!r} * ({' + '.join(sizes)}) THEN {self.grid.delicate}"
            f" ELSE CAST({place} AS BIGINT) END"
        )

    def _texts(self, dialect: str) -> tuple[list[str], list[str], str, str]:
        """Return the SQL of each contrast, of its terms' size, of the size of all contrasts, and of the level."""
        linear = self.ground.linear.along(self.view.axes)
        each = range(self.ground.dimension)
        g, sizes = [linear.contrast(k, dialect) for k in each], [linear.size(k, dialect) for k in each]
        size = f"({' + '.join(f'abs({one})' for one in g)})"
        moved = " + ".join(f"{y!r} * {one}" for y, one in zip(self.view.origin.tolist(), g, strict=True))
        return g, sizes, size, f"({linear.margin(dialect)} - ({moved}))"

    def words(self, frame: Frame) -> Words:
        """Return the words of some rows."""
        words = self.places(frame)
        words *= self.ground.n_codes
        words += self.ground.codes_of(frame)
        return words[:, None]

    @cached_property
    def form(self) -> _kernels.Form:
        """The margin and the contrasts, along the axes."""
        return self.ground.linear.form(self.view.axes, UNSURE_FROM, UNSURE_TO)

    @cached_property
    def scores(self) -> Columnar:
        """What makes an array of the scores of rows."""
        return Columnar(("s0", *self.ground.linear.names))

    def places(self, frame: Frame) -> NDArray[np.int64]:
        """Return what :meth:`place` computes."""
        scores, n = self.scores.of(frame)
        places = np.empty(n, dtype=np.int64)
        if self.grid.directions == 1:
            _kernels.place_distances(scores, self.form, self.view.origin, HALF, places)
        else:
            grid = self.grid.directions, self.grid.aspect
            _kernels.place_lines(scores, self.form, self.view.origin, grid, HALF, places)
        return places

    def empty(self) -> NDArray[Any]:
        """Return space for the weight of each word."""
        return self.ground.empty(self.grid.slots, self.weighted)


@dataclass(frozen=True, eq=False)
class InSquare:
    """The choice of the rows whose lines cut the square of some bins around the centre, and of the delicate ones."""

    tally: Lines
    bins: int
    loose: bool = True

    def where(self, dialect: str) -> str | None:
        """Return the SQL condition; none for DuckDB, which takes longer than :meth:`keep`."""
        if dialect == "duckdb":
            return None
        place = self.tally.place(dialect)
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
    share = np.arange(1, BINS) / HALF - 1.0
    return np.concatenate([[-np.inf], share / (1.0 - np.abs(share)), [np.inf]])


EDGES = _edges()


class LineCounts:
    """The weight of each direction and distance, by label and groups, and what they say about boxes of z.

    ``above`` (directions, bins + 1, codes) has the weight of the bins from each on.
    """

    def __init__(self, tally: Lines, counts: NDArray[Any]) -> None:
        ground, grid = tally.ground, tally.grid
        self.grid = grid
        self._apart = counts[grid.places * ground.n_codes :].reshape(3, -1).astype(np.float64)
        self._measure(ground)
        self.delicate = float(self._apart[2].sum())
        self.total = float(counts.sum(dtype=np.float64))
        self.above = counts[: grid.places * ground.n_codes].reshape(grid.directions, ROW, ground.n_codes)
        _kernels.sum_from_each_on(self.above)

    def _measure(self, ground: Ground) -> None:
        """Set what a unit of weight adds to the utility and the values of a ground."""
        self.ground = ground
        self.units = ground.units[ground.kind_of_code]
        self.always = self._apart[1] @ self.units
        self.constant = self.always.copy()
        self.constant[0] += ground.problem.offset
        self.loose = self.units * self._apart[2][:, None]
        self.loose_weight = float(self._apart[2].sum())
        self._sizes, self._loose_sizes = np.abs(self.units), np.abs(self.loose).sum(axis=0)

    def under(self, ground: Ground) -> LineCounts:
        """Return the same counts for another utility or other bounds, those of :meth:`Ground.under`."""
        assert self.by_grid
        found = copy.copy(self)
        found._measure(ground)
        return found

    def deciding(self, sure: FloatArray) -> LineCounts:
        """Return the same counts for a part of the plane in which some delicate rows are surely decided.

        ``sure`` (2, codes) has the weight of those that are decided 0, and 1.
        """
        assert self.by_grid
        found = copy.copy(self)
        found._apart = self._apart.copy()
        found._apart[1] += sure[1]
        found._apart[2] = np.maximum(found._apart[2] - sure.sum(axis=0), 0.0)
        found._measure(self.ground)
        return found

    @cached_property
    def by_grid(self) -> list[tuple[Grid, NDArray[Any], FloatArray]]:
        """The same counts in grids of fewer directions, the fewest first, and the mean fuzz of their rows."""
        found = [(self.grid, self.above, self._mean_fuzz(self.grid, self.above))]
        while found[0][0].directions >= 4 * DIRECTIONS_AT_ONCE:
            few = Grid(found[0][0].directions // DIRECTIONS_AT_ONCE, self.grid.aspect)
            apart = found[0][1].reshape(few.directions, DIRECTIONS_AT_ONCE, ROW, -1)
            above = apart.sum(axis=1, dtype=apart.dtype)
            found.insert(0, (few, above, self._mean_fuzz(few, above)))
        return found

    def _mean_fuzz(self, grid: Grid, above: NDArray[Any]) -> FloatArray:
        # Boxes are about the rows near the centre.
        low, high = (above[:, edge].sum(axis=1, dtype=np.float64) for edge in (HALF // 2, HALF + HALF // 2))
        return grid.mean_fuzz(low - high)

    def sums_at(self, place: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return about what the rule at a distance from the centre adds up to, utility and values, and how unsure."""
        on, unsure = self.weight_at(place)
        return self.constant + on @ self.units, unsure @ self._sizes + self._loose_sizes

    def weight_at(self, place: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return about the weight of each code that the rule at a distance from the centre selects, and how unsure."""
        on, unsure = np.empty((2, self.ground.n_codes))
        fuzz = self.grid.fuzz(*np.abs(place)) + _kernels.MARGIN
        _kernels.sums_at_place(self.above, self.grid.units, place, fuzz, HALF, on, unsure)
        return on, unsure

    def check_all(self) -> None:
        """Raise :class:`InputError` where the rows do not weigh what those of the first pass did."""
        check_weight(self.total, float(self.ground.atoms.weight.sum()))

    def check(self, found: float, bins: int) -> None:
        """Raise :class:`InputError` where the rows brought back do not weigh what those counted did."""
        check_weight(found, self.open_rows(bins) + self.delicate)

    def open_rows(self, bins: int) -> float:
        """Return the weight of the rows whose lines cut the square of some bins."""
        return float(self.weight_from(HALF - bins).sum() - self.weight_from(HALF + bins).sum())

    def rows_cutting(self, place: FloatArray, axes: FloatArray) -> float:
        """Return about how many rows have lines that cut the parallelogram of some axes around a place; not fewer."""
        threshold, reach = self.grid.units @ place, np.abs(self.grid.units @ axes).sum(axis=1)
        reach = reach + self.grid.fuzz(*(np.abs(place) + np.abs(axes).sum(axis=1)))
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
    contrasts = products(problem.contrasts, axes.T)
    return replace(problem, margin=problem.margin - problem.contrasts @ origin, contrasts=contrasts, decider=None)


def scale_of(contrasts: FloatArray) -> FloatArray:
    """Return a typical size of each contrast, as a power of two."""
    return np.array([2.0 ** np.round(np.log2(typical_size(column))) for column in contrasts.T])
