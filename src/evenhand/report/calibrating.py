"""The calibration of the probabilities on the report's rows, for everyone and by group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray, group_texts
from evenhand.rows import Rows
from evenhand.rules.events import AttributeKey, Stratified, display_names
from evenhand.statistics.calibration import reliability


def calibration(rows: Rows, confidence: float) -> list[dict[str, Any]]:
    """Return the reliability curves of the label's and the groups' probabilities."""
    found = []
    everyone = np.ones(len(rows), dtype=bool)
    shown = display_names(rows.attributes)
    if rows.positive is not None and len(rows.p_y):
        attribute = next(iter(rows.attributes.values()))
        parts = [("everyone", everyone)]
        parts += [(text, attribute.codes == code) for code, text in enumerate(group_texts(attribute.groups))]
        for text, inside in parts:
            curve = reliability(
                rows.p_y[inside], rows.positive[inside], _weight_of(rows, inside), confidence=confidence
            )
            found.append({"model": f"P(label = {rows.classes[1]})", "group": text, **curve})
    for name, array in rows.p_group.items():
        if name not in rows.attributes or isinstance(name, Stratified):
            continue
        if array.ndim == 3 and rows.positive is not None:
            model = f"P(label = {rows.classes[1]}, {shown[name]} = …)"
            found += _group_calibration(rows, name, array[:, 1], rows.positive, model, confidence)
        marginal = array.sum(axis=1) if array.ndim == 3 else array
        found += _group_calibration(rows, name, marginal, everyone, f"P({shown[name]} = …)", confidence)
    return found


def _group_calibration(
    rows: Rows, name: AttributeKey, array: FloatArray, within: NDArray[np.bool_], model: str, confidence: float
) -> list[dict[str, Any]]:
    attribute = rows.attributes[name]
    known = attribute.codes >= 0
    found = []
    for code, (text, group) in enumerate(zip(group_texts(attribute.groups), attribute.groups, strict=True)):
        column, inside = rows.groups[name].index(group), within & (attribute.codes == code)
        curve = reliability(array[known, column], inside[known], _weight_of(rows, known), confidence=confidence)
        found.append({"model": model, "group": text, **curve})
    return found


def _weight_of(rows: Rows, inside: NDArray[np.bool_]) -> FloatArray | None:
    return None if rows.sample_weight is None else rows.sample_weight[inside]
