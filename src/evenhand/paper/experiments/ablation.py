"""The common part of ``corrupted`` and ``regularised``: p(Y|x) and p(A|x) on Adult, and on CelebA if it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evenhand.paper.experiments import images, splits
from evenhand.paper.experiments.running import Kept, Unit
from evenhand.paper.experiments.settings import Settings
from evenhand.paper.experiments.splits import FloatArray, Rows

TITLES = {"adult": "Adult", "celeba": "CelebA (Attractive, Male)"}
TASK = {"target": "Attractive", "sensitive": "Male"}


def data_sets(settings: Settings) -> tuple[str, ...]:
    """Return the available data sets."""
    return ("adult",) if settings.images.data is None else ("adult", "celeba")


def where(data: str, settings: Settings) -> dict[str, Any]:
    """Return the options by which a unit finds its rows."""
    place = {"quick": settings.quick} if data == "adult" else {**TASK, **images.where(settings)}
    return {"data": data, **place}


def training(data: str, seed: int, settings: Settings) -> list[Unit]:
    """Return the units that train p(Y|x) and p(A|x) of a seed: one on Adult, two on CelebA."""
    if data == "adult":
        options = {"data": data, "criterion": "dp", "seed": seed, "quick": settings.quick}
        return [Unit(f"adult, seed {seed}: models", splits.train_holdout, options)]
    common = {**TASK, **images.options_of(settings), "seed": seed}
    aside = images.running_of(settings)
    return [
        Unit(f"celeba, seed {seed}: ResNet-18 of {what}", images.train, {**common, "learns": what}, aside=aside)
        for what in ("y", "group")
    ]


def probabilities(
    data: str, needed: Sequence[Kept], *, seed: int, quick: bool, **place: Any
) -> tuple[Rows, Rows, FloatArray]:
    """Return validation and test rows with their probabilities, and the training set's group shares."""
    if data == "adult":
        learn, test = splits.read_rows(needed[0], data=data, criterion="dp", seed=seed, quick=quick, way="hold-out")
        return learn, test, needed[0].arrays["priors"]
    label, group = (found.arrays for found in needed[:2])
    learn, test = (
        images.rows_of(part, label[part][:, 1], group[part], quick=quick, **place) for part in images.PARTS[1:]
    )
    return learn, test, np.asarray(label["priors"].reshape(2, 2).sum(axis=0))


def notes(kept: Mapping[str, Kept], settings: Settings) -> list[str]:
    """Return a note on CelebA, if it was used."""
    used = any("rows" in found.arrays for found in kept.values())
    return [images.rows_note(kept), images.start_note(settings)] if used else []
