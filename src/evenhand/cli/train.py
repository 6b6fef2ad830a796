"""``evenhand fit --features``: the models are trained too, cross-fitted, on columns of the table."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand import tables
from evenhand.cli import output as out
from evenhand.cli.columns import read_truth
from evenhand.errors import InputError
from evenhand.inputs import read_labels

if TYPE_CHECKING:
    from evenhand.cli.fit import ScoreColumns
    from evenhand.criteria import Criterion

ALL_OTHERS = "*"
MOST_CATEGORIES = 255


def train(
    file: Path,
    columns: ScoreColumns,
    features: Sequence[str],
    output: Path | None,
    *,
    criterion: Criterion,
    **options: Any,
) -> int:
    """Train a fair classifier on columns of a table, and save it."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    from evenhand.classifier import FairClassifier

    if output is None:
        raise InputError("Say where the classifier goes, with --output fair.skops (or rule.json for the rule alone).")
    save = _saver(output)
    used = [name for name in (columns.label, *columns.sensitive, columns.weight) if name is not None]
    source = tables.open_table(file)
    names = [name for name in source.names if name not in used] if list(features) == [ALL_OTHERS] else list(features)
    if columns.label in names:
        raise InputError(f"The label {columns.label!r} cannot be a feature.")
    table, y, positive, sensitive = read_truth(
        file, columns.label, columns.sensitive, [*names, columns.weight], columns.pos_label
    )
    assert y is not None
    X, text = feature_matrix(table, names)
    known = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        max_categories=MOST_CATEGORIES,
    )
    model = make_pipeline(
        make_column_transformer((known, text), remainder="passthrough"),
        HistGradientBoostingClassifier(
            categorical_features=list(range(len(text))) or None, random_state=options["random_state"]
        ),
    )
    fair = FairClassifier(model, criterion=criterion, **options)
    weight = None if columns.weight is None else tables.numbers_of(table, columns.weight)
    positive_rows = read_labels(y, positive)[0]
    fair.fit(X, positive_rows.astype(np.int64), sensitive_features=sensitive, sample_weight=weight)
    out.say(f"Trained on {len(X):,} rows and {len(names)} features, cross-fitted.")
    out.say(f"On these rows: accuracy {fair.rule_.solution_.utility:.4f}, {fair.rule_.solution_.status}.")
    out.say(save(fair))
    return 0


def _saver(output: Path) -> Any:
    """Return a function that saves a classifier and says so; raise before any training where it could not."""
    if output.suffix.lower() == ".json":

        def save_rule(fair: Any) -> str:
            out.write_text(output, fair.rule_.to_json())
            return f"The rule is in {output}; the models are not saved (a .skops file holds both)."

        return save_rule
    try:
        saving = importlib.import_module("evenhand.io")
    except ImportError:
        raise InputError(
            f"{output}: this installation cannot save a classifier. Name a .json file for the rule alone."
        ) from None

    def save_all(fair: Any) -> str:
        saving.save(fair, output)
        return f"The classifier is in {output}"

    return save_all


def feature_matrix(table: Any, names: Sequence[str]) -> tuple[NDArray[Any], list[int]]:
    """Return columns as an array of objects, and which of them are text."""
    if not names:
        raise InputError("There is no column left to train on: name them, with --features.")
    X = np.empty((table.num_rows, len(names)), dtype=object)
    text = []
    for j, name in enumerate(names):
        values = tables.values_of(table, name)
        if values.dtype.kind in "biuf":
            X[:, j] = values.astype(np.float64)
        else:
            text.append(j)
            X[:, j] = values
    return X, text
