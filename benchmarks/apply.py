"""``evenhand apply`` against merely copying the same Parquet file with pyarrow: the ratio of their speeds."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import evenhand as eh

COPY = """
import sys
import pyarrow.parquet as pq
source = pq.ParquetFile(sys.argv[1], pre_buffer=False)
with pq.ParquetWriter(sys.argv[2], source.schema_arrow) as writer:
    for batch in source.iter_batches(batch_size=131_072):
        writer.write_batch(batch)
"""


def make_rows(path: Path, rows: int) -> None:
    """Write a table of scores, a million rows at a time."""
    generator = np.random.default_rng(0)
    names = ("p0f", "p0m", "p1f", "p1m")
    schema = pa.schema([("id", pa.int64()), ("p", pa.float64()), *((name, pa.float64()) for name in names)])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 1_000_000):
            size = min(1_000_000, rows - start)
            joint = generator.dirichlet([2.0, 2.0, 1.0, 2.0], size)
            columns = {"id": np.arange(start, start + size), "p": joint[:, 2:].sum(axis=1)}
            writer.write_table(pa.table({**columns, **{name: joint[:, k] for k, name in enumerate(names)}}))


def make_rule(path: Path) -> None:
    """Write a rule for equalized odds with the columns it needs."""
    rule = eh.Rule.from_criterion(
        "equalized_odds",
        groups={"sex": ("F", "M")},
        priors={"sex": [[0.3, 0.3], [0.15, 0.25]]},
        z=[0.02, -0.01],
    )
    data = json.loads(rule.to_json())
    cells = {"kind": "joint", "columns": ["p0f", "p0m", "p1f", "p1m"]}
    data["learned_from"] = {"columns": {"score": "p", "groups": {"sex": cells}}}
    path.write_text(json.dumps(data))


def timed(command: list[str]) -> tuple[float, float]:
    """Return the seconds that a command takes, and the most memory that it had, in megabytes."""
    start = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    rows = parser.parse_known_args(argv)[0].rows
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_rows(place / "new.parquet", rows)
        make_rule(place / "rule.json")
        copied, _ = timed([sys.executable, "-c", COPY, str(place / "new.parquet"), str(place / "copy.parquet")])
        decide = [
            sys.executable,
            "-m",
            "evenhand",
            "apply",
            str(place / "rule.json"),
            str(place / "new.parquet"),
            "-o",
        ]
        decided, memory = timed([*decide, str(place / "out.parquet")])
    print(f"apply, {rows:,} rows")
    print(f"  copy with pyarrow   {copied:7.2f} s  {rows / copied / 1e6:6.2f} million rows a second")
    print(f"  evenhand apply      {decided:7.2f} s  {rows / decided / 1e6:6.2f} million rows a second")
    print(f"  speed of apply over speed of copying: {copied / decided:.2f} (promised: at least 0.33)")
    print(f"  largest memory: {memory:.0f} MB (promised: below 1000)")


if __name__ == "__main__":
    main()
