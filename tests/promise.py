"""How often is the promise of a confidence kept? Many fits on a distribution whose rates are known."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy import stats

import evenhand as eh
from evenhand.paper.datasets import zafar
from evenhand.paper.datasets.zafar import CELL_GROUP, CELL_LABEL, CELL_MEAN, CELL_SIZE, COVARIANCE, VARIANCE

TOLERANCES = {"demographic_parity": 0.1, "equalized_odds": 0.12}
SIZES = {"demographic_parity": (1000, 2000, 4000), "equalized_odds": (1500, 3000, 6000)}
# The sizes of the cells (Y, A) = (1, 0), (1, 1), (0, 0), (0, 1): the paper's, whose best classifier is far from
# demographic parity but has nearly equal odds, and others with which its odds are far from equal.
SHARES = {"demographic_parity": np.array([5, 1, 1, 5]) / 12, "equalized_odds": np.array([1, 2, 2, 1]) / 6}
ROOT = np.linalg.cholesky([[VARIANCE, COVARIANCE], [COVARIANCE, VARIANCE]])


@dataclass(frozen=True)
class Study:
    """What many fits gave: shares of all fits, and means over those that gave a rule."""

    fits: int
    violated: float
    refused: float
    accuracy: float
    gap: float


def true_joint(points, criterion):
    """Return the true p(Y, A|x)."""
    joint = zafar.true_joint(points)
    for y, a, factor in zip(CELL_LABEL, CELL_GROUP, SHARES[criterion] / CELL_SIZE, strict=True):
        joint[:, y, a] *= factor
    return joint / joint.sum(axis=(1, 2), keepdims=True)


def sample(criterion, n, seed):
    """Draw labels, groups and the true p(Y, A|x) of independent rows."""
    rng = np.random.default_rng(seed)
    cell = rng.choice(4, size=n, p=SHARES[criterion])
    points = rng.standard_normal((n, 2)) @ ROOT.T + CELL_MEAN[cell]
    return CELL_LABEL[cell], CELL_GROUP[cell], true_joint(points, criterion)


@functools.cache
def population(criterion):
    """Return the true p(Y, A|x) of points spread evenly over each cell of label and group."""
    normal = stats.norm.ppf(stats.qmc.Sobol(2, seed=0).random_base2(14))
    points = normal @ ROOT.T + CELL_MEAN[:, None]
    return true_joint(points.reshape(-1, 2), criterion)


def truth(rule, criterion):
    """Return the accuracy and the largest gap that a rule has in the population."""
    joint, share = population(criterion), SHARES[criterion]
    decided = rule.decision_function(joint[:, 1].sum(axis=1), joint) > 0.0
    rates = decided.reshape(4, -1).mean(axis=1)
    accuracy = float(share @ np.where(CELL_LABEL == 1, rates, 1.0 - rates))
    if criterion == "equalized_odds":
        return accuracy, float(max(abs(rates[0] - rates[1]), abs(rates[2] - rates[3])))
    within = [np.flatnonzero(group == CELL_GROUP) for group in (0, 1)]
    first, second = (np.average(rates[cells], weights=share[cells]) for cells in within)
    return accuracy, float(abs(first - second))


def study(criterion, n, fits, confidence, first_seed=0):
    """Fit so many independent samples of n rows, and look at every rule in the population."""
    found = []
    for seed in range(first_seed, first_seed + fits):
        y, group, joint = sample(criterion, n, seed)
        try:
            rule = eh.learn_rule(
                y, group, joint[:, 1].sum(axis=1), joint, criterion=criterion, tolerance=TOLERANCES[criterion],
                confidence=confidence, random_state=seed,
            )  # fmt: skip
        except eh.InfeasibleError:
            continue
        found.append(truth(rule, criterion))
    accuracy, gap = np.array(found).reshape(-1, 2).T
    violated = float((gap > TOLERANCES[criterion]).sum() / fits)
    return Study(fits, violated, 1.0 - len(found) / fits, float(accuracy.mean()), float(gap.mean()))
