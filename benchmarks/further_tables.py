"""The tables of floors under precision and of mixtures, from the measured results; peers are not imported."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from benchmarks.results import ASKED, outcomes
from benchmarks.tradeoff import CRITERIA, Outcomes, difference_at_gap, table

TITLES = {"adult": "Adult", "compas": "COMPAS", "census": "KDD Census Income"}
FLOORS_OURS, FLOORS_PEER = "evenhand, certified", "OxonFair, inferred groups"
LEVELS = {"adult": (0.75, 0.80, 0.85, 0.90), "compas": (0.60, 0.65, 0.70, 0.75), "census": (0.75, 0.80, 0.85, 0.90)}
LOTS_OURS, LOTS_PEERS = "evenhand, lots, attribute known", ("error-parity", "fairlearn ThresholdOptimizer")
SHOWN = {"adult": (0.05, 0.03), "compas": (0.10, 0.05)}
SAME_ROWS = (0.0, 0.01, 0.02, 0.05, 0.10)


def _floor_outcomes(lines: pd.DataFrame) -> Outcomes:
    """Return the outcomes of a method; a gap is 1 minus the smallest precision."""
    levels = sorted(lines["level"].unique())
    kept = Outcomes(tuple(1.0 - level for level in levels))
    for _, split in lines.groupby("split"):
        at = split.set_index("level")
        pairs = [(float(at.loc[level, "accuracy"]), 1.0 - float(at.loc[level, "precision"])) for level in levels]
        kept.add([None if gap != gap else (accuracy, gap) for accuracy, gap in pairs])
    return kept


def floors_table(measured: pd.DataFrame) -> str:
    """Return mean test accuracy / mean smallest test precision for each level, and who is ahead at equal precision."""
    rows = []
    for (data, model), lines in measured.groupby(["data", "model"], sort=False):
        found: Mapping[str, Outcomes] = {m: _floor_outcomes(part) for m, part in lines.groupby("method", sort=False)}
        for method, kept in found.items():
            cells, ahead = [], []
            for level in LEVELS[data]:
                accuracy, gap = kept.at(1.0 - level)
                cells.append(f"{100 * np.nanmean(accuracy):.2f} / {1 - np.nanmean(gap):.3f}")
                difference, error = difference_at_gap(found[FLOORS_OURS], found[FLOORS_PEER], 1.0 - level)
                ahead.append("-" if difference != difference else f"{100 * difference:+.2f} ± {100 * error:.2f}")
            none = "/".join(str(kept.without_rule(1.0 - level)) for level in LEVELS[data])
            own = " / ".join(ahead) if method == FLOORS_OURS else ""
            levels = " / ".join(f"{level:.2f}" for level in LEVELS[data])
            rows.append([f"{TITLES[data]}, {model}", str(len(kept)), levels, method, *cells, none, own])
    header = ["data and model", "splits", "floors", "method", "first", "second", "third", "fourth", "no rule"]
    return table([*header, "evenhand is ahead at equal test precision"], rows)


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


def lots_table(measured: pd.DataFrame, peers: pd.DataFrame) -> str:
    """Return mean test accuracy / mean test gap of each method, and by how much the mixture is ahead at equal gaps."""
    rows = []
    for (data, model, criterion, method), lines in measured.groupby(
        ["data", "model", "criterion", "method"], sort=False
    ):
        title = str(method).rpartition(", ")[2]
        same = (peers["data"] == data) & (peers["model"] == model) & (peers["criterion"] == criterion)
        kept = {method: outcomes(lines)[method]}
        for peer in LOTS_PEERS:
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
