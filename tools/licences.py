"""List the licences of evenhand's dependencies, as Markdown: ``make licences``.

Starts from the dependencies in ``pyproject.toml``, core and extras, and follows those of the installed packages.
"""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLASSIFIER = "License :: OSI Approved :: "


def name_of(requirement: str) -> str:
    """Return the package of a requirement."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def licence_of(distribution: metadata.Distribution) -> str:
    """Return a package's licence in its own words, the shortest that it gives."""
    found = distribution.metadata
    expression = found.get("License-Expression")
    if expression:
        return expression
    classifiers = [c.removeprefix(CLASSIFIER) for c in found.get_all("Classifier", []) if c.startswith(CLASSIFIER)]
    if classifiers:
        return ", ".join(classifiers)
    text = (found.get("License") or "not stated").strip().splitlines()
    return text[0][:60]


def closure(requirements: list[str]) -> dict[str, str]:
    """Return all direct and indirect requirements, with their licences."""
    found: dict[str, str] = {}
    waiting = [name_of(r) for r in requirements]
    while waiting:
        name = waiting.pop()
        if name in found or name == "evenhand":
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = f"{distribution.version} | {licence_of(distribution)}"
        waiting += [name_of(r) for r in distribution.requires or [] if "extra ==" not in r]
    return found


def main() -> None:
    """Print the tables."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    print("# Licences of the dependencies\n")
    print("Made with `make licences` from what is installed. evenhand is Apache-2.0, its copy of UCI Adult CC BY 4.0.")
    core = closure(project["dependencies"])
    optional = [r for name, listed in extras.items() if name not in {"dev", "docs", "all"} for r in listed]
    for title, packages in (("Core", core), ("Extras", closure(optional))):
        print(f"\n## {title}\n\n| package | version | licence |\n|---|---|---|")
        for name in sorted(set(packages) - (set(core) if title == "Extras" else set())):
            print(f"| {name} | {packages[name]} |")


if __name__ == "__main__":
    main()
