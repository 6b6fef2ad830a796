"""``evenhand fit`` and ``evenhand apply`` with ``--engine``."""

from __future__ import annotations

import duckdb
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.cli import main

FIT = ["--label", "y", "--score", "p", "--sensitive", "sex", "--joint-score", "0,F=p0f", "--joint-score", "0,M=p0m",
       "--joint-score", "1,F=p1f", "--criterion", "eo"]  # fmt: skip


@pytest.fixture
def place(rows, tmp_path):
    pq.write_table(rows.slice(0, 3000), tmp_path / "part1.parquet")
    pq.write_table(rows.slice(3000), tmp_path / "part2.parquet")
    pq.write_table(rows, tmp_path / "whole.parquet")
    return tmp_path


def test_duckdb_fits_and_applies_from_the_command_line(place, capsys):
    rule = place / "rule.json"
    assert main(["fit", str(place / "part*.parquet"), *FIT, "-o", str(rule), "--engine", "duckdb"]) == 0
    assert "rate(sex=F, Y=0) - rate(sex=M, Y=0)" in capsys.readouterr().out
    for engine in ([], ["--engine", "duckdb"]):
        output = place / f"out{len(engine)}.parquet"
        assert main(["apply", str(rule), str(place / "whole.parquet"), "-o", str(output), *engine]) == 0
    assert pq.read_table(place / "out0.parquet").to_pydict() == pq.read_table(place / "out2.parquet").to_pydict()
    csv = place / "out.csv"
    options = ["--engine", "duckdb", "--no-keep", "--prefix", "x_"]
    assert main(["apply", str(rule), str(place / "whole.parquet"), "-o", str(csv), *options]) == 0
    assert csv.read_text().splitlines()[0] == "x_decision,x_fair_margin,x_flipped,x_bias_score_1,x_bias_score_2"
    learned = eh.Rule.from_json(rule.read_text())
    assert max(map(abs, learned.solution_.values)) <= 0.05 + 1e-9


def test_spark_applies_from_the_command_line_as_a_whole_folder(place, spark):
    rule, output = place / "rule.json", place / "out.parquet"
    assert main(["fit", str(place / "whole.parquet"), *FIT, "-o", str(rule), "--engine", "spark"]) == 0
    command = ["apply", str(rule), str(place / "whole.parquet"), "-o", str(output), "--engine", "spark"]
    assert main(command) == 0
    assert main(command) == 0
    assert pq.read_table(output).num_rows == 6000
    assert sorted(path.name for path in place.iterdir()) == [
        "out.parquet", "part1.parquet", "part2.parquet", "rule.json", "whole.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_crossed_attributes_are_learnt_by_an_engine(engine, rows, tmp_path, spark, capsys):
    table, rule = tmp_path / "rows.parquet", tmp_path / "rule.json"
    sexes = {"F": "f", "M": "(1 - f)"}
    cells = {
        f"{s} & {r}": f"{text} * r{k}" for s, text in sexes.items() for k, r in enumerate(("north", "south", "west"))
    }
    drawn = duckdb.from_arrow(rows).project("p, y, sex, region, f, r0, r1, r2")
    columns = ", ".join(f'{text} AS "{name}"' for name, text in cells.items())
    drawn.project(f"p, y, sex, region, {columns}").write_parquet(str(table))
    given = ["--label", "y", "--score", "p", "--sensitive", "sex", "--sensitive", "region"]
    given += ["--criterion", "dp@sex,region", "--tolerance", "0.1", "-o", str(rule), "--engine", engine]
    assert main(["fit", str(table), *given]) == 2
    assert "--group-score 'F & north=COLUMN'" in capsys.readouterr().err
    scores = [part for name in list(cells)[:-1] for part in ("--group-score", f"{name}={name}")]
    assert main(["fit", str(table), *given, *scores]) == 0, capsys.readouterr().err
    learned = eh.Rule.from_json(rule.read_text())
    assert learned.attributes == (eh.Intersection("sex", "region"),)
    output = tmp_path / "out.parquet"
    assert main(["apply", str(rule), str(table), "-o", str(output), "--engine", engine]) == 0
    decided = pq.read_table(output)
    both = [f"{s} {r}" for s, r in zip(decided["sex"].to_pylist(), decided["region"].to_pylist(), strict=True)]
    y, decisions = decided["y"].to_numpy(), decided["decision"].to_numpy()
    gap = eh.metrics.demographic_parity_difference(y, decisions, sensitive_features=both)
    assert gap <= 0.1 + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "duckdb", "--card", "card.md", "-o", "x.json"], "--engine learns a rule"),
        (["--engine", "duckdb"], "--engine learns a rule"),
        (["--engine", "duckdb", "--weight", "absent", "-o", "x.json"], "no column 'absent'"),
        (["--engine", "duckdb", "--pos-label", "7", "-o", "x.json"], "no value '7'"),
    ],
)
def test_what_an_engine_cannot_do_is_said(options, message, place, capsys):
    assert main(["fit", str(place / "whole.parquet"), *FIT, *options]) == 2
    assert message in capsys.readouterr().err


def test_a_bad_row_leaves_no_output_behind(place, capsys):
    rule, output = place / "rule.json", place / "out.parquet"
    assert main(["fit", str(place / "whole.parquet"), *FIT, "-o", str(rule), "--engine", "duckdb"]) == 0
    bad = place / "bad.parquet"
    changed = "SELECT * REPLACE (CASE WHEN p > 0.9 THEN 2 ELSE p END AS p)"
    duckdb.sql(f"{changed} FROM '{place}/whole.parquet'").write_parquet(str(bad))
    output.write_text("as it was")
    assert main(["apply", str(rule), str(bad), "-o", str(output), "--engine", "duckdb"]) == 2
    assert "not probabilities" in capsys.readouterr().err
    assert output.read_text() == "as it was"
    assert not list(place.glob(".*"))
    assert main(["apply", str(rule), str(bad), "-o", str(place / "out.arrow"), "--engine", "duckdb"]) == 2
