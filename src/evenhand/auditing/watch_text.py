"""A watch as text. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evenhand.display import Description, Table
from evenhand.rules.strata import MOST_NAMED
from evenhand.text import short_name, table_text

if TYPE_CHECKING:
    from evenhand.auditing.findings import Estimate
    from evenhand.auditing.watch import Watch
    from evenhand.auditing.watch_findings import WatchedVerdict


def headline(watch: Watch) -> str:
    """Return the state of a watch in one line."""
    if not watch.verdicts:
        return "undecided: no rows yet"
    worst, recent = worst_of(watch)
    gap = worst.window if recent and worst.window is not None else worst.since_start
    where = "" if worst.attribute is None else f" on {short_name(worst.attribute)}"
    span = "in the window" if recent else "since the start"
    return (
        f"{watch.state} since row {watch.since:,} of {watch.rows:,}: {worst.criterion}{where}"
        f" {_shown(gap)} {span}, tolerance {worst.tolerance:g}"
    )


def worst_of(watch: Watch) -> tuple[WatchedVerdict, bool]:
    """Return the verdict that determines the state, and whether its window does."""
    worst = max(watch.verdicts, key=_excess)
    window = worst.window
    return worst, window is not None and window.lower > worst.tolerance >= worst.since_start.lower


def lines(watch: Watch) -> Iterable[str]:
    """Return the watch's table, line by line."""
    yield f"Watch of {watch.rows:,} rows, confidence {watch.confidence:.4g} at all times"
    waits = f"; {watch.waiting:,} rows wait for their label" if watch.waiting else ""
    yield f"{watch.state} since row {watch.since:,}{waits}"
    if watch.verdicts:
        table = verdict_table(watch)
        yield from table_text(table.heads, table.rows, names=table.names).splitlines()
    if text := left_out_text(watch):
        yield text


def describe_watch(watch: Watch) -> Description:
    """Return the state of a watch and its verdicts."""
    waits = [f"{watch.waiting:,} rows wait for their label."] if watch.waiting else []
    few = [text] if (text := left_out_text(watch)) else []
    level = f"Confidence {watch.confidence:.4g} at all times together."
    tables = [verdict_table(watch)] if watch.verdicts else []
    return Description(f"Watch of {watch.rows:,} rows", [watch.state, headline(watch), *waits, *few, level, *tables])


def left_out_text(watch: Watch) -> str:
    """Return a sentence on the strata that are not judged; empty if there are none."""
    left = watch.left_out
    more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
    return f"Not judged, because of few rows: {', '.join(map(short_name, left[:MOST_NAMED]))}{more}." if left else ""


def verdict_table(watch: Watch) -> Table:
    """Return the verdicts of a watch as a table."""
    rows = []
    for v in watch.verdicts:
        where = "" if v.attribute is None else short_name(v.attribute)
        window = [] if watch.window is None else ["" if v.window is None else _shown(v.window)]
        rows.append((v.criterion, where, _shown(v.since_start), *window, f"{v.tolerance:g}", v.state, f"{v.since:,}"))
    recent = [] if watch.window is None else [f"gap, last {watch.window:,} rows"]
    heads = ("criterion", "attribute", "gap since the start", *recent, "at most", "state", "since row")
    return Table(heads, tuple(rows), names=2)


def _excess(verdict: WatchedVerdict) -> tuple[float, float]:
    """Return by how much a verdict is certainly violated, then by how much it seems to be."""
    lowest = max(verdict.since_start.lower, 0.0 if verdict.window is None else verdict.window.lower)
    return lowest - verdict.tolerance, verdict.since_start.upper - verdict.tolerance


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "no rows"
    return f"{estimate.value:.3f} ({estimate.lower:.3f} to {estimate.upper:.3f})"
