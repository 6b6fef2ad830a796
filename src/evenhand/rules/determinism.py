"""The cost of a deterministic rule, compared with the best mixture of rules on the same rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from evenhand.rows import Rows
from evenhand.rules.families import rules_of
from evenhand.rules.rule import Rule
from evenhand.rules.rule_strata import strata_of
from evenhand.rules.setting import Options, Setting
from evenhand.search.problem import NoRule

QUICK_TERMS, QUICK_ROWS = 2, 50_000


@dataclass(frozen=True)
class Determinism:
    """The cost of a deterministic rule, on the rows that it was learnt from.

    Attributes
    ----------
    mixture_utility : float
        The utility of the best mixture of rules in the same family within the same bounds.
    mixture_bound : float
        An upper bound on the utility of every mixture and every rule in this family.
    cost : float
        ``mixture_utility`` minus the rule's utility.
    """

    mixture_utility: float
    mixture_bound: float
    cost: float


def determinism(rule: Rule, rows: Rows, options: Options) -> Determinism | None:
    """Return the cost of determinism, or None if it is not defined for a rule.

    It is not defined for a rule without a solution or a tolerance, one that leaves the model unchanged, one with
    several columns of strata, one that has a level to be found, and one with ``confidence``, which was learnt on other
    rows than it was certified on.

    Parameters
    ----------
    rule : Rule
        The rule.
    rows : Rows
        The rows that it was learnt from.
    options : Options
        The options that it was learnt with.
    """
    solution, tolerance = rule.solution, rule.tolerance
    if solution is None or tolerance is None or solution.status == "unchanged" or "confidence" in rule.learned_from:
        return None
    if len(options.criterion.strata) > 1:
        return None
    if solution.used == solution.asked:
        options = dataclasses.replace(options, safety=0.0)
    setting = Setting.of(rows, options)
    if setting.system.levels:
        return None
    if options.safety > 0.0 and {"precision", "npv"} & options.criterion.kinds:
        return None
    found = rules_of(setting, setting).mix(setting.problem([tolerance]))
    if isinstance(found, NoRule):
        return None
    return Determinism(found.utility, found.upper_bound, max(0.0, found.utility - solution.utility))


def quickly_mixed(rule: Rule, rows: Rows) -> bool:
    """Return whether finding the best mixture takes only a second or two: few contrasts, and not too many rows.

    Only the contrasts of one stratum count: strata are solved separately.
    """
    strata = max((len(strata_of(rule, key)) for key in rule.stratified), default=1)
    return len(rule.terms) <= QUICK_TERMS * strata and len(rows) <= QUICK_ROWS


def with_determinism(rule: Rule, rows: Rows, options: Options) -> Rule:
    """Return a rule with the cost of determinism in its ``learned_from``, if it can be computed quickly."""
    found = determinism(rule, rows, options) if quickly_mixed(rule, rows) else None
    if found is None:
        return rule
    return rule.noting(determinism=dataclasses.asdict(found))
