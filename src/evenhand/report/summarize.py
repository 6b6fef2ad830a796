"""A result as plain data: everything that a report shows, computed once, and nothing about how it looks."""

from __future__ import annotations

import platform
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from evenhand._version import __version__
from evenhand.arguments import check_flag, check_seed, shown
from evenhand.auditing.audit import AttributeAudit, Audit, Estimate, GroupAudit, Verdict, audit
from evenhand.errors import InputError
from evenhand.inputs import (
    Attribute,
    FloatArray,
    Missing,
    as_column,
    cross_attributes,
    group_texts,
    joined,
    read_labels,
    read_probabilities,
    read_sensitive,
    read_weights,
)
from evenhand.plausibility import check_same_index, warn_of_decisions, warn_of_reversed_groups
from evenhand.report.bias import picture_bias
from evenhand.report.calibration import reliability
from evenhand.rules import scores
from evenhand.rules.criteria import AttributeKey, Criterion, check_tolerance, display_names, resolve
from evenhand.rules.frontier import Frontier
from evenhand.rules.rule import Rule, class_array
from evenhand.statistics.intervals import check_confidence

SCHEMA = "evenhand-report/1"
RECEIPTS = 4
FEW_ROWS = 30
_SEVERITY = {"fail": 2, "insufficient evidence": 1, "pass": 0}
_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")


def summarize(
    y: ArrayLike | None,
    sensitive_features: Any,
    p_y: ArrayLike,
    p_group: Any = None,
    rules: Frontier | Rule | None = None,
    *,
    criterion: str | Criterion | None = None,
    tolerance: float = 0.05,
    confidence: float = 0.95,
    threshold: float = 0.5,
    pos_label: Hashable = 1,
    held_out: bool = False,
    sample_weight: ArrayLike | None = None,
    missing: Missing = "raise",
    title: str = "Fairness report",
    provenance: Mapping[str, Any] | None = None,
    random_state: int = 0,
) -> dict[str, Any]:
    """Return all that a report shows, as plain data that JSON can hold. The same input gives the same data.

    Parameters
    ----------
    y : array of shape (n,) or None
        The labels of the rows that the report is about. None is allowed where there are no rules.
    sensitive_features : array, Series, frame or dict of columns
        Each row's group.
    p_y : array of shape (n,)
        P(Y = positive | x); without rules also decisions, as in :func:`evenhand.audit`.
    p_group : array or dict of arrays, default=None
        What the rules need: p(A | x) or p(Y, A | x).
    rules : Frontier, Rule or None, default=None
        The rules along a frontier, or one rule. None makes a report about the decisions as they are.
    criterion : str, Criterion or None, default=None
        What verdicts are given on. None: that of the rules, or those that an audit gives.
    tolerance : float, default=0.05
        The tolerance whose rule is shown first: the loosest one of the frontier within it.
    confidence : float, default=0.95
        The level of the intervals.
    threshold : float, default=0.5
        The score above which a decision is positive; only without rules.
    pos_label : label, default=1
        The positive label.
    held_out : bool, default=False
        Whether these rows took part neither in training nor in learning the rules.
    sample_weight : array of shape (n,), default=None
        The weights of the rows.
    missing : {"raise", "ignore"}, default="raise"
        Whether a row whose group is unknown is an error.
    title : str, default="Fairness report"
        The heading.
    provenance : mapping, default=None
        Where it comes from, shown as it is: for instance ``{"data": ..., "sha256": ..., "command": ...}``.
    random_state : int, default=0
        Which rows are drawn where there are too many to show.

    Returns
    -------
    dict
        With these keys. An ESTIMATE is ``{"value", "lower", "upper"}``, its value None without rows. A STATE
        is ``{"accuracy": ESTIMATE or None, "outcome": "pass" | "fail" | "insufficient evidence", "verdicts":
        [{"criterion", "attribute", "gap": ESTIMATE, "tolerance", "outcome", "shortage"}], "worst": the index
        of the verdict that decides, "groups": [{"attribute", "group", "selection_rate", "true_positive_rate",
        "false_positive_rate", "accuracy": ESTIMATE or None}]}``.

        - ``schema``: "evenhand-report/1"; ``title``; ``rows``; ``weighted``; ``held_out``; ``confidence``;
          ``tolerance``; ``labels``: ``{"negative", "positive"}``, or None where there are none.
        - ``criteria``: the names of the criteria that verdicts are given on; ``attributes``: names.
        - ``base``: the STATE of the decisions as the model alone makes them.
        - ``steps``: one for each rule, strict to loose: a STATE with ``step_tolerance``; ``learned``
          (``utility``, ``upper_bound``, ``status`` on the rows it was learnt from, or None); ``terms``
          (``name``, ``z``); ``flips`` (``attribute``, ``group``, ``rows``, ``to_positive``, ``to_negative``);
          ``flipped`` (the number of rows); ``receipts`` (``row``, ``group`` and the fields of
          :class:`evenhand.rules.rule.Receipt`).
        - ``chosen``: the index of the step shown first, None without rules; ``unreachable``: tolerances
          that no rule meets.
        - ``bias``: None, or the picture of the bias scores. ``kind`` "plane": ``limits`` of the two axes, the
          ``softness`` with which they are stretched around 0, ``points`` ``[s1, s2, group]``, of which
          ``turned`` and ``others`` say how many are shown of how many
          (by the chosen rule), ``lines`` a list of ``[s1, s2]`` for each step. "histogram":
          ``edges``, ``shares`` for each group, ``thresholds`` for each step. "projection": ``edges``,
          ``counts`` for each step. All: ``terms``, ``groups``, ``rows``, ``outside``.
        - ``calibration``: a list of ``{"model", "group", "rows", "error", "bins"}``; see
          :func:`evenhand.report.calibration.reliability`.
        - ``counts``: a list of ``{"attribute", "group", "rows", "positives", "negatives", "few"}``.
        - ``unknown_rows``: for each attribute, the rows whose group is unknown.
        - ``provenance``: as given, and ``versions``.

    Examples
    --------
    >>> import evenhand as eh
    >>> from evenhand.report import summarize
    >>> data = eh.datasets.make_zafar(2000, random_state=0)
    >>> rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion="eo", tolerance=0.05)
    >>> summary = summarize(data.y, data.group, data.p_y, data.p_joint, rule)
    >>> summary["criteria"], summary["chosen"], summary["steps"][0]["flipped"] > 0
    (['equalized_odds'], 0, True)
    """
    if not isinstance(title, str):
        raise InputError(f"title must be text; got {shown(title)}.")
    check_flag(held_out, "held_out")
    check_seed(random_state)
    tolerance, confidence = check_tolerance(tolerance), check_confidence(confidence)
    if not isinstance(provenance, Mapping | None):
        raise InputError(f"provenance must be a dict of what to show, or None; got {shown(provenance)}.")
    points = _points(rules)
    if points and criterion is None:
        criterion = points[0][1].criterion
    options: dict[str, Any] = {
        "criterion": criterion,
        "confidence": confidence,
        "pos_label": pos_label,
        "sample_weight": sample_weight,
        "missing": missing,
        "random_state": random_state,
    }
    check_same_index(
        {
            "y": y,
            "sensitive_features": sensitive_features,
            "p_y": p_y,
            "p_group": p_group,
            "sample_weight": sample_weight,
        }
    )
    rows = _Rows(y, sensitive_features, p_y, p_group, missing, pos_label, sample_weight, scored=bool(points))
    for crossed in () if criterion is None else resolve(criterion).intersections:
        rows.attributes[crossed] = cross_attributes(rows.attributes, crossed)
    rows.shown = display_names(rows.attributes)
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "title": title,
        "held_out": held_out,
        "confidence": confidence,
    }
    summary["tolerance"] = check_tolerance(tolerance)
    if points:
        if y is None:
            raise InputError("A report about rules compares decisions with labels: y must not be None.")
        _check_groups(points[0][1], rows.attributes)
        base_decisions = rows.base(points[0][1])
        chosen = max((i for i, (t, _) in enumerate(points) if t <= tolerance + 1e-12), default=0)
        base = audit(y, base_decisions, sensitive_features, tolerance=points[chosen][0], **options)
        bias_scores = points[0][1].bias_scores(rows.p_y, p_group)
        steps = [
            _step(
                rows,
                rule,
                at,
                audit(y, rows.decide(rule), sensitive_features, tolerance=at, **options),
                base_decisions,
            )
            for at, rule in points
        ]
        first = rows.attributes[points[0][1].attributes[0]] if points[0][1].attributes else None
        codes = first.codes if first else np.zeros(len(rows.p_y), dtype=np.intp)
        names = group_texts(first.groups) if first else ["everyone"]
        picture = picture_bias(
            bias_scores, codes, names, [rule for _, rule in points], chosen, random_state, rows.weights
        )
    else:
        base = audit(y, p_y, sensitive_features, tolerance=tolerance, threshold=threshold, **options)
        chosen, steps, picture = None, [], None
    summary |= {
        "rows": base.rows,
        "weighted": base.weighted,
        "labels": rows.labels(),
        "criteria": list(dict.fromkeys(verdict.criterion for verdict in base.verdicts)),
        "attributes": [attribute.name for attribute in base.attributes],
        "base": _state(base),
        "steps": steps,
        "chosen": chosen,
        "unreachable": list(rules.unreachable) if isinstance(rules, Frontier) else [],
        "bias": picture,
        "calibration": _calibration(rows, confidence),
        "counts": [_count(attribute.name, *each) for attribute in base.attributes for each in _texts(attribute)],
        "unknown_rows": {attribute.name: attribute.unknown_rows for attribute in base.attributes},
        "provenance": {**(provenance or {}), "versions": _versions()},
    }
    return summary


def _points(rules: Frontier | Rule | None) -> list[tuple[float, Rule]]:
    if rules is None:
        return []
    if isinstance(rules, Rule):
        return [(0.0 if rules.tolerance is None else rules.tolerance, rules)]
    if not isinstance(rules, Frontier):
        raise InputError(f"rules must be a Rule, a Frontier or None; got {shown(rules)}.")
    if not len(rules):
        raise InputError("This frontier has no rule: no tolerance that was asked for can be met.")
    return [(point.tolerance, point.rule) for point in rules]


def _check_groups(rule: Rule, attributes: Mapping[AttributeKey, Attribute]) -> None:
    """Raise where the rows have other attributes or groups than those that the rule decides between."""
    for name in rule.attributes:
        if name not in attributes:
            raise InputError(
                f"The rule is about the attribute {name!r}, and sensitive_features has {list(attributes)!r}: give each"
                f" row's group by that name, as {{{name!r}: ...}}."
            )
        stray = [group for group in attributes[name].groups if group not in rule.groups[name]]
        if stray:
            raise InputError(
                f"sensitive feature {name!r} has the group {stray[0]!r}, which the rule does not know: its groups are"
                f" {list(rule.groups[name])!r}."
            )


class _Rows:
    """The rows that a report is about, read once."""

    def __init__(
        self,
        y: Any,
        sensitive: Any,
        p_y: Any,
        p_group: Any,
        missing: Missing,
        pos_label: Hashable,
        sample_weight: Any,
        *,
        scored: bool,
    ) -> None:
        self.positive: NDArray[np.bool_] | None = None
        self.classes: tuple[Hashable, Hashable] | None = None
        if y is not None:
            self.positive, self.classes = read_labels(y, pos_label)
        values = as_column(p_y, "p_y")
        self.is_score = scored or (values.dtype.kind == "f" and not np.isin(values, (0.0, 1.0)).all())
        self.p_y = read_probabilities(p_y, "p_y", shape=(None,)) if self.is_score else np.zeros(len(values))
        self.p_group = p_group
        self.weights = None if sample_weight is None else read_weights(sample_weight, len(values))
        if scored:
            warn_of_decisions(self.p_y)
        self.attributes = read_sensitive(sensitive, len(values), missing=missing)
        self.shown = display_names(self.attributes)

    def weight_of(self, inside: NDArray[np.bool_]) -> FloatArray | None:
        return None if self.weights is None else self.weights[inside]

    def labels(self) -> dict[str, str] | None:
        return None if self.classes is None else {"negative": str(self.classes[0]), "positive": str(self.classes[1])}

    def base(self, rule: Rule) -> NDArray[Any]:
        """Return the decisions that the model alone would make, at the rule's costs."""
        return class_array(rule.classes)[(scores.margin(self.p_y, rule.costs) > 0.0).astype(np.intp)]

    def decide(self, rule: Rule) -> NDArray[Any]:
        return rule.decide(self.p_y, self.p_group)

    def group_probabilities(self) -> dict[AttributeKey, FloatArray]:
        """Return p(A | x) or p(Y, A | x) by attribute, where the probabilities are known."""
        if self.p_group is None:
            return {}
        given = (
            self.p_group
            if isinstance(self.p_group, Mapping)
            else dict.fromkeys(list(self.attributes)[:1], self.p_group)
        )
        keys = scores.by_attribute(given, self.attributes, "p_group")
        groups = {name: found.groups for name, found in self.attributes.items() if name in keys}
        if not groups:
            return {}
        return scores.read_group_probabilities(given, groups, len(self.p_y), known=self.attributes)


def _step(rows: _Rows, rule: Rule, tolerance: float, found: Audit, before: NDArray[Any]) -> dict[str, Any]:
    after = rows.decide(rule)
    flipped = after != before
    positive = after == rule.classes[1]
    flips = [
        {
            "attribute": rows.shown[name],
            "group": text,
            "rows": int((attribute.codes == code).sum()),
            "to_positive": int((flipped & positive & (attribute.codes == code)).sum()),
            "to_negative": int((flipped & ~positive & (attribute.codes == code)).sum()),
        }
        for name, attribute in rows.attributes.items()
        for code, text in enumerate(group_texts(attribute.groups))
    ]
    solution = rule.solution
    learned = None
    if solution is not None:
        bound = solution.upper_bound if np.isfinite(solution.upper_bound) else None
        learned = {"utility": solution.utility, "upper_bound": bound, "status": solution.status}
    return {
        **_state(found),
        "step_tolerance": float(tolerance),
        "learned": learned,
        "terms": [{"name": term.name, "z": term.z} for term in rule.terms],
        "flips": flips,
        "flipped": int(flipped.sum()),
        "receipts": _receipts(rows, rule, flipped, positive),
    }


def _receipts(rows: _Rows, rule: Rule, flipped: NDArray[np.bool_], positive: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Return receipts of flipped rows: for each group and direction the row in the middle of its like."""
    attribute = rows.attributes[rule.attributes[0]] if rule.attributes else next(iter(rows.attributes.values()))
    fair = rule.decision_function(rows.p_y, rows.p_group)
    found: list[tuple[int, int]] = []
    for code in range(len(attribute.groups)):
        for upwards in (True, False):
            mine = np.flatnonzero(flipped & (positive == upwards) & (attribute.codes == code))
            if len(mine):
                ordered = mine[np.argsort(np.abs(fair[mine]), kind="stable")]
                found.append((len(mine), int(ordered[len(mine) // 2])))
    chosen = [row for _, row in sorted(found, key=lambda pair: -pair[0])[:RECEIPTS]]
    if not chosen:
        return []
    names = group_texts(attribute.groups)
    explained = rule.explain(rows.p_y[chosen], _take(rows.p_group, chosen))
    return [
        {
            "row": row,
            "group": names[attribute.codes[row]],
            "label": None
            if rows.positive is None or rows.classes is None
            else str(rows.classes[int(rows.positive[row])]),
            "probability": receipt.probability,
            "margin": receipt.margin,
            "terms": dict(receipt.terms),
            "fair_margin": receipt.fair_margin,
            "bias_scores": [score if np.isfinite(score) else None for score in receipt.bias_scores],
            "base_decision": str(receipt.base_decision),
            "decision": str(receipt.decision),
            "distance": receipt.distance,
        }
        for row, receipt in zip(chosen, explained, strict=True)
    ]


def _take(p_group: Any, rows: Sequence[int]) -> Any:
    if isinstance(p_group, Mapping):
        return {name: _take(array, rows) for name, array in p_group.items()}
    frame = nw.from_native(p_group, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return frame[list(rows)].to_native()
    return None if p_group is None else np.asarray(p_group)[rows]


def _state(found: Audit) -> dict[str, Any]:
    worst = max(range(len(found.verdicts)), key=lambda i: _severity(found.verdicts[i]))
    return {
        "accuracy": _estimate(found.accuracy),
        "outcome": found.verdicts[worst].outcome,
        "worst": worst,
        "verdicts": [_verdict(verdict) for verdict in found.verdicts],
        "groups": [
            {
                "attribute": attribute.name,
                "group": text,
                **{rate: _estimate(getattr(group, rate)) for rate in _RATES},
            }
            for attribute in found.attributes
            for text, group in _texts(attribute)
        ],
    }


def _texts(attribute: AttributeAudit) -> Iterable[tuple[str, GroupAudit]]:
    return zip(group_texts(group.group for group in attribute.groups), attribute.groups, strict=True)


def _severity(verdict: Verdict) -> tuple[int, float]:
    return _SEVERITY[verdict.outcome], -1.0 if verdict.gap.value is None else verdict.gap.value


def _verdict(verdict: Verdict) -> dict[str, Any]:
    shortage = verdict.shortage
    return {
        "criterion": verdict.criterion,
        "attribute": verdict.attribute,
        "gap": _estimate(verdict.gap),
        "tolerance": verdict.tolerance,
        "outcome": verdict.outcome,
        "shortage": None
        if shortage is None
        else {
            "rows_needed": shortage.rows_needed,
            "group": None if shortage.group is None else joined(shortage.group),
            "label": shortage.label,
            "cell_rows": shortage.cell_rows,
            "cell_needed": shortage.cell_needed,
        },
    }


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    if estimate is None:
        return None
    bounds = {name: getattr(estimate, name) for name in ("value", "lower", "upper")}
    return {name: None if bound is None or not np.isfinite(bound) else float(bound) for name, bound in bounds.items()}


def _count(attribute: str, text: str, group: GroupAudit) -> dict[str, Any]:
    cells = [cell for cell in (group.rows, group.positives, group.negatives) if cell is not None]
    return {
        "attribute": attribute,
        "group": text,
        "rows": group.rows,
        "positives": group.positives,
        "negatives": group.negatives,
        "few": min(cells) < FEW_ROWS,
    }


def _calibration(rows: _Rows, confidence: float) -> list[dict[str, Any]]:
    found = []
    if rows.positive is not None and rows.classes is not None and rows.is_score:
        model = f"P(label = {rows.classes[1]})"
        everyone = np.ones(len(rows.p_y), dtype=bool)
        parts = [("everyone", everyone)]
        attribute = next(iter(rows.attributes.values()))
        parts += [(text, attribute.codes == code) for code, text in enumerate(group_texts(attribute.groups))]
        for text, inside in parts:
            found.append(
                {
                    "model": model,
                    "group": text,
                    **reliability(
                        rows.p_y[inside], rows.positive[inside], rows.weight_of(inside), confidence=confidence
                    ),
                }
            )
    probabilities = rows.group_probabilities()
    warn_of_reversed_groups(
        probabilities, rows.attributes, np.ones(len(rows.p_y)) if rows.weights is None else rows.weights
    )
    for name, array in probabilities.items():
        attribute = rows.attributes[name]
        if array.ndim == 3 and rows.positive is not None and rows.classes is not None:
            model = f"P(label = {rows.classes[1]}, {rows.shown[name]} = …)"
            found += _group_calibration(rows, attribute, array[:, 1], rows.positive, model, confidence)
        everyone = np.ones(len(rows.p_y), dtype=bool)
        marginal = array.sum(axis=1) if array.ndim == 3 else array
        found += _group_calibration(rows, attribute, marginal, everyone, f"P({rows.shown[name]} = …)", confidence)
    return found


def _group_calibration(
    rows: _Rows, attribute: Attribute, array: FloatArray, within: NDArray[np.bool_], model: str, confidence: float
) -> list[dict[str, Any]]:
    known = attribute.codes >= 0
    return [
        {
            "model": model,
            "group": text,
            **reliability(
                array[known, code],
                (within & (attribute.codes == code))[known],
                rows.weight_of(known),
                confidence=confidence,
            ),
        }
        for code, text in enumerate(group_texts(attribute.groups))
    ]


def _versions() -> dict[str, str]:
    return {
        "evenhand": __version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "SciPy": scipy.__version__,
    }
