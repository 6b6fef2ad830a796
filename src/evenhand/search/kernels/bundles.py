"""Bundles: planes with like directions, and the bound on what they can do together in a box."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.kernels.decorators import inner, kernel
from evenhand.search.kernels.sweep import sort_by

# How many rows make a bundle worth having, and how finely their turns are placed.
ROWS_A_BUNDLE = 6
BINS = 16


class Bundles(NamedTuple):
    """For each face the bundle of each plane and the directions of a tree of bundles; room for one box's bound."""

    codes: NDArray[np.int32]
    directions: FloatArray
    turns: FloatArray
    shape: FloatArray

    @classmethod
    def of(cls, codes: NDArray[np.int32], directions: FloatArray) -> Bundles:
        """Return bundles with room of their own."""
        _, nodes, n_coordinates = directions.shape
        return cls(codes, directions, np.zeros((nodes // 2, BINS + 1)), np.zeros((nodes // 2, n_coordinates)))


@inner
def direction_of(planes, i, axis, direction):
    """Fill the direction of a plane: v without the coordinate ``axis``, divided by the sum of its sizes."""
    size = 0.0
    for j in range(direction.shape[0]):
        direction[j] = 0.0 if j == axis else planes[i, j]
        size += abs(direction[j])
    if size > 0.0:
        for j in range(direction.shape[0]):
            direction[j] /= size


@kernel
def bundle_planes(planes, axis, depth, codes, directions):
    """Put planes with like directions together, in a binary tree of ``depth`` levels below its root.

    Each node is halved at the median of the coordinate that varies most; medians are taken over a sample. Fills
    ``codes`` with the leaf of each plane and ``directions`` with the median direction of each node; node i has
    the children 2 i and 2 i + 1.
    """
    n = planes.shape[0]
    n_coordinates = directions.shape[1]
    leaves = 1 << depth
    stride = max(1, n // (16 * leaves))
    drawn = (n + stride - 1) // stride
    sample = np.empty((drawn + 1, n_coordinates))
    order = np.empty(drawn, dtype=np.int64)
    for i in range(drawn):
        direction_of(planes, i * stride, axis, sample[i])
        order[i] = i
    column = np.empty(drawn)
    sorted_rows = np.empty(drawn, dtype=np.int64)
    # Where a node's rows start and stop, where it is halved: the coordinate and the median.
    nodes = np.empty((2 * leaves + 1, 3), dtype=np.int64)
    nodes[1, 0] = 0
    nodes[1, 1] = drawn
    threshold = np.empty(leaves)
    for node in range(1, 2 * leaves):
        first = nodes[node, 0]
        count = nodes[node, 1] - first
        nodes[node, 2] = 0
        widest = -1.0
        median = 0.0
        for j in range(n_coordinates):
            if count == 0:
                directions[node, j] = directions[node // 2, j]
                continue
            for i in range(count):
                row = order[first + i]
                column[row] = sample[row, j]
                sorted_rows[i] = row
            sort_by(column, sorted_rows, count)
            middle = column[sorted_rows[count // 2]]
            directions[node, j] = middle
            spread = column[sorted_rows[(9 * count) // 10]] - column[sorted_rows[count // 10]]
            if spread > widest:
                widest = spread
                median = middle
                nodes[node, 2] = j
        if node < leaves:
            threshold[node] = median
            below = first
            above = 0
            for i in range(first, first + count):
                row = order[i]
                if sample[row, nodes[node, 2]] < median:
                    order[below] = row
                    below += 1
                else:
                    sorted_rows[above] = row
                    above += 1
            for i in range(above):
                order[below + i] = sorted_rows[i]
            nodes[2 * node, 0] = first
            nodes[2 * node, 1] = below
            nodes[2 * node + 1, 0] = below
            nodes[2 * node + 1, 1] = first + count
    direction = sample[drawn]
    for i in range(n):
        direction_of(planes, i, axis, direction)
        node = 1
        while node < leaves:
            node = 2 * node + (direction[nodes[node, 2]] >= threshold[node])
        codes[i] = node


@inner
def bundled(planes, boxes, b, face, weight, prices, bundles):
    """Return a bound on what the open rows add to ``weight * gain - prices . effects``, better than one row at a time.

    Over the box, the value of a row divided by its reach is (where it stands at the centre) + u . d, with u its
    direction in the box's metric, of size 1, and d in [-1, 1]^K. Rows of a bundle share u nearly: with s = -u . d
    for the bundle's own direction, a row at a distance e from it is surely 1 where s is below its place at
    the centre less e, and surely 0 where s is above it plus e. So the rows of a bundle turn in the order of their
    places, as s goes from -1 to 1, and the best that they can do together is the best over s. s is looked at in
    bins, each with the rows that may turn inside it free to choose.
    """
    centre, radius, rows, start, count = boxes.centre, boxes.radius, boxes.rows, boxes.start[b], boxes.count[b]
    codes, directions, turns, shape = bundles.codes, bundles.directions, bundles.turns, bundles.shape
    first = centre.shape[1]
    depth = 0
    while (2 << depth) < directions.shape[1]:
        depth += 1
    level = 0
    while level < depth and (ROWS_A_BUNDLE << (level + 1)) <= count:
        level += 1
    number = 1 << level
    for u in range(number):
        size = 1e-300
        for j in range(first):
            size += abs(directions[face, number + u, j]) * radius[b, j]
        for j in range(first):
            shape[u, j] = directions[face, number + u, j] * radius[b, j] / size
        for q in range(BINS + 1):
            turns[u, q] = 0.0
    for position in range(start, start + count):
        i = rows[position]
        u = (codes[face, i] >> (depth - level)) - number
        value = 0.0
        reach = 0.0
        for j in range(first):
            v = planes[i, j]
            value += v * centre[b, j]
            reach += abs(v) * radius[b, j]
        inverse = 1.0 / reach
        apart = 1e-9 + 1e-15 * inverse
        for j in range(first):
            apart += abs(planes[i, j] * radius[b, j] * inverse - shape[u, j])
        price = weight * planes[i, first]
        for c in range(prices.shape[0]):
            price -= prices[c] * planes[i, first + 1 + c]
        helpful = max(price, 0.0)
        place = value * inverse + 1.0
        turns[u, 0] += price
        turns[u, int(min(1.0 * BINS, max(0.0, 0.5 * BINS * (place - apart))))] += helpful - price
        turns[u, int(min(1.0 * BINS, max(0.0, 0.5 * BINS * (place + apart) + 1.0)))] -= helpful
    total = 0.0
    for u in range(number):
        running = 0.0
        most = -np.inf
        for q in range(BINS):
            running += turns[u, q]
            most = max(most, running)
        total += most
    return total
