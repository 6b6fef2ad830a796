"""Scores on the boundary, scores that coincide or nearly do, and cells as narrow as the stated resolution."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.rules import scores
from evenhand.search import Certified, Directions, Lines, NoRule, Problem
from evenhand.search.coincidence import CLOSE, share_planes
from evenhand.search.sweep import centred
from oracles import exact_cells
from problems import KINDS, feasible, random_problem

seeds = st.integers(0, 2**32 - 1)
RESOLUTION = 1e-9


@pytest.mark.parametrize("search", [Certified(), Directions(), Lines(), "dual"])
@pytest.mark.parametrize("criterion", ["dp", "eo"])
def test_a_model_whose_negative_scores_are_one_half_keeps_its_decisions(search, criterion):
    """z = 0 lies on the plane of every row with margin 0, and is a rule all the same: the model's own."""
    rng = np.random.default_rng(0)
    y, group = np.tile([1, 1, 0, 0], 3), np.tile([0, 1], 6)
    joint = rng.dirichlet(np.ones(4), size=12).reshape(12, 2, 2)
    p_y = np.where(y == 1, 0.9, 0.5)
    for tolerance in (1.0,) if search == "dual" else (0.0, 0.2, 1.0):  # the dual goes by expectations
        rule = eh.learn_rule(y, group, p_y, joint, criterion=criterion, tolerance=tolerance, search=search)
        assert rule.solution_.utility == 1.0
        np.testing.assert_array_equal(rule.decide(p_y, joint), y)


@given(seed=seeds, k=st.integers(1, 3), n=st.integers(4, 40))
def test_no_search_is_behind_the_models_own_decisions(seed, k, n):
    problem = random_problem(seed, n=n, k=k, kind="degenerate", tolerance=0.5)
    utility, values = problem.evaluate(problem.margin > 0.0)
    if not feasible(problem, values):
        return
    for search in (Certified(), Directions(16), Lines(m=4)):
        found = search.solve(problem, random_state=0)[0]
        assert found.utility >= utility
        assert found.upper_bound >= utility


def coarse_optimum(y, group, tenths_y, tenths_group, tolerance):
    """Return the best accuracy within the tolerance over every z, in rational arithmetic, or None."""
    n, share = len(y), Fraction(int(group.sum()), len(y))
    margin = [2 * Fraction(int(p), 10) - 1 for p in tenths_y]
    contrast = [(1 - Fraction(int(p), 10)) / (1 - share) - Fraction(int(p), 10) / share for p in tenths_group]
    turns = sorted({m / g for m, g in zip(margin, contrast, strict=True) if g})
    points = [None, *((a + b) / 2 for a, b in itertools.pairwise(turns))]
    points += [turns[0] - 1, turns[-1] + 1] if turns else []
    best = None
    for z in points:
        decisions = np.array([(m if z is None else m - z * g) > 0 for m, g in zip(margin, contrast, strict=True)])
        rates = [Fraction(int(decisions[group == a].sum()), int((group == a).sum())) for a in (0, 1)]
        accuracy = Fraction(int((decisions == y).sum()), n)
        if abs(rates[0] - rates[1]) <= tolerance and (best is None or accuracy > best):
            best = accuracy
    return best


@settings(max_examples=150)
@given(seed=seeds, n=st.sampled_from([10, 20, 50]), points=st.sampled_from([0, 2, 5, 10, 20]))
def test_scores_with_one_decimal_get_the_optimum_of_exact_arithmetic(seed, n, points):
    """A row with p = 0.5 and p(A|x) equal to the prior is on the boundary of every rule, whatever rounding says."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.arange(n) < 0.3 * n).astype(int)
    tenths_y, tenths_group = rng.integers(0, 11, n), rng.integers(0, 11, n)
    y = (rng.random(n) < tenths_y / 10).astype(int)
    if len(np.unique(y)) == 1:
        return
    truth = coarse_optimum(y, group, tenths_y, tenths_group, Fraction(points, 100))
    p_y, p_group = tenths_y / 10, np.column_stack([1 - tenths_group / 10, tenths_group / 10])
    if truth is None:
        with pytest.raises(eh.InfeasibleError, match="No rule meets"):
            eh.learn_rule(y, group, p_y, p_group, criterion="dp", tolerance=points / 100)
        return
    rule = eh.learn_rule(y, group, p_y, p_group, criterion="dp", tolerance=points / 100)
    assert rule.solution_.status == "optimal"
    assert (rule.decide(p_y, p_group) == y).mean() == pytest.approx(float(truth), abs=1e-12)


def noisy_leaves(seed, *, n, leaves, noise):
    """Return labels, groups and probabilities of a few leaves, as averaging or single precision leaves them."""
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.ones(4), size=leaves)[rng.integers(0, leaves, n)]
    cell = (rng.random(n)[:, None] > np.cumsum(joint, axis=1)).sum(axis=1).clip(0, 3)
    cell[:8] = np.arange(8) % 4
    joint = np.abs(joint + noise * rng.normal(size=joint.shape))
    joint /= joint.sum(axis=1, keepdims=True)
    return cell // 2, cell % 2, joint[:, 2:].sum(axis=1), joint.reshape(n, 2, 2)


@pytest.mark.parametrize("noise", [1e-7, 1e-8, 1e-9])
@pytest.mark.parametrize("seed", range(8))
def test_twelve_rows_of_nearly_equal_scores_get_ordinary_rules(seed, noise):
    y, group, p_y, joint = noisy_leaves(seed, n=12, leaves=4, noise=noise)
    criterion = eh.DemographicParity() & eh.EqualOpportunity()
    base = ((p_y > 0.5) == y).mean()
    utilities = []
    for tolerance in (0.0, 0.2, 0.5, 1.0):
        try:
            rule = eh.learn_rule(y, group, p_y, joint, criterion=criterion, tolerance=tolerance)
        except eh.InfeasibleError:
            continue
        utilities.append(rule.solution_.utility)
        assert np.abs(rule.z).max() < 1e4
        assert ((rule.decide(p_y, joint) == 1) == y).mean() == pytest.approx(rule.solution_.utility)
    assert utilities == sorted(utilities)
    assert utilities[-1] >= base - 1e-12


@pytest.mark.parametrize("noise", [1e-7, 1e-8])
def test_a_frontier_over_noisy_leaves_is_short_work_and_never_falls(noise):
    y, group, p_y, joint = noisy_leaves(3, n=2_000, leaves=6, noise=noise)
    tolerances = [0.02, 0.05, 0.1, 0.2, 0.4, 1.0]
    curve = eh.frontier(y, group, p_y, joint, criterion="eo", tolerances=tolerances)
    _, _, *scores = noisy_leaves(3, n=2_000, leaves=6, noise=0.0)
    clean = eh.frontier(y, group, *scores, criterion="eo", tolerances=tolerances)
    assert (np.diff(curve.utilities) >= 0.0).all()
    np.testing.assert_allclose(curve.utilities, clean.utilities, atol=2e-3)
    assert all(point.rule.solution_.nodes < 100_000 for point in curve)
    for tolerance, utility in zip(curve.tolerances, curve.utilities, strict=True):
        alone = eh.learn_rule(y, group, p_y, joint, criterion="eo", tolerance=float(tolerance))
        assert alone.solution_.utility == pytest.approx(utility, abs=1e-12)


def test_planes_are_shared_within_the_resolution_and_not_beyond():
    rng = np.random.default_rng(0)
    leaves = rng.uniform(-1.0, 1.0, size=(6, 3))
    leaves[0] = 1.0
    rows = leaves[rng.integers(0, 6, 600)]
    plain = random_problem(1, n=600, k=2)

    def planes(noise, scale):
        scores = rows + noise * rng.uniform(-0.5, 0.5, size=rows.shape)
        problem = replace(plain, margin=scores[:, 0], contrasts=scores[:, 1:] * scale)
        shared = share_planes(problem)
        return len(np.unique(np.column_stack([shared.margin, shared.contrasts]), axis=0))

    for scale in (1.0, 1e8, 1e-8):  # the unit of a column does not matter
        assert planes(0.1 * CLOSE, scale) == 6
        assert planes(1000.0 * CLOSE, scale) == 600
    assert share_planes(plain) is plain


def test_a_point_is_moved_to_the_middle_of_its_cell_and_not_out_of_it():
    for seed in range(20):
        problem = random_problem(seed, n=30, k=2)
        rng = np.random.default_rng(seed)
        z = rng.normal(size=2) * 10.0 ** rng.integers(-3, 12)
        moved = centred(problem, z)
        np.testing.assert_array_equal(problem.decide(moved), problem.decide(z))
        room = [np.abs(problem.margin - problem.contrasts @ point).min() for point in (z, moved)]
        assert np.abs(moved).max() <= max(np.abs(z).max(), 1e3)
        assert room[1] > 0.0


def stretched_problem(seed, k):
    """Return a small problem whose columns, rows, weights or corners have very different sizes."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(k + 1, 10 if k == 2 else 8))
    problem = random_problem(seed, n=n, k=k, kind=KINDS[seed % len(KINDS)])
    kind = seed // len(KINDS) % 5
    if kind == 2:
        weight = 10.0 ** rng.uniform(-4, 4, n)
        weight /= weight.sum()
        effects = np.sign(problem.effects) * weight[:, None]
        return replace(problem, gain=np.sign(problem.gain) * weight, effects=effects)
    if kind == 4:
        meeting = problem.contrasts @ rng.normal(size=k)
        return replace(problem, margin=meeting + 10.0 ** rng.uniform(-8, -4) * rng.normal(size=n))
    shape = {0: k, 1: (n, 1), 3: (n, k)}[kind]
    return replace(problem, contrasts=problem.contrasts * 10.0 ** rng.uniform(-4, 4, shape))


@settings(max_examples=60)
@given(seed=seeds, k=st.integers(2, 3))
def test_no_cell_as_wide_as_the_stated_resolution_is_missed(seed, k):
    problem = stretched_problem(seed, k)
    columns = problem.contrasts / np.maximum(np.abs(problem.contrasts).max(axis=0), 1e-300)
    if np.linalg.matrix_rank(columns) < k:
        return  # such cells have no corners
    found = Certified(max_seconds=None).solve(problem)[0]
    for decisions, clearance in exact_cells(problem.margin, problem.contrasts).items():
        utility, values = problem.evaluate(np.array(decisions))
        if clearance > RESOLUTION and feasible(problem, values):
            assert found.upper_bound >= utility - 1e-9
            assert not isinstance(found, NoRule)


def test_a_rule_on_the_boundary_decides_negatively_whatever_the_rounding():
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(4), size=200)
    for priors in share:
        rule = eh.Rule.from_criterion("eo", groups={"A": (0, 1)}, priors=priors.reshape(2, 2), z=rng.normal(size=2))
        joint = priors.reshape(1, 2, 2)
        assert rule.decide([0.5], joint / joint.sum())[0] == 0


def test_contrasts_of_rounding_size_are_zero():
    problem = Problem(
        np.array([0.2, -0.3]), np.zeros((2, 1)), np.array([0.5, -0.5]), np.zeros((2, 1)), [-1.0], [1.0], 0.5
    )
    assert Certified().solve(problem)[0].status == "optimal"
    densities = np.array([[0.1 + 0.2, 0.3], [0.3, 0.3], [0.4, 0.3]])
    contrasts = scores.contrasts(densities, np.array([[1.0, -1.0]]))
    np.testing.assert_array_equal(contrasts[:2], 0.0)
    assert contrasts[2, 0] == pytest.approx(0.1)
