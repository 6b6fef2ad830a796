"""The smallest ceiling that fresh rows certify for a fixed rule, for :class:`evenhand.MinimaxRate`.

The ceiling of a population is not known in advance, so there is nothing to test. But a bound can be stated: a rule is
learnt on one part of the rows, and the other part gives an exact upper bound on the rate of each group. The largest of
these bounds is the certified ceiling.

The promise: of the samples of one population, at most a share 1 - confidence leads to a rule with a group whose rate in
the population is above the certified ceiling. Given the learning rows, the rule is fixed. Let g be the group with the
largest rate in the population. Its count on the certifying rows is binomial (given its number of trials), so its exact
bound is below its rate with a probability of at most 1 - confidence. The certified ceiling is at least the bound of g,
and no group's rate is above that of g. No correction for the number of groups is needed, because only the bound of one
group, which does not depend on the certifying rows, has to hold.

For a mixture, the decisions on the certifying rows are drawn: see :mod:`evenhand.rules.mixed_confidence`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.rows import Rows
from evenhand.rules.certify import claims
from evenhand.rules.events import RATES
from evenhand.rules.rate_bounds import MaximumRate, MinimaxRate
from evenhand.rules.reserving import rows_of
from evenhand.rules.rungs import certificate, tally
from evenhand.rules.system import write_out


@dataclass(frozen=True)
class Certified:
    """A certified ceiling.

    Attributes
    ----------
    criterion : MaximumRate
        The ceiling as a criterion, which holds in the population with the confidence.
    entry : dict
        What ``learned_from["confidence"]`` records, as plain data.
    """

    criterion: MaximumRate
    entry: dict[str, Any]


def certified_ceiling(part: MinimaxRate, rows: Rows, decided: NDArray[np.bool_], confidence: float) -> Certified:
    """Return the smallest ceiling that some rows certify for the decisions of a fixed rule.

    Parameters
    ----------
    part : MinimaxRate
        The criterion.
    rows : Rows
        The certifying rows, which the rule does not depend on.
    decided : array of bool
        Their decisions.
    confidence : float
        The probability with which the ceiling holds.
    """
    system = write_out(MaximumRate(part.rate, 1.0, attribute=part.attribute), rows.groups)
    events = system.measured_events
    inside = np.column_stack([rows_of(event, rows) for event in events])
    counts = tally(decided, rows, events, inside)
    claimed = claims(system, 0.0)
    constant = RATES[part.rate].constant
    # Each claim is on the rate minus this constant.
    bounds = [constant + claim.bound(*counts, confidence) for claim in claimed]
    ceiling = float(np.clip(max(bounds), 0.0, 1.0))
    unbounded = np.full((2, len(system.measured)), np.inf)
    entries = certificate(system, (-unbounded[0], unbounded[1]), claimed, [ceiling - constant] * len(claimed))
    found = MaximumRate(part.rate, ceiling, attribute=part.attribute)
    return Certified(
        found, {"rules_learnt": 1, "rules_certified": 1, "certified_ceiling": ceiling, "constraints": entries}
    )
