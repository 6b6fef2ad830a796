"""Algorithm 2 (EO, lines through points): one exact sweep along each of m rows' hyperplanes.

In z-space the paper's rule through two points of the score plane is the crossing of two rows' lines, so the
paper's M (M - 1) / 2 rules lie on M lines. A sweep visits all crossings of a line in N log N, where the
paper needs M N; and it visits the cells on both sides, where the paper uses the crossing itself.

Deviations from the paper's pseudo-code: each sweep crosses the lines of all N rows and not only of the M chosen
ones; with all rows (the default) the result is therefore the exact optimum. Beyond K = 2 a line is the common
part of K - 1 rows' hyperplanes, drawn at random.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_seed, check_whole
from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.search.kernels.ladder import RESOLUTION, first_step_met
from evenhand.search.problem import NoRule, Problem, Solution
from evenhand.search.sweep import Best, settled, sweep_rows
from evenhand.search.threshold import Threshold

ROUNDING = 0.1 * RESOLUTION
CLOSE = 10.0 * RESOLUTION


@dataclass(frozen=True)
class Lines:
    """The paper's Algorithm 2: exact for K <= 2 with all lines.

    Parameters
    ----------
    m : int or None, default=None
        The number of rows whose lines are swept, drawn with the seed; ``None`` uses all of them, for K <= 2.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(300, random_state=0)
    >>> rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion="eo", search=eh.Lines(m=50))
    >>> rule.solution_.status
    'found'
    """

    m: int | None = None

    def __post_init__(self) -> None:
        if self.m is not None:
            check_whole(self.m, "m (the number of lines)", at_least=1)

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule found on the lines, for each step of the bounds."""
        check_seed(random_state)
        if problem.dimension == 1:
            return Threshold().solve(problem)
        if self.m is None and problem.dimension > 2:
            raise InputError(
                f"Lines() takes every line, which is for K <= 2; this problem has K = {problem.dimension}:"
                " set the number of lines with Lines(m=...), or use Certified()."
            )
        started = time.perf_counter()
        best = Best.none(problem)
        best.offer(problem, np.zeros(problem.dimension))
        unsettled = np.full(len(problem.lower), -np.inf)
        count = _sweep_lines(problem, self.m, random_state, best, unsettled)
        bound = np.maximum(best.utility, unsettled) if self.m is None else None
        if bound is not None:
            bound[~np.isfinite(best.utility) & np.isfinite(unsettled)] = np.inf
        best = settled(problem, best)
        return best.results(problem, upper_bound=bound, nodes=count, seconds=time.perf_counter() - started)


@dataclass(frozen=True, eq=False)
class _Side:
    """One side of a line: where each row changes along it, and the rows on the line itself, decided by the side.

    Row i decides 1 at ``origin + s direction`` iff level_i + s slope_i > 0; a step along ``away`` leads off the line.
    """

    origin: FloatArray
    direction: FloatArray
    level: FloatArray
    slope: FloatArray
    on_line: NDArray[np.bool_]
    away: FloatArray
    extra: FloatArray


def _sweep_lines(problem: Problem, m: int | None, random_state: Any, best: Best, unsettled: FloatArray) -> int:
    """Sweep the lines; leaves in ``best`` points strictly inside their cells. Returns the number of lines.

    ``unsettled`` gets, for each step, the utility of a cell that a sweep saw but in which no point was found.
    """
    table = problem.table
    planes = _distinct_planes(problem)
    on_lines = Best.none(problem)
    sets = _choose(len(planes), problem.dimension - 1, m, random_state)
    for chosen in sets:
        for side in _sides(problem, table, planes[list(chosen)]):
            on_lines.utility[:] = best.utility
            line = side.origin, side.direction
            sweep_rows(problem, table, side.level, side.slope, *line, on_lines, extra=side.extra)
            claimed = np.flatnonzero(on_lines.utility > best.utility)
            for step in claimed:
                best.offer(problem, _step_off(problem, on_lines.z[step], side))
            # A crossing that is only rounding creates a cell that does not exist, and that may hide those that do.
            if (on_lines.utility[claimed] > best.utility[claimed] + CLOSE).any():
                _try_every_cell(problem, table, side, best, unsettled)
    return len(sets)


def _sides(problem: Problem, table: FloatArray, rows: NDArray[np.intp]) -> Iterator[_Side]:
    """Yield both sides of each of some rows' hyperplanes, in all combinations, along the line that they share."""
    normals = problem.contrasts[rows]
    line = _line(normals, problem.margin[rows])
    if line is None:
        return
    origin, direction = line
    level = problem.margin - problem.contrasts @ origin
    slope = -(problem.contrasts @ direction)
    # Below this a level or a slope is rounding, or the cells that it makes are too thin to hold a rule.
    size, ends = np.abs(problem.contrasts), np.abs(np.column_stack([origin, direction]))
    if len(direction) > 2:
        ends[:] = ends.max(axis=0)
    scale = ROUNDING * (size @ ends)
    meets = np.abs(level) <= ROUNDING * np.abs(problem.margin) + scale[:, 0]
    parallel = np.abs(slope) <= scale[:, 1]
    level[meets] = 0.0
    slope[parallel] = 0.0
    on_line = meets & parallel
    for signs in itertools.product((1.0, -1.0), repeat=len(rows)):
        away = np.linalg.lstsq(normals, np.array(signs), rcond=None)[0]
        decided = on_line & (problem.contrasts @ away < 0.0)
        yield _Side(origin, direction, level, slope, on_line, away, table[decided].sum(axis=0))


def _try_every_cell(problem: Problem, table: FloatArray, side: _Side, best: Best, unsettled: FloatArray) -> None:
    """Offer a point of every cell on a side of a line that would be better, the best first."""
    turning = np.flatnonzero(side.slope)
    turning = turning[np.argsort(-side.level[turning] / side.slope[turning])]
    breakpoints = -side.level[turning] / side.slope[turning]
    turns = np.sign(side.slope[turning])[:, None] * table[turning]
    start = side.extra + np.where(side.slope == 0.0, side.level > 0.0, side.slope < 0.0) @ table
    state = np.vstack([start, start + np.cumsum(turns, axis=0)])
    state[:, 0] += problem.offset
    for cell in np.argsort(-state[:, 0], kind="stable"):
        utility = state[cell, 0]
        step = first_step_met(state[cell, 1:], problem.lower, problem.upper)
        if step == len(best.utility) or utility <= best.utility[step] + CLOSE:
            continue
        edge = side.origin + _between(breakpoints, cell) * side.direction
        best.offer(problem, _step_off(problem, edge, side))
        if utility > best.utility[step] + CLOSE and _clear(problem, edge, side):
            unsettled[step:] = np.maximum(unsettled[step:], utility)


def _between(breakpoints: FloatArray, cell: int) -> float:
    """Return the middle of the part of a line before a breakpoint, or after the last."""
    if len(breakpoints) == 0:
        return 0.0
    if cell == 0:
        return float(breakpoints[0] - max(1.0, abs(breakpoints[0])))
    if cell == len(breakpoints):
        return float(breakpoints[-1] + max(1.0, abs(breakpoints[-1])))
    return float(0.5 * (breakpoints[cell - 1] + breakpoints[cell]))


def _clear(problem: Problem, z: FloatArray, side: _Side) -> bool:
    """Return whether a point of the line is off the hyperplanes of all rows that do not contain the line."""
    level = np.abs(problem.margin - problem.contrasts @ z)
    size = np.abs(problem.margin) + np.abs(problem.contrasts) @ np.abs(z)
    return bool((side.on_line | (level > CLOSE * size)).all())


def _distinct_planes(problem: Problem) -> NDArray[np.intp]:
    """Return a row of each hyperplane that z can cross."""
    v = np.column_stack([problem.margin, problem.contrasts])
    turns = np.flatnonzero(np.abs(problem.contrasts).max(axis=1) > 1e-15 * np.abs(v).max(axis=1))
    if turns.size == 0:
        return turns
    v = v[turns]
    largest = np.take_along_axis(v, np.abs(v).argmax(axis=1)[:, None], axis=1)
    _, first = np.unique(np.round(v / largest * 2.0**40), axis=0, return_index=True)
    return turns[np.sort(first)]


def _choose(planes: int, size: int, m: int | None, random_state: Any) -> list[tuple[int, ...]]:
    if m is None:
        return list(itertools.combinations(range(planes), size))
    rng = np.random.default_rng(0 if random_state is None else random_state)
    if size == 1:
        return [(int(i),) for i in rng.permutation(planes)[:m]]
    if planes < size:
        return []
    return [tuple(rng.choice(planes, size=size, replace=False).tolist()) for _ in range(m)]


def _line(normals: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return a point and the direction of the line {z : normals @ z = margins}, or None if there is no such line."""
    if normals.shape == (1, 2):
        # Every component is accurate to the last digit, for any scales of the two contrasts.
        (one, two), size = normals[0], np.hypot(*normals[0])
        return normals[0] / size * (margins[0] / size), np.array([-two, one]) / size
    _, sizes, right = np.linalg.svd(normals)
    if sizes[-1] <= 1e-12 * sizes[0]:
        return None
    origin = np.linalg.lstsq(normals, margins, rcond=None)[0]
    return np.asarray(origin, dtype=np.float64), np.asarray(right[-1], dtype=np.float64)


def _step_off(problem: Problem, z: FloatArray, side: _Side) -> FloatArray:
    """Move z off the line, to its side, half-way to the nearest hyperplane that does not contain the line."""
    level = problem.margin - problem.contrasts @ z
    slope = -(problem.contrasts @ side.away)
    meets = ~side.on_line & (level * slope < 0.0)
    room = float((-level[meets] / slope[meets]).min(initial=2.0 * max(1.0, float(np.abs(z).max()))))
    return z + 0.5 * room * side.away
