"""How far a problem is from having a rule: the smallest loosening of its bounds that a rule meets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.certified import Certified
from evenhand.search.problem import FEASIBILITY_SLACK, NoRule, Problem, Solution
from evenhand.search.smoothed import Missed, Smoothed

ROUNDS = 40
VISITS_A_ROUND = 200_000_000


def nearest_miss(problem: Problem, moving: NDArray[np.bool_], missed: NoRule) -> float | None:
    """Return by how much the moving bounds must be loosened for the closest rule of a smoothed search.

    Returns None if that rule violates a bound that does not move.
    """
    found = missed if isinstance(missed, Missed) else Smoothed().closest(replace(problem, divisor=None))
    values: FloatArray = np.array(found.values)
    miss = np.maximum(problem.lower[0] - values, values - problem.upper[0])
    if miss[~moving].max(initial=0.0) > FEASIBILITY_SLACK:
        return None
    return float(max(0.0, miss[moving].max(initial=0.0)))


def loosening(problem: Problem, moving: NDArray[np.bool_]) -> tuple[float, bool] | NoRule:
    """Return by how much the moving bounds must be loosened for a rule to meet them, and whether that is proven.

    Bisection with the certified search: with all gains set to zero, it stops at the first rule that meets the bounds,
    and otherwise proves that there is none, if its budget suffices. If it finds no rule even without the moving bounds,
    its result for that case is returned.
    """
    widest = replace(problem, gain=np.zeros_like(problem.gain), offset=0.0, divisor=None)
    reached = _reached(widest, moving, 4.0)
    if not isinstance(reached, Solution):
        return reached
    low, high = 0.0, _excess(widest, moving, reached)
    exact = False
    for _ in range(ROUNDS):
        if high <= FEASIBILITY_SLACK:
            return high, True
        # Once the interval is narrow, test whether any rule is below the reached value.
        guess = 0.5 * (low + high) if high - low > 1e-4 * high else high * (1.0 - 1e-9)
        reached = _reached(widest, moving, guess)
        if isinstance(reached, Solution):
            high = min(high, _excess(widest, moving, reached))
        elif not reached.proven:
            break
        elif guess >= high * (1.0 - 1e-8):
            exact = True
            break
        else:
            low = guess
    return high, exact


def _loosened(problem: Problem, moving: NDArray[np.bool_], amount: float) -> Problem:
    slack = np.where(moving, amount, 0.0)
    return replace(problem, lower=problem.lower - slack, upper=problem.upper + slack)


def _reached(problem: Problem, moving: NDArray[np.bool_], amount: float) -> Solution | NoRule:
    return Certified(max_visits=VISITS_A_ROUND).solve(_loosened(problem, moving, amount))[0]


def _excess(problem: Problem, moving: NDArray[np.bool_], solution: Solution) -> float:
    values: FloatArray = np.array(solution.values)
    miss = np.maximum(problem.lower[0] - values, values - problem.upper[0])[moving]
    return float(max(0.0, miss.max()))
