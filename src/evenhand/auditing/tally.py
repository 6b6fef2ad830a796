"""Counts of rows: the weight of each group, label and decision, which determine every rate."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import check_label, is_number, shown
from evenhand.errors import InputError
from evenhand.inputs import FloatArray, as_column, factorize, read_probabilities

BoolArray = NDArray[np.bool_]
AUDITED = ("y", "decisions_or_scores")

# rate -> (cells that count, cells it is a share of); a cell is (label, decision), and cells are summed.
RATES: dict[str, tuple[BoolArray, BoolArray]] = {
    name: (np.array(hit, dtype=bool), np.array(among, dtype=bool))
    for name, hit, among in (
        ("selection_rate", [[0, 1], [0, 1]], [[1, 1], [1, 1]]),
        ("true_positive_rate", [[0, 0], [0, 1]], [[0, 0], [1, 1]]),
        ("false_positive_rate", [[0, 1], [0, 0]], [[1, 1], [0, 0]]),
        ("true_negative_rate", [[1, 0], [0, 0]], [[1, 1], [0, 0]]),
        ("false_negative_rate", [[0, 0], [1, 0]], [[0, 0], [1, 1]]),
        ("precision", [[0, 0], [0, 1]], [[0, 1], [0, 1]]),
        ("negative_predictive_value", [[1, 0], [0, 0]], [[1, 0], [1, 0]]),
        ("accuracy", [[1, 0], [0, 1]], [[1, 1], [1, 1]]),
        ("zero_one_loss", [[0, 1], [1, 0]], [[1, 1], [1, 1]]),
    )
}


def rates_of(cells: FloatArray, rate: str) -> FloatArray:
    """Return a rate from cells of shape (..., label, decision); NaN if its denominator has no weight."""
    hit, among = RATES[rate]
    total = cells[..., among].sum(axis=-1)
    counted = cells[..., hit].sum(axis=-1)
    rates = np.full(np.shape(total), np.nan)
    np.divide(counted, total, out=rates, where=total > 0.0)
    return rates


def tabulate(
    codes: NDArray[np.intp],
    n_groups: int,
    positive: BoolArray | None,
    decided: BoolArray,
    weights: FloatArray | None,
) -> FloatArray:
    """Return the weight in each cell (group, label, decision); rows of code -1 are in no group."""
    index = (codes + 1) << 2
    index += decided
    if positive is not None:
        index += positive.astype(np.int8) << 1
    sums = np.bincount(index, weights=weights, minlength=4 * (n_groups + 1))
    return sums[4:].reshape(n_groups, 2, 2).astype(np.float64)


def read_decisions(
    y_true: ArrayLike | None, y_pred: ArrayLike, pos_label: Hashable, names: tuple[str, str] = ("y_true", "y_pred")
) -> tuple[BoolArray | None, BoolArray]:
    """Return whether each label and each decision is the positive one; the first is None without labels.

    Decisions are the two labels, booleans, or 0 and 1; ambiguous values are an error. ``names`` are the names of the
    two arguments, for messages.
    """
    check_label(pos_label)
    values, codes = _read_values(y_pred, names[1])
    if y_true is None:
        return None, codes == _positive_decision(values, (), pos_label, names)
    positive, labels = read_positive(y_true, len(codes), pos_label, names)
    return positive, codes == _positive_decision(values, labels, pos_label, names)


def read_positive(
    y: Any, n_rows: int, pos_label: Hashable, names: tuple[str, str]
) -> tuple[BoolArray, tuple[Hashable, ...]]:
    """Return whether each label is the positive one, and the labels that occur."""
    check_label(pos_label)
    labels, codes = _read_values(y, names[0])
    if len(codes) != n_rows:
        raise InputError(f"{names[0]} has {len(codes)} rows, but {names[1]} has {n_rows}.")
    return codes == _positive_label(labels, pos_label, names[0]), labels


def read_decided(
    y: Any, decisions_or_scores: Any, threshold: float, pos_label: Hashable
) -> tuple[BoolArray | None, BoolArray]:
    """Return whether each label and each decision is the positive one; scores are compared with the threshold."""
    if not is_number(threshold) or not 0.0 <= threshold <= 1.0:
        raise InputError(f"threshold must be between 0 and 1; got {shown(threshold)}.")
    shape = getattr(decisions_or_scores, "shape", ())
    if isinstance(shape, tuple) and len(shape) == 2 and shape[1] > 1:
        read_probabilities(decisions_or_scores, AUDITED[1], shape=(None,))
    column = as_column(decisions_or_scores, AUDITED[1])
    if column.dtype == object and len(column) and all(is_number(item) for item in column):
        column = column.astype(np.float64)
    if column.dtype.kind == "f" and not np.isin(column, [0.0, 1.0]).all():
        labels = () if y is None else factorize(y, "y")[0]
        if not all(value in labels for value in np.unique(column).tolist()[:3]):
            decided = read_probabilities(column, AUDITED[1]) > threshold
            return (None if y is None else read_positive(y, len(decided), pos_label, AUDITED)[0]), decided
    return read_decisions(y, column, pos_label, AUDITED)


def _read_values(values: Any, what: str) -> tuple[tuple[Hashable, ...], NDArray[np.intp]]:
    distinct, codes = factorize(values, what)
    if codes.size == 0:
        raise InputError(f"{what} is empty: there is nothing to measure.")
    if codes.min() < 0:
        raise InputError(f"{what} has a missing value in row {int(np.argmin(codes))}: drop such rows.")
    if len(distinct) > 2:
        hint = " To turn scores into decisions, apply a threshold, as in scores > 0.5." if what == "y_pred" else ""
        raise InputError(f"{what} must have two values; it has {len(distinct)}: {list(distinct)[:6]!r}.{hint}")
    return distinct, codes


def _positive_label(values: tuple[Hashable, ...], pos_label: Hashable, what: str) -> int:
    if pos_label in values:
        return values.index(pos_label)
    if len(values) == 2 or isinstance(values[0], str) != isinstance(pos_label, str):
        raise InputError(
            f"pos_label={pos_label!r} is not in {what}, which has {list(values)!r}: pass the positive one."
        )
    return -1


def _positive_decision(
    values: tuple[Hashable, ...], labels: tuple[Hashable, ...], pos_label: Hashable, names: tuple[str, str]
) -> int:
    known = {*labels, pos_label}
    boolean = isinstance(values[0], bool) and not all(isinstance(label, bool) for label in known)
    if boolean and pos_label == 0:
        raise InputError(
            f"{names[1]} is boolean and pos_label={pos_label!r}: True may be the label 1 or a positive "
            "decision; pass the predicted labels themselves."
        )
    if set(values) <= {0, 1} and (boolean or pos_label == 1 or not known & {0, 1}):
        return values.index(1) if 1 in values else -1
    if not labels or len(known | set(values)) <= 2:
        return _positive_label(values, pos_label, names[1])
    raise InputError(
        f"{names[1]} has the values {list(values)!r}, but {names[0]} has {list(labels)!r}: "
        "pass decisions as the two labels, as booleans, or as 0 and 1."
    )
