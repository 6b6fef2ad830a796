"""Detects likely mistakes: rows in different orders, swapped probability columns, decisions instead of scores.

Each check is one pass of sums over the rows, without a sort.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from evenhand.errors import EvenhandWarning, InputError
from evenhand.inputs import Attribute, FloatArray, joined
from evenhand.rules.events import AttributeKey

MANY_ROWS = 30
STANDARD_ERRORS = 6.0
SMALLEST_DIFFERENCE = 0.02


def check_same_index(given: Mapping[str, Any]) -> None:
    """Raise if two pandas objects have different indexes, because rows are matched by position.

    Objects without an index, such as arrays, lists and frames of other libraries, are compatible with all others. The
    same index labels in another order are a different index.

    Parameters
    ----------
    given : mapping
        The caller's arguments by parameter name; dicts of columns are checked inside.
    """
    first: tuple[str, Any] | None = None
    for name, index in _indexes(given):
        if first is None:
            first = name, index
        elif len(index) == len(first[1]) and not index.equals(first[1]):
            raise InputError(
                f"{name} and {first[0]} have different pandas indexes, and rows are matched by position: {name} begins"
                f" with {index[:3].tolist()!r}, {first[0]} with {first[1][:3].tolist()!r}. Put both in the same order,"
                " then reset both with .reset_index(drop=True), or pass one of them as .to_numpy()."
            )


def _indexes(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _indexes({f"{name}[{key!r}]": column for key, column in value.items()})
        elif nw.dependencies.is_pandas_dataframe(value) or nw.dependencies.is_pandas_series(value):
            yield name, value.index


def warn_of_decisions(p_y: FloatArray, stacklevel: int = 5) -> None:
    """Warn if probabilities have only the values 0 and 1, in many rows."""
    if len(p_y) >= MANY_ROWS and ((p_y == 0.0) | (p_y == 1.0)).all():
        warnings.warn(
            f"p_y has only the values 0 and 1 in {len(p_y):,} rows. These look like decisions, but P(Y = positive | x)"
            " is needed. Pass probabilities, such as predict_proba(X)[:, 1]; if the model is certain of every row,"
            " there is no trade-off to optimise.",
            EvenhandWarning,
            stacklevel=stacklevel,
        )


def warn_of_reversed_groups(
    p_group: Mapping[AttributeKey, FloatArray],
    attributes: Mapping[AttributeKey, Attribute],
    weights: FloatArray,
    stacklevel: int = 5,
) -> None:
    """Warn if the probabilities of a group are clearly lower among its own rows than among the others.

    "Clearly" means by more than 6 standard errors and by more than 0.02. Uninformative estimates stay below that,
    including cross-fitted ones, which are lower among a group's own rows by about 1/n.
    """
    for name, array in p_group.items():
        attribute = attributes[name]
        marginal = array.sum(axis=1) if array.ndim == 3 else array
        sums = _Sums(attribute, weights)
        # With two groups, the second comparison is the first with the opposite sign.
        for code, group in enumerate(attribute.groups[: 1 if len(attribute.groups) == 2 else None]):
            difference = sums.difference(marginal[:, code], code)
            if difference is not None:
                warnings.warn(
                    f"The probabilities of the group {joined(group)!r} of {str(name)!r} are lower among its own rows"
                    f" than among the others, by {difference:.3f} on average: the columns of p_group seem to be in"
                    f" another order. They must follow the groups {list(attribute.groups)!r}; groups= sets another"
                    " order, and a frame with columns named after the groups may have any order.",
                    EvenhandWarning,
                    stacklevel=stacklevel,
                )
                break


class _Sums:
    """Sums over the rows of each group of an attribute."""

    def __init__(self, attribute: Attribute, weights: FloatArray) -> None:
        self.codes, self.size = attribute.codes + 1, len(attribute.groups) + 1
        self.weights, self.squares = weights, weights**2
        self.rows, self.mass, self.mass2 = (self.by_group(v) for v in (weights > 0.0, weights, self.squares))

    def by_group(self, values: FloatArray | NDArray[np.bool_]) -> FloatArray:
        """Return the sum of each group's values, without rows of unknown group."""
        found: FloatArray = np.bincount(self.codes, weights=values, minlength=self.size)[1:].astype(np.float64)
        return found

    def difference(self, p: FloatArray, code: int) -> float | None:
        """Return by how much the mean outside a group exceeds the mean inside, if clearly so."""
        weighted, squared = self.weights * p, self.squares * p
        table = np.array([self.rows, self.mass, self.mass2, *map(self.by_group, (weighted, squared, squared * p))])
        inside = table[:, code]
        means, errors = [], []
        for rows, mass, mass2, first, first2, second2 in (inside, table.sum(axis=1) - inside):
            if rows < MANY_ROWS:
                return None
            mean = first / mass
            means.append(float(mean))
            errors.append(max(float(second2 - 2.0 * mean * first2 + mean**2 * mass2), 0.0) / mass**2)
        difference = means[1] - means[0]
        return difference if difference > max(SMALLEST_DIFFERENCE, STANDARD_ERRORS * np.sqrt(sum(errors))) else None
