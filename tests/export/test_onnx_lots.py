"""Mixtures as ONNX: the same lots, chances and labels as in Python, to the bit."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.errors import DisagreementError
from evenhand.export import onnx_lots
from evenhand.export.onnx import classifier_to_onnx, rule_to_onnx
from evenhand.rules.lots import LARGEST_KEY, key_numbers

DATA = eh.datasets.make_zafar(1200, random_state=1)
ROWS = (DATA.y, DATA.group, DATA.p_y, DATA.p_joint)


def run(path, feeds):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))


@pytest.fixture(scope="module")
def mixture():
    return eh.learn_rule(*ROWS, criterion="eo", tolerance=0.0, randomize=True)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_mixture_draws_and_decides_as_python_does(mixture, keyed, tmp_path):
    path = tmp_path / "mixed.onnx"
    assert rule_to_onnx(mixture, path, keyed=keyed).rows == 10_000
    key = np.resize([0, 5, 2**31 - 1, 10**17, LARGEST_KEY], len(DATA.y)).astype(np.int64)
    feeds = {"p_y": DATA.p_y, "p_group": DATA.p_joint} | ({"key": key} if keyed else {})
    found = run(path, feeds)
    chosen = key if keyed else None
    np.testing.assert_array_equal(found["lot"], mixture.lots(DATA.p_y, DATA.p_joint, key=chosen))
    np.testing.assert_array_equal(found["expected_decision"], mixture.expected_decision(DATA.p_y, DATA.p_joint))
    np.testing.assert_array_equal(found["label"], mixture.decide(DATA.p_y, DATA.p_joint, key=chosen))
    assert ((found["expected_decision"] > 0) & (found["expected_decision"] < 1)).sum() > 0


def test_text_keys_enter_as_numbers(mixture, tmp_path):
    rule_to_onnx(mixture, tmp_path / "mixed.onnx")
    names = [f"person {k}" for k in range(len(DATA.y))]
    feeds = {"p_y": DATA.p_y, "p_group": DATA.p_joint, "key": key_numbers(names, len(names))}
    expected = mixture.decide(DATA.p_y, DATA.p_joint, key=names)
    np.testing.assert_array_equal(run(tmp_path / "mixed.onnx", feeds)["label"], expected)


def test_a_graph_that_draws_otherwise_is_not_written(mixture, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_lots, "HIGH_WORDS", onnx_lots.HIGH_WORDS + 2)
    with pytest.raises(DisagreementError, match="differently from Python"):
        rule_to_onnx(mixture, tmp_path / "mixed.onnx")
    assert not (tmp_path / "mixed.onnx").exists()


def test_a_classifier_draws_by_key(tmp_path):
    fair = eh.FairClassifier(
        LogisticRegression(), criterion="eo", tolerance=0.0, safety=0.0, cv=2, randomize=True, random_state=0
    ).fit(DATA.X, DATA.y, sensitive_features=DATA.group)
    path = tmp_path / "fair.onnx"
    assert classifier_to_onnx(fair, path, DATA.X).rows == len(DATA.y)
    key = np.arange(len(DATA.y)) * 31
    found = run(path, {"X": DATA.X.astype(np.float64), "key": key})
    np.testing.assert_array_equal(found["label"], fair.predict(DATA.X, key=key))


def test_wrong_values_are_refused(mixture, tmp_path):
    with pytest.raises(eh.InputError, match="keyed"):
        rule_to_onnx(mixture, tmp_path / "x.onnx", keyed="yes")
    with pytest.raises(eh.InputError, match="Rule or a Mixture"):
        rule_to_onnx("mixture", tmp_path / "x.onnx")
