"""Agarwal, Beygelzimer, Dudik, Langford, Wallach (2018), A Reductions Approach to Fair Classification.

A random mixture Q of classifiers at the saddle point of

    min_Q max_{lambda >= 0, |lambda| <= B}  err(Q) + lambda . (M mu(Q) - c)

(their Algorithm 1). fairlearn's ExponentiatedGradient finds it; each step trains the base model on
reweighted rows. The constraints compare every group's rate with the rate of all rows: half the tolerance
on each side keeps two groups within the tolerance of each other.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from fairlearn.reductions import (
    DemographicParity,
    EqualizedOdds,
    ExponentiatedGradient,
    FalsePositiveRateParity,
    TruePositiveRateParity,
)
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from evenhand.arguments import Seed
from evenhand.inputs import SensitiveFeatures
from evenhand.paper.baselines._base import Baseline, FloatArray, parity_labels, quiet_fairlearn
from evenhand.rules.criteria import Criterion, check_tolerance

_CONSTRAINTS = {
    (None,): DemographicParity,
    (0, 1): EqualizedOdds,
    (1,): TruePositiveRateParity,
    (0,): FalsePositiveRateParity,
}


class Reductions(Baseline):
    """A random mixture of reweighted classifiers that meets a parity criterion (Agarwal et al. 2018).

    Parameters
    ----------
    estimator : classifier
        The base model. Its ``fit`` must take ``sample_weight``.
    criterion : str or Criterion, default="equalized_odds"
        Any parity criterion.
    tolerance : float, default=0.05
        The largest difference between two groups' rates on the training rows, up to the saddle point's gap.
        fairlearn's ``difference_bound`` is half of it.
    eps : float, default=0.01
        fairlearn's ``eps``: the bound on the multipliers is 1 / eps.
    max_iter : int, default=50
        The maximum number of steps; each trains the base model once or twice.
    random_state : int, RandomState or None, default=None
        The random part of the decisions. An integer gives the same decisions to the same rows each time.

    Attributes
    ----------
    classes_ : array
        The negative and the positive label.
    groups_ : tuple
        The groups.
    mitigator_ : fairlearn.reductions.ExponentiatedGradient
        It contains the classifiers and their weights in the mixture.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from evenhand.paper.baselines import Reductions
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=200)
    >>> X = rng.normal(size=(200, 2)) + group[:, None]
    >>> y = (X[:, 0] + rng.normal(size=200) > 0.5).astype(int)
    >>> fair = Reductions(LogisticRegression(), criterion="dp", tolerance=0.1, max_iter=10, random_state=0)
    >>> p = fair.fit(X, y, sensitive_features=group).predict_proba(X)[:, 1]
    >>> bool(abs(p[group == 0].mean() - p[group == 1].mean()) < 0.15)
    True
    """

    paper: ClassVar[str] = "A18"

    def __init__(
        self,
        estimator: Any,
        *,
        criterion: str | Criterion = "equalized_odds",
        tolerance: float = 0.05,
        eps: float = 0.01,
        max_iter: int = 50,
        random_state: Seed = None,
    ) -> None:
        self.estimator = estimator
        self.criterion = criterion
        self.tolerance = tolerance
        self.eps = eps
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sensitive_features: SensitiveFeatures | None) -> Reductions:
        """Train the mixture.

        Parameters
        ----------
        X : array-like
            The rows.
        y : array-like
            Labels of two values; the larger is positive.
        sensitive_features : array-like, Series or one-column frame
            Each row's group.
        """
        constraint = _CONSTRAINTS[parity_labels(self.criterion)]
        bound = check_tolerance(self.tolerance) / 2.0
        labels, groups = self._read(y, sensitive_features)
        mitigator = ExponentiatedGradient(
            clone(self.estimator),
            constraint(difference_bound=bound),
            eps=self.eps,
            max_iter=self.max_iter,
        )
        with quiet_fairlearn():
            self.mitigator_ = mitigator.fit(X, labels, sensitive_features=groups)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each decision: the share of the mixture that decides so."""
        check_is_fitted(self)
        with quiet_fairlearn():
            mass: FloatArray = np.clip(self.mitigator_._pmf_predict(X), 0.0, 1.0)
        return mass

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the decisions of a classifier drawn from the mixture, row by row."""
        check_is_fitted(self)
        with quiet_fairlearn():
            decided = self.mitigator_.predict(X, random_state=check_random_state(self.random_state))
        chosen: NDArray[Any] = self.classes_[np.asarray(decided, dtype=np.intp)]
        return chosen
