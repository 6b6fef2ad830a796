"""A rule as one SQL expression over the columns that hold the probabilities.

The expression has the same operations in the same order as :meth:`evenhand.Rule.decision_function`, in double
precision, so an engine that follows IEEE 754 decides every row as Python does. A row with a score that is NULL or NaN
is decided NULL.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.scores import attribute_key

if TYPE_CHECKING:
    from evenhand.rule import Rule

Output = Literal["decision", "margin"]
Texts = NDArray[np.object_]


@dataclass(frozen=True)
class Dialect:
    """How an engine spells a double precision number, a quoted name, a text and a truth value."""

    number: str
    quote: str = '"'
    backslash: bool = False

    def literal(self, value: float) -> str:
        """Return a double precision literal that reads back to the same bits."""
        return self.number.format(repr(float(value)))

    def name(self, column: str) -> str:
        """Return a quoted identifier."""
        if "\x00" in column or not column:
            raise InputError(f"{column!r} cannot be the name of a column.")
        inner = column.replace("\\", "\\\\") if self.backslash else column
        escaped = "\\" + self.quote if self.backslash and self.quote == "`" else 2 * self.quote
        return f"{self.quote}{inner.replace(self.quote, escaped)}{self.quote}"

    def label(self, value: Hashable) -> str:
        """Return a label as a literal."""
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return self.literal(value)
        if isinstance(value, str) and "\x00" not in value:
            inner = value.replace("\\", "\\\\") if self.backslash else value
            return "'" + inner.replace("'", "\\'" if self.backslash else "''") + "'"
        raise InputError(f"The label {value!r} cannot be written in SQL: use text, numbers or booleans.")


DIALECTS = {
    "ansi": Dialect("CAST({} AS DOUBLE PRECISION)"),
    "bigquery": Dialect("CAST('{}' AS FLOAT64)", quote="`", backslash=True),
    "duckdb": Dialect("CAST('{}' AS DOUBLE)"),
    "postgres": Dialect("CAST('{}' AS DOUBLE PRECISION)"),
    "spark": Dialect("CAST('{}' AS DOUBLE)", quote="`"),
    "sqlite": Dialect("{}"),
}


def to_sql(rule: Rule, *, p_y: str, p_group: Any, dialect: str = "ansi", output: Output = "decision") -> str:
    """Return the rule as an expression; see :meth:`evenhand.Rule.to_sql`."""
    spelling = dialect_of(dialect)
    if output not in ("decision", "margin"):
        raise InputError(f"output must be 'decision' or 'margin'; got {output!r}.")
    cells = group_cells(rule, p_group, spelling)
    margin = fair_margin(rule, spelling.name(p_y), cells, spelling)
    if output == "margin":
        return margin
    negative, positive = (spelling.label(label) for label in rule.classes)
    # Engines sort NaN above every number, so it is kept out from above; NULL fails both comparisons.
    return f"CASE WHEN {margin} <= 0 THEN {negative} WHEN {margin} < {spelling.literal(1e300)} THEN {positive} END"


def dialect_of(name: str) -> Dialect:
    """Return a dialect by name."""
    if name not in DIALECTS:
        raise InputError(f"Unknown dialect {name!r}: use one of {sorted(DIALECTS)!r}.")
    return DIALECTS[name]


def fair_margin(rule: Rule, p_y: str, cells: Mapping[str, Texts], spelling: Dialect) -> str:
    """Return the fair margin over expressions for p_y and for each of the group probabilities."""
    form = rule.linear_form(joint={name: array.ndim == 2 for name, array in cells.items()})
    margin = f"{spelling.literal(form.intercept)} + {spelling.literal(form.slope)} * {p_y}"
    for name, array in cells.items():
        weights = form.columns[name].reshape(-1)
        terms = [f"{spelling.literal(float(w))} * {cell}" for w, cell in zip(weights, array.reshape(-1), strict=True)]
        margin = f"({margin}) - ({' + '.join(terms)})"
    return margin


def group_cells(rule: Rule, p_group: Any, spelling: Dialect) -> dict[str, Texts]:
    """Return, for each attribute, the expressions of its probabilities, of shape (G,) or (2, G).

    One column may be None: it is what the others leave of 1.
    """
    if not isinstance(p_group, Mapping):
        raise InputError("p_group must be a dict from groups, or pairs (label, group), to the names of columns.")
    given = {attribute_key(name): cells for name, cells in p_group.items()} if _by_attribute(p_group) else None
    if given is None:
        if len(rule.attributes) > 1:
            raise InputError(f"p_group must have a dict for each of the attributes {list(rule.attributes)!r}.")
        given = dict.fromkeys(rule.attributes, p_group)
    found = {}
    for name in rule.attributes:
        if name not in given:
            raise InputError(f"p_group has no columns for the attribute {name!r}.")
        cells = dict(given[name])
        groups: list[Hashable] = list(rule.groups[name])
        pairs: list[Hashable] = [(label, group) for label in rule.classes for group in groups]
        joint = rule.needs_joint or set(cells) != set(groups)
        wanted = pairs if joint else groups
        if set(cells) != set(wanted):
            raise InputError(f"p_group of {name!r} must have a column for each of {wanted!r}; it has {list(cells)!r}.")
        columns = [cells[key] for key in wanted]
        if columns.count(None) > 1:
            raise InputError(f"p_group of {name!r} may have one column that is None, not {columns.count(None)}.")
        texts = np.array(_expressions(columns, spelling), dtype=object)
        found[name] = texts.reshape(2, -1) if joint else texts
    return found


def _expressions(columns: list[str | None], spelling: Dialect) -> list[str]:
    named = [spelling.name(column) for column in columns if column is not None]
    rest = f"{spelling.literal(1.0)} - ({' + '.join(named)})"
    zero = spelling.literal(0.0)
    return [
        f"CASE WHEN {rest} < 0 THEN {zero} ELSE {rest} END" if column is None else spelling.name(column)
        for column in columns
    ]


def _by_attribute(p_group: Mapping[Any, Any]) -> bool:
    return any(isinstance(value, Mapping) for value in p_group.values())
