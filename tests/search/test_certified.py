from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.errors import InputError
from evenhand.search import Certified, Directions, Lines, NoRule, Problem, budget, certified, stack
from evenhand.search.arrangement import faces, pieces
from evenhand.search.budget import Budget
from evenhand.search.kernels.branch import WORK_A_BOX
from oracles import best_by_all_cells, best_by_all_pairs_of_lines, best_threshold
from problems import KINDS, assert_never_behind, feasible, random_problem

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(KINDS)


def utility_of(result):
    return None if isinstance(result, NoRule) else result.utility


def assert_same_optimum(problem, truth, search=None):
    result = (Certified(max_seconds=None) if search is None else search).solve(problem)[0]
    if truth is None:
        assert isinstance(result, NoRule)
        assert result.proven
        return
    assert not isinstance(result, NoRule)
    assert result.utility == pytest.approx(truth, abs=1e-9)
    assert result.status == "optimal"
    assert result.gap == 0.0
    utility, values = problem.evaluate(problem.decide(np.array(result.z)))
    assert utility == result.utility
    assert tuple(values) == result.values
    assert feasible(problem, values)


@given(seed=seeds, kind=kinds, n=st.integers(1, 60))
def test_certified_search_equals_brute_force_on_the_line(seed, kind, n):
    problem = random_problem(seed, n=n, k=1, kind=kind)
    assert_same_optimum(problem, best_threshold(problem))


@settings(max_examples=40)
@given(seed=seeds, kind=kinds, n=st.integers(1, 8))
def test_certified_search_equals_brute_force_over_every_cell_of_the_plane(seed, kind, n):
    problem = random_problem(seed, n=n, k=2, kind=kind)
    assert_same_optimum(problem, best_by_all_cells(problem))


@settings(max_examples=40)
@given(seed=seeds, kind=kinds, n=st.integers(1, 7))
def test_certified_search_equals_brute_force_over_every_cell_of_space(seed, kind, n):
    problem = random_problem(seed, n=n, k=3, kind=kind)
    assert_same_optimum(problem, best_by_all_cells(problem))


@pytest.mark.parametrize("k", [2, 3, 4])
def test_every_face_is_searched_without_help_from_the_smoothed_search(k, monkeypatch):
    monkeypatch.setattr(certified._Run, "start", lambda *_: None)
    unit = np.eye(k)
    for axis, far in itertools.product(range(k), (-40.0, 0.0, 40.0)):
        # Two rows want z to be near ``far`` along one axis, and two of each other axis want it to be near 0 there.
        pairs = [(far * (a == axis) * unit[a], unit[a]) for a in range(k)]
        contrasts = np.array([sign * e for _, e in pairs for sign in (1.0, -1.0)])
        margin = np.array([sign * centre.sum() + 1.0 for centre, _ in pairs for sign in (1.0, -1.0)])
        bounds = np.full((2, 1, k), [[[-1.0]], [[1.0]]])
        gain = np.full(2 * k, 1.0 / (2 * k))
        problem = Problem(margin, contrasts, gain, np.zeros((2 * k, k)), *bounds, 0.0)
        found = Certified(max_seconds=None).solve(problem)[0]
        assert found.utility == pytest.approx(1.0)
        assert found.z[axis] == pytest.approx(far, abs=1.0)


@pytest.mark.parametrize("k", [1, 2, 5, 6, 8, 40])
def test_the_parts_of_a_face_are_not_too_many_and_cover_it(k):
    for centre, radius in faces(k):
        parts = pieces(centre, radius)
        sides = radius > 0.0
        assert len(parts) == 2 ** min(k, 6)
        assert len({tuple(middle) for middle, _ in parts}) == len(parts)
        assert all((np.abs(middle - centre) + half <= radius).all() for middle, half in parts)
        assert sum(np.prod(half[sides]) for _, half in parts) == pytest.approx(np.prod(radius[sides]))


@settings(max_examples=60)
@given(seed=seeds, kind=kinds, n=st.integers(10, 120))
def test_certified_search_equals_all_pairs_of_lines(seed, kind, n):
    problem = random_problem(seed, n=n, k=2, kind=kind)
    assert_same_optimum(problem, best_by_all_pairs_of_lines(problem))


@pytest.mark.parametrize(("seed", "kind"), list(enumerate(KINDS)))
def test_certified_search_equals_all_pairs_of_400_lines(seed, kind):
    problem = random_problem(seed, n=400, k=2, kind=kind, tolerance=[0.3, 0.05, 0.01, 0.002, 0.02, 0.1][seed])
    assert_same_optimum(problem, best_by_all_pairs_of_lines(problem))


@settings(max_examples=40)
@given(seed=seeds, kind=kinds, n=st.integers(2, 80))
def test_algorithm_2_with_all_lines_is_the_certified_optimum(seed, kind, n):
    problem = random_problem(seed, n=n, k=2, kind=kind)
    certified = utility_of(Certified().solve(problem)[0])
    lines = utility_of(Lines().solve(problem)[0])
    assert (lines is None) == (certified is None)
    if certified is not None:
        assert lines == pytest.approx(certified, abs=1e-9)


@settings(max_examples=40)
@given(seed=seeds, kind=kinds, n=st.integers(2, 80), k=st.integers(1, 3))
def test_the_papers_algorithms_never_beat_the_certified_optimum(seed, kind, n, k):
    problem = random_problem(seed, n=n, k=k, kind=kind)
    certified = Certified(max_visits=50_000_000).solve(problem)[0]
    for search in (Directions(24), Lines(m=10)):
        found = search.solve(problem, random_state=0)[0]
        if isinstance(found, NoRule):
            continue
        assert feasible(problem, np.array(found.values))
        assert not isinstance(certified, NoRule) or not certified.proven
        if not isinstance(certified, NoRule):
            assert found.utility <= certified.upper_bound + 1e-9


@settings(max_examples=30)
@given(seed=seeds, kind=kinds, n=st.integers(2, 60), k=st.integers(1, 2))
def test_a_ladder_gives_what_each_step_gives_alone(seed, kind, n, k):
    alone = random_problem(seed, n=n, k=k, kind=kind if kind != "asymmetric" else "plain")
    tolerances = np.array([0.0, 0.01, 0.05, 0.2, 1.0])[:, None] * np.ones(k)
    ladder = Problem(alone.margin, alone.contrasts, alone.gain, alone.effects, -tolerances, tolerances, alone.offset)
    together = [utility_of(result) for result in Certified().solve(ladder)]
    apart = [utility_of(Certified().solve(ladder.take([step]))[0]) for step in range(len(tolerances))]
    assert [u is None for u in together] == [u is None for u in apart]
    found = [u for u in together if u is not None]
    np.testing.assert_allclose(found, [u for u in apart if u is not None], atol=1e-9)
    assert (np.diff(found) >= -1e-9).all()


@settings(max_examples=25)
@given(seed=seeds, n=st.integers(2, 40), k=st.integers(1, 2))
def test_a_weight_of_three_is_three_copies(seed, n, k):
    problem = random_problem(seed, n=n, k=k)
    copies = np.random.default_rng(seed).integers(1, 4, n)
    share = copies / copies.sum() * n
    weighted = Problem(
        problem.margin, problem.contrasts, problem.gain * share, problem.effects * share[:, None], problem.lower,
        problem.upper, problem.offset,
    )  # fmt: skip
    rows = np.repeat(np.arange(n), copies)
    scale = n / copies.sum()
    copied = Problem(
        problem.margin[rows], problem.contrasts[rows], problem.gain[rows] * scale, problem.effects[rows] * scale,
        problem.lower, problem.upper, problem.offset,
    )  # fmt: skip
    first, second = Certified().solve(weighted)[0], Certified().solve(copied)[0]
    assert (utility_of(first) is None) == (utility_of(second) is None)
    if utility_of(first) is not None:
        assert utility_of(first) == pytest.approx(utility_of(second), abs=1e-9)


@settings(max_examples=25)
@given(seed=seeds, kind=kinds, n=st.integers(2, 60))
def test_the_returned_point_is_strictly_inside_its_cell(seed, kind, n):
    problem = random_problem(seed, n=n, k=2, kind=kind)
    result = Certified().solve(problem)[0]
    if isinstance(result, NoRule):
        return
    z = np.array(result.z)
    if not z.any():  # the model's own decisions: nothing is computed there
        return
    size = np.maximum(np.abs(problem.margin), np.abs(problem.contrasts * z).max(axis=1))
    crossed = np.abs(problem.contrasts).max(axis=1) > 1e-15 * np.abs(problem.margin)
    assert (np.abs(problem.margin - problem.contrasts @ z)[crossed] > 1e-13 * size[crossed]).all()


@settings(max_examples=20)
@given(seed=seeds, n=st.integers(2, 60))
def test_shuffling_the_rows_changes_nothing(seed, n):
    problem = random_problem(seed, n=n, k=2)
    order = np.random.default_rng(seed).permutation(n)
    shuffled = Problem(
        problem.margin[order], problem.contrasts[order], problem.gain[order], problem.effects[order], problem.lower,
        problem.upper, problem.offset,
    )  # fmt: skip
    first, second = utility_of(Certified().solve(problem)[0]), utility_of(Certified().solve(shuffled)[0])
    assert (first is None) == (second is None)
    if first is not None:
        assert first == pytest.approx(second, abs=1e-9)


def test_the_same_problem_gives_the_same_bits():
    problem = random_problem(3, n=500, k=2, tolerance=0.05)
    assert Certified().solve(problem)[0] == Certified().solve(problem)[0]


def test_a_gap_that_was_asked_for_is_kept():
    problem = random_problem(5, n=2000, k=2, tolerance=0.1)
    exact = Certified().solve(problem)[0]
    loose = Certified(gap=0.01).solve(problem)[0]
    assert loose.nodes < exact.nodes
    assert loose.gap <= 0.01 + 1e-9
    assert loose.utility <= exact.utility <= loose.upper_bound + 1e-9


@pytest.mark.parametrize("kind", ["tied", "degenerate"])
@pytest.mark.parametrize("k", [5, 7])
def test_boxes_where_many_planes_meet_stay_within_the_budget(k, kind):
    """Each such box is a problem of its own, whose boxes may be such problems again: all of their work counts."""
    visits = 2_000_000
    found = Certified(max_visits=visits, n_jobs=1).solve(random_problem(1, n=191, k=k, kind=kind, tolerance=0.2))[0]
    assert found.nodes * WORK_A_BOX * (2 * k + 1) <= 2 * visits


@pytest.mark.parametrize(("k", "n"), [(3, 20_000), (4, 1500), (4, 50_000)])
def test_a_budget_of_nodes_or_work_is_honoured_and_leaves_a_true_bound(k, n, monkeypatch):
    problem = random_problem(7, n=n, k=k, tolerance=0.05)
    few = Certified(max_nodes=200).solve(problem)[0]
    assert few.nodes <= 220
    assert few.stopped == "nodes"
    budgets = []
    given = Budget.of
    monkeypatch.setattr(Budget, "of", lambda *options: budgets.append(given(*options)) or budgets[-1])
    short = Certified(max_visits=20 * n).solve(problem)[0]
    assert short.stopped == "work"
    # The last boxes may go over.
    assert -16 * n - certified.BOXES_A_ROUND * stack.VISITS_TO_PREPARE_A_BOX < budgets[-1].visits <= 0
    longer = Certified(max_visits=100_000_000).solve(problem)[0]
    assert budgets[-1].visits > -0.1 * 100_000_000
    assert utility_of(longer) is None or longer.utility <= min(few.upper_bound, short.upper_bound) + 1e-9


def test_the_clock_is_a_hard_stop_and_says_so(monkeypatch):
    problem = random_problem(7, n=2_000, k=4, tolerance=0.05)
    monkeypatch.setattr(budget, "visits_a_second", lambda: np.inf)
    found = Certified(max_seconds=1e-6).solve(problem)[0]
    assert found.stopped == "time"
    assert Certified(max_nodes=10).solve(problem)[0].stopped == "nodes"


def test_seconds_are_work_and_measured_once():
    rate = budget.visits_a_second()
    assert rate == budget.visits_a_second()
    assert np.log2(rate) == np.round(np.log2(rate))


def test_an_unfinished_search_gives_the_same_answer_with_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(budget, "VISITS_BEYOND", 20_000_000)
    problem = random_problem(11, n=3_000, k=4, tolerance=0.1)
    one, two, five = (Certified(n_jobs=jobs).solve(problem)[0] for jobs in (1, 2, 5))
    assert one.stopped == "work"
    assert one == two == five


def test_the_gap_of_an_unfinished_search_is_a_bound_from_this_data(monkeypatch):
    problem = random_problem(11, n=3_000, k=4, tolerance=0.1)
    bounds = []
    for visits in (1e5, 1e7, 3e7, 1e8):
        monkeypatch.setattr(budget, "VISITS_BEYOND", visits)
        found = Certified().solve(problem)[0]
        bounds.append(found.upper_bound)
        assert found.status == ("optimal" if found.stopped is None else "found" if np.isinf(found.gap) else "gap")
    assert bounds == sorted(bounds, reverse=True)
    assert len({bound for bound in bounds if np.isfinite(bound)}) > 1


def test_a_million_identical_rows_are_one_plane():
    n = 1_000_000
    margin, contrasts = np.full(n, 0.3), np.full((n, 2), 0.5)
    problem = Problem(margin, contrasts, np.full(n, 1 / n), np.zeros((n, 2)), np.full(2, -0.1), np.full(2, 0.1), 0.0)
    result = Certified().solve(problem)[0]
    assert result.utility == pytest.approx(1.0)
    assert result.nodes < 100


@pytest.mark.parametrize("options", [{"gap": -0.1}, {"gap": np.nan}, {"max_nodes": 0}, {"max_seconds": "soon"}])
def test_nonsense_options_are_refused(options):
    with pytest.raises(InputError):
        Certified(**options)


@pytest.mark.parametrize("k", range(1, 9))
def test_the_certified_search_is_never_behind_another(k):
    """``tests/long`` does the same over many more problems."""
    assert_never_behind(random_problem(k, n=60, k=k, kind=KINDS[k % len(KINDS)], tolerance=0.3))


@settings(max_examples=40)
@given(seed=seeds, kind=kinds, n=st.integers(1, 8), k=st.integers(1, 3), above=st.sampled_from([-0.2, 0.0, 0.2]))
def test_only_what_beats_a_number_is_looked_for(seed, kind, n, k, above):
    """A rule is returned iff one beats the number; the bound holds for all rules, and is the number where none does."""
    problem = random_problem(seed, n=n, k=k, kind=kind)
    truth = best_by_all_cells(problem)
    if truth is None:
        return
    number = truth + above * float(np.abs(problem.gain).sum())
    found = Certified(max_seconds=None).solve(replace(problem, to_beat=number))[0]
    if truth > number + 1e-9:
        assert not isinstance(found, NoRule)
        assert found.utility == pytest.approx(truth, abs=1e-9)
        assert found.gap == 0.0
    else:
        assert found.upper_bound == pytest.approx(number, abs=1e-9)


@settings(max_examples=20)
@given(seed=seeds, kind=kinds, n=st.integers(1, 8), k=st.integers(2, 3))
def test_rules_to_start_from_change_nothing_but_the_work(seed, kind, n, k):
    problem = random_problem(seed, n=n, k=k, kind=kind)
    starts = tuple(np.random.default_rng(seed).normal(size=(3, k)))
    assert_same_optimum(replace(problem, starts=starts), best_by_all_cells(problem))
