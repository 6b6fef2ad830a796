from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, RepeatedStratifiedKFold, StratifiedKFold, TimeSeriesSplit
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from classifiers import paper_classifier
from evenhand.errors import InputError
from evenhand.estimator import crossfit
from evenhand.statistics.sampling import strata, stratified_share


class Memory(ClassifierMixin, BaseEstimator):
    """Gives a probability of 1 to rows that it was trained on, which makes any leak visible."""

    def fit(self, X, y):
        self.seen_ = {row.tobytes() for row in np.asarray(X)}
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        leaked = np.array([row.tobytes() in self.seen_ for row in np.asarray(X)])
        rest = 0.2 + 0.1 / (1.0 + np.exp(-np.asarray(X)[:, 0]))
        first = np.where(leaked, 1.0, rest)
        others = (1.0 - first) / (len(self.classes_) - 1)
        return np.column_stack([first, *[others] * (len(self.classes_) - 1)])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def draw(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y, group = rng.integers(0, 2, n), rng.integers(0, 2, n)
    return rng.normal(size=(n, 3)) + y[:, None] + 0.8 * group[:, None], y, group


@pytest.mark.parametrize(
    "cv",
    [2, 5, 0.4, KFold(4, shuffle=True, random_state=0), RepeatedStratifiedKFold(n_splits=3, n_repeats=2)],
)
@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_no_probability_comes_from_a_model_that_saw_the_row(cv):
    X, y, group = draw(0, 240)
    fair = paper_classifier(Memory(), cv=cv, tolerance=1.0, random_state=0)
    held = fair.fit(X, y, sensitive_features=group).held_out_
    assert held.p_y.min() > 0.5
    assert held.p_group["group"].max() < 0.5
    assert len(held.rows) == (96 if cv == 0.4 else 240)


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_final_models_are_those_that_cv_says():
    X, y, group = draw(0, 240)

    def rows_seen(**options):
        fair = paper_classifier(Memory(), tolerance=1.0, random_state=0, **options)
        return fair.fit(X, y, sensitive_features=group)

    assert len(rows_seen(cv=3).estimator_.seen_) == 240
    held_out = rows_seen(cv=0.25)
    assert len(held_out.estimator_.seen_) == len(held_out.auxiliary_.seen_) == 180
    ensemble = rows_seen(cv=3, ensemble=True)
    assert sorted(len(model.seen_) for model in ensemble.estimator_.estimators) == [160, 160, 160]
    every = [model.predict_proba(X) for model in ensemble.estimator_.estimators]
    np.testing.assert_allclose(ensemble.predict_proba(X), np.mean(every, axis=0))


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
@pytest.mark.parametrize(
    ("cv", "models"), [(3, 3), (RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0), 2), (KFold(3), 1)]
)
def test_a_matched_ensemble_has_one_model_of_each_round(cv, models):
    X, y, group = draw(0, 240)
    fair = paper_classifier(Memory(), tolerance=1.0, random_state=0, cv=cv, ensemble="matched")
    fair.fit(X, y, sensitive_features=group)
    assert [len(model.seen_) for model in fair.estimator_.estimators] == [160] * models
    assert len({frozenset(model.seen_) for model in fair.estimator_.estimators}) == models
    assert fair.held_out_.p_y.min() > 0.5
    assert len(fair.held_out_.rows) == 240


@pytest.mark.parametrize("cv", [TimeSeriesSplit(3), [(np.arange(100), np.arange(100, 240))] * 2])
def test_a_matched_ensemble_needs_rounds(cv):
    X, y, group = draw(0, 240)
    with pytest.raises(InputError, match="each row is held out once"):
        paper_classifier(Memory(), cv=cv, ensemble="matched").fit(X, y, sensitive_features=group)


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_the_scores_of_a_matched_ensemble_are_those_the_rule_is_learnt_on():
    X, y, group = draw(0, 1500)
    new, _, _ = draw(1, 3000)

    def certainties(ensemble):
        fair = paper_classifier(
            DecisionTreeClassifier(random_state=0), tolerance=1.0, random_state=0, ensemble=ensemble
        )
        fair.fit(X, y, sensitive_features=group)
        return np.abs(fair.held_out_.p_y - 0.5).mean(), np.abs(fair.predict_proba(new)[:, 1] - 0.5).mean()

    learnt, used = certainties("matched")
    assert used == pytest.approx(learnt, abs=0.015)
    learnt, used = certainties(True)
    assert used < learnt - 0.05


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(1, 3), st.integers(10, 120))
def test_every_cell_is_spread_evenly_over_the_folds(seed, n_folds, n_columns, n):
    rng = np.random.RandomState(seed)
    cells = [rng.choice(4, size=n, p=[0.55, 0.3, 0.1, 0.05]) for _ in range(n_columns)]
    fold = crossfit.stratified_folds(cells, n_folds, rng)
    counts = np.array([[np.bincount(fold[column == c], minlength=n_folds) for c in range(4)] for column in cells])
    assert counts.sum() == n * n_columns
    if n_columns == 1:
        assert np.ptp(counts, axis=2).max() <= 1
        assert np.ptp(np.bincount(fold, minlength=n_folds)) <= 4
    rarest = min((int((column == c).sum()), j, c) for j, column in enumerate(cells) for c in set(column))
    assert np.ptp(counts[rarest[1], rarest[2]]) <= 1


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95), st.integers(20, 300))
def test_the_share_that_is_held_out_is_that_of_every_stratum(seed, share, n):
    rng = np.random.RandomState(seed)
    cells = [rng.choice(4, size=n), rng.choice(3, size=n)]
    held = stratified_share(cells, share, rng)
    assert abs(held.sum() - share * n) <= 1.0
    stratum = strata(cells)
    for value in range(stratum.max() + 1):
        inside = stratum == value
        assert abs(held[inside].sum() - share * inside.sum()) <= 1.0 + 1e-9


def test_no_fold_lacks_a_cell():
    rng = np.random.default_rng(1)
    n = 400
    y = rng.integers(0, 2, n)
    sex = rng.choice(["F", "M"], n)
    race = rng.choice(["a", "b", "c"], n, p=[0.85, 0.1, 0.05])
    X = rng.normal(size=(n, 3)) + y[:, None] + 0.5 * (sex == "F")[:, None] + 0.7 * (race == "b")[:, None]
    seen = []

    class Watching(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            seen.append((len(X), np.unique(y).size))
            return super().fit(X, y, sample_weight)

    criterion = eh.EqualizedOdds(attribute="sex", tolerance=0.4) & eh.EqualizedOdds(attribute="race", tolerance=0.8)
    fair = paper_classifier(Watching(), criterion=criterion, search="dual", cv=5, random_state=0)
    fair.fit(X, y, sensitive_features={"sex": sex, "race": race})
    assert len(seen) == 3 * 6
    assert {classes for _, classes in seen} == {2, 4, 6}


def test_a_splitter_stratifies_on_label_and_group():
    X, y, group = draw(2, 300)
    fair = paper_classifier(LogisticRegression(), cv=StratifiedKFold(3), tolerance=0.2)
    assert len(fair.fit(X, y, sensitive_features=group).held_out_.rows) == 300


def test_rows_that_a_splitter_never_holds_out_take_no_part_in_the_rule():
    X, y, group = draw(2, 300)
    fair = paper_classifier(LogisticRegression(), cv=TimeSeriesSplit(3), tolerance=0.3)
    held = fair.fit(X, y, sensitive_features=group).held_out_
    assert held.rows.tolist() == list(range(75, 300))


def test_splits_that_leak_are_refused():
    X, y, group = draw(2, 300)
    rows = np.arange(300)
    fair = paper_classifier(LogisticRegression(), cv=[(rows, rows[:50])])
    with pytest.raises(InputError, match="must be disjoint"):
        fair.fit(X, y, sensitive_features=group)


def test_small_cells_are_named_with_their_counts():
    X, y, group = draw(2, 200)
    group = np.where(np.arange(200) < 3, "rare", np.where(group > 0, "a", "b"))
    y[:3] = [0, 0, 1]
    fair = paper_classifier(LogisticRegression(), cv=5)
    with pytest.raises(
        InputError, match=r"label 0 and group='rare' has 2; label 1 and group='rare' has 1.*cv=5 needs 5"
    ):
        fair.fit(X, y, sensitive_features=group)
    with pytest.raises(InputError, match=r"group='rare' has 3; and cv=5 needs 5"):
        fair.set_params(criterion="demographic_parity").fit(X, y, sensitive_features=group)
    with pytest.raises(InputError, match=r"group='rare' has [01].*is held out with cv=0.2 needs 2"):
        fair.set_params(cv=0.2).fit(X, y, sensitive_features=group)
    with pytest.raises(InputError, match="training part of cv has none"):
        fair.set_params(cv=KFold(20)).fit(X, y, sensitive_features=group)


def test_columns_are_matched_by_classes_and_not_by_their_order():
    class Backwards(LogisticRegression):
        def fit(self, X, y):
            super().fit(X, y)
            self.forwards_ = self.classes_
            self.classes_ = self.forwards_[::-1]
            return self

        def predict_proba(self, X):
            self.classes_ = self.forwards_
            found = super().predict_proba(X)[:, ::-1]
            self.classes_ = self.forwards_[::-1]
            return found

    X, y, group = draw(3, 240)
    one, other = (
        paper_classifier(base, cv=3, tolerance=0.2, random_state=0).fit(X, y, sensitive_features=group)
        for base in (LogisticRegression(), Backwards())
    )
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_weights_reach_models_inside_a_pipeline_and_a_model_without_weights_is_named():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    weight = np.ones(5)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    assert crossfit.weight_params(pipeline, weight) == {"logisticregression__sample_weight": weight}
    assert crossfit.weight_params(LogisticRegression(), None) == {}
    with pytest.warns(eh.EvenhandWarning, match=r"Memory.fit does not accept sample_weight"):
        assert crossfit.weight_params(Memory(), weight) == {}
