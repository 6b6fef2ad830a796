"""The data for charts of bias scores: a plane for two scores, a histogram for one, a projection for more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule

POINTS = 900
BINS = 48
TURNED_POINTS = 250
SEEN = 0.85
REACH = 1.6
LARGEST_REACH = 8.0
FURTHEST = 3.0
NEARLY_ALL = 0.995
GRID = 41


def picture_bias(
    scores: FloatArray,
    codes: NDArray[np.intp],
    groups: Sequence[str],
    rules: Sequence[Rule],
    chosen: int,
    seed: int = 0,
    sample_weight: FloatArray | None = None,
) -> dict[str, Any]:
    """Return the data for a chart of bias scores, for all rules along a frontier.

    Parameters
    ----------
    scores : array of shape (n, K)
        The bias scores, which are the same for every rule of a frontier.
    codes : array of shape (n,)
        Each row's group as an index; -1 if it is unknown.
    groups : sequence of str
        The groups' names.
    rules : sequence of Rule
        The rules; only their z and the names of their terms are used.
    chosen : int
        The rule that is shown first; the axes are chosen so that its boundary is visible.
    seed : int, default=0
        Seed for drawing rows if there are too many to show.
    sample_weight : array of shape (n,), default=None
        The weights of the rows, for the shares of a histogram.

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
        return {"kind": "plane", **common, **_plane(scores, codes, weights, chosen, seed)}
    if len(names) == 1:
        return {
            "kind": "histogram",
            **common,
            **_histogram(scores[:, 0], codes, len(groups), weights[:, 0], chosen, sample_weight),
        }
    return {"kind": "projection", **common, **_projection(scores, weights)}


def _limit(values: FloatArray, weight: float) -> float:
    """Return the limit of an axis: most rows are visible, and the boundary unless it is too far away."""
    sizes = np.abs(values[np.isfinite(values)])
    far = float(np.quantile(sizes, SEEN)) if len(sizes) else 0.0
    limit = far if far > 0.0 else 1.0
    reach = REACH / abs(weight) if weight else np.inf
    return round_up(max(limit, reach) if reach <= LARGEST_REACH * limit else limit)


def round_up(value: float) -> float:
    """Return the next larger number of one or two digits, so that an axis ends on a readable number.

    Examples
    --------
    >>> from evenhand.report.bias import round_up
    >>> round_up(3.21), round_up(0.087)
    (3.5, 0.09)
    """
    size = 10.0 ** np.floor(np.log10(value))
    return float(f"{np.ceil(value / size * 2.0) / 2.0 * size:.3g}")


def _plane(scores: FloatArray, codes: NDArray[np.intp], weights: FloatArray, chosen: int, seed: int) -> dict[str, Any]:
    limits, softness = zip(*(_stretched(scores[:, k], float(weights[chosen, k])) for k in (0, 1)), strict=True)
    inside = (np.abs(scores[:, 0]) <= limits[0]) & (np.abs(scores[:, 1]) <= limits[1])
    generator = np.random.default_rng(seed)
    turned = np.flatnonzero(inside & (np.where(inside[:, None], scores, 0.0) @ weights[chosen] > 1.0))
    drawn_turned = turned if len(turned) <= TURNED_POINTS else generator.choice(turned, TURNED_POINTS, replace=False)
    others = np.setdiff1d(np.flatnonzero(inside), turned)
    room = POINTS - len(drawn_turned)
    drawn_others = others if len(others) <= room else generator.choice(others, room, replace=False)
    shown = np.sort(np.concatenate([drawn_turned, drawn_others]))
    points = [
        [float(f"{s1:.4g}"), float(f"{s2:.4g}"), int(code)]
        for (s1, s2), code in zip(scores[shown].tolist(), codes[shown].tolist(), strict=True)
    ]
    return {
        "limits": list(limits),
        "softness": list(softness),
        "outside": int((~inside).sum()),
        "turned": [len(drawn_turned), len(turned)],
        "others": [len(drawn_others), len(others)],
        "points": points,
        "lines": [trace_line(z.tolist(), limits, softness) for z in weights],
    }


def _stretched(values: FloatArray, weight: float) -> tuple[float, float]:
    """Return the limit of an axis that is stretched around 0, and the size below which it is nearly linear."""
    sizes = np.abs(values[np.isfinite(values)])
    far, middle = (np.quantile(sizes, [NEARLY_ALL, 0.5]) if len(sizes) else np.ones(2)).tolist()
    limit = far if far > 0.0 else 1.0
    reach = 2.0 * REACH / abs(weight) if weight else np.inf
    return round_up(max(limit, reach) if reach <= LARGEST_REACH * limit else limit), round_up(
        max(middle, limit / 1000.0)
    )


def trace_line(z: Sequence[float], limits: Sequence[float], softness: Sequence[float]) -> list[list[float]]:
    """Return points along the line ``z . s = 1`` inside a box around 0, denser near 0; none if it is outside.

    Examples
    --------
    >>> from evenhand.report.bias import trace_line
    >>> line = trace_line([1.0, 0.0], [2.0, 3.0], [1.0, 1.0])
    >>> line[0], line[-1]
    ([1.0, 3.0], [1.0, -3.0])
    >>> trace_line([0.1, 0.1], [2.0, 3.0], [1.0, 1.0])
    []
    """
    a, b = z
    grid = np.linspace(-1.0, 1.0, GRID)
    xs, ys = (
        np.sign(grid) * soft * np.expm1(np.abs(grid) * np.log1p(limit / soft))
        for limit, soft in zip(limits, softness, strict=True)
    )
    pairs = []
    if b != 0.0:
        pairs.append(np.column_stack([xs, (1.0 - a * xs) / b]))
    if a != 0.0:
        pairs.append(np.column_stack([(1.0 - b * ys) / a, ys]))
    if not pairs:
        return []
    points = np.concatenate(pairs)
    points = points[(np.abs(points) <= np.array(limits) * (1.0 + 1e-9)).all(axis=1)]
    points = points[np.argsort(points @ np.array([b, -a]), kind="stable")]
    return [[float(f"{x:.5g}"), float(f"{y:.5g}")] for x, y in points.tolist()] if len(points) > 1 else []


def _histogram(
    scores: FloatArray,
    codes: NDArray[np.intp],
    n_groups: int,
    weights: FloatArray,
    chosen: int,
    sample_weight: FloatArray | None,
) -> dict[str, Any]:
    with np.errstate(divide="ignore"):
        thresholds = 1.0 / weights
    limit = _limit(scores, float(weights[chosen]))
    edges = np.linspace(-limit, limit, BINS + 1)
    shares = []
    for group in range(n_groups):
        mine = codes == group
        own = None if sample_weight is None else sample_weight[mine]
        counted = np.histogram(np.clip(scores[mine], -limit, limit), edges, weights=own)[0]
        total = float(mine.sum() if own is None else own.sum())
        shares.append((counted / (total if total > 0.0 else 1.0)).tolist())
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
