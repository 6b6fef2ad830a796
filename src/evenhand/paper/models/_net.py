"""A skorch network whose training can be interrupted at any time and resumed to exactly the same parameters.

All state that determines the result is stored: the order of the rows and the augmentation of an epoch are functions of
(seed, epoch), torch's own generator starts every epoch from (seed, epoch), and a checkpoint contains the parameters,
the optimiser, the generator, the history and the best epoch so far.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.history import History
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from evenhand.errors import InputError
from evenhand.paper.models._checkpoint import Checkpoint
from evenhand.paper.models._data import Batch, Examples, chunks_in_order, shuffled_chunks

# In a log file, the progress bar writes one line a minute.
SECONDS_BETWEEN_LINES = 60.0


@contextmanager
def seeded(*seed: int) -> Iterator[None]:
    """Run a block from its own seed, and restore torch's generators afterwards."""
    with torch.random.fork_rng():
        _seed_torch(*seed)
        yield


def _seed_torch(*seed: int) -> None:
    torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]))


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Run a block on ``count`` threads of torch (None: all available).

    The order of a floating-point sum depends on the threads: one thread makes a small network's
    training the same on every machine size and in every worker of a cross-fit, and faster.
    """
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class WeightedCrossEntropy(Module):
    """The mean over rows of weight times cross-entropy, summed over the heads."""

    def forward(self, logits: Sequence[Tensor], codes: Tensor, weight: Tensor) -> Tensor:
        """Return the loss of a batch."""
        losses = [cross_entropy(head, codes[:, k], reduction="none") for k, head in enumerate(logits)]
        return (torch.stack(losses).sum(dim=0) * weight).mean()

    def accuracy(self, logits: Sequence[Tensor], codes: Tensor, weight: Tensor) -> float:
        """Return the weighted share of right classes, averaged over the heads."""
        right = torch.stack([head.argmax(dim=1) == codes[:, k] for k, head in enumerate(logits)])
        return float((right.float().mean(dim=0) * weight).mean())


class Net(NeuralNetClassifier):  # type: ignore[misc]
    """The base of every estimator here.

    Parameters
    ----------
    module : torch.nn.Module
        The network with its initial parameters.
    seed : int
        Determines all further randomness.
    patience : int, default=None
        Epochs without a better validation score before the training stops. ``None`` never stops early.
    monitor : {"loss", "accuracy"}, default="loss"
        The validation score whose best epoch is kept.
    lr_decay : float, default=1.0
        The learning rate is multiplied by this after every epoch.
    checkpoint : Checkpoint, default=None
        Where to save the state.
    save_every : float, default=60.0
        Seconds between two saves.
    progress : bool, default=False
        Whether to show a bar.
    mixed_precision : bool, default=False
        Whether the module computes in bfloat16 where torch considers that safe; parameters, outputs and losses stay
        in float32.
    **kwargs
        skorch's own parameters.
    """

    def __init__(
        self,
        module: Module,
        *,
        seed: int = 0,
        patience: int | None = None,
        monitor: str = "loss",
        lr_decay: float = 1.0,
        checkpoint: Checkpoint | None = None,
        save_every: float = 60.0,
        progress: bool = False,
        mixed_precision: bool = False,
        criterion: type[Module] = WeightedCrossEntropy,
        train_split: None = None,
        verbose: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(module, criterion=criterion, train_split=train_split, verbose=verbose, **kwargs)
        self.seed = seed
        self.patience = patience
        self.monitor = monitor
        self.lr_decay = lr_decay
        self.checkpoint = checkpoint
        self.save_every = save_every
        self.progress = progress
        self.mixed_precision = mixed_precision

    def train(self, train: Examples, valid: Examples | None, saved: dict[str, Any] | None = None) -> Net:
        """Train to the end, from the beginning or from a checkpoint's state."""
        self.initialize()
        self.epoch_, self.batch_, self.stale_, self.finished_ = 0, 0, 0, False
        self.best_: dict[str, Any] | None = None
        with torch.random.fork_rng():
            if saved is not None:
                self._restore(saved)
            if not self.finished_:
                self.notify("on_train_begin")
                self.fit_loop((train, valid))
                self.notify("on_train_end")
        return self

    def fit_loop(self, X: Any, y: Any = None, epochs: int | None = None, **fit_params: Any) -> Net:
        """Run the remaining epochs. ``X`` is the pair (training rows, validation rows or None)."""
        train, valid = X
        n_batches = len(chunks_in_order(train.rows, self.batch_size))
        self.saved_at_ = time.monotonic()
        total, done = self.max_epochs * n_batches, self.epoch_ * n_batches + self.batch_
        every = 0.1 if sys.stderr.isatty() else SECONDS_BETWEEN_LINES
        with tqdm(total=total, initial=done, disable=not self.progress, unit="batch", mininterval=every) as self.bar_:
            while not self._is_over():
                self._run_epoch(train, valid)
        del self.bar_
        if self.best_ is not None:
            self.module_.load_state_dict(self.best_["module"])
        self.finished_ = True
        if self.checkpoint is not None:
            self.checkpoint.save(self._state())
        return self

    def _run_epoch(self, train: Examples, valid: Examples | None) -> None:
        if self.batch_ == 0:
            _seed_torch(self.seed, self.epoch_)
            self.notify("on_epoch_begin", dataset_train=train, dataset_valid=valid)
        for group in self.optimizer_.param_groups:
            group["lr"] = self.learning_rate(self.epoch_)
        chunks = shuffled_chunks(train.rows, self.batch_size, self.seed, self.epoch_)[self.batch_ :]
        batches = train.batches(chunks, (self.seed, self.epoch_))
        self.run_single_epoch(batches, training=True, prefix="train", step_fn=self.train_step)
        self.history.record("train_batch_count", self.batch_)
        train_loss = self._record_mean("train_loss", "train_batch_size")
        if not math.isfinite(train_loss):
            raise InputError(
                f"the training diverged in epoch {self.epoch_ + 1} (its loss is {train_loss}): "
                "scale the features, or lower lr."
            )
        if valid is not None:
            self._validate(valid)
        self.notify("on_epoch_end", dataset_train=train, dataset_valid=valid)
        self.epoch_, self.batch_ = self.epoch_ + 1, 0
        if not self._is_over():
            self._save_if_due()

    def _validate(self, valid: Examples) -> None:
        batches = valid.batches(chunks_in_order(valid.rows, self.batch_size))
        self.run_single_epoch(batches, training=False, prefix="valid", step_fn=self.validation_step)
        score = -self._record_mean("valid_loss", "valid_batch_size")
        accuracy = self._record_mean("valid_accuracy", "valid_batch_size")
        score = accuracy if self.monitor == "accuracy" else score
        if self.best_ is None or score > self.best_["score"]:
            module = {name: value.detach().cpu().clone() for name, value in self.module_.state_dict().items()}
            self.best_ = {"epoch": self.epoch_, "score": score, "module": module}
            self.stale_ = 0
        else:
            self.stale_ += 1

    def _is_over(self) -> bool:
        stale = self.patience is not None and self.stale_ >= self.patience
        return stale or self.epoch_ >= self.max_epochs

    def learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        return float(self.lr * self.lr_decay**epoch)

    def infer(self, x: Tensor, **fit_params: Any) -> Any:
        """Return the module's outputs, in mixed precision if requested."""
        if not self.mixed_precision:
            return super().infer(x, **fit_params)
        with torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16):
            found = super().infer(x, **fit_params)
        return found.float() if isinstance(found, Tensor) else tuple(part.float() for part in found)

    def get_loss(self, y_pred: Any, y_true: tuple[Tensor, Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """Return the criterion's value on a batch."""
        loss: Tensor = self.criterion_(y_pred, *(part.to(self.device) for part in y_true))
        return loss

    def validation_step(self, batch: Batch, **fit_params: Any) -> dict[str, Any]:
        """Return loss and outputs of a validation batch, and record its accuracy."""
        step: dict[str, Any] = super().validation_step(batch, **fit_params)
        targets = (part.to(self.device) for part in batch[1])
        self.history.record_batch("valid_accuracy", self.criterion_.accuracy(step["y_pred"], *targets))
        return step

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        """Count the batch, and save if it is time."""
        if training:
            self.batch_ += 1
            self.bar_.update()
            self._save_if_due()

    def get_iterator(self, dataset: Examples, training: bool = False) -> Iterator[Batch]:
        """Return the batches of a prediction."""
        return dataset.batches(chunks_in_order(dataset.rows, self.batch_size))

    @property
    def _default_callbacks(self) -> list[tuple[str, Any]]:
        return []

    def _record_mean(self, name: str, size: str) -> float:
        batches = [b for b in self.history[-1]["batches"] if name in b]
        mean: float = math.fsum(b[name] * b[size] for b in batches) / sum(b[size] for b in batches)
        self.history.record(name, mean)
        self.bar_.set_postfix({"epoch": self.epoch_ + 1, name: round(mean, 4)}, refresh=False)
        return mean

    def _save_if_due(self) -> None:
        if self.checkpoint is not None and time.monotonic() - self.saved_at_ >= self.save_every:
            self.checkpoint.save(self._state())
            self.saved_at_ = time.monotonic()

    def _state(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "epoch": self.epoch_,
            "batch": self.batch_,
            "stale": self.stale_,
            "best": self.best_,
            "finished": self.finished_,
            "module": self.module_.state_dict(),
            "optimizer": self.optimizer_.state_dict(),
            "generator": torch.get_rng_state(),
            "history": json.dumps(list(self.history)),
        }

    def _restore(self, saved: dict[str, Any]) -> None:
        self.epoch_, self.batch_, self.stale_ = saved["epoch"], saved["batch"], saved["stale"]
        self.best_, self.finished_ = saved["best"], saved["finished"]
        self.module_.load_state_dict(saved["module"])
        self.optimizer_.load_state_dict(saved["optimizer"])
        self.history_ = History(json.loads(saved["history"]))
        torch.set_rng_state(saved["generator"])
