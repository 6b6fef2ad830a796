"""What a fair classifier does by default, and with rows of unknown group, other evidence, or one model of both."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from classifiers import paper_classifier
from evenhand.estimator.crossfit import FoldEnsemble, LabelMarginal

DATA = eh.datasets.make_zafar(1500, random_state=3)
TRUTH = {"sensitive_features": DATA.group}


@pytest.fixture(scope="module")
def default() -> eh.FairClassifier:
    return eh.FairClassifier(LogisticRegression(), tolerance=0.2, random_state=0).fit(DATA.X, DATA.y, **TRUTH)


def test_defaults(default):
    """Demographic parity, as learn_rule; bounds drawn in by one standard error; the folds' models averaged."""
    assert default.rule_.criterion == eh.DemographicParity()
    ((_, used),) = default.rule_.solution_.used
    assert 0.1 < used < 0.2
    assert abs(default.rule_.solution_.values[0]) <= used + 1e-9
    assert isinstance(default.estimator_, FoldEnsemble)
    assert len(default.estimator_.estimators) == 5


def test_the_frontier_and_other_tolerances_are_drawn_in_too(default):
    assert all(point.rule.solution_.used is not None for point in default.frontier())
    assert default.with_tolerance(0.3).rule_.solution_.used[0][1] < 0.3


@pytest.mark.parametrize("within", [None, "job"])
def test_accuracy_parity_has_a_frontier_and_a_report_by_default(within):
    X = pd.DataFrame(DATA.X, columns=["a", "b"]).assign(job=np.arange(1500) % 2)
    fair = eh.FairClassifier(
        LogisticRegression(), criterion=eh.AccuracyParity(within=within), tolerance=0.1, cv=2, random_state=0
    ).fit(X, DATA.y, **TRUTH)
    assert len(fair.rule_.solution_.used) == 1 + (within is not None)
    assert len(fair.frontier()) > 1
    assert fair.report(X, DATA.y, **TRUTH).html


def test_a_model_within_the_tolerance_is_left_alone(default):
    left = default.with_tolerance(0.9)
    assert left.rule_.solution_.status == "unchanged"
    np.testing.assert_array_equal(left.predict(DATA.X), left.classes_[left.predict_proba(DATA.X).argmax(axis=1)])


@pytest.mark.parametrize("cv", [0.4, None])
def test_without_folds_there_is_nothing_to_average(cv):
    from sklearn.frozen import FrozenEstimator

    label = LogisticRegression().fit(DATA.X, DATA.y)
    group = LogisticRegression().fit(DATA.X, DATA.group)
    models = (LogisticRegression(), None) if cv else (FrozenEstimator(label), FrozenEstimator(group))
    fair = eh.FairClassifier(models[0], auxiliary=models[1], cv=cv, tolerance=0.2, random_state=0)
    assert not isinstance(fair.fit(DATA.X, DATA.y, **TRUTH).estimator_, FoldEnsemble)


@pytest.mark.parametrize("bad", [-0.5, "1", None, np.nan])
def test_a_wrong_safety_is_refused(bad):
    with pytest.raises(ValueError, match="standard errors"):
        eh.FairClassifier(LogisticRegression(), safety=bad).fit(DATA.X, DATA.y, **TRUTH)


def with_unknown(share: float, seed: int = 0):
    """Return the groups with a share unknown, and which are known."""
    rng = np.random.default_rng(seed)
    known = rng.random(len(DATA.y)) >= share
    return np.where(known, DATA.group.astype(object), None), known


@pytest.mark.parametrize("criterion", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("options", [{}, {"recalibrate": True}, {"auxiliary": "joint"}, {"ensemble": False}])
def test_rows_of_unknown_group_count_for_accuracy_alone(criterion, options):
    groups, known = with_unknown(0.3)
    fair = paper_classifier(
        LogisticRegression(), criterion=criterion, missing="ignore", tolerance=0.1, cv=3, random_state=0, **options
    ).fit(DATA.X, DATA.y, sensitive_features=groups)
    held = fair.held_out_
    assert len(held.p_y) == len(DATA.y)
    # The rule is what learn_rule makes of the same probabilities.
    rule = eh.learn_rule(
        DATA.y, groups, held.p_y, held.p_group["group"], criterion=criterion, tolerance=0.1, missing="ignore",
        random_state=0,
    )  # fmt: skip
    assert rule.z.tolist() == fair.rule_.z.tolist()
    assert rule.learned_from["rows_by_event"] == fair.rule_.learned_from["rows_by_event"]
    decided = fair.rule_.decide(held.p_y, held.p_group)
    gap = {
        "demographic_parity": eh.metrics.demographic_parity_difference,
        "equalized_odds": eh.metrics.equalized_odds_difference,
    }[criterion](DATA.y[known], decided[known], sensitive_features=DATA.group[known])
    assert gap <= 0.1 + 1e-9
    assert fair.rule_.solution_.utility == pytest.approx(np.mean(decided == DATA.y))


class Counting(LogisticRegression):
    """Remembers how many rows it saw."""

    def fit(self, X, y, sample_weight=None):
        self.rows_, self.seen_ = len(X), np.unique(y)
        return super().fit(X, y, sample_weight)


def test_the_auxiliary_model_sees_no_row_of_unknown_group():
    groups, known = with_unknown(0.4)
    fair = paper_classifier(Counting(), criterion="dp", missing="ignore", tolerance=0.2, cv=3, random_state=0)
    fair.fit(DATA.X, DATA.y, sensitive_features=groups)
    assert fair.estimator_.rows_ == len(DATA.y)
    assert fair.auxiliary_.rows_ == known.sum()
    assert fair.auxiliary_.seen_.tolist() == [0, 1]


def test_quality_is_measured_on_rows_of_known_group():
    groups, known = with_unknown(0.3)
    options = {"criterion": "eo", "tolerance": 0.3, "cv": 3, "random_state": 0}
    fair = paper_classifier(LogisticRegression(), missing="ignore", **options)
    fair.fit(DATA.X, DATA.y, sensitive_features=groups)
    shares = [found.share for found in fair.diagnostics_.classes[1:]]
    cells = [np.mean((DATA.y[known] == y) & (DATA.group[known] == a)) for y in (0, 1) for a in np.unique(DATA.group)]
    assert shares == pytest.approx(cells)


def test_unknown_groups_are_an_error_by_default_and_with_known_groups():
    groups, _ = with_unknown(0.1)
    with pytest.raises(ValueError, match="is missing in"):
        eh.FairClassifier(LogisticRegression()).fit(DATA.X, DATA.y, sensitive_features=groups)
    fair = eh.FairClassifier(LogisticRegression(), missing="ignore", sensitive_at_predict=True)
    with pytest.raises(ValueError, match="drop rows whose group is missing"):
        fair.fit(DATA.X, DATA.y, sensitive_features=groups)


@pytest.mark.parametrize("evidence", ["labels", "model", "both"])
def test_evidence_is_that_of_learn_rule(evidence):
    fair = paper_classifier(
        LogisticRegression(), criterion="dp", evidence=evidence, tolerance=0.1, cv=3, random_state=0
    )
    fair.fit(DATA.X, DATA.y, **TRUTH)
    held = fair.held_out_
    rule = eh.learn_rule(
        DATA.y, DATA.group, held.p_y, held.p_group["group"], criterion="dp", tolerance=0.1, evidence=evidence
    )
    assert rule.z.tolist() == fair.rule_.z.tolist()
    assert fair.rule_.learned_from["evidence"] == evidence


@pytest.mark.parametrize("criterion", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("pos_label", [0, 1])
@pytest.mark.parametrize("ensemble", [False, True])
def test_one_model_of_label_and_group_is_enough(criterion, pos_label, ensemble):
    fair = paper_classifier(
        Counting(), auxiliary="joint", criterion=criterion, ensemble=ensemble, pos_label=pos_label, tolerance=0.2, cv=3,
        random_state=0,
    ).fit(DATA.X, DATA.y, **TRUTH)  # fmt: skip
    assert isinstance(fair.estimator_, LabelMarginal)
    p_y, p_group = fair.probabilities(DATA.X)
    joint = p_group["group"]
    assert joint.shape == (len(DATA.y), 2, 2)
    np.testing.assert_allclose(joint.sum(axis=(1, 2)), 1.0)
    np.testing.assert_array_equal(p_y, joint[:, 1].sum(axis=1))
    place = list(fair.classes_).index(pos_label)
    np.testing.assert_allclose(fair.predict_proba(DATA.X)[:, place], p_y, atol=1e-12)
    np.testing.assert_array_equal(fair.predict(DATA.X), fair.rule_.decide(p_y, p_group))
    # Close to what two models say, of which one is trained on labels alone.
    two = paper_classifier(LogisticRegression(), criterion=criterion, pos_label=pos_label, tolerance=0.2, cv=3)
    apart = two.fit(DATA.X, DATA.y, **TRUTH).probabilities(DATA.X)[0] - p_y
    assert np.abs(apart).mean() < 0.05


def test_one_model_is_trained_where_two_would_be():
    trained = []

    class Telling(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            trained.append(len(np.unique(y)))
            return super().fit(X, y, sample_weight)

    for auxiliary, expected in (("joint", [4] * 4), (None, [2] * 4 + [4] * 4)):
        trained.clear()
        fair = paper_classifier(Telling(), auxiliary=auxiliary, tolerance=0.3, cv=3, random_state=0)
        fair.fit(DATA.X, DATA.y, **TRUTH)
        assert sorted(trained) == expected


@pytest.mark.parametrize(
    ("options", "groups", "message"),
    [
        ({}, {"a": DATA.group, "b": DATA.group[::-1]}, "supports one attribute"),
        ({"sensitive_at_predict": True}, DATA.group, "without sensitive_at_predict"),
        ({"cv": None}, DATA.group, "use it with cv=5"),
    ],
)
def test_one_model_has_its_limits(options, groups, message):
    with pytest.raises(ValueError, match=message):
        paper_classifier(LogisticRegression(), auxiliary="joint", **options).fit(
            DATA.X, DATA.y, sensitive_features=groups
        )


def test_one_model_is_saved_and_exported(tmp_path):
    from evenhand import io
    from evenhand.export.onnx import classifier_to_onnx

    fair = eh.FairClassifier(DecisionTreeClassifier(max_depth=4), auxiliary="joint", tolerance=0.2, random_state=0)
    fair.fit(DATA.X, DATA.y, **TRUTH)
    io.save(fair, tmp_path / "fair.skops")
    np.testing.assert_array_equal(io.load(tmp_path / "fair.skops").predict(DATA.X), fair.predict(DATA.X))
    assert classifier_to_onnx(fair, tmp_path / "fair.onnx", DATA.X).rows == len(DATA.y)
