"""``evenhand explain``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from evenhand.engines.deciding import Probabilities
    from evenhand.rules.mixture import DrawnReceipt, Mixture
    from evenhand.rules.receipt import Receipt
    from evenhand.rules.rule import Rule

MOST_ROWS = 1000


def explain(
    rule: Path,
    row: Path,
    /,
    *,
    at: list[int] | None = None,
    score: str | None = None,
    group_score: list[str] | None = None,
    joint_score: list[str] | None = None,
    key: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Explain in words why a row gets its decision.

    evenhand explain rule.json row.json, where row.json contains `{"p": 0.48, "p_female": 0.9}`: an object of
    columns and values, or a list of them. For a table (.csv, .parquet, .arrow), --at selects the rows.

    Parameters
    ----------
    rule
        The JSON file that `fit` wrote.
    row
        A JSON file with one or more rows, or a table.
    at
        The row numbers of a table, counted from 0.
    score
        The column with the probability of the positive label, if it is not the one the rule was fitted on.
    group_score
        GROUP=COLUMN, as in `fit`.
    joint_score
        LABEL,GROUP=COLUMN, as in `fit`.
    key
        The column that identifies a person, as in `apply`; only for a mixture.
    as_json
        Print JSON instead of words.
    """
    from evenhand import tables
    from evenhand.cli import PASS
    from evenhand.cli import output as out
    from evenhand.cli.columns import which_columns
    from evenhand.engines.source import check_key
    from evenhand.errors import InputError
    from evenhand.rules.mixture import read_rule

    if rule.suffix.lower() == ".skops":
        raise InputError(
            f"{rule} contains a classifier, but explain needs the JSON file of a rule and its probabilities."
            f" Explain rows in Python, with evenhand.io.load({str(rule)!r}).explain(X); .rule_.to_json() is its rule."
        )
    learned = read_rule(out.read_text(rule))
    check_key(learned, key)
    if row.suffix.lower() == ".json":
        source, table = _from_json(row)
    else:
        source = tables.open_table(row)
        table = None
    named = which_columns(learned, source.names, score, group_score or [], joint_score or [])
    needed = list(dict.fromkeys([*named.needed(), *([] if key is None else [key])]))
    source.check_columns(needed)
    if table is None:
        table = tables.read_table(row, needed)
        table = table.take(_checked_rows(at, table.num_rows))
    receipts = _receipts(learned, named.probabilities(table), None if key is None else tables.values_of(table, key))
    if as_json:
        out.say_json([_plain(receipt) for receipt in receipts])
        return PASS
    numbers = at if at and row.suffix.lower() != ".json" else range(len(receipts))
    for number, receipt in zip(numbers, receipts, strict=True):
        heading = f"Row {number}\n" if len(receipts) > 1 or at else ""
        out.say(f"{heading}{in_words(receipt)}{chr(10) if len(receipts) > 1 else ''}")
    return PASS


def _receipts(rule: Rule | Mixture, probabilities: Probabilities, key: Any) -> Sequence[Receipt | DrawnReceipt]:
    from evenhand.rules.mixture import Mixture

    if isinstance(rule, Mixture):
        return rule.explain(*probabilities, key=key)
    return rule.explain(*probabilities)


def _plain(receipt: Receipt | DrawnReceipt) -> dict[str, Any]:
    known = dataclasses.asdict(receipt)
    found = {name: known[name] for name in known if name not in ("slope", "contrasts")}
    words = getattr(receipt, "words", None)
    return found if words is None else {**found, "words": words}


def _checked_rows(at: list[int] | None, rows: int) -> list[int]:
    from evenhand.errors import InputError

    if not at:
        raise InputError(f"The table has {rows:,} rows: select rows, as in --at 0.")
    for number in at:
        if not 0 <= number < rows:
            raise InputError(f"There is no row {number}: the table has {rows:,} rows, counted from 0.")
    return at[:MOST_ROWS]


def _from_json(path: Path) -> tuple[Any, Any]:
    import pyarrow as pa

    from evenhand.cli.output import read_text
    from evenhand.errors import InputError
    from evenhand.tables import Source

    try:
        data = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON, or was cut off: {error}.") from None
    listed = [data] if isinstance(data, Mapping) else data
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, Mapping) for entry in listed):
        raise InputError(f"{path} must contain one row as an object of columns and values, or a list of such rows.")
    names = tuple(dict.fromkeys(name for entry in listed[:MOST_ROWS] for name in entry))
    try:
        table = pa.table({name: [entry.get(name) for entry in listed[:MOST_ROWS]] for name in names})
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InputError(f"{path}: a column mixes values of different types ({error}).") from None
    return Source(str(path), names, table.schema, table.num_rows, lambda: iter(table.to_batches())), table


def in_words(receipt: Receipt | DrawnReceipt) -> str:
    """Return a receipt as sentences.

    Examples
    --------
    >>> import evenhand as eh
    >>> from evenhand.cli.explain import in_words
    >>> rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors={"sex": [0.5, 0.5]}, z=[0.1])
    >>> print(in_words(rule.explain([0.45], [[0.1, 0.9]])[0]))
    The model gives a probability of 0.4500. On its own it would decide 0: its margin is -0.1000.
      +0.1600  rate(sex=F) - rate(sex=M)
    Together that is a fair margin of +0.0600, so the decision is flipped to 1.
    The other decision is 0.0300 in probability away.
    """
    from evenhand.rules.mixture import DrawnReceipt
    from evenhand.text import printable

    lines = [
        f"The model gives a probability of {receipt.probability:.4f}. On its own it would decide"
        f" {printable(receipt.base_decision)}: its margin is {receipt.margin:+.4f}."
    ]
    verb = "is flipped to" if receipt.flipped else "stays"
    decision = f"{verb} {printable(receipt.decision)}"
    if isinstance(receipt, DrawnReceipt):
        return "\n".join([*lines, *_lot_in_words(receipt, decision)])
    lines += [f"  {amount:+.4f}  {printable(name)}" for name, amount in receipt.terms.items()]
    lines.append(f"Together that is a fair margin of {receipt.fair_margin:+.4f}, so the decision {decision}.")
    lines.append(f"The other decision is {receipt.distance:.4f} in probability away.")
    return "\n".join(lines)


def _lot_in_words(receipt: DrawnReceipt, decision: str) -> list[str]:
    lines = [
        f"  {margin:+.4f}  is the fair margin by the rule of weight {weight:.4f}"
        for margin, weight in zip(receipt.fair_margins, receipt.weights, strict=True)
    ]
    if not receipt.by_lot:
        return [*lines, f"The rules agree, so no lot is needed: the decision {decision}."]
    side = "below it" if receipt.lot < receipt.expected_decision else "not below it"
    return [
        *lines,
        f"The rules disagree, so the lot decides. The chance of a positive decision is {receipt.expected_decision:.4f};"
        f" the lot {receipt.lot:.4f} is {side}, so the decision {decision}.",
    ]
