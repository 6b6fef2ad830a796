"""A rule as one SQL expression over the probability columns.

The expression has the same operations in the same order as :meth:`evenhand.Rule.decision_function`, in double
precision, so an engine that follows IEEE 754 decides every row as Python does. A row with a score that is NULL, NaN or
not a probability is decided NULL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_choice, check_text, shown
from evenhand.errors import InputError
from evenhand.inputs import EDGE_SLACK
from evenhand.rules.events import OTHER, Stratified
from evenhand.rules.rule_strata import NO_STRATUM, strata_of, values_of_strata, weights_by_stratum
from evenhand.rules.scores import by_attribute

if TYPE_CHECKING:
    from evenhand.rules.events import AttributeKey
    from evenhand.rules.rule import Rule

Output = Literal["decision", "margin"]
Texts = NDArray[np.object_]
# A column of strata and a stratum: the condition that a row is in it.
StratumTest = Callable[[Stratified, Hashable], str]


def _doubled(text: str) -> str:
    """Return a text literal in standard SQL: a quote is doubled, and a backslash is an ordinary character."""
    return "'" + text.replace("'", "''") + "'"


def _escaped(text: str, mark: str = "'") -> str:
    """Return a literal or a name for engines in which a backslash is an escape, and a literal ends with its line."""
    for sign, escape in {"\\": "\\\\", mark: f"\\{mark}", "\n": "\\n", "\r": "\\r"}.items():
        text = text.replace(sign, escape)
    return f"{mark}{text}{mark}"


def _prefixed(text: str) -> str:
    """Return a PostgreSQL literal that does not depend on the setting standard_conforming_strings."""
    return "E" + _doubled(text.replace("\\", "\\\\")) if "\\" in text else _doubled(text)


def _in_hex(decoded: str, signs: str, *, ascii_only: bool = False) -> Callable[[str], str]:
    """Return a spelling of texts that does not depend on an engine's version or settings.

    A text with one of these characters, or with non-ASCII ones, is written in hexadecimal digits and ``decoded``,
    because engines differ in whether a backslash escapes, whether two quotes are one, and which variables are replaced.
    """

    def spell(text: str) -> str:
        if any(sign in text for sign in signs) or (ascii_only and not text.isascii()):
            return decoded.format(text.encode().hex().upper())
        return _doubled(text)

    return spell


def _pieced(pieces: Mapping[str, str], *, mark: str = "", plus: str = "||") -> Callable[[str], str]:
    """Return a spelling of texts in which some characters are separate expressions, joined by an operator."""
    cuts = re.compile("(" + "|".join(map(re.escape, pieces)) + ")")

    def spell(text: str) -> str:
        parts = [pieces.get(part) or mark + _doubled(part) for part in cuts.split(text) if part] or [mark + "''"]
        return parts[0] if len(parts) == 1 else f"({f' {plus} '.join(parts)})"

    return spell


@dataclass(frozen=True)
class Dialect:
    """How an engine spells a double precision number, a quoted name, a text and a truth value.

    Attributes
    ----------
    number : str
        A double precision number, with ``{}`` for its digits.
    quote : str
        The characters before and after a name; inside, the latter is doubled, or escaped if ``escapes`` is True.
    text : callable
        Returns a text as a literal.
    escapes : bool
        Whether a backslash escapes inside a quoted name.
    forbidden : tuple of str
        Text that a name may not contain, because the engine or its usual client replaces it everywhere.
    truth : tuple of str
        False and True.
    """

    number: str
    quote: str = '""'
    text: Callable[[str], str] = _doubled
    escapes: bool = False
    forbidden: tuple[str, ...] = ()
    truth: tuple[str, str] = ("FALSE", "TRUE")

    def literal(self, value: float) -> str:
        """Return a double precision literal that reads back exactly."""
        return self.number.format(repr(float(value)))

    def name(self, column: str) -> str:
        """Return a quoted identifier."""
        check_text(column, "The name of a column")
        if not column or not _is_text(column):
            raise InputError(f"{shown(column)} cannot be the name of a column.")
        for signs in self.forbidden:
            if signs in column:
                raise InputError(
                    f"The column {column!r} has {signs!r} in its name, which this dialect replaces everywhere:"
                    " rename the column."
                )
        first, last = self.quote[0], self.quote[1]
        return _escaped(column, last) if self.escapes else f"{first}{column.replace(last, 2 * last)}{last}"

    def label(self, value: Hashable) -> str:
        """Return a label as a literal."""
        if isinstance(value, bool):
            return self.truth[value]
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
    """Return whether every engine can store a text: no NUL character, and no half of a surrogate pair."""
    return "\x00" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


_MYSQL = Dialect("CAST('{}' AS DOUBLE)", "``", _in_hex("CONVERT(X'{}' USING utf8mb4)", signs="\\\r\n", ascii_only=True))
_SPARK = Dialect("CAST('{}' AS DOUBLE)", "``", _in_hex("CAST(X'{}' AS STRING)", signs="\\'$"), forbidden=("${",))
# sqlcmd replaces $(NAME) and treats a line GO as the end, and SQL Server drops a backslash at the end of a line.
_TSQL = _pieced({"\r": "NCHAR(13)", "\n": "NCHAR(10)", "$": "NCHAR(36)"}, mark="N", plus="+")
DIALECTS = {
    "ansi": Dialect("CAST({} AS DOUBLE PRECISION)"),
    "bigquery": Dialect("CAST('{}' AS FLOAT64)", "``", _escaped, escapes=True),
    "clickhouse": Dialect("CAST('{}' AS Float64)", "``", _escaped, escapes=True),
    "databricks": _SPARK,
    "duckdb": Dialect("CAST('{}' AS DOUBLE)"),
    "mariadb": _MYSQL,
    "mysql": _MYSQL,
    "postgres": Dialect("CAST('{}' AS DOUBLE PRECISION)", text=_prefixed),
    "redshift": Dialect("CAST('{}' AS DOUBLE PRECISION)", text=_pieced({"\\": "CHR(92)"})),
    "snowflake": Dialect("CAST('{}' AS DOUBLE)", text=_in_hex("HEX_DECODE_STRING('{}')", signs="\\&")),
    "spark": _SPARK,
    # SQLite reads an unknown name in double quotes as a text; in backticks it is an error.
    "sqlite": Dialect("{}", "``"),
    "trino": Dialect("CAST('{}' AS DOUBLE)"),
    "tsql": Dialect(
        "CAST('{}' AS FLOAT)",
        "[]",
        _TSQL,
        forbidden=("$(", "\\\n", "\\\r"),
        truth=("CAST(0 AS BIT)", "CAST(1 AS BIT)"),
    ),
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
    if len(rule.strata) == 1 or (strata is not None and not rule.strata):
        options = {"p_y": p_y, "p_group": p_group, "dialect": dialect}
        return case_of_strata(
            rule, strata, spelling, lambda own: to_sql(rule.for_stratum(own), output=output, **options)
        )
    is_in = _stratum_test(rule, _strata_columns(rule, strata), spelling)
    cells = group_cells(rule, p_group, spelling)
    margin = fair_margin(rule, spelling.name(p_y), cells, spelling, is_in)
    known = " AND ".join(known_strata(rule, is_in).values())
    if output == "margin":
        return f"CASE WHEN {known} THEN {margin} END" if known else margin
    negative, positive = (spelling.label(label) for label in rule.classes)
    given = [name for array in group_columns(rule, p_group).values() for name in array.reshape(-1).tolist()]
    columns = [p_y, *(name for name in given if name is not None)]

    def decided(low: str, high: str, margin: str) -> str:
        sound = [f"{spelling.name(column)} BETWEEN {low} AND {high}" for column in columns]
        condition = " AND ".join([*sound, known] if known else sound)
        return f"WHEN {condition} THEN CASE WHEN {margin} > 0 THEN {positive} ELSE {negative} END"

    def edged(column: str) -> str:
        return to_the_edge(spelling.name(column), spelling)

    at_the_edge = fair_margin(rule, edged(p_y), group_cells(rule, p_group, spelling, edged), spelling, is_in)
    low, high = spelling.literal(-EDGE_SLACK), spelling.literal(1.0 + EDGE_SLACK)
    # Engines sort NaN differently, but it is in no range, and neither is NULL.
    return f"CASE {decided('0', '1', margin)} {decided(low, high, at_the_edge)} END"


def _strata_columns(rule: Rule, strata: Mapping[str, str] | None) -> dict[str, str]:
    """Return the table's column for each column of strata."""
    if not isinstance(strata, Mapping | None):
        raise InputError(f"strata must be a dict of columns, such as {{'occupation': 'job'}}; got {shown(strata)}.")
    given = {} if strata is None else dict(strata)
    if stray := [name for name in given if name not in rule.strata]:
        raise InputError(f"strata names {shown(stray[0])}; the rule has strata of {list(rule.strata)!r}.")
    return {name: check_text(given.get(name, name), f"The column of {name!r}") for name in rule.strata}


def case_of_strata(
    rule: Rule, strata: Mapping[str, str] | None, spelling: Dialect, expression: Callable[[Any], str]
) -> str:
    """Return one CASE over the strata, which are those of one column or combinations; others have the default."""
    if not rule.strata:
        raise InputError("This rule has no strata: leave strata out. They are for a criterion with within=.")
    columns, key = _strata_columns(rule, strata), rule.stratified[0]
    is_in = _stratum_test(rule, columns, spelling)
    members = dict.fromkeys(stratum for key in rule.stratified for stratum in strata_of(rule, key))
    cases = [f"WHEN {is_in(key, stratum)} THEN {expression(key.by_column(stratum))}" for stratum in members]
    thin = all(key.thin is not None for key in rule.stratified)
    rest = f" ELSE {expression(dict.fromkeys(columns, NO_STRATUM))}" if thin else ""
    return f"CASE {' '.join(cases)}{rest} END"


def _stratum_test(rule: Rule, columns: Mapping[str, str], spelling: Dialect) -> StratumTest:
    """Return how to write that a row is in a stratum."""
    return stratum_test(
        rule, {name: spelling.name(given) for name, given in columns.items()}, lambda _, v: spelling.label(v)
    )


def stratum_test(rule: Rule, names: Mapping[str, str], literal: Callable[[str, Hashable], str]) -> StratumTest:
    """Return how to write that a row is in a stratum.

    ``names`` has the expression of each column of strata, and ``literal`` writes a value, given its column.
    """

    def is_in(column: str, value: Hashable) -> str:
        name = names[column]
        if value != OTHER:
            return f"{name} = {literal(column, value)}"
        compared = ", ".join(literal(column, known) for known in values_of_strata(rule, column))
        return f"({name} IS NULL OR {name} NOT IN ({compared}))" if compared else "1 = 1"

    return lambda key, stratum: " AND ".join(is_in(*each) for each in key.by_column(stratum).items())


def to_the_edge(text: str, spelling: Dialect) -> str:
    """Return a probability as Python reads it: values outside [0, 1] only by rounding are clipped."""
    zero, one, low, high = map(spelling.literal, (0.0, 1.0, -EDGE_SLACK, 1.0 + EDGE_SLACK))
    return (
        f"CASE WHEN {text} BETWEEN {low} AND 0 THEN {zero} WHEN {text} BETWEEN 1 AND {high} THEN {one} ELSE {text} END"
    )


def dialect_of(name: str) -> Dialect:
    """Return a dialect by name."""
    if not isinstance(name, str) or name not in DIALECTS:
        raise InputError(f"Unknown dialect {shown(name)}: use one of {sorted(DIALECTS)!r}.")
    return DIALECTS[name]


def fair_margin(
    rule: Rule, p_y: str, cells: Mapping[AttributeKey, Texts], spelling: Dialect, is_in: StratumTest | None = None
) -> str:
    """Return the fair margin over expressions for p_y and for each of the group probabilities.

    ``is_in`` returns the condition that a row is in a stratum. A row in no compared stratum of a column is
    not changed by that column's terms; see :func:`known_strata`.
    """
    joint = {name: array.ndim == 2 for name, array in cells.items()}
    form = rule.linear_form(joint={**joint, **{key: joint[key.attribute] for key in rule.stratified}})
    margin = f"{spelling.literal(form.intercept)} + {spelling.literal(form.slope)} * {p_y}"

    def total(weights: Sequence[float], texts: Sequence[str]) -> str:
        return " + ".join(f"{spelling.literal(float(w))} * {cell}" for w, cell in zip(weights, texts, strict=True))

    for key, weights in form.columns.items():
        if not isinstance(key, Stratified):
            margin = f"({margin}) - ({total(weights.reshape(-1).tolist(), cells[key].reshape(-1).tolist())})"
            continue
        assert is_in is not None
        texts = cells[key.attribute].reshape(-1)
        cases = " ".join(
            f"WHEN {is_in(key, stratum)} THEN {total(own, texts[at].tolist())}"
            for stratum, (own, at) in weights_by_stratum(rule, key, weights).items()
        )
        margin = f"({margin}) - (CASE {cases} ELSE {spelling.literal(0.0)} END)"
    return margin


def known_strata(rule: Rule, is_in: StratumTest) -> dict[str, str]:
    """Return the conditions that a row is in a known stratum, for each column where no other can be decided."""
    found: dict[str, list[str]] = {}
    for key in rule.stratified:
        if key.thin is None:
            some = " OR ".join(is_in(key, stratum) for stratum in strata_of(rule, key))
            found.setdefault(key.within, []).append(f"({some})")
    return {column: " AND ".join(dict.fromkeys(conditions)) for column, conditions in found.items()}


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

    One column may be None: it is 1 minus the sum of the others.
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
            raise InputError(f"p_group of {name!r} may have only one column that is None.")
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
