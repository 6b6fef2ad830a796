"""Aggregates as Parquet files: readable by any tool, and fully checked when read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from evenhand._version import __version__
from evenhand.arguments import check_path
from evenhand.engines.cells import CountedCells
from evenhand.engines.counter import COARSEST
from evenhand.engines.schema import BAD_LABEL, FINEST, FLAWED, NO_LABEL, Schema, Scored, Words
from evenhand.errors import AggregateFormatError, InputError
from evenhand.files import local_path, whole_or_nothing
from evenhand.inputs import FloatArray
from evenhand.rules.events import AttributeKey, Intersection, display_names

FORMAT = "evenhand-aggregate"
VERSION = 2
KEY = b"evenhand"
LARGEST_HEADER = 1_000_000
MOST_CELLS = 1 << 25
MOST_COLUMNS = 1000


def _columns(schema: Schema) -> dict[str, str]:
    """Return the file's column for each packed field: readable names, in the order of the fields."""
    names = {"flaw": "deviation_class", "label": "label", "s0": "p_y"}
    names |= {f"a{place}": f"group of {name}" for place, (name, _) in enumerate(schema.observed)}
    shown = display_names(entry.attribute for entry in schema.scored)
    for entry, inner in zip(schema.scored, schema.names, strict=True):
        groups = [(label, group) for label in ("negative", "positive") for group in entry.groups]
        spelt = [f"{label}, {group}" for label, group in groups] if entry.joint else list(map(str, entry.groups))
        names |= {name: f"{name}: p({shown[entry.attribute]}: {text})" for name, text in zip(inner, spelt, strict=True)}
    return {field: names[field] for field in schema.fields}


Parts = tuple[Schema, int, Words, FloatArray, Words]


def save(aggregate: CountedCells, path: str | os.PathLike[str]) -> None:
    """Write an aggregate; see :meth:`Aggregate.save`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_path(path)
    schema = aggregate.schema
    crossed = any(isinstance(entry.attribute, Intersection) for entry in schema.scored)
    header = {
        "format": FORMAT,
        "version": VERSION if crossed else 1,
        "evenhand": __version__,
        "level": aggregate.level,
        "score_unit": 2.0**-FINEST,
        **encode_schema(schema),
    }
    columns = {
        name: pa.array(schema.unpack(aggregate.words, field).astype(np.int32))
        for field, name in _columns(schema).items()
    }
    table = pa.table({**columns, "weight": pa.array(aggregate.weight), "rows": pa.array(aggregate.rows)})
    text = json.dumps(header, allow_nan=False, ensure_ascii=False).encode()
    with whole_or_nothing(path) as temporary:
        pq.write_table(table.replace_schema_metadata({KEY: text}), temporary, compression="zstd")


def encode_schema(schema: Schema) -> dict[str, Any]:
    """Return a schema as plain data."""
    return {
        "labelled": schema.labelled,
        "labels": [None if label is None else _encode(label) for label in schema.classes],
        "scored": [
            {"attribute": _encode_attribute(e.attribute), "groups": [_encode(g) for g in e.groups], "joint": e.joint}
            for e in schema.scored
        ],
        "observed": [{"attribute": n, "groups": [_encode(g) for g in groups]} for n, groups in schema.observed],
    }


def load(path: str | os.PathLike[str]) -> Parts:
    """Read the parts of an aggregate, or raise :class:`AggregateFormatError`; see :meth:`Aggregate.load`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_path(path)
    place = local_path(path)
    try:
        with pq.ParquetFile(place, pre_buffer=False) as file:
            header = read_header(
                (file.schema_arrow.metadata or {}).get(KEY), FORMAT, VERSION, LARGEST_HEADER, "an aggregate"
            )
            schema, level = decode_schema(header), _level(header)
            names = [*_columns(schema).values(), "weight", "rows"]
            kinds = [*[pa.int32()] * (len(names) - 2), pa.float64(), pa.int64()]
            if file.metadata.num_rows > MOST_CELLS or file.schema_arrow.names != names:
                raise AggregateFormatError("its columns do not match its header, or are too long")
            if file.schema_arrow.types != kinds:
                raise AggregateFormatError("its columns do not have the right types")
            table = file.read()
        table.validate(full=True)
        return _build(schema, level, table)
    except FileNotFoundError:
        raise InputError(f"{place}: there is no such file.") from None
    except (pa.ArrowException, AggregateFormatError, InputError, OSError, ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise AggregateFormatError(f"{place} is not an aggregate that can be read: {reason}.") from None


def read_header(text: bytes | None, kind: str, newest: int, largest: int, what: str) -> Mapping[str, Any]:
    """Return the header of a file of a format, up to a version and a size, or raise AggregateFormatError.

    ``what`` names the format in messages.
    """
    if text is None or len(text) > largest:
        raise AggregateFormatError("it has no header of an aggregate")
    try:
        header = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise AggregateFormatError("its header is not JSON") from None
    if not isinstance(header, Mapping) or header.get("format") != kind:
        raise AggregateFormatError(f"its header is not that of {what}")
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise AggregateFormatError(f"its version is {version!r}, not a whole number")
    if version > newest:
        raise AggregateFormatError(
            f"it has version {version}, but this evenhand reads versions up to {newest}: update evenhand"
        )
    return header


def _level(header: Mapping[str, Any]) -> int:
    level = header["level"]
    if type(level) is not int or not COARSEST <= level <= FINEST:
        raise AggregateFormatError(f"its level is {level!r}")
    return level


def decode_schema(header: Mapping[str, Any]) -> Schema:
    """Return the schema that :func:`encode_schema` wrote, or raise :class:`AggregateFormatError`."""
    labelled, labels = header["labelled"], header["labels"]
    if type(labelled) is not bool or not isinstance(labels, list) or len(labels) != 2 or labels[1] is None:
        raise AggregateFormatError("its labels cannot be read")
    classes = (None if labels[0] is None else _decode(labels[0]), _decode(labels[1]))
    if classes[0] == classes[1]:
        raise AggregateFormatError("its two labels are the same")
    scored = tuple(
        Scored(_attribute(e["attribute"]), _groups(e["groups"], 2), e["joint"] is True) for e in header["scored"]
    )
    observed = tuple((_text(e["attribute"]), _groups(e["groups"], 1)) for e in header["observed"])
    for names in ([entry.attribute for entry in scored], [name for name, _ in observed]):
        if len(set(names)) != len(names):
            raise AggregateFormatError("it names an attribute twice")
    if sum(entry.size for entry in scored) + len(observed) > MOST_COLUMNS:
        raise AggregateFormatError("it has too many columns")
    known = {entry.attribute: entry.groups for entry in scored}
    if any(known.get(name, groups) != groups for name, groups in observed):
        raise AggregateFormatError("it is inconsistent about the groups of an attribute")
    return Schema(labelled, classes, scored, observed)


def _build(schema: Schema, level: int, table: Any) -> Parts:
    n = table.num_rows
    words = np.zeros((n, schema.width), dtype=np.int64)
    limits = {"flaw": FLAWED - 1, "label": BAD_LABEL - 1}
    limits |= {f"a{place}": len(groups) for place, (_, groups) in enumerate(schema.observed)}
    for field, name in _columns(schema).items():
        column = table.column(name)
        if column.null_count:
            raise AggregateFormatError(f"the column {name!r} has empty values")
        values = column.to_numpy().astype(np.int64)
        if n and not (values.min() >= 0 and values.max() <= limits.get(field, 1 << FINEST)):
            raise AggregateFormatError(f"the column {name!r} has a value out of its range")
        word, shift, _ = schema.fields[field]
        words[:, word] |= values << shift
    weight, rows = (table.column(name).to_numpy() for name in ("weight", "rows"))
    if table.column("weight").null_count or table.column("rows").null_count:
        raise AggregateFormatError("a weight or a count is empty")
    if not (np.isfinite(weight) & (weight >= 0.0)).all() or not ((rows >= 1) & (rows < 1 << 53)).all():
        raise AggregateFormatError("a weight or a count is invalid")
    if ((schema.unpack(words, "label") == NO_LABEL) == schema.labelled).any():
        raise AggregateFormatError("its labels do not match its header")
    if (words & ~schema.masks(level)).any():
        raise AggregateFormatError("its scores are finer than its level")
    if len(np.unique(words, axis=0)) != n:
        raise AggregateFormatError("a cell occurs twice")
    return schema, level, words, weight, rows


def _groups(values: Any, fewest: int) -> tuple[Hashable, ...]:
    if not isinstance(values, list) or len(values) < fewest:
        raise AggregateFormatError("an attribute's groups cannot be read")
    groups = tuple(_decode(value) for value in values)
    if len(set(groups)) != len(groups):
        raise AggregateFormatError("a group is named twice")
    return groups


def _encode(value: Hashable) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return {"tuple": [_encode(part) for part in value]}
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InputError(f"The group or label {value!r} cannot be written: use text, numbers or booleans.")


def _decode(value: Any) -> Hashable:
    if isinstance(value, Mapping) and set(value) == {"tuple"} and isinstance(value["tuple"], list):
        return tuple(_decode(part) for part in value["tuple"])
    if isinstance(value, str | bool | int | float):
        return value
    raise AggregateFormatError(f"{value!r} cannot be a group or a label")


def _encode_attribute(attribute: AttributeKey) -> Any:
    return {"crossed": list(attribute.attributes)} if isinstance(attribute, Intersection) else attribute


def _attribute(value: Any) -> AttributeKey:
    """Return an attribute: text, or since version 2 an object with the parts of a crossed one."""
    if isinstance(value, Mapping) and set(value) == {"crossed"} and isinstance(value["crossed"], list):
        return Intersection(*map(_text, value["crossed"]))
    return _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise AggregateFormatError(f"{value!r} cannot be the name of an attribute")
    return value
