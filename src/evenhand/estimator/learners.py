"""Which models a fair classifier trains: one for the labels and one for each attribute, or one for both together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from evenhand.errors import InputError
from evenhand.estimator.auxiliary import Layout, Target, layout_of
from evenhand.estimator.crossfit import LabelMarginal, Learner, Trained, seeded
from evenhand.estimator.sample import Sample
from evenhand.rules.events import AttributeKey

FitParams = Mapping[int, dict[str, Any]]
Layouts = dict[AttributeKey, Layout]
Targets = Mapping[AttributeKey, Target]


def label_and_groups(
    sample: Sample,
    targets: Targets,
    estimator: Any,
    auxiliaries: Mapping[AttributeKey, Any],
    params: FitParams,
    draw: np.random.RandomState | None,
) -> tuple[list[Learner], Layouts]:
    """Return the model of the labels, and one for each attribute; ``params`` has fit arguments by model id."""
    learners = [Learner("p(Y|x)", seeded(estimator, draw), sample.y, sample.classes, params[id(estimator)])]
    layouts: Layouts = {}
    for name, given in auxiliaries.items():
        target = targets[name]
        frozen = isinstance(given, FrozenEstimator)
        layouts[name] = layout_of(given, target, sample.rows.classes) if frozen else Layout.of_trained(target)
        learners.append(_learner(target, seeded(given, draw), layouts[name], params[id(given)]))
    return learners, layouts


def joint_alone(
    targets: Targets, estimator: Any, params: FitParams, draw: np.random.RandomState | None
) -> tuple[list[Learner], Layouts]:
    """Return the single model to train if p(Y|x) is the sum of p(Y, A|x)."""
    if isinstance(estimator, FrozenEstimator):
        raise InputError(
            'auxiliary="joint" trains the estimator on label and group, but this one is frozen: pass an unfrozen model.'
        )
    if len(targets) != 1:
        raise InputError(
            f'auxiliary="joint" supports one attribute, but the criterion needs {list(map(str, targets))!r}: leave'
            " auxiliary=None."
        )
    ((name, target),) = targets.items()
    layout = Layout.of_trained(target)
    return [_learner(target, seeded(estimator, draw), layout, params[id(estimator)])], {name: layout}


def with_marginal(joint: Trained, layouts: Layouts, sample: Sample) -> list[Trained]:
    """Return the model of the labels derived from a model of label and group, and that model."""
    (layout,) = layouts.values()
    marginal = LabelMarginal(
        joint.model, classes=sample.classes, positive_index=sample.positive_index, n_groups=layout.n_groups
    )
    return [Trained(marginal, marginal.of(joint.probabilities)), joint]


def _learner(target: Target, model: Any, layout: Layout, params: dict[str, Any]) -> Learner:
    known = None if target.known.all() else target.known
    return Learner(target.describes, model, target.codes, layout.classes, params, known)
