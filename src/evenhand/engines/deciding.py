"""Decides batches of rows with a rule, for probabilities from any source."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from evenhand.engines.schema import REST_SLACK
from evenhand.engines.source import new_names
from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.rules import scores
from evenhand.rules.events import AttributeKey
from evenhand.rules.mixture import Mixture
from evenhand.rules.rule import Rule
from evenhand.rules.rule_strata import values_of_strata, with_strata
from evenhand.tables import numbers_of, values_of

Probabilities = tuple[FloatArray, dict[AttributeKey, FloatArray]]


@dataclass(frozen=True)
class GroupColumns:
    """The columns of one attribute's probabilities: p(A | x) group by group, or p(Y, A | x) label by label.

    At most one column is None: it is 1 minus the sum of the others.
    """

    joint: bool
    columns: tuple[str | None, ...]

    def stack(self, read: Mapping[str, FloatArray], attribute: AttributeKey) -> FloatArray:
        """Return the probabilities of shape (n, G) or (n, 2, G)."""
        n = len(next(iter(read.values())))
        array = np.empty((n, len(self.columns)))
        for j, name in enumerate(self.columns):
            if name is not None:
                array[:, j] = read[name]
        if None in self.columns:
            rest = self.columns.index(None)
            array[:, rest] = 1.0 - np.delete(array, rest, axis=1).sum(axis=1)
            low = array[:, rest] < -REST_SLACK
            if low.any():
                where = int(np.argmax(low))
                raise InputError(
                    f"Row {where}: the probabilities of {attribute!r} sum to {1.0 - array[where, rest]:.6g}."
                )
            np.clip(array[:, rest], 0.0, 1.0, out=array[:, rest])
        return array.reshape(n, 2, -1) if self.joint else array

    def named(self) -> list[str]:
        """Return the names of the columns that are read."""
        return [name for name in self.columns if name is not None]


@dataclass(frozen=True)
class NamedColumns:
    """The columns of a table with the probabilities that a rule needs."""

    score: str
    groups: dict[AttributeKey, GroupColumns]
    rule: Rule

    @classmethod
    def of(
        cls, rule: Rule | Mixture, score: str, cells: Mapping[AttributeKey, Mapping[Hashable, str | None]]
    ) -> NamedColumns:
        """Return them from the columns of each group, or of each pair of label and group, in the rule's order."""
        found = {
            name: GroupColumns(len(row) == 2 * len(rule.groups[name]), tuple(row.values()))
            for name, row in cells.items()
        }
        return cls(score, found, rule.rules[0] if isinstance(rule, Mixture) else rule)

    def needed(self) -> list[str]:
        """Return the names, each once."""
        return list(dict.fromkeys([*self.numbers(), *self.rule.strata]))

    def numbers(self) -> list[str]:
        """Return the names of the columns of probabilities, each once."""
        return list(dict.fromkeys([self.score, *(name for entry in self.groups.values() for name in entry.named())]))

    def probabilities(self, batch: Any) -> Probabilities:
        """Return the probabilities of a batch; with strata, also those of each stratum."""
        read = {name: numbers_of(batch, name) for name in self.numbers()}
        p_y, p_group = read[self.score], {name: entry.stack(read, name) for name, entry in self.groups.items()}
        if not self.rule.strata:
            return p_y, p_group
        strata = {name: self._stratum(batch, name) for name in self.rule.strata}
        return p_y, cast(dict[AttributeKey, FloatArray], with_strata(self.rule, p_y, p_group, strata))

    def _stratum(self, batch: Any, column: str) -> Any:
        """Return each row's stratum; a text that spells one of the rule's numbers is that number."""
        import pyarrow as pa

        values = values_of(pa.table({column: batch.column(column)}), column)
        known = {str(s): s for s in values_of_strata(self.rule, column)}
        if values.dtype.kind not in "OUT" or all(isinstance(stratum, str) for stratum in known.values()):
            return values
        return [known.get(value, value) if isinstance(value, str) else value for value in values.tolist()]


@dataclass(frozen=True)
class Decider:
    """Adds the columns decision, fair_margin, flipped and bias_score_1, ... to batches of rows.

    A mixture adds expected_decision and lot instead of fair_margin.

    Attributes
    ----------
    rule : Rule or Mixture
        The rule.
    probabilities : callable
        Returns p_y and p_group of a batch.
    prefix : str
        The prefix of the names of the new columns.
    keep : bool
        Whether the batch's own columns are kept.
    key : str or None
        The column of keys for a mixture's random draws; with None they depend on the scores.
    """

    rule: Rule | Mixture
    probabilities: Callable[[Any], Probabilities]
    prefix: str = ""
    keep: bool = True
    key: str | None = None

    def schema(self, own: Any) -> Any:
        """Return the Arrow schema of the decided table, given that of the batches."""
        import pyarrow as pa

        names = new_names(self.rule, self.prefix, own.names if self.keep else ())
        first = {f"{self.prefix}decision": self._labels().type, f"{self.prefix}flipped": pa.bool_()}
        new = [pa.field(name, first.get(name, pa.float64())) for name in names]
        return pa.schema([*(own if self.keep else ()), *new])

    def decide(self, batch: Any, schema: Any, start: int = 0) -> Any:
        """Return a batch with its decisions; ``start`` is the number of rows before it."""
        import pyarrow as pa

        try:
            p_y, p_group = self.probabilities(batch)
            positive, numbers = self._decided(batch, p_y, p_group)
            bias = self.rule.bias_scores(p_y, p_group)
        except InputError as error:
            rows = f" (rows are counted from row {start:,} of the table)" if start else ""
            raise InputError(f"{error}{rows}") from None
        flipped = (scores.margin(p_y, self.rule.costs) > 0.0) != positive
        new = [self._labels().take(pa.array(positive.astype(np.int32))), *map(pa.array, numbers), pa.array(flipped)]
        new += [pa.array(np.ascontiguousarray(column)) for column in bias.T]
        own = batch.columns if self.keep else ()
        return pa.RecordBatch.from_arrays([*own, *new], schema=schema)

    def _decided(
        self, batch: Any, p_y: FloatArray, p_group: dict[AttributeKey, FloatArray]
    ) -> tuple[NDArray[np.bool_], list[FloatArray]]:
        """Return a mask of the positive decisions, and the numbers behind them."""
        import pyarrow as pa

        if not isinstance(self.rule, Mixture):
            fair = self.rule.decision_function(p_y, p_group)
            return fair > 0.0, [fair]
        key = None if self.key is None else values_of(pa.Table.from_batches([batch]), self.key)
        expected, drawn = self.rule.expected_decision(p_y, p_group), self.rule.lots(p_y, p_group, key=key)
        return drawn < expected, [expected, drawn]

    def decide_all(self, batches: Iterator[Any], schema: Any) -> Iterator[Any]:
        """Decide batches one by one, as they are read."""
        start = 0
        for batch in batches:
            yield self.decide(batch, schema, start)
            start += batch.num_rows

    def _labels(self) -> Any:
        """Return the two labels as an Arrow array; as text if they have different types."""
        import pyarrow as pa

        classes = list(self.rule.classes)
        same = len({type(label) for label in classes}) == 1
        return pa.array(classes if same else list(map(str, classes)))
