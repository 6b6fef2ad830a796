"""The rungs of a ladder: the bounds that rules are learnt within, the counts that test them, and what is certified."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.rows import Rows
from evenhand.rules.certify import Claim
from evenhand.rules.events import Event
from evenhand.rules.setting import Setting
from evenhand.rules.system import System
from evenhand.statistics.intervals import normal_quantile

RUNGS = 24
# The parts of a tolerance within which rules for predictive parity are learnt, from strict to loose.
PARTS_OF_TOLERANCE = (0.1, 0.25, 0.4, 0.6, 0.8, 1.0)
# In widths of the certifying bound. Learning and certifying rows disagree by about 1.5 widths.
WIDEST = 5.0
NARROWEST = 0.2


def tested(setting: Setting) -> System:
    """Return the bounds that are tested: where a level was searched for, those on differences, which have no level."""
    if not setting.system.levels:
        return setting.system
    return dataclasses.replace(setting.system, measured=setting.reported)


def tally(
    decided: NDArray[np.bool_], rows: Rows, events: Sequence[Event], inside: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the successes and trials that each event counts among some decisions."""
    assert rows.positive is not None
    positive = rows.positive
    everyone = np.ones(len(decided), dtype=bool)
    kinds = {
        "selection": (decided, everyone),
        "accuracy": (decided == positive, everyone),
        "precision": (decided & positive, decided),
        "npv": (~decided & ~positive, ~decided),
    }
    found = [
        [np.count_nonzero(own & which) for which in kinds[event.kind]]
        for event, own in zip(events, inside.T, strict=True)
    ]
    return np.array(found, dtype=np.int64)[:, 0], np.array(found, dtype=np.int64)[:, 1]


def expected_widths(system: System, rates: FloatArray, counts: FloatArray, confidence: float) -> FloatArray:
    """Return about how far beyond its estimate a constraint's bound will be, from the events' rates and rows."""
    shrunk = (rates * counts + 1.0) / (counts + 2.0)
    matrix = system.matrix
    widths: FloatArray = np.sqrt(matrix**2 @ (shrunk * (1.0 - shrunk) / counts))
    return widths * normal_quantile(max(confidence, 0.6), one_sided=True)


def inner_bounds(lower: FloatArray, upper: FloatArray, widths: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the bounds for learning a ladder's rules, from strict to loose, the last as given.

    A rung leaves every constraint a margin of several widths, five on the first rung and none on the last, so that
    constraints with few certifying rows are tightened most. A band is never narrowed to less than a fifth of a width on
    either side of its middle: the rows could not detect the difference, and there might be no feasible rule.

    Parameters
    ----------
    lower, upper : arrays of shape (constraints,)
        The bounds to be certified.
    widths : array of shape (constraints,)
        The result of :func:`expected_widths`.

    Returns
    -------
    lower, upper : arrays of shape (rungs, constraints)

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.rules.rungs import inner_bounds
    >>> lower, upper = inner_bounds(np.array([-0.05]), np.array([0.05]), np.array([0.02]))
    >>> float(upper[0, 0].round(3)), float(upper[-1, 0])
    (0.004, 0.05)
    """
    half = (upper - lower) / 2.0
    most = np.clip((half - NARROWEST * widths) / widths, 0.0, WIDEST)
    margins = np.linspace(most.max(), 0.0, RUNGS)[:, None]
    taken = np.minimum(margins, most) * widths
    return lower + taken, upper - taken


def certificate(
    system: System, rung: tuple[FloatArray, FloatArray], claimed: Sequence[Claim], bounds: Sequence[float]
) -> list[dict[str, Any]]:
    """Return, as plain data, the bounds that each constraint was learnt within and is certified to meet."""
    inner = rung if system.plain else np.full((2, len(system.measured)), np.inf)
    entries: list[dict[str, Any]] = [
        {"name": constraint.name, "inner_lower": plain(lower), "inner_upper": plain(upper)}
        for constraint, lower, upper in zip(system.measured, *inner, strict=True)
    ]
    for entry in entries:
        entry |= {"certified_lower": None, "certified_upper": None}
    for claim, bound in zip(claimed, bounds, strict=True):
        # A bound is computed to within a hundredth of its width, but the test has shown that it is within the limit.
        known = min(bound, claim.limit)
        entries[claim.constraint][f"certified_{claim.side}"] = known if claim.side == "upper" else -known
    return entries


def plain(value: float) -> float | None:
    """Return a number for JSON; None if it is not finite."""
    return float(value) if math.isfinite(value) else None
