"""The results of a watch as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenhand.auditing.findings import Estimate

State = Literal["holds", "violated", "undecided"]


@dataclass(frozen=True)
class WatchedGap:
    """One bounded combination of rates, such as the difference of two groups: since the start and in the window.

    The value of an estimate is None if a rate has no rows. ``window`` is None without a window.
    """

    name: str
    since_start: Estimate
    window: Estimate | None
    tolerance: float


@dataclass(frozen=True)
class WatchedVerdict:
    """A criterion on one attribute: its largest gap, the tolerance, the state, and the row at which the state began.

    The gap is how far the rates are outside the criterion's bounds, as in :class:`~evenhand.auditing.findings.Verdict`.
    """

    criterion: str
    attribute: str | None
    since_start: Estimate
    window: Estimate | None
    tolerance: float
    state: State
    since: int


@dataclass(frozen=True)
class Moment:
    """The state of a watch after a number of rows: for each verdict, the gap since the start and in the window."""

    rows: int
    gaps: tuple[tuple[Estimate, Estimate | None], ...]
