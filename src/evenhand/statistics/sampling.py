"""Stratified sampling of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def stratified_share(cells: Sequence[NDArray[np.intp]], share: float, rng: np.random.RandomState) -> NDArray[np.bool_]:
    """Return a mask of the held-out rows: the given share of each combination of cells, within one row."""
    order = rng.permutation(len(cells[0]))
    order = order[np.argsort(strata(cells)[order], kind="stable")]
    steps = np.floor(np.arange(len(order) + 1) * share + 0.5)
    held = np.zeros(len(order), dtype=bool)
    held[order] = np.diff(steps) > 0.0
    return held


def strata(cells: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    """Return one number for each combination of cells."""
    return np.unique(np.stack(cells, axis=1), axis=0, return_inverse=True)[1].reshape(-1).astype(np.intp)
