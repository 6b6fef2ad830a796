"""Every rate of the confusion matrix, as a bound that is linear in the decisions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.rules.criteria import from_dict
from evenhand.rules.events import RATES
from evenhand.rules.system import shares_of, write_out
from problems import setting_of


def cells_of(y, decided, weight):
    """Return the weights of (label, decision)."""
    return np.array([[weight[(y == a) & (decided == b)].sum() for b in (0, 1)] for a in (0, 1)])


# Each rate written out from the confusion matrix [[tn, fp], [fn, tp]], by hand.
BY_HAND = {
    "selection": lambda t: (t[0, 1] + t[1, 1]) / t.sum(),
    "selection_rate": lambda t: (t[0, 1] + t[1, 1]) / t.sum(),
    "tpr": lambda t: t[1, 1] / t[1].sum(),
    "fpr": lambda t: t[0, 1] / t[0].sum(),
    "tnr": lambda t: t[0, 0] / t[0].sum(),
    "fnr": lambda t: t[1, 0] / t[1].sum(),
    "precision": lambda t: t[1, 1] / t[:, 1].sum(),
    "fdr": lambda t: t[0, 1] / t[:, 1].sum(),
    "npv": lambda t: t[0, 0] / t[:, 0].sum(),
    "for": lambda t: t[1, 0] / t[:, 0].sum(),
    "accuracy": lambda t: (t[0, 0] + t[1, 1]) / t.sum(),
    "error": lambda t: (t[0, 1] + t[1, 0]) / t.sum(),
}


def draw(seed, n=60):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(0, 2, (2, n))
    y[:4], group[:4] = [0, 0, 1, 1], [0, 1, 0, 1]
    y[4:8], group[4:8] = y[:4], group[:4]
    joint = rng.dirichlet(np.ones(4), n).reshape(n, 2, 2)
    return y, group, joint, rng.random(n) < 0.5, rng.choice([0.5, 1.0, 2.0], n)


def test_every_rate_is_there():
    assert BY_HAND.keys() == RATES.keys()


@pytest.mark.parametrize("kind", [eh.MinimumRate, eh.MaximumRate])
@pytest.mark.parametrize("rate", RATES)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), level=st.floats(0.05, 0.95), weighted=st.booleans())
def test_a_bound_holds_in_its_linear_form_where_it_holds_for_the_rate(kind, rate, seed, level, weighted):
    y, group, joint, decided, weight = draw(seed)
    weight = weight if weighted else np.ones(len(y))
    setting = setting_of(y, group, joint[:, 1].sum(axis=1), joint, criterion=kind(rate, level), sample_weight=weight)
    problem = setting.problem([0.0])
    _, values = problem.evaluate(decided)
    with np.errstate(invalid="ignore"):
        measured = np.array(
            [BY_HAND[rate](cells_of(y[group == g], decided[group == g], weight[group == g])) for g in (0, 1)]
        )
    inside = (problem.lower[0] - 1e-12 <= values) & (values <= problem.upper[0] + 1e-12)
    clear = np.abs(measured - level) > 1e-9
    holds = measured >= level if kind is eh.MinimumRate else measured <= level
    np.testing.assert_array_equal(inside[clear], holds[clear])


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_value_of_accuracy_parity_is_the_difference_of_accuracies(seed):
    y, group, joint, decided, weight = draw(seed)
    setting = setting_of(y, group, joint[:, 1].sum(axis=1), joint, criterion=eh.AccuracyParity(), sample_weight=weight)
    _, values = setting.problem([0.1]).evaluate(decided)
    right = decided == y
    each = [np.average(right[group == g], weights=weight[group == g]) for g in (0, 1)]
    assert values[0] + setting.system.shift[0] == pytest.approx(each[0] - each[1])


DATA = eh.datasets.make_zafar(3000, random_state=0)
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)


@pytest.mark.parametrize(
    ("criterion", "rate", "level"),
    [
        (eh.MinimumRate("precision", 0.8), "precision", 0.8),
        (eh.MinimumRate("npv", 0.8), "npv", 0.8),
        (eh.MinimumRate("accuracy", 0.72), "accuracy", 0.72),
        (eh.MinimumRate("selection", 0.4), "selection", 0.4),
    ],
)
@pytest.mark.parametrize("safety", [0.0, 1.0])
def test_a_rule_keeps_its_floor_and_the_audit_agrees(criterion, rate, level, safety):
    rule = eh.learn_rule(*ROWS, criterion=criterion, safety=safety)
    decided = rule.decide(DATA.p_y, DATA.p_joint)
    rates = [BY_HAND[rate](cells_of(DATA.y[g], decided[g], np.ones(g.sum()))) for g in map(DATA.group.__eq__, "01")]
    assert min(rates) >= level - 1e-9
    if safety:
        assert min(rates) > level + 0.001
    (verdict,) = eh.audit(DATA.y, decided, DATA.group, criterion=criterion).verdicts
    assert verdict.gap.value == 0.0
    assert eh.Rule.from_json(rule.to_json()) == rule


def test_a_floor_is_a_ceiling_on_what_is_left_of_one():
    for floor, ceiling in (("precision", "fdr"), ("npv", "for"), ("accuracy", "error"), ("tpr", "fnr")):
        one = eh.learn_rule(*ROWS, criterion=eh.MinimumRate(floor, 0.7))
        other = eh.learn_rule(*ROWS, criterion=eh.MaximumRate(ceiling, 0.3))
        assert one.solution_.utility == pytest.approx(other.solution_.utility)


def test_verdicts_on_accuracy_and_precision_are_those_of_counted_rows():
    y, group, _, decided, _ = draw(5, n=400)
    (verdict,) = eh.audit(y, decided.astype(int), group, criterion="accuracy_parity").verdicts
    each = [np.mean((decided == y)[group == g]) for g in (0, 1)]
    assert verdict.gap.value == pytest.approx(abs(each[0] - each[1]))
    assert verdict.gap.lower <= verdict.gap.value <= verdict.gap.upper
    (verdict,) = eh.audit(y, decided.astype(int), group, criterion=eh.MinimumRate("precision", 0.9)).verdicts
    lowest = min(np.mean(y[(group == g) & decided]) for g in (0, 1))
    assert verdict.gap.value == pytest.approx(0.9 - lowest)


def test_every_built_in_criterion_is_a_set_of_linear_constraints():
    """A criterion, and the same written by hand as a LinearConstraint for each of its bounds, have one optimum."""
    groups = {"group": ("0", "1")}
    criterion = eh.EqualizedOdds(tolerance=0.05) & eh.MinimumRate("precision", 0.3)
    by_hand = None
    for bound in criterion.constraints(groups):
        low, high = bound.bounds(0.05)
        own = eh.LinearConstraint(dict(bound.terms), lower=low, upper=high)
        by_hand = own if by_hand is None else by_hand & own
    one, other = (eh.learn_rule(*ROWS, criterion=c) for c in (criterion, by_hand))
    assert one.solution_.utility == pytest.approx(other.solution_.utility)
    assert from_dict(by_hand.to_dict()) == by_hand
    assert eh.Rule.from_json(other.to_json()).criterion == by_hand


def test_a_system_can_be_printed():
    shares = {("sex", "F"): 0.25, ("sex", "M"): 0.5}
    system = write_out(eh.MinimumRate("precision", 0.8) & eh.AccuracyParity(), {"sex": ("F", "M")}, shares)
    assert str(system).splitlines() == [
        "0 <= 0.05 rate(sex=F, Y=1) - 0.6 rate(sex=F, Y=0)",
        "0 <= 0.1 rate(sex=M, Y=1) - 0.4 rate(sex=M, Y=0)",
        "-tolerance <= 0.25 rate(sex=F, Y=1) - 0.75 rate(sex=F, Y=0) - 0.5 rate(sex=M, Y=1) + 0.5 rate(sex=M, Y=0)"
        " + 0.25 <= tolerance",
    ]


def test_shares_of_positive_labels():
    events = {eh.Event("sex", "F", 1): 0.1, eh.Event("sex", "F", 0): 0.3, eh.Event("sex", "M", 1): 0.2}
    assert shares_of(events) == {("sex", "F"): pytest.approx(0.25)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: eh.MinimumRate("recall", 0.8), "supports the rates"),
        (lambda: eh.MaximumRate("fdr", 1.2), "needs a ceiling"),
        (lambda: eh.LinearConstraint({}), "needs terms"),
        (lambda: eh.LinearConstraint({"sex": 1.0}, lower=0.0), "needs terms"),
        (lambda: eh.LinearConstraint({eh.Event("sex", "F"): 1.0}, lower=0.5, upper=0.2), "lower <= upper"),
        (lambda: eh.LinearConstraint({eh.Event("sex", "F", kind="precision"): 1.0}, lower=0.2, upper=0.5), "one side"),
        (
            lambda: eh.LinearConstraint(
                {eh.Event("s", "F", kind="npv"): 1.0, eh.Event("s", "M", kind="npv"): -1.0}, lower=0.0
            ),
            "one side",
        ),
        (lambda: eh.Event("sex", "F", 1, "precision"), "both labels"),
        (lambda: eh.Event("sex", "F", 2), "label 0, 1 or None"),
        (lambda: eh.Event("sex", "F", kind="recall"), "kind must be"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(eh.InputError, match=message):
        make()


def test_a_constraint_on_a_group_that_is_not_there_is_named():
    own = eh.LinearConstraint({eh.Event("group", "2"): 1.0}, upper=0.5)
    with pytest.raises(eh.InputError, match="group=2"):
        eh.learn_rule(*ROWS, criterion=own)
