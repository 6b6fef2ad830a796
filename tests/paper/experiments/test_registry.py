from __future__ import annotations

import importlib
import sys

import pytest

from evenhand.cli import main
from evenhand.errors import InputError, MissingExtraError
from evenhand.paper.experiments import EXPERIMENTS, ImageSettings, Settings, find, reproduce
from evenhand.paper.experiments.published import CELEBA, CLIP, TABLE_1

# The rows of the project's table of the paper's experiments.
ROWS = (
    "synthetic",
    "adult-dp",
    "compas-dp",
    "adult-eo",
    "compas-eo",
    "celeba-eo",
    "corrupted",
    "regularised",
    "clip",
    "reductions",
    "composite",
    "sensitivity",
)


def test_every_row_of_the_paper_is_an_experiment():
    assert tuple(entry.name for entry in EXPERIMENTS) == ROWS
    for entry in EXPERIMENTS:
        module = importlib.import_module(f"evenhand.paper.experiments.{entry.module}")
        assert callable(module.units)
        assert callable(module.report)


def test_units_have_names_of_their_own_and_need_only_what_comes_before(tmp_path):
    settings = Settings(output=tmp_path, images=ImageSettings(data=tmp_path))
    for entry in EXPERIMENTS:
        module = importlib.import_module(f"evenhand.paper.experiments.{entry.module}")
        seen = set()
        for unit in module.units(entry.name, settings):
            assert unit.name not in seen
            assert seen.issuperset(unit.needs)
            seen.add(unit.name)


@pytest.mark.parametrize("arguments", [["reproduce", "--list"], ["reproduce"]])
def test_the_list_has_name_paper_and_needs(arguments, capsys):
    assert main(arguments) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["experiment", "paper", "needs"]
    assert [line.split()[0] for line in lines] == list(ROWS)
    assert "Figure 2 (a)" in lines[1]
    assert "evenhand[experiments,report]" in lines[1]
    assert "CelebA (--data), CLIP weights (--clip)" in lines[8]


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="did you mean adult-dp"):
        find("adult-pd")


def test_a_missing_extra_is_one_sentence_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fairlearn", None)
    with pytest.raises(MissingExtraError) as caught:
        reproduce("adult-dp", Settings(output=tmp_path / "out"))
    assert str(caught.value) == "evenhand reproduce adult-dp needs fairlearn: pip install 'evenhand[experiments]'."
    assert not (tmp_path / "out").exists()


def test_celeba_asks_for_its_directory(tmp_path, capsys):
    assert main(["reproduce", "celeba-eo", "-o", str(tmp_path)]) == 2
    assert "evenhand reproduce celeba-eo --data DIR" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["seeds", "jobs"])
def test_settings_count_from_one(name, tmp_path):
    with pytest.raises(InputError, match=f"{name} must be at least 1"):
        Settings(output=tmp_path, **{name: 0})


def test_table_1_repeats_the_test_rows_of_the_other_tables():
    differing = [
        (task, label)
        for task, rows in TABLE_1.items()
        for label, printed in rows.items()
        if printed != tuple(mean for mean, _ in CELEBA[task]["test"][label])
    ]
    assert differing == [(("Big_Nose", "Male"), "P22")]
    assert [len(part) for part in CLIP.values()] == [4, 4]
