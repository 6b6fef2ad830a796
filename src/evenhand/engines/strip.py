"""K = 2: the rows that are open in a narrow part of the plane, and the best rule there.

Rules that meet the bounds and are nearly as good as the best lie along a curve, so what the counts of lines leave is a
narrow strip of z. Rows are brought back whose lines cut the strip. Halving it settles nearly all of it at the cost of
some visits of each row: in a box the rows that are open may decide as they like, and at a box's centre there is a rule.
What is left has few open rows, and the branch and bound of :mod:`evenhand.search.certified` solves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import _kernels
from evenhand.engines.distances import HALF, SCALES, InSquare, LineCounts, Lines, moved, problem_inside
from evenhand.engines.gathering import RawRows
from evenhand.engines.schema import Frame
from evenhand.inputs import FloatArray
from evenhand.search import Certified, Problem
from evenhand.search.certified import search_box
from evenhand.search.problem import Stopped
from evenhand.search.sweep import Best, centred

LEAF_ROWS = 128
VISITS_A_ROW, VISITS_MORE = 300, 10_000_000
MOST_LEFT, MOST_STACKED = 20_000, 1024
MOST_PARTS = 16
SLACK = 1e-11
GOOD = 2


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

    def part(self, box: FloatArray) -> Strip:
        """Return a part, given as a box (c1, c2, r1, r2) of the square."""
        return Strip(self.centre + self.axes @ box[:2], self.axes * box[2:4])


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

    def where(self, dialect: str) -> str:
        """Return the SQL condition, which is that of the square."""
        return self._square.where(dialect)

    def keep(self, frame: Frame) -> NDArray[np.bool_]:
        """Tell which rows are wanted, and add the others of the square up."""
        tally, ground = self.tally, self.tally.ground
        scores, n = tally.scores(frame)
        weight = np.ascontiguousarray(frame.get("w" if tally.weighted else "n", np.empty(0)), dtype=np.float64)
        point = tally.centre + self.strip.centre
        kept = np.zeros(n, dtype=bool)
        self.weight += _kernels.cut_strip(
            (scores, ground.codes_of(frame), weight), tally.form, (tally.centre, point, self.strip.axes),
            self.bins, SCALES, self.sure, kept,
        )  # fmt: skip
        return kept


@dataclass(eq=False)
class Found:
    """The best rule of a strip, and the problem that counts it; a bound on all rules, and the best utility believed."""

    utility: float
    believed: float
    bound: float
    z: FloatArray
    problem: Problem | None = None
    nodes: int = 0
    stopped: Stopped | None = None


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


def solve_strip(choice: InStrip, counts: LineCounts, raw: RawRows, multipliers: FloatArray, threshold: float) -> Found:
    """Return the best rule of a strip, given the rows that are open in it, and the utility it is believed to have."""
    tally, ground = choice.tally, choice.tally.ground
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    level, contrasts = _lines(tally, raw, choice.strip)
    # Rows that are open in the same box are then near each other in memory.
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(level / contrasts[:, 0])
    level, contrasts, raw = level[order], contrasts[order], raw.take(order)
    kind = ground.codes_of(raw.frame).astype(np.int16)
    weight = raw.weight if raw.weighted or (raw.rows != 1).any() else np.empty(0)
    sure = counts.weight_from(HALF + choice.bins) + choice.sure
    tests, needed = tests_of(ground.problem, multipliers, 0.0)
    needed = needed - tests @ counts.constant - SLACK
    extra = needed[:GOOD] + counts.constant[0] + solver.gap
    prices = np.ascontiguousarray(tests @ counts.units.T)
    utility = np.ascontiguousarray(counts.units[:, 0])
    survey = _kernels.Survey(level, contrasts, kind, weight, prices, needed, utility, extra, sure)
    left, best, _, _ = _kernels.survey_square(
        survey, threshold - counts.constant[0], LEAF_ROWS, VISITS_A_ROW * len(raw) + VISITS_MORE, room := _room(survey)
    )
    believed = max(threshold, float(best + counts.constant[0]))
    boxes = room.left[:left]
    boxes = boxes[boxes[:, 4] >= believed - counts.constant[0] + solver.gap - SLACK]
    found = Found(-np.inf, believed, -np.inf, np.full(2, np.nan))
    for part in _parts(boxes):
        _solve_part(choice, counts, raw, survey, part, found)
    if solver.gap > 0.0:
        found.bound = max(found.bound, found.utility + solver.gap)
    return found


def _lines(tally: Lines, raw: RawRows, strip: Strip) -> tuple[FloatArray, FloatArray]:
    """Return the levels of rows at a strip's centre, and their contrasts along its axes."""
    margin, contrasts, _ = tally.ground.linear.of(raw.frame)
    scaled = contrasts / tally.scale
    return margin - scaled @ (tally.centre + strip.centre), np.ascontiguousarray(scaled @ strip.axes)


def _room(survey: _kernels.Survey) -> _kernels.Room:
    n, kinds = len(survey.level), len(survey.sure)
    return _kernels.Room(
        rows=np.empty(4 * n + 1024, dtype=np.int32),
        start=np.empty(MOST_STACKED, dtype=np.int64),
        size=np.empty(MOST_STACKED, dtype=np.int64),
        box=np.empty((MOST_STACKED, 5)),
        sure=np.empty((MOST_STACKED, kinds)),
        bound=np.empty(MOST_STACKED),
        left=np.empty((MOST_LEFT + MOST_STACKED, 5)),
    )


def _parts(boxes: FloatArray) -> list[FloatArray]:
    """Return few boxes (c1, c2, r1, r2) that hold all of some: those that are near each other along the strip."""
    if not len(boxes):
        return []
    order = np.argsort(boxes[:, 0] - boxes[:, 2])
    boxes = boxes[order]
    reached = np.maximum.accumulate(boxes[:, 0] + boxes[:, 2])
    gaps = boxes[1:, 0] - boxes[1:, 2] - reached[:-1]
    cuts = np.sort(np.argsort(-gaps)[: MOST_PARTS - 1])
    cuts = cuts[gaps[cuts] > 0.0]
    found = []
    for some in np.split(boxes, cuts + 1):
        low, high = (some[:, :2] - some[:, 2:4]).min(axis=0), (some[:, :2] + some[:, 2:4]).max(axis=0)
        found.append(np.concatenate([0.5 * (low + high), 0.5 * (high - low) * (1.0 + 1e-9)]))
    return found


def _solve_part(
    choice: InStrip, counts: LineCounts, raw: RawRows, survey: _kernels.Survey, box: FloatArray, found: Found
) -> None:
    """Solve a part of the strip, and keep what is better."""
    tally, ground = choice.tally, choice.tally.ground
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    sure, opened, middle = survey.sure.copy(), np.zeros_like(survey.sure), np.zeros_like(survey.sure)
    rows, kept = np.arange(len(raw), dtype=np.int32), np.empty(len(raw), dtype=np.int32)
    n, _, _ = _kernels.look_at_half(survey, rows, box, sure, opened, middle, kept)
    whole = problem_inside(ground, raw.take(kept[:n]).sorted(), counts.constant + sure @ counts.units)
    strip = choice.strip.part(box)
    origin, axes = (tally.centre + strip.centre) / tally.scale, (strip.axes.T / tally.scale).T
    best, bound, nodes, stopped = search_box(
        moved(whole, origin, axes), solver, np.ones(2), ground.options.random_state
    )
    kept_here = _settled(whole, best, origin, axes)
    found.bound = max(found.bound, bound, float(kept_here.utility[0]))
    found.nodes += nodes
    found.stopped = found.stopped or stopped
    if kept_here.utility[0] > found.utility:
        found.utility, found.z, found.problem = float(kept_here.utility[0]), kept_here.z[0], whole


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
