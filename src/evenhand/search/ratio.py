"""A utility that is a quotient, such as an F score: Dinkelbach's iterations on any search.

The utility of a rule is N / D, with D = divisor[0] + divisor[1] * (weight of the rows decided 1) > 0. For a number v, a
search maximises the linear utility N - v D. If its best rule has a quotient above v, that is the next v; otherwise no
rule has one above v. The search's proof carries over: if N - v D <= B for every rule, each has a quotient of at
most ``v + B / D``, and D is not arbitrarily small (see :func:`_bound`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.search.problem import FEASIBILITY_SLACK, NoRule, Problem, Search, Solution, conclude

MOST_ITERATIONS = 40


def solve(problem: Problem, search: Search, random_state: Any = None) -> list[Solution | NoRule]:
    """Return the best rule for each step of the bounds, for a utility that may be a quotient.

    Parameters
    ----------
    problem : Problem
        The arrays and bounds.
    search : Search
        The search for linear utilities.
    random_state : int or None, default=None
        Seed of randomised searches.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.search import Certified, Problem
    >>> from evenhand.search.ratio import solve
    >>> y = np.array([1.0, 1.0, 0.0, 1.0])
    >>> f1 = Problem(
    ...     margin=np.array([0.5, 0.2, 0.1, -0.1]), contrasts=np.ones((4, 1)), gain=2 * y / 4, effects=np.ones((4, 1)),
    ...     lower=np.array([-np.inf]), upper=np.array([np.inf]), divisor=(y.mean(), 1.0))
    >>> found = solve(f1, Certified())[0]
    >>> found.status, round(float(found.utility), 4)
    ('optimal', 0.8571)
    """
    if problem.divisor is None:
        return search.solve(problem, random_state=random_state)
    found: list[Solution | NoRule] = []
    for step in range(len(problem.lower)):
        # A rule that meets stricter bounds meets these, too.
        known = next((r for r in reversed(found) if isinstance(r, Solution)), None)
        found.append(_solve_step(problem.take([step]), search, known, random_state))
    return found


def _solve_step(problem: Problem, search: Search, known: Solution | None, random_state: Any) -> Solution | NoRule:
    started, nodes, bound = time.perf_counter(), 0, np.inf
    best = None if known is None else np.array(known.z)
    if best is None and problem.excess(problem.evaluate(problem.decide(np.zeros(problem.dimension)))[1]) <= (
        FEASIBILITY_SLACK
    ):
        best = np.zeros(problem.dimension)
    value = 0.0 if best is None else problem.evaluate(problem.decide(best))[0]
    for _ in range(MOST_ITERATIONS):
        (result,) = search.solve(_at(problem, value), random_state=random_state)
        nodes += result.nodes
        bound = min(bound, _bound(problem, value, result.upper_bound))
        if isinstance(result, NoRule):
            if best is None:
                return replace(result, nodes=nodes)
            break
        reached = problem.evaluate(problem.decide(np.array(result.z)))[0]
        if best is not None and reached <= value + problem.resolution:
            break
        best, value = np.array(result.z), reached
    assert best is not None
    seconds = time.perf_counter() - started
    solution = conclude(problem, 0, best, upper_bound=bound, nodes=nodes, seconds=seconds)
    return replace(solution, stopped=result.stopped)


def _at(problem: Problem, value: float) -> Problem:
    """Return the problem whose utility is N - value * D."""
    assert problem.divisor is not None
    assert problem.weight is not None
    base, slope = problem.divisor
    return replace(
        problem,
        gain=problem.gain - value * slope * problem.weight,
        offset=problem.offset - value * base,
        divisor=None,
    )


def _bound(problem: Problem, value: float, upper_bound: float) -> float:
    """Return an upper bound on every rule's quotient, if N - value * D is at most ``upper_bound``.

    A rule with a quotient above ``value`` decides some weight S positively: with no row's gain above r times its
    weight, N <= offset + r S, so that value * (base + slope S) < offset + r S bounds S from below, and with it D.
    """
    assert problem.divisor is not None
    assert problem.weight is not None
    if not np.isfinite(upper_bound):
        return np.inf if upper_bound > 0.0 else value
    base, slope = problem.divisor
    counted = problem.weight > 0.0
    steepest = float((problem.gain[counted] / problem.weight[counted]).max(initial=0.0)) - value * slope
    least = max(0.0, (value * base - problem.offset) / steepest) if steepest > 0.0 else 0.0
    return value + max(upper_bound, 0.0) / (base + slope * least)
