"""Where a table is read from: a file, a folder or glob of Parquet files, standard input, or an address.

Tables from standard input or from an address are copied once to a temporary file, because a table may be read in
several passes.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from evenhand.errors import InputError, require
from evenhand.files import AnyPath, local_path, scratch_folder, url_of

FORMATS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
STANDARD_INPUT = "-"
WAIT_SECONDS = 30
_BEGINNINGS = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\xff\xff\xff\xff": ".arrow", b"\x1f\x8b": ".csv.gz"}
_copies: dict[str, Path] = {}


@dataclass(frozen=True)
class Origin:
    """The files of one table.

    Attributes
    ----------
    shown : str
        The table's name in messages.
    kind : str
        "csv", "parquet" or "arrow".
    files : tuple of Path
        One file, or several Parquet files, sorted by name.
    folder : Path or None
        The folder of the files, if there are several; folders inside it may be named ``column=value``.
    """

    shown: str
    kind: str
    files: tuple[Path, ...]
    folder: Path | None = None


def format_of(path: AnyPath, *, write: bool = False) -> str:
    """Return the format of a file's extension, or raise :class:`InputError`."""
    suffix = _suffix(os.fspath(path))
    found = FORMATS.get(suffix)
    if found is None:
        raise InputError(
            f"{path}: the extension {suffix!r} is not one of {', '.join(FORMATS)}. Write the table as one of these."
        )
    if write and suffix.endswith(".gz"):
        raise InputError(f"{path}: compressed CSV can be read but not written: give the output the extension .parquet.")
    return found


def origin_of(path: AnyPath) -> Origin:
    """Return the files of a table. Remote tables are copied to this machine first."""
    text, url = os.fspath(path), url_of(path)
    if text == STANDARD_INPUT:
        place = _copied(text, lambda: _spool(_standard_input(), ""))
        return Origin("Standard input", format_of(place), (place,))
    if url is not None and not url.lower().startswith("file:"):
        place, shown = _copied(url, lambda: _fetch(url)), url
    else:
        place = local_path(path)
        shown = str(place)
    if place.is_dir():
        return _several(shown, place.rglob("*"), place)
    if glob.has_magic(text) and url is None and not place.exists():
        return _several(shown, map(Path, glob.iglob(text, recursive=True)), _fixed_part(place))  # noqa: PTH207
    return Origin(shown, format_of(place), (place,))


def _several(shown: str, found: Any, folder: Path) -> Origin:
    """Return the Parquet files among some paths; names that begin with a dot or an underscore are ignored."""
    listed = sorted(path for path in found if not path.name.startswith((".", "_")) and path.is_file())
    files = tuple(path for path in listed if FORMATS.get(_suffix(path.name)) == "parquet")
    if not files:
        raise InputError(f"{shown}: there is no .parquet file here. Folders and globs must contain Parquet files.")
    other = [path for path in listed if path not in files]
    if other:
        raise InputError(
            f"{shown}: {other[0].name} is not a .parquet file, but all files must be: select those with a glob,"
            f" such as '{folder / '*.parquet'}'."
        )
    return Origin(shown, "parquet", files, folder)


def _suffix(name: str) -> str:
    lower = name.lower()
    return ".csv.gz" if lower.endswith(".csv.gz") else Path(lower).suffix


def _fixed_part(pattern: Path) -> Path:
    """Return the folder above the first part of a pattern that has a wildcard such as ``*``."""
    while glob.has_magic(os.fspath(pattern)):
        pattern = pattern.parent
    return pattern


def _copied(key: str, copy: Callable[[], Path]) -> Path:
    if key not in _copies:
        _copies[key] = copy()
    return _copies[key]


def _standard_input() -> IO[bytes]:
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("- is standard input, but nothing is piped into it: evenhand ... - < table.parquet")
    return sys.stdin.buffer


def _spool(stream: Any, suffix: str) -> Path:
    """Copy a stream to a temporary file; its extension is the given format, or is detected from the first bytes."""
    place = scratch_folder() / f"table-{secrets.token_hex(8)}"
    with place.open("wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    with place.open("rb") as file:
        begin = file.read(8)
    if begin.startswith(b"PK"):
        raise InputError("This is a zip archive or a spreadsheet: save the table as CSV or Parquet.")
    if suffix not in FORMATS:
        suffix = next((name for first, name in _BEGINNINGS.items() if begin.startswith(first)), ".csv")
    return place.rename(place.with_name(place.name + suffix))


def _store(url: str) -> tuple[Any, str]:
    """Return the pyarrow file system of an address, and the path in it."""
    from pyarrow import fs

    parts = urlsplit(url)
    if parts.scheme.lower() in ("gs", "gcs") and "retry_limit_seconds" not in parts.query:
        # pyarrow would retry for a quarter of an hour.
        url += f"{'&' if parts.query else '?'}retry_limit_seconds={WAIT_SECONDS}"
    store, path = fs.FileSystem.from_uri(url)
    return store, path


def _fetch(url: str) -> Path:
    """Copy the file at an address; for file systems that pyarrow supports, also a folder."""
    arrow = require("Reading and writing tables", "cli", "pyarrow", "pyarrow.fs")
    parts = urlsplit(url)
    try:
        if parts.scheme.lower() in ("http", "https"):
            with urlopen(url, timeout=WAIT_SECONDS) as answer:
                return _spool(answer, _suffix(parts.path))
        store, path = _store(url)
        if store.get_file_info(path).type == arrow.fs.FileType.Directory:
            folder = scratch_folder() / f"folder-{secrets.token_hex(8)}"
            arrow.fs.copy_files(
                path, str(folder), source_filesystem=store, destination_filesystem=arrow.fs.LocalFileSystem()
            )
            return folder
        with store.open_input_stream(path, compression=None) as stream:
            return _spool(stream, _suffix(path))
    except (OSError, ValueError, arrow.ArrowException) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise InputError(
            f"{url} cannot be read: {reason}. Download it first; Parquet and CSV can also be read in place by"
            " DuckDB (--engine duckdb with fit and apply)."
        ) from None
