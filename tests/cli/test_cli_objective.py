"""Objectives and criteria with a level on the command line, in reports and in cards."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import f1_score

import evenhand as eh
from evenhand.cli import PASS, main

DATA = eh.datasets.make_zafar(500, random_state=2)
COLUMNS = ["--label", "y", "--score", "p", "--sensitive", "sex"]
JOINT = [f"--joint-score={label},{group}=p{label}{group}" for label in (0, 1) for group in "01"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("objective") / "rows.parquet"
    joint = {f"p{label}{group}": DATA.p_joint[:, label, group] for label in (0, 1) for group in (0, 1)}
    pq.write_table(pa.table({"y": DATA.y, "p": DATA.p_y, "sex": DATA.group, **joint}), path)
    return path


def run(command, rows, *arguments):
    return main([command, str(rows), *COLUMNS, *JOINT, *arguments])


def test_fit_maximises_an_f_score_and_says_so(rows, tmp_path, capsys):
    rule, card, report = (tmp_path / name for name in ("rule.json", "card.md", "report.html"))
    arguments = ["--objective", "f1", "--safety", "0", "-o", str(rule), "--card", str(card), "--report", str(report)]
    assert run("fit", rows, *arguments, "--tolerance", "0.1") == PASS
    found = eh.Rule.from_json(rule.read_text())
    score = f1_score(DATA.y, found.decide(DATA.p_y, DATA.p_joint))
    assert found.solution_.utility == pytest.approx(score)
    assert f"the rule's F1 is {score:.4f}" in card.read_text()
    assert f"Its F1 is {score:.4f} on the rows it was learnt from." in report.read_text()
    assert "is better in F1: this was proven" in report.read_text()


def test_a_frontier_names_its_objective(rows, capsys):
    assert run("frontier", rows, "--objective", "balanced_accuracy", "--tolerances", "0.1", "--json") == PASS
    assert json.loads(capsys.readouterr().out)["objective"] == "balanced_accuracy"


def test_predictive_parity_is_fitted_drawn_in_and_reported(rows, tmp_path, capsys):
    rule, card = tmp_path / "rule.json", tmp_path / "card.md"
    arguments = ["--criterion", "pp", "--tolerance", "0.2", "-o", str(rule), "--card", str(card)]
    assert run("fit", rows, *arguments, "--accept") == PASS
    found = eh.Rule.from_json(rule.read_text())
    assert found.criterion == eh.PredictiveParity()
    assert found.tolerance == 0.2
    assert found.solution_.asked == ((-0.2, 0.2),)
    assert 0.1 <= found.solution_.used[0][1] < 0.2
    assert abs(found.solution_.values[0]) <= found.solution_.used[0][1] + 1e-9
    assert "`predictive_parity`" in card.read_text()
    assert main(["audit", str(rows), "--label", "y", "--score", "p", "--sensitive", "sex", "--criterion", "pp"]) != PASS
    assert "predictive_parity" in capsys.readouterr().out


def test_the_smallest_largest_error_is_a_ceiling_in_the_rule(rows, tmp_path, capsys):
    rule = tmp_path / "rule.json"
    arguments = ["--criterion", "minimax_rate:error", "-o", str(rule), "--accept"]
    assert run("fit", rows, *arguments) != PASS
    assert "safety" in capsys.readouterr().err
    assert run("fit", rows, *arguments, "--safety", "0") == PASS
    found = eh.Rule.from_json(rule.read_text())
    wrong = found.decide(DATA.p_y, DATA.p_joint) != DATA.y
    largest = max(np.mean(wrong[DATA.group == group]) for group in "01")
    assert found.criterion == eh.MaximumRate("error", found.learned_from["minimax"]["value"])
    assert found.criterion.ceiling == pytest.approx(largest)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "fbeta"], "'f2' has beta = 2"),
        (["--objective", "f1", "--costs", "1", "5"], "cannot be combined with an objective"),
        (["--criterion", "minimax_rate:accuracy"], "MinimaxRate('error')"),
    ],
)
def test_mistakes_are_named(rows, tmp_path, arguments, message, capsys):
    assert run("fit", rows, "-o", str(tmp_path / "rule.json"), *arguments) != PASS
    assert message in " ".join(capsys.readouterr().err.split())
