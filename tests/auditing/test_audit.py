"""An audit says what the data can say: rates, gaps, intervals, and verdicts that follow from them."""

import dataclasses
import json
import warnings

import fairlearn.metrics
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand import metrics
from evenhand.auditing.audit import Audit, audit
from evenhand.errors import InputError
from evenhand.rules.criteria import (
    DemographicParity,
    EqualizedOdds,
    MinimumRate,
    PredictiveEquality,
    SelectionBudget,
    SelectionRatio,
)
from evenhand.rules.events import Intersection
from evenhand.statistics import intervals
from evenhand.text import columns_of

CRITERIA = [
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "equalized_odds",
    "selection_ratio(0.8)",
]


def population(n, seed=0, groups=("F", "M"), shift=0.0):
    """Return labels, scores and groups; the scores of the last group are higher by the shift."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(groups), n)
    y = (rng.random(n) < 0.4).astype(int)
    scores = np.clip(0.25 + 0.4 * y + shift * (codes == len(groups) - 1) + rng.normal(0, 0.2, n), 0, 1)
    return y, scores, np.array(groups, dtype=object)[codes]


@st.composite
def samples(draw):
    n = draw(st.integers(2, 80))
    bits = st.lists(st.integers(0, 1), min_size=n, max_size=n)
    groups = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=n, max_size=n))
    groups[:2] = ["a", "b"]
    return np.array(draw(bits)), np.array(draw(bits)), groups


def outcomes(found):
    return {(v.attribute, v.criterion): v.outcome for v in found.verdicts}


@settings(max_examples=40, deadline=None)
@given(samples())
def test_rates_gaps_and_accuracy_equal_the_metrics(sample):
    y, decisions, groups = sample
    found = audit(y, decisions, groups)
    rates = metrics.group_rates(y, decisions, sensitive_features=groups)
    (attribute,) = found.attributes
    for group in attribute.groups:
        for name in ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy"):
            estimate = getattr(group, name)
            expected = rates[group.group][name]
            if estimate.value is None:
                assert np.isnan(expected)
                assert (estimate.lower, estimate.upper) == (0.0, 1.0)
            else:
                assert estimate.value == pytest.approx(expected)
                assert estimate.lower <= estimate.value <= estimate.upper
    assert found.accuracy.value == pytest.approx(np.mean(y == decisions))
    assert attribute.gaps["demographic_parity"].value == pytest.approx(
        metrics.demographic_parity_difference(y, decisions, sensitive_features=groups)
    )


def test_gaps_equal_fairlearns_where_every_cell_has_rows():
    y, scores, groups = population(600, groups=("a", "b", "c", "d"), shift=0.2)
    gaps = audit(y, scores, groups).attributes[0].gaps
    for criterion in ("demographic_parity", "equal_opportunity", "equalized_odds"):
        function = getattr(fairlearn.metrics, f"{criterion}_difference")
        assert gaps[criterion].value == pytest.approx(function(y, scores > 0.5, sensitive_features=groups))


@settings(max_examples=60, deadline=None)
@given(samples(), st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0]), st.sampled_from([0.8, 0.95]))
def test_verdicts_follow_from_the_intervals(sample, tolerance, confidence):
    found = audit(*sample, tolerance=tolerance, confidence=confidence)
    assert [v.criterion for v in found.verdicts] == CRITERIA
    for verdict in found.verdicts:
        gap = verdict.gap
        assert gap.value is None or gap.lower <= gap.value + 1e-12
        assert gap.value is None or gap.value <= gap.upper + 1e-12
        expected = (
            "pass"
            if gap.upper <= verdict.tolerance
            else "fail"
            if gap.lower > verdict.tolerance
            else "insufficient evidence"
        )
        assert verdict.outcome == expected
        assert (verdict.shortage is not None) == (verdict.outcome == "insufficient evidence")
    assert found.passed == all(v.outcome == "pass" for v in found.verdicts)


@settings(max_examples=30, deadline=None)
@given(samples(), st.randoms(use_true_random=False))
def test_shuffled_rows_and_renamed_groups_change_nothing_but_the_names(sample, random):
    y, decisions, groups = sample
    order = list(range(len(y)))
    random.shuffle(order)
    names = {"a": "zebra", "b": "yak", "c": "ant"}
    before = audit(y, decisions, groups)
    after = audit(y[order], decisions[order], [names[groups[i]] for i in order])
    for old, new in zip(before.verdicts, after.verdicts, strict=True):
        assert (new.outcome, new.criterion) == (old.outcome, old.criterion)
        assert dataclasses.astuple(new.gap) == pytest.approx(dataclasses.astuple(old.gap))
    renamed = {names[group.group]: dataclasses.replace(group, group="") for group in before.attributes[0].groups}
    assert renamed == {group.group: dataclasses.replace(group, group="") for group in after.attributes[0].groups}


@settings(max_examples=40, deadline=None)
@given(samples(), st.data())
def test_a_weight_of_k_equals_k_copies_in_every_estimate(sample, data):
    y, decisions, groups = sample
    copies = data.draw(st.lists(st.integers(1, 3), min_size=len(y), max_size=len(y)))
    index = np.repeat(np.arange(len(y)), copies)
    weighted = audit(y, decisions, groups, sample_weight=copies)
    copied = audit(y[index], decisions[index], [groups[i] for i in index])
    for old, new in zip(weighted.verdicts, copied.verdicts, strict=True):
        assert new.gap.value == pytest.approx(old.gap.value)
    for old, new in zip(weighted.attributes[0].groups, copied.attributes[0].groups, strict=True):
        assert new.true_positive_rate.value == pytest.approx(old.true_positive_rate.value)
        assert old.selection_rate.upper - old.selection_rate.lower >= (
            new.selection_rate.upper - new.selection_rate.lower - 1e-12
        )


def test_equal_weights_change_nothing():
    y, scores, groups = population(300)
    plain, weighted = audit(y, scores, groups), audit(y, scores, groups, sample_weight=np.full(300, 7.0))
    assert dataclasses.replace(weighted, weighted=False) == plain
    assert "effective sample size" in str(weighted)


def test_enough_rows_pass_what_is_fair_and_fail_what_is_not():
    fair = audit(*population(60_000), tolerance=0.03)
    assert fair.passed
    unfair = audit(*population(4_000, shift=0.3))
    assert set(outcomes(unfair).values()) == {"fail"}
    few = audit(*population(60))
    assert set(outcomes(few).values()) == {"insufficient evidence"}


def test_verdicts_are_rarely_wrong_at_the_border():
    rng = np.random.default_rng(2)
    trials, wrong = np.array([150, 200, 150]), {"pass": 0, "fail": 0}
    groups = np.repeat(["a", "b", "c"], trials)
    for _ in range(200):
        decisions = np.concatenate([rng.random(n) < p for n, p in zip(trials, (0.3, 0.45, 0.4), strict=True)])
        outcome = audit(None, decisions, groups, criterion="dp", tolerance=0.15).verdicts[0].outcome
        if outcome != "insufficient evidence":
            wrong[outcome] += 1
    assert wrong["pass"] / 200 <= 0.025 + 2.6 * np.sqrt(0.025 * 0.975 / 200)
    assert wrong["fail"] / 200 <= 0.025 + 2.6 * np.sqrt(0.025 * 0.975 / 200)


def test_two_groups_have_newcombes_interval():
    y, scores, groups = population(400, shift=0.3)
    decisions = scores > 0.5
    verdict = audit(y, decisions, groups, criterion="demographic_parity").verdicts[0]
    counts = [value for g in ("M", "F") for value in (decisions[groups == g].sum(), (groups == g).sum())]
    lower, upper = intervals.newcombe_interval(*counts)
    assert (verdict.gap.lower, verdict.gap.upper) == pytest.approx((float(lower), float(upper)))


def test_every_pair_of_groups_is_listed_for_every_rate():
    y, scores, groups = population(300, groups=("a", "b", "c"))
    pairs = audit(y, scores, groups).attributes[0].pairs
    assert [(p.rate, p.first, p.second) for p in pairs] == [
        (rate, first, second)
        for rate in ("selection_rate", "true_positive_rate", "false_positive_rate")
        for first, second in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    rates = metrics.group_rates(y, scores > 0.5, sensitive_features=groups)
    for pair in pairs:
        expected = rates[pair.first][pair.rate] - rates[pair.second][pair.rate]
        assert pair.difference.value == pytest.approx(expected)
        assert pair.difference.lower < expected < pair.difference.upper


def test_the_selection_ratio_is_the_lowest_rate_over_the_highest():
    groups = ["a"] * 1000 + ["b"] * 1000 + ["c"] * 1000
    decisions = [1] * 300 + [0] * 700 + [1] * 500 + [0] * 500 + [1] * 450 + [0] * 550
    found = audit(None, decisions, groups)
    ratio = found.attributes[0].selection_ratio
    assert ratio.value == pytest.approx(0.6)
    assert 0.5 < ratio.lower < 0.6 < ratio.upper < 0.7
    assert outcomes(found)["group", "selection_ratio(0.8)"] == "fail"
    nothing = audit(None, [0] * 20, ["a", "b"] * 10).attributes[0].selection_ratio
    assert (nothing.value, nothing.lower, nothing.upper) == (None, 0.0, 1.0)


def test_the_rows_said_to_settle_a_verdict_do():
    y, scores, groups = population(500, groups=("a", "b", "c"), shift=0.12)
    found = audit(y, scores, groups, tolerance=0.1)
    undecided = [v for v in found.verdicts if v.shortage is not None]
    assert undecided
    for verdict in undecided:
        factor = int(np.ceil(1.05 * verdict.shortage.rows_needed / 500))
        more = audit(np.tile(y, factor), np.tile(scores, factor), np.tile(groups, factor), tolerance=0.1)
        outcome = next(v.outcome for v in more.verdicts if v.criterion == verdict.criterion)
        assert outcome != "insufficient evidence"
        assert verdict.shortage.cell_needed >= verdict.shortage.cell_rows
        cell = groups == verdict.shortage.group
        if verdict.shortage.label is not None:
            cell &= y == verdict.shortage.label
        assert verdict.shortage.cell_rows == cell.sum()


def test_a_gap_at_the_tolerance_is_said_to_stay_undecided():
    decisions = [1] * 30 + [0] * 70 + [1] * 35 + [0] * 65
    verdict = audit(None, decisions, ["a"] * 100 + ["b"] * 100, criterion="dp", tolerance=0.05).verdicts[0]
    assert (verdict.outcome, verdict.shortage.rows_needed) == ("insufficient evidence", None)
    text = str(audit(None, decisions, ["a"] * 100 + ["b"] * 100, criterion="dp", tolerance=0.05))
    assert "not expected to settle it" in text


def test_an_empty_cell_leaves_the_verdict_open_and_says_how_to_begin():
    y = [0, 1] * 50 + [0] * 100
    found = audit(y, y, ["a"] * 100 + ["b"] * 100)
    a, b = found.attributes[0].groups
    assert (b.positives, b.true_positive_rate.value) == (0, None)
    assert a.true_positive_rate.value == 1.0
    verdict = next(v for v in found.verdicts if v.criterion == "equal_opportunity")
    assert (verdict.outcome, verdict.gap.value, verdict.gap.upper) == (
        "insufficient evidence",
        None,
        pytest.approx(1.0, abs=0.1),
    )
    assert dataclasses.astuple(verdict.shortage) == (None, "b", 1, 0, 385)
    assert "no rows" in str(found)
    assert "the group b with a positive label has 0 rows; start with 385" in str(found)


def test_an_empty_cell_under_a_bound_without_tolerance_is_named():
    floor = MinimumRate("tpr", 0.5)
    found = audit([0, 1] * 50 + [0] * 100, [0, 1] * 100, ["a"] * 100 + ["b"] * 100, criterion=floor)
    assert "minimum_rate(tpr, 0.5): the group b with a positive label has no rows" in str(found)


def test_an_empty_cell_does_not_hide_a_gap_between_the_others():
    y = [1] * 400 + [0] * 100
    decisions = [1] * 200 + [0] * 200 + [0] * 100
    found = audit(y, decisions, ["a"] * 200 + ["b"] * 200 + ["c"] * 100, criterion="eop")
    assert found.verdicts[0].outcome == "fail"
    assert found.verdicts[0].gap.value == 1.0


@pytest.mark.parametrize(
    ("criterion", "expected"),
    [
        ("dp", "demographic_parity"),
        ("eo", "equalized_odds"),
        ("eop", "equal_opportunity"),
        ("pe", "predictive_equality"),
        ("true_positive_rate_parity", "equal_opportunity"),
        ("Equalized_Odds", "equalized_odds"),
        (EqualizedOdds(tolerance=0.2), "equalized_odds"),
        (SelectionRatio(0.9), "selection_ratio(0.9)"),
        (MinimumRate("tpr", 0.7), "minimum_rate(tpr, 0.7)"),
    ],
)
def test_a_criterion_restricts_the_verdicts(criterion, expected):
    y, scores, groups = population(300)
    found = audit(y, scores, groups, criterion=criterion)
    assert [v.criterion for v in found.verdicts] == [expected]
    assert set(found.attributes[0].gaps) == {*CRITERIA[:-1]}


def test_a_criterion_keeps_its_own_tolerance():
    y, scores, groups = population(300)
    found = audit(y, scores, groups, criterion=DemographicParity(tolerance=0.5) & PredictiveEquality(), tolerance=0.1)
    assert [v.tolerance for v in found.verdicts] == [0.5, 0.1]


def test_bounds_on_rates_are_judged_like_gaps():
    decisions = [1] * 400 + [0] * 600
    groups = ["a", "b"] * 500
    budget = audit(None, decisions, groups, criterion=SelectionBudget(upper=0.3)).verdicts[0]
    assert (budget.attribute, budget.outcome, budget.gap.value) == (None, "fail", pytest.approx(0.1))
    assert audit(None, decisions, groups, criterion=SelectionBudget(upper=0.5)).passed
    assert audit(None, decisions, groups, criterion=MinimumRate("selection_rate", 0.3)).passed
    floor = audit(None, decisions, groups, criterion=MinimumRate("selection_rate", 0.41)).verdicts[0]
    assert floor.outcome == "insufficient evidence"
    assert floor.shortage.cell_needed > 500


def test_each_attribute_is_audited_and_crossing_is_asked_for():
    y, scores, sex = population(600)
    race = np.resize(["x", "y", "z"], 600)
    frame = pd.DataFrame({"sex": sex, "race": race})
    found = audit(y, scores, frame)
    assert [a.name for a in found.attributes] == ["sex", "race"]
    assert len(found.verdicts) == 2 * len(CRITERIA)
    assert found == audit(y, scores, pl.from_pandas(frame)) == audit(y, scores, {"sex": sex, "race": race})
    crossed = audit(y, scores, frame, criterion=DemographicParity(attribute=Intersection("sex", "race")))
    assert [a.name for a in crossed.attributes] == ["sex", "race", "sex & race"]
    assert [len(a.groups) for a in crossed.attributes] == [2, 3, 6]
    gap = metrics.demographic_parity_difference(y, scores > 0.5, sensitive_features=frame)
    assert crossed.verdicts[0].gap.value == pytest.approx(gap)


def test_decisions_and_scores_of_every_kind_give_the_same():
    y, scores, groups = population(300)
    decided = scores > 0.5
    expected = audit(y, decided, groups)
    words = np.array(["no", "yes"])
    for labels, decisions, pos_label in (
        (y, scores, 1),
        (y, scores.astype(np.float32).tolist(), 1),
        (y, decided.astype(int), 1),
        (y, decided.astype(float), 1),
        (pd.Series(y), pl.Series(scores), 1),
        (words[y], words[decided.astype(int)], "yes"),
        (words[y], decided, "yes"),
        (words[y], scores, "yes"),
        (1 - y, scores, 0),
        (y + 1.0, decided + 1.0, 2),
    ):
        assert audit(labels, decisions, groups, pos_label=pos_label) == expected
    assert audit(y, [*scores[:-1], 1], groups) == audit(y, [*scores[:-1], 1.0], groups)


def test_a_score_must_be_above_the_threshold():
    found = audit(None, [0.5, 0.6, 0.7, 0.2], list("abab"), threshold=0.6)
    assert [g.selection_rate.value for g in found.attributes[0].groups] == [0.5, 0.0]


def test_without_labels_only_decisions_are_audited():
    _, scores, groups = population(200)
    found = audit(None, scores, groups)
    assert [v.criterion for v in found.verdicts] == ["demographic_parity", "selection_ratio(0.8)"]
    assert found.accuracy is None
    assert found.attributes[0].groups[0].true_positive_rate is None
    assert {p.rate for p in found.attributes[0].pairs} == {"selection_rate"}
    assert "true positive" not in str(found)


def test_rows_of_unknown_group_count_for_accuracy_only_when_asked():
    y, scores, groups = population(200)
    holes = groups.copy()
    holes[::10] = None
    with pytest.raises(InputError, match="missing in 20 rows"):
        audit(y, scores, holes)
    found = audit(y, scores, holes, missing="ignore")
    assert found.accuracy == audit(y, scores, groups).accuracy
    assert found.attributes[0].unknown_rows == 20
    assert sum(g.rows for g in found.attributes[0].groups) == 180
    assert "20 rows of unknown group left out" in str(found)


HOSTILE = [
    "a\nb",
    "\x1b[31mred",
    "\u202eevil",
    "",
    " ",
    "<b>",
    "'; drop",
    "日本",
    "x" * 500,
    "x" * 500 + "y",
    1,
    "1",
]


def test_hostile_group_names_neither_break_the_table_nor_the_json():
    groups = HOSTILE * 5
    found = audit(None, [0, 1] * 30, groups)
    text = str(found)
    table = text.split("\n\n")[1].splitlines()
    assert len(table) == 2 + len(HOSTILE) + 1
    assert max(map(len, text.splitlines())) <= 80
    assert all(sign == "\n" or sign.isprintable() for sign in text)
    assert len({line.split("  ")[1] for line in table[2:-1]}) == len(HOSTILE)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {(type(g["group"]), g["group"]) for g in data["attributes"][0]["groups"]} == {
        (type(group), group) for group in HOSTILE
    }


def test_groups_that_json_has_no_word_for_are_written_as_text():
    days = pd.to_datetime(["2020-01-01", "2021-01-01"] * 20)
    data = audit(None, [0, 1, 1, 0] * 10, {"day": days, "pair": [("a", 1), ("b", 2)] * 20}).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert [g["group"] for g in data["attributes"][1]["groups"]] == ["('a', 1)", "('b', 2)"]


def test_the_plain_data_has_the_documented_keys():
    data = audit(*population(100)).to_dict()
    assert list(data) == [field.name for field in dataclasses.fields(Audit) if field.name != "library"]
    assert list(data["attributes"][0]["gaps"]) == CRITERIA[:-1]
    assert set(data["accuracy"]) == {"value", "lower", "upper"}
    always = {"criterion", "attribute", "gap", "tolerance", "outcome", "shortage"}
    assert set(data["verdicts"][0]) == always | {"strata", "left_out"}


EXPECTED = [
    "Audit of 100 rows, tolerance 0.05, confidence 0.95",
    "accuracy 1.000 (0.963 to 1.000)",
    "",
    "group",
    "  group  rows  negative  positive     selection rate  true positive rate",
    "  F        50        25        25  0.500 0.366-0.634   1.000 0.867-1.000",
    "  M        50        25        25  0.500 0.366-0.634   1.000 0.867-1.000",
    "",
    "  group  false positive rate           accuracy",
    "  F        0.000 0.000-0.133  1.000 0.929-1.000",
    "  M        0.000 0.000-0.133  1.000 0.929-1.000",
    "  four-fifths ratio, lowest to highest selection rate: 1.000 (0.677 to 1.000)",
    "",
    "verdicts on group",
    "  criterion           gap                     at most  verdict",
    "  demographic_parity  0.000 (0.000 to 0.189)  0.05     insufficient evidence",
    "  demographic_parity: about 1,530 rows of this mix would settle it (the group F:",
    "    765, now 50)",
]


@pytest.mark.parametrize("labelled", [True, False])
def test_the_table_fits_a_terminal_of_80_columns(labelled):
    y, scores, groups = population(400, groups=("a", "a group whose name is as long as names may be", "漢字" * 15))
    text = str(audit(y if labelled else None, scores, {"a": groups, "an attribute with quite a name": groups[::-1]}))
    assert max(map(columns_of, text.splitlines())) <= 80
    assert "false positive rate" in text or not labelled


def test_the_same_input_gives_the_same_bytes_and_no_warning():
    y, scores, groups = population(300, groups=("a", "b", "c"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = audit(y, scores, groups), audit(y, scores, groups)
    assert str(first) == str(second) == repr(first)
    assert json.dumps(first.to_dict()) == json.dumps(second.to_dict())
    assert str(audit([0, 1] * 50, [0, 1] * 50, ["F"] * 50 + ["M"] * 50, criterion="dp")).splitlines() == EXPECTED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sensitive_features": ["a"] * 4}, "only the group 'a'"),
        ({"sensitive_features": ["a", "b", "b"]}, "has 3 rows"),
        ({"y": [0, 1, 1]}, "y has 3 rows, but decisions_or_scores has 4"),
        (
            {"y": [0, 1, 1], "decisions_or_scores": [0.1, 0.2, 0.3, 0.4]},
            "y has 3 rows, but decisions_or_scores has 4",
        ),
        ({"y": [0, 1, 1, None]}, "y has a missing value in row 3"),
        ({"y": [0, 1, 2, 1]}, "y must have two values"),
        ({"y": ["n", "p", "p", "n"]}, "pos_label=1 is not in y"),
        ({"decisions_or_scores": [0.1, 0.2, np.nan, 0.4]}, "between 0 and 1; row 2"),
        ({"decisions_or_scores": [0.1, 0.2, 1.3, 0.4]}, "between 0 and 1; row 2"),
        ({"decisions_or_scores": ["x", "y", "x", "y"]}, "decisions_or_scores has the values"),
        ({"decisions_or_scores": np.full((4, 2), 0.5)}, r"predict_proba\(X\)\[:, 1\]"),
        ({"decisions_or_scores": []}, "empty"),
        ({"tolerance": -0.1}, "tolerance must not be negative"),
        ({"confidence": 95}, "confidence must be strictly between 0 and 1"),
        ({"threshold": 2}, "threshold must be between 0 and 1"),
        ({"criterion": "fairness"}, "Unknown criterion 'fairness'"),
        ({"y": None, "criterion": "eo"}, "y is None: pass the labels"),
        ({"criterion": DemographicParity(attribute="race")}, "names the attribute 'race'"),
        (
            {"criterion": DemographicParity(attribute=Intersection("group", "race"))},
            "names the attribute 'race'",
        ),
        ({"missing": "drop"}, "missing must be"),
        ({"sample_weight": [1, 1, 1]}, "sample_weight must have shape"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_the_cause(changes, message):
    given_ = {"y": [0, 1, 1, 0], "decisions_or_scores": [0, 1, 0, 1], "sensitive_features": list("abab")}
    with pytest.raises(InputError, match=message):
        audit(**(given_ | changes))


def test_a_column_of_many_values_is_refused_before_any_two_are_compared():
    with pytest.raises(InputError, match="1,500 different values in 1,500 rows: it looks like a number"):
        audit([0, 1] * 750, [0, 1] * 750, np.linspace(0.0, 1.0, 1500))
    assert len(audit([0, 1] * 100, [0, 1] * 100, np.arange(200) // 4).attributes[0].groups) == 50
