"""The tables of a standard as text. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evenhand.inputs import group_texts, joined
from evenhand.text import short_name, table_text

if TYPE_CHECKING:
    from evenhand.auditing.standards import Comparison, StandardAudit, StandardTable


def lines(found: StandardAudit) -> Iterable[str]:
    """Return the tables, line by line."""
    yield f"{found.standard}: {found.rate}s of {found.rows:,} rows"
    yield f"following {found.citation}"
    if found.median is not None:
        yield f"a score counts if it is above the median of all rows, {found.median:g}"
    for table in found.tables:
        yield ""
        yield from _table(found, table)
    yield ""
    yield from found.notes


def _table(found: StandardAudit, table: StandardTable) -> Iterable[str]:
    unknown = f" ({unknown_text(table)})" if table.unknown_rows else ""
    yield f"{short_name(table.attribute)}{unknown}"
    yield from table_text(*cells_of(found, table), indent="  ").splitlines()
    small = left_out_text(found, table)
    if small:
        yield f"  {small}"
    if table.outcome is not None:
        yield f"  verdict: {table.outcome}"


def unknown_text(table: StandardTable) -> str:
    """Return a text on the rows that are in no group of a table; empty if there are none."""
    return f"{table.unknown_rows:,} rows of unknown group are not included" if table.unknown_rows else ""


def left_out_text(found: StandardAudit, table: StandardTable) -> str:
    """Return a text on the groups that are too small for the verdict; empty if there are none."""
    names = [short_name(text) for text in group_texts(group.group for group in table.groups)]
    small = [name for name, group in zip(names, table.groups, strict=True) if group.left_out]
    return f"below {100 * found.least_share:g}% of the rows, left out: {', '.join(small)}" if small else ""


def cells_of(found: StandardAudit, table: StandardTable) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the cells of a table, as text."""
    judged = table.outcome is not None
    scored = table.groups[0].mean is not None
    heads = ["group", "rows", "above median" if found.median is not None else "selected", found.rate, "impact ratio"]
    heads += ["Fisher's p", "std. deviations"] if judged else []
    heads += [f"ratio to {short_name(joined(table.reference))}"] if table.reference is not None else []
    heads += ["mean score", "SMD"] if scored else []
    heads += ["verdict"] if judged else []
    rows = []
    names = [short_name(text) for text in group_texts(group.group for group in table.groups)]
    for name, group in zip(names, table.groups, strict=True):
        compared = group.to_highest
        highest = group.group == table.highest
        row = [name, f"{group.rows:,}", f"{group.selected:,}", f"{group.rate:.3f}"]
        row.append("1.000" if highest else "left out" if group.left_out else _ratio(compared))
        if judged:
            row.append("" if compared is None else f"{compared.fisher:.4f}")
            row.append("" if compared is None or compared.deviations is None else f"{compared.deviations:+.2f}")
        if table.reference is not None:
            itself = group.group == table.reference
            row.append("1.000" if itself else "" if group.left_out else _ratio(group.to_reference))
        if scored:
            row += [f"{group.mean:.3f}", "" if group.smd is None else f"{group.smd:+.3f}"]
        rows.append([*row, *([group.outcome or ""] if judged else [])])
    return heads, rows


def _ratio(found: Comparison | None) -> str:
    return "" if found is None or found.ratio is None else f"{found.ratio:.3f}"
