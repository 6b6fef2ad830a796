from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import InfeasibleError, InputError
from evenhand.rules.events import Event
from evenhand.rules.rule import event_priors
from evenhand.search.problem import conclude
from oracles import dual_value
from problems import feasible, setting_of

seeds = st.integers(0, 2**32 - 1)
CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds")


def draw(seed, n, n_groups=2):
    """Labels, groups and probabilities that fit each other: p(Y, A | x) is drawn and (Y, A) follows it."""
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(2 * n_groups, 0.5), size=n).reshape(n, 2, n_groups)
    cell = (rng.random(n)[:, None] > joint.reshape(n, -1).cumsum(axis=1)).sum(axis=1).clip(max=2 * n_groups - 1)
    y, a = cell // n_groups, cell % n_groups
    for missing in range(2 * n_groups):  # every cell has rows
        y[2 * missing : 2 * missing + 2], a[2 * missing : 2 * missing + 2] = (
            missing // n_groups,
            missing % n_groups,
        )
    return y, np.array([f"g{code}" for code in a]), joint[:, 1].sum(axis=1), joint


def gaps(criterion, y, a, decided):
    """The largest difference of each rate that a criterion compares, counted directly."""
    inside = {"demographic_parity": [np.ones(len(y), bool)], "equal_opportunity": [y == 1]}
    inside |= {"predictive_equality": [y == 0], "equalized_odds": [y == 0, y == 1]}
    worst = 0.0
    for rows in inside[criterion]:
        rates = [decided[rows & (a == group)].mean() for group in np.unique(a)]
        worst = max(worst, max(rates) - min(rates))
    return worst


@settings(max_examples=30)
@given(seed=seeds, criterion=st.sampled_from(CRITERIA), n_groups=st.integers(2, 3), tolerance=st.floats(0.0, 0.5))
def test_the_constraint_holds_on_the_fitting_set_and_the_numbers_are_the_rules_own(
    seed, criterion, n_groups, tolerance
):
    y, a, p, joint = draw(seed, 120, n_groups)
    search = eh.Certified(max_visits=3_000_000)
    try:
        rule = eh.learn_rule(y, a, p, joint, criterion=criterion, tolerance=tolerance, search=search)
    except InfeasibleError as error:
        assert error.smallest_tolerance is None or error.smallest_tolerance > tolerance  # noqa: PT017 (either outcome is right, and each has its own check)
        return
    decided = rule.decide(p, joint)
    assert gaps(criterion, y, a, decided) <= tolerance + 1e-9
    assert rule.solution_.utility == pytest.approx((decided == y).mean(), abs=1e-12)
    assert rule.solution_.upper_bound >= rule.solution_.utility


@settings(max_examples=25)
@given(seed=seeds, criterion=st.sampled_from(CRITERIA))
def test_accuracy_is_monotone_in_the_tolerance_and_a_tolerance_of_one_is_free(seed, criterion):
    y, a, p, joint = draw(seed, 150)
    curve = eh.frontier(y, a, p, joint, criterion=criterion, tolerances=[0.02, 0.05, 0.1, 0.2, 0.4, 1.0])
    assert (np.diff(curve.utilities) >= -1e-12).all()
    assert (curve.gaps <= curve.tolerances + 1e-9).all()
    assert curve.points[-1].tolerance == 1.0
    assert curve.utilities[-1] >= curve.base_utility - 1e-12


@settings(max_examples=20)
@given(seed=seeds, criterion=st.sampled_from(CRITERIA))
def test_relabelling_the_groups_or_shuffling_the_rows_changes_nothing(seed, criterion):
    y, a, p, joint = draw(seed, 100)
    options = {"criterion": criterion, "tolerance": 0.15}
    plain = eh.learn_rule(y, a, p, joint, **options).solution_.utility
    swapped = np.where(a == "g0", "zebra", "ant")
    assert eh.learn_rule(y, swapped, p, joint[:, :, ::-1], **options).solution_.utility == pytest.approx(
        plain, abs=1e-12
    )
    order = np.random.default_rng(seed).permutation(len(y))
    shuffled = eh.learn_rule(y[order], a[order], p[order], joint[order], **options)
    assert shuffled.solution_.utility == pytest.approx(plain, abs=1e-12)


@settings(max_examples=20)
@given(seed=seeds, criterion=st.sampled_from(CRITERIA))
def test_a_weight_of_k_counts_as_k_copies(seed, criterion):
    y, a, p, joint = draw(seed, 60)
    weight = np.random.default_rng(seed).integers(1, 4, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    options = {"criterion": criterion, "tolerance": 0.2}
    weighted = eh.learn_rule(y, a, p, joint, sample_weight=weight, **options)
    copied = eh.learn_rule(y[rows], a[rows], p[rows], joint[rows], **options)
    assert weighted.solution_.utility == pytest.approx(copied.solution_.utility, abs=1e-12)
    np.testing.assert_allclose(weighted.priors, copied.priors)


def test_a_tolerance_of_one_gives_the_base_classifier_when_it_is_the_best():
    data = eh.datasets.make_zafar(3000, random_state=2)
    rule = eh.learn_rule(None, None, data.p_y, data.p_joint, criterion="eo", tolerance=1.0, evidence="model")
    np.testing.assert_array_equal(rule.decide(data.p_y, data.p_joint), (data.p_y > 0.5).astype(int))


def test_the_certified_rule_reaches_the_bayes_optimum_within_sampling_error():
    """On 200,000 draws of the synthetic distribution, whose p(Y, A | x) is known."""
    learn = eh.datasets.make_zafar(200_000, random_state=0, iid=True)
    rule = eh.learn_rule(learn.y, learn.group, learn.p_y, learn.p_joint, criterion="eo", tolerance=0.01)
    bayes = eh.learn_rule(None, None, learn.p_y, learn.p_joint, criterion="eo", tolerance=0.01, evidence="model")
    fresh = eh.datasets.make_zafar(400_000, random_state=1, iid=True)
    accuracy = {}
    for name, each in (("rule", rule), ("bayes", bayes)):
        decided = each.decide(fresh.p_y, fresh.p_joint)
        accuracy[name] = np.where(decided == 1, fresh.p_y, 1 - fresh.p_y).mean()
        odds = eh.metrics.equalized_odds_difference(fresh.y, decided, sensitive_features=fresh.group)
        assert odds <= 0.01 + 4 * np.sqrt(0.5 / (200_000 / 12))
    assert accuracy["rule"] == pytest.approx(accuracy["bayes"], abs=4 * np.sqrt(0.25 / 200_000))


def test_strong_duality_on_the_synthetic_distribution():
    from evenhand.search.dual import solve_linear_program

    data = eh.datasets.make_zafar(20_000, random_state=3, iid=True)
    setting = setting_of(None, None, data.p_y, data.p_joint, criterion="eo", evidence="model")
    problem = setting.problem([0.01])
    plug_in = solve_linear_program(problem)
    assert dual_value(problem, plug_in.multipliers) == pytest.approx(plug_in.value, abs=1e-10)
    certified = eh.Certified().solve(problem)[0]
    best = plug_in.value + problem.offset
    assert best - 2 * np.abs(problem.gain).max() - 1e-4 <= certified.utility <= best + 1e-9


@pytest.mark.parametrize("evidence", ["labels", "model", "both"])
def test_evidence_of_every_kind_gives_a_rule(evidence):
    data = eh.datasets.make_zafar(2000, random_state=4)
    given_ = (None, None) if evidence == "model" else (data.y, data.group)
    rule = eh.learn_rule(*given_, data.p_y, data.p_joint, criterion="eo", tolerance=0.02, evidence=evidence)
    assert rule.learned_from["evidence"] == evidence
    assert rule.solution_.status == "optimal"
    decided = rule.decide(data.p_y, data.p_joint)
    assert eh.metrics.equalized_odds_difference(data.y, decided, sensitive_features=data.group) < 0.1


def test_costs_are_minimised_and_the_utility_is_minus_the_mean_cost():
    y, a, p, joint = draw(5, 400)
    rule = eh.learn_rule(y, a, p, joint, tolerance=1.0, costs={"fp": 1, "fn": 5})
    decided = rule.decide(p, joint)
    cost = (decided > y).mean() + 5 * (decided < y).mean()
    assert rule.solution_.utility == pytest.approx(-cost, abs=1e-12)
    naive = (p > 1 / 6).astype(int)
    assert cost <= (naive > y).mean() + 5 * (naive < y).mean() + 1e-12


@pytest.mark.parametrize("search", ["certified", "directions", "lines", "dual", eh.Directions(90), eh.Lines(m=50)])
def test_every_search_can_be_named(search):
    y, a, p, joint = draw(6, 300)
    rule = eh.learn_rule(y, a, p, joint, criterion="eo", tolerance=0.3, search=search, random_state=0)
    best = eh.learn_rule(y, a, p, joint, criterion="eo", tolerance=0.3)
    if search != "dual":
        assert rule.solution_.utility <= best.solution_.utility + 1e-12
    assert rule.learned_from["rows"] == 300


def test_every_criterion_on_rates_can_be_asked_for():
    y, a, p, joint = draw(7, 500, n_groups=2)
    first, second = a == "g0", a == "g1"
    decided = eh.learn_rule(y, a, p, joint, criterion=eh.SelectionRatio(0.95)).decide(p, joint)
    rates = sorted([decided[first].mean(), decided[second].mean()])
    assert rates[0] / rates[1] >= 0.95 - 1e-9
    decided = eh.learn_rule(y, a, p, joint, criterion=eh.SelectionBudget(0.1, 0.2)).decide(p, joint)
    assert 0.1 - 1e-9 <= decided.mean() <= 0.2 + 1e-9
    decided = eh.learn_rule(y, a, p, joint, criterion=eh.MinimumRate("tpr", 0.95)).decide(p, joint)
    assert min(decided[(y == 1) & first].mean(), decided[(y == 1) & second].mean()) >= 0.95 - 1e-9
    criterion = eh.DemographicParity() & eh.SelectionBudget(upper=0.3)
    decided = eh.learn_rule(y, a, p, joint, criterion=criterion, tolerance=0.02).decide(p, joint)
    assert abs(decided[first].mean() - decided[second].mean()) <= 0.02 + 1e-9
    assert decided.mean() <= 0.3 + 1e-9


def test_a_budget_without_bounds_frees_the_threshold():
    """Squared probabilities tell a half as a quarter, a margin of -1/2: that is where the threshold has to be."""
    y, a, p_y, joint = draw(4, 3000)
    given = (y, a, p_y**2, joint.sum(axis=1))
    parity = eh.DemographicParity(tolerance=0.05)
    fixed = eh.learn_rule(*given, criterion=parity)
    free = eh.learn_rule(*given, criterion=parity & eh.SelectionBudget())
    truth = eh.learn_rule(y, a, p_y, joint.sum(axis=1), criterion=parity)
    assert free.solution_.utility > fixed.solution_.utility + 0.01
    assert free.solution_.utility > truth.solution_.utility - 0.005
    assert free.terms[1].name == "rate(everyone)"
    assert free.terms[1].z == pytest.approx(-0.5, abs=0.2)
    assert gaps("demographic_parity", y, a, free.decide(*given[2:])) <= 0.05


def test_several_attributes_must_each_meet_the_criterion_and_may_be_crossed():
    rng = np.random.default_rng(0)
    n = 600
    x = rng.normal(size=(n, 3))
    p = 1 / (1 + np.exp(-(x[:, 0] + 0.5 * x[:, 1])))
    p_sex, p_race = (1 / (1 + np.exp(-x[:, j])) for j in (0, 1))
    y, sex, race = (rng.random((3, n)) < [p, p_sex, p_race]).astype(int)
    attributes = {"sex": sex, "race": np.where(race == 1, "b", "a")}
    rule = eh.learn_rule(y, attributes, p, {"sex": p_sex, "race": p_race}, tolerance=0.05)
    assert len(rule.terms) == 2
    decided = rule.decide(
        p, {"sex": np.column_stack([1 - p_sex, p_sex]), "race": np.column_stack([1 - p_race, p_race])}
    )
    for group in attributes.values():
        assert eh.metrics.demographic_parity_difference(y, decided, sensitive_features=group) <= 0.05 + 1e-9
    crossed = np.stack([(1 - p_sex) * (1 - p_race), (1 - p_sex) * p_race, p_sex * (1 - p_race), p_sex * p_race], axis=1)
    criterion = eh.DemographicParity(attribute=eh.Intersection("sex", "race"))
    rule = eh.learn_rule(
        y,
        attributes,
        p,
        {("sex", "race"): crossed},
        criterion=criterion,
        tolerance=0.15,
        search=eh.Certified(max_visits=20_000_000),
    )
    assert rule.groups[eh.Intersection("sex", "race")] == ((0, "a"), (0, "b"), (1, "a"), (1, "b"))
    cells = [f"{s}{r}" for s, r in zip(sex, attributes["race"], strict=True)]
    decided = rule.decide(p, {eh.Intersection("sex", "race"): crossed})
    assert eh.metrics.demographic_parity_difference(y, decided, sensitive_features=cells) <= 0.15 + 1e-9


def test_labels_and_groups_of_any_kind_and_library():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    y, a, p, joint = draw(8, 200)
    plain = eh.learn_rule(y, a, p, joint, tolerance=0.1)
    words = np.where(y == 1, "granted", "refused")
    codes = np.where(a == "g0", 10, 20)
    for labels, groups, options in [
        (words, codes, {"pos_label": "granted"}),
        (y.astype(bool), codes == 20, {}),
        (list(y), list(a), {}),
        (pandas.Series(y), pandas.Series(a, dtype="category"), {}),
        (polars.Series(y), polars.DataFrame({"sex": a}), {}),
        (np.where(y == 1, 1, -1), a.astype(object), {}),
        (y[:, None], a[:, None], {}),
    ]:
        rule = eh.learn_rule(labels, groups, p, joint, tolerance=0.1, **options)
        np.testing.assert_allclose(rule.z, plain.z)
    assert set(eh.learn_rule(words, a, p, joint, pos_label="granted").decide(p, joint)) <= {
        "granted",
        "refused",
    }


def test_rules_and_frontiers_follow_the_names_of_a_frames_columns():
    pandas = pytest.importorskip("pandas")
    data = eh.datasets.make_zafar(400, random_state=0)
    frame = pandas.DataFrame(data.p_group, columns=["0", "1"])
    turned = frame[["1", "0"]]
    learn = [eh.learn_rule(data.y, data.group, data.p_y, given) for given in (frame, turned)]
    assert learn[0] == learn[1]
    draw = [eh.frontier(data.y, data.group, data.p_y, given, tolerances=[0.05, 0.1]) for given in (frame, turned)]
    assert draw[0].table() == draw[1].table()


def test_the_groups_order_can_be_given():
    y, a, p, joint = draw(9, 200)
    plain = eh.learn_rule(y, a, p, joint, tolerance=0.1)
    turned = eh.learn_rule(y, a, p, joint[:, :, ::-1], tolerance=0.1, groups=["g1", "g0"])
    assert turned.groups["group"] == ("g1", "g0")
    np.testing.assert_allclose(turned.z, -plain.z)


def test_priors_of_the_training_set_are_used():
    y, a, p, joint = draw(10, 200)
    priors = np.array([[0.2, 0.3], [0.1, 0.4]])
    assert eh.learn_rule(y, a, p, joint, priors=priors).priors == pytest.approx((0.3, 0.7))
    assert eh.learn_rule(y, a, p, joint, criterion="eop", priors=priors, tolerance=0.3).priors == pytest.approx(
        (0.1, 0.4)
    )


def test_rows_of_unknown_group_count_for_accuracy_only():
    y, a, p, joint = draw(11, 300)
    holes = a.astype(object)
    holes[50:100] = None
    with pytest.raises(InputError, match=r"missing in 50 rows.*missing='ignore'"):
        eh.learn_rule(y, holes, p, joint)
    rule = eh.learn_rule(y, holes, p, joint, tolerance=0.02, missing="ignore")
    decided = rule.decide(p, joint)
    known = holes != None  # noqa: E711
    assert gaps("demographic_parity", y[known], a[known], decided[known]) <= 0.02 + 1e-9
    assert rule.solution_.utility == pytest.approx((decided == y).mean())


def test_a_tolerance_that_no_rule_meets_says_the_smallest_that_one_does():
    y, a, p, joint = draw(12, 40)
    with pytest.raises(InfeasibleError, match="smallest that a rule in this family meets is") as error:
        eh.learn_rule(y, a, p, joint, criterion="eo", tolerance=0.0)
    smallest = error.value.smallest_tolerance
    rule = eh.learn_rule(y, a, p, joint, criterion="eo", tolerance=smallest + 1e-12)
    assert gaps("equalized_odds", y, a, rule.decide(p, joint)) == pytest.approx(smallest)
    with pytest.raises(InfeasibleError):
        eh.learn_rule(y, a, p, joint, criterion="eo", tolerance=smallest * 0.99)


def test_bounds_that_exclude_each_other_are_infeasible_without_a_tolerance():
    y, a, p, joint = draw(13, 100)
    with pytest.raises(InfeasibleError, match="loosen one of them"):
        eh.learn_rule(y, a, p, joint, criterion=eh.SelectionBudget(upper=0.1) & eh.SelectionBudget(lower=0.5))


def test_a_rule_that_decides_worse_than_the_search_thought_is_not_called_optimal():
    y, a, p, joint = draw(14, 300)
    setting = setting_of(y, a, p, joint)
    problem = setting.problem([0.3])
    best = eh.Certified().solve(problem)[0]
    assert setting.rule(problem, best, 0.3, 0).solution_ == best
    worse = conclude(problem, 0, np.array([best.z[0] + 0.3]))
    assert feasible(problem, np.array(worse.values))
    assert worse.utility < best.utility - 1e-3
    learned = setting.rule(problem, dataclasses.replace(best, z=worse.z), 0.3, 0).solution_
    assert (learned.utility, learned.upper_bound, learned.status) == (worse.utility, best.utility, "gap")
    better = dataclasses.replace(worse, z=best.z, upper_bound=worse.utility + 1e-4, status="gap")
    learned = setting.rule(problem, better, 0.3, 0).solution_
    assert (learned.utility, learned.upper_bound, learned.status) == (best.utility, best.utility, "optimal")


@pytest.mark.parametrize(("visits", "message"), [(200_000_000, "at any tolerance"), (1, "none was found for larger")])
def test_that_no_tolerance_helps_is_said_only_where_it_is_proven(monkeypatch, visits, message):
    monkeypatch.setattr("evenhand.search.closest.VISITS_A_ROUND", visits)
    y, a, p, joint = draw(13, 100)
    criterion = eh.EqualizedOdds() & eh.SelectionBudget(upper=0.1) & eh.SelectionBudget(lower=0.5)
    with pytest.raises(InfeasibleError, match=message):
        eh.learn_rule(y, a, p, joint, criterion=criterion)


def test_a_plug_in_program_without_a_solution_says_nothing_about_the_labels():
    rng = np.random.default_rng(0)
    a, y = rng.integers(0, 2, (2, 400))
    p = 0.2 + 0.3 * y + 0.2 * rng.random(400)
    q = 0.4 + 0.2 * a
    joint = np.stack([1.0 - p, p], axis=1)[:, :, None] * np.stack([1.0 - q, q], axis=1)[:, None, :]
    criterion = eh.MinimumRate("tpr", 0.97)
    assert min(eh.learn_rule(y, a, p, joint, criterion=criterion).solution_.values) >= 0.97
    with pytest.raises(InfeasibleError, match=r"no rule that meets these bounds.*proves nothing.*search='certified'"):
        eh.learn_rule(y, a, p, joint, criterion=criterion, search="dual")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [0, 1, 2, 0, 1, 0]}, "two values"),
        ({"y": [1] * 6}, "only the value 1"),
        ({"y": ["n", "y"] * 3}, "pos_label=1 is not among"),
        ({"y": [0, 1]}, "y has 2 rows"),
        ({"y": [0, 1, None, 1, 0, 1]}, "missing label in row 2"),
        ({"y": []}, "y is empty"),
        ({"y": None}, "evidence='model'"),
        ({"a": None}, "sensitive_features is None"),
        ({"a": {}}, "empty dict"),
        ({"a": ["a", "b", None, "a", "b", "a"]}, "missing in 1 rows .the first is row 2"),
        ({"a": ["a", "b"]}, "has 2 rows"),
        ({"a": ["a"] * 6}, "only the group 'a'"),
        ({"a": [["a"], ["b"]] * 3}, "not hashable"),
        ({"a": ["a", "a", "a", "a", "a", "b"]}, "only 1 row with group=b"),
        ({"p": [0.5, np.nan, 0.1, 0.2, 0.3, 0.4]}, "row 1 has"),
        ({"p": [0.5, 1.2, 0.1, 0.2, 0.3, 0.4]}, "between 0 and 1"),
        ({"p": np.zeros((6, 2))}, "predict_proba"),
        ({"p": []}, "p_y is empty"),
        ({"q": np.full((6, 2), 0.7)}, "sum to 1"),
        ({"q": np.full((6, 3), 1 / 3)}, "one column for each group"),
        ({"q": np.full((5, 2), 0.5)}, "5 rows"),
        ({"p": np.full(6, 0.4), "q": np.full((6, 2), 0.5)}, "decisions need scores that vary"),
        ({"criterion": "eo"}, r"needs p\(Y,A\|x\)"),
        ({"criterion": "fair"}, "Unknown criterion"),
        ({"criterion": eh.DemographicParity(attribute="race")}, "attribute 'race'"),
        ({"criterion": eh.DemographicParity(attribute=eh.Intersection("group", "race"))}, "attribute 'race'"),
        ({"tolerance": -0.1}, "must not be negative"),
        ({"tolerance": "little"}, "must be a number"),
        ({"tolerance": np.nan}, "must be a number from 0 to 1"),
        ({"search": "luck"}, "Unknown search"),
        ({"search": eh.Certified}, "Unknown search"),
        ({"evidence": "hearsay"}, "evidence must be"),
        ({"sample_weight": [1, 2]}, "sample_weight must have shape"),
        ({"sample_weight": [-1, 1, 1, 1, 1, 1]}, "not negative"),
        ({"sample_weight": [0] * 6}, "zero for every row"),
        ({"groups": ["a", "c"]}, "unknown group 'b'"),
        ({"groups": ["a", "a", "b"]}, "repeats a value"),
        ({"priors": [1.0, 0.0]}, "prior of"),
        ({"priors": [0.5]}, "must have shape"),
        ({"missing": "drop"}, "missing must be"),
        ({"costs": "high"}, "costs must be"),
    ],
)
def test_bad_input_gets_an_error_that_names_the_cause(change, message):
    given_ = {
        "y": [0, 1, 1, 0, 1, 0],
        "a": list("ababab"),
        "p": [0.2, 0.7, 0.6, 0.4, 0.8, 0.3],
        "q": np.full((6, 2), 0.5),
    }
    options = {key: value for key, value in change.items() if key not in given_}
    given_ |= {key: value for key, value in change.items() if key in given_}
    with pytest.raises(InputError, match=message):
        eh.learn_rule(given_["y"], given_["a"], given_["p"], given_["q"], **options)


def test_extreme_priors_and_tiny_margins_are_survived():
    y, a, p, joint = draw(14, 400)
    p[:50] = 0.5 + 1e-16
    p[50:60] = 0.5
    rule = eh.learn_rule(y, a, p, joint, priors=[1e-6, 1 - 1e-6], tolerance=0.05)
    assert gaps("demographic_parity", y, a, rule.decide(p, joint)) <= 0.05 + 1e-9


def test_the_same_input_gives_the_same_bytes():
    data = eh.datasets.make_zafar(1500, random_state=0)
    texts = {
        eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion="eo", tolerance=0.03).to_json()
        for _ in range(3)
    }
    assert len(texts) == 1


def test_the_default_ladder_goes_from_zero_to_the_base_gap():
    data = eh.datasets.make_zafar(1500, random_state=0)
    curve = eh.frontier(data.y, data.group, data.p_y, data.p_group)
    assert len(curve) + len(curve.unreachable) >= 20
    assert curve.tolerances[-1] == pytest.approx(curve.base_gap)
    assert curve.utilities[-1] >= curve.base_utility
    assert curve.rule_at(0.1).tolerance <= 0.1
    table = curve.table()
    assert list(table) == ["tolerance", "utility", "gap", "upper_bound"]
    assert len(table["gap"]) == len(curve)
    with pytest.raises(InputError, match="must not be negative"):
        curve.rule_at(-1.0)


def test_a_frontier_keeps_apart_what_no_rule_meets_and_what_none_was_found_for():
    y, a, p, joint = draw(12, 40)
    options = {"criterion": "eo", "tolerances": [0.0, 0.5]}
    proven = eh.frontier(y, a, p, joint, **options)
    assert (proven.unreachable, proven.not_found) == ((0.0,), ())
    sampled = eh.frontier(y, a, p, joint, search=eh.Directions(8), **options)
    assert (sampled.unreachable, sampled.not_found) == ((), (0.0,))
    assert len(sampled) == 1


def test_a_frontier_needs_something_to_trade():
    y, a, p, joint = draw(15, 100)
    with pytest.raises(InputError, match="no trade-off"):
        eh.frontier(y, a, p, joint, criterion=eh.DemographicParity(tolerance=0.1))


def test_a_frontier_may_have_one_sided_bounds_beside_the_one_that_moves():
    y, a, p, joint = draw(16, 200)
    criterion = eh.DemographicParity() & eh.SelectionBudget(upper=0.4)
    curve = eh.frontier(y, a, p, joint, criterion=criterion, tolerances=[0.05, 0.1, 0.3])
    assert (curve.gaps <= curve.tolerances + 1e-9).all()
    for point in curve:
        assert point.rule.decide(p, joint).mean() <= 0.4 + 1e-9


def test_a_frontier_can_be_drawn():
    data = eh.datasets.make_zafar(800, random_state=0)
    figure = eh.frontier(data.y, data.group, data.p_y, data.p_group).plot()
    assert figure.to_dict()["title"] == "The price of fairness"


@pytest.mark.parametrize(
    ("tolerances", "message"),
    [
        ([], "tolerances is empty"),
        (0.1, r"list of numbers, .* got 0\.1"),
        ("0.1", "list of numbers"),
        (["a"], "number"),
    ],
)
def test_a_ladder_of_tolerances_that_is_none_is_refused(tolerances, message):
    data = eh.datasets.make_zafar(200, random_state=0)
    with pytest.raises(InputError, match=message):
        eh.frontier(data.y, data.group, data.p_y, data.p_group, tolerances=tolerances)


def test_priors_sum_to_one_unless_some_groups_are_unknown():
    data = eh.datasets.make_zafar(200, random_state=0)
    with pytest.raises(InputError, match=r"priors of 'group' must sum to 1; they sum to 0\.7"):
        eh.learn_rule(data.y, data.group, data.p_y, data.p_group, priors=[0.5, 0.2])
    with pytest.raises(InputError, match=r"they sum to 1\.2"):
        eh.learn_rule(data.y, data.group, data.p_y, data.p_group, priors=[0.5, 0.7], missing="ignore")
    group = [None, *data.group[1:]]
    eh.learn_rule(data.y, group, data.p_y, data.p_group, priors=[0.5, 0.2], missing="ignore")


def test_labels_of_one_kind_only_are_named_as_such():
    data = eh.datasets.make_zafar(200, random_state=0)
    with pytest.raises(InputError, match="y has only the value 0: both labels are needed"):
        eh.learn_rule(np.zeros(200, dtype=int), data.group, data.p_y, data.p_group)


def test_a_column_of_many_values_is_no_column_of_groups():
    data = eh.datasets.make_zafar(500, random_state=0)
    with pytest.raises(InputError, match="500 different values in 500 rows"):
        eh.learn_rule(data.y, np.arange(500), data.p_y, data.p_group)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("evidence", ["model", "both"])
def test_weighted_shares_of_certain_events_are_not_above_one(seed, evidence):
    """Sums of the same weights in another order differ in the last bit; the share of everyone is still 1."""
    rng = np.random.default_rng(seed)
    n = 999
    p, f = rng.random((2, n))
    y, sex = rng.random(n) < p, rng.random(n) < f
    rule = eh.learn_rule(
        y.astype(int), sex.astype(int), p, np.column_stack([1 - f, f]), tolerance=0.1, evidence=evidence,
        criterion=eh.DemographicParity() & eh.SelectionBudget(upper=0.6), sample_weight=rng.random(n),
    )  # fmt: skip
    assert max(rule.priors) <= 1.0
    assert max(rule.priors) == pytest.approx(1.0, abs=1e-12)


def test_given_priors_that_sum_to_a_little_more_than_one_are_not_above_one():
    priors = event_priors([[0.505], [0.5]], [Event("sex", "F")], {"sex": ("F",)})
    assert priors.tolist() == [1.0]


def test_an_unproven_rule_comes_with_what_the_model_expects_of_the_best_one():
    y, a, p, joint = draw(3, 3_000, 6)
    rule = eh.learn_rule(y, a, p, joint, criterion="dp", tolerance=0.1, search=eh.Certified(max_visits=15_000_000))
    solution = rule.solution_
    assert solution.status in ("gap", "found")
    assert solution.stopped == "work"
    assert solution.expected_optimum == pytest.approx(solution.utility, abs=0.03)
    assert eh.Rule.from_json(rule.to_json()).solution_ == solution
    y, a, p, joint = draw(3, 300)
    assert eh.learn_rule(y, a, p, joint, criterion="dp", tolerance=0.1).solution_.expected_optimum is None
