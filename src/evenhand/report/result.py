"""The report of a fitted classifier in one call, as one object."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from evenhand.display import Description, Displayed
from evenhand.errors import EvenhandWarning, InputError
from evenhand.estimator.classifier import FairClassifier
from evenhand.estimator.sample import strata_columns
from evenhand.inputs import SensitiveFeatures
from evenhand.report.render import render_html, write_report
from evenhand.report.sentences import headline, in_short
from evenhand.report.summarize import summarize
from evenhand.rules.rule import Rule
from evenhand.rules.system import write_out


class Report(Displayed):
    """A report as plain data that can be written as one HTML file.

    Attributes
    ----------
    summary : dict
        The result of :func:`evenhand.report.summarize`.
    path : Path or None
        The path of the written file.
    """

    def __init__(self, summary: Mapping[str, Any], path: str | os.PathLike[str] | None = None) -> None:
        self.summary = dict(summary)
        self.path = None if path is None else write_report(summary, path)

    @property
    def harm(self) -> str | None:
        """The gaps that are larger on these held-out rows than those of the model alone, with intervals, or None."""
        step = self._step
        return None if step is None else step["harm"]

    @property
    def _step(self) -> Mapping[str, Any] | None:
        found = self.summary["chosen"]
        return None if found is None else self.summary["steps"][found]

    def html(self) -> str:
        """Return the report as one self-contained page."""
        return render_html(self.summary)

    def json(self) -> str:
        """Return the report's data as JSON."""
        return json.dumps(self.summary, indent=2, allow_nan=False)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as an HTML file and return its path."""
        self.path = write_report(self.summary, path)
        return self.path

    def __str__(self) -> str:
        return self._describe().text()

    def __repr__(self) -> str:
        where = "" if self.path is None else f", in {self.path}"
        return f"<Report: {headline(self.summary, self._step)}{where}>"

    def _describe(self) -> Description:
        step = self._step
        short = [f"{question}: {answer}" for question, answer in in_short(self.summary, step).items()]
        where = [] if self.path is None else [f"The complete report is in {self.path}"]
        outcome = (self.summary["base"] if step is None else step)["outcome"]
        harm = [] if self.harm is None else [self.harm]
        return Description(self.summary["title"], [outcome, headline(self.summary, step), *harm, *short, *where])


def report_of(
    fair: FairClassifier,
    X: Any,
    y: ArrayLike,
    sensitive_features: SensitiveFeatures | None,
    path: str | os.PathLike[str] | None,
    *,
    sample_weight: ArrayLike | None,
    held_out: bool,
    title: str,
    confidence: float,
    provenance: Mapping[str, Any] | None,
) -> Report:
    """Return the report of a fitted classifier on some rows; see :meth:`evenhand.FairClassifier.report`."""
    groups = fair.groups_of(X, sensitive_features)
    if groups is None:
        raise InputError("A report compares groups: pass each row's group as sensitive_features.")
    known = groups if fair.sensitive_at_predict else None
    p_y, p_group = fair.probabilities(X, sensitive_features=known)
    rule, rules = fair.rule_, None
    assert rule.criterion is not None
    if isinstance(rule, Rule) and fair.confidence is None and write_out(rule.criterion, rule.groups).moves:
        rules = fair.frontier().with_rule(fair.tolerance, rule)
    summary = summarize(
        y,
        groups,
        p_y,
        p_group,
        rule if rules is None else rules,
        tolerance=fair.tolerance,
        confidence=confidence,
        pos_label=rule.classes[1],
        held_out=held_out,
        sample_weight=sample_weight,
        missing=fair.missing,
        strata=strata_columns(X, rule.strata) if rule.strata else None,
        title=title,
        provenance=provenance,
    )
    found = Report(summary, path)
    if found.harm is not None:
        warnings.warn(found.harm, EvenhandWarning, stacklevel=3)
    return found
