from __future__ import annotations

import decimal

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.arguments import check_label, check_path, check_seed, is_missing, is_number, shown
from evenhand.errors import InputError
from evenhand.inputs import as_column, as_float_array, factorize, read_members


@pytest.mark.parametrize("value", [0, -1, 1.5, np.int8(3), np.float32(0.5), float("inf"), 2**1000])
def test_numbers_are_numbers(value):
    assert is_number(value)


@pytest.mark.parametrize("value", [True, np.True_, "1", None, 10**400, -(10**400), 1j, [1], np.array(1.0), object()])
def test_what_is_no_number_that_a_float_holds_is_none(value):
    assert not is_number(value)


@pytest.mark.parametrize(
    "value", [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), decimal.Decimal("NaN")]
)
def test_every_way_to_say_missing_is_known(value):
    assert is_missing(value)
    column = np.empty(3, dtype=object)
    column[:] = ["a", value, "b"]
    assert factorize(column, "column")[1].tolist() == [0, -1, 1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(10**5000, "a very large int", id="large"),
        ("x" * 500, "'" + "x" * 76 + "..."),
        ("\ud800", "'\\ud800'"),
        (np.zeros((2, 3)), "an array of shape (2, 3), float64"),
        (pd.DataFrame({"a": [1]}), "a DataFrame"),
        (["a\nb"], "['a\\nb']"),
    ],
)
def test_a_message_shows_a_value_shortly_on_one_line(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("value", [[], {}, np.array([1, 2]), float("nan"), pd.NA, decimal.Decimal("sNaN")])
def test_what_cannot_be_looked_for_is_no_label(value):
    with pytest.raises(InputError, match="pos_label must be one label"):
        check_label(value)


@pytest.mark.parametrize("path", ["", "a\x00b", b"x", 3, None, "x" * 300, "\ud800"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InputError, match="path"):
        check_path(path)


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True, [], object()])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(InputError, match="random_state must be"):
        check_seed(seed)


def test_masked_values_are_missing():
    masked = np.ma.array([0.25, 0.5], mask=[True, False])
    np.testing.assert_array_equal(as_float_array(masked, "p"), [np.nan, 0.5])
    assert as_column(masked, "p").tolist() == [None, 0.5]
    with pytest.raises(InputError, match="row 0 has"):
        eh.Rule.from_criterion("dp", groups={"A": ["a", "b"]}, priors=[0.5, 0.5], z=[0.1]).decide(masked, [0.5, 0.5])


@pytest.mark.parametrize(
    "values", [["0.5"], np.array(["0.5"]), np.array([b"1"]), ["0.5", 1.0], np.array(["2020"], "M8[D]")]
)
def test_text_and_dates_are_not_read_as_numbers(values):
    with pytest.raises(InputError, match="p must be numbers; got"):
        as_float_array(values, "p")


def test_tuples_are_values_of_a_column():
    pairs = [("F", "old"), ("M", "old"), ("F", "old")]
    assert factorize(pairs, "group") == ((("F", "old"), ("M", "old")), pytest.approx([0, 1, 0]))


def test_a_frame_with_two_columns_of_one_name_is_refused_by_name():
    frame = pd.DataFrame([[0, 1]], columns=["a", "a"])
    with pytest.raises(InputError, match="sensitive_features is a frame that cannot be read"):
        eh.metrics.selection_rate_difference([0], [1], sensitive_features=frame)


@pytest.mark.parametrize("members", ["ab", b"ab", 3, {"a": 1}, ["a", []], ["a", "a"], None])
def test_what_is_no_list_of_groups_is_refused(members):
    with pytest.raises(InputError, match="groups"):
        read_members(members, "groups")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eh.audit([0, 1], [0, 1], ["a", "b"], confidence="x"), r"confidence must be a number.*got 'x'"),
        (lambda: eh.Intersection(["a"]), r"two or more different attribute names; got \[\['a'\]\]"),
        (lambda: eh.Intersection(["a"], "b"), r"attribute names; got \[\['a'\], 'b'\]"),
        (lambda: eh.DemographicParity(attribute=["sex"]), r"attribute must be a name.*got \['sex'\]"),
        (lambda: eh.DemographicParity(tolerance=10**400), r"tolerance must be a number; got 1000"),
        (
            lambda: eh.Rule.from_criterion("dp", groups=["a"], priors=[0.5, 0.5], z=[0]),
            r"groups must be a dict.*got \['a'\]",
        ),
        (lambda: eh.Directions(n="x"), r"n .*must be a whole number of at least 1; got 'x'"),
        (lambda: eh.Lines(m=1.5), r"m .*must be a whole number of at least 1; got 1.5"),
        (lambda: eh.metrics.selection_rate(3, [1, 0]), "y_true has 1 rows, but y_pred has 2"),
    ],
)
def test_an_error_names_the_parameter_what_was_passed_and_what_is_expected(call, message):
    with pytest.raises(InputError, match=message):
        call()
