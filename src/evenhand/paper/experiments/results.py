"""The results of an experiment: estimates over seeds, tables, figures, and comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evenhand.paper.experiments.running import Record

UNCONSTRAINED = "∞"


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its standard error, which one seed does not have."""

    mean: float
    error: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Estimate:
        """Return the estimate from one value a seed; None is no value."""
        found = np.array([value for value in values if value is not None and not math.isnan(value)])
        n = len(found)
        error = float(found.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
        return cls(float(found.mean()) if n else math.nan, error, n)

    def text(self, digits: int = 2, *, sign: bool = False) -> str:
        """Return it as text."""
        if self.n == 0:
            return "–"
        mean = f"{self.mean:{'+' if sign else ''}.{digits}f}"
        return mean if math.isnan(self.error) else f"{mean} ± {self.error:.{digits}f}"


Cell = str | int | float | Estimate | None


@dataclass(frozen=True)
class Table:
    """A table: an estimate is one column in Markdown, and two in CSV.

    Parameters
    ----------
    name : str
        Its file's name.
    title : str
        What it shows, in a sentence.
    heads : sequence of str
        The columns.
    rows : sequence of sequences
        The cells.
    digits : int, default=2
        Digits of numbers in Markdown.
    signed : sequence of str, default=()
        The columns whose numbers have a sign.
    """

    name: str
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 2
    signed: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """A chart of Altair's, with the sentence that describes it."""

    name: str
    title: str
    chart: Any


@dataclass(frozen=True)
class Report:
    """Everything that an experiment shows; ``texts`` are more files, by their names."""

    title: str
    tables: Sequence[Table]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = field(default_factory=tuple)
    texts: Mapping[str, str] = field(default_factory=dict)


def grouped(records: Iterable[Record], *names: str) -> dict[tuple[Hashable, ...], list[Record]]:
    """Return records by the values of some columns, in order of first occurrence."""
    found: dict[tuple[Hashable, ...], list[Record]] = {}
    for record in records:
        found.setdefault(tuple(record[name] for name in names), []).append(record)
    return found


def percent(records: Iterable[Record], name: str) -> Estimate:
    """Return the estimate of a column that holds shares, in hundredths."""
    return Estimate.of(None if (value := row.get(name)) is None else 100.0 * value for row in records)


def excess(record: Record, gap: str = "gap") -> float | None:
    """Return by how much a gap exceeds the requested tolerance."""
    if record[gap] is None or record["delta"] is None:
        return None
    return max(0.0, float(record[gap]) - float(record["delta"]))


def accuracy_at_gap(points: Sequence[Record], gap: float) -> float:
    """Return the accuracy of a method at a gap: linear between the rules with the next smaller and larger gap.

    No rule is chosen by its test accuracy. NaN below the smallest gap; beyond the largest, that rule's accuracy.
    """
    found = sorted((row["gap"], row["accuracy"]) for row in points if row["gap"] is not None)
    if not found or gap < found[0][0]:
        return math.nan
    return float(np.interp(gap, [x for x, _ in found], [y for _, y in found]))


def delta_text(delta: float | None) -> str:
    """Return a tolerance in hundredths, as the paper's tables have it."""
    return UNCONSTRAINED if delta is None else f"{100.0 * delta:g}"


def mean_by(records: Iterable[Record], value: Callable[[Record], float | None]) -> Estimate:
    """Return the estimate of a value that each record gives."""
    return Estimate.of(value(record) for record in records)
