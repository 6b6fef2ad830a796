from __future__ import annotations

import json

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InputError
from evenhand.metrics import group_rates
from evenhand.report import summarize
from evenhand.report.bias import trace_line
from evenhand.rules.frontier import frontier
from evenhand.rules.learn import learn_rule
from evenhand.statistics.calibration import reliability


def test_the_same_input_gives_the_same_bytes(rows, curve):
    texts = {json.dumps(summarize(*rows[1], curve), sort_keys=True, allow_nan=False) for _ in range(2)}
    assert len(texts) == 1


def test_every_number_of_a_step_is_the_librarys(rows, curve, summary):
    y, sensitive, p_y, p_group = rows[1]
    base = (p_y > 0.5).astype(int)
    assert [step["step_tolerance"] for step in summary["steps"]] == curve.tolerances.tolist()
    for step, point in zip(summary["steps"], curve, strict=True):
        decisions = point.rule.decide(p_y, p_group)
        assert step["accuracy"]["value"] == pytest.approx((decisions == y).mean())
        assert step["flipped"] == int((decisions != base).sum())
        assert sum(flips["to_positive"] + flips["to_negative"] for flips in step["flips"]) == step["flipped"]
        rates = group_rates(y, decisions, sensitive_features=sensitive["sex"])
        for group in step["groups"]:
            assert group["true_positive_rate"]["value"] == pytest.approx(rates[group["group"]]["true_positive_rate"])
        for receipt in step["receipts"]:
            row = receipt["row"]
            assert str(base[row]) == receipt["base_decision"] != receipt["decision"] == str(decisions[row])


def test_a_report_follows_the_names_of_a_frames_columns():
    pandas = pytest.importorskip("pandas")
    data = eh.datasets.make_zafar(600, random_state=0)
    rule = learn_rule(data.y, data.group, data.p_y, data.p_group)
    frame = pandas.DataFrame(data.p_group, columns=["0", "1"])
    found = [summarize(data.y, data.group, data.p_y, given, rule) for given in (data.p_group, frame[["1", "0"]])]
    assert found[0] == found[1]


def test_the_chosen_step_is_the_loosest_within_the_tolerance(rows, curve):
    for tolerance in (0.01, 0.04, 0.05, 0.5):
        found = summarize(*rows[1], curve, tolerance=tolerance)
        within = [t for t in curve.tolerances if t <= tolerance]
        assert found["steps"][found["chosen"]]["step_tolerance"] == max(within, default=curve.tolerances[0])


def test_the_plane_shows_the_turned_rows_beyond_the_line(summary):
    bias, step = summary["bias"], summary["steps"][summary["chosen"]]
    z = np.array([term["z"] for term in step["terms"]])
    points = np.array(bias["points"])
    assert bias["kind"] == "plane"
    assert (np.abs(points[:, :2]) <= bias["limits"]).all()
    assert (points[:, :2] @ z > 1).sum() == pytest.approx(bias["turned"][0], abs=2)
    assert bias["turned"][1] <= step["flipped"]
    for line, rule in zip(bias["lines"], summary["steps"], strict=True):
        weights = np.array([term["z"] for term in rule["terms"]])
        assert np.allclose(np.array(line).reshape(-1, 2) @ weights, 1.0, rtol=1e-2, atol=1e-2)


def test_a_traced_line_lies_on_the_line_and_in_the_box():
    generator = np.random.default_rng(0)
    for _ in range(200):
        z = generator.normal(size=2) * 10.0 ** generator.integers(-2, 3, size=2)
        limits = 10.0 ** generator.uniform(-1, 2, size=2)
        line = np.array(trace_line(z.tolist(), limits.tolist(), (limits / 10).tolist())).reshape(-1, 2)
        assert (np.abs(line) <= limits * 1.001).all()
        assert np.allclose(line @ z, 1.0, rtol=1e-2, atol=1e-3 * np.abs(z) @ limits)
        if abs(z) @ limits < 1.0:
            assert len(line) == 0
        elif abs(z) @ limits > 1.5:
            assert len(line) >= 1


@pytest.mark.parametrize(("groups", "kind"), [(2, "histogram"), (3, "plane"), (5, "projection")])
def test_the_picture_fits_the_number_of_scores(groups, kind):
    generator = np.random.default_rng(groups)
    n = 600
    p_y = generator.beta(2, 2, n)
    y = (generator.random(n) < p_y).astype(int)
    p_group = generator.dirichlet(np.ones(groups), n)
    group = np.array([generator.choice(groups, p=p) for p in p_group])
    rule = learn_rule(y, group, p_y, p_group, criterion="dp", tolerance=0.05, search="directions")
    summary = summarize(y, group, p_y, p_group, rule)
    assert summary["bias"]["kind"] == kind
    flipped = summary["steps"][0]["flipped"]
    if kind == "histogram":
        assert all(sum(shares) == pytest.approx(1.0) for shares in summary["bias"]["shares"])
    elif kind == "projection":
        edges, counts = np.array(summary["bias"]["edges"]), np.array(summary["bias"]["counts"][0])
        assert counts[edges[:-1] >= 1.0 - 1e-9].sum() == flipped


def test_without_rules_the_report_is_about_the_decisions_as_they_are():
    data = eh.datasets.make_zafar(500, random_state=0)
    summary = summarize(data.y, data.group, data.p_y, criterion="dp", tolerance=0.1)
    assert (summary["chosen"], summary["steps"], summary["bias"]) == (None, [], None)
    assert summary["base"]["verdicts"][0]["tolerance"] == 0.1
    assert [curve["group"] for curve in summary["calibration"]] == ["everyone", "0", "1"]
    unlabelled = summarize(None, data.group, data.p_y)
    assert unlabelled["labels"] is None
    assert unlabelled["calibration"] == []


def test_what_cannot_be_summarised_says_why(rows):
    y, sensitive, p_y, p_group = rows[0]
    rule = learn_rule(y, sensitive, p_y, p_group, criterion="eo", tolerance=0.1, search="directions")
    with pytest.raises(InputError, match="pass y"):
        summarize(None, sensitive, p_y, p_group, rule)
    empty = frontier(y, sensitive, p_y, p_group, criterion="eo", tolerances=[0.05])
    empty = type(empty)((), (0.05,), empty.base_utility, empty.base_gap)
    with pytest.raises(InputError, match="no rule"):
        summarize(y, sensitive, p_y, p_group, empty)


def test_reliability_of_true_probabilities_is_near_the_diagonal():
    generator = np.random.default_rng(0)
    p = generator.random(50_000)
    happened = generator.random(50_000) < p
    found = reliability(p, happened)
    assert found["error"] < 0.01
    assert sum(bin_["rows"] for bin_ in found["bins"]) == found["rows"] == 50_000
    assert reliability(np.clip(p + 0.2, 0, 1), happened)["error"] > 0.15
    assert reliability(np.array([]), np.array([], dtype=bool))["bins"] == []
    assert len(reliability(np.full(9, 0.5), np.arange(9) % 2 == 0)["bins"]) == 1
