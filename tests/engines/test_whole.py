"""Everything that ``learn_rule`` can do, in the engines: objectives, levels, strata, mixtures and confidence."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from engine_rows import arrays_of, in_memory, learn_by, with_jobs
from evenhand.cli import main
from evenhand.engines import arrow
from evenhand.engines import duckdb as duck
from evenhand.engines import spark as sparks
from evenhand.errors import EvenhandWarning, InputError
from scored_rows import JOINT, NAMES

INSIDE = eh.DemographicParity(within="job")
CASES = {
    "f1": {"criterion": "dp", "objective": "f1"},
    "balanced accuracy": {"criterion": "eop", "objective": "balanced_accuracy", "tolerance": 0.02},
    "predictive parity": {"criterion": eh.PredictiveParity(), "tolerance": 0.02},
    "smallest largest rate": {"criterion": eh.MinimaxRate("fpr")},
    "mixture": {"criterion": "eo", "tolerance": 0.0, "randomize": True},
    "confidence": {"criterion": "dp", "tolerance": 0.2, "confidence": 0.9, "random_state": 3},
    "strata": {"criterion": INSIDE, "tolerance": 0.02, "sample_weight": "w"},
    "strata with safety": {"criterion": INSIDE, "tolerance": 0.1, "safety": 1.0},
    "strata by number": {"criterion": eh.EqualOpportunity(within="floor"), "tolerance": 0.05},
}


def plain(rule):
    """Return a rule as data, without what differs between two searches for the same rule."""
    data = json.loads(rule.to_json())
    for part in (data, *data.get("rules", ())):
        part.get("learned_from", {}).pop("reading", None)
        part.get("learned_from", {}).pop("columns", None)
        (part.get("solution") or {}).pop("seconds", None)
    return data


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["arrow", "duckdb"])
def test_rows_that_fit_in_memory_give_what_learn_rule_gives(name, case):
    table, options = with_jobs(1200, seed=4), CASES[case]
    rule = learn_by(name, table, **NAMES, **options)
    assert plain(rule) == plain(in_memory(table, **options))
    assert rule.learned_from["reading"] == {"passes": 1, "rows_brought_back": 1200}


def test_spark_learns_and_applies_strata_as_learn_rule_does(spark):
    table = with_jobs(600, seed=4)
    frame = spark.createDataFrame(table)
    rule = sparks.learn_rule(frame, **NAMES, **CASES["strata"])
    assert plain(rule) == plain(in_memory(table, **CASES["strata"]))
    assert_applied(rule, sparks.apply(rule, frame).toArrow(), table)
    with pytest.raises(InputError, match="did not occur"), sparks.plain_errors():
        sparks.apply(rule, frame.withColumn("job", frame["sex"])).toArrow()


def assert_applied(rule, decided, table):
    """Check the columns that applying adds against the rule in Python."""
    arrays, joint = arrays_of(table)
    strata = {name: arrays[name] for name in rule.strata}
    given = {"p_y": arrays["p"], "p_group": joint, "strata": strata}
    columns = {name: decided[name].to_numpy(zero_copy_only=False) for name in decided.column_names}
    assert (columns["decision"] == rule.decide(**given)).all()
    assert columns["fair_margin"] == pytest.approx(rule.decision_function(**given), abs=1e-12)
    assert (columns["flipped"] == ((2 * arrays["p"] - 1 > 0) != columns["decision"].astype(bool))).all()
    scores = rule.bias_scores(**given)
    for k in range(scores.shape[1]):
        assert columns[f"bias_score_{k + 1}"] == pytest.approx(scores[:, k], rel=1e-9)


def read(decided):
    return decided.read_all() if isinstance(decided, pa.RecordBatchReader) else decided.to_arrow_table()


@pytest.mark.parametrize("case", ["strata", "strata by number"])
@pytest.mark.parametrize("engine", [arrow, duck])
def test_rules_with_strata_are_applied_as_python_does(engine, case):
    table = with_jobs(900, seed=5)
    rule = in_memory(table, **CASES[case])
    cells = {"p_y": "p", "p_group": JOINT}
    assert_applied(rule, read(engine.apply(rule, table, **cells)), table)
    column = rule.strata[0]
    with pytest.raises(InputError, match=f"no column '{column}'"):
        engine.apply(rule, table.drop_columns([column]), **cells)
    strange = table.set_column(table.column_names.index(column), column, pa.array(["9"] * 900).cast(table[column].type))
    with pytest.raises(InputError if engine is arrow else duckdb.Error, match="did not occur"):
        read(engine.apply(rule, strange, **cells))


@pytest.mark.parametrize("engine", [arrow, duck])
def test_strata_with_few_rows_and_new_ones_are_left_to_the_model(engine):
    table = with_jobs(900, seed=5)
    some = np.where(np.arange(900) < 40, "rare", table["job"].to_numpy(zero_copy_only=False))
    table = table.set_column(table.column_names.index("job"), "job", pa.array(some))
    criterion = eh.DemographicParity(within="job", thin=30)
    with pytest.warns(EvenhandWarning, match="1 of 4 strata are left"):
        rule = engine.learn_rule(table, **NAMES, criterion=criterion)
    with pytest.warns(EvenhandWarning, match="1 of 4 strata are left"):
        assert plain(rule) == plain(in_memory(table, criterion=criterion))
    new = table.set_column(table.column_names.index("job"), "job", pa.array(["new", None] * 450))
    decided = read(engine.apply(rule, new))
    assert (decided["decision"].to_numpy() == (table["p"].to_numpy() > 0.5)).all()
    assert not any(decided["bias_score_1"].to_pylist())


def in_two_columns(table, *, thin=None):
    parities = eh.DemographicParity(within="job", thin=thin) & eh.EqualOpportunity(within="wing", thin=thin)
    return in_memory(table, criterion=parities & eh.DemographicParity(), tolerance=0.2, search="smoothed")


def with_wings(n):
    table = with_jobs(n, seed=5)
    return table.append_column("wing", pa.array(np.arange(n) // 2 % 2 + 7))


@pytest.mark.parametrize("engine", [arrow, duck])
def test_two_columns_of_strata_are_applied_as_python_does(engine):
    table = with_wings(900)
    rule = in_two_columns(table)
    assert np.count_nonzero(rule.z) > 1
    cells = {"p_y": "p", "p_group": JOINT}
    assert_applied(rule, read(engine.apply(rule, table, **cells)), table)
    place = table.column_names.index("wing")
    with pytest.raises(InputError if engine is arrow else duckdb.Error, match=r"stratum .*'wing' .*did not occur"):
        read(engine.apply(rule, table.set_column(place, "wing", pa.array([9] * 900)), **cells))
    rule = in_two_columns(table, thin=5)
    new = table.set_column(place, "wing", pa.array([9, None, 7] * 300))
    decided = read(engine.apply(rule, new, **cells))
    arrays, joint = arrays_of(new)
    strata = {"job": arrays["job"], "wing": [9, None, 7] * 300}
    known = rule.decision_function(arrays["p"], joint, strata=strata)
    assert decided["fair_margin"].to_numpy() == pytest.approx(known, abs=1e-12)


def test_spark_applies_two_columns_of_strata_as_python_does(spark):
    table = with_wings(300)
    rule = in_two_columns(table)
    cells = {"p_y": "p", "p_group": JOINT}
    assert_applied(rule, sparks.apply(rule, spark.createDataFrame(table), **cells).toArrow(), table)


@pytest.mark.parametrize("key", [None, "row"])
@pytest.mark.parametrize("engine", [arrow, duck])
def test_mixtures_draw_by_the_weights_of_the_rows_stratum(engine, key):
    table = with_jobs(900, seed=5).append_column("row", pa.array(np.arange(900)))
    mixed = in_memory(table, criterion=eh.EqualizedOdds(within="job", thin=5), tolerance=0.0, randomize=True)
    assert len(mixed.rules) > 2
    place = table.column_names.index("job")
    jobs = ["new" if row % 50 == 0 else job for row, job in enumerate(table["job"].to_pylist())]
    table = table.set_column(place, "job", pa.array(jobs))
    found = read(engine.apply(mixed, table, p_y="p", p_group=JOINT, key=key))
    arrays, joint = arrays_of(table)
    keys = {} if key is None else {"key": arrays["row"]}
    assert found["decision"].to_pylist() == mixed.decide(arrays["p"], joint, strata=jobs, **keys).tolist()
    assert found["lot"].to_pylist() == mixed.lots(arrays["p"], joint, strata=jobs, **keys).tolist()
    known = mixed.expected_decision(arrays["p"], joint, strata=jobs)
    assert found["expected_decision"].to_pylist() == known.tolist()
    scores = mixed.bias_scores(arrays["p"], joint, strata=jobs)
    for k in range(scores.shape[1]):
        assert found[f"bias_score_{k + 1}"].to_numpy() == pytest.approx(scores[:, k], rel=1e-9)


def test_spark_draws_by_the_weights_of_the_rows_stratum(spark):
    table = with_jobs(300, seed=5).append_column("row", pa.array(np.arange(300)))
    mixed = in_memory(table, criterion=INSIDE, tolerance=0.0, randomize=True)
    frame = spark.createDataFrame(table)
    found = sparks.apply(mixed, frame, p_y="p", p_group=JOINT, key="row").toArrow()
    arrays, joint = arrays_of(table)
    given = {"strata": arrays["job"]}
    assert found["decision"].to_pylist() == mixed.decide(arrays["p"], joint, key=arrays["row"], **given).tolist()
    assert found["expected_decision"].to_pylist() == mixed.expected_decision(arrays["p"], joint, **given).tolist()


def test_spark_draws_by_the_weights_of_the_rows_combination(spark):
    table = with_wings(300).append_column("row", pa.array(np.arange(300)))
    both = eh.DemographicParity(within="job") & eh.DemographicParity(within="wing")
    mixed = in_memory(table, criterion=both, tolerance=0.0, randomize=True)
    frame = spark.createDataFrame(table)
    found = sparks.apply(mixed, frame, p_y="p", p_group=JOINT, key="row").toArrow()
    arrays, joint = arrays_of(table)
    given = {"strata": {"job": arrays["job"], "wing": arrays["wing"]}}
    assert found["decision"].to_pylist() == mixed.decide(arrays["p"], joint, key=arrays["row"], **given).tolist()
    assert found["expected_decision"].to_pylist() == mixed.expected_decision(arrays["p"], joint, **given).tolist()


def test_mixtures_refuse_an_unknown_stratum_in_duckdb():
    table = with_jobs(600, seed=5)
    mixed = in_memory(table, criterion=INSIDE, tolerance=0.0, randomize=True)
    strange = table.set_column(table.column_names.index("job"), "job", pa.array(["new"] * 600))
    with pytest.raises(duckdb.Error, match="did not occur"):
        read(duck.apply(mixed, strange, p_y="p", p_group=JOINT))


@pytest.mark.parametrize("thin", [None, 5])
def test_two_columns_of_strata_are_one_sql_expression(thin):
    table = with_wings(900)
    rule = in_two_columns(table, thin=thin)
    arrays, joint = arrays_of(table)
    given = {"p_y": "p", "p_group": JOINT, "dialect": "duckdb", "strata": {"wing": "wing"}}
    asked = ", ".join(f"{rule.to_sql(**given, output=output)} AS {output}" for output in ("decision", "margin"))
    strata = {"job": arrays["job"], "wing": arrays["wing"]}
    decided = duckdb.connect().from_arrow(table).project(asked).to_arrow_table()
    assert (decided["decision"].to_numpy() == rule.decide(arrays["p"], joint, strata=strata)).all()
    assert (decided["margin"].to_numpy() == rule.decision_function(arrays["p"], joint, strata=strata)).all()
    new = table.set_column(table.column_names.index("wing"), "wing", pa.array([9] * 900))
    decided = duckdb.connect().from_arrow(new).project(asked).to_arrow_table()
    if thin is None:
        assert decided["decision"].null_count == decided["margin"].null_count == 900
    else:
        strata["wing"] = [9] * 900
        assert (decided["decision"].to_numpy() == rule.decide(arrays["p"], joint, strata=strata)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"criterion": eh.DemographicParity(within="jobs")}, "no column 'jobs'. Did you mean 'job'"),
        ({"criterion": eh.DemographicParity(within="p")}, "looks like a number or an identifier"),
        ({"randomize": True, "search": "lines"}, "randomize=True has its own search"),
        ({"randomize": 1.5}, "randomize"),
        ({"confidence": 0.9, "sample_weight": "w"}, "sample_weight says that they"),
        ({"confidence": 0.9, "y": None}, "confidence tests rules on counted rows"),
        ({"objective": "recall"}, "objective must be"),
        ({"randomize": True, "max_in_memory": 0}, "randomize=True needs the rows in memory"),
        ({"confidence": 0.9, "max_in_memory": 0}, "confidence=0.9 needs the rows in memory"),
    ],
)
@pytest.mark.parametrize("engine", [arrow, duck])
def test_what_cannot_be_asked_is_refused(engine, change, message):
    with pytest.raises(InputError, match=message):
        engine.learn_rule(with_jobs(900), **{**NAMES, **change})


def test_a_stratum_that_comes_late_in_a_stream_is_named():
    table = with_jobs(900)
    late = table.filter(pa.compute.not_equal(table["job"], "nurse")).to_batches(), table.to_batches()
    stream = (batch for part in late for batch in part)
    with pytest.raises(InputError, match="a stratum of 'job' that is not among the first rows"):
        arrow.learn_rule(stream, **NAMES, criterion=INSIDE)


FIT = ["--label", "y", "--score", "p", "--sensitive", "sex", "--joint-score", "0,F=p0f", "--joint-score", "0,M=p0m",
       "--joint-score", "1,F=p1f", "--joint-score", "1,M=p1m", "--safety", "0", "--seed", "3"]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "options"),
    [
        (["--criterion", "dp within job"], {"criterion": INSIDE, "tolerance": 0.05}),
        (["--objective", "f1", "--criterion", "dp"], {"criterion": "dp", "objective": "f1"}),
        (["--criterion", "pp", "--tolerance", "0.02"], CASES["predictive parity"]),
        (["--criterion", "minimax_rate:fpr"], CASES["smallest largest rate"]),
        (["--criterion", "eo", "--tolerance", "0", "--randomize"], CASES["mixture"]),
        (["--criterion", "dp", "--tolerance", "0.2", "--confidence", "0.9"], CASES["confidence"]),
    ],
    ids=["strata", "f1", "predictive parity", "smallest largest rate", "mixture", "confidence"],
)
def test_the_command_line_learns_them_with_an_engine(more, options, tmp_path, capsys):
    table, rule = with_jobs(1200, seed=4), tmp_path / "rule.json"
    pq.write_table(table, tmp_path / "rows.parquet")
    assert main(["fit", str(tmp_path / "rows.parquet"), *FIT, *more, "-o", str(rule), "--engine", "duckdb"]) == 0
    said = capsys.readouterr().out
    assert f"On the rows it was learnt from ({'120' if '--confidence' in more else '1,200'})" in said
    assert ("Certified on 1,080 other rows, with confidence 0.9." in said) == ("--confidence" in more)
    assert ("A mixture of" in said) == ("--randomize" in more)
    learned = eh.rules.mixture.read_rule(rule.read_text())
    assert plain(learned) == plain(in_memory(table, **{"random_state": 3, **options}))
    outputs = [tmp_path / "with.parquet", tmp_path / "without.parquet"]
    for output, engine in zip(outputs, (["--engine", "duckdb"], []), strict=True):
        assert main(["apply", str(rule), str(tmp_path / "rows.parquet"), "-o", str(output), *engine]) == 0
    first, second = map(pq.read_table, outputs)
    assert first["decision"].to_pylist() == second["decision"].to_pylist()
