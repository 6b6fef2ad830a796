"""Smaller versions of a problem: scaled to size 1, a sample of its rows, and the part inside a box around a rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.search.problem import Problem

ROWS_OF_A_STRATUM = 100


@dataclass(frozen=True, eq=False)
class Scaled:
    """A problem whose margins, contrasts and gains have size 1. Factors are powers of two, so nothing is rounded."""

    problem: Problem
    stretch: FloatArray
    margin_scale: float
    utility_scale: float

    @classmethod
    def of(cls, problem: Problem) -> Scaled:
        """Scale a problem."""
        margin_scale = _power_of_two(np.abs(problem.margin))
        stretch = np.array([_power_of_two(np.abs(column)) for column in problem.contrasts.T])
        utility_scale = _power_of_two(np.abs(problem.gain).sum(keepdims=True))
        assert problem.mixing is not None
        scaled = Problem(
            margin=problem.margin / margin_scale,
            contrasts=problem.contrasts / stretch,
            gain=problem.gain / utility_scale,
            effects=problem.effects,
            lower=problem.lower,
            upper=problem.upper,
            offset=problem.offset / utility_scale,
            mixing=problem.mixing * stretch,
            weight=problem.weight,
        )
        return cls(scaled, stretch, margin_scale, utility_scale)

    def inward(self, z: FloatArray) -> FloatArray:
        """Return the scaled problem's z for a rule of the original."""
        return z * self.stretch / self.margin_scale

    def outward(self, z: FloatArray) -> FloatArray:
        """Return the original's z for a rule of the scaled problem."""
        return z * self.margin_scale / self.stretch


def _power_of_two(sizes: FloatArray) -> float:
    """Return the power of two nearest to the mean of the sizes that are not 0; 1 if all are 0."""
    sizes = sizes[sizes > 0.0]
    return float(2.0 ** np.round(np.log2(sizes.mean()))) if sizes.size else 1.0


def stratified_sample(problem: Problem, rows: int, rng: np.random.Generator) -> Problem:
    """Return a problem with about this number of representative rows: each stratum of equal effects has its share.

    Small strata are kept completely, or at least some of their rows, with smaller weights.
    """
    n = len(problem.margin)
    stratum = _strata(problem, rng)
    count = np.bincount(stratum)
    taken = np.minimum(count, np.maximum(np.ceil(rows * count / n).astype(int), ROWS_OF_A_STRATUM))
    order = rng.permutation(n)
    order = order[np.argsort(stratum[order], kind="stable")]
    place = np.arange(n) - np.repeat(np.cumsum(count) - count, count)
    chosen = np.sort(order[place < np.repeat(taken, count)])
    factor = (count / np.maximum(taken, 1))[stratum[chosen]]
    assert problem.weight is not None
    weight = problem.weight[chosen] * factor
    return Problem(
        margin=problem.margin[chosen],
        contrasts=problem.contrasts[chosen],
        gain=problem.gain[chosen] * factor,
        effects=problem.effects[chosen] * factor[:, None],
        lower=problem.lower,
        upper=problem.upper,
        offset=problem.offset,
        mixing=problem.mixing,
        weight=weight / (weight.sum() or 1.0),
    )


def _strata(problem: Problem, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return each row's stratum: rows of equal gain and effects or, if that makes too many, of equal signs."""
    columns = [problem.gain, *problem.effects.T]
    coefficients = rng.uniform(1.0, 2.0, len(columns))
    for of in (lambda column: column, np.sign):
        key = np.zeros(len(problem.gain))
        for coefficient, column in zip(coefficients, columns, strict=True):
            key += coefficient * of(column)
        found, stratum = np.unique(key, return_inverse=True)
        if len(found) * ROWS_OF_A_STRATUM <= len(key) // 4:
            return stratum.reshape(-1)
    return np.zeros(len(problem.gain), dtype=np.intp)


def box_around(problem: Problem, z: FloatArray, rows: int) -> Problem:
    """Return the problem inside a box around z that the planes of about this number of rows cut; others are constant.

    A last constraint, which only points outside the box violate, keeps sweeps inside.
    """
    level = problem.margin - problem.contrasts @ z
    reach = np.abs(problem.contrasts).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(reach > 0.0, np.abs(level) / reach, np.inf)
    movable = int(np.isfinite(distance).sum())
    last = min(rows, movable) - 1
    radius = max(float(np.partition(distance, last)[last]), 1e-6) if movable else 1.0
    opened = distance <= radius * (1.0 + 1e-9)
    fixed = ((level > 0.0) & ~opened).astype(np.float64) @ problem.table
    k, c = problem.dimension, problem.effects.shape[1]
    effects = np.zeros((int(opened.sum()) + 2 * k, c + 1))
    effects[: -2 * k, :c] = problem.effects[opened]
    effects[-2 * k :, c] = 1e3
    outside = np.full((len(problem.lower), 1), 0.5)
    assert problem.mixing is not None
    return Problem(
        margin=np.concatenate([problem.margin[opened], -(z + radius), z - radius]),
        contrasts=np.vstack([problem.contrasts[opened], -np.eye(k), np.eye(k)]),
        gain=np.concatenate([problem.gain[opened], np.zeros(2 * k)]),
        effects=effects,
        lower=np.hstack([problem.lower - fixed[1:], np.full_like(outside, -np.inf)]),
        upper=np.hstack([problem.upper - fixed[1:], outside]),
        offset=problem.offset + float(fixed[0]),
        mixing=np.vstack([problem.mixing, np.zeros((1, k))]),
    )
