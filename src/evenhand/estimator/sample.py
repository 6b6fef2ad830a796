"""The rows passed to an estimator: X unchanged, and labels, sensitive attributes and weights read once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from evenhand._compat import num_samples, safe_indexing
from evenhand.arguments import check_label, is_missing, shown
from evenhand.errors import InputError
from evenhand.inputs import (
    DROP_MISSING,
    Attribute,
    Missing,
    SensitiveFeatures,
    as_column,
    as_list,
    as_native,
    factorize,
    lazy_error,
    read_sensitive,
    read_weights,
)
from evenhand.plausibility import check_same_index
from evenhand.rows import Rows
from evenhand.rules.events import AttributeKey
from evenhand.rules.strata import read_strata

RowNumbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Sample:
    """The arguments of ``fit``, read once: X and y as the models get them, and the rows without probabilities."""

    X: Any
    y: NDArray[Any]
    classes: NDArray[Any]
    rows: Rows

    def __len__(self) -> int:
        return len(self.y)

    @property
    def positive_index(self) -> int:
        """The index of the positive label among the classes."""
        return int(self.classes.tolist().index(self.rows.classes[1]))

    @property
    def positive(self) -> NDArray[np.bool_]:
        """Whether each row's label is the positive one."""
        assert self.rows.positive is not None
        return self.rows.positive

    @property
    def counted(self) -> RowNumbers:
        """The rows of positive weight: a row of weight zero is ignored everywhere."""
        weight = self.rows.sample_weight
        return np.arange(len(self)) if weight is None else np.flatnonzero(weight > 0.0)


def read_sample(
    X: Any,
    y: Any,
    attributes: SensitiveFeatures | None,
    weight: Any,
    pos_label: Hashable | None,
    missing: Missing = "raise",
    strata: dict[str, Any] | None = None,
) -> Sample:
    """Check and read labels, sensitive attributes (by name), weights and strata (by column); of X, only the length."""
    check_same_index({"X": X, "y": y, "sensitive_features": attributes, "sample_weight": weight})
    n = num_samples(X)
    labels = read_target(y)
    _in_its_words(check_consistent_length, X, labels)
    weights = None if weight is None else read_weights(weight, n)
    seen = labels if weights is None else labels[weights > 0.0]
    classes = np.unique(seen)
    if len(classes) < 2:
        only = f"one class, {classes.tolist()[0]!r}" if len(classes) else "no class"
        raise InputError(f"y has {only} among the rows of positive weight: a classifier needs two.")
    found = read_attributes(attributes, np.ones(n, dtype=bool) if weights is None else weights > 0.0, missing)
    place = _positive_index(classes, pos_label)
    values = classes.tolist()
    rows = Rows(
        positive=labels == classes[place],
        classes=(values[1 - place], values[place]),
        attributes=found,
        groups={name: attribute.groups for name, attribute in found.items()},
        sample_weight=weights,
        strata=read_strata(strata or None, tuple(strata or ()), n),
    )
    return Sample(X, labels, classes, rows)


def check_not_lazy(X: Any) -> None:
    """Raise if X is a lazy frame, which no model accepts."""
    # Objects with a shape are not checked: narwhals raises if two columns have the same name.
    if not hasattr(X, "shape") and isinstance(nw.from_native(X, pass_through=True), nw.LazyFrame):
        raise lazy_error("X")


def read_target(y: Any) -> NDArray[Any]:
    """Return binary labels as a one-dimensional array, or raise the errors that scikit-learn requires."""
    if y is None:
        raise InputError("FairClassifier requires y to be passed, but the target y is None.")
    native = as_native(y, "y", allow_series=True)
    if isinstance(native, nw.LazyFrame):
        raise lazy_error("y")
    y = native.to_numpy() if isinstance(native, nw.Series | nw.DataFrame) else y
    labels: NDArray[Any] = _in_its_words(column_or_1d, y, warn=True)
    if labels.dtype == object:
        missing = [row for row, value in enumerate(labels.tolist()) if is_missing(value)]
        if missing:
            raise InputError(f"y has a missing label in row {missing[0]}: drop such rows.")
        for value in labels.tolist():
            check_label(value, "Each label of y")
    else:
        _in_its_words(assert_all_finite, labels, input_name="y")
    try:
        kind = type_of_target(labels, input_name="y", raise_unknown=True)
    except ValueError as error:
        raise InputError(str(error)) from None
    except TypeError:
        raise InputError("y has labels of different types, such as text and numbers: use one type.") from None
    if kind != "binary":
        raise InputError(f"Only binary classification is supported. Unknown label type: {kind}.")
    return labels


def _in_its_words(check: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """Return the result of a scikit-learn check, and convert its error to one of this library."""
    try:
        return check(*values, **options)
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from None


def _positive_index(classes: NDArray[Any], pos_label: Hashable | None) -> int:
    if pos_label is None:
        return 1
    values = classes.tolist()
    check_label(pos_label)
    if pos_label not in values:
        raise InputError(f"pos_label={pos_label!r} is not among the labels {values!r}: pass the positive one.")
    return int(values.index(pos_label))


def read_attributes(
    sensitive_features: SensitiveFeatures | None, counts: NDArray[np.bool_], missing: Missing = "raise"
) -> dict[AttributeKey, Attribute]:
    """Return the sensitive attributes by name.

    A row of positive weight and unknown group is an error, unless ``missing`` is "ignore". The groups are those of the
    rows of positive weight: the code of any other group is -1.
    """
    attributes = read_sensitive(sensitive_features, len(counts), missing="ignore")
    for name, attribute in attributes.items():
        unknown = np.flatnonzero(counts & (attribute.codes < 0))
        if unknown.size and missing == "raise":
            raise InputError(
                f"The sensitive feature {name!r} is missing in {unknown.size} rows (the first is row"
                f" {unknown[0]}): {DROP_MISSING}."
            )
    return attributes if counts.all() else {name: _counted(found, counts) for name, found in attributes.items()}


def _counted(attribute: Attribute, counts: NDArray[np.bool_]) -> Attribute:
    seen = np.unique(attribute.codes[counts & (attribute.codes >= 0)])
    position = np.full(len(attribute.groups) + 1, -1, dtype=np.intp)
    position[seen] = np.arange(len(seen))
    return Attribute(attribute.name, tuple(attribute.groups[code] for code in seen), position[attribute.codes])


def accuracy_of(
    y: Any, positive: NDArray[np.bool_], classes: tuple[Hashable, Hashable], sample_weight: Any = None
) -> float:
    """Return the accuracy of decisions against the caller's labels."""
    labels, codes = factorize(y, "y")
    if len(codes) != len(positive) or not len(codes):
        raise InputError(f"y has {len(codes)} rows, but X has {len(positive)}; both need the same rows, one or more.")
    if not any(label in labels for label in classes):
        raise InputError(f"y has the labels {shown(list(labels))}; this classifier decides between {list(classes)!r}.")
    place = np.array([labels.index(label) if label in labels else -2 for label in classes])
    weights = None if sample_weight is None else read_weights(sample_weight, len(codes))
    return float(np.average(codes == place[positive.astype(np.intp)], weights=weights))


def _indexable(X: Any) -> Any:
    """Return a sparse matrix in a format that supports indexing."""
    return X if X.format in ("csr", "csc", "lil") else X.tocsr()


def take_rows(X: Any, rows: RowNumbers | None) -> Any:
    """Return some rows of X in its own type; ``None`` returns all of X unchanged."""
    if rows is None:
        return X
    if isinstance(X, Mapping) and not issparse(X):
        return {name: take_rows(part, rows) for name, part in X.items()}
    if not hasattr(X, "__getitem__") and hasattr(X, "__array__"):
        X = np.asarray(X)
    return safe_indexing(_indexable(X) if issparse(X) else X, rows)


@dataclass(frozen=True)
class SensitiveColumns:
    """Columns of X that are sensitive attributes: finds them, and removes them for the models."""

    columns: tuple[Hashable, ...]
    n_features: int
    feature_names: tuple[str, ...] | None

    @classmethod
    def of(cls, X: Any, columns: Any) -> SensitiveColumns:
        """Find the columns in X, by name in a frame and by number in an array."""
        wanted: list[Any] = [columns] if isinstance(columns, str | Integral) else as_list(columns, "sensitive_columns")
        for name in wanted:
            check_label(name, "Each of sensitive_columns")
        if not wanted or len(set(wanted)) != len(wanted):
            raise InputError(f"sensitive_columns must name one or more different columns of X; got {shown(columns)}.")
        frame = _as_frame(X)
        if frame is not None:
            missing = [name for name in wanted if name not in frame.columns]
            if missing:
                raise InputError(f"X has no column {missing[0]!r} (sensitive_columns); it has {list(frame.columns)!r}.")
            return cls(tuple(wanted), len(frame.columns), tuple(frame.columns))
        shape: tuple[int, ...] = tuple(getattr(X, "shape", ()))
        if len(shape) != 2:
            raise InputError("sensitive_columns needs X to be a frame or a 2-D array; or pass sensitive_features.")
        bad = [j for j in wanted if not isinstance(j, Integral) or not 0 <= int(j) < shape[1]]
        if bad:
            raise InputError(f"sensitive_columns must be column numbers from 0 to {shape[1] - 1}; got {bad[0]!r}.")
        return cls(tuple(int(j) for j in wanted), shape[1], None)

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes' names: the columns', or x0, x1, ... if columns have only numbers."""
        return tuple(str(c) if self.feature_names is not None else f"x{c}" for c in self.columns)

    def read(self, X: Any) -> dict[str, NDArray[Any]]:
        """Return the columns by attribute name."""
        frame = _as_frame(X)
        if frame is not None:
            missing = [name for name in self.columns if name not in frame.columns]
            if missing:
                raise InputError(
                    f"X has no column {missing[0]!r}, which the decisions need (sensitive_at_predict=True)."
                )
            found = [as_column(frame.get_column(name), f"column {name!r}") for name in self.columns]
        else:
            if X.shape[1] != self.n_features:
                raise InputError(f"X has {X.shape[1]} columns, but {self.n_features} are needed.")
            found = [_array_column(X, int(j)) for j in self.columns]  # type: ignore[call-overload]
        return dict(zip(self.names, found, strict=True))

    def drop(self, X: Any) -> Any:
        """Return X without the columns; if X does not have them, it is returned unchanged."""
        frame = _as_frame(X)
        if frame is not None:
            present = [name for name in self.columns if name in frame.columns]
            return frame.drop(present).to_native() if present else X
        if X.shape[1] == self.n_features - len(self.columns):
            return X
        kept = [j for j in range(X.shape[1]) if j not in self.columns]
        return (_indexable(X) if issparse(X) else X)[:, kept]


def strata_columns(X: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of X that define strata, by name; x0, x1, ... if columns have only numbers."""
    if not names:
        return {}
    frame: Any = X if isinstance(X, Mapping) else _as_frame(X)
    n_columns = 0 if frame is not None or len(getattr(X, "shape", ())) != 2 else X.shape[1]
    listed = [f"x{j}" for j in range(n_columns)] if frame is None else list(frame if frame is X else frame.columns)
    for name in names:
        if name not in listed:
            raise InputError(f"X has no column {name!r}, within which groups are compared; it has {listed[:20]!r}.")
    if frame is None:
        return {name: _array_column(X, listed.index(name)) for name in names}
    return {name: frame[name] if frame is X else as_column(frame.get_column(name), name) for name in names}


def _as_frame(X: Any) -> Any:
    native = nw.from_native(X, eager_only=True, pass_through=True)
    return native if isinstance(native, nw.DataFrame) else None


def _array_column(X: Any, j: int) -> NDArray[Any]:
    column = _indexable(X)[:, [j]].toarray() if issparse(X) else np.asarray(X[:, j])
    return column.reshape(-1)


def find_columns(X: Any, columns: Any, sensitive_features: SensitiveFeatures | None) -> SensitiveColumns | None:
    """Return the columns of X that contain the groups, or None if sensitive_features is passed."""
    if columns is not None:
        if sensitive_features is not None:
            raise InputError("Give sensitive_features to fit, or sensitive_columns to the constructor, not both.")
        return SensitiveColumns.of(X, columns)
    if sensitive_features is None:
        raise InputError(
            "FairClassifier.fit needs sensitive_features, each row's group; or name columns of X that"
            " contain it: FairClassifier(..., sensitive_columns=['sex'])."
        )
    return None
