"""The demonstration: the embedded Adult data, from a model that is unfair to decisions that can be defended.

``python -m evenhand.demo`` and ``evenhand demo`` run it. It needs no network and well under a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.auditing.audit import audit_rows
from evenhand.auditing.findings import Audit, Estimate
from evenhand.inputs import FloatArray
from evenhand.paper.datasets import Dataset, load_adult
from evenhand.paper.datasets.adult import LABEL, SHA256
from evenhand.report import write_report
from evenhand.report.summarize import summarize_rows
from evenhand.rows import Rows, read_rows
from evenhand.rules.criteria import Criterion, DemographicParity, EqualizedOdds, check_tolerance
from evenhand.rules.frontier import Frontier, frontier_of
from evenhand.rules.ladder import best_rule
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Options
from evenhand.text import table_text

FOLDS = 5
STEPS = 15
ATTRIBUTE = "sex"
CRITERIA: dict[str, Criterion] = {"equalized_odds": EqualizedOdds(), "demographic_parity": DemographicParity()}


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demonstration found.

    Attributes
    ----------
    before : Audit
        The model alone on the held-out rows, judged on equalized odds.
    after : dict of Audit
        The fair decisions on the held-out rows, by criterion: each judged on its own.
    rules : dict of Rule
        The rules, by criterion.
    curve : Frontier
        The best rules for equalized odds along a ladder of tolerances.
    report : Path
        Where the report is.
    """

    before: Audit
    after: dict[str, Audit]
    rules: dict[str, Rule]
    curve: Frontier
    report: Path


def run_demo(
    output: str | os.PathLike[str] = "evenhand-report.html",
    *,
    tolerance: float = 0.05,
    random_state: int = 0,
    rows: int | None = None,
    say: Callable[[str], None] = print,
) -> Demo:
    """Train, audit, learn fair rules, compare on held-out rows, and write the report.

    Parameters
    ----------
    output : path, default="evenhand-report.html"
        Where the report goes.
    tolerance : float, default=0.05
        The largest allowed difference of rates.
    random_state : int, default=0
        For the split, the folds and the models.
    rows : int or None, default=None
        Use only so many rows; None uses all 45,222.
    say : callable, default=print
        Is told what is being done.

    Returns
    -------
    Demo
        The audits, the rules and where the report is.
    """
    tolerance = check_tolerance(tolerance)
    begin = time.perf_counter()
    data = load_adult()
    say(f"Adult: {len(data):,} people; does a person earn more than 50,000 dollars? The groups are by {ATTRIBUTE}.")
    learning, held_out = _train(data, random_state, rows, say)
    base = held_out.p_y > 0.5
    unfair = {
        name: audit_rows(held_out, base, criterion=criterion, tolerance=tolerance)
        for name, criterion in CRITERIA.items()
    }
    before = unfair["equalized_odds"]
    say(f"\nThe model alone, on {len(base):,} held-out rows:\n{before}")
    say("\nLearning the best fair rules ...")
    rules, curve = _learn(learning, tolerance, random_state)
    after = {}
    for name, rule in rules.items():
        decided = rule.decision_function(held_out.p_y, held_out.p_group) > 0.0
        after[name] = audit_rows(held_out, decided, criterion=CRITERIA[name], tolerance=tolerance)
        say(f"\n{_comparison(name, unfair[name], after[name])}")
    summary = summarize_rows(
        held_out,
        curve,
        tolerance=tolerance,
        held_out=True,
        title="Adult: does a person earn more than 50,000 dollars?",
        provenance={
            "data": data.description,
            "sha256": SHA256,
            "models": f"gradient boosted trees, cross-fitted in {FOLDS} folds on"
            f" {len(learning):,} rows; {ATTRIBUTE} is no feature",
            "command": "evenhand demo",
        },
    )
    path = write_report(summary, output)
    say(f"\nThe report, with the whole trade-off to move along, is in {path.resolve()}")
    say(f"Done in {time.perf_counter() - begin:.0f} seconds.")
    return Demo(before, after, rules, curve, path)


def _train(data: Dataset, seed: int, rows: int | None, say: Callable[[str], None]) -> tuple[Rows, Rows]:
    """Return the cross-fitted probabilities of the learning rows, and those of the held-out rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from threadpoolctl import threadpool_limits

    X, categorical = _features(data)
    order = np.random.default_rng(seed).permutation(len(data))[:rows]
    cut = round(0.77 * len(order))
    group = data.sensitive[ATTRIBUTE]
    members, codes = np.unique(group, return_inverse=True)
    cell = data.y * len(members) + codes
    learning, held_out = order[:cut], order[cut:]
    model = HistGradientBoostingClassifier(
        learning_rate=0.15, max_iter=60, categorical_features=categorical, random_state=seed
    )
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    found: list[list[Any]] = []
    for what, target in (("the model of the label", data.y), (f"the model of label and {ATTRIBUTE}", cell)):
        say(f"Training {what}, gradient boosted trees, in {FOLDS} folds ...")
        split = list(folds.split(X[learning], cell[learning]))
        # One thread: on a busy machine the threads of such short fits mostly wait for each other.
        with threadpool_limits(1, user_api="openmp"):
            crossed = cross_val_predict(model, X[learning], target[learning], cv=split, method="predict_proba")
            found.append([crossed, model.fit(X[learning], target[learning]).predict_proba(X[held_out])])
    return tuple(  # type: ignore[return-value]
        read_rows(
            data.y[part],
            {ATTRIBUTE: group[part]},
            found[0][k][:, 1],
            found[1][k].reshape(len(part), 2, len(members)),
            criterion=CRITERIA["equalized_odds"],
        )
        for k, part in enumerate((learning, held_out))
    )


def _features(data: Dataset) -> tuple[FloatArray, list[bool]]:
    """Return the columns as numbers, categories by their position, and which of them are categories."""
    columns = [column for name, column in data.frame.items() if name not in (ATTRIBUTE, LABEL)]
    categorical = [column.dtype.kind not in "iuf" for column in columns]
    numbers = [
        np.unique(column, return_inverse=True)[1] if is_category else column
        for column, is_category in zip(columns, categorical, strict=True)
    ]
    return np.column_stack(numbers).astype(np.float64), categorical


def _learn(learning: Rows, tolerance: float, seed: int) -> tuple[dict[str, Rule], Frontier]:
    odds, parity = (Options(criterion=criterion, random_state=seed) for criterion in CRITERIA.values())
    curve = frontier_of(learning, odds, among=tolerance, steps=STEPS)
    rules = {"equalized_odds": curve.rule_at(tolerance), "demographic_parity": best_rule(learning, parity, tolerance)}
    return rules, curve


def _comparison(criterion: str, before: Audit, after: Audit) -> str:
    verdicts = before.verdicts[0], after.verdicts[0]
    assert before.accuracy is not None
    assert after.accuracy is not None
    rows = [
        ("accuracy", before.accuracy, after.accuracy),
        ("largest gap", verdicts[0].gap, verdicts[1].gap),
    ]
    for a, b in zip(before.attributes[0].groups, after.attributes[0].groups, strict=True):
        rows.append((f"selection rate, {a.group}", a.selection_rate, b.selection_rate))
        for name in ("true_positive_rate", "false_positive_rate"):
            rows.append((f"{name.replace('_', ' ')}, {a.group}", getattr(a, name), getattr(b, name)))
    price = 100 * ((before.accuracy.value or 0.0) - (after.accuracy.value or 0.0))
    table = [[name, _shown(a), _shown(b)] for name, a, b in rows]
    return "\n".join(
        [
            f"{criterion.replace('_', ' ').capitalize()} to within {verdicts[1].tolerance:g},"
            " on held-out rows, with 95% intervals:",
            table_text(["", "the model alone", "fair"], table, names=3, indent="  "),
            f"  before: {verdicts[0].outcome}; after: {verdicts[1].outcome};"
            f" the price is {price:.2f} points of accuracy",
        ]
    )


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "no rows"
    return f"{estimate.value:.3f} ({estimate.lower:.3f} to {estimate.upper:.3f})"


if __name__ == "__main__":
    run_demo()
