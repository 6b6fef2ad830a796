"""Mixtures on rows whose stratum is not compared, because it is thin, unknown or new: own rules and weights."""

from __future__ import annotations

import itertools
import json
import sqlite3
import warnings
from pathlib import Path

import duckdb
import numpy as np
import onnxruntime
import pandas as pd
import pyarrow as pa
import pytest
from scipy.optimize import linprog
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import evenhand as eh
from evenhand.engines import arrow
from evenhand.engines import duckdb as duckdb_engine
from evenhand.export.onnx import rule_to_onnx
from evenhand.report import summarize
from evenhand.report.render import render_html
from evenhand.rows import read_rows
from evenhand.rules.determinism import determinism
from evenhand.rules.mixture import read_rule
from evenhand.rules.setting import Options
from oracles import cells_by_linear_program

SAVED = Path(__file__).parent / "saved" / "mixture_of_combinations.json"


def draw(seed, n=240, *, missing=0.35):
    """Return rows, and two columns of strata that are unknown in some rows; groups' shares differ between strata."""
    rng = np.random.default_rng(seed)
    job, floor = np.array(["a", "b"], dtype=object)[rng.integers(0, 2, n)], rng.integers(1, 3, n).astype(object)
    group = (rng.random(n) < 0.3 + 0.2 * (job == "a") + 0.2 * (floor == 1)).astype(int)
    p_y = 1 / (1 + np.exp(-(rng.normal(size=n) + 0.5 * group)))
    y = (rng.random(n) < p_y).astype(int)
    share = 0.6 * rng.dirichlet(np.ones(2), n) + 0.4 * np.eye(2)[group]
    job[rng.random(n) < missing], floor[rng.random(n) < missing] = None, None
    rows = y, group, p_y, np.stack([share * (1 - p_y)[:, None], share * p_y[:, None]], axis=1)
    return rows, {"job": job, "floor": floor}


JOB, FLOOR = eh.DemographicParity(within="job", thin=5), eh.DemographicParity(within="floor", thin=5)
CRITERIA = {
    "parity of all": JOB & eh.DemographicParity(),
    "another parity of all": JOB & eh.EqualOpportunity(),
    "a budget": JOB & eh.SelectionBudget(upper=0.4),
    "two columns": JOB & FLOOR,
    "two columns and parity of all": JOB & FLOOR & eh.EqualOpportunity(tolerance=0.1),
}


def learnt(name, seed=1, *, criterion=None, missing=0.35, randomize=True, **options):
    rows, strata = draw(seed, missing=missing)
    criterion = CRITERIA[name] if criterion is None else criterion
    strata = {column: strata[column] for column in criterion.strata}
    options = {"tolerance": 0.03} | options
    return eh.learn_rule(*rows, criterion=criterion, strata=strata, randomize=randomize, **options), rows, strata


@pytest.mark.parametrize("seed", [0, 1, 6, 14, 15])
@pytest.mark.parametrize("name", CRITERIA)
def test_no_rule_is_better_than_the_bound_on_mixtures(name, seed):
    mixed = learnt(name, seed)[0]
    assert mixed.solution_.status == "optimal"
    try:
        single = learnt(name, seed, randomize=False, search="smoothed")[0]
    except eh.InfeasibleError:
        return
    assert single.solution_.utility <= mixed.solution_.upper_bound + 1e-9


@pytest.mark.parametrize("seed", [1, 3, 7])
def test_a_mixture_exists_where_a_rule_does(seed):
    """Rows of unknown strata alone may be what makes the bounds on everyone reachable."""
    rows, strata = draw(seed, 120, missing=0.8)
    strata = {"job": strata["job"]}
    criterion = eh.DemographicParity(within="job", thin=2) & eh.DemographicParity(tolerance=0.0)
    mixed = eh.learn_rule(*rows, criterion=criterion, strata=strata, tolerance=0.0, randomize=True)
    expected = mixed.expected_decision(*rows[2:], strata=strata)
    assert expected[rows[1] == 0].mean() == pytest.approx(expected[rows[1] == 1].mean(), abs=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_optimum_over_every_rule_of_every_combination(seed):
    """Values that are unknown or too few are one more value, where only the other column is compared."""
    rows, strata = draw(seed, 26, missing=0.3)
    y, group, p_y, joint = rows
    p_group = joint.sum(axis=1)
    criterion = eh.DemographicParity(within="job", thin=2) & eh.DemographicParity(within="floor", thin=2)
    densities, effects, compared = [], [], {}
    for name, column in strata.items():
        compared[name] = column.copy()
        for value in [value for value in dict.fromkeys(column) if value is not None]:
            inside = column == value
            if min((inside & (group == g)).sum() for g in (0, 1)) < 2:
                compared[name][inside] = None
                continue
            shares = [(inside & (group == g)).sum() / inside.sum() for g in (0, 1)]
            densities.append(inside * (p_group[:, 0] / shares[0] - p_group[:, 1] / shares[1]))
            rates = [(inside & (group == g)) / (inside & (group == g)).sum() for g in (0, 1)]
            effects.append(rates[0] - rates[1])
    densities, effects = np.array(densities).T, np.array(effects).T
    utility, values, each = [], [], []
    every = list(zip(*compared.values(), strict=True))
    cells = list(dict.fromkeys(every))
    for place, cell in enumerate(cells):
        at = [row for row, own in enumerate(every) if own == cell]
        own = densities[at]
        arrays = np.column_stack([2 * p_y[at] - 1, own[:, own.any(axis=0)]])
        listed = [arrays[:, 0] > 0.0]
        listed += map(np.asarray, cells_by_linear_program(arrays)) if arrays.shape[1] > 1 else []
        for decisions in listed:
            utility.append((decisions == y[at]).sum() / len(y))
            values.append(effects[at][decisions].sum(axis=0))
            each.append(place)
    matrix = np.vstack([np.array(values).T, -np.array(values).T])
    ones = (np.array(each) == np.arange(len(cells))[:, None]).astype(float)
    found = linprog(-np.array(utility), matrix, np.full(len(matrix), 0.1), ones, np.ones(len(cells)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.EvenhandWarning)
        mixed = eh.learn_rule(*rows, criterion=criterion, strata=strata, tolerance=0.1, randomize=True)
    assert mixed.solution_.status == "optimal"
    assert mixed.solution_.utility == pytest.approx(-found.fun, abs=1e-7)


def test_numbers_are_those_of_the_decisions_on_all_rows():
    for name in CRITERIA:
        mixed, rows, strata = learnt(name, 4)
        expected = mixed.expected_decision(*rows[2:], strata=strata)
        assert mixed.solution_.utility == pytest.approx(np.mean(np.where(rows[0] == 1, expected, 1 - expected)))
        for column, part in zip(("job", "floor"), mixed.criterion.parts, strict=False):
            for value in dict.fromkeys(strata.get(column, ())):
                inside = strata[column] == value
                rates = [expected[inside & (rows[1] == g)].mean() for g in (0, 1)]
                assert value is None or abs(rates[0] - rates[1]) <= 0.03 + 1e-8 or part.tolerance
        unknown = [row for row in range(len(expected)) if all(column[row] is None for column in strata.values())]
        if name == "two columns":
            np.testing.assert_array_equal(expected[unknown], rows[2][unknown] > 0.5)


def test_an_f_score_chooses_their_threshold():
    rows, strata = draw(2)
    options = {"criterion": JOB, "strata": strata["job"], "tolerance": 0.05, "objective": "f1"}
    mixed = eh.learn_rule(*rows, **options, randomize=True)
    expected = mixed.expected_decision(*rows[2:], strata=strata["job"])
    score = 2 * (expected @ rows[0]) / (expected.sum() + rows[0].sum())
    assert mixed.solution_.utility == pytest.approx(score)
    assert eh.learn_rule(*rows, **options, search="smoothed").solution_.utility <= mixed.solution_.upper_bound + 1e-9


def test_known_groups_do_not_change_what_nothing_compares():
    rows, strata = draw(5)
    known = np.zeros((len(rows[0]), 2, 2))
    known[np.arange(len(rows[0])), :, rows[1]] = np.column_stack([1 - rows[2], rows[2]])
    given = (*rows[:3], known)
    mixed = eh.learn_rule(*given, criterion=JOB, strata=strata["job"], tolerance=0.0, randomize=True)
    unknown = np.array([value is None for value in strata["job"]])
    expected = mixed.expected_decision(*given[2:], strata=strata["job"])
    np.testing.assert_array_equal(expected[unknown], rows[2][unknown] > 0.5)


@pytest.mark.parametrize("seed", [0, 1, 14, 15])
def test_determinism_has_a_bound_that_no_rule_exceeds(seed):
    for name in ("parity of all", "another parity of all"):
        single, rows, strata = learnt(name, seed, randomize=False, search="smoothed", tolerance=0.05)
        read = read_rows(*rows, criterion=CRITERIA[name], strata=strata)
        found = determinism(single, read, Options(criterion=CRITERIA[name]))
        assert found.mixture_bound >= single.solution_.utility - 1e-9
        assert found.mixture_utility >= single.solution_.utility - 1e-9


def test_a_column_in_which_every_value_is_unknown_compares_nothing():
    rows, _ = draw(0)
    options = {"criterion": JOB & eh.DemographicParity(), "tolerance": 0.02, "randomize": True}
    mixed = eh.learn_rule(*rows, strata=[None] * 240, **options)
    plain = eh.learn_rule(*rows, criterion="dp", tolerance=0.02, randomize=True)
    assert mixed.solution_.utility == pytest.approx(plain.solution_.utility, abs=1e-9)


@pytest.mark.parametrize("thin", [(2, 16), (30, 2)])
def test_two_parts_may_leave_out_different_strata_of_one_column(thin):
    rows, strata = draw(4, 300, missing=0.1)
    job = np.where(np.arange(300) < 40, "few", strata["job"])
    criterion = eh.DemographicParity(within="job", thin=thin[0]) & eh.EqualOpportunity(within="job", thin=thin[1])
    with pytest.warns(eh.EvenhandWarning, match="job=few"):
        mixed = eh.learn_rule(*rows, criterion=criterion, strata=job, tolerance=0.05, randomize=True)
    expected = mixed.expected_decision(*rows[2:], strata=job)
    inside = (job == "few") & ((rows[0] == 1) | (thin[0] == 2))
    rates = [expected[inside & (rows[1] == g)].mean() for g in (0, 1)]
    assert abs(rates[0] - rates[1]) <= 0.05 + 1e-8
    assert mixed.solution_.utility == pytest.approx(np.mean(np.where(rows[0] == 1, expected, 1 - expected)))


def moved(rows, strata):
    """Return strata with values that are new and, where there are two columns, combinations that did not occur."""
    numbers = np.arange(len(rows[0]))
    new = {"job": "new", "floor": 9}
    return {
        name: np.where(numbers % (11 + 2 * place) == 5, new[name], column)
        for place, (name, column) in enumerate(strata.items())
    }


@pytest.mark.parametrize("name", CRITERIA)
def test_json_is_exact_and_old_rules_keep_their_version(name):
    mixed, rows, strata = learnt(name)
    read = read_rule(mixed.to_json())
    assert read == mixed
    new = moved(rows, strata)
    np.testing.assert_array_equal(
        read.expected_decision(*rows[2:], strata=new), mixed.expected_decision(*rows[2:], strata=new)
    )
    assert {rule["version"] for rule in json.loads(mixed.to_json())["rules"]} == {5}
    for wrong in ("1", "false", '"yes"'):
        with pytest.raises(eh.RuleFormatError, match="A group must be"):
            read_rule(mixed.to_json().replace('"other": true', f'"other": {wrong}'))
    whole = learnt(name, missing=0.0)[0]
    assert {rule["version"] for rule in json.loads(whole.to_json())["rules"]} == {4}


def test_a_mixture_that_was_saved_before_decides_as_it_did():
    data = json.loads(SAVED.read_text())
    mixed = read_rule(json.dumps(data["mixture"]))
    strata = {name: np.array(data[name], dtype=object) for name in ("job", "floor")}
    assert {"few", "new"} <= set(strata["job"])
    assert 9 in strata["floor"]
    found = mixed.expected_decision(data["p_y"], np.array(data["p_group"]), strata=strata)
    np.testing.assert_array_equal(found, data["expected_decision"])


@pytest.mark.parametrize("name", CRITERIA)
def test_each_row_has_the_rules_and_weights_of_its_stratum(name):
    mixed, rows, strata = learnt(name)
    new = moved(rows, strata)
    expected = mixed.expected_decision(*rows[2:], strata=new)
    by_hand = np.zeros(240)
    for rule, weight in zip(mixed.rules, mixed.weights, strict=True):
        by_hand += weight * (rule.decision_function(*rows[2:], strata=new) > 0.0)
    np.testing.assert_allclose(expected, by_hand, atol=1e-12)
    for row in range(0, 240, 7):
        own = mixed.for_stratum({column: values[row] for column, values in new.items()})
        assert own.expected_decision(rows[2][[row]], rows[3][[row]])[0] == expected[row]
    keys = np.arange(240)
    decided = mixed.decide(*rows[2:], strata=new, key=keys)
    assert [one.decision for one in mixed.explain(*rows[2:], strata=new, key=keys)] == decided.tolist()


def columns_of(rows, strata):
    cells = {(label, group): f"p{label}{group}" for label in (0, 1) for group in (0, 1)}
    table = {"p": rows[2], "id": np.arange(len(rows[2]))} | {name: list(column) for name, column in strata.items()}
    return cells, table | {name: rows[3][:, label, group] for (label, group), name in cells.items()}


@pytest.mark.parametrize("name", CRITERIA)
def test_sql_and_the_engines_decide_as_python_does(name):
    mixed, rows, strata = learnt(name)
    new = moved(rows, strata)
    cells, table = columns_of(rows, new)
    keys = np.arange(240)
    decided, expected = mixed.decide(*rows[2:], strata=new, key=keys), mixed.expected_decision(*rows[2:], strata=new)
    source = pa.table(table)
    for dialect in ("duckdb", "sqlite"):
        options = {"p_y": "p", "p_group": cells, "key": "id", "dialect": dialect}
        texts = [mixed.to_sql(**options, output=output) for output in ("decision", "expected_decision")]
        query = f"SELECT {', '.join(texts)} FROM t ORDER BY id"
        with duckdb.connect() if dialect == "duckdb" else sqlite3.connect(":memory:") as connection:
            if dialect == "duckdb":
                connection.register("t", source)
            else:
                source.to_pandas().to_sql("t", connection, index=False)
            found = connection.execute(query).fetchall()
        assert found == list(zip(decided.tolist(), expected.tolist(), strict=True))
    for engine in (arrow, duckdb_engine):
        made = engine.apply(mixed, source, p_y="p", p_group=cells, key="id")
        applied = (made.read_all() if engine is arrow else made.to_arrow_table()).to_pydict()
        assert applied["decision"] == decided.tolist()
        assert applied["expected_decision"] == expected.tolist()
        scores = mixed.bias_scores(*rows[2:], strata=new)
        for k in range(scores.shape[1]):
            assert np.array(applied[f"bias_score_{k + 1}"]) == pytest.approx(scores[:, k], rel=1e-9)


@pytest.mark.parametrize("name", CRITERIA)
def test_a_single_rule_of_a_mixture_is_applied_alike(name, tmp_path):
    mixed, rows, strata = learnt(name)
    new, rule = moved(rows, strata), mixed.rules[-1]
    cells, table = columns_of(rows, new)
    decided = rule.decide(*rows[2:], strata=new)
    text = rule.to_sql(p_y="p", p_group=cells, dialect="duckdb")
    with duckdb.connect() as connection:
        connection.register("t", pa.table(table))
        found = connection.execute(f"SELECT {text} FROM t ORDER BY id").fetchall()
    assert [row[0] for row in found] == decided.tolist()
    for engine in (arrow, duckdb_engine):
        made = engine.apply(rule, pa.table(table), p_y="p", p_group=cells)
        applied = (made.read_all() if engine is arrow else made.to_arrow_table()).to_pydict()
        assert applied["decision"] == decided.tolist()
    assert rule_to_onnx(rule, tmp_path / "rule.onnx", p_y=rows[2], p_group=rows[3], strata=new).rows == 240


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("name", CRITERIA)
def test_onnx_draws_as_python_does(name, keyed, tmp_path):
    mixed, rows, strata = learnt(name)
    new = moved(rows, strata)
    path = tmp_path / "mixed.onnx"
    assert rule_to_onnx(mixed, path, keyed=keyed).rows == 10_000
    assert rule_to_onnx(mixed, path, p_y=rows[2], p_group=rows[3], strata=new, keyed=keyed).rows == 240
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    several = len(strata) > 1
    job = np.array(["" if value is None else value for value in new["job"]], dtype=object)
    feeds = {"p_y": rows[2], "p_group": rows[3], "stratum_job" if several else "stratum": job}
    if several:
        feeds["stratum_floor"] = np.array([-1 if value is None else value for value in new["floor"]], dtype=np.int64)
    if not mixed.needs_joint:
        feeds["p_group"] = rows[3].sum(axis=1)
        rule_to_onnx(mixed, path, p_y=rows[2], p_group=feeds["p_group"], strata=new, keyed=keyed)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    keys = {"key": np.arange(240, dtype=np.int64)} if keyed else {}
    label, expected = session.run(["label", "expected_decision"], feeds | keys)
    given = rows[2], feeds["p_group"]
    np.testing.assert_array_equal(label, mixed.decide(*given, strata=new, **keys))
    np.testing.assert_array_equal(expected, mixed.expected_decision(*given, strata=new))


def test_thin_counts_for_its_own_column():
    """A value that is unknown in a column with thin is decided, and one in a column without is named."""
    criterion = eh.DemographicParity(within="job") & FLOOR
    rows, strata = draw(3)
    strata["job"] = np.where(np.equal(strata["job"], None), "b", strata["job"])
    mixed = eh.learn_rule(*rows, criterion=criterion, strata=strata, tolerance=0.03, randomize=True)
    expected = mixed.expected_decision(*rows[2:], strata=strata)
    assert mixed.solution_.utility == pytest.approx(np.mean(np.where(rows[0] == 1, expected, 1 - expected)))
    new = {"job": strata["job"], "floor": np.where(np.arange(240) < 9, 7, strata["floor"])}
    unknown = {"job": strata["job"], "floor": np.where(np.arange(240) < 9, None, strata["floor"])}
    np.testing.assert_array_equal(
        mixed.expected_decision(*rows[2:], strata=new), mixed.expected_decision(*rows[2:], strata=unknown)
    )
    gone = {"job": np.where(np.arange(240) < 9, None, strata["job"]), "floor": strata["floor"]}
    with pytest.raises(eh.InputError, match=r"column of strata 'job' is missing in 9 rows"):
        mixed.decide(*rows[2:], strata=gone)
    with pytest.raises(eh.InputError, match=r"'c'.*did not occur"):
        mixed.decide(*rows[2:], strata={"job": ["c"] * 240, "floor": strata["floor"]})
    cells, table = columns_of(rows, strata)
    made = duckdb_engine.apply(mixed, pa.table(table), p_y="p", p_group=cells, key="id").to_arrow_table()
    assert made["expected_decision"].to_pylist() == expected.tolist()
    _, table = columns_of(rows, gone)
    with pytest.raises(duckdb.Error, match="did not occur"):
        duckdb_engine.apply(mixed, pa.table(table), p_y="p", p_group=cells, key="id").fetchall()


def test_onnx_without_thin_in_one_column_draws_as_python_does(tmp_path):
    rows, strata = draw(3)
    strata["job"] = np.where(np.equal(strata["job"], None), "b", strata["job"])
    criterion = eh.DemographicParity(within="job") & FLOOR
    mixed = eh.learn_rule(*rows, criterion=criterion, strata=strata, tolerance=0.03, randomize=True)
    path = tmp_path / "mixed.onnx"
    assert rule_to_onnx(mixed, path).rows == 10_000
    assert rule_to_onnx(mixed, path, p_y=rows[2], p_group=rows[3], strata=strata).rows == 240


def test_the_classifier_its_report_and_its_files_use_them(tmp_path):
    rows, strata = draw(13, 400)
    X = pd.DataFrame({"score": np.log(rows[2] / (1 - rows[2])), "group": rows[1], **strata})
    model = make_pipeline(make_column_transformer(("passthrough", ["score", "group"])), LogisticRegression())
    criterion = JOB & FLOOR & eh.DemographicParity()
    fair = eh.FairClassifier(
        model, criterion=criterion, tolerance=0.02, safety=0.0, randomize=True, random_state=0, cv=2
    ).fit(X, rows[0], sensitive_features=rows[1])
    keys = np.arange(len(X))
    p_y, p_group = fair.probabilities(X)
    given = {"group": p_group["group"]}
    np.testing.assert_array_equal(fair.predict(X, key=keys), fair.rule_.decide(p_y, given, strata=strata, key=keys))
    report = fair.report(X, rows[0], sensitive_features=rows[1])
    step = report.summary["steps"][report.summary["chosen"]]
    texts = [entry["stratum"] for entry in step["mixture"]["strata"]]
    assert len(texts) == len(list(itertools.product("ab?", "12?")))
    assert "a & (not compared)" in texts
    path = tmp_path / "fair.skops"
    eh.io.save(fair, path)
    np.testing.assert_array_equal(eh.io.load(path).predict(X, key=keys), fair.predict(X, key=keys))


def test_a_report_compares_only_what_the_criterion_compares():
    mixed, rows, strata = learnt("parity of all")
    summary = summarize(*rows, mixed, strata=strata)
    within = [verdict for verdict in summary["steps"][0]["verdicts"] if verdict["strata"]]
    assert [entry["stratum"] for verdict in within for entry in verdict["strata"]] == ["a", "b"]
    expected = mixed.expected_decision(*rows[2:], strata=strata)
    assert summary["steps"][0]["mixture"]["by_lot"] == ((expected > 0) & (expected < 1)).sum()
    assert "rules in each of 3 strata" in render_html(summary)


@pytest.mark.parametrize("name", ["parity of all", "two columns"])
def test_confidence_and_safety_go_with_them(name):
    rows, strata = draw(8, 3000)
    criterion = CRITERIA[name]
    strata = {column: strata[column] for column in criterion.strata}
    options = {"criterion": criterion, "strata": strata, "randomize": True, "random_state": 0}
    certified = eh.learn_rule(*rows, tolerance=0.3, confidence=0.9, **options)
    assert certified.learned_from["confidence"]["rules_certified"] > 0
    safe = eh.learn_rule(*rows, tolerance=0.1, safety=1.0, **options)
    assert (np.abs(safe.solution_.values) <= np.array(safe.solution_.used)[:, 1] + 1e-8).all()
