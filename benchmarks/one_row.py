"""One row at a time: the overhead of evenhand over a NumPy expression, and over the models' own predictions."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import evenhand as eh


def alternated(actions: dict[str, Callable[[], Any]], repeats: int, rounds: int = 15) -> dict[str, float]:
    """Return the smallest CPU time of each action, in microseconds, measured in turns."""
    best = dict.fromkeys(actions, np.inf)
    for action in actions.values():
        action()
    for _ in range(rounds):
        for name, action in actions.items():
            started = time.process_time()
            for _ in range(repeats):
                action()
            best[name] = min(best[name], (time.process_time() - started) / repeats * 1e6)
    return best


def rules() -> None:
    """Time ``rule.decide`` of one row."""
    options = {"groups": {"sex": ("F", "M")}}
    dp = eh.Rule.from_criterion("dp", priors=[0.5, 0.5], z=[0.1], **options)
    eo = eh.Rule.from_criterion("eo", priors=[[0.3, 0.2], [0.2, 0.3]], z=[0.1, 0.1], classes=("no", "yes"), **options)
    p, group, joint = np.array([0.6]), np.array([[0.3, 0.7]]), np.array([[[0.1, 0.2], [0.3, 0.4]]])
    form = eo.linear_form()
    weights = form.columns["sex"].reshape(-1)
    found = alternated(
        {
            "the bare expression in NumPy": lambda: (
                form.intercept + form.slope * p - joint.reshape(1, -1) @ weights > 0
            ),
            "decide, demographic parity": lambda: dp.decide(p, group),
            "decide, equalized odds": lambda: eo.decide(p, joint),
            "decide, lists": lambda: dp.decide([0.6], [[0.3, 0.7]]),
        },
        1000,
    )
    for name, time_taken in found.items():
        print(f"  {name:30s} {time_taken:8.1f} us  {time_taken / found['the bare expression in NumPy']:6.1f} times")


def classifiers() -> None:
    """Time ``predict`` of one row against the ``predict_proba`` of its models."""
    data = eh.datasets.make_zafar(2000, random_state=0)
    X = np.column_stack([data.X, np.random.default_rng(0).normal(size=(2000, 6))])
    for model in (
        LogisticRegression(),
        LGBMClassifier(n_estimators=50, verbose=-1, n_jobs=1),
        HistGradientBoostingClassifier(max_iter=50),
    ):
        fair = eh.FairClassifier(model, criterion="eo", tolerance=0.1, ensemble=False, random_state=0)
        fair.fit(X, data.y, sensitive_features=data.group)
        own = [fair.estimator_, fair.auxiliary_]
        row = X[:1]
        with threadpool_limits(1):
            found = alternated(
                {
                    "models": lambda own=own, row=row: [entry.predict_proba(row) for entry in own],
                    "predict": lambda fair=fair, row=row: fair.predict(row),
                },
                30,
            )
        added = found["predict"] - found["models"]
        print(
            f"  {type(model).__name__:32s} two models {found['models']:8.1f} us, predict {found['predict']:8.1f} us:"
            f" {found['predict'] / found['models']:5.2f} times, {added:6.1f} us are evenhand's"
        )


def main() -> None:
    warnings.simplefilter("ignore")
    print("one row, CPU time")
    rules()
    classifiers()


if __name__ == "__main__":
    main()
