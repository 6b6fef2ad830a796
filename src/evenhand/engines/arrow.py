"""Learns from and applies rules to Arrow record batches from any source."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_flag, is_missing, shown
from evenhand.engines import source as shared
from evenhand.engines.aggregate import Aggregate
from evenhand.engines.counter import Counter, DenseCounter
from evenhand.engines.deciding import Decider, NamedColumns
from evenhand.engines.gathering import Choice, Gatherer, RawRows, chosen
from evenhand.engines.near import NearAggregate
from evenhand.engines.schema import (
    BAD_LABEL,
    FLAWED,
    NEGATIVE,
    NO_LABEL,
    POSITIVE,
    REST_SLACK,
    Cells,
    Columns,
    Frame,
    Tally,
)
from evenhand.engines.source import Learning, Names, Size
from evenhand.errors import InputError, require
from evenhand.inputs import FloatArray
from evenhand.rules.criteria import Criterion
from evenhand.rules.mixture import Mixture
from evenhand.rules.rule import Rule

BATCH_ROWS = 1 << 17
LONGEST_WAIT = 64


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
    """Learn the most accurate rule that meets a criterion, from record batches that need not fit in memory.

    Parameters
    ----------
    data : Table, Dataset, Scanner, Polars LazyFrame, RecordBatchReader, iterable of RecordBatch, or a function
        A function returns one of the others. A LazyFrame is collected in batches, each time it is read. A reader, an
        iterator or a scanner of one can be read only once: if it is larger than ``max_in_memory``, the rule is learnt
        from counts alone, the numbers of its ``solution_`` refer to quantised scores, and the status is "found".
        Anything else is read as often as needed.
    criterion, tolerance, y, sensitive_features, p_y, p_group, sample_weight, pos_label, **options
        As in :func:`evenhand.engines.duckdb.learn_rule`: names of columns.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from evenhand.engines import arrow
    >>> rng = np.random.default_rng(0)
    >>> p, f = rng.random((2, 4000))
    >>> rows = pa.table({"p": p, "f": f, "y": rng.random(4000) < p, "sex": np.where(rng.random(4000) < f, "F", "M")})
    >>> rule = arrow.learn_rule(
    ...     rows, y="y", sensitive_features="sex", p_y="p", p_group={"F": "f", "M": None}, tolerance=0.02)
    >>> max(map(abs, rule.solution_.values)) <= 0.02
    True
    >>> arrow.apply(rule, rows).read_all().column_names[4:]
    ['decision', 'fair_margin', 'flipped', 'bias_score_1']
    """
    table = _Batches(data)
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
    table = _Batches(data)
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
) -> Any:
    """Return a RecordBatchReader with the columns decision, fair_margin, flipped and bias_score_1, ... added.

    Batches are decided one by one as they are read. Columns that are not named are those that the rule was learnt on;
    see :func:`evenhand.engines.duckdb.apply`.
    """
    pa = _pyarrow()
    check_flag(keep, "keep")
    table = _Batches(data)
    score, cells = shared.columns_of_rule(rule, p_y, p_group)
    shared.check_columns(table.names, cells, score, rule.strata)
    shared.check_key(rule, key)
    if key is not None:
        shared.check_columns(table.names, {}, key)
    decider = Decider(rule, NamedColumns.of(rule, score, cells).probabilities, prefix, keep, key)
    schema = decider.schema(table.schema)
    return pa.RecordBatchReader.from_batches(schema, decider.decide_all(table.batches(), schema))


class _Batches:
    """Record batches, as the source of rows."""

    def __init__(self, data: Any) -> None:
        pa = _pyarrow()
        self.again, self._open = _opener(data)
        self._waiting: list[Any] = []
        try:
            opened = iter(self._open())
            first = next(opened, None)
        except (TypeError, ValueError, NotImplementedError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"data, {shown(data)}, cannot be read as Arrow record batches: {reason}.") from None
        if not self.again:
            self._iterator = opened
            self._waiting = [] if first is None else [first]
        if first is None:
            schema = getattr(data, "projected_schema", getattr(data, "schema", None))
            if not isinstance(schema, pa.Schema):
                raise InputError("data has no record batches.")
            self.schema = schema
        elif isinstance(first, pa.RecordBatch):
            self.schema = first.schema
        else:
            raise InputError(f"data must be made of Arrow record batches; got {type(first).__name__}.")

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        names: list[str] = self.schema.names
        return names

    def batches(self) -> Iterator[Any]:
        """Yield all batches, in pieces of at most BATCH_ROWS rows."""
        given: Iterable[Any] = self._open() if self.again else itertools.chain(self._waiting, self._iterator)
        for batch in given:
            if not _fits(batch, self.schema):
                raise InputError("The record batches do not all have the same columns.")
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)

    def distinct(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return the distinct combinations of values; of a one-time source, those at its beginning."""
        found: dict[Any, None] = {}
        if self.again:
            for batch in self.batches():
                found |= dict.fromkeys(_values(batch, columns))
                if len(found) > shared.MOST_GROUPS:
                    break
            return list(found)
        for batch in self._waiting:
            found |= dict.fromkeys(_values(batch, columns))
        while sum(None not in values for values in found) < 2 and len(self._waiting) < LONGEST_WAIT:
            batch = next(self._iterator, None)
            if batch is None:
                break
            self._waiting.append(batch)
            found |= dict.fromkeys(_values(batch, columns))
        return list(found)

    def fill(self, columns: Columns, tally: Tally, counter: Counter | DenseCounter) -> None:
        """Count the words of the rows, in one pass."""
        weighted = columns.weight is not None
        for frame in self.frames(columns):
            shared.count_frame(tally.keep(frame), tally, weighted, counter)

    def frames(self, columns: Columns) -> Iterator[Frame]:
        """Yield all rows under their inner names."""
        for batch in self.batches():
            yield _frame(batch, columns)

    def size(self, columns: Columns, most: int) -> int:
        """Return the number of rows, or some number above ``most``; a one-time source is buffered up to there."""
        found = 0
        if self.again:
            for batch in self.batches():
                found += batch.num_rows
                if found > most:
                    break
            return found
        # Only the used columns are kept.
        narrow = [self.schema.get_field_index(name) for name in columns.needed]
        whole, self.schema = self.schema, _pyarrow().schema([self.schema.field(place) for place in narrow])
        given = (b.select(narrow) if _fits(b, whole) else b for b in itertools.chain(self._waiting, self._iterator))
        self._waiting, self._iterator = [], given
        while found <= most and (batch := next(given, None)) is not None:
            self._waiting.append(batch)
            found += batch.num_rows
        return found

    def rows(self, columns: Columns, choice: Choice, most: int, *, ordered: bool) -> RawRows | None:
        """Return the selected rows; None if more than ``most`` are different."""
        gatherer = Gatherer(columns, most)
        for frame in self.frames(columns):
            if not gatherer.add(chosen(choice, frame)):
                break
        return gatherer.result()

    def inside(self, column: str, value: Hashable) -> _Batches:
        """Return the rows with one value in a column, of a source that can be read again."""
        found, pa, opened = copy.copy(self), _pyarrow(), self._open

        def open_filtered() -> Iterator[Any]:
            for batch in opened():
                yield batch.filter(pa.array(_codes(batch, column, {value: 1}, 0) == 1))

        found._open = open_filtered
        return found

    def flawed(self, columns: Columns, cells: Cells) -> str:
        """Return a text on a row with invalid probabilities."""
        if not self.again:
            return "they cannot be read again to show one"
        start = 0
        for batch in self.batches():
            frame = _frame(batch, columns)
            bad = np.equal(cells.schema.unpack(cells.words(frame), "flaw"), FLAWED)
            if bad.any():
                row = int(np.argmax(bad))
                groups = [float(frame[name][row]) for names in cells.schema.names for name in names]
                return f"the first, row {start + row:,}, has p_y = {frame['s0'][row]} and p_group = {groups}"
            start += batch.num_rows
        return "none was found again"


def _fits(batch: Any, schema: Any) -> bool:
    """Return whether a batch has the columns of the first; nullability may differ."""
    if batch.schema.equals(schema):
        return True
    required = [place for place, field in enumerate(schema) if not field.nullable]
    alike = batch.schema.names == schema.names and batch.schema.types == schema.types
    return alike and not any(batch.column(place).null_count for place in required)


def _opener(data: Any) -> tuple[bool, Callable[[], Iterable[Any]]]:
    """Return whether some data can be read again, and a function that yields its batches."""
    pa = _pyarrow()
    if callable(data):
        return True, lambda: _opener(data())[1]()
    if isinstance(data, pa.RecordBatch):
        return True, lambda: [data]
    if isinstance(data, pa.Table | pa.dataset.Dataset):
        return True, data.to_batches
    if isinstance(data, pa.dataset.Scanner):
        return _scanned(data)
    if _is_lazy_frame(data):
        return True, lambda: _collected(data)
    if isinstance(data, list | tuple):
        return True, lambda: data
    if isinstance(data, pa.RecordBatchReader | Iterator):
        return False, lambda: data
    if hasattr(data, "__arrow_c_stream__"):
        return True, lambda: pa.RecordBatchReader.from_stream(data)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return True, lambda: data
    raise InputError(f"data must be Arrow record batches, or an object that yields them; got {shown(data)}.")


def _scanned(scanner: Any) -> tuple[bool, Callable[[], Iterable[Any]]]:
    """Return whether a scanner can be read again, and a function that yields its batches."""
    pa = _pyarrow()
    opened = scanner.to_batches()
    first = list(itertools.islice(opened, 1))
    try:
        next(iter(scanner.to_batches()), None)
    except pa.ArrowInvalid:
        return False, lambda: itertools.chain(first, opened)
    return True, scanner.to_batches


def _is_lazy_frame(data: Any) -> bool:
    return type(data).__module__.startswith("polars.") and type(data).__name__ == "LazyFrame"


def _collected(frame: Any) -> Iterator[Any]:
    """Yield a Polars LazyFrame batch by batch, as it is computed."""
    if not hasattr(frame, "collect_batches"):
        raise InputError(
            "This version of Polars cannot compute a LazyFrame in batches: collect() it, or install a newer Polars."
        )
    empty = True
    for part in frame.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
        for batch in part.to_arrow().to_batches():
            empty = False
            yield batch
    if empty:
        table = frame.head(0).collect().to_arrow()
        yield _pyarrow().record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


def _frame(batch: Any, columns: Columns) -> dict[str, NDArray[Any]]:
    """Return a batch under the inner names: scores s0, ..., the label, groups a0, ..., strata t0, ..., the weight w."""
    found: dict[str, NDArray[Any]] = {"s0": _numbers(batch, columns.p_y)}
    for names, cells in zip(columns.schema.names, columns.p_group, strict=True):
        for name, cell in zip(names, cells, strict=True):
            if cell is not None:
                found[name] = _numbers(batch, cell)
        if None in cells:
            rest = 1.0 - sum(found[name] for name, cell in zip(names, cells, strict=True) if cell is not None)
            found[names[cells.index(None)]] = np.where(rest < -REST_SLACK, np.nan, np.maximum(rest, 0.0))
    if columns.y is None:
        found["label"] = np.full(batch.num_rows, NO_LABEL)
    else:
        negative, positive = columns.schema.classes
        codes = {negative: NEGATIVE, positive: POSITIVE, None: BAD_LABEL}
        found["label"] = _codes(batch, columns.y, codes, BAD_LABEL)
    for inner, column in columns.coded.items():
        values = columns.schema.coded[inner]
        codes = {None: 0, **{value: code for code, value in enumerate(values, start=1)}}
        found[inner] = _codes(batch, column, codes, len(values) + 1)
    if columns.weight is not None:
        found["w"] = _numbers(batch, columns.weight)
    return found


def _numbers(batch: Any, column: str) -> FloatArray:
    """Return a column of numbers, with NaN for missing values."""
    pa = _pyarrow()
    array = batch.column(column)
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InputError(f"The column {column!r} must contain numbers; it contains {kind} values.")
    numbers: FloatArray = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _codes(batch: Any, column: str, codes: dict[Any, int], other: int) -> NDArray[np.int64]:
    """Return the code of each value of a column: each distinct value is looked up once."""
    pa = _pyarrow()
    array = _plain(batch, column)
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    missing = codes.get(None, other)
    looked_up = [missing if is_missing(v) else codes.get(v, other) for v in encoded.dictionary.to_pylist()]
    indices = encoded.indices.fill_null(len(looked_up)).to_numpy(zero_copy_only=False)
    found: NDArray[np.int64] = np.array([*looked_up, missing], dtype=np.int64)[indices]
    return found


def _plain(batch: Any, column: str) -> Any:
    """Return a column of labels or groups, or raise if it cannot be one."""
    array = batch.column(column)
    if _pyarrow().types.is_nested(array.type):
        raise InputError(f"The column {column!r} must contain text, numbers or booleans; it has {array.type} values.")
    return array


def _values(batch: Any, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    table = _pyarrow().table({name: _plain(batch, name) for name in columns})
    found = table.group_by(list(columns)).aggregate([])
    for values in zip(*(column.to_pylist() for column in found.columns), strict=True):
        yield tuple(None if is_missing(value) else value for value in values)


def _pyarrow() -> Any:
    return require("evenhand.engines.arrow", "engines", "pyarrow", "pyarrow.dataset")
