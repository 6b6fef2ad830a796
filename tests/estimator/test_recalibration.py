"""The correction of probabilities by what all models say together: what it finds, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from classifiers import paper_classifier
from evenhand.estimator import recalibration
from evenhand.estimator.recalibration import Recalibration, product_pairs


def drawn(rng, p):
    """Draw a class for each row of a table of probabilities."""
    return (rng.random((len(p), 1)) > np.cumsum(p, axis=1)).sum(axis=1)


def calibrated(rng, n=20_000, joint=False):
    """Return probabilities that are right, and labels and groups drawn from them."""
    cells = rng.dirichlet([2.0, 1.0, 1.0, 2.0], size=n)
    cell = drawn(rng, cells)
    p_group = cells.reshape(n, 2, 2) if joint else cells.reshape(n, 2, 2).sum(axis=1)
    return cells[:, 2] + cells[:, 3], {"A": p_group}, cell >= 2, {"A": cell % 2}


@pytest.mark.parametrize("joint", [False, True])
def test_right_probabilities_are_hardly_changed(joint):
    rng = np.random.default_rng(0)
    p_y, p_group, positive, codes = calibrated(rng, joint=joint)
    found = Recalibration.fit(p_y, p_group, positive, codes)
    new_y, new_group = found.apply(p_y, p_group)
    assert np.abs(new_y - p_y).mean() < 0.01
    assert np.abs(new_group["A"] - p_group["A"]).mean() < 0.01
    assert new_group["A"].shape == p_group["A"].shape
    np.testing.assert_allclose(new_group["A"].reshape(len(p_y), -1).sum(axis=1), 1.0)


def test_a_model_that_another_knows_better_than_is_put_right():
    """p(A|x) is calibrated on its own, and wrong for each value of p(Y|x): the correction finds the truth."""
    rng = np.random.default_rng(1)
    n = 40_000
    p_y = rng.choice([0.2, 0.8], size=n)
    told = np.full(n, 0.5)
    truth = np.where(p_y > 0.5, 0.75, 0.25)
    group, positive = (rng.random(n) < truth).astype(int), rng.random(n) < p_y
    p_group = {"A": np.column_stack([1 - told, told])}
    found = Recalibration.fit(p_y, p_group, positive, {"A": group})
    np.testing.assert_allclose(found.apply(p_y, p_group)[1]["A"][:, 1], truth, atol=0.02)


def test_weights_are_repetitions_and_few_rows_change_little():
    rng = np.random.default_rng(2)
    p_y, p_group, positive, codes = calibrated(rng, n=300)
    times = rng.integers(0, 3, size=300)
    again = np.repeat(np.arange(300), times)
    repeated = Recalibration.fit(p_y[again], {"A": p_group["A"][again]}, positive[again], {"A": codes["A"][again]})
    weighted = Recalibration.fit(p_y, p_group, positive, codes, times.astype(float))
    np.testing.assert_allclose(weighted.centre, repeated.centre)
    np.testing.assert_allclose(weighted.label_weights, repeated.label_weights, atol=1e-4)
    few = Recalibration.fit(p_y[:20], {"A": p_group["A"][:20]}, positive[:20], {"A": codes["A"][:20]})
    assert np.abs(few.label_weights[1:]).max() < 0.5


def test_beyond_the_scores_it_was_fitted_on_the_correction_stays_as_it_is_at_the_last():
    rng = np.random.default_rng(6)
    p_y, p_group, positive, codes = calibrated(rng, n=300)
    share = np.ones(300)
    # A row that does not count does not widen the range.
    p_y[0], p_group["A"][0], share[0] = 0.9999, [0.0001, 0.9999], 0.0
    found = Recalibration.fit(p_y, p_group, positive, codes, share)
    odds = [np.log(table[:, 1] / table[:, 0]) for table in (np.column_stack([1 - p_y, p_y]), p_group["A"])]
    last = np.array([ratio[1:].max() for ratio in odds])
    np.testing.assert_allclose((last - found.centre) / found.scale, found.highest)

    def shift(label_odds, group_odds):
        label, group = 1 / (1 + np.exp(-np.array([label_odds, group_odds])))
        new_y, new_group = found.apply(np.array([label]), {"A": np.array([[1 - group, group]])})
        new = new_group["A"][0]
        return np.log(new_y[0] / (1 - new_y[0])) - label_odds, np.log(new[1] / new[0]) - group_odds

    step = np.array([0.5, 0.7])
    np.testing.assert_allclose(shift(*(last + step)), shift(*last), atol=1e-9)
    assert np.abs(np.subtract(shift(*(last - step)), shift(*last))).max() > 1e-3


def test_the_weights_are_the_optimum_of_an_independent_solver():
    rng = np.random.default_rng(3)
    p_y, p_group, positive, codes = calibrated(rng, n=400, joint=True)
    share = rng.uniform(0.5, 2.0, size=400)
    found = Recalibration.fit(p_y, p_group, positive, codes, share)
    cells = p_group["A"].reshape(-1, 4)
    tables = np.column_stack([1 - p_y, p_y]), cells
    scores = np.column_stack([np.log(table[:, 1:] / table[:, :1]) for table in tables])
    standard = (scores - found.centre) / found.scale
    products = [standard[:, i] * standard[:, j] for i in range(4) for j in range(i, 4)]
    features = np.column_stack([np.ones(400), standard, *products])

    def loss(flat):
        weights = flat.reshape(15, 4)
        log_p = log_softmax(np.log(cells) + features @ weights, axis=1)[np.arange(400), 2 * positive + codes["A"]]
        return 0.5 * recalibration.PENALTY * (weights[1:] ** 2).sum() - (share * log_p).sum()

    best = minimize(loss, np.zeros(60), method="BFGS").fun
    assert loss(found.group_weights["A"].ravel()) == pytest.approx(best, rel=1e-6)
    assert loss(found.group_weights["A"].ravel()) < loss(np.zeros(60)) - 1.0


def test_certain_models_and_many_groups_give_finite_probabilities():
    rng = np.random.default_rng(4)
    n, size = 500, 12
    group = rng.integers(size, size=n)
    positive = rng.random(n) < 0.5
    p_group = {"A": np.eye(size)[group]}
    found = Recalibration.fit(positive.astype(float), p_group, positive, {"A": group})
    assert len(product_pairs(1 + size - 1)[0]) == 0
    assert len(found.label_weights) == 1 + size
    p_y, corrected = found.apply(positive.astype(float), p_group)
    assert np.isfinite(p_y).all()
    assert ((corrected["A"] > 0) & (corrected["A"] < 1)).all()
    np.testing.assert_array_equal(p_y > 0.5, positive)


def test_a_criterion_without_groups_corrects_the_label_alone():
    data = eh.datasets.make_zafar(600, random_state=0)
    budget = eh.SelectionBudget(upper=0.3)
    fair = paper_classifier(LogisticRegression(), criterion=budget, recalibrate=True, random_state=0)
    assert fair.fit(data.X, data.y, sensitive_features=data.group).predict(data.X).mean() < 0.35


@pytest.fixture(scope="module")
def overfitted():
    """Trees that are far too sure: 3,000 rows, two attributes."""
    data = eh.datasets.make_zafar(3_000, random_state=5)
    groups = {"A": data.group, "B": (data.X[:, 0] > 0).astype(int)}
    return data, groups


@pytest.mark.parametrize("criterion", ["dp", "eo"])
@pytest.mark.parametrize("ensemble", [False, True, "matched"])
def test_the_classifier_decides_with_corrected_probabilities(criterion, ensemble, overfitted):
    data, groups = overfitted
    if criterion == "eo":  # two attributes are K = 4, whose proof takes long
        groups = {"A": groups["A"]}
    tree = DecisionTreeClassifier(max_depth=8, random_state=0)
    options = {"criterion": criterion, "tolerance": 0.1, "ensemble": ensemble, "random_state": 0}
    plain = paper_classifier(tree, **options).fit(data.X, data.y, sensitive_features=groups)
    fair = paper_classifier(tree, recalibrate=True, **options).fit(data.X, data.y, sensitive_features=groups)
    held = fair.held_out_
    errors = [
        {(c.model, c.name): c.calibration_error for c in one.diagnostics_.classes} for one in (plain, fair)
    ]  # fmt: skip
    assert errors[0].keys() == errors[1].keys()
    assert np.mean(list(errors[1].values())) < 0.5 * np.mean(list(errors[0].values()))
    np.testing.assert_array_equal(fair.predict_proba(data.X), plain.predict_proba(data.X))
    decided = fair.rule_.decide(held.p_y, held.p_group)
    for group in groups.values():
        gap = {"dp": eh.metrics.demographic_parity_difference, "eo": eh.metrics.equalized_odds_difference}[criterion]
        assert gap(held.y, decided, sensitive_features=group[held.rows]) <= 0.1 + 1e-9
    again = paper_classifier(tree, recalibrate=True, **options).fit(data.X, data.y, sensitive_features=groups)
    np.testing.assert_array_equal(again.held_out_.p_y, held.p_y)
    for name, probabilities in held.p_group.items():
        np.testing.assert_array_equal(again.held_out_.p_group[name], probabilities)
    np.testing.assert_array_equal(again.rule_.z, fair.rule_.z)


def test_frozen_models_hold_outs_and_promises_are_corrected_too(overfitted):
    data, _ = overfitted
    half = np.arange(len(data.y)) % 2 == 0
    tree = DecisionTreeClassifier(max_depth=8, random_state=0)
    frozen = FrozenEstimator(tree.fit(data.X[half], data.y[half]))
    group_model = FrozenEstimator(DecisionTreeClassifier(max_depth=6).fit(data.X[half], data.group[half]))
    fair = paper_classifier(frozen, auxiliary=group_model, criterion="dp", tolerance=0.1, cv=None, recalibrate=True)
    fair.fit(data.X[~half], data.y[~half], sensitive_features=data.group[~half])
    p_y, p_group = fair._models.probabilities(data.X[~half], {})
    np.testing.assert_array_equal(p_y, fair.held_out_.p_y)
    np.testing.assert_array_equal(p_group["group"], fair.held_out_.p_group["group"])
    promised = paper_classifier(
        LogisticRegression(), criterion="dp", tolerance=0.2, cv=0.3, confidence=0.8, recalibrate=True, random_state=0
    ).fit(data.X, data.y, sensitive_features=data.group)
    assert promised.rule_.learned_from["confidence"]["confidence"] == 0.8


def test_with_the_attribute_at_prediction_there_is_nothing_to_correct(overfitted):
    data, _ = overfitted
    fair = paper_classifier(LogisticRegression(), sensitive_at_predict=True, recalibrate=True)
    with pytest.raises(eh.InputError, match="infers none"):
        fair.fit(data.X, data.y, sensitive_features=data.group)
