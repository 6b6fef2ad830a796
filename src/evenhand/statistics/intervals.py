"""Intervals for rates from counts: for one rate, a difference, a ratio, and the largest gap.

Wilson's, Newcombe's and related intervals are close to the nominal level; reports show them. The conservative bounds
for guarantees are in :mod:`evenhand.statistics.bounds`.

Counts may be fractions: with weights, pass :func:`effective_counts`, which shrink the sample to the size that
unweighted rows of the same precision would have (Kish). That is an approximation, and so are the levels then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special

from evenhand.arguments import check_flag, check_seed, is_number, shown
from evenhand.errors import InputError
from evenhand.inputs import FloatArray, as_float_array

Interval = tuple[FloatArray, FloatArray]

MOST_TRIALS = 2.0**53
_RESAMPLES = 4000
_MOST_RESAMPLED = 600


def check_confidence(confidence: float) -> float:
    """Return the confidence, or raise: it is a number strictly between 0 and 1."""
    if not is_number(confidence):
        raise InputError(f"confidence must be a number between 0 and 1; got {shown(confidence)}.")
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must be strictly between 0 and 1, as in 0.95; got {shown(confidence)}.")
    return float(confidence)


def normal_quantile(confidence: float, *, one_sided: bool = False) -> float:
    """Return the number of standard errors with this much of a normal distribution around or below its mean."""
    level = check_confidence(confidence)
    return float(special.ndtri(level if one_sided else 0.5 + level / 2.0))


def read_counts(
    successes: ArrayLike, trials: ArrayLike, names: tuple[str, str] = ("successes", "trials")
) -> tuple[FloatArray, FloatArray]:
    """Return successes and trials as arrays of one shape, or raise if they are not counts."""
    s, n = _together(names[0], as_counts(successes, names[0]), names[1], as_counts(trials, names[1]))
    with np.errstate(over="ignore"):
        bad = ~((s >= 0.0) & (s <= n * (1.0 + 1e-12)) & (n <= MOST_TRIALS))
    if bad.any():
        where = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise InputError(
            f"Counts must satisfy 0 <= {names[0]} <= {names[1]} <= {MOST_TRIALS:g}; got {s[where]:g} of {n[where]:g}."
        )
    return np.minimum(s, n), n


def as_counts(values: ArrayLike, name: str) -> FloatArray:
    """Return counts as an array; a single one keeps its shape."""
    array = as_float_array(values, name)
    return array.reshape(()) if np.ndim(values) == 0 else array


def _together(first: str, a: FloatArray, second: str, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:
        raise InputError(f"{first} has the shape {a.shape} and {second} has {b.shape}: they must be equal.") from None
    return a, b


def effective_counts(selected: ArrayLike, total: ArrayLike, squares: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return successes and trials with as much information as the weighted rows (Kish).

    Parameters
    ----------
    selected : array-like
        The sum of the weights of the successes.
    total : array-like
        The sum of all weights.
    squares : array-like
        The sum of the squares of all weights.

    Returns
    -------
    successes, trials : arrays
        With equal weights: the plain counts. A weight of k on every row is not k times the evidence.

    Examples
    --------
    >>> from evenhand.statistics.intervals import effective_counts
    >>> weights = [1.0, 1.0, 2.0]
    >>> successes, trials = effective_counts(2.0, sum(weights), sum(w * w for w in weights))
    >>> round(float(successes), 4), round(float(trials), 4)
    (1.3333, 2.6667)
    """
    selected, total = read_counts(selected, total, ("selected", "total"))
    squares, total = _together("squares", as_counts(squares, "squares"), "total", total)
    if not (np.isfinite(squares) & (squares >= 0.0)).all():
        raise InputError(f"squares must be finite sums of squared weights; got {shown(squares.tolist())}.")
    scale = np.zeros(total.shape)
    np.divide(total, squares, out=scale, where=squares > 0.0)
    return selected * scale, total * scale


def wilson_interval(successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval for a rate.

    Parameters
    ----------
    successes, trials : array-like
        Counts, broadcast against each other. Without trials the interval is (0, 1).
    confidence : float, default=0.95
        The two-sided level.

    Returns
    -------
    lower, upper : arrays

    Examples
    --------
    >>> from evenhand.statistics.intervals import wilson_interval
    >>> lower, upper = wilson_interval(15, 148)
    >>> round(float(lower), 4), round(float(upper), 4)
    (0.0624, 0.1605)
    """
    return wilson_at(*read_counts(successes, trials), normal_quantile(confidence))


def wilson_at(successes: FloatArray, trials: FloatArray, z: float) -> Interval:
    """Return :func:`wilson_interval` at a given normal quantile."""
    rate = observed_rates(successes, trials)
    size = np.maximum(trials, 0.0) + z * z
    centre = (rate * trials + z * z / 2.0) / size
    half = z * np.sqrt(trials * rate * (1.0 - rate) + z * z / 4.0) / size
    lower, upper = np.clip(centre - half, 0.0, rate), np.clip(centre + half, rate, 1.0)
    return np.where(successes == 0.0, 0.0, lower), np.where(successes == trials, 1.0, upper)


def observed_rates(successes: FloatArray, trials: FloatArray) -> FloatArray:
    """Return the rates; one half if there are no trials, the middle of the possible range."""
    rates = np.full(np.broadcast_shapes(np.shape(successes), np.shape(trials)), 0.5)
    np.divide(successes, trials, out=rates, where=trials > 0.0)
    return rates


def newcombe_interval(
    successes_a: ArrayLike,
    trials_a: ArrayLike,
    successes_b: ArrayLike,
    trials_b: ArrayLike,
    confidence: float = 0.95,
) -> Interval:
    """Return Newcombe's hybrid score interval for the difference of two rates, a minus b.

    Method 10 of Newcombe (1998, Statistics in Medicine 17: 873-890): the distances of the two Wilson
    intervals' ends from the rates, added as squares.

    Parameters
    ----------
    successes_a, trials_a, successes_b, trials_b : array-like
        Counts, broadcast against each other.
    confidence : float, default=0.95
        The two-sided level.

    Returns
    -------
    lower, upper : arrays

    Examples
    --------
    >>> from evenhand.statistics.intervals import newcombe_interval
    >>> lower, upper = newcombe_interval(56, 70, 48, 80)
    >>> round(float(lower), 4), round(float(upper), 4)
    (0.0524, 0.3339)
    """
    a = read_counts(successes_a, trials_a, ("successes_a", "trials_a"))
    b = read_counts(successes_b, trials_b, ("successes_b", "trials_b"))
    _together("successes_a", a[0], "successes_b", b[0])
    z = normal_quantile(confidence)
    (low_a, high_a), (low_b, high_b) = wilson_at(*a, z), wilson_at(*b, z)
    rate_a, rate_b = observed_rates(*a), observed_rates(*b)
    difference = rate_a - rate_b
    lower = difference - np.hypot(rate_a - low_a, high_b - rate_b)
    return lower, difference + np.hypot(high_a - rate_a, rate_b - low_b)


def ratio_at(s_a: FloatArray, n_a: FloatArray, s_b: FloatArray, n_b: FloatArray, z: float) -> Interval:
    """Return the hybrid score interval for the ratio of two rates, a over b, at a given normal quantile.

    Donner and Zou (2012, Statistical Methods in Medical Research 21: 347-359): Newcombe's construction for
    ratios, on the two Wilson intervals. Unlike the log interval of Katz it exists for counts of zero. The upper end is
    infinite if b has no successes.
    """
    (low_a, high_a), (low_b, high_b) = wilson_at(s_a, n_a, z), wilson_at(s_b, n_b, z)
    rate_a, rate_b = observed_rates(s_a, n_a), observed_rates(s_b, n_b)
    product = rate_a * rate_b
    inner_a, outer_a = low_a * (2.0 * rate_a - low_a), high_a * (2.0 * rate_a - high_a)
    inner_b, outer_b = low_b * (2.0 * rate_b - low_b), high_b * (2.0 * rate_b - high_b)
    below = product + np.sqrt(np.maximum(product**2 - inner_a * outer_b, 0.0))
    above = product + np.sqrt(np.maximum(product**2 - outer_a * inner_b, 0.0))
    lower, upper = np.zeros(np.shape(product)), np.full(np.shape(product), np.inf)
    np.divide(inner_a, below, out=lower, where=inner_a > 0.0)
    np.divide(above, inner_b, out=upper, where=inner_b > 0.0)
    return lower, upper


def linear_intervals(
    coefficients: Any, successes: ArrayLike, trials: ArrayLike, z: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return linear combinations of rates with their hybrid score intervals.

    Zou and Donner's extension of Newcombe's interval (2008, Statistics in Medicine 27: 1693-1702), which it
    is for the coefficients 1 and -1.

    Parameters
    ----------
    coefficients : array or sparse array of shape (combinations, rates)
        The combinations.
    successes, trials : array-like of shape (rates,)
        Counts.
    z : float
        From :func:`normal_quantile` for each separately, :func:`simultaneous_quantile` for all together.

    Returns
    -------
    values, lower, upper : arrays of shape (combinations,)
    """
    matrix = sparse.csr_array(coefficients)
    s, n = read_counts(successes, trials)
    rates, (low, high) = observed_rates(s, n), wilson_at(s, n, z)
    gains, losses = matrix.maximum(0.0).power(2), matrix.minimum(0.0).power(2)
    values: FloatArray = matrix @ rates
    below = gains @ (rates - low) ** 2 + losses @ (high - rates) ** 2
    above = gains @ (high - rates) ** 2 + losses @ (rates - low) ** 2
    return values, values - np.sqrt(below), values + np.sqrt(above)


def simultaneous_quantile(
    coefficients: Any,
    successes: ArrayLike,
    trials: ArrayLike,
    confidence: float = 0.95,
    *,
    random_state: int | np.random.Generator | None = 0,
) -> float:
    """Return the normal quantile at which all combinations' intervals hold simultaneously with this confidence.

    A bootstrap on the counts, which needs no rows: each rate's count is redrawn from its binomial, and the quantile is
    that of the largest studentised deviation among the combinations. (The percentiles of a bootstrapped maximum would
    not be an interval: the largest of several noisy gaps is too large on average, and that of a resample even more so.)
    Rates are shrunk towards one half as in Wilson's interval, so that a rate of 0 or 1 varies too. The result lies
    between the quantiles for one combination and for Bonferroni's correction, which is used for more than 600
    combinations.

    Parameters
    ----------
    coefficients : array or sparse array of shape (combinations, rates)
        The combinations.
    successes, trials : array-like of shape (rates,)
        Counts.
    confidence : float, default=0.95
        The level.
    random_state : int, Generator or None, default=0
        The seed of the draws. They do not depend on the order of the rates.

    Returns
    -------
    float
        For a single combination: its :func:`normal_quantile`.
    """
    matrix = sparse.csr_array(coefficients)
    check_seed(random_state)
    s, n = read_counts(successes, trials)
    single, count = normal_quantile(confidence), matrix.shape[0]
    corrected = normal_quantile(1.0 - (1.0 - confidence) / max(count, 1))
    if count <= 1 or count > _MOST_RESAMPLED:
        return corrected
    order = np.lexsort((np.round(s, 6), np.round(n, 6)))
    size, extra = np.rint(n)[order], single**2
    centre = (s[order] + extra / 2.0) / (n[order] + extra)
    draws = np.random.default_rng(random_state).binomial(size.astype(np.int64), centre, (_RESAMPLES, len(size)))
    shrunk, expected = (draws + extra / 2.0) / (size + extra), (size * centre + extra / 2.0) / (size + extra)
    by_rate = np.empty((len(size), _RESAMPLES))
    variance = np.empty_like(by_rate)
    by_rate[order], variance[order] = (shrunk - expected).T, (shrunk * (1.0 - shrunk) / (size + extra)).T
    studentised = np.abs(matrix @ by_rate) / np.sqrt(matrix.power(2) @ variance)
    quantile = float(np.quantile(studentised.max(axis=0), confidence, method="higher"))
    return min(max(quantile, single), corrected)


def pairs_of(count: int) -> sparse.csr_array[Any]:
    """Return the differences of all pairs of rates, as coefficients.

    Examples
    --------
    >>> from evenhand.statistics.intervals import pairs_of
    >>> pairs_of(3).toarray().tolist()
    [[1.0, -1.0, 0.0], [1.0, 0.0, -1.0], [0.0, 1.0, -1.0]]
    """
    first, second = np.triu_indices(count, 1)
    row = np.arange(len(first))
    ones = np.ones(len(first))
    places = np.concatenate([row, row]), np.concatenate([first, second])
    return sparse.csr_array((np.concatenate([ones, -ones]), places), shape=(len(first), count))


def distance_interval(
    coefficients: Any,
    successes: ArrayLike,
    trials: ArrayLike,
    bounds: tuple[ArrayLike, ArrayLike],
    quantiles: tuple[float, float],
) -> tuple[float, float]:
    """Return a lower and an upper bound on the largest distance of several combinations from their bounds.

    The upper bound uses each combination's own interval: the largest of their ends is beyond the largest distance
    whenever the end of that one combination is. The lower bound would be too large as soon as any of them were, so it
    uses simultaneous intervals.

    Parameters
    ----------
    coefficients, successes, trials
        As in :func:`linear_intervals`.
    bounds : pair of array-like
        A combination below the first or above the second is outside.
    quantiles : pair of float
        For each combination separately (:func:`normal_quantile`) and for all (:func:`simultaneous_quantile`).

    Returns
    -------
    least, most : float
    """
    floor, ceiling = bounds
    _, low, high = linear_intervals(coefficients, successes, trials, quantiles[0])
    most = np.maximum(np.subtract(floor, low), np.subtract(high, ceiling))
    _, low, high = linear_intervals(coefficients, successes, trials, quantiles[1])
    least = np.maximum(np.subtract(floor, high), np.subtract(low, ceiling))
    return max(float(least.max()), 0.0), max(float(most.max()), 0.0)


def read_rates(successes: ArrayLike, trials: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the counts of two or more rates."""
    s, n = read_counts(successes, trials)
    if s.ndim != 1 or len(s) < 2:
        raise InputError(f"A gap needs the counts of two or more rates; got an array of shape {s.shape}.")
    return s, n


def rows_needed(
    successes: ArrayLike,
    trials: ArrayLike,
    tolerance: float,
    confidence: float = 0.95,
    *,
    one_sided: bool = False,
    random_state: int | np.random.Generator | None = 0,
) -> NDArray[np.int64] | None:
    """Return about how many trials of each rate would settle whether the largest gap is within a tolerance.

    The rates are assumed to stay as they are, and the trials to grow in proportion.

    Parameters
    ----------
    successes, trials : array-like of shape (rates,)
        Counts.
    tolerance : float
        The largest allowed gap.
    confidence : float, default=0.95
        The level.
    one_sided : bool, default=False
        False: either verdict settles it, by :func:`distance_interval` over all pairs. True: only a gap that is shown to
        be within the tolerance does, by an upper bound nearly as wide as that of
        :func:`evenhand.statistics.bounds.exact_upper_bound`.
    random_state : int, Generator or None, default=0
        The seed of the bootstrap.

    Returns
    -------
    array of int or None
        None if more rows would not help: the gap is at the tolerance, or beyond it with ``one_sided``, or a rate has
        no trials.

    Examples
    --------
    >>> from evenhand.statistics.intervals import rows_needed
    >>> rows_needed([30, 66], [100, 200], tolerance=0.05).tolist()
    [3035, 6069]
    """
    check_flag(one_sided, "one_sided")
    if not is_number(tolerance) or not tolerance >= 0.0:
        raise InputError(f"tolerance must be a number of at least 0; got {shown(tolerance)}.")
    s, n = read_rates(successes, trials)
    if n.max() > MOST_TRIALS / 100.0:
        raise InputError(f"trials must be at most {MOST_TRIALS / 100.0:g}; got {n.max():g}.")
    pairs = pairs_of(len(n))
    joint = simultaneous_quantile(pairs, 100.0 * s, 100.0 * n, confidence, random_state=random_state)
    quantiles = normal_quantile(confidence, one_sided=one_sided), joint

    def settled(factor: float) -> bool:
        least, most = distance_interval(pairs, s * factor, n * factor, (0.0, 0.0), quantiles)
        return most <= tolerance or (least > tolerance and not one_sided)

    factor = settling_factor(settled) if n.min() > 0.0 else None
    return None if factor is None else np.ceil(n * factor - 1e-9).astype(np.int64)


def settling_factor(settled: Callable[[float], bool]) -> float | None:
    """Return approximately the smallest factor, at least 1, that settles it; None above a million."""
    high = 1.0
    while not settled(high):
        high *= 2.0
        if high > 2.0**20:
            return None
    low = high / 2.0
    while high > 1.0 and high - low > 0.002 * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if settled(middle) else (middle, high)
    return high
