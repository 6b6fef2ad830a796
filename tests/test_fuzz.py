"""A short run of ``make fuzz``: hostile inputs get the library's own exceptions and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

from run import attempt
from targets import TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_hostile_inputs_get_the_librarys_own_exceptions(name):
    for seed in range(80):
        wrong, _ = attempt(name, seed)
        assert not wrong, f"python tests/fuzz/run.py --target {name} --seed {seed}\n{wrong}"
