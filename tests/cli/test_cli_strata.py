"""Strata on the command line: fit, apply, explain and audit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.cli import main
from evenhand.cli.criterion import parse


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = eh.datasets.make_zafar(2000, random_state=0)
    frame = pd.DataFrame({"y": data.y, "sex": np.where(data.group == "1", "M", "F"), "p": data.p_y})
    frame["p_f"], frame["p_m"] = data.p_group[:, 0], data.p_group[:, 1]
    frame["job"] = np.arange(2000) % 2 + 1
    frame.to_csv("scores.csv", index=False)
    return frame


FIT = [
    *("fit", "scores.csv", "--label", "y", "--score", "p", "--sensitive", "sex", "--group-score", "F=p_f"),
    *("--safety", "0", "-o", "rule.json", "--criterion"),
]


def test_a_criterion_is_written_with_its_strata():
    assert parse("dp:0.02@sex within marital status thin 30", ["sex"]) == eh.DemographicParity(
        attribute="sex", tolerance=0.02, within="marital status", thin=30
    )
    assert parse("selection_ratio:0.8 within job") == eh.SelectionRatio(0.8, within="job")
    with pytest.raises(eh.InputError, match="within needs a criterion that compares groups"):
        parse("budget:0.2 within job")


def test_fit_apply_explain_and_audit_know_the_strata(table, capsys):
    assert main([*FIT, "dp within job", "--test", "scores.csv", "--card", "card.md"]) == 0
    assert "sex within job" in capsys.readouterr().out
    rule = eh.Rule.from_json(Path("rule.json").read_text())
    assert main(["apply", "rule.json", "scores.csv", "-o", "decided.csv"]) == 0
    decided = pd.read_csv("decided.csv")
    expected = rule.decide(table["p"], table[["p_f", "p_m"]].to_numpy(), strata=table[["job"]])
    np.testing.assert_array_equal(decided["decision"], expected)
    assert main(["explain", "rule.json", "scores.csv", "--at", "1"]) == 0
    assert "job=2" in capsys.readouterr().out
    audit = ["audit", "decided.csv", "--label", "y", "--decision", "decision", "--sensitive", "sex"]
    audit += ["--tolerance", "0.3", "--json", "--criterion"]
    assert main([*audit, "dp within job"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [stratum["stratum"] for stratum in found["verdicts"][0]["strata"]] == [1, 2]


def test_what_cannot_be_done_with_strata_is_said(table, capsys):
    assert main([*FIT, "dp within work"]) == 2
    assert "work" in capsys.readouterr().err
    train = ["fit", "scores.csv", "--label", "y", "--sensitive", "sex", "--features", "p", "-o", "fair.skops"]
    assert main([*train, "--criterion", "dp within job"]) == 2
    assert "--features does not support within=" in capsys.readouterr().err


def test_an_engine_learns_the_same_rule_within_strata(table):
    assert main([*FIT, "dp within job"]) == 0
    expected = eh.Rule.from_json(Path("rule.json").read_text())
    assert main([*FIT, "dp within job", "--engine", "duckdb"]) == 0
    np.testing.assert_array_equal(eh.Rule.from_json(Path("rule.json").read_text()).z, expected.z)


def test_a_mixture_has_the_weights_of_each_stratum(table, capsys):
    assert main([*FIT, "dp within job", "--tolerance", "0", "--randomize", "--card", "card.md"]) == 0
    assert "rules in each of 2 strata" in capsys.readouterr().out
    assert "In `1` they add up to" in Path("card.md").read_text()
    mixed = eh.Mixture.from_json(Path("rule.json").read_text())
    table["id"] = np.arange(len(table))
    table.to_csv("scores.csv", index=False)
    assert main(["apply", "rule.json", "scores.csv", "--key", "id", "-o", "decided.csv"]) == 0
    given = table["p"], table[["p_f", "p_m"]].to_numpy()
    expected = mixed.decide(*given, strata=table[["job"]], key=table["id"])
    np.testing.assert_array_equal(pd.read_csv("decided.csv")["decision"], expected)
    assert main(["explain", "rule.json", "scores.csv", "--at", "1", "--key", "id"]) == 0
    weight = mixed.for_stratum(2).weights[0]
    assert f"rule of weight {weight:.4f}" in capsys.readouterr().out


def test_a_watch_reads_the_strata_that_the_rule_names(table, capsys):
    assert main([*FIT, "dp within job"]) == 0
    watch = ["watch", "rule.json", "scores.csv", "--state"]
    assert main([*watch, "watch.json", "--tolerance", "0.9", "--report", "watch.html"]) == 0
    found = eh.Watch.load("watch.json")
    assert found.strata == {"job": (1, 2)}
    rule = eh.Rule.from_json(Path("rule.json").read_text())
    decided = rule.decide(table["p"], table[["p_f", "p_m"]].to_numpy(), strata=table[["job"]])
    for stratum, gap in zip((1, 2), found.gaps, strict=True):
        inside = (table["job"] == stratum).to_numpy()
        rates = [decided[inside & (table["sex"] == sex).to_numpy()].mean() for sex in "FM"]
        assert gap.since_start.value == pytest.approx(rates[0] - rates[1])
    assert "sex within job" in Path("watch.html").read_text()
    capsys.readouterr()
    assert main([*watch, "other.json", "--criterion", "dp within job thin 30", "--tolerance", "0.9"]) == 0
    assert "demographic_parity on sex within job" in capsys.readouterr().out
    assert eh.Watch.load("other.json").strata == {}


def test_alternatives_are_searched_within_strata(table, capsys):
    asked = ["alternatives", "scores.csv", "--label", "y", "--score", "p", "--sensitive", "sex"]
    asked += ["--group-score", "F=p_f", "--criterion", "dp within job", "--margin", "0.05"]
    found = eh.alternatives(
        table["y"],
        {"sex": table["sex"]},
        table["p"],
        table[["p_f", "p_m"]].to_numpy(),
        criterion=eh.DemographicParity(within="job"),
        strata=table[["job"]],
        margin=0.05,
    )
    assert main([*asked, "-o", "other.json"]) == 1
    assert str(found) in capsys.readouterr().out
    written = eh.Rule.from_json(Path("other.json").read_text())
    np.testing.assert_allclose(written.z, found.rule.z, rtol=1e-9)
    # Rows of another table are in the strata of the first.
    table[500:].to_csv("second.csv", index=False)
    assert main([*asked, "--rule", "other.json", "--test", "second.csv"]) in (0, 1, 3)
    assert "held-out rows" in capsys.readouterr().out
    table.assign(job=np.where(table["job"].index % 3, table["job"], 7)).to_csv("new.csv", index=False)
    assert main([*asked, "--test", "new.csv"]) == 2
    assert "The stratum 7 of 'job' did not occur" in capsys.readouterr().err


def test_watch_reads_the_strata_of_the_rule(table, capsys):
    assert main([*FIT, "dp within job thin 40", "--tolerance", "0.1"]) == 0
    rule = eh.Rule.from_json(Path("rule.json").read_text())
    table.assign(job=np.where(table.index < 1970, 1, 2)).to_csv("few.csv", index=False)
    capsys.readouterr()
    assert main(["watch", "rule.json", "few.csv", "--state", "w.json"]) in (0, 1, 3)
    said = capsys.readouterr().out
    assert "demographic_parity on sex within job" in said
    assert "Not judged, because of few rows: job=2." in said
    watch = eh.Watch(rule.criterion, 0.1, groups={"sex": ("F", "M")}, strata=[1, 2])
    job = np.where(table.index < 1970, 1, 2)
    decided = rule.decide(table["p"], table[["p_f", "p_m"]].to_numpy(), strata=job)
    watch.update(decided, {"sex": table["sex"]}, strata={"job": job})
    assert eh.Watch.load("w.json").gaps == watch.gaps
    assert main(["watch", "rule.json", "few.csv", "--state", "w.json", "--criterion", "dp within job"]) == 2
    said = capsys.readouterr().err
    assert "criterion DemographicParity(attribute=None, tolerance=None, within='job', thin=40), but now" in said
    table.drop(columns="job").to_csv("without.csv", index=False)
    assert main(["watch", "rule.json", "without.csv", "--state", "x.json"]) == 2
    assert "has no column 'job'" in capsys.readouterr().err
    assert main(["watch", "rule.json", "few.csv", "--state", "x.json", "--criterion", "eo within job"]) == 2
    assert "name the column of labels with --label, or that of identifiers with --id" in capsys.readouterr().err
    assert main(["watch", "rule.json", "few.csv", "--state", "y.json", "--criterion", "dp within job thin 40"]) == 3
    capsys.readouterr()
    assert main(["watch", "rule.json", "few.csv", "--state", "y.json"]) == 2
    assert "strata are known from the rule without --criterion" in capsys.readouterr().err


def test_watch_takes_the_decisions_of_a_mixture(table, capsys):
    table.assign(id=table.index).to_csv("scores.csv", index=False)
    assert main([*FIT, "dp within job", "--tolerance", "0.1", "--randomize"]) == 0
    assert main(["watch", "rule.json", "scores.csv", "--state", "w.json"]) == 2
    assert "is a randomized mixture, which decides by each row's key: decide with apply" in capsys.readouterr().err
    assert main(["apply", "rule.json", "scores.csv", "-o", "decided.csv", "--key", "id"]) == 0
    assert main(["watch", "rule.json", "decided.csv", "--state", "w.json", "--decision", "decision"]) == 3
    decided = pd.read_csv("decided.csv")
    watch = eh.Watch(eh.DemographicParity(within="job"), 0.1, groups={"sex": ("F", "M")}, strata=[1, 2])
    watch.update(decided["decision"], {"sex": decided["sex"]}, strata=decided[["job"]])
    assert eh.Watch.load("w.json").gaps == watch.gaps
