"""K = 1: the certified optimum of rows that do not fit in memory, in three passes.

A row turns at its breakpoint z_i = m_i / g_i. The first pass counts labels and groups (:mod:`ground`), which gives the
priors and so the contrasts. The second counts the rows in bins of their breakpoints, over the whole line: the utility
and the values are then known at every edge of a bin, and inside a bin they differ by no more than its rows add. Bins
that cannot contain anything better than the best edge are settled. The third pass fetches the rows of the others, and
:class:`evenhand.search.threshold.Threshold` sweeps through them; the rows of settled bins change together.

A bin is known up to rounding, so a row may belong to the bin beside: the rows beside a bin count as if they were in it,
and they are fetched with it. Rows whose contrast is nearly rounding have no reliable bin; they are
always fetched.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import _kernels
from evenhand.engines.gathering import RawRows, check_weight
from evenhand.engines.ground import Columnar, Ground, LinearScores
from evenhand.engines.reading import Reader, TooManyError
from evenhand.engines.schema import Frame, Words
from evenhand.errors import InfeasibleError
from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule
from evenhand.rules.scores import CONTRAST_ROUNDING
from evenhand.rules.setting import MARGIN_ROUNDING
from evenhand.search import NoRule, Problem
from evenhand.search.problem import FEASIBILITY_SLACK

BINS = 1 << 16
FALLING, RISING = range(2)
# Contrasts this small, against their terms, have breakpoints that depend on the order of a sum.
UNSURE_FROM, UNSURE_TO = CONTRAST_ROUNDING / 4.0, 2.0**-26
# The places of rows: bins, rows that never turn, and delicate ones; around a rule, two more.
PLACES, PLACES_AROUND_A_RULE = 2 * BINS + 3, 2 * BINS + 5
# How far from a rule it is told how delicate rows are decided, and how far rounding can move a level.
REACH, UNSURE_LEVEL = 1024.0, 2.0**-21
MOST_RUNS = 64
MOST_TURNS = 8


class Coded(Protocol):
    """What a tally of breakpoints needs to know: the contrast, and numbers for combinations of label and groups."""

    @property
    def linear(self) -> LinearScores:
        """The contrasts as linear expressions of the scores."""
        ...

    @property
    def n_codes(self) -> int:
        """How many combinations of label and groups there may be."""
        ...

    def code_text(self) -> str:
        """Return the number of a row's combination of label and groups as SQL."""
        ...

    def codes_of(self, frame: Frame) -> NDArray[np.int64]:
        """Return what :meth:`code_text` computes."""
        ...

    def empty(self, places: int, weighted: bool) -> NDArray[Any]:
        """Return space for the weight of each code at each of some places."""
        ...


@dataclass(frozen=True, eq=False)
class Breakpoints:
    """The tally of breakpoints: rows by bin, by the way in which they turn, by label and groups.

    Bins are fine around a ``centre``: half of those on each side are up to ``within`` away (None: half the costs).

    Places are the bins of rows that fall as z grows, those of rows that rise, rows that are always decided 0, those
    that are always decided 1, and delicate rows. If bins are around a rule (``within``), delicate rows that are surely
    decided 0, or 1, up to :data:`REACH` times that distance have two more places.
    """

    ground: Coded
    weighted: bool
    centre: float = 0.0
    within: float | None = None
    payload: tuple[str, ...] = ()
    width: int = 1

    def masks(self, level: int) -> Words:
        """Return that everything is kept."""
        return np.full(1, -1, dtype=np.int64)

    def where(self, dialect: str) -> None:
        """Return None: all rows are counted."""

    def keep(self, frame: Frame) -> Frame:
        """Return all rows."""
        return frame

    @property
    def unit(self) -> float:
        """The distance in the middle between 0 and infinity, as bins go."""
        return 0.5 * sum(self.ground.linear.costs) if self.within is None else self.within

    def at(self, edge: NDArray[Any]) -> FloatArray:
        """Return the z of edges of bins, from 0 to their number."""
        share = edge / (BINS // 2) - 1.0
        z: FloatArray = self.centre + self.unit * share / (1.0 - np.abs(share))
        return z

    def empty(self) -> NDArray[Any]:
        """Return space for the weight of each word."""
        return self.ground.empty(PLACES if self.within is None else PLACES_AROUND_A_RULE, self.weighted)

    def sql(self, dialect: str) -> list[str]:
        """Return the words as SQL expressions."""
        return [f"({self.place(dialect)}) * {self.ground.n_codes} + {self.ground.code_text()}"]

    def place(self, dialect: str) -> str:
        """Return the SQL expression of the way in which a row turns and of its bin, as one number."""
        linear = self.ground.linear
        m, g, size = linear.margin(dialect), linear.contrast(0, dialect), linear.size(0, dialect)
        half, tie = BINS // 2, MARGIN_ROUNDING * sum(linear.costs)
        level = f"({m} - {self.centre!r} * {g})" if self.centre else m
        fraction = f"{level} / ({self.unit!r} * abs({g}) + abs({level}))"
        falling = f"CAST(least(floor(({fraction} + 1) * {half}), {BINS - 1}) AS BIGINT)"
        rising = f"CAST(least(floor((1 - {fraction}) * {half}), {BINS - 1}) AS BIGINT) + {RISING * BINS}"
        never = f"{2 * BINS} + CASE WHEN {m} > {tie!r} THEN 1 ELSE 0 END"
        reach, unsure = self._near
        far = f"{reach!r} * abs({g}) + {unsure!r}"
        sure = (
            f"CASE WHEN {level} > {far} THEN {PLACES + 1} WHEN {level} < -({far}) THEN {PLACES} ELSE {PLACES - 1} END"
        )
        delicate = sure if reach > 0.0 else str(PLACES - 1)
        return (
            f"CASE WHEN abs({g}) <= {UNSURE_FROM!r} * {size} THEN {never}"
            f" WHEN abs({g}) <= {UNSURE_TO!r} * {size} THEN {delicate}"
            f" WHEN {g} > 0 THEN {falling} ELSE {rising} END"
        )

    def words(self, frame: Frame) -> Words:
        """Return the words of some rows."""
        words = self.places(frame)
        words *= self.ground.n_codes
        words += self.ground.codes_of(frame)
        return words[:, None]

    @property
    def _near(self) -> tuple[float, float]:
        """How far from the centre it is told how delicate rows are decided, and what rounding can do to a level."""
        reach = 0.0 if self.within is None else REACH * self.within
        return reach, UNSURE_LEVEL * float(sum(self.ground.linear.costs))

    @cached_property
    def _form(self) -> _kernels.Form:
        return self.ground.linear.form(np.eye(1), UNSURE_FROM, UNSURE_TO)

    @cached_property
    def _scores(self) -> Columnar:
        return Columnar(("s0", *self.ground.linear.names))

    def places(self, frame: Frame) -> NDArray[np.int64]:
        """Return what :meth:`place` computes."""
        scores, n = self._scores.of(frame)
        places = np.empty(n, dtype=np.int64)
        _kernels.place_breakpoints(scores, self._form, self.centre, self.unit, BINS, self._near, places)
        return places


@dataclass(frozen=True, eq=False)
class InBins:
    """The choice of the rows of some runs of bins, and of those that have none."""

    tally: Breakpoints
    runs: tuple[tuple[int, int], ...]
    loose: bool = True

    def where(self, dialect: str) -> str | None:
        """Return the SQL condition; none for DuckDB, which takes longer than :meth:`keep`."""
        if dialect == "duckdb":
            return None
        place = self.tally.place(dialect)
        tests = [f"{place} = {PLACES - 1}"]
        for first, last in self.runs:
            tests += [f"{place} BETWEEN {way * BINS + first} AND {way * BINS + last}" for way in (FALLING, RISING)]
        return " OR ".join(tests)

    @cached_property
    def _wanted(self) -> NDArray[np.bool_]:
        wanted = np.zeros(PLACES, dtype=bool)
        wanted[-1] = True
        for first, last in self.runs:
            wanted[first : last + 1] = wanted[BINS + first : BINS + last + 1] = True
        return wanted

    def keep(self, frame: Frame) -> NDArray[np.bool_]:
        """Tell which rows are wanted."""
        return self._wanted[self.tally.places(frame)]


class Histogram:
    """The sums of gains and effects in each bin, and bounds for every bin."""

    def __init__(self, ground: Ground, counts: NDArray[Any]) -> None:
        self.ground = ground
        weight = counts.reshape(-1, ground.n_codes).astype(np.float64)
        units = ground.units[ground.kind_of_code]
        bins = weight[: 2 * BINS].reshape(2, BINS, -1)
        self.turning = bins @ units
        self.constant = weight[2 * BINS + 1] @ units
        self.constant[0] += ground.problem.offset
        together = bins.sum(axis=0)
        above, below = np.maximum(units, 0.0), np.minimum(units, 0.0)
        self.high, self.low = together @ above, together @ below
        delicate = weight[PLACES - 1]
        self.loose = delicate @ above, delicate @ below
        # Delicate rows that are decided 0, or 1, near the centre; far from it they may be decided either way.
        self.sure = weight[PLACES:] if len(weight) > PLACES else np.zeros((2, ground.n_codes))
        self.constant = self.constant + self.sure[1] @ units
        self.far_loose = self.sure[0] @ above - self.sure[1] @ below, self.sure[0] @ below - self.sure[1] @ above
        self.weights = together.sum(axis=1)
        self.delicate = float(delicate.sum())
        self.filled = (together > 0.0).any(axis=1)

    def weight_of(self, runs: tuple[tuple[int, int], ...]) -> float:
        """Return the weight of the rows of some runs of bins, and of the delicate ones."""
        return self.delicate + float(sum(self.weights[first : last + 1].sum() for first, last in runs))

    @cached_property
    def _far_edges(self) -> NDArray[np.bool_]:
        """The edges of bins that are farther from the centre than :data:`REACH` times its unit."""
        share = np.abs(np.arange(BINS + 1) / (BINS // 2) - 1.0)
        return share >= REACH / (1.0 + REACH)

    @cached_property
    def edges(self) -> FloatArray:
        """The sums below each bin, and above the last: of shape (bins + 1, 1 + C). Delicate rows are not in them."""
        falling, rising = self.turning
        none = np.zeros((1, falling.shape[1]))
        after = np.vstack([np.cumsum(falling[::-1], axis=0)[::-1], none])
        before = np.vstack([none, np.cumsum(rising, axis=0)])
        edges: FloatArray = self.constant + after + before
        return edges

    def sure_edges(self) -> FloatArray:
        """Return the utility of each edge that meets the bounds for any decisions of delicate rows; else -inf."""
        problem, (high, low) = self.ground.problem, self.loose
        above, below = self.edges + high, self.edges + low
        fine = ((below[:, 1:] >= problem.lower[0] - FEASIBILITY_SLACK)
                & (above[:, 1:] <= problem.upper[0] + FEASIBILITY_SLACK)).all(axis=1)  # fmt: skip
        return np.where(fine & ~(self._far_edges & self.sure.any()), below[:, 0], -np.inf)

    def best_edge(self) -> float:
        """Return the best utility of an edge that meets the bounds for any decisions of delicate rows, or of z = 0."""
        best = float(self.sure_edges().max())
        at_zero = self.ground.at_zero
        return max(best, float(at_zero[0])) if self.ground.meets(at_zero) else best

    @cached_property
    def most(self) -> FloatArray:
        """The most that a rule in each bin can reach; -inf where none can meet the bounds."""
        problem, edges = self.ground.problem, self.edges
        falling, rising = self.turning
        # What is sure in bin b: the bins beside it may be in it, so their rows are not.
        sure = edges[:-1] - falling
        sure[:-1] -= falling[1:]
        sure[1:] -= rising[:-1]
        high, low = (_with_neighbours(part) for part in (self.high, self.low))
        high, low = sure + high + self.loose[0], sure + low + self.loose[1]
        far = self._far_edges[1:] | self._far_edges[:-1]
        high[far] += self.far_loose[0]
        low[far] += self.far_loose[1]
        slack = FEASIBILITY_SLACK + 1e-10
        can = (high[:, 1:] >= problem.lower[0] - slack) & (low[:, 1:] <= problem.upper[0] + slack)
        return np.where(can.all(axis=1), high[:, 0], -np.inf)

    def open_bins(self, threshold: float) -> NDArray[np.bool_]:
        """Return a mask of the bins that may contain a rule that meets the bounds and is as good as a threshold."""
        found: NDArray[np.bool_] = (self.most >= threshold - self.ground.problem.resolution) & (self.most > -np.inf)
        # Rows that change at 0 do not change in the middle of a bin: z = 0 is a separate rule.
        found[[BINS // 2 - 1, BINS // 2]] = True
        return found

    def runs(self, bins: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
        """Return runs of bins that contain these and, on both sides, the bins beside them and the next with any row."""
        runs: list[tuple[int, int]] = []
        filled = np.flatnonzero(self.filled)
        for b in np.flatnonzero(bins).tolist():
            low, high = max(b - 1, 0), min(b + 1, BINS - 1)
            before, after = int(np.searchsorted(filled, low)), int(np.searchsorted(filled, high, side="right"))
            if not self.filled[low]:
                low = int(filled[before - 1]) if before else low
            if not self.filled[high]:
                high = int(filled[after]) if after < len(filled) else high
            if runs and low <= runs[-1][1] + 1:
                runs[-1] = runs[-1][0], max(runs[-1][1], high)
            else:
                runs.append((low, high))
        while len(runs) > MOST_RUNS:
            gaps = [second[0] - first[1] for first, second in itertools.pairwise(runs)]
            k = int(np.argmin(gaps))
            runs[k : k + 2] = [(runs[k][0], runs[k + 1][1])]
        return tuple(runs)


def _with_neighbours(part: FloatArray) -> FloatArray:
    found = part.copy()
    found[1:] += part[:-1]
    found[:-1] += part[1:]
    return found


def learn_on_the_line(ground: Ground, reader: Reader) -> Rule:
    """Return the best rule for all rows, with its proof."""
    tally = Breakpoints(ground, reader.weighted)
    histogram = Histogram(ground, reader.count_dense(tally))
    threshold = histogram.best_edge()
    for _ in range(MOST_TURNS):
        runs = histogram.runs(histogram.open_bins(threshold))
        raw = reader.sorted_rows(InBins(tally, runs))
        if raw is None:
            break
        check_weight(float(raw.weight.sum()), histogram.weight_of(runs))
        problem = _reduced(histogram, tally, raw, runs)
        solved = ground.options.solver.solve(problem, random_state=ground.options.random_state)[0]
        if isinstance(solved, NoRule):
            if threshold == -np.inf and solved.proven:
                raise infeasible(histogram)
            threshold = -np.inf
        elif solved.utility >= threshold - problem.resolution:
            return ground.rule(problem, solved)
        else:
            # The rows did not confirm an edge that was due to rounding: search what is as good as the rule found.
            threshold = solved.utility
    raise TooManyError


def _reduced(histogram: Histogram, tally: Breakpoints, raw: RawRows, runs: tuple[tuple[int, int], ...]) -> Problem:
    """Return the problem in which the rows of bins that were not fetched change in the middle of their bin."""
    ground = histogram.ground
    margin, contrasts, table = ground.arrays(raw)
    settled = histogram.filled.copy()
    for first, last in runs:
        settled[first : last + 1] = False
    place = np.flatnonzero(settled)
    middles = tally.at(place + 0.5)
    constant = histogram.constant.copy()
    constant[0] -= ground.problem.offset
    margins = np.concatenate([margin, middles, -middles, [1.0]])
    contrast = np.concatenate([contrasts[:, 0], np.ones(len(place)), -np.ones(len(place)), [0.0]])
    together = np.vstack([table, *(histogram.turning[way, place] for way in (FALLING, RISING)), constant])

    def decide(z: FloatArray) -> NDArray[np.bool_]:
        others = margins[len(raw) :] - z[0] * contrast[len(raw) :] > 0.0
        return np.concatenate([ground.decide(raw, z), others])

    return ground.problem_of(margins, contrast[:, None], together, decide)


def infeasible(histogram: Histogram) -> InfeasibleError:
    """Return an exception that names a tolerance that can be met, if there is one."""
    ground = histogram.ground
    moving = ground.setting.system.moving
    if not moving.any():
        return InfeasibleError("No rule meets these bounds together: loosen one of them, or give it a tolerance.")
    excess = min(ground.problem.excess(sums[1:]) for sums in [ground.at_zero, *histogram.edges])
    smallest = ground.tolerance + excess
    return InfeasibleError(
        f"No rule meets tolerance {ground.tolerance:g} on these {ground.n_rows} rows; a rule exists near"
        f" {smallest:.6g}. A randomized mixture of rules may meet it: learn_rule(..., randomize=True).",
        smallest_tolerance=smallest,
    )
