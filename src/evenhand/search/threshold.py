"""Algorithm 1 (DP and EOp, K = 1): one exact sweep along the line z in R.

Deviations from the paper's pseudo-code: candidates lie strictly between the observed scores instead of on them, so
that the rule does not depend on rounding; z = 1 / t takes both signs in one sweep, where the paper chooses the sign of
t first; rows with equal scores change together (line 7 onwards treats them one by one).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from evenhand.search.kernels.sweep import middle_of
from evenhand.search.problem import FEASIBILITY_SLACK, NoRule, Problem, Solution
from evenhand.search.sweep import Best, settled, sweep_rows

MOST_TRIES = 256


class Threshold:
    """The exact search for one contrast; :class:`Certified` uses it for K = 1."""

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule for each step of the bounds. ``random_state`` is not used."""
        started = time.perf_counter()
        claimed = sweep_whole_line(problem)
        best = settled(problem, claimed)
        if (claimed.utility > best.utility + problem.resolution).any():
            try_every_cell(problem, best)
        seconds = time.perf_counter() - started
        return best.results(problem, upper_bound=claimed.utility, nodes=1, seconds=seconds)


def sweep_whole_line(problem: Problem) -> Best:
    """Return the best cell of the line for each step of the bounds."""
    best = Best.none(problem)
    best.closest[0] = -np.inf
    origin, direction = np.zeros(1), np.ones(1)
    sweep_rows(problem, problem.table, problem.margin, -problem.contrasts[:, 0], origin, direction, best)
    return best


def try_every_cell(problem: Problem, best: Best) -> None:
    """Offer the cells of the line that would be better, the best first, because some are too narrow for rounding."""
    contrast = problem.contrasts[:, 0]
    turning = np.flatnonzero(contrast)
    turning = turning[np.argsort(problem.margin[turning] / contrast[turning])]
    breakpoints = problem.margin[turning] / contrast[turning]
    table = problem.table
    start = np.where(contrast == 0.0, problem.margin > 0.0, contrast > 0.0) @ table
    state = np.vstack([start, start - np.cumsum(np.sign(contrast[turning])[:, None] * table[turning], axis=0)])
    ends = np.concatenate([[-np.inf], breakpoints, [np.inf]])
    tries = 0
    for cell in np.argsort(-state[:, 0], kind="stable"):
        if state[cell, 0] + problem.offset <= best.utility.min() + problem.resolution or tries >= MOST_TRIES:
            return
        z, wide = middle_of(ends[cell], ends[cell + 1], 0.0)
        if wide and problem.excess(state[cell, 1:], len(problem.lower) - 1) <= FEASIBILITY_SLACK:
            tries += 1
            best.offer(problem, np.array([z]), anywhere=True)
