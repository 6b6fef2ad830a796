"""Learning and applying in DuckDB and Spark, against merely reading the same rows with the same engine.

DuckDB: learning from a Parquet file against ``SELECT sum(each column)``, with the largest memory: demographic parity
(K = 1) and equalized odds (K = 2) on the rows themselves, and equalized odds in cells. For each the passes, the rows
fetched, the loss against the optimum if that was proven, and what the rule itself states. Spark ``local[2]``:
learning against a job that reads the same columns and only counts, applying against one that only copies. Each engine
runs in a separate process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import evenhand as eh
from evenhand.engines import duckdb as engine

JOINT = {(0, 0): "p0f", (0, 1): "p0m", (1, 0): "p1f", (1, 1): "p1m"}
NAMES: dict[str, Any] = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": JOINT}
OPTIONS: dict[str, Any] = {"criterion": "equalized_odds", "tolerance": 0.02, **NAMES}
KINDS: dict[str, dict[str, Any]] = {
    "K = 1, exact": {**OPTIONS, "criterion": "demographic_parity"},
    "K = 2, exact": OPTIONS,
    "K = 2, cells": {**OPTIONS, "search": "smoothed", "max_in_memory": 0},
}
COLUMNS = ("id", "p", *JOINT.values(), "y", "sex")
DRAW = """
    SELECT i AS id, (c + d) / t AS p, a / t AS p0f, b / t AS p0m, c / t AS p1f, d / t AS p1m,
           CAST(u * t > a + b AS TINYINT) AS y,
           CAST((u * t > a AND u * t <= a + b) OR u * t > a + b + c AS TINYINT) AS sex
    FROM (SELECT *, a + b + c + d AS t FROM (
        SELECT i, -2 * ln(1 - random()) AS a, -2 * ln(1 - random()) AS b, -ln(1 - random()) AS c,
               -2 * ln(1 - random()) AS d, random() AS u FROM range({rows}) AS numbers(i)))
"""


def make_rows(path: Path, rows: int) -> None:
    """Write a table of calibrated scores, with labels and groups drawn from them."""
    with duckdb.connect() as connection:
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SELECT setseed(0.5)")
        connection.execute(f"COPY ({DRAW.format(rows=rows)}) TO '{path}' (FORMAT parquet)")


def seconds(action: Callable[[], Any], repeats: int) -> float:
    """Return the shortest time of an action, because other load only adds to it."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def run_duckdb(path: Path, repeats: int) -> dict[str, Any]:
    """Time DuckDB; this process does nothing else."""
    connection = duckdb.connect()
    total = f"SELECT {', '.join(f'sum({name})' for name in COLUMNS)} FROM '{path}'"
    small = path.with_name("small.parquet")
    make_rows(small, 50_000)
    warnings.simplefilter("ignore")
    for options in KINDS.values():
        engine.learn_rule(
            str(small), **{**options, "max_in_memory": min(options.get("max_in_memory", 280_000), 280_000)}
        )
    rules: dict[str, eh.Rule] = {}

    def learn(kind: str) -> None:
        rules[kind] = engine.learn_rule(str(path), memory_limit="3GB", **KINDS[kind])

    actions: dict[str, Callable[[], Any]] = {
        "sum": lambda: connection.sql(total).fetchall(),
        "count": lambda: engine.aggregate(str(path), memory_limit="3GB", **NAMES),
        **{kind: partial(learn, kind) for kind in KINDS},
    }
    times, cpu = dict.fromkeys(actions, np.inf), dict.fromkeys(actions, np.inf)
    for _ in range(repeats):
        for name, action in actions.items():
            before = time.process_time()
            times[name] = min(times[name], seconds(action, 1))
            cpu[name] = min(cpu[name], time.process_time() - before)
    rule = rules["K = 2, exact"]
    text = rule.to_sql(p_y="p", p_group=JOINT, dialect="duckdb")
    decided = f"SELECT sum({text}) FROM '{small}'"
    arrays = connection.sql(f"SELECT p, {', '.join(JOINT.values())} FROM '{small}'").fetchnumpy()
    p, joint = np.array(arrays["p"]), np.column_stack([arrays[name] for name in JOINT.values()]).reshape(-1, 2, 2)
    return {
        **{name: float(value) for name, value in times.items()},
        "cpu": {name: float(value) for name, value in cpu.items()},
        "rules": {kind: described(one) for kind, one in rules.items()},
        "sql": len(p) / seconds(lambda: connection.sql(decided).fetchall(), 20),
        "decide": len(p) / seconds(lambda: rule.decide(p, joint).sum(), 20),
    }


def described(rule: eh.Rule) -> dict[str, Any]:
    """Return how a rule was learnt, as it records."""
    solution, cells = rule.solution_, rule.learned_from.get("quantisation")
    reading = rule.learned_from.get("reading", {"passes": 2, "rows_brought_back": 0})
    return {
        "status": solution.status,
        "utility": solution.utility,
        "gap": max(map(abs, solution.values)),
        "stated": cells["utility_error"] if cells else solution.gap,
        **reading,
    }


def run_spark(path: Path, repeats: int) -> dict[str, float]:
    """Time Spark; this process does nothing else."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession

    from evenhand.engines import spark

    options = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "3g",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "4",
    }  # fmt: skip
    builder = SparkSession.builder.master("local[2]")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    frame = session.read.parquet(str(path))

    def count() -> None:
        # Summing the scores makes Spark read them, as learning does; it is the minimum that can be done with a column.
        # A new frame each time: for the same one, Spark would reuse the shuffle files of the first time.
        rows = session.read.parquet(str(path)).groupBy("y", "sex")
        rows.agg({**dict.fromkeys(("p", *JOINT.values()), "sum"), "*": "count"}).collect()

    small = session.read.parquet(str(path.with_name("small.parquet")))
    rule = spark.learn_rule(small, **OPTIONS)
    rules: list[eh.Rule] = []
    target = str(path.with_name("out.parquet"))
    actions: dict[str, Callable[[], Any]] = {
        "count": count,
        "learn": lambda: rules.append(spark.learn_rule(frame, **OPTIONS)),
        "copy": lambda: frame.write.mode("overwrite").parquet(target),
        "apply": lambda: spark.apply(rule, frame).write.mode("overwrite").parquet(target),
    }
    times = dict.fromkeys(actions, np.inf)
    for _ in range(repeats):
        for name, action in actions.items():
            times[name] = min(times[name], seconds(action, 1))
    session.stop()
    return {name: float(value) for name, value in times.items()}


def alone(kind: str, path: Path, repeats: int) -> tuple[dict[str, Any], float]:
    """Run one engine in a separate process; return its figures and its peak memory, in megabytes."""
    result = path.with_name(f"{kind}.json")
    command = [sys.executable, "-m", "benchmarks.engines", "--run", kind, str(path), str(result), str(repeats)]
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{kind} ended with {process.returncode}")
    return json.loads(result.read_text()), usage.ru_maxrss / 1024


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duckdb-rows", type=int, default=100_000_000)
    parser.add_argument("--spark-rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(sys.argv[1:] if argv is None and sys.argv[1:2] == ["--run"] else argv or [])
    if options.run:
        kind, path, result, repeats = options.run
        found = {"duckdb": run_duckdb, "spark": run_spark}[kind](Path(path), int(repeats))
        Path(result).write_text(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        if options.duckdb_rows:
            report_duckdb(path, options.duckdb_rows, options.repeats)
        if options.spark_rows:
            report_spark(path, options.spark_rows, options.repeats)


def report_duckdb(path: Path, rows: int, repeats: int) -> None:
    make_rows(path, rows)
    got, memory = alone("duckdb", path, repeats)
    print(f"DuckDB, {rows:,} rows, equalized odds, {path.stat().st_size / 1e9:.1f} GB of Parquet")
    print(f"  sum of each column  {got['sum']:7.2f} s")
    print(f"  count the cells     {got['count']:7.2f} s")
    print(f"  largest memory: {memory:.0f} MB (promised: below 4000)")
    print("  learning        seconds  x the sums  CPU x  status   passes  brought back  accuracy   real loss  stated")
    best = {kind[:5]: one["utility"] for kind, one in got["rules"].items() if one["status"] == "optimal"}
    for kind, one in got["rules"].items():
        loss = f"{best[kind[:5]] - one['utility']:.1e}" if kind[:5] in best else "-"
        print(
            f"  {kind:14} {got[kind]:8.2f} {got[kind] / got['sum']:11.2f} {got['cpu'][kind] / got['cpu']['sum']:6.2f}"
            f"  {one['status']:8} {one['passes']:5} {one['rows_brought_back']:13,}  {one['utility']:.6f} {loss:>10}"
            f"  {one['stated']:.1e}"
        )
    print(f"  rows a second, in millions: SQL {got['sql'] / 1e6:.1f}, rule.decide {got['decide'] / 1e6:.1f}")


def report_spark(path: Path, rows: int, repeats: int) -> None:
    make_rows(path, rows)
    make_rows(path.with_name("small.parquet"), 50_000)
    got, _ = alone("spark", path, repeats)
    print(f"Spark local[2], {rows:,} rows, equalized odds")
    for base, action, promised in (("count", "learn", 4), ("copy", "apply", 2)):
        ratio = got[action] / got[base]
        print(
            f"  {base} {got[base]:7.2f} s, {action} {got[action]:7.2f} s: {ratio:.2f} x (promised: at most {promised})"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
