"""K > 2: a good rule for rows that do not fit in memory, without a proof.

A sample of the rows gives a rule. The rows that change near it are fetched, as many as memory allows; all others are
constant there, and their sums are counted. Inside that cube every rule is therefore counted exactly on all rows, and
:class:`evenhand.search.Smoothed` finds the best. If it ends at the wall of the cube, the cube is moved.
"""

from __future__ import annotations

import numpy as np

from evenhand.engines.distances import EDGES, HALF, Grid, InSquare, LineCounts, Lines, View, moved, problem_inside
from evenhand.engines.ground import Ground
from evenhand.engines.reading import Reader, TooManyError
from evenhand.rules.rule import Rule
from evenhand.search import Problem, Smoothed
from evenhand.search.problem import conclude
from evenhand.search.sweep import Best

MOST_CUBES = 4
NEAR_THE_WALL = 0.9
SHARE_OF_THE_ROOM = 0.9
# More rows make a larger cube, but not a better rule: the sample's is close.
MOST_ROWS = 600_000


def learn_nearby(ground: Ground, reader: Reader, view: View) -> Rule:
    """Return the best rule found around the centre of a view; its numbers are those of all rows."""
    kept: tuple[Problem, Best] | None = None
    for _ in range(MOST_CUBES):
        tally = Lines(ground, view, reader.weighted, Grid(1))
        counts = LineCounts(tally, reader.count_dense(tally))
        bins = _bins(counts, min(SHARE_OF_THE_ROOM * reader.most, MOST_ROWS))
        raw = reader.sorted_rows(InSquare(tally, bins))
        if raw is None:
            break
        counts.check(float(raw.weight.sum()), bins)
        whole = problem_inside(ground, raw, counts.sure(bins))
        local = moved(whole, view.centre, view.axes)
        radius = float(EDGES[HALF + bins - 1])
        found = Smoothed().closest(_with_walls(local, radius), random_state=ground.options.random_state)
        place = np.array(found.z)
        best = Best.none(whole)
        best.offer(whole, view.at(place), anywhere=True)
        if np.isfinite(best.utility[0]) and (kept is None or best.utility[0] > kept[1].utility[0]):
            kept = whole, best
        if np.isfinite(best.utility[0]) and np.abs(place).max() < NEAR_THE_WALL * radius:
            break
        view = View(view.at(place), view.axes)
    if kept is None:
        raise TooManyError
    whole, best = kept
    return ground.rule(whole, conclude(whole, 0, best.z[0]))


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
