"""One exact sweep along a line of z-space: the step that Algorithms 1, 2, 3 and the local search share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from evenhand.inputs import FloatArray
from evenhand.search import _kernels
from evenhand.search.problem import Problem


@dataclass(eq=False)
class Best:
    """The best point so far for each step of a problem's bounds, and the point nearest to meeting the last."""

    utility: FloatArray
    z: FloatArray
    closest: FloatArray = field(default_factory=lambda: np.array([np.inf, -np.inf, np.nan]))
    closest_z: FloatArray | None = None

    @classmethod
    def none(cls, problem: Problem) -> Best:
        """Return the state before anything was found."""
        steps = len(problem.lower)
        return cls(np.full(steps, -np.inf), np.full((steps, problem.dimension), np.nan))

    def offer(self, problem: Problem, z: FloatArray) -> None:
        """Keep the rule z where it meets a step's bounds, is better than what was known, and is inside a cell."""
        if not problem.strictly_inside(z):
            return
        utility, values = problem.evaluate(problem.decide(z))
        step = _kernels.first_step_met(values, problem.lower, problem.upper)
        better = np.flatnonzero(utility > self.utility[step:] + _kernels.RESOLUTION) + step
        self.utility[better] = utility
        self.z[better] = z


def sweep_line(problem: Problem, table: FloatArray, origin: FloatArray, direction: FloatArray, best: Best) -> bool:
    """Walk z = origin + s direction for every s; keep what improves ``best``. Returns whether any did."""
    level = problem.margin - problem.contrasts @ origin
    slope = -(problem.contrasts @ direction)
    return sweep_rows(problem, table, level, slope, origin, direction, best)


def sweep_rows(
    problem: Problem,
    table: FloatArray,
    level: FloatArray,
    slope: FloatArray,
    origin: FloatArray,
    direction: FloatArray,
    best: Best,
    *,
    low: float = -np.inf,
    extra: FloatArray | None = None,
) -> bool:
    """Walk along a line where row i decides 1 iff level_i + s slope_i > 0. See :func:`sweep_line`.

    Only s above ``low`` are looked at. ``extra`` adds the gains and effects of rows on whose hyperplane the line
    lies, and whose side the caller has chosen; a point kept is then still on that hyperplane, and the caller
    steps off it (see ``lines.py``).
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        breakpoints = -level / slope
    inside = (breakpoints > low) & (breakpoints < np.inf)
    rising = slope > 0.0
    if inside.all():
        order = np.argsort(breakpoints)
        on = ~rising
    else:
        turning = np.flatnonzero(inside)
        order = turning[np.argsort(breakpoints[turning])]
        still = low + 1.0 if np.isfinite(low) else 0.0
        on = np.where(inside, ~rising, level + still * slope > 0.0)
    start = on.astype(np.float64) @ table
    start[0] += problem.offset
    if extra is not None:
        start += extra
    turns = np.empty((len(level), 1 + table.shape[1]))
    turns[:, 0] = breakpoints
    np.multiply(table, np.where(rising, 1.0, -1.0)[:, None], out=turns[:, 1:])
    utility = best.utility.copy()
    position = np.full(len(utility), np.inf)
    closest = best.closest.copy()
    _kernels.sweep(order, turns, start, low, np.inf, problem.lower, problem.upper, utility, position, closest)
    better = np.isfinite(position) & (utility > best.utility + _kernels.RESOLUTION)
    if problem.dimension > 1 and extra is None:
        # A line may lie on a row's hyperplane; what is found there hangs on rounding.
        for step in np.flatnonzero(better):
            better[step] = problem.strictly_inside(origin + position[step] * direction)
    improved = np.flatnonzero(better)
    best.utility[improved] = utility[improved]
    best.z[improved] = origin + position[improved, None] * direction
    nearer = bool(closest[0] < best.closest[0] or closest[1] != best.closest[1])
    if nearer:
        best.closest = closest
        best.closest_z = origin + closest[2] * direction
    return bool(improved.size) or nearer
