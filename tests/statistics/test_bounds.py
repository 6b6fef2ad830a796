"""The exact bounds never promise more than they keep, whatever the true rates and however few the rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenhand.errors import InputError
from evenhand.statistics import bounds

LEVELS = st.sampled_from([0.8, 0.9, 0.95, 0.99])


@st.composite
def counts(draw, most=60):
    trials = draw(st.integers(1, most))
    return draw(st.integers(0, trials)), trials


@settings(max_examples=60, deadline=None)
@given(counts(), LEVELS)
def test_one_sided_exact_bounds_equal_scipys(count, confidence):
    successes, trials = count
    upper = stats.binomtest(successes, trials, alternative="less").proportion_ci(confidence).high
    lower = stats.binomtest(successes, trials, alternative="greater").proportion_ci(confidence).low
    assert float(bounds.clopper_pearson_upper(successes, trials, confidence)) == pytest.approx(upper)
    assert float(bounds.clopper_pearson_lower(successes, trials, confidence)) == pytest.approx(lower)


def all_bounds(coefficients, n_a, n_b, confidence):
    return np.array(
        [
            [bounds.exact_upper_bound(coefficients, (a, b), (n_a, n_b), confidence) for b in range(n_b + 1)]
            for a in range(n_a + 1)
        ]
    )


@pytest.mark.parametrize(
    ("coefficients", "n_a", "n_b", "confidence"),
    [
        ((1.0, -1.0), 6, 9, 0.9),
        ((1.0, -1.0), 12, 4, 0.95),
        ((0.8, -1.0), 7, 7, 0.9),
        ((1.0, 0.5), 6, 8, 0.8),
        ((-1.0, -2.0), 5, 6, 0.9),
        ((-1.0, 1.0), 8, 5, 0.95),
    ],
)
def test_the_exact_bound_is_valid_at_every_pair_of_rates(coefficients, n_a, n_b, confidence):
    found = all_bounds(coefficients, n_a, n_b, confidence)
    rates = np.linspace(0.0, 1.0, 81)
    pmf_a = stats.binom.pmf(np.arange(n_a + 1)[:, None], n_a, rates)
    pmf_b = stats.binom.pmf(np.arange(n_b + 1)[:, None], n_b, rates)
    worst = 0.0
    for (i, p_a), (j, p_b) in itertools.product(enumerate(rates), enumerate(rates)):
        missed = found < coefficients[0] * p_a + coefficients[1] * p_b - 1e-9
        worst = max(worst, pmf_a[:, i] @ missed @ pmf_b[:, j])
    assert worst <= 1.0 - confidence
    assert worst >= 0.6 * (1.0 - confidence)


def test_the_exact_bound_is_valid_in_larger_samples_and_far_tighter_than_two_bounds():
    rng = np.random.default_rng(5)
    for p_a, p_b, n_a, n_b in ((0.35, 0.30, 150, 80), (0.06, 0.02, 300, 120)):
        missed, excess, repeats = 0, [], 300
        for s_a, s_b in zip(rng.binomial(n_a, p_a, repeats), rng.binomial(n_b, p_b, repeats), strict=True):
            missed += bounds.exact_within((1, -1), (s_a, s_b), (n_a, n_b), p_a - p_b - 1e-9, 0.9)
            if len(excess) < 20:
                bound = bounds.exact_upper_bound((1, -1), (s_a, s_b), (n_a, n_b), 0.9)
                level = np.sqrt(0.9)
                two = bounds.clopper_pearson_upper(s_a, n_a, level) - bounds.clopper_pearson_lower(s_b, n_b, level)
                estimate = s_a / n_a - s_b / n_b
                excess.append((bound - estimate) / (float(two) - estimate))
        assert missed / repeats <= 0.1 + 2.6 * np.sqrt(0.09 / repeats)
        assert np.mean(excess) < 0.75


@settings(max_examples=40, deadline=None)
@given(counts(), counts(), st.sampled_from([0.8, 0.95]))
def test_the_exact_bound_is_the_smallest_limit_that_passes(a, b, confidence):
    args = (1.0, -1.0), (a[0], b[0]), (a[1], b[1])
    bound = bounds.exact_upper_bound(*args, confidence)
    width = max(bound - (a[0] / a[1] - b[0] / b[1]), 1e-3)
    assert bound >= a[0] / a[1] - b[0] / b[1]
    assert bound == 1.0 or bounds.exact_within(*args, bound + 1e-9, confidence)
    assert not bounds.exact_within(*args, bound - 0.15 * width, confidence)


def test_the_exact_bound_of_one_rate_is_clopper_and_pearsons():
    upper, lower = bounds.clopper_pearson_upper(7, 20), bounds.clopper_pearson_lower(7, 20)
    assert bounds.exact_upper_bound([2.0], [7], [20]) == 2.0 * upper
    assert bounds.exact_upper_bound([-1.0], [7], [20]) == -lower
    assert bounds.exact_within([-1.0], [7], [20], -0.1)
    assert not bounds.exact_within([-1.0], [7], [20], -0.3)


@pytest.mark.parametrize("confidence", [0.3, 0.5, 0.51])
def test_a_low_confidence_has_a_bound_too(confidence):
    bound = bounds.exact_upper_bound((1, -1), (40, 38), (100, 100), confidence)
    assert bounds.exact_within((1, -1), (40, 38), (100, 100), bound + 1e-9, confidence)
    assert bound < bounds.exact_upper_bound((1, -1), (40, 38), (100, 100), 0.8)


def test_a_rate_without_trials_may_be_anything():
    bound = bounds.exact_upper_bound((1, -1), (0, 5), (0, 10))
    assert bound == pytest.approx(1.0 - float(bounds.clopper_pearson_lower(5, 10)), abs=0.02)
    assert bounds.exact_upper_bound((1, -1), (10, 0), (10, 0)) == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.exact_upper_bound((1, 1, 1), (1, 1, 1), (2, 2, 2)), "one or two rates"),
        (lambda: bounds.exact_upper_bound((1, 0), (1, 1), (2, 2)), "not zero"),
        (lambda: bounds.exact_upper_bound((1, -1), (1.5, 1), (2, 2)), "whole counts"),
    ],
)
def test_counts_that_are_not_whole_and_combinations_of_three_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
