"""A crossed attribute is what its Intersection says; a column may have the same text as its name."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.cli import main
from evenhand.engines import arrow
from evenhand.engines import duckdb as duck
from evenhand.engines.aggregate import Aggregate
from evenhand.errors import InputError, RuleFormatError
from evenhand.report import rule_card, summarize
from evenhand.rules.events import display_names
from evenhand.rules.system import write_out

CROSSED = eh.Intersection("sex", "race")
NAME = "sex & race"
BOTH = eh.DemographicParity() & eh.DemographicParity(attribute=CROSSED)


def draw(n=3000, seed=0):
    """Return labels, three columns of groups, the third called "sex & race" but no crossing, and probabilities."""
    rng = np.random.default_rng(seed)
    marginals = {name: rng.dirichlet([4.0, 4.0], n) for name in ("sex", "race", NAME)}
    members = {"sex": ("F", "M"), "race": ("a", "b"), NAME: ("u", "v")}
    groups = {k: np.array(members[k])[(rng.random(n) > p[:, 0]).astype(int)] for k, p in marginals.items()}
    push = sum(p[:, 0] - 0.5 for p in marginals.values())
    p_y = np.clip(rng.beta(2, 2, n) * 0.6 + 0.2 + 0.5 * push, 0.01, 0.99)
    cells = (marginals["sex"][:, :, None] * marginals["race"][:, None, :]).reshape(n, 4)
    return (rng.random(n) < p_y).astype(int), groups, p_y, {**marginals, CROSSED: cells}


def gap_of(decisions, *columns):
    return eh.metrics.demographic_parity_difference(None, decisions, sensitive_features=np.column_stack(columns))


def gaps_of(decisions, groups):
    return [*(gap_of(decisions, groups[name]) for name in groups), gap_of(decisions, groups["sex"], groups["race"])]


@pytest.mark.parametrize("name", [NAME, "other"])
def test_a_column_is_constrained_and_audited_whatever_its_name_is(name):
    y, groups, p_y, p_group = draw()
    renamed = {(name if key == NAME else key): values for key, values in groups.items()}
    columns = {(name if key == NAME else key): values for key, values in p_group.items()}
    rule = eh.learn_rule(y, renamed, p_y, columns, tolerance=0.03)
    assert rule.attributes == ("sex", "race", name)
    decided = rule.decide(p_y, columns)
    assert max(gap_of(decided, values) for values in groups.values()) <= 0.03 + 1e-9
    found = eh.audit(y, decided, renamed, criterion="dp")
    assert [verdict.attribute for verdict in found.verdicts] == ["sex", "race", name]
    curve = eh.frontier(y, renamed, p_y, columns, tolerances=[0.03])
    assert curve.points[0].utility == rule.solution_.utility


def test_a_column_and_a_crossed_attribute_of_one_text_are_both_constrained_and_told_apart():
    y, groups, p_y, p_group = draw()
    rule = eh.learn_rule(y, groups, p_y, p_group, criterion=BOTH, tolerance=0.05, search="directions")
    assert rule.attributes == ("sex", "race", NAME, CROSSED)
    decided = rule.decide(p_y, p_group)
    assert max(gaps_of(decided, groups)) <= 0.05 + 1e-9
    assert len({term.name for term in rule.terms}) == len(rule.terms)
    assert len(rule.learned_from["rows_by_event"]) == len(rule.events)
    assert len(rule.explain(p_y[:1], {k: v[:1] for k, v in p_group.items()})[0].terms) == len(rule.terms)
    again = eh.Rule.from_json(rule.to_json())
    assert again == rule
    assert (again.decide(p_y, p_group) == decided).all()
    found = eh.audit(y, decided, groups, criterion=BOTH)
    names = ["sex", "race", NAME, f"{NAME} (crossed)"]
    assert [attribute.name for attribute in found.attributes] == names
    assert [verdict.attribute for verdict in found.verdicts] == names
    gaps = [attribute.gaps["demographic_parity"].value for attribute in found.attributes]
    assert gaps == pytest.approx(gaps_of(decided, groups))
    assert [verdict.gap.value for verdict in found.verdicts] == pytest.approx(gaps)
    assert f"verdicts on {NAME} (crossed)" in str(found)


def test_reports_and_cards_tell_them_apart():
    y, groups, p_y, p_group = draw(1500)
    rule = eh.learn_rule(y, groups, p_y, p_group, criterion=BOTH, tolerance=0.1, search="directions")
    summary = summarize(y, groups, p_y, p_group, rule)
    names = ["sex", "race", NAME, f"{NAME} (crossed)"]
    assert summary["attributes"] == names
    for entries in (summary["counts"], summary["steps"][0]["flips"], summary["base"]["groups"]):
        assert len({(entry["attribute"], entry["group"]) for entry in entries}) == 10
    assert len({(entry["model"], entry["group"]) for entry in summary["calibration"]}) == 13
    card = rule_card(rule, y, groups, p_y, p_group)
    assert "sex &amp; race (crossed)=F &amp; a" in card
    assert "sex &amp; race=u" in card


@pytest.mark.parametrize("sensitive_at_predict", [False, True])
def test_classifiers_tell_them_apart_and_survive_a_file(tmp_path, sensitive_at_predict):
    y, groups, p_y, p_group = draw(1200)
    X = np.column_stack([p_y, *(array[:, 0] for array in p_group.values())])
    fair = eh.FairClassifier(
        LogisticRegression(), criterion=BOTH, tolerance=0.2, cv=2, random_state=0, search="directions",
        sensitive_at_predict=sensitive_at_predict,
    )  # fmt: skip
    fair.fit(X, y, sensitive_features=pd.DataFrame(groups))
    known = {"sensitive_features": groups} if sensitive_at_predict else {}
    assert fair.held_out_.p_group[NAME].shape == (1200, 2)
    assert fair.held_out_.p_group[CROSSED].shape == (1200, 4)
    assert {cell.attribute for cell in fair.diagnostics_.cells} == {"sex", "race", NAME, f"{NAME} (crossed)"}
    assert max(map(abs, fair.rule_.solution_.values)) <= 0.2 + 1e-9
    eh.io.save(fair, tmp_path / "fair.skops")
    again = eh.io.load(tmp_path / "fair.skops")
    assert again.held_out_.p_group.keys() == fair.held_out_.p_group.keys()
    np.testing.assert_array_equal(again.decision_function(X, **known), fair.decision_function(X, **known))
    assert again.with_tolerance(0.3).rule_ == fair.with_tolerance(0.3).rule_


def test_classifiers_of_older_files_are_read(tmp_path, monkeypatch):
    y, groups, p_y, p_group = draw(1200)
    X = np.column_stack([p_y, *(array[:, 0] for array in p_group.values())])
    groups.pop(NAME)
    criterion = eh.DemographicParity(attribute=CROSSED)
    fair = eh.FairClassifier(LogisticRegression(), criterion=criterion, tolerance=0.2, cv=2, random_state=0)
    fair.fit(X, y, sensitive_features=groups)
    expected = fair.decision_function(X)
    text = as_version_1(fair.rule_.to_json())
    for holder in (fair._models.auxiliaries, fair._models.layouts, fair._models.targets, fair.held_out_.p_group):
        holder[NAME] = holder.pop(CROSSED)
    with monkeypatch.context() as patched:
        patched.setattr(eh.Rule, "to_json", lambda rule: text)
        eh.io.save(fair, tmp_path / "old.skops")
    again = eh.io.load(tmp_path / "old.skops")
    assert list(again._models.layouts) == list(again.held_out_.p_group) == [CROSSED]
    np.testing.assert_array_equal(again.decision_function(X), expected)


def as_version_1(text):
    """Return a rule as the first version wrote it: without a word on which attributes are crossed."""
    data = json.loads(text)
    del data["crossed"]
    return json.dumps({**data, "version": 1})


def test_rules_of_version_1_are_read():
    y, groups, p_y, p_group = draw(800)
    groups.pop(NAME)
    criterion = eh.DemographicParity(attribute=CROSSED)
    rule = eh.learn_rule(y, groups, p_y, p_group, criterion=criterion, tolerance=0.2)
    assert json.loads(rule.to_json())["crossed"] == {NAME: ["sex", "race"]}
    assert eh.Rule.from_json(as_version_1(rule.to_json())) == rule
    plain = eh.learn_rule(y, {NAME: groups["sex"]}, p_y, {NAME: p_group["sex"]}, tolerance=0.2)
    assert json.loads(plain.to_json())["version"] == 1
    assert eh.Rule.from_json(plain.to_json()) == plain
    assert plain.attributes == (NAME,)


@pytest.mark.parametrize(
    "crossed", [{"no such": ["a", "b"]}, {NAME: ["sex"]}, {NAME: "sex"}, {NAME: [1, 2]}, [NAME], {NAME: ["a", ["b"]]}]
)
def test_rules_with_a_wrong_crossing_are_refused(crossed):
    rule = eh.Rule.from_criterion(
        eh.DemographicParity(attribute=CROSSED), groups={CROSSED: [("F", "a"), ("M", "b")]}, priors=[0.5, 0.5], z=[0.1]
    )
    data = json.loads(rule.to_json())
    with pytest.raises(RuleFormatError):
        eh.Rule.from_json(json.dumps({**data, "crossed": crossed}))


def test_the_text_is_a_key_where_no_column_has_it():
    y, groups, p_y, p_group = draw(800)
    criterion = eh.DemographicParity(attribute=CROSSED)
    options = {"criterion": criterion, "tolerance": 0.2}
    others = {"sex": groups["sex"], "race": groups["race"]}
    expected = eh.learn_rule(y, others, p_y, {CROSSED: p_group[CROSSED]}, **options)
    for key in (NAME, ("sex", "race")):
        rule = eh.learn_rule(y, others, p_y, {key: p_group[CROSSED]}, **options)
        assert rule == expected
        assert (rule.decide(p_y, {key: p_group[CROSSED]}) == expected.decide(p_y, p_group)).all()
    with pytest.raises(InputError, match=r"no probabilities for the attribute Intersection\('sex', 'race'\)"):
        eh.learn_rule(y, groups, p_y, {NAME: p_group[CROSSED]}, **options)
    with pytest.raises(InputError, match="twice"):
        eh.learn_rule(y, others, p_y, {CROSSED: p_group[CROSSED], ("sex", "race"): p_group[CROSSED]}, **options)


def test_the_model_as_evidence_knows_crossed_attributes_by_type():
    _, _, p_y, p_group = draw(800)
    cells = [(s, r) for s in "FM" for r in "ab"]
    options = {"criterion": eh.DemographicParity(attribute=CROSSED), "evidence": "model", "tolerance": 0.1}
    for key in (NAME, CROSSED):
        rule = eh.learn_rule(None, None, p_y, {key: p_group[CROSSED]}, groups={key: cells}, **options)
        assert rule.groups == {CROSSED: tuple(cells)}
    with pytest.raises(InputError, match="groups must list the groups of Intersection"):
        eh.learn_rule(None, None, p_y, {NAME: p_group[CROSSED]}, groups={NAME: list("abcd")}, **options)
    with pytest.raises(InputError, match="only crossed ones"):
        eh.learn_rule(
            None, None, p_y, {CROSSED: p_group[CROSSED]}, groups={CROSSED: cells}, evidence="model", tolerance=0.1
        )


def test_two_crossed_attributes_of_one_text_are_told_apart():
    keys = [eh.Intersection("a & b", "c"), eh.Intersection("a", "b & c"), "a & b & c"]
    assert list(display_names(keys).values()) == ["a & b & c (crossed)", "a & b & c (crossed) (crossed)", "a & b & c"]
    groups = dict.fromkeys(keys[:2], ((0, 0), (1, 1))) | {"x": (0, 1)}
    system = write_out(eh.DemographicParity(attribute=keys[0]) & eh.DemographicParity(attribute=keys[1]), groups)
    assert len(system.contrasts) == 2
    assert len(set(system.names)) == 4
    rule = eh.Rule.from_criterion(
        eh.DemographicParity(attribute=keys[0]) & eh.DemographicParity(attribute=keys[1]), groups=groups,
        priors={keys[0]: [0.5, 0.5], keys[1]: [0.4, 0.6]}, z=[0.1, 0.2],
    )  # fmt: skip
    assert eh.Rule.from_json(rule.to_json()) == rule
    with pytest.raises(InputError, match="is ambiguous between"):
        rule.decide([0.5], {"a & b & c": [[0.5, 0.5]]})


def test_groups_that_contain_the_sign_are_not_confused():
    first, second = np.repeat(["a & b", "a", "a"], 40), np.repeat(["c", "b & c", "c"], 40)
    y = np.tile([0, 1], 60)
    frame = {"one": first, "two": second, "plain": np.where(first == "a", "a & b & c", "x")}
    crossed = eh.DemographicParity(attribute=eh.Intersection("one", "two"))
    found = summarize(y, frame, y, criterion=eh.DemographicParity() & crossed)
    shown = [(count["attribute"], count["group"]) for count in found["counts"]]
    assert len(set(shown)) == len(shown) == 9
    mixed = write_out(eh.DemographicParity(), {"column": (1, "1", "two")})
    assert len(set(mixed.names)) == 3
    assert len({bound.name for bound in mixed.constraints}) == 3


def test_columns_of_tuples_are_crossed_as_they_are():
    pairs = np.empty(4, dtype=object)
    pairs[:] = [("a", "b"), ("a", "b"), ("a", "c"), ("a", "c")]
    rates = eh.metrics.group_rates([0, 1, 0, 1], [0, 1, 1, 1], sensitive_features={"t": pairs, "s": list("xyxy")})
    assert rates.groups == ((("a", "b"), "x"), (("a", "b"), "y"), (("a", "c"), "x"), (("a", "c"), "y"))


@pytest.fixture
def table():
    y, groups, p_y, p_group = draw()
    columns = {"y": y, "p": p_y, **groups, "ps": p_group["sex"][:, 0], "pr": p_group["race"][:, 0]}
    columns |= {"pn": p_group[NAME][:, 0], **{f"c{k}": p_group[CROSSED][:, k] for k in range(4)}}
    return pa.table(columns)


NAMES = {
    "y": "y", "sensitive_features": ["sex", "race", NAME], "p_y": "p",
    "p_group": {
        "sex": {"F": "ps", "M": None}, "race": {"a": "pr", "b": None}, NAME: {"u": "pn", "v": None},
        CROSSED: {(s, r): f"c{2 * i + j}" for i, s in enumerate("FM") for j, r in enumerate("ab")},
    },
}  # fmt: skip


@pytest.mark.parametrize("engine", [arrow, duck])
def test_engines_tell_them_apart(engine, table):
    data = table if engine is arrow else duckdb.from_arrow(table)
    rule = engine.learn_rule(data, criterion=BOTH, tolerance=0.06, search="directions", max_in_memory=0, **NAMES)
    assert rule.attributes == ("sex", "race", NAME, CROSSED)
    decided = engine.apply(eh.Rule.from_json(rule.to_json()), data)
    decisions = (decided.read_all() if engine is arrow else decided.to_arrow_table())["decision"].to_numpy()
    assert max(gaps_of(decisions, {name: table[name].to_numpy() for name in ("sex", "race", NAME)})) <= 0.06 + 1e-9
    assert rule.learned_from["quantisation"]["rate_errors"].keys() == rule.learned_from["rows_by_event"].keys()


@pytest.mark.parametrize("engine", [arrow, duck])
def test_joint_scores_of_a_column_with_the_sign_in_its_name(engine):
    rng = np.random.default_rng(0)
    joint = rng.dirichlet([2.0, 2.0, 1.0, 2.0], 2000)
    cell = (rng.random((2000, 1)) > joint.cumsum(axis=1)[:, :3]).sum(axis=1)
    columns = {"y": cell // 2, "R & D": np.array(["in", "out"])[cell % 2], "p": joint[:, 2:].sum(axis=1)}
    table = pa.table(columns | {f"c{k}": joint[:, k] for k in range(4)})
    names = {(label, group): f"c{2 * label + k}" for label in (0, 1) for k, group in enumerate(("in", "out"))}
    data = table if engine is arrow else duckdb.from_arrow(table)
    rule = engine.learn_rule(
        data, criterion="eo", tolerance=0.05, y="y", sensitive_features="R & D", p_y="p", p_group={"R & D": names}
    )
    assert rule.attributes == ("R & D",)
    decided = rule.decide(columns["p"], joint.reshape(-1, 2, 2))
    gap = eh.metrics.equalized_odds_difference(columns["y"], decided, sensitive_features=columns["R & D"])
    assert gap <= 0.05 + 1e-9


def test_aggregates_keep_them_apart_in_files(table, tmp_path):
    counted = arrow.aggregate(table, **NAMES)
    counted.save(tmp_path / "counts.parquet")
    again = Aggregate.load(tmp_path / "counts.parquet")
    assert again == counted
    assert list(again.p_group) == ["sex", "race", NAME, CROSSED]
    rule = again.learn_rule(BOTH, 0.06, search="directions")
    assert rule.attributes == ("sex", "race", NAME, CROSSED)


def test_aggregates_of_version_1_are_read(table, tmp_path):
    names = {**NAMES, "sensitive_features": ["sex", "race"], "p_group": {CROSSED: NAMES["p_group"][CROSSED]}}
    counted = arrow.aggregate(table, **names)
    counted.save(tmp_path / "counts.parquet")
    file = pq.read_table(tmp_path / "counts.parquet")
    header = json.loads(file.schema.metadata[b"evenhand"])
    assert header["version"] == 2
    header = {**header, "version": 1, "scored": [{**entry, "attribute": NAME} for entry in header["scored"]]}
    pq.write_table(file.replace_schema_metadata({b"evenhand": json.dumps(header).encode()}), tmp_path / "old.parquet")
    criterion = eh.DemographicParity(attribute=CROSSED)
    expected = counted.learn_rule(criterion, 0.1)
    rule = Aggregate.load(tmp_path / "old.parquet").learn_rule(criterion, 0.1)
    assert (rule.groups, rule.terms) == (expected.groups, expected.terms)


def test_sql_takes_the_columns_of_both(table):
    y, groups, p_y, p_group = draw()
    rule = eh.learn_rule(y, groups, p_y, p_group, criterion=BOTH, tolerance=0.06, search="directions")
    text = rule.to_sql(p_y="p", p_group=NAMES["p_group"], dialect="duckdb")
    found = [row[0] for row in duckdb.from_arrow(table).project(f"{text} AS c").fetchall()]
    assert np.mean(np.array(found) == rule.decide(p_y, p_group)) > 0.999  # the rest of 1 rounds otherwise


def test_onnx_has_an_input_for_each(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    from evenhand.export.onnx import rule_to_onnx

    y, groups, p_y, p_group = draw(600)
    rule = eh.learn_rule(y, groups, p_y, p_group, criterion=BOTH, tolerance=0.2, search="directions")
    rule_to_onnx(rule, tmp_path / "rule.onnx")
    inputs = [entry.name for entry in runtime.InferenceSession(tmp_path / "rule.onnx").get_inputs()]
    assert inputs == ["p_y", *(f"p_group_{name}" for name in ("sex", "race", NAME, f"{NAME} (crossed)"))]


def test_the_command_line_tells_them_apart(table, tmp_path, capsys):
    pq.write_table(table, tmp_path / "rows.parquet")
    scores = ["F=ps", "a=pr", "u=pn", "F & a=c0", "F & b=c1", f"{NAME} (crossed):M & a=c2"]
    options = ["--label", "y", "--score", "p", *(x for n in ("sex", "race", NAME) for x in ("--sensitive", n))]
    options += [x for text in scores for x in ("--group-score", text)]
    fit = ["fit", str(tmp_path / "rows.parquet"), *options, "--criterion", "dp", "--criterion", "dp@sex,race"]
    fit += ["--tolerance", "0.06", "--safety", "0", "--search", "directions"]
    assert main([*fit, "-o", str(tmp_path / "rule.json")]) == 0
    text = capsys.readouterr().out
    assert f"selection rate, {NAME}=u" in text
    assert f"selection rate, {NAME} (crossed)=F & a" in text
    out = tmp_path / "out.parquet"
    assert main(["apply", str(tmp_path / "rule.json"), str(tmp_path / "rows.parquet"), "-o", str(out)]) == 0
    groups = {name: table[name].to_numpy() for name in ("sex", "race", NAME)}
    assert max(gaps_of(pq.read_table(out)["decision"].to_numpy(), groups)) <= 0.06 + 1e-9
