"""Decisions with a guarantee: evenhand's ``confidence`` compared with a Seldonian algorithm.

``python -m benchmarks seldonian``. Both get the same n rows of the synthetic distribution, whose population
gaps are known, the same tolerance and the same confidence of 0.95. fair-seldonian's QSA trains a logistic
regression under the constraint on 40% of the rows and tests it on the others; what it bounds are the rates
of a decision that is *drawn* with the model's probability, so that decision is measured, and next to it the
usual one, probability above 1/2, about which it promises nothing. evenhand's classifier has a logistic
regression, too. Demographic parity and equal opportunity are the criteria that both can state (its
equalized odds bounds the sum of the two gaps, evenhand's the larger). With few rows its bound on a ratio of
rates is infinite for every model and its optimiser does not end: after 4 seconds of processor time a run
counts as one without a solution.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial

import fair_seldonian
import numpy as np
import torch
from fair_seldonian.algorithms import QSA
from fair_seldonian.config import SeldonianConfig
from fair_seldonian.constraints.inequalities import Inequality
from fair_seldonian.models.logistic_regression import predict
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import evenhand as eh
from benchmarks.tradeoff import machine, table
from evenhand.datasets import ZafarDataset

CONFIDENCE = 0.95
TOLERANCE = 0.10
PATIENCE = 4.0
POPULATION_ROWS = 200_000
# criterion: sizes of samples, and how many samples of each size
PLAN = {
    "demographic_parity": ((500, 2_000, 8_000, 32_000), 100),
    "equal_opportunity": ((2_000, 8_000, 32_000), 40),
}
# Probabilities of a positive decision for each row of the population, by the name of the method.
Decided = Mapping[str, NDArray[np.float64]]


@cache
def population() -> ZafarDataset:
    """Return the points that represent the population; each is weighted by its true p(Y, A | x)."""
    return eh.datasets.make_zafar(POPULATION_ROWS, random_state=12345)


def population_truth(criterion: str, decided: NDArray[np.float64]) -> tuple[float, float]:
    """Return the population's accuracy and gap of decisions that are 1 with these probabilities."""
    truth = population()
    accuracy = float(np.mean(decided * truth.p_y + (1.0 - decided) * (1.0 - truth.p_y)))
    weight = truth.p_group if criterion == "demographic_parity" else truth.p_joint[:, 1]
    rates = decided @ weight / weight.sum(axis=0)
    return accuracy, float(abs(rates[0] - rates[1]))


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after this much processor time (not on Windows)."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def fit_evenhand(data: ZafarDataset, criterion: str, seed: int, *, budget: float | None = None) -> Decided | None:
    """Return the population's decisions by evenhand, or None if it raises."""
    wanted: eh.Criterion = {"demographic_parity": eh.DemographicParity(), "equal_opportunity": eh.EqualOpportunity()}[
        criterion
    ]
    if budget is not None:
        wanted = wanted & eh.SelectionBudget(upper=budget)
    fair = eh.FairClassifier(
        LogisticRegression(), criterion=wanted, tolerance=TOLERANCE, confidence=CONFIDENCE, random_state=seed
    )
    try:
        fair.fit(data.X, data.y, sensitive_features=data.group)
    except eh.EvenhandError:
        return None
    return {"": fair.predict(population().X).astype(np.float64)}


def fit_seldonian(data: ZafarDataset, criterion: str, seed: int, *, inequality: Inequality) -> Decided | None:
    """Return the population's decisions by the Seldonian algorithm, or None if its safety test fails."""
    constraint = getattr(fair_seldonian, criterion)(TOLERANCE)
    config = SeldonianConfig(delta=1.0 - CONFIDENCE, inequality=inequality, constraint=constraint)
    try:
        with at_most(PATIENCE):
            theta, intercept, passed = QSA(data.X, data.y, data.group.astype(int), "opt", None, None, config)
    except TimeoutError:
        return None
    if not passed:
        return None
    probability = predict(theta, intercept, population().X).detach().numpy()
    return {", drawn": probability, ", above 1/2": (probability > 0.5).astype(np.float64)}


METHODS: dict[str, Callable[[ZafarDataset, str, int], Decided | None]] = {
    "evenhand": fit_evenhand,
    "evenhand, at most 10% selected": partial(fit_evenhand, budget=0.1),
    "fair-seldonian (Hoeffding)": partial(fit_seldonian, inequality=Inequality.HOEFFDING_INEQUALITY),
    "fair-seldonian (t-test)": partial(fit_seldonian, inequality=Inequality.T_TEST),
}


@dataclass
class Tally:
    """The outcomes for one kind of decisions: the population's accuracy and gap of each solution."""

    accuracy: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)


def tally(criterion: str, n: int, samples: int) -> dict[str, Tally]:
    """Fit every method to the same samples."""
    found = {name: Tally() for name in METHODS if name.startswith("evenhand")}
    found |= {f"{name}, {how}": Tally() for name in METHODS if name not in found for how in ("drawn", "above 1/2")}
    for seed in range(samples):
        data = eh.datasets.make_zafar(n, random_state=seed, iid=True)
        for name, fit in METHODS.items():
            for kind, decided in (fit(data, criterion, seed) or {}).items():
                accuracy, gap = population_truth(criterion, decided)
                found[name + kind].accuracy.append(accuracy)
                found[name + kind].gap.append(gap)
    return found


def report(criterion: str) -> None:
    """Print the table of one criterion."""
    sizes, samples = PLAN[criterion]
    rows = []
    for n in sizes:
        for name, kept in tally(criterion, n, samples).items():
            over = sum(gap > TOLERANCE for gap in kept.gap)
            means = [f"{100 * np.mean(values):.2f}" if values else "-" for values in (kept.accuracy, kept.gap)]
            shares = [f"{100 * count / samples:.0f}%" for count in (len(kept.gap), over)]
            rows.append([f"{n:,}", name, *shares, *means])
    title = criterion.replace("_", " ")
    print(f"\n### {title}, tolerance {TOLERANCE:g}, confidence {CONFIDENCE:g}, {samples} samples\n")
    header = ["n", "method", "solutions", "population gap above tolerance", "accuracy (%)"]
    print(table([*header, "mean population gap (hundredths)"], rows), flush=True)


def main() -> None:
    """Print every table."""
    torch.set_num_threads(1)
    print(machine("fair-seldonian", "torch", "scikit-learn"))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for criterion in PLAN:
            report(criterion)


if __name__ == "__main__":
    main()
