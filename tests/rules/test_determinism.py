"""What drawing no lots costs, counted beside the mixture itself; in a card, a report and on the command line."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.report import model_card, render_html, summarize
from evenhand.rules.determinism import QUICK_ROWS, determinism, quickly_mixed, with_determinism
from problems import setting_of

DATA = eh.datasets.make_zafar(2000, random_state=4)
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)


def learnt(criterion="eo", tolerance=0.01, safety=0.0):
    setting = setting_of(*ROWS, criterion=criterion)
    rule = eh.learn_rule(*ROWS, criterion=criterion, tolerance=tolerance, safety=safety)
    return rule, setting.rows, dataclasses.replace(setting.options, safety=safety)


@pytest.mark.parametrize(("criterion", "tolerance", "safety"), [("eo", 0.01, 0.0), ("dp", 0.1, 1.0)])
def test_it_is_the_mixtures_utility_minus_the_rules(criterion, tolerance, safety):
    rule, rows, options = learnt(criterion, tolerance, safety)
    assert rule.solution_.used != rule.solution_.asked or safety == 0.0
    mixed = eh.learn_rule(*ROWS, criterion=criterion, tolerance=tolerance, safety=safety, randomize=True)
    found = determinism(rule, rows, options)
    assert found.mixture_utility == pytest.approx(mixed.solution_.utility, abs=1e-9)
    assert found.cost == pytest.approx(mixed.solution_.utility - rule.solution_.utility, abs=1e-9)
    assert found.cost > 0.0
    assert found.mixture_bound == pytest.approx(found.mixture_utility, abs=1e-9)


def test_a_rule_without_a_search_has_none():
    rule, rows, options = learnt()
    assert determinism(eh.Rule(rule.groups, rule.events, rule.priors, rule.terms), rows, options) is None
    alone = eh.learn_rule(*ROWS, criterion="eo", tolerance=0.9, safety=1.0)
    assert alone.solution_.status == "unchanged"
    assert determinism(alone, rows, options) is None


def test_it_is_noted_only_where_it_is_quick(monkeypatch):
    rule, rows, options = learnt()
    noted = with_determinism(rule, rows, options).learned_from["determinism"]
    assert noted["cost"] == determinism(rule, rows, options).cost
    assert eh.Rule.from_json(with_determinism(rule, rows, options).to_json()).learned_from["determinism"] == noted
    monkeypatch.setattr("evenhand.rules.determinism.QUICK_ROWS", len(rows) - 1)
    assert not quickly_mixed(rule, rows)
    assert with_determinism(rule, rows, options) is rule
    assert len(rows) <= QUICK_ROWS


def test_card_and_report_say_it():
    fair = eh.FairClassifier(LogisticRegression(), criterion="eo", tolerance=0.02, safety=0.0, cv=2, random_state=0)
    fair.fit(DATA.X, DATA.y, sensitive_features=DATA.group)
    cost = fair.determinism().cost
    assert f"a deterministic rule costs {100 * cost:.2f} points" in model_card(fair)
    rule, rows, options = learnt()
    text = render_html(summarize(*ROWS, with_determinism(rule, rows, options)))
    assert "the cost of determinism" in text
    assert "the cost of determinism" not in render_html(summarize(*ROWS, rule))


def test_a_mixtures_card_and_report_speak_of_lots():
    fair = eh.FairClassifier(
        LogisticRegression(), criterion="eo", tolerance=0.0, safety=0.0, cv=2, randomize=True, random_state=0
    ).fit(DATA.X, DATA.y, sensitive_features=DATA.group)
    assert fair.determinism() is None
    card = model_card(fair)
    assert f"It is randomized between {len(fair.rule_.rules)} rules" in card
    assert "two people who are alike may get different decisions" in card
    summary = summarize(*ROWS, eh.learn_rule(*ROWS, criterion="eo", tolerance=0.0, randomize=True))
    step = summary["steps"][0]
    assert step["mixture"]["by_lot"] > 0
    assert step["receipts"] == []
    assert "depend on a random draw" in render_html(summary)


def group_thresholds_optimum(y, group, p, tolerance, criterion):
    """Return the best accuracy of all mixtures of thresholds for each group, by one linear program over them."""
    n = len(y)
    hits, first, blocks = [], [], {0: [], 1: []}
    for g in np.unique(group):
        inside = group == g
        for cut in [-1.0, *np.unique(p[inside])]:
            chosen = p[inside] > cut
            hits.append((chosen == y[inside]).sum() / n)
            first.append(str(g))
            for label in (0, 1):
                at = y[inside] == label
                blocks[label].append((chosen[at].mean(), chosen.mean()))
    names = sorted(set(first))
    sign = np.array([1.0 if name == names[0] else -1.0 for name in first])
    rates = (
        [sign * np.array([rate for rate, _ in blocks[label]]) for label in (0, 1)]
        if criterion == "eo"
        else [sign * np.array([rate for _, rate in blocks[0]])]
    )
    matrix = np.vstack([side * row for row in rates for side in (1.0, -1.0)])
    sums = np.array([[float(each == name) for each in first] for name in names])
    found = linprog(-np.array(hits), A_ub=matrix, b_ub=np.full(len(matrix), tolerance), A_eq=sums, b_eq=np.ones(2))
    return -found.fun


@pytest.mark.parametrize("criterion", ["eo", "dp"])
@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.05])
def test_with_known_groups_every_threshold_for_each_group_is_mixed(criterion, tolerance):
    """The optimum over all thresholds for each group and lots between them, which is error-parity's."""
    some = slice(0, 400)
    y, group, p = DATA.y[some], DATA.group[some], DATA.p_y[some].round(2)
    known = np.zeros((len(y), 2, 2))
    at, code = np.arange(len(y)), (group == np.unique(group)[1]).astype(int)
    known[at, 0, code], known[at, 1, code] = 1 - p, p
    mixed = eh.learn_rule(
        y, group, p, known if criterion == "eo" else known.sum(axis=1), criterion=criterion, tolerance=tolerance,
        randomize=True,
    )  # fmt: skip
    truth = group_thresholds_optimum(y, group, p, tolerance, criterion)
    assert mixed.solution_.utility >= truth - 1e-9
    # A rule may also decide the wrong way round in a group, which no threshold does.
    assert mixed.solution_.utility == pytest.approx(truth, abs=2e-3)
    assert mixed.solution_.status == "optimal"
    assert len(mixed.solution_.values) == (2 if criterion == "eo" else 1)
    assert eh.Mixture.from_json(mixed.to_json()) == mixed
