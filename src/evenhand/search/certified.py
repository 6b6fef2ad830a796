"""Branch and bound over z-space: the best rule of the family, with a proof that there is no better.

Half-cube coordinates: a rule is a point (t, w) with t > 0 on the surface of the unit cube in K + 1 dimensions,
z = w / t, so the whole of z-space, infinity included, is 2 K + 1 bounded faces. In a box of such points a row
is surely 1, surely 0 or open; the open rows bound what any rule in the box can do (see ``_kernels._prune``).

Boxes wait in a queue, the most promising first. Each is searched depth first for a while, and what is left of it goes
back to the queue; so at any moment the queue's first box bounds what was not found.

Rows whose groups are known have a search of their own, over one threshold for each group (:mod:`known_groups`).
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_seed, is_number, is_whole, shown
from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.search import _kernels, _known_groups_kernels
from evenhand.search._compiling import notice_of_compilation
from evenhand.search.coincidence import share_planes
from evenhand.search.dual import Dual
from evenhand.search.known_groups import Block, KnownGroups, blocks_of, may_have_blocks
from evenhand.search.problem import NoRule, Problem, Solution, conclude, typical_size
from evenhand.search.reduction import Part, parts_of
from evenhand.search.smoothed import smoothed_search, usual_work
from evenhand.search.sweep import Best, settled, sweep_line
from evenhand.search.threshold import sweep_whole_line, try_every_cell

# Work is counted in row visits, so that a busy machine finds what an idle one finds.
VISITS_FOR_THE_PLANE = 1_000_000_000
VISITS_BEYOND = 500_000_000
VISITS_AT_ONCE = 4_000_000
VISITS_OF_GROUPS_AT_ONCE = 50_000_000
VISITS_FOR_A_FACE = 32_000_000
VISITS_A_TURN = 1_000_000
VISITS_A_CALL = 16_000_000
VISITS_TO_PREPARE_A_BOX = 2**12
VISITS_A_MEETING, VISITS_TO_PREPARE_A_MEETING = 2**24, 2**17
VISITS_BESIDE = 2.0
SHARE_TO_START, LEAST_TO_START = 0.6, 0.1
ENTRIES_FOR_THE_DUAL = 20_000
ROWS_A_TURN = 16
BOXES_A_ROUND = 8
SIDES_HALVED_AT_ONCE = 6
MEETINGS_A_TURN = 64
SHARE_OF_ROWS_KEPT, ROWS_KEPT = 1 / 16, 4096
_COMPILING = threading.Lock()
LEAF_SIZE = {2: 16, 3: 8}
LEAF_SIZE_BEYOND = 6
MEETING_SIZE = {2: 4096, 3: 32}
MEETING_SIZE_BEYOND = 20
DEPTH_OF_BUNDLES = {2: 5, 3: 7}
DEPTH_OF_BUNDLES_BEYOND = 8
MOST_DIMENSIONS_WITH_BUNDLES = 8
FIRST_GUESS = 0.2
MOST_DIMENSIONS_COMPILED = 2
_Region = tuple[FloatArray, FloatArray]
_Planes = tuple[FloatArray, FloatArray, FloatArray]
_Found = list[Solution | NoRule]


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
    max_visits : int or None, default=None
        Stop after so many visits of rows, some ten nanoseconds each.
    max_seconds : float or None or "auto", default="auto"
        "auto" allows a fixed amount of work, unless one is given in nodes or visits: 5 to 15 seconds where
        all of it is spent. The same call gives the same answer on a busy machine and on an idle one. A number allows
        the work of so many seconds, and stops there by the clock too; ``solution.stopped`` is then "time".
        ``None`` sets no limit.
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
    max_visits: int | None = None
    max_seconds: float | str | None = "auto"
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        if not is_number(self.gap) or not self.gap >= 0.0:
            raise InputError(f"Certified needs a gap that is a number and not negative; got {shown(self.gap)}.")
        for name in ("max_nodes", "max_visits", "n_jobs"):
            value = getattr(self, name)
            if value is not None and not (is_whole(value) and value >= 1):
                raise InputError(f"Certified needs {name} to be a whole number above 0, or None; got {shown(value)}.")
        limit = self.max_seconds
        fine = limit == "auto" if isinstance(limit, str) else limit is None or (is_number(limit) and limit > 0.0)
        if not fine:
            raise InputError(f"max_seconds is a number above 0, None or 'auto'; got {shown(limit)}.")

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule for each step of the bounds, and how good any other could be."""
        check_seed(random_state)
        started = time.perf_counter()
        best = Best.none(problem)
        best.offer(problem, np.zeros(problem.dimension))
        parts = parts_of(share_planes(problem) if problem.dimension > 1 else problem)
        budget = Budget.of(self, max(part.problem.dimension for part in parts))
        claimed, bound, nodes = _search_parts(problem, parts, self, budget, best.utility, random_state, _solve)
        best.join(settled(problem, claimed))
        if (claimed.utility > best.utility + problem.resolution).any():
            if problem.dimension == 1:
                try_every_cell(problem, best)
            else:
                _sweep_around(problem, claimed, best)
        results = best.results(problem, upper_bound=bound, nodes=nodes, seconds=time.perf_counter() - started)
        return [replace(result, stopped=budget.stopped) for result in results]


def _search_parts(
    problem: Problem,
    parts: Sequence[Part],
    options: Certified,
    budget: Budget,
    known: FloatArray,
    random_state: Any,
    solve: Callable[[Problem, Certified, Budget, FloatArray, Any], _Found],
) -> tuple[Best, FloatArray, int]:
    """Return the best rules of some parts of a problem that beat what is known, a bound on all of them, and the boxes.

    The bound counts what is known too.
    """
    claimed = Best.none(problem)
    bound = known.copy()
    nodes = 0
    for remaining, part in zip(range(len(parts), 0, -1), parts, strict=True):
        beat = np.maximum(known, claimed.utility) / part.utility_scale
        scaled = replace(options, gap=options.gap / part.utility_scale)
        found = solve(part.problem, scaled, budget.share(1.0 / remaining), beat, random_state)
        nodes += found[0].nodes
        for step, result in enumerate(found):
            bound[step] = max(bound[step], part.utility_scale * result.upper_bound)
            if isinstance(result, Solution) and part.utility_scale * result.utility > claimed.utility[step]:
                claimed.utility[step] = part.utility_scale * result.utility
                claimed.z[step] = part.original(np.array(result.z))
    return claimed, bound, nodes


def _solve(problem: Problem, options: Certified, budget: Budget, known: FloatArray, random_state: Any) -> _Found:
    """Solve a problem in as few dimensions as it has, given the utilities that other rules already have."""
    if problem.dimension > 1 and may_have_blocks(problem):
        planes = _planes_of(problem)
        blocks = blocks_of(planes[0][:, : problem.dimension + 1])
        if blocks is not None:
            _prepare_known_groups(budget)
            return _solve_known_groups(problem, planes, blocks, options, budget, known, random_state)
    return _solve_by_boxes(problem, options, budget, known, random_state)


def _solve_known_groups(
    problem: Problem, planes: _Planes, blocks: list[Block], options: Certified, budget: Budget, known: FloatArray,
    random_state: Any,
) -> _Found:  # fmt: skip
    """Search the thresholds of known groups; what is not proven at once is started again from good rules."""
    run = KnownGroups(problem, *planes, blocks, options.gap, known)
    run.search(budget.at_most(VISITS_OF_GROUPS_AT_ONCE))
    if run.height and budget.visits > 0.0:
        budget.stop(None)
        run.offer(_good_rules(problem, budget, random_state))
        run.search(budget)
    return run.results()


def _solve_by_boxes(
    problem: Problem, options: Certified, budget: Budget, known: FloatArray, random_state: Any
) -> _Found:
    """Solve a problem by branch and bound over boxes of z, or by one sweep where z is a number."""
    if problem.dimension == 1:
        line = sweep_whole_line(problem)
        return line.results(problem, upper_bound=line.utility, nodes=1)
    _prepare(problem.dimension)
    run = _Run(problem, options, budget, known, random_state)
    run.search()
    return run.results()


def _sweep_around(problem: Problem, claimed: Best, best: Best) -> None:
    """Look for rules near claims that the rows do not keep: rows that share a plane may differ in their decisions."""
    near = Best.none(problem)
    scale = np.array([1.0 / typical_size(column) for column in problem.contrasts.T])
    table = problem.table
    for z in np.unique(claimed.z[np.isfinite(claimed.utility)], axis=0):
        for direction in [*np.diag(scale), z]:
            sweep_line(problem, table, z, direction, near)
    best.join(settled(problem, near))


class Budget:
    """The work that a search may do: row visits, boxes and, where a user says so, seconds."""

    def __init__(self, visits: float, nodes: float, deadline: float, parent: Budget | None = None) -> None:
        self.visits, self.nodes, self.deadline, self.parent = visits, nodes, deadline, parent
        self.stopped: str | None = None

    @classmethod
    def of(cls, options: Certified, dimension: int) -> Budget:
        """Return the budget that a user's options give."""
        limit = options.max_seconds
        nodes = np.inf if options.max_nodes is None else options.max_nodes
        visits = np.inf if options.max_visits is None else options.max_visits
        if limit is None or (isinstance(limit, str) and min(visits, nodes) < np.inf):
            return cls(visits, nodes, np.inf)
        if isinstance(limit, str):
            return cls(VISITS_FOR_THE_PLANE if dimension <= 2 else VISITS_BEYOND, nodes, np.inf)
        return cls(min(visits, limit * visits_a_second()), nodes, time.perf_counter() + limit)

    def share(self, part: float) -> Budget:
        """Return a part of what is left, which is taken from here as it is spent."""
        return Budget(part * self.visits, max(1.0, part * self.nodes), self.deadline, self)

    def at_most(self, visits: float) -> Budget:
        """Return a part that allows no more than so many visits."""
        return Budget(min(visits, self.visits), self.nodes, self.deadline, self)

    def spend(self, visits: float, nodes: float) -> None:
        """Take away what was used."""
        self.visits -= visits
        self.nodes -= nodes
        if self.parent is not None:
            self.parent.spend(visits, nodes)

    def extend(self, seconds: float) -> None:
        """Move the deadline: compiling is not searching."""
        self.deadline += seconds
        if self.parent is not None:
            self.parent.extend(seconds)

    def is_spent(self) -> bool:
        """Tell whether nothing is left, and remember of what."""
        if self.visits <= 0.0 or self.nodes <= 0.0 or time.perf_counter() > self.deadline:
            self.stop("work" if self.visits <= 0.0 else "nodes" if self.nodes <= 0.0 else "time")
            return True
        return False

    def stop(self, reason: str | None) -> None:
        """Remember why the search ended before its proof."""
        self.stopped = reason
        if self.parent is not None:
            self.parent.stop(reason)


@cache
def visits_a_second() -> float:
    """Return how many rows a core visits in a second, measured once and rounded to a power of two."""
    rng = np.random.default_rng(0)
    planes, rows = rng.normal(size=(20_000, 8)), np.arange(20_000, dtype=np.int32)
    centre, radius, kept = np.array([1.0, 0.1, 0.1]), np.array([0.0, 0.1, 0.1]), np.empty(20_001, dtype=np.int32)
    fastest = np.inf
    for _ in range(20):
        started = time.thread_time()
        _kernels.classify(planes, _coordinates(2), 3, rows, len(rows), centre, radius, kept, np.zeros(3))
        fastest = min(fastest, time.thread_time() - started)
    return float(2.0 ** np.round(np.log2(len(rows) / (VISITS_BESIDE * max(fastest, 1e-9)))))


def _coordinates(dimension: int) -> tuple[int, ...] | NDArray[np.int64]:
    """Return something as long as a point has coordinates: the kernels are compiled for each tuple, once for arrays."""
    zeros = (0,) * (dimension + 1)
    return zeros if dimension <= MOST_DIMENSIONS_COMPILED else np.array(zeros)


def _prepare(dimension: int) -> None:
    """Compile the kernels for a number of dimensions, if that has not been done: no budget is for that."""
    _compile(min(dimension, MOST_DIMENSIONS_COMPILED + 1))


@cache
def _compile(dimension: int) -> None:
    """Solve a problem of two rows, which compiles what has not been compiled yet."""
    toy = Problem(
        np.array([0.5, -0.5]), np.ones((2, dimension)), np.array([0.5, -0.5]), np.zeros((2, dimension)),
        np.full(dimension, -1.0), np.full(dimension, 1.0),
    )  # fmt: skip
    with notice_of_compilation(_kernels.branch):
        _Run(toy, Certified(), Budget(np.inf, 1, np.inf), np.full(1, -np.inf)).search()


def _prepare_known_groups(budget: Budget) -> None:
    """Compile the search of known groups, if that has not been done, outside of the budget."""
    before = time.perf_counter()
    with _COMPILING:
        _compile_known_groups()
    budget.extend(time.perf_counter() - before)


@cache
def _compile_known_groups() -> None:
    """Look at one range of a problem of six rows, which compiles what has not been compiled yet."""
    margin, groups = np.linspace(-0.5, 0.5, 6), np.repeat(np.eye(2), 3, axis=0)
    toy = Problem(margin, groups, margin, groups, np.full(2, -9.0), np.full(2, 9.0))
    planes = _planes_of(toy)
    blocks = blocks_of(planes[0][:, :3])
    assert blocks is not None
    with notice_of_compilation(_known_groups_kernels.branch_ranges):
        KnownGroups(toy, *planes, blocks, 0.0, np.full(1, -np.inf)).search(Budget(np.inf, 1, np.inf))


def _good_rules(problem: Problem, budget: Budget, random_state: Any) -> Best:
    """Return rules of the smoothed search and, where the rows are few, of the linear program."""
    claimed = Best.none(problem)
    n, c = problem.effects.shape
    usual = usual_work(problem)
    allowed = min(usual, SHARE_TO_START * budget.visits)
    if allowed >= LEAST_TO_START * usual:
        found = smoothed_search(problem, claimed, max_work=allowed, random_state=random_state)
        budget.spend(found.work, 0.0)
    best = settled(problem, claimed)
    if n * c <= ENTRIES_FOR_THE_DUAL:
        for result in Dual().solve(problem):
            if isinstance(result, Solution):
                best.offer(problem, np.array(result.z))
    return best


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


@dataclass(order=True)
class _Box:
    """A box of points (t, w) that waits to be searched; ``rows`` are its open planes, None where they are not kept."""

    priority: tuple[float, int]
    centre: FloatArray = field(compare=False)
    radius: FloatArray = field(compare=False)
    sums: FloatArray = field(compare=False)
    rows: NDArray[np.int32] | None = field(compare=False, default=None)
    guess: FloatArray = field(compare=False, default_factory=lambda: np.full(2, FIRST_GUESS))

    @property
    def bound(self) -> float:
        """No rule in the box has a utility above this."""
        return -self.priority[0]


# What is left of a box: a bound, centre, radius, and sums and rows where they are kept, and the guesses.
_Left = tuple[float, FloatArray, FloatArray, FloatArray | None, NDArray[np.int32] | None, FloatArray]


class _Run:
    """One search: the planes, the boxes to look at, and what is known so far."""

    def __init__(
        self, problem: Problem, options: Certified, budget: Budget, known: FloatArray, random_state: Any = None
    ) -> None:
        self.problem, self.options, self.budget, self.random_state = problem, options, budget, random_state
        self.planes, self.scale, self.constant = _planes_of(problem)
        steps, k = len(problem.lower), problem.dimension
        every = np.arange(len(self.planes), dtype=np.int32)
        self.shape = (_coordinates(k), 1 + problem.effects.shape[1], every, *_bundles_of(self.planes, k + 1))
        self.basis = problem.basis
        self.sizes = (LEAF_SIZE.get(k, LEAF_SIZE_BEYOND), MEETING_SIZE.get(k, MEETING_SIZE_BEYOND))
        self.known = _Known(steps, k + 1)
        self.known.utility[:] = known
        # Without any constraint, every plane would decide as its gain says.
        self.trivial_bound = self.constant[0] + float(np.maximum(self.planes[:, k + 1], 0.0).sum())
        self.upper_bound = np.full(steps, self.trivial_bound)
        self.turn = max(VISITS_A_TURN, ROWS_A_TURN * len(self.planes)) if k > 2 else VISITS_FOR_A_FACE
        self.nodes = 0
        self.gave_up = False
        self.counter = itertools.count()

    def start(self) -> None:
        """Find good rules first: what is better than them is all that is left to look for."""
        best = _good_rules(self.problem, self.budget, self.random_state)
        for step in np.flatnonzero(best.utility > self.known.utility + _kernels.RESOLUTION):
            w = best.z[step] * self.scale
            self.known.utility[step] = best.utility[step]
            self.known.point[step] = np.concatenate([[1.0], w]) / max(1.0, float(np.abs(w).max()))

    def search(self) -> None:
        """Look at all boxes that may hold a rule better by more than the gap asked for, until the budget is spent.

        Beyond the plane, what is not proven at once is started again from good rules.
        """
        queue = self._first_boxes()
        if self.problem.dimension > 2 and self.budget.visits > 0.0:
            self._search(queue, self.budget.at_most(VISITS_AT_ONCE))
            if self.gave_up:
                # A small problem where planes meet was too much for the first look: look again, at everything.
                queue = self._first_boxes()
                self.known.left_behind[:] = -np.inf
            if queue:
                self.budget.stop(None)
                self.start()
        self._search(queue, self.budget)
        waiting = max((box.bound for box in queue), default=-np.inf)
        self.upper_bound = np.maximum(
            np.minimum(self.upper_bound, np.maximum(self.known.left_behind, waiting)), self.known.utility
        )

    def _search(self, queue: list[_Box], budget: Budget) -> None:
        """Search the boxes of a queue, and put back what is left of them, until it is empty or a budget is spent."""
        target = self.options.gap
        k = self.problem.dimension
        # Counting boxes is only the same every time when one thread counts.
        workers = 1 if k == 2 or budget.nodes < np.inf else self.options.n_jobs or os.cpu_count() or 1
        together = 1 if k == 2 else BOXES_A_ROUND
        stacks = [_Stack(self) for _ in range(min(workers, together))]
        with ThreadPoolExecutor(len(stacks)) as pool:
            while queue and not budget.is_spent():
                chosen = self._pop(queue, together, target)
                known = [self.known.copy() for _ in chosen]
                nodes = max(1, int(min(2**40, budget.nodes) // max(1, len(chosen))))
                visits = int(max(1.0, min(self.turn, budget.visits / max(1, len(chosen)))))
                most = max(1.0, budget.visits / max(1, len(chosen)))
                for stack in stacks:
                    stack.spent[:] = 0.0
                if len(stacks) == 1:
                    left = [
                        stacks[0].search(b, s, target, visits, nodes, most) for b, s in zip(chosen, known, strict=True)
                    ]
                else:
                    left = _side_by_side(pool, stacks, chosen, known, target, visits, nodes, most)
                for stack in stacks:
                    budget.spend(*stack.spent)
                    self.nodes += int(stack.spent[1])
                # Within a round the boxes know the same rules: threads change nothing but the time.
                for found, boxes in zip(known, left, strict=True):
                    self.known.take(found)
                    for box in boxes:
                        heapq.heappush(queue, self.box(*box))

    def _first_boxes(self) -> list[_Box]:
        """Return the faces of the half-cube, in parts beyond the plane: they share the work evenly."""
        k = self.problem.dimension
        boxes = _faces(k)
        if k > 2:
            middle = _parts(*boxes[-1])
            if k <= 4:
                # Most of the work is around z = 0: smaller parts soon find good rules.
                middle = [part for half in middle for part in _parts(*half)]
            boxes = [*(part for face in boxes[:-1] for part in _parts(*face)), *middle]
        # All have the same bound, and the last ones, around z = 0, go first.
        found = [self.box(self.trivial_bound, *box) for box in reversed(boxes)]
        heapq.heapify(found)
        return found

    def box(
        self,
        bound: float,
        centre: FloatArray,
        radius: FloatArray,
        sums: FloatArray | None = None,
        rows: NDArray[np.int32] | None = None,
        guess: FloatArray | None = None,
    ) -> _Box:
        """Return a box for the queue; without rows it is looked at anew."""
        kept = {} if guess is None else {"guess": guess}
        return _Box((-bound, next(self.counter)), centre, radius, self.constant if sums is None else sums, rows, **kept)

    def _pop(self, queue: list[_Box], together: int, target: float) -> list[_Box]:
        """Return the most promising boxes; those that hold nothing better than what is known are left behind."""
        chosen: list[_Box] = []
        while queue and len(chosen) < together:
            box = heapq.heappop(queue)
            hopeless = box.bound <= self.known.utility + target + _kernels.RESOLUTION
            if hopeless.all():
                behind = np.where(box.bound > self.known.utility, box.bound, -np.inf)
                self.known.left_behind = np.maximum(self.known.left_behind, behind)
            else:
                chosen.append(box)
        return chosen

    def solve_meeting(
        self, rows: NDArray[np.int32], sums: FloatArray, target: float, budget: Budget
    ) -> list[Solution | NoRule]:
        """Return the best that some planes can do if the others, whose sums are given, stay as they are."""
        planes, k = self.planes[rows], self.problem.dimension
        smaller = Problem(
            planes[:, 0], -planes[:, 1 : k + 1], planes[:, k + 1], planes[:, k + 2 :], self.problem.lower - sums[1:],
            self.problem.upper - sums[1:], float(sums[0]), self.problem.mixing,
        )  # fmt: skip
        parts = parts_of(smaller)
        if parts[0].problem.dimension == k:
            return [NoRule(proven=False)] * len(self.known.utility)
        with _COMPILING:
            before = time.perf_counter()
            _prepare(parts[0].problem.dimension)
            budget.extend(time.perf_counter() - before)
        none_known = np.full(len(self.known.utility), -np.inf)
        options = Certified(gap=target, n_jobs=1)
        claimed, bound, nodes = _search_parts(smaller, parts, options, budget, none_known, None, _solve_by_boxes)
        return claimed.results(smaller, upper_bound=bound, nodes=nodes)

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

    def results(self) -> list[Solution | NoRule]:
        """Return what was found beyond what was known before, and the bound on everything."""
        found: list[Solution | NoRule] = []
        for step, point in enumerate(self.known.point):
            bound = float(self.upper_bound[step])
            if bound >= self.trivial_bound > self.known.utility[step] + _kernels.RESOLUTION:
                bound = np.inf  # nothing was proven
            if np.isnan(point[0]):
                found.append(NoRule(bound == -np.inf, self.nodes, bound))
                continue
            z = point[1:] / (point[0] * self.scale)
            found.append(conclude(self.problem, step, z, upper_bound=bound, nodes=self.nodes))
        return found


def _side_by_side(
    pool: ThreadPoolExecutor, stacks: list[_Stack], boxes: list[_Box], known: list[_Known], *limits: Any
) -> list[list[_Left]]:
    """Search boxes in as many threads as there are stacks."""
    free = list(stacks)

    def one(pair: tuple[_Box, _Known]) -> list[_Left]:
        stack = free.pop()
        try:
            return stack.search(*pair, *limits)
        finally:
            free.append(stack)

    return list(pool.map(one, zip(boxes, known, strict=True)))


class _Stack:
    """The parts of a box that are still to look at, depth first, with the open rows of each. One for each thread."""

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
        self.met_before: dict[bytes, tuple[list[Solution | NoRule], int]] = {}
        self.spent = np.zeros(2)

    def search(self, box: _Box, known: _Known, target: float, visits: int, nodes: int, most: float) -> list[_Left]:
        """Look at a box and its parts, until the work allowed is done; return what is left of it.

        ``most`` is for all row visits, with those of the smaller problems where planes meet.
        """
        run = self.run
        deadline = run.budget.deadline
        self.centre[0], self.radius[0], self.sums[0], self.guess[0] = box.centre, box.radius, box.sums, box.guess
        self.start[0], self.count[0], self.bound[0] = 0, -1, box.bound
        if box.rows is not None:
            self.count[0] = len(box.rows)
            self.pool[: len(box.rows)] = box.rows
        height = 1
        looked_up: set[bytes] = set()
        self.spent[0] += VISITS_TO_PREPARE_A_BOX
        while True:
            code, height, looked_at, visited = _kernels.branch(
                run.planes, *run.shape, run.basis, run.scale, run.problem.lower, run.problem.upper, *run.sizes, target,
                min(visits, VISITS_A_CALL), nodes, self.centre, self.radius, self.sums, self.start, self.count,
                self.bound, self.guess, self.pool, height, known.utility, known.point, known.left_behind, self.scratch,
                self.met, self.met_centre, self.met_sums, self.met_bound, self.met_rows,
            )  # fmt: skip
            visits, nodes = visits - visited, nodes - looked_at
            self.spent += visited, looked_at
            most -= visited
            apart = self._look_where_planes_meet(known, target, most, looked_up)
            visits, most = visits - apart, most - apart
            if code == _kernels.OUT_OF_ROOM:
                self._grow()
            elif code == _kernels.DONE:
                return []
            elif visits <= 0 or nodes <= 0 or time.perf_counter() > deadline:
                return self._left(height)

    def _left(self, height: int) -> list[_Left]:
        """Return the boxes of the stack; rows are kept where they are few."""
        most = max(ROWS_KEPT, SHARE_OF_ROWS_KEPT * len(self.run.planes))
        left = []
        for i in range(height):
            kept = 0 <= self.count[i] <= most
            rows = self.pool[self.start[i] : self.start[i] + self.count[i]].copy() if kept else None
            sums = self.sums[i].copy() if kept else None
            left.append((self.bound[i], self.centre[i].copy(), self.radius[i].copy(), sums, rows, self.guess[i].copy()))
        return left

    def _look_where_planes_meet(self, known: _Known, target: float, most: float, looked_up: set[bytes]) -> int:
        """Solve, as smaller problems, the boxes that too many planes cut however small they are; return the row visits.

        Such planes have a point in common, so they have fewer directions than dimensions, and :mod:`reduction` helps.
        What another box has met before is not solved again, but counts: which boxes a thread sees is chance.
        """
        ends = [0, *self.met[1 : 1 + self.met[0]]]
        spent = 0
        for number, (start, stop) in enumerate(itertools.pairwise(ends)):
            rows, sums, bound = self.met_rows[start:stop].copy(), self.met_sums[number], self.met_bound[number]
            allowed = 2 ** int(np.log2(max(1.0, min(VISITS_A_MEETING, most - spent))))
            hopeful = (bound > known.utility + target).any()
            if not hopeful or allowed < VISITS_TO_PREPARE_A_MEETING:
                self.run.gave_up |= bool(hopeful)
                known.left_behind = np.maximum(known.left_behind, np.where(bound > known.utility, bound, -np.inf))
                continue
            key = rows.tobytes() + sums.tobytes() + str(allowed).encode()
            if key not in self.met_before:
                budget = Budget(allowed, np.inf, self.run.budget.deadline)
                results = self.run.solve_meeting(rows, sums, target, budget)
                self.met_before[key] = results, VISITS_TO_PREPARE_A_MEETING + int(allowed - budget.visits)
            results, visits = self.met_before[key]
            if key not in looked_up:
                looked_up.add(key)
                spent += visits
                self.spent += visits, results[0].nodes
            for step, found in enumerate(results):
                upper = min(bound, found.upper_bound)
                if isinstance(found, Solution) and found.utility > known.utility[step] + _kernels.RESOLUTION:
                    self.run.offer(known, self.run.point_beside(self.met_centre[number], rows, np.array(found.z)))
                if upper > known.utility[step]:
                    self.run.gave_up |= allowed < VISITS_A_MEETING and bool(upper > known.utility[step] + target)
                    known.left_behind[step] = max(known.left_behind[step], upper)
        self.met[0] = 0
        return spent

    def _grow(self) -> None:
        """Double the room."""
        for name in ("centre", "radius", "sums", "start", "count", "bound", "guess", "pool"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros_like(array)]))


def _faces(k: int) -> list[_Region]:
    """Return the 2 K + 1 faces of the half-cube as boxes (centre, radius); the one around z = 0 is last, on top."""
    boxes = []
    for axis, side in [*itertools.product(range(1, k + 1), (-1.0, 1.0)), (0, 1.0)]:
        centre, radius = np.zeros(k + 1), np.ones(k + 1)
        if axis > 0:
            centre[0] = radius[0] = 0.5
        centre[axis], radius[axis] = side, 0.0
        boxes.append((centre, radius))
    return boxes


def _parts(centre: FloatArray, radius: FloatArray) -> list[_Region]:
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


def _planes_of(problem: Problem) -> _Planes:
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
