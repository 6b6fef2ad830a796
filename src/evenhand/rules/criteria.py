"""Fairness criteria as data: which events are compared, and how their rates are bounded.

A criterion says which linear combinations of group rates must lie between which bounds. It knows neither
probabilities nor rows. :func:`resolve` is the one place where a string becomes a criterion.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np

from evenhand.arguments import check_label, is_number, is_whole, shown
from evenhand.errors import InputError
from evenhand.inputs import EDGE_SLACK

RateName = Literal["selection_rate", "tpr", "fpr", "tnr", "fnr"]

# rate -> (label of the event, sign, constant): the rate is constant + sign * P(decision = 1 | event).
_RATES: dict[str, tuple[int | None, float, float]] = {
    "selection_rate": (None, 1.0, 0.0),
    "tpr": (1, 1.0, 0.0),
    "fpr": (0, 1.0, 0.0),
    "tnr": (0, -1.0, 1.0),
    "fnr": (1, -1.0, 1.0),
}


@dataclass(frozen=True)
class Intersection:
    """A crossed attribute: its groups are the combinations of the named attributes' groups that occur.

    Parameters
    ----------
    *attributes : str
        Two or more attribute names.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.DemographicParity(attribute=eh.Intersection("sex", "race")).attribute.name
    'sex & race'
    """

    attributes: tuple[str, ...]

    def __init__(self, *attributes: str) -> None:
        named = all((isinstance(name, str) and name) or is_whole(name) for name in attributes)
        if not named or len(attributes) < 2 or len(set(attributes)) != len(attributes):
            raise InputError(
                f"Intersection needs two or more different attribute names; got {shown(list(attributes))}."
            )
        object.__setattr__(self, "attributes", tuple(str(name) for name in attributes))

    @property
    def name(self) -> str:
        """The text that shows the crossed attribute. It identifies nothing: a column may have this name, too."""
        return " & ".join(self.attributes)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Intersection({', '.join(map(repr, self.attributes))})"


AttributeKey = str | Intersection
Groups = Mapping[AttributeKey, tuple[Hashable, ...]]


def display_names(attributes: Iterable[AttributeKey]) -> dict[AttributeKey, str]:
    """Return a text for each attribute, such that no two have the same.

    A column has its name. A crossed attribute has the names of its parts, and where a column or another crossed
    attribute has that text already, "(crossed)" behind it.

    Examples
    --------
    >>> from evenhand.rules.criteria import Intersection, display_names
    >>> list(display_names(["sex", "race", "sex & race", Intersection("sex", "race")]).values())
    ['sex', 'race', 'sex & race', 'sex & race (crossed)']
    """
    keys = list(dict.fromkeys(attributes))
    shown: dict[AttributeKey, str] = {key: key for key in keys if isinstance(key, str)}
    for key in keys:
        if not isinstance(key, str):
            text = key.name
            while text in shown.values():
                text += " (crossed)"
            shown[key] = text
    return {key: shown[key] for key in keys}


@dataclass(frozen=True)
class Event:
    """A part of the population: a group, a group with a given label (1 positive, 0 negative), or everyone."""

    attribute: AttributeKey | None = None
    group: Hashable = None
    label: int | None = None

    def __str__(self) -> str:
        return self.text(f"{self.attribute}={self.group}")

    def text(self, inside: str) -> str:
        """Return the event in words, given those for its group."""
        parts = [] if self.attribute is None else [inside]
        parts += [] if self.label is None else [f"Y={self.label}"]
        return ", ".join(parts) or "everyone"


def event_names(events: Iterable[Event], groups: Groups) -> dict[Event, str]:
    """Return a text for each event, such that no two have the same, given the attributes that there are."""
    shown = display_names(groups)
    inside = {}
    for name, members in groups.items():
        alike = len({str(group) for group in members}) < len(members)
        for group in members:
            inside[name, group] = f"{shown[name]}={group!r}" if alike else f"{shown[name]}={group}"
    return {e: str(e) if e.attribute is None else e.text(inside[e.attribute, e.group]) for e in events}


@dataclass(frozen=True)
class Constraint:
    """A linear bound on event rates: ``lower - tolerance <= sum_e c_e rate_e <= upper + tolerance``.

    A ``tolerance`` of ``None`` is the caller's: it is the one that a frontier moves.
    """

    name: str
    terms: tuple[tuple[Event, float], ...]
    lower: float
    upper: float
    tolerance: float | None = None

    def bounds(self, tolerance: float) -> tuple[float, float]:
        """Return the two bounds, given the caller's tolerance."""
        slack = tolerance if self.tolerance is None else self.tolerance
        return self.lower - slack, self.upper + slack


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """What every criterion has: the attribute it speaks of and its own tolerance.

    Parameters
    ----------
    attribute : str, Intersection or None, default=None
        The attribute; ``None`` means each attribute that the data has.
    tolerance : float or None, default=None
        This criterion's own tolerance; ``None`` takes the one given to the fit.
    """

    attribute: AttributeKey | None = None
    tolerance: float | None = None

    needs_joint: ClassVar[bool] = False

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
    def intersections(self) -> tuple[Intersection, ...]:
        """The crossed attributes that this criterion speaks of."""
        return (self.attribute,) if isinstance(self.attribute, Intersection) else ()

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return the bounds, for attributes with these groups."""
        raise NotImplementedError

    def _attributes(self, groups: Groups) -> tuple[AttributeKey, ...]:
        _check_groups(groups)
        if self.attribute is None:
            plain = tuple(name for name in groups if isinstance(name, str))
            if not plain:
                raise InputError(
                    "The criterion speaks of each attribute on its own, and there are only crossed ones,"
                    f" {list(groups)!r}: name the one that is meant, as attribute=Intersection(...)."
                )
            return plain
        if self.attribute not in groups:
            raise InputError(
                f"The criterion speaks of the attribute {self.attribute!r}; the data has {list(groups)!r}."
            )
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
            elif value is None:
                continue
            data[field.name] = value
        return data


def _parts(criterion: Criterion) -> tuple[Criterion, ...]:
    return criterion.parts if isinstance(criterion, Composite) else (criterion,)


@dataclass(frozen=True, kw_only=True)
class _Parity(Criterion):
    """The rates of every two groups differ by at most the tolerance, within each of the labels."""

    labels: ClassVar[tuple[int | None, ...]] = ()

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return one bound for each label and each pair of groups."""
        found = []
        for attribute in self._attributes(groups):
            _check_several(attribute, groups)
            for label in self.labels:
                names = event_names((Event(attribute, group, label) for group in groups[attribute]), groups)
                for first, second in itertools.combinations(names, 2):
                    name = f"rate({names[first]}) - rate({names[second]})"
                    found.append(Constraint(name, ((first, 1.0), (second, -1.0)), 0.0, 0.0, self.tolerance))
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class DemographicParity(_Parity):
    """Equal rates of positive decisions between groups (the paper's DP, Eq. dp_def).

    Parameters
    ----------
    attribute : str, Intersection or None, default=None
        The attribute; ``None`` means each attribute that the data has.
    tolerance : float or None, default=None
        The largest allowed difference; ``None`` takes the one given to the fit.

    Examples
    --------
    >>> import evenhand as eh
    >>> criterion = eh.DemographicParity(attribute="sex") & eh.SelectionBudget(upper=0.2)
    >>> [c.name for c in criterion.constraints({"sex": ("F", "M")})]
    ['rate(sex=F) - rate(sex=M)', 'rate(everyone)']
    """

    labels: ClassVar[tuple[int | None, ...]] = (None,)


@dataclass(frozen=True, kw_only=True)
class EqualOpportunity(_Parity):
    """Equal true positive rates between groups (the paper's EOp, Eq. eop_def). See DemographicParity."""

    labels: ClassVar[tuple[int | None, ...]] = (1,)
    needs_joint: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class PredictiveEquality(_Parity):
    """Equal false positive rates between groups. See DemographicParity for the parameters."""

    labels: ClassVar[tuple[int | None, ...]] = (0,)
    needs_joint: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class EqualizedOdds(_Parity):
    """Equal true and false positive rates between groups (the paper's EO, Eq. eo_def). See DemographicParity."""

    labels: ClassVar[tuple[int | None, ...]] = (0, 1)
    needs_joint: ClassVar[bool] = True


@dataclass(frozen=True)
class SelectionRatio(Criterion):
    """The smallest group's selection rate over the largest is at least ``ratio`` (0.8: the four-fifths rule).

    Parameters
    ----------
    ratio : float
        Between 0 and 1.
    attribute, tolerance
        As in DemographicParity; here the tolerance is how much ``rate_a - ratio * rate_b`` may fall below
        zero, and is 0 unless given.
    """

    ratio: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.ratio) and 0.0 < self.ratio <= 1.0):
            raise InputError(f"SelectionRatio needs a ratio in (0, 1]; got {shown(self.ratio)}.")

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return one bound for each ordered pair of groups."""
        slack = 0.0 if self.tolerance is None else self.tolerance
        found = []
        for attribute in self._attributes(groups):
            _check_several(attribute, groups)
            names = event_names((Event(attribute, group) for group in groups[attribute]), groups)
            for first, second in itertools.permutations(names, 2):
                name = f"rate({names[first]}) - {self.ratio:g} rate({names[second]})"
                terms = ((first, 1.0), (second, -float(self.ratio)))
                found.append(Constraint(name, terms, 0.0, np.inf, slack))
        return tuple(found)


@dataclass(frozen=True)
class MinimumRate(Criterion):
    """A rate is at least ``floor`` in every group.

    Parameters
    ----------
    rate : {"selection_rate", "tpr", "fpr", "tnr", "fnr"}
        The rate.
    floor : float
        Between 0 and 1.
    attribute, tolerance
        As in DemographicParity; here the tolerance is how far below the floor a rate may be, and is 0
        unless given.
    """

    rate: RateName
    floor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.rate, str) or self.rate not in _RATES:
            raise InputError(f"MinimumRate knows the rates {list(_RATES)!r}; got rate={shown(self.rate)}.")
        if not (is_number(self.floor) and 0.0 <= self.floor <= 1.0):
            raise InputError(f"MinimumRate needs a floor in [0, 1]; got {shown(self.floor)}.")

    @property
    def needs_joint(self) -> bool:  # type: ignore[override]
        """Whether p(Y, A | x) is needed; p(A | x) is enough for the selection rate."""
        return _RATES[self.rate][0] is not None

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return one bound for each group."""
        label, sign, constant = _RATES[self.rate]
        slack = 0.0 if self.tolerance is None else self.tolerance
        bound = sign * (self.floor - constant)
        lower, upper = (bound, np.inf) if sign > 0 else (-np.inf, bound)
        events = [Event(a, group, label) for a in self._attributes(groups) for group in groups[a]]
        return tuple(
            Constraint(f"rate({name})", ((event, 1.0),), lower, upper, slack)
            for event, name in event_names(events, groups).items()
        )


@dataclass(frozen=True)
class SelectionBudget(Criterion):
    """The share of positive decisions is between ``lower`` and ``upper``: of everyone, or of each group.

    Without bounds it constrains nothing, and frees the rule's threshold: ``criterion & SelectionBudget()`` decides by
    ``margin - z.g > c`` with the best c, which is not 0 where p(Y|x) is off.

    Parameters
    ----------
    lower, upper : float, default=0, 1
        The bounds.
    attribute : str, Intersection or None, default=None
        ``None`` bounds the share among everyone; an attribute bounds it in each of its groups.
    tolerance : float or None, default=None
        How far outside the bounds the share may be; 0 unless given.
    """

    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = is_number(self.lower) and is_number(self.upper)
        if not (numbers and 0.0 <= self.lower <= self.upper <= 1.0):
            raise InputError(
                f"SelectionBudget needs numbers 0 <= lower <= upper <= 1; got {shown(self.lower)}, {shown(self.upper)}."
            )

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return the bound on everyone, or one for each group."""
        _check_groups(groups)
        slack = 0.0 if self.tolerance is None else self.tolerance
        events = [Event()]
        if self.attribute is not None:
            events = [Event(a, group) for a in self._attributes(groups) for group in groups[a]]
        lower = -np.inf if self.lower == 0.0 else self.lower
        upper = np.inf if self.upper == 1.0 else self.upper
        return tuple(
            Constraint(f"rate({name})", ((event, 1.0),), lower, upper, slack)
            for event, name in event_names(events, groups).items()
        )


@dataclass(frozen=True, kw_only=True)
class Composite(Criterion):
    """Several criteria at once; written ``first & second``."""

    parts: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.parts, tuple) or not self.parts or not all(isinstance(p, Criterion) for p in self.parts):
            raise InputError("A composite needs criteria as its parts: write first & second.")

    @property
    def needs_joint(self) -> bool:  # type: ignore[override]
        """Whether any part needs p(Y, A | x)."""
        return any(part.needs_joint for part in self.parts)

    @property
    def intersections(self) -> tuple[Intersection, ...]:
        """The crossed attributes that the parts speak of."""
        return tuple(dict.fromkeys(crossed for part in self.parts for crossed in part.intersections))

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return the bounds of all parts; a bound that two parts share is kept once."""
        return tuple(dict.fromkeys(bound for part in self.parts for bound in part.constraints(groups)))


def _check_several(attribute: AttributeKey, groups: Groups) -> None:
    if len(groups[attribute]) < 2:
        has = f"only the group {groups[attribute][0]!r}" if len(groups[attribute]) else "no group"
        raise InputError(f"The attribute {attribute!r} has {has}: comparing groups needs at least two.")


def _check_groups(groups: Groups) -> None:
    """Raise where groups are not tuples or lists of labels by attribute."""
    if not isinstance(groups, Mapping):
        raise InputError(f"groups must be a dict such as {{'sex': ('F', 'M')}}; got {shown(groups)}.")
    for name, members in groups.items():
        if not isinstance(name, str | Intersection) or not isinstance(members, tuple | list):
            raise InputError(f"groups of {shown(name)} must be a tuple such as ('F', 'M'); got {shown(members)}.")
        for member in members:
            check_label(member, f"Each group of {name!r}")


def check_tolerance(tolerance: float) -> float:
    """Return the tolerance as a float, or raise: it is a number from 0 to 1, as differences of rates are."""
    if not is_number(tolerance):
        raise InputError(f"tolerance must be a number; got {shown(tolerance)}.")
    if tolerance < 0.0:
        raise InputError(f"tolerance must not be negative; got {shown(tolerance)}.")
    if not tolerance <= 100.0:
        raise InputError(f"tolerance must be a number from 0 to 1; got {shown(tolerance)}. 1 allows any gap of rates.")
    if tolerance > 1.0 + EDGE_SLACK:
        raise InputError(
            f"tolerance {tolerance:g} is {100 * tolerance:g} points, and rates differ by at most 1 (100 points):"
            f" did you mean {tolerance / 100:g}?"
        )
    return min(float(tolerance), 1.0)


NAMES: dict[str, type[Criterion]] = {
    "demographic_parity": DemographicParity,
    "dp": DemographicParity,
    "equal_opportunity": EqualOpportunity,
    "eop": EqualOpportunity,
    "true_positive_rate_parity": EqualOpportunity,
    "equalized_odds": EqualizedOdds,
    "eo": EqualizedOdds,
    "predictive_equality": PredictiveEquality,
    "pe": PredictiveEquality,
    "false_positive_rate_parity": PredictiveEquality,
}
_TYPES: dict[str, type[Criterion]] = {
    cls.__name__: cls
    for cls in (
        Composite,
        DemographicParity,
        EqualOpportunity,
        EqualizedOdds,
        MinimumRate,
        PredictiveEquality,
        SelectionBudget,
        SelectionRatio,
    )
}


def resolve(criterion: str | Criterion) -> Criterion:
    """Return the criterion that a string names; a criterion is returned as it is.

    Examples
    --------
    >>> from evenhand.rules.criteria import resolve
    >>> resolve("eo") == resolve("equalized_odds")
    True
    """
    if isinstance(criterion, Criterion):
        return criterion
    if isinstance(criterion, str) and criterion.lower() in NAMES:
        return NAMES[criterion.lower()]()
    raise InputError(f"Unknown criterion {shown(criterion)}: use one of {sorted(NAMES)!r}, or a criterion object.")


def from_dict(data: Any) -> Criterion:
    """Return the criterion that :meth:`Criterion.to_dict` wrote; anything else raises InputError."""
    if not isinstance(data, Mapping) or not isinstance(data.get("type"), str) or data["type"] not in _TYPES:
        raise InputError("This is not a criterion that this version knows.")
    cls = _TYPES[data["type"]]
    known = {field.name for field in fields(cls)}
    options = {key: value for key, value in data.items() if key != "type"}
    if not options.keys() <= known:
        raise InputError(f"{cls.__name__} has no option {sorted(options.keys() - known)[0]!r}.")
    if isinstance(crossed := options.get("attribute"), Mapping):
        options["attribute"] = Intersection(*crossed.get("intersection", ()))
    if cls is Composite:
        parts = options.get("parts")
        options["parts"] = tuple(from_dict(part) for part in parts) if isinstance(parts, list) else ()
    try:
        return cls(**options)
    except TypeError as error:
        raise InputError(f"{cls.__name__} cannot be read: {error}.") from None
