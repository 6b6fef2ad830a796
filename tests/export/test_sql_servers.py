"""The rule's SQL in MariaDB and in ClickHouse, against Python, to the bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import evenhand as eh
from evenhand.rules.sql import DIALECTS
from scored_rows import CRITERIA, HOSTILE, HOSTILE_NAMES, decide_by, random_case

ROWS = [(0.1, 0.5, 0.5), (0.9, 0.5, 0.5)]
DP = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.25])


def values(rows):
    return ", ".join("(" + ", ".join("NULL" if v is None else repr(float(v)) for v in row) + ")" for row in rows)


def in_mariadb(server, names, rows, texts, charset="utf8mb4"):
    """Return a row for each of the table's, with the hexadecimal digits of what each expression gives."""
    quoted = list(map(DIALECTS["mariadb"].name, names))
    spelt = ", ".join(f"HEX(CAST({text} AS CHAR CHARACTER SET utf8mb4))" for text in texts)
    found = server.query(
        f"""CREATE TEMPORARY TABLE r (i INT, {", ".join(f"{name} DOUBLE" for name in quoted)});
        INSERT INTO r VALUES {values((i, *row) for i, row in enumerate(rows))};
        SELECT {spelt} FROM r ORDER BY i;""",
        charset,
    )
    return [[None if cell == "NULL" else bytes.fromhex(cell).decode() for cell in row] for row in found]


def in_clickhouse(session, names, rows, texts):
    """Return a row for each of the table's, with what each expression gives."""
    quoted = list(map(DIALECTS["clickhouse"].name, names))
    session.query("DROP TABLE IF EXISTS r")
    columns = ", ".join(f"{name} Nullable(Float64)" for name in quoted)
    session.query(f"CREATE TABLE r (i Int64, {columns}) ENGINE = Memory")
    session.query(f"INSERT INTO r VALUES {values((i, *row) for i, row in enumerate(rows))}")
    spelt = ", ".join(f"{text} AS c{k}" for k, text in enumerate(texts))
    found = session.query(f"SELECT {spelt} FROM r ORDER BY i", "ArrowTable")
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def cases(criterion):
    for seed, start in enumerate((0, 5, 10, 13)):
        names = HOSTILE_NAMES[start : start + 5]
        rule, table, spelling, p, joint = random_case(seed, names, criterion)
        yield rule, names, list(zip(*table.to_pydict().values(), strict=True)), spelling, p, joint


@pytest.mark.parametrize("criterion", CRITERIA)
def test_mariadb_decides_every_row_as_python_does(mariadb, criterion):
    for rule, names, rows, spelling, p, joint in cases(criterion):
        texts = [rule.to_sql(**spelling, dialect="mariadb", output=output) for output in ("margin", "decision")]
        found = in_mariadb(mariadb, names, rows, texts)
        assert [float(margin) for margin, _ in found] == rule.decision_function(p, joint).tolist()
        assert [label for _, label in found] == rule.decide(p, joint).tolist()


@pytest.mark.parametrize("criterion", CRITERIA)
def test_clickhouse_decides_every_row_as_python_does(clickhouse, criterion):
    for rule, names, rows, spelling, p, joint in cases(criterion):
        texts = [rule.to_sql(**spelling, dialect="clickhouse", output=output) for output in ("margin", "decision")]
        found = in_clickhouse(clickhouse, names, rows, texts)
        assert [margin for margin, _ in found] == rule.decision_function(p, joint).tolist()
        assert [label for _, label in found] == rule.decide(p, joint).tolist()


@pytest.mark.parametrize("charset", ["utf8mb4", "latin1"])
@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES"])
def test_mariadb_gives_back_every_label_whatever_its_settings_are(mariadb, mode, charset):
    mariadb.query(f"SET GLOBAL sql_mode = '{mode}'")
    texts = [decide_by(pair, "mariadb") for pair in itertools.pairwise(HOSTILE)]
    negative, positive = in_mariadb(mariadb, ["p", "f", "m"], ROWS, texts, charset)
    assert negative == HOSTILE[:-1]
    assert positive == HOSTILE[1:]


@pytest.mark.parametrize("collation", ["utf8mb4_unicode_ci", "utf8mb4_bin", "latin1_swedish_ci"])
def test_labels_of_mariadb_agree_with_every_collation(mariadb, collation):
    names = f"SET NAMES {collation.split('_')[0]} COLLATE {collation};"
    for labels in (["plain", "back\\slash"], ["ünï", "plain"], ["ünï", "\\"]):
        table = "(SELECT 0.9e0 AS p, 0.5e0 AS f, 0.5e0 AS m) AS r"
        assert mariadb.query(
            f"{names} SELECT HEX(CAST({decide_by(labels, 'mysql')} AS CHAR CHARSET utf8mb4)) FROM {table}"
        ) == [[labels[1].encode().hex().upper()]]


def test_clickhouse_gives_back_every_label(clickhouse):
    texts = [decide_by(pair, "clickhouse") for pair in itertools.pairwise(HOSTILE)]
    negative, positive = in_clickhouse(clickhouse, ["p", "f", "m"], ROWS, texts)
    assert list(negative) == HOSTILE[:-1]
    assert list(positive) == HOSTILE[1:]


def test_a_crafted_label_does_not_run_in_mariadb(mariadb):
    mariadb.query("CREATE TABLE victim (x INT); INSERT INTO victim VALUES (1)")
    for mode in ("", "NO_BACKSLASH_ESCAPES"):
        mariadb.query(f"SET GLOBAL sql_mode = '{mode}'")
        for label in ("'; DROP TABLE victim; -- ", "\\'; DROP TABLE victim; -- ", "\\'; DROP TABLE victim; #"):
            found = in_mariadb(mariadb, ["p", "f", "m"], ROWS, [decide_by(["no", label], "mariadb")])
            assert found == [["no"], [label]]
    assert mariadb.query("SELECT count(*) FROM victim") == [["1"]]
    mariadb.query("DROP TABLE victim")


def test_what_is_null_or_over_the_edge_is_decided_as_in_python(mariadb, clickhouse):
    rows = [(0.75 + 5e-8, 1.0 + 5e-7, 0.0), (0.25 - 5e-8, -5e-7, 1.0), (1.0 + 5e-7, 1.0, 0.0)]
    expected = DP.decide(np.array(rows)[:, 0], np.array(rows)[:, 1:]).tolist()
    bad = [(None, 0.5, 0.5), (1.1, 0.5, 0.5), (0.9, 1.0009, 0.0)]
    for rest in ("m", None):
        texts = {
            name: [DP.to_sql(p_y="p", p_group={"F": "f", "M": rest}, dialect=name)] for name in ("mysql", "clickhouse")
        }
        in_maria = in_mariadb(mariadb, ["p", "f", "m"], rows + bad, texts["mysql"])
        assert [None if label is None else int(label) for (label,) in in_maria] == [*expected, None, None, None]
        in_click = in_clickhouse(clickhouse, ["p", "f", "m"], rows + bad, texts["clickhouse"])
        assert [label for (label,) in in_click] == [*expected, None, None, None]


@pytest.mark.parametrize("labels", [(False, True), (-1, 1), (0.25, 0.1), (10**12, 3)])
def test_labels_that_are_no_texts_come_back(mariadb, clickhouse, labels):
    assert in_clickhouse(clickhouse, ["p", "f", "m"], ROWS, [decide_by(labels, "clickhouse")]) == [(x,) for x in labels]
    found = in_mariadb(mariadb, ["p", "f", "m"], ROWS, [decide_by(labels, "mariadb")])
    assert [float(label) for (label,) in found] == [float(label) for label in labels]


def test_a_misspelt_column_is_an_error(mariadb, clickhouse):
    for name in ("mariadb", "clickhouse"):
        text = DP.to_sql(p_y="probabilty", p_group={"F": "f", "M": "m"}, dialect=name)
        with pytest.raises(RuntimeError, match="probabilty"):
            in_mariadb(mariadb, ["p", "f", "m"], ROWS, [text]) if name == "mariadb" else in_clickhouse(
                clickhouse, ["p", "f", "m"], ROWS, [text]
            )
