"""``evenhand alternatives``: sentences, JSON, a rule, a report and exit codes."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.cli import main
from evenhand.report import summarize
from evenhand.report.card import rule_card

COLUMNS = ["--label", "y", "--sensitive", "sex", "--score", "p", "--group-score", "F=f"]


def table(seed):
    data = eh.datasets.make_zafar(1200, random_state=seed)
    sex = np.where(np.asarray(data.group) == "0", "F", "M")
    return pa.table(
        {"y": data.y, "sex": sex, "p": data.p_y, "f": data.p_group[:, 0], "q": data.p_y**2, "d": data.p_y > 0.4}
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alternatives")
    for seed, name in enumerate(("val", "test")):
        pq.write_table(table(seed), folder / f"{name}.parquet")
    return folder


def run(place, monkeypatch, capsys, *arguments):
    monkeypatch.chdir(place)
    code = main(["alternatives", "val.parquet", *COLUMNS, *map(str, arguments)])
    return code, *capsys.readouterr()


def columns_of(seed):
    rows = table(seed)
    f = rows["f"].to_numpy()
    return rows["y"].to_numpy(), {"sex": rows["sex"].to_pylist()}, rows["p"].to_numpy(), np.column_stack([f, 1 - f])


def test_what_is_found_is_what_the_library_finds_and_is_written(place, monkeypatch, capsys):
    code, said, _ = run(place, monkeypatch, capsys, "--margin", 0.02, "-o", "rule.json", "--report", "page.html")
    found = eh.alternatives(*columns_of(0), margin=0.02)
    assert code == 1
    assert str(found) in said
    written = eh.Rule.from_json((place / "rule.json").read_text())
    assert written.z.tolist() == found.rule.z.tolist()
    page = (place / "page.html").read_text()
    assert "Is there a fairer rule that is as good? Found." in page
    assert f"{found.held_out.rows:,} held out" in page


def test_what_is_refuted_exits_with_0_and_what_is_open_with_3(place, monkeypatch, capsys):
    code, said, _ = run(place, monkeypatch, capsys, "--reduction", 0.9, "--held-out", 0)
    assert (code, "refuted" in said) == (0, True)
    rule = eh.learn_rule(*columns_of(0), tolerance=0.1)
    (place / "used.json").write_text(rule.to_json())
    code, said, _ = run(place, monkeypatch, capsys, "--rule", "used.json", "--held-out", 0, "--json")
    data = json.loads(said)
    assert (code, data["status"]) == (0, "refuted")
    assert data["present"]["gap"] <= 0.1
    assert data["upper_bound"] < data["present"]["utility"]


def test_a_table_of_its_own_is_what_the_answer_is_measured_on(place, monkeypatch, capsys):
    code, said, _ = run(
        place, monkeypatch, capsys, "--decision", "d", "--margin", 0.02, "--test", "test.parquet", "--json"
    )
    data = json.loads(said)
    assert code == 1
    assert (data["rows"], data["held_out"]["rows"]) == (1200, 1200)
    y, groups, p, _ = columns_of(1)
    judged = eh.audit(y, p > 0.4, groups, criterion="dp")
    assert data["held_out"]["present"]["accuracy"]["value"] == judged.accuracy.value


def test_other_scores_are_families_of_their_own(place, monkeypatch, capsys):
    _, said, _ = run(place, monkeypatch, capsys, "--margin", 0.02, "--other-score", "squared=q", "--json")
    assert [family["name"] for family in json.loads(said)["families"]] == ["model", "squared"]
    code, _, complaint = run(place, monkeypatch, capsys, "--other-score", "q")
    assert (code, "NAME=COLUMN" in complaint) == (2, True)
    code, _, complaint = run(place, monkeypatch, capsys, "--rule", "used.json", "--decision", "d")
    assert (code, "not both" in complaint) == (2, True)


def test_a_card_and_a_report_have_the_section_only_where_it_is_given():
    y, groups, p, members = columns_of(0)
    rule = eh.learn_rule(y, groups, p, members, tolerance=0.1)
    hostile = "a | *b* <script>"
    found = eh.alternatives(y, groups, p, members, rule=rule, margin=0.01, models={hostile: (p**2, None)})
    card = rule_card(rule, y, groups, p, members, alternatives=found)
    assert f"## Alternatives: {found.status}" in card
    assert "<script>" not in card
    assert "## Alternatives" not in rule_card(rule, y, groups, p, members)
    summary = summarize(y, groups, p, members, rule, alternatives=found)
    assert json.loads(json.dumps(summary))["alternatives"]["data"]["status"] == found.status
    assert "alternatives" not in summarize(y, groups, p, members, rule)
    with pytest.raises(eh.InputError, match=r"a result of evenhand\.alternatives"):
        summarize(y, groups, p, members, rule, alternatives="yes")


@pytest.mark.parametrize("criterion", ["pp", "minimax_rate:error"])
def test_criteria_with_a_level_are_refused(place, monkeypatch, capsys, criterion):
    code, _, said = run(place, monkeypatch, capsys, "--criterion", criterion)
    assert code == 2
    assert "alternatives does not support PredictiveParity and MinimaxRate" in said
