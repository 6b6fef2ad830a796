"""ONNX graphs node by node, in double precision: the common part of the exports of rules and classifiers."""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand import errors
from evenhand._version import __version__
from evenhand.arguments import check_text
from evenhand.errors import InputError
from evenhand.estimator.recalibration import FLOOR, product_pairs
from evenhand.rules.events import OTHER, Stratified
from evenhand.rules.rule_strata import weights_by_stratum

if TYPE_CHECKING:
    from evenhand.estimator.recalibration import Recalibration
    from evenhand.inputs import FloatArray
    from evenhand.rules.events import AttributeKey
    from evenhand.rules.rule import Rule

ML = "ai.onnx.ml"
_INNER = re.compile("(edge|constant|graft)_[0-9]")


def require(package: str) -> Any:
    """Return one of the packages that the extra ``onnx`` installs."""
    return errors.require("Exporting to ONNX", "onnx", package)


class Graph:
    """An ONNX graph that grows node by node; edges are names."""

    def __init__(self) -> None:
        self.onnx = require("onnx")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: dict[str, Any] = {}
        self._outputs: list[Any] = []
        self._grafts = 0

    def input(self, name: str, shape: Sequence[int | str], *, text: bool = False, whole: bool = False) -> str:
        """Declare an input of doubles, of text, or of whole numbers."""
        if name in self._inputs:
            raise InputError(f"The graph already has an input {name!r}: rename that column.")
        if _INNER.match(name):
            raise InputError(f"{name!r} is a name that the graph uses for its inner edges: rename that column.")
        check_text(name, "The name of each column")
        kinds = self.onnx.TensorProto
        kind = kinds.STRING if text else kinds.INT64 if whole else kinds.DOUBLE
        self._inputs[name] = self.onnx.helper.make_tensor_value_info(name, kind, list(shape))
        return name

    def output(self, name: str, edge: str, kind: int, shape: Sequence[int | str]) -> None:
        """Declare an edge as an output, under its own name."""
        if name in self._inputs:
            raise InputError(f"The graph has an output {name!r}, so no column may have this name: rename that column.")
        self._nodes.append(self.onnx.helper.make_node("Identity", [edge], [name]))
        self._outputs.append(self.onnx.helper.make_tensor_value_info(name, kind, list(shape)))

    def constant(self, value: Any) -> str:
        """Return the edge of a constant."""
        array = np.asarray(value)
        name = f"constant_{len(self._constants)}"
        helper = self.onnx.helper
        if array.dtype.kind in "UO":
            text = [check_text(str(entry), "Each label").encode() for entry in array.ravel()]
            self._constants.append(helper.make_tensor(name, self.onnx.TensorProto.STRING, array.shape, text))
        else:
            self._constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        """Add a node and return its output edge, or a list if there are several."""
        names = [f"edge_{len(self._nodes)}_{k}" for k in range(outputs)]
        self._nodes.append(self.onnx.helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def cast(self, edge: str, kind: int) -> str:
        """Add a conversion of numbers."""
        converted: str = self.add("Cast", edge, to=kind)
        return converted

    def graft(self, model: Any) -> list[str]:
        """Add the nodes of another model whose inputs are edges of this graph; return its outputs."""
        compose = require("onnx.compose")
        self._grafts += 1
        # The runtime infers the types of inner edges: converters declare some of them wrongly.
        renamed = compose.add_prefix(model, f"graft_{self._grafts}_", rename_inputs=False)
        if renamed.functions:
            raise InputError("A model converts to ONNX functions, which are not supported here.")
        self._nodes.extend(renamed.graph.node)
        self._constants.extend(renamed.graph.initializer)
        return [output.name for output in renamed.graph.output]

    def model(self, *, opset: int, ml_opset: int | None, ir_version: int, metadata: Mapping[str, str]) -> Any:
        """Return the finished model, checked."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self._nodes, "evenhand", list(self._inputs.values()), self._outputs, initializer=self._constants
        )
        versions = [helper.make_opsetid("", opset)]
        versions += [] if ml_opset is None else [helper.make_opsetid(ML, ml_opset)]
        model = helper.make_model(
            graph,
            opset_imports=versions,
            ir_version=ir_version,
            producer_name="evenhand",
            producer_version=__version__,
        )
        for text in metadata.values():
            check_text(text, "A name, group or label of the rule")
        helper.set_model_props(model, dict(metadata))
        self.onnx.checker.check_model(model)
        return model


def add_recalibration(
    graph: Graph,
    correction: Recalibration,
    p_y: str,
    p_group: Mapping[AttributeKey, str],
    joint: Mapping[AttributeKey, bool],
) -> tuple[str, dict[AttributeKey, str]]:
    """Add the correction of all models' probabilities; return the edges of the corrected ones."""

    def whole(*values: int) -> str:
        return graph.constant(np.array(values, dtype=np.int64))

    def columns(edge: str, first: int, last: int) -> Any:
        return graph.add("Slice", edge, whole(first), whole(last), whole(1))

    column = graph.add("Reshape", p_y, whole(-1, 1))
    tables: dict[AttributeKey | None, str] = {
        None: graph.add("Concat", graph.add("Sub", graph.constant(1.0), column), column, axis=1)
    }
    weights: dict[AttributeKey | None, FloatArray] = {None: correction.label_weights}
    for attribute, edge in p_group.items():
        weights[attribute] = correction.group_weights[attribute]
        tables[attribute] = graph.add("Reshape", edge, whole(-1, weights[attribute].shape[1]))
    logs = {name: graph.add("Log", graph.add("Max", edge, graph.constant(FLOOR))) for name, edge in tables.items()}
    ratios = [
        graph.add("Sub", columns(log, 1, weights[name].shape[1]), columns(log, 0, 1)) for name, log in logs.items()
    ]
    scores = graph.add("Concat", *ratios, axis=1)
    standard = graph.add(
        "Div", graph.add("Sub", scores, graph.constant(correction.centre)), graph.constant(correction.scale)
    )
    standard = graph.add("Max", standard, graph.constant(correction.lowest))
    standard = graph.add("Min", standard, graph.constant(correction.highest))
    first, second = (
        graph.add("Gather", standard, whole(*pair), axis=1) for pair in product_pairs(len(correction.scale))
    )
    products = graph.add("Mul", first, second)
    features = graph.add("Concat", standard, products, axis=1)
    found: dict[AttributeKey, str] = {}
    corrected = p_y
    for name, log in logs.items():
        shift = graph.add("Add", log, graph.constant(weights[name][0]))
        logits = graph.add("Add", shift, graph.add("MatMul", features, graph.constant(weights[name][1:])))
        edge = graph.add("Softmax", logits, axis=1)
        if name is None:
            corrected = graph.add("Reshape", columns(edge, 1, 2), whole(-1))
        else:
            found[name] = edge
    shapes = {name: (-1, 2, weights[name].shape[1] // 2) for name in found if joint[name]}
    return corrected, {
        name: graph.add("Reshape", edge, whole(*shapes[name])) if name in shapes else edge
        for name, edge in found.items()
    }


def add_rule(
    graph: Graph,
    rule: Rule,
    p_y: str,
    p_group: Mapping[AttributeKey, str],
    joint: Mapping[AttributeKey, bool],
    labels: Sequence[Any],
    strata: Mapping[str, Sequence[Hashable]],
    places: Mapping[str, str],
) -> None:
    """Add the rule after the edges of its probabilities, with the outputs ``label`` and ``fair_margin``.

    The operations and their order are those of :meth:`evenhand.Rule.decision_function`, in double precision,
    so that a runtime that follows IEEE 754 returns exactly the same margin. ``strata`` has the strata of each column,
    and ``places`` the edges of each row's place among them.
    """
    kinds = graph.onnx.TensorProto
    columns = split_columns(graph, rule, p_group, joint)
    margin = add_margin(graph, rule, to_the_edge(graph, p_y), columns, joint, strata, places)
    positive = graph.add("Greater", margin, graph.constant(0.0))
    label, kind = add_label(graph, positive, labels)
    graph.output("label", label, kind, ["rows"])
    graph.output("fair_margin", margin, kinds.DOUBLE, ["rows"])


def split_columns(
    graph: Graph, rule: Rule, p_group: Mapping[AttributeKey, str], joint: Mapping[AttributeKey, bool]
) -> dict[AttributeKey, list[str]]:
    """Return an edge of shape (rows, 1) for each column of the groups' probabilities, clipped to [0, 1]."""
    found = {}
    for attribute, edge in p_group.items():
        size = len(rule.groups[attribute]) * (2 if joint[attribute] else 1)
        edge = to_the_edge(graph, edge)
        if joint[attribute]:
            edge = graph.add("Reshape", edge, graph.constant(np.array([-1, size], dtype=np.int64)))
        sizes = graph.constant(np.ones(size, dtype=np.int64))
        columns = graph.add("Split", edge, sizes, outputs=size, axis=1)
        found[attribute] = columns if size > 1 else [columns]
    return found


def add_margin(
    graph: Graph,
    rule: Rule,
    p_y: str,
    columns: Mapping[AttributeKey, Sequence[str]],
    joint: Mapping[AttributeKey, bool],
    strata: Mapping[str, Sequence[Hashable]] | None = None,
    places: Mapping[str, str] | None = None,
) -> str:
    """Return the edge of the fair margin, over edges that are already clipped to [0, 1]; see :func:`add_rule`."""
    form = rule.linear_form(joint={**joint, **{key: joint[key.attribute] for key in rule.stratified}})
    label_term = graph.add("Mul", graph.constant(form.slope), p_y)
    margin: str = graph.add("Add", graph.constant(form.intercept), label_term)
    flat = graph.constant(np.array([-1], dtype=np.int64))
    for key, weights in form.columns.items():
        if not isinstance(key, Stratified):
            total = graph.add("Reshape", _sum(graph, weights.ravel().tolist(), columns[key]), flat)
            margin = graph.add("Sub", margin, total)
            continue
        assert strata is not None
        assert places is not None
        # A row in no compared stratum is left to the model if the criterion allows it.
        found = graph.constant(np.nan if key.thin is None else 0.0)
        for stratum, (own, at) in weights_by_stratum(rule, key, weights).items():
            total = graph.add("Reshape", _sum(graph, own, [columns[key.attribute][place] for place in at]), flat)
            found = graph.add("Where", is_in_stratum(graph, key, stratum, strata, places), total, found)
        margin = graph.add("Sub", margin, found)
    return margin


def is_in_stratum(
    graph: Graph,
    key: Stratified,
    stratum: Hashable,
    strata: Mapping[str, Sequence[Hashable]],
    places: Mapping[str, str],
) -> str:
    """Return the edge of whether each row is in a stratum; ``places`` are its values' places in ``strata``."""
    # The place of a value that is not compared is -1.
    codes = {c: -1 if value == OTHER else strata[c].index(value) for c, value in key.by_column(stratum).items()}
    tests = [graph.add("Equal", places[column], graph.constant(np.int64(code))) for column, code in codes.items()]
    same: str = functools.reduce(lambda one, other: graph.add("And", one, other), tests)
    return same


def _sum(graph: Graph, weights: Sequence[float], columns: Sequence[str]) -> str:
    """Return the edge of the sum of some columns times numbers, from left to right."""
    terms = [_times(graph, weight, column) for weight, column in zip(weights, columns, strict=True)]
    total = terms[0]
    for term in terms[1:]:
        total = graph.add("Add", total, term)
    return total


def _times(graph: Graph, weight: float, column: str) -> str:
    """Return a column times a number.

    onnxruntime treats a factor that is nearly 1 as 1 and drops it. Half of it is far from 1, and doubling is exact.
    """
    if weight != 1.0 and abs(weight - 1.0) < 1e-3:
        column, weight = graph.add("Mul", graph.constant(0.5 * weight), column), 2.0
    product: str = graph.add("Mul", graph.constant(weight), column)
    return product


def to_the_edge(graph: Graph, edge: str) -> str:
    """Return probabilities clipped to [0, 1]; NaN stays NaN, which Clip does not guarantee."""
    zero, one = graph.constant(0.0), graph.constant(1.0)
    above = graph.add("Where", graph.add("Less", edge, zero), zero, edge)
    inside: str = graph.add("Where", graph.add("Greater", above, one), one, above)
    return inside


def add_label(graph: Graph, positive: str, labels: Sequence[Hashable]) -> tuple[str, int]:
    """Return the edge of the labels, (negative, positive), and their type."""
    kinds = graph.onnx.TensorProto
    plain = [label.item() if isinstance(label, np.generic) else label for label in labels]
    found = {type(label) for label in plain}
    if found == {bool}:
        return (positive if plain[1] else graph.add("Not", positive)), kinds.BOOL
    constants: NDArray[Any]
    if found == {int}:
        constants, kind = np.array(plain, dtype=np.int64), kinds.INT64
    elif found <= {int, float}:
        constants, kind = np.array(plain, dtype=np.float64), kinds.DOUBLE
    elif found == {str}:
        constants, kind = np.array(plain, dtype=object), kinds.STRING
    else:
        raise InputError(f"ONNX cannot represent the labels {plain!r}: use text, numbers or booleans, of one type.")
    edge: str = graph.add("Where", positive, graph.constant(constants[1]), graph.constant(constants[0]))
    return edge, kind
