"""Algorithm 3 (EO, equiangular directions): one exact sweep along each of n rays from z = 0.

Deviations from the paper's pseudo-code: candidates lie strictly between the observed scores; rows with equal
scores change together; beyond K = 2, where no equiangular set exists, the directions are drawn at random.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.arguments import check_seed, check_whole
from evenhand.inputs import FloatArray
from evenhand.search.problem import NoRule, Problem, Solution
from evenhand.search.sweep import Best, settled, sweep_rows


@dataclass(frozen=True)
class Directions:
    """The paper's Algorithm 3: the best threshold along each of ``n`` directions of bias scores.

    Parameters
    ----------
    n : int, default=360
        The number of directions. Two are enough for K = 1, and are exact there.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(300, random_state=0)
    >>> rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion="eo", search=eh.Directions(n=90))
    >>> rule.solution_.status
    'found'
    """

    n: int = 360

    def __post_init__(self) -> None:
        check_whole(self.n, "n (the number of directions)", at_least=1)

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule found along the rays, for each step of the bounds."""
        check_seed(random_state)
        started = time.perf_counter()
        best = Best.none(problem)
        origin = np.zeros(problem.dimension)
        best.offer(problem, origin)
        table = problem.table
        directions = _directions(self.n, problem.dimension, random_state)
        for direction in directions:
            slope = problem.slope(direction)
            sweep_rows(problem, table, problem.margin, slope, origin, direction, best, low=0.0)
        best = settled(problem, best)
        return best.results(problem, nodes=len(directions), seconds=time.perf_counter() - started)


def _directions(n: int, dimension: int, random_state: Any) -> FloatArray:
    if dimension == 1:
        return np.array([[1.0], [-1.0]])
    if dimension == 2:
        angle = 2.0 * np.pi * np.arange(n) / n
        return np.column_stack([np.cos(angle), np.sin(angle)])
    drawn = np.random.default_rng(0 if random_state is None else random_state).normal(size=(n, dimension))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float64)
