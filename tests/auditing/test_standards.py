"""The tables of the four-fifths rule and of Local Law 144, on cases that were computed by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.auditing.standards import NYC144, FourFifths
from evenhand.cli import main


def counted(**groups):
    """Return decisions and groups: for each group, so many selected of so many."""
    decisions, names = [], []
    for name, (selected, rows) in groups.items():
        decisions += [1] * selected + [0] * (rows - selected)
        names += [name] * rows
    return decisions, names


def by_group(table):
    return {group.group: group for group in table.groups}


def test_the_four_fifths_rule_on_a_case_done_by_hand():
    decisions, groups = counted(A=(48, 80), B=(12, 40), C=(27, 50))
    (table,) = eh.audit(None, decisions, groups, standard="four-fifths").tables
    found = by_group(table)
    assert table.highest == "A"
    assert [found[g].rate for g in "ABC"] == [0.6, 0.3, 0.54]
    assert found["A"].to_highest is None
    assert found["B"].to_highest.ratio == pytest.approx(0.5)
    assert found["C"].to_highest.ratio == pytest.approx(0.9)
    # 60 of 120 were selected: an error of sqrt(1/4 (1/80 + 1/40)).
    assert found["B"].to_highest.deviations == pytest.approx(-0.3 / math.sqrt(0.25 * 0.0375))
    assert [found[g].outcome for g in "ABC"] == ["pass", "fail", "pass"]
    assert table.outcome == "fail"


def test_fishers_exact_test_is_the_sum_of_the_tables_that_are_as_unlikely():
    decisions, groups = counted(A=(3, 4), B=(1, 4))
    found = eh.audit(None, decisions, groups, standard=FourFifths())
    # Of the 70 ways to choose 4 of 8, 1 + 16 + 16 + 1 are at least as far from equal.
    comparison = by_group(found.tables[0])["B"].to_highest
    assert comparison.fisher == pytest.approx(34 / 70)
    assert comparison.ratio == pytest.approx(1 / 3)
    assert found.tables[0].outcome == "insufficient evidence"
    assert found.passed is False


def test_exactly_four_fifths_passes_and_a_bit_less_does_not():
    at = eh.audit(None, *counted(A=(500, 1000), B=(400, 1000)), standard="four-fifths")
    below = eh.audit(None, *counted(A=(500, 1000), B=(399, 1000)), standard="four-fifths")
    assert (at.tables[0].outcome, below.tables[0].outcome) == ("pass", "fail")
    assert (at.passed, below.passed) == (True, False)


def test_small_groups_are_left_out_and_named():
    decisions, groups = counted(A=(50, 100), B=(45, 95), tiny=(3, 3))
    found = eh.audit(None, decisions, groups, standard="four-fifths")
    table = found.tables[0]
    assert table.highest == "A"
    assert by_group(table)["tiny"].left_out
    assert by_group(table)["tiny"].outcome is None
    assert by_group(table)["tiny"].rate == 1.0
    assert table.outcome == "pass"
    assert "below 2% of the rows, left out: tiny" in str(found)
    kept = eh.audit(None, decisions, groups, standard=FourFifths(least_share=0.01))
    assert kept.tables[0].highest == "tiny"
    assert kept.tables[0].outcome == "insufficient evidence"


def test_a_reference_group_is_compared_besides_the_highest():
    decisions, groups = counted(A=(50, 100), B=(40, 100), C=(20, 100))
    table = eh.audit(None, decisions, groups, standard=FourFifths(reference="B")).tables[0]
    found = by_group(table)
    assert table.reference == "B"
    assert found["A"].to_reference.ratio == pytest.approx(1.25)
    assert found["C"].to_reference.ratio == pytest.approx(0.5)
    assert found["B"].to_reference is None
    assert found["B"].to_highest.ratio == pytest.approx(0.8)
    two = {"race": groups, "sex": ["F", "M"] * 150}
    tables = eh.audit(None, decisions, two, standard=FourFifths(reference={"race": "A"})).tables
    assert [t.reference for t in tables] == ["A", None]


def test_local_law_144_for_a_tool_that_selects():
    sex = ["F"] * 40 + ["M"] * 60 + [None] * 5
    race = (["a"] * 20 + ["b"] * 20) + (["a"] * 30 + ["b"] * 30) + ["a"] * 5
    decisions = ([1] * 5 + [0] * 15) + ([1] * 10 + [0] * 10) + ([1] * 15 + [0] * 15) + ([1] * 24 + [0] * 6) + [1] * 5
    found = eh.audit(None, decisions, pd.DataFrame({"sex": sex, "race": race}), standard="nyc-144")
    by_sex, by_race, both = found.tables
    assert [t.attribute for t in found.tables] == ["sex", "race", "sex & race"]
    assert [t.unknown_rows for t in found.tables] == [5, 0, 5]
    assert {g: (v.rows, v.selected) for g, v in by_group(by_sex).items()} == {"F": (40, 15), "M": (60, 39)}
    assert by_group(by_sex)["F"].to_highest.ratio == pytest.approx((15 / 40) / (39 / 60))
    assert {g: (v.rows, v.selected) for g, v in by_group(by_race).items()} == {"a": (55, 25), "b": (50, 34)}
    assert both.highest == ("M", "b")
    assert by_group(both)["F", "a"].to_highest.ratio == pytest.approx(0.25 / 0.8)
    assert found.passed is None
    assert all(group.outcome is None for table in found.tables for group in table.groups)
    assert "5 rows of unknown group" in str(found)
    assert "no verdict" in str(found)


def test_local_law_144_for_a_tool_that_scores():
    scores = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 55]
    sex = list("FFFMFMFMMMM")
    found = eh.audit(None, scores, {"sex": sex}, standard=NYC144())
    (table,) = found.tables
    assert (found.rate, found.median) == ("scoring rate", 55.0)
    # Above the median: 60 M, 70 F, 80 M, 90 M, 100 M; the score that is the median itself is not above it.
    assert {g: (v.rows, v.selected) for g, v in by_group(table).items()} == {"F": (5, 1), "M": (6, 4)}
    assert by_group(table)["F"].to_highest.ratio == pytest.approx((1 / 5) / (4 / 6))
    means, spread = (36.0, 425 / 6), np.std(scores, ddof=1)
    assert by_group(table)["F"].smd == pytest.approx((means[0] - means[1]) / spread)
    assert "pass both columns" in str(found)


# What solas-ai 0.6.0 gives for these rows: adverse_impact_ratio, its p-values where it uses Fisher's test, and
# standardized_mean_difference over 100.
SOLAS = {
    "Black": (0.4231863442, 0.0081589209, -0.655520443455),
    "Asian": (0.7657657658, 0.3787595511, -0.18857932972),
    "F": (0.8888888889, 0.6121928154, -0.145641663015),
}


def test_ratios_tests_and_mean_differences_are_those_of_solas():
    rng = np.random.default_rng(4)
    race, sex = rng.choice(["White", "Black", "Asian"], 1200, p=[0.6, 0.25, 0.15]), rng.choice(["M", "F"], 1200)
    score = np.clip(rng.normal(0.5, 0.15, 1200) - 0.08 * (race == "Black") - 0.03 * (sex == "F"), 0, 1)
    rows = {"race": race[:150], "sex": sex[:150]}
    found = eh.audit(None, score[:150], rows, standard=FourFifths(reference={"race": "White", "sex": "M"}))
    groups = by_group(found.tables[0]) | by_group(found.tables[1])
    for name, expected in SOLAS.items():
        got = groups[name].to_reference.ratio, groups[name].to_reference.fisher, groups[name].smd
        assert got == pytest.approx(expected, abs=1e-9)


def test_every_audit_names_its_source_and_says_what_it_is_not():
    for standard, words in (("four-fifths", "29 CFR 1607.4(D)"), ("nyc-144", "6 RCNY 5-300")):
        text = str(eh.audit(None, *counted(A=(5, 10), B=(5, 10)), standard=standard))
        assert words in text
        assert "not legal advice" in text


def test_what_cannot_be_is_refused():
    rows = counted(A=(5, 10), B=(5, 10))
    for standard, message in (
        ("80%", "Unknown standard"),
        (FourFifths(reference="Z"), "not one of the groups"),
        (FourFifths(reference={"age": "A"}), "names the attribute 'age'"),
        (FourFifths(reference={"group": "Z"}), "not a group of 'group'"),
        (FourFifths(least_share=0.9), "smaller least_share"),
    ):
        with pytest.raises(eh.InputError, match=message):
            eh.audit(None, *rows, standard=standard)
    with pytest.raises(eh.InputError, match="least_share"):
        FourFifths(least_share=2)
    with pytest.raises(eh.InputError, match="criterion"):
        eh.audit(None, *rows, standard="four-fifths", criterion="dp")
    with pytest.raises(eh.InputError, match="two columns"):
        eh.audit(None, rows[0], {"a": rows[1], "b": rows[1], "c": rows[1]}, standard="nyc-144")
    with pytest.raises(eh.InputError, match="missing"):
        eh.audit(None, [1, 0, 1], ["A", None, "B"], standard="four-fifths")


def test_the_command_prints_tables_or_json_and_its_exit_code_is_the_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    decisions, groups = counted(A=(48, 80), B=(12, 40))
    frame = pd.DataFrame({"hired": decisions, "race": groups, "sex": ["F", "M"] * 60, "s": np.arange(120.0)})
    frame.to_csv("rows.csv", index=False)
    plain = ["audit", "rows.csv", "--sensitive", "race", "--decision", "hired", "--standard", "four-fifths"]
    assert main([*plain, "--reference", "race=A"]) == 1
    assert "ratio to A" in capsys.readouterr().out
    assert main([*plain, "--reference", "B", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["tables"][0]["groups"][1]["to_highest"]["ratio"] == 0.5
    assert data["tables"][0]["reference"] == "B"
    scored = ["audit", "rows.csv", "--sensitive", "race", "--sensitive", "sex", "--score", "s", "--standard", "nyc-144"]
    assert main(scored) == 0
    out = capsys.readouterr().out
    assert "scoring rate" in out
    assert "race & sex" in out
    for wrong, message in (
        ([*plain[:-1], "4/5"], "There are: 'four-fifths', 'nyc-144'"),
        ([*plain, "--reference", "Z"], "ATTRIBUTE=GROUP"),
        ([*plain, "--criterion", "dp"], "leave out"),
        ([*plain[:-2], "--reference", "A"], "--standard"),
    ):
        assert main(wrong) == 2
        assert message in capsys.readouterr().err
