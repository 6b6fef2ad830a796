"""What the tests of compiled kernels share: an entry to each, which kernels have a test, and boxes among planes."""

from __future__ import annotations

import inspect
from functools import cache

import numpy as np
from numba import njit

from evenhand.search.kernels.boxes import Boxes
from evenhand.search.kernels.bundles import Bundles, Tree, bundle_planes
from evenhand.search.kernels.kinds import Kinds, Tally, count_halves, find_kinds
from evenhand.search.kernels.ladder import Incumbent, Ladder
from evenhand.search.kernels.planes import merge_planes
from problems import random_problem

COVERED = set()


def name_of(kernel):
    return f"{kernel.py_func.__module__}.{kernel.py_func.__name__}"


def covers(*kernels):
    """Mark a test as one of these kernels' own. It has to name them."""

    def mark(test):
        source = inspect.getsource(inspect.unwrap(test))
        for kernel in kernels:
            assert kernel.py_func.__name__ in source
            COVERED.add(name_of(kernel))
        return test

    return mark


@cache
def entry(kernel):
    """Return a function that Python can call for a kernel that only others call."""
    return njit(error_model="numpy")(kernel.py_func)


def planes_of(problem):
    """Return the planes of a problem and what is decided whatever z is."""
    n, n_effects = problem.effects.shape
    merged, constant = np.empty((n, problem.dimension + 2 + n_effects)), np.zeros(1 + n_effects)
    slots = np.full(2 ** int(np.ceil(np.log2(2 * n + 16))), -1, dtype=np.int32)
    rows = problem.margin, problem.contrasts, problem.gain, problem.effects
    found, _ = merge_planes(*rows, np.ones(problem.dimension), slots, merged, constant, Kinds.room(n))
    return np.ascontiguousarray(merged[:found]), constant


def bundles_of(planes, n_coordinates, depth):
    """Return the bundles of planes for each face."""
    codes = np.zeros((n_coordinates, len(planes)), dtype=np.int32)
    directions = np.zeros((n_coordinates, 2 << depth, n_coordinates))
    for axis in range(n_coordinates):
        tree = Tree.room(len(planes), depth, n_coordinates)
        bundle_planes(planes, axis, codes[axis], directions[axis], tree)
    return Bundles.of(codes, directions)


def tally_of(planes, first):
    """Return the kinds of planes, with memory for counts."""
    kinds = Kinds.room(len(planes))
    return Tally.of(Kinds(kinds.codes, kinds.rows[: find_kinds(planes, len(planes), first, kinds)]))


class Scene:
    """Random planes and a box on a random face, with its open rows found row by row; ``rows`` are these.

    With ``few``, the planes have at most this number of kinds.
    """

    def __init__(self, seed, *, n, k, kind="plain", most=0.3, axis=None, few=0):
        self.rng = np.random.default_rng(seed)
        self.problem = random_problem(seed, n=n, k=k, kind=kind)
        self.planes, _ = planes_of(self.problem)
        if few:
            drawn = self.rng.normal(size=(few, self.planes.shape[1] - k - 1))
            self.planes[:, k + 1 :] = drawn[self.rng.integers(few, size=len(self.planes))] / len(self.planes)
        self.k = k
        self.axis = int(self.rng.integers(k + 1)) if axis is None else axis
        centre, radius = self.rng.uniform(-1, 1, k + 1), self.rng.uniform(0.05, most, k + 1)
        radius[self.axis], centre[self.axis] = 0.0, 1.0
        if self.axis > 0:
            centre[0] = radius[0] + self.rng.uniform(0.0, 0.3)
        self.put(centre, radius)

    @property
    def v(self):
        return self.planes[:, : self.k + 1]

    @property
    def amounts(self):
        return self.planes[:, self.k + 1 :]

    def sides(self, centre, radius):
        """Return the open rows of a box and the sums of those that are surely 1."""
        value, reach = self.v @ centre, np.abs(self.v) @ radius
        return np.flatnonzero(np.abs(value) < reach), (value >= reach) @ self.amounts

    def put(self, centre, radius):
        """Put the scene's box somewhere."""
        self.centre, self.radius = centre, radius
        self.rows, self.sums = self.sides(centre, radius)
        self.boxes = boxes = Boxes.room(2, self.k + 1, self.amounts.shape[1], len(self.planes) + 8)
        # The second of two boxes, and rows that do not start at 0.
        boxes.start[1], boxes.size[1] = 5, len(self.rows)
        boxes.rows[5 : 5 + len(self.rows)] = self.rows
        boxes.centre[1], boxes.radius[1], boxes.sums[1] = centre, radius, self.sums

    def tally(self):
        """Return the counts of the scene's box, as if it were both of its halves."""
        tally = tally_of(self.planes, self.k + 1)
        n_columns, n = self.amounts.shape[1], len(self.planes)
        count_halves(self.planes, self.boxes, 1, 0, 0.0, Boxes.halves(self.k + 1, n_columns, n), tally)
        return tally

    def points(self, number):
        """Return random points of the box."""
        return self.centre + self.rng.uniform(-1, 1, (number, self.k + 1)) * self.radius

    def sums_at(self, points):
        """Return utilities and values at points."""
        return (points @ self.v.T > 0.0) @ self.amounts

    def ladder(self, width=0.1, steps=1):
        """Return bounds around what the box's rules do, strict to loose."""
        middle = self.sums_at(self.centre[None])[0, 1:]
        widths = width * np.arange(1, steps + 1)[:, None]
        return Ladder(middle - widths, middle + widths, np.arange(self.k), np.ones(self.k))

    def incumbent(self, steps=1):
        return Incumbent.none(steps, self.k + 1)
