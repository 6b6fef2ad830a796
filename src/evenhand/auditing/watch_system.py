"""The rates of a watch: the criterion expanded for the groups so far, each rate's part of the error, and sequences."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.findings import Estimate
from evenhand.auditing.watch_counts import strata_among
from evenhand.inputs import FloatArray
from evenhand.rules.constraints import Constraint
from evenhand.rules.criteria import Composite, Criterion
from evenhand.rules.events import AttributeKey, Event, Stratified, base_of
from evenhand.rules.rate_bounds import LinearConstraint
from evenhand.statistics.sequences import linear_sequences

_UNKNOWN = Estimate(None, 0.0, 1.0)


@dataclass(frozen=True)
class Planned:
    """A part of the criterion on one attribute that gets a verdict, and the labels that it conditions on.

    ``labels`` has every attribute of the part's rates: a sum of rates may have several. ``named`` are the groups that
    the part itself names; other parts apply to any groups.
    """

    criterion: Criterion
    attribute: AttributeKey | None
    labels: Mapping[AttributeKey | None, frozenset[int | None]]
    named: Mapping[AttributeKey, frozenset[Hashable]]
    example: Constraint

    def constraints(self, groups: Mapping[AttributeKey, tuple[Hashable, ...]]) -> list[Constraint]:
        """Return the part's bounds for the groups that occurred; none while groups are missing."""
        if self.named:
            known = all(members <= set(groups.get(key, ())) for key, members in self.named.items())
            return list(self.criterion.constraints(groups)) if known else []
        several = {key: members for key, members in groups.items() if len(groups[base_of(key)]) > 1}
        if self.attribute is not None and self.attribute not in several:
            return []
        written = self.criterion.constraints(several)
        return [bound for bound in written if bound.terms[0][0].attribute == self.attribute]


def plan(criterion: Criterion, attributes: Sequence[AttributeKey]) -> list[Planned]:
    """Return the parts that will get a verdict, for any groups."""
    found = []
    any_groups: dict[AttributeKey, tuple[Hashable, ...]] = {
        key: (("s", "a"), ("s", "b")) if isinstance(key, Stratified) else ("a", "b") for key in attributes
    }
    for part in criterion.parts if isinstance(criterion, Composite) else (criterion,):
        named = _named(part)
        pairs = any_groups | {key: tuple(members) for key, members in named.items() if key in any_groups}
        by_attribute: dict[AttributeKey | None, list[Constraint]] = {}
        for bound in part.constraints(pairs):
            by_attribute.setdefault(bound.terms[0][0].attribute, []).append(bound)
        for attribute, bounds in by_attribute.items():
            labels: dict[AttributeKey | None, frozenset[int | None]] = {}
            for event in (event for bound in bounds for event, _ in bound.terms):
                labels[event.attribute] = labels.get(event.attribute, frozenset()) | {event.label}
            found.append(Planned(part, attribute, labels, named, bounds[0]))
    return found


def _named(part: Criterion) -> dict[AttributeKey, frozenset[Hashable]]:
    """Return the groups that a criterion itself names, by attribute."""
    found: dict[AttributeKey, frozenset[Hashable]] = {}
    for event, _ in part.terms if isinstance(part, LinearConstraint) else ():
        if event.attribute is not None:
            found[event.attribute] = found.get(event.attribute, frozenset()) | {event.group}
    return found


@dataclass(frozen=True, eq=False)
class System:
    """The plan expanded for given groups: bounds, their events, and each event's share of the error.

    ``parts`` maps bounds to verdicts; it is empty while an attribute has fewer than two groups, or a group that the
    criterion names did not occur yet.
    """

    cells: int
    planned: tuple[Planned, ...]
    parts: tuple[slice, ...]
    bounds: tuple[Constraint, ...]
    events: tuple[Event, ...]
    matrix: FloatArray
    shares: FloatArray

    @classmethod
    def of(
        cls,
        planned: Sequence[Planned],
        groups: Mapping[AttributeKey, tuple[Hashable, ...]],
        given: Declared,
        cells: int,
    ) -> System:
        """Expand the plan; ``given`` is what was known from the start."""
        bounds: list[Constraint] = []
        parts = []
        for part in planned:
            before = len(bounds)
            bounds += part.constraints(groups)
            parts.append(slice(before, len(bounds)))
        events = tuple(dict.fromkeys(event for bound in bounds for event, _ in bound.terms))
        position = {event: place for place, event in enumerate(events)}
        matrix = np.zeros((len(bounds), len(events)))
        for row, bound in zip(matrix, bounds, strict=True):
            for event, coefficient in bound.terms:
                row[position[event]] += coefficient
        labels: dict[AttributeKey | None, frozenset[int | None]] = {}
        for part in planned:
            for attribute, conditioned in part.labels.items():
                labels[attribute] = labels.get(attribute, frozenset()) | conditioned
        shares = np.array(
            [_group_share(event, groups, given) / (len(labels) * len(labels[event.attribute])) for event in events]
        )
        return cls(cells, tuple(planned), tuple(parts), tuple(bounds), events, matrix, shares)


@dataclass(frozen=True)
class Declared:
    """What was known from the start: the attributes whose groups were given, and the strata of each column."""

    attributes: frozenset[AttributeKey]
    strata: Mapping[str, tuple[Hashable, ...]]


def _group_share(event: Event, groups: Mapping[AttributeKey, tuple[Hashable, ...]], given: Declared) -> float:
    """Return the share of an event's group, and of its stratum, in its attribute's error."""
    key = event.attribute
    if key is None:
        return 1.0
    if not isinstance(key, Stratified):
        return _share(event.group, groups[key], equal=key in given.attributes)
    assert isinstance(event.group, tuple)
    stratum, group = event.group
    known = given.strata.get(key.within)
    share = _share(stratum, strata_among(groups[key]) if known is None else known, equal=known is not None)
    return share * _share(group, groups[key.attribute], equal=key.attribute in given.attributes)


def _share(member: Hashable, members: Sequence[Hashable], *, equal: bool) -> float:
    """Return an equal share, or 1/2, 1/6, 1/12, ... in order of occurrence: the sum is at most 1."""
    place = members.index(member) + 1
    return 1.0 / len(members) if equal else 1.0 / (place * (place + 1))


@dataclass(frozen=True, eq=False)
class Sequences:
    """Combinations of rates at one time: values (NaN if a rate has no rows) and interval ends."""

    values: FloatArray
    lower: FloatArray
    upper: FloatArray

    @classmethod
    def of(cls, matrix: FloatArray, counts: FloatArray, errors: FloatArray) -> Sequences:
        """Return them from rows and positive decisions, of shape (2, rates)."""
        trials, successes = counts
        values, lower, upper = linear_sequences(matrix, successes, trials, errors)
        return cls(np.where(np.abs(matrix) @ (trials == 0.0) > 0.0, np.nan, values), lower, upper)

    def estimate(self, place: int) -> Estimate:
        """Return one combination."""
        value = float(self.values[place])
        return Estimate(None if np.isnan(value) else value, float(self.lower[place]), float(self.upper[place]))

    def distance(self, bounds: Sequence[Constraint], part: NDArray[np.intp]) -> Estimate:
        """Return how far the farthest of some combinations is outside its bounds."""
        if not len(part):
            return _UNKNOWN
        floor, ceiling = (np.array([getattr(bounds[k], end) for k in part]) for end in ("lower", "upper"))
        values, lower, upper = self.values[part], self.lower[part], self.upper[part]
        outside = np.maximum(np.maximum(floor - values, values - ceiling), 0.0)
        known = outside[~np.isnan(outside)]
        least = np.maximum(floor - upper, lower - ceiling).max()
        most = np.maximum(floor - lower, upper - ceiling).max()
        return Estimate(float(known.max()) if known.size else None, max(float(least), 0.0), max(float(most), 0.0))
