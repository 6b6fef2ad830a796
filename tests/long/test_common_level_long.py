"""Predictive parity of tables that do not fit in memory, against the optimum in memory, where counts are sharp."""

from __future__ import annotations

import pytest

import evenhand as eh
from engine_rows import in_memory
from evenhand.engines import arrow
from scored_rows import NAMES, draw


@pytest.mark.parametrize(("seed", "tolerance"), [(0, 0.02), (1, 0.0), (2, 0.05), (3, 0.1)])
def test_the_proof_at_all_levels_has_the_optimum(seed, tolerance):
    table = draw(50_000, seed=seed)
    options = {"criterion": eh.PredictiveParity(), "tolerance": tolerance}
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, **options)
    known = in_memory(table, **options).solution_
    assert known.status == "optimal"
    assert rule.solution_.upper_bound >= known.utility - 1e-12
    assert rule.solution_.status == "optimal"
    assert rule.solution_.utility == pytest.approx(known.utility, abs=1e-12)
