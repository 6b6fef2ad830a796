"""Criteria that are linear once a level is fixed: a search over the level, on top of the search for rules.

**A common level** (:class:`evenhand.PredictiveParity`). Precisions are within a tolerance t of each other where some
level l has all of them between l and l + t: floors and ceilings, which are linear. For levels in a range [a, b], floors
at a and ceilings at b + t hold for every rule that meets the criterion with its level there, so that the best rule
within them bounds all of those. If it meets the criterion, the range is done. If not, its lowest precision p and its
highest q have q - p > t; the range is split between p and q - t, and the rule is within the bounds of neither half.
Ranges wait in a queue, the highest bound first: branch and bound over the level. Each attribute has its own level.

**The smallest ceiling** (:class:`evenhand.MinimaxRate`). First the rate of the group with the largest one is made as
small as it can be while no rate is above what was reached: no rule has a smaller largest rate than that. Where other
groups are then the worst, bisection: whether any rule meets a ceiling is a search in which no decision gains anything.
Then the best rule under the smallest ceiling is searched for.

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
from evenhand.search import Certified, Dual, NoRule, Problem, Smoothed, Solution, ratio
from evenhand.search.problem import FEASIBILITY_SLACK

MOST_RANGES, MOST_RANGES_BEYOND = 400, 24
MOST_UNPROVEN = 24
MOST_STOPPED, MOST_STOPPED_BEYOND = 4, 2
STARTS = 3
CLOSE = 1e-9
NARROW = 1e-4
MOST_CEILINGS, CEILINGS_BEYOND = 60, 4
ROUGH_ROUNDS = 2
STEPS_AT_FIRST = 12
VISITS_A_CEILING = 200_000_000
ROUNDS_FOR_AN_ERROR = 6

Box = dict[Level, tuple[float, float]]


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
    check_apart(levels)
    if not any(isinstance(level.part, MinimaxRate) for level in levels):
        return Common(setting, tolerance).answer(known)
    if len(levels) > 1:
        raise InputError(
            "MinimaxRate can only be combined with linear criteria: remove PredictiveParity or the second MinimaxRate."
        )
    return Ceiling(setting, tolerance, levels[0]).answer()


def check_apart(levels: Iterable[Level]) -> None:
    """Raise if several strata have a level each, and cannot be searched one by one."""
    strata = {event.stratum for level in levels for event in (level.events if level.members else ())}
    if len(strata) > 1 and strata != {None}:
        column = next(stratum for stratum in strata if stratum is not None)[0]
        raise InputError(
            f"PredictiveParity within {column!r} is searched in each stratum separately, but here the strata depend on"
            " each other: a bound involves several strata, there are two columns of strata, the objective is an F"
            " score, or it is balanced accuracy with evidence='both'. Give every part of the criterion the same"
            " within=, or change the objective."
        )


class Levelled:
    """The common part of both searches: the rules of a setting, under bounds at given levels.

    Rows that do not fit in memory are searched by subclasses with their own ``counted``, ``solve`` and ``reached``.
    """

    def __init__(self, setting: Setting, tolerance: float) -> None:
        self.setting, self.tolerance = setting, tolerance
        self.nodes = self.stopped = 0
        self.beyond = len(setting.system.contrasts) > 2

    def at(self, box: Box) -> Setting:
        """Return the setting whose bounds are those at levels in a box."""
        return self.setting.at(box, self.tolerance)

    def problem(self, box: Box) -> Problem:
        """Return the problem whose bounds are those at levels in a box."""
        return self.at(box).problem([self.tolerance])

    def counted(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Return a rule's utility, and its rate of positive decisions in each of the system's events."""
        decisions = self.setting.decide(z)
        utility, _ = self.setting.problem([self.tolerance]).evaluate(decisions)
        return utility, decisions.astype(np.float64) @ self.setting.evidence.shares

    def solve(self, box: Box, to_beat: float = -np.inf, most: int = ratio.MOST_ITERATIONS) -> Solution | NoRule:
        """Return the best rule at levels in a box, if it is better than something."""
        problem = dataclasses.replace(self.problem(box), to_beat=to_beat)
        (found,) = ratio.solve(problem, self.setting.options.solver, self.setting.options.random_state, most)
        self.nodes += found.nodes
        self.stopped += found.stopped is not None
        return found

    def rates(self, counted: FloatArray, events: Iterable[Event]) -> FloatArray:
        """Return the rates of some events, given those of the system's; NaN if there is nothing to count."""
        return np.array([self.setting.rate(event, counted) for event in events])

    def rule(self, z: FloatArray, upper_bound: float) -> Rule:
        """Return a rule with the proven bounds."""
        utility, rates = self.counted(z)
        if upper_bound <= utility + self.setting.problem([self.tolerance]).resolution:
            upper_bound = utility
        solution = Solution(
            z=tuple(map(float, z)),
            utility=utility,
            values=tuple(map(float, self.setting.measure_rates(rates))),
            upper_bound=float(upper_bound),
            status="optimal" if upper_bound == utility else "gap" if np.isfinite(upper_bound) else "found",
            nodes=self.nodes,
            stopped="work" if self.stopped else None,
        )
        return dataclasses.replace(self.setting.rule_at(z, self.tolerance), solution=solution)


class Common(Levelled):
    """Branch and bound over levels that all groups of an attribute share."""

    def __init__(self, setting: Setting, tolerance: float) -> None:
        super().__init__(setting, tolerance)
        self.slack = {
            level: tolerance if level.part.tolerance is None else level.part.tolerance
            for level in setting.system.levels
        }
        self.events = {level: level.events for level in setting.system.levels}
        self.ratio = setting.evidence.divisor is not None
        self.most_ranges = MOST_RANGES_BEYOND if self.beyond else MOST_RANGES
        self.most_unproven = MOST_UNPROVEN
        self.best: FloatArray | None = None
        self.utility = -np.inf

    def answer(self, known: Iterable[Rule]) -> Rule | NoRule:
        """Search all levels."""
        for z in (np.zeros(len(self.setting.system.contrasts)), *(rule.z for rule in known)):
            self.offer(z)
        if self.beyond:
            self.begin()
        # A search that proves nothing has done what it can by now.
        unproven = self.beyond and isinstance(self.setting.options.solver, Smoothed) and self.best is not None
        bound = np.inf if unproven else self.search()
        if self.best is None:
            return NoRule(bound == -np.inf, self.nodes, bound, "work" if self.stopped else None)
        return self.rule(self.best, max(bound, self.utility))

    def begin(self) -> None:
        """Find good rules without a proof: beyond the plane, proofs are for what is better than them."""
        box: Box = dict.fromkeys(self.events, (0.0, 1.0))
        for _ in range(STARTS):
            starts = () if self.best is None else (self.best,)
            problem = dataclasses.replace(self.problem(box), starts=starts)
            (found,) = ratio.solve(problem, quick(self.setting), self.setting.options.random_state)
            if isinstance(found, NoRule) or self.offer(np.array(found.z)):
                return
            _, rates = self.counted(np.array(found.z))
            for level in self.events:
                low, high = self.spread(rates, level)
                middle = 0.5 * (low + high - self.slack[level])
                box[level] = (middle, middle) if high - low > self.slack[level] else (low, low)

    def spread(self, counted: FloatArray, level: Level) -> tuple[float, float]:
        """Return the lowest and the highest rate of the groups that have one; one half twice if none has."""
        rates = self.rates(counted, self.events[level])
        rates = rates[~np.isnan(rates)]
        return (float(rates.min()), float(rates.max())) if rates.size else (0.5, 0.5)

    def offer(self, z: FloatArray) -> bool:
        """Keep a rule if it meets the criterion and is better; return whether it meets it."""
        utility, rates = self.counted(z)
        own = self.at({level: (self.spread(rates, level)[0],) * 2 for level in self.events})
        if own.problem([self.tolerance]).excess(own.system.matrix @ rates) > FEASIBILITY_SLACK:
            return False
        if utility > self.utility:
            self.best, self.utility = z, utility
        return True

    def search(self, levels: tuple[float, float] = (0.0, 1.0)) -> float:
        """Process all ranges of levels that may contain a better rule; return an upper bound on any rule's utility."""
        whole = dict.fromkeys(self.events, levels)
        counter = itertools.count()
        queue: list[tuple[float, int, Box]] = [(-np.inf, next(counter), whole)]
        left_behind = -np.inf
        resolution = self.setting.problem([self.tolerance]).resolution
        while queue:
            bound, number, box = heapq.heappop(queue)
            most = self.most_unproven if number > 0 and bound == -np.inf else self.most_ranges
            if -bound <= self.utility + resolution:
                break
            if number >= most or self.stopped >= (MOST_STOPPED_BEYOND if self.beyond else MOST_STOPPED):
                return max(left_behind, -bound)
            for own, part in self.branch(box):
                own = min(own, -bound)
                if part is None:
                    left_behind = max(left_behind, own)
                elif own > self.utility + resolution:
                    heapq.heappush(queue, (-own, next(counter), part))
        return left_behind

    def better(self, box: Box) -> Solution | NoRule:
        """Return the best rule whose levels are in a box, if it is better than what is known."""
        once = self.ratio and np.isfinite(self.utility)
        return self.solve(box, self.utility, 1 if once else ratio.MOST_ITERATIONS)

    def branch(self, box: Box) -> Iterator[tuple[float, Box | None]]:
        """Bound the rules whose levels are in a box: yield each half with its bound, or the bound alone."""
        found = self.better(box)
        if isinstance(found, NoRule) or found.upper_bound <= self.utility:
            yield found.upper_bound, None
            return
        z = np.array(found.z)
        if self.offer(z):
            # A quotient is improved one iteration at a time, and the range is looked at again.
            yield found.upper_bound, box if found.status == "gap" and self.ratio else None
            return
        _, rates = self.counted(z)
        spreads = {level: self.spread(rates, level) for level in self.events}
        excess = {level: high - low - self.slack[level] for level, (low, high) in spreads.items()}
        widest = max(excess, key=excess.__getitem__)
        low, high = spreads[widest]
        middle = 0.5 * (low + high - self.slack[widest])
        if excess[widest] <= CLOSE or not box[widest][0] < middle < box[widest][1]:
            yield found.upper_bound, None
            return
        exact = self.better({**box, widest: (middle, middle)})
        if isinstance(exact, Solution):
            self.offer(np.array(exact.z))
        for part in ((box[widest][0], middle), (middle, box[widest][1])):
            yield found.upper_bound, {**box, widest: part}


class Ceiling(Levelled):
    """Bisection for the smallest ceiling, then the best rule under it."""

    def __init__(self, setting: Setting, tolerance: float, level: Level) -> None:
        super().__init__(setting, tolerance)
        assert isinstance(level.part, MinimaxRate)
        self.level, self.part = level, level.part
        self.slack = 0.0 if self.part.tolerance is None else self.part.tolerance
        self.events = [bound.terms[0][0] for bound in self.part.reported(setting.rows.groups)]
        self.z: FloatArray | None = None
        self.high = np.inf

    def answer(self) -> Rule | NoRule:
        """Find the ceiling and the rule."""
        ceiling = self.smallest()
        if isinstance(ceiling, NoRule):
            return ceiling
        value, proven_above = ceiling
        found = self.solve({self.level: (value, value)})
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

    def group_rates(self, z: FloatArray) -> FloatArray:
        """Return each group's rate under a rule; 0 where it has none."""
        _, _, sign, constant = RATES[self.part.rate]
        rates = constant + sign * self.rates(self.counted(z)[1], self.events)
        return np.asarray(np.clip(np.nan_to_num(rates), 0.0, 1.0))

    def largest(self, z: FloatArray) -> float:
        """Return the largest rate of any group under a rule."""
        return float(self.group_rates(z).max())

    def feasibility(self, ceiling: float) -> Problem:
        """Return the problem of whether some rule meets a ceiling: every decision has gain 0."""
        problem = self.problem({self.level: (max(ceiling, 0.0) - self.slack,) * 2})
        return dataclasses.replace(problem, gain=np.zeros_like(problem.gain), offset=0.0, divisor=None)

    def reached(self, problem: Problem) -> Solution | NoRule:
        """Return a rule of a problem, if there is one; what is known of the smallest ceiling follows from it."""
        starts = () if self.z is None else (self.z,)
        (found,) = Certified(max_visits=VISITS_A_CEILING).solve(dataclasses.replace(problem, starts=starts))
        self.nodes += found.nodes
        if isinstance(found, Solution):
            self.keep(np.array(found.z))
        return found

    def keep(self, z: FloatArray) -> None:
        """Keep a rule whose largest rate is smaller than any before."""
        largest = self.largest(z)
        if largest < self.high:
            self.z, self.high = z, largest

    def roughly(self) -> None:
        """Lower the ceiling with a fast search, twice: beyond the plane, proofs are for what is near the smallest."""
        low = 0.0
        for _ in range(ROUGH_ROUNDS):
            ceilings = np.linspace(low, self.high, STEPS_AT_FIRST)
            steps = [self.feasibility(ceiling) for ceiling in ceilings]
            lower, upper = np.vstack([step.lower for step in steps]), np.vstack([step.upper for step in steps])
            assert self.z is not None
            ladder = dataclasses.replace(steps[0], lower=lower, upper=upper, starts=(self.z,))
            for one in Smoothed().solve(ladder):
                if isinstance(one, Solution):
                    self.keep(np.array(one.z))
            low = max(ceilings[ceilings < self.high], default=0.0)

    def pressed(self) -> float:
        """Make the largest rate as small as the others allow; return a bound on the smallest ceiling.

        Whatever rule reaches the smallest ceiling keeps this one, too, and so has no smaller rate in that group.
        """
        assert self.z is not None
        high, problem = self.high, self.feasibility(self.high)
        ranges = {self.level: (high - self.slack,) * 2}
        own = self.part.at(ranges, self.tolerance).constraints(self.setting.rows.groups)
        worst = own[int(np.argmax(self.group_rates(self.z)))]
        place = self.setting.at(ranges, self.tolerance).system.measured.index(worst)
        floor = bool(np.isfinite(problem.lower[0, place]))
        sign, bound = (1.0, problem.lower[0, place]) if floor else (-1.0, -problem.upper[0, place])
        found = self.reached(dataclasses.replace(problem, gain=sign * problem.effects[:, place]))
        return float(np.clip(high - (found.upper_bound - bound), 0.0, self.high))

    def smallest(self) -> tuple[float, float] | NoRule:
        """Return the smallest ceiling that some rule was found to keep, and one that none is below."""
        found = self.reached(self.feasibility(1.0))
        if isinstance(found, NoRule):
            return found
        low = proven = 0.0
        if not {"precision", "npv"} & self.part.kinds:
            if self.beyond:
                self.roughly()
            low = proven = self.pressed()
        most, most_stopped = (CEILINGS_BEYOND, MOST_STOPPED_BEYOND) if self.beyond else (MOST_CEILINGS, MOST_STOPPED)
        unproven, near = 0, self.beyond
        for _ in range(most):
            if self.high - low <= CLOSE or unproven >= most_stopped:
                break
            # Once they are close, ask whether anything at all is below what was reached.
            guess = self.high - CLOSE if near or self.high - low <= NARROW else 0.5 * (low + self.high)
            near = False
            found = self.reached(self.feasibility(guess))
            if isinstance(found, Solution):
                self.high = min(self.high, guess)
                continue
            if found.proven:
                low = proven = max(proven, guess)
            else:
                # Nothing is known at this ceiling: look for a proof further down, where it is easier.
                unproven += 1
                low = low if self.beyond else guess
        return self.high, proven


def quick(setting: Setting) -> Smoothed:
    """Return the search of a setting if it is one without a proof, else the usual one of those."""
    solver = setting.options.solver
    return solver if isinstance(solver, Smoothed) else Smoothed()


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
    search = Common(setting, tolerance)
    rates = decisions.astype(np.float64) @ setting.evidence.shares
    selected = dict(zip(setting.system.events, rates * setting.evidence.counts, strict=True))
    widest = 0.0
    thin: dict[str, ThinCell] = {}
    for events in search.events.values():
        n = np.array([sum(selected[event] for event in group.by_label) for group in events])
        value = (np.nan_to_num(search.rates(rates, events)) * n + 1.0) / (n + 2.0)
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
    search, z = Common(inner, tolerance), np.zeros(len(setting.system.contrasts))
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
    found = Common(dataclasses.replace(setting, evidence=evidence), tolerance).answer(())
    return None if isinstance(found, NoRule) else setting.gap(found.solution_.values)
