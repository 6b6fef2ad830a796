"""The depth-first part of the certified search: a box, its halves, and the boxes where too many planes meet."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.arrangement import Arrangement
from evenhand.search.budget import Budget
from evenhand.search.kernels.boxes import Boxes, Outlook
from evenhand.search.kernels.branch import DONE, OUT_OF_ROOM, Limits, branch
from evenhand.search.kernels.bundles import Bundles
from evenhand.search.kernels.kinds import Tally
from evenhand.search.kernels.ladder import RESOLUTION, Incumbent
from evenhand.search.kernels.leaves import Leaf, enumerator
from evenhand.search.problem import NoRule, Solution

VISITS_A_CALL = 16_000_000
VISITS_TO_PREPARE_A_BOX = 2**12
VISITS_A_MEETING, VISITS_TO_PREPARE_A_MEETING = 2**24, 2**17
MEETINGS_A_TURN = 64
SHARE_OF_ROWS_KEPT, ROWS_KEPT = 1 / 16, 4096
FIRST_GUESS = 0.2

_Results = list[Solution | NoRule]


class Box(NamedTuple):
    """A box of points (t, w); no rule in it has a utility above ``bound``.

    ``rows`` are its open planes and ``sums`` the total of the others; they are None if the box must be processed
    again.
    """

    bound: float
    centre: FloatArray
    radius: FloatArray
    sums: FloatArray | None = None
    rows: NDArray[np.int32] | None = None
    guess: FloatArray | None = None


class Stack:
    """The parts of a box that still have to be processed, depth first, with the open rows of each. One per thread.

    ``sizes`` are the open rows of a leaf and of a tiny one. ``solve_meeting`` is called with open rows, the sums of
    the others, a gap and a budget, where too many planes meet.
    """

    def __init__(
        self,
        arrangement: Arrangement,
        sizes: tuple[int, int],
        budget: Budget,
        solve_meeting: Callable[[NDArray[np.int32], FloatArray, float, Budget], _Results],
    ) -> None:
        k, n = arrangement.dimension, len(arrangement.planes)
        steps, c = arrangement.ladder.lower.shape
        height = 64 * (k + 1) + 4 * (k + 1)
        self.arrangement, self.sizes, self.budget, self.solve_meeting = arrangement, sizes, budget, solve_meeting
        self.boxes = Boxes.room(height, k + 1, c + 1, 4 * n + 64)
        self.halves = Boxes.halves(k + 1, c + 1, n)
        self.met = Boxes.room(MEETINGS_A_TURN + 1, k + 1, c + 1, 4 * n + 64)
        self.outlook = Outlook.room(k + 1, c + 1)
        self.bundles = Bundles.of(arrangement.bundles.codes, arrangement.bundles.directions)
        self.tally = Tally.of(arrangement.kinds)
        self.leaf = Leaf.room(k, c + 1, steps, min(n, max(sizes)))
        self.enumerate_cells = enumerator(k == 2)
        self.met_before: dict[bytes, tuple[_Results, int]] = {}
        self.spent = np.zeros(2)
        self.gave_up = False

    def search(self, box: Box, incumbent: Incumbent, target: float, visits: int, nodes: int, most: float) -> list[Box]:
        """Process a box and its parts until the budget is spent; return the rest.

        ``most`` limits all row visits, including those of the smaller problems where planes meet.
        """
        self._put(box)
        looked_up: set[bytes] = set()
        self.spent[0] += VISITS_TO_PREPARE_A_BOX
        planes, ladder = self.arrangement.planes, self.arrangement.ladder
        while True:
            limits = Limits(*self.sizes, float(target), min(visits, VISITS_A_CALL), nodes)
            room = self.boxes, self.halves, self.met
            leaf = self.leaf, self.enumerate_cells
            code, looked_at, visited = branch(
                planes, ladder, self.bundles, self.tally, *room, incumbent, self.outlook, *leaf, limits
            )
            visits, nodes = visits - visited, nodes - looked_at
            self.spent += visited, looked_at
            most -= visited
            apart = self._look_where_planes_meet(incumbent, target, most, looked_up)
            visits, most = visits - apart, most - apart
            if code == OUT_OF_ROOM:
                self.boxes = self.boxes.doubled()
            elif code == DONE:
                return []
            elif visits <= 0 or nodes <= 0 or time.perf_counter() > self.budget.deadline:
                return self._left()

    def _put(self, box: Box) -> None:
        """Put a box on an empty stack."""
        boxes = self.boxes
        boxes.height[0], boxes.start[0], boxes.size[0] = 1, 0, -1
        if box.rows is not None:
            boxes.size[0] = len(box.rows)
            boxes.rows[: len(box.rows)] = box.rows
        boxes.centre[0], boxes.radius[0], boxes.bound[0] = box.centre, box.radius, box.bound
        boxes.sums[0] = self.arrangement.constant if box.sums is None else box.sums
        boxes.guess[0] = FIRST_GUESS if box.guess is None else box.guess

    def _left(self) -> list[Box]:
        """Return the boxes of the stack; rows are kept if there are few."""
        most = max(ROWS_KEPT, SHARE_OF_ROWS_KEPT * len(self.arrangement.planes))
        boxes, left = self.boxes, []
        for i in range(boxes.height[0]):
            kept = 0 <= boxes.size[i] <= most
            rows = boxes.rows[boxes.start[i] : boxes.start[i] + boxes.size[i]].copy() if kept else None
            sums = boxes.sums[i].copy() if kept else None
            place = boxes.centre[i].copy(), boxes.radius[i].copy()
            left.append(Box(float(boxes.bound[i]), *place, sums, rows, boxes.guess[i].copy()))
        return left

    def _look_where_planes_meet(self, incumbent: Incumbent, target: float, most: float, looked_up: set[bytes]) -> int:
        """Solve, as smaller problems, the boxes that too many planes cut at any size; return the row visits.

        Such planes have a point in common, so they have fewer directions than dimensions, and :mod:`reduction` helps.
        A repeated problem is not solved again, but its work counts, because it is random which boxes a thread gets.
        """
        met, spent = self.met, 0
        for number, (start, stop) in enumerate(itertools.pairwise(met.start[: met.height[0] + 1])):
            rows, sums, bound = met.rows[start:stop].copy(), met.sums[number], float(met.bound[number])
            allowed = 2 ** int(np.log2(max(1.0, min(VISITS_A_MEETING, most - spent))))
            hopeful = bool((bound > incumbent.utility + target).any())
            if not hopeful or allowed < VISITS_TO_PREPARE_A_MEETING:
                self.gave_up |= hopeful
                incumbent.leave(bound)
                continue
            key = rows.tobytes() + sums.tobytes() + str(allowed).encode()
            if key not in self.met_before:
                budget = Budget(allowed, np.inf, self.budget.deadline)
                results = self.solve_meeting(rows, sums, target, budget)
                self.met_before[key] = results, VISITS_TO_PREPARE_A_MEETING + int(allowed - budget.visits)
            results, visits = self.met_before[key]
            if key not in looked_up:
                looked_up.add(key)
                spent += visits
                self.spent += visits, results[0].nodes
            for step, found in enumerate(results):
                upper = min(bound, found.upper_bound)
                if isinstance(found, Solution) and found.utility > incumbent.utility[step] + RESOLUTION:
                    point = self.arrangement.point_beside(met.centre[number], rows, np.array(found.z))
                    self.arrangement.offer(incumbent, point)
                if upper > incumbent.utility[step]:
                    self.gave_up |= allowed < VISITS_A_MEETING and bool(upper > incumbent.utility[step] + target)
                    incumbent.left_behind[step] = max(incumbent.left_behind[step], upper)
        met.height[0] = 0
        return spent
