"""The compiled loop that counts rows by their words."""

from __future__ import annotations

import numpy as np

from evenhand._compiled import njit

_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@njit(cache=True, nogil=True)
def _count_one_word(words, mask, start, limit, table, used):
    """Do what :func:`count_words` does for rows without weights whose scores fit in one word: nearly all data."""
    last = len(table) - 1
    for i in range(start, len(words)):
        key = words[i, 0] & mask
        mixed = np.uint64(key) * _MIX
        mixed ^= mixed >> _HALF
        slot = np.int64((mixed * _MIX) >> _HALF) & last
        while table[slot, 0] != 0 and table[slot, 1] != key:
            slot = (slot + 1) & last
        if table[slot, 0] == 0:
            if used == limit:
                return i, used
            used += 1
            table[slot, 1] = key
        table[slot, 0] += 1
    return len(words), used


@njit(cache=True, nogil=True)
def count_words(words, masks, payload, rows, start, limit, table, sums, used):
    """Add rows to a hash table of (words & masks); return where it stopped and how many cells there are.

    A slot of ``table`` (slots, 1 + W) is the number of rows, 0 where it is free, and the masked words; ``sums``
    (slots, V) has what ``payload`` (n, V) adds up to. An empty ``rows`` stands for ones. The loop stops before the
    row that would make more than ``limit`` cells.
    """
    width = words.shape[1]
    columns = payload.shape[1]
    single = len(rows) == 0
    if width == 1 and columns == 0 and single:
        return _count_one_word(words, masks[0], start, limit, table, used)
    last = len(table) - 1
    key = np.empty(width, np.int64)
    for i in range(start, len(words)):
        mixed = np.uint64(0)
        for j in range(width):
            key[j] = words[i, j] & masks[j]
            mixed = (mixed ^ np.uint64(key[j])) * _MIX
            # A product's low bits know nothing of the factors' high bits: fold them back.
            mixed ^= mixed >> _HALF
        slot = np.int64((mixed * _MIX) >> _HALF) & last
        while table[slot, 0] != 0:
            same = True
            for j in range(width):
                if table[slot, 1 + j] != key[j]:
                    same = False
                    break
            if same:
                break
            slot = (slot + 1) & last
        if table[slot, 0] == 0:
            if used == limit:
                return i, used
            used += 1
            for j in range(width):
                table[slot, 1 + j] = key[j]
        table[slot, 0] += 1 if single else rows[i]
        for j in range(columns):
            sums[slot, j] += payload[i, j]
    return len(words), used
