"""evenhand: fair decisions from any probabilistic binary classifier, after training, at the least cost in accuracy."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from typing import TYPE_CHECKING, Any

from evenhand._version import __version__

if TYPE_CHECKING:
    from evenhand import datasets, io, metrics, search
    from evenhand.audit import Audit, audit
    from evenhand.classifier import FairClassifier
    from evenhand.criteria import (
        Criterion,
        DemographicParity,
        EqualizedOdds,
        EqualOpportunity,
        Intersection,
        MinimumRate,
        PredictiveEquality,
        SelectionBudget,
        SelectionRatio,
    )
    from evenhand.errors import EvenhandError, EvenhandWarning, InfeasibleError, InputError, RuleFormatError
    from evenhand.frontier import Frontier, frontier
    from evenhand.learn import learn_rule
    from evenhand.rule import Rule
    from evenhand.search import Certified, Directions, Dual, Lines, Smoothed

# Where each public name lives. Names are imported when first used, so that the command line starts at once.
_HOMES = {
    "Audit": "audit",
    "Certified": "search",
    "Criterion": "criteria",
    "DemographicParity": "criteria",
    "Directions": "search",
    "Dual": "search",
    "EqualOpportunity": "criteria",
    "EqualizedOdds": "criteria",
    "EvenhandError": "errors",
    "EvenhandWarning": "errors",
    "FairClassifier": "classifier",
    "Frontier": "frontier",
    "InfeasibleError": "errors",
    "InputError": "errors",
    "Intersection": "criteria",
    "Lines": "search",
    "MinimumRate": "criteria",
    "PredictiveEquality": "criteria",
    "Rule": "rule",
    "RuleFormatError": "errors",
    "SelectionBudget": "criteria",
    "SelectionRatio": "criteria",
    "Smoothed": "search",
    "audit": "audit",
    "frontier": "frontier",
    "learn_rule": "learn",
}
_MODULES = ("datasets", "io", "metrics", "search")

__all__ = [
    "Audit",
    "Certified",
    "Criterion",
    "DemographicParity",
    "Directions",
    "Dual",
    "EqualOpportunity",
    "EqualizedOdds",
    "EvenhandError",
    "EvenhandWarning",
    "FairClassifier",
    "Frontier",
    "InfeasibleError",
    "InputError",
    "Intersection",
    "Lines",
    "MinimumRate",
    "PredictiveEquality",
    "Rule",
    "RuleFormatError",
    "SelectionBudget",
    "SelectionRatio",
    "Smoothed",
    "__version__",
    "audit",
    "datasets",
    "frontier",
    "io",
    "learn_rule",
    "metrics",
    "search",
]


def _defer(name: str) -> None:
    """Register the module of a function's name, so that importing it does not hide the function.

    The import system sets each module that it loads as an attribute of its package: ``import evenhand.audit`` would
    make ``evenhand.audit`` the module. A module that is registered already is only looked up. Its code runs when the
    first of its names is asked for.
    """
    spec = importlib.util.find_spec(f"{__name__}.{name}")
    if spec is None or spec.loader is None:
        raise ImportError(f"evenhand is not installed completely: its module {name!r} is missing.")
    loader, module, lock = spec.loader, importlib.util.module_from_spec(spec), threading.RLock()
    running = False

    def load(attribute: str) -> Any:
        nonlocal running
        # Tools look through all modules for names with two underscores; that is no use of this one.
        if not attribute.startswith("__"):
            with lock:
                if not running and "__getattr__" in vars(module):
                    running = True
                    try:
                        loader.exec_module(module)
                        del module.__getattr__
                    finally:
                        running = False
                if attribute in vars(module):
                    return vars(module)[attribute]
        raise AttributeError(f"module {module.__name__!r} has no attribute {attribute!r}")

    module.__getattr__ = load  # type: ignore[method-assign]
    sys.modules[module.__name__] = module


for _name in sorted(set(_HOMES) & set(_HOMES.values())):
    _defer(_name)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"evenhand.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"evenhand.{name}")
    else:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
