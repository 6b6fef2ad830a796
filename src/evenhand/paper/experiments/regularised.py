"""Figure 5: p(A|x) trained with ever stronger weight decay, DP. Adult (which the paper lacks), and CelebA if given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.paper.experiments import ablation, images, splits
from evenhand.paper.experiments.charts import curves
from evenhand.paper.experiments.results import Cell, Estimate, Figure, Report, Table, delta_text, grouped, percent
from evenhand.paper.experiments.running import Kept, Record, Unit
from evenhand.paper.experiments.settings import Settings
from evenhand.paper.experiments.splits import PAPER_TOLERANCES, Rows, learn_and_measure

DECAYS = (0.001, 0.003, 0.01, 0.03, 0.1)


def units(name: str, settings: Settings) -> list[Unit]:
    """Return the training of p(Y|x), and for each weight decay that of p(A|x) and its rules."""
    made = []
    decays = DECAYS[::4] if settings.quick else DECAYS
    for data in ablation.data_sets(settings):
        for seed in settings.seed_numbers:
            trained = ablation.training(data, seed, settings)
            base = trained[0]
            made.append(base)
            for decay in decays:
                start = f"{data}, seed {seed}, decay {decay:g}"
                found = {**ablation.where(data, settings), "seed": seed, "decay": decay}
                if data == "adult":
                    group = Unit(f"{start}: p(A|x)", train_group, found)
                else:
                    options = {**trained[1].options, "weight_decay": decay}
                    group = Unit(f"{start}: p(A|x)", images.train, options, aside=trained[1].aside)
                made += [group, Unit(f"{start}: MBS", modify, found, (base.name, group.name))]
    return made


def train_group(states: Path, needed: Sequence[Kept], *, data: str, seed: int, quick: bool, decay: float) -> Kept:
    """Train p(A|x) on Adult with a weight decay."""
    rows, known = splits.split(data, seed, quick=quick), splits.dataset(data)
    model = splits.network(data, quick=quick, states=states, seed=seed, weight_decay=decay)
    model.fit(known.X[rows.train], splits.codes(data)[rows.train])
    parts = {"validation": rows.validation, "test": rows.test}
    return Kept(arrays={part: model.predict_proba(known.X[at]) for part, at in parts.items()})


def modify(states: Path, needed: Sequence[Kept], *, data: str, seed: int, decay: float, **where: Any) -> Kept:
    """Learn the rules with the regularised p(A|x)."""
    group = needed[1].arrays
    learn, test, priors = ablation.probabilities(data, needed, seed=seed, **where)
    learn = Rows(learn.y, learn.group, learn.p_y, group["validation"])
    test = Rows(test.y, test.group, test.p_y, group["test"])
    accuracy = float(np.mean((test.p_group[:, 1] > 0.5) == test.group))
    found = learn_and_measure(learn, test, "dp", priors=priors, tolerances=PAPER_TOLERANCES)
    labels = {"data": data, "seed": seed, "decay": decay, "group accuracy": accuracy}
    return Kept([labels | record for record in found])


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return the accuracy of A, that of the decisions, and DP, against the weight decay."""
    records = [record for found in kept.values() for record in found.records]
    tables, figures = [], []
    for (data,), mine in grouped(records, "data").items():
        title = ablation.TITLES[str(data)]
        tables.append(_table(str(data), title, mine))
        figures.append(
            Figure(str(data), f"Accuracy and DP against the weight decay of p(A|x) on {title}", _chart(mine))
        )
    notes = [f"{settings.seeds} seeds, mean ± standard error, in %.", *ablation.notes(kept, settings)]
    return Report("MBS with a regularised p(A|x)", tables, figures, notes)


def _table(data: str, title: str, records: Sequence[Record]) -> Table:
    rows: list[list[Cell]] = []
    heads = ["λ", "accuracy of A"]
    for (decay,), at_decay in grouped(records, "decay").items():
        by_delta = grouped(at_decay, "delta")
        cells: list[Cell] = [f"{decay:g}", percent(by_delta[(None,)], "group accuracy")]
        for found in by_delta.values():
            cells += [percent(found, "accuracy"), percent(found, "gap")]
            if len(rows) == 0:
                heads += [f"{what}, δ = {delta_text(found[0]['delta'])}" for what in ("accuracy", "DP")]
        rows.append(cells)
    return Table(data, f"Test accuracy and DP on {title}", heads, rows)


def _chart(records: Sequence[Record]) -> Any:
    panels = {"accuracy of A, %": "group accuracy", "test accuracy, %": "accuracy", "test DP, %": "gap"}
    rows = []
    for (delta, decay), found in grouped(records, "delta", "decay").items():
        for panel, value in panels.items():
            if value == "group accuracy" and delta is not None:
                continue
            series = "p(A|x)" if value == "group accuracy" else f"δ = {delta_text(found[0]['delta'])}"
            estimate: Estimate = percent(found, value)
            rows.append({"panel": panel, "series": series, "x": decay, "y": estimate.mean, "error": estimate.error})
    return curves(rows, x="weight decay λ", panels=list(panels), log_x=True, x_format="~g")
