"""Mixtures with strata: each stratum's own rules and weights, and the rows that they decide."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.inputs import FloatArray, GroupProbabilities, SensitiveFeatures, read_probabilities
from evenhand.rules.events import Stratified
from evenhand.rules.lots import key_numbers
from evenhand.rules.rule_strata import NO_STRATUM, Columns, read_plain, strata_as_learnt, strata_of, with_strata
from evenhand.rules.strata import column_of, places_of_new_rows, read_strata

if TYPE_CHECKING:
    from evenhand.rules.mixture import DrawnReceipt, Mixture
    from evenhand.rules.rule import Rule


def check_same_strata(keys: Sequence[Stratified]) -> None:
    """Raise if the rules of a mixture have strata of several kinds: each row must be in one stratum, or in none."""
    if len({key.columns for key in keys}) > 1:
        raise InputError(
            f"The rules of a mixture must all have the same strata, but these have {[key.name for key in keys]!r}:"
            " learn_rule(..., randomize=True) uses the combinations of several columns."
        )


def rules_of_stratum(mixture: Mixture, strata: Any) -> tuple[tuple[Rule, ...], tuple[float, ...]]:
    """Return the rules that a mixture has in one stratum, each once, and their weights."""
    found: dict[tuple[float, ...], tuple[Rule, list[float]]] = {}
    for rule, weight in zip(mixture.rules, mixture.weights, strict=True):
        own = rule.for_stratum(strata)
        found.setdefault(tuple(own.z.tolist()), (own, []))[1].append(weight)
    rules = tuple(rule for rule, _ in found.values())
    return rules, tuple(math.fsum(weights) for _, weights in found.values())


def compared_strata(mixture: Mixture) -> list[Hashable]:
    """Return the strata in which a mixture has rules of their own; empty without strata."""
    first = mixture.rules[0]
    return list(dict.fromkeys(stratum for key in first.stratified for stratum in strata_of(first, key)))


def by_stratum(
    mixture: Mixture, p: FloatArray, p_group: GroupProbabilities | None, strata: SensitiveFeatures | None
) -> Iterator[tuple[Any, NDArray[np.intp], Columns]]:
    """Yield each stratum, the rows in it, and their probabilities of the groups, without strata.

    Rows of no compared stratum are in :data:`evenhand.rules.rule_strata.NO_STRATUM`.
    """
    first = mixture.rules[0]
    members = compared_strata(mixture)
    if strata is None:
        given = with_strata(first, p, p_group, None)
        codes = _codes_of_columns(first, members, first.read_columns(p, given))
        columns = read_plain(first, p, given)
    else:
        columns, codes = read_plain(first, p, p_group), _codes_of_strata(first, members, strata, len(p))
    for code, stratum in enumerate([*members, NO_STRATUM]):
        at = np.flatnonzero(codes == (code if code < len(members) else -1))
        if len(at):
            yield stratum, at, {name: array[at] for name, array in columns.items()}


def _codes_of_strata(
    first: Rule, members: Sequence[Hashable], strata: SensitiveFeatures, n_rows: int
) -> NDArray[np.intp]:
    """Return the place of each row's stratum among the compared ones; -1 if it is not one of them."""
    found = strata_as_learnt(first, read_strata(strata, first.strata, n_rows, new=True))
    column = column_of(first.stratified[0], found)
    for key in first.stratified:
        places_of_new_rows(key, first.groups[key], first.groups[key.attribute], found)
    place = {stratum: code for code, stratum in enumerate(members)}
    return np.array([*(place.get(stratum, -1) for stratum in column.groups), -1], dtype=np.intp)[column.codes]


def _codes_of_columns(first: Rule, members: Sequence[Hashable], columns: Columns) -> NDArray[np.intp]:
    """Do the same from the probabilities within strata, which are above 0 only in the row's own stratum."""
    codes = np.full(len(columns[first.stratified[0]]), -1, dtype=np.intp)
    for key in first.stratified:
        places = np.array([members.index(pair[0]) for pair in first.groups[key] if isinstance(pair, tuple)])
        inside = columns[key] if columns[key].ndim == 2 else columns[key].sum(axis=1)
        some = inside.any(axis=1)
        codes[some] = places[inside[some].argmax(axis=1)]
    return codes


def explain(
    mixture: Mixture, p_y: Any, p_group: GroupProbabilities | None, key: Any, strata: SensitiveFeatures | None
) -> list[DrawnReceipt]:
    """Return a receipt for each row, by the rules and weights of its stratum."""
    p = read_probabilities(p_y, "p_y", shape=(None,))
    keys = None if key is None else key_numbers(key, len(p))
    bias = mixture.bias_scores(p, p_group, strata=strata)
    found: dict[int, DrawnReceipt] = {}
    for stratum, at, columns in by_stratum(mixture, p, p_group, strata):
        own = mixture.for_stratum(stratum).explain(p[at], columns, key=None if keys is None else keys[at])
        for place, receipt in zip(at.tolist(), own, strict=True):
            found[place] = dataclasses.replace(receipt, bias_scores=tuple(map(float, bias[place])))
    return [found[place] for place in range(len(p))]
