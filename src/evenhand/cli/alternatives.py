"""`evenhand alternatives`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from evenhand.cli.score_columns import ScoreColumns

if TYPE_CHECKING:
    from evenhand.auditing.alternatives import Part
    from evenhand.rules.rule import Rule
    from evenhand.rules.setting import Options


def alternatives(
    file: Path,
    /,
    *,
    columns: ScoreColumns,
    decision: str | None = None,
    rule: Path | None = None,
    other_score: list[str] | None = None,
    criterion: list[str] | None = None,
    margin: float = 0.0,
    reduction: float = 0.0,
    held_out: float = 0.3,
    test: Path | None = None,
    confidence: float = 0.95,
    costs: tuple[float, float] | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: bool = False,
    report: Path | None = None,
    seed: int = 0,
) -> int:
    """Search for a fairer rule that is as good as a table's decisions: find one, or prove that there is none.

    evenhand alternatives val.parquet --label y --score p --sensitive sex --group-score Female=p_female --margin 0.005

    Exit code 0: refuted, no rule in the family is as good and has a smaller gap. 1: found. 3: open, neither was shown.

    Parameters
    ----------
    file
        A .csv, .parquet or .arrow table.
    columns
        The columns of labels, groups and probabilities.
    decision
        The column of present decisions. By default the model's own decisions, or those of --rule.
    rule
        Use the decisions of this rule, as written by fit.
    other_score
        NAME=COLUMN: the probabilities of another model, whose rules also count as alternatives; may be repeated. The
        probabilities of the groups are the same.
    criterion
        dp, eo, eop, pe or ap (or their full names), selection_ratio:0.8, minimum_rate:precision:0.8,
        maximum_rate:fpr:0.1 or budget:0.2; repeat to combine several; dp by default. dp:0.02 sets a tolerance for this
        criterion; dp@sex applies to one attribute, dp@sex,race to the two crossed; "dp within job" compares groups
        inside each stratum of a column.
    margin
        How much less accuracy an alternative may have: 0.01 is one point.
    reduction
        The smallest reduction of the gap that counts.
    held_out
        The share of the rows that are not searched, and on which the answer is measured; 0 for none.
    test
        Measure the answer on this table instead, and search all rows of the first one.
    confidence
        The confidence level of the intervals on those rows.
    costs
        The cost of a false positive and of a false negative, instead of plain accuracy.
    output
        Write the alternative rule to this file, as JSON.
    json
        Print JSON instead of sentences.
    report
        Write an HTML report on the present decisions, with the answer, to this file.
    seed
        The random seed.
    """
    from evenhand.auditing.alternatives import Question, check_amount, check_linear_in_decisions, hold_out
    from evenhand.cli import FAIL, INSUFFICIENT, PASS
    from evenhand.cli import output as out
    from evenhand.cli.criterion import combine
    from evenhand.errors import InputError
    from evenhand.files import write_text
    from evenhand.rules.rule import Rule
    from evenhand.rules.scores import read_costs
    from evenhand.rules.setting import Options
    from evenhand.statistics.intervals import check_confidence

    reads = {"the table that is read": file, "the table of --test": test, "the rule": rule}
    out.check_outputs({"--output": output, "--report": report}, reads)
    check_amount(margin, "--margin")
    check_amount(reduction, "--reduction")
    check_confidence(confidence)
    if decision is not None and rule is not None:
        raise InputError("Give either --decision or --rule, not both.")
    wanted = combine(criterion or ["demographic_parity"], columns.sensitive)
    assert wanted is not None
    check_linear_in_decisions(wanted)
    options = Options(criterion=wanted, costs=read_costs(costs), missing=columns.missing, random_state=seed)
    judged = None if rule is None else Rule.from_json(out.read_text(rule))
    searched = _read(file, columns, options, decision, judged, other_score or [])
    tested = None
    if test is not None:
        tested = _read(test, columns, options, decision, judged, other_score or [], searched)
    else:
        held = hold_out(held_out, next(iter(searched.families.values())), seed)
        searched, tested = searched.take(~held), searched.take(held) if held.any() else None
    found = Question(options, margin, reduction, confidence).answer(searched, tested)
    if json:
        out.say_json(found.to_dict())
    else:
        out.say(str(found), verdicts=True)
    if output is not None and found.rule is not None:
        write_text(output, found.rule.to_json())
        if not json:
            out.say(f"\nThe rule is in {output}")
    if report is not None:
        from evenhand.report import write_report
        from evenhand.report.alternatives import with_alternatives
        from evenhand.report.summarize import summarize_rows

        part = searched if tested is None else tested
        summary = summarize_rows(
            next(iter(part.families.values())),
            None,
            criterion=wanted,
            decided=part.judged,
            confidence=confidence,
            held_out=tested is not None,
            title=f"Alternatives to the decisions of {file.name}",
            provenance=out.provenance(test or file),
        )
        write_report(with_alternatives(summary, found), report)
        if not json:
            out.say(f"\nThe report is in {report}")
    return {"found": FAIL, "refuted": PASS, "open": INSUFFICIENT}[found.status]


def _read(
    path: Path,
    columns: ScoreColumns,
    options: Options,
    decision: str | None,
    rule: Rule | None,
    others: list[str],
    like: Part | None = None,
) -> Part:
    """Return the rows of a table with each model's probabilities, and the present decisions."""
    from evenhand import tables
    from evenhand.auditing.alternatives import OWN, Part, decisions_of
    from evenhand.cli.columns import read_scores
    from evenhand.errors import InputError
    from evenhand.inputs import read_probabilities

    groups = None if like is None else like.families[OWN].groups
    rows, _ = read_scores(path, columns, options.criterion, groups)
    families = {OWN: rows}
    for text in others:
        name, found, column = text.partition("=")
        if not found or not name or name in families:
            raise InputError(f"--other-score {text!r}: write NAME=COLUMN, with a different name for each model.")
        read = tables.numbers_of(tables.read_table(path, [column]), column)
        families[name] = dataclasses.replace(rows, p_y=read_probabilities(read, f"the column {column!r}"))
    given: Any = None
    if decision is not None:
        given = tables.values_of(tables.read_table(path, [decision]), decision)
    return Part(families, decisions_of(rows, given, rule, options))
