"""A result as plain data: everything that a report shows, computed once and independent of its layout."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import check_flag, check_seed, shown
from evenhand.auditing.alternatives import Alternatives
from evenhand.auditing.audit import audit_rows
from evenhand.auditing.findings import AttributeAudit, Audit, Estimate, GroupAudit, Verdict
from evenhand.auditing.tally import read_decided
from evenhand.errors import InputError
from evenhand.inputs import (
    Attribute,
    FloatArray,
    GroupProbabilities,
    Missing,
    SensitiveFeatures,
    as_column,
    group_texts,
    joined,
    read_labels,
    read_probabilities,
    read_sensitive,
    read_weights,
)
from evenhand.plausibility import check_same_index, warn_of_decisions, warn_of_reversed_groups
from evenhand.report.alternatives import with_alternatives
from evenhand.report.bias import picture_bias
from evenhand.report.calibrating import calibration
from evenhand.report.crossed import crossed_groups, crossings
from evenhand.rows import Rows
from evenhand.rules import scores
from evenhand.rules.criteria import Criterion, check_tolerance, resolve
from evenhand.rules.events import AttributeKey, Stratified, display_names, is_other
from evenhand.rules.frontier import Frontier
from evenhand.rules.mixture import Mixture
from evenhand.rules.mixture_strata import compared_strata
from evenhand.rules.objective import ACCURACY, in_words
from evenhand.rules.rule import Rule
from evenhand.rules.rule_strata import columns_within, strata_as_learnt
from evenhand.rules.safety import ThinCell, thin_text
from evenhand.rules.strata import places_of_new_rows, read_strata
from evenhand.statistics.intervals import check_confidence
from evenhand.versions import versions

SCHEMA = "evenhand-report/1"
RECEIPTS = 4
FEW_ROWS = 30
_LABELS = ("negative", "positive")
_SEVERITY = {"fail": 2, "insufficient evidence": 1, "pass": 0}
_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")


def summarize(
    y: ArrayLike | None,
    sensitive_features: SensitiveFeatures | None,
    p_y: ArrayLike,
    p_group: GroupProbabilities | None = None,
    rules: Frontier | Rule | Mixture | None = None,
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
    alternatives: Alternatives | None = None,
    random_state: int = 0,
    strata: SensitiveFeatures | None = None,
) -> dict[str, Any]:
    """Return the contents of a report as plain data for JSON. The same input gives the same data.

    Parameters
    ----------
    y : array of shape (n,) or None
        The labels of the report's rows. None is allowed without rules.
    sensitive_features : array, Series, frame or dict of columns
        Each row's group.
    p_y : array of shape (n,)
        P(Y = positive | x); without rules, decisions are also allowed, as in :func:`evenhand.audit`.
    p_group : array or dict of arrays, default=None
        The probabilities that the rules need: p(A | x) or p(Y, A | x).
    rules : Frontier, Rule, Mixture or None, default=None
        The rules along a frontier, one rule, or a mixture, whose random draws depend on the scores. With None, the
        report is about the given decisions.
    criterion : str, Criterion or None, default=None
        The criteria for the verdicts. None: those of the rules, or those of an audit.
    tolerance : float, default=0.05
        The tolerance whose rule is shown first: the loosest one of the frontier within it.
    confidence : float, default=0.95
        The level of the intervals.
    threshold : float, default=0.5
        The score above which a decision is positive; only without rules.
    pos_label : label, default=1
        The positive label.
    held_out : bool, default=False
        Whether these rows were used neither for training nor for learning the rules.
    sample_weight : array of shape (n,), default=None
        The weights of the rows.
    missing : {"raise", "ignore"}, default="raise"
        Whether a row of unknown group is an error.
    title : str, default="Fairness report"
        The heading.
    provenance : mapping, default=None
        Where the results come from, shown unchanged: for instance ``{"data": ..., "sha256": ..., "command": ...}``.
    alternatives : Alternatives or None, default=None
        A result of :func:`evenhand.alternatives` for these decisions, shown in a separate section.
    random_state : int, default=0
        Seed for drawing rows if there are too many to show.
    strata : array, Series, frame or dict of columns, default=None
        Each row's stratum, for a criterion with ``within``.

    Returns
    -------
    dict
        The following keys. An ESTIMATE is ``{"value", "lower", "upper"}``, its value None without rows. A STATE
        is ``{"accuracy": ESTIMATE or None, "outcome": "pass" | "fail" | "insufficient evidence", "verdicts":
        [{"criterion", "attribute", "gap": ESTIMATE, "tolerance", "outcome", "shortage", "strata": [{"stratum", "rows",
        "gap": ESTIMATE, "outcome"}], "left_out": rows by stratum}], "worst": the index
        of the decisive verdict (of several failing ones, the one with the most evidence), "largest": the index of
        the verdict with the largest gap, "groups": [{"attribute", "group", "selection_rate",
        "true_positive_rate", "false_positive_rate", "accuracy": ESTIMATE or None}], "ratios": [{"attribute",
        "ratio": ESTIMATE}], the lowest selection rate over the highest, "crossed": [{"attribute", "group", "rows"
        and rates}], the combinations of two attributes' groups}``.

        - ``schema``: "evenhand-report/1"; ``title``; ``rows``; ``weighted``; ``held_out``; ``confidence``;
          ``tolerance``; ``labels``: ``{"negative", "positive"}``, or None if there are none.
        - ``criteria``: the names of the criteria of the verdicts; ``attributes``: names.
        - ``base``: the STATE of the decisions of the model alone.
        - ``steps``: one for each rule, strict to loose: a STATE with ``step_tolerance``; ``learned``
          (``objective`` by its name, its ``utility`` and ``upper_bound``, and the search's ``status``, on the rows it
          was learnt from; or None); ``terms``
          (``name``, ``z``); ``flips`` (``attribute``, ``group``, ``rows``, ``to_positive``, ``to_negative``);
          ``flipped`` (the number of rows); ``mixture``, None or ``rules`` (``weight``), ``by_lot``, the number of
          rows that a random draw decides, and ``strata`` (``stratum`` and its ``weights``); ``determinism``, None or
          the cost of determinism (``mixture_utility``, ``mixture_bound``, ``cost``); ``harm``, a sentence if held-out
          rows show a larger gap than that of the model alone, or None; ``thin``, a sentence if there were too few rows
          to learn from, or None; ``receipts`` (``row``, ``group``, ``words`` and the fields of
          :class:`evenhand.rules.receipt.Receipt`).
        - ``chosen``: the index of the step shown first, None without rules; ``unreachable``: tolerances
          that no rule meets.
        - ``bias``: None, or the data of the chart of the bias scores. ``kind`` "plane": ``limits`` of the two axes, the
          ``softness`` with which they are stretched around 0, ``points`` ``[s1, s2, group]``, of which
          ``turned`` and ``others`` are how many are shown of how many
          (by the chosen rule), ``lines`` a list of ``[s1, s2]`` for each step. "histogram":
          ``edges``, ``shares`` for each group, ``thresholds`` for each step. "projection": ``edges``,
          ``counts`` for each step. All: ``terms``, ``groups``, ``rows``, ``outside``.
        - ``calibration``: a list of ``{"model", "group", "rows", "error", "bins"}``; see
          :func:`evenhand.statistics.calibration.reliability`.
        - ``counts``: a list of ``{"attribute", "group", "rows", "positives", "negatives", "few"}``.
        - ``unknown_rows``: for each attribute, the number of rows of unknown group.
        - ``provenance``: as given, and ``versions``.
        - ``alternatives``, only if they were given: ``status``, ``sentences``, ``table``, ``held_out``, ``scope``
          and ``data``, as :meth:`evenhand.Alternatives.to_dict` returns them.

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
        raise InputError(f"provenance must be a dict, or None; got {shown(provenance)}.")
    points = _points(rules)
    if points and criterion is None:
        criterion = points[0][1].criterion
    names = ("y", "sensitive_features", "p_y", "p_group", "sample_weight")
    check_same_index(dict(zip(names, (y, sensitive_features, p_y, p_group, sample_weight), strict=True)))
    if points and y is None:
        raise InputError("A report about rules compares decisions with labels: pass y.")
    values = as_column(p_y, "p_y")
    unlabelled = None, (None, pos_label)
    positive, classes = unlabelled if y is None else read_labels(y, pos_label, len(values))
    decided = None if points else read_decided(y, p_y, threshold, pos_label)[1]
    is_score = bool(points) or (values.dtype.kind == "f" and not np.isin(values, (0.0, 1.0)).all())
    attributes = read_sensitive(sensitive_features, len(values), missing=missing)
    inside = () if criterion is None else resolve(criterion).strata
    inside = tuple(dict.fromkeys([*inside, *(points[0][1].strata if points else ())]))
    rows = Rows(
        positive=positive,
        classes=classes,
        attributes=attributes,
        groups={name: attribute.groups for name, attribute in attributes.items()},
        p_y=read_probabilities(p_y, "p_y", shape=(None,)) if is_score else np.empty(0),
        sample_weight=None if sample_weight is None else read_weights(sample_weight, len(values)),
        strata=read_strata(strata, inside, len(values)),
    ).crossing(() if criterion is None else resolve(criterion).intersections)
    if points:
        warn_of_decisions(rows.p_y)
    summary = summarize_rows(
        _with_group_probabilities(rows, p_group, points[0][1] if points else None),
        rules,
        criterion=None if criterion is None else resolve(criterion),
        decided=decided,
        tolerance=tolerance,
        confidence=confidence,
        held_out=held_out,
        title=title,
        provenance=provenance,
        random_state=random_state,
    )
    return summary if alternatives is None else with_alternatives(summary, alternatives)


def summarize_rows(
    rows: Rows,
    rules: Frontier | Rule | Mixture | None,
    *,
    criterion: Criterion | None = None,
    decided: NDArray[np.bool_] | None = None,
    tolerance: float = 0.05,
    confidence: float = 0.95,
    held_out: bool = False,
    title: str = "Fairness report",
    provenance: Mapping[str, Any] | None = None,
    random_state: int = 0,
) -> dict[str, Any]:
    """Do the same as :func:`summarize` for rows as read; without rules, the report is about ``decided``."""
    points = _points(rules)
    if points and criterion is None:
        criterion = points[0][1].criterion
    rows = _with_strata(rows, points[0][1] if points else None)
    rows = rows if criterion is None else rows.for_criterion(criterion, judging=True)
    judge = functools.partial(audit_rows, rows, criterion=criterion, confidence=confidence, random_state=random_state)
    pairs = crossings(rows)
    if points:
        first = points[0][1]
        _check_groups(first, rows.attributes)
        before = scores.margin(rows.p_y, first.costs) > 0.0
        chosen = max((i for i, (t, _) in enumerate(points) if t <= tolerance + 1e-12), default=0)
        base = judge(before, tolerance=points[chosen][0])
        steps = []
        for at, rule in points:
            after = _positive(rule, rows)
            crossed = crossed_groups(rows, after, pairs, confidence)
            steps.append({**_step(rows, rule, at, judge(after, tolerance=at), before, after), "crossed": crossed})
        alone = _state(base)
        for step in steps:
            step["harm"] = harm_text(alone, step, confidence) if held_out else None
        single = [rule for _, rule in points if isinstance(rule, Rule)]
        picture = _picture(rows, single, chosen, random_state) if single else None
    else:
        assert decided is not None
        before = decided
        base = judge(decided, tolerance=tolerance)
        chosen, steps, picture = None, [], None
    return {
        "schema": SCHEMA,
        "title": title,
        "held_out": held_out,
        "confidence": confidence,
        "tolerance": tolerance,
        "rows": base.rows,
        "weighted": base.weighted,
        "labels": None if rows.positive is None else dict(zip(_LABELS, map(str, rows.classes), strict=True)),
        "criteria": list(dict.fromkeys(verdict.criterion for verdict in base.verdicts)),
        "attributes": [attribute.name for attribute in base.attributes],
        "base": {**_state(base), "crossed": crossed_groups(rows, before, pairs, confidence)},
        "steps": steps,
        "chosen": chosen,
        "unreachable": list(rules.unreachable) if isinstance(rules, Frontier) else [],
        "bias": picture,
        "calibration": calibration(rows, confidence),
        "counts": [_count(attribute.name, *each) for attribute in base.attributes for each in _texts(attribute)],
        "unknown_rows": {attribute.name: attribute.unknown_rows for attribute in base.attributes},
        "provenance": {**(provenance or {}), "versions": versions("numpy", "scipy")},
    }


def _with_strata(rows: Rows, rule: Rule | Mixture | None) -> Rows:
    """Return rows with the strata of a rule; raise for a new stratum, unless the rule allows it."""
    if rule is None:
        return rows
    strata = strata_as_learnt(_first(rule), rows.strata)
    for key in [name for name in rule.groups if isinstance(name, Stratified)]:
        places_of_new_rows(key, rule.groups[key], rule.groups[key.attribute], strata)
        if not key.crossed:
            compared = tuple(pair for pair in rule.groups[key] if isinstance(pair, tuple) and not is_other(pair[0]))
            rows = dataclasses.replace(rows, groups={**rows.groups, key: compared})
    return rows


def _first(rule: Rule | Mixture) -> Rule:
    return rule.rules[0] if isinstance(rule, Mixture) else rule


def _columns(rule: Rule | Mixture, rows: Rows) -> dict[AttributeKey, FloatArray] | None:
    """Return the probabilities that a rule decides by."""
    if not all(name in rows.p_group for name in rule.attributes):
        return rows.p_group or None
    return columns_within(_first(rule), rows.p_group, rows.strata) or None


def _with_group_probabilities(rows: Rows, p_group: GroupProbabilities | None, rule: Rule | Mixture | None) -> Rows:
    """Return rows with p(A | x) or p(Y, A | x) of the attributes that have them, in the order of a rule's groups."""
    if p_group is None:
        return rows
    known = {name: attribute.groups for name, attribute in rows.attributes.items()}
    if rule is not None:
        known |= rule.groups
    alone = rule.attributes[:1] if rule is not None and rule.attributes else list(rows.attributes)[:1]
    given = p_group if isinstance(p_group, Mapping) else dict.fromkeys(alone, p_group)
    found = scores.by_attribute(given, known, "p_group")
    groups = {name: known[name] for name in found if name in known}
    columns = scores.read_group_probabilities(found, groups, len(rows), known=known) if groups else {}
    like = {name: a for name, a in rows.attributes.items() if a.groups == groups.get(name)}
    warn_of_reversed_groups({name: columns[name] for name in like}, like, rows.weights)
    return dataclasses.replace(rows, p_group=columns, groups={**rows.groups, **groups})


def _picture(rows: Rows, rules: Sequence[Rule], chosen: int, random_state: int) -> dict[str, Any] | None:
    bias_scores = rules[0].bias_scores(rows.p_y, _columns(rules[0], rows))
    first = rows.attributes[rules[0].attributes[0]] if rules[0].attributes else None
    codes = first.codes if first else np.zeros(len(rows), dtype=np.intp)
    names = group_texts(first.groups) if first else ["everyone"]
    return picture_bias(bias_scores, codes, names, rules, chosen, random_state, rows.sample_weight)


def _points(rules: Frontier | Rule | Mixture | None) -> list[tuple[float, Rule | Mixture]]:
    if rules is None:
        return []
    if isinstance(rules, Rule | Mixture):
        return [(0.0 if rules.tolerance is None else rules.tolerance, rules)]
    if not isinstance(rules, Frontier):
        raise InputError(f"rules must be a Rule, a Mixture, a Frontier or None; got {shown(rules)}.")
    if not len(rules):
        raise InputError(
            "This frontier has no rule: no requested tolerance can be met. Compute one with larger tolerances."
        )
    return [(point.tolerance, point.rule) for point in rules]


def _check_groups(rule: Rule | Mixture, attributes: Mapping[AttributeKey, Attribute]) -> None:
    """Raise if the rows have other attributes or groups than the rule."""
    for name in rule.attributes:
        if name not in attributes:
            raise InputError(
                f"The rule is about the attribute {name!r}, but sensitive_features has {list(attributes)!r}: pass each"
                f" row's group by that name, as {{{name!r}: ...}}."
            )
        stray = [group for group in attributes[name].groups if group not in rule.groups[name]]
        if stray:
            raise InputError(
                f"sensitive feature {name!r} has the group {stray[0]!r}, which the rule does not have: its groups are"
                f" {list(rule.groups[name])!r}."
            )


def _step(
    rows: Rows,
    rule: Rule | Mixture,
    tolerance: float,
    found: Audit,
    before: NDArray[np.bool_],
    positive: NDArray[np.bool_],
) -> dict[str, Any]:
    flipped = positive != before
    shown = display_names(rows.attributes)
    flips = [
        {
            "attribute": shown[name],
            "group": text,
            "rows": int((attribute.codes == code).sum()),
            "to_positive": int((flipped & positive & (attribute.codes == code)).sum()),
            "to_negative": int((flipped & ~positive & (attribute.codes == code)).sum()),
        }
        for name, attribute in rows.attributes.items()
        if not isinstance(name, Stratified)
        for code, text in enumerate(group_texts(attribute.groups))
    ]
    solution = rule.solution
    learned = None
    if solution is not None:
        bound = solution.upper_bound if np.isfinite(solution.upper_bound) else None
        learned = {
            "objective": in_words(str(rule.learned_from.get("objective", ACCURACY))),
            "utility": solution.utility,
            "upper_bound": bound,
            "status": solution.status,
        }
    return {
        **_state(found),
        "step_tolerance": float(tolerance),
        "learned": learned,
        "terms": _terms(rule),
        "mixture": _mixture(rule, rows) if isinstance(rule, Mixture) else None,
        "determinism": rule.learned_from.get("determinism"),
        "flips": flips,
        "flipped": int(flipped.sum()),
        "thin": _thin(rule),
        "receipts": _receipts(rows, rule, flipped, positive) if isinstance(rule, Rule) else [],
    }


def _positive(rule: Rule | Mixture, rows: Rows) -> NDArray[np.bool_]:
    """Return a mask of the positive decisions; the draws of a mixture depend on the scores."""
    if isinstance(rule, Mixture):
        given = rows.p_y, _columns(rule, rows)
        return rule.lots(*given) < rule.expected_decision(*given)
    return rule.decision_function(rows.p_y, _columns(rule, rows)) > 0.0


def _terms(rule: Rule | Mixture) -> list[dict[str, Any]]:
    if isinstance(rule, Rule):
        return [{"name": term.name, "z": term.z} for term in rule.terms]
    return [
        {"name": f"rule {k} of {len(rule.rules)}: {term.name}", "z": term.z}
        for k, each in enumerate(rule.rules, start=1)
        for term in each.terms
    ]


def _mixture(mixture: Mixture, rows: Rows) -> dict[str, Any]:
    expected = mixture.expected_decision(rows.p_y, _columns(mixture, rows))
    by_lot = int(((expected > 0.0) & (expected < 1.0)).sum())
    strata = [
        {"stratum": text, "weights": list(mixture.for_stratum(stratum).weights)}
        for text, stratum in zip(group_texts(compared_strata(mixture)), compared_strata(mixture), strict=True)
    ]
    return {"rules": [{"weight": weight} for weight in mixture.weights], "by_lot": by_lot, "strata": strata}


def _thin(rule: Rule | Mixture) -> str | None:
    """Return the rule's sentence on groups with too few rows for its tolerance."""
    cells = rule.learned_from.get("safety", {}).get("thin_cells", [])
    return thin_text([ThinCell(**cell) for cell in cells]) if cells else None


def harm_text(base: Mapping[str, Any], step: Mapping[str, Any], confidence: float) -> str | None:
    """Return a sentence on the gaps of the fair decisions that are larger than those of the model alone, or None."""
    worse = []
    for before, after in zip(base["verdicts"], step["verdicts"], strict=True):
        old, new = before["gap"], after["gap"]
        if old["value"] is not None and new["value"] is not None and new["value"] > old["value"]:
            what = after["criterion"].replace("_", " ") + (f" on {after['attribute']}" if after["attribute"] else "")
            worse.append(f"{what} from {_shown(old)} to {_shown(new)} points")
    if not worse:
        return None
    return (
        f"On these held-out rows the fair decisions widen a gap: {'; '.join(worse)} ({100 * confidence:g}% intervals)."
        " The model alone is fairer here: keep it, learn from more rows, or use another tolerance."
    )


def _shown(estimate: Mapping[str, float]) -> str:
    value, lower, upper = (100.0 * estimate[name] for name in ("value", "lower", "upper"))
    return f"{value:.1f} ({lower:.1f} to {upper:.1f})"


def _receipts(rows: Rows, rule: Rule, flipped: NDArray[np.bool_], positive: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Return receipts of flipped rows: for each group and direction, a typical row."""
    attribute = rows.attributes[rule.attributes[0]] if rule.attributes else next(iter(rows.attributes.values()))
    fair = rule.decision_function(rows.p_y, _columns(rule, rows))
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
    some = rows.take(np.array(chosen, dtype=np.intp))
    explained = rule.explain(some.p_y, _columns(rule, some))
    return [
        {
            "row": row,
            "group": names[attribute.codes[row]],
            "label": None if rows.positive is None else str(rows.classes[int(rows.positive[row])]),
            "probability": receipt.probability,
            "margin": receipt.margin,
            "terms": dict(receipt.terms),
            "fair_margin": receipt.fair_margin,
            "bias_scores": [score if np.isfinite(score) else None for score in receipt.bias_scores],
            "base_decision": str(receipt.base_decision),
            "decision": str(receipt.decision),
            "distance": receipt.distance,
            "words": list(receipt.words),
        }
        for row, receipt in zip(chosen, explained, strict=True)
    ]


def _state(found: Audit) -> dict[str, Any]:
    places = range(len(found.verdicts))
    worst = max(places, key=lambda i: _severity(found.verdicts[i]))
    return {
        "accuracy": _estimate(found.accuracy),
        "outcome": found.verdicts[worst].outcome,
        "worst": worst,
        "largest": max(places, key=lambda i: _size(found.verdicts[i])),
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
        "ratios": [{"attribute": a.name, "ratio": _estimate(a.selection_ratio)} for a in found.attributes],
    }


def _texts(attribute: AttributeAudit) -> Iterable[tuple[str, GroupAudit]]:
    return zip(group_texts(group.group for group in attribute.groups), attribute.groups, strict=True)


def _size(verdict: Verdict) -> float:
    return -1.0 if verdict.gap.value is None else verdict.gap.value


def _severity(verdict: Verdict) -> tuple[int, float, float]:
    """Return the sort key of verdicts: the outcome, then the excess over the tolerance relative to its uncertainty."""
    gap, distance = verdict.gap, _size(verdict) - verdict.tolerance
    doubt = _size(verdict) - gap.lower if distance > 0.0 else gap.upper - _size(verdict)
    evidence = distance / doubt if doubt > 0.0 else np.copysign(np.inf, distance)
    return _SEVERITY[verdict.outcome], float(evidence), _size(verdict)


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
        "strata": [
            {"stratum": text, "rows": each.rows, "gap": _estimate(each.gap), "outcome": each.outcome}
            for text, each in zip(group_texts(each.stratum for each in verdict.strata), verdict.strata, strict=True)
        ],
        "left_out": dict(verdict.left_out),
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
