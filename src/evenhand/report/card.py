"""A model card: a classifier's purpose, origin and behaviour, on one page of Markdown.

:func:`summarize_card` computes plain data; :func:`render_card` writes it and computes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from evenhand.arguments import check_text, shown
from evenhand.errors import InputError
from evenhand.estimator.classifier import FairClassifier
from evenhand.estimator.sample import strata_columns
from evenhand.inputs import GroupProbabilities, SensitiveFeatures
from evenhand.report.alternatives import alternatives_markdown
from evenhand.report.sentences import mixed_rules
from evenhand.report.summarize import summarize
from evenhand.rules.determinism import with_determinism
from evenhand.rules.events import display_names
from evenhand.rules.mixture import Mixture, check_any_rule
from evenhand.rules.rule import Rule
from evenhand.text import printable

SCHEMA = "evenhand-card/1"
UNSAID = (
    "*Not stated. Before use, write here who is affected by the decisions, who makes them, and what follows from them.*"
)
_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
_QUALITIES = ("auc", "brier", "calibration_error")


def model_card(
    fair: FairClassifier,
    X: Any = None,
    y: ArrayLike | None = None,
    sensitive_features: SensitiveFeatures | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    title: str = "Model card",
    purpose: str | None = None,
    data: str | None = None,
    caveats: Sequence[str] = (),
    provenance: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
) -> str:
    """Return the model card of a fitted classifier, as Markdown.

    Parameters
    ----------
    fair : FairClassifier
        A fitted classifier.
    X, y, sensitive_features : default=None
        Rows that were not used in the fit, to evaluate it on. Without them it is evaluated on the rows that its rule
        was learnt from, with out-of-fold probabilities, and the card says so.
    sample_weight : array of shape (n,), default=None
        The weights of those rows.
    title : str, default="Model card"
        The heading.
    purpose : str or None, default=None
        What it is for, and what it is not for. If it is None, the card says that it is not stated.
    data : str or None, default=None
        A description of the training data.
    caveats : sequence of str, default=()
        Further caveats, besides those that follow from the numbers.
    provenance : mapping, default=None
        Where it comes from, shown unchanged.
    confidence : float, default=0.95
        The level of the intervals.

    Returns
    -------
    str
        The same input gives the same text.

    Examples
    --------
    >>> import evenhand as eh
    >>> from evenhand.report import model_card
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = eh.datasets.make_zafar(1200, random_state=0)
    >>> fair = eh.FairClassifier(LogisticRegression(), tolerance=0.1, random_state=0)
    >>> text = model_card(fair.fit(data.X, data.y, sensitive_features=data.group), purpose="An example.")
    >>> text.splitlines()[0], "## Before and after" in text
    ('# Model card', True)
    """
    if not isinstance(fair, FairClassifier):
        raise InputError(f"fair must be a fitted FairClassifier; got {shown(fair)}.")
    check_is_fitted(fair, "rule_")
    _check_texts(purpose, data, caveats)
    positive = fair.rule_.classes[1]
    if X is None:
        held = fair.held_out_
        y, sensitive_features, sample_weight = held.y, held.sensitive_features, held.sample_weight
        p_y, p_group, strata = held.p_y, held.p_group, held.strata_values
    else:
        if y is None or sensitive_features is None:
            raise InputError("Evaluation rows need labels and groups: pass y and sensitive_features with X.")
        known = sensitive_features if fair.sensitive_at_predict else None
        strata = strata_columns(X, fair.rule_.strata)
        p_y, p_group = fair.probabilities(X, sensitive_features=known)
    rule = fair.rule_
    if isinstance(rule, Rule):
        rule = with_determinism(rule, fair.held_out_, fair._options)
    report = summarize(
        y,
        sensitive_features,
        p_y,
        p_group,
        rule,
        tolerance=fair.tolerance,
        confidence=confidence,
        pos_label=positive,
        held_out=X is not None,
        sample_weight=sample_weight,
        title=title,
        provenance=provenance,
        strata=strata if fair.rule_.strata else None,
    )
    summary = summarize_card(rule, report, purpose=purpose, data=data, caveats=caveats, fair=fair)
    return render_card(summary)


def rule_card(
    rule: Rule | Mixture,
    y: ArrayLike | None,
    sensitive_features: SensitiveFeatures | None,
    p_y: ArrayLike,
    p_group: GroupProbabilities | None = None,
    *,
    title: str = "Model card",
    purpose: str | None = None,
    data: str | None = None,
    caveats: Sequence[str] = (),
    **options: Any,
) -> str:
    """Return the card of a rule, evaluated on rows with their probabilities.

    The rows are given as to :func:`evenhand.report.summarize`, which also takes the further options; the others are
    those of :func:`model_card`.
    """
    check_any_rule(rule)
    _check_texts(purpose, data, caveats)
    options = {"pos_label": rule.classes[1], **options}
    options = {"tolerance": rule.tolerance or 0.0, **options}
    report = summarize(y, sensitive_features, p_y, p_group, rule, title=title, **options)
    return render_card(summarize_card(rule, report, purpose=purpose, data=data, caveats=caveats))


def _check_texts(purpose: Any, data: Any, caveats: Any) -> None:
    for name, text in (("purpose", purpose), ("data", data)):
        if text is not None:
            check_text(text, name)
    if not isinstance(caveats, list | tuple):
        raise InputError(f"caveats must be a list of texts; got {shown(caveats)}.")
    for caveat in caveats:
        check_text(caveat, "Each of caveats")


def summarize_card(
    rule: Rule | Mixture,
    report: Mapping[str, Any],
    *,
    purpose: str | None = None,
    data: str | None = None,
    caveats: Sequence[str] = (),
    fair: FairClassifier | None = None,
) -> dict[str, Any]:
    """Return the contents of a card, as plain data for JSON.

    Parameters
    ----------
    rule : Rule or Mixture
        The rule.
    report : dict
        A result of :func:`evenhand.report.summarize` with this one rule.
    purpose, data, caveats
        As in :func:`model_card`.
    fair : FairClassifier or None, default=None
        The classifier that contains the rule, if there is one.

    Returns
    -------
    dict
        With the keys ``schema``, ``title``, ``purpose``, ``data``, ``models`` (``estimates``, ``kind``),
        ``cross_fitting``, ``attribute_at_predict``, ``labels``, ``costs``, ``criteria``, ``tolerance``,
        ``learned`` (``rows``, ``objective``, ``utility``, ``upper_bound``, ``status``), ``promise`` (what
        confidence= certified, or None), ``mixture`` and ``determinism`` (of the report), ``terms``, ``counts``,
        ``rows``, ``held_out``, ``confidence``, ``before`` and ``after`` (states of the report), ``flips``, ``flipped``,
        ``quality`` and ``separations`` (of the models), ``caveats``, ``provenance``, ``alternatives`` (of the
        report, or None).
    """
    step = report["steps"][report["chosen"]]
    diagnostics = None if fair is None else fair.diagnostics_
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "title": report["title"],
        "purpose": purpose,
        "data": data,
        "models": [] if fair is None else _models(fair),
        "cross_fitting": None if fair is None else _cross_fitting(fair),
        "attribute_at_predict": None if fair is None else bool(fair.sensitive_at_predict),
        "labels": {"negative": str(rule.classes[0]), "positive": str(rule.classes[1])},
        "costs": {"false_positive": rule.costs[0], "false_negative": rule.costs[1]},
        "criteria": report["criteria"],
        "tolerance": rule.tolerance,
        "learned": None if step["learned"] is None else {**step["learned"], "rows": rule.learned_from.get("rows")},
        "promise": rule.learned_from.get("confidence"),
        "mixture": step["mixture"],
        "determinism": step["determinism"],
        "terms": step["terms"],
        "counts": report["counts"],
        "rows": report["rows"],
        "held_out": report["held_out"],
        "confidence": report["confidence"],
        "before": report["base"],
        "after": step,
        "flips": step["flips"],
        "flipped": step["flipped"],
        "quality": []
        if diagnostics is None
        else [
            {"model": c.model, "class": c.name, **{name: _finite(getattr(c, name)) for name in _QUALITIES}}
            for c in diagnostics.classes
        ],
        "separations": []
        if diagnostics is None
        else [{"what": str(s), "auc": _finite(s.auc), "weak": s.weak} for s in diagnostics.separations],
        "provenance": report["provenance"],
        "alternatives": report.get("alternatives"),
    }
    summary["caveats"] = [*caveats, *_caveats(summary, report)]
    return summary


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _models(fair: FairClassifier) -> list[dict[str, str]]:
    auxiliary = fair.auxiliary_ if isinstance(fair.auxiliary_, dict) else {}
    if fair.auxiliary_ is not None and not auxiliary:
        auxiliary = dict.fromkeys(fair.rule_.attributes[:1] or ("the groups",), fair.auxiliary_)
    found = [{"estimates": "p(Y|x)", "kind": _kind(fair.estimator_)}]
    joint = "Y, " if fair.rule_.needs_joint else ""
    shown = display_names(auxiliary)
    return found + [
        {"estimates": f"p({joint}{shown[name]}|x)", "kind": _kind(model)} for name, model in auxiliary.items()
    ]


def _kind(model: Any) -> str:
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline

    from evenhand.estimator.crossfit import FoldEnsemble, LabelMarginal

    if isinstance(model, FrozenEstimator):
        return f"{_kind(model.estimator)}, trained beforehand"
    if isinstance(model, FoldEnsemble):
        return f"the mean of {len(model.estimators)} {_kind(model.estimators[0])}"
    if isinstance(model, LabelMarginal):
        return f"the sum over the groups of {_kind(model.model)}"
    if isinstance(model, Pipeline):
        return ", then ".join(type(step).__name__ for _, step in model.steps)
    return type(model).__name__


def _cross_fitting(fair: FairClassifier) -> str:
    corrected = (
        " Their probabilities were recalibrated with the outputs of all models together." if fair.recalibrate else ""
    )
    if fair.cv is None:
        return f"The models were trained beforehand, on other rows.{corrected}"
    if isinstance(fair.cv, float):
        share = f"{100 * fair.cv:g}%"
        return f"{share} of the rows were held out for the rule; the models are trained on the rest.{corrected}"
    folds = f" in {fair.cv} folds" if isinstance(fair.cv, int) else ""
    learnt = "the rule was learnt from the probabilities of models that were not trained on the row."
    return f"Cross-fitted{folds}: {learnt}{corrected}"


def _caveats(summary: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    """Return the caveats that follow from the numbers."""
    found = []
    if not summary["held_out"]:
        found.append(
            "The figures are for the rows that the rule was learnt from. On new rows the gap is usually a little"
            " larger: evaluate it on rows that were not used."
        )
    if summary["mixture"] is not None:
        found.append(
            "It is randomized: two people who are alike may get different decisions, and the criterion holds on average"
            " over the random draws. In the figures, the draws depend on the scores."
        )
    if summary["promise"] is None:
        found.append("The criterion is met on a sample, which is no guarantee for the population: see the intervals.")
    if summary["attribute_at_predict"] is not True:
        found.append(
            "Decisions rest on an inferred attribute: people are judged by what is typical for people like them."
            " If the groups are hard to infer, equal rates cost more accuracy."
        )
    for separation in summary["separations"]:
        if separation["weak"]:
            found.append(
                f"The models hardly separate {separation['what']} (AUC {separation['auc']:.3f}; 0.5 is a guess):"
                " the gap on new rows may exceed the tolerance."
            )
    step = report["steps"][report["chosen"]]
    found += [text for text in (step["harm"], step["thin"]) if text]
    few = [f"{count['attribute']}={count['group']}" for count in report["counts"] if count["few"]]
    if few:
        found.append(f"Some groups have few rows, and their rates are uncertain: {', '.join(few)}.")
    unsettled = [v for v in step["verdicts"] if v["outcome"] != "pass"]
    if unsettled:
        names = dict.fromkeys(f"{v['criterion']}: {v['outcome']}" for v in unsettled)
        found.append(f"Not every verdict on these rows is a pass ({'; '.join(names)}).")
    found.append("The probabilities must stay calibrated: if the data drifts, audit again and learn a new rule.")
    found.append("A closed gap does not show that the labels were fair.")
    return found


def render_card(summary: Mapping[str, Any]) -> str:
    """Return a summary of :func:`summarize_card` as Markdown. Text from data is escaped."""
    sections = [
        f"# {_text(summary['title'])}",
        f"## What it is for\n\n{UNSAID if summary['purpose'] is None else _text(summary['purpose'])}",
        f"## How it decides\n\n{_how(summary)}",
        f"## Data\n\n{_data(summary)}",
        f"## Criterion\n\n{_criterion(summary)}",
        f"## Before and after\n\n{_before_and_after(summary)}",
        f"## Whose decisions change\n\n{_flips(summary)}",
        alternatives_markdown(summary["alternatives"], _text) if summary["alternatives"] else "",
        f"## The models\n\n{_quality(summary)}" if summary["quality"] else "",
        "## Caveats\n\n" + "\n".join(f"- {_text(caveat)}" for caveat in summary["caveats"]),
        f"## How it was made\n\n{_provenance(summary)}",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _how(summary: Mapping[str, Any]) -> str:
    labels = summary["labels"]
    margin = "the model's own margin minus z times the contrast of each term"
    lines = [
        f"It decides between {_code(labels['negative'])} and {_code(labels['positive'])}, the positive label.",
        f"The decision is positive iff the fair margin is above 0: {margin}."
        if summary["mixture"] is None
        else f"It is randomized between {mixed_rules(summary['mixture'])}; a rule decides positively iff its"
        f" fair margin is above 0: {margin}. The decision is positive iff the row's lot is below the sum of the weights"
        f" of the rules that decide so. Of the rows below, {summary['mixture']['by_lot']:,} of {summary['rows']:,}"
        " depend on their lot.",
    ]
    if summary["attribute_at_predict"] is not None:
        needs = (
            "needs the sensitive attribute of" if summary["attribute_at_predict"] else "needs no sensitive attribute of"
        )
        lines.append(f"It {needs} the people it decides about.")
    costs = summary["costs"]
    if costs["false_positive"] != costs["false_negative"]:
        lines.append(
            f"A false positive costs {costs['false_positive']:g}, a false negative {costs['false_negative']:g}."
        )
    rows = [[_code(term["name"]), f"{term['z']:.6g}"] for term in summary["terms"]]
    if summary["mixture"] is not None:
        weights = [f"{each['weight']:.6g}" for each in summary["mixture"]["rules"]]
        lines.append(f"The weights are {', '.join(weights)}.")
        for each in summary["mixture"]["strata"]:
            own = ", ".join(f"{weight:.6g}" for weight in each["weights"])
            lines.append(f"In {_code(each['stratum'])} they add up to {own}.")
    models = [[_code(model["estimates"]), _text(model["kind"])] for model in summary["models"]]
    parts = [" ".join(lines), _table(["term", "z"], rows) if rows else "The rule has no term: it is the model alone."]
    return "\n\n".join([*parts, _table(["what is estimated", "by"], models)] if models else parts)


def _data(summary: Mapping[str, Any]) -> str:
    parts = [_text(summary["data"])] if summary["data"] is not None else []
    learned = summary["learned"]
    if learned is not None and learned["rows"] is not None:
        parts.append(f"The rule was learnt from {learned['rows']:,} rows.")
    if summary["cross_fitting"] is not None:
        parts.append(summary["cross_fitting"])
    kind = "held-out rows" if summary["held_out"] else "the rows it was learnt from"
    parts.append(f"The figures below are for {summary['rows']:,} rows: {kind}.")
    heads = ["attribute", "group", "rows", "positive", "negative"]
    rows = [
        [_text(c["attribute"]), _text(c["group"]), *(_count(c[name]) for name in ("rows", "positives", "negatives"))]
        for c in summary["counts"]
    ]
    return " ".join(parts) + "\n\n" + _table(heads, rows)


def _criterion(summary: Mapping[str, Any]) -> str:
    names = ", ".join(_code(name) for name in summary["criteria"])
    tolerance = "" if summary["tolerance"] is None else f", to within {summary['tolerance']:g}"
    inside = dict.fromkeys(_text(v["attribute"]) for v in summary["after"]["verdicts"] if v.get("strata"))
    parts = [f"{names}{tolerance}.", *(f"Groups are compared inside each stratum: {name}." for name in inside)]
    learned = summary["learned"]
    if learned is not None:
        bound = (
            "" if learned["upper_bound"] is None else f"; no rule in this family exceeds {learned['upper_bound']:.4f}"
        )
        parts.append(
            f"On the rows it was learnt from, the rule's {_text(learned['objective'])} is"
            f" {learned['utility']:.4f}{bound}"
            f" (search: {_text(learned['status'])})."
        )
    drawn = summary["determinism"]
    if drawn is not None:
        parts.append(
            f"The best randomized mixture of such rules has {drawn['mixture_utility']:.4f} on these rows:"
            f" a deterministic rule costs {100.0 * drawn['cost']:.2f} points."
        )
    promise = summary["promise"]
    if promise is not None:
        parts.append(
            f"With confidence {promise['confidence']:g} {_promised(promise)} in the population. This was certified"
            f" on {promise['certifying_rows']:,} rows that no model and no search had used."
        )
    return " ".join(parts)


def _promised(promise: Mapping[str, Any]) -> str:
    """Return what a confidence promises: every constraint, or a ceiling that was stated for a rule."""
    ceiling = promise.get("certified_ceiling")
    return "every constraint holds" if ceiling is None else f"no group's rate is above {ceiling:.4f}"


def _before_and_after(summary: Mapping[str, Any]) -> str:
    before, after = summary["before"], summary["after"]
    rows = [["accuracy", _estimate(before["accuracy"]), _estimate(after["accuracy"]), ""]]
    for old, new in zip(before["verdicts"], after["verdicts"], strict=True):
        name = f"{_code(new['criterion'])} gap, {_text(new['attribute'] or 'everyone')}"
        verdict = f"{new['outcome']} (at most {new['tolerance']:g})"
        rows.append([name, _estimate(old["gap"]), _estimate(new["gap"]), verdict])
        for first, second in zip(old.get("strata", ()), new.get("strata", ()), strict=True):
            inside = f"{name}: {_text(second['stratum'])}, {second['rows']:,} rows"
            rows.append([inside, _estimate(first["gap"]), _estimate(second["gap"]), second["outcome"]])
    for old, new in zip(before["ratios"], after["ratios"], strict=True):
        rows.append(
            [f"four-fifths ratio, {_text(new['attribute'])}", _estimate(old["ratio"]), _estimate(new["ratio"]), ""]
        )
    for old, new in zip(before["groups"], after["groups"], strict=True):
        for rate in _RATES:
            name = f"{rate.replace('_', ' ')}, {_text(new['attribute'])}={_text(new['group'])}"
            rows.append([name, _estimate(old[rate]), _estimate(new[rate]), ""])
    where = "Held-out rows" if summary["held_out"] else "The rows it was learnt from"
    heading = f"{where}, with {100 * summary['confidence']:g}% intervals."
    return heading + "\n\n" + _table(["", "the model alone", "fair", "verdict"], rows)


def _flips(summary: Mapping[str, Any]) -> str:
    rows = [
        [
            _text(f["attribute"]),
            _text(f["group"]),
            *(_count(f[name]) for name in ("rows", "to_positive", "to_negative")),
        ]
        for f in summary["flips"]
    ]
    heads = ["attribute", "group", "rows", "to the positive label", "to the negative label"]
    return f"{summary['flipped']:,} of {summary['rows']:,} rows.\n\n" + _table(heads, rows)


def _quality(summary: Mapping[str, Any]) -> str:
    rows = [
        [_code(q["model"]), _text(q["class"]), *("" if q[name] is None else f"{q[name]:.3f}" for name in _QUALITIES)]
        for q in summary["quality"]
    ]
    return "On rows that they were not trained on.\n\n" + _table(
        ["model", "class", "AUC", "Brier", "calibration error"], rows
    )


def _provenance(summary: Mapping[str, Any]) -> str:
    lines = []
    for key, value in summary["provenance"].items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else value
        lines.append(f"- {_text(key)}: {_verbatim(shown) if key == 'command' else _text(shown)}")
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _estimate(estimate: Mapping[str, float | None] | None) -> str:
    if estimate is None or estimate["value"] is None:
        return "no rows"
    return f"{estimate['value']:.3f} ({estimate['lower']:.3f} to {estimate['upper']:.3f})"


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _text(value: Any) -> str:
    """Return text on one line, without active Markdown or HTML."""
    plain = printable(" ".join(str(value).split()))
    escaped = re.sub(r"([\\`*_\[\]|~#])", r"\\\1", plain)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _verbatim(value: Any) -> str:
    """Return text as code, unchanged, between enough backticks that none inside ends it."""
    plain = printable(" ".join(str(value).split()))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"


def _code(value: Any) -> str:
    """Return text as code; characters that would end it, or a table's cell, are replaced."""
    plain = printable(" ".join(str(value).split())).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`"
