"""Branch and bound over z-space: the best rule of the family, with a proof that there is no better.

Half-cube coordinates: a rule is a point (t, w) with t > 0 on the surface of the unit cube in K + 1 dimensions,
z = w / t, so the whole of z-space, infinity included, is 2 K + 1 bounded faces. In a box of such points a row
is surely 1, surely 0 or open; the open rows bound what any rule in the box can do (see ``_kernels._prune``).
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.search import _kernels
from evenhand.search._compiling import notice_of_compilation
from evenhand.search.local import local_search
from evenhand.search.problem import NoRule, Problem, Solution, conclude, typical_size
from evenhand.search.reduction import Part, parts_of
from evenhand.search.sweep import Best
from evenhand.search.threshold import Threshold

VISITS_A_TURN = 1_000_000
SECONDS_BEYOND = 5.0
LOCAL_SECONDS = 0.5
COARSE_GAPS = (0.064, 0.016, 0.004)
SHARE_FOR_COARSE_GAPS = 0.3
BOXES_A_ROUND = 16
SIDES_HALVED_AT_ONCE = 6
MEETINGS_A_TURN = 64
_COMPILING = threading.Lock()
LEAF_SIZE = {2: 16, 3: 8}
LEAF_SIZE_BEYOND = 6
MEETING_SIZE = {2: 4096, 3: 32}
MEETING_SIZE_BEYOND = 20
DEPTH_OF_BUNDLES = {2: 5, 3: 7}
DEPTH_OF_BUNDLES_BEYOND = 8
MOST_DIMENSIONS_WITH_BUNDLES = 8
FIRST_GUESS = 0.2


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
        Stop after this time, within 10%; only the preparation, some microseconds a row, is never cut short.
        "auto" is no limit for K <= 2 and 5 seconds beyond. What is found when the time is up depends on the
        machine; with ``max_nodes`` and ``None`` here it does not.
    n_jobs : int or None, default=None
        Threads for K > 2; ``None`` is one for each core. The result does not depend on it.

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
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        if not self.gap >= 0.0:
            raise InputError(f"Certified needs a gap that is not negative; got {self.gap!r}.")
        if self.max_nodes is not None and self.max_nodes < 1:
            raise InputError(f"Certified needs at least one node; got max_nodes={self.max_nodes!r}.")
        if isinstance(self.max_seconds, str) and self.max_seconds != "auto":
            raise InputError(f"max_seconds is a number, None or 'auto'; got {self.max_seconds!r}.")

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule for each step of the bounds, and how good any other could be."""
        parts = parts_of(problem)
        if parts[0].problem is problem:
            return self._solve(problem, 1, random_state)
        found = [
            replace(self, gap=self.gap / part.utility_scale)._solve(part.problem, len(parts), random_state)
            for part in parts
        ]
        return [_combined(problem, step, parts, of_step) for step, of_step in enumerate(zip(*found, strict=True))]

    def _solve(self, problem: Problem, n_parts: int, random_state: Any) -> list[Solution | NoRule]:
        """Solve a problem that is one of so many parts; they share the budget evenly."""
        if problem.dimension == 1:
            return Threshold().solve(problem)
        _compile(problem.dimension, problem.effects.shape[1])
        run = _Run(problem, self, n_parts)
        if problem.dimension > 2:
            run.start_locally(random_state)
        run.search()
        return run.results()


def _combined(
    problem: Problem, step: int, parts: Sequence[Part], found: Sequence[Solution | NoRule]
) -> Solution | NoRule:
    """Return the best of what the parts' searches found, as a rule of the whole problem."""
    nodes = sum(result.nodes for result in found)
    rules = [(result, part) for result, part in zip(found, parts, strict=True) if isinstance(result, Solution)]
    unproven = any(isinstance(result, NoRule) and not result.proven for result in found)
    if not rules:
        return NoRule(proven=not unproven, nodes=nodes)
    best, part = max(rules, key=lambda pair: pair[0].utility)
    bound = np.inf if unproven else max(result.upper_bound for result, _ in rules)
    return conclude(
        problem, step, part.original(np.array(best.z)), upper_bound=part.utility_scale * bound, nodes=nodes,
        seconds=sum(result.seconds for result, _ in rules),
    )  # fmt: skip


@cache
def _compile(dimension: int, constraints: int) -> None:
    """Solve a problem of two rows, which compiles what has not been compiled yet: no budget is for that."""
    toy = Problem(
        np.array([0.5, -0.5]), np.ones((2, dimension)), np.array([0.5, -0.5]), np.zeros((2, constraints)),
        np.full(constraints, -1.0), np.full(constraints, 1.0), mixing=np.eye(constraints, dimension),
    )  # fmt: skip
    with notice_of_compilation(_kernels.branch):
        run = _Run(toy, Certified(max_nodes=1, max_seconds=None))
        run.start_locally(None)
        run.search()


class _Known:
    """The best points so far, for each step of the bounds, and the bound on what was left behind."""

    def __init__(self, steps: int, coordinates: int) -> None:
        self.utility = np.full(steps, -np.inf)
        self.point = np.full((steps, coordinates), np.nan)
        self.left_behind = np.full(steps, -np.inf)

    def copy(self) -> _Known:
        known = _Known(*self.point.shape)
        known.utility[:], known.point[:] = self.utility, self.point
        return known

    def take(self, other: _Known) -> None:
        """Keep what is better in another one."""
        better = other.utility > self.utility
        self.utility[better], self.point[better] = other.utility[better], other.point[better]
        self.left_behind = np.maximum(self.left_behind, other.left_behind)


class _Run:
    """One search: the planes, the boxes to look at, and what is known so far."""

    def __init__(self, problem: Problem, options: Certified, n_parts: int = 1) -> None:
        self.started = time.perf_counter()
        self.problem, self.options = problem, options
        self.planes, self.scale, self.constant = _planes_of(problem)
        steps, k = len(problem.lower), problem.dimension
        every = np.arange(len(self.planes), dtype=np.int32)
        self.shape = ((0,) * (k + 1), (0,) * (1 + problem.effects.shape[1]), every, *_bundles_of(self.planes, k + 1))
        self.basis = problem.basis
        self.sizes = (LEAF_SIZE.get(k, LEAF_SIZE_BEYOND), MEETING_SIZE.get(k, MEETING_SIZE_BEYOND))
        self.known = _Known(steps, k + 1)
        # Without any constraint, every plane would decide as its gain says.
        self.upper_bound = np.full(steps, self.constant[0] + np.maximum(self.planes[:, k + 1], 0.0).sum())
        limit = options.max_seconds
        allowed = (None if k <= 2 else SECONDS_BEYOND) if isinstance(limit, str) else limit
        self.seconds_allowed = None if allowed is None else allowed / n_parts
        self.nodes_allowed = None if options.max_nodes is None else max(1, options.max_nodes // n_parts)
        self.nodes = 0
        self.finished = False

    def start_locally(self, random_state: Any) -> None:
        """Let a local search find the first rules: what is better than them is all that is left to look for."""
        best = Best.none(self.problem)
        allowed = LOCAL_SECONDS if self.seconds_allowed is None else min(LOCAL_SECONDS, 0.1 * self.seconds_allowed)
        if self.seconds_allowed is None and self.nodes_allowed is not None:
            allowed = np.inf  # who counts boxes wants no clock
        local_search(self.problem, best, max_seconds=allowed, random_state=random_state)
        for step in np.flatnonzero(np.isfinite(best.utility)):
            w = best.z[step] * self.scale
            self.known.utility[step] = best.utility[step]
            self.known.point[step] = np.concatenate([[1.0], w]) / max(1.0, float(np.abs(w).max()))

    def search(self) -> None:
        """Prove the gap asked for; where the budget ends before that, prove what can be proven.

        A depth-first search proves nothing until it ends. So a part of the time is kept for coarser gaps, which
        are proven much sooner.
        """
        limited = self.seconds_allowed is not None and self.problem.dimension > 2
        share = 1.0 - SHARE_FOR_COARSE_GAPS if limited else 1.0
        self.finished = self._prove(self.options.gap, share)
        if self.finished or not limited:
            return
        scale = float(np.abs(self.problem.gain).sum())
        for gap in COARSE_GAPS:
            if scale * gap <= self.options.gap or not self._prove(scale * gap, 1.0):
                return

    def _prove(self, target: float, share: float) -> bool:
        """Look at all boxes that may hold a rule better by more than ``target``; return whether that was done."""
        boxes = _faces(self.problem.dimension)
        if self.problem.dimension == 2:
            rounds = [[boxes]]
            workers = 1
        else:
            middle = _parts(*boxes[-1])
            if self.problem.dimension <= 4:
                # Most of the work is around z = 0: smaller parts share it evenly, and soon find good rules.
                middle = [part for half in middle for part in _parts(*half)]
            parts = [[part] for part in (*middle, *(part for face in boxes[-2::-1] for part in _parts(*face)))]
            rounds = [parts[start : start + BOXES_A_ROUND] for start in range(0, len(parts), BOXES_A_ROUND)]
            # Counting boxes is only the same every time when one thread counts.
            workers = 1 if self.nodes_allowed is not None else self.options.n_jobs or os.cpu_count() or 1
        stacks = [_Stack(self) for _ in range(workers)]
        self.known.left_behind[:] = -np.inf
        # Within a round the boxes know the same rules, whoever looks at them: threads change nothing but the time.
        for boxes_of_round in rounds:
            known = [self.known.copy() for _ in boxes_of_round]
            if workers == 1:
                done = [stacks[0].search(b, k, target, share) for b, k in zip(boxes_of_round, known, strict=True)]
            else:
                with ThreadPoolExecutor(workers) as pool:
                    free = list(stacks)

                    def one(pair: tuple[list[_Box], _Known], free: list[_Stack] = free) -> bool:
                        stack = free.pop()
                        try:
                            return stack.search(*pair, target, share)
                        finally:
                            free.append(stack)

                    done = list(pool.map(one, zip(boxes_of_round, known, strict=True)))
            for found in known:
                self.known.take(found)
            if not all(done):
                # Boxes of later rounds were not looked at, and nothing is known of them.
                if boxes_of_round is not rounds[-1]:
                    self.known.left_behind[:] = np.inf
                self._conclude()
                return False
        self._conclude()
        return True

    def _conclude(self) -> None:
        proven = np.maximum(self.known.left_behind, self.known.utility)
        self.upper_bound = np.maximum(np.minimum(self.upper_bound, proven), self.known.utility)

    def solve_meeting(self, rows: NDArray[np.int32], sums: FloatArray, target: float, share: float) -> Any:
        """Return the best that some planes can do if the others, whose sums are given, stay as they are."""
        planes, k = self.planes[rows], self.problem.dimension
        smaller = Problem(
            planes[:, 0], -planes[:, 1 : k + 1], planes[:, k + 1], planes[:, k + 2 :], self.problem.lower - sums[1:],
            self.problem.upper - sums[1:], float(sums[0]), self.problem.mixing,
        )  # fmt: skip
        dimension = parts_of(smaller)[0].problem.dimension
        if dimension == k:
            return [NoRule(proven=False)] * len(self.known.utility)
        with _COMPILING:
            before = time.perf_counter()
            _compile(dimension, smaller.effects.shape[1])
            self.started += time.perf_counter() - before
        left = None
        if self.seconds_allowed is not None:
            left = max(0.0, share * self.seconds_allowed - (time.perf_counter() - self.started))
        nodes = None if self.nodes_allowed is None else self.nodes_left()
        found = Certified(gap=target, max_nodes=nodes, max_seconds=left, n_jobs=1).solve(smaller)
        self.nodes += found[0].nodes
        return found

    def point_beside(self, centre: FloatArray, rows: NDArray[np.int32], z: FloatArray) -> FloatArray:
        """Return a point where these planes decide as the rule z does, and the others as they do at a box's centre."""
        coordinates = self.planes[:, : self.problem.dimension + 1]
        meeting = centre - np.linalg.lstsq(coordinates[rows], coordinates[rows] @ centre, rcond=1e-12)[0]
        toward = np.concatenate([[1.0], z]) / max(1.0, float(np.abs(z).max()))
        others = np.ones(len(coordinates), dtype=bool)
        others[rows] = False
        here, change = coordinates[others] @ meeting, coordinates[others] @ toward
        turning = here * change < 0.0
        room = float((-here[turning] / change[turning]).min(initial=1.0))
        point: FloatArray = meeting + 0.5 * room * toward
        return point

    def offer(self, known: _Known, point: FloatArray) -> None:
        """Keep a point for every step that it meets and improves, if it is a rule and off every plane."""
        k = self.problem.dimension
        terms = self.planes[:, : k + 1] * point
        level = terms.sum(axis=1)
        if point[0] <= 0.0 or (np.abs(level) <= _kernels.RESOLUTION * np.abs(terms).max(axis=1)).any():
            return
        sums = self.constant + (level > 0.0).astype(np.float64) @ self.planes[:, k + 1 :]
        step = _kernels.first_step_met(sums[1:], self.problem.lower, self.problem.upper)
        better = np.flatnonzero(sums[0] > known.utility[step:] + _kernels.RESOLUTION) + step
        known.utility[better], known.point[better] = sums[0], point

    def nodes_left(self) -> int:
        return 2**62 if self.nodes_allowed is None else max(1, self.nodes_allowed - self.nodes)

    def out_of_budget(self, share: float) -> bool:
        limit = self.seconds_allowed
        if limit is not None and time.perf_counter() - self.started > share * limit:
            return True
        return self.nodes_allowed is not None and self.nodes >= self.nodes_allowed

    def results(self) -> list[Solution | NoRule]:
        seconds = time.perf_counter() - self.started
        found: list[Solution | NoRule] = []
        for step, point in enumerate(self.known.point):
            if np.isnan(point[0]):
                found.append(NoRule(proven=bool(self.upper_bound[step] == -np.inf), nodes=self.nodes))
                continue
            z = point[1:] / (point[0] * self.scale)
            bound = float(self.upper_bound[step])
            found.append(conclude(self.problem, step, z, upper_bound=bound, nodes=self.nodes, seconds=seconds))
        return found


_Box = tuple[FloatArray, FloatArray]


class _Stack:
    """The boxes still to look at, depth first, with the open rows of each. One for each thread."""

    def __init__(self, run: _Run) -> None:
        k, c, n = run.problem.dimension, run.problem.effects.shape[1], len(run.planes)
        height = 64 * (k + 1) + 4 * (k + 1)
        self.run = run
        self.centre = np.zeros((height, k + 1))
        self.radius = np.zeros((height, k + 1))
        self.sums = np.zeros((height, c + 1))
        self.start = np.zeros(height, dtype=np.int64)
        self.count = np.zeros(height, dtype=np.int64)
        self.bound = np.zeros(height)
        self.guess = np.zeros((height, 2))
        self.pool = np.zeros(4 * n + 64, dtype=np.int32)
        self.scratch = np.zeros((2, n + 1), dtype=np.int32)
        self.met = np.zeros(1 + MEETINGS_A_TURN, dtype=np.int64)
        self.met_centre = np.zeros((MEETINGS_A_TURN, k + 1))
        self.met_sums = np.zeros((MEETINGS_A_TURN, c + 1))
        self.met_bound = np.zeros(MEETINGS_A_TURN)
        self.met_rows = np.zeros(4 * n + 64, dtype=np.int32)
        self.met_before: dict[bytes, list[Solution | NoRule]] = {}

    def search(self, boxes: list[_Box], known: _Known, target: float, share: float) -> bool:
        """Look at some boxes and all their parts; return whether that was done within the budget."""
        run = self.run
        if run.out_of_budget(share):
            known.left_behind[:] = np.inf
            return False
        for height, (centre, radius) in enumerate(boxes):
            self.centre[height], self.radius[height], self.sums[height] = centre, radius, run.constant
            self.start[height], self.count[height], self.bound[height] = 0, -1, np.inf
            self.guess[height] = FIRST_GUESS
        height = len(boxes)
        while True:
            code, height, nodes, _ = _kernels.branch(
                run.planes, *run.shape, run.basis, run.scale, run.problem.lower, run.problem.upper, *run.sizes, target,
                VISITS_A_TURN, run.nodes_left(), self.centre, self.radius, self.sums, self.start, self.count,
                self.bound, self.guess, self.pool, height, known.utility, known.point, known.left_behind, self.scratch,
                self.met, self.met_centre, self.met_sums, self.met_bound, self.met_rows,
            )  # fmt: skip
            run.nodes += nodes
            self._look_where_planes_meet(known, target, share)
            if code == _kernels.OUT_OF_ROOM:
                self._grow()
            if code == _kernels.DONE:
                return True
            if run.out_of_budget(share):
                known.left_behind = np.maximum(known.left_behind, self.bound[:height].max())
                return False

    def _look_where_planes_meet(self, known: _Known, target: float, share: float) -> None:
        """Solve, as smaller problems, the boxes that too many planes cut however small they are.

        Such planes have a point in common, so they have fewer directions than dimensions, and :mod:`reduction` helps.
        """
        ends = [0, *self.met[1 : 1 + self.met[0]]]
        for number, (start, stop) in enumerate(itertools.pairwise(ends)):
            rows, sums, bound = self.met_rows[start:stop].copy(), self.met_sums[number], self.met_bound[number]
            if (bound <= known.utility + target).all():
                known.left_behind = np.maximum(known.left_behind, np.where(bound > known.utility, bound, -np.inf))
                continue
            key = rows.tobytes() + sums.tobytes()
            if key not in self.met_before:
                self.met_before[key] = self.run.solve_meeting(rows, sums, target, share)
            for step, found in enumerate(self.met_before[key]):
                if isinstance(found, NoRule):
                    most = -np.inf if found.proven else bound
                else:
                    most = min(bound, found.upper_bound)
                    if found.utility > known.utility[step] + _kernels.RESOLUTION:
                        self.run.offer(known, self.run.point_beside(self.met_centre[number], rows, np.array(found.z)))
                if most > known.utility[step]:
                    known.left_behind[step] = max(known.left_behind[step], most)
        self.met[0] = 0

    def _grow(self) -> None:
        """Double the room."""
        for name in ("centre", "radius", "sums", "start", "count", "bound", "guess", "pool"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros_like(array)]))


def _faces(k: int) -> list[_Box]:
    """Return the 2 K + 1 faces of the half-cube as boxes (centre, radius); the one around z = 0 is last, on top."""
    boxes = []
    for axis, side in [*itertools.product(range(1, k + 1), (-1.0, 1.0)), (0, 1.0)]:
        centre, radius = np.zeros(k + 1), np.ones(k + 1)
        if axis > 0:
            centre[0] = radius[0] = 0.5
        centre[axis], radius[axis] = side, 0.0
        boxes.append((centre, radius))
    return boxes


def _parts(centre: FloatArray, radius: FloatArray) -> list[_Box]:
    """Return the box's 2^K parts, halved along every side that it has, but for the many sides of many dimensions."""
    halved = np.flatnonzero(radius > 0.0)[:SIDES_HALVED_AT_ONCE]
    half = radius.copy()
    half[halved] *= 0.5
    found = []
    for signs in itertools.product((-1.0, 1.0), repeat=len(halved)):
        middle = centre.copy()
        middle[halved] += half[halved] * signs
        found.append((middle, half))
    return found


def _planes_of(problem: Problem) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the planes, the scale that each contrast was divided by, and what is decided whatever z is."""
    scale = np.array([_scale(column) for column in problem.contrasts.T])
    rows = np.column_stack([problem.margin, -problem.contrasts / scale, problem.gain, problem.effects])
    constant = np.zeros(1 + problem.effects.shape[1])
    constant[0] = problem.offset
    merged = np.empty_like(rows)
    found = _kernels.merge_planes(rows, problem.dimension + 1, merged, constant)
    return np.ascontiguousarray(merged[:found]), scale, constant


def _bundles_of(planes: FloatArray, n_coordinates: int) -> tuple[NDArray[np.int32], FloatArray]:
    """Return, for each face, the bundle of each plane and the directions of the bundles, a tree of them."""
    k = n_coordinates - 1
    # In many dimensions hardly any directions are alike, and looking for them takes longer than the search has.
    deepest = DEPTH_OF_BUNDLES.get(k, DEPTH_OF_BUNDLES_BEYOND) if k <= MOST_DIMENSIONS_WITH_BUNDLES else 0
    depth = int(np.clip(np.log2(max(1, len(planes)) / _kernels.ROWS_A_BUNDLE), 0, deepest))
    codes = np.zeros((n_coordinates, len(planes)), dtype=np.int32)
    directions = np.zeros((n_coordinates, 2 << depth, n_coordinates))
    for axis in range(n_coordinates):
        _kernels.bundle_planes(planes, axis, depth, codes[axis], directions[axis])
    return codes, directions


def _scale(contrast: FloatArray) -> float:
    """Return a typical size of a contrast as a power of two: scaling is then exact, and copies of rows move nothing."""
    return float(2.0 ** np.round(np.log2(typical_size(contrast))))
