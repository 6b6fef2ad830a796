"""The facts about the rows without their scores: how many of each label and group, and the bounds.

One pass counts *atoms*: rows with the same label, the same groups and the same decision of the model itself. From them
come the priors, each row's gain and effects, the bounds (tightened by safety), and the utility of z = 0.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import _kernels
from evenhand.engines.cells import CountedCells
from evenhand.engines.gathering import RawRows
from evenhand.engines.schema import FINEST, Cells, Frame, Words
from evenhand.inputs import FloatArray
from evenhand.rules import scores
from evenhand.rules.rule import Rule
from evenhand.rules.setting import MARGIN_ROUNDING, Options, Setting
from evenhand.rules.sql import DIALECTS
from evenhand.search import Problem, Solution
from evenhand.search.problem import FEASIBILITY_SLACK, Status, conclude

Decider = Callable[[FloatArray], NDArray[np.bool_]]


@dataclass(frozen=True)
class Atoms(Cells):
    """The tally of labels, groups and the model's own decisions, which take the place of its score."""

    costs: scores.Costs = (1.0, 1.0)

    def masks(self, level: int) -> Words:
        """Return that everything is kept."""
        return np.full(self.width, -1, dtype=np.int64)

    def sql(self, dialect: str) -> list[str]:
        """Return the words as SQL expressions."""
        word, shift, _ = self.schema.fields["s0"]
        chosen = f" + CASE WHEN {margin_text(self.costs, dialect)} > 0 THEN {1 << (FINEST + shift)} ELSE 0 END"
        packed = self.schema.packed((n for n in self.schema.fields if self._kept(n)), dialect)
        return self._guarded([text + (chosen if k == word else "") for k, text in enumerate(packed)])

    def words(self, frame: Frame) -> Words:
        """Return the words of some rows."""
        found = super().words(frame)
        for name in self.schema.quantised:
            word, shift, bits = self.schema.fields[name]
            found[:, word] &= ~(((1 << bits) - 1) << shift)
        word, shift, _ = self.schema.fields["s0"]
        with np.errstate(invalid="ignore"):
            chosen = scores.margin(frame["s0"], self.costs) > 0.0
        found[:, word] += chosen.astype(np.int64) << (FINEST + shift)
        return found

    def _kept(self, name: str) -> bool:
        return name != "flaw" and name not in self.schema.quantised


def margin_text(costs: scores.Costs, dialect: str) -> str:
    """Return the margin as SQL, with the operations of :func:`evenhand.rules.scores.margin`."""
    spelling = DIALECTS[dialect]
    return f"({spelling.literal(costs[1] + costs[0])} * s0 - {spelling.literal(costs[0])})"


@dataclass(frozen=True, eq=False)
class LinearScores:
    """The contrasts as linear expressions of a row's probabilities: ``constant + sum_j weights_j s_j``.

    ``sizes`` are the same sums with everything positive: what a contrast is small against when it is only rounding.
    """

    names: tuple[str, ...]
    weights: FloatArray
    constant: FloatArray
    sizes: FloatArray
    size_constant: FloatArray
    costs: scores.Costs

    def margin(self, dialect: str) -> str:
        """Return the margin as SQL."""
        return margin_text(self.costs, dialect)

    def contrast(self, k: int, dialect: str) -> str:
        """Return a contrast as SQL."""
        return self._text(self.weights[k], float(self.constant[k]), dialect)

    def size(self, k: int, dialect: str) -> str:
        """Return the size of a contrast's terms as SQL."""
        return self._text(self.sizes[k], float(self.size_constant[k]), dialect)

    def _text(self, weights: FloatArray, constant: float, dialect: str) -> str:
        spelling = DIALECTS[dialect]
        terms = [
            f"{spelling.literal(weight)} * {name}" for weight, name in zip(weights, self.names, strict=True) if weight
        ]
        return f"({' + '.join([spelling.literal(constant), *terms] if constant or not terms else terms)})"

    def along(self, axes: FloatArray) -> LinearScores:
        """Return the contrasts along some axes of z, the columns of a matrix."""
        return LinearScores(
            self.names,
            axes.T @ self.weights,
            axes.T @ self.constant,
            np.abs(axes).T @ self.sizes,
            np.abs(axes).T @ self.size_constant,
            self.costs,
        )

    def form(self, axes: FloatArray, least: float, delicate: float) -> _kernels.Form:
        """Return the margin and the contrasts along some axes of z, the columns of a matrix, for compiled loops."""
        own = self.along(axes)
        weights, sizes = np.ascontiguousarray(own.weights), np.ascontiguousarray(own.sizes)
        most = float(own.sizes.sum() + own.size_constant.sum())
        slope, constant = float(self.costs[1] + self.costs[0]), float(self.costs[0])
        limits = most, MARGIN_ROUNDING * float(sum(self.costs)), least, delicate
        return _kernels.Form(slope, constant, weights, own.constant, sizes, own.size_constant, *limits)


class Columnar:
    """The scores of rows as one array, in space that is kept: asking the system for it takes as long as filling it."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._room = np.empty((len(names), 0))

    def of(self, frame: Frame) -> tuple[FloatArray, int]:
        """Return the scores of some rows, one after the other, and how many rows there are."""
        n = len(frame[self.names[0]])
        if self._room.shape[1] < n:
            self._room = np.empty((len(self.names), n))
        for k, name in enumerate(self.names):
            self._room[k, :n] = frame[name]
        return self._room, n


class Ground:
    """The atoms of some rows, a criterion and a tolerance: everything except the scores."""

    def __init__(self, atoms: CountedCells, rows: Any, options: Options, tolerance: float) -> None:
        """``rows`` are the atoms as Rows; their probabilities are placeholders."""
        self.schema, self.options, self.tolerance = atoms.schema, options, tolerance
        self.n_rows, self.atoms = atoms.n_rows, atoms
        self.setting = Setting.of(_with_two_more(rows, self._chosen), options)
        self.problem = self.setting.problem([tolerance])
        self.n_watched = 0
        self.outcome: tuple[float, FloatArray] | None = None

    @cached_property
    def _chosen(self) -> NDArray[np.bool_]:
        return self.schema.unpack(self.atoms.words, "s0") > 0

    @property
    def dimension(self) -> int:
        """K, the number of contrasts."""
        return self.problem.dimension

    @cached_property
    def units(self) -> FloatArray:
        """The gain and the effects of a unit of weight of each atom, of shape (atoms, 1 + C)."""
        table = self.problem.table[: self.atoms.n_cells]
        weight = self.atoms.weight[:, None]
        units = np.divide(table, weight, out=np.zeros_like(table), where=weight > 0.0)
        # Atoms that differ only in the model's own decision have the same units: one of them may weigh nothing.
        codes = self._code_of_atom
        lightest_first = np.argsort(self.atoms.weight, kind="stable")
        heaviest = np.zeros(self.n_codes, dtype=np.int64)
        heaviest[codes[lightest_first]] = lightest_first
        found: FloatArray = units[heaviest[codes]]
        return found

    @cached_property
    def _code_of_atom(self) -> NDArray[np.int64]:
        """The number of each atom's combination of label and groups."""
        fields = {name: self.schema.unpack(self.atoms.words, name) for name, _, _ in self._coded}
        return self.codes_of({"s0": np.zeros(self.atoms.n_cells), **fields})

    @cached_property
    def at_zero(self) -> FloatArray:
        """The utility and the values of the model's own decisions."""
        sums: FloatArray = self.problem.table[: self.atoms.n_cells][self._chosen].sum(axis=0)
        sums[0] += self.problem.offset
        return sums

    def kinds_of(self, words: Words) -> NDArray[np.int64]:
        """Return the atom of each row, whatever the model decides, by the label and the groups in its words."""
        fields = ["label", *(f"a{place}" for place in range(len(self.schema.observed)))]
        known, wanted = np.zeros(self.atoms.n_cells, dtype=np.int64), np.zeros(len(words), dtype=np.int64)
        for name in fields:
            bits = self.schema.fields[name][2]
            known = (known << bits) + self.schema.unpack(self.atoms.words, name)
            wanted = (wanted << bits) + self.schema.unpack(words, name)
        order = np.argsort(known, kind="stable")
        return order[np.searchsorted(known[order], wanted)]

    @cached_property
    def _coded(self) -> list[tuple[str, int, int]]:
        """The fields that distinguish rows, each with its smallest value and its number of values."""
        found = []
        for name in ["label", *(f"a{place}" for place in range(len(self.schema.observed)))]:
            values = self.schema.unpack(self.atoms.words, name)
            found.append((name, int(values.min()), int(np.ptp(values)) + 1))
        return found

    @cached_property
    def n_codes(self) -> int:
        """How many combinations of label and groups there may be."""
        return math.prod(size for _, _, size in self._coded)

    def code_text(self) -> str:
        """Return the number of a row's combination of label and groups as SQL."""
        text = "0"
        for name, low, size in self._coded:
            text = f"({text} * {size} + (CAST({name} AS BIGINT) - {low}))"
        return text

    def codes_of(self, frame: Frame) -> NDArray[np.int64]:
        """Return what :meth:`code_text` computes."""
        found = np.zeros(len(frame["s0"]), dtype=np.int64)
        lowest = 0
        for name, low, size in self._coded:
            found *= size
            np.add(found, frame[name], out=found, casting="unsafe")
            lowest = lowest * size + low
        found -= lowest
        return found

    def shares(self, raw: RawRows) -> FloatArray:
        """Return weights of sampled rows that stand for all rows with their label, groups and the model's decision."""
        whole = 2 * self._code_of_atom + self._chosen
        mine = 2 * self.codes_of(raw.frame) + (scores.margin(raw.p_y, self.options.costs) > 0.0)
        weight, sizes = raw.weight, 2 * self.n_codes
        drawn = np.bincount(mine, weight, sizes)
        found: FloatArray = weight * (np.bincount(whole, self.atoms.weight, sizes) / np.maximum(drawn, 1e-300))[mine]
        return found

    def empty(self, places: int, weighted: bool) -> NDArray[Any]:
        """Return space for the weight of each code at each of some places."""
        small = not weighted and self.n_rows < 1 << 32
        return np.zeros(places * self.n_codes, dtype=np.uint32 if small else np.float64)

    @cached_property
    def kind_of_code(self) -> NDArray[np.int64]:
        """The atom of each combination; those that do not occur have the first."""
        found = np.zeros(self.n_codes, dtype=np.int64)
        fields = {name: self.schema.unpack(self.atoms.words, name) for name, _, _ in self._coded}
        found[self.codes_of({"s0": np.zeros(self.atoms.n_cells), **fields})] = np.arange(self.atoms.n_cells)
        return found

    @cached_property
    def linear(self) -> LinearScores:
        """The contrasts as linear expressions of the scores."""
        system, setting = self.setting.system, self.setting
        places = {entry.attribute: names for entry, names in zip(self.schema.scored, self.schema.names, strict=True)}
        names = tuple(name for attribute in setting.groups for name in places[attribute])
        joint = {entry.attribute: entry.joint for entry in self.schema.scored}
        per_event = np.zeros((len(system.events), len(names)))
        constant = np.zeros(len(system.events))
        for j, event in enumerate(system.events):
            if event.attribute is None:
                constant[j] = 1.0 / setting.priors[j]
                continue
            for column in scores.event_columns(event, setting.groups, joint=joint[event.attribute]):
                per_event[j, names.index(places[event.attribute][column])] += 1.0 / setting.priors[j]
        matrix = system.contrasts
        return LinearScores(
            names,
            matrix @ per_event,
            matrix @ constant,
            np.abs(matrix) @ per_event,
            np.abs(matrix) @ constant,
            self.options.costs,
        )

    def arrays(self, raw: RawRows, *, sampled: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return margin, contrasts, and gain with effects, of raw rows: the same numbers as in memory.

        Sampled rows have the weights of :meth:`shares`.
        """
        setting = self.setting
        used = {name: raw.p_group[name] for name in setting.groups}
        posteriors = scores.posteriors(setting.system.events, setting.groups, used, len(raw))
        margins = scores.margin(raw.p_y, self.options.costs)
        contrasts = scores.contrasts(posteriors / setting.priors, setting.system.contrasts)
        tied = (np.abs(margins) <= MARGIN_ROUNDING * sum(self.options.costs)) & ~contrasts.any(axis=1)
        kinds = self.kinds_of(self.schema.pack(raw.frame, [n for n in self.schema.fields if self._told_apart(n)]))
        weight = self.shares(raw) if sampled else raw.weight
        return np.where(tied, 0.0, margins), contrasts, self.units[kinds] * weight[:, None]

    def _told_apart(self, name: str) -> bool:
        return name != "flaw" and name not in self.schema.quantised

    def decide(self, raw: RawRows, z: FloatArray) -> NDArray[np.bool_]:
        """Return a rule's decisions on raw rows, as the rule itself makes them."""
        rule = self.setting.rule_at(z, self.tolerance)
        used = {name: raw.p_group[name] for name in rule.attributes}
        decisions: NDArray[np.bool_] = rule.decision_function(raw.p_y, used) > 0.0
        return decisions

    def meets(self, sums: FloatArray) -> bool:
        """Tell whether some values meet the bounds."""
        return self.problem.excess(sums[1:]) <= FEASIBILITY_SLACK

    def under(self, problem: Problem, watched: FloatArray, setting: Setting | None = None) -> Ground:
        """Return the same rows and rules with another utility or other bounds; both count atoms.

        ``watched`` has more effects, without bounds, of shape (atoms, W): :attr:`outcome` has their sums.
        """
        found = copy.copy(self)
        for name in ("units", "at_zero"):
            found.__dict__.pop(name, None)
        assert problem.mixing is not None
        free = np.full((len(problem.lower), watched.shape[1]), np.inf)
        found.problem = dataclasses.replace(
            problem,
            effects=np.hstack([problem.effects, watched]),
            lower=np.hstack([problem.lower, -free]),
            upper=np.hstack([problem.upper, free]),
            mixing=np.vstack([problem.mixing, np.zeros((watched.shape[1], problem.dimension))]),
        )
        found.setting = self.setting if setting is None else setting
        found.n_watched = watched.shape[1]
        return found

    def rule(self, problem: Problem, solution: Solution) -> Rule:
        """Return the rule of a solution of a problem that represents all rows."""
        utility, values = problem.evaluate(problem.decide(np.array(solution.z)))
        self.outcome = utility, values[len(values) - self.n_watched :]
        if self.n_watched:
            assert problem.mixing is not None
            own = slice(0, len(values) - self.n_watched)
            problem = dataclasses.replace(
                problem,
                effects=problem.effects[:, own],
                mixing=problem.mixing[own],
                lower=problem.lower[:, own],
                upper=problem.upper[:, own],
            )
        return self.with_counts(self.setting.rule(problem, solution, self.tolerance, 0))

    def with_counts(self, rule: Rule) -> Rule:
        """Return a rule whose ``learned_from`` counts rows instead of atoms."""
        n = self.n_rows
        shares = zip(self.setting.system.names, self.setting.counted_priors, strict=True)
        learned = {
            **rule.learned_from,
            "rows": n,
            "rows_by_event": {name: round(float(share) * n) for name, share in shares},
        }
        return dataclasses.replace(rule, learned_from=learned)

    def problem_of(
        self, margin: FloatArray, contrasts: FloatArray, table: FloatArray, decider: Decider | None = None
    ) -> Problem:
        """Return a problem with the bounds, and with other rows; ``table`` has their gains and effects."""
        own = self.problem
        return Problem(
            margin=margin,
            contrasts=contrasts,
            gain=table[:, 0],
            effects=table[:, 1:],
            lower=own.lower,
            upper=own.upper,
            offset=own.offset,
            mixing=own.mixing,
            decider=decider,
        )

    def unchanged(self, status: Status, *, upper_bound: float = np.inf, nodes: int = 0) -> Rule:
        """Return the unchanged model; the utility of its own decisions is known."""
        sums = self.at_zero.copy()
        sums[0] -= self.problem.offset
        whole = self.problem_of(np.ones(1), np.zeros((1, self.dimension)), sums[None])
        zero = np.zeros(self.dimension)
        return self.rule(whole, conclude(whole, 0, zero, upper_bound=upper_bound, status=status, nodes=nodes))


def _with_two_more(rows: Any, chosen: NDArray[np.bool_]) -> Any:
    """Return the atoms with two more rows of weight 0, so that their scores are never all equal."""
    index = np.concatenate([np.arange(len(rows)), [0, 0]])
    found = rows.take(index)
    weight, copies = found.weights.copy(), found.copies.copy()
    weight[-2:], copies[-2:] = 0.0, 0
    p_y = np.concatenate([chosen.astype(np.float64), [0.0, 1.0]])
    return dataclasses.replace(found, p_y=p_y, sample_weight=weight, copies=copies)
