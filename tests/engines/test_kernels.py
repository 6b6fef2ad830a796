from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.engines._kernels import _count_one_word, count_words
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
