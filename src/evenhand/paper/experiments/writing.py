"""Results in files: CSV and Markdown, SVG and PNG, and one JSON with their origin."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.files import whole_or_nothing
from evenhand.paper.experiments.charts import to_png, to_svg
from evenhand.paper.experiments.results import Cell, Estimate, Report, Table
from evenhand.paper.experiments.running import Record
from evenhand.versions import versions

QUICK = "QUICK RUN: few rows, few epochs. It shows that everything runs; its numbers are meaningless."
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "torch", "skorch", "transformers", "fairlearn", "altair")


def write(
    report: Report, directory: Path, name: str, facts: Mapping[str, Any], *, records: Sequence[Record]
) -> list[Path]:
    """Write everything, and return the files. Only the JSON file has times: the others are reproducible."""
    quick = bool(facts["quick"])
    files: dict[str, str | bytes] = {f"{name}.md": markdown(report, name, facts)}
    files[f"{name}-runs.csv"] = _flagged(_csv(*_columns(records)), quick)
    for table in report.tables:
        files[f"{name}-{table.name}.csv"] = _flagged(table_csv(table), quick)
    for figure in report.figures:
        files[f"{name}-{figure.name}.svg"] = svg = to_svg(figure.chart, figure.title, note=QUICK if quick else "")
        files[f"{name}-{figure.name}.png"] = to_png(svg)
    for suffix, text in report.texts.items():
        files[f"{name}-{suffix}"] = f"% {QUICK}\n{text}" if quick else text
    about = {
        **facts,
        "note": QUICK if quick else "",
        "versions": every_version(),
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "processor": platform.machine()},
        "notes": list(report.notes),
        "tables": {table.name: {"title": table.title, "rows": _plain(table)} for table in report.tables},
        "records": list(records),
    }
    files[f"{name}.json"] = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    for file, content in files.items():
        with whole_or_nothing(directory / file) as draft:
            draft.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [directory / file for file in files]


def markdown(report: Report, name: str, facts: Mapping[str, Any]) -> str:
    """Return the report as Markdown."""
    made_with = ", ".join(f"{package} {version}" for package, version in every_version().items())
    parts = [
        f"# {name}: {report.title}",
        f"{facts['paper']} of the paper. `{facts['command']}`",
        f"Seeds {', '.join(map(str, facts['seeds']))}. Made with {made_with}.",
    ]
    if facts["quick"]:
        parts.append(f"**{QUICK}**")
    parts += list(report.notes)
    for figure in report.figures:
        parts.append(f"![{figure.title}]({name}-{figure.name}.svg)")
    for table in report.tables:
        parts += [f"**{table.title}**", table_markdown(table)]
    return "\n\n".join(parts) + "\n"


def table_markdown(table: Table) -> str:
    """Return a table as Markdown."""
    rows = [
        [_shown(cell, table.digits, head in table.signed) for head, cell in zip(table.heads, row, strict=True)]
        for row in table.rows
    ]
    lines = [list(table.heads), ["---"] * len(table.heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def table_csv(table: Table) -> str:
    """Return a table as CSV, with the standard errors in separate columns."""
    heads, rows = _split(table)
    return _csv(heads, rows)


def every_version() -> dict[str, str]:
    """Return the versions of everything that may change a number."""
    return versions(*(package for package in _PACKAGES if _is_installed(package)))


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _split(table: Table) -> tuple[list[str], list[list[Any]]]:
    estimated = [any(isinstance(row[k], Estimate) for row in table.rows) for k in range(len(table.heads))]
    heads: list[str] = []
    for head, has_error in zip(table.heads, estimated, strict=True):
        heads += [head, f"{head} (s.e.)"] if has_error else [head]
    rows = []
    for row in table.rows:
        cells: list[Any] = []
        for cell, has_error in zip(row, estimated, strict=True):
            if isinstance(cell, Estimate):
                cells += [_number(cell.mean), _number(cell.error)]
            else:
                cells += [cell, None] if has_error else [cell]
        rows.append(cells)
    return heads, rows


def _plain(table: Table) -> list[dict[str, Any]]:
    heads, rows = _split(table)
    return [dict(zip(heads, row, strict=True)) for row in rows]


def _number(value: float) -> float | None:
    return None if value != value else value


def _shown(cell: Cell, digits: int, sign: bool) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, Estimate):
        return cell.text(digits, sign=sign)
    return f"{cell:{'+' if sign else ''}.{digits}f}" if isinstance(cell, float) else str(cell)


def _columns(records: Sequence[Record]) -> tuple[list[str], list[list[Any]]]:
    heads = list(dict.fromkeys(name for record in records for name in record))
    return heads, [[record.get(head) for head in heads] for record in records]


def _csv(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return text.getvalue()


def _flagged(text: str, quick: bool) -> str:
    return f"# {QUICK}\n{text}" if quick else text
