"""What a rule is learnt from: rows with the probabilities of models that did not see them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.estimator.sample import Rows, Sample
from evenhand.inputs import Attribute, FloatArray
from evenhand.rules.criteria import AttributeKey


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that no model was trained on, and what the models say about them.

    Attributes
    ----------
    rows : array of int
        Their numbers among the rows that ``fit`` was given.
    y : array
        Their labels.
    sensitive_features : dict of arrays
        Their groups, by attribute.
    groups : dict of tuples
        Each attribute's groups, in order.
    p_y : array of shape (n,)
        P(Y = positive | x).
    p_group : dict of arrays
        p(A|x) of shape (n, G), or p(Y, A|x) of shape (n, 2, G), by attribute: a name, or the Intersection of a
        crossed one.
    sample_weight : array or None
        Their weights.
    """

    rows: Rows
    y: NDArray[Any]
    sensitive_features: dict[str, NDArray[Any]]
    groups: dict[AttributeKey, tuple[Hashable, ...]]
    p_y: FloatArray
    p_group: dict[AttributeKey, FloatArray]
    sample_weight: FloatArray | None

    @classmethod
    def of(cls, sample: Sample, rows: Rows, p_y: FloatArray, p_group: dict[AttributeKey, FloatArray]) -> HeldOut:
        """Take some rows of a sample, with their probabilities."""
        return cls(
            rows,
            sample.y[rows],
            {str(name): group_column(attribute, rows) for name, attribute in sample.attributes.items()},
            {name: attribute.groups for name, attribute in sample.attributes.items()},
            p_y,
            p_group,
            None if sample.weight is None else sample.weight[rows],
        )


def group_column(attribute: Attribute, rows: Rows) -> NDArray[Any]:
    """Return each row's group as a plain value, of objects where NumPy would change it."""
    plain = len({type(group) for group in attribute.groups}) == 1 and isinstance(attribute.groups[0], bool | int | str)
    values = np.array(attribute.groups) if plain else np.fromiter(attribute.groups, object, len(attribute.groups))
    return values[attribute.codes[rows]]
