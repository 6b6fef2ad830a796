"""Criteria that compare groups with each other: differences and ratios of their rates."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenhand.arguments import is_number, shown
from evenhand.errors import InputError
from evenhand.rules.constraints import Constraint
from evenhand.rules.criterion import Criterion, check_several
from evenhand.rules.events import Event, Groups, Kind, event_names


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
            check_several(attribute, groups)
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
            check_several(attribute, groups)
            names = event_names((Event(attribute, group) for group in groups[attribute]), groups)
            for first, second in itertools.permutations(names, 2):
                name = f"rate({names[first]}) - {self.ratio:g} rate({names[second]})"
                terms = ((first, 1.0), (second, -float(self.ratio)))
                found.append(Constraint(name, terms, 0.0, np.inf, slack))
        return tuple(found)
