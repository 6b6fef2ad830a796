"""A rule as one SQL expression over the columns that hold the probabilities.

The expression has the same operations in the same order as :meth:`evenhand.Rule.decision_function`, in double
precision, so an engine that follows IEEE 754 decides every row as Python does.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evenhand.errors import InputError
from evenhand.scores import attribute_key

if TYPE_CHECKING:
    from evenhand.rule import Rule

Output = Literal["decision", "margin"]


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
    if dialect not in DIALECTS:
        raise InputError(f"Unknown dialect {dialect!r}: use one of {sorted(DIALECTS)!r}.")
    if output not in ("decision", "margin"):
        raise InputError(f"output must be 'decision' or 'margin'; got {output!r}.")
    spelling = DIALECTS[dialect]
    columns = _columns(rule, p_group)
    joint = {name: any(isinstance(key, tuple) for key in cells) for name, cells in columns.items()}
    form = rule.linear_form(joint=joint)
    margin = f"{spelling.literal(form.intercept)} + {spelling.literal(form.slope)} * {spelling.name(p_y)}"
    for attribute, cells in columns.items():
        terms = []
        weights = form.columns[attribute]
        for index in np.ndindex(*weights.shape):
            group = rule.groups[attribute][index[-1]]
            key: Hashable = (rule.classes[index[0]], group) if joint[attribute] else group
            terms.append(f"{spelling.literal(float(weights[index]))} * {spelling.name(cells[key])}")
        margin = f"({margin}) - ({' + '.join(terms)})"
    if output == "margin":
        return margin
    negative, positive = (spelling.label(label) for label in rule.classes)
    return f"CASE WHEN {margin} > 0 THEN {positive} ELSE {negative} END"


def _columns(rule: Rule, p_group: Any) -> dict[str, dict[Hashable, str]]:
    """Return, for each attribute, the column of each group or of each pair (label, group), checked for completeness."""
    if not isinstance(p_group, Mapping):
        raise InputError("p_group must be a dict from groups, or pairs (label, group), to the names of columns.")
    given = {attribute_key(name): cells for name, cells in p_group.items()} if _by_attribute(p_group) else None
    if given is None:
        if len(rule.attributes) != 1:
            raise InputError(f"p_group must have a dict for each of the attributes {list(rule.attributes)!r}.")
        given = {rule.attributes[0]: p_group}
    found = {}
    for name in rule.attributes:
        if name not in given:
            raise InputError(f"p_group has no columns for the attribute {name!r}.")
        cells = dict(given[name])
        groups = list(rule.groups[name])
        pairs = [(label, group) for label in rule.classes for group in groups]
        wanted = groups if set(cells) == set(groups) and not rule.needs_joint else pairs
        if set(cells) != set(wanted):
            raise InputError(f"p_group of {name!r} must have a column for each of {wanted!r}; it has {list(cells)!r}.")
        found[name] = cells
    return found


def _by_attribute(p_group: Mapping[Any, Any]) -> bool:
    return any(isinstance(value, Mapping) for value in p_group.values())
