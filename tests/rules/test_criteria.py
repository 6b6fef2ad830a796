from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InputError
from evenhand.rules.criteria import Composite, from_dict, resolve
from evenhand.rules.events import Event
from evenhand.rules.system import write_out

SEX = {"sex": ("F", "M")}
BOTH = {"sex": ("F", "M"), "race": ("a", "b")}


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("demographic_parity", eh.DemographicParity), ("dp", eh.DemographicParity), ("DP", eh.DemographicParity),
        ("equalized_odds", eh.EqualizedOdds), ("eo", eh.EqualizedOdds),
        ("equal_opportunity", eh.EqualOpportunity), ("eop", eh.EqualOpportunity),
        ("true_positive_rate_parity", eh.EqualOpportunity),
        ("predictive_equality", eh.PredictiveEquality), ("pe", eh.PredictiveEquality),
        ("false_positive_rate_parity", eh.PredictiveEquality),
    ],
)  # fmt: skip
def test_a_string_is_resolved_as_fairlearn_spells_it(name, cls):
    assert resolve(name) == cls()


@pytest.mark.parametrize("name", ["", "parity", None, 3, eh.DemographicParity])
def test_an_unknown_criterion_is_refused_by_name(name):
    with pytest.raises(InputError, match="Unknown criterion"):
        resolve(name)


@pytest.mark.parametrize(
    ("criterion", "groups", "bounds", "dimension"),
    [
        (eh.DemographicParity(), SEX, 1, 1),
        (eh.DemographicParity(), {"region": tuple("abcde")}, 10, 4),
        (eh.EqualizedOdds(), SEX, 2, 2),
        (eh.EqualizedOdds(), {"region": tuple("abc")}, 6, 4),
        (eh.DemographicParity(), BOTH, 2, 2),
        (eh.EqualizedOdds(), BOTH, 4, 4),
        (eh.EqualizedOdds(attribute="race"), BOTH, 2, 2),
        (eh.SelectionRatio(0.8), SEX, 2, 2),
        (eh.SelectionRatio(1.0), SEX, 2, 1),
        (eh.MinimumRate("tpr", 0.7), SEX, 2, 2),
        (eh.SelectionBudget(upper=0.2), SEX, 1, 1),
        (eh.DemographicParity() & eh.SelectionBudget(upper=0.2), SEX, 2, 2),
        (eh.EqualizedOdds() & eh.EqualOpportunity(), SEX, 2, 2),
    ],
)
def test_the_dimension_is_the_rank_of_the_bounds_over_events(criterion, groups, bounds, dimension):
    system = write_out(criterion, groups)
    assert (len(system.constraints), len(system.contrasts)) == (bounds, dimension)
    matrix = np.zeros((bounds, len(system.events)))
    for row, bound in zip(matrix, system.constraints, strict=True):
        for event, coefficient in bound.terms:
            row[system.events.index(event)] += coefficient
    assert np.linalg.matrix_rank(matrix) == dimension
    np.testing.assert_allclose(system.mixing @ system.contrasts, matrix, atol=1e-12)


def test_equalized_odds_has_the_papers_two_contrasts_in_the_papers_order():
    system = write_out(eh.EqualizedOdds(), {"A": (0, 1)})
    assert system.events == (Event("A", 0, 0), Event("A", 1, 0), Event("A", 0, 1), Event("A", 1, 1))
    np.testing.assert_array_equal(system.contrasts, [[1, -1, 0, 0], [0, 0, 1, -1]])


def test_tolerances_are_the_criterions_own_or_the_callers():
    criterion = eh.DemographicParity(attribute="sex", tolerance=0.01) & eh.EqualOpportunity(attribute="race")
    lower, upper = write_out(criterion, BOTH).bounds([0.1, 0.2])
    np.testing.assert_allclose(lower, [[-0.01, -0.1], [-0.01, -0.2]])
    np.testing.assert_allclose(upper, [[0.01, 0.1], [0.01, 0.2]])


def test_floors_and_budgets_are_hard_unless_they_say_otherwise():
    lower, upper = write_out(eh.MinimumRate("tpr", 0.7), SEX).bounds([0.3])
    np.testing.assert_allclose(lower, [[0.7, 0.7]])
    assert np.isposinf(upper).all()
    lower, upper = write_out(eh.MinimumRate("tnr", 0.9, tolerance=0.05), SEX).bounds([0.3])
    np.testing.assert_allclose(upper, [[0.15, 0.15]])
    assert np.isneginf(lower).all()
    lower, upper = write_out(eh.SelectionBudget(0.1, 0.2, attribute="sex"), SEX).bounds([0.0])
    np.testing.assert_allclose([lower, upper], [[[0.1, 0.1]], [[0.2, 0.2]]])


@pytest.mark.parametrize(
    ("criterion", "joint"),
    [
        (eh.DemographicParity(), False), (eh.EqualOpportunity(), True), (eh.PredictiveEquality(), True),
        (eh.EqualizedOdds(), True), (eh.SelectionRatio(0.8), False), (eh.SelectionBudget(upper=0.1), False),
        (eh.MinimumRate("selection_rate", 0.1), False), (eh.MinimumRate("fnr", 0.1), True),
        (eh.DemographicParity() & eh.SelectionRatio(0.5), False), (eh.DemographicParity() & eh.EqualizedOdds(), True),
    ],
)  # fmt: skip
def test_each_criterion_knows_whether_it_needs_the_joint_probabilities(criterion, joint):
    assert criterion.needs_joint is joint
    labels = {event.label for event in write_out(criterion, SEX).events}
    assert (labels != {None}) is joint


@pytest.mark.parametrize(
    "criterion",
    [
        eh.DemographicParity(), eh.EqualizedOdds(attribute="sex", tolerance=0.02), eh.SelectionRatio(0.8),
        eh.MinimumRate("tnr", 0.7, tolerance=0.1), eh.SelectionBudget(0.1, 0.3),
        eh.EqualOpportunity(attribute=eh.Intersection("sex", "race")) & eh.SelectionBudget(upper=0.5),
    ],
)  # fmt: skip
def test_a_criterion_survives_the_way_to_plain_data_and_back(criterion):
    assert from_dict(criterion.to_dict()) == criterion


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, {"type": "Nothing"}, {"type": "DemographicParity", "floor": 1}, {"type": "MinimumRate"},
        {"type": "Composite"}, {"type": "Composite", "parts": [{"type": "?"}]},
        {"type": "SelectionRatio", "ratio": "x"},
        {"type": "DemographicParity", "attribute": {"intersection": ["one"]}}, {"type": "SelectionRatio", "ratio": 2.0},
    ],
)  # fmt: skip
def test_data_that_is_no_criterion_is_refused(data):
    with pytest.raises(InputError):
        from_dict(data)


@pytest.mark.parametrize(
    "make",
    [
        lambda: eh.SelectionRatio("0.8"), lambda: eh.SelectionBudget(upper="a"), lambda: eh.SelectionBudget(lower=None),
        lambda: eh.MinimumRate("tpr", "0.5"), lambda: eh.SelectionRatio(0.0), lambda: eh.SelectionRatio(1.2),
        lambda: eh.MinimumRate("auc", 0.5),
        lambda: eh.MinimumRate("tpr", 1.5), lambda: eh.SelectionBudget(0.5, 0.4),
        lambda: eh.DemographicParity(tolerance=-1),
        lambda: eh.DemographicParity(tolerance="much"), lambda: eh.DemographicParity(attribute=3),
        lambda: eh.Intersection("sex"), lambda: eh.Intersection("sex", "sex"), lambda: Composite(parts=()),
        lambda: write_out(eh.DemographicParity(attribute="age"), SEX),
        lambda: write_out(eh.DemographicParity(), {"x": ("a",)}),
    ],
)  # fmt: skip
def test_a_criterion_that_means_nothing_is_refused(make):
    with pytest.raises(InputError):
        make()


def test_a_criterion_is_only_combined_with_a_criterion():
    with pytest.raises(TypeError):
        eh.DemographicParity() & "eo"


def test_a_crossed_attribute_is_only_bounded_when_asked_for():
    groups = {**BOTH, eh.Intersection("sex", "race"): (("F", "a"), ("M", "b"))}
    assert len(eh.DemographicParity().constraints(groups)) == 2
    crossed = eh.DemographicParity(attribute=eh.Intersection("sex", "race")).constraints(groups)
    assert [event.group for event, _ in crossed[0].terms] == [("F", "a"), ("M", "b")]
