"""Paths of rules: for each constraint, rules whose value on the learning rows runs from low to high.

Learning rows and certifying rows disagree by about 1.5 standard errors, so a rule that is centred on the former is not
centred on the latter. A path extends far enough in both directions that one of its rules is.

A point of the paths is a target, one value for each constraint. Its rule minimises

    mean_i softplus(margin_i - z . contrasts_i) + z . target

with a softplus of a small width. This is convex in z. Where its gradient is zero, the expected values of the (smoothed)
decisions under the model are the target. The difference between the counts of the learning rows and these
expectations, in the middle of the paths, is subtracted from the target first. So a rule depends only on its target and
on the learning rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from evenhand.inputs import FloatArray
from evenhand.rules.setting import Setting
from evenhand.search import NoRule, Solution

MOST_ROWS = 5_000
# All in standard errors of a constraint's value: how far a path extends beyond a disagreement of one standard error,
# the distance between its rules, and the distance from a bound within which the best rule counts as being at it.
REACH, SPACING, ON_BOUND = 3.0, 1.0 / 3.0, 0.25
FEWEST_POINTS, MOST_POINTS = 25, 121
# The width of the softplus, in standard deviations of the margins.
SMOOTHING = 0.05
# Newton's method stops when every value is within this distance of its target.
PRECISION, STEPS = 1e-4, 20


@dataclass(frozen=True, eq=False)
class Paths:
    """The paths of some constraints with two bounds each, from the learning rows.

    Attributes
    ----------
    setting : Setting
        The learning rows.
    centre, half : arrays of shape (constraints,)
        The middle of each band, and half of its width.
    errors : array of shape (constraints,)
        The standard error that each value will have on the certifying rows.
    disagreement : array of shape (constraints,)
        The standard error of the difference between its values on the certifying and on the learning rows.
    best : array of shape (constraints,)
        The values of the best rule on the learning rows, relative to the centre; infinite if it is at a bound and an
        even more distant value would be better.
    """

    setting: Setting
    centre: FloatArray
    half: FloatArray
    errors: FloatArray
    disagreement: FloatArray
    best: FloatArray

    @classmethod
    def of(cls, setting: Setting, tolerance: float, found: Solution | NoRule, certifying: FloatArray) -> Paths:
        """Return the paths for a tolerance.

        Parameters
        ----------
        setting : Setting
            The learning rows.
        tolerance : float
            The largest allowed difference of rates.
        found : Solution or NoRule
            The search's result for this tolerance.
        certifying : array of shape (events,)
            The number of certifying rows in each event.
        """
        lower, upper = (bounds[0] for bounds in setting.system.bounds([tolerance]))
        centre, half = (lower + upper) / 2.0, (upper - lower) / 2.0
        z, off = np.zeros(len(centre)), np.zeros(len(centre))
        if isinstance(found, Solution):
            z, off = np.array(found.z), np.array(found.values) - centre
        rates = setting.decide(z) @ setting.evidence.shares
        matrix, learning = setting.system.matrix, setting.evidence.counts
        errors = np.sqrt(matrix**2 @ _variances(rates, certifying))
        disagreement = np.sqrt(errors**2 + matrix**2 @ _variances(rates, learning))
        best = np.where(np.abs(off) < half - ON_BOUND * errors, off, np.copysign(np.inf, off))
        return cls(setting, centre, half, errors, disagreement, best)

    @cached_property
    def points(self) -> FloatArray:
        """The targets along each path, of shape (constraints, points), from low to high."""
        reach = np.maximum(self.half, REACH * self.disagreement)
        wanted = float((2.0 * reach / (SPACING * self.errors)).max())
        half = int(np.clip(wanted, FEWEST_POINTS, MOST_POINTS)) // 2
        return self.centre[:, None] + reach[:, None] * np.linspace(-1.0, 1.0, 2 * half + 1)

    def spacing(self, constraint: int) -> float:
        """Return the distance between a path's rules, in standard errors."""
        first, second = self.points[constraint, :2]
        return float((second - first) / self.errors[constraint])

    def line(self, constraint: int, target: FloatArray) -> list[FloatArray]:
        """Return z for each point of a path, with the other constraints' targets as given."""
        targets = np.tile(target, (self.points.shape[1], 1))
        targets[:, constraint] = self.points[constraint]
        return [self.rule_at(one) for one in targets]

    def rule_at(self, target: FloatArray) -> FloatArray:
        """Return z for a target."""
        start, bias = self._middle
        straight = _solve(self._curvature(self._chosen(start)[0]), self.centre - target)
        return self._fit(target - bias, start + self._shortened(straight))

    @cached_property
    def _middle(self) -> tuple[FloatArray, FloatArray]:
        """The rule in the middle of all paths, and the excess of its counted values over the expected ones."""
        z, bias = np.zeros(len(self.centre)), np.zeros(len(self.centre))
        for _ in range(3):
            z = self._fit(self.centre - bias, z)
            counted = self.setting.decide(z) @ self.setting.evidence.shares @ self.setting.system.matrix.T
            bias = counted - self._chosen(z)[1]
        return z, bias

    @cached_property
    def _rows(self) -> tuple[FloatArray, FloatArray, float]:
        """Margins and contrasts of some rows, and the width of the softplus."""
        some = slice(None, None, -(-len(self.setting.margins) // MOST_ROWS))
        margins = self.setting.margins[some]
        width = SMOOTHING * float(margins.std())
        return margins, self.setting.contrasts[some], width if width > 0.0 else SMOOTHING

    def _levels(self, z: FloatArray) -> FloatArray:
        margins, contrasts, width = self._rows
        levels: FloatArray = (margins - np.einsum("ij,j->i", contrasts, z)) / width
        return levels

    def _chosen(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the smoothed decisions of a rule, and their expected values under the model."""
        contrasts = self._rows[1]
        chosen: FloatArray = special.expit(self._levels(z))
        return chosen, np.einsum("i,ij->j", chosen, contrasts) / len(contrasts)

    def _fit(self, target: FloatArray, z: FloatArray) -> FloatArray:
        """Minimise the objective with Newton's method; for an unreachable target, return a rule in its direction."""
        chosen, values = self._chosen(z)
        for _ in range(STEPS):
            missed = float(np.abs(target - values).max())
            if missed < PRECISION:
                break
            step = self._shortened(_solve(self._curvature(chosen), values - target))
            for halvings in range(10):
                nearer = z + 0.5**halvings * step
                chosen, values = self._chosen(nearer)
                if float(np.abs(target - values).max()) < missed:
                    break
            z = nearer
        return z

    def _curvature(self, chosen: FloatArray) -> FloatArray:
        """Return the objective's second derivative, regularised so that it is invertible."""
        contrasts, width = self._rows[1:]
        ridge = 1e-6 * float(np.mean(contrasts**2)) / width + 1e-12
        inner = np.einsum("ij,ik->jk", (chosen * (1.0 - chosen))[:, None] * contrasts, contrasts)
        curvature: FloatArray = inner / (len(contrasts) * width) + ridge * np.eye(contrasts.shape[1])
        return curvature

    def _shortened(self, step: FloatArray) -> FloatArray:
        """Return a step that changes no row's value by more than a few times the largest margin."""
        margins, contrasts, _ = self._rows
        turned = float(np.abs(np.einsum("ij,j->i", contrasts, step)).max())
        most = 4.0 * (1.0 + float(np.abs(margins).max()))
        return step if turned <= most else step * (most / turned)


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)


def _variances(rates: FloatArray, counts: FloatArray) -> FloatArray:
    shrunk = (rates * counts + 1.0) / (counts + 2.0)
    variances: FloatArray = shrunk * (1.0 - shrunk) / counts
    return variances
