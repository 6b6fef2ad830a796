"""An audit as text. Nothing is computed here."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evenhand.display import WIDTH, Description, Table
from evenhand.figures import Figure, altair
from evenhand.inputs import joined
from evenhand.text import columns_of, short_name, table_text

if TYPE_CHECKING:
    from evenhand.auditing.findings import AttributeAudit, Audit, Estimate, Shortage, Verdict


def lines(found: Audit) -> Iterable[str]:
    """Return the audit's tables, line by line."""
    level = f"{found.confidence:.4g}"
    yield f"Audit of {found.rows:,} rows, tolerance {found.tolerance:g}, confidence {level}"
    if found.accuracy is not None:
        yield f"accuracy {_shown(found.accuracy)}"
    if found.weighted:
        yield "weighted rows: intervals use the effective sample size"
    for attribute in found.attributes:
        yield ""
        unknown = f" ({attribute.unknown_rows:,} rows of unknown group left out)" if attribute.unknown_rows else ""
        yield f"{short_name(attribute.name)}{unknown}"
        yield from _laid_out(group_table(attribute))
        yield f"  four-fifths ratio, lowest to highest selection rate: {_shown(attribute.selection_ratio)}"
    for name in dict.fromkeys(verdict.attribute for verdict in found.verdicts):
        yield ""
        yield "verdicts" if name is None else f"verdicts on {short_name(name)}"
        verdicts = [verdict for verdict in found.verdicts if verdict.attribute == name]
        yield from _laid_out(verdict_table(verdicts))
        for text in advice(verdicts):
            width = WIDTH - (columns_of(text) - len(text))
            yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
        for verdict in verdicts:
            yield from _strata(verdict)


def _strata(verdict: Verdict) -> Iterable[str]:
    """Yield the lines on a verdict's strata, and on those that were left out."""
    if verdict.strata:
        yield from _laid_out(stratum_table(verdict))
    if verdict.left_out:
        listed = ", ".join(f"{short_name(name)} ({rows:,} rows)" for name, rows in verdict.left_out.items())
        text = f"left out, with too few rows to compare: {listed}"
        yield from textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


def stratum_table(verdict: Verdict) -> Table:
    """Return a verdict's strata as a table."""
    names = _names(each.stratum for each in verdict.strata)
    rows = tuple(
        (f"  {name}", f"{each.rows:,}", _shown(each.gap), each.outcome)
        for name, each in zip(names, verdict.strata, strict=True)
    )
    return Table((f"{verdict.criterion} in each", "rows", "gap", "verdict"), rows, names=4)


def describe_audit(found: Audit) -> Description:
    """Return the audit's tables and verdicts."""
    rows = f"Audit of {found.rows:,} rows, tolerance {found.tolerance:g}, confidence {found.confidence:.4g}"
    parts: list[str | Table] = [] if found.accuracy is None else [f"Accuracy {_shown(found.accuracy)}"]
    for name in dict.fromkeys(verdict.attribute for verdict in found.verdicts):
        verdicts = [verdict for verdict in found.verdicts if verdict.attribute == name]
        caption = "Verdicts" if name is None else f"Verdicts on {name}"
        parts += [replace(verdict_table(verdicts), caption=caption), *advice(verdicts)]
        parts += [stratum_table(verdict) for verdict in verdicts if verdict.strata]
    for attribute in found.attributes:
        parts.append(replace(group_table(attribute), caption=attribute.name))
        parts.append(f"Four-fifths ratio, lowest to highest selection rate: {_shown(attribute.selection_ratio)}")
    return Description(rows, parts)


def draw_gaps(found: Audit) -> Figure:
    """Return a chart of every gap with its interval and its tolerance."""
    alt = altair("Audit.plot")
    rows = [
        {
            "what": v.criterion.replace("_", " ") + ("" if v.attribute is None else f", {short_name(v.attribute)}"),
            "gap": None if v.gap.value is None else 100 * v.gap.value,
            "lower": 100 * v.gap.lower,
            "upper": 100 * v.gap.upper,
            "tolerance": 100 * v.tolerance,
            "verdict": v.outcome,
        }
        for v in found.verdicts
    ]
    outcomes = ["pass", "fail", "insufficient evidence"]
    colours = alt.Scale(domain=outcomes, range=["var(--good)", "var(--bad)", "var(--open)"])
    names = [row["what"] for row in rows]
    plain = alt.Chart(alt.InlineData(rows)).encode(
        y=alt.Y("what:N", sort=names, title=None, axis=alt.Axis(labelLimit=260)),
        color=alt.Color("verdict:N", scale=colours, legend=alt.Legend(title=None, orient="top", labelLimit=200)),
    )
    x = alt.X("lower:Q", title="gap, percentage points; the tick is the tolerance", scale=alt.Scale(zero=True))
    whiskers = plain.mark_rule(size=3).encode(x=x, x2="upper:Q")
    points = plain.mark_point(filled=True, size=80, opacity=1).encode(
        x="gap:Q", tooltip=["what:N", "gap:Q", "verdict:N"]
    )
    ticks = plain.mark_tick(thickness=2, size=20).encode(x="tolerance:Q", color=alt.value("var(--ink)"))
    title = f"Gaps with {100 * found.confidence:g}% intervals and tolerances"
    return Figure(whiskers + points + ticks, title, height=32 * len(rows), left=60)


def _laid_out(table: Table) -> Iterable[str]:
    return table_text(table.heads, table.rows, names=table.names, indent="  ", width=WIDTH).splitlines()


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return verdicts as a table."""
    rows = tuple((v.criterion, _shown(v.gap), f"{v.tolerance:g}", v.outcome) for v in verdicts)
    return Table(("criterion", "gap", "at most", "verdict"), rows, names=4)


def group_table(attribute: AttributeAudit) -> Table:
    """Return the counts and rates of an attribute's groups as a table."""
    labelled = attribute.groups[0].accuracy is not None
    heads = ["group", "rows", "negative", "positive", "selection rate", "true positive rate"]
    rows = [[*heads, "false positive rate", "accuracy"]]
    for name, group in zip(_names(g.group for g in attribute.groups), attribute.groups, strict=True):
        counts = [f"{count:,}" for count in (group.rows, group.negatives or 0, group.positives or 0)]
        rates = group.selection_rate, group.true_positive_rate, group.false_positive_rate, group.accuracy
        rows.append([name, *counts, *("" if rate is None else _brief(rate) for rate in rates)])
    kept = rows if labelled else [[row[0], row[1], row[4]] for row in rows]
    return Table(tuple(kept[0]), tuple(map(tuple, kept[1:])))


def advice(verdicts: Sequence[Verdict]) -> Iterable[str]:
    """Yield what is needed to settle the undecided verdicts."""
    return (f"{v.criterion}: {_advice(v.shortage)}" for v in verdicts if v.shortage is not None)


def _advice(shortage: Shortage) -> str:
    where = "all rows" if shortage.group is None else f"the group {short_name(joined(shortage.group))}"
    label = "" if shortage.label is None else f" with a {('negative', 'positive')[shortage.label]} label"
    if shortage.cell_needed is None and shortage.cell_rows == 0:
        return f"{where}{label} has no rows"
    if shortage.cell_needed is None:
        return "the gap is so close to the tolerance that more rows are not expected to settle it"
    if shortage.rows_needed is None:
        return f"{where}{label} has {shortage.cell_rows:,} rows; start with {shortage.cell_needed:,}"
    return (
        f"about {shortage.rows_needed:,} rows of this mix would settle it "
        f"({where}{label}: {shortage.cell_needed:,}, now {shortage.cell_rows:,})"
    )


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "no rows"
    return f"{estimate.value:.3f} ({estimate.lower:.3f} to {estimate.upper:.3f})"


def _brief(estimate: Estimate) -> str:
    if estimate.value is None:
        return "no rows"
    return f"{estimate.value:.3f} {estimate.lower:.3f}-{estimate.upper:.3f}"


def _names(groups: Iterable[Hashable]) -> list[str]:
    """Return the displayed names of the groups, with their type or a number if two would be equal."""
    listed = list(groups)
    names = [short_name(group) for group in listed]
    if len(set(names)) < len(names):
        names = [short_name(ascii(group)) for group in listed]
    return [name if names.count(name) == 1 else f"{name} #{place}" for place, name in enumerate(names)]
