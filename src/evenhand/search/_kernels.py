"""The compiled loops. Free functions over arrays; each has a NumPy oracle in ``tests/oracles.py``.

Conventions: a *plane* is a row of ``planes``, laid out as ``v_0 .. v_K, gain, effect_1 .. effect_C``. It
decides 1 at the point x = (t, w_1 .. w_K) iff ``v . x > 0``, where v = (m, -g). A *ladder* is a sequence
of bounds, strict to loose: ``lower`` and ``upper`` have one row for each step, and whatever meets a step
meets those after it, so the best utility found never falls along the ladder.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from evenhand._compiled import njit

RESOLUTION = 1e-11
FEASIBILITY_SLACK = 1e-12
SMALL_RADIUS = 1e-8

# Bundles of planes with like directions: how many rows make one worth having, and how finely their turns are placed.
ROWS_A_BUNDLE = 6
BINS = 16
OPEN_FOR_BUNDLES = 12
FADING, HOPE = 0.97, 0.9
ROWS_FOR_SHARES = 64
# What a box costs beside its rows, in visits of one, for each coordinate and constraint.
WORK_A_BOX = 2
# Rows that a leaf may visit, beyond K = 2, before it is given up: tied rows can meet in very many cells.
LEAF_VISITS = 50_000_000

# What other kernels alone call needs no entry from Python, which takes time to compile.

_inner = njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

# What ``branch`` returns.
DONE, OUT_OF_BUDGET, OUT_OF_ROOM, MET = 0, 1, 2, 3


@njit(cache=True, nogil=True, error_model="numpy")
def linear_margin(intercept, slope, p_y, columns, coefficients, check, out):
    """Fill out_i = intercept + slope p_i - sum_j c_j columns_ij; return the first row that is no probability, or -1.

    ``check`` says whether ``p_y`` is to be checked too: it is not when it holds a partial sum.
    """
    bad = -1
    n_columns = columns.shape[1]
    for i in range(p_y.shape[0]):
        p = p_y[i]
        total = 0.0
        inner = 0.0
        fine = (not check) or (p >= 0.0 and p <= 1.0)
        for j in range(n_columns):
            q = columns[i, j]
            fine = fine and q >= 0.0 and q <= 1.0
            total += q
            inner += coefficients[j] * q
        fine = fine and np.abs(total - 1.0) <= 1e-3
        if not fine and bad < 0:
            bad = i
        out[i] = intercept + slope * p - inner
    return bad


@njit(cache=True, nogil=True, error_model="numpy")
def first_step_met(values, lower, upper):
    """Return the first step of the ladder whose bounds the values meet, or the number of steps."""
    for step in range(lower.shape[0]):
        met = True
        for c in range(values.shape[0]):
            if not (
                values[c] >= lower[step, c] - FEASIBILITY_SLACK and values[c] <= upper[step, c] + FEASIBILITY_SLACK
            ):
                met = False
                break
        if met:
            return step
    return lower.shape[0]


@njit(cache=True, nogil=True, error_model="numpy")
def excess(values, lower, upper):
    """Return by how much the values miss the bounds of one step: the largest distance."""
    worst = 0.0
    for c in range(values.shape[0]):
        worst = max(worst, lower[c] - values[c], values[c] - upper[c])
    return worst


@njit(cache=True, nogil=True, error_model="numpy")
def sort_by(keys, order, count):
    """Sort the first ``count`` numbers of ``order`` by the keys at these places (Shell's sort).

    NumPy's sorts take the compiler longer than everything else here.
    """
    step = 1
    while step < count // 3:
        step = 3 * step + 1
    while step > 0:
        for i in range(step, count):
            moving = order[i]
            key = keys[moving]
            j = i
            while j >= step and keys[order[j - step]] > key:
                order[j] = order[j - step]
                j -= step
            order[j] = moving
        step //= 3


@_inner
def _copy_row(source, i, target, j):
    """Copy row i of one array to row j of another."""
    for c in range(source.shape[1]):
        target[j, c] = source[i, c]


@njit(cache=True, nogil=True, error_model="numpy")
def sweep(order, count, turns, start, low, high, lower, upper, best_utility, best_position, closest):
    """Walk along a line s in (low, high) and keep, for each step of the ladder, the best cell's utility and middle.

    ``turns`` has a row for each row that may turn: where it does, and what that adds to the utility and to each value.
    The first ``count`` of ``order`` sort those that turn inside (low, high), and ``start`` holds the utility and the
    values just after ``low``. Rows that turn within a relative RESOLUTION of each other are one block. Updates
    ``best_utility`` and ``best_position`` in place. ``closest`` holds (excess over the last step's bounds, utility,
    position) of the cell nearest to feasible, for searches that have found none yet; an excess of minus
    infinity says not to look.

    This is the one kernel behind the paper's Algorithms 1, 2 and 3 (their lines 7 to 16).
    """
    n_steps, n_values = lower.shape
    state = np.empty(n_values + 1)
    for c in range(n_values + 1):
        state[c] = start[c]
    values = state[1:]
    looking = closest[0] > -np.inf
    previous = low
    # On a segment rounding is relative to its length; on a whole line every scale is there.
    length = high - low if high - low < np.inf else 0.0
    for j in range(count + 1):
        # The cell between `previous` and the next turn.
        last = j == count
        ahead = high if last else turns[order[j], 0]
        middle, wide = middle_of(previous, ahead, length)
        if wide:
            step = first_step_met(values, lower, upper)
            utility = state[0]
            for s in range(step, n_steps):
                better = utility > best_utility[s] + RESOLUTION
                level = utility > best_utility[s] - RESOLUTION and abs(middle) < abs(best_position[s])
                if not (better or level):
                    break
                best_utility[s] = max(utility, best_utility[s])
                best_position[s] = middle
            if looking and step == n_steps:
                miss = excess(values, lower[n_steps - 1], upper[n_steps - 1])
                if miss < closest[0] - RESOLUTION or (miss < closest[0] + RESOLUTION and utility > closest[1]):
                    closest[0] = miss
                    closest[1] = utility
                    closest[2] = middle
        if not last:
            row = order[j]
            previous = ahead
            for c in range(n_values + 1):
                state[c] += turns[row, 1 + c]


@njit(cache=True, nogil=True, error_model="numpy")
def middle_of(previous, ahead, length):
    """Return a point strictly between two breakpoints (either may be infinite), and whether there is room."""
    if np.isinf(previous) and np.isinf(ahead):
        return 0.0, True
    if np.isinf(previous):
        return ahead - max(1.0, abs(ahead)), True
    if np.isinf(ahead):
        return previous + max(1.0, abs(previous)), True
    return 0.5 * (previous + ahead), ahead - previous > RESOLUTION * max(abs(previous), abs(ahead), length)


@njit(cache=True, nogil=True, error_model="numpy")
def merge_planes(rows, n_coordinates, merged, constant):
    """Put rows on the same plane together: they are decided together, whichever rule decides them.

    Each row's v is divided by its largest component, which makes proportional rows equal and opposite rows
    mirror images; rows then equal within 2**-40 share a plane. A mirrored row decides 1 where its plane
    decides 0, so its gain and effects go to ``constant`` and are taken from the plane. Rows whose decision
    no rule changes (g = 0) go to ``constant`` or nowhere. Returns the number of planes in ``merged``.
    """
    n, width = rows.shape
    capacity = 16
    while capacity < 2 * n:
        capacity *= 2
    slots = np.empty(capacity, dtype=np.int32)
    for empty in range(capacity):
        slots[empty] = -1
    keys = np.empty((n, n_coordinates), dtype=np.int64)
    unit = 2.0**40
    found = 0
    v = np.empty(n_coordinates)
    for i in range(n):
        largest = 0.0
        turns = 0.0
        for j in range(n_coordinates):
            v[j] = rows[i, j]
            if abs(v[j]) > abs(largest):
                largest = v[j]
            if j > 0:
                turns = max(turns, abs(v[j]))
        if turns == 0.0 or turns < 1e-15 * abs(largest):
            if rows[i, 0] > 0.0:
                for c in range(n_coordinates, width):
                    constant[c - n_coordinates] += rows[i, c]
            continue
        mixed = np.uint64(1469598103934665603)
        for j in range(n_coordinates):
            v[j] /= largest
            keys[found, j] = np.int64(np.floor(v[j] * unit + 0.5))
            mixed = (mixed ^ np.uint64(keys[found, j])) * np.uint64(1099511628211)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed & np.uint64(capacity - 1))
        target = -1
        while slots[slot] >= 0:
            other = slots[slot]
            same = True
            for j in range(n_coordinates):
                if keys[other, j] != keys[found, j]:
                    same = False
                    break
            if same:
                target = other
                break
            slot = (slot + 1) & (capacity - 1)
        if target < 0:
            target = found
            slots[slot] = found
            for j in range(n_coordinates):
                merged[found, j] = v[j]
            for c in range(n_coordinates, width):
                merged[found, c] = 0.0
            found += 1
        for c in range(n_coordinates, width):
            if largest > 0.0:
                merged[target, c] += rows[i, c]
            else:
                merged[target, c] -= rows[i, c]
                constant[c - n_coordinates] += rows[i, c]
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def classify(planes, coordinates, n_columns, rows, count, centre, radius, kept, sums):
    """Split rows into surely 1 (added to ``sums``), surely 0 and open (written to ``kept``) over a box.

    Only the length of ``coordinates`` matters, K + 1: of a tuple the compiler knows it, and of an array it does not.
    The loop has no branches, because which way a row falls is as good as random.
    """
    first = len(coordinates)
    opened = 0
    for position in range(count):
        i = rows[position]
        value = 0.0
        reach = 0.0
        for j in range(len(coordinates)):
            v = planes[i, j]
            value += v * centre[j]
            reach += abs(v) * radius[j]
        kept[opened] = i
        opened += abs(value) < reach
        on = 1.0 if value >= reach else 0.0
        for c in range(n_columns):
            sums[c] += on * planes[i, first + c]
    return opened


@_inner
def _classify_halves(planes, coordinates, n_columns, rows, count, centre, radius, split, kept, opened, sums):
    """Do what ``classify`` does for both halves of a box, in one pass."""
    first = len(coordinates)
    one = 0
    two = 0
    for position in range(count):
        i = rows[position]
        value = 0.0
        reach = 0.0
        for j in range(len(coordinates)):
            v = planes[i, j]
            value += v * centre[j]
            reach += abs(v) * radius[j]
        turn = 0.5 * radius[split] * planes[i, split]
        reach -= abs(turn)
        below = value - turn
        above = value + turn
        kept[0, one] = i
        one += abs(below) < reach
        kept[1, two] = i
        two += abs(above) < reach
        on_below = 1.0 if below >= reach else 0.0
        on_above = 1.0 if above >= reach else 0.0
        for c in range(n_columns):
            amount = planes[i, first + c]
            sums[0, c] += on_below * amount
            sums[1, c] += on_above * amount
    opened[0] = one
    opened[1] = two


@_inner
def _measure(planes, coordinates, n_columns, rows, count, centre, multipliers, middle, low, high):
    """Sum what the open rows could add: (best gain, best gain less multipliers * effects), ranges, and the centre's.

    ``middle`` gets the sums of the rows that decide 1 at the centre, ``low`` and ``high`` the smallest and
    largest sums of each effect. The third value returned is the smallest distance of the centre from a plane.
    """
    first = len(coordinates)
    gains = 0.0
    priced = 0.0
    nearest = np.inf
    for position in range(count):
        i = rows[position]
        value = 0.0
        for j in range(len(coordinates)):
            value += planes[i, j] * centre[j]
        nearest = min(nearest, abs(value))
        on = 1.0 if value > 0.0 else 0.0
        gain = planes[i, first]
        gains += max(gain, 0.0)
        middle[0] += on * gain
        price = gain
        for c in range(1, n_columns):
            effect = planes[i, first + c]
            price -= multipliers[c - 1] * effect
            high[c - 1] += max(effect, 0.0)
            low[c - 1] += min(effect, 0.0)
            middle[c] += on * effect
        priced += max(price, 0.0)
    return gains, priced, nearest


@_inner
def _offer(values, utility, centre, lower, upper, best_utility, best_point):
    """Keep a candidate for every step of the ladder that it meets and improves."""
    step = first_step_met(values, lower, upper)
    for s in range(step, lower.shape[0]):
        if utility <= best_utility[s] + RESOLUTION:
            break
        best_utility[s] = utility
        for j in range(centre.shape[0]):
            best_point[s, j] = centre[j]


@_inner
def _prune(sums, gains, priced, low, high, multipliers, lower, upper, best_utility, target, left_behind):
    """Return the largest utility that a box may still hold over what is known (-inf: none), and the last step with one.

    Two bounds on the utility at each step that the box's values can reach: all helpful open rows decide 1; and,
    for any multipliers, utility <= sum (gain - multipliers * effect) + multipliers * bound.
    """
    n_steps, n_values = lower.shape
    plain = sums[0] + gains
    fixed = sums[0] + priced
    for c in range(n_values):
        fixed -= multipliers[c] * sums[1 + c]
    most = -np.inf
    last = -1
    for step in range(n_steps):
        reachable = True
        bound = fixed
        for c in range(n_values):
            if sums[1 + c] + high[c] < lower[step, c] - FEASIBILITY_SLACK:
                reachable = False
                break
            if sums[1 + c] + low[c] > upper[step, c] + FEASIBILITY_SLACK:
                reachable = False
                break
            if multipliers[c] > 0.0:
                bound += multipliers[c] * upper[step, c]
            elif multipliers[c] < 0.0:
                bound += multipliers[c] * lower[step, c]
        if not reachable:
            continue
        bound = min(bound, plain)
        if bound > best_utility[step] + target + RESOLUTION:
            most = max(most, bound)
            last = step
        elif bound > best_utility[step]:
            left_behind[step] = max(left_behind[step], bound)
    return most, last


@_inner
def _multipliers_at(centre, scale, basis, lower, upper, multipliers):
    """Set the multipliers of the basis constraints to z at the box's centre, where the bound they need is finite."""
    for c in range(multipliers.shape[0]):
        multipliers[c] = 0.0
    if centre[0] < 1e-4:
        return
    for k in range(basis.shape[0]):
        z = centre[k + 1] / (centre[0] * scale[k])
        c = basis[k]
        last = lower.shape[0] - 1
        if (z > 0.0 and upper[last, c] < np.inf) or (z < 0.0 and lower[last, c] > -np.inf):
            multipliers[c] = z


def _enumerate_plane_cells(
    coordinates, planes, rows, count, centre, radius, sums, lower, upper, best_utility, best_point, target, left_behind
):
    """Visit every cell inside a two-dimensional box: sweep along each open row's line, clipped to the box (K = 2)."""
    n_values = lower.shape[1]
    free = np.empty(2, dtype=np.int64)
    found = 0
    for j in range(3):
        if radius[j] > 0.0:
            free[found] = j
            found += 1
    fx, fy = free[0], free[1]
    at_centre = np.empty(count)
    for p in range(count):
        i = rows[p]
        at_centre[p] = planes[i, 0] * centre[0] + planes[i, 1] * centre[1] + planes[i, 2] * centre[2]
    table = np.empty((count, n_values + 1))
    for p in range(count):
        for c in range(n_values + 1):
            table[p, c] = planes[rows[p], 3 + c]
    events = np.empty((count, n_values + 2))
    crossings = np.empty(count)
    turning = np.empty(count, dtype=np.int64)
    n_steps = lower.shape[0]
    utility = np.empty(n_steps)
    position = np.empty(n_steps)
    closest = np.empty(3)
    start = np.empty(n_values + 1)
    candidate = np.empty(3)
    for p in range(count):
        bx, by = planes[rows[p], fx], planes[rows[p], fy]
        size = np.sqrt(bx * bx + by * by)
        if size < 1e-13:
            continue
        # The line's point nearest to the centre, its direction, and the part of it inside the box.
        px, py = -at_centre[p] * bx / (size * size), -at_centre[p] * by / (size * size)
        dx, dy = -by / size, bx / size
        low, high = -np.inf, np.inf
        for axis in range(2):
            offset, slope, half = (px, dx, radius[fx]) if axis == 0 else (py, dy, radius[fy])
            if abs(slope) < 1e-14:
                if abs(offset) > half:
                    low, high = 1.0, 0.0
                continue
            first, second = (-half - offset) / slope, (half - offset) / slope
            low = max(low, min(first, second))
            high = min(high, max(first, second))
        if high - low <= RESOLUTION * max(abs(low), abs(high)):
            continue
        for c in range(n_values + 1):
            start[c] = sums[c]
        turns = 0
        for q in range(count):
            if q == p:
                continue
            a = at_centre[q] + planes[rows[q], fx] * px + planes[rows[q], fy] * py
            b = planes[rows[q], fx] * dx + planes[rows[q], fy] * dy
            crossing = -a / b if abs(b) > 1e-14 else np.inf
            if crossing > low and crossing < high:
                events[q, 0] = crossing
                crossings[q] = crossing
                for c in range(n_values + 1):
                    events[q, 1 + c] = table[q, c] if b > 0.0 else -table[q, c]
                turning[turns] = q
                turns += 1
                on = b < 0.0
            else:
                on = a + 0.5 * (low + high) * b > 0.0
            if on:
                for c in range(n_values + 1):
                    start[c] += table[q, c]
        sort_by(crossings, turning, turns)
        for side in range(2):
            if side == 1:
                for c in range(n_values + 1):
                    start[c] += table[p, c]
            for s in range(n_steps):
                utility[s] = best_utility[s]
                position[s] = 0.0
            closest[0] = -np.inf
            sweep(turning, turns, events, start, low, high, lower, upper, utility, position, closest)
            for s in range(n_steps):
                if utility[s] <= best_utility[s] + RESOLUTION:
                    continue
                # Step off the line to the side that the cell is on, half-way to the next plane or the box's edge.
                toward = 1.0 if side == 1 else -1.0
                nx, ny = toward * bx / size, toward * by / size
                x, y = px + position[s] * dx, py + position[s] * dy
                room = np.inf
                if abs(nx) > 1e-14:
                    room = min(room, ((radius[fx] if nx > 0 else -radius[fx]) - x) / nx)
                if abs(ny) > 1e-14:
                    room = min(room, ((radius[fy] if ny > 0 else -radius[fy]) - y) / ny)
                for q in range(count):
                    if q == p:
                        continue
                    value = at_centre[q] + planes[rows[q], fx] * x + planes[rows[q], fy] * y
                    slope = planes[rows[q], fx] * nx + planes[rows[q], fy] * ny
                    if value * slope < 0.0:
                        room = min(room, -value / slope)
                x += 0.5 * room * nx
                y += 0.5 * room * ny
                nearest = np.inf
                for q in range(count):
                    nearest = min(nearest, abs(at_centre[q] + planes[rows[q], fx] * x + planes[rows[q], fy] * y))
                for j in range(3):
                    candidate[j] = centre[j]
                candidate[fx] += x
                candidate[fy] += y
                if nearest > RESOLUTION and candidate[0] > RESOLUTION:
                    best_utility[s] = utility[s]
                    for j in range(3):
                        best_point[s, j] = candidate[j]
                else:
                    left_behind[s] = max(left_behind[s], utility[s])
    return count * count


@_inner
def _deepest_point(normals, offsets, count, half, point, weights):
    """Find the point of the box |x_j| <= half_j that maximises the smallest (normal . x + offset) / |normal|_1.

    A one-phase simplex with Bland's rule on the variables (x + half, depth + shift), where ``shift`` is
    large enough for x = -half to be feasible. Returns (the depth, the row visits it took); fills ``point`` and the
    dual ``weights``: no point x of the box is deeper than sum_r weight_r (normal_r . x + offset_r) / sum_r weight_r
    |normal_r|_1, whatever the rounding.
    """
    d = half.shape[0]
    shift = 0.0
    right = np.empty(count + d)
    tableau = np.zeros((count + d, d + 1))
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
    for r in range(count):
        right[r] += tableau[r, d] * shift
    for j in range(d):
        tableau[count + j, j] = 1.0
        right[count + j] = 2.0 * half[j]
    reduced = np.zeros(d + 1)
    reduced[d] = 1.0
    basic = np.arange(d + 1, d + 1 + count + d)
    outside = np.arange(d + 1)
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
    for r in range(count):
        weights[r] = 0.0
    for j in range(d + 1):
        if d < outside[j] <= d + count:
            weights[outside[j] - d - 1] = max(0.0, -reduced[j])
    solution = np.zeros(d + 1)
    for r in range(count + d):
        if basic[r] <= d:
            solution[basic[r]] = right[r]
    for j in range(d):
        point[j] = solution[j] - half[j]
    depth = np.inf
    for r in range(count):
        value = offsets[r]
        size = 0.0
        for j in range(d):
            value += normals[r, j] * point[j]
            size += abs(normals[r, j])
        depth = min(depth, value / size)
    return depth, visits


def _enumerate_cells(
    coordinates, planes, rows, count, centre, radius, sums, lower, upper, best_utility, best_point, target, left_behind
):
    """Visit the cells inside a box that could improve on what is known, by their signs, depth first (any K).

    A prefix of signs is dropped when its bound is no better than what is known, or when no point of the box
    has these signs with room to spare. Returns the row visits; the work is given up at ``LEAF_VISITS`` of them.
    """
    n_coordinates = centre.shape[0]
    n_values = lower.shape[1]
    dimension = 0
    free = np.empty(n_coordinates, dtype=np.int64)
    for j in range(n_coordinates):
        if radius[j] > 0.0:
            free[dimension] = j
            dimension += 1
    half = np.empty(dimension)
    for j in range(dimension):
        half[j] = radius[free[j]]
    normals = np.empty((count, dimension))
    offsets = np.empty(count)
    weights = np.empty(count)
    slopes = np.empty((count, dimension))
    values_at_centre = np.zeros(count)
    for p in range(count):
        for j in range(n_coordinates):
            values_at_centre[p] += planes[rows[p], j] * centre[j]
        for j in range(dimension):
            slopes[p, j] = planes[rows[p], free[j]]
    gains = np.zeros(count + 1)
    highs = np.zeros((count + 1, n_values))
    lows = np.zeros((count + 1, n_values))
    for p in range(count - 1, -1, -1):
        gains[p] = gains[p + 1] + max(0.0, planes[rows[p], n_coordinates])
        for c in range(n_values):
            effect = planes[rows[p], n_coordinates + 1 + c]
            highs[p, c] = highs[p + 1, c] + max(0.0, effect)
            lows[p, c] = lows[p + 1, c] + min(0.0, effect)
    states = np.empty((count + 1, n_values + 1))
    for c in range(n_values + 1):
        states[0, c] = sums[c]
    narrowest = np.inf
    for j in range(dimension):
        narrowest = min(narrowest, half[j])
    points = np.zeros((count + 1, dimension))
    tried = np.zeros(count + 1, dtype=np.int64)
    no_price = np.zeros(n_values)
    candidate = np.empty(n_coordinates)
    depth = 0
    visits = count * count
    while depth >= 0 and visits < LEAF_VISITS:
        visits += 1
        if depth == count:
            # The deepest point may be on the box's side, where rows that are sure inside are not, or at t = 0, which
            # is no rule. It can move by half its depth in every coordinate and stay in its cell.
            room = np.inf
            for p in range(count):
                value = offsets[p]
                size = 0.0
                for j in range(dimension):
                    value += normals[p, j] * points[depth, j]
                    size += abs(normals[p, j])
                room = min(room, value / size)
            for j in range(n_coordinates):
                candidate[j] = centre[j]
            for j in range(dimension):
                limit = half[j] - min(0.5 * room, half[j])
                candidate[free[j]] += min(limit, max(-limit, points[depth, j]))
            if candidate[0] > 0.0:
                _offer(states[depth, 1:], states[depth, 0], candidate, lower, upper, best_utility, best_point)
            depth -= 1
            continue
        if tried[depth] == 2:
            depth -= 1
            continue
        # The helpful sign first.
        helps = planes[rows[depth], n_coordinates] > 0.0
        one = helps == (tried[depth] == 0)
        tried[depth] += 1
        _copy_row(states, depth, states, depth + 1)
        if one:
            for c in range(n_values + 1):
                states[depth + 1, c] += planes[rows[depth], n_coordinates + c]
        most, _ = _prune(
            states[depth + 1], gains[depth + 1], gains[depth + 1], lows[depth + 1], highs[depth + 1], no_price,
            lower, upper, best_utility, target, left_behind,
        )  # fmt: skip
        if most == -np.inf:
            continue
        sign = 1.0 if one else -1.0
        size = 0.0
        value = values_at_centre[depth]
        for j in range(dimension):
            normals[depth, j] = sign * slopes[depth, j]
            size += abs(slopes[depth, j])
            value += slopes[depth, j] * points[depth, j]
        offsets[depth] = sign * values_at_centre[depth]
        if sign * value > 1e-3 * size * narrowest:
            _copy_row(points, depth, points, depth + 1)
        else:
            inside, pivoted = _deepest_point(normals, offsets, depth + 1, half, points[depth + 1], weights)
            visits += pivoted
            if inside <= RESOLUTION:
                continue
        depth += 1
        tried[depth] = 0
    return visits


def _enumerate(
    coordinates, planes, rows, count, centre, radius, sums, lower, upper, best_utility, best_point, target, left_behind
):
    """Visit every cell inside a box. The compiler sees only the version for the number of coordinates."""
    raise NotImplementedError


@overload(_enumerate)
def _enumerate_by_dimension(
    coordinates, planes, rows, count, centre, radius, sums, lower, upper, best_utility, best_point, target, left_behind
):
    return (
        _enumerate_plane_cells
        if isinstance(coordinates, types.UniTuple) and coordinates.count == 3
        else _enumerate_cells
    )


@njit(cache=True, nogil=True, error_model="numpy")
def bundle_planes(planes, axis, depth, codes, directions):
    """Put planes with like directions together, in a binary tree of ``depth`` levels below its root.

    A direction is v without the coordinate ``axis``, divided by the sum of its sizes. Each node is halved at the
    median of the coordinate that varies most; medians are taken over a sample. Fills ``codes`` with the leaf of each
    plane and ``directions`` with the median direction of each node; node i has the children 2 i and 2 i + 1.
    """
    n = planes.shape[0]
    n_coordinates = directions.shape[1]
    leaves = 1 << depth
    stride = max(1, n // (16 * leaves))
    drawn = (n + stride - 1) // stride
    sample = np.zeros((drawn, n_coordinates))
    order = np.empty(drawn, dtype=np.int64)
    for i in range(drawn):
        _direction(planes, i * stride, axis, sample[i])
        order[i] = i
    column = np.empty(drawn)
    sorted_rows = np.empty(drawn, dtype=np.int64)
    start = np.zeros(2 * leaves + 1, dtype=np.int64)
    stop = np.zeros(2 * leaves + 1, dtype=np.int64)
    stop[1] = drawn
    coordinate = np.zeros(leaves, dtype=np.int64)
    threshold = np.zeros(leaves)
    for node in range(1, 2 * leaves):
        first, count = start[node], stop[node] - start[node]
        if count == 0:
            _copy_row(directions, node // 2, directions, node)
        widest = -1.0
        for j in range(n_coordinates if count > 0 else 0):
            for i in range(count):
                column[order[first + i]] = sample[order[first + i], j]
                sorted_rows[i] = order[first + i]
            sort_by(column, sorted_rows, count)
            middle = column[sorted_rows[count // 2]]
            directions[node, j] = middle
            spread = column[sorted_rows[(9 * count) // 10]] - column[sorted_rows[count // 10]]
            if spread > widest:
                widest = spread
                if node < leaves:
                    coordinate[node] = j
                    threshold[node] = middle
        if node < leaves:
            below = 0
            above = 0
            for i in range(count):
                row = order[first + i]
                if sample[row, coordinate[node]] < threshold[node]:
                    order[first + below] = row
                    below += 1
                else:
                    sorted_rows[above] = row
                    above += 1
            for i in range(above):
                order[first + below + i] = sorted_rows[i]
            start[2 * node], stop[2 * node] = first, first + below
            start[2 * node + 1], stop[2 * node + 1] = first + below, stop[node]
    direction = np.empty(n_coordinates)
    for i in range(n):
        _direction(planes, i, axis, direction)
        node = 1
        while node < leaves:
            node = 2 * node + (direction[coordinate[node]] >= threshold[node])
        codes[i] = node


@_inner
def _direction(planes, i, axis, direction):
    size = 0.0
    for j in range(direction.shape[0]):
        direction[j] = 0.0 if j == axis else planes[i, j]
        size += abs(direction[j])
    if size > 0.0:
        for j in range(direction.shape[0]):
            direction[j] /= size


@_inner
def _bundled(
    planes, coordinates, n_columns, rows, count, centre, radius, codes, directions, weight, prices, turns, shape
):
    """Return a bound on what the open rows add to ``weight * gain - prices . effects``, better than one row at a time.

    Over the box, the value of a row divided by its reach is (where it stands at the centre) + u . d, with u its
    direction in the box's metric, of size 1, and d in [-1, 1]^K. Rows of a bundle share u nearly: with s = -u . d
    for the bundle's own direction, a row at a distance e from it is surely 1 where s is below its place at
    the centre less e, and surely 0 where s is above it plus e. So the rows of a bundle turn in the order of their
    places, as s goes from -1 to 1, and the best that they can do together is the best over s. s is looked at in
    bins, each with the rows that may turn inside it free to choose.
    """
    first = len(coordinates)
    depth = 0
    while (2 << depth) < directions.shape[0]:
        depth += 1
    level = 0
    while level < depth and (ROWS_A_BUNDLE << (level + 1)) <= count:
        level += 1
    bundles = 1 << level
    for b in range(bundles):
        size = 1e-300
        for j in range(len(coordinates)):
            size += abs(directions[bundles + b, j]) * radius[j]
        for j in range(len(coordinates)):
            shape[b, j] = directions[bundles + b, j] * radius[j] / size
        for q in range(BINS + 1):
            turns[b, q] = 0.0
    for position in range(count):
        i = rows[position]
        b = (codes[i] >> (depth - level)) - bundles
        value = 0.0
        reach = 0.0
        for j in range(len(coordinates)):
            v = planes[i, j]
            value += v * centre[j]
            reach += abs(v) * radius[j]
        inverse = 1.0 / reach
        apart = 1e-9 + 1e-15 * inverse
        for j in range(len(coordinates)):
            apart += abs(planes[i, j] * radius[j] * inverse - shape[b, j])
        price = weight * planes[i, first]
        for c in range(1, n_columns):
            price -= prices[c - 1] * planes[i, first + c]
        helpful = max(price, 0.0)
        place = value * inverse + 1.0
        turns[b, 0] += price
        turns[b, int(min(1.0 * BINS, max(0.0, 0.5 * BINS * (place - apart))))] += helpful - price
        turns[b, int(min(1.0 * BINS, max(0.0, 0.5 * BINS * (place + apart) + 1.0)))] -= helpful
    total = 0.0
    for b in range(bundles):
        running = 0.0
        most = -np.inf
        for q in range(BINS):
            running += turns[b, q]
            most = max(most, running)
        total += most
    return total


@_inner
def _infeasible(
    planes, coordinates, n_columns, rows, count, centre, radius, codes, directions, sums, middle, low, high,
    lower, upper, guess, violation, turns, shape,
):  # fmt: skip
    """Tell whether the bundles prove that no rule in the box meets the bounds of a step; also the guess for its parts.

    The direction in which the centre misses the bounds is what is tried: all rules of the box may miss them there.
    ``guess`` is the share of the plain range that the bundles are expected to leave.
    """
    n_values = lower.shape[0]
    missed = 0.0
    plain = 0.0
    for c in range(n_values):
        value = middle[1 + c]
        violation[c] = max(value - upper[c], 0.0) + min(value - lower[c], 0.0)
        missed += violation[c] * violation[c]
        plain += violation[c] * (value - sums[1 + c] - (low[c] if violation[c] > 0.0 else high[c]))
    if missed == 0.0 or missed <= HOPE * guess * plain:
        return False, guess
    scale = 1.0 / np.sqrt(missed)
    least = 0.0
    needed = 0.0
    at_centre = 0.0
    for c in range(n_values):
        violation[c] *= scale
        least += violation[c] * sums[1 + c]
        at_centre += violation[c] * middle[1 + c]
        if violation[c] != 0.0:
            needed += violation[c] * (upper[c] if violation[c] > 0.0 else lower[c])
    least -= _bundled(
        planes, coordinates, n_columns, rows, count, centre, radius, codes, directions, 0.0, violation, turns, shape
    )
    return least > needed + 1e-9, max(0.05, (at_centre - least) / (scale * plain + 1e-300))


@_inner
def _side_to_halve(planes, coordinates, rows, count, radius, shares):
    """Return the side of a box that its open rows owe most of their reach to: halving it decides the most of them.

    Rows that the box is tiny for do not count: they meet in it, and smaller boxes would be cut by all of them.
    """
    for j in range(len(coordinates)):
        shares[j] = 0.0
    stride = max(1, count // ROWS_FOR_SHARES)
    while True:
        for position in range(0, count, stride):
            i = rows[position]
            reach = 0.0
            largest = 0.0
            for j in range(len(coordinates)):
                part = abs(planes[i, j]) * radius[j]
                reach += part
                largest = max(largest, part)
            if largest >= SMALL_RADIUS:
                for j in range(len(coordinates)):
                    shares[j] += abs(planes[i, j]) * radius[j] / reach
        best = 0
        for j in range(1, len(coordinates)):
            if shares[j] > shares[best]:
                best = j
        if stride == 1 or shares[best] > 0.0:
            return best
        stride = 1


@_inner
def _tiny(planes, coordinates, rows, count, radius):
    """Tell whether a box is tiny for all its open rows: each of its sides is short, or does not matter to them."""
    shortest = np.inf
    for j in range(len(coordinates)):
        if radius[j] > 0.0:
            shortest = min(shortest, radius[j])
    if shortest >= SMALL_RADIUS:
        return False
    for position in range(count):
        i = rows[position]
        for j in range(len(coordinates)):
            if abs(planes[i, j]) * radius[j] >= SMALL_RADIUS:
                return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def branch(
    planes, coordinates, n_columns, every, codes, directions, basis, scale, lower, upper, leaf_size, meeting_size,
    target, budget, node_budget, stack_centre, stack_radius, stack_sums, stack_start, stack_count, stack_bound,
    stack_guess, pool, height, best_utility, best_point, left_behind, scratch, met, met_centre, met_sums, met_bound,
    met_rows,
):  # fmt: skip
    """Branch and bound, depth first, until the stack is empty or a budget, of row visits or of boxes, is spent.

    A stack entry with count -1 is a whole face of the half-cube, whose rows have not been looked at yet. A box with
    at most ``leaf_size`` open rows is enumerated; so is a tiny one with up to ``meeting_size``, because the
    planes that cut it meet in a point or a line, and smaller boxes would still be cut by all of them. Of tiny boxes
    with more rows, centre, sums, bound and rows are written to ``met_...``, and where the rows of the m-th end to
    ``met[1 + m]``; met[0] counts them, and the caller looks at them.
    Returns (what happened, height of the stack, boxes looked at, row visits).
    """
    n_coordinates = basis.shape[0] + 1
    n_values = lower.shape[1]
    multipliers = np.zeros(n_values)
    low = np.zeros((2, n_values))
    high = np.zeros((2, n_values))
    middle = np.zeros(n_values + 1)
    child_centre = np.zeros((2, n_coordinates))
    child_radius = np.zeros((2, n_coordinates))
    child_sums = np.zeros((2, n_values + 1))
    child_count = np.zeros(2, dtype=np.int64)
    child_bound = np.zeros(2)
    child_guess = np.zeros((2, 2))
    violation = np.zeros(n_values)
    no_price = np.zeros(n_values)
    shares = np.zeros(n_coordinates)
    turns = np.zeros((directions.shape[1] // 2, BINS + 1))
    shape = np.zeros((directions.shape[1] // 2, n_coordinates))
    nodes = 0
    visits = 0
    while height > 0:
        if visits >= budget or nodes >= node_budget:
            return OUT_OF_BUDGET, height, nodes, visits
        top = height - 1
        start, count = stack_start[top], stack_count[top]
        whole = count < 0
        if pool.shape[0] < start + 2 * (planes.shape[0] if whole else count) or stack_count.shape[0] < height + 1:
            return OUT_OF_ROOM, height, nodes, visits
        taken = met[met[0]] if met[0] > 0 else 0
        if met_bound.shape[0] < met[0] + 2 or met_rows.shape[0] < taken + 2 * (planes.shape[0] if whole else count):
            return MET, height, nodes, visits
        best_known = np.inf
        for s in range(lower.shape[0]):
            best_known = min(best_known, best_utility[s])
        height -= 1
        if not whole and stack_bound[top] <= best_known + target + RESOLUTION:
            for s in range(lower.shape[0]):
                if stack_bound[top] > best_utility[s]:
                    left_behind[s] = max(left_behind[s], stack_bound[top])
            continue
        children = 1 if whole else 2
        if not whole:
            split = _side_to_halve(planes, coordinates, pool[start:], count, stack_radius[top], shares)
        for child in range(children):
            _copy_row(stack_centre, top, child_centre, child)
            _copy_row(stack_radius, top, child_radius, child)
            _copy_row(stack_sums, top, child_sums, child)
            for j in range(2):
                child_guess[child, j] = FADING * stack_guess[top, j]
            if not whole:
                child_radius[child, split] *= 0.5
                child_centre[child, split] += (child * 2 - 1) * child_radius[child, split]
        if whole:
            visits += planes.shape[0]
            child_count[0] = classify(
                planes, coordinates, n_columns, every, planes.shape[0], child_centre[0], child_radius[0], scratch[0],
                child_sums[0],
            )  # fmt: skip
        else:
            visits += count
            _classify_halves(
                planes, coordinates, n_columns, pool[start:], count, stack_centre[top], stack_radius[top], split,
                scratch, child_count, child_sums,
            )  # fmt: skip
        for child in range(children):
            nodes += 1
            visits += WORK_A_BOX * (n_coordinates + n_values)
            opened = child_count[child]
            _multipliers_at(child_centre[child], scale, basis, lower, upper, multipliers)
            for c in range(n_values + 1):
                middle[c] = child_sums[child, c]
            for c in range(n_values):
                low[child, c] = 0.0
                high[child, c] = 0.0
            gains, priced, nearest = _measure(
                planes, coordinates, n_columns, scratch[child], opened, child_centre[child], multipliers, middle,
                low[child], high[child],
            )  # fmt: skip
            if nearest > RESOLUTION and child_centre[child, 0] > RESOLUTION:
                _offer(middle[1:], middle[0], child_centre[child], lower, upper, best_utility, best_point)
            child_bound[child], last = _prune(
                child_sums[child], gains, priced, low[child], high[child], multipliers, lower, upper,
                best_utility, target, left_behind,
            )  # fmt: skip
            if child_bound[child] > -np.inf and opened > OPEN_FOR_BUNDLES:
                face = 0
                for j in range(1, n_coordinates):
                    if child_radius[child, j] < child_radius[child, face]:
                        face = j
                ahead = child_sums[child, 0] + gains - middle[0]
                if middle[0] + HOPE * child_guess[child, 0] * ahead <= best_known + target:
                    bundled = _bundled(
                        planes, coordinates, n_columns, scratch[child], opened, child_centre[child],
                        child_radius[child], codes[face], directions[face], 1.0, no_price, turns, shape,
                    )  # fmt: skip
                    visits += opened
                    child_guess[child, 0] = max(0.05, (child_sums[child, 0] + bundled - middle[0]) / (ahead + 1e-300))
                    child_bound[child], last = _prune(
                        child_sums[child], min(gains, bundled), priced, low[child], high[child], multipliers, lower,
                        upper, best_utility, target, left_behind,
                    )  # fmt: skip
                if last >= 0:
                    hopeless, child_guess[child, 1] = _infeasible(
                        planes, coordinates, n_columns, scratch[child], opened, child_centre[child],
                        child_radius[child], codes[face], directions[face], child_sums[child], middle, low[child],
                        high[child], lower[last], upper[last], child_guess[child, 1], violation, turns, shape,
                    )  # fmt: skip
                    if hopeless:
                        child_bound[child] = -np.inf
            if child_bound[child] == -np.inf:
                child_count[child] = 0
                continue
            tiny = _tiny(planes, coordinates, scratch[child], opened, child_radius[child])
            if opened <= leaf_size or (tiny and opened <= meeting_size):
                enumerated = _enumerate(
                    coordinates, planes, scratch[child], opened, child_centre[child], child_radius[child],
                    child_sums[child], lower, upper, best_utility, best_point, target, left_behind,
                )  # fmt: skip
                visits += enumerated
                for s in range(lower.shape[0] if enumerated >= LEAF_VISITS else 0):
                    if child_bound[child] > best_utility[s]:
                        left_behind[s] = max(left_behind[s], child_bound[child])
                child_count[child] = 0
            elif tiny:
                number = met[0]
                taken = met[number] if number > 0 else 0
                _copy_row(child_centre, child, met_centre, number)
                _copy_row(child_sums, child, met_sums, number)
                met_bound[number] = child_bound[child]
                for i in range(opened):
                    met_rows[taken + i] = scratch[child, i]
                met[0] = number + 1
                met[1 + number] = taken + opened
                child_count[child] = 0
        # The more promising child on top of the stack.
        first = 1 if children == 2 and child_bound[1] < child_bound[0] else 0
        for turn in range(children):
            child = first if turn == 0 else 1 - first
            if child_count[child] == 0:
                continue
            _copy_row(child_centre, child, stack_centre, height)
            _copy_row(child_radius, child, stack_radius, height)
            _copy_row(child_sums, child, stack_sums, height)
            _copy_row(child_guess, child, stack_guess, height)
            stack_bound[height] = child_bound[child]
            stack_start[height] = start
            stack_count[height] = child_count[child]
            for i in range(child_count[child]):
                pool[start + i] = scratch[child, i]
            start += child_count[child]
            height += 1
    return DONE, height, nodes, visits
