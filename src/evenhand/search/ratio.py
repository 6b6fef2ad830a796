"""A utility that is a quotient, such as an F score: Dinkelbach's iterations on any search.

The utility of a rule is N / D, with D = divisor[0] + divisor[1] * (weight of the rows decided 1) > 0. For a number v, a
search maximises the linear utility N - v D. If its best rule has a quotient above v, that is the next v; otherwise no
rule has one above v. The search's proof carries over: if N - v D <= B for every rule, each has a quotient of at
most ``v + B / D``, and D is not arbitrarily small (see :func:`bound_at`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenhand.inputs import FloatArray
from evenhand.search.certified import Certified
from evenhand.search.problem import FEASIBILITY_SLACK, NoRule, Problem, Search, Solution, conclude
from evenhand.search.smoothed import Smoothed

MOST_ITERATIONS = 40


def solve(
    problem: Problem, search: Search, random_state: Any = None, most: int = MOST_ITERATIONS
) -> list[Solution | NoRule]:
    """Return the best rule for each step of the bounds, for a utility that may be a quotient.

    Parameters
    ----------
    problem : Problem
        The arrays and bounds.
    search : Search
        The search for linear utilities.
    random_state : int or None, default=None
        Seed of randomised searches.
    most : int, default=40
        The most iterations; after fewer than are needed, the bound is above the utility.

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
        known = [np.array(result.z) for result in found[-1:] if isinstance(result, Solution)]
        own = replace(problem.take([step]), starts=(*problem.starts, *known))
        found.append(_solve_step(own, search, random_state, most))
    return found


def _solve_step(problem: Problem, search: Search, random_state: Any, most: int) -> Solution | NoRule:
    started, climb = time.perf_counter(), Climb.of(problem)
    nodes = 0
    if isinstance(search, Certified) and problem.dimension > 2 and problem.to_beat == -np.inf:
        # A proof takes long here, and only the last one counts.
        nodes += climb.go(problem, Smoothed(), random_state, MOST_ITERATIONS)[0]
    more, bound, result = climb.go(problem, search, random_state, most)
    nodes += more
    if climb.best is None:
        return NoRule(isinstance(result, NoRule) and result.proven, nodes, bound, result.stopped)
    seconds = time.perf_counter() - started
    solution = conclude(problem, 0, climb.best, upper_bound=bound, nodes=nodes, seconds=seconds)
    return replace(solution, stopped=result.stopped)


Step = Callable[[float, FloatArray | None], tuple[Solution | NoRule, float]]


@dataclass(eq=False)
class Climb:
    """The best rule so far and the number v: its quotient, what is to beat, or the model's own quotient."""

    best: FloatArray | None
    value: float

    @classmethod
    def of(cls, problem: Problem) -> Climb:
        """Begin with the best of the rules that are known."""
        origin = np.zeros(problem.dimension)
        climb = cls(None, problem.to_beat)
        for z in (origin, *problem.starts):
            utility, values = problem.evaluate(problem.decide(z))
            if problem.excess(values) <= FEASIBILITY_SLACK and utility > climb.value:
                climb.best, climb.value = z, utility
        return climb if np.isfinite(climb.value) else cls(None, problem.evaluate(problem.decide(origin))[0])

    def go(
        self, problem: Problem, search: Search, random_state: Any, most: int
    ) -> tuple[int, float, Solution | NoRule]:
        """Iterate with a search of all rows; see :meth:`iterate`."""

        def step(value: float, best: FloatArray | None) -> tuple[Solution | NoRule, float]:
            (result,) = search.solve(at_value(problem, value, best), random_state=random_state)
            if isinstance(result, NoRule):
                return result, -np.inf
            return result, problem.evaluate(problem.decide(np.array(result.z)))[0]

        return self.iterate(problem, step, most)

    def iterate(self, problem: Problem, step: Step, most: int) -> tuple[int, float, Solution | NoRule]:
        """Iterate until nothing better is found; return the nodes, what any quotient is at most, and the last result.

        ``step`` maximises N - v D for a v, given the best rule so far, and returns the quotient of its result, too. Of
        the problem only the divisor, the gains and the weights are used. The bound is infinite where nothing is proven.
        """
        nodes, bound = 0, np.inf
        for _ in range(most):
            result, reached = step(self.value, self.best)
            nodes += result.nodes
            bound = min(bound, bound_at(problem, self.value, result.upper_bound))
            if isinstance(result, NoRule):
                if result.upper_bound == -np.inf and self.best is None:
                    bound = -np.inf  # there is no rule at all
                break
            sought = self.best is not None or problem.to_beat > -np.inf
            if sought and reached <= self.value + problem.resolution:
                break
            self.best, self.value = np.array(result.z), reached
        return nodes, bound, result


def at_value(problem: Problem, value: float, best: FloatArray | None = None) -> Problem:
    """Return the problem whose utility is N - value * D, to be started from the best rule so far."""
    assert problem.divisor is not None
    assert problem.weight is not None
    base, slope = problem.divisor
    return replace(
        problem,
        gain=problem.gain - value * slope * problem.weight,
        offset=problem.offset - value * base,
        divisor=None,
        starts=() if best is None else (best,),
        to_beat=0.0 if problem.to_beat > -np.inf else -np.inf,
    )


def bound_at(problem: Problem, value: float, upper_bound: float) -> float:
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
