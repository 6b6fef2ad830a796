"""Tables that do not fit in memory: objectives, strata and criteria with levels, against ``learn_rule``."""

from __future__ import annotations

import pytest

import evenhand as eh
from engine_rows import arrays_of, in_memory, learn_by, with_jobs
from evenhand.engines import arrow, exact
from evenhand.engines import spark as sparks
from evenhand.errors import InputError
from scored_rows import NAMES


def assert_as_good(rule, known, table):
    """Check that a rule has the optimum that is known, and that its numbers are those of its own decisions."""
    assert rule.solution_.status == known.solution_.status == "optimal"
    assert rule.solution_.utility == pytest.approx(known.solution_.utility, abs=1e-12)
    assert rule.learned_from["objective"] == known.learned_from["objective"]
    assert rule.learned_from["rows"] == len(table)
    assert rule.costs == pytest.approx(known.costs)
    assert eh.Rule.from_json(rule.to_json()) == rule


def score_of(rule, table, weight=None):
    """Return accuracy, balanced accuracy and F1 of a rule's decisions, counted here."""
    arrays, joint = arrays_of(table)
    strata = {name: arrays[name] for name in rule.strata} or None
    decided, y = rule.decide(arrays["p"], joint, strata=strata) == 1, arrays["y"] == 1
    w = 1.0 if weight is None else arrays[weight]
    hits, missed, wrong = ((w * part).sum() for part in (decided & y, ~decided & y, decided & ~y))
    right = (w * (~decided & ~y)).sum()
    return {
        "accuracy": (hits + right) / (hits + missed + wrong + right),
        "balanced_accuracy": 0.5 * (hits / (hits + missed) + right / (right + wrong)),
        "f1": 2 * hits / (2 * hits + missed + wrong),
    }[rule.learned_from["objective"]]


ON_THE_LINE = {
    "balanced accuracy": {"criterion": "dp", "objective": "balanced_accuracy", "tolerance": 0.03},
    "balanced accuracy with weights": {
        "criterion": "eop", "objective": "balanced_accuracy", "tolerance": 0.02, "sample_weight": "w"
    },
    "f1": {"criterion": eh.SelectionBudget(upper=0.3), "objective": "f1"},
}  # fmt: skip


@pytest.mark.parametrize("case", ON_THE_LINE)
@pytest.mark.parametrize("name", ["arrow", "duckdb"])
def test_objectives_on_the_line_have_the_optimum_of_learn_rule(name, case):
    table, options = with_jobs(900, seed=7), ON_THE_LINE[case]
    rule = learn_by(name, table, max_in_memory=0, **NAMES, **options)
    assert_as_good(rule, in_memory(table, **options), table)
    assert rule.solution_.utility == pytest.approx(score_of(rule, table, options.get("sample_weight")), abs=1e-12)
    assert 4 <= rule.learned_from["reading"]["passes"] <= 8


def test_an_f_score_in_the_plane_has_the_optimum_of_learn_rule(monkeypatch):
    monkeypatch.setattr(exact, "ROWS_OF_A_SAMPLE", 300)
    table, options = with_jobs(900, seed=7), {"criterion": "dp", "objective": "f1", "tolerance": 0.02}
    rule = learn_by("duckdb", table, max_in_memory=0, **NAMES, **options)
    assert_as_good(rule, in_memory(table, **options), table)
    assert rule.solution_.utility == pytest.approx(score_of(rule, table), abs=1e-12)
    assert 6 <= rule.learned_from["reading"]["passes"] <= 20


def test_an_f_score_beyond_the_plane_is_counted_on_all_rows():
    table, options = with_jobs(900, seed=7), {"criterion": "eo", "objective": "f1", "tolerance": 0.1}
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, **options)
    assert rule.solution_.status == "found"
    assert rule.solution_.utility == pytest.approx(score_of(rule, table), abs=1e-12)
    best = in_memory(table, **options, search="smoothed").solution_.utility
    assert best - 0.005 <= rule.solution_.utility


def test_balanced_accuracy_is_learnt_from_cells_where_it_must_be():
    table, options = with_jobs(3000, seed=7), {"criterion": "dp", "objective": "balanced_accuracy"}
    rule = arrow.learn_rule(table, max_in_memory=0, search="smoothed", **NAMES, **options)
    assert "quantisation" in rule.learned_from
    assert rule.solution_.utility == pytest.approx(score_of(rule, table), abs=1e-12)


@pytest.mark.parametrize(
    ("objective", "options", "needs"),
    [
        ("f1", {"evidence": "model"}, "evidence='labels', search='certified' and data"),
        ("f1", {"search": "smoothed"}, "evidence='labels', search='certified' and data"),
        ("f1", {}, "evidence='labels', search='certified' and data"),
        ("balanced_accuracy", {"evidence": "both"}, "evidence='labels' and data"),
        ("balanced_accuracy", {}, "evidence='labels' and data"),
    ],
)
def test_what_cannot_be_right_out_of_core_is_refused(objective, options, needs):
    table = with_jobs(900)
    data = table if options else table.to_reader()
    with pytest.raises(InputError, match=f"objective='{objective}' needs {needs} that can be read more than once"):
        arrow.learn_rule(data, max_in_memory=0, objective=objective, **NAMES, **options)


def test_an_f_score_on_spark_has_the_optimum_of_learn_rule(spark):
    table, options = with_jobs(600, seed=7), ON_THE_LINE["f1"]
    rule = sparks.learn_rule(spark.createDataFrame(table), max_in_memory=0, **NAMES, **options)
    assert_as_good(rule, in_memory(table, **options), table)
