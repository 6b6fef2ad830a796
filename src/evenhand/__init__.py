"""evenhand: fair decisions from any probabilistic binary classifier, after training, at the least cost in accuracy."""

from __future__ import annotations

import importlib
import sys
import types
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
    from evenhand.search import Certified, Directions, Dual, Lines

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
    "__version__",
    "audit",
    "datasets",
    "frontier",
    "io",
    "learn_rule",
    "metrics",
    "search",
]


class _Package(types.ModuleType):
    """The package: ``evenhand.audit`` and ``evenhand.frontier`` are the functions, not the modules they live in."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a submodule sets it as an attribute of its package.
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


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
