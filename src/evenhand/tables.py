"""Tables in CSV, Parquet and Arrow (Feather), by extension, whole or in batches of rows.

Reading in batches takes memory that does not grow with the file. Output files are complete or absent: rows go to a
temporary file beside the target, which replaces the target when it is complete.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError, WriteError, require
from evenhand.files import local_path, whole_or_nothing, write_error
from evenhand.inputs import FloatArray
from evenhand.origins import STANDARD_INPUT, Origin, format_of, origin_of

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
BATCH_ROWS = 131_072
LONGEST_NAME = 80
SHOWN_NAMES = 12


def _pyarrow() -> Any:
    return require("Reading and writing tables", "cli", "pyarrow")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint with the names most similar to one that does not exist, to end a message.

    Examples
    --------
    >>> from evenhand.tables import nearest
    >>> nearest("scroe", ["score", "label", "sex"])
    "Did you mean 'score'? There are: 'score', 'label', 'sex'."
    """
    listed = list(names)
    lower = {entry.lower(): entry for entry in listed if len(entry) <= LONGEST_NAME}
    close = difflib.get_close_matches(name.lower()[:LONGEST_NAME], lower, n=3, cutoff=0.55)
    shown = ", ".join(shorten(entry) for entry in listed[:SHOWN_NAMES])
    more = f" and {len(listed) - SHOWN_NAMES} more" if len(listed) > SHOWN_NAMES else ""
    guess = f"Did you mean {' or '.join(repr(lower[found]) for found in close)}? " if close else ""
    return f"{guess}There are: {shown}{more}." if listed else "There are none."


def shorten(name: str) -> str:
    """Return a name in quotes, shortened in the middle if it is long."""
    return repr(name) if len(name) <= LONGEST_NAME else f"{name[:40]!r}...{name[-10:]!r}"


@dataclass(frozen=True)
class Source:
    """An open table: the names of its columns, its number of rows if known, and its rows in batches."""

    path: str
    names: tuple[str, ...]
    schema: Any
    rows: int | None
    batches: Callable[[], Iterator[Any]]

    def check_columns(self, wanted: Iterable[str]) -> None:
        """Raise :class:`InputError` if a column is missing, with similar names, or is duplicated."""
        for name in wanted:
            times = self.names.count(name)
            if times == 0:
                raise InputError(f"{self.path} has no column {name!r}. {nearest(name, self.names)}")
            if times > 1:
                raise InputError(
                    f"{self.path} has {times} columns called {name!r}: rename them, so that the name is unique."
                )


@contextlib.contextmanager
def _plain_errors(origin: Origin) -> Iterator[None]:
    """Convert exceptions of pyarrow and the operating system about reading a table into one message."""
    import pyarrow as pa

    path = origin.shown
    try:
        yield
    except pa.ArrowCancelled:
        raise KeyboardInterrupt from None
    except WriteError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except PermissionError:
        raise InputError(f"{path} cannot be read by this user: check its permissions.") from None
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeError, csv.Error) as error:
        reason = _reason(error)
        hint = " Is it UTF-8?" if "UTF8" in reason or "utf-8" in reason.lower() else ""
        raise InputError(f"{path} cannot be read as {origin.kind}: {reason}.{hint}") from None


@contextlib.contextmanager
def _plain_write_errors(path: Path) -> Iterator[None]:
    """Convert exceptions of pyarrow and the operating system about writing a file into one message."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowCancelled:
        raise KeyboardInterrupt from None
    except (WriteError, BrokenPipeError):
        raise
    except OSError as error:
        raise write_error(path, error) from error
    except pa.ArrowException as error:
        other = "" if format_of(path) == "parquet" else " Parquet supports it: give the output the extension .parquet."
        raise InputError(f"{path} cannot be written as {format_of(path)}: {_reason(error)}.{other}") from None


def _reason(error: Exception) -> str:
    reason = " ".join(str(error).split()).rstrip(".")
    return (reason if len(reason) <= 300 else reason[:300] + " ...") or type(error).__name__


def open_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    numbers: Sequence[str] = (),
    verbatim: bool = False,
) -> Source:
    """Open a table for reading in batches.

    Parameters
    ----------
    path : path
        A .csv, .csv.gz, .parquet (.pq) or .arrow (.feather, .ipc) file; a folder or a glob of Parquet files; an address
        (http, https, or of a file system that pyarrow supports); ``-`` for standard input.
    columns : sequence of str, default=None
        Read only these; None reads all.
    numbers : sequence of str, default=()
        Columns of a CSV file that must be numeric.
    verbatim : bool, default=False
        Read the other columns of a CSV file as unchanged text.
    """
    _pyarrow()
    origin = origin_of(path)
    with _plain_errors(origin):
        if all(file.exists() and file.stat().st_size == 0 for file in origin.files):
            raise InputError(f"{origin.shown} is empty.")
        openers = {"csv": _open_csv, "parquet": _open_parquet, "arrow": _open_arrow}
        opener = _open_parquets if origin.folder is not None else openers[origin.kind]
        opened = opener(origin, columns, numbers, verbatim)
        if columns is not None:
            opened.check_columns(columns)
        return opened


def _guarded(origin: Origin, make: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    def batches() -> Iterator[Any]:
        with _plain_errors(origin):
            yield from make()

    return batches


def _open_parquet(origin: Origin, columns: Sequence[str] | None, numbers: Sequence[str], verbatim: bool) -> Source:
    import pyarrow.parquet as pq

    # With pre_buffer, pyarrow keeps what it read until the file is closed.
    file = pq.ParquetFile(origin.files[0], pre_buffer=False)
    schema = file.schema_arrow

    def batches() -> Iterator[Any]:
        yield from file.iter_batches(batch_size=BATCH_ROWS, columns=None if columns is None else list(columns))

    return Source(origin.shown, tuple(schema.names), schema, file.metadata.num_rows, _guarded(origin, batches))


def _open_parquets(origin: Origin, columns: Sequence[str] | None, numbers: Sequence[str], verbatim: bool) -> Source:
    """Open several Parquet files as one table; a folder named ``column=value`` adds a column."""
    from pyarrow import dataset

    found = dataset.dataset(
        list(map(str, origin.files)), format="parquet", partitioning="hive", partition_base_dir=str(origin.folder)
    )
    first, *others = (fragment.physical_schema for fragment in found.get_fragments())
    for file, schema in zip(origin.files[1:], others, strict=True):
        if not schema.equals(first):
            raise InputError(
                f"{file} has different columns or types than {origin.files[0].name}: write all files of"
                f" {origin.shown} with the same schema."
            )

    def batches() -> Iterator[Any]:
        wanted = None if columns is None else list(columns)
        yield from found.to_batches(columns=wanted, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1)

    return Source(origin.shown, tuple(found.schema.names), found.schema, found.count_rows(), _guarded(origin, batches))


def _open_arrow(origin: Origin, columns: Sequence[str] | None, numbers: Sequence[str], verbatim: bool) -> Source:
    import pyarrow as pa

    path = origin.files[0]
    with path.open("rb") as file:
        begin = file.read(6)
    if begin[:4] == b"FEA1":
        raise InputError(
            f"{origin.shown} is in the old Feather format, version 1: write it again as version 2 or as Parquet."
        )
    stream = not begin.startswith(b"ARROW1")
    reader = pa.ipc.open_stream(path) if stream else pa.ipc.open_file(path)

    def batches() -> Iterator[Any]:
        # A stream can be read only once, so the file is opened again for each pass.
        again = pa.ipc.open_stream(path) if stream else pa.ipc.open_file(path)
        found = again if stream else (again.get_batch(i) for i in range(again.num_record_batches))
        for batch in found:
            # A damaged file may contain offsets that point outside its memory: validate before any use.
            batch.validate(full=True)
            for start in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(start, BATCH_ROWS)
                yield part if columns is None else part.select(list(columns))

    rows = None if stream else sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
    return Source(origin.shown, tuple(reader.schema.names), reader.schema, rows, _guarded(origin, batches))


def _open_csv(origin: Origin, columns: Sequence[str] | None, numbers: Sequence[str], verbatim: bool) -> Source:
    import pyarrow as pa
    from pyarrow import csv as pa_csv

    path = origin.files[0]
    opens = gzip.open if path.name.lower().endswith(".gz") else open
    with opens(path, "rt", encoding="utf-8-sig", newline="") as file:
        names = tuple(next(csv.reader(file), ()))
    types = {name: pa.string() for name in names} if verbatim else {}
    types |= {name: pa.float64() for name in numbers}
    options = pa_csv.ConvertOptions(
        column_types=types,
        include_columns=[name for name in columns if name in names] if columns is not None else [],
        strings_can_be_null=True,
        null_values=[""] if verbatim else list(MISSING),
    )
    reading = pa_csv.ReadOptions(block_size=1 << 24)

    def open_reader() -> Any:
        return pa_csv.open_csv(path, read_options=reading, convert_options=options)

    if (columns is not None and not set(columns) <= set(names)) or len(set(names)) < len(names):
        return Source(origin.shown, names, None, None, _guarded(origin, open_reader))
    with open_reader() as reader:
        schema = reader.schema

    def batches() -> Iterator[Any]:
        with open_reader() as reader:
            yield from reader

    return Source(origin.shown, names, schema, None, _guarded(origin, batches))


def read_table(path: str | os.PathLike[str], columns: Sequence[str]) -> Any:
    """Return some columns of a table as a ``pyarrow.Table``, after checking that each exists exactly once."""
    import pyarrow as pa

    wanted = list(dict.fromkeys(columns))
    source = open_table(path, columns=wanted)
    batches = list(source.batches())
    if not sum(batch.num_rows for batch in batches):
        raise InputError(f"{source.path} has no rows.")
    with _plain_errors(origin_of(path)):
        return pa.Table.from_batches(batches)


def values_of(table: Any, name: str) -> NDArray[Any]:
    """Return a column of labels or groups as Python values: text, numbers, truth values; None means missing."""
    import pyarrow as pa

    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    simple = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not (simple or _is_text(kind)):
        try:
            column = column.cast(pa.string())
        except pa.ArrowException:
            raise InputError(
                f"The column {name!r} has values of type {kind}: text, numbers or booleans are needed."
            ) from None
    if simple and column.null_count and not pa.types.is_floating(kind):
        array = np.empty(len(column), dtype=object)
        array[:] = column.to_pylist()
        return array
    return np.asarray(column.to_numpy())


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def numbers_of(table: Any, name: str) -> FloatArray:
    """Return a column as float64, or raise :class:`InputError` that names the first row that is not a number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    if column.null_count:
        where = pc.index(pc.is_null(column), True).as_py()
        raise InputError(f"The column {name!r} has no value in row {where} ({column.null_count} such rows).")
    kind = column.type
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    ):
        first = column[0].as_py() if len(column) else None
        raise InputError(f"The column {name!r} must contain numbers; it contains {kind} values, such as {first!r}.")
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    array = (
        column.cast(pa.float64(), safe=False).to_numpy()
        if isinstance(column, pa.ChunkedArray)
        else (column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    )
    return np.ascontiguousarray(array, dtype=np.float64)


def value_from_text(text: str, values: Iterable[Hashable], what: str) -> Hashable:
    """Return the value that a command-line text stands for, or raise an error that lists the values."""
    listed = list(values)
    for value in listed:
        if str(value) == text:
            return value
    with contextlib.suppress(ValueError):
        for value in listed:
            if isinstance(value, int | float) and not isinstance(value, bool) and float(text) == value:
                return value
    for value in listed:
        if isinstance(value, bool) and text.lower() in ({"true", "1", "yes"} if value else {"false", "0", "no"}):
            return value
    raise InputError(f"{what} has no value {text!r}. {nearest(text, map(str, listed))}")


def name_of(path: str | os.PathLike[str]) -> str:
    """Return the name of a table for displayed results."""
    return "standard input" if os.fspath(path) == STANDARD_INPUT else Path(path).name


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a table's file, as hexadecimal digits; of several files, that of their SHA-256s."""
    origin = origin_of(path)
    found = []
    with _plain_errors(origin):
        for place in origin.files:
            with place.open("rb") as file:
                found.append(hashlib.file_digest(file, "sha256").hexdigest())
    return found[0] if len(found) == 1 else hashlib.sha256("\n".join(found).encode()).hexdigest()


class Writer:
    """Writes batches of rows to a file in the format of its extension."""

    def __init__(self, path: Path, kind: str, schema: Any) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyarrow import csv as pa_csv

        # These formats cannot have a different dictionary for each batch.
        self.schema = schema if kind == "parquet" else _without_dictionaries(schema)
        self._write: Callable[[Any], None]
        if kind == "parquet":
            dictionary = [field.name for field in schema if not pa.types.is_floating(field.type)]
            parquet = pq.ParquetWriter(path, schema, use_dictionary=dictionary, compression="snappy")
            self._write, self._close = parquet.write_table, parquet.close
        elif kind == "arrow":
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            arrow = pa.ipc.new_file(str(path), self.schema, options=options)
            self._write, self._close = arrow.write, arrow.close
        else:
            text = pa_csv.CSVWriter(str(path), self.schema)
            self._write, self._close = text.write, text.close

    def write(self, table: Any) -> None:
        """Write a table's rows. The schema determines the columns and which may be empty."""
        self._write(_fitted(table, self.schema))

    def close(self) -> None:
        """Finish the file."""
        self._close()


def _without_dictionaries(schema: Any) -> Any:
    import pyarrow as pa

    return pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])


def _fitted(table: Any, schema: Any) -> Any:
    """Return a table with a schema's types and nullability."""
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    columns = zip(table.columns, schema.types, strict=True)
    return pa.Table.from_arrays([c if c.type == kind else c.cast(kind) for c, kind in columns], schema=schema)


@contextlib.contextmanager
def write_batches(path: str | os.PathLike[str], schema: Any) -> Iterator[Writer]:
    """Yield a writer whose file is complete or absent."""
    target = local_path(path, write=True)
    kind = format_of(target, write=True)
    with _plain_write_errors(target), whole_or_nothing(target) as temporary:
        writer = Writer(temporary, kind, schema)
        try:
            yield writer
        except BaseException:
            # The file is removed: an error from closing it would hide the cause.
            with contextlib.suppress(Exception):
                writer.close()
            raise
        writer.close()


def write_table(path: str | os.PathLike[str], columns: dict[str, Any]) -> None:
    """Write columns as a table in the format of the extension."""
    pa = _pyarrow()
    table = pa.table(columns)
    with write_batches(path, table.schema) as writer:
        writer.write(table)
