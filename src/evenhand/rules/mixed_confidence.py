"""Mixtures with a guarantee: P(every expected rate is within its bounds in the population) is at least the confidence.

The rate of a mixture is an expectation over people and lots. On the certifying rows, decisions are drawn with lots that
are independent of everything else. Each drawn decision is then one draw from the same distribution as the decisions in
use, so the count in a group is binomial with the mixture's rate, and among the drawn positive decisions the count of
positive labels is binomial with the mixture's precision, which is a quotient of expected counts. So the exact bounds
and the fixed sequence of :mod:`evenhand.rules.confidence` apply unchanged: a ladder of mixtures is learnt on the other
rows, from strict to loose, and the last one before the first failure is returned. With strata, all bounds of all strata
are claims of one ladder.

The lots of the certifying rows depend on ``random_state``. Bounds on the mean chances, which need no draw, would be
narrower where few rows depend on their lot, but have no exact form for precisions and for differences.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from evenhand.errors import InfeasibleError, InputError
from evenhand.rows import Rows
from evenhand.rules.certified_ceiling import certified_ceiling
from evenhand.rules.certify import claims, fixed_sequence, shortfall
from evenhand.rules.confidence import check_unweighted
from evenhand.rules.criteria import check_tolerance
from evenhand.rules.families import Family, family_of
from evenhand.rules.mixed_levels import best_levelled
from evenhand.rules.mixing import best_mixture
from evenhand.rules.mixture import Mixture
from evenhand.rules.rate_bounds import MinimaxRate
from evenhand.rules.reserving import CERTIFYING_SHARE_OF_LADDERS, reserve_rows, rows_of
from evenhand.rules.rule_strata import Columns, columns_within
from evenhand.rules.rungs import PARTS_OF_TOLERANCE, certificate, expected_widths, inner_bounds, tally, tested
from evenhand.rules.setting import Options, Setting
from evenhand.search.mixed import Mixed
from evenhand.statistics.intervals import check_confidence

# Every second rung of a ladder of rules: a mixture takes longer to find, and meets any bounds between two rules'.
EVERY = 2
_STREAM = 17


def learn_mixture_with_confidence(rows: Rows, options: Options, *, tolerance: float, confidence: float) -> Mixture:
    """Learn a mixture that meets a criterion on average in the population with a given confidence.

    :func:`evenhand.learn_rule` calls it if ``confidence`` is given with ``randomize=True``.

    Parameters
    ----------
    rows : Rows
        The rows, with labels and groups. The models behind the probabilities must not be trained on any of them.
    options, tolerance, confidence
        As in :func:`evenhand.rules.confidence.learn_with_confidence`.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(4000, random_state=0)
    >>> mixed = eh.learn_rule(
    ...     data.y, data.group, data.p_y, data.p_group, tolerance=0.1, confidence=0.95, randomize=True, random_state=0)
    >>> mixed.learned_from["confidence"]["constraints"][0]["certified_upper"] <= 0.1
    True
    """
    check_unweighted(rows.sample_weight)
    rows = rows.for_criterion(options.criterion)
    rng = check_random_state(options.random_state)
    reserved = reserve_rows(options.criterion, rows, rng, CERTIFYING_SHARE_OF_LADDERS)
    learning, certifying = rows.take(~reserved), rows.take(reserved)
    return certify_mixture(learning, certifying, options, tolerance=tolerance, confidence=confidence)


def certify_mixture(
    learning: Rows, certifying: Rows, options: Options, *, tolerance: float, confidence: float
) -> Mixture:
    """Learn mixtures on one part of the rows, and return the last that the other part certifies.

    Parameters
    ----------
    learning, certifying : Rows
        Disjoint rows. The models behind the probabilities must not be trained on the certifying rows.
    options, tolerance, confidence
        As in :func:`evenhand.rules.confidence.learn_with_confidence`.
    """
    tolerance, level = check_tolerance(tolerance), check_confidence(confidence)
    if level < 0.5:
        raise InputError(f"confidence must be at least one half; got {confidence!r}.")
    options = dataclasses.replace(options, safety=0.0)
    setting = Setting.of(learning, options)
    certifying = certifying.for_criterion(options.criterion)
    Setting.of(certifying, dataclasses.replace(options, evidence="labels"))  # raises if there are too few rows to count
    # A stream of its own, which the choice of the certifying rows does not depend on.
    seed = check_random_state(options.random_state).randint(2**31)
    lots = np.random.default_rng([_STREAM, seed]).random(len(certifying))
    part = options.criterion
    if isinstance(part, MinimaxRate):
        mixture = best_mixture(learning, options, tolerance)
        found = certified_ceiling(part, certifying, _drawn(mixture, certifying, lots), level)
        rules = tuple(dataclasses.replace(rule, criterion=found.criterion) for rule in mixture.rules)
        mixture, entry = dataclasses.replace(mixture, rules=rules), found.entry
    else:
        mixture, entry = _from_ladder(setting, certifying, lots, tolerance, level)
    sizes = {"confidence": level, "learning_rows": len(learning), "certifying_rows": len(certifying)}
    return mixture.noting(confidence={**sizes, **entry})


def _drawn(mixture: Mixture, rows: Rows, lots: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the rows that a mixture decides 1 with these lots."""
    drawn: NDArray[np.bool_] = lots < mixture.expected_decision(rows.p_y, _given(mixture, rows))
    return drawn


def _given(mixture: Mixture, rows: Rows) -> Columns:
    """Return the probabilities that a mixture decides by."""
    return columns_within(mixture.rules[0], rows.p_group, rows.strata)


def _from_ladder(
    setting: Setting, certifying: Rows, lots: NDArray[np.float64], tolerance: float, confidence: float
) -> tuple[Mixture, dict[str, Any]]:
    """Return the last certified mixture of a ladder, and what is certified about it."""
    family = family_of(setting)
    if setting.system.levels:
        ladder, inner = _levels(setting, tolerance), np.empty((2, len(PARTS_OF_TOLERANCE), 0))
    else:
        ladder, inner = _rungs(family, len(certifying), tolerance, confidence)
    if not ladder:
        best_mixture(setting.rows, setting.options, tolerance)
        raise InfeasibleError("The search found no mixture on the learning rows: allow a larger tolerance.")
    system = tested(setting)
    events = system.measured_events
    inside = np.column_stack([rows_of(event, certifying) for event in events])
    tallies = [tally(_drawn(mixture, certifying, lots), certifying, events, inside) for mixture in ladder]
    successes, trials = (np.array(part) for part in zip(*tallies, strict=True))
    claimed = claims(system, tolerance)
    passed = fixed_sequence(claimed, successes, trials, confidence)
    if passed == 0:
        own = np.column_stack([rows_of(event, setting.rows) for event in events])
        drawn = ladder[0].lots(setting.rows.p_y, _given(ladder[0], setting.rows))
        learnt = tally(_drawn(ladder[0], setting.rows, drawn), setting.rows, events, own)
        anchors = [claim.estimate(*learnt) for claim in claimed]
        ratio = len(certifying) / len(setting.rows)
        short = shortfall(claimed, successes[0], trials[0], anchors, ratio, tolerance, confidence)
        raise short.error(system, learnt[1] + trials[0], len(certifying))
    last = passed - 1
    bounds = [claim.bound(successes[last], trials[last], confidence) for claim in claimed]
    return ladder[last], {
        "rules_learnt": len(ladder),
        "rules_certified": passed,
        "constraints": certificate(system, (inner[0, last], inner[1, last]), claimed, bounds),
    }


def _rungs(
    family: Family, n_certifying: int, tolerance: float, confidence: float
) -> tuple[list[Mixture], NDArray[np.float64]]:
    """Return mixtures within bounds from strict to loose, and these bounds, of shape (2, mixtures, constraints)."""
    setting, problem = family.setting, family.problem(tolerance)
    rates = (setting.margins > 0.0) @ setting.evidence.shares
    widths = expected_widths(setting.system, rates, setting.evidence.priors * n_certifying, confidence)
    n = len(setting.system.constraints)
    lower, upper = inner_bounds(problem.lower[0, :n], problem.upper[0, :n], widths)
    found, kept = [], []
    near: Mixed | None = None
    for step in range(len(lower) - 1, -1, -EVERY):
        # A free threshold has no bounds to tighten.
        own = np.append(lower[step], problem.lower[0, n:]), np.append(upper[step], problem.upper[0, n:])
        inside = dataclasses.replace(problem, lower=own[0], upper=own[1])
        mixed = family.mix(inside, near)
        if isinstance(mixed, Mixed):
            near = mixed
            found.append(family.answer(mixed, inside, tolerance, mixed.upper_bound))
            kept.append(step)
    return found[::-1], np.stack([lower[kept[::-1]], upper[kept[::-1]]])


def _levels(setting: Setting, tolerance: float) -> list[Mixture]:
    """Return mixtures for predictive parity within parts of the tolerance: the level is searched for in each."""
    criterion = setting.options.criterion
    asked = tolerance if criterion.tolerance is None else criterion.tolerance
    found = []
    for part in PARTS_OF_TOLERANCE:
        tighter = dataclasses.replace(setting.options, criterion=dataclasses.replace(criterion, tolerance=part * asked))
        mixture = best_levelled(family_of(Setting.of(setting.rows, tighter)), tolerance)
        rules = tuple(dataclasses.replace(rule, criterion=criterion) for rule in mixture.rules)
        found.append(dataclasses.replace(mixture, rules=rules))
    return found
