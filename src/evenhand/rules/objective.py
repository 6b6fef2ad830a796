"""The objectives: accuracy, minus the mean cost, balanced accuracy, or an F score.

The first three are linear in the decisions: selecting a positive row has one value, selecting a negative row
another. An F score is a quotient of two such sums; :mod:`evenhand.search.ratio` maximises it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from evenhand.arguments import shown
from evenhand.errors import InputError
from evenhand.rules.scores import Costs

ACCURACY, BALANCED, COST = "accuracy", "balanced_accuracy", "minus_mean_cost"
LARGEST_BETA = 100.0
_F_SCORE = re.compile(r"f([0-9]+(?:\.[0-9]+)?)")


@dataclass(frozen=True)
class Worth:
    """The value of decisions, given the share of positive labels.

    Attributes
    ----------
    positive, negative : float
        The value that a positive decision adds on rows of this label, if they are all rows.
    nothing : float
        The utility if every decision is negative.
    divisor : (float, float) or None
        The utility is divided by the first, plus the second times the share of positive decisions.
    """

    positive: float
    negative: float
    nothing: float
    divisor: tuple[float, float] | None = None


@dataclass(frozen=True)
class Objective:
    """An objective by its name; ``beta`` is that of an F score, ``costs`` those of ``minus_mean_cost``."""

    name: str = ACCURACY
    costs: Costs = (1.0, 1.0)
    beta: float | None = None

    @property
    def is_ratio(self) -> bool:
        """Whether it is a quotient; its rules then have a free threshold."""
        return self.beta is not None

    def margin_costs(self, share: float) -> Costs:
        """Return the costs of a false positive and a false negative that define a row's margin.

        Balanced accuracy weights the labels by their shares, so that the model alone decides positively if
        P(Y = positive | x) is above the share of positive labels. The threshold of an F score is found by the search.
        """
        if self.name != BALANCED:
            return self.costs
        if not 0.0 < share < 1.0:
            raise InputError("objective='balanced_accuracy' needs rows of both labels, but these rows have only one.")
        return 0.5 / (1.0 - share), 0.5 / share

    def worth(self, share: float) -> Worth:
        """Return the value of decisions if this share of the labels is positive."""
        if self.beta is not None:
            if share <= 0.0:
                raise InputError(f"objective={self.name!r} needs rows with the positive label, but there are none.")
            # F = (1 + b^2) TP / (S + b^2 P) for shares TP of true positives, S of positive decisions, P of positives.
            scale = 2.0 / (1.0 + self.beta**2)
            return Worth(2.0, 0.0, 0.0, (scale * self.beta**2 * share, scale))
        false_positive, false_negative = self.margin_costs(share)
        if self.name == ACCURACY:
            return Worth(false_negative, -false_positive, 1.0 - share)
        return Worth(false_negative, -false_positive, 0.5 if self.name == BALANCED else -false_negative * share)


def in_words(name: str) -> str:
    """Return the name of an objective for texts."""
    words = {BALANCED: "balanced accuracy", COST: "minus the mean cost"}
    return words.get(name, name if name == ACCURACY else name.upper())


def read_objective(objective: Any, costs: Costs = (1.0, 1.0)) -> Objective:
    """Return the objective that a text names.

    Parameters
    ----------
    objective : str
        "accuracy", "balanced_accuracy", or an F score by its usual name: "f1", "f2", "f0.5".
    costs : (false positive, false negative), default=(1, 1)
        With any other costs, "accuracy" means the mean cost, which is minimised.

    Examples
    --------
    >>> from evenhand.rules.objective import read_objective
    >>> read_objective("f2").beta
    2.0
    """
    name = objective.lower() if isinstance(objective, str) else ""
    if name == ACCURACY:
        return Objective() if costs == (1.0, 1.0) else Objective(COST, costs)
    found = _F_SCORE.fullmatch(name)
    beta = None if found is None else float(found[1])
    if name != BALANCED and beta is None:
        hint = " Name the F score: 'f2' has beta = 2." if name in ("f", "fbeta", "f_beta") else ""
        raise InputError(
            "objective must be 'accuracy', 'balanced_accuracy', or an F score such as 'f1'; got"
            f" {shown(objective)}.{hint}"
        )
    if beta is not None and not 0.0 < beta <= LARGEST_BETA:
        raise InputError(
            f"The beta of an F score must be above 0 and at most {LARGEST_BETA:g}; got {shown(objective)}."
        )
    if costs != (1.0, 1.0):
        raise InputError(
            f"costs cannot be combined with an objective: leave out costs, or objective={shown(objective)}."
        )
    if beta is None:
        return Objective(BALANCED)
    return Objective(f"f{beta:g}", beta=beta)
