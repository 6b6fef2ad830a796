"""``evenhand demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def demo(
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("evenhand-report.html"),
    tolerance: float = 0.10,
    seed: int = 0,
) -> int:
    """Train on the embedded Adult data, audit it, make it fair, and write the report.

    Parameters
    ----------
    output
        The path of the report.
    tolerance
        The largest allowed difference of rates.
    seed
        The random seed.
    """
    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.demo import run_demo

    out.check_outputs({"--output": output})
    run_demo(output, tolerance=tolerance, random_state=seed, say=out.say)
    return PASS
