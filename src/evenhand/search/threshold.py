"""Algorithm 1 (DP and EOp, K = 1): one exact sweep along the line z in R.

Deviations from the paper's pseudo-code: candidates lie strictly between the observed scores instead of on
them, so that the rule does not hang on a rounding; z = 1 / t takes both signs in the one walk, where the
paper chooses the sign of t first; rows with equal scores turn together (line 7 onwards treats them one by one).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from evenhand.search.problem import NoRule, Problem, Solution, conclude
from evenhand.search.sweep import Best, sweep_rows


class Threshold:
    """The exact search for one contrast; :class:`Certified` uses it for K = 1."""

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule for each step of the bounds. ``random_state`` is not used."""
        started = time.perf_counter()
        best = Best.none(problem)
        best.closest[0] = -np.inf
        origin, direction = np.zeros(1), np.ones(1)
        sweep_rows(problem, problem.table, problem.margin, -problem.contrasts[:, 0], origin, direction, best)
        seconds = time.perf_counter() - started
        return [
            conclude(problem, step, best.z[step], upper_bound=utility, nodes=1, seconds=seconds)
            if np.isfinite(utility)
            else NoRule(proven=True, nodes=1)
            for step, utility in enumerate(best.utility)
        ]
