"""Example 3: two sensitive attributes at once. Two DPs make K = 2, two EOs make K = 4. The paper has no figure.

Beside the composite criterion stand the two rules that look at one attribute only. Adult: sex, and race as white or
not. COMPAS: race and sex. For K = 4 the certified search has 8 seconds, so that its result may differ a little from
machine to machine; what it proved is in the table. For K <= 2 its result is the optimum, everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import evenhand as eh
from evenhand.paper.experiments import splits
from evenhand.paper.experiments.charts import tradeoff
from evenhand.paper.experiments.results import Cell, Estimate, Figure, Report, Table, delta_text, grouped, percent
from evenhand.paper.experiments.running import Kept, Record, Unit
from evenhand.paper.experiments.settings import Settings
from evenhand.paper.experiments.splits import GAP_NAMES, GAPS, PAPER_TOLERANCES

ATTRIBUTES = {"adult": ("sex", "race"), "compas": ("race", "sex")}
TITLES = {"adult": "Adult", "compas": "COMPAS"}
WAYS = ("hold-out", "cross-fitted")
SECONDS = 8.0


def units(name: str, settings: Settings) -> list[Unit]:
    """Return, for each data set, criterion and seed, the trainings and the three rules."""
    made = []
    for data, attributes in ATTRIBUTES.items():
        for criterion in GAP_NAMES:
            for seed in settings.seed_numbers:
                for way in WAYS:
                    start = f"{data}, {GAP_NAMES[criterion]}, seed {seed}, {way}"
                    common = {"data": data, "criterion": criterion, "seed": seed, "way": way, "quick": settings.quick}
                    trained = Unit(f"{start}: models", train, common)
                    made.append(trained)
                    for chosen in (attributes, *((one,) for one in attributes)):
                        options = {**common, "attributes": list(chosen)}
                        made.append(Unit(f"{start}: {' and '.join(chosen)}", learn, options, (trained.name,)))
    return made


def train(states: Path, needed: Sequence[Kept], *, data: str, criterion: str, seed: int, way: str, quick: bool) -> Kept:
    """Train p(Y|x), and p(A|x) or p(Y, A|x) for each attribute; keep the probabilities."""
    known, rows = splits.dataset(data), splits.split(data, seed, quick=quick)
    targets = {"y": known.y}
    for attribute in ATTRIBUTES[data]:
        codes = splits.codes(data, attribute)
        targets[attribute] = codes if criterion == "dp" else 2 * known.y + codes
    base = splits.network(data, quick=quick, states=states, seed=seed)
    train, learning = rows.train, rows.validation
    arrays: dict[str, Any] = {}
    if way == "cross-fitted":
        train = learning = np.concatenate([rows.train, rows.validation])
        folds = StratifiedKFold(splits.FOLDS, shuffle=True, random_state=seed)
        parts = list(folds.split(learning, known.y[learning]))
    for name, target in targets.items():
        model = clone(base).fit(known.X[train], target[train])
        if way == "cross-fitted":
            X = known.X[learning]
            arrays[f"learn {name}"] = cross_val_predict(base, X, target[learning], cv=parts, method="predict_proba")
        else:
            arrays[f"learn {name}"] = model.predict_proba(known.X[learning])
        arrays[f"test {name}"] = model.predict_proba(known.X[rows.test])
    return Kept(arrays=arrays)


def learn(
    states: Path,
    needed: Sequence[Kept],
    *,
    data: str,
    criterion: str,
    seed: int,
    way: str,
    quick: bool,
    attributes: Sequence[str],
) -> Kept:
    """Learn the rule that meets the criterion in each of the attributes, and measure all attributes."""
    rows = splits.split(data, seed, quick=quick)
    learning = rows.validation if way == "hold-out" else np.concatenate([rows.train, rows.validation])
    parts = {"learn": learning, "test": rows.test}
    p_y = {part: needed[0].arrays[f"{part} y"][:, 1] for part in parts}
    p_group = {part: {name: _shaped(needed[0].arrays[f"{part} {name}"]) for name in attributes} for part in parts}
    groups = {name: splits.codes(data, name) for name in ATTRIBUTES[data]}
    y = splits.dataset(data).y
    found = eh.frontier(
        y[learning],
        {name: groups[name][learning] for name in attributes},
        p_y["learn"],
        p_group["learn"],
        criterion=criterion,
        tolerances=PAPER_TOLERANCES,
        search=eh.Certified(max_seconds=_seconds(criterion, attributes, quick=quick), n_jobs=1),
        random_state=seed,
    )
    rules: dict[float | None, Any] = {None: None, **dict.fromkeys(PAPER_TOLERANCES)}
    rules |= {point.tolerance: point.rule for point in found}
    labels = {"data": data, "criterion": criterion, "seed": seed, "way": way, "constrained": " and ".join(attributes)}
    records = []
    for delta, rule in rules.items():
        record: Record = {**labels, "delta": delta, "accuracy": None, "gap": None}
        if delta is None or rule is not None:
            for part, at in parts.items():
                decided = p_y[part] > 0.5 if rule is None else rule.decide(p_y[part], p_group[part])
                prefix = "" if part == "test" else "learn_"
                record |= _measured(
                    y[at], decided, {name: codes[at] for name, codes in groups.items()}, criterion, prefix
                )
        if rule is not None:
            record["proven_gap"] = splits.proven_gap(rule)
        records.append(record)
    return Kept(records)


def _seconds(criterion: str, attributes: Sequence[str], *, quick: bool) -> float | None:
    """Return the search's budget: up to K = 2 it needs none."""
    if len(attributes) == 1 or criterion == "dp":
        return None
    return 0.5 if quick else SECONDS


def _shaped(p: Any) -> Any:
    return p if p.shape[1] == 2 else p.reshape(-1, 2, 2)


def _measured(y: Any, decided: Any, groups: Mapping[str, Any], criterion: str, prefix: str) -> Record:
    """Return accuracy, the gap in each attribute, and the largest."""
    gaps = {name: float(GAPS[criterion](y, decided, sensitive_features=codes)) for name, codes in groups.items()}
    by_place = {f"{prefix}gap {place}": gap for place, gap in enumerate(gaps.values(), start=1)}
    return {f"{prefix}accuracy": float(np.mean(decided == y)), f"{prefix}gap": max(gaps.values()), **by_place}


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return one table for each data set and criterion, and the trade-offs in the larger of the two gaps."""
    records = [record for found in kept.values() for record in found.records]
    tables, figures = [], []
    for (data, criterion), mine in grouped(records, "data", "criterion").items():
        tables.append(_table(str(data), str(criterion), mine))
        chart = _chart(mine, GAP_NAMES[str(criterion)])
        title = f"Two attributes at once on {TITLES[str(data)]}, {GAP_NAMES[str(criterion)]}"
        figures.append(Figure(f"{data}-{criterion}", title, chart))
    notes = [
        f"{settings.seeds} seeds, mean ± standard error, in %. 'proven' is how much better a rule of this family could"
        " be on the rows it was learnt on, at most, in points of accuracy (mean; 0 is a proven optimum, – that nothing"
        " is proven)."
    ]
    return Report("two sensitive attributes at once", tables, figures, notes)


def _table(data: str, criterion: str, records: Sequence[Record]) -> Table:
    gap, (first, second) = GAP_NAMES[criterion], ATTRIBUTES[data]
    rows: list[list[Cell]] = []
    for (way, constrained, delta), found in grouped(records, "way", "constrained", "delta").items():
        if delta is None and constrained != f"{first} and {second}":
            continue
        proven = Estimate.of(100.0 * row["proven_gap"] for row in found if row.get("proven_gap") is not None)
        within = [row for row in found if row["accuracy"] is not None]
        rows.append(
            [
                str(way),
                "nothing" if delta is None else str(constrained),
                delta_text(found[0]["delta"]),
                percent(found, "accuracy"),
                percent(found, "gap 1"),
                percent(found, "gap 2"),
                percent(found, "gap"),
                None if proven.n == 0 else proven.mean,
                f"{len(within)}/{len(found)}",
            ]
        )
    heads = (
        "rows",
        "constrained",
        "δ",
        "test accuracy",
        f"test {gap} in {first}",
        f"test {gap} in {second}",
        "larger",
        "proven",
        "rules",
    )
    k = {"dp": 2, "eo": 4}[criterion]
    return Table(f"{data}-{criterion}", f"{TITLES[data]}, {gap} in {first} and in {second}: K = {k}", heads, rows)


def _chart(records: Sequence[Record], gap: str) -> Any:
    points = []
    for (way, constrained, _), found in grouped(records, "way", "constrained", "delta").items():
        if any(row["accuracy"] is None for row in found):
            continue
        across, up = percent(found, "gap"), percent(found, "accuracy")
        points.append(
            {
                "panel": str(way),
                "method": f"{constrained} constrained",
                "order": 2.0 if found[0]["delta"] is None else found[0]["delta"],
                "gap": across.mean,
                "gap_error": across.error,
                "accuracy": up.mean,
                "accuracy_error": up.error,
            }
        )
    return tradeoff(points, f"larger test {gap} of the two", PAPER_TOLERANCES)
