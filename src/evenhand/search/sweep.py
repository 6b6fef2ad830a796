"""One exact sweep along a line of z-space, which Algorithms 1, 2, 3 and the local search share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from evenhand.inputs import FloatArray
from evenhand.search.kernels.ladder import RESOLUTION, first_step_met
from evenhand.search.kernels.sweep import sweep
from evenhand.search.problem import NoRule, Problem, Solution, conclude, typical_size

ROUNDS_TO_CENTRE = 4


@dataclass(eq=False)
class Best:
    """The best point so far for each step of a problem's bounds, and the point closest to meeting the last."""

    utility: FloatArray
    z: FloatArray
    closest: FloatArray = field(default_factory=lambda: np.array([np.inf, -np.inf, np.nan]))
    closest_z: FloatArray | None = None

    @classmethod
    def none(cls, problem: Problem) -> Best:
        """Return the initial state."""
        steps = len(problem.lower)
        return cls(np.full(steps, -np.inf), np.full((steps, problem.dimension), np.nan))

    def offer(self, problem: Problem, z: FloatArray, *, anywhere: bool = False) -> None:
        """Keep the rule z if it meets a step's bounds, improves on the incumbent, and is inside a cell.

        With ``anywhere`` it may be on a row's hyperplane: only its decisions count.
        """
        if not (anywhere or problem.strictly_inside(z)):
            return
        utility, values = problem.counted(z)
        step = first_step_met(values, problem.lower, problem.upper)
        better = np.flatnonzero(utility > self.utility[step:] + problem.resolution) + step
        self.utility[better] = utility
        self.z[better] = z

    def join(self, other: Best) -> None:
        """Keep the improvements of another one."""
        better = other.utility > self.utility
        self.utility[better], self.z[better] = other.utility[better], other.z[better]

    def results(
        self, problem: Problem, *, upper_bound: FloatArray | None = None, nodes: int = 0, seconds: float = 0.0
    ) -> list[Solution | NoRule]:
        """Return the incumbents as solutions; ``upper_bound`` is the proven bound of each step."""
        bounds = np.full(len(self.utility), np.inf) if upper_bound is None else np.maximum(upper_bound, self.utility)
        return [
            conclude(problem, step, self.z[step], upper_bound=bounds[step], nodes=nodes, seconds=seconds)
            if np.isfinite(utility)
            else NoRule(bool(bounds[step] == -np.inf), nodes, float(bounds[step]))
            for step, utility in enumerate(self.utility)
        ]


def settled(problem: Problem, claimed: Best) -> Best:
    """Return the claims of a sweep as rules, counted on their actual decisions.

    The model's own decisions, z = 0, are always included. A claim that fails because its cell is too narrow for the
    rule's arithmetic is tried again in the middle of its cell.
    """
    best = Best.none(problem)
    best.offer(problem, np.zeros(problem.dimension))
    for step, claim in enumerate(claimed.utility):
        if claim > best.utility[step] + problem.resolution:
            z = claimed.z[step]
            best.offer(problem, z)
            if claim > best.utility[step] + problem.resolution:
                best.offer(problem, centred(problem, z), anywhere=True)
                best.offer(problem, z, anywhere=True)
    return best


def centred(problem: Problem, z: FloatArray) -> FloatArray:
    """Return a point of the same cell that is farther from its sides, and no farther from 0 than needed."""
    k = problem.dimension
    scale = np.array([1.0 / typical_size(column) for column in problem.contrasts.T])
    z = _nearer(problem, z)
    for direction in [*np.diag(scale), *(np.random.default_rng(0).normal(size=(ROUNDS_TO_CENTRE * k, k)) * scale)]:
        before, after = _room(problem, z, direction)
        if np.isfinite(before) and np.isfinite(after):
            z = z + 0.5 * (before + after) * direction
        elif np.isfinite(before):
            z = z + max(0.0, 1.0 + before) * direction
        elif np.isfinite(after):
            z = z + min(0.0, after - 1.0) * direction
    return _nearer(problem, z)


def _nearer(problem: Problem, z: FloatArray) -> FloatArray:
    """Return a point of the same cell on the ray from 0 through z, in its middle.

    If the cell is unbounded, it is the point at twice the distance at which the cell begins.
    """
    before, after = _room(problem, z, z)
    begins, ends = max(0.0, 1.0 + before), 1.0 + after
    if begins == 0.0:
        return z if np.isinf(ends) else 0.5 * ends * z
    return z * (2.0 * begins if np.isinf(ends) else 0.5 * (begins + ends))


def _room(problem: Problem, z: FloatArray, direction: FloatArray) -> tuple[float, float]:
    """Return how far one can go from z, backwards and forwards, before a row's decision changes."""
    level, slope = problem.level(z), problem.slope(direction)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        turns = -level / slope
    return float(turns[turns < 0.0].max(initial=-np.inf)), float(turns[turns > 0.0].min(initial=np.inf))


def sweep_line(problem: Problem, table: FloatArray, origin: FloatArray, direction: FloatArray, best: Best) -> bool:
    """Sweep z = origin + s direction for every s; keep improvements in ``best``. Returns whether there were any."""
    level, slope = problem.level(origin), problem.slope(direction)
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
    """Sweep along a line where row i decides 1 iff level_i + s slope_i > 0. See :func:`sweep_line`.

    Only s above ``low`` are considered. ``extra`` adds the gains and effects of rows on whose hyperplane the line
    lies, and whose side the caller has chosen; a kept point is then still on that hyperplane, and the caller moves it
    off (see ``lines.py``).
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
    start = table[on].sum(axis=0)
    start[0] += problem.offset
    if extra is not None:
        start += extra
    turns = np.empty((len(level), 1 + table.shape[1]))
    turns[:, 0] = breakpoints
    np.multiply(table, np.where(rising, 1.0, -1.0)[:, None], out=turns[:, 1:])
    utility = best.utility.copy()
    position = np.full(len(utility), np.inf)
    closest = best.closest.copy()
    sweep(order, len(order), turns, start, low, np.inf, problem.lower, problem.upper, utility, position, closest)
    better = np.isfinite(position) & (utility > best.utility + RESOLUTION)
    if problem.dimension > 1 and extra is None:
        # A line may lie on a row's hyperplane, where the result depends on rounding.
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
