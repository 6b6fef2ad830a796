"""Alternatives: found, refuted or open, against every cell of tiny problems."""

from __future__ import annotations

import json

import numpy as np
import pytest

import evenhand as eh
from evenhand.auditing.alternatives import decisions_of
from evenhand.auditing.comparison import _gap_change, _utility_change
from evenhand.rows import read_rows
from evenhand.rules.setting import Options, Setting
from oracles import cells_by_linear_program
from problems import setting_of

# K = 1, 2 and 3.
KINDS = {"dp of 2": ("dp", 2, 12), "eo of 2": ("eo", 2, 8), "dp of 4": ("dp", 4, 9)}


def tiny_rows(kind, seed):
    criterion, groups, n = KINDS[kind]
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.ones(2 * groups), size=n).reshape(n, 2, groups)
    group = np.concatenate([np.repeat(np.arange(groups), 2), rng.integers(0, groups, n - 2 * groups)])
    y = (rng.random(n) < joint[:, 1].sum(axis=1)).astype(int)
    if criterion == "eo":
        group, y = np.tile([0, 0, 1, 1], n // 4), np.tile([0, 1], n // 2)
    return y, group, joint[:, 1].sum(axis=1), joint


def every_rule(y, group, p_y, joint, criterion, strata=None):
    """Return the utility and the gap of the model's own decisions and of every cell."""
    if strata is None:
        setting = setting_of(y, group, p_y, joint, criterion=criterion)
    else:
        rows = read_rows(y, group, p_y, joint, criterion=criterion, strata=strata)
        setting = Setting.of(rows, Options(criterion=criterion))
    problem = setting.problem([0.0])
    v = np.column_stack([problem.margin, problem.contrasts])
    found = [problem.evaluate(d) for d in [problem.margin > 0.0, *cells_by_linear_program(v)]]
    return np.array([[utility, np.abs(values).max()] for utility, values in found])


def smallest_gap(rules, target, below):
    """Return the smallest gap, below another one, of a rule that is good enough; None where there is none."""
    good = rules[(rules[:, 0] >= target - 1e-9) & (rules[:, 1] < below - 1e-9)]
    return None if not len(good) else good[:, 1].min()


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_that_of_every_cell(kind):
    criterion = KINDS[kind][0]
    seen = set()
    for seed in range(4 if kind != "dp of 4" else 2):
        y, group, p_y, joint = tiny_rows(kind, seed)
        rules = every_rule(y, group, p_y, joint, criterion)
        rng = np.random.default_rng(seed)
        for margin, decisions in ((0.0, None), (0.1, None), (0.0, rng.integers(0, 2, len(y))), (0.0, y), (0.2, y)):
            found = eh.alternatives(
                y, group, p_y, joint, criterion=criterion, decisions=decisions, margin=margin, held_out=0
            )
            expected = smallest_gap(rules, found.present.utility - margin, found.present.gap)
            seen.add(found.status)
            if expected is None:
                assert found.status == "refuted"
                assert found.rule is None
                small = rules[rules[:, 1] < found.present.gap - 1e-9, 0]
                assert found.upper_bound == pytest.approx(small.max() if len(small) else -np.inf, abs=1e-9)
            else:
                assert found.status == "found"
                assert found.alternative.gap == pytest.approx(expected, abs=1e-9)
                assert found.smallest_gap == found.alternative.gap
                assert found.alternative.utility >= found.present.utility - margin - 1e-9
    assert seen == {"found", "refuted"}


@pytest.mark.parametrize("kind", ["dp of 2", "eo of 2"])
def test_several_models_are_the_union_of_their_families(kind):
    criterion = KINDS[kind][0]
    by_second = 0
    for seed in range(4):
        y, group, p_y, joint = tiny_rows(kind, seed)
        joint_other = tiny_rows(kind, seed + 100)[3]
        joint_other[np.arange(len(y)), y] += 0.2
        joint_other /= joint_other.sum(axis=(1, 2), keepdims=True)
        p_other = joint_other[:, 1].sum(axis=1)
        rules = np.vstack(
            [every_rule(y, group, p_y, joint, criterion), every_rule(y, group, p_other, joint_other, criterion)]
        )
        models = {"other": (p_other, joint_other)}
        asked = {"criterion": criterion, "margin": 0.13, "models": models, "held_out": 0}
        found = eh.alternatives(y, group, p_y, joint, decisions=p_other > 0.5, **asked)
        expected = smallest_gap(rules, found.present.utility - 0.13, found.present.gap)
        assert (found.status == "found") == (expected is not None)
        if expected is not None:
            assert found.alternative.gap == pytest.approx(expected, abs=1e-9)
            assert found.smallest_gap == found.alternative.gap
            scores = (p_y, joint) if found.model == "model" else (p_other, joint_other)
            by_second += found.model == "other"
            decided = found.rule.decide(*scores)
            again = eh.alternatives(y, group, p_y, joint, decisions=decided, **{**asked, "margin": 0.0})
            assert again.status == "refuted"
            assert again.present.gap == pytest.approx(expected, abs=1e-12)
    assert by_second > 0


def test_the_optimum_at_its_own_gap_has_no_alternative():
    data = eh.datasets.make_zafar(3000, random_state=1)
    rows = data.y, data.group, data.p_y, data.p_joint
    rule = eh.learn_rule(*rows, criterion="eo", tolerance=0.05)
    first = eh.alternatives(*rows, criterion="eo", rule=rule, held_out=0)
    best = rule if first.rule is None else first.rule
    assert eh.alternatives(*rows, criterion="eo", rule=best, held_out=0).status == "refuted"
    assert eh.alternatives(*rows, criterion="eo", rule=best, margin=0.02, held_out=0).status == "found"


def test_a_search_that_proves_nothing_leaves_it_open():
    data = eh.datasets.make_zafar(500, random_state=1)
    rows = data.y, data.group, data.p_y, data.p_joint
    decisions = np.where((data.group == data.group[0]) & (np.arange(500) % 9 == 0), 1 - data.y, data.y)
    found = eh.alternatives(*rows, criterion="eo", decisions=decisions, search="directions", held_out=0)
    assert found.status == "open"
    assert found.upper_bound == np.inf
    assert "proved nothing" in str(found)


def test_a_search_that_proves_nothing_does_not_say_that_a_gap_is_the_smallest():
    data = eh.datasets.make_zafar(500, random_state=1)
    rows = data.y, data.group, data.p_y, data.p_joint
    found = eh.alternatives(*rows, criterion="eo", margin=0.05, search="directions", held_out=0)
    assert found.status == "found"
    assert found.smallest_gap == 0.0
    assert found.alternative.gap > 0.0
    assert "In between, nothing is known" in str(found)


def test_a_gap_of_zero_cannot_be_smaller():
    data = eh.datasets.make_zafar(500, random_state=1)
    decisions = np.zeros(len(data.y), dtype=int)
    found = eh.alternatives(data.y, data.group, data.p_y, data.p_group, decisions=decisions, held_out=0)
    assert (found.status, found.present.gap) == ("refuted", 0.0)
    assert "No rule of this family has a gap that small at all" in str(found)


def test_reduction_asks_for_a_gap_that_is_smaller_by_so_much():
    data = eh.datasets.make_zafar(1000, random_state=1)
    rows = data.y, data.group, data.p_y, data.p_group
    loose = eh.alternatives(*rows, margin=0.02, held_out=0)
    improvement = loose.present.gap - loose.alternative.gap
    assert eh.alternatives(*rows, margin=0.02, reduction=improvement - 1e-6, held_out=0).status == "found"
    assert eh.alternatives(*rows, margin=0.02, reduction=improvement + 1e-6, held_out=0).status == "refuted"
    refuted = eh.alternatives(*rows, margin=0.02, reduction=improvement + 1e-6, held_out=0)
    assert refuted.smallest_gap == pytest.approx(loose.alternative.gap - 1e-6, abs=1e-9)


def test_bounds_with_a_tolerance_of_their_own_hold_for_the_alternative():
    data = eh.datasets.make_zafar(2000, random_state=1)
    rows = data.y, data.group, data.p_y, data.p_joint
    budget = eh.DemographicParity() & eh.SelectionBudget(upper=0.4)
    found = eh.alternatives(*rows, criterion=budget, margin=0.1, held_out=0)
    assert found.status == "found"
    assert found.rule.decide(data.p_y, data.p_joint).mean() <= 0.4
    with pytest.raises(eh.InputError, match="no gap to reduce"):
        eh.alternatives(*rows, criterion=eh.SelectionBudget(upper=0.4), held_out=0)


def test_held_out_rows_take_no_part_in_the_search_and_are_measured():
    data = eh.datasets.make_zafar(4000, random_state=2)
    held = np.arange(4000) % 4 == 0
    rows = data.y, data.group, data.p_y, data.p_group
    found = eh.alternatives(*rows, margin=0.02, held_out=held)
    part = [np.asarray(column)[~held] for column in rows]
    assert found.rule == eh.alternatives(*part, margin=0.02, held_out=0).rule
    decided = found.rule.decide(data.p_y[held], data.p_group[held])
    audit = eh.audit(data.y[held], decided, data.group[held], criterion="dp")
    tested = found.held_out
    assert tested.rows == 1000
    assert tested.alternative == {"accuracy": audit.accuracy, "gap": audit.verdicts[0].gap}
    own = (data.p_y[held] > 0.5).astype(int)
    assert tested.utility_change.value == pytest.approx((decided == data.y[held]).mean() - (own == data.y[held]).mean())
    gap = eh.metrics.demographic_parity_difference
    change = gap(data.y[held], decided, sensitive_features=data.group[held]) - gap(
        data.y[held], own, sensitive_features=data.group[held]
    )
    assert tested.gap_change.value == pytest.approx(change, abs=1e-12)
    assert tested.gap_change.lower < change < tested.gap_change.upper


def test_what_is_refuted_is_asked_again_of_the_held_out_rows():
    data = eh.datasets.make_zafar(2000, random_state=0)
    rows = data.y, data.group, data.p_y, data.p_group
    held = np.arange(2000) < 600
    found = eh.alternatives(*rows, decisions=data.y, held_out=held)
    there = eh.alternatives(*(np.asarray(c)[held] for c in rows), decisions=data.y[held], held_out=0)
    assert found.status == "refuted"
    assert (found.held_out.status, found.held_out.upper_bound) == (there.status, there.upper_bound)
    assert "The same question about the held-out rows: refuted" in str(found)


def test_intervals_of_the_changes_cover_the_truth():
    """Two fixed rules on fresh samples of one population: about 95% of the intervals hold the true changes."""
    rng = np.random.default_rng(0)
    hits = np.zeros(2)
    runs, n = 200, 400
    for _ in range(runs):
        p, group = rng.random(n), rng.integers(0, 2, n)
        y = (rng.random(n) < p).astype(int)
        members = np.eye(2)[group] * 0.8 + 0.1
        setting = setting_of(y, group, p, members, criterion="dp")
        present, other = p > 0.5 - 0.2 * group, p > 0.5 - 0.05 * group
        utility = _utility_change(setting, present, other, 0.95)
        gap = _gap_change(setting, present, other, 0.95, 0)
        # accuracy: E max(p, 1-p) = 3/4; a threshold off by d costs d^2, in half of the rows.
        hits += [
            utility.lower <= 0.5 * (0.04 - 0.0025) <= utility.upper,
            gap.lower <= 0.05 - 0.2 <= gap.upper,
        ]
    assert (hits / runs > 0.9).all()
    assert (hits / runs < 0.995).all()


def test_an_equal_set_of_decisions_changes_nothing_but_is_not_certain():
    y, group, p_y, joint = tiny_rows("dp of 2", 0)
    setting = setting_of(y, group, p_y, joint, criterion="dp")
    change = _utility_change(setting, p_y > 0.5, p_y > 0.5, 0.95)
    assert change.value == 0.0
    assert change.lower < 0.0 < change.upper


def test_weights_and_costs_are_those_of_the_utility():
    data = eh.datasets.make_zafar(600, random_state=3)
    weight = np.random.default_rng(0).integers(1, 4, 600).astype(float)
    rows = data.y, data.group, data.p_y, data.p_group
    found = eh.alternatives(*rows, sample_weight=weight, costs=(1.0, 2.0), margin=0.02, held_out=0)
    copies = np.repeat(np.arange(600), weight.astype(int))
    repeated = eh.alternatives(*(np.asarray(c)[copies] for c in rows), costs=(1.0, 2.0), margin=0.02, held_out=0)
    assert found.present.utility == pytest.approx(repeated.present.utility)
    assert found.present.utility < 0.0
    assert found.alternative.gap == pytest.approx(repeated.alternative.gap)
    assert "utility (minus the mean cost)" in str(found)


def test_the_result_is_plain_data_without_its_rule():
    data = eh.datasets.make_zafar(600, random_state=3)
    rows = data.y, data.group, data.p_y, data.p_group
    found = eh.alternatives(*rows, margin=0.05)
    written = json.loads(json.dumps(found.to_dict()))
    assert written["schema"] == "evenhand-alternatives/1"
    assert written["alternative"]["gap"] == found.alternative.gap
    assert written["held_out"]["outcome"] == found.held_out.outcome
    assert "rule" not in written
    assert str(found) == str(eh.alternatives(*rows, margin=0.05))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"margin": -0.1}, "margin must be a number"),
        ({"reduction": "x"}, "reduction must be a number"),
        ({"held_out": 1.0}, "at least 0 and below 1"),
        ({"held_out": [True, False]}, "held_out must be a share"),
        ({"held_out": np.ones(600, dtype=bool)}, "leave some rows to search"),
        ({"models": [1]}, "models must be a dict"),
        ({"models": {"model": (0, 0)}}, "is taken"),
        ({"models": {"other": 3}}, "must be a pair"),
        ({"decisions": [0, 1]}, "rows"),
        ({"rule": "rule"}, "rule must be a Rule"),
    ],
)
def test_bad_arguments_are_named(wrong, told):
    data = eh.datasets.make_zafar(600, random_state=3)
    with pytest.raises(eh.InputError, match=told):
        eh.alternatives(data.y, data.group, data.p_y, data.p_group, **wrong)


def test_a_rule_whose_groups_are_in_another_order_is_refused():
    data = eh.datasets.make_zafar(600, random_state=3)
    turned = data.p_group[:, ::-1]
    rule = eh.learn_rule(data.y, data.group, data.p_y, turned, groups=["1", "0"])
    with pytest.raises(eh.InputError, match="in the rule's order"):
        eh.alternatives(data.y, data.group, data.p_y, data.p_group, rule=rule)
    there = eh.alternatives(data.y, data.group, data.p_y, turned, groups=["1", "0"], rule=rule, held_out=0)
    assert there.present.utility == pytest.approx(rule.solution_.utility)


def test_a_rule_and_decisions_are_one_too_many():
    data = eh.datasets.make_zafar(600, random_state=3)
    rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_group)
    with pytest.raises(eh.InputError, match="not both"):
        eh.alternatives(data.y, data.group, data.p_y, data.p_group, rule=rule, decisions=data.y)


INSIDE = eh.DemographicParity(within="job")


@pytest.mark.parametrize("seed", range(4))
def test_within_strata_the_answer_is_that_of_every_cell(seed):
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.ones(4), size=12).reshape(12, 2, 2)
    group, job, p_y = np.tile([0, 1], 6), np.repeat(["x", "y"], 6), joint[:, 1].sum(axis=1)
    y = (rng.random(12) < p_y).astype(int)
    rules = every_rule(y, group, p_y, joint, INSIDE, job)
    for margin in (0.0, 0.1, 0.2):
        found = eh.alternatives(y, group, p_y, joint, criterion=INSIDE, strata={"job": job}, margin=margin, held_out=0)
        expected = smallest_gap(rules, found.present.utility - margin, found.present.gap)
        assert found.status == ("refuted" if expected is None else "found")
        assert expected is None or found.alternative.gap == pytest.approx(expected, abs=1e-9)


def larger_rows(seed=0, n=600):
    data = eh.datasets.make_zafar(n, random_state=seed)
    return (data.y, data.group, data.p_y, data.p_joint), np.array(["x", "y", "z"])[np.arange(n) % 3]


@pytest.mark.parametrize("criterion", [INSIDE, eh.EqualOpportunity(within="job", thin=2) & eh.SelectionRatio(0.2)])
def test_within_strata_gaps_are_those_of_an_audit(criterion):
    rows, job = larger_rows()
    held = np.arange(600) % 5 == 0
    found = eh.alternatives(*rows, criterion=criterion, strata=job, held_out=held, margin=0.05, search="smoothed")
    for point, decided in (
        (found.present, rows[2] > 0.5),
        (found.alternative, found.rule.decide(*rows[2:], strata=job)),
    ):
        known = eh.audit(rows[0][~held], decided[~held], rows[1][~held], criterion=criterion, strata=job[~held])
        (gap,) = [verdict.gap.value for verdict in known.verdicts if "within" in verdict.attribute]
        assert point.gap == pytest.approx(gap)
        assert point.utility == pytest.approx((decided == rows[0])[~held].mean())
    outside = eh.audit(rows[0][held], found.rule.decide(*rows[2:], strata=job)[held], rows[1][held])
    assert found.held_out.alternative["accuracy"].value == pytest.approx(outside.accuracy.value)
    again = eh.alternatives(*rows, criterion=criterion, strata=job, rule=found.rule, held_out=held, search="smoothed")
    assert again.present == found.alternative


def test_strata_are_asked_for_and_rules_within_others_are_refused():
    rows, job = larger_rows()
    with pytest.raises(eh.InputError, match="pass each row's stratum"):
        eh.alternatives(*rows, criterion=INSIDE)
    rule = eh.learn_rule(*rows, criterion=INSIDE, tolerance=0.1, strata=job)
    with pytest.raises(eh.InputError, match="strata of 'job', which the criterion does not compare"):
        eh.alternatives(*rows, rule=rule)
    options = Options(criterion=INSIDE)
    read = read_rows(*rows, criterion=INSIDE, strata=np.where(job == "z", "new", job))
    with pytest.raises(eh.InputError, match="stratum 'new' of 'job' did not occur"):
        decisions_of(read, None, rule, options)


@pytest.mark.parametrize(
    "criterion", ["predictive_parity", eh.PredictiveParity() & eh.DemographicParity(), eh.MinimaxRate("error")]
)
def test_criteria_with_a_level_are_refused_with_what_to_do(criterion):
    rows, _ = larger_rows()
    with pytest.raises(eh.InputError, match=r"does not support PredictiveParity and MinimaxRate.* or frontier"):
        eh.alternatives(*rows, criterion=criterion)
