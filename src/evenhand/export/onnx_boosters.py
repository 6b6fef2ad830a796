"""LightGBM, XGBoost and CatBoost as ONNX nodes, converted with onnxmltools and with CatBoost's own exporter."""

from __future__ import annotations

from typing import Any

from evenhand.errors import InputError
from evenhand.export.onnx_graph import Graph, require

FAMILIES = ("lightgbm", "xgboost", "catboost")
OLDEST_OPSET = 15


def booster_family(model: Any) -> str | None:
    """Return the library of a model of boosted trees, or None if it is not one of these."""
    family = type(model).__module__.split(".")[0]
    return family if family in FAMILIES and type(model).__name__.endswith("Classifier") else None


def add_booster(graph: Graph, model: Any, edge: str, width: int) -> str:
    """Add a fitted model of boosted trees, and return the edge of its probabilities, as doubles.

    XGBoost and CatBoost read features in single precision, so the graph does; LightGBM's thresholds are rounded to it.
    """
    family = booster_family(model)
    kinds = graph.onnx.TensorProto
    floats = graph.cast(edge, kinds.FLOAT)
    try:
        converted = _of_catboost(model, floats) if family == "catboost" else _converted(model, floats, width)
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"{type(model).__name__} cannot be converted to ONNX: {reason} The rule alone can always be exported:"
            " rule_to_onnx(fair.rule_, path)."
        ) from error
    return graph.cast(graph.graft(converted)[-1], kinds.DOUBLE)


def _converted(model: Any, edge: str, width: int) -> Any:
    """Convert with onnxmltools; its output is the label, then the probabilities."""
    family = booster_family(model)
    types = require("onnxmltools.convert.common.data_types")
    options = {"zipmap": False} if family == "lightgbm" else {}
    convert = getattr(require("onnxmltools"), f"convert_{family}")
    given = [(edge, types.FloatTensorType([None, width]))]
    return convert(model, initial_types=given, target_opset=OLDEST_OPSET, **options)


def _of_catboost(model: Any, edge: str) -> Any:
    """Convert with CatBoost, without its last node, which would turn the probabilities into a list of dicts."""
    import catboost.utils

    onnx = require("onnx")
    converted = catboost.utils.convert_to_onnx_object(model)
    nodes = [node for node in converted.graph.node if node.op_type != "ZipMap"]
    (mapped,) = [node.input[0] for node in converted.graph.node if node.op_type == "ZipMap"]
    given = converted.graph.input[0].name
    for node in nodes:
        node.input[:] = [edge if name == given else name for name in node.input]
    kinds = onnx.TensorProto
    inputs = [onnx.helper.make_tensor_value_info(edge, kinds.FLOAT, ["rows", None])]
    outputs = [onnx.helper.make_tensor_value_info(mapped, kinds.FLOAT, ["rows", None])]
    graph = onnx.helper.make_graph(nodes, "catboost", inputs, outputs, initializer=converted.graph.initializer)
    return onnx.helper.make_model(graph, opset_imports=converted.opset_import)
