"""Promises about differences of precisions, in many samples of a population."""

from __future__ import annotations

import numpy as np
from scipy import stats

import evenhand as eh


def precision_gap(data, decided):
    rates = eh.metrics.group_rates(data.y, decided, sensitive_features=data.group).by_group("precision")
    return np.ptp(list(rates.values()))


def test_certified_precisions_rarely_differ_by_more_in_the_population():
    data = eh.datasets.make_zafar(40_000, random_state=2)
    rng = np.random.default_rng(0)
    missed = certified = 0
    for seed in range(60):
        at = rng.integers(len(data.y), size=1500)
        rows = (data.y[at], data.group[at], data.p_y[at], data.p_joint[at])
        try:
            rule = eh.learn_rule(*rows, criterion="pp", tolerance=0.3, confidence=0.8, random_state=seed)
        except eh.InfeasibleError:
            continue
        certified += 1
        missed += precision_gap(data, rule.decide(data.p_y, data.p_joint)) > 0.3
    assert certified >= 20
    assert missed <= stats.binom.ppf(0.999, certified, 0.2)
