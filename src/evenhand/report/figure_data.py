"""The data of each figure as CSV, in a ``data:`` address."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

_ENDS = ("value", "lower", "upper")


def address(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as a ``data:`` address of a CSV file.

    Text that a spreadsheet would read as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(head) for head in heads])
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return f"data:text/csv;charset=utf-8,{quote(text.getvalue())}"


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value


def rates(summary: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return each group's rates, of the model alone and of each step."""
    states = [("", "the model alone" if summary["steps"] else "as they are", summary["base"])]
    states += [(step["step_tolerance"], "fair", step) for step in summary["steps"]]
    shown = [name for name in names if summary["base"]["groups"][0][name] is not None]
    heads = ["decisions", "tolerance", "attribute", "group", *(f"{name} {end}" for name in shown for end in _ENDS)]
    rows = (
        [kind, at, group["attribute"], group["group"], *(group[name][end] for name in shown for end in _ENDS)]
        for at, kind, state in states
        for group in state["groups"]
    )
    return address(heads, rows)


def trade_off(summary: Mapping[str, Any]) -> str:
    """Return accuracy and largest gap at each tolerance."""
    heads = ["tolerance", *(f"accuracy {end}" for end in _ENDS), *(f"largest gap {end}" for end in _ENDS), "changed"]
    rows = []
    for step in summary["steps"]:
        gap = step["verdicts"][step["largest"]]["gap"]
        figures = [estimate[end] for estimate in (step["accuracy"], gap) for end in _ENDS]
        rows.append([step["step_tolerance"], *figures, step["flipped"]])
    return address(heads, rows)


def bias(picture: Mapping[str, Any], tolerances: Sequence[float]) -> str:
    """Return the data of the chart of the bias scores."""
    if picture["kind"] == "plane":
        names = [*picture["groups"], "unknown"]
        return address([*picture["terms"], "group"], ([x, y, names[code]] for x, y, code in picture["points"]))
    bins = list(zip(picture["edges"][:-1], picture["edges"][1:], strict=True))
    if picture["kind"] == "histogram":
        columns = list(zip(*picture["shares"], strict=True))
        heads = ["from", "to", *(f"share of {group}" for group in picture["groups"])]
    else:
        columns = list(zip(*picture["counts"], strict=True))
        heads = ["from", "to", *(f"rows at tolerance {at:.6g}" for at in tolerances)]
    return address(heads, ([*ends, *values] for ends, values in zip(bins, columns, strict=True)))


def calibration(curves: Iterable[Mapping[str, Any]]) -> str:
    """Return observed against predicted, for each group of one model."""
    keys = ("predicted", "observed", "lower", "upper", "rows")
    rows = ([curve["group"], *(row[key] for key in keys)] for curve in curves for row in curve["bins"])
    return address(["group", *keys], rows)
