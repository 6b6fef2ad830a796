"""Every experiment, through the command, as small as it gets."""

from __future__ import annotations

import csv
import json
from xml.etree import ElementTree

import pytest

from evenhand.cli import main
from evenhand.errors import InputError
from evenhand.paper.experiments.published import CELEBA, CLIP
from evenhand.paper.experiments.writing import QUICK

TABULAR = ("synthetic", "sensitivity", "adult-dp", "adult-eo", "reductions")


def quick(name, output, *options):
    return main(["--debug", "reproduce", name, "--quick", "--seeds", "1", "-o", str(output), *options])


def check_files(directory, name):
    """Check that everything is there, is what its name says, and says that it means nothing."""
    about = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
    assert about["note"] == QUICK
    assert about["seeds"] == [0]
    assert about["versions"]["evenhand"]
    assert about["seconds_of_units"]
    text = (directory / f"{name}.md").read_text(encoding="utf-8")
    assert QUICK in text
    assert "nan" not in text
    assert about["tables"]
    for table in about["tables"]:
        with (directory / f"{name}-{table}.csv").open(encoding="utf-8") as file:
            assert file.readline() == f"# {QUICK}\n"
            rows = list(csv.reader(file))
        assert {len(row) for row in rows} == {len(rows[0])}
        assert len(rows) > 1
    assert len((directory / f"{name}-runs.csv").read_text(encoding="utf-8").splitlines()) == 2 + len(about["records"])
    for svg in directory.glob("*.svg"):
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
        assert QUICK in svg.read_text(encoding="utf-8")
        assert svg.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert f"]({svg.name})" in text
    return about


@pytest.mark.parametrize("name", TABULAR)
def test_a_quick_run_writes_everything(name, tmp_path, capsys):
    assert quick(name, tmp_path) == 0
    shown = capsys.readouterr()
    assert "its numbers are meaningless" in shown.out
    assert f"evenhand: {name}: [1/" in shown.err
    about = check_files(tmp_path / f"{name}-quick", name)
    assert list((tmp_path / f"{name}-quick").glob("*.svg"))
    if name == "adult-dp":
        asked = {(row["method"], row["asked for"]) for row in about["tables"]["tradeoff"]["rows"]}
        wanted = {
            ("MBS (Algorithm 1)", "δ = ∞"),
            ("MBS, A known", "δ = 1"),
            ("J19", "equal rates"),
            ("Z17", "no bound"),
        }
        assert wanted <= asked
    if name == "synthetic":
        solved = [record for record in about["records"] if record["delta"] is not None]
        assert all(record["on the wrong side"] == 0 and record["fractional"] <= 2 for record in solved)


@pytest.mark.parametrize("name", ["compas-dp", "compas-eo", "composite"])
def test_a_quick_run_on_compas(name, tmp_path, made_compas):
    assert quick(name, tmp_path) == 0
    check_files(tmp_path / f"{name}-quick", name)


def test_celeba_end_to_end(tmp_path, celeba):
    assert quick("celeba-eo", tmp_path, "--data", str(celeba)) == 0
    about = check_files(tmp_path / "celeba-eo-quick", "celeba-eo")
    assert about["notes"][0] == (
        "CelebA: 46 training, 24 validation and 24 test images are used; 2 listed images are not in the directory."
    )
    assert set(about["tables"]) == {f"table-{number}" for number in (1, "1-beside", 3, 4, 5, 6, 7, 8)}
    assert about["notes"][1] == "ResNet-18 is trained from scratch."
    methods = {record["method"] for record in about["records"]}
    assert methods == {"MBS (Algorithm 2)", "MBS (Algorithm 3)", "MBS (certified)", "H16", "P22"}
    (first,) = [
        row for row in about["tables"]["table-3"]["rows"] if (row["part"], row["δ or baseline"]) == ("test", "P22")
    ]
    (accuracy, error), _ = CELEBA["Attractive", "Male"]["test"]["P22"]
    assert first["paper's accuracy"] == f"{accuracy} ± {error}"


def test_celeba_in_parts(tmp_path, celeba, monkeypatch):
    """Some tasks without P22, then P22 too: nothing is computed twice, whatever the spelling of the directory."""
    output, some = tmp_path / "out", ("--tasks", "Big_Nose/Young", "Attractive/Male", "--without", "P22")
    options = ("--workers", "1", "--verify", *some)
    assert quick("celeba-eo", output, "--data", str(celeba), *options) == 0
    directory = output / "celeba-eo-quick"
    about = json.loads((directory / "celeba-eo.json").read_text(encoding="utf-8"))
    assert set(about["tables"]) == {"table-1", "table-1-beside", "table-3", "table-6"}
    heads = ["δ", *(f"{task}: {what}" for task in ("a, m", "b, y") for what in ("ACC", "EO"))]
    assert [head for head in about["tables"]["table-1"]["rows"][0] if "s.e." not in head] == heads
    latex = (directory / "celeba-eo-table-1.tex").read_text(encoding="utf-8").splitlines()
    assert latex[0] == f"% {QUICK}"
    assert latex[3] == r" & \multicolumn{2}{c}{(a, m)} & \multicolumn{2}{c}{(b, y)} \\"
    assert [line.split(" & ")[0] for line in latex[6:-2]] == [r"$\infty$", "10", "5", "1", "H16"]
    assert all(line.count("&") == 4 and line.endswith("\\\\") for line in latex[6:-2])

    kept = {file.name for file in (directory / "units").iterdir()}
    monkeypatch.chdir(celeba)
    assert quick("celeba-eo", output, "--data", ".", "--workers", "2", *some[:3]) == 0
    assert kept < {file.name for file in (directory / "units").iterdir()}
    about = json.loads((directory / "celeba-eo.json").read_text(encoding="utf-8"))
    assert {row["method"] for row in about["records"]} >= {"P22", "H16"}


def test_tables_are_written_after_each_task(tmp_path, celeba, monkeypatch):
    from evenhand.paper.experiments import celeba as module

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "contrast", stop)
    assert quick("celeba-eo", tmp_path, "--data", str(celeba), "--tasks", "Attractive/Male") == 130
    about = json.loads((tmp_path / "celeba-eo-quick" / "celeba-eo.json").read_text(encoding="utf-8"))
    assert about["notes"][-1] == "INCOMPLETE: 1 of 6 pieces are still to be computed."
    assert "table-3" in about["tables"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "cuda"), "sees no CUDA device. Use --device cpu"),
        (("--device", "gpu"), "PyTorch knows no such device"),
        (("--weights", "resnet-81"), "there is no such directory, and the Hugging Face cache has no such name"),
        (("--tasks", "Attractive/Old"), "the tasks are Attractive/Male"),
        (("--without", "Z17"), "the baselines are H16, P22"),
        (("--epochs", "0"), "epochs must be at least 1"),
    ],
)
def test_what_is_not_there_is_one_line_before_anything_is_trained(options, message, tmp_path, celeba, capsys):
    output = tmp_path / "out"
    arguments = ["reproduce", "celeba-eo", "--quick", "--data", str(celeba), "-o", str(output), *options]
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert len(shown.splitlines()) == 1
    assert not output.exists()


def test_broken_images_are_named_before_anything_is_trained(tmp_path, celeba, capsys):
    import shutil

    copy = shutil.copytree(celeba, tmp_path / "celeba")
    (copy / "img_align_celeba" / "000009.jpg").write_bytes(b"not an image")
    arguments = ["reproduce", "celeba-eo", "--quick", "--data", str(copy), "-o", str(tmp_path / "out"), "--verify"]
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert "1 of 94 images cannot be decoded" in shown
    assert "000009.jpg (UnidentifiedImageError)" in shown


def test_clip_end_to_end(tmp_path, celeba, tiny_clip):
    assert quick("clip", tmp_path, "--data", str(celeba), "--clip", str(tiny_clip)) == 0
    about = check_files(tmp_path / "clip-quick", "clip")
    rows = about["tables"]["table-2"]["rows"]
    assert [row["paper's EO"] for row in rows if row["method"] == "MBS (Algorithm 3)"] == [
        gap for part in CLIP.values() for _, gap in part.values()
    ]


@pytest.mark.parametrize("name", ["corrupted", "regularised"])
def test_the_ablations_use_celeba_where_it_is_given(name, tmp_path, celeba):
    assert quick(name, tmp_path, "--data", str(celeba)) == 0
    assert set(check_files(tmp_path / f"{name}-quick", name)["tables"]) == {"adult", "celeba"}


def test_clip_weights_that_are_not_there_are_named(tmp_path, celeba, capsys):
    arguments = ["reproduce", "clip", "--quick", "--data", str(celeba), "--clip", str(tmp_path), "-o", str(tmp_path)]
    assert main(arguments) == 2
    assert "CLIP cannot be loaded" in capsys.readouterr().err


def test_the_authors_settings_and_fresh_seeds_have_results_of_their_own(tmp_path):
    assert quick("adult-dp", tmp_path, "--first-seed", "5", "--settings", "authors") == 0
    about = json.loads((tmp_path / "adult-dp-authors-quick" / "adult-dp.json").read_text(encoding="utf-8"))
    assert about["seeds"] == [5]
    assert about["settings"] == "authors"
    with pytest.raises(InputError, match=r"authors' settings are for the networks of adult-dp, .* not for synthetic"):
        quick("synthetic", tmp_path, "--settings", "authors")
