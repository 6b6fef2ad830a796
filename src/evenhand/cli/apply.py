"""``evenhand apply``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from evenhand.cli.columns import GroupColumns
    from evenhand.rules.criteria import AttributeKey
    from evenhand.rules.rule import Rule
    from evenhand.tables import Source

AHEAD = 3


def apply(
    rule: Path,
    file: Path,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    score: str | None = None,
    group_score: list[str] | None = None,
    joint_score: list[str] | None = None,
    prefix: str = "",
    keep: Annotated[bool, Parameter(negative="--no-keep")] = True,
    engine: Literal["duckdb", "spark"] | None = None,
) -> int:
    """Decide every row of a table by a rule, or by a whole classifier.

    evenhand apply rule.json new.parquet -o decided.parquet

    Adds the columns decision, fair_margin (the decision is positive iff it is above 0), flipped (whether the
    model alone would have decided otherwise) and bias_score_1, bias_score_2, ... Rows are read, decided and
    written in batches, so memory does not grow with the table. The output appears when it is complete, or not
    at all.

    Parameters
    ----------
    rule
        The JSON file that `fit` wrote, or the .skops file of `fit --features`.
    file
        A .csv, .parquet or .arrow table.
    output
        The table to write, in the format of its extension.
    score
        The column with the probability of the positive label, if it is not the one the rule was fitted on.
    group_score
        GROUP=COLUMN, as in `fit`, if they are not those the rule was fitted on.
    joint_score
        LABEL,GROUP=COLUMN, as in `fit`, if they are not those the rule was fitted on.
    prefix
        Put this before the names of the new columns.
    keep
        Whether the table's own columns are written too.
    engine
        Decide in duckdb or spark instead; the file may then be a glob, and spark's output is a folder.
    """
    import evenhand as eh
    from evenhand import tables
    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.errors import InputError

    out.check_outputs(
        {"--output": output},
        {"the rule that is read": rule, "the table that is read": tables.matching(file) if engine else file},
        folders="replaced" if engine == "spark" else None,
    )
    if rule.suffix.lower() == ".skops":
        from evenhand.cli.apply_classifier import apply_classifier

        if score or group_score or joint_score or engine:
            raise InputError(
                "A classifier computes its probabilities itself, in Python: leave out --score, --group-score,"
                " --joint-score and --engine."
            )
        return apply_classifier(rule, file, output, prefix=prefix, keep=keep)
    learned = eh.Rule.from_json(out.read_text(rule))
    if engine is not None:
        from evenhand.cli.engine import apply as apply_by_engine

        given = {"score": score, "group_score": group_score or [], "joint_score": joint_score or []}
        apply_by_engine(engine, learned, file, output, prefix=prefix, keep=keep, **given)  # type: ignore[arg-type]
        return PASS
    tables.format_of(output)
    named = which_columns(learned, tables.open_table(file), score, group_score or [], joint_score or [])
    needed = named.needed()
    verbatim = tables.format_of(output) == "csv"
    source = tables.open_table(file, columns=None if keep else needed, numbers=needed, verbatim=verbatim)
    source.check_columns(source.names if keep else needed)
    decider = Decider(learned, named, prefix, keep)
    schema = decider.schema(source)
    with tables.write_batches(output, schema) as writer, out.progress("deciding", source.rows) as advance:
        for table in decided_ahead(decider, source.batches()):
            writer.write(table)
            advance(table.num_rows)
    return PASS


def decided_ahead(decider: Decider, batches: Iterator[Any]) -> Iterator[Any]:
    """Decide batches in another thread while the ones before are written; only a few wait at any time."""
    start = 0
    waiting: list[Future[Any]] = []
    pool = ThreadPoolExecutor(1)
    try:
        for batch in batches:
            waiting.append(pool.submit(decider.decide, batch, start))
            start += batch.num_rows
            if len(waiting) >= AHEAD:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Named:
    """The columns of a table that hold the probabilities a rule needs."""

    score: str
    groups: dict[AttributeKey, GroupColumns]

    def needed(self) -> list[str]:
        """Return the names, each once."""
        return list(dict.fromkeys([self.score, *(name for entry in self.groups.values() for name in entry.named())]))


def which_columns(
    rule: Rule, source: Source, score: str | None, group_score: Sequence[str], joint_score: Sequence[str]
) -> Named:
    """Return the columns to use: those given, else those that the rule remembers."""
    from evenhand.cli.columns import match_columns, remembered_columns
    from evenhand.errors import InputError

    remembered, groups = remembered_columns(rule)
    needed = {name: rule.groups[name] for name in rule.attributes}
    if group_score or joint_score:
        groups = match_columns(group_score, joint_score, needed, rule.classes, source.names)
    chosen = score if score is not None else remembered
    if chosen is None:
        raise InputError("The rule does not say which column holds the probability: say so, with --score.")
    for name, members in needed.items():
        if name not in groups:
            raise InputError(
                f"The rule does not say which columns hold the probabilities of {name!r}:"
                " give --group-score or --joint-score."
            )
        if len(groups[name].columns) != len(members) * (2 if groups[name].joint else 1):
            raise InputError(
                f"The rule's columns of {name!r} do not fit its groups: give --group-score or --joint-score."
            )
    named = Named(chosen, {name: groups[name] for name in needed})
    source.check_columns(named.needed())
    return named


@dataclass(frozen=True)
class Decider:
    """Decides batches of rows by a rule."""

    rule: Rule
    named: Named
    prefix: str
    keep: bool

    @property
    def names(self) -> list[str]:
        """The names of the new columns."""
        scores = [f"bias_score_{k + 1}" for k in range(len(self.rule.terms))]
        return [f"{self.prefix}{name}" for name in ("decision", "fair_margin", "flipped", *scores)]

    def labels(self) -> Any:
        """Return the two labels as an Arrow array."""
        import pyarrow as pa

        classes = list(self.rule.classes)
        same = len({type(label) for label in classes}) == 1
        return pa.array(classes if same else list(map(str, classes)))

    def schema(self, source: Source) -> Any:
        """Return the schema of what is written."""
        import pyarrow as pa

        from evenhand.errors import InputError

        taken = [name for name in self.names if name in source.names] if self.keep else []
        if taken:
            raise InputError(f"{source.path} already has a column {taken[0]!r}: rename the new ones, with --prefix.")
        kinds = [self.labels().type, pa.float64(), pa.bool_(), *([pa.float64()] * len(self.rule.terms))]
        own = list(source.schema) if self.keep else []
        return pa.schema([*own, *(pa.field(name, kind) for name, kind in zip(self.names, kinds, strict=True))])

    def probabilities(self, batch: Any) -> tuple[Any, Any]:
        """Return the probabilities that a batch holds."""
        from evenhand import tables

        read = {name: tables.numbers_of(batch, name) for name in self.named.needed()}
        return read[self.named.score], {name: entry.stack(read, name) for name, entry in self.named.groups.items()}

    def decide(self, batch: Any, start: int) -> Any:
        """Return a batch with its decisions as a table; ``start`` is the number of rows before it."""
        import numpy as np
        import pyarrow as pa

        from evenhand.errors import InputError
        from evenhand.rules import scores

        try:
            p_y, p_group = self.probabilities(batch)
            fair = self.rule.decision_function(p_y, p_group)
            bias = self.rule.bias_scores(p_y, p_group)
        except InputError as error:
            rows = f" (rows are counted from row {start:,} of the table)" if start else ""
            raise InputError(f"{error}{rows}") from None
        positive = fair > 0.0
        flipped = (scores.margin(p_y, self.rule.costs) > 0.0) != positive
        new = [
            self.labels().take(pa.array(positive.astype(np.int32))),
            pa.array(fair),
            pa.array(flipped),
            *(pa.array(np.ascontiguousarray(bias[:, k])) for k in range(bias.shape[1])),
        ]
        own = [batch.column(i) for i in range(batch.num_columns)] if self.keep else []
        names = [*(batch.schema.names if self.keep else []), *self.names]
        return pa.table([*own, *new], names=names)
