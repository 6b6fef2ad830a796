"""Timing in ratios: machines differ and are noisy, ratios within one run much less."""

from __future__ import annotations

import time
from collections.abc import Callable
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


def argsort_seconds(n: int) -> float:
    """Return the time that one argsort of n random numbers takes: the unit of the search's figures."""
    values = np.random.default_rng(0).random(n)
    np.argsort(values)
    return median_seconds(lambda: np.argsort(values), 9)
