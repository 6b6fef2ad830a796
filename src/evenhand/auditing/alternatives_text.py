"""The result about alternatives in sentences. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from evenhand.auditing.comparison import Compared
from evenhand.text import short_name

if TYPE_CHECKING:
    from evenhand.auditing.alternatives import Alternatives, Family, Point, Repeated
    from evenhand.auditing.findings import Estimate

_OUTCOMES = {
    "pass": "These rows confirm that the alternative is as good and has a smaller gap: pass.",
    "fail": "These rows contradict it: fail.",
    "insufficient evidence": "These rows are too few to confirm it or to contradict it: insufficient evidence.",
}


def lines(found: Alternatives) -> Iterable[str]:
    """Return the answer, sentence by sentence."""
    criterion = found.criterion.replace("_", " ")
    yield f"Alternatives by {criterion} to decisions on {found.rows:,} rows: {found.status}"
    yield f"  {answer(found)}"
    yield f"  {proof(found)}"
    if len(found.families) > 1:
        yield from (f"  {short_name(family.name)}: {_family(family, found)}" for family in found.families)
    if found.held_out is not None:
        yield ""
        yield f"On {found.held_out.rows:,} held-out rows"
        yield from (f"  {line}" for line in held_out(found))
    yield ""
    yield scope(found)


def answer(found: Alternatives) -> str:
    """Return the question and the answer, in one sentence."""
    judged = f"The decisions judged have {_point(found.present, found)}"
    if found.alternative is not None:
        whose = f", by the scores of {short_name(found.model)}" if len(found.families) > 1 else ""
        return f"{judged}; a rule of this family has {_point(found.alternative, found)}{whose}."
    smaller = f"a gap smaller by {found.reduction:g}" if found.reduction else "a smaller gap"
    good = f"as good{_margin(found)} and has {smaller}"
    if found.status == "refuted":
        return f"{judged}; no rule of this family is {good}."
    return f"{judged}; no rule was found that is {good}, and none was ruled out."


def proof(found: Alternatives) -> str:
    """Return what was proven, in one sentence."""
    what = _utility_name(found)
    if found.alternative is not None:
        good = f"No rule of this family that is as good{_margin(found)}"
        if found.smallest_gap >= found.alternative.gap:
            return f"{good} has a smaller gap than that: proven."
        return f"{good} has a gap below {found.smallest_gap:.4f}: proven. In between, nothing is known."
    if found.upper_bound == -math.inf:
        return "No rule of this family has a gap that small at all: proven."
    if math.isinf(found.upper_bound):
        return "The search proved nothing about rules with a smaller gap."
    return f"A rule of this family with a gap that small has {what} {_number(found.upper_bound)} at most: proven."


def held_out(found: Alternatives) -> Iterable[str]:
    """Yield the result on the held-out rows."""
    tested = found.held_out
    if tested is None:
        return
    if isinstance(tested, Compared):
        yield from _compared(tested, found)
    else:
        yield from _repeated(tested, found)


def held_out_sentences(found: Alternatives) -> Iterable[str]:
    """Yield the result on the held-out rows, without the numbers that a table shows."""
    tested = found.held_out
    if isinstance(tested, Compared):
        yield f"From the decisions judged to the alternative, {_change(tested, found)}. {_verdict(tested, found)}"
    elif tested is not None:
        yield from _repeated(tested, found)


def scope(found: Alternatives) -> str:
    """Return what the answer covers, and what it does not."""
    names = ", ".join(short_name(family.name) for family in found.families)
    whose = "the model's scores" if len(found.families) == 1 else f"the scores of {names}"
    return (
        f"The answer is about the rules that decide by the sign of margin - z . contrasts of {whose}, on these"
        f" {found.rows:,} rows. Other models, other features and other rows may allow more or less."
    )


def _compared(tested: Compared, found: Alternatives) -> Iterable[str]:
    for name, measured in (("judged", tested.present), ("alternative", tested.alternative)):
        yield f"{name + ':':12} accuracy {_shown(measured['accuracy'])}, gap {_shown(measured['gap'])}"
    yield f"{'change:':12} {_change(tested, found)}"
    yield _verdict(tested, found)


def _change(tested: Compared, found: Alternatives) -> str:
    return f"{_utility_name(found)} {_shown(tested.utility_change, '+')}, gap {_shown(tested.gap_change, '+')}"


def _verdict(tested: Compared, found: Alternatives) -> str:
    return f"{_OUTCOMES[tested.outcome]} Intervals are at {100 * found.confidence:g}%."


def _repeated(tested: Repeated, found: Alternatives) -> Iterable[str]:
    judged = _point(tested.present, found)
    yield f"The same question about the held-out rows: {tested.status}. There the decisions judged have {judged}."
    if math.isfinite(tested.upper_bound):
        bound = _number(tested.upper_bound)
        yield f"A rule of this family with a gap that small has {_utility_name(found)} {bound} at most there."


def _family(family: Family, found: Alternatives) -> str:
    best = "" if family.best is None else f", {_point(family.best, found)}"
    return f"{family.status}{best}"


def _point(point: Point, found: Alternatives) -> str:
    return f"{_utility_name(found)} {_number(point.utility)} and a gap of {point.gap:.4f}"


def _number(utility: float) -> str:
    return f"{utility:.4f}"


def _utility_name(found: Alternatives) -> str:
    return "utility (minus the mean cost)" if found.costs else "accuracy"


def _margin(found: Alternatives) -> str:
    return f" (within {found.margin:g})" if found.margin else ""


def _shown(estimate: Estimate, sign: str = "") -> str:
    if estimate.value is None:
        return "no rows"
    return f"{estimate.value:{sign}.4f} ({estimate.lower:{sign}.4f} to {estimate.upper:{sign}.4f})"
