"""The parts of a saved classifier outside the skops tree: rules as JSON, boosted trees, networks as safetensors.

A rule is stored as JSON because that is fully checked when it is read, and anyone can open it. A network's numbers are
tensors; its shape is rebuilt from the estimator's own parameters, so the file contains no code and no class.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from evenhand.errors import InputError, ModelFormatError, require
from evenhand.io.boosted import is_boosted, read_boosted, write_boosted
from evenhand.rules.events import Intersection, Stratified
from evenhand.rules.mixture import Mixture, read_rule
from evenhand.rules.rule import Rule

_LEAVES = (
    str,
    bytes,
    bool,
    int,
    float,
    complex,
    type(None),
    type,
    np.generic,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    Rule,
    Mixture,
)


@dataclass(frozen=True)
class Stored:
    """A placeholder for a part that is a separate member of the file."""

    member: str


@dataclass(frozen=True)
class Keyed:
    """A placeholder for a dict whose keys are not text, such as one by crossed attributes."""

    keys: tuple[Any, ...]
    values: list[Any]


def set_aside(estimator: Any) -> tuple[Any, dict[str, bytes]]:
    """Return a copy of an estimator without its rules, boosted trees and networks, and these as members of a file."""
    members: dict[str, bytes] = {}
    stand_ins: dict[int, Any] = {}
    for holder, key, value in edges(estimator):
        if id(value) in stand_ins:
            continue
        if isinstance(value, Rule | Mixture):
            name = f"rules/{len(stand_ins)}.json"
            members[name] = value.to_json().encode()
            stand_ins[id(value)] = Stored(name)
        elif is_boosted(holder, key):
            name = f"trees/{len(stand_ins)}"
            members |= write_boosted(value, name)
            stand_ins[id(value)] = Stored(name)
        elif is_network(value):
            name = f"networks/{len(stand_ins)}"
            members |= _write_network(holder, key, value, name)
            stand_ins[id(value)] = Stored(name)
    # With these in its memo, deepcopy puts the placeholder wherever the part was, at any depth.
    bare = copy.deepcopy(estimator, stand_ins)
    # From the inside out, so that a nested dict is replaced before the outer one.
    for holder, key, value in reversed(list(edges(bare))):
        if type(value) is dict and any(isinstance(name, Intersection | Stratified | tuple) for name in value):
            _put(holder, key, Keyed(tuple(value), list(value.values())))
    return bare, members


def put_back(estimator: Any, read: Callable[[str], bytes]) -> None:
    """Put the rules, boosted trees and networks of a file back in place."""
    rules: dict[str, Rule | Mixture] = {}
    for holder, key, value in reversed(list(edges(estimator))):
        if type(value) is Keyed:
            _put(holder, key, dict(zip(value.keys, value.values, strict=True)))
        if type(value) is not Stored:
            continue
        name = value.member
        part: Any
        if not isinstance(name, str):
            raise ModelFormatError("A part's name is not text.")
        if name.startswith("rules/"):
            if name not in rules:
                rules[name] = read_rule(read(name).decode())
            part = rules[name]
        elif name.startswith("trees/"):
            part = _read_trees(holder, key, name, read)
        else:
            part = _read_network(holder, key, name, read)
        _put(holder, key, part)


def _read_trees(holder: Any, key: Any, name: str, read: Callable[[str], bytes]) -> Any:
    from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting

    if not isinstance(holder, BaseHistGradientBoosting) or key != "_predictors":
        raise ModelFormatError("Boosted trees are in an unexpected place.")
    return read_boosted(name, read)


def _put(holder: Any, key: Any, part: Any) -> None:
    if isinstance(holder, dict | list):
        holder[key] = part
    elif hasattr(holder, "__dict__"):
        vars(holder)[key] = part
    else:
        raise ModelFormatError("A part of the classifier is in an unexpected place.")


def edges(root: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (holder, key, value) for everything that an object reaches through attributes and containers."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        holder = waiting.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        for key, value in _children(holder):
            yield holder, key, value
            if not isinstance(value, _LEAVES) and not is_network(value):
                waiting.append(value)


def _children(holder: Any) -> list[tuple[Any, Any]]:
    if isinstance(holder, dict):
        return list(holder.items())
    if isinstance(holder, list | tuple | set | frozenset):
        return list(enumerate(holder))
    if isinstance(holder, np.ndarray):
        return list(enumerate(holder.flat)) if holder.dtype == object else []
    return list(vars(holder).items()) if hasattr(holder, "__dict__") else []


def is_network(value: Any) -> bool:
    """Return whether an object is torch's or skorch's, without importing either."""
    return any(base.__module__.partition(".")[0] in ("torch", "skorch") for base in type(value).__mro__)


def _write_network(holder: Any, key: Any, net: Any, name: str) -> dict[str, bytes]:
    owner = type(holder).__name__
    if not any(base.__name__ == "NetworkClassifier" for base in type(holder).__mro__) or key != "net_":
        raise InputError(
            f"{owner} contains another network ({type(net).__name__}), which has no safe form here: save"
            " its weights with safetensors, and the rule with rule_.to_json()."
        )
    save = _safetensors().save
    tensors = {key: value.detach().cpu().contiguous() for key, value in net.module_.state_dict().items()}
    history = [{key: value for key, value in epoch.items() if key != "batches"} for epoch in net.history]
    return {
        f"{name}.safetensors": save(tensors),
        f"{name}.json": json.dumps({"seed": int(net.seed), "history": history}).encode(),
    }


def _read_network(holder: Any, key: Any, name: str, read: Callable[[str], bytes]) -> Any:
    from evenhand.paper.models._estimator import NetworkClassifier

    if not isinstance(holder, NetworkClassifier) or key != "net_":
        raise ModelFormatError("A network is in an unexpected place.")
    load = _safetensors().load
    from skorch.history import History
    from torch.optim import Adam

    from evenhand.paper.models._net import Net

    about = json.loads(read(f"{name}.json"))
    bare = copy.copy(holder)
    # The file has all parameters, so pretrained weights are not loaded.
    if hasattr(bare, "weights"):
        bare.weights = None
    tensors = load(read(f"{name}.safetensors"))
    # A forged size would allocate memory before the shapes are compared.
    if hasattr(holder, "hidden") and tuple(tensors["hidden.weight"].shape) != (holder.hidden, holder.n_features_in_):
        raise ModelFormatError("A network's tensors do not match the size of its estimator.")
    module = bare._make_module([len(classes) for classes in holder._head_classes()])
    module.load_state_dict(tensors, strict=True)
    net = Net(
        module,
        seed=int(about["seed"]),
        max_epochs=holder.max_epochs,
        batch_size=holder.batch_size,
        lr=holder.lr,
        lr_decay=holder.lr_decay,
        optimizer=Adam,
        optimizer__weight_decay=holder.weight_decay,
        optimizer__fused=True,
        patience=holder.patience,
        monitor=holder.monitor,
        device=holder.device,
    ).initialize()
    net.history_ = History(list(about["history"]))
    return net


def _safetensors() -> Any:
    return require("Saving and loading networks", "torch", "safetensors.torch")
