"""The planes of a problem and the faces of the half-cube that its rules are searched on."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.kernels.bundles import ROWS_A_BUNDLE, Bundles, Tree, bundle_planes
from evenhand.search.kernels.kinds import Kinds
from evenhand.search.kernels.ladder import RESOLUTION, Incumbent, Ladder, first_step_met
from evenhand.search.kernels.planes import merge_planes
from evenhand.search.problem import Problem, typical_size

SIDES_HALVED_AT_ONCE = 6
DEPTH_OF_BUNDLES = {2: 5, 3: 7}
DEPTH_OF_BUNDLES_BEYOND = 8
MOST_DIMENSIONS_WITH_BUNDLES = 8
Region = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Arrangement:
    """The planes of a problem in half-cube coordinates, their bundles and kinds, and the bounds of the rules.

    ``constant`` has the sums of the rows whose decision does not depend on z.
    """

    planes: FloatArray
    constant: FloatArray
    ladder: Ladder
    bundles: Bundles
    kinds: Kinds

    @classmethod
    def of(cls, problem: Problem) -> Arrangement:
        """Return a problem's arrangement."""
        planes, scale, constant, kinds = planes_of(problem)
        # Kernels that are called through a pointer need contiguous, writable arrays.
        lower, upper, basis = np.array(problem.lower), np.array(problem.upper), np.array(problem.basis, dtype=np.intp)
        ladder = Ladder(np.ascontiguousarray(lower), np.ascontiguousarray(upper), basis, scale)
        return cls(planes, constant, ladder, _bundles_of(planes, problem.dimension + 1), kinds)

    @property
    def dimension(self) -> int:
        """K: a point has one more coordinate."""
        return len(self.ladder.scale)

    def point_of(self, z: FloatArray) -> FloatArray:
        """Return the point of a rule."""
        w = z * self.ladder.scale
        point: FloatArray = np.concatenate([[1.0], w]) / max(1.0, float(np.abs(w).max()))
        return point

    def rule_at(self, point: FloatArray) -> FloatArray:
        """Return the rule z of a point."""
        z: FloatArray = point[1:] / (point[0] * self.ladder.scale)
        return z

    def point_beside(self, centre: FloatArray, rows: NDArray[np.int32], z: FloatArray) -> FloatArray:
        """Return a point where these planes decide as the rule z does, and the others as at a box's centre."""
        coordinates = self.planes[:, : self.dimension + 1]
        meeting = centre - np.linalg.lstsq(coordinates[rows], coordinates[rows] @ centre, rcond=1e-12)[0]
        toward = np.concatenate([[1.0], z]) / max(1.0, float(np.abs(z).max()))
        others = np.ones(len(coordinates), dtype=bool)
        others[rows] = False
        here, change = coordinates[others] @ meeting, coordinates[others] @ toward
        turning = here * change < 0.0
        room = float((-here[turning] / change[turning]).min(initial=1.0))
        point: FloatArray = meeting + 0.5 * room * toward
        return point

    def offer(self, incumbent: Incumbent, point: FloatArray) -> None:
        """Keep a point for every step that it improves and whose bounds it meets, if it is a rule off every plane."""
        k = self.dimension
        terms = self.planes[:, : k + 1] * point
        level = terms.sum(axis=1)
        if point[0] <= 0.0 or (np.abs(level) <= RESOLUTION * np.abs(terms).max(axis=1)).any():
            return
        sums = self.constant + (level > 0.0).astype(np.float64) @ self.planes[:, k + 1 :]
        step = first_step_met(sums[1:], self.ladder.lower, self.ladder.upper)
        better = np.flatnonzero(sums[0] > incumbent.utility[step:] + RESOLUTION) + step
        incumbent.utility[better], incumbent.point[better] = sums[0], point


def faces(k: int) -> list[Region]:
    """Return the 2 K + 1 faces of the half-cube as boxes (centre, radius); the one around z = 0 is last, on top."""
    boxes = []
    for axis, side in [*itertools.product(range(1, k + 1), (-1.0, 1.0)), (0, 1.0)]:
        centre, radius = np.zeros(k + 1), np.ones(k + 1)
        if axis > 0:
            centre[0] = radius[0] = 0.5
        centre[axis], radius[axis] = side, 0.0
        boxes.append((centre, radius))
    return boxes


def pieces(centre: FloatArray, radius: FloatArray) -> list[Region]:
    """Return the box's 2^K parts, halved along every side; in many dimensions, only along some sides."""
    halved = np.flatnonzero(radius > 0.0)[:SIDES_HALVED_AT_ONCE]
    half = radius.copy()
    half[halved] *= 0.5
    found = []
    for signs in itertools.product((-1.0, 1.0), repeat=len(halved)):
        middle = centre.copy()
        middle[halved] += half[halved] * signs
        found.append((middle, half))
    return found


def planes_of(problem: Problem) -> tuple[FloatArray, FloatArray, FloatArray, Kinds]:
    """Return the planes, the scale of each contrast, the sums that do not depend on z, and the planes' kinds."""
    scale = np.array([_scale(column) for column in problem.contrasts.T])
    n, n_effects = problem.effects.shape
    constant = np.zeros(1 + n_effects)
    constant[0] = problem.offset
    merged = np.empty((n, problem.dimension + 2 + n_effects))
    slots = np.full(2 ** max(4, int(np.ceil(np.log2(max(1, 2 * n))))), -1, dtype=np.int32)
    # The kernel would be compiled again for read-only arrays.
    rows = [np.require(a, requirements="W") for a in (problem.margin, problem.contrasts, problem.gain, problem.effects)]
    kinds = Kinds.room(n)
    found, number = merge_planes(*rows, scale, slots, merged, constant, kinds)
    kinds = Kinds(kinds.codes[:found], kinds.rows[:number])
    return np.ascontiguousarray(merged[:found]), scale, constant, kinds


def _bundles_of(planes: FloatArray, n_coordinates: int) -> Bundles:
    """Return the planes with similar directions, for each face."""
    k = n_coordinates - 1
    # In many dimensions hardly any directions are similar, and finding them takes too long.
    deepest = DEPTH_OF_BUNDLES.get(k, DEPTH_OF_BUNDLES_BEYOND) if k <= MOST_DIMENSIONS_WITH_BUNDLES else 0
    depth = int(np.clip(np.log2(max(1, len(planes)) / ROWS_A_BUNDLE), 0, deepest))
    codes = np.zeros((n_coordinates, len(planes)), dtype=np.int32)
    directions = np.zeros((n_coordinates, 2 << depth, n_coordinates))
    tree = Tree.room(len(planes), depth, n_coordinates)
    for axis in range(n_coordinates):
        bundle_planes(planes, axis, codes[axis], directions[axis], tree)
    return Bundles.of(codes, directions)


def _scale(contrast: FloatArray) -> float:
    """Return a typical size of a contrast as a power of two, so that scaling is exact and copies have no effect."""
    return float(2.0 ** np.round(np.log2(typical_size(contrast))))
