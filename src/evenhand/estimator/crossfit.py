"""Cross-fitting: every row's probabilities come from models that were not trained on it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import has_fit_parameter

from evenhand.arguments import shown
from evenhand.errors import EvenhandError, EvenhandWarning, InputError
from evenhand.estimator.auxiliary import Layout, Target, certain, frozen_classes
from evenhand.estimator.recalibration import Recalibration
from evenhand.estimator.sample import RowNumbers, Sample, take_rows
from evenhand.inputs import FloatArray, as_float_array
from evenhand.progress import progress
from evenhand.rules.events import AttributeKey
from evenhand.statistics.sampling import strata, stratified_share

FEWEST_HELD_OUT = 2
ROUNDS = 3
Ensemble = bool | Literal["matched"]
Final = Literal["refit", "ensemble", "holdout", "frozen"]


@dataclass(frozen=True, eq=False)
class Plan:
    """Which rows train and which are held out, and which models predict in the end.

    ``kept`` contains the splits whose models an ensemble averages.
    """

    rows: RowNumbers
    splits: tuple[tuple[RowNumbers, RowNumbers], ...]
    final: Final
    kept: tuple[int, ...] = ()

    @property
    def held_out(self) -> RowNumbers:
        """The rows that get probabilities, in order."""
        if self.final == "frozen":
            return self.rows
        return np.unique(np.concatenate([test for _, test in self.splits]))


def make_plan(
    cv: Any,
    sample: Sample,
    targets: Mapping[AttributeKey, Target],
    rows: RowNumbers,
    *,
    ensemble: Ensemble,
    rng: np.random.RandomState,
) -> Plan:
    """Split some rows, so that every part contains every needed cell of label and group.

    A matched ensemble uses one model of each round of folds. A row's out-of-fold probability and that of a new row are
    then means of equally many models, trained in the same way on equally many rows, so their distributions agree.
    """
    if cv is None:
        return Plan(rows, (), "frozen")
    cells = cells_of(sample, targets)
    splits: list[tuple[RowNumbers, RowNumbers]]
    if isinstance(cv, float):
        held = stratified_share([column[rows] for column in cells], cv, rng)
        splits = [(rows[~held], rows[held])]
        _check_holdout(cv, sample, targets, splits[0])
        return Plan(rows, tuple(splits), "holdout")
    if isinstance(cv, int | np.integer):
        _check_counts(sample, targets, rows, int(cv), f"cv={cv} needs {cv}, one for each fold")
        splits = []
        for _ in range(ROUNDS if ensemble == "matched" else 1):
            fold = stratified_folds([column[rows] for column in cells], int(cv), rng)
            splits += [(rows[fold != number], rows[fold == number]) for number in range(int(cv))]
    else:
        splits = _given_splits(cv, sample.X, strata(cells), rows)
    for train, test in splits:
        _check_counts(sample, targets, train, 1, "a training part of cv has none")
        if np.intersect1d(train, test).size:
            raise InputError("A split of cv has the same rows in its training and test parts: they must be disjoint.")
    if not ensemble:
        return Plan(rows, tuple(splits), "refit")
    kept = _first_of_rounds(splits, rows) if ensemble == "matched" else range(len(splits))
    return Plan(rows, tuple(splits), "ensemble", tuple(kept))


def _first_of_rounds(splits: Sequence[tuple[RowNumbers, RowNumbers]], rows: RowNumbers) -> list[int]:
    """Return the first split of each round; in a round every row is held out once."""
    kept, times = [], np.zeros(len(rows), dtype=np.intp)
    for number, (_, test) in enumerate(splits):
        if (times == times[0]).all():
            kept.append(number)
        times[np.searchsorted(rows, test)] += 1
        if times.max() > len(kept):
            break
    if (times != len(kept)).any():
        raise InputError(
            "A matched ensemble needs rounds of folds in which each row is held out once: use cv=5, or"
            " RepeatedStratifiedKFold."
        )
    return kept


def stratified_folds(cells: Sequence[NDArray[np.intp]], n_folds: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """Return each row's fold, such that every cell of every column is spread evenly over the folds.

    The rarest cell is assigned first, each of its rows to a fold that has the fewest rows of the cell. With one column,
    the folds' counts differ by at most one in each cell.
    """
    fold = np.full(len(cells[0]), -1, dtype=np.intp)
    every = [(int(count), j, value) for j, column in enumerate(cells) for value, count in _counts(column)]
    for _, j, value in sorted(every):
        inside = cells[j] == value
        waiting = rng.permutation(np.flatnonzero(inside & (fold < 0)))
        has = np.bincount(fold[inside & (fold >= 0)], minlength=n_folds)
        total = np.bincount(fold[fold >= 0], minlength=n_folds)
        fold[waiting] = _fill(has, total, len(waiting))
    return fold


def _fill(has: NDArray[np.intp], total: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """Return the folds of n more rows: for each, the fold with the fewest rows of the cell, then of all rows."""
    depth = int(np.ptp(has)) + -(-n // len(has)) + 1
    level = has[:, None] + np.arange(depth)
    number = np.broadcast_to(np.arange(len(has))[:, None], level.shape)
    order = np.lexsort((number.ravel(), (total - has)[number].ravel(), level.ravel()))
    return number.ravel()[order[:n]]


def cells_of(sample: Sample, targets: Mapping[AttributeKey, Target]) -> list[NDArray[np.intp]]:
    """Return each row's cell of label and group for each needed attribute, or its label if there is none."""
    return [target.cells for target in targets.values()] or [sample.positive.astype(np.intp)]


def _counts(column: NDArray[np.intp]) -> Iterable[tuple[int, int]]:
    values, counts = np.unique(column, return_counts=True)
    return zip(values.tolist(), counts.tolist(), strict=True)


def _given_splits(cv: Any, X: Any, stratum: NDArray[np.intp], rows: RowNumbers) -> list[tuple[RowNumbers, RowNumbers]]:
    counted = np.zeros(len(stratum), dtype=bool)
    counted[rows] = True
    every, found = np.arange(len(stratum)), []
    try:
        splits = [(every[train], every[test]) for train, test in check_cv(cv).split(X, stratum)]
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"cv must be a number of folds, a share, a splitter or pairs of row numbers; {shown(cv)} gives:"
            f" {' '.join(str(error).split())[:200]}."
        ) from error
    for train, test in splits:
        if train.ndim != 1 or test.ndim != 1:
            raise InputError(f"cv must give row numbers, one for each row; {shown(cv)} gives arrays of them.")
        found.append((train[counted[train]], test[counted[test]]))
    if not found or not sum(len(test) for _, test in found):
        raise InputError("cv gives no split with a row to test on.")
    return found


def _check_counts(
    sample: Sample, targets: Mapping[AttributeKey, Target], rows: RowNumbers, fewest: int, why: str
) -> None:
    small = [
        f"{target.class_name(code, sample.rows.classes)} has {count}"
        for target in targets.values()
        for code, count in enumerate(np.bincount(target.codes[rows] + 1, minlength=target.n_classes + 1)[1:].tolist())
        if count < fewest
    ]
    for value, label in enumerate(sample.rows.classes):
        count = int((sample.positive[rows] == bool(value)).sum())
        if count < fewest:
            small.append(f"the class {label!r} has {count}")
    if small:
        raise InputError(
            f"Too few rows: {'; '.join(small)}; and {why}. Merge small groups, add rows, or use fewer folds."
        )


def _check_holdout(
    cv: float, sample: Sample, targets: Mapping[AttributeKey, Target], split: tuple[RowNumbers, RowNumbers]
) -> None:
    for part, fewest, does in zip(split, (1, FEWEST_HELD_OUT), ("trains models", "is held out"), strict=True):
        why = f"the part that {does} with cv={cv:g} needs {fewest}"
        _check_counts(sample, targets, part, fewest, why)


@dataclass(frozen=True, eq=False)
class Learner:
    """A model to train, or a frozen one to use: its classes in order and each row's class.

    Rows that are not ``known`` have no class and are not used for training.
    """

    name: str
    model: Any
    target: NDArray[Any]
    classes: NDArray[Any]
    fit_params: Mapping[str, FloatArray] = field(default_factory=dict)
    known: NDArray[np.bool_] | None = None

    @property
    def frozen(self) -> bool:
        """Whether the model was trained elsewhere."""
        return isinstance(self.model, FrozenEstimator)


def check_frozen(learners: Sequence[Learner], *, cv: Any, ensemble: Ensemble) -> None:
    """Check that the frozen and trainable models are compatible with ``cv``."""
    label, frozen = learners[0], [learner.frozen for learner in learners]
    if label.frozen:
        own, wanted = frozen_classes(label.model, "estimator").tolist(), label.classes.tolist()
        if len(own) != 2 or any(value not in own for value in wanted):
            raise InputError(f"The frozen estimator's classes_ are {own!r}, but y has {wanted!r}.")
    if cv is None and not all(frozen):
        untrained = learners[frozen.index(False)].name
        raise InputError(
            f"cv=None needs models that are already trained, but that of {untrained} is not: wrap it in"
            " sklearn.frozen.FrozenEstimator, or use cv=5 to cross-fit it on these rows."
        )
    if cv is not None and all(frozen):
        raise InputError(
            "Every model is frozen, so none can be cross-fitted. Set cv=None; fit then uses all rows for the rule."
        )
    if ensemble == "matched" and (cv is None or isinstance(cv, float)):
        raise InputError(f"ensemble={ensemble!r} averages the models of folds, but cv={cv!r} has none: use cv=5.")


@dataclass(frozen=True, eq=False)
class Models:
    """The fitted models, which give new rows their probabilities."""

    estimator: Any
    classes: NDArray[Any]
    positive_index: int
    auxiliaries: dict[AttributeKey, Any]
    layouts: dict[AttributeKey, Layout]
    targets: dict[AttributeKey, Target]
    recalibration: Recalibration | None = None

    def probabilities(
        self, X: Any, codes: Mapping[AttributeKey, NDArray[np.intp]]
    ) -> tuple[FloatArray, dict[AttributeKey, FloatArray]]:
        """Return p_y and p_group; if codes of known groups are given, p_group is computed from them."""
        if isinstance(self.estimator, LabelMarginal):
            ((name, layout),) = self.layouts.items()
            joint = layout.arrange(class_probabilities(self.auxiliaries[name], X, layout.classes))
            p_y, p_group = joint[:, 1].sum(axis=1), {name: joint}
            return (p_y, p_group) if self.recalibration is None else self.recalibration.apply(p_y, p_group)
        p_y = class_probabilities(self.estimator, X, self.classes)[:, self.positive_index]
        if codes:
            return p_y, {name: certain(target, codes[name], p_y) for name, target in self.targets.items()}
        p_group = {
            name: layout.arrange(class_probabilities(self.auxiliaries[name], X, layout.classes))
            for name, layout in self.layouts.items()
        }
        return (p_y, p_group) if self.recalibration is None else self.recalibration.apply(p_y, p_group)


@dataclass(frozen=True, eq=False)
class Trained:
    """The model for predictions, and the probabilities of the held-out rows."""

    model: Any
    probabilities: FloatArray


class _MadeByFit(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier around models that ``FairClassifier.fit`` trained; it is fitted on construction."""

    classes: NDArray[Any]

    @property
    def _example(self) -> Any:
        """A model that has seen the features."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name in ("n_features_in_", "feature_names_in_"):
            return getattr(self._example, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes."""
        return self.classes

    def fit(self, X: Any, y: Any = None) -> Self:
        """Raise, because its models are trained by cross-fitting."""
        raise InputError(
            f"A {type(self).__name__} is created by FairClassifier.fit, which trains its models: call that instead."
        )

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities, of shape (n, classes)."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """Return each row's most probable class."""
        found: NDArray[Any] = self.classes[self.predict_proba(X).argmax(axis=1)]
        return found

    def __sklearn_is_fitted__(self) -> bool:
        return True


class FoldEnsemble(_MadeByFit):
    """The models of all folds, whose probabilities are averaged.

    Parameters
    ----------
    estimators : sequence of fitted classifiers
        The models.
    classes : array of shape (n_classes,)
        The classes, in the order of the probability columns.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    """

    def __init__(self, estimators: Sequence[Any], *, classes: NDArray[Any]) -> None:
        self.estimators = estimators
        self.classes = classes

    @property
    def _example(self) -> Any:
        return self.estimators[0]

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the mean of the models' probabilities, of shape (n, classes)."""
        every = [class_probabilities(model, X, self.classes) for model in self.estimators]
        mean: FloatArray = np.mean(every, axis=0)
        return mean


class LabelMarginal(_MadeByFit):
    """p(Y|x) as the sum of a model's p(Y, A|x) over the groups.

    Parameters
    ----------
    model : fitted classifier
        A model whose classes are the numbers ``label * G + group``, with label 1 for the positive label.
    classes : array of shape (2,)
        The labels.
    positive_index : int
        The index of the positive label among them.
    n_groups : int
        The number of groups, G.
    """

    def __init__(self, model: Any, *, classes: NDArray[Any], positive_index: int, n_groups: int) -> None:
        self.model = model
        self.classes = classes
        self.positive_index = positive_index
        self.n_groups = n_groups

    @property
    def _example(self) -> Any:
        return self.model

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the labels' probabilities, of shape (n, 2)."""
        return self.of(class_probabilities(self.model, X, np.arange(2 * self.n_groups)))

    def of(self, cells: FloatArray) -> FloatArray:
        """Return the labels' probabilities from those of the pairs of label and group."""
        by_label: FloatArray = cells.reshape(len(cells), 2, self.n_groups).sum(axis=2)
        return by_label if self.positive_index == 1 else np.ascontiguousarray(by_label[:, ::-1])


def class_probabilities(model: Any, X: Any, classes: NDArray[Any]) -> FloatArray:
    """Return predict_proba with its columns in the order of ``classes``, matched by ``classes_``."""
    what = f"{type(model).__name__}.predict_proba"
    if not hasattr(model, "classes_"):
        raise InputError(f"{type(model).__name__} has no classes_, so the columns of {what} cannot be identified.")
    p = as_float_array(model.predict_proba(X), what)
    own, wanted = np.asarray(model.classes_).tolist(), classes.tolist()
    if p.ndim != 2 or p.shape[1] != len(own):
        raise InputError(
            f"{what} gave an array of shape {p.shape}; expected one column for each of its {len(own)} classes."
        )
    if own == wanted:
        return p
    stray = [value for value in own if value not in wanted]
    if stray:
        raise InputError(f"{type(model).__name__} has the class {stray[0]!r}; the classes here are {wanted!r}.")
    ordered = np.zeros((len(p), len(wanted)))
    ordered[:, [wanted.index(value) for value in own]] = p
    return ordered


def cross_fit(X: Any, learners: Sequence[Learner], plan: Plan, *, n_jobs: int | None, verbose: int) -> list[Trained]:
    """Train every learner on every split in parallel, and on all rows if the plan says so."""
    tasks = [task for learner in learners for task in _tasks(learner, plan)]
    calls = (delayed(_train)(X, task) for task in tasks)
    results: dict[int, list[Any]] = {id(learner): [] for learner in learners}
    with progress(len(tasks), show=verbose > 0) as done:
        for task, result in zip(tasks, Parallel(n_jobs=n_jobs, return_as="generator")(calls), strict=True):
            results[id(task.learner)].append((task, *result))
            done(task.name)
    return [_collect(X, learner, results[id(learner)], plan) for learner in learners]


@dataclass(frozen=True, eq=False)
class _Task:
    name: str
    learner: Learner
    train: RowNumbers | None
    test: RowNumbers | None
    keep: bool


def _tasks(learner: Learner, plan: Plan) -> list[_Task]:
    if learner.frozen:
        return []
    tasks = []
    if plan.final == "refit":
        every = len(plan.rows) == len(learner.target)
        tasks.append(_Task(f"{learner.name} on all rows", learner, None if every else plan.rows, None, True))
    for number, (train, test) in enumerate(plan.splits, start=1):
        name = learner.name if plan.final == "holdout" else f"{learner.name} on fold {number} of {len(plan.splits)}"
        keep = plan.final == "holdout" or number - 1 in plan.kept
        tasks.append(_Task(name, learner, train, test, keep))
    return tasks


def _train(X: Any, task: _Task) -> tuple[Any, FloatArray | None]:
    learner, train = task.learner, task.train
    if learner.known is not None:
        train = np.flatnonzero(learner.known) if train is None else train[learner.known[train]]
    rows = slice(None) if train is None else train
    params = {name: value[rows] for name, value in learner.fit_params.items()}
    features, target = take_rows(X, train), learner.target[rows]
    try:
        model = clone(learner.model).fit(features, target, **params)
    except (EvenhandError, MemoryError):
        raise
    except Exception as error:
        if len(learner.classes) <= 2:
            raise
        raise InputError(
            f"Training {type(learner.model).__name__} for {learner.name}, which has {len(learner.classes)} classes,"
            f" failed ({type(error).__name__}: {' '.join(str(error).split())[:200]}). If its number of outputs is"
            f" fixed, as in a network, pass a model with {len(learner.classes)} outputs as auxiliary=...;"
            " the default is a copy of the estimator."
        ) from error
    if task.test is None:
        return model, None
    return model if task.keep else None, class_probabilities(model, take_rows(X, task.test), learner.classes)


def _collect(X: Any, learner: Learner, results: list[tuple[_Task, Any, FloatArray | None]], plan: Plan) -> Trained:
    held = plan.held_out
    if learner.frozen:
        rows = None if len(held) == len(learner.target) else held
        return Trained(learner.model, class_probabilities(learner.model, take_rows(X, rows), learner.classes))
    total = np.zeros((len(held), len(learner.classes)))
    times = np.zeros(len(held))
    for task, _, probabilities in results:
        if task.test is not None and probabilities is not None:
            at = np.searchsorted(held, task.test)
            total[at] += probabilities
            times[at] += 1.0
    models = [model for task, model, _ in results if task.keep]
    final = FoldEnsemble(models, classes=learner.classes) if plan.final == "ensemble" else models[0]
    return Trained(final, total / times[:, None])


def seeded(model: Any, rng: np.random.RandomState | None) -> Any:
    """Return an unfitted copy of a model. Its unset seeds are drawn from ``rng``."""
    model = clone(model)
    if rng is not None and not isinstance(model, FrozenEstimator):
        params = model.get_params(deep=True)
        names = [name for name in sorted(params) if name.rpartition("__")[2] == "random_state" and params[name] is None]
        model.set_params(**{name: int(rng.randint(2**31 - 1)) for name in names})
    return model


def weight_params(model: Any, weight: FloatArray | None) -> dict[str, FloatArray]:
    """Return the arguments that pass weights to a model's fit if metadata routing is off."""
    if weight is None or isinstance(model, FrozenEstimator):
        return {}
    if isinstance(model, Pipeline) and has_fit_parameter(model.steps[-1][1], "sample_weight"):
        return {f"{model.steps[-1][0]}__sample_weight": weight}
    if has_fit_parameter(model, "sample_weight"):
        return {"sample_weight": weight}
    warnings.warn(
        f"{type(model).__name__}.fit does not accept sample_weight: the model is trained without weights, and only"
        " the rule uses them.",
        EvenhandWarning,
        stacklevel=2,
    )
    return {}
