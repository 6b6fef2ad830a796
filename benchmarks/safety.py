"""Does the tolerance hold on new rows? ``safety`` and ``ensemble`` beside the peers: ``python -m benchmarks safety``.

The splits, models and test rows are those of ``python -m benchmarks peers``, whose committed results are read for the
peers. Each of evenhand's settings is learnt by :func:`evenhand.learn_rule` on the cross-fitted probabilities and judged
on the test rows under the final models, or under the mean of the folds' models (``ensemble=True``). What is measured is
committed too, in ``results/safety.csv``; ``python -m benchmarks safety --tables`` makes the tables from it.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

import evenhand as eh
from benchmarks.results import ASKED, Row, outcomes, point_columns, read, write
from benchmarks.splits import RUNS, Evidence, Rows, SplitData, splits
from benchmarks.tradeoff import CRITERIA, Outcomes, Point, excess, machine, measure, table

# Where the peers are too slow for as many splits, evenhand's settings are compared on more.
MORE_SPLITS = {("adult", "boosted trees"): 20, ("census", "boosted trees"): 20}
SAFETIES = (0.0, 0.5, 1.0, 1.64)
WAYS = {"crossfit": "refit", "ensemble": "ensemble"}
JOINT = "evenhand, safety 1, ensemble, joint model alone"
BEFORE, DEFAULT = "evenhand, safety 0, refit", "evenhand, safety 1, ensemble"
GAPS = {"adult": (0.05, 0.03, 0.02), "compas": (0.15, 0.12, 0.10), "census": (0.05, 0.03, 0.02)}
PEERS = (
    "OxonFair, inferred groups, hold-out",
    "OxonFair, inferred groups, cross-fitted",
    "plug-in LP (LinearPost's), cross-fitted",
    "fairlearn ExponentiatedGradient",
    "fairlearn ThresholdOptimizer, hold-out",
    "error-parity, hold-out",
)


def points(evidence: Evidence, criterion: str, safety: float) -> list[Point | None]:
    """Return test accuracy and gap for each tolerance."""
    found = []
    for tolerance in ASKED:
        rule = learned(evidence.learn, criterion, tolerance, safety)
        decided = None if rule is None else rule.decide(evidence.test.p_y, evidence.test.joint)
        found.append(measure(evidence.test, criterion, decided))
    return found


def joint_alone(evidence: Evidence) -> Evidence:
    """Return the same with p(Y|x) from the model of label and group (``auxiliary="joint"``)."""
    parts = (evidence.learn, evidence.test)
    return Evidence(*(Rows(part.y, part.group, part.joint[:, 1].sum(axis=1), part.joint) for part in parts))


def learned(rows: Rows, criterion: str, tolerance: float, safety: float) -> eh.Rule | None:
    """Return the rule for a tolerance, if there is one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return eh.learn_rule(
                rows.y, rows.group, rows.p_y, rows.joint, criterion=criterion, tolerance=tolerance, safety=safety
            )
        except eh.InfeasibleError:
            return None


def errors_of_gap(split: SplitData, criterion: str) -> float:
    """Return the standard error of the largest difference of rates, on the rows that a rule is learnt from."""
    rows, found = split.crossfit.learn, []
    chosen = rows.p_y > 0.5
    for label in (None,) if criterion == "dp" else (0, 1):
        inside = np.ones(len(rows.y), dtype=bool) if label is None else rows.y == label
        rate = chosen[inside].mean()
        counts = np.bincount(rows.group[inside], minlength=2)
        found.append(np.sqrt(rate * (1.0 - rate) * (1.0 / counts).sum()))
    return float(max(found))


def measurements(name: str, model: str) -> list[Row]:
    """Return a line for each split, criterion and setting."""
    lines: list[Row] = []
    n = MORE_SPLITS.get((name, model), RUNS[name, model])
    for split in splits(name, model, n):
        for criterion in CRITERIA:
            about = {"data": name, "model": model, "criterion": criterion, "split": split.seed}
            about["standard error"] = round(errors_of_gap(split, criterion), 6)
            for way, title in WAYS.items():
                for safety in SAFETIES:
                    method = f"evenhand, safety {safety:g}, {title}"
                    found = points(getattr(split, way), criterion, safety)
                    lines.append(about | {"method": method} | point_columns(found))
            found = points(joint_alone(split.ensemble), criterion, 1.0)
            lines.append(about | {"method": JOINT} | point_columns(found))
        print(f"{name}, {model}: split {split.seed}", file=sys.stderr, flush=True)
    return lines


def tables() -> None:
    """Print a table for each data set, model and criterion."""
    ours, theirs = read("safety.csv"), read("peers.csv")
    for (name, model, criterion), measured in ours.groupby(["data", "model", "criterion"], sort=False):
        error = float(measured["standard error"].mean())
        splits_used = measured["split"].nunique()
        found = outcomes(measured)
        beside = theirs[(theirs["data"] == name) & (theirs["model"] == model) & (theirs["criterion"] == criterion)]
        for method, kept in outcomes(beside[beside["split"] < splits_used]).items():
            if method in PEERS:
                found[method] = kept
        print(f"\n### {name}, {model}, {CRITERIA[criterion]}: {splits_used} splits\n")
        print(f"The gap's standard error on the rows learnt from is {100 * error:.2f} points.\n")
        header = ["", *(f"{t:.2f}" for t in ASKED), *(f"at gap {gap:.2f}" for gap in GAPS[name])]
        print(table(header, [_line(method, kept, found[BEFORE], name) for method, kept in found.items()]))


def summary() -> None:
    """Print the means over data sets and models, of tolerances above two standard errors."""
    ours = read("safety.csv")
    methods = list(dict.fromkeys(ours["method"]))
    print("\n### Mean over the five settings, where the tolerance is above two standard errors of the gap\n")
    rows: dict[str, list[str]] = {method: [method] for method in methods}
    header = [""]
    for criterion, name in CRITERIA.items():
        for tolerance in ASKED[::-1]:
            found: dict[str, list[list[float]]] = {method: [] for method in methods}
            for _, measured in ours[ours["criterion"] == criterion].groupby(["data", "model"], sort=False):
                if tolerance <= 2.0 * float(measured["standard error"].mean()):
                    continue
                for method, kept in outcomes(measured).items():
                    accuracy, gap = kept.at(tolerance)
                    above = np.nanmean(gap > tolerance)
                    found[method].append([np.nanmean(excess(kept, tolerance)), above, np.nanmean(accuracy)])
            if not found[methods[0]]:
                continue
            header.append(f"{name} {tolerance:.2f} ({len(found[methods[0]])} settings)")
            for method in methods:
                over, above, accuracy = 100.0 * np.mean(found[method], axis=0)
                rows[method].append(f"{over:.2f} / {above:.0f}% / {accuracy:.2f}")
    print(table(header, list(rows.values())))


def _line(method: str, kept: Outcomes, before: Outcomes, name: str) -> list[str]:
    """Return excess in points, share of splits above and accuracy for each tolerance; gains at equal gaps."""
    cells = []
    for tolerance in ASKED:
        accuracy, gap = kept.at(tolerance)
        above = np.nanmean(gap > tolerance)
        cells.append(
            f"{100 * np.nanmean(excess(kept, tolerance)):.2f} / {100 * above:.0f}% / {100 * np.nanmean(accuracy):.2f}"
        )
    gains = []
    for gap in GAPS[name]:
        same = min(len(kept), len(before))
        gain = kept.first(same).accuracy_at_gap(gap) - before.first(same).accuracy_at_gap(gap)
        gains.append("-" if gain != gain else f"{100 * gain:+.2f}")
    return [method, *cells, *gains]


def main() -> None:
    """Measure everything, write it down, and print the tables."""
    print(machine("numpy", "scikit-learn", "lightgbm"))
    if "--tables" not in sys.argv:
        write("safety.csv", [line for setting in RUNS for line in measurements(*setting)])
    summary()
    tables()


if __name__ == "__main__":
    main()
