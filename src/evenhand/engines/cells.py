"""The sufficient statistic of any number of rows: how many share each quantised score, label and group.

Sites that may not share rows can share these counts: aggregates add, save and load.

What quantisation costs
-----------------------
Scores are known up to the cell they are in, of width 2^-level; a cell's midpoint represents all of its rows. (The mean
of a cell's scores would be closer, but it differs between the labels of one cell, so a search could read the labels
from it.) For a given rule, the fair margin of a row differs from that of its midpoint by at most

    shift = slope r_y + sum_attributes ( sum_j |c_j - c_last| r + |c_last| d )

with r_y and r the cell's radii, c the rule's coefficients of the probability columns, the last of which is what the
others leave of 1, and d twice the most that the row's probabilities may miss 1 by. Only rows in cells with
|fair margin at the midpoint| <= shift can be decided differently from their midpoint. Their weight bounds the error of
the rule's accuracy, and their share of an event that of the event's rate: :meth:`Aggregate.error_bound`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from evenhand.engines.counter import check_level
from evenhand.engines.schema import DEVIATIONS, FINEST, POSITIVE, Schema, Words
from evenhand.errors import InputError
from evenhand.inputs import FloatArray, sort_groups
from evenhand.rules.events import AttributeKey, Intersection

_Classes = tuple[Hashable, Hashable]


@dataclass(frozen=True, eq=False)
class CountedCells:
    """How many rows, of what weight, share each quantised score, label and group.

    Parameters
    ----------
    schema : Schema
        The columns of the cells.
    level : int
        Scores are quantised in steps of 2^-level.
    words : array of shape (cells, words)
        Each cell's scores, label and groups, packed.
    weight : array of shape (cells,)
        The summed weights.
    rows : array of shape (cells,)
        The numbers of rows.

    """

    schema: Schema
    level: int
    words: Words
    weight: FloatArray
    rows: Words

    def __post_init__(self) -> None:
        check_level(self.level, 16)
        order = np.lexsort(self.words.T[::-1])
        for name in ("words", "weight", "rows"):
            array = np.ascontiguousarray(getattr(self, name)[order])
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CountedCells):
            return NotImplemented
        return (
            (self.schema, self.level) == (other.schema, other.level)
            and np.array_equal(self.words, other.words)
            and np.array_equal(self.weight, other.weight)
            and np.array_equal(self.rows, other.rows)
        )

    def __hash__(self) -> int:
        return hash((self.schema, self.level, self.words.tobytes(), self.rows.tobytes()))

    def __add__(self, other: object) -> Self:
        if not isinstance(other, CountedCells):
            return NotImplemented
        level = min(self.level, other.level)
        schema = _common_schema(self.schema, other.schema)
        parts = [part._under(schema).coarsen(level) for part in (self, other)]
        return self._merged(
            schema,
            level,
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.weight for part in parts]),
            np.concatenate([part.rows for part in parts]),
        )

    def __radd__(self, other: object) -> Self:
        # sum(aggregates) begins with 0.
        return self if other == 0 else NotImplemented

    def __repr__(self) -> str:
        return f"Aggregate({self.n_rows:,} rows in {self.n_cells:,} cells of width 2^-{self.level})"

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return len(self.words)

    @property
    def n_rows(self) -> int:
        """The number of rows that were counted."""
        return int(self.rows.sum())

    @property
    def step(self) -> float:
        """The width of a cell in each score."""
        return float(2.0**-self.level)

    def coarsen(self, level: int) -> Self:
        """Return the aggregate of the same rows at a coarser level, exactly, because levels are nested."""
        check_level(level, 16)
        if level > self.level:
            raise InputError(
                f"This aggregate has level {self.level}, so level {level} is not available: count the rows again."
            )
        if level == self.level:
            return self
        return self._merged(self.schema, level, self.words & self.schema.masks(level), self.weight, self.rows)

    def _under(self, schema: Schema) -> Self:
        """Return the same cells under a schema with more groups, or with both labels."""
        if schema == self.schema:
            return self
        words = np.zeros((self.n_cells, schema.width), dtype=np.int64)
        for name, (word, shift, _) in schema.fields.items():
            values = self.schema.unpack(self.words, name)
            if name.startswith("a"):
                place = int(name[1:])
                new = schema.observed[place][1]
                moved = np.array([0, *(1 + new.index(group) for group in self.schema.observed[place][1])])
                values = moved[values]
            words[:, word] |= values << shift
        return type(self)(schema, self.level, words, self.weight, self.rows)

    def crossing(self, attributes: Iterable[Intersection]) -> Self:
        """Return the same counts, with crossed attributes that are known by their text alone under what they are.

        Files of version 1 have no more than the text; that its groups are tuples tells it from a column's name.
        """
        named = {crossed.name: crossed for crossed in attributes}
        columns = {name for name, _ in self.schema.observed}
        taken = {entry.attribute for entry in self.schema.scored}
        scored = tuple(
            dataclasses.replace(entry, attribute=crossed)
            if isinstance(entry.attribute, str)
            and entry.attribute not in columns
            and (crossed := named.get(entry.attribute)) is not None
            and crossed not in taken
            and all(isinstance(group, tuple) and len(group) == len(crossed.attributes) for group in entry.groups)
            else entry
            for entry in self.schema.scored
        )
        return self if scored == self.schema.scored else self._under(dataclasses.replace(self.schema, scored=scored))

    @classmethod
    def _merged(cls, schema: Schema, level: int, words: Words, weight: FloatArray, rows: Words) -> Self:
        """Return the cells with equal ones merged."""
        order = np.lexsort(words.T[::-1])
        words = words[order]
        first = np.flatnonzero(np.concatenate([[True], (words[1:] != words[:-1]).any(axis=1)])) if len(words) else order
        return cls(
            schema, level, words[first], np.add.reduceat(weight[order], first), np.add.reduceat(rows[order], first)
        )

    @cached_property
    def p_y(self) -> FloatArray:
        """P(Y = positive | x) at the midpoint of each cell."""
        return np.minimum(self._floor("s0") + 0.5 * self.step, 1.0)

    @cached_property
    def p_group(self) -> dict[AttributeKey, FloatArray]:
        """The probabilities at the midpoint of each cell: (cells, G) or (cells, 2, G) by attribute."""
        found = {}
        for entry, names in zip(self.schema.scored, self.schema.names, strict=True):
            lower, rest = self._lower(names)
            array = np.empty((self.n_cells, entry.size))
            array[:, :-1] = lower + self._offset(rest, entry.size)[:, None]
            array[:, -1] = np.maximum(1.0 - array[:, :-1].sum(axis=1), 0.0)
            found[entry.attribute] = array.reshape(-1, 2, len(entry.groups)) if entry.joint else array
        return found

    @cached_property
    def radius_y(self) -> FloatArray:
        """How far P(Y = positive | x) of a row can be from its cell's midpoint."""
        return np.where(self._floor("s0") < 1.0, 0.5 * self.step, 0.0)

    @cached_property
    def radius_group(self) -> dict[AttributeKey, FloatArray]:
        """How far any but the last of an attribute's probabilities can be from its cell's midpoint."""
        found = {}
        for entry, names in zip(self.schema.scored, self.schema.names, strict=True):
            _, rest = self._lower(names)
            offset = self._offset(rest, entry.size)
            found[entry.attribute] = np.maximum(offset, np.minimum(self.step, rest + self.deviation) - offset)
        return found

    @cached_property
    def deviation(self) -> FloatArray:
        """How far the rows' probabilities may be from summing to 1."""
        return np.array(DEVIATIONS)[self.schema.unpack(self.words, "flaw")]

    @cached_property
    def positive(self) -> NDArray[np.bool_] | None:
        """Whether a cell's rows have the positive label; None if rows have no labels."""
        return self.schema.unpack(self.words, "label") == POSITIVE if self.schema.labelled else None

    @cached_property
    def codes(self) -> dict[str, NDArray[np.int64]]:
        """The index of each cell's group, by attribute; -1 if it is not known."""
        return {
            name: self.schema.unpack(self.words, f"a{place}") - 1
            for place, (name, _) in enumerate(self.schema.observed)
        }

    @cached_property
    def strata(self) -> dict[str, NDArray[np.int64]]:
        """The index of each cell's stratum, by column; -1 if it is not known."""
        return {
            name: self.schema.unpack(self.words, f"t{place}") - 1 for place, (name, _) in enumerate(self.schema.strata)
        }

    def _floor(self, name: str) -> FloatArray:
        return self.schema.unpack(self.words, name) / float(1 << FINEST)

    def _lower(self, names: list[str]) -> tuple[FloatArray, FloatArray]:
        """Return the lower corner of the cells in an attribute's probabilities, and what it leaves of 1."""
        lower = np.column_stack([self._floor(name) for name in names[:-1]])
        return lower, np.maximum(1.0 - lower.sum(axis=1), 0.0)

    def _offset(self, rest: FloatArray, size: int) -> FloatArray:
        """Return how far inside its cell a midpoint is: half a step, less where probabilities would pass 1."""
        return np.minimum(0.5 * self.step, rest / (size - 1))


def _common_schema(first: Schema, second: Schema) -> Schema:
    """Return the schema with the groups of both, or raise if they do not match."""
    if first == second:
        return first
    classes = _common_classes(first.classes, second.classes)
    names = ([name for name, _ in schema.observed] for schema in (first, second))
    if classes is None or (first.labelled, first.scored, next(names)) != (second.labelled, second.scored, next(names)):
        raise InputError(
            "These aggregates cannot be added: they have different labels, attributes or columns of probabilities"
            f" ({_described(first)}; {_described(second)})."
        )
    scored = {entry.attribute for entry in first.scored}
    observed = tuple(
        (name, groups if name in scored else _union(groups, others))
        for (name, groups), (_, others) in zip(first.observed, second.observed, strict=True)
    )
    return Schema(first.labelled, classes, first.scored, observed)


def _common_classes(first: _Classes, second: _Classes) -> _Classes | None:
    negatives = {labels[0] for labels in (first, second)} - {None}
    if first[1] != second[1] or len(negatives) > 1:
        return None
    return next(iter(negatives), None), first[1]


def _union(groups: tuple[Hashable, ...], others: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    return sort_groups(dict.fromkeys((*groups, *others)))


def _described(schema: Schema) -> str:
    attributes = [f"{entry.attribute!r} {list(entry.groups)!r}" for entry in schema.scored]
    return f"labels {schema.classes!r}, attributes {', '.join(attributes) or 'none'}"
