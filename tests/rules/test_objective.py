"""What a rule maximises: balanced accuracy and F scores, against every rule of the family and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, fbeta_score

import evenhand as eh
from evenhand.rules.objective import read_objective
from evenhand.search import Certified, Problem, ratio
from oracles import exact_cells
from problems import setting_of

DATA = eh.datasets.make_zafar(1500, random_state=1)
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_group)
# Few positive labels, so that accuracy, balanced accuracy and F scores want different thresholds.
RARE = np.flatnonzero((DATA.y == 0) | (np.random.default_rng(0).random(1500) < 0.3))
RARE_ROWS = tuple(column[RARE] for column in ROWS)
METRICS = {
    "accuracy": lambda y, d: float(np.mean(y == d)),
    "balanced_accuracy": balanced_accuracy_score,
    "f1": f1_score,
    "f2": lambda y, d: fbeta_score(y, d, beta=2.0),
    "f0.5": lambda y, d: fbeta_score(y, d, beta=0.5),
}


def few_rows(seed, n=12):
    rng = np.random.default_rng(seed)
    y, group = (np.arange(n) % 4) // 2, np.arange(n) % 2
    p_y = np.clip(0.35 + 0.25 * y + rng.normal(0, 0.25, n), 0.02, 0.98)
    p_second = np.clip(0.3 + 0.4 * group + rng.normal(0, 0.2, n), 0.02, 0.98)
    return y, group, p_y, np.column_stack([1.0 - p_second, p_second])


@pytest.mark.parametrize("objective", ["f1", "f2", "f0.5"])
@pytest.mark.parametrize("seed", range(2))
def test_an_f_score_is_the_optimum_over_every_rule_with_a_threshold(objective, seed):
    y, group, p_y, p_group = few_rows(seed)
    # The family, written down anew: a line for the difference of the groups' densities, and one for the threshold.
    contrasts = np.column_stack([p_group[:, 0] / 0.5 - p_group[:, 1] / 0.5, np.ones(len(y))])
    cells = exact_cells(2.0 * p_y - 1.0, contrasts)
    rules = [p_y > 0.5, *(np.array(found) for found, clearance in cells.items() if clearance > 1e-9)]
    for tolerance in (0.05, 0.2, 0.6):
        gaps = np.array([abs(d[group == 0].mean() - d[group == 1].mean()) for d in rules])
        truth = max(METRICS[objective](y, d) for d, gap in zip(rules, gaps, strict=True) if gap <= tolerance + 1e-12)
        rule = eh.learn_rule(y, group, p_y, p_group, tolerance=tolerance, objective=objective)
        assert rule.solution_.status == "optimal"
        assert rule.solution_.utility == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize("objective", METRICS)
def test_the_utility_is_the_metric_of_the_decisions(objective):
    y, _, p_y, p_group = RARE_ROWS
    rule = eh.learn_rule(*RARE_ROWS, tolerance=0.05, objective=objective)
    decided = rule.decide(p_y, p_group)
    assert rule.solution_.utility == pytest.approx(METRICS[objective](y, decided), abs=1e-12)
    assert rule.solution_.status == "optimal"
    assert len(rule.solution_.values) == 1
    assert abs(rule.solution_.values[0]) <= 0.05 + 1e-12
    assert rule.learned_from["objective"] == objective
    assert eh.Rule.from_json(rule.to_json()) == rule
    # With a free threshold, each rule is the best of one family by its own measure.
    free = eh.DemographicParity() & eh.SelectionBudget()
    best = eh.learn_rule(*RARE_ROWS, criterion=free, tolerance=0.05, objective=objective).solution_.utility
    for other in METRICS:
        rival = eh.learn_rule(*RARE_ROWS, criterion=free, tolerance=0.05, objective=other).decide(p_y, p_group)
        assert METRICS[objective](y, rival) <= best + 1e-12
    assert best >= rule.solution_.utility - 1e-12


def test_balanced_accuracy_is_a_pair_of_costs():
    share = RARE_ROWS[0].mean()
    costs = 0.5 / (1.0 - share), 0.5 / share
    rule = eh.learn_rule(*RARE_ROWS, tolerance=0.05, objective="balanced_accuracy")
    by_costs = eh.learn_rule(*RARE_ROWS, tolerance=0.05, costs=costs)
    assert rule.costs == pytest.approx(costs)
    assert rule.solution_.utility == pytest.approx(1.0 + by_costs.solution_.utility)


def test_weights_count_as_copies():
    y, group, p_y, p_group = few_rows(5)
    weight = np.array([1, 2, 3] * 4)
    one = eh.learn_rule(y, group, p_y, p_group, tolerance=0.2, objective="f1", sample_weight=weight)
    copies = [np.repeat(column, weight, axis=0) for column in (y, group, p_y, p_group)]
    other = eh.learn_rule(*copies, tolerance=0.2, objective="f1")
    assert one.solution_.utility == pytest.approx(other.solution_.utility)
    metric = f1_score(y, one.decide(p_y, p_group), sample_weight=weight)
    assert one.solution_.utility == pytest.approx(metric)


def test_without_labels_the_model_expects_the_score():
    _, _, p_y, p_group = RARE_ROWS
    rule = eh.learn_rule(None, None, p_y, p_group, tolerance=0.05, objective="f1", evidence="model")
    decided = rule.decide(p_y, p_group)
    expected = 2.0 * p_y[decided == 1].sum() / (decided.sum() + p_y.sum())
    assert rule.solution_.utility == pytest.approx(expected)
    both = eh.learn_rule(*RARE_ROWS, tolerance=0.05, objective="f1", evidence="both")
    assert both.solution_.status == "optimal"
    balanced = eh.learn_rule(None, None, p_y, p_group, objective="balanced_accuracy", evidence="model")
    assert 0.5 < balanced.solution_.utility < 1.0


def test_the_bound_of_a_stopped_search_is_true():
    setting = setting_of(DATA.y, DATA.group, DATA.p_y, DATA.p_joint, criterion="eo", objective="f1")
    problem = setting.problem([0.05])
    best = ratio.solve(problem, Certified())[0]
    assert best.status == "optimal"
    gaps = []
    for visits in (100_000, 3_000_000):
        found = ratio.solve(problem, Certified(max_visits=visits))[0]
        bound = found.upper_bound
        assert bound >= best.utility - 1e-12
        gaps.append(bound - best.utility)
    assert gaps[0] > 1e-4


@pytest.mark.parametrize("seed", range(20))
def test_a_bound_on_the_linear_utility_is_one_on_the_quotient(seed):
    """Whatever is proven of N - v D: the bound that follows holds for every set of decisions."""
    rng = np.random.default_rng(seed)
    n = 10
    y, weight, beta = rng.random(n) < 0.4, rng.dirichlet(np.ones(n)), rng.choice([0.5, 1.0, 2.0])
    y[0] = True
    worth = read_objective(f"f{beta:g}").worth(float(weight[y].sum()))
    gain = np.where(y, worth.positive, worth.negative) * weight
    ones = np.ones((n, 1))
    problem = Problem(
        rng.normal(size=n), ones, gain, ones / n, [-np.inf], [np.inf], weight=weight, divisor=worth.divisor
    )
    every = (np.arange(2**n)[:, None] >> np.arange(n)) % 2 == 1
    some = every[rng.random(2**n) < 0.02]
    quotients = np.array([problem.evaluate(d)[0] for d in some])
    np.testing.assert_allclose(quotients, [fbeta_score(y, d, beta=beta, sample_weight=weight) for d in some])
    for value in (0.0, 0.3, float(quotients.max()) - 0.05, float(quotients.max())):
        linear = max(ratio.at_value(problem, value).evaluate(d)[0] for d in some)
        assert ratio.bound_at(problem, value, linear) >= quotients.max() - 1e-12
    assert ratio.bound_at(problem, float(quotients.max()), 0.0) == quotients.max()


def test_a_frontier_has_the_objective():
    curve = eh.frontier(*RARE_ROWS, tolerances=[0.02, 0.1, 0.4], objective="f1")
    assert (np.diff(curve.utilities) >= 0.0).all()
    y, _, p_y, p_group = RARE_ROWS
    assert curve.base_utility == pytest.approx(f1_score(y, p_y > 0.5))
    for point in curve:
        assert point.utility == pytest.approx(f1_score(y, point.rule.decide(p_y, p_group)))
        assert point.gap <= point.tolerance + 1e-12


def test_safety_draws_bounds_in_and_leaves_no_model_alone():
    loose = eh.learn_rule(*RARE_ROWS, tolerance=1.0, objective="f1", safety=1.0)
    y, _, p_y, _ = RARE_ROWS
    assert loose.solution_.status == "optimal"
    assert loose.solution_.utility > f1_score(y, p_y > 0.5)
    safe = eh.learn_rule(*RARE_ROWS, tolerance=0.1, objective="f1", safety=1.0)
    assert safe.solution_.used[0][1] < safe.solution_.asked[0][1] == 0.1
    assert len(safe.solution_.used) == 1


def test_confidence_goes_with_an_f_score():
    data = eh.datasets.make_zafar(6000, random_state=0)
    rule = eh.learn_rule(
        data.y, data.group, data.p_y, data.p_group, tolerance=0.2, confidence=0.9, objective="f1", random_state=0
    )
    assert rule.learned_from["confidence"]["constraints"][0]["certified_upper"] <= 0.2


def test_a_classifier_takes_the_objective():
    fair = eh.FairClassifier(LogisticRegression(), tolerance=0.1, objective="f1", random_state=0)
    fair.fit(DATA.X[RARE], DATA.y[RARE], sensitive_features=DATA.group[RARE])
    assert fair.rule_.learned_from["objective"] == "f1"
    plain = eh.FairClassifier(LogisticRegression(), tolerance=0.1, random_state=0)
    plain.fit(DATA.X[RARE], DATA.y[RARE], sensitive_features=DATA.group[RARE])
    labels = DATA.y[RARE]
    assert f1_score(labels, fair.predict(DATA.X[RARE])) > f1_score(labels, plain.predict(DATA.X[RARE]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "fbeta"}, "'f2' has beta = 2"),
        ({"objective": "recall"}, "objective must be"),
        ({"objective": None}, "objective must be"),
        ({"objective": ["f1"]}, "objective must be"),
        ({"objective": "f0"}, "above 0"),
        ({"objective": "f1e9"}, "objective must be"),
        ({"objective": "f1000"}, "at most 100"),
        ({"objective": "f1", "costs": (1, 5)}, "costs cannot be combined with an objective"),
        ({"objective": "f1", "search": "dual"}, "search='dual'"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(eh.InputError, match=message):
        eh.learn_rule(*ROWS, **options)


def test_labels_that_an_objective_needs_are_named():
    y, group, p_y, p_group = ROWS
    with pytest.raises(eh.InputError, match="both labels"):
        eh.learn_rule(np.zeros_like(y), group, p_y, p_group, objective="balanced_accuracy")
    with pytest.raises(eh.InputError, match="positive label"):
        read_objective("f1").worth(0.0)


@pytest.mark.parametrize("objective", ["balanced_accuracy", "f1"])
def test_within_strata_the_objective_is_that_of_all_rows(objective):
    y, group, p_y, p_group = (column[:300] for column in ROWS)
    strata = np.where(np.arange(300) % 3 == 0, "a", "b")
    criterion = eh.DemographicParity(within="job")
    rule = eh.learn_rule(
        y, group, p_y, p_group, criterion=criterion, tolerance=0.3, strata={"job": strata}, objective=objective
    )
    decided = rule.decide(p_y, p_group, strata={"job": strata})
    assert rule.solution_.utility == pytest.approx(METRICS[objective](y, decided))
    assert rule.solution_.status == "optimal"
