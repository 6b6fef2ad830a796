"""Bounds on sums of rates, and which of them are linear in the decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from evenhand.errors import InputError
from evenhand.rules.events import Event


@dataclass(frozen=True)
class Constraint:
    """A linear bound on event rates: ``lower - tolerance <= sum_e c_e rate_e <= upper + tolerance``.

    If ``tolerance`` is ``None``, it is the caller's tolerance, which a frontier varies.
    """

    name: str
    terms: tuple[tuple[Event, float], ...]
    lower: float
    upper: float
    tolerance: float | None = None

    def bounds(self, tolerance: float) -> tuple[float, float]:
        """Return the two bounds, given the caller's tolerance."""
        slack = tolerance if self.tolerance is None else self.tolerance
        return self.lower - slack, self.upper + slack

    def __str__(self) -> str:
        low, high = (_end_text(end, sign, self.tolerance) for end, sign in ((self.lower, -1), (self.upper, 1)))
        return f"{low + ' <= ' if low else ''}{self.name}{' <= ' + high if high else ''}"


def _end_text(end: float, sign: int, tolerance: float | None) -> str:
    if not np.isfinite(end):
        return ""
    if tolerance is not None:
        return f"{end + sign * tolerance:g}"
    slack = "-tolerance" if sign < 0 else "tolerance"
    return slack if end == 0.0 else f"{end:g} {'-' if sign < 0 else '+'} tolerance"


def sum_text(terms: Iterable[tuple[Event, float]]) -> str:
    """Return a sum of rates in mathematical notation."""
    text = ""
    for event, coefficient in terms:
        size = "" if abs(coefficient) == 1.0 else f"{abs(coefficient):g} "
        sign = (" - " if text else "-") if coefficient < 0.0 else (" + " if text else "")
        text += f"{sign}{size}{'rate' if event.kind == 'selection' else event.kind}({event})"
    return text


def check_linear(constraint: Constraint) -> None:
    """Raise if a bound is not linear in the decisions: a precision allows only one bound on one group's value."""
    kinds = [event.kind for event, _ in constraint.terms]
    if not {"precision", "npv"} & set(kinds):
        return
    one_sided = np.isinf(constraint.lower) != np.isinf(constraint.upper)
    if len(kinds) > 1 or not one_sided or constraint.tolerance is None:
        raise InputError(
            f"{constraint.name}: a precision or negative predictive value can only be bounded alone, from one side, by"
            " a fixed number. Use one LinearConstraint for each bound."
        )
