"""``evenhand watch``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from evenhand.auditing.watch import Watch
    from evenhand.rules.rule import Rule


@Parameter(name="*")
@dataclasses.dataclass(kw_only=True)
class StreamColumns:
    """Where the decisions, labels and groups are."""

    sensitive: list[str] = dataclasses.field(default_factory=list)
    "A column of groups; several times for several attributes. By default those that the rule's criterion compares."

    label: str | None = None
    "The column of labels, empty where the label has not arrived."

    id: str | None = None
    "The column that identifies rows. A row without a label then waits until its identifier comes with one."

    decision: str | None = None
    "The column of decisions, instead of deciding by the rule."

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
    """Count the rows of a table into a watch, and say whether the criterion still holds.

    evenhand watch rule.json monday.parquet --state watch.json --label y --id id

    The state file is made by the first call, and every further call goes on from it: give each row to one call only.
    However often one looks, what is said is wrong with probability at most 1 - confidence.

    Exit code 0: the criterion holds. 1: it is violated. 3: the rows so far do not decide it.

    Parameters
    ----------
    rule
        The JSON file that `fit` wrote. It decides the rows, and says which criterion and tolerance to watch.
    file
        A .csv, .parquet or .arrow table of new rows.
    state
        The JSON file that keeps the counts between calls.
    criterion
        What to watch, as in `audit`, if it is not the rule's criterion.
    tolerance
        The largest gap that is allowed, if it is not the rule's tolerance.
    confidence
        The probability that everything that is ever said is true.
    window
        How many of the last rows are watched apart from all rows, so that a change shows sooner.
    report
        Write an HTML page that draws the sequences over time.
    """
    import evenhand as eh
    from evenhand.auditing.watch_text import headline
    from evenhand.cli import FAIL, INSUFFICIENT, PASS
    from evenhand.cli import output as out
    from evenhand.cli.criterion import combine
    from evenhand.errors import InputError

    inputs = {"the rule that is read": rule, "the table that is read": file}
    out.check_outputs({"--state": state, "--report": report}, inputs)
    if rule.suffix.lower() == ".skops":
        raise InputError("watch takes the JSON file of a rule: decide with apply first, then watch with --decision.")
    learned = eh.Rule.from_json(out.read_text(rule))
    columns = columns or StreamColumns()
    sensitive = columns.sensitive or _attributes_of(learned)
    watched = combine(criterion, sensitive) or learned.criterion
    allowed = learned.tolerance if tolerance is None else tolerance
    if watched is None or allowed is None:
        raise InputError("The rule does not say what it was learnt for: add --criterion and --tolerance.")
    fresh = eh.Watch(
        watched,
        allowed,
        confidence,
        window=window,
        groups={name: learned.groups[name] for name in sensitive if name in learned.groups} or None,
        pos_label=learned.classes[1],
        missing="ignore" if columns.ignore_missing else "raise",
    )
    found = _gone_on(state, fresh)
    for batch in _batches(learned, file, columns, sensitive):
        found.update(**batch)
    found.save(state)
    out.say(headline(found))
    if report is not None:
        from evenhand.report.watching import write_watch

        write_watch(found, report, title=f"Watch of {file.name}")
        out.say(f"The report is in {report}")
    return {"violated": FAIL, "holds": PASS, "undecided": INSUFFICIENT}[found.state]


def _attributes_of(rule: Rule) -> list[str]:
    """Return the columns whose groups a rule knows; those that are crossed one by one."""
    from evenhand.rules.events import Stratified

    bases = [key for key in rule.groups if not isinstance(key, Stratified)]
    names = [[key] if isinstance(key, str) else list(key.attributes) for key in bases]
    return list(dict.fromkeys(name for listed in names for name in listed))


def _gone_on(path: Path, fresh: Watch) -> Watch:
    """Return the watch of a state file, or the fresh one where there is none yet."""
    from evenhand.arguments import shown
    from evenhand.auditing.watch import Watch
    from evenhand.errors import InputError

    if not path.exists():
        return fresh
    found = Watch.load(path)
    for name in ("criterion", "tolerance", "confidence", "window", "groups", "pos_label"):
        before, now = getattr(found, name), getattr(fresh, name)
        if before != now:
            raise InputError(
                f"--state {path} was begun with {name} {shown(before)}, and now it is {shown(now)}: give --state"
                " another name to begin anew."
            )
    return found


def _batches(rule: Rule, file: Path, columns: StreamColumns, sensitive: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as Watch.update takes them."""
    import pyarrow as pa

    from evenhand import tables
    from evenhand.cli.columns import which_columns

    scored = None
    if columns.decision is None:
        names = tables.open_table(file).names
        scored = which_columns(rule, names, columns.score, columns.group_score, columns.joint_score)
    plain = [*sensitive, columns.label, columns.id, columns.decision]
    numbers = [] if scored is None else scored.needed()
    needed = list(dict.fromkeys([*(name for name in plain if name is not None), *numbers]))
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
            "ids": None if columns.id is None else tables.values_of(table, columns.id),
        }
