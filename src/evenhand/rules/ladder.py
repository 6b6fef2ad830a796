"""The best rule for each of a ladder of tolerances, all from one search, or why there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from evenhand.errors import InfeasibleError
from evenhand.rows import Rows
from evenhand.rules.criteria import check_tolerance
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Options, Setting
from evenhand.search import Dual, NoRule, Problem
from evenhand.search.closest import loosening, nearest_miss


def best_rule(rows: Rows, options: Options, tolerance: float) -> Rule:
    """Return the best rule that meets a tolerance; raise InfeasibleError where none does."""
    (_, answer), *_ = answer_ladder(Setting.of(rows, options), [tolerance], strict=True)
    assert isinstance(answer, Rule)
    return answer


def answer_ladder(setting: Setting, tolerances: Iterable[float], *, strict: bool) -> list[tuple[float, Rule | NoRule]]:
    """Return the best rule for each tolerance, from strict to loose, or what the search says where it has none.

    ``strict`` raises there.
    """
    ladder = sorted({check_tolerance(tolerance) for tolerance in tolerances})
    problem = setting.problem(ladder)
    solver = setting.options.solver
    results = solver.solve(problem, random_state=setting.options.random_state)
    answers: list[tuple[float, Rule | NoRule]] = []
    for step, (tolerance, result) in enumerate(zip(ladder, results, strict=True)):
        if isinstance(result, NoRule):
            if strict:
                raise _infeasible(setting, problem, step, tolerance, result, plug_in=isinstance(solver, Dual))
            answers.append((tolerance, result))
        else:
            if len(ladder) == 1 and result.status in ("gap", "found"):
                result = dataclasses.replace(result, expected_optimum=setting.expected_optimum(problem))
            answers.append((tolerance, setting.rule(problem, result, tolerance, step)))
    return answers


def _infeasible(
    setting: Setting, problem: Problem, step: int, tolerance: float, result: NoRule, *, plug_in: bool
) -> InfeasibleError:
    moving = np.array([bound.tolerance is None for bound in setting.system.constraints])
    asked, loosen = (
        (f"within tolerance {tolerance:g}", "loosen it") if moving.any() else ("that meets these bounds", "loosen them")
    )
    if plug_in:
        return InfeasibleError(
            f"search='dual' found no rule {asked}, but it goes by the probabilities alone, which proves nothing about"
            f" the labels: {loosen}, or let search='certified' look.",
        )
    if not result.proven:
        miss = nearest_miss(problem.take([step]), moving, result) if moving.any() else None
        near = (
            ""
            if miss is None
            else f" The nearest rule found misses it by {miss:.3g}: tolerance {tolerance + miss:.4g} can be met."
        )
        return InfeasibleError(
            f"The search found no rule {asked}, but has not proven that there is none.{near} {loosen.capitalize()},"
            " or let search=Certified(max_seconds=...) look for longer.",
            smallest_tolerance=None if miss is None else tolerance + miss,
        )
    if not moving.any():
        return InfeasibleError("No rule meets these bounds together: loosen one of them, or give it a tolerance.")
    found = loosening(problem.take([step]), moving)
    if isinstance(found, NoRule):
        return InfeasibleError(
            "No rule meets these bounds, whatever the tolerance: loosen the other bounds."
            if found.proven
            else f"No rule meets tolerance {tolerance:g} on these {len(problem.margin)} rows, and none was found for"
            " larger ones in the time given to that: loosen the tolerance, or the other bounds."
        )
    extra, exact = found
    smallest = tolerance + extra
    claim = "the smallest that some rule of this family meets is" if exact else "a rule exists at"
    return InfeasibleError(
        f"No rule meets tolerance {tolerance:g} on these {len(problem.margin)} rows; {claim} {smallest:.6g}.",
        smallest_tolerance=smallest,
    )
