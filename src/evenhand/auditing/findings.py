"""What an audit finds, as plain data: estimates with intervals, rates by group, verdicts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from evenhand.auditing.audit_text import lines

Outcome = Literal["pass", "fail", "insufficient evidence"]


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
class StratumAudit:
    """One stratum of a criterion with ``within``: its rows, the rates of its groups, its gap, and what follows.

    The interval is of this stratum alone: among many strata some fail by chance. The verdict on all of them allows for
    that.
    """

    stratum: Hashable
    rows: int
    groups: tuple[GroupAudit, ...]
    gap: Estimate
    outcome: Outcome
    shortage: Shortage | None


@dataclass(frozen=True)
class Verdict:
    """A criterion's gap, the tolerance, and what follows from the gap's interval.

    The gap is how far the rates are outside the criterion's bounds: for a parity the largest difference
    between two groups; for ``selection_ratio(0.8)`` the most by which a rate is below 0.8 times another. Within strata
    it is the largest of all strata; ``strata`` has each of them, and ``left_out`` the rows of those with too few to
    compare (``thin``).
    """

    criterion: str
    attribute: str | None
    gap: Estimate
    tolerance: float
    outcome: Outcome
    shortage: Shortage | None
    strata: tuple[StratumAudit, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict, hash=False)


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
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    def __str__(self) -> str:
        return "\n".join(lines(self))

    __repr__ = __str__


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if value == () or (isinstance(value, tuple) and isinstance(value[0], _RECORDS)):
        return [_plain(item) for item in value]
    if isinstance(value, _RECORDS):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


_RECORDS = (Estimate, GroupAudit, Pair, AttributeAudit, Shortage, StratumAudit, Verdict)
