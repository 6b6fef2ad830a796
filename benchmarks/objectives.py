"""Objectives and criteria with a level on Adult, with the time that each takes: ``python -m benchmarks objectives``.

The probabilities are cross-fitted on all rows of Adult, with logistic regression; sex is the attribute.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.model_selection import cross_val_predict
from threadpoolctl import threadpool_limits

import evenhand as eh
from benchmarks.splits import FOLDS, MODELS, cells, dataset
from benchmarks.tradeoff import machine, table

SETTINGS: tuple[tuple[str, eh.Criterion, str], ...] = (
    ("demographic parity", eh.DemographicParity(), "accuracy"),
    ("demographic parity", eh.DemographicParity(), "balanced_accuracy"),
    ("demographic parity", eh.DemographicParity(), "f1"),
    ("equalized odds", eh.EqualizedOdds(), "f1"),
    ("predictive parity", eh.PredictiveParity(), "accuracy"),
    ("predictive parity", eh.PredictiveParity(), "f1"),
    ("smallest largest error", eh.MinimaxRate("error"), "accuracy"),
    ("smallest largest error, free threshold", eh.MinimaxRate("error") & eh.SelectionBudget(), "accuracy"),
)
TOLERANCE = 0.05


def main() -> None:
    """Learn each rule on all rows and print what came out."""
    print(machine("numpy", "scikit-learn"))
    data = dataset("adult")
    with threadpool_limits(1):
        model = MODELS["logistic regression"]
        p_y = cross_val_predict(model, data.X, data.y, cv=FOLDS, method="predict_proba")[:, 1]
        joint = cross_val_predict(model, data.X, cells("adult"), cv=FOLDS, method="predict_proba").reshape(-1, 2, 2)
    rows = []
    given = (data.y, data.group, p_y, joint)
    for title, criterion, objective in SETTINGS:
        options = {"criterion": criterion, "tolerance": TOLERANCE, "objective": objective}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eh.learn_rule(*(array[:1000] for array in given), **options)  # compiles
            started = time.process_time()
            rule = eh.learn_rule(*given, **options)
        seconds, solution = time.process_time() - started, rule.solution_
        selected = np.mean(rule.decide(p_y, joint))
        value = (
            rule.learned_from["minimax"]["value"] if "minimax" in rule.learned_from else np.abs(solution.values).max()
        )
        score = f"{solution.utility:.4f}"
        rows.append(
            [title, objective, str(len(rule.terms)), score, f"{value:.4f}", f"{selected:.3f}", solution.status,
             f"{seconds:.1f}"]
        )  # fmt: skip
    header = [
        "criterion, tolerance 0.05",
        "objective",
        "contrasts",
        "its value",
        "gap or largest rate",
        "selected",
        "status",
    ]
    print(table([*header, "CPU s"], rows))


if __name__ == "__main__":
    main()
