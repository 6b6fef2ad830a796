"""Names of the fairness criteria, and criteria as plain data.

Only :func:`resolve` turns a string into a criterion.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from evenhand.arguments import shown
from evenhand.errors import InputError
from evenhand.rules.criterion import Composite, Criterion, check_tolerance
from evenhand.rules.events import Intersection, event_from_dict
from evenhand.rules.parities import (
    AccuracyParity,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    PredictiveEquality,
    PredictiveParity,
    SelectionRatio,
)
from evenhand.rules.rate_bounds import LinearConstraint, MaximumRate, MinimaxRate, MinimumRate, SelectionBudget

__all__ = [
    "NAMES",
    "AccuracyParity",
    "Composite",
    "Criterion",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "Intersection",
    "LinearConstraint",
    "MaximumRate",
    "MinimaxRate",
    "MinimumRate",
    "PredictiveEquality",
    "PredictiveParity",
    "SelectionBudget",
    "SelectionRatio",
    "check_tolerance",
    "from_dict",
    "resolve",
]

NAMES: dict[str, type[Criterion]] = {
    "demographic_parity": DemographicParity,
    "dp": DemographicParity,
    "equal_opportunity": EqualOpportunity,
    "eop": EqualOpportunity,
    "true_positive_rate_parity": EqualOpportunity,
    "equalized_odds": EqualizedOdds,
    "eo": EqualizedOdds,
    "predictive_equality": PredictiveEquality,
    "pe": PredictiveEquality,
    "false_positive_rate_parity": PredictiveEquality,
    "accuracy_parity": AccuracyParity,
    "ap": AccuracyParity,
    "predictive_parity": PredictiveParity,
    "pp": PredictiveParity,
}
_TYPES: dict[str, type[Criterion]] = {
    cls.__name__: cls
    for cls in (
        AccuracyParity,
        Composite,
        DemographicParity,
        EqualOpportunity,
        EqualizedOdds,
        LinearConstraint,
        MaximumRate,
        MinimaxRate,
        MinimumRate,
        PredictiveEquality,
        PredictiveParity,
        SelectionBudget,
        SelectionRatio,
    )
}


def resolve(criterion: str | Criterion) -> Criterion:
    """Return the criterion that a string names; a criterion object is returned unchanged.

    Examples
    --------
    >>> from evenhand.rules.criteria import resolve
    >>> resolve("eo") == resolve("equalized_odds")
    True
    """
    if isinstance(criterion, Criterion):
        return criterion
    if isinstance(criterion, str) and criterion.lower() in NAMES:
        return NAMES[criterion.lower()]()
    raise InputError(
        f"Unknown criterion {shown(criterion)}.{_near(criterion)} Use one of {sorted(NAMES)!r}, or a criterion object."
    )


def _near(criterion: Any) -> str:
    """Return the most similar name, as a question."""
    if not isinstance(criterion, str):
        return ""
    wanted = criterion.lower().strip().replace("-", "_").replace(" ", "_").replace("equalised", "equalized")
    close = [wanted] if wanted in NAMES else difflib.get_close_matches(wanted, NAMES, 1, 0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def from_dict(data: Any) -> Criterion:
    """Return the criterion that :meth:`Criterion.to_dict` wrote; anything else raises InputError."""
    if not isinstance(data, Mapping) or not isinstance(data.get("type"), str) or data["type"] not in _TYPES:
        raise InputError(
            "This is not a criterion that this version of evenhand knows: update evenhand, or check the file."
        )
    cls = _TYPES[data["type"]]
    known = {field.name for field in fields(cls)}
    options = {key: value for key, value in data.items() if key != "type"}
    if not options.keys() <= known:
        raise InputError(f"{cls.__name__} has no option {sorted(options.keys() - known)[0]!r}.")
    if isinstance(crossed := options.get("attribute"), Mapping):
        options["attribute"] = Intersection(*crossed.get("intersection", ()))
    if isinstance(terms := options.get("terms"), list):
        options["terms"] = tuple(event_from_dict(term) for term in terms)
    if cls is Composite:
        parts = options.get("parts")
        options["parts"] = tuple(from_dict(part) for part in parts) if isinstance(parts, list) else ()
    try:
        return cls(**options)
    except TypeError as error:
        raise InputError(f"{cls.__name__} cannot be read: {error}.") from None
