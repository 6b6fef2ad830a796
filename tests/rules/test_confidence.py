"""The promise of a confidence is kept, by the right test in the right order, and what cannot be promised is said."""

import dataclasses
import json
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.inputs import Attribute
from evenhand.rows import Rows, read_rows
from evenhand.rules import confidence as module
from evenhand.rules.certify import Band, claims, fixed_sequence, has_paths, share_error, shortfall
from evenhand.rules.constraints import Constraint
from evenhand.rules.criteria import Criterion, resolve
from evenhand.rules.events import Event
from evenhand.rules.paths import Paths
from evenhand.rules.reserving import reserve_enough, reserve_rows
from evenhand.rules.rungs import expected_widths, inner_bounds
from evenhand.rules.setting import Options, Setting
from evenhand.rules.system import write_out
from evenhand.statistics.bounds import clopper_pearson_lower
from promise import SIZES, population, sample, study

FITS, LEVEL = {"demographic_parity": 200, "equalized_odds": 60}, 0.9


def parity(tolerance, groups=("F", "M")):
    return claims(write_out(eh.DemographicParity(), {"sex": groups}), tolerance)


def learn(n=3000, seed=0, criterion="demographic_parity", **options):
    y, group, joint = sample("demographic_parity", n, seed)
    settings = {"tolerance": 0.15, "confidence": LEVEL, "random_state": seed, **options}
    return eh.learn_rule(y, group, joint[:, 1].sum(axis=1), joint, criterion=criterion, **settings)


def rows_of(criterion, n, seed):
    y, group, joint = sample(criterion, n, seed)
    return read_rows(y, group, joint[:, 1].sum(axis=1), joint, criterion=resolve(criterion))


# The promise ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", list(SIZES))
def test_the_promise_is_kept_in_the_population_and_would_not_be_without_it(criterion):
    n = 3 * SIZES[criterion][0] // 2
    fits = FITS[criterion]
    promised, plain = study(criterion, n, fits, LEVEL), study(criterion, n, 50, None)
    allowed = stats.binom.ppf(0.999, fits, 1.0 - LEVEL) / fits
    assert promised.violated <= allowed
    assert plain.violated > 2.0 * allowed
    assert promised.refused < 0.6


def test_more_rows_certify_more_often_and_cost_less_accuracy():
    few, many = (study("demographic_parity", n, 20, LEVEL) for n in (300, 3000))
    assert many.refused < few.refused
    assert many.accuracy > few.accuracy


# The test behind it -----------------------------------------------------------------------------------


def test_testing_stops_at_the_first_rule_that_fails_even_if_a_later_one_would_pass():
    trials = np.array([1000, 1000])
    good, bad = [400, 398], [400, 340]
    assert fixed_sequence(parity(0.05), np.array([good, bad, good]), trials) == 1
    assert fixed_sequence(parity(0.05), np.array([bad, good, good]), trials) == 0
    assert fixed_sequence(parity(0.05), np.array([good, good, good]), trials) == 3


def test_a_rule_must_pass_for_every_constraint_and_on_both_sides():
    trials = np.array([1000, 1000, 1000])
    three = parity(0.05, ("a", "b", "c"))
    assert len(three) == 6
    assert fixed_sequence(three, np.array([[400, 400, 400]]), trials) == 1
    for wrong in ([400, 400, 350], [350, 400, 400], [400, 350, 400], [400, 450, 400]):
        assert fixed_sequence(three, np.array([wrong]), trials) == 0


def test_the_level_of_a_single_test_is_kept_at_the_edge_of_the_hypothesis():
    rng = np.random.default_rng(0)
    draws = rng.binomial([300, 150], [0.45, 0.35], (1500, 2))
    passed = sum(fixed_sequence(parity(0.1), draw[None], np.array([300, 150]), LEVEL) for draw in draws)
    assert passed / 1500 <= 0.1 + 2.6 * np.sqrt(0.09 / 1500)
    assert passed / 1500 >= 0.06


@pytest.mark.parametrize(
    ("criterion", "limits"),
    [
        (eh.SelectionRatio(0.8), [0.0, 0.0]),
        (eh.MinimumRate("tpr", 0.7), [-0.7, -0.7]),
        (eh.MinimumRate("fnr", 0.2, tolerance=0.05), [0.85, 0.85]),
        (eh.SelectionBudget(lower=0.1, upper=0.3), [0.3, -0.1]),
        (eh.SelectionBudget(upper=0.3, attribute="sex"), [0.3, 0.3]),
        (eh.DemographicParity(tolerance=0.02), [0.02, 0.02]),
    ],
)
def test_every_kind_of_bound_is_a_claim_with_its_own_limit(criterion, limits):
    found = claims(write_out(criterion, {"sex": ("F", "M")}), 0.1)
    assert [claim.limit for claim in found] == pytest.approx(limits)
    assert not any(claim.moving for claim in found)
    assert all(claim.disjoint for claim in found)


class _Odd(Criterion):
    """A bound on a group against everyone, whose counts are not independent."""

    def constraints(self, groups):
        return (Constraint("odd", ((Event("sex", "F"), 1.0), (Event(), -1.0)), -0.1, 0.1),)


def test_events_that_overlap_are_bounded_each_with_its_share_of_the_error():
    claim = claims(write_out(_Odd(), {"sex": ("F", "M")}), 0.0)[0]
    assert not claim.disjoint
    found = claim.bound(np.array([40, 90]), np.array([100, 200]), 0.9)
    alone = [
        stats.binomtest(k, n, alternative=side).proportion_ci(0.95)
        for k, n, side in ((40, 100, "less"), (90, 200, "greater"))
    ]
    assert found == pytest.approx(alone[0].high - alone[1].low)


# The ladder and the split -----------------------------------------------------------------------------


def test_the_ladder_goes_from_strict_to_the_bounds_themselves_and_tightens_most_what_few_rows_certify():
    lower, upper = np.array([-0.2, -0.2, 0.7]), np.array([0.2, 0.2, np.inf])
    widths = np.array([0.02, 0.06, 0.01])
    inner_lower, inner_upper = inner_bounds(lower, upper, widths)
    assert (np.diff(inner_lower, axis=0) <= 0.0).all()
    assert (np.diff(inner_upper[:, :2], axis=0) >= 0.0).all()
    assert inner_lower[-1].tolist() == lower.tolist()
    assert inner_upper[-1].tolist() == upper.tolist()
    assert (inner_upper[0, :2] > 0.0).all()
    assert inner_upper[10, 1] < inner_upper[10, 0]
    assert inner_lower[0, 2] > 0.7


@pytest.mark.parametrize(
    ("criterion", "groups", "expected"),
    [
        (eh.DemographicParity(), ("F", "M"), True),
        (eh.EqualOpportunity(), ("F", "M"), True),
        (eh.EqualizedOdds(), ("F", "M"), True),
        (eh.SelectionBudget(lower=0.1, upper=0.3), ("F", "M"), True),
        (eh.SelectionBudget(upper=0.3), ("F", "M"), False),
        (eh.DemographicParity(), ("a", "b", "c"), False),
        (eh.DemographicParity() & eh.EqualOpportunity(), ("F", "M"), False),
        (eh.SelectionRatio(0.8), ("F", "M"), False),
    ],
)
def test_paths_are_for_bands_whose_rows_are_apart(criterion, groups, expected):
    system = write_out(criterion, {"sex": groups})
    assert has_paths(system, claims(system, 0.1)) == expected
    assert not has_paths(system, claims(system, 0.0)) or not any(c.tolerance is None for c in system.constraints)


def test_a_path_is_accepted_between_its_first_failures_from_either_end():
    upper, lower = parity(0.1)
    band, trials = Band(lower, upper, 0.025, 0.025), np.array([1000, 1000])
    path = np.array([[gap, 400] for gap in (300, 350, 380, 400, 420, 450, 500)])
    assert band.accepted(path, trials) == (1, 5)
    assert band.likely(path, trials) == (1, 5)
    broken = path.copy()
    broken[1] = [470, 400]
    assert band.accepted(broken, trials) == band.likely(broken, trials) == (1, 0)
    assert band.accepted(path[[0, 6]], trials) == band.likely(path[[0, 6]], trials) == (1, 0)


def test_errors_are_shared_by_room_and_sum_to_the_whole():
    for rooms, outward in (
        ([2.0], [0]),
        ([6.0], [1]),
        ([2.0, 3.0], [-1, 0]),
        ([1.0, 40.0], [1, 1]),
        ([9.0, 9.0], [0, 0]),
    ):
        shares = share_error(np.array(rooms), np.array(outward), 0.05)
        assert shares.sum() == pytest.approx(0.05)
        assert (shares > 0.0).all()
    narrow, wide = share_error(np.array([2.0, 6.0]), np.array([0, 0]), 0.05).sum(axis=1)
    assert narrow > 20.0 * wide
    assert share_error(np.array([6.0]), np.array([-1]), 0.05)[0, 0] > 0.049


def test_the_values_of_a_paths_rules_rise_and_pass_through_the_band():
    given = rows_of("equalized_odds", 3000, 0)
    setting = Setting.of(given, Options(criterion=eh.EqualizedOdds()))
    (found,) = setting.options.solver.solve(setting.problem([0.1]))
    paths = Paths.of(setting, 0.1, found, setting.evidence.counts)
    for k in range(2):
        line = paths.line(k, paths.centre)
        values = np.array([setting.decide(z) @ setting.evidence.shares @ setting.system.matrix.T for z in line])
        assert np.corrcoef(values[:, k], paths.points[k])[0, 1] > 0.97
        assert values[0, k] < -0.06
        assert values[-1, k] > 0.06
        assert abs(values[len(line) // 2]).max() < 0.03
        assert np.array_equal(line[3], paths.rule_at(np.where(np.arange(2) == k, paths.points[k, 3], paths.centre)))


def test_a_position_is_chosen_by_the_rows_of_its_own_constraint_alone():
    given = rows_of("equalized_odds", 3000, 1)
    learning, certifying = given.take(np.arange(3000) < 1000), given.take(np.arange(3000) >= 1000)
    setting = Setting.of(learning, Options(criterion=eh.EqualizedOdds()))
    inside = Setting.of(certifying, setting.options).evidence.shares > 0.0
    plain = module._Centred.of(setting, certifying, inside, 0.1, LEVEL)
    for k in range(2):
        own = list(plain.bands[k].upper.events)
        others = [event for event in range(4) if event not in own]
        swapped = inside.copy()
        rows_of_others = np.flatnonzero(inside[:, others].any(axis=1))
        swapped[np.ix_(rows_of_others, others)] = inside[np.ix_(rows_of_others[::-1], others)]
        changed = module._Centred.of(setting, certifying, swapped, 0.1, LEVEL)
        assert changed._from_own_rows(k) == plain._from_own_rows(k)
        assert changed._from_own_rows(1 - k) != plain._from_own_rows(1 - k)


@pytest.mark.parametrize(("tolerance", "share"), [(0.3, 0.5), (0.055, 0.55), (0.04, 0.8), (0.01, 0.5)])
def test_more_rows_are_reserved_where_they_help(tolerance, share):
    given = rows_of("demographic_parity", 5000, 0)
    wanted = {"tolerance": tolerance, "confidence": 0.95}
    reserved = reserve_enough(eh.DemographicParity(), given, np.random.RandomState(0), **wanted)
    assert reserved.mean() == pytest.approx(share, abs=0.1)
    assert reserved.mean() <= 0.8
    flipped = dataclasses.replace(given, positive=np.where(reserved, ~given.positive, given.positive))
    again = reserve_enough(eh.DemographicParity(), flipped, np.random.RandomState(0), **wanted)
    assert (again == reserved).all()


def test_a_tolerance_of_zero_has_a_ladder_too():
    lower, upper = inner_bounds(np.zeros(1), np.zeros(1), np.array([0.1]))
    assert not lower.any()
    assert not upper.any()


def test_expected_widths_are_about_those_of_the_bounds():
    system = write_out(eh.DemographicParity(), {"sex": ("F", "M")})
    width = expected_widths(system, np.array([0.4, 0.4]), np.array([1000.0, 500.0]), 0.9)
    claim = claims(system, 0.1)[0]
    bound = claim.bound(np.array([400, 200]), np.array([1000, 500]), 0.9)
    assert width[0] == pytest.approx(bound, rel=0.05)


@pytest.mark.parametrize(
    ("criterion", "fixed"),
    [
        (eh.EqualizedOdds(), ["F1", "F0", "M1", "M0"]),
        (eh.DemographicParity(), ["F", "M"]),
        (eh.DemographicParity() & eh.EqualizedOdds(), ["F", "M"]),
        (eh.SelectionBudget(upper=0.5), [""]),
    ],
)
def test_the_split_is_stratified_as_far_as_the_events_allow_and_no_farther(criterion, fixed):
    rng = np.random.default_rng(0)
    codes, positive = rng.integers(0, 2, 401), rng.random(401) < 0.3
    groups = ("F", "M")
    attributes = {"sex": Attribute("sex", groups, codes.astype(np.intp))}
    given = Rows(positive=positive, classes=(0, 1), attributes=attributes, groups={"sex": groups})
    parts = {"F": codes == 0, "M": codes == 1, "": codes >= 0}
    parts |= {f"{g}{y}": parts[g] & (positive == bool(y)) for g in "FM" for y in (0, 1)}
    shares = {name: set() for name in parts}
    for seed in range(30):
        reserved = reserve_rows(criterion, given, np.random.RandomState(seed), 0.5)
        for name, rows in parts.items():
            shares[name].add(int(reserved[rows].sum()))
    narrow = [name for name, seen in shares.items() if max(seen) - min(seen) <= 1]
    assert set(fixed) <= set(narrow)
    finer = {"F": ["F0", "F1"], "M": ["M0", "M1"], "": ["F", "M"]}
    assert not set(narrow) & {name for part in fixed for name in finer.get(part, ())}


# The entry on arrays ----------------------------------------------------------------------------------


def test_the_rule_says_what_was_certified_and_keeps_it_through_json():
    rule = learn()
    entry = rule.learned_from["confidence"]
    assert (entry["learning_rows"], entry["certifying_rows"], entry["confidence"]) == (300, 2700, LEVEL)
    assert rule.tolerance == 0.15
    assert 1 <= entry["rules_certified"] <= entry["rules_learnt"]
    (constraint,) = entry["constraints"]
    assert -0.15 <= constraint["certified_lower"] < constraint["certified_upper"] <= 0.15
    assert constraint["inner_lower"] <= rule.solution_.values[0] <= constraint["inner_upper"]
    assert rule.learned_from["rows"] == 300
    again = eh.Rule.from_json(rule.to_json())
    assert again.learned_from == rule.learned_from
    assert json.loads(rule.to_json())["learned_from"]["confidence"] == entry


def test_a_seed_gives_the_same_rule_and_another_seed_another_split():
    assert learn(random_state=3).to_json() == learn(random_state=3).to_json()
    assert learn(random_state=3).z.tolist() != learn(random_state=4).z.tolist()


def test_the_certifying_rows_are_seen_by_no_search(monkeypatch):
    y, group, joint = sample("demographic_parity", 3000, 0)
    seen = []

    class Spy(eh.Certified):
        def solve(self, problem, random_state=None):
            seen.append(len(problem.margin))
            return super().solve(problem, random_state=random_state)

    learn(search=Spy())
    assert set(seen) == {300}
    reserved = {}
    monkeypatch.setattr(module, "reserve_rows", lambda *a: reserved.setdefault("rows", reserve_rows(*a)))
    plain = learn()
    shuffled = y.copy()
    shuffled[reserved["rows"]] = np.random.default_rng(1).permutation(shuffled[reserved["rows"]])
    rule = eh.learn_rule(
        shuffled, group, joint[:, 1].sum(axis=1), joint, tolerance=0.15, confidence=LEVEL, random_state=0
    )
    assert rule.z.tolist() == plain.z.tolist()


@pytest.mark.parametrize(
    "criterion",
    [
        eh.SelectionRatio(0.7),
        eh.MinimumRate("tpr", 0.4),
        eh.DemographicParity() & eh.SelectionBudget(upper=0.6),
        eh.EqualOpportunity(tolerance=0.25),
    ],
    ids=lambda criterion: type(criterion).__name__,
)
def test_bounds_of_other_kinds_are_certified_with_a_margin_of_their_own(criterion):
    rule = learn(12_000, criterion=criterion)
    for constraint, entry in zip(
        write_out(criterion, {"group": (0, 1)}).constraints, rule.learned_from["confidence"]["constraints"], strict=True
    ):
        lower, upper = constraint.bounds(0.15)
        assert entry["certified_lower"] is None or entry["certified_lower"] >= lower
        assert entry["certified_upper"] is None or entry["certified_upper"] <= upper
        assert (entry["certified_lower"] is None) == np.isinf(lower)
        assert (entry["certified_upper"] is None) == np.isinf(upper)
    json.loads(rule.to_json())


def test_frames_intersections_labels_and_unknown_groups_are_read_as_without_confidence():
    y, group, joint = sample("demographic_parity", 6000, 0)
    frame = pd.DataFrame({"sex": np.array(["F", "M"])[group], "old": np.arange(6000) % 2 == 0})
    crossed = np.stack([joint[:, :, 0] / 2, joint[:, :, 0] / 2, joint[:, :, 1] / 2, joint[:, :, 1] / 2], axis=2)
    rule = eh.learn_rule(
        np.array(["no", "yes"])[y], frame, joint[:, 1].sum(axis=1), {"sex & old": crossed}, tolerance=0.3,
        criterion=eh.DemographicParity(attribute=eh.Intersection("sex", "old")), pos_label="yes",
        confidence=LEVEL, random_state=0,
    )  # fmt: skip
    assert rule.classes == ("no", "yes")
    assert len(rule.learned_from["confidence"]["constraints"]) == 6
    some = np.array(["F", "M"], dtype=object)[group]
    some[:100] = None
    options = {"tolerance": 0.2, "confidence": LEVEL, "random_state": 0}
    rule = eh.learn_rule(y, some, joint[:, 1].sum(axis=1), joint, missing="ignore", **options)
    assert sum(rule.learned_from["rows_by_event"].values()) < rule.learned_from["rows"]


def test_the_search_may_use_the_models_expectations_while_the_test_counts():
    rule = learn(evidence="model")
    assert rule.learned_from["confidence"]["constraints"][0]["certified_upper"] <= 0.15
    assert learn(search="dual").learned_from["confidence"]["rules_certified"] >= 1


# What cannot be promised ------------------------------------------------------------------------------


def test_an_error_says_what_can_be_certified_and_that_is_so():
    with pytest.raises(eh.InfeasibleError, match=r"No rule is certified at tolerance 0\.03") as caught:
        learn(1000, tolerance=0.03)
    details = caught.value.details
    assert details["certifiable_tolerance"] == caught.value.smallest_tolerance > 0.03
    assert details["rows"] == {"group=0": pytest.approx(500, abs=60), "group=1": pytest.approx(500, abs=60)}
    assert all(details["rows_needed"][event] > rows for event, rows in details["rows"].items())
    learn(1000, tolerance=details["certifiable_tolerance"] + 1e-6)
    with pytest.raises(eh.InfeasibleError):
        learn(1000, tolerance=0.9 * details["certifiable_tolerance"])


def test_the_highest_confidence_that_is_named_is_reached():
    with pytest.raises(eh.InfeasibleError, match=r"These rows can certify .*confidence") as caught:
        learn(2000, tolerance=0.06, confidence=0.999)
    highest = caught.value.details["highest_confidence"]
    assert 0.5 < highest < 0.999
    learn(2000, tolerance=0.06, confidence=highest - 0.02)


def test_a_budget_is_advised_where_rows_are_few_and_then_they_do():
    with pytest.raises(eh.InfeasibleError, match=r"add & evenhand\.SelectionBudget\(upper=0\.1\)"):
        learn(300, tolerance=0.1)
    small = eh.DemographicParity() & eh.SelectionBudget(upper=0.1)
    assert learn(600, tolerance=0.1, criterion=small).learned_from["confidence"]["rules_certified"] >= 1
    with pytest.raises(eh.InfeasibleError) as caught:
        learn(600, tolerance=0.01, criterion=eh.DemographicParity() & eh.SelectionBudget(upper=0.5))
    assert "SelectionBudget(upper" not in str(caught.value)


def test_as_many_rows_as_are_named_usually_do():
    with pytest.raises(eh.InfeasibleError) as caught:
        learn(300, tolerance=0.1)
    n = sum(caught.value.details["rows_needed"].values())
    certified = 0
    for seed in range(20):
        try:
            certified += bool(learn(n, seed=seed, tolerance=0.1))
        except eh.InfeasibleError:
            continue
    assert certified >= 12


def test_a_bound_with_a_tolerance_of_its_own_that_is_missed_has_no_certifiable_tolerance():
    system = write_out(eh.DemographicParity() & eh.MinimumRate("selection_rate", 0.5), {"sex": ("F", "M")})
    claimed = claims(system, 0.2)
    found = shortfall(claimed, np.array([45, 45]), np.array([100, 100]), [0.0, 0.0, -0.6, -0.6], 1.0, 0.2, 0.9)
    assert found.certifiable_tolerance is None
    assert found.highest_confidence is None
    assert found.factor > 1.0
    error = found.error(system, np.array([200, 200]), 200)
    assert "is at least 0.38" in str(error)
    assert "0.5 is requested" in str(error)


def test_a_tolerance_of_zero_cannot_be_certified_by_any_number_of_rows():
    system = write_out(eh.DemographicParity(), {"sex": ("F", "M")})
    found = shortfall(claims(system, 0.0), np.array([40, 40]), np.array([100, 100]), [0.0, 0.0], 1.0, 0.0, 0.9)
    assert found.factor is None
    assert found.error(system, np.array([200, 200]), 200).details["rows_needed"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_weight": np.ones(3000)}, "sample_weight says that they are not"),
        ({"confidence": 95}, "strictly between 0 and 1"),
        ({"confidence": True}, "must be a number"),
        ({"confidence": 0.1}, "at least one half"),
        ({"evidence": "guess"}, "evidence must be"),
    ],
)
def test_what_confidence_cannot_use_is_refused(options, message):
    with pytest.raises(eh.InputError, match=message):
        learn(**options)


def test_labels_are_needed_and_so_are_a_few_rows_of_every_event():
    y, group, joint = sample("demographic_parity", 300, 0)
    with pytest.raises(eh.InputError, match="pass y and sensitive_features"):
        eh.learn_rule(None, None, joint[:, 1].sum(axis=1), joint, evidence="model", confidence=0.9)
    few = np.array(["a", "b", "c"])[np.where(np.arange(300) < 3, 2, group)]
    three = np.concatenate([joint.sum(axis=1) * 0.9, np.full((300, 1), 0.1)], axis=1)
    with pytest.raises(eh.InputError, match="only 3 have group=c"):
        eh.learn_rule(y, few, joint[:, 1].sum(axis=1), three, confidence=0.9)


def test_a_confidence_of_one_half_is_the_lowest_and_works():
    assert learn(confidence=0.5).learned_from["confidence"]["rules_certified"] >= 1


def test_where_no_rule_exists_on_the_learning_rows_the_error_is_that_of_learning():
    with pytest.raises(eh.InfeasibleError, match="No rule meets"):
        learn(400, criterion="equalized_odds", tolerance=0.0)


# FairClassifier ---------------------------------------------------------------------------------------


class Recorder(ClassifierMixin, BaseEstimator):
    """A logistic regression that remembers which rows every model was fitted on, by their first column."""

    fitted: ClassVar[list[set[float]]] = []

    def fit(self, X, y):
        self.fitted.append(set(X[:, 0].tolist()))
        self.model_ = LogisticRegression().fit(X[:, 1:], y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X[:, 1:])


def rows(n, seed=0):
    data = eh.datasets.make_zafar(n, random_state=seed, iid=True)
    return np.column_stack([np.arange(n), data.X]), data.y, data.group


def fair(**options):
    settings = {"criterion": "demographic_parity", "tolerance": 0.15, "confidence": LEVEL, "random_state": 0}
    return eh.FairClassifier(Recorder(), **{**settings, **options})


@pytest.mark.parametrize("options", [{}, {"cv": 0.5}, {"ensemble": True}, {"sensitive_at_predict": True}])
def test_reserved_rows_reach_no_model_and_no_search(options):
    X, y, group = rows(6000)
    Recorder.fitted.clear()
    model = fair(**options).fit(X, y, sensitive_features=group)
    seen = set().union(*Recorder.fitted)
    held = set(model.held_out_.rows.tolist())
    entry = model.rule_.learned_from["confidence"]
    assert entry["certifying_rows"] == 3000
    assert entry["learning_rows"] == len(held)
    assert len(seen | held) <= 3000
    assert not (seen | held) & set(model._certifying.rows.tolist())


def test_what_is_certified_is_exactly_the_classifier_that_is_returned():
    X, y, group = rows(6000)
    model = fair().fit(X, y, sensitive_features=group)
    reserved = model._certifying.rows
    decided = model.predict(X[reserved]) == 1
    counts = [[int(decided[group[reserved] == g].sum()) for g in ("0", "1")]]
    trials = [int((group[reserved] == g).sum()) for g in ("0", "1")]
    claimed = claims(write_out(eh.DemographicParity(), {"group": ("0", "1")}), 0.15)
    assert fixed_sequence(claimed, np.array(counts), np.array(trials), LEVEL) == 1
    entry = model.rule_.learned_from["confidence"]["constraints"][0]
    bound = claimed[0].bound(np.array(counts[0]), np.array(trials), LEVEL)
    assert min(bound, 0.15) <= entry["certified_upper"] <= 0.15


def test_fits_with_one_seed_are_equal_and_frozen_models_work():
    X, y, group = rows(6000)
    first, second = (fair().fit(X, y, sensitive_features=group) for _ in range(2))
    assert first.rule_.to_json() == second.rule_.to_json()
    frozen = FrozenEstimator(first.estimator_), FrozenEstimator(first.auxiliary_)
    new, labels, groups = rows(6000, seed=1)
    model = eh.FairClassifier(
        frozen[0], auxiliary=frozen[1], criterion="demographic_parity", tolerance=0.15, cv=None, confidence=LEVEL,
        random_state=0,
    )  # fmt: skip
    model.fit(new, labels, sensitive_features=groups)
    assert model.rule_.learned_from["confidence"]["learning_rows"] == 3000


def test_another_tolerance_is_tested_anew_and_said_to_be_a_second_look():
    X, y, group = rows(6000)
    model = fair().fit(X, y, sensitive_features=group)
    with pytest.warns(eh.EvenhandWarning, match="tested on the same reserved rows as the first"):
        looser = model.with_tolerance(0.25)
    assert looser.rule_.tolerance == 0.25
    assert looser.rule_.learned_from["confidence"]["constraints"][0]["certified_upper"] <= 0.25
    assert len(model.frontier()) > 3


def test_a_classifier_that_cannot_be_certified_keeps_its_models_and_says_so():
    X, y, group = rows(1500)
    model = fair(tolerance=0.01)
    with pytest.raises(eh.InfeasibleError, match="No rule is certified") as caught:
        model.fit(X, y, sensitive_features=group)
    assert "with_tolerance" in "".join(caught.value.__notes__)
    with pytest.warns(eh.EvenhandWarning):
        assert model.with_tolerance(caught.value.smallest_tolerance + 1e-6).predict(X).shape == (1500,)


def test_weights_and_confidence_do_not_go_together_in_the_classifier_either():
    X, y, group = rows(500)
    with pytest.raises(eh.InputError, match="sample_weight says that they are not"):
        fair().fit(X, y, sensitive_features=group, sample_weight=np.ones(500))


def test_the_population_of_these_tests_is_evenly_spread():
    joint = population("demographic_parity").reshape(4, -1, 2, 2).mean(axis=1)
    assert (np.array([5, 1, 1, 5]) / 12) @ joint.reshape(4, 4) == pytest.approx(
        [1 / 12, 5 / 12, 5 / 12, 1 / 12], abs=2e-4
    )


def population_rates(rule, kind, n=50_000):
    """Return what a rule does among many other rows: each group's accuracy, or its precision."""
    data = eh.datasets.make_zafar(n, random_state=10**6)
    decided = rule.decide(data.p_y, data.p_joint)
    counted = {"accuracy": (decided == data.y, np.ones(n, dtype=bool)), "precision": (data.y == 1, decided == 1)}[kind]
    return [float(counted[0][counted[1] & (data.group == group)].mean()) for group in "01"]


@pytest.mark.parametrize(
    ("criterion", "kind", "least"),
    [(eh.AccuracyParity(), "accuracy", 4), (eh.MinimumRate("precision", 0.6), "precision", 3)],
)
def test_accuracy_and_precision_are_certified_and_hold_in_the_population(criterion, kind, least):
    kept, seeds = 0, range(5)
    for seed in seeds:
        data = eh.datasets.make_zafar(3000, random_state=seed)
        rows_of_seed = (data.y, data.group, data.p_y, data.p_joint)
        try:
            rule = eh.learn_rule(*rows_of_seed, criterion=criterion, tolerance=0.1, confidence=0.95, random_state=seed)
        except eh.InfeasibleError:
            continue
        kept += 1
        found = rule.learned_from["confidence"]["constraints"]
        rates = population_rates(rule, kind)
        if kind == "accuracy":
            assert abs(rates[0] - rates[1]) <= 0.1
            assert found[0]["certified_upper"] <= 0.1
        else:
            assert min(rates) >= 0.6
            assert [entry["name"] for entry in found] == ["precision(group=0)", "precision(group=1)"]
            assert min(entry["certified_lower"] for entry in found) >= 0.6
    assert kept >= least


def test_precision_is_tested_among_the_rows_that_are_selected():
    """Counts of a rule by hand: the exact bound on a precision is Clopper and Pearson's of the selected rows."""
    data = eh.datasets.make_zafar(3000, random_state=3)
    rule = eh.learn_rule(
        data.y,
        data.group,
        data.p_y,
        data.p_joint,
        criterion=eh.MinimumRate("precision", 0.5),
        confidence=0.9,
        random_state=3,
    )
    given = read_rows(data.y, data.group, data.p_y, data.p_joint, criterion=rule.criterion)
    reserved = reserve_rows(rule.criterion, given, np.random.RandomState(3), 0.6)
    assert reserved.sum() == rule.learned_from["confidence"]["certifying_rows"]
    decided = rule.decide(data.p_y, data.p_joint) == 1
    for entry, group in zip(rule.learned_from["confidence"]["constraints"], "01", strict=True):
        chosen = reserved & decided & (data.group == group)
        bound = clopper_pearson_lower(np.sum(chosen & (data.y == 1)), chosen.sum(), 0.9)
        assert entry["certified_lower"] == pytest.approx(float(bound), abs=2e-3)
