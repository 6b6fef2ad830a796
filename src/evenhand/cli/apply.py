"""``evenhand apply``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def apply(
    rule: Path,
    file: Path,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    score: str | None = None,
    group_score: list[str] | None = None,
    joint_score: list[str] | None = None,
    prefix: str = "",
    keep: Annotated[bool, Parameter(negative="--no-keep")] = True,
    engine: Literal["duckdb", "spark"] | None = None,
) -> int:
    """Decide every row of a table by a rule, or by a whole classifier.

    evenhand apply rule.json new.parquet -o decided.parquet

    Adds the columns decision, fair_margin (the decision is positive iff it is above 0), flipped (whether the
    model alone would have decided otherwise) and bias_score_1, bias_score_2, ... Rows are read, decided and
    written in batches, so memory does not grow with the table. The output appears when it is complete, or not
    at all.

    Parameters
    ----------
    rule
        The JSON file that `fit` wrote, or the .skops file of `fit --features`.
    file
        A .csv, .parquet or .arrow table.
    output
        The table to write, in the format of its extension.
    score
        The column with the probability of the positive label, if it is not the one the rule was fitted on.
    group_score
        GROUP=COLUMN, as in `fit`, if they are not those the rule was fitted on.
    joint_score
        LABEL,GROUP=COLUMN, as in `fit`, if they are not those the rule was fitted on.
    prefix
        Put this before the names of the new columns.
    keep
        Whether the table's own columns are written too.
    engine
        Decide in duckdb or spark instead; the file may then be a glob, and spark's output is a folder.
    """
    import evenhand as eh
    from evenhand import tables
    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.cli.columns import which_columns
    from evenhand.cli.decided import write_decided
    from evenhand.engines.deciding import Decider
    from evenhand.errors import InputError

    out.check_outputs(
        {"--output": output},
        {"the rule that is read": rule, "the table that is read": tables.matching(file) if engine else file},
        folders="replaced" if engine == "spark" else None,
    )
    if rule.suffix.lower() == ".skops":
        from evenhand.cli.apply_classifier import apply_classifier

        if score or group_score or joint_score or engine:
            raise InputError(
                "A classifier computes its probabilities itself, in Python: leave out --score, --group-score,"
                " --joint-score and --engine."
            )
        return apply_classifier(rule, file, output, prefix=prefix, keep=keep)
    learned = eh.Rule.from_json(out.read_text(rule))
    if engine is not None:
        from evenhand.cli.engine import apply as apply_by_engine

        given = {"score": score, "group_score": group_score or [], "joint_score": joint_score or []}
        apply_by_engine(engine, learned, file, output, prefix=prefix, keep=keep, **given)  # type: ignore[arg-type]
        return PASS
    kind = tables.format_of(output)
    named = which_columns(learned, tables.open_table(file).names, score, group_score or [], joint_score or [])
    write_decided(
        Decider(learned, named.probabilities, prefix, keep),
        file,
        output,
        needed=named.needed(),
        numbers=named.numbers(),
        verbatim=kind == "csv",
    )
    return PASS
