"""evenhand: fair decisions from any probabilistic binary classifier, after training, at the least cost in accuracy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from evenhand._version import __version__

if TYPE_CHECKING:
    from evenhand import datasets, io, metrics, search
    from evenhand.auditing.audit import audit
    from evenhand.auditing.findings import Audit
    from evenhand.auditing.watch import Watch
    from evenhand.errors import EvenhandError, EvenhandWarning, InfeasibleError, InputError, RuleFormatError
    from evenhand.estimator.classifier import FairClassifier
    from evenhand.rules.criteria import (
        AccuracyParity,
        Criterion,
        DemographicParity,
        EqualizedOdds,
        EqualOpportunity,
        LinearConstraint,
        MaximumRate,
        MinimaxRate,
        MinimumRate,
        PredictiveEquality,
        PredictiveParity,
        SelectionBudget,
        SelectionRatio,
    )
    from evenhand.rules.events import Event, Intersection
    from evenhand.rules.frontier import Frontier, frontier
    from evenhand.rules.learn import learn_rule
    from evenhand.rules.mixture import Mixture
    from evenhand.rules.rule import Rule
    from evenhand.search import Certified, Directions, Dual, Lines, Smoothed

# Where each public name is defined. Names are imported on first use, so that the command line starts quickly.
_HOMES = {
    "AccuracyParity": "rules.criteria",
    "Audit": "auditing.findings",
    "Certified": "search",
    "Criterion": "rules.criteria",
    "DemographicParity": "rules.criteria",
    "Directions": "search",
    "Dual": "search",
    "EqualOpportunity": "rules.criteria",
    "EqualizedOdds": "rules.criteria",
    "EvenhandError": "errors",
    "EvenhandWarning": "errors",
    "Event": "rules.events",
    "FairClassifier": "estimator.classifier",
    "Frontier": "rules.frontier",
    "InfeasibleError": "errors",
    "InputError": "errors",
    "Intersection": "rules.events",
    "LinearConstraint": "rules.criteria",
    "Lines": "search",
    "MaximumRate": "rules.criteria",
    "MinimaxRate": "rules.criteria",
    "MinimumRate": "rules.criteria",
    "Mixture": "rules.mixture",
    "PredictiveEquality": "rules.criteria",
    "PredictiveParity": "rules.criteria",
    "Rule": "rules.rule",
    "RuleFormatError": "errors",
    "SelectionBudget": "rules.criteria",
    "SelectionRatio": "rules.criteria",
    "Smoothed": "search",
    "Watch": "auditing.watch",
    "audit": "auditing.audit",
    "frontier": "rules.frontier",
    "learn_rule": "rules.learn",
}
_MODULES = ("datasets", "io", "metrics", "search")

__all__ = [
    "AccuracyParity",
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
    "Event",
    "FairClassifier",
    "Frontier",
    "InfeasibleError",
    "InputError",
    "Intersection",
    "LinearConstraint",
    "Lines",
    "MaximumRate",
    "MinimaxRate",
    "MinimumRate",
    "Mixture",
    "PredictiveEquality",
    "PredictiveParity",
    "Rule",
    "RuleFormatError",
    "SelectionBudget",
    "SelectionRatio",
    "Smoothed",
    "Watch",
    "__version__",
    "audit",
    "datasets",
    "frontier",
    "io",
    "learn_rule",
    "metrics",
    "search",
]


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
