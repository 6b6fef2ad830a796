"""Which final models? COMPAS with boosted trees, where cross-fitting exceeds the tolerance by more than the hold-out.

``python -m benchmarks folds``. Models that are trained on all rows are less extreme than those of the folds, so a
rule that is learnt on the folds' probabilities corrects the final models too little. More folds train on more
rows, and differ less. A matched ensemble (``FairClassifier(ensemble="matched")``) does not differ at all.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from benchmarks.postprocessors import CERTIFIED
from benchmarks.splits import SPLITS, Evidence, Rows, cells, dataset, fitted, scored
from benchmarks.tradeoff import (
    CRITERIA,
    LADDER,
    TOLERANCES,
    Outcomes,
    difference_at_gap,
    excess,
    machine,
    mean_and_error,
    measure,
    table,
    with_error,
)

NAME, MODEL = "compas", "boosted trees"
FOLDS = (5, 20)
ROUNDS = 3
NAMES = ["hold-out", *(f"{n} folds" for n in FOLDS), "matched"]
Probabilities = NDArray[np.float64]


def evidence(seed: int) -> dict[str, Evidence]:
    """Return the evidence of each way of splitting the rows, and its test rows."""
    train, validation, test = dataset(NAME).splits(random_state=seed)
    every = np.concatenate([train, validation])
    fit, rows = partial(fitted, NAME, MODEL), partial(scored, NAME)
    held, final = fit(train), fit(every)(test)
    ways = {"hold-out": Evidence(rows(validation, held(validation)), rows(test, held(test)))}

    def out_of_fold(n_folds: int, draw: int) -> tuple[Probabilities, Any]:
        """Return each row's out-of-fold probabilities, and the first fold's models."""
        found, first = np.empty((len(every), 5)), None
        for rest, fold in StratifiedKFold(n_folds, shuffle=True, random_state=draw).split(every, cells(NAME)[every]):
            predict = fit(every[rest])
            first = first or predict
            found[fold] = predict(every[fold])
        return found, first

    for n_folds in FOLDS:
        ways[f"{n_folds} folds"] = Evidence(rows(every, out_of_fold(n_folds, seed)[0]), rows(test, final))
    rounds = [out_of_fold(FOLDS[0], 1000 * seed + draw) for draw in range(ROUNDS)]
    learnt = np.mean([found for found, _ in rounds], axis=0)
    used = np.mean([first(test) for _, first in rounds], axis=0)
    ways["matched"] = Evidence(rows(every, learnt), rows(test, used))
    return ways


def certainty(rows: Rows) -> float:
    """Return the mean distance of p(A | x) from one half."""
    return float(np.abs(rows.p_group[:, 1] - 0.5).mean())


def main() -> None:
    """Print the excess and the certainty of each way."""
    print(machine("numpy", "scikit-learn", "lightgbm"))
    kept = {criterion: {name: Outcomes(LADDER) for name in NAMES} for criterion in CRITERIA}
    sure: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    with threadpool_limits(1):
        for seed in range(SPLITS[NAME]):
            for name, given in evidence(seed).items():
                sure[name].append((certainty(given.learn), certainty(given.test)))
                for criterion in CRITERIA:
                    decided = CERTIFIED.run(given, criterion, LADDER, 0).decisions
                    kept[criterion][name].add([measure(given.test, criterion, decided[t]) for t in LADDER])
    print(f"\n### {NAME}, {MODEL}, {SPLITS[NAME]} splits\n")
    print("Mean test gap, and mean excess over the tolerance (hundredths):\n")
    rows = []
    for criterion, by_name in kept.items():
        for tolerance in TOLERANCES:
            above = {name: excess(by_name[name], tolerance) for name in NAMES}
            gaps = " / ".join(f"{100 * by_name[name].at(tolerance)[1].mean():.1f}" for name in NAMES)
            levels = [with_error(*mean_and_error(above[name])) for name in NAMES]
            more = [with_error(*mean_and_error(above[n] - above["hold-out"]), sign=True) for n in NAMES[1:]]
            rows.append([CRITERIA[criterion], f"{tolerance:.2f}", gaps, *levels, *more])
    print(table(["criterion", "tolerance", "test gap", *NAMES, *(f"{n} − hold-out" for n in NAMES[1:])], rows))
    print("Test accuracy (points) at equal mean test gap, less the hold-out's:\n")
    rows = []
    for criterion, by_name in kept.items():
        for gap in (0.20, 0.15, 0.12, 0.10):
            ahead = [difference_at_gap(by_name[name], by_name["hold-out"], gap) for name in NAMES[1:]]
            rows.append([CRITERIA[criterion], f"{gap:.2f}", *(with_error(*value, sign=True) for value in ahead)])
    print(table(["criterion", "test gap", *NAMES[1:]], rows))
    print("Mean |p(A|x) − 1/2| where the rule is learnt, and where it is used:\n")
    means = {name: np.mean(values, axis=0) for name, values in sure.items()}
    print(
        table(
            ["", *NAMES],
            [[place, *(f"{means[n][k]:.4f}" for n in NAMES)] for k, place in enumerate(("learnt", "used"))],
        )
    )


if __name__ == "__main__":
    main()
