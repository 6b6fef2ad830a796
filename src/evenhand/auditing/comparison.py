"""Two sets of decisions on the same rows: utility, gap, and the changes from the first to the second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.auditing.audit import audit_rows
from evenhand.auditing.findings import Estimate, Outcome
from evenhand.auditing.tally import BoolArray
from evenhand.inputs import FloatArray
from evenhand.rules.setting import Setting
from evenhand.statistics.intervals import normal_quantile

DRAWS = 2000


@dataclass(frozen=True)
class Compared:
    """Decisions and an alternative, on rows that were not used to choose the alternative.

    Attributes
    ----------
    rows : int
        The number of rows.
    present, alternative : dict of str to Estimate
        "accuracy" and "gap" of each, with intervals as in an audit.
    utility_change : Estimate
        The utility of the alternative minus that of the present decisions, row by row; accuracy if there are no costs.
    gap_change : Estimate
        The gap of the alternative minus that of the present decisions, with a bootstrap interval.
    outcome : {"pass", "fail", "insufficient evidence"}
        Whether the intervals show that the alternative has a smaller gap and is at least as good.
    """

    rows: int
    present: dict[str, Estimate]
    alternative: dict[str, Estimate]
    utility_change: Estimate
    gap_change: Estimate
    outcome: Outcome


def compare(
    setting: Setting, present: BoolArray, other: BoolArray, *, margin: float, confidence: float, seed: int | None
) -> Compared:
    """Return measurements of both decisions, and of their differences."""
    utility = _utility_change(setting, present, other, confidence)
    gap = _gap_change(setting, present, other, confidence, seed)
    if utility.lower >= -margin and gap.upper < 0.0:
        outcome: Outcome = "pass"
    else:
        outcome = "fail" if utility.upper < -margin or gap.lower >= 0.0 else "insufficient evidence"
    return Compared(
        rows=len(present),
        present=_measured(setting, present, confidence, seed),
        alternative=_measured(setting, other, confidence, seed),
        utility_change=utility,
        gap_change=gap,
        outcome=outcome,
    )


def largest_gap(setting: Setting, values: FloatArray) -> float:
    """Return the smallest tolerance that values meet, of the bounds that depend on a tolerance."""
    problem = setting.problem([0.0])
    miss = np.maximum(problem.lower[0] - values, values - problem.upper[0])
    return float(max(0.0, miss[setting.system.moving].max()))


def _measured(setting: Setting, decided: BoolArray, confidence: float, seed: int | None) -> dict[str, Estimate]:
    found = audit_rows(
        setting.rows, decided, criterion=setting.options.criterion, confidence=confidence, random_state=seed
    )
    assert found.accuracy is not None
    gaps = [verdict.gap for verdict in found.verdicts]
    widest = max(gaps, key=lambda gap: -1.0 if gap.value is None else gap.value)
    return {"accuracy": found.accuracy, "gap": widest}


def _utility_change(setting: Setting, present: BoolArray, other: BoolArray, confidence: float) -> Estimate:
    """Return the mean difference with Agresti and Min's interval for pairs: it adds half a row to each kind of pair."""
    weights = setting.rows.weights
    total = weights.sum()
    rows = float(total**2 / (weights**2).sum())
    change = (other.astype(float) - present.astype(float)) * setting.evidence.gain * total / np.maximum(weights, 1e-300)
    share = weights / total
    largest = max(setting.options.costs)
    mean = float(share @ change) * rows / (rows + 2.0)
    square = (float(share @ change**2) * rows + largest**2) / (rows + 2.0)
    reach = normal_quantile(confidence) * float(np.sqrt(max(0.0, square - mean**2) / (rows + 2.0)))
    return Estimate(float(share @ change), mean - reach, mean + reach)


def _gap_change(
    setting: Setting, present: BoolArray, other: BoolArray, confidence: float, seed: int | None
) -> Estimate:
    """Return the difference of the gaps with a bootstrap interval over kinds of rows.

    Rows of one kind are in the same events and have the same decisions; a draw changes each kind's number of rows.
    """
    inside = setting.evidence.shares > 0.0
    kinds, kind, counts = np.unique(
        np.column_stack([inside, present, other]), axis=0, return_inverse=True, return_counts=True
    )
    weight = np.bincount(kind.reshape(-1), setting.rows.weights) / counts
    n = int(counts.sum())
    drawn = np.random.default_rng(seed).multinomial(n, counts / n, size=DRAWS)
    masses = np.vstack([counts, drawn]) * weight
    events = kinds[:, :-2].astype(float)
    gaps = [_gaps(setting, masses, events, kinds[:, at].astype(float)) for at in (-2, -1)]
    change = gaps[1] - gaps[0]
    tail = 0.5 * (1.0 - confidence)
    known = change[1:][np.isfinite(change[1:])]
    lower, upper = np.quantile(known, [tail, 1.0 - tail]) if known.size else (-np.inf, np.inf)
    return Estimate(float(change[0]), float(lower), float(upper))


def _gaps(setting: Setting, masses: FloatArray, events: FloatArray, decided: FloatArray) -> FloatArray:
    """Return the gap of decisions for each row of masses; not finite if an event has no rows."""
    whole = masses @ events
    chosen = (masses * decided) @ events
    rates = np.divide(chosen, whole, out=np.full_like(whole, np.nan), where=whole > 0.0)
    values = rates @ setting.system.matrix.T
    problem = setting.problem([0.0])
    miss = np.maximum(problem.lower[0] - values, values - problem.upper[0])
    found: FloatArray = np.maximum(miss[:, setting.system.moving].max(axis=1), 0.0)
    return found
