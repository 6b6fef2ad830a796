"""The best rule for each of several tolerances, all from one search, or the reason why there is none."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable

import numpy as np

from evenhand.errors import EvenhandWarning, InfeasibleError
from evenhand.rows import Rows
from evenhand.rules import levels
from evenhand.rules.criteria import check_tolerance
from evenhand.rules.joining import in_each_stratum, join, no_rule
from evenhand.rules.rule import Rule
from evenhand.rules.safety import thin_text
from evenhand.rules.setting import Options, Setting, pairs
from evenhand.search import Certified, Dual, NoRule, Problem, Smoothed
from evenhand.search.closest import loosening, nearest_miss
from evenhand.search.problem import FEASIBILITY_SLACK, conclude
from evenhand.text import printable

# Row visits of a fast search, about a third of the usual.
QUICK_WORK, QUICK_WORK_A_ROW = 25e6, 70.0


def best_rule(rows: Rows, options: Options, tolerance: float) -> Rule:
    """Return the best rule that meets a tolerance; raise InfeasibleError if there is none.

    With ``safety``, a model that already meets the bounds is left unchanged. If no rule meets the tightened bounds, the
    best rule within the requested bounds is returned, with a warning.
    """
    return rule_for(Setting.of(rows, options), check_tolerance(tolerance))


def rule_for(setting: Setting, tolerance: float, found: Rule | None = None) -> Rule:
    """Do the same as :func:`best_rule`; ``found`` is the result of an earlier search for the tolerance."""
    if setting.options.safety == 0.0:
        return found or _only_answer(setting, tolerance)
    if setting.system.levels:
        if not setting.strata:
            return _safe_level(setting, tolerance)
        levels.check_safe(setting)
        return join(setting, in_each_stratum(setting, lambda part: _safe_level(part, tolerance)), tolerance)
    if setting.strata:
        warn_of_thin_cells(setting, tolerance)
        return join(setting, in_each_stratum(setting, lambda part: _with_safety(part, tolerance)), tolerance)
    if {"precision", "npv"} & setting.options.criterion.kinds:
        plain = _only_answer(at_asked_bounds(setting), tolerance)
        setting, found = dataclasses.replace(setting, reference=setting.decide(plain.z)), None
    warn_of_thin_cells(setting, tolerance)
    return _with_safety(setting, tolerance, found)


def _with_safety(setting: Setting, tolerance: float, found: Rule | None = None) -> Rule:
    """Return the model's own decisions if they meet the bounds, else the best rule within the tightened bounds."""
    unchanged = left_alone(setting, tolerance)
    if unchanged is not None:
        return unchanged
    if found is not None:
        return found
    ((_, answer),) = answer_ladder(setting, [tolerance], strict=False)
    return _as_asked(setting, tolerance) if isinstance(answer, NoRule) else answer


def left_alone(setting: Setting, tolerance: float) -> Rule | None:
    """Return the unchanged model if it meets the bounds and its threshold is that of the objective."""
    if setting.options.target.is_ratio:
        return None
    problem = setting.problem([tolerance])
    origin = np.zeros(problem.dimension)
    solution = conclude(problem, 0, origin, status="unchanged")
    if problem.excess(np.array(solution.values)) > FEASIBILITY_SLACK:
        return None
    return setting.rule(problem, solution, tolerance, 0)


def _as_asked(setting: Setting, tolerance: float) -> Rule:
    """Return the best rule within the requested bounds, if no rule is within the tightened ones."""
    return without_safety(setting, _only_answer(at_asked_bounds(setting), tolerance), tolerance)


def at_asked_bounds(setting: Setting) -> Setting:
    """Return a setting with the requested bounds, without safety."""
    return dataclasses.replace(setting, options=dataclasses.replace(setting.options, safety=0.0))


def without_safety(setting: Setting, rule: Rule, tolerance: float) -> Rule:
    """Return a rule that meets the requested bounds; record it in the rule and warn."""
    warn_without_safety(setting, tolerance, depth=5)
    asked = pairs(*setting.system.bounds([tolerance]))
    return dataclasses.replace(
        rule,
        solution=dataclasses.replace(rule.solution_, asked=asked, used=asked),
        learned_from={**rule.learned_from, "safety": setting.safety.to_dict(tolerance)},
    )


def warn_without_safety(setting: Setting, tolerance: float, *, depth: int = 4) -> None:
    """Warn that no rule meets the tightened bounds, and that this one meets the requested ones."""
    stratum = setting.system.events[0].stratum
    where = "" if stratum is None else f"Within {stratum[0]}={printable(stratum[1])}: "
    warnings.warn(
        f"{where}No rule meets tolerance {tolerance:g} with safety={setting.options.safety:g}: this one meets it on"
        " these rows without a safety margin, so it will often exceed it on new rows. Use a larger tolerance, or"
        " more rows.",
        EvenhandWarning,
        stacklevel=depth,
    )


def _safe_level(setting: Setting, tolerance: float) -> Rule:
    """Do the same as :func:`rule_for` for predictive parity, whose single tolerance is tightened."""
    levels.check_safe(setting)
    plain = _reference(at_asked_bounds(setting), tolerance)
    asked, used, thin = levels.drawn_in(setting, tolerance, setting.decide(plain.z))
    if thin:
        warnings.warn(thin_text(thin), EvenhandWarning, stacklevel=4)
    found = levels.answer_within(setting, tolerance, used)
    if isinstance(found, Rule):
        return levels.with_safety(setting, found, asked, used, thin)
    warn_without_safety(setting, tolerance, depth=5)
    return levels.with_safety(setting, _only_answer(at_asked_bounds(setting), tolerance), asked, asked, thin)


def _reference(setting: Setting, tolerance: float) -> Rule:
    """Return a rule within a tolerance by which standard errors are computed: beyond the plane, without a proof."""
    if takes_long(setting):
        found = levels.answer(without_proof(setting), tolerance)
        if isinstance(found, Rule):
            return found
    return _only_answer(setting, tolerance)


def takes_long(setting: Setting) -> bool:
    """Tell whether one rule takes many proofs beyond the plane: for an F score, or a level that is searched for."""
    if setting.strata:
        return any(map(takes_long, setting.strata))
    several = bool(setting.system.levels) or setting.evidence.divisor is not None
    return several and len(setting.system.contrasts) > 2 and isinstance(setting.options.solver, Certified)


def without_proof(setting: Setting) -> Setting:
    """Return a setting whose rules are searched for fast."""
    search = Smoothed(max_work=QUICK_WORK + QUICK_WORK_A_ROW * len(setting.rows))
    return dataclasses.replace(setting, options=dataclasses.replace(setting.options, search=search))


def warn_of_thin_cells(setting: Setting, tolerance: float) -> None:
    """Warn if there are too few rows for safety to ensure a tolerance."""
    thin = setting.safety.thin_cells(tolerance)
    if thin:
        warnings.warn(thin_text(thin), EvenhandWarning, stacklevel=5)


def _only_answer(setting: Setting, tolerance: float) -> Rule:
    if setting.strata:
        return join(setting, in_each_stratum(setting, lambda part: _only_answer(part, tolerance)), tolerance)
    ((_, answer),) = answer_ladder(setting, [tolerance], strict=True)
    assert isinstance(answer, Rule)
    return answer


def answer_ladder(setting: Setting, tolerances: Iterable[float], *, strict: bool) -> list[tuple[float, Rule | NoRule]]:
    """Return the best rule for each tolerance, from strict to loose, or the search's result if there is none.

    ``strict`` raises in that case.
    """
    ladder = sorted({check_tolerance(tolerance) for tolerance in tolerances})
    if setting.strata:
        inside = zip(*(answer_ladder(part, ladder, strict=strict) for part in setting.strata), strict=True)
        by_step = [[answer for _, answer in answers] for answers in inside]
        return [
            (tolerance, no_rule(answers) or join(setting, [a for a in answers if isinstance(a, Rule)], tolerance))
            for tolerance, answers in zip(ladder, by_step, strict=True)
        ]
    if setting.system.levels:
        return _answer_with_levels(setting, ladder, strict=strict)
    problem = setting.problem(ladder)
    solver = setting.options.solver
    results = setting.solve(problem)
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


def _answer_with_levels(setting: Setting, ladder: list[float], *, strict: bool) -> list[tuple[float, Rule | NoRule]]:
    """Do the same as :func:`answer_ladder` for a criterion with levels: one search for each tolerance."""
    answers: list[tuple[float, Rule | NoRule]] = []
    plain: list[Rule] = []
    if setting.options.safety > 0.0:
        levels.check_safe(setting)
    for tolerance in ladder:
        found = levels.answer(at_asked_bounds(setting), tolerance, plain)
        if isinstance(found, Rule):
            plain.append(found)
            if setting.options.safety > 0.0:
                asked, used, thin = levels.drawn_in(setting, tolerance, setting.decide(found.z))
                found = levels.answer_within(setting, tolerance, used)
                if isinstance(found, Rule):
                    found = levels.with_safety(setting, found, asked, used, thin)
        elif strict:
            raise levels.infeasible(setting, tolerance, found)
        answers.append((tolerance, found))
    return answers


def _infeasible(
    setting: Setting, problem: Problem, step: int, tolerance: float, result: NoRule, *, plug_in: bool
) -> InfeasibleError:
    moving = setting.system.moving
    asked, loosen = (
        (f"within tolerance {tolerance:g}", "loosen it") if moving.any() else ("that meets these bounds", "loosen them")
    )
    if plug_in:
        return InfeasibleError(
            f"search='dual' found no rule {asked}, but it uses only the probabilities, which proves nothing about"
            f" the labels: {loosen}, or use search='certified'.",
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
            " or search longer with search=Certified(max_seconds=...).",
            smallest_tolerance=None if miss is None else tolerance + miss,
        )
    if not moving.any():
        return InfeasibleError("No rule meets these bounds together: loosen one of them, or give it a tolerance.")
    found = loosening(problem.take([step]), moving)
    if isinstance(found, NoRule):
        return InfeasibleError(
            "No rule meets these bounds at any tolerance: loosen the other bounds."
            if found.proven
            else f"No rule meets tolerance {tolerance:g} on these {len(problem.margin)} rows, and none was found for"
            " larger ones in the time allowed for it: loosen the tolerance, or the other bounds."
        )
    extra, exact = found
    smallest = tolerance + extra
    claim = "the smallest that a rule in this family meets is" if exact else "a rule exists at"
    lots = " A randomized mixture of rules may meet it: learn_rule(..., randomize=True)."
    return InfeasibleError(
        f"No rule meets tolerance {tolerance:g} on these {len(problem.margin)} rows; {claim} {smallest:.6g}.{lots}",
        smallest_tolerance=smallest,
    )
