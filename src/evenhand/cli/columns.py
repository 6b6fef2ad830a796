"""The columns of a table by their roles: labels, groups and probabilities, as a user names them."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand import tables
from evenhand.cli.score_columns import ScoreColumns
from evenhand.engines.deciding import GroupColumns, NamedColumns
from evenhand.engines.recount import places
from evenhand.engines.remembered import remember
from evenhand.engines.source import columns_of_rule
from evenhand.errors import InputError
from evenhand.inputs import (
    factorize,
    group_texts,
    labels_of,
    read_probabilities,
    read_sensitive,
    read_weights,
)
from evenhand.rows import Rows, needed_attributes, with_group_probabilities
from evenhand.rules.criteria import Criterion
from evenhand.rules.events import AttributeKey, Groups, Stratified, display_names
from evenhand.rules.strata import read_strata
from evenhand.rules.system import write_out

if TYPE_CHECKING:
    from evenhand.rules.mixture import Mixture
    from evenhand.rules.rule import Rule

Cell = tuple[AttributeKey, int | None, int]


def read_scores(
    path: Path, columns: ScoreColumns, criterion: Criterion, groups: Groups | None = None
) -> tuple[Rows, dict[str, Any]]:
    """Return the rows of a table, and plain data on the columns they come from.

    The criterion determines which attributes need probabilities. Groups that are known from another table fix the
    order, and may have no row here.
    """
    if columns.score is None:
        raise InputError("Name the column with the probability of the positive label with --score.")
    table, truth = read_truth(path, columns, [columns.score, *criterion.strata], groups)
    known: dict[AttributeKey, tuple[Hashable, ...]] = {
        name: members for name, members in (groups or {}).items() if isinstance(name, Stratified)
    }
    strata = {name: tables.values_of(table, name) for name in criterion.strata}
    rows = dataclasses.replace(
        truth,
        p_y=read_probabilities(tables.numbers_of(table, columns.score), f"the column {columns.score!r}"),
        strata=read_strata(strata or None, criterion.strata, len(truth)),
        groups={**truth.groups, **known},
    ).crossing(criterion.intersections)
    needed = needed_attributes(criterion, rows.groups)
    names = tables.open_table(path).names
    found = match_columns(columns.group_score, columns.joint_score, needed, rows.classes, names)
    check_joint(criterion, found, needed, rows.classes)
    listed = [name for entry in found.values() for name in entry.named()]
    probabilities = tables.read_table(path, listed) if listed else table
    read = {name: tables.numbers_of(probabilities, name) for name in listed}
    stacked = {name: entry.stack(read, name) for name, entry in found.items()}
    used = remember(columns.score, {name: (entry.joint, entry.columns) for name, entry in found.items()})
    return with_group_probabilities(rows, stacked, criterion), used


def check_joint(
    criterion: Criterion,
    found: Mapping[AttributeKey, GroupColumns],
    groups: Groups,
    classes: tuple[Hashable, Hashable],
) -> None:
    """Raise if a criterion needs joint probabilities of label and group, but only those of groups are given."""
    if criterion.strata:
        return  # The events are only known with the strata; learning checks them.
    labelled = {event.attribute for event in write_out(criterion, groups).events if event.label is not None}
    for name, entry in found.items():
        if name in labelled and not entry.joint:
            cells = [f"{label},{group}" for label in classes for group in group_texts(groups[name])]
            wanted = " ".join(f"--joint-score '{cell}=COLUMN'" for cell in cells[:4])
            raise InputError(
                f"This criterion compares rates among rows of one label: for {str(name)!r} it needs the probabilities"
                f" of label and group together. Instead of --group-score, pass {wanted}"
                f"{' and so on' if len(cells) > 4 else ''}; one of them may be left out."
            )


def positive_label(values: Sequence[Hashable], given: str | None, column: str) -> Hashable:
    """Return the positive label of a column: the named one, or 1 or True by default."""
    if not values:
        raise InputError(f"The column {column!r} has no label in any row.")
    if given is not None:
        return tables.value_from_text(given, values, f"the column {column!r}")
    for value in values:
        if value == 1 or value == "1":
            return value
    raise InputError(
        f"The column {column!r} has the values {', '.join(map(repr, values[:6]))}:"
        " name the positive label with --pos-label."
    )


def read_truth(
    path: Path, columns: ScoreColumns, others: Sequence[str], groups: Groups | None = None
) -> tuple[Any, Rows]:
    """Return a table of the named columns, and its rows without probabilities: labels, groups and weights."""
    if not columns.sensitive:
        raise InputError("Name the column of groups with --sensitive.")
    named = (columns.label, *columns.sensitive, columns.weight, *others)
    table = tables.read_table(path, [name for name in named if name is not None])
    values, codes = factorize(tables.values_of(table, columns.label), f"the column {columns.label!r}")
    positive, classes = labels_of(values, codes, positive_label(values, columns.pos_label, columns.label))
    sensitive = {name: tables.values_of(table, name) for name in columns.sensitive}
    attributes = read_sensitive(sensitive, table.num_rows, missing=columns.missing, groups=groups)
    weight = None if columns.weight is None else tables.numbers_of(table, columns.weight)
    rows = Rows(
        positive=positive,
        classes=classes,
        attributes=attributes,
        groups={name: attribute.groups for name, attribute in attributes.items()},
        sample_weight=None if weight is None else read_weights(weight, table.num_rows),
    )
    return table, rows


def match_columns(
    group_score: Sequence[str],
    joint_score: Sequence[str],
    groups: Groups,
    classes: tuple[Hashable, Hashable],
    names: Iterable[str],
) -> dict[AttributeKey, GroupColumns]:
    """Return the columns of each attribute's probabilities, from ``GROUP=COLUMN`` and ``LABEL,GROUP=COLUMN``.

    A group that two attributes share is written ``ATTRIBUTE:GROUP``. Characters such as "=" and "," inside a name are
    allowed: the text is matched with the existing groups, labels and columns.
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
                    f"{option} {text!r}: this one was already given as {given[attribute][joint][place]!r}."
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
        raise InputError(f"{attribute!r} has both --group-score and --joint-score: pass only one of them.")
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
            else " For equalized odds and similar criteria, pass --joint-score 'LABEL,GROUP=COLUMN' for each of both."
        )
        raise InputError(
            f"The probabilities of {attribute!r} are not complete: add {', '.join(wanted[:8])}"
            f" (one of them may be left out).{hint}"
        )
    return GroupColumns(joint, tuple(cells.get(place) for place in range(size)))


def cells_of(
    found: Mapping[AttributeKey, GroupColumns], groups: Groups, classes: tuple[Hashable, Hashable]
) -> dict[AttributeKey, dict[Hashable, str | None]]:
    """Return the columns in the form for engines: by group, or by pair of label and group."""
    return {
        name: dict(zip(places(groups[name], classes, entry.joint), entry.columns, strict=True))
        for name, entry in found.items()
    }


def which_columns(
    rule: Rule | Mixture,
    names: Sequence[str],
    score: str | None,
    group_score: Sequence[str],
    joint_score: Sequence[str],
) -> NamedColumns:
    """Return the columns that a rule is applied to: the given ones, else those that it was learnt on."""
    given = None
    if group_score or joint_score:
        needed = {name: rule.groups[name] for name in rule.attributes}
        given = cells_of(match_columns(group_score, joint_score, needed, rule.classes, names), needed, rule.classes)
    return NamedColumns.of(rule, *columns_of_rule(rule, score, given))
