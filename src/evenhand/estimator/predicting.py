"""What a fitted FairClassifier does with new rows: probabilities from its models, decisions from its rule."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from evenhand._compat import num_samples
from evenhand.errors import InputError
from evenhand.estimator.auxiliary import known_groups
from evenhand.estimator.crossfit import Models, class_probabilities
from evenhand.estimator.heldout import HeldOut
from evenhand.estimator.sample import SensitiveColumns, accuracy_of, check_not_lazy, strata_columns
from evenhand.inputs import FloatArray, SensitiveFeatures
from evenhand.plausibility import check_same_index
from evenhand.rules.events import AttributeKey
from evenhand.rules.rule import Receipt, Rule
from evenhand.rules.rule_strata import with_strata


class Predictions:
    """The methods of :class:`evenhand.FairClassifier` that need a fitted rule and train nothing."""

    rule_: Rule
    held_out_: HeldOut
    classes_: NDArray[Any]
    estimator_: Any
    sensitive_at_predict: bool
    drop_sensitive: bool
    _models: Models
    _columns: SensitiveColumns | None

    def predict(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> NDArray[Any]:
        """Return the fair decision of each row, as a label.

        Parameters
        ----------
        X : anything that the base model takes
            The rows.
        sensitive_features : array, Series, frame or dict of columns, default=None
            Each row's group. Only with ``sensitive_at_predict=True``, which needs it.

        Returns
        -------
        ndarray of shape (n,)
        """
        positive = self._margin(X, sensitive_features) > 0.0
        return self.classes_[np.where(positive, self._models.positive_index, 1 - self._models.positive_index)]

    def decision_function(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> FloatArray:
        """Return the fair margin of each row: above 0 iff ``predict`` gives ``classes_[1]``.

        See :meth:`predict` for the parameters.
        """
        margin = self._margin(X, sensitive_features)
        if self._models.positive_index == 1:
            return margin
        return np.where(margin == 0.0, np.nextafter(0.0, 1.0), -margin)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the base model's probabilities, of shape (n, 2), with columns in the order of ``classes_``.

        They are estimates of p(Y|x) and are not changed by the rule, as in scikit-learn's threshold
        classifiers: the decisions of :meth:`predict` are not ``predict_proba(X)[:, 1] > 0.5``.
        """
        check_is_fitted(self, "rule_")
        return class_probabilities(self.estimator_, self._features(X), self.classes_)

    def bias_scores(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> FloatArray:
        """Return the paper's bias scores s_k(x), of shape (n, K). See :meth:`predict` for the parameters."""
        p_y, p_group = self.probabilities(X, sensitive_features=sensitive_features)
        return self.rule_.bias_scores(p_y, p_group)

    def explain(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> list[Receipt]:
        """Return a receipt for each row: what spoke for which decision. Parameters as in :meth:`predict`."""
        p_y, p_group = self.probabilities(X, sensitive_features=sensitive_features)
        return self.rule_.explain(p_y, p_group)

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        sensitive_features: SensitiveFeatures | None = None,
    ) -> float:
        """Return the accuracy of the fair decisions.

        Parameters
        ----------
        X, y
            The rows and their labels.
        sample_weight : array of shape (n,), default=None
            Their weights.
        sensitive_features : array, Series, frame or dict of columns, default=None
            Used only with ``sensitive_at_predict=True``.
        """
        check_same_index({"X": X, "y": y, "sample_weight": sample_weight})
        asked = sensitive_features if self.sensitive_at_predict else None
        positive = self._margin(X, asked) > 0.0
        return accuracy_of(y, positive, self.rule_.classes, sample_weight)

    def _margin(self, X: Any, sensitive_features: SensitiveFeatures | None) -> FloatArray:
        p_y, p_group = self.probabilities(X, sensitive_features=sensitive_features)
        return self.rule_.decision_function(p_y, p_group)

    def probabilities(
        self, X: Any, *, sensitive_features: SensitiveFeatures | None = None
    ) -> tuple[FloatArray, dict[AttributeKey, FloatArray]]:
        """Return (p_y, p_group) exactly as the rule sees them, recalibration included.

        Parameters
        ----------
        X, sensitive_features
            As in :meth:`predict`.

        Returns
        -------
        p_y : array of shape (n,)
            P(Y = positive | x).
        p_group : dict of arrays
            p(A|x) of shape (n, G) or p(Y, A|x) of shape (n, 2, G), by attribute: a name, or the Intersection of a
            crossed one; within strata, those of each stratum beside them. ``rule_.decide(p_y, p_group)`` is
            ``predict(X)``.
        """
        check_is_fitted(self, "rule_")
        strata = strata_columns(X, self.rule_.strata) if self.rule_.strata else None
        p_y, p_group = self._models.probabilities(self._features(X), self._known_groups(X, sensitive_features))
        if strata is None:
            return p_y, p_group
        spread = with_strata(self.rule_, p_y, p_group, strata)
        return p_y, cast(dict[AttributeKey, FloatArray], spread)

    def _features(self, X: Any) -> Any:
        check_not_lazy(X)
        return X if self._columns is None or not self.drop_sensitive else self._columns.drop(X)

    def _known_groups(
        self, X: Any, sensitive_features: SensitiveFeatures | None
    ) -> dict[AttributeKey, NDArray[np.intp]]:
        """Return each row's group in each needed attribute, where the decisions use it."""
        if not self.sensitive_at_predict:
            if sensitive_features is not None:
                raise InputError(
                    "This classifier decides without the sensitive attribute: leave sensitive_features out,"
                    " or make it with sensitive_at_predict=True."
                )
            return {}
        if self._columns is not None and sensitive_features is None:
            sensitive_features = self._columns.read(X)
        if sensitive_features is None:
            raise InputError(
                f"This classifier decides with the sensitive attribute (sensitive_at_predict=True): pass"
                f" sensitive_features with {list(self.held_out_.groups)!r}."
            )
        check_same_index({"X": X, "sensitive_features": sensitive_features})
        return known_groups(self._models.targets, self.held_out_.groups, sensitive_features, num_samples(X))
