"""Values that no caller should pass, and what becomes of an argument that was right."""

from __future__ import annotations

import datetime
import decimal
import fractions
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse

Value = Callable[[], Any]


class _NoTruth:
    """Compares to something that has no truth value, as arrays do."""

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])

    __hash__ = object.__hash__


def _objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _twice_the_same_name() -> pd.DataFrame:
    return pd.DataFrame([[0.1, 0.2], [0.3, 0.4]], columns=["a", "a"])


# Factories: a generator can be read once, and a list may be changed by whoever gets it.
VALUES: dict[str, Value] = {
    "None": lambda: None,
    "True": lambda: True,
    "empty text": lambda: "",
    "text": lambda: "x",
    "digits": lambda: "12",
    "surrogate": lambda: "\ud800",
    "zero byte": lambda: "a\x00b",
    "long text": lambda: "x" * 5000,
    "bytes": lambda: b"x",
    "0": lambda: 0,
    "-1": lambda: -1,
    "3": lambda: 3,
    "1.5": lambda: 1.5,
    "-0.5": lambda: -0.5,
    "NaN": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "1e308": lambda: 1e308,
    "10**400": lambda: 10**400,
    "-10**400": lambda: -(10**400),
    "2**63": lambda: 2**63,
    "complex": lambda: 1j,
    "decimal": lambda: decimal.Decimal("0.1"),
    "signalling decimal": lambda: decimal.Decimal("sNaN"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "date": lambda: datetime.date(2020, 1, 1),
    "ellipsis": lambda: ...,
    "object": object,
    "class": lambda: int,
    "function": lambda: len,
    "namespace": lambda: SimpleNamespace(shape=(2, 2)),
    "no truth value": _NoTruth,
    "path": lambda: Path("nowhere") / "nothing",
    "list": list,
    "list of list": lambda: [[]],
    "nested list": lambda: [["a", ["b"]]],
    "ragged list": lambda: [[0.1], [0.2, 0.3]],
    "list of None": lambda: [None, None],
    "list of huge": lambda: [10**400, 0.5],
    "list of text": lambda: ["a", "b"],
    "list of text and number": lambda: ["a", 1],
    "numbers": lambda: [0.1, 0.9],
    "dict": dict,
    "dict of list": lambda: {"a": []},
    "dict of None": lambda: {"a": None},
    "dict of numbers": lambda: {1: 2},
    "dict of tuples": lambda: {("a",): 1, ("a", "a"): 2},
    "dict of dicts": lambda: {"A": {"a": {}}},
    "tuple": tuple,
    "tuple of list": lambda: ([], []),
    "set": lambda: {1, 2},
    "generator": lambda: (value for value in (0.1, 0.9)),
    "range": lambda: range(3),
    "NumPy float": lambda: np.float64(0.1),
    "NumPy NaN": lambda: np.float32("nan"),
    "NumPy int": lambda: np.int64(2),
    "NumPy text": lambda: np.str_("x"),
    "NaT": lambda: np.datetime64("NaT"),
    "pandas NA": lambda: pd.NA,
    "0-d array": lambda: np.array(0.5),
    "0-d object array": lambda: np.array(None, dtype=object),
    "empty array": lambda: np.array([]),
    "matrix": lambda: np.array([[0.1, 0.9], [0.2, 0.8]]),
    "4-d array": lambda: np.zeros((2, 2, 2, 2)),
    "0 x 0 array": lambda: np.zeros((0, 0)),
    "object array": lambda: _objects(None, [], {}),
    "dates": lambda: np.array(["2020", "NaT"], dtype="datetime64[D]"),
    "records": lambda: np.zeros(2, dtype=[("a", float), ("b", int)]),
    "masked": lambda: np.ma.array([0.1, 0.2], mask=[True, False]),
    "sparse": lambda: scipy.sparse.csr_array(np.eye(2)),
    "pandas frame": lambda: pd.DataFrame({"a": [0.1], "b": ["x"]}),
    "empty pandas frame": pd.DataFrame,
    "twice the same name": _twice_the_same_name,
    "pandas series": lambda: pd.Series([[], {}]),
    "categories": lambda: pd.Series(pd.Categorical(["a", None])),
    "polars frame": lambda: pl.DataFrame({"a": [[1], [2]]}),
    "empty polars frame": pl.DataFrame,
    "lazy frame": lambda: pl.LazyFrame({"a": [1, 2]}),
    "polars series": lambda: pl.Series("a", [None, None]),
}  # fmt: skip

ELEMENTS: tuple[Any, ...] = (
    None, True, "", "x", "\ud800", b"x", -1, 2, 10**400, 2**63, float("nan"), float("inf"), 1j, [], {}, {"a"}, (), (1,),
    object(), pd.NA, np.datetime64("NaT"), decimal.Decimal("NaN"), np.array([1, 2]), "1",
)  # fmt: skip


def damages(right: Any) -> dict[str, Value]:
    """Return what can become of an argument that was right: values put into it, rows lost, another type."""
    if isinstance(right, dict):
        found: dict[str, Value] = {"without an entry": lambda: dict(list(right.items())[1:])}
        for name, value in VALUES.items():
            found[f"an entry is {name}"] = lambda value=value: {**right, next(iter(right)): value()}
        return found
    if not isinstance(right, np.ndarray) or right.ndim == 0 or not right.size:
        return {}
    plain = right.tolist()
    found = {
        "a row less": lambda: right[:-1],
        "a row more": lambda: np.concatenate([right, right[:1]]),
        "no rows": lambda: right[:0],
        "one row": lambda: right[:1],
        "one more axis": lambda: right[..., None],
        "flat and doubled": lambda: np.concatenate([right.reshape(-1)] * 2),
        "constant": lambda: np.full_like(right, right.flat[0]),
        "list": lambda: plain,
        "generator": lambda: iter(plain),
        "objects": lambda: right.astype(object),
        "text": lambda: right.astype(str),
        "bytes": lambda: right.astype("S"),
        "read only": lambda: _read_only(right),
        "Fortran order": lambda: np.asfortranarray(right),
        "polars": lambda: pl.Series("a", plain) if right.ndim == 1 else pl.DataFrame(right.reshape(len(right), -1)),
        "frame of one name": lambda: pd.DataFrame(np.column_stack([right.reshape(len(right), -1)] * 2)).set_axis(
            ["a"] * (2 * right[0].size), axis=1
        ),
    }
    for element in ELEMENTS:
        found[f"a value is {element!r}"] = lambda element=element: _with(right, [0], element)
        found[f"all values are {element!r}"] = lambda element=element: _with(right, range(right.size), element)
    return found


def _read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def _with(array: np.ndarray, places: Any, element: Any) -> np.ndarray:
    array = array.astype(object)
    for place in places:
        array.reshape(-1)[place] = element
    return array
