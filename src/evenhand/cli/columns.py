"""Which columns hold what: labels, groups and probabilities of a table, as a user names them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand import tables
from evenhand.engines.remembered import recall, remember
from evenhand.errors import InputError
from evenhand.inputs import (
    FloatArray,
    check_group_count,
    cross_attributes,
    factorize,
    group_texts,
    read_labels,
    read_sensitive,
)
from evenhand.rules.criteria import AttributeKey, Criterion, Groups, display_names, write_out

if TYPE_CHECKING:
    from evenhand.rules.rule import Rule

Cell = tuple[AttributeKey, int | None, int]
REST_SLACK = 1e-3


@dataclass(frozen=True)
class GroupColumns:
    """The columns of one attribute's probabilities: p(A | x) group by group, or p(Y, A | x) label by label.

    At most one column is None: it is what the others leave of 1.
    """

    joint: bool
    columns: tuple[str | None, ...]

    def stack(self, read: Mapping[str, FloatArray], attribute: AttributeKey) -> FloatArray:
        """Return the probabilities of shape (n, G) or (n, 2, G)."""
        n = len(next(iter(read.values())))
        array = np.empty((n, len(self.columns)))
        for j, name in enumerate(self.columns):
            if name is not None:
                array[:, j] = read[name]
        if None in self.columns:
            rest = self.columns.index(None)
            array[:, rest] = 1.0 - np.delete(array, rest, axis=1).sum(axis=1)
            low = array[:, rest] < -REST_SLACK
            if low.any():
                where = int(np.argmax(low))
                raise InputError(
                    f"Row {where}: the probabilities of {attribute!r} sum to {1.0 - array[where, rest]:.6g}."
                )
            np.clip(array[:, rest], 0.0, 1.0, out=array[:, rest])
        return array.reshape(n, 2, -1) if self.joint else array

    def named(self) -> list[str]:
        """Return the names of the columns that are read."""
        return [name for name in self.columns if name is not None]


@dataclass(frozen=True, eq=False)
class Scored:
    """The rows of a table, as the library takes them."""

    y: NDArray[Any] | None
    sensitive: dict[str, NDArray[Any]]
    groups: dict[AttributeKey, tuple[Hashable, ...]]
    p_y: FloatArray
    p_group: dict[AttributeKey, FloatArray]
    weight: FloatArray | None
    pos_label: Hashable
    columns: dict[str, Any]


def positive_label(y: NDArray[Any], given: str | None, column: str) -> Hashable:
    """Return the positive label: the one named, or 1 or True where none is."""
    values, _ = factorize(y, f"the column {column!r}")
    if not values:
        raise InputError(f"The column {column!r} has no label in any row.")
    if given is not None:
        return tables.value_from_text(given, values, f"the column {column!r}")
    for value in values:
        if value == 1 or value == "1":
            return value
    raise InputError(
        f"The column {column!r} has the values {', '.join(map(repr, values[:6]))}:"
        " say which is positive, with --pos-label."
    )


def read_truth(
    path: Path,
    label: str | None,
    sensitive: Sequence[str],
    others: Sequence[str | None],
    pos_label: str | None,
) -> tuple[Any, NDArray[Any] | None, Hashable, dict[str, NDArray[Any]]]:
    """Return a table of the named columns, the labels, the positive one, and the columns of groups."""
    if not sensitive:
        raise InputError("Say which column holds the groups, with --sensitive.")
    wanted = [name for name in (label, *sensitive, *others) if name is not None]
    table = tables.read_table(path, wanted)
    y = None if label is None else tables.values_of(table, label)
    positive: Hashable = 1
    if y is not None and label is not None:
        positive = positive_label(y, pos_label, label)
    return table, y, positive, {name: tables.values_of(table, name) for name in sensitive}


def read_scored(
    path: Path,
    *,
    label: str,
    score: str,
    sensitive: Sequence[str],
    group_score: Sequence[str],
    joint_score: Sequence[str],
    weight: str | None = None,
    pos_label: str | None = None,
    criterion: Criterion | None = None,
) -> Scored:
    """Read the labels, groups and probabilities of a table.

    A criterion says of which attributes probabilities are needed, crossed ones included; without one they are
    needed of all.
    """
    table, y, positive, columns = read_truth(path, label, sensitive, [score, weight], pos_label)
    assert y is not None
    groups: dict[AttributeKey, tuple[Hashable, ...]] = {
        name: factorize(values, f"the column {name!r}")[0] for name, values in columns.items()
    }
    for name, members in groups.items():
        check_group_count(len(members), len(y), f"The column {name!r}")
    classes = read_labels(y, positive)[1]
    source = tables.open_table(path)
    speaks = groups if criterion is None else _spoken_of(criterion, groups, columns, len(y))
    found = match_columns(group_score, joint_score, speaks, classes, source.names)
    needed = [name for entry in found.values() for name in entry.named()]
    probabilities = tables.read_table(path, needed) if needed else table
    read = {name: tables.numbers_of(probabilities, name) for name in needed}
    return Scored(
        y=y,
        sensitive=columns,
        groups=groups,
        p_y=tables.numbers_of(table, score),
        p_group={name: entry.stack(read, name) for name, entry in found.items()},
        weight=None if weight is None else tables.numbers_of(table, weight),
        pos_label=positive,
        columns=remember(score, {name: (entry.joint, entry.columns) for name, entry in found.items()}),
    )


def _spoken_of(criterion: Criterion, groups: Groups, columns: Mapping[str, NDArray[Any]], n: int) -> Groups:
    """Return the groups of the attributes that a criterion needs probabilities of."""
    members = dict(groups)
    if criterion.intersections:
        attributes = read_sensitive(columns, n, missing="ignore")
        for crossed in criterion.intersections:
            members[crossed] = cross_attributes(attributes, crossed).groups
    events = write_out(criterion, members).events
    return {name: members[name] for name in dict.fromkeys(e.attribute for e in events if e.attribute is not None)}


def match_columns(
    group_score: Sequence[str],
    joint_score: Sequence[str],
    groups: Groups,
    classes: tuple[Hashable, Hashable],
    names: Iterable[str],
) -> dict[AttributeKey, GroupColumns]:
    """Return the columns of each attribute's probabilities, from ``GROUP=COLUMN`` and ``LABEL,GROUP=COLUMN``.

    A group that two attributes share is written ``ATTRIBUTE:GROUP``. Signs such as "=" and "," inside a name
    do no harm: what is meant is looked up among the groups, labels and columns that there are.
    """
    listed = tuple(names)
    given: dict[AttributeKey, dict[bool, dict[int, str]]] = {name: {False: {}, True: {}} for name in groups}
    for option, texts, joint in (("--group-score", group_score, False), ("--joint-score", joint_score, True)):
        spellings = _spellings(groups, classes if joint else None)
        for text in texts:
            (attribute, label, group), column = _match(text, option, spellings, listed)
            size = len(groups[attribute])
            place = group + size * label if label is not None else group
            if place in given[attribute][joint]:
                raise InputError(
                    f"{option} {text!r}: this one was given before, as {given[attribute][joint][place]!r}."
                )
            given[attribute][joint][place] = column
    return {name: _complete(name, given[name], groups[name], classes) for name in groups}


def _spellings(groups: Groups, classes: tuple[Hashable, Hashable] | None) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    shown = display_names(groups)
    for attribute, members in groups.items():
        for index, name in enumerate(group_texts(members)):
            cells = [(None, name)] if classes is None else [(k, f"{classes[k]},{name}") for k in (0, 1)]
            for label, text in cells:
                for spelling in (text, f"{shown[attribute]}:{text}"):
                    found.setdefault(spelling, []).append((attribute, label, index))
    return found


def _match(text: str, option: str, spellings: Mapping[str, list[Cell]], names: Sequence[str]) -> tuple[Cell, str]:
    splits = [(text[:i], text[i + 1 :]) for i, sign in enumerate(text) if sign == "="]
    shape = "LABEL,GROUP=COLUMN" if option == "--joint-score" else "GROUP=COLUMN"
    if not splits:
        raise InputError(f"{option} {text!r}: write {shape}.")
    known = [(spellings[left], right) for left, right in splits if left in spellings]
    if not known:
        raise InputError(f"{option} {text!r}: write {shape}. {tables.nearest(splits[0][0], spellings)}")
    matched = [(cells, right) for cells, right in known if right in names]
    if not matched:
        raise InputError(f"{option} {text!r}: there is no column {known[0][1]!r}. {tables.nearest(known[0][1], names)}")
    cells, column = matched[0]
    if len(matched) > 1 or len(set(cells)) > 1:
        raise InputError(f"{option} {text!r} can be read in two ways: write ATTRIBUTE:{shape}.")
    if list(names).count(column) > 1:
        raise InputError(f"{option} {text!r}: there are several columns called {column!r}.")
    return cells[0], column


def _complete(
    attribute: AttributeKey,
    given: Mapping[bool, Mapping[int, str]],
    members: Sequence[Hashable],
    classes: Sequence[Hashable],
) -> GroupColumns:
    if given[False] and given[True]:
        raise InputError(f"{attribute!r} has both --group-score and --joint-score: give one of the two.")
    joint = bool(given[True])
    cells = given[joint]
    size = len(members) * (2 if joint else 1)
    absent = [place for place in range(size) if place not in cells]
    if len(absent) > 1 or not cells:
        option, n = "--joint-score" if joint else "--group-score", len(members)
        names = group_texts(members)
        wanted = [
            f"{option} '{f'{classes[place // n]},' if joint else ''}{names[place % n]}=COLUMN'" for place in absent
        ]
        hint = (
            ""
            if cells
            else " For equalized odds and its like give --joint-score 'LABEL,GROUP=COLUMN' for each of both."
        )
        raise InputError(
            f"The probabilities of {attribute!r} are not complete: add {', '.join(wanted[:8])}"
            f" (one of them may be left out).{hint}"
        )
    return GroupColumns(joint, tuple(cells.get(place) for place in range(size)))


def remembered_columns(rule: Rule) -> tuple[str | None, dict[AttributeKey, GroupColumns]]:
    """Return the column of the score and those of the groups that ``fit`` wrote into a rule."""
    score, entries = recall(rule.learned_from, rule.groups)
    found = {}
    for name, entry in entries.items():
        listed = entry.get("columns") if isinstance(entry, Mapping) else None
        if not isinstance(listed, list) or not all(column is None or isinstance(column, str) for column in listed):
            raise InputError("The rule's columns cannot be read: give --score, and --group-score or --joint-score.")
        found[name] = GroupColumns(entry.get("kind") == "joint", tuple(listed))
    return score, found
