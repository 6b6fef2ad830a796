"""H16: Hardt, Price, Srebro (2016), Equality of Opportunity in Supervised Learning.

Each group gets its own thresholds on the score R, randomised if needed:

    Yhat = 1{R > T_a},  T_a random with at most two values,

chosen so that the groups' operating points agree and the accuracy is the best on the upper hull of their
ROC curves (Section 3.2). fairlearn's ThresholdOptimizer finds them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from evenhand.arguments import Seed
from evenhand.errors import InputError
from evenhand.inputs import SensitiveFeatures
from evenhand.paper.baselines._base import FloatArray, ScoreBaseline, parity_labels, quiet_fairlearn
from evenhand.rules.criteria import Criterion, check_tolerance

_CONSTRAINTS = {
    (None,): "demographic_parity",
    (0, 1): "equalized_odds",
    (1,): "true_positive_rate_parity",
    (0,): "false_positive_rate_parity",
}


class _ScoreColumn(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Passes existing scores to fairlearn."""

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None) -> _ScoreColumn:
        return self

    def predict(self, X: Any) -> FloatArray:
        return np.asarray(X, dtype=np.float64)[:, 0]


class GroupThresholds(ScoreBaseline):
    """Group-wise, partly random thresholds that equalise rates (Hardt et al. 2016).

    Parameters
    ----------
    estimator : classifier
        The model of the scores. In a FrozenEstimator it is not trained, and ``fit`` gets the validation set.
    criterion : str or Criterion, default="equalized_odds"
        Any parity criterion.
    tolerance : float, default=0.0
        The largest difference between groups. Equalized odds has no relaxed form here: it must be 0.
    grid_size : int, default=1000
        The number of operating points that are compared.
    random_state : int, RandomState or None, default=None
        The random part of the decisions. An integer gives the same decisions to the same rows each time.

    Attributes
    ----------
    classes_ : array
        The negative and the positive label.
    groups_ : tuple
        The groups.
    estimator_ : classifier
        The fitted base model.
    optimizer_ : fairlearn.postprocessing.ThresholdOptimizer
        It holds each group's thresholds.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from evenhand.paper.baselines import GroupThresholds
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=400)
    >>> X = rng.normal(size=(400, 1)) + group[:, None]
    >>> y = (X[:, 0] + rng.normal(size=400) > 0.5).astype(int)
    >>> fair = GroupThresholds(LogisticRegression(), criterion="demographic_parity", random_state=0)
    >>> p = fair.fit(X, y, sensitive_features=group).predict_proba(X, sensitive_features=group)[:, 1]
    >>> bool(abs(p[group == 0].mean() - p[group == 1].mean()) < 0.01)
    True
    """

    needs_sensitive_at_predict: ClassVar[bool] = True
    paper: ClassVar[str] = "H16"

    def __init__(
        self,
        estimator: Any,
        *,
        criterion: str | Criterion = "equalized_odds",
        tolerance: float = 0.0,
        grid_size: int = 1000,
        random_state: Seed = None,
    ) -> None:
        self.estimator = estimator
        self.criterion = criterion
        self.tolerance = tolerance
        self.grid_size = grid_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sensitive_features: SensitiveFeatures | None) -> GroupThresholds:
        """Fit the base model unless it is frozen, and find each group's thresholds on the same rows.

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
        tolerance = check_tolerance(self.tolerance)
        if constraint == "equalized_odds" and tolerance > 0.0:
            raise InputError("H16 cannot relax equalized odds: use tolerance=0, or another criterion.")
        labels, groups = self._read(y, sensitive_features)
        _check_cells(labels, groups, self.groups_)
        scores = self._fit_scores(X, y)
        optimizer = ThresholdOptimizer(
            estimator=_ScoreColumn(),
            constraints=constraint,
            objective="accuracy_score",
            grid_size=self.grid_size,
            prefit=True,
            predict_method="predict",
            tol=tolerance if tolerance > 0.0 else None,
        )
        with quiet_fairlearn():
            self.optimizer_ = optimizer.fit(scores[:, None], labels, sensitive_features=groups)
        return self

    def predict_proba(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> FloatArray:
        """Return the probability of each decision: 0 or 1 except where the thresholds are random."""
        check_is_fitted(self)
        scores = self._scores(X)
        groups = self._encode_groups(sensitive_features, len(scores))
        with quiet_fairlearn():
            mass: FloatArray = self.optimizer_._pmf_predict(scores[:, None], sensitive_features=groups)
        return mass

    def predict(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> NDArray[Any]:
        """Return the decisions, random where the thresholds are."""
        check_is_fitted(self)
        scores = self._scores(X)
        groups = self._encode_groups(sensitive_features, len(scores))
        with quiet_fairlearn():
            decisions = self.optimizer_.predict(
                scores[:, None], sensitive_features=groups, random_state=self.random_state
            )
        chosen: NDArray[Any] = self.classes_[np.asarray(decisions, dtype=np.intp)]
        return chosen


def _check_cells(labels: NDArray[np.int64], groups: NDArray[np.int64], names: tuple[Any, ...]) -> None:
    for code, name in enumerate(names):
        present = np.unique(labels[groups == code])
        if len(present) < 2:
            raise InputError(f"group {name!r} has rows of one label only: its ROC curve is not defined.")
