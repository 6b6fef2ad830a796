"""The section on alternatives in a report and a card, as plain data and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evenhand.arguments import shown
from evenhand.auditing.alternatives import Alternatives, Point
from evenhand.auditing.alternatives_text import answer, held_out_sentences, proof, scope
from evenhand.auditing.comparison import Compared
from evenhand.auditing.findings import Estimate
from evenhand.errors import InputError


def with_alternatives(summary: Mapping[str, Any], found: Alternatives) -> dict[str, Any]:
    """Return a summary with the key "alternatives": status, sentences, and a table of texts."""
    if not isinstance(found, Alternatives):
        raise InputError(f"alternatives must be a result of evenhand.alternatives; got {shown(found)}.")
    section = {
        "status": found.status,
        "utility": "utility" if found.costs else "accuracy",
        "sentences": [answer(found), proof(found)],
        "table": _table(found),
        "held_out": list(held_out_sentences(found)),
        "scope": scope(found),
        "data": found.to_dict(),
    }
    return {**summary, "alternatives": section}


def alternatives_markdown(section: Mapping[str, Any], escaped: Callable[[Any], str]) -> str:
    """Return the section as Markdown for a card; all texts are escaped, because they contain names of models."""
    heads = ["rows", "decisions", section["utility"], "gap, points"]
    rows = [[row[name] for name in ("rows", "decisions", "utility", "gap")] for row in section["table"]]
    lines = [" | ".join(map(escaped, cells)) for cells in [heads, *rows]]
    table = "\n".join(f"| {line} |" for line in [lines[0], " | ".join(["---"] * len(heads)), *lines[1:]])
    after = map(escaped, [*section["held_out"], section["scope"]])
    head = f"## Alternatives: {escaped(section['status'])}"
    return "\n\n".join([head, *map(escaped, section["sentences"]), table, *after])


def _table(found: Alternatives) -> list[dict[str, str]]:
    searched = f"{found.rows:,} searched"
    rows = [(searched, "judged", *_of_point(found.present, found))]
    if found.alternative is not None:
        rows.append((searched, "alternative", *_of_point(found.alternative, found)))
    tested = found.held_out
    if isinstance(tested, Compared):
        held = f"{tested.rows:,} held out"
        for name, measured in (("judged", tested.present), ("alternative", tested.alternative)):
            accuracy = ("accuracy " if found.costs else "") + _of_estimate(measured["accuracy"], "%")
            rows.append((held, name, accuracy, _of_estimate(measured["gap"])))
    elif tested is not None:
        rows.append((f"{tested.rows:,} held out", "judged", *_of_point(tested.present, found)))
    return [dict(zip(("rows", "decisions", "utility", "gap"), row, strict=True)) for row in rows]


def _of_point(point: Point, found: Alternatives) -> tuple[str, str]:
    utility = f"{point.utility:.4f}" if found.costs else f"{100 * point.utility:.1f}%"
    return utility, f"{100 * point.gap:.1f}"


def _of_estimate(estimate: Estimate, sign: str = "") -> str:
    if estimate.value is None:
        return "no rows"
    return f"{100 * estimate.value:.1f}{sign} ({100 * estimate.lower:.1f} to {100 * estimate.upper:.1f})"
