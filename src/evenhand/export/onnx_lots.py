"""A mixture of rules as ONNX nodes: each row's probability, its lot, and the label.

The lot is computed in the graph, with 64-bit whole numbers, from an input of keys or from the scores, and equals that
of :mod:`evenhand.rules.lots` exactly. ONNX has no MD5: pass a text key as the whole number that
:func:`evenhand.rules.lots.key_numbers` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.export.onnx_graph import Graph, add_label, add_margin, split_columns, to_the_edge
from evenhand.rules.lots import HIGH_WORDS, PRIME, ROUNDS, SCORE_STEPS

if TYPE_CHECKING:
    from evenhand.rules.events import AttributeKey
    from evenhand.rules.mixture import Mixture

KEY = "key"


def add_mixture(
    graph: Graph,
    mixture: Mixture,
    p_y: str,
    p_group: Mapping[AttributeKey, str],
    joint: Mapping[AttributeKey, bool],
    labels: Sequence[Any],
    key: str | None,
    choose: Callable[[Callable[[Any], str]], str] | None = None,
) -> None:
    """Add a mixture after the edges of its probabilities: outputs ``label``, ``expected_decision`` and ``lot``.

    ``key`` is the edge of the keys; with None the draws depend on the scores. With strata, ``choose`` selects the
    probability of each row from those of all strata.
    """
    kinds = graph.onnx.TensorProto
    score = to_the_edge(graph, p_y)
    columns = split_columns(graph, mixture.rules[0], p_group, joint)
    if choose is None:
        expected = _chance(graph, mixture, score, columns, joint)
    else:
        expected = choose(lambda stratum: _chance(graph, mixture.for_stratum(stratum), score, columns, joint))
    if key is not None:
        lot = _drawn(graph, _of_key(graph, key))
    elif choose is None:
        lot = _lot_of_scores(graph, mixture, score, columns)
    else:
        # Strata that use the same attributes have the same lot.
        known: dict[tuple[AttributeKey, ...], str] = {}

        def lot_of(stratum: Any) -> str:
            own = mixture.for_stratum(stratum)
            if own.attributes not in known:
                known[own.attributes] = _lot_of_scores(graph, own, score, columns)
            return known[own.attributes]

        lot = choose(lot_of)
    label, kind = add_label(graph, graph.add("Less", lot, expected), labels)
    graph.output("label", label, kind, ["rows"])
    graph.output("expected_decision", expected, kinds.DOUBLE, ["rows"])
    graph.output("lot", lot, kinds.DOUBLE, ["rows"])


def _chance(
    graph: Graph,
    mixture: Mixture,
    score: str,
    columns: Mapping[AttributeKey, Sequence[str]],
    joint: Mapping[AttributeKey, bool],
) -> str:
    """Return the edge of the probabilities of a positive decision."""
    expected, every = graph.constant(0.0), None
    for rule, weight in zip(mixture.rules, mixture.weights, strict=True):
        margin = add_margin(graph, rule, score, columns, joint)
        positive = graph.add("Greater", margin, graph.constant(0.0))
        part = graph.add("Where", positive, graph.constant(weight), graph.constant(0.0))
        expected = graph.add("Add", expected, part)
        every = positive if every is None else graph.add("And", every, positive)
    assert every is not None
    chance: str = graph.add("Where", every, graph.constant(1.0), expected)
    return chance


def _lot_of_scores(graph: Graph, mixture: Mixture, score: str, columns: Mapping[AttributeKey, Sequence[str]]) -> str:
    """Return the edge of the lots that depend on the scores."""
    flat = graph.constant(np.array([-1], dtype=np.int64))
    cells = [graph.add("Reshape", c, flat) for name in mixture.attributes for c in columns[name]]
    return _drawn(graph, _of_scores(graph, [score, *cells]))


def _whole(graph: Graph, value: int) -> str:
    return graph.constant(np.int64(value))


def _modulo(graph: Graph, edge: str) -> str:
    rest: str = graph.add("Mod", edge, _whole(graph, PRIME))
    return rest


def _of_key(graph: Graph, key: str) -> str:
    high = _modulo(graph, graph.add("Div", key, _whole(graph, PRIME)))
    low = _modulo(graph, key)
    return _modulo(graph, graph.add("Add", low, graph.add("Mul", _whole(graph, HIGH_WORDS), high)))


def _of_scores(graph: Graph, cells: Sequence[str]) -> str:
    number = None
    for cell in cells:
        steps = graph.add("Floor", graph.add("Mul", cell, graph.constant(SCORE_STEPS)))
        part = graph.cast(steps, graph.onnx.TensorProto.INT64)
        if number is not None:
            part = graph.add("Add", graph.add("Mul", _whole(graph, HIGH_WORDS), number), part)
        number = _modulo(graph, part)
    assert number is not None
    return number


def _drawn(graph: Graph, mixed: str) -> str:
    for factor, shift in ROUNDS:
        scaled = graph.add("Mul", _whole(graph, factor), mixed)
        mixed = _modulo(graph, graph.add("Add", scaled, _whole(graph, shift)))
        square = _modulo(graph, graph.add("Mul", mixed, mixed))
        mixed = _modulo(graph, graph.add("Mul", square, mixed))
    lot: str = graph.add("Div", graph.cast(mixed, graph.onnx.TensorProto.DOUBLE), graph.constant(float(PRIME)))
    return lot
