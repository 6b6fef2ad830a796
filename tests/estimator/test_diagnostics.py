from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score

import evenhand as eh
from classifiers import paper_classifier
from evenhand.estimator.diagnostics import auc
from evenhand.statistics.calibration import calibration_error

seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=50)
@given(seeds, st.integers(5, 200), st.booleans())
def test_auc_is_scikit_learns(seed, n, ties):
    rng = np.random.default_rng(seed)
    inside = np.append(rng.random(n) < 0.4, [True, False])
    score = rng.random(n + 2).round(1 if ties else 9)
    weight = rng.random(n + 2) + 0.1
    assert auc(score, inside, weight) == pytest.approx(roc_auc_score(inside, score, sample_weight=weight))


def test_auc_of_one_class_alone_is_nan():
    assert np.isnan(auc(np.array([0.1, 0.4]), np.array([True, True]), np.ones(2)))


@settings(max_examples=30)
@given(seeds)
def test_calibration_error_is_small_at_the_truth_and_the_bias_elsewhere(seed):
    rng = np.random.default_rng(seed)
    p = rng.random(20_000)
    inside = rng.random(20_000) < p
    assert calibration_error(p, inside, np.ones(20_000)) < 0.03
    assert calibration_error(np.full(20_000, 0.9), inside, np.ones(20_000)) == pytest.approx(0.9 - inside.mean())


def test_calibration_error_counts_a_weight_of_k_as_k_copies():
    rng = np.random.default_rng(0)
    p, inside, copies = rng.random(300), rng.random(300) < 0.3, rng.integers(1, 4, 300)
    weighted = calibration_error(p, inside, copies.astype(float))
    repeated = calibration_error(p.repeat(copies), inside.repeat(copies), np.ones(copies.sum()))
    assert weighted == pytest.approx(repeated)


@pytest.fixture(scope="module")
def fitted() -> eh.FairClassifier:
    data = eh.datasets.make_zafar(1200, random_state=0)
    fair = paper_classifier(LogisticRegression(), cv=3, random_state=0)
    return fair.fit(data.X, data.y, sensitive_features={"sex": data.group})


def test_cells_are_counted(fitted):
    found = {(cell.attribute, cell.group, cell.label): cell.rows for cell in fitted.diagnostics_.cells}
    assert found == {("sex", "0", 0): 100, ("sex", "0", 1): 500, ("sex", "1", 0): 500, ("sex", "1", 1): 100}
    assert fitted.diagnostics_.rows == 1200


def test_quality_is_that_of_the_probabilities_the_rule_was_learnt_from(fitted):
    held, first = fitted.held_out_, fitted.diagnostics_.classes[0]
    assert first.model == "p(Y|x)"
    assert first.auc == pytest.approx(roc_auc_score(held.y, held.p_y))
    assert first.brier == pytest.approx(brier_score_loss(held.y, held.p_y))
    joint = fitted.diagnostics_.classes[4]
    assert joint.name == "label 1 and sex='1'"
    inside = (held.y == 1) & (held.sensitive_features["sex"] == "1")
    assert joint.auc == pytest.approx(roc_auc_score(inside, held.p_group["sex"][:, 1, 1]))
    assert not fitted.diagnostics_.weaknesses


def test_diagnostics_read_as_a_table(fitted):
    text = str(fitted.diagnostics_)
    assert "1200 rows" in text
    assert "label 1 and sex='1'" in text
    assert "between the groups of 'sex' among rows with label 0" in text


def test_demographic_parity_is_diagnosed_on_the_groups_alone():
    data = eh.datasets.make_zafar(600, random_state=0)
    fair = paper_classifier(LogisticRegression(), criterion="demographic_parity", cv=3, random_state=0)
    found = fair.fit(data.X, data.y, sensitive_features=data.group).diagnostics_
    assert [quality.model for quality in found.classes] == ["p(Y|x)", "p(group|x)", "p(group|x)"]
    assert [separation.label for separation in found.separations] == [None]


def test_a_weak_auxiliary_is_warned_of_when_the_rule_has_to_act():
    data = eh.datasets.make_zafar(1200, random_state=0)
    blind = DummyClassifier(strategy="prior")
    fair = paper_classifier(LogisticRegression(), auxiliary=blind, cv=3, random_state=0)
    with pytest.warns(eh.EvenhandWarning, match=r"hardly separates the groups of 'group' among rows with label 0"):
        fair.fit(data.X, data.y, sensitive_features=data.group)
    assert len(fair.diagnostics_.weaknesses) == 2
    assert "(weak)" in str(fair.diagnostics_)


def test_a_tolerance_that_a_weak_auxiliary_cannot_reach_says_why():
    data = eh.datasets.make_zafar(1200, random_state=0)
    model = FrozenEstimator(LogisticRegression().fit(data.X, data.y))
    blind = FrozenEstimator(DummyClassifier().fit(data.X, 2 * data.y + (data.group == "1")))
    fair = paper_classifier(model, auxiliary=blind, cv=None)
    with pytest.raises(eh.InfeasibleError) as caught:
        fair.fit(data.X, data.y, sensitive_features=data.group)
    notes = "\n".join(caught.value.__notes__)
    assert "hardly separates" in notes
    assert "with_tolerance" in notes
    assert fair.with_tolerance(1.0).rule_.tolerance == 1.0
