"""Learning and applying in DuckDB: out of core on one machine.

DuckDB reads the table; its rows are streamed in batches and counted, and the rows that a search needs unrounded are
fetched. :func:`learn_rule` describes the passes.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import narwhals.stable.v2 as nw
import numpy as np

from evenhand.arguments import check_flag, check_path, check_text, shown
from evenhand.engines import source as shared
from evenhand.engines.aggregate import Aggregate
from evenhand.engines.counter import Counter, DenseCounter
from evenhand.engines.gathering import Choice, Gatherer, RawRows, chosen
from evenhand.engines.ground import Atoms
from evenhand.engines.near import NearAggregate
from evenhand.engines.schema import Cells, Columns, Frame, Tally
from evenhand.engines.source import Learning, Names, Size
from evenhand.engines.sql import added_columns, drawn_columns, inner_columns, value_text
from evenhand.errors import InputError, require
from evenhand.files import url_of, write_error
from evenhand.inputs import as_native
from evenhand.rules.criteria import Criterion
from evenhand.rules.mixture import Mixture
from evenhand.rules.rule import Rule
from evenhand.rules.sql import DIALECTS

BATCH_ROWS = 1 << 15
SPELLING = DIALECTS["duckdb"]
_KINDS = {"BOOLEAN": "bool", "VARCHAR": "text", "FLOAT": "float", "DOUBLE": "float"}
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


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
    memory_limit: str | None = None,
    **options: Unpack[Learning],
) -> Rule | Mixture:
    """Learn the most accurate rule that meets a criterion, from a table that need not fit in memory.

    Parameters
    ----------
    data : path, folder, glob, list of paths, DuckDBPyRelation, or a frame
        Parquet or CSV files, a folder of Parquet files, or anything DuckDB can query; tables of pyarrow, pandas and
        Polars are read in place.
    criterion, tolerance
        As in :func:`evenhand.learn_rule`.
    y : str or None, default=None
        The column of labels; ``None`` with ``evidence="model"``.
    sensitive_features : str, list of str or dict, default=None
        The columns of groups; a dict names the attributes.
    p_y : str
        The column of P(Y = positive | x). Scores must be in [0, 1]; rounding errors are not clipped here.
    p_group : dict, or dict of dicts by attribute
        The column of each group for P(A = g | x), or of each pair (label, group) for P(Y = y, A = g | x). One may
        be ``None``: it is 1 minus the sum of the others. A crossed attribute's key is its
        :class:`~evenhand.Intersection`, and its groups are tuples.
    sample_weight : str or None, default=None
        The column of weights.
    pos_label : label, default=1
        The positive label.
    memory_limit : str or None, default=None
        DuckDB's memory limit, such as "2GB"; a relation's own connection keeps its limit.
    **options
        ``search``, ``evidence``, ``safety``, ``objective``, ``costs``, ``priors``, ``missing``, ``random_state``,
        ``randomize`` and ``confidence`` as in :func:`evenhand.learn_rule`; the last two need a table within
        ``max_in_memory``. A criterion's ``within`` names a column of the table.
        ``max_in_memory`` (16,000,000) is the number of values, rows times used columns, in memory at a time. For
        cells, ``level`` (12: the finest steps of scores are 2^-12) and ``max_cells`` (200,000: with more cells,
        coarser steps are used, with a warning).

    Returns
    -------
    Rule
        With ``randomize=True``, a Mixture. ``rule.solution_`` has the utility and the constraints' values counted on
        the rows themselves, and ``rule.learned_from["reading"]`` the passes over the table and the number of fetched
        rows.

    Notes
    -----
    A table within ``max_in_memory`` is read into memory, and the rule is that of :func:`evenhand.learn_rule`. Of a
    larger table, at most that much is fetched. With counted labels and the certified search, where K is the number of
    contrasts,

    - K = 1 is solved exactly, in three passes: the rule has the decisions of :func:`evenhand.learn_rule`;
    - K = 2 is solved exactly, in two passes or a few more: "optimal", or "gap" with the proven bound;
    - K > 2 is searched around a rule of a sample: "found", counted on all rows.

    Balanced accuracy takes one more pass. An F score, predictive parity and ``MinimaxRate`` take one such search after
    another: at most 8, 32 and 25. Strata are learnt from one by one; no bound may involve two.

    Otherwise, and if too many rows would have to be fetched, scores are counted in cells, the midpoints of the cells
    are searched, and the rules found are counted on the rows: "found". ``rule.learned_from["quantisation"]`` then has a
    bound on the cost of the quantisation.

    Examples
    --------
    >>> import duckdb
    >>> from evenhand.engines import duckdb as engine
    >>> rows = duckdb.sql('''
    ...     SELECT p, f, 1 - f AS m, CAST(u < p AS INTEGER) AS y, CASE WHEN v < f THEN 'F' ELSE 'M' END AS sex
    ...     FROM (SELECT (i * 0.377) % 1 AS p, (i * 0.618) % 1 AS f, (i * 0.731) % 1 AS u, (i * 0.433) % 1 AS v
    ...           FROM range(5000) AS numbers(i))''')
    >>> rule = engine.learn_rule(rows, y="y", sensitive_features="sex", p_y="p", p_group={"F": "f", "M": "m"},
    ...                          tolerance=0.02)
    >>> engine.apply(rule, rows).aggregate("avg(decision) > 0").fetchall()
    [(True,)]
    """
    table = Table(data, memory_limit)
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
    memory_limit: str | None = None,
    **names: Unpack[Names],
) -> Aggregate | NearAggregate:
    """Return the counts that a rule is learnt from. See :func:`learn_rule` for the parameters.

    With ``near``, a rule with one or two contrasts that was learnt from the counts of all sites, rows are counted a
    second time, finely around that rule: :class:`~evenhand.engines.NearAggregate`.
    """
    table = Table(data, memory_limit)
    columns = shared.find_columns(table, **names)
    if near is not None:
        return shared.aggregate_near(table, columns, near)
    size: Size = {"level": level, "max_cells": max_cells}
    return shared.aggregate_source(table, columns, **size)


def apply(
    rule: Rule | Mixture,
    data: Any,
    *,
    p_y: str | None = None,
    p_group: Any = None,
    key: str | None = None,
    prefix: str = "",
    keep: bool = True,
    memory_limit: str | None = None,
) -> Any:
    """Return a relation with the columns decision, fair_margin, flipped and bias_score_1, ... added.

    Nothing is computed until the relation is read: write it with ``.write_parquet(path)``, or query it. A row without
    valid probabilities is an error then; so is one that is outside [0, 1] by rounding, which
    :meth:`evenhand.Rule.decide` clips: use ``least(greatest(p, 0), 1)``.

    Parameters
    ----------
    rule : Rule or Mixture
        The rule. A mixture adds the columns expected_decision and lot instead of fair_margin.
    data, p_y, p_group, memory_limit
        As in :func:`learn_rule`. Columns that are not named are those that the rule was learnt on.
    key : str or None, default=None
        The column of keys, whole numbers or text, for a mixture's random draws. With None they depend on the scores.
    prefix : str, default=""
        The prefix of the names of the new columns.
    keep : bool, default=True
        Whether the table's own columns are kept.
    """
    check_flag(keep, "keep")
    table = Table(data, memory_limit, ordered=True)
    score, cells = shared.columns_of_rule(rule, p_y, p_group)
    shared.check_columns(table.names, cells, score, rule.strata)
    kind = shared.key_kind_of(rule, key, table.kinds)
    names = shared.new_names(rule, prefix, table.names if keep else ())
    relation, kept = table.relation, ["*"] if keep else []
    with plain_errors():
        if isinstance(rule, Mixture):
            stages, texts = drawn_columns(rule, score, cells, (key, kind), names, table.kinds, ("duckdb", "error"))
            for name, text in stages:
                made = f"{text} AS {SPELLING.name(name)}"
                relation = relation.project(f"* REPLACE ({made})" if name in relation.columns else f"*, {made}")
            kept = list(map(SPELLING.name, table.names)) if keep else []
        else:
            texts = added_columns(rule, score, cells, table.kinds, ("duckdb", "error"))
        new = [f"{text} AS {SPELLING.name(name)}" for text, name in zip(texts, names, strict=True)]
        return relation.project(", ".join(kept + new))


def write(relation: Any, path: Path, kind: str, *, called: Path | None = None) -> None:
    """Write a relation to a file, as ``"parquet"`` or ``"csv"``, directly under its own name.

    ``relation.write_parquet`` first writes an existing file under another name, which would remain if the process is
    killed; ``called`` is the file's name in messages.
    """
    options = f"FORMAT {kind}, USE_TMP_FILE false" + (", HEADER true" if kind == "csv" else "")
    with plain_errors(writes=(path, called or path)):
        relation.query("evenhand_rows", f"COPY evenhand_rows TO {SPELLING.label(str(path))} ({options})")


class Table:
    """A DuckDB relation, as the source of rows."""

    again = True

    def __init__(self, data: Any, memory_limit: str | None = None, *, ordered: bool = False) -> None:
        duckdb = _duckdb()
        if memory_limit is not None:
            check_text(memory_limit, "memory_limit", "a size such as '2GB'")
        self.connection: Any = None
        if isinstance(data, duckdb.DuckDBPyRelation):
            self.relation = data
            return
        frame = as_native(data, "data", eager_only=True)
        paths = [] if isinstance(frame, nw.DataFrame) else [url_of(path) or path for path in _paths(data)]
        with plain_errors():
            self.connection = duckdb.connect()
            self.connection.execute(f"SET preserve_insertion_order = {'true' if ordered else 'false'}")
            # Space for some batches ahead, so that DuckDB continues reading while the last batch is counted.
            self.connection.execute("SET streaming_buffer_size = '32MB'")
            # Nothing is downloaded without a request. Installed extensions are loaded.
            self.connection.execute("SET autoinstall_known_extensions = false")
            if memory_limit is not None:
                self.connection.execute(f"SET memory_limit = {SPELLING.label(memory_limit)}")
            if isinstance(frame, nw.DataFrame):
                self.relation = self.connection.from_arrow(frame.to_arrow())
                return
        csv = paths[0].lower().endswith((".csv", ".csv.gz", ".tsv"))
        read = self.connection.read_csv if csv else self.connection.read_parquet
        try:
            with plain_errors():
                self.relation = read(paths)
        except InputError as error:
            if (url := next(filter(None, map(url_of, paths)), None)) is None:
                raise
            raise InputError(
                f"{url} cannot be read here. {str(error).rstrip(':.')}. Download it first, or install what DuckDB needs"
                " for it (INSTALL httpfs, and a secret for what is private)."
            ) from None

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return list(self.relation.columns)

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """The type of each column."""
        types = zip(self.relation.columns, map(str, self.relation.types), strict=True)
        return {
            name: "number" if kind in _NUMBERS else _KINDS.get(kind, "text" if kind.startswith("ENUM") else kind)
            for name, kind in types
        }

    def distinct(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return the distinct combinations of the values of some columns."""
        with plain_errors():
            found = self.relation.project(", ".join(map(SPELLING.name, columns))).distinct()
            rows: list[tuple[Any, ...]] = found.limit(shared.MOST_GROUPS + 1).fetchall()
            return rows

    def _inner(self, columns: Columns) -> Any:
        texts = inner_columns(columns, self.kinds, SPELLING)
        return self.relation.project(", ".join(f"{text} AS {name}" for name, text in texts.items()))

    def fill(self, columns: Columns, tally: Tally, counter: Counter | DenseCounter) -> None:
        """Count the words of the rows, in one pass."""
        weighted = columns.weight is not None
        condition = tally.where("duckdb")
        with plain_errors():
            rows = self._inner(columns)
            if isinstance(tally, Atoms):
                _count_together(rows, tally, weighted, counter)
            elif condition is None and isinstance(tally, Cells) and isinstance(counter, Counter):
                _count_all(rows, tally, weighted, counter)
            else:
                _count_here(rows if condition is None else rows.filter(condition), tally, weighted, counter)

    def frames(self, columns: Columns) -> Iterator[Frame]:
        """Yield all rows under their inner names."""
        with plain_errors():
            yield from _frames(self._inner(columns))

    def size(self, columns: Columns, most: int) -> int:
        """Return the number of rows, or one more than ``most``."""
        with plain_errors():
            return int(self.relation.project("1 AS one").limit(most + 1).aggregate("count(*)").fetchall()[0][0])

    def rows(self, columns: Columns, choice: Choice, most: int, *, ordered: bool) -> RawRows | None:
        """Return the selected rows; None if more than ``most`` are different."""
        gatherer = Gatherer(columns, most)
        condition = choice.where("duckdb")
        with plain_errors(), self._in_order(ordered):
            rows = self._inner(columns)
            for frame in _frames(rows if condition is None else rows.filter(condition)):
                if not gatherer.add(chosen(choice, frame) if choice.loose else frame):
                    break
        return gatherer.result()

    @contextmanager
    def _in_order(self, ordered: bool) -> Iterator[None]:
        """Read files in their order for a while; a relation's own connection keeps its setting."""
        if not ordered or self.connection is None:
            yield
            return
        self.connection.execute("SET preserve_insertion_order = true")
        try:
            yield
        finally:
            self.connection.execute("SET preserve_insertion_order = false")

    def inside(self, column: str, value: Hashable) -> Table:
        """Return the rows with one value in a column."""
        found = copy.copy(self)
        with plain_errors():
            text = value_text(value, self.kinds[column], column, SPELLING)
            found.relation = self.relation.filter(f"{SPELLING.name(column)} = {text}")
        return found

    def flawed(self, columns: Columns, cells: Cells) -> str:
        """Return a text on a row with invalid probabilities."""
        with plain_errors():
            found = self._inner(columns).filter(f"({cells.sound}) IS NOT TRUE").limit(1)
            row = dict(zip(found.columns, found.fetchall()[0], strict=True))
        return f"one has p_y = {row['s0']} and p_group = {[v for k, v in row.items() if k[0] == 's' and k != 's0']}"


def _paths(data: Any) -> list[str]:
    given = [data] if isinstance(data, str | os.PathLike) else data
    if not isinstance(given, list | tuple) or not given or not all(isinstance(p, str | os.PathLike) for p in given):
        raise InputError(
            f"data must be a path, a glob, several paths, a DuckDB relation or a frame; got {shown(data)}."
        )
    found = [check_path(path, "data") for path in given]
    return [str(path / "**" / "*.parquet") if path.is_dir() else str(path) for path in found]


def _count_together(rows: Any, tally: Tally, weighted: bool, counter: Counter | DenseCounter) -> None:
    """Count rows that have few different words, grouped by DuckDB."""
    keys = [f"{text} AS k{j}" for j, text in enumerate(tally.sql("duckdb"))]
    names = ", ".join(f"k{j}" for j in range(tally.width))
    sums = ", sum(w)" if weighted else ""
    rows = rows.project(", ".join([*keys, *(["w"] if weighted else [])]))
    table = rows.aggregate(f"{names}{sums}, count(*)", names).fetchall()
    if table:
        numbers = np.array([[np.nan_to_num(float(v or 0.0)) for v in row[tally.width :]] for row in table])
        words = np.array([row[: tally.width] for row in table], dtype=np.int64)
        counter.add(words, np.ascontiguousarray(numbers[:, :-1]), numbers[:, -1].astype(np.int64))


def _count_all(rows: Any, tally: Tally, weighted: bool, counter: Counter) -> None:
    """Count every row with words made by DuckDB, with as little data to transfer as possible."""
    sums = (["w"] if weighted else []) + [f"w * {name}" if weighted else name for name in tally.payload]
    texts = [*tally.sql("duckdb"), *sums]
    rows = rows.project(", ".join(f"{text} AS c{k}" for k, text in enumerate(texts)))
    for batch in rows.to_arrow_reader(BATCH_ROWS):
        arrays = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        words = arrays[0].reshape(-1, 1) if tally.width == 1 else np.column_stack(arrays[: tally.width])
        floats = np.nan_to_num(np.column_stack(arrays[tally.width :])) if sums else np.empty((len(words), 0))
        counter.add(words, floats)


def _count_here(rows: Any, tally: Tally, weighted: bool, counter: Counter | DenseCounter) -> None:
    """Count rows whose words are made here, because DuckDB is slow after a condition, and on long expressions."""
    for frame in _frames(rows):
        shared.count_frame(frame, tally, weighted, counter)


def _frames(rows: Any) -> Iterator[Frame]:
    """Yield the rows of a relation, in batches."""
    names = rows.columns
    for batch in rows.to_arrow_reader(BATCH_ROWS):
        arrays = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        yield dict(zip(names, arrays, strict=True))


@contextmanager
def plain_errors(*, writes: tuple[Path, Path] | None = None) -> Iterator[None]:
    """Convert DuckDB's exceptions to one line: :class:`InputError`, or WriteError if a file cannot be written.

    Parameters
    ----------
    writes : (Path, Path) or None, default=None
        The file that DuckDB writes, and its name in messages.
    """
    duckdb = _duckdb()
    try:
        yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except RuntimeError as error:
        # A query that writes raises this at Ctrl-C.
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from None
        raise
    except (duckdb.Error, UnicodeError) as error:
        said = str(error).splitlines()[0]
        if writes is not None and isinstance(error, duckdb.IOException) and writes[0].name in said:
            raise write_error(writes[1], _system_error(said)) from None
        raise InputError(f"DuckDB cannot do this: {said[:300]}") from None


def _system_error(said: str) -> OSError:
    """Return the system's error at the end of a message of DuckDB."""
    for number in errno.errorcode:
        if os.strerror(number) in said:
            return OSError(number, os.strerror(number))
    return OSError(said[:300])


def _duckdb() -> Any:
    return require("evenhand.engines.duckdb", "engines", "duckdb")
