"""The dual of Lemma 1: the convex problem whose minimiser is the optimum under plug-in probabilities.

Lemma 1 minimises ``b.z + E (z.F + eta)_+`` over z >= 0 for one-sided constraints ``<kappa, f> <= b``. In margin
form, with decisions d in [0, 1] instead of modifications kappa, the primal is

    max  E[d m]   subject to   lower_c <= E[d h_c] <= upper_c,  0 <= d <= 1,

where h_c = sum_k mixing_ck g_k is the density of constraint c, and its dual is

    min  E[(m - sum_c lambda_c h_c)_+] + sum_c (upper_c lambda_c^+ - lower_c lambda_c^-)

over lambda in R^C, one number for a two-sided bound (the lemma's pair of constraints f_k, -f_k). Then z is
mixing^T lambda. HiGHS solves the primal, whose few rows suit it, and gives lambda as its marginals.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from evenhand.inputs import FloatArray
from evenhand.search.problem import NoRule, Problem, Solution, conclude

ROWS_ON_BOTH_SIDES = 8


@dataclass(frozen=True)
class PlugIn:
    """The optimum of the linear program: decisions in [0, 1], its value, and the dual's lambda and z."""

    decisions: FloatArray
    value: float
    multipliers: FloatArray
    z: FloatArray


@dataclass(frozen=True)
class Dual:
    """The rule that is optimal if the plug-in probabilities are the truth (Lemma 1).

    It does not use labels or groups, so on counted labels it may violate the tolerance: its status is "plug-in".

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(300, random_state=0)
    >>> rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion="eo", search="dual")
    >>> rule.solution_.status
    'plug-in'
    """

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the plug-in optimum for each step of the bounds."""
        found: list[Solution | NoRule] = []
        for step in range(len(problem.lower)):
            started = time.perf_counter()
            plug_in = solve_linear_program(problem, step)
            if plug_in is None:
                # Its program does not use labels: on counted ones a rule may still meet the bounds.
                found.append(NoRule(proven=False))
                continue
            z = _nearby_cell(problem, step, plug_in.z)
            seconds = time.perf_counter() - started
            found.append(conclude(problem, step, z, status="plug-in", nodes=1, seconds=seconds))
        return found


def solve_linear_program(problem: Problem, step: int = 0) -> PlugIn | None:
    """Return the primal and dual optimum under plug-in probabilities, or None if no decisions meet the bounds."""
    assert problem.weight is not None
    assert problem.mixing is not None
    densities = problem.contrasts @ problem.mixing.T * problem.weight[:, None]
    gain = problem.margin * problem.weight
    lower, upper = problem.lower[step], problem.upper[step]
    has_upper, has_lower = np.isfinite(upper), np.isfinite(lower)
    sides = np.vstack([densities.T[has_upper], -densities.T[has_lower]])
    bounds = np.concatenate([upper[has_upper], -lower[has_lower]])
    result = linprog(-gain, A_ub=sides, b_ub=bounds, bounds=(0.0, 1.0), method="highs")
    if result.status != 0 or result.x is None or result.fun is None:
        return None
    marginals = -result.ineqlin.marginals
    multipliers = np.zeros(len(lower))
    multipliers[has_upper] += marginals[: has_upper.sum()]
    multipliers[has_lower] -= marginals[has_upper.sum() :]
    return PlugIn(result.x, -float(result.fun), multipliers, problem.mixing.T @ multipliers)


def _nearby_cell(problem: Problem, step: int, z: FloatArray) -> FloatArray:
    """Return a point inside the best of the cells that meet at z.

    The program's optimum lies on the hyperplanes of up to K rows, which it decides by a fraction; a rule must decide
    them one way or the other. z = 0 is the model's own decisions, and stays.
    """
    if not z.any():
        return z
    level = problem.margin - problem.contrasts @ z
    size = np.abs(problem.margin) + np.abs(problem.contrasts) @ np.abs(z)
    tight = np.flatnonzero(np.abs(level) <= 1e-9 * np.maximum(size, 1e-300))
    tight = tight[np.abs(problem.contrasts[tight]).max(axis=1, initial=0.0) > 0.0]
    if tight.size == 0:
        return z
    _, distinct = np.unique(np.round(problem.contrasts[tight], 9), axis=0, return_index=True)
    rows = tight[np.sort(distinct)][: problem.dimension]
    open_rows = np.ones(len(level), dtype=bool)
    open_rows[tight] = False
    best, best_rank = z, (np.inf, np.inf)
    # Every choice of sides for the first rows; of many rows, the others stay on one side.
    for first in itertools.product((-1.0, 1.0), repeat=min(len(rows), ROWS_ON_BOTH_SIDES)):
        sides = np.ones(len(rows))
        sides[: len(first)] = first
        away = np.linalg.lstsq(problem.contrasts[rows], sides, rcond=None)[0]
        slope = -(problem.contrasts @ away)
        meets = open_rows & (level * slope < 0.0)
        room = float((-level[meets] / slope[meets]).min(initial=2.0))
        candidate = z + 0.5 * room * away
        utility, values = problem.evaluate(problem.decide(candidate))
        rank = (problem.excess(values, step), -utility)
        if rank < best_rank:
            best, best_rank = candidate, rank
    return best
