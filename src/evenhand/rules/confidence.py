"""Rules with a guarantee: P(every constraint holds in the population) is at least the confidence.

"Met on this sample" is not "met": the best rule on a sample uses all of its tolerance there, and exceeds it in the
population about half of the time. So the rows are split. Rules are learnt on one part and tested on the other, with
bounds that are exact at every sample size.

All tests are fixed sequences: rules are tested in an order that was fixed before the certifying rows were used, until
one fails. A rule that violates a claim is accepted only if the first such rule of the sequence passed its test, which
has at most the error probability of that one test. No correction for the number of rules is needed.

**Paths.** If every constraint is a band (a lower and an upper bound) around one contrast, and no row is in the
events of two constraints (demographic parity, equal opportunity or equalized odds of two groups), there is a path of
rules for each constraint (:mod:`evenhand.rules.paths`). Along it the constraint's value rises, from below the band to
above it. The upper bound is tested from the low end and the lower bound from the high end. The rules that both
sequences accept are therefore centred by the certifying rows themselves, and a disagreement with the learning rows
does not matter. Each side has its share of the error, 1 - confidence; the shares depend on the learning rows and on
the numbers of rows in the events (:func:`evenhand.rules.certify.share_error`).

With one constraint, any accepted rule may be returned. The probability of accepting a rule that violates the upper
bound is at most the upper share, that of one that violates the lower bound at most the lower share, and their sum is
1 - confidence.

With several constraints, a rule has a position on each path. Position k is chosen with only the certifying rows in
the events of constraint k. Then, on the line of rules with all other positions as chosen, both sequences of constraint
k must accept position k. Given the certifying rows of the other constraints, this line is fixed, and the rows of
constraint k are independent of it. So P(the returned rule violates a side of constraint k) is at most that side's
share, for any values of the other rows, and the shares sum to 1 - confidence.

**A ladder.** For all other criteria, a ladder of rules is learnt, from strict to loose. Each is tested for all claims
at the full error, and the last one before the first failure is returned. No correction for the number of constraints
is needed: a rule must pass for all of them, including any that it violates. But the strictest rule must pass first,
and it is centred by the learning rows, so a ladder returns a rule less often.

**Predictive parity.** The tested bound is the one on the difference of precisions, which is fixed in advance; the level
that a search finds is not tested. Given how many rows of each group a fixed rule selects,
the numbers of positive labels among them are independent binomials. The ladder has rules for parts of the tolerance.

**The smallest largest rate.** :class:`evenhand.MinimaxRate` has no bound that is fixed in advance. The rule of the
learning rows is fixed, and the certifying rows state a ceiling for it: see :mod:`evenhand.rules.certified_ceiling`.

**Strata.** With ``within=`` each stratum is certified by its own rows, at an error of (1 - confidence) / (number of
strata). The rule of a stratum depends only on its own rows, so the errors add up to at most 1 - confidence.

The guarantee is about repeated sampling: of the samples of one population, at most a share 1 - confidence leads to a
rule that violates a constraint. It holds for exactly the returned rule, and assumes that the rows are independent draws
from the population in which the rule is used. If a sample certifies no rule, an error is raised.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from evenhand.errors import InfeasibleError, InputError
from evenhand.inputs import FloatArray
from evenhand.rows import Rows
from evenhand.rules.certified_ceiling import certified_ceiling
from evenhand.rules.certify import (
    Band,
    Claim,
    Shortfall,
    claims,
    even_quantiles,
    fixed_sequence,
    has_paths,
    share_error,
    shortfall,
)
from evenhand.rules.criteria import check_tolerance
from evenhand.rules.joining import in_each_stratum, join
from evenhand.rules.ladder import best_rule, left_alone
from evenhand.rules.levels import answer_within
from evenhand.rules.paths import Paths
from evenhand.rules.rate_bounds import MinimaxRate
from evenhand.rules.reserving import certifying_share, reserve_rows, rows_of
from evenhand.rules.rule import Rule
from evenhand.rules.rungs import PARTS_OF_TOLERANCE, certificate, expected_widths, inner_bounds, tally, tested
from evenhand.rules.setting import Options, Setting
from evenhand.search import NoRule
from evenhand.search.problem import conclude
from evenhand.statistics.intervals import check_confidence, normal_quantile

# A path's rule is chosen before the other paths' rules are known: by this many standard errors inside the range that is
# likely to be certified. The second number is the largest part of a tolerance that a bound's width may take.
SLACK = 0.75
LARGEST_PART = 0.8
# Candidate tolerances grow by this factor.
GROWTH = 1.05


def learn_with_confidence(
    rows: Rows, options: Options, *, tolerance: float, confidence: float, share: float | None = None
) -> Rule:
    """Learn a rule that meets a criterion in the population with a given confidence.

    :func:`evenhand.learn_rule` calls it if ``confidence`` is given; ``random_state`` determines the certifying rows.

    Parameters
    ----------
    rows : Rows
        The rows, with labels and groups: these are needed with any evidence, which only affects the search. The
        models behind the probabilities must not be trained on any of them.
    options : Options
        The options for learning.
    tolerance : float
        The largest allowed difference of rates.
    confidence : float
        The probability with which every constraint holds in the population.
    share : float, default=None
        The share of the rows that certify: 0.9 for paths of rules (less if an event has under 150 rows), 0.6 for a
        ladder.

    Returns
    -------
    Rule
        Its ``learned_from["confidence"]`` contains what was certified; its ``solution_`` refers to the learning
        rows.

    Raises
    ------
    InfeasibleError
        If no rule could be certified. The message and ``details`` contain what can be certified, and how many more
        rows are needed.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(6000, random_state=0)
    >>> rule = eh.learn_rule(
    ...     data.y, data.group, data.p_y, data.p_group, tolerance=0.1, confidence=0.95, random_state=0)
    >>> rule.learned_from["confidence"]["certifying_rows"]
    5400
    >>> rule.learned_from["confidence"]["constraints"][0]["certified_upper"] <= 0.1
    True
    """
    check_unweighted(rows.sample_weight)
    check_confidence(confidence)
    rows = rows.for_criterion(options.criterion)  # all rows determine which strata are compared
    if share is None:
        share = certifying_share(options.bounded, rows, check_tolerance(tolerance))
    reserved = reserve_rows(options.criterion, rows, check_random_state(options.random_state), share)
    learning, certifying = rows.take(~reserved), rows.take(reserved)
    return learn_certified(learning, certifying, options, tolerance=tolerance, confidence=confidence)


def check_unweighted(sample_weight: Any) -> None:
    """Raise if rows have weights, because weighted rows are not binomial draws."""
    if sample_weight is not None:
        raise InputError(
            "confidence counts rows, which must be plain draws from the population, but sample_weight says that they"
            " are not: leave it out, or set confidence=None and use the intervals of evenhand.audit."
        )


def learn_certified(learning: Rows, certifying: Rows, options: Options, *, tolerance: float, confidence: float) -> Rule:
    """Learn a ladder of rules on one part, and return the last that the other part certifies.

    Parameters
    ----------
    learning, certifying : Rows
        Disjoint rows. The models behind the probabilities must not be trained on the certifying rows.
    options, tolerance, confidence
        As in :func:`learn_with_confidence`.
    """
    tolerance, level = check_tolerance(tolerance), check_confidence(confidence)
    if level < 0.5:
        raise InputError(f"confidence must be at least one half; got {confidence!r}.")
    setting = Setting.of(learning, options)
    if len({event.stratum for event in setting.system.events}) > 1:
        return _learn_in_strata(setting, certifying, tolerance, level)
    Setting.of(certifying, dataclasses.replace(options, evidence="labels"))  # raises if there are too few rows to count
    certifying = certifying.crossing(options.criterion.intersections)
    if isinstance(options.criterion, MinimaxRate):
        rule, entry = _learn_ceiling(setting, options.criterion, certifying, tolerance, level)
        return _noting(rule, setting, certifying, level, entry)
    system = tested(setting)
    inside = np.column_stack([rows_of(event, certifying) for event in system.measured_events])
    learn = _learn_centred if has_paths(system, claims(system, tolerance)) else _learn_strict_to_loose
    rule, entry = learn(setting, certifying, inside, tolerance, level)
    return _noting(rule, setting, certifying, level, entry)


def _noting(rule: Rule, setting: Setting, certifying: Rows, confidence: float, entry: dict[str, Any]) -> Rule:
    """Return a rule with what was certified, and on how many rows."""
    sizes = {"learning_rows": len(setting.rows), "certifying_rows": len(certifying)}
    return rule.noting(confidence={"confidence": confidence, **sizes, **entry})


def _learn_ceiling(
    setting: Setting, part: MinimaxRate, certifying: Rows, tolerance: float, confidence: float
) -> tuple[Rule, dict[str, Any]]:
    """Return the rule of the smallest ceiling on the learning rows, with the one that the certifying rows certify."""
    rule = best_rule(setting.rows, dataclasses.replace(setting.options, safety=0.0), tolerance)
    found = certified_ceiling(part, certifying, _decided(rule, certifying), confidence)
    return dataclasses.replace(rule, criterion=found.criterion), found.entry


def _learn_in_strata(setting: Setting, certifying: Rows, tolerance: float, confidence: float) -> Rule:
    """Return the rule of all strata, each certified by its own rows with its share of the error."""
    if not setting.strata:
        raise InputError(
            "confidence supports within= if every bound concerns one stratum of one column, and the objective is a sum"
            " over strata: leave out the other bounds, or use safety and read the audit's intervals."
        )
    (column,) = setting.options.criterion.strata
    # Strata with too few rows share the error, too: labels may have a part in which those are.
    level = 1.0 - (1.0 - confidence) / len(setting.rows.strata[column].groups)

    def learn(part: Setting) -> Rule:
        stratum = part.system.events[0].stratum
        assert stratum is not None
        own = certifying.for_criterion(setting.options.criterion).inside(*stratum)
        return learn_certified(part.rows, own, part.options, tolerance=tolerance, confidence=level)

    rules = in_each_stratum(setting, learn)
    entries = [rule.learned_from["confidence"] for rule in rules]
    entry = {
        "confidence": confidence,
        "learning_rows": len(setting.rows),
        "certifying_rows": len(certifying),
        "rules_learnt": sum(one["rules_learnt"] for one in entries),
        "rules_certified": min(one["rules_certified"] for one in entries),
        "constraints": [constraint for one in entries for constraint in one["constraints"]],
        "confidence_in_each_stratum": level,
    }
    joined = join(setting, rules, tolerance, certified=True)
    return dataclasses.replace(joined, learned_from={**joined.learned_from, "confidence": entry})


def _counts(rule: Rule, certifying: Rows, inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many rows of each event a rule decides 1."""
    found: NDArray[np.int64] = inside[_decided(rule, certifying)].sum(axis=0)
    return found


def _decided(rule: Rule, rows: Rows) -> NDArray[np.bool_]:
    """Return a mask of the rows that a rule decides 1."""
    decided: NDArray[np.bool_] = rule.decision_function(rows.p_y, rows.p_group) > 0.0
    return decided


def _rows_in_both(setting: Setting, trials: NDArray[np.int64]) -> NDArray[np.int64]:
    learning = np.rint(setting.evidence.priors * len(setting.rows)).astype(np.int64)
    return np.asarray(learning + trials)


# A path for each constraint ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Centred:
    """Paths of rules and the rows that certify them: chooses a rule and tests it."""

    paths: Paths
    bands: list[Band]
    certifying: Rows
    inside: NDArray[np.bool_]

    @classmethod
    def of(
        cls, setting: Setting, certifying: Rows, inside: NDArray[np.bool_], tolerance: float, confidence: float
    ) -> _Centred:
        unchanged = left_alone(setting, tolerance)
        if unchanged is None:
            (found,) = setting.solve(setting.problem([tolerance]))
        else:
            found = unchanged.solution_
        paths = Paths.of(setting, tolerance, found, inside.sum(axis=0))
        outward = np.where(np.isinf(paths.best), np.sign(paths.best), 0.0).astype(np.int64)
        shares = share_error(paths.half / paths.errors, outward, 1.0 - confidence)
        sides = {(claim.constraint, claim.side): claim for claim in claims(setting.system, tolerance)}
        bands = [Band(sides[k, "lower"], sides[k, "upper"], *errors) for k, errors in enumerate(shares.tolist())]
        return cls(paths, bands, certifying, inside)

    @cached_property
    def trials(self) -> NDArray[np.int64]:
        return np.asarray(self.inside.sum(axis=0))

    def counts(self, zs: Sequence[FloatArray]) -> NDArray[np.int64]:
        """Return how many rows of each event each rule decides 1."""
        return np.array([_counts(self.paths.setting._rule_of(z), self.certifying, self.inside) for z in zs])

    @cached_property
    def chosen(self) -> tuple[NDArray[np.int64], int]:
        """The position on each path, and how many rules are certified: none, or that one and others of its path."""
        if len(self.bands) == 1:
            first, last = self._accepted(0, self.paths.centre)
            return np.array([self._pick(0, first, last, 0.0)]), max(last - first + 1, 0)
        positions = np.array([self._from_own_rows(k) for k in range(len(self.bands))])
        target = self._target(positions)
        for k, position in enumerate(positions):
            first, last = self._accepted(k, target)
            if not first <= position <= last:
                return positions, 0
        return positions, 1

    @cached_property
    def z(self) -> FloatArray:
        """The rule."""
        return self.paths.rule_at(self._target(self.chosen[0]))

    def _target(self, positions: NDArray[np.int64]) -> FloatArray:
        found: FloatArray = self.paths.points[np.arange(len(positions)), positions]
        return found

    def _accepted(self, k: int, target: FloatArray) -> tuple[int, int]:
        return self.bands[k].accepted(self.counts(self.paths.line(k, target)), self.trials)

    def _from_own_rows(self, k: int) -> int:
        """Return the position on a path, chosen with only the rows of its own constraint, as the proof requires.

        The other positions are not known at this point, so the rule must be likely to be certified for any of them.
        """
        paths, likely = self.paths, []
        widths = paths.errors * [
            normal_quantile(1.0 - min(band.lower_error, band.upper_error), one_sided=True) for band in self.bands
        ]
        room = np.maximum(paths.half - widths, 0.0)
        expected = paths.centre + np.clip(paths.best, -room, room)
        for away in (-1.0, 1.0):
            line = paths.line(k, expected + away * paths.disagreement)
            likely.append(self.bands[k].likely(self.counts(line), self.trials))
        firsts, lasts = zip(*likely, strict=True)
        return self._pick(k, max(firsts), min(lasts), SLACK)

    def _pick(self, k: int, first: int, last: int, slack: float) -> int:
        """Return the best position from first to last, if possible with some slack to either side."""
        points, steps = self.paths.points[k], round(slack / self.paths.spacing(k))
        first, last = first + steps, last - steps
        if first > last:
            return int(np.clip((first + last) // 2, 0, len(points) - 1))
        wanted = int(np.argmin(np.abs(points - np.clip(self.paths.centre[k] + self.paths.best[k], -9.0, 9.0))))
        return int(np.clip(wanted, first, last))


def _learn_centred(
    setting: Setting, certifying: Rows, inside: NDArray[np.bool_], tolerance: float, confidence: float
) -> tuple[Rule, dict[str, Any]]:
    found = _Centred.of(setting, certifying, inside, tolerance, confidence)
    if not found.chosen[1]:
        best_rule(setting.rows, setting.options, tolerance)
        raise _centred_shortfall(found, tolerance, confidence).error(
            setting.system, _rows_in_both(setting, found.trials), len(certifying)
        )
    problem = setting.problem([tolerance])
    solution = conclude(problem, 0, found.z, status="found")
    # Learning and certifying rows disagree. The certifying rows decide, so the bounds are computed on them.
    bounds = np.minimum(problem.lower, solution.values), np.maximum(problem.upper, solution.values)
    problem = dataclasses.replace(problem, lower=bounds[0], upper=bounds[1])
    rule = setting.rule(problem, solution, tolerance, 0)
    successes = _counts(rule, certifying, inside)
    claimed, levels = _sides(found.bands)
    limits = [claim.bound(successes, found.trials, level) for claim, level in zip(claimed, levels, strict=True)]
    return rule, {
        "rules_learnt": int(found.paths.points.size),
        "rules_certified": found.chosen[1],
        "constraints": certificate(setting.system, (bounds[0][0], bounds[1][0]), claimed, limits),
    }


def _sides(bands: Sequence[Band]) -> tuple[list[Claim], list[float]]:
    claimed = [claim for band in bands for claim in (band.lower, band.upper)]
    return claimed, [1.0 - error for band in bands for error in (band.lower_error, band.upper_error)]


def _centred_shortfall(found: _Centred, tolerance: float, confidence: float) -> Shortfall:
    """Return what can be certified if the request cannot, found by trial."""
    paths = found.paths

    def passes(other: float, level: float) -> bool:
        again = (paths.setting, found.certifying, found.inside)
        return _Centred.of(*again, other, level).chosen[1] > 0

    successes = found.counts([found.z])[0]
    claimed, levels = _sides(found.bands)
    bounds = np.array(
        [claim.bound(successes, found.trials, level) for claim, level in zip(claimed, levels, strict=True)]
    )
    missed = bounds - [claim.limit for claim in claimed]
    worst = int(np.argmax(missed))
    smallest = None
    if all(claim.moving for claim in claimed):
        guess = tolerance + max(float(missed[worst]), 0.01 * tolerance)
        smallest = _smallest(lambda other: passes(other, confidence), guess)
    rooms = paths.half / paths.errors
    taken = even_quantiles(rooms, confidence) / rooms
    return Shortfall(
        claim=claimed[worst],
        bound=float(bounds[worst]),
        tolerance=tolerance,
        confidence=confidence,
        certifiable_tolerance=smallest,
        highest_confidence=_highest(lambda level: passes(tolerance, level), rooms, confidence),
        factor=max(1.1, float(taken.max() / LARGEST_PART) ** 2),
        rule="best centred",
    )


def _smallest(passes: Callable[[float], bool], guess: float) -> float | None:
    """Return the first of increasing tolerances that passes, from a little below a guess; None if there is none."""
    tried = np.minimum(guess * GROWTH ** np.arange(-4, 12), 1.0)
    return next((float(one) for one in tried if passes(float(one))), None)


def _highest(passes: Callable[[float], bool], rooms: FloatArray, confidence: float) -> float | None:
    """Return the first of decreasing confidences that passes; None if none of at least one half does."""
    tried = 1.0 - (1.0 - confidence) * 1.5 ** np.arange(1, 20)
    promising = [one for one in tried[tried >= 0.5].tolist() if (even_quantiles(rooms, one) < rooms).all()]
    return next((one for one in promising if passes(one)), None)


# A ladder from strict to loose ------------------------------------------------------------------------


def _learn_strict_to_loose(
    setting: Setting, certifying: Rows, inside: NDArray[np.bool_], tolerance: float, confidence: float
) -> tuple[Rule, dict[str, Any]]:
    if setting.system.levels:
        ladder = _learn_levels(setting, tolerance)
    else:
        ladder = _learn_rungs(setting, len(certifying), tolerance, confidence)
    if not ladder.rules:
        best_rule(setting.rows, setting.options, tolerance)
        raise InfeasibleError("The search found no rule on the learning rows: allow a larger tolerance.")
    system = tested(setting)
    events = system.measured_events
    tallies = [tally(_decided(rule, certifying), certifying, events, inside) for rule in ladder.rules]
    successes, trials = (np.array(part) for part in zip(*tallies, strict=True))
    claimed = claims(system, tolerance)
    passed = fixed_sequence(claimed, successes, trials, confidence)
    if passed == 0:
        ratio = len(certifying) / len(setting.rows)
        own = np.column_stack([rows_of(event, setting.rows) for event in events])
        learnt = tally(_decided(ladder.rules[0], setting.rows), setting.rows, events, own)
        anchors = ladder.anchors(claimed) if system.plain else [claim.estimate(*learnt) for claim in claimed]
        short = shortfall(claimed, successes[0], trials[0], anchors, ratio, tolerance, confidence)
        raise short.error(system, learnt[1] + trials[0], len(certifying))
    last = passed - 1
    bounds = [claim.bound(successes[last], trials[last], confidence) for claim in claimed]
    return ladder.rules[last], {
        "rules_learnt": len(ladder.rules),
        "rules_certified": passed,
        "constraints": certificate(system, (ladder.lower[last], ladder.upper[last]), claimed, bounds),
    }


@dataclass(frozen=True, eq=False)
class _Ladder:
    """The learnt rules, from strict to loose, and the bounds that each was learnt within."""

    rules: list[Rule]
    lower: FloatArray
    upper: FloatArray

    def anchors(self, claimed: Sequence[Claim]) -> list[float]:
        """Return the intended value of the strictest rule: the middle of a band, or its own bound."""
        found = []
        for claim in claimed:
            lower, upper = self.lower[0, claim.constraint], self.upper[0, claim.constraint]
            if np.isfinite(lower) and np.isfinite(upper):
                lower = upper = (lower + upper) / 2.0
            found.append(float(upper if claim.side == "upper" else -lower))
        return found


def _learn_rungs(setting: Setting, n_certifying: int, tolerance: float, confidence: float) -> _Ladder:
    problem = setting.problem([tolerance])
    counts = setting.evidence.priors * n_certifying
    rates = (setting.margins > 0.0) @ setting.evidence.shares
    widths = expected_widths(setting.system, rates, counts, confidence)
    lower, upper = inner_bounds(problem.lower[0], problem.upper[0], widths)
    # Beyond the reach of any combination; finite, because the searches subtract bounds from each other.
    far = np.abs(setting.system.matrix).sum(axis=1) + 1.0
    problem = dataclasses.replace(problem, lower=np.maximum(lower, -far), upper=np.minimum(upper, far))
    rules, kept = [], []
    for step, result in enumerate(setting.solve(problem)):
        if not isinstance(result, NoRule):
            rules.append(setting.rule(problem, result, tolerance, step))
            kept.append(step)
    return _Ladder(rules, lower[kept], upper[kept])


def _learn_levels(setting: Setting, tolerance: float) -> _Ladder:
    """Return rules for predictive parity within parts of the tolerance: the level is searched for in each."""
    own = setting.options.criterion.tolerance
    asked = tolerance if own is None else own
    plain = dataclasses.replace(setting, options=dataclasses.replace(setting.options, safety=0.0))
    found = [answer_within(plain, tolerance, part * asked) for part in PARTS_OF_TOLERANCE]
    rules = [dataclasses.replace(rule, criterion=setting.options.criterion) for rule in found if isinstance(rule, Rule)]
    return _Ladder(rules, np.empty((len(rules), 0)), np.empty((len(rules), 0)))
