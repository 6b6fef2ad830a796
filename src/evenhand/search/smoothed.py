"""A search for good rules with any number of contrasts: smoothed decisions first, exact sweeps last.

Each decision [m - z.g > 0] is replaced by sigmoid((m - z.g) / tau). The counted utility and the counted values are then
smooth functions of z, and an augmented Lagrangian makes one function of them,

    -utility(z) + sum_c rho / 2 dist(value_c(z) + lambda_c / rho, [lower_c, upper_c])^2,

which a quasi-Newton method minimises in K dimensions while tau decreases. Every iterate is also counted as an exact
rule, and the best one is kept for each step of the bounds. Exact sweeps inside a small box around the best rule end
the search. Nothing is proven: results are "found" or ``NoRule(proven=False)``.

With many rows there are two stages: a stratified sample finds the region, and all rows decide inside it. Work is
counted in row visits, not in time, so the same problem always has the same answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_seed, is_number, shown
from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.search.augmented import ITERATIONS, VISITS_A_CALL, Lagrangian, SmoothSums, Stages, follow, minimise
from evenhand.search.excerpts import Scaled, box_around, stratified_sample
from evenhand.search.problem import FEASIBILITY_SLACK, NoRule, Problem, Solution, conclude
from evenhand.search.sweep import Best, settled, sweep_line

# Work, in row visits. A call also has a cost for few rows, and a sweep sorts its rows.
WORK, WORK_A_ROW, WORK_A_STEP = 80e6, 200.0, 0.12
VISITS_A_SWEPT_ROW = 6
SHARE_FOR_STARTS = 0.5

ROWS_OF_A_SAMPLE = 20_000
MOST_ROWS_FOR_LINES, ROWS_FOR_LINES, RAYS, LINES_ON_ALL_ROWS = 3_000, 2_000, 360, 24

# tau in units of a typical margin: from, to, number of stages.
COLD, MILD, WARM, LAST = (0.3, 0.003, 8), (0.1, 0.003, 6), (0.03, 0.003, 3), (0.01, 0.003, 2)
PLUG_IN_COLD, PLUG_IN_WARM = (0.3, 0.02, 5), (0.1, 0.02, 4)
PENALTIES = (16.0, 64.0)
CORRECTIONS = 3
TIGHTENED = (1.0, 0.5, 0.0)
ANCHORS = 4
BOX_ROWS, BOX_SHARE, MOST_BOX_ROWS = 1_500, 0.02, 20_000
FRUITLESS_ROUNDS = 6
ENDS_A_ROUND = 3
KICK = 0.3


@dataclass(frozen=True)
class Missed(NoRule):
    """A step without a rule, and the rule that is closest to its bounds.

    Attributes
    ----------
    excess : float
        By how much that rule exceeds the bounds: the largest distance over the constraints.
    z : tuple of float
        That rule.
    values : tuple of float
        Its constraints' values.
    """

    excess: float = np.inf
    z: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Smoothing:
    """The by-products of a smoothed search.

    Attributes
    ----------
    multipliers : array of shape (steps, C)
        For each step, those of the augmented Lagrangian at its best rule: positive where the upper bound
        binds, negative where the lower one does, in units of utility for a unit of the constraint's value.
    excess : array of shape (steps,)
        By how much the closest rule exceeds each step's bounds; 0 if one meets them.
    closest : array of shape (steps, K)
        The closest rule.
    work : int
        The row visits spent.
    """

    multipliers: FloatArray
    excess: FloatArray
    closest: FloatArray
    work: int


@dataclass(frozen=True, kw_only=True)
class Smoothed:
    """A good rule for any number of contrasts and rows, without a proof.

    Parameters
    ----------
    max_work : float or None, default=None
        The budget in row visits: rows times evaluated rules. ``None`` is about one CPU second for 20,000 rows, and
        grows in proportion to the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.search import Problem, Smoothed
    >>> problem = Problem(
    ...     margin=np.array([0.5, 0.2, -0.1]), contrasts=np.array([[1.0], [1.0], [-1.0]]),
    ...     gain=np.array([1.0, 1.0, -1.0]) / 3, effects=np.array([[0.5], [0.5], [-1.0]]),
    ...     lower=np.array([-0.1]), upper=np.array([0.1]), offset=1 / 3)
    >>> solution = Smoothed().solve(problem)[0]
    >>> solution.status, round(solution.utility, 3)
    ('found', 0.667)
    """

    max_work: float | None = None

    def __post_init__(self) -> None:
        if self.max_work is not None and not (is_number(self.max_work) and self.max_work > 0):
            raise InputError(f"max_work must be a number of row visits above 0, or None; got {shown(self.max_work)}.")

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule found for each step of the bounds, or the closest one if there is none."""
        started = time.perf_counter()
        claimed = Best.none(problem)
        found = smoothed_search(
            problem, claimed, max_work=self.max_work, random_state=random_state, starts=problem.starts
        )
        best = settled(problem, claimed)
        nodes = found.work // max(1, len(problem.margin))
        seconds = time.perf_counter() - started
        results: list[Solution | NoRule] = []
        for step, utility in enumerate(best.utility):
            if np.isfinite(utility):
                results.append(conclude(problem, step, best.z[step], nodes=nodes, seconds=seconds))
            else:
                results.append(_missed(problem, step, found.closest[step], nodes))
        return results

    def closest(self, problem: Problem, step: int = 0, random_state: Any = None) -> Missed | Solution:
        """Return the rule found for one step of the bounds, or the closest one if there is none."""
        found = self.solve(problem.take([step]), random_state)[0]
        assert isinstance(found, Missed | Solution)
        return found


def _missed(problem: Problem, step: int, z: FloatArray, nodes: int) -> Missed:
    _, values = problem.evaluate(problem.decide(z))
    excess = problem.excess(values, step)
    return Missed(False, nodes, excess=excess, z=tuple(map(float, z)), values=tuple(map(float, values)))


def smoothed_search(
    problem: Problem,
    best: Best,
    *,
    max_work: float | None = None,
    random_state: Any = None,
    starts: Sequence[FloatArray] = (),
) -> Smoothing:
    """Improve ``best`` in place, from its own rules, from ``starts``, from z = 0 and from the model's own optimum.

    Every rule kept meets its step's bounds. z = 0, which is ``margin > 0``, is always evaluated, also if rows have a
    margin of 0.
    """
    n, steps = len(problem.margin), len(problem.lower)
    usual = usual_work(problem)
    max_work = usual if max_work is None else float(max_work)
    patience = max(1, round(FRUITLESS_ROUNDS * max_work / usual))
    seed = 0 if check_seed(random_state) is None else random_state
    scaled = Scaled.of(problem)
    given = [*starts, *best.z[np.isfinite(best.utility)]]
    inner = [scaled.inward(np.asarray(z, dtype=np.float64)) for z in given]
    run = _Run(scaled.problem, np.random.default_rng(seed), patience)
    run.offer_zero()
    if problem.dimension == 1:
        run.sweep_the_line()
    elif problem.dimension > 1 and n > 0:
        lines = _lines_through_zero(problem.dimension, seed) * scaled.stretch
        if n > ROWS_OF_A_SAMPLE:
            sample = _Run(stratified_sample(scaled.problem, ROWS_OF_A_SAMPLE, run.rng), run.rng, patience)
            sample.offer_zero()
            sample.search(inner, lines, min(0.5 * max_work, WORK * (1.0 + WORK_A_STEP * (steps - 1))))
            run.work = sample.work
            run.continue_from(sample, inner, max_work)
        else:
            run.search(inner, lines, max_work)
    _take_over(scaled, run, best)
    return Smoothing(
        run.multipliers * scaled.utility_scale, run.excess.copy(), scaled.outward(run.nearest), int(run.work)
    )


def usual_work(problem: Problem) -> float:
    """Return the default number of row visits of a search."""
    return (WORK + WORK_A_ROW * len(problem.margin)) * (1.0 + WORK_A_STEP * (len(problem.lower) - 1))


def _take_over(scaled: Scaled, run: _Run, best: Best) -> None:
    """Copy improvements into the caller's record."""
    utility = run.best.utility * scaled.utility_scale
    better = utility > best.utility
    best.utility[better] = utility[better]
    best.z[better] = scaled.outward(run.best.z[better])
    if run.excess[-1] > FEASIBILITY_SLACK and run.excess[-1] < best.closest[0]:
        z = scaled.outward(run.nearest[-1])
        best.closest = np.array([run.excess[-1], run.nearest_utility[-1] * scaled.utility_scale, np.nan])
        best.closest_z = z


class _Run:
    """The search of one scaled problem: its rows, the rules found, and the closest rule for each step."""

    def __init__(self, problem: Problem, rng: np.random.Generator, patience: int) -> None:
        steps, c = problem.lower.shape
        self.problem, self.rng, self.patience = problem, rng, patience
        self.best = Best.none(problem)
        self.excess = np.full(steps, np.inf)
        self.nearest = np.zeros((steps, problem.dimension))
        self.nearest_utility = np.full(steps, -np.inf)
        self.multipliers = np.zeros((steps, c))
        self.ends: dict[int, list[FloatArray]] = {}  # where the descents ended
        self._waiting: dict[int, tuple[float, FloatArray]] = {}
        self._extra_work = 0.0
        columns, self.matrix = _spanning_columns(problem)
        self.size = _sizes(problem.effects)
        self.sums = SmoothSums(problem.margin, problem.contrasts, np.column_stack([problem.gain, columns]))
        self._model: tuple[SmoothSums, FloatArray, FloatArray] | None = None

    @property
    def work(self) -> float:
        """Row visits so far."""
        modelled = 0 if self._model is None else self._model[0].work
        return self.sums.work + modelled + self._extra_work

    @work.setter
    def work(self, spent: float) -> None:
        self._extra_work = spent

    # The rules that are kept.

    def offer_zero(self) -> None:
        """Keep z = 0 if it meets the bounds: its decisions are exact, also for rows with a margin of 0."""
        zero = np.zeros(self.problem.dimension)
        utility, values = self.problem.evaluate(self.problem.decide(zero))
        self._note_values(zero, utility, values)
        self._waiting.clear()
        met = self.excess <= FEASIBILITY_SLACK
        self.best.utility[met], self.best.z[met] = utility, zero

    def offer(self, z: FloatArray) -> None:
        """Evaluate a rule."""
        self._extra_work += len(self.problem.margin)
        self._note_values(z, *self.problem.evaluate(self.problem.decide(z)))
        self._settle()

    def note(self, z: FloatArray) -> None:
        """Evaluate the rule that was smoothed last."""
        sums = self.sums.exact()
        self._note_values(z, self.problem.offset + float(sums[0]), self.matrix @ sums[1:])

    def _note_values(self, z: FloatArray, utility: float, values: FloatArray) -> None:
        excess = np.maximum(self.problem.lower - values, values - self.problem.upper).max(axis=1, initial=0.0)
        nearer = (excess < self.excess) | ((excess == self.excess) & (utility > self.nearest_utility))
        self.excess[nearer], self.nearest[nearer], self.nearest_utility[nearer] = excess[nearer], z, utility
        for step in map(int, np.flatnonzero((excess <= FEASIBILITY_SLACK) & (utility > self.best.utility))):
            if step not in self._waiting or utility > self._waiting[step][0]:
                self._waiting[step] = (utility, z)

    def _settle(self) -> None:
        """Recount the best noted rules row by row, and keep those that hold."""
        offered: list[FloatArray] = []
        for _, z in self._waiting.values():
            if not any(z is other for other in offered):
                offered.append(z)
                self.best.offer(self.problem, z)
                self._extra_work += 2 * len(self.problem.margin)
        self._waiting.clear()

    def current(self, step: int) -> FloatArray:
        """Return the step's best rule, or the closest one."""
        z: FloatArray = self.best.z[step] if np.isfinite(self.best.utility[step]) else self.nearest[step]
        return z

    def standing(self, step: int) -> tuple[float, float]:
        """Return a score that grows as the step's best rule improves, or the closest one gets closer."""
        return float(self.best.utility[step]), -float(self.excess[step])

    # Smoothed descents.

    def descend(self, step: int, z: FloatArray, stages: Stages, penalty: float = PENALTIES[0]) -> FloatArray:
        """Follow one start from large to small tau, then adjust the bounds to the counts."""
        lower, upper = self.problem.lower[step], self.problem.upper[step]
        lagrangian = Lagrangian(self.sums, self.matrix, self.size, lower, upper, penalty)
        if stages[0] <= WARM[0]:
            # A descent that starts near a good rule would leave it first if it had to find the multipliers again.
            lagrangian.multipliers = self.multipliers[step] * self.size
        before = self.standing(step)
        z = follow(lagrangian, z, stages, self.note)
        for _ in range(CORRECTIONS):
            lagrangian.value(z)
            off = self.matrix @ (self.sums.exact() - lagrangian.at)[1:]
            lagrangian.bound(lower - off, upper - off)
            z = minimise(lagrangian, z, ITERATIONS // 2, self.note)
            lagrangian.multipliers = lagrangian.penalty * lagrangian.distance
        self._settle()
        if self.standing(step) > before or not self.multipliers[step].any():
            self.multipliers[step] = lagrangian.multipliers / self.size
        return z

    def plug_in(self, step: int, share: float, z: FloatArray, stages: Stages) -> FloatArray:
        """Return the optimum under the model's probabilities (Lemma 1), with bounds tightened to a share."""
        problem = self.problem
        assert problem.weight is not None
        assert problem.mixing is not None
        if self._model is None:
            worth = problem.margin * problem.weight
            worth /= max(float(np.abs(worth).sum()), 1e-300)
            densities = problem.contrasts * problem.weight[:, None]
            sums = SmoothSums(problem.margin, problem.contrasts, np.column_stack([worth, densities]))
            self._model = sums, problem.mixing, _sizes(densities @ problem.mixing.T)
        lower, upper = _drawn_in(problem.lower[step], problem.upper[step], share)
        return follow(Lagrangian(*self._model, lower, upper, PENALTIES[0]), z, stages)

    def search(self, starts: Sequence[FloatArray], lines: FloatArray, max_work: float) -> None:
        """Search all steps: some from many starts, the others from those; then polish until there is no progress."""
        steps = len(self.problem.lower)
        anchors = np.unique(np.linspace(0, steps - 1, min(steps, ANCHORS)).round().astype(int))[::-1]
        on_lines = self._sweep_lines(lines, anchors)
        for z in starts:
            self.offer(z)
        until = self.work + SHARE_FOR_STARTS * (max_work - self.work)
        for anchor in anchors:
            share = (until - self.work) / max(1, int((anchors <= anchor).sum()))
            self._search_from_afar(int(anchor), starts, self.work + share)
        for step in sorted(set(range(steps)) - set(map(int, anchors)), reverse=True):
            if self.work < until:
                self.descend(step, self.current(min(step + 1, steps - 1)), LAST, PENALTIES[1])
        self._improve(max_work, BOX_ROWS)
        # Last, because the search continues from known rules, and rules on these lines are seldom near the best.
        known = self.best.utility.copy()
        for z in on_lines:
            self.offer(z)
        for step in map(int, np.flatnonzero(self.best.utility > known)):
            self.polish(step, BOX_ROWS)

    def _search_from_afar(self, step: int, starts: Sequence[FloatArray], until: float) -> None:
        zero = np.zeros(self.problem.dimension)
        ends = self.ends.setdefault(step, [])
        ends.append(self.descend(step, zero, COLD))
        z = zero
        for number, share in enumerate(TIGHTENED):
            if self.work > until:
                return
            z = self.plug_in(step, share, z, PLUG_IN_WARM if number else PLUG_IN_COLD)
            self.offer(z)
            ends.append(self.descend(step, z, MILD))
        if self.work < until:
            ends.append(self.descend(step, zero, COLD, PENALTIES[1]))
        for start in starts:
            if self.work < until:
                ends.append(self.descend(step, start, WARM, PENALTIES[1]))

    def continue_from(self, sample: _Run, starts: Sequence[FloatArray], max_work: float) -> None:
        """Search all rows, starting from the rules found on a sample."""
        for z in (*starts, *np.unique(np.vstack([sample.best.z, sample.nearest]), axis=0)):
            if np.isfinite(z).all():
                self.offer(z)
        steps = len(self.problem.lower)
        self.multipliers[:] = sample.multipliers
        until = self.work + SHARE_FOR_STARTS * (max_work - self.work)
        for step in np.argsort(-np.gcd(np.arange(steps), steps), kind="stable"):  # spread over the ladder
            if self.work < until:
                self.descend(int(step), sample.current(int(step)), WARM, PENALTIES[1])
        self._improve(max_work, int(np.clip(BOX_SHARE * len(self.problem.margin), BOX_ROWS, MOST_BOX_ROWS)))

    # Exact sweeps.

    def sweep_the_line(self) -> None:
        """Evaluate every rule of a problem with one contrast."""
        found = Best.none(self.problem)
        sweep_line(self.problem, self.problem.table, np.zeros(1), np.ones(1), found)
        for z in (*found.z[np.isfinite(found.utility)], found.closest_z):
            if z is not None:
                self.offer(z)
        self._extra_work += _visits_of_a_sweep(self.problem.table)

    def _sweep_lines(self, lines: FloatArray, anchors: NDArray[np.intp]) -> list[FloatArray]:
        """Return the best rules on lines through z = 0; with many rows, only those that look best on a sample."""
        problem, zero = self.problem, np.zeros(self.problem.dimension)
        if len(problem.margin) > MOST_ROWS_FOR_LINES:
            sample = stratified_sample(problem, ROWS_FOR_LINES, self.rng)
            table, ranks = sample.table, np.empty((len(lines), len(anchors)))
            for rank, direction in zip(ranks, lines, strict=True):
                alone = Best.none(sample)
                sweep_line(sample, table, zero, direction, alone)
                known = alone.utility[anchors]
                rank[:] = np.where(np.isfinite(known), known, -1e9 * (1.0 + alone.closest[0]))
            self._extra_work += len(lines) * _visits_of_a_sweep(table)
            kept = np.argsort(-ranks, axis=0, kind="stable")[: max(1, LINES_ON_ALL_ROWS // len(anchors))]
            lines = lines[np.unique(kept)]
        found, table = Best.none(problem), problem.table
        for direction in lines:
            sweep_line(problem, table, zero, direction, found)
        self._extra_work += len(lines) * _visits_of_a_sweep(table)
        return list(np.unique(found.z[np.isfinite(found.utility)], axis=0))

    def _improve(self, max_work: float, rows: int) -> None:
        """Polish every step's rule, then restart from perturbed ones until there is no progress or no budget left."""
        steps = np.arange(len(self.problem.lower))
        for step in steps:
            if self.work < max_work:
                self.polish(int(step), rows)
        fruitless = np.zeros(len(steps), dtype=int)
        number = 0
        while self.work < max_work and (fruitless < self.patience).any():
            for step in steps[fruitless < self.patience]:
                if self.work >= max_work:
                    return
                before = self.standing(int(step))
                self._go_on(int(step), number, rows)
                fruitless[step] = 0 if self.standing(int(step)) > before else fruitless[step] + 1
            number += 1

    def _go_on(self, step: int, number: int, rows: int) -> None:
        """Try to leave a local optimum: perturb it, polish another start's result, or increase tau again."""
        z, penalty = self.current(step), (16.0, 64.0, 256.0)[number % 3]
        if number % 2 == 0:
            size = KICK * (float(np.abs(z).mean()) or 0.1)
            self.descend(step, z + size * self.rng.normal(size=len(z)), WARM, penalty)
        elif self.ends.get(step):
            for end in [self.ends[step].pop(0) for _ in self.ends[step][:ENDS_A_ROUND]]:
                self._sweep_around(self.problem.take([step]), end, rows)
        else:
            self.descend(step, z, MILD, penalty)
        self.polish(step, rows)

    def polish(self, step: int, rows: int) -> None:
        """Sweep along lines inside a box around the step's best rule, and follow it, until there is no progress."""
        problem = self.problem.take([step])
        for _ in range(3):
            before = self.standing(step)
            self._sweep_around(problem, self.current(step), rows)
            if self.standing(step) == before:
                return

    def _directions(self, z: FloatArray) -> FloatArray:
        """Return, as rows, directions that change one of the spanning values but hardly the others."""
        self.sums.smooth(z, WARM[0])
        gradients, _ = self.sums.curvature(WARM[0])
        away = np.linalg.pinv(gradients[1:], rcond=1e-8).T
        size = np.abs(away).max(axis=1, keepdims=True)
        return np.asarray((away / np.where(size > 0.0, size, 1.0))[size[:, 0] > 0.0], dtype=np.float64)

    def _sweep_around(self, problem: Problem, z: FloatArray, rows: int) -> None:
        """Sweep inside a box around z, in rounds of directions, until three rounds bring no progress."""
        box, away = box_around(problem, z, rows), self._directions(z)
        self._extra_work += 5 * len(problem.margin)
        table, k = box.table, box.dimension
        visits = _visits_of_a_sweep(table)
        best = Best.none(box)
        best.offer(box, z)
        fruitless = 0
        while fruitless < 3:
            fruitless += 1
            drawn = [*self.rng.normal(size=(k, len(away))) @ away, *self.rng.normal(size=(k, k))]
            for direction in (*away, *np.eye(k), *drawn):
                origin = z if best.closest_z is None else best.closest_z
                origin = best.z[0] if np.isfinite(best.utility[0]) else origin
                if np.abs(direction).max() > 0.0 and sweep_line(box, table, origin, direction, best):
                    fruitless = 0
                self._extra_work += visits
        found = best.z[0] if np.isfinite(best.utility[0]) else best.closest_z
        if found is not None:
            self.offer(found)


def _visits_of_a_sweep(table: FloatArray) -> float:
    rows, columns = table.shape
    return float(VISITS_A_SWEPT_ROW * rows * (1.0 + columns / 16.0) + VISITS_A_CALL)


def _sizes(effects: FloatArray) -> FloatArray:
    """Return for each constraint half the sum of its absolute effects, which is 1 for a difference of two rates."""
    sizes = 0.5 * np.abs(effects).sum(axis=0)
    return np.where(sizes > 0.0, sizes, 1.0)


def _drawn_in(lower: FloatArray, upper: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """Return bounds tightened to a share of their width; one-sided bounds stay."""
    with np.errstate(invalid="ignore"):
        room = np.where(np.isfinite(lower) & np.isfinite(upper), 0.5 * (1.0 - share) * (upper - lower), 0.0)
    return lower + room, upper - room


def _spanning_columns(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Return columns and a matrix that generates all effects: many constraints are combinations of a few."""
    c, k = problem.effects.shape[1], problem.dimension
    assert problem.mixing is not None
    if c > k:
        units = problem.mixing / np.where(
            problem.mixing.any(axis=0), np.abs(problem.mixing).max(axis=0, initial=0.0), 1.0
        )
        single = (units != 0.0).sum(axis=1) == 1
        basis = [np.flatnonzero(single & (units[:, j] == 1.0)) for j in range(k)]
        if all(len(match) for match in basis):
            columns = problem.effects[:, [match[0] for match in basis]]
            if np.allclose(columns @ units.T, problem.effects, rtol=0.0, atol=1e-13):
                return columns, units
    return problem.effects, np.eye(c)


def _lines_through_zero(k: int, seed: Any) -> FloatArray:
    """Return the lines of the rays of :class:`Directions`: evenly spread for K = 2, random beyond."""
    if k == 2:
        angle = 2.0 * np.pi * np.arange((RAYS + 1) // 2) / RAYS
        return np.column_stack([np.cos(angle), np.sin(angle)])
    return np.random.default_rng(seed).normal(size=(RAYS, k))
