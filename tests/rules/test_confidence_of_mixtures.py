"""Promises for mixtures, and for the smallest largest rate of rules and mixtures: counts, simulation, and displays."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.report import model_card
from evenhand.rows import Rows
from evenhand.rules.certified_ceiling import certified_ceiling
from evenhand.rules.mixed_confidence import certify_mixture
from evenhand.rules.setting import Options
from evenhand.statistics.bounds import clopper_pearson_upper
from problems import setting_of

DATA = eh.datasets.make_zafar(4000, random_state=1)
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)


def counted(y, group):
    from evenhand.inputs import read_sensitive

    attributes = read_sensitive(group, len(y))
    groups = {name: found.groups for name, found in attributes.items()}
    return Rows(positive=y == 1, classes=(0, 1), attributes=attributes, groups=groups)


@pytest.mark.parametrize("rate", ["error", "fpr", "fnr", "selection", "fdr", "for"])
def test_the_ceiling_is_the_largest_exact_bound_of_any_group(rate):
    rng = np.random.default_rng(0)
    y, group, decided = rng.integers(2, size=(3, 500))
    wrong = {"error": y != decided, "fpr": decided == 1, "fnr": decided == 0, "selection": decided == 1}
    wrong |= {"fdr": y == 0, "for": y == 1}
    among = {"fpr": y == 0, "fnr": y == 1, "fdr": decided == 1, "for": decided == 0}.get(rate, np.ones(500, bool))
    bounds = [
        clopper_pearson_upper((wrong[rate] & among & (group == g)).sum(), (among & (group == g)).sum(), 0.9)
        for g in (0, 1)
    ]
    found = certified_ceiling(eh.MinimaxRate(rate), counted(y, group), decided == 1, 0.9)
    assert found.criterion == eh.MaximumRate(rate, float(max(bounds)))
    assert found.entry["certified_ceiling"] == pytest.approx(max(bounds))


def test_the_largest_rate_is_rarely_above_the_stated_ceiling():
    """Three groups with nearly equal rates, for which a correction for their number would matter most."""
    rng = np.random.default_rng(1)
    rates, sizes, missed, fits = np.array([0.2, 0.2, 0.19]), (60, 150, 300), 0, 400
    group = np.repeat([0, 1, 2], sizes)
    for _ in range(fits):
        y = (rng.random(len(group)) < rates[group]).astype(int)
        decided = np.zeros(len(group), dtype=bool)
        found = certified_ceiling(eh.MinimaxRate("error"), counted(y, group), decided, 0.8)
        missed += rates.max() > found.entry["certified_ceiling"]
    assert missed <= stats.binom.ppf(0.999, fits, 0.2)


def test_minimax_rate_states_what_its_certifying_rows_show():
    rule = eh.learn_rule(*ROWS, criterion=eh.MinimaxRate("error"), confidence=0.9, random_state=0)
    found = rule.learned_from["confidence"]
    assert found["learning_rows"] + found["certifying_rows"] == len(DATA.y)
    assert rule.criterion == eh.MaximumRate("error", found["certified_ceiling"])
    assert all(e["certified_lower"] == pytest.approx(1 - found["certified_ceiling"]) for e in found["constraints"])
    fresh = eh.datasets.make_zafar(40_000, random_state=9)
    wrong = rule.decide(fresh.p_y, fresh.p_joint) != fresh.y
    assert max(wrong[fresh.group == g].mean() for g in "01") <= found["certified_ceiling"]
    assert eh.Rule.from_json(rule.to_json()) == rule
    both = eh.MinimaxRate("error") & eh.DemographicParity()
    with pytest.raises(eh.InputError, match="only criterion"):
        eh.learn_rule(*ROWS, criterion=both, confidence=0.9, random_state=0)


@pytest.mark.parametrize(
    ("criterion", "tolerance"),
    [("dp", 0.08), (eh.DemographicParity(within="job"), 0.15), (eh.MinimumRate("precision", 0.65), 0.0)],
)
def test_a_mixture_is_certified_by_its_drawn_decisions(criterion, tolerance):
    strata = {"strata": np.arange(len(DATA.y)) % 2} if getattr(criterion, "within", None) else {}
    options = {"criterion": criterion, "tolerance": tolerance, "randomize": True, "random_state": 3, **strata}
    mixed = eh.learn_rule(*ROWS, confidence=0.9, **options)
    found = mixed.learned_from["confidence"]
    assert 1 <= found["rules_certified"] <= found["rules_learnt"]
    for entry in found["constraints"]:
        if entry["certified_upper"] is not None:
            assert entry["certified_upper"] <= tolerance
            assert entry["certified_lower"] >= -tolerance
        else:
            assert entry["certified_lower"] >= 0.65
    assert eh.learn_rule(*ROWS, confidence=0.9, **options) == mixed
    assert eh.Mixture.from_json(mixed.to_json()) == mixed


def test_what_cannot_be_certified_names_what_can():
    with pytest.raises(eh.InfeasibleError, match="can certify tolerance"):
        eh.learn_rule(*ROWS, criterion="eo", tolerance=0.005, confidence=0.95, randomize=True, random_state=0)
    with pytest.raises(eh.InputError, match="at least one half"):
        eh.learn_rule(*ROWS, confidence=0.4, randomize=True)
    with pytest.raises(eh.InputError, match="sample_weight"):
        eh.learn_rule(*ROWS, confidence=0.9, randomize=True, sample_weight=np.ones(len(DATA.y)))


def test_lots_do_not_depend_on_which_rows_certify():
    """The same certifying rows in another order get other lots, but the same number of them."""
    setting = setting_of(*ROWS, criterion="dp")
    half = len(DATA.y) // 2
    learning, certifying = setting.rows.take(np.arange(half)), setting.rows.take(np.arange(half, len(DATA.y)))
    options = Options(criterion=eh.DemographicParity(), random_state=0)
    first, again = (certify_mixture(learning, certifying, options, tolerance=0.1, confidence=0.9) for _ in range(2))
    assert first == again
    assert first.learned_from["confidence"]["certifying_rows"] == half


def test_expected_rates_are_rarely_beyond_the_promise():
    """A mixture of two constant decisions has a known rate: the promise is about it, not about the drawn rows."""
    population = eh.datasets.make_zafar(40_000, random_state=5)
    rng = np.random.default_rng(2)
    missed = certified = 0
    for seed in range(8):
        at = rng.integers(len(population.y), size=600)
        rows = (population.y[at], population.group[at], population.p_y[at], population.p_group[at])
        try:
            mixed = eh.learn_rule(*rows, tolerance=0.2, confidence=0.7, randomize=True, random_state=seed)
        except eh.InfeasibleError:
            continue
        expected = mixed.expected_decision(population.p_y, population.p_group)
        gap = expected[population.group == "0"].mean() - expected[population.group == "1"].mean()
        certified += 1
        missed += abs(gap) > 0.2
    assert certified >= 4
    assert missed <= stats.binom.ppf(0.999, certified, 0.3)


def test_classifier_and_card_state_them():
    from sklearn.linear_model import LogisticRegression

    base = {"cv": 2, "random_state": 0, "confidence": 0.8}
    fair = eh.FairClassifier(LogisticRegression(), criterion=eh.MinimaxRate("error"), **base)
    fair.fit(DATA.X[:1500], DATA.y[:1500], sensitive_features=DATA.group[:1500])
    ceiling = fair.rule_.learned_from["confidence"]["certified_ceiling"]
    assert f"no group's rate is above {ceiling:.4f} in the population" in model_card(fair)
    mixed = eh.FairClassifier(LogisticRegression(), criterion="dp", tolerance=0.2, randomize=True, **base)
    mixed.fit(DATA.X[:1500], DATA.y[:1500], sensitive_features=DATA.group[:1500])
    assert isinstance(mixed.rule_, eh.Mixture)
    assert "every constraint holds in the population" in model_card(mixed)
