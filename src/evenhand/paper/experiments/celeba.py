"""Table 1 and Tables 3 to 8: EO on CelebA, six tasks, validation and test, beside the paper's own numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
from evenhand.errors import InputError
from evenhand.paper.experiments import images, splits
from evenhand.paper.experiments.published import CELEBA, TABLE_1
from evenhand.paper.experiments.results import Cell, Estimate, Report, Table, delta_text, grouped, percent
from evenhand.paper.experiments.running import Kept, Record, Unit
from evenhand.paper.experiments.settings import Settings
from evenhand.paper.experiments.splits import PAPER_TOLERANCES, measured

SEARCHES: dict[str, Any] = {
    "MBS (Algorithm 2)": eh.Lines(m=images.LINES),
    "MBS (Algorithm 3)": eh.Directions(n=360),
    "MBS (certified)": "certified",
}
PAPERS_OWN = "MBS (Algorithm 2)"
BASELINES = ("H16", "P22")
SHORT = {"Attractive": "a", "Big_Nose": "b", "Bags_Under_Eyes": "e", "Male": "m", "Young": "y"}
FIRST_TABLE = 3


def tasks_of(settings: Settings) -> list[tuple[str, str]]:
    """Return the requested tasks, in the paper's order."""
    known = {f"{target}/{sensitive}": (target, sensitive) for target, sensitive in CELEBA}
    for name in settings.images.tasks:
        if name not in known:
            raise InputError(f"--tasks {name}: the tasks are {', '.join(known)}.")
    return [task for name, task in known.items() if name in (settings.images.tasks or known)]


def units(name: str, settings: Settings) -> list[Unit]:
    """Return, for each task and seed, the training, the searches and H16; then P22, the slowest."""
    for method in settings.images.without:
        if method not in BASELINES:
            raise InputError(f"--without {method}: the baselines are {', '.join(BASELINES)}.")
    made, tasks, aside = [], tasks_of(settings), images.running_of(settings)
    chosen = [method for method in (*SEARCHES, "H16") if method not in settings.images.without]
    for stage, (target, sensitive) in enumerate(tasks):
        for seed in settings.seed_numbers:
            common = {"target": target, "sensitive": sensitive, "seed": seed}
            start = f"{target}, {sensitive}, seed {seed}"
            on_images = {**common, **images.options_of(settings)}
            trained = f"{start}: ResNet-18"
            made.append(Unit(trained, images.train, {**on_images, "learns": "cell"}, aside=aside, stage=stage))
            plain = {**common, **images.where(settings)}
            for method in chosen:
                options = {**plain, "method": method}
                made.append(Unit(f"{start}: {method}", modify, options, (trained,), stage=stage))
            if "P22" not in settings.images.without:
                last = len(tasks) + stage
                asked = {} if settings.images.epochs is None else {"epochs": settings.images.epochs}
                made.append(Unit(f"{start}: P22", contrast, on_images | asked, aside=aside, stage=last))
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
    states: Path,
    needed: Sequence[Kept],
    *,
    seed: int,
    quick: bool,
    training: Mapping[str, Any],
    running: Mapping[str, Any],
    epochs: int | None = None,
    **where: Any,
) -> Kept:
    """Train P22: the contrastive encoder from random parameters, as its authors do, then a linear output."""
    from evenhand.paper.baselines import FairContrastive

    data = images.load(**where)
    train, validation, test = images.parts(**where, quick=quick)
    base = images.network(states, seed=seed, quick=quick, training=training, running=running, weights=None)
    asked: dict[str, Any] = {"epochs": epochs} if epochs is not None else {}
    if quick:
        asked = {"epochs": 1, "output_epochs": 1, "batch_size": 32}
    model = FairContrastive(base, checkpoint=base.checkpoint, random_state=seed, verbose=running["verbose"], **asked)
    model.fit(data.X[train], data.y[train], sensitive_features=images.groups(data)[train])
    parts = [splits.Rows(data.y[at], images.groups(data)[at], np.empty(0), np.empty(0)) for at in (validation, test)]
    decided = [model.predict(data.X[at]) for at in (validation, test)]
    labels = {"target": where["target"], "sensitive": where["sensitive"], "seed": seed, "method": "P22"}
    return Kept([labels | measured(parts[0], parts[1], "eo", None, *decided)])


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return Table 1 as the paper lays it out, and all seven tables with each number beside the paper's."""
    records = [record for found in kept.values() for record in found.records]
    layout = _paper_layout(records)
    tables = [layout, _table_1(records)]
    order = list(CELEBA)
    for task, found in grouped(records, "target", "sensitive").items():
        target, sensitive = map(str, task)
        tables.append(_task_table(FIRST_TABLE + order.index((target, sensitive)), target, sensitive, found))
    notes = [
        images.rows_note(kept),
        images.start_note(settings),
        f"{settings.seeds} seeds, mean ± standard error, in %. The paper's MBS is Algorithm 2 with M = 5,000.",
    ]
    if missing := len(units(name, settings)) - len(kept):
        notes.append(f"INCOMPLETE: {missing} of {missing + len(kept)} pieces are still to be computed.")
    return Report("accuracy and EO on CelebA", tables, notes=notes, texts={"table-1.tex": _latex(layout)})


def _label(record: Record) -> str:
    """Return the paper's name of a row: the tolerance, or the baseline."""
    return str(record["method"]) if record["method"] in BASELINES else delta_text(record["delta"])


def _paper_layout(records: Sequence[Record]) -> Table:
    """Return Table 1 in the paper's layout: a row for each tolerance and baseline, two columns for each task."""
    chosen = [{**row, "label": _label(row)} for row in records if row["method"] in (PAPERS_OWN, *BASELINES)]
    found = grouped(chosen, "target", "sensitive", "label")
    tasks = [task for task in TABLE_1 if any(key[:2] == task for key in found)]
    rows: list[list[Cell]] = []
    for label in next(iter(TABLE_1.values())):
        cells = [found.get((*task, label), []) for task in tasks]
        if any(cells):
            rows.append([label, *(percent(rows, name) for rows in cells for name in ("accuracy", "gap"))])
    heads = ["δ", *(f"{SHORT[target]}, {SHORT[group]}: {what}" for target, group in tasks for what in ("ACC", "EO"))]
    return Table("table-1", "Table 1 as the paper lays it out: test accuracy and EO", heads, rows, digits=1)


def _latex(table: Table) -> str:
    """Return Table 1 in LaTeX; bold where MBS is better than P22 in accuracy and in EO, as in the paper."""
    tasks = [head.partition(":")[0] for head in table.heads[1::2]]
    p22 = next((row for row in table.rows if row[0] == "P22"), None)
    lines = [
        f"\\begin{{tabular}}{{c{' c c' * len(tasks)}}}",
        "\\hline",
        " & ".join(["", *(f"\\multicolumn{{2}}{{c}}{{({task})}}" for task in tasks)]) + " \\\\",
        " & ".join(["$\\delta$", *(["ACC", "EO"] * len(tasks))]) + " \\\\",
        "\\hline",
    ]
    for row in table.rows:
        cells = ["$\\infty$" if row[0] == "∞" else str(row[0])]
        for k in range(1, len(row), 2):
            pair = [cell.text(1) if isinstance(cell, Estimate) else str(cell) for cell in row[k : k + 2]]
            pair = [text.replace("±", "$\\pm$").replace("–", "--") for text in pair]
            if row[0] not in BASELINES and p22 is not None and _better(row[k : k + 2], p22[k : k + 2]):
                pair = [f"\\textbf{{{text}}}" for text in pair]
            cells += pair
        lines.append(" & ".join(cells) + " \\\\")
    return "\n".join([*lines, "\\hline", "\\end{tabular}", ""])


def _better(ours: Sequence[Cell], theirs: Sequence[Cell]) -> bool:
    """Return whether the accuracy is higher and the EO lower."""
    values = [cell.mean if isinstance(cell, Estimate) else math.nan for cell in (*ours, *theirs)]
    return values[0] > values[2] and values[1] < values[3]


def _table_1(records: Sequence[Record]) -> Table:
    rows: list[list[Cell]] = []
    chosen = [{**row, "label": _label(row)} for row in records if row["method"] in (PAPERS_OWN, *BASELINES)]
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
    return Table("table-1-beside", "Table 1 beside the paper's numbers", heads, rows, digits=1)


def _task_table(number: int, target: str, sensitive: str, records: Sequence[Record]) -> Table:
    rows: list[list[Cell]] = []
    labelled = [{**row, "label": _label(row)} for row in records]
    for part, prefix in (("validation", "learn_"), ("test", "")):
        for (method, label), found in grouped(labelled, "method", "label").items():
            printed = CELEBA[target, sensitive][part].get(str(label))
            theirs: list[Cell] = [None, None]
            if printed is not None and method in (PAPERS_OWN, *BASELINES):
                theirs = [f"{mean} ± {error}" for mean, error in printed]
            accuracy, gap = percent(found, f"{prefix}accuracy"), percent(found, f"{prefix}gap")
            rows.append([part, str(method), str(label), accuracy, theirs[0], gap, theirs[1]])
    heads = ("part", "method", "δ or baseline", "accuracy", "paper's accuracy", "EO", "paper's EO")
    return Table(f"table-{number}", f"Table {number}: target {target}, sensitive {sensitive}", heads, rows, digits=1)
