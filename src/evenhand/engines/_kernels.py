"""The compiled loops: counting rows by their words, by the lines that they are, and what counts say about boxes."""

from __future__ import annotations

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
MOST_STEPS = 16
# Rows that are measured at once.
BLOCK = 1 << 10
# What a row is: a line in the space of z, or decided alike everywhere, or one of the two by rounding.
LINE, NONE, DELICATE = 0, 1, 2


class Form(NamedTuple):
    """The margin ``slope s0 - constant`` and the contrasts ``weights s + constants`` of a row's scores s0 and s.

    ``sizes`` and ``size_constants`` are the same sums with everything positive, which together are at most ``most``.
    ``tie`` is what a margin is 0 below; contrasts below ``least`` of their size are 0, and below ``delicate`` of it
    they depend on rounding.
    """

    slope: float
    constant: float
    weights: FloatArray
    constants: FloatArray
    sizes: FloatArray
    size_constants: FloatArray
    most: float
    tie: float
    least: float
    delicate: float


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


@njit(cache=True, nogil=True, inline="always")
def distance_bin(level, size, half):
    """Return the bin of the distance level / size, by its d / (1 + |d|): finest around 0, and over the whole line."""
    return min(int((level / (size + abs(level)) + 1.0) * half), 2 * half - 1)


@njit(cache=True, nogil=True, inline="always")
def line_of(scores, i, form, contrasts):
    """Set a row's contrasts; return its margin, their size, and whether it is a LINE, NONE or DELICATE."""
    margin = form.slope * scores[0, i] - form.constant
    size = 0.0
    for a in range(form.weights.shape[0]):
        value = form.constants[a]
        for j in range(form.weights.shape[1]):
            value += form.weights[a, j] * scores[1 + j, i]
        contrasts[a] = value
        size += abs(value)
    if size > form.delicate * form.most:
        return margin, size, LINE
    terms, none = 0.0, True
    for a in range(form.weights.shape[0]):
        whole = form.size_constants[a]
        for j in range(form.weights.shape[1]):
            whole += form.sizes[a, j] * scores[1 + j, i]
        terms += whole
        none = none and abs(contrasts[a]) <= form.least * whole
    if size > form.delicate * terms:
        return margin, size, LINE
    return margin, size, NONE if none else DELICATE


@njit(cache=True, nogil=True, inline="always")
def line_in_plane(scores, i, form):
    """Return what :func:`line_of` does for two contrasts, and these: margin, both contrasts, and what the row is."""
    margin = form.slope * scores[0, i] - form.constant
    first, second = form.constants[0], form.constants[1]
    for j in range(form.weights.shape[1]):
        score = scores[1 + j, i]
        first += form.weights[0, j] * score
        second += form.weights[1, j] * score
    size, fate = abs(first) + abs(second), LINE
    if size <= form.delicate * form.most:
        one, two = form.size_constants[0], form.size_constants[1]
        for j in range(form.weights.shape[1]):
            one += form.sizes[0, j] * scores[1 + j, i]
            two += form.sizes[1, j] * scores[1 + j, i]
        if size <= form.delicate * (one + two):
            fate = NONE if abs(first) <= form.least * one and abs(second) <= form.least * two else DELICATE
    return margin, first, second, fate


@njit(cache=True, nogil=True, inline="always")
def place_of_line(level, g, h, grid, half):
    """Return the place of a line: its direction among the contrasts and its distance from the centre, in bins."""
    directions, aspect = grid
    sides = directions // 4
    first, second = abs(g), abs(h)
    if first >= second:
        share = aspect * h / (first + (aspect - 1.0) * second)
        side = sides * (g < 0.0)
    else:
        share = g / second
        side = sides * (2 + (h < 0.0))
    direction = side + min(int((share + 1.0) * 0.5 * sides), sides - 1)
    return direction * (2 * half + 1) + distance_bin(level, max(first, second), half)


@njit(cache=True, nogil=True, inline="always")
def place_without_line(margin, fate, form, grid, half):
    """Return the place of a row without a line: decided 0 or 1 everywhere, or one whose contrasts are rounding."""
    return grid[0] * (2 * half + 1) + ((1 if margin > form.tie else 0) if fate == NONE else 2)


@njit(cache=True, nogil=True)
def place_lines(scores, form, centre, grid, half, places):
    """Set each row's place in the plane: its direction among the contrasts and its distance from the centre, in bins.

    A row is decided 1 at a distance of d from the centre iff its level there is above the sum of d times its contrasts.
    Its distance is the level in units of the larger contrast, and its direction is which one that is, its sign, and the
    other one in units of it; with ``aspect``, directions are finer where the second one is small. Rows without
    contrasts are decided 0 or 1 everywhere, and have the two places after all others; the next one is for rows whose
    contrasts are rounding.
    """
    for i in range(len(places)):
        margin, g, h, fate = line_in_plane(scores, i, form)
        if fate == LINE:
            places[i] = place_of_line(margin - centre[0] * g - centre[1] * h, g, h, grid, half)
        else:
            places[i] = place_without_line(margin, fate, form, grid, half)


@njit(cache=True, nogil=True, error_model="numpy")
def measure_block(margins, contrasts, centre, grid, half, places, radii):
    """Set what :func:`measure_lines` does for rows that are lines, given their margins and both contrasts.

    The operations are those of :func:`place_of_line`. Without branches and checks, the processor does several rows at
    once. What is set for rows that are no lines means nothing.
    """
    directions, aspect = grid
    sides, none = directions // 4, np.int32(0)
    one, two, three, last = np.int32(sides), np.int32(2 * sides), np.int32(3 * sides), np.int32(sides - 1)
    farthest, row = np.int32(2 * half - 1), np.int32(2 * half + 1)
    first_axis, second_axis = contrasts
    for i in range(len(margins)):
        g, h = first_axis[i], second_axis[i]
        level = margins[i] - centre[0] * g - centre[1] * h
        first, second, away = abs(g), abs(h), abs(level)
        wide = first >= second
        share = (aspect * h if wide else g) / (first + (aspect - 1.0) * second if wide else second)
        side = (one if g < 0.0 else none) if wide else (three if h < 0.0 else two)
        direction = side + min(np.int32((share + 1.0) * 0.5 * sides), last)
        distance = min(np.int32((level / ((first if wide else second) + away) + 1.0) * half), farthest)
        places[i] = direction * row + distance
        radii[i] = (away - ROUNDING) / ((first + second) * (1.0 + MARGIN))


@njit(cache=True, nogil=True)
def measure_lines(scores, form, centre, grid, half, places, radii):
    """Set each row's place as :func:`place_lines` does, and the radius of the smallest square that it is open in.

    The square is around the centre. Delicate rows are open in every one, and rows without a line in none. Rows are
    measured in blocks that stay in the processor's cache.
    """
    room = np.empty((3, BLOCK))
    surely = form.delicate * form.most
    for start in range(0, len(places), BLOCK):
        stop = min(start + BLOCK, len(places))
        margins, first, second = room[0, : stop - start], room[1, : stop - start], room[2, : stop - start]
        score = scores[0, start:stop]
        for i in range(len(score)):
            margins[i] = form.slope * score[i] - form.constant
            first[i], second[i] = form.constants[0], form.constants[1]
        for j in range(form.weights.shape[1]):
            score, one, two = scores[1 + j, start:stop], form.weights[0, j], form.weights[1, j]
            for i in range(len(score)):
                first[i] += one * score[i]
                second[i] += two * score[i]
        measure_block(margins, (first, second), centre, grid, half, places[start:stop], radii[start:stop])
        for i in range(len(margins)):
            if abs(first[i]) + abs(second[i]) <= surely:
                margin, _, _, fate = line_in_plane(scores, start + i, form)
                if fate != LINE:
                    places[start + i] = place_without_line(margin, fate, form, grid, half)
                    radii[start + i] = 0.0 if fate == DELICATE else np.inf


@njit(cache=True, nogil=True)
def count_and_choose(places, radii, rows, n_codes, size, counts, kept):
    """Count rows by place and code; set the indices of those with a small radius, and return how many these are.

    ``rows`` are codes and weights. The loop is apart from that of :func:`measure_block`, which is faster without it.
    """
    codes, weights = rows
    found = 0
    for i in range(len(codes)):
        place = places[i] * n_codes + codes[i]
        if len(weights) > 0:
            counts[place] += weights[i]
        else:
            counts[place] += 1
        if radii[i] <= size:
            kept[found] = i
            found += 1
    return found


@njit(cache=True, nogil=True)
def place_distances(scores, form, centre, half, places):
    """Set each row's place by its distance alone: the level in units of the sum of all contrasts."""
    contrasts = np.zeros(len(centre))
    for i in range(len(places)):
        margin, size, fate = line_of(scores, i, form, contrasts)
        if fate != LINE:
            places[i] = 2 * half + 1 + ((1 if margin > form.tie else 0) if fate == NONE else 2)
            continue
        level = margin
        for a in range(len(centre)):
            level -= centre[a] * contrasts[a]
        places[i] = distance_bin(level, size, half)


@njit(cache=True, nogil=True)
def place_breakpoints(scores, form, centre, unit, bins, near, places):
    """Set each row's place on the line: the bin of its breakpoint, after all bins for rows that rise with z.

    Breakpoints are mapped to bins by their distance b from the centre: b / (unit + |b|). Rows without one have the two
    places after these, and the next one is for rows whose contrast is rounding. ``near`` is a distance from the centre
    up to which it may nevertheless be known how these are decided, and what rounding can do to a level; those that are
    decided 0 or 1 there have two more places. A distance of 0 stands for no such places.
    """
    contrasts = np.zeros(1)
    half = bins // 2
    reach, unsure = near
    for i in range(len(places)):
        margin, size, fate = line_of(scores, i, form, contrasts)
        level = margin - centre * contrasts[0]
        if fate != LINE:
            places[i] = 2 * bins + ((1 if margin > form.tie else 0) if fate == NONE else 2)
            if fate == DELICATE and reach > 0.0 and abs(level) > reach * size + unsure:
                places[i] += 1 + (level > 0.0)
            continue
        fraction = level / (unit * size + abs(level))
        if contrasts[0] > 0.0:
            places[i] = min(int((fraction + 1.0) * half), bins - 1)
        else:
            places[i] = min(int((1.0 - fraction) * half), bins - 1) + bins


@njit(cache=True, nogil=True)
def count_atoms(scores, bits, codes, weights, parts, deviations, form, limit, counts, sums, drawn):
    """Count rows by the class of their deviations, the model's decision and a code; return how many are drawn.

    ``counts`` and ``sums`` (classes + 1, 2, codes) get the rows and, if there are any, their weights. A row that is not
    sound is counted in the last class alone. ``parts`` has the first and last column of each attribute; a column's sum
    may miss 1 by ``deviations``. A row is drawn if the hash of ``bits``, the scores' bits, is below a limit: ``drawn``
    (2, rows) gets its place and its hash.
    """
    slope, constant = form
    found = 0
    hashes, room = np.empty(BLOCK, np.uint64), np.empty((2, BLOCK))
    for start in range(0, len(codes), BLOCK):
        stop = min(start + BLOCK, len(codes))
        mixed, off, total = hashes[: stop - start], room[0, : stop - start], room[1, : stop - start]
        mixed[:] = 0
        off[:] = 0.0
        for j in range(scores.shape[0]):
            score, bit = scores[j, start:stop], bits[j, start:stop]
            for i in range(len(score)):
                product = (mixed[i] ^ bit[i]) * _MIX
                mixed[i] = product ^ (product >> np.uint64(29))
                off[i] = off[i] if (score[i] >= 0.0) & (score[i] <= 1.0) else np.inf
        for k in range(parts.shape[0]):
            total[:] = 0.0
            for j in range(parts[k, 0], parts[k, 1]):
                score = scores[j, start:stop]
                for i in range(len(score)):
                    total[i] += score[i]
            for i in range(len(total)):
                off[i] = off[i] if abs(total[i] - 1.0) <= off[i] else abs(total[i] - 1.0)
        for i in range(len(off)):
            weight = weights[start + i] if len(weights) > 0 else 1.0
            flaw = 0
            while flaw < len(deviations) and not off[i] <= deviations[flaw]:
                flaw += 1
            if flaw == len(deviations) or not 0.0 <= weight < 1e300:
                counts[len(deviations), 0, 0] += 1
                continue
            chosen = 1 if slope * scores[0, start + i] - constant > 0.0 else 0
            counts[flaw, chosen, codes[start + i]] += 1
            if len(weights) > 0:
                sums[flaw, chosen, codes[start + i]] += weight
            hashed = np.int64((mixed[i] * _MIX) >> np.uint64(34))
            if hashed < limit:
                drawn[0, found] = start + i
                drawn[1, found] = hashed
                found += 1
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def cut_strip(rows, form, where, bins, half, sure, kept):
    """Tell which rows of a square are open in a strip, and add to ``sure`` those that are decided 1 throughout it.

    ``rows`` are scores, codes and weights, ``where`` the centre of the square and the centre and axes of the strip.
    Returns the weight of the rows of the square, delicate ones among them.
    """
    scores, codes, weights = rows
    centre, point, axes = where
    total = 0.0
    for i in range(len(codes)):
        margin, g, h, fate = line_in_plane(scores, i, form)
        weight = weights[i] if len(weights) > 0 else 1.0
        if fate != LINE:
            kept[i] = fate == DELICATE
            total += weight if fate == DELICATE else 0.0
            continue
        # The same operations as in place_lines: the same rows are inside.
        place = distance_bin(margin - centre[0] * g - centre[1] * h, max(abs(g), abs(h)), half)
        if place < half - bins or place >= half + bins:
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


@njit(cache=True, nogil=True, error_model="numpy")
def sums_at_place(above, units, place, fuzz, half, on, unsure):
    """Set the weight of each kind that is decided 1 at a place, about, and what may be decided otherwise."""
    last = above.shape[1] - 1
    on[:] = 0.0
    unsure[:] = 0.0
    for j in range(units.shape[0]):
        threshold = place[0] * units[j, 0] + place[1] * units[j, 1]
        b = distance_bin(threshold, 1.0, half)
        low = distance_bin(threshold - fuzz[j], 1.0, half)
        high = min(distance_bin(threshold + fuzz[j], 1.0, half) + 1, last)
        for k in range(above.shape[2]):
            # Half of the bin that the threshold is in.
            on[k] += 0.5 * (above[j, b, k] + above[j, b + 1, k])
            unsure[k] += above[j, low, k] - above[j, high, k]


@njit(cache=True, nogil=True, error_model="numpy")
def most_in_box(above, prices, edges, units, box, fuzz, ordered, most):
    """Set the most that rules in a box can make of each of some prices: an upper bound, direction by direction.

    ``above[j, b]`` has the weights of each kind of direction j in bins from b on. ``box`` is (c1, c2, r1, r2, nearest,
    farthest): rules at (c +- r) * d for d between the last two. All rows of a direction turn at nearly the same
    threshold, within ``fuzz[j]``, so with ``ordered`` only one threshold at a time is looked at; otherwise the rows
    between the smallest and the largest threshold decide as they like.
    """
    bins = len(edges) - 1
    tests, kinds = prices.shape
    best, from_start, from_stop = np.empty(tests), np.empty(kinds), np.empty(kinds)
    gains, losses = np.maximum(prices, 0.0), np.minimum(prices, 0.0)
    most[:] = 0.0
    for j in range(units.shape[0]):
        middle = box[0] * units[j, 0] + box[1] * units[j, 1]
        reach = box[2] * abs(units[j, 0]) + box[3] * abs(units[j, 1])
        low, high = middle - reach, middle + reach
        if not ordered:
            low -= fuzz[j]
            high += fuzz[j]
        if low != 0.0:
            low *= box[4] if low > 0.0 else box[5]
        if high != 0.0:
            high *= box[5] if high > 0.0 else box[4]
        # The margins compensate for the rounding of a product.
        low, high = low - MARGIN * abs(low), high + MARGIN * abs(high)
        # An endless box has infinite thresholds.
        first = distance_bin(low, 1.0, bins // 2) if low > -np.inf else 0
        last = distance_bin(high, 1.0, bins // 2) if high < np.inf else bins - 1
        step = 1 + (last - first) // MOST_STEPS if ordered else last - first + 1
        best[:] = -np.inf
        for b in range(first, last + 1, step):
            # The threshold is in one of these bins: what is farther from them than the fuzz is sure.
            end = min(b + step, last + 1)
            start, stop = b, end
            if ordered:
                start = distance_bin(edges[b] - fuzz[j], 1.0, bins // 2) if b > 0 else 0
                stop = distance_bin(edges[end] + fuzz[j], 1.0, bins // 2) + 1 if end < bins else bins
            for k in range(kinds):
                from_start[k], from_stop[k] = above[j, start, k], above[j, stop, k]
            for t in range(tests):
                total = 0.0
                for k in range(kinds):
                    total += gains[t, k] * from_start[k] + losses[t, k] * from_stop[k]
                best[t] = max(best[t], total)
        for t in range(tests):
            most[t] += best[t]
