"""`evenhand fit`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from evenhand.cli.score_columns import ScoreColumns

if TYPE_CHECKING:
    from evenhand.cli.judging import Learned
    from evenhand.rules.setting import Options


def fit(
    file: Path,
    /,
    *,
    columns: ScoreColumns,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    criterion: list[str] | None = None,
    tolerance: float = 0.05,
    search: Literal["certified", "directions", "lines", "dual", "smoothed"] = "certified",
    safety: float = 1.0,
    confidence: float | None = None,
    objective: str = "accuracy",
    costs: tuple[float, float] | None = None,
    features: list[str] | None = None,
    test: Path | None = None,
    report: Path | None = None,
    card: Path | None = None,
    accept: bool = False,
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
        dp, eo, eop, pe, ap or pp (or their full names), selection_ratio:0.8, minimum_rate:precision:0.8,
        maximum_rate:fpr:0.1, minimax_rate:error or budget:0.2; several times for several at once; dp by default.
        dp:0.02 has a tolerance of its own; dp@sex speaks of one attribute, dp@sex,race of the two crossed.
    tolerance
        The largest allowed difference of rates.
    search
        How the rule is found.
    safety
        Draw each bound in by so many standard errors, though to no less than half of the tolerance, and leave a model
        that meets the bounds alone. 0 is the paper's rule: it sits on the tolerance, and new rows are often beyond it.
    confidence
        Promise that the criterion holds in the population with this probability.
    objective
        What is maximised: accuracy, balanced_accuracy, or an F score such as f1, f2 or f0.5.
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
    accept
        Exit with 0 even where the rows of --test show a wider gap than that of the model alone. Otherwise that is exit
        code 3.
    seed
        For everything that is drawn at random.
    engine
        Learn where the data is, for tables that do not fit in memory: duckdb on one machine, spark on a cluster.
    """
    from evenhand import tables
    from evenhand.cli import INSUFFICIENT, PASS
    from evenhand.cli import output as out
    from evenhand.cli.criterion import combine
    from evenhand.cli.judging import rule_saver
    from evenhand.errors import InputError
    from evenhand.files import write_text
    from evenhand.rules.criteria import check_tolerance
    from evenhand.rules.scores import read_costs
    from evenhand.rules.setting import Options

    out.check_outputs(
        {"--output": output, "--report": report, "--card": card},
        {"the table that is read": tables.matching(file) if engine else file, "the table of --test": test},
    )
    check_tolerance(tolerance)
    wanted = combine(criterion or ["demographic_parity"], columns.sensitive)
    assert wanted is not None
    options = Options(
        criterion=wanted,
        search=search,
        objective=objective,
        costs=read_costs(costs),
        missing=columns.missing,
        random_state=seed,
        safety=safety,
    )
    if engine is not None:
        if output is None or features or test or report or card or confidence is not None:
            raise InputError(
                "--engine learns a rule and writes it with --output; --features, --test, --report, --card and"
                " --confidence are for tables that fit in memory."
            )
        from evenhand.cli import engine as engines

        rule = engines.learn(engine, file, columns, options, tolerance)
        out.say(engines.summary(rule))
        write_text(output, rule.to_json())
        out.say(f"\nThe rule is in {output}")
        return PASS
    if features:
        from evenhand.cli.train import saver, train

        save = saver(output)
        learned = train(
            file,
            columns,
            features,
            options,
            tolerance=tolerance,
            confidence=confidence,
            test=test,
            trade_off=report is not None,
        )
        harmless = learned.tell(report=report, card=card, save=save)
        return PASS if harmless or accept else INSUFFICIENT
    if output is None and report is None and card is None:
        raise InputError("Say where the rule goes, with --output rule.json.")
    learned = _learn(file, columns, options, tolerance, confidence, test, trade_off=report is not None)
    harmless = learned.tell(report=report, card=card, save=None if output is None else rule_saver(output))
    return PASS if harmless or accept else INSUFFICIENT


def _learn(
    file: Path,
    columns: ScoreColumns,
    options: Options,
    tolerance: float,
    confidence: float | None,
    test: Path | None,
    *,
    trade_off: bool,
) -> Learned:
    """Learn a rule from a table of scores, in one search; with the trade-off where a report is to show it."""
    from evenhand.cli.columns import read_scores
    from evenhand.cli.judging import STEPS, Learned
    from evenhand.rules.confidence import learn_with_confidence
    from evenhand.rules.frontier import rule_and_frontier
    from evenhand.rules.ladder import best_rule
    from evenhand.rules.system import write_out

    rows, used = read_scores(file, columns, options.criterion)
    curve = None
    if confidence is not None:
        rule = learn_with_confidence(rows, options, tolerance=tolerance, confidence=confidence)
    elif trade_off and write_out(options.criterion, rows.groups).moves:
        rule, curve = rule_and_frontier(rows, options, tolerance, STEPS)
    else:
        rule = best_rule(rows, options, tolerance)
    rule = dataclasses.replace(rule, learned_from={**rule.learned_from, "columns": used})
    judged = rows if test is None else read_scores(test, columns, options.criterion, rows.groups)[0]
    return Learned(rule=rule, judged=judged, file=file, tolerance=tolerance, curve=curve, test=test, rows=len(rows))
