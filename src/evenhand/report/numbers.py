"""The number formats of reports."""

from __future__ import annotations

from collections.abc import Mapping


def percent(value: float | None) -> str:
    """Return a share as text: ``84.3%``."""
    return "no rows" if value is None else f"{100 * value:.1f}%"


def points(value: float | None, digits: int = 1) -> str:
    """Return a difference of shares in percentage points: ``3.2``."""
    return "unknown" if value is None else f"{100 * value:.{digits}f}"


def tolerance_text(value: float) -> str:
    """Return a tolerance in percentage points with three digits: ``5``, ``0.25``."""
    return f"{100 * value:.3g}"


def count(value: int | None) -> str:
    """Return a whole number with separators."""
    return "" if value is None else f"{value:,}"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with a sign."""
    return "infinite" if value is None else f"{value:+.{digits}f}".replace("-", "−")


def interval(estimate: Mapping[str, float | None] | None, unit: str = "percent") -> str:
    """Return an interval as text: ``82.9 to 84.4``."""
    if estimate is None or estimate["lower"] is None or estimate["upper"] is None:
        return ""
    return f"{100 * estimate['lower']:.1f} to {100 * estimate['upper']:.1f}"


def ratio(estimate: Mapping[str, float | None]) -> str:
    """Return a ratio of rates with its interval: ``0.58 (0.53 to 0.63)``."""
    if estimate["value"] is None:
        return "no rows"
    return f"{estimate['value']:.2f} ({estimate['lower']:.2f} to {estimate['upper']:.2f})"


def words(name: str) -> str:
    """Return a criterion's name in words."""
    return name.replace("_", " ")
