"""Predictive parity within strata: each stratum has its own level of precision, its own search and its own proof."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.cli import main
from evenhand.cli.criterion import parse
from evenhand.rows import read_rows
from evenhand.rules import levels
from evenhand.rules.ladder import takes_long
from evenhand.rules.setting import Options, Setting
from problems import every_rule, few_rows, setting_of, spread

INSIDE = eh.PredictiveParity(within="job")
N = 600
DATA = eh.datasets.make_zafar(N, random_state=3)
JOB = np.array(["x", "y", "z"])[np.random.default_rng(0).integers(0, 3, N)]
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)


def inside(rows, job, value):
    return tuple(np.asarray(column)[job == value] for column in rows)


def gaps(rows, job, decided):
    """Return each stratum's difference of precisions, counted here."""
    return {value: spread(*(c[job == value] for c in (rows[0], rows[1], decided))) for value in np.unique(job)}


def learnt_from(rows, job):
    return Setting.of(read_rows(*rows, criterion=INSIDE, strata=job), Options(criterion=INSIDE))


@pytest.fixture(scope="module")
def learnt():
    return eh.learn_rule(*ROWS, criterion=INSIDE, tolerance=0.05, strata=JOB)


# The optimum ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_rule_is_the_optimum_over_every_rule_of_both_strata(seed):
    strata = {"a": few_rows(seed, n=10), "b": few_rows(seed + 100, n=12)}
    rows = tuple(np.concatenate(columns) for columns in zip(*strata.values(), strict=True))
    job = np.repeat(list(strata), [len(part[0]) for part in strata.values()])
    rules = {name: every_rule(setting_of(*part, criterion="predictive_parity")) for name, part in strata.items()}
    for tolerance in (0.05, 0.2, 0.5):
        best, lost = 0.0, []
        for name, (y, group, _, _) in strata.items():
            fair = [np.sum(d == y) for d in rules[name] if spread(y, group, d) <= tolerance + 1e-12]
            best += max(fair, default=0)
            lost += [] if fair else [name]
        if lost:
            with pytest.raises(eh.InfeasibleError, match=f"Within job={lost[0]}"):
                eh.learn_rule(*rows, criterion=INSIDE, tolerance=tolerance, strata=job)
            continue
        rule = eh.learn_rule(*rows, criterion=INSIDE, tolerance=tolerance, strata=job)
        assert (rule.solution_.status, rule.solution_.gap) == ("optimal", 0.0)
        assert rule.solution_.utility == pytest.approx(best / len(job), abs=1e-12)
        decided = rule.decide(rows[2], rows[3], strata=job).astype(bool)
        found = gaps(rows, job, decided)
        assert max(found.values()) <= tolerance + 1e-9
        assert np.abs(rule.solution_.values) == pytest.approx(list(found.values()), abs=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"evidence": "both"},
        {"costs": (1, 2), "sample_weight": np.tile([1.0, 2.0, 0.5], N // 3)},
        {"safety": 0.5, "tolerance": 0.3},
    ],
    ids=lambda options: ", ".join(options) or "plain",
)
def test_every_stratum_is_decided_as_if_it_were_learnt_alone(options):
    options = {"tolerance": 0.05, **options}
    weight = options.get("sample_weight", np.ones(N))
    rule = eh.learn_rule(*ROWS, criterion=INSIDE, strata=JOB, **options)
    decided = rule.decide(DATA.p_y, DATA.p_joint, strata=JOB)
    total, values = 0.0, []
    for value in ("x", "y", "z"):
        own = options | ({"sample_weight": weight[value == JOB]} if "sample_weight" in options else {})
        part = inside(ROWS, JOB, value)
        alone = eh.learn_rule(*part, criterion=eh.PredictiveParity(), **own)
        np.testing.assert_array_equal(decided[value == JOB], alone.decide(*part[2:]))
        total += alone.solution_.utility * weight[value == JOB].sum() / weight.sum()
        values += alone.solution_.values
        used = alone.solution_.used
        assert used is None or used[0] in rule.solution_.used
    assert rule.solution_.utility == pytest.approx(total, abs=1e-12)
    assert rule.solution_.values == pytest.approx(values, abs=1e-12)
    assert rule.solution_.status == "optimal"
    assert len(rule.learned_from["strata"]) == 3


def test_the_gaps_of_strata_without_a_proof_add_up(monkeypatch):
    monkeypatch.setattr(levels, "MOST_RANGES", 2)
    rule = eh.learn_rule(*ROWS, criterion=INSIDE, tolerance=0.25, strata=JOB)
    entries = rule.learned_from["strata"].values()
    assert rule.solution_.status == "gap"
    assert rule.solution_.gap == pytest.approx(sum(entry["gap"] * entry["rows"] / N for entry in entries))
    monkeypatch.undo()
    proven = eh.learn_rule(*ROWS, criterion=INSIDE, tolerance=0.25, strata=JOB).solution_
    assert rule.solution_.utility <= proven.utility <= rule.solution_.upper_bound


def test_balanced_accuracy_is_that_of_all_rows():
    y = np.where(np.arange(N) % 4 == 0, 0, DATA.y)
    rows = (y, *ROWS[1:])
    rule = eh.learn_rule(*rows, criterion=INSIDE, tolerance=0.1, strata=JOB, objective="balanced_accuracy")
    share = y.mean()
    costs = (0.5 / (1 - share), 0.5 / share)
    same = eh.learn_rule(*rows, criterion=INSIDE, tolerance=0.1, strata=JOB, costs=costs)
    decided = rule.decide(DATA.p_y, DATA.p_joint, strata=JOB)
    np.testing.assert_array_equal(decided, same.decide(DATA.p_y, DATA.p_joint, strata=JOB))
    rates = [(decided[y == label] == label).mean() for label in (0, 1)]
    assert rule.solution_.utility == pytest.approx(np.mean(rates), abs=1e-12)
    assert (rule.solution_.status, rule.solution_.gap) == ("optimal", 0.0)


def test_other_criteria_within_the_same_strata_hold_too():
    criterion = INSIDE & eh.DemographicParity(within="job", tolerance=0.1)
    rule = eh.learn_rule(*ROWS, criterion=criterion, tolerance=0.3, strata=JOB, search="smoothed")
    decided = rule.decide(DATA.p_y, DATA.p_joint, strata=JOB).astype(bool)
    assert max(gaps(ROWS, JOB, decided).values()) <= 0.3 + 1e-9
    for value in ("x", "y", "z"):
        rates = [decided[(value == JOB) & (DATA.group == g)].mean() for g in np.unique(DATA.group)]
        assert np.ptp(rates) <= 0.1 + 1e-9


# Where it can be used ---------------------------------------------------------------------------------


def test_json_sql_and_the_rule_of_one_stratum_decide_the_same(learnt):
    decided = learnt.decide(DATA.p_y, DATA.p_joint, strata=JOB)
    again = eh.Rule.from_json(learnt.to_json())
    assert again == learnt
    np.testing.assert_array_equal(again.decide(DATA.p_y, DATA.p_joint, strata=JOB), decided)
    at = JOB == "y"
    np.testing.assert_array_equal(learnt.for_stratum("y").decide(DATA.p_y[at], DATA.p_joint[at]), decided[at])
    names = {(label, g): f"p{label}{g}" for label in (0, 1) for g in learnt.groups["group"]}
    columns = dict(zip(names.values(), DATA.p_joint.reshape(N, 4).T, strict=True))
    frame = pd.DataFrame({"p": DATA.p_y, "job": JOB, **columns})
    with sqlite3.connect(":memory:") as base:
        frame.to_sql("scores", base)
        text = learnt.to_sql(p_y="p", p_group=names, strata={"job": "job"}, dialect="sqlite")
        found = [row[0] for row in base.execute(f"SELECT {text} FROM scores ORDER BY rowid")]
    np.testing.assert_array_equal(found, decided)


def test_the_audit_measures_what_was_learnt(learnt):
    decided = learnt.decide(DATA.p_y, DATA.p_joint, strata=JOB)
    (verdict,) = eh.audit(DATA.y, decided, {"group": DATA.group}, criterion=INSIDE, strata=JOB).verdicts
    assert {s.stratum: s.gap.value for s in verdict.strata} == pytest.approx(gaps(ROWS, JOB, decided.astype(bool)))
    assert max(s.gap.value for s in verdict.strata) <= 0.05 + 1e-9


def test_a_frontier_has_the_rule_of_each_tolerance(learnt):
    curve = eh.frontier(*ROWS, criterion=INSIDE, tolerances=[0.02, 0.05, 0.3], strata=JOB)
    assert (np.diff(curve.utilities) >= 0.0).all()
    assert (curve.gaps <= curve.tolerances + 1e-9).all()
    assert curve.rule_at(0.05).solution_.utility == learnt.solution_.utility
    assert all(point.rule.solution_.status == "optimal" for point in curve)
    # Each stratum is in the plane, so that a frontier's points are proven, also without given tolerances.
    assert not takes_long(learnt_from(ROWS, JOB))
    replaced = curve.with_rule(0.05, learnt)
    assert replaced.gaps == pytest.approx(curve.gaps)
    assert replaced.gaps[1] > 0.0


def test_strata_with_few_rows_are_left_to_the_model():
    job = np.where(np.arange(N) < 6, "few", JOB)
    with pytest.warns(eh.EvenhandWarning, match="1 of 4 strata are left to the model's own decisions"):
        rule = eh.learn_rule(*ROWS, criterion=eh.PredictiveParity(within="job", thin=8), tolerance=0.05, strata=job)
    decided = rule.decide(DATA.p_y, DATA.p_joint, strata=job)
    np.testing.assert_array_equal(decided[:6], DATA.p_y[:6] > 0.5)
    assert rule.solution_.utility == pytest.approx((decided == DATA.y).mean(), abs=1e-12)


def test_each_stratum_is_certified():
    data = eh.datasets.make_zafar(4000, random_state=1)
    job = np.where(np.arange(4000) % 2, "x", "y")
    rows = (data.y, data.group, data.p_y, data.p_joint)
    rule = eh.learn_rule(*rows, criterion=INSIDE, tolerance=0.45, confidence=0.8, strata=job, random_state=0)
    entry = rule.learned_from["confidence"]
    assert entry["confidence_in_each_stratum"] == pytest.approx(0.9)
    names = {one["name"] for one in entry["constraints"]}
    assert names == {f"precision(group=0, job={value}) - precision(group=1, job={value})" for value in ("x", "y")}
    assert max(one["certified_upper"] for one in entry["constraints"]) <= 0.45


def test_the_command_line_fits_it(tmp_path, monkeypatch, capsys):
    assert parse("pp within job thin 5") == eh.PredictiveParity(within="job", thin=5)
    monkeypatch.chdir(tmp_path)
    columns = {f"p{label}_{group}": DATA.p_joint[:, label, group] for label in (0, 1) for group in (0, 1)}
    sex = np.where(DATA.group == "1", "M", "F")
    pd.DataFrame({"y": DATA.y, "sex": sex, "p": DATA.p_y, "job": JOB, **columns}).to_csv("scores.csv", index=False)
    scores = [f"--joint-score={label},{sex}=p{label}_{g}" for label in (0, 1) for g, sex in enumerate("FM")]
    fit = ["fit", "scores.csv", "--label", "y", "--score", "p", "--sensitive", "sex", *scores, "--safety", "0"]
    assert main([*fit, "--criterion", "pp within job", "--tolerance", "0.05", "-o", "rule.json"]) == 0
    rule = json.loads((tmp_path / "rule.json").read_text())
    assert (rule["criterion"]["within"], rule["solution"]["status"]) == ("job", "optimal")
    assert "sex within job" in capsys.readouterr().out


# What is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "f1"},
        {"criterion": INSIDE & eh.SelectionBudget(upper=0.3)},
        {"criterion": INSIDE & eh.PredictiveParity()},
        {"criterion": INSIDE & eh.DemographicParity(within="floor")},
        {"objective": "balanced_accuracy", "evidence": "both"},
    ],
    ids=["F score", "budget", "over all rows too", "two columns", "two shares"],
)
def test_strata_that_depend_on_each_other_are_refused(options):
    strata = {"job": JOB, "floor": np.arange(N) % 2}
    wanted = {"criterion": INSIDE, **options}
    strata = {name: strata[name] for name in wanted["criterion"].strata}
    with pytest.raises(eh.InputError, match="is searched in each stratum separately"):
        eh.learn_rule(*ROWS, tolerance=0.1, strata=strata, **wanted)


def test_a_mixture_is_refused():
    with pytest.raises(eh.InputError, match="randomize=True does not support PredictiveParity within strata"):
        eh.learn_rule(*ROWS, criterion=INSIDE, tolerance=0.1, strata=JOB, randomize=True)
