"""The compiled loop that counts rows by their words."""

from __future__ import annotations

import numpy as np

from evenhand._compiled import njit

_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
# Far above the rounding of a distance, far below the width of a bin.
MARGIN = 1e-9


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
def distance_bin(distance, finest, a_octave, half):
    """Return the bin of a signed distance: linear inside octaves of 1 + |distance| / finest, so finest around 0."""
    x = abs(distance) / finest + 1.0
    if not x < 2.0 ** (half // a_octave):
        return 2 * half - 1 if distance > 0.0 else 0
    octave = 0
    while x >= 2.0:
        x *= 0.5
        octave += 1
    place = octave * a_octave + int((x - 1.0) * a_octave)
    return half + place if distance >= 0.0 else half - 1 - place


@njit(cache=True, nogil=True)
def place_rows(level, first, second, directions, finest, a_octave, half, places):
    """Set each row's place: its direction among the contrasts, and its distance from the centre, both in bins.

    ``level`` is the margin at the centre; a row is decided 1 at a distance of (d1, d2) from there iff
    level > d1 first + d2 second.
    """
    sides = directions // 2
    for i in range(len(level)):
        size = abs(first[i]) + abs(second[i])
        direction = min(int((second[i] / size + 1.0) * 0.5 * sides), sides - 1)
        if first[i] < 0.0:
            direction += sides
        places[i] = direction * (2 * half) + distance_bin(level[i] / size, finest, a_octave, half)


@njit(cache=True, nogil=True)
def most_in_box(above, positive, edges, units, box, fuzz, ordered, scales):
    """Return the most that rules in a box can make of prices: an upper bound, direction by direction.

    ``above[j, b]`` sums the prices of direction j in bins from b on, ``positive`` those above 0. ``box`` is (c1, c2,
    r1, r2, nearest, farthest): rules at (c +- r) * d for d between the last two. All rows of a direction turn at nearly
    the same threshold, within ``fuzz``, so with ``ordered`` only one threshold at a time is looked at; otherwise the
    rows between the smallest and the largest threshold decide as they like.
    """
    finest, a_octave, half = scales
    bins = 2 * half
    total = 0.0
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
        first, last = distance_bin(low, finest, a_octave, half), distance_bin(high, finest, a_octave, half)
        if not ordered:
            total += above[j, last + 1] + positive[j, first] - positive[j, last + 1]
            continue
        best = -np.inf
        start = first
        while start > 0 and edges[start] > edges[first] - fuzz:
            start -= 1
        stop = first + 1
        for b in range(first, last + 1):
            # The threshold is in bin b: rows farther from the bin than the fuzz are certain.
            while start < b and edges[start + 1] <= edges[b] - fuzz:
                start += 1
            stop = max(stop, b + 1)
            while stop < bins and edges[stop] < edges[b + 1] + fuzz:
                stop += 1
            best = max(best, above[j, stop] + (positive[j, start] - positive[j, stop]))
        total += best
    return total
