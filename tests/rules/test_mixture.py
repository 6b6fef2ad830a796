"""Mixtures of rules: what they promise in the mean, and lots that can be drawn again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.rules import rule_json
from evenhand.rules.lots import PRIME, draw, lots
from evenhand.rules.mixture import Mixture

DATA = eh.datasets.make_zafar(3000, random_state=2)
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)


@pytest.fixture(scope="module")
def fair() -> Mixture:
    return eh.learn_rule(*ROWS, criterion="eo", tolerance=0.0, randomize=True)


def rates(decided, label):
    return [decided[(DATA.y == label) & (DATA.group == g)].mean() for g in np.unique(DATA.group)]


def test_tolerance_zero_is_met_in_the_mean(fair):
    expected = fair.expected_decision(DATA.p_y, DATA.p_joint)
    for label in (0, 1):
        one, other = rates(expected, label)
        assert one == pytest.approx(other, abs=1e-9)
    assert fair.solution_.utility == pytest.approx(np.mean(np.where(DATA.y == 1, expected, 1 - expected)))
    assert fair.solution_.status == "optimal"
    assert 2 <= len(fair.rules) <= 3


def test_it_is_at_least_as_good_as_any_rule():
    for tolerance in (0.01, 0.05):
        single = eh.learn_rule(*ROWS, criterion="dp", tolerance=tolerance)
        mixed = eh.learn_rule(*ROWS, criterion="dp", tolerance=tolerance, randomize=True)
        assert mixed.solution_.utility >= single.solution_.utility - 1e-12
        assert single.solution_.utility <= mixed.solution_.upper_bound + 1e-12


def test_decisions_are_drawn_with_their_probability_and_can_be_drawn_again(fair):
    expected = fair.expected_decision(DATA.p_y, DATA.p_joint)
    keys = np.arange(len(DATA.y))
    drawn = np.mean([fair.decide(DATA.p_y, DATA.p_joint, key=keys + 10_000 * k) for k in range(40)], axis=0)
    unsure = (expected > 0.0) & (expected < 1.0)
    assert 0 < unsure.sum() < len(expected)
    assert drawn[unsure].mean() == pytest.approx(expected[unsure].mean(), abs=0.03)
    np.testing.assert_array_equal(drawn[~unsure], expected[~unsure])
    once, again = (fair.decide(DATA.p_y, DATA.p_joint, key=keys) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    # One at a time, in any order, a key gives the same decision.
    some = [7, 3, 1999]
    np.testing.assert_array_equal(fair.decide(DATA.p_y[some], DATA.p_joint[some], key=keys[some]), once[some])


def test_without_keys_equal_scores_are_decided_alike(fair):
    twice = np.repeat(np.arange(200), 2)
    decided = fair.decide(DATA.p_y[twice], DATA.p_joint[twice])
    np.testing.assert_array_equal(decided[::2], decided[1::2])
    assert fair.decide(DATA.p_y, DATA.p_joint).mean() == pytest.approx(
        fair.expected_decision(DATA.p_y, DATA.p_joint).mean(), abs=0.03
    )


def test_json_is_exact_and_checked(fair):
    read = Mixture.from_json(fair.to_json())
    assert read == fair
    data = json.loads(fair.to_json())
    for change in (
        {"format": "evenhand-rule"},
        {"version": 9},
        {"weights": [1.0]},
        {"weights": [-1.0, *data["weights"][1:]]},
        {"rules": []},
        {"rules": "none"},
        {"extra": 1},
    ):
        with pytest.raises(eh.RuleFormatError):
            Mixture.from_json(json.dumps({**data, **change}))
    with pytest.raises(eh.RuleFormatError):
        Mixture.from_json(fair.to_json()[:-40])


def test_known_groups_meet_tolerances_that_no_rule_meets():
    joint = np.zeros((len(DATA.y), 2, 2))
    at, group = np.arange(len(DATA.y)), (DATA.group == "1").astype(int)
    joint[at, 0, group], joint[at, 1, group] = 1 - DATA.p_y, DATA.p_y
    with pytest.raises(eh.InfeasibleError, match="randomize=True"):
        eh.learn_rule(DATA.y, DATA.group, DATA.p_y, joint, criterion="eo", tolerance=1e-4)
    mixed = eh.learn_rule(DATA.y, DATA.group, DATA.p_y, joint, criterion="eo", tolerance=0.0, randomize=True)
    assert max(map(abs, mixed.solution_.values)) <= 1e-9


def test_safety_draws_the_bounds_of_a_mixture_in():
    mixed = eh.learn_rule(*ROWS, criterion="dp", tolerance=0.1, safety=1.0, randomize=True)
    assert mixed.solution_.used[0][1] < 0.1
    assert abs(mixed.solution_.values[0]) <= mixed.solution_.used[0][1] + 1e-9


def test_bounds_that_contradict_each_other_are_refused():
    impossible = eh.SelectionBudget(lower=0.6) & eh.MaximumRate("selection", 0.3)
    with pytest.raises(eh.InfeasibleError, match="No mixture of rules"):
        eh.learn_rule(*ROWS, criterion=impossible, randomize=True)


@pytest.mark.parametrize("options", [{"search": "lines"}, {"randomize": 1}], ids=["search", "flag"])
def test_what_does_not_go_with_lots_is_refused(options):
    with pytest.raises(eh.InputError, match="randomize"):
        eh.learn_rule(*ROWS, **{"randomize": True, **options})


@pytest.mark.parametrize("key", [[1, 2], [-1, 2, 3], [0.5, 1.0, 2.0], [2**62, 1, 2], [None, "a", "b"]])
def test_wrong_keys_are_refused(fair, key):
    with pytest.raises(eh.InputError, match="key"):
        fair.decide(DATA.p_y[:3], DATA.p_joint[:3], key=key)


@pytest.mark.parametrize("step", [1, 2, 1000, PRIME, 2**33])
def test_lots_of_regular_keys_are_spread_evenly(step):
    drawn = draw(np.arange(100_000, dtype=np.int64) * step % 2**61)
    counts = np.histogram(drawn, 100, (0.0, 1.0))[0]
    assert stats.chisquare(counts).pvalue > 1e-4
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.02
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0


def test_lots_are_what_plain_integers_give():
    """The same arithmetic with Python's own integers, of any size."""
    from evenhand.rules.lots import HIGH_WORDS, ROUNDS

    for key in (0, 1, 12345, 2**31, 10**15, 2**62 - 1):
        mixed = (key % PRIME + HIGH_WORDS * (key // PRIME % PRIME)) % PRIME
        for factor, shift in ROUNDS:
            mixed = pow((factor * mixed + shift) % PRIME, 3, PRIME)
        assert lots([key], 1)[0] == mixed / PRIME


def test_the_prime_is_one_and_cubing_a_permutation_below_it():
    assert all(PRIME % divisor for divisor in range(2, int(PRIME**0.5) + 1))
    assert (PRIME - 1) % 3 != 0


def test_a_text_that_spells_a_number_has_its_lot():
    same = lots(["0", "17", str(2**62 - 1)], 3).tolist()
    assert same == lots([0, 17, 2**62 - 1], 3).tolist()
    others = ["017", " 17", "17 ", "+17", "１７", "17.0", "-0", "", str(2**62)]
    assert len({*same, *lots(others, len(others)).tolist()}) == 3 + len(others)


def test_texts_have_lots_too():
    assert lots(["a-1", "a-2"], 2).tolist() == lots(np.array(["a-1", "a-2"], dtype=object), 2).tolist()
    assert len(set(lots([f"customer {k}" for k in range(1000)], 1000))) == 1000


def test_whole_keys_of_any_type_have_the_same_lots():
    known = lots([1, 2**31], 2)
    for kind in (np.int64, np.uint32):
        for keys in (
            [kind(1), kind(2**31)],
            np.array([kind(1), 2**31], dtype=object),
            np.array([1, 2**31], dtype=kind),
        ):
            np.testing.assert_array_equal(lots(keys, 2), known)


@pytest.mark.parametrize("keys", [[-1, 2**64], [-1, 2**63], [2**62, 1], [np.uint64(2**63), 1], [2**64, 2**65]])
def test_whole_keys_that_are_too_large_are_refused_with_the_range(keys):
    with pytest.raises(eh.InputError, match=r"whole numbers from 0 to 2\^62 - 1, or texts; got"):
        lots(keys, 2)


def test_weights_and_rules_must_fit():
    rule = eh.learn_rule(*ROWS, criterion="dp")
    other = eh.learn_rule(*ROWS, criterion="eo")
    for rules, weights, message in (
        ((), (), "one or more rules"),
        ((rule,), (0.5,), "sum to 1"),
        ((rule, rule), (0.5, 0.6), "sum to 1"),
        ((rule, other), (0.5, 0.5), "rules of a mixture must have the same"),
    ):
        with pytest.raises(eh.InputError, match=message):
            Mixture(rules, weights)


def test_json_that_could_not_be_read_again_is_not_written(fair, monkeypatch):
    text = fair.to_json()
    monkeypatch.setattr(rule_json, "LARGEST", len(text))
    assert Mixture.from_json(fair.to_json()) == fair
    monkeypatch.setattr(rule_json, "LARGEST", len(text) - 1)
    with pytest.raises(eh.errors.InputError, match="use fewer strata"):
        fair.to_json()
    with pytest.raises(eh.errors.RuleFormatError, match="at most"):
        Mixture.from_json(text)
