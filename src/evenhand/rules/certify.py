"""The statistical test behind ``confidence=``: which rules of a ladder are certified by the counts of fresh rows.

Only counts are used here. For most events they are the event's rows, and how many of them a rule decides 1. For
accuracy they are a group's rows, and how many are decided correctly; for precision, the selected rows and how many of
them have the positive label. A rule is fixed before these rows are used. Given how many rows it selects, the number of
positive labels among them is therefore binomial, and the exact bounds hold for each such number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evenhand.errors import InfeasibleError
from evenhand.inputs import FloatArray
from evenhand.rules.events import Event
from evenhand.rules.system import System
from evenhand.statistics.bounds import exact_upper_bound, exact_within
from evenhand.statistics.intervals import check_confidence, normal_quantile

Counts = NDArray[np.int64]
PART_OF_ROOM = 0.7


@dataclass(frozen=True)
class Claim:
    """One side of a constraint in the form in which it is tested: ``sum_e coefficient_e rate_e <= limit``.

    Attributes
    ----------
    constraint : int
        The constraint's position in its system.
    side : {"lower", "upper"}
        Which of its bounds this is. For a lower bound, all signs are reversed.
    events : tuple of int
        The events' indices in the system's ``measured_events``.
    coefficients : tuple of float
        One for each event.
    limit : float
        The bound.
    moving : bool
        Whether the limit is the caller's tolerance, rather than a tolerance of the constraint.
    disjoint : bool
        Whether no row can be in two of the events, so that their counts are independent.
    """

    constraint: int
    side: Literal["lower", "upper"]
    events: tuple[int, ...]
    coefficients: tuple[float, ...]
    limit: float
    moving: bool
    disjoint: bool

    def bound(self, successes: Counts, trials: Counts, confidence: float) -> float:
        """Return an upper bound on the combination, valid at every sample size."""
        s, n = self._counts(successes, trials)
        if self.disjoint and len(s) <= 2:
            return exact_upper_bound(self.coefficients, s, n, confidence)
        level = 1.0 - (1.0 - confidence) / len(s)
        each = zip(self.coefficients, s, n, strict=True)
        return sum(exact_upper_bound([c], [k], [rows], level) for c, k, rows in each)

    def holds(self, successes: Counts, trials: Counts, confidence: float) -> bool:
        """Return whether the bound is at most the limit, which is faster than computing it."""
        if self.estimate(successes, trials) > self.limit:
            return False
        s, n = self._counts(successes, trials)
        if self.disjoint and len(s) <= 2:
            return exact_within(self.coefficients, s, n, self.limit, confidence)
        return self.bound(successes, trials, confidence) <= self.limit

    def estimate(self, successes: Counts, trials: Counts) -> float:
        """Return the combination of the observed rates."""
        each = zip(self.coefficients, *self._counts(successes, trials), strict=True)
        return sum(c * (k / rows if rows else 0.5) for c, k, rows in each)

    def _counts(self, successes: Counts, trials: Counts) -> tuple[list[int], list[int]]:
        chosen = list(self.events)
        return successes[chosen].tolist(), trials[chosen].tolist()


def claims(system: System, tolerance: float) -> tuple[Claim, ...]:
    """Return all claims of a criterion at a tolerance: one or two sides of each constraint.

    Examples
    --------
    >>> from evenhand.rules.certify import claims
    >>> from evenhand.rules.criteria import DemographicParity
    >>> from evenhand.rules.system import write_out
    >>> system = write_out(DemographicParity(), {"sex": ("F", "M")})
    >>> [(claim.coefficients, claim.limit) for claim in claims(system, 0.05)]
    [((1.0, -1.0), 0.05), ((-1.0, 1.0), 0.05)]
    """
    found = []
    position = {event: index for index, event in enumerate(system.measured_events)}
    for index, constraint in enumerate(system.measured):
        events, coefficients = zip(*constraint.terms, strict=True)
        places = tuple(position[event] for event in events)
        disjoint = not any(may_overlap(a, b) for a, b in itertools.combinations(events, 2))
        kind = constraint.tolerance is None, disjoint
        lower, upper = constraint.bounds(tolerance)
        if math.isfinite(upper):
            found.append(Claim(index, "upper", places, coefficients, upper, *kind))
        if math.isfinite(lower):
            found.append(Claim(index, "lower", places, tuple(-c for c in coefficients), -lower, *kind))
    return tuple(found)


def may_overlap(first: Event, second: Event) -> bool:
    """Return whether a row could be in both events, according to their definitions."""
    if first.attribute == second.attribute and first.group != second.group:
        return False
    return first.label is None or second.label is None or first.label == second.label


def has_paths(system: System, claimed: Sequence[Claim]) -> bool:
    """Return whether each constraint is a band around one contrast, and no row is in the events of two constraints."""
    if not system.plain:
        return False
    sides: dict[int, list[Claim]] = {}
    for claim in claimed:
        sides.setdefault(claim.constraint, []).append(claim)
    if not len(sides) == len(system.constraints) == len(system.contrasts):
        return False
    exact = all(claim.disjoint and len(claim.events) <= 2 for claim in claimed)
    bands = all(len(pair) == 2 and sum(claim.limit for claim in pair) > 0.0 for pair in sides.values())
    events = [[event for event, _ in constraint.terms] for constraint in system.constraints]
    apart = not any(
        may_overlap(one, other)
        for first, second in itertools.combinations(events, 2)
        for one, other in itertools.product(first, second)
    )
    return exact and bands and apart


def fixed_sequence(claimed: Sequence[Claim], successes: Counts, trials: Counts, confidence: float = 0.95) -> int:
    """Return how many rules of a ladder are certified: those before the first that fails a claim.

    Parameters
    ----------
    claimed : sequence of Claim
        The claims that every rule must meet.
    successes : array of int of shape (rules, events)
        How often each rule, in the order of testing, decides 1 within each event.
    trials : array of int of shape (events,) or (rules, events)
        The number of rows in each event; for precision, of those that a rule selects.
    confidence : float, default=0.95
        The confidence level of every test.

    Returns
    -------
    int
        The number of certified rules. The rule to return is the last of them; with 0 there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.rules.certify import claims, fixed_sequence
    >>> from evenhand.rules.criteria import DemographicParity
    >>> from evenhand.rules.system import write_out
    >>> claimed = claims(write_out(DemographicParity(), {"sex": ("F", "M")}), 0.05)
    >>> successes = np.array([[400, 399], [400, 392], [400, 370], [400, 400]])
    >>> fixed_sequence(claimed, successes, np.array([1000, 1000]))
    2
    """
    level = check_confidence(confidence)
    for passed, (counts, rows) in enumerate(zip(successes, np.broadcast_to(trials, successes.shape), strict=True)):
        if not all(claim.holds(counts, rows, level) for claim in claimed):
            return passed
    return len(successes)


@dataclass(frozen=True)
class Band:
    """Both sides of a constraint, each with the error that its tests may make."""

    lower: Claim
    upper: Claim
    lower_error: float
    upper_error: float

    def accepted(self, successes: Counts, trials: Counts) -> tuple[int, int]:
        """Return the first and the last certified rule of a path; there is none if first > last.

        Parameters
        ----------
        successes : array of int of shape (rules, events)
            How often each rule decides 1 within each event. Rules are ordered by the constraint's value as estimated
            before these rows were used, from low to high.
        trials : array of int of shape (events,)
            The number of rows in each event.

        Examples
        --------
        >>> import numpy as np
        >>> from evenhand.rules.certify import Band, claims
        >>> from evenhand.rules.criteria import DemographicParity
        >>> from evenhand.rules.system import write_out
        >>> upper, lower = claims(write_out(DemographicParity(), {"sex": ("F", "M")}), 0.1)
        >>> successes = np.array([[330, 400], [360, 400], [400, 400], [430, 400], [470, 400]])
        >>> Band(lower, upper, 0.025, 0.025).accepted(successes, np.array([1000, 1000]))
        (1, 3)
        """
        last = fixed_sequence([self.upper], successes, trials, 1.0 - self.upper_error) - 1
        first = len(successes) - fixed_sequence([self.lower], successes[::-1], trials, 1.0 - self.lower_error)
        return first, last

    def likely(self, successes: Counts, trials: Counts) -> tuple[int, int]:
        """Return approximately what ``accepted`` returns, quickly, with normal bounds."""
        n = trials[list(self.upper.events)]
        rates = (successes[:, list(self.upper.events)] + 1.0) / (n + 2.0)
        coefficients = np.array(self.upper.coefficients)
        errors = np.sqrt((coefficients**2 * rates * (1.0 - rates) / np.maximum(n, 1)).sum(axis=1))
        values = rates @ coefficients
        above = values + normal_quantile(1.0 - self.upper_error, one_sided=True) * errors > self.upper.limit
        below = -values + normal_quantile(1.0 - self.lower_error, one_sided=True) * errors > self.lower.limit
        last = int(np.argmax(above)) - 1 if above.any() else len(above) - 1
        first = len(below) - int(np.argmax(below[::-1])) if below.any() else 0
        return first, last


def share_error(rooms: FloatArray, outward: NDArray[np.int64], error: float) -> FloatArray:
    """Return the error of each side of each constraint; they sum to ``error``.

    If bands are narrow, each bound takes the same part of its half band, so that claims with few rows get most of the
    error. If they are wide, a side that the best rule stays away from gets just enough error that its bound takes 0.7
    of the half band, and the sides at which the best rule is share the rest.

    Parameters
    ----------
    rooms : array of shape (constraints,)
        Half of each constraint's band, in standard errors of its value.
    outward : array of int of shape (constraints,)
        The bound at which the best rule is: -1, 1, or 0 for neither.
    error : float
        The error to distribute.

    Returns
    -------
    array of shape (constraints, 2)
        The errors of the lower and the upper sides.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.rules.certify import share_error
    >>> share_error(np.array([2.5]), np.array([1]), 0.05).round(4).tolist()
    [[0.025, 0.025]]
    >>> share_error(np.array([4.0]), np.array([1]), 0.05).round(4).tolist()
    [[0.0026, 0.0474]]
    """
    low, high = 1e-6, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if 2.0 * special.ndtr(-rooms / middle).sum() < error else (low, middle)
    even = special.ndtr(-rooms / low)
    even = np.maximum(even * error / (2.0 * even.sum()), error / 1000.0)[:, None].repeat(2, axis=1)
    pressed = np.stack([outward < 0, outward > 0], axis=1)
    least = np.maximum(special.ndtr(-PART_OF_ROOM * rooms), error / 1000.0)[:, None]
    shares = np.minimum(even, least)
    if not pressed.any():
        return np.asarray(shares * (error / shares.sum()))
    rest = error - shares[~pressed].sum()
    return np.asarray(np.where(pressed, even * (rest / even[pressed].sum()), shares))


def even_quantiles(rooms: FloatArray, confidence: float) -> FloatArray:
    """Return the width of each bound in standard errors if the error is shared evenly."""
    shares = share_error(rooms, np.zeros(len(rooms), dtype=np.int64), 1.0 - confidence)
    quantiles: FloatArray = -special.ndtri(shares.min(axis=1))
    return quantiles


@dataclass(frozen=True)
class Shortfall:
    """What the counts do certify for a rule that failed.

    Attributes
    ----------
    claim : Claim
        The claim that is missed by the largest amount.
    bound : float
        The bound that can be certified for it.
    tolerance : float
        The requested tolerance.
    confidence : float
        The requested confidence.
    certifiable_tolerance : float or None
        The smallest tolerance that would be certified with that confidence; None if the missed bound has its own
        tolerance.
    highest_confidence : float or None
        The highest confidence at which the request would be certified; None if it is below one half.
    factor : float or None
        The factor by which the number of rows must grow to succeed four times in five. None if no number would do.
    rule : str
        Which rule was tested.
    """

    claim: Claim
    bound: float
    tolerance: float
    confidence: float
    certifiable_tolerance: float | None
    highest_confidence: float | None
    factor: float | None
    rule: str = "strictest"

    def error(self, system: System, have: Counts, certifying: int) -> InfeasibleError:
        """Return the error with these facts, given the number of rows of each event in both parts."""
        constraint, events = system.measured[self.claim.constraint], system.measured_events
        sign, word = (1.0, "at most") if self.claim.side == "upper" else (-1.0, "at least")
        text = (
            f"No rule is certified at tolerance {self.tolerance:g} with confidence {self.confidence:g}: the"
            f" {certifying} certifying rows show only that the {self.rule} rule's {constraint.name} is {word}"
            f" {sign * self.bound:.4g}, but {sign * self.claim.limit:.4g} is requested."
        )
        can = []
        if self.certifiable_tolerance is not None:
            can.append(f"tolerance {math.ceil(1e4 * self.certifiable_tolerance) / 1e4:g}")
        if self.highest_confidence is not None:
            can.append(f"confidence {math.floor(1e2 * self.highest_confidence) / 1e2:g}")
        if can:
            text += f" These rows can certify {' or '.join(can)}."
        rows = {_counted_text(event): int(count) for event, count in zip(events, have, strict=True)}
        needed = None
        if self.factor is not None:
            needed = {event: math.ceil(count * self.factor) for event, count in rows.items()}
            scarce = min((_counted_text(events[place]) for place in self.claim.events), key=rows.__getitem__)
            text += (
                f" The request takes about {needed[scarce]:,} rows with {scarce} (now {rows[scarce]:,}),"
                " and proportionally more of the others."
            )
        if system.plain and len(self.claim.events) == 2 and all(event.attribute is not None for event in events):
            text += (
                " Rules that select fewer rows need fewer rows to certify:"
                " add & evenhand.SelectionBudget(upper=0.1) to the criterion."
            )
        return InfeasibleError(
            text,
            smallest_tolerance=self.certifiable_tolerance,
            details={
                "constraint": constraint.name,
                "bound": sign * self.bound,
                "certifiable_tolerance": self.certifiable_tolerance,
                "highest_confidence": self.highest_confidence,
                "rows": rows,
                "rows_needed": needed,
            },
        )


def _counted_text(event: Event) -> str:
    """Return a description of the rows that are counted."""
    return str(event) + {"precision": ", selected", "npv": ", not selected"}.get(event.kind, "")


def shortfall(
    claimed: Sequence[Claim],
    successes: Counts,
    trials: Counts,
    anchors: Sequence[float],
    ratio: float,
    tolerance: float,
    confidence: float,
) -> Shortfall:
    """Return what can be certified for a rule that fails, and how many rows the request would take.

    The distance of a bound from where the rule was intended to be falls with the square root of the rows. It is the
    bound's width plus the disagreement between learning and certifying rows: that of this sample, or the one that is
    exceeded in one of five samples, if that is more.

    Parameters
    ----------
    claimed, trials, confidence
        As in :func:`fixed_sequence`.
    successes : array of int of shape (events,)
        The counts of the strictest rule of the ladder.
    anchors : sequence of float
        For each claim, the intended value of its combination.
    ratio : float
        The number of certifying rows over that of learning rows.
    tolerance : float
        The requested tolerance.
    """
    bounds = np.array([claim.bound(successes, trials, confidence) for claim in claimed])
    limits = np.array([claim.limit for claim in claimed])
    moving = np.array([claim.moving for claim in claimed])
    widths = bounds - [claim.estimate(successes, trials) for claim in claimed]
    errors = widths / normal_quantile(max(confidence, 0.6), one_sided=True) * math.sqrt(1.0 + ratio)
    distances = np.maximum(bounds - anchors, widths + normal_quantile(0.8) * errors)
    room = limits - np.array(anchors)
    factor = max(1.0, float((distances / room).max() ** 2)) if (room > 0.0).all() else None
    smallest = None
    if moving.any() and (bounds <= limits)[~moving].all():
        smallest = tolerance + float((bounds - limits)[moving].max())
    worst = int(np.argmax(bounds - limits))
    highest = _highest_confidence(claimed, successes, trials, confidence)
    return Shortfall(claimed[worst], float(bounds[worst]), tolerance, confidence, smallest, highest, factor)


def _highest_confidence(claimed: Sequence[Claim], successes: Counts, trials: Counts, confidence: float) -> float | None:
    def passes(level: float) -> bool:
        return fixed_sequence(claimed, successes[None], trials, level) == 1

    low, high = 0.5, confidence
    if high <= low or not passes(low):
        return None
    while high - low > 0.005:
        middle = (low + high) / 2.0
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low
