"""A dbt test from a rule: it fails if a stored decision differs from the rule's.

``python dbt_test.py rule.json decided p sex=F:p_f sex=M:p_m --dialect duckdb > tests/decided_by_the_rule.sql``
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import evenhand as eh
from evenhand.export.sql import DIALECTS


def dbt_test(rule: eh.Rule, model: str, *, p_y: str, p_group: Any, decision: str = "decision", dialect: str) -> str:
    """Return the SQL of a singular dbt test, which passes iff it selects no row.

    Parameters
    ----------
    rule
        The rule.
    model
        The dbt model whose rows are tested.
    p_y, p_group, dialect
        As in ``Rule.to_sql``.
    decision
        The column of stored decisions.
    """
    expected = rule.to_sql(p_y=p_y, p_group=p_group, dialect=dialect)
    column = DIALECTS[dialect].name(decision)
    if any("endraw" in text for text in (expected, column)) or not model.isidentifier():
        raise ValueError("A name or a label cannot be written into a dbt model: rename it.")
    # Braces in a label are text, not dbt's.
    expected, column = (f"{{% raw %}}{text}{{% endraw %}}" for text in (expected, column))
    return (
        f"-- Rows whose decision is not the rule's. A score that is not a probability has no decision.\n"
        f"select * from {{{{ ref('{model}') }}}}\n"
        f"where {column} <> {expected}\n"
        f"   or ({column} is null and {expected} is not null)\n"
        f"   or ({column} is not null and {expected} is null)\n"
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rule", type=Path)
    parser.add_argument("model")
    parser.add_argument("score")
    parser.add_argument("groups", nargs="+", help="ATTRIBUTE=GROUP:COLUMN")
    parser.add_argument("--dialect", default="duckdb", choices=sorted(DIALECTS))
    given = parser.parse_args(argv)
    columns: dict[str, dict[str, str]] = {}
    for text in given.groups:
        cell, _, column = text.rpartition(":")
        attribute, _, group = cell.partition("=")
        columns.setdefault(attribute, {})[group] = column
    p_group: Mapping[str, Any] = columns
    rule = eh.Rule.from_json(given.rule.read_text(encoding="utf-8"))
    print(dbt_test(rule, given.model, p_y=given.score, p_group=p_group, dialect=given.dialect), end="")


if __name__ == "__main__":
    main()
