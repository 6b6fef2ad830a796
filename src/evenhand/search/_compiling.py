"""Message shown while kernels compile: the first search with a number of contrasts compiles its loops for it."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import config as _config
from numba.core import event

NOTICE = "evenhand: compiling the search for this number of contrasts and constraints. This happens once per machine."
# numba creates its attributes when it is imported.
config: Any = _config
# Settings that change while kernels compile belong to the whole process.
_ONE_AT_A_TIME = threading.RLock()


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
    """Print the message once on standard error if a kernel is compiled, not if it is loaded from disk."""
    with event.install_listener("numba:compile", _Announcer(kernels)):
        yield


@contextmanager
def quick_compilation() -> Iterator[None]:
    """Compile kernels with less optimisation and without garbage collection, in a tenth of the time.

    The kernels branch on every row: the optimiser's higher levels and its vectoriser take time without benefit.
    """
    with _ONE_AT_A_TIME:
        enabled = gc.isenabled()
        before = config.OPT, config.LOOP_VECTORIZE
        gc.disable()
        config.OPT, config.LOOP_VECTORIZE = type(config.OPT)(min(1, int(config.OPT))), 0
        try:
            yield
        finally:
            config.OPT, config.LOOP_VECTORIZE = before
            if enabled:
                gc.enable()
