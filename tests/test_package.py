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


@pytest.mark.parametrize(
    "code",
    [
        "import evenhand.audit; from evenhand.audit import Audit, audit",
        "from evenhand.frontier import Frontier, frontier; import evenhand.frontier",
        "import evenhand.classifier, evenhand.report",
        "import importlib; importlib.import_module('evenhand.audit'); importlib.import_module('evenhand.frontier')",
        "import evenhand; evenhand.Audit, evenhand.Frontier",
    ],
)
def test_modules_and_functions_of_one_name_are_both_there(code):
    code += (
        "\nimport sys, types, evenhand as eh"
        "\nfor name in ('audit', 'frontier'):"
        "\n    module = sys.modules[f'evenhand.{name}']"
        "\n    assert type(module) is type(eh) is types.ModuleType, module"
        "\n    assert getattr(module, name) is getattr(eh, name), name"
        "\n    assert not hasattr(module, 'nothing'), name"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_deferred_module_is_loaded_once_by_many_threads():
    code = (
        "import sys, evenhand, threading; sys.setswitchinterval(1e-6); found = []\n"
        "def use():\n    from evenhand.audit import Audit, audit\n    found.append((Audit, audit))\n"
        "threads = [threading.Thread(target=use) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert len(found) == 8 and len(set(found)) == 1, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
