"""evenhand beside its peers on the same models and splits: ``python -m benchmarks peers``.

Post-processors get the same probabilities, in two ways: those of the hold-out, which is how their manuals
use them, and the cross-fitted ones. ExponentiatedGradient trains models itself, on the same training and
validation rows. error-parity needs numpy < 2 and runs in its own Python, which the environment variable
``EVENHAND_ERROR_PARITY`` names; without it, it is left out.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from fairlearn.reductions import DemographicParity, EqualizedOdds, ExponentiatedGradient
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import evenhand as eh
from benchmarks.postprocessors import CERTIFIED, POST_PROCESSORS, ErrorParity, PostProcessor, Run
from benchmarks.splits import MODELS, SPLITS, SplitData, codes, dataset, directory, splits
from benchmarks.tradeoff import (
    CRITERIA,
    TOLERANCES,
    Outcomes,
    Point,
    difference_at_gap,
    error_at_gap,
    excess,
    machine,
    mean_and_error,
    measure,
    table,
    with_error,
)

ASKED = (0.01, 0.02, 0.05, 0.10, 0.20)
SHOWN = {"adult": (0.10, 0.05, 0.03), "census": (0.05, 0.03, 0.02), "compas": (0.15, 0.12, 0.10)}
RUNS = {
    ("adult", "logistic regression"): 20,
    ("compas", "logistic regression"): 30,
    ("adult", "boosted trees"): 10,
    ("compas", "boosted trees"): 20,
    ("census", "boosted trees"): 5,
}
REDUCTIONS_NAME = "fairlearn ExponentiatedGradient"
REDUCTIONS = {  # on how many splits it is trained
    ("adult", "logistic regression"): 10,
    ("compas", "logistic regression"): 30,
    ("adult", "boosted trees"): 5,
    ("compas", "boosted trees"): 10,
    ("census", "boosted trees"): 5,
}
CONSTRAINTS = {"dp": DemographicParity, "eo": EqualizedOdds}
TIMED_SPLITS, REPEATS, TIMED_TOLERANCE = 3, 3, 0.05
SLOW = 5.0  # seconds; what takes longer is timed once a split
WAYS = {"holdout": "hold-out", "crossfit": "cross-fitted"}
IMAGES = Path(__file__).parents[1] / "docs" / "images"
Found = dict[str, dict[str, Outcomes]]


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


def outcomes(name: str, model: str) -> Found:
    """Return what came out, by criterion and by method."""
    found: Found = {criterion: {} for criterion in CRITERIA}
    every = methods()
    for split in splits(name, model, min(RUNS[name, model], SPLITS[name])):
        for criterion, kept in found.items():
            for way, title in WAYS.items():
                for method in every:
                    wanted = criterion in method.criteria and split.seed < method.at_most
                    if wanted and (way == "holdout" or method.large):
                        run = partial(method.run, getattr(split, way), criterion, ASKED, split.seed)
                        key = f"{method.name}, {title}"
                        points = once(name, model, split, criterion, key, run)
                        kept.setdefault(key, Outcomes(ASKED)).add(points)
            if split.seed < REDUCTIONS[name, model]:
                run = partial(run_reductions, name, model, split, criterion, ASKED)
                points = once(name, model, split, criterion, REDUCTIONS_NAME, run)
                kept.setdefault(REDUCTIONS_NAME, Outcomes(ASKED)).add(points)
        print(f"{name}, {model}: split {split.seed}", file=sys.stderr, flush=True)
    return found


def once(
    name: str, model: str, split: SplitData, criterion: str, key: str, run: Callable[[], Run]
) -> list[Point | None]:
    """Return what a method measured on a split, from the kept results if it was run before."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{name} {model} {split.seed} {criterion} {key}".lower())
    path = directory() / f"{words}.json"
    if not path.exists():
        test = (split.crossfit if key.endswith(WAYS["crossfit"]) else split.holdout).test
        decided = run().decisions
        path.write_text(json.dumps([measure(test, criterion, decided[t]) for t in ASKED]))
    return [None if point is None else tuple(point) for point in json.loads(path.read_text())]


def told_the_attribute() -> set[str]:
    """Return the methods that are given the attribute when they decide."""
    using = {f"{m.name}, {title}" for m in POST_PROCESSORS if m.needs_group for title in WAYS.values()}
    return using | {f"error-parity, {title}" for title in WAYS.values()}


def print_outcomes(name: str, criterion: str, found: Mapping[str, Outcomes]) -> None:
    """Print one table; the best accuracy without the attribute, among the methods run on all splits, is bold."""
    using = told_the_attribute()
    levels = {method: [kept.accuracy_at_gap(gap) for gap in SHOWN[name]] for method, kept in found.items()}
    most = max(map(len, found.values()))
    rivals = {method for method, kept in found.items() if method not in using and len(kept) == most}
    best = np.max([np.nan_to_num(levels[method], nan=-np.inf) for method in rivals], axis=0)
    ours = found[f"{CERTIFIED.name}, {WAYS['crossfit']}"]
    rows = []
    for method, kept in found.items():
        cells = [
            f"**{text}**" if method in rivals and level == top else text
            for level, top, text in (
                (level, top, with_error(level, error_at_gap(kept, gap)))
                for level, top, gap in zip(levels[method], best, SHOWN[name], strict=True)
            )
        ]
        above = [excess(kept, tolerance) for tolerance in TOLERANCES]
        cells += [f"{100 * np.mean(a > 0):.0f}% / {100 * mean_and_error(a)[0]:.2f}" for a in above]
        none = "/".join(str(kept.without_rule(tolerance)) for tolerance in TOLERANCES)
        ahead = [with_error(*difference_at_gap(ours.first(len(kept)), kept, gap), sign=True) for gap in SHOWN[name]]
        rows.append([method, "yes" if method in using else "no", str(len(kept)), *cells, none, " / ".join(ahead)])
    header = ["method", "needs A", "splits", *(f"accuracy at gap {gap:.2f}" for gap in SHOWN[name])]
    header += [f"over {tolerance:.2f}" for tolerance in TOLERANCES]
    print(f"\n#### {CRITERIA[criterion]}\n")
    print(table([*header, "no rule", "evenhand, certified, cross-fitted, is ahead by"], rows), flush=True)


def print_dominance(criterion: str, found: Mapping[str, Outcomes]) -> None:
    """Print, for each tolerance, who is most accurate among those whose mean test gap is within it.

    A method takes part with whatever it was asked for: all its points, not only the one at this tolerance.
    """
    rows = []
    for tolerance in ASKED:
        points = []
        for method, kept in found.items():
            gaps, accuracies = np.nanmean(kept.gap, axis=0), np.nanmean(kept.accuracy, axis=0)
            within = accuracies[gaps <= tolerance]
            if within.size:
                points.append((float(within.max()), method))
        points.sort(reverse=True)
        without = [point for point in points if point[1] not in told_the_attribute()]
        leaders = [
            f"{one[1]} ({100 * one[0]:.2f})" if one else "-"
            for pair in (points, without)
            for one in (*pair[:2], *[None] * (2 - len(pair)))
        ]
        rows.append([f"{tolerance:.2f}", *leaders, f"{len(points)} of {len(found)}"])
    print(f"\n#### Who is best within a tolerance: {CRITERIA[criterion]}\n")
    header = ["mean test gap within", "first", "second", "first without the attribute", "second", "methods within it"]
    print(table(header, rows), flush=True)


def print_times(name: str, model: str) -> None:
    """Print fit and prediction times at one tolerance, as ratios to evenhand's on the same arrays.

    Times are of the processor, the shortest of a few, and the median over splits: others use the machine, too.
    """
    rows = []
    for criterion in CRITERIA:
        drawn = list(splits(name, model, TIMED_SPLITS))

        def seconds(method: PostProcessor, way: str, drawn: Any = drawn, criterion: str = criterion) -> Any:
            times = []
            for split in drawn:
                same = []
                while len(same) < REPEATS and (not same or same[0].fit_seconds < SLOW):
                    same.append(method.run(getattr(split, way), criterion, (TIMED_TOLERANCE,), split.seed))
                ruled = all(decided is not None for decided in same[0].decisions.values())
                fit, predict = np.min([[run.fit_seconds, run.predict_seconds] for run in same], axis=0)
                times.append([fit, predict if ruled else np.nan])
            return np.median(times, axis=0)

        for way, title in WAYS.items():
            seconds(CERTIFIED, way)
            unit = seconds(CERTIFIED, way)
            for method in methods():
                if criterion not in method.criteria or (way == "crossfit" and not method.large):
                    continue
                fit, predict = unit if method is CERTIFIED else seconds(method, way)
                rows.append(
                    [
                        CRITERIA[criterion], title, method.name, f"{1e3 * fit:.0f} ms",
                        f"{fit / unit[0]:.1f}", f"{predict / unit[1]:.1f}" if predict == predict else "-",
                        "no" if method.random else "yes",
                    ]
                )  # fmt: skip
        ours = run_classifier(name, model, drawn[0], criterion)
        theirs = run_reductions(name, model, drawn[0], criterion, (TIMED_TOLERANCE,))
        for title, run, same in (
            ("evenhand FairClassifier", ours, "yes"), (REDUCTIONS_NAME, theirs, "no"),
        ):  # fmt: skip
            rows.append(
                [
                    CRITERIA[criterion], "with its models", title, f"{1e3 * run.fit_seconds:.0f} ms",
                    f"{run.fit_seconds / ours.fit_seconds:.1f}",
                    f"{run.predict_seconds / ours.predict_seconds:.1f}", same,
                ]
            )  # fmt: skip
    print("\n#### Time, as a ratio to evenhand's\n")
    header = ["criterion", "rows", "method", "fit", "fit, ratio", "predict, ratio", "deterministic"]
    print(table(header, rows), flush=True)


def draw(name: str, model: str, found: Found) -> None:
    """Draw accuracy against test gap, as means over the splits, of the methods on cross-fitted probabilities."""
    import altair as alt

    points = [
        {"criterion": CRITERIA[criterion], "method": method, "gap": float(gap), "accuracy": float(accuracy)}
        for criterion, by_method in found.items()
        for method, kept in by_method.items()
        if not method.endswith(WAYS["holdout"]) or method == f"{CERTIFIED.name}, {WAYS['holdout']}"
        for gap, accuracy in zip(
            np.nanmean(kept.gap, axis=0), np.nanmean(kept.accuracy, axis=0), strict=True
        )
    ]  # fmt: skip
    chart = (
        alt.Chart(alt.InlineData(points))
        .mark_line(point=True)
        .encode(
            x=alt.X("gap:Q", title="mean test gap"),
            y=alt.Y("accuracy:Q", title="mean test accuracy", scale=alt.Scale(zero=False)),
            color=alt.Color("method:N").legend(labelLimit=400).scale(scheme="tableau20"),
            order="gap:Q",
        )
        .properties(width=380, height=320)
        .facet("criterion:N", title=f"{name}, {model}")
        .resolve_scale(x="independent", y="independent")
    )
    IMAGES.mkdir(parents=True, exist_ok=True)
    chart.save(IMAGES / f"comparison-{name}-{model.replace(' ', '-')}.svg")


def report(name: str, model: str) -> None:
    """Run and print everything of a data set and a model."""
    found = outcomes(name, model)
    print(f"\n### {name}, {model}")
    for criterion, by_method in found.items():
        print_outcomes(name, criterion, by_method)
        print_dominance(criterion, by_method)
    print_times(name, model)
    if "EVENHAND_SPLITS" not in os.environ:  # a quick look leaves the documentation's figures alone
        draw(name, model, found)


def main() -> None:
    """Print every table and draw every figure."""
    print(machine("numpy", "scikit-learn", "lightgbm", "fairlearn", "oxonfair", "aif360"))
    for name, model in RUNS:
        report(name, model)


if __name__ == "__main__":
    main()
