"""The trade-off: the best rule at each of several tolerances, from one search."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evenhand.arguments import Seed, shown
from evenhand.display import Description, Displayed
from evenhand.errors import InputError
from evenhand.figures import Figure
from evenhand.frames import library_of, make_frame
from evenhand.inputs import FloatArray, GroupProbabilities, Missing, SensitiveFeatures, as_list
from evenhand.rows import Rows, read_rows
from evenhand.rules.criteria import Criterion, check_tolerance, resolve
from evenhand.rules.describing import describe_frontier, draw_frontier
from evenhand.rules.evidence import EvidenceName
from evenhand.rules.ladder import answer_ladder, rule_for, takes_long, without_proof
from evenhand.rules.rule import Rule
from evenhand.rules.scores import read_costs
from evenhand.rules.setting import Options, Setting
from evenhand.search import NoRule, Search

STEPS, STEPS_WITHOUT_PROOF = 25, 5


@dataclass(frozen=True)
class FrontierPoint:
    """One tolerance: its rule, the rule's utility and gap, and an upper bound on the utility of any rule."""

    tolerance: float
    utility: float
    gap: float
    upper_bound: float
    rule: Rule


@dataclass(frozen=True, repr=False)
class Frontier(Displayed):
    """The best utility at each tolerance, and the rules that reach it.

    Attributes
    ----------
    points : tuple of FrontierPoint
        From the strictest tolerance that a rule meets to the loosest.
    unreachable : tuple of float
        The requested tolerances that no rule meets.
    base_utility, base_gap : float
        Utility and gap of the base classifier.
    not_found : tuple of float
        The requested tolerances for which the search found no rule, but did not prove that there is none.
    library : str or None
        The caller's library of frames, for :meth:`to_frame`.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(300, random_state=0)
    >>> curve = eh.frontier(data.y, data.group, data.p_y, data.p_group, criterion="dp", tolerances=[0.02, 0.1])
    >>> curve.rule_at(0.05).tolerance
    0.02
    """

    points: tuple[FrontierPoint, ...]
    unreachable: tuple[float, ...]
    base_utility: float
    base_gap: float
    not_found: tuple[float, ...] = ()
    library: str | None = dataclasses.field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[FrontierPoint]:
        return iter(self.points)

    @property
    def tolerances(self) -> FloatArray:
        """The tolerances of the points."""
        return np.array([point.tolerance for point in self.points])

    @property
    def utilities(self) -> FloatArray:
        """The utility at each tolerance; it never decreases as the tolerance grows."""
        return np.array([point.utility for point in self.points])

    @property
    def gaps(self) -> FloatArray:
        """The largest difference of each rule on these rows."""
        return np.array([point.gap for point in self.points])

    def table(self) -> dict[str, list[float]]:
        """Return the columns tolerance, utility, gap and upper_bound, as for ``pandas.DataFrame(frontier.table())``."""
        names = ("tolerance", "utility", "gap", "upper_bound")
        return {name: [float(getattr(point, name)) for point in self.points] for name in names}

    def rule_at(self, tolerance: float) -> Rule:
        """Return the rule of the loosest point within a tolerance."""
        tolerance = check_tolerance(tolerance)
        within = [point for point in self.points if point.tolerance <= tolerance + 1e-12]
        if not within:
            raise InputError(f"No point of this frontier is within tolerance {tolerance:g}.")
        return within[-1].rule

    def to_frame(self, library: str | None = None) -> Any:
        """Return the table as a frame.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"} or None, default=None
            None uses the library of the arguments of :func:`evenhand.frontier`, else one that is installed.
        """
        return make_frame(self.table(), library, self.library)

    def plot(self) -> Figure:
        """Return a figure of utility against tolerance, with the model alone as a point.

        It displays without a network; ``plot().chart`` is the Altair chart, which is interactive.
        """
        return draw_frontier(self)

    def with_rule(self, tolerance: float, rule: Rule) -> Frontier:
        """Return the frontier with a learnt rule at its tolerance, replacing any rule there.

        It also replaces worse rules at looser tolerances that were found without a proof.
        """
        solution = rule.solution_
        assert rule.criterion is not None
        moving = np.array([bound.tolerance is None for bound in rule.criterion.reported(rule.groups)])
        gap = float(np.abs(np.array(solution.values)[moving]).max()) if moving.any() else 0.0
        point = FrontierPoint(tolerance, solution.utility, gap, solution.upper_bound, rule)
        others = [
            dataclasses.replace(point, tolerance=other.tolerance)
            if other.tolerance > tolerance and other.utility < point.utility and np.isinf(other.upper_bound)
            else other
            for other in self.points
            if other.tolerance != tolerance
        ]
        return dataclasses.replace(self, points=tuple(sorted([*others, point], key=lambda p: p.tolerance)))

    def __repr__(self) -> str:
        if not self.points:
            return "<Frontier: no rule>"
        first, last = self.points[0], self.points[-1]
        return (
            f"<Frontier: {len(self)} rules, tolerance {first.tolerance:.4g} to {last.tolerance:.4g},"
            f" utility {first.utility:.4f} to {last.utility:.4f}>"
        )

    def _describe(self) -> Description:
        return describe_frontier(self)


def frontier(
    y: ArrayLike | None,
    sensitive_features: SensitiveFeatures | None,
    p_y: ArrayLike,
    p_group: GroupProbabilities | None,
    *,
    criterion: str | Criterion = "demographic_parity",
    tolerances: Sequence[float] | None = None,
    search: str | Search = "certified",
    evidence: EvidenceName = "labels",
    safety: float = 0.0,
    objective: str = "accuracy",
    sample_weight: ArrayLike | None = None,
    costs: Any = None,
    pos_label: Hashable = 1,
    groups: Any = None,
    priors: Any = None,
    missing: Missing = "raise",
    strata: SensitiveFeatures | None = None,
    random_state: Seed = None,
) -> Frontier:
    """Return the best rule at each tolerance, all from one search.

    Parameters
    ----------
    y, sensitive_features, p_y, p_group, criterion, search, evidence, safety, objective, sample_weight, costs
        As in :func:`evenhand.learn_rule`.
    pos_label, groups, priors, missing, strata, random_state
        As in :func:`evenhand.learn_rule`.
    tolerances : sequence of float, default=None
        ``None`` uses 25 tolerances from 0 to the base classifier's own gap, closer together near 0. For an F score or
        predictive parity with more than two contrasts it uses 5, and finds their rules without a proof.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(2000, random_state=0)
    >>> curve = eh.frontier(data.y, data.group, data.p_y, data.p_group, tolerances=[0.01, 0.05, 0.2])
    >>> bool((curve.utilities[1:] >= curve.utilities[:-1]).all())
    True
    """
    options = Options(
        criterion=resolve(criterion),
        search=search,
        evidence=evidence,
        safety=safety,
        objective=objective,
        costs=read_costs(costs),
        priors=priors,
        missing=missing,
        random_state=random_state,
    )
    rows = read_rows(
        y,
        sensitive_features,
        p_y,
        p_group,
        criterion=options.criterion,
        sample_weight=sample_weight,
        pos_label=pos_label,
        groups=groups,
        missing=missing,
        counted=options.counts,
        strata=strata,
    )
    curve = frontier_of(rows, options, tolerances)
    return dataclasses.replace(curve, library=library_of(sensitive_features, y, p_y, p_group))


def frontier_of(
    rows: Rows,
    options: Options,
    tolerances: Sequence[float] | None = None,
    *,
    among: float | None = None,
    steps: int = STEPS,
) -> Frontier:
    """Return the frontier of rows that were read; see :func:`frontier`.

    Without ``tolerances``, there are ``steps`` tolerances up to the model's own gap, plus those in ``among``.
    """
    setting = Setting.of(rows, options)
    return _frontier(setting, tolerances, among, steps)


def rule_and_frontier(rows: Rows, options: Options, tolerance: float, steps: int) -> tuple[Rule, Frontier]:
    """Return the rule that :func:`evenhand.rules.ladder.best_rule` returns, and the trade-off, from one search."""
    setting, tolerance = Setting.of(rows, options), check_tolerance(tolerance)
    if takes_long(setting):
        return (rule := rule_for(setting, tolerance)), _frontier(setting, None, None, steps).with_rule(tolerance, rule)
    curve = _frontier(setting, None, tolerance, steps)
    found = next((point.rule for point in curve if point.tolerance == tolerance), None)
    rule = rule_for(setting, tolerance, found)
    return rule, curve.with_rule(tolerance, rule)


def _point(setting: Setting, tolerance: float, rule: Rule) -> FrontierPoint:
    solution = rule.solution_
    return FrontierPoint(tolerance, solution.utility, setting.gap(solution.values), solution.upper_bound, rule)


def _frontier(setting: Setting, tolerances: Sequence[float] | None, among: float | None, steps: int) -> Frontier:
    if not setting.system.moves:
        raise InputError("Every bound of this criterion has its own tolerance: there is no trade-off to compute.")
    problem = setting.problem([0.0])
    alone = setting.margins > 0.0
    base_utility, base_gap = problem.evaluate(alone)[0], setting.gap(setting.measure(alone))
    if tolerances is None and takes_long(setting):
        setting, steps = without_proof(setting), min(steps, STEPS_WITHOUT_PROOF)
    asked = tolerance_ladder(base_gap, steps) if tolerances is None else _read_ladder(tolerances)
    if among is not None:
        asked.append(among)
    points: list[FrontierPoint] = []
    unreachable: list[float] = []
    not_found: list[float] = []
    for tolerance, answer in answer_ladder(setting, asked, strict=False):
        if isinstance(answer, NoRule):
            (unreachable if answer.proven else not_found).append(tolerance)
            continue
        points.append(_point(setting, tolerance, answer))
    return Frontier(tuple(points), tuple(unreachable), base_utility, base_gap, tuple(not_found))


def _read_ladder(tolerances: Any) -> list[float]:
    if not isinstance(tolerances, Iterable) or isinstance(tolerances, str | bytes | Mapping):
        raise InputError(f"tolerances must be a list of numbers, such as [0.01, 0.05]; got {shown(tolerances)}.")
    ladder = sorted({check_tolerance(tolerance) for tolerance in as_list(tolerances, "tolerances")})
    if not ladder:
        raise InputError("tolerances is empty: give at least one, or None for 25 steps up to the model's own gap.")
    return ladder


def tolerance_ladder(gap: float, steps: int = STEPS) -> list[float]:
    """Return tolerances from 0 to a gap, closer together near 0, rounded to be readable."""
    if gap <= 0.0:
        return [0.0]
    raw = gap * np.linspace(0.0, 1.0, steps) ** 1.5
    digits = max(3, int(np.ceil(-np.log10(gap / steps))) + 1)
    return sorted({*(float(round(value, digits)) for value in raw[:-1]), float(gap)})
