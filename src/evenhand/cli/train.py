"""``evenhand fit --features``: the models are trained too, cross-fitted, on columns of the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand import tables
from evenhand.cli import output as out
from evenhand.cli.columns import read_truth
from evenhand.cli.features import Features
from evenhand.errors import InputError
from evenhand.files import write_text

if TYPE_CHECKING:
    from evenhand.cli.fit import ScoreColumns
    from evenhand.estimator.classifier import FairClassifier
    from evenhand.rules.criteria import Criterion

ALL_OTHERS = "*"
MOST_CATEGORIES = 255


def train(
    file: Path,
    columns: ScoreColumns,
    features: Sequence[str],
    output: Path | None,
    *,
    criterion: Criterion,
    test: Path | None = None,
    report: Path | None = None,
    card: Path | None = None,
    **options: Any,
) -> int:
    """Train a fair classifier on columns of a table, judge it, and save it."""
    from evenhand.estimator.classifier import FairClassifier

    if output is None:
        raise InputError("Say where the classifier goes, with --output fair.skops (or rule.json for the rule alone).")
    save = _saver(output)
    used = [name for name in (columns.label, *columns.sensitive, columns.weight) if name is not None]
    source = tables.open_table(file)
    names = [name for name in source.names if name not in used] if list(features) == [ALL_OTHERS] else list(features)
    if columns.label in names:
        raise InputError(f"The label {columns.label!r} cannot be a feature.")
    wanted = [*names, columns.weight]
    table, y, positive, sensitive = read_truth(file, columns.label, columns.sensitive, wanted, columns.pos_label)
    assert y is not None
    found = Features.of(table, names)
    fair = FairClassifier(_model(found, options["random_state"]), criterion=criterion, pos_label=positive, **options)
    weight = None if columns.weight is None else tables.numbers_of(table, columns.weight)
    fair.fit(found.matrix(table), y, sensitive_features=sensitive, sample_weight=weight)
    origin = {"columns": found.to_dict(), "data": {"name": file.name, "sha256": tables.sha256_of(file)}}
    fair.rule_ = dataclasses.replace(fair.rule_, learned_from={**fair.rule_.learned_from, **origin})
    out.say(f"Trained on {len(y):,} rows and {len(names)} features, cross-fitted.\n")
    _judge(fair, found, columns, file, test, report, card)
    out.say(save(fair))
    return 0


def _model(features: Features, seed: int) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    text = features.places_of_text
    known = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        max_categories=MOST_CATEGORIES,
    )
    return make_pipeline(
        make_column_transformer((known, text), remainder="passthrough"),
        HistGradientBoostingClassifier(categorical_features=list(range(len(text))) or None, random_state=seed),
    )


def _judge(
    fair: FairClassifier,
    features: Features,
    columns: ScoreColumns,
    file: Path,
    test: Path | None,
    report: Path | None,
    card: Path | None,
) -> None:
    """Say how the classifier does, on rows of their own or on the cross-fitted ones; write report and card."""
    from evenhand.cli.fit import before_and_after_text
    from evenhand.report import model_card, summarize, write_report
    from evenhand.rules.criteria import write_out

    rows: tuple[Any, ...] = ()
    if test is not None:
        wanted = [*features.names, columns.weight]
        table, y, _, groups = read_truth(test, columns.label, columns.sensitive, wanted, columns.pos_label)
        weight = None if columns.weight is None else tables.numbers_of(table, columns.weight)
        rows = (features.matrix(table), y, groups)
        judged = (y, groups, *fair.probabilities(rows[0]))
    else:
        held = fair.held_out_
        judged, weight = (held.y, held.sensitive_features, held.p_y, held.p_group), held.sample_weight
    options: dict[str, Any] = {
        "tolerance": fair.tolerance,
        "pos_label": fair.rule_.classes[1],
        "held_out": test is not None,
        "sample_weight": weight,
    }
    where = "held-out rows" if test is not None else "the rows it was learnt from, cross-fitted"
    out.say(before_and_after_text(summarize(*judged, fair.rule_, **options), where) + "\n", verdicts=True)
    source: dict[str, Any] = out.provenance(test or file)
    if test is not None:
        source["learnt from"] = file.name
    if report is not None:
        assert fair.rule_.criterion is not None
        moves = write_out(fair.rule_.criterion, fair.rule_.groups).moves
        along = fair.frontier() if fair.confidence is None and moves else fair.rule_
        title = f"Fair decisions for {(test or file).name}"
        write_report(summarize(*judged, along, title=title, provenance=source, **options), report)
        out.say(f"The report is in {report}")
    if card is not None:
        text = model_card(fair, *rows, sample_weight=weight, data=file.name, provenance=source)
        write_text(card, text)
        out.say(f"The model card is in {card}")


def _saver(output: Path) -> Callable[[FairClassifier], str]:
    """Return a function that saves a classifier and says so; raise before any training where it could not."""
    if output.suffix.lower() == ".json":

        def save_rule(fair: FairClassifier) -> str:
            write_text(output, fair.rule_.to_json())
            return f"The rule is in {output}; the models are not saved (a .skops file holds both)."

        return save_rule
    if output.suffix.lower() != ".skops":
        raise InputError(f"{output}: name a .skops file for the whole classifier, or a .json file for the rule alone.")
    from evenhand import io
    from evenhand.io.archive import skops_io

    skops_io()

    def save_all(fair: FairClassifier) -> str:
        io.save(fair, output)
        return f"The classifier is in {output}. It holds the labels and groups it was learnt from: treat it as data."

    return save_all
