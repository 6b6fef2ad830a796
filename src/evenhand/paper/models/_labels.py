"""Class labels of any kind, for one head or several, turned into codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from evenhand.errors import InputError
from evenhand.inputs import factorize

Classes = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Targets:
    """The classes of each head, and each row's code in each head."""

    classes: tuple[Classes, ...]
    codes: NDArray[np.int64]

    def take(self, rows: NDArray[np.bool_]) -> Targets:
        """Return some of the rows; classes that none of them has are forgotten."""
        kept = [np.unique(column, return_inverse=True) for column in self.codes[rows].T]
        classes = tuple(c[seen] for c, (seen, _) in zip(self.classes, kept, strict=True))
        return Targets(classes, np.stack([codes for _, codes in kept], axis=1).astype(np.int64))


def read_targets(y: Any, n_rows: int) -> Targets:
    """Return classes and codes of one column of labels, or of several (one head each).

    Tuples in a one-dimensional object array, such as the joint label (Y, A), are labels like any other.
    """
    heads = [_read_column(column, n_rows) for column in _columns(y)]
    return Targets(tuple(c for c, _ in heads), np.stack([codes for _, codes in heads], axis=1))


def encode_like(y: Any, classes: Sequence[Classes], n_rows: int) -> NDArray[np.int64]:
    """Return the codes of labels whose classes are already known."""
    targets = read_targets(y, n_rows)
    if len(targets.classes) != len(classes):
        raise InputError(f"the validation labels have {len(targets.classes)} columns; y has {len(classes)}.")
    encoded = np.empty_like(targets.codes)
    for head, (known, found) in enumerate(zip(classes, targets.classes, strict=True)):
        position = {value: code for code, value in enumerate(known.tolist())}
        stray = [value for value in found.tolist() if value not in position]
        if stray:
            raise InputError(f"the validation labels have the class {stray[0]!r}, which y does not have.")
        encoded[:, head] = np.array([position[value] for value in found.tolist()])[targets.codes[:, head]]
    return encoded


def decode(classes: Sequence[Classes], codes: Sequence[NDArray[np.intp]]) -> NDArray[Any]:
    """Return the labels behind the codes: one column for one head, a column for each of several."""
    columns = [known[head] for known, head in zip(classes, codes, strict=True)]
    if len(columns) == 1:
        return columns[0]
    if len({column.dtype.kind for column in columns}) > 1:
        columns = [column.astype(object) for column in columns]
    return np.stack(columns, axis=1)


def _columns(y: Any) -> list[Any]:
    if y is None:
        raise InputError("this classifier requires y to be passed, but the target y is None.")
    native = nw.from_native(y, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame):
        return [native.get_column(name).to_numpy() for name in native.columns]
    array = native.to_numpy() if isinstance(native, nw.Series) else np.asarray(y)
    if array.ndim == 2 and array.shape[1] > 1:
        return list(array.T)
    return [column_or_1d(array, warn=True)]


def _read_column(column: NDArray[Any], n_rows: int) -> tuple[Classes, NDArray[np.int64]]:
    if len(column) != n_rows:
        raise InputError(f"X has {n_rows} rows and y has {len(column)}: inconsistent numbers of samples.")
    if column.dtype == object:
        values, codes = factorize(column, "y")
        if (codes < 0).any():
            raise InputError(f"y has a missing label in row {int(np.argmax(codes < 0))}: drop such rows.")
        # Numbers that came as objects, next to text in another column for example, are numbers again.
        numbers = {type(value) for value in values} <= {bool, int, float}
        classes = np.array(values) if numbers else np.fromiter(values, dtype=object, count=len(values))
        return classes, codes.astype(np.int64)
    assert_all_finite(column, input_name="y")
    check_classification_targets(column)
    classes, inverse = np.unique(column, return_inverse=True)
    return classes, inverse.astype(np.int64)
