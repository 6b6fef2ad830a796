"""What the headline, the figures, the tables and the command line say of one result agrees."""

from __future__ import annotations

import re

import numpy as np
import pytest

from evenhand.auditing.findings import Estimate, Verdict
from evenhand.cli import main
from evenhand.report import render_html, summarize
from evenhand.report.summarize import _severity

BIG = '<dt>Largest gap, points</dt><dd><span class="big">'


def decided(rates, rows, seed=0):
    """Return groups and decisions: so many rows of each group, and so many of them positive."""
    generator = np.random.default_rng(seed)
    groups = np.repeat(list(rates), [rows[name] for name in rates])
    decisions = np.concatenate([np.arange(rows[name]) < rates[name] * rows[name] for name in rates])
    order = generator.permutation(len(groups))
    return groups[order], decisions[order].astype(int)


def two_attributes():
    """Return decisions whose largest gap, on a small attribute, has less evidence than a smaller one."""
    sex, decisions = decided({"F": 0.3, "M": 0.5}, {"F": 2000, "M": 2000})
    race = np.where(np.arange(4000) < 12, "few", "many")
    decisions = np.where((race == "few"), (np.arange(4000) % 12) < 9, decisions).astype(int)
    y = np.where(np.random.default_rng(1).random(4000) < 0.1, 1 - decisions, decisions)
    return y, decisions, {"sex": sex, "race": race}


def text_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<(style|script)\b.*?</\1>|<[^>]+>", " ", html, flags=re.DOTALL))


def test_the_largest_gap_of_the_headline_is_the_largest_of_the_verdicts():
    summary = summarize(*(two_attributes()[i] for i in (0, 2, 1)), criterion="dp")
    gaps = {v["attribute"]: v["gap"]["value"] for v in summary["base"]["verdicts"]}
    assert gaps["race"] > gaps["sex"]
    assert summary["base"]["verdicts"][summary["base"]["worst"]]["attribute"] == "sex"
    html = render_html(summary)
    assert f"{BIG}{100 * gaps['race']:.1f}<" in html
    assert f"the gap is {100 * gaps['sex']:.1f} points" in html


def test_of_several_failing_verdicts_the_headline_gives_the_number_and_the_one_with_the_most_evidence():
    y, decisions, sensitive = two_attributes()
    summary = summarize(y, {"sex": sensitive["sex"]}, decisions)
    failing = [v for v in summary["base"]["verdicts"] if v["outcome"] == "fail"]
    assert len(failing) > 1
    distances = [(v["gap"]["value"] - v["tolerance"]) / (v["gap"]["value"] - v["gap"]["lower"]) for v in failing]
    strongest = failing[int(np.argmax(distances))]
    sentence = re.search(r'data-slot="sentence">(.*?)<', render_html(summary)).group(1)
    assert sentence.startswith(f"{len(failing)} of {len(summary['base']['verdicts'])} verdicts fail.")
    assert f"meet {strongest['criterion'].replace('_', ' ')} on sex" in sentence


@pytest.mark.parametrize("exact", [True, False])
def test_evidence_is_the_distance_from_the_tolerance_for_its_uncertainty(exact):
    def verdict(value, lower, upper):
        return Verdict("dp", "a", Estimate(value, lower, upper), 0.05, "fail", None)

    wide, narrow = verdict(0.4, 0.06, 0.7), verdict(0.1, 0.1 if exact else 0.09, 0.11)
    assert _severity(narrow) > _severity(wide)


def test_an_outcome_has_one_name(tmp_path, capsys):
    groups, decisions = decided({"F": 0.45, "M": 0.5}, {"F": 60, "M": 60})
    lines = ["sex,d", *(f"{g},{d}" for g, d in zip(groups, decisions, strict=True))]
    table, report = tmp_path / "t.csv", tmp_path / "r.html"
    table.write_text("\n".join(lines))
    argv = ["audit", str(table), "--decision", "d", "--sensitive", "sex", "--criterion", "dp", "--report", str(report)]
    assert main(argv) == 3
    assert "insufficient evidence" in capsys.readouterr().out
    page = text_of(report.read_text())
    assert re.search(r"[Nn]ot enough evidence", page) is None
    assert page.count("nsufficient evidence") >= 4


def test_the_four_fifths_ratio_is_shown_with_the_selection_rates(summary):
    page = text_of(render_html(summary))
    before, after = summary["base"]["ratios"][0]["ratio"], summary["steps"][summary["chosen"]]["ratios"][0]["ratio"]
    rates = [group["selection_rate"]["value"] for group in summary["base"]["groups"]]
    assert before["value"] == pytest.approx(min(rates) / max(rates))
    found = re.search(r"Four-fifths ratio.*?: ([\d.]+) \(.*? before, ([\d.]+) \(", page)
    assert found.groups() == (f"{before['value']:.2f}", f"{after['value']:.2f}")


def test_labels_have_their_own_names_in_the_report_of_scores(tmp_path):
    generator = np.random.default_rng(0)
    p = generator.random(400)
    y = np.where(generator.random(400) < p, ">50K", "<=50K")
    lines = ["sex,income,p", *(f"{'FM'[i % 2]},{y[i]},{p[i]:.6f}" for i in range(400))]
    table, report = tmp_path / "t.csv", tmp_path / "r.html"
    table.write_text("\n".join(lines))
    argv = ["audit", str(table), "--score", "p", "--label", "income", "--pos-label", ">50K", "--sensitive", "sex"]
    main([*argv, "--report", str(report)])
    page = text_of(report.read_text())
    assert re.search(r"\b(True|False)\b(?! positive)", page) is None
    assert "label &gt;50K" in page
    assert "P(label = &gt;50K)" in page
