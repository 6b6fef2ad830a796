"""Predictions of a fitted FairClassifier: probabilities from its models, decisions from its rule."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from evenhand._compat import num_samples
from evenhand.errors import InputError
from evenhand.estimator.auxiliary import known_groups
from evenhand.estimator.crossfit import Models, class_probabilities
from evenhand.estimator.heldout import HeldOut
from evenhand.estimator.sample import SensitiveColumns, accuracy_of, check_not_lazy, strata_columns
from evenhand.hooks import answer
from evenhand.inputs import FloatArray, SensitiveFeatures
from evenhand.plausibility import check_same_index
from evenhand.rules.events import AttributeKey
from evenhand.rules.mixture import DrawnReceipt, Mixture
from evenhand.rules.receipt import Receipt
from evenhand.rules.rule import Rule
from evenhand.rules.rule_strata import with_strata

if TYPE_CHECKING:
    from evenhand.report import Report


class Predictions:
    """The methods of :class:`evenhand.FairClassifier` that need a fitted rule and train nothing."""

    rule_: Rule | Mixture
    held_out_: HeldOut
    classes_: NDArray[Any]
    estimator_: Any
    sensitive_at_predict: bool
    drop_sensitive: bool
    _models: Models
    _columns: SensitiveColumns | None

    def predict(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None, key: Any = None) -> NDArray[Any]:
        """Return the fair decision of each row, as a label.

        Parameters
        ----------
        X : any input that the base model accepts
            The features.
        sensitive_features : array, Series, frame or dict of columns, default=None
            Each row's group. It is required with ``sensitive_at_predict=True`` and not allowed otherwise.
        key : array of shape (n,), default=None
            Whole numbers or texts that identify the rows, such as customer numbers. Only with ``randomize=True``: the
            same key always gets the same random draw. With ``None`` the draw depends on the scores, so that rows with
            equal scores get the same decision; see :mod:`evenhand.rules.lots`.

        Returns
        -------
        ndarray of shape (n,)
        """
        positive = self._margin(X, sensitive_features, key) > 0.0
        return self.classes_[np.where(positive, self._models.positive_index, 1 - self._models.positive_index)]

    def decision_function(
        self, X: Any, *, sensitive_features: SensitiveFeatures | None = None, key: Any = None
    ) -> FloatArray:
        """Return the fair margin of each row: above 0 iff ``predict`` gives ``classes_[1]``.

        With ``randomize=True`` it is the probability of a positive decision minus the random draw. See :meth:`predict`
        for the parameters.
        """
        margin = self._margin(X, sensitive_features, key)
        if self._models.positive_index == 1:
            return margin
        return np.where(margin == 0.0, np.nextafter(0.0, 1.0), -margin)

    def expected_decision(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> FloatArray:
        """Return each row's probability of the positive decision, before the random draw.

        Without ``randomize=True`` it is always 0 or 1. The positive decision is that for ``pos_label``. See
        :meth:`predict` for the parameters.
        """
        p_y, p_group = self.probabilities(X, sensitive_features=sensitive_features)
        if isinstance(self.rule_, Mixture):
            return self.rule_.expected_decision(p_y, p_group)
        return (self.rule_.decision_function(p_y, p_group) > 0.0).astype(np.float64)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the base model's probabilities, of shape (n, 2), with columns in the order of ``classes_``.

        They are estimates of p(Y|x) and are not changed by the rule, as in scikit-learn's threshold classifiers. So the
        decisions of :meth:`predict` are not ``predict_proba(X)[:, 1] > 0.5``.
        """
        check_is_fitted(self, "rule_")
        return class_probabilities(self.estimator_, self._features(X), self.classes_)

    def bias_scores(self, X: Any, *, sensitive_features: SensitiveFeatures | None = None) -> FloatArray:
        """Return the paper's bias scores s_k(x), of shape (n, K). See :meth:`predict` for the parameters."""
        p_y, p_group = self.probabilities(X, sensitive_features=sensitive_features)
        return self.rule_.bias_scores(p_y, p_group)

    def explain(
        self, X: Any, *, sensitive_features: SensitiveFeatures | None = None, key: Any = None
    ) -> list[Receipt] | list[DrawnReceipt]:
        """Return a receipt for each row: the terms that add up to its decision. Parameters as in :meth:`predict`."""
        p_y, p_group = self.probabilities(X, sensitive_features=sensitive_features)
        if isinstance(self.rule_, Mixture):
            return self.rule_.explain(p_y, p_group, key=key)
        _check_no_key(key)
        return self.rule_.explain(p_y, p_group)

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        sensitive_features: SensitiveFeatures | None = None,
        key: Any = None,
    ) -> float:
        """Return the accuracy of the fair decisions.

        Parameters
        ----------
        X, y
            The features and the labels.
        sample_weight : array of shape (n,), default=None
            The weights of the rows.
        sensitive_features : array, Series, frame or dict of columns, default=None
            Used only with ``sensitive_at_predict=True``.
        key : array of shape (n,), default=None
            As in :meth:`predict`.
        """
        check_same_index({"X": X, "y": y, "sample_weight": sample_weight})
        asked = sensitive_features if self.sensitive_at_predict else None
        positive = self._margin(X, asked, key) > 0.0
        return accuracy_of(y, positive, self.rule_.classes, sample_weight)

    def report(
        self,
        X: Any,
        y: ArrayLike,
        *,
        sensitive_features: SensitiveFeatures | None = None,
        path: str | os.PathLike[str] | None = None,
        sample_weight: ArrayLike | None = None,
        held_out: bool = True,
        title: str = "Fairness report",
        confidence: float = 0.95,
        provenance: Mapping[str, Any] | None = None,
    ) -> Report:
        """Evaluate the classifier on some rows and write the report.

        Warns if a gap on held-out rows is larger than that of the model alone.

        Parameters
        ----------
        X, y
            The features and the labels.
        sensitive_features : array, Series, frame or dict of columns, default=None
            Each row's group; ``None`` reads the ``sensitive_columns`` of X.
        path : path or None, default=None
            Where to write the HTML file; ``None`` writes no file.
        sample_weight : array of shape (n,), default=None
            The weights of the rows.
        held_out : bool, default=True
            Whether these rows were used neither for training nor for learning the rule.
        title : str, default="Fairness report"
            The heading.
        confidence : float, default=0.95
            The confidence level of the intervals.
        provenance : mapping, default=None
            Where the rows come from, shown unchanged in the report.

        Returns
        -------
        evenhand.report.Report
            It displays as a summary; ``html()``, ``json()`` and ``write(path)`` give the complete report.

        Examples
        --------
        >>> import evenhand as eh
        >>> from sklearn.linear_model import LogisticRegression
        >>> data, new = (eh.datasets.make_zafar(1500, random_state=seed) for seed in (0, 1))
        >>> fair = eh.FairClassifier(LogisticRegression(), tolerance=0.2, random_state=0)
        >>> found = fair.fit(data.X, data.y, sensitive_features=data.group).report(
        ...     new.X, new.y, sensitive_features=new.group)
        >>> found.harm is None, found.html().startswith("<!DOCTYPE html>")
        (True, True)
        """
        check_is_fitted(self, "rule_")
        found: Report = answer("FairClassifier.report")(
            self,
            X,
            y,
            sensitive_features,
            path,
            sample_weight=sample_weight,
            held_out=held_out,
            title=title,
            confidence=confidence,
            provenance=provenance,
        )
        return found

    def groups_of(self, X: Any, sensitive_features: SensitiveFeatures | None = None) -> SensitiveFeatures | None:
        """Return each row's group: as given, else from the ``sensitive_columns`` of X, else None."""
        if sensitive_features is None and self._columns is not None:
            return self._columns.read(X)
        return sensitive_features

    def _margin(self, X: Any, sensitive_features: SensitiveFeatures | None, key: Any) -> FloatArray:
        p_y, p_group = self.probabilities(X, sensitive_features=sensitive_features)
        if isinstance(self.rule_, Mixture):
            return self.rule_.expected_decision(p_y, p_group) - self.rule_.lots(p_y, p_group, key=key)
        _check_no_key(key)
        return self.rule_.decision_function(p_y, p_group)

    def probabilities(
        self, X: Any, *, sensitive_features: SensitiveFeatures | None = None
    ) -> tuple[FloatArray, dict[AttributeKey, FloatArray]]:
        """Return (p_y, p_group) exactly as the rule uses them, including recalibration.

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
            crossed one. With strata, it also contains the values of each stratum column. ``rule_.decide(p_y, p_group)``
            equals ``predict(X)``.
        """
        if "rule_" not in vars(self):
            check_is_fitted(self, "rule_")
        strata = strata_columns(X, self.rule_.strata) if self.rule_.strata else None
        p_y, p_group = self._models.probabilities(self._features(X), self._known_groups(X, sensitive_features))
        if strata is None:
            return p_y, p_group
        rule = self.rule_.rules[0] if isinstance(self.rule_, Mixture) else self.rule_
        spread = with_strata(rule, p_y, p_group, strata)
        return p_y, cast(dict[AttributeKey, FloatArray], spread)

    def _features(self, X: Any) -> Any:
        check_not_lazy(X)
        return X if self._columns is None or not self.drop_sensitive else self._columns.drop(X)

    def _known_groups(
        self, X: Any, sensitive_features: SensitiveFeatures | None
    ) -> dict[AttributeKey, NDArray[np.intp]]:
        """Return each row's group in each needed attribute, if the decisions use it."""
        if not self.sensitive_at_predict:
            if sensitive_features is not None:
                raise InputError(
                    "This classifier decides without the sensitive attribute: leave sensitive_features out,"
                    " or create it with sensitive_at_predict=True."
                )
            return {}
        sensitive_features = self.groups_of(X, sensitive_features)
        if sensitive_features is None:
            raise InputError(
                f"This classifier decides with the sensitive attribute (sensitive_at_predict=True): pass"
                f" sensitive_features with {list(self.held_out_.groups)!r}."
            )
        check_same_index({"X": X, "sensitive_features": sensitive_features})
        return known_groups(self._models.targets, self.held_out_.groups, sensitive_features, num_samples(X))


def _check_no_key(key: Any) -> None:
    if key is not None:
        raise InputError("This classifier is not randomized: leave key out, or create it with randomize=True.")
