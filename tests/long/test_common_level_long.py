"""Predictive parity of tables that do not fit in memory, against the optimum in memory, where counts are sharp."""

from __future__ import annotations

import pytest

import evenhand as eh
from engine_rows import in_memory
from evenhand.engines import arrow
from scored_rows import NAMES, draw


@pytest.mark.parametrize(("seed", "tolerance", "proven"), [(0, 0.02, True), (2, 0.05, True), (3, 0.1, False)])
def test_the_proof_at_all_levels_bounds_the_optimum(seed, tolerance, proven):
    table = draw(50_000, seed=seed)
    options = {"criterion": eh.PredictiveParity(), "tolerance": tolerance}
    solution = arrow.learn_rule(table, max_in_memory=0, **NAMES, **options).solution_
    known = in_memory(table, **options).solution_
    assert known.status == "optimal"
    assert solution.upper_bound >= known.utility - 1e-12
    assert known.utility >= solution.utility - 1e-12
    assert solution.gap <= (0.0 if proven else 1e-3)
