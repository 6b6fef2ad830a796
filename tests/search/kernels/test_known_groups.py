"""The kernels of the search for known groups, each against NumPy, a brute force or a linear program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from evenhand.search.arrangement import planes_of
from evenhand.search.kernels import known_groups as kernels
from evenhand.search.kernels.ladder import RESOLUTION, Incumbent
from evenhand.search.kernels.leaves import Simplex, deepest_point
from evenhand.search.known_groups import blocks_of, forest_of
from kernels import covers, entry
from problems import random_problem

seeds = st.integers(0, 2**32 - 1)


def forest(seed, *, sizes=(6, 9), k=2, tolerance=0.3):
    """Return a problem whose rows lie in blocks of two dimensions, its forest and what no rule changes."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    problem = random_problem(seed, n=len(group), k=k, tolerance=tolerance)
    rows = np.einsum("ij,ijk->ik", rng.normal(size=(len(group), 2)), rng.normal(size=(len(sizes), 2, k + 1))[group])
    problem = type(problem)(
        rows[:, 0], rows[:, 1:], problem.gain, problem.effects, problem.lower, problem.upper, problem.offset
    )
    planes, _, constant, _ = planes_of(problem)
    found, turned = forest_of(planes, blocks_of(planes[:, : k + 1]))
    return problem, found, constant + turned


def leaves_below(tree, block, node):
    """Return the leaves of a node, as the tree's arithmetic of places has them."""
    side, first, last = entry(kernels._patterns)(node, tree.width[block], tree.n_planes[block])
    sides = (1, -1) if side == 0 else (side,)
    return [(2 if s > 0 else 3) * tree.width[block] + p for s in sides for p in range(first, last + 1)]


@covers(kernels._patterns)
@given(width=st.sampled_from([1, 2, 4, 8, 16]), data=st.data())
def test_patterns_of_a_node_are_those_of_its_halves(width, data):
    n_planes = data.draw(st.integers(width // 2 + 1, width))
    node = data.draw(st.integers(1, 2 * width - 1))
    patterns = entry(kernels._patterns)

    def listed(node):
        side, first, last = patterns(node, width, n_planes)
        return {(s, p) for s in ((1, -1) if side == 0 else (side,)) for p in range(first, last + 1)}

    assert listed(node) == listed(2 * node) | listed(2 * node + 1)
    assert not listed(2 * node) & listed(2 * node + 1)


@covers(kernels._pattern_at, kernels._limit, kernels._clearance)
@settings(max_examples=40)
@given(seed=seeds)
def test_a_point_is_inside_what_limits_the_nodes_above_its_leaf_and_outside_the_others(seed):
    _, tree, _ = forest(seed)
    rng = np.random.default_rng(seed)
    point = rng.normal(size=3)
    for block in range(2):
        leaf = entry(kernels._pattern_at)(tree, block, point)
        normals = np.zeros((5, 3))
        nodes = [node for node in range(1, 4 * tree.width[block]) if leaves_below(tree, block, node)]
        for node in nodes:
            count = entry(kernels._limit)(tree, block, node, normals, 0)
            sizes = np.abs(normals[:count]).sum(axis=1)
            expected = (normals[:count] @ point / sizes).min(initial=np.inf)
            clearance = entry(kernels._clearance)(normals, count, point)
            assert clearance == pytest.approx(expected)
            assert (clearance > 0.0) == (leaf in leaves_below(tree, block, node))


@covers(kernels._dual_weights, kernels._depth_at_most, kernels._solve_again)
@settings(max_examples=60)
@given(seed=seeds, n=st.integers(2, 8), k=st.integers(2, 4))
def test_weights_prove_how_deep_a_point_can_be(seed, n, k):
    """_dual_weights fills them in, _solve_again makes them exact where none is inside, _depth_at_most reads them."""
    rng = np.random.default_rng(seed)
    normals = rng.normal(size=(n, k))
    point, weights, simplex = np.zeros(k), np.zeros(n), Simplex.room(k, n)
    depth, _ = entry(deepest_point)(normals, np.zeros(n), n, np.ones(k), point, simplex)
    entry(kernels._dual_weights)(simplex, n, weights)
    sizes = np.abs(normals).sum(axis=1)
    bounds = [(-1.0, 1.0)] * k + [(None, None)]
    truth = -linprog(np.append(np.zeros(k), -1.0), np.column_stack([-normals, sizes]), np.zeros(n), bounds=bounds).fun
    assert (weights >= 0.0).all()
    assert depth - 1e-9 <= truth <= entry(kernels._depth_at_most)(normals, n, weights) + 1e-12
    assert entry(kernels._depth_at_most)(normals, n, weights) == pytest.approx(truth, abs=1e-8)
    if truth < 1e-12:
        entry(kernels._solve_again)(normals, n, weights)
        assert entry(kernels._depth_at_most)(normals, n, weights) <= 1e-14


@covers(kernels._measure, kernels._first_step, kernels._widest)
@settings(max_examples=40)
@given(seed=seeds)
def test_a_range_spans_the_values_of_its_choices(seed):
    """_measure gives a choice's values, _first_step what a range may meet, _widest the block to halve."""
    _, tree, constant = forest(seed, sizes=(3, 4))
    rng = np.random.default_rng(seed)
    nodes = np.array([rng.integers(1, 2 * tree.width[b]) for b in range(2)])
    listed = [leaves_below(tree, b, nodes[b]) for b in range(2)]
    if not all(listed):
        return
    found, values = [], np.zeros(2)
    for chosen in ((a, b) for a in listed[0] for b in listed[1]):
        entry(kernels._measure)(tree, np.array(chosen), constant, values)
        found.append(values.copy())
    low, high = np.zeros(2), np.zeros(2)
    lower, upper = np.array([[0.0, 0.0], [-0.2, -0.2], [-9.0, -9.0]]), np.array([[0.0, 0.0], [0.2, 0.2], [9.0, 9.0]])
    step = entry(kernels._first_step)(tree, nodes, constant, lower, upper, 0, low, high)
    assert (low <= np.min(found, axis=0) + 1e-12).all()
    assert (high >= np.max(found, axis=0) - 1e-12).all()
    met = [((v >= lower - 1e-12) & (v <= upper + 1e-12)).all(axis=1) for v in found]
    assert not np.any(met, axis=0)[:step].any()
    chosen = entry(kernels._widest)(tree, nodes)
    assert chosen in (0, 1)
    assert nodes[chosen] < 2 * tree.width[chosen]
    single = np.array([leaves[0] for leaves in listed])
    assert entry(kernels._widest)(tree, single) == -1
    utility = entry(kernels._measure)(tree, single, constant, values)
    assert utility <= constant[0] + sum(tree.gains[tree.first_node[b] + nodes[b]] for b in range(2)) + 1e-12


@covers(kernels._leave)
def test_leave_remembers_a_bound_where_it_is_above_what_is_known():
    left_behind = np.array([0.1, 0.4, -np.inf, -np.inf])
    kernels_leave = entry(kernels._leave)
    kernels_leave(0.5, 1, np.array([0.0, 0.0, 0.6, 0.2]), left_behind)
    assert left_behind.tolist() == [0.1, 0.5, -np.inf, 0.5]


@covers(kernels._before, kernels._rise, kernels._sink)
@given(seed=seeds, n=st.integers(1, 40))
def test_a_heap_gives_the_largest_bound_first_and_the_deepest_of_equal_ones(seed, n):
    """_rise puts entries in, _sink keeps the order as they are taken out, and both ask _before."""
    rng = np.random.default_rng(seed)
    bounds, depths, heap = rng.integers(0, 5, n) / 4.0, rng.integers(0, 5, n), rng.permutation(n)
    for height in range(n):
        entry(kernels._rise)(bounds, depths, heap, height)
    taken = []
    for height in range(n - 1, -1, -1):
        taken.append((bounds[heap[0]], depths[heap[0]]))
        heap[0], heap[height] = heap[height], heap[0]
        entry(kernels._sink)(bounds, depths, heap, height)
    assert taken == sorted(taken, reverse=True)
    assert sorted(heap.tolist()) == list(range(n))
    assert not entry(kernels._before)(bounds, depths, 0, 0)


@covers(kernels._realise, kernels._offer)
@settings(max_examples=40)
@given(seed=seeds)
def test_an_offered_choice_is_kept_where_a_rule_makes_it_and_it_improves(seed):
    """_realise finds a point of the choice that some z makes, and _offer keeps it for the steps that it meets."""
    _, tree, constant = forest(seed)
    rng = np.random.default_rng(seed)
    z = rng.normal(size=3)
    leaves = np.array([entry(kernels._pattern_at)(tree, b, z / np.abs(z).max()) for b in range(2)])
    room, values, point = kernels.Realising.room(2, 3), np.zeros(2), np.zeros(3)
    depth, most, _ = entry(kernels._realise)(tree, leaves, point, room)
    assert most >= depth - 1e-12
    if z[0] > 0.0:
        assert most > 0.0
    lower, upper = np.array([[-1e-3, -1e-3], [-9.0, -9.0]]), np.array([[1e-3, 1e-3], [9.0, 9.0]])
    incumbent = Incumbent.none(2, 3)
    entry(kernels._offer)(tree, leaves, constant, lower, upper, incumbent, values, point, room)
    utility = entry(kernels._measure)(tree, leaves, constant, values.copy())
    meets = ((values >= lower - 1e-12) & (values <= upper + 1e-12)).all(axis=1) & (depth > RESOLUTION)
    np.testing.assert_allclose(incumbent.utility[meets], utility)
    assert (incumbent.utility[~meets] == -np.inf).all()
    if meets[1]:
        again = [entry(kernels._pattern_at)(tree, b, incumbent.point[1]) for b in range(2)]
        assert again == leaves.tolist()


@covers(kernels.branch_ranges)
@settings(max_examples=20)
@given(seed=seeds)
def test_branch_ranges_finds_the_best_choice_that_some_rule_makes(seed):
    problem, tree, constant = forest(seed, sizes=(3, 4))
    incumbent, room = Incumbent.none(1, 3), kernels.Realising.room(2, 3)
    ranges = kernels.Ranges.first(64, 2, 3, np.inf)
    limits = problem.lower, problem.upper, 0.0, 1e9, 1e9
    code, height, *_ = kernels.branch_ranges(tree, constant, *limits, ranges, 1, incumbent, room)
    assert (code, height) == (kernels.DONE, 0)
    best, values, point = -np.inf, np.zeros(2), np.zeros(3)
    for chosen in ((a, b) for a in leaves_below(tree, 0, 1) for b in leaves_below(tree, 1, 1)):
        utility = entry(kernels._measure)(tree, np.array(chosen), constant, values)
        depth, *_ = entry(kernels._realise)(tree, np.array(chosen), point, room)
        if depth > RESOLUTION and problem.excess(values) <= 1e-12:
            best = max(best, utility)
    assert incumbent.utility[0] == pytest.approx(best, abs=1e-9)
