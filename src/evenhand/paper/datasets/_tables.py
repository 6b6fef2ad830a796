"""Columns out of CSV text, and features out of columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.paper.datasets.dataset import FloatArray


def read_columns(text: str, whole_numbers: Collection[str]) -> dict[str, NDArray[Any]]:
    r"""Return the columns of CSV text without quotes: int64 where named as whole numbers, else text.

    Examples
    --------
    >>> read_columns("age,sex\n39,Male\n28,Female\n", ["age"])
    {'age': array([39, 28]), 'sex': array(['Male', 'Female'], dtype='<U6')}
    """
    header, _, body = text.rstrip("\n").partition("\n")
    names = header.split(",")
    # One flat list, cut by strides: a list for each row would double the time.
    cells = body.replace("\n", ",").split(",")
    return {
        name: np.array(cells[column :: len(names)], dtype=np.int64 if name in whole_numbers else np.str_)
        for column, name in enumerate(names)
    }


def encode(columns: Mapping[str, NDArray[Any]]) -> tuple[FloatArray, tuple[str, ...]]:
    """Return features and their names: numbers standardised, text one-hot with its values in sorted order.

    Examples
    --------
    >>> encode({"age": np.array([20, 40]), "sex": np.array(["Male", "Female"])})
    (array([[-1.,  0.,  1.],
           [ 1.,  1.,  0.]]), ('age', 'sex=Female', 'sex=Male'))
    """
    features: list[NDArray[Any]] = []
    names: list[str] = []
    for name, column in columns.items():
        if column.dtype.kind == "U":
            values = sorted(set(column.tolist()))
            features += [column == value for value in values]
            names += [f"{name}={value}" for value in values]
        else:
            features.append((column - column.mean()) / column.std())
            names.append(name)
    return np.column_stack(features).astype(np.float64, copy=False), tuple(names)
