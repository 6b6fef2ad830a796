"""What `evenhand fit` prints and writes about its result: a table, a report, a model card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.cli import output as out
from evenhand.files import write_text
from evenhand.report import write_report
from evenhand.report.card import render_card, summarize_card
from evenhand.report.sentences import mixed_rules
from evenhand.report.summarize import summarize_rows
from evenhand.rules.mixture import Mixture
from evenhand.text import short_name, table_text

if TYPE_CHECKING:
    from evenhand.estimator.classifier import FairClassifier
    from evenhand.rows import Rows
    from evenhand.rules.frontier import Frontier
    from evenhand.rules.rule import Rule

CARD_TITLE = "Model card"
STEPS = 19


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A rule, the rows that it is evaluated on, and their origin.

    Attributes
    ----------
    rule : Rule or Mixture
        The learnt rule.
    judged : Rows
        The rows of the test table, or those that it was learnt from.
    file, test : Path
        The tables.
    tolerance : float
        The requested tolerance.
    curve : Frontier or None
        The trade-off, if a report shows it.
    rows : int
        The number of rows it was learnt from.
    fair : FairClassifier or None
        The classifier that contains the rule, if models were trained.
    """

    rule: Rule | Mixture
    judged: Rows
    file: Path
    tolerance: float
    curve: Frontier | None
    test: Path | None
    rows: int
    fair: FairClassifier | None = None

    def tell(self, *, report: Path | None, card: Path | None, save: Callable[[Learned], str] | None) -> bool:
        """Print the verdicts before and after, save, and write the requested files, all from one summary.

        Return whether held-out rows show no harm, that is, no gap larger than that of the model alone.
        """
        summary = self._summary()
        where = "held-out rows" if self.test is not None else "the rows it was learnt from"
        crossed = ", cross-fitted" if self.fair is not None and self.test is None else ""
        out.say(before_and_after_text(summary, where + crossed), verdicts=True)
        if self.rule.solution is not None and self.rule.solution.status == "unchanged":
            out.say("\nThe model already meets the tolerance and is left unchanged: the rule changes no decision.")
        step = summary["steps"][summary["chosen"]]
        if step["mixture"] is not None:
            out.say(
                f"\nIt is randomized between {mixed_rules(step['mixture'])}; {step['mixture']['by_lot']:,} of these"
                " rows depend on a random draw, here by the scores. Pass `apply` a --key to draw by person."
            )
        if step["determinism"] is not None:
            out.say(
                f"\nThe best randomized mixture is better by {100 * step['determinism']['cost']:.2f} points on the rows"
                " it was learnt from: the cost of determinism."
            )
        harm = summary["steps"][summary["chosen"]]["harm"]
        if harm is not None:
            out.say(f"\n{harm}")
        if save is not None:
            out.say(f"\n{save(self)}")
        if report is not None:
            write_report(summary, report)
            out.say(f"The report is in {report}")
        if card is not None:
            named = {**summary, "title": CARD_TITLE}
            write_text(card, render_card(summarize_card(self.rule, named, data=self.file.name, fair=self.fair)))
            out.say(f"The model card is in {card}")
        return harm is None

    def _summary(self) -> dict[str, Any]:
        source: dict[str, Any] = {**out.provenance(self.test or self.file)}
        if self.test is not None:
            source["learnt from"] = f"{self.file.name}, {self.rows:,} rows"
        shown: Rule | Mixture | Frontier = self.rule
        if self.curve is not None and not isinstance(self.rule, Mixture):
            shown = self.curve.with_rule(self.tolerance, self.rule)
        return summarize_rows(
            self.judged,
            shown,
            tolerance=self.tolerance,
            held_out=self.test is not None,
            title=f"Fair decisions for {(self.test or self.file).name}",
            provenance=source,
        )


def rule_saver(output: Path) -> Callable[[Learned], str]:
    """Return a function that writes a rule and reports it."""

    def save(learned: Learned) -> str:
        write_text(output, learned.rule.to_json())
        return f"The rule is in {output}"

    return save


def before_and_after_text(summary: dict[str, Any], where: str) -> str:
    """Return a summary's verdicts and rates by group, before and after, as text."""
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
        for first, second in zip(before["strata"], after["strata"], strict=True):
            inside = f"  {short_name(second['stratum'])}, {second['rows']:,} rows"
            rows.append([inside, shown(first["gap"]), shown(second["gap"]), second["outcome"]])
    for before, after in zip(base["ratios"], step["ratios"], strict=True):
        name = f"four-fifths ratio, {short_name(after['attribute'])}"
        rows.append([name, shown(before["ratio"]), shown(after["ratio"]), ""])
    for before, after in zip(base["groups"], step["groups"], strict=True):
        for rate in ("selection_rate", "true_positive_rate", "false_positive_rate"):
            name = f"{rate.replace('_', ' ')}, {short_name(after['attribute'])}={short_name(after['group'])}"
            rows.append([name, shown(before[rate]), shown(after[rate]), ""])
    heading = (
        f"On {where} ({summary['rows']:,}), with {100 * summary['confidence']:g}% intervals;"
        f" {step['flipped']:,} decisions changed:"
    )
    return f"{heading}\n{table_text(['', 'the model alone', 'fair', 'verdict'], rows, indent='  ')}"
