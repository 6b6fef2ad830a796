"""Columns of a table as features for models: numbers and text in one array of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand import tables
from evenhand.errors import InputError
from evenhand.inputs import FloatArray


@dataclass(frozen=True)
class Features:
    """The names of the columns, and which of them are text."""

    names: tuple[str, ...]
    text: tuple[bool, ...]

    @classmethod
    def of(cls, table: Any, names: Sequence[str]) -> Features:
        """Read the types of a table."""
        if not names:
            raise InputError("There is no column left to train on: name columns with --features.")
        return cls(tuple(names), tuple(not _is_number(table.column(name).type) for name in names))

    @classmethod
    def remembered(cls, learned_from: Mapping[str, Any]) -> Features | None:
        """Return what :meth:`to_dict` stored in a rule, or None if there is nothing."""
        columns = learned_from.get("columns")
        entries = columns.get("features") if isinstance(columns, Mapping) else None
        if not isinstance(entries, list):
            return None
        if not entries or not all(isinstance(e, Mapping) and isinstance(e.get("name"), str) for e in entries):
            raise InputError("The classifier's columns cannot be read.")
        return cls(tuple(e["name"] for e in entries), tuple(e.get("kind") == "text" for e in entries))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for a rule's ``learned_from``."""
        kinds = ("text" if text else "number" for text in self.text)
        return {"features": [{"name": n, "kind": kind} for n, kind in zip(self.names, kinds, strict=True)]}

    @property
    def places_of_text(self) -> list[int]:
        """The indices of the text columns."""
        return [place for place, text in enumerate(self.text) if text]

    def matrix(self, table: Any) -> NDArray[Any]:
        """Return the columns as an array of objects; missing values are NaN in numbers and None in text."""
        X = np.empty((table.num_rows, len(self.names)), dtype=object)
        for j, (name, text) in enumerate(zip(self.names, self.text, strict=True)):
            X[:, j] = _text_of(table, name) if text else _numbers_of(table, name)
        return X


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    checks = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in checks)


def _numbers_of(table: Any, name: str) -> FloatArray:
    import pyarrow as pa

    column = table.column(name)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_string(column.type):
        column = _parsed(column, name)
    if not _is_number(column.type):
        raise InputError(f"The column {name!r} must contain numbers, as in training; it contains {column.type}.")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    column = column.cast(pa.float64(), safe=False)
    chunked = isinstance(column, pa.ChunkedArray)
    return np.asarray(column.to_numpy() if chunked else column.to_numpy(zero_copy_only=False))


def _parsed(column: Any, name: str) -> Any:
    """Return unconverted text from a CSV file as numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    known = pc.if_else(pc.is_in(text, pa.array(tables.MISSING)), pa.scalar(None, pa.string()), text)
    try:
        return known.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise InputError(f"The column {name!r} must contain numbers, as in training: {error}.") from None


def _text_of(table: Any, name: str) -> NDArray[Any]:
    kind = table.column(name).type
    if _is_number(kind):
        raise InputError(
            f"The column {name!r} must contain text, as in training; it contains {kind}. In a CSV file that is a"
            " guess from the values: write a .csv output, which reads it as text, or use a Parquet table."
        )
    values = tables.values_of(table, name)
    return np.array([v if isinstance(v, str) else None for v in values], dtype=object)
