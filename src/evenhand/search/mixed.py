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

**Parts.** Where rows are known to be in one of several parts (strata), each part has its own rules and its own weights.
Utilities and values are then sums over the parts, so the program has one row ``sum_j w_j = 1`` for each part, and the
bound has one maximum for each part. Constraints may involve several parts: only the program connects these.

**Quotients.** If the utility is a quotient N / D, that of a mixture is the quotient of the means. Dinkelbach's
iterations (:mod:`evenhand.search.ratio`) then need only the best mixture for N - v D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import linprog

from evenhand.inputs import FloatArray
from evenhand.search import ratio
from evenhand.search.certified import Certified
from evenhand.search.problem import NoRule, Problem, Solution, typical_size

MOST_COLUMNS = 400
LEAST_WEIGHT = 1e-9
ROUNDING = 1e-10
VISITS_A_COLUMN = 400_000_000
FAR = 1e3


@dataclass(frozen=True)
class Part:
    """The mixture of one part of the rows.

    Attributes
    ----------
    z : array of shape (rules, K)
        The rules.
    weights : array of shape (rules,)
        Their probabilities.
    """

    z: FloatArray
    weights: FloatArray


@dataclass(frozen=True)
class Mixed:
    """The best mixture found for one step of a problem's bounds.

    Attributes
    ----------
    parts : tuple of Part
        The mixture of each part of the rows; one if the problem has no parts.
    utility : float
        The mean of the rules' utilities, or the quotient of the means.
    values : array of shape (constraints,)
        The means of the constraints' values.
    upper_bound : float
        No mixture and no rule in this family that meets the bounds has a utility above this.
    columns : int
        The number of rules that were listed.
    multipliers : array of shape (constraints,)
        Those of the bound.
    """

    parts: tuple[Part, ...]
    utility: float
    values: FloatArray
    upper_bound: float
    columns: int
    multipliers: FloatArray

    @property
    def z(self) -> FloatArray:
        """The rules of the first part."""
        return self.parts[0].z

    @property
    def weights(self) -> FloatArray:
        """The probabilities of the first part's rules."""
        return self.parts[0].weights


@dataclass(eq=False)
class _Listed:
    """The listed rules of one part, and what its last pricing was for."""

    part: Problem
    z: list[FloatArray] = field(default_factory=list)
    utility: list[float] = field(default_factory=list)
    values: list[FloatArray] = field(default_factory=list)
    _priced: tuple[bytes, Solution | None] = (b"", None)

    def add(self, z: FloatArray) -> bool:
        """Add a rule; return whether it was new."""
        utility, values = self.part.evaluate(self.part.decide(z))
        for known, others in zip(self.utility, self.values, strict=True):
            if known == utility and (others == values).all():
                return False
        self.z.append(z)
        self.utility.append(utility)
        self.values.append(values)
        return True

    def price(self, multipliers: FloatArray, *, bounds_only: bool) -> Solution | None:
        """Do the same as :func:`_price` for this part; multipliers that do not concern it change nothing."""
        own = np.where(self.part.effects.any(axis=0), multipliers, 0.0)
        asked = own.tobytes() + bytes([bounds_only])
        if self._priced[0] != asked:
            self._priced = asked, _price(self.part, own, bounds_only=bounds_only)
        return self._priced[1]


@dataclass(eq=False)
class _Program:
    """The linear program over the listed rules of all parts."""

    problem: Problem
    parts: list[_Listed]
    # How far the bounds may be missed: rounding, which the listed rules may need to meet them at all.
    slack: float = 0.0

    @classmethod
    def of(cls, problem: Problem, parts: Sequence[Problem]) -> _Program:
        """List the first rules of each part."""
        listed = [_Listed(replace(part, offset=0.0, divisor=None)) for part in parts]
        for one in listed:
            for z in (*_first_rules(one.part), *one.part.starts):
                one.add(z)
        return cls(replace(problem, divisor=None), listed)

    @property
    def columns(self) -> int:
        """The number of listed rules."""
        return sum(len(part.z) for part in self.parts)


def mix(
    problem: Problem, parts: Sequence[Problem] | None = None, *, value: float | None = None, enough: float = 0.0
) -> Mixed | NoRule:
    """Return the best mixture for the first step of a problem's bounds, or the result that none meets them.

    Parameters
    ----------
    problem : Problem
        The arrays and bounds; one step. The utility may be a quotient.
    parts : sequence of Problem, default=None
        The problem's rows in parts, each with its own contrasts and with all constraints. Utilities without their
        offsets, and values, add up to those of the problem. Known good rules (``starts``) are listed first. ``None``
        is one part: the problem itself.
    value : float or None, default=None
        If the utility is a quotient: one that some mixture is known to have, also for other bounds. Only what is better
        is searched for, so that the result may be worse than the best mixture within these bounds.
    enough : float, default=0.0
        If the utility is a quotient, how far below its bound it may be.

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
    parts = (problem,) if parts is None else parts
    return _mix_linear(problem, parts) if problem.divisor is None else _mix_quotient(problem, parts, value, enough)


def _mix_linear(problem: Problem, parts: Sequence[Problem]) -> Mixed | NoRule:
    program = _Program.of(problem, parts)
    # First only the bounds count, then the utility within them.
    missing, proven, _ = _generate(program, bounds_only=True)
    if missing is not None:
        return NoRule(proven=proven, nodes=program.columns, upper_bound=-np.inf if proven else np.inf)
    _, _, (weights, bound, multipliers) = _generate(program, bounds_only=False)
    utility, values, found = problem.offset, np.zeros(problem.effects.shape[1]), []
    for listed, own in zip(program.parts, weights, strict=True):
        used = np.flatnonzero(own > LEAST_WEIGHT)
        shares = own[used] / own[used].sum()
        utility += float(shares @ np.array(listed.utility)[used])
        values = values + shares @ np.array(listed.values)[used]
        found.append(Part(np.array(listed.z)[used], shares))
    if bound <= utility + problem.resolution:
        bound = utility
    return Mixed(tuple(found), utility, values, bound, program.columns, multipliers)


def _mix_quotient(problem: Problem, parts: Sequence[Problem], known: float | None, enough: float) -> Mixed | NoRule:
    """Return the mixture whose quotient of means is largest, by Dinkelbach's iterations."""
    assert problem.divisor is not None
    best: Mixed | None = None
    bound, value = np.inf, problem.evaluate(problem.margin > 0.0)[0] if known is None else known
    for _ in range(ratio.MOST_ITERATIONS):
        inside = [ratio.at_value(replace(part, divisor=problem.divisor), value) for part in parts]
        if best is not None:
            inside = [replace(one, starts=tuple(found.z)) for one, found in zip(inside, best.parts, strict=True)]
        mixed = _mix_linear(ratio.at_value(problem, value), inside)
        if isinstance(mixed, NoRule):
            return mixed
        bound = min(bound, ratio.bound_at(problem, value, mixed.upper_bound))
        base, slope = problem.divisor
        divisor = base + slope * sum(_selected(part, own) for part, own in zip(parts, mixed.parts, strict=True))
        reached = value + mixed.utility / divisor
        if best is not None and reached <= value + problem.resolution:
            break
        best, value = mixed, reached
        if bound <= max(reached + enough, -np.inf if known is None else known):
            break
    assert best is not None
    bound = value if bound <= value + problem.resolution else bound
    return replace(best, utility=value, upper_bound=bound)


def bound_by(problem: Problem, multipliers: FloatArray, value: float, parts: Sequence[Problem] | None = None) -> float:
    """Return the bound on every mixture's utility that some multipliers prove, also those for other bounds.

    Parameters
    ----------
    problem, parts
        As in :func:`mix`.
    multipliers : array of shape (constraints,)
        One for each constraint: not above 0 without a finite upper bound, and not below 0 without a lower one.
    value : float
        If the utility is a quotient, one that some mixture has.
    """
    inside = (problem,) if parts is None else parts
    linear = problem
    if problem.divisor is not None:
        linear = ratio.at_value(problem, value)
        inside = [ratio.at_value(replace(part, divisor=problem.divisor), value) for part in inside]
    bound = linear.offset + _at_bounds(multipliers, problem.lower[0], problem.upper[0])
    for part in inside:
        priced = _price(replace(part, offset=0.0, divisor=None), multipliers, bounds_only=False)
        bound += np.inf if priced is None else priced.upper_bound
    return float(bound) if problem.divisor is None else ratio.bound_at(problem, value, float(bound))


def _selected(part: Problem, mixed: Part) -> float:
    """Return the mean weight of the rows that a part's mixture decides positively."""
    assert part.weight is not None
    chosen = [float(part.weight[part.decide(z)].sum()) for z in mixed.z]
    return float(mixed.weights @ np.array(chosen))


def _first_rules(problem: Problem) -> list[FloatArray]:
    """Return the model's own decisions, and rules that go far along each contrast."""
    k = problem.dimension
    sizes = np.array([typical_size(column) for column in problem.contrasts.T])
    far = FAR * typical_size(problem.margin) / sizes
    return [np.zeros(k), *(sign * far * unit for unit in np.eye(k) for sign in (1.0, -1.0))]


def _generate(
    program: _Program, *, bounds_only: bool
) -> tuple[float | None, bool, tuple[list[FloatArray], float, FloatArray]]:
    """Add rules until there is no improvement.

    Returns the violation of the bounds, or None; whether that is proven; the weights of each part; and the bound on
    the utility with its multipliers.
    """
    bound, problem = np.inf, program.problem
    proof = np.zeros(problem.effects.shape[1])
    while True:
        weights, multipliers, levels, missed = _solve(program, bounds_only=bounds_only)
        if bounds_only and missed <= LEAST_WEIGHT:
            program.slack = missed + ROUNDING if missed > 0.0 else 0.0
            return None, True, (weights, bound, proof)
        priced = [part.price(multipliers, bounds_only=bounds_only) for part in program.parts]
        best = float(_at_bounds(multipliers, problem.lower[0], problem.upper[0]))
        best += 0.0 if bounds_only else problem.offset
        more = False
        for part, found, level in zip(program.parts, priced, levels, strict=True):
            if found is None:
                best = np.inf
                continue
            best += found.upper_bound
            # The possible improvement of the best rule over the program's own value.
            helps = found.utility - level > 1e-10 * max(1.0, abs(level))
            more = (part.add(np.array(found.z)) and helps and len(part.z) < MOST_COLUMNS) or more
        if best < bound:
            bound, proof = best, multipliers
        if not more:
            # Without utility, the bound is on minus the violation: below zero, no mixture meets the bounds.
            proven = bounds_only and bound < -LEAST_WEIGHT
            return (missed if bounds_only else None), proven, (weights, bound, proof)


def _at_bounds(multipliers: FloatArray, lower: FloatArray, upper: FloatArray) -> float:
    """Return sum_c (upper_c lambda_c^+ - lower_c lambda_c^-); infinite bounds have no multiplier."""
    rising, falling = np.maximum(multipliers, 0.0), np.maximum(-multipliers, 0.0)
    above = np.where(rising > 0.0, np.where(np.isfinite(upper), upper, 0.0), 0.0)
    below = np.where(falling > 0.0, np.where(np.isfinite(lower), lower, 0.0), 0.0)
    return float(rising @ above - falling @ below)


def _solve(program: _Program, *, bounds_only: bool) -> tuple[list[FloatArray], FloatArray, FloatArray, float]:
    """Return the weights in each part, the multipliers, the value to beat of each part, and the violation.

    With ``bounds_only`` the program minimises that violation of the bounds.
    """
    n, parts = program.columns, program.parts
    values = np.vstack([np.array(part.values) for part in parts])
    utility = np.concatenate([part.utility for part in parts])
    lower, upper = program.problem.lower[0], program.problem.upper[0]
    low, high = np.isfinite(lower), np.isfinite(upper)
    matrix = np.vstack([values[:, high].T, -values[:, low].T])
    limits = np.concatenate([upper[high], -lower[low]])
    slack = np.full((len(limits), 1), -1.0)
    each = np.repeat(np.eye(len(parts)), [len(part.z) for part in parts], axis=1)
    result = linprog(
        np.append(np.zeros(n) if bounds_only else -utility, 1.0),
        A_ub=np.hstack([matrix, slack]),
        b_ub=limits,
        A_eq=np.hstack([each, np.zeros((len(parts), 1))]),
        b_eq=np.ones(len(parts)),
        bounds=[(0.0, None)] * n + [(0.0, None if bounds_only else program.slack)],
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
    # Rules that are listed later have no weight here.
    weights = np.split(solution[:-1], np.cumsum([len(part.z) for part in parts])[:-1])
    return weights, multipliers, -np.asarray(result.eqlin.marginals, dtype=np.float64), float(solution[-1])


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
