"""Learning and applying in DuckDB and Spark, against merely reading the same rows with the same engine.

DuckDB: learning from a Parquet file against ``SELECT sum(each column)``, each method in a separate process, with its
largest memory: demographic parity (K = 1), equalized odds (K = 2; also with a gap of 1e-5 allowed) and equalized odds
of two attributes (K = 4) on the rows themselves, and equalized odds in cells. For each the passes, the rows fetched,
the loss against the optimum if that was proven, and what the rule itself states. The same for the counts of two sites,
in one round and in two. Two attributes are also compared with the rule of 2 million rows in memory. Spark
``local[2]``: learning, exactly and in cells, against a job that reads the same columns and only counts, applying
against one that only copies.
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
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import evenhand as eh
from evenhand.engines import duckdb as engine
from evenhand.search import Certified

JOINT = {(0, 0): "p0f", (0, 1): "p0m", (1, 0): "p1f", (1, 1): "p1m"}
NAMES: dict[str, Any] = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": JOINT}
OPTIONS: dict[str, Any] = {"criterion": "equalized_odds", "tolerance": 0.02, **NAMES}
SECOND = {(0, 0): "q00", (0, 1): "q01", (1, 0): "q10", (1, 1): "q11"}
BOTH: dict[str, Any] = {
    "criterion": eh.EqualizedOdds(attribute="sex") & eh.EqualizedOdds(attribute="old"),
    "tolerance": 0.02,
    **NAMES,
    "sensitive_features": ["sex", "old"],
    "p_group": {"sex": JOINT, "old": SECOND},
}
KINDS: dict[str, dict[str, Any]] = {
    "K = 1, exact": {**OPTIONS, "criterion": "demographic_parity"},
    "K = 2, exact": OPTIONS,
    "K = 2, gap": {**OPTIONS, "search": Certified(gap=1e-5)},
    "K = 2, cells": {**OPTIONS, "search": "smoothed", "max_in_memory": 0},
    "K = 4, search": BOTH,
}
COLUMNS = ("id", "p", *JOINT.values(), "y", "sex")
ALL_COLUMNS = (*COLUMNS, "q", "old")
COMPARED_ROWS = 2_000_000
DRAW = """
    SELECT * EXCLUDE (r), CAST(r < q AS TINYINT) AS old
    FROM (SELECT i AS id, (c + d) / t AS p, a / t AS p0f, b / t AS p0m, c / t AS p1f, d / t AS p1m,
                 CAST(u * t > a + b AS TINYINT) AS y,
                 CAST((u * t > a AND u * t <= a + b) OR u * t > a + b + c AS TINYINT) AS sex,
                 0.5 * (c + d) / t + 0.5 * v AS q, random() AS r
          FROM (SELECT *, a + b + c + d AS t FROM (
              SELECT i, -2 * ln(1 - random()) AS a, -2 * ln(1 - random()) AS b, -ln(1 - random()) AS c,
                     -2 * ln(1 - random()) AS d, random() AS u, random() AS v FROM range({rows}) AS numbers(i))))
"""
# The second attribute and the label are independent, given the scores: its joint probabilities are products.
WITH_PRODUCTS = "*, (1 - p) * (1 - q) AS q00, (1 - p) * q AS q01, p * (1 - q) AS q10, p * q AS q11"


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


def run_sums(path: Path, repeats: int) -> dict[str, Any]:
    """Time the rule as SQL and in NumPy, and counting cells."""
    connection = duckdb.connect()
    small = path.with_name("small.parquet")
    warnings.simplefilter("ignore")
    rule = engine.learn_rule(str(small), **OPTIONS)
    text = rule.to_sql(p_y="p", p_group=JOINT, dialect="duckdb")
    decided = f"SELECT sum({text}) FROM '{small}'"
    arrays = connection.sql(f"SELECT p, {', '.join(JOINT.values())} FROM '{small}'").fetchnumpy()
    p, joint = np.array(arrays["p"]), np.column_stack([arrays[name] for name in JOINT.values()]).reshape(-1, 2, 2)
    return {
        "count": seconds(lambda: engine.aggregate(str(path), memory_limit="3GB", **NAMES), repeats),
        "sql": len(p) / seconds(lambda: connection.sql(decided).fetchall(), 20),
        "decide": len(p) / seconds(lambda: rule.decide(p, joint).sum(), 20),
    }


def run_learning(kind: str, path: Path, repeats: int) -> dict[str, Any]:
    """Time one method of learning, and the sums of the columns that it reads, by turns."""
    options, two = KINDS[kind], KINDS[kind] is BOTH
    warnings.simplefilter("ignore")
    connection = duckdb.connect()
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET memory_limit = '3GB'")
    total = f"SELECT {', '.join(f'sum({name})' for name in (ALL_COLUMNS if two else COLUMNS))} FROM '{path}'"

    def learn(place: Path, **more: Any) -> eh.Rule:
        if two:
            return engine.learn_rule(connection.read_parquet(str(place)).project(WITH_PRODUCTS), **options, **more)
        return engine.learn_rule(str(place), memory_limit="3GB", **{**options, **more})

    small = options.get("max_in_memory", 280_000)
    learn(path.with_name("small.parquet"), max_in_memory=small)
    rules: list[eh.Rule] = []
    actions: dict[str, Callable[[], Any]] = {
        "sum": lambda: connection.sql(total).fetchall(),
        "learn": lambda: rules.append(learn(path)),
    }
    times, cpu = dict.fromkeys(actions, np.inf), dict.fromkeys(actions, np.inf)
    for _ in range(repeats):
        for name, action in actions.items():
            before = time.process_time()
            times[name] = min(times[name], seconds(action, 1))
            cpu[name] = min(cpu[name], time.process_time() - before)
    return {"seconds": times, "cpu": cpu, **described(rules[-1])}


def run_comparison(path: Path) -> dict[str, Any]:
    """Learn from some rows with two attributes in passes, and in memory by the search that needs no proof."""
    rows = duckdb.sql(f"SELECT {WITH_PRODUCTS} FROM '{path}' WHERE id < {COMPARED_ROWS}").to_arrow_table()
    rule = engine.learn_rule(rows, **BOTH)
    arrays = {name: rows[name].to_numpy() for name in rows.column_names}
    joint = {
        name: np.column_stack([arrays[c] for c in columns.values()]).reshape(-1, 2, 2)
        for name, columns in BOTH["p_group"].items()
    }
    groups = {name: arrays[name] for name in joint}
    exact = eh.learn_rule(
        arrays["y"], groups, arrays["p"], joint, criterion=BOTH["criterion"], tolerance=0.02, search="smoothed"
    )
    return {
        "loss": exact.solution_.utility - rule.solution_.utility,
        "rows": len(rows),
        "fetched": rule.learned_from["reading"]["rows_brought_back"],
    }


def run_sites(path: Path) -> dict[str, Any]:
    """Learn from the counts of two sites: their cells, then a second round around that rule."""
    warnings.simplefilter("ignore")
    connection = duckdb.connect()
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET memory_limit = '3GB'")
    sites = [connection.read_parquet(str(path)).filter(f"id % 2 = {site}") for site in (0, 1)]
    cells = sum(engine.aggregate(site, **NAMES) for site in sites)
    found = {}
    for kind, criterion, parts in (
        ("K = 1", "demographic_parity", ["y IN (0, 1)"]),
        ("K = 2", "equalized_odds", ["y = 0", "y = 1"]),
    ):
        before = time.process_time()
        first = cells.learn_rule(criterion, 0.02)
        counts = sum(engine.aggregate(site, near=first, **NAMES) for site in sites)
        middle = time.process_time()
        second = counts.learn_rule()
        cpu = {"counting": middle - before, "learning": time.process_time() - middle}
        for name, rule, stated in (
            ("cells", first, first.learned_from["quantisation"]["utility_error"]),
            ("second round", second, second.solution_.gap),
        ):
            text = rule.to_sql(p_y="p", p_group=JOINT, dialect="duckdb")
            rates = [f"avg(d) FILTER (sex = 0 AND {p}) - avg(d) FILTER (sex = 1 AND {p})" for p in parts]
            decided = f"SELECT avg(CAST(d = y AS DOUBLE)), {', '.join(rates)} FROM"
            utility, *gaps = connection.sql(f"{decided} (SELECT {text} AS d, y, sex FROM '{path}')").fetchall()[0]
            found[f"{kind}, two sites, {name}"] = {"utility": utility, "gap": max(map(abs, gaps)), "stated": stated}
        found[f"{kind}, two sites, second round"] |= {"bins": len(counts.weight), **cpu}
    return found


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
        "learn in cells": lambda: rules.append(spark.learn_rule(frame, search="smoothed", **OPTIONS)),
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
    """Run one part in a separate process; return its figures and its peak memory, in megabytes."""
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
        if kind in KINDS:
            found = run_learning(kind, Path(path), int(repeats))
        elif kind == "comparison":
            found = run_comparison(Path(path))
        elif kind == "sites":
            found = run_sites(Path(path))
        else:
            found = {"sums": run_sums, "spark": run_spark}[kind](Path(path), int(repeats))
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
    make_rows(path.with_name("small.parquet"), 50_000)
    print(f"DuckDB, {rows:,} rows, {path.stat().st_size / 1e9:.1f} GB of Parquet, memory_limit 3GB", flush=True)
    print(
        "  learning        seconds  x the sums  CPU x     MB  status   passes    fetched  accuracy   real loss  stated"
    )
    best: dict[str, float] = {}
    for kind in KINDS:
        got, memory = alone(kind, path, repeats)
        if got["status"] == "optimal":
            best[kind[:5]] = got["utility"]
        loss = f"{best[kind[:5]] - got['utility']:.1e}" if kind[:5] in best else "-"
        ratios = [got[unit]["learn"] / got[unit]["sum"] for unit in ("seconds", "cpu")]
        print(
            f"  {kind:14} {got['seconds']['learn']:8.2f} {ratios[0]:11.2f} {ratios[1]:6.2f} {memory:6.0f}"
            f"  {got['status']:8} {got['passes']:5} {got['rows_brought_back']:11,}  {got['utility']:.6f} {loss:>10}"
            f"  {got['stated']:.1e}",
            flush=True,
        )
    sites, memory = alone("sites", path, repeats)
    for name, one in sites.items():
        rest = f"; {one['bins']:,} bins, {one['counting']:.1f} + {one['learning']:.1f} CPU s" if "bins" in one else ""
        print(
            f"  {name}: {best[name[:5]] - one['utility']:.1e} below the optimum, stated {one['stated']:.1e};"
            f" difference of rates {one['gap']:.6f} (0.02 asked){rest}, {memory:.0f} MB",
            flush=True,
        )
    compared, _ = alone("comparison", path, repeats)
    print(
        f"  K = 4, {compared['rows']:,} rows: {compared['loss']:.1e} below the rule in memory,"
        f" {compared['fetched']:,} rows fetched"
    )
    got, _ = alone("sums", path, repeats)
    print(f"  count the cells {got['count']:8.2f} s")
    print(
        f"  rows a second, in millions: SQL {got['sql'] / 1e6:.1f}, rule.decide {got['decide'] / 1e6:.1f}", flush=True
    )


def report_spark(path: Path, rows: int, repeats: int) -> None:
    make_rows(path, rows)
    make_rows(path.with_name("small.parquet"), 50_000)
    got, _ = alone("spark", path, repeats)
    print(f"Spark local[2], {rows:,} rows, equalized odds")
    for base, action, promised in (("count", "learn", None), ("count", "learn in cells", 4), ("copy", "apply", 2)):
        most = "" if promised is None else f" (promised: at most {promised})"
        print(f"  {base} {got[base]:7.2f} s, {action} {got[action]:7.2f} s: {got[action] / got[base]:.2f} x{most}")


if __name__ == "__main__":
    main(sys.argv[1:])
