"""CelebA as the experiments use it: ResNet-18's probabilities on the official split."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.paper.datasets import CelebA, load_celeba
from evenhand.paper.experiments.published import CELEBA
from evenhand.paper.experiments.running import Kept
from evenhand.paper.experiments.settings import Settings
from evenhand.paper.experiments.splits import FloatArray, Rows

LINES = 5000
QUICK_ROWS = 200
IMAGENET = "microsoft/resnet-18"
RANDOM = "none"
PARTS = ("train", "validation", "test")


def options_of(settings: Settings) -> dict[str, Any]:
    """Return the options that determine the result of a training on images, independent of paths and devices."""
    return {**where(settings), "training": training_of(settings)}


def where(settings: Settings) -> dict[str, Any]:
    """Return where the rows are, and whether all of them are used."""
    return {"directory": str(Path(settings.images.data or ".").expanduser().resolve()), "quick": settings.quick}


def training_of(settings: Settings) -> dict[str, Any]:
    """Return ResNet-18's parameters: the paper's preprocessing and Adam; 20 epochs and the stopping rule are ours."""
    asked = settings.images
    device = _device(asked.device)
    mixed = device == "cuda" if asked.mixed_precision is None else asked.mixed_precision
    found: dict[str, Any] = {"weights": start_of(settings), "device": device, "mixed_precision": mixed}
    if settings.quick:
        return found | {"weights": None, "max_epochs": 1, "image_size": 32, "batch_size": 32}
    chosen = {"max_epochs": asked.epochs, "image_size": asked.image_size, "batch_size": asked.batch_size}
    return found | {"max_epochs": 20, "patience": 5} | {name: n for name, n in chosen.items() if n is not None}


def running_of(settings: Settings) -> dict[str, Any]:
    """Return the options that do not change the result of a training."""
    asked = settings.images
    return {"running": {"device": asked.device, "workers": asked.workers, "verbose": 0 if settings.quick else 1}}


def start_of(settings: Settings) -> str | None:
    """Return the weights that ResNet-18 starts from; None for random parameters."""
    from evenhand.paper.models.resnet import has_weights

    asked = settings.images.weights
    if asked == RANDOM or (asked is None and not has_weights(IMAGENET)):
        return None
    if asked is None:
        return IMAGENET
    if not has_weights(asked):
        raise InputError(
            f"--weights {asked}: there is no such directory, and the Hugging Face cache has no such name. Give a"
            f" directory that save_pretrained wrote, or --weights {RANDOM} to train from scratch."
        )
    return str(Path(asked).resolve()) if Path(asked).is_dir() else asked


def start_note(settings: Settings) -> str:
    """Return what ResNet-18 started from, in a sentence."""
    start = start_of(settings)
    if start is not None and not settings.quick:
        return f"ResNet-18 starts from the weights {start}."
    why = "" if settings.images.weights == RANDOM else f": {IMAGENET} is not in the Hugging Face cache"
    return f"ResNet-18 is trained from scratch{'' if settings.quick else why}."


def check(settings: Settings) -> None:
    """Raise if a device or weights are missing, before anything is trained."""
    _device(settings.images.device)
    start_of(settings)


def verify(settings: Settings, say: Callable[[str], None]) -> None:
    """Decode every image once, and raise where some cannot be decoded."""
    from evenhand.paper.models import find_unreadable

    target, sensitive = next(iter(CELEBA))
    paths = load(where(settings)["directory"], target, sensitive).X
    say(f"decoding {len(paths):,} images")
    if broken := find_unreadable(paths, workers=settings.images.workers):
        shown = ", ".join(f"{name} ({reason})" for name, reason in broken[:5])
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        raise InputError(
            f"{len(broken):,} of {len(paths):,} images cannot be decoded: {shown}{more}. Get them again, or delete"
            " them: absent images are left out and counted."
        )
    say(f"all {len(paths):,} images can be decoded")


def _device(name: str) -> str:
    """Return the kind of an available device."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"--device {name}: PyTorch knows no such device; use cpu or cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"--device {name}: PyTorch {torch.__version__} sees no CUDA device. Use --device cpu, or install a build of"
            " PyTorch for your GPU."
        )
    return device.type


def network(
    states: Path, *, seed: int, quick: bool, training: Mapping[str, Any], running: Mapping[str, Any], **options: Any
) -> Any:
    """Return the ResNet-18 that a unit trains."""
    from evenhand.paper.models import ResNet18

    # A quick training is over before its checkpoint is written.
    checkpoint = None if quick else states
    return ResNet18(**{**training, **running, **options}, checkpoint=checkpoint, random_state=seed)


@cache
def load(directory: str, target: str, sensitive: str) -> CelebA:
    """Return the rows whose image exists."""
    with warnings.catch_warnings():
        # The report lists how many images are missing.
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
    training: Mapping[str, Any],
    running: Mapping[str, Any],
    **options: Any,
) -> Kept:
    """Train a network on Y, A or the four cells; keep its probabilities of validation and test rows."""
    data = load(directory, target, sensitive)
    rows = parts(directory, target, sensitive, quick=quick)
    wanted = {"y": data.y, "group": groups(data), "cell": cells(data)}[learns]
    model = network(states, seed=seed, quick=quick, training=training, running=running, **options)
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
