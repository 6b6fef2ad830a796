"""The rule's SQL in DuckDB and in Spark, against Python, to the bit."""

from __future__ import annotations

import itertools

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from scored_rows import CRITERIA, HOSTILE, HOSTILE_NAMES, decide_by, hostile_texts, random_case


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), names=st.permutations(HOSTILE_NAMES), criterion=st.sampled_from(CRITERIA))
def test_duckdb_decides_every_row_as_python_does(seed, names, criterion):
    rule, table, spelling, p, joint = random_case(seed, names, criterion)
    texts = [rule.to_sql(**spelling, dialect="duckdb", output=output) for output in ("margin", "decision")]
    found = (
        duckdb.from_arrow(table).project(", ".join(f"{text} AS c{k}" for k, text in enumerate(texts))).to_arrow_table()
    )
    assert (found["c0"].to_numpy() == rule.decision_function(p, joint)).all()
    assert found["c1"].to_pylist() == rule.decide(p, joint).tolist()


@pytest.mark.parametrize("criterion", CRITERIA)
def test_spark_decides_every_row_as_python_does(spark, criterion):
    for seed, start in enumerate((0, 4, 8, 12)):
        rule, table, spelling, p, joint = random_case(seed, HOSTILE_NAMES[start : start + 5], criterion)
        texts = [rule.to_sql(**spelling, dialect="spark", output=output) for output in ("margin", "decision")]
        frame = spark.createDataFrame(table)
        found = frame.selectExpr(*(f"{text} AS c{k}" for k, text in enumerate(texts))).toArrow()
        assert (found["c0"].to_numpy() == rule.decision_function(p, joint)).all()
        assert found["c1"].to_pylist() == rule.decide(p, joint).tolist()


@pytest.mark.parametrize("z", [0.1, -1e300])
def test_a_score_that_is_null_nan_or_no_probability_is_decided_null(spark, z):
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[z])
    p, f = [None, float("nan"), float("inf"), 1.1, 0.9, 0.9], [0.5, 0.5, 0.5, 0.5, float("nan"), 0.6]
    table = pa.table({"p": pa.array(p), "f": f, "m": [0.5, 0.5, 0.5, 0.5, 0.5, 0.4]})
    texts = {name: rule.to_sql(p_y="p", p_group={"F": "f", "M": "m"}, dialect=name) for name in ("duckdb", "spark")}
    in_duckdb = duckdb.from_arrow(table).project(f"{texts['duckdb']} AS c").fetchall()
    in_spark = spark.createDataFrame(table).selectExpr(f"{texts['spark']} AS c").collect()
    assert [row[0] for row in in_duckdb] == [row[0] for row in in_spark] == [None, None, None, None, None, 1]


def test_what_rounding_took_over_the_edge_is_decided_as_in_python(spark):
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.25])
    rows = np.array([(0.75 + 5e-8, 1.0 + 5e-7, 0.0), (0.25 - 5e-8, -5e-7, 1.0), (1.0 + 5e-7, 1.0, 0.0)])
    table = pa.table(dict(zip("pfm", rows.T, strict=True)))
    expected = rule.decide(rows[:, 0], rows[:, 1:]).tolist()
    for rest in ("m", None):
        columns = {"p_y": "p", "p_group": {"F": "f", "M": rest}}
        text = rule.to_sql(**columns, dialect="duckdb")
        assert [row[0] for row in duckdb.from_arrow(table).project(f"{text} AS c").fetchall()] == expected
        text = rule.to_sql(**columns, dialect="spark")
        assert [row[0] for row in spark.createDataFrame(table).selectExpr(f"{text} AS c").collect()] == expected


def test_one_column_may_be_what_the_others_leave():
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.125])
    rng = np.random.default_rng(0)
    p, f = rng.random((2, 100))
    text = rule.to_sql(p_y="p", p_group={"F": "f", "M": None}, dialect="duckdb", output="margin")
    found = duckdb.from_arrow(pa.table({"p": p, "f": f})).project(f"{text} AS c").fetchnumpy()["c"]
    assert (found == rule.decision_function(p, np.column_stack([f, 1.0 - f]))).all()
    with pytest.raises(eh.errors.InputError, match="one column that is None"):
        rule.to_sql(p_y="p", p_group={"F": None, "M": None})


def test_crossed_groups_are_no_pairs_of_label_and_group():
    crossed = eh.Intersection("sex", "race")
    groups = [(s, r) for s in "FM" for r in "ab"]
    rule = eh.Rule.from_criterion(
        eh.DemographicParity(attribute=crossed), groups={"sex": ["F", "M"], "race": ["a", "b"], crossed.name: groups},
        priors={"sex": [0.5, 0.5], "race": [0.5, 0.5], crossed.name: [0.25] * 4}, z=[0.1, 0.2, 0.3],
    )  # fmt: skip
    rng = np.random.default_rng(0)
    p, joint = rng.random(50), rng.dirichlet(np.ones(4), 50)
    names = ["c0", "c1", "c2", "c3"]
    text = rule.to_sql(p_y="p", p_group=dict(zip(groups, names, strict=True)), dialect="duckdb", output="margin")
    table = pa.table({"p": p, **{name: joint[:, k] for k, name in enumerate(names)}})
    assert (
        duckdb.from_arrow(table).project(f"{text} AS c").fetchnumpy()["c"] == rule.decision_function(p, joint)
    ).all()


@settings(max_examples=60)
@given(labels=st.lists(hostile_texts(), min_size=2, max_size=2, unique=True))
def test_duckdb_gives_back_every_label_that_can_be_written(labels):
    rows = duckdb.from_arrow(pa.table({"p": [0.1, 0.9], "f": [0.5, 0.5], "m": [0.5, 0.5]}))
    assert [row[0] for row in rows.project(f"{decide_by(labels, 'duckdb')} AS c").fetchall()] == labels


@pytest.mark.parametrize("escaped", ["false", "true"])
def test_spark_gives_back_every_label_whatever_its_settings_are(spark, escaped):
    rows = spark.createDataFrame(pa.table({"p": [0.1, 0.9], "f": [0.5, 0.5], "m": [0.5, 0.5]}))
    rows.createOrReplaceTempView("hostile_rows")
    spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
    try:
        for first, second in itertools.pairwise(HOSTILE):
            text = decide_by([first, second], "spark")
            for found in (rows.selectExpr(f"{text} AS c"), spark.sql(f"SELECT {text} AS c FROM hostile_rows")):
                assert [row[0] for row in found.collect()] == [first, second]
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")
