"""``evenhand fit --features``: also trains the models, cross-fitted, on columns of the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand import io, tables
from evenhand.arguments import Seed
from evenhand.cli import output as out
from evenhand.cli.columns import read_truth
from evenhand.cli.features import Features
from evenhand.cli.judging import STEPS, Learned
from evenhand.cli.score_columns import ScoreColumns
from evenhand.errors import InputError
from evenhand.estimator.classifier import FairClassifier
from evenhand.files import write_text
from evenhand.io.archive import skops_io
from evenhand.rules.determinism import with_determinism
from evenhand.rules.frontier import frontier_of
from evenhand.rules.rule import Rule
from evenhand.rules.strata import check_unstratified
from evenhand.rules.system import write_out

if TYPE_CHECKING:
    from evenhand.rows import Rows
    from evenhand.rules.setting import Options

ALL_OTHERS = "*"
MOST_CATEGORIES = 255


def train(
    file: Path,
    columns: ScoreColumns,
    features: Sequence[str],
    options: Options,
    *,
    tolerance: float,
    confidence: float | None,
    randomize: bool,
    test: Path | None,
    trade_off: bool,
) -> Learned:
    """Train a fair classifier on columns of a table; with the trade-off if a report shows it."""
    check_unstratified(options.criterion.strata, "--features", "train in Python, with FairClassifier on a frame")
    used = [name for name in (columns.label, *columns.sensitive, columns.weight) if name is not None]
    source = tables.open_table(file)
    names = [name for name in source.names if name not in used] if list(features) == [ALL_OTHERS] else list(features)
    if columns.label in names:
        raise InputError(f"The label {columns.label!r} cannot be a feature.")
    table, rows = read_truth(file, columns, names)
    found = Features.of(table, names)
    fair = FairClassifier(
        _model(found, options.random_state),
        criterion=options.criterion,
        tolerance=tolerance,
        search=options.search,
        safety=options.safety,
        missing=options.missing,
        confidence=confidence,
        objective=options.objective,
        randomize=randomize,
        costs=options.costs,
        pos_label=rows.classes[1],
        random_state=options.random_state,
        verbose=1,
    )
    fair.fit(found.matrix(table), rows.y, sensitive_features=rows.sensitive_features, sample_weight=rows.sample_weight)
    origin = {"columns": found.to_dict(), "data": {"name": tables.name_of(file), "sha256": tables.sha256_of(file)}}
    if isinstance(fair.rule_, Rule):
        fair.rule_ = with_determinism(fair.rule_, fair.held_out_, fair._options)
    fair.rule_ = fair.rule_.noting(**origin)
    out.say(f"Trained on {len(rows):,} rows and {len(names)} features, cross-fitted.\n")
    judged: Rows = fair.held_out_
    if test is not None:
        table, truth = read_truth(test, columns, found.names, rows.groups)
        p_y, p_group = fair.probabilities(found.matrix(table))
        judged = dataclasses.replace(truth, p_y=p_y, p_group=p_group)
    draw = trade_off and confidence is None and not randomize and write_out(options.criterion, fair.rule_.groups).moves
    return Learned(
        rule=fair.rule_,
        judged=judged,
        file=file,
        tolerance=tolerance,
        curve=frontier_of(fair.held_out_, options, among=tolerance, steps=STEPS) if draw else None,
        test=test,
        rows=len(rows),
        fair=fair,
    )


def _model(features: Features, seed: Seed) -> Any:
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


def saver(output: Path | None) -> Callable[[Learned], str]:
    """Return a function that saves a classifier and reports it; raise before training if saving is impossible."""
    if output is None:
        raise InputError("Name a file for the classifier, as in --output fair.skops (or rule.json for the rule alone).")
    if output.suffix.lower() == ".json":

        def save_rule(learned: Learned) -> str:
            write_text(output, learned.rule.to_json())
            return f"The rule is in {output}; the models are not saved (a .skops file contains both)."

        return save_rule
    if output.suffix.lower() != ".skops":
        raise InputError(f"{output}: name a .skops file for the whole classifier, or a .json file for the rule alone.")
    skops_io()

    def save_all(learned: Learned) -> str:
        io.save(learned.fair, output)
        return f"The classifier is in {output}. It contains labels and groups of its rows: treat it as personal data."

    return save_all
