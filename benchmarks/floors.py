"""Floors under precision in every group, beside OxonFair's: ``python -m benchmarks floors``.

Both methods get the same cross-fitted probabilities, maximise accuracy, and are asked for the same levels of the
smallest precision of the two groups. What is compared is test accuracy where the mean of the smallest test precision is
the same.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from oxonfair import FairPredictor, group_metrics

import evenhand as eh
from benchmarks.further_tables import FLOORS_OURS, FLOORS_PEER, LEVELS, floors_table
from benchmarks.postprocessors import _table
from benchmarks.results import Row, read, write
from benchmarks.splits import Rows, splits
from benchmarks.tradeoff import Decisions

RUNS = {
    ("adult", "logistic regression"): 10,
    ("compas", "logistic regression"): 20,
    ("compas", "boosted trees"): 20,
    ("census", "boosted trees"): 3,
}
Decide = Callable[[Rows], Decisions]


def fit_evenhand(learn: Rows, levels: tuple[float, ...]) -> dict[float, Decide | None]:
    """Learn the most accurate rule under each floor."""
    found: dict[float, Decide | None] = {}
    for level in levels:
        floor = eh.MinimumRate("precision", level)
        try:
            rule = eh.learn_rule(learn.y, learn.group, learn.p_y, learn.joint, criterion=floor)
        except eh.InfeasibleError:
            found[level] = None
            continue
        found[level] = lambda rows, rule=rule: rule.decide(rows.p_y, rows.joint)
    return found


def fit_oxonfair(learn: Rows, levels: tuple[float, ...]) -> dict[float, Decide | None]:
    """Learn OxonFair's offsets for inferred groups: one frontier, from which each level selects."""
    fair = FairPredictor(
        lambda given: given[:, :2],
        {"data": _table(learn), "target": learn.y, "groups": learn.group},
        inferred_groups=lambda given: given[:, 2:],
    )
    found: dict[float, Decide | None] = {}
    for level in levels:
        fair.fit(group_metrics.accuracy, group_metrics.precision.min, level, recompute=not found)
        chosen = copy.copy(fair)
        found[level] = lambda rows, chosen=chosen: np.asarray(
            chosen.predict({"data": _table(rows), "target": rows.y})
        ).astype(int)
    return found


METHODS = {FLOORS_OURS: fit_evenhand, FLOORS_PEER: fit_oxonfair}


def smallest_precision(test: Rows, decided: Decisions) -> float:
    """Return the smaller precision of the two groups; 1 if nobody is selected."""
    chosen = [(test.group == group) & (decided == 1) for group in (0, 1)]
    return min(float(test.y[inside].mean()) if inside.any() else 1.0 for inside in chosen)


def measurements(name: str, model: str, n: int) -> Iterator[Row]:
    """Yield a line for each split, method and level."""
    for split in splits(name, model, n):
        learn, test = split.crossfit.learn, split.crossfit.test
        for method, fit in METHODS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                deciders = fit(learn, LEVELS[name])
            for level, decide in deciders.items():
                about: Row = {"data": name, "model": model, "method": method, "split": split.seed, "level": level}
                if decide is None:
                    yield about | {"accuracy": None, "precision": None}
                    continue
                decided = decide(test)
                accuracy = float(np.mean(decided == test.y))
                precision = smallest_precision(test, decided)
                yield about | {"accuracy": round(accuracy, 6), "precision": round(precision, 6)}
        print(f"{name}, {model}: split {split.seed}", file=sys.stderr, flush=True)


def main() -> None:
    """Measure, write the results, and print the table."""
    write("floors.csv", [line for (name, model), n in RUNS.items() for line in measurements(name, model, n)])
    print(floors_table(read("floors.csv")))


if __name__ == "__main__":
    main()
