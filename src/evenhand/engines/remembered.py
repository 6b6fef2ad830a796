"""The columns that a rule was learnt on, as plain data in its ``learned_from``, so that ``apply`` can use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evenhand.rules.events import AttributeKey, Intersection, display_names
from evenhand.rules.scores import by_attribute


def remember(score: str, groups: Mapping[AttributeKey, tuple[bool, Sequence[str | None]]]) -> dict[str, Any]:
    """Return plain data on the used columns: by attribute, whether they are joint, and their names."""
    shown = display_names(groups)
    entries: dict[str, Any] = {}
    for name, (joint, columns) in groups.items():
        entry: dict[str, Any] = {"kind": "joint" if joint else "group", "columns": list(columns)}
        entries[shown[name]] = entry | ({"crossed": list(name.attributes)} if isinstance(name, Intersection) else {})
    return {"score": score, "groups": entries}


def recall(
    learned_from: Mapping[str, Any], known: Iterable[AttributeKey]
) -> tuple[str | None, dict[AttributeKey, Any]]:
    """Return the score's column and each attribute's entry from the data that :func:`remember` wrote."""
    columns = learned_from.get("columns")
    if not isinstance(columns, Mapping) or not isinstance(columns.get("score"), str):
        return None, {}
    listed = columns.get("groups")
    entries: dict[Any, Any] = {}
    for text, entry in listed.items() if isinstance(listed, Mapping) else ():
        parts = entry.get("crossed") if isinstance(entry, Mapping) else None
        entries[Intersection(*parts) if isinstance(parts, list) else str(text)] = entry
    return columns["score"], by_attribute(entries, known, "The rule's columns")
