from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand import tables
from evenhand.errors import InputError


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.pq", "t.arrow", "t.feather", "t.ipc"])
def test_what_is_written_is_read(name, tmp_path):
    columns = {"a": np.arange(5), "b": ["x", "y", None, "é", 'q"'], "c": np.linspace(0, 1, 5)}
    tables.write_table(tmp_path / name, columns)
    read = tables.read_table(tmp_path / name, ["c", "b", "a"])
    assert tables.numbers_of(read, "c").tolist() == columns["c"].tolist()
    assert tables.values_of(read, "b").tolist() == columns["b"]
    assert tables.values_of(read, "a").tolist() == [0, 1, 2, 3, 4]


def test_batches_cover_every_row_once_in_order(tmp_path):
    rows = 2 * tables.BATCH_ROWS + 7
    for name in ("t.parquet", "t.arrow", "t.csv"):
        tables.write_table(tmp_path / name, {"a": np.arange(rows)})
        source = tables.open_table(tmp_path / name)
        found = np.concatenate([batch.column(0).to_numpy() for batch in source.batches()])
        assert (found == np.arange(rows)).all()
        assert source.rows in (rows, None)


def test_a_stream_of_arrow_is_read_like_a_file(tmp_path):
    table = pa.table({"a": [1, 2]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert tables.read_table(tmp_path / "t.arrow", ["a"]).equals(table)


def test_a_writer_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "t.parquet"
    tables.write_table(path, {"a": [1]})
    before = path.read_bytes()
    schema = pa.schema([("a", pa.int64())])

    def write_and_fail():
        with tables.write_batches(path, schema) as writer:
            writer.write(pa.table({"a": [2]}))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    tables.write_table(tmp_path / "t.csv", {"a": [1]})
    assert (tmp_path / "t.csv").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_verbatim_text_is_not_changed(tmp_path):
    (tmp_path / "t.csv").write_text("id,p\n007,0.5\n,0.25\n")
    source = tables.open_table(tmp_path / "t.csv", numbers=["p"], verbatim=True)
    batch = next(source.batches())
    assert batch.column(0).to_pylist() == ["007", None]
    assert batch.column(1).to_pylist() == [0.5, 0.25]


def test_values_of_any_type_become_plain(tmp_path):
    table = pa.table(
        {
            "category": pa.array(["a", "b", "a"]).dictionary_encode(),
            "hole": pa.array([1, None, 3]),
            "day": pa.array([0, 1, 2], pa.date32()),
            "truth": [True, False, None],
            "large": pa.array(["x", "y", "z"], pa.large_string()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    read = tables.read_table(tmp_path / "t.parquet", table.column_names)
    assert tables.values_of(read, "category").tolist() == ["a", "b", "a"]
    assert tables.values_of(read, "hole").tolist() == [1, None, 3]
    assert tables.values_of(read, "day").tolist() == ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert tables.values_of(read, "truth").tolist() == [True, False, None]
    assert tables.values_of(read, "large").tolist() == ["x", "y", "z"]


def test_texts_stand_for_values_of_any_type():
    assert tables.value_from_text("1", [0, 1], "y") == 1
    assert tables.value_from_text("1.0", [0, 1], "y") == 1
    assert tables.value_from_text("true", [False, True], "y") is True
    assert tables.value_from_text("no", ["yes", "no"], "y") == "no"
    with pytest.raises(InputError, match="Did you mean 'Female'"):
        tables.value_from_text("female", ["Female", "Male"], "sex")


def test_messages_name_the_column_and_its_like(tmp_path):
    tables.write_table(tmp_path / "t.csv", {"score": [0.5], "label": [1], "text": ["x"]})
    with pytest.raises(InputError, match="Did you mean 'score'"):
        tables.read_table(tmp_path / "t.csv", ["scroe"])
    with pytest.raises(InputError, match="must contain numbers"):
        tables.numbers_of(tables.read_table(tmp_path / "t.csv", ["text"]), "text")
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="2 columns called 'a'"):
        tables.read_table(tmp_path / "twice.parquet", ["a"])
    with pytest.raises(InputError, match="no such file"):
        tables.read_table(tmp_path / "none.csv", ["a"])


def required(table):
    return table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))


@pytest.mark.parametrize("source", ["t.parquet", "t.arrow"])
@pytest.mark.parametrize("target", ["o.csv", "o.parquet", "o.arrow"])
def test_batches_are_written_whatever_the_schema_says_of_empty_places(source, target, tmp_path):
    """A table without the word "required" fits a schema with it, and the other way round, in every batch."""
    table = pa.table({"a": np.arange(9), "b": list("xyzxyzxyz")})
    for read, wanted in ((required(table), table.schema), (table, required(table).schema)):
        tables.write_table(tmp_path / source, dict(zip(read.column_names, read.columns, strict=True)))
        with tables.write_batches(tmp_path / target, wanted) as writer:
            for batch in read.to_batches(max_chunksize=4):
                writer.write(pa.Table.from_batches([batch]))
        found = tables.read_table(tmp_path / target, ["a", "b"])
        assert found.to_pydict() == table.to_pydict()


@pytest.mark.parametrize("target", ["o.csv", "o.parquet", "o.arrow"])
def test_every_batch_may_have_a_dictionary_of_its_own(target, tmp_path):
    texts = (["x", "y"], ["z"], ["y", None])
    parts = [pa.table({"a": pa.array(words).dictionary_encode(), "b": [0] * len(words)}) for words in texts]
    with tables.write_batches(tmp_path / target, parts[0].schema) as writer:
        for part in parts:
            writer.write(part)
    assert tables.read_table(tmp_path / target, ["a"]).to_pydict()["a"] == ["x", "y", "z", "y", None]


HOSTILE_CELLS = ["=1+1", "+49 30", "-5", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0", 'a"b', "a,b", " x ", "'=1"]


def test_csv_gives_back_every_cell_and_name_as_it_was(tmp_path):
    """Nothing is put before a cell that a spreadsheet would take for a formula: SECURITY.md says why."""
    columns = {"=n": HOSTILE_CELLS, "@m": list(range(len(HOSTILE_CELLS)))}
    tables.write_table(tmp_path / "t.csv", columns)
    assert tables.read_table(tmp_path / "t.csv", ["=n", "@m"]).to_pydict() == columns
