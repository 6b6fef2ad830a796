"""What the bias scores look like: a plane for two scores, a histogram for one, a projection for more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.rule import Rule

POINTS = 900
BINS = 48
SEEN = 0.85
FURTHEST = 3.0


def picture_bias(
    scores: FloatArray, codes: NDArray[np.intp], groups: Sequence[str], rules: Sequence[Rule], seed: int = 0
) -> dict[str, Any]:
    """Return what a chart of bias scores shows, for all rules along a frontier.

    Parameters
    ----------
    scores : array of shape (n, K)
        The bias scores, which are the same for every rule of a frontier.
    codes : array of shape (n,)
        Each row's group as an index; -1 where it is unknown.
    groups : sequence of str
        The groups' names.
    rules : sequence of Rule
        The rules; only their z and the names of their terms are used.
    seed : int, default=0
        Which rows are drawn where there are too many to show.

    Returns
    -------
    dict
        ``kind`` is "plane" (K = 2), "histogram" (K = 1) or "projection" (K > 2); see
        :func:`evenhand.report.summarize`.
    """
    names = [term.name for term in rules[0].terms]
    weights = np.array([rule.z for rule in rules])
    common = {"terms": names, "groups": list(groups), "rows": len(scores)}
    if len(names) == 2:
        return {"kind": "plane", **common, **_plane(scores, codes, weights, seed)}
    if len(names) == 1:
        return {"kind": "histogram", **common, **_histogram(scores[:, 0], codes, len(groups), weights[:, 0])}
    return {"kind": "projection", **common, **_projection(scores, weights)}


def _limit(values: FloatArray, boundaries: FloatArray) -> float:
    """Return how far an axis goes: most of the rows, and the nearest boundaries, are seen."""
    sizes = np.abs(values[np.isfinite(values)])
    far = float(np.quantile(sizes, SEEN)) if len(sizes) else 1.0
    near = np.sort(boundaries[np.isfinite(boundaries)])
    reach = 1.6 * float(near[len(near) // 2]) if len(near) else 0.0
    limit = max(far, min(reach, 2.5 * far))
    return round_up(limit) if limit > 0.0 else 1.0


def round_up(value: float) -> float:
    """Return the next number of one or two digits, so that an axis ends on something readable.

    Examples
    --------
    >>> from evenhand.report.bias import round_up
    >>> round_up(3.21), round_up(0.087)
    (3.5, 0.09)
    """
    size = 10.0 ** np.floor(np.log10(value))
    return float(f"{np.ceil(value / size * 2.0) / 2.0 * size:.3g}")


def _plane(scores: FloatArray, codes: NDArray[np.intp], weights: FloatArray, seed: int) -> dict[str, Any]:
    with np.errstate(divide="ignore"):
        limits = [_limit(scores[:, k], np.abs(1.0 / weights[:, k])) for k in (0, 1)]
    inside = (np.abs(scores) <= limits).all(axis=1)
    shown = np.flatnonzero(inside)
    if len(shown) > POINTS:
        shown = np.sort(np.random.default_rng(seed).choice(shown, POINTS, replace=False))
    points = [
        [float(f"{s1:.4g}"), float(f"{s2:.4g}"), int(code)]
        for (s1, s2), code in zip(scores[shown].tolist(), codes[shown].tolist(), strict=True)
    ]
    return {
        "limits": limits,
        "outside": int((~inside).sum()),
        "points": points,
        "lines": [clip_line(z.tolist(), limits) for z in weights],
    }


def clip_line(z: Sequence[float], limits: Sequence[float]) -> list[float] | None:
    """Return the part of the line ``z . s = 1`` inside a box around 0, as x1, y1, x2, y2; None where outside.

    Examples
    --------
    >>> from evenhand.report.bias import clip_line
    >>> clip_line([1.0, 0.0], [2.0, 3.0])
    [1.0, -3.0, 1.0, 3.0]
    >>> clip_line([0.1, 0.1], [2.0, 3.0]) is None
    True
    """
    (a, b), (width, height) = z, limits
    ends: list[tuple[float, float]] = []
    if b != 0.0:
        ends += [(x, (1.0 - a * x) / b) for x in (-width, width)]
    if a != 0.0:
        ends += [((1.0 - b * y) / a, y) for y in (-height, height)]
    slack = 1.0 + 1e-9
    inside = sorted({(x, y) for x, y in ends if abs(x) <= width * slack and abs(y) <= height * slack})
    if len(inside) < 2:
        return None
    return [*map(float, inside[0]), *map(float, inside[-1])]


def _histogram(scores: FloatArray, codes: NDArray[np.intp], n_groups: int, weights: FloatArray) -> dict[str, Any]:
    with np.errstate(divide="ignore"):
        thresholds = 1.0 / weights
    limit = _limit(scores, np.abs(thresholds))
    edges = np.linspace(-limit, limit, BINS + 1)
    shares = []
    for group in range(n_groups):
        mine = scores[codes == group]
        counted = np.histogram(np.clip(mine, -limit, limit), edges)[0]
        shares.append((counted / max(len(mine), 1)).tolist())
    return {
        "edges": edges.tolist(),
        "shares": shares,
        "outside": int((np.abs(scores) > limit).sum()),
        "thresholds": [float(t) if abs(t) <= limit else None for t in thresholds],
    }


def _projection(scores: FloatArray, weights: FloatArray) -> dict[str, Any]:
    edges = np.linspace(-FURTHEST, FURTHEST, BINS + 1)
    finite = np.isfinite(scores).all(axis=1)
    totals = scores[finite] @ weights.T
    counts = [np.histogram(np.clip(total, -FURTHEST, FURTHEST), edges)[0].tolist() for total in totals.T]
    return {"edges": edges.tolist(), "counts": counts, "outside": int((~finite).sum())}
