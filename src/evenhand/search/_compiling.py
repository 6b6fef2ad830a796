"""A word to whoever waits: the first search with K contrasts and C constraints compiles its kernels for them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 1.0
NOTICE = (
    "evenhand: compiling its search, once for each number of contrasts and of constraints;"
    " this takes about half a minute."
)


@contextmanager
def notice_of_compilation(kernel: Any) -> Iterator[None]:
    """Say so on standard error when a kernel is still not ready for another kind of arguments after a second."""
    ready = len(kernel.signatures)

    def speak() -> None:
        if len(kernel.signatures) == ready:
            print(NOTICE, file=sys.stderr, flush=True)

    timer = threading.Timer(PATIENCE, speak)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
