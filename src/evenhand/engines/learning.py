"""From an aggregate to a rule: learning from cells instead of rows.

The search uses the midpoints of the cells. A rule is applied to the unrounded scores, so a row near the boundary may
get another decision than its midpoint. An engine that can read its rows again therefore does so: rules for bounds that
are tightened by nothing, and by increasing parts of a cell's width, are counted on the rows themselves in one more
pass, and the best one that meets the bounds *there* is returned. If none does, rules around the closest one are
counted, equally many in each pass, until one does. Its ``solution_`` has the recounted numbers, which are exact. If the
rows cannot be read again, ``solution_`` has the numbers of the midpoints.

In both cases the status is "found" and the ``upper_bound`` is infinite: the search's proof is about the midpoints, and
a rule of the rows themselves can be better. ``learned_from["quantisation"]`` has the proof about the midpoints.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_choice, check_flag
from evenhand.engines.cells import CountedCells
from evenhand.engines.gathering import RawRows
from evenhand.engines.recount import Decisions, Recount
from evenhand.engines.schema import FINEST, Columns, Schema
from evenhand.errors import EvenhandWarning, InfeasibleError, InputError
from evenhand.inputs import Attribute, FloatArray
from evenhand.rows import Rows, needed_attributes
from evenhand.rules import evidence as evidence_kinds
from evenhand.rules import scores
from evenhand.rules.criteria import check_tolerance
from evenhand.rules.events import AttributeKey, Intersection
from evenhand.rules.evidence import EvidenceName
from evenhand.rules.ladder import left_alone, warn_of_thin_cells, without_safety
from evenhand.rules.objective import ACCURACY, COST
from evenhand.rules.rule import Rule, check_rule
from evenhand.rules.setting import Options, Setting
from evenhand.rules.strata import check_unstratified
from evenhand.search import NoRule
from evenhand.search.closest import loosening
from evenhand.search.problem import FEASIBILITY_SLACK, conclude

ROUNDING = 1e-12
PARTS = (0.0, 1 / 64, 1 / 32, 1 / 16)
PROOF_PARTS = (1 / 4, 1 / 2, 3 / 4, 1.0, 3 / 2, 2.0)
MOST_ROUNDS = 8
RULES_A_ROUND = 40
STRIDES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)


@dataclass(frozen=True)
class ErrorBound:
    """How far a rule's numbers on the rows can be from those on the midpoints of their cells.

    Attributes
    ----------
    utility : float
        Of the accuracy, or of minus the mean cost.
    rates : dict
        Of each event's rate of positive decisions.
    values : tuple of float
        Of each constraint's value.
    """

    utility: float
    rates: dict[str, float]
    values: tuple[float, ...]


def learn_from_cells(aggregate: CountedCells, options: Options, tolerance: float, *, provable: bool) -> Rule:
    """Return the best rule for the midpoints; see :meth:`Aggregate.learn_rule`."""
    check_flag(provable, "provable")

    def learn(task: _Task) -> Rule:
        return _from_cells(task, provable=provable)

    return _with_safety(learn, _Task(aggregate, options, tolerance))


def _from_cells(task: _Task, *, provable: bool) -> Rule:
    aggregate = task.aggregate
    rule, bound = task.first()
    if not provable:
        return task.described(rule, bound)
    for found in [rule, *task.rules([part * max(bound.values, default=0.0) for part in PROOF_PARTS])]:
        own = task.error_bound(found)
        if task.proven(found, own):
            return task.described(found, own)
    raise InfeasibleError(
        f"No rule is proven to meet tolerance {task.tolerance:g} on the rows: in cells of width {aggregate.step:g} a"
        f" constraint can be off by {max(bound.values):.3g}. Count in finer cells, or use a larger tolerance."
    )


def learn_with_recount(
    aggregate: CountedCells,
    columns: Columns,
    recount: Callable[[Decisions], Recount],
    options: Options,
    tolerance: float,
) -> Rule:
    """Return the best rule that meets the bounds when it is counted on the rows themselves."""

    def learn(task: _Task) -> Rule:
        try:
            return _from_rows(task, columns, recount)
        except InfeasibleError:
            # The rules of the midpoints are not all there are: the model itself may meet the bounds on the rows.
            rule = task.unchanged()
            utility, values = _counted(task, columns, recount, [rule])[0]
            if task.problem.excess(values) > FEASIBILITY_SLACK:
                raise
            return task.described(rule, task.error_bound(rule), (utility, values), columns)

    return _with_safety(learn, _Task(aggregate, options, tolerance))


def _with_safety(learn: Callable[[_Task], Rule], task: _Task) -> Rule:
    """Learn a rule within the tightened bounds; if there is none, within the requested ones."""
    if task.options.safety == 0.0:
        return learn(task)
    warn_of_thin_cells(task.setting, task.tolerance)
    try:
        return learn(task)
    except InfeasibleError:
        plain = _Task(task.aggregate, dataclasses.replace(task.options, safety=0.0), task.tolerance)
        return without_safety(task.setting, learn(plain), task.tolerance)


def _from_rows(task: _Task, columns: Columns, recount: Callable[[Decisions], Recount]) -> Rule:
    aggregate = task.aggregate
    alone = task.alone()
    searched, closest, nearest = False, np.inf, alone
    for turn in range(MOST_ROUNDS):
        if turn == 0 and alone is not None:
            rules = [alone]
        elif not searched:
            rules, searched = task.rules([part * aggregate.step for part in PARTS]), True
            if not rules:
                raise task.infeasible()
            closest, nearest = np.inf, rules[0]
        else:
            assert nearest is not None
            rules = task.around(nearest, turn)
        counted = _counted(task, columns, recount, rules)
        found = [(*numbers, rule) for rule, numbers in zip(rules, counted, strict=True)]
        excess = [task.problem.excess(values) for _, values, _ in found]
        kept = [entry for entry, miss in zip(found, excess, strict=True) if miss <= FEASIBILITY_SLACK]
        if kept:
            utility, values, rule = max(kept, key=lambda entry: entry[0])
            return task.described(rule, task.error_bound(rule), (utility, values), columns)
        if min(excess) < closest:
            closest, nearest = min(excess), rules[int(np.argmin(excess))]
    raise InfeasibleError(
        f"No rule learnt in cells of width {aggregate.step:g} meets tolerance {task.tolerance:g} on the rows; the"
        f" closest exceeds it by {closest:.3g}. Allow more cells with max_cells, or a larger tolerance.",
        details={"smallest_excess": float(closest)},
    )


def _counted(
    task: _Task, columns: Columns, recount: Callable[[Decisions], Recount], rules: Sequence[Rule]
) -> list[tuple[float, FloatArray]]:
    """Return the utility and the constraints' values of some rules, counted on the rows in one pass."""
    aggregate, evidence = task.aggregate, task.options.evidence
    shift = shift_of(aggregate, rules[0])
    return task.evaluate(recount(Decisions(aggregate, columns.weight is not None, tuple(rules), evidence, shift)))


def error_bound(aggregate: CountedCells, rule: Rule, *, evidence: EvidenceName = "labels") -> ErrorBound:
    """Return the error bound of any rule; see :meth:`Aggregate.error_bound`."""
    check_choice(evidence, "evidence", ("labels", "model", "both"))
    check_rule(rule)
    if rule.criterion is None or rule.tolerance is None:
        raise InputError("The error bound needs a rule with a criterion and a tolerance; this one has none.")
    options = Options(criterion=rule.criterion, evidence=evidence, costs=rule.costs, missing="ignore")
    return _Task(aggregate, options, rule.tolerance).error_bound(rule)


def check_plain(options: Options) -> None:
    """Raise if an option needs the scores as they are, not rounded to cells."""
    if options.target.name not in (ACCURACY, COST):
        raise InputError(
            "Rules are learnt from cells of scores for accuracy, or for the mean cost with costs=...: for"
            f" objective={options.objective!r} learn from the rows, with a larger max_in_memory."
        )
    if options.criterion.has_levels:
        raise InputError(
            "Rules are learnt from cells of scores for linear criteria: for PredictiveParity and MinimaxRate, which"
            " search a level, learn from the rows, with a larger max_in_memory."
        )


class _Task:
    """One aggregate and one criterion: the setting of the midpoints and its methods."""

    def __init__(self, aggregate: CountedCells, options: Options, tolerance: float) -> None:
        self.tolerance = check_tolerance(tolerance)
        check_plain(options)
        check_unstratified(options.criterion.strata, "An aggregate", "learn in memory, with evenhand.learn_rule")
        self.aggregate, self.options = aggregate.crossing(options.criterion.intersections), options
        self.setting = Setting.of(rows_of(self.aggregate, options), options)
        self.problem = self.setting.problem([self.tolerance])

    def alone(self) -> Rule | None:
        """Return the unchanged model, if there is safety and it meets the bounds."""
        return left_alone(self.setting, self.tolerance) if self.options.safety > 0.0 else None

    def unchanged(self) -> Rule:
        """Return the model itself as a rule, whether or not it meets the bounds."""
        zero = np.zeros(self.problem.dimension)
        rule = self.setting.rule_at(zero, self.tolerance)
        return dataclasses.replace(rule, solution=conclude(self.problem, 0, zero, status="found"))

    def first(self) -> tuple[Rule, ErrorBound]:
        """Return the best rule for the bounds as they are, and how far its numbers can be off."""
        alone = self.alone()
        rules = self.rules([0.0]) if alone is None else [alone]
        if not rules:
            raise self.infeasible()
        return rules[0], self.error_bound(rules[0])

    def rules(self, offsets: Sequence[float]) -> list[Rule]:
        """Return the best rules for bounds tightened by each offset, the loosest first."""
        room = float(np.min(self.problem.upper - self.problem.lower, initial=np.inf)) / 2
        ladder = np.array(sorted({offset for offset in offsets if offset <= room}, reverse=True))
        if not ladder.size:
            return []
        problem = dataclasses.replace(
            self.problem, lower=self.problem.lower + ladder[:, None], upper=self.problem.upper - ladder[:, None]
        )
        results = self.options.solver.solve(problem, random_state=self.options.random_state)
        self._refuted = isinstance(results[-1], NoRule) and results[-1].proven
        found = [
            self.setting.rule(problem, result, self.tolerance, step)
            for step, result in enumerate(results)
            if not isinstance(result, NoRule)
        ]
        return list({rule.solution_.z: rule for rule in reversed(found)}.values())

    def around(self, rule: Rule, turn: int) -> list[Rule]:
        """Return rules whose boundaries are moved by parts of a cell's width, in directions that differ every turn."""
        sizes = np.median(np.abs(self.problem.contrasts), axis=0)
        unit = self.aggregate.step / np.maximum(sizes, 1e-6)
        directions = np.random.default_rng(turn).normal(size=(RULES_A_ROUND // len(STRIDES), len(unit)))
        directions /= np.abs(directions).max(axis=1, keepdims=True)
        places = [rule.z + stride * unit * direction for stride in STRIDES for direction in directions]
        return [
            dataclasses.replace(
                rule,
                terms=tuple(dataclasses.replace(t, z=float(z)) for t, z in zip(rule.terms, place, strict=True)),
                solution=dataclasses.replace(rule.solution_, z=tuple(map(float, place)), status="found"),
            )
            for place in places
        ]

    def error_bound(self, rule: Rule) -> ErrorBound:
        """Return how far a rule's numbers on the rows can be from those on the midpoints."""
        cells, setting = self.aggregate, self.setting
        margins = rule.decision_function(cells.p_y, cells.p_group)
        unsure = np.abs(margins) <= shift_of(cells, rule) + ROUNDING
        effects = np.abs(self.problem.effects)
        utility = float(np.abs(setting.evidence.gain)[unsure].sum())
        rates, values = setting.evidence.shares[unsure].sum(axis=0), effects[unsure].sum(axis=0)
        if self.options.evidence != "labels":
            extra_utility, extra_rates = self._error_of_expectations(unsure)
            share = 1.0 if self.options.evidence == "model" else 0.5
            utility += share * extra_utility
            rates = rates + share * extra_rates
            values = values + share * (np.abs(setting.system.matrix) @ extra_rates)
        names = setting.system.names
        return ErrorBound(utility, dict(zip(names, map(float, rates), strict=True)), tuple(map(float, values)))

    def _error_of_expectations(self, unsure: NDArray[np.bool_]) -> tuple[float, FloatArray]:
        """Return the additional error if the model's expectations are the evidence: gains and shares are off, too."""
        cells, setting = self.aggregate, self.setting
        share = cells.weight / cells.weight.sum()
        slope = sum(self.options.costs)
        utility = 2.0 * slope * float(share @ cells.radius_y)
        rates = np.zeros(len(setting.system.events))
        for j, event in enumerate(setting.system.events):
            if event.attribute is None:
                continue
            array = cells.p_group[event.attribute]
            radius = cells.radius_group[event.attribute]
            columns = scores.event_columns(event, setting.groups, joint=array.ndim == 3)
            size = array[0].size
            spread = sum((size - 1) * radius + 2 * cells.deviation if c == size - 1 else radius for c in columns)
            mass = float(share @ scores.posteriors([event], setting.groups, cells.p_group, cells.n_cells)[:, 0])
            off = float(share @ spread)
            rates[j] = min(1.0, (2.0 * off + float((share * spread)[unsure].sum())) / max(mass - off, 1e-300))
        return utility, rates

    def proven(self, rule: Rule, bound: ErrorBound) -> bool:
        """Return whether the bounds hold for the rows at any place inside their cells."""
        values, slack = np.array(rule.solution_.values) - self.setting.system.shift, np.array(bound.values)
        return max(self.problem.excess(values - slack), self.problem.excess(values + slack)) <= FEASIBILITY_SLACK

    def evaluate(self, counted: Recount) -> list[tuple[float, FloatArray]]:
        """Return the utility and the constraints' values of each rule, counted on the rows."""
        setting = self.setting
        rows = Rows(
            positive=counted.positive,
            classes=self.setting.rows.classes,
            attributes=counted.attributes,
            groups=self.setting.rows.groups,
            sample_weight=counted.weight,
            copies=counted.rows,
        ).crossing(self.options.criterion.intersections)
        kinds = []
        if self.options.evidence != "model":
            kinds.append(evidence_kinds.counted(rows, setting.system.events, self.options.target))
        if self.options.evidence != "labels":
            p_y, columns = counted.means()
            used = {name: columns[name] for name in setting.groups}
            posteriors = scores.posteriors(setting.system.events, setting.groups, used, len(p_y))
            rows = dataclasses.replace(rows, p_y=p_y)
            kinds.append(evidence_kinds.expected(rows, posteriors, self.options.target))
        found = kinds[0] if len(kinds) == 1 else kinds[0].mean(kinds[1])
        matrix = setting.system.matrix
        effects = found.shares @ matrix.T
        return [
            (found.offset + float(chosen @ found.gain), chosen @ effects)
            for chosen in counted.decisions.T.astype(float)
        ]

    def described(
        self,
        rule: Rule,
        bound: ErrorBound,
        recounted: tuple[float, FloatArray] | None = None,
        columns: Columns | None = None,
    ) -> Rule:
        """Return the rule with the recorded facts."""
        aggregate, solution = self.aggregate, rule.solution_
        priors = self.setting.evidence.priors
        n = aggregate.n_rows
        on_cells, _ = self.problem.evaluate(rule.decision_function(aggregate.p_y, aggregate.p_group) > 0.0)
        quantisation = {
            "step": aggregate.step,
            "cells": aggregate.n_cells,
            "recounted": recounted is not None,
            "utility_error": bound.utility,
            "rate_errors": bound.rates,
            "utility_on_cells": on_cells,
            "gap_on_cells": solution.gap if solution.status in ("optimal", "gap") else None,
        }
        learned_from = {
            **rule.learned_from,
            "rows": n,
            "rows_by_event": {
                name: round(float(share) * n) for name, share in zip(self.setting.system.names, priors, strict=True)
            },
            "quantisation": quantisation,
        }
        if columns is not None:
            learned_from["columns"] = columns.remember()
        if recounted is not None:
            utility, values = recounted
            shown = tuple(map(float, values + self.setting.system.shift))
            solution = dataclasses.replace(solution, utility=utility, values=shown)
        status = solution.status if solution.status in ("plug-in", "unchanged") else "found"
        solution = dataclasses.replace(solution, upper_bound=np.inf, status=status)
        classes = aggregate.schema.classes
        return dataclasses.replace(rule, classes=classes, learned_from=learned_from, solution=solution)

    def infeasible(self) -> InfeasibleError:
        """Return an exception that names what is possible instead."""
        where = f"in these {self.aggregate.n_cells:,} cells of {self.aggregate.n_rows:,} rows"
        moving = self.setting.system.moving
        found = loosening(self.problem, moving) if self._refuted and moving.any() else None
        if found is None or isinstance(found, NoRule):
            return InfeasibleError(f"No rule was found that meets the bounds {where}: loosen one of them.")
        smallest = self.tolerance + found[0]
        return InfeasibleError(
            f"No rule meets tolerance {self.tolerance:g} {where}; a rule exists at {smallest:.6g}.",
            smallest_tolerance=smallest,
        )


def rows_of(cells: CountedCells | RawRows, options: Options) -> Rows:
    """Return raw rows, or the midpoints of an aggregate's cells with the weight of their cell, as Rows."""
    schema = cells.schema
    if cells.n_rows == 0:
        raise InputError("The table has no rows to learn from.")
    groups: dict[AttributeKey, tuple[Hashable, ...]] = {entry.attribute: entry.groups for entry in schema.scored}
    groups |= dict(schema.observed)
    attributes: dict[AttributeKey, Attribute] = {}
    if options.counts:
        if not schema.labelled:
            raise InputError(
                f"The rows have no labels, but evidence={options.evidence!r} counts them: name the column."
            )
        if schema.classes[0] is None:
            raise InputError(f"There is only the label {schema.classes[1]!r}: both labels are needed.")
        for name, members in schema.observed:
            codes = cells.codes[name]
            unknown = int(cells.rows[codes < 0].sum())
            if unknown and options.missing == "raise":
                raise InputError(
                    f"sensitive feature {name!r} is missing in {unknown:,} rows: drop them, or set missing='ignore' to"
                    " count them for accuracy but not for any group's rates."
                )
            attributes[name] = Attribute(name, members, codes)
        _check_crossed(schema, cells)
        groups = dict(schema.observed)
    rows = Rows(
        positive=cells.positive if options.counts else None,
        classes=schema.classes,
        attributes=attributes,
        groups=groups,
        p_y=cells.p_y,
        sample_weight=cells.weight,
        copies=cells.rows,
        strata={name: Attribute(name, members, cells.strata[name]) for name, members in schema.strata},
    ).crossing(options.criterion.intersections)
    needed = needed_attributes(options.criterion, rows.groups)
    p_group = scores.read_group_probabilities(cells.p_group, needed, len(rows), known=rows.groups) if needed else {}
    return dataclasses.replace(rows, p_group=p_group)


def _check_crossed(schema: Schema, cells: CountedCells | RawRows) -> None:
    """Raise :class:`InputError` if the probabilities of a crossed attribute do not match the groups that occur."""
    observed = dict(schema.observed)
    for entry in schema.scored:
        if not isinstance(entry.attribute, Intersection):
            continue
        parts = entry.attribute.attributes
        if not all(part in observed for part in parts):
            continue
        codes = np.column_stack([cells.codes[part] for part in parts])
        seen = np.unique(codes[(codes >= 0).all(axis=1)], axis=0).tolist()
        members = [tuple(observed[part][c] for part, c in zip(parts, row, strict=True)) for row in seen]
        if members != list(entry.groups):
            raise InputError(
                f"p_group of {entry.attribute!r} must have exactly the groups that occur, {members[:8]!r}; it has"
                f" {list(entry.groups)[:8]!r}."
            )


def shift_of(cells: CountedCells, rule: Rule) -> FloatArray:
    """Return how far a row's fair margin can be from that of its cell's midpoint."""
    joint = {name: cells.p_group[name].ndim == 3 for name in rule.attributes}
    form = rule.linear_form(joint=joint)
    shift = form.slope * cells.radius_y
    for name, coefficients in form.columns.items():
        flat = coefficients.reshape(-1)
        spread = float(np.abs(flat[:-1] - flat[-1]).sum())
        shift = shift + spread * cells.radius_group[name] + 2.0 * abs(float(flat[-1])) * cells.deviation
    return shift


def warn_if_coarse(aggregate: CountedCells, asked: int = FINEST) -> None:
    """Warn if the scores had to be counted in coarser steps than requested."""
    if aggregate.level < asked:
        warnings.warn(
            f"Scores were counted in steps of 2^-{aggregate.level} instead of 2^-{asked}: finer ones would make more"
            f" cells than max_cells allows ({aggregate.n_cells:,} are used).",
            EvenhandWarning,
            stacklevel=4,
        )
