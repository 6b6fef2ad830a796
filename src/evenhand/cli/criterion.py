"""Criteria in the syntax of the command line."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Sequence
from typing import Any

from evenhand.errors import InputError
from evenhand.rules import criteria
from evenhand.rules.criteria import Criterion, MaximumRate, MinimaxRate, MinimumRate, SelectionBudget, SelectionRatio
from evenhand.rules.events import Intersection
from evenhand.tables import nearest

_RATIO = ("selection_ratio", "ratio")
_FLOOR = ("minimum_rate", "floor")
_CEILING = ("maximum_rate", "ceiling")
_MINIMAX = ("minimax_rate", "minimax")
_BUDGET = ("selection_budget", "budget")
_WITHIN = re.compile(r"(.+?)\s+within\s+(\S.*?)(?:\s+thin\s+([0-9]{1,9}))?\s*")
_NUMBER = r"\s*([0-9.eE+-]+)\s*"


def combine(texts: Sequence[str] | None, attributes: Sequence[str] = ()) -> Criterion | None:
    """Return the conjunction of the written criteria."""
    if not texts:
        return None
    return functools.reduce(operator.and_, (parse(text, attributes) for text in texts))


def parse(text: str, attributes: Sequence[str] = ()) -> Criterion:
    """Return the criterion that a text names.

    Parameters
    ----------
    text : str
        ``dp``, ``eo``, ``eop``, ``pe``, ``ap`` or ``pp``, or their full names, optionally with a tolerance, as in
        ``dp:0.02``;
        ``selection_ratio:0.8``; ``minimum_rate:precision:0.8`` (or ``minimum_rate:precision>=0.8``);
        ``maximum_rate:fpr:0.1`` (or ``maximum_rate:fpr<=0.1``); ``minimax_rate:error``; ``budget:0.2``,
        ``budget:0.1..0.2`` (or ``budget:<=0.2``, ``budget:>=0.1``). A suffix ``@sex`` selects one attribute, and
        ``@sex,race`` the two crossed. At the end, ``within occupation`` compares groups inside each stratum of a
        column, and ``within occupation thin 30`` leaves those with fewer than 30 rows in a cell to the model.
    attributes : sequence of str, default=()
        The attributes in the data.

    Examples
    --------
    >>> from evenhand.cli.criterion import parse
    >>> parse("minimum_rate:tpr:0.7@sex")
    MinimumRate(attribute='sex', tolerance=None, rate='tpr', floor=0.7)
    >>> parse("dp:0.02@sex,race", ["sex", "race"]).attribute
    Intersection('sex', 'race')
    >>> parse("dp@sex within occupation thin 30").within
    'occupation'
    """
    inside = _WITHIN.fullmatch(text)
    if inside is not None:
        return _inside(text, parse(inside[1], attributes), inside[2], inside[3])
    head, at, where = text.partition("@")
    name, colon, value = (part.strip() for part in head.partition(":"))
    name = name.lower().replace("-", "_")
    options: dict[str, Any] = {"attribute": _attribute(text, where, attributes)} if at else {}
    if name in _RATIO:
        return SelectionRatio(_number(text, value, "selection_ratio:0.8"), **options)
    for names, kind, sign, example in (
        (_FLOOR, MinimumRate, ">=", "minimum_rate:precision:0.8"),
        (_CEILING, MaximumRate, "<=", "maximum_rate:fpr:0.1"),
    ):
        if name in names:
            found = re.fullmatch(rf"\s*([a-z_]+)\s*(?:{sign}|:|=){_NUMBER}", value)
            if found is None:
                raise InputError(f"--criterion {text!r}: write {example}.")
            return kind(found[1], _number(text, found[2], example), **options)  # type: ignore[arg-type]
    if name in _MINIMAX:
        return MinimaxRate(value or "error", **options)  # type: ignore[arg-type]
    if name in _BUDGET:
        return SelectionBudget(*_bounds(text, value), **options)
    try:
        plain = type(criteria.resolve(name))
    except InputError:
        known = [*criteria.NAMES, _RATIO[0], _FLOOR[0], _CEILING[0], _MINIMAX[0], _BUDGET[0]]
        raise InputError(f"--criterion {text!r} is not known. {nearest(name, known)}") from None
    if colon:
        options["tolerance"] = _number(text, value, f"{name}:0.05")
    return plain(**options)


def _inside(text: str, criterion: Criterion, column: str, thin: str | None) -> Criterion:
    """Return a criterion within the strata of a column."""
    if "within" not in {field.name for field in dataclasses.fields(criterion)}:
        raise InputError(f"--criterion {text!r}: within needs a criterion that compares groups, such as dp.")
    options: dict[str, Any] = {"within": column, "thin": None if thin is None else int(thin)}
    return dataclasses.replace(criterion, **options)


def _attribute(text: str, where: str, attributes: Sequence[str]) -> str | Intersection:
    """Return the attribute after "@"; a comma crosses attributes, unless it is part of a name."""
    name = where.strip()
    parts = [name] if name in attributes else [part.strip() for part in name.split(",")]
    for part in parts:
        if not part or (attributes and part not in attributes):
            raise InputError(f"--criterion {text!r}: there is no --sensitive {part!r}. {nearest(part, attributes)}")
    return parts[0] if len(parts) == 1 else Intersection(*parts)


def _bounds(text: str, value: str) -> tuple[float, float]:
    example = "budget:0.2 or budget:0.1..0.2"
    for pattern, places in (
        (rf"(?:<=)?{_NUMBER}", (None, 1)),
        (rf">={_NUMBER}", (1, None)),
        (rf"{_NUMBER}\.\.{_NUMBER}", (1, 2)),
    ):
        found = re.fullmatch(pattern, value)
        if found is not None and ".." not in found[1]:
            lower, upper = (None if place is None else _number(text, found[place], example) for place in places)
            return 0.0 if lower is None else lower, 1.0 if upper is None else upper
    raise InputError(f"--criterion {text!r}: write {example}.")


def _number(text: str, value: str, example: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"--criterion {text!r}: write a number, as in {example}.") from None
