from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.engines._kernels import (
    _count_one_word,
    add_dense,
    count_words,
    distance_bin,
    most_in_box,
    place_rows,
)
from evenhand.engines.distances import BINS, EDGES, SCALES, Grid
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
    place = distance_bin(distance, *SCALES)
    assert EDGES[place] - 1e-12 <= distance <= EDGES[place + 1] + 1e-12


@covers(place_rows)
@given(seed=seeds, directions=st.sampled_from([2, 64, 512]))
def test_place_rows_gives_directions_and_distances(seed, directions):
    rng = np.random.default_rng(seed)
    level, first, second = rng.normal(size=(3, 30))
    places = np.empty(30, dtype=np.int64)
    place_rows(level, first, second, directions, *SCALES, places)
    assert (places >= 0).all()
    direction, place = np.divmod(places, len(EDGES) - 1)
    size = np.abs(first) + np.abs(second)
    unit = np.column_stack([first, second]) / size[:, None]
    if directions > 2:
        assert np.abs(Grid(directions).units[direction] - unit).sum(axis=1).max() <= Grid(directions).fuzz
    assert (EDGES[place] <= level / size).all()
    assert (level / size <= EDGES[place + 1]).all()


@covers(most_in_box)
@given(seed=seeds, far=st.booleans())
def test_no_rule_in_a_box_makes_more_of_prices_than_most_in_box(seed, far):
    rng = np.random.default_rng(seed)
    grid, n = Grid(64), 400
    level, first, second = rng.normal(size=(3, n)) * [[0.3], [1.0], [1.0]]
    price = rng.choice([-1.0, 0.7, 1.0], n)
    places = np.empty(n, dtype=np.int64)
    place_rows(level, first, second, grid.directions, *SCALES, places)
    worth = np.zeros((2, grid.directions, BINS))
    np.add.at(worth[0].reshape(-1), places, price)
    np.add.at(worth[1].reshape(-1), places, np.maximum(price, 0.0))
    sums = np.zeros((2, grid.directions, BINS + 1))
    sums[:, :, :-1] = np.cumsum(worth[:, :, ::-1], axis=2)[:, :, ::-1]
    box = np.array([*rng.normal(size=2), *rng.uniform(0.0, 0.2, 2), 1.0, 1.0])
    if far:
        box = np.array([rng.choice([-1.0, 1.0]), rng.uniform(-0.8, 0.8), 0.0, 0.2, 1.0, rng.choice([2.0, np.inf])])
    fuzz = grid.fuzz * (1.0 if far else float(np.abs(box[:2]).max() + box[2:4].max()))
    most = most_in_box(*sums.astype(np.float32), EDGES, grid.units, box, fuzz, not far, SCALES)
    for _ in range(40):
        distance = 1.0 if not far else rng.uniform(1.0, min(box[5], 50.0))
        z = (box[:2] + box[2:4] * rng.uniform(-1.0, 1.0, 2)) * distance
        assert price[level > first * z[0] + second * z[1]].sum() <= most + 1e-3
