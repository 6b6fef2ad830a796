"""An audit as text: it is laid out here, and nothing is computed."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from evenhand.inputs import joined
from evenhand.text import short_name

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
        yield from _table(_group_rows(attribute))
        yield f"  selection ratio, lowest to highest: {_shown(attribute.selection_ratio)}"
    for name in dict.fromkeys(verdict.attribute for verdict in found.verdicts):
        yield ""
        yield "verdicts" if name is None else f"verdicts on {short_name(name)}"
        verdicts = [verdict for verdict in found.verdicts if verdict.attribute == name]
        rows = [["criterion", "gap", "at most", "verdict"]]
        rows += [[v.criterion, _shown(v.gap), f"{v.tolerance:g}", v.outcome] for v in verdicts]
        yield from _table(rows)
        yield from (f"  {v.criterion}: {_advice(v.shortage)}" for v in verdicts if v.shortage is not None)
        for verdict in verdicts:
            yield from _strata(verdict)


def _strata(verdict: Verdict) -> Iterable[str]:
    """Return a verdict's strata, line by line, and which were left out."""
    if verdict.strata:
        rows = [[f"{verdict.criterion} in each", "rows", "gap", "verdict"]]
        names = _names(each.stratum for each in verdict.strata)
        for name, each in zip(names, verdict.strata, strict=True):
            rows.append([f"  {name}", f"{each.rows:,}", _shown(each.gap), each.outcome])
        yield from _table(rows)
    if verdict.left_out:
        listed = ", ".join(f"{short_name(name)} ({rows:,} rows)" for name, rows in verdict.left_out.items())
        yield f"  left out, with too few rows to compare: {listed}"


def _group_rows(attribute: AttributeAudit) -> list[list[str]]:
    labelled = attribute.groups[0].accuracy is not None
    heads = ["group", "rows", "negative", "positive", "selection rate", "true positive rate"]
    rows = [[*heads, "false positive rate", "accuracy"]]
    for name, group in zip(_names(g.group for g in attribute.groups), attribute.groups, strict=True):
        counts = [f"{count:,}" for count in (group.rows, group.negatives or 0, group.positives or 0)]
        rates = group.selection_rate, group.true_positive_rate, group.false_positive_rate, group.accuracy
        rows.append([name, *counts, *("" if rate is None else _brief(rate) for rate in rates)])
    return rows if labelled else [[row[0], row[1], row[4]] for row in rows]


def _advice(shortage: Shortage) -> str:
    where = "all rows" if shortage.group is None else f"the group {short_name(joined(shortage.group))}"
    label = "" if shortage.label is None else f" with a {('negative', 'positive')[shortage.label]} label"
    if shortage.cell_needed is None and shortage.cell_rows == 0:
        return f"{where}{label} has no rows"
    if shortage.cell_needed is None:
        return "the gap is so close to the tolerance that more rows are not expected to settle it"
    if shortage.rows_needed is None:
        return f"{where}{label} has {shortage.cell_rows:,} rows; begin with {shortage.cell_needed:,}"
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
    """Return the groups' names as shown; in full and with their kind where two would look alike."""
    listed = list(groups)
    names = [short_name(group) for group in listed]
    return names if len(set(names)) == len(names) else [ascii(group) for group in listed]


def _table(rows: list[list[str]]) -> Iterable[str]:
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()


def _width(text: str) -> int:
    """Return the number of columns that a terminal gives to a text."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) > 0 for sign in text)
