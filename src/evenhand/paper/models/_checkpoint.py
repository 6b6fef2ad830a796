"""The state of a training in one file, which is complete or absent even if the process is killed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evenhand.errors import InputError
from evenhand.files import write_error

FORMAT = 1

# These do not affect the result: they may change between an interruption and its continuation.
HOW = frozenset({"checkpoint", "save_every", "verbose", "device", "workers"})


def open_checkpoint(
    directory: str | Path | None, name: str, settings: Mapping[str, Any], arrays: Iterable[Any]
) -> Checkpoint | None:
    """Return the checkpoint of a training with these parameters and data; None without a directory."""
    if directory is None:
        return None
    return Checkpoint(Path(directory), fingerprint(name, _deciding(settings), arrays))


def _deciding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that determine the result, including those of nested estimators."""
    kept = {name: value for name, value in settings.items() if name not in HOW}
    if not isinstance(kept.get("random_state"), int | np.integer):
        # Without a number for a seed, the seed of the first run is in the file.
        kept.pop("random_state", None)
    return {
        name: _deciding(value.get_params(deep=False)) if hasattr(value, "get_params") else value
        for name, value in kept.items()
    }


def fingerprint(name: str, settings: Mapping[str, object], arrays: Iterable[Any]) -> str:
    """Return a text that two trainings share exactly if they must end in the same parameters."""
    digest = hashlib.sha256(f"{FORMAT}:{name}".encode())
    digest.update(json.dumps({key: repr(value) for key, value in sorted(settings.items())}).encode())
    for values in arrays:
        array = np.ascontiguousarray(values)
        digest.update(f"{array.dtype.kind}{array.shape}".encode())
        if array.dtype == object:
            digest.update(json.dumps([str(value) for value in array.ravel()]).encode())
        else:
            digest.update(array.view(np.uint8).data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """The file of one training in a directory that any number of trainings may share.

    Parameters
    ----------
    directory : path
        Created if it does not exist.
    key : str
        The training's fingerprint. It names the file, so that the folds of a cross-fit have different files.
    """

    directory: Path
    key: str

    @property
    def path(self) -> Path:
        """The file itself."""
        return self.directory / f"{self.key[:32]}.pt"

    def load(self) -> dict[str, Any] | None:
        """Return the saved state, or None if there is none yet. Nothing in the file is executed."""
        if not self.path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
            readable = state["format"] == FORMAT and state["key"] == self.key
        except Exception as error:
            raise InputError(
                f"the checkpoint {self.path} cannot be read ({type(error).__name__}): "
                "delete it to train from the beginning."
            ) from error
        if not readable:
            raise InputError(f"the checkpoint {self.path} belongs to another training: delete it or move it away.")
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the file in one step: an interruption leaves either the old or the new one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            with draft.open("wb") as file:
                torch.save({"format": FORMAT, "key": self.key, **state}, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        except OSError as error:
            raise write_error(self.path, error) from error
        finally:
            draft.unlink(missing_ok=True)
