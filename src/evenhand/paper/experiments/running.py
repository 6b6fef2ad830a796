"""Experiments in pieces: each is computed once, and stored in a file that is complete or absent."""

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


@dataclass(frozen=True, eq=False)
class Kept:
    """The result of a piece: rows of numbers, and arrays that other pieces need."""

    records: list[Record] = field(default_factory=list)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Unit:
    """One piece of an experiment.

    Parameters
    ----------
    name : str
        Its name, also for other units' ``needs``.
    work : callable
        Called as ``work(states, needed, **options)``, where ``states`` is a directory for checkpoints and
        ``needed`` has what the needed units kept. It returns a :class:`Kept`.
    options : mapping
        Plain values. Together with the needed units, they determine the result.
    needs : tuple of str, default=()
        The units whose results it uses.
    aside : mapping, default={}
        More options for ``work`` that do not affect the result, such as the number of threads.
    stage : int, default=0
        Units of a lower stage are computed first, and what they gave is reported before the next stage begins.
    """

    name: str
    work: Callable[..., Kept]
    options: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    aside: Mapping[str, Any] = field(default_factory=dict)
    stage: int = 0


class Store:
    """The stored pieces of an experiment, in a directory.

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
        """Return a piece, or None if it does not exist yet."""
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
        """Store a piece. Its JSON file is written last, after the files that it names."""
        path = self._path(key)
        if kept.arrays:
            with whole_or_nothing(path.with_suffix(".npz")) as draft, draft.open("wb") as file:
                np.savez(file, **kept.arrays)  # type: ignore[arg-type]
        content = {"records": kept.records, "arrays": sorted(kept.arrays), "seconds": kept.seconds}
        with whole_or_nothing(path) as draft:
            draft.write_text(json.dumps(content), encoding="utf-8")
        shutil.rmtree(self.states(key), ignore_errors=True)

    def states(self, key: str) -> Path:
        """Return the directory for the checkpoints of a piece's trainings, until it is done."""
        return self.directory / "states" / key

    def _path(self, key: str) -> Path:
        return self.directory / "units" / f"{key}.json"


def keys_of(units: Sequence[Unit]) -> dict[str, str]:
    """Return each unit's file name: its own, and a hash of everything that determines its result."""
    keys: dict[str, str] = {}
    for unit in units:
        content = [unit.name, __version__, dict(unit.options), [keys[name] for name in unit.needs]]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
        keys[unit.name] = f"{re.sub(r'[^a-z0-9.]+', '-', unit.name.lower()).strip('-')}-{digest[:10]}"
    return keys


def run(
    units: Sequence[Unit],
    store: Store,
    *,
    jobs: int = 1,
    say: Callable[[str], None] = lambda line: None,
    after_stage: Callable[[dict[str, Kept]], None] = lambda kept: None,
) -> dict[str, Kept]:
    """Compute the units that are not stored, and return the results of all, in order.

    A unit may need only units that come before it. ``after_stage`` is given what is there after each stage but the
    last, where that stage computed anything.
    """
    keys = keys_of(units)
    done = {unit.name for unit in units if store.load(keys[unit.name]) is not None}
    if done:
        say(f"{len(done)} of {len(units)} pieces are there already")
    *earlier, last = sorted({unit.stage for unit in units})
    for stage in (*earlier, last):
        due = [unit for unit in units if unit.stage == stage and unit.name not in done]
        while left := [unit for unit in due if unit.name not in done]:
            ready = [unit for unit in left if done.issuperset(unit.needs)]
            calls = (delayed(_compute)(unit, keys, store) for unit in ready)
            parallel = Parallel(n_jobs=min(jobs, len(ready)), return_as="generator_unordered")
            for name, seconds in parallel(calls):
                done.add(name)
                say(f"[{len(done)}/{len(units)}] {name}: {seconds:.1f} s")
        if due and stage != last:
            after_stage({unit.name: _present(store, keys[unit.name]) for unit in units if unit.name in done})
    return {unit.name: _present(store, keys[unit.name]) for unit in units}


def _compute(unit: Unit, keys: Mapping[str, str], store: Store) -> tuple[str, float]:
    needed = [_present(store, keys[name]) for name in unit.needs]
    started = time.perf_counter()
    # Sums in linear algebra depend on the number of threads, and workers have fewer: with one, all results agree.
    with threadpool_limits(1, user_api="blas"):
        found = unit.work(store.states(keys[unit.name]), needed, **unit.options, **unit.aside)
    seconds = time.perf_counter() - started
    store.save(keys[unit.name], Kept(found.records, found.arrays, seconds))
    return unit.name, seconds


def _present(store: Store, key: str) -> Kept:
    kept = store.load(key)
    if kept is None:
        raise InputError(f"{store.directory}: the piece {key} disappeared while the experiment ran.")
    return kept
