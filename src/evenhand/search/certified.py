"""Branch and bound over z-space: the best rule of the family, with a proof that there is no better.

Half-cube coordinates: a rule is a point (t, w) with t > 0 on the surface of the unit cube in K + 1 dimensions,
z = w / t, so the whole of z-space, infinity included, is 2 K + 1 bounded faces. In a box of such points a row
is surely 1, surely 0 or open; the open rows bound what any rule in the box can do (see ``_kernels._prune``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.search import _kernels
from evenhand.search.local import local_search
from evenhand.search.problem import NoRule, Problem, Solution, conclude
from evenhand.search.sweep import Best
from evenhand.search.threshold import Threshold

VISITS_A_TURN = 1_000_000
SECONDS_BEYOND = 5.0
LOCAL_SECONDS = 0.5
COARSE_GAP = 0.016
FINEST_GAP = 1e-5
LEAF_SIZE = {2: 16, 3: 12}
LEAF_SIZE_BEYOND = 10
MEETING_SIZE = {2: 4096, 3: 32}
MEETING_SIZE_BEYOND = 20


@dataclass(frozen=True, kw_only=True)
class Certified:
    """The global optimum, or a rule with a proven gap.

    Parameters
    ----------
    gap : float, default=0
        Stop when nothing better by more than this can exist (in units of utility: 0.001 is a tenth of a
        point of accuracy).
    max_nodes : int or None, default=None
        Stop after this many boxes.
    max_seconds : float or None or "auto", default="auto"
        Stop after this time. "auto" is no limit for K <= 2 and about 5 seconds beyond.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.search import Certified, Problem
    >>> problem = Problem(
    ...     margin=np.array([0.5, 0.2, -0.1]), contrasts=np.array([[1.0], [1.0], [-1.0]]),
    ...     gain=np.array([1.0, 1.0, -1.0]) / 3, effects=np.array([[0.5], [0.5], [-1.0]]),
    ...     lower=np.array([-0.1]), upper=np.array([0.1]), offset=1 / 3)
    >>> solution = Certified().solve(problem)[0]
    >>> solution.status, solution.gap
    ('optimal', 0.0)
    """

    gap: float = 0.0
    max_nodes: int | None = None
    max_seconds: float | str | None = "auto"

    def __post_init__(self) -> None:
        if not self.gap >= 0.0:
            raise InputError(f"Certified needs a gap that is not negative; got {self.gap!r}.")
        if self.max_nodes is not None and self.max_nodes < 1:
            raise InputError(f"Certified needs at least one node; got max_nodes={self.max_nodes!r}.")
        if isinstance(self.max_seconds, str) and self.max_seconds != "auto":
            raise InputError(f"max_seconds is a number, None or 'auto'; got {self.max_seconds!r}.")

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule for each step of the bounds, and how good any other could be."""
        if problem.dimension == 1:
            return Threshold().solve(problem)
        started = time.perf_counter()
        run = _Run(problem, self, started)
        if problem.dimension > 2:
            run.start_locally(random_state)
        run.search()
        return run.results()


class _Run:
    """One search: the planes, the stack of boxes still to look at, and the best points so far."""

    def __init__(self, problem: Problem, options: Certified, started: float) -> None:
        self.problem, self.options, self.started = problem, options, started
        self.planes, self.scale, constant = _planes_of(problem)
        steps, k = len(problem.lower), problem.dimension
        self.constant = constant
        every = np.arange(len(self.planes), dtype=np.int32)
        self.shape = ((0,) * (k + 1), (0,) * (1 + problem.effects.shape[1]), every)
        self.leaf_size = LEAF_SIZE.get(k, LEAF_SIZE_BEYOND)
        self.meeting_size = MEETING_SIZE.get(k, MEETING_SIZE_BEYOND)
        self.utility = np.full(steps, -np.inf)
        self.point = np.full((steps, k + 1), np.nan)
        self.left_behind = np.full(steps, -np.inf)
        self.bound_on_utility = np.full(steps, np.inf)
        limit = options.max_seconds
        self.seconds_allowed = (None if k <= 2 else SECONDS_BEYOND) if isinstance(limit, str) else limit
        self.nodes = 0
        self.finished = False
        self._make_room(64 * (k + 1) + 4 * (k + 1), 4 * len(self.planes) + 64)

    def _make_room(self, height: int, pool: int) -> None:
        k, c = self.problem.dimension, self.problem.effects.shape[1]
        self.centre = np.zeros((height, k + 1))
        self.radius = np.zeros((height, k + 1))
        self.sums = np.zeros((height, c + 1))
        self.start = np.zeros(height, dtype=np.int64)
        self.count = np.zeros(height, dtype=np.int64)
        self.bound = np.zeros(height)
        self.pool = np.zeros(pool, dtype=np.int32)
        self.scratch = np.zeros((2, len(self.planes) + 1), dtype=np.int32)

    def start_locally(self, random_state: Any) -> None:
        """Let a local search find the first rules: what is better than them is all that is left to look for."""
        best = Best.none(self.problem)
        allowed = LOCAL_SECONDS if self.seconds_allowed is None else min(LOCAL_SECONDS, 0.2 * self.seconds_allowed)
        local_search(self.problem, best, max_seconds=allowed, random_state=random_state)
        for step in np.flatnonzero(np.isfinite(best.utility)):
            w = best.z[step] * self.scale
            size = max(1.0, float(np.abs(w).max()))
            self.utility[step] = best.utility[step]
            self.point[step] = np.concatenate([[1.0], w]) / size

    def _push_faces(self) -> int:
        """Put the 2 K + 1 faces of the half-cube on the stack, the one around z = 0 on top."""
        k = self.problem.dimension
        faces = [(axis, side) for axis in range(1, k + 1) for side in (-1.0, 1.0)] + [(0, 1.0)]
        for height, (axis, side) in enumerate(faces):
            self.centre[height], self.radius[height] = 0.0, 1.0
            if axis > 0:
                self.centre[height, 0] = self.radius[height, 0] = 0.5
            self.centre[height, axis], self.radius[height, axis] = side, 0.0
            self.sums[height] = self.constant
            self.start[height], self.count[height], self.bound[height] = 0, -1, np.inf
        return len(faces)

    def search(self) -> None:
        """Prove ever smaller gaps, down to the one asked for or until the budget is spent.

        A depth-first search proves nothing until it ends, so beyond K = 2, where it may not end, it starts with a
        coarse gap. The searches before the last cost little beside it, and each finds better rules for the next.
        """
        bound = np.full(len(self.utility), np.inf)
        for target in self._targets():
            self.finished = self._prove(target)
            bound = np.minimum(bound, np.maximum(self.left_behind, self.utility))
            if not self.finished:
                break
        self.bound_on_utility = np.maximum(bound, self.utility)

    def _targets(self) -> list[float]:
        if self.problem.dimension <= 2:
            return [self.options.gap]
        target = COARSE_GAP * float(np.abs(self.problem.gain).sum())
        targets = []
        while target > 2.0 * self.options.gap and target > FINEST_GAP:
            targets.append(target)
            target /= 16.0
        return [*targets, self.options.gap]

    def _prove(self, target: float) -> bool:
        """Look at all boxes that may hold a rule better by more than ``target``; return whether that was done."""
        self.left_behind[:] = -np.inf
        height = self._push_faces()
        basis = self.problem.basis
        while True:
            code, height, nodes, _ = _kernels.branch(
                self.planes, *self.shape, basis, self.scale, self.problem.lower, self.problem.upper, self.leaf_size,
                self.meeting_size, target, VISITS_A_TURN, self.centre, self.radius, self.sums, self.start, self.count, self.bound,
                self.pool, height, self.utility, self.point, self.left_behind, self.scratch,
            )  # fmt: skip
            self.nodes += nodes
            if code == _kernels.OUT_OF_ROOM:
                self.pool = np.concatenate([self.pool, np.zeros_like(self.pool)])
            if code == _kernels.DONE:
                return True
            if self._out_of_budget():
                self.left_behind = np.maximum(self.left_behind, self.bound[:height].max())
                return False

    def _out_of_budget(self) -> bool:
        limit = self.seconds_allowed
        if limit is not None and time.perf_counter() - self.started > limit:
            return True
        return self.options.max_nodes is not None and self.nodes >= self.options.max_nodes

    def results(self) -> list[Solution | NoRule]:
        seconds = time.perf_counter() - self.started
        found: list[Solution | NoRule] = []
        for step, point in enumerate(self.point):
            if np.isnan(point[0]):
                found.append(NoRule(proven=self.finished and self.left_behind[step] == -np.inf, nodes=self.nodes))
                continue
            z = point[1:] / (point[0] * self.scale)
            bound = float(self.bound_on_utility[step])
            found.append(conclude(self.problem, step, z, upper_bound=bound, nodes=self.nodes, seconds=seconds))
        return found


def _planes_of(problem: Problem) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the planes, the scale that each contrast was divided by, and what is decided whatever z is."""
    size = np.abs(problem.contrasts)
    scale = np.array([np.median(column[column > 0]) if (column > 0).any() else 1.0 for column in size.T])
    rows = np.column_stack([problem.margin, -problem.contrasts / scale, problem.gain, problem.effects])
    constant = np.zeros(1 + problem.effects.shape[1])
    constant[0] = problem.offset
    merged = np.empty_like(rows)
    found = _kernels.merge_planes(rows, problem.dimension + 1, merged, constant)
    return np.ascontiguousarray(merged[:found]), scale, constant
