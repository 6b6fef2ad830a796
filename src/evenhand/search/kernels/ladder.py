"""The ladder of bounds, and the incumbent for each of its steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.kernels.decorators import inlined, inner, kernel

RESOLUTION = 1e-11
FEASIBILITY_SLACK = 1e-12


class Ladder(NamedTuple):
    """Bounds of shape (steps, C); for each contrast the constraint that it is the multiplier of, and its scale."""

    lower: FloatArray
    upper: FloatArray
    basis: NDArray[np.intp]
    scale: FloatArray


class Incumbent(NamedTuple):
    """For each step the best utility so far, its point (t, w), and a bound on the skipped boxes."""

    utility: FloatArray
    point: FloatArray
    left_behind: FloatArray

    @classmethod
    def none(cls, steps: int, n_coordinates: int) -> Incumbent:
        """Return the initial state."""
        return cls(np.full(steps, -np.inf), np.full((steps, n_coordinates), np.nan), np.full(steps, -np.inf))

    def to_improve(self) -> Incumbent:
        """Return a copy that has skipped nothing yet."""
        return Incumbent(self.utility.copy(), self.point.copy(), np.full_like(self.left_behind, -np.inf))

    def take(self, other: Incumbent) -> None:
        """Keep the improvements of another one, and its bound on skipped boxes."""
        better = other.utility > self.utility
        self.utility[better], self.point[better] = other.utility[better], other.point[better]
        np.maximum(self.left_behind, other.left_behind, out=self.left_behind)

    def leave(self, bound: float) -> None:
        """Record that a skipped box may be as good as ``bound``."""
        np.maximum(self.left_behind, np.where(bound > self.utility, bound, -np.inf), out=self.left_behind)


@kernel
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


@inner
def offer(sums, point, ladder, incumbent):
    """Keep a candidate for every step of the ladder whose bounds it meets and which it improves."""
    utility, kept = incumbent.utility, incumbent.point
    for step in range(first_step_met(sums[1:], ladder.lower, ladder.upper), utility.shape[0]):
        if sums[0] <= utility[step] + RESOLUTION:
            break
        utility[step] = sums[0]
        for j in range(point.shape[0]):
            kept[step, j] = point[j]


@inner
def leave_behind(bound, incumbent):
    """Record that a skipped box may be as good as ``bound``."""
    utility, left_behind = incumbent.utility, incumbent.left_behind
    for step in range(utility.shape[0]):
        if bound > utility[step]:
            left_behind[step] = max(left_behind[step], bound)


@inlined
def multipliers_at(centre, ladder, multipliers):
    """Set the multipliers of the basis constraints to z at a box's centre, if the bound they need is finite."""
    lower, upper, basis, scale = ladder.lower, ladder.upper, ladder.basis, ladder.scale
    for c in range(multipliers.shape[0]):
        multipliers[c] = 0.0
    if centre[0] < 1e-4:
        return
    last = lower.shape[0] - 1
    for k in range(basis.shape[0]):
        z = centre[k + 1] / (centre[0] * scale[k])
        c = basis[k]
        if (z > 0.0 and upper[last, c] < np.inf) or (z < 0.0 and lower[last, c] > -np.inf):
            multipliers[c] = z


@inner
def prune(sums, gains, priced, low, high, multipliers, ladder, incumbent, target):
    """Return the largest utility that a box may still hold over what is known (-inf: none), and the last step with one.

    Two bounds on the utility at each step that the box's values can reach: all helpful open rows decide 1; and,
    for any multipliers, utility <= sum (gain - multipliers * effect) + multipliers * bound.
    """
    lower, upper, utility, left_behind = ladder.lower, ladder.upper, incumbent.utility, incumbent.left_behind
    plain = sums[0] + gains
    fixed = sums[0] + priced
    for c in range(low.shape[0]):
        fixed -= multipliers[c] * sums[1 + c]
    most = -np.inf
    last = -1
    for step in range(lower.shape[0]):
        reachable = True
        bound = fixed
        for c in range(low.shape[0]):
            reachable = (
                sums[1 + c] + high[c] >= lower[step, c] - FEASIBILITY_SLACK
                and sums[1 + c] + low[c] <= upper[step, c] + FEASIBILITY_SLACK
            )
            if not reachable:
                break
            if multipliers[c] > 0.0:
                bound += multipliers[c] * upper[step, c]
            elif multipliers[c] < 0.0:
                bound += multipliers[c] * lower[step, c]
        if not reachable:
            continue
        bound = min(bound, plain)
        if bound > utility[step] + target + RESOLUTION:
            most = max(most, bound)
            last = step
        elif bound > utility[step]:
            left_behind[step] = max(left_behind[step], bound)
    return most, last
