"""Bundles: planes with similar directions, and the bound on their joint contribution in a box."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.kernels.decorators import inner, kernel
from evenhand.search.kernels.sweep import sort_by

# The smallest size of a useful bundle, and how finely the rows' turns are placed.
ROWS_A_BUNDLE = 6
BINS = 16
ROWS_DRAWN_A_LEAF = 16


class Bundles(NamedTuple):
    """For each face the bundle of each plane and the directions of a tree of bundles; memory for one box's bound."""

    codes: NDArray[np.int32]
    directions: FloatArray
    turns: FloatArray
    shape: FloatArray
    places: NDArray[np.int32]

    @classmethod
    def of(cls, codes: NDArray[np.int32], directions: FloatArray) -> Bundles:
        """Return bundles with their own memory."""
        _, nodes, n_coordinates = directions.shape
        turns, shape = np.zeros(nodes // 2 * (BINS + 1)), np.zeros((nodes // 2, n_coordinates))
        return cls(codes, directions, turns, shape, np.zeros((codes.shape[1], 3), dtype=np.int32))


class Tree(NamedTuple):
    """Memory to bundle planes: a sample of their directions, its rows in the order of the nodes, and the nodes.

    A node has the place where its rows start and where they stop, and is halved at a threshold of a coordinate.
    """

    sample: FloatArray
    order: NDArray[np.int64]
    column: FloatArray
    sorted_rows: NDArray[np.int64]
    nodes: NDArray[np.int64]
    coordinate: NDArray[np.int64]
    threshold: FloatArray

    @classmethod
    def room(cls, n_planes: int, depth: int, n_coordinates: int) -> Tree:
        """Return memory for a tree of ``depth`` levels below its root."""
        leaves = 1 << depth
        drawn = -(-n_planes // max(1, n_planes // (ROWS_DRAWN_A_LEAF * leaves)))
        order, sorted_rows = np.zeros((2, drawn), dtype=np.int64)
        nodes, coordinate = np.zeros((2 * leaves + 1, 2), dtype=np.int64), np.zeros(leaves, dtype=np.int64)
        sample, column, threshold = np.zeros((drawn + 1, n_coordinates)), np.zeros(drawn), np.zeros(leaves)
        return cls(sample, order, column, sorted_rows, nodes, coordinate, threshold)


@kernel
def bundle_planes(planes, axis, codes, directions, tree):
    """Group planes with similar directions, in a binary tree.

    A direction is v without the coordinate ``axis``, divided by the sum of its sizes. Each node is halved at the
    median of the coordinate that varies most; medians are taken over a sample. Fills ``codes`` with the leaf of each
    plane and ``directions`` with the median direction of each node; node i has the children 2 i and 2 i + 1.
    """
    sample, order, column, sorted_rows = tree.sample, tree.order, tree.column, tree.sorted_rows
    nodes, coordinate, threshold = tree.nodes, tree.coordinate, tree.threshold
    n = planes.shape[0]
    n_coordinates = directions.shape[1]
    leaves = threshold.shape[0]
    drawn = order.shape[0]
    stride = max(1, n // (ROWS_DRAWN_A_LEAF * leaves))
    for i in range(drawn):
        size = 0.0
        for j in range(n_coordinates):
            sample[i, j] = 0.0 if j == axis else planes[i * stride, j]
            size += abs(sample[i, j])
        for j in range(n_coordinates if size > 0.0 else 0):
            sample[i, j] /= size
        order[i] = i
    nodes[1, 0] = 0
    nodes[1, 1] = drawn
    for node in range(1, 2 * leaves):
        first = nodes[node, 0]
        count = nodes[node, 1] - first
        best = 0
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
                best = j
        if node < leaves:
            threshold[node] = median
            coordinate[node] = best
            below = first
            above = 0
            for i in range(first, first + count):
                row = order[i]
                if sample[row, best] < median:
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
    end = np.uint64(leaves)
    for i in range(n):
        size = 0.0
        for j in range(n_coordinates):
            direction[j] = 0.0 if j == axis else planes[i, j]
            size += abs(direction[j])
        for j in range(n_coordinates if size > 0.0 else 0):
            direction[j] /= size
        at = np.uint64(1)
        while at < end:
            at = np.uint64(2) * at + np.uint64(direction[np.uint64(coordinate[at])] >= threshold[at])
        codes[i] = at


@inner
def place_turns(planes, boxes, b, face, bundles):
    """Find where the open rows of a box turn: the bins of their bundle between which each may; return the bundles.

    Over the box, the value of a row divided by its reach is (where it stands at the centre) + u . d, with u its
    direction in the box's metric, of size 1, and d in [-1, 1]^K. Rows of a bundle share u nearly: with s = -u . d
    for the bundle's own direction, a row at a distance e from it is surely 1 where s is below its place at
    the centre less e, and surely 0 where s is above it plus e. s goes from -1 to 1 in bins.
    """
    centre, radius, rows, count = boxes.centre[b], boxes.radius[b], boxes.rows[boxes.start[b] :], boxes.size[b]
    codes, directions, places, shape = bundles.codes[face], bundles.directions[face], bundles.places, bundles.shape
    first = centre.shape[0]
    depth = 0
    while (2 << depth) < directions.shape[0]:
        depth += 1
    level = 0
    while level < depth and (ROWS_A_BUNDLE << (level + 1)) <= count:
        level += 1
    number = 1 << level
    for u in range(number):
        size = 1e-300
        for j in range(first):
            size += abs(directions[number + u, j]) * radius[j]
        for j in range(first):
            shape[u, j] = directions[number + u, j] * radius[j] / size
    # A point has at least three coordinates: these need no loop.
    c0, c1, c2, r0, r1, r2 = centre[0], centre[1], centre[2], radius[0], radius[1], radius[2]
    # Unsigned numbers are not checked for being negative.
    shift, base = np.uint64(depth - level), np.uint64(number)
    for position in range(count):
        i = np.uint64(rows[position])
        bundle = (np.uint64(codes[i]) >> shift) - base
        v0, v1, v2 = planes[i, 0], planes[i, 1], planes[i, 2]
        value = v0 * c0 + v1 * c1 + v2 * c2
        reach = abs(v0) * r0 + abs(v1) * r1 + abs(v2) * r2
        for j in range(3, first):
            v = planes[i, j]
            value += v * centre[j]
            reach += abs(v) * radius[j]
        inverse = 1.0 / reach
        apart = 1e-9 + 1e-15 * inverse + abs(v0 * r0 * inverse - shape[bundle, 0])
        apart = apart + abs(v1 * r1 * inverse - shape[bundle, 1]) + abs(v2 * r2 * inverse - shape[bundle, 2])
        for j in range(3, first):
            apart += abs(planes[i, j] * radius[j] * inverse - shape[bundle, j])
        place = value * inverse + 1.0
        start = np.int64(bundle) * (BINS + 1)
        places[position, 0] = start
        places[position, 1] = start + int(min(1.0 * BINS, max(0.0, 0.5 * BINS * (place - apart))))
        places[position, 2] = start + int(min(1.0 * BINS, max(0.0, 0.5 * BINS * (place + apart) + 1.0)))
    return number


@inner
def worth(planes, i, first, weight, prices):
    """Return ``weight * gain - prices . effects`` of a plane."""
    price = weight * planes[i, first]
    for c in range(prices.shape[0]):
        price -= prices[c] * planes[i, first + np.uint64(1 + c)]
    return price


@inner
def bundled(planes, boxes, b, weight, prices, bundles, tally, number):
    """Return a bound on what the open rows add to ``weight * gain - prices . effects``, better than one row at a time.

    ``place_turns`` has been called for the box, and ``number`` is what it returned. The rows of a bundle turn in the
    order of their places, as s goes from -1 to 1, and the best that they can do together is the best over s. s is
    looked at in bins, each with the rows that may turn inside it free to choose.
    """
    rows, count, first = boxes.rows[boxes.start[b] :], boxes.size[b], np.uint64(boxes.centre.shape[1])
    turns, places, codes, kinds, of_kind = bundles.turns, bundles.places, tally.codes, tally.kinds, tally.prices
    by_kind = 0 < kinds.shape[0] <= count
    for kind in range(kinds.shape[0] if by_kind else 0):
        of_kind[kind] = worth(planes, kinds[kind], first, weight, prices)
    for q in range(number * (BINS + 1)):
        turns[q] = 0.0
    for position in range(count):
        i = np.uint64(rows[position])
        price = of_kind[np.uint64(codes[i])] if by_kind else worth(planes, i, first, weight, prices)
        helpful = max(price, 0.0)
        turns[np.uint64(places[position, 0])] += price
        turns[np.uint64(places[position, 1])] += helpful - price
        turns[np.uint64(places[position, 2])] -= helpful
    total = 0.0
    for u in range(number):
        running = 0.0
        most = -np.inf
        for q in range(BINS):
            running += turns[u * (BINS + 1) + q]
            most = max(most, running)
        total += most
    return total
