"""Do probabilities keep their word? Predicted against observed shares, in bins of equally many rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.intervals import wilson_interval

BINS = 10


def reliability(
    predicted: FloatArray, happened: NDArray[np.bool_], *, confidence: float = 0.95, bins: int = BINS
) -> dict[str, Any]:
    """Return the mean prediction and the observed share in bins of equally many rows.

    Parameters
    ----------
    predicted : array of shape (n,)
        Probabilities.
    happened : array of shape (n,), bool
        Whether what they speak of was so.
    confidence : float, default=0.95
        The level of the observed shares' intervals.
    bins : int, default=10
        At most so many bins; rows with the same prediction stay together.

    Returns
    -------
    dict
        ``rows``, ``error`` (the mean distance between prediction and observation over the bins, weighted by
        rows) and ``bins``, each with ``predicted``, ``observed``, ``lower``, ``upper`` and ``rows``.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.report.calibration import reliability
    >>> found = reliability(np.array([0.25] * 4 + [0.75] * 4), np.array([1, 0, 0, 0, 1, 1, 1, 0], dtype=bool))
    >>> found["error"], [bin["observed"] for bin in found["bins"]]
    (0.0, [0.25, 0.75])
    """
    if len(predicted) == 0:
        return {"rows": 0, "error": None, "bins": []}
    edges = np.unique(np.quantile(predicted, np.linspace(0.0, 1.0, bins + 1)[1:-1]))
    place = np.searchsorted(edges, predicted, side="right")
    rows = np.bincount(place, minlength=len(edges) + 1)
    kept = rows > 0
    rows = rows[kept]
    hits = np.bincount(place, weights=happened, minlength=len(edges) + 1)[kept]
    means = np.bincount(place, weights=predicted, minlength=len(edges) + 1)[kept] / rows
    lower, upper = wilson_interval(hits, rows, confidence)
    error = float(np.abs(means - hits / rows) @ rows / rows.sum())
    names = ("predicted", "observed", "lower", "upper", "rows")
    table = zip(means.tolist(), (hits / rows).tolist(), lower.tolist(), upper.tolist(), rows.tolist(), strict=True)
    return {
        "rows": int(rows.sum()),
        "error": error,
        "bins": [dict(zip(names, row, strict=True)) for row in table],
    }
