"""The paper's network for tables: one hidden layer, leaky ReLU, Adam, cross-entropy.

The published scripts also put a leaky ReLU on the output layer; here the output layer is linear, so that
its softmax can reach every distribution.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.nn import LeakyReLU, Linear, Module, ModuleList

from evenhand.arguments import Seed
from evenhand.errors import InputError
from evenhand.paper.models._data import Inputs, Table
from evenhand.paper.models._estimator import NetworkClassifier


class Perceptron(Module):
    """One hidden layer and a linear output for each head."""

    def __init__(self, n_features: int, hidden: int, heads: list[int], negative_slope: float) -> None:
        super().__init__()
        self.hidden = Linear(n_features, hidden)
        self.activation = LeakyReLU(negative_slope)
        self.heads = ModuleList([Linear(hidden, n_classes) for n_classes in heads])

    def features(self, X: Tensor) -> Tensor:
        """Return the hidden layer's values."""
        values: Tensor = self.activation(self.hidden(X))
        return values

    def forward(self, X: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of each head."""
        features = self.features(X)
        return tuple(head(features) for head in self.heads)


class MLP(NetworkClassifier):
    """A multilayer perceptron as the paper uses it on Adult (8 units) and COMPAS (16 units).

    It learns any classes: the label Y, the group A, or the joint label (Y, A) as four classes; several
    columns of y make several heads. It computes in float32 on one thread: the same ``random_state`` gives
    exactly the same parameters. Scale the features first, for example in a Pipeline.

    Parameters
    ----------
    hidden : int, default=8
        Units of the hidden layer.
    negative_slope : float, default=0.2
        The slope of the leaky ReLU below zero.
    max_epochs : int, default=100
        The maximum number of passes over the rows.
    batch_size : int, default=256
        Rows in a step.
    lr : float, default=0.001
        Adam's learning rate.
    lr_decay : float, default=0.998
        The factor of the learning rate after every epoch.
    weight_decay : float, default=0.0
        Adam's L2 penalty.
    validation : float, default=0.1
        The share of every class that is held out to choose the best epoch. ``None`` trains on all rows, for
        ``max_epochs``, and keeps the last epoch.
    patience : int, default=10
        Epochs without a better validation score before the training stops. ``None`` runs them all.
    monitor : {"loss", "accuracy"}, default="loss"
        The validation score whose best epoch is kept. The loss suits a model whose probabilities are used;
        the paper chose by accuracy.
    checkpoint : path, default=None
        A directory. A training that was interrupted continues from there and ends in exactly the same parameters; one
        that has ended is loaded instead of repeated. Different data or options are different files, so a cross-fit may
        share one directory.
    save_every : float, default=60.0
        Seconds between two saves of the checkpoint.
    device : str, default="cpu"
        torch's name of the device. Exact reproducibility is only guaranteed on a CPU.
    random_state : int, RandomState or None, default=None
        Determines the initial parameters, the held-out rows and the order of the rows.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : array, or a list of arrays for several heads
        The classes.
    net_ : skorch.NeuralNetClassifier
        The trained network; ``net_.history`` has the losses of every epoch.
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.paper.models import MLP
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where(X[:, 0] + X[:, 1] > 0, "hire", "reject")
    >>> model = MLP(lr=0.05, max_epochs=20, batch_size=32, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _threads: ClassVar[int | None] = 1

    def __init__(
        self,
        *,
        hidden: int = 8,
        negative_slope: float = 0.2,
        max_epochs: int = 100,
        batch_size: int = 256,
        lr: float = 1e-3,
        lr_decay: float = 0.998,
        weight_decay: float = 0.0,
        validation: float | None = 0.1,
        patience: int | None = 10,
        monitor: str = "loss",
        checkpoint: str | Path | None = None,
        save_every: float = 60.0,
        device: str = "cpu",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.negative_slope = negative_slope
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
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _check_options(self) -> None:
        super()._check_options()
        if self.hidden < 1:
            raise InputError(f"hidden must be at least 1; got {self.hidden!r}.")

    def _read_inputs(self, X: Any, *, reset: bool) -> Inputs:
        return Table(validate_data(self, X, reset=reset, dtype=np.float32))

    def _take_inputs(self, inputs: Any, rows: NDArray[np.bool_]) -> Inputs:
        return Table(inputs.X.numpy()[rows])

    def _content(self, inputs: Any) -> NDArray[Any]:
        content: NDArray[np.float32] = inputs.X.numpy()
        return content

    def _make_module(self, heads: list[int]) -> Module:
        return Perceptron(self.n_features_in_, self.hidden, heads, self.negative_slope)
