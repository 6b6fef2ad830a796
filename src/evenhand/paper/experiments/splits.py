"""Adult and COMPAS split as in the paper, and the probabilities for all methods on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold

import evenhand as eh
from evenhand.paper.datasets import Dataset, Split
from evenhand.paper.experiments.running import Kept, Record

FloatArray = NDArray[np.float64]

PAPER_TOLERANCES = (0.10, 0.05, 0.01)
# Steps between the paper's, for the curves and for comparisons at equal gaps. One search answers them all.
TOLERANCES = (0.20, 0.16, 0.13, 0.10, 0.07, 0.05, 0.035, 0.02, 0.01, 0.005)
FOLDS = 5
GAPS: dict[str, Any] = {
    "dp": eh.metrics.demographic_parity_difference,
    "eo": eh.metrics.equalized_odds_difference,
}
GAP_NAMES = {"dp": "DP", "eo": "EO"}
QUICK_SIZES = (600, 300, 300)


# The authors' own training, from their published configuration; they keep the epoch with the best validation accuracy.
AUTHORS = {"lr": 1e-3, "weight_decay": 1e-3, "max_epochs": 100, "patience": None, "monitor": "accuracy"}


def network(
    data: str, *, quick: bool, states: Path | None = None, seed: int = 0, authors: bool = False, **options: Any
) -> Any:
    """Return the paper's network: one hidden layer of 8 (Adult) or 16 (COMPAS) units.

    The learning rate and the stopping rule are ours unless the authors' are requested; the paper does not give them.
    Ours let a tenth of the training rows choose the epoch.
    """
    from evenhand.paper.models import MLP

    settings: dict[str, Any] = AUTHORS if authors else {"lr": 0.01, "patience": 5, "max_epochs": 100}
    if quick:
        settings = {**settings, "max_epochs": 2}
    hidden = {"adult": 8, "compas": 16}[data]
    return MLP(hidden=hidden, **settings | options, checkpoint=states, random_state=seed)


@cache
def dataset(name: str) -> Dataset:
    """Return a data set by its name."""
    return {"adult": eh.datasets.load_adult, "compas": eh.datasets.fetch_compas}[name]()


@cache
def features(name: str, *, authors: bool, quick: bool) -> FloatArray:
    """Return the networks' inputs: standardised numbers, or as in the authors' code from 0 to 1, with fnlwgt unscaled.

    A quick training cannot learn from numbers as large as fnlwgt, so there it is scaled too.
    """
    data = dataset(name)
    if not authors:
        return data.X
    low, high = data.X.min(axis=0), data.X.max(axis=0)
    X: FloatArray = (data.X - low) / np.where(high > low, high - low, 1.0)
    if "fnlwgt" in data.frame and not quick:
        X[:, data.feature_names.index("fnlwgt")] = data.frame["fnlwgt"]
    return X


def split(name: str, seed: int, *, quick: bool) -> Split:
    """Return the rows of one random split, in the paper's sizes unless quick."""
    return dataset(name).splits(random_state=seed, sizes=QUICK_SIZES if quick else None)


def codes(name: str, attribute: str | None = None) -> NDArray[np.int64]:
    """Return each row's group as 0 or 1; Adult's race is white or not, the paper's attributes being binary."""
    data = dataset(name)
    column = data.group if attribute is None else data.sensitive[attribute]
    one = "White" if (name, attribute) == ("adult", "race") else np.unique(column)[1]
    return np.asarray(column == one, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Rows:
    """Labels, groups, and the models' probabilities: p(A|x) for DP, p(Y,A|x) of shape (n, 2, 2) for EO."""

    y: NDArray[np.int64]
    group: NDArray[np.int64]
    p_y: FloatArray
    p_group: FloatArray

    def with_known_groups(self) -> Rows:
        """Return the rows with A known: p(A|x) is 0 or 1."""
        seen = np.eye(2)[self.group]
        if self.p_group.ndim == 3:
            seen = np.stack([1.0 - self.p_y, self.p_y], axis=1)[:, :, None] * seen[:, None, :]
        return Rows(self.y, self.group, self.p_y, seen)


def train_holdout(
    states: Path, needed: Sequence[Kept], *, data: str, criterion: str, seed: int, quick: bool, authors: bool = False
) -> Kept:
    """Train on the training rows; keep the probabilities of validation and test rows, and the training priors.

    With the authors' settings the validation rows choose the epoch, as in their code.
    """
    rows, X = split(data, seed, quick=quick), features(data, authors=authors, quick=quick)
    models = []
    for target in _targets(data, criterion):
        held = (X[rows.validation], target[rows.validation]) if authors else None
        model = network(data, quick=quick, states=states, seed=seed, authors=authors)
        models.append(model.fit(X[rows.train], target[rows.train], validation_data=held))
    arrays = {"learn": _stacked(models, X[rows.validation]), "test": _stacked(models, X[rows.test])}
    return Kept(arrays=arrays | {"priors": _priors(data, criterion, rows.train)})


def train_crossfit(
    states: Path, needed: Sequence[Kept], *, data: str, criterion: str, seed: int, quick: bool, authors: bool = False
) -> Kept:
    """Use the same rows differently: out-of-fold probabilities of training and validation rows together.

    Test rows get the probabilities of models trained on all these rows, and also the mean of the folds' models.
    """
    rows = split(data, seed, quick=quick)
    every = np.concatenate([rows.train, rows.validation])
    X, targets = features(data, authors=authors, quick=quick), [target[every] for target in _targets(data, criterion)]
    base = network(data, quick=quick, states=states, seed=seed, authors=authors)

    def fitted(at: Any) -> list[Any]:
        return [clone(base).fit(X[every[at]], target[at]) for target in targets]

    learn = np.empty((len(every), sum(len(np.unique(target)) for target in targets)))
    ensemble = np.zeros((len(rows.test), learn.shape[1]))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for rest, fold in folds.split(every, _cells(data)[every]):
        models = fitted(rest)
        learn[fold] = _stacked(models, X[every[fold]])
        ensemble += _stacked(models, X[rows.test]) / FOLDS
    test = _stacked(fitted(slice(None)), X[rows.test])
    priors = _priors(data, criterion, every)
    return Kept(arrays={"learn": learn, "test": test, "ensemble": ensemble, "priors": priors})


def read_rows(
    kept: Kept, *, data: str, criterion: str, seed: int, quick: bool, way: str, own: bool = False
) -> tuple[Rows, Rows]:
    """Return the rows to learn from and the test rows, with the probabilities that a unit kept.

    For EO p(Y|x) is the sum of the four classes', as in the paper, or that of a network of its ``own``.
    """
    rows = split(data, seed, quick=quick)
    learning = rows.validation if way == "hold-out" else np.concatenate([rows.train, rows.validation])
    found = []
    for at, part in ((learning, "learn"), (rows.test, "ensemble" if way == "ensemble" else "test")):
        p = kept.arrays[part]
        if criterion == "dp":
            p_y, p_group = p[:, 1], p[:, 2:]
        else:
            p_y, p_group = p[:, 5] if own else p[:, 2] + p[:, 3], p[:, :4].reshape(-1, 2, 2)
        found.append(Rows(dataset(data).y[at], codes(data)[at], p_y, p_group))
    return found[0], found[1]


def learn_and_measure(
    learn: Rows,
    test: Rows,
    criterion: str,
    *,
    priors: Any = None,
    search: Any = "certified",
    tolerances: Sequence[float] = TOLERANCES,
    seed: int = 0,
) -> list[Record]:
    """Learn the rule of each tolerance, and return what it does on the rows it was learnt on and on test rows.

    The first record is the model without a rule. A tolerance without a rule has None for every number.
    """
    found = eh.frontier(
        learn.y,
        learn.group,
        learn.p_y,
        learn.p_group,
        criterion=criterion,
        tolerances=tolerances,
        search=search,
        priors=priors,
        random_state=seed,
    )
    rules = {point.tolerance: point.rule for point in found}
    base = {"learn": learn.p_y > 0.5, "test": test.p_y > 0.5}
    records = [measured(learn, test, criterion, None, base["learn"], base["test"])]
    for tolerance in tolerances:
        rule = rules.get(tolerance)
        decided = [None if rule is None else rule.decide(rows.p_y, rows.p_group) for rows in (learn, test)]
        records.append(measured(learn, test, criterion, tolerance, *decided))
        if rule is not None:
            records[-1]["proven_gap"] = proven_gap(rule)
    return records


def proven_gap(rule: eh.Rule) -> float | None:
    """Return an upper bound on the improvement of another rule on the rows of the search; None if nothing is proven."""
    return None if np.isinf(rule.solution_.gap) else rule.solution_.gap


def measured(
    learn: Rows | None, test: Rows, criterion: str, delta: float | None, on_learn: Any, on_test: Any
) -> Record:
    """Return the record of some decisions: accuracy and gap on both parts, None if there are no decisions."""
    record: Record = {"criterion": criterion, "delta": delta}
    for rows, decided, prefix in ((test, on_test, ""), (learn, on_learn, "learn_")):
        accuracy, gap = (None, None) if rows is None or decided is None else accuracy_and_gap(rows, criterion, decided)
        record |= {f"{prefix}accuracy": accuracy, f"{prefix}gap": gap}
    return record


def accuracy_and_gap(rows: Rows, criterion: str, decided: Any) -> tuple[float, float]:
    """Return the accuracy of decisions, and DP or EO as the paper defines them."""
    return float(np.mean(decided == rows.y)), float(GAPS[criterion](rows.y, decided, sensitive_features=rows.group))


class GivenScores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose X is the probability itself, for baselines that need an estimator."""

    classes_ = np.array([0, 1])

    def fit(self, X: Any, y: Any = None) -> GivenScores:
        """Do nothing."""
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the scores as the probabilities of two classes."""
        p = np.asarray(X, dtype=np.float64)[:, 0]
        return np.column_stack([1.0 - p, p])

    def __sklearn_is_fitted__(self) -> bool:
        return True


def frozen_scores() -> Any:
    """Return a frozen classifier of given scores."""
    return FrozenEstimator(GivenScores())


def _cells(data: str) -> NDArray[np.int64]:
    return 2 * dataset(data).y + codes(data)


def _targets(data: str, criterion: str) -> list[NDArray[np.int64]]:
    """Return the networks' targets: Y and A for DP; the four cells for EO, as in the paper, and Y separately."""
    return [dataset(data).y, codes(data)] if criterion == "dp" else [_cells(data), dataset(data).y]


def _stacked(models: Sequence[Any], X: FloatArray) -> FloatArray:
    return np.column_stack([model.predict_proba(X) for model in models])


def _priors(data: str, criterion: str, rows: NDArray[np.intp]) -> FloatArray:
    if criterion == "dp":
        return np.bincount(codes(data)[rows], minlength=2) / len(rows)
    return np.bincount(_cells(data)[rows], minlength=4).reshape(2, 2) / len(rows)
