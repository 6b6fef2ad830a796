"""Learning and applying through Spark Connect, whose client has no Java virtual machine of its own."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, warnings
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession

session = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert "connect" in type(session).__module__

import numpy as np
import evenhand as eh
from evenhand.engines import arrow
from evenhand.engines import spark as engine

rng = np.random.default_rng(0)
p, f = rng.random((2, 2000))
rows = {"p": p, "f": f, "y": (rng.random(2000) < p).astype(int), "sex": np.where(rng.random(2000) < f, "F", "M")}
listed = list(zip(*(column.tolist() for column in rows.values())))
frame = session.createDataFrame(listed, "p double, f double, y int, sex string")
names = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"F": "f", "M": None}, "tolerance": 0.05}
rule = engine.learn_rule(frame, **names)
import pyarrow as pa
assert rule.terms == arrow.learn_rule(pa.table(rows), **names).terms
found = engine.apply(rule, frame).toArrow()
expected = rule.decide(np.array(found["p"]), np.column_stack([found["f"], 1 - np.array(found["f"])]))
assert found["decision"].to_pylist() == expected.tolist()

from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions
vectors = frame.select(array_to_vector(functions.array(1 - functions.col("p"), functions.col("p"))).alias("v"), "f")
stage = engine.FairTransformer(rule=rule, p_y="v", p_group={"F": "f", "M": None})
assert stage.transform(vectors).toArrow()["decision"].to_pylist() == expected.tolist()
session.stop()
print("all rows agree")
"""


def test_spark_connect_learns_and_decides_as_arrow_and_python_do(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all rows agree" in done.stdout
