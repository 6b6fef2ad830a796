"""``evenhand reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def reproduce(
    *names: str,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("evenhand-experiments"),
) -> int:
    """Make the paper's figures and tables again; without names, list them.

    Parameters
    ----------
    names
        The experiments.
    output
        The directory for what they write.
    """
    import importlib

    from evenhand.errors import InputError

    try:
        experiments = importlib.import_module("evenhand.experiments")
    except ImportError:
        raise InputError("This installation of evenhand does not contain the paper's experiments.") from None
    code: int = experiments.main([*names, "--output", str(output)])
    return code
