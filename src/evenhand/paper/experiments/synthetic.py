"""Figure 1: bias scores of the synthetic distribution, and the optimal modification at EO <= 0.15 and 0.01.

On the 1,200 points, with the probabilities of a four-class logistic regression, the linear program of the
paper's Theorem 1 is solved as it stands: kappa(x) in [0, 1] for each point, the largest expected accuracy under
expected EO <= delta. The theorem says that kappa is 1 on one side of a line in the plane of (s0, s1), 0 on the
other, and may be anything only on the line itself.

With the sizes of the cells as the paper prints them the plain classifier has EO of about 0.05, so that EO <= 0.15
asks for nothing. The paper's figure has a line there. With the sizes of the two groups swapped it has: both are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.paper.experiments.charts import COLOURS, INK, altair
from evenhand.paper.experiments.results import Cell, Figure, Report, Table, delta_text, grouped, mean_by, percent
from evenhand.paper.experiments.running import Kept, Record, Unit
from evenhand.paper.experiments.settings import Settings
from evenhand.rules import scores
from evenhand.search import Problem
from evenhand.search.dual import solve_linear_program

TOLERANCES = (0.15, 0.01)
CELL_NAMES = ("Y=0, A=0", "Y=0, A=1", "Y=1, A=0", "Y=1, A=1")
# Points of each cell, in that order.
SIZES = {"as printed": (100, 500, 500, 100), "swapped": (500, 100, 100, 500)}
# The window of the figure, as a share of the points in each direction: scores have long tails.
SHOWN = 0.96


def units(name: str, settings: Settings) -> list[Unit]:
    """Return one unit for each choice of sizes and seed."""
    return [
        Unit(
            f"sizes {sizes}, seed {seed}",
            solve,
            {"sizes": sizes, "seed": seed, "share": 0.2 if settings.quick else 1.0},
        )
        for sizes in SIZES
        for seed in settings.seed_numbers
    ]


def draw(sizes: Sequence[int], seed: int) -> Any:
    """Return points of the distribution with a given number in each cell, and the cells."""
    data = eh.datasets.make_zafar(12 * max(sizes), random_state=seed)
    cell = 2 * data.y + (data.group == "1")
    rows = np.sort(np.concatenate([np.flatnonzero(cell == code)[:size] for code, size in enumerate(sizes)]))
    return data.take(rows), cell[rows]


def solve(states: Path, needed: Sequence[Kept], *, sizes: str, seed: int, share: float) -> Kept:
    """Solve the linear program on the points at both tolerances, and test whether its kappa is a line's."""
    data, cell = draw([round(share * size) for size in SIZES[sizes]], seed)
    n = len(data)
    p = LogisticRegression(max_iter=1000).fit(data.X, cell).predict_proba(data.X).reshape(-1, 2, 2)
    densities = p / (np.bincount(cell, minlength=4).reshape(2, 2) / n)
    margin, contrasts = scores.margin(p[:, 1].sum(axis=1)), densities[:, :, 0] - densities[:, :, 1]
    base, s = margin > 0.0, scores.bias_scores(margin, contrasts)
    records: list[Record] = [_measured(data, base, sizes=sizes, seed=seed, delta=None)]
    kappas: list[Any] = []
    zs: list[Any] = []
    for delta in TOLERANCES:
        bounds: Any = {"lower": np.full(2, -delta), "upper": np.full(2, delta)}
        problem = Problem(margin=margin, contrasts=contrasts, gain=margin / n, effects=contrasts / n, **bounds)
        found = solve_linear_program(problem)
        if found is None:
            raise eh.InfeasibleError(f"the linear program has no solution at δ = {delta:g}.")
        kappa = np.where(base, 1.0 - found.decisions, found.decisions)
        along = s @ found.z
        wrong = ((along > 1.0) != (kappa > 0.5)) & (np.abs(along - 1.0) > 1e-6)
        record = _measured(data, found.decisions > 0.5, sizes=sizes, seed=seed, delta=delta)
        record |= {
            "z0": float(found.z[0]),
            "z1": float(found.z[1]),
            "flipped": float(kappa.mean()),
            "fractional": int(((kappa > 1e-9) & (kappa < 1.0 - 1e-9)).sum()),
            "on the wrong side": int(wrong.sum()),
            "unflipped": int(((kappas[0] > 0.5) & (kappa < 0.5)).sum()) if kappas else None,
        }
        records.append(record)
        kappas.append(kappa)
        zs.append(found.z)
    return Kept(records, {"scores": s, "kappa": np.array(kappas), "cell": cell, "z": np.array(zs)})


def _measured(data: Any, decided: Any, **labels: Any) -> Record:
    gap = eh.metrics.equalized_odds_difference(data.y, decided, sensitive_features=data.group)
    return {**labels, "accuracy": float(np.mean(decided == data.y)), "gap": float(gap)}


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return the plane of bias scores with its lines, and what the modification does."""
    records = [record for found in kept.values() for record in found.records]
    figures = [
        Figure(
            f"scores-{sizes.replace(' ', '-')}",
            f"Bias scores of the synthetic points and the line of the optimal rule, sizes {sizes}",
            _chart(kept[f"sizes {sizes}, seed {settings.first_seed}"]),
        )
        for sizes in SIZES
    ]
    notes = [
        f"{settings.seeds} seeds; the figures show seed {settings.first_seed},"
        f" the middle {SHOWN:.0%} of the points in either direction."
        " Accuracy, EO and flipped points in %. 'as printed': 500, 100, 100, 500 points of (Y, A) = (1, 0), (1, 1),"
        " (0, 0), (0, 1). 'swapped': 100, 500, 500, 100."
    ]
    return Report("bias scores and optimal rules on the synthetic distribution", [_table(records)], figures, notes)


def _table(records: Sequence[Record]) -> Table:
    rows: list[list[Cell]] = []
    for (sizes, delta), found in grouped(records, "sizes", "delta").items():
        cells: list[Cell] = [str(sizes), delta_text(found[0]["delta"])]
        cells += [percent(found, "accuracy"), percent(found, "gap")]
        if delta is None:
            rows.append([*cells, None, None, None, None, None, None])
            continue
        cells += [
            mean_by(found, lambda row: row["z0"]),
            mean_by(found, lambda row: row["z1"]),
            percent(found, "flipped"),
        ]
        cells += [max(row["fractional"] for row in found), max(row["on the wrong side"] for row in found)]
        rows.append([*cells, mean_by(found, lambda row: row["unflipped"])])
    heads = (
        "sizes",
        "δ",
        "accuracy",
        "EO",
        "z0",
        "z1",
        "flipped",
        "fractional κ (most)",
        "wrong side of the line (most)",
        "flipped at 15, not at 1",
    )
    return Table("rules", "The rule of the linear program, its accuracy and EO on the same points", heads, rows)


def _chart(kept: Kept) -> Any:
    """Return three panels: the cells, and kappa with its line for each tolerance."""
    alt = altair()
    s, tail = kept.arrays["scores"], 50.0 * (1.0 - SHOWN)
    (low0, low1), (high0, high1) = np.percentile(s, tail, axis=0), np.percentile(s, 100.0 - tail, axis=0)
    x = alt.X("s0:Q", title="s0 (Y = 0)", scale=alt.Scale(domain=[low0, high0], nice=False))
    y = alt.Y("s1:Q", title="s1 (Y = 1)", scale=alt.Scale(domain=[low1, high1], nice=False))
    size = {"width": 270, "height": 270}

    def dots(names: Sequence[str], values: Sequence[str], colours: Sequence[str]) -> Any:
        # Rare kinds are drawn last, on top.
        order = sorted(range(len(s)), key=lambda i: -values.count(values[i]))
        rows = [{"s0": float(s[i, 0]), "s1": float(s[i, 1]), "kind": values[i]} for i in order]
        scale = alt.Scale(domain=list(names), range=list(colours))
        legend = alt.Legend(title=None, orient="bottom", columns=2)
        marks = alt.Chart(alt.InlineData(rows)).mark_circle(size=14, opacity=0.6, clip=True)
        return marks.encode(x=x, y=y, color=alt.Color("kind:N", sort=list(names), scale=scale, legend=legend))

    cells = [CELL_NAMES[code] for code in kept.arrays["cell"]]
    panels = [dots(CELL_NAMES, cells, COLOURS[:4]).properties(title="(a) scores by label and group", **size)]
    for letter, delta, kappa, z in zip("bc", TOLERANCES, kept.arrays["kappa"], kept.arrays["z"], strict=True):
        kinds = np.where(kappa > 0.5, "κ = 1 (flipped)", "κ = 0 (kept)").tolist()
        layers = dots(("κ = 0 (kept)", "κ = 1 (flipped)"), kinds, ("#9a9a9a", COLOURS[1]))
        title = f"({letter}) EO ≤ {delta:g}: nothing to flip"
        if z.any():
            # The line z0 s0 + z1 s1 = 1, far beyond the window on both sides.
            nearest, along = z / (z @ z), np.array([-z[1], z[0]]) / np.linalg.norm(z) * 10.0 * np.abs(s).max()
            ends = [{"s0": float(a), "s1": float(b)} for a, b in (nearest - along, nearest + along)]
            rule = alt.Chart(alt.InlineData(ends)).mark_line(color=INK, strokeWidth=1.6, clip=True)
            layers += rule.encode(x=x, y=y)
            title = f"({letter}) κ and its line, EO ≤ {delta:g}"
        panels.append(layers.properties(title=title, **size))
    return alt.hconcat(*panels, spacing=22).resolve_scale(color="independent")
