"""`evenhand audit`."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any


def audit(
    file: Path,
    /,
    *,
    sensitive: list[str],
    label: str | None = None,
    score: str | None = None,
    decision: str | None = None,
    criterion: list[str] | None = None,
    tolerance: float = 0.05,
    confidence: float = 0.95,
    threshold: float = 0.5,
    pos_label: str | None = None,
    weight: str | None = None,
    ignore_missing: bool = False,
    json: bool = False,
    report: Path | None = None,
    standard: str | None = None,
    reference: list[str] | None = None,
) -> int:
    """Audit the decisions of a table: rates by group with intervals, and a verdict on each criterion.

    evenhand audit scores.parquet --label y --score p --sensitive sex --criterion eo --tolerance 0.05

    Exit code 0: every verdict is "pass", or there is none. 1: one is "fail". 3: none fails, but one has insufficient
    evidence.

    Parameters
    ----------
    file
        A .csv, .csv.gz, .parquet or .arrow file, a folder or glob of .parquet files, an address, or - (standard input).
    sensitive
        A column of groups; repeat for several attributes.
    label
        The column of labels, with two values. Without it only selection rates are audited.
    score
        The column of probabilities; those above the threshold are positive decisions.
    decision
        The column of decisions, instead of a score.
    criterion
        The criteria: dp, eo, eop, pe or ap (or their full names), selection_ratio:0.8, minimum_rate:precision:0.8,
        maximum_rate:fpr:0.1 or budget:0.2; may be repeated; all parities by default. dp:0.02 sets a tolerance for this
        criterion; dp@sex applies to one attribute, dp@sex,race to the two crossed; "dp within occupation" compares
        groups inside each stratum of a column.
    tolerance
        The largest gap that passes.
    confidence
        The confidence level of the intervals.
    threshold
        The score above which a decision is positive.
    pos_label
        The positive label; 1 or true by default.
    weight
        A column of weights.
    ignore_missing
        Rows of unknown group count for accuracy but not for any group; otherwise they are an error.
    json
        Print JSON instead of a table.
    report
        Write an HTML report to this file.
    standard
        Compute the tables of a regulation instead: four-fifths (29 CFR 1607.4(D)) or nyc-144 (New York City's Local Law
        144, of decisions or of scores in any range). Not legal advice.
    reference
        With --standard: a group to compare the others with, as GROUP or ATTRIBUTE=GROUP.
    """
    from evenhand import tables
    from evenhand.auditing.audit import audit as audit_decisions
    from evenhand.cli import FAIL, INSUFFICIENT, PASS, columns, output
    from evenhand.cli.criterion import combine
    from evenhand.errors import InputError
    from evenhand.inputs import factorize

    output.check_outputs({"--report": report}, {"the table that is read": file})
    if (score is None) == (decision is None):
        raise InputError("Name the column to audit: either --score, with probabilities, or --decision.")
    if not sensitive:
        raise InputError("Name the column of groups with --sensitive.")
    wanted = combine(criterion, sensitive)
    inside = () if wanted is None else wanted.strata
    named = (label, *sensitive, score, decision, weight, *inside)
    table = tables.read_table(file, [name for name in named if name is not None])
    if standard is None and reference:
        raise InputError("--reference needs --standard.")
    groups = {name: tables.values_of(table, name) for name in sensitive}
    y: Any = None
    positive: Hashable = 1
    if label is not None:
        y = tables.values_of(table, label)
        positive = columns.positive_label(factorize(y, f"the column {label!r}")[0], pos_label, label)
    if score is not None:
        judged = tables.numbers_of(table, score)
        if not 0.0 <= threshold <= 1.0:
            raise InputError(f"--threshold must be between 0 and 1; got {threshold!r}.")
        if standard is None and not ((judged >= 0.0) & (judged <= 1.0)).all():
            raise InputError(f"The column {score!r} must contain probabilities between 0 and 1.")
        decided = judged > threshold
    else:
        assert decision is not None
        decided = judged = tables.values_of(table, decision)
        if y is None and pos_label is not None:
            positive = tables.value_from_text(pos_label, set(judged.tolist()), f"the column {decision!r}")
    labels = y, positive
    if y is not None and score is not None:
        y, positive = y == positive, True
    if standard is not None:
        from evenhand.cli.standard import say_standard

        if criterion or weight:
            raise InputError("--standard defines what is compared: leave out --criterion and --weight.")
        return say_standard(
            (None, judged, groups),
            standard,
            reference or [],
            confidence=confidence,
            threshold=threshold,
            pos_label=positive if score is None else 1,
            missing="ignore" if ignore_missing else "raise",
            json=json,
            report=None if report is None else (report, f"Audit of {file.name}"),
        )
    options: dict[str, Any] = {
        "criterion": wanted,
        "tolerance": tolerance,
        "confidence": confidence,
        "pos_label": positive,
        "sample_weight": None if weight is None else tables.numbers_of(table, weight),
        "missing": "ignore" if ignore_missing else "raise",
        "strata": {name: tables.values_of(table, name) for name in inside} or None,
    }
    found = audit_decisions(y, decided, groups, **options)
    if json:
        output.say_json(found.to_dict())
    else:
        output.say(str(found), verdicts=True)
    if report is not None:
        from evenhand.report import summarize, write_report

        source = output.provenance(file)
        title = f"Audit of {file.name}"
        options["pos_label"] = labels[1]
        summary = summarize(labels[0], groups, judged, threshold=threshold, title=title, provenance=source, **options)
        write_report(summary, report)
        if not json:
            output.say(f"\nThe report is in {report}")
    outcomes = {verdict.outcome for verdict in found.verdicts}
    return FAIL if "fail" in outcomes else INSUFFICIENT if "insufficient evidence" in outcomes else PASS
