"""The list of experiments, and how one is run."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import InputError, MissingExtraError
from evenhand.paper.experiments.running import Kept, Store, run
from evenhand.paper.experiments.settings import Settings

# The packages of each extra that an experiment needs.
_PACKAGES = {
    "report": ("altair", "vl_convert"),
    "torch": ("torch", "skorch", "transformers", "PIL"),
    "experiments": ("torch", "skorch", "fairlearn"),
}


@dataclass(frozen=True)
class Entry:
    """One experiment.

    Parameters
    ----------
    name : str
        Its name for ``evenhand reproduce``.
    paper : str
        The figure, table or statement of the paper that it reproduces.
    module : str
        The module of this package that has it.
    extras : tuple of str
        evenhand's extras that it needs.
    celeba, clip : bool, default=False
        Whether it needs the images of CelebA and CLIP's weights.
    """

    name: str
    paper: str
    module: str
    extras: tuple[str, ...]
    celeba: bool = False
    clip: bool = False

    @property
    def needs(self) -> str:
        """Its requirements, in words."""
        extras = f"evenhand[{','.join(self.extras)}]"
        return extras + ", CelebA (--data)" * self.celeba + ", CLIP weights (--clip)" * self.clip

    def check(self, settings: Settings) -> None:
        """Raise if something is missing, before hours are spent."""
        for extra in self.extras:
            for package in _PACKAGES[extra]:
                if importlib.util.find_spec(package) is None:
                    raise MissingExtraError(f"evenhand reproduce {self.name}", package.replace("_", "-"), extra)
        if settings.authors and self.module != "tabular":
            named = ", ".join(entry.name for entry in EXPERIMENTS if entry.module == "tabular")
            raise InputError(f"The authors' settings are for the networks of {named}, not for {self.name}.")
        if self.celeba and settings.images.data is None:
            raise InputError(f"{self.name} needs the images of CelebA: evenhand reproduce {self.name} --data DIR.")
        if self.uses_images(settings):
            from evenhand.paper.experiments import images

            images.check(settings)

    def uses_images(self, settings: Settings) -> bool:
        """Return whether networks are trained on images."""
        return settings.images.data is not None and (self.celeba or self.module in ("corrupted", "regularised"))


_TABLES = ("experiments", "report")
EXPERIMENTS = (
    Entry("synthetic", "Figure 1", "synthetic", ("report",)),
    Entry("adult-dp", "Figure 2 (a)", "tabular", _TABLES),
    Entry("compas-dp", "Figure 2 (b)", "tabular", _TABLES),
    Entry("adult-eo", "Figure 2 (c)", "tabular", _TABLES),
    Entry("compas-eo", "Figure 2 (d)", "tabular", _TABLES),
    Entry("celeba-eo", "Table 1, Tables 3 to 8", "celeba", _TABLES, celeba=True),
    Entry("corrupted", "Figures 3 and 4", "corrupted", ("torch", "report")),
    Entry("regularised", "Figure 5", "regularised", ("torch", "report")),
    Entry("clip", "Table 2", "clip", ("torch", "report"), celeba=True, clip=True),
    Entry("reductions", "Figure 6", "reductions", _TABLES),
    Entry("composite", "Example 3", "composite", ("torch", "report")),
    Entry("sensitivity", "Theorem 2", "sensitivity", ("report",)),
)


def find(name: str) -> Entry:
    """Return an experiment by its name."""
    names = [entry.name for entry in EXPERIMENTS]
    if name in names:
        return EXPERIMENTS[names.index(name)]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}."
    raise InputError(f"There is no experiment {name!r}: {hint}")


def reproduce(
    name: str, settings: Settings, *, command: str = "", say: Callable[[str], None] = lambda line: None
) -> list[Path]:
    """Run an experiment, or the rest of it, and write its results.

    Parameters
    ----------
    name : str
        The experiment.
    settings : Settings
        How to run it.
    command : str, default=""
        The command, for the results.
    say : callable, default=None
        Called with a line for each finished piece.

    Returns
    -------
    list of Path
        The files that were written, in ``settings.output / name`` (``name-quick`` for a quick run, ``name-authors``
        with the authors' settings).
    """
    entry = find(name)
    entry.check(settings)
    module: Any = importlib.import_module(f"evenhand.paper.experiments.{entry.module}")
    from evenhand.paper.experiments.writing import write

    pieces = module.units(name, settings)
    if settings.images.verify and entry.uses_images(settings):
        from evenhand.paper.experiments import images

        images.verify(settings, say)
    directory = settings.output / (name + "-authors" * settings.authors + "-quick" * settings.quick)
    started = time.perf_counter()

    def write_results(kept: dict[str, Kept]) -> list[Path]:
        facts = {
            "name": name,
            "paper": entry.paper,
            "command": command,
            "quick": settings.quick,
            "settings": "authors" if settings.authors else "ours",
            "seeds": list(settings.seed_numbers),
            "seconds_of_this_run": round(time.perf_counter() - started, 1),
            "seconds_of_units": {unit: round(found.seconds, 2) for unit, found in kept.items()},
        }
        records = [row for found in kept.values() for row in found.records]
        return write(module.report(name, settings, kept), directory, name, facts, records=records)

    def write_so_far(kept: dict[str, Kept]) -> None:
        say(f"tables of what is there so far: {write_results(kept)[0]}")

    kept = run(pieces, Store(directory), jobs=settings.jobs, say=say, after_stage=write_so_far)
    return write_results(kept)
