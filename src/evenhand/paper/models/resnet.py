"""ResNet-18 on images that stream from the disk, with the paper's preprocessing."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Linear, Module, ModuleList

from evenhand.arguments import Seed
from evenhand.errors import EvenhandWarning, InputError
from evenhand.paper.models._data import Inputs
from evenhand.paper.models._estimator import NetworkClassifier
from evenhand.paper.models._images import CentreSquare, ImageFiles, read_paths
from evenhand.paper.models._require import require

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)
FEATURES = 512
_SHAPE = {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, FEATURES], "layer_type": "basic"}


class ImageNetwork(Module):
    """ResNet-18's body on raw pixels, and a linear output for each head."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, body: Module, heads: list[int]) -> None:
        super().__init__()
        self.body = body
        self.heads = ModuleList([Linear(FEATURES, n_classes) for n_classes in heads])
        for name, values in (("mean", IMAGENET_MEAN), ("deviation", IMAGENET_DEVIATION)):
            self.register_buffer(name, 255.0 * torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    def features(self, pixels: Tensor) -> Tensor:
        """Return the 512 features of images of shape (n, height, width, 3) with values 0 to 255."""
        scaled = (pixels.permute(0, 3, 1, 2).float() - self.mean) / self.deviation
        features: Tensor = self.body(scaled).pooler_output.flatten(1)
        return features

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of each head."""
        features = self.features(pixels)
        return tuple(head(features) for head in self.heads)


def has_weights(weights: str) -> bool:
    """Return whether weights can be loaded without a network: from a directory, or from the hub's cache."""
    if Path(weights).is_dir():
        return True
    hub = require("huggingface_hub", "ResNet18")
    try:
        return isinstance(hub.try_to_load_from_cache(weights, "config.json"), str)
    except ValueError:  # not a name that the hub could have
        return False


def load_body(weights: str | Path | None, *, local_files_only: bool = True) -> Module:
    """Return ResNet-18 without its output layer.

    Parameters
    ----------
    weights : path, name on the Hugging Face hub, or None
        A directory as ``save_pretrained`` writes it, or a name that the hub's cache may hold. A name that
        is not in the cache gives random parameters and a warning; None asks for random parameters.
    local_files_only : bool, default=True
        Whether to avoid the network. False lets transformers download a name.
    """
    transformers = require("transformers", "ResNet18")
    if weights is not None:
        directory = Path(weights)
        if not directory.is_dir() and (isinstance(weights, Path) or directory.is_absolute()):
            raise InputError(f"there is no directory {directory}: give one that save_pretrained wrote.")
        try:
            model = transformers.ResNetForImageClassification.from_pretrained(
                str(weights), local_files_only=local_files_only or directory.is_dir()
            )
        except OSError as error:
            if directory.is_dir():
                raise InputError(f"{directory} has no weights that transformers can read: {error}") from error
            warnings.warn(
                f"ResNet-18 is trained from scratch: {str(weights)!r} is neither a directory nor in the "
                "hub's cache. Give weights=DIRECTORY, or local_files_only=False to download it.",
                EvenhandWarning,
                stacklevel=2,
            )
        else:
            shape = {name: getattr(model.config, name) for name in _SHAPE}
            if shape != _SHAPE:
                raise InputError(f"{weights} is not a ResNet-18: it has {shape}, not {_SHAPE}.")
            loaded: Module = model.resnet
            return loaded
    fresh: Module = transformers.ResNetForImageClassification(transformers.ResNetConfig(**_SHAPE)).resnet
    return fresh


class ResNet18(NetworkClassifier):
    """ResNet-18 as the paper trains it on CelebA: X is a sequence of image file names.

    Images are opened when their batch comes, so memory does not depend on their number. The preprocessing is
    the paper's: a centre square, 128 pixels, a random mirror image, ImageNet's mean and deviation. y has the
    label Y, the group A, the joint label (Y, A) as four classes, or two columns for two heads.

    Parameters
    ----------
    weights : path, name on the Hugging Face hub, or None, default="microsoft/resnet-18"
        ImageNet's parameters to start from: a directory, or a name that the hub's cache holds. If the cache
        does not have it, the network starts from random parameters, and a warning says so. ``None`` asks
        for that.
    local_files_only : bool, default=True
        Whether to avoid the network. False lets transformers download ``weights``.
    image_size : int, default=128
        Pixels of the network's input.
    crop : float, default=128/178
        The centre square as a share of the image's shorter side: 128 pixels of CelebA's 178, and the same
        region of CelebA at any other size.
    flip : bool, default=True
        Whether half of the images, drawn anew in every epoch, are mirrored while training.
    max_epochs : int, default=100
        The most passes over the rows.
    batch_size : int, default=256
        Images in a step.
    lr : float, default=0.001
        Adam's learning rate.
    lr_decay : float, default=0.998
        What the learning rate is multiplied by after every epoch.
    weight_decay : float, default=0.001
        Adam's L2 penalty, as in the authors' configuration.
    validation : float, default=0.1
        The share of every class that is held out to choose the best epoch. ``None`` trains on all rows, for
        ``max_epochs``, and keeps the last epoch.
    patience : int, default=10
        Epochs without a better validation score before the training stops. ``None`` runs them all.
    monitor : {"loss", "accuracy"}, default="loss"
        The validation score whose best epoch is kept. The paper chose by accuracy.
    checkpoint : path, default=None
        A directory; see :class:`MLP`.
    save_every : float, default=300.0
        Seconds between two saves of the checkpoint.
    workers : int, default=2
        Threads that decode images while the network computes.
    mixed_precision : bool, default=False
        Whether to compute in bfloat16 where torch holds that to be safe: about twice as fast on a recent GPU.
    device : str, default="cpu"
        torch's name of the device. Equality to the bit is promised on a CPU with the same number of threads.
    random_state : int, RandomState or None, default=None
        Decides the initial parameters, the held-out rows, the order of the rows and the mirror images.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : array, or a list of arrays for several heads
        The classes.
    net_ : skorch.NeuralNetClassifier
        The trained network; ``net_.history`` has the losses of every epoch.

    Examples
    --------
    >>> from evenhand.paper.models import ResNet18
    >>> model = ResNet18(max_epochs=30, checkpoint="states", random_state=0, verbose=1)
    >>> model.fit(paths, joint_labels).predict_proba(new_paths)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        weights: str | Path | None = "microsoft/resnet-18",
        local_files_only: bool = True,
        image_size: int = 128,
        crop: float = 128 / 178,
        flip: bool = True,
        max_epochs: int = 100,
        batch_size: int = 256,
        lr: float = 1e-3,
        lr_decay: float = 0.998,
        weight_decay: float = 1e-3,
        validation: float | None = 0.1,
        patience: int | None = 10,
        monitor: str = "loss",
        checkpoint: str | Path | None = None,
        save_every: float = 300.0,
        workers: int = 2,
        mixed_precision: bool = False,
        device: str = "cpu",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.weights = weights
        self.local_files_only = local_files_only
        self.image_size = image_size
        self.crop = crop
        self.flip = flip
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.lr_decay = lr_decay
        self.weight_decay = weight_decay
        self.validation = validation
        self.patience = patience
        self.monitor = monitor
        self.checkpoint = checkpoint
        self.save_every = save_every
        self.workers = workers
        self.mixed_precision = mixed_precision
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _check_options(self) -> None:
        super()._check_options()
        if not 0.0 < self.crop <= 1.0:
            raise InputError(f"crop must be a share of the shorter side, in (0, 1]; got {self.crop!r}.")
        if self.image_size < 32:
            raise InputError(f"image_size must be at least 32 pixels for ResNet-18; got {self.image_size!r}.")

    def _read_inputs(self, X: Any, *, reset: bool) -> Inputs:
        return ImageFiles(read_paths(X), CentreSquare(self.image_size, self.crop, self.flip), self.workers)

    def _take_inputs(self, inputs: Any, rows: NDArray[np.bool_]) -> Inputs:
        return ImageFiles(inputs.paths[rows], inputs.transform, inputs.workers)

    def _content(self, inputs: Any) -> NDArray[Any]:
        paths: NDArray[np.object_] = inputs.paths
        return paths

    def _make_module(self, heads: list[int]) -> Module:
        return ImageNetwork(load_body(self.weights, local_files_only=self.local_files_only), heads)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags
