"""Predictive parity of rows that do not fit in memory: the proof at all levels at once, against ``learn_rule``."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import evenhand as eh
from engine_rows import arrays_of, in_memory, with_jobs
from evenhand.engines import arrow, common_level, exact, exclusion, levels, plane
from evenhand.engines.reading import TooManyError
from scored_rows import NAMES

PARITY = eh.PredictiveParity()


@pytest.fixture
def few_boxes(monkeypatch):
    """Make proofs quick, and without the search of one range after the other."""
    monkeypatch.setattr(common_level, "MOST_BOXES", 2000)
    monkeypatch.setattr(levels, "LARGE_GAP", 1.0)


def precisions_of(rule, table, z):
    """Return the utility of the rule at z and both precisions, counted here."""
    arrays, joint = arrays_of(table)
    terms = tuple(dataclasses.replace(term, z=float(one)) for term, one in zip(rule.terms, z, strict=True))
    decided, y = dataclasses.replace(rule, terms=terms).decide(arrays["p"], joint) == 1, arrays["y"] == 1
    return (decided == y).mean(), [y[decided & (arrays["sex"] == sex)].mean() for sex in ("F", "M")]


def captured(monkeypatch, table, tolerance):
    """Return the rule, the counts at all levels, and the ranges that were left open of a given utility."""
    found = []
    whole = common_level.AllLevels.open_ranges

    def open_ranges(self, utility):
        ranges = whole(self, utility)
        found.append((self, utility, ranges))
        return ranges

    monkeypatch.setattr(common_level.AllLevels, "open_ranges", open_ranges)
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, criterion=PARITY, tolerance=tolerance)
    return rule, found[0]


@pytest.mark.parametrize(("seed", "tolerance"), [(3, 0.05), (5, 0.1)])
def test_a_better_rule_is_in_a_box_of_its_level(monkeypatch, few_boxes, seed, tolerance):
    monkeypatch.setattr(common_level, "ENOUGH_ROWS", 0)
    table = with_jobs(2000, seed=seed)
    rule, (every, utility, _) = captured(monkeypatch, table, tolerance)
    utility, every.tried = utility - 0.002, 0
    ranges = every.open_ranges(utility)
    rng = np.random.default_rng(seed)
    # Rules in the same plane that are better than some utility: few of those tried.
    places = np.vstack([rule.z, rule.z + rng.normal(size=(600, 2)) * rng.choice([0.003, 0.02, 0.1, 0.5], (600, 1))])
    better = 0
    for z in places:
        accuracy, precisions = precisions_of(rule, table, z)
        if accuracy <= utility or not max(precisions) - min(precisions) <= tolerance:
            continue
        better += 1
        place = np.linalg.solve(every.tally.view.axes, z - every.tally.view.centre)
        for level in (min(precisions), max(precisions) - tolerance):
            (own,) = [one for one in ranges if one.levels[0] <= level < one.levels[1]]
            assert (np.abs(place - own.boxes[:, :2]) <= own.boxes[:, 2:4]).all(axis=1).any()
    assert better


def three_at_once(monkeypatch):
    """Let only three neighbouring ranges of levels fit in memory together."""
    monkeypatch.setattr(common_level, "ENOUGH_ROWS", 0)
    rows = common_level.AllLevels._rows
    monkeypatch.setattr(common_level.AllLevels, "_rows", lambda self, some: rows(self, some) if len(some) < 4 else 1e9)


def test_pieces_of_few_rows_have_the_optimum_together(monkeypatch, few_boxes):
    three_at_once(monkeypatch)
    monkeypatch.setattr(levels, "MOST_PIECES", 200)
    table = with_jobs(2000, seed=3)
    pieces = []
    fetch = common_level.AllLevels.piece
    monkeypatch.setattr(common_level.AllLevels, "piece", lambda *given: pieces.append(fetch(*given)) or pieces[-1])
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, criterion=PARITY, tolerance=0.05)
    known = in_memory(table, criterion=PARITY, tolerance=0.05).solution_
    assert rule.solution_.status == "optimal"
    assert rule.solution_.utility == pytest.approx(known.utility, abs=1e-12)
    assert len(pieces) > 3


@pytest.mark.parametrize("most", [0, 1])
def test_what_does_not_fit_in_memory_leaves_a_gap(monkeypatch, few_boxes, most):
    three_at_once(monkeypatch)
    monkeypatch.setattr(levels, "MOST_PIECES", most)
    table = with_jobs(2000, seed=3)
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, criterion=PARITY, tolerance=0.05)
    best = in_memory(table, criterion=PARITY, tolerance=0.05).solution_.utility
    found = rule.solution_
    assert found.status == "gap"
    assert found.utility <= best + 1e-12 <= found.upper_bound < 0.9
    utility, precisions = precisions_of(rule, table, rule.z)
    assert found.utility == pytest.approx(utility, abs=1e-12)
    assert abs(precisions[0] - precisions[1]) <= 0.05 + 1e-9


def without_the_proof_at_all_levels(monkeypatch):
    """Make each search too large for memory: what is left is a search nearby, and a bound from counts."""
    monkeypatch.setattr(levels._Common, "around_a_good_rule", lambda self: np.inf)
    monkeypatch.setattr(plane, "_solve", lambda *given, improve: None)
    monkeypatch.setattr(plane, "MOST_CENTRES", 1)
    monkeypatch.setattr(levels, "MOST_RANGES", 2)
    monkeypatch.setattr(exclusion, "STEPS_ABOVE", (0.01, 0.16))


def test_searches_that_are_too_large_leave_a_valid_bound(monkeypatch):
    without_the_proof_at_all_levels(monkeypatch)
    table = with_jobs(2000, seed=3)
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, criterion=PARITY, tolerance=0.05)
    best = in_memory(table, criterion=PARITY, tolerance=0.05).solution_.utility
    assert rule.solution_.status == "gap"
    assert rule.solution_.utility <= best + 1e-12 <= rule.solution_.upper_bound < 0.9


def test_searches_after_one_that_found_nothing_are_tried(monkeypatch):
    without_the_proof_at_all_levels(monkeypatch)
    calls = []
    nearby = exact.learn_nearby

    def learn_nearby(*given):
        calls.append(given)
        if len(calls) == 2:
            raise TooManyError
        return nearby(*given)

    monkeypatch.setattr(exact, "learn_nearby", learn_nearby)
    table = with_jobs(2000, seed=3)
    rule = arrow.learn_rule(table, max_in_memory=0, **NAMES, criterion=PARITY, tolerance=0.05)
    best = in_memory(table, criterion=PARITY, tolerance=0.05).solution_.utility
    assert len(calls) > 2
    assert rule.solution_.utility <= best + 1e-12 <= rule.solution_.upper_bound < 0.9
