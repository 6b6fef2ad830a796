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
    key: str | None = None,
    prefix: str = "",
    keep: Annotated[bool, Parameter(negative="--no-keep")] = True,
    engine: Literal["duckdb", "spark"] | None = None,
) -> int:
    """Decide every row of a table with a rule or a whole classifier.

    evenhand apply rule.json new.parquet -o decided.parquet

    Adds the columns decision, fair_margin (the decision is positive iff it is above 0), flipped (whether the decision
    differs from the model's own) and bias_score_1, bias_score_2, ... A mixture of `fit --randomize` has
    expected_decision, the probability of a positive decision, and lot instead of fair_margin: the decision is positive
    iff the lot is below the probability. Rows are read, decided and written in batches, so memory does not grow with
    the table. The output file is complete or absent.

    Parameters
    ----------
    rule
        The JSON file that `fit` wrote, or the .skops file of `fit --features`.
    file
        A .csv, .csv.gz, .parquet or .arrow file, a folder or glob of .parquet files, an address, or - (standard input).
    output
        The table to write, in the format of its extension.
    score
        The column with the probability of the positive label, if it is not the one the rule was fitted on.
    group_score
        GROUP=COLUMN, as in `fit`, if they are not those the rule was fitted on.
    joint_score
        LABEL,GROUP=COLUMN, as in `fit`, if they are not those the rule was fitted on.
    key
        The column, of whole numbers or text, that identifies a person: the same key always gets the same random draw.
        Only for a mixture; without it, the draw depends on the scores.
    prefix
        A prefix for the names of the new columns.
    keep
        Whether the table's own columns are also written.
    engine
        Decide in duckdb or spark instead; spark's output is a folder.
    """
    from evenhand import tables
    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.cli.columns import which_columns
    from evenhand.cli.decided import write_decided
    from evenhand.engines.deciding import Decider
    from evenhand.engines.source import check_key
    from evenhand.errors import InputError
    from evenhand.origins import format_of
    from evenhand.rules.mixture import read_rule

    out.check_outputs(
        {"--output": output},
        {"the rule that is read": rule, "the table that is read": file},
        folders="replaced" if engine == "spark" else None,
    )
    if rule.suffix.lower() == ".skops":
        from evenhand.cli.apply_classifier import apply_classifier

        if score or group_score or joint_score or engine:
            raise InputError(
                "A classifier computes its own probabilities, in Python: leave out --score, --group-score,"
                " --joint-score and --engine."
            )
        return apply_classifier(rule, file, output, key=key, prefix=prefix, keep=keep)
    learned = read_rule(out.read_text(rule))
    check_key(learned, key)
    if engine is not None:
        from evenhand.cli.engine import apply as apply_by_engine

        given = {"score": score, "group_score": group_score or [], "joint_score": joint_score or []}
        apply_by_engine(engine, learned, file, output, key=key, prefix=prefix, keep=keep, **given)  # type: ignore[arg-type]
        out.say(f"The decided table is in {output}")
        return PASS
    kind = format_of(output, write=True)
    named = which_columns(learned, tables.open_table(file).names, score, group_score or [], joint_score or [])
    write_decided(
        Decider(learned, named.probabilities, prefix, keep, key),
        file,
        output,
        needed=list(dict.fromkeys([*named.needed(), *([] if key is None else [key])])),
        numbers=named.numbers(),
        verbatim=kind == "csv",
    )
    return PASS
