"""Known groups: the rows of a group change in one order, so a rule is one threshold for each group.

If each row's group is known, margin and contrasts are functions of p(Y|x) and the group. The vectors
(margin, contrasts) of a group's rows then span only two dimensions; such rows are a *block*. In a block a rule is a
half-plane, so the planes that it decides positively are, in order of their angle, the first ones or all but the first
ones: a *pattern*, of which a block of n planes has 2 n. Every rule is a *choice* of one pattern for each block.

The search is over *ranges* of choices, an interval of patterns for each block. The largest cumulative gain of each
interval bounds the utility, the smallest and the largest cumulative effects bound the values. The rules that make a
choice of a range are the points between two planes of each block, a cone; a small linear program finds its deepest
point, or dual weights that show it to be empty. So every result is a rule, and no better rule is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.kernels import known_groups as kernels
from evenhand.search.kernels.ladder import RESOLUTION, Incumbent
from evenhand.search.problem import NoRule, Problem, Solution, conclude
from evenhand.search.sweep import Best

if TYPE_CHECKING:
    from evenhand.search.budget import Budget

MOST_BLOCKS = 12
PLANES_A_BLOCK, PLANES_IN_SMALL_BLOCKS = 3, 6
ROWS_FOR_A_LOOK, ANCHORS = 48, 6
APART = 1e-3
WITHIN = 1e-11
SAME_RATE = 1e-15
RANGES_AT_FIRST, MOST_RANGES = 2**10, 2**22
VISITS_A_CALL = 16_000_000


@dataclass(frozen=True, eq=False)
class Block:
    """Planes whose vectors span two dimensions: their positions, and two of the vectors, or one of them twice."""

    planes: NDArray[np.intp]
    pair: FloatArray


def may_have_blocks(problem: Problem) -> bool:
    """Return, from a few rows, whether a problem may have known groups: of ordinary rows, no three share a block."""
    stride = max(1, len(problem.margin) // ROWS_FOR_A_LOOK)
    some = np.column_stack([problem.margin[::stride], problem.contrasts[::stride]])
    some = some[np.abs(some[:, 1:]).max(axis=1) > 0.0]
    largest = np.take_along_axis(some, np.abs(some).argmax(axis=1)[:, None], axis=1)
    some = np.unique(np.round(some / largest, 12), axis=0)
    return len(some) >= PLANES_A_BLOCK and _common_span(some)[1] >= PLANES_A_BLOCK


def blocks_of(vectors: FloatArray) -> list[Block] | None:
    """Return the blocks of some planes, large ones first; None if there is only one, or if there are too many.

    Any two planes form a block, so only a few planes may remain for such small blocks.
    """
    left = np.arange(len(vectors))
    blocks: list[Block] = []
    while left.size:
        pair, count = _common_span(vectors[left[:: max(1, len(left) // ROWS_FOR_A_LOOK)]])
        if len(blocks) == MOST_BLOCKS or (count < PLANES_A_BLOCK and len(left) > PLANES_IN_SMALL_BLOCKS):
            return None
        inside = _within(vectors[left], pair)
        blocks.append(Block(left[inside], pair))
        left = left[~inside]
    return blocks if len(blocks) > 1 else None


def _common_span(vectors: FloatArray) -> tuple[FloatArray, int]:
    """Return two of some vectors whose span contains the most vectors, and how many.

    Only pairs with one of a few anchors are tried, and nearly parallel vectors do not form a pair. If there is no pair,
    the first vector is paired with itself.
    """
    unit = vectors / np.sqrt((vectors**2).sum(axis=1))[:, None]
    best: tuple[int, float, FloatArray] = (1, 0.0, vectors[[0, 0]])
    for anchor in np.unique(np.linspace(0, len(vectors) - 1, ANCHORS).astype(np.intp)):
        across = unit - _times(unit, unit[anchor])[:, None] * unit[anchor]
        length = np.sqrt((across**2).sum(axis=1))
        other = np.flatnonzero(length > APART)
        if not other.size:
            continue
        second = across[other] / length[other, None]
        missed = length**2 - np.einsum("ik,jk->ij", second, across) ** 2
        counts = (missed <= 1e-15).sum(axis=1)
        chosen = np.lexsort((length[other], counts))[-1]
        found = int(counts[chosen]), float(length[other[chosen]])
        if found > best[:2]:
            best = (*found, vectors[[anchor, other[chosen]]])
    return best[2], best[0]


def _within(vectors: FloatArray, pair: FloatArray) -> NDArray[np.bool_]:
    """Return a mask of the vectors that are combinations of a pair, in every component."""
    minors = np.abs(np.multiply.outer(pair[0], pair[1]) - np.multiply.outer(pair[1], pair[0]))
    i, j = np.unravel_index(minors.argmax(), minors.shape)
    if minors[i, j] == 0.0:  # one vector twice
        i = np.abs(pair[0]).argmax()
        first, second = vectors[:, i] / pair[0, i], np.zeros(len(vectors))
    else:
        size = pair[0, i] * pair[1, j] - pair[0, j] * pair[1, i]
        first = (vectors[:, i] * pair[1, j] - vectors[:, j] * pair[1, i]) / size
        second = (vectors[:, j] * pair[0, i] - vectors[:, i] * pair[0, j]) / size
    terms = np.multiply.outer(first, pair[0]), np.multiply.outer(second, pair[1])
    missed = np.abs(vectors - terms[0] - terms[1])
    inside: NDArray[np.bool_] = (missed <= WITHIN * (np.abs(terms[0]) + np.abs(terms[1]))).all(axis=1)
    return inside


def _times(vectors: FloatArray, other: FloatArray) -> FloatArray:
    """Return the product of each vector with another, with the same bits for any number of threads."""
    products: FloatArray = np.einsum("ij,j->i", vectors, other)
    return products


def _by_angle(planes: FloatArray, pair: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a block's planes in order of angle, all oriented to one half of the circle.

    The opposite of a plane decides 1 where the plane decides 0. Also returned is the sum of the reoriented planes'
    gains and effects, which is the same for every rule.
    """
    width = pair.shape[1]
    first = pair[0] / np.sqrt(pair[0] @ pair[0])
    second = pair[1] - (pair[1] @ first) * first
    along, across = _times(planes[:, :width], first), _times(planes[:, :width], second)
    turned = (across < 0.0) | ((across == 0.0) & (along < 0.0))
    sign = np.where(turned, -1.0, 1.0)
    order = np.argsort(np.arctan2(sign * across, sign * along), kind="stable")
    return (planes * sign[:, None])[order], planes[turned, width:].sum(axis=0)


def _rates_of(effects: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return columns of which all effects are multiples, and the factors: a few rates are in many constraints."""
    rates: list[FloatArray] = []
    factors = np.zeros((effects.shape[1], effects.shape[1]))
    for c in np.flatnonzero(effects.any(axis=0)):
        column = np.ascontiguousarray(effects[:, c])
        size = np.abs(column).max()
        for q, rate in enumerate(rates):
            at = int(np.abs(rate).argmax())
            factor = float(column[at] / rate[at])
            if np.abs(column - factor * rate).max() <= SAME_RATE * size:
                factors[c, q] = factor
                break
        else:
            factors[c, len(rates)] = 1.0
            rates.append(column)
    return np.column_stack(rates) if rates else np.zeros((len(effects), 0)), factors


def _tree(patterns: FloatArray, largest: bool) -> FloatArray:
    """Return each column's largest (or smallest) number over the patterns of every node; there is no node 0.

    ``patterns`` has shape (2, n, columns): those where the first plane decides 1, and those where it decides 0.
    """
    n = patterns.shape[1]
    width = _width(n)
    choose, neutral = (np.maximum, -np.inf) if largest else (np.minimum, np.inf)
    tree = np.full((4 * width, patterns.shape[2]), neutral)
    tree[2 * width :].reshape(2, width, -1)[:, :n] = patterns
    level = 2 * width
    while level > 1:
        level //= 2
        below = tree[2 * level : 4 * level]
        choose(below[0::2], below[1::2], out=tree[level : 2 * level])
    return tree


def _width(n: int) -> int:
    """Return the smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def forest_of(planes: FloatArray, blocks: list[Block]) -> tuple[kernels.Forest, FloatArray]:
    """Return the trees of all blocks, and the gains and effects that are the same for every rule."""
    n_coordinates = blocks[0].pair.shape[1]
    constant = np.zeros(planes.shape[1] - n_coordinates)
    vectors, gains, rates, coefficients = [], [], [], []
    for block in blocks:
        own, decided = _by_angle(planes[block.planes], block.pair)
        constant += decided
        columns, factors = _rates_of(own[:, n_coordinates + 1 :])
        # Summed exactly: bounds are often met with equality.
        first = np.cumsum(np.column_stack([own[:, n_coordinates], columns]), axis=0, dtype=np.longdouble)
        patterns = np.stack([first, first[-1] - first]).astype(np.float64)
        vectors.append(own[:, :n_coordinates])
        gains.append(_tree(patterns[:, :, :1], largest=True)[:, 0])
        rates.append(np.stack([_tree(patterns[:, :, 1:], largest=side) for side in (False, True)], axis=2))
        coefficients.append(factors)
    n_rates = max(1, *(tree.shape[1] for tree in rates))
    first_node = np.cumsum([0, *map(len, gains)])
    joined = np.zeros((first_node[-1], n_rates, 2))
    for tree, (start, end) in zip(rates, pairwise(first_node), strict=True):
        joined[start:end, : tree.shape[1]] = tree
    n_planes = np.array([len(own) for own in vectors])
    forest = kernels.Forest(
        vectors=np.concatenate(vectors),
        first_plane=np.cumsum(n_planes) - n_planes,
        n_planes=n_planes,
        width=np.array([_width(len(own)) for own in vectors]),
        first_node=first_node[:-1],
        gains=np.concatenate(gains),
        rates=joined,
        coefficients=np.ascontiguousarray(np.stack(coefficients)[:, :, :n_rates]),
    )
    return forest, constant


class KnownGroups:
    """One search over the choices of a problem's blocks.

    ``planes``, ``scale`` and ``constant`` are the problem's merged planes, the divisors of its contrasts, and the sums
    that no rule changes; ``known`` are the utilities to beat.
    """

    def __init__(
        self,
        problem: Problem,
        planes: FloatArray,
        scale: FloatArray,
        constant: FloatArray,
        blocks: list[Block],
        gap: float,
        known: FloatArray,
    ) -> None:
        steps, coordinates = len(problem.lower), problem.dimension + 1
        self.problem, self.scale, self.blocks, self.gap = problem, scale, blocks, gap
        self.forest, turned = forest_of(planes, blocks)
        self.constant = constant + turned
        self.incumbent = Incumbent.none(steps, coordinates)
        self.incumbent.utility[:] = known
        self.room = kernels.Realising.room(len(blocks), coordinates)
        self.nodes = 0
        self.height = 1
        bound = float(self.constant[0] + self.forest.gains[self.forest.first_node + 1].sum())
        self.ranges = kernels.Ranges.first(RANGES_AT_FIRST, len(blocks), coordinates, bound)

    def search(self, budget: Budget) -> None:
        """Process all ranges that may contain a rule better by more than the gap, until the budget is spent."""
        while self.height and not budget.is_spent():
            limits = float(min(budget.visits, VISITS_A_CALL)), float(budget.nodes)
            bounds = self.problem.lower, self.problem.upper
            state = self.ranges, self.height, self.incumbent, self.room
            code, self.height, nodes, visits = kernels.branch_ranges(
                self.forest, self.constant, *bounds, self.gap, *limits, *state
            )
            self.nodes += nodes
            budget.spend(visits, nodes)
            if code == kernels.OUT_OF_ROOM:
                if len(self.ranges.heap) >= MOST_RANGES:
                    budget.stop("work")
                    return
                self.ranges = self.ranges.doubled()

    def offer(self, best: Best) -> None:
        """Adopt the rules of another search if they are better."""
        for step in np.flatnonzero(best.utility > self.incumbent.utility + RESOLUTION):
            w = best.z[step] * self.scale
            self.incumbent.utility[step] = best.utility[step]
            self.incumbent.point[step] = np.concatenate([[1.0], w]) / max(1.0, float(np.abs(w).max()))

    def results(self) -> list[Solution | NoRule]:
        """Return the rules that improve on the known ones, and the bound on all rules."""
        bounds, steps = self.ranges.bounds, self.ranges.steps
        waiting = self.ranges.heap[: self.height]
        found: list[Solution | NoRule] = []
        for step, point in enumerate(self.incumbent.point):
            bound = float(bounds[waiting[steps[waiting] <= step]].max(initial=-np.inf))
            bound = max(bound, float(self.incumbent.left_behind[step]), float(self.incumbent.utility[step]))
            if np.isnan(point[0]):
                found.append(NoRule(bound == -np.inf, self.nodes, bound))
                continue
            z = point[1:] / (point[0] * self.scale)
            found.append(conclude(self.problem, step, z, upper_bound=bound, nodes=self.nodes))
        return found
