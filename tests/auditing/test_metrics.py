"""The metrics give fairlearn's numbers, read any two labels, and refuse what they cannot read."""

import inspect
import math
import pickle
import warnings

import fairlearn.metrics
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand import metrics
from evenhand.errors import EvenhandWarning, InputError

SCALARS = [name for name in metrics.__all__ if name not in ("GroupRates", "group_rates")]
SHARED = [name for name in SCALARS if hasattr(fairlearn.metrics, name)]
COMPARED = [name for name in SHARED if name.endswith(("_difference", "_ratio"))]
BASE = [name for name in SHARED if name.endswith("_rate")]
GROUP_EXTREMES = [name for name in SHARED if name.endswith(("_min", "_max"))]


@st.composite
def decisions(draw, most_columns=2):
    n = draw(st.integers(1, 40))
    bits = st.lists(st.integers(0, 1), min_size=n, max_size=n)
    group = draw(st.sampled_from([st.integers(0, 3), st.sampled_from(["", "b", "b ", "é"])]))
    columns = {
        f"column{j}": draw(st.lists(group, min_size=n, max_size=n)) for j in range(draw(st.integers(1, most_columns)))
    }
    weights = draw(st.none() | st.lists(st.floats(0.01, 9.0), min_size=n, max_size=n))
    return np.array(draw(bits)), np.array(draw(bits)), columns, weights


def quietly(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def both(name, *args, **kwargs):
    ours = quietly(getattr(metrics, name), *args, **kwargs)
    theirs = quietly(getattr(fairlearn.metrics, name), *args, **kwargs)
    return ours, theirs


@settings(max_examples=150, deadline=None)
@given(
    decisions(),
    st.sampled_from(COMPARED),
    st.sampled_from(["between_groups", "to_overall"]),
    st.sampled_from(["worst_case", "mean"]),
)
def test_every_comparison_of_groups_equals_fairlearns(case, name, method, agg):
    y_true, y_pred, columns, weights = case
    options = {"agg": agg} if name.startswith("equalized_odds") else {}
    groups = pd.DataFrame(columns)
    ours, theirs = both(
        name, y_true, y_pred, sensitive_features=groups, method=method, sample_weight=weights, **options
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(decisions(), st.sampled_from(GROUP_EXTREMES))
def test_the_worst_groups_equal_fairlearns(case, name):
    y_true, y_pred, columns, weights = case
    ours, theirs = both(name, y_true, y_pred, sensitive_features=columns, sample_weight=weights)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(decisions(), st.sampled_from(BASE))
def test_the_rates_of_all_rows_equal_fairlearns(case, name):
    y_true, y_pred, _, weights = case
    ours, theirs = both(name, y_true, y_pred, sample_weight=weights)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(decisions(most_columns=1))
def test_the_rates_of_each_group_equal_a_metric_frames(case):
    y_true, y_pred, columns, weights = case
    rates = metrics.group_rates(y_true, y_pred, sensitive_features=columns, sample_weight=weights)
    names = ["selection_rate", "true_positive_rate", "false_positive_rate", "true_negative_rate"]
    frame = quietly(
        fairlearn.metrics.MetricFrame,
        metrics={name: getattr(fairlearn.metrics, name) for name in names},
        y_true=y_true,
        y_pred=y_pred,
        sensitive_features=columns,
        sample_params=None if weights is None else {name: {"sample_weight": weights} for name in names},
    )
    for group in rates:
        for name in names:
            if not math.isnan(rates[group][name]):
                assert rates[group][name] == pytest.approx(frame.by_group[name][group], rel=1e-9)


def test_every_function_that_fairlearn_has_takes_its_arguments():
    for name in SHARED:
        theirs = getattr(fairlearn.metrics, name)
        ours = inspect.signature(getattr(metrics, name)).parameters
        known = inspect.signature(theirs).parameters
        assert [p for p in known if p not in ours and p != "other_params"] == [], name


def test_all_of_fairlearns_rate_comparisons_are_here():
    rates = ("selection", "true_", "false_", "accuracy", "zero_one", "demographic", "equal")
    theirs = [name for name in fairlearn.metrics.__all__ if name.startswith(rates)]
    assert len(theirs) == 27
    assert set(theirs) <= set(metrics.__all__)


@pytest.mark.parametrize("agg", ["worst_case", "mean"])
@pytest.mark.parametrize("method", ["between_groups", "to_overall"])
@pytest.mark.parametrize("y_pred", [[0, 0, 1, 0, 0, 1, 1, 0], [1, 0, 0, 0, 1, 1, 0, 0], [0] * 8])
def test_a_ratio_of_nothing_to_nothing_is_handled_as_in_fairlearn(y_pred, method, agg):
    y_true, groups = [1, 1, 0, 0, 1, 1, 0, 0], list("aaaabbbb")
    ours, theirs = both("equalized_odds_ratio", y_true, y_pred, sensitive_features=groups, method=method, agg=agg)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    no_true_positive = [0, 0, 1, 0, 0, 0, 1, 1]
    ours, theirs = both(
        "equalized_odds_ratio", y_true, no_true_positive, sensitive_features=groups, method=method, agg=agg
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_predictive_equality_is_the_comparison_of_false_positive_rates():
    y_true, y_pred = [0, 0, 0, 0, 1, 0], [1, 0, 0, 1, 1, 1]
    options = {"sensitive_features": list("aaabbb")}
    assert metrics.predictive_equality_difference(y_true, y_pred, **options) == pytest.approx(2 / 3)
    assert metrics.predictive_equality_ratio(y_true, y_pred, **options) == pytest.approx(1 / 3)


@settings(max_examples=40, deadline=None)
@given(decisions(), st.sampled_from(["true_positive_rate_difference", "selection_rate_ratio"]))
def test_labels_of_any_two_values_give_the_same_as_zero_and_one(case, name):
    y_true, y_pred, columns, weights = case
    function = getattr(metrics, name)
    options = {"sensitive_features": columns, "sample_weight": weights}
    plain = quietly(function, y_true, y_pred, **options)
    words = np.array(["no", "yes"])
    for renamed in (
        quietly(function, words[y_true], words[y_pred], pos_label="yes", **options),
        quietly(function, words[y_true], y_pred.astype(bool), pos_label="yes", **options),
        quietly(function, words[y_true], y_pred, pos_label="yes", **options),
        quietly(function, 2 * y_true - 1, 2 * y_pred - 1, **options),
        quietly(function, y_true.astype(bool), y_pred.astype(float), **options),
    ):
        np.testing.assert_equal(renamed, plain)


@pytest.mark.parametrize("name", ["true_positive_rate_difference", "selection_rate_difference"])
def test_the_positive_label_is_the_one_that_fairlearn_takes_it_for(name):
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(0, 2, (2, 80))
    groups = rng.integers(0, 3, 80)
    for labels, pos_label in (((0, 1), 0), (("a", "b"), "a"), ((1, 2), 2)):
        values = np.array(labels)
        ours, theirs = both(name, values[y_true], values[y_pred], sensitive_features=groups, pos_label=pos_label)
        assert ours == pytest.approx(theirs, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(decisions(most_columns=1), st.sampled_from(COMPARED), st.randoms(use_true_random=False))
def test_shuffled_rows_and_renamed_groups_give_the_same(case, name, random):
    y_true, y_pred, columns, _ = case
    groups = columns["column0"]
    order = list(range(len(groups)))
    random.shuffle(order)
    renamed = [f"{-len(str(group))}{group!r}" for group in groups]
    function = getattr(metrics, name)
    before = quietly(function, y_true, y_pred, sensitive_features=groups)
    after = quietly(function, y_true[order], y_pred[order], sensitive_features=[renamed[i] for i in order])
    np.testing.assert_equal(after, before)


@settings(max_examples=60, deadline=None)
@given(decisions(), st.sampled_from(COMPARED), st.data())
def test_a_weight_of_k_equals_k_copies(case, name, data):
    y_true, y_pred, columns, _ = case
    copies = data.draw(st.lists(st.integers(1, 4), min_size=len(y_true), max_size=len(y_true)))
    index = np.repeat(np.arange(len(y_true)), copies)
    function = getattr(metrics, name)
    weighted = quietly(function, y_true, y_pred, sensitive_features=columns, sample_weight=copies)
    repeated = {key: [column[i] for i in index] for key, column in columns.items()}
    copied = quietly(function, y_true[index], y_pred[index], sensitive_features=repeated)
    np.testing.assert_allclose(weighted, copied, rtol=1e-12)


def test_groups_come_from_any_kind_of_column():
    y_true, y_pred, groups = [0, 1, 1, 0, 1], [0, 1, 0, 1, 1], list("aaabb")
    expected = metrics.demographic_parity_difference(y_true, y_pred, sensitive_features=groups)
    for column in (
        np.array(groups),
        pd.Series(groups, index=range(5, 10)),
        pd.Series(groups, dtype="category"),
        pl.Series(groups),
        pl.DataFrame({"sex": groups}),
        {"sex": groups},
    ):
        found = metrics.demographic_parity_difference(pd.Series(y_true), pl.Series(y_pred), sensitive_features=column)
        assert found == expected


def test_a_group_without_a_row_of_the_label_counts_as_zero_and_warns():
    options = {"sensitive_features": list("aabb")}
    with pytest.warns(EvenhandWarning, match="'b' has no row for its true positive rate") as caught:
        found = metrics.equal_opportunity_difference([0, 1, 0, 0], [1, 1, 1, 1], **options)
    assert found == 1.0
    assert caught[0].filename == __file__
    rates = metrics.group_rates([0, 1, 0, 0], [1, 1, 1, 1], **options)
    assert math.isnan(rates["b"]["true_positive_rate"])
    assert "no rows" in str(rates)


def test_a_group_without_weight_takes_no_part():
    y_true, y_pred, groups = [0, 1, 0, 1, 0, 1], [0, 1, 1, 1, 0, 0], list("aabbcc")
    found = metrics.equalized_odds_difference(
        y_true, y_pred, sensitive_features=groups, sample_weight=[1, 1, 1, 1, 0, 0]
    )
    assert found == metrics.equalized_odds_difference(y_true[:4], y_pred[:4], sensitive_features=groups[:4])


def test_group_rates_are_a_mapping_and_a_table():
    rates = metrics.group_rates([0, 1, 1, 0, 1], [0, 1, 0, 1, 1], sensitive_features=list("aaabb"))
    assert list(rates) == ["a", "b"]
    assert len(rates) == 2
    assert rates["b"]["accuracy"] == 0.5
    assert rates.by_group("false_negative_rate") == {"a": 0.5, "b": 0.0}
    assert rates.overall["selection_rate"] == 0.6
    assert "z" not in rates
    heads = ["group", *(rate.replace("_", " ") for rate in rates.rates)]
    assert [head.strip() for head in str(rates).splitlines()[0].split("  ") if head] == heads
    assert str(rates).splitlines()[-1].startswith("overall  ")
    with pytest.raises(InputError, match="Unknown rate 'tpr'"):
        rates.by_group("tpr")


def test_several_columns_are_crossed_as_in_fairlearn():
    columns = {"sex": list("FFMM"), "race": list("xyxy")}
    rates = metrics.group_rates([0, 1, 1, 0], [0, 1, 1, 1], sensitive_features=columns)
    assert list(rates) == [("F", "x"), ("F", "y"), ("M", "x"), ("M", "y")]


@pytest.mark.parametrize("name", SCALARS)
def test_metrics_can_be_pickled(name):
    function = getattr(metrics, name)
    assert pickle.loads(pickle.dumps(function)) is function
    assert function.__doc__


@pytest.mark.parametrize(
    ("y_true", "y_pred", "groups", "options", "message"),
    [
        ([0, 1, 1], [0, 1], list("aab"), {}, "y_true has 3 rows, but y_pred has 2"),
        ([0, 1], [0, 1], list("aab"), {}, "has 3 rows"),
        ([0, 1], [0, 1], ["a", None], {}, "missing in 1 rows"),
        ([0, np.nan], [0, 1], list("ab"), {}, "y_true has a missing value in row 1"),
        ([0, 1], [None, 1], list("ab"), {}, "y_pred has a missing value in row 0"),
        ([0, 1, 2], [0, 1, 1], list("aab"), {}, "y_true must have two values; it has 3"),
        ([0, 1, 1], [0.2, 0.7, 0.4], list("aab"), {}, "a threshold, as in scores > 0.5"),
        ([], [], [], {}, "y_pred is empty"),
        (["no", "yes"], ["no", "yes"], list("ab"), {}, "pos_label=1 is not in y_true"),
        (["no", "no"], ["no", "no"], list("ab"), {}, "pos_label=1 is not in y_true"),
        ([1, 2], [0, 1], list("ab"), {"pos_label": 2}, r"y_pred has the values \[0, 1\], and y_true has"),
        ([0, 1], [True, False], list("ab"), {"pos_label": 0}, "True may be the label 1"),
        ([0, 1], [0, 1], list("ab"), {"method": "pairwise"}, "method must be"),
        ([0, 1], [0, 1], list("ab"), {"agg": "max"}, "agg must be"),
        ([0, 1], [0, 1], list("ab"), {"sample_weight": [1, -1]}, "not negative; row 1"),
        ([0, 1], [0, 1], None, {}, "sensitive_features is None"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_cause(y_true, y_pred, groups, options, message):
    with pytest.raises(InputError, match=message):
        quietly(metrics.equalized_odds_difference, y_true, y_pred, sensitive_features=groups, **options)


def test_a_selection_rate_looks_at_no_labels_but_at_their_number():
    options = {"sensitive_features": list("aabb")}
    assert metrics.demographic_parity_difference(None, [1, 0, 1, 1], **options) == 0.5
    assert metrics.demographic_parity_difference([7, 8, 9, "x"], [1, 0, 1, 1], **options) == 0.5
    assert metrics.selection_rate(None, ["no", "yes"], pos_label="yes") == 0.5
    with pytest.raises(InputError, match="y_true has 2 rows, but y_pred has 4"):
        metrics.demographic_parity_difference([0, 1], [1, 0, 1, 1], **options)
    with pytest.raises(InputError, match="pos_label=1 is not in y_pred"):
        metrics.demographic_parity_difference(None, ["no", "yes", "no", "no"], **options)
