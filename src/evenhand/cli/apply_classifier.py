"""``evenhand apply fair.skops``: decides every row of a table with a whole classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from evenhand import io, tables
from evenhand.cli.decided import write_decided
from evenhand.cli.features import Features
from evenhand.engines.deciding import Decider, Probabilities
from evenhand.engines.source import check_key
from evenhand.errors import InputError
from evenhand.estimator.classifier import FairClassifier
from evenhand.origins import format_of


def apply_classifier(path: Path, file: Path, output: Path, *, key: str | None, prefix: str, keep: bool) -> int:
    """Decide a table with the classifier in a file that ``evenhand fit --features`` or evenhand.io.save wrote."""
    fair = io.load(path)
    if not isinstance(fair, FairClassifier):
        raise InputError(f"{path} contains a {type(fair).__name__}; apply needs a FairClassifier or a rule.")
    check_key(fair.rule_, key)
    kind = format_of(output, write=True)
    features = Features.remembered(fair.rule_.learned_from)
    names = features.names if features is not None else _feature_names(fair, path)
    plain = tuple(name for name in fair.held_out_.groups if isinstance(name, str))
    groups = plain if fair.sensitive_at_predict else ()

    def probabilities(batch: Any) -> Probabilities:
        table = pa.Table.from_batches([batch])
        known = {name: tables.values_of(table, name) for name in groups}
        X = table.select(list(names)).to_pandas() if features is None else features.matrix(table)
        return fair.probabilities(X, sensitive_features=known or None)

    write_decided(
        Decider(fair.rule_, probabilities, prefix, keep, key),
        file,
        output,
        needed=list(dict.fromkeys([*names, *groups, *([] if key is None else [key])])),
        numbers=[],
        verbatim=kind == "csv" and features is not None,
    )
    return 0


def _feature_names(fair: FairClassifier, path: Path) -> tuple[str, ...]:
    names = getattr(fair, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"{path} was trained on an array whose columns have no names, so a table's columns cannot be matched:"
            " train it on a frame, or decide in Python with evenhand.io.load(path).predict(X)."
        )
    return tuple(map(str, names))
