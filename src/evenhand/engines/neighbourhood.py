"""K > 2: a good rule for rows that do not fit in memory, without a proof.

A sample of the rows gives a rule. The rows that change near it are fetched, as many as memory allows; all others are
constant there, and their sums are counted. Inside that cube every rule is therefore counted exactly on all rows, and
:class:`evenhand.search.Smoothed` finds the best. If no rule there meets the bounds, the cube is moved.
"""

from __future__ import annotations

import numpy as np

from evenhand.engines import _kernels
from evenhand.engines.distances import EDGES, HALF, Grid, InSquare, LineCounts, Lines, View, moved, problem_inside
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.reading import Reader, TooManyError
from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule
from evenhand.search import Problem, Smoothed
from evenhand.search.problem import conclude
from evenhand.search.sweep import Best

MOST_CUBES = 4
SHARE_OF_THE_ROOM = 0.9
# More rows make a larger cube, and take longer; if no rule in it meets the bounds, the next one is larger.
MOST_ROWS = 300_000
ROWS_OF_THE_SAMPLE = 100_000


def learn_nearby(ground: Ground, reader: Reader, view: View, sample: RawRows) -> Rule:
    """Return the best rule found around the centre of a view; its numbers are those of all rows."""
    view = _centred(ground, view, sample)
    for turn in range(MOST_CUBES):
        tally = Lines(ground, view, reader.weighted, Grid(1))
        counts = LineCounts(tally, reader.count_dense(tally))
        bins = _bins(counts, min(SHARE_OF_THE_ROOM * reader.most, MOST_ROWS * 4**turn))
        raw = reader.sorted_rows(InSquare(tally, bins))
        if raw is None:
            break
        counts.check(float(raw.weight.sum()), bins)
        whole = problem_inside(ground, raw, counts.sure(bins))
        z = _best_nearby(whole, view, bins, ground)
        best = Best.none(whole)
        best.offer(whole, z, anywhere=True)
        if np.isfinite(best.utility[0]):
            return ground.rule(whole, conclude(whole, 0, best.z[0]))
        view = View(z, view.axes)
    raise TooManyError


def _best_nearby(whole: Problem, view: View, bins: int, ground: Ground) -> FloatArray:
    """Return the best z found in the cube of some bins around a centre."""
    walls = _with_walls(moved(whole, view.centre, view.axes), float(EDGES[HALF + bins - 1]))
    return view.at(np.array(Smoothed().closest(walls, random_state=ground.options.random_state).z))


def _centred(ground: Ground, view: View, sample: RawRows) -> View:
    """Return a view around the best rule of a whole sample, given that of a part: few of its rows change nearby."""
    frame = {**sample.frame, "w": ground.shares(sample)}
    tally = Lines(ground, view, True, Grid(1))
    counted = tally.empty()
    _kernels.add_dense(tally.words(frame)[:, 0], frame["w"], counted)
    counts = LineCounts(tally, counted)
    bins = _bins(counts, ROWS_OF_THE_SAMPLE * ground.n_rows / len(sample))
    kept = np.flatnonzero(InSquare(tally, bins).keep(frame))
    near = {name: column[kept] for name, column in frame.items()}
    raw = RawRows(sample.schema, near, sample.rows[kept], weighted=True)
    return View(_best_nearby(problem_inside(ground, raw, counts.sure(bins)), view, bins, ground), view.axes)


def _bins(counts: LineCounts, most: float) -> int:
    """Return the radius, in bins, of the largest cube that so many rows are open in."""
    above = counts.above.sum(axis=(0, 2), dtype=np.float64)
    open_rows = (above[HALF - 1 :: -1] - above[HALF + 1 :]) * (counts.ground.n_rows / max(above[0], 1e-300))
    return int(np.clip(np.searchsorted(open_rows, most), 2, HALF - 1))


def _with_walls(problem: Problem, radius: float) -> Problem:
    """Return a problem with one more constraint, which all rules outside a cube around 0 violate."""
    k, (n, c) = problem.dimension, problem.effects.shape
    effects = np.zeros((n + 2 * k, c + 1))
    effects[:n, :c] = problem.effects
    effects[n:, c] = 1e3
    free, wall = np.full((1, 1), -np.inf), np.full((1, 1), 0.5)
    assert problem.mixing is not None
    return Problem(
        margin=np.concatenate([problem.margin, np.full(2 * k, -radius)]),
        contrasts=np.vstack([problem.contrasts, -np.eye(k), np.eye(k)]),
        gain=np.concatenate([problem.gain, np.zeros(2 * k)]),
        effects=effects,
        lower=np.hstack([problem.lower, free]),
        upper=np.hstack([problem.upper, wall]),
        offset=problem.offset,
        mixing=np.vstack([problem.mixing, np.zeros((1, k))]),
    )
