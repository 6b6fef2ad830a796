"""Intervals cover as often as they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenhand.errors import InputError
from evenhand.statistics import bounds, intervals

LEVELS = st.sampled_from([0.8, 0.9, 0.95, 0.99])


def gap_interval(successes, trials, confidence=0.95):
    """An interval for the largest difference between any two of several rates, as an audit has it."""
    s, n = intervals.read_rates(successes, trials)
    pairs = intervals.pairs_of(len(n))
    joint = intervals.simultaneous_quantile(pairs, s, n, confidence, random_state=0)
    return intervals.distance_interval(pairs, s, n, (0.0, 0.0), (intervals.normal_quantile(confidence), joint))


def ratio_interval(s_a, n_a, s_b, n_b, confidence=0.95):
    """An interval for the ratio of two rates, as an audit has it."""
    counts = (np.asarray(count, dtype=float) for count in (s_a, n_a, s_b, n_b))
    return intervals.ratio_at(*counts, intervals.normal_quantile(confidence))


@st.composite
def counts(draw, most=60):
    trials = draw(st.integers(1, most))
    return draw(st.integers(0, trials)), trials


def coverage(lower, upper, successes, trials, rate):
    inside = (lower <= rate + 1e-12) & (upper >= rate - 1e-12)
    return float((stats.binom.pmf(successes, trials, rate) * inside).sum())


@settings(max_examples=100, deadline=None)
@given(counts(), LEVELS)
def test_intervals_for_a_rate_equal_scipys(count, confidence):
    successes, trials = count
    result = stats.binomtest(successes, trials)
    for ours, method in (
        (intervals.wilson_interval, "wilson"),
        (bounds.clopper_pearson_interval, "exact"),
    ):
        lower, upper = ours(successes, trials, confidence)
        theirs = result.proportion_ci(confidence, method=method)
        assert (float(lower), float(upper)) == pytest.approx((theirs.low, theirs.high), abs=1e-10)


@pytest.mark.parametrize("trials", [7, 30, 120])
def test_clopper_pearson_never_covers_less_than_it_says_and_wilson_about_as_often(trials):
    successes = np.arange(trials + 1)
    rates = np.linspace(0.0, 1.0, 201)
    exact = [coverage(*bounds.clopper_pearson_interval(successes, trials), successes, trials, p) for p in rates]
    score = [coverage(*intervals.wilson_interval(successes, trials), successes, trials, p) for p in rates]
    assert min(exact) >= 0.95 - 1e-9
    assert np.mean(score) == pytest.approx(0.95, abs=0.012)
    assert np.mean(score) < np.mean(exact)


def test_counts_may_be_arrays_and_no_trials_leave_everything_possible():
    lower, upper = intervals.wilson_interval([0, 3, 5], [0, 5, 5])
    assert (lower[0], upper[0]) == (0.0, 1.0)
    assert upper[2] == 1.0
    assert (bounds.clopper_pearson_lower(0, 0), bounds.clopper_pearson_upper(0, 0)) == (0.0, 1.0)
    difference = intervals.newcombe_interval(90_000, 100_000, 0, 0)
    assert [float(end) for end in difference] == pytest.approx([-0.1, 0.9], abs=0.01)


# Newcombe (1998), Statistics in Medicine 17, table II: method 10 on the eight examples.
@pytest.mark.parametrize(
    ("a", "b", "lower", "upper"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0000),
        ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)
def test_newcombes_interval_equals_his_published_examples(a, b, lower, upper):
    found = intervals.newcombe_interval(*a, *b)
    assert [float(end) for end in found] == pytest.approx([lower, upper], abs=5e-5)


def test_newcombes_interval_covers_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    for n_a, n_b, p_a, p_b in ((40, 25, 0.3, 0.5), (200, 60, 0.1, 0.1), (30, 30, 0.9, 0.7)):
        s_a, s_b = rng.binomial(n_a, p_a, 20_000), rng.binomial(n_b, p_b, 20_000)
        lower, upper = intervals.newcombe_interval(s_a, n_a, s_b, n_b)
        assert np.mean((lower <= p_a - p_b) & (p_a - p_b <= upper)) == pytest.approx(0.95, abs=0.016)


@settings(max_examples=100, deadline=None)
@given(counts(), counts(), LEVELS)
def test_the_interval_of_a_ratio_is_that_of_its_inverse_inverted(a, b, confidence):
    lower, upper = ratio_interval(*a, *b, confidence)
    inverse_lower, inverse_upper = ratio_interval(*b, *a, confidence)
    with np.errstate(divide="ignore"):
        assert float(1.0 / np.float64(inverse_upper)) == pytest.approx(float(lower), rel=1e-9)
        assert float(1.0 / np.float64(inverse_lower)) == pytest.approx(float(upper), rel=1e-9)
    assert lower <= upper
    if b[0] > 0:
        ratio = a[0] / a[1] / (b[0] / b[1])
        assert lower <= ratio * (1 + 1e-12)
        assert ratio <= upper * (1 + 1e-12)


def test_the_interval_of_a_ratio_covers_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    for n_a, n_b, p_a, p_b in ((60, 40, 0.3, 0.5), (200, 80, 0.1, 0.1), (50, 50, 0.4, 0.9)):
        s_a, s_b = rng.binomial(n_a, p_a, 20_000), rng.binomial(n_b, p_b, 20_000)
        lower, upper = ratio_interval(s_a, n_a, s_b, n_b)
        assert np.mean((lower <= p_a / p_b) & (p_a / p_b <= upper)) == pytest.approx(0.95, abs=0.016)


def test_equal_weights_leave_counts_alone_and_unequal_ones_shrink_them():
    weights = np.full(8, 3.0)
    found = intervals.effective_counts(15.0, weights.sum(), (weights**2).sum())
    assert [float(count) for count in found] == [5.0, 8.0]
    weights = np.array([1.0, 1.0, 6.0])
    successes, trials = intervals.effective_counts(2.0, weights.sum(), (weights**2).sum())
    assert float(successes / trials) == 0.25
    assert 1.0 < float(trials) < 3.0
    assert intervals.effective_counts(0.0, 0.0, 0.0) == (0.0, 0.0)


def test_weighted_intervals_cover_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        weights = rng.exponential(size=150)
        chosen = rng.random(150) < 0.4
        count = intervals.effective_counts(weights[chosen].sum(), weights.sum(), (weights**2).sum())
        lower, upper = intervals.wilson_interval(*count)
        hits += bool(lower <= 0.4 <= upper)
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


@settings(max_examples=50, deadline=None)
@given(counts(), counts(), LEVELS)
def test_the_gap_of_two_rates_is_newcombes_interval_folded_at_zero(a, b, confidence):
    lower, upper = (float(end) for end in intervals.newcombe_interval(*a, *b, confidence))
    found = gap_interval([a[0], b[0]], [a[1], b[1]], confidence)
    assert found == pytest.approx((max(lower, -upper, 0.0), max(upper, -lower)), abs=1e-12)


@pytest.mark.parametrize(
    ("rates", "trials"),
    [
        ([0.3, 0.3, 0.3], [100, 100, 100]),
        ([0.2, 0.4, 0.4, 0.3], [150, 60, 60, 300]),
        ([0.05] * 8, [60] * 8),
        ([0.02, 0.02, 0.5], [100, 100, 100]),
    ],
)
def test_the_interval_of_the_largest_gap_covers_it_at_least_as_often_as_it_says(rates, trials):
    rng = np.random.default_rng(3)
    truth = max(rates) - min(rates)
    covered, repeats = 0, 500
    for successes in rng.binomial(trials, rates, (repeats, len(rates))):
        lower, upper = gap_interval(successes, trials)
        covered += lower <= truth <= upper
    assert covered / repeats >= 0.95 - 2.6 * np.sqrt(0.05 * 0.95 / repeats)


@settings(max_examples=50, deadline=None)
@given(st.lists(counts(), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_rates_does_not_matter_for_the_largest_gap(rates, random):
    shuffled = list(rates)
    random.shuffle(shuffled)
    before, after = (gap_interval(*zip(*order, strict=True)) for order in (rates, shuffled))
    assert after == pytest.approx(before, abs=1e-12)


def test_the_joint_quantile_is_between_one_interval_and_bonferronis():
    pairs = intervals.pairs_of(5)
    joint = intervals.simultaneous_quantile(pairs, [30] * 5, [100] * 5)
    assert stats.norm.ppf(0.975) < joint < stats.norm.ppf(1 - 0.025 / 10)
    assert joint == pytest.approx(stats.studentized_range.ppf(0.95, 5, np.inf) / np.sqrt(2), abs=0.06)
    assert intervals.simultaneous_quantile(intervals.pairs_of(2), [3, 4], [9, 9]) == pytest.approx(1.95996, abs=1e-5)
    many = intervals.simultaneous_quantile(intervals.pairs_of(80), [30] * 80, [100] * 80)
    assert many == pytest.approx(stats.norm.ppf(1 - 0.025 / (80 * 79 / 2)))


def test_as_many_rows_as_said_settle_the_verdict_and_somewhat_fewer_do_not():
    for successes, trials, tolerance in (
        ([30, 66], [100, 200], 0.05),
        ([30, 40, 36], [100, 100, 80], 0.02),
        ([30, 30, 31], [100, 100, 100], 0.08),
    ):
        needed = intervals.rows_needed(successes, trials, tolerance)
        rates = np.array(successes) / trials
        verdicts = []
        for size in (1.03 * needed, 0.95 * needed):
            least, most = gap_interval(rates * size, size)
            verdicts.append(most <= tolerance or least > tolerance)
        assert verdicts == [True, False]


def test_rows_for_a_promise_count_only_the_side_that_keeps_it():
    needed = intervals.rows_needed([30, 32], [100, 100], 0.05, one_sided=True)
    successes = np.rint(np.array([0.30, 0.32]) * needed).astype(int)
    more = np.rint(needed * 1.05).astype(int)
    assert all(bounds.exact_within(signs, successes, more, 0.05) for signs in ((1, -1), (-1, 1)))
    assert not all(bounds.exact_within(signs, successes, needed, 0.045) for signs in ((1, -1), (-1, 1)))
    assert intervals.rows_needed([30, 40], [100, 100], 0.05, one_sided=True) is None


def test_no_number_of_rows_settles_a_gap_at_the_tolerance_or_without_trials():
    assert intervals.rows_needed([30, 35], [100, 100], 0.05) is None
    assert intervals.rows_needed([30, 0], [100, 0], 0.05) is None
    assert intervals.rows_needed([10, 90], [100, 100], 0.05).tolist() == [100, 100]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: intervals.wilson_interval(3, 2), "got 3 of 2"),
        (lambda: intervals.wilson_interval(-1, 2), "0 <= successes"),
        (lambda: intervals.wilson_interval(np.nan, 2), "0 <= successes"),
        (lambda: intervals.wilson_interval(1, 2, 95), "strictly between 0 and 1, as in 0.95; got 95"),
        (lambda: intervals.wilson_interval(1, 2, "high"), "must be a number"),
        (lambda: intervals.read_rates([1], [2]), "two or more rates"),
    ],
)
def test_counts_and_levels_that_make_no_sense_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
