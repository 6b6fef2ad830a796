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
import pandas as pd

import evenhand as eh
from benchmarks.postprocessors import ErrorParity, _known
from benchmarks.results import ASKED, Row, outcomes, point_columns, read, write
from benchmarks.splits import Evidence, splits
from benchmarks.tradeoff import CRITERIA, Point, difference_at_gap, measure, table

RUNS = {("adult", "logistic regression"): 20, ("compas", "boosted trees"): 10}
SHOWN = {"adult": (0.05, 0.03), "compas": (0.10, 0.05)}
TITLES = {"adult": "Adult", "compas": "COMPAS"}
WAYS = {"holdout": "hold-out", "crossfit": "cross-fitted"}
SAME_ROWS = (0.0, 0.01, 0.02, 0.05, 0.10)
OURS, PEERS = "evenhand, lots, attribute known", ("error-parity", "fairlearn ThresholdOptimizer")


def learn(evidence: Evidence, criterion: str, tolerance: float) -> eh.Mixture | None:
    """Return the best mixture, or None where there is none."""
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
    """Return test accuracy and test gap, with lots drawn by the split and the row's number."""
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
                line |= {"method": f"{OURS}, {title}", "rules": max(len(m.rules) for m in found.values() if m)}
                line |= point_columns([point(found[t], evidence, criterion, split.seed) for t in ASKED])
                for tolerance, other in zip(SAME_ROWS, theirs, strict=True):
                    mine = found[tolerance]
                    line[f"optimum {tolerance:.2f}"] = None if mine is None else round(mine.solution_.utility, 7)
                    line[f"proven {tolerance:.2f}"] = mine is not None and mine.solution_.status == "optimal"
                    line[f"error-parity {tolerance:.2f}"] = None if other is None else round(other, 7)
                yield line
        print(f"{name}, {model}: split {split.seed}", file=sys.stderr, flush=True)


def same_rows_table(measured: pd.DataFrame) -> str:
    """Return by how much the mixture's optimum exceeds error-parity's on the rows that both are learnt from."""
    rows = []
    for (data, model, criterion, method), lines in measured.groupby(
        ["data", "model", "criterion", "method"], sort=False
    ):
        cells = []
        for t in SAME_ROWS:
            ahead = 100 * (lines[f"optimum {t:.2f}"] - lines[f"error-parity {t:.2f}"])
            cells.append(f"{ahead.min():+.4f} to {ahead.max():+.4f}")
        proven = int(lines[[f"proven {t:.2f}" for t in SAME_ROWS]].all(axis=1).sum())
        about = [
            f"{TITLES[data]}, {model}",
            CRITERIA[criterion],
            method.rpartition(", ")[2],
            str(len(lines)),
            str(proven),
        ]
        rows.append([*about, *cells])
    header = ["data and model", "criterion", "rows", "splits", "proven", *(f"tolerance {t:.2f}" for t in SAME_ROWS)]
    return table(header, rows)


def test_table(measured: pd.DataFrame, peers: pd.DataFrame) -> str:
    """Return mean test accuracy / mean test gap of each method, and by how much the mixture is ahead at equal gaps."""
    rows = []
    for (data, model, criterion, method), lines in measured.groupby(
        ["data", "model", "criterion", "method"], sort=False
    ):
        title = str(method).rpartition(", ")[2]
        same = (peers["data"] == data) & (peers["model"] == model) & (peers["criterion"] == criterion)
        kept = {method: outcomes(lines)[method]}
        for peer in PEERS:
            name = f"{peer}, {title}"
            chosen = peers[same & (peers["method"] == name) & (peers["split"] < len(lines))]
            kept[name] = outcomes(chosen)[name]
        for name, found in kept.items():
            cells = [f"{100 * np.nanmean(a):.2f} / {np.nanmean(g):.3f}" for a, g in (found.at(t) for t in ASKED)]
            none = "/".join(str(found.without_rule(t)) for t in ASKED)
            ahead = []
            for gap in SHOWN[data]:
                difference, error = difference_at_gap(kept[method], found, gap)
                ahead.append("-" if difference != difference else f"{100 * difference:+.2f} ± {100 * error:.2f}")
            about = [f"{TITLES[data]}, {model}", CRITERIA[criterion], name, str(len(found))]
            gaps = " / ".join(f"{gap:.2f}" for gap in SHOWN[data])
            rows.append([*about, *cells, none, "" if name == method else f"at {gaps}: {' / '.join(ahead)}"])
    header = ["data and model", "criterion", "method", "splits", *(f"asked for {t:.2f}" for t in ASKED), "no rule"]
    return table([*header, "the mixture is ahead"], rows)


def main() -> None:
    """Measure, write it down, and print the tables."""
    peer = ErrorParity() if "EVENHAND_ERROR_PARITY" in os.environ else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write("lots.csv", [line for setting, n in RUNS.items() for line in measurements(*setting, n, peer)])
    measured = read("lots.csv")
    print(test_table(measured, read("peers.csv")))
    if peer is not None:
        print(same_rows_table(measured))


if __name__ == "__main__":
    main()
