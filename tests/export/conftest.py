from __future__ import annotations

import getpass
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from scored_rows import spark

__all__ = ["spark"]


class MariaDB:
    """A MariaDB server of this test run alone, behind a socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "socket"
        data = folder / "data"
        common = ["--no-defaults", f"--user={getpass.getuser()}", f"--datadir={data}", "--innodb-log-file-size=4M"]
        run = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(run, check=True, capture_output=True)
        serve = ["mariadbd", *common, f"--socket={self.socket}", "--skip-networking", f"--pid-file={folder / 'pid'}"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(serve, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(0.02)
        self.query("CREATE DATABASE tests")

    def query(self, text: str, charset: str = "utf8mb4") -> list[list[str]]:
        """Run statements, and return the rows of the answers as printed."""
        client = ["mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root"]
        client += ["--batch", "--raw", "--skip-column-names", f"--default-character-set={charset}"]
        client += [] if text.startswith("CREATE DATABASE") else ["tests"]
        done = subprocess.run(client, input=text.encode(), capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.decode())
        return [line.split("\t") for line in done.stdout.decode().splitlines()]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture(scope="session")
def mariadb():
    with tempfile.TemporaryDirectory() as folder:
        server = MariaDB(Path(folder))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def clickhouse():
    from chdb import session

    with session.Session() as found:
        yield found
