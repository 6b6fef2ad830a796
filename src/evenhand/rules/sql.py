"""A rule as one SQL expression over the columns that hold the probabilities.

The expression has the same operations in the same order as :meth:`evenhand.Rule.decision_function`, in double
precision, so an engine that follows IEEE 754 decides every row as Python does. A row with a score that is NULL, NaN or
no probability is decided NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_choice, check_text, shown
from evenhand.errors import InputError
from evenhand.inputs import EDGE_SLACK
from evenhand.rules.rule_strata import strata_of
from evenhand.rules.scores import by_attribute

if TYPE_CHECKING:
    from evenhand.rules.events import AttributeKey
    from evenhand.rules.rule import Rule

Output = Literal["decision", "margin"]
Texts = NDArray[np.object_]
_NO_STRATUM = object()


def _doubled(text: str) -> str:
    """Return a text literal as the standard has it: a quote is doubled, and a backslash is a sign like any other."""
    return "'" + text.replace("'", "''") + "'"


def _escaped(text: str) -> str:
    """Return a text literal for engines in which a backslash escapes, and a literal ends with its line."""
    for sign, escape in {"\\": "\\\\", "'": "\\'", "`": "\\`", "\n": "\\n", "\r": "\\r"}.items():
        text = text.replace(sign, escape)
    return f"'{text}'"


def _prefixed(text: str) -> str:
    """Return a PostgreSQL literal that does not depend on the setting standard_conforming_strings."""
    return "E" + _doubled(text.replace("\\", "\\\\")) if "\\" in text else _doubled(text)


def _in_hex(text: str) -> str:
    """Return a Spark literal that does not depend on its version or settings.

    Whether a backslash escapes, whether two quotes are one, and whether ``${...}`` is replaced differ between them.
    """
    if any(sign in text for sign in "\\'$"):
        return f"CAST(X'{text.encode().hex().upper()}' AS STRING)"
    return _doubled(text)


@dataclass(frozen=True)
class Dialect:
    """How an engine spells a double precision number, a quoted name, a text and a truth value."""

    number: str
    quote: str = '"'
    text: Callable[[str], str] = _doubled
    forbidden: str | None = None

    def literal(self, value: float) -> str:
        """Return a double precision literal that reads back to the same bits."""
        return self.number.format(repr(float(value)))

    def name(self, column: str) -> str:
        """Return a quoted identifier."""
        check_text(column, "The name of a column")
        if not column or not _is_text(column):
            raise InputError(f"{shown(column)} cannot be the name of a column.")
        if self.forbidden is not None and self.forbidden in column:
            raise InputError(
                f"The column {column!r} has {self.forbidden!r} in its name, which this dialect replaces by a variable"
                " wherever it is written: rename the column."
            )
        if self.text is _escaped:
            return f"`{_escaped(column)[1:-1]}`"
        return f"{self.quote}{column.replace(self.quote, 2 * self.quote)}{self.quote}"

    def label(self, value: Hashable) -> str:
        """Return a label as a literal."""
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, int):
            return str(int(value))
        if isinstance(value, float) and math.isfinite(value):
            return self.literal(value)
        if isinstance(value, str) and _is_text(value):
            return self.text(value)
        raise InputError(
            f"The label {value!r} cannot be written in SQL: use text without the NUL sign, finite numbers or booleans."
        )


def _is_text(text: str) -> bool:
    """Tell whether a text has only signs that every engine can hold: no NUL, and no half of a surrogate pair."""
    return "\x00" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


DIALECTS = {
    "ansi": Dialect("CAST({} AS DOUBLE PRECISION)"),
    "bigquery": Dialect("CAST('{}' AS FLOAT64)", quote="`", text=_escaped),
    "duckdb": Dialect("CAST('{}' AS DOUBLE)"),
    "postgres": Dialect("CAST('{}' AS DOUBLE PRECISION)", text=_prefixed),
    "spark": Dialect("CAST('{}' AS DOUBLE)", quote="`", text=_in_hex, forbidden="${"),
    "sqlite": Dialect("{}"),
}


def to_sql(
    rule: Rule,
    *,
    p_y: str,
    p_group: Any,
    dialect: str = "ansi",
    output: Output = "decision",
    strata: Mapping[str, str] | None = None,
) -> str:
    """Return the rule as an expression; see :meth:`evenhand.Rule.to_sql`."""
    spelling = dialect_of(dialect)
    check_choice(output, "output", ("decision", "margin"))
    check_text(p_y, "p_y", "the name of a column")
    if rule.strata:
        return _by_stratum(rule, p_y, p_group, dialect, output, _strata_columns(rule, strata))
    if strata is not None:
        raise InputError("strata is for a rule whose criterion has within=: this one has no strata.")
    cells = group_cells(rule, p_group, spelling)
    margin = fair_margin(rule, spelling.name(p_y), cells, spelling)
    if output == "margin":
        return margin
    negative, positive = (spelling.label(label) for label in rule.classes)
    given = [name for array in group_columns(rule, p_group).values() for name in array.reshape(-1).tolist()]
    columns = [p_y, *(name for name in given if name is not None)]

    def decided(low: str, high: str, margin: str) -> str:
        inside = " AND ".join(f"{spelling.name(column)} BETWEEN {low} AND {high}" for column in columns)
        return f"WHEN {inside} THEN CASE WHEN {margin} > 0 THEN {positive} ELSE {negative} END"

    def edged(column: str) -> str:
        return to_the_edge(spelling.name(column), spelling)

    at_the_edge = fair_margin(rule, edged(p_y), group_cells(rule, p_group, spelling, edged), spelling)
    low, high = spelling.literal(-EDGE_SLACK), spelling.literal(1.0 + EDGE_SLACK)
    # Wherever an engine sorts NaN, it is in no range, and neither is NULL.
    return f"CASE {decided('0', '1', margin)} {decided(low, high, at_the_edge)} END"


def _strata_columns(rule: Rule, strata: Mapping[str, str] | None) -> dict[str, str]:
    """Return the table's column for each column of strata."""
    if not isinstance(strata, Mapping | None):
        raise InputError(f"strata must be a dict of columns, such as {{'occupation': 'job'}}; got {shown(strata)}.")
    given = {} if strata is None else dict(strata)
    if stray := [name for name in given if name not in rule.strata]:
        raise InputError(f"strata names {shown(stray[0])}; the rule has strata of {list(rule.strata)!r}.")
    return {name: check_text(given.get(name, name), f"The column of {name!r}") for name in rule.strata}


def _by_stratum(rule: Rule, p_y: str, p_group: Any, dialect: str, output: Output, columns: Mapping[str, str]) -> str:
    """Return one CASE over the strata, with the expression of each; a row in none of them is as the rule says."""
    spelling = dialect_of(dialect)
    if len(rule.strata) > 1:
        raise InputError("A rule with strata of several columns is not written in SQL: write each with for_stratum.")
    ((name, column),) = columns.items()
    members = dict.fromkeys(stratum for key in rule.stratified for stratum in strata_of(rule, key))

    def expression(stratum: Hashable) -> str:
        return to_sql(rule.for_stratum({name: stratum}), p_y=p_y, p_group=p_group, dialect=dialect, output=output)

    cases = [
        f"WHEN {spelling.name(column)} = {spelling.label(stratum)} THEN {expression(stratum)}" for stratum in members
    ]
    thin = all(key.thin is not None for key in rule.stratified)
    rest = f" ELSE {expression(_NO_STRATUM)}" if thin else ""
    return f"CASE {' '.join(cases)}{rest} END"


def to_the_edge(text: str, spelling: Dialect) -> str:
    """Return a probability as Python reads it: what rounding took over the edge of [0, 1] is set to it."""
    zero, one, low, high = map(spelling.literal, (0.0, 1.0, -EDGE_SLACK, 1.0 + EDGE_SLACK))
    return (
        f"CASE WHEN {text} BETWEEN {low} AND 0 THEN {zero} WHEN {text} BETWEEN 1 AND {high} THEN {one} ELSE {text} END"
    )


def dialect_of(name: str) -> Dialect:
    """Return a dialect by name."""
    if not isinstance(name, str) or name not in DIALECTS:
        raise InputError(f"Unknown dialect {shown(name)}: use one of {sorted(DIALECTS)!r}.")
    return DIALECTS[name]


def fair_margin(rule: Rule, p_y: str, cells: Mapping[AttributeKey, Texts], spelling: Dialect) -> str:
    """Return the fair margin over expressions for p_y and for each of the group probabilities."""
    form = rule.linear_form(joint={name: array.ndim == 2 for name, array in cells.items()})
    margin = f"{spelling.literal(form.intercept)} + {spelling.literal(form.slope)} * {p_y}"
    for name, array in cells.items():
        weights = form.columns[name].reshape(-1)
        terms = [f"{spelling.literal(float(w))} * {cell}" for w, cell in zip(weights, array.reshape(-1), strict=True)]
        margin = f"({margin}) - ({' + '.join(terms)})"
    return margin


def group_cells(
    rule: Rule, p_group: Any, spelling: Dialect, spell: Callable[[str], str] | None = None
) -> dict[AttributeKey, Texts]:
    """Return, for each attribute, the expressions of its probabilities, of shape (G,) or (2, G).

    ``spell`` writes one column's probability; the default is its name.
    """
    spell = spelling.name if spell is None else spell
    found = {}
    for name, columns in group_columns(rule, p_group).items():
        texts = np.array(_expressions(columns.reshape(-1).tolist(), spelling, spell), dtype=object)
        found[name] = texts.reshape(columns.shape)
    return found


def group_columns(rule: Rule, p_group: Any) -> dict[AttributeKey, Texts]:
    """Return, for each attribute, the names of its probabilities' columns, of shape (G,) or (2, G).

    One column may be None: it is what the others leave of 1.
    """
    if not isinstance(p_group, Mapping):
        raise InputError("p_group must be a dict from groups, or pairs (label, group), to the names of columns.")
    given = by_attribute(p_group, rule.groups, "p_group") if _by_attribute(p_group) else None
    if given is None:
        if len(rule.attributes) > 1:
            raise InputError(f"p_group must have a dict for each of the attributes {list(rule.attributes)!r}.")
        given = dict.fromkeys(rule.attributes, p_group)
    found = {}
    for name in rule.attributes:
        if name not in given:
            raise InputError(f"p_group has no columns for the attribute {name!r}.")
        if not isinstance(given[name], Mapping):
            raise InputError(f"p_group of {name!r} must be a dict of columns by group; got {shown(given[name])}.")
        cells = dict(given[name])
        groups: list[Hashable] = list(rule.groups[name])
        pairs: list[Hashable] = [(label, group) for label in rule.classes for group in groups]
        joint = rule.needs_joint or set(cells) != set(groups)
        wanted = pairs if joint else groups
        if set(cells) != set(wanted):
            raise InputError(f"p_group of {name!r} must have a column for each of {wanted!r}; it has {list(cells)!r}.")
        columns = [cells[key] for key in wanted]
        if sum(column is None for column in columns) > 1:
            raise InputError(f"p_group of {name!r} may have one column that is None, not several.")
        for column in columns:
            if column is not None:
                check_text(column, f"Each column of p_group of {name!r}", "the name of a column")
        names = np.array(columns, dtype=object)
        found[name] = names.reshape(2, -1) if joint else names
    return found


def _expressions(columns: list[str | None], spelling: Dialect, spell: Callable[[str], str]) -> list[str]:
    named = [spell(column) for column in columns if column is not None]
    rest = f"{spelling.literal(1.0)} - ({' + '.join(named)})"
    zero = spelling.literal(0.0)
    return [
        f"CASE WHEN {rest} < 0 THEN {zero} ELSE {rest} END" if column is None else spell(column) for column in columns
    ]


def _by_attribute(p_group: Mapping[Any, Any]) -> bool:
    return any(isinstance(value, Mapping) for value in p_group.values())
