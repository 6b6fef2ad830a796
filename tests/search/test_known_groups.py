"""Known groups: every rule is a threshold in each group, and the search over thresholds is exact over the rules."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit
from numba.core.dispatcher import Dispatcher
from scipy.optimize import linprog

import evenhand as eh
from evenhand import _compiled
from evenhand.search import Certified, NoRule, Problem, certified, known_groups
from evenhand.search.arrangement import planes_of
from evenhand.search.kernels import known_groups as kernels
from evenhand.search.known_groups import Block, blocks_of, forest_of, may_have_blocks
from oracles import best_by_all_cells, best_by_all_pairs_of_lines
from problems import KINDS, feasible, random_problem, setting_of

seeds = st.integers(0, 2**32 - 1)
SLACK = 1e-12


@pytest.fixture
def taken(monkeypatch):
    """Return a list that gets the blocks of every problem that is solved as one of known groups."""
    solved = []
    solve = certified._solve_known_groups
    monkeypatch.setattr(
        certified, "_solve_known_groups", lambda *given: solved.append(given[0].blocks) or solve(*given)
    )
    return solved


def by_boxes(problem, **options):
    """Return what the search over boxes finds, which knows nothing of groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certified, "may_have_blocks", lambda _: False)
        return Certified(**options).solve(problem)


def block_problem(seed, *, sizes, k, kind="plain", tolerance=None):
    """Return a random problem whose rows lie in blocks of two dimensions, of no particular criterion."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    problem = random_problem(seed, n=n, k=k, kind=kind, tolerance=tolerance)
    group = np.repeat(np.arange(len(sizes)), sizes)
    spanned = rng.normal(size=(len(sizes), 2, k + 1))
    amounts = rng.normal(size=(n, 2))
    if kind == "tied":
        amounts = rng.integers(-2, 3, (n, 2)).astype(float)
    if kind == "degenerate":
        amounts[rng.random((n, 2)) < 0.3] = 0.0
    rows = np.einsum("ij,ijk->ik", amounts, spanned[group])
    return replace(problem, margin=rows[:, 0], contrasts=rows[:, 1:])


def known_problem(seed, *, groups, n, criterion, tolerance=0.2, weighted=False, tied=False):
    """Return the problem of known groups under a criterion, and each row's group and p(Y|x)."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.repeat(np.arange(groups), 4), rng.integers(0, groups, size=n - 4 * groups)])
    y = np.concatenate([np.tile([0, 1], 2 * groups), rng.integers(0, 2, size=n - 4 * groups)])
    p = rng.integers(1, 6, size=n) / 6.0 if tied else rng.random(n)
    joint = np.zeros((n, 2, groups))
    joint[np.arange(n), 0, codes], joint[np.arange(n), 1, codes] = 1.0 - p, p
    weight = rng.choice([0.5, 1.0, 3.0], size=n) if weighted else None
    setting = setting_of(y, {"a": codes}, p, {"a": joint}, criterion=criterion, sample_weight=weight)
    return setting.problem(np.atleast_1d(tolerance)), codes, p


def best_of_all_thresholds(problem, group, p):
    """Return for each step the best utility of a threshold, up or down, in each group that some z realises, or None."""
    patterns = []
    for g in np.unique(group):
        own = group == g
        cuts = [-np.inf, *np.unique(p[own])]
        found = {(own & (side * p > side * cut)).tobytes() for cut in cuts for side in (1.0, -1.0)}
        found |= {(own & (p < np.inf)).tobytes()}
        patterns.append([np.frombuffer(pattern, dtype=bool) for pattern in found])
    sums = [np.array([[problem.gain[on].sum(), *problem.effects[on].sum(axis=0)] for on in each]) for each in patterns]
    choices = np.array(list(itertools.product(*(range(len(each)) for each in patterns))))
    total = sum(each[choices[:, a]] for a, each in enumerate(sums))
    own_decisions = problem.evaluate(problem.margin > 0.0)
    realised = {}
    best = []
    for lower, upper in zip(problem.lower, problem.upper, strict=True):
        inside = ((total[:, 1:] >= lower - SLACK) & (total[:, 1:] <= upper + SLACK)).all(axis=1)
        found = None
        if ((own_decisions[1] >= lower - SLACK) & (own_decisions[1] <= upper + SLACK)).all():
            found = own_decisions[0]
        for i in sorted(np.flatnonzero(inside), key=lambda i: -total[i, 0]):
            utility = problem.offset + total[i, 0]
            if found is not None and utility <= found:
                break
            if i not in realised:
                realised[i] = is_realised(problem, sum(patterns[a][j] for a, j in enumerate(choices[i])).astype(bool))
            if realised[i]:
                found = utility
                break
        best.append(found)
    return best


def is_realised(problem, decisions):
    """Tell whether some z decides so."""
    return deepest(np.column_stack([problem.margin, -problem.contrasts]), decisions) > 1e-9


def deepest(vectors, decisions):
    """Return by a linear program over all rows how deep a rule that decides so can be at most."""
    rows = vectors * np.where(decisions, 1.0, -1.0)[:, None]
    size = np.abs(rows).sum(axis=1)
    k = rows.shape[1] - 1
    program = linprog(
        np.append(np.zeros(k + 1), -1.0),
        np.vstack([np.column_stack([-rows, size]), [-1.0, *np.zeros(k), 1.0]]),
        np.zeros(len(rows) + 1),
        bounds=[(0.0, 1.0), *[(-1.0, 1.0)] * k, (None, 1.0)],
    )
    return -program.fun


def assert_is(result, truth, problem, step=0):
    if truth is None:
        assert isinstance(result, NoRule)
        assert result.proven
        return
    assert not isinstance(result, NoRule)
    assert result.utility == pytest.approx(truth, abs=1e-9)
    assert result.status == "optimal"
    utility, values = problem.evaluate(problem.decide(np.array(result.z)))
    assert utility == result.utility
    assert feasible(problem, values, step)
    assert problem.strictly_inside(np.array(result.z))


@settings(max_examples=40)
@given(seed=seeds, kind=st.sampled_from(KINDS), sizes=st.sampled_from([(4, 4), (3, 5), (3, 3, 3)]), k=st.integers(2, 4))
def test_blocks_of_any_kind_are_solved_as_brute_force_over_every_cell_does(seed, kind, sizes, k):
    problem = block_problem(seed, sizes=sizes, k=k, kind=kind)
    assert_is(Certified(max_seconds=None).solve(problem)[0], best_by_all_cells(problem), problem)


@settings(max_examples=60)
@example(seed=4182549591, kind="weighted", sizes=[24, 8, 62, 6])  # two planes of a range are nearly parallel
@given(seed=seeds, kind=st.sampled_from(KINDS), sizes=st.lists(st.integers(3, 40), min_size=2, max_size=4))
def test_blocks_in_the_plane_are_solved_as_all_pairs_of_lines_are(seed, kind, sizes):
    """The lines of a block meet in a point, where no box is small enough to be cut by few of them."""
    problem = block_problem(seed, sizes=sizes, k=2, kind=kind)
    assert_is(Certified(max_seconds=None).solve(problem)[0], best_by_all_pairs_of_lines(problem), problem)


CRITERIA = [
    eh.DemographicParity(),
    eh.EqualizedOdds(),
    eh.EqualOpportunity(),
    eh.SelectionRatio(0.8),
    eh.MinimumRate("tpr", 0.6),
    eh.MinimumRate("selection_rate", 0.5) & eh.SelectionBudget(upper=0.7),
    eh.EqualizedOdds() & eh.SelectionBudget(),
]


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
@pytest.mark.parametrize(("groups", "n"), [(2, 16), (3, 15), (4, 17)])
@pytest.mark.parametrize("seed", range(4))
def test_the_search_equals_brute_force_over_the_thresholds_of_all_groups(criterion, groups, n, seed):
    problem, codes, p = known_problem(
        seed, groups=groups, n=n, criterion=criterion, weighted=seed % 2 == 1, tied=seed >= 2
    )
    assert_is(Certified(max_seconds=None).solve(problem)[0], best_of_all_thresholds(problem, codes, p)[0], problem)


@settings(max_examples=30)
@given(seed=seeds, groups=st.integers(2, 3), eo=st.booleans(), weighted=st.booleans(), tied=st.booleans())
def test_a_ladder_is_solved_as_brute_force_over_thresholds_does(seed, groups, eo, weighted, tied):
    tolerances = [0.0, 0.05, 0.15, 0.3, 0.6]
    problem, codes, p = known_problem(
        seed, groups=groups, n=14, criterion="eo" if eo else "dp", tolerance=tolerances, weighted=weighted, tied=tied
    )
    truth = best_of_all_thresholds(problem, codes, p)
    for step, result in enumerate(Certified(max_seconds=None).solve(problem)):
        assert_is(result, truth[step], problem, step)


@settings(max_examples=25)
@given(seed=seeds, eo=st.booleans(), n=st.integers(60, 300), weighted=st.booleans(), tied=st.booleans())
def test_boxes_and_thresholds_have_the_same_optimum(seed, eo, n, weighted, tied):
    problem, _, _ = known_problem(
        seed, groups=2 if eo else 3, n=n, criterion="eo" if eo else "dp", tolerance=[0.003, 0.02, 0.1],
        weighted=weighted, tied=tied,
    )  # fmt: skip
    assert may_have_blocks(problem)
    for step, (one, other) in enumerate(
        zip(Certified(max_seconds=None).solve(problem), by_boxes(problem, max_visits=10**9), strict=True)
    ):
        assert_is(one, None if isinstance(other, NoRule) else other.utility, problem, step)


@pytest.mark.parametrize("criterion", ["dp", "eo"])
@pytest.mark.parametrize("groups", [3, 5])
def test_known_groups_take_this_path_and_are_proven(criterion, groups, taken):
    problem, codes, _ = known_problem(0, groups=groups, n=3000, criterion=criterion, tolerance=0.05)
    found = Certified().solve(problem)[0]
    assert len(taken) == 1
    assert sorted(len(block.planes) for block in taken[0]) == sorted(np.bincount(codes))
    assert found.stopped is None
    assert isinstance(found, NoRule) or found.status == "optimal"


@pytest.mark.parametrize("kind", KINDS)
def test_an_ordinary_problem_never_takes_this_path(kind, taken, monkeypatch):
    monkeypatch.setattr(certified, "_solve_by_boxes", lambda problem, *_: [NoRule(proven=False)] * len(problem.lower))
    # Where many numbers are 0, or all are small and whole, few rows in few dimensions may well lie in a few blocks.
    few = kind not in ("tied", "degenerate")
    for seed, k, n in itertools.product(range(20), (2, 3, 5) if few else (3, 5), (8, 40, 200) if few else (40, 200)):
        Certified().solve(random_problem(seed, n=n, k=k, kind=kind))
    assert not taken


@pytest.mark.parametrize("criterion", ["eo", eh.EqualizedOdds() & eh.SelectionBudget()])
def test_groups_that_are_inferred_never_take_this_path(criterion, taken):
    data = eh.datasets.make_zafar(500, random_state=0)
    eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion=criterion, tolerance=0.3)
    assert not taken


def test_groups_that_only_some_rows_know_are_left_to_the_boxes(taken):
    rng = np.random.default_rng(0)
    problem = block_problem(0, sizes=(50, 50), k=3, tolerance=0.3)
    inferred = rng.random(100) < 0.5
    contrasts = problem.contrasts + inferred[:, None] * rng.normal(size=(100, 3))
    Certified(max_nodes=5).solve(replace(problem, contrasts=contrasts))
    assert not taken


def test_small_groups_and_single_rows_are_blocks_too():
    rng = np.random.default_rng(0)
    sizes = (400, 40, 2, 1)
    spanned = rng.normal(size=(4, 2, 5))
    group = rng.permutation(np.repeat(np.arange(4), sizes))
    vectors = np.einsum("ij,ijk->ik", rng.normal(size=(443, 2)), spanned[group])
    blocks = blocks_of(vectors)
    assert sorted(len(block.planes) for block in blocks) == [1, 2, 40, 400]
    for block in blocks:
        # Two rows are a block whatever they are.
        assert len(block.planes) <= 2 or len(set(group[block.planes])) == 1


pattern_at = njit(lambda *arguments: kernels._pattern_at(*arguments))
patterns = njit(lambda *arguments: kernels._patterns(*arguments))


@settings(max_examples=40)
@given(
    seed=seeds, kind=st.sampled_from(["plain", "weighted", "tied"]), sizes=st.sampled_from([(1, 6), (5, 8), (3, 9, 17)])
)
def test_the_leaf_of_a_point_has_the_sums_of_its_decisions(seed, kind, sizes):
    problem = block_problem(seed, sizes=sizes, k=3, kind=kind)
    planes, scale, constant, _ = planes_of(problem)
    blocks = blocks_of(planes[:, :4])
    if blocks is None:  # ties may leave too few planes
        return
    forest, turned = forest_of(planes, blocks)
    rng = np.random.default_rng(seed)
    for z in rng.normal(size=(20, 3)) * rng.choice([0.1, 1.0, 10.0], size=(20, 1)):
        point = np.concatenate([[1.0], z * scale])
        leaves = [pattern_at(forest, a, point / np.abs(point).max()) for a in range(len(blocks))]
        if 0 in leaves:
            continue
        nodes = forest.first_node + leaves
        values = (constant + turned)[1:] + np.einsum("acq,aq->c", forest.coefficients, forest.rates[nodes, :, 0])
        utility, expected = problem.evaluate(problem.decide(z))
        assert (constant + turned)[0] + forest.gains[nodes].sum() == pytest.approx(utility, abs=1e-12)
        np.testing.assert_allclose(values, expected, atol=1e-12)


realise = njit(lambda *arguments: kernels._realise(*arguments))


@settings(max_examples=40)
@given(seed=seeds, k=st.integers(2, 5), n=st.integers(3, 60))
def test_a_choice_is_realised_or_proven_not_to_be_as_a_linear_program_over_all_planes_says(seed, k, n):
    problem = block_problem(seed, sizes=(n, n, n), k=k)
    planes = planes_of(problem)[0]
    forest, _ = forest_of(planes, blocks_of(planes[:, : k + 1]))
    rng = np.random.default_rng(seed)
    some = [np.concatenate([[1.0], z]) / np.abs(z).max() for z in rng.normal(size=(5, k)) * 10.0]
    leaves = [np.array([pattern_at(forest, a, point) for a in range(3)]) for point in some]
    leaves += [rng.integers(2, 4, 3) * forest.width + rng.integers(0, forest.n_planes) for _ in range(5)]
    for chosen in leaves:
        found = [patterns(chosen[a], forest.width[a], forest.n_planes[a]) for a in range(3)]
        sides = [side for side, _, _ in found]
        first = np.concatenate([np.arange(forest.n_planes[a]) <= found[a][1] for a in range(3)])
        truth = deepest(forest.vectors, first == (np.repeat(sides, forest.n_planes) > 0))
        point = np.empty(k + 1)
        depth, most, _ = realise(forest, chosen, point, kernels.Realising.room(3, k + 1))
        assert depth - 1e-9 <= truth <= most + 1e-9
        assert (depth > 1e-11) != (most <= 1e-11)
        if depth > 1e-11:
            assert truth > 0.0
            assert [pattern_at(forest, a, point) for a in range(3)] == list(chosen)


def test_the_kernels_have_the_cache_that_never_ends_a_call():
    found = [value for value in vars(kernels).values() if isinstance(value, Dispatcher)]
    assert kernels.branch_ranges in found
    assert all(type(kernel._cache) is _compiled._LastingCache for kernel in found)


@settings(max_examples=30)
@given(seed=seeds, n=st.integers(1, 40))
def test_a_node_has_the_extremes_of_its_patterns(seed, n):
    rng = np.random.default_rng(seed)
    planes = np.column_stack([rng.normal(size=(n, 2)), np.zeros(n), rng.normal(size=(n, 3))])
    pair = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    forest, _ = forest_of(planes, [Block(np.arange(n), pair), Block(np.arange(1), planes[[0, 0], :3])])
    width = int(forest.width[0])
    gains, rates = forest.gains[: 4 * width], forest.rates[: 4 * width]
    for node in range(2, 4 * width):
        side, first, last = patterns(node, width, n)
        if first > last:
            assert gains[node] == -np.inf
            continue
        leaves = (2 if side > 0 else 3) * width + np.arange(first, last + 1)
        assert gains[node] == gains[leaves].max()
        np.testing.assert_array_equal(rates[node, :, 0], rates[leaves, :, 0].min(axis=0))
        np.testing.assert_array_equal(rates[node, :, 1], rates[leaves, :, 1].max(axis=0))
    np.testing.assert_array_equal(gains[1], gains[2:4].max())


def test_rates_that_many_constraints_share_are_kept_once():
    problem, _, _ = known_problem(0, groups=4, n=200, criterion="eo")
    planes, *_ = planes_of(problem)
    forest, _ = forest_of(planes, blocks_of(planes[:, : problem.dimension + 1]))
    assert problem.effects.shape[1] == 12
    assert forest.rates.shape[1] == 2


@pytest.mark.parametrize("options", [{"max_visits": 3_000}, {"max_nodes": 30}])
def test_a_search_that_is_cut_short_leaves_a_true_bound(options, taken):
    problem, _, _ = known_problem(1, groups=4, n=2000, criterion="dp", tolerance=0.1)
    whole, short = Certified().solve(problem)[0], Certified(**options).solve(problem)[0]
    assert len(taken) == 2
    assert whole.status == "optimal"
    assert short.stopped == ("work" if "max_visits" in options else "nodes")
    assert short.nodes <= 32 or "max_visits" in options
    assert whole.utility <= short.upper_bound + 1e-12 < np.inf
    assert isinstance(short, NoRule) or short.utility <= whole.utility


def test_ranges_that_do_not_fit_end_the_search_with_a_true_bound(monkeypatch):
    problem, _, _ = known_problem(1, groups=4, n=2000, criterion="dp", tolerance=0.1)
    whole = Certified().solve(problem)[0]
    monkeypatch.setattr(known_groups, "RANGES_AT_FIRST", 4)
    assert Certified().solve(problem)[0] == whole
    monkeypatch.setattr(known_groups, "MOST_RANGES", 8)
    short = Certified().solve(problem)[0]
    assert short.stopped == "work"
    assert short.utility <= whole.utility <= short.upper_bound


def test_a_gap_that_was_asked_for_is_kept():
    problem, _, _ = known_problem(2, groups=4, n=2000, criterion="dp", tolerance=0.1)
    exact, loose = Certified().solve(problem)[0], Certified(gap=0.01).solve(problem)[0]
    assert loose.nodes < exact.nodes
    assert loose.utility <= exact.utility <= loose.upper_bound + 1e-12
    assert loose.gap <= 0.01 + 1e-9


def test_what_is_not_proven_at_once_starts_again_from_good_rules(monkeypatch):
    problem, _, _ = known_problem(3, groups=4, n=1000, criterion="dp", tolerance=0.1)
    whole = Certified().solve(problem)[0]
    monkeypatch.setattr(certified, "VISITS_OF_GROUPS_AT_ONCE", 1)
    again = Certified().solve(problem)[0]
    assert again.status == "optimal"
    assert again.utility == pytest.approx(whole.utility, abs=1e-12)


def test_only_rules_count_and_not_every_choice_of_thresholds():
    """Two groups of one z: no z moves both thresholds the same way, although that choice alone would be best."""
    margin, group = np.array([-0.2, -0.1, 0.1, 0.2] * 2), np.repeat([0, 1], 4)
    contrasts = np.column_stack([np.where(group == 0, 1.0, -1.0), np.zeros(8)])
    contrasts[:, 1] = 1e-3 * contrasts[:, 0] * margin
    gain = np.where(margin > -0.15, 1.0, -1.0) / 8
    bounds = np.full(2, 1.0)
    problem = Problem(margin, contrasts, gain, np.zeros((8, 2)), -bounds, bounds)
    truth = best_by_all_cells(problem)
    found = Certified(max_seconds=None).solve(problem)[0]
    assert truth < np.maximum(gain, 0.0).sum()
    assert_is(found, truth, problem)
