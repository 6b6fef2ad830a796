"""Intervals of differences of precisions: Newcombe's, given who is selected; their coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.statistics.intervals import newcombe_interval


def draw(rng, n, selection, precision):
    """Return labels, decisions and groups of n rows in each group, of a population with these rates."""
    y, decided, group = [], [], []
    for name, rate, level in zip("abc", selection, precision, strict=False):
        chosen = rng.random(n) < rate
        y.append(np.where(chosen, rng.random(n) < level, rng.random(n) < 0.3))
        decided.append(chosen)
        group += [name] * n
    return np.concatenate(y).astype(int), np.concatenate(decided).astype(int), np.array(group)


@pytest.mark.parametrize("n", [60, 200, 800])
@pytest.mark.parametrize("selection", [(0.3, 0.5), (0.1, 0.6)])
@pytest.mark.parametrize("precision", [(0.8, 0.7), (0.95, 0.6), (0.7, 0.7), (0.98, 0.97)])
def test_intervals_of_a_difference_of_precisions_cover(n, selection, precision):
    """How many rows are selected is drawn too, and may be none."""
    rng, samples = np.random.default_rng(0), 20_000
    chosen = [rng.binomial(n, rate, samples) for rate in selection]
    right = [rng.binomial(number, level) for number, level in zip(chosen, precision, strict=True)]
    lower, upper = newcombe_interval(right[0], chosen[0], right[1], chosen[1])
    truth = precision[0] - precision[1]
    covered = np.mean((lower <= truth) & (truth <= upper))
    # Newcombe's interval is approximate: with few rows selected it covers a little less than it says.
    assert covered >= 0.94
    assert covered <= 0.999


def test_the_interval_is_newcombes_of_the_selected_rows():
    y, decided, group = draw(np.random.default_rng(1), 300, (0.4, 0.3), (0.9, 0.5))
    (verdict,) = eh.audit(y, decided, group, criterion="predictive_parity").verdicts
    counts = [(int(y[some].sum()), int(some.sum())) for some in ((group == g) & (decided == 1) for g in "ab")]
    lower, upper = newcombe_interval(*counts[0], *counts[1])
    assert verdict.criterion == "predictive_parity"
    assert (verdict.gap.lower, verdict.gap.upper) == (pytest.approx(lower), pytest.approx(upper))
    assert verdict.gap.value == pytest.approx(counts[0][0] / counts[0][1] - counts[1][0] / counts[1][1])
    assert verdict.outcome == "fail"


def test_a_group_in_which_nobody_is_selected_leaves_the_verdict_open():
    y, decided, group = draw(np.random.default_rng(1), 300, (0.4, 0.3), (0.9, 0.5))
    decided[group == "b"] = 0
    (verdict,) = eh.audit(y, decided, group, criterion="predictive_parity").verdicts
    assert verdict.gap.value is None
    assert verdict.outcome == "insufficient evidence"
