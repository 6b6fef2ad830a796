from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.engines._kernels import (
    MARGIN,
    Form,
    _count_one_word,
    add_dense,
    count_words,
    cut_strip,
    distance_bin,
    line_of,
    most_in_box,
    place_lines,
    sum_from_each_on,
    sums_at_place,
)
from evenhand.engines.distances import EDGES, HALF, ROW, SCALES, Grid
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
@given(distance=st.floats(-40.0, 40.0))
def test_distance_bin_is_the_bin_between_two_edges(distance):
    place = distance_bin(distance, SCALES)
    assert EDGES[place] - 1e-12 <= distance <= EDGES[place + 1] + 1e-12
    assert (np.diff(EDGES) > 0.0).all()
    assert len(EDGES) == ROW


def form_of(weights, constants=(0.1, -0.2)):
    """Return a form of two contrasts that are sums of some scores, and the margin 2 s0 - 1."""
    constants = np.array(constants)
    return Form(2.0, 1.0, weights, constants, np.abs(weights), np.abs(constants), 1e-12, 1e-13, 2.0**-12)


@covers(line_of)
@given(seed=seeds)
def test_line_of_gives_margin_and_contrasts_as_matrix_products_do(seed):
    rng = np.random.default_rng(seed)
    form, scores, contrasts = form_of(rng.normal(size=(2, 3))), rng.random((4, 9)), np.empty(2)
    for i in range(9):
        margin, size, terms, none = line_of(scores, i, form, contrasts)
        assert margin == 2.0 * scores[0, i] - 1.0
        np.testing.assert_allclose(contrasts, form.weights @ scores[1:, i] + form.constants, atol=1e-12)
        assert size == np.abs(contrasts).sum()
        assert abs(terms - (form.sizes @ scores[1:, i] + form.size_constants).sum()) < 1e-12
        assert not none


def lines(seed, n=300):
    """Return scores, their form and a centre, and the level and the contrasts of each row there."""
    rng = np.random.default_rng(seed)
    form, scores, centre = form_of(rng.normal(size=(2, 3))), rng.random((4, n)), 0.3 * rng.normal(size=2)
    scores[:, ::10] = 0.5  # rows that are alike
    contrasts = (form.weights @ scores[1:]).T + form.constants
    return scores, form, centre, 2.0 * scores[0] - 1.0 - contrasts @ centre, contrasts


@covers(place_lines)
@given(seed=seeds, directions=st.sampled_from([1, 64, 512]))
def test_place_lines_gives_directions_and_distances(seed, directions):
    scores, form, centre, level, contrasts = lines(seed)
    places = np.empty(len(level), dtype=np.int64)
    place_lines(scores, form, centre, directions, SCALES, places)
    direction, place = np.divmod(places, ROW)
    assert (direction >= 0).all()
    assert (direction < directions).all()
    size = np.abs(contrasts).sum(axis=1)
    if directions > 1:
        grid = Grid(directions)
        assert np.abs(grid.units[direction] - contrasts / size[:, None]).sum(axis=1).max() <= grid.fuzz
    assert (EDGES[place] <= level / size + 1e-12).all()
    assert (level / size <= EDGES[place + 1] + 1e-12).all()


def test_place_lines_sets_rows_without_a_line_apart():
    weights = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
    scores = np.array([[0.9, 0.1, 0.9, 0.9], [0.3, 0.3, 0.3, 0.3], [0.3, 0.3, 0.3 + 1e-9, 0.2], [0.3, 0.3, 0.3, 0.3]])
    places = np.empty(4, dtype=np.int64)
    place_lines(scores, form_of(weights, (0.0, 0.0)), np.zeros(2), 256, SCALES, places)
    grid = Grid(256)
    assert places[:3].tolist() == [grid.never + 1, grid.never, grid.delicate]
    assert places[3] < grid.places


@covers(cut_strip)
@given(seed=seeds, weighted=st.booleans(), bins=st.integers(500, 2600))
def test_cut_strip_keeps_the_rows_that_turn_in_the_strip_and_sums_the_others(seed, weighted, bins):
    scores, form, centre, _, contrasts = lines(seed)
    rng = np.random.default_rng(seed)
    codes, weights = rng.integers(0, 4, 300), rng.integers(1, 4, 300).astype(float)
    point, axes = centre + 0.01 * rng.normal(size=2), 0.01 * rng.normal(size=(2, 2))
    sure, kept = np.zeros(4), np.zeros(300, dtype=bool)
    rows = scores, codes, weights if weighted else np.empty(0)
    total = cut_strip(rows, form, (centre, point, axes), bins, SCALES, sure, kept)
    places = np.empty(300, dtype=np.int64)
    place_lines(scores, form, centre, 64, SCALES, places)
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
    form = Form(1.0, 0.0, np.eye(2), np.zeros(2), np.eye(2), np.zeros(2), 0.0, 0.0, 0.0)
    places = np.empty(n, dtype=np.int64)
    place_lines(np.vstack([level, first, second]), form, np.zeros(2), grid.directions, SCALES, places)
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
    grid = Grid(256)
    (level, first, second, kind), _, above = counted(seed, grid)
    place = rng.normal(size=2)
    on, unsure = np.empty(3), np.empty(3)
    sums_at_place(above, grid.units, place, grid.fuzz * np.abs(place).max() + MARGIN, SCALES, on, unsure)
    truth = np.bincount(kind[level > first * place[0] + second * place[1]], minlength=3)
    assert (np.abs(on - truth) <= unsure).all()
    assert unsure.sum() < 100


@covers(most_in_box)
@given(seed=seeds, far=st.booleans())
def test_no_rule_in_a_box_makes_more_of_prices_than_most_in_box(seed, far):
    rng = np.random.default_rng(seed)
    grid, prices = Grid(64), rng.choice([-1.0, 0.7, 1.0], (2, 3))
    (level, first, second, kind), _, above = counted(seed, grid)
    box = np.array([*rng.normal(size=2), *rng.uniform(0.0, 0.2, 2), 1.0, 1.0])
    if far:
        box = np.array([rng.choice([-1.0, 1.0]), rng.uniform(-0.8, 0.8), 0.0, 0.2, 1.0, rng.choice([2.0, np.inf])])
    fuzz = grid.fuzz * (1.0 if far else float(np.abs(box[:2]).max() + box[2:4].max()))
    most = np.empty(2)
    most_in_box(above, prices, EDGES, grid.units, box, fuzz, not far, SCALES, most)
    for _ in range(40):
        distance = 1.0 if not far else rng.uniform(1.0, min(box[5], 50.0))
        z = (box[:2] + box[2:4] * rng.uniform(-1.0, 1.0, 2)) * distance
        on = level > first * z[0] + second * z[1]
        assert (prices[:, kind[on]].sum(axis=1) <= most + 1e-9).all()
