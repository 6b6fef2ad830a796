"""Calibration of the probabilities: predicted against observed shares, in bins of equal weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.statistics.intervals import effective_counts, wilson_interval

BINS = 10


def reliability(
    predicted: FloatArray,
    happened: NDArray[np.bool_],
    weights: FloatArray | None = None,
    *,
    confidence: float = 0.95,
    bins: int = BINS,
) -> dict[str, Any]:
    """Return the mean prediction and the observed share in bins of equal weight.

    Parameters
    ----------
    predicted : array of shape (n,)
        Probabilities.
    happened : array of shape (n,), bool
        Whether each predicted event occurred.
    weights : array of shape (n,), default=None
        The weights of the rows; ``None`` counts each as 1. Intervals use Kish's effective sample size.
    confidence : float, default=0.95
        The level of the observed shares' intervals.
    bins : int, default=10
        The maximum number of bins; rows with the same prediction stay together.

    Returns
    -------
    dict
        ``rows``, ``error`` (the mean distance between prediction and observation over the bins, weighted by
        their weights) and ``bins``, each with ``predicted``, ``observed``, ``lower``, ``upper`` and ``rows``.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.statistics.calibration import reliability
    >>> found = reliability(np.array([0.25] * 4 + [0.75] * 4), np.array([1, 0, 0, 0, 1, 1, 1, 0], dtype=bool))
    >>> found["error"], [bin["observed"] for bin in found["bins"]]
    (0.0, [0.25, 0.75])
    """
    weights = np.ones(len(predicted)) if weights is None else weights
    if not weights.sum() > 0.0:
        return {"rows": len(predicted), "error": None, "bins": []}
    place = _bins_of(predicted, weights, bins)
    mass, hits, sums, squares = (
        np.bincount(place, weights=values) for values in (weights, weights * happened, weights * predicted, weights**2)
    )
    kept = mass > 0.0
    rows = np.bincount(place)[kept]
    mass, hits, sums, squares = mass[kept], hits[kept], sums[kept], squares[kept]
    means, shares = sums / mass, hits / mass
    lower, upper = wilson_interval(*effective_counts(hits, mass, squares), confidence)
    error = float(np.abs(means - shares) @ mass / mass.sum())
    names = ("predicted", "observed", "lower", "upper", "rows")
    table = zip(*(column.tolist() for column in (means, shares, lower, upper, rows)), strict=True)
    return {
        "rows": int(rows.sum()),
        "error": error,
        "bins": [dict(zip(names, row, strict=True)) for row in table],
    }


def calibration_error(predicted: FloatArray, happened: NDArray[np.bool_], weights: FloatArray | None = None) -> float:
    """Return the expected calibration error: the mean distance between prediction and observation over the bins."""
    error = reliability(predicted, happened, weights)["error"]
    return float("nan") if error is None else float(error)


def _bins_of(predicted: FloatArray, weights: FloatArray, bins: int) -> NDArray[np.intp]:
    """Return each row's bin: all have the same weight, as far as equal predictions allow."""
    order = np.argsort(predicted, kind="stable")
    reached = np.cumsum(weights[order])
    # Rounding of a sum must not move a row over an edge.
    wanted = reached[-1] * np.arange(1, bins) / bins * (1.0 - 1e-12)
    edges = np.unique(predicted[order][np.searchsorted(reached, wanted)])
    found: NDArray[np.intp] = np.searchsorted(edges, predicted, side="left")
    return found
