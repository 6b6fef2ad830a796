from __future__ import annotations

import pickle
import sys
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from fairlearn.metrics import equalized_odds_difference
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import evenhand as eh
from classifiers import paper_classifier
from evenhand.errors import InfeasibleError, InputError

DATA = eh.datasets.make_zafar(600, random_state=0)
X, Y, GROUP = DATA.X, DATA.y, DATA.group


def fair_classifier(estimator=None, **options) -> eh.FairClassifier:
    options = {"cv": 3, "random_state": 0, **options}
    return paper_classifier(LogisticRegression() if estimator is None else estimator, **options)


def largest_gap(fair: eh.FairClassifier) -> float:
    return round(max(map(abs, fair.rule_.solution_.values)), 9)


class Counting(LogisticRegression):
    fits = 0

    def fit(self, X, y, sample_weight=None):
        type(self).fits += 1
        return super().fit(X, y, sample_weight)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Many small models train faster on one thread each, most of all when tests share the machine."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def fitted() -> eh.FairClassifier:
    return fair_classifier().fit(X, Y, sensitive_features=GROUP)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# --- what a user sees first ---------------------------------------------------------------------------------


def test_predict_needs_only_x_and_the_gap_is_within_the_tolerance(fitted):
    assert fitted.predict(X).shape == (600,)
    held = fitted.held_out_
    decisions = fitted.rule_.decide(held.p_y, held.p_group)
    assert equalized_odds_difference(held.y, decisions, sensitive_features=GROUP) <= 0.05
    assert fitted.rule_.solution_.status == "optimal"
    np.testing.assert_array_equal(held.rows, np.arange(600))


def test_methods_agree_with_each_other_and_with_the_rule(fitted):
    p_y = fitted.predict_proba(X)[:, 1]
    p_joint = fitted.auxiliary_.predict_proba(X).reshape(-1, 2, 2)
    np.testing.assert_array_equal(p_y, fitted.estimator_.predict_proba(X)[:, 1])
    np.testing.assert_array_equal(fitted.decision_function(X), fitted.rule_.decision_function(p_y, p_joint))
    np.testing.assert_array_equal(fitted.predict(X), (fitted.decision_function(X) > 0).astype(int))
    np.testing.assert_array_equal(fitted.bias_scores(X), fitted.rule_.bias_scores(p_y, p_joint))
    assert [receipt.decision for receipt in fitted.explain(X[:5])] == fitted.predict(X[:5]).tolist()
    assert fitted.score(X, Y) == pytest.approx((fitted.predict(X) == Y).mean())
    assert fitted.score(X, Y, Y + 1.0) == pytest.approx(np.average(fitted.predict(X) == Y, weights=Y + 1.0))
    assert fitted.n_features_in_ == 2
    assert not hasattr(fitted, "feature_names_in_")


def test_nothing_is_fitted_before_fit():
    for call in (
        lambda fair: fair.predict(X),
        lambda fair: fair.predict_proba(X),
        lambda fair: fair.with_tolerance(0.1),
        lambda fair: fair.frontier(),
    ):
        with pytest.raises(NotFittedError):
            call(fair_classifier())


def test_a_classifier_is_cloned_pickled_and_shown(fitted):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.decision_function(X), fitted.decision_function(X))
    assert not hasattr(clone(fitted), "rule_")
    assert clone(fitted).get_params()["estimator__C"] == 1.0
    assert fitted.set_params(verbose=0) is fitted
    before = set(vars(copy))
    assert "LogisticRegression" in copy._repr_html_()
    assert set(vars(copy)) == before
    assert "FairClassifier(" in repr(fitted)


# --- tolerance and frontier ---------------------------------------------------------------------------------


def same_rule(one: eh.Rule, other: eh.Rule) -> bool:
    return one.terms == other.terms and one.priors == other.priors and one.solution_.values == other.solution_.values


def test_with_tolerance_equals_a_fresh_fit_to_the_bit_and_trains_nothing():
    first = fair_classifier(Counting(), tolerance=0.05).fit(X, Y, sensitive_features=GROUP)
    Counting.fits = 0
    before = first.decision_function(X)
    other = first.with_tolerance(0.2)
    assert Counting.fits == 0
    fresh = fair_classifier(Counting(), tolerance=0.2).fit(X, Y, sensitive_features=GROUP)
    assert Counting.fits == 2 * 4
    assert same_rule(other.rule_, fresh.rule_)
    np.testing.assert_array_equal(other.decision_function(X), fresh.decision_function(X))
    assert (other.tolerance, first.tolerance, first.rule_.tolerance) == (0.2, 0.05, 0.05)
    np.testing.assert_array_equal(first.decision_function(X), before)
    other.set_params(estimator__C=7.0)
    assert first.estimator.C == 1.0


def test_the_frontier_trains_nothing_and_has_the_rule_of_each_tolerance():
    fair = fair_classifier(Counting()).fit(X, Y, sensitive_features=GROUP)
    Counting.fits = 0
    curve = fair.frontier()
    assert Counting.fits == 0
    assert curve is fair.frontier()
    assert (np.diff(curve.utilities) >= 0).all()
    point = curve.points[len(curve) // 2]
    assert fair.with_tolerance(point.tolerance).rule_.solution_.utility == pytest.approx(point.utility)


def test_a_criterion_without_a_moving_tolerance_has_no_frontier():
    criterion = eh.DemographicParity(tolerance=0.1)
    fair = fair_classifier(criterion=criterion).fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(InputError, match="no trade-off to compute"):
        fair.frontier()


def test_looking_at_every_attribute_runs_no_search(monkeypatch):
    fair = fair_classifier().fit(X, Y, sensitive_features=GROUP)

    def search(*args, **options):
        raise AssertionError("a search was run")

    monkeypatch.setattr("evenhand.estimator.classifier.frontier_of", search)
    monkeypatch.setattr("evenhand.estimator.classifier.best_rule", search)
    before = set(vars(fair))
    assert all(hasattr(fair, name) for name in dir(fair) if not name.startswith("__"))
    assert not hasattr(fair, "frontier_")
    assert set(vars(fair)) == before
    with pytest.raises(AssertionError, match="a search was run"):
        fair.frontier()


def test_another_fit_forgets_the_frontier():
    fair = fair_classifier().fit(X, Y, sensitive_features=GROUP)
    first = fair.frontier()
    half = slice(None, None, 2)
    fair.fit(X[half], Y[half], sensitive_features=GROUP[half])
    assert fair.frontier().base_utility != first.base_utility


def test_models_are_kept_when_no_rule_meets_the_tolerance():
    criterion = eh.EqualizedOdds() & eh.MinimumRate("tpr", 0.9) & eh.MinimumRate("tnr", 0.9)
    fair = fair_classifier(criterion=criterion, tolerance=0.0, search="dual")
    with pytest.raises(InfeasibleError) as caught:
        fair.fit(X, Y, sensitive_features=GROUP)
    assert any("with_tolerance" in note for note in caught.value.__notes__)
    with pytest.raises(NotFittedError):
        fair.predict(X)


# --- cv -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frozen() -> tuple[FrozenEstimator, FrozenEstimator, eh.datasets.Dataset]:
    train, valid = DATA.take(np.arange(300)), DATA.take(np.arange(300, 600))
    label = LogisticRegression().fit(train.X, train.y)
    joint = LogisticRegression().fit(train.X, 2 * train.y + (train.group == "1"))
    return FrozenEstimator(label), FrozenEstimator(joint), valid


def test_the_frozen_set_up_is_learn_rule_on_the_same_arrays(frozen):
    label, joint, valid = frozen
    fair = paper_classifier(label, auxiliary=joint, cv=None).fit(valid.X, valid.y, sensitive_features=valid.group)
    p_y, p_joint = label.predict_proba(valid.X)[:, 1], joint.predict_proba(valid.X).reshape(-1, 2, 2)
    rule = eh.learn_rule(valid.y, valid.group, p_y, p_joint, criterion="equalized_odds", tolerance=0.05)
    assert same_rule(fair.rule_, rule)
    assert (fair.estimator_, fair.auxiliary_) == (label, joint)
    np.testing.assert_array_equal(fair.predict(valid.X), rule.decide(p_y, p_joint))


class Relabelled(LogisticRegression):
    """A model whose classes have other names, and columns in another order."""

    def __init__(self, names, order):
        super().__init__()
        self.names, self.order = names, order

    def fit(self, X, y):
        super().fit(X, y)
        self.codes_ = self.classes_
        self.classes_ = np.fromiter((self.names[code] for code in self.order), object, len(self.order))
        return self

    def predict_proba(self, X):
        renamed, self.classes_ = self.classes_, self.codes_
        found = super().predict_proba(X)[:, self.order]
        self.classes_ = renamed
        return found


@pytest.mark.parametrize("names", [[0, 1, 2, 3], [(0, "0"), (0, "1"), (1, "0"), (1, "1")]])
def test_a_frozen_auxiliary_names_its_classes_by_number_or_by_label_and_group(frozen, names):
    label, joint, valid = frozen
    train = DATA.take(np.arange(300))
    other = Relabelled(names, [2, 0, 3, 1]).fit(train.X, 2 * train.y + (train.group == "1"))
    expected, found = (
        paper_classifier(label, auxiliary=model, cv=None).fit(valid.X, valid.y, sensitive_features=valid.group)
        for model in (joint, FrozenEstimator(other))
    )
    assert same_rule(expected.rule_, found.rule_)
    np.testing.assert_array_equal(expected.predict(X), found.predict(X))


def test_demographic_parity_takes_a_frozen_model_of_the_groups_or_of_label_and_group(frozen):
    label, joint, valid = frozen
    options = {"criterion": "demographic_parity", "cv": None}
    groups = FrozenEstimator(LogisticRegression().fit(X[:300], GROUP[:300]))
    for model in (joint, groups):
        fair = paper_classifier(label, auxiliary=model, **options)
        fair.fit(valid.X, valid.y, sensitive_features=valid.group)
        assert largest_gap(fair) <= 0.05


def test_a_frozen_model_can_go_with_one_that_is_cross_fitted(frozen):
    label, joint, valid = frozen
    for options in ({"estimator": label, "auxiliary": GaussianNB()}, {"auxiliary": joint}):
        fair = fair_classifier(**options).fit(valid.X, valid.y, sensitive_features=valid.group)
        assert largest_gap(fair) <= 0.05


def test_a_weight_of_k_equals_k_copies(frozen):
    label, joint, valid = frozen
    copies = np.random.default_rng(0).integers(0, 4, 300)
    weighted, repeated = (paper_classifier(label, auxiliary=joint, cv=None) for _ in range(2))
    weighted.fit(valid.X, valid.y, sensitive_features=valid.group, sample_weight=copies)
    rows = np.arange(300).repeat(copies)
    repeated.fit(valid.X[rows], valid.y[rows], sensitive_features=valid.group[rows])
    assert weighted.rule_.solution_.utility == pytest.approx(repeated.rule_.solution_.utility)
    np.testing.assert_allclose(weighted.rule_.priors, repeated.rule_.priors)
    counted = np.flatnonzero(copies)
    np.testing.assert_array_equal(weighted.predict(valid.X[counted]), repeated.predict(valid.X[counted]))
    np.testing.assert_array_equal(weighted.held_out_.rows, counted)


@pytest.mark.parametrize("options", [{"cv": 0.4}, {"ensemble": True}, {"cv": 0.4, "criterion": "demographic_parity"}])
def test_other_ways_to_hold_out_keep_the_tolerance_too(options):
    fair = fair_classifier(**options).fit(X, Y, sensitive_features=GROUP)
    assert largest_gap(fair) <= 0.05
    assert fair.predict(X).shape == (600,)
    assert fair.n_features_in_ == 2


def test_the_same_seed_gives_the_same_bits_whatever_n_jobs():
    base = RandomForestClassifier(5, min_samples_leaf=5)
    one, two, other = (
        fair_classifier(base, random_state=seed, n_jobs=n_jobs, cv=2).fit(X, Y, sensitive_features=GROUP)
        for seed, n_jobs in ((0, None), (0, 2), (1, None))
    )
    np.testing.assert_array_equal(one.held_out_.p_y, two.held_out_.p_y)
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
    assert same_rule(one.rule_, two.rule_)
    assert not np.array_equal(one.held_out_.p_y, other.held_out_.p_y)
    assert base.random_state is None


# --- groups and labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, int, bool, lambda g: f"group {g}", lambda g: (g, "x")])
def test_groups_are_of_any_kind(fitted, kind):
    values = np.fromiter((kind(int(g)) for g in GROUP), object, 600)
    fair = fair_classifier().fit(X, Y, sensitive_features=values)
    assert fair.rule_.groups["group"] == (kind(0), kind(1))
    np.testing.assert_array_equal(fair.predict(X), fitted.predict(X))


@pytest.mark.parametrize(
    "wrap",
    [
        list,
        lambda g: pd.Series(g, name="sex"),
        lambda g: pl.Series("sex", g),
        lambda g: pd.DataFrame({"sex": pd.Categorical(g)}),
        lambda g: pl.DataFrame({"sex": g}),
        lambda g: pa.table({"sex": g}),
        lambda g: {"sex": g},
        lambda g: g[:, None],
    ],
)
def test_sensitive_features_come_from_any_library(fitted, wrap):
    fair = fair_classifier().fit(X, Y, sensitive_features=wrap(GROUP))
    np.testing.assert_array_equal(fair.predict(X), fitted.predict(X))
    assert list(fair.rule_.groups) in (["sex"], ["group"])


@pytest.mark.parametrize(
    ("labels", "pos_label"),
    [
        (("no", "yes"), None),
        ((-1, 1), None),
        ((False, True), None),
        ((2.0, 5.0), None),
        (("yes", "zero"), "yes"),
    ],
)
def test_labels_are_any_two_values(fitted, labels, pos_label):
    positive = labels[1] if pos_label is None else pos_label
    negative = labels[0] if positive == labels[1] else labels[1]
    y = np.where(Y == 1, positive, negative)
    fair = fair_classifier(pos_label=pos_label).fit(X, y, sensitive_features=GROUP)
    assert fair.classes_.tolist() == sorted(labels)
    decided = fair.predict(X)
    assert decided.dtype == y.dtype
    np.testing.assert_array_equal(decided == positive, fitted.predict(X) == 1)
    np.testing.assert_array_equal(decided == fair.classes_[1], fair.decision_function(X) > 0)
    np.testing.assert_array_equal(fair.predict_proba(X).argmax(axis=1) == 1, fair.predict_proba(X)[:, 1] > 0.5)
    assert fair.rule_.classes == (negative, positive)


@pytest.fixture(scope="module")
def two_attributes():
    rng = np.random.default_rng(3)
    n = 800
    sex, race = rng.choice(["F", "M"], n), rng.choice(["a", "b"], n, p=[0.7, 0.3])
    y = (rng.random(n) < 0.35 + 0.2 * (sex == "M") + 0.1 * (race == "a")).astype(int)
    features = rng.normal(size=(n, 3))
    features += np.column_stack([y, (sex == "M") + 0.5 * y, (race == "a") - 0.5 * y]) * 1.2
    return features, y, sex, race


def test_several_attributes_must_each_meet_the_criterion(two_attributes):
    features, y, sex, race = two_attributes
    fair = fair_classifier(criterion="demographic_parity", cv=2)
    fair.fit(features, y, sensitive_features=pd.DataFrame({"sex": sex, "race": race}))
    held = fair.held_out_
    decided = fair.rule_.decide(held.p_y, held.p_group)
    for column in (sex, race):
        assert eh.metrics.demographic_parity_difference(y, decided, sensitive_features=column) <= 0.05
    assert list(fair.auxiliary_) == ["sex", "race"]
    assert fair.predict(features).shape == (800,)


def test_an_intersection_crosses_attributes(two_attributes):
    features, y, sex, race = two_attributes
    criterion = eh.DemographicParity(attribute=eh.Intersection("sex", "race"), tolerance=0.1)
    crossed = LogisticRegression(C=0.5)
    fair = fair_classifier(criterion=criterion, cv=2, auxiliary={("sex", "race"): crossed}, search="dual")
    fair.fit(features, y, sensitive_features={"sex": sex, "race": race})
    assert fair.rule_.groups[eh.Intersection("sex", "race")] == (("F", "a"), ("F", "b"), ("M", "a"), ("M", "b"))
    assert fair.auxiliary_.C == 0.5
    assert fair.auxiliary_.classes_.tolist() == [0, 1, 2, 3]
    assert fair.predict(features).shape == (800,)


def test_each_attribute_gets_the_model_that_its_criterion_needs(two_attributes):
    features, y, sex, race = two_attributes
    criterion = eh.DemographicParity(attribute="sex") & eh.EqualOpportunity(attribute="race")
    fair = fair_classifier(criterion=criterion, cv=2, tolerance=0.1)
    fair.fit(features, y, sensitive_features={"sex": sex, "race": race})
    assert {name: array.shape for name, array in fair.held_out_.p_group.items()} == {
        "sex": (800, 2),
        "race": (800, 2, 2),
    }
    assert largest_gap(fair) <= 0.1


def test_a_criterion_without_groups_needs_no_auxiliary_model():
    fair = fair_classifier(Counting(), criterion=eh.SelectionBudget(upper=0.3))
    Counting.fits = 0
    fair.fit(X, Y, sensitive_features=GROUP)
    assert Counting.fits == 4
    assert fair.auxiliary_ is None
    assert fair.rule_.decide(fair.held_out_.p_y).mean() <= 0.3


def test_costs_move_the_decisions():
    cheap, dear = (
        fair_classifier(costs=costs, tolerance=0.1).fit(X, Y, sensitive_features=GROUP).predict(X).mean()
        for costs in ((1, 5), {"false_positive": 5, "false_negative": 1})
    )
    assert cheap > dear


# --- the attribute at prediction ----------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["equalized_odds", "demographic_parity"])
def test_with_the_attribute_at_hand_the_rule_is_a_threshold_for_each_group(criterion):
    fair = fair_classifier(Counting(), criterion=criterion, sensitive_at_predict=True)
    Counting.fits = 0
    fair.fit(X, Y, sensitive_features=pd.Series(GROUP, name="sex"))
    assert Counting.fits == 4
    assert fair.auxiliary_ is None
    assert largest_gap(fair) <= 0.05
    decided = fair.predict(X, sensitive_features=GROUP)
    p = fair.predict_proba(X)[:, 1]
    for group in ("0", "1"):
        inside = group == GROUP
        order = np.argsort(p[inside])
        assert np.abs(np.diff(decided[inside][order])).sum() <= 1
    np.testing.assert_array_equal(decided == 1, fair.decision_function(X, sensitive_features=GROUP) > 0)
    assert fair.score(X, Y, sensitive_features=GROUP) == pytest.approx((decided == Y).mean())
    assert fair.bias_scores(X, sensitive_features=GROUP).shape[0] == 600
    assert len(fair.explain(X[:2], sensitive_features=GROUP[:2])) == 2


def test_the_attribute_is_asked_for_when_it_is_used_and_refused_when_it_is_not(fitted):
    fair = fair_classifier(sensitive_at_predict=True).fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(InputError, match=r"sensitive_at_predict=True\): pass sensitive_features with \['group'\]"):
        fair.predict(X)
    with pytest.raises(InputError, match="unknown group 'other'"):
        fair.predict(X[:1], sensitive_features=["other"])
    with pytest.raises(InputError, match="leave sensitive_features out"):
        fitted.predict(X, sensitive_features=GROUP)
    with pytest.raises(InputError, match="leave auxiliary=None"):
        fair_classifier(sensitive_at_predict=True, auxiliary=GaussianNB()).fit(X, Y, sensitive_features=GROUP)


def test_a_crossed_attribute_is_used_at_prediction(two_attributes):
    features, y, sex, race = two_attributes
    criterion = eh.DemographicParity(attribute=eh.Intersection("sex", "race"))
    fair = fair_classifier(criterion=criterion, cv=2, sensitive_at_predict=True, search="dual", tolerance=0.1)
    sensitive = {"sex": sex, "race": race}
    rows = slice(0, 3)
    every = fair.fit(features, y, sensitive_features=sensitive).predict(features, sensitive_features=sensitive)
    few = fair.predict(features[rows], sensitive_features={"sex": sex[rows], "race": race[rows]})
    np.testing.assert_array_equal(every[rows], few)
    with pytest.raises(InputError, match="no attribute 'race'"):
        fair.predict(features, sensitive_features={"sex": sex, "colour": race})


# --- X of any kind ------------------------------------------------------------------------------------------


def as_text(rows: np.ndarray) -> list[str]:
    return [f"{'warm' if a > 0 else 'cold'} {'high' if b > 0 else 'low'} a{int(a)} b{int(b)}" for a, b in rows]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: pd.DataFrame(x, columns=["a", "b"], index=np.arange(600)[::-1]),
        lambda x: pl.DataFrame({"a": x[:, 0], "b": x[:, 1]}),
        lambda x: pa.table({"a": x[:, 0], "b": x[:, 1]}),
        lambda x: x.tolist(),
        sparse.csr_array,
        sparse.csc_matrix,
        sparse.coo_array,
    ],
)
def test_x_of_any_library_gives_the_same_decisions(fitted, wrap):
    table = wrap(X)
    fair = fair_classifier().fit(table, Y, sensitive_features=GROUP)
    np.testing.assert_allclose(fair.decision_function(table), fitted.decision_function(X), rtol=1e-5)
    if hasattr(table, "columns") and not isinstance(table, pa.Table):
        assert fair.feature_names_in_.tolist() == ["a", "b"]


@pytest.mark.parametrize("wrap", [list, pd.Series])
def test_x_of_text(wrap):
    texts = wrap(as_text(X))
    base = make_pipeline(TfidfVectorizer(), LogisticRegression())
    fair = fair_classifier(base, tolerance=0.1).fit(texts, Y, sensitive_features=GROUP, sample_weight=np.ones(600))
    assert fair.predict(texts).shape == (600,)
    assert largest_gap(fair) <= 0.1


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_sensitive_columns_of_a_frame_are_kept_from_the_models(fitted, frame):
    whole, bare = frame({"a": X[:, 0], "sex": GROUP, "b": X[:, 1]}), frame({"a": X[:, 0], "b": X[:, 1]})
    fair = fair_classifier(sensitive_columns="sex").fit(whole, Y)
    np.testing.assert_array_equal(fair.predict(whole), fitted.predict(X))
    np.testing.assert_array_equal(fair.predict(bare), fitted.predict(X))
    assert fair.n_features_in_ == 3
    assert fair.feature_names_in_.tolist() == ["a", "sex", "b"]
    assert list(fair.rule_.groups) == ["sex"]


@pytest.mark.parametrize("wrap", [np.asarray, sparse.coo_array])
def test_sensitive_columns_of_an_array_are_numbers(fitted, wrap):
    table = wrap(np.column_stack([X[:, 0], GROUP == "1", X[:, 1]]))
    fair = fair_classifier(sensitive_columns=[1]).fit(table, Y)
    np.testing.assert_array_equal(fair.predict(table), fitted.predict(X))
    np.testing.assert_array_equal(fair.predict(wrap(X)), fitted.predict(X))
    with_it = fair_classifier(sensitive_columns=[1], drop_sensitive=False, sensitive_at_predict=True)
    assert with_it.fit(table, Y).predict(table).shape == (600,)
    assert with_it.estimator_.n_features_in_ == 3


@pytest.mark.parametrize(
    "base",
    [
        HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=8),
        RandomForestClassifier(10, min_samples_leaf=5),
        CalibratedClassifierCV(GaussianNB(), cv=2),
        make_pipeline(StandardScaler(), GaussianNB()),
    ],
    ids=lambda base: type(base).__name__,
)
def test_any_base_model(base):
    fair = fair_classifier(base, cv=2, tolerance=0.1).fit(X, Y, sensitive_features=GROUP)
    assert largest_gap(fair) <= 0.1
    assert fair.score(X, Y) > 0.6
    again = clone(fair).fit(X, Y, sensitive_features=GROUP)
    np.testing.assert_array_equal(fair.decision_function(X), again.decision_function(X))


def test_lightgbm():
    from lightgbm import LGBMClassifier

    base = LGBMClassifier(n_estimators=8, num_leaves=7, n_jobs=1, verbose=-1)
    frame = pd.DataFrame(X, columns=["a", "b"])
    fair = fair_classifier(base, cv=2, tolerance=0.1).fit(frame, Y, sensitive_features=GROUP)
    assert largest_gap(fair) <= 0.1
    assert fair.predict(frame).shape == (600,)
    assert fair.feature_names_in_.tolist() == ["a", "b"]


def test_a_skorch_network():
    torch = pytest.importorskip("torch")
    skorch = pytest.importorskip("skorch")

    class Linear(torch.nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.layer = torch.nn.Linear(2, classes)

        def forward(self, X):
            return torch.softmax(self.layer(X), dim=-1)

    def network(classes):
        return skorch.NeuralNetClassifier(
            Linear,
            module__classes=classes,
            max_epochs=6,
            lr=0.5,
            train_split=None,
            verbose=0,
            iterator_train__shuffle=False,
        )

    torch.manual_seed(0)
    features = X.astype(np.float32)
    fair = fair_classifier(network(2), auxiliary=network(4), cv=2, tolerance=0.1)
    fair.fit(features, Y, sensitive_features=GROUP)
    assert largest_gap(fair) <= 0.1
    assert fair.predict(features).shape == (600,)


# --- inside scikit-learn ------------------------------------------------------------------------------------


def test_grid_search_over_the_tolerance_and_over_the_base_model(fitted):
    score = make_scorer(lambda y, decided: (y == decided).mean())
    grid = {"tolerance": [0.02, 0.5], "estimator__C": [0.1, 1.0]}
    found = GridSearchCV(fair_classifier(cv=2), grid, cv=2, scoring=score, error_score="raise")
    found.fit(X, Y, sensitive_features=GROUP)
    assert found.best_params_["tolerance"] == 0.5
    assert found.predict(X).shape == (600,)


def test_metadata_is_routed_in_a_pipeline_a_grid_and_cross_validation(routing):
    gap = make_scorer(equalized_odds_difference, greater_is_better=False).set_score_request(sensitive_features=True)
    base = LogisticRegression().set_fit_request(sample_weight=True)
    fair = fair_classifier(base, cv=2).set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
    pipeline = make_pipeline(StandardScaler(), fair)
    metadata = {"sensitive_features": pd.Series(GROUP), "sample_weight": np.ones(600)}
    scores = cross_validate(
        pipeline, X, Y, cv=2, scoring={"gap": gap, "accuracy": "accuracy"},
        params={"sensitive_features": metadata["sensitive_features"]}, error_score="raise",
    )  # fmt: skip
    assert (scores["test_gap"] > -0.5).all()
    assert (scores["test_accuracy"] > 0.6).all()
    grid = GridSearchCV(pipeline, {"fairclassifier__tolerance": [0.02, 0.5]}, cv=2, scoring=gap, error_score="raise")
    grid.fit(X, Y, sensitive_features=GROUP)
    assert grid.best_params_["fairclassifier__tolerance"] in (0.02, 0.5)
    assert GridSearchCV(fair, {"tolerance": [0.1]}, cv=2, error_score="raise").fit(X, Y, **metadata).score(
        X, Y, sensitive_features=GROUP
    ) > 0.6  # fmt: skip


def test_weights_are_routed_to_the_models_that_ask_for_them(routing):
    class Recording(LogisticRegression):
        weights: ClassVar[list] = []

        def fit(self, X, y, sample_weight=None):
            self.weights.append(sample_weight)
            return super().fit(X, y, sample_weight)

    weight = np.arange(1.0, 601.0)
    base = Recording().set_fit_request(sample_weight=True)
    deaf = Recording(C=2.0).set_fit_request(sample_weight=False)
    fair_classifier(base, auxiliary=deaf, cv=2).fit(X, Y, sensitive_features=GROUP, sample_weight=weight)
    given = [w for w in Recording.weights if w is not None]
    assert (len(given), len(Recording.weights)) == (3, 6)
    assert np.array_equal(given[0], weight)
    assert sorted(np.concatenate(given[1:]).tolist()) == weight.tolist()
    routes = fair_classifier(base, auxiliary={"group": deaf}).get_metadata_routing()
    assert "auxiliary[group]" in str(routes)
    with pytest.raises(ValueError, match="sample_weight"):
        fair_classifier(LogisticRegression()).fit(X, Y, sensitive_features=GROUP, sample_weight=weight)


@pytest.mark.parametrize("with_rich", [True, False])
def test_progress_is_shown_when_asked_for(capsys, monkeypatch, with_rich):
    if not with_rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    fair_classifier(cv=2, verbose=1).fit(X, Y, sensitive_features=GROUP)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "trained p(Y, group|x) on fold 2 of 2" in shown.err
    assert "6/6" in shown.err
    fair_classifier(cv=2).fit(X, Y, sensitive_features=GROUP)
    assert capsys.readouterr().err == ""


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sensitive", "message"),
    [
        ({}, None, r"needs sensitive_features.*sensitive_columns=\['sex'\]"),
        ({}, GROUP[:-1], "has 599 rows"),
        ({}, [None, *GROUP[1:]], r"'group' is missing in 1 rows \(the first is row 0\)"),
        ({}, np.zeros(600), "only the group 0.0"),
        ({"sensitive_columns": [0]}, GROUP, "not both"),
        ({"sensitive_columns": ["sex"]}, None, "column numbers from 0 to 1"),
        ({"sensitive_columns": [2]}, None, "column numbers from 0 to 1; got 2"),
        ({"pos_label": "yes"}, GROUP, r"pos_label='yes' is not among the labels \[0, 1\]"),
        ({"cv": None}, GROUP, r"that of p\(Y\|x\) is not: wrap it in sklearn.frozen.FrozenEstimator"),
        ({"cv": 0.5, "ensemble": "matched"}, GROUP, "averages the models of folds"),
        ({"auxiliary": {"race": GaussianNB()}}, GROUP, "auxiliary has no model for 'group'"),
        ({"auxiliary": {"group": None, "race": GaussianNB()}}, GROUP, "not needed, for 'race'"),
        ({"criterion": eh.EqualizedOdds(attribute="sex")}, GROUP, "attribute 'sex'; the data has"),
        ({"criterion": "fair"}, GROUP, "Unknown criterion 'fair'"),
        ({"cv": 1}, GROUP, "'cv' parameter"),
        ({"tolerance": -0.1}, GROUP, "tolerance must not be negative; got -0.1"),
        ({"confidence": 1.0}, GROUP, "confidence must be strictly between 0 and 1"),
        ({"n_jobs": 0}, GROUP, "'n_jobs' parameter"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(options, sensitive, message):
    with pytest.raises(ValueError, match=message):
        fair_classifier(**options).fit(X, Y, sensitive_features=sensitive)


def test_mistakes_with_frozen_models_are_named(frozen):
    label, joint, valid = frozen

    def fit(estimator, auxiliary, **options):
        options = {"cv": None, **options}
        fair = paper_classifier(estimator, auxiliary=auxiliary, **options)
        return fair.fit(valid.X, valid.y, sensitive_features=valid.group)

    with pytest.raises(InputError, match="auxiliary=None cannot clone it"):
        fit(label, None)
    with pytest.raises(InputError, match="Set cv=None"):
        fit(label, joint, cv=5)
    with pytest.raises(InputError, match=r"needs p\(Y, group\|x\), but the frozen auxiliary model estimates only"):
        fit(label, FrozenEstimator(LogisticRegression().fit(X, GROUP)))
    with pytest.raises(InputError, match=r"classes_ of the frozen auxiliary model, \['x', 'y'\], are not those"):
        fit(label, FrozenEstimator(LogisticRegression().fit(X, np.where(GROUP == "1", "x", "y"))))
    with pytest.raises(InputError, match=r"frozen estimator's classes_ are \[5, 7\], but y has \[0, 1\]"):
        fit(FrozenEstimator(LogisticRegression().fit(X, 5 + 2 * Y)), joint)
    with pytest.raises(InputError, match="cannot serve"):
        paper_classifier(label, auxiliary=joint, cv=None).fit(
            valid.X, valid.y, sensitive_features={"a": valid.group, "b": valid.group}
        )


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.arange(600) % 3, "Only binary classification is supported"),
        (np.ones(600), "one class, 1.0"),
        (None, "requires y to be passed"),
        (np.where(Y == 1, "a", None), "missing label in row"),
        (np.array(["b", 1, 1, 0] * 150, dtype=object), "different types"),
        (Y[:-1], "inconsistent numbers of samples"),
    ],
)
def test_labels_that_cannot_be_used_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        fair_classifier().fit(X, y, sensitive_features=GROUP)


def test_a_failed_fit_leaves_no_old_rule_behind():
    fair = fair_classifier().fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(InputError):
        fair.fit(X, Y)
    with pytest.raises(NotFittedError):
        fair.predict(X)


def test_a_frame_without_the_named_column_is_an_error():
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    with pytest.raises(InputError, match=r"X has no column 'sex' \(sensitive_columns\); it has \['a', 'b'\]"):
        fair_classifier(sensitive_columns="sex").fit(frame, Y)
    whole = frame.assign(sex=GROUP)
    fair = fair_classifier(sensitive_columns="sex", sensitive_at_predict=True).fit(whole, Y)
    with pytest.raises(InputError, match="no column 'sex', which the decisions need"):
        fair.predict(frame)
    with pytest.raises(InputError, match="frame or a 2-D array"):
        fair_classifier(sensitive_columns="sex").fit(as_text(X), Y)


def test_routing_without_weights_trains_a_pipeline(routing):
    fair = fair_classifier(make_pipeline(StandardScaler(), LogisticRegression()))
    assert set(fair.fit(X, Y, sensitive_features=GROUP).predict(X)) == {0, 1}


@pytest.mark.parametrize("given", [{"gender": GROUP}, pd.DataFrame({"gender": GROUP}), pd.Series(GROUP, name="gender")])
def test_an_attribute_of_another_name_than_in_fit_is_refused(given):
    fair = fair_classifier(sensitive_at_predict=True).fit(X, Y, sensitive_features={"sex": GROUP})
    with pytest.raises(InputError, match=r"no attribute 'sex', which the decisions need; it has \['gender'\]"):
        fair.predict(X, sensitive_features=given)


def test_an_attribute_without_a_name_is_taken_for_the_only_one():
    named = fair_classifier(sensitive_at_predict=True).fit(X, Y, sensitive_features={"sex": GROUP})
    unnamed = fair_classifier(sensitive_at_predict=True).fit(X, Y, sensitive_features=GROUP)
    expected = named.predict(X, sensitive_features={"sex": GROUP})
    np.testing.assert_array_equal(named.predict(X, sensitive_features=pd.Series(GROUP)), expected)
    for given in (GROUP, {"sex": GROUP}, pd.DataFrame({"sex": GROUP})):
        np.testing.assert_array_equal(unnamed.predict(X, sensitive_features=given), expected)


def test_a_continuous_attribute_is_refused_before_anything_is_trained():
    before = Counting.fits
    with pytest.raises(InputError, match=r"600 different values in 600 rows: it looks like a number .* Bin it first"):
        fair_classifier(Counting()).fit(X, Y, sensitive_features=X[:, 0])
    assert Counting.fits == before


def test_rows_fewer_than_twice_the_groups_can_still_be_decided():
    many = np.array([f"g{row % 25:02}" for row in range(len(Y))])
    y = np.arange(len(Y)) // 25 % 2
    fair = fair_classifier(criterion="dp", search="dual", tolerance=0.5, cv=2, sensitive_at_predict=True)
    fair.fit(X, y, sensitive_features=many)
    assert len(fair.predict(X[:25], sensitive_features=many[:25])) == 25


def test_frames_whose_columns_have_numbers_for_names_are_read():
    frame = pd.DataFrame({0: GROUP, 1: np.arange(len(Y)) // 2 % 2})
    fair = fair_classifier(criterion="dp", sensitive_at_predict=True).fit(X, Y, sensitive_features=frame)
    assert list(fair.held_out_.groups) == ["0", "1"]
    with pytest.raises(InputError, match="same text as name"):
        fair.fit(X, Y, sensitive_features={0: GROUP, "0": GROUP})


def test_unknown_groups_at_predict_are_to_be_dropped():
    fair = fair_classifier(sensitive_at_predict=True).fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(InputError, match=r"missing in 1 rows .*: drop them, because") as error:
        fair.predict(X, sensitive_features=[None, *GROUP[1:]])
    assert "ignore" not in str(error.value)


def test_a_lazy_frame_is_to_be_collected_first():
    lazy = pl.DataFrame(X).lazy()
    fair = fair_classifier().fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(InputError, match=r"X is a lazy frame, .*: collect\(\) it first"):
        fair.fit(lazy, Y, sensitive_features=GROUP)
    with pytest.raises(InputError, match=r"collect\(\) it first"):
        fair_classifier(sensitive_columns="column_0").fit(lazy, Y)
    fair = fair_classifier().fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(InputError, match=r"collect\(\) it first"):
        fair.predict(lazy)


def test_a_group_found_only_among_rows_of_weight_zero_is_as_if_it_were_not_there():
    weight = np.ones(len(Y))
    weight[:3] = 0.0
    group = GROUP.astype(object)
    group[:2], group[2] = "other", None
    fair = fair_classifier().fit(X, Y, sensitive_features=group, sample_weight=weight)
    without = fair_classifier().fit(X[3:], Y[3:], sensitive_features=GROUP[3:])
    assert fair.held_out_.groups == without.held_out_.groups
    np.testing.assert_array_equal(fair.predict(X), without.predict(X))


def test_a_dict_that_scikit_learn_did_not_split_is_named_as_the_cause(routing):
    search = GridSearchCV(fair_classifier(), {"tolerance": [0.1]}, cv=2, error_score="raise")
    with pytest.raises(InputError, match="it cannot split a dict, so pass a DataFrame"):
        search.fit(X, Y, sensitive_features={"sex": GROUP})
    search.fit(X, Y, sensitive_features=pd.DataFrame({"sex": GROUP}))


class Arrays(LogisticRegression):
    """A model that does not look at names."""

    def fit(self, X, y):
        return super().fit(np.asarray(X), y)

    def predict_proba(self, X):
        return super().predict_proba(np.asarray(X))


def test_columns_of_x_may_share_a_name_where_the_model_does_not_mind():
    frame = pd.DataFrame(X, columns=["x"] * X.shape[1])
    fair = fair_classifier(Arrays()).fit(frame, Y, sensitive_features=GROUP)
    expected = fair_classifier().fit(X, Y, sensitive_features=GROUP).predict(X)
    np.testing.assert_array_equal(fair.predict(frame), expected)
