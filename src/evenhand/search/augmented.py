"""The smoothed problem as a smooth function of z, its augmented Lagrangian, and its minimisation.

Each decision [m - z.g > 0] counts with the weight sigmoid((m - z.g) / tau). Sums of columns over the rows are then
smooth in z; their gradients are matrix-vector products. See :mod:`evenhand.search.smoothed` for the search.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evenhand.inputs import FloatArray

ROWS_A_BLOCK = 16_384  # fits into a cache, and uses one thread
VISITS_A_CALL = 2_000  # the fixed cost of a call
ITERATIONS = 12
PENALTY_GROWTH = 1.4

Stages = tuple[float, float, int]
Note = Callable[[FloatArray], None]


class SmoothSums:
    """The smoothed sums of a table's columns over the rows, and their gradients, in blocks that fit into a cache."""

    def __init__(self, margin: FloatArray, contrasts: FloatArray, table: FloatArray) -> None:
        self.n, self.k = contrasts.shape
        self.width = table.shape[1]
        self.blocks = [
            (margin[rows], np.ascontiguousarray(contrasts[rows].T), np.ascontiguousarray(table[rows].T))
            for rows in (slice(start, start + ROWS_A_BLOCK) for start in range(0, self.n, ROWS_A_BLOCK))
        ]
        self.chances = [np.empty(len(block[0])) for block in self.blocks]
        self.work = 0

    def smooth(self, z: FloatArray, tau: float) -> FloatArray:
        """Return the columns' sums with each row weighted by sigmoid((m - z.g) / tau)."""
        total = np.zeros(self.width)
        for (margin, contrasts, table), chance in zip(self.blocks, self.chances, strict=True):
            np.dot(z, contrasts, out=chance)
            np.subtract(chance, margin, out=chance)
            np.multiply(chance, 1.0 / tau, out=chance)
            np.clip(chance, -40.0, 40.0, out=chance)
            np.exp(chance, out=chance)
            np.add(chance, 1.0, out=chance)
            np.reciprocal(chance, out=chance)
            total += table @ chance
        self.work += self.n + VISITS_A_CALL
        return total

    def exact(self) -> FloatArray:
        """Return the columns' sums over the rows that the last smoothed rule decides 1."""
        total = np.zeros(self.width)
        for (_, _, table), chance in zip(self.blocks, self.chances, strict=True):
            total += table @ (chance > 0.5).astype(np.float64)
        return total

    def gradient(self, prices: FloatArray, tau: float) -> FloatArray:
        """Return the gradient of prices . sums at the last smoothed point."""
        total = np.zeros(self.k)
        for (_, contrasts, table), chance in zip(self.blocks, self.chances, strict=True):
            weight = prices @ table
            weight *= chance
            weight *= 1.0 - chance
            total -= contrasts @ weight
        return total / tau

    def curvature(self, tau: float) -> tuple[FloatArray, FloatArray]:
        """Return the gradients of all sums at the last smoothed point, and the rows' spread on the boundary.

        If probabilities are calibrated, the spread is proportional to the curvature of minus the utility.
        """
        gradients = np.zeros((self.width, self.k))
        spread = np.zeros((self.k, self.k))
        for (_, contrasts, table), chance in zip(self.blocks, self.chances, strict=True):
            steep = contrasts * (chance * (1.0 - chance))
            gradients -= table @ steep.T
            spread += steep @ contrasts.T
        self.work += 3 * self.n + VISITS_A_CALL
        return gradients / tau, spread / (tau * max(1, self.n))


class Lagrangian:
    """The augmented Lagrangian of some bounds, as a function of z.

    ``matrix`` computes the constraints' values from the sums, the first of which is the utility; ``size`` is the
    largest value of each constraint.
    """

    def __init__(
        self,
        sums: SmoothSums,
        matrix: FloatArray,
        size: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
        penalty: float,
    ) -> None:
        self.sums, self.matrix, self.size, self.penalty = sums, matrix, size, penalty
        self.multipliers = np.zeros(len(size))
        self.distance = np.zeros(len(size))
        self.tau = 1.0
        self.bound(lower, upper)

    def bound(self, lower: FloatArray, upper: FloatArray) -> None:
        """Set the bounds."""
        self.lower, self.upper = lower / self.size, upper / self.size

    def value(self, z: FloatArray) -> float:
        """Return the function's value; the other methods use the point of the last call."""
        self.at = self.sums.smooth(z, self.tau)
        shifted = self.matrix @ self.at[1:] / self.size + self.multipliers / self.penalty
        self.distance = shifted - np.minimum(np.maximum(shifted, self.lower), self.upper)
        return float(-self.at[0] + 0.5 * self.penalty * (self.distance @ self.distance))

    def gradient(self) -> FloatArray:
        """Return the gradient."""
        prices = np.empty(len(self.at))
        prices[0] = -1.0
        prices[1:] = (self.penalty * self.distance / self.size) @ self.matrix
        return self.sums.gradient(prices, self.tau)

    def inverse_curvature(self) -> FloatArray:
        """Return the inverse of the Gauss-Newton matrix: binding constraints, and the utility as if calibrated."""
        gradients, spread = self.sums.curvature(self.tau)
        binding = self.distance != 0.0
        rows = self.matrix[binding] @ gradients[1:] / self.size[binding, None]
        curvature = self.penalty * rows.T @ rows + 0.5 * spread
        ridge = 1e-6 * np.trace(curvature) / len(curvature) + 1e-12
        return np.asarray(np.linalg.inv(curvature + ridge * np.eye(len(curvature))), dtype=np.float64)

    def raise_multipliers(self) -> None:
        """Update the multipliers with the present penalty."""
        self.multipliers = self.penalty * self.distance
        self.penalty *= PENALTY_GROWTH


def minimise(lagrangian: Lagrangian, z: FloatArray, iterations: int, note: Note | None = None) -> FloatArray:
    """Return the point after some iterations of BFGS; ``note`` is called with every iterate."""
    value = lagrangian.value(z)
    if note is not None:
        note(z)
    gradient = lagrangian.gradient()
    inverse = lagrangian.inverse_curvature()
    for _ in range(iterations):
        direction = -(inverse @ gradient)
        slope = float(direction @ gradient)
        length = float(np.abs(direction).max(initial=0.0))
        if not (slope < -1e-12 and np.isfinite(length)):
            break
        if length > 1.0:
            direction, slope = direction / length, slope / length
        after_search = _backtrack(lagrangian, z, direction, value, slope)
        if after_search is None:
            break
        candidate, found = after_search
        if note is not None:
            note(candidate)
        after = lagrangian.gradient()
        inverse = _updated(inverse, candidate - z, after - gradient)
        gained = value - found
        z, value, gradient = candidate, found, after
        if gained < 1e-6:
            break
    return z


def _backtrack(
    lagrangian: Lagrangian, z: FloatArray, direction: FloatArray, value: float, slope: float
) -> tuple[FloatArray, float] | None:
    """Return a point along a direction with a sufficient decrease, and its value."""
    share = 1.0
    for _ in range(8):
        candidate = z + share * direction
        found = lagrangian.value(candidate)
        if found <= value + 1e-4 * share * slope:
            return candidate, found
        bend = found - value - share * slope
        share *= min(0.5, max(0.1, -0.5 * slope * share / bend))
    return None


def _updated(inverse: FloatArray, step: FloatArray, change: FloatArray) -> FloatArray:
    """Return the BFGS update of an inverse Hessian."""
    along = float(step @ change)
    if along <= 1e-12:
        return inverse
    left = np.eye(len(step)) - np.outer(step, change) / along
    return np.asarray(left @ inverse @ left.T + np.outer(step, step) / along, dtype=np.float64)


def follow(lagrangian: Lagrangian, z: FloatArray, stages: Stages, note: Note | None = None) -> FloatArray:
    """Minimise while tau decreases."""
    for tau in np.geomspace(*stages):
        lagrangian.tau = float(tau)
        z = minimise(lagrangian, z, ITERATIONS, note)
        lagrangian.raise_multipliers()
    return z
