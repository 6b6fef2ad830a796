"""Message shown while kernels compile: the first search with a number of contrasts compiles its loops for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

NOTICE = "evenhand: compiling the search for this number of contrasts and constraints. This happens once per machine."


class _Announcer(event.Listener):
    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] is self.kernel:
            print(NOTICE, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def notice_of_compilation(kernel: Any) -> Iterator[None]:
    """Say so on standard error when a kernel is compiled, and not when it is loaded from disk."""
    with event.install_listener("numba:compile", _Announcer(kernel)):
        yield
