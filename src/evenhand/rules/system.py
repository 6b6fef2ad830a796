"""A criterion expanded for given groups: events, bounds, and the independent contrasts that span them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.rules.constraints import Constraint, check_linear, sum_text
from evenhand.rules.criteria import Criterion
from evenhand.rules.criterion import Level, single
from evenhand.rules.events import AttributeKey, Event, Groups, event_names

SMALLEST_SHARE = 1e-12
Shares = Mapping[tuple[AttributeKey | None, Hashable], float]


@dataclass(frozen=True, eq=False)
class System:
    """A criterion expanded for given groups: its events, its bounds, and the contrasts that span them.

    Attributes
    ----------
    events : tuple of Event
        The events in the bounds, in order of appearance.
    constraints : tuple of Constraint
        The bounds.
    contrasts : array of shape (K, events)
        The first linearly independent rows of the constraint matrix, which define the paper's scores.
    mixing : array of shape (constraints, K)
        Each constraint as a combination of the contrasts.
    names : tuple of str
        A unique text for each event.
    shift : array of shape (constraints,)
        The constant of each constraint's value, besides the combination of rates.
    measured : tuple of Constraint
        The bounds in the criterion's own terms, one for each of ``constraints``: for example on precision, instead of
        on the rates that determine it.
    matrix : array of shape (constraints, events)
        The constraints over the events.
    levels : tuple of Level
        The criterion's open levels; the constraints are then those at some levels.
    """

    events: tuple[Event, ...]
    constraints: tuple[Constraint, ...]
    contrasts: FloatArray
    mixing: FloatArray
    names: tuple[str, ...]
    shift: FloatArray
    measured: tuple[Constraint, ...]
    matrix: FloatArray
    levels: tuple[Level, ...] = ()

    def bounds(self, tolerances: Iterable[float]) -> tuple[FloatArray, FloatArray]:
        """Return the lower and the upper bounds of the combinations of rates, one row for each tolerance."""
        pairs = np.array([[bound.bounds(t) for bound in self.constraints] for t in tolerances])
        return (
            np.ascontiguousarray(pairs[:, :, 0] - self.shift),
            np.ascontiguousarray(pairs[:, :, 1] - self.shift),
        )

    def __str__(self) -> str:
        return "\n".join(map(str, self.constraints))

    @property
    def plain(self) -> bool:
        """Whether the bounds are already on rates of positive decisions in the criterion's own terms."""
        return self.constraints == self.measured

    @property
    def measured_events(self) -> tuple[Event, ...]:
        """The events in the ``measured`` bounds, in order of appearance."""
        return tuple(dict.fromkeys(event for bound in self.measured for event, _ in bound.terms))

    @property
    def attributes(self) -> tuple[AttributeKey, ...]:
        """The attributes whose groups are compared, in order of appearance."""
        return tuple(dict.fromkeys(event.attribute for event in self.events if event.attribute is not None))

    @property
    def moving(self) -> NDArray[np.bool_]:
        """A mask of the bounds that depend on the caller's tolerance."""
        return np.array([bound.tolerance is None for bound in self.constraints])

    @property
    def moves(self) -> bool:
        """Whether the caller's tolerance affects any bound."""
        return bool(self.moving.any()) or any(level.moving for level in self.levels)

    def spanned_by(self, contrasts: FloatArray) -> System:
        """Return the same bounds with other contrasts; ``mixing`` is then the closest combination of these."""
        mixing = np.linalg.lstsq(contrasts.T, self.matrix.T, rcond=None)[0].T
        return replace(self, contrasts=contrasts, mixing=np.ascontiguousarray(mixing))


def write_out(criterion: Criterion, groups: Groups, shares: Shares | None = None) -> System:
    """Return the criterion's events, bounds and contrasts for attributes with these groups.

    Parameters
    ----------
    criterion : Criterion
        The fairness criterion.
    groups : dict of tuples
        Each attribute's groups.
    shares : dict of (attribute, group) to float, default=None
        The share of positive labels in each group. Bounds on precision, negative predictive value and accuracy depend
        on it. ``None`` uses one half, which is enough to list the events.

    Examples
    --------
    >>> from evenhand.rules.criteria import DemographicParity, MinimumRate
    >>> from evenhand.rules.system import write_out
    >>> system = write_out(DemographicParity(), {"region": ("a", "b", "c", "d", "e")})
    >>> len(system.constraints), len(system.contrasts)
    (10, 4)
    >>> print(write_out(MinimumRate("precision", 0.8), {"sex": ("F", "M")}, {("sex", "F"): 0.25, ("sex", "M"): 0.5}))
    0 <= 0.05 rate(sex=F, Y=1) - 0.6 rate(sex=F, Y=0)
    0 <= 0.1 rate(sex=M, Y=1) - 0.4 rate(sex=M, Y=0)
    """
    levels = criterion.levels(groups)
    if levels:
        criterion = criterion.at(single(dict.fromkeys(levels, 0.5)), 0.0)
    measured = criterion.constraints(groups)
    linear = [_linear(bound, shares) for bound in measured]
    constraints, shift = tuple(bound for bound, _ in linear), np.array([constant for _, constant in linear])
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
    combined: FloatArray = np.ascontiguousarray(mixing, dtype=np.float64)
    return System(events, constraints, contrasts, combined, names, shift, measured, combined @ contrasts, levels)


def _linear(bound: Constraint, shares: Shares | None) -> tuple[Constraint, float]:
    """Return a bound in terms of rates of positive decisions, and the constant of its sum.

    With the share s of positive labels in a group, and the rates r1 and r0 of positive decisions among its positive and
    negative labels: accuracy is ``s r1 - (1 - s) r0 + (1 - s)``; precision is at least q where
    ``(1 - q) s r1 - q (1 - s) r0 >= 0``; the negative predictive value is at least q where
    ``(1 - s) (1 - q) (1 - r0) - q s (1 - r1) >= 0``.
    """
    if all(event.kind == "selection" for event, _ in bound.terms):
        return bound, 0.0
    check_linear(bound)
    terms, constant = [], 0.0
    lower, upper = bound.lower, bound.upper
    for event, coefficient in bound.terms:
        if event.kind == "selection":
            terms.append((event, coefficient))
            continue
        negative, positive = event.by_label
        share = 0.5 if shares is None else shares[event.attribute, event.group]
        if event.kind == "accuracy":
            terms += [(positive, coefficient * share), (negative, -coefficient * (1.0 - share))]
            constant += coefficient * (1.0 - share)
            continue
        low, high = (end / coefficient for end in bound.bounds(0.0))
        level = low if np.isfinite(low) else high
        if event.kind == "precision":
            terms += [(positive, (1.0 - level) * share), (negative, -level * (1.0 - share))]
        else:
            terms += [(positive, level * share), (negative, -(1.0 - level) * (1.0 - share))]
            constant += (1.0 - share) * (1.0 - level) - level * share
        rising = np.isfinite(bound.lower) == (coefficient > 0.0)
        lower, upper = (0.0, np.inf) if rising else (-np.inf, 0.0)
    exact = 0.0 if {"precision", "npv"} & {event.kind for event, _ in bound.terms} else bound.tolerance
    name = sum_text(terms) + (f" {'-' if constant < 0.0 else '+'} {abs(constant):g}" if constant else "")
    return Constraint(name, tuple(terms), lower, upper, exact), constant


def rate_of(event: Event, rates: Mapping[Event, float], shares: Shares) -> float:
    """Return the value of an event, from the rates of positive decisions; NaN if it has no rows."""
    if event.kind == "selection":
        return rates[event]
    negative, positive = event.by_label
    share = shares[event.attribute, event.group]
    true_positive, false_positive = share * rates[positive], (1.0 - share) * rates[negative]
    if event.kind == "accuracy":
        return true_positive + 1.0 - share - false_positive
    hit, miss = true_positive, false_positive
    if event.kind == "npv":
        hit, miss = 1.0 - share - false_positive, share - true_positive
    return hit / (hit + miss) if hit + miss > SMALLEST_SHARE else np.nan


def shares_of(priors: Mapping[Event, float]) -> dict[tuple[AttributeKey | None, Hashable], float]:
    """Return the share of positive labels in each group, from the shares of the events among all rows."""
    found = {}
    for event, prior in priors.items():
        if event.label == 1 and event.by_label[0] in priors:
            found[event.attribute, event.group] = prior / (prior + priors[event.by_label[0]])
    return found


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
