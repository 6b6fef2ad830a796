"""Promises for mixtures and for the smallest largest rate, in many samples of a population."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import evenhand as eh

POPULATION = eh.datasets.make_zafar(60_000, random_state=6)
FITS = 150


def fits(n, **options):
    """Yield what many samples gave, None where nothing was certified."""
    rng = np.random.default_rng(0)
    for seed in range(FITS):
        at = rng.integers(len(POPULATION.y), size=n)
        rows = (POPULATION.y[at], POPULATION.group[at], POPULATION.p_y[at], POPULATION.p_joint[at])
        try:
            yield eh.learn_rule(*rows, confidence=0.8, random_state=seed, **options)
        except eh.InfeasibleError:
            yield None


@pytest.mark.parametrize("randomize", [False, True])
def test_the_largest_error_is_rarely_above_the_certified_ceiling(randomize):
    missed = 0
    for rule in fits(600, criterion=eh.MinimaxRate("error"), randomize=randomize):
        chance = rule.decision_function(POPULATION.p_y, POPULATION.p_joint) > 0 if not randomize else None
        expected = rule.expected_decision(POPULATION.p_y, POPULATION.p_joint) if randomize else chance.astype(float)
        error = np.where(POPULATION.y == 1, 1 - expected, expected)
        largest = max(error[POPULATION.group == g].mean() for g in "01")
        missed += largest > rule.learned_from["confidence"]["certified_ceiling"]
    print(f"missed {missed} of {FITS}, randomize={randomize}")
    assert missed <= stats.binom.ppf(0.999, FITS, 0.2)


def test_expected_odds_of_certified_mixtures_rarely_differ_by_more():
    missed = certified = 0
    for mixed in fits(1500, criterion="eo", tolerance=0.15, randomize=True):
        if mixed is None:
            continue
        expected = mixed.expected_decision(POPULATION.p_y, POPULATION.p_joint)
        gaps = []
        for label in (0, 1):
            one, other = (expected[(POPULATION.y == label) & (POPULATION.group == g)].mean() for g in "01")
            gaps.append(abs(one - other))
        certified += 1
        missed += max(gaps) > 0.15
    print(f"missed {missed} of {certified}")
    assert certified >= 20
    assert missed <= stats.binom.ppf(0.999, certified, 0.2)
