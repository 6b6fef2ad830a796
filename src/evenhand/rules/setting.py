"""Rows and an expanded criterion: the arrays of a search, and the rule for its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import Seed, check_choice, check_seed, shown
from evenhand.errors import InputError
from evenhand.inputs import FloatArray, Missing
from evenhand.rows import Rows
from evenhand.rules import evidence as evidence_kinds
from evenhand.rules import scores
from evenhand.rules.constraints import Constraint
from evenhand.rules.criteria import Criterion
from evenhand.rules.criterion import Ranges, single
from evenhand.rules.events import AttributeKey, Event, base_of
from evenhand.rules.evidence import Evidence, EvidenceName
from evenhand.rules.objective import ACCURACY, BALANCED, Objective, read_objective
from evenhand.rules.rate_bounds import SelectionBudget
from evenhand.rules.rule import Rule, Term, event_priors, term_name
from evenhand.rules.safety import Safety, check_safety
from evenhand.rules.scores import Costs
from evenhand.rules.system import System, rate_of, shares_of, write_out
from evenhand.search import Certified, Directions, Dual, Lines, NoRule, Problem, Search, Smoothed, Solution, ratio
from evenhand.search.dual import solve_linear_program
from evenhand.search.problem import FEASIBILITY_SLACK
from evenhand.versions import versions

MARGIN_ROUNDING = 2.0**-46
ROWS_FOR_EXPECTATION = 4_000
_SEARCHES: dict[str, type[Search]] = {
    "certified": Certified,
    "directions": Directions,
    "lines": Lines,
    "dual": Dual,
    "smoothed": Smoothed,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of learning, without rows and tolerance: parameters of :func:`evenhand.learn_rule`."""

    criterion: Criterion
    search: str | Search = "certified"
    evidence: EvidenceName = "labels"
    costs: Costs = (1.0, 1.0)
    priors: Any = None
    missing: Missing = "raise"
    random_state: Seed = None
    safety: float = 0.0
    objective: str = ACCURACY

    def __post_init__(self) -> None:
        if read_objective(self.objective, self.costs).is_ratio and isinstance(self.solver, Dual):
            raise InputError(
                f"search='dual' uses the model's margin, which objective={self.objective!r} does not: use"
                " search='certified'."
            )
        check_safety(self.safety)
        check_choice(self.evidence, "evidence", ("labels", "model", "both"))
        check_choice(self.missing, "missing", ("raise", "ignore"))
        check_seed(self.random_state)

    @property
    def counts(self) -> bool:
        """Whether labels and groups are counted, not only expected."""
        return self.evidence != "model"

    @property
    def target(self) -> Objective:
        """What is maximised."""
        return read_objective(self.objective, self.costs)

    @property
    def bounded(self) -> Criterion:
        """The criterion; an objective that is a quotient adds a free threshold to the rules."""
        return self.criterion & SelectionBudget() if self.target.is_ratio else self.criterion

    @property
    def solver(self) -> Search:
        """The search, resolved if a string names it."""
        return resolve_search(self.search)


def resolve_search(search: str | Search) -> Search:
    """Return the search that a string names; an object with a ``solve`` method is returned unchanged."""
    if isinstance(search, str) and search in _SEARCHES:
        found: Search = _SEARCHES[search]()
        return found
    if not isinstance(search, str | type) and callable(getattr(search, "solve", None)):
        return search
    raise InputError(
        f"Unknown search {shown(search)}: use one of {sorted(_SEARCHES)!r}, or an instance such as Certified()."
    )


@dataclass(frozen=True, eq=False)
class Setting:
    """Some rows, a criterion expanded for them, and their evidence.

    ``reference`` are decisions whose rates determine the standard errors, if the model's own would be misleading.
    """

    rows: Rows
    options: Options
    system: System
    groups: dict[AttributeKey, tuple[Hashable, ...]]
    margins: FloatArray
    contrasts: FloatArray
    priors: FloatArray
    counted_priors: FloatArray
    evidence: Evidence
    costs: Costs
    reference: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, rows: Rows, options: Options) -> Setting:
        """Expand a criterion for some rows, and compute their evidence."""
        rows = rows.for_criterion(options.criterion)
        system = write_out(options.bounded, rows.groups)
        needed = [name for key in system.attributes for name in (base_of(key), key)]
        groups = {name: rows.groups[name] for name in dict.fromkeys(needed)}
        posteriors = scores.posteriors(system.events, groups, rows.p_group, len(rows))
        objective = options.target
        costs = objective.margin_costs(evidence_kinds.positive_share(rows, counted=options.counts))
        margins = scores.margin(rows.p_y, costs)
        kinds = []
        if options.counts:
            kinds.append(evidence_kinds.counted(rows, system.events, objective))
        if options.evidence != "labels":
            kinds.append(evidence_kinds.expected(rows, posteriors, objective))
        if not system.plain:
            counted = shares_of(dict(zip(system.events, kinds[0].priors.tolist(), strict=True)))
            usual = {
                level: evidence_kinds.predictive_value(rows, margins > 0.0, level.part.kinds, counted=options.counts)
                for level in system.levels
            }
            written = options.bounded.at(single(usual), 0.0)
            system = dataclasses.replace(write_out(written, rows.groups, counted), levels=system.levels)
        found = kinds[0] if len(kinds) == 1 else kinds[0].mean(kinds[1])
        shares = kinds[0].priors / _stratum_shares(rows, system)
        if options.priors is not None:
            if options.criterion.strata:
                raise InputError("priors are counted in each stratum if a criterion has within=: leave them out.")
            shares = event_priors(options.priors, system.events, groups, complete=options.missing == "raise")
        contrasts = scores.contrasts(posteriors / shares, system.contrasts)
        if len(rows) > 1 and np.ptp(margins) == 0.0 and (np.ptp(contrasts, axis=0) == 0.0).all():
            raise InputError("p_y and p_group are the same in every row: decisions need scores that vary.")
        return cls(rows, options, system, groups, margins, contrasts, shares, kinds[0].priors, found, costs)

    def at(self, ranges: Ranges, tolerance: float) -> Setting:
        """Return the same rows and the same family of rules under the bounds of a criterion at some levels."""
        priors = dict(zip(self.system.events, self.counted_priors.tolist(), strict=True))
        system = write_out(self.options.bounded.at(ranges, tolerance), self.rows.groups, shares_of(priors))
        return dataclasses.replace(self, system=system.spanned_by(self.system.contrasts))

    @cached_property
    def strata(self) -> tuple[Setting, ...]:
        """One setting for each stratum, if each bound involves only one stratum; empty without strata.

        Decisions in one stratum then have no effect on another, so the best rules of all strata form the best rule.
        """
        options = self.options
        if options.target.name == BALANCED:
            # A label's weight depends on its share among all rows, so the strata are given the costs that follow.
            if options.evidence == "both":
                return ()  # counted and expected labels have different shares
            options = dataclasses.replace(options, objective=ACCURACY, costs=self.costs)
        inside = dict.fromkeys(event.stratum for event in self.system.events)
        if len(inside) < 2 or None in inside or len({stratum[0] for stratum in inside if stratum is not None}) != 1:
            return ()
        return tuple(Setting.of(self.rows.inside(*stratum), options) for stratum in inside if stratum is not None)

    @cached_property
    def learned_from(self) -> dict[str, Any]:
        """What a rule records about the rows it was learnt from, as plain data."""
        n = self.rows.n_rows
        shares = zip(self.system.names, self.counted_priors, strict=True)
        return {
            "rows": n,
            "rows_by_event": {name: round(float(share) * n) for name, share in shares},
            "evidence": self.options.evidence,
            "objective": self.options.target.name,
            "versions": versions("numpy", "numba", "scipy"),
        }

    def problem(self, tolerances: Sequence[float]) -> Problem:
        """Return the problem for a search, with one step of bounds for each tolerance, tightened by the safety."""
        lower, upper = self.system.bounds(tolerances)
        if self.options.safety > 0.0:
            lower, upper = self.safety.draw_in(lower, upper)
        matrix = self.system.matrix
        # A row whose margin and contrasts are only rounding error is on the boundary of every rule: it is decided 0.
        tied = (np.abs(self.margins) <= MARGIN_ROUNDING * sum(self.costs)) & ~self.contrasts.any(axis=1)
        return Problem(
            margin=np.where(tied, 0.0, self.margins),
            contrasts=self.contrasts,
            gain=self.evidence.gain,
            effects=self.evidence.shares @ matrix.T,
            lower=lower,
            upper=upper,
            offset=self.evidence.offset,
            mixing=self.system.mixing,
            weight=self.rows.weights / self.rows.weights.sum(),
            decider=self.decide,
            divisor=self.evidence.divisor,
        )

    @cached_property
    def safety(self) -> Safety:
        """How far the bounds are tightened, from the model's own decisions or those of ``reference``."""
        chosen = self.margins > 0.0 if self.reference is None else self.reference
        return Safety.of(
            self.system,
            self.options.safety,
            chosen=chosen.astype(np.float64),
            pooled=self.reference is None,
            shares=self.evidence.shares,
            priors=self.evidence.priors,
            counts=self.evidence.counts,
        )

    def expected_optimum(self, problem: Problem) -> float | None:
        """Return the expected utility of the best decisions if the probabilities are correct, from some rows."""
        if problem.divisor is not None:
            return None
        some = slice(None, None, max(1, len(self.rows) // ROWS_FOR_EXPECTATION))
        weight = self.rows.weights[some] / self.rows.weights[some].sum()
        found = solve_linear_program(
            dataclasses.replace(
                problem,
                margin=problem.margin[some],
                contrasts=problem.contrasts[some],
                gain=problem.gain[some],
                effects=problem.effects[some],
                weight=weight,
                decider=None,
            )
        )
        if found is None:
            return None
        return evidence_kinds.expected_offset(weight, self.rows.p_y[some], self.options.target) + found.value

    def decide(self, z: FloatArray) -> NDArray[np.bool_]:
        """Return the decisions of the rule z on these rows, with the same expression that the rule evaluates."""
        decisions: NDArray[np.bool_] = self._rule_of(z).decision_function(self.rows.p_y, self.rows.p_group) > 0.0
        return decisions

    def solve(self, problem: Problem) -> list[Solution | NoRule]:
        """Return the search's result for each step of a problem's bounds."""
        return ratio.solve(problem, self.options.solver, self.options.random_state)

    def rule(self, problem: Problem, solution: Solution, tolerance: float, step: int) -> Rule:
        """Return the rule of a solution of any search; its numbers are recomputed from the rule's own decisions."""
        utility, values = problem.evaluate(problem.decide(np.array(solution.z)))
        if solution.status != "plug-in" and problem.excess(values, step) > FEASIBILITY_SLACK:
            raise InputError(
                f"The search returned z = {list(solution.z)!r} with status {solution.status!r}, but that rule misses"
                f" its bounds by {problem.excess(values, step):.3g}: a search must return rules that meet them."
            )
        shown = tuple(map(float, (values + self.system.shift)[: len(self.reported)]))
        solution = dataclasses.replace(solution, utility=utility, values=shown)
        solution = self.with_bounds(solution, problem, tolerance, step)
        return dataclasses.replace(self.rule_at(solution.z, tolerance), solution=_bounded(solution, problem))

    def rule_at(self, z: Sequence[float] | FloatArray, tolerance: float) -> Rule:
        """Return the rule z, without a solution."""
        rule = dataclasses.replace(self._rule_of(z), tolerance=tolerance)
        if self.options.safety == 0.0:
            return rule
        return dataclasses.replace(rule, learned_from={**rule.learned_from, "safety": self.safety.to_dict(tolerance)})

    @cached_property
    def reported(self) -> tuple[Constraint, ...]:
        """The bounds whose values rules report: those of the criterion, in its own terms if it has levels."""
        reported = self.options.criterion.reported(self.rows.groups)
        return reported if self.system.levels else self.system.constraints[: len(reported)]

    def measure(self, decisions: NDArray[np.bool_] | FloatArray) -> FloatArray:
        """Return the value of each reported bound; 0 if a rate in it has no rows.

        ``decisions`` may be probabilities of positive decisions: a precision is then a quotient of expected counts.
        """
        return self.measure_rates(decisions.astype(np.float64) @ self.evidence.shares)

    def measure_rates(self, rates: FloatArray) -> FloatArray:
        """Do the same as :meth:`measure`, given the rates of positive decisions in the system's events."""
        if not self.system.levels:
            values = self.system.matrix @ rates + self.system.shift
            return np.asarray(values[: len(self.reported)])
        return np.array(
            [
                np.nan_to_num(sum(coefficient * self.rate(event, rates) for event, coefficient in bound.terms))
                for bound in self.reported
            ]
        )

    def rate(self, event: Event, rates: FloatArray) -> float:
        """Return the value of an event, given the rates of positive decisions in the system's events."""
        known = dict(zip(self.system.events, rates.tolist(), strict=True))
        return rate_of(event, known, shares_of(dict(zip(self.system.events, self.counted_priors, strict=True))))

    def gap(self, values: Sequence[float] | FloatArray) -> float:
        """Return the largest difference among the reported bounds that depend on the caller's tolerance."""
        moving = [bound.tolerance is None for bound in self.reported]
        return float(np.abs(np.asarray(values)[moving]).max())

    def with_bounds(self, solution: Solution, problem: Problem, tolerance: float, step: int) -> Solution:
        """Return a solution with the requested bounds and those used, if safety tightened them."""
        if self.options.safety == 0.0:
            return solution
        asked, used = self.system.bounds([tolerance]), (problem.lower[[step]], problem.upper[[step]])
        own = len(self.reported)
        return dataclasses.replace(solution, asked=pairs(*asked)[:own], used=pairs(*used)[:own])

    def _rule_of(self, z: Sequence[float] | FloatArray) -> Rule:
        return Rule(
            groups=self.groups,
            events=self.system.events,
            priors=tuple(map(float, self.priors)),
            terms=tuple(
                Term(name, tuple(map(float, row)), float(weight))
                for name, row, weight in zip(self._term_names, self.system.contrasts, z, strict=True)
            ),
            classes=self.rows.classes,
            costs=self.costs,
            criterion=self.options.criterion,
            learned_from=self.learned_from,
        )

    @cached_property
    def _term_names(self) -> list[str]:
        return [term_name(row, self.system.names) for row in self.system.contrasts]


def _stratum_shares(rows: Rows, system: System) -> FloatArray:
    """Return, for each event, the share of the rows in its stratum: 1 if it has none."""
    found = np.ones(len(system.events))
    for j, event in enumerate(system.events):
        if event.stratum is not None:
            column = rows.strata[event.stratum[0]]
            inside = column.codes == column.groups.index(event.stratum[1])
            found[j] = rows.weights[inside].sum() / rows.weights.sum()
    return found


def pairs(lower: FloatArray, upper: FloatArray) -> tuple[tuple[float, float], ...]:
    """Return the first step's bounds as pairs, one for each constraint."""
    return tuple(zip(lower[0].tolist(), upper[0].tolist(), strict=True))


def _bounded(solution: Solution, problem: Problem) -> Solution:
    """Return a solution with recounted utility, and the search's bound adjusted to that utility."""
    reached = solution.upper_bound <= solution.utility + problem.resolution
    status = solution.status
    if status in ("optimal", "gap"):
        status = "optimal" if reached else "gap"
    return dataclasses.replace(
        solution, upper_bound=solution.utility if reached else solution.upper_bound, status=status
    )
