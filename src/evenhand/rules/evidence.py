"""What counts as evidence: labels and groups that were counted, what the model expects, or the mean of both.

Each kind gives, for every row, its gain in utility when decided 1 and its share in the rate of every event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.rows import Rows
from evenhand.rules.events import FEWEST_ROWS, Event
from evenhand.rules.scores import Costs

EvidenceName = Literal["labels", "model", "both"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Per row: the gain of deciding 1, and the share in each event's rate; and the utility of deciding 0 throughout.

    ``counts`` is each event's effective number of rows.
    """

    gain: FloatArray
    shares: FloatArray
    offset: float
    priors: FloatArray
    counts: FloatArray

    def mean(self, other: Evidence) -> Evidence:
        """Return the mean of two kinds of evidence."""
        return Evidence(
            0.5 * (self.gain + other.gain),
            0.5 * (self.shares + other.shares),
            0.5 * (self.offset + other.offset),
            0.5 * (self.priors + other.priors),
            self.counts,
        )


def counted(rows: Rows, events: Sequence[Event], costs: Costs = (1.0, 1.0)) -> Evidence:
    """Return the evidence of counted labels and groups (the paper's)."""
    if rows.positive is None:
        raise InputError("These rows have no labels, and labels are counted: pass them, or say evidence='model'.")
    y, weights = rows.positive, rows.weights
    false_positive, false_negative = costs
    total = weights.sum()
    gain = np.where(y, false_negative, -false_positive) * weights / total
    offset = float((weights[~y] if costs == (1.0, 1.0) else -false_negative * weights[y]).sum() / total)
    shares = np.empty((len(y), len(events)))
    priors, counts = np.empty(len(events)), np.empty(len(events))
    for j, event in enumerate(events):
        inside = np.ones(len(y), dtype=bool)
        if event.attribute is not None:
            attribute = rows.attributes[event.attribute]
            inside = attribute.codes == attribute.groups.index(event.group)
        if event.label is not None:
            inside &= y == bool(event.label)
        present = inside & (weights > 0.0)
        found = int(present.sum() if rows.copies is None else rows.copies[present].sum())
        if found < FEWEST_ROWS:
            few = "no rows" if found == 0 else f"only {found} row"
            raise InputError(
                f"There are {few} with {event}: its rate cannot be counted. Merge small groups, or add data."
            )
        inner = np.where(inside, weights, 0.0)
        mass = inner.sum()
        shares[:, j] = inner / mass
        priors[j] = mass / total
        counts[j] = _worth(inner, rows.copies)
    return Evidence(gain, shares, offset, priors, counts)


def _worth(weights: FloatArray, copies: NDArray[np.int64] | None) -> float:
    """Return Kish's effective number of rows; rows that stand for several are of those several's equal weights."""
    squares = weights**2 if copies is None else weights**2 / np.maximum(copies, 1)
    return float(weights.sum() ** 2 / squares.sum())


def expected_offset(weights: FloatArray, p_y: FloatArray, costs: Costs) -> float:
    """Return the expected utility of deciding 0 throughout."""
    unlike = (1.0 - p_y) if costs == (1.0, 1.0) else -costs[1] * p_y
    return float(weights @ unlike / weights.sum())


def expected(rows: Rows, margins: FloatArray, posteriors: FloatArray, costs: Costs) -> Evidence:
    """Return the evidence of the model's own expectations: no label and no group is looked at."""
    weights, p_y = rows.weights, rows.p_y
    total = weights.sum()
    mass = weights @ posteriors
    empty = np.flatnonzero(mass <= 0.0)
    if empty.size:
        raise InputError(f"The model gives no row any probability of event {empty[0]}: its rate cannot be expected.")
    offset = expected_offset(weights, p_y, costs)
    # The two sums add the rows in different orders, so that a certain event's share may be above 1 by rounding.
    priors = np.minimum(mass / total, 1.0)
    shares = posteriors * weights[:, None] / mass
    return Evidence(margins * weights / total, shares, offset, priors, priors * _worth(weights, rows.copies))
