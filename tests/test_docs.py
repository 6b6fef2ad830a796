"""The documentation is true: its examples run and print what the pages say, and every public name is in it."""

import importlib
import re
import types

import pytest

import pages
from scored_rows import spark

__all__ = ["spark"]

PACKAGES = (
    "evenhand",
    "evenhand.paper.baselines",
    "evenhand.paper.datasets",
    "evenhand.engines",
    "evenhand.io",
    "evenhand.auditing.metrics",
    "evenhand.paper.models",
    "evenhand.report",
    "evenhand.search",
)


@pytest.mark.parametrize("page", pages.pages())
def test_the_examples_of_a_page_print_what_it_says(page, request):
    given = {name: request.getfixturevalue(name) for name in pages.needs(pages.ROOT / page)}
    for block, expected in pages.run(pages.ROOT / page, **given):
        assert block.lines == expected or pages.alike(block.lines, expected), f"{page}:{block.line}"


def test_outputs_are_alike_in_all_but_the_last_digits():
    assert pages.alike(["accuracy 0.8260, 1,234 rows"], ["accuracy  0.8262, 1,240 rows"])
    for other in (
        "accuracy 0.8360, 1,234 rows",
        "accuracy 0.8260, 1,334 rows",
        "accuracy 0.8260, 1,234 row",
        "accuracy",
    ):
        assert not pages.alike(["accuracy 0.8260, 1,234 rows"], [other])
    assert not pages.alike(["2 groups"], ["3 groups"])


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_on_a_page_of_the_api(package):
    module = importlib.import_module(package)
    documented = _documented()
    for name in set(module.__all__) - {"__version__"}:
        value = getattr(module, name)
        homes = {package, getattr(value, "__module__", package)}
        shown = isinstance(value, types.ModuleType) or documented & {f"{home}.{name}" for home in homes}
        assert shown, f"{package}.{name}"


def _documented() -> set[str]:
    """Return the full name of everything that the pages of the API ask to be shown."""
    found = set()
    for page in (pages.ROOT / "docs/api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for name, options in re.findall(r"^::: ([\w.]+)\n((?:    .*\n)*)", text, re.MULTILINE):
            members = re.search(r"members: \[(.*)\]", options)
            module = _module(name)
            shown = members[1].split(", ") if members else [] if module is None else vars(module)
            found |= {name, *(f"{name}.{member}" for member in shown)}
    return found


def _module(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def test_the_site_loads_nothing_from_elsewhere():
    settings = (pages.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    styles = (pages.ROOT / "docs/stylesheets/evenhand.css").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert "http" not in settings + styles


def test_the_figures_of_the_readme_are_those_of_the_comparison():
    figures = re.findall(r"\d\d\.\d\d ± \d\.\d\d", (pages.ROOT / "README.md").read_text(encoding="utf-8"))
    measured = (pages.ROOT / "docs/comparison-tables.md").read_text(encoding="utf-8")
    assert figures
    assert [figure for figure in figures if figure not in measured] == []
