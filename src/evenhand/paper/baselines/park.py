"""P22: Park et al. (2022), Fair Contrastive Learning for Facial Attribute Classification.

Two stages. An encoder and a projection are trained by the fair supervised contrastive loss (see
``_contrastive.py``): SGD with momentum 0.9, a cosine schedule, temperature 0.1, two random views of each
image. Then the encoder is frozen and a linear output layer is trained by cross-entropy.

Deviations: the encoder is that of any network of ``evenhand.paper.models`` (their ResNet-18 starts from random
parameters: ``ResNet18(weights=None)``). A table has one view, because there is no mirror image of a row;
the other rows of its label are its positives. The group-wise normalisation gives equal weight to every
group among an anchor's positives and to every cell (label, group) among the anchors; the authors' code
divides both by the size of the anchor's own cell.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from torch.nn.functional import normalize

from evenhand.arguments import Seed
from evenhand.errors import InputError
from evenhand.inputs import SensitiveFeatures
from evenhand.paper.baselines._base import Baseline, Codes, FloatArray
from evenhand.paper.baselines._contrastive import ContrastiveLoss, TwoViews
from evenhand.paper.models._checkpoint import Checkpoint, open_checkpoint
from evenhand.paper.models._data import Examples, Inputs
from evenhand.paper.models._estimator import NetworkClassifier
from evenhand.paper.models._images import ImageFiles
from evenhand.paper.models._net import Net, seeded, threads


class Projector(Module):
    """An encoder's features, projected onto the unit sphere; a view is an axis of its input."""

    def __init__(self, encoder: Any, n_features: int, size: int, views: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.projection = Sequential(Linear(n_features, n_features), ReLU(), Linear(n_features, size))
        self.views = views

    def forward(self, X: Tensor) -> Tensor:
        """Return projections of shape (n, views, size)."""
        flat = X.flatten(0, 1) if self.views > 1 else X
        projected: Tensor = self.projection(self.encoder.features(flat))
        return normalize(projected, dim=1).reshape(-1, self.views, projected.shape[1])


class FrozenEncoder(Module):
    """A linear output layer on a frozen encoder."""

    def __init__(self, encoder: Any, n_features: int) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.output = Linear(n_features, 2)

    def train(self, mode: bool = True) -> FrozenEncoder:
        """Keep the encoder in evaluation mode: its batch statistics are frozen, too."""
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, X: Tensor) -> tuple[Tensor]:
        """Return the logits."""
        with torch.no_grad():
            features = self.encoder.features(X)
        return (self.output(features),)


class CosineNet(Net):
    """A learning rate that decreases to zero along half a cosine."""

    def learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        return float(self.lr * 0.5 * (1.0 + math.cos(math.pi * epoch / self.max_epochs)))


def _two_views(inputs: Inputs) -> tuple[int, Inputs]:
    """Return the number of views of a row, and the inputs that show them."""
    if not isinstance(inputs, ImageFiles):
        return 1, inputs
    transform: Any = inputs.transform
    return 2, ImageFiles(inputs.paths, TwoViews(transform.size), inputs.workers)


class FairContrastive(Baseline):
    """Features made independent of the group by a fair contrastive loss, and a linear output (Park et al. 2022).

    Parameters
    ----------
    network : ResNet18 or MLP
        The encoder, how X is read, the device and precision, and how often a checkpoint is saved. Its own training
        options are not used.
    temperature : float, default=0.1
        The temperature of the loss.
    group_normalised : bool, default=True
        Whether groups have equal weight regardless of their size (FSCL+, which the paper compares with).
    projection : int, default=128
        The size of the projections that are compared.
    epochs : int, default=100
        Passes of the first stage.
    batch_size : int, default=128
        Rows in a step.
    lr : float, default=0.1
        The initial learning rate of the first stage.
    weight_decay : float, default=0.0001
        The L2 penalty of the first stage.
    output_epochs : int, default=10
        Passes of the second stage.
    output_lr : float, default=0.01
        Adam's learning rate in the second stage.
    checkpoint : path, default=None
        A directory; see :class:`evenhand.paper.models.MLP`.
    random_state : int, RandomState or None, default=None
        Determines the initial parameters, the order of the rows and the views.
    verbose : int, default=0
        Whether to show progress bars.

    Attributes
    ----------
    classes_ : array
        The negative and the positive label.
    groups_ : tuple
        The groups.
    projector_ : skorch.NeuralNetClassifier
        The first stage; ``projector_.history`` has its losses.
    net_ : skorch.NeuralNetClassifier
        The second stage.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.paper.baselines import FairContrastive
    >>> from evenhand.paper.models import MLP
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=200)
    >>> X = rng.normal(size=(200, 2)) + group[:, None]
    >>> y = (X[:, 0] > 0.5).astype(int)
    >>> fair = FairContrastive(MLP(hidden=16), epochs=5, output_lr=0.1, random_state=0)
    >>> bool(fair.fit(X, y, sensitive_features=group).score(X, y) > 0.7)
    True
    """

    paper: ClassVar[str] = "P22"

    def __init__(
        self,
        network: NetworkClassifier,
        *,
        temperature: float = 0.1,
        group_normalised: bool = True,
        projection: int = 128,
        epochs: int = 100,
        batch_size: int = 128,
        lr: float = 0.1,
        weight_decay: float = 1e-4,
        output_epochs: int = 10,
        output_lr: float = 0.01,
        checkpoint: str | Path | None = None,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.network = network
        self.temperature = temperature
        self.group_normalised = group_normalised
        self.projection = projection
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.output_epochs = output_epochs
        self.output_lr = output_lr
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, sensitive_features: SensitiveFeatures | None) -> FairContrastive:
        """Train the encoder by the contrastive loss, then the output layer by cross-entropy.

        Parameters
        ----------
        X : array-like or sequence of file names
            The rows, as the network reads them.
        y : array-like
            Labels of two values; the larger is positive.
        sensitive_features : array-like, Series or one-column frame
            Each row's group.
        """
        if not self.temperature > 0.0:
            raise InputError(f"temperature must be positive; got {self.temperature!r}.")
        labels, groups = self._read(y, sensitive_features)
        self.network_ = clone(self.network).set_params(random_state=self.random_state)
        inputs = self.network_._read_inputs(X, reset=True)
        if len(inputs) != len(labels):
            raise InputError(f"X has {len(inputs)} rows, y has {len(labels)}.")
        with threads(self.network_._threads):
            self._fit(inputs, np.column_stack([labels, groups]))
        return self

    def _fit(self, inputs: Inputs, codes: Codes) -> None:
        first, second = (self._open_checkpoint(stage, inputs, codes) for stage in (1, 2))
        saved = None if first is None else first.load()
        seed = self.network_._draw_seed() if saved is None else saved["seed"]
        shared = {
            "seed": seed,
            "batch_size": self.batch_size,
            "device": self.network_.device,
            "save_every": self.network_.save_every,
            "progress": self.verbose > 0,
            "mixed_precision": self.network_.mixed_precision,
        }
        views, shown = _two_views(inputs)
        with seeded(seed, 2**31 + 1):
            encoder: Any = self.network_._make_module([2])
            n_features = encoder.heads[0].in_features
            projector = Projector(encoder, n_features, self.projection, views)
        self.projector_ = CosineNet(
            projector,
            criterion=ContrastiveLoss,
            criterion__temperature=self.temperature,
            criterion__group_normalised=self.group_normalised,
            max_epochs=self.epochs,
            lr=self.lr,
            optimizer=torch.optim.SGD,
            optimizer__momentum=0.9,
            optimizer__weight_decay=self.weight_decay,
            checkpoint=first,
            **shared,
        ).train(Examples(shown, codes), None, saved)
        with seeded(seed, 2**31 + 2):
            output = FrozenEncoder(encoder, n_features)
        self.net_ = Net(
            output,
            max_epochs=self.output_epochs,
            lr=self.output_lr,
            optimizer=torch.optim.Adam,
            checkpoint=second,
            **shared,
        ).train(Examples(inputs, codes), None, None if second is None else second.load())

    def _open_checkpoint(self, stage: int, inputs: Inputs, codes: Codes) -> Checkpoint | None:
        settings = self.get_params(deep=False) | {"network": self.network_}
        if stage == 1:
            settings = {name: value for name, value in settings.items() if not name.startswith("output_")}
        content = [self.network_._content(inputs), codes]
        return open_checkpoint(self.checkpoint, f"{type(self).__name__}-{stage}", settings, content)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the encoder's features, on which the output layer decides."""
        check_is_fitted(self)
        examples = Examples(self.network_._read_inputs(X, reset=False))
        module = self.net_.module_.eval()
        parts = []
        with threads(self.network_._threads), torch.no_grad():
            for batch, _ in self.net_.get_iterator(examples):
                parts.append(module.encoder.features(batch.to(self.network_.device)).cpu().numpy())
        return np.concatenate(parts)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of the two classes."""
        check_is_fitted(self)
        with threads(self.network_._threads):
            (logits,) = self.net_.forward(Examples(self.network_._read_inputs(X, reset=False)))
        probabilities: FloatArray = softmax(logits.numpy().astype(np.float64), axis=1)
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the decisions."""
        codes = self.predict_proba(X).argmax(axis=1)
        decided: NDArray[Any] = self.classes_[codes]
        return decided
