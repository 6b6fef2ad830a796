from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand
from evenhand.cli import main

SCRIPT = """
import os, signal, sys
from evenhand.cli import main
from {module} import {owner} as owner
original, calls = owner.{method}, [0]
def patched(*args, **kwargs):
    calls[0] += 1
    if calls[0] == {after}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)
owner.{method} = patched
main({arguments!r})
"""


def files_of(directory):
    """Return the files that do not tell the time."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path.suffix != ".json"}


ARGUMENTS = ["reproduce", "adult-dp", "--quick", "--seeds", "1", "-o"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of a run that nothing stopped."""
    directory = tmp_path_factory.mktemp("whole")
    assert main([*ARGUMENTS, str(directory)]) == 0
    return files_of(directory / "adult-dp-quick")


@pytest.mark.parametrize(
    ("module", "owner", "method", "after"),
    [
        ("evenhand.paper.experiments.running", "Store", "save", 7),
        ("evenhand.paper.models._net", "Net", "train_step", 40),
    ],
    ids=["between units", "in a training"],
)
def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(tmp_path, capsys, whole, module, owner, method, after):
    killed = tmp_path / "killed"
    script = SCRIPT.format(module=module, owner=owner, method=method, after=after, arguments=[*ARGUMENTS, str(killed)])
    source = str(Path(evenhand.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run([sys.executable, "-c", script], env=environment, timeout=900, check=False, capture_output=True)
    assert run.returncode == -signal.SIGKILL
    done = list((killed / "adult-dp-quick" / "units").glob("*.json"))
    assert done
    assert not files_of(killed / "adult-dp-quick")
    stamps = {path: path.stat().st_mtime_ns for path in done}
    assert main([*ARGUMENTS, str(killed)]) == 0
    assert "pieces are there already" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in done} == stamps
    assert _without_command(files_of(killed / "adult-dp-quick")) == _without_command(whole)


def _without_command(files):
    """Return the files without the name of the output directory, which the command has."""
    text = files["adult-dp.md"].decode().splitlines()
    return files | {"adult-dp.md": [line for line in text if "`evenhand" not in line]}
