"""A mixture's SQL in DuckDB, SQLite and PostgreSQL's spelling, against Python: every chance, lot and decision."""

from __future__ import annotations

import sqlite3

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.rules.lots import LARGEST_KEY, PRIME
from evenhand.rules.lots_sql import WHOLE_NUMBERS
from evenhand.rules.sql import DIALECTS

OUTPUTS = ("decision", "expected_decision", "lot")
KEYS = [0, 1, 17, 2**31 - 2, 2**31 - 1, 2**31, 10**15, 10**18, LARGEST_KEY]
TEXTS = [
    "0",
    "17",
    "017",
    " 17",
    "",
    "-1",
    "customer 17",
    "ünï",
    "4611686018427387903",
    "4611686018427387904",
    "9" * 25,
]


def mixture_of(seed=0, criterion="eo", labels=("no", "it's yes")):
    rng = np.random.default_rng(seed)
    made = {"groups": {"sex": ("F", "M")}, "priors": rng.dirichlet(np.ones(4)).reshape(2, 2), "classes": labels}
    k = 2 if criterion == "eo" else 1
    rules = tuple(eh.Rule.from_criterion(criterion, z=0.1 * rng.normal(size=k), **made) for _ in range(3))
    return eh.Mixture(rules, (0.1, 0.2, 0.7))


def rows_of(seed, n=300):
    """Return random rows, some of them a little over the edge of [0, 1], as arrays and as a table."""
    rng = np.random.default_rng(seed)
    p, joint = rng.random(n), rng.dirichlet(np.ones(4), n)
    p[:2], joint[0] = (1.0 + 5e-7, -5e-7), (1.0 + 5e-7, 0.0, 0.0, 0.0)
    columns = dict(zip(("p", "f0", "m0", "f1", "m1"), (p, *joint.T), strict=True))
    return p, joint.reshape(n, 2, 2), columns


def spelling_of(mixture):
    cells = [(label, group) for label in mixture.classes for group in ("F", "M")]
    return {"p_y": "p", "p_group": dict(zip(cells, ("f0", "m0", "f1", "m1"), strict=True))}


def expected_of(mixture, p, joint, key):
    return [
        mixture.decide(p, joint, key=key).tolist(),
        mixture.expected_decision(p, joint).tolist(),
        mixture.lots(p, joint, key=key).tolist(),
    ]


def in_duckdb(texts, table):
    found = duckdb.from_arrow(table).project(", ".join(f"{text} AS c{k}" for k, text in enumerate(texts)))
    return [column.to_pylist() for column in found.to_arrow_table().columns]


def in_sqlite(texts, columns):
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t ({', '.join(columns)})")
    rows = list(zip(*(list(values) for values in columns.values()), strict=True))
    connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(columns))})", rows)
    return [list(c) for c in zip(*connection.execute(f"SELECT {', '.join(texts)} FROM t ORDER BY rowid"), strict=True)]


@pytest.mark.parametrize("criterion", ["dp", "eo"])
@pytest.mark.parametrize("keys", ["numbers", "texts", None])
def test_duckdb_draws_and_decides_as_python_does(criterion, keys):
    mixture = mixture_of(1, criterion)
    p, joint, columns = rows_of(2)
    key = {"numbers": np.resize(KEYS, len(p)), "texts": np.resize(TEXTS, len(p)), None: None}[keys]
    table = pa.table(columns if key is None else {**columns, "id": key})
    options = {"key": None if key is None else "id", "key_kind": "text" if keys == "texts" else "number"}
    texts = [mixture.to_sql(**spelling_of(mixture), **options, dialect="duckdb", output=o) for o in OUTPUTS]
    assert in_duckdb(texts, table) == expected_of(mixture, p, joint, key)


@pytest.mark.parametrize("keys", [True, False])
def test_sqlite_draws_and_decides_as_python_does(keys):
    mixture = mixture_of(3)
    p, joint, columns = rows_of(4)
    key = np.resize(KEYS, len(p)) if keys else None
    texts = [
        mixture.to_sql(**spelling_of(mixture), key="id" if keys else None, dialect="sqlite", output=o) for o in OUTPUTS
    ]
    columns = {name: values.tolist() for name, values in columns.items()} | ({"id": key.tolist()} if keys else {})
    assert in_sqlite(texts, columns) == expected_of(mixture, p, joint, key)


def test_the_standards_arithmetic_is_right_whatever_an_engine_rounds():
    """DuckDB divides whole numbers as double precision, where the standard's spelling is only just right."""
    mixture = mixture_of(5)
    p, joint, columns = rows_of(6)
    key = np.resize(KEYS, len(p))
    text = mixture.to_sql(**spelling_of(mixture), key="id", dialect="ansi", output="lot")
    (found,) = in_duckdb([text], pa.table({**columns, "id": key}))
    assert found == mixture.lots(p, joint, key=key).tolist()


def test_a_key_that_is_none_is_decided_null():
    mixture = mixture_of(7)
    options = {**spelling_of(mixture), "key": "id"}
    for key, kind in (([None, -1, LARGEST_KEY + 1, 5], "number"), ([None, "a"], "text")):
        n = len(key)
        columns = dict.fromkeys(("p", "f0", "m0", "f1", "m1"), [0.25] * n) | {"id": pa.array(key)}
        texts = [mixture.to_sql(**options, key_kind=kind, dialect="duckdb", output=o) for o in OUTPUTS]
        decided, chance, lot = in_duckdb(texts, pa.table(columns))
        assert [value is None for value in decided] == [value is None for value in lot] == [True] * (n - 1) + [False]
        assert None not in chance
    texts = [mixture.to_sql(**options, dialect="sqlite")]
    columns = dict.fromkeys(("p", "f0", "m0", "f1", "m1"), [0.25] * 4) | {"id": ["17", 1.5, None, 17]}
    assert [value is None for value in in_sqlite(texts, columns)[0]] == [True, True, True, False]
    bad = {name: [float("nan"), 1.1] for name in ("p", "f0", "m0", "f1", "m1")} | {"id": [1, 2]}
    texts = [mixture.to_sql(**options, dialect="duckdb", output=o) for o in OUTPUTS]
    assert in_duckdb(texts, pa.table(bad)) == [[None, None]] * 3


def test_one_rule_needs_no_lot():
    rule = mixture_of(8).rules[0]
    alone = eh.Mixture((rule,), (1.0,))
    p, joint, columns = rows_of(9)
    text = alone.to_sql(**spelling_of(alone), key="id", dialect="duckdb")
    (decided,) = in_duckdb([text], pa.table({**columns, "id": np.arange(len(p))}))
    assert decided == rule.decide(p, joint).tolist() == alone.decide(p, joint).tolist()


@pytest.mark.parametrize("dialect", ["ansi", "sqlite"])
def test_a_dialect_without_md5_refuses_text_keys(dialect):
    with pytest.raises(eh.InputError, match="MD5"):
        mixture_of().to_sql(**spelling_of(mixture_of()), key="id", key_kind="text", dialect=dialect)


def test_what_cannot_be_written_is_refused():
    mixture = mixture_of()
    spelling = spelling_of(mixture)
    for options, says in (
        ({"output": "margin"}, "output"),
        ({"key": 5}, "key"),
        ({"key": "id", "key_kind": "bytes"}, "key_kind"),
        ({"dialect": "basic"}, "dialect"),
    ):
        with pytest.raises(eh.InputError, match=says):
            mixture.to_sql(**spelling, **options)


def test_every_dialect_draws_lots_or_says_why_not():
    mixture = mixture_of()
    for dialect in DIALECTS:
        if dialect in WHOLE_NUMBERS:
            assert str(PRIME) in mixture.to_sql(**spelling_of(mixture), key="id", dialect=dialect)
        else:
            with pytest.raises(eh.InputError, match="cannot compute random draws"):
                mixture.to_sql(**spelling_of(mixture), key="id", dialect=dialect)
        assert mixture.to_sql(**spelling_of(mixture), dialect=dialect, output="expected_decision")
