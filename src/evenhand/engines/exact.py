"""Learning from the rows themselves: in memory if they fit, otherwise in passes that fetch few rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from evenhand.engines.cells import CountedCells
from evenhand.engines.distances import View, scale_of
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.learning import rows_of
from evenhand.engines.line import learn_on_the_line
from evenhand.engines.neighbourhood import learn_nearby
from evenhand.engines.opening import ROWS_OF_A_SAMPLE
from evenhand.engines.plane import learn_in_the_plane
from evenhand.engines.reading import Reader, TooManyError
from evenhand.errors import InfeasibleError
from evenhand.rows import with_group_probabilities
from evenhand.rules.ladder import best_rule, warn_of_thin_cells, without_safety
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Options
from evenhand.search import Certified, NoRule, Smoothed

ROWS_TO_SEARCH = 200_000
# So that bins of distance, which are fine up to 1, are fine in the cubes whose rows fit in memory.
PART_OF_AN_AXIS = 1 / 32


def learn_in_memory(raw: RawRows, options: Options, tolerance: float) -> Rule:
    """Return the result of :func:`evenhand.learn_rule` for rows that were read into memory."""
    rows = rows_of(raw, options)
    rows = dataclasses.replace(rows, copies=None, sample_weight=rows.sample_weight if raw.weighted else None)
    rows = with_group_probabilities(rows, raw.p_group, options.criterion)
    return best_rule(rows, options, tolerance)


def can_be_exact(options: Options) -> bool:
    """Return whether rows that do not fit in memory can be learnt from without rounding their scores."""
    return options.evidence == "labels" and isinstance(options.solver, Certified)


def learn_out_of_core(atoms: CountedCells, reader: Reader, options: Options, tolerance: float) -> Rule | None:
    """Return the best rule for all rows, or None if too many of them would have to be fetched."""

    def learn(ground: Ground) -> Rule:
        return _learn(ground, reader)

    try:
        rule = _with_safety(learn, atoms, options, tolerance)
    except TooManyError:
        return None
    learned = {**rule.learned_from, "reading": reader.described(), "columns": reader.columns.remember()}
    return dataclasses.replace(rule, learned_from=learned)


def _learn(ground: Ground, reader: Reader) -> Rule:
    if ground.dimension == 1:
        return learn_on_the_line(ground, reader)
    share = min(1.0, 0.5 * reader.most / ground.n_rows, ROWS_OF_A_SAMPLE / ground.n_rows)
    sample = reader.drawn(share, ("s0", *ground.linear.names))
    if sample is None or len(sample) < 2:
        raise TooManyError
    if ground.dimension == 2:
        return learn_in_the_plane(ground, reader, sample)
    return learn_nearby(ground, reader, _first_view(ground, sample), sample)


def _first_view(ground: Ground, sample: RawRows) -> View:
    """Return a good rule for some of the rows of a sample, and axes of parts of its contrasts' typical sizes."""
    raw = sample.take(np.arange(0, len(sample), -(-len(sample) // ROWS_TO_SEARCH)))
    margin, contrasts, table = ground.arrays(raw, sampled=True)
    scale = scale_of(contrasts)
    problem = dataclasses.replace(
        ground.problem,
        margin=margin,
        contrasts=contrasts / scale,
        gain=table[:, 0],
        effects=table[:, 1:],
        weight=raw.weight,
        decider=None,
    )
    found = Smoothed().solve(problem, random_state=ground.options.random_state)[0]
    if isinstance(found, NoRule):
        found = Smoothed().closest(problem, random_state=ground.options.random_state)
    return View(np.array(found.z) / scale, np.diag(PART_OF_AN_AXIS / scale))


def _with_safety(learn: Callable[[Ground], Rule], atoms: CountedCells, options: Options, tolerance: float) -> Rule:
    """Learn a rule as :func:`evenhand.rules.ladder.rule_for` does, given a way to learn within some bounds."""

    def ground_of(options: Options) -> Ground:
        found = atoms.crossing(options.criterion.intersections)
        return Ground(found, rows_of(found, options), options, tolerance)

    ground = ground_of(options)
    if options.safety == 0.0:
        return learn(ground)
    warn_of_thin_cells(ground.setting, tolerance)
    if ground.meets(ground.at_zero):
        return ground.unchanged("unchanged")
    try:
        return learn(ground)
    except InfeasibleError:
        plain = ground_of(dataclasses.replace(options, safety=0.0))
        return without_safety(ground.setting, learn(plain), tolerance)
