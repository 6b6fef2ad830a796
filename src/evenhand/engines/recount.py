"""Counts the decisions of some rules on the rows themselves, in one pass for any number of rules.

Rules learnt for slightly different bounds lie close together, so nearly every row gets the same decision from all of
them, and most cells lie entirely on one side of all their boundaries. Their decisions are known from the aggregate.
Only the rows of the other cells are counted again: those with a small fair margin by the first rule.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evenhand.engines.cells import CountedCells
from evenhand.engines.counter import Counter
from evenhand.engines.schema import POSITIVE, Frame, Schema, Words
from evenhand.inputs import Attribute, FloatArray
from evenhand.rules.events import AttributeKey
from evenhand.rules.evidence import EvidenceName
from evenhand.rules.rule import Rule

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Decisions:
    """The tally of each rule's decisions, by cell; by label and groups if expectations are evidence.

    ``shift`` is how far the first rule's fair margin of a row can be from that of its cell's midpoint.
    """

    aggregate: CountedCells
    weighted: bool
    rules: tuple[Rule, ...]
    evidence: EvidenceName
    shift: FloatArray

    @property
    def schema(self) -> Schema:
        """The fields of the rows' words."""
        return self.aggregate.schema

    @property
    def width(self) -> int:
        """The number of words: those of the cell, and the decisions."""
        return self.schema.width + 1

    @property
    def payload(self) -> tuple[str, ...]:
        """The scores whose sums are needed: all, if the model's expectations are evidence."""
        if self.evidence == "labels":
            return ()
        return ("s0", *(name for names in self.schema.names for name in names))

    @cached_property
    def fields(self) -> list[str]:
        """The fields that distinguish rows, besides the decisions."""
        known = [name for name in self.schema.fields if name != "flaw"]
        return known if self.evidence == "labels" else [n for n in known if n not in self.schema.quantised]

    def masks(self, level: int) -> Words:
        """Return the bits that are kept of each word: scores are quantised as in the aggregate."""
        return np.append(self.schema.masks(self.aggregate.level), -1)

    @cached_property
    def spread(self) -> float:
        """How far the other rules' fair margins can be from the first one's, on any row."""
        joint = {entry.attribute: entry.joint for entry in self.schema.scored}
        forms = [rule.linear_form(joint=joint) for rule in self.rules]
        first, largest = forms[0], 0.0
        for form in forms[1:]:
            parts = [np.abs(form.columns[name] - first.columns[name]).max() for name in form.columns]
            largest = max(largest, abs(form.intercept - first.intercept) + 1.01 * float(sum(parts)))
        return largest + ROUNDING

    @cached_property
    def margins(self) -> FloatArray:
        """The first rule's fair margin at the midpoint of each cell."""
        return self.rules[0].decision_function(self.aggregate.p_y, self.aggregate.p_group)

    @cached_property
    def open(self) -> NDArray[np.bool_]:
        """Whether some rule's boundary may pass through a cell."""
        if self.evidence != "labels":
            return np.ones(self.aggregate.n_cells, dtype=bool)
        found: NDArray[np.bool_] = np.abs(self.margins) <= self.shift + self.spread
        return found

    @cached_property
    def reach(self) -> float:
        """An upper bound on the size of the first rule's fair margin in the rows of open cells."""
        return 2.0 * float(self.shift[self.open].max(initial=0.0)) + self.spread + ROUNDING

    def where(self, dialect: str) -> str | None:
        """Return the SQL condition of the rows that may be in an open cell."""
        if self.evidence != "labels":
            return None
        return f"abs({self._margin(self.rules[0], dialect)}) <= {self.reach!r}"

    def sql(self, dialect: str) -> list[str]:
        """Return the words as SQL expressions."""
        margins = [self._margin(rule, dialect) for rule in self.rules]
        bits = " + ".join(f"CASE WHEN {margin} > 0 THEN {1 << k} ELSE 0 END" for k, margin in enumerate(margins))
        return [*self.schema.packed(self.fields, dialect), f"CAST({bits} AS BIGINT)"]

    def _margin(self, rule: Rule, dialect: str) -> str:
        columns = {
            entry.attribute: dict(zip(places(entry.groups, self.schema.classes, entry.joint), names, strict=True))
            for entry, names in zip(self.schema.scored, self.schema.names, strict=True)
            if entry.attribute in rule.attributes
        }
        return rule.to_sql(p_y="s0", p_group=columns, dialect=dialect, output="margin")

    def keep(self, frame: Frame) -> Frame:
        """Return the rows that may be in an open cell."""
        if self.evidence != "labels":
            return frame
        rule = self.rules[0]
        near = np.abs(rule.decision_function(*probabilities(self.schema, rule, frame))) <= self.reach
        return {name: column[near] for name, column in frame.items()}

    def words(self, frame: Frame) -> Words:
        """Return the words of some rows."""
        words = np.zeros((len(frame["s0"]), self.width), dtype=np.int64)
        words[:, :-1] = self.schema.pack(frame, self.fields)
        first, *others = self.rules
        p_y, p_group = probabilities(self.schema, first, frame)
        margins = first.decision_function(p_y, p_group)
        words[:, -1] = np.where(margins > 0.0, self._all, 0)
        # Away from the first rule's boundary all rules agree.
        near = np.flatnonzero(np.abs(margins) <= self.spread)
        if others and near.size:
            p_y, p_group = p_y[near], {name: array[near] for name, array in p_group.items()}
            bits = (margins[near] > 0.0).astype(np.int64)
            for k, rule in enumerate(others, start=1):
                bits |= (rule.decision_function(p_y, p_group) > 0.0).astype(np.int64) << k
            words[near, -1] = bits
        return words

    @property
    def _all(self) -> int:
        return (1 << len(self.rules)) - 1

    def recount(self, words: Words, sums: FloatArray, rows: Words) -> Recount:
        """Return the counts, and the decisions of the closed cells, as rows with weights."""
        weight = sums[:, :1] if self.weighted else rows[:, None].astype(np.float64)
        totals = np.hstack([weight, sums[:, 1:] if self.weighted else sums])
        if self.evidence == "labels":
            mine = _among(words[:, :-1], self._without_flaws(self.aggregate.words[self.open]))
            words, totals, rows = words[mine], totals[mine], rows[mine]
            closed = ~self.open
            side = np.where(self.margins[closed] > 0.0, self._all, 0)
            words = np.vstack([words, np.column_stack([self.aggregate.words[closed], side])])
            totals = np.vstack([totals, self.aggregate.weight[closed, None]])
            rows = np.concatenate([rows, self.aggregate.rows[closed]])
        counter = Counter(_Atoms(self.schema), totals.shape[1])
        counter.add(words, totals, rows)
        words, totals, rows = counter.cells()
        decisions = (words[:, -1:] >> np.arange(len(self.rules))) & 1
        return Recount(self.schema, words, decisions.astype(bool), totals[:, 0], totals[:, 1:], rows)

    def _without_flaws(self, words: Words) -> Words:
        words = words.copy()
        word, shift, bits = self.schema.fields["flaw"]
        words[:, word] &= ~(((1 << bits) - 1) << shift)
        return words


@dataclass(frozen=True)
class _Atoms:
    """The tally of labels, groups and decisions alone."""

    schema: Schema

    @property
    def width(self) -> int:
        return self.schema.width + 1

    def masks(self, level: int) -> Words:
        kept = np.zeros(self.schema.width, dtype=np.int64)
        for name, (word, shift, bits) in self.schema.fields.items():
            if name != "flaw" and name not in self.schema.quantised:
                kept[word] |= ((1 << bits) - 1) << shift
        return np.append(kept, -1)


def _among(words: Words, others: Words) -> NDArray[np.bool_]:
    """Return a mask of the rows of words that are among some others."""
    kind = [("", np.int64)] * words.shape[1]
    first, second = (np.ascontiguousarray(array).view(kind).reshape(-1) for array in (words, others))
    return np.isin(first, second)


def places(groups: tuple[Hashable, ...], classes: tuple[Hashable, Hashable], joint: bool) -> list[Hashable]:
    """Return the keys of an attribute's columns: its groups, or the pairs (label, group)."""
    return [(label, group) for label in classes for group in groups] if joint else list(groups)


def probabilities(schema: Schema, rule: Rule, frame: Frame) -> tuple[FloatArray, dict[AttributeKey, FloatArray]]:
    """Return p_y and p_group of some rows, in the form for a rule."""
    found = {}
    for entry, names in zip(schema.scored, schema.names, strict=True):
        if entry.attribute in rule.attributes:
            array = np.column_stack([frame[name] for name in names])
            found[entry.attribute] = array.reshape(len(array), 2, -1) if entry.joint else array
    return frame["s0"], found


@dataclass(frozen=True, eq=False)
class Recount:
    """The counts: for each combination of label, groups and decisions its weight and sums of scores."""

    schema: Schema
    words: Words
    decisions: NDArray[np.bool_]
    weight: FloatArray
    totals: FloatArray
    rows: Words

    @property
    def positive(self) -> NDArray[np.bool_]:
        """Whether the label is the positive one."""
        found: NDArray[np.bool_] = self.schema.unpack(self.words, "label") == POSITIVE
        return found

    @property
    def attributes(self) -> dict[AttributeKey, Attribute]:
        """The groups, by attribute."""
        return {
            name: Attribute(name, groups, (self.schema.unpack(self.words, f"a{place}") - 1).astype(np.intp))
            for place, (name, groups) in enumerate(self.schema.observed)
        }

    def means(self) -> tuple[FloatArray, dict[AttributeKey, FloatArray]]:
        """Return the mean scores: expectations need only the sums over rows with the same decisions."""
        means = self.totals / np.maximum(self.weight, 1e-300)[:, None]
        found, start = {}, 1
        for entry in self.schema.scored:
            array = means[:, start : start + entry.size]
            found[entry.attribute] = array.reshape(len(array), 2, -1) if entry.joint else array
            start += entry.size
        return means[:, 0], found
