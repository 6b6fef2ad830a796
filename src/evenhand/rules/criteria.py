"""Fairness criteria as data: which events are compared, and how their rates are bounded.

A criterion says which linear combinations of group rates must lie between which bounds. It knows neither
probabilities nor rows. :func:`resolve` is the one place where a string becomes a criterion.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np

from evenhand.arguments import check_label, is_number, shown
from evenhand.errors import InputError
from evenhand.inputs import EDGE_SLACK
from evenhand.rules.constraints import Constraint, check_linear, sum_text
from evenhand.rules.events import (
    RATES,
    AttributeKey,
    Event,
    Groups,
    Intersection,
    Kind,
    event_from_dict,
    event_names,
    event_to_dict,
)

RateName = Literal[
    "selection", "selection_rate", "tpr", "fpr", "tnr", "fnr", "precision", "fdr", "npv", "for", "accuracy", "error"
]


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
    def kinds(self) -> frozenset[Kind]:
        """What its rates count: positive decisions, unless it speaks of precision, say."""
        return frozenset(["selection"])

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
            elif field.name == "terms":
                value = [event_to_dict(event, coefficient) for event, coefficient in value]
            elif value is None or value in (-np.inf, np.inf):
                continue
            data[field.name] = value
        return data


def _parts(criterion: Criterion) -> tuple[Criterion, ...]:
    return criterion.parts if isinstance(criterion, Composite) else (criterion,)


@dataclass(frozen=True, kw_only=True)
class _Parity(Criterion):
    """The rates of every two groups differ by at most the tolerance, within each of the labels."""

    labels: ClassVar[tuple[int | None, ...]] = ()
    kind: ClassVar[Kind] = "selection"

    @property
    def kinds(self) -> frozenset[Kind]:
        """What its rates count."""
        return frozenset([self.kind])

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return one bound for each label and each pair of groups."""
        found = []
        for attribute in self._attributes(groups):
            _check_several(attribute, groups)
            for label in self.labels:
                members = (Event(attribute, group, label, self.kind) for group in groups[attribute])
                names, word = event_names(members, groups), "rate" if self.kind == "selection" else self.kind
                for first, second in itertools.combinations(names, 2):
                    name = f"{word}({names[first]}) - {word}({names[second]})"
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


@dataclass(frozen=True, kw_only=True)
class AccuracyParity(_Parity):
    """The share of right decisions of every two groups differ by at most the tolerance."""

    labels: ClassVar[tuple[int | None, ...]] = (None,)
    kind: ClassVar[Kind] = "accuracy"
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


@dataclass(frozen=True, kw_only=True)
class _RateBound(Criterion):
    """A rate of every group is on one side of a bound."""

    side: ClassVar[Literal["floor", "ceiling"]]
    rate: RateName

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.rate, str) or self.rate not in RATES:
            raise InputError(f"{type(self).__name__} knows the rates {list(RATES)!r}; got rate={shown(self.rate)}.")
        if not (is_number(self.level) and 0.0 <= self.level <= 1.0):
            raise InputError(f"{type(self).__name__} needs a {self.side} in [0, 1]; got {shown(self.level)}.")

    @property
    def kinds(self) -> frozenset[Kind]:
        """What its rate counts."""
        return frozenset([RATES[self.rate].kind])

    @property
    def level(self) -> float:
        """The bound."""
        found: float = getattr(self, self.side)
        return found

    @property
    def needs_joint(self) -> bool:  # type: ignore[override]
        """Whether p(Y, A | x) is needed; p(A | x) is enough for the selection rate."""
        kind, label, _, _ = RATES[self.rate]
        return label is not None or kind != "selection"

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return one bound for each group."""
        kind, label, sign, constant = RATES[self.rate]
        slack = 0.0 if self.tolerance is None else self.tolerance
        bound = sign * (self.level - constant)
        lower, upper = (bound, np.inf) if (sign > 0) == (self.side == "floor") else (-np.inf, bound)
        events = [Event(a, group, label, kind) for a in self._attributes(groups) for group in groups[a]]
        word = "rate" if kind == "selection" else kind
        return tuple(
            Constraint(f"{word}({name})", ((event, 1.0),), lower, upper, slack)
            for event, name in event_names(events, groups).items()
        )


@dataclass(frozen=True)
class MinimumRate(_RateBound):
    """A rate is at least ``floor`` in every group.

    Parameters
    ----------
    rate : str
        "selection" (or "selection_rate"), "tpr", "fpr", "tnr", "fnr", "precision", "fdr" (false discovery rate), "npv"
        (negative predictive value), "for" (false omission rate), "accuracy" or "error". The precision of a group in
        which nobody is selected is not bounded, and so for "fdr"; "npv" and "for" where everybody is.
    floor : float
        Between 0 and 1.
    attribute, tolerance
        As in DemographicParity; here the tolerance is how far below the floor a rate may be, and is 0
        unless given.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(2000, random_state=0)
    >>> rule = eh.learn_rule(
    ...     data.y, data.group, data.p_y, data.p_joint, criterion=eh.MinimumRate("precision", 0.8))
    >>> rates = eh.metrics.group_rates(data.y, rule.decide(data.p_y, data.p_joint), sensitive_features=data.group)
    >>> min(rates.by_group("precision").values()) >= 0.8
    True
    """

    side: ClassVar[Literal["floor", "ceiling"]] = "floor"
    rate: RateName
    floor: float


@dataclass(frozen=True)
class MaximumRate(_RateBound):
    """A rate is at most ``ceiling`` in every group.

    Parameters
    ----------
    rate : str
        As in MinimumRate.
    ceiling : float
        Between 0 and 1.
    attribute, tolerance
        As in DemographicParity; here the tolerance is how far above the ceiling a rate may be, and is 0
        unless given.
    """

    side: ClassVar[Literal["floor", "ceiling"]] = "ceiling"
    rate: RateName
    ceiling: float


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


@dataclass(frozen=True)
class LinearConstraint(Criterion):
    """Your own bound: ``lower <= sum of coefficient * rate <= upper``.

    Parameters
    ----------
    terms : dict of Event to float, or tuple of (Event, float)
        What is added up. A precision or negative predictive value must be the only term, with one bound.
    lower, upper : float, default=-inf, inf
        The bounds.
    name : str or None, default=None
        What it is called; None writes the terms out.
    tolerance : float or None, default=None
        How far outside the bounds the sum may be; 0 unless given.

    Examples
    --------
    >>> import evenhand as eh
    >>> women = eh.Event(attribute="sex", group="F", label=1)
    >>> men = eh.Event(attribute="sex", group="M", label=1)
    >>> print(eh.LinearConstraint({women: 1.0, men: -1.0}, lower=0.0))
    0 <= rate(sex=F, Y=1) - rate(sex=M, Y=1)
    """

    terms: Any
    lower: float = -np.inf
    upper: float = np.inf
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        pairs = tuple(self.terms.items()) if isinstance(self.terms, Mapping) else self.terms
        if not isinstance(pairs, tuple) or not pairs or not all(_is_term(pair) for pair in pairs):
            raise InputError(
                "LinearConstraint needs terms such as {Event(attribute='sex', group='F'): 1.0}; got"
                f" {shown(self.terms)}."
            )
        if not isinstance(self.name, str | None):
            raise InputError(f"The name of a LinearConstraint is a text or None; got {shown(self.name)}.")
        if not (is_number(self.lower) and is_number(self.upper) and self.lower <= self.upper):
            raise InputError(
                f"LinearConstraint needs numbers lower <= upper; got {shown(self.lower)}, {shown(self.upper)}."
            )
        object.__setattr__(self, "terms", tuple((event, float(c)) for event, c in pairs))
        check_linear(self._constraint())

    @property
    def kinds(self) -> frozenset[Kind]:
        """What its rates count."""
        return frozenset(event.kind for event, _ in self.terms)

    @property
    def needs_joint(self) -> bool:  # type: ignore[override]
        """Whether p(Y, A | x) is needed."""
        return any(event.needs_label for event, _ in self.terms)

    @property
    def intersections(self) -> tuple[Intersection, ...]:
        """The crossed attributes that the terms speak of."""
        found = [event.attribute for event, _ in self.terms if isinstance(event.attribute, Intersection)]
        return tuple(dict.fromkeys(found))

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return the bound."""
        _check_groups(groups)
        for event, _ in self.terms:
            if event.attribute is not None and event.group not in groups.get(event.attribute, ()):
                raise InputError(f"LinearConstraint speaks of {event}; the data has {dict(groups)!r}.")
        return (self._constraint(),)

    def _constraint(self) -> Constraint:
        slack = 0.0 if self.tolerance is None else self.tolerance
        return Constraint(self.name or sum_text(self.terms), self.terms, self.lower, self.upper, slack)

    def __str__(self) -> str:
        return str(self._constraint())


def _is_term(pair: Any) -> bool:
    named = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Event)
    return named and is_number(pair[1]) and bool(np.isfinite(pair[1]))


@dataclass(frozen=True, kw_only=True)
class Composite(Criterion):
    """Several criteria at once; written ``first & second``."""

    parts: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.parts, tuple) or not self.parts or not all(isinstance(p, Criterion) for p in self.parts):
            raise InputError("A composite needs criteria as its parts: write first & second.")

    @property
    def kinds(self) -> frozenset[Kind]:
        """What the parts' rates count."""
        return frozenset(kind for part in self.parts for kind in part.kinds)

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
    "accuracy_parity": AccuracyParity,
    "ap": AccuracyParity,
}
_TYPES: dict[str, type[Criterion]] = {
    cls.__name__: cls
    for cls in (
        AccuracyParity,
        Composite,
        DemographicParity,
        EqualOpportunity,
        EqualizedOdds,
        LinearConstraint,
        MaximumRate,
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
    if isinstance(terms := options.get("terms"), list):
        options["terms"] = tuple(event_from_dict(term) for term in terms)
    if cls is Composite:
        parts = options.get("parts")
        options["parts"] = tuple(from_dict(part) for part in parts) if isinstance(parts, list) else ()
    try:
        return cls(**options)
    except TypeError as error:
        raise InputError(f"{cls.__name__} cannot be read: {error}.") from None
