"""Branch and bound over boxes, depth first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.search.kernels.boxes import copy_box, examine, halve, tiny
from evenhand.search.kernels.decorators import inlined, inner, kernel
from evenhand.search.kernels.ladder import RESOLUTION, leave_behind
from evenhand.search.kernels.leaves import LEAF_VISITS

# The cost of a box besides its rows, in row visits, for each coordinate and constraint.
WORK_A_BOX = 2

# The results of ``branch``.
DONE, OUT_OF_BUDGET, OUT_OF_ROOM, MET = 0, 1, 2, 3


class Limits(NamedTuple):
    """Open rows of a leaf and of a tiny one; the requested gap; the budget of row visits and boxes."""

    leaf_size: int
    meeting_size: int
    target: float
    visits: int
    nodes: int


@inlined
def room_for_halves(planes, stack, met):
    """Return which memory is full: ``OUT_OF_ROOM``, ``MET``, or ``DONE`` if none is."""
    top = stack.height[0] - 1
    rows = 2 * (planes.shape[0] if stack.size[top] < 0 else stack.size[top])
    if stack.rows.shape[0] < stack.start[top] + rows or stack.size.shape[0] < top + 2:
        return OUT_OF_ROOM
    number = met.height[0]
    if met.bound.shape[0] < number + 3 or met.rows.shape[0] < met.start[number] + rows:
        return MET
    return DONE


@inner
def pile_up(halves, stack, start):
    """Put the halves that have open rows on the stack, the more promising one on top; their rows go to ``start``."""
    first = 1 if halves.height[0] == 2 and halves.bound[1] < halves.bound[0] else 0
    for turn in range(halves.height[0]):
        half = first if turn == 0 else 1 - first
        count = halves.size[half]
        if count > 0:
            top = stack.height[0]
            stack.start[top] = start
            copy_box(halves, half, stack, top, count)
            start += count
            stack.height[0] = top + 1


@kernel
def branch(planes, ladder, bundles, tally, stack, halves, met, incumbent, outlook, leaf, enumerate_cells, limits):
    """Branch and bound, depth first, until the stack is empty or a budget, of row visits or of boxes, is spent.

    A box with at most ``leaf_size`` open rows is enumerated by ``enumerate_cells``; so is a tiny one
    with up to ``meeting_size``, because the planes that cut it meet in a point or a line, and smaller boxes would still
    be cut by all of them. Tiny boxes with more rows are added to ``met`` for the caller. Returns (what
    happened, processed boxes, row visits).
    """
    target = limits.target
    work = WORK_A_BOX * (halves.centre.shape[1] + outlook.low.shape[0])
    nodes = 0
    visits = 0
    while stack.height[0] > 0:
        if visits >= limits.visits or nodes >= limits.nodes:
            return OUT_OF_BUDGET, nodes, visits
        lacking = room_for_halves(planes, stack, met)
        if lacking != DONE:
            return lacking, nodes, visits
        top = stack.height[0] - 1
        known = np.inf
        for s in range(incumbent.utility.shape[0]):
            known = min(known, incumbent.utility[s])
        if stack.size[top] >= 0 and stack.bound[top] <= known + target + RESOLUTION:
            leave_behind(stack.bound[top], incumbent)
            stack.height[0] = top
            continue
        visits += halve(planes, stack, halves, tally, outlook.shares)
        for half in range(halves.height[0]):
            nodes += 1
            visits += work + examine(planes, halves, half, bundles, tally, outlook, ladder, incumbent, target, known)
            opened = halves.size[half]
            if halves.bound[half] == -np.inf:
                halves.size[half] = 0
                continue
            small = tiny(planes, halves, half)
            if opened <= limits.leaf_size or (small and opened <= limits.meeting_size):
                visited = enumerate_cells(leaf, planes, halves, half, ladder, incumbent, target)
                visits += visited
                if visited >= LEAF_VISITS:
                    leave_behind(halves.bound[half], incumbent)
                halves.size[half] = 0
            elif small:
                number = met.height[0]
                copy_box(halves, half, met, number, opened)
                met.start[number + 1] = met.start[number] + opened
                met.height[0] = number + 1
                halves.size[half] = 0
        pile_up(halves, stack, stack.start[top])
    return DONE, nodes, visits
