"""The rules that a mixture may consist of, and how they are combined.

**Known groups.** If every row's group is certain, a rule is a threshold for each group, and any thresholds may be
mixed: the rules then have a free threshold that their criterion does not mention.

**Strata.** The stratum of a row is known when it is decided, so each stratum has its own rules and its own weights. The
linear program has one row of weights for each stratum (:mod:`evenhand.search.mixed`), so that constraints may involve
several strata. A contrast that is not within a stratum has a weight z of its own in each stratum. This is more
general than one rule for all strata, so the bound holds for those, too. If the criterion has several columns of
strata, the strata are the combinations of their values that occur, and a constraint within one column involves the
combinations of one of its values. Rows whose stratum is not compared (thin or unknown) are a stratum like the others,
:data:`evenhand.rules.events.OTHER`, with the contrasts that reach them: those that are not within strata and, with
several columns, those of the columns in which their value is compared. Without any, the model alone decides these rows.
The rules of the strata are then combined: a number between 0 and 1 chooses a rule in each stratum, and each interval of
numbers with the same choice is one combined rule.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.inputs import Attribute, FloatArray
from evenhand.rows import Rows
from evenhand.rules.events import AttributeKey, Event, Stratified, base_of, event_names, strata_texts
from evenhand.rules.mixture import Mixture
from evenhand.rules.rate_bounds import SelectionBudget
from evenhand.rules.rule import Rule, Term, term_name
from evenhand.rules.setting import Setting
from evenhand.rules.strata import column_of, compared_among
from evenhand.search.mixed import Mixed, bound_by, mix
from evenhand.search.problem import NoRule, Problem, Solution

KNOWN_SLACK = 1e-9
# More combinations of strata than this are refused: each is a part of the linear program.
MOST_COMBINATIONS = 200
# Cuts that are this close are one cut when the rules of strata are combined.
SAME_CUT = 1e-12


def family_of(setting: Setting) -> Family:
    """Return the rules that may be mixed for a setting."""
    return rules_of(setting, _with_free_threshold(setting) if _knows_groups(setting) else setting)


def rules_of(setting: Setting, wider: Setting) -> Family:
    """Return the rules of a setting; ``wider`` is the same setting, or that with a free threshold."""
    within = any(isinstance(name, Stratified) for name in setting.system.attributes)
    return StratifiedFamily(setting, wider) if within else Family(setting, wider)


@dataclass(frozen=True, eq=False)
class Family:
    """The rules that may be mixed.

    Attributes
    ----------
    setting : Setting
        The rows and the criterion.
    wider : Setting
        The same with a free threshold, if groups are known; else the setting itself.
    """

    setting: Setting
    wider: Setting

    def problem(self, tolerance: float) -> Problem:
        """Return the problem whose rules are mixed."""
        return self.wider.problem([tolerance])

    def mix(
        self, problem: Problem, near: Mixed | None = None, *, value: float | None = None, enough: float = 0.0
    ) -> Mixed | NoRule:
        """Return the best mixture for a problem with these rows; the rules of ``near`` are listed first.

        ``value`` and ``enough`` are those of :func:`evenhand.search.mixed.mix`.
        """
        starts = () if near is None else tuple(near.z)
        return mix(dataclasses.replace(problem, starts=starts), value=value, enough=enough)

    def bound(self, problem: Problem, multipliers: FloatArray, value: float) -> float:
        """Return the bound on every mixture for a problem that some multipliers prove."""
        return bound_by(problem, multipliers, value)

    def expected(self, found: Mixed) -> FloatArray:
        """Return each row's probability of a positive decision."""
        decided = np.array([self.wider.decide(z) for z in found.z], dtype=np.float64)
        return np.asarray(found.weights @ decided)

    def mixture(self, found: Mixed, tolerance: float) -> Mixture:
        """Return a mixture without a solution."""
        rules = (self.wider.rule_at(z, tolerance) for z in found.z)
        own = tuple(dataclasses.replace(rule, criterion=self.setting.options.criterion) for rule in rules)
        return Mixture(own, tuple(map(float, found.weights)))

    def answer(self, found: Mixed, problem: Problem, tolerance: float, upper_bound: float) -> Mixture:
        """Return a mixture with its numbers, which are recomputed from the probabilities of its decisions."""
        mixture, expected = self.mixture(found, tolerance), self.expected(found)
        utility = utility_of(problem, expected)
        if upper_bound <= utility + problem.resolution:
            upper_bound = utility
        solution = Solution(
            z=(),
            utility=utility,
            values=tuple(map(float, self.setting.measure(expected))),
            upper_bound=upper_bound,
            status="optimal" if upper_bound == utility else "gap" if np.isfinite(upper_bound) else "found",
            nodes=found.columns,
        )
        if self.setting.options.safety > 0.0:
            solution = self.setting.with_bounds(solution, self.setting.problem([tolerance]), tolerance, 0)
        return dataclasses.replace(mixture, solution=solution)


def utility_of(problem: Problem, expected: FloatArray) -> float:
    """Return the utility of decisions with these probabilities; for a quotient, that of the expected parts."""
    utility = problem.offset + float(problem.gain @ expected)
    if problem.divisor is None:
        return utility
    assert problem.weight is not None
    return utility / (problem.divisor[0] + problem.divisor[1] * float(problem.weight @ expected))


@dataclass(frozen=True, eq=False)
class _Stratum:
    """One stratum: its rows, its contrasts among those of the setting, and a rule whose z are to be set."""

    name: Hashable
    at: NDArray[np.intp]
    contrasts: NDArray[np.intp]
    rule: Rule

    def decide(self, z: FloatArray, rows: Rows) -> NDArray[np.bool_]:
        """Return the decisions of its rows."""
        terms = tuple(dataclasses.replace(term, z=float(own)) for term, own in zip(self.rule.terms, z, strict=True))
        rule = dataclasses.replace(self.rule, terms=terms)
        columns = {name: rows.p_group[name][self.at] for name in rule.attributes}
        decisions: NDArray[np.bool_] = rule.decision_function(rows.p_y[self.at], columns) > 0.0
        return decisions


class StratifiedFamily(Family):
    """The rules that may be mixed in each stratum."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of strata."""
        return self.setting.options.criterion.strata

    @cached_property
    def keys(self) -> dict[AttributeKey | None, Stratified]:
        """The attributes within strata, by attribute; None is the first of them."""
        compared = [key for key in self.wider.system.attributes if isinstance(key, Stratified)]
        thin = [key.thin for key in compared]
        # Without thin in one part, a stratum or a combination that did not occur is an error.
        least = None if None in thin else min(size for size in thin if size is not None)
        crossed = self.columns if len(self.columns) > 1 else ()
        place = " & ".join(self.columns), least, crossed
        found: dict[AttributeKey | None, Stratified] = {
            key.attribute: Stratified(key.attribute, *place) for key in compared
        }
        found[None] = first = found[compared[0].attribute]
        for name in self.wider.system.attributes:
            if not isinstance(name, Stratified) and name not in found:
                found[name] = dataclasses.replace(first, attribute=name)
        return found

    @cached_property
    def column(self) -> Attribute:
        """Each row's stratum, or combination of strata."""
        return column_of(self.keys[None], self._placed.strata)

    @cached_property
    def _placed(self) -> Rows:
        """The rows, with OTHER for each value of a column of strata that is not compared."""
        strata = [event.stratum for event in self.wider.system.events if event.stratum is not None]
        compared = {name: tuple(dict.fromkeys(s[1] for s in strata if s[0] == name)) for name in self.columns}
        given = self.wider.rows.strata
        placed = {name: compared_among(given[name], values) for name, values in compared.items()}
        return dataclasses.replace(self.wider.rows, strata=placed)

    @cached_property
    def rows(self) -> Rows:
        """The rows, with the probabilities of all attributes within strata."""
        rows = self._placed
        for key in self.keys.values():
            rows = rows.within(key, self.members)
        return rows

    @cached_property
    def members(self) -> tuple[Hashable, ...]:
        """The strata, or combinations, that a contrast reaches; a free threshold for known groups does not count."""
        if len(self.columns) > 1 and len(self.column.groups) > MOST_COMBINATIONS:
            raise InputError(
                f"The columns of strata {list(self.columns)!r} have {len(self.column.groups):,} combinations, and a"
                f" mixture has its own rules and weights in each of at most {MOST_COMBINATIONS}: merge small strata,"
                " use one column, or leave out randomize."
            )
        strata = dict.fromkeys(event.stratum for event in self.setting.system.events)
        return tuple(member for member in self.column.groups if any(self._within(one, member) for one in strata))

    def _within(self, stratum: tuple[str, Hashable] | None, member: Hashable) -> bool:
        """Tell whether the rows of a member are in a stratum; None is everyone."""
        if stratum is None or len(self.columns) == 1:
            return stratum is None or stratum[1] == member
        assert isinstance(member, tuple)
        return bool(member[self.columns.index(stratum[0])] == stratum[1])

    def _inside(self, event: Event, prior: float, stratum: Hashable) -> Iterator[tuple[Event, float]]:
        """Yield the events that are one event's rows of a stratum, each with the prior that divides its density."""
        if not self._within(event.stratum, stratum):
            return
        if isinstance(event.attribute, Stratified):
            assert isinstance(event.group, tuple)
            yield Event(self.keys[event.attribute.attribute], (stratum, event.group[1]), event.label), prior
            return
        key = self.keys[event.attribute]
        groups = self.rows.groups[key.attribute] if event.attribute is None else (event.group,)
        for group in groups:
            yield Event(key, (stratum, group), event.label), prior

    @cached_property
    def frame(self) -> Rule:
        """The rule of all strata, with a term for each contrast in each stratum; all z are 1."""
        system, given = self.wider.system, self.wider.priors
        priors: dict[Event, float] = {}
        terms: list[dict[Event, float]] = []
        for stratum, k in self._places:
            coefficients: dict[Event, float] = {}
            for event, coefficient, prior in zip(system.events, system.contrasts[k], given.tolist(), strict=True):
                if coefficient != 0.0:
                    for own, divisor in self._inside(event, prior, stratum):
                        # An event has one prior, so the coefficient accounts for any other.
                        ratio = priors.setdefault(own, divisor) / divisor
                        coefficients[own] = coefficients.get(own, 0.0) + coefficient * ratio
            terms.append(coefficients)
        names = list(event_names(priors, self.rows.groups).values())
        rows = [np.array([term.get(event, 0.0) for event in priors]) for term in terms]
        groups: dict[AttributeKey, tuple[Hashable, ...]] = dict(self.wider.groups)
        groups |= {key: self.rows.groups[key] for key in self.keys.values()}
        rule = self.wider.rule_at(np.zeros(len(system.contrasts)), 0.0)
        used = {base_of(event.attribute) for event in priors if event.attribute is not None}
        return dataclasses.replace(
            rule,
            groups={name: groups[name] for name in groups if base_of(name) in used},
            events=tuple(priors),
            priors=tuple(priors.values()),
            terms=tuple(Term(term_name(row, names), tuple(map(float, row)), 1.0) for row in rows),
            criterion=self.setting.options.criterion,
        )

    @cached_property
    def _places(self) -> list[tuple[Hashable, int]]:
        """The stratum and the contrast of each term."""
        system = self.wider.system
        return [
            (stratum, k)
            for stratum in self.members
            for k, row in enumerate(system.contrasts)
            if any(self._within(e.stratum, stratum) for e, c in zip(system.events, row, strict=True) if c)
        ]

    @cached_property
    def strata(self) -> tuple[_Stratum, ...]:
        """The strata that a contrast reaches."""
        return tuple(
            _Stratum(
                stratum,
                np.flatnonzero(self.column.codes == self.column.groups.index(stratum)),
                np.array([k for own, k in self._places if own == stratum], dtype=np.intp),
                self.frame.for_stratum(stratum),
            )
            for stratum in self.members
        )

    @cached_property
    def rest(self) -> FloatArray:
        """The model's own decisions on rows that no contrast reaches; 0 on the others."""
        alone = (self.wider.margins > 0.0).astype(np.float64)
        for stratum in self.strata:
            alone[stratum.at] = 0.0
        return alone

    def mix(
        self, problem: Problem, near: Mixed | None = None, *, value: float | None = None, enough: float = 0.0
    ) -> Mixed | NoRule:
        """Return the best mixture of each stratum for a problem with these rows."""
        whole, parts = self._split(problem)
        if near is not None:
            known = (tuple(part.z) for part in near.parts)
            parts = [dataclasses.replace(part, starts=z) for part, z in zip(parts, known, strict=True)]
        found = mix(whole, parts, value=value, enough=enough)
        if isinstance(found, NoRule):
            return found
        return dataclasses.replace(found, values=found.values + self.rest @ problem.effects)

    def bound(self, problem: Problem, multipliers: FloatArray, value: float) -> float:
        """Return the bound on every mixture for a problem that some multipliers prove."""
        whole, parts = self._split(problem)
        return bound_by(whole, multipliers, value, parts)

    def _split(self, problem: Problem) -> tuple[Problem, list[Problem]]:
        """Return a problem in which rows that no contrast reaches are constants, and its parts."""
        constant = self.rest @ problem.effects
        divisor = problem.divisor
        if divisor is not None:
            assert problem.weight is not None
            divisor = (divisor[0] + divisor[1] * float(problem.weight @ self.rest), divisor[1])
        whole = dataclasses.replace(
            problem,
            offset=problem.offset + float(problem.gain @ self.rest),
            lower=problem.lower - constant,
            upper=problem.upper - constant,
            divisor=divisor,
        )
        return whole, [self._part(whole, stratum) for stratum in self.strata]

    def _part(self, problem: Problem, stratum: _Stratum) -> Problem:
        """Return a problem's rows of one stratum."""
        assert problem.mixing is not None
        assert problem.weight is not None
        at = stratum.at
        return dataclasses.replace(
            problem,
            margin=problem.margin[at],
            contrasts=problem.contrasts[np.ix_(at, stratum.contrasts)],
            gain=problem.gain[at],
            effects=problem.effects[at],
            mixing=problem.mixing[:, stratum.contrasts],
            weight=problem.weight[at],
            decider=lambda z: stratum.decide(z, self.rows),
        )

    def expected(self, found: Mixed) -> FloatArray:
        """Return each row's probability of a positive decision."""
        chances = self.rest.copy()
        for stratum, part in zip(self.strata, found.parts, strict=True):
            decided = np.array([stratum.decide(z, self.rows) for z in part.z], dtype=np.float64)
            chances[stratum.at] = part.weights @ decided
        return chances

    def mixture(self, found: Mixed, tolerance: float) -> Mixture:
        """Return the mixture of all strata, without a solution."""
        cuts, ordered = [], []
        for stratum, part in zip(self.strata, found.parts, strict=True):
            # The rules that select most come first, so that the strata's rules are alike in strictness.
            order = np.argsort([-stratum.decide(z, self.rows).mean() for z in part.z], kind="stable")
            ordered.append((part.z[order], np.cumsum(part.weights[order])[:-1]))
            cuts += ordered[-1][1].tolist()
        edges = [0.0]
        for cut in sorted(cuts):
            if cut - edges[-1] > SAME_CUT and 1.0 - cut > SAME_CUT:
                edges.append(cut)
        edges.append(1.0)
        rules = []
        for low, high in itertools.pairwise(edges):
            z = [own[np.searchsorted(own_cuts, 0.5 * (low + high))] for own, own_cuts in ordered]
            terms = zip(self.frame.terms, np.concatenate(z).tolist(), strict=True)
            own = dataclasses.replace(
                self.frame, terms=tuple(dataclasses.replace(term, z=weight) for term, weight in terms)
            )
            rules.append(
                dataclasses.replace(own, tolerance=tolerance, learned_from=self._learned_from(found, tolerance))
            )
        return Mixture(tuple(rules), tuple(map(float, np.diff(edges))))

    def _learned_from(self, found: Mixed, tolerance: float) -> dict[str, Any]:
        """Return how the mixture was learnt, with the rows and the weights of each stratum."""
        base = dict(self.setting.rule_at(np.zeros(len(self.setting.system.contrasts)), tolerance).learned_from)
        key = next(iter(self.keys.values()))
        base["strata"] = {
            text: {"rows": len(stratum.at), "weights": part.weights.tolist()}
            for text, stratum, part in zip(
                strata_texts(key.by_column(stratum.name) for stratum in self.strata),
                self.strata,
                found.parts,
                strict=True,
            )
        }
        return base


def _knows_groups(setting: Setting) -> bool:
    """Return whether every row's groups are certain, and the criterion does not free the threshold."""
    names = {base_of(name) for name in setting.system.attributes}
    marginals = [_marginal(setting.rows.p_group[name]) for name in names]
    certain = all((array.max(axis=1, initial=0.0) > 1.0 - KNOWN_SLACK).all() for array in marginals)
    return bool(marginals) and certain and Event() not in setting.system.events


def _marginal(array: FloatArray) -> FloatArray:
    return array.sum(axis=1) if array.ndim == 3 else array


def _with_free_threshold(setting: Setting) -> Setting:
    wider = dataclasses.replace(setting.options, criterion=setting.options.criterion & SelectionBudget())
    return dataclasses.replace(Setting.of(setting.rows, wider), reference=setting.reference)
