"""The page of the reproduction shows the committed results, and these are of this version."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import evenhand as eh
from evenhand.paper.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[1]
RUN_HERE = sorted(path.stem for path in (ROOT / "benchmarks" / "results" / "reproduction").glob("*.md"))


@pytest.fixture(scope="module")
def tool():
    specification = importlib.util.spec_from_file_location("reproduction_page", ROOT / "tools" / "reproduction_page.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_experiment_without_images_has_committed_results():
    assert {entry.name for entry in EXPERIMENTS if not entry.celeba} <= set(RUN_HERE)


@pytest.mark.parametrize("name", RUN_HERE)
def test_the_page_shows_what_was_measured(tool, name):
    committed = (tool.RESULTS / f"{name}.md").read_text(encoding="utf-8")
    section = tool.sections(tool.PAGE.read_text(encoding="utf-8"))[name]
    assert tool.tables(section)
    assert tool.tables(section) == tool.tables(committed)
    assert f"evenhand {eh.__version__}" in committed
    assert "QUICK" not in committed


def test_the_page_compares_both_settings_as_they_were_measured(tool):
    section = tool.sections(tool.PAGE.read_text(encoding="utf-8"))[tool.BOTH_SETTINGS]
    assert tool.tables(section) == [tool.both_settings()]
    for source in tool.AUTHORS.glob("*.md"):
        committed = source.read_text(encoding="utf-8")
        assert f"evenhand {eh.__version__}" in committed
        assert "--settings authors" in committed


def test_settings_were_chosen_on_other_seeds_than_those_of_the_tables(tool):
    """The learning rate, the stopping rule and Z17's bounds were chosen on the seeds 0 to 4."""
    for name in RUN_HERE:
        line = (tool.RESULTS / f"{name}.md").read_text(encoding="utf-8").split("\nSeeds ")[1].split(". ")[0]
        assert min(map(int, line.split(", "))) >= 100


def test_tables_are_put_in_the_places_of_the_old_ones(tool):
    section = "## a\n\nBefore.\n\n| x |\n| --- |\n| 1 |\n\nBetween.\n\n| y |\n| --- |\n| 2 |\n"
    made = tool.with_tables(section, ["| x |\n| --- |\n| 7 |\n| 8 |", "| y |\n| --- |\n| 9 |"])
    assert made == section.replace("| 1 |", "| 7 |\n| 8 |").replace("| 2 |", "| 9 |")
    with pytest.raises(SystemExit, match="no place for 1 more"):
        tool.with_tables(section, ["| a |"] * 3)
