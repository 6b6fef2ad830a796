"""The comparison's tables and figures, from the measured results: ``python -m benchmarks tables``.

Reads ``benchmarks/results`` and writes ``docs/comparison-tables.md`` and the figures next to it; nothing is run again.
After a quick look (``EVENHAND_SPLITS``) the page is printed instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.results import ASKED, CROSS_FITTED, HOLD_OUT, QUICK_LOOK, outcomes, read
from benchmarks.tradeoff import (
    CRITERIA,
    TOLERANCES,
    Outcomes,
    difference_at_gap,
    error_at_gap,
    excess,
    mean_and_error,
    table,
    with_error,
)

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "comparison-tables.md"
TITLES = {"adult": "Adult", "compas": "COMPAS", "census": "KDD Census Income"}
SHOWN = {"adult": (0.10, 0.05, 0.03), "census": (0.05, 0.03, 0.02), "compas": (0.15, 0.12, 0.10)}
OURS = f"evenhand, certified, {CROSS_FITTED}"
NEAR = 0.001  # a tenth of a point of accuracy
INTRODUCTION = """\
---
hide: [navigation]
---

# All tables of the comparison

`python -m benchmarks tables` makes this page and its figures from `benchmarks/results`, where
`python -m benchmarks peers` has written what every method did on every split. What the rows and columns are, and how to
read them, is on the [page of the comparison](comparison.md#beside-other-methods).
"""
Found = dict[str, Outcomes]


def contests(measured: pd.DataFrame) -> Iterator[tuple[str, str, str, Found]]:
    """Yield data, model, criterion, and the outcomes of each method."""
    for (data, model, criterion), lines in measured.groupby(["data", "model", "criterion"], sort=False):
        yield str(data), str(model), str(criterion), outcomes(lines)


def told_the_attribute(measured: pd.DataFrame) -> set[str]:
    """Return the methods that are given the attribute when they decide."""
    return set(measured.loc[measured["needs A"] == "yes", "method"])


def complete(found: Mapping[str, Outcomes]) -> Found:
    """Return the methods that were run on all splits: only those are compared with each other."""
    most = max(map(len, found.values()))
    return {method: kept for method, kept in found.items() if len(kept) == most}


def asked_table(lines: pd.DataFrame, found: Found) -> str:
    """Return mean test accuracy and mean test gap for every tolerance that was asked for."""
    about = lines.drop_duplicates("method").set_index("method")
    rows = []
    for method, kept in found.items():
        cells = [
            f"{100 * np.nanmean(accuracy):.2f} / {np.nanmean(gap):.3f}" for accuracy, gap in (kept.at(t) for t in ASKED)
        ]
        none = "/".join(str(kept.without_rule(t)) for t in ASKED)
        words = about.loc[method]
        rows.append([method, words["needs A"], words["deterministic"], str(len(kept)), *cells, none])
    header = ["method", "needs A", "deterministic", "splits", *(f"asked for {t:.2f}" for t in ASKED), "no rule"]
    return table(header, rows)


def level_table(data: str, found: Found, using: set[str]) -> str:
    """Return accuracy at equal test gaps; the best without the attribute, among the complete ones, is bold."""
    levels = {method: [kept.accuracy_at_gap(gap) for gap in SHOWN[data]] for method, kept in found.items()}
    rivals = complete(found).keys() - using
    best = np.max([np.nan_to_num(levels[method], nan=-np.inf) for method in rivals], axis=0)
    rows = []
    for method, kept in found.items():
        cells = [
            f"**{text}**" if method in rivals and level == top else text
            for level, top, text in (
                (level, top, with_error(level, error_at_gap(kept, gap)))
                for level, top, gap in zip(levels[method], best, SHOWN[data], strict=True)
            )
        ]
        above = [excess(kept, tolerance) for tolerance in TOLERANCES]
        cells += [f"{100 * np.mean(a > 0):.0f}% / {100 * mean_and_error(a)[0]:.2f}" for a in above]
        ours = found[OURS].first(len(kept))
        ahead = [with_error(*difference_at_gap(ours, kept, gap), sign=True) for gap in SHOWN[data]]
        rows.append([method, *cells, "-" if method == OURS else " / ".join(ahead)])
    header = ["method", *(f"accuracy at gap {gap:.2f}" for gap in SHOWN[data])]
    header += [f"over {tolerance:.2f}" for tolerance in TOLERANCES]
    return table([*header, f"{OURS}, is ahead by"], rows)


def within(found: Mapping[str, Outcomes], tolerance: float) -> dict[str, float]:
    """Return the best mean accuracy of each method whose mean test gap can be within a tolerance, best first.

    A method takes part with whatever it was asked for: all its points, not only the one at this tolerance.
    """
    best = {}
    for method, kept in found.items():
        gaps, accuracies = np.nanmean(kept.gap, axis=0), np.nanmean(kept.accuracy, axis=0)
        if (gaps <= tolerance).any():
            best[method] = float(accuracies[gaps <= tolerance].max())
    return dict(sorted(best.items(), key=lambda item: -item[1]))


def leaders_table(found: Found, using: set[str]) -> str:
    """Return, for each tolerance, the most accurate of the methods whose mean test gap is within it."""
    rows = []
    for tolerance in ASKED:
        every = within(complete(found), tolerance)
        blind = {method: accuracy for method, accuracy in every.items() if method not in using}
        leaders = []
        for best in (every, blind):
            words = [f"{method} ({100 * accuracy:.2f})" for method, accuracy in best.items()]
            leaders += [*words, "-", "-"][:2]
        rows.append([f"{tolerance:.2f}", *leaders, f"{len(every)} of {len(complete(found))}"])
    header = ["mean test gap within", "first", "second", "first without the attribute", "second", "methods within it"]
    return table(header, rows)


def score_table(measured: pd.DataFrame, criterion: str, *, blind: bool) -> str:
    """Return how often each method is first, or nearly, over all data sets, models and tolerances.

    A contest is a tolerance that at least two of the methods are within. Methods that were not run on all splits
    everywhere are left out.
    """
    using = told_the_attribute(measured) if blind else set()
    fields = [complete(found) for *_, found in contests(measured[measured["criterion"] == criterion])]
    everywhere = set.intersection(*(set(field) for field in fields)) - using
    behind: dict[str, list[float]] = {method: [] for method in sorted(everywhere)}
    total = 0
    for field in fields:
        for tolerance in ASKED:
            best = within({method: field[method] for method in behind}, tolerance)
            if len(best) > 1:
                total += 1
                for method, accuracy in best.items():
                    behind[method].append(max(best.values()) - accuracy)
    rows = []
    for method, shortfalls in behind.items():
        short = np.array(shortfalls)
        rows.append((int((short <= NEAR).sum()), int((short == 0.0).sum()), len(short), 100 * short.mean(), method))
    rows.sort(reverse=True)
    header = [
        "method",
        f"within {100 * NEAR:.1f} points of the first",
        "first",
        "within the tolerance",
        "points behind",
    ]
    lines = [[method, str(near), str(first), str(inside), f"{mean:.2f}"] for near, first, inside, mean, method in rows]
    return f"{total} contests.\n\n" + table(header, lines)


def times_table(times: pd.DataFrame) -> str:
    """Return the times of one data set and model."""
    columns = ["rows", "method", "fit, ms", "fit, ratio", "predict, ratio"]
    rows = []
    for _, line in times.iterrows():
        numbers = [
            f"{line[c]:.{digits}f}" if line[c] == line[c] else "-"
            for c, digits in zip(columns[2:], (0, 1, 1), strict=True)
        ]
        rows.append([CRITERIA[line["criterion"]], line["rows"], line["method"], *numbers])
    return table(["criterion", *columns], rows)


def draw(data: str, model: str, by_criterion: Mapping[str, Found], using: set[str]) -> None:
    """Draw accuracy against test gap, as means over the splits, of the methods on cross-fitted probabilities."""
    import altair as alt

    points = [
        {"criterion": CRITERIA[criterion], "method": method, "tolerance": tolerance, "gap": float(gap),
         "accuracy": float(accuracy),
         "attribute": "told" if method in using else "not told", "ours": method.startswith("evenhand")}
        for criterion, found in by_criterion.items()
        for method, kept in complete(found).items()
        if not method.endswith(HOLD_OUT) or method == f"evenhand, certified, {HOLD_OUT}"
        for tolerance, gap, accuracy in zip(
            ASKED, np.nanmean(kept.gap, axis=0), np.nanmean(kept.accuracy, axis=0), strict=True
        )
    ]  # fmt: skip
    chart = (
        alt.Chart(alt.InlineData(points))
        .mark_line(point=alt.OverlayMarkDef(size=36))
        .encode(
            x=alt.X("gap:Q", title="mean test gap"),
            y=alt.Y("accuracy:Q", title="mean test accuracy", scale=alt.Scale(zero=False)),
            color=alt.Color("method:N", title=None).scale(scheme="category10"),
            strokeDash=alt.StrokeDash("attribute:N", title="the attribute is")
            .scale(domain=["not told", "told"], range=[[1, 0], [4, 3]])
            .legend(symbolType="stroke", symbolStrokeColor="#333333", symbolStrokeWidth=2, symbolSize=500),
            strokeWidth=alt.condition("datum.ours", alt.value(3), alt.value(1.5)),
            order="tolerance:Q",
        )
        .properties(width=420, height=360)
        .facet(alt.Facet("criterion:N").header(title=None, labelFontSize=14), title=f"{TITLES[data]}, {model}")
        .resolve_scale(x="independent", y="independent")
        .configure_legend(orient="bottom", columns=3, labelLimit=400, labelFontSize=13, titleFontSize=13)
        .configure_axis(labelFontSize=12, titleFontSize=13)
        .configure_title(fontSize=16)
    )
    chart.save(DOCS / "images" / figure(data, model))


def figure(data: str, model: str) -> str:
    """Return the name of a figure's file."""
    return f"comparison-{data}-{model.replace(' ', '-')}.svg"


def page() -> str:
    """Return the whole page."""
    measured, times = read("peers.csv"), read("times.csv")
    using = told_the_attribute(measured)
    parts = [INTRODUCTION, "## Who is best within a tolerance", scores(measured), leaders(measured)]
    for (data, model), lines in measured.groupby(["data", "model"], sort=False):
        parts += [f"## {TITLES[data]}, {model}", f"![Accuracy against test gap](images/{figure(data, model)})"]
        for *_, criterion, found in contests(lines):
            parts += [f"### {TITLES[data]}, {model}: {CRITERIA[criterion]}"]
            parts += ["Mean test accuracy (%) / mean test gap:", asked_table(lines, found)]
            parts += ["Accuracy (%) at equal mean test gap, and the excess over the tolerance:"]
            parts += [level_table(data, found, using)]
        parts += [f"### {TITLES[data]}, {model}: time"]
        parts += [times_table(times[(times["data"] == data) & (times["model"] == model)])]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def scores(measured: pd.DataFrame) -> str:
    """Return the tables of scores."""
    return "\n".join(
        f"### Score: {CRITERIA[criterion]}, {title}\n\n{score_table(measured, criterion, blind=blind)}"
        for criterion in CRITERIA
        for title, blind in (("without the attribute", True), ("all methods", False))
    )


def leaders(measured: pd.DataFrame) -> str:
    """Return the tables of leaders."""
    using = told_the_attribute(measured)
    return "\n".join(
        f"### Leaders: {TITLES[data]}, {model}: {CRITERIA[criterion]}\n\n{leaders_table(found, using)}"
        for data, model, criterion, found in contests(measured)
    )


def main() -> None:
    """Write the page and the figures."""
    text = page()
    if QUICK_LOOK:
        print(text)
        return
    PAGE.write_text(text, encoding="utf-8")
    measured = read("peers.csv")
    for (data, model), lines in measured.groupby(["data", "model"], sort=False):
        by_criterion = {criterion: found for *_, criterion, found in contests(lines)}
        draw(str(data), str(model), by_criterion, told_the_attribute(measured))
    print(f"Wrote {PAGE}")


if __name__ == "__main__":
    main()
