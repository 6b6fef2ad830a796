"""Converts classifiers from files of earlier versions to the present form."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.estimator.classifier import FairClassifier
from evenhand.inputs import read_sensitive
from evenhand.rules.criteria import resolve
from evenhand.rules.rule import Rule
from evenhand.rules.scores import by_attribute, read_costs
from evenhand.rules.setting import Options

# Parameters that earlier classifiers did not have, and the values that match their behaviour.
_BEFORE = {"safety": 0.0, "missing": "raise", "evidence": "labels", "objective": "accuracy", "randomize": False}


def bring_up_to_date(estimator: Any) -> None:
    """Convert the attributes of an earlier version; a classifier of this version is unchanged."""
    rule = vars(estimator).get("rule_") if isinstance(estimator, FairClassifier) else None
    if not isinstance(rule, Rule):
        return
    for name, value in _BEFORE.items():
        vars(estimator).setdefault(name, value)
    _name_crossed(estimator, rule)
    for held in (estimator.held_out_, estimator._certifying):
        if held is not None and "positive" not in vars(held):
            _encode(held, rule)
        if held is not None:
            vars(held).setdefault("strata", {})
    if isinstance(estimator._options, dict):
        estimator._options = Options(
            criterion=resolve(estimator._options["criterion"]),
            search=estimator._options["search"],
            costs=read_costs(estimator._options["costs"]),
            random_state=estimator._options["random_state"],
        )


def _encode(held: Any, rule: Rule) -> None:
    """Convert rows that were stored as labels and group values to codes."""
    old = dict(vars(held))
    groups = dict(zip(map(str, old["groups"]), old["groups"].values(), strict=True))
    vars(held).clear()
    vars(held).update(
        positive=np.asarray(old["y"] == rule.classes[1]),
        classes=rule.classes,
        attributes=read_sensitive(old["sensitive_features"], len(old["y"]), groups=groups, missing="ignore"),
        copies=None,
        **{name: old[name] for name in ("rows", "groups", "p_y", "p_group", "sample_weight")},
    )


def _name_crossed(estimator: FairClassifier, rule: Rule) -> None:
    """Convert dicts whose crossed attributes were stored as text to the present keys."""
    if all(isinstance(name, str) for name in rule.groups):
        return
    models, held = estimator._models, (estimator.held_out_, estimator._certifying)
    holders: list[tuple[Any, str]] = [(models, name) for name in ("auxiliaries", "layouts", "targets")]
    holders += [(part, "p_group") for part in held if part is not None]
    holders += [(models.recalibration, "group_weights")] if models.recalibration is not None else []
    holders += [(estimator, "auxiliary_")] if isinstance(estimator.auxiliary_, dict) else []
    for holder, name in holders:
        vars(holder)[name] = by_attribute(vars(holder)[name], rule.groups, name)
