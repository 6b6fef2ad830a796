"""Mixtures for predictive parity, the smallest largest rate and F scores, against programs over every rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import evenhand as eh
from evenhand.rules.events import RATES
from evenhand.rules.families import Family, family_of
from evenhand.rules.mixed_levels import ENOUGH
from evenhand.search import mixed as mixed_search
from oracles import cells_by_linear_program
from problems import setting_of

DATA = eh.datasets.make_zafar(500, random_state=3)
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)


def tiny(seed, n=10):
    rng = np.random.default_rng(seed)
    group = np.arange(n) % 2
    p_y = np.clip(rng.random(n), 0.05, 0.95)
    y = (rng.random(n) < p_y).astype(int)
    y[:8] = [0, 0, 1, 1, 0, 0, 1, 1]
    share = 0.2 + 0.6 * np.column_stack([group == 0, group == 1]) + 0.1 * rng.normal(size=(n, 1)) * [1.0, -1.0]
    share = np.clip(share, 0.02, 0.98)
    share /= share.sum(axis=1, keepdims=True)
    return y, group, p_y, np.stack([share * (1 - p_y)[:, None], share * p_y[:, None]], axis=1)


def all_rules(setting):
    """Return the decisions of every rule of a setting's family, one row for each."""
    arrays = np.column_stack([setting.margins, setting.contrasts])
    return np.unique(np.array([setting.margins > 0.0, *map(np.asarray, cells_by_linear_program(arrays))]), axis=0)


def counts(rules, rows):
    """Return the true positives and the positive decisions of each group, for each rule."""
    y, group = rows[0], rows[1]
    inside = np.column_stack([group == 0, group == 1]).astype(float)
    return rules @ (inside * y[:, None]), rules @ inside


def best_at_level(rules, rows, level, tolerance, gained=None):
    """Return the best accuracy of a mixture whose precisions are from the level to the level plus the tolerance.

    ``gained`` has what each rule gains, if it is not its accuracy.
    """
    true, chosen = counts(rules, rows)
    gained = (rules == rows[0]).mean(axis=1) if gained is None else gained
    matrix = np.vstack([(level * chosen - true).T, (true - (level + tolerance) * chosen).T])
    result = linprog(-gained, matrix, np.zeros(4), np.ones((1, len(rules))), [1.0])
    return -result.fun if result.status == 0 else -np.inf


@pytest.mark.parametrize(("seed", "tolerance"), [(0, 0.0), (1, 0.05), (2, 0.2)])
def test_no_mixture_at_any_level_is_better(seed, tolerance):
    rows = tiny(seed)
    rules = all_rules(setting_of(*rows, criterion="pp"))
    truth = max(best_at_level(rules, rows, level, tolerance) for level in np.linspace(0.0, 1.0, 61))
    mixed = eh.learn_rule(*rows, criterion="pp", tolerance=tolerance, randomize=True)
    assert mixed.solution_.upper_bound >= truth - 1e-7
    assert mixed.solution_.utility >= truth - mixed.solution_.gap - 1e-7
    assert mixed.solution_.gap <= ENOUGH
    expected = mixed.expected_decision(*rows[2:])
    true, chosen = counts(expected, rows)
    precision = true[chosen > 1e-9] / chosen[chosen > 1e-9]
    assert np.ptp(precision) <= tolerance + 1e-6
    assert mixed.solution_.utility == pytest.approx(np.mean(np.where(rows[0] == 1, expected, 1 - expected)))
    at_its_level = best_at_level(rules, rows, float(precision.min()), tolerance)
    assert mixed.solution_.utility == pytest.approx(at_its_level, abs=1e-5)


@pytest.mark.parametrize("tolerance", [0.0, 0.03])
def test_precisions_are_those_of_expected_counts_and_no_rule_is_better(tolerance):
    mixed = eh.learn_rule(*ROWS, criterion="pp", tolerance=tolerance, randomize=True)
    expected = mixed.expected_decision(*ROWS[2:])
    of = [expected[(DATA.group == g) & (DATA.y == 1)].sum() / expected[DATA.group == g].sum() for g in "01"]
    assert abs(of[0] - of[1]) <= tolerance + 1e-7
    assert abs(mixed.solution_.values[0]) == pytest.approx(abs(of[0] - of[1]), abs=1e-9)
    single = eh.learn_rule(*ROWS, criterion="pp", tolerance=tolerance)
    assert single.solution_.utility <= mixed.solution_.upper_bound + 1e-9
    assert single.solution_.utility < mixed.solution_.utility
    assert mixed.criterion == eh.PredictiveParity()


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rate=st.sampled_from(["error", "fpr", "fnr", "selection"]))
def test_the_ceiling_is_the_smallest_of_any_mixture(seed, rate):
    rows = tiny(seed)
    criterion = eh.MinimaxRate(rate)
    rules = all_rules(setting_of(*rows, criterion=criterion)).astype(float)

    def column(group):
        kind, label, sign, constant = RATES[rate]
        inside = rows[1] == group
        if kind == "accuracy":
            return (rules[:, inside] != rows[0][inside]).mean(axis=1)
        inside = inside if label is None else inside & (rows[0] == label)
        return constant + sign * rules[:, inside].mean(axis=1)

    matrix = np.column_stack([np.array([column(0), column(1)]), -np.ones(2)])
    each = np.append(np.ones(len(rules)), 0.0)
    result = linprog(np.append(np.zeros(len(rules)), 1.0), matrix, [0.0, 0.0], each[None, :], [1.0])
    mixed = eh.learn_rule(*rows, criterion=criterion, randomize=True)
    found = mixed.learned_from["minimax"]
    assert found["value"] == pytest.approx(result.fun, abs=1e-6)
    assert found["lower_bound"] <= result.fun + 1e-7
    accuracy = (rules == rows[0]).mean(axis=1)
    limits = [found["value"] + 1e-9] * 2
    best = linprog(-accuracy, matrix[:, :-1], limits, np.ones((1, len(rules))), [1.0])
    assert mixed.solution_.utility == pytest.approx(-best.fun, abs=1e-5)
    assert mixed.solution_.status == "optimal"


def test_a_rule_of_the_smallest_ceiling_is_not_below_the_mixtures():
    criterion = eh.MinimaxRate("error")
    mixed, single = (eh.learn_rule(*ROWS, criterion=criterion, randomize=lots) for lots in (True, False))
    below, above = mixed.learned_from["minimax"], single.learned_from["minimax"]
    assert below["value"] <= above["value"] + 1e-9
    assert mixed.criterion.ceiling == below["value"]
    expected = mixed.expected_decision(*ROWS[2:])
    errors = np.where(DATA.y == 1, 1 - expected, expected)
    assert max(errors[DATA.group == g].mean() for g in "01") == pytest.approx(below["value"], abs=1e-7)
    assert eh.Mixture.from_json(mixed.to_json()) == mixed


@pytest.mark.parametrize(("seed", "name", "tolerance"), [(0, "dp", 0.0), (1, "dp", 0.1), (2, "equal_opportunity", 0.1)])
def test_f1_is_the_largest_quotient_of_expected_counts(seed, name, tolerance):
    rows = tiny(seed)
    setting = setting_of(*rows, criterion=name, objective="f1")
    family = family_of(setting)
    problem = family.problem(tolerance)
    rules = all_rules(setting).astype(float)
    true, chosen = rules @ rows[0], rules.sum(axis=1)
    values = rules @ problem.effects
    # Charnes and Cooper: weights are divided by the expected denominator.
    matrix = np.vstack([values.T - problem.upper[0][:, None], problem.lower[0][:, None] - values.T])
    matrix = matrix[np.isfinite(matrix).all(axis=1)]
    below = (chosen + rows[0].sum())[None, :]
    result = linprog(-2.0 * true, matrix, np.zeros(len(matrix)), below, [1.0])
    mixed = eh.learn_rule(*rows, criterion=name, tolerance=tolerance, objective="f1", randomize=True)
    expected = mixed.expected_decision(*rows[2:])
    assert mixed.solution_.utility == pytest.approx(2 * (expected @ rows[0]) / (expected.sum() + rows[0].sum()))
    assert mixed.solution_.utility == pytest.approx(-result.fun, abs=1e-6)
    assert mixed.solution_.status == "optimal"


def test_f1_with_strata_and_with_predictive_parity_has_a_true_bound():
    job = np.arange(len(DATA.y)) % 2
    inside = eh.DemographicParity(within="job")
    mixed = eh.learn_rule(*ROWS, strata=job, criterion=inside, tolerance=0.01, objective="f1", randomize=True)
    expected = mixed.expected_decision(*ROWS[2:], strata=job)
    score = 2 * (expected @ DATA.y) / (expected.sum() + DATA.y.sum())
    assert mixed.solution_.utility == pytest.approx(score)
    assert mixed.solution_.status == "optimal"
    single = eh.learn_rule(*ROWS, strata=job, criterion=inside, tolerance=0.01, objective="f1", search="smoothed")
    assert single.solution_.utility <= score + 1e-9


def test_safety_tightens_predictive_parity_and_leaves_a_fair_model_alone():
    mixed = eh.learn_rule(*ROWS, criterion="pp", tolerance=0.1, safety=1.0, randomize=True)
    (asked,), (used,) = mixed.solution_.asked, mixed.solution_.used
    assert used[1] < asked[1] == 0.1
    assert abs(mixed.solution_.values[0]) <= used[1] + 1e-6
    assert mixed.criterion == eh.PredictiveParity()
    alone = eh.learn_rule(*ROWS, criterion="pp", tolerance=0.9, safety=1.0, randomize=True)
    assert alone.solution_.status == "unchanged"
    np.testing.assert_array_equal(alone.expected_decision(*ROWS[2:]), DATA.p_y > 0.5)
    with pytest.raises(eh.InputError, match="no bound to tighten"):
        eh.learn_rule(*ROWS, criterion=eh.MinimaxRate("error"), safety=1.0, randomize=True)


def test_two_levels_that_exclude_each_other_are_refused():
    both = eh.MinimaxRate("error") & eh.MinimaxRate("fpr")
    with pytest.raises(eh.InputError, match="linear criteria"):
        eh.learn_rule(*ROWS, criterion=both, randomize=True)
    impossible = eh.MinimaxRate("selection") & eh.SelectionBudget(lower=0.6) & eh.MaximumRate("selection", 0.3)
    with pytest.raises(eh.InfeasibleError, match="No mixture"):
        eh.learn_rule(*ROWS, criterion=impossible, randomize=True)


def best_f1_at_level(rules, rows, level, tolerance):
    """Return the best F1 of a mixture whose precisions are from the level to the level plus the tolerance."""
    true, chosen = counts(rules, rows)
    # With weights divided by the denominator, a quotient is linear (Charnes and Cooper).
    divisor = chosen.sum(axis=1) + rows[0].sum()
    matrix = np.vstack([(level * chosen - true).T, (true - (level + tolerance) * chosen).T])
    result = linprog(-2.0 * true.sum(axis=1), matrix, np.zeros(4), divisor[None], [1.0])
    return -result.fun if result.status == 0 else -np.inf


@pytest.mark.parametrize(("seed", "tolerance"), [(1, 0.05), (2, 0.2)])
def test_f1_at_equal_precision_is_the_optimum_over_every_level(seed, tolerance):
    rows = tiny(seed)
    rules = all_rules(setting_of(*rows, criterion="pp", objective="f1"))
    truth = max(best_f1_at_level(rules, rows, level, tolerance) for level in np.linspace(0.0, 1.0, 61))
    mixed = eh.learn_rule(*rows, criterion="pp", tolerance=tolerance, objective="f1", randomize=True)
    assert mixed.solution_.upper_bound >= truth - 1e-9
    assert mixed.solution_.utility >= truth - ENOUGH
    assert mixed.solution_.gap <= ENOUGH
    expected = mixed.expected_decision(*rows[2:])
    assert mixed.solution_.utility == pytest.approx(2 * expected[rows[0] == 1].sum() / (expected.sum() + rows[0].sum()))
    true, chosen = counts(expected[None], rows)
    assert np.ptp(true / chosen) <= tolerance + 1e-7


def with_precise_rules(seed, n=9):
    """Return rows on which the best mixture may have a group whose precision is 1."""
    rng = np.random.default_rng(seed)
    group, y = np.arange(n) % 2, (np.arange(n) // 2) % 2
    p_y = np.clip(0.5 + 0.2 * (y - 0.5) + 0.25 * rng.normal(size=n), 0.02, 0.98)
    share = 0.5 * rng.dirichlet(np.ones(2), n)
    share[np.arange(n), group] += 0.5
    return y, group, p_y, np.stack([share * (1 - p_y)[:, None], share * p_y[:, None]], axis=1)


def best_of_all(rules, rows, tolerance, objective):
    """Return the best value of an objective of any mixture of rules, at many levels: 1 minus the tolerance is one."""
    levels = [*np.linspace(0.0, 1.0, 21), 1.0 - tolerance]
    if objective == "f1":
        return max(best_f1_at_level(rules, rows, level, tolerance) for level in levels)
    right, positive = rules == rows[0], rows[0] == 1
    gained = right.mean(axis=1)
    if objective == "balanced_accuracy":
        gained = 0.5 * (right[:, positive].mean(axis=1) + right[:, ~positive].mean(axis=1))
    return max(best_at_level(rules, rows, level, tolerance, gained) for level in levels)


@pytest.mark.parametrize(
    ("objective", "seed", "tolerance"),
    [
        ("accuracy", 7, 0.1),
        ("accuracy", 9, 0.3),
        ("f1", 7, 0.1),
        ("f1", 9, 0.3),
        ("balanced_accuracy", 6, 0.3),
        ("balanced_accuracy", 7, 0.1),
    ],
)
def test_the_bound_holds_at_the_level_from_which_on_the_ceiling_is_one(objective, seed, tolerance):
    rows = with_precise_rules(seed)
    rules = all_rules(setting_of(*rows, criterion="pp", objective=objective)).astype(float)
    truth = best_of_all(rules, rows, tolerance, objective)
    mixed = eh.learn_rule(*rows, criterion="pp", tolerance=tolerance, objective=objective, randomize=True)
    assert mixed.solution_.upper_bound >= truth - 1e-9
    assert mixed.solution_.utility >= truth - ENOUGH


def test_ranges_of_levels_are_searched_only_for_what_is_better(monkeypatch):
    """A quotient is searched from the best known value in each range: few pricings, and the bound is as true."""
    asked, price = [], mixed_search._price
    monkeypatch.setattr(mixed_search, "_price", lambda *given, **rest: asked.append(1) or price(*given, **rest))
    rows = tuple(column[:60] for column in ROWS)
    options = {"criterion": "pp", "tolerance": 0.05, "objective": "f1", "randomize": True}
    fast = eh.learn_rule(*rows, **options).solution_
    few = len(asked)
    whole = Family.mix
    monkeypatch.setattr(Family, "mix", lambda self, problem, near=None, **_: whole(self, problem, near))
    slow = eh.learn_rule(*rows, **options).solution_
    assert few < 0.6 * (len(asked) - few)
    assert fast.gap <= 2 * ENOUGH
    assert fast.utility <= slow.upper_bound
    assert slow.utility <= fast.upper_bound
