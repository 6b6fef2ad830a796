"""The common part of the paper's networks: scikit-learn's interface around a skorch network."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch.nn import Module

from evenhand.arguments import Seed
from evenhand.errors import InputError
from evenhand.inputs import read_weights
from evenhand.paper.models._checkpoint import open_checkpoint
from evenhand.paper.models._data import Examples, Inputs, stratified_holdout
from evenhand.paper.models._labels import Targets, decode, encode_like, read_targets
from evenhand.paper.models._net import Net, seeded, threads

FloatArray = NDArray[np.float64]


class NetworkClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The base class of the trained networks. A subclass defines how X is read and the module."""

    _threads: ClassVar[int | None] = None

    max_epochs: int
    batch_size: int
    lr: float
    lr_decay: float
    weight_decay: float
    validation: float | None
    patience: int | None
    monitor: str
    checkpoint: str | Path | None
    save_every: float
    device: str
    random_state: Seed
    verbose: int
    mixed_precision: bool = False

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: ArrayLike | None = None,
        validation_data: tuple[Any, Any] | None = None,
    ) -> Any:
        """Train the network.

        Parameters
        ----------
        X : array-like or sequence of file names
            The rows.
        y : array-like of shape (n,) or (n, heads)
            The classes: labels of any kind. Several columns make several heads on one body.
        sample_weight : array-like of shape (n,), default=None
            Each row's weight in the loss; a row of weight zero is ignored.
        validation_data : tuple (X, y), default=None
            Rows that choose the best epoch, instead of a share of X.

        Returns
        -------
        self
        """
        self._check_options()
        inputs = self._read_inputs(X, reset=True)
        targets = read_targets(y, len(inputs))
        weight = read_weights(sample_weight, len(inputs))
        counted = weight > 0.0
        if not counted.all():
            inputs = self._take_inputs(inputs, counted)
            targets, weight = targets.take(counted), weight[counted]
        for classes in targets.classes:
            if len(classes) < 2:
                raise InputError(f"y has only one class, {classes.tolist()[0]!r}: a classifier needs two.")
        held = None
        if validation_data is not None:
            held_inputs = self._read_inputs(validation_data[0], reset=False)
            held = (held_inputs, encode_like(validation_data[1], targets.classes, len(held_inputs)))
        return self._fit(inputs, targets, weight / weight.mean(), held)

    def _fit(
        self,
        inputs: Inputs,
        targets: Targets,
        weight: FloatArray,
        held: tuple[Inputs, NDArray[np.int64]] | None,
    ) -> Any:
        content = [self._content(inputs), targets.codes, weight]
        if held is not None:
            content += [self._content(held[0]), held[1]]
        checkpoint = open_checkpoint(self.checkpoint, type(self).__name__, self.get_params(deep=False), content)
        saved = None if checkpoint is None else checkpoint.load()
        seed = self._draw_seed() if saved is None else saved["seed"]
        rows = np.arange(len(inputs))
        valid = None
        if held is not None:
            valid = Examples(*held)
        elif self.validation is not None:
            strata = np.unique(targets.codes, axis=0, return_inverse=True)[1].ravel()
            rows, out = stratified_holdout(strata, self.validation, seed)
            valid = Examples(inputs, targets.codes, weight, out) if len(out) else None
        with seeded(seed, 2**31 + 1):
            module = self._make_module([len(classes) for classes in targets.classes])
        net = Net(
            module,
            seed=seed,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            lr_decay=self.lr_decay,
            optimizer=torch.optim.Adam,
            optimizer__weight_decay=self.weight_decay,
            optimizer__fused=True,
            patience=self.patience,
            monitor=self.monitor,
            checkpoint=checkpoint,
            save_every=self.save_every,
            progress=self.verbose > 0,
            mixed_precision=self.mixed_precision,
            device=self.device,
        )
        with threads(self._threads):
            self.net_ = net.train(Examples(inputs, targets.codes, weight, rows), valid, saved)
        self.classes_ = targets.classes[0] if len(targets.classes) == 1 else list(targets.classes)
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return each class's probability.

        Parameters
        ----------
        X : array-like or sequence of file names
            The rows.

        Returns
        -------
        array of shape (n, classes), float64
            For a network with several heads: a list of such arrays, as scikit-learn has it.
        """
        probabilities = self._predict_heads(X)
        return probabilities if isinstance(self.classes_, list) else probabilities[0]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return each row's most probable class (for several heads: one column each)."""
        codes = [p.argmax(axis=1) for p in self._predict_heads(X)]
        return decode(self._head_classes(), codes)

    def head(self, column: int) -> Head:
        """Return one head as a separate fitted classifier that shares this network.

        Parameters
        ----------
        column : int
            The column of y that the head learnt.
        """
        check_is_fitted(self)
        heads = len(self._head_classes())
        if not 0 <= column < heads:
            raise InputError(f"this network has {heads} heads; there is no head {column}.")
        return Head(self, column=column)

    def _predict_heads(self, X: Any) -> list[FloatArray]:
        check_is_fitted(self)
        inputs = self._read_inputs(X, reset=False)
        with threads(self._threads):
            logits = self.net_.forward(Examples(inputs))
        return [softmax(head.numpy().astype(np.float64), axis=1) for head in logits]

    def _head_classes(self) -> list[NDArray[Any]]:
        return self.classes_ if isinstance(self.classes_, list) else [self.classes_]

    def _draw_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_options(self) -> None:
        for name in ("max_epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)!r}.")
        if not self.lr > 0.0:
            raise InputError(f"lr must be positive; got {self.lr!r}.")
        if self.monitor not in ("loss", "accuracy"):
            raise InputError(f"monitor must be 'loss' or 'accuracy'; got {self.monitor!r}.")
        if self.validation is not None and not 0.0 < self.validation < 1.0:
            raise InputError(f"validation must be a share between 0 and 1, or None; got {self.validation!r}.")

    def _read_inputs(self, X: Any, *, reset: bool) -> Inputs:
        raise NotImplementedError

    def _take_inputs(self, inputs: Any, rows: NDArray[np.bool_]) -> Inputs:
        raise NotImplementedError

    def _content(self, inputs: Any) -> NDArray[Any]:
        raise NotImplementedError

    def _make_module(self, heads: list[int]) -> Module:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class Head(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One head of a fitted network with several, as a classifier. Freeze it to use it in another estimator.

    Parameters
    ----------
    network : MLP or ResNet18
        The fitted network.
    column : int
        The column of y that the head learnt.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.paper.models import MLP
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> group = np.where(X[:, 1] > 0, "a", "b")
    >>> network = MLP(max_epochs=2, random_state=0).fit(X, np.column_stack([y, group]))
    >>> network.head(1).classes_.tolist()
    ['a', 'b']
    """

    def __init__(self, network: Any, *, column: int) -> None:
        self.network = network
        self.column = column

    def fit(self, X: Any, y: Any = None) -> Head:
        """Raise, because a head is trained with its network."""
        raise InputError("a head is trained with its network: wrap it in sklearn.frozen.FrozenEstimator.")

    @property
    def classes_(self) -> NDArray[Any]:
        """The head's classes."""
        classes: NDArray[Any] = self.network._head_classes()[self.column]
        return classes

    def predict_proba(self, X: Any) -> FloatArray:
        """Return each class's probability, of shape (n, classes)."""
        probabilities: FloatArray = self.network._predict_heads(X)[self.column]
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """Return each row's most probable class."""
        return decode([self.classes_], [self.predict_proba(X).argmax(axis=1)])

    def __sklearn_is_fitted__(self) -> bool:
        return True
