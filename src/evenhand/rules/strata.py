"""Strata: a column whose values are known when a row is decided, and within which groups are compared."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.inputs import (
    Attribute,
    FloatArray,
    SensitiveFeatures,
    check_group_count,
    cross,
    factorize,
    is_named,
    named_columns,
    sort_groups,
)
from evenhand.rules.events import OTHER, Stratified

Codes = NDArray[np.intp]
# The number of strata or cells that a message names.
MOST_NAMED = 5


def read_strata(
    strata: SensitiveFeatures | None, wanted: Sequence[str], n_rows: int, *, new: bool = False
) -> dict[str, Attribute]:
    """Return each row's stratum in each of the wanted columns; the code of an unknown one is -1.

    Parameters
    ----------
    strata : array, Series, frame or dict of columns, or None
        The columns. A single unnamed column is the requested one.
    wanted : sequence of str
        The columns that a criterion or a rule names.
    n_rows : int
        The number of rows that every column must have.
    new : bool, default=False
        Whether these are rows to decide, which may be few, instead of rows to learn from.
    """
    if strata is None or not wanted:
        if strata is not None:
            raise InputError("strata needs a criterion with within=, such as within='occupation'.")
        if wanted:
            raise InputError(
                f"Groups are compared within {wanted[0]!r}: pass each row's stratum, as"
                f" strata={{{wanted[0]!r}: column}}."
            )
        return {}
    columns = named_columns(strata, "strata")
    if len(columns) == 1 and len(wanted) == 1 and not is_named(strata):
        columns = {wanted[0]: next(iter(columns.values()))}
    found = {}
    for name in wanted:
        if name not in columns:
            raise InputError(f"strata has no column {name!r}, which within= names; it has {list(columns)!r}.")
        what = f"the column of strata {name!r}"
        known, codes = factorize(columns[name], what)
        if len(codes) != n_rows:
            raise InputError(f"{what} has {len(codes)} rows, but the labels and probabilities have {n_rows}.")
        if not new:
            check_group_count(len(known), int((codes >= 0).sum()), what)
        found[name] = Attribute(name, known, codes)
    return found


def column_of(key: Stratified, strata: Mapping[str, Attribute]) -> Attribute:
    """Return the strata of an attribute within them: those of a column, or the combinations of several that occur."""
    if not key.crossed:
        return strata[key.within]
    groups, codes = cross([strata[name] for name in key.crossed])
    return Attribute(key.within, groups, codes)


def compared_among(column: Attribute, compared: Sequence[Hashable]) -> Attribute:
    """Return a column whose values are the compared ones and, if some row has another or none, :data:`OTHER`."""
    place = {stratum: code for code, stratum in enumerate(compared)}
    other = len(compared)
    codes = np.array([*(place.get(stratum, other) for stratum in column.groups), other], dtype=np.intp)[column.codes]
    groups = (*compared, OTHER) if (codes == other).any() else tuple(compared)
    return Attribute(column.name, groups, codes)


def check_unstratified(strata: Sequence[str], where: str, instead: str) -> None:
    """Raise if a criterion or a rule has strata where they are not supported."""
    if strata:
        raise InputError(f"{where} does not support within= ({strata[0]!r} here): {instead}.")


def check_known(key: Stratified, strata: Mapping[str, Attribute]) -> None:
    """Raise if a row's value in a column of strata is not known, unless such rows are left to the model."""
    for column in key.columns if key.thin is None else ():
        unknown = np.flatnonzero(strata[column].codes < 0)
        if unknown.size:
            raise InputError(
                f"The column of strata {column!r} is missing in {unknown.size} rows (the first is row {unknown[0]}):"
                " drop them, give them a separate stratum, or leave them to the model's own decisions, with thin=30 in"
                " the criterion."
            )


def pair_codes(pairs: Sequence[Hashable], strata: Sequence[Hashable], members: Sequence[Hashable]) -> Codes:
    """Return the index of each (stratum, group) among the pairs, of shape (strata + 1, groups + 1); -1 if absent.

    The last row and column are for unknown strata and groups, whose code is -1.
    """
    place = {pair: index for index, pair in enumerate(pairs)}
    found = np.full((len(strata) + 1, len(members) + 1), -1, dtype=np.intp)
    for i, stratum in enumerate(strata):
        for j, group in enumerate(members):
            found[i, j] = place.get((stratum, group), -1)
    return found


def spread(probabilities: FloatArray, codes: Codes, places: Codes, n_pairs: int) -> FloatArray:
    """Return p(s, a | x) or p(Y, s, a | x), of shape (n, pairs) or (n, 2, pairs), from p(a | x) or p(Y, a | x).

    ``codes`` is each row's stratum, and ``places`` is the result of :func:`pair_codes`. A row whose stratum is not
    among the pairs has only zeros.
    """
    found = np.zeros((*probabilities.shape[:-1], n_pairs))
    rows = np.arange(len(probabilities))
    for group in range(probabilities.shape[-1]):
        columns = places[codes, group]
        inside = columns >= 0
        found[rows[inside], ..., columns[inside]] = probabilities[inside, ..., group]
    return found


def places_of_new_rows(
    key: Stratified, pairs: Sequence[Hashable], members: Sequence[Hashable], strata: Mapping[str, Attribute]
) -> tuple[Attribute, Codes]:
    """Return the strata of new rows, and the result of :func:`pair_codes`; raise for one that is not among the pairs.

    With ``thin`` in the criterion such a stratum is left to the model's own decisions.
    """
    check_known(key, strata)
    column = column_of(key, strata)
    known = {pair[0] for pair in pairs if isinstance(pair, tuple)}
    strange = [stratum for stratum in column.groups if stratum not in known]
    if strange and key.thin is None:
        raise InputError(
            f"The stratum {strange[0]!r} of {key.within!r} did not occur when the rule was learnt, which has"
            f" {list(sort_groups(known))!r}, so its rates are unknown. With thin=30 in the criterion, for example, such"
            " rows are left to the model's own decisions."
        )
    return column, pair_codes(pairs, column.groups, members)


def thin_text(key: Stratified, cells: Mapping[Hashable, str]) -> str:
    """Return a text on the strata with too few rows, given a description of the smallest cell of each."""
    listed = list(cells.items())
    named = ", ".join(f"{key.within}={stratum} ({cell})" for stratum, cell in listed[:MOST_NAMED])
    more = len(listed) - MOST_NAMED
    return named + (f" and {more} more" if more > 0 else "")
