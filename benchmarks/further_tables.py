"""The tables of floors under precision, of F1 and of lots, from what was measured; nothing of the peers is imported."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from benchmarks.results import ASKED, outcomes
from benchmarks.tradeoff import CRITERIA, Outcomes, difference_at_gap, table, with_error

TITLES = {"adult": "Adult", "compas": "COMPAS", "census": "KDD Census Income"}
OXONFAIR_OURS, OXONFAIR = "evenhand, certified", "OxonFair, inferred groups"
FLOORS_COLUMNS, F1_COLUMNS = ("level", "accuracy", "precision"), ("tolerance", "f1", "gap")
LEVELS = {"adult": (0.75, 0.80, 0.85, 0.90), "compas": (0.60, 0.65, 0.70, 0.75), "census": (0.75, 0.80, 0.85, 0.90)}
F1_ASKED = dict.fromkeys(LEVELS, ASKED)
F1_SHOWN = {"adult": (0.10, 0.05, 0.03), "compas": (0.15, 0.10, 0.05), "census": (0.10, 0.05, 0.03)}
LOTS_OURS, LOTS_PEERS = "evenhand, lots, attribute known", ("error-parity", "fairlearn ThresholdOptimizer")
SHOWN = {"adult": (0.05, 0.03), "compas": (0.10, 0.05)}
SAME_ROWS = (0.0, 0.01, 0.02, 0.05, 0.10)


def _outcomes(lines: pd.DataFrame, columns: tuple[str, str, str], *, floor: bool) -> Outcomes:
    """Return what a method came out with; a gap is what a floor's value leaves of 1."""
    asked, score, kept = columns
    values = sorted(lines[asked].unique())
    found = Outcomes(tuple(1.0 - value if floor else value for value in values))
    for _, split in lines.groupby("split"):
        at = split.set_index(asked)
        pairs = [(float(at.loc[value, score]), float(at.loc[value, kept])) for value in values]
        found.add([None if gap != gap else (points, 1.0 - gap if floor else gap) for points, gap in pairs])
    return found


def _beside_oxonfair(
    measured: pd.DataFrame, columns: tuple[str, str, str], shown: Mapping[str, tuple[float, ...]], *, floor: bool
) -> list[list[str]]:
    """Return, for each setting and method, mean score / mean value by what was asked, and who is ahead."""
    rows = []
    for (data, model, criterion), lines in measured.groupby(["data", "model", "criterion"], sort=False):
        found: Mapping[str, Outcomes] = {
            str(method): _outcomes(part, columns, floor=floor) for method, part in lines.groupby("method", sort=False)
        }
        for method, kept in found.items():
            cells = []
            for tolerance in kept.tolerances:
                score, gap = kept.at(tolerance)
                value = 1 - np.nanmean(gap) if floor else np.nanmean(gap)
                cells.append(f"{100 * np.nanmean(score):.2f} / {value:.3f}")
            ahead = []
            for value in shown[data]:
                own = difference_at_gap(found[OXONFAIR_OURS], found[OXONFAIR], 1.0 - value if floor else value)
                ahead.append(with_error(*own, sign=True))
            none = "/".join(str(kept.without_rule(tolerance)) for tolerance in kept.tolerances)
            named = " / ".join(f"{value:.2f}" for value in shown[data])
            about = [f"{TITLES[data]}, {model}", CRITERIA.get(criterion, criterion), str(len(kept)), method]
            last = f"at {named}: {' / '.join(ahead)}" if method == OXONFAIR_OURS else ""
            rows.append([*about, *cells, none, last])
    return rows


def floors_table(measured: pd.DataFrame) -> str:
    """Return mean test accuracy / mean smallest test precision for each level, and who is ahead at equal precision."""
    levels = {title: " / ".join(f"{level:.2f}" for level in LEVELS[data]) for data, title in TITLES.items()}
    rows = []
    for setting, _, splits, method, *cells, last in _beside_oxonfair(measured, FLOORS_COLUMNS, LEVELS, floor=True):
        rows.append([setting, splits, levels[setting.partition(",")[0]], method, *cells, last.rpartition(": ")[2]])
    header = ["data and model", "splits", "floors", "method", "first", "second", "third", "fourth", "no rule"]
    return table([*header, "evenhand is ahead at equal test precision"], rows)


def f1_table(measured: pd.DataFrame) -> str:
    """Return mean test F1 / mean test gap for each tolerance, and who is ahead at equal gaps."""
    rows = _beside_oxonfair(measured, F1_COLUMNS, F1_SHOWN, floor=False)
    (asked,) = set(F1_ASKED.values())
    header = ["data and model", "criterion", "splits", "method", *(f"asked for {value:.2f}" for value in asked)]
    return table([*header, "no rule", "evenhand is ahead at equal test gap"], rows)


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
