"""evenhand compared with its peers on the same models and splits: ``python -m benchmarks peers``.

Post-processors get the same probabilities, in two ways: those of the hold-out, which is how their manuals
use them, and the cross-fitted ones. ExponentiatedGradient trains models itself, on the same training and
validation rows. error-parity needs numpy < 2 and runs in its own Python, which the environment variable
``EVENHAND_ERROR_PARITY`` names; without it, it is left out.

ExponentiatedGradient takes most of the time, about two thirds of a split of Adult. ``EVENHAND_REDUCTIONS=5`` runs it on
the first five splits of each setting only. The tables then compare it with no other method, because they compare
methods that were run on the same splits; so by default it is run on all.

After a change to evenhand alone, ``EVENHAND_PEERS=recorded`` takes the peers' outcomes from ``results/peers.csv`` and
measures only evenhand's methods again, and all times. That is right while the versions are those that the page names.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
from fairlearn.reductions import DemographicParity, EqualizedOdds, ExponentiatedGradient
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import evenhand as eh
from benchmarks import f1, floors, lots, tables
from benchmarks.postprocessors import CERTIFIED, POST_PROCESSORS, ErrorParity, PostProcessor, Run
from benchmarks.results import ASKED, CROSS_FITTED, HOLD_OUT, OWN_MODELS, Row, point_columns, recorded, write
from benchmarks.splits import MODELS, RUNS, SplitData, codes, dataset, directory, splits
from benchmarks.tradeoff import CRITERIA, Point, machine, measure

REDUCTIONS_NAME = "fairlearn ExponentiatedGradient"
CONSTRAINTS = {"dp": DemographicParity, "eo": EqualizedOdds}
TIMED_SPLITS, REPEATS, TIMED_TOLERANCE = 3, 3, 0.05
REDUCTIONS_SPLITS = int(os.environ.get("EVENHAND_REDUCTIONS", str(sys.maxsize)))
SLOW = 5.0  # seconds; slower methods are timed once a split
WAYS = {"holdout": HOLD_OUT, "crossfit": CROSS_FITTED}
PEERS_AS_RECORDED = os.environ.get("EVENHAND_PEERS") == "recorded"
OURS = ("evenhand", "plug-in LP")


@cache
def methods() -> tuple[PostProcessor, ...]:
    """Return the post-processors that can be run here."""
    found = POST_PROCESSORS
    return (*found, ErrorParity()) if "EVENHAND_ERROR_PARITY" in os.environ else found


def run_reductions(name: str, model: str, split: SplitData, criterion: str, tolerances: tuple[float, ...]) -> Run:
    """Train fairlearn's mixtures on the split's training and validation rows.

    Its bound is on each group's distance from all rows; half the tolerance keeps two groups within it.
    """
    data, group = dataset(name), codes(name)
    train, validation, test = data.splits(random_state=split.seed)
    every = np.concatenate([train, validation])
    decided, fitting, predicting = {}, 0.0, 0.0
    for tolerance in tolerances:
        started = time.process_time()
        fair = ExponentiatedGradient(clone(MODELS[model]), CONSTRAINTS[criterion](difference_bound=tolerance / 2.0))
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            fair.fit(data.X[every], data.y[every], sensitive_features=group[every])
            fitted = time.process_time()
            decided[tolerance] = np.asarray(fair.predict(data.X[test], random_state=split.seed)).astype(int)
        fitting += fitted - started
        predicting += time.process_time() - fitted
    return Run(decided, fitting, predicting / len(tolerances))


def run_classifier(name: str, model: str, split: SplitData, criterion: str) -> Run:
    """Train evenhand's classifier on the same rows, models included, as ExponentiatedGradient does."""
    data, group = dataset(name), codes(name)
    train, validation, test = data.splits(random_state=split.seed)
    every = np.concatenate([train, validation])
    fair = eh.FairClassifier(MODELS[model], criterion=criterion, tolerance=TIMED_TOLERANCE, random_state=0)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        started = time.process_time()
        fair.fit(data.X[every], data.y[every], sensitive_features=group[every])
        fitted = time.process_time()
        decided = fair.predict(data.X[test])
    return Run({TIMED_TOLERANCE: decided}, fitted - started, time.process_time() - fitted)


def measurements(name: str, model: str) -> list[Row]:
    """Return a line for each split, criterion and method: what it was, and the outcome for each tolerance."""
    lines: list[Row] = []
    for split in splits(name, model, RUNS[name, model]):
        for criterion in CRITERIA:
            about = {"data": name, "model": model, "criterion": criterion, "split": split.seed}
            for method, key, way in runs(criterion, split.seed):
                run = partial(method.run, getattr(split, way), criterion, ASKED, split.seed)
                points = once(name, model, split, criterion, key, run)
                what = {"method": key, "needs A": yes(method.needs_group), "deterministic": yes(not method.random)}
                lines.append(about | what | point_columns(points))
            if split.seed < REDUCTIONS_SPLITS:
                run = partial(run_reductions, name, model, split, criterion, ASKED)
                points = once(name, model, split, criterion, REDUCTIONS_NAME, run)
                what = {"method": REDUCTIONS_NAME, "needs A": "no", "deterministic": "no"}
                lines.append(about | what | point_columns(points))
        print(f"{name}, {model}: split {split.seed}", file=sys.stderr, flush=True)
    return lines


def runs(criterion: str, seed: int) -> Iterator[tuple[PostProcessor, str, str]]:
    """Yield each post-processor for a split, its title there, and its evidence."""
    for way, title in WAYS.items():
        for method in methods():
            if criterion in method.criteria and seed < method.at_most and (title == HOLD_OUT or method.large):
                yield method, f"{method.name}, {title}", way


def yes(value: bool) -> str:
    """Return a truth value as a word."""
    return "yes" if value else "no"


def once(
    name: str, model: str, split: SplitData, criterion: str, key: str, run: Callable[[], Run]
) -> list[Point | None]:
    """Return the measurement of a method on a split, from the stored results if it was run before."""
    if PEERS_AS_RECORDED and not key.startswith(OURS):
        return recorded(name, model, criterion, split.seed, key)
    words = re.sub(r"[^a-z0-9]+", "-", f"{name} {model} {split.seed} {criterion} {key}".lower())
    path = directory() / f"{words}.json"
    if not path.exists():
        test = (split.crossfit if key.endswith(WAYS["crossfit"]) else split.holdout).test
        decided = run().decisions
        path.write_text(json.dumps([measure(test, criterion, decided[t]) for t in ASKED]))
    return [None if point is None else tuple(point) for point in json.loads(path.read_text())]


def times(name: str, model: str) -> list[Row]:
    """Return fit and prediction times at one tolerance, and their ratios to evenhand's on the same arrays.

    Times are of the processor, the shortest of a few, and the median over splits: others use the machine, too.
    """
    lines: list[Row] = []
    drawn = list(splits(name, model, TIMED_SPLITS))
    for criterion in CRITERIA:
        about = {"data": name, "model": model, "criterion": criterion}
        units: dict[str, NDArray[np.float64]] = {}
        for method, _, way in runs(criterion, 0):
            if method is CERTIFIED:
                seconds(method, way, criterion, drawn)  # after compilation
            found = seconds(method, way, criterion, drawn)
            unit = units.setdefault(way, found)
            lines.append(about | {"rows": WAYS[way], "method": method.name} | ratios(found, unit))
        ours = run_classifier(name, model, drawn[0], criterion)
        theirs = run_reductions(name, model, drawn[0], criterion, (TIMED_TOLERANCE,))
        both = [np.array([run.fit_seconds, run.predict_seconds]) for run in (ours, theirs)]
        for title, found in zip(("evenhand FairClassifier", REDUCTIONS_NAME), both, strict=True):
            lines.append(about | {"rows": OWN_MODELS, "method": title} | ratios(found, both[0]))
        print(f"{name}, {model}: times under {CRITERIA[criterion]}", file=sys.stderr, flush=True)
    return lines


def seconds(method: PostProcessor, way: str, criterion: str, drawn: list[SplitData]) -> NDArray[np.float64]:
    """Return the time of a fit and of a prediction; the latter is NaN if there was no rule."""
    found = []
    for split in drawn:
        same: list[Run] = []
        while len(same) < REPEATS and (not same or same[0].fit_seconds < SLOW):
            same.append(method.run(getattr(split, way), criterion, (TIMED_TOLERANCE,), split.seed))
        ruled = all(decided is not None for decided in same[0].decisions.values())
        fit, predict = np.min([[run.fit_seconds, run.predict_seconds] for run in same], axis=0)
        found.append([fit, predict if ruled else np.nan])
    return np.median(found, axis=0)


def ratios(found: NDArray[np.float64], unit: NDArray[np.float64]) -> Row:
    """Return a fit's milliseconds, and both times as ratios."""
    ratio = found / unit
    return {"fit, ms": f"{1e3 * found[0]:.1f}", "fit, ratio": f"{ratio[0]:.2f}", "predict, ratio": f"{ratio[1]:.2f}"}


def main() -> None:
    """Measure everything, write the results, and make the tables."""
    print(machine("numpy", "scikit-learn", "lightgbm", "fairlearn", "oxonfair", "aif360"))
    write("peers.csv", [line for setting in RUNS for line in measurements(*setting)])
    write("times.csv", [line for setting in RUNS for line in times(*setting)])
    tables.main()
    floors.main()
    f1.main()
    lots.main()


if __name__ == "__main__":
    main()
