"""The planes of a problem: rows that are decided together."""

from __future__ import annotations

import numpy as np

from evenhand.search.kernels.decorators import kernel


@kernel
def merge_planes(rows, n_coordinates, slots, keys, merged, constant):
    """Put rows on the same plane together: they are decided together, whichever rule decides them.

    Each row's v is divided by its largest component, which makes proportional rows equal and opposite rows
    mirror images; rows then equal within 2**-40 share a plane. A mirrored row decides 1 where its plane
    decides 0, so its gain and effects go to ``constant`` and are taken from the plane. Rows whose decision
    no rule changes (g = 0) go to ``constant`` or nowhere. Returns the number of planes in ``merged``. ``slots``, all -1
    and a power of two of them, at least twice as many as rows, and ``keys`` are room for a hash table.
    """
    n, width = rows.shape
    last = slots.shape[0] - 1
    unit = 2.0**40
    found = 0
    for i in range(n):
        largest = 0.0
        turns = 0.0
        for j in range(n_coordinates):
            v = rows[i, j]
            if abs(v) > abs(largest):
                largest = v
            if j > 0:
                turns = max(turns, abs(v))
        if turns == 0.0 or turns < 1e-15 * abs(largest):
            if rows[i, 0] > 0.0:
                for c in range(n_coordinates, width):
                    constant[c - n_coordinates] += rows[i, c]
            continue
        mixed = np.uint64(1469598103934665603)
        for j in range(n_coordinates):
            v = rows[i, j] / largest
            merged[found, j] = v
            keys[found, j] = np.int64(np.floor(v * unit + 0.5))
            mixed = (mixed ^ np.uint64(keys[found, j])) * np.uint64(1099511628211)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed & np.uint64(last))
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
            slot = (slot + 1) & last
        if target < 0:
            target = found
            slots[slot] = found
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
