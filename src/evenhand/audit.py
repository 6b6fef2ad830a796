"""An audit of decisions: rates by group, gaps with intervals, and what the data can and cannot say about them.

It needs labels, decisions and groups, and no model. Everything is computed from one table of counts for each
attribute (:func:`evenhand.metrics.tabulate`); criteria say which combinations of rates are bounded, so that a
criterion of any kind is judged in the same way.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from evenhand.criteria import (
    Composite,
    Constraint,
    Criterion,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    Event,
    PredictiveEquality,
    SelectionRatio,
    check_tolerance,
    resolve,
)
from evenhand.errors import InputError
from evenhand.inputs import (
    Attribute,
    FloatArray,
    Missing,
    as_column,
    factorize,
    read_probabilities,
    read_sensitive,
    read_weights,
)
from evenhand.intervals import (
    check_confidence,
    distance_interval,
    effective_counts,
    newcombe_interval,
    normal_quantile,
    ratio_interval,
    settling_factor,
    simultaneous_quantile,
    wilson_interval,
)
from evenhand.metrics import BoolArray, read_decisions, tabulate

Outcome = Literal["pass", "fail", "insufficient evidence"]
_PARITIES: tuple[Criterion, ...] = (
    DemographicParity(), EqualOpportunity(), PredictiveEquality(), EqualizedOdds(),
)  # fmt: skip
_FOUR_FIFTHS = SelectionRatio(0.8)
_NAMES = ("y", "decisions_or_scores")
_RATE_LABELS = {"selection_rate": None, "true_positive_rate": 1, "false_positive_rate": 0}


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; the value is None where there are no rows to estimate it from."""

    value: float | None
    lower: float
    upper: float


@dataclass(frozen=True)
class GroupAudit:
    """One group: its rows, by label, and its rates. What needs labels is None without them."""

    group: Hashable
    rows: int
    negatives: int | None
    positives: int | None
    selection_rate: Estimate
    true_positive_rate: Estimate | None
    false_positive_rate: Estimate | None
    accuracy: Estimate | None


@dataclass(frozen=True)
class Pair:
    """The difference of a rate between two groups, the first minus the second."""

    rate: str
    first: Hashable
    second: Hashable
    difference: Estimate


@dataclass(frozen=True)
class AttributeAudit:
    """One attribute: its groups, the gap of each parity criterion, every pair, and the selection ratio."""

    name: str
    unknown_rows: int
    groups: tuple[GroupAudit, ...]
    gaps: Mapping[str, Estimate]
    pairs: tuple[Pair, ...]
    selection_ratio: Estimate


@dataclass(frozen=True)
class Shortage:
    """What an undecided verdict lacks most: the cell with the fewest rows, and how many would settle it.

    ``rows_needed`` is the whole data set's size in its present mix, ``cell_needed`` the cell's share of it.
    Both suppose that the rates stay as they are; None means that no number of rows is expected to settle it.
    For a cell without rows ``cell_needed`` is what it takes to know any rate to within the tolerance.
    """

    rows_needed: int | None
    group: Hashable
    label: int | None
    cell_rows: int
    cell_needed: int | None


@dataclass(frozen=True)
class Verdict:
    """A criterion's gap, the tolerance, and what follows from the gap's interval."""

    criterion: str
    attribute: str | None
    gap: Estimate
    tolerance: float
    outcome: Outcome
    shortage: Shortage | None


@dataclass(frozen=True, repr=False)
class Audit:
    """What :func:`audit` found. Printed, it is a table.

    Attributes
    ----------
    rows : int
        The number of rows.
    confidence, tolerance : float
        As given.
    weighted : bool
        Whether rows had weights: rates are then weighted, and intervals use Kish's effective sample size.
    accuracy : Estimate or None
        The accuracy over all rows; None without labels.
    attributes : tuple of AttributeAudit
        The rates and gaps of each attribute.
    verdicts : tuple of Verdict
        One for each criterion and attribute.
    """

    rows: int
    confidence: float
    tolerance: float
    weighted: bool
    accuracy: Estimate | None
    attributes: tuple[AttributeAudit, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether every verdict is "pass"."""
        return all(verdict.outcome == "pass" for verdict in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as plain data that JSON can hold.

        Returns
        -------
        dict
            Keys as the attributes of the classes of this module. An estimate is ``{"value", "lower",
            "upper"}``; a group that is no text, number or truth value is written as its text.
        """
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    __repr__ = __str__


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and value and hasattr(value[0], "__dataclass_fields__"):
        return [_plain(item) for item in value]
    return [] if value == () else str(value)
