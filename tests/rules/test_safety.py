"""Bounds drawn in by standard errors: how far, for which criteria, what is said, and that it does what it is for."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

import evenhand as eh
from evenhand.rows import read_rows
from evenhand.rules.criteria import resolve
from evenhand.rules.safety import Safety, thin_text
from evenhand.rules.setting import Options, Setting
from evenhand.rules.system import write_out

DATA = eh.datasets.make_zafar(3000, random_state=1)
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)


def quietly(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.EvenhandWarning)
        return eh.learn_rule(*args, **options)


def two_rates_error(inside, chosen, group):
    """Return the standard error of a difference of two rates, from the pooled rate: written out anew."""
    n = int(inside.sum())
    rate = (chosen[inside].sum() + 1) / (n + 2)
    counts = [int((inside & (group == g)).sum()) for g in np.unique(group)]
    return np.sqrt(rate * (1 - rate) * sum(1 / count for count in counts))


def test_a_tolerance_is_drawn_in_by_the_standard_errors_asked_for():
    error = two_rates_error(np.ones(len(DATA.y), bool), DATA.p_y > 0.5, DATA.group)
    for safety in (0.5, 1.0, 1.64):
        solution = quietly(*ROWS, criterion="dp", tolerance=0.1, safety=safety).solution_
        assert solution.asked == ((-0.1, 0.1),)
        assert solution.used[0] == pytest.approx((-0.1 + safety * error, 0.1 - safety * error))
        assert abs(solution.values[0]) <= solution.used[0][1] + 1e-9


def test_each_label_of_equalized_odds_has_its_own_standard_error():
    solution = quietly(*ROWS, criterion="eo", tolerance=0.2, safety=1.0).solution_
    errors = [two_rates_error(DATA.y == label, DATA.p_y > 0.5, DATA.group) for label in (0, 1)]
    system = write_out(eh.EqualizedOdds(), {"group": (0, 1)})
    wanted = [errors[constraint.terms[0][0].label] for constraint in system.constraints]
    assert [0.2 - upper for _, upper in solution.used] == pytest.approx(wanted)


def test_a_bound_keeps_half_of_the_tolerance():
    with pytest.warns(eh.EvenhandWarning, match="are needed"):
        solution = eh.learn_rule(*ROWS, criterion="dp", tolerance=0.02, safety=50.0).solution_
    assert solution.used == ((-0.01, 0.01),)


def test_no_safety_is_the_rule_that_it_was():
    plain, zero = (eh.learn_rule(*ROWS, criterion="eo", tolerance=0.05, **o) for o in ({}, {"safety": 0.0}))
    assert plain == zero
    assert plain.solution_.used is None
    assert "safety" not in plain.learned_from


def test_weights_count_by_what_they_are_worth():
    twice = np.repeat(np.arange(len(DATA.y)), 2)
    doubled = quietly(*(array[twice] for array in ROWS), criterion="dp", tolerance=0.1, safety=1.0)
    weighted = quietly(*ROWS, criterion="dp", tolerance=0.1, safety=1.0, sample_weight=np.full(len(DATA.y), 2.0))
    plain = quietly(*ROWS, criterion="dp", tolerance=0.1, safety=1.0)
    # Equal weights say nothing about how many rows there are; copies of rows look like rows.
    assert weighted.solution_.used == plain.solution_.used
    assert doubled.solution_.used[0][1] > plain.solution_.used[0][1]
    rng = np.random.default_rng(0)
    uneven = quietly(*ROWS, criterion="dp", tolerance=0.1, safety=1.0, sample_weight=rng.exponential(size=len(DATA.y)))
    assert uneven.solution_.used[0][1] < plain.solution_.used[0][1]


@pytest.mark.parametrize(
    ("criterion", "lower", "upper"),
    [
        # One rate is centred in the middle of what is allowed; a ratio where the rates are equal.
        (eh.MinimumRate("tpr", 0.8), 0.8 + np.sqrt(0.8 * 0.2 / 400), np.inf),
        (eh.SelectionBudget(upper=0.2), -np.inf, 0.2 - np.sqrt(0.2 * 0.8 / 800)),
        (eh.SelectionRatio(0.8), np.sqrt((1 + 0.64) * 0.25 / 400), np.inf),
    ],
)
def test_other_bounds_are_drawn_in_too(criterion, lower, upper):
    system = write_out(criterion, {"sex": ("F", "M")})
    counts = np.array([800.0 if event.attribute is None else 400.0 for event in system.events])
    safety = Safety(system, 1.0, np.full(len(system.events), 0.5), counts)
    low, high = safety.draw_in(*system.bounds([0.05]))
    assert low[0] == pytest.approx(np.full(len(low[0]), lower), rel=0.02)
    assert high[0] == pytest.approx(np.full(len(high[0]), upper), rel=0.02)


@pytest.mark.parametrize("name", ["dp", "eo", "eop", "pe"])
@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_drawn_in_bounds_are_inside_the_asked_ones_and_follow_the_tolerance(name, n_groups):
    system = write_out(resolve(name), {"race": tuple(range(n_groups))})
    rng = np.random.default_rng(n_groups)
    counts = rng.integers(5, 3000, len(system.events)).astype(float)
    safety = Safety(system, 1.0, np.full(len(system.events), rng.random()), counts)
    tolerances = np.linspace(0.0, 0.5, 26)
    lower, upper = system.bounds(tolerances)
    low, high = safety.draw_in(lower, upper)
    assert (lower <= low).all()
    assert (high <= upper).all()
    assert (high >= upper / 2 - 1e-15).all()
    assert (np.diff(high, axis=0) >= 0).all()
    assert (np.diff(low, axis=0) <= 0).all()


def unlike_groups(seed, n=400, strata=("x", "y"), groups=2):
    """Return rows whose groups have different shares of positive labels and different rates, and strata."""
    rng = np.random.default_rng(seed)
    group, job = rng.integers(0, groups, n), np.array(strata, dtype=object)[rng.integers(0, len(strata), n)]
    p_y = 1 / (1 + np.exp(-rng.normal(size=n) - rng.normal(0, 1.5, groups)[group]))
    y = (rng.random(n) < p_y).astype(int)
    joint = rng.dirichlet(np.full(groups, 2.0), n)[:, None, :] * np.stack([1 - p_y, p_y], axis=1)[:, :, None]
    return (y, group, p_y, joint), job


MOVING = {
    "dp": lambda **o: eh.DemographicParity(**o),
    "eo": lambda **o: eh.EqualizedOdds(**o),
    "eop": lambda **o: eh.EqualOpportunity(**o),
    "pe": lambda **o: eh.PredictiveEquality(**o),
    "ap": lambda **o: eh.AccuracyParity(**o),
    "ap and a ratio": lambda **o: eh.AccuracyParity(**o) & eh.SelectionRatio(0.5, **o),
    "ap and a precision": lambda **o: eh.AccuracyParity(**o) & eh.MinimumRate("precision", 0.4),
    "dp and a precision": lambda **o: eh.DemographicParity(**o) & eh.MinimumRate("precision", 0.4),
}


@pytest.mark.parametrize("within", [None, "job"])
@pytest.mark.parametrize("name", MOVING)
def test_drawn_in_bounds_of_rows_follow_the_tolerance_and_keep_half_of_it(name, within):
    """Of any rows: the groups' shares of labels differ, and with a precision their rates do, too."""
    criterion = MOVING[name](within=within)
    options = Options(criterion=criterion, safety=1.0)
    for seed in range(12):
        rows, job = unlike_groups(seed, groups=3)
        setting = Setting.of(read_rows(*rows, criterion=criterion, strata=job if within else None), options)
        if "precision" in name:
            setting = dataclasses.replace(setting, reference=np.random.default_rng(seed).random(400) < rows[2])
        tolerances = np.linspace(0.0, 1.0, 41)
        lower, upper = setting.system.bounds(tolerances)
        low, high = setting.safety.draw_in(lower, upper)
        assert (lower <= low).all()
        assert (high <= upper).all()
        np.testing.assert_array_equal(high, np.maximum.accumulate(high))
        np.testing.assert_array_equal(low, np.minimum.accumulate(low))
        moving = setting.system.moving
        # A difference is at most the tolerance; its constant is part of the bounds on the rates.
        highest, lowest = (ends[:, moving] + setting.system.shift[moving] for ends in (high, low))
        assert (highest >= tolerances[:, None] / 2 - 1e-12).all()
        assert (lowest <= -tolerances[:, None] / 2 + 1e-12).all()
        # The same standard errors on both sides, where half of the tolerance does not limit them.
        drawn = upper[:21, moving] - high[:21, moving], low[:21, moving] - lower[:21, moving]
        np.testing.assert_allclose(*drawn, atol=1e-12)


def test_accuracies_are_drawn_in_from_their_own_difference():
    rows, _ = unlike_groups(0)
    rule = quietly(*rows, criterion="accuracy_parity", tolerance=0.02, safety=50.0)
    assert rule.solution_.values == pytest.approx([0.0], abs=0.01)
    for used, asked in zip(rule.solution_.used, rule.solution_.asked, strict=True):
        assert (used[1] - used[0]) == pytest.approx((asked[1] - asked[0]) / 2)


@pytest.mark.parametrize("strata", [("x", "y"), (1, "1"), (1, 2.5)])
@pytest.mark.parametrize("name", [*(name for name in MOVING if "a precision" not in name), "pp"])
def test_every_stratum_is_drawn_in_whatever_its_bounds_and_its_values_are_called(name, strata):
    """Names of bounds contain rounded coefficients, and 1 and "1" are equal as text."""
    criterion = eh.PredictiveParity(within="job") if name == "pp" else MOVING[name](within="job")
    rows, job = unlike_groups(1, 600, strata)
    rule = quietly(*rows, criterion=criterion, tolerance=0.15, safety=0.5, strata={"job": job})
    assert len(rule.learned_from["strata"]) == 2
    used = {value: [] for value in strata}
    for value in strata:
        some = job == value
        plain = criterion.unstratified
        alone = quietly(*(array[some] for array in rows), criterion=plain, tolerance=0.15, safety=0.5).solution_
        used[value] = list(alone.used)
    system = write_out(criterion, read_rows(*rows, criterion=criterion, strata=job).groups)
    bounds = criterion.reported(read_rows(*rows, criterion=criterion, strata=job).groups)
    assert len(system.constraints) >= len(bounds) == len(rule.solution_.used)
    for bound, found in zip(bounds, rule.solution_.used, strict=True):
        assert found == pytest.approx(used[bound.terms[0][0].stratum[1]].pop(0))


@pytest.mark.parametrize("name", ["dp", "eo", "eop", "pe", "ap", "ap and a ratio"])
def test_a_drawn_in_frontier_goes_from_strict_to_loose(name):
    for seed in range(3):
        rows, job = unlike_groups(seed)
        for within in (None, "job"):
            criterion = MOVING[name](within=within)
            curve = eh.frontier(
                *rows,
                criterion=criterion,
                tolerances=[0.05, 0.2, 0.35, 0.5],
                strata=job if within else None,
                search="smoothed",
                safety=1.0,
            )
            assert len(curve)


def test_too_few_rows_are_named_with_their_number_and_what_would_do():
    """The sentence's figures, by hand: 105 rows, a rate of 0.42, a tolerance of 3 points."""
    system = write_out(eh.EqualOpportunity(), {"sex": ("F", "M")})
    safety = Safety(system, 1.0, np.array([0.42, 0.42]), np.array([105.0, 1e7]))
    (cell,) = safety.thin_cells(0.03)
    assert (cell.rows, cell.rows_needed) == (105, 1100)
    text = thin_text([cell])
    assert "105 rows with sex=F, Y=1" in text
    assert "standard error is 4.8 points, so 3 points cannot be ensured; about 1,100 are needed" in text
    # As many rows as it asks for are enough.
    assert not Safety(system, 1.0, safety.rates, np.array([1100.0, 1e7])).thin_cells(0.03)


def test_both_sides_are_asked_for_rows_where_both_are_thin():
    system = write_out(eh.DemographicParity(), {"sex": ("F", "M")})
    safety = Safety(system, 1.0, np.array([0.5, 0.5]), np.array([100.0, 200.0]))
    (cell,) = safety.thin_cells(0.05)
    enough = np.full(2, float(cell.rows_needed))
    assert cell.rows == 100
    assert not Safety(system, 1.0, safety.rates, enough).thin_cells(0.05)
    assert Safety(system, 1.0, safety.rates, 0.9 * enough).thin_cells(0.05)


def test_a_model_that_meets_the_bounds_is_left_alone():
    gap = eh.frontier(*ROWS, criterion="dp", tolerances=[0.5]).base_gap
    rule = quietly(*ROWS, criterion="dp", tolerance=gap + 0.1, safety=1.0)
    assert rule.solution_.status == "unchanged"
    assert (rule.z == 0.0).all()
    assert (rule.decide(DATA.p_y, DATA.p_joint) == (DATA.p_y > 0.5)).all()
    # The bounds are those drawn in: at its own gap the model does not meet them.
    assert quietly(*ROWS, criterion="dp", tolerance=gap, safety=1.0).solution_.status == "optimal"
    # Without safety the best rule of these rows is returned, as the paper does.
    assert eh.learn_rule(*ROWS, criterion="dp", tolerance=gap + 0.1).solution_.status == "optimal"


def test_where_no_rule_is_within_the_drawn_in_bounds_the_asked_ones_are_met():
    """Twelve rows with known groups: some tolerance can be met, and nothing below it."""
    y = np.array([0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0])
    group = np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    p_y = np.linspace(0.05, 0.95, 12)[np.argsort(np.argsort(y + np.linspace(0, 0.5, 12)))]
    p_group = np.eye(2)[group]
    criterion = eh.DemographicParity() & eh.MinimumRate("selection_rate", 0.3) & eh.SelectionBudget(upper=0.6)
    strict = [t / 100 for t in range(30) if _feasible(y, group, p_y, p_group, criterion, t / 100)]
    tolerance = strict[0]
    with pytest.warns(eh.EvenhandWarning, match="without a safety margin"):
        rule = eh.learn_rule(y, group, p_y, p_group, criterion=criterion, tolerance=tolerance, safety=0.01)
    assert rule.solution_.used == rule.solution_.asked
    assert rule.learned_from["safety"]["standard_errors"] == 0.01


def _feasible(y, group, p_y, p_group, criterion, tolerance):
    try:
        eh.learn_rule(y, group, p_y, p_group, criterion=criterion, tolerance=tolerance)
    except eh.InfeasibleError:
        return False
    return True


def test_the_rules_json_says_what_was_asked_and_used():
    rule = quietly(*ROWS, criterion=eh.DemographicParity() & eh.MinimumRate("tpr", 0.5), tolerance=0.05, safety=1.0)
    read = eh.Rule.from_json(rule.to_json())
    assert read == rule
    assert read.solution_.asked[0] == (-0.05, 0.05)
    assert read.solution_.asked[-1][1] == np.inf
    assert read.learned_from["safety"] == rule.learned_from["safety"]


@pytest.mark.parametrize("bad", [-1, "1", None, np.inf, np.nan, True])
def test_a_wrong_safety_is_refused(bad):
    with pytest.raises(eh.InputError, match="standard errors"):
        eh.learn_rule(*ROWS, safety=bad)


def test_a_frontier_is_drawn_in_at_each_tolerance():
    tolerances = [0.02, 0.05, 0.1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curve = eh.frontier(*ROWS, criterion="dp", tolerances=tolerances, safety=1.0)
    for point in curve:
        rule = quietly(*ROWS, criterion="dp", tolerance=point.tolerance, safety=1.0)
        assert rule.solution_.used == point.rule.solution_.used
        assert rule.solution_.utility == point.utility
    assert (np.diff(curve.utilities) >= 0).all()


def test_on_new_rows_the_tolerance_is_kept_more_often():
    """40 samples of 2,000 rows, judged on 100,000: half are above the tolerance without safety, few with 1.64."""
    truth = eh.datasets.make_zafar(100_000, random_state=99)
    above = {0.0: 0, 1.0: 0, 1.64: 0}
    for seed in range(40):
        some = eh.datasets.make_zafar(2000, random_state=seed)
        for safety in above:
            rule = quietly(some.y, some.group, some.p_y, some.p_joint, criterion="dp", tolerance=0.1, safety=safety)
            decided = rule.decide(truth.p_y, truth.p_joint)
            gap = eh.metrics.demographic_parity_difference(truth.y, decided, sensitive_features=truth.group)
            above[safety] += gap > 0.1
    assert above[0.0] >= 14
    assert above[1.0] <= 12
    assert above[1.64] <= 6
