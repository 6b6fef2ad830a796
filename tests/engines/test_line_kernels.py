"""The compiled loops over lines in the plane, against the same in fractions.

Scores, weights and centres are multiples of powers of two, so that nothing is rounded before the last division, and a
row that is exactly at the edge of a bin has to be on the same side of it in both.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import floor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.engines._kernels import (
    BLOCK,
    DELICATE,
    LINE,
    NONE,
    Form,
    count_and_choose,
    measure_block,
    measure_lines,
    place_lines,
    place_of_line,
    place_without_line,
)
from evenhand.engines._near_kernels import MARGIN, _fate, open_in_boxes, place_fine_lines
from evenhand.engines.strip import Strip, _along_rows
from kernels import covers, entry

seeds = st.integers(0, 2**32 - 1)
HALF = 16
NUMBERS = [Fraction(0), *(sign * Fraction(k, 8) for sign in (-1, 1) for k in (1, 2, 3, 5, 8, 16, 56))]
numbers = st.sampled_from(NUMBERS)


def bin_of(level, size, half):
    """Return the bin of level / size on the whole line, which is mapped to [-1, 1]."""
    return min(floor((level / (size + abs(level)) + 1) * half), 2 * half - 1)


def side_of(g, h):
    """Return which side of the square of directions a line's contrasts are on, and where between its ends."""
    if abs(g) >= abs(h):
        return (0 if g > 0 else 1), h / abs(g)
    return (2 if h > 0 else 3), g / abs(h)


def direction_of(g, h, directions, aspect):
    side, slope = side_of(g, h)
    if side < 2:
        slope = aspect * slope / (1 + (aspect - 1) * abs(slope))
    sides = directions // 4
    return side * sides + min(floor((slope + 1) / 2 * sides), sides - 1)


def drawn(seed, n=40):
    """Return scores, a form and a centre, and margin, contrasts and fate of each row, in fractions."""
    rng = np.random.default_rng(seed)
    weights, constants = rng.integers(-4, 5, (2, 3)) / 4, rng.integers(-1, 2, 2) / 4
    scores = rng.integers(0, 33, (4, n)) / 32
    if rng.random() < 0.5:
        # Every third row has contrasts that are 0 or far below their terms.
        weights[:, 2], constants[:] = -weights[:, 0] - weights[:, 1], 0.0
        scores[1:, ::3] = scores[1, ::3]
        scores[2, ::6] += 2.0**-20
    sizes = np.abs(weights), np.abs(constants)
    most = float(sizes[0].sum() + sizes[1].sum())
    form = Form(2.0, 1.0, weights, constants, *sizes, most, 1e-12, 1e-13, 2.0**-12)
    rows = []
    for row in scores.T:
        s = [Fraction(value) for value in row]
        terms = [[Fraction(c), *(Fraction(w) * x for w, x in zip(one, s[1:], strict=True))]
                 for one, c in zip(weights, constants, strict=True)]  # fmt: skip
        g, h = map(sum, terms)
        whole = sum(abs(term) for one in terms for term in one)
        small = abs(g) + abs(h) <= whole / 2**12
        rows.append((2 * s[0] - 1, g, h, LINE if not small else NONE if g == h == 0 else DELICATE))
    return scores, form, rng.integers(-8, 9, 2) / 8, rows


def level_of(row, centre):
    margin, g, h, _ = row
    return margin - Fraction(centre[0]) * g - Fraction(centre[1]) * h


def place_of(row, centre, directions, aspect):
    margin, g, h, fate = row
    if fate != LINE:
        return directions * (2 * HALF + 1) + (2 if fate == DELICATE else int(margin > 0))
    distance = bin_of(level_of(row, centre), max(abs(g), abs(h)), HALF)
    return direction_of(g, h, directions, aspect) * (2 * HALF + 1) + distance


@covers(place_of_line)
@given(level=numbers, g=numbers, h=numbers, directions=st.sampled_from([4, 32, 64]), aspect=st.sampled_from([1, 2, 7]))
def test_place_of_line_is_its_direction_and_its_distance(level, g, h, directions, aspect):
    if g == h == 0:
        g = Fraction(1)
    place = place_of_line(float(level), float(g), float(h), (directions, float(aspect)), HALF)
    expected = direction_of(g, h, directions, aspect) * (2 * HALF + 1) + bin_of(level, max(abs(g), abs(h)), HALF)
    assert place == expected


@covers(place_without_line)
@given(margin=st.sampled_from([-1.0, -1e-13, 0.0, 1e-13, 1e-12, 1.1e-12, 0.5]), directions=st.sampled_from([4, 64]))
def test_place_without_line_is_after_all_lines(margin, directions):
    form = drawn(0)[1]
    after = directions * (2 * HALF + 1)
    places = [place_without_line(margin, fate, form, (directions, 1.0), HALF) for fate in (NONE, DELICATE)]
    assert places == [after + (margin in (1.1e-12, 0.5)), after + 2]


@covers(measure_block)
@given(seed=seeds, directions=st.sampled_from([4, 64]), aspect=st.sampled_from([1, 7]))
def test_measure_block_gives_the_places_and_squares_of_lines(seed, directions, aspect):
    _, _, centre, rows = drawn(seed)
    lines = [row for row in rows if row[3] == LINE]
    margins, g, h = (np.array([float(row[k]) for row in lines]) for k in range(3))
    places, radii = np.empty(len(lines), dtype=np.int64), np.empty(len(lines))
    measure_block(margins, (g, h), centre, (directions, float(aspect)), HALF, places, radii)
    assert places.tolist() == [place_of(row, centre, directions, aspect) for row in lines]
    for row, radius in zip(lines, radii, strict=True):
        exact = abs(level_of(row, centre)) / (abs(row[1]) + abs(row[2]))
        assert exact * (1 - Fraction(1, 10**8)) - Fraction(1, 10**7) <= radius <= exact


@given(seed=seeds, n=st.sampled_from([1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3]), aspect=st.sampled_from([1, 7]))
def test_rows_of_several_blocks_are_measured_as_one_by_one(seed, n, aspect):
    few, form, centre, _ = drawn(seed)
    scores = few[:, np.random.default_rng(seed).integers(0, few.shape[1], n)]
    grid, places, radii = (64, float(aspect)), np.empty(n, dtype=np.int64), np.empty(n)
    measure_lines(scores, form, centre, grid, HALF, places, radii)
    again, alone, radius = np.empty(n, dtype=np.int64), np.empty(1, dtype=np.int64), np.empty(1)
    place_lines(scores, form, centre, grid, HALF, again)
    assert (places == again).all()
    for i in (0, n // 2, n - 1):
        measure_lines(scores[:, i : i + 1].copy(), form, centre, grid, HALF, alone, radius)
        assert (alone[0], radius[0]) == (places[i], radii[i])


@covers(measure_lines)
@given(seed=seeds, directions=st.sampled_from([4, 64]), aspect=st.sampled_from([1, 7]))
def test_measure_lines_gives_places_and_the_smallest_square_around_the_centre(seed, directions, aspect):
    scores, form, centre, rows = drawn(seed)
    places, again, radii = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64), np.empty(len(rows))
    measure_lines(scores, form, centre, (directions, float(aspect)), HALF, places, radii)
    assert places.tolist() == [place_of(row, centre, directions, aspect) for row in rows]
    place_lines(scores, form, centre, (directions, float(aspect)), HALF, again)
    assert (again == places).all()
    for row, radius in zip(rows, radii, strict=True):
        _, g, h, fate = row
        if fate != LINE:
            assert radius == (0.0 if fate == DELICATE else np.inf)
            continue
        exact = abs(level_of(row, centre)) / (abs(g) + abs(h))
        # Never too large, as the row would be missing, and hardly too small.
        assert exact * (1 - Fraction(1, 10**8)) - Fraction(1, 10**7) <= radius <= exact


def test_the_drawn_rows_are_lines_of_all_sides_and_others():
    rows = [row for seed in range(40) for row in drawn(seed)[3]]
    assert {fate for *_, fate in rows} == {LINE, NONE, DELICATE}
    assert {side_of(g, h)[0] for _, g, h, fate in rows if fate == LINE} == {0, 1, 2, 3}
    assert any(abs(g) == abs(h) for _, g, h, fate in rows if fate == LINE)


@covers(count_and_choose)
@given(seed=seeds, n=st.integers(0, 60), weighted=st.booleans(), size=st.sampled_from([-1.0, 0.0, 0.5, 2.0]))
def test_count_and_choose_counts_all_rows_and_keeps_those_with_small_radii(seed, n, weighted, size):
    rng = np.random.default_rng(seed)
    places, codes, weights = rng.integers(0, 7, n), rng.integers(0, 3, n), rng.choice([0.0, 0.5, 3.0], n)
    radii = rng.choice([-1e-12, 0.0, 0.3, 0.5, np.nextafter(0.5, 1.0), 2.0, np.inf], n)
    before = rng.integers(0, 9, 21).astype(float if weighted else np.uint32)
    counts, kept = before.copy(), np.full(n + 1, -1)
    found = count_and_choose(places, radii, (codes, weights if weighted else np.empty(0)), 3, size, counts, kept)
    added = np.zeros((7, 3))
    np.add.at(added, (places, codes), weights if weighted else 1.0)
    np.testing.assert_array_equal(counts, before + added.reshape(-1))
    assert kept[:found].tolist() == [i for i in range(n) if radii[i] <= size]
    assert (kept[found:] == -1).all()


@covers(place_fine_lines)
@given(seed=seeds, finer=st.tuples(st.integers(0, 3), st.integers(0, 3)), unsure=st.sampled_from([0, Fraction(1, 4)]))
def test_place_fine_lines_splits_the_bins_near_the_centre(seed, finer, unsure):
    scores, form, centre, rows = drawn(seed)
    places, directions = np.empty(len(rows), dtype=np.int64), 16
    place_fine_lines(scores, form, centre, (directions, HALF, *finer, float(unsure), 2.0), places)
    for row, place in zip(rows, places, strict=True):
        margin, g, h, fate = row
        level = level_of(row, centre)
        if fate == LINE and abs(g) + abs(h) + abs(level) <= unsure:
            fate = DELICATE
        if fate != LINE:
            # In a square of size 2 around the centre, some delicate rows are surely decided.
            sure = fate == DELICATE and abs(level) > 2 * (abs(g) + abs(h)) * (1 + Fraction(MARGIN)) + unsure
            expected = place_of((margin, g, h, fate), centre, directions, 1) + (1 + (level > 0) if sure else 0)
            assert place == expected << sum(finer)
            continue
        direction, fine_direction = divmod(direction_of(g, h, directions << finer[0], 1), 1 << finer[0])
        distance, fine_distance = divmod(bin_of(level, max(abs(g), abs(h)), HALF << finer[1]), 1 << finer[1])
        assert place >> sum(finer) == place_of(row, centre, directions, 1) == direction * (2 * HALF + 1) + distance
        near = HALF // 2 <= distance < HALF + HALF // 2
        assert place & ((1 << sum(finer)) - 1) == ((fine_direction << finer[1]) + fine_distance if near else 0)


def bins_and_boxes(seed, n_bins=12, n_boxes=6, *, wide):
    """Return bins of lines (direction, half widths of the slopes, distances) and boxes, with exact ties among them."""
    rng = np.random.default_rng(seed)
    lines = np.zeros((n_bins, 6))
    lines[:, :2] = rng.integers(-4, 5, (n_bins, 2)) / 4
    which = rng.integers(0, 2, n_bins)
    lines[np.arange(n_bins), which] = rng.choice([-1.0, 1.0], n_bins)
    lines[np.arange(n_bins), 3 - which] = rng.choice([0.0, 0.125], n_bins) if wide else 0.0
    lines[:, 4] = rng.integers(-8, 9, n_bins) / 8
    lines[:, 5] = lines[:, 4] + rng.integers(0, 3, n_bins) / 8
    lines[rng.random(n_bins) < 0.1, 4], lines[rng.random(n_bins) < 0.1, 5] = -np.inf, np.inf
    return rng, lines, np.hstack([rng.integers(-8, 9, (n_boxes, 2)) / 8, rng.integers(0, 4, (n_boxes, 2)) / 16])


def thresholds(line, box):
    """Return the smallest and the largest threshold of a bin's lines in a box: they are at corners of both."""
    ends = [
        (line[0] + a * line[3]) * (box[0] + c * box[2]) + (line[1] + b * line[2]) * (box[1] + d * box[3])
        for a, b, c, d in product((-1.0, 1.0), repeat=4)
    ]
    return min(ends), max(ends)


@covers(_fate)
@given(seed=seeds, wide=st.booleans())
def test_fate_is_sure_only_where_all_lines_of_a_bin_are(seed, wide):
    _, lines, boxes = bins_and_boxes(seed, wide=wide)
    for k, box in product(range(len(lines)), boxes):
        fate = entry(_fate)(lines, k, *box)
        low, high = thresholds(lines[k], box)
        surely_on, surely_off = lines[k, 4] > high + MARGIN, lines[k, 5] < low - MARGIN
        if wide:
            assert surely_on or fate != 1
            assert surely_off or fate != 0
        else:
            assert fate == (1 if surely_on else 0 if surely_off else 2)


@covers(open_in_boxes)
@given(seed=seeds)
def test_open_in_boxes_counts_each_bin_by_its_fate(seed):
    rng, lines, boxes = bins_and_boxes(seed, wide=True)
    codes, weights = rng.integers(0, 3, len(lines)), rng.integers(0, 4, len(lines)).astype(float)
    members = rng.permutation(len(lines)).astype(np.int32)
    starts, parents = np.array([0, 5, 5, len(lines)]), rng.integers(0, 3, len(boxes))
    on = rng.integers(0, 9, (3, 3)).astype(float)
    inner, ends = np.full(len(boxes) * len(lines), -1, dtype=np.int32), np.zeros(len(boxes), dtype=np.int64)
    counted, middle = np.zeros((len(boxes), 2, 3)), np.zeros((len(boxes), 2, 3))
    used = open_in_boxes(lines, codes, weights, (boxes, parents), (starts, members, on), inner, ends, counted, middle)
    expected: list[int] = []
    for b, (box, parent) in enumerate(zip(boxes, parents, strict=True)):
        inside = members[starts[parent] : starts[parent + 1]]
        fates, at_middle = (
            np.array([entry(_fate)(lines, k, *box[:2], *reach) for k in inside]) for reach in (box[2:], (0.0, 0.0))
        )
        for found, what in ((counted, fates), (middle, at_middle)):
            sure, open_ = (np.bincount(codes[inside[what == f]], weights[inside[what == f]], 3) for f in (1, 2))
            np.testing.assert_array_equal(found[b], [on[parent] + sure, open_])
        expected += inside[fates == 2].tolist()
        assert ends[b] == len(expected)
    assert used == len(expected)
    assert inner[:used].tolist() == expected


@given(seed=seeds, n=st.integers(2, 12), aspect=st.sampled_from([1.0, 8.0, 64.0]))
def test_boxes_are_ordered_along_the_strip_in_units_of_the_rows_that_turn(seed, n, aspect):
    rng = np.random.default_rng(seed)
    boxes = np.hstack([rng.normal(size=(n, 2)) * [1.0, 20.0], np.full((n, 2), 1e-3), np.ones((n, 2))])
    order = _along_rows(boxes, aspect)
    assert sorted(order.tolist()) == list(range(n))
    corners = np.vstack([boxes[:, :2] + 1e-3 * np.array(sign) for sign in product((-1, 1), repeat=2)]) / [1.0, aspect]
    longest = np.linalg.svd(corners - corners.mean(axis=0))[2][0]
    steps = np.diff(boxes[order, :2] / [1.0, aspect] @ longest)
    assert (steps >= -1e-9).all() or (steps <= 1e-9).all()


@given(seed=seeds, n=st.integers(1, 8), size=st.sampled_from([0.5, 1.0, 2.0, 4.0]))
def test_a_strip_inside_a_square_holds_the_boxes_or_there_is_none(seed, n, size):
    rng = np.random.default_rng(seed)
    boxes = np.hstack([rng.normal(size=(n, 2)), rng.uniform(0.0, 0.2, (n, 2))])
    strip, needed = Strip.inside(boxes, size), float((np.abs(boxes[:, :2]) + boxes[:, 2:]).max())
    if strip is None:
        assert needed * (1.0 + 1e-5) > size
        return
    assert needed <= size * (1.0 + 1e-9)
    corners = np.vstack([boxes[:, :2] + boxes[:, 2:] * np.array(sign) for sign in product((-1, 1), repeat=2)])
    inside = np.linalg.solve(strip.axes, (corners - strip.centre).T)
    assert (np.abs(inside) <= 1.0).all()
    ends = [strip.centre + strip.axes @ np.array(sign) for sign in product((-1.0, 1.0), repeat=2)]
    assert np.abs(ends).max() <= size * (1.0 + 1e-9)
    assert abs(np.abs(ends).max() - strip.reach) <= 1e-9 * size
