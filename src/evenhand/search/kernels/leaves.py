"""Leaves of the search: boxes with few open rows, whose cells are all visited."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import typeof, types
from numpy.typing import NDArray

from evenhand._compiled import Pointer
from evenhand.inputs import FloatArray
from evenhand.search.kernels.boxes import Boxes
from evenhand.search.kernels.decorators import inlined, inner, pointed_at
from evenhand.search.kernels.ladder import RESOLUTION, Incumbent, Ladder, offer, prune
from evenhand.search.kernels.sweep import sort_by, sweep

# Rows that a leaf may visit, beyond K = 2, before it is abandoned: tied rows can meet in very many cells.
LEAF_VISITS = 50_000_000


class Layout(NamedTuple):
    """A box's K sides and half their lengths; each open row's value at the centre, slopes along them, and amounts."""

    free: NDArray[np.int64]
    half: FloatArray
    level: FloatArray
    slopes: FloatArray
    amounts: FloatArray

    @classmethod
    def room(cls, k: int, n_columns: int, size: int) -> Layout:
        """Return memory for this number of open rows."""
        free = np.zeros(k, dtype=np.int64)
        return cls(free, np.zeros(k), np.zeros(size), np.zeros((size, k)), np.zeros((size, n_columns)))


class LinesOfLeaf(NamedTuple):
    """Memory to visit the cells of a box with two sides: the line of a row, and the turns along it."""

    line: FloatArray
    turns: FloatArray
    crossings: FloatArray
    order: NDArray[np.int64]
    start: FloatArray
    sums: FloatArray
    utility: FloatArray
    position: FloatArray
    closest: FloatArray

    @classmethod
    def room(cls, n_columns: int, steps: int, size: int) -> LinesOfLeaf:
        """Return memory for this number of open rows."""
        return cls(
            line=np.zeros((3, 2)),
            turns=np.zeros((size, 1 + n_columns)),
            crossings=np.zeros(size),
            order=np.zeros(size, dtype=np.int64),
            start=np.zeros(n_columns),
            sums=np.zeros(n_columns),
            utility=np.zeros(steps),
            position=np.zeros(steps),
            closest=np.full(3, -np.inf),
        )


class Simplex(NamedTuple):
    """Memory for the linear program of the deepest point."""

    tableau: FloatArray
    right: FloatArray
    reduced: FloatArray
    basic: NDArray[np.int64]
    outside: NDArray[np.int64]

    @classmethod
    def room(cls, k: int, size: int) -> Simplex:
        """Return memory for this number of rows."""
        tableau, right = np.zeros((size + k, k + 1)), np.zeros(size + k)
        basic, outside = np.zeros(size + k, dtype=np.int64), np.zeros(k + 1, dtype=np.int64)
        return cls(tableau, right, np.zeros(k + 1), basic, outside)


class CellsOfLeaf(NamedTuple):
    """Memory to visit the cells of a box with any number of sides: one row for each depth."""

    simplex: Simplex
    normals: FloatArray
    offsets: FloatArray
    gains: FloatArray
    lows: FloatArray
    highs: FloatArray
    states: FloatArray
    points: FloatArray
    tried: NDArray[np.int64]
    no_price: FloatArray
    candidate: FloatArray

    @classmethod
    def room(cls, k: int, n_columns: int, size: int) -> CellsOfLeaf:
        """Return memory for this number of open rows."""
        ranges = np.zeros((2, size + 1, n_columns - 1))
        return cls(
            Simplex.room(k, size),
            normals=np.zeros((size, k)),
            offsets=np.zeros(size),
            gains=np.zeros(size + 1),
            lows=ranges[0],
            highs=ranges[1],
            states=np.zeros((size + 1, n_columns)),
            points=np.zeros((size + 1, k)),
            tried=np.zeros(size + 1, dtype=np.int64),
            no_price=np.zeros(n_columns - 1),
            candidate=np.zeros(k + 1),
        )


class Leaf(NamedTuple):
    """Memory to enumerate a leaf, in the plane or beyond: one type, so that the search is compiled once for both."""

    layout: Layout
    lines: LinesOfLeaf
    cells: CellsOfLeaf

    @classmethod
    def room(cls, k: int, n_columns: int, steps: int, size: int) -> Leaf:
        """Return memory for this number of open rows."""
        lines = LinesOfLeaf.room(n_columns, steps, size if k == 2 else 0)
        return cls(Layout.room(k, n_columns, size), lines, CellsOfLeaf.room(k, n_columns, 0 if k == 2 else size))


@inner
def lay_out(planes, boxes, b, layout):
    """Fill the layout of a box and its open rows."""
    centre, radius, rows, start, count = boxes.centre, boxes.radius, boxes.rows, boxes.start[b], boxes.size[b]
    free, half, level, slopes, amounts = layout.free, layout.half, layout.level, layout.slopes, layout.amounts
    first = centre.shape[1]
    found = 0
    for j in range(first):
        if radius[b, j] > 0.0:
            free[found] = j
            half[found] = radius[b, j]
            found += 1
    for p in range(count):
        i = rows[start + p]
        value = 0.0
        for j in range(first):
            value += planes[i, j] * centre[b, j]
        level[p] = value
        for j in range(found):
            slopes[p, j] = planes[i, free[j]]
        for c in range(amounts.shape[1]):
            amounts[p, c] = planes[i, first + c]


@inlined
def lay_line(layout, p, line):
    """Fill the line of a row: its point nearest to the centre, its direction, its normal. Return its ends in the box.

    The ends are reversed if there is no such line in the box.
    """
    level, slopes, halves = layout.level, layout.slopes, layout.half
    size = np.sqrt(slopes[p, 0] * slopes[p, 0] + slopes[p, 1] * slopes[p, 1])
    low, high = -np.inf, np.inf
    if size < 1e-13:
        return high, low
    line[1, 0] = -slopes[p, 1] / size
    line[1, 1] = slopes[p, 0] / size
    for axis in range(2):
        half = halves[axis]
        offset = -level[p] * slopes[p, axis] / (size * size)
        slope = line[1, axis]
        line[0, axis] = offset
        line[2, axis] = slopes[p, axis] / size
        if abs(slope) < 1e-14:
            if abs(offset) > half:
                low, high = 1.0, 0.0
            continue
        first, second = (-half - offset) / slope, (half - offset) / slope
        low = max(low, min(first, second))
        high = min(high, max(first, second))
    return low, high


@inlined
def step_off(layout, count, p, line, position, toward):
    """Return the point beside a row's line, half-way to the next plane or the box's edge, and its distance from planes.

    ``position`` is along the line, and ``toward`` the side, 1 or -1.
    """
    level, slopes, half = layout.level, layout.slopes, layout.half
    x = line[0, 0] + position * line[1, 0]
    y = line[0, 1] + position * line[1, 1]
    nx = toward * line[2, 0]
    ny = toward * line[2, 1]
    room = np.inf
    if abs(nx) > 1e-14:
        room = ((half[0] if nx > 0.0 else -half[0]) - x) / nx
    if abs(ny) > 1e-14:
        room = min(room, ((half[1] if ny > 0.0 else -half[1]) - y) / ny)
    for q in range(count):
        value = level[q] + slopes[q, 0] * x + slopes[q, 1] * y
        slope = slopes[q, 0] * nx + slopes[q, 1] * ny
        if q != p and value * slope < 0.0:
            room = min(room, -value / slope)
    x += 0.5 * room * nx
    y += 0.5 * room * ny
    nearest = np.inf
    for q in range(count):
        nearest = min(nearest, abs(level[q] + slopes[q, 0] * x + slopes[q, 1] * y))
    return x, y, nearest


@pointed_at
def enumerate_plane_cells(leaf, planes, boxes, b, ladder, incumbent, target):
    """Visit every cell inside a box with two sides: sweep along each open row's line, clipped to the box (K = 2)."""
    layout, lines = leaf.layout, leaf.lines
    line, turns, utility, position = lines.line, lines.turns, lines.utility, lines.position
    crossings, order, start, closest = lines.crossings, lines.order, lines.start, lines.closest
    best, points, state = incumbent.utility, incumbent.point, lines.sums
    level, slopes, amounts, free = layout.level, layout.slopes, layout.amounts, layout.free
    lower, upper, left_behind = ladder.lower, ladder.upper, incumbent.left_behind
    centre, sums, count = boxes.centre, boxes.sums, boxes.size[b]
    lay_out(planes, boxes, b, layout)
    for p in range(count):
        low, high = lay_line(layout, p, line)
        if high - low <= RESOLUTION * max(abs(low), abs(high)):
            continue
        for c in range(start.shape[0]):
            start[c] = sums[b, c]
        # With the literal 0, the sort and the sweep would be compiled for this number, too.
        turning = count - count
        for q in range(count):
            if q == p:
                continue
            value = level[q] + slopes[q, 0] * line[0, 0] + slopes[q, 1] * line[0, 1]
            slope = slopes[q, 0] * line[1, 0] + slopes[q, 1] * line[1, 1]
            crossing = -value / slope if abs(slope) > 1e-14 else np.inf
            on = value + 0.5 * (low + high) * slope > 0.0
            if crossing > low and crossing < high:
                on = slope < 0.0
                turns[q, 0] = crossing
                crossings[q] = crossing
                order[turning] = q
                turning += 1
                for c in range(start.shape[0]):
                    turns[q, 1 + c] = -amounts[q, c] if on else amounts[q, c]
            if on:
                for c in range(start.shape[0]):
                    start[c] += amounts[q, c]
        sort_by(crossings, order, turning)
        for side in range(2):
            for c in range(start.shape[0]):
                state[c] = start[c] + (amounts[p, c] if side == 1 else 0.0)
            for s in range(utility.shape[0]):
                utility[s] = best[s]
                position[s] = 0.0
            sweep(order, turning, turns, state, low, high, lower, upper, utility, position, closest)
            for s in range(utility.shape[0]):
                if utility[s] <= best[s] + RESOLUTION:
                    continue
                x, y, nearest = step_off(layout, count, p, line, position[s], 2.0 * side - 1.0)
                t = centre[b, 0] + (x if free[0] == 0 else 0.0)
                if nearest > RESOLUTION and t > RESOLUTION:
                    best[s] = utility[s]
                    for j in range(centre.shape[1]):
                        points[s, j] = centre[b, j]
                    points[s, free[0]] += x
                    points[s, free[1]] += y
                else:
                    left_behind[s] = max(left_behind[s], utility[s])
    return count * count


@inner
def deepest_point(normals, offsets, count, half, point, simplex):
    """Find the point of the box |x_j| <= half_j that maximises the smallest (normal . x + offset) / |normal|_1.

    A one-phase simplex with Bland's rule on the variables (x + half, depth + shift), where ``shift`` is
    large enough for x = -half to be feasible. Returns (the depth, the row visits it took); fills ``point``.
    """
    tableau, right, reduced = simplex.tableau, simplex.right, simplex.reduced
    basic, outside = simplex.basic, simplex.outside
    d = half.shape[0]
    shift = 0.0
    for r in range(count):
        value = offsets[r]
        size = 0.0
        for j in range(d):
            value -= normals[r, j] * half[j]
            size += abs(normals[r, j])
            tableau[r, j] = -normals[r, j]
        tableau[r, d] = size
        right[r] = value
        shift = max(shift, -value / size)
    for r in range(count + d):
        basic[r] = d + 1 + r
        if r < count:
            right[r] += tableau[r, d] * shift
        else:
            for j in range(d + 1):
                tableau[r, j] = 1.0 if j == r - count else 0.0
            right[r] = 2.0 * half[r - count]
    for j in range(d + 1):
        reduced[j] = 0.0 if j < d else 1.0
        outside[j] = j
    visits = count + d
    for _ in range(200 * (count + d)):
        enter = -1
        for j in range(d + 1):
            if reduced[j] > 1e-12 and (enter < 0 or outside[j] < outside[enter]):
                enter = j
        if enter < 0:
            break
        leave = -1
        ratio = np.inf
        for r in range(count + d):
            if tableau[r, enter] > 1e-12:
                step = right[r] / tableau[r, enter]
                if step < ratio - 1e-15 or (step <= ratio + 1e-15 and basic[r] < basic[leave]):
                    ratio = min(step, ratio)
                    leave = r
        if leave < 0:
            break
        visits += 2 * (count + d)
        pivot = tableau[leave, enter]
        for j in range(d + 1):
            tableau[leave, j] /= pivot
        tableau[leave, enter] = 1.0 / pivot
        right[leave] /= pivot
        for r in range(count + d):
            factor = tableau[r, enter]
            if r == leave or factor == 0.0:
                continue
            for j in range(d + 1):
                if j != enter:
                    tableau[r, j] -= factor * tableau[leave, j]
            tableau[r, enter] = -factor / pivot
            right[r] = max(0.0, right[r] - factor * right[leave])
        factor = reduced[enter]
        for j in range(d + 1):
            if j != enter:
                reduced[j] -= factor * tableau[leave, j]
        reduced[enter] = -factor / pivot
        basic[leave], outside[enter] = outside[enter], basic[leave]
    for j in range(d):
        point[j] = -half[j]
    for r in range(count + d):
        if basic[r] < d:
            point[basic[r]] = right[r] - half[basic[r]]
    return depth_at(normals, offsets, count, point), visits


@inner
def depth_at(normals, offsets, count, point):
    """Return the smallest (normal . x + offset) / |normal|_1 at a point."""
    depth = np.inf
    for r in range(count):
        value = offsets[r]
        size = 0.0
        for j in range(point.shape[0]):
            value += normals[r, j] * point[j]
            size += abs(normals[r, j])
        depth = min(depth, value / size)
    return depth


@pointed_at
def enumerate_cells(leaf, planes, boxes, b, ladder, incumbent, target):
    """Visit the cells inside a box that could improve on the incumbents, by their signs, depth first (any K).

    A prefix of signs is dropped if its bound is no better than the incumbents, or if no point of the box has these
    signs with a margin. Returns the row visits; the work is abandoned at ``LEAF_VISITS`` of them.
    """
    layout, cells = leaf.layout, leaf.cells
    normals, offsets, states, candidate = cells.normals, cells.offsets, cells.states, cells.candidate
    gains, lows, highs, points, tried = cells.gains, cells.lows, cells.highs, cells.points, cells.tried
    half, slopes, amounts = layout.half, layout.slopes, layout.amounts
    level, free, no_price, simplex = layout.level, layout.free, cells.no_price, cells.simplex
    centre, sums, count, dimension = boxes.centre, boxes.sums, boxes.size[b], half.shape[0]
    lay_out(planes, boxes, b, layout)
    gains[count] = 0.0
    for c in range(lows.shape[1]):
        lows[count, c] = 0.0
        highs[count, c] = 0.0
    for p in range(count - 1, -1, -1):
        gains[p] = gains[p + 1] + max(0.0, amounts[p, 0])
        for c in range(lows.shape[1]):
            lows[p, c] = lows[p + 1, c] + min(0.0, amounts[p, 1 + c])
            highs[p, c] = highs[p + 1, c] + max(0.0, amounts[p, 1 + c])
    for c in range(states.shape[1]):
        states[0, c] = sums[b, c]
    narrowest = np.inf
    for j in range(dimension):
        narrowest = min(narrowest, half[j])
        points[0, j] = 0.0
    tried[0] = 0
    depth = 0
    visits = count * count
    while depth >= 0 and visits < LEAF_VISITS:
        visits += 1
        if depth == count:
            # The deepest point may be on the box's side, where rows that are certain inside are not, or at t = 0, which
            # is not a rule. It can move by half its depth in every coordinate and stay in its cell.
            room = 0.5 * depth_at(normals, offsets, count, points[depth])
            for j in range(candidate.shape[0]):
                candidate[j] = centre[b, j]
            for j in range(dimension):
                limit = half[j] - min(room, half[j])
                candidate[free[j]] += min(limit, max(-limit, points[depth, j]))
            if candidate[0] > 0.0:
                offer(states[depth], candidate, ladder, incumbent)
            depth -= 1
            continue
        if tried[depth] == 2:
            depth -= 1
            continue
        # The more promising sign first.
        one = (amounts[depth, 0] > 0.0) == (tried[depth] == 0)
        tried[depth] += 1
        after = depth + 1
        for c in range(states.shape[1]):
            states[after, c] = states[depth, c] + (amounts[depth, c] if one else 0.0)
        most, _ = prune(
            states[after],
            gains[after],
            gains[after],
            lows[after],
            highs[after],
            no_price,
            ladder,
            incumbent,
            target,
        )
        if most == -np.inf:
            continue
        sign = 1.0 if one else -1.0
        size = 0.0
        value = level[depth]
        offsets[depth] = sign * value
        for j in range(dimension):
            normals[depth, j] = sign * slopes[depth, j]
            size += abs(slopes[depth, j])
            value += slopes[depth, j] * points[depth, j]
            points[after, j] = points[depth, j]
        if sign * value <= 1e-3 * size * narrowest:
            inside, pivoted = deepest_point(normals, offsets, after, half, points[after], simplex)
            visits += pivoted
            if inside <= RESOLUTION:
                continue
        depth = after
        tried[depth] = 0
    return visits


@cache
def enumerator(plane: bool) -> Any:
    """Return a pointer to the function that visits every cell inside a box: with two sides, or with any number."""
    numbers, table = np.zeros(1), np.zeros((1, 1))
    ladder = Ladder(table, table, np.zeros(1, dtype=np.intp), numbers)
    leaf, boxes, incumbent = Leaf.room(1, 1, 1, 1), Boxes.room(1, 1, 1, 1), Incumbent.none(1, 1)
    arguments = tuple(map(typeof, (leaf, table, boxes, 0, ladder, incumbent, 0.0)))
    kernel = enumerate_plane_cells if plane else enumerate_cells
    # With NUMBA_DISABLE_JIT there is no dispatcher, because numba does not compile.
    return Pointer(kernel, types.int64, arguments) if hasattr(kernel, "compile") else kernel
