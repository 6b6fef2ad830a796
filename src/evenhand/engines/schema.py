"""The roles of columns, and how a row's quantised scores, label and groups are packed into integers.

Every engine turns a row into the same words and counts how many rows share each. A score p becomes floor(4096 p), in 13
bits, so that p = 1 has its own value. Dropping the low bits of these fields is exactly the quantisation at a coarser
level: levels are nested, and no row has to be read again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_text, shown
from evenhand.engines.remembered import remember
from evenhand.errors import InputError
from evenhand.inputs import DEFAULT_ATTRIBUTE, as_list, sort_groups
from evenhand.rules.events import AttributeKey, Intersection
from evenhand.rules.scores import SUM_SLACK, by_attribute

FINEST = 12
SCORE_BITS = FINEST + 1
WORD_BITS = 62
FLOAT_BITS = 53
NEGATIVE, POSITIVE, NO_LABEL, BAD_LABEL = range(4)
# How far a row's probabilities are from summing to 1, by class; the last class is for invalid probabilities.
DEVIATIONS = (1e-9, 1e-6, SUM_SLACK)
FLAWED = len(DEVIATIONS)
REST_SLACK = 1e-3

Words = NDArray[np.int64]
Frame = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Scored:
    """An attribute with probabilities: p(A | x) for each group, or p(Y, A | x) for each label and group."""

    attribute: AttributeKey
    groups: tuple[Hashable, ...]
    joint: bool

    @property
    def size(self) -> int:
        """The number of probabilities in a row."""
        return len(self.groups) * (2 if self.joint else 1)


@dataclass(frozen=True)
class Schema:
    """The columns of an aggregate.

    Parameters
    ----------
    labelled : bool
        Whether the rows have labels.
    classes : (negative label, positive label)
        A negative label that did not occur is ``None``.
    scored : tuple of Scored
        The attributes with probabilities.
    observed : tuple of (attribute, groups)
        The attributes whose groups are known in the rows.
    strata : tuple of (column, strata)
        The columns within which groups are compared.
    """

    labelled: bool
    classes: tuple[Hashable, Hashable]
    scored: tuple[Scored, ...]
    observed: tuple[tuple[str, tuple[Hashable, ...]], ...]
    strata: tuple[tuple[str, tuple[Hashable, ...]], ...] = ()

    @cached_property
    def names(self) -> list[list[str]]:
        """The inner names of each attribute's probabilities, s1, s2, ...; s0 is p(Y = positive | x)."""
        found, start = [], 1
        for entry in self.scored:
            found.append([f"s{start + j}" for j in range(entry.size)])
            start += entry.size
        return found

    @cached_property
    def coded(self) -> dict[str, tuple[Hashable, ...]]:
        """The inner names of columns of values, with these: groups a0, a1, ... and strata t0, t1, ....

        The code of a value is its place, from 1 on; 0 is a missing value, and the number after the last an unknown one.
        """
        groups = {f"a{place}": members for place, (_, members) in enumerate(self.observed)}
        return groups | {f"t{place}": members for place, (_, members) in enumerate(self.strata)}

    @cached_property
    def quantised(self) -> list[str]:
        """The inner names of the packed scores: an attribute's last is 1 minus the sum of the others."""
        return ["s0", *(name for names in self.names for name in names[:-1])]

    @cached_property
    def fields(self) -> dict[str, tuple[int, int, int]]:
        """For each packed field the word it is in, its shift and its bits."""
        sizes = {"flaw": 2, "label": 2}
        sizes |= {name: (len(values) + 1).bit_length() for name, values in self.coded.items()}
        sizes |= dict.fromkeys(self.quantised, SCORE_BITS)
        found, word, used = {}, 0, 0
        for name, bits in sizes.items():
            if used + bits > WORD_BITS:
                word, used = word + 1, 0
            found[name] = (word, used, bits)
            used += bits
        return found

    @property
    def width(self) -> int:
        """The number of words of a row."""
        return 1 + max(word for word, _, _ in self.fields.values())

    def masks(self, level: int) -> Words:
        """Return the bits of each word that are kept when scores are quantised in steps of 2^-level."""
        masks = np.full(self.width, -1, dtype=np.int64)
        for name in self.quantised:
            word, shift, _ = self.fields[name]
            masks[word] &= ~(((1 << (FINEST - level)) - 1) << shift)
        return masks

    def packed(self, fields: Iterable[str], dialect: str) -> list[str]:
        """Return the words with some fields in them, as SQL expressions over the inner names."""
        parts: list[list[str]] = [[] for _ in range(self.width)]
        scores: list[list[str]] = [[] for _ in range(self.width)]
        for name in fields:
            word, shift, _ = self.fields[name]
            if name in self.quantised:
                scores[word].append(name)
            else:
                parts[word].append(f"CAST({name} AS BIGINT)" + (f" * {1 << shift}" if shift else ""))
        # Converting a float is slow in DuckDB, and four scores fit in one exactly; Spark's floor is already an integer.
        at_once = FLOAT_BITS // SCORE_BITS if dialect == "duckdb" else 1
        for part, names in zip(parts, scores, strict=True):
            for start in range(0, len(names), at_once):
                some = names[start : start + at_once]
                shifts = [self.fields[name][1] for name in some]
                floors = [f"floor({name} * {float(1 << FINEST):.1f})" for name in some]
                text = " + ".join(
                    floor if shift == shifts[0] else f"{floor} * CAST({1 << (shift - shifts[0])} AS DOUBLE)"
                    for floor, shift in zip(floors, shifts, strict=True)
                )
                part.append(f"CAST({text} AS BIGINT)" + (f" * {1 << shifts[0]}" if shifts[0] else ""))
        return [" + ".join(part) or "CAST(0 AS BIGINT)" for part in parts]

    def pack(self, frame: Frame, fields: Iterable[str]) -> Words:
        """Return the words of some rows, with some fields in them."""
        words = np.zeros((len(frame["s0"]), self.width), dtype=np.int64)
        for name in fields:
            word, shift, _ = self.fields[name]
            values = np.floor(frame[name] * float(1 << FINEST)) if name in self.quantised else frame[name]
            words[:, word] += values.astype(np.int64) << shift
        return words

    def unpack(self, words: Words, field: str) -> NDArray[np.int64]:
        """Return a field of each row."""
        word, shift, bits = self.fields[field]
        return (words[:, word] >> shift) & ((1 << bits) - 1)


class Tally(Protocol):
    """An object that assigns words to rows, equally in SQL and in NumPy."""

    @property
    def width(self) -> int:
        """The number of words."""
        ...

    @property
    def payload(self) -> tuple[str, ...]:
        """The scores whose weighted sums are needed besides the counts."""
        ...

    def masks(self, level: int) -> Words:
        """Return the bits of each word that are kept at a level."""
        ...

    def where(self, dialect: str) -> str | None:
        """Return the SQL condition of the selected rows; None for all."""
        ...

    def sql(self, dialect: str) -> list[str]:
        """Return the words as SQL expressions over the inner names."""
        ...

    def keep(self, frame: Frame) -> Frame:
        """Return the selected rows."""
        ...

    def words(self, frame: Frame) -> Words:
        """Return the words of some rows, of shape (n, width)."""
        ...


@dataclass(frozen=True)
class Cells:
    """The tally of quantised scores, labels and groups, for an aggregate."""

    schema: Schema
    weighted: bool
    payload: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The number of words."""
        return self.schema.width

    def masks(self, level: int) -> Words:
        """Return the bits of each word that are kept at a level."""
        return self.schema.masks(level)

    def where(self, dialect: str) -> None:
        """Return None: all rows are counted."""

    def keep(self, frame: Frame) -> Frame:
        """Return all rows."""
        return frame

    def sql(self, dialect: str) -> list[str]:
        """Return the words as SQL expressions; a row without valid probabilities has only a flaw."""
        return self._guarded(self.schema.packed((name for name in self.schema.fields if name != "flaw"), dialect))

    def _guarded(self, packed: list[str]) -> list[str]:
        """Return words with the flaw of each row; if it is the last one, with nothing else."""
        totals = self._totals
        scores = [f"{name} >= 0" for names in self.schema.names for name in names]
        usual = ["s0 >= 0 AND s0 <= 1", *scores, *(f"{total} <= {DEVIATIONS[0]!r}" for total in totals)]
        usual += ["w >= 0 AND w < 1e300"] if self.weighted else []
        classes = "".join(
            f" WHEN {' AND '.join(f'{total} <= {limit!r}' for total in totals)} THEN {flaw}"
            for flaw, limit in enumerate(DEVIATIONS[:-1])
        )
        # Nearly all rows sum closely to 1, and then have no probability above 1: they pass the fast test.
        flaws = [f" + CASE{classes} ELSE {FLAWED - 1} END" if totals else "", *[""] * (self.width - 1)]
        return [
            f"CASE WHEN {' AND '.join(usual)} THEN {text} WHEN {self.sound} THEN {text}{flaw}"
            f" ELSE {0 if word else FLAWED} END"
            for word, (text, flaw) in enumerate(zip(packed, flaws, strict=True))
        ]

    @property
    def _totals(self) -> list[str]:
        return [f"abs({' + '.join(names)} - 1)" for names in self.schema.names]

    @property
    def sound(self) -> str:
        """The SQL condition that a row's scores are probabilities and its weight a weight."""
        names = ["s0", *(name for group in self.schema.names for name in group)]
        tests = [f"{name} >= 0 AND {name} <= 1" for name in names]
        tests += [f"{total} <= {SUM_SLACK!r}" for total in self._totals]
        tests += ["w >= 0 AND w < 1e300"] if self.weighted else []
        return " AND ".join(tests)

    def words(self, frame: Frame) -> Words:
        """Return the words of some rows."""
        n = len(frame["s0"])
        sound = np.ones(n, dtype=bool)
        flaw = np.zeros(n, dtype=np.int64)
        for name in ["s0", *(name for group in self.schema.names for name in group)]:
            sound &= (frame[name] >= 0.0) & (frame[name] <= 1.0)
        for names in self.schema.names:
            with np.errstate(invalid="ignore"):  # infinities, which are not sound
                deviation = np.abs(sum(frame[name] for name in names) - 1.0)
            flaw = np.maximum(flaw, np.searchsorted(DEVIATIONS, deviation))
        if self.weighted:
            sound &= (frame["w"] >= 0.0) & (frame["w"] < 1e300)
        flaw[~sound] = FLAWED
        if (flaw == FLAWED).any():
            scores = set(self.schema.quantised)
            frame = {k: np.where(flaw < FLAWED, v, 0.0) if k in scores else v for k, v in frame.items()}
        words = self.schema.pack(frame, (name for name in self.schema.fields if name != "flaw"))
        words[flaw == FLAWED] = 0
        words[:, 0] += flaw
        return words


@dataclass(frozen=True)
class Columns:
    """The columns of a table with the labels, groups, probabilities and weights.

    ``p_group`` has, for each attribute, a column for each group, or for the negative label with each group and then
    the positive one. At most one of them is None: it is 1 minus the sum of the others.
    """

    schema: Schema
    y: str | None
    sensitive: tuple[str, ...]
    p_y: str
    p_group: tuple[tuple[str | None, ...], ...]
    weight: str | None

    @property
    def coded(self) -> dict[str, str]:
        """The column of each of the schema's inner names of groups and strata."""
        strata = (name for name, _ in self.schema.strata)
        return dict(zip(self.schema.coded, (*self.sensitive, *strata), strict=True))

    @property
    def needed(self) -> list[str]:
        """The names of the columns, each once."""
        scores = [self.p_y, *(name for cells in self.p_group for name in cells)]
        names = [self.y, *self.coded.values(), *scores, self.weight]
        return list(dict.fromkeys(name for name in names if name is not None))

    def remember(self) -> dict[str, Any]:
        """Return plain data for a rule's ``learned_from``, so that it can be applied without naming columns."""
        given = zip(self.schema.scored, self.p_group, strict=True)
        return remember(self.p_y, {entry.attribute: (entry.joint, cells) for entry, cells in given})


def read_attributes(sensitive_features: Any) -> dict[str, str]:
    """Return the column of each attribute, from a name, a sequence of names or a dict."""
    if sensitive_features is None:
        return {}
    if isinstance(sensitive_features, str):
        return {sensitive_features: sensitive_features}
    if isinstance(sensitive_features, Mapping):
        return {
            check_text(name, "An attribute of sensitive_features"): _column(column, "sensitive_features")
            for name, column in sensitive_features.items()
        }
    if isinstance(sensitive_features, Iterable) and not isinstance(sensitive_features, bytes):
        names = as_list(sensitive_features, "sensitive_features")
        return {_column(name, "sensitive_features"): name for name in names}
    raise InputError(
        "sensitive_features must be a column's name, several names, or a dict from attributes to names; got"
        f" {shown(sensitive_features)}."
    )


def read_group_columns(
    p_group: Any, attributes: Sequence[AttributeKey], pos_label: Hashable, crossed: Iterable[Intersection] = ()
) -> tuple[tuple[Scored, ...], tuple[tuple[str | None, ...], ...], tuple[Hashable, Hashable] | None]:
    """Return the attributes with probabilities, their columns, and the two labels if the keys contain them.

    ``crossed`` are the possible crossed attributes: a text that spells one of them stands for it.
    """
    known = [*attributes, *crossed]
    if p_group is None:
        p_group = {}
    if not isinstance(p_group, Mapping):
        raise InputError(
            "p_group must be a dict from groups, or pairs (label, group), to the names of columns; got"
            f" {shown(p_group)}."
        )
    if any(isinstance(cells, Mapping) for cells in p_group.values()):
        odd = next((cells for cells in p_group.values() if not isinstance(cells, Mapping)), None)
        if odd is not None:
            raise InputError(f"p_group must have a dict of columns for each attribute; one entry is {shown(odd)}.")
        given = {name: dict(cells) for name, cells in by_attribute(p_group, known, "p_group").items()}
    elif not p_group:
        given = {}
    elif len(attributes) > 1:
        raise InputError(f"p_group must have a dict for each of the attributes {list(attributes)!r}.")
    else:
        given = {next(iter(attributes), DEFAULT_ATTRIBUTE): dict(p_group)}
    scored, columns = [], []
    classes: tuple[Hashable, Hashable] | None = None
    for name, cells in given.items():
        pairs = isinstance(name, Intersection)
        joint = all(isinstance(k, tuple) and len(k) == 2 and (not pairs or isinstance(k[1], tuple)) for k in cells)
        if joint:
            classes = _two_labels(cells, pos_label, name)
        groups = sort_groups(dict.fromkeys(key[1] if joint else key for key in cells))
        places = [(label, group) for label in classes or () for group in groups] if joint else groups
        found = tuple(None if cells.get(place) is None else _column(cells[place], "p_group") for place in places)
        if len(groups) < 2 or found.count(None) > 1:
            raise InputError(
                f"p_group of {name!r} must have a column for each of {list(places)!r} (one may be None: it is 1 minus"
                f" the sum of the others); it has {list(cells)!r}."
            )
        scored.append(Scored(name, groups, joint))
        columns.append(found)
    return tuple(scored), tuple(columns), classes


def _two_labels(cells: Mapping[Any, Any], pos_label: Hashable, name: AttributeKey) -> tuple[Hashable, Hashable]:
    labels = list(dict.fromkeys(key[0] for key in cells))
    if len(labels) != 2 or pos_label not in labels:
        raise InputError(
            f"p_group of {name!r} must have the pairs (label, group) of both labels, one of them {pos_label!r};"
            f" it has the labels {labels!r}. If the pairs are groups of a crossed attribute, its key must be the"
            " evenhand.Intersection."
        )
    positive = labels.index(pos_label)
    return labels[1 - positive], labels[positive]


def _column(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise InputError(f"{what} must name columns; {shown(name)} is not a name.")
    return check_text(name, what)
