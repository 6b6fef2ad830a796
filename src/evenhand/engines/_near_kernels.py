"""The compiled loops of a second round in the plane: the fine bins of lines, and bounds for boxes from them."""

from __future__ import annotations

from evenhand._compiled import njit
from evenhand.engines._kernels import DELICATE, LINE, NONE, distance_bin, line_in_plane

# Far above what rounding does to a line's distance, far below the width of a fine bin.
MARGIN = 4e-9


@njit(cache=True, nogil=True)
def place_fine_lines(scores, form, origin, grid, places):
    """Set each row's place: its direction and distance in bins, which are fine for rows that turn near the centre.

    ``grid`` is the number of directions, half of the bins of distance, how many bits finer each is near the centre, the
    size of a row's level and contrasts together at which its bin depends on rounding, and the size of a square around
    the centre. Rows whose line depends on rounding have the third place after all lines; those that are nevertheless
    surely decided 0, or 1, in the square have the next two.
    """
    directions, half, finer_direction, finer_distance, unsure, square = grid
    row, sides = 2 * half + 1, (directions // 4) << finer_direction
    fine, sub = half << finer_distance, finer_direction + finer_distance
    for i in range(len(places)):
        margin, g, h, fate = line_in_plane(scores, i, form)
        level = margin - origin[0] * g - origin[1] * h
        first, second = abs(g), abs(h)
        if fate == LINE and first + second + abs(level) <= unsure:
            fate = DELICATE
        if fate != LINE:
            place = directions * row + ((1 if margin > form.tie else 0) if fate == NONE else 2)
            if fate == DELICATE and abs(level) > square * (first + second) * (1.0 + MARGIN) + unsure:
                place += 1 + (level > 0.0)
            places[i] = place << sub
            continue
        if first >= second:
            share = h / first
            side = sides * (g < 0.0)
        else:
            share = g / second
            side = sides * (2 + (h < 0.0))
        direction = side + min(int((share + 1.0) * 0.5 * sides), sides - 1)
        distance = distance_bin(level, max(first, second), fine)
        place = ((direction >> finer_direction) * row + (distance >> finer_distance)) << sub
        if fine // 2 <= distance < fine + fine // 2:
            place += (direction & ((1 << finer_direction) - 1)) << finer_distance
            place += distance & ((1 << finer_distance) - 1)
        places[i] = place


@njit(cache=True, nogil=True, inline="always")
def _fate(lines, k, c1, c2, r1, r2):
    """Return 1 if a bin's rows are decided 1 throughout a box, 0 if they are decided 0 throughout, else 2."""
    middle = c1 * lines[k, 0] + c2 * lines[k, 1]
    reach = r1 * abs(lines[k, 0]) + r2 * abs(lines[k, 1])
    reach += lines[k, 2] * (abs(c2) + r2) + lines[k, 3] * (abs(c1) + r1) + MARGIN
    if lines[k, 4] > middle + reach:
        return 1
    if lines[k, 5] < middle - reach:
        return 0
    return 2


@njit(cache=True, nogil=True)
def open_in_boxes(lines, codes, weights, where, outer, inner, ends, counted, middle):
    """Find the bins that are open in each of some boxes; return how many there are, with repetitions.

    ``lines`` (bins, 6) are a bin's direction, half the width of its slopes (times the second and the first coordinate),
    and its distances. ``where`` are boxes (c1, c2, r1, r2), and for each the one of some larger boxes that it is in.
    ``outer`` is about these: where the open bins of each begin, the bins, and the weight of each code that is decided 1
    throughout. ``inner`` gets the bins that are open in the boxes, one box after the other, ``ends`` where those of
    each end, ``counted`` (boxes, 2, codes) the weight that is decided 1 throughout, and what is open, and ``middle``
    the same for the rule in the middle of each box.
    """
    boxes, parents = where
    starts, members, on = outer
    used = 0
    for b in range(len(boxes)):
        c1, c2, r1, r2 = boxes[b]
        parent = parents[b]
        counted[b, 0] = on[parent]
        middle[b, 0] = on[parent]
        for at in range(starts[parent], starts[parent + 1]):
            k = members[at]
            fate = _fate(lines, k, c1, c2, r1, r2)
            if fate == 1:
                counted[b, 0, codes[k]] += weights[k]
                middle[b, 0, codes[k]] += weights[k]
            elif fate == 2:
                inner[used] = k
                used += 1
                counted[b, 1, codes[k]] += weights[k]
                fate = _fate(lines, k, c1, c2, 0.0, 0.0)
                if fate == 1:
                    middle[b, 0, codes[k]] += weights[k]
                elif fate == 2:
                    middle[b, 1, codes[k]] += weights[k]
        ends[b] = used
    return used
