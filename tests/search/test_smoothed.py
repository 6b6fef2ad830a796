"""The smoothed search: what it returns holds, on problems of every kind, and is near the best that there is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import InputError
from evenhand.search import Certified, Directions, NoRule, Problem, Smoothed, Solution, augmented, smoothed
from evenhand.search.augmented import Lagrangian, SmoothSums, minimise
from evenhand.search.dual import solve_linear_program
from evenhand.search.excerpts import Scaled, box_around, stratified_sample
from evenhand.search.smoothed import Missed, smoothed_search, usual_work
from evenhand.search.sweep import Best
from oracles import best_by_all_cells, smoothed_in_numpy
from problems import KINDS, feasible, random_problem

seeds = st.integers(0, 2**32 - 1)
QUICK = Smoothed(max_work=2e6)


def group_problem(seed, *, n, groups=4, tolerances=(0.02, 0.05, 0.1), contrast=1.0, gain=1.0):
    """Demographic parity between groups that are inferred: each pair is a constraint, so C > K for more than two."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    group[:groups] = np.arange(groups)
    x = rng.normal(size=n) + np.linspace(1.0, -1.0, groups)[group]
    noisy = np.abs(group[:, None] - np.arange(groups) + 0.7 * rng.normal(size=(n, 1)))
    p_group = np.exp(-noisy) / np.exp(-noisy).sum(axis=1, keepdims=True)
    p_y = 1.0 / (1.0 + np.exp(-1.5 * x))
    y = rng.random(n) < p_y
    share = (group[:, None] == np.arange(groups)) / np.bincount(group, minlength=groups)
    pairs = np.array([np.eye(groups)[a] - np.eye(groups)[b] for a in range(groups) for b in range(a + 1, groups)])
    density = p_group / p_group.mean(axis=0)
    basis = pairs[: groups - 1]
    bounds = np.outer(tolerances, np.ones(len(pairs)))
    return Problem(
        2.0 * p_y - 1.0, contrast * density @ basis.T, gain * np.where(y, 1.0, -1.0) / n, share @ pairs.T, -bounds,
        bounds, gain * float(1.0 - y.mean()), np.linalg.lstsq(basis.T, pairs.T)[0].T.round(12),
    )  # fmt: skip


def utilities(results):
    """Return the utility of each result, minus infinity where there is no rule."""
    return np.array([result.utility if isinstance(result, Solution) else -np.inf for result in results])


def check_results(problem, results):
    """Everything that is returned is recomputed from the rows, meets its bounds, and claims nothing more."""
    zero, values_of_zero = problem.evaluate(problem.margin > 0.0)
    assert len(results) == len(problem.lower)
    for step, result in enumerate(results):
        if isinstance(result, NoRule):
            assert isinstance(result, Missed)
            assert not result.proven
            _, values = problem.evaluate(problem.decide(np.array(result.z)))
            assert result.values == tuple(values)
            assert result.excess == problem.excess(values, step) > 0.0
            assert not feasible(problem, values_of_zero, step)
            assert result.excess <= problem.excess(values_of_zero, step)
        else:
            utility, values = problem.evaluate(problem.decide(np.array(result.z)))
            assert feasible(problem, values, step)
            assert (result.utility, result.values) == (utility, tuple(values))
            assert (result.status, result.upper_bound) == ("found", np.inf)
            if feasible(problem, values_of_zero, step):
                assert utility >= zero
    found = utilities(results)
    assert (found[1:] >= found[:-1]).all()


@settings(max_examples=25)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(1, 300), k=st.integers(1, 8))
def test_what_is_returned_meets_the_bounds_and_is_no_worse_than_z_0(seed, kind, n, k):
    problem = random_problem(seed, n=n, k=k, kind=kind)
    check_results(problem, QUICK.solve(problem, random_state=0))


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_a_ladder_of_bounds_is_answered_as_a_whole(groups):
    problem = group_problem(groups, n=1500, groups=groups, tolerances=(0.0, 0.005, 0.02, 0.02, 0.05, 0.1, 2.0))
    results = Smoothed(max_work=1e7).solve(problem)
    check_results(problem, results)
    assert isinstance(results[-1], Solution)
    assert np.isfinite(utilities(results)[2:]).all()


@settings(max_examples=15)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(20, 300), k=st.integers(1, 8))
def test_it_is_never_behind_the_rays_of_algorithm_3(seed, kind, n, k):
    problem = random_problem(seed, n=n, k=k, kind=kind)
    rays = utilities(Directions().solve(problem, random_state=7))
    assert (utilities(QUICK.solve(problem, random_state=7)) >= rays - 1e-11).all()


def test_it_is_ahead_of_algorithm_3_where_rows_are_too_many_for_all_rays():
    problem = group_problem(0, n=8000, groups=5)
    rays, found = (utilities(s.solve(problem, random_state=0)) for s in (Directions(), Smoothed(max_work=2e7)))
    assert (found > np.maximum(rays, 0.0)).all()


@settings(max_examples=15)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(2, 200))
def test_one_contrast_is_solved_exactly(seed, kind, n):
    problem = random_problem(seed, n=n, k=1, kind=kind)
    truth, found = (utilities(search.solve(problem)) for search in (Certified(), QUICK))
    assert (found >= truth - 1e-11).all()


@pytest.mark.parametrize("seed", range(12))
def test_it_is_within_two_rows_of_brute_force_on_tiny_problems(seed):
    k = 2 + seed % 2
    problem = random_problem(seed, n=9, k=k, tolerance=0.3)
    truth = best_by_all_cells(problem)
    found = QUICK.solve(problem)[0]
    if truth is None:
        assert isinstance(found, NoRule)
    else:
        assert isinstance(found, Solution)
        assert truth - 2.0 / 9.0 - 1e-9 <= found.utility <= truth + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_it_is_within_half_a_point_of_the_proven_optimum_of_the_plane(seed):
    problem = group_problem(seed, n=1000, groups=3)
    truth, found = (utilities(search.solve(problem)) for search in (Certified(), Smoothed(max_work=2e7)))
    assert (found <= truth + 1e-9).all()
    assert (found >= truth - 0.005).all()


def test_the_same_seed_gives_the_same_rules_and_none_is_seed_0():
    problem = group_problem(1, n=700)
    first, again, of_zero = (QUICK.solve(problem, random_state=state) for state in (None, None, 0))
    assert first == again == of_zero
    check_results(problem, QUICK.solve(problem, random_state=np.random.default_rng(5)))


def test_units_that_are_powers_of_two_change_no_decision():
    plain, scaled = group_problem(2, n=600), group_problem(2, n=600, contrast=2.0**10, gain=2.0**-30)
    for one, other in zip(QUICK.solve(plain), QUICK.solve(scaled), strict=True):
        assert other.utility == one.utility * 2.0**-30
        assert other.values == one.values
        np.testing.assert_array_equal(np.array(other.z) * 2.0**10, one.z)


@pytest.mark.parametrize(("contrast", "gain"), [(1e3, 1.0), (1.0, 1e-8), (1e-5, 1e12), (1e3, 1e-8)])
def test_other_units_change_little(contrast, gain):
    plain, scaled = group_problem(2, n=600), group_problem(2, n=600, contrast=contrast, gain=gain)
    results = QUICK.solve(scaled)
    check_results(scaled, results)
    np.testing.assert_allclose(utilities(results) / gain, utilities(QUICK.solve(plain)), atol=0.01)


def test_columns_of_very_different_sizes_are_searched_alike():
    plain = group_problem(2, n=600)
    sizes = np.array([1e-6, 1.0, 1e6])
    scaled = dataclasses.replace(plain, contrasts=plain.contrasts * sizes, mixing=plain.mixing / sizes)
    results = QUICK.solve(scaled)
    check_results(scaled, results)
    np.testing.assert_allclose(utilities(results), utilities(QUICK.solve(plain)), atol=0.01)


def test_z_0_is_a_candidate_where_it_lies_on_rows():
    """Every row but two has a margin of 0; z = 0 decides those 0, which is what is best here, and no other z does."""
    rng = np.random.default_rng(0)
    margin = np.zeros(40)
    margin[:2] = 1.0, -1.0
    gain = np.full(40, -1.0 / 40.0)
    gain[0] = 1.0 / 40.0
    contrasts = np.vstack([np.zeros((2, 3)), rng.normal(size=(38, 3))])
    contrasts[20:] = -contrasts[2:20][[*range(18), 0, 1]]
    problem = Problem(margin, contrasts, gain, contrasts / 40.0, np.full(3, -1.0), np.full(3, 1.0), 0.0)
    assert (problem.level(np.zeros(3)) == 0.0).sum() == 38
    result = QUICK.solve(problem)[0]
    assert result.utility == pytest.approx(1.0 / 40.0)
    assert result.z == (0.0, 0.0, 0.0)


def degenerate_problems():
    """Yield problems that have little to decide by, each with its name."""
    rng = np.random.default_rng(0)
    n, k = 60, 3
    margin, contrasts, gain = rng.normal(size=n), rng.normal(size=(n, k)), rng.choice([-1.0, 1.0], n) / n
    effects, wide = rng.normal(size=(n, k)) / n, np.full(k, 0.1)
    plain = {"margin": margin, "contrasts": contrasts, "gain": gain, "effects": effects, "lower": -wide, "upper": wide}
    yield (
        "rows all alike",
        {**plain, "margin": np.full(n, 0.3), "contrasts": np.ones((n, k)), "effects": np.ones((n, k)) / n},
    )
    yield "no contrast", {**plain, "contrasts": np.zeros((n, k))}
    yield "no margin", {**plain, "margin": np.zeros(n)}
    yield "no gain", {**plain, "gain": np.zeros(n)}
    yield "no effects", {**plain, "effects": np.zeros((n, k))}
    yield (
        "contrasts that others make up",
        {**plain, "contrasts": contrasts @ np.array([[1, 0, 1], [0, 1, 1], [0, 0, 0]])},
    )
    yield "one contrast three times", {**plain, "contrasts": np.repeat(contrasts[:, :1], 3, axis=1)}
    yield "a margin that the contrasts make up", {**plain, "margin": contrasts @ [0.3, -0.2, 0.5]}
    yield "no bounds", {**plain, "lower": np.full(k, -np.inf), "upper": np.full(k, np.inf)}
    yield "one-sided bounds", {**plain, "lower": np.full(k, -np.inf)}
    yield "bounds away from 0", {**plain, "lower": np.full(k, 0.01), "upper": np.full(k, np.inf)}
    yield "equalities", {**plain, "lower": np.zeros(k), "upper": np.zeros(k)}
    yield "bounds out of reach", {**plain, "lower": np.full(k, 5.0), "upper": np.full(k, 6.0)}
    yield "tied", {**plain, "margin": margin.round(), "contrasts": contrasts.round()}
    yield "nearly tied", {**plain, "margin": margin.round() + 1e-9 * margin, "contrasts": contrasts.round()}
    yield "tiny gains", {**plain, "gain": 1e-300 * gain}
    yield "huge gains", {**plain, "gain": 1e200 * gain}
    yield "huge contrasts", {**plain, "contrasts": 1e150 * contrasts}
    yield "an outlier", {**plain, "margin": np.where(np.arange(n) == 0, 1e12, margin)}
    yield "weights of 0", {**plain, "weight": np.zeros(n)}
    yield "one row", {name: a[:1] if len(a) == n else a for name, a in plain.items()}
    yield "no rows", {name: a[:0] if len(a) == n else a for name, a in plain.items()}
    many = rng.normal(size=(7, k))
    yield "constraints that are not among the contrasts", {
        **plain, "effects": effects @ many.T, "lower": np.full(7, -0.1), "upper": np.full(7, 0.1), "mixing": many,
    }  # fmt: skip
    yield "effects that the mixing does not make", {
        **plain, "effects": rng.normal(size=(n, 5)) / n, "lower": np.full(5, -0.1), "upper": np.full(5, 0.1),
        "mixing": np.vstack([np.eye(3), np.ones((2, 3))]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arrays"), list(degenerate_problems()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_degenerate_problems_are_survived(name, arrays):
    problem = Problem(**arrays)
    results = QUICK.solve(problem)
    check_results(problem, results)
    if name == "bounds out of reach":
        assert isinstance(results[0], NoRule)


def test_the_nearest_rule_says_what_can_be_reached():
    problem = group_problem(3, n=400, tolerances=(0.0,))
    bounds = np.full(problem.lower.shape, 1e-4)
    asked = dataclasses.replace(problem, lower=-bounds, upper=bounds)
    missed = QUICK.closest(asked)
    assert isinstance(missed, Missed)
    assert 0.0 < missed.excess < 0.05
    reachable = bounds + missed.excess + 1e-12
    loosened = dataclasses.replace(problem, lower=-reachable, upper=reachable)
    assert feasible(loosened, np.array(missed.values))
    known = Best.none(loosened)
    smoothed_search(loosened, known, max_work=1e5, starts=[np.array(missed.z)])
    assert np.isfinite(known.utility[0])


def test_a_record_is_improved_in_place_and_never_made_worse():
    problem = group_problem(4, n=800)
    known = Best.none(problem)
    truth = Smoothed(max_work=3e7).solve(problem)
    for step, result in enumerate(truth):
        known.utility[step], known.z[step] = result.utility, result.z
    before = known.utility.copy()
    smoothed_search(problem, known, max_work=1e5)
    assert (known.utility >= before).all()
    empty = Best.none(problem)
    smoothed_search(problem, empty, max_work=1e5, starts=[np.array(truth[0].z)])
    assert empty.utility[0] >= before[0]


def test_multipliers_are_those_of_the_linear_program_where_the_model_is_the_truth():
    rng = np.random.default_rng(0)
    n, k = 4000, 3
    margin, contrasts = rng.uniform(-1, 1, n), rng.normal(size=(n, k)) + 0.3
    bounds = np.full(k, 0.02)
    problem = Problem(margin, contrasts, 5.0 * margin / n, contrasts / n, -bounds, bounds)
    found = smoothed_search(problem, Best.none(problem), max_work=2e7)
    truth = 5.0 * solve_linear_program(problem).multipliers
    assert found.multipliers.shape == (1, k)
    np.testing.assert_allclose(found.multipliers[0], truth, atol=0.15 * np.abs(truth).max())


def test_work_is_counted_and_bounded():
    problem = group_problem(5, n=1000)
    few, many = (smoothed_search(problem, Best.none(problem), max_work=work).work for work in (1e6, 1e7))
    assert few < many < 2e7
    with pytest.raises(InputError, match="max_work must be a number"):
        Smoothed(max_work=0)


def test_work_grows_no_faster_than_the_rows(monkeypatch):
    monkeypatch.setattr(smoothed, "WORK", 1e6)
    monkeypatch.setattr(smoothed, "ROWS_OF_A_SAMPLE", 500)
    small, large = (group_problem(1, n=n, tolerances=(0.05,)) for n in (2_000, 32_000))
    assert usual_work(large) <= 16 * usual_work(small)
    # What was begun is ended: that is the work of a few descents, whatever the rows.
    for problem in (small, large):
        assert smoothed_search(problem, Best.none(problem)).work <= usual_work(problem) + 3e6


def test_a_sample_of_many_rows_loses_nothing_that_the_sample_found(monkeypatch):
    problem = group_problem(6, n=6000, groups=5)
    monkeypatch.setattr(smoothed, "ROWS_OF_A_SAMPLE", 1500)
    sampled = []
    search = smoothed._Run.continue_from

    def listen(run, sample, starts, max_work):
        sampled.append(sample)
        search(run, sample, starts, max_work)

    monkeypatch.setattr(smoothed._Run, "continue_from", listen)
    results = Smoothed(max_work=2e7).solve(problem)
    check_results(problem, results)
    assert len(sampled[0].problem.margin) < 3000
    scaled = Scaled.of(problem)
    for z in sampled[0].best.z:
        utility, values = problem.evaluate(problem.decide(scaled.outward(z)))
        for step, result in enumerate(results):
            if feasible(problem, values, step):
                assert result.utility >= utility
    monkeypatch.setattr(smoothed, "ROWS_OF_A_SAMPLE", 20_000)
    np.testing.assert_allclose(utilities(results), utilities(Smoothed(max_work=2e7).solve(problem)), atol=0.01)


def test_a_descent_from_a_good_rule_keeps_the_multipliers_that_hold_it_there(monkeypatch):
    problem = group_problem(6, n=6000, groups=5, tolerances=(0.02,))
    run = smoothed._Run(Scaled.of(problem).problem, np.random.default_rng(0), 6)
    good = run.descend(0, np.zeros(4), smoothed.COLD)
    assert run.multipliers[0].any()
    monkeypatch.setattr(smoothed, "CORRECTIONS", 0)
    held = run.descend(0, good, smoothed.WARM)
    run.multipliers[:] = 0.0
    released = run.descend(0, good, smoothed.WARM)
    assert np.abs(held - good).max() < 0.5 * np.abs(released - good).max()


@pytest.mark.parametrize("kind", ["counted", "weighted", "expected"])
def test_a_sample_stands_for_all_rows(kind):
    problem = group_problem(7, n=20_000)
    rng = np.random.default_rng(0)
    if kind == "weighted":
        weight = rng.uniform(0.5, 2.0, 20_000)
        problem = dataclasses.replace(problem, gain=problem.gain * weight, effects=problem.effects * weight[:, None])
    if kind == "expected":
        mixed = problem.contrasts @ problem.mixing.T / 20_000
        problem = dataclasses.replace(problem, gain=problem.margin / 20_000, effects=mixed)
    sample = stratified_sample(problem, 4000, np.random.default_rng(1))
    assert 4000 <= len(sample.margin) < 6000
    assert sample.weight.sum() == pytest.approx(1.0)
    assert sample.gain.sum() == pytest.approx(problem.gain.sum(), abs=0.02)
    z = np.array([0.05, -0.1, 0.02])
    whole, part = (rows.evaluate(rows.decide(z)) for rows in (problem, sample))
    assert part[0] == pytest.approx(whole[0], abs=0.02)
    np.testing.assert_allclose(part[1], whole[1], atol=0.05)


def test_a_small_stratum_is_kept_whole():
    problem = group_problem(8, n=20_000)
    effects = problem.effects.copy()
    rare = np.arange(0, 20_000, 1000)
    effects[rare] = 7.0
    sample = stratified_sample(dataclasses.replace(problem, effects=effects), 2000, np.random.default_rng(0))
    assert (sample.effects == 7.0).all(axis=1).sum() == len(rare)


@settings(max_examples=15)
@given(seed=seeds, n=st.integers(5, 200), k=st.integers(2, 5), rows=st.integers(1, 60))
def test_inside_a_box_the_open_rows_count_as_all_rows_do(seed, n, k, rows):
    problem = random_problem(seed, n=n, k=k)
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=k)
    box = box_around(problem, centre, rows)
    radius = -0.5 * (box.margin[-2 * k : -k] + box.margin[-k:])
    assert (radius > 0.0).all()
    for z in centre + radius * rng.uniform(-1, 1, size=(10, k)) * 0.999:
        utility, values = problem.evaluate(problem.decide(z))
        inside, others = box.evaluate(box.decide(z))
        assert inside == pytest.approx(utility)
        assert others[-1] == 0.0
        assert box.excess(others) == pytest.approx(problem.excess(values))
    assert box.excess(box.evaluate(box.decide(centre + 1.01 * radius))[1]) > 100.0


@settings(max_examples=15)
@given(seed=seeds, n=st.integers(1, 60), k=st.integers(1, 5), tau=st.sampled_from([0.003, 0.05, 1.0]))
def test_smoothed_sums_and_gradients_equal_those_of_a_plain_loop(seed, n, k, tau):
    problem = random_problem(seed, n=n, k=k)
    z = np.random.default_rng(seed).normal(size=k)
    sums = SmoothSums(problem.margin, problem.contrasts, problem.table)
    with np.errstate(over="ignore"):
        truth, gradients = smoothed_in_numpy(problem.margin, problem.contrasts, problem.table, z, tau)
    np.testing.assert_allclose(sums.smooth(z, tau), truth, atol=1e-12)
    np.testing.assert_allclose(sums.curvature(tau)[0], gradients, atol=1e-9)
    prices = np.linspace(-1.0, 2.0, problem.table.shape[1])
    np.testing.assert_allclose(sums.gradient(prices, tau), prices @ gradients, atol=1e-9)
    utility, values = problem.evaluate(problem.decide(z))
    np.testing.assert_allclose(sums.exact(), [utility - problem.offset, *values], atol=1e-12)


def test_blocks_of_rows_change_nothing(monkeypatch):
    problem = group_problem(9, n=1000)
    z = np.array([0.1, -0.2, 0.05])
    whole = SmoothSums(problem.margin, problem.contrasts, problem.table)
    monkeypatch.setattr(augmented, "ROWS_A_BLOCK", 64)
    parts = SmoothSums(problem.margin, problem.contrasts, problem.table)
    assert (len(whole.blocks), len(parts.blocks)) == (1, 16)
    np.testing.assert_allclose(parts.smooth(z, 0.1), whole.smooth(z, 0.1))
    np.testing.assert_allclose(parts.exact(), whole.exact())
    for one, other in zip(parts.curvature(0.1), whole.curvature(0.1), strict=True):
        np.testing.assert_allclose(one, other)


def test_the_lagrangian_has_the_gradient_of_its_value_and_is_minimised():
    problem = group_problem(10, n=500)
    sums = SmoothSums(problem.margin, problem.contrasts, problem.table)
    c = problem.effects.shape[1]
    lagrangian = Lagrangian(sums, np.eye(c), np.full(c, 0.7), problem.lower[0], problem.upper[0], 16.0)
    lagrangian.tau, lagrangian.multipliers = 0.3, np.linspace(-0.2, 0.3, c)
    z = np.array([0.1, -0.2, 0.05])
    lagrangian.value(z)
    gradient = lagrangian.gradient()
    for k, move in enumerate(1e-6 * np.eye(3)):
        slope = (lagrangian.value(z + move) - lagrangian.value(z - move)) / 2e-6
        assert gradient[k] == pytest.approx(slope, abs=1e-7)
    seen = []
    end = minimise(lagrangian, z, 60, seen.append)
    before, after = lagrangian.value(z), lagrangian.value(end)
    assert after < before
    assert np.abs(lagrangian.gradient()).max() < 1e-2
    assert len(seen) > 2
    for move in np.random.default_rng(0).normal(size=(20, 3)) * 0.05:
        assert lagrangian.value(end + move) >= after - 1e-5


def test_one_sided_and_missing_bounds_cost_nothing_on_their_open_side():
    problem = group_problem(10, n=300)
    sums = SmoothSums(problem.margin, problem.contrasts, problem.table)
    c = problem.effects.shape[1]
    open_ = Lagrangian(sums, np.eye(c), np.ones(c), np.full(c, -np.inf), np.full(c, np.inf), 16.0)
    assert open_.value(np.zeros(3)) == pytest.approx(-sums.smooth(np.zeros(3), 1.0)[0])
    lower, upper = smoothed._drawn_in(np.array([-1.0, -np.inf, 0.0]), np.array([1.0, 0.5, np.inf]), 0.5)
    assert lower.tolist() == [-0.5, -np.inf, 0.0]
    assert upper.tolist() == [0.5, 0.5, np.inf]


def test_learn_rule_takes_it_by_name():
    data = eh.datasets.make_zafar(1500, random_state=0)
    rule = eh.learn_rule(
        data.y, data.group, data.p_y, data.p_joint, criterion="equalized_odds", tolerance=0.05, search="smoothed"
    )
    assert rule.solution_.status == "found"
    decisions = rule.decide(data.p_y, data.p_joint)
    assert eh.metrics.equalized_odds_difference(data.y, decisions, sensitive_features=data.group) <= 0.05
