r"""Confidence sequences: intervals for rates that hold at all times simultaneously, however often one looks.

An interval such as Wilson's holds at one time that was fixed in advance. If you look every day and stop at the first
interval that excludes the true rate, you will eventually see one. The sequences here hold at all times.

**Method.** Decisions x_1, x_2, ... are 0 or 1, and p_i is the probability that x_i is 1 given all that came before
(and given what made its row one of those that are counted: its group, and its label). For a stake t > 0, the wealth

    W_n(t) = product over i <= n of  exp(t x_i) / (1 - p_i + p_i exp(t))

is that of a gambler whose bets are fair: a martingale that starts at 1. So is the mean of W_n(t) over a fixed grid of
stakes, and by Ville's inequality it ever reaches 1/e with probability at most e. The logarithm of 1 - p + p exp(t) is
concave in p, so with the mean m_n = (p_1 + ... + p_n) / n,

    mean over t of  exp(t s_n - n log(1 - m_n + m_n exp(t)))  <=  mean over t of  W_n(t),    s_n = x_1 + ... + x_n.

The left side depends on the counts n and s_n alone and falls as m_n grows. The lower end of the sequence is the m
at which it is 1/e: with probability at least 1 - e, m_n is never below it. The upper end is that of the ones
swapped with the zeros. Each side has half of the error.

**What is covered** is m_n, the mean of the probabilities of the rows so far. It need not be constant: if rates drift,
the sequence covers their average. Rows may depend on earlier rows in any way.

**References.** The bets and the inversion are those of Waudby-Smith and Ramdas (2024, Estimating means of bounded
random variables by betting, Journal of the Royal Statistical Society B 86: 1-27); mixtures over stakes go back to
Robbins (1970, Annals of Mathematical Statistics 41: 1397-1409), with discrete ones in Howard, Ramdas, McAuliffe and
Sekhon (2021, Annals of Statistics 49: 1055-1080).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evenhand.errors import InputError
from evenhand.inputs import FloatArray, as_float_array
from evenhand.statistics.intervals import Interval, check_confidence, observed_rates, read_counts

# Stakes for deviations that show in a few rows, down to those that take 100 million rows.
_STAKES = 8.0 * 2.0 ** (-0.5 * np.arange(28))
_ODDS = np.expm1(_STAKES)
_STEPS = 3


def rate_sequence(successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the confidence sequence of a rate at the time when it has these counts.

    Parameters
    ----------
    successes, trials : array-like
        Whole counts, broadcast against each other. Without trials the interval is (0, 1).
    confidence : float, default=0.95
        The probability that the mean rate so far is inside at all times.

    Returns
    -------
    lower, upper : arrays

    Examples
    --------
    About 1.8 times as wide as an interval for one moment, which would be 0.212 to 0.393 here:

    >>> from evenhand.statistics.sequences import rate_sequence
    >>> lower, upper = rate_sequence(28, 95)
    >>> round(float(lower), 3), round(float(upper), 3)
    (0.152, 0.471)
    """
    return sequence_at(*read_counts(successes, trials), 1.0 - check_confidence(confidence))


def sequence_at(successes: FloatArray, trials: FloatArray, error: float | FloatArray) -> Interval:
    """Return :func:`rate_sequence` for counts as read, each with its own error."""
    s, n, limit = np.broadcast_arrays(successes, trials, np.log(2.0 / np.asarray(error, dtype=np.float64)))
    return _lower_ends(s, n, limit), 1.0 - _lower_ends(n - s, n, limit)


def _lower_ends(s: FloatArray, n: FloatArray, limit: FloatArray) -> FloatArray:
    """Return where the logarithm of the mean wealth equals the limit, from below.

    It is convex and decreasing in m. One stake alone gives a point to the left of the root, in closed form; Newton's
    method continues from the best of them and stays to the left. So every iterate is a valid lower end.
    """
    s, n, limit = s[..., None], np.maximum(n, 1.0)[..., None], limit[..., None]
    won = _STAKES * s - np.log(len(_STAKES))
    m = np.maximum(np.max(np.expm1((won - limit) / n) / _ODDS, axis=-1, keepdims=True), 0.0)
    for _ in range(_STEPS):
        price = 1.0 + m * _ODDS
        logs = won - n * np.log(price)
        top = logs.max(axis=-1, keepdims=True)
        wealth = np.exp(logs - top)
        total = wealth.sum(axis=-1, keepdims=True)
        height = np.maximum(top + np.log(total) - limit, 0.0)
        slope = (wealth * (n * _ODDS / price)).sum(axis=-1, keepdims=True) / total
        m = m + height / slope
    found: FloatArray = np.minimum(m, s / n)[..., 0]
    return found


def linear_sequences(
    coefficients: Any, successes: FloatArray, trials: FloatArray, errors: float | FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return linear combinations of rates, each with a sequence, computed from those of the rates.

    If every rate is inside its own sequence, every combination is inside the result: the number of combinations costs
    no error.

    Parameters
    ----------
    coefficients : array of shape (combinations, rates)
        The combinations.
    successes, trials : arrays of shape (..., rates)
        Counts, at one time or several.
    errors : float or array of shape (..., rates)
        The error of each rate's sequence. All sequences hold together with an error of their sum.

    Returns
    -------
    values, lower, upper : arrays of shape (..., combinations)
    """
    matrix = np.asarray(coefficients, dtype=np.float64)
    gains, losses = np.maximum(matrix, 0.0).T, np.minimum(matrix, 0.0).T
    low, high = sequence_at(successes, trials, errors)
    values: FloatArray = observed_rates(successes, trials) @ matrix.T
    return values, low @ gains + high @ losses, high @ gains + low @ losses


def restart_share(start: ArrayLike) -> FloatArray:
    """Return the share of the error of the k-th of infinitely many sequences, k = 1, 2, ...

    1 / log2(k + 1) - 1 / log2(k + 2): the shares of all k sum to 1, and decrease nearly as slowly as possible.

    Examples
    --------
    >>> from evenhand.statistics.sequences import restart_share
    >>> [round(float(restart_share(k)), 4) for k in (1, 2, 100)]
    [0.3691, 0.1309, 0.0003]
    """
    k = as_float_array(start, "start")
    if not (np.isfinite(k) & (k >= 1.0)).all():
        raise InputError(f"start must be 1, 2, ...; got {k.min():g}.")
    k = k.reshape(()) if np.ndim(start) == 0 else k
    return 1.0 / np.log2(k + 1.0) - 1.0 / np.log2(k + 2.0)
