"""The base class of fairness criteria, their conjunction, and the checks that they share.

A criterion determines which linear combinations of group rates are bounded, and how. It does not depend on
probabilities or rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evenhand.arguments import check_label, is_number, shown
from evenhand.errors import InputError
from evenhand.inputs import EDGE_SLACK
from evenhand.rules.constraints import Constraint
from evenhand.rules.events import AttributeKey, Event, Groups, Intersection, Kind, Stratified, event_to_dict


class Level(NamedTuple):
    """A number that makes a criterion linear once it is fixed, such as the common precision of all groups.

    ``attribute`` and ``members`` are set if the groups that are compared share a level: those of an attribute, or
    of one stratum. ``moving`` tells whether the caller's tolerance affects the bounds.
    """

    part: Criterion
    attribute: AttributeKey | None = None
    moving: bool = False
    members: tuple[Hashable, ...] = ()

    @property
    def events(self) -> list[Event]:
        """The events whose rates share the level."""
        (kind,) = self.part.kinds
        assert self.attribute is not None
        return [Event(self.attribute, group, None, kind) for group in self.members]


Ranges = Mapping[Level, tuple[float, float]]


def single(values: Mapping[Level, float]) -> Ranges:
    """Return ranges at which, with a caller's tolerance of 0, floors and ceilings coincide for each level."""
    return {
        level: (value, value if (own := level.part.tolerance) is None else value - own)
        for level, value in values.items()
    }


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """The base class of criteria: an attribute and an optional tolerance.

    Parameters
    ----------
    attribute : str, Intersection or None, default=None
        The attribute; ``None`` means each attribute in the data.
    tolerance : float or None, default=None
        The tolerance of this criterion; ``None`` uses the tolerance of the fit.
    """

    attribute: AttributeKey | None = None
    tolerance: float | None = None

    needs_joint: ClassVar[bool] = False
    has_levels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.attribute, str | Intersection | None):
            raise InputError(f"attribute must be a name, an Intersection or None; got {shown(self.attribute)}.")
        if self.tolerance is not None:
            check_tolerance(self.tolerance)

    def __and__(self, other: object) -> Criterion:
        if not isinstance(other, Criterion):
            return NotImplemented
        return Composite(parts=(*_parts(self), *_parts(other)))

    @property
    def kinds(self) -> frozenset[Kind]:
        """What its rates count: positive decisions, unless it is about precision, for example."""
        return frozenset(["selection"])

    @property
    def intersections(self) -> tuple[Intersection, ...]:
        """The crossed attributes that this criterion uses."""
        return (self.attribute,) if isinstance(self.attribute, Intersection) else ()

    @property
    def strata(self) -> tuple[str, ...]:
        """The columns that define the strata."""
        return ()

    @property
    def unstratified(self) -> Criterion:
        """The same criterion over all rows, without strata."""
        return self

    def stratified(self, groups: Groups) -> tuple[Stratified, ...]:
        """Return the attributes that are compared within strata, given the attributes in the data."""
        return ()

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return the bounds, for attributes with these groups."""
        raise NotImplementedError

    def reported(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return the bounds whose values a rule reports: the criterion's, unless they are only found in a fit."""
        return self.constraints(groups)

    def levels(self, groups: Groups) -> tuple[Level, ...]:
        """Return the levels that must be fixed to make the bounds linear in the decisions; most criteria have none."""
        return ()

    def at(self, ranges: Ranges, tolerance: float) -> Criterion:
        """Return linear bounds that hold for every rule that meets the criterion with its levels in these ranges.

        If every range is a single number, the rules that meet the bounds also meet the criterion.
        """
        return self

    def _attributes(self, groups: Groups) -> tuple[AttributeKey, ...]:
        check_groups(groups)
        if self.attribute is None:
            plain = tuple(name for name in groups if isinstance(name, str))
            if not plain:
                raise InputError(
                    "The criterion applies to single attributes, but there are only crossed ones,"
                    f" {list(groups)!r}: name one with attribute=Intersection(...)."
                )
            return plain
        if self.attribute not in groups:
            raise InputError(f"The criterion names the attribute {self.attribute!r}; the data has {list(groups)!r}.")
        return (self.attribute,)

    def to_dict(self) -> dict[str, Any]:
        """Return the criterion as plain data, for JSON."""
        data: dict[str, Any] = {"type": type(self).__name__}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Intersection):
                value = {"intersection": list(value.attributes)}
            elif field.name == "parts":
                value = [part.to_dict() for part in value]
            elif field.name == "terms":
                value = [event_to_dict(event, coefficient) for event, coefficient in value]
            elif value is None or value in (-np.inf, np.inf):
                continue
            data[field.name] = value
        return data


def _parts(criterion: Criterion) -> tuple[Criterion, ...]:
    return criterion.parts if isinstance(criterion, Composite) else (criterion,)


@dataclass(frozen=True, kw_only=True)
class Composite(Criterion):
    """Several criteria at once; written ``first & second``."""

    parts: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.parts, tuple) or not self.parts or not all(isinstance(p, Criterion) for p in self.parts):
            raise InputError("A composite consists of criteria: write first & second.")

    @property
    def kinds(self) -> frozenset[Kind]:
        """What the parts' rates count."""
        return frozenset(kind for part in self.parts for kind in part.kinds)

    @property
    def needs_joint(self) -> bool:  # type: ignore[override]
        """Whether any part needs p(Y, A | x)."""
        return any(part.needs_joint for part in self.parts)

    @property
    def has_levels(self) -> bool:  # type: ignore[override]
        """Whether any part is linear only once a level is known."""
        return any(part.has_levels for part in self.parts)

    @property
    def intersections(self) -> tuple[Intersection, ...]:
        """The crossed attributes that the parts use."""
        return tuple(dict.fromkeys(crossed for part in self.parts for crossed in part.intersections))

    @property
    def strata(self) -> tuple[str, ...]:
        """The columns that define strata in some part."""
        return tuple(dict.fromkeys(column for part in self.parts for column in part.strata))

    @property
    def unstratified(self) -> Criterion:
        """The same criterion over all rows, without strata."""
        return Composite(parts=tuple(part.unstratified for part in self.parts))

    def stratified(self, groups: Groups) -> tuple[Stratified, ...]:
        """Return the attributes that a part compares within strata."""
        return tuple(dict.fromkeys(key for part in self.parts for key in part.stratified(groups)))

    def reported(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return the bounds of all parts whose values a rule reports."""
        return tuple(dict.fromkeys(bound for part in self.parts for bound in part.reported(groups)))

    def levels(self, groups: Groups) -> tuple[Level, ...]:
        """Return the levels of all parts."""
        return tuple(dict.fromkeys(level for part in self.parts for level in part.levels(groups)))

    def at(self, ranges: Ranges, tolerance: float) -> Criterion:
        """Return all parts at these levels."""
        return Composite(parts=tuple(one for part in self.parts for one in _parts(part.at(ranges, tolerance))))

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return the bounds of all parts, without duplicates."""
        return tuple(dict.fromkeys(bound for part in self.parts for bound in part.constraints(groups)))


def check_several(attribute: AttributeKey, groups: Groups) -> None:
    """Raise if an attribute has fewer than two groups."""
    if len(groups[attribute]) < 2:
        has = f"only the group {groups[attribute][0]!r}" if len(groups[attribute]) else "no group"
        raise InputError(f"The attribute {attribute!r} has {has}: comparing groups needs at least two.")


def check_groups(groups: Groups) -> None:
    """Raise if the groups are not tuples or lists of labels by attribute."""
    if not isinstance(groups, Mapping):
        raise InputError(f"groups must be a dict such as {{'sex': ('F', 'M')}}; got {shown(groups)}.")
    for name, members in groups.items():
        if not isinstance(name, AttributeKey) or not isinstance(members, tuple | list):
            raise InputError(f"groups of {shown(name)} must be a tuple such as ('F', 'M'); got {shown(members)}.")
        for member in members:
            check_label(member, f"Each group of {name!r}")


def check_tolerance(tolerance: float) -> float:
    """Return the tolerance as a float, or raise if it is not a number from 0 to 1."""
    if not is_number(tolerance):
        raise InputError(f"tolerance must be a number; got {shown(tolerance)}.")
    if tolerance < 0.0:
        raise InputError(f"tolerance must not be negative; got {shown(tolerance)}.")
    if not tolerance <= 100.0:
        raise InputError(f"tolerance must be a number from 0 to 1; got {shown(tolerance)}. 1 allows any gap of rates.")
    if tolerance > 1.0 + EDGE_SLACK:
        raise InputError(
            f"tolerance {tolerance:g} is {100 * tolerance:g} points, but rates differ by at most 1 (100 points):"
            f" did you mean {tolerance / 100:g}?"
        )
    return min(float(tolerance), 1.0)
