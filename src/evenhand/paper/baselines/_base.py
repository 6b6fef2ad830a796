"""The common part of the baselines: labels, groups and criteria, read in the same way."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import accuracy_score

from evenhand.errors import InputError
from evenhand.inputs import DROP_MISSING, SensitiveFeatures, read_sensitive
from evenhand.paper.models._labels import read_targets
from evenhand.plausibility import check_same_index
from evenhand.rules.criteria import Criterion, resolve

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]


class Baseline(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The base of the baselines: two classes, one sensitive attribute."""

    needs_sensitive_at_predict: ClassVar[bool] = False
    paper: ClassVar[str]

    def _read(self, y: Any, sensitive_features: SensitiveFeatures | None) -> tuple[Codes, Codes]:
        """Set ``classes_`` and ``groups_``; return each row's label (1: positive) and group as codes."""
        check_same_index({"y": y, "sensitive_features": sensitive_features})
        targets = read_targets(y, _length(y))
        if len(targets.classes) != 1 or len(targets.classes[0]) != 2:
            found = [len(classes) for classes in targets.classes]
            raise InputError(f"y must be one column with two classes; its columns have {found} classes.")
        self.classes_ = targets.classes[0]
        labels = targets.codes[:, 0]
        self.groups_, groups = _read_groups(sensitive_features, len(labels))
        if len(self.groups_) < 2:
            raise InputError(f"there is only the group {self.groups_[0]!r}: two are needed to compare.")
        return labels, groups

    def _encode_groups(self, sensitive_features: SensitiveFeatures | None, n_rows: int) -> Codes:
        """Return the groups' codes at prediction time."""
        if sensitive_features is None:
            raise InputError(
                f"{type(self).__name__} decides by group: predict needs sensitive_features, each row's group."
            )
        return _read_groups(sensitive_features, n_rows, self.groups_)[1]

    def score(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: SensitiveFeatures | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the accuracy."""
        extra = {"sensitive_features": sensitive_features} if self.needs_sensitive_at_predict else {}
        return float(accuracy_score(y, self.predict(X, **extra), sample_weight=sample_weight))


class ScoreBaseline(Baseline):
    """The base of the baselines that work on the probabilities of any classifier."""

    estimator: Any

    def _fit_scores(self, X: Any, y: Any) -> FloatArray:
        """Fit a clone of the estimator (a frozen one stays as it is), and return P(Y = positive | x)."""
        self.estimator_ = clone(self.estimator).fit(X, y)
        return self._scores(X)

    def _scores(self, X: Any) -> FloatArray:
        positive = list(self.estimator_.classes_).index(self.classes_[1])
        scores: FloatArray = np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)[:, positive]
        return scores


def parity_labels(criterion: str | Criterion) -> tuple[int | None, ...]:
    """Return the labels within which a parity criterion compares groups; None stands for all rows."""
    labels = getattr(resolve(criterion), "labels", ())
    if not labels:
        raise InputError(f"this baseline supports only parity criteria (dp, eo, eop, pe); got {criterion!r}.")
    return tuple(labels)


@contextmanager
def quiet_fairlearn() -> Iterator[None]:
    """Hide pandas' warnings about fairlearn, because callers of evenhand cannot act on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _length(y: Any) -> int:
    if y is None:
        raise InputError("a baseline requires y to be passed, but the target y is None.")
    return len(y)


def _read_groups(
    sensitive_features: SensitiveFeatures | None, n_rows: int, groups: tuple[Hashable, ...] | None = None
) -> tuple[tuple[Hashable, ...], Codes]:
    attributes = read_sensitive(sensitive_features, n_rows, groups=groups, remedy=DROP_MISSING)
    if len(attributes) != 1:
        raise InputError(
            f"this baseline compares the groups of one attribute; got {sorted(map(str, attributes))}: "
            "pass one column, or one column of their combinations."
        )
    (attribute,) = attributes.values()
    return attribute.groups, attribute.codes.astype(np.int64)
