"""The SQL that DuckDB and Spark share: rows under inner names, and the columns that applying a rule adds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from evenhand.engines.schema import BAD_LABEL, NEGATIVE, NO_LABEL, POSITIVE, REST_SLACK, Columns
from evenhand.errors import InputError
from evenhand.rules import lots_sql, scores
from evenhand.rules.events import AttributeKey
from evenhand.rules.lots_sql import KeyKind
from evenhand.rules.mixture import Mixture
from evenhand.rules.mixture_strata import compared_strata
from evenhand.rules.rule import Rule
from evenhand.rules.rule_strata import NO_STRATUM, rule_of_stratum, strata_of
from evenhand.rules.scores import SUM_SLACK
from evenhand.rules.sql import (
    Dialect,
    StratumTest,
    Texts,
    dialect_of,
    fair_margin,
    group_cells,
    known_strata,
    stratum_test,
)

_UNSOUND = (
    "evenhand: a row has scores that are not probabilities, or do not sum to 1"
    " (if they are outside [0, 1] by rounding, use least(greatest(score, 0), 1))"
)
_NO_STRATUM = "evenhand: a row has a stratum of {!r} that did not occur when the rule was learnt, or none"
_NO_KEY = "evenhand: a row has no valid key for its random draw: a key is a whole number from 0 to 2^62 - 1, or a text"


def inner_columns(columns: Columns, kinds: Mapping[str, str], spelling: Dialect) -> dict[str, str]:
    """Return an expression for each inner name: scores s0, ..., label, groups a0, ..., strata t0, ... and the weight w.

    ``kinds`` maps each column to its type: "text", "bool", "number", "float" or something else.
    """
    found = {"s0": _double(columns.p_y, spelling)}
    for names, cells in zip(columns.schema.names, columns.p_group, strict=True):
        given = " + ".join(_double(cell, spelling) for cell in cells if cell is not None)
        rest = f"(CAST(1 AS DOUBLE) - ({given}))"
        for name, cell in zip(names, cells, strict=True):
            found[name] = (
                f"CASE WHEN {rest} < {-REST_SLACK!r} THEN NULL WHEN {rest} < 0 THEN CAST(0 AS DOUBLE) ELSE {rest} END"
                if cell is None
                else _double(cell, spelling)
            )
    found["label"] = str(NO_LABEL) if columns.y is None else _label(columns, kinds, spelling)
    for inner, column in columns.coded.items():
        name, values = spelling.name(column), columns.schema.coded[inner]
        missing = f"{name} IS NULL" + (f" OR isnan({name})" if kinds[column] == "float" else "")
        cases = "".join(
            f" WHEN {name} = {value_text(value, kinds[column], column, spelling)} THEN {code}"
            for code, value in enumerate(values, start=1)
        )
        at_once = _run(name, kinds[column], values, 1)
        found[inner] = f"CASE{at_once} WHEN {missing} THEN 0{cases} ELSE {len(values) + 1} END"
    if columns.weight is not None:
        found["w"] = _double(columns.weight, spelling)
    return found


def _label(columns: Columns, kinds: Mapping[str, str], spelling: Dialect) -> str:
    assert columns.y is not None
    name, kind = spelling.name(columns.y), kinds[columns.y]
    negative, positive = columns.schema.classes
    text = f"CASE{_run(name, kind, (negative, positive), NEGATIVE)}"
    text += f" WHEN {name} = {value_text(positive, kind, columns.y, spelling)} THEN {POSITIVE}"
    if negative is not None:
        text += f" WHEN {name} = {value_text(negative, kind, columns.y, spelling)} THEN {NEGATIVE}"
    return f"{text} ELSE {BAD_LABEL} END"


def _run(name: str, kind: str, values: Sequence[Hashable], code: int) -> str:
    """Return a case for consecutive whole numbers with consecutive codes: one test instead of one for each."""
    whole = [value for value in values if isinstance(value, int) and abs(value) < 1 << 30]
    if kind != "number" or len(whole) != len(values) or any(b - a != 1 for a, b in itertools.pairwise(whole)):
        return ""
    return f" WHEN {name} >= {whole[0]} AND {name} <= {whole[-1]} THEN CAST({name} AS INTEGER) + ({code - whole[0]})"


def _double(column: str, spelling: Dialect) -> str:
    return f"CAST({spelling.name(column)} AS DOUBLE)"


def value_text(value: Hashable, kind: str, column: str, spelling: Dialect) -> str:
    """Return a label or group as a literal of its column's type, or raise if it cannot be one."""
    if kind == "bool" and value in (0, 1):
        return "TRUE" if value else "FALSE"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if (kind == "text" and isinstance(value, str)) or (kind in ("number", "float") and number):
        return spelling.label(value)
    raise InputError(
        f"The column {column!r} has {kind} values, but {value!r} is not one: write labels and groups as in the table."
    )


def added_columns(
    rule: Rule,
    p_y: str,
    p_group: Mapping[AttributeKey, Mapping[Hashable, str | None]],
    kinds: Mapping[str, str],
    engine: tuple[str, str],
) -> list[str]:
    """Return the expressions of decision, fair_margin, flipped and the bias scores.

    ``kinds`` maps each column to its type, and ``engine`` is the dialect and its function that fails: a row without
    valid probabilities fails with a message. So does a row that is outside [0, 1] by rounding, because clipping would
    cost half as much again on every other row, and a row of a stratum that the rule does not know.
    """
    dialect, error = engine
    spelling = dialect_of(dialect)
    if not rule.strata:
        return _columns_of(rule, p_y, p_group, spelling, error)
    is_in = _stratum_test(rule, kinds, spelling)
    if len(rule.strata) > 1:
        return _columns_of(rule, p_y, p_group, spelling, error, is_in)
    (column,), key = rule.strata, rule.stratified[0]
    members = dict.fromkeys(stratum for key in rule.stratified for stratum in strata_of(rule, key))
    inside = [_in_stratum(rule, {column: s}, p_y, p_group, spelling, error) for s in members]
    tests = [is_in(key, stratum) for stratum in members]
    if all(key.thin is not None for key in rule.stratified):
        rest = _in_stratum(rule, {column: NO_STRATUM}, p_y, p_group, spelling, error)
    else:
        rest = [f"{error}({spelling.label(_NO_STRATUM.format(column))})"] * len(inside[0])
    return [
        f"CASE {' '.join(f'WHEN {test} THEN {text}' for test, text in zip(tests, texts, strict=True))} ELSE {other} END"
        for *texts, other in zip(*inside, rest, strict=True)
    ]


def _in_stratum(
    rule: Rule,
    stratum: dict[str, Any],
    p_y: str,
    p_group: Mapping[AttributeKey, Mapping[Hashable, str | None]],
    spelling: Dialect,
    error: str,
) -> list[str]:
    """Return the expressions of one stratum: the bias scores of the other strata are 0 there."""
    kept = [event.stratum is None or stratum.get(event.stratum[0]) == event.stratum[1] for event in rule.events]
    own = [any(c for c, keep in zip(term.coefficients, kept, strict=True) if keep) for term in rule.terms]
    inner = rule_of_stratum(rule, stratum)
    decision, margin, flipped, *listed = _columns_of(inner, p_y, p_group, spelling, error)
    found = iter(listed)
    return [decision, margin, flipped, *(next(found) if mine else spelling.literal(0.0) for mine in own)]


def _columns_of(
    rule: Rule,
    p_y: str,
    p_group: Mapping[AttributeKey, Mapping[Hashable, str | None]],
    spelling: Dialect,
    error: str,
    is_in: StratumTest | None = None,
) -> list[str]:
    """Return the expressions of a rule; ``is_in`` is the condition of being in a stratum, if it has strata."""
    score = spelling.name(p_y)
    cells = group_cells(rule, p_group, spelling)
    fair = fair_margin(rule, score, cells, spelling, is_in)
    base = _base_margin(rule, score, spelling)
    negative, positive = (spelling.label(label) for label in rule.classes)
    known = {} if is_in is None else known_strata(rule, is_in)
    inside = cells if is_in is None else cells | _cells_of_strata(rule, cells, spelling, is_in)

    def placed(text: str) -> str:
        for column, condition in known.items():
            reason = spelling.label(_NO_STRATUM.format(column))
            text = f"CASE WHEN {condition} THEN {text} ELSE {error}({reason}) END"
        return text

    def guarded(text: str) -> str:
        return placed(f"CASE WHEN {_sound(score, cells)} THEN {text} ELSE {error}({spelling.label(_UNSOUND)}) END")

    return [
        guarded(f"CASE WHEN {fair} > 0 THEN {positive} ELSE {negative} END"),
        guarded(fair),
        placed(f"({base} > 0) <> ({fair} > 0)"),
        *(placed(_bias_score(rule, k, base, inside, spelling)) for k in range(len(rule.terms))),
    ]


def _cells_of_strata(
    rule: Rule, cells: Mapping[AttributeKey, Texts], spelling: Dialect, is_in: StratumTest
) -> dict[AttributeKey, Texts]:
    """Return the expressions of the probabilities within each stratum, which are 0 in the others."""
    found: dict[AttributeKey, Texts] = {}
    for key in rule.stratified:
        texts, members, pairs = cells[key.attribute], rule.groups[key.attribute], rule.groups[key]
        own = np.empty((*texts.shape[:-1], len(pairs)), dtype=object)
        for place, pair in enumerate(pairs):
            assert isinstance(pair, tuple)
            test = is_in(key, pair[0])
            for index in np.ndindex(texts.shape[:-1]):
                text = texts[(*index, members.index(pair[1]))]
                own[(*index, place)] = f"CASE WHEN {test} THEN {text} ELSE {spelling.literal(0.0)} END"
        found[key] = own
    return found


def drawn_columns(
    mixture: Mixture,
    p_y: str,
    p_group: Mapping[AttributeKey, Mapping[Hashable, str | None]],
    key: tuple[str | None, KeyKind],
    names: Sequence[str],
    kinds: Mapping[str, str],
    engine: tuple[str, str],
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what a mixture adds to a table: columns to add one after another, and the final expressions.

    The first are (name, expression); a repeated name replaces the column. The others are decision, expected_decision,
    lot, flipped and the bias scores. ``key`` is the column of keys and its type, ``names`` are the names of the new
    columns, ``kinds`` maps each column to its type, and ``engine`` is the dialect and its function that fails: a row
    without a key, without valid probabilities or of an unknown stratum fails with a message.
    """
    dialect, error = engine
    spelling, rule = dialect_of(dialect), mixture.rules[0]
    score, (column, kind) = spelling.name(p_y), key
    cells = group_cells(rule, p_group, spelling)
    base = _base_margin(rule, score, spelling)
    is_in = _stratum_test(rule, kinds, spelling)
    inside = cells | _cells_of_strata(rule, cells, spelling, is_in)
    guards = [(_sound(score, cells), _UNSOUND)]
    guards += [(condition, _NO_STRATUM.format(name)) for name, condition in known_strata(rule, is_in).items()]

    def chance(own: Mixture) -> str:
        return lots_sql.chance(own, [fair_margin(each, score, cells, spelling) for each in own.rules], spelling)

    def lot_of_scores(own: Mixture) -> str:
        given = [cell for name in own.attributes for cell in cells[name].reshape(-1)]
        return lots_sql.mixed_scores([score, *given], dialect)

    if column is None:
        first = _by_stratum(mixture, is_in, lot_of_scores)
    else:
        condition, number = lots_sql.key_number(spelling.name(column), kind, dialect)
        guards.append((condition, _NO_KEY))
        first = lots_sql.mixed_key(number, dialect)

    def guarded(text: str) -> str:
        for condition, reason in reversed(guards):
            text = f"CASE WHEN {condition} THEN {text} ELSE {error}({spelling.label(reason)}) END"
        return text

    expected, lot = map(spelling.name, names[1:3])
    stages = [(names[1], guarded(_by_stratum(mixture, is_in, chance))), (names[2], guarded(first))]
    stages += [(names[2], step(lot)) for step in lots_sql.steps_of(dialect)]
    negative, positive = (spelling.label(label) for label in mixture.classes)
    return stages, [
        f"CASE WHEN {lot} < {expected} THEN {positive} ELSE {negative} END",
        expected,
        lot,
        f"({base} > 0) <> ({lot} < {expected})",
        *(_bias_score(rule, k, base, inside, spelling) for k in range(len(rule.terms))),
    ]


def _stratum_test(rule: Rule, kinds: Mapping[str, str], spelling: Dialect) -> StratumTest:
    """Return how to write that a row is in a stratum."""
    names = {column: spelling.name(column) for column in rule.strata}
    return stratum_test(rule, names, lambda column, value: value_text(value, kinds[column], column, spelling))


def _by_stratum(mixture: Mixture, is_in: StratumTest, expression: Callable[[Mixture], str]) -> str:
    """Return an expression of a mixture or, with strata, a CASE of that of each stratum's own mixture."""
    if not mixture.strata:
        return expression(mixture)
    key = mixture.stratified[0]
    texts = {stratum: expression(mixture.for_stratum(stratum)) for stratum in compared_strata(mixture)}
    thin = all(key.thin is not None for key in mixture.stratified)
    # Without thin, rows of other strata fail before.
    rest = expression(mixture.for_stratum(NO_STRATUM)) if thin else "NULL"
    cases = [f"WHEN {is_in(key, stratum)} THEN {text}" for stratum, text in texts.items()]
    return f"CASE {' '.join(cases)} ELSE {rest} END"


def _base_margin(rule: Rule, score: str, spelling: Dialect) -> str:
    false_positive, false_negative = rule.costs
    return f"({spelling.literal(false_negative + false_positive)} * {score} - {spelling.literal(false_positive)})"


def _sound(score: str, cells: Mapping[AttributeKey, Texts]) -> str:
    """Return the condition that a row has valid probabilities."""
    names = [score, *(cell for array in cells.values() for cell in array.reshape(-1))]
    sums = [f"abs({' + '.join(array.reshape(-1))} - 1) <= {SUM_SLACK!r}" for array in cells.values()]
    return " AND ".join([*(f"{name} >= 0 AND {name} <= 1" for name in names), *sums])


def _bias_score(rule: Rule, k: int, base: str, cells: Mapping[AttributeKey, Texts], spelling: Dialect) -> str:
    """Return s_k = (2 yhat - 1) g_k / eta; infinite if eta is 0, and 0 if g_k is."""
    terms = []
    for event, prior, coefficient in zip(rule.events, rule.priors, rule.terms[k].coefficients, strict=True):
        if coefficient == 0.0:
            continue
        posterior = spelling.literal(1.0)
        if event.attribute is not None:
            array = cells[event.attribute]
            places = scores.event_columns(event, rule.groups, joint=array.ndim == 2)
            posterior = " + ".join(array.reshape(-1)[places])
        terms.append(f"{spelling.literal(coefficient)} * (({posterior}) / {spelling.literal(prior)})")
    contrast = f"({' + '.join(terms)})"
    infinite = [f"CAST('{sign}Infinity' AS DOUBLE)" for sign in ("-", "")]
    return (
        f"CASE WHEN {contrast} = 0 THEN {spelling.literal(0.0)}"
        f" WHEN {base} = 0 THEN CASE WHEN {contrast} > 0 THEN {infinite[0]} ELSE {infinite[1]} END"
        f" WHEN {base} > 0 THEN {contrast} / {base} ELSE -({contrast} / -{base}) END"
    )
