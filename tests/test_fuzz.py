"""A short run of ``make fuzz``: hostile inputs get the library's own exceptions and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

from calls import EXEMPT, calls, hostile_values, inventory, problem_with
from run import attempt
from targets import TARGETS

SLOW_CALLS_GET = 8


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_hostile_inputs_get_the_librarys_own_exceptions(name):
    for seed in range(80):
        wrong, _ = attempt(name, seed)
        assert not wrong, f"python tests/fuzz/run.py --target {name} --seed {seed}\n{wrong}"


def test_no_public_name_is_missing_from_what_is_fuzzed():
    public = set(inventory())
    assert public - set(calls()) - set(EXEMPT) == set()
    assert (set(calls()) | set(EXEMPT)) - public == set()
    assert set(calls()) & set(EXEMPT) == set()
    assert all(call.parameters for call in calls().values())


@pytest.mark.parametrize("name", sorted(calls()))
def test_the_call_that_is_damaged_is_right(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not problem_with(name, {})
    call = calls()[name]
    call.run(**call.right())


@pytest.mark.parametrize("name", sorted(calls()))
def test_every_parameter_answers_every_hostile_value_with_the_librarys_own_exceptions(name):
    call = calls()[name]
    for parameter in call.parameters:
        values = hostile_values(call, parameter)
        labels = list(values)
        if call.slow:
            labels = np.random.default_rng(0).permutation(labels)[:SLOW_CALLS_GET].tolist()
        for label in labels:
            wrong = problem_with(name, {parameter: values[label]()})
            assert not wrong, f"python tests/fuzz/run.py --call {name}: {parameter} is {label}\n{wrong}"


@pytest.mark.parametrize("n_jobs", [0, "x", 1.5, 10**400, 2**63, -(10**400), [], float("nan")])
def test_numbers_of_jobs_that_cannot_be_are_refused(n_jobs):
    fair = eh.FairClassifier(LogisticRegression(), n_jobs=n_jobs)
    with pytest.raises(eh.InputError, match="n_jobs"):
        fair.fit(np.zeros((4, 1)), [0, 1, 0, 1], sensitive_features=list("aabb"))
