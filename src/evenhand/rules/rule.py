"""The rule, which turns probabilities into fair decisions. It is independent of how it was found.

A rule decides 1 iff ``m(x) - sum_e z_e p(e|x) / P(e) > 0``. In terms of the probability columns this is one linear
expression, which :meth:`Rule.linear_form` returns and all other methods evaluate.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import check_label, is_number, shown
from evenhand.display import Description, Displayed
from evenhand.errors import InputError
from evenhand.inputs import FloatArray, GroupProbabilities, SensitiveFeatures, as_float_array, read_probabilities
from evenhand.rules import rule_json, scores
from evenhand.rules.criteria import Criterion, check_tolerance, resolve
from evenhand.rules.describing import asked, describe_rule
from evenhand.rules.evaluating import evaluate
from evenhand.rules.events import AttributeKey, Event, Groups, Stratified, base_of
from evenhand.rules.receipt import Contrast, Receipt
from evenhand.rules.rule_strata import ROWS_AT_ONCE, parts_with_strata, rule_of_stratum, terms_inside, with_strata
from evenhand.rules.sql import to_sql
from evenhand.rules.system import shares_of, write_out
from evenhand.search.problem import Solution

PRIOR_SLACK = 0.02
TIE = 2.0**-44


@dataclass(frozen=True)
class Term:
    """One linear combination of event densities, and its weight z in the rule."""

    name: str
    coefficients: tuple[float, ...]
    z: float


@dataclass(frozen=True)
class LinearForm:
    """The rule as one expression: ``intercept + slope p_y - sum_j columns_j p_group_j > 0``.

    ``columns`` has, for each attribute, one coefficient for each group, of shape (G,), or for each label and group,
    of shape (2, G).
    """

    intercept: float
    slope: float
    columns: dict[AttributeKey, FloatArray]


@dataclass(frozen=True, repr=False)
class Rule(Displayed):
    """A fair decision rule: frozen, readable, portable.

    Most rules come from :func:`evenhand.learn_rule`; :meth:`from_criterion` builds one by hand.

    Parameters
    ----------
    groups : dict of tuples
        The groups of each attribute, in the order of the probability columns. The key is the attribute's name, or the
        :class:`~evenhand.Intersection` of a crossed one. An attribute that is compared within strata has two entries:
        its groups, and the pairs (stratum, group) that are compared.
    events : tuple of Event
        The events whose rates the rule's constraints compare.
    priors : tuple of float
        P(e) for each event; within a stratum, the share of its rows.
    terms : tuple of Term
        The contrasts between events, each with its weight z.
    classes : tuple, default=(0, 1)
        The negative and the positive label.
    costs : tuple of float, default=(1, 1)
        The cost of a false positive and of a false negative.
    criterion : Criterion or None, default=None
        The criterion that the rule was learnt for.
    tolerance : float or None, default=None
        The tolerance that the rule was learnt for.
    learned_from : dict, default={}
        How the rule was learnt: counts, versions, evidence. Plain JSON data.
    solution : Solution or None, default=None
        The search's result, available as ``rule.solution_``.

    Examples
    --------
    >>> import evenhand as eh
    >>> rule = eh.Rule.from_criterion(
    ...     "demographic_parity", groups={"sex": ("F", "M")}, priors={"sex": [0.5, 0.5]}, z=[0.1])
    >>> rule.decide([0.45, 0.55], [[0.1, 0.9], [0.9, 0.1]])
    array([1, 0])
    """

    groups: Groups = field(hash=False)
    events: tuple[Event, ...]
    priors: tuple[float, ...]
    terms: tuple[Term, ...]
    classes: tuple[Hashable, Hashable] = (0, 1)
    costs: tuple[float, float] = (1.0, 1.0)
    criterion: Criterion | None = None
    tolerance: float | None = None
    learned_from: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    solution: Solution | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", scores.read_groups(self.groups))
        _check_kinds(self)
        if len(self.priors) != len(self.events):
            raise InputError(
                f"A rule needs one prior for each of its {len(self.events)} events; got {len(self.priors)}."
            )
        if not all(np.isfinite(p) and 0.0 < p <= 1.0 for p in self.priors):
            raise InputError(f"A rule's priors must be in (0, 1]; got {list(self.priors)!r}.")
        for term in self.terms:
            if len(term.coefficients) != len(self.events):
                raise InputError(f"The term {term.name!r} needs one coefficient for each of {len(self.events)} events.")
            if not np.isfinite([*term.coefficients, term.z]).all():
                raise InputError(f"The term {term.name!r} has a number that is not finite.")
        for event in self.events:
            if event.attribute is not None and event.group not in self.groups.get(event.attribute, ()):
                raise InputError(f"The event {event} is not among the rule's groups {dict(self.groups)!r}.")
        scores.read_costs(self.costs)
        if self.tolerance is not None:
            check_tolerance(self.tolerance)

    def __repr__(self) -> str:
        z = ", ".join(f"{term.z:.4g}" for term in self.terms)
        return f"<Rule: {asked(self)}, z = [{z}], labels {self.classes[0]!r} and {self.classes[1]!r}>"

    def _describe(self) -> Description:
        return describe_rule(self)

    @classmethod
    def from_criterion(
        cls,
        criterion: str | Criterion,
        *,
        groups: Mapping[Any, Sequence[Hashable]],
        priors: Any,
        z: ArrayLike,
        classes: tuple[Hashable, Hashable] = (0, 1),
        costs: Any = None,
        tolerance: float | None = None,
    ) -> Rule:
        """Create a rule by hand from a criterion, the groups, their priors and z, one number for each contrast.

        ``groups`` has the groups of each attribute. ``priors`` has P(A=g) of shape (G,) or P(Y=y, A=g) of shape (2, G):
        an array, or a dict by attribute. ``classes``, ``costs`` and ``tolerance`` are those of :class:`Rule`.
        """
        criterion = resolve(criterion)
        if criterion.has_levels:
            raise InputError("Only a fit finds this criterion's level: give it, as in MinimumRate('precision', 0.8).")
        if criterion.strata:
            raise InputError(
                "A rule with strata must be learnt; by hand, create one rule for each stratum, without within=."
            )
        members = scores.group_members(groups, criterion.intersections)
        system = write_out(criterion, members)
        shares = event_priors(priors, system.events, members)
        if not system.plain:
            system = write_out(criterion, members, shares_of(dict(zip(system.events, shares.tolist(), strict=True))))
        weights = as_float_array(z, "z").reshape(-1)
        if len(weights) != len(system.contrasts):
            raise InputError(
                f"This criterion has {len(system.contrasts)} contrasts: z needs as many values; got {len(weights)}."
            )
        return cls(
            groups=members,
            events=system.events,
            priors=tuple(map(float, shares)),
            terms=tuple(
                Term(term_name(row, system.names), tuple(map(float, row)), float(weight))
                for row, weight in zip(system.contrasts, weights, strict=True)
            ),
            classes=classes,
            costs=scores.read_costs(costs),
            criterion=criterion,
            tolerance=tolerance,
        )

    @property
    def z(self) -> FloatArray:
        """The weight of each term."""
        return np.array([term.z for term in self.terms])

    @cached_property
    def event_weights(self) -> FloatArray:
        """Z per event: the rule decides 1 iff margin - sum_e event_weights_e p(e|x) / P(e) > 0."""
        weights = np.zeros(len(self.events))
        for term in self.terms:
            weights += term.z * np.array(term.coefficients)
        return weights

    @property
    def needs_joint(self) -> bool:
        """Whether the rule needs p(Y, A | x); otherwise p(A | x) is enough."""
        return any(event.label is not None for event in self.events)

    @property
    def attributes(self) -> tuple[AttributeKey, ...]:
        """The attributes whose probabilities the rule needs: names, and an Intersection for each crossed one."""
        return tuple(dict.fromkeys(map(base_of, self._compared)))

    @cached_property
    def strata(self) -> tuple[str, ...]:
        """The columns of strata that the rule needs, besides probabilities."""
        return tuple(dict.fromkeys(column for key in self.stratified for column in key.columns))

    @property
    def _compared(self) -> tuple[AttributeKey, ...]:
        return tuple(dict.fromkeys(event.attribute for event in self.events if event.attribute is not None))

    @property
    def stratified(self) -> tuple[Stratified, ...]:
        """The attributes that are compared within strata."""
        return tuple(key for key in self._compared if isinstance(key, Stratified))

    @property
    def solution_(self) -> Solution:
        """The search's result: utility, values, upper_bound, gap, status, nodes, seconds."""
        if self.solution is None:
            raise AttributeError("This rule was not learnt by a search, so it has no solution_.")
        return self.solution

    def linear_form(self, *, joint: bool | Mapping[AttributeKey, bool] | None = None) -> LinearForm:
        """Return the rule as one linear expression over the probability columns.

        ``joint`` tells whether an attribute's columns are p(Y, A | x) or p(A | x); the default is the smaller form that
        is enough. Every coefficient is raised by 2^-44 of its size, so that a row on the boundary is decided negatively
        for any rounding of the sum, in every language that evaluates it; with z = 0 nothing changes. A rule with strata
        has a column for each stratum and group, with p(A | x) in the row's stratum and 0 elsewhere; :meth:`for_stratum`
        returns the rule of one stratum, over the groups' columns.
        """
        if not isinstance(joint, bool | np.bool_ | Mapping | None):
            raise InputError(f"joint must be True, False, None or a dict of these by attribute; got {shown(joint)}.")
        false_positive, false_negative = self.costs
        intercept = -false_positive
        columns: dict[AttributeKey, FloatArray] = {}
        for name in self._compared:
            is_joint = joint.get(name) if isinstance(joint, Mapping) else joint
            shape = (
                (2, len(self.groups[name]))
                if (self.needs_joint if is_joint is None else is_joint)
                else (len(self.groups[name]),)
            )
            columns[name] = np.zeros(shape)
        for event, weight, prior in zip(self.events, self.event_weights, self.priors, strict=True):
            amount = (weight + TIE * abs(weight)) / prior
            if event.attribute is None:
                intercept -= amount
                continue
            array = columns[event.attribute]
            array.reshape(-1)[scores.event_columns(event, self.groups, joint=array.ndim == 2)] += amount
        return LinearForm(float(intercept), false_negative + false_positive, columns)

    def for_stratum(self, strata: Any) -> Rule:
        """Return the rule of one stratum. It needs only the groups' probabilities, like any rule without strata.

        Parameters
        ----------
        strata : label, or dict of labels by column
            The stratum; a dict if the rule has several columns of strata.
        """
        return rule_of_stratum(self, strata)

    def decision_function(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None = None,
        *,
        strata: SensitiveFeatures | None = None,
    ) -> FloatArray:
        """Return the fair margin of each row: the decision is positive iff it is above 0.

        Parameters
        ----------
        p_y : array of shape (n,)
            P(Y = positive | x).
        p_group : array of shape (n, G) or (n, 2, G), or dict of such by attribute
            p(A | x), or p(Y, A | x) with axis 1 = (negative, positive).
        strata : array, Series, frame or dict of columns, default=None
            Each row's stratum, for a rule whose criterion has ``within``.
        """
        return self._fair_margins(p_y, p_group, strata, np.float64)

    def _fair_margins(
        self, p_y: ArrayLike, p_group: GroupProbabilities | None, strata: SensitiveFeatures | None, kind: Any
    ) -> NDArray[Any]:
        """Return the fair margins as floats or, if ``kind`` is an integer type, whether each is above 0."""
        p = as_float_array(p_y, "p_y")
        if strata is not None and self.strata and p.ndim == 1 and len(p) > ROWS_AT_ONCE:
            parts = parts_with_strata(self, p, p_group, strata)
            return np.concatenate([self._fair_margins(p[some], part, None, kind) for some, part in parts])
        p_group = with_strata(self, p, p_group, strata)
        columns = _plain_columns(p_group, self._needed_groups, len(p)) if p.ndim == 1 else None
        if columns is None:
            columns = self.read_columns(p_y, p_group)
        form = self._form(tuple(array.ndim == 3 for array in columns.values()))
        out = np.empty(len(p), dtype=kind)
        bad = evaluate(form.intercept, form.slope, form.columns, p, columns, out)
        if bad >= 0:
            # Either this raises, or some values are outside [0, 1] only by rounding and are clipped.
            columns = self.read_columns(p_y, p_group)
            valid = read_probabilities(p_y, "p_y")
            evaluate(form.intercept, form.slope, form.columns, valid, columns, out)
        return out

    def _form(self, joint: tuple[bool, ...]) -> LinearForm:
        """Return the linear form for columns that are joint or not, by attribute; cached."""
        if joint not in self._forms:
            self._forms[joint] = self.linear_form(joint=dict(zip(self._needed_groups, joint, strict=True)))
        return self._forms[joint]

    @cached_property
    def _forms(self) -> dict[tuple[bool, ...], LinearForm]:
        return {}

    def decide(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None = None,
        *,
        strata: SensitiveFeatures | None = None,
    ) -> NDArray[Any]:
        """Return the decision of each row, as a label. See :meth:`decision_function` for the parameters."""
        positive = self._fair_margins(p_y, p_group, strata, np.int64)
        plain = self.classes == (0, 1) and all(type(label) is int for label in self.classes)
        return positive if plain else np.asarray(class_array(self.classes)[positive])

    def bias_scores(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None = None,
        *,
        strata: SensitiveFeatures | None = None,
    ) -> FloatArray:
        """Return the paper's bias scores s_k(x), of shape (n, K). See :meth:`decision_function`."""
        margins, contrasts = self._margin_and_contrasts(p_y, with_strata(self, p_y, p_group, strata))
        return scores.bias_scores(margins, contrasts)

    def explain(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None = None,
        *,
        strata: SensitiveFeatures | None = None,
    ) -> list[Receipt]:
        """Return a receipt for each row: the terms that add up to its decision. See :meth:`decision_function`."""
        p_group = with_strata(self, p_y, p_group, strata)
        margins, contrasts = self._margin_and_contrasts(p_y, p_group)
        fair = self.decision_function(p_y, p_group)
        bias = scores.bias_scores(margins, contrasts)
        amounts = -contrasts * self.z
        slope = sum(self.costs)
        compared = tuple(self._term_contrasts())
        spoken = (contrasts != 0.0) | ~terms_inside(self)
        probabilities = read_probabilities(p_y, "p_y")
        return [
            Receipt(
                probability=float(probabilities[i]),
                margin=float(margins[i]),
                terms={self.terms[k].name: float(amounts[i, k]) for k in np.flatnonzero(spoken[i])},
                fair_margin=float(fair[i]),
                bias_scores=tuple(map(float, bias[i])),
                base_decision=self.classes[int(margins[i] > 0.0)],
                decision=self.classes[int(fair[i] > 0.0)],
                flipped=bool((margins[i] > 0.0) != (fair[i] > 0.0)),
                distance=float(abs(fair[i]) / slope),
                slope=slope,
                contrasts=tuple(compared[k] for k in np.flatnonzero(spoken[i])),
            )
            for i in range(len(margins))
        ]

    def noting(self, **notes: Any) -> Rule:
        """Return the rule with more entries in ``learned_from``."""
        return dataclasses.replace(self, learned_from={**self.learned_from, **notes})

    def _term_contrasts(self) -> Iterator[tuple[Contrast, float] | None]:
        """Yield the groups that each term compares, and the sign of its weight, for receipts."""
        for term in self.terms:
            contrast = Contrast.of(term.coefficients, self.events)
            yield None if contrast is None else (contrast, math.copysign(1.0, term.z))

    def to_json(self) -> str:
        """Return the rule as readable JSON, which :meth:`from_json` reads back exactly."""
        return rule_json.write(self)

    @staticmethod
    def from_json(text: str) -> Rule:
        """Return the rule that :meth:`to_json` wrote. Every field is checked, and nothing is executed."""
        return rule_json.read(text, Rule, Term)

    def to_sql(
        self,
        *,
        p_y: str,
        p_group: GroupProbabilities | None,
        dialect: str = "ansi",
        output: Any = "decision",
        strata: Mapping[str, str] | None = None,
    ) -> str:
        """Return the rule as one SQL expression over the probability columns.

        Parameters
        ----------
        p_y : str
            The column of P(Y = positive | x).
        p_group : dict, or dict of dicts by attribute
            The column of each group, or of each pair (label, group) if the rule needs p(Y, A | x).
        dialect : str, default="ansi"
            The dialect of numbers, names and texts: "ansi", "bigquery", "clickhouse", "databricks", "duckdb",
            "mariadb", "mysql", "postgres", "redshift", "snowflake", "spark", "sqlite", "trino" or "tsql". "ansi"
            follows the standard, in which a backslash is an ordinary character; an engine that treats it as an escape
            needs its own dialect.
        output : {"decision", "margin"}, default="decision"
            The label, or the fair margin that is compared with 0. The label is NULL if a column does not contain a
            probability; values outside [0, 1] only by rounding are clipped, as in Python. The margin uses the columns
            unchanged.
        strata : dict of str, default=None
            The table's column for each column of strata; ``None`` uses their own names.

        Examples
        --------
        >>> import evenhand as eh
        >>> rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.125])
        >>> rule.to_sql(p_y="p", p_group={"F": "p_f", "M": "p_m"}, dialect="sqlite", output="margin")
        '(-1.0 + 2.0 * `p`) - (0.2500000000000142 * `p_f` + -0.2499999999999858 * `p_m`)'

        The last digits come from :meth:`linear_form`: they decide rows on the boundary negatively in every engine.
        """
        return to_sql(self, p_y=p_y, p_group=p_group, dialect=dialect, output=output, strata=strata)

    def _margin_and_contrasts(
        self, p_y: ArrayLike, p_group: GroupProbabilities | None
    ) -> tuple[FloatArray, FloatArray]:
        p = read_probabilities(p_y, "p_y", shape=(None,))
        columns = self.read_columns(p, p_group)
        posteriors = scores.posteriors(self.events, self.groups, columns, len(p))
        matrix = np.array([term.coefficients for term in self.terms]).reshape(len(self.terms), len(self.events))
        return scores.margin(p, self.costs), scores.contrasts(posteriors / np.array(self.priors), matrix)

    @cached_property
    def _needed_groups(self) -> Groups:
        return {name: self.groups[name] for name in self._compared}

    def read_columns(self, p_y: ArrayLike, p_group: GroupProbabilities | None) -> dict[AttributeKey, FloatArray]:
        """Return the checked group probabilities by attribute, in the order of the rule's groups."""
        p = read_probabilities(p_y, "p_y", shape=(None,))
        groups = self._needed_groups
        if not groups:
            return {}
        if p_group is None:
            raise InputError(f"This rule needs p_group, the probabilities of the groups of {list(self.attributes)!r}.")
        return scores.read_group_probabilities(p_group, groups, len(p), known=self.groups)


def check_rule(rule: Any, name: str = "rule") -> Rule:
    """Return a rule, or raise."""
    if not isinstance(rule, Rule):
        raise InputError(f"{name} must be a Rule, such as learn_rule returns; got {shown(rule)}.")
    return rule


def _check_kinds(rule: Rule) -> None:
    """Raise if a field of a rule has the wrong type."""
    for name, kind in (("events", Event), ("terms", Term)):
        values = getattr(rule, name)
        if not isinstance(values, tuple) or not all(isinstance(value, kind) for value in values):
            raise InputError(f"{name} must be a tuple of {kind.__name__}; got {shown(values)}.")
    if not isinstance(rule.priors, tuple) or not all(map(is_number, rule.priors)):
        raise InputError(f"priors must be a tuple of numbers; got {shown(rule.priors)}.")
    if not isinstance(rule.classes, tuple | list) or len(rule.classes) != 2:
        raise InputError(f"classes must be two different labels, the negative one first; got {shown(rule.classes)}.")
    for label in rule.classes:
        check_label(label, "Each of classes")
    if rule.classes[0] == rule.classes[1]:
        raise InputError(f"classes must be two different labels; got {shown(rule.classes)}.")
    if not isinstance(rule.criterion, Criterion | None):
        raise InputError(f"criterion must be a Criterion or None; got {shown(rule.criterion)}.")
    if rule.tolerance is not None:
        check_tolerance(rule.tolerance)
    if not isinstance(rule.learned_from, Mapping):
        raise InputError(f"learned_from must be a dict; got {shown(rule.learned_from)}.")
    if not isinstance(rule.solution, Solution | None):
        raise InputError(f"solution must be a Solution or None; got {shown(rule.solution)}.")


def _plain_columns(
    p_group: GroupProbabilities | None, groups: Groups, n_rows: int
) -> dict[AttributeKey, FloatArray] | None:
    """Return the arrays unchanged if they are clearly valid, so that large input is read only once."""
    given = p_group if isinstance(p_group, Mapping) else dict.fromkeys(groups, p_group) if len(groups) == 1 else {}
    found = {}
    for name, members in groups.items():
        array = given.get(name)
        if not (isinstance(array, np.ndarray) and array.dtype == np.float64 and array.flags.c_contiguous):
            return None
        if array.shape not in ((n_rows, len(members)), (n_rows, 2, len(members))):
            return None
        found[name] = array
    return found


def class_array(classes: tuple[Hashable, Hashable]) -> NDArray[Any]:
    """Return the two labels as an array, of objects if NumPy would change them."""
    if len({type(label) for label in classes}) == 1 and isinstance(classes[0], bool | int | float | str):
        plain = np.array(classes)
        if plain.tolist() == list(classes):
            return plain
    array = np.empty(2, dtype=object)
    array[:] = classes
    return array


def term_name(coefficients: FloatArray, events: Sequence[str]) -> str:
    """Return a contrast in words, from those for the events: ``rate(sex=F) - rate(sex=M)``."""
    text = ""
    for coefficient, event in zip(coefficients, events, strict=True):
        if coefficient == 0.0:
            continue
        sign = " - " if coefficient < 0.0 else " + " if text else ""
        size = "" if abs(coefficient) == 1.0 else f"{abs(coefficient):g} "
        text += f"{sign}{size}rate({event})"
    return text.strip()


def event_priors(priors: Any, events: Sequence[Event], groups: Groups, *, complete: bool = True) -> FloatArray:
    """Return P(e) for each event, from P(A=g) of shape (G,) or P(Y=y, A=g) of shape (2, G), by attribute.

    They must sum to 1, unless ``complete`` is False because some rows have no known group.
    """
    if not isinstance(priors, Mapping):
        if len(groups) != 1:
            raise InputError(f"priors must be a dict with an array for each of the attributes {list(groups)!r}.")
        priors = {next(iter(groups)): priors}
    priors = scores.by_attribute(priors, groups, "priors")
    found = np.ones(len(events))
    for j, event in enumerate(events):
        if event.attribute is None:
            continue
        if event.attribute not in priors:
            raise InputError(f"priors has no entry for the attribute {event.attribute!r}.")
        array = read_probabilities(priors[event.attribute], f"priors of {event.attribute!r}")
        size = len(groups[event.attribute])
        if array.shape not in ((size,), (2, size)):
            raise InputError(
                f"priors of {event.attribute!r} must have shape ({size},) or (2, {size}); got {array.shape}."
            )
        if array.sum() > 1.0 + PRIOR_SLACK or (complete and array.sum() < 1.0 - PRIOR_SLACK):
            raise InputError(f"priors of {event.attribute!r} must sum to 1; they sum to {array.sum():.6g}.")
        columns = scores.event_columns(event, groups, joint=array.ndim == 2)
        found[j] = min(array.reshape(-1)[columns].sum(), 1.0)
        if found[j] <= 0.0:
            raise InputError(f"The prior of {event} is 0: a group that never occurs has no rate.")
    return found
