"""Two attributes at once: the rates of each combination of their groups."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.audit import audit_groups
from evenhand.inputs import Attribute, cross_attributes, group_texts
from evenhand.rows import Rows
from evenhand.rules.events import Intersection, Stratified, display_names

MOST_PAIRS = 3


def crossings(rows: Rows) -> list[tuple[str, Attribute]]:
    """Return the crossed attributes to show, with their names: pairs that are not already among the attributes."""
    plain = [name for name in rows.attributes if isinstance(name, str)]
    pairs = [Intersection(*pair) for pair in itertools.combinations(plain, 2)]
    wanted = [pair for pair in pairs if pair not in rows.attributes][:MOST_PAIRS]
    shown = display_names([*(name for name in rows.attributes if not isinstance(name, Stratified)), *wanted])
    return [(shown[pair], cross_attributes(rows.attributes, pair)) for pair in wanted]


def crossed_groups(
    rows: Rows, decided: NDArray[np.bool_], found: Sequence[tuple[str, Attribute]], confidence: float
) -> list[dict[str, Any]]:
    """Return each combination's rows and rates, as plain data."""
    return [
        {
            "attribute": name,
            "group": text,
            "rows": group.rows,
            **{
                rate: None
                if estimate is None
                else {"value": estimate.value, "lower": float(estimate.lower), "upper": float(estimate.upper)}
                for rate, estimate in (
                    ("selection_rate", group.selection_rate),
                    ("true_positive_rate", group.true_positive_rate),
                    ("false_positive_rate", group.false_positive_rate),
                )
            },
        }
        for name, attribute in found
        for text, group in zip(
            group_texts(attribute.groups), audit_groups(rows, decided, attribute, confidence), strict=True
        )
    ]
