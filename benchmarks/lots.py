"""Mixtures with a known attribute beside error-parity and ThresholdOptimizer: ``python -m benchmarks lots``.

Two things are measured on the same splits and probabilities as in ``python -m benchmarks peers``, whose results for the
two peers are read from its file: test accuracy and test gap, and the expected accuracy on the rows that a mixture is
learnt from, beside that of error-parity's solution (which ``EVENHAND_ERROR_PARITY`` makes possible).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator

import numpy as np

import evenhand as eh
from benchmarks.further_tables import LOTS_OURS, SAME_ROWS, lots_table, same_rows_table
from benchmarks.postprocessors import ErrorParity, _known
from benchmarks.results import ASKED, Row, point_columns, read, write
from benchmarks.splits import Evidence, splits
from benchmarks.tradeoff import CRITERIA, Point, measure

RUNS = {("adult", "logistic regression"): 20, ("compas", "boosted trees"): 10}
WAYS = {"holdout": "hold-out", "crossfit": "cross-fitted"}


def learn(evidence: Evidence, criterion: str, tolerance: float) -> eh.Mixture | None:
    """Return the best mixture, or None if there is none."""
    rows = evidence.learn
    known = _known(rows) if criterion == "eo" else _known(rows).sum(axis=1)
    try:
        found = eh.learn_rule(
            rows.y, rows.group, rows.p_y, known, criterion=criterion, tolerance=tolerance, randomize=True
        )
    except eh.InfeasibleError:
        return None
    assert isinstance(found, eh.Mixture)
    return found


def point(mixture: eh.Mixture | None, evidence: Evidence, criterion: str, seed: int) -> Point | None:
    """Return test accuracy and test gap, with random draws by the split and the row's number."""
    if mixture is None:
        return None
    rows = evidence.test
    known = _known(rows) if criterion == "eo" else _known(rows).sum(axis=1)
    return measure(rows, criterion, mixture.decide(rows.p_y, known, key=seed * 1_000_000 + np.arange(len(rows.y))))


def measurements(name: str, model: str, n: int, peer: ErrorParity | None) -> Iterator[Row]:
    """Yield a line for each split, kind of evidence and criterion."""
    for split in splits(name, model, n):
        for way, title in WAYS.items():
            evidence = getattr(split, way)
            for criterion in CRITERIA:
                found = {t: learn(evidence, criterion, t) for t in sorted({*ASKED, *SAME_ROWS})}
                theirs = [None] * len(SAME_ROWS) if peer is None else peer.optima(evidence, criterion, SAME_ROWS)
                line: Row = {"data": name, "model": model, "criterion": criterion, "split": split.seed}
                line |= {"method": f"{LOTS_OURS}, {title}", "rules": max(len(m.rules) for m in found.values() if m)}
                line |= point_columns([point(found[t], evidence, criterion, split.seed) for t in ASKED])
                for tolerance, other in zip(SAME_ROWS, theirs, strict=True):
                    mine = found[tolerance]
                    line[f"optimum {tolerance:.2f}"] = None if mine is None else round(mine.solution_.utility, 7)
                    line[f"proven {tolerance:.2f}"] = mine is not None and mine.solution_.status == "optimal"
                    line[f"error-parity {tolerance:.2f}"] = None if other is None else round(other, 7)
                yield line
        print(f"{name}, {model}: split {split.seed}", file=sys.stderr, flush=True)


def main() -> None:
    """Measure, write it down, and print the tables."""
    peer = ErrorParity() if "EVENHAND_ERROR_PARITY" in os.environ else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write("lots.csv", [line for setting, n in RUNS.items() for line in measurements(*setting, n, peer)])
    measured = read("lots.csv")
    print(lots_table(measured, read("peers.csv")))
    if peer is not None:
        print(same_rows_table(measured))


if __name__ == "__main__":
    main()
