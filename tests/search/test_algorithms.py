from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from evenhand.errors import InputError
from evenhand.search import Certified, Directions, Dual, Lines, NoRule, Problem, lines
from evenhand.search import problem as problem_module
from evenhand.search.closest import loosening
from evenhand.search.dual import solve_linear_program
from evenhand.search.sweep import Best, sweep_line
from oracles import best_by_all_cells, dual_value
from problems import KINDS, random_problem

seeds = st.integers(0, 2**32 - 1)


def plug_in_problem(seed, n, k, tolerance):
    """A problem whose evidence is its own probabilities: gain = margin, effects = contrasts."""
    rng = np.random.default_rng(seed)
    margin, contrasts = rng.uniform(-1, 1, n), rng.normal(size=(n, k))
    return Problem(margin, contrasts, margin / n, contrasts / n, np.full(k, -tolerance), np.full(k, tolerance), 0.3)


@settings(max_examples=30)
@given(seed=seeds, n=st.integers(20, 200), k=st.integers(1, 3), tolerance=st.sampled_from([0.02, 0.1, 0.5]))
def test_the_dual_has_no_gap_to_the_primal(seed, n, k, tolerance):
    problem = plug_in_problem(seed, n, k, tolerance)
    plug_in = solve_linear_program(problem)
    assert plug_in is not None
    assert dual_value(problem, plug_in.multipliers) == pytest.approx(plug_in.value, abs=1e-9)
    for shift in np.random.default_rng(seed).normal(size=(20, k)) * 0.1:
        assert dual_value(problem, plug_in.multipliers + shift) >= plug_in.value - 1e-9


@settings(max_examples=30)
@given(seed=seeds, n=st.integers(20, 200), k=st.integers(1, 3))
def test_the_dual_rule_decides_as_the_linear_program_does_off_its_boundary(seed, n, k):
    problem = plug_in_problem(seed, n, k, 0.1)
    plug_in = solve_linear_program(problem)
    fair = problem.margin - problem.contrasts @ plug_in.z
    clear = np.abs(fair) > 1e-7
    assert clear.sum() >= n - k
    np.testing.assert_allclose(plug_in.decisions[clear], fair[clear] > 0, atol=1e-7)


@settings(max_examples=25)
@given(seed=seeds, n=st.integers(30, 150), k=st.integers(1, 2), tolerance=st.sampled_from([0.05, 0.2]))
def test_with_model_evidence_certified_is_within_k_rows_of_the_linear_program(seed, n, k, tolerance):
    problem = plug_in_problem(seed, n, k, tolerance)
    plug_in = solve_linear_program(problem)
    result = Certified().solve(problem)[0]
    if isinstance(result, NoRule):
        assert tolerance < 0.1
        return
    assert result.utility <= problem.offset + plug_in.value + 1e-9
    heaviest = np.sort(np.abs(problem.margin))[-k:].sum() / n
    slack = 2.0 * k * np.abs(problem.effects).max() * np.abs(plug_in.multipliers).sum()
    assert result.utility >= problem.offset + plug_in.value - heaviest - slack


def test_the_dual_answers_a_program_written_by_hand():
    """Two rows: deciding only the first is worth 0.6 / 2 and has value 0.5, of which half is allowed."""
    problem = Problem(
        np.array([0.6, -0.2]),
        np.array([[1.0], [0.0]]),
        np.zeros(2),
        np.zeros((2, 1)),
        np.array([-0.25]),
        np.array([0.25]),
    )
    plug_in = solve_linear_program(problem)
    assert plug_in.value == pytest.approx(0.15)
    assert plug_in.z == pytest.approx([0.6])


@settings(max_examples=20)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(3, 40))
def test_one_sided_bounds_are_one_sided_in_the_dual(seed, kind, n):
    problem = random_problem(seed, n=n, k=2, kind=kind)
    problem = Problem(
        problem.margin, problem.contrasts, problem.gain, problem.effects, np.full(2, -np.inf), problem.upper
    )
    plug_in = solve_linear_program(problem)
    if plug_in is not None:
        assert (plug_in.multipliers >= -1e-9).all()


def test_dual_says_plug_in_and_recomputes_on_the_evidence():
    problem = random_problem(0, n=300, k=2, tolerance=0.1)
    result = Dual().solve(problem)[0]
    utility, values = problem.evaluate(problem.decide(np.array(result.z)))
    assert (result.status, result.utility, result.values) == ("plug-in", utility, tuple(values))


@pytest.mark.parametrize("kind", KINDS)
def test_more_directions_are_never_worse_and_two_are_exact_on_the_line(kind):
    plane = random_problem(1, n=200, k=2, kind=kind, tolerance=0.3)
    few, many = (Directions(n).solve(plane)[0] for n in (30, 360))
    assert many.utility >= few.utility - 1e-12
    line = random_problem(1, n=200, k=1, kind=kind, tolerance=0.3)
    assert Directions(1).solve(line)[0].utility == pytest.approx(Certified().solve(line)[0].utility)


def test_a_subsample_of_lines_is_seeded_and_grows_to_the_optimum():
    problem = random_problem(2, n=150, k=2, tolerance=0.05)
    first, again = (Lines(m=20).solve(problem, random_state=5)[0] for _ in range(2))
    assert first == again
    assert first.status == "found"
    assert first.utility <= Lines().solve(problem)[0].utility + 1e-12
    assert Lines(m=150).solve(problem, random_state=0)[0].utility == pytest.approx(
        Certified().solve(problem)[0].utility
    )


def problem_of_few_directions(seed):
    """A problem of round numbers, half of them with parallel lines only: rounding makes crossings."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    margin = rng.integers(-5, 6, n) * rng.choice([1.0, 0.1, 0.3])
    contrasts = rng.integers(-2, 3, (n, 2)) * rng.choice([1.0, 0.1, 0.7])
    if seed % 2:
        contrasts[:, 1] = contrasts[:, 0] * rng.choice([1.0, -1.0, 3.0])
    gain, effects = rng.choice([-1.0, 1.0], n) / n, rng.choice([-1.0, 0.0, 1.0], (n, 2)) / n
    bounds = np.array([[0.1, 0.1], [0.3, 0.3]])
    return Problem(margin, contrasts, gain, effects, -bounds, bounds)


@settings(max_examples=25)
@given(seed=seeds)
@example(seed=3)
@example(seed=29)
@example(seed=46)
@example(seed=75)
@example(seed=174)
@example(seed=338)
def test_lines_that_are_parallel_or_meet_in_one_point_hide_no_cell(seed):
    problem = problem_of_few_directions(seed)
    for step, found in enumerate(Lines().solve(problem)):
        truth = best_by_all_cells(problem, step)
        if truth is None:
            assert isinstance(found, NoRule)
            assert found.proven
        else:
            assert (found.status, found.utility) == ("optimal", pytest.approx(truth))


@pytest.mark.parametrize(("tolerance", "outcome"), [(0.3, "gap"), (0.1, NoRule)])
def test_lines_prove_nothing_about_a_cell_that_they_found_no_point_in(monkeypatch, tolerance, outcome):
    problem = random_problem(5, n=20, k=2, tolerance=tolerance)
    truth = Lines().solve(problem)[0]
    assert truth.status == "optimal"
    monkeypatch.setattr(lines, "_step_off", lambda problem, z, side: z)
    found = Lines().solve(problem)[0]
    if outcome is NoRule:
        assert isinstance(found, NoRule)
        assert not found.proven
        assert found.upper_bound >= truth.utility
    else:
        assert found.status == outcome
        assert found.utility < truth.utility <= found.upper_bound + 1e-12


def test_lines_beyond_the_plane_need_a_number():
    problem = random_problem(2, n=30, k=3)
    with pytest.raises(InputError, match="Lines\\(m="):
        Lines().solve(problem)
    found = Lines(m=200).solve(random_problem(2, n=30, k=3, tolerance=0.5), random_state=0)[0]
    assert not isinstance(found, NoRule)


@settings(max_examples=25)
@given(seed=seeds, n=st.integers(2, 25), k=st.integers(1, 2))
def test_the_smallest_excess_is_met_and_nothing_below_it_is(seed, n, k):
    problem = random_problem(seed, n=n, k=k, tolerance=0.0)
    found = loosening(problem, np.ones(k, dtype=bool))
    assert found is not None
    extra, exact = found
    assert exact
    bounds = np.full(k, extra)
    at = Problem(problem.margin, problem.contrasts, problem.gain, problem.effects, -bounds, bounds)
    assert not isinstance(Certified().solve(at)[0], NoRule)
    if extra > 1e-9:
        below = Problem(
            problem.margin, problem.contrasts, problem.gain, problem.effects, -bounds * 0.999, bounds * 0.999
        )
        assert isinstance(Certified().solve(below)[0], NoRule)


def test_linear_program_agrees_with_a_second_formulation():
    problem = plug_in_problem(11, 120, 2, 0.1)
    n = len(problem.margin)
    # The dual written out with slack variables: min sum s / n + 0.1 * sum |lambda|.
    g = problem.contrasts
    objective = np.concatenate([np.full(n, 1 / n), np.full(4, 0.1)])
    rows = np.column_stack([-np.eye(n), -g, g])
    result = linprog(objective, A_ub=rows, b_ub=-problem.margin, bounds=(0, None))
    assert result.fun == pytest.approx(solve_linear_program(problem).value, abs=1e-9)


@pytest.mark.parametrize("make", [lambda: Directions(0), lambda: Lines(m=0)])
def test_searches_refuse_to_look_at_nothing(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(
    "change",
    [
        {"gain": np.zeros(3)},
        {"effects": np.zeros((4, 3))},
        {"margin": np.full(4, np.nan)},
        {"lower": np.array([[0.0, 0.0], [0.1, 0.0]]), "upper": np.ones((2, 2))},
    ],
)
def test_arrays_that_do_not_fit_are_refused(change):
    arrays = {
        "margin": np.zeros(4), "contrasts": np.zeros((4, 2)), "gain": np.zeros(4), "effects": np.zeros((4, 2)),
        "lower": np.zeros(2), "upper": np.zeros(2),
    }  # fmt: skip
    Problem(**arrays)
    with pytest.raises(InputError):
        Problem(**{**arrays, **change})


def test_a_point_on_a_line_is_checked_where_it_is():
    # Best between the first and the second row; its mirror image is on the third row's hyperplane.
    margin, contrasts = np.array([1.0, 3.0, -2.0]), np.array([[1.0, 0.1], [1.0, 0.2], [1.0, 0.3]])
    gain = np.array([-1.0, 1.0, -0.5])
    problem = Problem(margin, contrasts, gain, np.zeros((3, 2)), np.full(2, -1.0), np.full(2, 1.0), 0.0)
    best = Best.none(problem)
    assert sweep_line(problem, problem.table, np.zeros(2), np.array([1.0, 0.0]), best)
    assert best.utility[0] == 1.0
    assert 1.0 < best.z[0, 0] < 3.0


def test_only_a_search_that_looked_everywhere_says_that_there_is_no_rule():
    for k, search, proven in (
        (1, Certified(), True),
        (2, Certified(), True),
        (2, Directions(8), False),
        (2, Lines(8), False),
        (2, Dual(), False),
    ):
        problem = random_problem(3, n=30, k=k, tolerance=0.1)
        nowhere = dataclasses.replace(problem, lower=np.full((1, k), 2.0), upper=np.full((1, k), 3.0))
        found = search.solve(nowhere, random_state=0)[0]
        assert isinstance(found, NoRule)
        assert found.proven is proven


@pytest.mark.parametrize("seed", range(10, 30))
def test_the_plug_in_rule_is_in_the_best_cell_that_meets_the_programs_optimum(seed):
    problem = random_problem(seed, n=60, k=2, tolerance=0.05)
    plug_in = solve_linear_program(problem)
    level = problem.margin - problem.contrasts @ plug_in.z
    tight = np.abs(level) <= 1e-9
    assert tight.any()
    found = Dual().solve(problem)[0]
    decided = problem.decide(np.array(found.z))
    assert (decided == (level > 0.0))[~tight].all()
    ranks = []
    for sides in itertools.product((-1.0, 1.0), repeat=2):
        nearby = plug_in.z + 1e-7 * np.linalg.lstsq(problem.contrasts[tight], np.array(sides)[: tight.sum()])[0]
        utility, values = problem.evaluate(problem.decide(nearby))
        ranks.append((problem.excess(values, 0), -utility))
    utility, values = problem.evaluate(decided)
    assert (problem.excess(values, 0), -utility) == pytest.approx(min(ranks), abs=1e-12)


def test_a_problem_has_even_weights_by_default_and_steps_may_repeat():
    one = Problem(np.ones(1), np.ones((1, 1)), np.ones(1), np.ones((1, 1)), np.array([-0.1]), np.array([0.1]), 0.0)
    assert one.weight.tolist() == [1.0]
    assert random_problem(0, n=8, k=2, tolerance=0.1).weight.sum() == pytest.approx(1.0)
    twice = dataclasses.replace(one, lower=np.full((2, 1), -0.1), upper=np.full((2, 1), 0.1))
    first, second = Certified().solve(twice)
    assert first == dataclasses.replace(second, seconds=first.seconds)


def test_a_point_on_a_rows_plane_is_not_inside_a_cell():
    margin, contrasts = np.array([1.0, -0.2]), np.array([[0.5, 0.0], [0.0, 3.0]])
    problem = Problem(margin, contrasts, np.ones(2), np.zeros((2, 2)), np.full(2, -1.0), np.full(2, 1.0), 0.0)
    assert problem.strictly_inside(np.array([1.0, 1.0]))
    assert not problem.strictly_inside(np.array([2.0, 1.0]))
    assert not problem.strictly_inside(np.array([1.0, -0.2 / 3.0]))


@pytest.mark.parametrize("wanted", [False, True])
def test_both_sides_of_a_line_are_looked_at(wanted):
    # The best cell is a triangle far from z = 0, inside which every row is decided as wanted.
    angles = 2.0 * np.pi * np.arange(3) / 3.0
    contrasts = np.column_stack([np.cos(angles), np.sin(angles)])
    sign = 1.0 if wanted else -1.0
    margin = contrasts @ [5.0, 3.0] + sign
    problem = Problem(margin, contrasts, np.full(3, sign), np.zeros((3, 2)), np.full(2, -1.0), np.full(2, 1.0), 0.0)
    found = Lines().solve(problem)[0]
    assert found.utility == (3.0 if wanted else 0.0)
    assert (problem.decide(np.array(found.z)) == wanted).all()


def test_a_rule_that_was_counted_is_remembered(monkeypatch):
    monkeypatch.setattr(problem_module, "MOST_REMEMBERED", 3)
    asked = []

    def decider(z):
        asked.append(z)
        return plain.decide(z)

    plain = random_problem(0, n=30, k=2)
    problem = dataclasses.replace(plain, decider=decider)
    points = np.random.default_rng(0).normal(size=(3, 2))
    for z in (*points, *points):
        utility, values = problem.counted(z)
        expected = plain.evaluate(plain.decide(z))
        assert utility == expected[0]
        np.testing.assert_array_equal(values, expected[1])
        values[:] = np.nan  # a caller's own
    assert len(asked) == 3
    problem.counted(np.ones(2))  # one too many: the others are forgotten
    problem.counted(points[0])
    assert len(asked) == 5
    dataclasses.replace(problem).counted(points[0])
    assert len(asked) == 6
