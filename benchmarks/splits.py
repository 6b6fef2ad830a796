"""Random splits of Adult, COMPAS and KDD Census Income with the probabilities that every compared method is given.

A split has the paper's sizes. The models of the hold-out see the training rows, and the validation rows get
probabilities from them. Cross-fitting spends the same rows otherwise: training and validation rows together
get the probabilities of five folds' models, and the final models are trained on all of them. Probabilities
are kept in the directory ``EVENHAND_BENCHMARKS`` (by default one in the system's temporary directory), so
that the benchmarks that share them train each model once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

import evenhand as eh
from benchmarks.census import load_census
from evenhand.datasets import Dataset

FOLDS = 5
MOST_SPLITS = int(os.environ.get("EVENHAND_SPLITS", sys.maxsize))  # fewer, for a quick look
SPLITS = {name: min(n, MOST_SPLITS) for name, n in {"adult": 20, "census": 5, "compas": 60}.items()}
# How many splits the comparisons with peers use.
RUNS = {
    ("adult", "logistic regression"): 20,
    ("compas", "logistic regression"): 30,
    ("adult", "boosted trees"): 5,
    ("compas", "boosted trees"): 20,
    ("census", "boosted trees"): 5,
}
MODELS = {
    "logistic regression": LogisticRegression(max_iter=200, tol=1e-3),
    "boosted trees": LGBMClassifier(
        n_estimators=60, learning_rate=0.12, num_leaves=15, random_state=0, n_jobs=1, verbose=-1
    ),
}


@dataclass(frozen=True, eq=False)
class Rows:
    """Labels, groups (0 or 1) and probabilities of some rows; ``joint`` is p(Y, A | x) of shape (n, 2, 2)."""

    y: NDArray[np.int64]
    group: NDArray[np.int64]
    p_y: NDArray[np.float64]
    joint: NDArray[np.float64]

    @property
    def p_group(self) -> NDArray[np.float64]:
        """p(A | x), of shape (n, 2)."""
        return self.joint.sum(axis=1)


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence that a rule is learnt from, and the test rows with the models that it will be used with."""

    learn: Rows
    test: Rows


@dataclass(frozen=True, eq=False)
class SplitData:
    """One random split: the same rows used in three ways."""

    seed: int
    holdout: Evidence
    crossfit: Evidence
    ensemble: Evidence


@cache
def dataset(name: str) -> Dataset:
    """Return a data set by its name."""
    if name == "census":
        return load_census(directory())
    return {"adult": eh.datasets.load_adult, "compas": eh.datasets.fetch_compas}[name]()


@cache
def codes(name: str) -> NDArray[np.int64]:
    """Return each row's group as 0 or 1."""
    group = dataset(name).group
    return (group == np.unique(group)[1]).astype(np.int64)


def splits(name: str, model: str, n: int) -> Iterator[SplitData]:
    """Yield n splits, fewer for a quick look, with seeds 0, 1, ...; their probabilities are computed once and kept."""
    for seed in range(min(n, MOST_SPLITS)):
        path = directory() / f"{name}-{model.replace(' ', '-')}-{seed}.npz"
        if not path.exists():
            with threadpool_limits(1):
                kept = _probabilities(name, model, seed)
            part = path.with_suffix(f".{os.getpid()}.npz")
            np.savez(part, **kept)
            part.replace(path)
        yield _read(name, seed, dict(np.load(path)))


def directory() -> Path:
    """Return where results are kept between runs; deleting it recomputes everything."""
    chosen = os.environ.get("EVENHAND_BENCHMARKS")
    path = Path(chosen) if chosen else Path(tempfile.gettempdir()) / "evenhand-benchmarks"
    path.mkdir(parents=True, exist_ok=True)
    return path


def cells(name: str) -> NDArray[np.int64]:
    """Return each row's cell of label and group, from 0 to 3."""
    return 2 * dataset(name).y + codes(name)


def fitted(name: str, model: str, rows: Any) -> Callable[[Any], NDArray[np.float64]]:
    """Train on some rows; return a function that gives others p(Y=1|x) and then the four cells' probabilities."""
    data = dataset(name)
    models = [clone(MODELS[model]).fit(data.X[rows], target[rows]) for target in (data.y, cells(name))]
    return lambda at: np.column_stack([models[0].predict_proba(data.X[at])[:, 1], models[1].predict_proba(data.X[at])])


def scored(name: str, at: Any, found: NDArray[np.float64]) -> Rows:
    """Return some rows with the probabilities that :func:`fitted` models gave them."""
    return Rows(dataset(name).y[at], codes(name)[at], found[:, 0], found[:, 1:].reshape(-1, 2, 2))


def _probabilities(name: str, model: str, seed: int) -> dict[str, NDArray[np.float64]]:
    """Train all models of one split; each array has p(Y=1|x) first and then the four cells."""
    train, validation, test = dataset(name).splits(random_state=seed)
    every = np.concatenate([train, validation])
    held = fitted(name, model, train)
    out_of_fold, averaged = np.empty((len(every), 5)), np.zeros((len(test), 5))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for rest, fold in folds.split(every, cells(name)[every]):
        predict = fitted(name, model, every[rest])
        out_of_fold[fold] = predict(every[fold])
        averaged += predict(test) / FOLDS
    return {
        "holdout": held(validation), "holdout_test": held(test), "crossfit": out_of_fold,
        "crossfit_test": fitted(name, model, every)(test), "ensemble_test": averaged,
    }  # fmt: skip


def _read(name: str, seed: int, kept: dict[str, NDArray[np.float64]]) -> SplitData:
    train, validation, test = dataset(name).splits(random_state=seed)

    def rows(at: Any, part: str) -> Rows:
        return scored(name, at, kept[part])

    every = rows(np.concatenate([train, validation]), "crossfit")
    return SplitData(
        seed,
        Evidence(rows(validation, "holdout"), rows(test, "holdout_test")),
        Evidence(every, rows(test, "crossfit_test")),
        Evidence(every, rows(test, "ensemble_test")),
    )
