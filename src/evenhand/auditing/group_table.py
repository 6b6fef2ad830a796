"""Any metric by group, like fairlearn's MetricFrame, with bootstrap intervals."""

from __future__ import annotations

import html
import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import check_choice, check_label, check_seed, check_whole, shown
from evenhand.auditing.findings import Estimate
from evenhand.errors import InputError
from evenhand.inputs import (
    DROP_MISSING,
    Attribute,
    FloatArray,
    SensitiveFeatures,
    as_column,
    as_native,
    cross,
    joined,
    read_sensitive,
    read_weights,
)
from evenhand.plausibility import check_same_index
from evenhand.statistics.intervals import check_confidence
from evenhand.text import short_name, table_text

__all__ = ["GroupTable", "group_table"]

Metric = Callable[..., Any]
Method = Literal["between_groups", "to_overall"]
_METHODS = ("between_groups", "to_overall")
_LIBRARIES = ("pandas", "polars", "pyarrow")


@dataclass(frozen=True, eq=False, repr=False)
class GroupTable:
    """Metrics by group. It prints as a table; in a notebook, as one in HTML.

    Attributes
    ----------
    metrics : tuple of str
        The names of the metrics.
    sensitive : tuple of str
        The names of the sensitive columns.
    within : tuple of str
        The names of the columns within whose values groups are compared; empty if there are none.
    confidence : float
        The level of the intervals.
    by_group : dict
        Maps a group (with several sensitive columns, a tuple of values) to ``{metric: Estimate}``. With ``within``, the
        keys are pairs ``(level, group)``.
    overall : dict
        ``{metric: Estimate}`` over all rows. With ``within``, maps a level to that.
    rows : dict
        The number of rows of each key of ``by_group``.
    """

    metrics: tuple[str, ...]
    sensitive: tuple[str, ...]
    within: tuple[str, ...]
    confidence: float
    by_group: dict[Hashable, dict[str, Estimate]]
    overall: dict[Any, Any]
    rows: dict[Hashable, int]
    _levels: tuple[_Level, ...]
    _library: Any

    def difference(self, method: Method = "between_groups") -> dict[Any, Any]:
        """Return the largest difference of each metric: between two groups, or between a group and all rows.

        Parameters
        ----------
        method : {"between_groups", "to_overall"}, default="between_groups"
            Which differences are compared.

        Returns
        -------
        dict
            ``{metric: Estimate}``; with ``within``, maps each level to that.
        """
        return self._compared(method, _Level.difference)

    def ratio(self, method: Method = "between_groups") -> dict[Any, Any]:
        """Return the smallest ratio of each metric: between two groups, or between a group and all rows.

        Parameters
        ----------
        method : {"between_groups", "to_overall"}, default="between_groups"
            Which ratios are compared.

        Returns
        -------
        dict
            The smaller value over the larger, ``{metric: Estimate}``; with ``within``, maps each level to that. The
            value is None if all are 0.
        """
        return self._compared(method, _Level.ratio)

    def to_frame(self) -> Any:
        """Return the table as a frame of the arguments' library, else of one that is installed.

        Returns
        -------
        DataFrame
            One row for each group. The columns are the sensitive ones, ``rows``, and for each metric its value and its
            interval, with the suffixes ``_lower`` and ``_upper``.
        """
        keys = [(level.keys, group) for level in self._levels for group in level.groups]
        columns: dict[str, list[Any]] = {}
        for place, name in enumerate(self.within):
            columns[name] = _one_kind([level[place] for level, _ in keys])
        for place, name in enumerate(self.sensitive):
            columns[name] = _one_kind([group[place] for _, group in keys])
        columns["rows"] = list(self.rows.values())
        for name in self.metrics:
            found = [estimates[name] for estimates in self.by_group.values()]
            columns[name] = [math.nan if estimate.value is None else estimate.value for estimate in found]
            columns[f"{name}_lower"] = [estimate.lower for estimate in found]
            columns[f"{name}_upper"] = [estimate.upper for estimate in found]
        backends: tuple[Any, ...] = _LIBRARIES if self._library is None else (self._library,)
        for backend in backends:
            try:
                return nw.from_dict(columns, backend=backend).to_native()
            except ImportError:
                continue
        raise InputError("No data frame library is installed: pip install pandas, polars or pyarrow.")

    def __str__(self) -> str:
        heads, rows = self._cells()
        return table_text(heads, rows, names=len(self.within) + len(self.sensitive))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heads, rows = self._cells()
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in heads)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _compared(self, method: Method, compare: Callable[[_Level, int, str, float], Estimate]) -> dict[Any, Any]:
        check_choice(method, "method", _METHODS)
        found = {
            level.name: {name: compare(level, k, method, self.confidence) for k, name in enumerate(self.metrics)}
            for level in self._levels
        }
        return found if self.within else found[None]

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        heads = [short_name(name) for name in (*self.within, *self.sensitive)]
        rows = []
        for level in self._levels:
            for group in level.groups:
                key = _key(level.name, group, bool(self.within))
                names = [short_name(value) for value in (*level.keys, *group)]
                rows.append([*names, f"{self.rows[key]:,}", *(_shown(self.by_group[key][m]) for m in self.metrics)])
            overall = self.overall[level.name] if self.within else self.overall
            names = [*(short_name(value) for value in level.keys), "overall", *[""] * (len(self.sensitive) - 1)]
            rows.append([*names, f"{level.size:,}", *(_shown(overall[m]) for m in self.metrics)])
        return [*heads, "rows", *map(short_name, self.metrics)], rows


def group_table(
    metrics: Metric | Mapping[str, Metric],
    y: ArrayLike | None,
    decisions: ArrayLike,
    sensitive_features: SensitiveFeatures,
    within: SensitiveFeatures | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    confidence: float = 0.95,
    resamples: int = 200,
    random_state: int | np.random.Generator | None = 0,
) -> GroupTable:
    """Return any metrics by group, with bootstrap intervals.

    Parameters
    ----------
    metrics : callable or dict of callables
        Functions of ``(y, decisions)`` that return a number, such as those of ``sklearn.metrics`` and of this module.
    y : array-like or None
        The labels, as the metrics expect them; None if the metrics need none.
    decisions : array-like
        Decisions or scores, as the metrics expect them.
    sensitive_features : array-like, Series, frame or dict of columns
        Each row's group. Several columns are crossed, as in fairlearn: the groups are the combinations that occur.
    within : array-like, Series, frame or dict of columns, default=None
        Compare groups only within each value of these (fairlearn's control features). Several columns are crossed.
    sample_weight : array-like, default=None
        Weights, passed to every metric as ``sample_weight``.
    confidence : float, default=0.95
        The level of the intervals.
    resamples : int, default=200
        The number of bootstrap samples for the intervals; with 0, all intervals are NaN.
    random_state : int, Generator or None, default=0
        The seed of the bootstrap.

    Returns
    -------
    GroupTable
        ``.by_group``, ``.overall``, ``.difference()``, ``.ratio()``, ``.to_frame()``.

    Notes
    -----
    Rows are drawn with replacement within each group, so that no group becomes empty. Intervals of the groups are
    percentiles. The largest difference of each sample is too large on average, so its percentiles are not used for the
    largest difference: the upper end is the largest of the pairs' own upper ends, and the lower end comes from
    intervals that hold for all pairs together, as in :func:`evenhand.statistics.intervals.distance_interval`. The
    smallest ratio is handled in the same way on the logarithmic scale.

    Examples
    --------
    >>> from sklearn.metrics import accuracy_score, recall_score
    >>> from evenhand import metrics
    >>> y, decisions, sex = [0, 1, 1, 0, 0, 1] * 20, [0, 1, 0, 0, 1, 1] * 20, list("FFFMMM") * 20
    >>> wanted = {"accuracy": accuracy_score, "recall": recall_score}
    >>> table = metrics.group_table(wanted, y, decisions, sex, resamples=20)
    >>> table.by_group["F"]["recall"].value, table.difference()["recall"].value
    (0.5, 0.5)
    """
    named = _read_metrics(metrics)
    check_same_index(
        {
            "y": y,
            "decisions": decisions,
            "sensitive_features": sensitive_features,
            "within": within,
            "sample_weight": sample_weight,
        }
    )
    check_confidence(confidence)
    check_whole(resamples, "resamples", at_least=0, at_most=100_000)
    check_seed(random_state)
    column = as_column(decisions, "decisions")
    if not len(column):
        raise InputError("decisions is empty: there is nothing to measure.")
    labels = None if y is None else as_column(y, "y")
    if labels is not None and len(labels) != len(column):
        raise InputError(f"y has {len(labels)} rows, but decisions has {len(column)}.")
    weights = None if sample_weight is None else read_weights(sample_weight, len(column))
    sensitive = _read_columns(sensitive_features, len(column))
    levels = None if within is None else _read_columns(within, len(column))
    _check_names(named, sensitive, levels)
    measured = _Measured(named, labels, column, weights)
    rng = np.random.default_rng(random_state)
    found = tuple(_levels(measured, sensitive, levels, resamples, rng))
    return _table(named, found, confidence, sensitive, levels, _library(sensitive_features, decisions, y))


@dataclass(frozen=True, eq=False)
class _Measured:
    """The metrics and their columns."""

    metrics: dict[str, Metric]
    y: NDArray[Any] | None
    decisions: NDArray[Any]
    weights: FloatArray | None

    def of(self, rows: NDArray[np.intp], where: str) -> list[float]:
        """Return every metric of some rows, or raise if one fails."""
        return [self._one(name, rows, where) for name in self.metrics]

    def tried(self, rows: NDArray[np.intp]) -> list[float]:
        """Return every metric of a bootstrap sample; NaN if one cannot be computed, as with a single label."""
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in self.metrics:
                try:
                    found.append(self._one(name, rows, ""))
                except InputError:
                    found.append(math.nan)
        return found

    def _one(self, name: str, rows: NDArray[np.intp], where: str) -> float:
        options = {} if self.weights is None else {"sample_weight": self.weights[rows]}
        labels = None if self.y is None else self.y[rows]
        try:
            value = self.metrics[name](labels, self.decisions[rows], **options)
        except Exception as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise InputError(f"The metric {name!r} fails {where}: {reason}") from error
        if not isinstance(value, int | float | bool | np.number | np.bool_) or isinstance(value, np.complexfloating):
            raise InputError(f"The metric {name!r} must return one number; it returned {shown(value)}.")
        return float(value)


@dataclass(frozen=True, eq=False)
class _Level:
    """The groups within one value of the control columns: values, and those of the bootstrap samples.

    ``values`` has shape (groups + 1, metrics), the last row over all rows; ``samples`` has one more axis, the first.
    """

    name: Hashable
    keys: tuple[Hashable, ...]
    groups: tuple[tuple[Hashable, ...], ...]
    counts: tuple[int, ...]
    values: FloatArray
    samples: FloatArray

    @property
    def size(self) -> int:
        """The number of rows."""
        return sum(self.counts)

    def estimate(self, group: int, metric: int, confidence: float) -> Estimate:
        """Return a metric of a group, or of all rows at the last index, with percentiles."""
        value, drawn = float(self.values[group, metric]), self.samples[:, group, metric]
        known = drawn[np.isfinite(drawn)]
        if 2 * len(known) <= len(drawn) or math.isnan(value):
            return Estimate(_known(value), math.nan, math.nan)
        lower, upper = np.quantile(known, [0.5 - confidence / 2.0, 0.5 + confidence / 2.0])
        return Estimate(value, min(float(lower), value), max(float(upper), value))

    def difference(self, metric: int, method: str, confidence: float) -> Estimate:
        """Return the largest difference, with an interval for the largest of several."""
        values = self.values[:-1, metric]
        if np.isnan(values).all():
            return Estimate(None, math.nan, math.nan)
        base = self.values[-1, metric] if method == "to_overall" else np.nanmin(values)
        ends = _largest(*self._pairs(self.values, self.samples, metric, method), confidence)
        return Estimate(_known(float(np.nanmax(np.abs(values - base)))), *ends)

    def ratio(self, metric: int, method: str, confidence: float) -> Estimate:
        """Return the smallest ratio; its interval is that of the largest difference of the logarithms."""
        values, overall = self.values[:-1, metric], self.values[-1, metric]
        known = values[~np.isnan(values)]
        if not len(known):
            return Estimate(None, math.nan, math.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            if method == "between_groups":
                value = float(known.min() / known.max())
            else:
                ratios = known / overall
                value = float(np.where(ratios > 1.0, 1.0 / ratios, ratios).min())
            logs = np.log(self.values), np.log(self.samples)
        lower, upper = _largest(*self._pairs(*logs, metric, method), confidence)
        return Estimate(_known(value), math.exp(-upper), math.exp(-lower))

    def _pairs(
        self, values: FloatArray, samples: FloatArray, metric: int, method: str
    ) -> tuple[FloatArray, FloatArray]:
        """Return the differences that are compared, and those of the samples."""
        if method == "to_overall":
            return values[:-1, metric] - values[-1, metric], samples[:, :-1, metric] - samples[:, -1:, metric]
        one, other = np.triu_indices(len(self.groups), 1)
        return values[one, metric] - values[other, metric], samples[:, one, metric] - samples[:, other, metric]


def _largest(differences: FloatArray, drawn: FloatArray, confidence: float) -> tuple[float, float]:
    """Return the interval of the largest of several absolute differences, from those of bootstrap samples."""
    usable = np.isfinite(differences)
    rows = np.isfinite(drawn[:, usable]).all(axis=1)
    if not usable.any() or 2 * rows.sum() <= len(drawn):
        return math.nan, math.nan
    size, drawn = np.abs(differences[usable]), drawn[rows][:, usable]
    error = drawn.std(axis=0)
    away = np.abs(drawn - differences[usable]) / np.where(error > 0.0, error, 1.0)
    alone, joint = np.quantile(away, confidence, axis=0), float(np.quantile(away.max(axis=1), confidence))
    return max(float((size - joint * error).max()), 0.0), float((size + alone * error).max())


def _levels(
    measured: _Measured,
    sensitive: tuple[tuple[str, ...], Attribute],
    within: tuple[tuple[str, ...], Attribute] | None,
    resamples: int,
    rng: np.random.Generator,
) -> Sequence[_Level]:
    groups = sensitive[1]
    one_level = Attribute("", ((),), np.zeros(len(groups.codes), dtype=np.intp))
    levels = one_level if within is None else within[1]
    found = []
    for place, keys in enumerate(levels.groups):
        inside = levels.codes == place
        cells = [np.flatnonzero(inside & (groups.codes == k)) for k in range(len(groups.groups))]
        present = [k for k, rows in enumerate(cells) if len(rows)]
        cells = [cells[k] for k in present]
        members: tuple[Any, ...] = tuple(groups.groups[k] for k in present)
        level = keys if isinstance(keys, tuple) else (keys,)
        values = [measured.of(rows, f"for {joined(group)!r}") for rows, group in zip(cells, members, strict=True)]
        values.append(measured.of(np.concatenate(cells), "over all rows"))
        samples = np.full((resamples, len(values), len(measured.metrics)), np.nan)
        for sample in samples:
            drawn = [rows[rng.integers(len(rows), size=len(rows))] for rows in cells]
            sample[:] = [measured.tried(rows) for rows in (*drawn, np.concatenate(drawn))]
        name = None if within is None else level[0] if len(level) == 1 else level
        counts = tuple(len(rows) for rows in cells)
        found.append(_Level(name, level, members, counts, np.array(values), samples))
    return found


def _table(
    named: dict[str, Metric],
    levels: tuple[_Level, ...],
    confidence: float,
    sensitive: tuple[tuple[str, ...], Attribute],
    within: tuple[tuple[str, ...], Attribute] | None,
    library: Any,
) -> GroupTable:
    by_group, overall, rows = {}, {}, {}
    for level in levels:
        for place, (group, count) in enumerate(zip(level.groups, level.counts, strict=True)):
            key = _key(level.name, group, within is not None)
            by_group[key] = {name: level.estimate(place, k, confidence) for k, name in enumerate(named)}
            rows[key] = count
        overall[level.name] = {name: level.estimate(-1, k, confidence) for k, name in enumerate(named)}
    return GroupTable(
        metrics=tuple(named),
        sensitive=sensitive[0],
        within=() if within is None else within[0],
        confidence=confidence,
        by_group=by_group,
        overall=overall[None] if within is None else overall,
        rows=rows,
        _levels=levels,
        _library=library,
    )


def _key(level: Hashable, group: tuple[Hashable, ...], within: bool) -> Hashable:
    member = group[0] if len(group) == 1 else group
    return (level, member) if within else member


def _read_metrics(metrics: Any) -> dict[str, Metric]:
    if callable(metrics):
        metrics = {getattr(metrics, "__name__", "metric"): metrics}
    if not isinstance(metrics, Mapping) or not metrics:
        raise InputError(f"metrics must be a function, or a dict of functions by name; got {shown(metrics)}.")
    for name, metric in metrics.items():
        check_label(name, "Each name of metrics")
        if not isinstance(name, str) or not callable(metric):
            raise InputError(f"metrics must have names and functions; got {shown(name)}: {shown(metric)}.")
    return dict(metrics)


def _read_columns(columns: SensitiveFeatures, n_rows: int) -> tuple[tuple[str, ...], Attribute]:
    """Return the names of some columns, and their combinations, as tuples."""
    read = read_sensitive(columns, n_rows, remedy=DROP_MISSING)
    attributes = list(read.values())
    groups, codes = cross(attributes)
    return tuple(map(str, read)), Attribute("", groups, codes)


def _check_names(
    named: Mapping[str, Metric],
    sensitive: tuple[tuple[str, ...], Attribute],
    within: tuple[tuple[str, ...], Attribute] | None,
) -> None:
    columns = [*(() if within is None else within[0]), *sensitive[0], "rows"]
    columns += [f"{name}{end}" for name in named for end in ("", "_lower", "_upper")]
    for name in columns:
        if columns.count(name) > 1:
            raise InputError(f"Two columns of the table would be called {name!r}: rename a metric or a column.")


def _library(*given: Any) -> Any:
    """Return narwhals' name for the library of the first argument that is a frame or Series, or None."""
    for value in given:
        for column in value.values() if isinstance(value, Mapping) else (value,):
            native = as_native(column, "a column", allow_series=True)
            if isinstance(native, nw.DataFrame | nw.LazyFrame | nw.Series):
                return native.implementation
    return None


def _one_kind(values: list[Any]) -> list[Any]:
    """Return values for a typed column: as text if they have several types."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return plain if len({type(value) for value in plain}) == 1 else [str(value) for value in plain]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "none"
    interval = "" if math.isnan(estimate.lower) else f" ({estimate.lower:.3f} to {estimate.upper:.3f})"
    return f"{estimate.value:.3f}{interval}"
