"""The command line, ``evenhand``: commands only read files, call the library and write files.

Nothing heavy is imported before a command runs, so that ``evenhand --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand._version import __version__
from evenhand.cli.interrupts import INTERRUPTED, interruptible
from evenhand.errors import EvenhandError, InputError, MissingExtraError
from evenhand.text import printable

if TYPE_CHECKING:
    from cyclopts import App

LONGEST_MESSAGE = 2000
PASS, FAIL, BAD_INPUT, INSUFFICIENT = 0, 1, 2, 3
CONFIG: ContextVar[Path | None] = ContextVar("config", default=None)
_HELP = "Fair decisions from any probabilistic classifier, after training, at the least cost in accuracy."
_EPILOGUE = (
    "With any command: --config options.toml reads options from a TOML file, with a table for each command,"
    " such as [audit]; --debug shows where an error comes from. Tables are .csv, .csv.gz, .parquet or"
    " .arrow (.feather) files, folders or quoted globs of .parquet files, addresses, or - for standard input.\n\n"
    "Exit codes: 0 success (audit: pass; watch: holds; alternatives: refuted), 1 the audit fails, the watched criterion"
    " is violated or an alternative is found, 2 invalid input, 3 insufficient evidence for a verdict (fit: the rule"
    " widens a gap on the rows of --test; alternatives: open), 130 interrupted."
)
# These modules import heavy packages only when a command runs.
_COMMANDS = {
    "demo": "demo:demo",
    "audit": "audit:audit",
    "watch": "watch:watch",
    "fit": "fit:fit",
    "frontier": "frontier:frontier",
    "alternatives": "alternatives:alternatives",
    "apply": "apply:apply",
    "explain": "explain:explain",
    "datasets": "datasets:datasets",
    "reproduce": "reproduce:reproduce",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, default=None
        The arguments; None uses those of the process.

    Returns
    -------
    int
        0 success (audit: pass; watch: holds; alternatives: refuted), 1 the audit fails, the watched criterion is
        violated or an alternative is found, 2 invalid input, 3 insufficient evidence for a verdict (fit: the rule
        widens a gap on the rows of --test; alternatives: open), 130 interrupted.
    """
    tokens = list(sys.argv[1:] if argv is None else argv)
    with interruptible() as claim:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return _run(tokens)
        except KeyboardInterrupt:
            return _complain("stopped.", INTERRUPTED) if claim() else INTERRUPTED
        except BrokenPipeError:
            # The reader of the pipe has closed it: nobody would read a message.
            _leave_standard_output()
            return BAD_INPUT
        except Exception as error:
            if "--debug" in tokens:
                raise
            _leave_standard_output()
            return _complain(_message(error))


def _leave_standard_output() -> None:
    """Redirect a closed standard output, so that Python does not report it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def _run(tokens: list[str]) -> int:
    try:
        import cyclopts
    except ImportError:
        raise MissingExtraError("The command line", "cyclopts", "cli") from None
    rest, config = _take_global_options(tokens)
    # A lone hyphen is a path, which cyclopts would treat as an option.
    rest = ["./-" if token == "-" else token for token in rest]
    CONFIG.set(None)
    app = make_app()
    if config is not None:
        if not Path(config).is_file():
            raise InputError(f"{config}: there is no such file.")
        app.config = cyclopts.config.Toml(config, must_exist=True)
        CONFIG.set(Path(config))
    try:
        found = app(rest, exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.CycloptsError as error:
        raise InputError(" ".join(str(error).split())) from error
    return found if isinstance(found, int) else PASS


def make_app() -> App:
    """Return the application with its commands."""
    from cyclopts import App, Parameter

    app = App(
        name="evenhand",
        help=_HELP,
        help_epilogue=_EPILOGUE,
        version=__version__,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
        default_parameter=Parameter(negative=()),
    )
    for order, (name, home) in enumerate(_COMMANDS.items()):
        module, function = home.split(":")
        app.command(getattr(import_module(f"evenhand.cli.{module}"), function), name=name, sort_key=order)
    app.register_install_completion_command(add_to_startup=False)
    return app


def _take_global_options(tokens: list[str]) -> tuple[list[str], str | None]:
    rest: list[str] = []
    config = None
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token == "--":
            return rest + tokens[position:], config
        if token == "--config":
            if position + 1 == len(tokens):
                raise InputError("--config needs the name of a TOML file.")
            config = tokens[position + 1]
            position += 1
        elif token.startswith("--config="):
            config = token.removeprefix("--config=")
        elif token != "--debug":
            rest.append(token)
        position += 1
    return rest, config


def _message(error: Exception) -> str:
    if isinstance(error, EvenhandError):
        return printable(str(error).replace("missing='ignore'", "--ignore-missing"), lines=error.multiline)
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("evenhand."):
        return f"this installation does not contain {error.name}, which is needed here: install it."
    if isinstance(error, MemoryError):
        return "there is not enough memory: use fewer rows, or --engine duckdb."
    if isinstance(error, OSError):
        return printable(f"{error.filename or 'a file'}: {error.strerror or error}.")
    if type(error).__module__.startswith("pyarrow"):
        return printable(f"the table cannot be used: {' '.join(str(error).split())}.")
    said = printable(" ".join(str(error).split()))
    return f"unexpected {type(error).__name__}: {said}. This is a bug in evenhand; --debug shows where."


def _complain(message: str, code: int = BAD_INPUT) -> int:
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE // 2]} ... {message[-200:]}"
    try:
        print(f"evenhand: {message}", file=sys.stderr)
    except UnicodeEncodeError:
        print(f"evenhand: {message.encode('ascii', 'backslashreplace').decode('ascii')}", file=sys.stderr)
    return code


def _show_warning(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
    _complain(f"note: {printable(message)}")
