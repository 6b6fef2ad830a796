"""Accuracy against test gap over many splits: measurements, interpolated at equal gaps, with errors."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evenhand as eh
from benchmarks.splits import Rows
from evenhand import metrics

TOLERANCES = (0.10, 0.05, 0.02, 0.01)
LADDER = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.10, 0.14, 0.20, 0.30)
CRITERIA = {"dp": "demographic parity", "eo": "equalized odds"}
RESAMPLES = 400
GAPS: dict[str, Callable[..., float]] = {
    "dp": metrics.demographic_parity_difference,
    "eo": metrics.equalized_odds_difference,
}
Decisions = NDArray[Any]
Point = tuple[float, float]


@dataclass(eq=False)
class Outcomes:
    """Test accuracy and test gap of one method, for each split and each requested tolerance."""

    tolerances: tuple[float, ...]
    accuracy: list[list[float]] = field(default_factory=list)
    gap: list[list[float]] = field(default_factory=list)
    missed: list[list[bool]] = field(default_factory=list)

    def add(self, points: Sequence[Point | None]) -> None:
        """Add a split. If there is no rule for a tolerance, the strictest available one is used."""
        filled = [
            next((points[i] for i in looser if points[i] is not None), (np.nan, np.nan)) for looser in self._as_loose()
        ]
        self.accuracy.append([accuracy for accuracy, _ in filled])
        self.gap.append([gap for _, gap in filled])
        self.missed.append([point is None for point in points])

    def _as_loose(self) -> list[list[int]]:
        order = np.argsort(self.tolerances)
        return [[int(i) for i in order if self.tolerances[i] >= t] for t in self.tolerances]

    def first(self, n: int) -> Outcomes:
        """Return the outcomes of the first n splits only."""
        return Outcomes(self.tolerances, self.accuracy[:n], self.gap[:n], self.missed[:n])

    def __len__(self) -> int:
        return len(self.gap)

    def at(self, tolerance: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return accuracy and gap of every split at one tolerance."""
        column = self.tolerances.index(tolerance)
        return np.array(self.accuracy)[:, column], np.array(self.gap)[:, column]

    def without_rule(self, tolerance: float) -> int:
        """Return in how many splits there was no rule for a tolerance."""
        return int(np.array(self.missed)[:, self.tolerances.index(tolerance)].sum())

    def accuracy_at_gap(self, gap: float, splits: Any = slice(None)) -> float:
        """Return the mean accuracy where the mean test gap is this: linear between the tolerances.

        Below the smallest mean gap it is NaN. Beyond the largest it is the best accuracy there is, if a
        tolerance above that gap was asked for and left unused, and else NaN, too.
        """
        gaps = np.nanmean(np.array(self.gap)[splits], axis=0)
        accuracies = np.nanmean(np.array(self.accuracy)[splits], axis=0)
        order = np.argsort(gaps, kind="stable")
        beyond = None if max(self.tolerances) > gap else np.nan
        found = np.interp(gap, gaps[order], accuracies[order], left=np.nan, right=beyond)
        return float(max(found, accuracies[gaps <= gap].max(initial=-np.inf))) if found == found else np.nan


def measure(test: Rows, criterion: str, decided: Decisions | None) -> Point | None:
    """Return test accuracy and test gap of some decisions, if there are any."""
    if decided is None:
        return None
    gap = GAPS[criterion](test.y, decided, sensitive_features=test.group)
    return float(np.mean(decided == test.y)), float(gap)


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean over splits and its standard error."""
    return float(np.nanmean(values)), float(np.nanstd(values, ddof=1) / np.sqrt(np.isfinite(values).sum()))


def excess(outcomes: Outcomes, tolerance: float) -> NDArray[np.float64]:
    """Return by how much the test gap is above the tolerance, for each split."""
    return np.maximum(outcomes.at(tolerance)[1] - tolerance, 0.0)


def difference_at_gap(one: Outcomes, other: Outcomes, gap: float) -> tuple[float, float]:
    """Return one's accuracy minus the other's at an equal mean test gap, and its error.

    The error is that of resampling splits, the same ones for both.
    """
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(one), size=(RESAMPLES, len(one)))
    differences = [one.accuracy_at_gap(gap, rows) - other.accuracy_at_gap(gap, rows) for rows in drawn]
    found = one.accuracy_at_gap(gap) - other.accuracy_at_gap(gap)
    return found, float(np.nanstd(differences)) if found == found else np.nan


def error_at_gap(one: Outcomes, gap: float) -> float:
    """Return the standard error of :meth:`Outcomes.accuracy_at_gap`, by resampling splits."""
    if np.isnan(one.accuracy_at_gap(gap)):
        return np.nan
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(one), size=(RESAMPLES, len(one)))
    return float(np.nanstd([one.accuracy_at_gap(gap, rows) for rows in drawn]))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def with_error(value: float, error: float, scale: float = 100.0, digits: int = 2, sign: bool = False) -> str:
    """Return a figure and its standard error as text, in hundredths; a dash where there is none."""
    if value != value:
        return "-"
    return f"{scale * value:{'+' if sign else ''}.{digits}f} ± {scale * error:.{digits}f}"


def machine(*packages: str) -> str:
    """Return a line on the machine and the versions of the figures."""
    named = ", ".join(f"{package} {version(package)}" for package in packages)
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, evenhand {eh.__version__}, {named}"
