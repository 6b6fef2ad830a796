"""The best mixture of rules: a linear program over rules, whose columns a search without constraints prices.

A mixture decides by rule j with probability w_j. Its utility and its constraints' values are the means of theirs, so
the best one solves

    max  sum_j w_j U_j   subject to   lower <= sum_j w_j V_j <= upper,  sum_j w_j = 1,  w >= 0

over all rules of the family. Only few of them are ever listed. For the multipliers lambda of the restricted program,
the rule that maximises ``U - lambda . V`` has the best reduced cost. Finding it is a problem without constraints, which
:class:`evenhand.search.Certified` solves. If it brings no improvement, the mixture is optimal. For every lambda

    max_z (U(z) - lambda . V(z)) + sum_c (upper_c lambda_c^+ - lower_c lambda_c^-)

bounds every mixture, and every single rule, from above; the smallest of these bounds is the proof.
A vertex of the program has at most one rule more than it has constraints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog

from evenhand.inputs import FloatArray
from evenhand.search.certified import Certified
from evenhand.search.problem import NoRule, Problem, Solution, typical_size

MOST_COLUMNS = 400
LEAST_WEIGHT = 1e-9
VISITS_A_COLUMN = 400_000_000
FAR = 1e3


@dataclass(frozen=True)
class Mixed:
    """The best mixture found for one step of a problem's bounds.

    Attributes
    ----------
    z : array of shape (rules, K)
        The rules.
    weights : array of shape (rules,)
        Their probabilities.
    utility : float
        The mean of the rules' utilities.
    values : array of shape (constraints,)
        The means of the constraints' values.
    upper_bound : float
        No mixture and no rule in this family that meets the bounds has a utility above this.
    columns : int
        The number of rules that were listed.
    """

    z: FloatArray
    weights: FloatArray
    utility: float
    values: FloatArray
    upper_bound: float
    columns: int


@dataclass(eq=False)
class _Columns:
    """The listed rules."""

    z: list[FloatArray]
    utility: list[float]
    values: list[FloatArray]

    def add(self, problem: Problem, z: FloatArray) -> bool:
        """Add a rule; return whether it was new."""
        utility, values = problem.evaluate(problem.decide(z))
        for known, others in zip(self.utility, self.values, strict=True):
            if known == utility and (others == values).all():
                return False
        self.z.append(z)
        self.utility.append(utility)
        self.values.append(values)
        return True


def mix(problem: Problem) -> Mixed | NoRule:
    """Return the best mixture for the first step of a problem's bounds, or the result that none meets them.

    Parameters
    ----------
    problem : Problem
        The arrays and bounds; one step.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.search import Problem
    >>> from evenhand.search.mixed import mix
    >>> problem = Problem(
    ...     margin=np.array([0.5, 0.2, -0.1]), contrasts=np.array([[1.0], [1.0], [-1.0]]),
    ...     gain=np.array([1.0, 1.0, -1.0]) / 3, effects=np.array([[0.5], [0.5], [-1.0]]),
    ...     lower=np.array([0.0]), upper=np.array([0.0]), offset=1 / 3)
    >>> found = mix(problem)
    >>> bool(abs(found.values[0]) < 1e-9), found.utility <= found.upper_bound + 1e-12
    (True, True)
    """
    columns = _Columns([], [], [])
    for z in _first_rules(problem):
        columns.add(problem, z)
    # First only the bounds count, then the utility within them.
    missing, proven, _ = _generate(problem, columns, bounds_only=True)
    if missing is not None:
        return NoRule(proven=proven, nodes=len(columns.z))
    _, _, (weights, bound) = _generate(problem, columns, bounds_only=False)
    used = np.flatnonzero(weights > LEAST_WEIGHT)
    shares = weights[used] / weights[used].sum()
    utility = float(shares @ np.array(columns.utility)[used])
    if bound <= utility + problem.resolution:
        bound = utility
    return Mixed(
        np.array(columns.z)[used],
        shares,
        utility,
        shares @ np.array(columns.values)[used],
        bound,
        len(columns.z),
    )


def _first_rules(problem: Problem) -> list[FloatArray]:
    """Return the model's own decisions, and rules that go far along each contrast."""
    k = problem.dimension
    sizes = np.array([typical_size(column) for column in problem.contrasts.T])
    far = FAR * typical_size(problem.margin) / sizes
    return [np.zeros(k), *(sign * far * unit for unit in np.eye(k) for sign in (1.0, -1.0))]


def _generate(
    problem: Problem, columns: _Columns, *, bounds_only: bool
) -> tuple[float | None, bool, tuple[FloatArray, float]]:
    """Add rules until there is no improvement.

    Returns the violation of the bounds, or None; whether that is proven; the weights; and the bound on the utility.
    """
    bound, weights = np.inf, np.empty(0)
    while True:
        weights, multipliers, level, missed = _solve(problem, columns, bounds_only=bounds_only)
        if bounds_only and missed <= LEAST_WEIGHT:
            return None, True, (weights, bound)
        priced = _price(problem, multipliers, bounds_only=bounds_only)
        # The possible improvement of the best rule over the program's own value.
        if priced is None:
            return (missed if bounds_only else None), False, (weights, bound)
        lower, upper = problem.lower[0], problem.upper[0]
        best = priced.upper_bound + float(_at_bounds(multipliers, lower, upper))
        bound = min(bound, best)
        found_new = columns.add(problem, np.array(priced.z))
        helps = priced.utility - level > 1e-10 * max(1.0, abs(level))
        if not found_new or not helps or len(columns.z) >= MOST_COLUMNS:
            # Without utility, the bound is on minus the violation: below zero, no mixture meets the bounds.
            proven = bounds_only and bound < -LEAST_WEIGHT
            return (missed if bounds_only else None), proven, (weights, bound)


def _at_bounds(multipliers: FloatArray, lower: FloatArray, upper: FloatArray) -> float:
    """Return sum_c (upper_c lambda_c^+ - lower_c lambda_c^-); infinite bounds have no multiplier."""
    rising, falling = np.maximum(multipliers, 0.0), np.maximum(-multipliers, 0.0)
    above = np.where(rising > 0.0, np.where(np.isfinite(upper), upper, 0.0), 0.0)
    below = np.where(falling > 0.0, np.where(np.isfinite(lower), lower, 0.0), 0.0)
    return float(rising @ above - falling @ below)


def _solve(problem: Problem, columns: _Columns, *, bounds_only: bool) -> tuple[FloatArray, FloatArray, float, float]:
    """Return the weights of the listed rules, the multipliers, the value to beat, and the violation of the bounds.

    With ``bounds_only`` the program minimises that violation.
    """
    values, n = np.array(columns.values), len(columns.z)
    lower, upper = problem.lower[0], problem.upper[0]
    low, high = np.isfinite(lower), np.isfinite(upper)
    matrix = np.vstack([values[:, high].T, -values[:, low].T])
    limits = np.concatenate([upper[high], -lower[low]])
    slack = np.full((len(limits), 1), -1.0 if bounds_only else 0.0)
    cost = np.append(np.zeros(n) if bounds_only else -np.array(columns.utility), 1.0)
    result = linprog(
        cost,
        A_ub=np.hstack([matrix, slack]),
        b_ub=limits,
        A_eq=np.append(np.ones(n), 0.0).reshape(1, -1),
        b_eq=[1.0],
        bounds=[(0.0, None)] * n + [(0.0, None if bounds_only else 0.0)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if result.status != 0:
        raise RuntimeError(f"The linear program over rules ended with: {result.message}")
    prices = -result.ineqlin.marginals
    multipliers = np.zeros(len(lower))
    multipliers[high] += prices[: int(high.sum())]
    multipliers[low] -= prices[int(high.sum()) :]
    solution: FloatArray = np.asarray(result.x)
    return solution[:-1], multipliers, -float(np.asarray(result.eqlin.marginals)[0]), float(solution[-1])


def _price(problem: Problem, multipliers: FloatArray, *, bounds_only: bool) -> Solution | None:
    """Return the rule with the largest ``U - lambda . V``, or ``- lambda . V`` if only the bounds count."""
    far = np.abs(problem.effects).sum(axis=0) + 1.0
    gain = -problem.effects @ multipliers
    offset = 0.0
    if not bounds_only:
        gain, offset = gain + problem.gain, problem.offset
    free = replace(problem, gain=gain, offset=offset, lower=-far[None, :], upper=far[None, :])
    found = Certified(max_visits=VISITS_A_COLUMN).solve(free)[0]
    return None if isinstance(found, NoRule) else found
