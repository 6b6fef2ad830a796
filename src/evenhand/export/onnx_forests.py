"""Forests and trees of scikit-learn as one ONNX node that adds in double precision.

The standard converter adds the trees in single precision, where a half may be rounded up: rows on the boundary would
be decided differently from Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from evenhand.errors import InputError
from evenhand.export.onnx_graph import ML, Graph

FORESTS = (DecisionTreeClassifier, ExtraTreesClassifier, RandomForestClassifier)


def add_forest(graph: Graph, model: Any, edge: str) -> str:
    """Add a forest or a tree, and return the edge of its probabilities, as doubles."""
    if model.n_outputs_ != 1:
        raise InputError(f"{type(model).__name__} has {model.n_outputs_} outputs: train it on one label.")
    trees = [model] if isinstance(model, DecisionTreeClassifier) else model.estimators_
    kinds = graph.onnx.TensorProto
    # scikit-learn's trees read features in single precision and compare them with thresholds in double.
    features = graph.cast(graph.cast(edge, kinds.FLOAT), kinds.DOUBLE)
    attributes = _attributes([tree.tree_ for tree in trees], graph.onnx)
    total = graph.add("TreeEnsembleRegressor", features, domain=ML, **attributes)
    mean: str = graph.add("Div", graph.cast(total, kinds.DOUBLE), graph.constant(float(len(trees))))
    return mean


def _attributes(trees: list[Any], onnx: Any) -> dict[str, Any]:
    """Return the nodes of trees, and in each leaf the probability of every class."""
    whole: dict[str, list[int]] = {
        name: []
        for name in (
            "nodes_treeids",
            "nodes_nodeids",
            "nodes_featureids",
            "nodes_truenodeids",
            "nodes_falsenodeids",
            "nodes_missing_value_tracks_true",
            "target_treeids",
            "target_nodeids",
            "target_ids",
        )
    }
    modes: list[str] = []
    thresholds, weights = [], []
    classes = trees[0].value.shape[2]
    for number, tree in enumerate(trees):
        size = tree.node_count
        inner = tree.children_left >= 0
        leaves = np.flatnonzero(~inner)
        whole["nodes_treeids"] += [number] * size
        whole["nodes_nodeids"] += range(size)
        whole["nodes_featureids"] += np.where(inner, tree.feature, 0).tolist()
        whole["nodes_truenodeids"] += np.where(inner, tree.children_left, 0).tolist()
        whole["nodes_falsenodeids"] += np.where(inner, tree.children_right, 0).tolist()
        whole["nodes_missing_value_tracks_true"] += np.where(inner, tree.missing_go_to_left, 0).tolist()
        whole["target_treeids"] += [number] * (classes * len(leaves))
        whole["target_nodeids"] += np.repeat(leaves, classes).tolist()
        whole["target_ids"] += np.tile(np.arange(classes), len(leaves)).tolist()
        modes += np.where(inner, "BRANCH_LEQ", "LEAF").tolist()
        thresholds.append(np.where(inner, tree.threshold, 0.0))
        weights.append(tree.value[leaves, 0].ravel())
    tensor = onnx.numpy_helper.from_array
    return {
        **whole,
        "nodes_modes": modes,
        "nodes_values_as_tensor": tensor(np.concatenate(thresholds).astype(np.float64)),
        "target_weights_as_tensor": tensor(np.concatenate(weights).astype(np.float64)),
        "n_targets": int(classes),
        "aggregate_function": "SUM",
        "post_transform": "NONE",
    }
