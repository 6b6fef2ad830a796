"""Mixtures within strata of several columns: each combination of their values has its own rules and weights."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sqlite3

import duckdb
import numpy as np
import onnxruntime
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import evenhand as eh
from evenhand.engines import arrow
from evenhand.engines import duckdb as duckdb_engine
from evenhand.export.onnx import rule_to_onnx
from evenhand.rules import families
from evenhand.rules.mixture import read_rule
from oracles import cells_by_linear_program

BOTH = eh.DemographicParity(within="job") & eh.DemographicParity(within="floor")


def draw(seed, n=240, jobs=3, *, known=False):
    """Return rows whose scores and shares of groups differ between combinations, and the two columns of strata."""
    rng = np.random.default_rng(seed)
    job, floor = np.arange(n) % jobs, (np.arange(n) // jobs) % 2
    # The groups' shares differ between the strata of both columns, otherwise the contrasts of both would be the same.
    group = (rng.random(n) < 0.25 + 0.2 * job + 0.2 * floor).astype(int)
    group[: 4 * jobs] = (np.arange(4 * jobs) // (2 * jobs)) % 2
    p_y = 1 / (1 + np.exp(-(rng.normal(size=n) + 0.8 * group * (1 + job - floor) - 0.3)))
    y = (rng.random(n) < p_y).astype(int)
    first = np.arange(min(n, 8 * jobs))
    y[first] = (first // (4 * jobs)) % 2
    share = np.zeros((n, 2)) if known else rng.dirichlet(np.ones(2), n) * 0.5
    share[np.arange(n), group] += 1.0 if known else 0.5
    joint = np.stack([share * (1 - p_y)[:, None], share * p_y[:, None]], axis=1)
    return (y, group, p_y, joint), {"job": np.array(list("wxyz"))[job], "floor": floor + 1}


def in_each_cell(strata):
    for cell in sorted(set(zip(*(column.tolist() for column in strata.values()), strict=True))):
        yield (
            cell,
            np.logical_and.reduce([column == value for column, value in zip(strata.values(), cell, strict=True)]),
        )


def best_by_hand(rows, strata, tolerance):
    """Return the best accuracy of mixtures of every rule of every combination, or None: from the definitions alone."""
    y, group, p_y, joint = rows
    n, p_group = len(y), joint.sum(axis=1)
    densities, effects = [], []
    for column in strata.values():
        for value in np.unique(column):
            inside = column == value
            shares = [(inside & (group == g)).sum() / inside.sum() for g in (0, 1)]
            densities.append(inside * (p_group[:, 0] / shares[0] - p_group[:, 1] / shares[1]))
            rates = [(inside & (group == g)) / (inside & (group == g)).sum() for g in (0, 1)]
            effects.append(rates[0] - rates[1])
    densities, effects = np.array(densities).T, np.array(effects).T
    utility, values, each = [], [], []
    for place, (_, inside) in enumerate(in_each_cell(strata)):
        own = densities[inside]
        arrays = np.column_stack([2 * p_y[inside] - 1, own[:, own.any(axis=0)]])
        for decisions in [arrays[:, 0] > 0.0, *map(np.asarray, cells_by_linear_program(arrays))]:
            utility.append((decisions == y[inside]).sum() / n)
            values.append(effects[inside][decisions].sum(axis=0))
            each.append(place)
    matrix = np.vstack([np.array(values).T, -np.array(values).T])
    ones = (np.array(each) == np.arange(max(each) + 1)[:, None]).astype(float)
    found = linprog(-np.array(utility), matrix, np.full(len(matrix), tolerance), ones, np.ones(len(ones)))
    return None if found.status == 2 else -found.fun


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), tolerance=st.sampled_from([0.0, 0.05, 0.2]))
def test_it_is_the_optimum_over_every_rule_of_every_combination(seed, tolerance):
    rows, strata = draw(seed, 20, jobs=2)
    truth = best_by_hand(rows, strata, tolerance)
    if truth is None:
        with pytest.raises(eh.InfeasibleError, match="No mixture"):
            eh.learn_rule(*rows, strata=strata, criterion=BOTH, tolerance=tolerance, randomize=True)
        return
    mixed = eh.learn_rule(*rows, strata=strata, criterion=BOTH, tolerance=tolerance, randomize=True)
    assert mixed.solution_.status == "optimal"
    assert mixed.solution_.utility == pytest.approx(truth, abs=1e-7)
    assert len(mixed.rules) <= len(mixed.solution_.values) + 1


CRITERIA = {
    "parities": BOTH,
    "three columns": BOTH & eh.EqualOpportunity(within="town", tolerance=0.1),
    "with a budget": BOTH & eh.SelectionBudget(upper=0.35),
    "with parity of all": eh.DemographicParity(within="floor")
    & eh.EqualOpportunity(within="job")
    & eh.SelectionRatio(0.9),
}


@pytest.mark.parametrize("name", CRITERIA)
def test_it_meets_the_bounds_on_average_and_no_rule_is_better(name):
    rows, strata = draw(1, 360)
    strata["town"] = np.arange(360) // 3 % 3
    criterion = CRITERIA[name]
    strata = {column: strata[column] for column in criterion.strata}
    mixed = eh.learn_rule(*rows, strata=strata, criterion=criterion, tolerance=0.02, randomize=True)
    expected = mixed.expected_decision(*rows[2:], strata=strata)
    assert mixed.solution_.utility == pytest.approx(np.mean(np.where(rows[0] == 1, expected, 1 - expected)))
    assert mixed.solution_.status == "optimal"

    def gap(inside):
        return expected[inside & (rows[1] == 1)].mean() - expected[inside & (rows[1] == 0)].mean()

    for part in criterion.parts:
        if part.strata:
            column, limit = strata[part.within], 0.02 if part.tolerance is None else part.tolerance
            among = rows[0] == 1 if isinstance(part, eh.EqualOpportunity) else np.ones(360, dtype=bool)
            assert max(abs(gap(among & (column == value))) for value in np.unique(column)) <= limit + 1e-8
    if name == "with a budget":
        assert expected.mean() <= 0.35 + 1e-8
    if name == "with parity of all":
        rates = [expected[rows[1] == g].mean() for g in (0, 1)]
        assert min(rates) >= 0.9 * max(rates) - 1e-8
    with_lots = mixed.solution_.upper_bound
    try:
        single = eh.learn_rule(*rows, strata=strata, criterion=criterion, tolerance=0.02, search="smoothed")
    except eh.InfeasibleError:
        return
    assert single.solution_.utility <= with_lots + 1e-9


def test_a_second_column_with_one_value_is_a_bound_over_all_rows():
    rows, strata = draw(5)
    inside = BOTH.parts[0]
    plain = inside & eh.DemographicParity(tolerance=0.05)
    one = eh.learn_rule(*rows, strata=strata["job"], criterion=plain, tolerance=0.01, randomize=True)
    crossed = inside & eh.DemographicParity(within="floor", tolerance=0.05)
    same = {"job": strata["job"], "floor": np.ones(240)}
    both = eh.learn_rule(*rows, strata=same, criterion=crossed, tolerance=0.01, randomize=True)
    assert both.solution_.utility == pytest.approx(one.solution_.utility, abs=1e-9)
    expected = one.expected_decision(*rows[2:], strata=strata["job"])
    np.testing.assert_allclose(both.expected_decision(*rows[2:], strata=same).mean(), expected.mean(), atol=1e-6)


def test_known_groups_and_an_f_score_go_with_combinations():
    rows, strata = draw(3, 80, jobs=2, known=True)
    mixed = eh.learn_rule(*rows, strata=strata, criterion=BOTH, tolerance=0.0, randomize=True)
    assert (mixed.solution_.status, max(map(abs, mixed.solution_.values)) <= 1e-8) == ("optimal", True)
    score = eh.learn_rule(*rows, strata=strata, criterion=BOTH, tolerance=0.02, objective="f1", randomize=True)
    expected = score.expected_decision(*rows[2:], strata=strata)
    truth = 2 * expected[rows[0] == 1].sum() / (expected.sum() + rows[0].sum())
    assert score.solution_.utility == pytest.approx(truth)
    assert score.solution_.utility <= score.solution_.upper_bound


@pytest.fixture(scope="module")
def learnt():
    rows, strata = draw(7, 300)
    thin = eh.DemographicParity(within="job", thin=5) & eh.EqualOpportunity(within="floor", thin=5)
    return eh.learn_rule(*rows, strata=strata, criterion=thin, tolerance=0.02, randomize=True), rows, strata


def test_decisions_are_drawn_by_the_chance_of_the_rows_own_combination(learnt):
    mixed, rows, strata = learnt
    assert mixed.strata == ("job", "floor")
    expected = mixed.expected_decision(*rows[2:], strata=strata)
    by_hand = np.zeros(300)
    for rule, weight in zip(mixed.rules, mixed.weights, strict=True):
        by_hand += weight * (rule.decision_function(*rows[2:], strata=strata) > 0.0)
    np.testing.assert_allclose(expected, by_hand, atol=1e-12)
    keys = np.arange(300)
    decided = mixed.decide(*rows[2:], strata=strata, key=keys)
    np.testing.assert_array_equal(decided == 1, mixed.lots(*rows[2:], key=keys) < expected)
    receipts = mixed.explain(*rows[2:], strata=strata, key=keys)
    assert [receipt.decision for receipt in receipts] == decided.tolist()
    for cell, inside in in_each_cell(strata):
        own = mixed.for_stratum(cell)
        assert own == mixed.for_stratum(dict(zip(("job", "floor"), cell, strict=True)))
        np.testing.assert_array_equal(own.expected_decision(rows[2][inside], rows[3][inside]), expected[inside])
        entry = mixed.learned_from["strata"][f"job={cell[0]}, floor={cell[1]}"]
        assert entry["rows"] == inside.sum()
        assert sorted(entry["weights"]) == pytest.approx(sorted(own.weights))


def test_combinations_that_are_equal_as_text_are_told_apart():
    rows, strata = draw(2, 300)
    floor = np.array([1, "1"], dtype=object)[(strata["floor"] == strata["floor"][0]).astype(int)]
    mixed = eh.learn_rule(
        *rows, criterion=BOTH, tolerance=0.1, strata={"job": strata["job"], "floor": floor}, randomize=True
    )
    entries = mixed.learned_from["strata"]
    assert sum(entry["rows"] for entry in entries.values()) == 300
    assert {"job='w', floor=1", "job='w', floor='1'"} <= entries.keys()


def test_rows_of_new_combinations_are_left_to_the_model_or_refused(learnt):
    mixed, rows, strata = learnt
    new = {"job": strata["job"], "floor": np.where(np.arange(300) < 10, 9, strata["floor"])}
    np.testing.assert_array_equal(mixed.expected_decision(*rows[2:], strata=new)[:10], rows[2][:10] > 0.5)
    strict = eh.learn_rule(*rows, strata=strata, criterion=BOTH, tolerance=0.02, randomize=True)
    with pytest.raises(eh.InputError, match=r"\('w', 9\).*did not occur"):
        strict.decide(*rows[2:], strata=new)
    with pytest.raises(eh.InputError, match="no column 'floor'"):
        strict.decide(*rows[2:], strata={"job": strata["job"]})
    # Both values are known, but not together.
    kept = ~((strata["job"] == "w") & (strata["floor"] == 2))
    some = {name: column[kept] for name, column in strata.items()}
    without = eh.learn_rule(
        *(column[kept] for column in rows), strata=some, criterion=BOTH, tolerance=0.05, randomize=True
    )
    with pytest.raises(eh.InputError, match=r"\('w', 2\)"):
        without.decide(*rows[2:], strata=strata)


def test_thin_strata_of_one_column_keep_the_bounds_of_the_other():
    rows, strata = draw(9, 300)
    strata["job"] = np.where(np.arange(300) < 6, "few", strata["job"])
    criterion = eh.DemographicParity(within="job", thin=20) & eh.DemographicParity(within="floor", thin=20)
    with pytest.warns(eh.EvenhandWarning, match="left to the model"):
        mixed = eh.learn_rule(*rows, strata=strata, criterion=criterion, tolerance=0.0, randomize=True)
    expected = mixed.expected_decision(*rows[2:], strata=strata)
    for floor in (1, 2):
        rates = [expected[(strata["floor"] == floor) & (rows[1] == g)].mean() for g in (0, 1)]
        assert rates[0] == pytest.approx(rates[1], abs=1e-8)
    assert mixed.solution_.utility == pytest.approx(np.mean(np.where(rows[0] == 1, expected, 1 - expected)))


def test_json_is_exact_and_damaged_files_are_refused(learnt):
    mixed = learnt[0]
    text = mixed.to_json()
    assert read_rule(text) == mixed

    def damaged(change):
        data = json.loads(text)
        for rule in data["rules"]:
            (entry,) = [one for one in rule["within"].values() if "columns" in one]
            change(rule, entry)
        return json.dumps(data)

    changes = {
        "two or more different": lambda rule, entry: entry.update(columns=["job"]),
        "list of names": lambda rule, entry: entry.update(columns=["job", 3]),
        "value of each": lambda rule, entry: entry.update(columns=["job", "floor", "town"]),
        "do not match its criterion": lambda rule, entry: entry.update(columns=["job", "town"]),
    }
    for message, change in changes.items():
        with pytest.raises(eh.RuleFormatError, match=message):
            eh.Mixture.from_json(damaged(change))


def columns_of(rows, strata):
    cells = {(label, group): f"p{label}{group}" for label in (0, 1) for group in (0, 1)}
    table = {"p": rows[2], "id": np.arange(len(rows[2])), **strata}
    return cells, table | {name: rows[3][:, label, group] for (label, group), name in cells.items()}


def test_sql_draws_as_python_does(learnt):
    mixed, rows, strata = learnt
    new = {"job": np.where(np.arange(300) < 5, "new", strata["job"]), "floor": strata["floor"]}
    cells, table = columns_of(rows, new)
    with sqlite3.connect(":memory:") as connection:
        pd.DataFrame(table).rename(columns={"job": "work"}).to_sql("t", connection, index=False)
        for output, key in (("decision", "id"), ("decision", None), ("expected_decision", None), ("lot", None)):
            text = mixed.to_sql(
                p_y="p", p_group=cells, key=key, dialect="sqlite", output=output, strata={"job": "work"}
            )
            found = [row[0] for row in connection.execute(f"SELECT {text} FROM t ORDER BY id")]
            given = {"strata": new} | ({"key": table["id"]} if key else {})
            method = {"decision": mixed.decide, "expected_decision": mixed.expected_decision, "lot": mixed.lots}[output]
            np.testing.assert_array_equal(found, method(*rows[2:], **given))


@pytest.mark.parametrize("key", [None, "id"])
@pytest.mark.parametrize("engine", [arrow, duckdb_engine])
def test_engines_draw_as_python_does(engine, key, learnt):
    mixed, rows, strata = learnt
    new = {"job": np.where(np.arange(300) < 5, "new", strata["job"]), "floor": strata["floor"]}
    cells, table = columns_of(rows, new)
    applied = engine.apply(mixed, pa.table(table), p_y="p", p_group=cells, key=key)
    found = (applied.read_all() if engine is arrow else applied.to_arrow_table()).to_pydict()
    keys = {} if key is None else {"key": table["id"]}
    assert found["decision"] == mixed.decide(*rows[2:], strata=new, **keys).tolist()
    assert found["expected_decision"] == mixed.expected_decision(*rows[2:], strata=new).tolist()
    assert found["lot"] == mixed.lots(*rows[2:], strata=new, **keys).tolist()
    scores = mixed.bias_scores(*rows[2:], strata=new)
    for k in range(scores.shape[1]):
        assert np.array(found[f"bias_score_{k + 1}"]) == pytest.approx(scores[:, k], rel=1e-9)


def without_a_combination():
    """Return a mixture that allows no new strata, rows, strata, and rows in a combination that did not occur."""
    rows, strata = draw(1, 360)
    absent = (strata["job"] == "w") & (strata["floor"] == 1)
    kept = [column[~absent] for column in rows]
    known = {name: column[~absent] for name, column in strata.items()}
    mixed = eh.learn_rule(*kept, strata=known, criterion=BOTH, tolerance=0.02, randomize=True)
    return mixed, kept, known, ([column[absent] for column in rows], {n: c[absent] for n, c in strata.items()})


def test_a_combination_of_known_values_that_did_not_occur_is_refused_everywhere(tmp_path):
    mixed, _, _, (rows, strata) = without_a_combination()
    cells, table = columns_of(rows, strata)
    with pytest.raises(eh.InputError, match="did not occur"):
        mixed.decide(*rows[2:], strata=strata)
    with pytest.raises(duckdb.Error, match="did not occur"):
        duckdb_engine.apply(mixed, pa.table(table), p_y="p", p_group=cells, key="id").fetchall()
    rule_to_onnx(mixed, tmp_path / "mixed.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "mixed.onnx"), providers=["CPUExecutionProvider"])
    feeds = {"p_y": rows[2], "p_group": rows[3].sum(axis=1), "key": table["id"].astype(np.int64)}
    inside = {"stratum_job": strata["job"].astype(object), "stratum_floor": strata["floor"].astype(np.int64)}
    label, expected = session.run(["label", "expected_decision"], feeds | inside)
    assert np.isnan(expected).all()
    assert not label.any()


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("thin", [True, False])
def test_onnx_draws_as_python_does(tmp_path, learnt, keyed, thin):
    mixed, rows, strata = learnt if thin else without_a_combination()[:3]
    path = tmp_path / "mixed.onnx"
    assert rule_to_onnx(mixed, path, keyed=keyed).rows == 10_000
    given = dict(zip(("p_y", "p_group"), rows[2:], strict=True))
    assert rule_to_onnx(mixed, path, **given, strata=strata, keyed=keyed).rows == len(rows[0])
    key = np.arange(len(rows[0]), dtype=np.int64)
    inside = {"stratum_job": strata["job"].astype(object), "stratum_floor": strata["floor"].astype(np.int64)}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    label, expected = session.run(["label", "expected_decision"], given | inside | ({"key": key} if keyed else {}))
    keys = {"key": key} if keyed else {}
    np.testing.assert_array_equal(label, mixed.decide(*rows[2:], strata=strata, **keys))
    np.testing.assert_array_equal(expected, mixed.expected_decision(*rows[2:], strata=strata))


def test_too_many_combinations_and_mixed_strata_are_refused(monkeypatch):
    rows, strata = draw(1)
    rule = eh.learn_rule(*rows, strata=strata, criterion=BOTH, tolerance=0.2, search="smoothed")
    with pytest.raises(eh.InputError, match="must all have the same strata"):
        eh.Mixture((dataclasses.replace(rule, solution=None),), (1.0,))
    monkeypatch.setattr(families, "MOST_COMBINATIONS", 5)
    with pytest.raises(eh.InputError, match=r"have 6 combinations, and a mixture .* at most 5"):
        eh.learn_rule(*rows, strata=strata, criterion=BOTH, tolerance=0.2, randomize=True)


def test_the_classifier_its_report_and_its_files_use_them(tmp_path):
    rows, strata = draw(13, 400)
    X = pd.DataFrame({"score": np.log(rows[2] / (1 - rows[2])), "group": rows[1], **strata})
    model = make_pipeline(make_column_transformer(("passthrough", ["score", "group"])), LogisticRegression())
    fair = eh.FairClassifier(
        model, criterion=BOTH, tolerance=0.02, safety=0.0, randomize=True, random_state=0, cv=2
    ).fit(X, rows[0], sensitive_features=rows[1])
    keys = np.arange(len(X))
    p_y, p_group = fair.probabilities(X)
    np.testing.assert_array_equal(fair.predict(X, key=keys), fair.rule_.decide(p_y, p_group, key=keys))
    report = fair.report(X, rows[0], sensitive_features=rows[1])
    step = report.summary["steps"][report.summary["chosen"]]
    assert len(step["mixture"]["strata"]) == len(list(itertools.product("wxy", (1, 2))))
    assert "rules in each of 6 strata" in report.html()
    path = tmp_path / "fair.skops"
    eh.io.save(fair, path)
    np.testing.assert_array_equal(eh.io.load(path).predict(X, key=keys), fair.predict(X, key=keys))
