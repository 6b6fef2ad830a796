"""From a summary to one HTML file: this module writes numbers as text and chooses words; it computes nothing.

What depends on the tolerance is written out for every step: texts and bar positions go into a small JSON
table that the page's script copies from, charts and receipts of all steps are in the page and shown one at a
time. With JavaScript off the page is that of the chosen step, complete.
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
from evenhand.report import charts
from evenhand.report.summarize import SCHEMA
from evenhand.rules.objective import ACCURACY

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
MEANINGS = {
    "demographic_parity": "positive decisions are equally frequent in every group",
    "equal_opportunity": "among rows with a positive label, positive decisions are equally frequent in every group",
    "predictive_equality": "among rows with a negative label, positive decisions are equally frequent in every group",
    "equalized_odds": "positive decisions are equally frequent in every group, both among rows with a"
    " positive label and among rows with a negative one",
    "predictive_parity": "among rows with a positive decision, positive labels are equally frequent in every group",
    "accuracy_parity": "decisions are right equally often in every group",
}
# Control characters, marks that turn the direction of what follows, and halves of surrogate pairs.
_UNWANTED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def render_html(summary: Mapping[str, Any]) -> str:
    """Return a summary as one self-contained HTML page.

    Parameters
    ----------
    summary : dict
        What :func:`evenhand.report.summarize` returned, or its JSON read back.

    Returns
    -------
    str
        The page. It loads nothing, and the same summary gives the same text.
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
    }
    environment.globals |= {
        "rates": RATES,
        "meanings": MEANINGS,
        "short_term": charts.short_term,
        "words": words,
    }
    if not isinstance(summary, Mapping) or not summary.keys() >= KEYS or str(summary["schema"]) != SCHEMA:
        raise InputError(f"summary must be what evenhand.report.summarize returned; got {shown(summary)}.")
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
        bias=None if bias is None else {**bias, "svgs": [Markup(svg) for svg in bias["svgs"]]},
        calibration=_marked(charts.calibration_charts(clean), Markup),
    )
    return str(page)


def write_report(summary: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a summary as an HTML file, whole or not at all, and return its path."""
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
    """Return plain data whose texts have no character that a page would obey instead of showing it."""
    if isinstance(value, str):
        return _UNWANTED.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {without_control_characters(key): without_control_characters(item) for key, item in value.items()}
    return [without_control_characters(item) for item in value] if isinstance(value, list | tuple) else value


def percent(value: float | None) -> str:
    """Return a share as text: ``84.3%``."""
    return "no rows" if value is None else f"{100 * value:.1f}%"


def points(value: float | None, digits: int = 1) -> str:
    """Return a difference of shares in percentage points: ``3.2``."""
    return "unknown" if value is None else f"{100 * value:.{digits}f}"


def tolerance_text(value: float) -> str:
    """Return a tolerance in percentage points with three digits: ``5``, ``0.25``."""
    return f"{100 * value:.3g}"


def count(value: int | None) -> str:
    """Return a whole number with separators."""
    return "" if value is None else f"{value:,}"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with a sign."""
    return "infinite" if value is None else f"{value:+.{digits}f}".replace("-", "−")


def interval(estimate: Mapping[str, float | None] | None, unit: str = "percent") -> str:
    """Return an interval as text: ``82.9 to 84.4``."""
    if estimate is None or estimate["lower"] is None or estimate["upper"] is None:
        return ""
    return f"{100 * estimate['lower']:.1f} to {100 * estimate['upper']:.1f}"


def words(name: str) -> str:
    """Return a criterion's name in words."""
    return name.replace("_", " ")


def _scales(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return, for each rate, the share at which its strips end."""
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
    """Return what a step puts on the page: texts by slot, bar positions by slot, and the outcome."""
    state = summary["base"] if step is None else step
    texts = {
        "outcome": _OUTCOMES[state["outcome"]],
        "sentence": _sentence(summary, step),
        **_verdict_texts(state),
    }
    if step is not None:
        texts |= _step_texts(summary, step)
    for index, group in enumerate(state["groups"]):
        for rate in RATES:
            if group[rate] is not None:
                texts[f"{rate}-{index}"] = percent(group[rate]["value"])
                texts[f"{rate}-{index}-interval"] = interval(group[rate])
    return {"text": texts, "place": _places(state, scales, "after"), "outcome": state["outcome"].split()[0]}


_OUTCOMES = {"pass": "Pass", "fail": "Fail", "insufficient evidence": "Not enough evidence"}


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
        texts[f"verdict-{index}-shortage"] = _shortage(verdict["shortage"])
        for place, stratum in enumerate(verdict.get("strata", ())):
            texts[f"verdict-{index}-stratum-{place}-gap"] = points(stratum["gap"]["value"])
            texts[f"verdict-{index}-stratum-{place}-interval"] = interval(stratum["gap"])
            texts[f"verdict-{index}-stratum-{place}-outcome"] = _OUTCOMES[stratum["outcome"]]
    return texts


def _shortage(shortage: Mapping[str, Any] | None) -> str:
    if shortage is None:
        return ""
    if shortage["cell_needed"] is None:
        return "The gap is so close to the tolerance that more rows are not expected to settle it."
    where = "all rows" if shortage["group"] is None else f"the group {shortage['group']}"
    if shortage["label"] is not None:
        where += f" with a {('negative', 'positive')[shortage['label']]} label"
    if shortage["rows_needed"] is None:
        return f"There are {shortage['cell_rows']:,} rows of {where}; begin with {shortage['cell_needed']:,}."
    return (
        f"About {shortage['rows_needed']:,} rows of this mix would settle it: {shortage['cell_needed']:,} of"
        f" {where}, of which there are now {shortage['cell_rows']:,}."
    )


def _sentence(summary: Mapping[str, Any], step: Mapping[str, Any] | None) -> str:
    state = summary["base"] if step is None else step
    verdict = state["verdicts"][state["worst"]]
    gap, tolerance = verdict["gap"], tolerance_text(verdict["tolerance"])
    subject = "The decisions as they are" if step is None else "The fair decisions"
    what = words(verdict["criterion"]) + ("" if verdict["attribute"] is None else f" on {verdict['attribute']}")
    level = f"{100 * summary['confidence']:.3g}% interval {interval(gap)}"
    if gap["value"] is None:
        return f"{subject} cannot be judged on {what}: a group has no rows to count."
    size = f"the largest gap is {points(gap['value'])} points ({level})"
    if verdict["outcome"] == "pass":
        return f"{subject} meet {what} to within {tolerance} points: {size}."
    if verdict["outcome"] == "fail":
        return f"{subject} do not meet {what} to within {tolerance} points: {size}."
    return (
        f"Whether {subject[0].lower()}{subject[1:]} meet {what} to within {tolerance} points is open: {size},"
        " and these rows cannot tell."
    )


def _step_texts(summary: Mapping[str, Any], step: Mapping[str, Any]) -> dict[str, str]:
    base = summary["base"]
    gap = step["verdicts"][step["worst"]]["gap"]
    price = base["accuracy"]["value"] - step["accuracy"]["value"]
    price_text = f"{points(abs(price), 2)} points {'less' if price > 0 else 'more'} than" if price else "the same as"
    learned = step["learned"]
    proof = ""
    if learned is not None:
        better = "more accurate" if learned["objective"] == ACCURACY else f"better in {learned['objective']}"
        bound = learned["upper_bound"]
        size = "" if bound is None else points(bound - learned["utility"], 2)
        proof = _PROOFS.get(learned["status"], "").format(better=better, size=size)
        if learned["objective"] != ACCURACY:
            proof = f"Its {learned['objective']} is {learned['utility']:.4f} on the rows it was learnt from. {proof}"
    texts = {
        "tolerance": tolerance_text(step["step_tolerance"]),
        "accuracy": percent(step["accuracy"]["value"]),
        "accuracy-interval": interval(step["accuracy"]),
        "price": price_text,
        "gap": points(gap["value"]),
        "gap-interval": interval(gap),
        "flipped": f"{step['flipped']:,}",
        "flipped-share": percent(step["flipped"] / summary["rows"]),
        "proof": proof,
        "warning": " ".join(text for text in (step["harm"], step["thin"]) if text),
    }
    for index, term in enumerate(step["terms"]):
        texts[f"z-{index}"] = number(term["z"])
    for index, flips in enumerate(step["flips"]):
        texts[f"flips-{index}-up"] = f"{flips['to_positive']:,}"
        texts[f"flips-{index}-down"] = f"{flips['to_negative']:,}"
        share = (flips["to_positive"] + flips["to_negative"]) / flips["rows"] if flips["rows"] else None
        texts[f"flips-{index}-share"] = percent(share)
    return texts


_PROOFS = {
    "optimal": "On the rows it was learnt from, no rule of its kind within the tolerance is {better}: this was proven.",
    "gap": "On the rows it was learnt from, a rule of its kind could be {better} by at most {size} points:"
    " this was proven.",
    "found": "It was found by a search that proves nothing about better rules.",
    "unchanged": "The model meets the tolerance as it is, and is left alone: no decision changes.",
    "plug-in": "It is the best one if the probabilities are true; on counted labels it may miss its bounds.",
}
