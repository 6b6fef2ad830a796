"""Paths and files: outputs that appear whole or not at all, outputs that are kept apart from inputs, and addresses."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import glob
import os
import re
import secrets
import shutil
import stat
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from evenhand.errors import InputError, WriteError

AnyPath = str | os.PathLike[str]
Folders = Literal["replaced", "filled"]
LONGEST_PREFIX = 40
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_unfinished: set[Path] = set()
_REMEDIES = {
    errno.ENOSPC: "Free some space, or write to another disk",
    errno.EDQUOT: "Free some space, or write to another disk",
    errno.EFBIG: "Write to a place that allows larger files (ulimit -f shows the limit)",
    errno.EACCES: "Write to a folder that you may write to",
    errno.EPERM: "Write to a folder that you may write to",
    errno.EROFS: "Write to a folder that you may write to",
    errno.ENOENT: "Make the folder first",
    errno.ENOTDIR: "Make the folder first",
    errno.EISDIR: "Give the name of a file",
    errno.ENAMETOOLONG: "Give it a shorter name",
}


def url_of(path: AnyPath) -> str | None:
    """Return the address that a path stands for, or None if it names a file.

    ``pathlib`` collapses repeated slashes, so ``Path("s3://bucket/rows.parquet")`` becomes
    ``s3:/bucket/rows.parquet``. The address is recovered from that form, too.

    Examples
    --------
    >>> from pathlib import Path
    >>> from evenhand.files import url_of
    >>> url_of(Path("s3://bucket/rows.parquet")), url_of("rows.parquet")
    ('s3://bucket/rows.parquet', None)
    """
    text = os.fspath(path)
    found = _URL.fullmatch(text)
    if found is None or os.path.lexists(text):
        return None
    if "://" in text:
        return text
    return f"{found[1]}://{'/' if found[1].lower() == 'file' else ''}{found[2]}"


def local_path(path: AnyPath, *, write: bool = False) -> Path:
    """Return a local path; a ``file:`` address is converted, other addresses raise :class:`InputError`."""
    url = url_of(path)
    if url is None:
        return Path(path)
    if url.lower().startswith("file:"):
        return Path(url2pathname(urlsplit(url).path))
    if write:
        raise InputError(f"{url} is an address, but evenhand writes only local files: write one, then copy it there.")
    raise InputError(f"{url} is an address, but a local file is needed: download it first.")


def write_error(target: AnyPath, error: OSError) -> WriteError:
    """Return the error for a failed write: the path, the operating system's reason, and the remedy."""
    reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
    if error.errno is not None:
        # Libraries put their own text before the system's message.
        reason = os.strerror(error.errno)
    remedy = _REMEDIES.get(error.errno or 0, "Write to another location")
    return WriteError(f"{target} cannot be written: {reason}. {remedy}.", error.errno)


@contextlib.contextmanager
def whole_or_nothing(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path beside the target. It replaces the target if the block succeeds, and is removed otherwise.

    A new file gets the permissions that the umask allows; a replaced file keeps its permissions. If the target is a
    link, the file that it points to is replaced. A device or a pipe is written directly. A killed process may leave the
    temporary file, whose name begins with a dot and ends in ``.part``, but never an incomplete target.

    Raises
    ------
    WriteError
        If the operating system refuses a write inside, before or after the block.
    """
    given = local_path(path, write=True)
    target = Path(os.path.realpath(given))
    mode = None
    with _as_write_errors(path):
        with contextlib.suppress(FileNotFoundError):
            mode = given.stat().st_mode
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if mode is not None and not stat.S_ISREG(mode):
            yield given
            return
        temporary = _name_beside(target)
        with _removed_if_left(temporary):
            # The system removes the umask's bits from the mode of a new file.
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
            os.close(os.open(temporary, flags, 0o666 if mode is None else stat.S_IMODE(mode) & 0o777 | stat.S_IWUSR))
            yield temporary
            if mode is not None:
                temporary.chmod(stat.S_IMODE(mode))
            temporary.replace(target)


@contextlib.contextmanager
def whole_folder(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary folder beside the target. It replaces the target on success, and is removed otherwise."""
    target = Path(os.path.realpath(local_path(path, write=True)))
    with _as_write_errors(path):
        temporary = _name_beside(target)
        old = temporary.with_suffix(".old")
        with _removed_if_left(temporary), _removed_if_left(old):
            temporary.mkdir()
            yield temporary
            if target.exists():
                target.rename(old)
            temporary.rename(target)


@contextlib.contextmanager
def _as_write_errors(path: AnyPath) -> Iterator[None]:
    try:
        yield
    except (WriteError, BrokenPipeError):
        raise
    except OSError as error:
        raise write_error(path, error) from error


def _name_beside(target: Path) -> Path:
    return target.parent / f".{target.name[:LONGEST_PREFIX]}.{secrets.token_hex(8)}.part"


@contextlib.contextmanager
def _removed_if_left(path: Path) -> Iterator[None]:
    _unfinished.add(path)
    try:
        yield
    finally:
        _remove(path)
        _unfinished.discard(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@functools.cache
def scratch_folder() -> Path:
    """Return a temporary folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="evenhand-"))
    _unfinished.add(folder)
    atexit.register(_remove, folder)
    return folder


def remove_unfinished() -> None:
    """Remove unfinished files, for a process that is about to end without returning from its writes."""
    for path in list(_unfinished):
        _remove(path)


def write_text(path: AnyPath, text: str) -> None:
    """Write a text file as UTF-8, completely or not at all."""
    with whole_or_nothing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_bytes(path: AnyPath, content: bytes) -> None:
    """Write a file, completely or not at all."""
    with whole_or_nothing(path) as temporary:
        temporary.write_bytes(content)


def check_outputs(
    outputs: Mapping[str, AnyPath | None],
    inputs: Mapping[str, AnyPath | Sequence[AnyPath] | None],
    *,
    folders: Folders | None = None,
) -> None:
    """Raise if an output is an input or another output, or if its folder does not exist. Called before any work.

    Parameters
    ----------
    outputs, inputs : dict of paths
        The keys name them in messages, such as ``"--output"`` or ``"the table that is read"``. None is ignored. An
        input may be several paths, a glob, or a folder, which may not contain an output.
    folders : {"replaced", "filled"} or None, default=None
        Whether the outputs are folders: replaced with all their contents, or created if needed and added to.
    """
    written = {name: local_path(path, write=True) for name, path in outputs.items() if path is not None}
    read = [(name, path) for name, given in inputs.items() if given is not None for path in _local(given)]
    for option, output in written.items():
        for name, path in read:
            replaced = folders == "replaced" and _is_inside(path, output)
            if replaced or is_same_file(output, path) or (path.is_dir() and _is_inside(output, path)):
                raise InputError(f"{option} {output} is {name}: give {option} another name, so that it is kept.")
    names = list(written)
    for place, option in enumerate(names):
        for other in names[:place]:
            if is_same_file(written[option], written[other]):
                raise InputError(f"{other} and {option} are both {written[option]}: give them different names.")
    for output in () if folders == "filled" else written.values():
        if not Path(os.path.realpath(output)).parent.is_dir():
            raise write_error(output, FileNotFoundError(errno.ENOENT, ""))
        if folders is None and output.is_dir():
            raise write_error(output, IsADirectoryError(errno.EISDIR, ""))


def _local(given: AnyPath | Sequence[AnyPath]) -> list[Path]:
    """Return the inputs on this machine, including those that match a glob.

    Addresses are ignored: outputs are always files.
    """
    listed = [given] if isinstance(given, str | os.PathLike) else given
    found = []
    for path in listed:
        url = url_of(path)
        if url is None or url.lower().startswith("file:"):
            found.append(local_path(path))
        if url is None and glob.has_magic(os.fspath(path)):
            found += map(Path, glob.iglob(os.fspath(path), recursive=True))  # noqa: PTH207
    return found


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_same_file(first: AnyPath, second: AnyPath) -> bool:
    """Return whether two paths lead to the same file, existing or not.

    Symbolic and hard links are followed. Names that differ only in case are the same file if the file system says so.
    """
    with contextlib.suppress(OSError):
        return Path(first).samefile(second)
    one, two = (os.path.normcase(os.path.realpath(path)) for path in (first, second))
    return one == two or (_folded(one) == _folded(two) and ignores_case(Path(one).parent))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def ignores_case(folder: Path) -> bool:
    """Return whether a file system ignores case in names, determined from the folder's own path."""
    swapped = str(folder).swapcase()
    with contextlib.suppress(OSError):
        return swapped != str(folder) and folder.samefile(swapped)
    return False
