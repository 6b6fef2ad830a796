"""Rules and mixtures with strata as ONNX: the stratum is one more input."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.export.onnx import rule_to_onnx

onnxruntime = pytest.importorskip("onnxruntime")

DATA = eh.datasets.make_zafar(900, random_state=0)
TEXT = np.array(["clerk", "driver", "nurse"])[np.arange(900) % 3]
WHOLE = np.arange(900) % 3 + 10


def learnt(strata, *, thin=None, criterion=eh.EqualizedOdds, randomize=False):
    rows = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)
    wanted = criterion(within="job", thin=thin)
    return eh.learn_rule(
        *rows, criterion=wanted, tolerance=0.0 if randomize else 0.1, strata=strata, randomize=randomize
    )


def run(path, names, **feeds):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(list(names), feeds)


@pytest.mark.parametrize("strata", [TEXT, WHOLE], ids=["text", "numbers"])
@pytest.mark.parametrize("thin", [None, 5])
def test_a_rule_decides_by_the_rows_stratum(tmp_path, strata, thin):
    rule = learnt(strata, thin=thin)
    path = tmp_path / "rule.onnx"
    assert rule_to_onnx(rule, path).margin_difference == 0.0
    assert rule_to_onnx(rule, path, p_y=DATA.p_y, p_group=DATA.p_joint, strata=strata).rows == 900
    given = strata.astype(object) if strata is TEXT else strata.astype(np.int64)
    label, margin = run(path, ("label", "fair_margin"), p_y=DATA.p_y, p_group=DATA.p_joint, stratum=given)
    np.testing.assert_array_equal(label, rule.decide(DATA.p_y, DATA.p_joint, strata=strata))
    np.testing.assert_array_equal(margin, rule.decision_function(DATA.p_y, DATA.p_joint, strata=strata))
    given = np.array(["new"] * 900, dtype=object) if strata is TEXT else np.full(900, 99)
    label, margin = run(path, ("label", "fair_margin"), p_y=DATA.p_y, p_group=DATA.p_joint, stratum=given)
    if thin is None:
        assert np.isnan(margin).all()
        assert not label.any()
    else:
        np.testing.assert_array_equal(label, DATA.p_y > 0.5)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_mixture_draws_by_the_weights_of_the_rows_stratum(tmp_path, keyed):
    mixed = learnt(TEXT, thin=5, randomize=True)
    assert len(mixed.rules) > 2
    path = tmp_path / "mixed.onnx"
    rule_to_onnx(mixed, path, keyed=keyed)
    key = np.arange(900, dtype=np.int64)
    feeds = {"p_y": DATA.p_y, "p_group": DATA.p_joint, "stratum": TEXT.astype(object)} | ({"key": key} if keyed else {})
    label, chance = run(path, ("label", "expected_decision"), **feeds)
    drawn = {"key": key} if keyed else {}
    np.testing.assert_array_equal(label, mixed.decide(DATA.p_y, DATA.p_joint, strata=TEXT, **drawn))
    np.testing.assert_array_equal(chance, mixed.expected_decision(DATA.p_y, DATA.p_joint, strata=TEXT))


def test_what_a_graph_cannot_tell_apart_is_refused(tmp_path):
    path = tmp_path / "rule.onnx"
    with pytest.raises(eh.InputError, match="all text or all whole numbers"):
        rule_to_onnx(learnt(WHOLE / 2, criterion=eh.DemographicParity), path)
    both = eh.DemographicParity(within="job") & eh.DemographicParity(within="town")
    strata = {"job": TEXT, "town": WHOLE % 2}
    rule = eh.learn_rule(
        *(DATA.y, DATA.group, DATA.p_y, DATA.p_joint), criterion=both, tolerance=0.3, strata=strata, search="smoothed"
    )
    with pytest.raises(eh.InputError, match="one input of strata"):
        rule_to_onnx(rule, path)
    plain = eh.learn_rule(DATA.y, DATA.group, DATA.p_y, DATA.p_joint, tolerance=0.1)
    with pytest.raises(eh.InputError, match="strata needs a criterion"):
        rule_to_onnx(plain, path, p_y=DATA.p_y, p_group=DATA.p_group, strata=TEXT)
    with pytest.raises(eh.InputError, match="strata"):
        rule_to_onnx(learnt(TEXT), path, p_y=DATA.p_y, p_group=DATA.p_joint)
    assert not path.exists()
