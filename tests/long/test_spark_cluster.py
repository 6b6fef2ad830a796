"""A Spark cluster on this machine, master and two workers, one of which dies while a rule is learnt."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from evenhand.engines import arrow
from evenhand.engines import spark as sparks
from scored_rows import NAMES, draw

HERE = "127.0.0.1"
FILES, ROWS = 24, 20_000


def free_port():
    with socket.socket() as listener:
        listener.bind((HERE, 0))
        return listener.getsockname()[1]


def listens(port):
    with socket.socket() as caller:
        return caller.connect_ex((HERE, port)) == 0


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def cluster(tmp_path):
    """Start a master and two workers that listen on loopback alone; give the address and the workers."""
    home = Path(pyspark.__file__).parent
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HERE}
    port, started = free_port(), []

    def start(name, *arguments):
        command = [str(home / "bin" / "spark-class"), *arguments, "--host", HERE, "--webui-port", str(free_port())]
        with (tmp_path / f"{name}.log").open("w") as log:
            # A group of its own: a worker's executors die with it.
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
        started.append(process)
        return process

    start("master", "org.apache.spark.deploy.master.Master", "--port", str(port))
    # A session that finds no master for a minute gives up.
    wait_for(lambda: listens(port))
    address = f"spark://{HERE}:{port}"
    kind = "org.apache.spark.deploy.worker.Worker"
    limits = ["--cores", "1", "--memory", "1g"]
    workers = [start(f"worker{k}", kind, address, *limits, "--work-dir", str(tmp_path / f"w{k}")) for k in (1, 2)]
    yield address, workers
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def session(cluster):
    os.environ["SPARK_LOCAL_IP"] = HERE
    address, _ = cluster
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        options = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": HERE,
            "spark.driver.bindAddress": HERE,
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.files.maxPartitionBytes": "1m",
        }
        builder = SparkSession.builder.master(address).appName("evenhand cluster test")
        for name, value in options.items():
            builder = builder.config(name, value)
        found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


def executors(session):
    """Return the number of executors that are there, the driver not among them."""
    return session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1


DP = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"F": "f", "M": None}}
BOTH = {
    "y": "y", "sensitive_features": ["sex", "region"], "p_y": "p",
    "p_group": {"sex": {"F": "f", "M": None}, "region": {"north": "r0", "south": "r1", "west": "r2"}},
}  # fmt: skip
EO = {"criterion": "eo", "tolerance": 0.02, **NAMES}
LEARNING = {
    "in memory": {"tolerance": 0.02, **DP},
    "on the line": {"tolerance": 0.02, "max_in_memory": 0, **DP},
    "in the plane": {**EO, "max_in_memory": 1_000_000},
    "beyond the plane": {"tolerance": 0.03, "max_in_memory": 1_000_000, **BOTH},
    "in cells": {**EO, "max_in_memory": 0, "search": "smoothed", "level": 5},
}


@pytest.fixture
def losing_a_worker(session, cluster):
    """Give a function that does something while one of the two workers dies."""
    wait_for(lambda: executors(session) == 2)
    _, workers = cluster
    tracker = session.sparkContext.statusTracker()
    killed = []

    def busy():
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(info is not None and info.numTasks >= FILES // 2 and info.numCompletedTasks >= 3 for info in stages)

    def kill():
        wait_for(busy)
        os.killpg(workers[0].pid, signal.SIGKILL)
        workers[0].wait()
        killed.append(True)

    def during(action):
        killer = threading.Thread(target=kill)
        killer.start()
        result = action()
        killer.join()
        assert killed
        wait_for(lambda: executors(session) == 1)
        return result

    return during


@pytest.fixture
def rows(session, tmp_path):
    """Give a table, and the same rows as a frame of many files."""
    table = draw(FILES * ROWS, seed=1)
    for part in range(FILES):
        pq.write_table(table.slice(part * ROWS, ROWS), tmp_path / f"rows{part}.parquet")
    return table, session.read.parquet(*(str(tmp_path / f"rows{part}.parquet") for part in range(FILES)))


def test_a_worker_that_dies_changes_no_counts(rows, losing_a_worker):
    table, frame = rows
    counted = losing_a_worker(lambda: sparks.aggregate(frame, level=5, **NAMES))
    assert counted == arrow.aggregate(table, level=5, **NAMES)


@pytest.mark.parametrize("kind", LEARNING)
@pytest.mark.filterwarnings("ignore:Scores were counted in steps")
def test_a_worker_that_dies_changes_no_rule(kind, rows, losing_a_worker):
    _, frame = rows
    rule = losing_a_worker(lambda: sparks.learn_rule(frame, **LEARNING[kind]))
    assert ("quantisation" in rule.learned_from) == (kind == "in cells")
    assert rule == sparks.learn_rule(frame, **LEARNING[kind])
    assert sparks.apply(rule, frame).selectExpr("sum(decision) AS n").first()["n"] > 0
