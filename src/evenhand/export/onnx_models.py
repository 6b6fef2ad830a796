"""Fitted models as ONNX nodes that return their probabilities, as doubles in the order of given classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from evenhand.errors import InputError
from evenhand.estimator.auxiliary import Layout
from evenhand.estimator.crossfit import FoldEnsemble, LabelMarginal
from evenhand.export.onnx_boosters import add_booster, booster_family
from evenhand.export.onnx_forests import FORESTS, add_forest
from evenhand.export.onnx_graph import ML, Graph, require
from evenhand.io.parts import edges

# The trees of boosting need an operator of ai.onnx.ml 5, those of forests one that was removed there.
BOOSTING_OPSETS = {"opset": 21, "ml_opset": 5, "ir_version": 10}
OTHER_OPSETS = {"opset": 17, "ml_opset": 3, "ir_version": 8}
_LESS_OR_EQUAL, _MEMBER = 0, 6
# onnxruntime supports only sets of 32-bit whole numbers.
NO_CATEGORY = float(-(2**31))


class ModelGraph(Graph):
    """A graph whose inputs are the columns of X, and to which models are added."""

    def __init__(self, X: Any, *, boosts: bool) -> None:
        super().__init__()
        self.opsets = BOOSTING_OPSETS if boosts else OTHER_OPSETS
        frame = _as_frame(X)
        self.columns: dict[str, bool] = {}
        if frame is None:
            array = np.asarray(X)
            if array.ndim != 2 or array.dtype.kind not in "biuf":
                raise InputError(
                    "X_sample must be an array of numbers, or a frame whose columns are numbers or text; this is"
                    f" {type(X).__name__} of {array.dtype}."
                )
            self.width = array.shape[1]
            self.input("X", ["rows", self.width])
            return
        self.width = len(frame.columns)
        for name in frame.columns:
            self.columns[name] = not (frame[name].dtype.is_numeric() or frame[name].dtype == nw.Boolean)
            self.input(name, ["rows", 1], text=self.columns[name])

    def feeds(self, X: Any) -> dict[str, NDArray[Any]]:
        """Return X as the graph's inputs."""
        frame = _as_frame(X)
        if frame is None:
            return {"X": np.ascontiguousarray(X, dtype=np.float64)}
        found: dict[str, NDArray[Any]] = {}
        for name, text in self.columns.items():
            values = frame[name].to_numpy()
            if text:
                values = np.array(["" if v is None or v != v else str(v) for v in values], dtype=object)
            found[name] = (values if text else values.astype(np.float64)).reshape(-1, 1)
        return found

    def column(self, edge: str, index: int) -> str:
        """Return one column of a matrix, of shape (rows,)."""
        taken: str = self.add("Gather", edge, self.constant(np.int64(index)), axis=1)
        return taken

    def arranged(self, edge: str, layout: Layout) -> str:
        """Return probabilities in the order of a rule's groups, as :meth:`Layout.arrange` does."""
        order = np.argsort(layout.columns)
        size = layout.n_groups * (2 if layout.joint else 1)
        if len(order) != size:
            raise InputError("A frozen auxiliary model lacks a class: its probabilities cannot be put in order.")
        edge = self.add("Gather", edge, self.constant(order.astype(np.int64)), axis=1)
        if not layout.joint:
            return edge
        shape = np.array([-1, 2, layout.n_groups], dtype=np.int64)
        joint: str = self.add("Reshape", edge, self.constant(shape))
        return joint

    def probabilities(self, model: Any, classes: NDArray[Any]) -> str:
        """Add a model and return the edge of its probabilities, one column for each of the classes."""
        if isinstance(model, FrozenEstimator):
            return self.probabilities(model.estimator, classes)
        if isinstance(model, FoldEnsemble):
            total = None
            for member in model.estimators:
                found = self.probabilities(member, classes)
                total = found if total is None else self.add("Add", total, found)
            assert total is not None
            mean: str = self.add("Div", total, self.constant(float(len(model.estimators))))
            return mean
        if isinstance(model, LabelMarginal):
            cells = self.probabilities(model.model, np.arange(2 * model.n_groups))
            by_label = np.repeat(np.eye(2), model.n_groups, axis=0)
            by_label = by_label if model.positive_index == 1 else by_label[:, ::-1]
            marginal: str = self.add("MatMul", cells, self.constant(np.ascontiguousarray(by_label)))
            return marginal
        own, wanted = list(np.asarray(model.classes_).tolist()), list(np.asarray(classes).tolist())
        if sorted(map(repr, own)) != sorted(map(repr, wanted)):
            raise InputError(f"{type(model).__name__} has the classes {own!r}; the classes here are {wanted!r}.")
        edge = self._own_or_converted(model)
        if own == wanted:
            return edge
        order = np.array([own.index(value) for value in wanted], dtype=np.int64)
        ordered: str = self.add("Gather", edge, self.constant(order), axis=1)
        return ordered

    def _own_or_converted(self, model: Any) -> str:
        last = model.steps[-1][1] if isinstance(model, Pipeline) else model
        last = last.estimator if isinstance(last, FrozenEstimator) else last
        writes = self._writer(last)
        if writes is None:
            return self.cast(self._convert(model, {"zipmap": False})[-1], self.onnx.TensorProto.DOUBLE)
        if isinstance(model, Pipeline) and len(model.steps) > 1:
            edge = self.cast(self._convert(model[:-1], {})[0], self.onnx.TensorProto.DOUBLE)
        elif any(self.columns.values()):
            raise InputError(
                f"{type(last).__name__} encodes text internally, which ONNX does not support: encode it first."
            )
        else:
            edge = self._matrix
        return writes(last, edge)

    def _writer(self, model: Any) -> Callable[[Any, str], str] | None:
        """Return the converter of a model that skl2onnx does not convert, or None."""
        if isinstance(model, HistGradientBoostingClassifier):
            return self._add_boosting
        if isinstance(model, FORESTS) and self.opsets is OTHER_OPSETS:
            return lambda model, edge: add_forest(self, model, edge)
        if booster_family(model) is not None:
            return lambda model, edge: add_booster(self, model, edge, int(model.n_features_in_))
        return _mlp_writer(self, model)

    @cached_property
    def _matrix(self) -> str:
        """The edge of all columns side by side, which must be numbers."""
        if not self.columns:
            return "X"
        edge: str = self.add("Concat", *self.columns, axis=1)
        return edge

    def _convert(self, model: Any, options: dict[str, Any]) -> list[str]:
        """Convert with skl2onnx, in double precision."""
        types = require("skl2onnx.common.data_types")
        kinds: list[tuple[str, Any]] = [
            (name, types.StringTensorType([None, 1]) if text else types.DoubleTensorType([None, 1]))
            for name, text in self.columns.items()
        ]
        # A ColumnTransformer needs its columns by name; most other converters take one input.
        by_name = any(isinstance(part, ColumnTransformer) for _, _, part in edges([model]))
        if not kinds or not (by_name or any(self.columns.values())):
            kinds = [(self._matrix, types.DoubleTensorType([None, self.width]))]
        target = {"": self.opsets["opset"], ML: self.opsets["ml_opset"]}
        try:
            converted = require("skl2onnx").convert_sklearn(
                model, initial_types=kinds, target_opset=target, options=options
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise InputError(
                f"skl2onnx cannot convert {type(model).__name__}: {reason} The rule alone can always be exported:"
                " rule_to_onnx(fair.rule_, path)."
            ) from error
        return self.graft(converted)

    def finish(self, metadata: Mapping[str, str]) -> Any:
        """Return the finished model."""
        try:
            return self.model(metadata=metadata, **self.opsets)
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise InputError(
                f"The models do not fit into one ONNX graph: {reason} (Forests and histogram gradient boosting need"
                " different versions of its operators.)"
            ) from error

    def _add_boosting(self, model: HistGradientBoostingClassifier, edge: str) -> str:
        """Add histogram gradient boosting: one ensemble of trees, then the link of its loss."""
        raw = self.add("TreeEnsemble", edge, domain=ML, **_tree_attributes(model, self.onnx))
        raw = self.add("Add", raw, self.constant(np.asarray(model._baseline_prediction, dtype=np.float64)))
        if model.n_trees_per_iteration_ > 1:
            several: str = self.add("Softmax", raw, axis=1)
            return several
        positive = self.add("Sigmoid", raw)
        both: str = self.add("Concat", self.add("Sub", self.constant(1.0), positive), positive, axis=1)
        return both

    def _add_mlp(self, network: Any, column: int, edge: str) -> str:
        """Add the paper's network: single precision up to the logits, as it computes in Python."""
        module, kinds = network.net_.module_, self.onnx.TensorProto
        values = self.cast(edge, kinds.FLOAT)
        for layer in (module.hidden, module.heads[column]):
            weights = [self.constant(part.detach().cpu().numpy()) for part in (layer.weight, layer.bias)]
            values = self.add("Gemm", values, *weights, transB=1)
            if layer is module.hidden:
                values = self.add("LeakyRelu", values, alpha=float(network.negative_slope))
        probabilities: str = self.add("Softmax", self.cast(values, kinds.DOUBLE), axis=1)
        return probabilities


def _mlp_writer(graph: ModelGraph, model: Any) -> Callable[[Any, str], str] | None:
    """Return the converter for a network of evenhand.paper.models, or a head of one; None for any other model."""
    if not type(model).__module__.startswith("evenhand.paper.models."):
        return None
    network, column = (model.network, model.column) if hasattr(model, "network") else (model, 0)
    if type(network).__name__ != "MLP":
        raise InputError(f"{type(network).__name__} cannot be exported to ONNX: export the rule with rule_to_onnx.")
    return lambda _, edge: graph._add_mlp(network, column, edge)


def has_boosting(models: Any) -> bool:
    """Return whether histogram gradient boosting is among some models, at any depth."""
    return any(isinstance(value, HistGradientBoostingClassifier) for _, _, value in edges(models))


def _tree_attributes(model: HistGradientBoostingClassifier, onnx: Any) -> dict[str, Any]:
    """Return the trees of boosting as attributes of one TreeEnsemble; splits on categories are sets of values."""
    places, categories = _raw_columns(model)
    nodes: dict[str, list[Any]] = {
        name: []
        for name in (
            "featureids",
            "splits",
            "modes",
            "truenodeids",
            "trueleafs",
            "falsenodeids",
            "falseleafs",
            "missing",
        )
    }
    leaves: dict[str, list[Any]] = {"targetids": [], "weights": []}
    roots, members = [], []
    for step in model._predictors:
        for target, tree in enumerate(step):
            table, inner = tree.nodes, tree.nodes["is_leaf"] == 0
            place = np.where(inner, len(nodes["splits"]) + np.cumsum(inner) - 1, 0)
            place = np.where(inner, place, len(leaves["weights"]) + np.cumsum(~inner) - 1)
            leaves["targetids"] += [target] * int((~inner).sum())
            leaves["weights"] += table["value"][~inner].tolist()
            roots.append(len(nodes["splits"]))
            if not inner[0]:
                # A tree needs an inner node: this one has the same leaf on both sides.
                table, inner, place = _doubled(table), np.array([True, False]), np.array([roots[-1], place[0]])
            for node in table[inner]:
                column, left, right = int(node["feature_idx"]), int(node["left"]), int(node["right"])
                to_left = bool(node["missing_go_to_left"])
                tracks = to_left
                if node["is_categorical"]:
                    known = categories[column]
                    bits = tree.raw_left_cat_bitsets[node["bitset_idx"]]
                    chosen = [(int(bits[c // 32]) >> (c % 32)) & 1 == 1 for c in range(len(known))]
                    # Unknown and missing values must go to the missing side: test for the other one.
                    if to_left:
                        left, right, chosen, tracks = right, left, [not member for member in chosen], False
                    inside = [value for value, member in zip(known, chosen, strict=True) if member]
                    # A set may not be empty, and NaN ends it: a value that is not a category is used instead.
                    members += [*(inside or [NO_CATEGORY]), np.nan]
                nodes["featureids"].append(places[column])
                nodes["splits"].append(0.0 if node["is_categorical"] else float(node["num_threshold"]))
                nodes["modes"].append(_MEMBER if node["is_categorical"] else _LESS_OR_EQUAL)
                nodes["missing"].append(int(tracks))
                for side, child in (("true", left), ("false", right)):
                    nodes[f"{side}nodeids"].append(int(place[child]))
                    nodes[f"{side}leafs"].append(int(not inner[child]))
    tensor = onnx.numpy_helper.from_array
    attributes: dict[str, Any] = {
        f"nodes_{name}": nodes[name] for name in nodes if name not in ("splits", "modes", "missing")
    }
    attributes |= {
        "nodes_missing_value_tracks_true": nodes["missing"],
        "nodes_splits": tensor(np.array(nodes["splits"], dtype=np.float64)),
        "nodes_modes": tensor(np.array(nodes["modes"], dtype=np.uint8)),
        "leaf_targetids": leaves["targetids"],
        "leaf_weights": tensor(np.array(leaves["weights"], dtype=np.float64)),
        "tree_roots": roots,
        "n_targets": int(model.n_trees_per_iteration_),
        "aggregate_function": 1,
        "post_transform": 0,
    }
    if members:
        attributes["membership_values"] = tensor(np.array(members, dtype=np.float64))
    return attributes


def _doubled(table: NDArray[Any]) -> NDArray[Any]:
    both = np.concatenate([table, table])
    both["is_leaf"][0], both["left"][0], both["right"][0], both["feature_idx"][0] = 0, 1, 1, 0
    both["is_categorical"][0], both["num_threshold"][0] = 0, 0.0
    return both


def _raw_columns(model: HistGradientBoostingClassifier) -> tuple[list[int], dict[int, list[float]]]:
    """Return, for each column that the trees use, its index in X, and the values of its categories."""
    if model._preprocessor is None:
        return list(range(model.n_features_in_)), {}
    categorical = np.asarray(model.is_categorical_, dtype=bool)
    places = [*np.flatnonzero(categorical).tolist(), *np.flatnonzero(~categorical).tolist()]
    encoder = model._preprocessor.named_transformers_["encoder"]
    found = {}
    for column, values in enumerate(encoder.categories_):
        if np.asarray(values).dtype.kind not in "biuf":
            raise InputError(
                "Histogram gradient boosting encodes text internally, which ONNX does not support: encode it first."
            )
        found[column] = [float(value) for value in values if value == value]
        if any(value != int(value) or abs(value) >= -NO_CATEGORY for value in found[column]):
            raise InputError(
                "The categories of histogram gradient boosting must be whole numbers for ONNX: encode them."
            )
    return places, found


def _as_frame(X: Any) -> Any:
    native = nw.from_native(X, eager_only=True, pass_through=True)
    return native if isinstance(native, nw.DataFrame) else None
