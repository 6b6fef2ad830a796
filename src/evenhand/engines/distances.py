"""Rows by their distance from a centre: which are constant inside a square of z, and which are not.

In units of typical contrasts, with the size of a row's contrasts being the sum of all of them, the rows that are open
in a cube around a centre are those whose distance |m - z . g| / size is below the cube's radius. In the plane the
direction of a row's contrasts is counted too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

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

FEWEST_DIRECTIONS, MOST_DIRECTIONS = 256, 2048
A_OCTAVE, OCTAVES = 128, 16
HALF = A_OCTAVE * OCTAVES
BINS = 2 * HALF
FINEST_DISTANCE = 2.0**-12
# Contrasts this small against their terms have a distance that depends on the order of a sum.
UNSURE_TO = 2.0**-12
SCALES = (FINEST_DISTANCE, A_OCTAVE, HALF)


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
        return self.directions * BINS

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
        return [f"{self.ground.code_text()} * {self.grid.slots} + {self.place(dialect)}"]

    def place(self, dialect: str) -> str:
        """Return the SQL expression of a row's direction and distance, as one number."""
        g, sizes, size, level = self._texts(dialect)
        m = self.ground.linear.margin(dialect)
        x = f"(abs({level}) / {size} / {FINEST_DISTANCE!r} + 1)"
        octave = f"floor(log2({x}))"
        inside = f"least({octave} * {A_OCTAVE} + floor(({x} / pow(2, {octave}) - 1) * {A_OCTAVE}), {HALF - 1})"
        place = f"CASE WHEN {level} >= 0 THEN {HALF} + {inside} ELSE {HALF - 1} - {inside} END"
        if self.grid.directions > 1:
            sides = self.grid.directions // 2
            direction = f"least(floor(({g[1]} / {size} + 1) * {0.5 * sides!r}), {sides - 1})"
            place = f"({direction} + CASE WHEN {g[0]} < 0 THEN {sides} ELSE 0 END) * {BINS} + ({place})"
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
        return (self.ground.codes_of(frame) * self.grid.slots + self.places(frame))[:, None]

    def places(self, frame: Frame) -> NDArray[np.int64]:
        """Return what :meth:`place` computes."""
        m, contrasts, sizes = self.ground.linear.of(frame)
        g = np.ascontiguousarray((contrasts / self.scale).T)
        sizes = sizes / self.scale
        level = m - self.centre @ g
        size = np.abs(g).sum(axis=0)
        odd = size <= UNSURE_TO * sizes.sum(axis=1)
        g[:, odd], size[odd] = 1.0, 1.0
        places = np.empty(len(m), dtype=np.int64)
        if self.grid.directions > 1:
            _kernels.place_rows(level, g[0], g[1], self.grid.directions, *SCALES, places)
        else:
            _kernels.place_rows(level, size, np.zeros_like(size), 2, *SCALES, places)
        if odd.any():
            never = odd & (np.abs(contrasts / self.scale) <= UNSURE_FROM * sizes).all(axis=1)
            places[odd] = self.grid.delicate
            places[never] = self.grid.never + (m[never] > self._tie)
        return places


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
        near = f"({place}) < {places} AND ({place}) % {BINS} BETWEEN {first} AND {last}"
        return f"({place}) = {delicate} OR ({near})"

    def keep(self, frame: Frame) -> NDArray[np.bool_]:
        """Tell which rows are wanted."""
        place = self.tally.places(frame)
        at = place % BINS
        found: NDArray[np.bool_] = (place == self.tally.grid.delicate) | (
            (place < self.tally.grid.places) & (at >= HALF - self.bins) & (at < HALF + self.bins)
        )
        return found


def _edges() -> FloatArray:
    place = np.arange(HALF + 1)
    side = FINEST_DISTANCE * (2.0 ** (place // A_OCTAVE) * (1.0 + place % A_OCTAVE / A_OCTAVE) - 1.0)
    side[-1] = np.inf
    return np.concatenate([-side[:0:-1], side])


EDGES = _edges()


class LineCounts:
    """The weight of each direction and distance, by the effect of a unit of weight, and bounds on boxes of z."""

    def __init__(self, tally: Lines, words: Words, weight: FloatArray) -> None:
        ground, grid = tally.ground, tally.grid
        self.ground, self.grid = ground, grid
        code, place = np.divmod(words[:, 0], grid.slots)
        units = ground.units[ground.kind_of_code]
        self.kinds, kind = np.unique(units, axis=0, return_inverse=True)
        kind = kind.reshape(-1)[code]
        still, apart = place == grid.never + 1, place == grid.delicate
        self.constant = weight[still] @ units[code[still]]
        self.constant[0] += ground.problem.offset
        self.loose = units[code[apart]] * weight[apart, None]
        self.delicate = float(weight[apart].sum())
        inside = place < grid.places
        # For each kind and direction the weight of the bins from each on, of shape (directions, bins + 1).
        self.above: list[FloatArray] = []
        for k in range(len(self.kinds)):
            mine = inside & (kind == k)
            each = np.asarray(np.bincount(place[mine], weight[mine], grid.places), dtype=np.float64)
            self.above.append(_from_each_on(each.reshape(grid.directions, BINS)))

    def prices(self, price: FloatArray) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
        """Return what :func:`most_in_box` needs, for a price of each kind, and the most that delicate rows add."""
        worth = self.kinds @ price
        above, positive = (np.zeros((self.grid.directions, BINS + 1), dtype=np.float32) for _ in range(2))
        for one, part in zip(worth.tolist(), self.above, strict=True):
            weighted = (one * part).astype(np.float32)
            above += weighted
            if one > 0.0:
                positive += weighted
        return above, positive, float(np.maximum(self.loose @ price, 0.0).sum())

    def sums_at(self, place: FloatArray) -> FloatArray:
        """Return approximately the sums of the rule at a distance from the centre: utility and values."""
        threshold = self.grid.units @ place
        bins = np.searchsorted(EDGES, threshold).clip(0, BINS)
        on = np.array([part[np.arange(self.grid.directions), bins].sum() for part in self.above])
        sums: FloatArray = self.constant + on @ self.kinds
        return sums

    def unsure_at(self, place: FloatArray) -> FloatArray:
        """Return how far :meth:`sums_at` can be off."""
        threshold, fuzz = self.grid.units @ place, self.grid.fuzz * float(np.abs(place).max())
        low = (np.searchsorted(EDGES, threshold - fuzz - _kernels.MARGIN) - 1).clip(0, BINS)
        high = np.searchsorted(EDGES, threshold + fuzz + _kernels.MARGIN).clip(0, BINS)
        each = np.arange(self.grid.directions)
        mass = np.array([(part[each, low] - part[each, high]).sum() for part in self.above])
        unsure: FloatArray = mass @ np.abs(self.kinds) + np.abs(self.loose).sum(axis=0)
        return unsure

    def check(self, raw: RawRows, bins: int) -> None:
        """Raise :class:`InputError` if the fetched rows are not those that were counted."""
        check_weight(raw, self.open_rows(bins) + self.delicate)

    def open_rows(self, bins: int) -> float:
        """Return the weight of the rows whose lines cut the square of some bins."""
        return float(sum((part[:, HALF - bins] - part[:, HALF + bins]).sum() for part in self.above))

    def sure(self, bins: int) -> FloatArray:
        """Return the sums of the rows that are decided 1 throughout the square of some bins."""
        on = np.array([part[:, HALF + bins].sum() for part in self.above])
        sums: FloatArray = self.constant + on @ self.kinds
        return sums


def _from_each_on(weight: FloatArray) -> FloatArray:
    found = np.zeros((weight.shape[0], weight.shape[1] + 1))
    np.cumsum(weight[:, ::-1], axis=1, out=found[:, 1:], dtype=np.float64)
    return np.ascontiguousarray(found[:, ::-1])


def problems_inside(tally: Lines, counts: LineCounts, raw: RawRows, bins: int) -> tuple[Problem, Problem]:
    """Return the problem that is exact inside the square, and the same one with the square's centre as its origin."""
    ground = tally.ground
    margin, contrasts, table = ground.arrays(raw)
    constant = counts.sure(bins)
    constant[0] -= ground.problem.offset

    def decide(z: FloatArray) -> NDArray[np.bool_]:
        return np.append(ground.decide(raw, z), True)

    together = np.vstack([table, constant])
    whole = Problem(
        margin=np.append(margin, 1.0),
        contrasts=np.vstack([contrasts, np.zeros(ground.dimension)]),
        gain=together[:, 0],
        effects=together[:, 1:],
        lower=ground.problem.lower,
        upper=ground.problem.upper,
        offset=ground.problem.offset,
        mixing=ground.problem.mixing,
        decider=decide,
    )
    scaled = whole.contrasts / tally.scale
    local = replace(whole, margin=whole.margin - scaled @ tally.centre, contrasts=scaled, decider=None)
    return whole, local


def scale_of(contrasts: FloatArray) -> FloatArray:
    """Return a typical size of each contrast, as a power of two."""
    return np.array([2.0 ** np.round(np.log2(typical_size(column))) for column in contrasts.T])
