"""Timing in ratios: machines differ and are noisy, ratios within one run much less."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def median_seconds(action: Callable[[], Any], repeats: int = 5) -> float:
    """Return the median time of an action."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def fastest(actions: Sequence[Callable[[], Any]], repeats: int = 9) -> list[float]:
    """Return the smallest CPU seconds of each of some actions. They take turns, so that other load affects all."""
    least = [np.inf] * len(actions)
    for _ in range(repeats):
        for position, action in enumerate(actions):
            started = time.process_time()
            action()
            least[position] = min(least[position], time.process_time() - started)
    return least


def argsort_of(n: int) -> Callable[[], Any]:
    """Return one argsort of n random numbers: the unit of the search's figures."""
    values = np.random.default_rng(0).random(n)
    return lambda: np.argsort(values)


def verdict(measured: float, at_most: float, aim: float | None = None) -> str:
    """Return whether a figure meets its target, with both."""
    word = "MISSED" if measured > at_most else "aim met" if aim is not None and measured <= aim else "met"
    return f"(at most {at_most:g}{'' if aim is None else f', aim {aim:g}'}): {word}"
