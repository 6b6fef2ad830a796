"""The tables of a standard as one HTML page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from evenhand.arguments import check_path, check_text, shown
from evenhand.auditing.standards import StandardAudit
from evenhand.auditing.standards_text import cells_of, left_out_text, unknown_text
from evenhand.errors import InputError
from evenhand.files import local_path, write_text
from evenhand.report.pages import render_page
from evenhand.versions import versions

_CLASSES = {"pass": "pass", "fail": "fail", "insufficient evidence": "insufficient", None: "none"}
_SENTENCES = {
    "pass": "Every table passes.",
    "fail": "A table fails.",
    "insufficient evidence": "There are too few rows for a verdict.",
    None: "This standard sets no limit, so there is no verdict.",
}


def write_standard(found: StandardAudit, path: str | os.PathLike[str], *, title: str = "Audit by a standard") -> Path:
    """Write the tables of a standard as an HTML page, completely or not at all, and return its path.

    Parameters
    ----------
    found : StandardAudit
        A result of ``evenhand.audit(..., standard=...)``.
    path : path
        The file.
    title : str, default="Audit by a standard"
        The page's title.
    """
    if not isinstance(found, StandardAudit):
        raise InputError(f"found must be a result of audit(..., standard=...); got {shown(found)}.")
    check_text(title, "title")
    check_path(path)
    target = local_path(path, write=True)
    write_text(target, render_page("standard.html.jinja", summarize_standard(found, title)))
    return target


def summarize_standard(found: StandardAudit, title: str) -> dict[str, Any]:
    """Return the contents of the page as plain data."""
    outcomes = {table.outcome for table in found.tables}
    ordered = ("fail", "insufficient evidence", "pass")
    outcome = next((name for name in ordered if name in outcomes), None)
    return {
        "title": title,
        "standard": found.standard,
        "rate": found.rate,
        "rows": f"{found.rows:,}",
        "outcome": _CLASSES[outcome],
        "badge": outcome or "no verdict",
        "sentence": _SENTENCES[outcome],
        "citation": found.citation,
        "median": None if found.median is None else f"{found.median:g}",
        "tables": [
            {
                "attribute": table.attribute,
                "cells": cells_of(found, table),
                "remarks": [text for text in (unknown_text(table), left_out_text(found, table)) if text],
                "outcome": table.outcome,
            }
            for table in found.tables
        ],
        "notes": list(found.notes),
        "versions": versions(),
    }
