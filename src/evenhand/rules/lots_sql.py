"""A mixture as one SQL expression: each row's probability, its lot, and the decision.

The lot uses the arithmetic of :mod:`evenhand.rules.lots` on 64-bit whole numbers, and the probability adds the weights
in their order in double precision, so that an engine decides every row as Python does. The lot of a text needs MD5,
which the SQL standard and SQLite do not have; that of a whole number works in every dialect here. A row with a score
that is not a probability, or with a key that is missing or outside 0 to 2^62 - 1, is decided NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from evenhand.arguments import check_choice, check_text
from evenhand.errors import InputError
from evenhand.inputs import EDGE_SLACK
from evenhand.rules.lots import HIGH_WORDS, LARGEST_KEY, MD5_DIGITS, PRIME, ROUNDS, SCORE_STEPS
from evenhand.rules.sql import Dialect, case_of_strata, dialect_of, fair_margin, group_cells, group_columns, to_the_edge

if TYPE_CHECKING:
    from evenhand.rules.mixture import Mixture

KeyKind = Literal["number", "text"]
Output = Literal["decision", "expected_decision", "lot"]


@dataclass(frozen=True)
class WholeNumbers:
    """How a dialect computes with 64-bit whole numbers, and how it converts a text's MD5.

    ``whole`` converts a non-negative score in parts of 2^-30, and drops the fraction. ``is_whole`` is an additional
    condition on a numeric key, for engines whose columns may contain any type.
    """

    kind: str = "BIGINT"
    modulo: Callable[[str, int], str] = lambda text, by: f"MOD({text}, {by})"
    quotient: Callable[[str, int], str] | None = None
    whole: Callable[[str], str] | None = None
    md5: Callable[[str], str] | None = None
    is_whole: Callable[[str], str] | None = None

    def cast(self, text: str) -> str:
        """Return a whole number of 64 bits."""
        return f"CAST({text} AS {self.kind})"

    def divided(self, text: str, by: int) -> str:
        """Return the whole part of a quotient below 2^31.

        The dividend is an exact multiple, so adding a half and FLOOR correct any rounding of an engine's division.
        """
        if self.quotient is not None:
            return self.quotient(text, by)
        return self.cast(f"FLOOR(({text} - {self.modulo(text, by)}) / {by} + 0.5)")

    def floor(self, text: str) -> str:
        """Return the whole part of a score in parts of 2^-30."""
        return self.whole(text) if self.whole is not None else self.cast(f"FLOOR({text})")


def _hex(text: str) -> str:
    return f"SUBSTR(MD5({text}), 1, {MD5_DIGITS})"


WHOLE_NUMBERS = {
    "ansi": WholeNumbers(),
    "bigquery": WholeNumbers(
        kind="INT64",
        md5=lambda text: f"CAST(CONCAT('0x', SUBSTR(TO_HEX(MD5({text})), 1, {MD5_DIGITS})) AS INT64)",
    ),
    "duckdb": WholeNumbers(
        quotient=lambda text, by: f"({text} // {by})", md5=lambda text: f"CAST('0x' || {_hex(text)} AS BIGINT)"
    ),
    "postgres": WholeNumbers(
        quotient=lambda text, by: f"({text} / {by})",
        md5=lambda text: f"CAST(CAST('x' || {_hex(text)} AS BIT({4 * MD5_DIGITS})) AS BIGINT)",
    ),
    "spark": WholeNumbers(
        quotient=lambda text, by: f"({text} DIV {by})", md5=lambda text: f"CAST(CONV({_hex(text)}, 16, 10) AS BIGINT)"
    ),
    "sqlite": WholeNumbers(
        kind="INTEGER",
        modulo=lambda text, by: f"({text} % {by})",
        quotient=lambda text, by: f"({text} / {by})",
        whole=lambda text: f"CAST({text} AS INTEGER)",
        is_whole=lambda text: f"typeof({text}) = 'integer'",
    ),
}


def to_sql(
    mixture: Mixture,
    *,
    p_y: str,
    p_group: Any,
    key: str | None,
    key_kind: KeyKind,
    dialect: str,
    output: Output,
    strata: Mapping[str, str] | None = None,
) -> str:
    """Return the mixture as an expression; see :meth:`evenhand.Mixture.to_sql`."""
    spelling = dialect_of(dialect)
    check_choice(output, "output", ("decision", "expected_decision", "lot"))
    check_text(p_y, "p_y", "the name of a column")
    if mixture.strata or strata is not None:
        options = {"p_y": p_y, "p_group": p_group, "key": key, "key_kind": key_kind, "dialect": dialect}
        return case_of_strata(
            mixture.rules[0], strata, spelling, lambda own: mixture.for_stratum(own).to_sql(output=output, **options)
        )
    first = mixture.rules[0]
    given = [name for array in group_columns(first, p_group).values() for name in array.reshape(-1).tolist()]
    columns = [p_y, *(name for name in given if name is not None)]
    low, high = spelling.literal(-EDGE_SLACK), spelling.literal(1.0 + EDGE_SLACK)
    # Engines sort NaN differently, but it is in no range, and neither is NULL.
    sound = [f"{spelling.name(column)} BETWEEN {low} AND {high}" for column in columns]

    def edged(column: str) -> str:
        return f"({to_the_edge(spelling.name(column), spelling)})"

    cells = group_cells(first, p_group, spelling, edged)
    margins = [fair_margin(rule, edged(p_y), cells, spelling) for rule in mixture.rules]
    if output == "expected_decision":
        return f"CASE WHEN {' AND '.join(sound)} THEN {chance(mixture, margins, spelling)} END"
    if key is None:
        lot = lot_of_scores([edged(p_y), *(cell for array in cells.values() for cell in array.reshape(-1))], dialect)
    else:
        check_text(key, "key", "the name of a column")
        condition, number = key_number(spelling.name(key), key_kind, dialect)
        sound.append(condition)
        lot = lot_of_key(number, dialect)
    text = lot if output == "lot" else decision(mixture, margins, lot, spelling)
    return f"CASE WHEN {' AND '.join(sound)} THEN {text} END"


def chance(mixture: Mixture, margins: Sequence[str], spelling: Dialect) -> str:
    """Return the probability of a positive decision: the sum of the weights of the rules with a positive decision."""
    every = " AND ".join(f"{margin} > 0" for margin in margins)
    zero = spelling.literal(0.0)
    parts = " + ".join(
        f"CASE WHEN {margin} > 0 THEN {spelling.literal(weight)} ELSE {zero} END"
        for margin, weight in zip(margins, mixture.weights, strict=True)
    )
    return f"CASE WHEN {every} THEN {spelling.literal(1.0)} ELSE {parts} END"


def decision(mixture: Mixture, margins: Sequence[str], lot: str, spelling: Dialect) -> str:
    """Return the label; a lot is computed only if the rules disagree."""
    negative, positive = (spelling.label(label) for label in mixture.classes)
    return decision_of(margins, mixture, lot, spelling, (positive, negative))


def decision_of(margins: Sequence[str], mixture: Mixture, lot: str, spelling: Dialect, labels: tuple[str, str]) -> str:
    """Return one of two texts: the first if the decision is positive."""
    positive, negative = labels
    every = " AND ".join(f"{margin} > 0" for margin in margins)
    some = " OR ".join(f"{margin} > 0" for margin in margins)
    drawn = f"CASE WHEN {lot} < {chance(mixture, margins, spelling)} THEN {positive} ELSE {negative} END"
    if len(margins) == 1:
        return f"CASE WHEN {every} THEN {positive} ELSE {negative} END"
    return f"CASE WHEN {every} THEN {positive} WHEN {some} THEN {drawn} ELSE {negative} END"


def key_number(name: str, kind: KeyKind, dialect: str) -> tuple[str, str]:
    """Return the condition for a valid key, and the whole number that represents the key."""
    check_choice(kind, "key_kind", ("number", "text"))
    numbers = _whole_numbers(dialect)
    if kind == "number":
        condition = f"{name} BETWEEN 0 AND {LARGEST_KEY}"
        if numbers.is_whole is not None:
            condition = f"{numbers.is_whole(name)} AND {condition}"
        return condition, numbers.cast(name)
    if numbers.md5 is None:
        raise InputError(
            f"SQL of the dialect {dialect!r} has no MD5, which a text key needs: use whole numbers as keys, or"
            " add a column of them, which evenhand.rules.lots.key_numbers(texts, n) computes."
        )
    digits = f"{name} <> '' AND TRANSLATE({name}, '0123456789', '') = '' AND ({name} = '0' OR {name} NOT LIKE '0%')"
    length = len(str(LARGEST_KEY))
    fits = f"(LENGTH({name}) < {length} OR LENGTH({name}) = {length} AND {name} <= '{LARGEST_KEY}')"
    number = f"CASE WHEN {digits} AND {fits} THEN {numbers.cast(name)} ELSE {numbers.md5(name)} END"
    return f"{name} IS NOT NULL", f"({number})"


def lot_of_key(number: str, dialect: str) -> str:
    """Return the lot of a whole number: :func:`evenhand.rules.lots.draw`."""
    return _composed(mixed_key(number, dialect), dialect)


def mixed_key(number: str, dialect: str) -> str:
    """Return a key reduced modulo the prime."""
    numbers = _whole_numbers(dialect)
    words = f"{HIGH_WORDS} * {numbers.modulo(numbers.divided(number, PRIME), PRIME)}"
    return numbers.modulo(f"({numbers.modulo(number, PRIME)} + {words})", PRIME)


def lot_of_scores(cells: Sequence[str], dialect: str) -> str:
    """Return the lot of some scores: :func:`evenhand.rules.lots.keys_of_scores` and its lot."""
    return _composed(mixed_scores(cells, dialect), dialect)


def mixed_scores(cells: Sequence[str], dialect: str) -> str:
    """Return the key of some scores, which is below the prime."""
    numbers, steps = _whole_numbers(dialect), dialect_of(dialect).literal(SCORE_STEPS)
    key = numbers.modulo(numbers.floor(f"{cells[0]} * {steps}"), PRIME)
    for cell in cells[1:]:
        key = numbers.modulo(f"({HIGH_WORDS} * {key} + {numbers.floor(f'{cell} * {steps}')})", PRIME)
    return key


def _composed(mixed: str, dialect: str) -> str:
    for step in steps_of(dialect):
        mixed = step(mixed)
    return mixed


def steps_of(dialect: str) -> list[Callable[[str], str]]:
    """Return the steps that turn a number below the prime into a lot.

    Nested, they are one expression in which the number appears nine times; an engine that can name intermediate results
    needs each step once.
    """
    numbers = _whole_numbers(dialect)

    def scaled(factor: int, shift: int) -> Callable[[str], str]:
        return lambda text: numbers.modulo(f"({factor} * {text} + {shift})", PRIME)

    def cubed(text: str) -> str:
        return numbers.modulo(f"({numbers.modulo(f'({text} * {text})', PRIME)} * {text})", PRIME)

    found: list[Callable[[str], str]] = [step for each in ROUNDS for step in (scaled(*each), cubed)]
    # Whole numbers below 2^31 are exact in double precision, so the division rounds only once.
    return [*found, lambda text: f"{text} / {dialect_of(dialect).literal(PRIME)}"]


def _whole_numbers(dialect: str) -> WholeNumbers:
    if dialect not in WHOLE_NUMBERS:
        raise InputError(
            f"SQL of the dialect {dialect!r} cannot compute random draws here: use one of {sorted(WHOLE_NUMBERS)!r}, or"
            ' output="expected_decision", which is the probability of a positive decision.'
        )
    return WHOLE_NUMBERS[dialect]
