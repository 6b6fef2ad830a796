"""A linear rule on many rows: margins or decisions, in parts that several threads share."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.inputs import FloatArray
from evenhand.rules import scores
from evenhand.rules.events import AttributeKey, Stratified
from evenhand.search.kernels.margin import four_column_decisions, linear_margin

ROWS_A_THREAD, ROWS_IN_CACHE = 500_000, 2**15


def evaluate(
    intercept: float,
    slope: float,
    coefficients: Mapping[AttributeKey, FloatArray],
    p: FloatArray,
    columns: Mapping[AttributeKey, FloatArray],
    out: NDArray[Any],
) -> int:
    """Fill ``out`` with margins, or with 1 where they are above 0; return the first row with an invalid score."""
    attributes = list(columns.items()) or [("", np.ones((len(p), 1)))]

    def fill(start: int, stop: int, margins: FloatArray) -> int:
        source, constant, factor = p[start:stop], intercept, slope
        bad = -1
        for position, (name, array) in enumerate(attributes):
            flat = scores.flat(array[start:stop])
            weights = coefficients[name].reshape(-1) if name in coefficients else np.zeros(1)
            checks = position == 0, isinstance(name, Stratified)
            worst = linear_margin(constant, factor, source, flat, weights, *checks, margins)
            bad = worst if bad < 0 else bad
            source, constant, factor = margins, 0.0, 1.0
        return bad if bad < 0 else bad + start

    name, array = attributes[0]
    alone = len(p) > ROWS_IN_CACHE and len(attributes) == 1 and not isinstance(name, Stratified)
    four = alone and math.prod(array.shape[1:]) == 4
    weights = coefficients[name].reshape(-1) if four else np.zeros(0)

    def part(start: int, stop: int) -> int:
        if out.dtype == np.float64:
            return fill(start, stop, out[start:stop])
        if four and stop - start > ROWS_IN_CACHE:
            source = p[start:stop], scores.flat(array[start:stop])
            if four_column_decisions(intercept, slope, *source, weights, out[start:stop]):
                return -1
        worst = []
        for first in range(start, stop, ROWS_IN_CACHE):
            last = min(first + ROWS_IN_CACHE, stop)
            worst.append(fill(first, last, margins := np.empty(last - first)))
            np.greater(margins, 0.0, out=out[first:last], casting="unsafe")
        return next((bad for bad in worst if bad >= 0), -1)

    starts = range(0, len(p), ROWS_A_THREAD)
    if len(starts) <= 1:
        return part(0, len(p))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda start: part(start, min(start + ROWS_A_THREAD, len(p))), starts))
    return next((bad for bad in found if bad >= 0), -1)
