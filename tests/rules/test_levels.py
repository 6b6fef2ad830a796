"""Criteria with a level: predictive parity and the smallest largest rate, against every rule of their family."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.rows import read_rows
from evenhand.rules import levels
from evenhand.rules.criteria import from_dict
from evenhand.rules.reserving import reserve_rows
from evenhand.statistics.bounds import exact_upper_bound
from problems import every_rule, few_rows, setting_of, spread

DATA = eh.datasets.make_zafar(400, random_state=3)
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)


@pytest.mark.parametrize("seed", range(4))
def test_predictive_parity_is_the_optimum_over_every_rule(seed):
    y, group, p_y, joint = few_rows(seed)
    setting = setting_of(y, group, p_y, joint, criterion="predictive_parity")
    rules = every_rule(setting)
    for tolerance in (0.0, 0.05, 0.2, 0.5):
        fair = [np.mean(d == y) for d in rules if spread(y, group, d) <= tolerance + 1e-12]
        found = levels.answer(setting, tolerance)
        if not fair:
            assert isinstance(found, eh.search.NoRule)
            assert found.proven
            continue
        assert found.solution_.status == "optimal"
        assert found.solution_.utility == pytest.approx(max(fair), abs=1e-12)
        decided = found.decide(p_y, joint).astype(bool)
        assert spread(y, group, decided) <= tolerance + 1e-9
        assert abs(found.solution_.values[0]) == pytest.approx(spread(y, group, decided), abs=1e-12)


def test_the_bound_of_a_stopped_search_over_levels_is_true(monkeypatch):
    setting = setting_of(*ROWS, criterion="predictive_parity")
    best = levels.answer(setting, 0.05).solution_.utility
    bounds = []
    for most in (1, 2, 4, 8):
        monkeypatch.setattr(levels, "MOST_RANGES", most)
        found = levels.answer(setting, 0.05)
        bounds.append(found.upper_bound if isinstance(found, eh.search.NoRule) else found.solution_.upper_bound)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > best + 1e-3
    assert min(bounds) >= best


@pytest.mark.parametrize("tolerance", [0.01, 0.1])
def test_no_random_rule_beats_predictive_parity(tolerance):
    rule = eh.learn_rule(*ROWS, criterion="pp", tolerance=tolerance)
    setting = setting_of(*ROWS, criterion="pp")
    problem = setting.problem([tolerance])
    rng = np.random.default_rng(0)
    near = rule.z + rng.normal(size=(500, 2)) * np.abs(rule.z) * rng.choice([0.01, 0.1, 1.0, 10.0], (500, 1))
    positive = (DATA.y == 1).astype(float)
    for z in near:
        decided = problem.margin - problem.contrasts @ z > 0.0
        if np.mean(decided == positive) > rule.solution_.utility + 1e-12:
            assert spread(positive, DATA.group, decided) > tolerance
    assert rule.solution_.status == "optimal"


def test_nobody_selected_in_a_group_is_no_violation():
    y, group, p_y, joint = few_rows(0)
    setting = setting_of(y, group, p_y, joint, criterion="pp")
    alone = group == 0
    assert setting.measure(alone)[0] == 0.0
    assert setting.measure((y == 1) | alone)[0] == pytest.approx(-0.5)
    search = levels.Common(setting, 0.0)
    assert search.spread(alone @ setting.evidence.shares, setting.system.levels[0]) == (0.5, 0.5)


def test_each_attribute_has_its_own_level(monkeypatch):
    monkeypatch.setattr(levels, "MOST_UNPROVEN", 4)
    rng = np.random.default_rng(0)
    n = 400
    features = {"sex": rng.choice(["F", "M"], n), "age": rng.choice(["old", "young"], n)}
    p_y = rng.beta(2, 2, n)
    y = (rng.random(n) < p_y).astype(int)
    probabilities = {}
    for name, (first, _) in (("sex", ("F", "M")), ("age", ("old", "young"))):
        share = np.clip(0.5 + 0.4 * (features[name] == first) - 0.2, 0.05, 0.95)
        of_group = np.column_stack([share, 1.0 - share])
        probabilities[name] = np.stack([of_group * (1.0 - p_y)[:, None], of_group * p_y[:, None]], axis=1)
    rule = eh.learn_rule(y, features, p_y, probabilities, criterion="pp", tolerance=0.05, search="smoothed")
    decided = rule.decide(p_y, probabilities).astype(bool)
    assert rule.solution_.status == "found"
    for name in features:
        assert spread(y, features[name], decided) <= 0.05 + 1e-9


def test_a_frontier_of_predictive_parity_rises():
    curve = eh.frontier(*ROWS, criterion="predictive_parity", tolerances=[0.01, 0.05, 0.2, 0.6])
    assert (np.diff(curve.utilities) >= 0.0).all()
    assert (curve.gaps <= curve.tolerances + 1e-9).all()
    decided = DATA.p_y > 0.5
    assert curve.base_gap == pytest.approx(spread(DATA.y, DATA.group, decided))
    assert curve.base_utility == pytest.approx(np.mean(decided == DATA.y))


def test_predictive_parity_goes_with_other_criteria():
    rule = eh.learn_rule(*ROWS, criterion=eh.PredictiveParity() & eh.SelectionBudget(lower=0.1), tolerance=0.1)
    decided = rule.decide(DATA.p_y, DATA.p_joint).astype(bool)
    assert decided.mean() >= 0.1
    assert spread(DATA.y, DATA.group, decided) <= 0.1 + 1e-9
    alone = eh.learn_rule(*ROWS, criterion=eh.PredictiveParity(), tolerance=0.1)
    assert rule.solution_.utility <= alone.solution_.upper_bound + 1e-12
    assert len(rule.solution_.values) == 2


def test_a_tolerance_of_its_own_is_as_good_as_the_callers():
    one = eh.learn_rule(*ROWS, criterion=eh.PredictiveParity(tolerance=0.1), tolerance=0.5)
    other = eh.learn_rule(*ROWS, criterion="pp", tolerance=0.1)
    assert one.z.tolist() == other.z.tolist()
    assert len(one.terms) == 2


def test_a_tolerance_that_no_rule_meets_is_named_with_one_that_can_be_met():
    data = eh.datasets.make_zafar(120, random_state=3)
    y, group, p_y, joint = data.y, data.group, data.p_y, data.p_joint
    criterion = eh.PredictiveParity() & eh.SelectionBudget(lower=0.4)
    with pytest.raises(eh.InfeasibleError, match="a rule exists at") as caught:
        eh.learn_rule(y, group, p_y, joint, criterion=criterion, tolerance=0.01)
    smallest = caught.value.smallest_tolerance
    rule = eh.learn_rule(y, group, p_y, joint, criterion=criterion, tolerance=smallest)
    assert spread(y, group, rule.decide(p_y, joint).astype(bool)) <= smallest + 1e-9


# The smallest largest rate ---------------------------------------------------------------------------------


def largest(rate, y, group, decided):
    found = []
    for g in np.unique(group):
        t = np.array([[np.sum((group == g) & (y == a) & (decided == b)) for b in (0, 1)] for a in (0, 1)], dtype=float)
        with np.errstate(invalid="ignore"):
            found.append(
                {
                    "error": (t[0, 1] + t[1, 0]) / t.sum(),
                    "fnr": t[1, 0] / t[1].sum(),
                    "fdr": t[0, 1] / t[:, 1].sum(),
                }[rate]
            )
    return np.nan_to_num(found).max()


@pytest.mark.parametrize("rate", ["error", "fnr", "fdr"])
@pytest.mark.parametrize(("seed", "free"), [(0, False), (1, False), (0, True)])
def test_the_smallest_largest_rate_is_that_of_every_rule(rate, seed, free):
    y, group, p_y, joint = few_rows(seed, 9 if free else 12)
    criterion = eh.MinimaxRate(rate)
    setting = setting_of(y, group, p_y, joint, criterion=criterion & eh.SelectionBudget() if free else criterion)
    rules = every_rule(setting)
    rates = np.array([largest(rate, y, group, d) for d in rules])
    best = max(np.mean(d == y) for d, reached in zip(rules, rates, strict=True) if reached <= rates.min() + 1e-12)
    rule = levels.answer(setting, 0.05)
    found = rule.learned_from["minimax"]
    assert found["value"] == pytest.approx(rates.min(), abs=1e-9)
    assert found["value"] - 2e-9 <= found["lower_bound"] <= found["value"]
    # Cells of space without a corner are not among the rules that were listed.
    assert rule.solution_.utility >= best - 1e-12 if free else rule.solution_.utility == pytest.approx(best, abs=1e-12)
    assert rule.solution_.status == "optimal"
    assert largest(rate, y, group, rule.decide(p_y, joint).astype(bool)) <= found["value"] + 1e-9


def test_a_tolerance_of_its_own_leaves_room_above_the_smallest_ceiling():
    strict = eh.learn_rule(*ROWS, criterion=eh.MinimaxRate("fnr"))
    loose = eh.learn_rule(*ROWS, criterion=eh.MinimaxRate("fnr", tolerance=0.2))
    assert loose.learned_from["minimax"]["value"] == pytest.approx(strict.learned_from["minimax"]["value"], abs=1e-9)
    assert loose.solution_.utility > strict.solution_.utility
    assert loose.criterion.ceiling == pytest.approx(strict.criterion.ceiling + 0.2)


def test_a_fitted_rule_has_a_criterion_that_can_be_audited_and_written():
    rule = eh.learn_rule(*ROWS, criterion=eh.MinimaxRate("error"))
    assert rule.criterion == eh.MaximumRate("error", rule.learned_from["minimax"]["value"])
    assert eh.Rule.from_json(rule.to_json()) == rule
    (verdict,) = eh.audit(DATA.y, rule.decide(DATA.p_y, DATA.p_joint), DATA.group, criterion=rule.criterion).verdicts
    assert verdict.gap.value == pytest.approx(0.0, abs=1e-9)


def test_criteria_with_levels_are_plain_data():
    for criterion in (eh.PredictiveParity(tolerance=0.02), eh.MinimaxRate("fnr", attribute="sex")):
        assert from_dict(json.loads(json.dumps(criterion.to_dict()))) == criterion
    rule = eh.learn_rule(*ROWS, criterion="predictive_parity", tolerance=0.05)
    assert eh.Rule.from_json(rule.to_json()) == rule


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": eh.MinimaxRate("error") & eh.PredictiveParity()}, "combined with linear criteria"),
        ({"criterion": "pp", "search": "dual"}, "does not support levels"),
        ({"criterion": eh.MinimaxRate("error"), "safety": 1.0}, "safety"),
        ({"criterion": eh.PredictiveParity() & eh.DemographicParity(), "safety": 1.0}, "safety"),
        ({"criterion": eh.PredictiveParity() & eh.EqualizedOdds(), "confidence": 0.9}, "to be the only criterion"),
        ({"criterion": eh.MinimaxRate("fpr") & eh.EqualizedOdds(), "confidence": 0.9}, "to be the only criterion"),
    ],
)
def test_what_cannot_be_done_is_said(options, message):
    with pytest.raises(eh.InputError, match=message):
        eh.learn_rule(*ROWS, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: eh.MinimaxRate("accuracy"), "use MinimaxRate\\('error'\\)"),
        (lambda: eh.MinimaxRate("recall"), "supports the rates"),
        (lambda: eh.MinimaxRate(["error"]), "supports the rates"),
        (lambda: eh.audit(DATA.y, DATA.y, DATA.group, criterion=eh.MinimaxRate("error")), "name a ceiling"),
        (lambda: eh.frontier(*ROWS, criterion=eh.MinimaxRate("error")), "no trade-off"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(eh.InputError, match=message):
        make()


# Safety, and the classifier --------------------------------------------------------------------------------


def test_safety_draws_the_tolerance_in_by_standard_errors_of_the_difference():
    plain = eh.learn_rule(*ROWS, criterion="pp", tolerance=0.3)
    safe = eh.learn_rule(*ROWS, criterion="pp", tolerance=0.3, safety=1.0)
    decided = plain.decide(DATA.p_y, DATA.p_joint).astype(bool)
    variance = 0.0
    for group in "01":
        chosen = decided & (DATA.group == group)
        shrunk = (DATA.y[chosen].sum() + 1.0) / (chosen.sum() + 2.0)
        variance += shrunk * (1.0 - shrunk) / chosen.sum()
    assert safe.solution_.used[0][1] == pytest.approx(max(0.3 - np.sqrt(variance), 0.15), abs=1e-9)
    assert safe.solution_.asked == ((-0.3, 0.3),)
    assert abs(safe.solution_.values[0]) <= safe.solution_.used[0][1] + 1e-9
    assert safe.tolerance == 0.3
    assert safe.criterion == eh.PredictiveParity()
    assert eh.Rule.from_json(safe.to_json()) == safe
    curve = eh.frontier(*ROWS, criterion="pp", tolerances=[0.3, 1.0], safety=1.0)
    assert curve.points[0].rule.solution_.used == safe.solution_.used
    assert curve.points[1].rule.solution_.status == "unchanged"


def test_groups_with_few_selected_rows_are_named():
    with pytest.warns(eh.EvenhandWarning, match="selected: the rate's standard error"):
        eh.learn_rule(*ROWS, criterion="pp", tolerance=0.05, safety=1.0)


def test_a_classifier_takes_predictive_parity():
    fair = eh.FairClassifier(LogisticRegression(), criterion="pp", tolerance=0.4, random_state=0, cv=3)
    fair.fit(DATA.X, DATA.y, sensitive_features=DATA.group)
    assert abs(fair.rule_.solution_.values[0]) <= 0.4
    assert fair.rule_.solution_.used[0][1] < 0.4
    (verdict,) = eh.audit(DATA.y, fair.predict(DATA.X), DATA.group, criterion=fair.rule_.criterion).verdicts
    assert verdict.criterion == "predictive_parity"


@pytest.mark.parametrize("criterion", ["pp", eh.MinimaxRate("error"), eh.PredictiveParity() & eh.EqualizedOdds()])
def test_a_rule_made_by_hand_needs_a_level(criterion):
    with pytest.raises(eh.InputError, match="give it, as in MinimumRate"):
        eh.Rule.from_criterion(criterion, groups={"sex": ("F", "M")}, priors=[[0.3, 0.2], [0.2, 0.3]], z=[0.1, 0.2])


def test_confidence_tests_the_difference_of_precisions():
    """What is certified is an exact bound on the certifying rows' own counts, at the level that was asked for."""
    data = eh.datasets.make_zafar(6000, random_state=1)
    rows = (data.y, data.group, data.p_y, data.p_joint)
    asked = {"tolerance": 0.25, "confidence": 0.9, "random_state": 0}
    rule = eh.learn_rule(*rows, criterion="pp", **asked)
    promise = rule.learned_from["confidence"]
    pp = eh.PredictiveParity()
    reserved = reserve_rows(pp, read_rows(*rows, criterion=pp), np.random.RandomState(0), 0.6)
    assert promise["certifying_rows"] == reserved.sum()
    chosen = reserved & (rule.decide(data.p_y, data.p_joint) == 1)
    counts = [(data.y[chosen & (data.group == g)].sum(), (chosen & (data.group == g)).sum()) for g in ("0", "1")]
    (s0, n0), (s1, n1) = counts
    (entry,) = promise["constraints"]
    assert entry["certified_upper"] == pytest.approx(exact_upper_bound([1.0, -1.0], [s0, s1], [n0, n1], 0.9), abs=1e-12)
    assert -0.25 <= entry["certified_lower"] <= entry["certified_upper"] <= 0.25
    assert rule.criterion == pp
    assert rule.tolerance == 0.25
    assert eh.Rule.from_json(rule.to_json()) == rule
    with pytest.raises(eh.InfeasibleError, match=r"selected \(now"):
        eh.learn_rule(*rows, criterion="pp", **{**asked, "tolerance": 0.01})
