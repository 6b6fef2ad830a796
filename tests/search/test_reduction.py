"""Problems with fewer directions than dimensions, or on unusual scales, are made ordinary and proven all the same."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.search import Certified, NoRule, Problem, certified
from evenhand.search.reduction import parts_of
from oracles import best_by_all_cells
from problems import KINDS, feasible, random_problem

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(KINDS)


def degenerate_problem(seed, *, n, k, kind, dependent, meeting):
    """Return a random problem in which one contrast is made up of others, or the margin of all, or both."""
    problem = random_problem(seed, n=n, k=k, kind=kind)
    rng = np.random.default_rng(seed)
    contrasts, margin = problem.contrasts.copy(), problem.margin
    if dependent:
        contrasts[:, -1] = contrasts[:, :-1] @ rng.choice([-2.0, -1.0, 0.5, 1.0], size=k - 1)
    if meeting:
        margin = contrasts @ rng.choice([-1.0, 0.0, 0.5, 2.0], size=k)
    return Problem(margin, contrasts, problem.gain, problem.effects, problem.lower, problem.upper, problem.offset)


@settings(max_examples=60)
@given(seed=seeds, kind=kinds, n=st.integers(1, 7), k=st.integers(2, 3), what=st.sampled_from(["one", "two", "both"]))
def test_problems_of_too_few_directions_are_solved_as_brute_force_does(seed, kind, n, k, what):
    problem = degenerate_problem(seed, n=n, k=k, kind=kind, dependent=what != "two", meeting=what != "one")
    truth = best_by_all_cells(problem)
    found = Certified(max_seconds=None).solve(problem)[0]
    if truth is None:
        assert isinstance(found, NoRule)
        assert found.proven
        return
    assert found.utility == pytest.approx(truth, abs=1e-9)
    assert found.status == "optimal"
    assert feasible(problem, np.array(found.values))


@given(seed=seeds, kind=kinds, n=st.integers(3, 30), k=st.integers(2, 4), meeting=st.booleans())
def test_a_rule_of_a_part_decides_as_it_does_in_the_whole(seed, kind, n, k, meeting):
    problem = degenerate_problem(seed, n=n, k=k, kind=kind, dependent=True, meeting=meeting)
    rng = np.random.default_rng(seed)
    for part in parts_of(problem):
        assert part.problem.dimension < k
        z = rng.normal(size=part.problem.dimension)
        level = part.problem.margin - part.problem.contrasts @ z
        size = np.abs(part.problem.margin) + np.abs(part.problem.contrasts) @ np.abs(z)
        clear = np.abs(level) > 1e-9 * size
        np.testing.assert_array_equal((level > 0)[clear], problem.decide(part.original(z))[clear])


def test_an_ordinary_problem_is_left_as_it_is():
    problem = random_problem(0, n=50, k=3)
    assert [part.problem for part in parts_of(problem)] == [problem]


@pytest.mark.parametrize("criterion", ["dp", "eo"])
@pytest.mark.parametrize("cost", [1e-12, 1e-8, 3e9, 1e15])
def test_the_unit_of_the_costs_changes_nothing(criterion, cost):
    data = eh.datasets.make_zafar(600, random_state=1)
    given_data = (data.y, data.group, data.p_y, data.p_joint)
    plain = eh.learn_rule(*given_data, criterion=criterion, tolerance=0.05, costs=(1.0, 2.0))
    scaled = eh.learn_rule(*given_data, criterion=criterion, tolerance=0.05, costs=(cost, 2.0 * cost))
    assert plain.solution_.status == scaled.solution_.status == "optimal"
    assert scaled.solution_.utility == pytest.approx(cost * plain.solution_.utility, rel=1e-9)


@pytest.mark.parametrize(
    "criterion",
    [
        eh.SelectionBudget(upper=0.2) & eh.MinimumRate("selection_rate", 0.1),
        eh.SelectionBudget(upper=0.2) & eh.SelectionRatio(0.8),
        eh.MinimumRate("tpr", 0.6) & eh.MinimumRate("tnr", 0.6),
        eh.EqualizedOdds(tolerance=0.3) & eh.DemographicParity(tolerance=0.3),
    ],
)
def test_budgets_floors_and_parities_together_are_proven(criterion):
    data = eh.datasets.make_zafar(1500, random_state=0)
    rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion=criterion)
    assert rule.solution_.status == "optimal"


def test_bounds_that_exclude_each_other_are_proven_to():
    data = eh.datasets.make_zafar(1500, random_state=0)
    criterion = eh.SelectionBudget(upper=0.2) & eh.MinimumRate("selection_rate", 0.3)
    with pytest.raises(eh.errors.InfeasibleError, match="No rule meets these bounds together"):
        eh.learn_rule(data.y, data.group, data.p_y, data.p_group, criterion=criterion)


def best_thresholds(y, group, p_y, meets):
    """Return the best accuracy of any three thresholds, one for each known group, whose selection rates are allowed."""
    right, rates = [], []
    for g in range(3):
        ordered = y[group == g][np.argsort(-p_y[group == g])]
        right.append(np.concatenate([[0], np.cumsum(2 * ordered - 1)]) + (ordered == 0).sum())
        rates.append(np.arange(len(ordered) + 1) / len(ordered))
    total = sum(np.meshgrid(*right, indexing="ij"))
    return total[meets(np.stack(np.meshgrid(*rates, indexing="ij")))].max() / len(y)


@pytest.mark.parametrize(
    ("criterion", "meets"),
    [
        (eh.SelectionRatio(0.8), lambda rates: rates.min(axis=0) >= 0.8 * rates.max(axis=0) - 1e-12),
        (eh.MinimumRate("selection_rate", 0.9), lambda rates: rates.min(axis=0) >= 0.9 - 1e-12),
        (eh.SelectionBudget(upper=0.3, attribute="group"), lambda rates: rates.max(axis=0) <= 0.3 + 1e-12),
    ],
)
def test_known_groups_whose_planes_are_parallel_get_the_best_rule_of_ordinary_size(criterion, meets):
    """All rows of a known group cut the boxes where only another group's z is large, however small those boxes are."""
    rng = np.random.default_rng(0)
    group, p_y = rng.integers(0, 3, size=600), rng.beta(3.0, 1.5, size=600)
    y = (rng.random(600) < p_y).astype(int)
    search = Certified(max_visits=100_000_000)
    rule = eh.learn_rule(y, group, p_y, np.eye(3)[group], criterion=criterion, search=search)
    best = best_thresholds(y, group, p_y, meets)
    assert rule.solution_.utility == pytest.approx(best, abs=1e-12)
    decisions = rule.decide(p_y, np.eye(3)[group])
    assert meets(np.array([decisions[group == g].mean() for g in range(3)]))
    assert rule.solution_.status == "optimal"
    assert max(abs(term.z) for term in rule.terms) < 100.0


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_boxes_that_too_many_planes_cut_are_solved_as_smaller_problems(seed, k, monkeypatch):
    """Known groups with one z each: their thresholds are free, so all combinations can be tried."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(k), 9)
    n = len(group)
    plain = random_problem(seed, n=n, k=k, tolerance=0.2)
    problem = replace(plain, contrasts=np.linspace(1.0, 2.0, k)[group][:, None] * np.eye(k)[group])
    for name in ("LEAF_SIZE", "MEETING_SIZE"):
        monkeypatch.setattr(certified, name, {})
        monkeypatch.setattr(certified, f"{name}_BEYOND", k + 1)
    monkeypatch.setattr(certified._Run, "start", lambda *_: None)
    monkeypatch.setattr(certified, "may_have_blocks", lambda _: False)
    found = Certified(max_seconds=None, n_jobs=1).solve(problem, random_state=rng)[0]
    thresholds = [np.concatenate([[-np.inf], np.sort(problem.margin[group == a])]) for a in range(k)]
    chosen = [problem.evaluate(problem.margin > np.array(each)[group]) for each in itertools.product(*thresholds)]
    truth = max(utility for utility, values in chosen if feasible(problem, values))
    assert found.utility == pytest.approx(truth, abs=1e-9)
    assert found.status == "optimal"
    assert problem.strictly_inside(np.array(found.z))


def test_scores_on_a_grid_with_known_groups_are_proven_and_decided_as_the_search_says():
    """Cells there have corners on the sides of boxes, where rows that are sure inside are on their planes."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        group = np.concatenate([np.repeat(np.arange(4), 2), rng.integers(0, 4, size=12)])
        y, p_y = np.tile([0, 1], 10), rng.integers(0, 9, size=20) / 8.0
        search = Certified(max_visits=400_000_000, n_jobs=1)
        rule = eh.learn_rule(y, group, p_y, np.eye(4)[group], criterion="dp", tolerance=0.5, search=search)
        assert rule.solution_.status == "optimal"


@pytest.mark.parametrize("cost", [1.0, 1e-12])
def test_a_gap_stays_a_gap_in_any_unit_of_the_costs(cost):
    data = eh.datasets.make_zafar(600, random_state=1)
    search = Certified(gap=0.05 * cost)
    given_data = (data.y, data.group, data.p_y, data.p_joint)
    rule = eh.learn_rule(*given_data, criterion="eo", tolerance=0.3, costs=(cost, cost), search=search)
    assert rule.solution_.status == "gap"
    assert rule.solution_.upper_bound > rule.solution_.utility


def test_a_search_that_is_cut_short_still_bounds_what_could_be():
    problem = random_problem(3, n=300, k=4, tolerance=0.3)
    assert Certified(max_nodes=50).solve(problem)[0].upper_bound == np.inf  # nothing but the trivial bound is known
    found = Certified(max_nodes=20_000).solve(problem)[0]
    assert found.status == "gap"
    assert found.utility < found.upper_bound <= problem.offset + np.maximum(problem.gain, 0.0).sum() + 1e-12
