from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh
from evenhand.errors import InputError
from evenhand.report import model_card, rule_card, summarize
from evenhand.report.card import UNSAID, render_card, summarize_card

NASTY = "<script>|`*_[x](y)\n# no"


@pytest.fixture(scope="module")
def data():
    return [eh.datasets.make_zafar(2000, random_state=seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def fair(data):
    model = make_pipeline(StandardScaler(), LogisticRegression())
    classifier = eh.FairClassifier(model, criterion="equalized_odds", tolerance=0.05, random_state=0)
    return classifier.fit(data[0].X, data[0].y, sensitive_features={"sex": data[0].group})


def test_the_card_says_what_was_not_said_and_where_the_figures_are_from(fair):
    text = model_card(fair)
    assert UNSAID in text
    assert "the rows it was learnt from" in text
    assert "evaluate it on rows that were not used" in text
    assert "StandardScaler, then LogisticRegression" in text
    assert "`equalized_odds`, to within 0.05" in text
    assert text == model_card(fair)


def test_held_out_rows_have_the_numbers_of_an_audit(fair, data):
    new, groups = data[1], {"sex": data[1].group}
    text = model_card(fair, new.X, new.y, groups, purpose="Hiring.", caveats=["Only for adults."], data="Zafar's.")
    found = eh.audit(new.y, fair.predict(new.X), groups, criterion="equalized_odds", tolerance=0.05)
    gap = found.verdicts[0].gap
    assert f"{gap.value:.3f} ({gap.lower:.3f} to {gap.upper:.3f})" in text
    assert "Held-out rows, with 95% intervals" in text
    assert "were not used." not in text
    for said in ("Hiring.", "Only for adults.", "Zafar's."):
        assert said in text
    with pytest.raises(InputError, match="labels and groups"):
        model_card(fair, new.X)


def test_text_from_data_is_no_markup(data):
    group = np.where(np.asarray(data[0].group) == "0", NASTY, "plain")
    fair = eh.FairClassifier(LogisticRegression(), criterion="dp", tolerance=0.1, cv=2, random_state=0)
    text = model_card(fair.fit(data[0].X, data[0].y, sensitive_features={"a|b": group}), title=NASTY, purpose=NASTY)
    assert "<script>" not in text.replace("`rate(a\\|b=<script>", "`")
    assert "\n# no" not in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(line.replace("\\|", "").split("|")) for line in tables if line.startswith("| a")}
    assert widths == {7, 6} or widths <= {6, 7}


def test_the_summary_is_plain_data_and_the_renderer_needs_nothing_else(fair):
    held = fair.held_out_
    report = summarize(held.y, held.sensitive_features, held.p_y, held.p_group, fair.rule_, tolerance=0.05)
    summary = json.loads(json.dumps(summarize_card(fair.rule_, report, fair=fair), allow_nan=False))
    assert summary["schema"] == "evenhand-card/1"
    assert "## Caveats" in render_card(summary)


def test_a_rule_alone_has_a_card(fair):
    held = fair.held_out_
    text = rule_card(fair.rule_, held.y, held.sensitive_features, held.p_y, held.p_group, title="A rule")
    assert text.startswith("# A rule\n")
    assert "## The models" not in text
    assert "## Before and after" in text


def test_promises_frozen_models_and_few_rows_are_told(data):
    X, y, group = data[0].X, data[0].y, np.asarray(data[0].group).astype(object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.EvenhandWarning)
        sure = eh.FairClassifier(
            LogisticRegression(), criterion="dp", tolerance=0.6, confidence=0.9, cv=2, costs=(1, 2), random_state=0
        ).fit(X, y, sensitive_features=group)
        base = FrozenEstimator(LogisticRegression().fit(X, y))
        rare = np.where(np.arange(len(y)) < 20, "rare", group)
        auxiliary = FrozenEstimator(LogisticRegression().fit(X, rare))
        frozen = eh.FairClassifier(base, auxiliary=auxiliary, criterion="dp", tolerance=0.5, cv=None)
        frozen.fit(X, y, sensitive_features=rare)
    text = model_card(sure)
    assert "With confidence 0.9 every constraint holds in the population" in text
    assert "A false positive costs 1, a false negative 2." in text
    text = model_card(frozen)
    assert "LogisticRegression, trained beforehand" in text
    assert "few rows" in text
    assert "rare" in text


def test_rows_with_other_attributes_or_groups_than_the_classifiers_are_refused(fair, data):
    new = data[1]
    with pytest.raises(InputError, match=r"about the attribute 'sex', but sensitive_features has \['group'\]"):
        model_card(fair, new.X, new.y, new.group)
    renamed = {"sex": np.where(new.group == new.group[0], "M", "F")}
    with pytest.raises(InputError, match=r"has the group 'F', which the rule does not have: its groups are"):
        model_card(fair, new.X, new.y, renamed)
