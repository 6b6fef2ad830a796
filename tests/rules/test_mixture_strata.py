"""Mixtures within strata: the optimum over all cells, decisions, files, SQL, and what uses them."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import evenhand as eh
from evenhand.rows import read_rows
from evenhand.rules.determinism import with_determinism
from evenhand.rules.families import StratifiedFamily, family_of
from evenhand.rules.setting import Options, Setting
from oracles import cells_by_linear_program

INSIDE = eh.DemographicParity(within="job")
CRITERIA = {
    "parity": INSIDE,
    "odds": eh.EqualizedOdds(within="job"),
    "with a budget": INSIDE & eh.SelectionBudget(upper=0.35),
    "with parity of all": INSIDE & eh.DemographicParity(tolerance=0.02),
}


def draw(seed, n=240, strata=("w", "x", "y"), *, known=False):
    """Return rows whose scores and shares of groups differ between strata, and each row's stratum."""
    rng = np.random.default_rng(seed)
    job, group = np.arange(n) % len(strata), (np.arange(n) // len(strata)) % 2
    p_y = 1 / (1 + np.exp(-(rng.normal(size=n) + 0.7 * group * (1 + job) / len(strata) - 0.3)))
    y = (rng.random(n) < p_y).astype(int)
    first = np.arange(min(n, 8 * len(strata)))
    y[first] = (first // (2 * len(strata))) % 2
    share = np.full((n, 2), 0.0) if known else rng.dirichlet(np.ones(2), n) * 0.5
    share[np.arange(n), group] += 1.0 if known else 0.5
    joint = np.stack([share * (1 - p_y)[:, None], share * p_y[:, None]], axis=1)
    return (y, group, p_y, joint), np.array(strata)[job]


def setting_within(rows, job, criterion, **options):
    found = Options(criterion=criterion, **options)
    return Setting.of(read_rows(*rows, criterion=criterion, strata=job), found)


def best_over_all_cells(family, problem):
    """Return the optimum of a linear program over every rule of every stratum, or None."""
    utility, values, each = [], [], []
    for place, stratum in enumerate(family.strata):
        part = family._part(problem, stratum)
        arrays = np.column_stack([part.margin, part.contrasts])
        for decisions in [part.margin > 0.0, *cells_by_linear_program(arrays)]:
            chosen = np.asarray(decisions)
            utility.append(part.gain[chosen].sum())
            values.append(part.effects[chosen].sum(axis=0))
            each.append(place)
    matrix = np.vstack([np.array(values).T, -np.array(values).T])
    limits = np.concatenate([problem.upper[0], -problem.lower[0]])
    finite, rows = np.isfinite(limits), (np.array(each) == np.arange(len(family.strata))[:, None]).astype(float)
    result = linprog(-np.array(utility), matrix[finite], limits[finite], rows, np.ones(len(rows)))
    return None if result.status == 2 else problem.offset - result.fun


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(CRITERIA)),
    tolerance=st.sampled_from([0.0, 0.05, 0.2]),
)
def test_the_mixtures_of_the_strata_are_the_optimum_over_all_rules(seed, name, tolerance):
    rows, job = draw(seed, 16, ("x", "y"))
    family = family_of(setting_within(rows, job, CRITERIA[name]))
    assert isinstance(family, StratifiedFamily)
    truth = best_over_all_cells(family, family.problem(tolerance))
    if truth is None:
        with pytest.raises(eh.InfeasibleError, match="No mixture"):
            eh.learn_rule(*rows, strata=job, criterion=CRITERIA[name], tolerance=tolerance, randomize=True)
        return
    mixed = eh.learn_rule(*rows, strata=job, criterion=CRITERIA[name], tolerance=tolerance, randomize=True)
    assert mixed.solution_.status == "optimal"
    assert mixed.solution_.utility == pytest.approx(truth, abs=1e-7)
    assert len(mixed.rules) <= len(mixed.solution_.values) + 1


@pytest.mark.parametrize("name", sorted(CRITERIA))
@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_it_meets_the_bounds_on_average_and_no_rule_is_better(name, tolerance):
    rows, job = draw(1)
    mixed = eh.learn_rule(*rows, strata=job, criterion=CRITERIA[name], tolerance=tolerance, randomize=True)
    expected = mixed.expected_decision(*rows[2:], strata=job)
    assert mixed.solution_.utility == pytest.approx(np.mean(np.where(rows[0] == 1, expected, 1 - expected)))
    for stratum in np.unique(job):
        for label in (0, 1) if name == "odds" else (None,):
            inside = (job == stratum) & (True if label is None else rows[0] == label)
            gap = expected[inside & (rows[1] == 1)].mean() - expected[inside & (rows[1] == 0)].mean()
            assert abs(gap) <= tolerance + 1e-8
    if name == "with a budget":
        assert expected.mean() <= 0.35 + 1e-8
    search = eh.Certified(max_nodes=2000)
    try:
        single = eh.learn_rule(*rows, strata=job, criterion=CRITERIA[name], tolerance=tolerance, search=search)
    except eh.InfeasibleError:
        return
    assert single.solution_.utility <= mixed.solution_.upper_bound + 1e-9


def test_known_groups_have_thresholds_of_each_stratum():
    rows, job = draw(3, known=True)
    mixed = eh.learn_rule(*rows, strata=job, criterion=CRITERIA["odds"], tolerance=0.0, randomize=True)
    assert max(map(abs, mixed.solution_.values)) <= 1e-8
    alone = []
    for stratum in np.unique(job):
        own = tuple(array[job == stratum] for array in rows)
        alone.append(eh.learn_rule(*own, criterion="eo", tolerance=0.0, randomize=True).solution_.utility)
    assert mixed.solution_.utility == pytest.approx(np.mean(alone))


def test_strata_that_nothing_connects_are_as_if_learnt_alone():
    rows, job = draw(5)
    mixed = eh.learn_rule(*rows, strata=job, criterion=INSIDE, tolerance=0.01, randomize=True)
    for stratum in np.unique(job):
        own = tuple(array[job == stratum] for array in rows)
        alone = eh.learn_rule(*own, criterion="dp", tolerance=0.01, randomize=True)
        expected = mixed.for_stratum(stratum).expected_decision(*own[2:])
        assert np.mean(np.where(own[0] == 1, expected, 1 - expected)) == pytest.approx(alone.solution_.utility)
        weights = mixed.learned_from["strata"][f"job={stratum}"]["weights"]
        assert sorted(weights) == pytest.approx(sorted(mixed.for_stratum(stratum).weights))


@pytest.fixture(scope="module")
def learnt():
    rows, job = draw(7, 300)
    thin = eh.EqualizedOdds(within="job", thin=5)
    return eh.learn_rule(*rows, strata=job, criterion=thin, tolerance=0.02, randomize=True), rows, job


def test_decisions_are_drawn_by_the_chance_of_the_rows_own_stratum(learnt):
    mixed, rows, job = learnt
    expected = mixed.expected_decision(*rows[2:], strata=job)
    by_hand = np.zeros(len(job))
    for rule, weight in zip(mixed.rules, mixed.weights, strict=True):
        by_hand += weight * (rule.decision_function(*rows[2:], strata=job) > 0.0)
    np.testing.assert_allclose(expected, by_hand, atol=1e-12)
    keys = np.arange(len(job))
    decided = mixed.decide(*rows[2:], strata=job, key=keys)
    np.testing.assert_array_equal(decided == 1, mixed.lots(*rows[2:], key=keys) < expected)
    receipts = mixed.explain(*rows[2:], strata=job, key=keys)
    assert [receipt.decision for receipt in receipts] == decided.tolist()
    assert receipts[0].weights == mixed.for_stratum(job[0]).weights
    some = slice(10, 30)
    again = mixed.decide(rows[2][some], rows[3][some], strata=job[some], key=keys[some])
    np.testing.assert_array_equal(again, decided[some])


def test_rows_of_new_strata_are_left_to_the_model_or_refused(learnt):
    mixed, rows, job = learnt
    new = np.where(np.arange(len(job)) < 10, "z", job)
    expected = mixed.expected_decision(*rows[2:], strata=new)
    np.testing.assert_array_equal(expected[:10], rows[2][:10] > 0.5)
    strict = eh.learn_rule(*rows, strata=job, criterion=INSIDE, tolerance=0.02, randomize=True)
    with pytest.raises(eh.InputError, match="'z'"):
        strict.decide(*rows[2:], strata=new)
    with pytest.raises(eh.InputError, match="strata"):
        strict.decide(*rows[2:])
    plain = eh.learn_rule(*rows, tolerance=0.02, randomize=True)
    with pytest.raises(eh.InputError, match="within="):
        plain.decide(*rows[2:], strata=job)


@pytest.mark.parametrize("budget", [False, True])
def test_thin_strata_are_the_models_unless_a_bound_on_everyone_reaches_them(budget):
    rows, job = draw(9, 300)
    job = np.where(np.arange(300) < 6, "few", job)
    inside = eh.DemographicParity(within="job", thin=20)
    criterion = inside & eh.SelectionBudget(upper=0.4) if budget else inside
    with pytest.warns(eh.EvenhandWarning, match="left to the model"):
        mixed = eh.learn_rule(*rows, strata=job, criterion=criterion, tolerance=0.02, randomize=True)
    expected = mixed.expected_decision(*rows[2:], strata=job)
    if budget:
        assert expected.mean() <= 0.4 + 1e-9
        assert mixed.for_stratum("few") == mixed.for_stratum("new")
        assert mixed.learned_from["strata"]["job=(not compared)"]["rows"] == 6
    else:
        np.testing.assert_array_equal(expected[:6], rows[2][:6] > 0.5)
        assert len(mixed.learned_from["strata"]) == 3
    assert mixed.solution_.utility == pytest.approx(np.mean(np.where(rows[0] == 1, expected, 1 - expected)))


def test_json_is_exact(learnt):
    mixed = learnt[0]
    assert eh.Mixture.from_json(mixed.to_json()) == mixed
    assert json.loads(mixed.to_json())["weights"] == list(mixed.weights)


def test_sql_draws_as_python_does(learnt):
    mixed, rows, job = learnt
    connection = sqlite3.connect(":memory:")
    cells = {(label, group): f"p{label}{group}" for label in (0, 1) for group in (0, 1)}
    columns = {"p": rows[2], "id": np.arange(len(job)), "work": np.where(np.arange(len(job)) < 5, "new", job)}
    columns |= {name: rows[3][:, label, group] for (label, group), name in cells.items()}
    pd.DataFrame(columns).to_sql("t", connection, index=False)
    for output, key in (("decision", "id"), ("decision", None), ("expected_decision", None), ("lot", None)):
        text = mixed.to_sql(p_y="p", p_group=cells, key=key, dialect="sqlite", output=output, strata={"job": "work"})
        found = [row[0] for row in connection.execute(f"SELECT {text} FROM t ORDER BY id")]
        given = {"strata": columns["work"]} | ({"key": columns["id"]} if key else {})
        method = {"decision": mixed.decide, "expected_decision": mixed.expected_decision, "lot": mixed.lots}[output]
        np.testing.assert_array_equal(found, method(*rows[2:], **given))


def test_safety_and_balanced_accuracy_go_with_strata():
    rows, job = draw(11, 600)
    mixed = eh.learn_rule(*rows, strata=job, criterion=INSIDE, tolerance=0.2, safety=1.0, randomize=True)
    used, asked = np.array(mixed.solution_.used), np.array(mixed.solution_.asked)
    assert (used[:, 1] < asked[:, 1]).all()
    assert (np.abs(mixed.solution_.values) <= used[:, 1] + 1e-9).all()
    balanced = eh.learn_rule(
        *rows, strata=job, criterion=INSIDE, tolerance=0.0, objective="balanced_accuracy", randomize=True
    )
    expected = balanced.expected_decision(*rows[2:], strata=job)
    truth = (expected[rows[0] == 1].mean() + (1 - expected[rows[0] == 0]).mean()) / 2
    assert balanced.solution_.utility == pytest.approx(truth)
    assert balanced.solution_.status == "optimal"


def test_the_cost_of_determinism_is_that_of_all_strata():
    rows, job = draw(7)
    setting = setting_within(rows, job, INSIDE)
    rule = eh.learn_rule(*rows, strata=job, criterion=INSIDE, tolerance=0.05)
    mixed = eh.learn_rule(*rows, strata=job, criterion=INSIDE, tolerance=0.05, randomize=True)
    noted = with_determinism(rule, setting.rows, setting.options).learned_from["determinism"]
    assert noted["cost"] == pytest.approx(mixed.solution_.utility - rule.solution_.utility)
    assert noted["cost"] > 0.0


def test_the_classifier_its_report_and_its_card_use_them(tmp_path):
    rows, job = draw(13, 400)
    X = pd.DataFrame({"score": np.log(rows[2] / (1 - rows[2])), "group": rows[1], "job": job})
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(make_column_transformer(("passthrough", ["score", "group"])), LogisticRegression())
    fair = eh.FairClassifier(
        model, criterion=INSIDE, tolerance=0.02, safety=0.0, randomize=True, random_state=0, cv=2
    ).fit(X, rows[0], sensitive_features=rows[1])
    keys = np.arange(len(X))
    p_y, p_group = fair.probabilities(X)
    np.testing.assert_array_equal(fair.predict(X, key=keys), fair.rule_.decide(p_y, p_group, key=keys))
    np.testing.assert_array_equal(fair.expected_decision(X), fair.rule_.expected_decision(p_y, p_group))
    spread = {name: p_group[name] for name in ("group", "sensitive_features") if name in p_group}
    base = next(iter(spread.values()))
    np.testing.assert_array_equal(fair.expected_decision(X), fair.rule_.expected_decision(p_y, base, strata=job))
    assert [r.decision for r in fair.explain(X, key=keys)] == fair.predict(X, key=keys).tolist()
    report = fair.report(X, rows[0], sensitive_features=rows[1])
    step = report.summary["steps"][report.summary["chosen"]]
    assert [each["stratum"] for each in step["mixture"]["strata"]] == ["w", "x", "y"]
    assert "rules in each of 3 strata" in report.html()
    path = tmp_path / "fair.skops"
    eh.io.save(fair, path)
    np.testing.assert_array_equal(eh.io.load(path).predict(X, key=keys), fair.predict(X, key=keys))
