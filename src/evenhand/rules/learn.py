"""The array-level entry: probabilities, labels and groups in, a fair rule out."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from evenhand._version import __version__
from evenhand.arguments import check_choice, check_label, check_seed, shown
from evenhand.errors import InfeasibleError, InputError
from evenhand.inputs import (
    Attribute,
    FloatArray,
    Missing,
    as_float_array,
    cross_attributes,
    read_labels,
    read_members,
    read_probabilities,
    read_sensitive,
    read_weights,
)
from evenhand.plausibility import check_same_index, warn_of_decisions, warn_of_reversed_groups
from evenhand.rules import evidence as evidence_kinds
from evenhand.rules import scores
from evenhand.rules.criteria import AttributeKey, Criterion, Intersection, System, check_tolerance, resolve, write_out
from evenhand.rules.evidence import Evidence, EvidenceName
from evenhand.rules.rule import Rule, Term, event_priors, term_name
from evenhand.rules.scores import Costs
from evenhand.search import Certified, Directions, Dual, Lines, NoRule, Problem, Search, Smoothed, Solution
from evenhand.search.closest import loosening, nearest_miss
from evenhand.search.dual import solve_linear_program
from evenhand.search.problem import FEASIBILITY_SLACK

MARGIN_ROUNDING = 2.0**-46
ROWS_FOR_EXPECTATION = 4_000
_SEARCHES: dict[str, Any] = {
    "certified": Certified, "directions": Directions, "lines": Lines, "dual": Dual, "smoothed": Smoothed,
}  # fmt: skip


def learn_rule(
    y: ArrayLike | None,
    sensitive_features: Any,
    p_y: ArrayLike,
    p_group: Any,
    *,
    criterion: str | Criterion = "demographic_parity",
    tolerance: float = 0.05,
    search: str | Search = "certified",
    evidence: EvidenceName = "labels",
    confidence: float | None = None,
    sample_weight: ArrayLike | None = None,
    costs: Any = None,
    pos_label: Hashable = 1,
    groups: Any = None,
    priors: Any = None,
    missing: Missing = "raise",
    random_state: Any = None,
) -> Rule:
    """Learn the most accurate decision rule that meets a fairness criterion.

    Parameters
    ----------
    y : array of shape (n,) or None
        Labels, any two values. ``None`` with ``evidence="model"``.
    sensitive_features : array, Series, frame or dict of columns, or None
        Each row's group. Several columns are several attributes, and each must meet the criterion (fairlearn
        crosses them; here :class:`evenhand.Intersection` asks for that). ``None`` with ``evidence="model"``. Rows of
        all arguments are matched by position; two pandas objects whose indexes differ are refused.
    p_y : array of shape (n,)
        P(Y = positive | x), from a model that has not seen these rows. Values of 0 and 1 alone lead to a warning:
        decisions are no probabilities.
    p_group : array of shape (n, G) or (n, 2, G), or dict of such by attribute
        P(A = g | x), or P(Y = y, A = g | x) with axis 1 = (negative, positive). Columns follow the sorted
        groups unless ``groups`` gives the order; a frame's columns are read by their names. Columns that rank the
        groups clearly worse than chance lead to a warning. Demographic parity needs only the former.
    criterion : str or Criterion, default="demographic_parity"
        What must hold.
    tolerance : float, default=0.05
        The largest allowed difference of rates.
    search : {"certified", "directions", "lines", "dual", "smoothed"} or a search, default="certified"
        How z is found: the global optimum, the paper's Algorithms 3 and 2, the dual of its Lemma 1, or a fast search
        for many constraints that proves nothing.
    evidence : {"labels", "model", "both"}, default="labels"
        Whether rates and accuracy are counted on ``y`` and ``sensitive_features`` (the paper), expected under
        ``p_y`` and ``p_group`` (no labels and no groups needed), or the mean of the two.
    confidence : float or None, default=None
        Promise that every constraint holds in the population with this probability; see
        :mod:`evenhand.rules.confidence`.
    sample_weight : array of shape (n,), default=None
        A weight of k counts as k copies.
    costs : (false positive, false negative) or dict, default=None
        Minimise the mean cost instead of maximising accuracy.
    pos_label : label, default=1
        The positive label.
    groups : sequence or dict of sequences, default=None
        The groups, in the order of the columns of ``p_group``.
    priors : array or dict of arrays, default=None
        P(A = g) or P(Y = y, A = g) of the training set; ``None`` counts them on these rows.
    missing : {"raise", "ignore"}, default="raise"
        Whether rows of unknown group are an error, or count for accuracy and for no group's rate.
    random_state : int or None, default=None
        For searches that draw, and for the split that ``confidence`` makes.

    Returns
    -------
    Rule
        With ``rule.solution_`` saying what the search proved.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(2000, random_state=0)
    >>> rule = eh.learn_rule(
    ...     data.y, data.group, data.p_y, data.p_joint, criterion="equalized_odds", tolerance=0.05)
    >>> rule.solution_.status
    'optimal'
    >>> decisions = rule.decide(data.p_y, data.p_joint)
    >>> eh.metrics.equalized_odds_difference(data.y, decisions, sensitive_features=data.group) <= 0.05
    True
    """
    options = {
        "criterion": criterion, "search": search, "evidence": evidence, "sample_weight": sample_weight, "costs": costs,
        "pos_label": pos_label, "groups": groups, "priors": priors, "missing": missing, "random_state": random_state,
    }  # fmt: skip
    if confidence is not None:
        from evenhand.rules.confidence import learn_with_confidence

        return learn_with_confidence(
            y, sensitive_features, p_y, p_group, tolerance=tolerance, confidence=confidence, **options
        )
    return learn_ladder(y, sensitive_features, p_y, p_group, tolerances=[tolerance], strict=True, **options)[0][1]


def learn_ladder(
    y: Any,
    sensitive_features: Any,
    p_y: Any,
    p_group: Any,
    *,
    tolerances: Sequence[float],
    search: str | Search,
    strict: bool,
    random_state: Any,
    **options: Any,
) -> list[tuple[float, Rule]]:
    """Return the best rule for each tolerance that some rule meets, all from one search.

    ``strict`` raises where a tolerance cannot be met; otherwise it is left out.
    """
    ladder = sorted({check_tolerance(tolerance) for tolerance in tolerances})
    setting = read_setting(y, sensitive_features, p_y, p_group, **options)
    answers = answer_ladder(setting, ladder, search, strict=strict, random_state=random_state)
    return [(tolerance, answer) for tolerance, answer in answers if not isinstance(answer, NoRule)]


def answer_ladder(
    setting: Setting, ladder: Sequence[float], search: str | Search, *, strict: bool, random_state: Any
) -> list[tuple[float, Rule | NoRule]]:
    """Return the best rule for each tolerance, given from strict to loose, or what the search says where it has none.

    ``strict`` raises there.
    """
    check_seed(random_state)
    problem = setting.problem(ladder)
    solver = resolve_search(search)
    results = solver.solve(problem, random_state=random_state)
    answers: list[tuple[float, Rule | NoRule]] = []
    for step, (tolerance, result) in enumerate(zip(ladder, results, strict=True)):
        if isinstance(result, NoRule):
            if strict:
                raise _infeasible(setting, problem, step, tolerance, result, plug_in=isinstance(solver, Dual))
            answers.append((tolerance, result))
        else:
            if len(ladder) == 1 and result.status in ("gap", "found"):
                result = dataclasses.replace(result, expected_optimum=setting.expected_optimum(problem))
            answers.append((tolerance, setting.rule(problem, result, tolerance, step)))
    return answers


def resolve_search(search: str | Search) -> Search:
    """Return the search that a string names; anything with a ``solve`` method is returned as it is."""
    if isinstance(search, str) and search in _SEARCHES:
        found: Search = _SEARCHES[search]()
        return found
    if not isinstance(search, str | type) and callable(getattr(search, "solve", None)):
        return search
    raise InputError(
        f"Unknown search {shown(search)}: use one of {sorted(_SEARCHES)!r}, or an instance such as Certified()."
    )


@dataclass(frozen=True, eq=False)
class Setting:
    """Everything that was read from a caller: the rows, the criterion written out, the evidence."""

    criterion: Criterion
    system: System
    groups: dict[AttributeKey, tuple[Hashable, ...]]
    classes: tuple[Hashable, Hashable]
    costs: Costs
    p_y: FloatArray
    p_group: dict[AttributeKey, FloatArray]
    margins: FloatArray
    contrasts: FloatArray
    priors: FloatArray
    evidence: Evidence
    weights: FloatArray
    learned_from: dict[str, Any]

    def problem(self, tolerances: Sequence[float]) -> Problem:
        """Return what a search sees, with one step of bounds for each tolerance."""
        lower, upper = self.system.bounds(tolerances)
        matrix = self.system.mixing @ self.system.contrasts
        # A row whose margin and contrasts are all rounding is on the boundary of every rule, and decided negatively.
        tied = (np.abs(self.margins) <= MARGIN_ROUNDING * sum(self.costs)) & ~self.contrasts.any(axis=1)
        return Problem(
            np.where(tied, 0.0, self.margins), self.contrasts, self.evidence.gain, self.evidence.shares @ matrix.T,
            lower, upper, self.evidence.offset, self.system.mixing, self.weights / self.weights.sum(), self.decide,
        )  # fmt: skip

    def expected_optimum(self, problem: Problem) -> float | None:
        """Return what the best decisions are expected to be worth if the probabilities are right, from some rows."""
        some = slice(None, None, max(1, len(self.p_y) // ROWS_FOR_EXPECTATION))
        weight = self.weights[some] / self.weights[some].sum()
        found = solve_linear_program(
            dataclasses.replace(
                problem, margin=problem.margin[some], contrasts=problem.contrasts[some], gain=problem.gain[some],
                effects=problem.effects[some], weight=weight, decider=None,
            )
        )  # fmt: skip
        if found is None:
            return None
        return evidence_kinds.expected_offset(weight, self.p_y[some], self.costs) + found.value

    def decide(self, z: FloatArray) -> NDArray[np.bool_]:
        """Return the decisions of the rule z on these rows: the search and the rule evaluate the same expression."""
        decisions: NDArray[np.bool_] = self._rule_of(z).decision_function(self.p_y, self.p_group) > 0.0
        return decisions

    def rule(self, problem: Problem, solution: Solution, tolerance: float, step: int) -> Rule:
        """Return the rule of a solution of any search; its numbers are those of the rule's own decisions."""
        utility, values = problem.evaluate(self.decide(np.array(solution.z)))
        if solution.status != "plug-in" and problem.excess(values, step) > FEASIBILITY_SLACK:
            raise InputError(
                f"The search returned z = {list(solution.z)!r} with status {solution.status!r}, but that rule misses"
                f" its bounds by {problem.excess(values, step):.3g}: a search must return rules that meet them."
            )
        solution = dataclasses.replace(solution, utility=utility, values=tuple(map(float, values)))
        rule = dataclasses.replace(self._rule_of(solution.z), tolerance=tolerance)
        return dataclasses.replace(rule, solution=_bounded(solution, problem))

    def _rule_of(self, z: Sequence[float] | FloatArray) -> Rule:
        return Rule(
            groups=self.groups,
            events=self.system.events,
            priors=tuple(map(float, self.priors)),
            terms=tuple(
                Term(name, tuple(map(float, row)), float(weight))
                for name, row, weight in zip(self._term_names, self.system.contrasts, z, strict=True)
            ),
            classes=self.classes,
            costs=self.costs,
            criterion=self.criterion,
            learned_from=self.learned_from,
        )

    @cached_property
    def _term_names(self) -> list[str]:
        return [term_name(row, self.system.names) for row in self.system.contrasts]


def _bounded(solution: Solution, problem: Problem) -> Solution:
    """Return a solution whose utility was counted again, with what the search's bound proves about that utility."""
    reached = solution.upper_bound <= solution.utility + problem.resolution
    status = solution.status
    if status in ("optimal", "gap"):
        status = "optimal" if reached else "gap"
    return dataclasses.replace(
        solution, upper_bound=solution.utility if reached else solution.upper_bound, status=status
    )


def read_setting(
    y: Any,
    sensitive_features: Any,
    p_y: Any,
    p_group: Any,
    *,
    criterion: str | Criterion,
    evidence: EvidenceName,
    sample_weight: Any,
    costs: Any,
    pos_label: Hashable,
    groups: Any,
    priors: Any,
    missing: Missing,
) -> Setting:
    """Check and read what a caller gave to :func:`learn_rule`."""
    check_choice(evidence, "evidence", ("labels", "model", "both"))
    criterion = resolve(criterion)
    check_same_index(
        {
            "y": y,
            "sensitive_features": sensitive_features,
            "p_y": p_y,
            "p_group": p_group,
            "sample_weight": sample_weight,
        }
    )
    probabilities = read_probabilities(p_y, "p_y", shape=(None,))
    n = len(probabilities)
    if n == 0:
        raise InputError("p_y is empty: there is nothing to learn from.")
    weights = read_weights(sample_weight, n)
    labels, classes, attributes = _read_truth(y, sensitive_features, n, evidence, pos_label, groups, missing)
    members = _members(attributes, groups, p_group, criterion.intersections)
    for crossed in criterion.intersections:
        if attributes:
            attributes[crossed] = cross_attributes(attributes, crossed)
            members[crossed] = attributes[crossed].groups
        elif crossed not in members:
            raise InputError(f"groups must list the groups of {crossed!r}: there are no rows to see them in.")
    system = write_out(criterion, members)
    needed = dict.fromkeys(event.attribute for event in system.events if event.attribute is not None)
    used = {name: members[name] for name in needed}
    columns = scores.read_group_probabilities(p_group, used, n, known=members) if used else {}
    warn_of_decisions(probabilities)
    if attributes:
        warn_of_reversed_groups(columns, attributes, weights)
    posteriors = scores.posteriors(system.events, used, columns, n)
    cost_pair = scores.read_costs(costs)
    margins = scores.margin(probabilities, cost_pair)
    kinds = []
    if evidence != "model":
        assert labels is not None
        kinds.append(evidence_kinds.counted(labels, attributes, system.events, weights, cost_pair))
    if evidence != "labels":
        kinds.append(evidence_kinds.expected(margins, posteriors, weights, probabilities, cost_pair))
    found = kinds[0] if len(kinds) == 1 else kinds[0].mean(kinds[1])
    complete = missing == "raise"
    shares = kinds[0].priors if priors is None else event_priors(priors, system.events, used, complete=complete)
    contrasts = scores.contrasts(posteriors / shares, system.contrasts)
    if n > 1 and np.ptp(margins) == 0.0 and (np.ptp(contrasts, axis=0) == 0.0).all():
        raise InputError("p_y and p_group are the same in every row: constant scores leave nothing to decide by.")
    counts = {name: round(float(share) * n) for name, share in zip(system.names, kinds[0].priors, strict=True)}
    return Setting(
        criterion, system, used, classes, cost_pair, probabilities, columns, margins, contrasts, shares, found, weights,
        learned_from={"rows": n, "rows_by_event": counts, "evidence": evidence, "versions": _versions()},
    )  # fmt: skip


def _read_truth(
    y: Any, sensitive_features: Any, n: int, evidence: str, pos_label: Hashable, groups: Any, missing: Missing
) -> tuple[NDArray[np.bool_] | None, tuple[Hashable, Hashable], dict[AttributeKey, Attribute]]:
    if evidence == "model" and y is None:
        labels = None
        check_label(pos_label)
        classes: tuple[Hashable, Hashable] = (0, 1) if pos_label == 1 else (f"not {pos_label}", pos_label)
    elif y is None:
        raise InputError(f"y is None, and evidence={evidence!r} counts labels: pass them, or say evidence='model'.")
    else:
        labels, classes = read_labels(y, pos_label)
        if len(labels) != n:
            raise InputError(f"y has {len(labels)} rows, but p_y has {n}.")
    if evidence == "model" and sensitive_features is None:
        return labels, classes, {}
    return labels, classes, read_sensitive(sensitive_features, n, missing=missing, groups=groups)


def _members(
    attributes: Mapping[AttributeKey, Attribute], groups: Any, p_group: Any, crossed: Sequence[Intersection]
) -> dict[AttributeKey, tuple[Hashable, ...]]:
    if attributes:
        return {name: attribute.groups for name, attribute in attributes.items()}
    if groups is None:
        given = p_group if isinstance(p_group, Mapping) else {"group": p_group}
        sizes = {name: tuple(range(_n_groups(array))) for name, array in given.items()}
        return scores.by_attribute(sizes, crossed, "p_group")
    if isinstance(groups, Mapping):
        return dict(scores.group_members(groups, crossed))
    return {"group": read_members(groups, "groups")}


def _n_groups(array: Any) -> int:
    shape = as_float_array(array, "p_group").shape
    return 2 if len(shape) == 1 else int(shape[-1]) if shape else 0


def _infeasible(
    setting: Setting, problem: Problem, step: int, tolerance: float, result: NoRule, *, plug_in: bool
) -> InfeasibleError:
    moving = np.array([bound.tolerance is None for bound in setting.system.constraints])
    asked, loosen = (
        (f"within tolerance {tolerance:g}", "loosen it") if moving.any() else ("that meets these bounds", "loosen them")
    )
    if plug_in:
        return InfeasibleError(
            f"search='dual' found no rule {asked}, but it goes by the probabilities alone, which proves nothing about"
            f" the labels: {loosen}, or let search='certified' look.",
        )
    if not result.proven:
        miss = nearest_miss(problem.take([step]), moving, result) if moving.any() else None
        near = (
            ""
            if miss is None
            else f" The nearest rule found misses it by {miss:.3g}: tolerance {tolerance + miss:.4g} can be met."
        )
        return InfeasibleError(
            f"The search found no rule {asked}, but has not proven that there is none.{near} {loosen.capitalize()},"
            " or let search=Certified(max_seconds=...) look for longer.",
            smallest_tolerance=None if miss is None else tolerance + miss,
        )
    if not moving.any():
        return InfeasibleError("No rule meets these bounds together: loosen one of them, or give it a tolerance.")
    found = loosening(problem.take([step]), moving)
    if isinstance(found, NoRule):
        return InfeasibleError(
            "No rule meets these bounds, whatever the tolerance: loosen the other bounds."
            if found.proven
            else f"No rule meets tolerance {tolerance:g} on these {len(problem.margin)} rows, and none was found for"
            " larger ones in the time given to that: loosen the tolerance, or the other bounds."
        )
    extra, exact = found
    smallest = tolerance + extra
    claim = "the smallest that some rule of this family meets is" if exact else "a rule exists at"
    return InfeasibleError(
        f"No rule meets tolerance {tolerance:g} on these {len(problem.margin)} rows; {claim} {smallest:.6g}.",
        smallest_tolerance=smallest,
    )


def _versions() -> dict[str, str]:
    return {
        "evenhand": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "scipy": scipy.__version__,
    }
