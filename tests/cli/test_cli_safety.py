"""Safety on the command line, and a rule that does harm on other rows."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.cli import INSUFFICIENT, PASS, main

COLUMNS = ["--label", "y", "--score", "p", "--sensitive", "sex", "--group-score", "F=f"]


def table(seed, n, *, unfair):
    """Return scores that are lower for those who look like women, or that know nothing of them."""
    rng = np.random.default_rng(seed)
    f = rng.random(n)
    p = np.clip(rng.random(n) - (0.35 * (f - 0.5) if unfair else 0.0), 0.01, 0.99)
    sex = np.where(rng.random(n) < f, "F", "M")
    return pa.table({"y": (rng.random(n) < p).astype(int), "p": p, "f": f, "sex": sex})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("safety")
    for name, made in (
        ("learn", table(0, 4000, unfair=True)),
        ("same", table(1, 4000, unfair=True)),
        ("other", table(2, 4000, unfair=False)),
        ("few", table(3, 150, unfair=True)),
    ):
        pq.write_table(made, folder / f"{name}.parquet")
    return folder


def fit(files, *arguments, table="learn"):
    return main(["fit", str(files / f"{table}.parquet"), *COLUMNS, "-o", str(files / "rule.json"), *arguments])


def test_bounds_are_drawn_in_by_default(files, capsys):
    assert fit(files, "--tolerance", "0.05") == PASS
    solution = json.loads((files / "rule.json").read_text())["solution"]
    assert solution["asked"] == [[-0.05, 0.05]]
    assert 0.025 <= solution["used"][0][1] < 0.05
    assert fit(files, "--tolerance", "0.05", "--safety", "0") == PASS
    assert "used" not in json.loads((files / "rule.json").read_text())["solution"]


def test_a_model_that_is_fair_enough_is_left_alone_and_the_sentence_says_so(files, capsys):
    assert fit(files, "--tolerance", "0.5", "--test", str(files / "same.parquet")) == PASS
    said = capsys.readouterr().out
    assert "is left unchanged: the rule changes no decision" in said
    assert "0 decisions changed" in said


def test_a_wider_gap_on_other_rows_is_announced(files, capsys):
    report, card = files / "report.html", files / "card.md"
    options = [
        "--tolerance",
        "0.03",
        "--test",
        str(files / "other.parquet"),
        "--report",
        str(report),
        "--card",
        str(card),
    ]
    assert fit(files, *options) == INSUFFICIENT
    said = capsys.readouterr().out
    sentence = next(line for line in said.splitlines() if "widen a gap" in line)
    assert "demographic parity on sex from" in sentence
    assert "95% intervals" in sentence
    assert "widen a gap" in report.read_text(encoding="utf-8")
    assert "widen a gap" in card.read_text(encoding="utf-8")
    # The rule is written all the same, and can be accepted.
    assert fit(files, *options, "--accept") == PASS


def test_no_harm_no_word(files, capsys):
    assert fit(files, "--tolerance", "0.03", "--test", str(files / "same.parquet")) == PASS
    assert "widen a gap" not in capsys.readouterr().out


def test_too_few_rows_are_named_in_the_terminal_and_in_the_report(files, capsys):
    report = files / "few.html"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert fit(files, "--tolerance", "0.05", "--report", str(report), table="few") == PASS
    assert "are needed" in capsys.readouterr().err
    assert "Too few rows for this tolerance" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize("engine", ["duckdb"])
def test_an_engine_draws_in_too(files, engine, capsys):
    assert fit(files, "--tolerance", "0.05", "--engine", engine) == PASS
    solution = json.loads((files / "rule.json").read_text())["solution"]
    assert solution["used"][0][1] < 0.05
    assert abs(solution["values"][0]) <= solution["used"][0][1] + 1e-9
    assert fit(files, "--tolerance", "0.5", "--engine", engine) == PASS
    assert json.loads((files / "rule.json").read_text())["solution"]["status"] == "unchanged"


@pytest.mark.parametrize(
    ("text", "rate"), [("minimum_rate:precision:0.6", "precision"), ("maximum_rate:fpr<=0.3", "fpr")]
)
def test_rates_are_spelt_on_the_command_line(files, text, rate, capsys):
    joint = ["--joint-score", "0,F=a", "--joint-score", "0,M=b", "--joint-score", "1,F=c"]
    made = pq.read_table(files / "learn.parquet")
    p, f = made["p"].to_numpy(), made["f"].to_numpy()
    for name, column in (("a", (1 - p) * f), ("b", (1 - p) * (1 - f)), ("c", p * f)):
        made = made.append_column(name, pa.array(column))
    pq.write_table(made, files / "joint.parquet")
    arguments = ["fit", str(files / "joint.parquet"), "--label", "y", "--score", "p", "--sensitive", "sex", *joint]
    assert main([*arguments, "--criterion", text, "-o", str(files / "rule.json")]) == PASS
    assert json.loads((files / "rule.json").read_text())["criterion"]["rate"] == rate
