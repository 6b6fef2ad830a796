"""The first pass over rows that are streamed: atoms are counted, and a sample is drawn, together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import _kernels
from evenhand.engines.gathering import Everything, Gatherer, RawRows, changes, ordered
from evenhand.engines.ground import Atoms, Ground
from evenhand.engines.reading import AllRowsError, Counted, Reader, TooManyError
from evenhand.engines.schema import DEVIATIONS, FINEST, Columns, Frame, Words

# Rows in the sample, at most; at least half as many if there are more.
ROWS_OF_A_SAMPLE = 1 << 19
FEWEST_DRAWN = 1000
ALL_HASHES = 1 << 30
MOST_CODES = 1 << 18


class Opening:
    """Counts atoms, and draws rows by a hash of their scores: the same ones in every order."""

    def __init__(self, columns: Columns, atoms: Atoms, most: int) -> None:
        self.columns, self.atoms, self.most = columns, atoms, most
        schema = columns.schema
        self._fields = {"label": 4, **{name: len(values) + 2 for name, values in schema.coded.items()}}
        self.n_codes = math.prod(self._fields.values())
        self._names = ["s0", *(name for names in schema.names for name in names)]
        ends = np.cumsum([1, *(entry.size for entry in schema.scored)])
        self._parts = np.column_stack([ends[:-1], ends[1:]]).astype(np.int64)
        shape = (len(DEVIATIONS) + 1, 2, self.n_codes)
        self._counts, self._sums = np.zeros(shape, dtype=np.int64), np.zeros(shape)
        self._room = np.empty((len(self._names), 0))
        self._drawn = np.empty((2, 0), dtype=np.int64)
        self._limit = ALL_HASHES
        self._sample: list[_Part] = []
        self._size, self._overflown = 0, False

    @property
    def possible(self) -> bool:
        """Whether there are few enough combinations of labels and groups."""
        return self.n_codes <= MOST_CODES

    def add(self, frame: Frame) -> None:
        """Count some rows, and draw from them."""
        n = len(frame["s0"])
        if n > self._room.shape[1]:
            self._room, self._drawn = np.empty((len(self._names), n)), np.empty((2, n), dtype=np.int64)
        for k, name in enumerate(self._names):
            self._room[k, :n] = frame[name]
        codes = np.zeros(n, dtype=np.int64)
        for name, size in self._fields.items():
            codes *= size
            codes += frame[name]
        weights = np.ascontiguousarray(frame["w"], dtype=np.float64) if self.atoms.weighted else np.empty(0)
        false_positive, false_negative = self.atoms.costs
        found = _kernels.count_atoms(
            self._room, self._room.view(np.uint64), codes, weights, self._parts, np.array(DEVIATIONS),
            (float(false_negative + false_positive), float(false_positive)), self._limit,
            self._counts, self._sums, self._drawn,
        )  # fmt: skip
        if found:
            place = self._drawn[0, :found]
            drawn = {name: np.asarray(column)[place] for name, column in frame.items()}
            keys = self._drawn[1, :found] * self.n_codes + codes[place]
            self._sample.append((keys, np.ones(found, dtype=np.int64), drawn))
            self._size += found
        # There is room for twice as many, so that rows are merged, or some of them dropped, less often.
        if self._size > 2 * self.most:
            self._shrink()

    def _shrink(self) -> None:
        """Merge equal rows, and drop those with large hashes if too many are different.

        What is left at the end does not depend on when this is done: too many rows will still be too many.
        """
        while self._size > self.most and self._limit > 1:
            self._overflown = True
            if not self._merge():
                self._limit //= 2
                least = self._limit * self.n_codes
                self._sample = [_taken(part, np.flatnonzero(part[0] < least)) for part in self._sample]
            self._size = sum(len(keys) for keys, _, _ in self._sample)

    def _merge(self) -> bool:
        """Merge equal rows if few enough are different, and return whether they are."""
        hashes = np.concatenate([keys for keys, _, _ in self._sample]) // self.n_codes
        # Most tables have no equal rows, and this tells it quickly.
        if 1 + np.count_nonzero(np.diff(np.sort(hashes.astype(np.int32)))) > self.most:
            return False
        merged = merged_rows(self._sample)
        if len(merged[0]) > self.most:
            return False
        self._sample = [merged]
        return True

    @property
    def complete(self) -> bool:
        """Whether the sample is the whole table, because few of its rows are different."""
        return self._overflown and self._limit == ALL_HASHES

    def counted(self) -> Counted:
        """Return the atoms as a counter of words does."""
        schema = self.atoms.schema
        flaw, chosen, code = np.nonzero(self._counts)
        words = np.zeros((len(flaw), schema.width), dtype=np.int64)
        values = {"flaw": flaw, "s0": chosen << FINEST}
        rest = code
        for name, size in reversed(self._fields.items()):
            rest, values[name] = np.divmod(rest, size)
        for name, value in values.items():
            word, shift, _ = schema.fields[name]
            words[:, word] += value << shift
        sums = self._sums[flaw, chosen, code][:, None] if self.atoms.weighted else np.empty((len(flaw), 0))
        return words, sums, self._counts[flaw, chosen, code], FINEST

    def sample(self) -> RawRows | None:
        """Return the rows drawn, in the same order every time; None if too many of them are alike."""
        self._shrink()
        gatherer = Gatherer(self.columns, self.most)
        for _, rows, frame in self._sample:
            gatherer.add(frame, rows)
        found = gatherer.result()
        if found is None or not self._overflown:
            return None if found is None else found.sorted()
        # Equal rows are one whether or not they had to be merged on the way, which depends on their order.
        return found.sorted().distinct()


# Of some rows: the hash of the scores with the code as one number, how many rows of the data each is, and the rows.
_Part = tuple[Words, NDArray[np.int64], Frame]


def _taken(part: _Part, index: NDArray[Any]) -> _Part:
    keys, rows, frame = part
    return keys[index], rows[index], {name: column[index] for name, column in frame.items()}


def merged_rows(parts: list[_Part]) -> _Part:
    """Return some rows with equal ones as one."""
    keys, rows = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    frame = {name: np.concatenate([part[2][name] for part in parts]) for name in parts[0][2]}
    order = np.argsort(keys, kind="stable")
    columns = [column[order] for name, column in frame.items() if name != "w"]
    new = changes([keys[order], *columns])
    if new.sum() > changes([keys[order]]).sum():
        # Different rows have the same key: they may be mixed, so that all columns are needed for the order.
        columns = [keys, *(column for name, column in frame.items() if name != "w")]
        order = ordered(columns, np.arange(len(keys)))
        new = changes([column[order] for column in columns])
    first = np.flatnonzero(new)
    found = {name: column[order[first]] for name, column in frame.items()}
    if "w" in frame:
        found["w"] = np.add.reduceat(frame["w"][order], first)
    return keys[order[first]], np.add.reduceat(rows[order], first), found


def open_frames(frames: Iterable[Frame], opening: Opening) -> tuple[Counted, RawRows | None]:
    """Return the atoms of some rows, and a sample of these."""
    for frame in frames:
        if len(frame["s0"]):
            opening.add(frame)
    return opening.counted(), opening.sample()


def sample_of(ground: Ground, reader: Reader) -> RawRows:
    """Return a sample of the rows: that of the first pass, or one that is drawn in another pass."""
    share = min(1.0, 0.5 * reader.most / ground.n_rows, ROWS_OF_A_SAMPLE / ground.n_rows)
    raw = reader.drawn(share, ("s0", *ground.linear.names))
    if raw is None or len(raw.distinct()) < min(FEWEST_DRAWN, 0.25 * share * ground.n_rows):
        # Rows with the same scores are drawn together, so these are few scores: perhaps all rows can be had.
        reader.sample = reader.sorted_rows(Everything())
        if reader.sample is not None:
            reader.complete = True
            raise AllRowsError
    if raw is None or len(raw) < 2:
        raise TooManyError
    return raw
