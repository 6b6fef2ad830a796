"""FairClassifier within strata: the column of X, rows in new strata, files, and reports."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import evenhand as eh
from evenhand.report import model_card, render_html, summarize


@pytest.fixture(scope="module")
def rows():
    data = eh.datasets.make_zafar(1500, random_state=0)
    X = pd.DataFrame(data.X, columns=["a", "b"])
    X["job"] = np.where(X["a"] + X["b"] > 1.5, "high", np.where(np.arange(1500) % 2, "low", "mid"))
    return X, data.y, np.where(data.group == "1", "M", "F")


def model():
    return make_pipeline(
        make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["job"]), remainder="passthrough"),
        LogisticRegression(),
    )


@pytest.fixture(scope="module")
def fair(rows):
    X, y, sex = rows
    criterion = eh.DemographicParity(within="job")
    return eh.FairClassifier(model(), criterion=criterion, tolerance=0.1, safety=0.0, cv=2, random_state=0).fit(
        X, y, sensitive_features={"sex": sex}
    )


def test_the_column_of_x_is_the_stratum(fair, rows):
    X, y, _ = rows
    held = fair.held_out_
    decided = fair.rule_.decide(held.p_y, held.p_group, strata=X["job"].to_numpy()[held.rows])
    found = eh.audit(
        held.y, decided, held.sensitive_features, criterion=fair.criterion, strata=X["job"].to_numpy()[held.rows]
    )
    assert max(stratum.gap.value for stratum in found.verdicts[0].strata) <= 0.1
    assert (decided == held.y).mean() == pytest.approx(fair.rule_.solution_.utility)
    np.testing.assert_array_equal(fair.rule_.decide(*fair.probabilities(X)), fair.predict(X))
    assert all("job=" in name for receipt in fair.explain(X[:5]) for name in receipt.terms)
    assert fair.score(X, y) == (fair.predict(X) == y).mean()


def test_precisions_are_compared_within_the_column_of_x(rows):
    X, y, sex = rows
    criterion = eh.PredictiveParity(within="job")
    fair = eh.FairClassifier(model(), criterion=criterion, tolerance=0.1, safety=0.0, cv=2, random_state=0)
    fair.fit(X, y, sensitive_features={"sex": sex})
    held = fair.held_out_
    job = X["job"].to_numpy()[held.rows]
    decided = fair.rule_.decide(held.p_y, held.p_group, strata=job)
    found = eh.audit(held.y, decided, held.sensitive_features, criterion=criterion, strata=job)
    assert max(stratum.gap.value or 0.0 for stratum in found.verdicts[0].strata) <= 0.1 + 1e-9
    assert fair.rule_.solution_.status == "optimal"
    np.testing.assert_array_equal(fair.rule_.decide(*fair.probabilities(X)), fair.predict(X))


def test_a_new_or_absent_stratum_is_an_error_that_names_it(fair, rows):
    X = rows[0].assign(job="odd")
    with pytest.raises(eh.InputError, match="stratum 'odd' of 'job' did not occur"):
        fair.predict(X)
    with pytest.raises(eh.InputError, match="X has no column 'job'"):
        fair.predict(X.drop(columns="job"))
    with pytest.raises(eh.InputError, match="X has no column 'work'"):
        eh.FairClassifier(LogisticRegression(), criterion=eh.DemographicParity(within="work")).fit(
            X, rows[1], sensitive_features=rows[2]
        )


def test_strata_are_certified_on_rows_that_no_model_saw(rows):
    X, y, sex = rows
    criterion = eh.DemographicParity(within="job")
    promised = {"tolerance": 0.6, "confidence": 0.9, "cv": 2, "random_state": 0}
    fair = eh.FairClassifier(model(), criterion=criterion, **promised).fit(X, y, sensitive_features={"sex": sex})
    found = fair.rule_.learned_from["confidence"]
    assert [entry["name"].count("job=") for entry in found["constraints"]] == [2, 2, 2]
    assert max(entry["certified_upper"] for entry in found["constraints"]) <= 0.6
    assert found["confidence_in_each_stratum"] == pytest.approx(1 - 0.1 / 3)
    assert found["certifying_rows"] + len(fair.held_out_.p_y) == len(y)
    assert "With confidence 0.9 every constraint holds" in model_card(fair)


def test_thin_strata_are_found_once_on_all_rows_and_left_to_the_model(rows):
    X, y, sex = rows
    X = X.assign(job=np.where(np.arange(len(X)) < 12, "rare", X["job"]))
    criterion = eh.EqualOpportunity(within="job", thin=30)
    fair = eh.FairClassifier(model(), criterion=criterion, tolerance=0.3, safety=0.0, cv=2, random_state=0)
    with pytest.warns(eh.EvenhandWarning, match="job=rare") as said:
        fair.fit(X, y, sensitive_features={"sex": sex})
    assert len(said) == 1
    assert fair.with_tolerance(0.4).rule_.solution_.utility >= fair.rule_.solution_.utility
    rare = X[:12]
    np.testing.assert_array_equal(fair.predict(rare), (fair.predict_proba(rare)[:, 1] > 0.5).astype(int))
    np.testing.assert_array_equal(
        fair.predict(rare.assign(job="new")), (fair.predict_proba(rare.assign(job="new"))[:, 1] > 0.5).astype(int)
    )


def test_columns_of_an_array_are_numbered(rows):
    X, y, sex = rows
    numbers = np.column_stack([X["a"], X["b"], np.arange(len(X)) % 2])
    fair = eh.FairClassifier(
        LogisticRegression(), criterion=eh.DemographicParity(within="x2"), tolerance=0.2, cv=2, random_state=0
    ).fit(numbers, y, sensitive_features=sex)
    assert fair.rule_.strata == ("x2",)
    assert fair.predict(numbers[:3]).shape == (3,)


def test_a_saved_classifier_decides_alike(fair, rows, tmp_path):
    eh.io.save(fair, tmp_path / "fair.skops")
    again = eh.io.load(tmp_path / "fair.skops")
    np.testing.assert_array_equal(again.predict(rows[0]), fair.predict(rows[0]))
    assert again.with_tolerance(0.2).rule_ == fair.with_tolerance(0.2).rule_


def test_reports_and_cards_have_every_stratum(fair, rows):
    X, y, sex = rows
    p_y, p_group = fair.probabilities(X)
    given = (y, {"sex": sex}, p_y, {"sex": p_group["sex"]}, fair.rule_)
    summary = summarize(*given, strata=X["job"].to_numpy())
    (verdict,) = summary["steps"][summary["chosen"]]["verdicts"]
    assert [stratum["stratum"] for stratum in verdict["strata"]] == ["high", "low", "mid"]
    page = render_html(summary)
    assert all(f"{name}, " in page for name in ("high", "low", "mid"))
    card = model_card(fair, X, y, {"sex": sex})
    assert "Groups are compared inside each stratum: sex within job." in card
    with pytest.raises(eh.InputError, match="pass each row's stratum"):
        summarize(*given)
