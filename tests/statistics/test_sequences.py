"""Confidence sequences: valid at every look, and as tight as the mixture of stakes allows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

import evenhand as eh
from evenhand.statistics import sequences
from evenhand.statistics.intervals import wilson_interval
from evenhand.statistics.sequences import linear_sequences, rate_sequence, restart_share, sequence_at


def log_wealth(m, s, n):
    stakes = 8.0 * 2.0 ** (-0.5 * np.arange(28))
    return special.logsumexp(stakes * s - n * np.log1p(m * np.expm1(stakes))) - np.log(28)


@pytest.mark.parametrize(("s", "n"), [(3, 10), (28, 95), (500, 1000), (9_000, 10_000), (12, 500_000), (70, 70)])
def test_the_lower_end_is_where_the_wealth_reaches_the_limit(s, n):
    lower, upper = rate_sequence(s, n, 0.95)
    root = optimize.brentq(lambda m: log_wealth(m, s, n) - np.log(40.0), 0.0, s / n, xtol=1e-14)
    assert lower == pytest.approx(root, rel=1e-6)
    assert lower <= root * (1.0 + 1e-12)
    assert upper == pytest.approx(1.0 - float(rate_sequence(n - s, n, 0.95)[0]))


def test_every_step_of_the_search_is_valid_and_closer(monkeypatch):
    ends = []
    for steps in range(5):
        monkeypatch.setattr(sequences, "_STEPS", steps)
        ends.append(float(rate_sequence(300, 1000)[0]))
    assert ends == sorted(ends)
    assert ends[3] - ends[2] < 1e-6


def test_without_rows_and_without_successes():
    assert [float(end) for end in rate_sequence(0, 0)] == [0.0, 1.0]
    lower, upper = rate_sequence([0, 50], [50, 50])
    assert lower[0] == 0.0
    assert upper[1] == 1.0
    assert upper[0] == pytest.approx(1.0 - lower[1])


@pytest.mark.parametrize("n", [30, 1000, 10**5, 10**7])
@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5])
def test_a_sequence_is_about_twice_as_wide_as_an_interval_for_one_look(n, rate):
    (low, high), (one, other) = rate_sequence(int(n * rate), n), wilson_interval(int(n * rate), n)
    assert 1.4 < (high - low) / (other - one) < 1.9


def test_looking_after_every_row_is_covered_also_when_the_rate_drifts_and_depends_on_the_past():
    rng = np.random.default_rng(0)
    streams, n = 100, 600
    p = np.empty((streams, n))
    x = np.empty((streams, n))
    level = np.full(streams, 0.3)
    for i in range(n):
        p[:, i] = np.clip(level + 0.2 * np.sin(i / 60.0), 0.02, 0.98)
        x[:, i] = rng.random(streams) < p[:, i]
        # Each positive decision makes the next one less likely.
        level = 0.3 - 0.1 * x[:, i]
    trials = np.arange(1.0, n + 1.0)
    lower, upper = sequence_at(x.cumsum(axis=1), trials, 0.1)
    mean = p.cumsum(axis=1) / trials
    wrong = ((mean < lower) | (mean > upper)).any(axis=1)
    # The interval of each look alone is wrong at some look much more often than once in ten streams.
    one, other = wilson_interval(x.cumsum(axis=1), np.broadcast_to(trials, x.shape), 0.9)
    assert wrong.mean() <= 0.1
    assert ((mean < one) | (mean > other)).any(axis=1).mean() > 0.3


def test_combinations_are_those_of_the_ends():
    s, n = np.array([30.0, 60.0, 5.0]), np.array([100.0, 150.0, 80.0])
    low, high = sequence_at(s, n, np.array([0.01, 0.02, 0.03]))
    values, lower, upper = linear_sequences([[1, -1, 0], [1, 0, -0.8]], s, n, np.array([0.01, 0.02, 0.03]))
    assert values == pytest.approx([0.3 - 0.4, 0.3 - 0.8 * 0.0625])
    assert lower == pytest.approx([low[0] - high[1], low[0] - 0.8 * high[2]])
    assert upper == pytest.approx([high[0] - low[1], high[0] - 0.8 * low[2]])


def test_the_shares_of_all_starts_sum_to_one():
    k = np.arange(1, 200_001)
    assert restart_share(k).sum() == pytest.approx(1.0 - 1.0 / np.log2(200_002), abs=1e-9)
    assert (np.diff(restart_share(k)) < 0.0).all()
    with pytest.raises(eh.InputError, match="1, 2"):
        restart_share(0)
