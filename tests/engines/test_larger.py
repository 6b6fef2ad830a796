"""Tables that do not fit in memory: objectives, strata and criteria with levels, against ``learn_rule``."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from engine_rows import arrays_of, in_memory, learn_by, with_jobs
from evenhand.engines import arrow, exclusion, levels, opening, plane
from evenhand.engines import spark as sparks
from evenhand.errors import EvenhandWarning, InfeasibleError, InputError
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
    monkeypatch.setattr(opening, "ROWS_OF_A_SAMPLE", 300)
    table, options = with_jobs(900, seed=7), {"criterion": "dp", "objective": "f1", "tolerance": 0.02}
    rule = learn_by("duckdb", table, max_in_memory=0, **NAMES, **options)
    assert_as_good(rule, in_memory(table, **options), table)
    assert rule.solution_.utility == pytest.approx(score_of(rule, table), abs=1e-12)
    assert 3 <= rule.learned_from["reading"]["passes"] <= 20


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


INSIDE = eh.DemographicParity(within="job")
STRATA = {
    "plain": {"criterion": INSIDE, "tolerance": 0.03},
    "weights and costs": {"criterion": INSIDE, "tolerance": 0.03, "sample_weight": "w", "costs": (1.0, 2.0)},
    "accuracy parity": {"criterion": eh.AccuracyParity(within="floor"), "tolerance": 0.03},
    "safety": {"criterion": INSIDE, "tolerance": 0.1, "safety": 1.0},
    "accuracy parity with safety": {"criterion": eh.AccuracyParity(within="floor"), "tolerance": 0.1, "safety": 1.0},
    "balanced accuracy": {"criterion": INSIDE, "tolerance": 0.03, "objective": "balanced_accuracy"},
}


@pytest.mark.parametrize("case", STRATA)
@pytest.mark.parametrize("name", ["arrow", "duckdb"])
def test_strata_have_the_optimum_of_learn_rule(name, case):
    table, options = with_jobs(1500, seed=3), STRATA[case]
    rule = learn_by(name, table, max_in_memory=0, **NAMES, **options)
    assert_same_strata(rule, in_memory(table, **options), table)
    assert rule.learned_from["reading"]["passes"] <= 1 + 3 * 3 + ("objective" in options)


def assert_same_strata(rule, known, table):
    arrays, joint = arrays_of(table)
    strata = {name: arrays[name] for name in rule.strata}
    assert (rule.decide(arrays["p"], joint, strata=strata) == known.decide(arrays["p"], joint, strata=strata)).all()
    assert rule.solution_.utility == pytest.approx(known.solution_.utility, abs=1e-12)
    assert rule.solution_.values == pytest.approx(known.solution_.values, abs=1e-12)
    assert (rule.solution_.used is None) == (known.solution_.used is None)
    assert np.array(rule.solution_.used or 0.0) == pytest.approx(np.array(known.solution_.used or 0.0), abs=1e-12)
    for key in ("rows", "rows_by_event", "safety"):
        assert rule.learned_from.get(key) == known.learned_from.get(key)
    assert rule.solution_.status == known.solution_.status
    assert rule.learned_from["strata"].keys() == known.learned_from["strata"].keys()
    assert rule.criterion == known.criterion
    assert eh.Rule.from_json(rule.to_json()) == rule


def test_spark_learns_each_stratum_from_its_own_rows(spark):
    table, options = with_jobs(900, seed=3), STRATA["plain"]
    rule = sparks.learn_rule(spark.createDataFrame(table), max_in_memory=8 * 500, **NAMES, **options)
    assert_same_strata(rule, in_memory(table, **options), table)


def test_strata_that_fit_in_memory_are_read_one_by_one_and_small_ones_are_left_alone():
    table = with_jobs(1500, seed=3)
    some = ["rare" if k < 40 else job for k, job in enumerate(table["job"].to_pylist())]
    some[-1] = None
    table = table.set_column(table.column_names.index("job"), "job", [some])
    options = {"criterion": eh.DemographicParity(within="job", thin=30), "tolerance": 0.02}
    with pytest.warns(EvenhandWarning, match="1 of 4 strata are left to the model's own decisions"):
        rule = learn_by("duckdb", table, max_in_memory=8 * 1000, **NAMES, **options)
    with pytest.warns(EvenhandWarning, match="1 of 4 strata are left"):
        assert_same_strata(rule, in_memory(table, **options), table)
    assert rule.learned_from["reading"] == {"passes": 4, "rows_brought_back": 1459}


def test_a_stratum_is_named_in_warnings_and_errors():
    table = with_jobs(600, seed=3)
    with pytest.warns(EvenhandWarning) as said:
        arrow.learn_rule(table, max_in_memory=0, safety=1.0, **NAMES, criterion=INSIDE, tolerance=0.05)
    for job in ("it's", "nurse"):
        assert any(f"Within job={job}: Too few rows for this tolerance" in str(one.message) for one in said)
    with pytest.raises(
        InfeasibleError, match=r"Within job=clerk: No rule meets tolerance 0 .* The same holds in job=it's"
    ):
        arrow.learn_rule(table, max_in_memory=0, **NAMES, criterion=INSIDE, tolerance=0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": INSIDE & eh.SelectionBudget(upper=0.5)}, "here they depend on each other"),
        ({"criterion": INSIDE & eh.EqualOpportunity(within="floor")}, "here they depend on each other"),
        ({"criterion": INSIDE, "objective": "f1"}, "here they depend on each other"),
        ({"criterion": INSIDE, "evidence": "both"}, "A criterion with strata needs evidence='labels' and data"),
    ],
)
def test_strata_that_depend_on_each_other_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        arrow.learn_rule(with_jobs(900), max_in_memory=0, **NAMES, **options)


def assert_precisions(rule, table, tolerance):
    """Check the groups' precisions of a rule's decisions, counted here."""
    arrays, joint = arrays_of(table)
    decided, y = rule.decide(arrays["p"], joint) == 1, arrays["y"] == 1
    precisions = [y[decided & (arrays["sex"] == sex)].mean() for sex in ("F", "M")]
    assert abs(precisions[0] - precisions[1]) <= tolerance + 1e-9
    assert rule.solution_.values == pytest.approx([precisions[0] - precisions[1]], abs=1e-12)


@pytest.mark.parametrize("name", ["arrow", "duckdb"])
def test_predictive_parity_has_the_optimum_of_learn_rule(name):
    table, options = with_jobs(600, seed=3), {"criterion": eh.PredictiveParity(), "tolerance": 0.2}
    rule = learn_by(name, table, max_in_memory=0, **NAMES, **options)
    assert_as_good(rule, in_memory(table, **options), table)
    assert_precisions(rule, table, 0.2)


def test_predictive_parity_within_strata_has_the_optimum_of_learn_rule():
    table, options = with_jobs(450, seed=3), {"criterion": eh.PredictiveParity(within="job"), "tolerance": 0.25}
    known = in_memory(table, **options)
    for most in (0, 8 * 300):
        rule = arrow.learn_rule(table, max_in_memory=most, **NAMES, **options)
        assert rule.solution_.utility == pytest.approx(known.solution_.utility, abs=1e-12)
        assert np.abs(rule.solution_.values).max() <= 0.25 + 1e-9
        assert rule.learned_from["strata"].keys() == known.learned_from["strata"].keys()
        arrays, joint = arrays_of(table)
        decided = rule.decide(arrays["p"], joint, strata=arrays["job"])
        found = eh.audit(arrays["y"], decided, {"sex": arrays["sex"]}, criterion=rule.criterion, strata=arrays["job"])
        assert max(one.gap.value or 0.0 for one in found.verdicts[0].strata) <= 0.25 + 1e-9


def test_predictive_parity_without_a_proof_is_counted_on_all_rows(monkeypatch):
    monkeypatch.setattr(plane, "_solve", lambda *given, improve: None)
    monkeypatch.setattr(levels._Common, "around_a_good_rule", lambda self: np.inf)
    monkeypatch.setattr(exclusion, "STEPS_ABOVE", ())
    table, options = with_jobs(600, seed=3), {"criterion": eh.PredictiveParity(), "tolerance": 0.05}
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, **options)
    assert rule.solution_.status == "found"
    assert_precisions(rule, table, 0.05)
    best = in_memory(table, **options).solution_.utility
    assert best - 0.02 <= rule.solution_.utility <= best + 1e-12
    assert rule.solution_.utility == pytest.approx(score_of(rule, table), abs=1e-12)


def test_the_smallest_largest_rate_is_proven_where_the_plane_is():
    table, options = with_jobs(600, seed=3), {"criterion": eh.MinimaxRate("fdr")}
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, **options)
    known = in_memory(table, **options)
    assert_as_good(rule, known, table)
    assert rule.learned_from["minimax"] == known.learned_from["minimax"]
    assert rule.criterion == known.criterion


def test_the_smallest_largest_error_is_found(monkeypatch):
    monkeypatch.setattr(levels, "MOST_UNPROVEN", 4)
    table, options = with_jobs(600, seed=3), {"criterion": eh.MinimaxRate("error")}
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, **options)
    assert rule.solution_.status == "found"
    arrays, joint = arrays_of(table)
    wrong = rule.decide(arrays["p"], joint) != arrays["y"]
    largest = max(wrong[arrays["sex"] == sex].mean() for sex in ("F", "M"))
    value = rule.learned_from["minimax"]["value"]
    smallest = in_memory(table, **options).learned_from["minimax"]["value"]
    assert smallest - 1e-12 <= largest <= value + 1e-9 <= smallest + 0.02
    assert rule.criterion == eh.MaximumRate("error", value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "f1"}, "objective='f1' cannot be combined with a criterion whose level is searched for"),
        ({"safety": 1.0}, "safety=1 cannot be combined with a criterion whose level is searched for"),
        ({"evidence": "both"}, "A criterion whose level is searched for needs evidence='labels'"),
    ],
)
def test_levels_that_need_the_rows_in_memory_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        arrow.learn_rule(with_jobs(600), max_in_memory=0, **NAMES, criterion=eh.PredictiveParity(), **options)
