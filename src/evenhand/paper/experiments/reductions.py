"""Figure 6: MBS against Agarwal et al. (2018) on Adult, DP and EO, with the same network.

The reductions train the network once or twice in each of up to 15 steps and answer with a random mixture of the
trained networks. Their decisions are drawn once for the test rows, as a user would. Under EO p(Y|x) has a network
of its own here, as the reductions' networks learn nothing but Y.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.paper.experiments import splits
from evenhand.paper.experiments.charts import tradeoff
from evenhand.paper.experiments.results import Cell, Estimate, Figure, Report, Table, accuracy_at_gap, grouped, percent
from evenhand.paper.experiments.results import delta_text as shown
from evenhand.paper.experiments.running import Kept, Record, Unit
from evenhand.paper.experiments.settings import Settings
from evenhand.paper.experiments.splits import GAP_NAMES, PAPER_TOLERANCES

STEPS = 15
WAYS = {"hold-out": splits.train_holdout, "ensemble": splits.train_crossfit}
NAMES = {"hold-out": "MBS", "ensemble": "MBS, cross-fitted, ensemble"}


def units(name: str, settings: Settings) -> list[Unit]:
    """Return, for each criterion and seed, MBS in both ways and the reductions at each tolerance."""
    made = []
    for criterion in GAP_NAMES:
        for seed in settings.seed_numbers:
            common = {"data": "adult", "criterion": criterion, "seed": seed, "quick": settings.quick}
            start = f"{GAP_NAMES[criterion]}, seed {seed}"
            for way, work in WAYS.items():
                trained = Unit(f"{start}: models, {way}", work, common)
                made += [trained, Unit(f"{start}: {NAMES[way]}", learn, {**common, "way": way}, (trained.name,))]
            for delta in PAPER_TOLERANCES[:1] if settings.quick else PAPER_TOLERANCES:
                made.append(Unit(f"{start}: reductions, {delta:g}", reduce, {**common, "delta": delta}))
    return made


def learn(states: Path, needed: Sequence[Kept], *, way: str, **common: Any) -> Kept:
    """Learn MBS at every tolerance."""
    learning, test = splits.read_rows(needed[0], way=way, own=True, **common)
    found = splits.learn_and_measure(learning, test, common["criterion"], priors=needed[0].arrays["priors"])
    return Kept([{"method": NAMES[way], "seed": common["seed"], **record} for record in found])


def reduce(
    states: Path, needed: Sequence[Kept], *, data: str, criterion: str, seed: int, quick: bool, delta: float
) -> Kept:
    """Train the mixture of networks on the training rows."""
    from evenhand.paper.baselines import Reductions

    rows, known = splits.split(data, seed, quick=quick), splits.dataset(data)
    base = splits.network(data, quick=quick, states=states, seed=seed)
    steps = 3 if quick else STEPS
    model = Reductions(base, criterion=criterion, tolerance=delta, max_iter=steps, random_state=seed)
    model.fit(known.X[rows.train], known.y[rows.train], sensitive_features=splits.codes(data)[rows.train])
    test = splits.Rows(known.y[rows.test], splits.codes(data)[rows.test], np.empty(0), np.empty(0))
    record = splits.measured(None, test, criterion, delta, None, model.predict(known.X[rows.test]))
    return Kept([{"method": "Reductions", "seed": seed, **record}])


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return both trade-offs, and the difference at equal gaps."""
    records = [record for found in kept.values() for record in found.records]
    figures = [
        Figure(
            criterion,
            f"MBS and reductions on Adult, {gap}",
            _chart([r for r in records if r["criterion"] == criterion], gap),
        )
        for criterion, gap in GAP_NAMES.items()
    ]
    notes = [
        f"Adult, {settings.seeds} seeds, mean ± standard error, in %. The reductions take up to"
        f" {3 if settings.quick else STEPS} trainings for each tolerance; MBS takes one or two for all tolerances, and"
        " cross-fitting six times as many."
    ]
    return Report("MBS against reductions on Adult", [_table(records), _differences(records)], figures, notes)


def _table(records: Sequence[Record]) -> Table:
    rows: list[list[Cell]] = []
    chosen = [row for row in records if row["delta"] is None or row["delta"] in PAPER_TOLERANCES]
    for (criterion, method, _), found in grouped(chosen, "criterion", "method", "delta").items():
        label = shown(found[0]["delta"])
        rows.append([GAP_NAMES[str(criterion)], str(method), label, percent(found, "accuracy"), percent(found, "gap")])
    heads = ("criterion", "method", "δ", "test accuracy", "test gap")
    return Table("tradeoff", "Test accuracy and gap at the paper's tolerances", heads, rows)


def _differences(records: Sequence[Record]) -> Table:
    rows: list[list[Cell]] = []
    theirs = [row for row in records if row["method"] == "Reductions"]
    for (criterion, delta), found in grouped(theirs, "criterion", "delta").items():
        cells: list[Cell] = [GAP_NAMES[str(criterion)], shown(float(str(delta))), percent(found, "gap")]
        for name in NAMES.values():
            mine = [row for row in records if row["method"] == name and row["criterion"] == criterion]
            found_at = [
                100.0 * (accuracy_at_gap([p for p in mine if p["seed"] == row["seed"]], row["gap"]) - row["accuracy"])
                for row in found
            ]
            estimate = Estimate.of(found_at)
            cells += [estimate, f"{estimate.n}/{len(found)}"]
        rows.append(cells)
    heads = (
        "criterion",
        "δ of the reductions",
        "their test gap",
        "MBS − reductions",
        "seeds",
        "MBS, cross-fitted, ensemble − reductions",
        "seeds ",
    )
    title = "Test accuracy of MBS minus that of the reductions at the reductions' own test gap, in points"
    return Table("differences", title, heads, rows, signed=(heads[3], heads[5]))


def _chart(records: Sequence[Record], gap: str) -> Any:
    points = []
    for (method, _), found in grouped(records, "method", "delta").items():
        if any(row["accuracy"] is None for row in found):
            continue
        across, up = percent(found, "gap"), percent(found, "accuracy")
        points.append(
            {
                "panel": f"Adult, {gap}",
                "method": str(method),
                "order": 2.0 if found[0]["delta"] is None else found[0]["delta"],
                "gap": across.mean,
                "gap_error": across.error,
                "accuracy": up.mean,
                "accuracy_error": up.error,
            }
        )
    return tradeoff(points, f"test {gap}", PAPER_TOLERANCES)
