from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import InputError, RuleFormatError
from evenhand.rules import rule_json
from evenhand.rules.criteria import resolve
from evenhand.rules.rule import Term
from evenhand.rules.system import write_out

seeds = st.integers(0, 2**32 - 1)


def hand_made(criterion="eo", *, n_groups=2, seed=0, **options):
    rng = np.random.default_rng(seed)
    groups = {"sex": tuple("abcdefgh"[:n_groups])}
    priors = rng.dirichlet(np.ones(2 * n_groups)).reshape(2, n_groups)
    k = len(write_out(resolve(criterion), groups).contrasts)
    return eh.Rule.from_criterion(criterion, groups=groups, priors=priors, z=rng.normal(size=k) * 0.05, **options)


def random_rows(n, n_groups=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random(n), rng.dirichlet(np.ones(2 * n_groups), size=n).reshape(n, 2, n_groups)


@given(seed=seeds, n_groups=st.integers(2, 4), criterion=st.sampled_from(["dp", "eo", "eop", "pe"]))
def test_the_decision_function_is_the_margin_less_the_weighted_densities(seed, n_groups, criterion):
    rule = hand_made(criterion, n_groups=n_groups, seed=seed)
    p, joint = random_rows(50, n_groups, seed)
    expected = 2 * p - 1
    for event, prior, weight in zip(rule.events, rule.priors, rule.event_weights, strict=True):
        column = joint[:, :, rule.groups["sex"].index(event.group)]
        posterior = column.sum(axis=1) if event.label is None else column[:, event.label]
        expected = expected - weight * posterior / prior
    np.testing.assert_allclose(rule.decision_function(p, joint), expected, atol=1e-10)
    np.testing.assert_array_equal(rule.decide(p, joint), (rule.decision_function(p, joint) > 0).astype(int))


@given(seed=seeds, criterion=st.sampled_from(["dp", "eo", "eop"]))
def test_flipping_by_bias_scores_is_the_same_decision(seed, criterion):
    rule = hand_made(criterion, seed=seed)
    p, joint = random_rows(200, seed=seed)
    flips = rule.bias_scores(p, joint) @ rule.z > 1.0
    np.testing.assert_array_equal((p > 0.5) ^ flips, rule.decide(p, joint) == 1)


def test_the_papers_remark_with_a_known_attribute_the_rule_is_a_threshold_for_each_group():
    """EOp with one-hot p(A|x): decide 1 iff p > t_A = 0.5 + a_A / (4 t - 2 a_A), with t = 1 / z."""
    prior = np.array([[0.3, 0.2], [0.1, 0.4]])
    z = 0.07
    rule = eh.Rule.from_criterion("eop", groups={"A": (0, 1)}, priors=prior, z=[z])
    p = np.linspace(0.001, 0.999, 4001)
    a = np.array([1 / prior[1, 0], -1 / prior[1, 1]])
    for group in (0, 1):
        joint = np.zeros((len(p), 2, 2))
        joint[:, 0, group], joint[:, 1, group] = 1 - p, p
        t = 1 / z
        threshold = 0.5 + a[group] / (4 * t - 2 * a[group])
        np.testing.assert_array_equal(rule.decide(p, joint) == 1, p > threshold)


def test_receipts_add_up_and_say_what_happened():
    rule = hand_made("eo", seed=3)
    p, joint = random_rows(100, seed=4)
    decided = rule.decide(p, joint)
    receipts = rule.explain(p, joint)
    for receipt, q, decision in zip(receipts, p, decided, strict=True):
        assert receipt.probability == q
        assert receipt.margin + sum(receipt.terms.values()) == pytest.approx(receipt.fair_margin, abs=1e-12)
        assert receipt.decision == decision
        assert receipt.flipped == (receipt.base_decision != receipt.decision)
        assert receipt.distance == pytest.approx(abs(receipt.fair_margin) / 2)
    flipped = next(receipt for receipt in receipts if receipt.flipped)
    assert f"flipped to {flipped.decision!r}" in str(flipped)


@given(seed=seeds, criterion=st.sampled_from(["dp", "eo", "eop", "pe"]), n_groups=st.integers(2, 5))
def test_json_round_trips_to_the_bit(seed, criterion, n_groups):
    rule = hand_made(criterion, seed=seed, n_groups=n_groups, tolerance=0.1 + seed * 1e-12, costs=(1.0, 1 / 3))
    again = eh.Rule.from_json(rule.to_json())
    assert again == rule
    assert again.to_json() == rule.to_json()
    assert again.z.tobytes() == rule.z.tobytes()


@pytest.mark.parametrize(
    ("groups", "classes"),
    [
        (("a", "b"), ("no", "yes")), ((1, 2), (False, True)), ((1.5, 2.5), (-1, 1)), ((True, False), (0.0, 1.0)),
        ((("a", 1), ("b", 2)), (0, 1)), (("<script>", "Größe \"x\"\n"), ("n\u0000", "é")),
    ],
)  # fmt: skip
def test_groups_and_labels_of_every_kind_survive_json(groups, classes):
    rule = eh.Rule.from_criterion("dp", groups={"g": groups}, priors=[0.5, 0.5], z=[0.1], classes=classes)
    again = eh.Rule.from_json(rule.to_json())
    assert again == rule
    assert [type(g) for g in again.groups["g"]] == [type(g) for g in groups]
    assert again.decide([0.9, 0.1], [[0.5, 0.5]] * 2).tolist() == [classes[1], classes[0]]


def test_a_group_that_json_cannot_hold_is_named():
    rule = eh.Rule.from_criterion("dp", groups={"g": (frozenset({1}), frozenset())}, priors=[0.5, 0.5], z=[0.1])
    with pytest.raises(InputError, match="frozenset"):
        rule.to_json()


def test_a_learnt_rule_carries_its_solution_through_json():
    data = eh.datasets.make_zafar(400, random_state=0)
    rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_group, tolerance=0.1)
    again = eh.Rule.from_json(rule.to_json())
    assert again.solution_ == rule.solution_
    assert again.learned_from == rule.learned_from
    assert again.learned_from["rows"] == 400


def test_a_hand_made_rule_has_no_solution():
    with pytest.raises(AttributeError, match="not learnt"):
        hand_made().solution_
    assert not hasattr(hand_made(), "solution_")


BROKEN = {
    "empty": lambda text, data: "",
    "truncated": lambda text, data: text[: len(text) // 2],
    "not a rule": lambda text, data: "{}",
    "a list": lambda text, data: "[1, 2]",
    "foreign": lambda text, data: json.dumps({"format": "onnx", "version": 1}),
    "newer": lambda text, data: json.dumps({**data, "version": rule_json.VERSION + 1}),
    "version is text": lambda text, data: json.dumps({**data, "version": "1"}),
    "version is true": lambda text, data: json.dumps({**data, "version": True}),
    "extra field": lambda text, data: json.dumps({**data, "code": "import os"}),
    "field missing": lambda text, data: json.dumps({k: v for k, v in data.items() if k != "costs"}),
    "field twice": lambda text, data: text.replace('"tolerance"', '"costs": {}, "tolerance"', 1),
    "nan": lambda text, data: text.replace(str(data["terms"][0]["z"]), "NaN"),
    "infinite": lambda text, data: text.replace(str(data["terms"][0]["z"]), "1e999"),
    "text for a number": lambda text, data: text.replace(str(data["terms"][0]["z"]), '"0.1"'),
    "weight does not fit": lambda text, data: json.dumps(
        {**data, "events": [{**data["events"][0], "weight": 9.0}, *data["events"][1:]]}
    ),
    "prior zero": lambda text, data: json.dumps(
        {**data, "events": [{**data["events"][0], "prior": 0.0}, *data["events"][1:]]}
    ),
    "unknown group": lambda text, data: json.dumps(
        {**data, "events": [{**data["events"][0], "group": "zz"}, *data["events"][1:]]}
    ),
    "label out of range": lambda text, data: json.dumps(
        {**data, "events": [{**data["events"][0], "label": 2}, *data["events"][1:]]}
    ),
    "groups are null": lambda text, data: json.dumps({**data, "groups": None}),
    "groups are no lists": lambda text, data: json.dumps({**data, "groups": {"sex": "ab"}}),
    "labels are a list": lambda text, data: json.dumps({**data, "labels": [0, 1]}),
    "events are no list": lambda text, data: json.dumps({**data, "events": 3}),
    "terms are no objects": lambda text, data: json.dumps({**data, "terms": [1]}),
    "equal labels": lambda text, data: json.dumps({**data, "labels": {"negative": 1, "positive": 1}}),
    "groups repeat": lambda text, data: json.dumps({**data, "groups": {"sex": ["a", "b", "a"]}}),
    "criterion unknown": lambda text, data: json.dumps({**data, "criterion": {"type": "os.system"}}),
    "learned_from is text": lambda text, data: json.dumps({**data, "learned_from": "me"}),
    "solution is text": lambda text, data: json.dumps({**data, "solution": "optimal"}),
    "deep": lambda text, data: "[" * 100_000,
    "oversized": lambda text, data: text + " " * 10_000_001,
    "no text": lambda text, data: None,
    "bytes": lambda text, data: text.encode(),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_file_that_is_no_rule_gets_one_clear_error(how):
    text = hand_made("eo").to_json()
    broken = BROKEN[how](text, json.loads(text))
    with pytest.raises(RuleFormatError) as error:
        eh.Rule.from_json(broken)
    assert 10 < len(str(error.value)) < 400
    for python in ("object has no", "object is not"):
        assert python not in str(error.value)


@settings(max_examples=200)
@given(position=st.integers(0, 10_000), replacement=st.characters())
def test_a_changed_character_is_read_or_refused_but_never_anything_else(position, replacement):
    text = hand_made("dp").to_json()
    position %= len(text)
    with contextlib.suppress(RuleFormatError):
        eh.Rule.from_json(text[:position] + replacement + text[position + 1 :])


@pytest.mark.parametrize(
    ("p_y", "p_group", "message"),
    [
        ([0.5, 1.5], [[0.5, 0.5]] * 2, "p_y must be probabilities"),
        ([0.5, np.nan], [[0.5, 0.5]] * 2, "p_y must be probabilities"),
        ([0.5, 0.5], [[0.5, 0.6]] * 2, "sum to 1"),
        ([0.5, 0.5], [[1.0009, 0.0]] * 2, "of 'sex' must be probabilities"),
        ([0.5, 0.5], [[0.5, 0.5]], "1 rows"),
        ([[0.5, 0.5]], [[0.5, 0.5]], "predict_proba"),
        ([0.5, 0.5], None, "needs p_group"),
        ([0.5, 0.5], [[0.2, 0.3, 0.5]] * 2, "one column for each group"),
    ],
)
def test_rows_that_cannot_be_decided_are_refused(p_y, p_group, message):
    rule = hand_made("dp")
    with pytest.raises(InputError, match=message):
        rule.decide(np.array(p_y), None if p_group is None else np.array(p_group))


OVER = 5e-7


@pytest.mark.parametrize("form", ["arrays", "lists", "several attributes"])
@pytest.mark.parametrize(
    ("p", "groups", "z"),
    [
        (0.75 + 0.1 * OVER, [1.0 + OVER, 0.0], 0.25),
        (0.25 - 0.1 * OVER, [-OVER, 1.0], 0.25),
        (1.0 + OVER, [1.0, 0.0], 0.5),
        (-OVER, [0.0, 1.0], 0.5),
    ],
)
def test_what_rounding_took_over_the_edge_is_set_to_it_however_it_is_given(p, groups, z, form):
    names = ("sex", "race") if form == "several attributes" else ("sex",)
    rule = eh.Rule.from_criterion(
        "dp",
        groups=dict.fromkeys(names, ("F", "M")),
        priors={key: [0.5, 0.5] for key in names},
        z=[z, *[0.0] * (len(names) - 1)],
    )
    given = [p], {key: [groups] for key in names}
    if form != "lists":
        given = np.array([p]), {name: np.array([groups]) for name in names}
    edged = np.clip([p], 0.0, 1.0), {name: np.clip([groups], 0.0, 1.0) for name in names}
    assert rule.decision_function(*given) == rule.decision_function(*edged)
    (receipt,) = rule.explain(*given)
    assert receipt == rule.explain(*edged)[0]
    assert receipt.probability == edged[0][0]
    assert receipt.margin + sum(receipt.terms.values()) == pytest.approx(receipt.fair_margin, abs=1e-12)


def test_a_rule_within_labels_refuses_probabilities_without_labels():
    with pytest.raises(InputError, match=r"needs p\(Y,A\|x\)"):
        hand_made("eo").decide([0.5], [[0.5, 0.5]])


def test_large_input_decided_in_parts_is_the_same_as_in_one(monkeypatch):
    rule = hand_made("eo")
    p, joint = random_rows(10_000)
    whole = rule.decision_function(p, joint)
    monkeypatch.setattr("evenhand.rules.evaluating.ROWS_A_THREAD", 999)
    monkeypatch.setattr("evenhand.rules.evaluating.ROWS_IN_CACHE", 400)
    assert rule.decision_function(p, joint).tobytes() == whole.tobytes()
    np.testing.assert_array_equal(rule.decide(p, joint), whole > 0.0)
    for row in (7_777, 2_997, 0):
        p[row] = np.nan
        with pytest.raises(InputError, match=f"row {row}"):
            rule.decide(p, joint)


def test_float32_and_frames_are_accepted():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rule = hand_made("dp")
    p, joint = random_rows(50)
    groups = joint.sum(axis=1)
    expected = rule.decide(p, groups)
    np.testing.assert_array_equal(rule.decide(pandas.Series(p), pandas.DataFrame(groups)), expected)
    np.testing.assert_array_equal(rule.decide(polars.Series(p), polars.DataFrame(groups, schema=["a", "b"])), expected)
    assert (rule.decide(p.astype(np.float32), groups.astype(np.float32)) == expected).mean() > 0.99


def test_every_answer_of_a_rule_follows_the_names_of_a_frames_columns():
    pandas = pytest.importorskip("pandas")
    rule = hand_made("dp")
    p, joint = random_rows(50)
    frame = pandas.DataFrame(joint.sum(axis=1), columns=["a", "b"])
    turned = frame[["b", "a"]]
    np.testing.assert_array_equal(rule.decision_function(p, turned), rule.decision_function(p, frame))
    np.testing.assert_array_equal(rule.decide(p, {"sex": turned}), rule.decide(p, frame))
    np.testing.assert_array_equal(rule.bias_scores(p, turned), rule.bias_scores(p, frame))
    assert rule.explain(p, turned) == rule.explain(p, frame)


def test_a_rule_is_frozen_and_hashable():
    rule = hand_made()
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.tolerance = 1.0
    assert hash(rule) == hash(eh.Rule.from_json(rule.to_json()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"priors": (0.5,)}, "one prior"), ({"priors": (0.0, 0.5)}, "priors must be"),
        ({"terms": (Term("x", (1.0,), 0.1),)}, "one coefficient"),
        ({"terms": (Term("x", (1.0, np.nan), 0.1),)}, "not finite"),
        ({"classes": (1, 1)}, "two different labels"), ({"groups": {"sex": ("x", "y")}}, "not among"),
        ({"costs": (0.0, 1.0)}, "costs must be positive"),
    ],
)  # fmt: skip
def test_a_rule_that_contradicts_itself_cannot_be_made(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(hand_made("dp"), **change)


def test_several_attributes_take_a_dict():
    criterion = eh.DemographicParity(attribute="sex") & eh.DemographicParity(attribute="race")
    rule = eh.Rule.from_criterion(
        criterion, groups={"sex": ("F", "M"), "race": ("a", "b")}, z=[0.1, -0.2],
        priors={"sex": [0.4, 0.6], "race": [0.3, 0.7]},
    )  # fmt: skip
    p, sex, race = (
        np.array([0.6, 0.4]),
        np.array([[0.9, 0.1], [0.2, 0.8]]),
        np.array([[0.5, 0.5], [1.0, 0.0]]),
    )
    expected = 2 * p - 1 - 0.1 * (sex[:, 0] / 0.4 - sex[:, 1] / 0.6) + 0.2 * (race[:, 0] / 0.3 - race[:, 1] / 0.7)
    np.testing.assert_allclose(rule.decision_function(p, {"race": race, "sex": sex}), expected)
    with pytest.raises(InputError, match="must be a dict"):
        rule.decide(p, sex)
    for name, array in (("race", race), ("sex", sex)):
        wrong = array.copy()
        wrong[0] = -0.1, 1.1
        with pytest.raises(InputError, match=f"p_group of '{name}'"):
            rule.decide(p, {"race": race, "sex": sex, name: wrong})


def test_a_rule_says_which_probabilities_it_needs_and_names_its_terms():
    assert hand_made("eo").needs_joint
    assert not hand_made("dp").needs_joint
    assert [term.name for term in hand_made("dp").terms] == ["rate(sex=a) - rate(sex=b)"]
    ratio = eh.Rule.from_criterion(
        eh.SelectionRatio(0.8), groups={"sex": ("a", "b")}, priors={"sex": [0.5, 0.5]}, z=[0.1, 0.1]
    )
    assert {term.name for term in ratio.terms} == {"rate(sex=a) - 0.8 rate(sex=b)", "- 0.8 rate(sex=a) + rate(sex=b)"}


def test_a_rule_on_everyone_needs_no_groups():
    rule = eh.Rule.from_criterion(eh.SelectionBudget(upper=0.2), groups={}, priors={}, z=[0.3])
    np.testing.assert_array_equal(rule.decide([0.6, 0.7]), [0, 1])


def test_no_rows_get_no_decisions():
    for criterion, shape in (("dp", (0, 2)), ("eo", (0, 2, 2))):
        rule = hand_made(criterion)
        none, cells = np.empty(0), np.empty(shape)
        assert rule.decide(none, cells).shape == rule.decision_function(none, cells).shape == (0,)
        assert rule.bias_scores(none, cells).shape == (0, len(rule.terms))
        assert rule.explain(none, cells) == []


def test_one_row_costs_neither_a_search_for_frames_nor_a_new_form(monkeypatch):
    """Looking for every library of frames took most of the time of a row, and so did writing the rule out again."""
    rule = eh.Rule.from_criterion("eo", groups={"sex": ("F", "M")}, priors=[[0.3, 0.2], [0.2, 0.3]], z=[0.1, -0.2])
    p, joint = np.array([0.6]), np.array([[[0.1, 0.2], [0.3, 0.4]]])
    expected = rule.decide(p, joint).tolist()
    made = []
    monkeypatch.setattr("narwhals.stable.v2.from_native", lambda *_, **__: made.append("frame"))
    monkeypatch.setattr(eh.Rule, "linear_form", lambda *_, **__: made.append("form"))
    for _ in range(3):
        assert rule.decide(p, joint).tolist() == expected
        assert rule.decide([0.6], joint.tolist()).tolist() == expected
    assert made == []


def test_rules_that_have_decided_are_still_equal_copied_and_pickled():
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1], classes=("no", "yes"))
    fresh = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1], classes=("no", "yes"))
    decided = rule.decide([0.6, 0.4], [[0.5, 0.5], [0.5, 0.5]])
    decided[:] = "no"
    rule.linear_form().columns["sex"][:] = 0.0
    assert rule == fresh
    for again in (rule, pickle.loads(pickle.dumps(rule)), copy.deepcopy(rule)):
        assert (
            again.decide([0.6, 0.4], [[0.9, 0.1], [0.1, 0.9]]).tolist()
            == fresh.decide([0.6, 0.4], [[0.9, 0.1], [0.1, 0.9]]).tolist()
        )
    # Columns that are joint need another form than those that are not.
    joint = [[[0.45, 0.05], [0.45, 0.05]], [[0.05, 0.45], [0.05, 0.45]]]
    assert rule.decide([0.6, 0.4], joint).tolist() == fresh.decide([0.6, 0.4], [[0.9, 0.1], [0.1, 0.9]]).tolist()
