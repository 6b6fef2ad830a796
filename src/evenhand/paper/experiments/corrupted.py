"""Figures 3 and 4: noise Unif(-a, 2a) on p(Y|x) and p(A|x), DP. Adult, and CelebA where its directory is given.

Each probability of each row gets its own draw, on validation and test rows alike, and is clipped to [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.paper.experiments import ablation
from evenhand.paper.experiments.charts import curves
from evenhand.paper.experiments.results import Cell, Figure, Report, Table, delta_text, grouped, percent
from evenhand.paper.experiments.running import Kept, Record, Unit
from evenhand.paper.experiments.settings import Settings
from evenhand.paper.experiments.splits import PAPER_TOLERANCES, FloatArray, Rows, learn_and_measure

NOISES = tuple(round(0.01 * k, 2) for k in range(11))


def units(name: str, settings: Settings) -> list[Unit]:
    """Return the trainings, and one unit for each intensity of the noise."""
    made = []
    noises = NOISES[::5] if settings.quick else NOISES
    for data in ablation.data_sets(settings):
        for seed in settings.seed_numbers:
            trained = ablation.training(data, seed, settings)
            made += trained
            needs = tuple(unit.name for unit in trained)
            for noise in noises:
                options = {**ablation.where(data, settings), "seed": seed, "noise": noise}
                made.append(Unit(f"{data}, seed {seed}: noise {noise:g}", corrupt, options, needs))
    return made


def corrupt(states: Path, needed: Sequence[Kept], *, data: str, seed: int, noise: float, **where: Any) -> Kept:
    """Disturb the probabilities, and learn and test the rules with them."""
    learn, test, priors = ablation.probabilities(data, needed, seed=seed, **where)
    rng = np.random.default_rng([seed, round(1000 * noise)])
    learn, test = _disturbed(learn, noise, rng), _disturbed(test, noise, rng)
    found = learn_and_measure(learn, test, "dp", priors=priors, tolerances=PAPER_TOLERANCES)
    return Kept([{"data": data, "seed": seed, "noise": noise, **record} for record in found])


def _disturbed(rows: Rows, noise: float, rng: np.random.Generator) -> Rows:
    def added(p: FloatArray) -> FloatArray:
        return np.clip(p + rng.uniform(-noise, 2.0 * noise, size=len(p)), 0.0, 1.0)

    one = added(rows.p_group[:, 1])
    return Rows(rows.y, rows.group, added(rows.p_y), np.column_stack([1.0 - one, one]))


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return accuracy and DP against the noise, for each tolerance."""
    records = [record for found in kept.values() for record in found.records]
    tables, figures = [], []
    for (data,), mine in grouped(records, "data").items():
        tables.append(_table(str(data), mine))
        chart = _chart(mine)
        figures.append(Figure(str(data), f"Accuracy and DP against the noise on {ablation.TITLES[str(data)]}", chart))
    notes = [f"{settings.seeds} seeds, mean ± standard error, in %.", *ablation.notes(kept, settings)]
    return Report("MBS on corrupted probabilities", tables, figures, notes)


def _table(data: str, records: Sequence[Record]) -> Table:
    rows: list[list[Cell]] = []
    by_noise = grouped(records, "noise")
    for (noise,), at_noise in by_noise.items():
        cells: list[Cell] = [f"{noise:g}"]
        for found in grouped(at_noise, "delta").values():
            cells += [percent(found, "accuracy"), percent(found, "gap")]
        rows.append(cells)
    deltas = [delta_text(row["delta"]) for row in next(iter(by_noise.values()))[: 1 + len(PAPER_TOLERANCES)]]
    heads = ["α", *(f"{what}, δ = {delta}" for delta in deltas for what in ("accuracy", "DP"))]
    return Table(data, f"Test accuracy and DP on {ablation.TITLES[data]}", heads, rows)


def _chart(records: Sequence[Record]) -> Any:
    rows = []
    for (_, noise), found in grouped(records, "delta", "noise").items():
        series = f"δ = {delta_text(found[0]['delta'])}"
        for panel, value in (("test accuracy, %", "accuracy"), ("test DP, %", "gap")):
            estimate = percent(found, value)
            rows.append({"panel": panel, "series": series, "x": noise, "y": estimate.mean, "error": estimate.error})
    return curves(rows, x="noise α", panels=("test accuracy, %", "test DP, %"))
