"""Second-round aggregates as Parquet files: readable by any tool, and fully checked when read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from evenhand._version import __version__
from evenhand.arguments import check_path
from evenhand.engines.aggregate_file import KEY, LARGEST_HEADER, decode_schema, encode_schema, read_header
from evenhand.engines.cells import CountedCells
from evenhand.engines.distances import BINS as LINE_BINS
from evenhand.engines.line import BINS, PLACES_AROUND_A_RULE
from evenhand.engines.near_lines import lines_of_site
from evenhand.engines.schema import FINEST, Schema, Words
from evenhand.engines.site import Site, check_near
from evenhand.errors import AggregateFormatError, EvenhandError, InputError
from evenhand.files import local_path, whole_or_nothing
from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule

FORMAT = "evenhand-aggregate-near"
# Version 2 came with rules that have two contrasts, version 3 with places for delicate rows that are surely decided.
VERSION = 3
MOST_BINS = 1 << 27
NAMES = ["place", "code", "weight"]
LARGEST_RULE = 10 * LARGEST_HEADER
# The rule, the atoms, whether rows have weights, and the places, codes and weights of the bins.
Parts = tuple[Rule, CountedCells, bool, Words, Words, FloatArray]


def save(parts: Parts, path: str | os.PathLike[str]) -> None:
    """Write an aggregate; see :meth:`NearAggregate.save`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_path(path)
    rule, atoms, weighted, places, codes, weight = parts
    header = {
        "format": FORMAT,
        "version": VERSION,
        "evenhand": __version__,
        **encode_schema(atoms.schema),
        **_fineness(Site(atoms.schema, rule)),
        "weighted": weighted,
        "rule": json.loads(rule.to_json()),
        "atoms": {
            "words": atoms.words.tolist(),
            "weight": atoms.weight.tolist(),
            "rows": atoms.rows.tolist(),
        },
    }
    table = pa.table(
        {
            "place": pa.array(places.astype(np.int32 if len(rule.terms) == 1 else np.int64)),
            "code": pa.array(codes.astype(np.int32)),
            "weight": pa.array(weight),
        }
    )
    text = json.dumps(header, allow_nan=False, ensure_ascii=False).encode()
    with whole_or_nothing(path) as temporary:
        pq.write_table(table.replace_schema_metadata({KEY: text}), temporary, compression="zstd")


def load(path: str | os.PathLike[str]) -> Parts:
    """Read an aggregate, or raise :class:`AggregateFormatError`; see :meth:`NearAggregate.load`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_path(path)
    place = local_path(path)
    try:
        with pq.ParquetFile(place, pre_buffer=False) as file:
            text = (file.schema_arrow.metadata or {}).get(KEY)
            header = read_header(text, FORMAT, VERSION, LARGEST_RULE, "counts around a rule")
            schema = decode_schema(header)
            rule = Rule.from_json(json.dumps(header["rule"]))
            check_near(rule)
            site = Site(schema, rule)
            for name, number in _fineness(site).items():
                if header.get(name) != number:
                    raise AggregateFormatError(f"it has {header.get(name)!r} {name}, but this evenhand has {number}")
            kinds = [pa.int32() if site.dimension == 1 else pa.int64(), pa.int32(), pa.float64()]
            if file.schema_arrow.names != NAMES or file.schema_arrow.types != kinds:
                raise AggregateFormatError("its columns are not place, code and weight")
            most = PLACES_AROUND_A_RULE * site.n_codes if site.dimension == 1 else MOST_BINS
            if file.metadata.num_rows > most:
                raise AggregateFormatError("it has more bins than there are")
            table = file.read()
        table.validate(full=True)
        return _build(header, schema, rule, table)
    except FileNotFoundError:
        raise InputError(f"{place}: there is no such file.") from None
    except (pa.ArrowException, EvenhandError, OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise AggregateFormatError(f"{place} is not an aggregate that can be read: {reason}.") from None


def _fineness(site: Site) -> dict[str, Any]:
    """Return how fine the bins around a rule are."""
    if site.dimension == 1:
        return {"bins": BINS}
    tally = lines_of_site(site, False)
    return {"bins": LINE_BINS, "directions": tally.grid.directions, "finer": list(tally.finer)}


def _build(header: Mapping[str, Any], schema: Schema, rule: Rule, table: Any) -> Parts:
    weighted, given = header["weighted"], header["atoms"]
    if type(weighted) is not bool:
        raise AggregateFormatError("it does not say whether rows have weights")
    words = np.array(given["words"], dtype=np.int64).reshape(-1, schema.width)
    weight, rows = np.array(given["weight"], dtype=np.float64), np.array(given["rows"], dtype=np.int64)
    if not len(words) == len(weight) == len(rows) or len(np.unique(words, axis=0)) != len(words):
        raise AggregateFormatError("its labels and groups are inconsistent")
    if not (np.isfinite(weight) & (weight >= 0.0)).all() or not ((rows >= 1) & (rows < 1 << 53)).all():
        raise AggregateFormatError("a weight or a count is invalid")
    _check_words(schema, words)
    if any(table.column(name).null_count for name in NAMES):
        raise AggregateFormatError("a bin has empty values")
    places, codes, counted = (table.column(name).to_numpy() for name in NAMES)
    site, places = Site(schema, rule), places.astype(np.int64)
    if site.dimension == 1:
        inside = bool(((places >= 0) & (places < PLACES_AROUND_A_RULE)).all())
    else:
        inside = lines_of_site(site, weighted).valid(places)
    inside = inside and bool(((codes >= 0) & (codes < site.n_codes)).all())
    if not inside or not (np.isfinite(counted) & (counted > 0.0)).all():
        raise AggregateFormatError("a bin or its weight is out of its range")
    keys = places * site.n_codes + codes
    if len(keys) and not (np.diff(keys) > 0).all():
        raise AggregateFormatError("its bins are not in order")
    codes, atoms = codes.astype(np.int64), CountedCells(schema, FINEST, words, weight, rows)
    fields = {name: schema.unpack(words, name) for name in site.fields_of(codes)}
    own = np.bincount(site.codes_of({"s0": weight, **fields}), weight, site.n_codes)
    if (np.abs(np.bincount(codes, counted, site.n_codes) - own) > 1e-9 * max(float(weight.sum()), 1.0)).any():
        raise AggregateFormatError("its bins do not have the weight of its labels and groups")
    return rule, atoms, weighted, places, codes, counted


def _check_words(schema: Schema, words: Any) -> None:
    """Raise :class:`AggregateFormatError` if a label, group or decision is out of its range."""
    used = np.zeros_like(words)
    limits = {"flaw": 2, "label": 2, **{f"a{k}": len(groups) for k, (_, groups) in enumerate(schema.observed)}}
    for name, (word, shift, _) in schema.fields.items():
        values = schema.unpack(words, name)
        allowed = (
            values <= limits[name] if name in limits else (values == 0) | ((name == "s0") & (values == 1 << FINEST))
        )
        if not allowed.all():
            raise AggregateFormatError("a label or a group is out of its range")
        used[:, word] |= values << shift
    if (used != words).any():
        raise AggregateFormatError("its labels and groups cannot be read")
