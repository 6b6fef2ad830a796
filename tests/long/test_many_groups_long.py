"""Many groups: the certified search is given a problem that it cannot prove, and stops all the same."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh


@pytest.mark.parametrize("n_groups", [10, 20, 40])
def test_many_groups_keep_to_the_work_that_they_are_given(n_groups):
    rng = np.random.default_rng(0)
    n = 150 * n_groups
    p_group, p_y = rng.dirichlet(np.ones(n_groups), size=n), rng.random(n)
    group, y = np.arange(n) % n_groups, (rng.random(n) < p_y).astype(int)
    search = eh.Certified(max_visits=400_000_000)
    rule = eh.learn_rule(y, group, p_y, p_group, criterion="dp", tolerance=0.25, search=search)
    assert rule.solution_.stopped == "work"
    rates = [np.mean(rule.decide(p_y, p_group)[group == g]) for g in range(n_groups)]
    assert max(rates) - min(rates) <= 0.25
