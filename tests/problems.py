"""Random problems of every kind that a search has to survive."""

from __future__ import annotations

import numpy as np

from evenhand.rows import read_rows
from evenhand.rules.criteria import resolve
from evenhand.rules.scores import read_costs
from evenhand.rules.setting import Options, Setting
from evenhand.search import Certified, Directions, Dual, Lines, NoRule, Problem, Smoothed
from evenhand.search.problem import FEASIBILITY_SLACK
from oracles import exact_cells

KINDS = ("plain", "tied", "weighted", "duplicated", "degenerate", "asymmetric")


def setting_of(
    y, sensitive_features, p_y, p_group, *, criterion="dp", costs=None, evidence="labels", sample_weight=None, **rest
):
    """Return what a rule is learnt from, as learn_rule makes it."""
    options = Options(criterion=resolve(criterion), costs=read_costs(costs), evidence=evidence, **rest)
    rows = read_rows(
        y,
        sensitive_features,
        p_y,
        p_group,
        criterion=options.criterion,
        sample_weight=sample_weight,
        counted=options.counts,
    )
    return Setting.of(rows, options)


def feasible(problem, values, step=0):
    """Tell whether values meet the bounds of a step, within rounding."""
    return problem.excess(values, step) <= FEASIBILITY_SLACK


def random_problem(seed, *, n, k, kind="plain", tolerance=None):
    """Return a problem with K contrasts and as many constraints, of a given kind."""
    rng = np.random.default_rng(seed)
    margin = rng.uniform(-1, 1, n)
    contrasts = rng.normal(size=(n, k))
    weight = np.ones(n)
    if kind == "weighted":
        weight = rng.choice([0.0, 0.5, 1.0, 2.5], size=n, p=[0.1, 0.3, 0.4, 0.2])
        weight[0] = 1.0
    if kind == "tied":
        margin = rng.integers(-2, 3, n) / 2.0
        contrasts = rng.integers(-2, 3, (n, k)).astype(float)
    if kind == "duplicated":
        copies = rng.integers(0, max(1, n // 3), n)
        factor = rng.choice([1.0, 2.0, -1.0, -0.5], n)
        margin, contrasts = margin[copies] * factor, contrasts[copies] * factor[:, None]
    if kind == "degenerate":
        margin[rng.random(n) < 0.3] = 0.0
        contrasts[rng.random((n, k)) < 0.4] = 0.0
    y = rng.random(n) < 0.5 * (1 + margin.clip(-1, 1))
    share = weight / weight.sum()
    effects = rng.choice([-1.0, 0.0, 1.0], size=(n, k)) * share[:, None] * rng.uniform(1.0, 3.0, k)
    if tolerance is None:
        tolerance = rng.choice([0.02, 0.1, 0.3])
    lower, upper = np.full(k, -tolerance), np.full(k, tolerance)
    if kind == "asymmetric":
        lower = np.where(rng.random(k) < 0.3, -np.inf, -rng.uniform(0, 0.2, k))
        upper = np.where(rng.random(k) < 0.3, np.inf, rng.uniform(0, 0.3, k))
    return Problem(margin, contrasts, np.where(y, 1.0, -1.0) * share, effects, lower, upper, float(share[~y].sum()))


def assert_never_behind(problem):
    """Check that the certified search is at least as good as every other one that meets the bounds."""
    found = Certified(n_jobs=1, max_visits=110_000_000).solve(problem)[0]
    for search in (Smoothed(), Directions(), Dual(), Lines() if problem.dimension <= 2 else Lines(m=20)):
        other = search.solve(problem)[0]
        if isinstance(other, NoRule) or not feasible(problem, np.array(other.values)):
            continue
        assert not isinstance(found, NoRule), search
        assert found.utility >= other.utility - 1e-9, search


def few_rows(seed, n=12, groups=2):
    """Return labels, groups and probabilities of a few rows, with two rows or more in each cell."""
    rng = np.random.default_rng(seed)
    cells = np.arange(n) % (2 * groups)
    y, group = cells % 2, cells // 2
    joint = rng.dirichlet(np.ones(2 * groups), n)
    joint[np.arange(n), y * groups + group] += 0.15
    joint = (joint / joint.sum(axis=1, keepdims=True)).reshape(n, 2, groups)
    return y, group, joint[:, 1].sum(axis=1), joint


def every_rule(setting):
    """Return the decisions of every rule of a setting's family, by the crossings of the rows' lines."""
    problem = setting.problem([0.1])
    cells = exact_cells(problem.margin, problem.contrasts)
    return [problem.margin > 0.0, *(np.array(found) for found, clearance in cells.items() if clearance > 1e-9)]


def precisions(y, group, decided):
    """Return the precision of each group in which somebody is selected."""
    chosen = [decided & (group == g) for g in np.unique(group)]
    return [y[some].mean() for some in chosen if some.any()]


def spread(y, group, decided):
    found = precisions(y, group, decided)
    return max(found) - min(found) if found else 0.0
