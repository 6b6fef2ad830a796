"""Learns randomized mixtures: the best mixture of rules within a criterion's bounds.

The bounds hold on average over the lots: expected rates, and for a precision the expected number of true positives
over the expected number of positive decisions. An F score is likewise the quotient of its expected parts.
:mod:`evenhand.rules.families` has the rules that are mixed, and :mod:`evenhand.rules.mixed_levels` the search for the
level of a criterion that is linear only once it is fixed.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import EvenhandWarning, InfeasibleError, InputError
from evenhand.rows import Rows
from evenhand.rules import levels
from evenhand.rules.criteria import Criterion, check_tolerance
from evenhand.rules.families import family_of
from evenhand.rules.ladder import at_asked_bounds, left_alone, warn_of_thin_cells, warn_without_safety
from evenhand.rules.mixed_levels import best_levelled
from evenhand.rules.mixture import Mixture
from evenhand.rules.rule_strata import columns_within
from evenhand.rules.safety import thin_text
from evenhand.rules.setting import Options, Setting, pairs
from evenhand.search.problem import FEASIBILITY_SLACK, NoRule, Solution


def check_lots(search: Any, criterion: Criterion) -> None:
    """Raise if an option cannot be combined with ``randomize=True``."""
    if search != "certified":
        raise InputError("randomize=True has its own search for the best mixture: leave search at its default.")


def best_mixture(rows: Rows, options: Options, tolerance: float) -> Mixture:
    """Return the best mixture of rules that meets a tolerance on average; raise InfeasibleError if there is none.

    With ``safety``, a model that already meets the bounds is left unchanged. If no mixture meets the tightened bounds,
    the best mixture within the requested bounds is returned, with a warning.
    """
    tolerance = check_tolerance(tolerance)
    setting = Setting.of(rows, options)
    if options.safety == 0.0:
        return _mixed(setting, tolerance)
    if setting.system.levels:
        return _safe_level(setting, tolerance)
    if {"precision", "npv"} & options.criterion.kinds:
        plain = _mixed(at_asked_bounds(setting), tolerance)
        drawn = _drawn(plain, setting)
        setting = dataclasses.replace(setting, reference=drawn)
    warn_of_thin_cells(setting, tolerance)
    alone = left_alone(setting, tolerance)
    if alone is not None:
        return Mixture((dataclasses.replace(alone, solution=None),), (1.0,), alone.solution)
    try:
        return _mixed(setting, tolerance)
    except InfeasibleError:
        found = _mixed(at_asked_bounds(setting), tolerance)
        warn_without_safety(setting, tolerance)
        asked = pairs(*setting.system.bounds([tolerance]))
        solution = dataclasses.replace(found.solution_, asked=asked, used=asked)
        return dataclasses.replace(found, solution=solution).noting(safety=setting.safety.to_dict(tolerance))


def _mixed(setting: Setting, tolerance: float) -> Mixture:
    """Return the best mixture within the bounds of the setting."""
    family = family_of(setting)
    if setting.system.levels:
        return best_levelled(family, tolerance)
    problem = family.problem(tolerance)
    found = family.mix(problem)
    if isinstance(found, NoRule):
        claim = "No mixture of rules meets" if found.proven else "The search found no mixture of rules that meets"
        raise InfeasibleError(f"{claim} these bounds: loosen one of them.")
    return family.answer(found, problem, tolerance, found.upper_bound)


def _drawn(mixture: Mixture, setting: Setting) -> NDArray[np.bool_]:
    """Return a mask of the rows that a mixture decides positively, drawn by the scores."""
    given = columns_within(mixture.rules[0], setting.rows.p_group, setting.rows.strata)
    drawn: NDArray[np.bool_] = mixture.lots(setting.rows.p_y, given) < mixture.expected_decision(
        setting.rows.p_y, given
    )
    return drawn


def _safe_level(setting: Setting, tolerance: float) -> Mixture:
    """Do the same as :func:`best_mixture` for predictive parity, whose single tolerance is tightened."""
    levels.check_safe(setting)
    plain = _mixed(at_asked_bounds(setting), tolerance)
    asked, used, thin = levels.drawn_in(setting, tolerance, _drawn(plain, setting))
    if thin:
        warnings.warn(thin_text(thin), EvenhandWarning, stacklevel=4)
    criterion = dataclasses.replace(setting.options.criterion, tolerance=used)
    inner = Setting.of(setting.rows, dataclasses.replace(setting.options, criterion=criterion, safety=0.0))
    try:
        found = _alone(inner, tolerance, used) or _mixed(inner, tolerance)
    except InfeasibleError:
        warn_without_safety(setting, tolerance)
        found, used = plain, asked
    n = len(setting.reported)
    solution = dataclasses.replace(found.solution_, asked=((-asked, asked),) * n, used=((-used, used),) * n)
    rules = tuple(dataclasses.replace(rule, criterion=setting.options.criterion) for rule in found.rules)
    safety = {"standard_errors": setting.options.safety, "thin_cells": [vars(cell) for cell in thin]}
    return dataclasses.replace(found, rules=rules, solution=solution).noting(safety=safety)


def _alone(setting: Setting, tolerance: float, used: float) -> Mixture | None:
    """Return the unchanged model if its precisions are close enough and its threshold is that of the objective."""
    if setting.options.target.is_ratio:
        return None
    z = np.zeros(len(setting.system.contrasts))
    decisions = setting.decide(z)
    values = setting.measure(decisions)
    if np.abs(values).max(initial=0.0) > used + FEASIBILITY_SLACK:
        return None
    utility = setting.problem([tolerance]).evaluate(decisions)[0]
    solution = Solution((), utility, tuple(map(float, values)), np.inf, "unchanged", 0)
    return Mixture((setting.rule_at(z, tolerance),), (1.0,), solution)
