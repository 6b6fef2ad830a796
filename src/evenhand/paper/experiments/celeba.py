"""Table 1 and Tables 3 to 8: EO on CelebA, six tasks, validation and test, beside the paper's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
from evenhand.paper.experiments import images, splits
from evenhand.paper.experiments.published import CELEBA, TABLE_1
from evenhand.paper.experiments.results import Cell, Report, Table, delta_text, grouped, percent
from evenhand.paper.experiments.running import Kept, Record, Settings, Unit
from evenhand.paper.experiments.splits import PAPER_TOLERANCES, measured

SEARCHES: dict[str, Any] = {
    "MBS (Algorithm 2)": eh.Lines(m=images.LINES),
    "MBS (Algorithm 3)": eh.Directions(n=360),
    "MBS (certified)": "certified",
}
PAPERS_OWN = "MBS (Algorithm 2)"
FIRST_TABLE = 3


def units(name: str, settings: Settings) -> list[Unit]:
    """Return, for each task and seed, the training, the searches, H16 and P22."""
    made = []
    for target, sensitive in CELEBA:
        for seed in settings.seed_numbers:
            common = {"target": target, "sensitive": sensitive, "seed": seed}
            start = f"{target}, {sensitive}, seed {seed}"
            on_images = {**common, **images.options_of(settings)}
            trained = f"{start}: ResNet-18"
            made.append(Unit(trained, images.train, {**on_images, "learns": "cell"}))
            made.append(Unit(f"{start}: P22", contrast, on_images))
            plain = {**common, "directory": str(settings.data), "quick": settings.quick}
            for method in (*SEARCHES, "H16"):
                made.append(Unit(f"{start}: {method}", modify, {**plain, "method": method}, (trained,)))
    return made


def modify(states: Path, needed: Sequence[Kept], *, method: str, seed: int, **where: Any) -> Kept:
    """Learn MBS at each tolerance, or H16, on the validation rows."""
    parts = []
    for part in images.PARTS[1:]:
        p = needed[0].arrays[part]
        parts.append(images.rows_of(part, p[:, 2] + p[:, 3], p.reshape(-1, 2, 2), **where))
    learn, test = parts
    if method == "H16":
        from evenhand.paper.baselines import GroupThresholds

        model = GroupThresholds(splits.frozen_scores(), criterion="equalized_odds", random_state=seed)
        model.fit(learn.p_y[:, None], learn.y, sensitive_features=learn.group)
        decided = [model.predict(rows.p_y[:, None], sensitive_features=rows.group) for rows in parts]
        found = [measured(learn, test, "eo", 0.0, *decided)]
    else:
        priors = needed[0].arrays["priors"].reshape(2, 2)
        found = splits.learn_and_measure(
            learn, test, "eo", priors=priors, search=SEARCHES[method], tolerances=PAPER_TOLERANCES, seed=seed
        )
    labels = {"target": where["target"], "sensitive": where["sensitive"], "seed": seed, "method": method}
    return Kept([labels | record for record in found])


def contrast(
    states: Path, needed: Sequence[Kept], *, seed: int, quick: bool, weights: str, device: str, **where: Any
) -> Kept:
    """Train P22: the contrastive encoder from random parameters, as its authors do, then a linear output."""
    from evenhand.paper.baselines import FairContrastive

    data = images.load(**where)
    train, validation, test = images.parts(**where, quick=quick)
    base = images.network(states, seed=seed, quick=quick, weights=weights, device=device).set_params(weights=None)
    few: dict[str, Any] = {"epochs": 1, "output_epochs": 1, "batch_size": 32} if quick else {}
    model = FairContrastive(base, checkpoint=base.checkpoint, random_state=seed, **few)
    model.fit(data.X[train], data.y[train], sensitive_features=images.groups(data)[train])
    parts = [splits.Rows(data.y[at], images.groups(data)[at], np.empty(0), np.empty(0)) for at in (validation, test)]
    decided = [model.predict(data.X[at]) for at in (validation, test)]
    labels = {"target": where["target"], "sensitive": where["sensitive"], "seed": seed, "method": "P22"}
    return Kept([labels | measured(parts[0], parts[1], "eo", None, *decided)])


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return the paper's seven tables, each number beside the paper's."""
    records = [record for found in kept.values() for record in found.records]
    tables = [_table_1(records)]
    for number, (task, found) in enumerate(grouped(records, "target", "sensitive").items(), start=FIRST_TABLE):
        target, sensitive = map(str, task)
        tables.append(_task_table(number, target, sensitive, found))
    notes = [
        images.rows_note(kept),
        f"{settings.seeds} seeds, mean ± standard error, in %. The paper's MBS is Algorithm 2 with M = 5,000.",
    ]
    return Report("accuracy and EO on CelebA", tables, notes=notes)


def _label(record: Record) -> str:
    """Return the paper's name of a row: the tolerance, or the baseline."""
    return str(record["method"]) if record["method"] in ("H16", "P22") else delta_text(record["delta"])


def _table_1(records: Sequence[Record]) -> Table:
    rows: list[list[Cell]] = []
    chosen = [{**row, "label": _label(row)} for row in records if row["method"] in (PAPERS_OWN, "H16", "P22")]
    order = list(next(iter(TABLE_1.values())))
    for (target, sensitive, label), found in sorted(
        grouped(chosen, "target", "sensitive", "label").items(),
        key=lambda item: (list(TABLE_1).index((item[0][0], item[0][1])), order.index(str(item[0][2]))),  # type: ignore[arg-type]
    ):
        accuracy, gap = TABLE_1[str(target), str(sensitive)][str(label)]
        rows.append(
            [f"{target}, {sensitive}", str(label), percent(found, "accuracy"), accuracy, percent(found, "gap"), gap]
        )
    heads = ("task", "δ or baseline", "accuracy", "paper's accuracy", "EO", "paper's EO")
    return Table("table-1", "Table 1: test accuracy and EO", heads, rows, digits=1)


def _task_table(number: int, target: str, sensitive: str, records: Sequence[Record]) -> Table:
    rows: list[list[Cell]] = []
    labelled = [{**row, "label": _label(row)} for row in records]
    for part, prefix in (("validation", "learn_"), ("test", "")):
        for (method, label), found in grouped(labelled, "method", "label").items():
            printed = CELEBA[target, sensitive][part].get(str(label))
            theirs: list[Cell] = [None, None]
            if printed is not None and method in (PAPERS_OWN, "H16", "P22"):
                theirs = [f"{mean} ± {error}" for mean, error in printed]
            accuracy, gap = percent(found, f"{prefix}accuracy"), percent(found, f"{prefix}gap")
            rows.append([part, str(method), str(label), accuracy, theirs[0], gap, theirs[1]])
    heads = ("part", "method", "δ or baseline", "accuracy", "paper's accuracy", "EO", "paper's EO")
    return Table(f"table-{number}", f"Table {number}: target {target}, sensitive {sensitive}", heads, rows, digits=1)
