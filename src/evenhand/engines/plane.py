"""K = 2: the certified optimum of rows that do not fit in memory, by a square of z that holds everything good.

A row is a line in the plane of z, which has two parameters: its direction, that of the row's contrasts, and its signed
distance from a centre. So after labels and groups are counted (:mod:`ground`) and a sample has given a centre,

1. one pass counts the rows by direction and distance, finely where the distance is small;
2. rings of z around the centre, from infinity inwards, are excluded while the counts prove that no rule in them meets
   the bounds and is better than one that is known: in a box of z the rows of one direction turn at one threshold, up to
   a *fuzz* that is the width of the direction's bin times the box's distance from the centre;
3. one pass brings back the rows whose lines cut the square that is left; the others are constant in it, and their sums
   are known from the counts. The branch and bound of :mod:`evenhand.search.certified` solves the square.

Contrasts are measured in units of their typical size, and the size of a row's contrasts is the sum of both: then the
rows that are open in a square are those whose distance is below the square's radius.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from evenhand.engines import _kernels
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.line import UNSURE_FROM
from evenhand.engines.reading import Reader, TooManyError
from evenhand.engines.schema import Frame, Words
from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule
from evenhand.rules.setting import MARGIN_ROUNDING
from evenhand.search import Certified, Problem
from evenhand.search.certified import search_box
from evenhand.search.problem import FEASIBILITY_SLACK, conclude, typical_size
from evenhand.search.sweep import settled

FEWEST_DIRECTIONS, MOST_DIRECTIONS = 32, 2048
A_OCTAVE, OCTAVES = 128, 16
HALF = A_OCTAVE * OCTAVES
BINS = 2 * HALF
FINEST_DISTANCE = 2.0**-12
# Contrasts this small against their terms have a distance that depends on the order of a sum.
UNSURE_TO = 2.0**-12
SCALES = (FINEST_DISTANCE, A_OCTAVE, HALF)
FAR, RINGS_TO, RING = 1.0, 2.0**-10, 0.8
SMALLEST_PART = 1 / 256
MOST_BOXES = 4_000
MOST_CENTRES = 4


@dataclass(frozen=True)
class Grid:
    """How lines are told apart: so many directions, and bins of distance that are fine near the centre.

    ``never`` and ``delicate`` are the places of rows without a line, and of rows whose bin hangs on rounding.
    """

    directions: int

    @classmethod
    def of(cls, n_rows: int) -> Grid:
        """Return the grid for some rows: many directions cost noise, as each has its own threshold; few cost fuzz."""
        wanted = 2 ** round(np.log2(np.sqrt(n_rows) / 4.0))
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
        """The place of rows whose bin hangs on rounding."""
        return self.places + 2

    @property
    def slots(self) -> int:
        """The number of places."""
        return self.places + 3

    @property
    def fuzz(self) -> float:
        """How far the thresholds of one direction's rows can be apart, at a distance of 1 from the centre."""
        return 4.0 / self.directions * (1.0 + 1e-9)

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
        linear = self.ground.linear
        m, c = linear.margin(dialect), self.centre
        g = [f"({linear.contrast(k, dialect)} / {s!r})" for k, s in enumerate(self.scale.tolist())]
        sizes = [f"({linear.size(k, dialect)} / {s!r})" for k, s in enumerate(self.scale.tolist())]
        size = f"(abs({g[0]}) + abs({g[1]}))"
        level = f"({m} - ({float(c[0])!r} * {g[0]} + {float(c[1])!r} * {g[1]}))"
        sides = self.grid.directions // 2
        direction = f"least(floor(({g[1]} / {size} + 1) * {0.5 * sides!r}), {sides - 1})"
        direction = f"({direction} + CASE WHEN {g[0]} < 0 THEN {sides} ELSE 0 END)"
        x = f"(abs({level}) / {size} / {FINEST_DISTANCE!r} + 1)"
        octave = f"floor(log2({x}))"
        inside = f"least({octave} * {A_OCTAVE} + floor(({x} / pow(2, {octave}) - 1) * {A_OCTAVE}), {HALF - 1})"
        distance = f"CASE WHEN {level} >= 0 THEN {HALF} + {inside} ELSE {HALF - 1} - {inside} END"
        never = " AND ".join(f"abs({one}) <= {UNSURE_FROM!r} * {all_}" for one, all_ in zip(g, sizes, strict=True))
        return (
            f"CASE WHEN {never} THEN {self.grid.never} + CASE WHEN {m} > {self._tie!r} THEN 1 ELSE 0 END"
            f" WHEN {size} <= {UNSURE_TO!r} * ({sizes[0]} + {sizes[1]}) THEN {self.grid.delicate}"
            f" ELSE CAST({direction} * {BINS} + ({distance}) AS BIGINT) END"
        )

    def nearness(self, dialect: str) -> str:
        """Return the SQL expression of a row's distance from the centre; a delicate row's is 0."""
        linear = self.ground.linear
        m, c, s = linear.margin(dialect), self.centre.tolist(), self.scale.tolist()
        g = [f"({linear.contrast(k, dialect)} / {one!r})" for k, one in enumerate(s)]
        sizes = " + ".join(f"{linear.size(k, dialect)} / {one!r}" for k, one in enumerate(s))
        size = f"(abs({g[0]}) + abs({g[1]}))"
        level = f"abs({m} - ({c[0]!r} * {g[0]} + {c[1]!r} * {g[1]}))"
        return f"(CASE WHEN {size} > {UNSURE_TO!r} * ({sizes}) THEN {level} / {size} ELSE 0 END)"

    def words(self, frame: Frame) -> Words:
        """Return the words of some rows."""
        return (self.ground.codes_of(frame) * self.grid.slots + self.places(frame))[:, None]

    def places(self, frame: Frame) -> NDArray[np.int64]:
        """Return what :meth:`place` computes."""
        m, contrasts, sizes = self.ground.linear.of(frame)
        g = np.ascontiguousarray((contrasts / self.scale).T)
        sizes = sizes / self.scale
        level = m - (self.centre[0] * g[0] + self.centre[1] * g[1])
        size = np.abs(g).sum(axis=0)
        odd = size <= UNSURE_TO * sizes.sum(axis=1)
        g[:, odd] = 1.0
        places = np.empty(len(m), dtype=np.int64)
        _kernels.place_rows(level, g[0], g[1], self.grid.directions, *SCALES, places)
        places[places < 0] = self.grid.delicate
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

    def where(self, dialect: str) -> str:
        """Return the SQL condition; a quick one that leaves a little more, where :meth:`keep` looks at it again."""
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


class _Histogram:
    """The weight of each direction and distance, by what a unit of weight adds, and what they say about boxes of z."""

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
        inside = place < grid.places
        self.weight = np.zeros(
            (len(self.kinds), self.grid.directions, BINS), dtype=np.float32 if weight.max() < 2**23 else float
        )
        for k in range(len(self.kinds)):
            mine = inside & (kind == k)
            self.weight[k].reshape(-1)[place[mine]] = weight[mine]

    @cached_property
    def above(self) -> list[FloatArray]:
        """For each kind and direction the weight of the bins from each on, of shape (directions, bins + 1)."""
        return [_from_each_on(weight) for weight in self.weight]

    def prices(self, price: FloatArray) -> tuple[FloatArray, FloatArray, float]:
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
        """Return about what the rule at a distance from the centre adds up to: utility and values."""
        threshold = self.grid.units @ place
        bins = np.searchsorted(EDGES, threshold).clip(0, BINS)
        on = np.array([part[np.arange(self.grid.directions), bins].sum() for part in self.above])
        return self.constant + on @ self.kinds

    def unsure_at(self, place: FloatArray) -> FloatArray:
        """Return how far :meth:`sums_at` can be off."""
        threshold, fuzz = self.grid.units @ place, self.grid.fuzz * float(np.abs(place).max())
        low = (np.searchsorted(EDGES, threshold - fuzz - _kernels.MARGIN) - 1).clip(0, BINS)
        high = np.searchsorted(EDGES, threshold + fuzz + _kernels.MARGIN).clip(0, BINS)
        each = np.arange(self.grid.directions)
        mass = np.array([(part[each, low] - part[each, high]).sum() for part in self.above])
        return mass @ np.abs(self.kinds) + np.abs(self.loose).sum(axis=0)

    def open_rows(self, bins: int) -> float:
        """Return the weight of the rows whose lines cut the square of some bins."""
        return float(self.weight[:, :, HALF - bins : HALF + bins].sum(dtype=np.float64))

    def sure(self, bins: int) -> FloatArray:
        """Return the sums of the rows that are decided 1 throughout the square of some bins."""
        on = np.array([part[:, HALF + bins].sum() for part in self.above])
        return self.constant + on @ self.kinds


def _from_each_on(weight: FloatArray) -> FloatArray:
    found = np.zeros((weight.shape[0], weight.shape[1] + 1))
    np.cumsum(weight[:, ::-1], axis=1, out=found[:, 1:], dtype=np.float64)
    return np.ascontiguousarray(found[:, ::-1])


class _Exclusion:
    """Proofs that boxes of z hold nothing that meets the bounds and is better than a threshold."""

    def __init__(self, histogram: _Histogram, multipliers: FloatArray, threshold: float) -> None:
        self.histogram, self.threshold = histogram, threshold
        problem = histogram.ground.problem
        lower, upper = problem.lower[0], problem.upper[0]
        self.tests: list[tuple[FloatArray, FloatArray, float]] = []
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
        """Add a test: a rule is of interest only if its sums, at these prices, reach what is needed."""
        above, positive, loose = self.histogram.prices(price)
        constant = float(self.histogram.constant @ price) + loose
        # Single precision is off by no more than this, summed over all directions.
        slack = FEASIBILITY_SLACK + 2.0**-21 * float(np.abs(above).max(axis=1).sum() + positive[:, 0].sum())
        self.tests.append((above, positive, needed - constant - slack))

    def excluded(self, box: FloatArray) -> bool:
        """Tell whether a box (c1, c2, r1, r2, nearest, farthest) holds nothing of interest."""
        self.boxes += 1
        near = box[4] == box[5] == 1.0
        fuzz = self.histogram.grid.fuzz * (float(np.abs(box[:2]).max() + box[2:4].max()) if near else 1.0)
        return any(
            _kernels.most_in_box(above, positive, EDGES, self.histogram.grid.units, box, fuzz, near, SCALES) < needed
            for above, positive, needed in self.tests
        )

    def radius(self) -> float:
        """Return the radius of a square outside of which everything is excluded; infinite where there is none."""
        if not all(self._ring_excluded(part) for part in _far_parts()):
            return np.inf
        radius = FAR
        while radius > RINGS_TO and all(self._ring_excluded(part) for part in _ring_parts(radius * RING, radius)):
            radius *= RING
        return radius

    def _ring_excluded(self, box: FloatArray) -> bool:
        """Tell whether a part of a ring is excluded, by parts where it is not at once."""
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
                if size <= SMALLEST_PART and box[4] >= 1024.0 * FAR:
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
    if box[5] / box[4] > 1.0 + 2.0 * box[k] or not np.isfinite(box[5]):
        middle = 2.0 * box[4] if not np.isfinite(box[5]) else np.sqrt(box[4] * box[5])
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
    """Return the best rule of all rows, with its proof; the centre is a rule near it, in units of the scale."""
    grid = Grid.of(ground.n_rows)
    for _ in range(MOST_CENTRES):
        tally = Lines(ground, centre, scale, reader.weighted, grid)
        histogram = _Histogram(tally, *reader.count(tally))
        places = _places_to_try()
        sums = np.array([histogram.sums_at(place) for place in places])
        multipliers = _multipliers(ground.problem, sums)
        threshold, best = _best_known(histogram, places, sums)
        if not np.isfinite(threshold):
            # No rule is known: look again around the one nearest to the bounds.
            excess = [ground.problem.excess(one[1:]) for one in sums]
            centre = centre + places[int(np.argmin(excess))]
            continue
        found = _solve(tally, histogram, reader, multipliers, threshold)
        if found is not None:
            return found
        if not best.any():
            break
        centre = centre + best
    raise TooManyError


def _solve(
    tally: Lines, histogram: _Histogram, reader: Reader, multipliers: FloatArray, threshold: float
) -> Rule | None:
    """Return the best rule, or None where the square that is left is too large, or rounding made up the threshold."""
    ground = tally.ground
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    radius = _Exclusion(histogram, multipliers, threshold + solver.gap).radius()
    if not radius <= FAR:
        return None
    # One bin more than the square: what rounding puts beyond an edge is then still brought back.
    bins = int(np.searchsorted(EDGES, radius)) - HALF + 1
    if histogram.open_rows(bins) > 4.0 * reader.most * max(1.0, histogram.open_rows(HALF) / ground.n_rows):
        return None
    raw = reader.rows(InSquare(tally, bins))
    if raw is None:
        return None
    inner = float(EDGES[HALF + bins - 1])
    whole, local = _problems(tally, histogram, raw, bins)
    best, bound, nodes, stopped = search_box(local, solver, np.full(2, inner), ground.options.random_state)
    z = (tally.centre + best.z[0]) / tally.scale
    claimed = replace(best, z=z[None, :])
    kept = settled(whole, claimed)
    if not kept.utility[0] >= threshold - whole.resolution:
        return None
    solution = conclude(whole, 0, kept.z[0], upper_bound=max(bound, kept.utility[0]), nodes=nodes)
    return ground.rule(whole, replace(solution, stopped=stopped))


def _problems(tally: Lines, histogram: _Histogram, raw: RawRows, bins: int) -> tuple[Problem, Problem]:
    """Return the problem that is right inside the square, and the same one with the square's centre as its origin."""
    ground = tally.ground
    margin, contrasts, table = ground.arrays(raw)
    constant = histogram.sure(bins)
    constant[0] -= ground.problem.offset

    def decide(z: FloatArray) -> NDArray[np.bool_]:
        return np.append(ground.decide(raw, z), True)

    together = np.vstack([table, constant])
    whole = Problem(
        margin=np.append(margin, 1.0),
        contrasts=np.vstack([contrasts, np.zeros(2)]),
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


def _places_to_try() -> FloatArray:
    """Return rules around the centre: on circles that grow, and the centre itself."""
    angles = np.arange(48) * (2.0 * np.pi / 48)
    sizes = 2.0 ** np.arange(-9.0, 1.1, 0.5)
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


def _best_known(histogram: _Histogram, places: FloatArray, sums: FloatArray) -> tuple[float, FloatArray]:
    """Return the utility that some rule surely has that surely meets the bounds, and where it is."""
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


def scale_of(contrasts: FloatArray) -> FloatArray:
    """Return a typical size of each contrast, as a power of two."""
    return np.array([2.0 ** np.round(np.log2(typical_size(column))) for column in contrasts.T])
