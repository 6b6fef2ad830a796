from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.engines._kernels import (
    BLOCK,
    DELICATE,
    LINE,
    MARGIN,
    NONE,
    Form,
    _count_one_word,
    add_dense,
    count_atoms,
    count_words,
    cut_strip,
    distance_bin,
    line_in_plane,
    line_of,
    most_in_box,
    place_breakpoints,
    place_distances,
    place_lines,
    sum_from_each_on,
    sums_at_place,
)
from evenhand.engines.distances import EDGES, HALF, ROW, Grid
from evenhand.engines.gathering import Sample
from kernels import covers

seeds = st.integers(0, 2**32 - 1)


def expected_counts(words, masks, payload, rows):
    """Return {masked words: (number of rows, sums)}, row by row."""
    found = defaultdict(lambda: [0, np.zeros(payload.shape[1])])
    for i, row in enumerate(words & masks):
        found[tuple(row)][0] += 1 if len(rows) == 0 else rows[i]
        found[tuple(row)][1] += payload[i]
    return found


def check_table(table, sums, used, expected):
    filled = table[:, 0] > 0
    assert filled.sum() == used == len(expected)
    for (count, *key), added in zip(table[filled], sums[filled], strict=True):
        assert count == expected[tuple(key)][0]
        np.testing.assert_allclose(added, expected[tuple(key)][1], atol=1e-12)


@covers(count_words)
@given(seed=seeds, n=st.integers(0, 80), width=st.integers(1, 3), columns=st.integers(0, 2), counted=st.booleans())
def test_count_words_counts_rows_with_the_same_masked_words(seed, n, width, columns, counted):
    rng = np.random.default_rng(seed)
    words, masks = rng.integers(-4, 5, (n, width)) << 31, np.full(width, ~np.int64(1 << 31))
    payload, rows = rng.normal(size=(n, columns)), rng.integers(1, 5, n if counted else 0)
    table, sums = np.zeros((256, 1 + width), dtype=np.int64), np.zeros((256, columns))
    done, used = count_words(words, masks, payload, rows, 0, 200, table, sums, 0)
    assert done == n
    check_table(table, sums, used, expected_counts(words, masks, payload, rows))


@covers(_count_one_word)
@given(seed=seeds, n=st.integers(0, 80), limit=st.integers(1, 9))
def test_count_one_word_stops_before_the_row_that_would_be_one_cell_too_many(seed, n, limit):
    words = np.random.default_rng(seed).integers(-6, 7, (n, 1))
    table = np.zeros((16, 2), dtype=np.int64)
    done, used = _count_one_word(words, np.int64(-1), 0, limit, table, 0)
    assert done == n or len({*words[: done + 1, 0]}) == limit + 1
    nothing = np.zeros((done, 0))
    check_table(table, np.zeros((16, 0)), used, expected_counts(words[:done], np.int64(-1), nothing, []))


@covers(add_dense)
@given(seed=seeds, n=st.integers(0, 50), weighted=st.booleans())
def test_add_dense_adds_each_weight_to_its_place(seed, n, weighted):
    rng = np.random.default_rng(seed)
    words, weights = rng.integers(0, 7, n), rng.normal(size=n)
    counts = np.zeros(7, dtype=float if weighted else np.int64)
    add_dense(words, weights if weighted else np.zeros(0), counts)
    np.testing.assert_allclose(counts, np.bincount(words, weights if weighted else None, 7), atol=1e-12)


@covers(distance_bin)
@given(distance=st.floats(-1e6, 1e6), size=st.floats(1e-3, 1e3))
def test_distance_bin_is_the_bin_between_two_edges(distance, size):
    place = distance_bin(distance * size, size, HALF)
    near = 1e-9 * (1.0 + distance**2)  # far from 0, bins are as wide as the square of the distance
    assert EDGES[place] - near <= distance <= EDGES[place + 1] + near
    assert (np.diff(EDGES) > 0.0).all()
    assert len(EDGES) == ROW


def form_of(weights, constants=(0.1, -0.2)):
    """Return a form of some contrasts that are sums of some scores, and the margin 2 s0 - 1."""
    constants = np.array(constants)
    sizes = np.abs(weights), np.abs(constants)
    return Form(2.0, 1.0, weights, constants, *sizes, sizes[0].sum() + sizes[1].sum(), 1e-12, 1e-13, 2.0**-12)


@covers(line_of, line_in_plane)
@given(seed=seeds)
def test_line_of_gives_margin_and_contrasts_as_matrix_products_do(seed):
    rng = np.random.default_rng(seed)
    form, scores, contrasts = form_of(rng.normal(size=(2, 3))), rng.random((4, 9)), np.empty(2)
    for i in range(9):
        margin, size, fate = line_of(scores, i, form, contrasts)
        assert margin == 2.0 * scores[0, i] - 1.0
        np.testing.assert_allclose(contrasts, form.weights @ scores[1:, i] + form.constants, atol=1e-12)
        assert size == np.abs(contrasts).sum()
        assert fate == LINE
        assert line_in_plane(scores, i, form) == (margin, *contrasts, LINE)


def test_rows_without_a_line_are_set_apart():
    weights = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
    scores = np.array([[0.9, 0.1, 0.9, 0.9], [0.3, 0.3, 0.3, 0.3], [0.3, 0.3, 0.3 + 1e-9, 0.2], [0.3, 0.3, 0.3, 0.3]])
    form = form_of(weights, (0.0, 0.0))
    fates = [line_of(scores, i, form, np.empty(2))[2] for i in range(4)]
    assert fates == [line_in_plane(scores, i, form)[3] for i in range(4)] == [NONE, NONE, DELICATE, LINE]
    grid, places = Grid(256), np.empty(4, dtype=np.int64)
    place_lines(scores, form, np.zeros(2), (256, 1.0), HALF, places)
    assert places[:3].tolist() == [grid.never + 1, grid.never, grid.delicate]
    assert places[3] < grid.places
    place_distances(scores, form, np.zeros(2), HALF, places)
    assert places[:3].tolist() == [Grid(1).never + 1, Grid(1).never, Grid(1).delicate]
    place_breakpoints(scores, form_of(weights[:1], (0.0,)), 0.0, 1.0, 8, (0.0, 0.0), places)
    assert places[:3].tolist() == [17, 16, 18]
    assert places[3] < 16


def lines(seed, n=300):
    """Return scores, their form and a centre, and the level and the contrasts of each row there."""
    rng = np.random.default_rng(seed)
    form, scores, centre = form_of(rng.normal(size=(2, 3))), rng.random((4, n)), 0.3 * rng.normal(size=2)
    scores[:, ::10] = 0.5  # rows that are alike
    contrasts = (form.weights @ scores[1:]).T + form.constants
    return scores, form, centre, 2.0 * scores[0] - 1.0 - contrasts @ centre, contrasts


@covers(place_lines)
@given(seed=seeds, directions=st.sampled_from([64, 512]), aspect=st.sampled_from([1.0, 7.0]))
def test_place_lines_gives_directions_and_distances(seed, directions, aspect):
    scores, form, centre, level, contrasts = lines(seed)
    places = np.empty(len(level), dtype=np.int64)
    place_lines(scores, form, centre, (directions, aspect), HALF, places)
    direction, place = np.divmod(places, ROW)
    assert (direction >= 0).all()
    assert (direction < directions).all()
    size = np.abs(contrasts).max(axis=1)
    grid = Grid(directions, aspect)
    off = np.abs(grid.units[direction] - contrasts / size[:, None])
    assert (off <= np.column_stack([grid.fuzz(1.0, 0.0), grid.fuzz(0.0, 1.0)])[direction] + 1e-12).all()
    assert (EDGES[place] <= level / size + 1e-9 * (1.0 + (level / size) ** 2)).all()
    assert (level / size <= EDGES[place + 1] + 1e-9 * (1.0 + (level / size) ** 2)).all()


@covers(place_distances)
@given(seed=seeds)
def test_place_distances_are_in_units_of_all_contrasts(seed):
    scores, form, centre, level, contrasts = lines(seed)
    places = np.empty(len(level), dtype=np.int64)
    place_distances(scores, form, centre, HALF, places)
    distance = level / np.abs(contrasts).sum(axis=1)
    assert (EDGES[places] <= distance + 1e-9 * (1.0 + distance**2)).all()
    assert (distance <= EDGES[places + 1] + 1e-9 * (1.0 + distance**2)).all()


@covers(place_breakpoints)
@given(seed=seeds, unit=st.sampled_from([0.5, 2.0]), centre=st.sampled_from([0.0, -0.3]))
def test_place_breakpoints_bins_them_by_the_way_rows_turn(seed, unit, centre):
    rng = np.random.default_rng(seed)
    scores, form = rng.random((3, 100)), form_of(rng.normal(size=(1, 2)), (0.05,))
    margin, contrast = 2.0 * scores[0] - 1.0, form.weights[0] @ scores[1:] + 0.05
    places = np.empty(100, dtype=np.int64)
    place_breakpoints(scores, form, centre, unit, 64, (0.0, 0.0), places)
    line = np.abs(contrast) > 1e-2
    assert ((places >= 64) == (contrast < 0.0))[line].all()
    distance = margin / contrast - centre
    share = distance / (unit + np.abs(distance))
    assert (np.abs((places % 64 + 0.5) / 32 - 1.0 - share)[line] <= 1 / 64 + 1e-9).all()


@given(seed=seeds, centre=st.sampled_from([0.0, -0.3]), reach=st.sampled_from([0.0, 3.0]))
def test_place_breakpoints_tells_how_delicate_rows_are_decided_near_the_centre(seed, centre, reach):
    rng = np.random.default_rng(seed)
    scores = np.vstack([rng.choice([0.0, 0.5, 1.0], 60) + rng.normal(0.0, 1e-9, 60), np.ones(60)])
    # The contrast is what is left of two terms that are nearly equal.
    form = form_of(np.array([[1.0]]), (-1.0 + 2.0**-28,))
    margin, contrast = 2.0 * scores[0] - 1.0, 2.0**-28
    places = np.empty(60, dtype=np.int64)
    place_breakpoints(scores, form._replace(delicate=2.0**-26), centre, 1.0, 64, (reach, 1e-8), places)
    lowest, highest = margin - centre * contrast - reach * contrast, margin - centre * contrast + reach * contrast
    expected = np.where(lowest > 1e-8, 132, np.where(highest < -1e-8, 131, 130))
    assert places.tolist() == (expected if reach else np.full(60, 130)).tolist()


@covers(count_atoms)
@given(seed=seeds, weighted=st.booleans(), n=st.sampled_from([1, 60, BLOCK, BLOCK + 1, 2 * BLOCK + 60]))
def test_count_atoms_counts_sound_rows_and_draws_by_a_hash(seed, weighted, n):
    rng = np.random.default_rng(seed)
    limit, deviations = 1 << 29, np.array([1e-9, 1e-6, 1e-3])
    first = rng.random(n)
    scores = np.vstack([rng.random(n), first, 1.0 - first + rng.choice([0.0, 1e-7, 1e-4, 1e-2], n)])
    scores[0, ::11], scores[0, ::13], scores[1, ::17] = np.nan, 1.5, rng.choice([np.inf, -np.inf, np.nan, -0.5])
    scores[2] = np.minimum(scores[2], 1.0)
    codes, weights = (
        rng.integers(0, 5, n),
        rng.choice([0.5, 2.0, -1.0], n, p=[0.5, 0.4, 0.1]) if weighted else np.empty(0),
    )
    counts, sums = np.zeros((4, 2, 5), dtype=np.int64), np.zeros((4, 2, 5))
    drawn = np.zeros((2, n), dtype=np.int64)
    parts = np.array([[1, 3]])
    found = count_atoms(
        scores, scores.view(np.uint64), codes, weights, parts, deviations, (2.0, 1.0), limit, counts, sums, drawn
    )
    flaw = np.searchsorted(deviations, np.abs(scores[1] + scores[2] - 1.0))
    sound = ((scores >= 0.0) & (scores <= 1.0)).all(axis=0) & (flaw < 3)
    sound &= weights >= 0.0 if weighted else True
    expected, added = np.zeros((4, 2, 5), dtype=np.int64), np.zeros((4, 2, 5))
    place = flaw[sound], (scores[0, sound] > 0.5).astype(int), codes[sound]
    np.add.at(expected, place, 1)
    np.add.at(added, place, weights[sound] if weighted else 0.0)
    expected[3, 0, 0] = (~sound).sum()
    assert (counts == expected).all()
    np.testing.assert_allclose(sums, added if weighted else 0.0)
    names = ("s0", "s1", "s2")
    kept = Sample(0.5, names).keep(dict(zip(names, scores, strict=True)))
    assert drawn[0, :found].tolist() == np.flatnonzero(kept & sound).tolist()
    assert (drawn[1, :found] < limit).all()


@covers(cut_strip)
@given(seed=seeds, weighted=st.booleans(), bins=st.integers(20, 600))
def test_cut_strip_keeps_the_rows_that_turn_in_the_strip_and_sums_the_others(seed, weighted, bins):
    scores, form, centre, _, contrasts = lines(seed)
    rng = np.random.default_rng(seed)
    codes, weights = rng.integers(0, 4, 300), rng.integers(1, 4, 300).astype(float)
    point, axes = centre + 0.01 * rng.normal(size=2), 0.01 * rng.normal(size=(2, 2))
    sure, kept = np.zeros(4), np.zeros(300, dtype=bool)
    rows = scores, codes, weights if weighted else np.empty(0)
    total = cut_strip(rows, form, (centre, point, axes), bins, HALF, sure, kept)
    places = np.empty(300, dtype=np.int64)
    place_lines(scores, form, centre, (64, 1.0), HALF, places)
    inside = (places % ROW >= HALF - bins) & (places % ROW < HALF + bins)
    weight = weights if weighted else np.ones(300)
    assert total == weight[inside].sum()
    assert not kept[~inside].any()
    corners = [point + axes @ [a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
    decided = np.array([2.0 * scores[0] - 1.0 - contrasts @ corner > 0.0 for corner in corners])
    changing = decided.any(axis=0) != decided.all(axis=0)
    assert (kept[inside] >= changing[inside]).all()
    constant = inside & ~kept
    expected = np.bincount(codes[constant & decided[0]], weight[constant & decided[0]], 4)
    np.testing.assert_allclose(sure, expected)


def counted(seed, grid, n=400):
    """Return random lines, their kinds, and the sums of each kind from each bin on."""
    rng = np.random.default_rng(seed)
    level, first, second = rng.normal(size=(3, n)) * [[0.3], [1.0], [1.0]]
    kind = rng.integers(0, 3, n)
    form = Form(1.0, 0.0, np.eye(2), np.zeros(2), np.eye(2), np.zeros(2), 2.0, 0.0, 0.0, 0.0)
    places = np.empty(n, dtype=np.int64)
    place_lines(np.vstack([level, first, second]), form, np.zeros(2), (grid.directions, grid.aspect), HALF, places)
    above = np.zeros((grid.directions, ROW, 3))
    np.add.at(above.reshape(-1), places * 3 + kind, 1.0)
    whole = above.copy()
    sum_from_each_on(above)
    return (level, first, second, kind), whole, above


@covers(sum_from_each_on)
@given(seed=seeds)
def test_sum_from_each_on_sums_what_follows(seed):
    _, whole, above = counted(seed, Grid(64))
    np.testing.assert_allclose(above, np.cumsum(whole[:, ::-1], axis=1)[:, ::-1])


@covers(sums_at_place)
@given(seed=seeds)
def test_sums_at_place_are_right_up_to_what_they_say(seed):
    rng = np.random.default_rng(seed)
    grid = Grid(256, 3.0)
    (level, first, second, kind), _, above = counted(seed, grid)
    place = rng.normal(size=2)
    on, unsure = np.empty(3), np.empty(3)
    sums_at_place(above, grid.units, place, grid.fuzz(*np.abs(place)) + MARGIN, HALF, on, unsure)
    truth = np.bincount(kind[level > first * place[0] + second * place[1]], minlength=3)
    assert (np.abs(on - truth) <= unsure).all()
    assert unsure.sum() < 100


@covers(most_in_box)
@given(seed=seeds, far=st.booleans())
def test_no_rule_in_a_box_makes_more_of_prices_than_most_in_box(seed, far):
    rng = np.random.default_rng(seed)
    grid, prices = Grid(64, rng.choice([1.0, 5.0])), rng.choice([-1.0, 0.7, 1.0], (2, 3))
    (level, first, second, kind), _, above = counted(seed, grid)
    box = np.array([*rng.normal(size=2), *rng.uniform(0.0, 0.2, 2), 1.0, 1.0])
    if far:
        box = np.array([rng.choice([-1.0, 1.0]), rng.uniform(-0.8, 0.8), 0.0, 0.2, 1.0, rng.choice([2.0, np.inf])])
    fuzz = grid.fuzz(*(np.abs(box[:2]) + box[2:4])) + MARGIN
    most = np.empty(2)
    most_in_box(above, prices, EDGES, grid.units, box, fuzz, not far, most)
    for _ in range(40):
        distance = 1.0 if not far else rng.uniform(1.0, min(box[5], 50.0))
        z = (box[:2] + box[2:4] * rng.uniform(-1.0, 1.0, 2)) * distance
        on = level > first * z[0] + second * z[1]
        assert (prices[:, kind[on]].sum(axis=1) <= most + 1e-9).all()
