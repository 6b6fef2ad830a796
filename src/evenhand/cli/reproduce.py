"""``evenhand reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def reproduce(
    *names: str,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("evenhand-experiments"),
    list_all: Annotated[bool, Parameter(name="--list")] = False,
    quick: bool = False,
    seeds: int = 3,
    first_seed: int = 0,
    settings: Literal["ours", "authors"] = "ours",
    data: Path | None = None,
    clip: str = "openai/clip-vit-base-patch32",
    weights: str | None = None,
    device: str = "cpu",
    tasks: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    without: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    epochs: int | None = None,
    image_size: int | None = None,
    batch_size: int | None = None,
    workers: int = 2,
    mixed_precision: bool | None = None,
    verify: bool = False,
    jobs: int = 1,
) -> int:
    """Reproduce the paper's figures and tables; without names, list them.

    A run that was stopped continues if the same command is run again.

    Parameters
    ----------
    names
        The experiments, or "all" for those that need no data except what evenhand includes or downloads.
    output
        The output directory, with a subdirectory for each experiment.
    list_all
        List the experiments: name, part of the paper, and requirements.
    quick
        Few rows and few epochs, to check that everything runs. The numbers are meaningless.
    seeds
        Independent repetitions.
    first_seed
        The seed of the first repetition; the others follow.
    settings
        How networks on Adult and COMPAS are trained: with our learning rate and stopping rule, or with those of the
        authors' code.
    data
        The directory of CelebA, for celeba-eo and clip; corrupted and regularised use it if it is given.
    clip
        A directory with CLIP's weights, or a name in the Hugging Face cache.
    weights
        A directory with ResNet-18's ImageNet weights, a name in the Hugging Face cache, or "none" to train from
        scratch. By default microsoft/resnet-18 if it is in the cache, else from scratch; the results say which.
    device
        torch's name of the device for images, such as cuda.
    tasks
        Tasks of celeba-eo, such as Attractive/Male Big_Nose/Young; all six by default.
    without
        Baselines of celeba-eo to leave out: H16, P22 (the slowest).
    epochs
        The maximum number of epochs on images; by default 20 for ResNet-18 and 100 for P22.
    image_size
        Pixels of the network's input; 128 by default, as in the paper.
    batch_size
        Images in a step of ResNet-18; 256 by default.
    workers
        Threads that decode images.
    mixed_precision
        Compute in bfloat16 where that is safe; by default on a GPU.
    verify
        Decode every image once before training, and stop if some cannot be decoded.
    jobs
        The number of parallel jobs.
    """
    import sys

    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.paper import experiments
    from evenhand.text import table_text

    if list_all or not names:
        rows = [[entry.name, entry.paper, entry.needs] for entry in experiments.EXPERIMENTS]
        out.say(table_text(["experiment", "paper", "needs"], rows, names=3))
        return PASS
    out.check_outputs({"--output": output}, {"the directory of --data": data}, folders="filled")
    chosen = [entry.name for entry in experiments.EXPERIMENTS if not entry.celeba] if names == ("all",) else names
    for name in chosen:
        experiments.find(name)
    how = experiments.Settings(
        output=output,
        seeds=seeds,
        first_seed=first_seed,
        authors=settings == "authors",
        quick=quick,
        jobs=jobs,
        images=experiments.ImageSettings(
            data=data,
            clip=clip,
            weights=weights,
            device=device,
            tasks=tasks,
            without=without,
            epochs=epochs,
            image_size=image_size,
            batch_size=batch_size,
            workers=workers,
            mixed_precision=mixed_precision,
            verify=verify,
        ),
    )
    for name in chosen:

        def progress(line: str, name: str = name) -> None:
            print(f"evenhand: {name}: {line}", file=sys.stderr, flush=True)

        files = experiments.reproduce(name, how, command=out.command_line(), say=progress)
        if quick:
            out.say(f"{name}: QUICK RUN, its numbers are meaningless.")
        out.say("\n".join(map(str, files)))
    return PASS
