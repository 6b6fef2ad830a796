"""The rows that a caller passes, read once: labels and groups as codes, probabilities and weights as checked arrays."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_label
from evenhand.errors import EvenhandWarning, InputError
from evenhand.inputs import (
    Attribute,
    FloatArray,
    GroupProbabilities,
    Missing,
    SensitiveFeatures,
    as_float_array,
    cross_attributes,
    read_labels,
    read_members,
    read_probabilities,
    read_sensitive,
    read_weights,
)
from evenhand.plausibility import check_same_index, warn_of_decisions, warn_of_reversed_groups
from evenhand.rules import scores
from evenhand.rules.criteria import Criterion
from evenhand.rules.events import FEWEST_ROWS, AttributeKey, Event, Intersection, Stratified, event_names
from evenhand.rules.strata import check_known, column_of, pair_codes, read_strata, spread, thin_text
from evenhand.rules.system import write_out

Index = NDArray[np.intp] | NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Labels, groups, probabilities and weights of some rows.

    Attributes
    ----------
    positive : array of bool or None
        Whether each label is the positive one; None if labels are not known.
    classes : tuple
        The negative and the positive label.
    attributes : dict of Attribute
        Each row's group, by attribute: a name, or the Intersection of a crossed one. Empty if groups are not known.
    groups : dict of tuples
        Each attribute's groups, in order.
    p_y : array of shape (n,)
        P(Y = positive | x); empty if no probabilities were given.
    p_group : dict of arrays
        p(A|x) of shape (n, G), or p(Y, A|x) of shape (n, 2, G), for the attributes that need it.
    sample_weight : array or None
        The weights, if given.
    copies : array of int or None
        How many rows of the data each row stands for, if not one.
    strata : dict of Attribute
        Each row's stratum, by column.
    """

    positive: NDArray[np.bool_] | None
    classes: tuple[Hashable, Hashable]
    attributes: dict[AttributeKey, Attribute]
    groups: dict[AttributeKey, tuple[Hashable, ...]]
    p_y: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    p_group: dict[AttributeKey, FloatArray] = dataclasses.field(default_factory=dict)
    sample_weight: FloatArray | None = None
    copies: NDArray[np.int64] | None = None
    strata: dict[str, Attribute] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        if len(self.p_y) or not (self.attributes or self.positive is not None):
            return len(self.p_y)
        return len(self.positive if self.positive is not None else next(iter(self.attributes.values())).codes)

    @property
    def n_rows(self) -> int:
        """The number of rows of the data."""
        return len(self) if self.copies is None else int(self.copies.sum())

    @property
    def weights(self) -> FloatArray:
        """Each row's weight, 1 if none was given."""
        return np.ones(len(self)) if self.sample_weight is None else self.sample_weight

    @property
    def y(self) -> NDArray[Any]:
        """The labels as the caller's values."""
        if self.positive is None:
            raise InputError("These rows have no labels.")
        return _column(self.classes, self.positive.astype(np.intp))

    @property
    def sensitive_features(self) -> dict[str, NDArray[Any]]:
        """Each row's group as the caller's value, by attribute; None where it is not known."""
        named = {name: found for name, found in self.attributes.items() if isinstance(name, str)}
        return {name: _column(found.groups, found.codes) for name, found in named.items()}

    @property
    def strata_values(self) -> dict[str, NDArray[Any]]:
        """Each row's stratum as the caller's value, by column; None where it is not known."""
        return {name: _column(found.groups, found.codes) for name, found in self.strata.items()}

    def take(self, index: Index) -> Self:
        """Return some of the rows, in the order of the index."""
        return dataclasses.replace(
            self,
            positive=None if self.positive is None else self.positive[index],
            attributes={name: found.take(index) for name, found in self.attributes.items()},
            p_y=self.p_y[index] if len(self.p_y) else self.p_y,
            p_group={name: array[index] for name, array in self.p_group.items()},
            sample_weight=None if self.sample_weight is None else self.sample_weight[index],
            copies=None if self.copies is None else self.copies[index],
            strata={name: found.take(index) for name, found in self.strata.items()},
        )

    def crossing(self, intersections: Iterable[Intersection]) -> Self:
        """Return the rows with the crossed attributes added."""
        wanted = [crossed for crossed in intersections if crossed not in self.attributes]
        if not wanted or not self.attributes:
            return self
        attributes, groups = dict(self.attributes), dict(self.groups)
        for crossed in wanted:
            attributes[crossed] = cross_attributes(self.attributes, crossed)
            groups[crossed] = attributes[crossed].groups
        return dataclasses.replace(self, attributes=attributes, groups=groups)

    def for_criterion(self, criterion: Criterion, *, judging: bool = False) -> Self:
        """Return the rows with the attributes that a criterion crosses or compares within strata.

        Strata with too few rows in a compared cell raise, or are left out with a warning if the criterion allows it.
        With ``judging`` there is neither error nor warning: an audit reports what it can about any stratum.
        """
        rows = self.crossing(criterion.intersections)
        keys = criterion.stratified(rows.groups)
        new = [key for key in keys if key not in rows.groups]
        if new:
            every = rows
            for key in new:
                every = every._within(key, rows._every_pair(key))
            for key in new:
                rows = rows._within(key, every._kept(key, criterion, judging))
            if not any(rows.groups[key] for key in new) and not criterion.reported(rows.groups):
                raise InputError(
                    f"The column of strata {new[0].within!r} has no known value in any row, so nothing can be compared:"
                    " pass it, or leave out within=."
                )
        for key in keys:
            rows = rows._within(key, rows.groups[key])
        return rows

    def _every_pair(self, key: Stratified) -> tuple[tuple[Hashable, Hashable], ...]:
        if key.within not in self.strata:
            read_strata(None, [key.within], len(self))
        check_known(key, self.strata)
        return tuple(itertools.product(self.strata[key.within].groups, self.groups[key.attribute]))

    def _kept(self, key: Stratified, criterion: Criterion, judging: bool) -> tuple[Hashable, ...]:
        """Return the pairs of stratum and group that are compared."""
        thin, pairs = self._thin(key, criterion), self.groups[key]
        if thin and key.thin is None and not judging:
            raise InputError(
                f"Strata of {key.within!r} have too few rows to count a rate: {thin_text(key, thin)}. Merge strata, or"
                " leave strata with fewer than, say, 30 rows in a cell to the model's own decisions: thin=30 in the"
                " criterion."
            )
        if not thin or key.thin is None:
            return pairs
        n_strata = len(self.strata[key.within].groups)
        if len(thin) == n_strata:
            raise InputError(
                f"Every stratum of {key.within!r} has a cell with fewer than {key.thin} rows, so nothing can be"
                f" compared: {thin_text(key, thin)}. Merge strata, or set a smaller thin in the criterion."
            )
        if not judging:
            warnings.warn(
                f"{len(thin)} of {n_strata} strata are left to the model's own decisions, because a compared cell"
                f" has fewer than {key.thin} rows: {thin_text(key, thin)}.",
                EvenhandWarning,
                stacklevel=6,
            )
        return tuple(pair for pair in pairs if isinstance(pair, tuple) and pair[0] not in thin)

    def within(self, key: Stratified, strata: Sequence[Hashable]) -> Self:
        """Return the rows with an attribute inside each of some strata; unchanged if they have it there."""
        known = {pair[0] for pair in self.groups.get(key, ()) if isinstance(pair, tuple)}
        if known.issuperset(strata):
            return self
        return self._within(key, tuple(itertools.product(strata, self.groups[key.attribute])))

    def _within(self, key: Stratified, pairs: tuple[Hashable, ...]) -> Self:
        """Return the rows with an attribute whose groups are the given pairs of stratum and group."""
        strata, base = column_of(key, self.strata), self.attributes.get(key.attribute)
        places = pair_codes(pairs, strata.groups, self.groups[key.attribute])
        attributes, p_group = dict(self.attributes), dict(self.p_group)
        if base is not None and (key not in attributes or attributes[key].groups != pairs):
            attributes[key] = Attribute(key, pairs, places[strata.codes, base.codes])
        if key.attribute in p_group and (key not in p_group or p_group[key].shape[-1] != len(pairs)):
            p_group[key] = spread(p_group[key.attribute], strata.codes, places, len(pairs))
        return dataclasses.replace(self, attributes=attributes, p_group=p_group, groups={**self.groups, key: pairs})

    def _thin(self, key: Stratified, criterion: Criterion) -> dict[Hashable, str]:
        """Return the strata with too few rows, each with a description of its smallest cell."""
        least = FEWEST_ROWS if key.thin is None else key.thin
        named = [event for bound in criterion.constraints(self.groups) for event, _ in bound.terms]
        cells = {cell: None for e in named for cell in ((e,) if e.kind == "selection" else e.by_label)}
        fewest: dict[Hashable, tuple[float, str]] = {}
        for event, name in event_names(cells, self.groups).items():
            if event.attribute == key and event.stratum is not None:
                found = (self._rows_in(event), name)
                fewest[event.stratum[1]] = min(fewest.get(event.stratum[1], found), found)
        return {
            stratum: f"{rows:,.0f} row{'' if rows == 1 else 's'} with {name}"
            for stratum, (rows, name) in fewest.items()
            if rows < least
        }

    def _rows_in(self, event: Event) -> float:
        """Return the number of rows in an event, or the expected number if groups are not known."""
        assert event.attribute is not None
        counts = np.where(self.weights > 0.0, 1 if self.copies is None else self.copies, 0)
        attribute = self.attributes.get(event.attribute)
        if attribute is None:
            return float(counts @ scores.posteriors([event], self.groups, self.p_group, len(self))[:, 0])
        inside = attribute.codes == attribute.groups.index(event.group)
        if event.label is not None and self.positive is not None:
            inside = inside & (self.positive == bool(event.label))
        return float(counts[inside].sum())

    def inside(self, column: str, stratum: Hashable) -> Self:
        """Return the rows of one stratum, with only the groups that are compared there."""
        strata = self.strata[column]
        rows = self.take(np.flatnonzero(strata.codes == strata.groups.index(stratum)))
        for key in [key for key in rows.groups if isinstance(key, Stratified) and key.within == column]:
            rows = rows._within(key, tuple(p for p in rows.groups[key] if isinstance(p, tuple) and p[0] == stratum))
        return rows


def _column(values: Sequence[Hashable], codes: NDArray[np.intp]) -> NDArray[Any]:
    """Return values by their codes, as objects if NumPy would change them or a code is -1."""
    plain = len({type(value) for value in values}) == 1 and isinstance(values[0], bool | int | float | str)
    if plain and (codes >= 0).all():
        return np.array(values)[codes]
    objects = np.empty(len(values) + 1, dtype=object)
    objects[: len(values)] = np.fromiter(values, object, len(values))
    return objects[codes]


def read_rows(
    y: Any,
    sensitive_features: SensitiveFeatures | None,
    p_y: Any,
    p_group: GroupProbabilities | None,
    *,
    criterion: Criterion,
    sample_weight: Any = None,
    pos_label: Hashable = 1,
    groups: Any = None,
    missing: Missing = "raise",
    counted: bool = True,
    strata: SensitiveFeatures | None = None,
) -> Rows:
    """Check and read the rows for learning or auditing a rule.

    Parameters
    ----------
    y, sensitive_features, p_y, p_group, sample_weight, pos_label, groups, missing, strata
        As in :func:`evenhand.learn_rule`.
    criterion : Criterion
        It determines which attributes need probabilities, and which are crossed.
    counted : bool, default=True
        Whether labels and groups are needed, or may be None.
    """
    given = (y, sensitive_features, p_y, p_group, sample_weight, strata)
    names = ("y", "sensitive_features", "p_y", "p_group", "sample_weight", "strata")
    check_same_index(dict(zip(names, given, strict=True)))
    probabilities = read_probabilities(p_y, "p_y", shape=(None,))
    n = len(probabilities)
    if n == 0:
        raise InputError("p_y is empty: there is nothing to learn from.")
    positive, classes = _read_labels(y, n, pos_label, counted)
    attributes: dict[AttributeKey, Attribute] = {}
    if counted or sensitive_features is not None:
        attributes = read_sensitive(sensitive_features, n, missing=missing, groups=groups)
    rows = Rows(
        positive=positive,
        classes=classes,
        attributes=attributes,
        groups=_members(attributes, groups, p_group, criterion.intersections),
        p_y=probabilities,
        sample_weight=None if sample_weight is None else read_weights(sample_weight, n),
        strata=read_strata(strata, criterion.strata, n),
    )
    return with_group_probabilities(rows, p_group, criterion)


def with_group_probabilities(rows: Rows, p_group: GroupProbabilities | None, criterion: Criterion) -> Rows:
    """Return rows with the probabilities of the groups that a criterion compares, crossed ones included.

    Warns if the scores look like decisions, or the group columns seem swapped.
    """
    rows = rows.crossing(criterion.intersections)
    for crossed in criterion.intersections:
        if crossed not in rows.groups:
            raise InputError(f"groups must list the groups of {crossed!r}: there are no rows to read them from.")
    needed = needed_attributes(criterion, rows.groups)
    columns = scores.read_group_probabilities(p_group, needed, len(rows), known=rows.groups) if needed else {}
    warn_of_decisions(rows.p_y)
    if rows.attributes:
        warn_of_reversed_groups(columns, rows.attributes, rows.weights)
    return dataclasses.replace(rows, p_group=columns).for_criterion(criterion)


def needed_attributes(
    criterion: Criterion, groups: Mapping[AttributeKey, tuple[Hashable, ...]]
) -> dict[AttributeKey, tuple[Hashable, ...]]:
    """Return the groups of the attributes that a criterion compares, in the order of its events."""
    return {name: groups[name] for name in write_out(criterion.unstratified, groups).attributes}


def _read_labels(
    y: Any, n: int, pos_label: Hashable, counted: bool
) -> tuple[NDArray[np.bool_] | None, tuple[Hashable, Hashable]]:
    if y is None:
        if counted:
            raise InputError("y is None, but labels are counted: pass them, or set evidence='model'.")
        pos_label = check_label(pos_label)
        return None, (0, 1) if pos_label == 1 else (f"not {pos_label}", pos_label)
    return read_labels(y, pos_label, n)


def _members(
    attributes: Mapping[AttributeKey, Attribute],
    groups: Any,
    p_group: GroupProbabilities | None,
    crossed: Sequence[Intersection],
) -> dict[AttributeKey, tuple[Hashable, ...]]:
    """Return the groups of each attribute: those that occur, those given, or one for each column of p_group."""
    if attributes:
        return {name: attribute.groups for name, attribute in attributes.items()}
    if groups is None:
        given = p_group if isinstance(p_group, Mapping) else {"group": p_group}
        sizes = {name: tuple(range(_n_groups(array))) for name, array in given.items()}
        return scores.by_attribute(sizes, crossed, "p_group")
    if isinstance(groups, Mapping):
        return dict(scores.group_members(groups, crossed))
    return {"group": read_members(groups, "groups")}


def _n_groups(array: Any) -> int:
    shape = as_float_array(array, "p_group").shape
    return 2 if len(shape) == 1 else int(shape[-1]) if shape else 0
