"""The sweep along a line: turns in order, cumulative sums, the best cell for each step of the bounds."""

from __future__ import annotations

import numpy as np

from evenhand.search.kernels.decorators import inner, kernel
from evenhand.search.kernels.ladder import RESOLUTION, first_step_met


@inner
def sort_by(keys, order, count):
    """Sort the first ``count`` numbers of ``order`` by the keys at these indices (Shell's sort).

    NumPy's sorts take longer to compile than everything else here.
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


@kernel
def middle_of(previous, ahead, length):
    """Return a point strictly between two breakpoints (either may be infinite), and whether there is space."""
    if np.isinf(previous) and np.isinf(ahead):
        return 0.0, True
    if np.isinf(previous):
        return ahead - max(1.0, abs(ahead)), True
    if np.isinf(ahead):
        return previous + max(1.0, abs(previous)), True
    return 0.5 * (previous + ahead), ahead - previous > RESOLUTION * max(abs(previous), abs(ahead), length)


@inner
def excess(values, lower, upper):
    """Return by how much the values violate the bounds of one step: the largest distance."""
    worst = 0.0
    for c in range(values.shape[0]):
        worst = max(worst, lower[c] - values[c], values[c] - upper[c])
    return worst


@kernel
def sweep(order, count, turns, sums, low, high, lower, upper, best_utility, best_position, closest):
    """Sweep along a line s in (low, high) and keep, for each step of the ladder, the best cell's utility and middle.

    ``turns`` has a row for each row that may change: where it does, and its change of the utility and of each value.
    The first ``count`` of ``order`` sort those that turn inside (low, high), and ``sums`` holds the utility and the
    values just after ``low``; it is updated along the sweep. Rows that change within a relative RESOLUTION are one
    block. Updates ``best_utility`` and ``best_position`` in place. ``closest`` holds (excess over the last step's
    bounds, utility, position) of the cell nearest to feasible, for searches that have found none yet; an excess of
    minus infinity disables this.

    This is the one kernel behind the paper's Algorithms 1, 2 and 3 (their lines 7 to 16).
    """
    n_steps = lower.shape[0]
    values = sums[1:]
    looking = closest[0] > -np.inf
    previous = low
    # On a segment, rounding is relative to its length; a whole line has every scale.
    length = high - low if high - low < np.inf else 0.0
    for j in range(count + 1):
        # The cell between `previous` and the next turn.
        last = j == count
        ahead = high if last else turns[order[j], 0]
        middle, wide = middle_of(previous, ahead, length)
        if wide:
            step = first_step_met(values, lower, upper)
            utility = sums[0]
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
            for c in range(sums.shape[0]):
                sums[c] += turns[row, 1 + c]
