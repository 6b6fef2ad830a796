"""Branch and bound over z-space: the best rule of the family, with a proof that there is no better.

Half-cube coordinates: a rule is a point (t, w) with t > 0 on the surface of the unit cube in K + 1 dimensions,
z = w / t, so the whole of z-space, infinity included, is 2 K + 1 bounded faces. In a box of such points a row
is surely 1, surely 0 or open; the open rows bound what any rule in the box can do (see ``kernels.ladder.prune``).

Boxes wait in a queue, the most promising first. Each is searched depth first for a while, and the rest of it goes back
to the queue. So at any time the queue's first box bounds everything that was not searched.

Rows with known groups have a separate search, over one threshold for each group (:mod:`known_groups`).
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_seed, is_number, is_whole, shown
from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.search._compiling import notice_of_compilation, quick_compilation
from evenhand.search.arrangement import Arrangement, Region, faces, pieces, planes_of
from evenhand.search.budget import Budget
from evenhand.search.certificate import certify, has_certificate
from evenhand.search.coincidence import share_planes
from evenhand.search.dual import Dual
from evenhand.search.kernels.branch import branch
from evenhand.search.kernels.known_groups import branch_ranges
from evenhand.search.kernels.ladder import RESOLUTION, Incumbent
from evenhand.search.kernels.leaves import enumerate_cells, enumerate_plane_cells
from evenhand.search.known_groups import KnownGroups, blocks_of, may_have_blocks
from evenhand.search.problem import NoRule, Problem, Solution, Stopped, conclude, typical_size
from evenhand.search.reduction import Part, parts_of
from evenhand.search.smoothed import smoothed_search, usual_work
from evenhand.search.stack import Box, Stack
from evenhand.search.sweep import Best, settled, sweep_line
from evenhand.search.threshold import sweep_whole_line, try_every_cell

VISITS_AT_ONCE = 4_000_000
VISITS_OF_GROUPS_AT_ONCE = 50_000_000
VISITS_FOR_A_FACE = 32_000_000
VISITS_A_TURN = 1_000_000
SHARE_TO_START, LEAST_TO_START = 0.6, 0.1
ENTRIES_FOR_THE_DUAL = 20_000
ROWS_A_TURN = 16
BOXES_A_ROUND = 8
_COMPILING = threading.Lock()
LEAF_SIZE = {2: 16, 3: 8}
LEAF_SIZE_BEYOND = 6
MEETING_SIZE = {2: 4096, 3: 32}
MEETING_SIZE_BEYOND = 20

# A box with minus its bound and a number, which order the queue.
_Waiting = tuple[float, int, Box]
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
        Stop after this number of row visits, about ten nanoseconds each.
    max_seconds : float or None or "auto", default="auto"
        "auto" allows a fixed amount of work, unless it is given in nodes or visits: 5 to 15 seconds if all of
        it is spent. The same call gives the same answer on a busy and on an idle machine. A number allows the
        work of that many seconds, and also stops by the clock; ``solution.stopped`` is then "time". ``None``
        sets no limit.
    n_jobs : int or None, default=None
        Threads for K > 2; ``None`` uses one for each core. The result does not depend on it.

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
            raise InputError(f"gap must be a number of at least 0; got {shown(self.gap)}.")
        for name in ("max_nodes", "max_visits", "n_jobs"):
            value = getattr(self, name)
            if value is not None and not (is_whole(value) and value >= 1):
                raise InputError(f"{name} must be a whole number above 0, or None; got {shown(value)}.")
        limit = self.max_seconds
        fine = limit == "auto" if isinstance(limit, str) else limit is None or (is_number(limit) and limit > 0.0)
        if not fine:
            raise InputError(f"max_seconds must be a number above 0, None or 'auto'; got {shown(limit)}.")

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule for each step of the bounds, with an upper bound on all others."""
        check_seed(random_state)
        started = time.perf_counter()
        best = Best.none(problem)
        for z in (np.zeros(problem.dimension), *problem.starts):
            best.offer(problem, z)
        parts = parts_of(share_planes(problem) if problem.dimension > 1 else problem)
        budget = Budget.of(self, max(part.problem.dimension for part in parts))
        known = np.maximum(best.utility, problem.to_beat)
        claimed, bound, nodes = _search_parts(problem, parts, self, budget, known, random_state, _solve)
        best.join(settled(problem, claimed))
        if (claimed.utility > best.utility + problem.resolution).any():
            if problem.dimension == 1:
                try_every_cell(problem, best)
            else:
                _sweep_around(problem, claimed, best)
        results = best.results(problem, upper_bound=bound, nodes=nodes, seconds=time.perf_counter() - started)
        kept = replace(problem, decider=None) if has_certificate(problem) else None
        return [_told(kept, step, result, budget) for step, result in enumerate(results)]


def _told(kept: Problem | None, step: int, result: Solution | NoRule, budget: Budget) -> Solution | NoRule:
    """Return a result with the reason why the search ended and, if its problem was kept, the certificate's function."""
    if kept is None or isinstance(result, NoRule):
        return replace(result, stopped=budget.stopped)
    return replace(result, stopped=budget.stopped, prove=partial(certify, kept, step))


def _search_parts(
    problem: Problem,
    parts: Sequence[Part],
    options: Certified,
    budget: Budget,
    known: FloatArray,
    random_state: Any,
    solve: Callable[[Problem, Certified, Budget, FloatArray, Any], _Found],
) -> tuple[Best, FloatArray, int]:
    """Return the best rules of some parts of a problem that beat the known ones, a bound on all, and the boxes.

    The bound includes the known rules.
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
    """Solve a problem in as few dimensions as possible, given the utilities of known rules."""
    if problem.dimension > 1 and may_have_blocks(problem):
        planes, scale, constant, _ = planes_of(problem)
        blocks = blocks_of(planes[:, : problem.dimension + 1])
        if blocks is not None:
            _prepare_known_groups(budget)
            run = KnownGroups(problem, planes, scale, constant, blocks, options.gap, known)
            return _solve_known_groups(run, budget, random_state)
    return _solve_by_boxes(problem, options, budget, known, random_state)


def _solve_known_groups(run: KnownGroups, budget: Budget, random_state: Any) -> _Found:
    """Search the thresholds of known groups; if the proof is not quick, start again from good rules."""
    run.search(budget.at_most(VISITS_OF_GROUPS_AT_ONCE))
    if run.height and budget.visits > 0.0:
        budget.stop(None)
        run.offer(_good_rules(run.problem, budget, random_state))
        run.search(budget)
    return run.results()


def _solve_by_boxes(
    problem: Problem, options: Certified, budget: Budget, known: FloatArray, random_state: Any
) -> _Found:
    """Solve a problem by branch and bound over boxes of z, or by one sweep if z is a number."""
    if problem.dimension == 1:
        line = sweep_whole_line(problem)
        return line.results(problem, upper_bound=line.utility, nodes=1)
    _prepare(problem.dimension)
    run = _Run(problem, options, budget, known, random_state)
    run.search()
    return run.results()


def search_box(
    problem: Problem, options: Certified, radius: FloatArray, random_state: Any = None, to_beat: float = -np.inf
) -> tuple[Best, float, int, Stopped | None]:
    """Return the best rule with ``|z_k| <= radius_k``, a bound on all such rules, the boxes, and the limit reached.

    Only the first step of the bounds is solved, and only for K > 1. A rule is only returned if it is better than
    ``to_beat``; the bound is at least that.
    """
    budget = Budget.of(options, problem.dimension)
    _prepare(problem.dimension)
    run = _Run(problem, options, budget, np.full(1, to_beat), random_state)
    run.region = (
        np.concatenate([[1.0], np.zeros(problem.dimension)]),
        np.append(0.0, radius * run.arrangement.ladder.scale),
    )
    run.search()
    best = Best.none(problem)
    if run.known.utility[0] > to_beat:
        best.utility[0], best.z[0] = run.known.utility[0], run.arrangement.rule_at(run.known.point[0])
    return best, float(run.upper_bound[0]), run.nodes, budget.stopped


def _sweep_around(problem: Problem, claimed: Best, best: Best) -> None:
    """Search near claims that do not hold on the rows: rows that share a plane may have different decisions."""
    near = Best.none(problem)
    scale = np.array([1.0 / typical_size(column) for column in problem.contrasts.T])
    table = problem.table
    for z in np.unique(claimed.z[np.isfinite(claimed.utility)], axis=0):
        for direction in [*np.diag(scale), z]:
            sweep_line(problem, table, z, direction, near)
    best.join(settled(problem, near))


def _prepare(dimension: int) -> None:
    """Compile the kernels for a number of dimensions, if needed, outside of the budget.

    Only the leaves differ between the plane and higher dimensions.
    """
    _compile(min(dimension, 3))


@cache
def _compile(dimension: int) -> None:
    """Solve a problem of two rows, which compiles the missing kernels."""
    margin, bounds = np.array([0.5, -0.5]), np.ones(dimension)
    toy = Problem(margin, np.ones((2, dimension)), margin, np.zeros((2, dimension)), -bounds, bounds)
    with notice_of_compilation(branch, enumerate_plane_cells, enumerate_cells), quick_compilation():
        _Run(toy, Certified(), Budget(np.inf, 1, np.inf), np.full(1, -np.inf)).search()


def _prepare_known_groups(budget: Budget) -> None:
    """Compile the search of known groups, if needed, outside of the budget."""
    before = time.perf_counter()
    with _COMPILING:
        _compile_known_groups()
    budget.extend(time.perf_counter() - before)


@cache
def _compile_known_groups() -> None:
    """Process one range of a problem of six rows, which compiles the missing kernels."""
    margin, groups = np.linspace(-0.5, 0.5, 6), np.repeat(np.eye(2), 3, axis=0)
    toy = Problem(margin, groups, margin, groups, np.full(2, -9.0), np.full(2, 9.0))
    planes, scale, constant, _ = planes_of(toy)
    blocks = blocks_of(planes[:, :3])
    assert blocks is not None
    with notice_of_compilation(branch_ranges), quick_compilation():
        KnownGroups(toy, planes, scale, constant, blocks, 0.0, np.full(1, -np.inf)).search(Budget(np.inf, 1, np.inf))


def _good_rules(problem: Problem, budget: Budget, random_state: Any) -> Best:
    """Return rules of the smoothed search and, if there are few rows, of the linear program."""
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


class _Run:
    """One search: the planes, the open boxes, and the incumbents."""

    def __init__(
        self, problem: Problem, options: Certified, budget: Budget, known: FloatArray, random_state: Any = None
    ) -> None:
        self.problem, self.options, self.budget, self.random_state = problem, options, budget, random_state
        self.arrangement = Arrangement.of(problem)
        planes, steps, k = self.arrangement.planes, len(problem.lower), problem.dimension
        self.sizes = LEAF_SIZE.get(k, LEAF_SIZE_BEYOND), MEETING_SIZE.get(k, MEETING_SIZE_BEYOND)
        self.known = Incumbent.none(steps, k + 1)
        self.known.utility[:] = known
        # Without constraints, every plane would be decided by the sign of its gain.
        self.trivial_bound = self.arrangement.constant[0] + float(np.maximum(planes[:, k + 1], 0.0).sum())
        self.upper_bound = np.full(steps, self.trivial_bound)
        self.turn = max(VISITS_A_TURN, ROWS_A_TURN * len(planes)) if k > 2 else VISITS_FOR_A_FACE
        self.nodes = 0
        self.gave_up = False
        self.counter = itertools.count()
        self.region: Region | None = None

    def start(self) -> None:
        """Find good rules first, so that boxes are pruned early."""
        best = _good_rules(self.problem, self.budget, self.random_state)
        for step in np.flatnonzero(best.utility > self.known.utility + RESOLUTION):
            self.known.utility[step] = best.utility[step]
            self.known.point[step] = self.arrangement.point_of(best.z[step])

    def search(self) -> None:
        """Process all boxes that may contain a rule better by more than the requested gap, until the budget is spent.

        Beyond the plane, if the proof is not quick, start again from good rules.
        """
        queue = self._first_boxes()
        if self.problem.dimension > 2 and self.budget.visits > 0.0:
            self._search(queue, self.budget.at_most(VISITS_AT_ONCE))
            if self.gave_up:
                # A small problem where planes meet exceeded its first budget: solve it again without one.
                queue = self._first_boxes()
                self.known.left_behind[:] = -np.inf
            if queue:
                self.budget.stop(None)
                if not self.problem.starts and self.problem.to_beat == -np.inf:
                    self.start()
        self._search(queue, self.budget)
        waiting = max((box.bound for _, _, box in queue), default=-np.inf)
        self.upper_bound = np.maximum(
            np.minimum(self.upper_bound, np.maximum(self.known.left_behind, waiting)), self.known.utility
        )

    def _search(self, queue: list[_Waiting], budget: Budget) -> None:
        """Search the boxes of a queue, and put back what remains of them, until it is empty or a budget is spent."""
        target = self.options.gap
        k = self.problem.dimension
        # The count of boxes is only reproducible with one thread.
        workers = 1 if k == 2 or budget.nodes < np.inf else self.options.n_jobs or os.cpu_count() or 1
        together = 1 if k == 2 else BOXES_A_ROUND
        stacks = [
            Stack(self.arrangement, self.sizes, self.budget, self.solve_meeting) for _ in range(min(workers, together))
        ]
        with ThreadPoolExecutor(len(stacks)) as pool:
            while queue and not budget.is_spent():
                chosen = self._pop(queue, together, target)
                known = [self.known.to_improve() for _ in chosen]
                nodes = max(1, int(min(2**40, budget.nodes) // max(1, len(chosen))))
                visits = int(max(1.0, min(self.turn, budget.visits / max(1, len(chosen)))))
                most = max(1.0, budget.visits / max(1, len(chosen)))
                for stack in stacks:
                    stack.spent[:] = 0.0
                left = _side_by_side(pool, stacks, chosen, known, target, visits, nodes, most)
                for stack in stacks:
                    budget.spend(*stack.spent)
                    self.gave_up |= stack.gave_up
                    self.nodes += int(stack.spent[1])
                # Within a round all boxes use the same incumbents, so threads change only the time.
                for found, boxes in zip(known, left, strict=True):
                    self.known.take(found)
                    for box in boxes:
                        heapq.heappush(queue, self._waiting(box))

    def _first_boxes(self) -> list[_Waiting]:
        """Return the faces of the half-cube, in parts beyond the plane, so that the work is shared evenly."""
        k = self.problem.dimension
        if self.region is not None:
            return [self._waiting(Box(self.trivial_bound, *self.region))]
        boxes = faces(k)
        if k > 2:
            middle = pieces(*boxes[-1])
            if k <= 4:
                # Most of the work is around z = 0: smaller parts find good rules sooner.
                middle = [part for half in middle for part in pieces(*half)]
            boxes = [*(part for face in boxes[:-1] for part in pieces(*face)), *middle]
        # All have the same bound, and the last ones, around z = 0, go first.
        found = [self._waiting(Box(self.trivial_bound, *box)) for box in reversed(boxes)]
        heapq.heapify(found)
        return found

    def _waiting(self, box: Box) -> _Waiting:
        """Return a box for the queue."""
        return -box.bound, next(self.counter), box

    def _pop(self, queue: list[_Waiting], together: int, target: float) -> list[Box]:
        """Return the most promising boxes; those that cannot beat the incumbents are dropped."""
        chosen: list[Box] = []
        while queue and len(chosen) < together:
            box = heapq.heappop(queue)[-1]
            if (box.bound <= self.known.utility + target + RESOLUTION).all():
                self.known.leave(box.bound)
            else:
                chosen.append(box)
        return chosen

    def solve_meeting(
        self, rows: NDArray[np.int32], sums: FloatArray, target: float, budget: Budget
    ) -> list[Solution | NoRule]:
        """Return the best utility of some planes if the others, whose sums are given, do not change."""
        k, lower, upper = self.problem.dimension, self.problem.lower - sums[1:], self.problem.upper - sums[1:]
        planes = self.arrangement.planes[rows]
        margin, contrasts, gain, effects = planes[:, 0], -planes[:, 1 : k + 1], planes[:, k + 1], planes[:, k + 2 :]
        smaller = Problem(margin, contrasts, gain, effects, lower, upper, float(sums[0]), self.problem.mixing)
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

    def results(self) -> list[Solution | NoRule]:
        """Return the rules that improve on the known ones, and the bound on all rules."""
        found: list[Solution | NoRule] = []
        for step, point in enumerate(self.known.point):
            bound = float(self.upper_bound[step])
            if bound >= self.trivial_bound > self.known.utility[step] + RESOLUTION:
                bound = np.inf  # nothing was proven
            if np.isnan(point[0]):
                found.append(NoRule(bound == -np.inf, self.nodes, bound))
                continue
            z = self.arrangement.rule_at(point)
            found.append(conclude(self.problem, step, z, upper_bound=bound, nodes=self.nodes))
        return found


def _side_by_side(
    pool: ThreadPoolExecutor, stacks: list[Stack], boxes: list[Box], known: list[Incumbent], *limits: Any
) -> list[list[Box]]:
    """Search boxes in as many threads as there are stacks; one needs no thread."""
    free = list(stacks)

    def one(box: Box, incumbent: Incumbent) -> list[Box]:
        stack = free.pop()
        try:
            return stack.search(box, incumbent, *limits)
        finally:
            free.append(stack)

    return list(map(one, boxes, known) if len(stacks) == 1 else pool.map(one, boxes, known))
