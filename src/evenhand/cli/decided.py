"""Decides and writes a table batch by batch, with the arrow engine and a writer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from evenhand import tables
from evenhand.cli import output as out
from evenhand.engines.deciding import Decider
from evenhand.text import short_name

AHEAD = 3


def write_decided(
    decider: Decider, file: Path, output: Path, *, needed: list[str], numbers: list[str], verbatim: bool
) -> None:
    """Decide a table batch by batch, and write it; the file is complete or absent.

    ``numbers`` are numeric columns; with ``verbatim``, the others of a CSV file keep their text.
    """
    tables.open_table(file).check_columns(needed)
    columns = None if decider.keep else needed
    source = tables.open_table(file, columns=columns, numbers=numbers, verbatim=verbatim)
    source.check_columns(source.names if decider.keep else needed)
    schema = decider.schema(source.schema)
    rows = 0
    with tables.write_batches(output, schema) as writer, out.progress("deciding", source.rows) as advance:
        for batch in decided_ahead(decider, source.batches(), schema):
            writer.write(pa.Table.from_batches([batch]))
            rows += batch.num_rows
            advance(batch.num_rows)
    added = [name for name in schema.names if name not in source.schema.names]
    out.say(f"Decided {rows:,} rows. They are in {output}, with the columns {', '.join(map(short_name, added))}.")


def decided_ahead(decider: Decider, batches: Iterator[Any], schema: Any) -> Iterator[Any]:
    """Decide batches in another thread while earlier ones are written; only a few wait at any time."""
    start = 0
    waiting: list[Future[Any]] = []
    pool = ThreadPoolExecutor(1)
    try:
        for batch in batches:
            waiting.append(pool.submit(decider.decide, batch, schema, start))
            start += batch.num_rows
            if len(waiting) >= AHEAD:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    finally:
        pool.shutdown(cancel_futures=True)
