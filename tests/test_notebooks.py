"""The notebooks run, show what they have stored, and are linked from the documentation."""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

import pages

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(path.name for path in (ROOT / "examples").glob("*.ipynb"))


def runner():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook):
    """Return the texts that a notebook's cells print and its objects' own, without figures and diagrams."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    return [line for o in outputs for line in "".join(o.get("text") or o["data"]["text/plain"]).splitlines()]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_what_it_has_stored(name, tmp_path):
    stored = json.loads((ROOT / "examples" / name).read_text(encoding="utf-8"))
    fresh = json.loads(json.dumps(stored))
    with warnings.catch_warnings(), threadpool_limits(1):
        # Those of other libraries about each other are not this notebook's.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        runner().execute(fresh, tmp_path)
    lines = shown(stored)
    assert len(lines) > 10
    assert lines == shown(fresh) or pages.alike(lines, shown(fresh))
    html = [o for c in fresh["cells"] for o in c.get("outputs", []) if "text/html" in o.get("data", {})]
    assert len(html) >= 2


def test_the_notebooks_are_the_two_that_the_documentation_links():
    assert NOTEBOOKS == ["coming_from_fairlearn.ipynb", "start_here.ipynb"]
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert all(f"examples/{name}" in text for name in NOTEBOOKS)
