"""The demonstration: from an unfair model on the embedded Adult data to fair decisions.

``python -m evenhand.demo`` and ``evenhand demo`` run it. It needs no network and takes well under a minute.

The rule is learnt on half of the people and audited on the other half. A verdict is a pass only if the whole
confidence interval of the gap is within the tolerance. The rule therefore keeps three standard errors away from the
tolerance (``safety=3``), which covers the sampling error of both halves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenhand.auditing.audit import audit_rows
from evenhand.auditing.findings import Audit, Estimate
from evenhand.estimator.classifier import FairClassifier
from evenhand.inputs import FloatArray
from evenhand.paper.datasets import Dataset, load_adult
from evenhand.paper.datasets.adult import LABEL, SHA256
from evenhand.report import write_report
from evenhand.report.summarize import summarize_rows
from evenhand.rows import Rows, read_rows
from evenhand.rules.criteria import DemographicParity, check_tolerance
from evenhand.rules.frontier import Frontier, rule_and_frontier
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Options
from evenhand.text import table_text

FOLDS = 5
STEPS = 15
ATTRIBUTE = "sex"
CRITERION = DemographicParity()
SAFETY = 3.0
LABELS = ("<=50K", ">50K")


@dataclass(frozen=True, eq=False)
class Demo:
    """The results of the demonstration.

    Attributes
    ----------
    before, after : Audit
        The model alone and the fair decisions, on the held-out rows.
    rule : Rule
        The rule.
    curve : Frontier
        The best rules over a range of tolerances.
    report : Path
        The path of the report.
    """

    before: Audit
    after: Audit
    rule: Rule
    curve: Frontier
    report: Path


def run_demo(
    output: str | os.PathLike[str] = "evenhand-report.html",
    *,
    tolerance: float = 0.10,
    random_state: int = 0,
    rows: int | None = None,
    say: Callable[[str], None] = print,
) -> Demo:
    """Train, audit, learn a fair rule, compare on held-out rows, and write the report.

    Parameters
    ----------
    output : path, default="evenhand-report.html"
        The path of the report.
    tolerance : float, default=0.10
        The largest allowed difference of selection rates.
    random_state : int, default=0
        Seed of the split, the folds and the models.
    rows : int or None, default=None
        The number of rows to use; None uses all 45,222.
    say : callable, default=print
        Called with each line of progress.

    Returns
    -------
    Demo
        The audits, the rule and the path of the report.
    """
    tolerance = check_tolerance(tolerance)
    begin = time.perf_counter()
    data = load_adult()
    say(f"Adult: {len(data):,} people; does a person earn more than 50,000 dollars? The groups are by {ATTRIBUTE}.")
    learning, held_out = _train(data, tolerance, random_state, rows, say)
    base = held_out.p_y > 0.5
    before = audit_rows(held_out, base, criterion=CRITERION, tolerance=tolerance)
    say(f"\nThe model alone, on {len(base):,} other people:\n{before}")
    say(f"\nLearning the most accurate rule whose selection rates differ by at most {100 * tolerance:g} points ...")
    options = Options(criterion=CRITERION, safety=SAFETY, random_state=random_state)
    rule, curve = rule_and_frontier(learning, options, tolerance, STEPS)
    decided = rule.decision_function(held_out.p_y, held_out.p_group) > 0.0
    after = audit_rows(held_out, decided, criterion=CRITERION, tolerance=tolerance)
    say(f"\n{_comparison(before, after)}")
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
            f" {len(learning):,} rows; {ATTRIBUTE} is not a feature",
            "command": "evenhand demo",
        },
    )
    path = write_report(summary, output)
    say(f"\nThe report, with a slider over the whole trade-off, is in {path.resolve()}")
    say(f"Done in {time.perf_counter() - begin:.0f} seconds.")
    return Demo(before, after, rule, curve, path)


def _train(
    data: Dataset, tolerance: float, seed: int, rows: int | None, say: Callable[[str], None]
) -> tuple[Rows, Rows]:
    """Return the cross-fitted probabilities of the learning rows, and those of the held-out rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    X, categorical = _features(data)
    learning, held_out = np.array_split(np.random.default_rng(seed).permutation(len(data))[:rows], 2)
    group = data.sensitive[ATTRIBUTE]
    y = np.array(LABELS)[data.y]
    model = HistGradientBoostingClassifier(
        learning_rate=0.15, max_iter=60, categorical_features=categorical, random_state=seed
    )
    fair = FairClassifier(
        model,
        criterion=CRITERION,
        tolerance=tolerance,
        cv=FOLDS,
        safety=SAFETY,
        pos_label=LABELS[1],
        random_state=seed,
    )
    say(f"Training gradient boosted trees for the label and for {ATTRIBUTE}, in {FOLDS} folds ...")
    # One thread: with several, such short fits are slow on a busy machine.
    with threadpool_limits(1, user_api="openmp"):
        fair.fit(X[learning], y[learning], sensitive_features={ATTRIBUTE: group[learning]})
        p_y, p_group = fair.probabilities(X[held_out])
    truth = y[held_out], {ATTRIBUTE: group[held_out]}
    return fair.held_out_, read_rows(*truth, p_y, p_group, criterion=CRITERION, pos_label=LABELS[1])


def _features(data: Dataset) -> tuple[FloatArray, list[bool]]:
    """Return the columns as numbers, categories as codes, and a mask of the categorical columns."""
    columns = [column for name, column in data.frame.items() if name not in (ATTRIBUTE, LABEL)]
    categorical = [column.dtype.kind not in "iuf" for column in columns]
    numbers = [
        np.unique(column, return_inverse=True)[1] if is_category else column
        for column, is_category in zip(columns, categorical, strict=True)
    ]
    return np.column_stack(numbers).astype(np.float64), categorical


def _comparison(before: Audit, after: Audit) -> str:
    verdicts = before.verdicts[0], after.verdicts[0]
    assert before.accuracy is not None
    assert after.accuracy is not None
    rows = [
        ("accuracy", before.accuracy, after.accuracy),
        ("largest gap", verdicts[0].gap, verdicts[1].gap),
    ]
    for a, b in zip(before.attributes[0].groups, after.attributes[0].groups, strict=True):
        rows.append((f"selection rate, {a.group}", a.selection_rate, b.selection_rate))
    price = 100 * ((before.accuracy.value or 0.0) - (after.accuracy.value or 0.0))
    table = [[name, _shown(a), _shown(b)] for name, a, b in rows]
    return "\n".join(
        [
            f"Demographic parity to within {verdicts[1].tolerance:g}, on held-out rows, with 95% intervals:",
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
