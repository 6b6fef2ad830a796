"""Whatever a file holds, the command answers with an exit code and at most one message, never a traceback."""

from __future__ import annotations

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
    for sign in ("Traceback", "unexpected", "mistake in evenhand"):
        assert not shown.err.count(sign), shown.err[:500]
    assert len(shown.err) < 5000
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
    assert "mistake in evenhand" not in error
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
    with pytest.raises(InputError, match="give one of the two"):
        match_columns(["F=p"], ["no,F=p"], {"s": ("F", "M")}, ("no", "yes"), names)


def write(name, **changes):
    pq.write_table(pa.table({**good(), **changes}), name)


def test_missing_groups_are_answered_with_the_commands_own_option(place, capsys):
    write("t.parquet", sex=[None, *good()["sex"][1:]])
    for arguments in (["audit", "t.parquet", *AUDIT], ["fit", "t.parquet", *FIT]):
        said = answer(arguments, capsys, codes=(2,))
        assert "say --ignore-missing" in said
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
    assert "m.skops holds a classifier" in said
    assert ".rule_.to_json()" in said


@pytest.mark.parametrize("output", ["t.parquet", "./t.parquet", "link.parquet"])
def test_a_table_is_not_overwritten_by_what_is_made_of_it(output, place, capsys):
    write("t.parquet")
    (place / "link.parquet").symlink_to(place / "t.parquet")
    before = (place / "t.parquet").read_bytes()
    said = answer(["apply", "rule.json", "t.parquet", "-o", output], capsys, codes=(2,))
    assert "is the table that is read" in said
    answer(["frontier", "t.parquet", *FIT[:-2], "-o", output], capsys, codes=(2,))
    assert (place / "t.parquet").read_bytes() == before
