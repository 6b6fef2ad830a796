"""Predictive parity and the smallest largest rate, of rows that do not fit in memory.

The searches over levels are those of :mod:`evenhand.rules.levels`. Each question that they ask, about the best rule
under linear bounds, is answered from the rows in the passes of one search (:mod:`exact`), and what that search proves
holds for the answer. Every search counts the rates of all events, so that nothing more has to be read to compare
precisions.

**A common level.** A sample suggests a level, one search finds the best rule there, and :mod:`common_level` proves for
all levels at once what is better, from the counts of one more pass; the rows that stay open are brought back in no more
than 12 pieces. If that leaves a gap above 0.001, or there are more than two contrasts, the branch and bound over the
level looks at no more than 16 ranges, with at most two searches each; what is then still open is a gap. Where nothing
is proven, it looks at six.

**The smallest ceiling.** Whether a rule meets a ceiling would leave large parts of the plane open. Instead the largest
rate is made as small as possible while the other groups keep the ceiling: the answer meets the ceiling, or proves that
no rule does. At most 24 ceilings are tried, and no more than 10 where nothing is proven: for the error, the model's
margin is itself a combination of the contrasts, so that the good rules of the plane lie in a cone without end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from evenhand.engines.common_level import AllLevels, Open, Piece
from evenhand.engines.distances import LineCounts
from evenhand.engines.ground import Ground
from evenhand.engines.opening import sample_of
from evenhand.engines.reading import Reader, TooManyError
from evenhand.engines.zoom import likely_best
from evenhand.errors import InfeasibleError, InputError
from evenhand.inputs import FloatArray
from evenhand.rules import levels
from evenhand.rules.criterion import Level
from evenhand.rules.rate_bounds import MinimaxRate
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Setting
from evenhand.search import NoRule, Problem, Solution, ratio
from evenhand.search.problem import FEASIBILITY_SLACK, conclude

MOST_RANGES, MOST_UNPROVEN_RANGES = 16, 6
# By how much a rule may be better where what is better by less does not fit in memory, and what a miss costs a sample.
STEPS_ABOVE = 0.0, *(1e-5 * 2.0**k for k in range(15))
MOST_PIECES, LARGE_GAP = 12, 1e-3
PRICE_OF_A_MISS = 2.0
MOST_CEILINGS, MOST_UNPROVEN = 24, 10
Learn = Callable[[Ground], Rule]


def learn_at_levels(ground: Ground, learn: Learn, reader: Reader) -> Rule:
    """Return the best rule for a criterion with levels; ``learn`` returns the best rule under linear bounds."""
    options = ground.options
    if options.target.is_ratio or options.safety > 0.0:
        asked = f"objective={options.objective!r}" if options.target.is_ratio else f"safety={options.safety:g}"
        raise InputError(
            f"{asked} cannot be combined with a criterion whose level is searched for, where the rows do not fit in"
            " memory: leave it out, or set a larger max_in_memory (rows times used columns)."
        )
    found = ground.setting.system.levels
    if not any(isinstance(level.part, MinimaxRate) for level in found):
        answer = _Common(ground, learn, reader).answer(())
    elif len(found) > 1:
        raise InputError(
            "MinimaxRate can only be combined with linear criteria: remove PredictiveParity or the second MinimaxRate."
        )
    else:
        answer = _Ceiling(ground, learn, found[0]).answer()
    if isinstance(answer, NoRule):
        raise InfeasibleError(
            f"No rule meets tolerance {ground.tolerance:g} on these {ground.n_rows} rows: loosen it, or the other"
            " bounds."
            if answer.proven
            else f"The search found no rule within tolerance {ground.tolerance:g} on these {ground.n_rows} rows, but"
            " has not proven that there is none: loosen it, or set a larger max_in_memory to search in memory."
        )
    return ground.with_counts(answer)


class _OutOfCore(levels.Levelled):
    """What both searches ask, answered from rows that are not in memory; rules that were found are remembered."""

    ground: Ground
    learn: Learn
    known: dict[tuple[float, ...], tuple[float, FloatArray]]

    def begin_with(self, ground: Ground, learn: Learn) -> None:
        """Remember the rows, and what the model's own decisions count."""
        self.ground, self.learn = ground, learn
        shares = ground.setting.evidence.shares
        at_zero = ground.under(ground.problem, shares).at_zero
        zero = (0.0,) * ground.dimension
        self.known = {zero: (float(at_zero[0]), at_zero[len(at_zero) - shares.shape[1] :])}

    def counted(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Return the utility and the rates of a rule that was found, or of z = 0."""
        return self.known[tuple(map(float, z))]

    def solve(self, box: levels.Box, to_beat: float = -np.inf, most: int = ratio.MOST_ITERATIONS) -> Solution | NoRule:
        """Return the best rule at levels in a box."""
        bounds = self.at(box)
        return self.found(bounds, bounds.problem([self.tolerance]))

    def found(self, bounds: Setting, problem: Problem) -> Solution | NoRule:
        """Return the best rule of a problem that counts atoms, and remember it."""
        inner = self.inner(bounds, problem)
        try:
            solution = self.learn(inner).solution_
        except InfeasibleError:
            return NoRule(proven=True, upper_bound=-np.inf)
        except TooManyError as error:
            self.stopped += 1
            return NoRule(proven=False, upper_bound=error.upper_bound)
        self.remember(inner, solution)
        return solution

    def inner(self, bounds: Setting, problem: Problem) -> Ground:
        """Return the rows with the bounds of a problem, where the gain and all events are counted."""
        gain, shares = self.setting.evidence.gain[:, None], self.setting.evidence.shares
        return self.ground.under(problem, np.hstack([gain, shares]), bounds)

    def remember(self, inner: Ground, solution: Solution) -> None:
        """Remember what a rule counts, and the work that it took to find it."""
        assert inner.outcome is not None
        gained, *rates = inner.outcome[1]
        self.known[solution.z] = self.setting.evidence.offset + float(gained), np.array(rates)
        self.nodes += solution.nodes
        self.stopped += solution.stopped is not None


class _Common(_OutOfCore, levels.Common):
    """Branch and bound over levels that all groups of an attribute share."""

    def __init__(self, ground: Ground, learn: Learn, reader: Reader) -> None:
        super().__init__(ground.setting, ground.tolerance)
        self.begin_with(ground, learn)
        self.most_ranges, self.most_unproven = MOST_RANGES, MOST_UNPROVEN_RANGES
        self.reader = reader

    def begin(self) -> None:
        """Do nothing: a search without a proof takes as many passes as another."""

    def search(self, levels: tuple[float, float] = (0.0, 1.0)) -> float:
        """Search all levels at once around a good rule; where this proves little, one range after the other."""
        bound = np.inf
        if self.ground.dimension == 2 and len(self.events) == 1:
            bound = self.around_a_good_rule()
            if bound <= self.utility + LARGE_GAP:
                return bound
            self.stopped = 0
        return min(bound, super().search(levels))

    def between(self, ends: tuple[float, float]) -> Ground:
        """Return the rows with the bounds at levels in a range."""
        bounds = self.at(dict.fromkeys(self.events, ends))
        return self.inner(bounds, bounds.problem([self.tolerance]))

    def around_a_good_rule(self) -> float:
        """Find a good rule, then what is better than it; return an upper bound on any rule's utility."""
        (event,) = self.events
        ground = self.between((0.0, 1.0))
        _, sums = likely_best(ground, sample_of(ground, self.reader), self.qualities)
        level = self.level_of(self.rates_of(sums))
        found = self.solve({event: (level, level)})
        if isinstance(found, Solution):
            self.offer(np.array(found.z))
        # How the good rule was found says nothing about the proof.
        self.stopped = 0
        if self.best is None:
            return np.inf
        every = AllLevels(self.reader, self.between, self.level_of(self.counted(self.best)[1]))
        open_ranges = every.open_ranges(self.utility)
        return np.inf if open_ranges is None else self.solve_open(every, open_ranges)

    def solve_open(self, every: AllLevels, ranges: list[Open]) -> float:
        """Search ranges that may hold something better, those near the best rule first; return a bound on any rule.

        What is too large for memory is searched for rules that are better by more and more.
        """
        bound, above, pieces = -np.inf, iter(STEPS_ABOVE), 0
        least = next(above)
        while ranges := every.still_open(ranges, self.utility + least):
            assert self.best is not None
            level = self.level_of(self.counted(self.best)[1])
            some = every.nearest(ranges, level) if pieces < MOST_PIECES else slice(0)
            piece = every.piece(ranges[some]) if ranges[some] else None
            if piece is not None:
                bound = max(bound, _InMemory(self, piece).best_of_all())
                ranges, pieces = ranges[: some.start] + ranges[some.stop :], pieces + 1
            elif (least := next(above, np.inf)) == np.inf:
                return np.inf
        return max(bound, self.utility + least + every.gap)

    def rates_of(self, sums: FloatArray) -> FloatArray:
        """Return the rates of the system's events in what a rule adds up to."""
        return sums[len(sums) - self.setting.evidence.shares.shape[1] :]

    def level_of(self, rates: FloatArray) -> float:
        """Return the level at which a rule misses the criterion least."""
        (event,) = self.events
        low, high = self.spread(rates, event)
        return float(np.clip(0.5 * (low + high - self.slack[event]), 0.0, 1.0))

    def qualities(self, counts: LineCounts, places: FloatArray) -> FloatArray:
        """Return the utility of each of some places, without what it costs to miss the criterion."""
        (event,) = self.events
        found = []
        for place in places:
            sums = counts.sums_at(place)[0]
            low, high = self.spread(self.rates_of(sums), event)
            miss = max(high - low - self.slack[event], counts.ground.problem.excess(sums[1:]), 0.0)
            found.append(sums[0] - PRICE_OF_A_MISS * miss)
        return np.array(found)


class _InMemory(_OutOfCore, levels.Common):
    """The same, in a part of the plane that may hold a better rule: its rows are in memory."""

    def __init__(self, search: _Common, piece: Piece) -> None:
        super().__init__(search.setting, search.tolerance)
        self.whole, self.piece, self.ground, self.known = search, piece, search.ground, search.known
        self.best, self.utility = search.best, search.utility

    def best_of_all(self) -> float:
        """Search, keep the best rule, and return a bound on any rule's utility there."""
        bound = self.search(self.piece.levels)
        self.whole.best, self.whole.utility = self.best, self.utility
        self.whole.nodes += self.nodes
        self.whole.stopped += self.stopped
        return bound

    def solve(self, box: levels.Box, to_beat: float = -np.inf, most: int = ratio.MOST_ITERATIONS) -> Solution | NoRule:
        """Return the best rule at levels in a box, if it is better than something."""
        bounds = self.at(box)
        inner = self.inner(bounds, bounds.problem([self.tolerance]))
        assert self.best is not None
        found = self.piece.solve(inner, self.best, to_beat)
        if not np.isfinite(found.utility):
            self.nodes += found.nodes
            self.stopped += found.stopped is not None
            return NoRule(False, found.nodes, found.bound, found.stopped)
        solution = conclude(found.problem, 0, found.z, upper_bound=found.bound, nodes=found.nodes)
        solution = inner.rule(found.problem, dataclasses.replace(solution, stopped=found.stopped)).solution_
        self.remember(inner, solution)
        return solution


class _Ceiling(_OutOfCore, levels.Ceiling):
    """The smallest ceiling, then the best rule under it."""

    def __init__(self, ground: Ground, learn: Learn, level: Level) -> None:
        super().__init__(ground.setting, ground.tolerance, level)
        self.begin_with(ground, learn)

    def smallest(self) -> tuple[float, float] | NoRule:
        """Return the smallest ceiling that some rule was found to keep, and one that none is below."""
        zero = np.zeros(self.ground.dimension)
        bounds = self.bounds(1.0)
        if bounds.problem([self.tolerance]).excess(bounds.system.matrix @ self.counted(zero)[1]) <= FEASIBILITY_SLACK:
            self.keep(zero)
        else:
            found = self.pressing(1.0, 0)[0]
            if isinstance(found, NoRule):
                return found
        low = proven = 0.0
        unproven, guess, sides = 0, self.high, _Sides()
        for _ in range(MOST_CEILINGS):
            assert self.z is not None
            found, room = self.pressing(guess, int(np.argmax(self.group_rates(self.z))))
            if room < -FEASIBILITY_SLACK:
                proven = max(proven, guess)
            elif self.is_linear:
                proven = max(proven, min(guess - room, self.high))
            # Where nothing is known, look for a smaller ceiling further up.
            low = max(low, proven, guess if self.high > guess else 0.0)
            sides.add(guess, room)
            unproven += not np.isfinite(room) and room > 0.0
            if self.high - low <= levels.CLOSE or unproven >= MOST_UNPROVEN:
                break
            near = self.high - low <= levels.NARROW
            guess = self.high - levels.CLOSE if near else sides.guess(low, self.high)
        return self.high, proven

    @property
    def is_linear(self) -> bool:
        """Whether the rate is linear in the decisions at any ceiling."""
        return not {"precision", "npv"} & self.part.kinds

    def bounds(self, ceiling: float) -> Setting:
        """Return the setting whose bounds are a ceiling."""
        return self.at({self.level: (max(ceiling, 0.0) - self.slack,) * 2})

    def pressing(self, ceiling: float, group: int) -> tuple[Solution | NoRule, float]:
        """Make a group's rate as small as possible while the others keep a ceiling.

        Return the rule, and the most room that any rule has below the group's own ceiling: negative where no rule keeps
        it, and infinite where nothing is proven.
        """
        bounds = self.bounds(ceiling)
        problem = bounds.problem([self.tolerance])
        ranges = {self.level: (max(ceiling, 0.0) - self.slack,) * 2}
        own = self.part.at(ranges, self.tolerance).constraints(self.setting.rows.groups)[group]
        place = bounds.system.measured.index(own)
        lower, upper = problem.lower.copy(), problem.upper.copy()
        sign, bound = (1.0, lower[0, place]) if np.isfinite(lower[0, place]) else (-1.0, -upper[0, place])
        lower[0, place], upper[0, place] = -np.inf, np.inf
        gain = sign * problem.effects[:, place]
        found = self.found(
            bounds, dataclasses.replace(problem, gain=gain, offset=0.0, divisor=None, lower=lower, upper=upper)
        )
        if isinstance(found, NoRule):
            return found, -np.inf if found.proven else np.inf
        self.keep(np.array(found.z))
        return found, found.upper_bound - float(bound)

    def solve(self, box: levels.Box, to_beat: float = -np.inf, most: int = ratio.MOST_ITERATIONS) -> Solution | NoRule:
        """Return the best rule under a ceiling; if a search finds none, the rule that reached it."""
        found = super().solve(box, to_beat, most)
        if isinstance(found, Solution) or found.proven or self.z is None:
            return found
        utility, _ = self.counted(self.z)
        return Solution(tuple(map(float, self.z)), utility, (), np.inf, "found", self.nodes)


class _Sides:
    """Two ceilings with their rooms, one that no rule keeps and one that some rule does: where the room is 0."""

    def __init__(self) -> None:
        self.below: tuple[float, float] | None = None
        self.above: tuple[float, float] | None = None

    def add(self, ceiling: float, room: float) -> None:
        """Remember a ceiling."""
        if not np.isfinite(room):
            return
        if room < 0.0:
            self.below = ceiling, room
        else:
            self.above = ceiling, room

    def guess(self, low: float, high: float) -> float:
        """Return where a line through both has no room, or the middle, away from the ends."""
        middle = 0.5 * (low + high)
        if self.below is None or self.above is None:
            return middle
        (first, lack), (second, room) = self.below, self.above
        place = first + (second - first) * lack / (lack - room)
        edge = 0.05 * (high - low)
        return float(np.clip(place, low + edge, high - edge))
