"""``evenhand apply fair.skops``: a whole classifier decides every row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand import io, tables
from evenhand.cli import output as out
from evenhand.cli.apply import Decider, Named, decided_ahead
from evenhand.cli.features import Features
from evenhand.errors import InputError

if TYPE_CHECKING:
    from evenhand.estimator.classifier import FairClassifier


def apply_classifier(path: Path, file: Path, output: Path, *, prefix: str, keep: bool) -> int:
    """Decide a table by the classifier in a file that ``evenhand fit --features`` or evenhand.io.save wrote."""
    from evenhand.estimator.classifier import FairClassifier

    fair = io.load(path)
    if not isinstance(fair, FairClassifier):
        raise InputError(f"{path} holds a {type(fair).__name__}, which decides no rows by a rule.")
    tables.format_of(output)
    features = Features.remembered(fair.rule_.learned_from)
    names = features.names if features is not None else _feature_names(fair, path)
    groups = tuple(map(str, fair.held_out_.groups)) if fair.sensitive_at_predict else ()
    needed = list(dict.fromkeys([*names, *groups]))
    tables.open_table(file).check_columns(needed)
    source = tables.open_table(
        file,
        columns=None if keep else needed,
        verbatim=tables.format_of(output) == "csv" and features is not None,
    )
    source.check_columns(source.names if keep else needed)
    decider = ClassifierDecider(fair.rule_, Named("", {}), prefix, keep, fair, features, names, groups)
    schema = decider.schema(source)
    with tables.write_batches(output, schema) as writer, out.progress("deciding", source.rows) as advance:
        for table in decided_ahead(decider, source.batches()):
            writer.write(table)
            advance(table.num_rows)
    return 0


def _feature_names(fair: FairClassifier, path: Path) -> tuple[str, ...]:
    names = getattr(fair, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"{path} was trained on an array whose columns have no names, so a table's columns cannot be matched:"
            " train it on a frame, or decide in Python, with evenhand.io.load(path).predict(X)."
        )
    return tuple(map(str, names))


@dataclass(frozen=True)
class ClassifierDecider(Decider):
    """Decides batches of rows by a classifier, whose models read the rows themselves."""

    fair: FairClassifier
    features: Features | None
    columns: tuple[str, ...]
    groups: tuple[str, ...]

    def probabilities(self, batch: Any) -> tuple[Any, Any]:
        """Return what the models say about a batch."""
        import pyarrow as pa

        table = pa.Table.from_batches([batch])
        known = {name: tables.values_of(table, name) for name in self.groups}
        X = table.select(list(self.columns)).to_pandas() if self.features is None else self.features.matrix(table)
        return self.fair.probabilities(X, sensitive_features=known or None)
