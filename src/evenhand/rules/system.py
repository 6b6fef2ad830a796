"""A criterion written out for given groups: events, bounds, and the independent contrasts that span them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.rules.criteria import AttributeKey, Constraint, Criterion, Event, Groups, event_names


@dataclass(frozen=True, eq=False)
class System:
    """A criterion written out for given groups: its events, its bounds, and the contrasts that span them.

    Attributes
    ----------
    events : tuple of Event
        The events that the bounds speak of, in order of appearance.
    constraints : tuple of Constraint
        The bounds.
    contrasts : array of shape (K, events)
        The first linearly independent rows of the constraint matrix: the paper's scores are theirs.
    mixing : array of shape (constraints, K)
        Each constraint as a combination of the contrasts.
    names : tuple of str
        The events in words, no two alike.
    """

    events: tuple[Event, ...]
    constraints: tuple[Constraint, ...]
    contrasts: FloatArray
    mixing: FloatArray
    names: tuple[str, ...]

    def bounds(self, tolerances: Iterable[float]) -> tuple[FloatArray, FloatArray]:
        """Return the lower and the upper bounds, one row for each tolerance."""
        pairs = np.array([[bound.bounds(t) for bound in self.constraints] for t in tolerances])
        return np.ascontiguousarray(pairs[:, :, 0]), np.ascontiguousarray(pairs[:, :, 1])

    @cached_property
    def matrix(self) -> FloatArray:
        """The constraints over the events, of shape (constraints, events)."""
        found: FloatArray = self.mixing @ self.contrasts
        return found

    @property
    def attributes(self) -> tuple[AttributeKey, ...]:
        """The attributes whose groups are compared, in order of appearance."""
        return tuple(dict.fromkeys(event.attribute for event in self.events if event.attribute is not None))

    @property
    def moving(self) -> NDArray[np.bool_]:
        """Which bounds are the caller's tolerance, rather than their own."""
        return np.array([bound.tolerance is None for bound in self.constraints])

    @property
    def moves(self) -> bool:
        """Whether the caller's tolerance has any effect on the bounds."""
        return bool(self.moving.any())


def write_out(criterion: Criterion, groups: Groups) -> System:
    """Return the criterion's events, bounds and contrasts for attributes with these groups.

    Examples
    --------
    >>> from evenhand.rules.criteria import DemographicParity
    >>> from evenhand.rules.system import write_out
    >>> system = write_out(DemographicParity(), {"region": ("a", "b", "c", "d", "e")})
    >>> len(system.constraints), len(system.contrasts)
    (10, 4)
    """
    constraints = criterion.constraints(groups)
    events = tuple(dict.fromkeys(event for bound in constraints for event, _ in bound.terms))
    position = {event: index for index, event in enumerate(events)}
    matrix = np.zeros((len(constraints), len(events)))
    for row, bound in zip(matrix, constraints, strict=True):
        for event, coefficient in bound.terms:
            row[position[event]] += coefficient
    basis = _independent_rows(matrix)
    contrasts = matrix[basis]
    mixing = np.linalg.lstsq(contrasts.T, matrix.T, rcond=None)[0].T
    mixing = np.where(np.abs(mixing - np.round(mixing)) < 1e-9, np.round(mixing), mixing) + 0.0
    names = tuple(event_names(events, groups).values())
    return System(events, constraints, contrasts, np.ascontiguousarray(mixing), names)


def _independent_rows(matrix: FloatArray) -> list[int]:
    chosen: list[int] = []
    orthogonal: list[FloatArray] = []
    for index, row in enumerate(matrix):
        rest = row.copy()
        for _ in range(2):
            for direction in orthogonal:
                rest -= (rest @ direction) * direction
        size = np.linalg.norm(rest)
        if size > 1e-9 * max(1.0, float(np.linalg.norm(row))):
            chosen.append(index)
            orthogonal.append(rest / size)
    return chosen
