"""Criteria as they are written on the command line, and the promise of --confidence there."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.cli import main
from evenhand.cli.criterion import combine, parse
from evenhand.errors import InputError

NAMES = ["sex", "race", "a,b"]
WRITTEN = {
    "dp": eh.DemographicParity(),
    "Demographic-Parity": eh.DemographicParity(),
    "eo:0.1": eh.EqualizedOdds(tolerance=0.1),
    "eop@sex": eh.EqualOpportunity(attribute="sex"),
    "pe:0.02@race": eh.PredictiveEquality(attribute="race", tolerance=0.02),
    "dp@sex,race": eh.DemographicParity(attribute=eh.Intersection("sex", "race")),
    "dp@a,b": eh.DemographicParity(attribute="a,b"),
    "selection_ratio:0.8": eh.SelectionRatio(0.8),
    "ratio: 0.9 @ sex": eh.SelectionRatio(0.9, attribute="sex"),
    "minimum_rate:tpr>=0.7": eh.MinimumRate("tpr", 0.7),
    "minimum_rate:tpr:0.7": eh.MinimumRate("tpr", 0.7),
    "floor:selection_rate=0.1@sex": eh.MinimumRate("selection_rate", 0.1, attribute="sex"),
    "pp:0.03": eh.PredictiveParity(tolerance=0.03),
    "predictive_parity@sex": eh.PredictiveParity(attribute="sex"),
    "minimax_rate:error": eh.MinimaxRate("error"),
    "minimax:fnr@sex": eh.MinimaxRate("fnr", attribute="sex"),
    "budget:<=0.2": eh.SelectionBudget(upper=0.2),
    "budget:0.2": eh.SelectionBudget(upper=0.2),
    "budget:>=0.1": eh.SelectionBudget(lower=0.1),
    "budget:0.1..0.2@sex": eh.SelectionBudget(0.1, 0.2, attribute="sex"),
    "selection_budget: .1 .. .2": eh.SelectionBudget(0.1, 0.2),
    "budget:1e-1..2e-1": eh.SelectionBudget(0.1, 0.2),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_a_written_criterion_is_the_object(text):
    assert parse(text, NAMES) == WRITTEN[text]


def test_several_are_one_composite():
    found = combine(["dp", "budget:0.2", "minimum_rate:tpr:0.5@sex"], NAMES)
    assert found == eh.DemographicParity() & eh.SelectionBudget(upper=0.2) & eh.MinimumRate("tpr", 0.5, attribute="sex")
    assert combine(None) is None
    assert combine([]) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("equalised_odds", "Did you mean 'equalized_odds'"),
        ("", "is not known"),
        ("dp:", "write a number"),
        ("dp:small", "write a number, as in dp:0.05"),
        ("dp:-1", "must not be negative"),
        ("dp@sxe", "Did you mean 'sex'"),
        ("dp@", "there is no --sensitive ''"),
        ("dp@sex,sex", "different attribute names"),
        ("ratio", "as in selection_ratio:0.8"),
        ("ratio:8", r"ratio in \(0, 1\]"),
        ("ratio:nan", r"ratio in \(0, 1\]"),
        ("minimum_rate:0.7", "write minimum_rate:precision:0.8"),
        ("minimum_rate:ppv>=0.7", "supports the rates"),
        ("minimum_rate:tpr>=--", "write a number"),
        ("budget:", "write budget:0.2"),
        ("budget:=0.2", "write budget:0.2"),
        ("budget:0.3..0.2", "0 <= lower <= upper <= 1"),
        ("budget:e..e", "write a number"),
    ],
)
def test_what_is_not_one_is_answered(text, message):
    with pytest.raises(InputError, match=message):
        parse(text, NAMES)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = eh.datasets.make_zafar(3000, random_state=0)
    rng = np.random.default_rng(0)
    sex = np.where(np.asarray(data.group) == "0", "F", "M")
    race = rng.choice(["u", "v"], len(sex))
    columns = {"y": data.y, "p": data.p_y, "sex": sex, "race": race}
    columns |= {f"p{y}{n}": data.p_joint[:, y, g] for y in (0, 1) for g, n in enumerate("fm")}
    columns |= {f"p_{n}{r}": data.p_joint[:, :, g].sum(axis=1) / 2 for g, n in enumerate("fm") for r in "uv"}
    pq.write_table(pa.table(columns), "val.parquet")
    return tmp_path


ROWS = ["val.parquet", "--label", "y", "--score", "p", "--sensitive", "sex"]
JOINT = ["--joint-score", "0,F=p0f", "--joint-score", "0,M=p0m", "--joint-score", "1,F=p1f"]


@pytest.mark.parametrize(
    "criteria",
    [
        ["selection_ratio:0.8"],
        ["minimum_rate:tpr:0.7", "minimum_rate:tnr:0.6"],
        ["budget:0.3", "dp:0.1"],
        ["eo:0.1", "budget:..."],
    ],
)
def test_fit_keeps_every_criterion_and_reports_on_it(criteria, place, capsys):
    given = [part for text in criteria for part in ("--criterion", text)]
    code = main(["fit", *ROWS, *JOINT, *given, "-o", "rule.json", "--report", "r.html", "--card", "card.md"])
    said = capsys.readouterr()
    if "budget:..." in criteria:
        assert code == 2
        assert "write budget:0.2" in said.err
        return
    assert code == 0, said.err
    rule = eh.Rule.from_json((place / "rule.json").read_text())
    assert rule.criterion == combine(criteria)
    table = pq.read_table("val.parquet")
    joint = np.stack([np.column_stack([table[f"p{y}f"], table[f"p{y}m"]]) for y in (0, 1)], axis=1)
    decided = rule.decide(table["p"].to_numpy(), joint)
    found = eh.audit(table["y"].to_numpy(), decided, {"sex": np.array(table["sex"])}, criterion=rule.criterion)
    for verdict in found.verdicts:
        assert verdict.gap.value <= verdict.tolerance + 1e-9
    assert (place / "r.html").exists()
    assert "## Criterion" in (place / "card.md").read_text()
    code = main(["audit", *ROWS, *given, "--json"])
    assert code in (0, 1, 3)
    assert {v["criterion"] for v in json.loads(capsys.readouterr().out)["verdicts"]} == {
        v.criterion for v in found.verdicts
    }


def test_attributes_are_crossed_with_probabilities_of_their_pairs(place, capsys):
    crossed = [*ROWS, "--sensitive", "race", "--criterion", "dp@sex,race"]
    assert main(["fit", *crossed, "-o", "rule.json"]) == 2
    assert "--group-score 'F & u=COLUMN'" in capsys.readouterr().err
    groups = [
        part for g in "FM" for r in "uv" if g + r != "Mv" for part in ("--group-score", f"{g} & {r}=p_{g.lower()}{r}")
    ]
    code = main(["fit", *crossed, *groups, "--tolerance", "0.2", "-o", "rule.json", "--report", "r.html"])
    assert code == 0, capsys.readouterr().err
    rule = eh.Rule.from_json((place / "rule.json").read_text())
    assert rule.attributes == (eh.Intersection("sex", "race"),)
    assert "sex & race" in capsys.readouterr().out
    assert main(["apply", "rule.json", "val.parquet", "-o", "out.parquet"]) == 0
    table = pq.read_table("out.parquet")
    rates = [
        np.mean(
            [
                d
                for d, s, q in zip(*(table[c].to_pylist() for c in ("decision", "sex", "race")), strict=True)
                if (s, q) == pair
            ]
        )
        for pair in (("F", "u"), ("F", "v"), ("M", "u"), ("M", "v"))
    ]
    assert max(rates) - min(rates) <= 0.2 + 1e-9
    assert main(["audit", *crossed, "--tolerance", "0.9"]) == 0
    assert main(["frontier", *crossed, *groups, "--tolerances", "0.3"]) == 0


def test_one_attribute_of_two_needs_probabilities_of_that_one(place, capsys):
    arguments = [*ROWS, "--sensitive", "race", "--criterion", "eo:0.1@sex", *JOINT]
    assert main(["fit", *arguments, "-o", "rule.json"]) == 0, capsys.readouterr().err
    assert eh.Rule.from_json((place / "rule.json").read_text()).attributes == ("sex",)
    assert main(["fit", *ROWS, "--criterion", "budget:0.3", "-o", "rule.json"]) == 0, capsys.readouterr().err
    assert main(["apply", "rule.json", "val.parquet", "-o", "out.parquet"]) == 0, capsys.readouterr().err
    decided = pq.read_table("out.parquet")["decision"].to_numpy()
    assert decided.mean() <= 0.3


def test_confidence_is_promised_in_the_rule_or_refused_with_what_it_would_take(place, capsys):
    group = ["--group-score", "F=p_f"]
    table = pq.read_table("val.parquet")
    p_f = table["p0f"].to_numpy() + table["p1f"].to_numpy()
    pq.write_table(table.append_column("p_f", pa.array(p_f)), "val.parquet")
    code = main(
        [
            "fit",
            *ROWS,
            *group,
            "--tolerance",
            "0.2",
            "--confidence",
            "0.9",
            "-o",
            "r.json",
            "--report",
            "r.html",
            "--card",
            "c.md",
        ]
    )
    assert code == 0, capsys.readouterr().err
    promise = eh.Rule.from_json((place / "r.json").read_text()).learned_from["confidence"]
    assert promise["confidence"] == 0.9
    assert promise["constraints"][0]["certified_upper"] <= 0.2
    assert "With confidence 0.9" in (place / "c.md").read_text()
    capsys.readouterr()
    assert main(["fit", *ROWS, *group, "--tolerance", "0.001", "--confidence", "0.99", "-o", "no.json"]) == 2
    assert "rows" in capsys.readouterr().err
    assert not (place / "no.json").exists()
    for wrong in ("0", "1", "1.5", "nan", "high"):
        assert main(["fit", *ROWS, *group, "--confidence", wrong, "-o", "no.json"]) == 2
        assert "bug in evenhand" not in capsys.readouterr().err
    for level, code in (("0.5", (0, 1, 3)), ("2", (2,))):
        assert main(["audit", *ROWS, "--criterion", "dp", "--confidence", level, "--json"]) in code
        shown = capsys.readouterr()
        assert "bug in evenhand" not in shown.err
