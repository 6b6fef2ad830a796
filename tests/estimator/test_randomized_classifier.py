"""FairClassifier(randomize=True): lots by key, chances, tolerances that no rule meets, files."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.rules.mixture import DrawnReceipt
from evenhand.rules.rule import Receipt

DATA = eh.datasets.make_zafar(1200, random_state=5)
ROWS = (DATA.X, DATA.y)


def fitted(**options):
    options = {"criterion": "eo", "tolerance": 0.02, "safety": 0.0, "cv": 2, "random_state": 0, **options}
    return eh.FairClassifier(LogisticRegression(), **options).fit(*ROWS, sensitive_features=DATA.group)


@pytest.fixture(scope="module")
def fair():
    return fitted(randomize=True)


def test_lots_are_drawn_by_key(fair):
    keys = np.arange(len(DATA.y))
    p_y, p_group = fair.probabilities(DATA.X)
    assert isinstance(fair.rule_, eh.Mixture)
    np.testing.assert_array_equal(fair.predict(DATA.X, key=keys), fair.rule_.decide(p_y, p_group, key=keys))
    np.testing.assert_array_equal(fair.predict(DATA.X), fair.rule_.decide(p_y, p_group))
    some = [900, 3, 77]
    np.testing.assert_array_equal(fair.predict(DATA.X[some], key=keys[some]), fair.predict(DATA.X, key=keys)[some])
    chance = fair.expected_decision(DATA.X)
    np.testing.assert_array_equal(chance, fair.rule_.expected_decision(p_y, p_group))
    drawn = np.mean([fair.predict(DATA.X, key=keys + 10_000 * k) for k in range(40)], axis=0)
    assert ((chance > 0) & (chance < 1)).any()
    assert np.abs(drawn - chance).mean() < 0.01
    assert fair.score(*ROWS, key=keys) == np.mean(fair.predict(DATA.X, key=keys) == DATA.y)
    np.testing.assert_array_equal(fair.decision_function(DATA.X, key=keys) > 0, fair.predict(DATA.X, key=keys) == 1)


def test_the_bounds_hold_in_the_mean_of_the_rows_it_was_learnt_from(fair):
    held = fair.held_out_
    chance = fair.rule_.expected_decision(held.p_y, held.p_group)
    for label in (0, 1):
        one, other = (chance[(held.y == label) & (DATA.group[held.rows] == g)].mean() for g in np.unique(DATA.group))
        assert abs(one - other) <= 0.02 + 1e-9


def test_receipts_name_the_chance_and_the_lot(fair):
    keys = np.arange(len(DATA.y))
    receipts = fair.explain(DATA.X, key=keys)
    assert all(isinstance(receipt, DrawnReceipt) for receipt in receipts)
    assert [receipt.decision for receipt in receipts] == fair.predict(DATA.X, key=keys).tolist()
    base = (fair.predict_proba(DATA.X)[:, 1] > 0.5).astype(int)
    assert [receipt.flipped for receipt in receipts] == (fair.predict(DATA.X, key=keys) != base).tolist()
    by_lot = next(receipt for receipt in receipts if receipt.by_lot)
    assert f"the lot {by_lot.lot:.4f} is" in str(by_lot)
    assert "so the lot has no effect" in str(next(receipt for receipt in receipts if not receipt.by_lot))
    for receipt in receipts:
        expected = sum(w for w, m in zip(receipt.weights, receipt.fair_margins, strict=True) if m > 0)
        assert receipt.expected_decision == pytest.approx(expected, abs=1e-9)
        assert (receipt.decision == 1) == (receipt.lot < receipt.expected_decision)


def test_another_tolerance_and_the_frontier(fair):
    strict = fair.with_tolerance(0.0)
    assert isinstance(strict.rule_, eh.Mixture)
    assert max(map(abs, strict.rule_.solution_.values)) <= 1e-9
    assert strict.rule_.solution_.utility <= fair.rule_.solution_.utility + 1e-9
    assert len(fair.frontier())


def test_a_saved_one_draws_the_same_lots(fair, tmp_path):
    eh.io.save(fair, tmp_path / "fair.skops")
    again = eh.io.load(tmp_path / "fair.skops")
    assert again.rule_ == fair.rule_
    for key in (None, np.arange(len(DATA.y)), [f"person {k}" for k in range(len(DATA.y))]):
        np.testing.assert_array_equal(again.predict(DATA.X, key=key), fair.predict(DATA.X, key=key))
    assert again.with_tolerance(0.0).rule_ == fair.with_tolerance(0.0).rule_


def test_a_known_attribute_loses_less_than_without_lots():
    options = {"tolerance": 1e-4, "sensitive_at_predict": True}
    fair = fitted(**options, randomize=True)
    assert max(map(abs, fair.rule_.solution_.values)) <= 1e-4 + 1e-9
    assert fair.rule_.solution_.utility > fitted(**options).rule_.solution_.utility + 0.005
    keys = np.arange(len(DATA.y))
    assert fair.predict(DATA.X, sensitive_features=DATA.group, key=keys).shape == keys.shape


def test_safety_leaves_a_fair_model_alone():
    fair = fitted(criterion="dp", tolerance=0.9, safety=1.0, randomize=True)
    assert fair.rule_.solution_.status == "unchanged"
    assert fair.rule_.weights == (1.0,)
    np.testing.assert_array_equal(fair.predict(DATA.X), (fair.predict_proba(DATA.X)[:, 1] > 0.5).astype(int))


def test_where_no_mixture_meets_bounds_drawn_in_a_warning_says_so():
    """Floors under both selection rates and a ceiling on everyone's leave no room for standard errors."""
    both = eh.MinimumRate("selection", 0.4) & eh.SelectionBudget(upper=0.4)
    with pytest.warns(eh.EvenhandWarning, match="safety"):
        fair = fitted(criterion=both, safety=1.0, randomize=True)
    assert fair.rule_.solution_.asked == fair.rule_.solution_.used


def test_a_classifier_without_lots():
    fair = fitted()
    assert set(np.unique(fair.expected_decision(DATA.X))) <= {0.0, 1.0}
    np.testing.assert_array_equal(fair.expected_decision(DATA.X) == 1.0, fair.predict(DATA.X) == 1)
    assert isinstance(fair.explain(DATA.X[:1])[0], Receipt)
    for call in (fair.predict, fair.decision_function, fair.explain):
        with pytest.raises(eh.InputError, match="not randomized"):
            call(DATA.X[:2], key=[1, 2])


@pytest.mark.parametrize(
    ("options", "says"),
    [({"search": "lines"}, "search"), ({"randomize": "yes"}, "randomize")],
)
def test_what_does_not_go_with_lots_is_refused(options, says):
    with pytest.raises((eh.InputError, ValueError), match=says):
        fitted(**{"randomize": True, **options})


@pytest.mark.parametrize("key", [[1], [0.5, 1.5], [None, 1], [-1, 3], "ab"])
def test_wrong_keys_are_refused(fair, key):
    with pytest.raises(eh.InputError, match="key"):
        fair.predict(DATA.X[:2], key=key)


def test_precision_floors_take_safety_too():
    fair = fitted(criterion=eh.MinimumRate("precision", 0.8), safety=1.0, randomize=True)
    held = fair.held_out_
    chance = fair.rule_.expected_decision(held.p_y, held.p_group)
    for group in np.unique(DATA.group):
        inside = DATA.group[held.rows] == group
        assert (chance * held.y)[inside].sum() >= 0.8 * chance[inside].sum() - 1e-6
