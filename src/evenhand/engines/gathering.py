"""Raw rows that an engine fetches: those that a selection chooses, with equal ones merged if there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evenhand.engines.schema import POSITIVE, Columns, Frame, Schema
from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.rules.events import AttributeKey

_MIX = np.uint64(0x9E3779B97F4A7C15)


class Choice(Protocol):
    """A selection of rows. ``loose`` means that DuckDB's condition may leave more, which :meth:`keep` removes."""

    @property
    def loose(self) -> bool:
        """Whether DuckDB's condition may leave more than the selected rows."""
        ...

    def where(self, dialect: str) -> str | None:
        """Return the SQL condition over the inner names; None if there is none."""
        ...

    def keep(self, frame: Frame) -> NDArray[np.bool_] | None:
        """Return a mask of the selected rows of a frame; None for all."""
        ...


def chosen(choice: Choice, frame: Frame) -> Frame:
    """Return the selected rows of a frame."""
    wanted = choice.keep(frame)
    if wanted is None:
        return frame
    places = np.flatnonzero(wanted)
    return {name: column[places] for name, column in frame.items()}


class Everything:
    """All rows."""

    loose = False

    def where(self, dialect: str) -> None:
        """Return None: no condition."""

    def keep(self, frame: Frame) -> None:
        """Return None: all rows."""


@dataclass(frozen=True)
class Sample:
    """About a share of the rows, drawn by a hash of their scores: the same rows in every pass."""

    share: float
    names: tuple[str, ...]
    loose: bool = False

    def where(self, dialect: str) -> str:
        """Return the SQL condition."""
        limit = max(1, int(self.share * (1 << 30)))
        names = ", ".join(self.names)
        return (
            f"hash({names}) % {1 << 30} < {limit}"
            if dialect == "duckdb"
            else f"pmod(xxhash64({names}), {1 << 30}) < {limit}"
        )

    def keep(self, frame: Frame) -> NDArray[np.bool_]:
        """Return a mask of the drawn rows."""
        mixed = np.zeros(len(frame["s0"]), dtype=np.uint64)
        for name in self.names:
            mixed = (mixed ^ np.ascontiguousarray(frame[name], dtype=np.float64).view(np.uint64)) * _MIX
            mixed ^= mixed >> np.uint64(29)
        found: NDArray[np.bool_] = (mixed * _MIX) >> np.uint64(34) < np.uint64(max(1, int(self.share * (1 << 30))))
        return found


@dataclass(frozen=True, eq=False)
class RawRows:
    """Raw rows: ``frame`` has them under the inner names, and ``rows`` is how many rows of the data each stands for."""

    schema: Schema
    frame: Frame
    rows: NDArray[np.int64]
    weighted: bool

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_rows(self) -> int:
        """The number of rows of the data."""
        return int(self.rows.sum())

    def distinct(self) -> RawRows:
        """Return the rows with equal ones as one, given rows in the order of :meth:`sorted`."""
        new = changes([column for name, column in self.frame.items() if name != "w"])
        if new.all():
            return self
        first = np.flatnonzero(new)
        found = self.take(first)
        frame = {**found.frame, "w": np.add.reduceat(self.frame["w"], first)} if self.weighted else found.frame
        return RawRows(self.schema, frame, np.add.reduceat(self.rows, first), self.weighted)

    def take(self, index: NDArray[Any]) -> RawRows:
        """Return some of the rows."""
        frame = {name: column[index] for name, column in self.frame.items()}
        return RawRows(self.schema, frame, self.rows[index], self.weighted)

    @classmethod
    def joined(cls, columns: Columns, parts: Sequence[Frame]) -> RawRows:
        """Return the rows of some parts, none of which are merged."""
        weighted, names = columns.weight is not None, inner_names(columns.schema)
        names = [*names, "w"] if weighted else names
        frame = {name: np.concatenate([np.empty(0), *(part[name] for part in parts)]) for name in names}
        return cls(columns.schema, frame, np.ones(len(frame["s0"]), dtype=np.int64), weighted)

    def sorted(self, index: NDArray[np.intp] | None = None) -> RawRows:
        """Return the rows, or some of them, in an order that does not depend on the one in which they came."""
        found = np.arange(len(self)) if index is None else index
        return self.take(found[ordered([column for name, column in self.frame.items() if name != "w"], found)])

    @property
    def weight(self) -> FloatArray:
        """The weights; the numbers of rows if no weights were given."""
        return self.frame["w"] if self.weighted else self.rows.astype(np.float64)

    @property
    def positive(self) -> NDArray[np.bool_] | None:
        """Whether a row has the positive label; None if rows have no labels."""
        return self.frame["label"] == POSITIVE if self.schema.labelled else None

    @cached_property
    def codes(self) -> dict[str, NDArray[np.int64]]:
        """The index of each row's group, by attribute; -1 if it is not known."""
        return {
            name: self.frame[f"a{place}"].astype(np.int64) - 1 for place, (name, _) in enumerate(self.schema.observed)
        }

    @cached_property
    def strata(self) -> dict[str, NDArray[np.int64]]:
        """The index of each row's stratum, by column; -1 if it is not known."""
        return {
            name: self.frame[f"t{place}"].astype(np.int64) - 1 for place, (name, _) in enumerate(self.schema.strata)
        }

    @property
    def p_y(self) -> FloatArray:
        """P(Y = positive | x)."""
        return self.frame["s0"]

    @cached_property
    def p_group(self) -> dict[AttributeKey, FloatArray]:
        """The probabilities of the groups: (rows, G) or (rows, 2, G) by attribute."""
        found = {}
        for entry, names in zip(self.schema.scored, self.schema.names, strict=True):
            array = np.column_stack([self.frame[name] for name in names])
            found[entry.attribute] = array.reshape(len(array), 2, len(entry.groups)) if entry.joint else array
        return found


def check_weight(found: float, counted: float) -> None:
    """Raise :class:`InputError` where rows brought back do not weigh what they weighed when they were counted."""
    if abs(found - counted) > 1e-9 * max(counted, 1.0):
        raise InputError(
            f"The rows were not the same in two passes over the table (weight {counted:g}, then {found:g}): cache them,"
            " or copy them first."
        )


def inner_names(schema: Schema) -> list[str]:
    """Return the names of the columns that distinguish rows."""
    return ["s0", *(name for names in schema.names for name in names), "label", *schema.coded]


def changes(columns: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Return which rows differ from the one before in some column; the first one does."""
    found = np.zeros(len(columns[0]), dtype=bool)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def ordered(columns: Sequence[NDArray[Any]], index: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the order of some rows by all of their columns; the first one distinguishes nearly all of them."""
    first = columns[0][index]
    order = np.argsort(first, kind="stable")
    first = first[order]
    alike = np.zeros(len(order), dtype=bool)
    alike[1:] = first[1:] == first[:-1]
    alike[:-1] |= alike[1:]
    tied = order[alike]
    order[alike] = tied[np.lexsort([column[index[tied]] for column in reversed(columns)])]
    return order


class Gatherer:
    """Collects selected rows; if there are more than ``most``, equal ones are merged."""

    def __init__(self, columns: Columns, most: int) -> None:
        self.schema, self.weighted, self.most = columns.schema, columns.weight is not None, most
        self.names = inner_names(self.schema)
        self._parts: list[FloatArray] = []
        self._size = 0
        self.full = False

    def add(self, frame: Frame, rows: NDArray[np.int64] | None = None) -> bool:
        """Add some rows, and return whether there is space for more."""
        n = len(frame["s0"])
        if n:
            numbers = np.ones(n) if rows is None else rows
            extra = [frame["w"]] if self.weighted else []
            self._parts.append(np.column_stack([*(frame[name] for name in self.names), numbers, *extra]))
            self._size += n
            if self._size > 2 * self.most:
                self._merge()
        self.full = self._size > 2 * self.most
        return not self.full

    def _merge(self) -> None:
        """Merge equal rows."""
        table = np.vstack(self._parts)
        keys = table[:, : len(self.names)]
        order = np.lexsort(keys.T[::-1])
        keys, table = keys[order], table[order]
        first = np.flatnonzero(np.concatenate([[True], (keys[1:] != keys[:-1]).any(axis=1)]))
        merged = table[first]
        merged[:, len(self.names) :] = np.add.reduceat(table[:, len(self.names) :], first, axis=0)
        self._parts, self._size = [merged], len(merged)

    def result(self) -> RawRows | None:
        """Return the rows, in the order in which they came; None where there were too many."""
        if not self.full and self._size > self.most:
            self._merge()
        if self.full or self._size > self.most:
            return None
        width = len(self.names) + 1 + self.weighted
        table = np.vstack(self._parts) if self._parts else np.empty((0, width))
        self._parts = []
        frame = {name: np.ascontiguousarray(table[:, k]) for k, name in enumerate(self.names)}
        if self.weighted:
            frame["w"] = np.ascontiguousarray(table[:, -1])
        return RawRows(self.schema, frame, table[:, len(self.names)].astype(np.int64), self.weighted)
