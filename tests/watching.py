"""How often is a watch wrong, and how soon does it see a violation? Many streams with known rates.

The looks of a whole stream are judged at once, from cumulative counts and with the functions that a watch calls;
``tests/auditing/test_watch.py`` holds that a watch itself says the same at every look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.statistics.intervals import newcombe_interval, pairs_of
from evenhand.statistics.sequences import linear_sequences, restart_share, sequence_at

TOLERANCE, CONFIDENCE, WINDOW, BLOCKS = 0.05, 0.95, 10_000, 5


@dataclass(frozen=True)
class Stream:
    """Cells (label by group) with their shares of the rows, and which cells are compared."""

    name: str
    groups: int
    shares: np.ndarray
    rates: np.ndarray
    pairs: np.ndarray

    def with_gap(self, gap):
        """Return the cells' rates where the last group is behind the others by so much."""
        rates = self.rates.copy()
        rates[self.groups - 1 :: self.groups] -= gap
        return rates

    def counts(self, rng, gap, looks, rows):
        """Return cumulative rows and positive decisions of each cell at each look; the gap may differ by look."""
        trials = rng.multinomial(rows, self.shares, size=looks)
        rates = np.array([self.with_gap(g) for g in np.broadcast_to(gap, looks)])
        return trials.cumsum(axis=0), rng.binomial(trials, rates).cumsum(axis=0)


def _pairs(groups, labels):
    one = pairs_of(groups).toarray()
    return np.kron(np.eye(labels), one)


STREAMS = (
    Stream("demographic parity, 2 groups", 2, np.array([0.5, 0.5]), np.array([0.4, 0.4]), _pairs(2, 1)),
    Stream(
        "equalized odds, 2 groups",
        2,
        np.array([0.3, 0.3, 0.2, 0.2]),
        np.array([0.3, 0.3, 0.7, 0.7]),
        _pairs(2, 2),
    ),
    Stream(
        "demographic parity, 5 groups",
        5,
        np.array([0.4, 0.25, 0.15, 0.1, 0.1]),
        np.full(5, 0.4),
        _pairs(5, 1),
    ),
)


def since_start(stream, trials, successes, *, share=0.5):
    """Return, at each look, whether the sequence since the start says "violated" and whether it says "holds"."""
    errors = np.full(len(trials), (1.0 - CONFIDENCE) * share / len(stream.shares))
    return _said(stream, trials, successes, errors)


def in_window(stream, trials, successes, rows):
    """Return, at each look of so many rows, whether the window says "violated"; blocks end at looks."""
    size = WINDOW // BLOCKS
    block = -(-rows * np.arange(1, len(trials) + 1) // size)
    start = np.maximum(block - BLOCKS, 1)
    before = (start - 1) * size // rows
    earlier = [np.concatenate([np.zeros((1, len(stream.shares))), counts])[before] for counts in (trials, successes)]
    errors = (1.0 - CONFIDENCE) * 0.5 * restart_share(start) / len(stream.shares)
    return _said(stream, trials - earlier[0], successes - earlier[1], errors)[0]


def _said(stream, trials, successes, errors):
    """Judge the looks at which the rates are a standard error beyond or within the tolerance: others say nothing."""
    n, s = np.maximum(trials, 1.0), successes.astype(float)
    values = s / n @ stream.pairs.T
    deviation = np.sqrt((s / n * (1.0 - s / n) / n) @ (stream.pairs**2).T)
    violated = (np.abs(values) - deviation > TOLERANCE).any(axis=1)
    holds = (np.abs(values) + deviation < TOLERANCE).all(axis=1)
    for said, judge in ((violated, _beyond), (holds, _within)):
        some = np.flatnonzero(said)
        _, low, high = linear_sequences(stream.pairs, s[some], trials[some].astype(float), errors[some, None])
        said[some] = judge(low, high)
    return violated, holds


def repeated_test(stream, trials, successes):
    """Return, at each look, whether a 95% interval for that look alone, corrected for the pairs, says "violated"."""
    one, other = (np.argmax(stream.pairs == sign, axis=1) for sign in (1.0, -1.0))
    counts = (array[:, place] for place in (one, other) for array in (successes, trials))
    return _beyond(*newcombe_interval(*counts, 1.0 - (1.0 - CONFIDENCE) / len(stream.pairs)))


def _beyond(low, high):
    return ((low > TOLERANCE) | (high < -TOLERANCE)).any(axis=-1)


def _within(low, high):
    return ((low >= -TOLERANCE) & (high <= TOLERANCE)).all(axis=-1)


def first(said, rows):
    """Return the number of rows at the first look that says so, infinite where none does."""
    return rows * (int(np.argmax(said)) + 1) if said.any() else np.inf


@dataclass(frozen=True)
class Alarms:
    """Shares of streams on which a method ever raised an alarm, or ever said "holds"."""

    watch: float
    holds: float
    repeated: float


def alarms(stream, gap, streams, looks, rows, *, every=1, seed=0):
    """Look so often at many streams of one gap; the repeated test looks only every so many looks."""
    found = []
    for k in range(streams):
        trials, successes = stream.counts(np.random.default_rng((seed, k)), gap, looks, rows)
        violated, holds = since_start(stream, trials, successes)
        violated |= in_window(stream, trials, successes, rows)
        daily = slice(every - 1, None, every)
        found.append((violated.any(), holds.any(), repeated_test(stream, trials[daily], successes[daily]).any()))
    return Alarms(*(float(share) for share in np.mean(found, axis=0)))


def delays(stream, gap, streams, looks, rows, *, change=0, seed=1):
    """Return the median rows until an alarm, after a change of the gap from 0 after so many looks.

    By the watch, by a watch without a window, and by the test repeated every day of 1,000 rows.
    """
    found = []
    for k in range(streams):
        gaps = np.where(np.arange(looks) < change, 0.0, gap)
        trials, successes = stream.counts(np.random.default_rng((seed, k)), gaps, looks, rows)
        violated, _ = since_start(stream, trials, successes)
        alone, _ = since_start(stream, trials, successes, share=1.0)
        daily = slice(1000 // rows - 1, None, 1000 // rows)
        tested = repeated_test(stream, trials[daily], successes[daily])
        found.append(
            [
                first(violated | in_window(stream, trials, successes, rows), rows),
                first(alone, rows),
                first(tested, 1000),
            ]
        )
    return np.median(np.array(found) - change * rows, axis=0)


def ever_outside(shares, *, streams, looks, rows=60, seed=0):
    """Return the share of streams in which a rate ever leaves its sequence; rates have these shares of the error."""
    rng, cells = np.random.default_rng(seed), len(shares)
    wrong, at_once = 0, 50
    rates = np.linspace(0.2, 0.8, cells)
    for first in range(0, streams, at_once):
        trials = rng.multinomial(rows, np.full(cells, 1.0 / cells), size=(min(at_once, streams - first), looks))
        successes = rng.binomial(trials, rates).cumsum(axis=1).astype(float)
        low, high = sequence_at(successes, trials.cumsum(axis=1).astype(float), (1.0 - CONFIDENCE) * shares)
        wrong += int(((rates < low) | (rates > high)).any(axis=(1, 2)).sum())
    return wrong / streams
