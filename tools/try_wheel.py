"""Install the files of dist/ in empty environments and test them there: ``make dist``.

The wheel with each extra on the Python that runs this, the wheel with the light extras on every other Python from 3.11
on that is installed, the source distribution alone, and the demonstration from ``evenhand[all]``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
EXTRAS = ("cli", "report", "io", "onnx", "engines", "mlflow", "torch", "experiments")
# PyTorch's wheels are large, and the pinned one is not available for every Python.
LIGHT = ("cli", "report", "io")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def pythons() -> list[str]:
    """Return every working Python from 3.11 on, this one first."""
    found = {sys.version_info[:2]: sys.executable}
    installed = Path.home().glob(".pyenv/versions/3.*/bin/python")
    for candidate in [*map(str, installed), *(shutil.which(f"python{version}") for version in VERSIONS)]:
        if candidate is None:
            continue
        asked = subprocess.run(
            [candidate, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0:
            version = tuple(map(int, asked.stdout.split()))
            if version >= (3, 11):
                found.setdefault(version, candidate)
    return list(found.values())


def attempt(python: str, file: Path, extras: tuple[str, ...], *command: str) -> None:
    """Install a file with extras in a new environment, and run a command there."""
    shutil.rmtree(BUILD / "smoke", ignore_errors=True)
    subprocess.run([python, "-m", "venv", BUILD / "smoke"], check=True)
    inside = BUILD / "smoke" / "bin" / "python"
    named = f"{file}[{','.join(extras)}]" if extras else str(file)
    quiet = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--quiet"]
    subprocess.run([inside, *quiet, "--constraint", ROOT / "constraints.txt", named], check=True)
    print(f"-- {file.name}, {', '.join(extras) or 'no extra'}, {python}", flush=True)
    subprocess.run([inside, *command], cwd=BUILD, check=True)


def main() -> None:
    """Try everything."""
    (wheel,), (source,) = ROOT.glob("dist/*.whl"), ROOT.glob("dist/*.tar.gz")
    BUILD.mkdir(exist_ok=True)
    smoke, (here, *others) = str(ROOT / "tools" / "smoke.py"), pythons()
    attempt(here, source, (), smoke)
    attempt(here, wheel, (), smoke)
    for extra in EXTRAS:
        attempt(here, wheel, (extra,), smoke, extra)
    attempt(here, wheel, ("all",), "-m", "evenhand.demo")
    for python in others:
        attempt(python, wheel, LIGHT, smoke, *LIGHT)
    shutil.rmtree(BUILD / "smoke")


if __name__ == "__main__":
    main()
