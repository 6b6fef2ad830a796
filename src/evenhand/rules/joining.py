"""Combines the best rule of each stratum into one rule.

If each bound involves one stratum only, a decision in one stratum has no effect on the bounds of another, and
utilities add up. So the best rules of the strata together are the best rule of all. If no rule of a stratum is better
by more than its gap, no combined rule is better by more than the sum of the gaps, each weighted by the stratum's share
of the rows. Rows that are in no compared stratum are decided by the model alone in every rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from evenhand.errors import InfeasibleError
from evenhand.inputs import FloatArray
from evenhand.rules.events import strata_texts
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Setting, pairs
from evenhand.search import NoRule, Problem, Solution
from evenhand.search.problem import Status

T = TypeVar("T")
Stratum = tuple[str, Hashable]


def stratum_of(part: Setting) -> Stratum:
    """Return the column and the value of the stratum of one of ``setting.strata``."""
    stratum = part.system.events[0].stratum
    assert stratum is not None
    return stratum


def texts_of(setting: Setting) -> dict[Stratum, str]:
    """Return each stratum of a setting in words."""
    strata = [stratum_of(part) for part in setting.strata]
    return dict(zip(strata, strata_texts({column: value} for column, value in strata), strict=True))


def in_order(setting: Setting, found: Sequence[Sequence[T]]) -> tuple[T, ...]:
    """Return a value for each reported bound, from those of the bounds of each stratum.

    Bounds are matched by stratum and place: their printed names contain rounded numbers, and may be equal as text.
    """
    inside = {stratum_of(part): iter(values) for part, values in zip(setting.strata, found, strict=True)}
    strata = [bound.terms[0][0].stratum for bound in setting.reported]
    return tuple(next(inside[stratum]) for stratum in strata if stratum is not None)


def in_each_stratum(setting: Setting, learn: Callable[[Setting], Rule]) -> list[Rule]:
    """Return the rule of each stratum; raise one error that names all strata without a rule."""
    found, failures, texts = [], [], texts_of(setting)
    for part in setting.strata:
        try:
            found.append(learn(part))
        except InfeasibleError as error:
            failures.append((texts[stratum_of(part)], error))
    if failures:
        text, first = failures[0]
        others = ", ".join(name for name, _ in failures[1:])
        smallest = [error.smallest_tolerance for _, error in failures]
        known = [one for one in smallest if one is not None]
        more = f" The same holds in {others}." if others else ""
        largest = max(known) if len(known) == len(failures) else None
        if largest is not None and others:
            more += f" Tolerance {largest:.6g} can be met in each of them."
        raise InfeasibleError(
            f"Within {text}: {first}{more} Strata with few rows in a cell can be left to the model's own"
            " decisions, for example with thin=30 in the criterion.",
            smallest_tolerance=largest,
        )
    return found


def no_rule(answers: Sequence[Rule | NoRule]) -> NoRule | None:
    """Return what is known if a stratum has no rule; None if each has one."""
    absent = [answer for answer in answers if isinstance(answer, NoRule)]
    if not absent:
        return None
    nodes = sum(answer.nodes if isinstance(answer, NoRule) else answer.solution_.nodes for answer in answers)
    return NoRule(proven=any(answer.proven for answer in absent), nodes=nodes, stopped=absent[0].stopped)


def join(
    setting: Setting,
    rules: Sequence[Rule],
    tolerance: float,
    *,
    certified: bool = False,
    counted: tuple[float, FloatArray] | None = None,
) -> Rule:
    """Return the rule that decides in each stratum by that stratum's rule; its numbers refer to all rows.

    ``certified`` means that the rules were tested on other rows, and may miss the bounds on these. ``counted`` are the
    utility and the constraints' sums of the joined rule, where the rows of the setting are counts; with levels, the
    values of the reported bounds.
    """
    z, priors = np.zeros(len(setting.system.contrasts)), setting.priors.copy()
    place = {event: j for j, event in enumerate(setting.system.events)}
    first, contrasts = np.argmax(setting.system.contrasts != 0.0, axis=1), setting.system.contrasts.copy()
    for rule in rules:
        at = np.array([place[event] for event in rule.events])
        inside = np.flatnonzero(np.isin(first, at))
        priors[at], z[inside] = rule.priors, rule.z
        contrasts[np.ix_(inside, at)] = [term.coefficients for term in rule.terms]
    found = dataclasses.replace(
        setting,
        priors=priors,
        system=dataclasses.replace(setting.system, contrasts=contrasts),
        options=dataclasses.replace(setting.options, safety=0.0),
    )
    solutions = [rule.solution_ for rule in rules]
    solution = Solution(
        z=tuple(map(float, z)),
        utility=-np.inf,
        values=(),
        upper_bound=np.inf,
        status=_status(solutions),
        nodes=sum(solution.nodes for solution in solutions),
        seconds=sum(solution.seconds for solution in solutions),
        stopped=next((solution.stopped for solution in solutions if solution.stopped is not None), None),
    )
    weights = [float(part.rows.weights.sum() / setting.rows.weights.sum()) for part in setting.strata]
    gap = sum(weight * solution.gap for weight, solution in zip(weights, solutions, strict=True))
    counting = _with_levels if setting.system.levels else _with_bounds
    joined = counting(found, solution, gap, tolerance, counted=counted, certified=certified)
    learned_from = {**joined.learned_from, "strata": _by_stratum(setting, solutions)}
    if setting.options.safety == 0.0:
        return dataclasses.replace(joined, learned_from=learned_from)
    learned_from["safety"] = {
        "standard_errors": setting.options.safety,
        "thin_cells": [cell for rule in rules for cell in rule.learned_from["safety"]["thin_cells"]],
    }
    asked = pairs(*setting.system.bounds([tolerance]))
    if setting.system.levels:
        asked = tuple(bound.bounds(tolerance) for bound in setting.reported)
    return dataclasses.replace(
        joined,
        learned_from=learned_from,
        solution=dataclasses.replace(joined.solution_, asked=asked, used=_used(setting, solutions)),
    )


Counted = tuple[float, FloatArray]


def _with_bounds(
    found: Setting, solution: Solution, gap: float, tolerance: float, *, counted: Counted | None, certified: bool
) -> Rule:
    """Return the joined rule with its numbers, after checking it against the bounds."""
    problem = found.problem([tolerance])
    if counted is not None:
        problem = _one_row(problem, *counted)
    utility, values = problem.evaluate(problem.decide(np.array(solution.z)))
    if certified:
        lower, upper = np.minimum(problem.lower, values), np.maximum(problem.upper, values)
        problem = dataclasses.replace(problem, lower=lower, upper=upper)
    return found.rule(problem, dataclasses.replace(solution, upper_bound=utility + gap), tolerance, 0)


def _with_levels(
    found: Setting, solution: Solution, gap: float, tolerance: float, *, counted: Counted | None, certified: bool
) -> Rule:
    """Return the joined rule with its numbers; each stratum's search has checked its rule at that stratum's level."""
    if counted is None:
        decisions = found.decide(np.array(solution.z))
        counted = found.problem([tolerance]).evaluate(decisions)[0], found.measure(decisions)
    utility, values = counted
    # The sum of the strata's rounding may differ from the rounding of the sum.
    gap = gap if gap > found.problem([tolerance]).resolution else 0.0
    status = solution.status
    if status in ("optimal", "gap"):
        status = "gap" if gap > 0.0 else "optimal"
    solution = dataclasses.replace(
        solution, utility=utility, values=tuple(map(float, values)), upper_bound=utility + gap, status=status
    )
    return dataclasses.replace(found.rule_at(solution.z, tolerance), solution=solution)


def _one_row(problem: Problem, utility: float, values: FloatArray) -> Problem:
    """Return a problem with the bounds of another, and a single row that every rule decides positively."""
    return dataclasses.replace(
        problem,
        margin=np.ones(1),
        contrasts=np.zeros((1, problem.dimension)),
        gain=np.array([utility - problem.offset]),
        effects=values[None],
        weight=np.ones(1),
        decider=None,
    )


def _status(solutions: Sequence[Solution]) -> Status:
    """Return the status of all strata together; optimality is claimed only if it holds in each."""
    found = {solution.status for solution in solutions}
    if found == {"unchanged"}:
        return "unchanged"
    if "plug-in" in found:
        return "plug-in"
    return "gap" if found <= {"optimal", "gap"} else "found"


def _used(setting: Setting, solutions: Sequence[Solution]) -> tuple[tuple[float, float], ...]:
    """Return the bounds that each constraint was learnt within, in the order of all constraints."""
    return in_order(setting, [solution.used for solution in solutions if solution.used is not None])


def _by_stratum(setting: Setting, solutions: Sequence[Solution]) -> dict[str, Any]:
    """Return, as plain data, the search's result for each stratum."""
    texts = texts_of(setting)
    return {
        texts[stratum_of(part)]: {
            "rows": part.rows.n_rows,
            "status": solution.status,
            "utility": solution.utility,
            "gap": solution.gap if np.isfinite(solution.gap) else None,
        }
        for part, solution in zip(setting.strata, solutions, strict=True)
    }
