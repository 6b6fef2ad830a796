from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import InputError
from evenhand.rules.sql import DIALECTS
from scored_rows import decide_by, hostile_texts

NAMES = [
    "p", "select", "a b", 'quo"te', "back`tick", "semi;colon", "x'y", "ünï", "-- comment", "1st",
    "back\\slash", "ends\\", "new\nline", '\\"',
]  # fmt: skip


def run(expression, names, columns):
    """Evaluate an expression on every row in SQLite, through a table whose columns have these names."""
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE rows ({', '.join(f'{name} REAL' for name in quoted)})")
        marks = ", ".join("?" * len(names))
        connection.executemany(f"INSERT INTO rows VALUES ({marks})", np.column_stack(columns).tolist())
        return [row[0] for row in connection.execute(f"SELECT {expression} FROM rows ORDER BY rowid")]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), names=st.permutations(NAMES), criterion=st.sampled_from(["dp", "eo", "eop"]))
def test_sqlite_decides_every_row_as_python_does(seed, names, criterion):
    rng = np.random.default_rng(seed)
    k = 2 if criterion == "eo" else 1
    rule = eh.Rule.from_criterion(
        criterion,
        groups={"sex": ("F", "M")},
        priors=rng.dirichlet(np.ones(4)).reshape(2, 2),
        z=rng.normal(size=k) * 0.1,
        classes=("it's no", "yes"),
        costs=(1.0, rng.uniform(0.5, 3.0)),
    )
    p, joint = rng.random(200), rng.dirichlet(np.ones(4), 200).reshape(200, 2, 2)
    cells = [(label, group) for label in ("it's no", "yes") for group in ("F", "M")]
    spelling = {"p_y": names[0], "p_group": dict(zip(cells, names[1:5], strict=True)), "dialect": "sqlite"}
    columns = [p, *joint.reshape(200, 4).T]
    assert (
        run(rule.to_sql(**spelling, output="margin"), names[:5], columns) == rule.decision_function(p, joint).tolist()
    )
    assert run(rule.to_sql(**spelling), names[:5], columns) == rule.decide(p, joint).tolist()


def test_several_attributes_are_one_expression():
    rule = eh.Rule.from_criterion(
        "dp",
        groups={"sex": ("F", "M"), "race": ("a", "b")},
        priors={"sex": [0.4, 0.6], "race": [0.3, 0.7]},
        z=[0.1, -0.2],
    )
    rng = np.random.default_rng(0)
    p, f, a = rng.random((3, 50))
    expression = rule.to_sql(
        p_y="p", p_group={"sex": {"F": "f", "M": "m"}, "race": {"a": "a", "b": "b"}}, dialect="sqlite", output="margin"
    )
    found = run(expression, ["p", "f", "m", "a", "b"], [p, f, 1 - f, a, 1 - a])
    groups = {"sex": np.column_stack([f, 1 - f]), "race": np.column_stack([a, 1 - a])}
    assert found == rule.decision_function(p, groups).tolist()


OVER = 5e-7
AT_THE_EDGE = [
    (0.75 + 0.1 * OVER, 1.0 + OVER, 0.0),
    (0.25 - 0.1 * OVER, -OVER, 1.0),
    (1.0 + OVER, 1.0, 0.0),
    (-OVER, 0.0, 1.0),
    (0.75 + 1e-17, 1.0 + 2.3e-16, 0.0),
]


@pytest.mark.parametrize("z", [0.25, 0.5])
@pytest.mark.parametrize("rest", ["m", None])
def test_what_rounding_took_over_the_edge_is_decided_as_in_python(z, rest):
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[z])
    p, f, m = np.array(AT_THE_EDGE).T
    text = rule.to_sql(p_y="p", p_group={"F": "f", "M": rest}, dialect="sqlite")
    assert run(text, ["p", "f", "m"], [p, f, m]) == rule.decide(p, np.column_stack([f, m])).tolist()


def test_what_is_no_probability_is_decided_null():
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1])
    text = rule.to_sql(p_y="p", p_group={"F": "f", "M": "m"}, dialect="sqlite")
    p, f, m = np.array([(1.01, 0.5, 0.5), (0.9, 1.0009, 0.0), (0.1, 1.0, -0.0009), (0.9, 0.5, 0.5)]).T
    assert run(text, ["p", "f", "m"], [p, f, m]) == [None, None, None, 1]


@pytest.mark.parametrize("z", [-1e300, 1e300, 4e307])
def test_margins_of_any_size_are_decided(z):
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[z])
    p, f = np.random.default_rng(0).random((2, 50))
    text = rule.to_sql(p_y="p", p_group={"F": "f", "M": "m"}, dialect="sqlite")
    expected = rule.decide(p, np.column_stack([f, 1 - f])).tolist()
    assert {0, 1} == set(expected)
    assert run(text, ["p", "f", "m"], [p, f, 1 - f]) == expected


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_quotes_a_hostile_name(dialect):
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1])
    first, mark = DIALECTS[dialect].quote
    text = rule.to_sql(p_y=f"p{mark}; DROP", p_group={"F": "f", "M": "m"}, dialect=dialect)
    escaped = "\\" + mark if DIALECTS[dialect].escapes else 2 * mark
    assert f"{first}p{escaped}; DROP{mark}" in text


def test_a_misspelt_column_is_an_error_in_sqlite_and_not_a_text():
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1])
    text = rule.to_sql(p_y="probabilty", p_group={"F": "f", "M": "m"}, dialect="sqlite")
    with pytest.raises(sqlite3.OperationalError, match="no such column: probabilty"):
        run(text, ["p", "f", "m"], np.ones((3, 1)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dialect": "cobol"}, "Unknown dialect"),
        ({"output": "both"}, "output must be"),
        ({"p_group": {"F": "f"}}, "must have a column for each"),
        ({"p_group": ["f", "m"]}, "p_group must be a dict"),
        ({"p_group": {"race": {"a": "b"}}}, "no columns for the attribute 'sex'"),
        ({"p_y": ""}, "cannot be the name"),
        ({"p_y": "a\x00b"}, "cannot be the name"),
        ({"p_y": "half a pair \ud800"}, "cannot be written in UTF-8"),
        ({"p_y": 3}, "must be the name"),
        ({"p_y": "${env:HOME}", "dialect": "spark"}, "rename the column"),
    ],
)
def test_what_cannot_be_written_is_refused(options, message):
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1])
    with pytest.raises(InputError, match=message):
        rule.to_sql(**{"p_y": "p", "p_group": {"F": "f", "M": "m"}, **options})


@settings(max_examples=60)
@given(labels=st.lists(hostile_texts(), min_size=2, max_size=2, unique=True))
def test_sqlite_gives_back_every_label_that_can_be_written(labels):
    assert run(decide_by(labels, "sqlite"), ["p", "f", "m"], np.array([[0.1, 0.9], [0.5, 0.5], [0.5, 0.5]])) == labels


def read_bigquery_literal(text):
    """Return what a quoted BigQuery text stands for, by the rules of its manual; it ends where the text ends."""
    mark, found, signs = text[0], "", iter(text[1:-1])
    assert text[-1] == mark
    for sign in signs:
        assert sign not in (mark, "\n", "\r")
        if sign == "\\":
            sign = {"n": "\n", "r": "\r", "\\": "\\", "'": "'", "`": "`"}[next(signs)]
        found += sign
    return found


@settings(max_examples=60)
@given(text=hostile_texts())
def test_bigquery_texts_and_names_read_back(text):
    spelling = DIALECTS["bigquery"]
    assert read_bigquery_literal(spelling.label(text)) == text
    if text:
        assert read_bigquery_literal(spelling.name(text)) == text


def test_postgres_literals_do_not_depend_on_its_settings():
    spelling = DIALECTS["postgres"]
    assert spelling.label("it's") == "'it''s'"
    assert spelling.label("x\\' OR 1=1 -- ") == "E'x\\\\'' OR 1=1 -- '"
    assert spelling.name('a"b\\') == '"a""b\\"'


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("label", ["a\x00b", "half a pair \ud800", float("nan"), float("inf"), None, b"yes", (1, 2)])
def test_labels_that_no_engine_can_hold_are_refused(dialect, label):
    with pytest.raises(InputError, match=r"cannot be written in SQL|must be one label"):
        decide_by(["no", label], dialect)
