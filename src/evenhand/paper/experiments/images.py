"""CelebA as the experiments use it: ResNet-18's probabilities on the official split."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.paper.datasets import CelebA, load_celeba
from evenhand.paper.experiments.running import Kept, Settings
from evenhand.paper.experiments.splits import FloatArray, Rows

LINES = 5000
QUICK_ROWS = 200
PARTS = ("train", "validation", "test")


def options_of(settings: Settings) -> dict[str, Any]:
    """Return what decides the result of a unit on images."""
    return {
        "directory": str(settings.data),
        "weights": settings.weights,
        "device": settings.device,
        "quick": settings.quick,
    }


def network(states: Path, *, seed: int, quick: bool, weights: str, device: str, **options: Any) -> Any:
    """Return ResNet-18 with the paper's preprocessing and Adam; 20 epochs and the stopping rule are ours."""
    from evenhand.paper.models import ResNet18

    settings: dict[str, Any] = {"weights": weights, "max_epochs": 20, "patience": 5}
    if quick:
        settings = {"weights": None, "max_epochs": 1, "image_size": 32, "batch_size": 32}
    # A quick training is over before its checkpoint is written.
    return ResNet18(**settings | options, device=device, checkpoint=None if quick else states, random_state=seed)


@cache
def load(directory: str, target: str, sensitive: str) -> CelebA:
    """Return the rows whose image is there."""
    with warnings.catch_warnings():
        # The report says how many images are absent.
        warnings.simplefilter("ignore")
        return load_celeba(directory, target=target, sensitive=sensitive)


def parts(directory: str, target: str, sensitive: str, *, quick: bool) -> list[NDArray[np.intp]]:
    """Return the rows of the official split."""
    return [rows[:QUICK_ROWS] if quick else rows for rows in load(directory, target, sensitive).splits()]


def cells(data: CelebA) -> NDArray[np.int64]:
    """Return each row's cell: label * 2 + group, where group 1 has the sensitive attribute."""
    return 2 * data.y + groups(data)


def groups(data: CelebA) -> NDArray[np.int64]:
    """Return each row's group: 1 where the sensitive attribute is present."""
    (name,) = data.sensitive
    return np.asarray(data.group == name, dtype=np.int64)


def train(
    states: Path,
    needed: Sequence[Kept],
    *,
    directory: str,
    target: str,
    sensitive: str,
    seed: int,
    quick: bool,
    learns: str,
    weights: str,
    device: str,
    **options: Any,
) -> Kept:
    """Train a network on Y, A or the four cells; keep its probabilities of validation and test rows."""
    data = load(directory, target, sensitive)
    rows = parts(directory, target, sensitive, quick=quick)
    wanted = {"y": data.y, "group": groups(data), "cell": cells(data)}[learns]
    model = network(states, seed=seed, quick=quick, weights=weights, device=device, **options)
    model.fit(data.X[rows[0]], wanted[rows[0]])
    arrays = {name: model.predict_proba(data.X[at]) for name, at in zip(PARTS[1:], rows[1:], strict=True)}
    counted = np.array([*map(len, rows), len(data.absent)])
    return Kept(
        arrays={**arrays, "rows": counted, "priors": np.bincount(cells(data)[rows[0]], minlength=4) / len(rows[0])}
    )


def rows_of(
    part: str, p_y: FloatArray, p_group: FloatArray, *, directory: str, target: str, sensitive: str, quick: bool
) -> Rows:
    """Return the rows of a part with their probabilities."""
    data = load(directory, target, sensitive)
    at = parts(directory, target, sensitive, quick=quick)[PARTS.index(part)]
    return Rows(data.y[at], groups(data)[at], p_y, p_group)


def rows_note(kept: Mapping[str, Kept]) -> str:
    """Return how many rows were used, and how many images are absent."""
    train, validation, test, absent = next(found.arrays["rows"] for found in kept.values() if "rows" in found.arrays)
    return (
        f"CelebA: {train:,} training, {validation:,} validation and {test:,} test images are used;"
        f" {absent:,} listed images are not in the directory."
    )
