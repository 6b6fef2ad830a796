from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import evenhand as eh


@pytest.mark.parametrize("name", eh.__all__)
def test_every_public_name_is_there(name):
    assert getattr(eh, name) is not None


def test_public_names_are_sorted():
    assert eh.__all__ == sorted(eh.__all__, key=lambda name: (name.strip("_")[0].islower() or name[0] == "_", name))


def test_no_public_function_has_the_name_of_a_module():
    modules = {found.name for found in pkgutil.iter_modules(eh.__path__)}
    assert modules & {name for name in eh.__all__ if not isinstance(getattr(eh, name), ModuleType)} == set()


@pytest.mark.parametrize("name", ["datasets", "io", "metrics", "search"])
def test_public_modules_can_be_imported_by_their_names(name):
    assert importlib.import_module(f"evenhand.{name}") is getattr(eh, name)


NOTEBOOK = """
import joblib
import evenhand as eh
try:
    import cloudpickle
except ImportError:
    from joblib.externals import cloudpickle

def passed(tolerance):
    found = eh.audit([0, 1] * 50, [0, 1] * 50, ["a", "a", "b", "b"] * 25, tolerance=tolerance)
    return found.rows, callable(eh.frontier)

if __name__ == "__main__":
    {before}
    again = cloudpickle.loads(cloudpickle.dumps(passed))
    assert again(0.1) == (100, True)
    assert cloudpickle.loads(cloudpickle.dumps(eh)) is eh
    jobs = (joblib.delayed(passed)(tolerance) for tolerance in (0.1, 0.2))
    assert joblib.Parallel(n_jobs=2, backend="loky")(jobs) == [(100, True)] * 2
"""


@pytest.mark.parametrize("before", ["pass", "eh.audit, eh.frontier, eh.FairClassifier"])
def test_a_function_of_a_notebook_that_uses_the_package_runs_in_other_processes(tmp_path, before):
    script = tmp_path / "notebook.py"
    script.write_text(NOTEBOOK.format(before=before))
    subprocess.run([sys.executable, str(script)], check=True)


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, evenhand; print([m for m in ('numpy', 'numba', 'sklearn', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'fairness'"):
        eh.fairness
