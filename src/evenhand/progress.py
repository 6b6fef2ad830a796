"""Progress on standard error while models train: a bar where rich is installed, else lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(total: int, *, show: bool) -> Iterator[Callable[[str], None]]:
    """Give a function to call with the name of each thing that is done."""
    if not show or total == 0:
        yield lambda name: None
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
