"""A watch as one HTML page: its state, and its confidence sequences over time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from evenhand.arguments import check_path, check_text, shown
from evenhand.auditing.findings import Estimate
from evenhand.auditing.watch import Watch
from evenhand.auditing.watch_findings import WatchedVerdict
from evenhand.auditing.watch_text import left_out_text, worst_of
from evenhand.errors import InputError
from evenhand.files import local_path, write_text
from evenhand.report import charts
from evenhand.report.numbers import tolerance_text, words
from evenhand.report.pages import render_page
from evenhand.versions import versions

MOST_CHARTS = 12
MOST_GAPS = 200
_OUTCOMES = {"holds": "pass", "violated": "fail", "undecided": "insufficient"}


def write_watch(watch: Watch, path: str | os.PathLike[str], *, title: str = "Watch") -> Path:
    """Write a watch as an HTML page, completely or not at all, and return its path.

    Parameters
    ----------
    watch : Watch
        The watch.
    path : path
        The file.
    title : str, default="Watch"
        The page's title.
    """
    check_path(path)
    target = local_path(path, write=True)
    write_text(target, render_watch(watch, title=title))
    return target


def render_watch(watch: Watch, *, title: str = "Watch") -> str:
    """Return a watch as one self-contained HTML page; the same watch gives the same text."""
    if not isinstance(watch, Watch):
        raise InputError(f"watch must be a Watch; got {shown(watch)}.")
    check_text(title, "title")
    return render_page("watch.html.jinja", summarize_watch(watch, title), watch_charts(watch))


def summarize_watch(watch: Watch, title: str = "Watch") -> dict[str, Any]:
    """Return the contents of the page as plain data."""
    return {
        "title": title,
        "state": watch.state,
        "outcome": _OUTCOMES[watch.state],
        "sentence": _sentence(watch),
        "rows": f"{watch.rows:,}",
        "waiting": f"{watch.waiting:,}" if watch.waiting else "",
        "window": None if watch.window is None else f"{watch.window:,}",
        "level": f"{100 * watch.confidence:g}",
        "verdicts": [
            {
                "criterion": words(v.criterion),
                "attribute": v.attribute or "everyone",
                "start": _text(v.since_start),
                "window": "" if v.window is None else _text(v.window),
                "tolerance": tolerance_text(v.tolerance),
                "state": v.state,
                "since": f"{v.since:,}",
            }
            for v in watch.verdicts
        ],
        "gaps": [
            {
                "name": charts.short_term(gap.name),
                "start": _text(gap.since_start),
                "window": "" if gap.window is None else _text(gap.window),
            }
            for gap in watch.gaps[:MOST_GAPS]
        ],
        "changes": [{"rows": f"{rows:,}", "state": state} for rows, state in watch.changes[-50:]],
        "versions": versions("numpy"),
    }


def _sentence(watch: Watch) -> str:
    """Return the state in words, with the gap that determines it."""
    if not watch.verdicts:
        return "There are no rows yet."
    worst, recent = worst_of(watch)
    gap = worst.window if recent and worst.window is not None else worst.since_start
    what = words(worst.criterion) + ("" if worst.attribute is None else f" on {worst.attribute}")
    span = f"in the last {watch.window:,} rows" if recent else "since the start"
    said = {
        "violated": f"Since row {watch.since:,} the decisions violate {what}",
        "holds": f"Since row {watch.since:,} the decisions meet {what}",
        "undecided": f"It is undecided whether the decisions meet {what}",
    }[watch.state]
    few = f" {text}" if (text := left_out_text(watch)) else ""
    return f"{said}: the gap {span} is {_text(gap)} points, and {tolerance_text(worst.tolerance)} are allowed.{few}"


def _text(estimate: Estimate) -> str:
    if estimate.value is None:
        return "no rows"
    return f"{100 * estimate.value:.1f} ({100 * estimate.lower:.1f} to {100 * estimate.upper:.1f})"


def watch_charts(watch: Watch) -> list[dict[str, str]]:
    """Return a chart for each verdict: the gap's sequence since the start and in the window, over the rows."""
    return [
        {"svg": _chart(watch, place, verdict), "caption": _caption(watch, verdict)}
        for place, verdict in enumerate(watch.verdicts[:MOST_CHARTS])
    ]


def _caption(watch: Watch, verdict: WatchedVerdict) -> str:
    where = "" if verdict.attribute is None else f" on {verdict.attribute}"
    recent = "" if watch.window is None else f"; orange: in the last {watch.window:,} rows"
    return (
        f"{words(verdict.criterion).capitalize()}{where}. Blue: since the start{recent}. A band shows where the gap may"
        f" be. The dashed line is the tolerance, {tolerance_text(verdict.tolerance)} points."
    )


def _chart(watch: Watch, place: int, verdict: WatchedVerdict) -> str:
    alt = charts.altair()
    rows: list[dict[str, Any]] = []
    for moment in watch.moments:
        for name, estimate in zip(("start", "window"), moment.gaps[place], strict=True):
            if estimate is not None and estimate.value is not None:
                ends = {"v": estimate.value, "l": estimate.lower, "u": estimate.upper}
                rows.append({"rows": moment.rows, "over": name, **{k: round(100 * x, 4) for k, x in ends.items()}})
    top = max([100 * verdict.tolerance * 2, *(row["v"] * 1.6 for row in rows)])
    x = alt.X("rows:Q", title="rows", axis=alt.Axis(format=",d"))
    scale = alt.Scale(domain=[0, min(top, 100)], nice=False, clamp=True)
    colour = alt.Color(
        "over:N", scale=alt.Scale(domain=["start", "window"], range=["var(--g0)", "var(--g1)"]), legend=None
    )
    plain = alt.Chart(alt.InlineData(rows)).encode(x=x, color=colour)
    band = plain.mark_area(opacity=0.16, clip=True).encode(y=alt.Y("l:Q", title="gap, points", scale=scale), y2="u:Q")
    line = plain.mark_line(strokeWidth=1.75, clip=True).encode(y=alt.Y("v:Q", title="gap, points", scale=scale))
    limit = (
        alt.Chart(alt.InlineData([{"y": 100 * verdict.tolerance}]))
        .mark_rule(color="var(--ink)", strokeDash=[4, 4])
        .encode(y=alt.Y("y:Q", scale=scale))
    )
    title = f"{words(verdict.criterion)}, {verdict.attribute or 'everyone'}: the gap over time"
    return charts.to_svg(band + line + limit, title, width=620, height=240)
