"""Ctrl-C and its like, sent to a real process at a chosen moment of work that would never end by itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand import files
from evenhand.cli import interrupts, main

ROWS = ["--label", "y", "--score", "p", "--sensitive", "sex"]
FIT = [*ROWS, "--group-score", "F=p_f"]
NAMED = ["--score", "p", "--group-score", "F=p_f"]

# Under nohup, children would ignore SIGHUP.
START = """import signal, sys, hashlib, itertools, threading
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
from evenhand.cli import main
"""
RUN = "\nsys.exit(main(sys.argv[1:]))"
WAITS = {
    "in Python": "threading.Event().wait()",
    "in compiled code": "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)",
}
# Each never ends, and says where it is on standard output or by what it writes.
FOREVER = {
    "read": """
from evenhand import tables
def stay(*arguments, **options):
    print("here", flush=True)
    {wait}
tables.open_table = stay
""",
    "write": """
from evenhand import tables
def stay(self, table):
    print("here", flush=True)
    {wait}
tables.Writer.write = stay
""",
    "train": """
from evenhand import demo
def stay(*arguments, **options):
    print("here", flush=True)
    {wait}
demo._train = stay
""",
    "experiment": """
from evenhand.paper import experiments
def stay(*arguments, **options):
    print("here", flush=True)
    {wait}
experiments.reproduce = stay
""",
    "fetch": """
from evenhand import datasets
def stay(*arguments, **options):
    print("here", flush=True)
    {wait}
datasets.load_adult = stay
""",
    "swallow": """
from evenhand import tables
def stay(*arguments, **options):
    print("here", flush=True)
    while True:
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
tables.open_table = stay
""",
    "batches": """
import dataclasses
from evenhand import tables
real = tables.open_table
def opened(*arguments, **options):
    source = real(*arguments, **options)
    return dataclasses.replace(source, batches=lambda: itertools.cycle(list(source.batches())))
tables.open_table = opened
""",
    "query": """
import duckdb
from evenhand.cli import engine
from evenhand.engines import duckdb as ours
rows = "SELECT random() AS p, random() AS p_f, 'F' AS sex, i % 2 AS y FROM range(1000000000000000) AS t(i)"
connection = duckdb.connect()
engine._open = lambda name, file: (ours, connection.sql(rows))
""",
    "count": """
import duckdb
from evenhand.cli import engine
from evenhand.engines import duckdb as ours, source
rows = '''SELECT random() AS p, random() AS p_f, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex, i % 2 AS y
          FROM range(1000000000000000) AS t(i)'''
connection = duckdb.connect()
engine._open = lambda name, file: (ours, connection.sql(rows))
engine.values_of = source.values_of = lambda table, column: ("F", "M") if column == "sex" else (0, 1)
real = source.learn_source
def told(*arguments, **options):
    print("here", flush=True)
    return real(*arguments, **options)
source.learn_source = told
""",
}


@pytest.fixture
def place(tmp_path):
    p = np.linspace(0.0, 1.0, 400)
    columns = {"p": p, "p_f": p[::-1].copy(), "y": (p > 0.4).astype(int), "sex": np.where(p > 0.5, "F", "M")}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors={"sex": [0.5, 0.5]}, z=[0.1])
    (tmp_path / "rule.json").write_text(rule.to_json())
    return tmp_path


def start(place, forever, arguments, wait="in Python"):
    code = START + FOREVER[forever].format(wait=WAITS[wait]) + RUN
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def until_here(process):
    for line in process.stdout:
        if line.strip() == "here":
            return
    raise AssertionError(process.communicate())


def until_written(process, place):
    while not any(found.stat().st_size for found in place.glob(".*.part")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def ended(process):
    try:
        _, said = process.communicate(timeout=900)
    finally:
        process.kill()
    return process.returncode, said


COMMANDS = [
    ("read", ["audit", "t.parquet", *ROWS]),
    ("read", ["fit", "t.parquet", *FIT, "-o", "out.json"]),
    ("read", ["fit", "t.parquet", *ROWS[:2], *ROWS[4:], "--features", "p", "-o", "out.skops"]),
    ("read", ["frontier", "t.parquet", *FIT, "-o", "out.csv"]),
    ("read", ["explain", "rule.json", "t.parquet", "--at", "0"]),
    ("read", ["apply", "rule.json", "t.parquet", "-o", "out.csv", *NAMED]),
    ("write", ["apply", "rule.json", "t.parquet", "-o", "out.parquet", *NAMED]),
    ("write", ["apply", "rule.json", "t.parquet", "-o", "out.csv", *NAMED]),
    ("write", ["apply", "rule.json", "t.parquet", "-o", "out.arrow", *NAMED]),
    ("write", ["datasets", "zafar", "-o", "out.csv"]),
    ("train", ["demo", "-o", "out.html"]),
    ("experiment", ["reproduce", "synthetic", "-o", "out"]),
    ("fetch", ["datasets", "adult", "-o", "out.csv"]),
    ("count", ["fit", "t.parquet", *FIT, "-o", "out.json", "--engine", "duckdb"]),
]


@pytest.mark.parametrize(
    ("forever", "arguments"), COMMANDS, ids=lambda value: value if isinstance(value, str) else value[0]
)
def test_every_command_ends_with_one_line(forever, arguments, place):
    process = start(place, forever, arguments)
    until_here(process)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "evenhand: stopped.\n")
    assert sorted(path.name for path in place.iterdir()) == ["rule.json", "t.parquet"]


@pytest.mark.parametrize("forever", ["batches", "query"])
@pytest.mark.parametrize("output", ["out.parquet", "out.csv"])
@pytest.mark.parametrize("old", [False, True])
def test_what_is_half_written_goes(forever, output, old, place):
    if old:
        (place / output).write_text("as it was")
    engine = ["--engine", "duckdb"] if forever == "query" else []
    process = start(place, forever, ["apply", "rule.json", "t.parquet", "-o", output, *NAMED, *engine])
    until_written(process, place)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "evenhand: stopped.\n")
    assert sorted(path.name for path in place.iterdir()) == sorted(
        ["rule.json", "t.parquet", *([output] if old else [])]
    )
    assert not old or (place / output).read_text() == "as it was"


@pytest.mark.parametrize("forever", ["read", "write"])
def test_compiled_code_that_does_not_return_is_left(forever, place):
    arguments = ["apply", "rule.json", "t.parquet", "-o", "out.parquet", *NAMED]
    process = start(place, forever, arguments, wait="in compiled code")
    until_here(process)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "evenhand: stopped.\n")
    assert sorted(path.name for path in place.iterdir()) == ["rule.json", "t.parquet"]


def test_code_that_swallows_the_interrupt_is_left(place):
    process = start(place, "swallow", ["audit", "t.parquet", *ROWS])
    until_here(process)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "evenhand: stopped.\n")


def test_an_impatient_second_interrupt_changes_nothing(place):
    process = start(place, "batches", ["apply", "rule.json", "t.parquet", "-o", "out.parquet", *NAMED])
    until_written(process, place)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "evenhand: stopped.\n")
    assert sorted(path.name for path in place.iterdir()) == ["rule.json", "t.parquet"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_ordinary_kill_leaves_nothing_half_written(number, place):
    process = start(place, "batches", ["apply", "rule.json", "t.parquet", "-o", "out.parquet", *NAMED])
    until_written(process, place)
    process.send_signal(number)
    assert ended(process) == (128 + number, "")
    assert sorted(path.name for path in place.iterdir()) == ["rule.json", "t.parquet"]


def test_a_signal_that_is_ignored_stays_ignored(place):
    """As under nohup: the command goes on."""
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    code = START + ignored + FOREVER["read"].format(wait="sys.stdin.readline(); raise ValueError('went on')") + RUN
    process = subprocess.Popen(
        [sys.executable, "-c", code, "audit", "t.parquet", *ROWS],
        cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until_here(process)
    process.send_signal(signal.SIGHUP)
    _, said = process.communicate("\n", timeout=900)
    assert (process.returncode, "went on" in said) == (2, True)


def test_a_command_leaves_the_signals_of_its_caller_as_they_were(capsys):
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    before = [signal.getsignal(number) for number in numbers]
    assert main(["datasets"]) == 0
    assert main(["nonsense"]) == 2
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_command_in_a_thread_touches_no_signal(capsys, monkeypatch):
    import threading

    def refuse(*arguments, **options):
        raise AssertionError("signals belong to the main thread")

    monkeypatch.setattr(signal, "signal", refuse)
    monkeypatch.setattr(signal, "set_wakeup_fd", refuse)
    found = []
    thread = threading.Thread(target=lambda: found.append(main(["datasets"])))
    thread.start()
    thread.join()
    assert found == [0]


def test_only_one_has_the_last_word(monkeypatch):
    monkeypatch.setattr(files, "_unfinished", set())
    with interrupts.interruptible() as claim:
        assert claim()
        assert not claim()
    assert files._unfinished == set()
