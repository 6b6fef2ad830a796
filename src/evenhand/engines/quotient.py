"""Objectives other than accuracy and the mean cost, of rows that do not fit in memory.

**Balanced accuracy** is 1 minus the mean cost where an error costs half of 1 / the share of its label: once the labels
are counted, in one more pass, it is a matter of costs.

**An F score** is a quotient N / D. For a number v, N - v D is linear in the decisions, and any of the searches for rows
that are not in memory maximises it: Dinkelbach's iterations (:mod:`evenhand.search.ratio`), each of which takes the
passes of one search. They begin with the F score that a sample reaches, so that two or three are usual. What the
searches prove carries over: an F score is proven for K = 1 and 2, its free threshold included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.reading import TooManyError
from evenhand.rules.objective import ACCURACY, BALANCED
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Options
from evenhand.search import NoRule, Smoothed, Solution, ratio
from evenhand.search.problem import Status

MOST_ITERATIONS = 8


def with_balanced_costs(options: Options, share: float) -> Options:
    """Return options for the mean cost that balanced accuracy is 1 minus of, given the share of positive labels."""
    return dataclasses.replace(options, objective=ACCURACY, costs=options.target.margin_costs(share))


def as_balanced(rule: Rule) -> Rule:
    """Return a rule for those costs with its balanced accuracy as the utility."""
    solution = rule.solution_
    # Equal costs are the accuracy itself, which is the balanced one where both labels are equally frequent.
    more = 0.0 if rule.costs == (1.0, 1.0) else 1.0
    learned: dict[str, Any] = {**rule.learned_from, "objective": BALANCED}
    if "reading" in learned:
        learned["reading"] = {**learned["reading"], "passes": learned["reading"]["passes"] + 1}
    if "quantisation" in learned:
        cells = learned["quantisation"]
        learned["quantisation"] = {**cells, "utility_on_cells": cells["utility_on_cells"] + more}
    return dataclasses.replace(
        rule,
        learned_from=learned,
        solution=dataclasses.replace(
            solution, utility=solution.utility + more, upper_bound=solution.upper_bound + more
        ),
    )


def learn_quotient(ground: Ground, learn: Callable[[Ground], Rule], sample: RawRows) -> Rule:
    """Return the rule with the best F score, or what is known of it after some iterations.

    ``learn`` returns the best rule for a linear utility.
    """
    problem = ground.problem
    assert problem.divisor is not None
    assert problem.weight is not None
    base, slope = problem.divisor
    weight = problem.weight[:, None]
    found: dict[tuple[float, ...], Rule] = {}

    def step(value: float, best: Any) -> tuple[Solution | NoRule, float]:
        inner = ground.under(ratio.at_value(problem, value), weight)
        try:
            rule = learn(inner)
        except TooManyError:
            if not found:
                raise
            return NoRule(proven=False), -np.inf
        assert inner.outcome is not None
        utility, (selected,) = inner.outcome
        found[rule.solution_.z] = rule
        return rule.solution_, value + utility / (base + slope * float(selected))

    climb = ratio.Climb(None, _first_value(ground, sample))
    nodes, bound, last = climb.iterate(problem, step, MOST_ITERATIONS)
    assert climb.best is not None
    rule = found[tuple(climb.best.tolist())]
    if bound <= climb.value + problem.resolution:
        bound = climb.value
    status: Status = "optimal" if bound == climb.value else "gap" if np.isfinite(bound) else "found"
    solution = dataclasses.replace(
        rule.solution_, utility=climb.value, upper_bound=bound, status=status, nodes=nodes, stopped=last.stopped
    )
    return dataclasses.replace(rule, solution=solution)


def _first_value(ground: Ground, sample: RawRows) -> float:
    """Return about the best F score: that of a sample of the rows, without a proof."""
    problem = ground.problem
    assert problem.weight is not None
    whole = ground.under(problem, problem.weight[:, None])
    margin, contrasts, table = whole.arrays(sample, sampled=True)
    rows = dataclasses.replace(
        problem, margin=margin, contrasts=contrasts, gain=table[:, 0], effects=table[:, 1:-1], weight=table[:, -1],
        decider=None,
    )  # fmt: skip
    (result,) = ratio.solve(rows, Smoothed(), ground.options.random_state)
    return ratio.Climb.of(problem).value if isinstance(result, NoRule) else result.utility
