"""Rates by group, with the differences and ratios between them under fairlearn's names.

Every function makes one pass over the rows (a count of label by decision by group) and computes on that small table.
The functions with a fairlearn name return fairlearn's number, which includes two of its conventions: several columns
of sensitive features are crossed, and a group without rows of the label in question has the rate 0 (here with a
warning). :func:`evenhand.audit` treats each attribute separately and reports "no rows" instead.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from evenhand.arguments import check_choice, shown
from evenhand.auditing.tally import RATES, rates_of, read_decisions, tabulate
from evenhand.errors import EvenhandWarning, InputError
from evenhand.inputs import DROP_MISSING, FloatArray, SensitiveFeatures, as_column, cross, read_sensitive, read_weights
from evenhand.plausibility import check_same_index
from evenhand.text import table_text

Method = Literal["between_groups", "to_overall"]
Aggregate = Literal["worst_case", "mean"]

__all__ = [
    "GroupRates",
    "accuracy_score_difference",
    "accuracy_score_group_min",
    "accuracy_score_ratio",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "false_negative_rate",
    "false_negative_rate_difference",
    "false_negative_rate_ratio",
    "false_positive_rate",
    "false_positive_rate_difference",
    "false_positive_rate_ratio",
    "group_rates",
    "predictive_equality_difference",
    "predictive_equality_ratio",
    "selection_rate",
    "selection_rate_difference",
    "selection_rate_ratio",
    "true_negative_rate",
    "true_negative_rate_difference",
    "true_negative_rate_ratio",
    "true_positive_rate",
    "true_positive_rate_difference",
    "true_positive_rate_ratio",
    "zero_one_loss_difference",
    "zero_one_loss_group_max",
    "zero_one_loss_ratio",
]

_SHOWN = tuple(name for name in RATES if name != "zero_one_loss")


@dataclass(frozen=True)
class _Table:
    groups: tuple[Hashable, ...]
    cells: FloatArray

    def by_group(self, rate: str) -> FloatArray:
        """Return the rate of each group by fairlearn's convention: 0 if only the label is absent."""
        rates = rates_of(self.cells, rate)
        bare = np.isnan(rates) & (self.cells.sum(axis=(1, 2)) > 0.0)
        if bare.any():
            group = self.groups[int(np.argmax(bare))]
            warnings.warn(
                f"The group {group!r} has no row for its {rate.replace('_', ' ')}, which counts as 0 here, "
                "as in fairlearn. evenhand.audit reports it as unknown instead.",
                EvenhandWarning,
                stacklevel=4,
            )
            rates[bare] = 0.0
        return rates

    def overall(self, rate: str) -> float:
        return float(np.nan_to_num(rates_of(self.cells.sum(axis=0), rate)))

    def difference(self, rate: str, method: Method) -> float:
        rates = self.by_group(rate)
        base = self.overall(rate) if _check_method(method) == "to_overall" else np.nanmin(rates)
        return float(np.nanmax(np.abs(rates - base)))

    def ratio(self, rate: str, method: Method) -> float:
        rates = self.by_group(rate)
        known = rates[~np.isnan(rates)]
        if _check_method(method) == "between_groups":
            return float(known.min() / known.max()) if known.max() > 0.0 else math.nan
        base = self.overall(rate)
        return min(min(r / base, base / r) if r > 0.0 else 0.0 for r in known.tolist()) if base > 0.0 else math.nan


def _check_method(method: str) -> str:
    return check_choice(method, "method", ("between_groups", "to_overall"))


def _table(
    y_true: ArrayLike | None,
    y_pred: ArrayLike,
    sensitive_features: SensitiveFeatures | None,
    sample_weight: ArrayLike | None,
    pos_label: Hashable,
) -> _Table:
    check_same_index(
        {
            "y_true": y_true,
            "y_pred": y_pred,
            "sensitive_features": sensitive_features,
            "sample_weight": sample_weight,
        }
    )
    positive, decided = read_decisions(y_true, y_pred, pos_label)
    attributes = [*read_sensitive(sensitive_features, len(decided), remedy=DROP_MISSING, any_number=True).values()]
    groups, codes = cross(attributes) if len(attributes) > 1 else (attributes[0].groups, attributes[0].codes)
    weights = None if sample_weight is None else read_weights(sample_weight, len(decided))
    return _Table(groups, tabulate(codes, len(groups), positive, decided, weights))


def _ignored_labels(y_true: ArrayLike, y_pred: ArrayLike) -> None:
    """Check the length of labels that a selection rate does not use."""
    if y_true is None:
        return
    labels, decisions = len(as_column(y_true, "y_true")), len(as_column(y_pred, "y_pred"))
    if labels != decisions:
        raise InputError(f"y_true has {labels} rows, but y_pred has {decisions}.")


@dataclass(frozen=True, eq=False)
class GroupRates(Mapping[Hashable, dict[str, float]]):
    """The rates of each group: a mapping from group to ``{rate: value}`` that prints as a table.

    Attributes
    ----------
    groups : tuple
        The groups, sorted. With several columns of sensitive features: the combinations that occur.
    rates : tuple of str
        The names of the rates.
    table : array of shape (groups, rates)
        The rates; NaN if a group has no row of the label that a rate is about.
    overall : dict of float
        The same rates over all rows.
    weights : array of shape (groups, 2, 2)
        The weight in each cell (group, label, decision): row counts if no weights are given.
    """

    groups: tuple[Hashable, ...]
    rates: tuple[str, ...]
    table: FloatArray
    overall: dict[str, float]
    weights: FloatArray

    def __getitem__(self, group: Hashable) -> dict[str, float]:
        if group not in self.groups:
            raise KeyError(group)
        row = self.table[self.groups.index(group)]
        return dict(zip(self.rates, row.tolist(), strict=True))

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def by_group(self, rate: str) -> dict[Hashable, float]:
        """Return one rate of every group."""
        if not isinstance(rate, str) or rate not in self.rates:
            raise InputError(f"Unknown rate {shown(rate)}: use one of {list(self.rates)!r}.")
        return dict(zip(self.groups, self.table[:, self.rates.index(rate)].tolist(), strict=True))

    def __str__(self) -> str:
        heads = ["group", *(rate.replace("_", " ") for rate in self.rates)]
        body = [[repr(group), *map(_shown, row)] for group, row in zip(self.groups, self.table.tolist(), strict=True)]
        body.append(["overall", *(_shown(self.overall[rate]) for rate in self.rates)])
        return table_text(heads, body)


def _shown(rate: float) -> str:
    return "no rows" if math.isnan(rate) else f"{rate:.4f}"


def group_rates(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: SensitiveFeatures | None,
    sample_weight: ArrayLike | None = None,
    pos_label: Hashable = 1,
) -> GroupRates:
    """Return every group's selection, true and false positive and negative rates, and accuracy.

    Parameters
    ----------
    y_true : array-like
        The labels: any two values.
    y_pred : array-like
        The decisions: the two labels, booleans, or 0 and 1.
    sensitive_features : array-like, Series, frame or dict of columns
        Each row's group. Several columns are crossed, as in fairlearn. Rows of all arguments are matched by position;
        two pandas objects with different indexes are an error.
    sample_weight : array-like, default=None
        The weights of the rows.
    pos_label : label, default=1
        The positive label.

    Returns
    -------
    GroupRates
        A mapping from group to rates.

    Examples
    --------
    >>> from evenhand import metrics
    >>> rates = metrics.group_rates([0, 1, 1, 0, 1], [0, 1, 0, 1, 1], sensitive_features=list("aaabb"))
    >>> rates["a"]["true_positive_rate"]
    0.5
    >>> rates.by_group("selection_rate")
    {'a': 0.3333333333333333, 'b': 1.0}
    """
    table = _table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    rates = np.column_stack([rates_of(table.cells, name) for name in _SHOWN])
    overall = {name: float(rates_of(table.cells.sum(axis=0), name)) for name in _SHOWN}
    return GroupRates(table.groups, _SHOWN, rates, overall, table.cells)


def selection_rate(
    y_true: ArrayLike, y_pred: ArrayLike, *, pos_label: Hashable = 1, sample_weight: ArrayLike | None = None
) -> float:
    """Return the share of positive decisions; ``y_true`` is ignored and may be None.

    Examples
    --------
    >>> from evenhand import metrics
    >>> metrics.selection_rate(None, [True, False, True, True])
    0.75
    """
    _ignored_labels(y_true, y_pred)
    return _overall("selection_rate", None, y_pred, sample_weight, pos_label)


def _overall(
    rate: str, y_true: ArrayLike | None, y_pred: ArrayLike, sample_weight: ArrayLike | None, pos_label: Hashable
) -> float:
    check_same_index({"y_true": y_true, "y_pred": y_pred, "sample_weight": sample_weight})
    positive, decided = read_decisions(y_true, y_pred, pos_label)
    weights = None if sample_weight is None else read_weights(sample_weight, len(decided))
    everyone = np.zeros(len(decided), dtype=np.intp)
    return _Table(("everyone",), tabulate(everyone, 1, positive, decided, weights)).overall(rate)


class _Rate(Protocol):
    __name__: str

    def __call__(
        self, y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None, pos_label: Hashable = 1
    ) -> float: ...


def _rate(rate: str, summary: str, example: float) -> _Rate:
    """Return the function that computes a rate over all rows."""

    def compute(
        y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None, pos_label: Hashable = 1
    ) -> float:
        return _overall(rate, y_true, y_pred, sample_weight, pos_label)

    compute.__name__ = compute.__qualname__ = rate
    compute.__doc__ = f"""Return the share of {summary} labels; 0 without any, as in fairlearn.

    Examples
    --------
    >>> from evenhand import metrics
    >>> metrics.{rate}([0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 1, 0])
    {example}
    """
    return compute


true_positive_rate = _rate("true_positive_rate", "positive decisions among positive", 0.5)
false_positive_rate = _rate("false_positive_rate", "positive decisions among negative", 0.25)
true_negative_rate = _rate("true_negative_rate", "negative decisions among negative", 0.75)
false_negative_rate = _rate("false_negative_rate", "negative decisions among positive", 0.5)


class _Compared(Protocol):
    __name__: str

    def __call__(
        self,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        sensitive_features: SensitiveFeatures | None,
        method: Method = "between_groups",
        sample_weight: ArrayLike | None = None,
        pos_label: Hashable = 1,
    ) -> float: ...


_DOCUMENTATION = """Return {summary}.

    Parameters
    ----------
    y_true : array-like
        The labels: any two values.{ignored}
    y_pred : array-like
        The decisions: the two labels, booleans, or 0 and 1.
    sensitive_features : array-like, Series, frame or dict of columns
        Each row's group. Several columns are crossed, as in fairlearn: the groups are the combinations that
        occur. evenhand's criteria and :func:`evenhand.audit` treat each column separately instead.
    method : {{"between_groups", "to_overall"}}, default="between_groups"
        Compare the groups with each other, or each with all rows.
    sample_weight : array-like, default=None
        The weights of the rows.
    pos_label : label, default=1
        The positive label.

    Returns
    -------
    float
        {result}

    Examples
    --------
    >>> from evenhand import metrics
    >>> y, decisions, sex = [0, 1, 1, 0, 0, 1], [0, 1, 0, 0, 1, 1], list("FFFMMM")
    >>> round(metrics.{name}(y, decisions, sensitive_features=sex), 4)
    {example}
    """
_RESULTS = {
    "difference": "Between 0 (equal) and 1.",
    "ratio": "Between 0 and 1 (equal); NaN if the rate is 0 in every group.",
}


def _compared(name: str, rate: str, kind: Literal["difference", "ratio"], example: float) -> _Compared:
    """Return the function that compares a rate between groups by its difference or ratio."""
    unlabelled = rate == "selection_rate"

    def compare(
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        sensitive_features: SensitiveFeatures | None,
        method: Method = "between_groups",
        sample_weight: ArrayLike | None = None,
        pos_label: Hashable = 1,
    ) -> float:
        if unlabelled:
            _ignored_labels(y_true, y_pred)
        labels = None if unlabelled else y_true
        table = _table(labels, y_pred, sensitive_features, sample_weight, pos_label)
        return table.difference(rate, method) if kind == "difference" else table.ratio(rate, method)

    words = rate.replace("_", " ")
    compare.__name__ = compare.__qualname__ = name
    compare.__doc__ = _DOCUMENTATION.format(
        summary=f"the largest difference between groups in {words}"
        if kind == "difference"
        else f"the smallest ratio between groups of {words}",
        ignored=" Ignored; may be None." if unlabelled else "",
        result=_RESULTS[kind],
        name=name,
        example=example,
    )
    return compare


demographic_parity_difference = _compared("demographic_parity_difference", "selection_rate", "difference", 0.3333)
demographic_parity_ratio = _compared("demographic_parity_ratio", "selection_rate", "ratio", 0.5)
equal_opportunity_difference = _compared("equal_opportunity_difference", "true_positive_rate", "difference", 0.5)
equal_opportunity_ratio = _compared("equal_opportunity_ratio", "true_positive_rate", "ratio", 0.5)
predictive_equality_difference = _compared("predictive_equality_difference", "false_positive_rate", "difference", 0.5)
predictive_equality_ratio = _compared("predictive_equality_ratio", "false_positive_rate", "ratio", 0.0)
selection_rate_difference = _compared("selection_rate_difference", "selection_rate", "difference", 0.3333)
selection_rate_ratio = _compared("selection_rate_ratio", "selection_rate", "ratio", 0.5)
true_positive_rate_difference = _compared("true_positive_rate_difference", "true_positive_rate", "difference", 0.5)
true_positive_rate_ratio = _compared("true_positive_rate_ratio", "true_positive_rate", "ratio", 0.5)
true_negative_rate_difference = _compared("true_negative_rate_difference", "true_negative_rate", "difference", 0.5)
true_negative_rate_ratio = _compared("true_negative_rate_ratio", "true_negative_rate", "ratio", 0.5)
false_positive_rate_difference = _compared("false_positive_rate_difference", "false_positive_rate", "difference", 0.5)
false_positive_rate_ratio = _compared("false_positive_rate_ratio", "false_positive_rate", "ratio", 0.0)
false_negative_rate_difference = _compared("false_negative_rate_difference", "false_negative_rate", "difference", 0.5)
false_negative_rate_ratio = _compared("false_negative_rate_ratio", "false_negative_rate", "ratio", 0.0)
accuracy_score_difference = _compared("accuracy_score_difference", "accuracy", "difference", 0.0)
accuracy_score_ratio = _compared("accuracy_score_ratio", "accuracy", "ratio", 1.0)
zero_one_loss_difference = _compared("zero_one_loss_difference", "zero_one_loss", "difference", 0.0)
zero_one_loss_ratio = _compared("zero_one_loss_ratio", "zero_one_loss", "ratio", 1.0)


def equalized_odds_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: SensitiveFeatures | None,
    method: Method = "between_groups",
    sample_weight: ArrayLike | None = None,
    agg: Aggregate = "worst_case",
    pos_label: Hashable = 1,
) -> float:
    """Return the larger of the differences between groups in true positive and in false positive rate.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, method, sample_weight, pos_label
        As in :func:`equal_opportunity_difference`.
    agg : {"worst_case", "mean"}, default="worst_case"
        The larger of the two differences, or their mean.

    Returns
    -------
    float
        Between 0 (equal) and 1.

    Examples
    --------
    >>> from evenhand import metrics
    >>> y, decisions, sex = [0, 1, 1, 0, 1, 1], [0, 1, 0, 1, 1, 1], list("FFFMMM")
    >>> metrics.equalized_odds_difference(y, decisions, sensitive_features=sex)
    1.0
    >>> metrics.equalized_odds_difference(y, decisions, sensitive_features=sex, agg="mean")
    0.75
    """
    _check_aggregate(agg)
    table = _table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    tpr, fpr = table.difference("true_positive_rate", method), table.difference("false_positive_rate", method)
    return max(tpr, fpr) if agg == "worst_case" else (tpr + fpr) / 2.0


def equalized_odds_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: SensitiveFeatures | None,
    method: Method = "between_groups",
    sample_weight: ArrayLike | None = None,
    agg: Aggregate = "worst_case",
    pos_label: Hashable = 1,
) -> float:
    """Return the smaller of the ratios between groups of true positive and of false positive rate.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, method, sample_weight, pos_label
        As in :func:`equal_opportunity_ratio`.
    agg : {"worst_case", "mean"}, default="worst_case"
        The smaller of the two ratios, or their mean.

    Returns
    -------
    float
        Between 0 and 1 (equal). If no group has a false positive, the ratio of the true positive rates;
        NaN if no group has a true positive (both as in fairlearn).

    Examples
    --------
    >>> from evenhand import metrics
    >>> y, decisions, sex = [0, 1, 1, 0, 1, 1], [1, 1, 0, 1, 1, 1], list("FFFMMM")
    >>> metrics.equalized_odds_ratio(y, decisions, sensitive_features=sex)
    0.5
    """
    _check_aggregate(agg)
    table = _table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    tpr, fpr = table.ratio("true_positive_rate", method), table.ratio("false_positive_rate", method)
    if math.isnan(fpr):
        return tpr
    if agg == "mean":
        return fpr if math.isnan(tpr) else (tpr + fpr) / 2.0
    return tpr if math.isnan(tpr) else min(tpr, fpr)


def _check_aggregate(agg: str) -> None:
    check_choice(agg, "agg", ("worst_case", "mean"))


def accuracy_score_group_min(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: SensitiveFeatures | None,
    sample_weight: ArrayLike | None = None,
    pos_label: Hashable = 1,
) -> float:
    """Return the accuracy of the group with the lowest accuracy.

    Examples
    --------
    >>> from evenhand import metrics
    >>> metrics.accuracy_score_group_min([0, 1, 1, 0], [0, 1, 0, 0], sensitive_features=list("aabb"))
    0.5
    """
    table = _table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return float(np.nanmin(rates_of(table.cells, "accuracy")))


def zero_one_loss_group_max(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: SensitiveFeatures | None,
    sample_weight: ArrayLike | None = None,
    pos_label: Hashable = 1,
) -> float:
    """Return the error rate of the group with the highest error rate.

    Examples
    --------
    >>> from evenhand import metrics
    >>> metrics.zero_one_loss_group_max([0, 1, 1, 0], [0, 1, 0, 0], sensitive_features=list("aabb"))
    0.5
    """
    table = _table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return float(np.nanmax(rates_of(table.cells, "zero_one_loss")))
