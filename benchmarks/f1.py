"""The F1 score under demographic parity, beside OxonFair's: ``python -m benchmarks f1``.

Both methods maximise F1 and are asked for the same largest difference of the two groups' selection rates. What
is compared is test F1 where the mean test gap is the same.
"""

from __future__ import annotations

from functools import partial

from oxonfair import group_metrics
from sklearn.metrics import f1_score

from benchmarks.beside_oxonfair import Comparison
from benchmarks.further_tables import F1_ASKED, F1_COLUMNS, OXONFAIR, OXONFAIR_OURS, f1_table
from benchmarks.postprocessors import fit_evenhand, oxonfair_frontier
from benchmarks.splits import Rows
from benchmarks.tradeoff import GAPS, Decisions, Point


def measure(test: Rows, criterion: str, decided: Decisions) -> Point:
    """Return F1 and the gap of some decisions."""
    gap = GAPS[criterion](test.y, decided, sensitive_features=test.group)
    return float(f1_score(test.y, decided)), float(gap)


F1 = Comparison(
    file="f1.csv",
    methods={
        OXONFAIR_OURS: partial(fit_evenhand, objective="f1"),
        OXONFAIR: partial(oxonfair_frontier, objective=group_metrics.f1),
    },
    criteria=("dp", "eo"),
    asked=F1_ASKED,
    measure=measure,
    columns=F1_COLUMNS,
)


def main() -> None:
    """Measure, write it down, and print the table."""
    F1.run(f1_table)


if __name__ == "__main__":
    main()
