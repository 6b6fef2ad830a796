"""Learning and applying on a Spark 4 DataFrame, with plain SQL expressions.

evenhand need not be installed on the workers. The cluster groups rows by integers made of their scores, labels and
groups. Only counts are collected, and the rows that a search needs unrounded, at most ``max_in_memory`` values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import source as shared
from evenhand.engines.aggregate import Aggregate
from evenhand.engines.counter import COARSEST, Counter, DenseCounter
from evenhand.engines.gathering import Choice, Gatherer, RawRows, chosen
from evenhand.engines.ground import Atoms
from evenhand.engines.near import NearAggregate
from evenhand.engines.schema import Cells, Columns, Tally, Words
from evenhand.engines.source import Learning, Names, Size
from evenhand.engines.spark_frame import (
    SPELLING,
    apply,
    check_frame,
    kinds_of,
    plain_errors,
    second_entry,
    with_entries,
)
from evenhand.engines.sql import inner_columns, value_text
from evenhand.errors import require
from evenhand.rules.criteria import Criterion
from evenhand.rules.mixture import Mixture
from evenhand.rules.rule import Rule

__all__ = ["FairTransformer", "Table", "aggregate", "apply", "learn_rule", "plain_errors"]  # noqa: F822 (see __getattr__)

PEEK_ROWS = 100_000
ROOM = 8


def learn_rule(
    data: Any,
    *,
    criterion: str | Criterion = "demographic_parity",
    tolerance: float = 0.05,
    y: str | None = None,
    sensitive_features: Any = None,
    p_y: str,
    p_group: Any = None,
    sample_weight: str | None = None,
    pos_label: Any = 1,
    **options: Unpack[Learning],
) -> Rule | Mixture:
    """Learn the most accurate rule that meets a criterion, from a Spark DataFrame.

    Parameters
    ----------
    data : pyspark.sql.DataFrame
        The rows. They are read several times and must be the same each time: cache them if they may change.
    criterion, tolerance, y, sensitive_features, p_y, p_group, sample_weight, pos_label, **options
        As in :func:`evenhand.engines.duckdb.learn_rule`: names of columns. Probabilities may be entries of a vector or
        an array: ``"probability[1]"``; a vector alone, such as the ``probability`` of a Spark ML classifier, means its
        second entry.
    """
    p_y = second_entry(data, p_y)
    data, _ = with_entries(data, p_y, p_group)
    table = Table(data)
    columns = shared.find_columns(
        table,
        y=y,
        sensitive_features=sensitive_features,
        p_y=p_y,
        p_group=p_group,
        sample_weight=sample_weight,
        pos_label=pos_label,
        criterion=criterion,
    )
    return shared.learn_source(table, columns, criterion=criterion, tolerance=tolerance, **options)


def aggregate(
    data: Any,
    *,
    near: Rule | None = None,
    level: int = 12,
    max_cells: int = 200_000,
    **names: Unpack[Names],
) -> Aggregate | NearAggregate:
    """Return the counts that a rule is learnt from. See :func:`learn_rule` for the parameters.

    With ``near``, a rule with one or two contrasts that was learnt from the counts of all sites, rows are counted a
    second time, finely around that rule: :class:`~evenhand.engines.NearAggregate`.
    """
    table = Table(data)
    columns = shared.find_columns(table, **names)
    if near is not None:
        return shared.aggregate_near(table, columns, near)
    size: Size = {"level": level, "max_cells": max_cells}
    return shared.aggregate_source(table, columns, **size)


def __getattr__(name: str) -> Any:
    """Return FairTransformer, which needs pyspark.ml, on first use."""
    if name != "FairTransformer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("evenhand.engines.spark.FairTransformer", "engines", "pyspark.ml")
    from evenhand.engines.spark_ml import FairTransformer

    return FairTransformer


class Table:
    """A Spark DataFrame, as the source of rows."""

    again = True

    def __init__(self, data: Any) -> None:
        self.frame = check_frame(data)

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """The type of each column."""
        return kinds_of(self.frame)

    def distinct(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return the distinct combinations of the values of some columns."""
        with plain_errors():
            found = self.frame.selectExpr(*(f"{SPELLING.name(name)} AS v{k}" for k, name in enumerate(columns)))
            return [tuple(row) for row in found.distinct().limit(shared.MOST_GROUPS + 1).collect()]

    def _inner(self, columns: Columns) -> Any:
        texts = inner_columns(columns, self.kinds, SPELLING)
        return self.frame.selectExpr(*(f"{text} AS {name}" for name, text in texts.items()))

    def fill(self, columns: Columns, tally: Tally, counter: Counter | DenseCounter) -> None:
        """Count the words of the rows, in one pass."""
        weighted = columns.weight is not None
        payload = [f"w * {name}" if weighted else name for name in tally.payload]
        sums = (["w"] if weighted else []) + payload
        keys = [f"k{j}" for j in range(tally.width)]
        texts = [f"{text} AS {key}" for text, key in zip(tally.sql("spark"), keys, strict=True)]
        texts += [f"{text} AS v{j}" for j, text in enumerate(sums)]
        with plain_errors():
            inner = self._inner(columns)
            condition = tally.where("spark")
            words = (inner if condition is None else inner.filter(condition)).selectExpr(*texts)
            if isinstance(tally, Cells) and isinstance(counter, Counter) and not isinstance(tally, Atoms):
                _count_cells(words, inner.limit(PEEK_ROWS).selectExpr(*texts), tally, counter)
            else:
                _add(counter, _grouped(words, tally, len(sums), counter.level).toArrow())

    def frames(self, columns: Columns) -> None:
        """Return None: rows are counted on the cluster."""

    def size(self, columns: Columns, most: int) -> int:
        """Return the number of rows, or one more than ``most``."""
        with plain_errors():
            return int(self.frame.selectExpr("1 AS one").limit(most + 1).count())

    def rows(self, columns: Columns, choice: Choice, most: int, *, ordered: bool) -> RawRows | None:
        """Return the selected rows; None if more than ``most`` are different."""
        from pyspark.sql import functions

        gatherer = Gatherer(columns, most)
        condition = choice.where("spark")
        with plain_errors():
            rows = self._inner(columns)
            rows = rows if condition is None else rows.filter(condition)
            if ordered:
                gatherer.add(_frame(rows.toArrow()))
                return gatherer.result()
            wanted = [functions.expr("count(1) AS n")]
            wanted += [functions.expr("sum(w) AS w")] if gatherer.weighted else []
            for table in _in_parts(rows.groupBy(*gatherer.names).agg(*wanted), gatherer.names, most):
                frame = dict(chosen(choice, _frame(table)))
                if not gatherer.add(frame, frame.pop("n")):
                    break
        return gatherer.result()

    def inside(self, column: str, value: Hashable) -> Table:
        """Return the rows with one value in a column."""
        with plain_errors():
            text = value_text(value, self.kinds[column], column, SPELLING)
            return Table(self.frame.filter(f"{SPELLING.name(column)} = {text}"))

    def flawed(self, columns: Columns, cells: Cells) -> str:
        """Return a text on a row with invalid probabilities."""
        with plain_errors():
            row = self._inner(columns).filter(f"NOT coalesce({cells.sound}, FALSE)").first().asDict()
        return f"one has p_y = {row['s0']} and p_group = {[v for k, v in row.items() if k[0] == 's' and k != 's0']}"


def _frame(table: Any) -> dict[str, NDArray[np.float64]]:
    return {name: table.column(name).to_numpy().astype(np.float64) for name in table.column_names}


def _in_parts(rows: Any, names: Sequence[str], most: int) -> Iterator[Any]:
    """Yield all rows, as tables of about ``most`` rows or fewer; if that takes several, the cluster computes them once.

    A choice may want only a few of the rows that its condition leaves, so all have to be looked at.
    """
    table = rows.limit(most + 1).toArrow()
    if table.num_rows <= most:
        yield table
        return
    kept = rows.persist()
    try:
        parts = int(np.ceil(kept.count() / most))
        for part in range(parts):
            yield kept.filter(f"pmod(xxhash64({', '.join(names)}), {parts}) = {part}").toArrow()
    finally:
        kept.unpersist()


def _count_cells(words: Any, some: Any, tally: Cells, counter: Counter) -> None:
    """Group on the cluster, as coarsely as a sample of the rows suggests, and collect the groups if they are few."""
    sums = counter.columns
    first = _grouped(some, tally, sums, counter.level).toArrow()
    rows = first.column(first.num_columns - 1).to_numpy()
    if rows.sum() < PEEK_ROWS:
        _add(counter, first)
        return
    keys = np.column_stack([first.column(j).to_numpy() for j in range(tally.width)])
    while counter.level > COARSEST and _cells_expected(keys & tally.masks(counter.level), rows) > counter.max_cells:
        counter.level -= 1
    most = ROOM * counter.max_cells
    found = _grouped(words, tally, sums, counter.level).limit(most + 1).toArrow()
    if found.num_rows <= most:
        _add(counter, found)
        return
    # The estimate was far off: keep the groups on the cluster while they are merged.
    del found
    grouped = _grouped(words, tally, sums, counter.level).persist()
    try:
        while counter.level > COARSEST and grouped.count() > most:
            counter.level -= 1
            finer, grouped = grouped, _grouped(grouped, tally, sums, counter.level, counted=True).persist()
            grouped.count()
            finer.unpersist()
        _add(counter, grouped.toArrow())
    finally:
        grouped.unpersist()


def _cells_expected(keys: Words, rows: NDArray[np.int64]) -> float:
    """Return the expected number of cells, estimated from those that some rows fill once and twice (Chao)."""
    _, inverse = np.unique(keys, axis=0, return_inverse=True)
    counts = np.bincount(inverse.reshape(-1), rows)
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    return len(counts) + once * (once - 1) / (2 * (twice + 1))


def _add(counter: Counter | DenseCounter, table: Any) -> None:
    width = table.num_columns - counter.columns - 1
    arrays = [table.column(j).to_numpy() for j in range(table.num_columns)]
    keys = np.column_stack([array.astype(np.int64) for array in arrays[:width]])
    sums = [np.nan_to_num(array.astype(np.float64)) for array in arrays[width:-1]]
    counter.add(keys, np.column_stack(sums) if sums else np.empty((len(keys), 0)), arrays[-1].astype(np.int64))


def _grouped(words: Any, tally: Tally, sums: int, level: int, *, counted: bool = False) -> Any:
    """Return the counts and sums of rows, or of groups that are already counted, at a level."""
    from pyspark.sql import functions

    keys = [f"k{j} & {mask} AS k{j}" for j, mask in enumerate(tally.masks(level).tolist())]
    values = [f"v{j}" for j in range(sums)]
    wanted = [functions.expr(f"sum({value}) AS {value}") for value in values]
    wanted.append(functions.expr("sum(n) AS n" if counted else "count(1) AS n"))
    chosen = words.selectExpr(*keys, *values, *(["n"] if counted else []))
    return chosen.groupBy(*(f"k{j}" for j in range(tally.width))).agg(*wanted)
