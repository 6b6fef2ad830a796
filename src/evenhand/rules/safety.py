"""Tightened bounds, so that a rule that meets them here is likely to meet the requested bounds on new rows.

A rule learnt at the tolerance uses all of it, and exceeds it on new rows about half of the time. With ``safety=s``
each bound is tightened by s standard errors of its constraint's value, but by at most half of the distance from its
centre: a tolerance t becomes max(t - s * error, t / 2). More safety than that requires more rows.

The standard error of a combination ``sum_e c_e rate_e`` is the root of ``sum_e c_e^2 r_e (1 - r_e) / n_e``. The rule is
not known before it is learnt, but a fair rule has similar rates in all groups. So r_e is the rate of the model's own
decisions over all groups with the event's label, in its stratum; for a bound on a single rate it is the bound. n_e is
the number of rows in the event, and with weights Kish's effective number. A floor on precision may move the groups'
rates far from the model's own: for it, r_e is the rate of the best rule within the requested bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.arguments import is_number, shown
from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.rules.system import System
from evenhand.text import printable

MOST_NAMED = 3
MOST = 100.0
# Coefficients whose sum is smaller than this compare rates with each other.
ZERO_SUM = 1e-12


def check_safety(safety: Any) -> float:
    """Return a number of standard errors, or raise."""
    if not is_number(safety) or not 0.0 <= safety <= MOST:
        raise InputError(
            f"safety must be a number of standard errors from 0 to {MOST:g}, such as 1.0; got {shown(safety)}."
        )
    return float(safety)


@dataclass(frozen=True)
class ThinCell:
    """An event with too few rows for a tolerance.

    Attributes
    ----------
    event : str
        The event in words.
    rows : int
        Its number of rows; with weights, the effective number.
    standard_error : float
        The standard error of its rate.
    room : float
        The distance of a bound from its centre: the tolerance.
    rows_needed : int
        About how many rows are needed; if the events that it is compared with have too few as well, of each.
    """

    event: str
    rows: int
    standard_error: float
    room: float
    rows_needed: int

    def __str__(self) -> str:
        error, room = _points(self.standard_error), _points(self.room)
        return (
            f"{self.rows:,} rows with {printable(self.event)}: the rate's standard error is {error}, so {room} cannot"
            f" be ensured; about {self.rows_needed:,} are needed"
        )


@dataclass(frozen=True, eq=False)
class Safety:
    """How far each bound of a system is tightened.

    Attributes
    ----------
    system : System
        The constraints.
    errors : float
        The number of standard errors.
    rates : array of shape (events,)
        The rate that determines each event's standard error.
    counts : array of shape (events,)
        The effective number of rows in each event.
    alike : array of shape (events,), default=None
        The rates of all groups together, at which groups are equal; None: ``rates``.
    """

    system: System
    errors: float
    rates: FloatArray
    counts: FloatArray
    alike: FloatArray | None = None

    @classmethod
    def of(
        cls,
        system: System,
        errors: float,
        *,
        chosen: FloatArray,
        shares: FloatArray,
        priors: FloatArray,
        counts: FloatArray,
        pooled: bool = True,
    ) -> Safety:
        """Return the safety of some rows, from the model's own decisions on them.

        Parameters
        ----------
        system : System
            The constraints.
        errors : float
            The number of standard errors.
        chosen : array of shape (n,)
            The model's own decisions, 0 or 1.
        shares : array of shape (n, events)
            Each row's share in the rate of each event.
        priors, counts : arrays of shape (events,)
            The share of the rows in each event, and their effective number.
        pooled : bool, default=True
            Whether the groups' rates are assumed to be equal.
        """
        own = chosen @ shares
        alike = np.empty_like(own)
        kinds = [(event.label, event.stratum) for event in system.events]
        for kind in dict.fromkeys(kinds):
            like = np.array([other == kind for other in kinds])
            mean, n = float(np.average(own[like], weights=priors[like])), float(counts[like].sum())
            alike[like] = (mean * n + 1.0) / (n + 2.0)
        return cls(system, errors, alike if pooled else (own * counts + 1.0) / (counts + 2.0), counts, alike)

    def draw_in(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the tightened bounds; both have shape (steps, constraints).

        Examples
        --------
        >>> import numpy as np
        >>> from evenhand.rules.criteria import DemographicParity
        >>> from evenhand.rules.safety import Safety
        >>> from evenhand.rules.system import write_out
        >>> system = write_out(DemographicParity(), {"sex": ("F", "M")})
        >>> safety = Safety(system, 1.0, np.array([0.5, 0.5]), np.array([2500.0, 10_000.0]))
        >>> lower, upper = safety.draw_in(*system.bounds([0.02, 0.05]))
        >>> upper.round(4).ravel().tolist()
        [0.01, 0.0388]
        """
        below, above = self._room(lower, upper)
        return (
            lower + np.minimum(self.errors * self._errors_at(lower), below / 2.0),
            upper - np.minimum(self.errors * self._errors_at(upper), above / 2.0),
        )

    def _room(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return how far each bound is from the centre of its constraint.

        A comparison is centred where all rates are equal, a single rate in the middle of its allowed range. A precision
        or an accuracy of one group is a sum of rates: it is centred at their present value, if that is allowed.
        """
        matrix = self.system.matrix
        least, most = np.minimum(matrix, 0.0).sum(axis=1), np.maximum(matrix, 0.0).sum(axis=1)
        low, high = np.maximum(lower, least), np.minimum(upper, most)
        equal = self._equal()
        compared = (np.count_nonzero(matrix, axis=1) > 1) & (low <= equal) & (equal <= high)
        centre = np.where(compared, equal, (low + high) / 2.0)
        return np.maximum(centre - low, 0.0), np.maximum(high - centre, 0.0)

    def _equal(self) -> FloatArray:
        """Return the value of each constraint where all groups have equal rates."""
        matrix = self.system.matrix
        found: FloatArray = matrix @ self.rates
        for k, bound in enumerate(self.system.measured):
            if len(bound.terms) < 2:
                continue
            if all(event.kind == "selection" for event, _ in bound.terms):
                found[k] = matrix[k] @ (self.rates if self.alike is None else self.alike)
            elif abs(sum(coefficient for _, coefficient in bound.terms)) < ZERO_SUM:
                # Equal rates for each label are not equal accuracies, because shares of labels differ between groups.
                found[k] = -self.system.shift[k]
        return found

    def _errors_at(self, bounds: FloatArray) -> FloatArray:
        """Return the standard error of each constraint's value at its bound."""
        matrix = self.system.matrix
        variances = np.tile(self._variances(self.rates), (len(bounds), 1)) @ (matrix**2).T
        for at in np.flatnonzero(np.count_nonzero(matrix, axis=1) == 1):
            event = int(np.flatnonzero(matrix[at])[0])
            rate = np.clip(bounds[:, at] / matrix[at, event], 0.0, 1.0)
            shrunk = (rate * self.counts[event] + 1.0) / (self.counts[event] + 2.0)
            variances[:, at] = matrix[at, event] ** 2 * shrunk * (1.0 - shrunk) / self.counts[event]
        errors: FloatArray = np.sqrt(variances)
        return errors

    def _variances(self, rates: FloatArray) -> FloatArray:
        variances: FloatArray = rates * (1.0 - rates) / self.counts
        return variances

    def thin_cells(self, tolerance: float) -> list[ThinCell]:
        """Return the events with too few rows for a tolerance, the one with the fewest first."""
        lower, upper = self.system.bounds([tolerance])
        below, above = (room[0] for room in self._room(lower, upper))
        matrix = self.system.matrix
        found: dict[int, ThinCell] = {}
        for bounds, rooms in ((lower, below), (upper, above)):
            errors = self._errors_at(bounds)[0]
            for at in np.flatnonzero(np.isfinite(bounds[0]) & (self.errors * errors > rooms / 2.0) & (rooms > 0.0)):
                parts = matrix[at] ** 2 * self._variances(self.rates)
                event = int(np.argmax(parts))
                if np.count_nonzero(matrix[at]) == 1:
                    parts[event] = errors[at] ** 2
                cell = ThinCell(
                    self.system.names[event],
                    round(float(self.counts[event])),
                    float(np.sqrt(parts[event]) / abs(matrix[at, event])),
                    float(rooms[at]),
                    about(self._rows_needed(parts, event, (rooms[at] / (2.0 * self.errors)) ** 2)),
                )
                if event not in found or cell.rows_needed > found[event].rows_needed:
                    found[event] = cell
        return sorted(found.values(), key=lambda cell: cell.rows)

    def _rows_needed(self, parts: FloatArray, event: int, limit: float) -> float:
        """Return how many rows of an event reduce a constraint's variance to a limit."""
        limit = max(limit, 1e-12)
        others = float(parts.sum() - parts[event])
        if others < limit / 2.0:
            return float(self.counts[event] * parts[event]) / (limit - others)
        return float((self.counts * parts).sum()) / limit

    def to_dict(self, tolerance: float) -> dict[str, Any]:
        """Return, as plain data, what a rule records about its safety."""
        return {
            "standard_errors": self.errors,
            "thin_cells": [vars(cell) for cell in self.thin_cells(tolerance)],
        }


def _points(share: float) -> str:
    text = f"{100.0 * share:.2g}"
    return f"{text} point{'' if text == '1' else 's'}"


def about(rows: float) -> int:
    """Return a number of rows rounded up to two digits."""
    unit = 10 ** max(0, len(str(int(rows))) - 2)
    return int(-(-rows // unit) * unit)


def thin_text(cells: Sequence[ThinCell]) -> str:
    """Return a sentence about the cells with too few rows."""
    more = len(cells) - MOST_NAMED
    named = "; ".join(str(cell) for cell in cells[:MOST_NAMED])
    rest = f"; and {more} more" if more > 0 else ""
    return (
        f"Too few rows for this tolerance: {named}{rest}. The rule was learnt within half of the tolerance, which is"
        " the limit of safety."
    )
