"""The counts of a watch: decisions by group and label, since the start and in the last blocks of rows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.tally import BoolArray, read_decisions
from evenhand.errors import InputError
from evenhand.inputs import (
    MOST_GROUPS,
    Attribute,
    Missing,
    SensitiveFeatures,
    as_column,
    as_list,
    cross,
    cross_attributes,
    factorize,
    read_sensitive,
)
from evenhand.plausibility import check_same_index
from evenhand.rules.criterion import Criterion
from evenhand.rules.events import AttributeKey, Event, Stratified
from evenhand.rules.strata import check_known, read_strata

# A group of an attribute; (None, None) is everyone.
Cell = tuple[AttributeKey | None, Hashable]
Identifier = str | int
IntArray = NDArray[np.int64]
BLOCKS = 5
MOST_WAITING = 1_000_000
_SLOTS = {None: 0, 0: 1, 1: 2}


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows as read: decisions, labels (-1 if unknown) and groups by attribute."""

    decided: BoolArray
    labels: IntArray
    attributes: dict[AttributeKey, Attribute]
    ids: list[Identifier] | None

    def __len__(self) -> int:
        return len(self.decided)


def read_batch(
    decisions: Any,
    groups: SensitiveFeatures,
    y: Any,
    ids: Any,
    *,
    pos_label: Hashable,
    missing: Missing,
    members: Mapping[Any, Sequence[Hashable]] | Sequence[Hashable] | None,
    criterion: Criterion,
    strata: SensitiveFeatures | None,
    known_strata: Mapping[str, tuple[Hashable, ...]],
) -> Batch:
    """Return the rows passed to ``update``; ``members`` and ``known_strata`` are the declared groups and strata."""
    check_same_index({"decisions": decisions, "groups": groups, "y": y, "ids": ids, "strata": strata})
    decisions, y, ids = _one_as_list(decisions), _one_as_list(y), _one_as_list(ids)
    groups, strata = _columns_as_lists(groups), _columns_as_lists(strata)
    column = as_column(decisions, "decisions")
    if column.dtype.kind == "f" and not np.isin(column, [0.0, 1.0]).all() and pos_label not in column:
        raise InputError("decisions must be decisions, such as 0 and 1: apply a threshold to scores first.")
    _, decided = read_decisions(None, column, pos_label, ("y", "decisions"))
    attributes = read_sensitive(groups, len(decided), missing=missing, groups=members, any_number=True)
    for key in criterion.intersections:
        attributes[key] = cross_attributes(attributes, key)
    inside = read_strata(strata, criterion.strata, len(decided), new=True)
    for within in criterion.stratified({name: a.groups for name, a in attributes.items()}):
        known = _of_known_strata(within, inside[within.within], known_strata.get(within.within))
        attributes[within] = Attribute(within, *cross([known, attributes[within.attribute]]))
    labels = np.full(len(decided), -1) if y is None else read_late_labels(y, len(decided), pos_label)
    return Batch(decided, labels, attributes, None if ids is None else read_ids(ids, len(decided)))


def _of_known_strata(key: Stratified, column: Attribute, known: tuple[Hashable, ...] | None) -> Attribute:
    """Return a column of strata in which those that were not declared are unknown; raise without ``thin``."""
    check_known(key, {key.within: column})
    strange = [place for place, stratum in enumerate(column.groups) if known is not None and stratum not in known]
    if strange and key.thin is None:
        raise InputError(
            f"The stratum {column.groups[strange[0]]!r} of {key.within!r} is not one of this watch, which has"
            f" {list(known or ())!r}. With thin=30 in the criterion, for example, such rows count in no stratum."
        )
    return dataclasses.replace(column, codes=np.where(np.isin(column.codes, strange), -1, column.codes))


def _columns_as_lists(columns: Any) -> Any:
    if isinstance(columns, Mapping):
        return {name: _one_as_list(column) for name, column in columns.items()}
    return _one_as_list(columns)


def _one_as_list(value: Any) -> Any:
    """Return a single NumPy value as a list, and anything else unchanged."""
    return [value.item()] if isinstance(value, np.generic) else value


def read_late_labels(y: Any, n_rows: int, pos_label: Hashable) -> IntArray:
    """Return 1 for the positive label, 0 for the other, and -1 if the label has not arrived."""
    values, codes = factorize(y, "y")
    if len(codes) != n_rows:
        raise InputError(f"y has {len(codes)} rows, but {n_rows} are expected.")
    if len(values) > 2 or (len(values) == 2 and pos_label not in values):
        raise InputError(
            f"y must have two values, one of them pos_label={pos_label!r}, and missing values where the label has not"
            f" arrived; it has {list(values)[:6]!r}."
        )
    positive = values.index(pos_label) if pos_label in values else -2
    return np.where(codes < 0, -1, codes == positive)


def read_ids(ids: Any, n_rows: int) -> list[Identifier]:
    """Return the identifiers of rows: text or whole numbers, without duplicates."""
    found = as_list(ids, "ids")
    if len(found) != n_rows:
        raise InputError(f"ids has {len(found)} rows, but {n_rows} are expected.")
    for value in found:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise InputError(f"ids must be text or whole numbers, none missing; got {value!r}.")
    if len(set(found)) < len(found):
        raise InputError("ids repeats an identifier: each row needs a different one.")
    return found


@dataclass(eq=False)
class Counts:
    """The number of rows and of positive decisions in each cell.

    Attributes
    ----------
    size : int or None
        The number of rows in a block; None without a window.
    everyone : bool
        Whether all rows together are also a cell.
    cells : dict
        The index of each cell in the arrays, in order of first occurrence.
    total : array of shape (cells, 3, 2)
        Since the start: rows and positive decisions, among all rows, those of negative and those of positive label.
    blocks : list of arrays
        The same for the last blocks; the last one is being filled.
    number : int
        The number of the last block, from 1.
    filled : int
        The number of rows counted in it.
    rows : int
        The number of rows since the start.
    waiting : dict
        Rows whose label has not arrived: by identifier, the decision and the indices of their cells.
    """

    size: int | None
    everyone: bool = False
    cells: dict[Cell, int] = field(default_factory=dict)
    total: IntArray = field(default_factory=lambda: np.zeros((0, 3, 2), dtype=np.int64))
    blocks: list[IntArray] = field(default_factory=lambda: [np.zeros((0, 3, 2), dtype=np.int64)])
    number: int = 1
    filled: int = 0
    rows: int = 0
    waiting: dict[Identifier, tuple[int, ...]] = field(default_factory=dict)

    def register(self, cells: Sequence[Cell]) -> None:
        """Add new cells. Every stratum has a cell for each group, so that a group without rows there shows."""
        before = len(self.cells)
        for cell in cells:
            self.cells.setdefault(cell, len(self.cells))
        if len(self.cells) > before:
            known = self.groups()
            for key in [key for key in known if isinstance(key, Stratified)]:
                for pair in itertools.product(strata_among(known[key]), known.get(key.attribute, ())):
                    self.cells.setdefault((key, pair), len(self.cells))
        self.total = _grown(self.total, len(self.cells))
        self.blocks = [_grown(block, len(self.cells)) for block in self.blocks]

    def groups(self) -> dict[AttributeKey, tuple[Hashable, ...]]:
        """Return each attribute's groups, in order of first occurrence."""
        found: dict[AttributeKey, list[Hashable]] = {}
        for attribute, group in self.cells:
            if attribute is not None:
                found.setdefault(attribute, []).append(group)
        return {name: tuple(members) for name, members in found.items()}

    def check(self, batch: Batch) -> None:
        """Raise if a column would have more values than can be compared pairwise."""
        known = self.groups()
        for key, a in batch.attributes.items():
            members: set[Hashable] = {*known.get(key, ()), *a.groups}
            inside = isinstance(key, Stratified)
            name, what = (key.within, "strata") if isinstance(key, Stratified) else (str(key), "groups")
            count = len(strata_among(members)) if inside else len(members)
            if count > MOST_GROUPS:
                raise InputError(
                    f"{name!r} has had {count:,} different values: it looks like a number or an identifier, not"
                    f" like {what}. Bin it first, or merge small {what}."
                )

    def add(self, batch: Batch, *, keep: bool) -> None:
        """Count rows; with ``keep``, those with an identifier but no label wait for the label."""
        places = self._places(batch)
        fresh = np.ones(len(batch), dtype=bool)
        late: list[int] = []
        if batch.ids is not None and self.waiting:
            fresh = np.fromiter((name not in self.waiting for name in batch.ids), bool, len(batch))
            late = np.flatnonzero(~fresh & (batch.labels >= 0)).tolist()
        if fresh.all():
            self._count(places, batch.decided, batch.labels)
        else:
            self._count([p[fresh] for p in places], batch.decided[fresh], batch.labels[fresh])
        if batch.ids is not None:
            self.arrive([batch.ids[i] for i in late], batch.labels[late])
            if keep:
                self._wait(batch, places, np.flatnonzero(fresh & (batch.labels < 0)))

    def arrive(self, ids: Sequence[Identifier], labels: IntArray) -> int:
        """Count rows whose labels have arrived; return how many of them were waiting."""
        found = [(self.waiting[name], label) for name, label in zip(ids, labels.tolist(), strict=True) if label >= 0]
        for name, label in zip(ids, labels.tolist(), strict=True):
            if label >= 0:
                del self.waiting[name]
        if found:
            decided, *places = np.array([entry for entry, _ in found], dtype=np.int64).T
            known = np.array([label for _, label in found])
            for counts in self._open():
                for place in places:
                    _count_labels(counts, place, decided, known)
        return len(found)

    def of(self, events: Sequence[Event]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return rows and positive decisions of some events: since the start, and in the window."""
        place = [self.cells[event.attribute, event.group] for event in events]
        slot = [_SLOTS[event.label] for event in events]
        window = np.sum(self.blocks, axis=0)
        return tuple(counts[place, slot].astype(np.float64).T for counts in (self.total, window))  # type: ignore[return-value]

    @property
    def start(self) -> int:
        """The number of the block at which the window starts."""
        return self.number - len(self.blocks) + 1

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both; the last blocks of the two are combined."""
        if both := self.waiting.keys() & other.waiting.keys():
            raise InputError(
                f"Both watches have a waiting row {sorted(map(str, both))[0]!r}: identifiers must be unique."
            )
        new = Counts(self.size, self.everyone or other.everyone)
        new.register([*self.cells, *other.cells])
        new.blocks = [np.zeros_like(new.total) for _ in range(max(len(self.blocks), len(other.blocks)))]
        new.number = self.number + other.number
        new.filled, new.rows = self.filled + other.filled, self.rows + other.rows
        for part in (self, other):
            place = np.array([new.cells[cell] for cell in part.cells], dtype=np.intp)
            new.total[place] += part.total
            for mine, theirs in zip(reversed(new.blocks), reversed(part.blocks), strict=False):
                mine[place] += theirs
            moved = np.append(place, -1).tolist()
            new.waiting |= {name: (d, *(moved[p] for p in places)) for name, (d, *places) in part.waiting.items()}
        new._give_up_oldest()
        return new

    def _places(self, batch: Batch) -> list[NDArray[np.intp]]:
        """Return the index of each row's cell, for each attribute."""
        everyone: list[Cell] = [(None, None)] if self.everyone else []
        self.register([*everyone, *((key, group) for key, a in batch.attributes.items() for group in a.groups)])
        places = [
            np.array([*(self.cells[key, group] for group in a.groups), -1], dtype=np.intp)[a.codes]
            for key, a in batch.attributes.items()
        ]
        if self.everyone:
            places.append(np.full(len(batch), self.cells[None, None]))
        return places

    def _count(self, places: list[NDArray[np.intp]], decided: BoolArray, labels: IntArray) -> None:
        begin, labelled = 0, bool((labels >= 0).any())
        while begin < len(decided):
            if self.size is not None and self.filled >= self.size:
                self._next_block()
            room = len(decided) if self.size is None else self.size - self.filled
            part = slice(begin, begin + room)
            for counts in self._open():
                for place in places:
                    _count_rows(counts, place[part], decided[part])
                    if labelled:
                        _count_labels(counts, place[part], decided[part], labels[part])
            self.filled += len(decided[part])
            self.rows += len(decided[part])
            begin += room

    def _open(self) -> list[IntArray]:
        return [self.total] if self.size is None else [self.total, self.blocks[-1]]

    def _next_block(self) -> None:
        self.blocks = [*self.blocks, np.zeros_like(self.total)][-BLOCKS - 1 :]
        self.number += 1
        self.filled = 0

    def _wait(self, batch: Batch, places: list[NDArray[np.intp]], rows: NDArray[np.intp]) -> None:
        assert batch.ids is not None
        columns = [column[rows].tolist() for column in (batch.decided.astype(np.int64), *places)]
        self.waiting |= zip((batch.ids[i] for i in rows.tolist()), zip(*columns, strict=True), strict=True)
        self._give_up_oldest()

    def _give_up_oldest(self) -> None:
        for name in list(self.waiting)[: max(len(self.waiting) - MOST_WAITING, 0)]:
            del self.waiting[name]


def strata_among(pairs: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Return the strata of some pairs (stratum, group), in order of first occurrence."""
    return tuple(dict.fromkeys(pair[0] for pair in pairs if isinstance(pair, tuple)))


def _grown(counts: IntArray, size: int) -> IntArray:
    if len(counts) == size:
        return counts
    return np.concatenate([counts, np.zeros((size - len(counts), 3, 2), dtype=np.int64)])


def _count_rows(counts: IntArray, place: NDArray[Any], decided: NDArray[Any]) -> None:
    found = np.bincount(2 * (place + 1) + decided, minlength=2 * len(counts) + 2)[2:].reshape(-1, 2)
    counts[:, 0, 0] += found.sum(axis=1)
    counts[:, 0, 1] += found[:, 1]


def _count_labels(counts: IntArray, place: NDArray[Any], decided: NDArray[Any], labels: NDArray[Any]) -> None:
    """Count the rows whose label is known; those of unknown group, at -1, are left out."""
    index = 6 * (place + 1) + 2 * (labels + 1) + decided
    found = np.bincount(index, minlength=6 * len(counts) + 6)[6:].reshape(-1, 3, 2)[:, 1:]
    counts[:, 1:, 0] += found.sum(axis=2)
    counts[:, 1:, 1] += found[:, :, 1]
