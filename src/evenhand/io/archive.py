"""The file format: a zip archive that is checked before anything in it is read.

Members are not compressed, so an archive cannot expand, and nothing is unpacked to disk, so a member's name has no
effect.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import ModelFormatError, require
from evenhand.io.allowed import present_name
from evenhand.versions import versions

FORMAT = "evenhand-estimator"
# Version 2 has boosted trees as members; a file without any is of version 1.
VERSION = 2
ABOUT = "evenhand.json"
# ".bin" members are bytes in a model's own format, such as those of XGBoost and CatBoost.
_MEMBER = re.compile(
    r"evenhand\.json|schema\.json|\d{1,20}\.(npy|npz)|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin"
    r"|rules/\d{1,9}\.json|networks/\d{1,9}\.(safetensors|json)|trees/\d{1,9}\.[a-z_]{1,40}\.npy"
)


def skops_io() -> Any:
    """Return skops.io, or raise an error that names the extra."""
    return require("Saving and loading classifiers", "io", "skops.io")


def pack(path: Path, tree: bytes, members: dict[str, bytes]) -> None:
    """Write a skops archive and its additions as one archive."""
    about = {
        "format": FORMAT,
        "version": VERSION if any(name.startswith("trees/") for name in members) else 1,
        "versions": versions("numpy", "scikit-learn"),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as target, zipfile.ZipFile(io.BytesIO(tree)) as source:
        target.writestr(ABOUT, json.dumps(about, indent=2))
        for name in source.namelist():
            target.writestr(name, source.read(name))
        for name, content in members.items():
            target.writestr(name, content)


@dataclass(frozen=True)
class Archive:
    """An archive whose members have been checked."""

    data: bytes

    @classmethod
    def open(cls, path: Path) -> Archive:
        """Read a file and check that it is an archive that :func:`pack` could have written."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise ModelFormatError(f"{path}: there is no such file.") from None
        except OSError as error:
            raise ModelFormatError(f"{path} cannot be read: {error.strerror}.") from None
        archive = cls(data)
        try:
            archive._check(path)
        except ModelFormatError:
            raise
        except Exception as error:
            raise ModelFormatError(
                f"{path} is not a file of evenhand.io.save, or was cut off: {' '.join(str(error).split())[:200]}."
            ) from None
        return archive

    def read(self, name: str) -> bytes:
        """Return a member's bytes."""
        with zipfile.ZipFile(io.BytesIO(self.data)) as source:
            return source.read(name)

    def names(self) -> set[str]:
        """Return the full name of every type that the archive names, trusted or not."""
        schema = json.loads(self.read("schema.json"))
        return {f"{node.get('__module__')}.{node['__class__']}" for node in _nodes(schema) if "__class__" in node}

    def with_present_names(self) -> Archive:
        """Return the archive with present module names in place of earlier ones."""
        schema = json.loads(self.read("schema.json"))
        changed = False
        for node in _nodes(schema):
            module = node.get("__module__")
            if isinstance(module, str) and (now := present_name(module)) != module:
                node["__module__"] = now
                changed = True
        if not changed:
            return self
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as target, zipfile.ZipFile(io.BytesIO(self.data)) as source:
            for name in source.namelist():
                target.writestr(name, json.dumps(schema) if name == "schema.json" else source.read(name))
        return Archive(written.getvalue())

    def _check(self, path: Path) -> None:
        with zipfile.ZipFile(io.BytesIO(self.data)) as source:
            members = source.infolist()
            names = [member.filename for member in members]
            if ABOUT not in names:
                raise ModelFormatError(f"{path} was not written by evenhand.io.save.")
            for member in members:
                if not _MEMBER.fullmatch(member.filename):
                    raise ModelFormatError(f"{path} has a member {member.filename[:80]!r}, which is not expected.")
                if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                    raise ModelFormatError(
                        f"{path} has a compressed or encrypted member: evenhand.io.save writes none."
                    )
            if len(set(names)) != len(names) or sum(member.file_size for member in members) > len(self.data):
                raise ModelFormatError(f"{path} declares sizes larger than the file, or repeats a member.")
            about = json.loads(source.read(ABOUT))
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ModelFormatError(f"{path} was not written by evenhand.io.save.")
        version = about.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise ModelFormatError(f"{path} has the version {version!r}; it must be a whole number.")
        if version > VERSION:
            raise ModelFormatError(
                f"{path} has version {version}, but this evenhand reads versions up to {VERSION}: update evenhand."
            )


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every dict of a schema."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
