"""Table 2: p(Y, A | x) from CLIP's similarity to four prompts, without any training, as the auxiliary model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import evenhand as eh
from evenhand.paper.experiments import images, splits
from evenhand.paper.experiments.published import CLIP
from evenhand.paper.experiments.results import Cell, Report, Table, delta_text, grouped, percent
from evenhand.paper.experiments.running import Kept, Unit
from evenhand.paper.experiments.settings import Settings
from evenhand.paper.experiments.splits import PAPER_TOLERANCES

TASK = {"target": "Attractive", "sensitive": "Male"}
SEARCHES: dict[str, Any] = {"MBS (Algorithm 3)": eh.Directions(n=360), "MBS (certified)": "certified"}


def units(name: str, settings: Settings) -> list[Unit]:
    """Return CLIP's probabilities, then for each seed the training of p(Y|x) and the searches."""
    where = {**TASK, **images.where(settings)}
    zero_shot, model = "CLIP", settings.images.clip
    if Path(model).is_dir():
        model = str(Path(model).resolve())
    made = [Unit(zero_shot, similarities, {**where, "model": model}, aside={"device": settings.images.device})]
    for seed in settings.seed_numbers:
        trained = f"seed {seed}: ResNet-18"
        options = {**TASK, **images.options_of(settings), "seed": seed, "learns": "y"}
        made.append(Unit(trained, images.train, options, aside=images.running_of(settings)))
        for method in SEARCHES:
            unit = Unit(
                f"seed {seed}: {method}", modify, {**where, "seed": seed, "method": method}, (zero_shot, trained)
            )
            made.append(unit)
    return made


def similarities(states: Path, needed: Sequence[Kept], *, model: str, device: str, quick: bool, **where: Any) -> Kept:
    """Return p(Y, A | x) of validation and test images, with the groups in the order (absent, present)."""
    from evenhand.paper.models import CLIPZeroShot

    auxiliary = CLIPZeroShot(model=model, device=device)
    data = images.load(**where)
    order = [auxiliary.groups_.index("not Male"), auxiliary.groups_.index("Male")]
    rows = images.parts(**where, quick=quick)
    parts = zip(images.PARTS[1:], rows[1:], strict=True)
    return Kept(arrays={part: auxiliary.joint_proba(data.X[at])[:, :, order] for part, at in parts})


def modify(states: Path, needed: Sequence[Kept], *, method: str, seed: int, **where: Any) -> Kept:
    """Learn the rule on validation rows from the trained p(Y|x) and CLIP's p(Y, A | x)."""
    joint, label = (found.arrays for found in needed)
    learn, test = (images.rows_of(part, label[part][:, 1], joint[part], **where) for part in images.PARTS[1:])
    found = splits.learn_and_measure(
        learn, test, "eo", priors=label["priors"].reshape(2, 2), search=SEARCHES[method], tolerances=PAPER_TOLERANCES
    )
    return Kept([{"seed": seed, "method": method, **record} for record in found])


def report(name: str, settings: Settings, kept: Mapping[str, Kept]) -> Report:
    """Return Table 2 beside the paper's."""
    records = [record for found in kept.values() for record in found.records]
    rows: list[list[Cell]] = []
    for part, prefix in (("validation", "learn_"), ("test", "")):
        for (method, _), found in grouped(records, "method", "delta").items():
            label = delta_text(found[0]["delta"])
            theirs: Sequence[Cell] = CLIP[part][label] if method == "MBS (Algorithm 3)" else (None, None)
            accuracy, gap = percent(found, f"{prefix}accuracy"), percent(found, f"{prefix}gap")
            rows.append([part, str(method), label, accuracy, theirs[0], gap, theirs[1]])
    heads = ("part", "method", "δ", "accuracy", "paper's accuracy", "EO", "paper's EO")
    notes = [
        images.rows_note(kept),
        images.start_note(settings),
        f"{settings.seeds} seeds of p(Y|x), mean ± standard error, in %. CLIP's weights: {settings.images.clip}.",
    ]
    title = "Table 2: target Attractive, sensitive Male, p(Y,A|x) from CLIP"
    return Report(
        "zero-shot CLIP as the auxiliary model", [Table("table-2", title, heads, rows, digits=1)], notes=notes
    )
