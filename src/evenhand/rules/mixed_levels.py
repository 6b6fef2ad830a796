"""Mixtures for criteria that are linear once a level is fixed: a search over the level, with mixtures inside.

The precision of a mixture is its expected number of true positives over its expected number of positive decisions, not
the mean of its rules' precisions. So a floor or a ceiling under it is linear in expected counts, like every other bound
of a mixture, and the argument of :mod:`evenhand.rules.levels` holds for mixtures.

**A common level** (:class:`evenhand.PredictiveParity`): branch and bound over ranges of levels. The best mixture within
the floors and ceilings of a range bounds all mixtures whose level is in it. A second bound comes from the multipliers
of the best mixture at a single level: for fixed multipliers the bound of :mod:`evenhand.search.mixed` is convex in the
level up to where the ceiling reaches 1, and convex from there on. So the largest of its values at the two ends, and
there, holds for the range (:meth:`_Common.bound` has the proof). Its error shrinks faster than the range.
Mixtures are infinitely many, so that ranges can be halved without end: the search stops when no mixture is better by
more than :data:`ENOUGH`, and what is left is the stated gap.

**The smallest ceiling** (:class:`evenhand.MinimaxRate`): bisection. Whether any mixture keeps a ceiling is a linear
program, whose multipliers prove that there is none.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evenhand.errors import InfeasibleError, InputError
from evenhand.inputs import FloatArray
from evenhand.rules.criterion import Level
from evenhand.rules.events import RATES, Event, Stratified
from evenhand.rules.families import Family, utility_of
from evenhand.rules.mixture import Mixture
from evenhand.rules.rate_bounds import MinimaxRate
from evenhand.search.mixed import Mixed
from evenhand.search.problem import NoRule, Problem

MOST_RANGES = 80
ENOUGH = 1e-6
CLOSE = 1e-7
SLACK = 1e-8

_Box = dict[Level, tuple[float, float]]


def best_levelled(family: Family, tolerance: float) -> Mixture:
    """Return the best mixture for a criterion with levels; raise InfeasibleError if none was found.

    Parameters
    ----------
    family : Family
        The rules that may be mixed, for a criterion that has levels.
    tolerance : float
        The caller's tolerance.
    """
    levels = family.setting.system.levels
    if any(isinstance(level.attribute, Stratified) for level in levels):
        raise InputError(
            "randomize=True does not support PredictiveParity within strata: leave out within=, or learn a rule"
            " without lots."
        )
    if not any(isinstance(level.part, MinimaxRate) for level in levels):
        return _Common(family, tolerance).answer()
    if len(levels) > 1:
        raise InputError(
            "MinimaxRate can only be combined with linear criteria: remove PredictiveParity or the second MinimaxRate."
        )
    return _Ceiling(family, tolerance, levels[0]).answer()


class _Levelled:
    """The common part of both searches: mixtures under bounds at given levels."""

    def __init__(self, family: Family, tolerance: float) -> None:
        self.family, self.tolerance, self.setting = family, tolerance, family.setting
        self.columns = 0
        self.near: Mixed | None = None

    def problem(self, box: _Box) -> Problem:
        """Return the problem whose bounds are those at levels in a box."""
        return self.family.wider.at(box, self.tolerance).problem([self.tolerance])

    def mix(self, problem: Problem, to_beat: float = -np.inf) -> Mixed | NoRule:
        """Return the best mixture of a problem, if it is better than something; lists the last one's rules first."""
        value = to_beat if np.isfinite(to_beat) else None
        found = self.family.mix(problem, self.near, value=value, enough=0.0 if value is None else CLOSE)
        if isinstance(found, Mixed):
            self.near = found
        self.columns += found.nodes if isinstance(found, NoRule) else found.columns
        return found

    def rates(self, expected: FloatArray, events: list[Event]) -> FloatArray:
        """Return the rates of some events under decisions with these probabilities; NaN if nothing is expected."""
        rates = expected @ self.setting.evidence.shares
        return np.array([self.setting.rate(event, rates) for event in events])

    def infeasible(self, *, proven: bool) -> InfeasibleError:
        """Return the error that no mixture meets the bounds."""
        claim = "No mixture of rules meets" if proven else "The search found no mixture of rules that meets"
        return InfeasibleError(f"{claim} these bounds: loosen one of them.")


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A mixture that meets the criterion."""

    mixed: Mixed
    problem: Problem
    utility: float


class _Common(_Levelled):
    """Branch and bound over levels that all groups of an attribute share."""

    def __init__(self, family: Family, tolerance: float) -> None:
        super().__init__(family, tolerance)
        levels = self.setting.system.levels
        self.slack = {level: tolerance if level.part.tolerance is None else level.part.tolerance for level in levels}
        self.events = {level: level.events for level in levels}
        self.best: _Candidate | None = None

    @property
    def utility(self) -> float:
        """The utility to beat."""
        return -np.inf if self.best is None else self.best.utility

    def answer(self) -> Mixture:
        """Search all levels."""
        bound = self.search()
        if self.best is None:
            raise self.infeasible(proven=bound == -np.inf)
        found = dataclasses.replace(self.best.mixed, columns=self.columns)
        return self.family.answer(found, self.best.problem, self.tolerance, max(bound, self.utility))

    def search(self) -> float:
        """Process ranges of levels, the highest bound first; return an upper bound on any mixture's utility."""
        whole = dict.fromkeys(self.events, (0.0, 1.0))
        counter = itertools.count()
        queue: list[tuple[float, int, _Box]] = [(-np.inf, next(counter), whole)]
        left_behind = -np.inf
        while queue:
            bound, number, box = heapq.heappop(queue)
            if -bound <= self.utility + ENOUGH or number >= MOST_RANGES:
                return max(left_behind, -bound)
            for own, part in self.branch(box):
                own = min(own, -bound)
                if part is None or own <= self.utility:
                    left_behind = max(left_behind, own)
                else:
                    heapq.heappush(queue, (-own, next(counter), part))
        return left_behind

    def branch(self, box: _Box) -> Iterator[tuple[float, _Box | None]]:
        """Bound the mixtures whose levels are in a box: yield each half with its bound, or the bound alone."""
        found = self.mix(self.problem(box), self.utility)
        if isinstance(found, NoRule):
            yield -np.inf if found.proven else np.inf, None
            return
        if found.upper_bound <= self.utility or self.offer(found):
            yield found.upper_bound, None
            return
        expected = self.family.expected(found)
        spreads = {level: self.spread(expected, level) for level in self.events}
        excess = {level: high - low - self.slack[level] for level, (low, high) in spreads.items()}
        widest = max(excess, key=excess.__getitem__)
        low, high = spreads[widest]
        middle = 0.5 * (low + high - self.slack[widest])
        if excess[widest] <= SLACK or not box[widest][0] < middle < box[widest][1]:
            yield found.upper_bound, None
            return
        middles = {level: 0.5 * (low + high) for level, (low, high) in box.items()} | {widest: middle}
        exact = self.mix(self.problem({level: (value, value) for level, value in middles.items()}), self.utility)
        if isinstance(exact, Mixed):
            self.offer(exact)
        known: dict[tuple[float, ...], float] = {}
        for part in ((box[widest][0], middle), (middle, box[widest][1])):
            half = {**box, widest: part}
            bound = found.upper_bound
            if isinstance(exact, Mixed) and np.isfinite(exact.upper_bound):
                bound = min(bound, self.bound(half, exact.multipliers, known))
            yield bound, half

    def bound(self, box: _Box, multipliers: FloatArray, known: dict[tuple[float, ...], float]) -> float:
        """Return a bound on the mixtures whose levels are in a box; ``known`` has the bounds at some corners.

        For fixed multipliers lambda, the bound at single levels is the largest value of ``U - lambda . V`` of any rule,
        plus terms of bounds that do not depend on the levels. With TP true and FP false positives of a group, its floor
        at level l is ``(1 - l) TP - l FP >= 0``, and its ceiling ``(1 - c) TP - c FP <= 0``, where c is the smaller of
        ``l + slack`` and 1. Each V is a sum of terms in one level each, which are linear in it on either side of
        ``1 - slack``. So where no level crosses that, the bound is a largest value of linear functions, which is
        convex, and over a box it is largest at a corner. A box that some levels cross consists of such boxes: their
        corners have ``1 - slack`` among their levels. For a quotient, the bound increases with that on ``N - v D``.
        """
        corners = list(itertools.product(*(self._ends(level, *ends) for level, ends in box.items())))
        for corner in corners:
            if corner not in known:
                problem = self.problem({level: (at, at) for level, at in zip(box, corner, strict=True)})
                known[corner] = self.family.bound(problem, multipliers, self.utility)
        return max(known[corner] for corner in corners)

    def _ends(self, level: Level, low: float, high: float) -> tuple[float, ...]:
        """Return the ends of a range of levels, and between them the level from which on the ceiling is 1."""
        kink = 1.0 - self.slack[level]
        return (low, kink, high) if low < kink < high else (low, high)

    def spread(self, expected: FloatArray, level: Level) -> tuple[float, float]:
        """Return the lowest and the highest rate of the groups that have one; one half twice if none has."""
        rates = self.rates(expected, self.events[level])
        rates = rates[~np.isnan(rates)]
        return (float(rates.min()), float(rates.max())) if rates.size else (0.5, 0.5)

    def offer(self, found: Mixed) -> bool:
        """Keep a mixture if it meets the criterion and is better; return whether it meets it."""
        expected = self.family.expected(found)
        own: _Box = {level: (self.spread(expected, level)[0],) * 2 for level in self.events}
        problem = self.problem(own)
        if problem.excess(expected @ problem.effects) > SLACK:
            return False
        utility = utility_of(problem, expected)
        if utility > self.utility:
            self.best = _Candidate(found, problem, utility)
        return True


class _Ceiling(_Levelled):
    """Bisection for the smallest ceiling, then the best mixture under it."""

    def __init__(self, family: Family, tolerance: float, level: Level) -> None:
        super().__init__(family, tolerance)
        assert isinstance(level.part, MinimaxRate)
        self.level, self.part = level, level.part
        self.slack = 0.0 if self.part.tolerance is None else self.part.tolerance
        self.events = [bound.terms[0][0] for bound in self.part.reported(self.setting.rows.groups)]

    def answer(self) -> Mixture:
        """Find the ceiling and the mixture."""
        value, proven_above = self.smallest()
        problem = self.problem({self.level: (value, value)})
        found = self.mix(problem)
        if isinstance(found, NoRule):
            raise self.infeasible(proven=False)
        exact = value - proven_above <= 2.0 * CLOSE
        found = dataclasses.replace(found, columns=self.columns)
        mixture = self.family.answer(found, problem, self.tolerance, found.upper_bound if exact else np.inf)
        entry = {"rate": self.part.rate, "value": value, "lower_bound": proven_above}
        criterion = self.setting.options.criterion.at({self.level: (value, value)}, self.tolerance)
        rules = tuple(dataclasses.replace(rule, criterion=criterion) for rule in mixture.rules)
        return dataclasses.replace(mixture, rules=rules).noting(minimax=entry)

    def smallest(self) -> tuple[float, float]:
        """Return the smallest ceiling that some mixture was found to keep, and one that none is below."""
        high, low = self.reached(1.0), 0.0
        if high is None:
            raise self.infeasible(proven=self.proven)
        while high - low > CLOSE:
            guess = 0.5 * (low + high)
            found = self.reached(guess)
            if found is not None:
                high = min(found, guess)
            elif self.proven:
                low = guess
            else:
                break
        return high, low

    def reached(self, ceiling: float) -> float | None:
        """Return the largest rate of a mixture that keeps a ceiling, or None if none was found."""
        problem = self.problem({self.level: (ceiling - self.slack,) * 2})
        problem = dataclasses.replace(problem, gain=np.zeros_like(problem.gain), offset=0.0, divisor=None)
        found = self.mix(problem)
        if isinstance(found, NoRule):
            self.proven = found.proven
            return None
        _, _, sign, constant = RATES[self.part.rate]
        rates = constant + sign * self.rates(self.family.expected(found), self.events)
        return float(np.clip(np.nan_to_num(rates), 0.0, 1.0).max())
