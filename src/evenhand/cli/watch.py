"""``evenhand watch``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from evenhand.auditing.watch import Watch
    from evenhand.rules.rule import Rule


@Parameter(name="*")
@dataclasses.dataclass(kw_only=True)
class StreamColumns:
    """The columns of decisions, labels and groups."""

    sensitive: list[str] = dataclasses.field(default_factory=list)
    "A column of groups; repeat for several attributes. By default those that the rule's criterion compares."

    label: str | None = None
    "The column of labels, empty if the label has not arrived yet."

    id: str | None = None
    "The column that identifies rows. A row without a label then waits until its identifier occurs with one."

    decision: str | None = None
    "The column of decisions, instead of those of the rule."

    score: str | None = None
    "The column with the probability of the positive label, if it is not the one the rule was fitted on."

    group_score: list[str] = dataclasses.field(default_factory=list)
    "GROUP=COLUMN, as in `fit`, if they are not those the rule was fitted on."

    joint_score: list[str] = dataclasses.field(default_factory=list)
    "LABEL,GROUP=COLUMN, as in `fit`, if they are not those the rule was fitted on."

    ignore_missing: bool = False
    "Rows of unknown group count for no group; otherwise they are an error."


def watch(
    rule: Path,
    file: Path,
    /,
    *,
    state: Path,
    columns: StreamColumns | None = None,
    criterion: list[str] | None = None,
    tolerance: float | None = None,
    confidence: float = 0.95,
    window: int = 10_000,
    report: Path | None = None,
) -> int:
    """Add the rows of a table to a watch, and report whether the criterion still holds.

    evenhand watch rule.json monday.parquet --state watch.json --label y --id id

    The first call creates the state file, and every further call continues from it: pass each row only once.
    However often you call it, all results together are wrong with probability at most 1 - confidence.

    If the criterion or the rule has strata ("dp within job"), the table needs their column, under the same name.

    Exit code 0: the criterion holds. 1: it is violated. 3: undecided with the rows so far.

    Parameters
    ----------
    rule
        The JSON file that `fit` wrote. It decides the rows, and contains the criterion and tolerance to monitor. A
        randomized mixture needs --decision.
    file
        New rows: a .csv, .csv.gz, .parquet or .arrow file, a folder or glob of .parquet files, an address, or -.
    state
        The JSON file that keeps the counts between calls.
    criterion
        The criterion, as in `audit`, if it is not that of the rule.
    tolerance
        The largest allowed gap, if it is not the rule's tolerance.
    confidence
        The probability that all results over time are correct.
    window
        The number of last rows that are also watched separately, so that a change shows sooner.
    report
        Write an HTML page with charts of the gaps over time.
    """
    import evenhand as eh
    from evenhand.auditing.watch_text import headline, left_out_text
    from evenhand.cli import FAIL, INSUFFICIENT, PASS
    from evenhand.cli import output as out
    from evenhand.cli.criterion import combine
    from evenhand.errors import InputError

    inputs = {"the rule that is read": rule, "the table that is read": file}
    out.check_outputs({"--state": state, "--report": report}, inputs)
    if rule.suffix.lower() == ".skops":
        raise InputError("watch needs the JSON file of a rule: decide with apply first, then watch with --decision.")
    columns = columns or StreamColumns()
    learned = _read_rule(rule, decided=columns.decision is not None)
    sensitive = columns.sensitive or _attributes_of(learned)
    watched = combine(criterion, sensitive) or learned.criterion
    allowed = learned.tolerance if tolerance is None else tolerance
    if watched is None or allowed is None:
        raise InputError("The rule has no criterion or tolerance: add --criterion and --tolerance.")
    if watched.needs_joint and columns.label is None and columns.id is None:
        raise InputError(
            "This criterion compares decisions among rows of one label: name the column of labels with --label, or that"
            " of identifiers with --id if labels arrive later."
        )
    fresh = eh.Watch(
        watched,
        allowed,
        confidence,
        window=window,
        groups={name: learned.groups[name] for name in sensitive if name in learned.groups} or None,
        strata=_strata_of(learned) if criterion is None else None,
        pos_label=learned.classes[1],
        missing="ignore" if columns.ignore_missing else "raise",
    )
    found = _gone_on(state, fresh)
    for batch in _batches(learned, file, columns, sensitive, watched.strata):
        found.update(**batch)
    found.save(state)
    out.say(headline(found))
    if text := left_out_text(found):
        out.say(text)
    if report is not None:
        from evenhand.report.watching import write_watch

        write_watch(found, report, title=f"Watch of {file.name}")
        out.say(f"The report is in {report}")
    return {"violated": FAIL, "holds": PASS, "undecided": INSUFFICIENT}[found.state]


def _read_rule(path: Path, *, decided: bool) -> Rule:
    """Return the rule of a file, or one of a mixture's rules, which have the same criterion, groups and strata."""
    from evenhand.cli import output as out
    from evenhand.errors import InputError
    from evenhand.rules.mixture import Mixture, read_rule

    found = read_rule(out.read_text(path))
    if not isinstance(found, Mixture):
        return found
    if not decided:
        raise InputError(
            f"{path} is a randomized mixture, which decides by each row's key: decide with apply --key, then watch the"
            " decided table with --decision decision."
        )
    return found.rules[0]


def _attributes_of(rule: Rule) -> list[str]:
    """Return the columns whose groups a rule has; crossed attributes as single columns."""
    from evenhand.rules.events import Stratified

    bases = [key for key in rule.groups if not isinstance(key, Stratified)]
    names = [[key] if isinstance(key, str) else list(key.attributes) for key in bases]
    return list(dict.fromkeys(name for listed in names for name in listed))


def _gone_on(path: Path, fresh: Watch) -> Watch:
    """Return the watch of a state file, or a new one if there is none yet."""
    from evenhand.arguments import shown
    from evenhand.auditing.watch import Watch
    from evenhand.errors import InputError

    if not path.exists():
        return fresh
    found = Watch.load(path)
    for name in ("criterion", "tolerance", "confidence", "window", "groups", "strata", "pos_label"):
        before, now = getattr(found, name), getattr(fresh, name)
        if before != now:
            texts = [repr(value) if name == "criterion" else shown(value) for value in (before, now)]
            raise InputError(
                f"--state {path} was created with {name} {texts[0]}, but now it is {texts[1]}: give --state another"
                f" name to start a new watch{_about_strata(name)}."
            )
    return found


def _about_strata(name: str) -> str:
    """Return what explains that strata differ: only those of the rule's own criterion are known from the start."""
    return ", or repeat the options of the first call: strata are known from the rule without --criterion" * (
        name == "strata"
    )


def _strata_of(rule: Rule) -> dict[str, list[Any]] | None:
    """Return the strata that a rule compares, by column."""
    from evenhand.rules.rule_strata import values_of_strata

    return {column: list(values_of_strata(rule, column)) for column in rule.strata} or None


def _batches(
    rule: Rule, file: Path, columns: StreamColumns, sensitive: list[str], strata: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table in the form for Watch.update."""
    import pyarrow as pa

    from evenhand import tables
    from evenhand.cli.columns import which_columns

    scored = None
    if columns.decision is None:
        names = tables.open_table(file).names
        scored = which_columns(rule, names, columns.score, columns.group_score, columns.joint_score)
    plain = [*sensitive, *strata, columns.label, columns.id, columns.decision]
    numbers = [] if scored is None else scored.numbers()
    scores = [] if scored is None else scored.needed()
    needed = list(dict.fromkeys([*(name for name in plain if name is not None), *scores]))
    for batch in tables.open_table(file, columns=needed, numbers=numbers).batches():
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        if scored is None:
            decisions = tables.values_of(table, str(columns.decision))
        else:
            decisions = rule.decide(*scored.probabilities(batch))
        yield {
            "decisions": decisions,
            "groups": {name: tables.values_of(table, name) for name in sensitive},
            "y": None if columns.label is None else tables.values_of(table, columns.label),
            "strata": {name: tables.values_of(table, name) for name in strata} or None,
            "ids": None if columns.id is None else tables.values_of(table, columns.id),
        }
