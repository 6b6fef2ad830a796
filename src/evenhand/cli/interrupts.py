"""Handling of signals: a command ends soon, with at most one line of output, and leaves no partial files."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

GRACE = 0.6
INTERRUPTED = 130
MESSAGE = "evenhand: stopped.\n"
SHOW_CURSOR = "\r\x1b[K\x1b[?25h"  # a progress bar hides it


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """End the block with an exception on SIGINT, SIGTERM and SIGHUP, and yield a function that claims the last message.

    A call into compiled code may take long to return, and Python raises only when it does. So a thread waits for
    SIGINT, too: if the block has not ended GRACE seconds later, the thread removes temporary files and ends the
    process. The function returns True only for the first caller, so that either the thread or the command says
    "stopped".

    Nothing changes outside the main thread, or for a signal that is already handled or ignored.
    """
    lock = threading.Lock()

    def claim() -> bool:
        return lock.acquire(blocking=False)

    if threading.current_thread() is not threading.main_thread():
        yield claim
        return
    with _handlers(), _watcher(claim):
        yield claim


@contextlib.contextmanager
def _handlers() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        # A second Ctrl-C must not interrupt the clean-up after the first.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    def terminate(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    wanted = {"SIGINT": interrupt, "SIGTERM": terminate, "SIGHUP": terminate}
    before = {}
    for name, handler in wanted.items():
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextlib.contextmanager
def _watcher(claim: Callable[[], bool]) -> Iterator[None]:
    read, write = os.pipe()
    os.set_blocking(write, False)
    taken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    if taken != -1:
        signal.set_wakeup_fd(taken)
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(read, ended, claim), name="evenhand-interrupts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        if taken == -1:
            signal.set_wakeup_fd(-1)
        os.close(write)
        thread.join()
        os.close(read)


def _watch(read: int, ended: threading.Event, claim: Callable[[], bool]) -> None:
    while data := os.read(read, 1):
        if data[0] != signal.SIGINT:
            continue
        if ended.wait(GRACE) or not claim():
            return
        from evenhand.files import remove_unfinished

        remove_unfinished()
        with contextlib.suppress(OSError, ValueError):
            stream = sys.stderr.fileno()
            os.write(stream, ((SHOW_CURSOR if os.isatty(stream) else "") + MESSAGE).encode("ascii"))
        os._exit(INTERRUPTED)
