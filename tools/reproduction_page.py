"""Copy the results of ``evenhand reproduce`` into the repository, and their tables and figures into the page.

    python tools/reproduction_page.py evenhand-experiments

Experiments that ran with ``--settings authors`` get one table, beside the same rows with our settings.

Each section of docs/reproduction.md that is named after an experiment has that experiment's tables in their order. They
are replaced; the sentences around them are not, and a person has to check them.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproduction.md"
RESULTS = ROOT / "benchmarks" / "results" / "reproduction"
FIGURES = ROOT / "docs" / "images" / "reproduction"
AUTHORS = RESULTS / "authors"
BOTH_SETTINGS = "Both settings"
TABLE = re.compile(r"(?m)(?:^\|.*\n?)+")


def sections(page: str) -> dict[str, str]:
    """Return the sections of the page by their titles, the text before the first under the empty title."""
    parts = re.split(r"(?m)^(?=## )", page)
    return {part.partition("\n")[0].removeprefix("## ") if part.startswith("## ") else "": part for part in parts}


def tables(text: str) -> list[str]:
    """Return the Markdown tables of a text, in order."""
    return [found.group().strip() for found in TABLE.finditer(text)]


def with_tables(section: str, found: list[str]) -> str:
    """Return a section with its tables replaced."""
    left = iter(found)
    made = TABLE.sub(lambda old: next(left) + "\n" * (len(old.group()) - len(old.group().rstrip("\n"))), section)
    if rest := list(left):
        raise SystemExit(f"{section.partition(chr(10))[0]}: the page has no place for {len(rest)} more tables.")
    return made


def algorithms(text: str) -> dict[tuple[str, str], list[str]]:
    """Return test accuracy and test gap of the paper's algorithms, by method and tolerance."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in tables(text)[0].splitlines()]
    return {(row[0], row[1]): row[2:4] for row in rows if row[0].startswith("MBS (Algorithm")}


def both_settings() -> str:
    """Return the table of the committed results with the authors' settings and with ours."""
    heads = ["experiment", "method", "asked for"]
    heads += ["test accuracy, authors' settings", "test gap", "test accuracy, our settings", "test gap"]
    rows = [heads, ["---"] * len(heads)]
    for source in sorted(AUTHORS.glob("*.md")):
        ours = algorithms((RESULTS / source.name).read_text(encoding="utf-8"))
        for key, theirs in algorithms(source.read_text(encoding="utf-8")).items():
            rows.append([f"`{source.stem}`", *key, *theirs, *ours[key]])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(directory: str) -> None:
    """Copy all available results."""
    AUTHORS.mkdir(parents=True, exist_ok=True)
    for source in Path(directory).glob("*-authors/*.md"):
        shutil.copyfile(source, AUTHORS / source.name)
    page = PAGE.read_text(encoding="utf-8")
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name, section in sections(page).items():
        source = Path(directory) / name / f"{name}.md"
        if not name or not source.is_file():
            continue
        text = source.read_text(encoding="utf-8")
        page = page.replace(section, with_tables(section, tables(text)))
        (RESULTS / source.name).write_text(text, encoding="utf-8")
        for figure in source.parent.glob("*.svg"):
            shutil.copyfile(figure, FIGURES / figure.name)
    section = sections(page)[BOTH_SETTINGS]
    page = page.replace(section, with_tables(section, [both_settings()]))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
