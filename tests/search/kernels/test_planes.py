from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.search.kernels.margin import linear_margin
from evenhand.search.kernels.planes import merge_planes
from kernels import covers, planes_of
from oracles import merged_in_numpy
from problems import KINDS, random_problem

seeds = st.integers(0, 2**32 - 1)


@covers(merge_planes)
@given(seed=seeds, kind=st.sampled_from(KINDS), n=st.integers(1, 80), k=st.integers(1, 4))
def test_merge_planes_adds_up_the_rows_of_each_plane(seed, kind, n, k):
    problem = random_problem(seed, n=n, k=k, kind=kind)
    rows = np.column_stack([problem.margin, -problem.contrasts, problem.gain, problem.effects])
    found, constant = planes_of(problem)
    planes, expected = merged_in_numpy(rows, k + 1)
    np.testing.assert_allclose(constant, expected, atol=1e-12)
    assert len(found) == len(planes)
    for row in found:
        key = tuple(np.round(row[: k + 1] * 2.0**40).astype(np.int64))
        np.testing.assert_allclose(row[k + 1 :], planes[key], atol=1e-12)


@covers(linear_margin)
@given(seed=seeds, n=st.integers(0, 30), columns=st.integers(1, 5))
def test_linear_margin_is_the_linear_expression(seed, n, columns):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    q = rng.dirichlet(np.ones(columns), size=n).reshape(n, columns)
    weights, out = rng.normal(size=columns), np.empty(n)
    assert linear_margin(-1.0, 2.0, p, q, weights, True, False, out) == -1
    np.testing.assert_allclose(out, 2.0 * p - 1.0 - q @ weights, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.1, np.inf])
@pytest.mark.parametrize("where", ["p", "q"])
def test_linear_margin_names_the_first_row_that_is_no_probability(bad, where):
    p, q = np.full(5, 0.5), np.full((5, 2), 0.5)
    (p if where == "p" else q[:, 0])[3] = bad
    assert linear_margin(0.0, 1.0, p, q, np.zeros(2), True, False, np.empty(5)) == 3
