"""`evenhand fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from evenhand.cli.score_columns import ScoreColumns

if TYPE_CHECKING:
    from evenhand.cli.judging import Learned
    from evenhand.rules.rule import Rule
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
    randomize: Annotated[bool, Parameter(negative="")] = False,
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
    be left out: it is 1 minus the sum of the others. A group that two attributes share is written
    sex:Female=p_female.

    Parameters
    ----------
    file
        A .csv, .csv.gz, .parquet or .arrow file, a folder or glob of .parquet files, an address, or - (standard input).
    columns
        The columns of labels, groups and probabilities.
    output
        Write the rule to this file, as JSON. With --features: the whole classifier, as .skops.
    criterion
        dp, eo, eop, pe, ap or pp (or their full names), selection_ratio:0.8, minimum_rate:precision:0.8,
        maximum_rate:fpr:0.1, minimax_rate:error or budget:0.2; repeat to combine several; dp by default.
        dp:0.02 sets a tolerance for this criterion; dp@sex applies to one attribute, dp@sex,race to the two crossed.
    tolerance
        The largest allowed difference of rates.
    search
        The search algorithm.
    safety
        Tighten each bound by this number of standard errors, but to no less than half of the tolerance. If the model
        already meets the bounds, it is left unchanged. 0 is the paper's rule, which often exceeds the tolerance on new
        rows.
    confidence
        Guarantee that the criterion holds in the population with this probability.
    objective
        What is maximised: accuracy, balanced_accuracy, or an F score such as f1, f2 or f0.5.
    costs
        The cost of a false positive and of a false negative, instead of plain accuracy.
    randomize
        Allow random decisions: a mixture of rules that meets the bounds on average, also if no single rule does. Read
        docs/howto/lotteries.md first, and pass `apply` a --key.
    features
        Train cross-fitted models on these columns, instead of reading probabilities. * means all others.
    test
        Evaluate the rule on this table of unused rows, instead of on the rows it was learnt from.
    report
        Write an HTML report to this file.
    card
        Write a model card, as Markdown, to this file.
    accept
        Exit with 0 even if the rows of --test show a larger gap than that of the model alone. The default is exit code
        3.
    seed
        The random seed.
    engine
        Learn inside an engine, for tables that do not fit in memory: duckdb on one machine, spark on a cluster.
    """
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
        {"the table that is read": file, "the table of --test": test},
    )
    if test is not None and (file, test) == (Path("-"), Path("-")):
        raise InputError("Standard input can only be one table: pass a file to --test.")
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
        if output is None or features or test or report or card:
            raise InputError(
                "--engine learns a rule and writes it with --output; leave out --features, --test, --report and --card,"
                " or --engine."
            )
        from evenhand.cli import engine as engines

        rule = engines.learn(engine, file, columns, options, tolerance, randomize=randomize, confidence=confidence)
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
            randomize=randomize,
            test=test,
            trade_off=report is not None,
        )
        harmless = learned.tell(report=report, card=card, save=save)
        return PASS if harmless or accept else INSUFFICIENT
    if output is None and report is None and card is None:
        raise InputError("Name a file for the rule, as in --output rule.json.")
    promise = {"tolerance": tolerance, "confidence": confidence, "randomize": randomize}
    learned = _learn(file, columns, options, test=test, trade_off=report is not None, **promise)  # type: ignore[arg-type]
    harmless = learned.tell(report=report, card=card, save=None if output is None else rule_saver(output))
    return PASS if harmless or accept else INSUFFICIENT


def _learn(
    file: Path,
    columns: ScoreColumns,
    options: Options,
    *,
    tolerance: float,
    confidence: float | None,
    randomize: bool,
    test: Path | None,
    trade_off: bool,
) -> Learned:
    """Learn a rule from a table of scores, in one search; with the trade-off if a report shows it."""
    from evenhand.cli.columns import read_scores
    from evenhand.cli.judging import STEPS, Learned
    from evenhand.rules.confidence import learn_with_confidence
    from evenhand.rules.determinism import with_determinism
    from evenhand.rules.frontier import rule_and_frontier
    from evenhand.rules.ladder import best_rule
    from evenhand.rules.mixed_confidence import learn_mixture_with_confidence
    from evenhand.rules.mixing import best_mixture, check_lots
    from evenhand.rules.mixture import Mixture
    from evenhand.rules.system import write_out

    rows, used = read_scores(file, columns, options.criterion)
    curve = None
    rule: Rule | Mixture
    if randomize:
        check_lots(options.search, options.criterion)
        if confidence is None:
            rule = best_mixture(rows, options, tolerance)
        else:
            rule = learn_mixture_with_confidence(rows, options, tolerance=tolerance, confidence=confidence)
    elif confidence is not None:
        rule = learn_with_confidence(rows, options, tolerance=tolerance, confidence=confidence)
    elif trade_off and write_out(options.criterion, rows.groups).moves:
        rule, curve = rule_and_frontier(rows, options, tolerance, STEPS)
    else:
        rule = best_rule(rows, options, tolerance)
    if not isinstance(rule, Mixture):
        rule = with_determinism(rule, rows, options)
    rule = rule.noting(columns=used)
    judged = rows if test is None else read_scores(test, columns, options.criterion, rows.groups)[0]
    return Learned(rule=rule, judged=judged, file=file, tolerance=tolerance, curve=curve, test=test, rows=len(rows))
