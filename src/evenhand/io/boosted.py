"""The trees of boosted models in a few arrays, instead of three for each of thousands of trees.

A member ``nodes`` has the nodes of all trees, one tree after the other, and ``sizes`` how many each has. Two more have
the categories of splits. The arrays are plain numbers; which class they become is fixed here, and :mod:`trees` checks
them like any other trees.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import ModelFormatError

_BITSETS = ("binned_left_cat_bitsets", "raw_left_cat_bitsets")
_PARTS = ("nodes", *_BITSETS)
_WORDS = 8


def is_boosted(holder: Any, key: Any) -> bool:
    """Return whether a model keeps its boosted trees under a name, in the form that is known here."""
    from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    if key != "_predictors" or not isinstance(holder, BaseHistGradientBoosting):
        return False
    trees = [tree for step in holder._predictors for tree in step]
    known = all(type(tree) is TreePredictor and set(vars(tree)) == set(_PARTS) for tree in trees)
    steps = {len(step) for step in holder._predictors}
    return bool(trees) and known and len(steps) == 1 and all(_is_usual(tree) for tree in trees)


def _is_usual(tree: Any) -> bool:
    flat = all(getattr(tree, name).ndim == 2 and getattr(tree, name).shape[1] == _WORDS for name in _BITSETS)
    return tree.nodes.dtype == _node_type() and flat and all(getattr(tree, n).dtype == np.uint32 for n in _BITSETS)


def write_boosted(predictors: list[list[Any]], name: str) -> dict[str, bytes]:
    """Return the trees of a model as members of a file."""
    trees = [tree for step in predictors for tree in step]
    sizes = [[len(getattr(tree, part)) for part in _PARTS] for tree in trees]
    arrays = {part: np.concatenate([getattr(tree, part) for tree in trees]) for part in _PARTS}
    arrays["sizes"] = np.array(sizes, dtype=np.int64).reshape(len(predictors), -1, len(_PARTS))
    return {f"{name}.{part}.npy": _bytes(array) for part, array in arrays.items()}


def read_boosted(name: str, read: Callable[[str], bytes]) -> list[list[Any]]:
    """Return the trees of a model from the members of a file."""
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    arrays = {part: np.load(io.BytesIO(read(f"{name}.{part}.npy")), allow_pickle=False) for part in (*_PARTS, "sizes")}
    sizes = arrays.pop("sizes")
    if sizes.dtype != np.int64 or sizes.ndim != 3 or sizes.shape[2] != len(_PARTS) or (sizes < 0).any():
        raise ModelFormatError("The sizes of a boosted model's trees are not numbers of nodes.")
    if arrays["nodes"].dtype != _node_type():
        raise ModelFormatError("The nodes of a boosted model are those of another version of scikit-learn.")
    parts: list[list[NDArray[Any]]] = []
    for k, part in enumerate(_PARTS):
        array, ends = arrays[part], np.cumsum(sizes[:, :, k].reshape(-1))
        shape = () if part == "nodes" else (_WORDS,)
        if array.shape[1:] != shape or (part != "nodes" and array.dtype != np.uint32):
            raise ModelFormatError("The arrays of a boosted model's trees have an unexpected form.")
        if ends.size == 0 or ends[-1] != len(array) or (sizes[:, :, k] > len(array)).any():
            raise ModelFormatError("The sizes of a boosted model's trees do not add up to its nodes.")
        parts.append([one.copy() for one in np.split(array, ends[:-1])])
    trees = iter([TreePredictor(*one) for one in zip(*parts, strict=True)])
    return [[next(trees) for _ in range(sizes.shape[1])] for _ in range(sizes.shape[0])]


def _node_type() -> Any:
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    return PREDICTOR_RECORD_DTYPE


def _bytes(array: NDArray[Any]) -> bytes:
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    return written.getvalue()
