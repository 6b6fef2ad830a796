from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest

from evenhand.paper.experiments.results import Estimate, Table, accuracy_at_gap, excess
from evenhand.paper.experiments.writing import table_csv, table_markdown


def test_an_estimate_is_the_mean_and_its_standard_error():
    values = [1.0, 2.0, 4.0]
    found = Estimate.of([*values, None, math.nan])
    assert found.mean == pytest.approx(np.mean(values))
    assert found.error == pytest.approx(np.std(values, ddof=1) / math.sqrt(3))
    assert found.n == 3
    assert found.text(1, sign=True) == "+2.3 ± 0.9"
    assert Estimate.of([5.0]).text() == "5.00"
    assert Estimate.of([]).text() == "–"


def test_accuracy_at_a_gap_is_interpolated_and_never_extrapolated_below():
    points = [{"gap": 0.2, "accuracy": 0.9}, {"gap": 0.1, "accuracy": 0.8}, {"gap": None, "accuracy": None}]
    assert accuracy_at_gap(points, 0.15) == pytest.approx(0.85)
    assert accuracy_at_gap(points, 0.5) == pytest.approx(0.9)
    assert math.isnan(accuracy_at_gap(points, 0.05))


def test_excess_is_what_is_above_the_tolerance():
    assert excess({"gap": 0.07, "delta": 0.05}) == pytest.approx(0.02)
    assert excess({"gap": 0.03, "delta": 0.05}) == 0.0
    assert excess({"gap": 0.03, "delta": None}) is None
    assert excess({"gap": None, "delta": 0.05}) is None


def test_a_table_has_its_errors_in_columns_of_their_own_in_csv():
    table = Table("t", "title", ("a", "b"), [["x|y", Estimate(1.0, 0.25, 3)], ["y", None]])
    assert table_markdown(table).splitlines() == ["| a | b |", "| --- | --- |", "| x\\|y | 1.00 ± 0.25 |", "| y | – |"]
    assert list(csv.reader(io.StringIO(table_csv(table)))) == [
        ["a", "b", "b (s.e.)"],
        ["x|y", "1.0", "0.25"],
        ["y", "", ""],
    ]
