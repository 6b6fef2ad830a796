"""K = 2: where to look. Coordinates of the plane in which all good rules lie in a square of size 1.

Rules that meet the bounds and are nearly the best lie along a curve, so along one axis they are far apart and along the
other close together. Counts of lines (:mod:`distances`) of a sample tell about where; nothing here is a proof.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog

from evenhand.engines import _kernels
from evenhand.engines.distances import Grid, LineCounts, Lines, View, scale_of
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.inputs import FloatArray
from evenhand.search import Problem

ROWS_FOR_SIZES = 50_000
DIRECTIONS = 64
SIZES = (1.0, 0.25, 0.0625)
PLACES = 1500
REACH = 2.0
FEWEST_GOOD = 20
LARGEST_RATIO = 256.0
NOISE = 0.5

# The quality of each of some places, given counts of lines around them.
Quality = Callable[[LineCounts, FloatArray], FloatArray]


def first_view(ground: Ground, raw: RawRows) -> tuple[View, float]:
    """Return coordinates for the good rules of a sample, and how its directions are stretched."""
    contrasts = _some_contrasts(ground, raw)
    view, _ = likely_best(ground, raw, lambda counts, places: qualities(counts, places)[1])
    counts = counts_of(ground, raw, view)
    view = narrowed(counts, view, len(raw))
    along = np.abs(contrasts @ view.axes)
    sizes = np.maximum(np.median(along, axis=0), 1e-300)
    return view, float(np.clip(sizes[0] / sizes[1], 1.0, LARGEST_RATIO))


def likely_best(ground: Ground, raw: RawRows, quality: Quality) -> tuple[View, FloatArray]:
    """Return coordinates around the best place in a sample that was found, and about what its rule adds up to."""
    axes = np.diag(1.0 / scale_of(_some_contrasts(ground, raw)))
    view, places = View(np.zeros(2), axes), places_around(REACH)
    for size in SIZES:
        view = View(view.centre, axes * size)
        counts = counts_of(ground, raw, view)
        best = places[np.argmax(quality(counts, places))]
        view = View(view.at(best), view.axes)
    return view, counts.sums_at(best)[0]


def _some_contrasts(ground: Ground, raw: RawRows) -> FloatArray:
    """Return the contrasts of some rows."""
    linear = ground.linear
    some = slice(0, None, max(1, len(raw) // ROWS_FOR_SIZES))
    columns = np.column_stack([raw.frame[name][some] for name in linear.names])
    contrasts: FloatArray = columns @ linear.weights.T + linear.constant
    return contrasts


def counts_of(ground: Ground, raw: RawRows, view: View) -> LineCounts:
    """Return the lines of a sample, whose rows stand for all rows (:meth:`Ground.shares`)."""
    tally = Lines(ground, view, True, Grid(DIRECTIONS))
    counts = tally.empty()
    _kernels.add_dense(tally.words(raw.frame)[:, 0], ground.shares(raw), counts)
    return LineCounts(tally, counts)


def narrowed(counts: LineCounts, view: View, n_rows: int) -> View:
    """Return coordinates in which the rules that may be best, for what so many rows tell, are a square of size 1."""
    centre, axes = np.zeros(2), np.eye(2)
    for turn in range(3):
        spread = np.random.default_rng(turn).uniform(-REACH, REACH, (PLACES, 2))
        places, quality = qualities(counts, centre + spread @ axes.T)
        size = float(np.linalg.norm(view.axes @ axes, ord=2))
        slack = NOISE * np.sqrt(2.0 * REACH * min(size, 1.0) / n_rows)
        good = places[quality >= quality.max() - slack]
        if len(good) < FEWEST_GOOD:
            good = places[np.argsort(quality)[-FEWEST_GOOD:]]
        centre = good.mean(axis=0)
        # The coordinates' own units are of one size, so that the longest direction is that of the good rules.
        values, vectors = np.linalg.eigh(np.cov(good.T))
        sizes = np.sqrt(3.0 * np.maximum(values[::-1], values[-1] / LARGEST_RATIO**2))
        axes = vectors[:, ::-1] * sizes
    return View(view.at(centre), view.axes @ axes)


def places_around(reach: float, circles: int = 20, angles_a_circle: int = 32) -> FloatArray:
    """Return places on circles that grow up to a reach, and the centre itself."""
    angles = np.arange(angles_a_circle) * (2.0 * np.pi / angles_a_circle)
    sizes = reach * 2.0 ** (0.5 * np.arange(1.0 - circles, 1.0))
    around = np.column_stack([np.cos(angles), np.sin(angles)])
    return np.vstack([np.zeros((1, 2)), *(size * around for size in sizes)])


def qualities(counts: LineCounts, places: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return some places, and the utility of each without what it costs to miss the bounds."""
    problem = counts.ground.problem
    sums = np.array([counts.sums_at(place)[0] for place in places])
    price = 0.1 + 2.0 * float(np.abs(multipliers_of(problem, sums)).max(initial=0.0))
    miss = np.maximum(sums[:, 1:] - problem.upper[0], problem.lower[0] - sums[:, 1:]).max(axis=1, initial=0.0)
    return places, sums[:, 0] - price * np.maximum(miss, 0.0)


def multipliers_of(problem: Problem, sums: FloatArray) -> FloatArray:
    """Return the prices of the constraints at which no mixture of some rules is better than those allowed."""
    lower, upper = problem.lower[0], problem.upper[0]
    values = sums[:, 1:].T
    above, below = upper < np.inf, lower > -np.inf
    found = linprog(
        -sums[:, 0],
        A_ub=np.vstack([values[above], -values[below]]),
        b_ub=np.concatenate([upper[above], -lower[below]]),
        A_eq=np.ones((1, len(sums))),
        b_eq=[1.0],
        method="highs",
    )
    if found.status != 0:
        return np.zeros(len(lower))
    prices = np.zeros(len(lower))
    marginals = -np.asarray(found.ineqlin.marginals)
    prices[above] += marginals[: int(above.sum())]
    prices[below] -= marginals[int(above.sum()) :]
    return prices
