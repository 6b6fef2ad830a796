"""Strata in ONNX graphs: an input for each column of strata, and for each row the numbers of its own strata."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_text
from evenhand.errors import InputError
from evenhand.export.onnx_graph import ML, Graph, is_in_stratum
from evenhand.inputs import Attribute, SensitiveFeatures
from evenhand.rules.events import OTHER
from evenhand.rules.rule_strata import NO_STRATUM, strata_of, values_of_strata
from evenhand.rules.strata import read_strata

if TYPE_CHECKING:
    from evenhand.rules.rule import Rule

ML_OPSET = 2
# The whole numbers of 64 bits.
SMALLEST, LARGEST = -(2**63), 2**63 - 1
Strata = dict[str, NDArray[Any]]


def strata_in_graph(rule: Rule) -> dict[str, list[Any]]:
    """Return the strata of each column that a graph tells apart, or raise if ONNX cannot represent them.

    Whole numbers that are stored as floats, as in an array of features, are whole numbers.
    """
    found: dict[str, list[Any]] = {}
    for column in rule.strata:
        found[column] = members = list(values_of_strata(rule, column))
        for text in (stratum for stratum in members if isinstance(stratum, str)):
            check_text(text, f"Each stratum of {column!r}")
        whole = all(type(s) is int or (type(s) is float and s.is_integer()) for s in members)
        if not whole and {type(stratum) for stratum in members} != {str}:
            raise InputError(
                "ONNX can represent strata that are all text or all whole numbers; those of"
                f" {column!r} are {members[:3]!r}: write one file for each stratum, of rule.for_stratum(...)."
            )
        large = [stratum for stratum in members if whole and not SMALLEST <= stratum <= LARGEST]
        if large:
            raise InputError(
                f"ONNX has whole numbers from -2^63 to 2^63 - 1, but a stratum of {column!r} is {large[0]!r}: learn"
                " with smaller numbers or with text, or write one file for each stratum, of rule.for_stratum(...)."
            )
    return found


def stratum_input(rule: Rule, column: str) -> str:
    """Return the name of the input of a column of strata."""
    return "stratum" if len(rule.strata) == 1 else f"stratum_{column}"


def add_strata(graph: Graph, rule: Rule) -> dict[str, str]:
    """Declare the inputs of the strata; return the edges of each row's place among the strata of each column."""
    return {
        column: _places(graph, stratum_input(rule, column), members)
        for column, members in strata_in_graph(rule).items()
    }


def _places(graph: Graph, name: str, members: Sequence[Hashable]) -> str:
    """Declare one input, text or whole numbers; return the edge of each row's place among the members, or -1."""
    text = isinstance(members[0], str)
    edge = graph.input(name, ["rows"], text=text, whole=not text)
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


def by_stratum(graph: Graph, rule: Rule, places: Mapping[str, str], add: Callable[[Any], str]) -> str:
    """Return the edge of each row's number, from the edges that ``add`` returns for each stratum of a mixture.

    Rows of strata without any have the number of the model alone if the rule allows it, else NaN.
    """
    key, codes = rule.stratified[0], strata_in_graph(rule)
    thin = all(key.thin is not None for key in rule.stratified)
    found = add(NO_STRATUM) if thin else graph.constant(np.nan)
    for stratum in dict.fromkeys(stratum for key in rule.stratified for stratum in strata_of(rule, key)):
        found = graph.add("Where", is_in_stratum(graph, key, stratum, codes, places), add(stratum), found)
    return found


def given_strata(rule: Rule, strata: SensitiveFeatures | None, n_rows: int) -> Strata:
    """Return each row's strata as they are passed to the graph; an unknown one is a value that no stratum has."""
    columns = read_strata(strata, rule.strata, n_rows, new=True)
    return {name: _values(columns[name], members) for name, members in strata_in_graph(rule).items()}


def _values(column: Attribute, members: Sequence[Hashable]) -> NDArray[Any]:
    new, listed = _new_stratum(members), set(members)
    known = _objects([*(stratum if stratum in listed else new for stratum in column.groups), new])
    return np.asarray(known[column.codes])


def _objects(values: Sequence[Hashable]) -> NDArray[Any]:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def sample_strata(rule: Rule, n_rows: int) -> Strata:
    """Return strata to compare on: all combinations of the rule's, with a new one where it allows that.

    A mixture whose strata are combinations decides no other ones, unless the model decides those.
    """
    if rule.stratified[0].crossed and rule.stratified[0].thin is None:
        known = strata_of(rule, rule.stratified[0])
        new = {column: _new_stratum(members) for column, members in strata_in_graph(rule).items()}
        drawn = [known[row % len(known)] for row in range(n_rows)]
        return {
            column: _objects([new[column] if values[k] == OTHER else values[k] for values in drawn])
            for k, column in enumerate(rule.strata)
        }
    found, period = {}, 1
    for column, members in strata_in_graph(rule).items():
        if all(key.thin is not None for key in rule.stratified if column in key.columns):
            members = [*members, _new_stratum(members)]
        found[column] = _objects(members)[np.arange(n_rows) // period % len(members)]
        period *= len(members)
    return found


def _new_stratum(members: Sequence[Any]) -> Any:
    """Return a stratum that is not among the members, of their type."""
    if isinstance(members[0], str):
        return max(members, key=lambda stratum: len(str(stratum))) + " another"
    return type(members[0])(next(number for number in range(len(members) + 1) if number not in members))


def as_feeds(rule: Rule, strata: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return strata as onnxruntime takes them, by input."""
    members = strata_in_graph(rule)
    return {
        stratum_input(rule, column): values if isinstance(members[column][0], str) else values.astype(np.int64)
        for column, values in strata.items()
    }
