"""Criteria that compare groups with each other: differences and ratios of their rates."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenhand.arguments import is_number, is_whole, shown
from evenhand.errors import InputError
from evenhand.rules.constraints import Constraint
from evenhand.rules.criterion import Composite, Criterion, Level, Ranges, check_several
from evenhand.rules.events import FEWEST_ROWS, AttributeKey, Event, Groups, Kind, Stratified, event_names, is_other
from evenhand.rules.rate_bounds import LinearConstraint


@dataclass(frozen=True, kw_only=True)
class _Comparison(Criterion):
    """The base of criteria that compare groups with each other, over all rows or within each stratum of a column."""

    within: str | None = None
    thin: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.within is not None and not (isinstance(self.within, str) and self.within):
            raise InputError(f"within must be the name of a column of strata, or None; got {shown(self.within)}.")
        if self.thin is not None and not (is_whole(self.thin) and self.thin >= FEWEST_ROWS):
            raise InputError(
                f"thin must be a whole number of rows, {FEWEST_ROWS} or more, or None; got {shown(self.thin)}."
            )
        if self.thin is not None and self.within is None:
            raise InputError("thin applies to strata: name their column, as in within='occupation'.")

    @property
    def strata(self) -> tuple[str, ...]:
        """The column that defines the strata."""
        return () if self.within is None else (self.within,)

    @property
    def unstratified(self) -> Criterion:
        """The same criterion over all rows, without strata."""
        return self if self.within is None else dataclasses.replace(self, within=None, thin=None)

    def stratified(self, groups: Groups) -> tuple[Stratified, ...]:
        """Return the attributes that are compared within strata."""
        return () if self.within is None else tuple(self._inside(name) for name in self._attributes(groups))

    def _inside(self, attribute: AttributeKey) -> Stratified:
        assert self.within is not None
        assert not isinstance(attribute, Stratified)
        return Stratified(attribute, self.within, self.thin)

    def _compared(self, groups: Groups) -> Iterator[tuple[AttributeKey, tuple[Hashable, ...]]]:
        """Yield each attribute with groups that are compared with each other: all of them, or those of a stratum."""
        for attribute in self._attributes(groups):
            check_several(attribute, groups)
            if self.within is None:
                yield attribute, tuple(groups[attribute])
                continue
            key = self._inside(attribute)
            if key not in groups:
                raise InputError(
                    f"The criterion compares groups within {self.within!r}, but each row's stratum is not known:"
                    f" pass strata, such as strata={{{self.within!r}: column}}."
                )
            strata: dict[Hashable, list[Hashable]] = {}
            for pair in groups[key]:
                assert isinstance(pair, tuple)
                if not is_other(pair[0]):
                    strata.setdefault(pair[0], []).append(pair)
            for pairs in strata.values():
                yield key, tuple(pairs)


@dataclass(frozen=True, kw_only=True)
class _Parity(_Comparison):
    """The rates of any two groups differ by at most the tolerance, within each of the labels."""

    labels: ClassVar[tuple[int | None, ...]] = ()
    kind: ClassVar[Kind] = "selection"

    @property
    def kinds(self) -> frozenset[Kind]:
        """What its rates count."""
        return frozenset([self.kind])

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return one bound for each label and each pair of groups, in each stratum."""
        found = []
        for attribute, compared in self._compared(groups):
            for label in self.labels:
                members = (Event(attribute, group, label, self.kind) for group in compared)
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
        The attribute; ``None`` means each attribute in the data.
    tolerance : float or None, default=None
        The largest allowed difference; ``None`` uses the tolerance of the fit.
    within : str or None, default=None
        A column of strata, such as ``"occupation"``: groups are compared inside each stratum, but not between strata
        (conditional demographic parity). A row's stratum must be known when it is decided. Pass the column as
        ``strata=`` to :func:`evenhand.learn_rule`, :func:`evenhand.frontier`, :func:`evenhand.audit` and the methods of
        a rule; in :class:`evenhand.FairClassifier` it is the column of X with this name.
    thin : int or None, default=None
        A stratum in which a compared cell (a group, or a group and a label) has fewer rows than this is left to the
        model's own decisions, with a warning that names it. So are rows whose stratum is unknown or did not occur when
        the rule was learnt. Other parts of the criterion that reach these rows may still change them. With ``None``, a
        cell with fewer than two rows and a new stratum are errors.

    Examples
    --------
    >>> import evenhand as eh
    >>> criterion = eh.DemographicParity(attribute="sex") & eh.SelectionBudget(upper=0.2)
    >>> [c.name for c in criterion.constraints({"sex": ("F", "M")})]
    ['rate(sex=F) - rate(sex=M)', 'rate(everyone)']
    >>> eh.DemographicParity(within="occupation").strata
    ('occupation',)
    """

    labels: ClassVar[tuple[int | None, ...]] = (None,)


@dataclass(frozen=True, kw_only=True)
class EqualOpportunity(_Parity):
    """Equal true positive rates between groups (the paper's EOp, Eq. eop_def). See DemographicParity.

    Examples
    --------
    >>> from evenhand import EqualOpportunity
    >>> for bound in EqualOpportunity().constraints({"sex": ("F", "M")}):
    ...     print(bound.name)
    rate(sex=F, Y=1) - rate(sex=M, Y=1)
    """

    labels: ClassVar[tuple[int | None, ...]] = (1,)
    needs_joint: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class PredictiveEquality(_Parity):
    """Equal false positive rates between groups. See DemographicParity for the parameters.

    Examples
    --------
    >>> from evenhand import PredictiveEquality
    >>> for bound in PredictiveEquality().constraints({"sex": ("F", "M")}):
    ...     print(bound.name)
    rate(sex=F, Y=0) - rate(sex=M, Y=0)
    """

    labels: ClassVar[tuple[int | None, ...]] = (0,)
    needs_joint: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class EqualizedOdds(_Parity):
    """Equal true and false positive rates between groups (the paper's EO, Eq. eo_def). See DemographicParity.

    Examples
    --------
    >>> from evenhand import EqualizedOdds
    >>> for bound in EqualizedOdds().constraints({"sex": ("F", "M")}):
    ...     print(bound.name)
    rate(sex=F, Y=0) - rate(sex=M, Y=0)
    rate(sex=F, Y=1) - rate(sex=M, Y=1)
    """

    labels: ClassVar[tuple[int | None, ...]] = (0, 1)
    needs_joint: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class AccuracyParity(_Parity):
    """The accuracies of any two groups differ by at most the tolerance. See DemographicParity.

    Examples
    --------
    >>> from evenhand import AccuracyParity
    >>> for bound in AccuracyParity().constraints({"sex": ("F", "M")}):
    ...     print(bound.name)
    accuracy(sex=F) - accuracy(sex=M)
    """

    labels: ClassVar[tuple[int | None, ...]] = (None,)
    kind: ClassVar[Kind] = "accuracy"
    needs_joint: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class PredictiveParity(_Parity):
    """The precisions of any two groups differ by at most the tolerance.

    A difference of precisions is not linear in the decisions, but it is for a fixed common level: every precision is at
    least the level and at most the level plus the tolerance. A fit searches over the level, and its proof holds for all
    levels; see :mod:`evenhand.rules.levels`. A group in which nobody is selected has no precision and meets the bounds.
    See DemographicParity for the parameters.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(2000, random_state=0)
    >>> rule = eh.learn_rule(
    ...     data.y, data.group, data.p_y, data.p_joint, criterion="predictive_parity", tolerance=0.02)
    >>> rule.solution_.status, abs(rule.solution_.values[0]) <= 0.02
    ('optimal', True)
    """

    labels: ClassVar[tuple[int | None, ...]] = (None,)
    kind: ClassVar[Kind] = "precision"
    needs_joint: ClassVar[bool] = True
    has_levels: ClassVar[bool] = True

    def levels(self, groups: Groups) -> tuple[Level, ...]:
        """Return the precision of each attribute's groups, or of its groups in each stratum."""
        moving = self.tolerance is None
        return tuple(Level(self, attribute, moving, members) for attribute, members in self._compared(groups))

    def at(self, ranges: Ranges, tolerance: float) -> Criterion:
        """Return a floor at the lowest level, and a ceiling at the highest plus the tolerance."""
        slack = tolerance if self.tolerance is None else self.tolerance
        parts: list[Criterion] = []
        for level, (low, high) in ranges.items():
            if level.part == self:
                ceiling = min(high + slack, 1.0)
                parts += [LinearConstraint(((event, 1.0),), lower=low) for event in level.events]
                parts += [LinearConstraint(((event, 1.0),), upper=ceiling) for event in level.events]
        return Composite(parts=tuple(parts))


@dataclass(frozen=True)
class SelectionRatio(_Comparison):
    """The smallest group's selection rate over the largest is at least ``ratio`` (0.8: the four-fifths rule).

    Parameters
    ----------
    ratio : float
        Between 0 and 1.
    attribute, tolerance, within, thin
        As in DemographicParity; here the tolerance is how much ``rate_a - ratio * rate_b`` may fall below zero. Its
        default is 0.

    Examples
    --------
    >>> from evenhand import SelectionRatio
    >>> print(SelectionRatio(0.8).constraints({"sex": ("F", "M")})[0])
    0 <= rate(sex=F) - 0.8 rate(sex=M)
    """

    ratio: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.ratio) and 0.0 < self.ratio <= 1.0):
            raise InputError(f"SelectionRatio needs a ratio in (0, 1]; got {shown(self.ratio)}.")

    def constraints(self, groups: Groups) -> tuple[Constraint, ...]:
        """Return one bound for each ordered pair of groups, in each stratum."""
        slack = 0.0 if self.tolerance is None else self.tolerance
        found = []
        for attribute, compared in self._compared(groups):
            names = event_names((Event(attribute, group) for group in compared), groups)
            for first, second in itertools.permutations(names, 2):
                name = f"rate({names[first]}) - {self.ratio:g} rate({names[second]})"
                terms = ((first, 1.0), (second, -float(self.ratio)))
                found.append(Constraint(name, terms, 0.0, np.inf, slack))
        return tuple(found)
