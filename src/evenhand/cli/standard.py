"""What ``evenhand audit --standard`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand import tables
from evenhand.auditing.standards import STANDARDS, Standard, audit_by_standard, resolve_standard
from evenhand.cli import FAIL, INSUFFICIENT, PASS, output
from evenhand.errors import InputError
from evenhand.inputs import factorize


def say_standard(
    rows: tuple[Any, Any, Mapping[str, Any]],
    standard: str,
    reference: Sequence[str],
    *,
    json: bool,
    report: tuple[Path, str] | None,
    **options: Any,
) -> int:
    """Print the tables of a standard for labels, decisions or scores, and groups; return the exit code.

    ``report`` is the file of a page and its title.
    """
    found = audit_by_standard(*rows, _named(standard, reference, rows[2]), **options)
    if json:
        output.say_json(found.to_dict())
    else:
        output.say(str(found), verdicts=True)
    if report is not None:
        from evenhand.report import write_standard

        write_standard(found, report[0], title=report[1])
        if not json:
            output.say(f"\nThe report is in {report[0]}")
    outcomes = {table.outcome for table in found.tables}
    return FAIL if "fail" in outcomes else INSUFFICIENT if "insufficient evidence" in outcomes else PASS


def _named(standard: str, reference: Sequence[str], groups: Mapping[str, Any]) -> Standard:
    if standard not in STANDARDS:
        raise InputError(f"--standard {standard!r} is not known. {tables.nearest(standard, STANDARDS)}")
    if not reference:
        return resolve_standard(standard)
    known = {name: factorize(column, f"the column {name!r}")[0] for name, column in groups.items()}
    found: dict[str, Any] = {}
    for text in reference:
        attribute, sign, group = text.partition("=")
        if not sign or attribute not in known:
            holders = [name for name, members in known.items() if text in map(str, members)]
            if len(holders) != 1:
                raise InputError(f"--reference {text!r}: write ATTRIBUTE=GROUP. {tables.nearest(attribute, known)}")
            attribute, group = holders[0], text
        found[attribute] = tables.value_from_text(group, known[attribute], f"the column {attribute!r}")
    return STANDARDS[standard](reference=found)
