"""`evenhand frontier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from evenhand.cli.score_columns import ScoreColumns


def frontier(
    file: Path,
    /,
    *,
    columns: ScoreColumns,
    criterion: list[str] | None = None,
    tolerances: list[float] | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: bool = False,
    safety: float = 0.0,
    objective: str = "accuracy",
    costs: tuple[float, float] | None = None,
    report: Path | None = None,
    tolerance: float = 0.05,
    seed: int = 0,
) -> int:
    """Show the best accuracy (or other objective) at each of several tolerances.

    evenhand frontier val.parquet --label y --score p --sensitive sex --group-score Female=p_female

    Parameters
    ----------
    file
        A .csv, .csv.gz, .parquet or .arrow file, a folder or glob of .parquet files, an address, or - (standard input).
    columns
        The columns of labels, groups and probabilities.
    criterion
        dp, eo, eop, pe, ap or pp (or their full names), selection_ratio:0.8, minimum_rate:precision:0.8,
        maximum_rate:fpr:0.1, minimax_rate:error or budget:0.2; repeat to combine several; dp by default.
        dp:0.02 sets a tolerance for this criterion; dp@sex applies to one attribute, dp@sex,race to the two crossed.
    tolerances
        The tolerances; may be repeated. By default from 0 to the gap of the model alone.
    output
        Write the table to this file: .csv, .parquet or .arrow.
    json
        Print JSON instead of a table.
    safety
        Tighten each bound by this number of standard errors, as fit does by default.
    objective
        What is maximised: accuracy, balanced_accuracy, or an F score such as f1, f2 or f0.5.
    costs
        The cost of a false positive and of a false negative, instead of plain accuracy.
    report
        Write an HTML report to this file.
    tolerance
        The tolerance that the report shows first.
    seed
        The random seed.
    """
    from evenhand import tables
    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.cli.columns import read_scores
    from evenhand.cli.criterion import combine
    from evenhand.errors import InputError
    from evenhand.origins import format_of
    from evenhand.rules.criteria import check_tolerance
    from evenhand.rules.frontier import frontier_of
    from evenhand.rules.scores import read_costs
    from evenhand.rules.setting import Options
    from evenhand.text import table_text

    out.check_outputs({"--output": output, "--report": report}, {"the table that is read": file})
    if output is not None:
        format_of(output, write=True)
    check_tolerance(tolerance)
    wanted = combine(criterion or ["demographic_parity"], columns.sensitive)
    assert wanted is not None
    options = Options(
        criterion=wanted,
        safety=safety,
        objective=objective,
        costs=read_costs(costs),
        missing=columns.missing,
        random_state=seed,
    )
    rows, _ = read_scores(file, columns, wanted)
    curve = frontier_of(rows, options, tolerances)
    if not len(curve):
        raise InputError("No rule was found for any of these tolerances: use larger ones.")
    table = curve.table()
    if json:
        base = {
            "objective": options.target.name,
            "base": {"utility": curve.base_utility, "gap": curve.base_gap},
            "unreachable": list(curve.unreachable),
            "not_found": list(curve.not_found),
        }
        out.say_json({**table, **base})
    else:
        lines = [[f"{value:.4f}" for value in row] for row in zip(*table.values(), strict=True)]
        lines.append(["model alone", f"{curve.base_utility:.4f}", f"{curve.base_gap:.4f}", ""])
        out.say(table_text(list(table), lines, indent="  "))
    if output is not None:
        tables.write_table(output, table)
    if report is not None:
        from evenhand.report import write_report
        from evenhand.report.summarize import summarize_rows

        title, source = f"The trade-off on {file.name}", out.provenance(file)
        summary = summarize_rows(rows, curve, tolerance=tolerance, title=title, provenance=source)
        write_report(summary, report)
        if not json:
            out.say(f"\nThe report is in {report}")
    return PASS
