"""The parts of scikit-learn that are not public but that estimators cannot do without, in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from sklearn.base import _fit_context
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, Interval, RealNotInt, StrOptions
from sklearn.utils.metadata_routing import _routing_enabled
from sklearn.utils.validation import _num_samples

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
    return cast(Method, _fit_context(prefer_skip_nested_validation=False)(fit))


def num_samples(X: Any) -> int:
    """Return the number of rows of whatever a model takes."""
    return int(_num_samples(X))


def safe_indexing(X: Any, rows: Any) -> Any:
    """Return some rows of an array, frame of any library, sparse matrix or list, in its own type."""
    return _safe_indexing(X, rows)


def routing_enabled() -> bool:
    """Tell whether scikit-learn's metadata routing is switched on."""
    return bool(_routing_enabled())
