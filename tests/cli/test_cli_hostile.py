"""Whatever a file holds, the command answers with an exit code and at most one message, never a traceback."""

from __future__ import annotations

import csv
import datetime
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand import origins, tables
from evenhand.cli import main
from evenhand.cli.columns import match_columns
from evenhand.errors import InputError

AUDIT = ["--label", "y", "--score", "p", "--sensitive", "sex", "--criterion", "eo"]
FIT = ["--label", "y", "--score", "p", "--sensitive", "sex", "--group-score", "F=p_f", "-o", "learnt.json"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors={"sex": [0.5, 0.5]}, z=[0.1])
    text = json.loads(rule.to_json())
    text["learned_from"] = {"columns": {"score": "p", "groups": {"sex": {"kind": "group", "columns": ["p_f", None]}}}}
    (tmp_path / "rule.json").write_text(json.dumps(text))
    return tmp_path


def good(rows=40):
    return {
        "y": [0, 1] * (rows // 2),
        "sex": ["F", "F", "M", "M"] * (rows // 4),
        "p": np.linspace(0.05, 0.95, rows).tolist(),
        "p_f": np.linspace(0.9, 0.1, rows).tolist(),
    }


def answer(arguments, capsys, codes=(0, 1, 2, 3)):
    code = main(arguments)
    shown = capsys.readouterr()
    assert code in codes, (code, arguments, shown.err[:500])
    for sign in ("Traceback", "unexpected", "bug in evenhand"):
        assert not shown.err.count(sign), shown.err[:500]
    assert len(shown.err) < 5000
    for sign in shown.out + shown.err:
        assert sign.isprintable() or sign == "\n", (arguments, sign)
    if code == 2:
        assert shown.err.startswith("evenhand: ")
    return shown.err


def every_command(name, capsys, codes=(0, 1, 2, 3)):
    suffix = "." + name.rsplit(".", 1)[-1]
    target = suffix if suffix in (".csv", ".parquet", ".arrow", ".feather") else ".csv"
    return [
        answer(["audit", name, *AUDIT], capsys, codes),
        answer(["fit", name, *FIT], capsys, codes),
        answer(["apply", "rule.json", name, "-o", f"out{target}"], capsys, codes),
        answer(["explain", "rule.json", name, "--at", "0"], capsys, codes),
    ]


def change(column, value, rows=40, at=3):
    data = good(rows)
    data[column] = list(data[column])
    data[column][at] = value
    return data


VALUES = {
    "nan score": change("p", math.nan),
    "infinite score": change("p", math.inf),
    "negative score": change("p", -0.1),
    "score above 1": change("p", 1.5),
    "huge score": change("p", 1e308),
    "no score": change("p", None),
    "nan group score": change("p_f", math.nan),
    "group score above 1": change("p_f", 7.0),
    "no label": change("y", None),
    "third label": change("y", 2),
    "no group": change("sex", None),
    "new group": change("sex", "X"),
    "one label": {**good(), "y": [1] * 40},
    "no positive label": {**good(), "y": [0] * 40},
    "text labels": {**good(), "y": ["no", "yes"] * 20},
    "one group": {**good(), "sex": ["F"] * 40},
    "groups are numbers": {**good(), "sex": [1, 1, 2, 2] * 10},
    "groups are lists": {**good(), "sex": [[1], [2]] * 20},
    "groups are dates": {**good(), "sex": [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)] * 20},
    "groups are bytes": {**good(), "sex": [b"\xff", b"\xfe"] * 20},
    "every row its own group": {**good(), "sex": list(map(str, range(40)))},
    "scores are text": {**good(), "p": ["high"] * 40},
    "scores are truth values": {**good(), "p": [True, False] * 20},
    "scores are constant": {**good(), "p": [0.5] * 40, "p_f": [0.5] * 40},
    "scores are lists": {**good(), "p": [[0.5]] * 40},
    "one row": {name: column[:1] for name, column in good().items()},
    "no rows": {name: pa.array(column[:0], pa.array(column).type) for name, column in good().items()},
    "no columns": {},
    "all null": dict.fromkeys(good(), pa.nulls(40)),
    "strange names": {"p\n\x1b[31m": [0.5], "": [1], "y": [1]},
    "required columns": pa.table(good()).cast(
        pa.schema([field.with_nullable(False) for field in pa.table(good()).schema])
    ),
    "dictionaries": {**good(), "sex": pa.array(good()["sex"]).dictionary_encode()},
    "an escape sequence": {**good(), "sex": ["F\x1b[2J", "F\x1b[2J", "M", "M"] * 10},
}


@pytest.mark.filterwarnings("ignore:p_y has only the values 0 and 1:evenhand.errors.EvenhandWarning")
@pytest.mark.parametrize("case", VALUES)
def test_strange_values_are_answered(case, place, capsys):
    table = pa.table(VALUES[case])
    pq.write_table(table, "t.parquet")
    pa.feather.write_feather(table, "t.feather")
    every_command("t.parquet", capsys)
    every_command("t.feather", capsys)
    if not any(pa.types.is_nested(kind) or pa.types.is_binary(kind) for kind in table.schema.types):
        pa.csv.write_csv(table, "t.csv")
        every_command("t.csv", capsys)


FILES = {
    "empty": b"",
    "one byte": b"x",
    "only a header": b"y,sex,p,p_f\n",
    "not utf-8": b"y,sex,p,p_f\n1,\xff\xfe,0.5,0.5\n0,M,0.5,0.5\n",
    "header not utf-8": b"y,\xff,p,p_f\n1,F,0.5,0.5\n",
    "utf-16": "y,sex,p,p_f\n1,F,0.5,0.5\n".encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbfy,sex,p,p_f\n1,F,0.5,0.5\n0,M,0.5,0.5\n",
    "ragged": b"y,sex,p,p_f\n1,F,0.5\n0,M,0.5,0.5,0.7\n",
    "twice the same column": b"y,sex,p,p,p_f\n1,F,0.5,0.5,0.5\n0,M,0.5,0.5,0.5\n",
    "open quote": b'y,sex,p,p_f\n1,"F,0.5,0.5\n0,M,0.5,0.5\n',
    "nul bytes": b"y,sex,p,p_f\n1,F\x00,0.5,0.5\n0,M,0.5,0.5\n",
    "a long line": b"y,sex,p,p_f\n1," + b"F" * 300_000 + b",0.5,0.5\n0,M,0.5,0.5\n",
    "a wide header": b",".join(b"c%d" % i for i in range(20_000)) + b"\n",
    "windows lines": b"y,sex,p,p_f\r\n1,F,0.5,0.4\r\n0,M,0.5,0.5\r\n1,F,0.6,0.5\r\n0,M,0.2,0.5\r\n",
    "semicolons": b"y;sex;p;p_f\n1;F;0.5;0.5\n",
    "huge numbers": b"y,sex,p,p_f\n" + b"9" * 400 + b",F,0.5,0.5\n0,M,1e999,0.5\n",
    "html": b"<html><body>404</body></html>",
    "late text": b"y,sex,p,p_f\n" + b"1,F,0.5,0.5\n0,M,0.4,0.5\n" * 50 + b"x,F,bad,0.5\n",
    "parquet inside": b"PAR1\x00\x00\x00\x00PAR1",
    "arrow inside": b"ARROW1\x00\x00\xff\xff\xff\xff",
    "old feather": b"FEA1\x00\x00\x00\x00FEA1",
}


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow"])
def test_strange_files_are_answered(case, name, place, capsys):
    (place / name).write_bytes(FILES[case])
    every_command(name, capsys)
    (place / "bad.json").write_bytes(FILES[case])
    answer(["apply", "bad.json", name, "-o", "o.csv"], capsys, codes=(2,))
    answer(["explain", "rule.json", "bad.json"], capsys, codes=(2,))
    answer(["audit", name, "--config", "bad.json"], capsys, codes=(2,))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow", "rule.json"])
def test_damaged_files_are_answered(name, place, capsys):
    """Cut off, overwritten and shuffled bytes: 60 kinds of damage of each format."""
    table = pa.table(good())
    pq.write_table(table, "t.parquet")
    pa.feather.write_feather(table, "t.arrow", compression="uncompressed")
    pa.csv.write_csv(table, "t.csv")
    whole = (place / name).read_bytes()
    generator = np.random.default_rng(sum(map(ord, name)))
    for attempt in range(60):
        damaged = bytearray(whole)
        if attempt % 3 == 0:
            damaged = damaged[: generator.integers(0, len(whole))]
        else:
            for position in generator.integers(0, len(whole), size=1 + attempt % 7):
                damaged[position] = generator.integers(0, 256)
        (place / name).write_bytes(bytes(damaged))
        if name == "rule.json":
            answer(["apply", name, "t.csv", "-o", "o.csv"], capsys)
            answer(["explain", name, "t.csv", "--at", "1"], capsys)
        else:
            answer(["audit", name, *AUDIT], capsys)
            answer(["apply", "rule.json", name, "-o", "o.parquet"], capsys)


ARGUMENTS = [
    [], ["nothing"], ["audit"], ["audit", "missing.csv", *AUDIT], ["audit", ".", *AUDIT],
    ["audit", "t.xlsx", *AUDIT], ["audit", "t.csv"], ["audit", "t.csv", "--sensitive", "sex"],
    ["audit", "t.csv", *AUDIT, "--tolerance", "much"],
    ["audit", "t.csv", *AUDIT, "--tolerance", "5"], ["audit", "t.csv", *AUDIT, "--tolerance", "inf"],
    ["audit", "t.csv", *AUDIT, "--criterion", "dp:5"], ["audit", "t.csv", *AUDIT, "--tolerance", "9" * 400],
    ["fit", "t.csv", *FIT, "--tolerance", "5"], ["frontier", "t.csv", *FIT[:-2], "--tolerances", "5"],
    ["frontier", "t.csv", *FIT[:-2], "--tolerance", "5"], ["demo", "--tolerance", "5"],
    ["fit", "t.csv", *FIT, "--tolerance", "5", "--engine", "duckdb"],
    ["fit", "t.csv", *FIT, "--tolerance", "5", "--features", "p"],
    ["audit", "t.csv", *AUDIT, "--report", "."], ["demo", "-o", "no/such/folder/r.html"], ["demo", "-o", "."],
    ["frontier", "t.csv", *FIT[:-2], "-o", "o.xlsx"], ["frontier", "t.csv", *FIT[:-2], "-o", "no/folder/o.csv"],
    ["fit", "t.csv", *FIT, "--card", "."], ["fit", "t.csv", *FIT, "--report", "no/such/folder/r.html"],
    ["datasets", "adult", "-o", "no/such/folder/a.csv"], ["explain", "rule.json", "s3://bucket/t.csv", "--at", "0"],
    ["audit", "t.csv", *AUDIT, "--tolerance", "-1"], ["audit", "t.csv", *AUDIT, "--tolerance", "nan"],
    ["audit", "t.csv", *AUDIT, "--confidence", "2"], ["audit", "t.csv", *AUDIT, "--threshold", "9"],
    ["audit", "t.csv", *AUDIT, "--criterion", "justice"], ["audit", "t.csv", *AUDIT, "--weight", "sex"],
    ["audit", "t.csv", *AUDIT, "--weight", "nothing"], ["audit", "t.csv", *AUDIT, "--pos-label", "7"],
    ["audit", "t.csv", *AUDIT, "--report", "no/such/folder/r.html"], ["audit", "t.csv", *AUDIT, "--config"],
    ["audit", "t.csv", *AUDIT, "--config", "none.toml"], ["audit", "t.csv", *AUDIT, "--decision", "y"],
    ["fit", "t.csv"], ["fit", "t.csv", *AUDIT], ["fit", "t.csv", *FIT, "--group-score", "F=p_f"],
    ["fit", "t.csv", *FIT, "--group-score", "M=nothing"], ["fit", "t.csv", *FIT, "--group-score", "nonsense"],
    ["fit", "t.csv", *FIT, "--joint-score", "1,F=p_f"], ["fit", "t.csv", *FIT, "--criterion", "eo"],
    ["fit", "t.csv", *FIT, "--search", "magic"], ["fit", "t.csv", *FIT, "--costs", "1", "-1"],
    ["fit", "t.csv", *FIT, "--confidence", "5"], ["fit", "t.csv", *FIT, "--test", "missing.csv"],
    ["fit", "t.csv", *FIT[:-1], "no/such/folder/rule.json"], ["fit", "t.csv", *FIT, "--features", "y"],
    ["apply", "rule.json", "t.csv"], ["apply", "rule.json", "t.csv", "-o", "o.xlsx"],
    ["apply", "rule.json", "t.csv", "-o", "no/such/folder/o.csv"], ["apply", "t.csv", "t.csv", "-o", "o.csv"],
    ["apply", "rule.json", "t.csv", "-o", "o.csv", "--score", "q"],
    ["apply", "rule.json", "t.csv", "-o", "o.csv", "--group-score", "X=p_f"],
    ["explain", "rule.json", "t.csv"], ["explain", "rule.json", "t.csv", "--at", "-1"],
    ["explain", "rule.json", "t.csv", "--at", "99999"], ["explain", "rule.json", "list.json"],
    ["explain", "rule.json", "mixed.json"], ["datasets", "nothing"], ["datasets", "zafar", "-o", "z.xlsx"],
    ["frontier", "t.csv", *FIT[:-2], "--tolerances", "-1"], ["reproduce", "nothing"], ["--debugg"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_wrong_arguments_are_answered(arguments, place, capsys):
    pa.csv.write_csv(pa.table(good()), "t.csv")
    (place / "list.json").write_text("[1, 2]")
    (place / "mixed.json").write_text('[{"p": 0.5, "p_f": 0.2}, {"p": "x", "p_f": {}}]')
    error = answer(arguments, capsys, codes=(0,) if not arguments else (2,))
    assert "bug in evenhand" not in error
    assert [found.name for found in place.iterdir() if found.name.endswith(".part")] == []


def test_an_output_that_fails_half_way_leaves_the_old_one(place, capsys):
    data = good(40)
    data["p"][39] = 2.0
    pa.csv.write_csv(pa.table(data), "t.csv")
    (place / "out.csv").write_text("precious")
    assert "row 39" in answer(["apply", "rule.json", "t.csv", "-o", "out.csv"], capsys, codes=(2,))
    assert (place / "out.csv").read_text() == "precious"
    assert [found.name for found in place.iterdir() if found.name.endswith(".part")] == []


def test_decisions_and_text_labels_can_be_audited(place, capsys):
    data = {**good(), "y": ["no", "yes"] * 20, "d": ["yes", "no"] * 20}
    pa.csv.write_csv(pa.table(data), "t.csv")
    arguments = [
        "audit",
        "t.csv",
        "--label",
        "y",
        "--decision",
        "d",
        "--sensitive",
        "sex",
        "--pos-label",
        "yes",
    ]
    answer(arguments, capsys, codes=(1, 3))
    assert "--pos-label" in answer(arguments[:-2], capsys, codes=(2,))
    answer(
        ["audit", "t.csv", "--decision", "d", "--sensitive", "sex", "--pos-label", "yes"],
        capsys,
        codes=(1, 3),
    )


def test_columns_are_found_whatever_signs_their_names_have():
    groups = {"a=b": ("x=1", "y,2"), "c": ("x=1", "z")}
    names = ["p", "p=q", "x", "1=p"]
    found = match_columns(["a=b:x=1=p=q", "z=x"], [], groups, (0, 1), names)
    assert found["a=b"].columns == ("p=q", None)
    assert found["c"].columns == (None, "x")
    with pytest.raises(InputError, match="two ways"):
        match_columns(["x=1=p"], [], groups, (0, 1), names)
    joint = match_columns([], ["no,F=p", "no,M=x", "yes,F=p=q"], {"s": ("F", "M")}, ("no", "yes"), names)
    assert joint["s"].joint
    assert joint["s"].columns == ("p", "x", "p=q", None)
    with pytest.raises(InputError, match="not complete"):
        match_columns([], ["no,F=p"], {"s": ("F", "M")}, ("no", "yes"), names)
    with pytest.raises(InputError, match="pass only one of them"):
        match_columns(["F=p"], ["no,F=p"], {"s": ("F", "M")}, ("no", "yes"), names)


def write(name, **changes):
    pq.write_table(pa.table({**good(), **changes}), name)


def test_missing_groups_are_answered_with_the_commands_own_option(place, capsys):
    write("t.parquet", sex=[None, *good()["sex"][1:]])
    for arguments in (["audit", "t.parquet", *AUDIT], ["fit", "t.parquet", *FIT]):
        said = answer(arguments, capsys, codes=(2,))
        assert "set --ignore-missing" in said
        assert "missing='ignore'" not in said


def test_a_column_of_numbers_is_refused_as_a_column_of_groups(place, capsys):
    write("t.parquet", sex=np.linspace(0.0, 1.0, 40).tolist())
    for arguments in (["audit", "t.parquet", *AUDIT], ["fit", "t.parquet", *FIT]):
        assert "40 different values in 40 rows" in answer(arguments, capsys, codes=(2,))


def test_a_label_column_without_labels_is_named(place, capsys):
    write("t.parquet", y=[math.nan] * 40)
    for arguments in (["audit", "t.parquet", *AUDIT], ["fit", "t.parquet", *FIT]):
        assert "The column 'y' has no label in any row" in answer(arguments, capsys, codes=(2,))


def test_explain_says_how_to_get_the_rule_of_a_classifier(place, capsys):
    (place / "m.skops").write_bytes(b"PK\x03\x04\xff")
    said = answer(["explain", "m.skops", "row.json"], capsys, codes=(2,))
    assert "m.skops contains a classifier" in said
    assert ".rule_.to_json()" in said


def spellings(place, name):
    """Give several ways to name one file."""
    (place / f"soft-{name}").symlink_to(name)
    (place / f"hard-{name}").hardlink_to(place / name)
    return [name, f"./{name}", str(place / name), f"soft-{name}", f"hard-{name}", f"file://{place / name}"]


FRONTIER = [*FIT[:-2], "--tolerances", "0.2"]
TRAIN = ["--label", "y", "--sensitive", "sex", "--features", "p"]
OVERWRITES = {
    "fit -o": (["fit", "t.parquet", *FIT[:-2], "-o"], ["t.parquet", "options.toml"]),
    "fit --report": (["fit", "t.parquet", *FIT, "--report"], ["t.parquet"]),
    "fit --card": (["fit", "t.parquet", *FIT, "--card"], ["t.parquet"]),
    "fit --test": (["fit", "t.parquet", *FIT[:-2], "--test", "other.parquet", "-o"], ["other.parquet"]),
    "fit --engine": (["fit", "t*.parquet", *FIT[:-2], "--engine", "duckdb", "-o"], ["t.parquet"]),
    "fit --features -o": (["fit", "t.parquet", *TRAIN, "-o"], ["t.parquet"]),
    "fit --features --card": (["fit", "t.parquet", *TRAIN, "-o", "m.skops", "--card"], ["t.parquet"]),
    "audit --report": (["audit", "t.parquet", *AUDIT, "--report"], ["t.parquet", "options.toml"]),
    "frontier -o": (["frontier", "t.parquet", *FRONTIER, "-o"], ["t.parquet"]),
    "frontier --report": (["frontier", "t.parquet", *FRONTIER, "--report"], ["t.parquet"]),
    "apply -o": (["apply", "rule.json", "t.parquet", "-o"], ["t.parquet", "rule.json"]),
    "apply --engine": (["apply", "rule.json", "t*.parquet", "--engine", "duckdb", "-o"], ["t.parquet", "rule.json"]),
    "demo -o": (["demo", "-o"], ["options.toml"]),
    "datasets -o": (["datasets", "adult", "-o"], ["options.csv"]),
}


@pytest.mark.parametrize("case", OVERWRITES)
def test_no_input_is_overwritten_by_any_output(case, place, capsys):
    command, inputs = OVERWRITES[case]
    write("t.parquet")
    write("other.parquet")
    (place / "options.toml").write_text("")
    (place / "options.csv").write_text("")
    for name in inputs:
        before = (place / name).read_bytes()
        there = sorted(path.name for path in place.iterdir())
        for output in (spelt := spellings(place, name)):
            config = ["--config", name] if name.startswith("options") else []
            said = answer([*command, output, *config], capsys, codes=(2,))
            assert "another name, so that it is kept" in said
            assert (place / name).read_bytes() == before
        assert sorted(path.name for path in place.iterdir()) == sorted({*there, *spelt[3:5]})


TWO_OUTPUTS = [
    ["fit", "t.parquet", *FIT[:-1], "x", "--report", "x"],
    ["fit", "t.parquet", *FIT[:-1], "x", "--card", "./x"],
    ["fit", "t.parquet", *FIT, "--report", "x", "--card", "folder/../x"],
    ["fit", "t.parquet", *TRAIN, "-o", "x.json", "--report", "x.json"],
    ["fit", "t.parquet", *TRAIN, "-o", "x.json", "--card", "link"],
    ["frontier", "t.parquet", *FRONTIER, "-o", "x.csv", "--report", "x.csv"],
]


@pytest.mark.parametrize("arguments", TWO_OUTPUTS, ids=" ".join)
def test_two_outputs_are_not_written_to_one_file(arguments, place, capsys):
    write("t.parquet")
    (place / "folder").mkdir()
    (place / "link").symlink_to("x.json")
    there = sorted(path.name for path in place.iterdir())
    assert "give them different names" in answer(arguments, capsys, codes=(2,))
    assert sorted(path.name for path in place.iterdir()) == there


def test_nothing_is_read_before_the_paths_are_checked(place, capsys, monkeypatch):
    """The table is not even there: that is said of the output first."""
    said = answer(["fit", "none.parquet", *FIT[:-1], "none.parquet"], capsys, codes=(2,))
    assert "--output none.parquet is the table that is read" in said


CONTROLS = {
    "escape": "\x1b[31m", "bell": "\x07", "return": "\r", "line feed": "\nevenhand: all verdicts pass",
    "delete": "\x7f", "C1": "\x9b31m",
    "next line": "\x85", "override": "\u202e", "isolate": "\u2066", "invisible": "\u200b",
    "line separator": "\u2028", "title": "\x1b]0;x\x07", "backspace": "\b\b\b",
}  # fmt: skip


@pytest.mark.parametrize("case", CONTROLS)
@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_names_from_data_never_steer_the_terminal(case, name, place, capsys):
    """Names of columns, groups and labels, in results, in errors, in JSON, in the card and in the report."""
    bad = CONTROLS[case]
    names = {"y": f"y{bad}", "sex": f"sex{bad}", "p": f"p{bad}", "p_f": f"p_f{bad}"}
    data = {names[key]: values for key, values in good(400).items()}
    data[names["sex"]] = [f"F{bad}", f"F{bad}", f"M{bad}", f"M{bad}"] * 100
    data[names["y"]] = [f"no{bad}", f"yes{bad}"] * 200
    (pq.write_table if name.endswith("parquet") else pa.feather.write_feather)(pa.table(data), name)
    truth = ["--label", names["y"], "--pos-label", f"yes{bad}", "--sensitive", names["sex"], "--score", names["p"]]
    fit = [*truth, "--group-score", f"F{bad}={names['p_f']}"]
    outputs = ["-o", "learnt.json", "--card", "card.md", "--report", "report.html"]
    answer(["audit", name, *truth], capsys, codes=(0, 1, 3))
    answer(["audit", name, *truth, "--json"], capsys, codes=(0, 1, 3))
    answer(["fit", name, *fit, *outputs], capsys, codes=(0,))
    answer(["frontier", name, *fit, "--tolerances", "0.2", "--json"], capsys, codes=(0,))
    answer(["explain", "learnt.json", name, "--at", "0"], capsys, codes=(0,))
    answer(["explain", "learnt.json", name, "--at", "0", "--json"], capsys, codes=(0,))
    answer(["apply", "learnt.json", name, "-o", "out.csv"], capsys, codes=(0,))
    if name == "t.parquet":
        answer(["fit", name, *fit, "-o", "learnt.json", "--engine", "duckdb"], capsys, codes=(0,))
    for wrong in (
        ["audit", name, *truth, "--weight", f"none{bad}"],
        ["audit", name, *truth, "--weight", names["sex"]],
        ["audit", name, *truth[:2], *truth[4:]],
        ["fit", name, *truth, "-o", "x.json"],
        ["fit", name, *fit, "--group-score", f"X{bad}=p", "-o", "x.json"],
        ["fit", name, *fit, "-o", "x.json", "--criterion", f"dp{bad}x"],
        ["fit", f"none{bad}.csv", *fit, "-o", "x.json"],
        ["fit", name, *fit, "-o", f"none{bad}/x.json"],
        ["apply", "learnt.json", name, "-o", "out.csv", "--score", f"q{bad}"],
        ["explain", "learnt.json", name, "--at", "0", "--score", names["sex"]],
        [f"command{bad}"],
    ):
        said = answer(wrong, capsys, codes=(2,))
        assert len(said.splitlines()) == 1
    card = (place / "card.md").read_text(encoding="utf-8")
    assert all(sign.isprintable() or sign == "\n" for sign in card)
    if bad.startswith("\n"):
        assert "\nevenhand: all verdicts pass" not in card
    page = (place / "report.html").read_text(encoding="utf-8")
    assert case in ("line feed", "return", "invisible") or bad not in page


def test_the_names_in_a_rule_file_never_steer_the_terminal(place, capsys):
    pa.csv.write_csv(pa.table(good()), "t.csv")
    rule = json.loads((place / "rule.json").read_text())
    for term in rule["terms"]:
        term["name"] = "\x1b[31m\nThe decision is fair."
    (place / "bad.json").write_text(json.dumps(rule))
    answer(["explain", "bad.json", "t.csv", "--at", "0"], capsys, codes=(0,))
    receipt = str(eh.Rule.from_json(json.dumps(rule)).explain([0.5], [[0.5, 0.5]])[0])
    assert "\x1b" not in receipt
    assert "\nThe decision is fair." not in receipt


@pytest.mark.filterwarnings("default")
def test_warnings_never_steer_the_terminal(place, capsys, monkeypatch):
    import warnings

    from evenhand import datasets

    def load_adult():
        warnings.warn("a group called \x1b[31m\nF", stacklevel=1)
        raise InputError("stop")

    monkeypatch.setattr(datasets, "load_adult", load_adult)
    assert answer(["datasets", "adult"], capsys, codes=(2,)).splitlines() == [
        "evenhand: note: a group called \\x1b[31m\\nF",
        "evenhand: stop",
    ]


URLS = ["s3://bucket/a/t.parquet", "https://h.org//a/t.csv?k=1", "gs://bucket/t.parquet", "hdfs://name:9000/t.parquet"]


@pytest.mark.parametrize("url", URLS)
def test_an_address_gets_one_sentence_with_the_remedy(url, place, capsys, monkeypatch):
    """Every input and output; the address is named as it was given, but for slashes that pathlib leaves out."""
    write("t.parquet")
    named = url.replace("//a", "/a")

    def refused(*_, **__):
        raise OSError("no such host")

    monkeypatch.setattr(origins, "urlopen", refused)
    monkeypatch.setattr(origins, "_store", refused)
    for arguments in (
        ["audit", url, *AUDIT],
        ["fit", url, *FIT],
        ["fit", url, *TRAIN, "-o", "m.skops"],
        ["fit", "t.parquet", *FIT, "--test", url],
        ["frontier", url, *FRONTIER],
        ["apply", "rule.json", url, "-o", "o.csv"],
        ["explain", "rule.json", url, "--at", "0"],
    ):
        said = answer(arguments, capsys, codes=(2,))
        assert said.startswith(f"evenhand: {named} cannot be read: no such host. Download it first")
        assert len(said.splitlines()) == 1
    for arguments in (["apply", url, "t.parquet", "-o", "o.csv"], ["explain", url, "t.parquet", "--at", "0"]):
        said = answer(arguments, capsys, codes=(2,))
        assert said.startswith(f"evenhand: {named} is an address, but a local file is needed: download it first.")
        assert len(said.splitlines()) == 1
    for arguments in (
        ["audit", "t.parquet", *AUDIT, "--report", url],
        ["fit", "t.parquet", *FIT[:-1], url],
        ["fit", "t.parquet", *FIT, "--card", url],
        ["frontier", "t.parquet", *FRONTIER, "-o", url],
        ["apply", "rule.json", "t.parquet", "-o", url],
        ["apply", "rule.json", "t.parquet", "-o", url, "--engine", "duckdb"],
        ["demo", "-o", url],
        ["datasets", "adult", "-o", url],
        ["reproduce", "synthetic", "-o", url],
    ):
        said = answer(arguments, capsys, codes=(2,))
        assert f"{named} is an address, but evenhand writes only local files: write one" in said
    assert not [path for path in place.iterdir() if ":" in path.name]


@pytest.mark.parametrize("url", URLS)
def test_duckdb_is_given_the_address_itself(url, place, capsys):
    for arguments in (
        ["apply", "rule.json", url, "-o", "o.csv", "--engine", "duckdb"],
        ["fit", url, *FIT, "--engine", "duckdb"],
    ):
        said = answer(arguments, capsys, codes=(2,))
        assert said.startswith(f"evenhand: {url.replace('//a', '/a')} cannot be read here.")
        assert "Download it first" in said
        assert len(said.splitlines()) == 1


@pytest.mark.parametrize("engine", [[], ["--engine", "duckdb"]])
def test_an_address_of_a_local_file_is_read_and_written(engine, place, capsys):
    write("t.parquet")
    table, output = f"file://{place}/t.parquet", f"file://{place}/o.parquet"
    answer(["apply", "rule.json", table, "-o", output, *engine], capsys, codes=(0,))
    assert pq.read_table("o.parquet").num_rows == 40
    answer(["fit", table, *FIT, *engine], capsys, codes=(0,))


@pytest.mark.parametrize("engine", [[], ["--engine", "duckdb"]])
def test_tables_of_required_columns_are_decided(engine, place, capsys):
    table = pa.table(good())
    pq.write_table(table.cast(pa.schema([f.with_nullable(False) for f in table.schema])), "t.parquet")
    pq.write_table(table, "optional.parquet")
    for output in ["o.parquet", "o.csv", *([] if engine else ["o.arrow", "o.feather"])]:
        answer(["apply", "rule.json", "t.parquet", "-o", output, *engine], capsys, codes=(0,))
        answer(["apply", "rule.json", "optional.parquet", "-o", f"as-{output}", *engine], capsys, codes=(0,))
        names = [*table.column_names, "decision", "fair_margin", "flipped", "bias_score_1"]
        found = tables.read_table(output, names).to_pydict()
        assert found == tables.read_table(f"as-{output}", names).to_pydict()
    answer(["apply", "rule.json", "t.parquet", "-o", "o.parquet", "--no-keep", *engine], capsys, codes=(0,))


def test_apply_leaves_cells_that_look_like_formulas_as_they_are(place, capsys):
    cells = ["=1+1", "+49", "-5", "@x", "\t=1", "=cmd|' /C calc'!A0", "'=1", "007"] * 5
    pa.csv.write_csv(pa.table({**good(), "note": cells}), "t.csv")
    for engine in ([], ["--engine", "duckdb"]):
        answer(["apply", "rule.json", "t.csv", "-o", "o.csv", *engine], capsys, codes=(0,))
        with (place / "o.csv").open(newline="") as file:
            assert [row["note"] for row in csv.DictReader(file)] == cells
