"""Passes over a table and the rows that they fetch, for the exact searches."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from evenhand.engines.gathering import Choice, RawRows
from evenhand.engines.schema import FINEST, Columns, Tally, Words
from evenhand.inputs import FloatArray

Counted = tuple[Words, FloatArray, Words, int]
MOST_COUNTED = 1 << 24


class Readable(Protocol):
    """The two passes of an engine."""

    def count(self, columns: Columns, tally: Tally, level: int, max_cells: int) -> Counted:
        """Return the distinct words of the rows, their sums and counts, and the level of quantisation."""
        ...

    def rows(self, columns: Columns, choice: Choice, most: int, *, ordered: bool) -> RawRows | None:
        """Return the selected rows; None if more than ``most`` are different.

        ``ordered`` requests the order of the table; otherwise they are sorted, and equal ones may be merged.
        """
        ...


class TooManyError(Exception):
    """More rows would have to be fetched than memory allows."""


class Reader:
    """A table, the used columns, and a limit for its rows in memory. It counts passes and rows."""

    def __init__(self, source: Readable, columns: Columns, most: int) -> None:
        self.source, self.columns, self.most = source, columns, most
        self.passes = self.brought = 0

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return self.columns.weight is not None

    def count(self, tally: Tally) -> tuple[Words, FloatArray]:
        """Return the distinct words of the rows, and the weight of each."""
        self.passes += 1
        words, sums, rows, _ = self.source.count(self.columns, tally, FINEST, MOST_COUNTED)
        return words, sums[:, 0] if self.weighted else rows.astype(np.float64)

    def rows(self, choice: Choice, most: int | None = None) -> RawRows | None:
        """Return the selected rows, or None if there are too many."""
        self.passes += 1
        found = self.source.rows(self.columns, choice, self.most if most is None else most, ordered=False)
        self.brought += 0 if found is None else len(found)
        return found

    def described(self) -> dict[str, Any]:
        """Return the passes and fetched rows, as plain data."""
        return {"passes": self.passes, "rows_brought_back": self.brought}
