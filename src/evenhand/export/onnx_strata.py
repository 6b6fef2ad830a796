"""Strata in ONNX graphs: one more input, and for each row the numbers of its own stratum."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.export.onnx_graph import ML, Graph
from evenhand.rules.rule_strata import NO_STRATUM, strata_of

if TYPE_CHECKING:
    from evenhand.rules.rule import Rule

STRATUM = "stratum"
ML_OPSET = 2


def strata_in_graph(rule: Rule) -> list[Hashable]:
    """Return the strata that a graph tells apart, or raise if ONNX cannot represent them."""
    if len(rule.strata) > 1:
        raise InputError(
            f"A graph has one input of strata, but this rule has strata of {list(rule.strata)!r}: write one file for"
            " each stratum, of rule.for_stratum(...)."
        )
    members = list(dict.fromkeys(stratum for key in rule.stratified for stratum in strata_of(rule, key)))
    if {type(stratum) for stratum in members} not in ({str}, {int}):
        raise InputError(
            f"ONNX can represent strata that are all text or all whole numbers; got {members[:3]!r}: write one file for"
            " each stratum, of rule.for_stratum(...)."
        )
    return members


def stratum_input(graph: Graph, members: Sequence[Hashable]) -> str:
    """Declare the input of the strata, text or whole numbers; return the edge of each row's place among them, or -1."""
    text = isinstance(members[0], str)
    edge = graph.input(STRATUM, ["rows"], text=text, whole=not text)
    if text:
        # Equal compares texts only in recent versions of ONNX.
        names = [str(stratum) for stratum in members]
        places = list(range(len(members)))
        found: str = graph.add(
            "LabelEncoder", edge, domain=ML, keys_strings=names, values_int64s=places, default_int64=-1
        )
        return found
    place = graph.constant(np.int64(-1))
    for code, stratum in enumerate(members):
        same = graph.add("Equal", edge, graph.constant(np.array(stratum, dtype=np.int64)))
        place = graph.add("Where", same, graph.constant(np.int64(code)), place)
    return place


def by_stratum(graph: Graph, rule: Rule, place: str, add: Callable[[Any], str]) -> str:
    """Return the edge of each row's number, from the edges that ``add`` returns for each stratum.

    Rows of other strata have the number of the model alone if the rule allows it, else NaN.
    """
    thin = all(key.thin is not None for key in rule.stratified)
    found = add(NO_STRATUM) if thin else graph.constant(np.nan)
    for code, stratum in enumerate(strata_in_graph(rule)):
        same = graph.add("Equal", place, graph.constant(np.int64(code)))
        found = graph.add("Where", same, add(stratum), found)
    return found


def sample_strata(rule: Rule, n_rows: int) -> NDArray[Any]:
    """Return strata to compare on: all of the rule's, and a new one if it allows that."""
    members = strata_in_graph(rule)
    if all(key.thin is not None for key in rule.stratified):
        members.append(
            " another " if isinstance(members[0], str) else max(m for m in members if isinstance(m, int)) + 1
        )
    return np.array(members)[np.arange(n_rows) % len(members)]


def as_feed(strata: NDArray[Any]) -> NDArray[Any]:
    """Return strata as onnxruntime takes them."""
    return strata.astype(object) if strata.dtype.kind in "UO" else strata.astype(np.int64)
