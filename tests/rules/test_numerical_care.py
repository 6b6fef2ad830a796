"""Numbers at the edge of what a float holds: the answer is the same, or an error says why not."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.search import Certified, NoRule, Problem


def sample(n=2_000, seed=0):
    data = eh.datasets.make_zafar(n, random_state=seed, iid=True)
    return data.y, data.group, data.p_y, data.p_joint


@pytest.mark.parametrize("criterion", ["dp", "eo"])
def test_single_precision_probabilities_give_nearly_the_same_rule(criterion):
    y, group, p_y, joint = sample()
    exact = eh.learn_rule(y, group, p_y, joint, criterion=criterion, tolerance=0.1)
    single = eh.learn_rule(
        y, group, p_y.astype(np.float32), joint.astype(np.float32), criterion=criterion, tolerance=0.1
    )
    assert single.solution_.status == "optimal"
    assert single.solution_.utility == pytest.approx(exact.solution_.utility, abs=2 / len(y))
    both = single.decide(p_y, joint), single.decide(p_y.astype(np.float32), joint.astype(np.float32))
    assert (both[0] != both[1]).mean() <= 2 / len(y)


def test_rows_that_sum_to_one_within_rounding_are_accepted_and_others_named():
    y, group, p_y, joint = sample(200)
    nearly = joint * (1.0 + np.where(np.arange(200) % 2, 1e-7, -1e-7))[:, None, None]
    eh.learn_rule(y, group, p_y, nearly, criterion="eo", tolerance=0.2)
    wrong = joint.copy()
    wrong[17] *= 1.1
    with pytest.raises(eh.EvenhandError, match="17"):
        eh.learn_rule(y, group, p_y, wrong, criterion="eo", tolerance=0.2)


def test_a_probability_that_rounding_took_over_the_edge_is_the_edge():
    y, group, p_y, joint = sample(200)
    p_y[:2] = 0.0, 1.0
    over = p_y.copy()
    over[:2] = -1e-7, np.nextafter(1.0, 2.0)
    expected, found = (eh.learn_rule(y, group, p, joint, criterion="dp", tolerance=0.1) for p in (p_y, over))
    np.testing.assert_array_equal(found.z, expected.z)
    np.testing.assert_array_equal(found.decision_function(over, joint), found.decision_function(p_y, joint))
    over[1] = 1.00001
    with pytest.raises(eh.InputError, match="row 1 has"):
        eh.learn_rule(y, group, over, joint, criterion="dp", tolerance=0.1)


@pytest.mark.parametrize("share", [1e-3, 1e-6])
def test_a_group_with_a_tiny_prior_is_held_to_its_bound(share):
    """Densities are up to a million then; the rule's numbers are still those of its decisions."""
    rng = np.random.default_rng(1)
    n = 4_000
    y = rng.integers(0, 2, n)
    group = np.where(np.arange(n) < 40, "rare", "common")
    p_y = np.clip(0.5 * y + 0.25 + rng.normal(scale=0.2, size=n), 0.01, 0.99)
    p_rare = np.where(group == "rare", rng.uniform(0.2, 0.9, n), rng.uniform(0, 0.02, n))
    rule = eh.learn_rule(
        y, group, p_y, np.column_stack([1 - p_rare, p_rare]), criterion="dp", tolerance=0.05, groups=["common", "rare"],
        priors=[1 - share, share],
    )  # fmt: skip
    decided = rule.decide(p_y, np.column_stack([1 - p_rare, p_rare]))
    assert eh.metrics.demographic_parity_difference(y, decided, sensitive_features=group) <= 0.05 + 1e-9
    by_hand = eh.Rule.from_criterion("dp", groups={"A": ("common", "rare")}, priors={"A": [1 - share, share]}, z=[1e-7])
    margin = by_hand.decision_function(p_y, np.column_stack([1 - p_rare, p_rare]))
    assert np.isfinite(margin).all()
    again = eh.Rule.from_json(by_hand.to_json())
    np.testing.assert_array_equal(again.decision_function(p_y, np.column_stack([1 - p_rare, p_rare])), margin)


def test_a_million_identical_rows_are_decided_together_or_refused_by_name():
    n = 1_000_000
    y = (np.arange(n) % 3 == 0).astype(int)
    group = np.where(np.arange(n) % 2, "a", "b")
    p_y, p_group = np.full(n, 0.4), np.full((n, 2), 0.5)
    p_group[:, 0] += np.where(np.arange(n) == 0, 0.1, 0.0)
    p_group[:, 1] -= np.where(np.arange(n) == 0, 0.1, 0.0)
    rule = eh.learn_rule(y, group, p_y, p_group, criterion="dp", tolerance=0.01)
    decided = rule.decide(p_y, p_group)
    assert len(np.unique(decided[1:])) == 1
    assert rule.solution_.utility == pytest.approx((y == decided).mean(), abs=1e-12)
    with pytest.raises(eh.EvenhandError, match="same"):
        eh.learn_rule(y, group, p_y, np.full((n, 2), 0.5), criterion="dp", tolerance=0.01)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e3, 1e6])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_margins_of_any_size_give_the_optimum_of_the_scaled_problem(size, k):
    """Multiplying a row's margin and contrasts by a number changes no decision."""
    rng = np.random.default_rng(k)
    n = 30
    margin, contrasts = rng.uniform(-1, 1, n), rng.normal(size=(n, k))
    gain = rng.choice([-1.0, 1.0], n) / n
    effects = rng.choice([-1.0, 0.0, 1.0], size=(n, k)) * 2 / n
    bounds = np.full(k, 0.2)
    factor = np.where(rng.random(n) < 0.5, size, 1.0)
    plain = Problem(margin, contrasts, gain, effects, -bounds, bounds)
    scaled = Problem(margin * factor, contrasts * factor[:, None], gain, effects, -bounds, bounds)
    first, second = (Certified(max_seconds=None).solve(problem)[0] for problem in (plain, scaled))
    assert isinstance(first, NoRule) == isinstance(second, NoRule)
    if not isinstance(first, NoRule):
        assert first.utility == pytest.approx(second.utility, abs=1e-9)
        utility, values = scaled.evaluate(scaled.decide(np.array(second.z)))
        assert (utility, tuple(values)) == (second.utility, second.values)


def test_tiny_margins_alone_are_turned_by_tiny_contrasts():
    margin = np.array([1e-300, 2e-300, -1e-300])
    problem = Problem(
        margin, np.array([[1.0], [-1.0], [1.0]]) * 1e-300, np.array([-1.0, 1.0, 1.0]), np.zeros((3, 1)), [-1.0], [1.0]
    )
    found = Certified().solve(problem)[0]
    assert found.utility == 1.0
    assert problem.evaluate(problem.decide(np.array(found.z)))[0] == found.utility
