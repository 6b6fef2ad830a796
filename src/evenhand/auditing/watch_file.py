"""Watches as JSON: readable, and fully checked when read; reading executes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from evenhand._version import __version__
from evenhand.auditing.findings import Estimate
from evenhand.auditing.watch_counts import BLOCKS, MOST_WAITING, Cell, Identifier, IntArray
from evenhand.auditing.watch_findings import Moment
from evenhand.errors import InputError, WatchFormatError
from evenhand.rules import criteria
from evenhand.rules.events import AttributeKey, Intersection, Stratified

if TYPE_CHECKING:
    from evenhand.auditing.watch import Watch

W = TypeVar("W", bound="Watch")
FORMAT = "evenhand-watch"
# Version 2 has strata. A watch without them is written as version 1, which earlier releases read.
VERSION = 2
LARGEST = 500_000_000
MOST_ROWS = 2**53
_STATES = ("holds", "violated", "undecided")


def write(watch: Watch) -> str:
    """Return a watch as JSON text."""
    counts = watch._counts
    data = {
        "format": FORMAT,
        "version": VERSION if watch.criterion.strata else 1,
        "evenhand": __version__,
        "criterion": watch.criterion.to_dict(),
        "tolerance": watch.tolerance,
        "confidence": watch.confidence,
        "window": watch.window,
        "groups": _groups_to(watch.groups),
        **({"strata": _groups_to(watch.strata)} if watch.criterion.strata else {}),
        "pos_label": _encode(watch.pos_label),
        "missing": watch.missing,
        "rows": counts.rows,
        "state": watch.state,
        "changes": [list(change) for change in watch.changes],
        "attributes": None if watch._attributes is None else [_attribute_to(key) for key in watch._attributes],
        "cells": [[_attribute_to(attribute), _encode(group)] for attribute, group in counts.cells],
        "counted": "for each cell: rows, positive decisions; the same for negative labels; for positive labels",
        "total": _counts_to(counts.total),
        "blocks": [_counts_to(block) for block in counts.blocks],
        "block": {"number": counts.number, "rows": counts.filled},
        "began": [[*key, *value] for key, value in watch._began.items()],
        "updates": watch._updates,
        "stride": watch._stride,
        "moments": [[m.rows, [[_estimate_to(one) for one in pair] for pair in m.gaps]] for m in watch._moments],
        "waiting": [[name, *places] for name, places in counts.waiting.items()],
    }
    body = ",\n".join(
        f'  "{key}": {json.dumps(value, allow_nan=False, ensure_ascii=False)}' for key, value in data.items()
    )
    return f"{{\n{body}\n}}\n"


def text_of(path: Path) -> str:
    """Return the text of a file, or raise."""
    try:
        if path.stat().st_size > LARGEST:
            raise WatchFormatError(f"{path} is larger than a watch can be.")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise WatchFormatError(f"{path} cannot be read: {error}.") from None


def read(text: str, make: type[W]) -> W:
    """Return the watch that a text describes."""
    if not isinstance(text, str):
        raise WatchFormatError(f"A watch is read from a text; got {type(text).__name__}.")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WatchFormatError(f"This is not JSON, or was cut off: {error}.") from None
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise WatchFormatError(f'This JSON is not a watch: "format": "{FORMAT}" is missing.')
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise WatchFormatError(f"The watch's version is {version!r}; it must be a whole number.")
    if version > VERSION:
        raise WatchFormatError(
            f"The watch has version {version}, but this evenhand reads versions up to {VERSION}: update it."
        )
    try:
        return _build(data, make)
    except WatchFormatError:
        raise
    except (InputError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise WatchFormatError(f"The watch cannot be read: {reason}") from None


def _build(data: Mapping[str, Any], make: type[W]) -> W:
    watch = make(
        criteria.from_dict(data["criterion"]),
        data["tolerance"],
        data["confidence"],
        window=data["window"],
        groups=_groups_from(data["groups"]),
        strata=_groups_from(data.get("strata")) or None,
        pos_label=_decode(data["pos_label"]),
        missing=data["missing"],
    )
    counts = watch._counts
    places = 0
    if data["attributes"] is not None:
        keys = tuple(_attribute_from(key) for key in _list(data["attributes"]))
        if not keys or None in keys or len(set(keys)) != len(keys):
            raise WatchFormatError("The watch's attributes cannot be read.")
        plain: dict[AttributeKey, tuple[Hashable, ...]] = {
            key: () for key in keys if key is not None and not isinstance(key, Stratified)
        }
        if {key for key in keys if isinstance(key, Stratified)} != set(watch.criterion.stratified(plain)):
            raise WatchFormatError("The watch's attributes within strata are not those of its criterion.")
        watch._begin(keys)  # type: ignore[arg-type]
        places = len(keys) + counts.everyone
    cells = [_cell(entry) for entry in _list(data["cells"])]
    known = {*(watch._attributes or ()), *([None] if counts.everyone else [])}
    if len(set(cells)) != len(cells) or not {attribute for attribute, _ in cells} <= known:
        raise WatchFormatError("The watch's cells do not match its attributes, or one is repeated.")
    if missing := [cell for cell in counts.cells if cell not in cells]:
        raise WatchFormatError(f"The watch has no counts of {missing[0]!r}.")
    counts.cells = {cell: place for place, cell in enumerate(cells)}
    counts.total = _counts_from(data["total"], len(cells))
    counts.blocks = [_counts_from(block, len(cells)) for block in _list(data["blocks"])]
    if not 1 <= len(counts.blocks) <= BLOCKS + 1 or (sum(counts.blocks) > counts.total).any():
        raise WatchFormatError("The watch's blocks do not match its rows.")
    counts.number, counts.filled = _whole(data["block"]["number"]), _whole(data["block"]["rows"])
    counts.rows = _whole(data["rows"])
    if counts.number < len(counts.blocks) or (counts.total[:, 0, 0] > counts.rows).any():
        raise WatchFormatError("The watch is inconsistent about its number of rows.")
    counts.waiting = _waiting(data["waiting"], places, len(cells))
    _restore_past(watch, data)
    return watch


def _restore_past(watch: Watch, data: Mapping[str, Any]) -> None:
    """Read the recorded earlier states of a watch."""
    changes = tuple((_whole(rows), _state(state)) for rows, state in _list(data["changes"]))
    if not changes or changes[-1][1] != data["state"]:
        raise WatchFormatError("The watch is inconsistent about its state.")
    watch.changes = changes
    watch._began = {
        (_text(name), None if attribute is None else _text(attribute)): (_state(state), _whole(since))
        for name, attribute, state, since in _list(data["began"])
    }
    watch._updates, watch._stride = _whole(data["updates"]), max(_whole(data["stride"]), 1)
    for rows, gaps in _list(data["moments"]):
        pairs = [(_estimate_from(start), _estimate_from(window)) for start, window in _list(gaps)]
        if any(start is None for start, _ in pairs):
            raise WatchFormatError("The watch has an earlier state without a gap.")
        watch._moments.append(Moment(_whole(rows), tuple(pairs)))  # type: ignore[arg-type]


def _waiting(entries: Any, places: int, cells: int) -> dict[Identifier, tuple[int, ...]]:
    found: dict[Identifier, tuple[int, ...]] = {}
    for name, decided, *held in _list(entries):
        if not isinstance(name, str | int) or isinstance(name, bool) or len(held) != places:
            raise WatchFormatError(f"The watch has a waiting row that cannot be read: {name!r}.")
        if type(decided) is not int or decided not in (0, 1):
            raise WatchFormatError(f"The decision of the waiting row {name!r} is {decided!r}.")
        if not all(type(place) is int and -1 <= place < cells for place in held):
            raise WatchFormatError(f"The waiting row {name!r} is in a cell that does not exist.")
        found[name] = (decided, *held)
    if len(found) > MOST_WAITING:
        raise WatchFormatError(f"The watch has {len(found):,} waiting rows; {MOST_WAITING:,} can wait.")
    return found


def _counts_to(counts: IntArray) -> list[list[int]]:
    found: list[list[int]] = counts.reshape(len(counts), 6).tolist()
    return found


def _counts_from(rows: Any, cells: int) -> IntArray:
    for row in _list(rows):
        if not isinstance(row, list) or len(row) != 6 or not all(type(n) is int and 0 <= n < MOST_ROWS for n in row):
            raise WatchFormatError(f"The watch has {row!r} where six counts are needed.")
    if len(rows) != cells:
        raise WatchFormatError(f"The watch has counts of {len(rows)} cells; it names {cells}.")
    found = np.array(rows, dtype=np.int64).reshape(cells, 3, 2)
    if (found[:, :, 1] > found[:, :, 0]).any():
        raise WatchFormatError("The watch has more positive decisions than rows.")
    return found


def _groups_to(groups: Any) -> Any:
    if isinstance(groups, dict):
        return {name: [_encode(group) for group in members] for name, members in groups.items()}
    return None if groups is None else [_encode(group) for group in groups]


def _groups_from(groups: Any) -> Any:
    if isinstance(groups, Mapping):
        return {name: [_decode(group) for group in _list(members)] for name, members in groups.items()}
    return None if groups is None else [_decode(group) for group in _list(groups)]


def _estimate_to(estimate: Estimate | None) -> Any:
    return None if estimate is None else [estimate.value, estimate.lower, estimate.upper]


def _estimate_from(entry: Any) -> Estimate | None:
    if entry is None:
        return None
    value, lower, upper = _list(entry)
    return Estimate(None if value is None else _number(value), _number(lower), _number(upper))


def _encode(value: Hashable) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return {"tuple": [_encode(part) for part in value]}
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InputError(f"The group or label {value!r} cannot be written: use text, numbers or booleans.")


def _decode(value: Any) -> Hashable:
    if isinstance(value, Mapping) and set(value) == {"tuple"}:
        return tuple(_decode(part) for part in _list(value["tuple"]))
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise WatchFormatError(f"{value!r} cannot be a group or a label.")


def _attribute_to(attribute: AttributeKey | None) -> Any:
    if isinstance(attribute, Stratified):
        return {"attribute": _attribute_to(attribute.attribute), "within": attribute.within, "thin": attribute.thin}
    return {"crossed": list(attribute.attributes)} if isinstance(attribute, Intersection) else attribute


def _attribute_from(value: Any) -> AttributeKey | None:
    if isinstance(value, Mapping) and set(value) == {"crossed"}:
        return Intersection(*map(_text, _list(value["crossed"])))
    if isinstance(value, Mapping) and set(value) == {"attribute", "within", "thin"}:
        base, thin = _attribute_from(value["attribute"]), value["thin"]
        if base is None or isinstance(base, Stratified):
            raise WatchFormatError(f"The watch has {value!r} where an attribute within strata is needed.")
        return Stratified(base, _text(value["within"]), None if thin is None else _whole(thin))
    return None if value is None else _text(value)


def _cell(entry: Any) -> Cell:
    attribute, group = _list(entry)
    key, value = _attribute_from(attribute), _decode(group)
    if isinstance(key, Stratified) and not (isinstance(value, tuple) and len(value) == 2):
        raise WatchFormatError(f"The watch has {value!r} where a stratum and a group are needed.")
    return key, value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise WatchFormatError(f"The watch has {type(value).__name__} where a list is needed.")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WatchFormatError(f"The watch has {value!r} where a name is needed.")
    return value


def _state(value: Any) -> Any:
    if value not in _STATES:
        raise WatchFormatError(f"The watch's state is {value!r}; it must be one of {', '.join(_STATES)}.")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MOST_ROWS:
        raise WatchFormatError(f"The watch has {value!r} where a whole number is needed.")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WatchFormatError(f"The watch has {value!r} where a number is needed.")
    return float(value)
