"""The planes of a problem: rows that always get the same decision."""

from __future__ import annotations

import numpy as np

from evenhand.search.kernels.decorators import kernel
from evenhand.search.kernels.kinds import find_kinds


@kernel
def merge_planes(margin, contrasts, gain, effects, scale, slots, merged, constant, kinds):
    """Merge rows on the same plane: every rule gives them the same decision.

    A row is v = (margin, -contrasts / scale). It is divided by its largest component, which makes proportional rows
    equal and opposite rows mirror images; rows then equal within 2**-40 share a plane. A mirrored row decides 1 where
    its plane decides 0, so its gain and effects go to ``constant`` and are taken from the plane. Rows whose decision
    no rule changes (g = 0) go to ``constant`` or nowhere. Returns the number of planes in ``merged``, which has v, the
    gain and the effects of each. ``slots``, a power of two of them, at least twice as many as rows and all -1, is
    memory for a hash table. Also fills the kinds of the planes, and returns their number.
    """
    n, k = contrasts.shape
    n_effects = effects.shape[1]
    last = slots.shape[0] - 1
    unit = 2.0**40
    found = 0
    for i in range(n):
        # A row is written where the next plane would be, and stays there if it is a new one.
        merged[found, 0] = margin[i]
        largest = margin[i]
        turns = 0.0
        for j in range(k):
            v = -contrasts[i, j] / scale[j]
            merged[found, 1 + j] = v
            turns = max(turns, abs(v))
            if abs(v) > abs(largest):
                largest = v
        if turns == 0.0 or turns < 1e-15 * abs(largest):
            if margin[i] > 0.0:
                constant[0] += gain[i]
                for c in range(n_effects):
                    constant[1 + c] += effects[i, c]
            continue
        mixed = np.uint64(1469598103934665603)
        for j in range(1 + k):
            v = merged[found, j] / largest
            merged[found, j] = v
            mixed = (mixed ^ np.uint64(np.int64(np.floor(v * unit + 0.5)))) * np.uint64(1099511628211)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed & np.uint64(last))
        target = -1
        while slots[slot] >= 0:
            other = slots[slot]
            same = True
            for j in range(1 + k):
                if np.floor(merged[other, j] * unit + 0.5) != np.floor(merged[found, j] * unit + 0.5):
                    same = False
                    break
            if same:
                target = other
                break
            slot = (slot + 1) & last
        if target < 0:
            target = found
            slots[slot] = found
            for c in range(1 + n_effects):
                merged[found, 1 + k + c] = 0.0
            found += 1
        sign = 1.0 if largest > 0.0 else -1.0
        merged[target, 1 + k] += sign * gain[i]
        for c in range(n_effects):
            merged[target, 2 + k + c] += sign * effects[i, c]
        if largest < 0.0:
            constant[0] += gain[i]
            for c in range(n_effects):
                constant[1 + c] += effects[i, c]
    return found, find_kinds(merged, found, 1 + k, kinds)
