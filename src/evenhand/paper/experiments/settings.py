"""The settings of experiments: the options of ``evenhand reproduce``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from evenhand.errors import InputError


@dataclass(frozen=True)
class ImageSettings:
    """How experiments on images are run. None takes the experiment's own choice.

    Parameters
    ----------
    data : path, default=None
        CelebA's directory.
    clip : path or name on the Hugging Face hub, default="openai/clip-vit-base-patch32"
        CLIP's weights.
    weights : path, name on the Hugging Face hub, "none" or None, default=None
        ImageNet's weights, from which ResNet-18 starts; "none" starts from random parameters. None takes
        microsoft/resnet-18 where the hub's cache has it, and random parameters elsewhere.
    device : str, default="cpu"
        torch's name of the device.
    tasks : tuple of str, default=()
        The tasks of celeba-eo as ``target/sensitive``; none means all six.
    without : tuple of str, default=()
        The baselines of celeba-eo to leave out.
    epochs : int, default=None
        The maximum number of epochs of a training.
    image_size : int, default=None
        Pixels of the network's input.
    batch_size : int, default=None
        Images in a step.
    workers : int, default=2
        Threads that decode images.
    mixed_precision : bool, default=None
        Whether networks compute in bfloat16 where that is safe. None does on a GPU.
    verify : bool, default=False
        Whether every image is decoded once before anything is trained.
    """

    data: Path | None = None
    clip: str = "openai/clip-vit-base-patch32"
    weights: str | None = None
    device: str = "cpu"
    tasks: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    epochs: int | None = None
    image_size: int | None = None
    batch_size: int | None = None
    workers: int = 2
    mixed_precision: bool | None = None
    verify: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "image_size", "batch_size", "workers"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"{name} must be at least 1; got {value}.")


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
        Whether to run on few rows, for few epochs: it shows that everything works; its numbers are meaningless.
    jobs : int, default=1
        Pieces that are computed at the same time. It does not change the result.
    images : ImageSettings, default=ImageSettings()
        How experiments on images are run.
    """

    output: Path
    seeds: int = 3
    first_seed: int = 0
    authors: bool = False
    quick: bool = False
    jobs: int = 1
    images: ImageSettings = field(default_factory=ImageSettings)

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
        """The extra options of a unit that trains on Adult or COMPAS; empty for our own settings."""
        return {"authors": True} if self.authors else {}
