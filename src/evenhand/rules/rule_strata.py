"""Rules with strata: probabilities within each stratum, and the rule of a single stratum."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_label, shown
from evenhand.errors import InputError
from evenhand.inputs import Attribute, FloatArray, GroupProbabilities, SensitiveFeatures, read_probabilities
from evenhand.rules import scores
from evenhand.rules.events import OTHER, AttributeKey, Event, Stratified
from evenhand.rules.strata import compared_among, places_of_new_rows, read_strata, spread

if TYPE_CHECKING:
    from evenhand.rules.rule import Rule

ROWS_AT_ONCE = 100_000
# Stands for every stratum that a rule does not have.
NO_STRATUM = object()
Columns = dict[AttributeKey, FloatArray]


def with_strata(
    rule: Rule, p_y: Any, p_group: GroupProbabilities | None, strata: SensitiveFeatures | None
) -> GroupProbabilities | None:
    """Return the groups' probabilities together with those within each stratum; without strata, unchanged."""
    if not rule.strata:
        read_strata(strata, (), 0)
        return p_group
    if strata is None and isinstance(p_group, Mapping) and all(key in p_group for key in rule.stratified):
        return p_group
    p = read_probabilities(p_y, "p_y", shape=(None,))
    columns = read_plain(rule, p, p_group)
    return columns | _spread(rule, columns, read_strata(strata, rule.strata, len(p), new=True))


def parts_with_strata(
    rule: Rule, p: FloatArray, p_group: GroupProbabilities | None, strata: SensitiveFeatures
) -> Iterator[tuple[slice, Columns]]:
    """Yield the result of :func:`with_strata` in batches of rows, because all of it may not fit in memory."""
    columns, found = read_plain(rule, p, p_group), read_strata(strata, rule.strata, len(p), new=True)
    for start in range(0, len(p), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        part = {name: array[some] for name, array in columns.items()}
        inside = {n: dataclasses.replace(column, codes=column.codes[some]) for n, column in found.items()}
        yield some, part | _spread(rule, part, inside)


def read_plain(rule: Rule, p: FloatArray, p_group: GroupProbabilities | None) -> Columns:
    """Return the probabilities of the groups, without strata."""
    if p_group is None:
        raise InputError(f"This rule needs p_group, the probabilities of the groups of {list(rule.attributes)!r}.")
    groups = {name: rule.groups[name] for name in rule.attributes}
    return scores.read_group_probabilities(p_group, groups, len(p), known=rule.groups)


def columns_within(rule: Rule, p_group: Mapping[AttributeKey, FloatArray], strata: Mapping[str, Attribute]) -> Columns:
    """Return the probabilities of a rule's groups together with those within each stratum, of rows that are read."""
    columns = {name: p_group[name] for name in rule.attributes}
    return columns | _spread(rule, columns, strata)


def _spread(rule: Rule, columns: Columns, strata: Mapping[str, Attribute]) -> Columns:
    found: Columns = {}
    own = strata_as_learnt(rule, strata)
    for key in rule.stratified:
        members, pairs = rule.groups[key.attribute], rule.groups[key]
        column, places = places_of_new_rows(key, pairs, members, own)
        found[key] = spread(columns[key.attribute], column.codes, places, len(pairs))
    return found


def strata_as_learnt(rule: Rule, strata: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Return columns of strata whose values a rule knows; others are OTHER where the rule has something for these."""
    return {
        name: compared_among(column, values_of_strata(rule, name)) if has_other(rule, name) else column
        for name, column in strata.items()
    }


def has_other(rule: Rule, column: str) -> bool:
    """Return whether a rule has something for the values of a column of strata that are not compared."""
    return OTHER in _values_of_strata(rule, column)


def strata_of(rule: Rule, key: Stratified) -> tuple[Any, ...]:
    """Return the strata of a rule's attribute, in order."""
    return tuple(dict.fromkeys(pair[0] for pair in rule.groups[key] if isinstance(pair, tuple)))


def weights_by_stratum(rule: Rule, key: Stratified, weights: FloatArray) -> dict[Any, tuple[list[float], list[int]]]:
    """Return, for each stratum, the weights of its own pairs in a linear form, and their places in p_group.

    ``weights`` has shape (pairs,) or (2, pairs); the places are those in an array of shape (groups,) or (2, groups).
    """
    members, pairs = rule.groups[key.attribute], rule.groups[key]
    found: dict[Any, tuple[list[float], list[int]]] = {stratum: ([], []) for stratum in strata_of(rule, key)}
    for label, row in enumerate(weights.reshape(-1, len(pairs)).tolist()):
        for weight, pair in zip(row, pairs, strict=True):
            assert isinstance(pair, tuple)
            own, places = found[pair[0]]
            own.append(weight)
            places.append(label * len(members) + members.index(pair[1]))
    return found


def values_of_strata(rule: Rule, column: str) -> tuple[Any, ...]:
    """Return the values of one column of strata that a rule knows, also as a part of combinations."""
    return tuple(value for value in _values_of_strata(rule, column) if value != OTHER)


def _values_of_strata(rule: Rule, column: str) -> dict[Any, None]:
    found: list[Any] = []
    for key in rule.stratified:
        if column in key.columns:
            found += [key.by_column(stratum)[column] for stratum in strata_of(rule, key)]
    return dict.fromkeys(found)


def rule_of_stratum(rule: Rule, strata: Any) -> Rule:
    """Return the rule of one stratum; see :meth:`evenhand.Rule.for_stratum`."""
    given = strata if isinstance(strata, Mapping) else dict.fromkeys(rule.strata[:1], strata)
    if len(rule.strata) > 1 and strata is NO_STRATUM:
        given = dict.fromkeys(rule.strata, strata)
    elif len(rule.strata) > 1 and isinstance(strata, tuple) and len(strata) == len(rule.strata):
        given = dict(zip(rule.strata, strata, strict=True))
    if given.keys() != set(rule.strata):
        raise InputError(f"This rule has strata of {list(rule.strata)!r}: name one of each; got {shown(strata)}.")
    given = {column: _as_learnt(rule, column, value) for column, value in given.items()}
    for key in rule.stratified:
        stratum = _stratum_of(key, given)
        if stratum not in strata_of(rule, key) and key.thin is None:
            raise InputError(
                f"The rule has no stratum {shown(stratum)} of {key.within!r}; it has {list(strata_of(rule, key))!r}."
            )
    kept = [_covers(event, given) for event in rule.events]
    terms = []
    for term in rule.terms:
        coefficients = tuple(c for c, keep in zip(term.coefficients, kept, strict=True) if keep)
        if any(coefficients):
            terms.append(dataclasses.replace(term, coefficients=coefficients))
    return dataclasses.replace(
        rule,
        groups={name: members for name, members in rule.groups.items() if not isinstance(name, Stratified)},
        events=tuple(_without_stratum(event) for event, keep in zip(rule.events, kept, strict=True) if keep),
        priors=tuple(prior for prior, keep in zip(rule.priors, kept, strict=True) if keep),
        terms=tuple(terms),
        criterion=None if rule.criterion is None else rule.criterion.unstratified,
        learned_from={},
        solution=None,
    )


def _as_learnt(rule: Rule, column: str, value: Any) -> Any:
    """Return a value of a column of strata, or OTHER if it is not compared and the rule has something for these."""
    check_label(value, f"The stratum of {column!r}")
    known = value is NO_STRATUM or not has_other(rule, column) or value in values_of_strata(rule, column)
    return value if known else OTHER


def _stratum_of(key: Stratified, given: Mapping[str, Any]) -> Any:
    """Return the stratum of an attribute, given one of each column."""
    return tuple(given[column] for column in key.crossed) if key.crossed else given[key.within]


def _covers(event: Event, given: Mapping[str, Any]) -> bool:
    """Tell whether an event's rows may have the given strata."""
    if not isinstance(event.attribute, Stratified):
        return True
    assert isinstance(event.group, tuple)
    return bool(_stratum_of(event.attribute, given) == event.group[0])


def _without_stratum(event: Event) -> Event:
    """Return an event as seen inside its stratum."""
    if not isinstance(event.attribute, Stratified):
        return event
    assert isinstance(event.group, tuple)
    return Event(event.attribute.attribute, event.group[1], event.label, event.kind)


def terms_inside(rule: Rule) -> NDArray[np.bool_]:
    """Return a mask of the terms that involve only one stratum."""
    inside = [
        [event.stratum is not None or c == 0.0 for event, c in zip(rule.events, term.coefficients, strict=True)]
        for term in rule.terms
    ]
    return np.array([all(row) and bool(row) for row in inside], dtype=bool)
