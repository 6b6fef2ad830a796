"""The time of each metric against fairlearn's, on a million rows: ``python benchmarks/metrics.py``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import fairlearn.metrics
import numpy as np

from evenhand import metrics

ROWS = 1_000_000
GROUPS = ("asian", "black", "other", "white")
NAMES = (
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equalized_odds_difference",
    "equalized_odds_ratio",
)


def seconds(function: Callable[[], float], repeats: int) -> tuple[float, float]:
    """Return the shortest of several times, and the result."""
    best, result = np.inf, np.nan
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def main(rows: int = ROWS) -> dict[str, float]:
    """Print a line for each metric and kind of group; return the ratios of times."""
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(0, 2, (2, rows))
    codes = rng.integers(0, len(GROUPS), rows)
    columns = {"int": codes, "str": np.array(GROUPS)[codes]}
    ratios = {}
    print(f"{rows:,} rows, {len(GROUPS)} groups; fairlearn {fairlearn.__version__}")
    print(f"{'metric':32}{'groups':8}{'fairlearn':>11}{'evenhand':>11}{'ratio':>8}")
    for name in NAMES:
        for kind, groups in columns.items():
            ours, theirs = getattr(metrics, name), getattr(fairlearn.metrics, name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                slow, expected = seconds(lambda f=theirs, g=groups: f(y_true, y_pred, sensitive_features=g), 1)
            fast, found = seconds(lambda f=ours, g=groups: f(y_true, y_pred, sensitive_features=g), 5)
            np.testing.assert_allclose(found, expected, rtol=1e-9)
            ratios[f"{name} ({kind})"] = slow / fast
            print(f"{name:32}{kind:8}{slow:9.2f} s{1000 * fast:8.1f} ms{slow / fast:7.0f}x")
    print(f"smallest ratio: {min(ratios.values()):.0f}x (promised: 20x)")
    return ratios


if __name__ == "__main__":
    main()
