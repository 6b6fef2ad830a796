"""Margins, densities and bias scores from probabilities: the paper's formulas as pure functions.

Notation (the paper's -> here): 2 p(Y=1|X) - 1 -> ``margin``; eta(X) -> ``abs(margin)``;
p(A=a|X) / Pr(A=a) -> the ``density`` of the event "A=a"; f_k / (2 Yhat - 1) -> ``contrast`` k;
s_k = f_k / eta -> ``bias_score`` k (Eq. bias_score).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from evenhand.arguments import is_number, shown
from evenhand.errors import InputError
from evenhand.inputs import (
    DEFAULT_ATTRIBUTE,
    FloatArray,
    GroupProbabilities,
    columns_in_order,
    read_members,
    read_probabilities,
)
from evenhand.rules.events import AttributeKey, Event, Groups, Intersection, Stratified

SUM_SLACK = 1e-3
SMALLEST_COST, LARGEST_COST = 1e-100, 1e100
CONTRAST_ROUNDING = 2.0**-40
# OpenBLAS starts threads from 262,144 multiplications on.
PRODUCTS_AT_ONCE, MOST_ENTRIES = 1 << 17, 1 << 8
Costs = tuple[float, float]
Value = TypeVar("Value")


def read_costs(costs: Any) -> Costs:
    """Return (cost of a false positive, cost of a false negative); ``None`` is (1, 1), plain accuracy."""
    if costs is None:
        return 1.0, 1.0
    if isinstance(costs, Mapping):
        names = {"fp": "false_positive", "fn": "false_negative"}
        given = {names.get(key, key): value for key, value in costs.items()}
        if given.keys() != {"false_positive", "false_negative"}:
            raise InputError(f"costs needs 'false_positive' and 'false_negative'; got {sorted(map(str, costs))!r}.")
        pair: Sequence[Any] = (given["false_positive"], given["false_negative"])
    else:
        pair = tuple(costs) if isinstance(costs, Sequence) and not isinstance(costs, str) else ()
        if len(pair) != 2:
            raise InputError(
                f"costs must be (false positive, false negative) or a dict of the two; got {shown(costs)}."
            )
    if not all(is_number(cost) and SMALLEST_COST <= float(cost) <= LARGEST_COST for cost in pair):
        raise InputError(
            f"costs must be positive numbers, from {SMALLEST_COST:g} to {LARGEST_COST:g}; got {shown(costs)}."
        )
    return float(pair[0]), float(pair[1])


def margin(p_y: FloatArray, costs: Costs = (1.0, 1.0)) -> FloatArray:
    """Return m(x) = c_fn p - c_fp (1 - p): 2 p - 1 without costs. Its size is the paper's eta(X).

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.rules.scores import margin
    >>> margin(np.array([0.25, 0.5, 1.0]))
    array([-0.5,  0. ,  1. ])
    """
    false_positive, false_negative = costs
    return (false_negative + false_positive) * p_y - false_positive


def flat(array: FloatArray) -> FloatArray:
    """Return probabilities of shape (n, G) or (n, 2, G) as a matrix with one row for each of n; n may be 0."""
    return array.reshape(len(array), math.prod(array.shape[1:]))


def read_group_probabilities(
    p_group: GroupProbabilities | None,
    groups: Groups,
    n_rows: int,
    *,
    known: Iterable[AttributeKey] = (),
    what: str = "p_group",
) -> dict[AttributeKey, FloatArray]:
    """Return p(A|x) of shape (n, G), or p(Y,A|x) of shape (n, 2, G), for each attribute of ``groups``.

    A single attribute may be given as an array, and for two groups p(A = second group | x) alone is enough. A frame
    with columns named after the groups may have them in any order. The key of a crossed attribute is its Intersection,
    the tuple of its names, or ``"first & second"`` if no attribute among ``groups`` and ``known`` has that name.
    """
    if isinstance(p_group, Mapping):
        given = by_attribute(p_group, [*groups, *known], what)
    elif len(groups) == 1:
        given = {next(iter(groups)): p_group}
    else:
        raise InputError(f"{what} must be a dict with an array for each of the attributes {list(groups)!r}.")
    if len(given) == 1 and list(groups) == [DEFAULT_ATTRIBUTE]:
        given = {next(iter(groups)): next(iter(given.values()))}
    found = {}
    for name, members in groups.items():
        if name not in given:
            raise InputError(f"{what} has no probabilities for the attribute {name!r}; it has {list(given)!r}.")
        within = isinstance(name, Stratified)
        found[name] = _read_one_attribute(given[name], members, n_rows, f"{what} of {name!r}", may_be_none=within)
    return found


def attribute_key(key: object) -> AttributeKey:
    """Return the attribute of a key by its type: a name, or a tuple of names or an Intersection."""
    if isinstance(key, Intersection | Stratified):
        return key
    return Intersection(*key) if isinstance(key, tuple) else str(key)


def by_attribute(given: Mapping[Any, Value], known: Iterable[AttributeKey], what: str) -> dict[AttributeKey, Value]:
    """Return a caller's dict by attribute, under the known keys.

    A text that is not a known name stands for the known crossed attribute with this text, unless that has a value.
    """
    found: dict[AttributeKey, Value] = {}
    for key, value in given.items():
        name = attribute_key(key)
        if name in found:
            raise InputError(f"{what} has the attribute {name!r} twice: {list(given)!r}.")
        found[name] = value
    keys = list(dict.fromkeys(known))
    for text in [name for name in found if isinstance(name, str) and name not in keys]:
        meant = [key for key in keys if isinstance(key, Intersection) and key.name == text and key not in found]
        if len(meant) > 1:
            raise InputError(f"{what} has {text!r}, which is ambiguous between {meant!r}: use one of these as the key.")
        if meant:
            found[meant[0]] = found.pop(text)
    return found


def group_members(groups: Mapping[Any, Iterable[Hashable]], crossed: Iterable[Intersection]) -> Groups:
    """Return a caller's groups by attribute; a text names a crossed attribute only if its groups are tuples."""
    if not isinstance(groups, Mapping):
        raise InputError(f"groups must be a dict such as {{'sex': ['F', 'M']}}; got {shown(groups)}.")
    members = {name: read_members(values, f"groups of {shown(name)}") for name, values in groups.items()}
    displayed = [
        key
        for key in crossed
        if all(isinstance(group, tuple) and len(group) == len(key.attributes) for group in members.get(key.name, ()))
    ]
    return by_attribute(members, displayed, "groups")


def read_groups(groups: Any) -> Groups:
    """Return the groups of each attribute, from a dict of lists of groups by attribute."""
    if not isinstance(groups, Mapping):
        raise InputError(f"groups must be a dict such as {{'sex': ['F', 'M']}}; got {shown(groups)}.")
    for name in groups:
        if not isinstance(name, str | tuple | Intersection | Stratified):
            raise InputError(f"An attribute of groups must be text, or an Intersection; got {shown(name)}.")
    return {attribute_key(name): read_members(members, f"groups of {name!r}") for name, members in groups.items()}


def _read_one_attribute(
    values: Any, members: Sequence[Hashable], n_rows: int, what: str, *, may_be_none: bool = False
) -> FloatArray:
    n_groups = len(members)
    array = read_probabilities(columns_in_order(values, members, what), what)
    if array.ndim == 1 and n_groups == 2:
        array = np.column_stack([1.0 - array, array])
    if array.ndim not in (2, 3) or array.shape[-1] != n_groups or (array.ndim == 3 and array.shape[1] != 2):
        raise InputError(
            f"{what} must have shape (n, {n_groups}) for p(A|x) or (n, 2, {n_groups}) for p(Y,A|x), one column"
            f" for each group; got {array.shape}."
        )
    if len(array) != n_rows:
        raise InputError(f"{what} has {len(array)} rows, but the labels and probabilities have {n_rows}.")
    totals = flat(array).sum(axis=1)
    off = (np.abs(totals - 1.0) > SUM_SLACK) & ~(may_be_none & (totals == 0.0))
    if off.any():
        where = int(np.argmax(off))
        raise InputError(f"{what} must sum to 1 in each row; row {where} sums to {totals[where]:.6g}.")
    return array


def posteriors(
    events: Sequence[Event], groups: Groups, p_group: Mapping[AttributeKey, FloatArray], n_rows: int
) -> FloatArray:
    """Return p(e | x) for each row and event, of shape (n, events)."""
    found = np.ones((n_rows, len(events)))
    for j, event in enumerate(events):
        if event.attribute is not None:
            array = p_group[event.attribute]
            columns = event_columns(event, groups, joint=array.ndim == 3)
            found[:, j] = flat(array)[:, columns].sum(axis=1)
    return found


def event_columns(event: Event, groups: Groups, *, joint: bool) -> list[int]:
    """Return the columns of its attribute's (flattened) probabilities that sum to p(e | x)."""
    assert event.attribute is not None
    members = groups[event.attribute]
    index = members.index(event.group)
    if joint:
        return [label * len(members) + index for label in ((0, 1) if event.label is None else (event.label,))]
    if event.label is not None:
        raise InputError(
            f"This criterion compares rates within a label, which needs p(Y,A|x) of shape (n, 2, {len(members)});"
            f" for {event.attribute!r} only p(A|x) was given. Train the auxiliary model on the pair (label, group),"
            " or use demographic parity."
        )
    return [index]


def contrasts(densities: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return g_k(x) = sum_e c_ke d_e(x), of shape (n, K): for a pair of groups, d_a - d_b.

    A sum that is only rounding error is set to 0: a row with equal densities has no contrast.
    """
    found = products(densities, matrix)
    found[np.abs(found) <= CONTRAST_ROUNDING * products(densities, np.abs(matrix))] = 0.0
    return found


def products(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return ``rows @ matrix.T`` for many rows and a small matrix, to the bit.

    BLAS divides a large product among threads that wait for each other actively. While other processes use the cores,
    a product with few columns takes up to 80 times as long with threads as without. Blocks of rows start none.
    """
    n, entries = len(rows), matrix.size
    # A product with a vector is rounded differently in blocks.
    if len(matrix) < 2 or entries > MOST_ENTRIES or n * entries <= PRODUCTS_AT_ONCE:
        return np.asarray(rows @ matrix.T, dtype=np.float64)
    found = np.empty((n, len(matrix)))
    # Blocks of about one size: a last block of a single row would be rounded differently.
    edges = np.linspace(0, n, 1 + -(-n * entries // PRODUCTS_AT_ONCE)).astype(np.int64)
    for first, last in itertools.pairwise(edges.tolist()):
        np.matmul(rows[first:last], matrix.T, out=found[first:last])
    return found


def bias_scores(margins: FloatArray, contrast: FloatArray) -> FloatArray:
    """Return s_k(x) = (2 yhat - 1) g_k(x) / eta(x) (Eq. bias_score), of shape (n, K).

    A row with eta = 0 has no preference between the decisions: its score is infinite, with the sign of f_k, or 0 if
    g_k = 0.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.rules.scores import bias_scores
    >>> bias_scores(np.array([0.5, -0.5]), np.array([[1.0], [1.0]]))
    array([[ 2.],
           [-2.]])
    """
    sign = np.where(margins > 0.0, 1.0, -1.0)[:, None]
    size = np.abs(margins)[:, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scores = sign * contrast / size
    return np.where(contrast == 0.0, 0.0, scores)
