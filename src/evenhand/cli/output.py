"""The output of commands: plain text for pipes, colour only on a terminal, progress on standard error."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand import files, tables
from evenhand.cli import CONFIG
from evenhand.errors import InputError
from evenhand.files import local_path, write_error
from evenhand.text import printable

_STYLES = {r"\bpass\b": "bold green", r"\bfail\b": "bold red", r"\binsufficient evidence\b": "bold yellow"}


def say(text: str, *, verdicts: bool = False) -> None:
    """Print text; verdicts are coloured if standard output is a terminal and NO_COLOR is unset.

    Names in the text are already printable: here only line feeds are kept.
    """
    text = printable(text, lines=True)
    try:
        _print(text, verdicts=verdicts)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise write_error("Standard output", error) from error


def _print(text: str, *, verdicts: bool) -> None:
    if not sys.stdout.isatty():
        print(text.encode(sys.stdout.encoding or "utf-8", "replace").decode(sys.stdout.encoding or "utf-8"))
        return
    from rich.console import Console
    from rich.text import Text

    shown = Text(text)
    if verdicts:
        for pattern, style in _STYLES.items():
            shown.highlight_regex(pattern, style)
    Console(highlight=False, soft_wrap=True).print(shown)


def say_json(data: Any) -> None:
    """Print data as ASCII JSON; control characters that JSON does not escape are escaped here."""
    say(json.dumps(data, indent=2, default=str).replace("\x7f", "\\u007f"))


@contextlib.contextmanager
def progress(what: str, total: int | None) -> Iterator[Any]:
    """Yield a function that reports finished rows if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda rows: bar.advance(task, rows)


def command_line() -> str:
    """Return the running command as a user would type it."""
    return shlex.join(["evenhand", *sys.argv[1:]])


def provenance(path: Path) -> dict[str, str]:
    """Return the origin of a result: the file, its hash and the command."""
    return {"data": tables.name_of(path), "sha256": tables.sha256_of(path), "command": command_line()}


def check_outputs(
    writes: Mapping[str, Path | None],
    reads: Mapping[str, Path | Sequence[Path] | None] | None = None,
    *,
    folders: files.Folders | None = None,
) -> None:
    """Raise, before any work, if a command would overwrite its input, or write two outputs to one place.

    See :func:`evenhand.files.check_outputs`. The file of ``--config`` is read by every command.
    """
    files.check_outputs(writes, {**(reads or {}), "the file of --config": CONFIG.get()}, folders=folders)


def read_text(path: Path) -> str:
    """Return a text file's text, or raise :class:`InputError`."""
    path = local_path(path)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a UTF-8 text file.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
