"""Progress of training: a bar in a notebook, or on a terminal if rich is installed; otherwise lines of text."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any


@contextmanager
def progress(total: int, *, show: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each finished step."""
    if not show or total == 0:
        yield lambda name: None
        return
    notebook = _notebook_display()
    if notebook is not None:
        yield _notebook_bar(total, notebook)
        return
    if not sys.stderr.isatty():
        yield _lines(total)
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield _lines(total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("training models", total=total)
        yield lambda name: bar.update(task, advance=1, description=f"trained {name}")


def _lines(total: int) -> Callable[[str], None]:
    done = 0

    def report(name: str) -> None:
        nonlocal done
        done += 1
        print(f"[{done}/{total}] trained {name}", file=sys.stderr, flush=True)

    return report


def _notebook_display() -> Any:
    """Return IPython's display module inside a notebook, else None; nothing is imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return sys.modules.get("IPython.display") or importlib.import_module("IPython.display")


def _notebook_bar(total: int, notebook: Any) -> Callable[[str], None]:
    """Show an HTML progress element, which needs no widgets and no JavaScript."""

    def bar(done: int, text: str) -> Any:
        label = f"{escape(text)} ({done} of {total})"
        return notebook.HTML(f'<progress value="{done}" max="{total}"></progress> {label}')

    handle = notebook.display(bar(0, "training models"), display_id=True)
    done = 0

    def report(name: str) -> None:
        nonlocal done
        done += 1
        handle.update(bar(done, f"trained {name}"))

    return report
