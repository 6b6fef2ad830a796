"""A rule in a Spark ML pipeline, on vectors of probabilities, and on a stream."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.engines import spark as engine
from evenhand.errors import InputError
from scored_rows import JOINT, draw

EO = eh.Rule.from_criterion(
    "eo", groups={"sex": ("F", "M")}, priors=[[0.3, 0.2], [0.2, 0.3]], z=[0.1, -0.2], classes=(0, 1)
)
DP = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.4, 0.6], z=[0.2], classes=("no", "it's yes"))


@pytest.fixture(scope="module")
def rows():
    return draw(300)


@pytest.fixture(scope="module")
def vectors(spark, rows):
    """The scores as a Spark ML classifier gives them: one vector for the label, one for label and group."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as f

    frame = spark.createDataFrame(rows.select(["p", *JOINT.values(), "f", "y", "sex"]))
    return frame.select(
        "y",
        "sex",
        "f",
        array_to_vector(f.array(1 - f.col("p"), f.col("p"))).alias("probability"),
        array_to_vector(f.array(*JOINT.values())).alias("joint"),
        f.array(*JOINT.values()).alias("listed"),
    )


def expected(rows, rule):
    p = rows["p"].to_numpy()
    joint = np.column_stack([rows[name].to_numpy() for name in JOINT.values()]).reshape(-1, 2, 2)
    groups = joint if rule is EO else np.column_stack([rows["f"].to_numpy(), 1 - rows["f"].to_numpy()])
    return rule.decide(p, groups).tolist()


@pytest.mark.parametrize("column", ["joint", "listed"])
def test_entries_of_vectors_and_arrays_are_decided_as_python_does(vectors, rows, column):
    cells = {key: f"{column}[{k}]" for k, key in enumerate(JOINT)}
    decided = engine.apply(EO, vectors, p_y="probability", p_group=cells)
    assert decided.columns[:6] == vectors.columns
    assert decided.columns[6:] == ["decision", "fair_margin", "flipped", "bias_score_1", "bias_score_2"]
    assert [row.decision for row in decided.select("decision").collect()] == expected(rows, EO)


def test_a_rule_is_learnt_from_a_vector_and_remembers_it(vectors):
    rule = engine.learn_rule(
        vectors, y="y", sensitive_features="sex", p_y="probability", p_group={"F": "f", "M": None}, tolerance=0.1
    )
    assert rule.learned_from["columns"]["score"] == "probability[1]"
    assert "probability[1]" not in engine.apply(rule, vectors).columns
    with pytest.raises(InputError, match=r"no column 'probability\[1\]'"):
        engine.apply(rule, vectors.drop("probability"))


def test_a_transformer_is_a_stage_that_is_saved_and_read(spark, vectors, rows, tmp_path):
    from pyspark.ml import PipelineModel

    stage = engine.FairTransformer(
        rule=DP, p_y="probability", p_group={"F": "f", "M": None}, prefix="fair_", keep=False
    )
    pipeline = PipelineModel(stages=[stage])
    once = pipeline.transform(vectors)
    assert once.columns == ["fair_decision", "fair_fair_margin", "fair_flipped", "fair_bias_score_1"]
    assert [row.fair_decision for row in once.collect()] == expected(rows, DP)
    pipeline.write().overwrite().save(str(tmp_path / "pipeline"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = PipelineModel.load(str(tmp_path / "pipeline"))
    assert isinstance(again.stages[0], engine.FairTransformer)
    read = again.stages[0].getRule()
    assert (read.terms, read.priors, read.classes) == (DP.terms, DP.priors, DP.classes)
    assert again.transform(vectors).collect() == once.collect()


def test_a_pipeline_that_is_fitted_ends_in_a_fair_decision(spark, vectors):
    from pyspark.ml import Pipeline
    from pyspark.ml.classification import LogisticRegression

    model = LogisticRegression(featuresCol="joint", labelCol="y", maxIter=2)
    stage = engine.FairTransformer(rule=DP, p_y="probability", p_group={"F": "f", "M": None})
    decided = Pipeline(stages=[model, stage]).fit(vectors.drop("probability")).transform(vectors.drop("probability"))
    found = decided.select("probability", "f", "decision").collect()
    p, f = np.array([row.probability[1] for row in found]), np.array([row.f for row in found])
    assert [row.decision for row in found] == DP.decide(p, np.column_stack([f, 1 - f])).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": DP}, "does not say which column holds the probability"),
        ({"rule": 3, "p_y": "p"}, "rule must be a Rule"),
        ({"rule": DP, "p_y": "p", "p_group": {"F": "f"}}, "a column for each of"),
    ],
)
def test_a_transformer_that_cannot_decide_is_refused_when_it_is_made(spark, options, message):
    with pytest.raises(InputError, match=message):
        engine.FairTransformer(**options)


def test_a_transformer_without_a_readable_rule_says_so(spark, vectors):
    empty = engine.FairTransformer()
    with pytest.raises(InputError, match=r"FairTransformer\(rule=rule\)"):
        empty.transform(vectors)
    with pytest.raises(InputError, match="cannot be read"):
        empty.transform(vectors, {empty.rule: "{}"})


def test_a_stream_is_decided_as_it_comes(spark, rows, tmp_path):
    scored = rows.select(["p", "f"])
    for part in range(2):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(scored.slice(part * 150, 150), tmp_path / "in" / f"{part}.parquet")
    stream = spark.readStream.schema("p double, f double").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    decided = engine.apply(DP, stream, p_y="p", p_group={"F": "f", "M": None})
    assert decided.isStreaming
    query = (
        decided.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    found = pq.read_table(tmp_path / "out").sort_by("p").to_pydict()
    whole = scored.sort_by("p")
    p, f = whole["p"].to_numpy(), whole["f"].to_numpy()
    assert found["decision"] == DP.decide(p, np.column_stack([f, 1 - f])).tolist()
