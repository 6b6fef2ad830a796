from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.search.kernels.margin import four_column_decisions, linear_margin
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
@pytest.mark.parametrize("where", ["p", "first", "last"])
@pytest.mark.parametrize("columns", [1, 2, 4])
def test_linear_margin_names_the_first_row_that_is_no_probability(bad, where, columns):
    p, q = np.full(5, 0.5), np.full((5, columns), 1.0 / columns)
    for row in (3, 4):
        (p if where == "p" else q[:, 0 if where == "first" else -1])[row] = bad
    assert linear_margin(0.0, 1.0, p, q, np.zeros(columns), True, False, np.empty(5)) == 3
    unchecked = linear_margin(0.0, 1.0, p, q, np.zeros(columns), False, False, np.empty(5))
    assert unchecked == (-1 if where == "p" else 3)


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_linear_margin_wants_probabilities_that_add_up_to_one(columns):
    q = np.full((3, columns), 1.0 / columns)
    q[1] *= 0.99
    assert linear_margin(0.0, 1.0, np.full(3, 0.5), q, np.zeros(columns), True, False, np.empty(3)) == 1


@covers(four_column_decisions)
@given(seed=seeds, n=st.integers(0, 30))
def test_decisions_from_four_columns_are_the_signs_of_the_margins(seed, n):
    rng = np.random.default_rng(seed)
    p, q = rng.integers(0, 9, size=n) / 8.0, rng.multinomial(8, np.full(4, 0.25), size=n) / 8.0
    weights, out, decided = rng.integers(-4, 5, size=4) / 4.0, np.empty(n), np.full(n, 7)
    linear_margin(-0.5, 1.0, p, q, weights, True, False, out)  # eighths: many margins are exactly 0
    assert four_column_decisions(-0.5, 1.0, p, q, weights, decided)
    np.testing.assert_array_equal(decided, out > 0.0)


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.1, np.inf])
@pytest.mark.parametrize("column", range(5))
def test_decisions_from_four_columns_refuse_what_is_no_probability(bad, column):
    rows = np.full((9, 5), 0.25)
    rows[7, column] = bad
    given = np.ascontiguousarray(rows[:, 4]), np.ascontiguousarray(rows[:, :4]), np.zeros(4), np.empty(9, dtype=int)
    assert not four_column_decisions(0.0, 1.0, *given)
    given[0][7], given[1][7] = 0.5, 0.25
    assert four_column_decisions(0.0, 1.0, *given)
    given[1][7] = 0.2
    assert not four_column_decisions(0.0, 1.0, *given)


@pytest.mark.parametrize("columns", [2, 4])
def test_rows_in_none_of_the_strata_have_no_probabilities_and_keep_what_they_have(columns):
    q = np.full((3, columns), 1.0 / columns)
    q[1] = 0.0
    out = np.array([0.1, 0.2, 0.3])
    assert linear_margin(0.0, 1.0, out, q, np.ones(columns), False, True, out) == -1  # in place, as with two attributes
    np.testing.assert_allclose(out, [-0.9, 0.2, -0.7])
    assert linear_margin(0.0, 1.0, np.zeros(3), q, np.ones(columns), False, False, np.empty(3)) == 1
