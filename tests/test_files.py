"""Files that are written: whole or not at all, apart from what is read, and without touching the process."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand import files, tables
from evenhand.errors import InputError, WriteError
from evenhand.report import summarize, write_report

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def small_aggregate():
    from evenhand.engines import arrow

    rows = pa.table({"y": [0, 1] * 20, "g": ["a", "a", "b", "b"] * 10, "p": [0.25, 0.75] * 20, "a": [0.5] * 40})
    return arrow.aggregate(rows, y="y", sensitive_features="g", p_y="p", p_group={"a": "a", "b": None})


def small_summary():
    return summarize([0, 1] * 20, ["a", "a", "b", "b"] * 10, [0.25, 0.75] * 20)


def in_batches(path):
    schema = pa.schema([("a", pa.int64())])
    with tables.write_batches(path, schema) as writer:
        writer.write(pa.table({"a": [1]}))


WRITERS = {
    "t.csv": lambda path: tables.write_table(path, {"a": [1]}),
    "t.parquet": lambda path: tables.write_table(path, {"a": [1]}),
    "t.arrow": lambda path: tables.write_table(path, {"a": [1]}),
    "b.parquet": in_batches,
    "t.json": lambda path: files.write_text(path, "{}"),
    "t.html": lambda path: write_report(small_summary(), path),
    "a.parquet": lambda path: small_aggregate().save(path),
}


def watched(monkeypatch):
    """Let every call that would change signal handlers or the umask be an error."""

    def refuse(*arguments):
        raise AssertionError(f"a write changed the process: {arguments}")

    for module, name in ((signal, "signal"), (os, "umask"), (signal, "set_wakeup_fd")):
        monkeypatch.setattr(module, name, refuse)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("in_thread", [False, True])
def test_a_write_changes_neither_signal_handlers_nor_the_umask(name, in_thread, tmp_path, monkeypatch):
    before = [signal.getsignal(number) for number in SIGNALS]
    watched(monkeypatch)
    found = []

    def work():
        try:
            WRITERS[name](tmp_path / name)
        except BaseException as error:
            found.append(error)

    if in_thread:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    else:
        work()
    assert found == []
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o027])
def test_new_files_follow_the_umask(name, umask, tmp_path):
    before = os.umask(umask)
    try:
        WRITERS[name](tmp_path / name)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / name) == 0o666 & ~umask


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o444, 0o755])
def test_files_that_are_replaced_keep_their_permissions(name, mode, tmp_path):
    (tmp_path / name).write_text("old")
    (tmp_path / name).chmod(mode)
    WRITERS[name](tmp_path / name)
    assert mode_of(tmp_path / name) == mode
    assert (tmp_path / name).read_bytes() != b"old"


def test_what_replaces_a_private_file_is_private_while_it_is_written(tmp_path):
    (tmp_path / "t.csv").write_text("old")
    (tmp_path / "t.csv").chmod(0o600)
    with files.whole_or_nothing(tmp_path / "t.csv") as temporary:
        assert mode_of(temporary) == 0o600


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "t.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real" / "t.txt")
    files.write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real" / "t.txt").read_text() == "new"


def test_a_device_is_written_to_and_not_replaced():
    files.write_text("/dev/null", "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError, OSError(errno.EIO, "x")])
def test_whatever_ends_a_write_leaves_what_was_there(error, tmp_path):
    (tmp_path / "t.txt").write_text("old")

    def write():
        with files.whole_or_nothing(tmp_path / "t.txt") as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error if isinstance(error, type) else WriteError):
        write()
    assert (tmp_path / "t.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]


def test_what_is_unfinished_can_be_removed_by_another_thread(tmp_path):
    def write():
        with files.whole_or_nothing(tmp_path / "t.txt") as temporary:
            temporary.write_text("half")
            files.remove_unfinished()
            assert not temporary.exists()

    with pytest.raises(WriteError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_names_as_long_as_the_system_allows_can_be_written(tmp_path):
    name = "é" * 120 + ".csv"
    tables.write_table(tmp_path / name, {"a": [1]})
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow", "t.json", "t.html"])
def test_a_full_disk_is_a_write_error_with_path_reason_and_remedy(name, tmp_path):
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(WriteError) as caught:
        WRITERS[name](tmp_path / name)
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value) == (
        f"{tmp_path / name} cannot be written: No space left on device. Free some space, or write to another disk."
    )


LIMITED = """
import resource, sys
import numpy as np, pyarrow as pa
import evenhand.cli
from evenhand import tables
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
sys.exit(evenhand.cli.main(sys.argv[1:]))
"""


def limited(folder, *arguments):
    """Run a command in a process that may write 4,096 bytes to a file."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def write_rows(folder, rows=50_000):
    p = np.random.default_rng(0).random(rows)
    tables.write_table(folder / "t.parquet", {"p": p, "p_f": p[::-1].copy(), "y": (p > 0.5).astype(int)})
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors={"sex": [0.5, 0.5]}, z=[0.1])
    (folder / "rule.json").write_text(rule.to_json())


@pytest.mark.parametrize(
    ("output", "engine"),
    [("out.parquet", None), ("out.csv", None), ("out.arrow", None), ("out.parquet", "duckdb"), ("out.csv", "duckdb")],
)
def test_apply_says_that_the_output_cannot_be_written(output, engine, tmp_path):
    write_rows(tmp_path)
    options = ["--score", "p", "--group-score", "F=p_f", *(["--engine", engine] if engine else [])]
    code, said = limited(tmp_path, "apply", "rule.json", "t.parquet", "-o", output, *options)
    assert (code, said) == (
        2,
        f"evenhand: {output} cannot be written: File too large. Write to a place that allows larger files"
        " (ulimit -f shows the limit).\n",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rule.json", "t.parquet"]


def test_standard_output_that_is_full_is_named(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "evenhand", "datasets"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith("evenhand: Standard output cannot be written: No space left on device.")
    assert len(done.stderr.splitlines()) == 1


def test_what_a_format_cannot_hold_is_no_reading_error(tmp_path):
    with pytest.raises(InputError, match=r"cannot be written as csv: .*\.parquet"):
        tables.write_table(tmp_path / "t.csv", {"a": [[1, 2]]})
    assert list(tmp_path.iterdir()) == []


def spellings(folder, name):
    (folder / "sub").mkdir(exist_ok=True)
    yield folder / name
    yield Path(os.path.relpath(folder / name))
    yield folder / "sub" / ".." / name
    yield Path(f"file://{folder / name}")


def test_one_file_is_known_in_every_spelling(tmp_path):
    (tmp_path / "t.csv").write_text("x")
    os.link(tmp_path / "t.csv", tmp_path / "hard.csv")
    (tmp_path / "soft.csv").symlink_to("t.csv")
    (tmp_path / "folder").symlink_to(tmp_path)
    others = [tmp_path / "hard.csv", tmp_path / "soft.csv", tmp_path / "folder" / "t.csv"]
    for output in [*spellings(tmp_path, "t.csv"), *others]:
        with pytest.raises(InputError, match=r"is the table: give -o another name"):
            files.check_outputs({"-o": output}, {"the table": tmp_path / "t.csv"})


def test_two_outputs_that_are_not_there_yet_are_known_in_every_spelling(tmp_path):
    (tmp_path / "folder").symlink_to(tmp_path)
    (tmp_path / "soft.csv").symlink_to("new.csv")
    for output in [*spellings(tmp_path, "new.csv"), tmp_path / "folder" / "new.csv", tmp_path / "soft.csv"]:
        with pytest.raises(InputError, match="-o and --report are both"):
            files.check_outputs({"-o": tmp_path / "new.csv", "--report": output}, {})
    files.check_outputs({"-o": tmp_path / "new.csv", "--report": tmp_path / "other.csv"}, {})


def test_names_that_differ_in_case_are_one_where_the_file_system_says_so(tmp_path, monkeypatch):
    outputs = {"-o": tmp_path / "New.csv", "--report": tmp_path / "nEW.csv"}
    monkeypatch.setattr(files, "ignores_case", lambda folder: False)
    files.check_outputs(outputs, {})
    monkeypatch.setattr(files, "ignores_case", lambda folder: True)
    with pytest.raises(InputError, match="both"):
        files.check_outputs(outputs, {})


def test_whether_case_matters_is_asked_of_the_file_system(tmp_path):
    folder = tmp_path / "Folder"
    folder.mkdir()
    assert files.ignores_case(folder) == Path(str(folder).swapcase()).exists()


def test_a_folder_that_is_replaced_may_not_hold_an_input(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "t.parquet").write_text("x")
    reads = {"the table": tmp_path / "out" / "t.parquet"}
    with pytest.raises(InputError, match="is the table"):
        files.check_outputs({"-o": tmp_path / "out"}, reads, folders="replaced")
    files.check_outputs({"-o": tmp_path / "out"}, reads, folders="filled")


@pytest.mark.parametrize("name", ["no/such/t.csv", "", "t.csv/x"])
def test_an_output_without_a_folder_or_name_is_refused_at_once(name, tmp_path):
    (tmp_path / "t.csv").write_text("x")
    with pytest.raises(WriteError, match=r"Make the folder first|Give the name of a file"):
        files.check_outputs({"-o": tmp_path / name}, {})


@pytest.mark.parametrize(
    "url", ["s3://b/x.parquet", "https://h.org/a/x.csv?k=1", "gs://b/x.csv", "hdfs://n:9/x.parquet"]
)
@pytest.mark.parametrize("form", [str, Path])
def test_an_address_is_named_as_it_was_given_and_the_remedy_is_said(url, form):
    with pytest.raises(InputError, match="download it first") as caught:
        files.local_path(form(url))
    assert str(caught.value).startswith(f"{url} is an address")
    with pytest.raises(InputError, match="copy it there") as caught:
        tables.write_table(form(url), {"a": [1]})
    assert str(caught.value).startswith(f"{url} is an address")


@pytest.mark.parametrize("form", [str, Path])
def test_an_address_of_a_file_is_that_file(form, tmp_path):
    url = form(f"file://{tmp_path}/t%20x.csv")
    tables.write_table(url, {"a": [1]})
    assert (tmp_path / "t x.csv").exists()
    assert tables.read_table(url, ["a"]).to_pydict() == {"a": [1]}
    assert tables.sha256_of(url) == tables.sha256_of(tmp_path / "t x.csv")


def test_a_file_whose_name_looks_like_an_address_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:").mkdir()
    tables.write_table(tmp_path / "s3:" / "t.csv", {"a": [1]})
    assert tables.read_table("s3:/t.csv", ["a"]).to_pydict() == {"a": [1]}
