"""``--engine`` of ``fit`` and ``apply``: the same commands on tables that do not fit in memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evenhand import tables
from evenhand.cli.columns import cells_of, check_joint, match_columns, positive_label, which_columns
from evenhand.engines.source import Source, combinations_of, values_of
from evenhand.errors import InputError, require
from evenhand.files import local_path, url_of, whole_folder, whole_or_nothing
from evenhand.inputs import MOST_GROUPS
from evenhand.origins import STANDARD_INPUT, format_of, origin_of
from evenhand.rows import needed_attributes
from evenhand.rules.events import AttributeKey
from evenhand.rules.mixture import Mixture
from evenhand.rules.objective import in_words
from evenhand.rules.rule import Rule
from evenhand.rules.system import write_out
from evenhand.text import printable

if TYPE_CHECKING:
    from evenhand.cli.score_columns import ScoreColumns
    from evenhand.rules.setting import Options

EngineName = Literal["duckdb", "spark"]


def learn(
    name: EngineName,
    file: Path,
    columns: ScoreColumns,
    options: Options,
    tolerance: float,
    *,
    randomize: bool = False,
    confidence: float | None = None,
) -> Rule | Mixture:
    """Learn a rule from a table with an engine."""
    if columns.score is None:
        raise InputError("Name the column with the probability of the positive label with --score.")
    engine, data = _open(name, file)
    source: Source = engine.Table(data)
    for column in (columns.label, *columns.sensitive, *options.criterion.strata):
        if column not in source.names:
            raise InputError(f"{file} has no column {column!r}. {tables.nearest(column, source.names)}")
    criterion = options.criterion
    labels = values_of(source, columns.label)
    positive = positive_label(labels, columns.pos_label, columns.label)
    negative = [label for label in labels if label != positive]
    if len(negative) != 1:
        raise InputError(f"The column {columns.label!r} must have two values; it has {labels[:6]!r}.")
    groups: dict[AttributeKey, tuple[Hashable, ...]] = {name: values_of(source, name) for name in columns.sensitive}
    for attribute, members in groups.items():
        if len(members) > MOST_GROUPS:
            raise InputError(
                f"The column {attribute!r} has more than {MOST_GROUPS} different values: it looks like a number or an"
                " identifier, not like groups. Bin it first."
            )
    for crossed in criterion.intersections:
        groups[crossed] = combinations_of(source, crossed.attributes)
    classes = (negative[0], positive)
    needed = needed_attributes(criterion, groups)
    found = match_columns(columns.group_score, columns.joint_score, needed, classes, source.names)
    check_joint(criterion, found, needed, classes)
    rule: Rule | Mixture = engine.learn_rule(
        data,
        y=columns.label,
        sensitive_features=list(columns.sensitive),
        p_y=columns.score,
        p_group=cells_of(found, groups, classes),
        sample_weight=columns.weight,
        pos_label=positive,
        criterion=criterion,
        tolerance=tolerance,
        search=options.search,
        objective=options.objective,
        randomize=randomize,
        confidence=confidence,
        costs=options.costs,
        missing=options.missing,
        safety=options.safety,
        random_state=options.random_state,
    )
    return rule


def apply(
    name: EngineName,
    rule: Rule | Mixture,
    file: Path,
    output: Path,
    *,
    score: str | None,
    group_score: Sequence[str],
    joint_score: Sequence[str],
    key: str | None,
    prefix: str,
    keep: bool,
) -> None:
    """Decide every row of a table with an engine; the output is complete or absent."""
    kind = format_of(output, write=True)
    if kind == "arrow":
        raise InputError(f"{output}: with --engine the output must be .parquet or .csv.")
    engine, data = _open(name, file)
    named = which_columns(rule, engine.Table(data).names, score, group_score, joint_score)
    cells = cells_of(named.groups, rule.groups, rule.classes)
    decided = engine.apply(rule, data, p_y=named.score, p_group=cells, key=key, prefix=prefix, keep=keep)
    if name == "duckdb":
        with whole_or_nothing(output) as temporary:
            engine.write(decided, temporary, kind, called=output)
    else:
        with whole_folder(output) as temporary, engine.plain_errors():
            writer = decided.write.mode("overwrite")
            writer.parquet(str(temporary)) if kind == "parquet" else writer.csv(str(temporary), header=True)


def summary(rule: Rule | Mixture) -> str:
    """Return a text on a rule's results on the rows it was learnt from."""
    from evenhand.text import table_text

    learned, solution = rule.learned_from, rule.solution_
    assert rule.criterion is not None
    rows = [[in_words(learned["objective"]), f"{solution.utility:.4f}", ""]]
    bounds = (
        rule.criterion.reported(rule.groups)
        if rule.criterion.has_levels
        else write_out(rule.criterion, rule.groups).constraints
    )
    for bound, value in zip(bounds, solution.values, strict=True):
        lower, upper = bound.bounds(rule.tolerance or 0.0)
        rows.append([printable(bound.name), f"{value:.4f}", f"between {lower:g} and {upper:g}"])
    cells, reading = learned.get("quantisation"), learned.get("reading", {})
    passes = reading.get("passes", 1)
    searched = (
        f"Status {solution.status}, on the rows themselves: {passes} pass{'' if passes == 1 else 'es'},"
        f" {reading.get('rows_brought_back', 0):,} rows fetched."
        if cells is None
        else f"Searched in {cells['cells']:,} cells of width {cells['step']:g}."
    )
    if isinstance(rule, Mixture):
        rules = f"{len(rule.rules)} rule{'' if len(rule.rules) == 1 else 's'}"
        searched += f"\nA mixture of {rules}: pass `apply` a --key."
    if "confidence" in learned:
        promise = learned["confidence"]
        searched += (
            f"\nCertified on {promise['certifying_rows']:,} other rows, with confidence {promise['confidence']:g}."
        )
    return (
        f"On the rows it was learnt from ({learned['rows']:,}), counted on the unrounded scores:\n"
        f"{table_text(['', 'fair', 'bounds'], rows, indent='  ')}\n"
        f"{searched}"
    )


def _open(name: EngineName, file: Path) -> tuple[Any, Any]:
    url = url_of(file)
    place = str(local_path(file)) if url is None or url.lower().startswith("file:") else url
    if place == STANDARD_INPUT:
        place = str(origin_of(file).files[0])
    if name == "duckdb":
        from evenhand.engines import duckdb

        return duckdb, place
    from evenhand.engines import spark

    session = _session()
    csv = place.lower().endswith((".csv", ".csv.gz"))
    with spark.plain_errors():
        read = session.read
        return spark, read.csv(place, header=True, inferSchema=True) if csv else read.parquet(place)


def _session() -> Any:
    """Return the active Spark session, or a local one that accepts no connections."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with warnings.catch_warnings():
        # Spark warns about versions of pandas, which is not used here.
        warnings.simplefilter("ignore")
        builder = require("--engine spark", "engines", "pyspark.sql").SparkSession.builder.appName("evenhand")
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        if "MASTER" not in os.environ and "PYSPARK_SUBMIT_ARGS" not in os.environ:
            builder = builder.master("local[*]").config("spark.driver.bindAddress", "127.0.0.1")
            builder = builder.config("spark.driver.host", "127.0.0.1")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
