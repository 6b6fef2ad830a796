"""J19: Jiang, Pacchiano, Stepleton, Jiang, Chiappa (2019), Wasserstein Fair Classification; post-processing.

With Q_a the quantile function and F_a the distribution function of the scores of group a, and weights
p_a = n_a / n, every score moves to the groups' barycentre, whose quantile function is

    Q(u) = sum_a p_a Q_a(u),        T_a(s) = Q(F_a(s)),

after which the scores have the same distribution in every group, so that demographic parity holds at any
threshold. A part of the way is the geodesic between a group's distribution and the barycentre:

    s_t = (1 - t) s + t T_a(s),     0 <= t <= 1.

Deviations: the paper measures in W1, whose barycentre is the pointwise weighted median of the Q_a (for two
groups: the larger one); ``target="median"`` is that, and the mean of the Q_a, the barycentre in W2, is the
default because it moves both groups. Quantiles are interpolated linearly instead of binned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from evenhand.arguments import Seed
from evenhand.errors import InfeasibleError, InputError
from evenhand.inputs import SensitiveFeatures
from evenhand.paper.baselines._base import Codes, FloatArray, ScoreBaseline
from evenhand.rules.criteria import check_tolerance

# How far after a crossing t is taken, so that rounding cannot reverse it.
JUST_BEHIND = 1e-6


def quantile(scores: FloatArray, u: FloatArray) -> FloatArray:
    """Return the quantiles of sorted scores at u, linear between the middles of the steps."""
    middles = (np.arange(len(scores)) + 0.5) / len(scores)
    return np.asarray(np.interp(u, middles, scores))


def rank(scores: FloatArray, s: FloatArray, position: FloatArray) -> FloatArray:
    """Return F(s) in sorted scores; equal scores share a step, and ``position`` is the place in it."""
    below = np.searchsorted(scores, s, side="left") / len(scores)
    up_to = np.searchsorted(scores, s, side="right") / len(scores)
    return np.asarray(below + position * (up_to - below), dtype=np.float64)


def barycentre(scores: Sequence[FloatArray], u: FloatArray, target: str) -> FloatArray:
    """Return the barycentre's quantiles at u, for the sorted scores of each group."""
    weights = np.array([len(s) for s in scores]) / sum(len(s) for s in scores)
    table = np.stack([quantile(s, u) for s in scores])
    if target == "mean":
        mean: FloatArray = weights @ table
        return mean
    order = np.argsort(table, axis=0, kind="stable")
    reached = np.cumsum(weights[order], axis=0) >= 0.5
    middle = np.take_along_axis(order, reached.argmax(axis=0)[None], axis=0)
    median: FloatArray = np.take_along_axis(table, middle, axis=0)[0]
    return median


def smallest_strength(
    scores: FloatArray, moved: FloatArray, groups: Codes, threshold: float, tolerance: float
) -> float:
    """Return the smallest t at which the decisions s_t > threshold meet demographic parity on these rows.

    Each row's s_t is linear in t and crosses the threshold at most once, so the gap is constant between
    neighbouring crossings: all are examined, and t is just after the first that suffices.
    """
    turns = np.flatnonzero((scores > threshold) != (moved > threshold))
    crossing = (threshold - scores[turns]) / (moved[turns] - scores[turns])
    order = np.argsort(crossing, kind="stable")
    turns, crossing = turns[order], crossing[order]
    changes = np.zeros((len(turns) + 1, groups.max() + 1))
    changes[0] = np.bincount(groups, weights=scores > threshold)
    changes[np.arange(1, len(turns) + 1), groups[turns]] = np.where(moved[turns] > threshold, 1.0, -1.0)
    gaps = np.ptp(np.cumsum(changes, axis=0) / np.bincount(groups), axis=1)
    # The decisions after j crossings hold between times[j] and times[j + 1]; the first at 0, the last at 1.
    times = np.concatenate([[0.0], crossing, [1.0]])
    held = np.diff(times) > 0.0
    held[[0, -1]] = True
    met = np.flatnonzero(held & (gaps <= tolerance + 1e-12))
    if not met.size:
        best = float(gaps[held].min())
        raise InfeasibleError(
            f"no strength has a gap of {tolerance} or less; the smallest is {best:.4g}.",
            smallest_tolerance=best,
        )
    first = int(met[0])
    if first == 0:
        return 0.0
    return float(times[first] + min((times[first + 1] - times[first]) / 2.0, JUST_BEHIND))


class WassersteinBarycentre(ScoreBaseline):
    """Scores moved to the groups' Wasserstein barycentre (Jiang et al. 2019), for demographic parity.

    Parameters
    ----------
    estimator : classifier
        The model of the scores. In a FrozenEstimator it is not trained, and ``fit`` gets the validation set.
    strength : float, default=1.0
        How far every score moves: 0 is the base model, 1 is equal distributions.
    tolerance : float, default=None
        If given, ``strength`` is ignored: the smallest strength is used whose decisions on the fitting rows
        have a difference of selection rates of at most this.
    target : {"mean", "median"}, default="mean"
        The barycentre: the weighted mean of the quantile functions (W2), or their weighted median (W1).
    threshold : float, default=0.5
        A moved score above it is a positive decision.
    spread_ties : bool, default=False
        Whether equal scores of a group are spread over their step at random. Then the distributions agree
        even where many rows share a score, but equal rows may be decided differently.
    random_state : int, RandomState or None, default=None
        The randomness of ``spread_ties``.

    Attributes
    ----------
    classes_ : array
        The negative and the positive label.
    groups_ : tuple
        The groups.
    estimator_ : classifier
        The fitted base model.
    strength_ : float
        How far scores are moved.
    scores_ : list of arrays
        Each group's sorted scores.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from evenhand.paper.baselines import WassersteinBarycentre
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=400)
    >>> X = rng.normal(size=(400, 1)) + group[:, None]
    >>> y = (X[:, 0] + rng.normal(size=400) > 0.5).astype(int)
    >>> fair = WassersteinBarycentre(LogisticRegression()).fit(X, y, sensitive_features=group)
    >>> decided = fair.predict(X, sensitive_features=group)
    >>> bool(abs(decided[group == 0].mean() - decided[group == 1].mean()) < 0.02)
    True
    """

    needs_sensitive_at_predict: ClassVar[bool] = True
    paper: ClassVar[str] = "J19"

    def __init__(
        self,
        estimator: Any,
        *,
        strength: float = 1.0,
        tolerance: float | None = None,
        target: str = "mean",
        threshold: float = 0.5,
        spread_ties: bool = False,
        random_state: Seed = None,
    ) -> None:
        self.estimator = estimator
        self.strength = strength
        self.tolerance = tolerance
        self.target = target
        self.threshold = threshold
        self.spread_ties = spread_ties
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sensitive_features: SensitiveFeatures | None) -> WassersteinBarycentre:
        """Fit the base model unless it is frozen, and learn each group's score distribution on the same rows.

        Parameters
        ----------
        X : array-like
            The rows.
        y : array-like
            Labels of two values; the larger is positive.
        sensitive_features : array-like, Series or one-column frame
            Each row's group.
        """
        if not 0.0 <= self.strength <= 1.0:
            raise InputError(f"strength must be between 0 and 1; got {self.strength!r}.")
        if self.target not in ("mean", "median"):
            raise InputError(f"target must be 'mean' or 'median'; got {self.target!r}.")
        _, groups = self._read(y, sensitive_features)
        scores = self._fit_scores(X, y)
        self.scores_ = [np.sort(scores[groups == code]) for code in range(len(self.groups_))]
        self.strength_ = float(self.strength)
        if self.tolerance is not None:
            tolerance = check_tolerance(self.tolerance)
            moved = self._transport(scores, groups)
            self.strength_ = smallest_strength(scores, moved, groups, self.threshold, tolerance)
        return self

    def predict_proba(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> FloatArray:
        """Return the moved scores, as the probabilities of the two classes."""
        check_is_fitted(self)
        scores = self._scores(X)
        groups = self._encode_groups(sensitive_features, len(scores))
        moved = (1.0 - self.strength_) * scores + self.strength_ * self._transport(scores, groups)
        return np.column_stack([1.0 - moved, moved])

    def predict(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> NDArray[Any]:
        """Return the decisions: whether the moved score is above the threshold."""
        moved = self.predict_proba(X, sensitive_features=sensitive_features)[:, 1]
        decided: NDArray[Any] = self.classes_[(moved > self.threshold).astype(np.intp)]
        return decided

    def _transport(self, scores: FloatArray, groups: Codes) -> FloatArray:
        position = np.full(len(scores), 0.5)
        if self.spread_ties:
            position = check_random_state(self.random_state).uniform(size=len(scores))
        u = np.empty(len(scores))
        for code, known in enumerate(self.scores_):
            rows = groups == code
            u[rows] = rank(known, scores[rows], position[rows])
        return barycentre(self.scores_, u, self.target)
