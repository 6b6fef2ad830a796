"""The compiled loops: counting rows by their words, by the lines that they are, and what counts say about boxes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

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


@njit(cache=True, nogil=True)
def _count_one_word(words, mask, start, limit, table, used):
    """Do the same as :func:`count_words` for rows without weights whose scores fit in one word: nearly all data."""
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

    A slot of ``table`` (slots, 1 + W) is the number of rows, 0 if it is free, and the masked words; ``sums`` (slots, V)
    has the sums of ``payload`` (n, V). An empty ``rows`` stands for ones. The loop stops before the row that would make
    more than ``limit`` cells.
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
            # A product's low bits do not depend on the factors' high bits: fold them back.
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
    """Add one, or its weight if there are weights, at the index of each word."""
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
        # The margins compensate for the rounding of a product.
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
