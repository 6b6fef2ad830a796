"""Algorithm 2 (EO, lines through points): one exact sweep along each of m rows' hyperplanes.

In z-space the paper's rule through two points of the score plane is the crossing of two rows' lines, so the
paper's M (M - 1) / 2 rules lie on M lines. A sweep visits all crossings of a line in N log N, where the
paper pays M N for them; and it visits the cells on both sides, where the paper takes the crossing itself.

Deviations from the paper's pseudo-code: each sweep crosses the lines of all N rows and not only of the M chosen
ones; with all rows (the default) the result is therefore the exact optimum. Beyond K = 2 a line is the common
part of K - 1 rows' hyperplanes, drawn at random.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.search.problem import NoRule, Problem, Solution, conclude
from evenhand.search.sweep import Best, sweep_rows
from evenhand.search.threshold import Threshold


@dataclass(frozen=True)
class Lines:
    """The paper's Algorithm 2: exact for K <= 2 with all lines.

    Parameters
    ----------
    m : int or None, default=None
        The number of rows whose lines are swept, drawn with the seed; ``None`` takes all of them, for K <= 2.
    """

    m: int | None = None

    def __post_init__(self) -> None:
        if self.m is not None and self.m < 1:
            raise InputError(f"Lines needs at least one line; got m={self.m!r}.")

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule found on the lines, for each step of the bounds."""
        if problem.dimension == 1:
            return Threshold().solve(problem)
        if self.m is None and problem.dimension > 2:
            raise InputError(
                f"Lines() takes every line, which is for K <= 2; this problem has K = {problem.dimension}:"
                " say how many with Lines(m=...), or use Certified()."
            )
        started = time.perf_counter()
        best = Best.none(problem)
        best.offer(problem, np.zeros(problem.dimension))
        count = _sweep_lines(problem, self.m, random_state, best)
        seconds = time.perf_counter() - started
        exact = self.m is None
        return [
            conclude(
                problem,
                step,
                best.z[step],
                upper_bound=utility if exact else np.inf,
                nodes=count,
                seconds=seconds,
            )
            if np.isfinite(utility)
            else NoRule(proven=exact, nodes=count)
            for step, utility in enumerate(best.utility)
        ]


def _sweep_lines(problem: Problem, m: int | None, random_state: Any, best: Best) -> int:
    """Sweep the lines; leaves in ``best`` points strictly inside their cells. Returns how many lines."""
    table = problem.table
    planes = _distinct_planes(problem)
    on_lines = Best.none(problem)
    on_lines.utility[:] = best.utility
    sets = _choose(len(planes), problem.dimension - 1, m, random_state)
    for chosen in sets:
        members = [planes[index] for index in chosen]
        normals = problem.contrasts[[rows[0] for rows in members]]
        line = _line(normals, problem.margin[[rows[0] for rows in members]])
        if line is None:
            continue
        origin, direction = line
        level = problem.margin - problem.contrasts @ origin
        slope = -(problem.contrasts @ direction)
        for rows in members:
            level[rows] = slope[rows] = 0.0
        for sides in itertools.product((False, True), repeat=len(members)):
            extra = np.zeros(table.shape[1])
            for rows, normal, side in zip(members, normals, sides, strict=True):
                same = problem.contrasts[rows] @ normal > 0.0
                extra += table[rows[same == side]].sum(axis=0)
            before = on_lines.utility.copy()
            sweep_rows(problem, table, level, slope, origin, direction, on_lines, extra=extra)
            for step in np.flatnonzero(on_lines.utility > before):
                z = _step_off(problem, on_lines.z[step], members, normals, sides)
                best.offer(problem, z)
            on_lines.utility[:] = best.utility
    return len(sets)


def _distinct_planes(problem: Problem) -> list[NDArray[np.intp]]:
    """Return the rows of each hyperplane that z can cross, rows on the same one together."""
    v = np.column_stack([problem.margin, problem.contrasts])
    turns = np.flatnonzero(np.abs(problem.contrasts).max(axis=1) > 1e-15 * np.abs(v).max(axis=1))
    if turns.size == 0:
        return []
    v = v[turns]
    largest = np.take_along_axis(v, np.abs(v).argmax(axis=1)[:, None], axis=1)
    keys = np.round(v / largest * 2.0**40)
    order = np.lexsort(keys.T)
    edges = np.flatnonzero((np.diff(keys[order], axis=0) != 0).any(axis=1)) + 1
    return [turns[part] for part in np.split(order, edges)]


def _choose(planes: int, size: int, m: int | None, random_state: Any) -> list[tuple[int, ...]]:
    if m is None:
        return list(itertools.combinations(range(planes), size))
    rng = np.random.default_rng(random_state)
    if size == 1:
        return [(int(i),) for i in rng.permutation(planes)[:m]]
    if planes < size:
        return []
    return [tuple(rng.choice(planes, size=size, replace=False).tolist()) for _ in range(m)]


def _line(normals: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return a point and the direction of the line {z : normals @ z = margins}, or None where there is no such line."""
    _, sizes, right = np.linalg.svd(normals)
    if sizes[-1] <= 1e-12 * sizes[0]:
        return None
    origin = np.linalg.lstsq(normals, margins, rcond=None)[0]
    return np.asarray(origin, dtype=np.float64), np.asarray(right[-1], dtype=np.float64)


def _step_off(
    problem: Problem,
    z: FloatArray,
    members: list[NDArray[np.intp]],
    normals: FloatArray,
    sides: tuple[bool, ...],
) -> FloatArray:
    """Move z off the hyperplanes it lies on, to the given sides, half-way to the nearest other hyperplane."""
    away = np.linalg.lstsq(normals, np.where(sides, -1.0, 1.0), rcond=None)[0]
    level = problem.margin - problem.contrasts @ z
    slope = -(problem.contrasts @ away)
    others = np.ones(len(level), dtype=bool)
    for rows in members:
        others[rows] = False
    meets = others & (level * slope < 0.0)
    room = float((-level[meets] / slope[meets]).min(initial=np.inf))
    return z + (0.5 * room if np.isfinite(room) else max(1.0, float(np.abs(z).max()))) * away
