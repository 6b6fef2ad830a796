"""Tables from folders, globs, compressed files, standard input and addresses."""

from __future__ import annotations

import gzip
import http.server
import io
import threading
import types

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from evenhand import origins, tables
from evenhand.cli import main
from evenhand.errors import InputError

N = 400


def scores(n=N, seed=0):
    rng = np.random.default_rng(seed)
    p, f = rng.random((2, n))
    sex = np.where(rng.random(n) < f, "F", "M")
    return pa.table({"y": (rng.random(n) < p).astype(int), "sex": sex, "p": p, "f": f})


FIT = ["--label", "y", "--sensitive", "sex", "--score", "p", "--group-score", "F=f", "--tolerance", "0.2"]
AUDIT = ["--label", "y", "--sensitive", "sex", "--score", "p", "--criterion", "dp", "--tolerance", "0.5"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with one table in every form that can be read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(origins, "_copies", {})
    table = scores()
    pq.write_table(table, "t.parquet")
    pa.csv.write_csv(table, "t.csv")
    with gzip.open("t.csv.gz", "wb") as file:
        file.write((tmp_path / "t.csv").read_bytes())
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    pq.write_table(table.slice(0, 150), "folder/part-0.parquet")
    pq.write_table(table.slice(150), "folder/part-1.parquet")
    (tmp_path / "folder" / "_SUCCESS").touch()
    return tmp_path


def pipe(monkeypatch, content, *, terminal=False):
    stream = io.BytesIO(content)
    stream.isatty = lambda: terminal
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=stream, isatty=lambda: terminal))


def as_stream(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize(
    "name", ["t.csv", "t.csv.gz", "folder", "folder/", "folder/*.parquet", "fold?r/part-[01].parquet"]
)
@pytest.mark.parametrize("engine", [[], ["--engine", "duckdb"]])
def test_every_form_gives_the_same_rule_and_decisions(name, engine, place):
    assert main(["fit", "t.parquet", *FIT, "-o", "expected.json", *engine]) == 0
    assert main(["fit", name, *FIT, "-o", "rule.json", *engine]) == 0
    expected, found = ((place / f).read_text() for f in ("expected.json", "rule.json"))
    assert [line for line in found.splitlines() if "seconds" not in line] == [
        line for line in expected.splitlines() if "seconds" not in line
    ]
    assert main(["apply", "expected.json", "t.parquet", "-o", "expected.parquet", *engine]) == 0
    assert main(["apply", "expected.json", name, "-o", "found.parquet", *engine]) == 0
    assert pq.read_table("found.parquet").to_pydict() == pq.read_table("expected.parquet").to_pydict()


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.arrow", "stream"])
def test_standard_input_is_known_by_its_first_bytes(name, place, monkeypatch, capsys):
    tables.write_table("t.arrow", {column: scores()[column] for column in scores().column_names})
    assert main(["audit", "t.parquet", *AUDIT, "--json"]) == 0
    expected = capsys.readouterr().out
    pipe(monkeypatch, as_stream(scores()) if name == "stream" else (place / name).read_bytes())
    assert main(["audit", "-", *AUDIT, "--json"]) == 0
    assert capsys.readouterr().out == expected


def test_standard_input_is_fitted_and_decided(place, monkeypatch):
    pipe(monkeypatch, (place / "t.csv.gz").read_bytes())
    assert main(["fit", "-", *FIT, "-o", "rule.json", "--report", "report.html"]) == 0
    assert "standard input" in (place / "report.html").read_text()
    assert main(["apply", "rule.json", "-", "-o", "decided.csv"]) == 0
    assert pa.csv.read_csv("decided.csv").num_rows == N


@pytest.mark.parametrize(
    ("content", "terminal", "message"),
    [
        (b"", True, "nothing is piped into it"),
        (b"", False, "Standard input is empty"),
        (b"PK\x03\x04rest", False, "save the table as CSV or Parquet"),
        (b"\x1f\x8bbroken", False, "Standard input cannot be read as csv"),
        (b"PAR1broken", False, "Standard input cannot be read as parquet"),
    ],
)
def test_standard_input_that_is_no_table_gets_a_remedy(content, terminal, message, place, monkeypatch, capsys):
    pipe(monkeypatch, content, terminal=terminal)
    assert main(["audit", "-", *AUDIT]) == 2
    assert message in capsys.readouterr().err


def test_standard_input_is_not_two_tables(place, monkeypatch, capsys):
    pipe(monkeypatch, (place / "t.csv").read_bytes())
    assert main(["fit", "-", *FIT, "-o", "rule.json", "--test", "-"]) == 2
    assert "only be one table" in capsys.readouterr().err


@pytest.fixture
def address(place):
    """The folder behind a web server of this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: Quiet(*a, directory=str(place))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet?version=1"])
def test_an_address_is_read(name, address, capsys):
    assert main(["audit", "t.parquet", *AUDIT, "--json"]) == 0
    expected = capsys.readouterr().out
    assert main(["audit", f"{address}/{name}", *AUDIT, "--json"]) == 0
    assert capsys.readouterr().out == expected
    assert main(["audit", f"{address}/absent.csv", *AUDIT]) == 2
    assert "absent.csv cannot be read: HTTP Error 404" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["t.parquet", "folder", "t.csv.gz"])
def test_a_store_that_pyarrow_knows_is_read(name, place, monkeypatch):
    """Here the store is a local folder behind the same interface."""
    from pyarrow import fs

    asked = []

    def store(url):
        asked.append(url)
        return fs.SubTreeFileSystem(str(place), fs.LocalFileSystem()), name

    monkeypatch.setattr(origins, "_store", store)
    for _ in range(2):
        assert tables.read_table(f"gs://bucket/{name}", ["p", "y"]).equals(scores().select(["p", "y"]))
    assert asked == [f"gs://bucket/{name}"]


def test_folders_named_by_a_value_are_columns(tmp_path):
    for sex in "FM":
        (tmp_path / "rows" / f"sex={sex}").mkdir(parents=True)
        pq.write_table(pa.table({"p": [0.25, 0.5]}), tmp_path / "rows" / f"sex={sex}" / "part.parquet")
    expected = {"p": [0.25, 0.5, 0.25, 0.5], "sex": ["F", "F", "M", "M"]}
    assert tables.read_table(tmp_path / "rows", ["p", "sex"]).to_pydict() == expected
    assert tables.read_table(f"{tmp_path}/rows/*/*.parquet", ["p", "sex"]).to_pydict() == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda place: (place / "empty").mkdir(), "there is no .parquet file here"),
        (lambda place: [(place / "empty").mkdir(), (place / "empty" / "a.csv").touch()], "no .parquet file here"),
        (
            lambda place: [
                (place / "empty").mkdir(),
                pq.write_table(scores(3), place / "empty" / "a.parquet"),
                (place / "empty" / "b.csv").touch(),
            ],
            "b.csv is not a .parquet file.*with a glob",
        ),
        (
            lambda place: [
                (place / "empty").mkdir(),
                pq.write_table(scores(3), place / "empty" / "a.parquet"),
                pq.write_table(scores(3).drop(["f"]), place / "empty" / "b.parquet"),
            ],
            "b.parquet has different columns or types than a.parquet",
        ),
    ],
)
def test_a_folder_that_is_no_table_gets_a_remedy(make, message, tmp_path):
    make(tmp_path)
    with pytest.raises(InputError, match=message):
        tables.open_table(tmp_path / "empty")


def test_a_glob_that_matches_nothing_is_said(tmp_path):
    with pytest.raises(InputError, match=r"there is no \.parquet file here"):
        tables.open_table(f"{tmp_path}/*.parquet")


@pytest.mark.parametrize("output", ["folder/part-0.parquet", "folder/new.parquet", "folder/deep/new.parquet"])
@pytest.mark.parametrize("name", ["folder", "folder/*.parquet"])
@pytest.mark.parametrize("engine", [[], ["--engine", "duckdb"]])
def test_an_output_is_never_one_of_the_files_that_are_read(output, name, engine, place, capsys):
    assert main(["fit", "t.parquet", *FIT, "-o", "rule.json"]) == 0
    before = {path: path.read_bytes() for path in place.rglob("*.parquet")}
    done = main(["apply", "rule.json", name, "-o", output, *engine])
    if name == "folder" or output == "folder/part-0.parquet":
        assert done == 2
        assert "is the table that is read" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before


def test_compressed_csv_is_not_written(place, capsys):
    assert main(["fit", "t.parquet", *FIT, "-o", "rule.json"]) == 0
    assert main(["apply", "rule.json", "t.csv.gz", "-o", "out.csv.gz"]) == 2
    assert "can be read but not written" in capsys.readouterr().err


def test_a_broken_archive_is_said(place, capsys):
    (place / "t.csv.gz").write_bytes((place / "t.csv.gz").read_bytes()[:500])
    assert main(["audit", "t.csv.gz", *AUDIT]) == 2
    assert "t.csv.gz cannot be read as csv" in capsys.readouterr().err
