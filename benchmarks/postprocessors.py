"""Methods that turn probabilities into fair decisions, behind one interface: evenhand's and its peers'."""

from __future__ import annotations

import copy
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from aif360.algorithms.postprocessing import EqOddsPostprocessing, RejectOptionClassification
from aif360.datasets import BinaryLabelDataset
from aif360.metrics import ClassificationMetric
from fairlearn.postprocessing import ThresholdOptimizer
from numpy.typing import NDArray
from oxonfair import FairPredictor, group_metrics
from sklearn.base import BaseEstimator, ClassifierMixin

import evenhand as eh
from benchmarks.splits import Evidence, Rows
from benchmarks.tradeoff import CRITERIA, Decisions
from evenhand.estimator.recalibration import Recalibration

Decide = Callable[[Rows, int], Decisions]
Fit = Callable[[Rows, str, tuple[float, ...]], Mapping[float, Decide | None]]
FREE_THRESHOLD = {"dp": eh.DemographicParity() & eh.SelectionBudget(upper=1.0)}
WORKER = Path(__file__).with_name("error_parity_worker.py")

logging.getLogger("oxonfair").setLevel(logging.ERROR)


@dataclass(frozen=True, eq=False)
class Run:
    """The decisions on the test rows by tolerance (None if there is no rule), and the processor's time."""

    decisions: Mapping[float, Decisions | None]
    fit_seconds: float
    predict_seconds: float


@dataclass(frozen=True, eq=False)
class PostProcessor:
    """A method: how it is fitted, whether it needs the attribute at prediction, whether it is random.

    ``large`` says whether it is fast enough to be run on tens of thousands of cross-fitted rows, too, and
    ``at_most`` on how many splits it is run if it is slow.
    ``criteria`` are those that it knows.
    """

    name: str
    fit: Fit
    needs_group: bool = False
    random: bool = False
    large: bool = True
    at_most: int = sys.maxsize
    criteria: tuple[str, ...] = tuple(CRITERIA)

    def run(self, evidence: Evidence, criterion: str, tolerances: tuple[float, ...], seed: int) -> Run:
        """Fit on the one part of the evidence and decide on the other."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            started = time.process_time()
            deciders = self.fit(evidence.learn, criterion, tolerances)
            fitted = time.process_time()
            found = {
                tolerance: None if decide is None else np.asarray(decide(evidence.test, seed)).astype(int)
                for tolerance, decide in deciders.items()
            }
            ended = time.process_time()
        return Run(found, fitted - started, (ended - fitted) / len(tolerances))


def fit_evenhand(
    learn: Rows, criterion: str | eh.Criterion, tolerances: tuple[float, ...], *, known: bool = False, **options: Any
) -> dict[float, Decide | None]:
    """Learn evenhand's rules; ``known`` gives them the attribute itself instead of its probabilities."""
    found = eh.frontier(
        learn.y, learn.group, learn.p_y, _known(learn) if known else learn.joint, criterion=criterion,
        tolerances=tolerances, **options,
    )  # fmt: skip
    rules = {point.tolerance: point.rule for point in found}

    def decide(rule: eh.Rule, rows: Rows, seed: int) -> Decisions:
        return rule.decide(rows.p_y, _known(rows) if known else rows.joint)

    return {t: partial(decide, rules[t]) if t in rules else None for t in tolerances}


def fit_free_threshold(learn: Rows, criterion: str, tolerances: tuple[float, ...]) -> dict[float, Decide | None]:
    """Learn evenhand's rules with a free threshold: a bound on the selection rate that never binds."""
    return fit_evenhand(learn, FREE_THRESHOLD[criterion], tolerances)


def fit_recalibrated(learn: Rows, criterion: str, tolerances: tuple[float, ...]) -> dict[float, Decide | None]:
    """Learn evenhand's rules from probabilities that are corrected first, as ``recalibrate=True`` does."""
    found = Recalibration.fit(learn.p_y, {"A": learn.joint}, learn.y == 1, {"A": learn.group})

    def corrected(rows: Rows) -> Rows:
        p_y, p_group = found.apply(rows.p_y, {"A": rows.joint})
        return Rows(rows.y, rows.group, p_y, p_group["A"])

    deciders = fit_evenhand(corrected(learn), criterion, tolerances)
    return {
        tolerance: None if decide is None else lambda rows, seed, decide=decide: decide(corrected(rows), seed)
        for tolerance, decide in deciders.items()
    }


def _known(rows: Rows) -> NDArray[np.float64]:
    """Return p(Y, A | x) where A is known: p(Y | x) in the column of the row's own group."""
    joint = np.zeros_like(rows.joint)
    at = np.arange(len(rows.y))
    joint[at, 0, rows.group], joint[at, 1, rows.group] = 1.0 - rows.p_y, rows.p_y
    return joint


class _Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose probabilities are its only feature."""

    def fit(self, X: Any, y: Any) -> _Given:
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        return np.column_stack([1.0 - X[:, 0], X[:, 0]])


def fit_threshold_optimizer(learn: Rows, criterion: str, tolerances: tuple[float, ...]) -> dict[float, Decide | None]:
    """Learn fairlearn's group thresholds; under equalized odds it has no tolerance, so one is used for all."""
    deciders: dict[float, Decide | None] = {}
    for tolerance in tolerances:
        if criterion == "eo" and deciders:
            deciders[tolerance] = next(iter(deciders.values()))
            continue
        fair = ThresholdOptimizer(
            estimator=_Given().fit(None, None),
            constraints=CRITERIA[criterion].replace(" ", "_"),
            prefit=True,
            predict_method="predict_proba",
            tol=tolerance if criterion == "dp" else None,
        ).fit(learn.p_y[:, None], learn.y, sensitive_features=learn.group)
        deciders[tolerance] = lambda rows, seed, fair=fair: fair.predict(
            rows.p_y[:, None], sensitive_features=rows.group, random_state=seed
        )
    return deciders


def fit_oxonfair(
    learn: Rows, criterion: str, tolerances: tuple[float, ...], *, use_fast: bool
) -> dict[float, Decide | None]:
    """Learn OxonFair's offsets for inferred groups: one frontier, from which each tolerance selects."""
    metric = {"dp": group_metrics.demographic_parity, "eo": group_metrics.equalized_odds_max}[criterion]
    fair = FairPredictor(
        lambda table: table[:, :2],
        {"data": _table(learn), "target": learn.y, "groups": learn.group},
        inferred_groups=lambda table: table[:, 2:],
        use_fast=use_fast,
    )
    deciders: dict[float, Decide | None] = {}
    for tolerance in tolerances:
        fair.fit(group_metrics.accuracy, metric, tolerance, recompute=not deciders)
        chosen = copy.copy(fair)
        deciders[tolerance] = lambda rows, seed, chosen=chosen: chosen.predict({"data": _table(rows), "target": rows.y})
    return deciders


def fit_reject_option(learn: Rows, criterion: str, tolerances: tuple[float, ...]) -> dict[float, Decide | None]:
    """Learn AIF360's reject option: a threshold, and a band around it in which the group decides."""
    fitted = {
        tolerance: RejectOptionClassification(metric_ub=tolerance, metric_lb=-tolerance, **_two_groups(learn)).fit(
            _labelled(learn, learn.y), _labelled(learn, learn.p_y > 0.5)
        )
        for tolerance in tolerances
    }
    _forget_metrics()
    return {tolerance: partial(_decide_aif360, fair) for tolerance, fair in fitted.items()}


def fit_flips(learn: Rows, criterion: str, tolerances: tuple[float, ...]) -> dict[float, Decide | None]:
    """Learn AIF360's equalized odds, which flips decisions at random; it has no tolerance, so one is used for all."""
    fair = EqOddsPostprocessing(seed=0, **_two_groups(learn))
    fair.fit(_labelled(learn, learn.y), _labelled(learn, learn.p_y > 0.5))
    _forget_metrics()
    return dict.fromkeys(tolerances, partial(_decide_aif360, fair))


def _decide_aif360(fair: Any, rows: Rows, seed: int) -> Decisions:
    return np.asarray(fair.predict(_labelled(rows, rows.p_y > 0.5)).labels.ravel())


def _two_groups(learn: Rows) -> dict[str, list[dict[str, int]]]:
    """Return AIF360's names of the groups: the one that is selected less is unprivileged."""
    less = int(np.argmin([np.mean(learn.p_y[learn.group == group] > 0.5) for group in (0, 1)]))
    return {"unprivileged_groups": [{"group": less}], "privileged_groups": [{"group": 1 - less}]}


def _forget_metrics() -> None:
    """Clear AIF360's cache of every metric that it computed, with the data set: it grows by gigabytes."""
    for base in ClassificationMetric.__mro__:
        for method in vars(base).values():
            for cell in getattr(method, "__closure__", None) or ():
                if isinstance(cell.cell_contents, dict):
                    cell.cell_contents.clear()


def _labelled(rows: Rows, labels: NDArray[Any]) -> BinaryLabelDataset:
    """Return AIF360's data set: labels, the group, and p(Y=1|x) as the score."""
    frame = pd.DataFrame({"group": rows.group.astype(float), "label": np.asarray(labels, dtype=float)})
    made = BinaryLabelDataset(df=frame, label_names=["label"], protected_attribute_names=["group"])
    made.scores = rows.p_y[:, None]
    return made


def _table(rows: Rows) -> NDArray[np.float64]:
    return np.column_stack([1.0 - rows.p_y, rows.p_y, rows.p_group])


class ErrorParity(PostProcessor):
    """error-parity in a separate Python, which ``EVENHAND_ERROR_PARITY`` names: it needs numpy < 2.

    The process is started once, and reads and writes arrays in files.
    """

    def __init__(self) -> None:
        super().__init__("error-parity", _not_here, needs_group=True, random=True)
        python = os.environ["EVENHAND_ERROR_PARITY"]
        process = subprocess.Popen([python, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        object.__setattr__(self, "_process", process)

    def run(self, evidence: Evidence, criterion: str, tolerances: tuple[float, ...], seed: int) -> Run:
        """Send the arrays to the other process, and read its decisions."""
        answer, decided = self._ask(evidence, criterion, tolerances, seed)
        return Run(dict(zip(tolerances, decided, strict=True)), answer["fit_seconds"], answer["predict_seconds"])

    def optima(self, evidence: Evidence, criterion: str, tolerances: tuple[float, ...]) -> list[float]:
        """Return the expected accuracy of its solutions on the rows that they are learnt from."""
        found: list[float] = self._ask(evidence, criterion, tolerances, 0)[0]["accuracy"]
        return found

    def _ask(
        self, evidence: Evidence, criterion: str, tolerances: tuple[float, ...], seed: int
    ) -> tuple[dict[str, Any], NDArray[np.int64]]:
        learn, test = evidence.learn, evidence.test
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "job.npz"
            np.savez(
                path, y=learn.y, group=learn.group, p_y=learn.p_y, test_group=test.group, test_p_y=test.p_y,
                tolerances=tolerances, criterion=CRITERIA[criterion].replace(" ", "_"), seed=seed,
            )  # fmt: skip
            self._process.stdin.write(f"{path}\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
            return answer, np.load(path)["decisions"]


def _not_here(learn: Rows, criterion: str, tolerances: tuple[float, ...]) -> dict[float, Decide | None]:
    raise NotImplementedError("error-parity is fitted in its own process.")


CERTIFIED = PostProcessor("evenhand, certified", fit_evenhand)
POST_PROCESSORS = (
    CERTIFIED,
    PostProcessor("evenhand, certified, free threshold", fit_free_threshold, criteria=tuple(FREE_THRESHOLD)),
    PostProcessor("evenhand, certified, recalibrated", fit_recalibrated),
    PostProcessor("evenhand, 360 directions (Algorithm 3)", partial(fit_evenhand, search="directions"), large=False),
    PostProcessor(
        "evenhand, 3,000 lines (Algorithm 2)",
        partial(fit_evenhand, search=eh.Lines(m=3000), random_state=0),
        large=False,
        criteria=("eo",),
    ),
    PostProcessor("plug-in LP (LinearPost's)", partial(fit_evenhand, search="dual", evidence="model")),
    PostProcessor("OxonFair, inferred groups", partial(fit_oxonfair, use_fast=True)),
    PostProcessor("OxonFair, soft inferred groups", partial(fit_oxonfair, use_fast=False), large=False),
    PostProcessor(
        "evenhand, attribute known",
        partial(fit_evenhand, known=True, search=eh.Certified(max_seconds=3.0)),
        needs_group=True,
        large=False,
    ),
    PostProcessor(
        "AIF360 reject option", fit_reject_option, needs_group=True, large=False, at_most=5, criteria=("dp",)
    ),
    PostProcessor("AIF360 equalized odds", fit_flips, needs_group=True, random=True, criteria=("eo",)),
    PostProcessor("fairlearn ThresholdOptimizer", fit_threshold_optimizer, needs_group=True, random=True),
)
