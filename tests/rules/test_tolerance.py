"""A tolerance is a difference of rates: what is above 1 is refused by everything that takes one."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.demo import run_demo
from evenhand.engines import arrow
from evenhand.errors import InputError, RuleFormatError
from evenhand.paper import baselines
from evenhand.report import summarize
from evenhand.rules.criteria import check_tolerance

HUGE = (10**400, 10**5000, 1e308, np.inf, np.nan, -(10**5000))


def rows(n=400):
    data = eh.datasets.make_zafar(n, random_state=0)
    return data.y, data.group, data.p_y, data.p_group


def table():
    y, group, p_y, p_group = rows()
    return pa.table({"y": y, "g": group, "p": p_y, "a": p_group[:, 0]})


def classifier(make, tolerance):
    data = eh.datasets.make_zafar(200, random_state=0)
    return make(LogisticRegression(), tolerance=tolerance).fit(data.X, data.y, sensitive_features=data.group)


def rule_at(tolerance):
    return eh.frontier(*rows(), tolerances=[0.1]).rule_at(tolerance)


def with_tolerance(tolerance):
    return classifier(eh.FairClassifier, 0.3).with_tolerance(tolerance)


ENTRIES = {
    "check_tolerance": check_tolerance,
    "audit": lambda t: eh.audit([0, 1] * 20, [0, 1, 1, 0] * 10, ["a", "b"] * 20, tolerance=t),
    "learn_rule": lambda t: eh.learn_rule(*rows(), tolerance=t),
    "learn_rule with confidence": lambda t: eh.learn_rule(*rows(), tolerance=t, confidence=0.9, random_state=0),
    "frontier": lambda t: eh.frontier(*rows(), tolerances=[0.1, t]),
    "Frontier.rule_at": rule_at,
    "FairClassifier": lambda t: classifier(eh.FairClassifier, t),
    "with_tolerance": with_tolerance,
    "Rule.from_criterion": lambda t: eh.Rule.from_criterion(
        "dp", groups={"g": ("a", "b")}, priors={"g": [0.5, 0.5]}, z=[0.1], tolerance=t
    ),
    "summarize": lambda t: summarize(*rows(), tolerance=t),
    "run_demo": lambda t: run_demo("never.html", tolerance=t),
    "engines": lambda t: arrow.learn_rule(
        table(), y="y", sensitive_features="g", p_y="p", p_group={"0": "a", "1": None}, tolerance=t
    ),
    "DemographicParity": lambda t: eh.DemographicParity(tolerance=t),
    "EqualizedOdds": lambda t: eh.EqualizedOdds(tolerance=t),
    "SelectionRatio": lambda t: eh.SelectionRatio(0.8, tolerance=t),
    "MinimumRate": lambda t: eh.MinimumRate("tpr", 0.5, tolerance=t),
    "SelectionBudget": lambda t: eh.SelectionBudget(upper=0.5, tolerance=t),
    "Reductions": lambda t: classifier(baselines.Reductions, t),
    "WassersteinBarycentre": lambda t: classifier(baselines.WassersteinBarycentre, t),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_tolerance_in_points_is_refused_with_the_one_that_is_meant(entry):
    with pytest.raises(InputError) as caught:
        ENTRIES[entry](5)
    assert str(caught.value) == (
        "tolerance 5 is 500 points, but rates differ by at most 1 (100 points): did you mean 0.05?"
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", HUGE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("entry", ENTRIES)
def test_numbers_of_any_size_are_refused_in_one_short_sentence(entry, value):
    with pytest.raises(InputError, match="tolerance must") as caught:
        ENTRIES[entry](value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("entry", ["audit", "DemographicParity", "SelectionRatio", "learn_rule", "Rule.from_criterion"])
@pytest.mark.parametrize("value", [0, 1, 1.0, np.float32(1.0), 1.0 + 1e-9, np.int64(1)])
def test_one_is_the_largest_tolerance(entry, value):
    ENTRIES[entry](value)
    assert 0.0 <= check_tolerance(value) <= 1.0


@pytest.mark.parametrize(
    "make",
    [
        eh.SelectionRatio,
        lambda n: eh.MinimumRate("tpr", n),
        lambda n: eh.SelectionBudget(upper=n),
        lambda n: eh.learn_rule(*rows(), costs=(n, 1)),
        lambda n: eh.learn_rule(*rows(), confidence=n),
        lambda n: eh.audit([0, 1], [0, 1], ["a", "b"], confidence=n),
    ],
)
def test_other_huge_numbers_are_refused_too(make):
    for number in (10**400, 10**5000):
        with pytest.raises(InputError):
            make(number)


def test_a_rule_file_with_a_tolerance_in_points_is_refused():
    text = json.loads(ENTRIES["Rule.from_criterion"](0.05).to_json())
    text["tolerance"] = 5
    with pytest.raises(RuleFormatError, match="did you mean"):
        eh.Rule.from_json(json.dumps(text))
