"""Local search: exact sweeps along coordinate, radial and random directions, from the dual's z and from zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.inputs import FloatArray
from evenhand.search.dual import solve_linear_program
from evenhand.search.problem import Problem, typical_size
from evenhand.search.sweep import Best, sweep_line

ROWS_FOR_THE_DUAL = 4_000
ENTRIES_FOR_THE_DUAL = 200_000
FRUITLESS_ROUNDS = 3
VISITS_A_SWEEP = 16


def local_search(problem: Problem, best: Best, *, max_visits: float, random_state: Any = None) -> float:
    """Improve ``best`` in place until a few rounds of directions bring nothing, or the work allowed is done.

    Returns the work, in visits of rows.
    """
    left = max_visits
    rng = np.random.default_rng(0 if random_state is None else random_state)
    table = problem.table
    starts = [np.zeros(problem.dimension), *_dual_starts(problem, rng)]
    for start in starts:
        best.offer(problem, start)
    for start in starts:
        fruitless = 0
        while fruitless < FRUITLESS_ROUNDS:
            fruitless += 1
            for direction in _round_of_directions(problem, start, rng):
                origin = _current(best, start)
                if sweep_line(problem, table, origin, direction, best):
                    fruitless = 0
                left -= VISITS_A_SWEEP * len(problem.margin)
                if left <= 0.0:
                    return max_visits - left
    return max_visits - left


def _current(best: Best, start: FloatArray) -> FloatArray:
    """Return the point to go on from: the best rule of the strictest step that has one, else the nearest miss."""
    found = np.flatnonzero(np.isfinite(best.utility))
    if found.size:
        current: FloatArray = best.z[int(found[0])]
        return current
    return start if best.closest_z is None else best.closest_z


def _round_of_directions(problem: Problem, start: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
    scale = np.array([1.0 / typical_size(column) for column in problem.contrasts.T])
    drawn = rng.normal(size=(2 * problem.dimension, problem.dimension)) * scale
    radial = [start] if np.abs(start).max() > 0.0 else []
    return [*np.diag(scale), *radial, *drawn]


def _dual_starts(problem: Problem, rng: np.random.Generator) -> list[FloatArray]:
    """Return the plug-in optimum of a sample of the rows, for the strictest and the loosest step."""
    n, n_constraints = problem.effects.shape
    most = min(ROWS_FOR_THE_DUAL, max(1, ENTRIES_FOR_THE_DUAL // max(1, n_constraints)))
    rows = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
    assert problem.weight is not None
    weight = problem.weight[rows]
    if weight.sum() <= 0.0:
        return []
    sample = Problem(
        problem.margin[rows], problem.contrasts[rows], problem.gain[rows], problem.effects[rows], problem.lower,
        problem.upper, problem.offset, problem.mixing, weight / weight.sum(),
    )  # fmt: skip
    found = [solve_linear_program(sample, step) for step in {0, len(problem.lower) - 1}]
    return [plug_in.z for plug_in in found if plug_in is not None]
