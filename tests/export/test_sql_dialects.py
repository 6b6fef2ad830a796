"""Every dialect as sqlglot reads it: one expression, the names and labels that were meant, the decisions of Python."""

from __future__ import annotations

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from evenhand.errors import InputError
from evenhand.rules.sql import DIALECTS
from scored_rows import HOSTILE, HOSTILE_NAMES, decide_by, hostile_texts, random_case

# What sqlglot calls a dialect, where it has another name for it.
KNOWN = {"ansi": "", "mariadb": "mysql"}
# BigQuery has no columns with a point in their names, and sqlglot takes the part before it for a table.
NAMES = [name for name in HOSTILE_NAMES if name != "a.b"]


def parsed(text, dialect):
    """Return the one statement that a text is, as a tree."""
    (found,) = sqlglot.parse(f"SELECT {text} AS c", read=KNOWN.get(dialect, dialect))
    return found


def value(node):
    """Return the text that an expression of literals stands for."""
    if isinstance(node, exp.Literal | exp.National | exp.ByteString):
        return node.this
    if isinstance(node, exp.HexString):
        return bytes.fromhex(node.this).decode()
    if isinstance(node, exp.Paren | exp.Cast):
        return value(node.this)
    if isinstance(node, exp.Add | exp.DPipe):
        return value(node.left) + value(node.right)
    if isinstance(node, exp.Chr) or node.name == "NCHAR":
        return chr(int(node.expressions[0].this))
    if isinstance(node, exp.HexDecodeString):
        return bytes.fromhex(node.this.this).decode()
    if node.name == "CONVERT":
        return value(node.expressions[0])
    raise AssertionError(repr(node))


def labels_of(tree):
    """Return the two labels that a decision may have."""
    inner = next(case for case in tree.find_all(exp.Case) if case.args.get("default"))
    return [value(inner.args["default"]), value(inner.args["ifs"][0].args["true"])]


def columns_of(tree):
    return {column.name for column in tree.find_all(exp.Column)}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_labels_are_read_back_and_nothing_else_is_run(dialect):
    crafted = ["x\\' OR 1=1; DROP TABLE rows -- ", "'; DROP TABLE rows; -- \\"]
    tree = parsed(decide_by(crafted, dialect), dialect)
    assert labels_of(tree) == crafted
    assert columns_of(tree) == {"p", "f", "m"}
    for text in HOSTILE:
        assert value(parsed(DIALECTS[dialect].label(text), dialect).selects[0].this) == text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_decisions_are_those_of_python_when_duckdb_runs_them(dialect):
    for seed, start in enumerate((0, 4, 8, 12)):
        names = NAMES[start : start + 5]
        rule, table, spelling, p, joint = random_case(seed, names, ("dp", "eo", "eop", "eo")[seed])
        tree = parsed(rule.to_sql(**spelling, dialect=dialect), dialect)
        assert columns_of(tree) == set(names)
        text = tree.selects[0].this.sql(dialect="duckdb", identify=True)
        found = duckdb.from_arrow(table).project(f"{text} AS c").fetchall()
        # The other label has a quote, which some dialects write as bytes that DuckDB shows otherwise than they do.
        assert [row[0] == "yes" for row in found] == (rule.decide(p, joint) == "yes").tolist()


@settings(max_examples=100)
@given(dialect=st.sampled_from(sorted(DIALECTS)), text=hostile_texts().filter(bool))
def test_names_and_labels_are_read_back_or_refused(dialect, text):
    spelling = DIALECTS[dialect]
    assert value(parsed(spelling.label(text), dialect).selects[0].this) == text
    if any(signs in text for signs in spelling.forbidden):
        with pytest.raises(InputError, match="rename the column"):
            spelling.name(text)
    elif not (dialect == "bigquery" and "." in text):
        assert columns_of(parsed(spelling.name(text), dialect)) == {text}


def test_a_label_never_has_the_signs_that_a_client_or_a_server_replaces():
    for dialect, text in (("tsql", "a\\\nb"), ("tsql", "a\nGO\nb"), ("tsql", "$(HOME)"), ("snowflake", "&var")):
        spelt = DIALECTS[dialect].label(text)
        assert not any(signs in spelt for signs in ("\n", "\r", "$(", "&")), spelt
        assert value(parsed(spelt, dialect).selects[0].this) == text


def test_redshift_has_no_backslash_whose_meaning_depends_on_a_setting():
    assert DIALECTS["redshift"].label("a\\'; DROP TABLE x --") == "('a' || CHR(92) || '''; DROP TABLE x --')"


def test_booleans_of_sql_server_are_bits():
    assert "THEN CAST(1 AS BIT) ELSE CAST(0 AS BIT)" in decide_by([False, True], "tsql")
