"""Theorem 2, where the truth is known: excess over delta and loss of accuracy against N and against the error of p-hat.

The theorem bounds, with high probability over a validation set of N rows and for E|p-hat - p| <= eps,

    CC - delta            <=  C sqrt(log N / N)                          (whatever eps)
    Acc*(delta) - Acc     <=  C ( sqrt(eps) + sqrt(log N / N) )

Rules are judged in the population itself: expectations under the true p(Y, A | x) over 200,000 fresh points, so no
test label adds noise. Acc*(delta) is the best rule for these points under the true probabilities.

The validation sets are independent draws. The error of p-hat is normal noise on the logits of the four cells, drawn
for each point; its size eps is measured. The theorem's exponents are upper bounds: a steeper slope agrees with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evenhand as eh
from evenhand.paper.experiments.charts import curves
from evenhand.paper.experiments.results import Cell, Estimate, Figure, Report, Table, grouped
from evenhand.paper.experiments.running import Kept, Record, Unit
from evenhand.paper.experiments.settings import Settings

FloatArray = NDArray[np.float64]

DELTA = 0.05
SIZES = (250, 500, 1000, 2000, 4000, 8000, 16000, 32000)
NOISES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
ROWS_FOR_NOISE = 32000
REPEATS = 20
POPULATION = 200_000
CRITERIA = {"dp": "DP", "eo": "EO"}
HIGH = 90


def units(name: str, settings: Settings) -> list[Unit]:
    """Return, for each seed, criterion and size or noise, one unit of repeated validation sets."""
    quick = settings.quick
    sizes, noises = (SIZES[:3], NOISES[-2:]) if quick else (SIZES, NOISES)
    cases = [(n, 0.0) for n in sizes] + [(500 if quick else ROWS_FOR_NOISE, noise) for noise in noises]
    common = {"repeats": 3 if quick else REPEATS, "population": 5000 if quick else POPULATION}
    return [
        Unit(
            f"seed {seed}: {CRITERIA[criterion]}, {n} rows, noise {noise:g}",
            repeat,
            {"seed": seed, "criterion": criterion, "n": n, "noise": noise, **common},
        )
        for seed in settings.seed_numbers
        for criterion in CRITERIA
        for n, noise in cases
    ]


def repeat(
    states: Path,
    needed: Sequence[Kept],
    *,
    seed: int,
    criterion: str,
    n: int,
    noise: float,
    repeats: int,
    population: int,
) -> Kept:
    """Learn a rule on each of some validation sets, and judge it in the population."""
    points, best = _population(population, seed), _best_accuracy(population, seed, criterion)
    rng = np.random.default_rng([seed, n, round(1e6 * noise), len(criterion)])
    seen = _disturbed(points.p_joint, noise, rng)
    error = float(np.abs(seen - points.p_joint).sum(axis=(1, 2)).mean())
    records = []
    for number in range(repeats):
        rows = eh.datasets.make_zafar(n, random_state=rng, iid=True)
        p = _disturbed(rows.p_joint, noise, rng)
        record: Record = {
            "seed": seed,
            "repeat": number,
            "criterion": criterion,
            "n": n,
            "noise": noise,
            "error": error,
            "excess": None,
            "loss": None,
        }
        try:
            rule = eh.learn_rule(rows.y, rows.group, *_given(p, criterion), criterion=criterion, tolerance=DELTA)
        except eh.InfeasibleError:
            records.append(record)
            continue
        accuracy, gap = _judged(rule.decide(*_given(seen, criterion)), points.p_joint, criterion)
        record |= {"accuracy": accuracy, "gap": gap, "excess": gap - DELTA, "loss": best - accuracy}
        records.append(record)
    return Kept(records)


@cache
def _population(n: int, seed: int) -> Any:
    return eh.datasets.make_zafar(n, random_state=1_000_003 + seed, iid=True)


@cache
def _best_accuracy(n: int, seed: int, criterion: str) -> float:
    """Return Acc*(delta): the best rule in expectation, under the true probabilities of the population's points."""
    points = _population(n, seed)
    rule = eh.learn_rule(
        None, None, *_given(points.p_joint, criterion), criterion=criterion, tolerance=DELTA, evidence="model"
    )
    return _judged(rule.decide(*_given(points.p_joint, criterion)), points.p_joint, criterion)[0]


def _given(p: FloatArray, criterion: str) -> tuple[FloatArray, FloatArray]:
    return p[:, 1].sum(axis=1), p.sum(axis=1) if criterion == "dp" else p


def _disturbed(p: FloatArray, noise: float, rng: np.random.Generator) -> FloatArray:
    if noise == 0.0:
        return p
    moved = np.clip(p, 1e-12, None) * np.exp(noise * rng.standard_normal(p.shape))
    changed: FloatArray = moved / moved.sum(axis=(1, 2), keepdims=True)
    return changed


def _judged(decided: NDArray[Any], p: FloatArray, criterion: str) -> tuple[float, float]:
    """Return expected accuracy and gap of decisions under the true probabilities."""
    positive = decided.astype(float)
    p_y = p[:, 1].sum(axis=1)
    accuracy = float(np.mean(positive * p_y + (1.0 - positive) * (1.0 - p_y)))
    events = p.sum(axis=1)[:, None, :] if criterion == "dp" else p
    rates = np.einsum("i,ija->ja", positive, events) / events.sum(axis=0)
    return accuracy, float(np.abs(rates[:, 0] - rates[:, 1]).max())


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return the curves over N and over the error, and their slopes beside the theorem's."""
    records = [record for found in kept.values() for record in found.records]
    by_size = [row for row in records if row["noise"] == 0.0]
    by_error = [row for row in records if row["noise"] > 0.0]
    size_rows, size_slopes = _curve(by_size, "n")
    error_rows, error_slopes = _curve(by_error, "noise")
    rate = _slope([float(n) for n in sorted({row["n"] for row in by_size})], lambda n: np.sqrt(np.log(n) / n))
    slopes: list[list[Cell]] = [
        [label, "N", found, f"at most {rate:.2f} (√(log N / N) over these N)"] for label, found in size_slopes.items()
    ]
    slopes += [
        [label, "ε", found, "at least 0.5 (√ε)" if "loss" in label else "0 (no ε in the bound)"]
        for label, found in error_slopes.items()
    ]
    heads = ("quantity", "against", "slope in log-log", "the theorem")
    tables = [
        Table("slopes", "Slopes beside the theorem's rates", heads, slopes),
        _table("rows", "True p, growing validation sets", by_size, "n", "N"),
        _table("error", "Noisy p̂, a large validation set", by_error, "noise", "noise on the logits"),
    ]
    figures = [
        Figure(
            "rows",
            "Excess and loss against the size of the validation set",
            _chart(size_rows, "N, validation rows", "~s"),
        ),
        Figure("error", "Excess and loss against the error of p-hat", _chart(error_rows, "ε = E|p̂ − p|", ".2~g")),
    ]
    repeats = 1 + max(row["repeat"] for row in records)
    notes = [
        f"δ = {100 * DELTA:g} %, {settings.seeds} seeds of {repeats} validation sets each, in points of %. 'high' is"
        f" the {HIGH}th percentile over the validation sets, which is what a bound with high probability speaks of."
        " ± is one standard error over seeds."
    ]
    return Report("Theorem 2 on the synthetic distribution", tables, figures, notes)


def _percentile(values: Sequence[float]) -> float:
    return float(np.percentile(values, HIGH))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


# What is drawn against N, and against the error of p-hat, where the mean loss is not hidden by the draw of N rows.
QUANTITIES = {
    "n": {"excess over δ, high": ("excess", _percentile), "loss of accuracy, high": ("loss", _percentile)},
    "noise": {"excess over δ, high": ("excess", _percentile), "loss of accuracy, mean": ("loss", _mean)},
}


def _over_seeds(found: Sequence[Record], value: str, statistic: Any) -> Estimate:
    """Return a statistic over the validation sets of a seed, averaged over seeds, in hundredths."""
    per_seed = []
    for rows in grouped(found, "seed").values():
        values = [row[value] for row in rows if row[value] is not None]
        per_seed.append(100.0 * statistic(values) if values else None)
    return Estimate.of(per_seed)


def _curve(records: Sequence[Record], by: str) -> tuple[list[dict[str, Any]], dict[str, Estimate]]:
    """Return the points of each curve, and its slope, from the slopes of the seeds."""
    rows: list[dict[str, Any]] = []
    slopes: dict[str, Estimate] = {}
    for criterion, label in CRITERIA.items():
        mine = [row for row in records if row["criterion"] == criterion]
        for panel, (value, statistic) in QUANTITIES[by].items():
            for found in grouped(mine, by).values():
                y = _over_seeds(found, value, statistic)
                rows.append({"panel": panel, "series": label, "x": _place(found, by), "y": y.mean, "error": y.error})
            per_seed = []
            for seed_rows in grouped(mine, "seed").values():
                inside = list(grouped(seed_rows, by).values())
                xs = [_place(found, by) for found in inside]
                per_seed.append(_fit(xs, [_over_seeds(found, value, statistic).mean for found in inside]))
            slopes[f"{label}: {panel}"] = Estimate.of(per_seed)
    return rows, slopes


def _place(found: Sequence[Record], by: str) -> float:
    """Return where records stand on the horizontal axis: N, or the measured error."""
    return float(np.mean([row["error" if by == "noise" else by] for row in found]))


def _fit(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Return the slope of log y against log x, over the points with y > 0."""
    pairs = [(np.log(x), np.log(y)) for x, y in zip(xs, ys, strict=True) if y > 0.0]
    if len(pairs) < 2:
        return None
    x, y = np.array(pairs, dtype=np.float64).T
    return float(np.polyfit(x, y, 1)[0])


def _slope(xs: Sequence[float], function: Any) -> float:
    found = _fit(xs, [float(function(x)) for x in xs])
    return float("nan") if found is None else found


def _table(name: str, title: str, records: Sequence[Record], by: str, head: str) -> Table:
    rows: list[list[Cell]] = []
    for (criterion, at), found in grouped(records, "criterion", by).items():
        cells: list[Cell] = [CRITERIA[str(criterion)], f"{at:g}"]
        if by == "noise":
            cells.append(100.0 * float(np.mean([row["error"] for row in found])))
        for value in ("excess", "loss"):
            cells += [_over_seeds(found, value, _mean), _over_seeds(found, value, _percentile)]
        missing = sum(row["excess"] is None for row in found)
        rows.append([*cells, f"{len(found) - missing}/{len(found)}"])
    heads = ["criterion", head, *(["ε, %"] if by == "noise" else [])]
    heads += ["excess, mean", "excess, high", "loss, mean", "loss, high", "rules"]
    return Table(name, title, heads, rows)


def _chart(rows: Sequence[dict[str, Any]], x: str, x_format: str) -> Any:
    named = [{**row, "panel": f"{row['panel']}, points"} for row in rows]
    panels = list(dict.fromkeys(row["panel"] for row in named))
    falls = [panel for panel in panels if all(row["y"] > 0.0 for row in named if row["panel"] == panel)]
    # The theorem has no error of p-hat in the excess: a power of it is nothing to look for.
    falls = [panel for panel in falls if "ε" not in x or "loss" in panel]
    return curves(named, x=x, panels=panels, log_x=True, log_y=falls, x_format=x_format)
