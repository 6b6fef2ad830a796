"""Batches of rows for a network, in an order that depends only on seed and epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

Rows = NDArray[np.intp]
Batch = tuple[Tensor, tuple[Tensor, Tensor]]


class Inputs(Protocol):
    """The input of a network: a table in memory, or images on disk."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def read(self, chunks: Sequence[Rows], augmentation: tuple[int, int] | None = None) -> Iterator[Tensor]:
        """Yield one tensor for each chunk of rows; ``augmentation`` is (seed, epoch) while training."""
        ...


class Table:
    """A float32 matrix in memory."""

    def __init__(self, X: NDArray[np.float32]) -> None:
        self.X = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))

    def __len__(self) -> int:
        return len(self.X)

    def read(self, chunks: Sequence[Rows], augmentation: tuple[int, int] | None = None) -> Iterator[Tensor]:
        """Yield the rows of each chunk."""
        for rows in chunks:
            yield self.X[torch.from_numpy(rows)]


class Examples(Dataset[Tensor]):
    """Some rows of the inputs, with their targets.

    Parameters
    ----------
    inputs : Inputs
        The network's inputs.
    codes : array of shape (n, heads), default=None
        Each row's class by head. ``None`` while predicting.
    weight : array of shape (n,), default=None
        Each row's weight in the loss. ``None`` means ones.
    rows : array, default=None
        The rows that are used. ``None`` means all.
    """

    def __init__(
        self,
        inputs: Inputs,
        codes: NDArray[np.int64] | None = None,
        weight: NDArray[np.float64] | None = None,
        rows: Rows | None = None,
    ) -> None:
        n = len(inputs)
        self.inputs = inputs
        self.codes = torch.from_numpy(np.zeros((n, 1), dtype=np.int64) if codes is None else codes)
        self.weight = torch.from_numpy(np.ones(n) if weight is None else weight).to(torch.float32)
        self.rows = np.arange(n) if rows is None else rows

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, chunks: Sequence[Rows], augmentation: tuple[int, int] | None = None) -> Iterator[Batch]:
        """Yield (inputs, (codes, weights)) for each chunk of row numbers."""
        for rows, X in zip(chunks, self.inputs.read(chunks, augmentation), strict=True):
            index = torch.from_numpy(rows)
            yield X, (self.codes[index], self.weight[index])


def chunks_in_order(rows: Rows, batch_size: int) -> list[Rows]:
    """Return the rows cut into batches, none of them a single row unless there is only one."""
    cuts = list(range(0, len(rows), batch_size))
    if len(cuts) > 1 and len(rows) - cuts[-1] == 1:
        # Batch normalisation has no variance to estimate in a batch of one.
        cuts.pop()
    return [rows[start:stop] for start, stop in zip(cuts, [*cuts[1:], len(rows)], strict=True)]


def shuffled_chunks(rows: Rows, batch_size: int, seed: int, epoch: int) -> list[Rows]:
    """Return an epoch's batches, which depend only on seed and epoch."""
    return chunks_in_order(np.random.default_rng([seed, epoch]).permutation(rows), batch_size)


def stratified_holdout(strata: NDArray[np.int64], share: float, seed: int) -> tuple[Rows, Rows]:
    """Return the rows to train on and the rows to hold out: ``share`` of every stratum, rounded down."""
    order = np.random.default_rng([seed, 2**31]).permutation(len(strata))
    held = np.zeros(len(strata), dtype=bool)
    for stratum in np.unique(strata):
        members = order[strata[order] == stratum]
        held[members[: int(share * len(members))]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
