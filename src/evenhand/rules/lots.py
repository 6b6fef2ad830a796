"""Reproducible random draws ("lots"): a number in [0, 1) for each key, the same in every language.

A key is a whole number or a text that identifies a person. The lot is computed only with whole numbers below 2^62, so
that SQL and ONNX reproduce it exactly: the key is reduced modulo the prime 2^31 - 69, then twice multiplied, shifted
and cubed modulo that prime. Each of these steps is a permutation. Consecutive keys, or the keys of one group, get lots
that behave like independent ones. Anyone who knows a key can compute its lot.

A text that spells a whole number, such as "123", has the lot of that number, so it does not matter whether a table
contains numbers or text. "0123" and " 123" are different texts. Any other text is represented by the first 60 bits of
its MD5.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import shown
from evenhand.errors import InputError
from evenhand.inputs import FloatArray, as_column
from evenhand.rules.events import AttributeKey

PRIME = 2**31 - 69
HIGH_WORDS = 1_103_515_245
ROUNDS = ((1_588_635_695, 1_013_904_223), (1_223_106_847, 1_583_458_089))
SCORE_STEPS = 2.0**30
LARGEST_KEY = 2**62 - 1
MD5_DIGITS = 15
_WHOLE = re.compile("0|[1-9][0-9]{0,18}")

Keys = NDArray[np.int64]


def lots(key: Any, n: int) -> FloatArray:
    """Return a number in [0, 1) for each key.

    Parameters
    ----------
    key : array of shape (n,)
        Non-negative whole numbers, or texts.
    n : int
        The expected number of keys.

    Examples
    --------
    >>> from evenhand.rules.lots import lots
    >>> lots([1, 2, 3], 3).round(4).tolist()
    [0.4396, 0.9506, 0.0348]
    """
    return draw(key_numbers(key, n))


def draw(numbers: Keys) -> FloatArray:
    """Return the lots of non-negative whole numbers."""
    mixed = (numbers % PRIME + HIGH_WORDS * (numbers // PRIME % PRIME)) % PRIME
    for factor, shift in ROUNDS:
        mixed = (factor * mixed + shift) % PRIME
        mixed = mixed * mixed % PRIME * mixed % PRIME
    drawn: FloatArray = mixed / PRIME
    return drawn


def keys_of_scores(p_y: FloatArray, p_group: Mapping[AttributeKey, FloatArray], names: Sequence[AttributeKey]) -> Keys:
    """Return a key for each row from its scores, rounded down to parts of 2^-30: equal scores get equal lots."""
    columns = [p_y, *(column for name in names for column in p_group[name].reshape(len(p_y), -1).T)]
    key = np.zeros(len(p_y), dtype=np.int64)
    for column in columns:
        key = (HIGH_WORDS * key + np.floor(column * SCORE_STEPS).astype(np.int64)) % PRIME
    return key


def key_numbers(key: Any, n: int) -> Keys:
    """Return the whole number that represents each key, as :func:`draw` and an ONNX graph expect it.

    Parameters
    ----------
    key, n
        As in :func:`lots`.

    Examples
    --------
    >>> from evenhand.rules.lots import key_numbers
    >>> key_numbers(["17", "customer 17"], 2).tolist()
    [17, 66757631787864896]
    """
    column = as_column(key, "key")
    if len(column) != n:
        raise InputError(f"key has {len(column)} rows, but there are {n} to decide: give one key for each.")
    if column.dtype.kind in "iu" or (column.dtype == object and all(map(_is_whole, column))):
        if len(column) and (int(column.min()) < 0 or int(column.max()) > LARGEST_KEY):
            raise InputError(f"key must have whole numbers from 0 to 2^62 - 1, or texts; got {shown(column.tolist())}.")
        return column.astype(np.int64)
    if column.dtype.kind in "U" or (column.dtype == object and all(isinstance(item, str) for item in column)):
        return np.array([_number_of(text) for text in column.tolist()], dtype=np.int64)
    raise InputError(
        f"key must have a whole number or a text in each row, such as a customer number; got {shown(column.tolist())}."
    )


def _is_whole(item: Any) -> bool:
    return isinstance(item, int | np.integer) and not isinstance(item, bool)


def _number_of(text: str) -> int:
    if _WHOLE.fullmatch(text) and int(text) <= LARGEST_KEY:
        return int(text)
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return int(digest[:MD5_DIGITS], 16)
