"""Applies a rule to a Spark 4 DataFrame; also the functions that learning needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from evenhand.engines import source as shared
from evenhand.engines.sql import added_columns, drawn_columns
from evenhand.errors import InputError, require
from evenhand.rules.mixture import Mixture
from evenhand.rules.rule import Rule
from evenhand.rules.sql import DIALECTS

SPELLING = DIALECTS["spark"]
_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_KINDS = {"boolean": "bool", "string": "text", "float": "float", "double": "float"}


def apply(
    rule: Rule | Mixture,
    data: Any,
    *,
    p_y: str | None = None,
    p_group: Any = None,
    key: str | None = None,
    prefix: str = "",
    keep: bool = True,
) -> Any:
    """Return the DataFrame with the columns decision, fair_margin, flipped and bias_score_1, ... added.

    Columns that are not named are those that the rule was learnt on; see :func:`evenhand.engines.duckdb.apply`. A row
    without valid probabilities is an error when the result is read; so is one that is outside [0, 1] by rounding, which
    :meth:`evenhand.Rule.decide` clips: use ``least(greatest(p, 0), 1)``.
    """
    score, cells = shared.columns_of_rule(rule, p_y, p_group)
    score = second_entry(data, score)
    data, added = with_entries(data, score, cells)
    columns = list(check_frame(data).columns)
    shared.check_columns(columns, cells, score, rule.strata)
    kept = [name for name in columns if name not in added] if keep else []
    kind = shared.key_kind_of(rule, key, kinds_of(data))
    names = shared.new_names(rule, prefix, kept)
    with plain_errors():
        if isinstance(rule, Mixture):
            stages, texts = drawn_columns(
                rule, score, cells, (key, kind), names, kinds_of(data), ("spark", "raise_error")
            )
            for name, text in stages:
                others = [column for column in data.columns if column != name]
                data = data.selectExpr(*map(SPELLING.name, others), f"{text} AS {SPELLING.name(name)}")
        else:
            texts = added_columns(rule, score, cells, kinds_of(data), ("spark", "raise_error"))
        new = [f"{text} AS {SPELLING.name(name)}" for text, name in zip(texts, names, strict=True)]
        return data.selectExpr(*map(SPELLING.name, kept), *new)


def check_frame(data: Any) -> Any:
    """Return a Spark DataFrame, or raise."""
    if not all(hasattr(data, name) for name in ("selectExpr", "groupBy", "dtypes")):
        _pyspark()
        raise InputError(f"data must be a Spark DataFrame; got {type(data).__name__}.")
    return data


def kinds_of(data: Any) -> dict[str, str]:
    """Return the type of each column of a DataFrame."""
    return {name: "number" if kind in _NUMBERS else _KINDS.get(kind, kind) for name, kind in data.dtypes}


def second_entry(data: Any, column: str) -> str:
    """Return a column of probabilities; for the vector of a Spark ML classifier, the positive label's entry."""
    kinds = dict(getattr(data, "dtypes", ()))
    return f"{column}[1]" if isinstance(column, str) and kinds.get(column) == "vector" else column


def with_entries(data: Any, *given: Any) -> tuple[Any, list[str]]:
    """Return a DataFrame in which ``"column[k]"``, an entry of a vector or an array, is a column; and these columns."""
    kinds = dict(getattr(data, "dtypes", ()))
    added = []
    for name in dict.fromkeys(_texts(given)):
        found = re.fullmatch(r"(.+)\[(\d{1,6})\]", name, re.DOTALL)
        kind = kinds.get(found[1], "") if found is not None and name not in kinds else ""
        if found is None or not (kind == "vector" or kind.startswith("array<")):
            continue
        from pyspark.ml.functions import vector_to_array
        from pyspark.sql import functions

        with plain_errors():
            entries = functions.expr(SPELLING.name(found[1]))
            entries = vector_to_array(entries) if kind == "vector" else entries
            data = data.withColumn(name, entries[int(found[2])].cast("double"))
        added.append(name)
    return data, added


def _texts(given: Any) -> Iterator[str]:
    """Yield the texts inside dicts and tuples."""
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping | tuple):
        for value in given.values() if isinstance(given, Mapping) else given:
            yield from _texts(value)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Convert Spark's exceptions to :class:`InputError` with one line."""
    errors = _pyspark().errors
    try:
        yield
    except errors.PySparkException as error:
        raise InputError(f"Spark cannot do this: {str(error).splitlines()[0][:300]}") from None


def _pyspark() -> Any:
    return require("evenhand.engines.spark", "engines", "pyspark", "pyspark.errors")
