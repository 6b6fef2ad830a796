"""The compiled loops: counting rows by their words, by the lines that they are, and what counts say about boxes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._compiled import njit
from evenhand.inputs import FloatArray

_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
# Far above the rounding of a distance, far below the width of a bin.
MARGIN = 1e-9
# What two ways to compute a row's level can differ by.
ROUNDING = 1e-11
# How many bins of a direction are looked at one by one in a box; where there are more, some are taken together.
MOST_STEPS = 24


class Form(NamedTuple):
    """The margin ``slope s0 - constant`` and the contrasts ``weights s + constants`` of a row's scores s0 and s.

    ``sizes`` and ``size_constants`` are the same sums with everything positive. ``tie`` is what a margin is 0 below;
    contrasts below ``least`` of their size are 0, and below ``delicate`` of it they depend on rounding.
    """

    slope: float
    constant: float
    weights: FloatArray
    constants: FloatArray
    sizes: FloatArray
    size_constants: FloatArray
    tie: float
    least: float
    delicate: float


class Bins(NamedTuple):
    """Bins of distance: octaves of 1 + |distance| / finest with so many bins each, in three stages."""

    finest: float
    octaves: tuple[int, int, int]
    bins: tuple[int, int, int]
    half: int


class Survey(NamedTuple):
    """Rows as lines in a square of z: level, contrasts, kind and weight of each (no weights: each is 1).

    ``prices`` has, for each test, what a unit of weight of each kind is worth. A rule is of interest if each test
    reaches what is ``needed``; the first ones are about the utility, and what they need is the best known one plus
    ``extra``. ``sure`` is the weight of each kind that is decided 1 throughout.
    """

    level: FloatArray
    contrasts: FloatArray
    kind: NDArray[np.int16]
    weight: FloatArray
    prices: FloatArray
    needed: FloatArray
    utility: FloatArray
    extra: FloatArray
    sure: FloatArray


class Room(NamedTuple):
    """Boxes of a depth-first search, with their open rows, and those that are left over at its end."""

    rows: NDArray[np.int32]
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    box: FloatArray
    sure: FloatArray
    bound: FloatArray
    left: FloatArray


@njit(cache=True, nogil=True)
def _count_one_word(words, mask, start, limit, table, used):
    """Do what :func:`count_words` does for rows without weights whose scores fit in one word: nearly all data."""
    last = len(table) - 1
    for i in range(start, len(words)):
        key = words[i, 0] & mask
        mixed = np.uint64(key) * _MIX
        mixed ^= mixed >> _HALF
        slot = np.int64((mixed * _MIX) >> _HALF) & last
        while table[slot, 0] != 0 and table[slot, 1] != key:
            slot = (slot + 1) & last
        if table[slot, 0] == 0:
            if used == limit:
                return i, used
            used += 1
            table[slot, 1] = key
        table[slot, 0] += 1
    return len(words), used


@njit(cache=True, nogil=True)
def count_words(words, masks, payload, rows, start, limit, table, sums, used):
    """Add rows to a hash table of (words & masks); return where it stopped and how many cells there are.

    A slot of ``table`` (slots, 1 + W) is the number of rows, 0 where it is free, and the masked words; ``sums``
    (slots, V) has what ``payload`` (n, V) adds up to. An empty ``rows`` stands for ones. The loop stops before the
    row that would make more than ``limit`` cells.
    """
    width = words.shape[1]
    columns = payload.shape[1]
    single = len(rows) == 0
    if width == 1 and columns == 0 and single:
        return _count_one_word(words, masks[0], start, limit, table, used)
    last = len(table) - 1
    key = np.empty(width, np.int64)
    for i in range(start, len(words)):
        mixed = np.uint64(0)
        for j in range(width):
            key[j] = words[i, j] & masks[j]
            mixed = (mixed ^ np.uint64(key[j])) * _MIX
            # A product's low bits know nothing of the factors' high bits: fold them back.
            mixed ^= mixed >> _HALF
        slot = np.int64((mixed * _MIX) >> _HALF) & last
        while table[slot, 0] != 0:
            same = True
            for j in range(width):
                if table[slot, 1 + j] != key[j]:
                    same = False
                    break
            if same:
                break
            slot = (slot + 1) & last
        if table[slot, 0] == 0:
            if used == limit:
                return i, used
            used += 1
            for j in range(width):
                table[slot, 1 + j] = key[j]
        table[slot, 0] += 1 if single else rows[i]
        for j in range(columns):
            sums[slot, j] += payload[i, j]
    return len(words), used


@njit(cache=True, nogil=True)
def add_dense(words, weights, counts):
    """Add one, or its weight where there are weights, to the place that each word names."""
    if len(weights) == 0:
        for i in range(len(words)):
            counts[words[i]] += 1
    else:
        for i in range(len(words)):
            counts[words[i]] += weights[i]


@njit(cache=True, nogil=True)
def distance_bin(distance, scales):
    """Return the bin of a signed distance: linear inside octaves of 1 + |distance| / finest, so finest around 0."""
    half = scales.half
    x = abs(distance) / scales.finest + 1.0
    first, second, third = scales.octaves
    if not x < 2.0 ** (first + second + third):
        return 2 * half - 1 if distance > 0.0 else 0
    fraction, octave = math.frexp(x)
    fraction, octave = 2.0 * fraction - 1.0, octave - 1
    place = 0
    if octave < first:
        place = octave * scales.bins[0] + int(fraction * scales.bins[0])
    elif octave < first + second:
        place = first * scales.bins[0] + (octave - first) * scales.bins[1] + int(fraction * scales.bins[1])
    else:
        place = first * scales.bins[0] + second * scales.bins[1]
        place += (octave - first - second) * scales.bins[2] + int(fraction * scales.bins[2])
    return half + place if distance >= 0.0 else half - 1 - place


@njit(cache=True, nogil=True)
def line_of(scores, i, form, contrasts):
    """Set a row's contrasts; return its margin, their size, the size of their terms, and whether all of them are 0."""
    margin = form.slope * scores[0, i] - form.constant
    size, terms, none = 0.0, 0.0, True
    for a in range(form.weights.shape[0]):
        value, whole = form.constants[a], form.size_constants[a]
        for j in range(form.weights.shape[1]):
            value += form.weights[a, j] * scores[1 + j, i]
            whole += form.sizes[a, j] * scores[1 + j, i]
        contrasts[a] = value
        size += abs(value)
        terms += whole
        none = none and abs(value) <= form.least * whole
    return margin, size, terms, none


@njit(cache=True, nogil=True)
def place_lines(scores, form, centre, directions, scales, places):
    """Set each row's place: its direction among the contrasts, and its distance from the centre, both in bins.

    A row is decided 1 at a distance of d from the centre iff its level there is above the sum of d times its contrasts.
    Rows without contrasts are decided 0 or 1 everywhere, and have the two places after all others; the next one is for
    rows whose contrasts are rounding.
    """
    row = 2 * scales.half + 1
    sides = directions // 2
    contrasts = np.zeros(len(centre))
    for i in range(len(places)):
        margin, size, terms, none = line_of(scores, i, form, contrasts)
        if size <= form.delicate * terms:
            places[i] = directions * row + ((1 if margin > form.tie else 0) if none else 2)
            continue
        level = margin
        for a in range(len(centre)):
            level -= centre[a] * contrasts[a]
        place = distance_bin(level / size, scales)
        if directions > 1:
            direction = min(int((contrasts[1] / size + 1.0) * 0.5 * sides), sides - 1)
            place += (direction + (sides if contrasts[0] < 0.0 else 0)) * row
        places[i] = place


@njit(cache=True, nogil=True)
def cut_strip(rows, form, where, bins, scales, sure, kept):
    """Tell which rows of a square are open in a strip, and add to ``sure`` those that are decided 1 throughout it.

    ``rows`` are scores, codes and weights, ``where`` the centre of the square and the centre and axes of the strip.
    Returns the weight of the rows of the square, delicate ones among them.
    """
    scores, codes, weights = rows
    centre, point, axes = where
    contrasts = np.zeros(2)
    total = 0.0
    for i in range(len(codes)):
        margin, size, terms, none = line_of(scores, i, form, contrasts)
        g, h = contrasts[0], contrasts[1]
        weight = weights[i] if len(weights) > 0 else 1.0
        if size <= form.delicate * terms:
            kept[i] = not none
            total += weight if not none else 0.0
            continue
        # The same operations as in place_lines: the same rows are inside.
        place = distance_bin((margin - centre[0] * g - centre[1] * h) / size, scales)
        if place < scales.half - bins or place >= scales.half + bins:
            continue
        total += weight
        level = margin - point[0] * g - point[1] * h
        reach = abs(g * axes[0, 0] + h * axes[1, 0]) + abs(g * axes[0, 1] + h * axes[1, 1])
        if abs(level) <= reach * (1.0 + MARGIN) + ROUNDING:
            kept[i] = True
        elif level > 0.0:
            sure[codes[i]] += weight
    return total


@njit(cache=True, nogil=True)
def sum_from_each_on(counts):
    """Replace the weights (directions, bins + 1, kinds) by the sums of those from each bin on."""
    for j in range(counts.shape[0]):
        for b in range(counts.shape[1] - 2, -1, -1):
            for k in range(counts.shape[2]):
                counts[j, b, k] += counts[j, b + 1, k]


@njit(cache=True, nogil=True)
def sums_at_place(above, units, place, reach, scales, on, unsure):
    """Set the weight of each kind that is decided 1 at a place, about, and what may be decided otherwise."""
    last = above.shape[1] - 1
    on[:] = 0.0
    unsure[:] = 0.0
    for j in range(units.shape[0]):
        threshold = place[0] * units[j, 0] + place[1] * units[j, 1]
        b = distance_bin(threshold, scales)
        low, high = distance_bin(threshold - reach, scales), min(distance_bin(threshold + reach, scales) + 1, last)
        for k in range(above.shape[2]):
            # Half of the bin that the threshold is in.
            on[k] += 0.5 * (above[j, b, k] + above[j, b + 1, k])
            unsure[k] += above[j, low, k] - above[j, high, k]


@njit(cache=True, nogil=True)
def most_in_box(above, prices, edges, units, box, fuzz, ordered, scales, most):
    """Set the most that rules in a box can make of each of some prices: an upper bound, direction by direction.

    ``above[j, b]`` has the weights of each kind of direction j in bins from b on. ``box`` is (c1, c2, r1, r2, nearest,
    farthest): rules at (c +- r) * d for d between the last two. All rows of a direction turn at nearly the same
    threshold, within ``fuzz``, so with ``ordered`` only one threshold at a time is looked at; otherwise the rows
    between the smallest and the largest threshold decide as they like.
    """
    bins = 2 * scales.half
    kinds = above.shape[2]
    best = np.empty(prices.shape[0])
    most[:] = 0.0
    for j in range(units.shape[0]):
        middle = box[0] * units[j, 0] + box[1] * units[j, 1]
        reach = box[2] * abs(units[j, 0]) + box[3] * abs(units[j, 1])
        low, high = middle - reach, middle + reach
        if not ordered:
            low -= fuzz
            high += fuzz
        if low != 0.0:
            low *= box[4] if low > 0.0 else box[5]
        if high != 0.0:
            high *= box[5] if high > 0.0 else box[4]
        # The margins make up for the rounding of a product.
        low, high = low - MARGIN * abs(low), high + MARGIN * abs(high)
        first, last = distance_bin(low, scales), distance_bin(high, scales)
        step = 1 + (last - first) // MOST_STEPS if ordered else last - first + 1
        best[:] = -np.inf
        start, stop = first, first + 1
        if ordered:
            while start > 0 and edges[start] > edges[first] - fuzz:
                start -= 1
        for b in range(first, last + 1, step):
            # The threshold is in one of these bins: what is farther from them than the fuzz is sure.
            end = min(b + step, last + 1)
            stop = max(stop, end)
            if ordered:
                while start < b and edges[start + 1] <= edges[b] - fuzz:
                    start += 1
                while stop < bins and edges[stop] < edges[end] + fuzz:
                    stop += 1
            for t in range(prices.shape[0]):
                total = 0.0
                for k in range(kinds):
                    price = prices[t, k]
                    total += price * (above[j, start, k] if price > 0.0 else above[j, stop, k])
                best[t] = max(best[t], total)
        for t in range(prices.shape[0]):
            most[t] += best[t]


@njit(cache=True, nogil=True)
def look_at_half(survey, rows, box, sure, opened, middle, kept):
    """Sort the open rows of a box that holds this one: set those that are open here, and count the kinds.

    ``sure`` gets those decided 1 throughout, ``opened`` those that are open, ``middle`` those decided 1 at the centre.
    Returns how many are open, and what each side adds to their reach.
    """
    weighted = len(survey.weight) > 0
    found, first, second = 0, 0.0, 0.0
    for i in rows:
        a, b = survey.contrasts[i, 0], survey.contrasts[i, 1]
        level = survey.level[i] - (box[0] * a + box[1] * b)
        one, other = box[2] * abs(a), box[3] * abs(b)
        reach = (one + other) * (1.0 + MARGIN) + ROUNDING
        if level < -reach:
            continue
        k, weight = survey.kind[i], survey.weight[i] if weighted else 1.0
        if level > 0.0:
            middle[k] += weight
        if level > reach:
            sure[k] += weight
        else:
            opened[k] += weight
            kept[found] = i
            found += 1
            first += one
            second += other
    return found, first, second


@njit(cache=True, nogil=True)
def bound_of(survey, known, sure, opened):
    """Return the largest utility that a box may hold, or -inf where it holds nothing of interest."""
    bound = np.inf
    good = len(survey.extra)
    for t in range(survey.prices.shape[0]):
        most = 0.0
        for k in range(len(sure)):
            price = survey.prices[t, k]
            most += price * sure[k] + max(price * opened[k], 0.0)
        if t < good:
            bound = min(bound, most - survey.extra[t])
        if most < (known + survey.extra[t] if t < good else survey.needed[t]):
            return -np.inf
    return bound


@njit(cache=True, nogil=True)
def utility_at(survey, on):
    """Return the utility of a rule that decides these weights 1, or -inf where it misses what is needed."""
    for t in range(len(survey.extra), survey.prices.shape[0]):
        value = 0.0
        for k in range(len(on)):
            value += survey.prices[t, k] * on[k]
        if value < survey.needed[t]:
            return -np.inf
    utility = 0.0
    for k in range(len(on)):
        utility += survey.utility[k] * on[k]
    return utility


@njit(cache=True, nogil=True)
def survey_square(survey, known, leaf, visits, room):
    """Halve the square until what is of interest has few open rows; return (left over, best utility, where, work).

    ``known`` is a utility that some rule has, or is believed to have. The search is depth first, the better half first;
    what there is no room or no work for is left over as it is.
    """
    kinds = len(survey.sure)
    sure, opened, middle = np.zeros((2, kinds)), np.zeros((2, kinds)), np.zeros(kinds)
    boxes, bounds, sizes = np.zeros((2, 4)), np.zeros(2), np.zeros(2, np.int64)
    longer = np.zeros(2, np.int64)
    place = np.zeros(2)
    best = -np.inf
    n = len(survey.level)
    room.box[0, :2], room.box[0, 2:4], room.box[0, 4] = 0.0, 1.0, 0.0
    room.sure[0] = survey.sure
    room.start[0], room.size[0], room.bound[0] = 0, n, np.inf
    for i in range(n):
        room.rows[i] = i
    height, left, done = 1, 0, 0
    while height > 0:
        top = height - 1
        start, size = room.start[top], room.size[top]
        if room.bound[top] < known:
            height = top
            continue
        lacking = len(room.rows) < start + 3 * size or height + 1 >= len(room.start) or done >= visits
        if size <= leaf or lacking or max(room.box[top, 2], room.box[top, 3]) < 1e-12:
            # There is always room for what is on the stack.
            room.left[left, :4], room.left[left, 4] = room.box[top, :4], room.bound[top]
            left += 1
            height = top
            if left + height + 2 >= len(room.left):
                visits = 0
            continue
        done += 2 * size
        side = int(room.box[top, 4])
        free = start + size
        for h in range(2):
            boxes[h] = room.box[top, :4]
            boxes[h, 2 + side] *= 0.5
            boxes[h, side] += (2 * h - 1) * boxes[h, 2 + side]
            sure[h], opened[h], middle[:] = room.sure[top], 0.0, room.sure[top]
            rows, kept = room.rows[start:free], room.rows[free + h * size :]
            sizes[h], one, other = look_at_half(survey, rows, boxes[h], sure[h], opened[h], middle, kept)
            longer[h] = 0 if one >= other else 1
            here = utility_at(survey, middle)
            if here > best:
                best = here
                place[:] = boxes[h, :2]
                known = max(known, best)
            bounds[h] = bound_of(survey, known, sure[h], opened[h])
        height = top
        last = 0 if bounds[0] >= bounds[1] else 1
        for turn in range(2):
            h = 1 - last if turn == 0 else last
            if bounds[h] == -np.inf:
                continue
            source = free + h * size
            for i in range(sizes[h]):
                room.rows[start + i] = room.rows[source + i]
            room.start[height], room.size[height], room.bound[height] = start, sizes[h], bounds[h]
            room.box[height, :4], room.box[height, 4] = boxes[h], longer[h]
            room.sure[height] = sure[h]
            start += sizes[h]
            height += 1
    return left, best, place, done
