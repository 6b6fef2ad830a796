"""Experiments in pieces: each is computed once, kept in a file that is whole or absent, and found there again."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from evenhand._version import __version__
from evenhand.errors import InputError
from evenhand.files import whole_or_nothing, write_error

Record = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How experiments are run.

    Parameters
    ----------
    output : path
        The directory for everything that is written.
    seeds : int, default=3
        Independent repetitions.
    first_seed : int, default=0
        The first one's seed; the others follow.
    authors : bool, default=False
        Whether networks on Adult and COMPAS are trained as the authors' code trains them, instead of with the learning
        rate and stopping rule that were chosen here (:func:`evenhand.paper.experiments.splits.network`).
    quick : bool, default=False
        Whether to run on few rows, for few epochs: it shows that everything works, and its numbers mean nothing.
    data : path, default=None
        CelebA's directory.
    clip : path or name on the Hugging Face hub, default="openai/clip-vit-base-patch32"
        CLIP's weights.
    weights : path or name on the Hugging Face hub, default="microsoft/resnet-18"
        ImageNet's weights, from which ResNet-18 starts.
    device : str, default="cpu"
        torch's name of the device for images.
    jobs : int, default=1
        Pieces that are computed at the same time. It does not change the result.
    """

    output: Path
    seeds: int = 3
    first_seed: int = 0
    authors: bool = False
    quick: bool = False
    data: Path | None = None
    clip: str = "openai/clip-vit-base-patch32"
    weights: str = "microsoft/resnet-18"
    device: str = "cpu"
    jobs: int = 1

    def __post_init__(self) -> None:
        for name in ("seeds", "jobs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.first_seed < 0:
            raise InputError(f"first_seed must not be negative; got {self.first_seed}.")

    @property
    def seed_numbers(self) -> range:
        """The seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def trained(self) -> dict[str, bool]:
        """What a unit that trains on Adult or COMPAS is told besides its data; nothing for our own settings."""
        return {"authors": True} if self.authors else {}


@dataclass(frozen=True, eq=False)
class Kept:
    """What a piece computed: rows of numbers, and arrays that other pieces need."""

    records: list[Record] = field(default_factory=list)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Unit:
    """One piece of an experiment.

    Parameters
    ----------
    name : str
        For people, and for other units' ``needs``.
    work : callable
        Called as ``work(states, needed, **options)``, where ``states`` is a directory for checkpoints and
        ``needed`` has what the needed units kept. It returns a :class:`Kept`.
    options : mapping
        Plain values. With them and the needed units' own, the result is decided.
    needs : tuple of str, default=()
        The units whose results it uses.
    """

    name: str
    work: Callable[..., Kept]
    options: Mapping[str, Any]
    needs: tuple[str, ...] = ()


class Store:
    """The kept pieces of an experiment, in a directory.

    A piece's file is named after everything that decides its content. So other options never meet an old
    result, and going back to the old options finds it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for part in ("units", "states"):
            try:
                (directory / part).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise write_error(directory, error) from None

    def load(self, key: str) -> Kept | None:
        """Return a piece, or None where it is not there yet."""
        path = self._path(key)
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            arrays = {}
            if content["arrays"]:
                with np.load(path.with_suffix(".npz")) as file:
                    arrays = {name: file[name] for name in content["arrays"]}
            return Kept(content["records"], arrays, content["seconds"])
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{path} is damaged ({error}): delete it, and it is computed again.") from None

    def save(self, key: str, kept: Kept) -> None:
        """Keep a piece. Its JSON file comes last: what it names is there."""
        path = self._path(key)
        if kept.arrays:
            with whole_or_nothing(path.with_suffix(".npz")) as draft, draft.open("wb") as file:
                np.savez(file, **kept.arrays)  # type: ignore[arg-type]
        content = {"records": kept.records, "arrays": sorted(kept.arrays), "seconds": kept.seconds}
        with whole_or_nothing(path) as draft:
            draft.write_text(json.dumps(content), encoding="utf-8")
        shutil.rmtree(self.states(key), ignore_errors=True)

    def states(self, key: str) -> Path:
        """Return where a piece keeps the checkpoints of its trainings, until it is done."""
        return self.directory / "states" / key

    def _path(self, key: str) -> Path:
        return self.directory / "units" / f"{key}.json"


def keys_of(units: Sequence[Unit]) -> dict[str, str]:
    """Return each unit's file name: its own, and a hash of all that decides its result."""
    keys: dict[str, str] = {}
    for unit in units:
        content = [unit.name, __version__, dict(unit.options), [keys[name] for name in unit.needs]]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
        keys[unit.name] = f"{re.sub(r'[^a-z0-9.]+', '-', unit.name.lower()).strip('-')}-{digest[:10]}"
    return keys


def run(
    units: Sequence[Unit], store: Store, *, jobs: int = 1, say: Callable[[str], None] = lambda line: None
) -> dict[str, Kept]:
    """Compute the units that the store does not have, and return what all of them kept, in order.

    A unit may need only units that come before it.
    """
    keys = keys_of(units)
    done = {unit.name for unit in units if store.load(keys[unit.name]) is not None}
    if done:
        say(f"{len(done)} of {len(units)} pieces are there already")
    while len(done) < len(units):
        ready = [unit for unit in units if unit.name not in done and done.issuperset(unit.needs)]
        calls = (delayed(_compute)(unit, keys, store) for unit in ready)
        parallel = Parallel(n_jobs=min(jobs, len(ready)), return_as="generator_unordered")
        for name, seconds in parallel(calls):
            done.add(name)
            say(f"[{len(done)}/{len(units)}] {name}: {seconds:.1f} s")
    return {unit.name: _present(store, keys[unit.name]) for unit in units}


def _compute(unit: Unit, keys: Mapping[str, str], store: Store) -> tuple[str, float]:
    needed = [_present(store, keys[name]) for name in unit.needs]
    started = time.perf_counter()
    # Sums in linear algebra depend on its threads, and workers have fewer: one makes every number of jobs agree.
    with threadpool_limits(1, user_api="blas"):
        found = unit.work(store.states(keys[unit.name]), needed, **unit.options)
    seconds = time.perf_counter() - started
    store.save(keys[unit.name], Kept(found.records, found.arrays, seconds))
    return unit.name, seconds


def _present(store: Store, key: str) -> Kept:
    kept = store.load(key)
    if kept is None:
        raise InputError(f"{store.directory}: the piece {key} disappeared while the experiment ran.")
    return kept
