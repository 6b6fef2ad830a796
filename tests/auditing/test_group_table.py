"""Any metric by group: fairlearn's numbers, and intervals that hold as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fairlearn.metrics import MetricFrame
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, mean_absolute_error, precision_score, recall_score, roc_auc_score

import evenhand as eh
from evenhand.metrics import group_table

METRICS = {"accuracy": accuracy_score, "precision": precision_score, "selection": eh.metrics.selection_rate}


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    sex, race = rng.choice(["F", "M"], n), rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    region = rng.choice(["north", "south"], n)
    y = (rng.random(n) < 0.45).astype(int)
    decisions = (rng.random(n) < 0.25 + 0.4 * y + 0.1 * (sex == "M")).astype(int)
    return y, decisions, pd.DataFrame({"sex": sex, "race": race}), region


def values(estimates):
    return {name: estimate.value for name, estimate in estimates.items()}


def wanted(series):
    return {name: pytest.approx(float(value)) for name, value in series.items()}


@pytest.mark.parametrize("columns", [["sex"], ["race"], ["sex", "race"]])
def test_the_numbers_are_those_of_metricframe(columns):
    y, decisions, groups, _ = rows()
    frame = MetricFrame(metrics=METRICS, y_true=y, y_pred=decisions, sensitive_features=groups[columns])
    table = group_table(METRICS, y, decisions, groups[columns], resamples=0)
    assert values(table.overall) == wanted(frame.overall)
    assert list(table.by_group) == list(frame.by_group.index)
    for group, estimates in table.by_group.items():
        assert values(estimates) == wanted(frame.by_group.loc[group])
    for method in ("between_groups", "to_overall"):
        assert values(table.difference(method)) == wanted(frame.difference(method=method))
        assert values(table.ratio(method)) == wanted(frame.ratio(method=method))


def test_within_is_what_metricframe_calls_control_features():
    y, decisions, groups, region = rows()
    frame = MetricFrame(
        metrics=METRICS, y_true=y, y_pred=decisions, sensitive_features=groups["race"],
        control_features=pd.Series(region, name="region"),
    )  # fmt: skip
    table = group_table(METRICS, y, decisions, groups["race"], within={"region": region}, resamples=0)
    assert list(table.by_group) == list(frame.by_group.index)
    for level in ("north", "south"):
        assert values(table.overall[level]) == wanted(frame.overall.loc[level])
        assert values(table.difference()[level]) == wanted(frame.difference().loc[level])
        assert values(table.ratio("to_overall")[level]) == wanted(frame.ratio(method="to_overall").loc[level])
    assert table.within == ("region",)
    assert "north" in str(table)


def test_scores_weights_and_single_functions_are_taken():
    y, _, groups, _ = rows()
    rng = np.random.default_rng(1)
    scores, weights = rng.random(600), rng.random(600)
    for weight in (None, weights):
        table = group_table(roc_auc_score, y, scores, groups["sex"], sample_weight=weight, resamples=20)
        inside = (groups["sex"] == "F").to_numpy()
        exact = roc_auc_score(y[inside], scores[inside], sample_weight=None if weight is None else weight[inside])
        estimate = table.by_group["F"]["roc_auc_score"]
        assert estimate.value == pytest.approx(exact)
        assert estimate.lower < estimate.value < estimate.upper
    unlabelled = group_table({"rate": eh.metrics.selection_rate}, None, scores > 0.5, groups["sex"], resamples=0)
    assert math.isnan(unlabelled.by_group["F"]["rate"].lower)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(2)
    truth = {"a": 0.3, "b": 0.3, "c": 0.5}
    covered = []
    for seed in range(60):
        group = rng.choice(list("abc"), 400)
        decisions = rng.random(400) < np.vectorize(truth.get)(group)
        table = group_table(
            {"rate": lambda y, d: d.mean()}, None, decisions, group, confidence=0.9, resamples=100, random_state=seed
        )
        one, gap, ratio = table.by_group["a"]["rate"], table.difference()["rate"], table.ratio()["rate"]
        covered.append(
            [one.lower <= 0.3 <= one.upper, gap.lower <= 0.2 <= gap.upper, ratio.lower <= 0.6 <= ratio.upper]
        )
    assert (np.mean(covered, axis=0) >= 0.78).all()
    assert (np.mean(covered, axis=0)[1:] < 1.0).any()


def test_no_gap_at_all_is_within_the_interval_of_the_largest_gap():
    rng = np.random.default_rng(3)
    misses = 0
    for seed in range(40):
        group, decisions = rng.choice(list("abcdef"), 300), rng.random(300) < 0.4
        table = group_table({"rate": lambda y, d: d.mean()}, None, decisions, group, resamples=60, random_state=seed)
        misses += table.difference()["rate"].lower > 0.0
    assert misses <= 6


@pytest.mark.parametrize(("library", "kind"), [(pd, pd.DataFrame), (pl, pl.DataFrame), (pa, pa.Table)])
def test_the_frame_is_of_the_callers_library(library, kind):
    y, decisions, groups, region = rows()
    columns = {"sex": groups["sex"].to_numpy(), "race": groups["race"].to_numpy()}
    given = pa.table(columns) if library is pa else library.DataFrame(columns)
    table = group_table(METRICS, y, decisions, given, within=region, resamples=5)
    frame = table.to_frame()
    assert isinstance(frame, kind)
    names = frame.column_names if library is pa else list(frame.columns)
    assert names[:5] == ["group", "sex", "race", "rows", "accuracy"]
    assert names[5:7] == ["accuracy_lower", "accuracy_upper"]
    assert len(frame) == len(table.by_group) == 12


def test_it_is_shown_as_text_and_as_html():
    y, decisions, _, _ = rows()
    names = np.where(np.arange(600) % 2, "<b>M</b>", "F")
    table = group_table(METRICS, y, decisions, {"sex": names}, resamples=10)
    assert "overall" in str(table)
    shown = table._repr_html_()
    assert "&lt;b&gt;M" in shown
    assert "<b>" not in shown


def test_a_metric_that_a_sample_does_not_allow_leaves_it_out_and_one_that_fails_is_named():
    y = [1, 1, 1, 1, 1, 1, 1, 1, 1, 0] + [0, 1] * 10
    scores = np.linspace(0, 1, 30)
    groups = ["few"] * 10 + ["many"] * 20
    with pytest.warns(UndefinedMetricWarning):
        group_table(recall_score, [0, 0, 1, 1], [0, 1, 0, 1], list("aabb"), resamples=3)
    table = group_table(roc_auc_score, y, scores, groups, resamples=40)
    assert not math.isnan(table.by_group["many"]["roc_auc_score"].lower)
    with pytest.raises(eh.InputError, match="'mean_absolute_error' fails for 'x'"):
        group_table(mean_absolute_error, ["a", "b"], ["a", "b"], ["x", "x"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrics": {}}, "metrics must be"),
        ({"metrics": {"m": 3}}, "functions"),
        ({"metrics": {"m": lambda y, d: d}}, "one number"),
        ({"metrics": {"sex": accuracy_score}}, "called 'sex'"),
        ({"y": [0, 1]}, "y has 2 rows"),
        ({"sensitive_features": {"sex": ["a", None] * 300}}, "missing"),
        ({"resamples": -1}, "resamples"),
    ],
)
def test_what_cannot_be_is_refused(given, message):
    y, decisions, groups, _ = rows()
    right = {"metrics": METRICS, "y": y, "decisions": decisions, "sensitive_features": groups[["sex"]]}
    with pytest.raises(eh.InputError, match=message):
        group_table(**{**right, **given})
    with pytest.raises(eh.InputError, match="method"):
        group_table(**right, resamples=0).difference("most")
