"""The kinds of evidence: counted labels and groups, the model's expectations, or the mean of both.

Each kind gives, for every row, the gain in utility of deciding 1 and its share in the rate of every event.
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
from evenhand.rules.events import FEWEST_ROWS, Event, Kind
from evenhand.rules.objective import ACCURACY, Objective

EvidenceName = Literal["labels", "model", "both"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Per row: the gain of deciding 1, and the share in each event's rate; and the utility of deciding 0 everywhere.

    ``counts`` is each event's effective number of rows, ``divisor`` that of :class:`evenhand.rules.objective.Worth`.
    """

    gain: FloatArray
    shares: FloatArray
    offset: float
    priors: FloatArray
    counts: FloatArray
    divisor: tuple[float, float] | None = None

    def mean(self, other: Evidence) -> Evidence:
        """Return the mean of two kinds of evidence."""
        divisor = None
        if self.divisor is not None and other.divisor is not None:
            divisor = 0.5 * (self.divisor[0] + other.divisor[0]), self.divisor[1]
        return Evidence(
            0.5 * (self.gain + other.gain),
            0.5 * (self.shares + other.shares),
            0.5 * (self.offset + other.offset),
            0.5 * (self.priors + other.priors),
            self.counts,
            divisor,
        )


def positive_share(rows: Rows, *, counted: bool) -> float:
    """Return the share of positive labels, counted or expected by the model."""
    if not counted:
        return float(rows.weights @ rows.p_y / rows.weights.sum())
    if rows.positive is None:
        raise InputError("These rows have no labels, but labels are counted: pass them, or set evidence='model'.")
    return float(rows.weights[rows.positive].sum() / rows.weights.sum())


def predictive_value(rows: Rows, decided: NDArray[np.bool_], kinds: frozenset[Kind], *, counted: bool) -> float:
    """Return the precision of some decisions over everyone, or the negative predictive value, by kind.

    It is clipped to [0.05, 0.95], and one half if there are no such decisions.
    """
    right = rows.p_y if not counted or rows.positive is None else rows.positive.astype(np.float64)
    if "npv" in kinds:
        decided, right = ~decided, 1.0 - right
    inside = rows.weights * decided
    return float(np.clip(inside @ right / inside.sum(), 0.05, 0.95)) if inside.sum() > 0.0 else 0.5


def counted(rows: Rows, events: Sequence[Event], objective: Objective | None = None) -> Evidence:
    """Return the evidence of counted labels and groups (the paper's)."""
    objective = Objective() if objective is None else objective
    share = positive_share(rows, counted=True)
    assert rows.positive is not None
    y, weights = rows.positive, rows.weights
    worth = objective.worth(share)
    total = weights.sum()
    gain = np.where(y, worth.positive, worth.negative) * weights / total
    # The weights of the negative labels are summed: 1 minus the share of the others would be rounded.
    offset = float(weights[~y].sum() / total) if objective.name == ACCURACY else worth.nothing
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
    return Evidence(gain, shares, offset, priors, counts, worth.divisor)


def _worth(weights: FloatArray, copies: NDArray[np.int64] | None) -> float:
    """Return Kish's effective number of rows; a row that stands for several counts as that many equal weights."""
    squares = weights**2 if copies is None else weights**2 / np.maximum(copies, 1)
    return float(weights.sum() ** 2 / squares.sum())


def expected_offset(weights: FloatArray, p_y: FloatArray, objective: Objective) -> float:
    """Return the expected utility of deciding 0 everywhere."""
    if objective.name == ACCURACY:
        return float(weights @ (1.0 - p_y) / weights.sum())
    return objective.worth(float(weights @ p_y / weights.sum())).nothing


def expected(rows: Rows, posteriors: FloatArray, objective: Objective) -> Evidence:
    """Return the evidence of the model's own expectations, without labels or groups."""
    weights, p_y = rows.weights, rows.p_y
    total = weights.sum()
    mass = weights @ posteriors
    empty = np.flatnonzero(mass <= 0.0)
    if empty.size:
        raise InputError(
            f"The model gives event {empty[0]} probability 0 in every row, so its expected rate is undefined."
        )
    worth = objective.worth(positive_share(rows, counted=False))
    offset = expected_offset(weights, p_y, objective)
    gain = ((worth.positive - worth.negative) * p_y + worth.negative) * weights / total
    # The two sums add the rows in different orders, so the share of a certain event may exceed 1 by rounding.
    priors = np.minimum(mass / total, 1.0)
    shares = posteriors * weights[:, None] / mass
    return Evidence(gain, shares, offset, priors, priors * _worth(weights, rows.copies), worth.divisor)
