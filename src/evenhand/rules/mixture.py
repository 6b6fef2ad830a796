"""Rules that draw lots: the best mixture of rules, and decisions that anyone can check."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import is_number, shown
from evenhand.errors import InfeasibleError, InputError, RuleFormatError
from evenhand.inputs import FloatArray, GroupProbabilities, read_probabilities
from evenhand.rows import Rows
from evenhand.rules import rule_json
from evenhand.rules.criteria import Criterion, check_tolerance
from evenhand.rules.lots import draw, keys_of_scores, lots
from evenhand.rules.rule import Rule, class_array
from evenhand.rules.setting import Options, Setting
from evenhand.search.mixed import mix
from evenhand.search.problem import NoRule, Solution

FORMAT = "evenhand-mixture"
VERSION = 1
_FIELDS = {"format", "version", "decision", "weights", "rules", "solution"}
_DECISION = "positive iff the lot of the key is below the sum of the weights of the rules that decide positively"


@dataclass(frozen=True)
class Mixture:
    """Rules with weights: a row is decided positively with the probability that it is by a rule drawn by weight.

    The lot of a row is computed from a key, such as a customer number: the same key always gives the same decision, and
    whoever knows the key can check it. Made by ``learn_rule(..., randomize=True)``.

    Parameters
    ----------
    rules : tuple of Rule
        The rules, all for the same criterion and groups.
    weights : tuple of float
        Their probabilities, which add up to 1.
    solution : Solution or None, default=None
        What the search reported, of the mixture; read it as ``mixture.solution_``. Its ``z`` is empty.

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
            raise InputError(f"A mixture needs a tuple of one rule or more; got {shown(self.rules)}.")
        if not isinstance(self.weights, tuple) or not all(is_number(weight) for weight in self.weights):
            raise InputError(f"A mixture needs a tuple of numbers as its weights; got {shown(self.weights)}.")
        if not isinstance(self.solution, Solution | None):
            raise InputError(f"The solution of a mixture is a Solution or None; got {shown(self.solution)}.")
        first = self.rules[0]
        alike = all((r.groups, r.classes, r.events) == (first.groups, first.classes, first.events) for r in self.rules)
        if not alike:
            raise InputError("The rules of a mixture must have the same groups, events and labels.")
        weights = np.array(self.weights, dtype=float)
        if len(weights) != len(self.rules) or not (weights > 0.0).all() or abs(weights.sum() - 1.0) > 1e-9:
            raise InputError(
                f"A mixture needs a weight above 0 for each rule, and 1 in all; got {list(self.weights)!r}."
            )

    @property
    def classes(self) -> tuple[Hashable, Hashable]:
        """The negative and the positive label."""
        return self.rules[0].classes

    @property
    def criterion(self) -> Criterion | None:
        """What the mixture was made for."""
        return self.rules[0].criterion

    @property
    def tolerance(self) -> float | None:
        """And how strictly."""
        return self.rules[0].tolerance

    @property
    def learned_from(self) -> Mapping[str, Any]:
        """Where it comes from, as plain data."""
        return self.rules[0].learned_from

    @property
    def solution_(self) -> Solution:
        """What the search reported: utility, values, upper_bound, gap, status."""
        if self.solution is None:
            raise AttributeError("This mixture was not learnt by a search, so it has no solution_.")
        return self.solution

    def expected_decision(self, p_y: ArrayLike, p_group: GroupProbabilities | None = None) -> FloatArray:
        """Return each row's probability of a positive decision.

        Parameters
        ----------
        p_y, p_group
            As in :meth:`evenhand.Rule.decide`.
        """
        decided = np.array([rule.decision_function(p_y, p_group) > 0.0 for rule in self.rules])
        probability: FloatArray = np.array(self.weights) @ decided
        # Weights may add up to a little less than 1.
        probability[decided.all(axis=0)] = 1.0
        return probability

    def decide(self, p_y: ArrayLike, p_group: GroupProbabilities | None = None, *, key: Any = None) -> NDArray[Any]:
        """Return each row's decision, as a label.

        Parameters
        ----------
        p_y, p_group
            As in :meth:`evenhand.Rule.decide`.
        key : array of shape (n,), default=None
            Whole numbers or texts that identify the rows; see :mod:`evenhand.rules.lots`. ``None`` draws by the scores
            themselves: rows with equal scores are then decided alike, and a new score is a new lot.
        """
        probability = self.expected_decision(p_y, p_group)
        if key is None:
            first = self.rules[0]
            columns = first.read_columns(p_y, p_group)
            drawn = draw(keys_of_scores(read_probabilities(p_y, "p_y"), columns, first.attributes))
        else:
            drawn = lots(key, len(probability))
        return class_array(self.classes)[(drawn < probability).astype(np.intp)]

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
        return json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Mixture:
        """Return the mixture that a JSON text describes, or raise :class:`evenhand.RuleFormatError`."""
        data = rule_json.load(text)
        if data.get("format") != FORMAT or data.keys() != _FIELDS or data["version"] != VERSION:
            raise RuleFormatError(f'This JSON is not an evenhand mixture: it has not "format": "{FORMAT}", version 1.')
        if not isinstance(data["rules"], list) or not isinstance(data["weights"], list):
            raise RuleFormatError("A mixture needs a list of rules and one of weights.")
        rules = tuple(Rule.from_json(json.dumps(entry)) for entry in data["rules"])
        solution = None if data["solution"] is None else rule_json.solution_from_dict(data["solution"])
        try:
            return cls(rules, tuple(map(float, data["weights"])), solution)
        except (InputError, TypeError, ValueError) as error:
            raise RuleFormatError(f"The mixture cannot be read: {error}") from None


def best_mixture(rows: Rows, options: Options, tolerance: float) -> Mixture:
    """Return the best mixture of rules that meets a tolerance in the mean; raise InfeasibleError where none does."""
    tolerance = check_tolerance(tolerance)
    if options.target.is_ratio:
        raise InputError(
            f"randomize=True maximises accuracy, balanced accuracy or minus the mean cost, not {options.objective!r}:"
            " choose one of these, or leave randomize=False."
        )
    setting = Setting.of(rows, options)
    if setting.system.levels:
        raise InputError("randomize=True mixes rules under linear bounds: PredictiveParity and MinimaxRate are not.")
    problem = setting.problem([tolerance])
    found = mix(problem)
    if isinstance(found, NoRule):
        claim = "No mixture of rules meets" if found.proven else "No mixture of rules was found that meets"
        raise InfeasibleError(f"{claim} these bounds: loosen one of them.")
    rules = tuple(setting.rule_at(z, tolerance) for z in found.z)
    solution = Solution(
        z=(),
        utility=found.utility,
        values=tuple(map(float, found.values + setting.system.shift)),
        upper_bound=found.upper_bound,
        status="optimal" if found.upper_bound == found.utility else "gap",
        nodes=found.columns,
    )
    solution = setting.with_bounds(solution, problem, tolerance, 0)
    return Mixture(rules, tuple(map(float, found.weights)), solution)
