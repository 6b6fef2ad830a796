"""Audits within strata: each stratum is judged as its rows alone would be, and all of them together."""

from __future__ import annotations

import json

import numpy as np
import pytest

import evenhand as eh

INSIDE = eh.DemographicParity(within="job")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    job = np.repeat(["x", "y", "z"], [2000, 1000, 60])
    sex = rng.choice(["F", "M"], len(job))
    decided = (rng.random(len(job)) < np.where((job == "y") & (sex == "F"), 0.2, 0.5)).astype(int)
    return rng.integers(0, 2, len(job)), decided, sex, job


@pytest.mark.parametrize(
    "criterion",
    [
        eh.DemographicParity,
        eh.EqualizedOdds,
        eh.AccuracyParity,
        lambda **o: eh.SelectionRatio(0.8, tolerance=0.05, **o),
    ],
)
def test_each_stratum_is_judged_as_its_rows_alone(rows, criterion):
    y, decided, sex, job = rows
    (verdict,) = eh.audit(y, decided, {"sex": sex}, criterion=criterion(within="job"), strata={"job": job}).verdicts
    assert verdict.attribute == "sex within job"
    assert [stratum.stratum for stratum in verdict.strata] == ["x", "y", "z"]
    for stratum in verdict.strata:
        inside = job == stratum.stratum
        alone = eh.audit(y[inside], decided[inside], {"sex": sex[inside]}, criterion=criterion())
        assert (stratum.gap, stratum.outcome) == (alone.verdicts[0].gap, alone.verdicts[0].outcome)
        assert stratum.groups == alone.attributes[0].groups
        assert stratum.rows == inside.sum()
    assert verdict.gap.value == max(stratum.gap.value for stratum in verdict.strata)
    assert verdict.gap.upper == max(stratum.gap.upper for stratum in verdict.strata)


def test_the_whole_may_pass_where_a_stratum_fails_and_the_other_way_round(rows):
    y, decided, sex, job = rows
    found = eh.audit(y, decided, {"sex": sex}, criterion=INSIDE, tolerance=0.15, strata=job)
    outcomes = [stratum.outcome for stratum in found.verdicts[0].strata]
    assert outcomes == ["pass", "fail", "insufficient evidence"]
    assert found.verdicts[0].outcome == "fail"
    overall = eh.audit(y, decided, {"sex": sex}, criterion="dp", tolerance=0.15)
    assert overall.passed


def test_thin_strata_are_left_out_by_choice_and_named(rows):
    y, decided, sex, job = rows
    criterion = eh.DemographicParity(within="job", thin=100)
    found = eh.audit(y, decided, {"sex": sex}, criterion=criterion, strata=job)
    assert [stratum.stratum for stratum in found.verdicts[0].strata] == ["x", "y"]
    assert found.verdicts[0].left_out == {"z": 60}
    assert "left out, with too few rows to compare: z (60 rows)" in str(found)
    plain = json.loads(json.dumps(found.to_dict()))["verdicts"][0]
    assert plain["left_out"] == {"z": 60}
    assert [stratum["stratum"] for stratum in plain["strata"]] == ["x", "y"]


def test_strata_that_are_left_out_and_equal_as_text_are_told_apart(rows):
    y, decided, sex, job = rows
    mixed = np.array([1, "1", 2], dtype=object)[np.searchsorted(["x", "y", "z"], job)]
    few = mixed != "1"
    few[np.flatnonzero(mixed == "1")[:40]] = True
    criterion = eh.DemographicParity(within="job", thin=100)
    found = eh.audit(y[few], decided[few], {"sex": sex[few]}, criterion=criterion, strata=mixed[few])
    assert found.verdicts[0].left_out == {"'1'": 40, "2": 60}


def test_a_stratum_without_rows_of_a_group_is_not_enough_evidence():
    job = ["x"] * 400 + ["y"] * 200
    sex = ["F", "M"] * 200 + ["M"] * 200
    found = eh.audit(None, [0, 0, 1, 1] * 150, {"sex": sex}, criterion=INSIDE, tolerance=0.2, strata=job)
    assert [stratum.outcome for stratum in found.verdicts[0].strata] == ["pass", "insufficient evidence"]
    assert found.verdicts[0].outcome == "insufficient evidence"


def test_strata_are_refused_where_nothing_is_compared_within(rows):
    y, decided, sex, job = rows
    with pytest.raises(eh.InputError, match="strata needs a criterion"):
        eh.audit(y, decided, sex, strata=job)
    with pytest.raises(eh.InputError, match="pass each row's stratum"):
        eh.audit(y, decided, sex, criterion=INSIDE)
    with pytest.raises(eh.InputError, match="standard"):
        eh.audit(y, decided, sex, standard="four-fifths", strata=job)
