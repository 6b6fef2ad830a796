"""Files that earlier versions wrote: they still load, and decide as they did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import evenhand as eh

SAVED = Path(__file__).parent / "saved"
DECISIONS = json.loads((SAVED / "decisions.json").read_text())


def rows():
    """The rows that the files were made with."""
    data = eh.datasets.make_zafar(80, random_state=0)
    return data.X, np.where(data.group == np.unique(data.group)[1], "F", "M")


@pytest.mark.parametrize("name", sorted(DECISIONS))
def test_a_classifier_that_was_saved_before_decides_as_it_did(name):
    X, sex = rows()
    fair = eh.io.load(SAVED / f"{name}.skops")
    if name == "sensitive_column":
        X = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "sex": sex})
    elif name == "network":
        X = X.astype(np.float32)
    known = {"sensitive_features": {"sex": sex[:20]}} if name in ("known_group", "barycentre") else {}
    if name == "barycentre":
        known = {"sensitive_features": sex[:20]}
    for method, expected in DECISIONS[name].items():
        found = fair.decision_function(X[:20], **known) if method == "decision" else fair.predict(X[:20], **known)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 if name == "network" else 1e-12)


@pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")
@pytest.mark.parametrize("name", sorted(set(DECISIONS) - {"barycentre"}))
def test_what_else_a_saved_classifier_can_do_still_works(name):
    fair = eh.io.load(SAVED / f"{name}.skops")
    assert fair.with_tolerance(0.9).rule_.tolerance == 0.9
    assert len(fair.frontier()) > 0
    assert str(fair.diagnostics_)
    assert len(fair.held_out_.y) == len(fair.held_out_.p_y) > 0


def test_every_saved_file_is_tested():
    assert {path.stem for path in SAVED.glob("*.skops")} == set(DECISIONS)
