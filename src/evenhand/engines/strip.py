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
from evenhand.engines.distances import SCALES, InSquare, LineCounts, Lines, moved, problem_inside
from evenhand.engines.gathering import RawRows
from evenhand.engines.schema import Frame
from evenhand.inputs import FloatArray
from evenhand.search import Certified, Problem
from evenhand.search.certified import search_box
from evenhand.search.problem import Stopped
from evenhand.search.sweep import Best, centred


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
        axes = np.linalg.eigh(np.cov(corners.T))[1][:, ::-1]
        along = corners @ axes
        low, high = along.min(axis=0), along.max(axis=0)
        # A little more than the boxes, for what rounding does to a corner.
        return cls(axes @ (0.5 * (low + high)), axes * (0.5 * (high - low) * (1.0 + 1e-6)))


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
        tally, ground = self.tally, self.tally.ground
        scores, n = tally.scores.of(frame)
        weight = np.ascontiguousarray(frame.get("w" if tally.weighted else "n", np.empty(0)), dtype=np.float64)
        origin = tally.view.origin
        kept = np.zeros(n, dtype=bool)
        self.weight += _kernels.cut_strip(
            (scores, ground.codes_of(frame), weight), tally.form, (origin, origin + self.strip.centre, self.strip.axes),
            self.bins, SCALES, self.sure, kept,
        )  # fmt: skip
        return kept


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


def tests_of(problem: Problem, multipliers: FloatArray, threshold: float) -> tuple[FloatArray, FloatArray]:
    """Return prices of utility and values, of shape (tests, 1 + C), and what a rule of interest makes of each at least.

    The first two, the utility itself and the Lagrangian at some multipliers, are about rules that are as good as a
    threshold: far inside the bounds the first tells more, along them the second. The others are the bounds.
    """
    lower, upper = problem.lower[0], problem.upper[0]
    limit = np.where(multipliers > 0.0, upper, np.where(multipliers < 0.0, lower, 0.0))
    tests = [np.eye(1 + len(lower))[0], np.concatenate([[1.0], -multipliers])]
    needed = [threshold, threshold - float(multipliers @ limit)]
    for c in range(len(lower)):
        unit = np.eye(1 + len(lower))[1 + c]
        if lower[c] > -np.inf:
            tests.append(unit)
            needed.append(float(lower[c]))
        if upper[c] < np.inf:
            tests.append(-unit)
            needed.append(-float(upper[c]))
    return np.array(tests), np.array(needed)


def solve_strip(choice: InStrip, counts: LineCounts, raw: RawRows) -> Found:
    """Return the best rule of a strip, given the rows that are open in it."""
    tally, ground = choice.tally, choice.tally.ground
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    sure = counts.sure(choice.bins) + choice.sure @ counts.units
    whole = problem_inside(ground, raw, sure)
    origin, axes = tally.view.at(choice.strip.centre), tally.view.axes @ choice.strip.axes
    local = moved(whole, origin, axes)
    claimed, bound, nodes, stopped = search_box(local, solver, np.ones(2), ground.options.random_state)
    best = _settled(whole, claimed, origin, axes)
    utility = float(best.utility[0])
    # What was excluded before is not better than the best by more than the gap asked for.
    return Found(utility, best.z[0], max(bound, utility + solver.gap), whole, nodes, stopped)


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
