"""An audit of decisions: rates by group, gaps with intervals, and verdicts.

It needs labels, decisions and groups, but no model. Everything is computed from one table of counts for each
attribute (:func:`evenhand.auditing.tally.tabulate`). Criteria define which combinations of rates are bounded, so all
criteria are judged in the same way.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from evenhand.arguments import check_seed
from evenhand.auditing.findings import (
    AttributeAudit,
    Audit,
    Estimate,
    GroupAudit,
    Outcome,
    Pair,
    Shortage,
    StratumAudit,
    Verdict,
)
from evenhand.auditing.standards import Standard, StandardAudit, audit_by_standard
from evenhand.auditing.tally import RATES, BoolArray, read_decided, tabulate
from evenhand.errors import InputError
from evenhand.frames import library_of
from evenhand.inputs import (
    Attribute,
    FloatArray,
    Missing,
    SensitiveFeatures,
    group_texts,
    read_sensitive,
    read_weights,
)
from evenhand.plausibility import check_same_index
from evenhand.rows import Rows
from evenhand.rules.constraints import Constraint
from evenhand.rules.criteria import (
    Composite,
    Criterion,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    PredictiveEquality,
    SelectionRatio,
    check_tolerance,
    resolve,
)
from evenhand.rules.events import AttributeKey, Event, Kind, Stratified, display_names
from evenhand.rules.rate_bounds import LinearConstraint
from evenhand.rules.strata import read_strata
from evenhand.statistics.intervals import (
    check_confidence,
    distance_interval,
    effective_counts,
    linear_intervals,
    newcombe_interval,
    normal_quantile,
    pairs_of,
    ratio_at,
    settling_factor,
    simultaneous_quantile,
    wilson_interval,
)

_PARITIES: tuple[Criterion, ...] = (
    DemographicParity(),
    EqualOpportunity(),
    PredictiveEquality(),
    EqualizedOdds(),
)
_FOUR_FIFTHS = SelectionRatio(0.8)
_MANY = 100.0  # this multiple of the rows is a large sample, in which the joint quantile no longer grows
_MEASURES: dict[Kind, str] = {
    "precision": "precision",
    "npv": "negative_predictive_value",
    "accuracy": "accuracy",
}
_NOT_NAMED = ("attribute", "tolerance", "within", "thin")
_RATE_LABELS = {"selection_rate": None, "true_positive_rate": 1, "false_positive_rate": 0}


@overload
def audit(
    y: Any,
    decisions_or_scores: Any,
    sensitive_features: SensitiveFeatures | None,
    *,
    criterion: str | Criterion | None = ...,
    tolerance: float = ...,
    confidence: float = ...,
    threshold: float = ...,
    pos_label: Hashable = ...,
    sample_weight: ArrayLike | None = ...,
    missing: Missing = ...,
    random_state: int | None = ...,
    standard: None = ...,
    strata: SensitiveFeatures | None = ...,
) -> Audit: ...


@overload
def audit(
    y: Any,
    decisions_or_scores: Any,
    sensitive_features: SensitiveFeatures | None,
    *,
    confidence: float = ...,
    threshold: float = ...,
    pos_label: Hashable = ...,
    missing: Missing = ...,
    standard: str | Standard,
) -> StandardAudit: ...


def audit(
    y: Any,
    decisions_or_scores: Any,
    sensitive_features: SensitiveFeatures | None,
    *,
    criterion: str | Criterion | None = None,
    tolerance: float = 0.05,
    confidence: float = 0.95,
    threshold: float = 0.5,
    pos_label: Hashable = 1,
    sample_weight: ArrayLike | None = None,
    missing: Missing = "raise",
    random_state: int | None = 0,
    standard: str | Standard | None = None,
    strata: SensitiveFeatures | None = None,
) -> Audit | StandardAudit:
    """Audit decisions: rates by group, every gap with its interval, and a verdict for each criterion.

    A verdict is "pass" if the interval of the gap is within the tolerance, "fail" if it is entirely beyond it, and
    "insufficient evidence" if the tolerance is inside the interval; the audit then says how many rows are needed.
    A gap that is small in this sample has not yet been shown to be small.

    Parameters
    ----------
    y : array-like or None
        The labels: any two values. Without labels only rates of positive decisions are audited.
    decisions_or_scores : array-like
        Decisions as the two labels, booleans, or 0 and 1; or scores in [0, 1], of which those above the
        threshold are positive decisions.
    sensitive_features : array-like, Series, frame or dict of columns
        Each row's group. Each column is audited separately; to cross columns, use a criterion with an
        :class:`~evenhand.Intersection`. Rows of all arguments are matched by position; two pandas objects with
        different indexes are an error.
    criterion : str, Criterion or None, default=None
        The criteria for the verdicts. None: demographic parity, equal opportunity, predictive equality, equalized
        odds, and a selection ratio of four fifths.
    tolerance : float, default=0.05
        The largest gap that passes, for criteria without their own tolerance.
    confidence : float, default=0.95
        The level of all intervals.
    threshold : float, default=0.5
        The score above which a decision is positive.
    pos_label : label, default=1
        The positive label.
    sample_weight : array-like, default=None
        The weights of the rows. Intervals then use Kish's effective sample size, an approximation.
    missing : {"raise", "ignore"}, default="raise"
        Whether a row of unknown group is an error, or counts for accuracy but not for any group.
    random_state : int or None, default=0
        The seed of the bootstrap that widens the intervals of gaps among several groups.
    standard : {"four-fifths", "nyc-144"}, Standard or None, default=None
        Make the tables of a rule instead: :class:`~evenhand.auditing.standards.FourFifths` or
        :class:`~evenhand.auditing.standards.NYC144`, which have further options. Neither uses labels.
    strata : array, Series, frame or dict of columns, default=None
        Each row's stratum, for a criterion with ``within``. The verdict is on the largest gap of all strata, and its
        ``strata`` has one for each. A stratum with few rows has a wide interval and is judged all the same, unless the
        criterion's ``thin`` leaves it out.

    Returns
    -------
    Audit or StandardAudit
        Plain data that prints as tables.

    Notes
    -----
    Rates have Wilson's interval, differences Newcombe's, the largest of several gaps that of
    :func:`evenhand.statistics.intervals.distance_interval`, the selection ratio Donner and Zou's.

    Examples
    --------
    >>> from evenhand.auditing.audit import audit
    >>> y = [0, 1] * 200
    >>> decisions = [0, 1] * 100 + [1, 1] * 100
    >>> found = audit(y, decisions, ["F"] * 200 + ["M"] * 200, criterion="eo")
    >>> found.verdicts[0].outcome, found.verdicts[0].gap.value
    ('fail', 1.0)
    """
    check_same_index(
        {
            "y": y,
            "decisions_or_scores": decisions_or_scores,
            "sensitive_features": sensitive_features,
            "sample_weight": sample_weight,
            "strata": strata,
        }
    )
    check_tolerance(tolerance)
    check_confidence(confidence)
    if standard is not None:
        if criterion is not None or sample_weight is not None or strata is not None:
            raise InputError("A standard defines what is compared: leave out criterion, sample_weight and strata.")
        rows_of = (y, decisions_or_scores, sensitive_features)
        return audit_by_standard(
            *rows_of, standard, confidence=confidence, threshold=threshold, pos_label=pos_label, missing=missing
        )
    judged = None if criterion is None else resolve(criterion)
    positive, decided = read_decided(y, decisions_or_scores, threshold, pos_label)
    attributes = read_sensitive(sensitive_features, len(decided), missing=missing)
    rows = Rows(
        positive=positive,
        classes=(None, pos_label),
        attributes=attributes,
        groups={name: attribute.groups for name, attribute in attributes.items()},
        sample_weight=None if sample_weight is None else read_weights(sample_weight, len(decided)),
        strata=read_strata(strata, () if judged is None else judged.strata, len(decided)),
    )
    found = audit_rows(
        rows, decided, criterion=judged, tolerance=tolerance, confidence=confidence, random_state=random_state
    )
    return replace(found, library=library_of(sensitive_features, y, decisions_or_scores))


def audit_rows(
    rows: Rows,
    decided: BoolArray,
    *,
    criterion: Criterion | None = None,
    tolerance: float = 0.05,
    confidence: float = 0.95,
    random_state: int | None = 0,
) -> Audit:
    """Audit the decisions of rows that were read; see :func:`audit`."""
    tolerance, confidence = check_tolerance(tolerance), check_confidence(confidence)
    check_seed(random_state)
    wanted = (*_PARITIES, _FOUR_FIFTHS) if criterion is None else _parts(criterion)
    labelled = rows.positive is not None
    if not labelled:
        if criterion is not None and any(part.needs_joint for part in wanted):
            raise InputError("This criterion compares rates among rows of one label, but y is None: pass the labels.")
        wanted = tuple(part for part in wanted if not part.needs_joint)
    for part in wanted:
        rows = rows.for_criterion(part, judging=True)
    shown = display_names(rows.attributes)
    count = functools.partial(_Cells.count, positive=rows.positive, decided=decided, weights=rows.sample_weight)
    cells = {name: count(attribute) for name, attribute in rows.attributes.items()}
    everyone = count(Attribute("", (None,), np.zeros(len(decided), dtype=np.intp)))
    settings = _Settings(tolerance, confidence, random_state, labelled)
    verdicts = tuple(verdict for part in wanted for verdict in _judge(part, cells, everyone, settings, shown))
    verdicts = tuple(_with_left_out(verdict, rows, shown) for verdict in verdicts)
    plain = {name: cell for name, cell in cells.items() if not isinstance(name, Stratified)}
    return Audit(
        rows=len(decided),
        confidence=confidence,
        tolerance=tolerance,
        weighted=rows.sample_weight is not None,
        accuracy=everyone.accuracies(confidence)[0] if labelled else None,
        attributes=tuple(_audit_attribute(cell, shown[name], settings) for name, cell in plain.items()),
        verdicts=verdicts,
    )


def audit_groups(rows: Rows, decided: BoolArray, attribute: Attribute, confidence: float) -> tuple[GroupAudit, ...]:
    """Return the counts and rates of an attribute's groups, without gaps and verdicts."""
    cells = _Cells.count(attribute, positive=rows.positive, decided=decided, weights=rows.sample_weight)
    return _groups_of(cells, confidence, labelled=rows.positive is not None)


def _parts(criterion: Criterion) -> tuple[Criterion, ...]:
    return criterion.parts if isinstance(criterion, Composite) else (criterion,)


@dataclass(frozen=True)
class _Settings:
    tolerance: float
    confidence: float
    random_state: int | None
    labelled: bool


@dataclass(frozen=True, eq=False)
class _Cells:
    """An attribute's table of rows, weights and squared weights: group by label by decision."""

    attribute: Attribute
    rows: FloatArray
    weights: FloatArray
    squares: FloatArray

    @classmethod
    def count(
        cls,
        attribute: Attribute,
        *,
        positive: BoolArray | None,
        decided: BoolArray,
        weights: FloatArray | None,
    ) -> _Cells:
        """Count the rows."""
        table = functools.partial(tabulate, attribute.codes, len(attribute.groups), positive, decided)
        rows = table(None)
        return cls(attribute, rows, *((rows, rows) if weights is None else (table(weights), table(weights**2))))

    def counts(self, label: int | None) -> tuple[FloatArray, FloatArray]:
        """Return each group's effective positive decisions and rows, among the rows of a label."""
        weights, squares = _among(self.weights, label), _among(self.squares, label)
        return effective_counts(weights[:, 1], weights.sum(axis=1), squares.sum(axis=1))

    def measured(self, event: Event) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each group's effective successes and trials of an event, and its rows."""
        if event.kind == "selection":
            return *self.counts(event.label), _among(self.rows, event.label).sum(axis=1)
        hit, among = RATES[_MEASURES[event.kind]]
        counts = (
            self.weights[..., hit].sum(axis=-1),
            self.weights[..., among].sum(axis=-1),
            self.squares[..., among].sum(axis=-1),
        )
        return *effective_counts(*counts), self.rows[..., among].sum(axis=-1)

    def rates(self, label: int | None, confidence: float) -> tuple[Estimate, ...]:
        """Return each group's rate of positive decisions among the rows of a label."""
        return _estimates(*self.counts(label), confidence)

    def accuracies(self, confidence: float) -> tuple[Estimate, ...]:
        """Return each group's accuracy."""
        right = self.weights[:, 0, 0] + self.weights[:, 1, 1]
        counts = effective_counts(right, self.weights.sum(axis=(1, 2)), self.squares.sum(axis=(1, 2)))
        return _estimates(*counts, confidence)


def _among(table: FloatArray, label: int | None) -> FloatArray:
    return table.sum(axis=1) if label is None else table[:, label]


def _estimates(successes: FloatArray, trials: FloatArray, confidence: float) -> tuple[Estimate, ...]:
    lower, upper = wilson_interval(successes, trials, confidence)
    return tuple(
        Estimate(s / n if n else None, low, high)
        for s, n, low, high in zip(*(v.tolist() for v in (successes, trials, lower, upper)), strict=True)
    )


def _groups_of(cells: _Cells, confidence: float, *, labelled: bool) -> tuple[GroupAudit, ...]:
    groups = cells.attribute.groups
    nothing = [None] * len(groups)
    columns = (
        groups,
        cells.rows.sum(axis=(1, 2)).astype(int).tolist(),
        _among(cells.rows, 0).sum(axis=1).astype(int).tolist() if labelled else nothing,
        _among(cells.rows, 1).sum(axis=1).astype(int).tolist() if labelled else nothing,
        cells.rates(None, confidence),
        cells.rates(1, confidence) if labelled else nothing,
        cells.rates(0, confidence) if labelled else nothing,
        cells.accuracies(confidence) if labelled else nothing,
    )
    return tuple(GroupAudit(*row) for row in zip(*columns, strict=True))


def _audit_attribute(cells: _Cells, name: str, settings: _Settings) -> AttributeAudit:
    attribute, groups, confidence = cells.attribute, cells.attribute.groups, settings.confidence
    labelled = settings.labelled
    gaps = {}
    for parity in _PARITIES:
        if labelled or not parity.needs_joint:
            constraints = parity.constraints({name: groups})
            gaps[criterion_name(parity)] = _System(constraints, {name: cells}, cells, settings).gap
    return AttributeAudit(
        name=name,
        unknown_rows=int((attribute.codes < 0).sum()),
        groups=_groups_of(cells, confidence, labelled=labelled),
        gaps=gaps,
        pairs=tuple(
            pair
            for rate, label in _RATE_LABELS.items()
            if labelled or label is None
            for pair in _pairs(rate, groups, *cells.counts(label), confidence)
        ),
        selection_ratio=_selection_ratio(*cells.counts(None), settings),
    )


def _pairs(
    rate: str, groups: Sequence[Hashable], successes: FloatArray, trials: FloatArray, confidence: float
) -> Iterable[Pair]:
    a, b = np.triu_indices(len(groups), 1)
    lower, upper = newcombe_interval(successes[a], trials[a], successes[b], trials[b], confidence)
    for i, j, low, high in zip(a.tolist(), b.tolist(), lower.tolist(), upper.tolist(), strict=True):
        known = trials[i] > 0.0 and trials[j] > 0.0
        value = float(successes[i] / trials[i] - successes[j] / trials[j]) if known else None
        yield Pair(rate, groups[i], groups[j], Estimate(value, low, high))


def _selection_ratio(successes: FloatArray, trials: FloatArray, settings: _Settings) -> Estimate:
    """Return the lowest rate over the highest; the two ends as in :func:`distance_interval`."""
    known = trials > 0.0
    rates = successes[known] / trials[known]
    value = float(rates.min() / rates.max()) if len(rates) > 1 and rates.max() > 0.0 else None
    a, b = (index.ravel() for index in np.nonzero(~np.eye(len(trials), dtype=bool)))
    joint = simultaneous_quantile(
        pairs_of(len(trials)), successes, trials, settings.confidence, random_state=settings.random_state
    )
    lower, _ = ratio_at(successes[a], trials[a], successes[b], trials[b], normal_quantile(settings.confidence))
    _, upper = ratio_at(successes[a], trials[a], successes[b], trials[b], joint)
    return Estimate(value, float(lower.min()), min(float(upper.min()), 1.0))


class _System:
    """A criterion's constraints on one attribute, with the counts behind them."""

    def __init__(
        self,
        constraints: Sequence[Constraint],
        cells: Mapping[AttributeKey, _Cells],
        everyone: _Cells,
        settings: _Settings,
    ) -> None:
        self.events = tuple(dict.fromkeys(event for bound in constraints for event, _ in bound.terms))
        position = {event: index for index, event in enumerate(self.events)}
        terms = [(k, position[e], c) for k, bound in enumerate(constraints) for e, c in bound.terms]
        rows, columns, coefficients = zip(*terms, strict=True)
        shape = len(constraints), len(self.events)
        self.matrix = sparse.csr_array((coefficients, (rows, columns)), shape=shape)
        self.successes, self.trials, self.rows = _event_counts(self.events, cells, everyone)
        self.bounds = np.array([b.lower for b in constraints]), np.array([b.upper for b in constraints])
        self.settings = settings

    @functools.cached_property
    def gap(self) -> Estimate:
        """The largest distance of a combination from its bounds."""
        known = self.distances[~np.isnan(self.distances)]
        return Estimate(float(known.max()) if known.size else None, *self.interval(1.0, self.quantiles(1.0)))

    @functools.cached_property
    def distances(self) -> FloatArray:
        """How far each combination is outside its bounds; NaN where a rate has no rows."""
        empty = self.trials <= 0.0
        rates = np.divide(self.successes, self.trials, out=np.zeros(len(empty)), where=~empty)
        values = self.matrix @ rates
        outside = np.maximum(np.maximum(self.bounds[0] - values, values - self.bounds[1]), 0.0)
        return np.where(abs(self.matrix) @ empty > 0.0, np.nan, outside)

    def quantiles(self, factor: float) -> tuple[float, float]:
        """Return the normal quantiles for one and for all combinations, with a multiple of the rows."""
        confidence, seed = self.settings.confidence, self.settings.random_state
        counts = self.successes * factor, self.trials * factor
        return normal_quantile(confidence), simultaneous_quantile(self.matrix, *counts, confidence, random_state=seed)

    def interval(self, factor: float, quantiles: tuple[float, float]) -> tuple[float, float]:
        """Return the interval of the largest distance, with a multiple of the rows."""
        counts = self.successes * factor, self.trials * factor
        return distance_interval(self.matrix, *counts, self.bounds, quantiles)

    def shortage(self, tolerance: float, rows: int) -> Shortage:
        """Return what is needed to settle an undecided verdict."""
        single, joint = self.quantiles(_MANY)
        _, low, high = linear_intervals(self.matrix, self.successes, self.trials, single)
        open_ = (low < self.bounds[0] - tolerance) | (high > self.bounds[1] + tolerance)
        if self.gap.value is not None and self.gap.value > tolerance and not np.isnan(self.distances).any():
            open_ = self.distances == self.gap.value
        involved = np.flatnonzero(abs(self.matrix).T @ open_ > 0.0)
        index = int(involved[np.argmin(self.trials[involved])])
        event, have = self.events[index], int(self.rows[index])
        if self.trials.min() <= 0.0:
            enough = math.ceil((single / (2.0 * tolerance)) ** 2) if tolerance > 0.0 else None
            return Shortage(None, event.group, event.label, have, enough)
        factor = settling_factor(
            lambda f: _outcome(*self.interval(f, (single, joint)), tolerance) != "insufficient evidence"
        )
        if factor is None:
            return Shortage(None, event.group, event.label, have, None)
        return Shortage(math.ceil(rows * factor), event.group, event.label, have, math.ceil(have * factor))


def _outcome(least: float, most: float, tolerance: float) -> Outcome:
    return "pass" if most <= tolerance else "fail" if least > tolerance else "insufficient evidence"


def _event_counts(
    events: Sequence[Event], cells: Mapping[AttributeKey, _Cells], everyone: _Cells
) -> tuple[FloatArray, FloatArray, FloatArray]:
    found = np.empty((3, len(events)))
    tables: dict[tuple[AttributeKey | None, int | None, Kind], FloatArray] = {}
    for index, event in enumerate(events):
        table = everyone if event.attribute is None else cells[event.attribute]
        key = event.attribute, event.label, event.kind
        if key not in tables:
            tables[key] = np.array(table.measured(event))
        found[:, index] = tables[key][:, table.attribute.groups.index(event.group)]
    return found[0], found[1], found[2]


def _judge(
    criterion: Criterion,
    cells: Mapping[AttributeKey, _Cells],
    everyone: _Cells,
    settings: _Settings,
    shown: Mapping[AttributeKey, str],
) -> Iterable[Verdict]:
    constraints = criterion.constraints({name: cell.attribute.groups for name, cell in cells.items()})
    by_attribute: dict[AttributeKey | None, list[Constraint]] = {}
    for constraint in constraints:
        by_attribute.setdefault(constraint.terms[0][0].attribute, []).append(constraint)
    for attribute, bounds in by_attribute.items():
        system = _System(bounds, cells, everyone, settings)
        own = bounds[0].tolerance
        tolerance = settings.tolerance if own is None else own
        outcome = _outcome(system.gap.lower, system.gap.upper, tolerance)
        rows = int((everyone if attribute is None else cells[attribute]).rows.sum())
        shortage = system.shortage(tolerance, rows) if outcome == "insufficient evidence" else None
        name = None if attribute is None else shown[attribute]
        strata: tuple[StratumAudit, ...] = ()
        if isinstance(attribute, Stratified):
            strata = tuple(
                _judge_strata(bounds, cells, attribute, everyone, dataclasses.replace(settings, tolerance=tolerance))
            )
        yield Verdict(criterion_name(criterion), name, system.gap, tolerance, outcome, shortage, strata)


def _judge_strata(
    constraints: Sequence[Constraint],
    cells: Mapping[AttributeKey, _Cells],
    key: Stratified,
    everyone: _Cells,
    settings: _Settings,
) -> Iterable[StratumAudit]:
    """Judge each stratum by its own bounds."""
    inside: dict[Hashable, list[Constraint]] = {}
    for bound in constraints:
        stratum = bound.terms[0][0].stratum
        assert stratum is not None
        inside.setdefault(stratum[1], []).append(bound)
    audits = _groups_of(cells[key], settings.confidence, labelled=settings.labelled)
    for stratum_value, bounds in inside.items():
        members = [each for each in audits if isinstance(each.group, tuple) and each.group[0] == stratum_value]
        groups = tuple(
            dataclasses.replace(each, group=each.group[1]) for each in members if isinstance(each.group, tuple)
        )
        rows = sum(each.rows for each in groups)
        system = _System(bounds, cells, everyone, settings)
        outcome = _outcome(system.gap.lower, system.gap.upper, settings.tolerance)
        shortage = system.shortage(settings.tolerance, rows) if outcome == "insufficient evidence" else None
        yield StratumAudit(stratum_value, rows, groups, system.gap, outcome, shortage)


def _with_left_out(verdict: Verdict, rows: Rows, shown: Mapping[AttributeKey, str]) -> Verdict:
    """Return a verdict that lists the strata that were left out, and their numbers of rows."""
    key = next(
        (key for key in rows.attributes if isinstance(key, Stratified) and shown[key] == verdict.attribute), None
    )
    if key is None:
        return verdict
    column, judged = rows.strata[key.within], {stratum.stratum for stratum in verdict.strata}
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.groups))
    named = zip(group_texts(column.groups), column.groups, counts, strict=True)
    left_out = {text: int(n) for text, value, n in named if value not in judged}
    return dataclasses.replace(verdict, left_out=left_out)


def criterion_name(criterion: Criterion) -> str:
    """Return the criterion's name as users write it: ``equalized_odds``, ``selection_ratio(0.8)``; a sum is itself."""
    if isinstance(criterion, LinearConstraint):
        return str(criterion)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(criterion).__name__).lower()
    options = [getattr(criterion, field.name) for field in fields(criterion)]
    shown = [str(o) for f, o in zip(fields(criterion), options, strict=True) if f.name not in _NOT_NAMED]
    return f"{words}({', '.join(shown)})" if shown else words
