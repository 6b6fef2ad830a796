"""K = 2: the certified optimum of rows that do not fit in memory, in a square of z that contains all good rules.

A row is a line in the plane of z, which has two parameters: its direction, that of the row's contrasts, and its signed
distance from a centre. So after labels and groups are counted (:mod:`ground`) and a sample has given a centre,

1. one pass counts the rows by direction and distance, finely where the distance is small, and keeps those that are
   near the centre (:mod:`keeping`);
2. parts of the plane far from the centre, and boxes around it, are excluded while the
   counts prove that no rule in them meets the bounds and is better than one that is known: in a box of z the rows of
   one direction turn at one threshold, up to a *fuzz* that is the width of the direction's bin times the box's distance
   from the centre;
3. the rows whose lines cut the strip that is left (:mod:`strip`) are among those kept, or one pass brings them back,
   in pieces where they are too many; the others are constant in it, and their sums are known. The branch and bound of
   :mod:`evenhand.search.certified` solves the strip.

Contrasts are measured in units of their typical size, and the size of a row's contrasts is the sum of both: then the
rows that are open in a square are those whose distance is below the square's radius.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evenhand.engines.distances import EDGES, HALF, Grid, LineCounts, Lines, View
from evenhand.engines.exclusion import FAR, Exclusion, Round, best_known, least_bound, shrunk
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.keeping import Kept, count_and_keep
from evenhand.engines.reading import Reader, TooManyError
from evenhand.engines.strip import OVERLAP, Found, InStrip, Strip, pieces, solve_strip
from evenhand.engines.zoom import first_view, multipliers_of, narrowed, places_around
from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule
from evenhand.search import Certified
from evenhand.search.problem import Status, conclude

# How small boxes become before rows are brought back, in two rounds, and how many are tried: fewer if rows are few.
SIZES = 1 / 8, 1 / 128
FEWEST_BOXES, MOST_BOXES, ROWS_A_BOX = 300, 3000, 20_000
MOST_CENTRES, MOST_THRESHOLDS = 4, 3
MOST_PIECES = 4


def learn_in_the_plane(ground: Ground, reader: Reader, sample: RawRows) -> Rule:
    """Return the best rule for all rows, with its proof."""
    view, aspect = first_view(ground, sample)
    bound = np.inf
    for _ in range(MOST_CENTRES):
        tally = Lines(ground, view, reader.weighted, Grid.of(ground.n_rows, aspect))
        histogram, kept = count_and_keep(reader, tally, sample)
        places = places_around(4.0)
        sums = np.array([histogram.sums_at(place)[0] for place in places])
        multipliers = multipliers_of(ground.problem, sums)
        threshold, _ = best_known(histogram, places)
        if not np.isfinite(threshold):
            # No rule is known: search again around the one closest to the bounds.
            excess = [ground.problem.excess(one[1:]) for one in sums]
            view = View(view.at(places[int(np.argmin(excess))]), view.axes)
            continue
        for turn in range(MOST_THRESHOLDS):
            found = _solve(tally, histogram, (reader, kept), multipliers, threshold, improve=turn == 0)
            if not isinstance(found, float):
                break
            threshold = found
        if isinstance(found, Rule):
            return found
        bound = min(bound, least_bound(histogram, multipliers, threshold))
        view = narrowed(histogram, view, ground.n_rows)
    raise TooManyError(bound)


def _solve(
    tally: Lines,
    histogram: LineCounts,
    rows: tuple[Reader, Kept | None],
    multipliers: FloatArray,
    threshold: float,
    *,
    improve: bool,
) -> Rule | float | None:
    """Return the best rule; its utility where it is below the threshold; None where the square left is too large.

    To ``improve`` is to raise the threshold to what some rule very likely has.
    """
    ground = tally.ground
    solver = ground.options.solver
    assert isinstance(solver, Certified)
    exclusion = Exclusion(histogram, multipliers, threshold + solver.gap)
    if not exclusion.bounded():
        return None
    own = float(ground.at_zero[0]) if ground.meets(ground.at_zero) else -np.inf
    boxes, likely, place, tried = _left(histogram, rows[1], (multipliers, threshold, solver.gap), improve=improve)
    if not len(boxes):
        if own < likely:
            return threshold if improve else None
        status: Status = "gap" if solver.gap else "optimal"
        return ground.unchanged(status, upper_bound=own + solver.gap, nodes=tried + exclusion.boxes)
    found = _best_of_boxes(tally, histogram, rows, boxes, (multipliers, tally.view.at(place)))
    if found is None:
        return None
    resolution = ground.problem.resolution
    best = max(own, found.utility)
    if not best >= likely - resolution:
        # The rule that was likely is not there, and rules between the best one and it are outside of the boxes.
        return best
    if own >= found.utility - resolution:
        bound = max(found.bound, own)
        return ground.unchanged("optimal" if bound <= own + resolution else "gap", upper_bound=bound, nodes=found.nodes)
    solution = conclude(found.problem, 0, found.z, upper_bound=found.bound, nodes=found.nodes)
    return ground.rule(found.problem, replace(solution, stopped=found.stopped))


def _best_of_boxes(
    tally: Lines,
    histogram: LineCounts,
    rows: tuple[Reader, Kept | None],
    boxes: FloatArray,
    known: tuple[FloatArray, FloatArray],
) -> Found | None:
    """Return the best rule of some boxes, given prices and a good rule; None where too many rows are open in them."""
    if not len(boxes):
        return None
    reader, kept = rows
    strip = None if kept is None else Strip.inside(boxes[:, :4], kept.size)
    if kept is not None and strip is not None:
        choice, others, near = kept.inside(strip)
        return solve_strip(choice, histogram.constant + others @ histogram.units, near, *known)
    radius = float((np.abs(boxes[:, :2]) + boxes[:, 2:4]).max())
    # Lines that cut the square have twice its radius as distance, in units of the larger contrast, and one bin more for
    # what rounding puts beyond an edge.
    bins = min(int(np.searchsorted(EDGES, 2.0 * radius)) - HALF + 1, HALF - 1)
    strips = pieces(boxes[:, :4], histogram, reader.most)
    if len(strips) > MOST_PIECES:
        return None
    found: Found | None = None
    for strip in strips:
        choice = InStrip(tally, bins, strip, np.zeros(tally.ground.n_codes))
        raw = reader.sorted_rows(choice)
        if raw is None:
            return None
        histogram.check(choice.weight, bins)
        sure = histogram.sure(bins) + choice.sure @ histogram.units
        found = solve_strip(choice, sure, raw, *known).better(found)
    return found


def _left(
    histogram: LineCounts, kept: Kept | None, prices: tuple[FloatArray, float, float], *, improve: bool
) -> tuple[FloatArray, float, FloatArray, int]:
    """Return the boxes that may hold a better rule, a utility that is known, where it is, and the boxes tried.

    Boxes become small only as far as that saves rows: those inside the square of the rows that are kept need not be
    small, because these rows are counted again, which takes less time. That is of use if all boxes are inside.
    """
    boxes, place, tried = np.array([[0.0, 0.0, FAR, FAR, 1.0, 1.0]]), np.zeros(2), 0
    multipliers, threshold, gap = prices
    most = int(np.clip(histogram.ground.n_rows / ROWS_A_BOX, FEWEST_BOXES, MOST_BOXES))
    rounds: list[Round] = [(size, most, 0.0) for size in SIZES]
    if kept is not None:
        rounds.insert(1, (SIZES[1], most, kept.size / (1.0 + 4.0 * OVERLAP)))
    for one in rounds:
        boxes, likely, where, more = shrunk(histogram, boxes, (multipliers, threshold, gap), [one], improve=improve)
        tried += more
        if likely > threshold:
            threshold, place = likely, where
        if not len(boxes) or (kept is not None and Strip.inside(boxes[:, :4], kept.size) is not None):
            break
    return boxes, threshold, place, tried
