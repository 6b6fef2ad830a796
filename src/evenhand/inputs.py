"""Converts callers' input to NumPy once, where it enters. All other code uses the result."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import NarwhalsError
from narwhals.typing import IntoDataFrame, IntoSeries
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import check_choice, check_label, is_missing, plain_label, shown
from evenhand.errors import InputError

if TYPE_CHECKING:
    from evenhand.rules.events import AttributeKey, Intersection

Missing = Literal["raise", "ignore"]
FloatArray = NDArray[np.float64]
# One column, or several: an array, a Series, a frame of any library, or columns by name.
SensitiveFeatures = ArrayLike | IntoSeries | IntoDataFrame | Mapping[Any, Any]
# p(A|x) or p(Y, A|x): an array or a frame, or one for each attribute.
GroupProbabilities = ArrayLike | IntoDataFrame | Mapping[Any, Any]
DEFAULT_ATTRIBUTE = "group"
MOST_GROUPS = 200
MANY_GROUPS = 20
MOST_NAMES = 10
IGNORE_MISSING = "drop them, or set missing='ignore' to count them for accuracy but not for any group's rates"
DROP_MISSING = "drop them, or give them a separate group"
EDGE_SLACK = 1e-6


def read_members(values: Any, what: str) -> tuple[Hashable, ...]:
    """Return the groups of one attribute, in the given order."""
    if isinstance(values, str | bytes | Mapping) or not (hasattr(values, "__array__") or isinstance(values, Iterable)):
        raise InputError(f"{what} must be a list of groups, such as ['F', 'M']; got {shown(values)}.")
    members = tuple(values) if isinstance(values, tuple | list) else tuple(as_list(values, what))
    members = tuple(check_label(member, f"Each group of {what}") for member in members)
    if len(set(members)) != len(members):
        raise InputError(f"{what} repeats a value: {shown(list(members))}.")
    return members


def as_native(values: Any, what: str, **options: Any) -> Any:
    """Return the narwhals form of a frame or Series, and any other value unchanged."""
    # Looking for every library that narwhals supports would dominate the time for one row.
    if type(values) in (np.ndarray, list, tuple):
        return values
    try:
        return nw.from_native(values, pass_through=True, **options)
    except NarwhalsError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{what} is a frame that cannot be read: {reason}. Rename or drop columns.") from None


@dataclass(frozen=True, eq=False)
class Attribute:
    """One sensitive column: its name, its groups in order, and each row's group as an index (-1: unknown)."""

    name: AttributeKey
    groups: tuple[Hashable, ...]
    codes: NDArray[np.intp]

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Attribute:
        """Return the attribute of some rows."""
        return Attribute(self.name, self.groups, self.codes[index])


def cross_attributes(attributes: Mapping[AttributeKey, Attribute], crossed: Intersection) -> Attribute:
    """Return the attribute whose groups are the combinations of the named attributes' groups that occur."""
    for name in crossed.attributes:
        if name not in attributes:
            raise InputError(f"The intersection names the attribute {name!r}; the data has {list(attributes)!r}.")
    groups, codes = cross([attributes[name] for name in crossed.attributes])
    return Attribute(crossed, groups, codes)


def cross(attributes: Sequence[Attribute]) -> tuple[tuple[tuple[Hashable, ...], ...], NDArray[np.intp]]:
    """Return the combinations of several attributes' groups that occur, as tuples, and each row's index into them.

    A row whose group is unknown in one of them has -1.
    """
    groups: list[tuple[Hashable, ...]] = [(group,) for group in attributes[0].groups]
    codes = attributes[0].codes
    for other in attributes[1:]:
        size = len(other.groups)
        pairs = np.where((codes < 0) | (other.codes < 0), -1, codes * size + other.codes)
        seen = np.unique(pairs[pairs >= 0])
        position = np.full(len(groups) * size + 1, -1, dtype=np.intp)
        position[seen] = np.arange(len(seen))
        groups, codes = [(*groups[c // size], other.groups[c % size]) for c in seen], position[pairs]
    return tuple(groups), codes


def joined(group: Hashable) -> str:
    """Return a group as text; the parts of a crossed group are joined by "&"."""
    return " & ".join(map(str, group)) if isinstance(group, tuple) else str(group)


def group_texts(groups: Iterable[Hashable]) -> list[str]:
    """Return a text for each group of an attribute: joined, or its Python repr if two texts would be equal."""
    listed = list(groups)
    texts = [joined(group) for group in listed]
    return texts if len(set(texts)) == len(texts) else [repr(group) for group in listed]


def sort_groups(values: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Sort hashable values of any type: naturally if they can be compared, else by type name and text."""
    values = list(values)
    try:
        return tuple(sorted(values))  # type: ignore[type-var]
    except (TypeError, ValueError):
        return tuple(sorted(values, key=lambda value: (type(value).__name__, str(value))))


def as_list(values: Any, what: str) -> list[Any]:
    """Return the Python values of any one-dimensional column: list, array, or Series of any library."""
    array = as_column(values, what)
    return [plain_label(item) for item in array.tolist()]


def as_column(values: Any, what: str) -> NDArray[Any]:
    """Return any one-dimensional column as a NumPy array (of objects if the values have different types)."""
    if isinstance(values, np.ndarray):
        array = _unmasked(values, None)
    elif isinstance(native := as_native(values, what, allow_series=True), nw.Series):
        array = native.to_numpy()
    elif isinstance(native, nw.DataFrame):
        if native.shape[1] != 1:
            raise InputError(f"{what} must be one column; got a frame with {native.shape[1]} columns.")
        array = native.get_column(native.columns[0]).to_numpy()
    elif isinstance(native, nw.LazyFrame):
        raise lazy_error(what)
    elif hasattr(values, "__array__"):
        array = np.asarray(values)
    else:
        items = list(values) if isinstance(values, Iterable) and not isinstance(values, str | bytes) else [values]
        array = _array_of_items(items)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{what} must be one-dimensional; got an array of shape {array.shape}.")
    return array


def lazy_error(what: str) -> InputError:
    """Return the error for a lazy frame."""
    return InputError(f"{what} is a lazy frame, which has no rows yet: collect() it first.")


def _array_of_items(items: list[Any]) -> NDArray[Any]:
    kinds = {type(item) for item in items}
    kind = next(iter(kinds)) if len(kinds) == 1 else object
    if kind in (bool, int, float, str) or issubclass(kind, np.bool_ | np.number | np.str_):
        try:
            array = np.asarray(items)
            # NumPy rounds whole numbers of 64 bits with and without a sign to floats.
            if kind is not int or array.dtype.kind != "f":
                return array
        except OverflowError:
            pass
    return np.fromiter(items, dtype=object, count=len(items))


def _unmasked(array: NDArray[Any], missing: Any) -> NDArray[Any]:
    """Return an array without a mask; masked values are missing."""
    if not isinstance(array, np.ma.MaskedArray):
        return array
    mask = np.ma.getmaskarray(array)
    plain: NDArray[Any] = np.asarray(array)
    return np.where(mask, missing, plain.astype(object)) if mask.any() else plain


def factorize(values: Any, what: str) -> tuple[tuple[Hashable, ...], NDArray[np.intp]]:
    """Return the sorted distinct values of a column and each row's index into them; -1 means missing."""
    array = as_column(values, what)
    if array.dtype.kind in "bui" and array.size:
        return _factorize_integers(array)
    if array.dtype.kind in "fM":
        return _factorize_sortable(array)
    items = array.tolist()
    try:
        distinct = set(items)
    except TypeError as error:
        raise InputError(f"{what} has a value that is not hashable ({error}); use plain values.") from None
    for item in distinct:
        if not isinstance(item, str | int | float | None) and not is_missing(item):
            check_label(item, f"Each value of {what}")
    known = sort_groups(plain_label(item) for item in distinct if not is_missing(item))
    position: dict[Any, int] = {value: index for index, value in enumerate(known)}
    position |= {item: -1 for item in distinct if is_missing(item)}
    codes = np.fromiter(map(position.__getitem__, items), dtype=np.intp, count=len(items))
    return known, codes


def _factorize_integers(array: NDArray[Any]) -> tuple[tuple[Hashable, ...], NDArray[np.intp]]:
    low, high = int(array.min()), int(array.max())
    if high - low > 100_000 or high > 2**62:
        return _factorize_sortable(array)
    offset = (array.astype(np.int8) if array.dtype.kind == "b" else array - array.min()).astype(np.intp) - (
        low if array.dtype.kind == "b" else 0
    )
    present = np.zeros(high - low + 1, dtype=bool)
    present[offset] = True
    position = np.cumsum(present, dtype=np.intp) - 1
    distinct = (np.flatnonzero(present) + low).astype(array.dtype)
    return tuple(distinct.tolist()), position[offset]


def _factorize_sortable(array: NDArray[Any]) -> tuple[tuple[Hashable, ...], NDArray[np.intp]]:
    missing = np.isnat(array) if array.dtype.kind == "M" else np.isnan(array)
    if not missing.any():
        distinct, codes = np.unique(array, return_inverse=True)
        return tuple(distinct.tolist()), codes.astype(np.intp)
    distinct, known_codes = np.unique(array[~missing], return_inverse=True)
    codes = np.full(len(array), -1, dtype=np.intp)
    codes[~missing] = known_codes
    return tuple(distinct.tolist()), codes


def _check_not_names(given: Any, n_rows: int) -> None:
    """Raise if names of columns are given instead of the columns."""
    names = [given] if isinstance(given, str) else given
    short = isinstance(names, list) and 0 < len(names) <= MOST_NAMES and 10 * len(names) <= n_rows
    if isinstance(given, str) or (short and all(isinstance(name, str) for name in names)):
        raise InputError(
            f"sensitive_features needs each row's group, {n_rows} in all; got {shown(given)}. If that names columns of"
            f" X, pass the columns themselves, as in X[{shown(given)}], or make the classifier with"
            f" FairClassifier(..., sensitive_columns={shown(given)})."
        )


def read_sensitive(
    sensitive_features: SensitiveFeatures | None,
    n_rows: int,
    *,
    missing: Missing = "raise",
    groups: Mapping[Any, Sequence[Hashable]] | Sequence[Hashable] | None = None,
    remedy: str = IGNORE_MISSING,
    any_number: bool = False,
) -> dict[AttributeKey, Attribute]:
    """Return the sensitive attributes by name, from an array, Series, frame of any library or dict.

    Parameters
    ----------
    sensitive_features : array-like, Series, frame or dict of columns
        One column is one attribute. An unnamed column is called ``"group"``.
    n_rows : int
        The number of rows that every column must have.
    missing : {"raise", "ignore"}, default="raise"
        Whether a row of unknown group is an error, or is left out of that attribute's rates.
    groups : sequence, or dict of sequences by attribute, default=None
        The groups and their order. ``None`` sorts the values that occur.
    remedy : str
        What the user can do about rows of unknown group.
    any_number : bool, default=False
        Whether a column may have more values than can be compared pairwise.
    """
    check_choice(missing, "missing", ("raise", "ignore"))
    _check_not_names(sensitive_features, n_rows)
    columns = named_columns(sensitive_features)
    attributes: dict[AttributeKey, Attribute] = {}
    for name, column in columns.items():
        what = f"sensitive feature {name!r}"
        known, codes = factorize(column, what)
        if len(codes) != n_rows:
            hint = ""
            if isinstance(sensitive_features, Mapping) and len(codes) > n_rows:
                hint = " If scikit-learn split them, as in GridSearchCV: it cannot split a dict, so pass a DataFrame."
            raise InputError(f"{what} has {len(codes)} rows, but the labels and probabilities have {n_rows}.{hint}")
        wanted = groups.get(name) if isinstance(groups, Mapping) else groups
        if wanted is not None:
            known, codes = _reorder(known, codes, read_members(wanted, f"groups for {what}"), what)
        elif not any_number:
            check_group_count(len(known), int((codes >= 0).sum()), what)
        unknown = np.flatnonzero(codes < 0)
        if unknown.size and missing == "raise":
            raise InputError(f"{what} is missing in {unknown.size} rows (the first is row {unknown[0]}): {remedy}.")
        if not known:
            raise InputError(f"{what} has no known value in any row.")
        attributes[name] = Attribute(name, known, codes)
    return attributes


def check_group_count(n_groups: int, n_rows: int, what: str) -> None:
    """Raise if a column has too many values to be a column of groups: all pairs are compared."""
    if n_groups > MOST_GROUPS or (n_groups > MANY_GROUPS and n_rows < 2 * n_groups):
        raise InputError(
            f"{what} has {n_groups:,} different values in {n_rows:,} rows: it looks like a number or an identifier, not"
            " like groups. Bin it first, for instance with pandas.cut or pandas.qcut, or merge small groups."
        )


def named_columns(sensitive_features: SensitiveFeatures | None, what: str = "sensitive_features") -> dict[str, Any]:
    """Return the columns of sensitive features by name; an unnamed one is called ``"group"``."""
    if sensitive_features is None:
        raise InputError(f"{what} is None: pass each row's group, as an array, Series, frame or dict.")
    if isinstance(sensitive_features, Mapping):
        if not sensitive_features:
            raise InputError(f"{what} is an empty dict: give at least one attribute.")
        return _by_name(sensitive_features, what)
    native = as_native(sensitive_features, what, allow_series=True)
    if isinstance(native, nw.LazyFrame):
        native = native.collect()
    if isinstance(native, nw.DataFrame):
        return _by_name({name: native.get_column(name) for name in native.columns}, what)
    if isinstance(native, nw.Series):
        return {str(native.name) if is_named(sensitive_features) else DEFAULT_ATTRIBUTE: native}
    if isinstance(sensitive_features, np.ndarray) and sensitive_features.ndim == 2 and sensitive_features.shape[1] > 1:
        return {f"{DEFAULT_ATTRIBUTE}{j}": sensitive_features[:, j] for j in range(sensitive_features.shape[1])}
    return {DEFAULT_ATTRIBUTE: sensitive_features}


def _by_name(columns: Mapping[Any, Any], what: str) -> dict[str, Any]:
    if not columns:
        raise InputError(f"{what} has no column: give at least one attribute.")
    named = {str(name): column for name, column in columns.items()}
    if len(named) != len(columns):
        raise InputError(f"{what} has two columns with the same text as name: {list(columns)!r}.")
    return named


def is_named(sensitive_features: SensitiveFeatures | None) -> bool:
    """Return whether a container of sensitive columns names them: a dict, a frame, or a Series with a name."""
    native = as_native(sensitive_features, "sensitive_features", allow_series=True)
    if isinstance(native, nw.Series):
        return native.name not in (None, "")
    return isinstance(native, Mapping | nw.DataFrame | nw.LazyFrame)


def _reorder(
    known: tuple[Hashable, ...], codes: NDArray[np.intp], wanted: tuple[Hashable, ...], what: str
) -> tuple[tuple[Hashable, ...], NDArray[np.intp]]:
    stray = [value for value in known if value not in wanted]
    if stray:
        raise InputError(f"{what} has the unknown group {stray[0]!r}; the groups given are {list(wanted)!r}.")
    index = {value: position for position, value in enumerate(wanted)}
    position = np.array([index[value] for value in known] + [-1], dtype=np.intp)
    return wanted, position[codes]


def read_labels(y: Any, pos_label: Hashable, n_rows: int) -> tuple[NDArray[np.bool_], tuple[Hashable, Hashable]]:
    """Return a mask of the positive labels, one for each row of p_y, and the pair (negative label, positive label)."""
    check_label(pos_label)
    positive, classes = labels_of(*factorize(y, "y"), pos_label)
    if len(positive) != n_rows:
        raise InputError(f"y has {len(positive)} rows, but p_y has {n_rows}.")
    return positive, classes


def labels_of(
    values: tuple[Hashable, ...], codes: NDArray[np.intp], pos_label: Hashable
) -> tuple[NDArray[np.bool_], tuple[Hashable, Hashable]]:
    """Do the same as :func:`read_labels` for factorised labels."""
    if codes.size == 0:
        raise InputError("y is empty: there is nothing to learn from.")
    if (codes < 0).any():
        raise InputError(f"y has a missing label in row {int(np.argmax(codes < 0))}: drop such rows.")
    if len(values) > 2:
        raise InputError(f"y must have two values, one of them positive; it has {len(values)}: {list(values)[:6]!r}.")
    if len(values) == 1:
        raise InputError(f"y has only the value {values[0]!r}: both labels are needed.")
    if pos_label not in values:
        raise InputError(f"pos_label={pos_label!r} is not among the labels {list(values)!r}: pass the positive one.")
    positive = values.index(pos_label)
    return codes == positive, (values[1 - positive], values[positive])


def read_probabilities(p: ArrayLike, what: str, *, shape: tuple[int | None, ...] | None = None) -> FloatArray:
    """Return probabilities as contiguous float64, after checking that each is a number in [0, 1].

    Values slightly outside because of rounding, as in a sum of single-precision columns, are clipped.
    """
    array = as_float_array(p, what)
    if shape is not None and (
        array.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True))
    ):
        wanted = " x ".join("n" if size is None else str(size) for size in shape)
        hint = (
            " (pass the positive class's column, predict_proba(X)[:, 1])" if array.ndim == 2 and len(shape) == 1 else ""
        )
        raise InputError(f"{what} must have shape {wanted}; got {array.shape}{hint}.")
    if ((array >= 0.0) & (array <= 1.0)).all():
        return array
    bad = ~((array >= -EDGE_SLACK) & (array <= 1.0 + EDGE_SLACK))
    if bad.any():
        where = int(np.argmax(bad.reshape(len(array), -1).any(axis=1)))
        value = array.reshape(len(array), -1)[where]
        raise InputError(
            f"{what} must be probabilities between 0 and 1; row {where} has {value.tolist()}"
            f" ({int(bad.sum())} such values)."
        )
    return np.clip(array, 0.0, 1.0)


def columns_in_order(values: Any, groups: Sequence[Hashable], what: str) -> Any:
    """Return a frame with columns named after the groups as an array in the groups' order; anything else unchanged.

    A column belongs to a group if its name is the group or its text, or contains that within an affix that all names
    share, as in ``p_F`` and ``p_M``. Numbered columns, as in 0, 1, ... or ``p0``, ``p1``, ..., are read by position,
    unless the numbers are the groups. Other names are an error, because their meaning is unknown.
    """
    if isinstance(values, np.ndarray):
        return values
    frame = as_native(values, what, eager_only=True)
    if not isinstance(frame, nw.DataFrame):
        return values
    names: list[Any] = frame.columns
    if len(names) != len(groups):
        return values
    texts, joint_texts = [str(group) for group in groups], [joined(group) for group in groups]
    for spelt in (list(groups), texts, joint_texts):
        if set(names) == set(spelt):
            return np.take(frame.to_numpy(), _places(names, spelt), axis=1)
    framed = (spelt for inner in (texts, joint_texts) for spelt in _framed(names, inner))
    orders = {_places(names, spelt) for spelt in framed if set(names) == set(spelt)}
    if len(orders) == 1:
        return np.take(frame.to_numpy(), orders.pop(), axis=1)
    known = {*groups, *texts}
    named = [name for name in names if name in known]
    if names == list(range(len(names))) or (_numbered(names) and not named):
        return values
    some = f", of which only {named!r} are named after groups" if named else ", which name no group"
    raise InputError(
        f"{what} has the columns {names!r}{some}. Name one column after each of the groups {list(groups)!r}, in any"
        " order; or pass .to_numpy(), with the columns in this order."
    )


def _places(names: Sequence[Any], spelt: Sequence[Any]) -> tuple[int, ...]:
    return tuple(list(names).index(name) for name in spelt)


def _framed(names: Sequence[Any], texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names without each prefix and suffix that the first name allows."""
    first = names[0] if isinstance(names[0], str) else ""
    for text in filter(None, texts):
        for place in range(len(first)):
            if first.startswith(text, place):
                yield [first[:place] + other + first[place + len(text) :] for other in texts]


def _numbered(names: Sequence[Any]) -> bool:
    """Return whether names are only 0, 1, ... or 1, 2, ..., all after the same prefix or none."""
    prefix = str(names[0]).rstrip("0123456789")
    numbers = [str(name).removeprefix(prefix) for name in names]
    return any(numbers == [str(start + k) for k in range(len(names))] for start in (0, 1))


def as_float_array(values: Any, what: str) -> FloatArray:
    """Return any numeric array, Series or frame as a contiguous float64 array."""
    if type(values) is np.ndarray and values.dtype == np.float64 and values.flags.c_contiguous:
        return values
    given = values
    native = as_native(values, what, allow_series=True)
    if isinstance(native, nw.Series | nw.DataFrame):
        values = native.to_numpy()
    elif isinstance(native, nw.LazyFrame):
        raise lazy_error(what)
    try:
        if isinstance(values, np.ndarray):
            values = _unmasked(values, np.nan)
        if not isinstance(values, np.ndarray) or values.dtype != np.float64:
            values = _checked_kind(np.asarray(values), what)
        return np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{what} must be numbers: {error}; got {shown(given)}.") from None


def _checked_kind(array: NDArray[Any], what: str) -> NDArray[Any]:
    """Return an array of numbers, or of objects that may be numbers; text and dates are not converted."""
    kinds = {"c": "complex ones", "U": "text", "S": "bytes", "M": "dates", "m": "durations"}
    if array.dtype.kind in kinds:
        real = "real numbers" if array.dtype.kind == "c" else "numbers"
        raise InputError(f"{what} must be {real}; got {kinds[array.dtype.kind]}.")
    if array.dtype == object:
        odd = next((item for item in array.flat if isinstance(item, str | bytes | complex | np.datetime64)), None)
        if odd is not None:
            raise InputError(f"{what} must be numbers; got {shown(odd)} among them.")
    return array


def read_weights(sample_weight: ArrayLike | None, n_rows: int) -> FloatArray:
    """Return the weights of the rows: ones if none are given."""
    if sample_weight is None:
        return np.ones(n_rows)
    weights = as_float_array(sample_weight, "sample_weight")
    if weights.shape != (n_rows,):
        raise InputError(f"sample_weight must have shape ({n_rows},); got {weights.shape}.")
    bad = ~(np.isfinite(weights) & (weights >= 0.0))
    if bad.any():
        where = int(np.argmax(bad))
        raise InputError(f"sample_weight must be finite and not negative; row {where} has {weights[where]}.")
    if weights.sum() <= 0.0:
        raise InputError("sample_weight is zero for every row: give some rows a positive weight.")
    return weights
