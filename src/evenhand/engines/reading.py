"""Passes over a table and the rows that they fetch, for the exact searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evenhand.engines.counter import Counter, DenseCounter, counter_of
from evenhand.engines.gathering import Choice, RawRows, Sample
from evenhand.engines.schema import FINEST, Columns, Frame, Tally, Words
from evenhand.inputs import FloatArray

Counted = tuple[Words, FloatArray, Words, int]
MOST_COUNTED = 1 << 24


class DenseTally(Tally, Protocol):
    """A tally whose words are places in an array."""

    def empty(self) -> NDArray[Any]:
        """Return the array, empty."""
        ...


class Readable(Protocol):
    """The passes of an engine."""

    def fill(self, columns: Columns, tally: Tally, counter: Counter | DenseCounter) -> None:
        """Count the words of the rows, in one pass."""
        ...

    def rows(self, columns: Columns, choice: Choice, most: int, *, ordered: bool) -> RawRows | None:
        """Return the selected rows; None if more than ``most`` are different.

        ``ordered`` asks for the order of the table; otherwise they come in any order, and equal ones may be one.
        """
        ...

    def frames(self, columns: Columns) -> Iterator[Frame] | None:
        """Yield all rows under their inner names; None where an engine counts them elsewhere."""
        ...


def count(source: Readable, columns: Columns, tally: Tally, level: int = FINEST, most: int = MOST_COUNTED) -> Counted:
    """Return the distinct words of the rows, their sums and counts, and the level they are quantised at."""
    counter = counter_of(tally, columns.weight is not None, level, most)
    source.fill(columns, tally, counter)
    return (*counter.cells(), counter.level)


class TooManyError(Exception):
    """More rows would have to be fetched than memory allows; what is known nevertheless is that no rule is better."""

    def __init__(self, upper_bound: float = np.inf) -> None:
        super().__init__()
        self.upper_bound = upper_bound


class AllRowsError(Exception):
    """All rows are in memory after all, because few of them are different: the reader's sample is complete."""


class Reader:
    """A table, the used columns, and a limit for its rows in memory. It counts passes and rows.

    ``sample`` are rows that the first pass has drawn, if it could; ``complete`` tells if these are all, with equal ones
    as one.
    """

    def __init__(self, source: Readable, columns: Columns, most: int) -> None:
        self.source, self.columns, self.most = source, columns, most
        self.passes = self.brought = 0
        self.sample: RawRows | None = None
        self.complete = False

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return self.columns.weight is not None

    def count(self, tally: Tally) -> tuple[Words, FloatArray]:
        """Return the distinct words of the rows, and the weight of each."""
        self.passes += 1
        words, sums, rows, _ = count(self.source, self.columns, tally)
        return words, sums[:, 0] if self.weighted else rows.astype(np.float64)

    def count_dense(self, tally: DenseTally) -> NDArray[Any]:
        """Return the weight of each word, where words are places in an array."""
        self.passes += 1
        counter = DenseCounter(tally.empty(), self.weighted)
        self.source.fill(self.columns, tally, counter)
        return counter.counts

    def stream(self, add: Callable[[Frame], None]) -> bool:
        """Pass all rows to a function, in one pass; return whether the engine can, as some count rows elsewhere."""
        frames = self.source.frames(self.columns)
        if frames is None:
            return False
        self.passes += 1
        for frame in frames:
            if len(frame["s0"]):
                add(frame)
        return True

    def drawn(self, share: float, names: tuple[str, ...]) -> RawRows | None:
        """Return a sample of the rows: that of the first pass, or about a share of them in one more, read once."""
        if self.sample is None:
            self.sample = self.sorted_rows(Sample(share, names))
        return self.sample

    def rows(self, choice: Choice) -> RawRows | None:
        """Return the rows of a choice, in any order, or None where they are too many."""
        self.passes += 1
        found = self.source.rows(self.columns, choice, self.most, ordered=False)
        self.brought += 0 if found is None else len(found)
        return found

    def sorted_rows(self, choice: Choice) -> RawRows | None:
        """Return the rows of a choice, in the same order every time."""
        found = self.rows(choice)
        return None if found is None else found.sorted()

    def described(self) -> dict[str, Any]:
        """Return the passes and fetched rows, as plain data."""
        return {"passes": self.passes, "rows_brought_back": self.brought}
