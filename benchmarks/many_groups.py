"""Searches with many constraints: several groups, crossed and joint attributes, many rows: ``python -m benchmarks many_groups``.

Adult (cross-fitted logistic regression) and KDD Census Income (cross-fitted boosted trees), 20,000 rows each. Accuracy is
that on the rows that the rule was learnt from, because that is what a search maximises; seconds are CPU time of one
thread. A synthetic problem shows what many rows cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

import evenhand as eh
from benchmarks.splits import MODELS, dataset, directory
from benchmarks.tradeoff import table
from evenhand.learn import read_setting
from evenhand.search import Certified, Directions, Dual, Lines, NoRule, Problem, Search

ROWS, FOLDS = 20_000, 3
TOLERANCES = (0.10, 0.05, 0.02, 0.01)
MODEL = {"adult": "logistic regression", "census": "boosted trees"}
CENSUS_RACE, AGE = "10", {"adult": "age", "census": "0"}
FEWEST_POSITIVES = 300
SETTINGS = {
    "race": ("race",),
    "sex, race": ("sex", "race"),
    "sex x race": ("sex & race",),
    "sex, race, age": ("sex", "race", "age"),
}


@cache
def attributes(name: str) -> dict[str, NDArray[Any]]:
    """Return sex, race, an age band and sex crossed with race, of all rows of a data set."""
    data = dataset(name)
    columns = dict(zip(data.feature_names, data.X.T, strict=True))
    if name == "adult":
        race = data.sensitive["race"].astype(str)
    else:  # five groups, of which two have too few positive labels to be counted apart
        code = columns[CENSUS_RACE].astype(int)
        rare = np.flatnonzero(np.bincount(code, weights=data.y) < FEWEST_POSITIVES)
        race = np.where(np.isin(code, rare), "other", np.char.add("race ", code.astype(str)))
    age = columns[AGE[name]]
    band = np.array(["young", "middle", "old"])[np.digitize(age, np.quantile(age, [1 / 3, 2 / 3]))]
    sex = data.sensitive["sex"].astype(str)
    return {"sex": sex, "race": race, "age": band, "sex & race": np.char.add(np.char.add(sex, " & "), race)}


def features(name: str) -> NDArray[np.float64]:
    """Return the features without those that tell the race."""
    data = dataset(name)
    told = [
        feature == CENSUS_RACE if name == "census" else feature.startswith("race=") for feature in data.feature_names
    ]
    return data.X[:, ~np.array(told)]


@cache
def probabilities(name: str) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Return 20,000 rows and their cross-fitted p(Y|x) and, for each attribute, p(Y, A|x); computed once and kept."""
    path = directory() / f"many-groups-{name}.npz"
    if not path.exists():
        with threadpool_limits(1):
            np.savez(path, **_probabilities(name))
    kept = dict(np.load(path))
    return kept.pop("rows"), kept


def _probabilities(name: str) -> dict[str, NDArray[Any]]:
    data, X, columns = dataset(name), features(name), attributes(name)
    rows = np.sort(np.random.default_rng(0).choice(len(data.y), ROWS, replace=False))
    targets = {"p_y": data.y[rows]}
    for attribute, column in columns.items():
        groups = np.unique(column)
        targets[attribute] = len(groups) * data.y[rows] + np.searchsorted(groups, column[rows])
    found: dict[str, NDArray[Any]] = {"rows": rows}
    for target, code in targets.items():
        n_codes = 2 if target == "p_y" else 2 * len(np.unique(columns[target]))
        p = np.zeros((ROWS, n_codes))
        for train, held in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(rows, targets["p_y"]):
            model = clone(MODELS[MODEL[name]]).fit(X[rows[train]], code[train])
            p[np.ix_(held, model.classes_)] = model.predict_proba(X[rows[held]])
        found[target] = p[:, 1] if target == "p_y" else p.reshape(ROWS, 2, -1)
    return found


def problem(name: str, setting: str, criterion: str, tolerances: Any) -> Problem:
    """Return what a search sees."""
    rows, kept = probabilities(name)
    columns = {attribute: attributes(name)[attribute][rows] for attribute in SETTINGS[setting]}
    joint = {attribute: kept[attribute] for attribute in columns}
    read = read_setting(
        dataset(name).y[rows], columns, kept["p_y"], joint, criterion=criterion, evidence="labels", sample_weight=None,
        costs=None, pos_label=1, groups={a: tuple(np.unique(attributes(name)[a])) for a in columns}, priors=None,
        missing="raise",
    )  # fmt: skip
    return read.problem(np.atleast_1d(tolerances))
