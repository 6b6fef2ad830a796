"""A view in a warehouse that decides every row of a table of scores, and is always up to date."""

from __future__ import annotations

from typing import Any

import evenhand as eh
from evenhand.export.sql import DIALECTS


def create_view(rule: eh.Rule, view: str, table: str, *, p_y: str, p_group: Any, dialect: str = "ansi") -> str:
    """Return the statement that creates a view: all columns of a table, ``fair_margin`` and ``decision``.

    Parameters
    ----------
    rule : Rule
        The rule.
    view, table : str
        The names of the new view and of the table with the scores.
    p_y, p_group, dialect
        As in :meth:`evenhand.Rule.to_sql`.
    """
    name = DIALECTS[dialect].name
    margin, decision = (
        rule.to_sql(p_y=p_y, p_group=p_group, dialect=dialect, output=output) for output in ("margin", "decision")
    )
    return (
        f"CREATE VIEW {name(view)} AS\n"
        f"SELECT *,\n"
        f"  {margin} AS {name('fair_margin')},\n"
        f"  {decision} AS {name('decision')}\n"
        f"FROM {name(table)}"
    )
