from __future__ import annotations

import subprocess
import sys

import pytest

import evenhand as eh


@pytest.mark.parametrize("name", eh.__all__)
def test_every_public_name_is_there(name):
    assert getattr(eh, name) is not None


def test_public_names_are_sorted():
    assert eh.__all__ == sorted(eh.__all__, key=lambda name: (name.strip("_")[0].islower() or name[0] == "_", name))


def test_importing_a_module_does_not_hide_the_function_of_the_same_name():
    code = (
        "import evenhand.frontier, evenhand.audit, evenhand.classifier, evenhand as eh;"
        "assert callable(eh.frontier) and callable(eh.audit), (eh.frontier, eh.audit)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, evenhand; print([m for m in ('numpy', 'numba', 'sklearn', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'fairness'"):
        eh.fairness
