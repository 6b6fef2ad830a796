"""The compiled loop of the search over known groups; see :mod:`known_groups` for what a choice and a range are.

Each block of planes has a binary tree over its patterns, in one array for all blocks. Node 1 is all patterns, nodes 2
and 3 are those where the block's first plane decides 1 and 0, and the children of node i are 2 i and 2 i + 1. A range
is one node for each block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._compiled import njit
from evenhand.inputs import FloatArray
from evenhand.search.kernels.ladder import RESOLUTION, first_step_met
from evenhand.search.kernels.leaves import Simplex, deepest_point

inner = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

DONE, OUT_OF_BUDGET, OUT_OF_ROOM = 0, 1, 2
# A set of points is empty if none is deeper than this; between this and RESOLUTION it is undecided.
EMPTY = 1e-12
# A range keeps its parent's point if that is this far inside; otherwise its own deepest point is found.
ROOM_TO_STAY = 1e-6
WORK_A_RANGE = 8


class Forest(NamedTuple):
    """The blocks: their planes in order of angle, and the trees over their patterns.

    Attributes
    ----------
    vectors : array of shape (planes, coordinates)
        Block by block, each in order of angle.
    first_plane, n_planes, width : arrays of shape (blocks,)
        Where a block's planes begin, how many it has, and the power of two that holds them.
    first_node : array of shape (blocks,)
        Where a block's tree begins in ``gains`` and ``rates``: node i is at ``first_node + i``.
    gains : array of shape (nodes,)
        The largest gain over the patterns of a node.
    rates : array of shape (nodes, rates, 2)
        The smallest and the largest of each rate over the patterns of a node.
    coefficients : array of shape (blocks, constraints, rates)
        What a unit of a block's rate adds to a constraint's value.
    """

    vectors: FloatArray
    first_plane: NDArray[np.int64]
    n_planes: NDArray[np.int64]
    width: NDArray[np.int64]
    first_node: NDArray[np.int64]
    gains: FloatArray
    rates: FloatArray
    coefficients: FloatArray


class Ranges(NamedTuple):
    """The waiting ranges. The heap has the indices of those that wait, followed by free indices.

    Of each: its nodes, a bound, how often it was halved, the first step that some choice may meet, and a rule inside.
    """

    heap: NDArray[np.int64]
    nodes: NDArray[np.int64]
    bounds: FloatArray
    depths: NDArray[np.int64]
    steps: NDArray[np.int64]
    points: FloatArray

    @classmethod
    def first(cls, room: int, n_blocks: int, n_coordinates: int, bound: float) -> Ranges:
        """Return the one range of all choices, with memory for others."""
        depths, steps = np.zeros((2, room), dtype=np.int64)
        nodes = np.ones((room, n_blocks), dtype=np.int64)
        return cls(np.arange(room), nodes, np.full(room, bound), depths, steps, np.zeros((room, n_coordinates)))

    def doubled(self) -> Ranges:
        """Return the same with twice the memory."""
        heap = np.concatenate([self.heap, len(self.heap) + np.arange(len(self.heap))])
        return Ranges(heap, *(np.concatenate([array, np.zeros_like(array)]) for array in self[1:]))


class Realising(NamedTuple):
    """Memory to find a rule inside a range."""

    simplex: Simplex
    normals: FloatArray
    offsets: FloatArray
    weights: FloatArray
    half: FloatArray

    @classmethod
    def room(cls, n_blocks: int, n_coordinates: int) -> Realising:
        """Return memory for a number of blocks."""
        size = 2 * n_blocks + 1
        simplex = Simplex.room(n_coordinates, size)
        return cls(simplex, np.zeros((size, n_coordinates)), np.zeros(size), np.zeros(size), np.ones(n_coordinates))


@inner
def _patterns(node, width, n_planes):
    """Return a node's side (0: all, 1: the first plane decides 1, -1: it decides 0) and first and last pattern."""
    if node == 1:
        return 0, 0, n_planes - 1
    start = node
    end = node
    while start < 2 * width:
        start = 2 * start
        end = 2 * end + 1
    if start < 3 * width:
        return 1, start - 2 * width, min(end - 2 * width, n_planes - 1)
    return -1, start - 3 * width, min(end - 3 * width, n_planes - 1)


@inner
def _limit(forest, block, node, normals, count):
    """Append the planes that a node's points lie between, each towards its inside; return the new count."""
    side, low, high = _patterns(node, forest.width[block], forest.n_planes[block])
    if side == 0:
        return count
    first = forest.first_plane[block]
    for j in range(normals.shape[1]):
        normals[count, j] = side * forest.vectors[first + low, j]
    count += 1
    if high < forest.n_planes[block] - 1:
        for j in range(normals.shape[1]):
            normals[count, j] = -side * forest.vectors[first + high + 1, j]
        count += 1
    elif low > 0:
        for j in range(normals.shape[1]):
            normals[count, j] = side * forest.vectors[first, j]
        count += 1
    return count


@inner
def _clearance(normals, count, point):
    """Return the smallest normal . point / |normal|_1."""
    smallest = np.inf
    for r in range(count):
        value = 0.0
        size = 0.0
        for j in range(point.shape[0]):
            value += normals[r, j] * point[j]
            size += abs(normals[r, j])
        smallest = min(smallest, value / size)
    return smallest


@inner
def _realise(forest, nodes, point, room):
    """Find a rule inside a range: return its depth, a bound on the depth of all, and the row visits."""
    normals, weights = room.normals, room.weights
    for j in range(normals.shape[1]):
        normals[0, j] = 0.0
    normals[0, 0] = 1.0
    count = np.int64(1)  # a literal would be compiled separately
    for block in range(nodes.shape[0]):
        count = _limit(forest, block, nodes[block], normals, count)
    depth, visits = deepest_point(normals, room.offsets, count, room.half, point, room.simplex)
    _dual_weights(room.simplex, count, weights)
    most = _depth_at_most(normals, count, weights)
    if depth <= RESOLUTION and most > EMPTY:
        _solve_again(normals, count, weights)
        most = min(most, _depth_at_most(normals, count, weights))
        visits += count * count
    return depth, most, visits


@inner
def _dual_weights(simplex, count, weights):
    """Fill in the dual weights of the program that was just solved.

    No point x of its box is deeper than sum_r weight_r (normal_r . x + offset_r) / sum_r weight_r |normal_r|_1,
    for any rounding.
    """
    d = simplex.outside.shape[0] - 1
    for r in range(count):
        weights[r] = 0.0
    for j in range(d + 1):
        if d < simplex.outside[j] <= d + count:
            weights[simplex.outside[j] - d - 1] = max(0.0, -simplex.reduced[j])


@inner
def _depth_at_most(normals, count, weights):
    """Return how deep a point of the cube |x_j| <= 1 can be at most, as weights of the planes say that are not < 0."""
    most = 0.0
    size = 0.0
    for j in range(normals.shape[1]):
        total = 0.0
        for r in range(count):
            total += weights[r] * normals[r, j]
            size += weights[r] * abs(normals[r, j])
        most += abs(total)
    return most / size if size > 0.0 else np.inf


@inner
def _solve_again(normals, count, weights):
    """Replace the weights by a solution of sum_r weight_r normal_r = 0, sum_r weight_r = 1 on the planes that have any.

    The simplex's own weights are off by its rounding over the angle between two planes; elimination leaves a residual
    that is small at any angle.
    """
    k = normals.shape[1]
    rows = np.zeros((k + 1, count + 1))
    chosen = np.empty(count, dtype=np.int64)
    n = 0
    for r in range(count):
        if weights[r] > 0.0:
            for j in range(k):
                rows[j, n] = normals[r, j]
            rows[k, n] = 1.0
            chosen[n] = r
            n += 1
        weights[r] = 0.0
    rows[k, count] = 1.0
    done = 0
    pivot_of = np.full(count, -1)
    for c in range(n):
        pivot = done
        for i in range(done, k + 1):
            if abs(rows[i, c]) > abs(rows[pivot, c]):
                pivot = i
        if done > k or abs(rows[pivot, c]) < 1e-14:
            continue
        for j in range(count + 1):
            rows[done, j], rows[pivot, j] = rows[pivot, j], rows[done, j]
        for i in range(done + 1, k + 1):
            factor = rows[i, c] / rows[done, c]
            for j in range(c, count + 1):
                rows[i, j] -= factor * rows[done, j]
        pivot_of[c] = done
        done += 1
    for c in range(n - 1, -1, -1):
        if pivot_of[c] >= 0:
            value = rows[pivot_of[c], count]
            for j in range(c + 1, n):
                value -= rows[pivot_of[c], j] * weights[chosen[j]]
            weights[chosen[c]] = value / rows[pivot_of[c], c]
    for r in range(count):
        weights[r] = max(0.0, weights[r])


@inner
def _pattern_at(forest, block, point):
    """Return the leaf of a block's tree that contains a point, or 0 if it is too near to a plane."""
    first, n = forest.first_plane[block], forest.n_planes[block]
    low, high = 0, n
    side = 0.0
    middle = 0
    while True:
        value = 0.0
        size = 0.0
        for j in range(point.shape[0]):
            value += forest.vectors[first + middle, j] * point[j]
            size += abs(forest.vectors[first + middle, j])
        if abs(value) <= RESOLUTION * size:
            return 0
        if side == 0.0:
            side = 1.0 if value > 0.0 else -1.0
        if value * side > 0.0:
            low = middle
        else:
            high = middle
        if high - low <= 1:
            break
        middle = (low + high) // 2
    leaf = 2 * forest.width[block] + low
    return leaf if side > 0.0 else leaf + forest.width[block]


@inner
def _measure(forest, leaves, constant, values):
    """Fill the values of a choice and return its utility."""
    utility = constant[0]
    for c in range(values.shape[0]):
        values[c] = constant[1 + c]
    for block in range(leaves.shape[0]):
        at = forest.first_node[block] + leaves[block]
        utility += forest.gains[at]
        for c in range(values.shape[0]):
            for q in range(forest.rates.shape[1]):
                values[c] += forest.coefficients[block, c, q] * forest.rates[at, q, 0]
    return utility


@inner
def _leave(bound, step, best_utility, left_behind):
    """Record the bound of a range that is dropped, for the steps where it counts."""
    for s in range(step, best_utility.shape[0]):
        if bound > best_utility[s] + RESOLUTION:
            left_behind[s] = max(left_behind[s], bound)


@inner
def _first_step(forest, nodes, constant, lower, upper, step, low, high):
    """Return the first step from ``step`` on whose bounds some choice of the range may meet."""
    for c in range(low.shape[0]):
        low[c] = constant[1 + c]
        high[c] = constant[1 + c]
    for block in range(nodes.shape[0]):
        at = forest.first_node[block] + nodes[block]
        for c in range(low.shape[0]):
            for q in range(forest.rates.shape[1]):
                factor = forest.coefficients[block, c, q]
                if factor > 0.0:
                    low[c] += factor * forest.rates[at, q, 0]
                    high[c] += factor * forest.rates[at, q, 1]
                elif factor < 0.0:
                    low[c] += factor * forest.rates[at, q, 1]
                    high[c] += factor * forest.rates[at, q, 0]
    while step < lower.shape[0]:
        met = True
        for c in range(low.shape[0]):
            if low[c] > upper[step, c] + RESOLUTION or high[c] < lower[step, c] - RESOLUTION:
                met = False
                break
        if met:
            break
        step += 1
    return step


@inner
def _widest(forest, nodes):
    """Return the block whose rates vary most in a range, -1 if every block has one pattern."""
    chosen = -1
    widest = -1.0
    for block in range(nodes.shape[0]):
        node = nodes[block]
        if node >= 2 * forest.width[block]:
            continue
        at = forest.first_node[block] + node
        spread = 0.0
        for q in range(forest.rates.shape[1]):
            most = 0.0
            for c in range(forest.coefficients.shape[1]):
                most = max(most, abs(forest.coefficients[block, c, q]))
            spread = max(spread, most * (forest.rates[at, q, 1] - forest.rates[at, q, 0]))
        if spread > widest:
            widest = spread
            chosen = block
    return chosen


@inner
def _before(bounds, depths, one, other):
    """Return whether one range goes before another: by its bound, or by its depth if bounds are equal."""
    return bounds[one] > bounds[other] or (bounds[one] == bounds[other] and depths[one] > depths[other])


@inner
def _rise(bounds, depths, heap, i):
    """Move an entry of a heap up to its place."""
    while i > 0 and _before(bounds, depths, heap[i], heap[(i - 1) // 2]):
        above = (i - 1) // 2
        heap[above], heap[i] = heap[i], heap[above]
        i = above


@inner
def _sink(bounds, depths, heap, height):
    """Move the first entry of a heap down to its place."""
    i = 0
    while 2 * i + 1 < height:
        below = 2 * i + 1
        if below + 1 < height and _before(bounds, depths, heap[below + 1], heap[below]):
            below += 1
        if not _before(bounds, depths, heap[below], heap[i]):
            break
        heap[below], heap[i] = heap[i], heap[below]
        i = below


@inner
def _offer(forest, leaves, constant, lower, upper, incumbent, values, point, room):
    """Keep the middle of a choice's cell for every step that it meets and improves. Returns the row visits."""
    utility = _measure(forest, leaves, constant, values)
    step = first_step_met(values, lower, upper)
    if step == lower.shape[0] or utility <= incumbent.utility[step] + RESOLUTION:
        return 0
    depth, _, visits = _realise(forest, leaves, point, room)
    if depth > RESOLUTION:
        for s in range(step, lower.shape[0]):
            if utility > incumbent.utility[s] + RESOLUTION:
                incumbent.utility[s] = utility
                for j in range(point.shape[0]):
                    incumbent.point[s, j] = point[j]
    return visits


@njit(nogil=True, error_model="numpy")
def branch_ranges(forest, constant, lower, upper, target, most_visits, most_ranges, ranges, height, incumbent, room):
    """Halve ranges, those with the largest bound first, until none may contain a better rule or the work is spent.

    The first ``height`` entries of the heap wait. Returns (why it ended, the new height, the ranges looked at, the row
    visits).
    """
    heap, nodes, bounds, depths, steps, points = ranges
    best_utility, left_behind, normals = incumbent.utility, incumbent.left_behind, room.normals
    n_blocks, k = nodes.shape[1], points.shape[1]
    low, high = np.empty(lower.shape[1]), np.empty(lower.shape[1])
    child, leaves = np.empty(n_blocks, dtype=np.int64), np.empty(n_blocks, dtype=np.int64)
    point, middle, parent_point = np.empty(k), np.empty(k), np.empty(k)
    work = n_blocks * (WORK_A_RANGE + (lower.shape[1] * forest.rates.shape[1]) // 4)
    looked_at, visits = 0, 0
    while height > 0:
        if visits >= most_visits or looked_at >= most_ranges:
            return OUT_OF_BUDGET, height, looked_at, visits
        if height + 2 > heap.shape[0]:
            return OUT_OF_ROOM, height, looked_at, visits
        height -= 1
        place = heap[0]
        heap[0], heap[height] = heap[height], heap[0]
        _sink(bounds, depths, heap, height)
        if bounds[place] <= best_utility[steps[place]] + target + RESOLUTION:
            _leave(bounds[place], steps[place], best_utility, left_behind)
            continue
        block = _widest(forest, nodes[place])
        # The parent's index is free now, and its first half uses it.
        parent_bound, parent_step, parent = bounds[place], steps[place], nodes[place, block]
        depth_of_children = depths[place] + 1
        for b in range(n_blocks):
            child[b] = nodes[place, b]
        for j in range(k):
            parent_point[j] = points[place, j]
        for part in range(2):
            width = forest.width[block]
            child[block] = 2 * parent + part
            side, first, last = _patterns(child[block], width, forest.n_planes[block])
            if first > last:
                continue
            if first == last:
                child[block] = (2 if side > 0 else 3) * width + first
            looked_at += 1
            visits += work
            step = _first_step(forest, child, constant, lower, upper, parent_step, low, high)
            if step == lower.shape[0]:
                continue
            bound = constant[0]
            single = True
            for b in range(n_blocks):
                bound += forest.gains[forest.first_node[b] + child[b]]
                single = single and child[b] >= 2 * forest.width[b]
            bound = min(bound, parent_bound)
            if bound <= best_utility[step] + target + RESOLUTION:
                _leave(bound, step, best_utility, left_behind)
                continue
            for j in range(k):
                point[j] = parent_point[j]
            count = _limit(forest, block, child[block], normals, np.int64(0))
            if single or _clearance(normals, count, point) <= ROOM_TO_STAY:
                depth, most, pivoted = _realise(forest, child, point, room)
                visits += pivoted
                if most <= EMPTY:
                    continue
                clear = depth > RESOLUTION
                for b in range(n_blocks):
                    leaves[b] = child[b] if single else _pattern_at(forest, b, point)
                    clear = clear and leaves[b] > 0
                if clear:
                    visits += _offer(forest, leaves, constant, lower, upper, incumbent, low, middle, room)
                if single:
                    if not clear:
                        _leave(bound, step, best_utility, left_behind)
                    continue
            place = heap[height]
            for b in range(n_blocks):
                nodes[place, b] = child[b]
            for j in range(k):
                points[place, j] = point[j]
            bounds[place], depths[place], steps[place] = bound, depth_of_children, step
            height += 1
            _rise(bounds, depths, heap, height - 1)
    return DONE, 0, looked_at, visits
