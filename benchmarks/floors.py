"""Floors under precision in every group, beside OxonFair's: ``python -m benchmarks floors``.

Both methods maximise accuracy and are asked for the same levels of the smallest precision of the two groups. What is
compared is test accuracy where the mean of the smallest test precision is the same.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from oxonfair import group_metrics

import evenhand as eh
from benchmarks.beside_oxonfair import Comparison
from benchmarks.further_tables import FLOORS_COLUMNS, LEVELS, OXONFAIR, OXONFAIR_OURS, floors_table
from benchmarks.postprocessors import Decide, oxonfair_frontier
from benchmarks.splits import Rows
from benchmarks.tradeoff import Decisions, Point


def fit_evenhand(learn: Rows, criterion: str, levels: tuple[float, ...]) -> dict[float, Decide | None]:
    """Learn the most accurate rule under each floor."""
    found: dict[float, Decide | None] = {}
    for level in levels:
        floor = eh.MinimumRate(criterion, level)
        try:
            rule = eh.learn_rule(learn.y, learn.group, learn.p_y, learn.joint, criterion=floor)
        except eh.InfeasibleError:
            found[level] = None
            continue
        found[level] = lambda rows, seed, rule=rule: rule.decide(rows.p_y, rows.joint)
    return found


def measure(test: Rows, criterion: str, decided: Decisions) -> Point:
    """Return accuracy and the smaller precision of the two groups; 1 where nobody is decided positively."""
    chosen = [(test.group == group) & (decided == 1) for group in (0, 1)]
    smallest = min(float(test.y[inside].mean()) if inside.any() else 1.0 for inside in chosen)
    return float(np.mean(decided == test.y)), smallest


FLOORS = Comparison(
    file="floors.csv",
    methods={
        OXONFAIR_OURS: fit_evenhand,
        OXONFAIR: partial(oxonfair_frontier, constraints={"precision": group_metrics.precision.min}),
    },
    criteria=("precision",),
    asked=LEVELS,
    measure=measure,
    columns=FLOORS_COLUMNS,
)


def main() -> None:
    """Measure, write it down, and print the table."""
    FLOORS.run(floors_table)


if __name__ == "__main__":
    main()
