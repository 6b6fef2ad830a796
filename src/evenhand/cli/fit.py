"""`evenhand fit` and `evenhand frontier`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from evenhand.cli.columns import Scored
    from evenhand.rules.criteria import Criterion
    from evenhand.rules.frontier import Frontier
    from evenhand.rules.rule import Rule

STEPS = 19


@Parameter(name="*")
@dataclasses.dataclass(kw_only=True)
class ScoreColumns:
    """Where the labels, groups and probabilities are."""

    label: str
    "The column of labels, with two values."

    sensitive: list[str]
    "A column of groups; several times for several attributes, each of which must meet the criterion."

    score: str | None = None
    "The column with the probability of the positive label, from a model that has not seen these rows."

    group_score: list[str] = dataclasses.field(default_factory=list)
    "GROUP=COLUMN: the column with the probability of a group. Once for each group; one may be left out."

    joint_score: list[str] = dataclasses.field(default_factory=list)
    "LABEL,GROUP=COLUMN: the probability of a label together with a group, for eo, eop and pe."

    pos_label: str | None = None
    "The positive label; 1 or true by default."

    weight: str | None = None
    "A column of weights."

    ignore_missing: bool = False
    "Rows of unknown group count for accuracy and for no group; otherwise they are an error."

    def read(self, path: Path, criterion: Criterion | None = None) -> Scored:
        """Read them from a table; the criterion says of which attributes probabilities are needed."""
        from evenhand.cli.columns import read_scored
        from evenhand.errors import InputError

        if self.score is None:
            raise InputError("Say which column holds the probability of the positive label, with --score.")
        return read_scored(
            path,
            label=self.label,
            score=self.score,
            sensitive=self.sensitive,
            group_score=self.group_score,
            joint_score=self.joint_score,
            weight=self.weight,
            pos_label=self.pos_label,
            criterion=criterion,
        )

    def options(self, data: Scored) -> dict[str, Any]:
        """Return the options that learning and reporting share."""
        return {
            "sample_weight": data.weight,
            "pos_label": data.pos_label,
            "missing": "ignore" if self.ignore_missing else "raise",
        }


def fit(
    file: Path,
    /,
    *,
    columns: ScoreColumns,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    criterion: list[str] | None = None,
    tolerance: float = 0.05,
    search: Literal["certified", "directions", "lines", "dual", "smoothed"] = "certified",
    confidence: float | None = None,
    costs: tuple[float, float] | None = None,
    features: list[str] | None = None,
    test: Path | None = None,
    report: Path | None = None,
    card: Path | None = None,
    seed: int = 0,
    engine: Literal["duckdb", "spark"] | None = None,
) -> int:
    """Learn the most accurate rule that meets a criterion, from columns of probabilities.

    evenhand fit val.parquet --label y --score p --sensitive sex --group-score Female=p_female -o rule.json

    Equalized odds, equal opportunity and predictive equality need the probabilities of label and group
    together: --joint-score 0,Female=p0f --joint-score 0,Male=p0m --joint-score 1,Female=p1f. One of them may
    be left out: it is what the others leave of 1. A group that two attributes share is written
    sex:Female=p_female.

    Parameters
    ----------
    file
        A .csv, .parquet or .arrow table.
    columns
        Where the labels, groups and probabilities are.
    output
        Write the rule to this file, as JSON. With --features: the whole classifier, as .skops.
    criterion
        dp, eo, eop or pe (or their full names), selection_ratio:0.8, minimum_rate:tpr:0.7 or budget:0.2; several
        times for several at once; dp by default. dp:0.02 has a tolerance of its own; dp@sex speaks of one
        attribute, dp@sex,race of the two crossed.
    tolerance
        The largest allowed difference of rates.
    search
        How the rule is found.
    confidence
        Promise that the criterion holds in the population with this probability.
    costs
        The cost of a false positive and of a false negative, instead of plain accuracy.
    features
        Train the models on these columns, cross-fitted, instead of reading probabilities. * takes all others.
    test
        Judge the rule on this table, whose rows took no part, instead of on the rows it was learnt from.
    report
        Write an HTML report to this file.
    card
        Write a model card, as Markdown, to this file.
    seed
        For everything that is drawn at random.
    engine
        Learn where the data is, for tables that do not fit in memory: duckdb on one machine, spark on a cluster.
    """
    from evenhand import tables
    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.cli.criterion import combine
    from evenhand.errors import InputError
    from evenhand.files import write_text
    from evenhand.rules.criteria import check_tolerance, write_out
    from evenhand.rules.learn import learn_rule

    out.check_outputs(
        {"--output": output, "--report": report, "--card": card},
        {"the table that is read": tables.matching(file) if engine else file, "the table of --test": test},
    )
    check_tolerance(tolerance)
    wanted = combine(criterion or ["demographic_parity"], columns.sensitive)
    assert wanted is not None
    if engine is not None:
        if output is None or features or test or report or card or confidence is not None:
            raise InputError(
                "--engine learns a rule and writes it with --output; --features, --test, --report, --card and"
                " --confidence are for tables that fit in memory."
            )
        from evenhand.cli import engine as engines

        found = engines.learn(
            engine, file, columns, criterion=wanted, tolerance=tolerance, search=search, costs=costs, random_state=seed
        )
        out.say(engines.summary(found))
        write_text(output, found.to_json())
        out.say(f"\nThe rule is in {output}")
        return PASS
    if features:
        from evenhand.cli.train import train

        return train(
            file,
            columns,
            features,
            output,
            criterion=wanted,
            test=test,
            report=report,
            card=card,
            tolerance=tolerance,
            search=search,
            confidence=confidence,
            costs=costs,
            random_state=seed,
        )
    if output is None and report is None and card is None:
        raise InputError("Say where the rule goes, with --output rule.json.")
    data = columns.read(file, wanted)
    options = {
        **columns.options(data),
        "criterion": wanted,
        "groups": data.groups,
        "costs": costs,
        "search": search,
    }
    rule = learn_rule(
        data.y,
        data.sensitive,
        data.p_y,
        data.p_group,
        tolerance=tolerance,
        confidence=confidence,
        random_state=seed,
        **options,
    )
    rule = dataclasses.replace(rule, learned_from={**rule.learned_from, "columns": data.columns})
    judged = data if test is None else columns.read(test, wanted)
    out.say(
        _before_and_after(rule, judged, columns, "held-out rows" if test else "the rows it was learnt from"),
        verdicts=True,
    )
    if output is not None:
        write_text(output, rule.to_json())
        out.say(f"\nThe rule is in {output}")
    if report is not None:
        from evenhand.report import summarize, write_report

        moves = write_out(wanted, rule.groups).moves
        along = _with_tolerance(data, tolerance, seed, options) if confidence is None and moves else rule
        source = {**out.provenance(test or file)}
        if test is not None:
            source["learnt from"] = f"{file.name}, {len(data.p_y):,} rows"
        summary = summarize(
            judged.y,
            judged.sensitive,
            judged.p_y,
            judged.p_group,
            along,
            tolerance=tolerance,
            held_out=test is not None,
            title=f"Fair decisions for {(test or file).name}",
            provenance=source,
            **columns.options(judged),
        )
        write_report(summary, report)
        out.say(f"The report is in {report}")
    if card is not None:
        from evenhand.report import rule_card

        text = rule_card(
            rule,
            judged.y,
            judged.sensitive,
            judged.p_y,
            judged.p_group,
            held_out=test is not None,
            data=file.name,
            provenance=out.provenance(test or file),
            **columns.options(judged),
        )
        write_text(card, text)
        out.say(f"The model card is in {card}")
    return PASS


def _with_tolerance(data: Scored, tolerance: float, seed: int, options: dict[str, Any]) -> Frontier:
    """Return the frontier on its usual tolerances and on the one that is asked for."""
    from evenhand.rules.frontier import frontier, tolerance_ladder

    rows = (data.y, data.sensitive, data.p_y, data.p_group)
    gap = frontier(*rows, tolerances=[tolerance], random_state=seed, **options).base_gap
    ladder = sorted({*tolerance_ladder(gap, STEPS), tolerance})
    return frontier(*rows, tolerances=ladder, random_state=seed, **options)


def _before_and_after(rule: Rule, data: Scored, columns: ScoreColumns, where: str) -> str:
    from evenhand.report import summarize

    summary = summarize(
        data.y,
        data.sensitive,
        data.p_y,
        data.p_group,
        rule,
        tolerance=rule.tolerance or 0.0,
        **columns.options(data),
    )
    return before_and_after_text(summary, where)


def before_and_after_text(summary: dict[str, Any], where: str) -> str:
    """Return a summary's verdicts and rates by group, before and after, as text."""
    from evenhand.cli.output import table_text
    from evenhand.text import short_name

    base, step = summary["base"], summary["steps"][summary["chosen"]]

    def shown(estimate: dict[str, float | None] | None) -> str:
        if estimate is None or estimate["value"] is None:
            return "no rows"
        return f"{estimate['value']:.3f} ({estimate['lower']:.3f} to {estimate['upper']:.3f})"

    rows = [["accuracy", shown(base["accuracy"]), shown(step["accuracy"]), ""]]
    for before, after in zip(base["verdicts"], step["verdicts"], strict=True):
        name = f"{after['criterion'].replace('_', ' ')} gap, {short_name(after['attribute'] or 'everyone')}"
        rows.append(
            [
                name,
                shown(before["gap"]),
                shown(after["gap"]),
                f"{after['outcome']} (at most {after['tolerance']:g})",
            ]
        )
    for before, after in zip(base["groups"], step["groups"], strict=True):
        for rate in ("selection_rate", "true_positive_rate", "false_positive_rate"):
            name = f"{rate.replace('_', ' ')}, {short_name(after['attribute'])}={short_name(after['group'])}"
            rows.append([name, shown(before[rate]), shown(after[rate]), ""])
    heading = (
        f"On {where} ({summary['rows']:,}), with {100 * summary['confidence']:g}% intervals;"
        f" {step['flipped']:,} decisions changed:"
    )
    return f"{heading}\n{table_text(['', 'the model alone', 'fair', 'verdict'], rows)}"


def frontier(
    file: Path,
    /,
    *,
    columns: ScoreColumns,
    criterion: list[str] | None = None,
    tolerances: list[float] | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: bool = False,
    costs: tuple[float, float] | None = None,
    report: Path | None = None,
    tolerance: float = 0.05,
    seed: int = 0,
) -> int:
    """Show the best accuracy at each of a ladder of tolerances.

    evenhand frontier val.parquet --label y --score p --sensitive sex --group-score Female=p_female

    Parameters
    ----------
    file
        A .csv, .parquet or .arrow table.
    columns
        Where the labels, groups and probabilities are.
    criterion
        dp, eo, eop or pe (or their full names), selection_ratio:0.8, minimum_rate:tpr:0.7 or budget:0.2; several
        times for several at once; dp by default. dp:0.02 has a tolerance of its own; dp@sex speaks of one
        attribute, dp@sex,race of the two crossed.
    tolerances
        The tolerances; several times for several. By default from 0 to the gap of the model alone.
    output
        Write the table to this file: .csv, .parquet or .arrow.
    json
        Print JSON instead of a table.
    costs
        The cost of a false positive and of a false negative, instead of plain accuracy.
    report
        Write an HTML report to this file.
    tolerance
        The tolerance that the report shows first.
    seed
        For everything that is drawn at random.
    """
    from evenhand import tables
    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.cli.criterion import combine
    from evenhand.errors import InputError
    from evenhand.rules.criteria import check_tolerance
    from evenhand.rules.frontier import frontier as draw_frontier

    out.check_outputs({"--output": output, "--report": report}, {"the table that is read": file})
    if output is not None:
        tables.format_of(output)
    check_tolerance(tolerance)
    wanted = combine(criterion or ["demographic_parity"], columns.sensitive)
    data = columns.read(file, wanted)
    options = {
        **columns.options(data),
        "criterion": wanted,
        "groups": data.groups,
    }
    options["costs"] = costs
    curve = draw_frontier(
        data.y, data.sensitive, data.p_y, data.p_group, tolerances=tolerances, random_state=seed, **options
    )
    if not len(curve):
        raise InputError("No rule was found for any of these tolerances: ask for larger ones.")
    table = curve.table()
    if json:
        base = {
            "base": {"utility": curve.base_utility, "gap": curve.base_gap},
            "unreachable": list(curve.unreachable),
            "not_found": list(curve.not_found),
        }
        out.say_json({**table, **base})
    else:
        rows = [[f"{value:.4f}" for value in row] for row in zip(*table.values(), strict=True)]
        rows.append(["model alone", f"{curve.base_utility:.4f}", f"{curve.base_gap:.4f}", ""])
        out.say(out.table_text(list(table), rows))
    if output is not None:
        tables.write_table(output, table)
    if report is not None:
        from evenhand.report import summarize, write_report

        summary = summarize(
            data.y,
            data.sensitive,
            data.p_y,
            data.p_group,
            curve,
            tolerance=tolerance,
            title=f"The trade-off on {file.name}",
            provenance=out.provenance(file),
            **columns.options(data),
        )
        write_report(summary, report)
        if not json:
            out.say(f"\nThe report is in {report}")
    return PASS
