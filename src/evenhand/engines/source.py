"""The common part of all engines: find the columns, count, learn."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack

import numpy as np

from evenhand import tables
from evenhand.arguments import Seed, check_flag, check_label, check_text, check_whole, is_missing, shown
from evenhand.engines.aggregate import Aggregate
from evenhand.engines.counter import MAX_CELLS, Counter, DenseCounter, check_level
from evenhand.engines.exact import Promise, can_be_exact, check_larger, learn_in_memory, learn_out_of_core
from evenhand.engines.gathering import Choice, Everything, RawRows, check_weight
from evenhand.engines.ground import Atoms
from evenhand.engines.learning import check_plain, learn_from_cells, learn_with_recount, rows_of, warn_if_coarse
from evenhand.engines.near import NearAggregate
from evenhand.engines.near_lines import counted_near
from evenhand.engines.opening import ROWS_OF_A_SAMPLE, Opening, open_frames
from evenhand.engines.quotient import as_balanced, with_balanced_costs
from evenhand.engines.reading import MOST_COUNTED, Counted, Reader, count
from evenhand.engines.recount import Decisions, Recount, places
from evenhand.engines.remembered import recall
from evenhand.engines.schema import (
    BAD_LABEL,
    FINEST,
    FLAWED,
    Cells,
    Columns,
    Frame,
    Schema,
    Tally,
    Words,
    read_attributes,
    read_group_columns,
)
from evenhand.engines.site import Site, check_near, columns_near
from evenhand.engines.strata import learn_in_strata, without_strata
from evenhand.errors import InputError
from evenhand.inputs import MOST_GROUPS as MOST_STRATA
from evenhand.inputs import Missing, sort_groups
from evenhand.rules.criteria import Criterion, check_tolerance, resolve
from evenhand.rules.events import AttributeKey, Intersection
from evenhand.rules.evidence import EvidenceName
from evenhand.rules.lots_sql import KeyKind
from evenhand.rules.mixture import Mixture, check_any_rule
from evenhand.rules.objective import BALANCED
from evenhand.rules.rule import Rule
from evenhand.rules.scores import read_costs
from evenhand.rules.setting import Options
from evenhand.search import Search

MOST_GROUPS = 1000
# Values, rows times columns, that are read into memory: an eighth of a gigabyte, and several times that in a search.
MAX_IN_MEMORY = 16_000_000
FEWEST_ROWS_IN_MEMORY = 10_000


class Names(TypedDict, total=False):
    """The names of the columns of labels, groups, probabilities and weights."""

    y: str | None
    sensitive_features: Any
    p_y: str
    p_group: Any
    sample_weight: str | None
    pos_label: Hashable


class Size(TypedDict, total=False):
    """How finely scores are counted."""

    level: int
    max_cells: int


class Learning(Size, total=False):
    """The options of :func:`evenhand.learn_rule` that an engine supports, and its limits of memory and cells."""

    max_in_memory: int

    objective: str
    randomize: bool
    confidence: float | None
    search: str | Search
    evidence: EvidenceName
    safety: float
    costs: Any
    priors: Any
    missing: Missing
    random_state: Seed


class Source(Protocol):
    """A table that an engine can read."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        ...

    @property
    def again(self) -> bool:
        """Whether the rows can be read more than once."""
        ...

    def distinct(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return the distinct combinations of the values of some columns, at most MOST_GROUPS + 1."""
        ...

    def size(self, columns: Columns, most: int) -> int:
        """Return the number of rows; any number above ``most`` if there are more."""
        ...

    def fill(self, columns: Columns, tally: Tally, counter: Counter | DenseCounter) -> None:
        """Count the words of the rows, in one pass."""
        ...

    def rows(self, columns: Columns, choice: Choice, most: int, *, ordered: bool) -> RawRows | None:
        """Return the selected rows; None if more than ``most`` are different.

        ``ordered`` asks for the order of the table; otherwise they come in any order, and equal ones may be one.
        """
        ...

    def frames(self, columns: Columns) -> Iterator[Frame] | None:
        """Yield all rows under their inner names; None where an engine counts them elsewhere."""
        ...

    def inside(self, column: str, value: Hashable) -> Source:
        """Return the rows with one value in a column."""
        ...

    def flawed(self, columns: Columns, cells: Cells) -> str:
        """Return a text on a row with invalid probabilities."""
        ...


def find_columns(
    source: Source,
    *,
    p_y: str,
    p_group: Any = None,
    y: str | None = None,
    sensitive_features: Any = None,
    sample_weight: str | None = None,
    pos_label: Hashable = 1,
    criterion: str | Criterion | None = None,
) -> Columns:
    """Return the columns, after checking that they exist; the criterion names those of strata."""
    wanted = None if criterion is None else resolve(criterion)
    crossed, strata = ((), ()) if wanted is None else (wanted.intersections, wanted.strata)
    if not isinstance(p_y, str):
        raise InputError(f"p_y must name the column of P(Y = positive | x); got {shown(p_y)}.")
    for name, given in (("y", y), ("sample_weight", sample_weight)):
        if given is not None:
            check_text(given, name, "the name of a column")
    check_label(pos_label)
    attributes = read_attributes(sensitive_features)
    scored, cells, classes = read_group_columns(p_group, list(attributes), pos_label, crossed)
    named = [y, *attributes.values(), *strata, p_y, *(name for row in cells for name in row), sample_weight]
    for name in dict.fromkeys(name for name in named if name is not None):
        times = list(source.names).count(name)
        if times != 1:
            problem = f"no column {name!r}. {tables.nearest(name, source.names)}" if not times else f"{name!r} twice."
            raise InputError(f"The table has {problem}")
    if classes is None:
        classes = _classes(source, y, pos_label)
    known = {entry.attribute: entry.groups for entry in scored}
    observed = tuple(
        (attribute, known[attribute] if attribute in known else _groups(source, column))
        for attribute, column in attributes.items()
    )
    within = tuple((column, _strata(source, column)) for column in strata)
    schema = Schema(y is not None, classes, scored, observed, within)
    return Columns(schema, y, tuple(attributes.values()), p_y, cells, sample_weight)


def values_of(source: Source, column: str) -> tuple[Hashable, ...]:
    """Return the values of a column, in order, without missing ones."""
    return sort_groups(value for (value,) in source.distinct(column) if not is_missing(value))


def combinations_of(source: Source, columns: Sequence[str]) -> tuple[Hashable, ...]:
    """Return the combinations of values of some columns, in order, without missing ones."""
    return sort_groups(values for values in source.distinct(*columns) if not any(map(is_missing, values)))


def _classes(source: Source, y: str | None, pos_label: Hashable) -> tuple[Hashable, Hashable]:
    if y is None:
        return (0, 1) if pos_label == 1 else (f"not {pos_label}", pos_label)
    values = values_of(source, y)
    others = [value for value in values if value != pos_label]
    if len(others) > 1:
        raise InputError(f"y must have two values, one of them {pos_label!r}; {y!r} has {values[:6]!r}.")
    # True equals 1, and the column's own value is the label.
    own = next((value for value in values if value == pos_label), pos_label)
    return (others[0] if others else None), own


def _groups(source: Source, column: str) -> tuple[Hashable, ...]:
    values = values_of(source, column)
    if len(values) > MOST_GROUPS:
        raise InputError(
            f"{column!r} has more than {MOST_GROUPS} values: it looks like a number, not like groups. Bin it first."
        )
    return values


def _strata(source: Source, column: str) -> tuple[Hashable, ...]:
    values = values_of(source, column)
    if len(values) > MOST_STRATA:
        raise InputError(
            f"The column of strata {column!r} has more than {MOST_STRATA} values: it looks like a number or an"
            " identifier, not like strata. Bin it first, or merge small strata."
        )
    return values


def count_frame(frame: Frame, tally: Tally, weighted: bool, counter: Counter | DenseCounter) -> None:
    """Count some rows, given by the inner names of their scores, labels, groups and weights."""
    n = len(frame["s0"])
    if n == 0:
        return
    weight = np.nan_to_num(frame["w"]) if weighted else np.ones(n)
    sums = ([weight] if weighted else []) + [weight * frame[name] for name in tally.payload]
    counter.add(tally.words(frame), np.column_stack(sums) if sums else np.empty((n, 0)))


def aggregate_source(source: Source, columns: Columns, *, level: int = FINEST, max_cells: int = MAX_CELLS) -> Aggregate:
    """Return the aggregate of a table, after checking what was counted."""
    check_level(level, max_cells)
    return _counted(source, columns, Cells(columns.schema, columns.weight is not None), level, max_cells)


def aggregate_near(source: Source, columns: Columns, rule: Rule) -> NearAggregate:
    """Return the counts of a table around a rule, in two passes, after checking what was counted."""
    check_near(rule)
    columns, weighted = columns_near(columns, rule), columns.weight is not None
    atoms = Atoms(columns.schema, weighted, costs=rule.costs)
    reader = Reader(source, columns, FEWEST_ROWS_IN_MEMORY)
    counted = _opened(reader, source, atoms)
    site = Site(columns.schema, rule)
    words, weight = counted_near(reader, site)
    places, codes = np.divmod(words, site.n_codes)
    check_weight(float(weight.sum()), float(counted.weight.sum()))
    return NearAggregate(rule, counted, weighted, places, codes, weight)


def _counted(source: Source, columns: Columns, cells: Cells, level: int, max_cells: int) -> Aggregate:
    """Return what a tally of cells counts, after checking it."""
    return _checked(source, columns, cells, count(source, columns, cells, level, max_cells))


def _checked(source: Source, columns: Columns, cells: Cells, counted: Counted) -> Aggregate:
    """Return counted cells, after checking them."""
    words, sums, rows, reached = counted
    _check_words(source, columns, cells, words, rows)
    weight = sums[:, 0] if columns.weight is not None else rows.astype(np.float64)
    if rows.size and not weight.sum() > 0.0:
        raise InputError("The weights are zero for every row: give some rows a positive weight.")
    return Aggregate(columns.schema, reached, words, weight, rows)


def _check_words(source: Source, columns: Columns, cells: Cells, words: Words, rows: Words) -> None:
    """Raise :class:`InputError` if scores are not probabilities, or labels or groups are unknown."""
    schema = columns.schema
    flawed = schema.unpack(words, "flaw") == FLAWED
    if flawed.any():
        raise InputError(
            f"{int(rows[flawed].sum()):,} rows have scores that are not probabilities between 0 and 1 or that do not"
            f" sum to 1 within an attribute, or weights that are not numbers; {source.flawed(columns, cells)}."
        )
    label = schema.unpack(words, "label")
    if (label == BAD_LABEL).any():
        raise InputError(
            f"{int(rows[label == BAD_LABEL].sum()):,} rows have a label in {columns.y!r} that is missing, or is neither"
            f" {schema.classes[0]!r} nor {schema.classes[1]!r}."
        )
    for place, (name, groups) in enumerate(schema.observed):
        strange = schema.unpack(words, f"a{place}") == len(groups) + 1
        if strange.any():
            raise InputError(
                f"{int(rows[strange].sum()):,} rows have an unknown group in {columns.sensitive[place]!r}; the groups"
                f" of {name!r} are {list(groups)!r}."
            )
    for place, (name, strata) in enumerate(schema.strata):
        strange = schema.unpack(words, f"t{place}") == len(strata) + 1
        if strange.any():
            raise InputError(
                f"{int(rows[strange].sum()):,} rows have a stratum of {name!r} that is not among the first rows, which"
                f" have {list(strata[:8])!r}: pass data that can be read more than once."
            )


def learn_source(
    source: Source,
    columns: Columns,
    *,
    criterion: str | Criterion,
    tolerance: float,
    **options: Unpack[Learning],
) -> Rule | Mixture:
    """Return the best rule that meets its bounds on the rows: read in, fetched in part, or counted in cells."""
    tolerance = check_tolerance(tolerance)
    rest: dict[str, Any] = dict(options)
    _check_options(rest)
    level, max_cells = rest.pop("level", FINEST), rest.pop("max_cells", MAX_CELLS)
    check_level(level, max_cells)
    in_memory = check_whole(rest.pop("max_in_memory", MAX_IN_MEMORY), "max_in_memory", at_least=0)
    randomize, confidence = check_flag(rest.pop("randomize", False), "randomize"), rest.pop("confidence", None)
    wanted = Options(criterion=resolve(criterion), **{**rest, "costs": read_costs(rest.get("costs"))})
    promise = Promise(randomize, confidence)
    promise.check(wanted, columns)
    most = in_memory // len(columns.needed)
    if source.size(columns, most) <= most:
        return _learn_in_memory(source, columns, wanted, tolerance, most, promise)
    promise.check_absent()
    return _learn_larger(source, columns, wanted, tolerance, most, {"level": level, "max_cells": max_cells})


def _learn_larger(source: Source, columns: Columns, options: Options, tolerance: float, most: int, size: Size) -> Rule:
    """Return the rule of a table that does not fit in memory."""
    check_larger(options, source.again)
    if options.target.name == BALANCED:
        labels = _counted(source, columns, Atoms(columns.schema, columns.weight is not None), FINEST, MOST_COUNTED)
        rows_of(labels, options)  # both labels are there
        share = float(labels.weight[labels.positive].sum() / labels.weight.sum())
        costs = with_balanced_costs(options, share)
        return as_balanced(_learn_larger(source, columns, costs, tolerance, most, size))
    if options.criterion.strata:
        return _learn_in_strata(source, columns, options, tolerance, most, size)
    if source.again and can_be_exact(options):
        atoms = Atoms(columns.schema, columns.weight is not None, costs=options.costs)
        reader = Reader(source, columns, max(most, FEWEST_ROWS_IN_MEMORY))
        found = learn_out_of_core(_opened(reader, source, atoms), reader, options, tolerance)
        if found is not None:
            return found
    check_plain(options)
    return _learn_in_cells(source, columns, options, tolerance, size)


def _learn_in_strata(
    source: Source, columns: Columns, options: Options, tolerance: float, most: int, size: Size
) -> Rule:
    """Return the rule of a larger table whose groups are compared within strata."""
    inner = without_strata(columns)
    plain = dataclasses.replace(options, criterion=options.criterion.unstratified)

    def learn(column: str, stratum: Hashable, n_rows: int) -> Rule:
        some = source.inside(column, stratum)
        if n_rows > most:
            return _learn_larger(some, inner, plain, tolerance, most, size)
        rule = _learn_in_memory(some, inner, plain, tolerance, most, Promise())
        assert isinstance(rule, Rule)
        return rule

    atoms = Atoms(columns.schema, columns.weight is not None, costs=options.costs)
    counted = _counted(source, columns, atoms, FINEST, MOST_COUNTED)
    return learn_in_strata(counted, options, tolerance, learn).noting(columns=columns.remember())


def _opened(reader: Reader, source: Source, atoms: Atoms) -> Aggregate:
    """Return the atoms of a table, after checking them; the reader gets a sample if the rows are streamed here."""
    columns = reader.columns
    reader.passes += 1
    opening = Opening(columns, atoms, min(ROWS_OF_A_SAMPLE, reader.most // 2))
    frames = source.frames(columns) if opening.possible else None
    if frames is None:
        return _counted(source, columns, atoms, FINEST, MOST_COUNTED)
    counted, reader.sample = open_frames(frames, opening)
    reader.complete = opening.complete
    return _checked(source, columns, atoms, counted)


def _check_options(given: Iterable[str]) -> None:
    """Raise :class:`InputError` where an option is none of learning's."""
    known = {*Learning.__annotations__, *(field.name for field in dataclasses.fields(Options))}
    for name in given:
        if name not in known:
            raise InputError(f"An engine's learn_rule has no option {name!r}. {tables.nearest(name, sorted(known))}")


def _learn_in_memory(
    source: Source, columns: Columns, options: Options, tolerance: float, most: int, promise: Promise
) -> Rule | Mixture:
    """Return the rule that is learnt from all rows in memory."""
    raw = source.rows(columns, Everything(), most, ordered=True)
    assert raw is not None
    cells = Cells(columns.schema, columns.weight is not None)
    _check_words(source, columns, cells, cells.words(raw.frame), raw.rows)
    if len(raw) and not raw.weight.sum() > 0.0:
        raise InputError("The weights are zero for every row: give some rows a positive weight.")
    rule = learn_in_memory(raw, options, tolerance, promise)
    return rule.noting(reading={"passes": 1, "rows_brought_back": len(raw)}, columns=columns.remember())


def _learn_in_cells(source: Source, columns: Columns, options: Options, tolerance: float, size: Size) -> Rule:
    """Return the rule that is learnt from counts of quantised scores, and counted again on the rows if possible."""
    found = aggregate_source(source, columns, **size)
    warn_if_coarse(found, size["level"])
    if not source.again:
        rule = learn_from_cells(found, options, tolerance, provable=False)
        return dataclasses.replace(rule, learned_from={**rule.learned_from, "columns": columns.remember()})

    def recount(decisions: Decisions) -> Recount:
        words, sums, rows, _ = count(source, columns, decisions)
        return decisions.recount(words, sums, rows)

    return learn_with_recount(found, columns, recount, options, tolerance)


def columns_of_rule(
    rule: Rule | Mixture, p_y: str | None, p_group: Any
) -> tuple[str, dict[AttributeKey, dict[Hashable, str | None]]]:
    """Return the columns that a rule is applied to: those given, else those it was learnt on."""
    check_any_rule(rule)
    remembered, entries = recall(rule.learned_from, rule.groups)
    score = remembered if p_y is None else p_y
    if score is None:
        raise InputError("The rule does not say which column holds the probability: name it, with p_y or --score.")
    check_text(score, "p_y", "the name of a column")
    if p_group is not None:
        crossed = [name for name in rule.groups if isinstance(name, Intersection)]
        scored, cells, _ = read_group_columns(p_group, rule.attributes, rule.classes[1], crossed)
        given = {entry.attribute: entry.groups for entry in scored}
        for name in rule.attributes:
            if given.get(name) != tuple(sort_groups(rule.groups[name])):
                has = f"has {list(given[name])!r}" if name in given else "has none of them"
                raise InputError(f"p_group of {name!r} must have the groups {list(rule.groups[name])!r}; it {has}.")
        return score, {
            entry.attribute: dict(zip(places(entry.groups, rule.classes, entry.joint), row, strict=True))
            for entry, row in zip(scored, cells, strict=True)
        }
    found: dict[AttributeKey, dict[Hashable, str | None]] = {}
    for name in rule.attributes:
        entry = entries.get(name)
        listed = entry.get("columns") if isinstance(entry, dict) else None
        keys = places(rule.groups[name], rule.classes, isinstance(entry, dict) and entry.get("kind") == "joint")
        if not isinstance(listed, list) or len(listed) != len(keys):
            raise InputError(
                f"The rule does not say which columns hold the probabilities of {name!r}: name them, with p_group,"
                " --group-score or --joint-score."
            )
        found[name] = dict(zip(keys, listed, strict=True))
    return score, found


def check_columns(
    names: Sequence[str],
    cells: dict[AttributeKey, dict[Hashable, str | None]],
    score: str,
    strata: Sequence[str] = (),
) -> None:
    """Raise :class:`InputError` if a column that a rule needs is missing."""
    for name in [score, *(name for row in cells.values() for name in row.values() if name is not None), *strata]:
        if name not in names:
            raise InputError(f"The table has no column {name!r}. {tables.nearest(name, names)}")


def key_kind_of(rule: Rule | Mixture, key: str | None, kinds: Mapping[str, str]) -> KeyKind:
    """Return the type of the key column; raise if it is missing, has no keys, or is not needed."""
    if key is None:
        return "number"
    check_key(rule, key)
    if key not in kinds:
        raise InputError(f"The table has no column {key!r}. {tables.nearest(key, list(kinds))}")
    if kinds[key] not in ("number", "text"):
        raise InputError(f"The column {key!r} has {kinds[key]} values: a key must be a whole number or a text.")
    return "text" if kinds[key] == "text" else "number"


def check_key(rule: Rule | Mixture, key: str | None) -> None:
    """Raise if a column of keys is given for a rule that is not randomized, or if it is not a name."""
    if key is not None and not isinstance(rule, Mixture):
        raise InputError(
            "This rule is not randomized: leave key out. learn_rule(..., randomize=True) returns one that is."
        )
    if key is not None:
        check_text(key, "key", "the name of a column")


def new_names(rule: Rule | Mixture, prefix: str, taken: Sequence[str]) -> list[str]:
    """Return the names of the columns that applying a rule adds: decision, fair_margin, flipped, bias_score_1, ...

    A mixture has expected_decision and lot instead of fair_margin.
    """
    check_text(prefix, "prefix")
    first, middle = (
        (rule.rules[0], ("expected_decision", "lot")) if isinstance(rule, Mixture) else (rule, ("fair_margin",))
    )
    scores = [f"bias_score_{k + 1}" for k in range(len(first.terms))]
    names = [f"{prefix}{name}" for name in ("decision", *middle, "flipped", *scores)]
    for name in names:
        if name in taken:
            raise InputError(f"The table already has a column {name!r}: rename the new ones with prefix or --prefix.")
    return names
