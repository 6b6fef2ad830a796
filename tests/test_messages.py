"""Errors that a newcomer meets name what to do next."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import evenhand as eh
from evenhand.cli import main
from evenhand.errors import InputError

DATA = eh.datasets.make_zafar(300, random_state=0)


@pytest.mark.parametrize("names", ["sex", ["sex"]])
def test_the_name_of_a_column_instead_of_the_column_names_sensitive_columns(names):
    X = pd.DataFrame(DATA.X, columns=["a", "b"]).assign(sex=np.asarray(DATA.group))
    with pytest.raises(InputError, match=r"needs each row's group, 300 in all.*sensitive_columns="):
        eh.FairClassifier(LogisticRegression()).fit(X, DATA.y, sensitive_features=names)


@pytest.mark.parametrize("place", ["estimator", "auxiliary"])
def test_a_model_without_probabilities_names_what_gives_it_some(place):
    fair = eh.FairClassifier(LogisticRegression()).set_params(**{place: LinearSVC()})
    with pytest.raises(InputError, match=r"sklearn\.calibration\.CalibratedClassifierCV\(model\)"):
        fair.fit(DATA.X, DATA.y, sensitive_features=DATA.group)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("equalised odds", "equalized_odds"),
        ("demografic_parity", "demographic_parity"),
        ("Equal-Opportunity", "equal_op"),
    ],
)
def test_a_mistyped_criterion_is_answered_with_the_nearest(typed, meant):
    with pytest.raises(InputError, match=f"Did you mean '{meant}"):
        eh.audit(DATA.y, DATA.y, DATA.group, criterion=typed)


def test_a_criterion_like_none_is_answered_with_all():
    with pytest.raises(InputError, match=r"Unknown criterion 'xyzzy'\. Use one of"):
        eh.audit(DATA.y, DATA.y, DATA.group, criterion="xyzzy")


def test_group_scores_where_joint_scores_are_needed_name_the_options(tmp_path, capsys):
    table = tmp_path / "t.csv"
    groups = np.where(np.asarray(DATA.group) == "0", "F", "M")
    pd.DataFrame({"y": DATA.y, "p": DATA.p_y, "sex": groups, "f": DATA.p_group[:, 0]}).to_csv(table, index=False)
    argv = ["fit", str(table), "--label", "y", "--score", "p", "--sensitive", "sex", "--group-score", "F=f"]
    assert main([*argv, "--criterion", "eo", "-o", str(tmp_path / "rule.json")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "Instead of --group-score, pass --joint-score '0,F=COLUMN' --joint-score '0,M=COLUMN'" in told
    assert main([*argv, "--criterion", "dp", "--tolerance", "0.2", "-o", str(tmp_path / "rule.json")]) == 0


def test_apply_tells_what_it_wrote(tmp_path, capsys):
    rule = eh.learn_rule(DATA.y, DATA.group, DATA.p_y, DATA.p_group, criterion="dp", tolerance=0.2)
    (tmp_path / "rule.json").write_text(rule.to_json())
    scores = {"p": DATA.p_y, "a": DATA.p_group[:, 0], "b": DATA.p_group[:, 1]}
    pd.DataFrame(scores).to_csv(tmp_path / "t.csv", index=False)
    argv = ["apply", str(tmp_path / "rule.json"), str(tmp_path / "t.csv"), "-o", str(tmp_path / "d.csv")]
    assert main([*argv, "--score", "p", "--group-score", "0=a", "--group-score", "1=b"]) == 0
    assert "Decided 300 rows. They are in " in (told := capsys.readouterr().out)
    assert "with the columns decision, fair_margin, flipped, bias_score_1." in told


def test_training_on_all_columns_shows_progress(tmp_path, capsys):
    table = tmp_path / "t.csv"
    frame = pd.DataFrame(DATA.X, columns=["a", "b"]).assign(y=DATA.y, sex=np.asarray(DATA.group))
    frame.to_csv(table, index=False)
    argv = ["fit", str(table), "--label", "y", "--sensitive", "sex", "--features", "*", "--tolerance", "0.4"]
    main([*argv, "-o", str(tmp_path / "fair.skops")])
    assert "[1/10] trained p(Y|x) on fold 1 of 5" in capsys.readouterr().err
