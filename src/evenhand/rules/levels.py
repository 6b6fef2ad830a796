"""Criteria that are linear once a level is fixed: a search over the level, on top of the search for rules.

**A common level** (:class:`evenhand.PredictiveParity`). Precisions are within a tolerance t of each other where some
level l has all of them between l and l + t: floors and ceilings, which are linear. For levels in a range [a, b], floors
at a and ceilings at b + t hold for every rule that meets the criterion with its level there, so that the best rule
within them bounds all of those. If it meets the criterion, the range is done. If not, its lowest precision p and its
highest q have q - p > t; the range is split between p and q - t, and the rule is within the bounds of neither half.
Ranges wait in a queue, the highest bound first: branch and bound over the level. Each attribute has its own level.

**The smallest ceiling** (:class:`evenhand.MinimaxRate`). Bisection: whether any rule meets a ceiling is a search in
which every decision has gain 0. Then the best rule under the smallest ceiling is found.

All rules compared are in one family, at any level. The contrasts of a precision depend on the level of its bound; here
they are those at the model's own precision over everyone.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InfeasibleError, InputError
from evenhand.inputs import FloatArray
from evenhand.rules.criterion import Level
from evenhand.rules.events import RATES, Event
from evenhand.rules.parities import PredictiveParity
from evenhand.rules.rate_bounds import MinimaxRate
from evenhand.rules.rule import Rule
from evenhand.rules.safety import ThinCell, about
from evenhand.rules.setting import Setting
from evenhand.search import Certified, Dual, NoRule, Problem, Smoothed, Solution
from evenhand.search.problem import FEASIBILITY_SLACK, conclude

MOST_RANGES = 400
MOST_UNPROVEN = 24
MOST_STOPPED = 4
CLOSE = 1e-9
NARROW = 1e-4
MOST_CEILINGS = 60
STEPS_AT_FIRST = 12
VISITS_A_CEILING = 200_000_000
ROUNDS_FOR_AN_ERROR = 6

_Box = dict[Level, tuple[float, float]]


def answer(setting: Setting, tolerance: float, known: Iterable[Rule] = ()) -> Rule | NoRule:
    """Return the best rule for a criterion with levels, or the search's result if there is none.

    Parameters
    ----------
    setting : Setting
        Rows and a criterion that has levels.
    tolerance : float
        The caller's tolerance.
    known : iterable of Rule, default=()
        Rules that meet stricter bounds.
    """
    if isinstance(setting.options.solver, Dual):
        raise InputError("search='dual' does not support levels of precision or error: use search='certified'.")
    levels = setting.system.levels
    if not any(isinstance(level.part, MinimaxRate) for level in levels):
        return _Common(setting, tolerance).answer(known)
    if len(levels) > 1:
        raise InputError(
            "MinimaxRate can only be combined with linear criteria: remove PredictiveParity or the second MinimaxRate."
        )
    return _Ceiling(setting, tolerance, levels[0]).answer()


class _Levelled:
    """The common part of both searches: the rules of a setting, under bounds at given levels."""

    def __init__(self, setting: Setting, tolerance: float) -> None:
        self.setting, self.tolerance = setting, tolerance
        self.nodes = self.stopped = 0

    def problem(self, box: _Box) -> Problem:
        """Return the problem whose bounds are those at levels in a box."""
        return self.setting.at(box, self.tolerance).problem([self.tolerance])

    def solve(self, problem: Problem) -> Solution | NoRule:
        """Return the best rule of a problem."""
        (found,) = self.setting.solve(problem)
        self.nodes += found.nodes
        self.stopped += found.stopped is not None
        return found

    def rates(self, decisions: NDArray[np.bool_], events: Iterable[Event]) -> FloatArray:
        """Return the rates of some events under some decisions; NaN if there is nothing to count."""
        rates = decisions.astype(np.float64) @ self.setting.evidence.shares
        return np.array([self.setting.rate(event, rates) for event in events])

    def rule(self, z: FloatArray, upper_bound: float) -> Rule:
        """Return a rule with the proven bounds."""
        problem = self.setting.problem([self.tolerance])
        solution = conclude(problem, 0, z, upper_bound=upper_bound, nodes=self.nodes)
        values = tuple(map(float, self.setting.measure(self.setting.decide(z))))
        solution = dataclasses.replace(solution, values=values, stopped="work" if self.stopped else None)
        return dataclasses.replace(self.setting.rule_at(z, self.tolerance), solution=solution)


class _Common(_Levelled):
    """Branch and bound over levels that all groups of an attribute share."""

    def __init__(self, setting: Setting, tolerance: float) -> None:
        super().__init__(setting, tolerance)
        groups = setting.rows.groups
        self.slack = {
            level: tolerance if level.part.tolerance is None else level.part.tolerance
            for level in setting.system.levels
        }
        self.events: dict[Level, list[Event]] = {}
        for level in setting.system.levels:
            (kind,) = level.part.kinds
            assert level.attribute is not None
            self.events[level] = [Event(level.attribute, group, None, kind) for group in groups[level.attribute]]
        self.best: FloatArray | None = None
        self.utility = -np.inf

    def answer(self, known: Iterable[Rule]) -> Rule | NoRule:
        """Search all levels."""
        for z in (np.zeros(len(self.setting.system.contrasts)), *(rule.z for rule in known)):
            self.offer(z)
        bound = self.search()
        if self.best is None:
            return NoRule(bound == -np.inf, self.nodes, bound, "work" if self.stopped else None)
        return self.rule(self.best, max(bound, self.utility))

    def spread(self, decisions: NDArray[np.bool_], level: Level) -> tuple[float, float]:
        """Return the lowest and the highest rate of the groups that have one; one half twice if none has."""
        rates = self.rates(decisions, self.events[level])
        rates = rates[~np.isnan(rates)]
        return (float(rates.min()), float(rates.max())) if rates.size else (0.5, 0.5)

    def offer(self, z: FloatArray) -> bool:
        """Keep a rule if it meets the criterion and is better; return whether it meets it."""
        decisions = self.setting.decide(z)
        own = {level: (self.spread(decisions, level)[0],) * 2 for level in self.events}
        problem = self.problem(own)
        utility, values = problem.evaluate(decisions)
        if problem.excess(values) > FEASIBILITY_SLACK:
            return False
        if utility > self.utility:
            self.best, self.utility = z, utility
        return True

    def search(self) -> float:
        """Process all ranges of levels that may contain a better rule; return an upper bound on any rule's utility."""
        whole = dict.fromkeys(self.events, (0.0, 1.0))
        counter = itertools.count()
        queue: list[tuple[float, int, _Box]] = [(-np.inf, next(counter), whole)]
        left_behind = -np.inf
        resolution = self.setting.problem([self.tolerance]).resolution
        while queue:
            bound, number, box = heapq.heappop(queue)
            most = MOST_UNPROVEN if number > 0 and bound == -np.inf else MOST_RANGES
            if -bound <= self.utility + resolution:
                break
            if number >= most or self.stopped >= MOST_STOPPED:
                return max(left_behind, -bound)
            for own, part in self.branch(box):
                own = min(own, -bound)
                if part is None:
                    left_behind = max(left_behind, own)
                elif own > self.utility + resolution:
                    heapq.heappush(queue, (-own, next(counter), part))
        return left_behind

    def branch(self, box: _Box) -> Iterator[tuple[float, _Box | None]]:
        """Bound the rules whose levels are in a box: yield each half with its bound, or only the bound."""
        found = self.solve(self.problem(box))
        if isinstance(found, NoRule):
            yield found.upper_bound, None
            return
        z = np.array(found.z)
        if self.offer(z):
            yield found.upper_bound, None
            return
        decisions = self.setting.decide(z)
        spreads = {level: self.spread(decisions, level) for level in self.events}
        excess = {level: high - low - self.slack[level] for level, (low, high) in spreads.items()}
        widest = max(excess, key=excess.__getitem__)
        low, high = spreads[widest]
        middle = 0.5 * (low + high - self.slack[widest])
        if excess[widest] <= CLOSE or not box[widest][0] < middle < box[widest][1]:
            yield found.upper_bound, None
            return
        exact = self.solve(self.problem({**box, widest: (middle, middle)}))
        if isinstance(exact, Solution):
            self.offer(np.array(exact.z))
        for part in ((box[widest][0], middle), (middle, box[widest][1])):
            yield found.upper_bound, {**box, widest: part}


class _Ceiling(_Levelled):
    """Bisection for the smallest ceiling, then the best rule under it."""

    def __init__(self, setting: Setting, tolerance: float, level: Level) -> None:
        super().__init__(setting, tolerance)
        assert isinstance(level.part, MinimaxRate)
        self.level, self.part = level, level.part
        self.slack = 0.0 if self.part.tolerance is None else self.part.tolerance
        self.events = [bound.terms[0][0] for bound in self.part.reported(setting.rows.groups)]

    def answer(self) -> Rule | NoRule:
        """Find the ceiling and the rule."""
        ceiling = self.smallest()
        if isinstance(ceiling, NoRule):
            return ceiling
        value, proven_above = ceiling
        found = self.solve(self.problem({self.level: (value, value)}))
        if isinstance(found, NoRule):
            return found
        exact = value - proven_above <= 2.0 * CLOSE
        rule = self.rule(np.array(found.z), found.upper_bound if exact else np.inf)
        entry = {"rate": self.part.rate, "value": value, "lower_bound": proven_above}
        return dataclasses.replace(
            rule,
            criterion=self.setting.options.criterion.at({self.level: (value, value)}, self.tolerance),
            learned_from={**rule.learned_from, "minimax": entry},
        )

    def largest(self, z: FloatArray) -> float:
        """Return the largest rate of any group under a rule; 0 if no group has one."""
        _, _, sign, constant = RATES[self.part.rate]
        rates = constant + sign * self.rates(self.setting.decide(z), self.events)
        return float(np.clip(np.nan_to_num(rates), 0.0, 1.0).max())

    def feasibility(self, ceiling: float) -> Problem:
        """Return the problem of whether some rule meets a ceiling: every decision has gain 0."""
        problem = self.problem({self.level: (max(ceiling, 0.0) - self.slack,) * 2})
        return dataclasses.replace(problem, gain=np.zeros_like(problem.gain), offset=0.0, divisor=None)

    def reached(self, ceiling: float) -> Solution | NoRule:
        """Return a rule that meets a ceiling, if there is one."""
        (found,) = Certified(max_visits=VISITS_A_CEILING).solve(self.feasibility(ceiling))
        self.nodes += found.nodes
        return found

    def roughly(self, high: float) -> float:
        """Return a ceiling that some rule of a fast search keeps: beyond the plane, proofs are for what is near it."""
        if len(self.setting.system.contrasts) <= 2 or {"precision", "npv"} & self.part.kinds:
            return high
        steps = [self.feasibility(high * part) for part in np.linspace(0.0, 1.0, STEPS_AT_FIRST)]
        lower, upper = np.vstack([step.lower for step in steps]), np.vstack([step.upper for step in steps])
        found = Smoothed().solve(dataclasses.replace(steps[0], lower=lower, upper=upper))
        return min([high, *(self.largest(np.array(one.z)) for one in found if isinstance(one, Solution))])

    def smallest(self) -> tuple[float, float] | NoRule:
        """Return the smallest ceiling for which a rule was found, and one that no rule meets."""
        found = self.reached(1.0)
        if isinstance(found, NoRule):
            return found
        first = self.largest(np.array(found.z))
        high = self.roughly(first)
        low = proven = 0.0
        unproven, near = 0, high < first
        for _ in range(MOST_CEILINGS):
            if high - low <= CLOSE or unproven >= MOST_STOPPED:
                break
            # Once they are close, ask whether anything at all is below what was reached.
            guess = high - CLOSE if near or high - low <= NARROW else 0.5 * (low + high)
            near = False
            found = self.reached(guess)
            if isinstance(found, Solution):
                high = min(self.largest(np.array(found.z)), guess)
                continue
            low = guess
            if found.proven:
                proven = guess
            else:
                unproven += 1
        return high, proven


def check_safe(setting: Setting) -> None:
    """Raise if safety cannot tighten the bounds."""
    if not isinstance(setting.options.criterion, PredictiveParity):
        raise InputError(
            "safety can only tighten the tolerance of PredictiveParity: MinimaxRate has no bound to tighten,"
            " and a criterion with a level can be combined with other criteria only with safety=0."
        )


def drawn_in(setting: Setting, tolerance: float, decisions: NDArray[np.bool_]) -> tuple[float, float, list[ThinCell]]:
    """Return the tolerance of predictive parity, how far safety draws it in, and groups with too few selected rows.

    It is drawn in by standard errors of the widest difference of precisions, though to no less than half. The standard
    errors are those of some decisions, given who is selected.
    """
    criterion, errors = setting.options.criterion, setting.options.safety
    asked = tolerance if criterion.tolerance is None else criterion.tolerance
    search = _Common(setting, tolerance)
    rates = decisions.astype(np.float64) @ setting.evidence.shares
    selected = dict(zip(setting.system.events, rates * setting.evidence.counts, strict=True))
    widest = 0.0
    thin: dict[str, ThinCell] = {}
    for events in search.events.values():
        n = np.array([sum(selected[event] for event in group.by_label) for group in events])
        value = (np.nan_to_num(search.rates(decisions, events)) * n + 1.0) / (n + 2.0)
        variance = np.where(n > 0.0, value * (1.0 - value) / np.maximum(n, 1.0), 0.0)
        for pair in itertools.combinations(range(len(events)), 2):
            error = float(np.sqrt(variance[list(pair)].sum()))
            widest = max(widest, error)
            if errors * error > asked / 2.0 > 0.0:
                worst = max(pair, key=variance.__getitem__)
                needed = about(n[worst] * (2.0 * errors * error / asked) ** 2)
                name = f"{events[worst]}, selected"
                if name not in thin or needed > thin[name].rows_needed:
                    thin[name] = ThinCell(name, round(n[worst]), float(np.sqrt(variance[worst])), asked, needed)
    return asked, max(asked - errors * widest, asked / 2.0), sorted(thin.values(), key=lambda cell: cell.rows)


def answer_within(setting: Setting, tolerance: float, used: float) -> Rule | NoRule:
    """Return the best rule for predictive parity within a tightened tolerance, or the model if it meets it."""
    criterion = dataclasses.replace(setting.options.criterion, tolerance=used)
    inner = Setting.of(setting.rows, dataclasses.replace(setting.options, criterion=criterion, safety=0.0))
    search, z = _Common(inner, tolerance), np.zeros(len(setting.system.contrasts))
    if setting.options.target.is_ratio or not search.offer(z):
        return answer(inner, tolerance)
    rule = search.rule(z, np.inf)
    return dataclasses.replace(rule, solution=dataclasses.replace(rule.solution_, status="unchanged"))


def with_safety(setting: Setting, rule: Rule, asked: float, used: float, thin: list[ThinCell]) -> Rule:
    """Return a rule with the requested tolerance and the one that was used."""
    count = len(setting.reported)
    solution = dataclasses.replace(rule.solution_, asked=((-asked, asked),) * count, used=((-used, used),) * count)
    safety = {"standard_errors": setting.options.safety, "thin_cells": [vars(cell) for cell in thin]}
    return dataclasses.replace(
        rule,
        criterion=setting.options.criterion,
        solution=solution,
        learned_from={**rule.learned_from, "safety": safety},
    )


def infeasible(setting: Setting, tolerance: float, result: NoRule) -> InfeasibleError:
    """Return the error for a tolerance without a rule, with a tolerance that a rule meets."""
    if not setting.system.moves:
        return InfeasibleError("No rule meets these bounds together: loosen one of them, or give it a tolerance.")
    claim = (
        f"No rule meets tolerance {tolerance:g}" if result.proven else f"The search found no rule within {tolerance:g}"
    )
    low, high = tolerance, 1.0
    found = _feasible(setting, high)
    if found is None:
        return InfeasibleError(f"{claim}, and none was found for larger ones: loosen the other bounds.")
    for _ in range(ROUNDS_FOR_AN_ERROR):
        high = min(high, found)
        middle = 0.5 * (low + high)
        nearer = _feasible(setting, middle)
        low, found = (middle, found) if nearer is None else (low, nearer)
    high = min(high, found)
    return InfeasibleError(
        f"{claim} on these {len(setting.rows)} rows; a rule exists at {high:.6g}.", smallest_tolerance=high
    )


def _feasible(setting: Setting, tolerance: float) -> float | None:
    """Return the gap of some rule within a tolerance, or None if none was found."""
    evidence = dataclasses.replace(
        setting.evidence, gain=np.zeros_like(setting.evidence.gain), offset=0.0, divisor=None
    )
    found = _Common(dataclasses.replace(setting, evidence=evidence), tolerance).answer(())
    return None if isinstance(found, NoRule) else setting.gap(found.solution_.values)
