"""Rows whose scores nearly coincide share a plane: the leaves of a tree after averaging, or in single precision.

Their differences have no meaning, but they would create so many narrow cells that no search ends. Margins and contrasts
that agree within ``CLOSE`` of their largest size over all rows are therefore replaced by their mean. The size makes
the resolution independent of the units of a column.

This is done only if it at least halves the number of planes. Scores that are merely dense stay unchanged, and so do
rows whose scores are all tiny, for which such a difference is large.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.problem import Problem, largest_of

CLOSE = 2.0**-18
TINY = 2.0**-10
SHARE_WITH_NEIGHBOURS = 0.25
ROWS_FOR_A_LOOK = 4096


def share_planes(problem: Problem) -> Problem:
    """Return the problem with one margin and one set of contrasts for rows that nearly coincide, if they are many."""
    if not _coincide(*_scaled(problem, max(1, len(problem.margin) // ROWS_FOR_A_LOOK))[:2]):
        return problem
    scores, ordinary, sizes = _scaled(problem, 1)
    codes = _codes(scores[ordinary])
    count = np.bincount(codes)
    means = np.column_stack([np.bincount(codes, column) / count for column in scores[ordinary].T])
    means[np.abs(means) <= CLOSE] = 0.0
    shared = np.column_stack([problem.margin, problem.contrasts])
    shared[ordinary] = means[codes] * sizes
    return replace(problem, margin=shared[:, 0], contrasts=shared[:, 1:], decider=None)


def _scaled(problem: Problem, stride: int) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
    """Return margins and contrasts in units of their largest size, which of those rows are not tiny, and the sizes."""
    scores = np.column_stack([problem.margin[::stride], problem.contrasts[::stride]])
    sizes = np.abs(scores).max(axis=0, initial=0.0)
    scores /= np.where(sizes > 0.0, sizes, 1.0)
    return scores, largest_of(list(np.abs(scores).T)) > TINY, sizes


def _coincide(scores: FloatArray, ordinary: NDArray[np.bool_]) -> bool:
    """Return whether sharing planes would at least halve their number."""
    scores = scores[ordinary]
    if max(_share_of_neighbours(column) for column in scores.T) < SHARE_WITH_NEIGHBOURS:
        return False
    return int(_codes(scores).max(initial=-1)) + 1 <= 0.5 * len(np.unique(scores, axis=0))


def _share_of_neighbours(column: FloatArray) -> float:
    """Return how many of the distinct values of a column have another one close above them."""
    gaps = np.diff(np.sort(column))
    gaps = gaps[gaps > 0.0]
    return float(np.mean(gaps <= CLOSE)) if gaps.size else 0.0


def _codes(scores: FloatArray) -> NDArray[np.intp]:
    """Return the plane of each row: one for rows whose columns all fall into the same interval of length ``CLOSE``."""
    codes = np.zeros(len(scores), dtype=np.intp)
    for column in scores.T:
        order = np.argsort(column, kind="stable")
        ascending = column[order]
        begins = np.concatenate([[True], np.diff(ascending) > CLOSE])
        # A run without a gap may be long: it is split at multiples of the interval.
        start = ascending[begins][np.cumsum(begins) - 1]
        begins[1:] |= np.diff(np.floor((ascending - start) / CLOSE)) > 0.0
        interval = np.empty(len(column), dtype=np.intp)
        interval[order] = np.cumsum(begins) - 1
        _, codes = np.unique(codes * (interval.max(initial=0) + 1) + interval, return_inverse=True)
    return codes
