"""Checks the nodes of trees before compiled code follows them.

scikit-learn does not check whether a child or a feature exists. A tree that it grew is always valid; one from a file
may lead outside memory, or in a circle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import ModelFormatError
from evenhand.io.parts import edges


def check_trees(root: Any) -> None:
    """Raise :class:`ModelFormatError` if a tree in an object leads anywhere except to a leaf."""
    from sklearn.ensemble import BaseEnsemble
    from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
    from sklearn.tree import BaseDecisionTree
    from sklearn.tree._tree import Tree

    sound: set[int] = set()
    found: list[Any] = []
    for holder, key, value in edges(root):
        if isinstance(value, BaseHistGradientBoosting) and hasattr(value, "_predictors"):
            sound |= _check_boosting(value)
        elif isinstance(value, BaseEnsemble) and hasattr(value, "estimators_"):
            _check_forest(value)
        elif isinstance(value, TreePredictor):
            found.append(value)
        elif isinstance(value, Tree):
            if not isinstance(holder, BaseDecisionTree) or key != "tree_":
                raise ModelFormatError("A tree is in an unexpected place.")
            _check_tree(holder, value)
    if any(id(tree) not in sound for tree in found):
        raise ModelFormatError("A tree is in an unexpected place.")


def _check_tree(model: Any, tree: Any) -> None:
    if tree.n_features != getattr(model, "n_features_in_", None):
        raise ModelFormatError("A tree's number of features does not match its model.")
    left, right = tree.children_left, tree.children_right
    inner = left != -1
    _check_nodes(left, right, tree.feature, inner, tree.n_features)
    if ((right == -1) & inner).any():
        raise ModelFormatError("A node of a tree has only one child.")


def _check_forest(ensemble: Any) -> None:
    """Check that all trees of an ensemble use the same columns."""
    from sklearn.ensemble import BaggingClassifier, BaggingRegressor
    from sklearn.tree import BaseDecisionTree

    if isinstance(ensemble, BaggingClassifier | BaggingRegressor):
        return
    members = np.asarray(ensemble.estimators_, dtype=object).ravel()
    for model in members:
        if isinstance(model, BaseDecisionTree) and model.n_features_in_ != ensemble.n_features_in_:
            raise ModelFormatError("A tree's number of features does not match its ensemble.")


def _check_boosting(model: Any) -> set[int]:
    features = int(model._n_features)
    mapper = model._bin_mapper
    categorical = np.asarray(mapper.is_categorical_, dtype=bool)
    if len(categorical) != features or len(mapper.bin_thresholds_) != features:
        raise ModelFormatError("A boosted model's bins do not fit its features.")
    checked = set()
    for step in model._predictors:
        for tree in step:
            nodes, bits = tree.nodes, tree.raw_left_cat_bitsets
            inner = nodes["is_leaf"] == 0
            _check_nodes(nodes["left"], nodes["right"], nodes["feature_idx"], inner, features)
            splits = inner & (nodes["is_categorical"] != 0)
            if splits.any() and not (
                categorical[nodes["feature_idx"][splits]].all()
                and (nodes["bitset_idx"][splits] < len(bits)).all()
                and bits.ndim == 2
                and bits.shape[1] == 8
            ):
                raise ModelFormatError("A boosted tree splits on categories that it does not have.")
            checked.add(id(tree))
    return checked


def _check_nodes(
    left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], inner: NDArray[np.bool_], features: int
) -> None:
    """Check that every inner node has two children after it and a valid feature."""
    n = len(inner)
    place = np.arange(n)[inner]
    children = np.stack([left[inner], right[inner]]).astype(np.int64)
    columns = feature[inner].astype(np.int64)
    if (
        n == 0
        or (children <= place).any()
        or (children >= n).any()
        or (columns < 0).any()
        or (columns >= features).any()
    ):
        raise ModelFormatError("A node of a tree leads out of the tree.")
