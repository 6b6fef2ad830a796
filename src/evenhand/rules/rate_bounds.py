"""Criteria that bound the rates themselves: floors, ceilings, budgets, and user-defined bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from evenhand.arguments import is_number, shown
from evenhand.errors import InputError
from evenhand.rules.constraints import Constraint, check_linear, sum_text
from evenhand.rules.criterion import Criterion, Level, Ranges, check_groups
from evenhand.rules.events import RATES, Event, Groups, Intersection, Kind, event_names

RateName = Literal[
    "selection", "selection_rate", "tpr", "fpr", "tnr", "fnr", "precision", "fdr", "npv", "for", "accuracy", "error"
]


@dataclass(frozen=True, kw_only=True)
class _RateBound(Criterion):
    """A rate of every group is on one side of a bound."""

    side: ClassVar[Literal["floor", "ceiling"]]
    rate: RateName

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.rate, str) or self.rate not in RATES:
            raise InputError(f"{type(self).__name__} supports the rates {list(RATES)!r}; got rate={shown(self.rate)}.")
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
        (negative predictive value), "for" (false omission rate), "accuracy" or "error". "precision" and "fdr" are not
        bounded in a group in which nobody is selected, "npv" and "for" not in one in which everybody is.
    floor : float
        Between 0 and 1.
    attribute, tolerance
        As in DemographicParity; here the tolerance is how far below the floor a rate may be. Its default is 0.

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
        As in DemographicParity; here the tolerance is how far above the ceiling a rate may be. Its default is 0.

    Examples
    --------
    >>> from evenhand import MaximumRate
    >>> for bound in MaximumRate("fpr", 0.1).constraints({"sex": ("F", "M")}):
    ...     print(bound)
    rate(sex=F, Y=0) <= 0.1
    rate(sex=M, Y=0) <= 0.1
    """

    side: ClassVar[Literal["floor", "ceiling"]] = "ceiling"
    rate: RateName
    ceiling: float


# Rates that should be large, and the names of their complements.
_OPPOSITES = {"tpr": "fnr", "tnr": "fpr", "precision": "fdr", "npv": "for", "accuracy": "error"}


@dataclass(frozen=True)
class MinimaxRate(Criterion):
    """The largest rate of any group is as small as possible; among such rules, the best one is chosen.

    A fit finds the smallest ceiling that a rule meets, and then the best rule under it. The fitted rule's criterion is
    :class:`MaximumRate` with that ceiling, and ``rule.learned_from["minimax"]`` contains what was proven.

    Parameters
    ----------
    rate : str
        "error", "fpr", "fnr", "fdr", "for" or "selection". To make the smallest of some rates large, use the
        complement: "fnr" for "tpr", "fdr" for "precision".
    attribute : str, Intersection or None, default=None
        ``None`` uses the groups of all attributes together.
    tolerance : float or None, default=None
        How far above the smallest ceiling the rates may be; the default is 0.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(2000, random_state=0)
    >>> rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion=eh.MinimaxRate("error"))
    >>> found = rule.learned_from["minimax"]
    >>> found["value"] - found["lower_bound"] < 1e-8, rule.criterion.ceiling == found["value"]
    (True, True)
    """

    has_levels: ClassVar[bool] = True
    rate: RateName

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rate, str) and self.rate in _OPPOSITES:
            raise InputError(
                f"MinimaxRate minimises the largest rate, but {self.rate} should be large: use"
                f" MinimaxRate({_OPPOSITES[self.rate]!r})."
            )
        if not isinstance(self.rate, str) or self.rate not in RATES:
            known = [name for name in RATES if name not in _OPPOSITES]
            raise InputError(f"MinimaxRate supports the rates {known!r}; got rate={shown(self.rate)}.")

    @property
    def kinds(self) -> frozenset[Kind]:
        """What its rate counts."""
        return frozenset([RATES[self.rate].kind])

    @property
    def needs_joint(self) -> bool:  # type: ignore[override]
        """Whether p(Y, A | x) is needed; p(A | x) is enough for the selection rate."""
        return MaximumRate(self.rate, 1.0).needs_joint

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Raise, because the smallest ceiling is only known after a fit."""
        raise InputError(
            f"MinimaxRate({self.rate!r}) asks for the smallest rate that a rule can reach, which decisions do not"
            f" show: name a ceiling, as in MaximumRate({self.rate!r}, 0.2). A fitted rule's criterion has one."
        )

    def reported(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return each group's rate, without a finite ceiling."""
        return MaximumRate(self.rate, 1.0, attribute=self.attribute).constraints(groups)

    def levels(self, groups: Groups) -> tuple[Level, ...]:
        """Return the ceiling."""
        self._attributes(groups)
        return (Level(self),)

    def at(self, ranges: Ranges, tolerance: float) -> Criterion:
        """Return the ceiling at its highest, plus the criterion's own tolerance."""
        slack = 0.0 if self.tolerance is None else self.tolerance
        highest = next(high for level, (_, high) in ranges.items() if level.part == self)
        return MaximumRate(self.rate, min(max(highest + slack, 0.0), 1.0), attribute=self.attribute)


@dataclass(frozen=True)
class SelectionBudget(Criterion):
    """The share of positive decisions is between ``lower`` and ``upper``, among everyone or in each group.

    Without bounds it constrains nothing but frees the rule's threshold: ``criterion & SelectionBudget()`` decides by
    ``margin - z.g > c`` with the best c, which is not 0 if p(Y|x) is miscalibrated.

    Parameters
    ----------
    lower, upper : float, default=0, 1
        The bounds.
    attribute : str, Intersection or None, default=None
        ``None`` bounds the share among everyone; an attribute bounds it in each of its groups.
    tolerance : float or None, default=None
        How far outside the bounds the share may be; the default is 0.

    Examples
    --------
    >>> from evenhand import SelectionBudget
    >>> print(SelectionBudget(upper=0.2).constraints({})[0])
    rate(everyone) <= 0.2
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
        check_groups(groups)
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
    """A user-defined bound: ``lower <= sum of coefficient * rate <= upper``.

    Parameters
    ----------
    terms : dict of Event to float, or tuple of (Event, float)
        The terms of the sum. A precision or negative predictive value must be the only term, with one bound.
    lower, upper : float, default=-inf, inf
        The bounds.
    name : str or None, default=None
        The displayed name; None writes out the terms.
    tolerance : float or None, default=None
        How far outside the bounds the sum may be; the default is 0.

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
            raise InputError(f"name must be a text or None; got {shown(self.name)}.")
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
        """The crossed attributes in the terms."""
        found = [event.attribute for event, _ in self.terms if isinstance(event.attribute, Intersection)]
        return tuple(dict.fromkeys(found))

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return the bound."""
        check_groups(groups)
        for event, _ in self.terms:
            if event.attribute is not None and event.attribute not in groups:
                raise InputError(f"LinearConstraint names {event}; the data has the attributes {list(groups)!r}.")
            if event.attribute is not None and event.group not in groups[event.attribute]:
                raise InputError(f"LinearConstraint names {event}; the data has {dict(groups)!r}.")
        return (self._constraint(),)

    def _constraint(self) -> Constraint:
        slack = 0.0 if self.tolerance is None else self.tolerance
        return Constraint(self.name or sum_text(self.terms), self.terms, self.lower, self.upper, slack)

    def __str__(self) -> str:
        return str(self._constraint())


def _is_term(pair: Any) -> bool:
    named = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Event)
    return named and is_number(pair[1]) and bool(np.isfinite(pair[1]))
