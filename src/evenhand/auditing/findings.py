"""The results of an audit as plain data: estimates with intervals, rates by group, verdicts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from evenhand.auditing.audit_text import describe_audit, draw_gaps, lines
from evenhand.display import Description, Displayed
from evenhand.figures import Figure
from evenhand.frames import make_frame
from evenhand.inputs import joined

Outcome = Literal["pass", "fail", "insufficient evidence"]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; the value is None if there are no rows to estimate it from."""

    value: float | None
    lower: float
    upper: float


@dataclass(frozen=True)
class GroupAudit:
    """One group: its rows, by label, and its rates. Values that need labels are None without them."""

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
    """The cell with the fewest rows for an undecided verdict, and how many rows would settle it.

    ``rows_needed`` is the size of the whole data set with its present mix, ``cell_needed`` the cell's share of it. Both
    assume that the rates stay as they are; None means that no number of rows is expected to settle it. For a cell
    without rows, ``cell_needed`` is the number that determines any rate to within the tolerance.
    """

    rows_needed: int | None
    group: Hashable
    label: int | None
    cell_rows: int
    cell_needed: int | None


@dataclass(frozen=True)
class StratumAudit:
    """One stratum of a criterion with ``within``: its rows, the rates of its groups, its gap, and its verdict.

    The interval is for this stratum alone: among many strata, some fail by chance. The overall verdict accounts for
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
    """A criterion's gap, the tolerance, and the verdict that follows from the gap's interval.

    The gap is how far the rates are outside the criterion's bounds: for a parity the largest difference
    between two groups; for ``selection_ratio(0.8)`` the most by which a rate is below 0.8 times another. With strata,
    it is the largest of all strata; ``strata`` has each of them, and ``left_out`` the numbers of rows of those with too
    few to compare (``thin``).
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
class Audit(Displayed):
    """The result of :func:`audit`. It prints as tables.

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
    library : str or None
        The caller's library of frames, for :meth:`to_frame`.
    """

    rows: int
    confidence: float
    tolerance: float
    weighted: bool
    accuracy: Estimate | None
    attributes: tuple[AttributeAudit, ...]
    verdicts: tuple[Verdict, ...]
    library: str | None = field(default=None, compare=False)

    @property
    def passed(self) -> bool:
        """Whether every verdict is "pass"."""
        return all(verdict.outcome == "pass" for verdict in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as plain data for JSON.

        Returns
        -------
        dict
            Keys as the attributes of the classes of this module. An estimate is ``{"value", "lower", "upper"}``; a
            group that is not text, a number or a truth value is written as its text.
        """
        return {each.name: plain(getattr(self, each.name)) for each in fields(self) if each.name != "library"}

    def to_frame(self, library: str | None = None) -> Any:
        """Return the rates as a frame: one row for each attribute, group and rate, with its interval.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"} or None, default=None
            None uses the library of the arguments of :func:`evenhand.audit`, else one that is installed.

        Examples
        --------
        >>> import evenhand as eh
        >>> found = eh.audit(None, [0, 1, 1, 1], ["F", "F", "M", "M"], criterion="dp")
        >>> found.to_frame("polars")["value"].to_list()
        [0.5, 1.0]
        """
        rows = [
            (attribute.name, group.group, rate, group.rows, estimate.value, estimate.lower, estimate.upper)
            for attribute in self.attributes
            for group in attribute.groups
            for rate in ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
            if (estimate := getattr(group, rate)) is not None
        ]
        heads = ("attribute", "group", "rate", "rows", "value", "lower", "upper")
        columns = dict(zip(heads, (list(column) for column in zip(*rows, strict=True)), strict=True))
        if len({type(group) for group in columns["group"]}) > 1 or not isinstance(columns["group"][0], _PLAIN):
            columns["group"] = [joined(group) for group in columns["group"]]
        return make_frame(columns, library, self.library)

    def plot(self) -> Figure:
        """Return a figure of every gap with its interval and its tolerance. It displays without a network."""
        return draw_gaps(self)

    def _describe(self) -> Description:
        return describe_audit(self)

    def __str__(self) -> str:
        return "\n".join(lines(self))

    __repr__ = __str__


def plain(value: Any) -> Any:
    """Return the results of this package as plain data for JSON."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if value == () or (isinstance(value, tuple) and _is_record(value[0])):
        return [plain(item) for item in value]
    if _is_record(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _is_record(value: Any) -> bool:
    """Return whether a value is a record of this package; a group may be of any class."""
    return is_dataclass(value) and type(value).__module__.startswith(__package__)


_PLAIN = (bool, int, float, str)
