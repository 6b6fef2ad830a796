"""Counting rows by their words, in memory that does not grow with the rows."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_whole
from evenhand.engines import _kernels
from evenhand.engines.schema import FINEST, Tally, Words
from evenhand.errors import InputError
from evenhand.inputs import FloatArray

COARSEST = 1
MAX_CELLS = 200_000
_SMALLEST_TABLE = 1 << 12
_NO_ROWS = np.zeros(0, dtype=np.int64)


def check_level(level: int, max_cells: int) -> None:
    """Raise :class:`InputError` if a level or a limit of cells is invalid."""
    check_whole(level, "level", at_least=COARSEST, at_most=FINEST)
    check_whole(max_cells, "max_cells", at_least=16)


class Masked(Protocol):
    """What a counter needs to know about the words: how many there are, and which bits are kept at a level."""

    @property
    def width(self) -> int:
        """The number of words."""
        ...

    def masks(self, level: int) -> Words:
        """Return the bits of each word that are kept at a level."""
        ...


def counter_of(tally: Tally, weighted: bool, level: int, max_cells: int) -> Counter:
    """Return an empty counter for a tally."""
    return Counter(tally, len(tally.payload) + weighted, level=level, max_cells=max_cells)


class DenseCounter:
    """The weights of words that are array indices: the fastest form if most of them occur."""

    level = FINEST

    def __init__(self, counts: NDArray[Any], weighted: bool) -> None:
        self.counts, self.columns = counts, int(weighted)

    def add(self, words: Words, payload: FloatArray, rows: Words = _NO_ROWS) -> None:
        """Count some rows, as :meth:`Counter.add` does."""
        weights = payload[:, 0] if self.columns else rows
        _kernels.add_dense(np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(weights), self.counts)


class Counter:
    """A table of words with their counts and sums; it coarsens itself if it would have too many cells."""

    def __init__(self, tally: Masked, columns: int, *, level: int = FINEST, max_cells: int = MAX_CELLS) -> None:
        check_level(level, max_cells)
        self.tally, self.level, self.max_cells = tally, level, max_cells
        self.columns = columns
        self._clear(_SMALLEST_TABLE)

    def _clear(self, slots: int) -> None:
        self._table = np.zeros((slots, 1 + self.tally.width), dtype=np.int64)
        self._sums = np.zeros((slots, self.columns))
        self._used = 0

    def add(self, words: Words, payload: FloatArray, rows: Words = _NO_ROWS) -> None:
        """Count some rows: their words (n, W), the values to sum (n, V), and how many rows each stands for."""
        words, payload = np.ascontiguousarray(words), np.ascontiguousarray(payload)
        done = 0
        while done < len(words):
            limit = min(self.max_cells, len(self._table) // 2)
            masks = self.tally.masks(self.level)
            done, self._used = _kernels.count_words(
                words, masks, payload, rows, done, limit, self._table, self._sums, self._used
            )
            if done < len(words):
                self._make_room()
        if len(self._table) > max(_SMALLEST_TABLE, 8 * self._used):
            # A table of this size stays in the processor's cache.
            self._rebuild(max(_SMALLEST_TABLE, 1 << (2 * self._used).bit_length()))

    def _make_room(self) -> None:
        slots = len(self._table)
        if self._used < self.max_cells:
            slots *= 2
        elif self.level > COARSEST:
            self.level -= 1
        else:
            raise InputError(
                f"There are more than {self.max_cells:,} combinations of groups and scores even in the coarsest"
                " steps: use fewer attributes, or allow more with max_cells."
            )
        self._rebuild(slots)

    def _rebuild(self, slots: int) -> None:
        words, sums, rows = self.cells()
        self._clear(slots)
        self.add(words, sums, rows)

    def cells(self) -> tuple[Words, FloatArray, Words]:
        """Return the words, the sums and the counts of rows."""
        taken = self._table[:, 0] > 0
        return self._table[taken, 1:], self._sums[taken], self._table[taken, 0]
