"""Randomized rules: the best mixture of rules, with decisions that anyone can check."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import is_number, shown
from evenhand.display import Description, Displayed
from evenhand.errors import InputError, RuleFormatError
from evenhand.inputs import FloatArray, GroupProbabilities, SensitiveFeatures, read_probabilities
from evenhand.rules import lots_sql, mixture_strata, rule_json, scores
from evenhand.rules.criteria import Criterion
from evenhand.rules.describing import asked, describe_mixture
from evenhand.rules.events import AttributeKey, Groups, Stratified
from evenhand.rules.lots import draw, keys_of_scores, lots
from evenhand.rules.rule import Rule, class_array
from evenhand.rules.rule_strata import with_strata
from evenhand.search.problem import Solution

FORMAT = rule_json.MIXTURE_FORMAT
VERSION = 1
_FIELDS = {"format", "version", "decision", "weights", "rules", "solution"}
_DECISION = "positive iff the lot of the key is below the sum of the weights of the rules that decide positively"


@dataclass(frozen=True)
class DrawnReceipt:
    """The terms of one row's decision by a mixture.

    Attributes
    ----------
    probability : float
        The base model's P(Y = positive | x).
    margin : float
        The margin before fairness: 2 p - 1 without costs.
    fair_margins : tuple of float
        The fair margin of each rule; a rule's decision is positive iff its margin is above 0.
    weights : tuple of float
        The probabilities of the rules.
    bias_scores : tuple of float
        The paper's s_k(x).
    expected_decision : float
        The probability of a positive decision: the sum of the weights of the rules with a positive decision.
    lot : float
        The random draw; the decision is positive iff it is below ``expected_decision``.
    base_decision, decision
        The labels before and after.
    flipped : bool
        Whether they differ.
    """

    probability: float
    margin: float
    fair_margins: tuple[float, ...]
    weights: tuple[float, ...]
    bias_scores: tuple[float, ...]
    expected_decision: float
    lot: float
    base_decision: Hashable
    decision: Hashable
    flipped: bool

    @property
    def by_lot(self) -> bool:
        """Whether the random draw decided, because the rules disagree on this row."""
        return 0.0 < self.expected_decision < 1.0

    def __str__(self) -> str:
        lines = [f"probability {self.probability:.4f}, margin {self.margin:+.4f}: alone, {self.base_decision!r}"]
        lines += [
            f"  {margin:+.4f}  fair margin by the rule of weight {weight:.4f}"
            for margin, weight in zip(self.fair_margins, self.weights, strict=True)
        ]
        verb = "flipped to" if self.flipped else "stays"
        if self.by_lot:
            side = "below" if self.lot < self.expected_decision else "not below"
            lines.append(f"chance {self.expected_decision:.4f}; the lot {self.lot:.4f} is {side} it")
        else:
            lines.append("the rules agree, so the lot has no effect")
        lines.append(f"{verb} {self.decision!r}")
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class Mixture(Displayed):
    """Rules with weights: a row's probability of a positive decision is the weight of the rules that decide so.

    With strata, each stratum has its own rules and weights: :meth:`for_stratum` returns them. ``rules`` combines one
    rule of each stratum, so that the weights of the combined rules add up to those of each stratum.
    The lot of a row is computed from a key, such as a customer number: the same key always gives the same decision, and
    anyone who knows the key can check it. ``learn_rule(..., randomize=True)`` returns a mixture.

    Parameters
    ----------
    rules : tuple of Rule
        The rules, all for the same criterion and groups.
    weights : tuple of float
        Their probabilities, which add up to 1.
    solution : Solution or None, default=None
        The search's result for the mixture, available as ``mixture.solution_``. Its ``z`` is empty.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(2000, random_state=0)
    >>> fair = eh.learn_rule(
    ...     data.y, data.group, data.p_y, data.p_joint, criterion="eo", tolerance=0.0, randomize=True)
    >>> fair.solution_.status, bool(abs(max(fair.solution_.values, key=abs)) < 1e-9)
    ('optimal', True)
    >>> fair.decide(data.p_y[:3], data.p_joint[:3], key=[101, 102, 103]).shape
    (3,)
    """

    rules: tuple[Rule, ...]
    weights: tuple[float, ...]
    solution: Solution | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.rules, tuple) or not self.rules or not all(isinstance(r, Rule) for r in self.rules):
            raise InputError(f"rules must be a tuple of one or more rules; got {shown(self.rules)}.")
        if not isinstance(self.weights, tuple) or not all(is_number(weight) for weight in self.weights):
            raise InputError(f"weights must be a tuple of numbers; got {shown(self.weights)}.")
        if not isinstance(self.solution, Solution | None):
            raise InputError(f"solution must be a Solution or None; got {shown(self.solution)}.")
        if any(_frame(rule) != _frame(self.rules[0]) for rule in self.rules):
            raise InputError(
                "The rules of a mixture must have the same groups, events, priors, contrasts, costs and labels."
            )
        mixture_strata.check_same_strata(self.stratified)
        weights = np.array(self.weights, dtype=float)
        if len(weights) != len(self.rules) or not (weights > 0.0).all() or abs(weights.sum() - 1.0) > 1e-9:
            raise InputError(
                f"weights must be above 0 and sum to 1, with one for each rule; got {list(self.weights)!r}."
            )

    def __repr__(self) -> str:
        weights = ", ".join(f"{weight:.4g}" for weight in self.weights)
        return f"<Mixture: {asked(self)}, {len(self.rules)} rules with probabilities [{weights}]>"

    def _describe(self) -> Description:
        return describe_mixture(self)

    @property
    def classes(self) -> tuple[Hashable, Hashable]:
        """The negative and the positive label."""
        return self.rules[0].classes

    @property
    def z(self) -> FloatArray:
        """The rules, one row for each."""
        return np.array([rule.z for rule in self.rules])

    @property
    def groups(self) -> Groups:
        """The groups of each attribute, in the order of the probability columns."""
        return self.rules[0].groups

    @property
    def attributes(self) -> tuple[AttributeKey, ...]:
        """The attributes whose probabilities are needed."""
        return self.rules[0].attributes

    @property
    def strata(self) -> tuple[str, ...]:
        """The columns of strata that decisions need; each combination of several has its own rules and weights."""
        return self.rules[0].strata

    @property
    def stratified(self) -> tuple[Stratified, ...]:
        """The attributes that are compared within strata."""
        return self.rules[0].stratified

    @property
    def needs_joint(self) -> bool:
        """Whether p(Y, A | x) is needed, or p(A | x) is enough."""
        return self.rules[0].needs_joint

    @property
    def costs(self) -> tuple[float, float]:
        """The cost of a false positive and of a false negative."""
        return self.rules[0].costs

    @property
    def criterion(self) -> Criterion | None:
        """The criterion of the mixture."""
        return self.rules[0].criterion

    @property
    def tolerance(self) -> float | None:
        """The tolerance of the mixture."""
        return self.rules[0].tolerance

    @property
    def learned_from(self) -> Mapping[str, Any]:
        """How it was learnt, as plain data."""
        return self.rules[0].learned_from

    @property
    def solution_(self) -> Solution:
        """The search's result: utility, values, upper_bound, gap, status."""
        if self.solution is None:
            raise AttributeError("This mixture was not learnt by a search, so it has no solution_.")
        return self.solution

    def for_stratum(self, strata: Any) -> Mixture:
        """Return the mixture of one stratum, with that stratum's own rules and weights.

        Parameters
        ----------
        strata : label, tuple of labels, or dict of labels by column
            As in :meth:`evenhand.Rule.for_stratum`; a tuple has a label of each column, in the order of ``strata``.
            With ``thin`` in the criterion, a label that is not compared, or None, stands for all of these.
        """
        return Mixture(*mixture_strata.rules_of_stratum(self, strata))

    def expected_decision(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None = None,
        *,
        strata: SensitiveFeatures | None = None,
    ) -> FloatArray:
        """Return each row's probability of a positive decision.

        Parameters
        ----------
        p_y, p_group, strata
            As in :meth:`evenhand.Rule.decide`.
        """
        if self.strata:
            return self._gathered(p_y, p_group, strata, lambda part, p, columns, _: part.expected_decision(p, columns))
        with_strata(self.rules[0], p_y, p_group, strata)
        return self._chance(np.array([rule.decision_function(p_y, p_group) for rule in self.rules]))

    def _gathered(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None,
        strata: SensitiveFeatures | None,
        evaluate: Callable[[Mixture, FloatArray, GroupProbabilities, NDArray[np.intp]], FloatArray],
    ) -> FloatArray:
        """Return the numbers that the mixture of each stratum has for its rows."""
        p = read_probabilities(p_y, "p_y", shape=(None,))
        found: FloatArray = np.empty(len(p))
        for stratum, at, columns in mixture_strata.by_stratum(self, p, p_group, strata):
            found[at] = evaluate(self._parts(stratum), p[at], columns, at)
        return found

    def _parts(self, stratum: Hashable) -> Mixture:
        """Return the mixture of one stratum; cached."""
        if stratum not in self._known_parts:
            self._known_parts[stratum] = self.for_stratum(stratum)
        return self._known_parts[stratum]

    @cached_property
    def _known_parts(self) -> dict[Hashable, Mixture]:
        return {}

    def _chance(self, margins: FloatArray) -> FloatArray:
        """Return each row's probability, given the margins of each rule; the weights are added in their order."""
        decided = margins > 0.0
        probability: FloatArray = np.zeros(margins.shape[1])
        for weight, positive in zip(self.weights, decided, strict=True):
            probability += np.where(positive, weight, 0.0)
        # Weights may sum to slightly less than 1.
        probability[decided.all(axis=0)] = 1.0
        return probability

    def lots(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None = None,
        *,
        key: Any = None,
        strata: SensitiveFeatures | None = None,
    ) -> FloatArray:
        """Return each row's lot, a number in [0, 1): the decision is positive iff it is below the probability.

        Parameters
        ----------
        p_y, p_group, key, strata
            As in :meth:`decide`.
        """
        p = read_probabilities(p_y, "p_y", shape=(None,))
        if key is not None:
            return lots(key, len(p))
        if self.strata:
            return self._gathered(p, p_group, strata, lambda part, p, columns, _: part.lots(p, columns))
        first = self.rules[0]
        return draw(keys_of_scores(p, first.read_columns(p, p_group), first.attributes))

    def decide(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None = None,
        *,
        key: Any = None,
        strata: SensitiveFeatures | None = None,
    ) -> NDArray[Any]:
        """Return each row's decision, as a label.

        Parameters
        ----------
        p_y, p_group, strata
            As in :meth:`evenhand.Rule.decide`.
        key : array of shape (n,), default=None
            Whole numbers or texts that identify the rows; see :mod:`evenhand.rules.lots`. With ``None`` the draw
            depends on the scores: rows with equal scores get the same decision, and a new score is a new draw.
        """
        drawn = self.lots(p_y, p_group, key=key, strata=strata)
        positive = drawn < self.expected_decision(p_y, p_group, strata=strata)
        return class_array(self.classes)[positive.astype(np.intp)]

    def bias_scores(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None = None,
        *,
        strata: SensitiveFeatures | None = None,
    ) -> FloatArray:
        """Return the paper's bias scores s_k(x), of shape (n, K): they are the same for every rule of a mixture."""
        return self.rules[0].bias_scores(p_y, p_group, strata=strata)

    def explain(
        self,
        p_y: ArrayLike,
        p_group: GroupProbabilities | None = None,
        *,
        key: Any = None,
        strata: SensitiveFeatures | None = None,
    ) -> list[DrawnReceipt]:
        """Return a receipt for each row: each rule's margin, the probability, and the lot. Parameters as in decide.

        With strata, the rules and weights are those of the row's stratum.
        """
        if self.strata:
            return mixture_strata.explain(self, p_y, p_group, key, strata)
        drawn = self.lots(p_y, p_group, key=key)
        margins = np.array([rule.decision_function(p_y, p_group) for rule in self.rules])
        expected, bias = self._chance(margins), self.bias_scores(p_y, p_group)
        probabilities = read_probabilities(p_y, "p_y")
        base = scores.margin(probabilities, self.costs)
        positive = drawn < expected
        return [
            DrawnReceipt(
                probability=float(probabilities[i]),
                margin=float(base[i]),
                fair_margins=tuple(map(float, margins[:, i])),
                weights=self.weights,
                bias_scores=tuple(map(float, bias[i])),
                expected_decision=float(expected[i]),
                lot=float(drawn[i]),
                base_decision=self.classes[int(base[i] > 0.0)],
                decision=self.classes[int(positive[i])],
                flipped=bool((base[i] > 0.0) != positive[i]),
            )
            for i in range(len(drawn))
        ]

    def to_sql(
        self,
        *,
        p_y: str,
        p_group: GroupProbabilities | None,
        key: str | None = None,
        key_kind: Any = "number",
        dialect: str = "ansi",
        output: Any = "decision",
        strata: Mapping[str, str] | None = None,
    ) -> str:
        """Return the mixture as one SQL expression that decides every row as :meth:`decide` does.

        Parameters
        ----------
        p_y, p_group, dialect, strata
            As in :meth:`evenhand.Rule.to_sql`.
        key : str or None, default=None
            The column of keys. None draws by the scores.
        key_kind : {"number", "text"}, default="number"
            The type of that column. The lot of a text needs MD5, which "ansi" and "sqlite" do not have.
        output : {"decision", "expected_decision", "lot"}, default="decision"
            The label, the probability of a positive decision, or the lot. Each is NULL if a score is not a probability;
            the label and the lot also if the key is missing, or is a number outside 0 to 2^62 - 1.

        Examples
        --------
        >>> import evenhand as eh
        >>> made = {"groups": {"sex": ("F", "M")}, "priors": [0.5, 0.5]}
        >>> rules = tuple(eh.Rule.from_criterion("dp", z=[z], **made) for z in (0.0, 0.125))
        >>> mixture = eh.Mixture(rules, (0.75, 0.25))
        >>> text = mixture.to_sql(p_y="p", p_group={"F": "p_f", "M": "p_m"}, key="id", dialect="sqlite")
        >>> text.startswith("CASE WHEN `p` BETWEEN"), "`id`" in text
        (True, True)
        """
        options = {"key": key, "key_kind": key_kind, "dialect": dialect, "output": output}
        return lots_sql.to_sql(self, p_y=p_y, p_group=p_group, strata=strata, **options)

    def noting(self, **notes: Any) -> Mixture:
        """Return the mixture with more entries in ``learned_from``."""
        return dataclasses.replace(self, rules=tuple(rule.noting(**notes) for rule in self.rules))

    def to_json(self) -> str:
        """Return the mixture as JSON text."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "decision": _DECISION,
            "weights": list(self.weights),
            "rules": [json.loads(rule.to_json()) for rule in self.rules],
            "solution": None if self.solution is None else rule_json.solution_to_dict(self.solution),
        }
        return rule_json.dump(data)

    @classmethod
    def from_json(cls, text: str) -> Mixture:
        """Return the mixture that a JSON text describes, or raise :class:`evenhand.RuleFormatError`."""
        data = rule_json.load(text)
        if data.get("format") != FORMAT or data.keys() != _FIELDS or data["version"] != VERSION:
            raise RuleFormatError(f'This JSON is not an evenhand mixture: "format": "{FORMAT}", version 1, is missing.')
        if not isinstance(data["rules"], list) or not isinstance(data["weights"], list):
            raise RuleFormatError("A mixture needs a list of rules and one of weights.")
        rules = tuple(Rule.from_json(json.dumps(entry)) for entry in data["rules"])
        solution = None if data["solution"] is None else rule_json.solution_from_dict(data["solution"])
        try:
            return cls(rules, tuple(map(float, data["weights"])), solution)
        except (InputError, TypeError, ValueError) as error:
            raise RuleFormatError(f"The mixture cannot be read: {error}") from None


def read_rule(text: str) -> Rule | Mixture:
    """Return the rule or the mixture that a JSON text describes, or raise :class:`evenhand.RuleFormatError`.

    Examples
    --------
    >>> import evenhand as eh
    >>> from evenhand.rules.mixture import read_rule
    >>> rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.125])
    >>> read_rule(rule.to_json()) == rule
    True
    """
    return Mixture.from_json(text) if rule_json.load(text).get("format") == FORMAT else Rule.from_json(text)


def _frame(rule: Rule) -> tuple[Any, ...]:
    """Return all of a rule except its z: the part that the rules of a mixture share."""
    contrasts = [term.coefficients for term in rule.terms]
    return dict(rule.groups), rule.classes, rule.events, rule.priors, contrasts, rule.costs


def check_any_rule(rule: Any, name: str = "rule") -> Rule | Mixture:
    """Return a rule or a mixture, or raise."""
    if not isinstance(rule, Rule | Mixture):
        raise InputError(f"{name} must be a Rule or a Mixture, such as learn_rule returns; got {shown(rule)}.")
    return rule
