"""Message shown while kernels compile: the first search with a number of contrasts compiles its loops for it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

NOTICE = "evenhand: compiling the search for this number of contrasts and constraints. This happens once per machine."


class _Announcer(event.Listener):
    def __init__(self, kernels: tuple[Any, ...]) -> None:
        self.kernels = kernels

    def on_start(self, event: Any) -> None:
        if any(event.data["dispatcher"] is kernel for kernel in self.kernels):
            self.kernels = ()
            print(NOTICE, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def notice_of_compilation(*kernels: Any) -> Iterator[None]:
    """Say so once on standard error when one of the kernels is compiled, and not when it is loaded from disk."""
    with event.install_listener("numba:compile", _Announcer(kernels)):
        yield


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect no garbage: while kernels are compiled, looking for it takes a tenth of the time and finds little."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
