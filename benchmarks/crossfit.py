"""Cross-fitting against the single hold-out, on the same rows: ``python -m benchmarks crossfit``.

Both get the paper's training and validation rows. The hold-out trains models on the former and learns the
rule on the latter; cross-fitting learns the rule on the out-of-fold probabilities of all of them, and its
models are trained on all. See :mod:`benchmarks.splits`.
"""

from __future__ import annotations

from benchmarks.postprocessors import CERTIFIED
from benchmarks.splits import MODELS, SPLITS, splits
from benchmarks.tradeoff import (
    CRITERIA,
    LADDER,
    TOLERANCES,
    Outcomes,
    difference_at_gap,
    error_at_gap,
    excess,
    machine,
    mean_and_error,
    measure,
    table,
    with_error,
)

SHOWN = {"adult": (0.10, 0.05, 0.03, 0.02), "compas": (0.20, 0.15, 0.12, 0.10)}
WAYS = ("holdout", "crossfit", "ensemble")


def outcomes(name: str, model: str) -> dict[str, dict[str, Outcomes]]:
    """Return the outcomes, by criterion and by way of splitting the rows."""
    found = {criterion: {way: Outcomes(LADDER) for way in WAYS} for criterion in CRITERIA}
    for split in splits(name, model, SPLITS[name]):
        for criterion, by_way in found.items():
            for way, kept in by_way.items():
                evidence = getattr(split, way)
                decided = CERTIFIED.run(evidence, criterion, LADDER, 0).decisions
                kept.add([measure(evidence.test, criterion, decided[t]) for t in LADDER])
    return found


def report(name: str, model: str) -> None:
    """Print the two tables of a data set and a model."""
    found = outcomes(name, model)
    print(f"\n### {name}, {model}, {SPLITS[name]} splits\n")
    print("Test accuracy (%) at equal mean test gap:\n")
    rows = []
    for criterion, by_way in found.items():
        for gap in SHOWN[name]:
            levels = [with_error(by_way[w].accuracy_at_gap(gap), error_at_gap(by_way[w], gap)) for w in WAYS]
            gains = [with_error(*difference_at_gap(by_way[way], by_way["holdout"], gap), sign=True) for way in WAYS[1:]]
            rows.append([CRITERIA[criterion], f"{gap:.2f}", *levels, *gains])
    header = ["criterion", "test gap", "hold-out", "cross-fitted", "ensemble", "cross-fitted − hold-out"]
    print(table([*header, "ensemble − hold-out"], rows))
    print("Mean excess of the test gap over the tolerance (hundredths), and test accuracy (%):\n")
    rows = []
    for criterion, by_way in found.items():
        for tolerance in TOLERANCES:
            above = {way: excess(by_way[way], tolerance) for way in WAYS}
            levels = [with_error(*mean_and_error(above[way])) for way in WAYS]
            fewer = with_error(*mean_and_error(above["crossfit"] - above["holdout"]), sign=True)
            accuracy = [f"{100 * by_way[way].at(tolerance)[0].mean():.2f}" for way in WAYS]
            none = "/".join(str(by_way[way].without_rule(tolerance)) for way in WAYS)
            rows.append([CRITERIA[criterion], f"{tolerance:.2f}", *levels, fewer, " / ".join(accuracy), none])
    header = ["criterion", "tolerance", "hold-out", "cross-fitted", "ensemble", "cross-fitted − hold-out"]
    print(table([*header, "accuracy", "no rule"], rows), flush=True)


def main() -> None:
    """Print every table."""
    print(machine("numpy", "scikit-learn", "lightgbm"))
    for name in SHOWN:
        for model in MODELS:
            report(name, model)


if __name__ == "__main__":
    main()
