"""Renders a summary as one HTML file: formats numbers and chooses words, but computes nothing.

Everything that depends on the tolerance is written for every step: texts and bar positions go into a small JSON table
that the page's script copies from; charts and receipts of all steps are in the page and shown one at a time. Without
JavaScript the page is complete and shows the chosen step.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from evenhand.arguments import check_path, shown
from evenhand.errors import InputError, MissingExtraError
from evenhand.files import local_path, write_text
from evenhand.report import charts, figure_data, sentences
from evenhand.report.numbers import count, interval, number, percent, points, ratio, tolerance_text, words
from evenhand.report.summarize import SCHEMA

KEYS = frozenset(
    {
        "schema",
        "title",
        "rows",
        "weighted",
        "held_out",
        "confidence",
        "tolerance",
        "labels",
        "criteria",
        "attributes",
        "base",
        "steps",
        "chosen",
        "unreachable",
        "bias",
        "calibration",
        "counts",
        "unknown_rows",
        "provenance",
    }
)
RATES = {
    "selection_rate": ("Selection rate", "how often a decision is positive"),
    "true_positive_rate": ("True positive rate", "how often, among rows whose label is positive"),
    "false_positive_rate": ("False positive rate", "how often, among rows whose label is negative"),
    "accuracy": ("Accuracy", "how often the decision equals the label"),
}
CROSSED_RATES = {name: RATES[name][0].lower() for name in list(RATES)[:3]}
GLOSSARY = {
    "positive label, positive decision": "The outcome that a decision is about, such as being hired. A decision is"
    " positive if it gives that outcome; a label is positive if it really occurred.",
    "group": "People who share a value of a sensitive attribute, such as sex.",
    "selection rate": "How often a decision is positive.",
    "true positive rate": "How often a decision is positive among people whose label is positive.",
    "false positive rate": "How often a decision is positive among people whose label is negative.",
    "accuracy": "How often a decision equals the label.",
    "gap": "How far rates are from meeting a criterion: for most criteria the largest difference between two"
    " groups. Five points are five people in a hundred.",
    "tolerance": "The largest gap that is allowed.",
    "interval": "The range in which the true figure probably lies, given how many people were counted.",
    "verdict": "Pass: the whole interval of the gap is within the tolerance. Fail: all of it is beyond. Insufficient"
    " evidence: the tolerance is inside the interval, and more rows are needed.",
    "four-fifths ratio": "The lowest selection rate over the highest. Below 0.80 it is often read as a sign of adverse"
    " impact.",
    "fair rule": "It changes some decisions of the model so that the groups' rates come closer, at the least cost in"
    " accuracy.",
    "bias score": "How strongly a decision depends on the likely group, relative to how certain the model is.",
    "held-out rows": "Rows that were used neither to train the models nor to learn the rule.",
    "calibration": "Whether, among people to whom a model gives 30%, about 30% have the outcome.",
}
# Control characters, marks that change the writing direction, and halves of surrogate pairs.
_UNWANTED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def render_html(summary: Mapping[str, Any]) -> str:
    """Return a summary as one self-contained HTML page.

    Parameters
    ----------
    summary : dict
        A result of :func:`evenhand.report.summarize`, or its JSON read back.

    Returns
    -------
    str
        The page. It loads nothing from outside, and the same summary gives the same text.
    """
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("The report", "jinja2", "report") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("evenhand.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "points": points,
        "count": count,
        "number": number,
        "interval": interval,
        "ratio": ratio,
    }
    environment.globals |= {
        "rates": RATES,
        "crossed_rates": CROSSED_RATES,
        "meanings": sentences.MEANINGS,
        "glossary": GLOSSARY,
        "short_term": charts.short_term,
        "words": words,
        "largest_gap": largest_gap,
    }
    if not isinstance(summary, Mapping) or not summary.keys() >= KEYS or str(summary["schema"]) != SCHEMA:
        raise InputError(f"summary must be a result of evenhand.report.summarize; got {shown(summary)}.")
    clean = without_control_characters(summary)
    scales = _scales(clean)
    steps = [_changing(clean, step, scales) for step in clean["steps"]]
    still = _changing(clean, None, scales) if not steps else steps[clean["chosen"]]
    bias = charts.bias_chart(clean)
    page = environment.get_template("report.html.jinja").render(
        s=clean,
        now=still,
        before=_places(clean["base"], scales, "before"),
        scales=scales,
        css=Markup(_part("report.css")),
        script=Markup(_part("report.js")),
        steps_json=Markup(_safe_json(steps)) if steps else None,
        frontier=_marked(charts.frontier_charts(clean), Markup) if len(steps) > 1 else [],
        short=list(sentences.in_short(clean, clean["steps"][clean["chosen"]] if steps else None)),
        asked=sentences.asked(clean, clean["tolerance"]),
        data=_addresses(clean),
        bias=None if bias is None else {**bias, "svgs": [Markup(svg) for svg in bias["svgs"]]},
        calibration=_marked(charts.calibration_charts(clean), Markup),
    )
    return str(page)


def _addresses(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of each figure, as addresses of CSV files."""
    found: dict[str, Any] = {"rates": figure_data.rates(summary, RATES), "trade_off": figure_data.trade_off(summary)}
    if summary["bias"] is not None:
        found["bias"] = figure_data.bias(summary["bias"], [step["step_tolerance"] for step in summary["steps"]])
    return found


def write_report(summary: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a summary as an HTML file, completely or not at all, and return its path."""
    check_path(path)
    target = local_path(path, write=True)
    write_text(target, render_html(summary))
    return target


def _part(name: str) -> str:
    return (resources.files("evenhand.report") / "templates" / name).read_text(encoding="utf-8")


def _safe_json(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _marked(found: list[dict[str, str]], mark: Any) -> list[dict[str, Any]]:
    return [{**chart, "svg": mark(chart["svg"])} for chart in found]


def without_control_characters(value: Any) -> Any:
    """Return plain data whose texts have no characters with a special effect in a page."""
    if isinstance(value, str):
        return _UNWANTED.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        named = {str(key) if isinstance(key, tuple) else key: item for key, item in value.items()}
        return {without_control_characters(key): without_control_characters(item) for key, item in named.items()}
    return [without_control_characters(item) for item in value] if isinstance(value, list | tuple) else value


def _scales(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return, for each rate, the upper limit of its bars."""
    scales = {}
    for rate in RATES:
        states = [summary["base"], *summary["steps"]]
        tops = [group[rate]["upper"] for state in states for group in state["groups"] if group[rate] is not None]
        top = max((top for top in tops if top is not None), default=1.0)
        scales[rate] = next((end for end in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8) if top <= end), 1.0)
    return scales


def _changing(
    summary: Mapping[str, Any], step: Mapping[str, Any] | None, scales: Mapping[str, float]
) -> dict[str, Any]:
    """Return the texts and bar positions of a step by slot, and the outcome."""
    state = summary["base"] if step is None else step
    texts = {
        "outcome": _OUTCOMES[state["outcome"]],
        "sentence": sentences.headline(summary, step),
        **{f"short-{place}": text for place, text in enumerate(sentences.in_short(summary, step).values())},
        **_verdict_texts(state),
    }
    if step is not None:
        texts |= _step_texts(summary, step)
    for index, group in enumerate(state["groups"]):
        for rate in RATES:
            if group[rate] is not None:
                texts[f"{rate}-{index}"] = percent(group[rate]["value"])
                texts[f"{rate}-{index}-interval"] = interval(group[rate])
    for index, group in enumerate(state["crossed"]):
        for rate in CROSSED_RATES:
            if group[rate] is not None:
                texts[f"crossed-{rate}-{index}"] = percent(group[rate]["value"])
                texts[f"crossed-{rate}-{index}-interval"] = interval(group[rate])
    return {"text": texts, "place": _places(state, scales, "after"), "outcome": state["outcome"].split()[0]}


_OUTCOMES = {"pass": "Pass", "fail": "Fail", "insufficient evidence": "Insufficient evidence"}


def _places(state: Mapping[str, Any], scales: Mapping[str, float], when: str) -> dict[str, list[float]]:
    places = {}
    for index, group in enumerate(state["groups"]):
        for rate, end in scales.items():
            estimate = group[rate]
            if estimate is not None and estimate["value"] is not None:
                ends = (estimate[name] for name in ("lower", "value", "upper"))
                places[f"{when}-{rate}-{index}"] = [round(100 * bound / end, 2) for bound in ends]
    return places


def _verdict_texts(state: Mapping[str, Any]) -> dict[str, str]:
    texts = {}
    for index, verdict in enumerate(state["verdicts"]):
        texts[f"verdict-{index}-gap"] = points(verdict["gap"]["value"])
        texts[f"verdict-{index}-interval"] = interval(verdict["gap"])
        texts[f"verdict-{index}-tolerance"] = tolerance_text(verdict["tolerance"])
        texts[f"verdict-{index}-outcome"] = _OUTCOMES[verdict["outcome"]]
        texts[f"verdict-{index}-shortage"] = sentences.shortage(verdict["shortage"])
        for place, stratum in enumerate(verdict.get("strata", ())):
            texts[f"verdict-{index}-stratum-{place}-gap"] = points(stratum["gap"]["value"])
            texts[f"verdict-{index}-stratum-{place}-interval"] = interval(stratum["gap"])
            texts[f"verdict-{index}-stratum-{place}-outcome"] = _OUTCOMES[stratum["outcome"]]
    return texts


def largest_gap(state: Mapping[str, Any]) -> Mapping[str, float | None]:
    """Return the largest gap of a state's verdicts."""
    found: Mapping[str, float | None] = state["verdicts"][state["largest"]]["gap"]
    return found


def _step_texts(summary: Mapping[str, Any], step: Mapping[str, Any]) -> dict[str, str]:
    gap = largest_gap(step)
    texts = {
        "tolerance": tolerance_text(step["step_tolerance"]),
        "accuracy": percent(step["accuracy"]["value"]),
        "accuracy-interval": interval(step["accuracy"]),
        "price": sentences.price(summary["base"], step),
        "gap": points(gap["value"]),
        "gap-interval": interval(gap),
        "flipped": f"{step['flipped']:,}",
        "flipped-share": percent(step["flipped"] / summary["rows"]),
        "proof": " ".join([sentences.proof(step["learned"]), *sentences.lots(summary, step)]).strip(),
        "warning": " ".join(text for text in (step["harm"], step["thin"]) if text),
    }
    for index, entry in enumerate(step["ratios"]):
        texts[f"ratio-{index}"] = ratio(entry["ratio"])
    for index, term in enumerate(step["terms"]):
        texts[f"z-{index}"] = number(term["z"])
    for index, flips in enumerate(step["flips"]):
        texts[f"flips-{index}-up"] = f"{flips['to_positive']:,}"
        texts[f"flips-{index}-down"] = f"{flips['to_negative']:,}"
        texts[f"flips-{index}-share"] = sentences.share_changed(flips)
    return texts
