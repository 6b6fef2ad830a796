"""Rows with scores, and a Spark session to read them with: what the tests of the engines and of the SQL share."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st

import evenhand as eh

JOINT = {(0, "F"): "p0f", (0, "M"): "p0m", (1, "F"): "p1f", (1, "M"): "p1m"}
NAMES = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": JOINT}

# Texts that end a literal, begin a comment or are changed by some engine, if they are not spelt for it.
HOSTILE = [
    "x\\' OR 1=1 -- ", "it's", "''", "'", "\\", "\\\\", "a\\b", "ends in \\", "\\'", "\\u0041", "\\n", "new\nline",
    "line\r\nfeed", "\t", "\x01", "\u2028", "ünï ☃ 𝄞", "`tick`", '"double"', "${env:HOME}", "${spark.app.name}", "$1",
    "%s %(x)s {0}", ":name", "?", "--", "/* */", "; DROP TABLE rows", "", " ", "NULL", "0", "E'x'", "sex & race",
]  # fmt: skip
HOSTILE_NAMES = [
    "p", "select", "a b", 'quo"te', "back`tick", "semi;colon", "x'y", "ünï", "-- comment", "1st", "{df}", "$1", "a.b",
    "back\\slash", "ends in \\", "\\`", "new\nline", "brack]et",
]  # fmt: skip
CRITERIA = ("dp", "eo", "eop")


def hostile_texts():
    """Return a strategy for texts that SQL can hold, among them those that are easily spelt wrongly."""
    signs = st.one_of(
        st.sampled_from("'\\\"`$&{}-\n\r;%"), st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
    )
    return st.one_of(st.sampled_from(HOSTILE), st.text(signs, max_size=12))


def decide_by(labels, dialect):
    """Return the SQL of a rule with these two labels; it decides by p > 1/2 where f = m = 1/2."""
    rule = eh.Rule.from_criterion(
        "dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.125], classes=tuple(labels)
    )  # fmt: skip
    return rule.to_sql(p_y="p", p_group={"F": "f", "M": "m"}, dialect=dialect)


def random_case(seed, names, criterion):
    """Return a rule, a table under hostile names, the spelling of its columns, and the probabilities as arrays."""
    rng = np.random.default_rng(seed)
    rule = eh.Rule.from_criterion(
        criterion, groups={"sex": ("F", "M")}, priors=rng.dirichlet(np.ones(4)).reshape(2, 2),
        z=rng.normal(size=2 if criterion == "eo" else 1) * 0.1, classes=("it's no", "yes"),
        costs=(1.0, rng.uniform(0.5, 3.0)),
    )  # fmt: skip
    p, joint = rng.random(200), rng.dirichlet(np.ones(4), 200).reshape(200, 2, 2)
    table = pa.table(dict(zip(names, [p, *joint.reshape(200, 4).T], strict=False)))
    cells = [(label, group) for label in rule.classes for group in ("F", "M")]
    return rule, table, {"p_y": names[0], "p_group": dict(zip(cells, names[1:5], strict=True))}, p, joint


def draw(n, seed=0):
    """Return a table of calibrated scores for a label and two attributes, with weights and some unknown groups."""
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet([2.0, 2.0, 1.0, 2.0], n)
    cell = (rng.random((n, 1)) > joint.cumsum(axis=1)[:, :3]).sum(axis=1)
    region = rng.dirichlet([1.0, 2.0, 3.0], n)
    where = (rng.random((n, 1)) > region.cumsum(axis=1)[:, :2]).sum(axis=1)
    columns = {
        "p": joint[:, 2:].sum(axis=1),
        **{name: joint[:, k] for k, name in enumerate(JOINT.values())},
        "f": joint[:, 0] + joint[:, 2],
        **{f"r{k}": region[:, k] for k in range(3)},
        "y": cell // 2,
        "sex": np.array(["F", "M"])[cell % 2],
        "region": np.array(["north", "south", "west"])[where],
        "w": rng.integers(1, 5, n) / 2,
    }
    table = pa.table(columns)
    known = pa.array(rng.random(n) < 0.1)
    sex = pc.if_else(known, pa.scalar(None, pa.string()), table["sex"])
    return table.append_column("sex_or_null", sex)


@pytest.fixture(scope="session")
def spark():
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        options = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
        }
        builder = SparkSession.builder.master("local[2]").appName("evenhand tests")
        for name, value in options.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
