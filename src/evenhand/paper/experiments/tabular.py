"""Figure 2: accuracy against DP and EO on Adult and COMPAS.

Beyond the paper: the certified search beside Algorithms 2 and 3, cross-fitting on the same rows, MBS with A
known at test beside J19 and H16 (which see A), J19 at every tolerance, Z17 on a smooth stand-in for the rates
(``Z17 (rates)``), because its own covariance with the logit does not bound the decisions of a network, and MBS with
the very network that Z17 trains without a bound, because its output layer is solved exactly and others' are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
from evenhand.paper.experiments import splits
from evenhand.paper.experiments.charts import tradeoff
from evenhand.paper.experiments.results import (
    Cell,
    Estimate,
    Figure,
    Report,
    Table,
    accuracy_at_gap,
    delta_text,
    excess,
    grouped,
    mean_by,
    percent,
)
from evenhand.paper.experiments.running import Kept, Record, Unit
from evenhand.paper.experiments.settings import Settings
from evenhand.paper.experiments.splits import GAP_NAMES, PAPER_TOLERANCES

LINES = {"adult": 3000, "compas": 600}
DIRECTIONS = 360
Z17_SHARES = (0.5, 0.3, 0.15, 0.05)
Z17_EPOCHS = 15
Z17_DISTANCES = {"Z17": "logit", "Z17 (rates)": "probability"}
TITLES = {"adult": "Adult", "compas": "COMPAS"}
# Each way to learn: (rows, search, whether A is known at test, whether p(Y|x) is a separate network).
MBS = {
    "dp": {
        "MBS (Algorithm 1)": ("hold-out", "certified", False, False),
        "MBS, cross-fitted": ("cross-fitted", "certified", False, False),
        "MBS, cross-fitted, ensemble": ("ensemble", "certified", False, False),
        "MBS, A known": ("hold-out", "certified", True, False),
        "MBS, cross-fitted, A known": ("cross-fitted", "certified", True, False),
    },
    "eo": {
        "MBS (Algorithm 2)": ("hold-out", "lines", False, False),
        "MBS (Algorithm 3)": ("hold-out", "directions", False, False),
        "MBS (certified)": ("hold-out", "certified", False, False),
        "MBS, cross-fitted": ("cross-fitted", "certified", False, False),
        "MBS, cross-fitted, ensemble": ("ensemble", "certified", False, False),
        "MBS, own p(Y|x)": ("hold-out", "certified", False, True),
        "MBS, own p(Y|x), ensemble": ("ensemble", "certified", False, True),
        "MBS, A known": ("hold-out", "certified", True, False),
        "MBS, cross-fitted, A known": ("cross-fitted", "certified", True, False),
    },
}
# The paper's own method, which the others are compared with, and the two that are compared with Z17.
PAPERS_OWN = {"dp": "MBS (Algorithm 1)", "eo": "MBS (Algorithm 2)"}
SAME_NETWORK = "MBS on Z17's network"
# In the tables only: the figure has enough lines.
NOT_DRAWN = (SAME_NETWORK, "MBS (Algorithm 3)", "MBS, own p(Y|x), ensemble")
AGAINST_Z17 = {"dp": ("MBS (Algorithm 1)", SAME_NETWORK), "eo": ("MBS (Algorithm 2)", SAME_NETWORK)}


def units(name: str, settings: Settings) -> list[Unit]:
    """Return the trainings and the methods of each seed."""
    data, criterion = name.split("-")
    made = []
    for seed in settings.seed_numbers:
        common = {"data": data, "criterion": criterion, "seed": seed, "quick": settings.quick}
        trained = {way: f"seed {seed}: models, {way}" for way in ("hold-out", "cross-fitted")}
        made.append(Unit(trained["hold-out"], splits.train_holdout, common | settings.trained))
        made.append(Unit(trained["cross-fitted"], splits.train_crossfit, common | settings.trained))
        for method, (way, search, known, own) in MBS[criterion].items():
            options = {**common, "method": method, "way": way, "search": search, "known": known, "own": own}
            from_models = trained["hold-out" if way == "hold-out" else "cross-fitted"]
            made.append(Unit(f"seed {seed}: {method}", learn, options, (from_models,)))
        baseline = "J19" if criterion == "dp" else "H16"
        made.append(
            Unit(f"seed {seed}: {baseline}", post_process, {**common, "method": baseline}, (trained["hold-out"],))
        )
        for method, distance in Z17_DISTANCES.items():
            free = f"seed {seed}: {method}, no bound"
            options = {**common, "method": method, "distance": distance}
            made.append(Unit(free, constrain, options))
            for share in Z17_SHARES[:1] if settings.quick else Z17_SHARES:
                unit = f"seed {seed}: {method}, {share:g} of its covariance"
                made.append(Unit(unit, constrain, {**options, "share": share}, (free,)))
        both = (trained["hold-out"], f"seed {seed}: Z17, no bound")
        made.append(Unit(f"seed {seed}: {SAME_NETWORK}", learn_on_z17, common, both))
    return made


def learn(states: Path, needed: Sequence[Kept], *, method: str, search: str, known: bool, **options: Any) -> Kept:
    """Learn the paper's rule at every tolerance, by one of the searches."""
    learning, test = splits.read_rows(needed[0], **options)
    if known:
        learning, test = learning.with_known_groups(), test.with_known_groups()
    chosen: Any = search
    if search == "lines":
        chosen = eh.Lines(m=50 if options["quick"] else LINES[options["data"]])
    elif search == "directions":
        chosen = eh.Directions(n=DIRECTIONS)
    priors, seed = needed[0].arrays["priors"], options["seed"]
    found = splits.learn_and_measure(learning, test, options["criterion"], priors=priors, search=chosen, seed=seed)
    return Kept([{"method": method, "seed": seed, **record} for record in found])


def learn_on_z17(states: Path, needed: Sequence[Kept], **common: Any) -> Kept:
    """Learn the rule with p(Y|x) of the network that Z17 trains without a bound, so that both have the same start."""
    models, free = needed
    learning, test = splits.read_rows(models, way="hold-out", **common)
    learning, test = replace(learning, p_y=free.arrays["learn"]), replace(test, p_y=free.arrays["test"])
    found = splits.learn_and_measure(learning, test, common["criterion"], priors=models.arrays["priors"])
    return Kept([{"method": SAME_NETWORK, "seed": common["seed"], **record} for record in found])


def post_process(
    states: Path, needed: Sequence[Kept], *, method: str, data: str, criterion: str, seed: int, quick: bool
) -> Kept:
    """Run J19 at every tolerance and all the way, or H16, which has no tolerance. Both see A at test."""
    from evenhand.paper.baselines import GroupThresholds, WassersteinBarycentre

    learn, test = splits.read_rows(needed[0], data=data, criterion=criterion, seed=seed, quick=quick, way="hold-out")
    scores = splits.frozen_scores()
    fitted: list[tuple[float | None, Any]] = []
    if method == "H16":
        fitted.append((0.0, GroupThresholds(scores, criterion="equalized_odds", random_state=seed)))
    else:
        fitted.append((0.0, WassersteinBarycentre(scores)))
        fitted += [(tolerance, WassersteinBarycentre(scores, tolerance=tolerance)) for tolerance in PAPER_TOLERANCES]
    records = []
    for delta, model in fitted:
        decided: list[Any] = [None, None]
        try:
            model.fit(learn.p_y[:, None], learn.y, sensitive_features=learn.group)
            decided = [model.predict(rows.p_y[:, None], sensitive_features=rows.group) for rows in (learn, test)]
        except eh.InfeasibleError:
            pass
        records.append({"method": method, "seed": seed, **splits.measured(learn, test, criterion, delta, *decided)})
    return Kept(records)


def constrain(
    states: Path,
    needed: Sequence[Kept],
    *,
    method: str,
    distance: str,
    data: str,
    criterion: str,
    seed: int,
    quick: bool,
    share: float | None = None,
) -> Kept:
    """Train Z17 once: its bound is a share of the covariance that the network has without a bound."""
    from evenhand.paper.baselines import CovarianceBound

    rows, known = splits.split(data, seed, quick=quick), splits.dataset(data)
    base = splits.network(data, quick=quick, max_epochs=2 if quick else Z17_EPOCHS)
    bound = np.inf if share is None else share * needed[0].records[0]["covariance"]
    model = CovarianceBound(
        base, criterion=criterion, bound=bound, distance=distance, checkpoint=states, random_state=seed
    ).fit(known.X[rows.train], known.y[rows.train], sensitive_features=splits.codes(data)[rows.train])
    decided = model.predict(known.X[rows.test])
    test = splits.Rows(known.y[rows.test], splits.codes(data)[rows.test], np.empty(0), np.empty(0))
    record = splits.measured(None, test, criterion, None, None, decided)
    covariance = float(np.abs(model.covariance_).max())
    arrays = {}
    if share is None:
        parts = {"learn": rows.validation, "test": rows.test}
        arrays = {part: model.predict_proba(known.X[at])[:, 1] for part, at in parts.items()}
    return Kept([{"method": method, "seed": seed, **record, "share": share, "covariance": covariance}], arrays)


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return the trade-off, the comparison with Z17 at equal gaps, and what is above the tolerance."""
    data, criterion = name.split("-")
    # Without a bound the distance does not matter: one of the two rows is enough.
    records = [
        record
        for found in kept.values()
        for record in found.records
        if not (record["method"] == "Z17 (rates)" and record["share"] is None)
    ]
    gap = GAP_NAMES[criterion]
    tables = [_main_table(records, gap), _against_z17(records, gap, criterion), _excess_table(records, gap, criterion)]
    figures = [
        Figure(
            "figure-2", f"Accuracy against {gap} on {TITLES[data]}, as the paper draws it", _paper_chart(records, gap)
        ),
        Figure("tradeoff", f"Accuracy against {gap} on {TITLES[data]}, all methods", _chart(records, gap)),
    ]
    notes = [
        f"{TITLES[data]}, {settings.seeds} seeds, mean ± standard error. Accuracy and {gap} in %. 'rules' counts the"
        " seeds in which the method found a rule within δ on the rows it learns from; the others are not in the"
        " mean. 'A known' methods, J19 and H16 use the sensitive attribute at test; the others do not."
    ]
    return Report(f"accuracy against {gap} on {TITLES[data]}", tables, figures, notes)


def _setting(record: Record) -> str:
    """Return a text on a method's settings."""
    if record["method"].startswith("Z17"):
        return "no bound" if record["share"] is None else f"covariance x {record['share']:g}"
    if record["delta"] == 0.0:
        return "equal rates"
    return f"δ = {delta_text(record['delta'])}"


def _shown(records: Sequence[Record]) -> list[Record]:
    """Return the records at the paper's tolerances, and those of methods that have none."""
    return [row for row in records if row["delta"] is None or row["delta"] in (0.0, *PAPER_TOLERANCES)]


def _main_table(records: Sequence[Record], gap: str) -> Table:
    rows: list[list[Cell]] = []
    labelled = [{**row, "asked": _setting(row)} for row in _shown(records)]
    for (method, asked), found in grouped(labelled, "method", "asked").items():
        rules = sum(row["accuracy"] is not None for row in found)
        rows.append(
            [
                str(method),
                str(asked),
                percent(found, "accuracy"),
                percent(found, "gap"),
                percent(found, "learn_accuracy"),
                percent(found, "learn_gap"),
                f"{rules}/{len(found)}",
            ]
        )
    heads = ("method", "asked for", "test accuracy", f"test {gap}", "learning accuracy", f"learning {gap}", "rules")
    return Table("tradeoff", "Every method at the paper's tolerances", heads, rows)


def _against_z17(records: Sequence[Record], gap: str, criterion: str) -> Table:
    """Compare at equal test gaps: MBS, seed by seed, where Z17's training ended up."""
    rows: list[list[Cell]] = []
    others = [row for row in records if row["method"].startswith("Z17")]
    labelled = [{**row, "asked": _setting(row)} for row in others]
    for (method, asked), found in grouped(labelled, "method", "asked").items():
        cells: list[Cell] = [str(method), str(asked), percent(found, "gap"), percent(found, "accuracy")]
        for mine in AGAINST_Z17[criterion]:
            differences = []
            for row in found:
                points = [p for p in records if p["method"] == mine and p["seed"] == row["seed"]]
                differences.append(100.0 * (accuracy_at_gap(points, row["gap"]) - row["accuracy"]))
            estimate = Estimate.of(differences)
            cells += [estimate, f"{estimate.n}/{len(found)}"]
        rows.append(cells)
    heads = (
        "Z17",
        "bound",
        f"its test {gap}",
        "its test accuracy",
        f"{AGAINST_Z17[criterion][0]} − Z17",
        "seeds",
        f"{AGAINST_Z17[criterion][1]} − Z17",
        "seeds ",
    )
    title = (
        f"Test accuracy of MBS minus that of Z17 at Z17's own test {gap} (seeds where MBS reaches so small a {gap}),"
        " in points"
    )
    return Table("z17", title, heads, rows, signed=(heads[4], heads[6]))


def _excess_table(records: Sequence[Record], gap: str, criterion: str) -> Table:
    """Return by how much the test gap exceeds δ, and how much of that the other ways to learn remove."""
    rows: list[list[Cell]] = []
    reference = {
        delta: mean_by(found, excess).mean
        for (method, delta), found in grouped(_shown(records), "method", "delta").items()
        if method == PAPERS_OWN[criterion]
    }
    for (method, delta), found in grouped(_shown(records), "method", "delta").items():
        if not delta or not str(method).startswith("MBS"):
            continue
        mean = mean_by(found, lambda row: None if (e := excess(row)) is None else 100.0 * e)
        before = 100.0 * reference[delta]
        compared = mean.n > 0 and before > 0.0 and method != PAPERS_OWN[criterion]
        removed = f"{100.0 * (1.0 - mean.mean / before):.0f} %" if compared else None
        within = sum(row["gap"] is not None and row["gap"] <= row["delta"] for row in found)
        rows.append([str(method), delta_text(float(str(delta))), mean, f"{within}/{mean.n}", removed])
    heads = ("method", "δ", "excess over δ", f"seeds with test {gap} ≤ δ", f"removed of {PAPERS_OWN[criterion]}'s")
    return Table("excess", f"Excess of test {gap} over δ: the mean of max(0, {gap} − δ), in points", heads, rows)


def _paper_chart(records: Sequence[Record], gap: str) -> Any:
    """Return the paper's panel: MBS at its four tolerances, Z17, and the baseline that sees A."""
    drawn = ("MBS (Algorithm 1)", "MBS (Algorithm 2)", "Z17", "J19", "H16")
    return _tradeoff([row for row in _shown(records) if row["method"] in drawn], gap, lambda method: "")


def _chart(records: Sequence[Record], gap: str) -> Any:
    return _tradeoff([row for row in records if row["method"] not in NOT_DRAWN], gap, _panel)


def _tradeoff(records: Sequence[Record], gap: str, panel: Callable[[str], str]) -> Any:
    points = []
    labelled = [{**row, "asked": _setting(row)} for row in records]
    for (method, _), found in grouped(labelled, "method", "asked").items():
        if any(row["accuracy"] is None for row in found):
            continue
        across, up = percent(found, "gap"), percent(found, "accuracy")
        order = 2.0 if found[0]["delta"] is None else found[0]["delta"]
        if str(method).startswith("Z17"):
            order = 1.0 if found[0]["share"] is None else found[0]["share"]
        points.append(
            {
                "panel": panel(str(method)),
                "method": str(method),
                "order": order,
                "gap": across.mean,
                "gap_error": across.error,
                "accuracy": up.mean,
                "accuracy_error": up.error,
            }
        )
    return tradeoff(points, f"test {gap}", PAPER_TOLERANCES)


def _panel(method: str) -> str:
    seen = method in ("J19", "H16") or method.endswith("A known")
    return "A is known at test" if seen else "A is not known at test"
