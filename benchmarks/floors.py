"""Floors under precision in every group, beside OxonFair's: ``python -m benchmarks floors``.

Both methods get the same cross-fitted probabilities, maximise accuracy, and are asked for the same levels of the
smallest precision of the two groups. What is compared is test accuracy where the mean of the smallest test precision is
the same.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
from oxonfair import FairPredictor, group_metrics

import evenhand as eh
from benchmarks.postprocessors import _table
from benchmarks.results import Row, read, write
from benchmarks.splits import Rows, splits
from benchmarks.tradeoff import Decisions, Outcomes, difference_at_gap, table

LEVELS = {"adult": (0.75, 0.80, 0.85, 0.90), "compas": (0.60, 0.65, 0.70, 0.75), "census": (0.75, 0.80, 0.85, 0.90)}
RUNS = {
    ("adult", "logistic regression"): 10,
    ("compas", "logistic regression"): 20,
    ("compas", "boosted trees"): 20,
    ("census", "boosted trees"): 3,
}
OURS, THEIRS = "evenhand, certified", "OxonFair, inferred groups"
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
    """Learn OxonFair's offsets for inferred groups: one frontier, from which each level picks."""
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


METHODS = {OURS: fit_evenhand, THEIRS: fit_oxonfair}


def smallest_precision(test: Rows, decided: Decisions) -> float:
    """Return the smaller precision of the two groups; 1 where nobody is decided positively."""
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


def outcomes(lines: pd.DataFrame) -> Outcomes:
    """Return what a method came out with; a gap is what the smallest precision leaves of 1."""
    levels = sorted(lines["level"].unique())
    kept = Outcomes(tuple(1.0 - level for level in levels))
    for _, split in lines.groupby("split"):
        at = split.set_index("level")
        pairs = [(float(at.loc[level, "accuracy"]), 1.0 - float(at.loc[level, "precision"])) for level in levels]
        kept.add([None if gap != gap else (accuracy, gap) for accuracy, gap in pairs])
    return kept


def floors_table(measured: pd.DataFrame) -> str:
    """Return mean test accuracy / mean smallest test precision for each level, and who is ahead at equal precision."""
    titles = {"adult": "Adult", "compas": "COMPAS", "census": "KDD Census Income"}
    rows = []
    for (data, model), lines in measured.groupby(["data", "model"], sort=False):
        found: Mapping[str, Outcomes] = {m: outcomes(part) for m, part in lines.groupby("method", sort=False)}
        for method, kept in found.items():
            cells, ahead = [], []
            for level in LEVELS[data]:
                accuracy, gap = kept.at(1.0 - level)
                cells.append(f"{100 * np.nanmean(accuracy):.2f} / {1 - np.nanmean(gap):.3f}")
                difference, error = difference_at_gap(found[OURS], found[THEIRS], 1.0 - level)
                ahead.append("-" if difference != difference else f"{100 * difference:+.2f} ± {100 * error:.2f}")
            none = "/".join(str(kept.without_rule(1.0 - level)) for level in LEVELS[data])
            own = " / ".join(ahead) if method == OURS else ""
            levels = " / ".join(f"{level:.2f}" for level in LEVELS[data])
            rows.append([f"{titles[data]}, {model}", str(len(kept)), levels, method, *cells, none, own])
    header = ["data and model", "splits", "floors", "method", "first", "second", "third", "fourth", "no rule"]
    return table([*header, "evenhand is ahead at equal test precision"], rows)


def main() -> None:
    """Measure, write it down, and print the table."""
    write("floors.csv", [line for (name, model), n in RUNS.items() for line in measurements(name, model, n)])
    print(floors_table(read("floors.csv")))


if __name__ == "__main__":
    main()
