from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InputError
from evenhand.rules import scores
from evenhand.rules.criteria import EqualizedOdds
from evenhand.rules.events import Event
from evenhand.rules.system import write_out

seeds = st.integers(0, 2**32 - 1)


@given(seed=seeds, k=st.integers(1, 4))
def test_a_flip_in_the_papers_form_is_a_sign_change_of_the_margin_form(seed, k):
    """kappa(x) = [sum_k z_k s_k(x) > 1] flips yhat exactly where m - z.g has the other sign than m."""
    rng = np.random.default_rng(seed)
    p = rng.random(500)
    contrast, z = rng.normal(size=(500, k)), rng.normal(size=k) * 0.3
    margin = scores.margin(p)
    base = margin > 0
    flips = scores.bias_scores(margin, contrast) @ z > 1.0
    np.testing.assert_array_equal(base ^ flips, margin - contrast @ z > 0.0)


def test_bias_scores_are_the_papers_formula_for_equalized_odds():
    """Eq. s_score_eo, written out for one row by hand."""
    joint = np.array([[[0.1, 0.2], [0.4, 0.3]]])  # p(Y=0,A=0), p(0,1); p(1,0), p(1,1)
    prior = np.array([[0.2, 0.3], [0.1, 0.4]])
    groups = {"A": (0, 1)}
    system = write_out(EqualizedOdds(), groups)
    posterior = scores.posteriors(system.events, groups, {"A": joint}, 1)
    density = posterior / prior.reshape(-1)
    p = joint[:, 1].sum(axis=1)
    found = scores.bias_scores(scores.margin(p), scores.contrasts(density, system.contrasts))
    eta = 2 * 0.7 - 1
    expected = [(0.1 / 0.2 - 0.2 / 0.3) / eta, (0.4 / 0.1 - 0.3 / 0.4) / eta]
    np.testing.assert_allclose(found, [expected])


def test_margin_with_costs_is_zero_at_the_cost_ratio():
    false_positive, false_negative = 1.0, 4.0
    boundary = false_positive / (false_positive + false_negative)
    np.testing.assert_allclose(scores.margin(np.array([0.0, boundary, 1.0]), (1.0, 4.0)), [-1.0, 0.0, 4.0])


def test_a_row_without_confidence_has_an_infinite_score_or_none():
    found = scores.bias_scores(np.array([0.0, 0.0, 0.0]), np.array([[2.0], [-2.0], [0.0]]))
    np.testing.assert_array_equal(found, [[-np.inf], [np.inf], [0.0]])


def test_posteriors_of_a_group_are_the_sum_over_labels():
    groups = {"A": ("a", "b", "c")}
    joint = np.random.default_rng(0).dirichlet(np.ones(6), size=10).reshape(10, 2, 3)
    found = scores.posteriors((Event("A", "b"), Event("A", "b", 1), Event()), groups, {"A": joint}, 10)
    np.testing.assert_allclose(found, np.column_stack([joint[:, :, 1].sum(axis=1), joint[:, 1, 1], np.ones(10)]))


@pytest.mark.parametrize(
    ("costs", "pair"),
    [
        (None, (1.0, 1.0)), ((1, 5), (1.0, 5.0)), ([2, 1], (2.0, 1.0)), ({"fp": 1, "fn": 3}, (1.0, 3.0)),
        ({"false_negative": 3, "false_positive": 2}, (2.0, 3.0)),
    ],
)  # fmt: skip
def test_costs_are_read_from_pairs_and_dicts(costs, pair):
    assert scores.read_costs(costs) == pair


@pytest.mark.parametrize("costs", [(1,), (1, 2, 3), "ab", (0, 1), (-1, 1), (1, np.inf), {"fp": 1}, {"a": 1, "b": 2}, 3])
def test_costs_that_mean_nothing_are_refused(costs):
    with pytest.raises(InputError, match="costs"):
        scores.read_costs(costs)


@pytest.mark.parametrize(
    ("p_group", "message"),
    [
        (np.ones((4, 3)) / 3, "one column for each group"),
        (np.full((4, 2), 0.4), "sum to 1"),
        (np.full((3, 2), 0.5), "3 rows"),
        (np.full((4, 2), np.nan), "between 0 and 1"),
        (np.full((4, 3, 2), 1 / 6), "shape"),
        ({"B": np.full((4, 2), 0.5), "C": np.full((4, 2), 0.5)}, "no probabilities for the attribute 'A'"),
        ([["x", "y"]] * 4, "must be numbers"),
    ],
)
def test_group_probabilities_that_do_not_fit_are_refused(p_group, message):
    with pytest.raises(InputError, match=message):
        scores.read_group_probabilities(p_group, {"A": ("a", "b")}, 4)


def test_a_frame_whose_columns_are_named_after_the_groups_may_have_them_in_any_order():
    groups = {"A": (10, 20, 30)}
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=5)
    order = [2, 0, 1]
    for names in ([10, 20, 30], ["10", "20", "30"]):
        frame = pd.DataFrame(p, columns=names)[[names[j] for j in order]]
        np.testing.assert_array_equal(scores.read_group_probabilities(frame, groups, 5)["A"], p)
        np.testing.assert_array_equal(scores.read_group_probabilities({"A": frame}, groups, 5)["A"], p)
    columns = {str(groups["A"][j]): p[:, j] for j in order}
    for frame in (pl.DataFrame(columns), pa.table(columns)):
        np.testing.assert_array_equal(scores.read_group_probabilities(frame, groups, 5)["A"], p)


def test_the_columns_of_a_crossed_attribute_are_named_by_their_parts():
    groups = {"A & B": (("a", 0), ("b", 1))}
    p = np.array([[0.25, 0.75], [1.0, 0.0]])
    frame = pl.DataFrame({"b & 1": p[:, 1], "a & 0": p[:, 0]})
    np.testing.assert_array_equal(scores.read_group_probabilities(frame, groups, 2)["A & B"], p)


@pytest.mark.parametrize("names", [[0, 1], ["p0", "p1"], ["column_1", "column_2"]])
def test_a_frame_whose_columns_are_only_numbered_is_read_by_position(names):
    p = np.array([[0.25, 0.75], [1.0, 0.0]])
    for groups in (("a", "b"), (7, 8)):
        found = scores.read_group_probabilities(pd.DataFrame(p, columns=names), {"A": groups}, 2)
        np.testing.assert_array_equal(found["A"], p)


@pytest.mark.parametrize("spelling", ["{}", "p_{}", "P({})", "{}_score", "{} & {}"])
@pytest.mark.parametrize("groups", [("a", "b"), (1, 2), (False, True), ("x", "xx")])
def test_a_frame_whose_names_have_a_common_frame_is_read_by_name(spelling, groups):
    p = np.array([[0.25, 0.75], [1.0, 0.0]])
    names = [spelling.format(group, "same") for group in groups]
    for order in ([0, 1], [1, 0]):
        frame = pd.DataFrame(p[:, order], columns=[names[j] for j in order])
        np.testing.assert_array_equal(scores.read_group_probabilities(frame, {"A": groups}, 2)["A"], p)


@pytest.mark.parametrize("names", [["f", "m"], ["p_x", "p_y"], ["p1", "p0"], ["a", "p"], ["p2", "p3"]])
def test_a_frame_whose_columns_name_no_group_is_refused(names):
    frame = pd.DataFrame(np.full((4, 2), 0.5), columns=names)
    with pytest.raises(InputError, match=r"Name one column after each of the groups \['F', 'M'\].*to_numpy"):
        scores.read_group_probabilities(frame, {"A": ("F", "M")}, 4)


def test_a_frame_with_only_some_columns_named_after_groups_is_refused():
    frame = pd.DataFrame(np.full((4, 2), 0.5), columns=["b", "p_a"])
    with pytest.raises(InputError, match=r"\['b', 'p_a'\], of which only \['b'\]"):
        scores.read_group_probabilities(frame, {"A": ("a", "b")}, 4)


def test_probabilities_of_another_attribute_are_refused():
    p = np.full((4, 2), 0.5)
    with pytest.raises(InputError, match=r"for the attribute 'sex'; it has \['age'\]"):
        scores.read_group_probabilities({"age": p}, {"sex": ("a", "b")}, 4)
    np.testing.assert_array_equal(scores.read_group_probabilities({"age": p}, {"group": ("a", "b")}, 4)["group"], p)


def test_one_column_is_enough_for_two_groups():
    found = scores.read_group_probabilities(np.array([0.25, 1.0]), {"A": ("a", "b")}, 2)
    np.testing.assert_allclose(found["A"], [[0.75, 0.25], [0.0, 1.0]])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [0, 1, 2, 16_384, 16_385, 65_537])
@pytest.mark.parametrize(("events", "contrasts"), [(4, 1), (4, 2), (6, 4), (8, 8), (40, 20)])
def test_products_of_blocks_have_the_bits_of_one_product(events, contrasts, n, order):
    rng = np.random.default_rng(n)
    rows, matrix = np.asarray(rng.random((n, events)), order=order), rng.normal(size=(contrasts, events))
    assert np.array_equal(scores.products(rows, matrix), rows @ matrix.T)


def test_products_of_many_rows_start_no_threads(monkeypatch):
    largest = []

    def matmul(rows, matrix, out):
        largest.append(len(rows) * matrix.size)
        out[:] = rows @ matrix

    monkeypatch.setattr(np, "matmul", matmul)
    scores.products(np.ones((100_001, 4)), np.ones((2, 4)))
    assert len(largest) > 1
    assert max(largest) < 262_144
