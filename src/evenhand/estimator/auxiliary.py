"""The target of the auxiliary model: p(A|x), or p(Y, A|x) if rates are compared within a label.

An auxiliary model that is trained here gets whole numbers as its classes: the group's index among the sorted
groups, or, for the pair of label and group, ``label * G + group`` with label 0 for the negative and 1 for the
positive one. A model trained elsewhere may use these numbers, the groups themselves, or tuples ``(label, group)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from evenhand.errors import InputError
from evenhand.inputs import (
    DEFAULT_ATTRIBUTE,
    Attribute,
    FloatArray,
    SensitiveFeatures,
    cross_attributes,
    is_named,
    named_columns,
    read_sensitive,
)
from evenhand.rows import Rows
from evenhand.rules.criteria import Criterion
from evenhand.rules.events import AttributeKey, Groups, Intersection, display_names
from evenhand.rules.scores import by_attribute
from evenhand.rules.system import write_out


@dataclass(frozen=True, eq=False)
class Target:
    """One attribute that the rule needs: its groups, each row's group, and whether p(Y, A|x) is needed."""

    attribute: Attribute
    parts: tuple[str, ...]
    joint: bool
    positive: NDArray[np.bool_]
    shown: str = ""

    @property
    def name(self) -> AttributeKey:
        """The attribute: its name, or its Intersection."""
        return self.attribute.name

    @property
    def text(self) -> str:
        """The attribute in words that no other attribute has."""
        return self.shown or str(self.name)

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The attribute's groups, in the order of the probability columns."""
        return self.attribute.groups

    @property
    def cells(self) -> NDArray[np.intp]:
        """Each row's pair of label and group, as ``label * G + group``; -1 if the group is not known."""
        return np.where(self.known, self.positive * len(self.groups) + self.attribute.codes, -1)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each row's group is known."""
        return self.attribute.codes >= 0

    @property
    def codes(self) -> NDArray[np.intp]:
        """Each row's class for the auxiliary model; -1 if the group is not known."""
        return self.cells if self.joint else self.attribute.codes

    @property
    def n_classes(self) -> int:
        """The number of classes of the auxiliary model."""
        return len(self.groups) * (2 if self.joint else 1)

    @property
    def describes(self) -> str:
        """What the model estimates, for messages."""
        return f"p(Y, {self.text}|x)" if self.joint else f"p({self.text}|x)"

    def without_rows(self) -> Target:
        """Return the target without its rows, which is enough for predictions."""
        attribute = dataclasses.replace(self.attribute, codes=self.attribute.codes[:0])
        return dataclasses.replace(self, attribute=attribute, positive=self.positive[:0])

    def class_name(self, code: int, labels: Sequence[Hashable]) -> str:
        """Return a description of one class of the auxiliary model."""
        group = f"{self.text}={self.groups[code % len(self.groups)]!r}"
        return f"label {labels[code // len(self.groups)]!r} and {group}" if self.joint else group


def needed_targets(criterion: Criterion, rows: Rows, *, joint: bool = False) -> dict[AttributeKey, Target]:
    """Return, by key, the attributes whose probabilities the criterion needs, including crossed ones.

    ``joint`` requests p(Y, A|x) even if the criterion needs only p(A|x).
    """
    criterion = criterion.unstratified
    rows = rows.crossing(criterion.intersections)
    assert rows.positive is not None
    shown = display_names(rows.attributes)
    system = write_out(criterion, rows.groups)
    labelled = {event.attribute for event in system.events if event.label is not None}
    found = {}
    for name in system.attributes:
        parts = name.attributes if isinstance(name, Intersection) else (str(name),)
        found[name] = Target(rows.attributes[name], parts, joint or name in labelled, rows.positive, shown[name])
    return found


def choose_auxiliaries(auxiliary: Any, estimator: Any, names: Sequence[AttributeKey]) -> dict[AttributeKey, Any]:
    """Return the model of each attribute: the given one, or the estimator if none was given."""
    if isinstance(auxiliary, Mapping):
        given = by_attribute(auxiliary, names, "auxiliary")
        wrong = sorted(given.keys() ^ set(names), key=str)
        if wrong:
            has = "has no model for" if wrong[0] in names else "has a model that is not needed, for"
            raise InputError(f"auxiliary {has} {wrong[0]!r}; the criterion needs {list(names)!r}.")
    else:
        given = dict.fromkeys(names, auxiliary)
        if isinstance(auxiliary, FrozenEstimator) and len(names) > 1:
            raise InputError(f"One frozen auxiliary model cannot serve {list(names)!r}: give a dict by attribute.")
    if isinstance(estimator, FrozenEstimator) and any(given[name] is None for name in names):
        raise InputError(
            "The estimator is frozen, so auxiliary=None cannot clone it: give an auxiliary model,"
            " frozen (with cv=None) or one to be cross-fitted on these rows (with cv=5)."
        )
    return {name: estimator if given[name] is None else given[name] for name in names}


def frozen_classes(model: Any, what: str) -> NDArray[Any]:
    """Return the classes of a model that was trained elsewhere."""
    check_is_fitted(model)
    if not hasattr(model, "classes_"):
        raise InputError(f"The frozen {what} has no classes_, so the columns of predict_proba cannot be identified.")
    if isinstance(model.classes_, list) and any(isinstance(classes, np.ndarray) for classes in model.classes_):
        raise InputError(
            f"The frozen {what} has {len(model.classes_)} outputs with separate classes; one is needed. Freeze"
            " one of them, as in FrozenEstimator(network.head(0)) for the networks of evenhand.paper.models."
        )
    return np.asarray(model.classes_)


@dataclass(frozen=True, eq=False)
class Layout:
    """A model's classes, and how their probabilities are put in the order that a rule expects."""

    joint: bool
    n_groups: int
    classes: NDArray[Any]
    columns: NDArray[np.intp]

    @classmethod
    def of_trained(cls, target: Target) -> Layout:
        """Return the layout of a model that is trained here."""
        codes = np.arange(target.n_classes)
        return cls(target.joint, len(target.groups), codes, codes)

    def arrange(self, probabilities: FloatArray) -> FloatArray:
        """Return p(A|x) of shape (n, G), or p(Y, A|x) of shape (n, 2, G)."""
        shape = (len(probabilities), 2, self.n_groups) if self.joint else (len(probabilities), self.n_groups)
        arranged = np.zeros(shape)
        arranged.reshape(len(probabilities), -1)[:, self.columns] = probabilities
        return arranged


def layout_of(model: Any, target: Target, labels: tuple[Hashable, Hashable]) -> Layout:
    """Return the layout of a model trained elsewhere, from its ``classes_``; see this module's first lines.

    A model of p(Y, A|x) also works for a criterion that needs only p(A|x); the reverse is an error.
    """
    classes = frozen_classes(model, f"auxiliary model of {target.name!r}")
    found = list(classes) if _has_tuples(classes) else np.asarray(classes).tolist()
    groups = list(target.groups)
    pairs = [(label, group) for label in labels for group in groups]
    for joint, names in ((False, groups), (True, pairs), (True, _flat(pairs))):
        if len(found) == len(names) and all(name in names for name in found):
            return _ready(target, joint, classes, [names.index(name) for name in found])
    for joint, size in ((False, len(groups)), (True, len(pairs))):
        if len(found) == size and set(found) == set(range(size)):
            return _ready(target, joint, classes, [int(code) for code in found])
    raise InputError(
        f"The classes_ of the frozen auxiliary model, {found[:8]!r}, are not those of {target.describes}:"
        f" they must be the groups {groups!r}, or the numbers 0 to {len(groups) - 1} in that order, or for"
        f" the pair of label and group the numbers label * {len(groups)} + group, or tuples such as"
        f" {pairs[0]!r}."
    )


def _ready(target: Target, joint: bool, classes: NDArray[Any], columns: list[int]) -> Layout:
    if target.joint and not joint:
        raise InputError(
            f"The criterion compares rates within a label and needs {target.describes}, but the frozen"
            f" auxiliary model estimates only p({target.text}|x): train it on the pair (label, group), or use"
            " demographic parity."
        )
    return Layout(joint, len(target.groups), classes, np.array(columns, dtype=np.intp))


def _has_tuples(classes: Any) -> bool:
    return any(isinstance(value, tuple) for value in classes)


def _flat(pairs: list[tuple[Hashable, Hashable]]) -> list[tuple[Hashable, ...]]:
    """Return (label, a, b) for (label, (a, b)), because the groups of a crossed attribute are tuples."""
    return [(label, *group) if isinstance(group, tuple) else (label, group) for label, group in pairs]


def known_groups(
    targets: Mapping[AttributeKey, Target],
    groups: Groups,
    sensitive_features: SensitiveFeatures | None,
    n_rows: int,
) -> dict[AttributeKey, NDArray[np.intp]]:
    """Return each new row's group in each target, among the groups that were seen in fit."""
    needed = list(dict.fromkeys(part for target in targets.values() for part in target.parts))
    columns = named_columns(sensitive_features)
    if len(columns) == 1 and len(needed) == 1 and (needed == [DEFAULT_ATTRIBUTE] or not is_named(sensitive_features)):
        columns = {needed[0]: next(iter(columns.values()))}
    missing = [name for name in needed if name not in columns]
    if missing:
        raise InputError(
            f"sensitive_features has no attribute {missing[0]!r}, which the decisions need; it has {list(columns)!r}."
        )
    remedy = "drop them, because their decisions need the group"
    found = {name: columns[name] for name in needed}
    attributes = read_sensitive(found, n_rows, groups=groups, remedy=remedy) if needed else {}
    return {name: _codes_among(target, attributes) for name, target in targets.items()}


def _codes_among(target: Target, attributes: Mapping[AttributeKey, Attribute]) -> NDArray[np.intp]:
    if len(target.parts) == 1:
        return attributes[target.name].codes
    crossed = cross_attributes(attributes, Intersection(*target.parts))
    stray = [group for group in crossed.groups if group not in target.groups]
    if stray:
        raise InputError(
            f"The combination {stray[0]!r} of {target.name!r} did not occur in fit: its rate is not known."
        )
    position = np.array([target.groups.index(group) for group in crossed.groups], dtype=np.intp)
    return position[crossed.codes]


def certain(target: Target, codes: NDArray[np.intp], p_y: FloatArray) -> FloatArray:
    """Return the probabilities for a known group: one, and with the label, p(Y|x) in that group."""
    rows = np.arange(len(codes))
    if not target.joint:
        known = np.zeros((len(codes), len(target.groups)))
        known[rows, codes] = 1.0
        return known
    known = np.zeros((len(codes), 2, len(target.groups)))
    known[rows, 0, codes], known[rows, 1, codes] = 1.0 - p_y, p_y
    return known
