"""Correction of the probabilities of several models, based on all of them together.

A fair rule combines p(Y|x) with p(A|x) or p(Y, A|x). Each model may be calibrated on its own, but not for rows where
another model's output is unusual: among the rows with p(A=1|x) = 0.7 and a high p(Y|x), the share of group 1 need not
be 0.7. The learnt rule is only optimal if it is. The correction of a model is

    p'(c|x)  proportional to  p(c|x) exp(b_c + w_c . s(x)),

where s(x) contains the standardised log-ratios of all models' probabilities, and their products. The penalty
PENALTY / 2 |w|^2 on the log-likelihood shrinks it towards no correction, so that few rows change little. Scores outside
the fitted range are clipped to it, because products would otherwise grow without bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from evenhand.inputs import FloatArray
from evenhand.rules.events import AttributeKey

PENALTY = 10.0
FLOOR = 1e-4  # probabilities are clipped to [FLOOR, 1 - FLOOR]
MOST_SCORES_WITH_PRODUCTS = 8
_INTERCEPT_PENALTY = 1e-6  # makes the solution unique: adding a constant to all classes changes nothing
_STEPS, _CONVERGED = 50, 1e-12


@dataclass(frozen=True, eq=False)
class Recalibration:
    """A correction of p(Y|x) and of every attribute's probabilities, given all of them.

    Attributes
    ----------
    centre, scale : arrays of shape (scores,)
        Mean and standard deviation of the log-ratios in the fitting data.
    lowest, highest : arrays of shape (scores,)
        The range of the standardised log-ratios in the fitting data.
    label_weights : array of shape (features, 2)
        b and w of the negative and the positive label; the first row is b.
    group_weights : dict of arrays of shape (features, classes)
        The same for each attribute, for its groups or its pairs of label and group.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.estimator.recalibration import Recalibration
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.05, 0.95, size=20_000)
    >>> p_group = np.column_stack([1 - p, p])
    >>> group = (rng.random(20_000) < p).astype(int)
    >>> told, positive = rng.uniform(0.05, 0.95, size=20_000), rng.random(20_000) < np.where(group == 1, 0.8, 0.4)
    >>> found = Recalibration.fit(told, {"sex": p_group}, positive, {"sex": group})
    >>> p_y, _ = found.apply(told, {"sex": p_group})
    >>> bool(np.abs(p_y - (0.4 + 0.4 * p)).max() < 0.1)
    True
    """

    centre: FloatArray
    scale: FloatArray
    lowest: FloatArray
    highest: FloatArray
    label_weights: FloatArray
    group_weights: dict[AttributeKey, FloatArray]

    @classmethod
    def fit(
        cls,
        p_y: FloatArray,
        p_group: Mapping[AttributeKey, FloatArray],
        positive: NDArray[np.bool_],
        codes: Mapping[AttributeKey, NDArray[np.intp]],
        weight: FloatArray | None = None,
    ) -> Recalibration:
        """Fit the corrections to rows that the models were not trained on.

        Parameters
        ----------
        p_y : array of shape (n,)
            P(Y = positive | x).
        p_group : dict of arrays
            p(A|x) of shape (n, G), or p(Y, A|x) of shape (n, 2, G), by attribute.
        positive : array of bool
            Whether the label is the positive one.
        codes : dict of arrays of int
            Each row's group, by attribute, as the index of its probability column; -1 if it is not known. Such rows
            do not count.
        weight : array of shape (n,), default=None
            The rows' weights. A weight of 2 equals two rows, also relative to the penalty.
        """
        label, groups = _columns(p_y, p_group)
        scores = _log_ratios(label, groups)
        known = np.all([column >= 0 for column in codes.values()], axis=0)
        share = np.where(known, 1.0 if weight is None else weight, 0.0)
        centre = np.average(scores, axis=0, weights=share)
        scale = np.sqrt(np.average((scores - centre) ** 2, axis=0, weights=share))
        scale[scale < 1e-9] = 1.0
        standard = (scores - centre) / scale
        counted = standard[share > 0.0]
        lowest, highest = counted.min(axis=0), counted.max(axis=0)
        features = _features(standard, lowest, highest)
        targets = {
            name: np.maximum(codes[name], 0) + (len(array[0, 0]) * positive if array.ndim == 3 else 0)
            for name, array in p_group.items()
        }
        return cls(
            centre,
            scale,
            lowest,
            highest,
            _fit_one(label, features, positive.astype(np.intp), share),
            {name: _fit_one(groups[name], features, targets[name], share) for name in groups},
        )

    def apply(
        self, p_y: FloatArray, p_group: Mapping[AttributeKey, FloatArray]
    ) -> tuple[FloatArray, dict[AttributeKey, FloatArray]]:
        """Return the corrected probabilities, in the same shapes."""
        label, groups = _columns(p_y, p_group)
        standard = (_log_ratios(label, groups) - self.centre) / self.scale
        features = _features(standard, self.lowest, self.highest)
        corrected = {
            name: softmax(np.log(groups[name]) + features @ self.group_weights[name], axis=1).reshape(array.shape)
            for name, array in p_group.items()
        }
        return softmax(np.log(label) + features @ self.label_weights, axis=1)[:, 1], corrected


def product_pairs(n_scores: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return which pairs of scores are multiplied: all, including squares, unless there are many scores."""
    first, second = np.triu_indices(n_scores if n_scores <= MOST_SCORES_WITH_PRODUCTS else 0)
    return first, second


def _columns(
    p_y: FloatArray, p_group: Mapping[AttributeKey, FloatArray]
) -> tuple[FloatArray, dict[AttributeKey, FloatArray]]:
    """Return every model's probabilities as a table of classes, clipped away from 0 and 1."""
    tables = {name: np.maximum(array.reshape(len(array), -1), FLOOR) for name, array in p_group.items()}
    return np.maximum(np.column_stack([1.0 - p_y, p_y]), FLOOR), tables


def _log_ratios(label: FloatArray, groups: Mapping[AttributeKey, FloatArray]) -> FloatArray:
    logs = [np.log(table) for table in (label, *groups.values())]
    return np.column_stack([log[:, 1:] - log[:, :1] for log in logs])


def _features(standard: FloatArray, lowest: FloatArray, highest: FloatArray) -> FloatArray:
    inside = np.clip(standard, lowest, highest)
    first, second = product_pairs(inside.shape[1])
    return np.column_stack([np.ones(len(inside)), inside, inside[:, first] * inside[:, second]])


def _fit_one(table: FloatArray, features: FloatArray, target: NDArray[np.intp], share: FloatArray) -> FloatArray:
    """Return the weights of one model's correction by penalised maximum likelihood, a convex problem, with Newton."""
    offset, shape = np.log(table), (features.shape[1], table.shape[1])
    counted = np.zeros(table.shape)
    counted[np.arange(len(table)), target] = share
    penalty = np.full((shape[0], 1), PENALTY)
    penalty[0] = _INTERCEPT_PENALTY
    weights = np.zeros(shape)
    value, p = _loss(weights, offset, features, counted, penalty)
    for _ in range(_STEPS):
        gradient = features.T @ (share[:, None] * p - counted) + penalty * weights
        step = np.linalg.solve(_curvature(features, p, share, penalty), gradient.T.ravel()).reshape(shape[::-1]).T
        decrease = float((gradient * step).sum())
        if decrease <= _CONVERGED * (1.0 + value):
            break
        length = 1.0
        while True:
            tried = weights - length * step
            new_value, new_p = _loss(tried, offset, features, counted, penalty)
            if new_value <= value - 0.1 * length * decrease or length < 1e-6:
                break
            length /= 2.0
        weights, value, p = tried, new_value, new_p
    return weights


def _loss(
    weights: FloatArray, offset: FloatArray, features: FloatArray, counted: FloatArray, penalty: FloatArray
) -> tuple[float, FloatArray]:
    """Return the penalised negative log-likelihood, and the corrected probabilities."""
    p = softmax(offset + features @ weights, axis=1)
    likelihood = float((counted * np.log(np.maximum(p, 1e-300))).sum())
    return 0.5 * float((penalty * weights**2).sum()) - likelihood, p


def _curvature(features: FloatArray, p: FloatArray, share: FloatArray, penalty: FloatArray) -> FloatArray:
    """Return the second derivative of the loss, with the weights of each class in a contiguous block."""
    size, n_classes = features.shape[1], p.shape[1]
    blocks = np.empty((n_classes, size, n_classes, size))
    for one in range(n_classes):
        for other in range(one, n_classes):
            rate = share * p[:, one] * ((one == other) - p[:, other])
            block = features.T @ (features * rate[:, None])
            blocks[one, :, other], blocks[other, :, one] = block, block.T
        blocks[one, :, one] += np.diag(penalty[:, 0])
    return blocks.reshape(n_classes * size, n_classes * size)
