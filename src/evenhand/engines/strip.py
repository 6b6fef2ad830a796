"""K = 2: the rows that are open in a narrow part of the plane, and the best rule there.

Rules that meet the bounds and are nearly as good as the best lie along a curve, so what the counts of lines leave is a
narrow strip of z. Rows are brought back whose lines cut the strip; the others are constant in it, and their sums are
known. The branch and bound of :mod:`evenhand.search.certified` solves the strip.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import _kernels
from evenhand.engines.distances import HALF, Grid, InSquare, LineCounts, Lines, View, moved, problem_inside
from evenhand.engines.exclusion import shrunk
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.schema import Frame
from evenhand.inputs import FloatArray
from evenhand.search import Certified, Problem
from evenhand.search.certified import search_box
from evenhand.search.problem import Stopped
from evenhand.search.sweep import Best, centred

# Where so many rows are open, they are counted around the best rule known before they are searched one by one.
FEW_ROWS, PARTS, SMALL = 300_000, 8, 1e-6
# How much larger than its boxes a strip is, for what rounding does to a corner.
OVERLAP = 1e-6
DIRECTIONS, LARGEST_ASPECT, ROWS_FOR_SIZES = 128, 256.0, 50_000
ROUNDS = ((1 / 16, 1000, 0.0), (1 / 64, 1000, 0.0))


@dataclass(frozen=True, eq=False)
class Strip:
    """A parallelogram around a place: ``centre + axes @ y`` for y in the square between -1 and 1, which is a box."""

    centre: FloatArray
    axes: FloatArray

    @classmethod
    def around(cls, boxes: FloatArray) -> Strip:
        """Return a narrow strip that holds some boxes (c1, c2, r1, r2)."""
        signs = np.array([(a, b) for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
        corners = (boxes[:, None, :2] + signs * boxes[:, None, 2:4]).reshape(-1, 2)
        return cls._along(np.linalg.eigh(np.cov(corners.T))[1][:, ::-1], corners)

    @classmethod
    def inside(cls, boxes: FloatArray, size: float) -> Strip | None:
        """Return a narrow strip that holds some boxes and is inside a square around 0; None where there is none."""
        strip = cls.around(boxes)
        if strip.reach > size:
            low, high = (boxes[:, :2] - boxes[:, 2:4]), (boxes[:, :2] + boxes[:, 2:4])
            strip = cls._along(np.eye(2), np.vstack([low, high]))
        return strip if strip.reach <= size else None

    @property
    def reach(self) -> float:
        """The radius of the smallest square around 0 that it is inside."""
        return float((np.abs(self.centre) + np.abs(self.axes).sum(axis=1)).max())

    @classmethod
    def _along(cls, axes: FloatArray, corners: FloatArray) -> Strip:
        """Return the strip of some points, along orthogonal axes of size 1."""
        along = corners @ axes
        low, high = along.min(axis=0), along.max(axis=0)
        return cls(axes @ (0.5 * (low + high)), axes * (0.5 * (high - low) * (1.0 + OVERLAP)))


def pieces(boxes: FloatArray, counts: LineCounts, most: int) -> list[Strip]:
    """Return strips that hold some boxes, one after the other, each with few enough open rows to be brought back."""
    strip = Strip.around(boxes)
    number = int(np.ceil(counts.rows_cutting(strip.centre, strip.axes) / most))
    order = np.argsort(boxes[:, :2] @ strip.axes[:, 0], kind="stable")
    return [Strip.around(boxes[some]) for some in np.array_split(order, np.clip(number, 1, len(boxes)))]


@dataclass(eq=False)
class InStrip:
    """The choice of the rows whose lines cut a strip inside a square; ``sure`` gets those of the square that do not.

    It is for one reading: it remembers the weight of each code that is decided 1 throughout, and that of all rows.
    """

    tally: Lines
    bins: int
    strip: Strip
    sure: FloatArray
    weight: float = 0.0
    loose: bool = True
    _square: InSquare = field(init=False)

    def __post_init__(self) -> None:
        self._square = InSquare(self.tally, self.bins)

    def where(self, dialect: str) -> str | None:
        """Return the SQL condition, which is that of the square."""
        return self._square.where(dialect)

    def keep(self, frame: Frame) -> NDArray[np.bool_]:
        """Tell which rows are wanted, and add the others of the square up."""
        return self.cut(arrays_of(self.tally, frame))

    def cut(self, rows: tuple[FloatArray, NDArray[np.int64], FloatArray]) -> NDArray[np.bool_]:
        """Do what :meth:`keep` does, given :func:`arrays_of` the rows."""
        tally, origin = self.tally, self.tally.view.origin
        kept = np.zeros(len(rows[1]), dtype=bool)
        where = origin, origin + self.strip.centre, self.strip.axes
        self.weight += _kernels.cut_strip(rows, tally.form, where, self.bins, HALF, self.sure, kept)
        return kept


def arrays_of(tally: Lines, frame: Frame) -> tuple[FloatArray, NDArray[np.int64], FloatArray]:
    """Return the scores, codes and weights of rows; no weights stand for ones."""
    weight = np.ascontiguousarray(frame.get("w" if tally.weighted else "n", np.empty(0)), dtype=np.float64)
    return tally.scores.of(frame)[0], tally.ground.codes_of(frame), weight


@dataclass(frozen=True, eq=False)
class Found:
    """The best rule of a strip, the problem that counts it, and a bound on all rules."""

    utility: float
    z: FloatArray
    bound: float
    problem: Problem
    nodes: int
    stopped: Stopped | None

    def better(self, other: Found | None) -> Found:
        """Return the better one of two, with what is known of both."""
        if other is None:
            return self
        best = self if self.utility >= other.utility else other
        bound, nodes = max(self.bound, other.bound), self.nodes + other.nodes
        return replace(best, bound=bound, nodes=nodes, stopped=self.stopped or other.stopped)


def solve_strip(choice: InStrip, sure: FloatArray, raw: RawRows, multipliers: FloatArray, place: FloatArray) -> Found:
    """Return the best rule of a strip, given the rows that are open in it, prices and the z of a good rule.

    ``sure`` is what all other rows add up to.
    """
    ground, view = choice.tally.ground, inside(choice.tally.view, choice.strip)
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    part = Part(ground, view, raw, sure)
    parts, sums = [part], part.counted(place)
    if len(raw) > FEW_ROWS and ground.meets(sums):
        parts, place = _smaller_parts(part, place, sums, multipliers)
    found: Found | None = None
    for part in parts:
        found = solve_part(part, solver, place if found is None else found.z, found).better(found)
    assert found is not None
    return found


def solve_part(part: Part, solver: Certified, place: FloatArray, known: Found | None) -> Found:
    """Return the best rule of a part that is better than what is known, or the one at a place."""
    whole = problem_inside(part.ground, part.raw, part.sure)
    best = Best.none(whole)
    if known is None:
        best.offer(whole, place)
    if not len(part.raw):
        best.offer(whole, part.view.centre)
        return Found(float(best.utility[0]), best.z[0], float(best.utility[0]) + solver.gap, whole, 0, None)
    local = moved(whole, part.view.centre, part.view.axes)
    to_beat = float(best.utility[0]) if known is None else known.utility
    seed = part.ground.options.random_state
    claimed, bound, nodes, stopped = search_box(local, solver, np.ones(2), seed, to_beat)
    best.join(_settled(whole, claimed, part.view.centre, part.view.axes))
    utility = float(best.utility[0])
    # What was excluded before is not better than the best by more than the gap asked for.
    return Found(utility, best.z[0], max(bound, max(utility, to_beat) + solver.gap), whole, nodes, stopped)


def inside(view: View, strip: Strip) -> View:
    """Return the coordinates in which a strip of a view is a square of size 1."""
    return View(view.at(strip.centre), view.axes @ strip.axes)


@dataclass(frozen=True, eq=False)
class Part:
    """The square of a view, the rows that are open in it, and what all others add up to."""

    ground: Ground
    view: View
    raw: RawRows
    sure: FloatArray

    def counted(self, z: FloatArray) -> FloatArray:
        """Return the utility and the values of a rule in the square."""
        ground, on = self.ground, self.ground.decide(self.raw, z)
        weight = np.bincount(ground.codes_of(self.raw.frame)[on], self.raw.weight[on], ground.n_codes)
        sums: FloatArray = self.sure + weight @ ground.units[ground.kind_of_code]
        return sums


def _smaller_parts(
    part: Part, z: FloatArray, known: FloatArray, multipliers: FloatArray
) -> tuple[list[Part], FloatArray]:
    """Return parts of a part with everything better than a rule z, and the best rule found on the way.

    The rows are counted again around z: as they are few, in finer bins. The first part holds that rule.
    """
    ground, raw = part.ground, part.raw
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    near, aspect = _by_size(ground, raw, View(z, part.view.axes))
    frame = {**raw.frame, "w" if raw.weighted else "n": raw.weight}
    tally = Lines(ground, near, raw.weighted, Grid(DIRECTIONS, aspect))
    counted = tally.empty()
    _kernels.add_dense(tally.words(frame)[:, 0], np.ascontiguousarray(raw.weight), counted)
    counts = LineCounts(tally, counted)
    # In these coordinates, a row whose contrasts were nearly rounding may have none.
    counts.constant = sure = part.sure + counts.always
    boxes = np.array([[*np.linalg.solve(near.axes, part.view.centre - z), 1.0, 1.0, 1.0, 1.0]])
    for one in ROUNDS:
        boxes, _, place, _ = shrunk(counts, boxes, (multipliers, float(known[0]), solver.gap), (one,))
        # Counts only make a rule likely: here it is counted on its rows.
        sums = part.counted(near.at(place))
        if ground.meets(sums) and sums[0] > known[0]:
            z, known = near.at(place), sums
    middle = np.linalg.solve(near.axes, z - near.centre)
    own = np.array([[*middle, SMALL, SMALL]])
    strips = [Strip.around(own)]
    if len(boxes):
        order = _along_rows(boxes, aspect)
        strips += [Strip.around(boxes[some, :4]) for some in np.array_split(order, min(PARTS, len(boxes)))]
    found, rows = [], arrays_of(tally, frame)
    for strip in strips:
        choice = InStrip(tally, HALF, strip, np.zeros(ground.n_codes))
        kept = np.flatnonzero(choice.cut(rows))
        found.append(Part(ground, inside(near, strip), raw.take(kept), sure + choice.sure @ counts.units))
    return found, z


def _along_rows(boxes: FloatArray, aspect: float) -> NDArray[np.intp]:
    """Return the order of boxes along their strip, in units in which equally many rows turn along both axes."""
    scaled = boxes[:, :4] / np.array([1.0, aspect, 1.0, aspect])
    return np.argsort(scaled[:, :2] @ Strip.around(scaled).axes[:, 0], kind="stable")


def _by_size(ground: Ground, raw: RawRows, view: View) -> tuple[View, float]:
    """Return a view with the axis first along which contrasts are larger, and how much larger."""
    linear = ground.linear.along(view.axes)
    some = slice(0, None, 1 + len(raw) // ROWS_FOR_SIZES)
    columns = np.column_stack([raw.frame[name][some] for name in linear.names])
    sizes = np.maximum(np.median(np.abs(columns @ linear.weights.T + linear.constant), axis=0), 1e-300)
    order = np.argsort(-sizes)
    aspect = float(min(sizes[order[0]] / sizes[order[1]], LARGEST_ASPECT))
    return View(view.centre, np.ascontiguousarray(view.axes[:, order])), aspect


def _settled(whole: Problem, claimed: Best, origin: FloatArray, axes: FloatArray) -> Best:
    """Return a claim as the rule that it is, counted on its own decisions, and inside its part of the strip."""
    best = Best.none(whole)
    if np.isfinite(claimed.utility[0]):
        z = origin + axes @ claimed.z[0]
        best.offer(whole, z)
        if claimed.utility[0] > best.utility[0] + whole.resolution:
            middle = centred(whole, z)
            if (np.abs(np.linalg.solve(axes, middle - origin)) <= 1.0).all():
                best.offer(whole, middle, anywhere=True)
            best.offer(whole, z, anywhere=True)
    return best
