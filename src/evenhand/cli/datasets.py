"""``evenhand datasets``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

_KNOWN = {
    "adult": "embedded: income above 50,000 dollars; sex and race; 45,222 rows",
    "compas": "downloaded once: charged again within two years; race; 5,278 rows",
    "zafar": "generated: two normal distributions, with the true probabilities; 10,000 rows",
}


def datasets(
    name: Literal["adult", "compas", "zafar"] | None = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    seed: int = 0,
) -> int:
    """List the data sets, or write one to a file.

    Parameters
    ----------
    name
        The data set.
    output
        Write it to this .csv, .parquet or .arrow file.
    seed
        The random seed of a generated data set.
    """
    import numpy as np

    import evenhand as eh
    from evenhand import tables
    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.origins import format_of

    if output is not None:
        out.check_outputs({"--output": output})
        format_of(output, write=True)
    if name is None:
        width = max(map(len, _KNOWN))
        out.say("\n".join(f"{known.ljust(width)}  {words}" for known, words in _KNOWN.items()))
        return PASS
    if name == "zafar":
        made = eh.datasets.make_zafar(10_000, random_state=seed)
        columns = {f"x{i + 1}": made.X[:, i] for i in range(made.X.shape[1])}
        columns |= {"y": np.asarray(made.y), "group": np.asarray(made.group), "p_y": made.p_y}
        columns |= {f"p_{label}_{group}": made.p_joint[:, label, group] for label in (0, 1) for group in (0, 1)}
    else:
        columns = dict((eh.datasets.load_adult() if name == "adult" else eh.datasets.fetch_compas()).frame)
    if output is None:
        out.say(f"{name}: {_KNOWN[name]}\ncolumns: {', '.join(columns)}\nWrite it with --output {name}.parquet")
        return PASS
    tables.write_table(output, columns)
    out.say(f"{len(next(iter(columns.values()))):,} rows are in {output}")
    return PASS
