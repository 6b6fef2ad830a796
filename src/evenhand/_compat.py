"""The parts of scikit-learn that are private but that estimators need, in one place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sklearn.base import _fit_context
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, Interval, InvalidParameterError, RealNotInt, StrOptions
from sklearn.utils.metadata_routing import _routing_enabled
from sklearn.utils.validation import _num_samples

from evenhand.errors import InputError

__all__ = [
    "HasMethods",
    "Interval",
    "RealNotInt",
    "StrOptions",
    "num_samples",
    "routing_enabled",
    "safe_indexing",
    "validated",
]

Method = TypeVar("Method", bound=Callable[..., Any])


def validated(fit: Method) -> Method:
    """Check the constructor's parameters against ``_parameter_constraints`` before ``fit`` runs."""
    checked = _fit_context(prefer_skip_nested_validation=False)(fit)

    @functools.wraps(fit)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return checked(*args, **kwargs)
        except InvalidParameterError as error:
            hint = ""
            if "'fit' and 'predict_proba'" in str(error):
                hint = " If the model has no predict_proba, wrap it: sklearn.calibration.CalibratedClassifierCV(model)."
            raise InputError(f"{error}{hint}") from None

    return cast(Method, run)


def num_samples(X: Any) -> int:
    """Return the number of rows of any input that a model accepts."""
    try:
        return int(_num_samples(X))
    except TypeError as error:
        raise InputError(f"X must have rows: {error}.") from None


def safe_indexing(X: Any, rows: Any) -> Any:
    """Return some rows of an array, a frame of any library, a sparse matrix or a list, in the same type."""
    return _safe_indexing(X, rows)


def routing_enabled() -> bool:
    """Return whether scikit-learn's metadata routing is enabled."""
    return bool(_routing_enabled())
