"""A problem in as few dimensions as its rows span, and on an ordinary scale, for the certified search.

Three things are removed from a problem, and restored in its results:

- *Scale.* Costs may be millionths or millions; the search compares utilities with a fixed slack. Factors are powers of
  two, so nothing is rounded.
- *Redundant contrasts.* If a contrast is, on every row, a combination of the others (the densities of all
  groups add up to that of everyone), its z can be 0, because the others have the same effect.
- *A margin in the span of the contrasts,* m = tau . g on every row (floors under all true positive and true negative
  rates do that). All planes then meet in z = tau, and a rule is a direction u = tau - z: decide 1 iff u . g > 0. The
  directions with u_1 > 0 are the rules of a smaller problem whose margin is g_1, and those with u_1 < 0 have -g_1.

Otherwise, such problems have boxes that all planes cut at any size, and nothing is proven.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from evenhand.inputs import FloatArray
from evenhand.search.problem import Problem, typical_size

SURELY_INDEPENDENT = 1e-8
NEGLIGIBLE = 1e-12
ORDINARY = 2.0**8
ROWS_FOR_A_LOOK = 4096


@dataclass(frozen=True, eq=False)
class Part:
    """A smaller problem, and how its rules are rules of the original: ``z = origin + stretch * (matrix @ z_of_part)``.

    ``utility_scale`` is the value of a unit of the part's utility. If ``origin`` is the point where all planes meet,
    any positive stretch gives the same rule; it is chosen such that z is as far from there as the origin is from 0.
    """

    problem: Problem
    origin: FloatArray
    shift: FloatArray
    matrix: FloatArray
    utility_scale: float = 1.0

    def original(self, z: FloatArray) -> FloatArray:
        """Return the rule of the original problem that decides as ``z`` does here."""
        along: FloatArray = self.shift + self.matrix @ z
        largest = float(np.abs(self.origin).max(initial=0.0))
        stretch = largest / float(np.abs(along).max()) if largest > 0.0 else 1.0
        return self.origin + stretch * along


def parts_of(problem: Problem) -> list[Part]:
    """Return problems that together have all rules of this one; only the problem itself if it cannot be reduced."""
    k = problem.dimension
    some = slice(None, None, max(1, len(problem.margin) // ROWS_FOR_A_LOOK))
    margin_scale = _factor(typical_size(problem.margin[some]))
    utility_scale = _factor(float(np.abs(problem.gain).sum()))
    kept, combination = np.arange(k), np.eye(k)
    meeting: FloatArray | None = None
    # Columns that are independent on some rows are so on all.
    if k > 1 and not _surely_independent(np.column_stack([problem.margin[some], problem.contrasts[some]])):
        kept, combination = _independent_columns(problem.contrasts)
        if len(kept) > 1:
            meeting = _meeting_point(problem.margin, problem.contrasts[:, kept])
    if margin_scale == utility_scale == 1.0 and len(kept) == k and meeting is None:
        return [Part(problem, np.zeros(k), np.zeros(k), np.eye(k))]
    assert problem.mixing is not None
    back = np.eye(k)[:, kept]
    contrasts, mixing = problem.contrasts[:, kept], problem.mixing @ combination.T
    if meeting is None:
        smaller = _problem(problem, problem.margin / margin_scale, contrasts, mixing, utility_scale)
        return [Part(smaller, np.zeros(k), np.zeros(k), margin_scale * back, utility_scale)]
    size = _factor(typical_size(contrasts[:, 0]))
    found = []
    for side in (1.0 / size, -1.0 / size):
        smaller = _problem(problem, side * contrasts[:, 0], contrasts[:, 1:], mixing[:, 1:], utility_scale)
        found.append(Part(smaller, back @ meeting, -side * back[:, 0], back[:, 1:], utility_scale))
    return found


def _problem(original: Problem, margin: FloatArray, contrasts: FloatArray, mixing: FloatArray, scale: float) -> Problem:
    return Problem(
        margin=margin,
        contrasts=contrasts,
        gain=original.gain / scale,
        effects=original.effects,
        lower=original.lower,
        upper=original.upper,
        offset=original.offset / scale,
        mixing=mixing,
        weight=original.weight,
    )


def _factor(size: float) -> float:
    """Return the power of two nearest to a size, or 1 if the size is ordinary."""
    if size == 0.0 or 1.0 / ORDINARY <= size <= ORDINARY:
        return 1.0
    return float(2.0 ** np.round(np.log2(size)))


def _surely_independent(columns: FloatArray) -> bool:
    """Return, quickly from the columns' products, whether no column is near a combination of others."""
    sizes = np.abs(columns).max(axis=0, initial=0.0)
    if len(columns) < columns.shape[1] or (sizes == 0.0).any():
        return False
    products = columns.T @ (columns / sizes) / sizes[:, None]
    lengths = np.sqrt(np.diag(products))
    return bool(np.linalg.eigvalsh(products / np.outer(lengths, lengths))[0] > SURELY_INDEPENDENT)


def _independent_columns(contrasts: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
    """Return independent columns, in order, and every column as a combination of them, as the columns of a matrix."""
    k = contrasts.shape[1]
    sizes = np.abs(contrasts).max(axis=0, initial=0.0)
    scaled = contrasts / np.where(sizes > 0.0, sizes, 1.0)
    triangle, order = qr(scaled, mode="r", pivoting=True)
    diagonal = np.abs(np.diag(triangle))
    rank = int((diagonal > NEGLIGIBLE * max(diagonal.max(initial=0.0), 1e-300)).sum())
    if rank == 0:  # no rule changes anything, and one contrast says so
        return np.arange(1), np.eye(1, k)
    kept = np.sort(order[:rank]).astype(np.intp)
    combination = np.linalg.lstsq(scaled[:, kept], scaled, rcond=None)[0] * sizes / sizes[kept, None]
    combination[:, kept] = np.eye(rank)
    return kept, combination


def _meeting_point(margin: FloatArray, contrasts: FloatArray) -> FloatArray | None:
    """Return the point that all planes go through, if there is one."""
    sizes = np.abs(contrasts).max(axis=0)
    point: FloatArray = np.linalg.lstsq(contrasts / sizes, margin, rcond=None)[0] / sizes
    reach = np.abs(margin) + np.abs(contrasts) @ np.abs(point)
    return point if (np.abs(margin - contrasts @ point) <= NEGLIGIBLE * reach).all() else None
