"""Searches for a fairer rule that is as good, by inverting the frontier: found, refuted or open.

Let U(t) be the best utility of a rule whose gap is at most t. It never decreases as t grows, and the certified search
computes it exactly for a ladder of t. The smallest gap of a rule with a utility of at least u is the smallest t with
U(t) >= u. Each round solves a ladder between the refuted gaps and just below the smallest gap found, so that the last
round either finds a smaller gap or proves that there is none. A gap is the largest of several differences, which is
not linear in the decisions: minimising it directly takes a problem for each difference and sign, the ladder only one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import Seed, check_seed, is_number, shown
from evenhand.auditing.alternatives_text import lines
from evenhand.auditing.audit import criterion_name
from evenhand.auditing.comparison import Compared, compare, largest_gap
from evenhand.auditing.findings import plain
from evenhand.auditing.tally import BoolArray, read_decisions
from evenhand.errors import InputError
from evenhand.inputs import GroupProbabilities, Missing, SensitiveFeatures, as_column, read_probabilities
from evenhand.plausibility import check_same_index
from evenhand.rows import Rows, read_rows, with_group_probabilities
from evenhand.rules.criteria import Composite, Criterion, resolve
from evenhand.rules.events import Stratified
from evenhand.rules.ladder import answer_ladder
from evenhand.rules.rule import Rule, check_rule
from evenhand.rules.scores import margin as margin_of
from evenhand.rules.scores import read_costs
from evenhand.rules.setting import Options, Setting
from evenhand.search import NoRule, Search
from evenhand.statistics.intervals import check_confidence
from evenhand.statistics.sampling import stratified_share

# Utilities and gaps that differ by less than this are equal: it is about one row in a billion.
SAME = 1e-9
STEPS = 8
ROUNDS = 12
OWN = "model"

Status = Literal["found", "refuted", "open"]


@dataclass(frozen=True)
class Point:
    """The utility of some decisions (accuracy if there are no costs), and their gap."""

    utility: float
    gap: float


@dataclass(frozen=True)
class Family:
    """The result for the rules of one model.

    Attributes
    ----------
    name : str
        The model.
    status : {"found", "refuted", "open"}
        Whether one of its rules is an alternative.
    upper_bound : float
        No rule in this family with a gap small enough has a utility above this; infinite if nothing was proven.
    best : Point or None
        The alternative with the smallest gap, or the best rule with a gap small enough; None if none was found.
    """

    name: str
    status: Status
    upper_bound: float
    best: Point | None


@dataclass(frozen=True)
class Repeated:
    """The same question for other rows: the search's result, and the number of rows."""

    rows: int
    status: Status
    present: Point
    upper_bound: float


@dataclass(frozen=True, repr=False)
class Alternatives:
    """The result of :func:`evenhand.alternatives`. It prints as a few sentences.

    Attributes
    ----------
    status : {"found", "refuted", "open"}
        "found": a rule in the family is at least as good, minus the margin, and has a smaller gap. "refuted": it is
        proven that there is none. "open": none was found, but it is not proven that there is none.
    criterion : str
        The criterion that defines the gap.
    rows : int
        The number of rows that were searched.
    margin, reduction, confidence : float
        As given.
    costs : bool
        Whether the utility is minus a mean cost, not accuracy.
    present : Point
        The audited decisions, on the searched rows.
    alternative : Point or None
        The alternative rule, on the same rows.
    rule : Rule or None
        The alternative rule: of those that are good enough, the one with the smallest gap.
    model : str or None
        The model whose scores it uses.
    smallest_gap : float
        A proven lower bound on the gap of any rule that is good enough; 0 if nothing was proven.
    upper_bound : float
        No rule with a gap small enough has a utility above this; infinite if nothing was proven.
    families : tuple of Family
        The results for the rules of each model.
    held_out : Compared, Repeated or None
        If a rule was found, both decisions measured on the held-out rows; otherwise the search's result for the
        held-out rows; None if no rows were held out.
    """

    status: Status
    criterion: str
    rows: int
    margin: float
    reduction: float
    confidence: float
    costs: bool
    present: Point
    alternative: Point | None
    rule: Rule | None
    model: str | None
    smallest_gap: float
    upper_bound: float
    families: tuple[Family, ...]
    held_out: Compared | Repeated | None

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the rule as plain data for JSON; the rule has its own JSON."""
        kept = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "rule"}
        return {"schema": "evenhand-alternatives/1", **{name: plain(value) for name, value in kept.items()}}

    def __str__(self) -> str:
        return "\n".join(lines(self))

    __repr__ = __str__


def alternatives(
    y: ArrayLike,
    sensitive_features: SensitiveFeatures,
    p_y: ArrayLike,
    p_group: GroupProbabilities | None,
    *,
    decisions: ArrayLike | None = None,
    rule: Rule | None = None,
    models: Mapping[str, tuple[ArrayLike, GroupProbabilities | None]] | None = None,
    criterion: str | Criterion = "demographic_parity",
    margin: float = 0.0,
    reduction: float = 0.0,
    held_out: float | ArrayLike = 0.3,
    confidence: float = 0.95,
    search: str | Search = "certified",
    sample_weight: ArrayLike | None = None,
    costs: Any = None,
    pos_label: Hashable = 1,
    groups: Any = None,
    priors: Any = None,
    missing: Missing = "raise",
    random_state: Seed = 0,
    strata: SensitiveFeatures | None = None,
) -> Alternatives:
    """Search for a fairer rule that is as good: find one, or prove that there is none.

    The present decisions have some accuracy and some gap. An alternative is a rule in the family with at least this
    accuracy, minus ``margin``, and a smaller gap. The family is that of :func:`evenhand.learn_rule`: all rules
    that decide by the sign of ``margin - z . contrasts`` of the given probabilities. The answer is about this family on
    these rows, and is then checked on held-out rows.

    Parameters
    ----------
    y, sensitive_features, p_y, p_group, sample_weight, costs, pos_label, groups, priors, missing, strata
        As in :func:`evenhand.learn_rule`. Labels and groups are counted, so both are needed.
    decisions : array of shape (n,), default=None
        The present decisions, as the two labels, booleans, or 0 and 1. ``None``: those of ``rule``, or the model's own.
    rule : Rule, default=None
        The rule whose decisions on ``p_y`` and ``p_group`` are the present ones.
    models : dict of (p_y, p_group), default=None
        Further models, whose rules also count as alternatives. ``(p_y, None)`` shares ``p_group``.
    criterion : str or Criterion, default="demographic_parity"
        The criterion that defines the gap. An alternative must also meet all bounds with a fixed tolerance. Criteria
        with a level, ``PredictiveParity`` and ``MinimaxRate``, are not supported.
    margin : float, default=0
        How much less utility an alternative may have: 0.01 is one point of accuracy.
    reduction : float, default=0
        The smallest reduction of the gap that counts.
    held_out : float or array of bool, default=0.3
        The rows that are not searched: a share of the rows, drawn within each group and label, or a mask. 0 holds out
        no rows. They are part of the same arrays, so that decisions and models stay matched row by row.
    confidence : float, default=0.95
        The level of the intervals on the held-out rows.
    search : str or a search, default="certified"
        As in :func:`evenhand.learn_rule`. Only ``"certified"`` refutes.
    random_state : int or None, default=0
        Seed of the held-out rows, the bootstrap and randomised searches.

    Returns
    -------
    Alternatives
        It prints as the answer in words. ``rule`` is the alternative with the smallest gap.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(2000, random_state=0)
    >>> found = eh.alternatives(data.y, data.group, data.p_y, data.p_group, margin=0.02)
    >>> found.status, found.alternative.gap < found.present.gap
    ('found', True)
    >>> optimum = eh.learn_rule(data.y, data.group, data.p_y, data.p_group, tolerance=0.05)
    >>> eh.alternatives(data.y, data.group, data.p_y, data.p_group, rule=optimum, held_out=0).status
    'refuted'
    """
    options = Options(
        criterion=resolve(criterion),
        search=search,
        costs=read_costs(costs),
        priors=priors,
        missing=missing,
        random_state=random_state,
    )
    check_amount(margin, "margin")
    check_amount(reduction, "reduction")
    check_linear_in_decisions(options.criterion)
    check_same_index({"y": y, "p_y": p_y, "decisions": decisions})
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
        strata=strata,
    )
    judged = decisions_of(rows, decisions, rule, options)
    question = Question(options, float(margin), float(reduction), check_confidence(confidence))
    everything = Part(_families(rows, p_group, models, options.criterion), judged)
    held = hold_out(held_out, rows, random_state)
    return question.answer(everything.take(~held), everything.take(held) if held.any() else None)


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows with the probabilities of each model, and the present decisions on them."""

    families: Mapping[str, Rows]
    judged: BoolArray

    def take(self, index: BoolArray) -> Part:
        """Return some of the rows."""
        return Part({name: rows.take(index) for name, rows in self.families.items()}, self.judged[index])


@dataclass(frozen=True)
class Question:
    """The question, independent of the rows: criterion, search, margin, reduction and confidence level."""

    options: Options
    margin: float = 0.0
    reduction: float = 0.0
    confidence: float = 0.95

    def answer(self, searched: Part, tested: Part | None) -> Alternatives:
        """Search some rows, and measure the answer on others."""
        settings = self._settings(searched)
        first = next(iter(settings.values()))
        if not first.system.moves:
            raise InputError("Every bound of this criterion has its own tolerance: there is no gap to reduce.")
        present = _point(first, searched.judged)
        found = self._search(settings, present)
        best = found.best
        return Alternatives(
            status=found.status,
            criterion=_name(self.options.criterion),
            rows=len(searched.judged),
            margin=self.margin,
            reduction=self.reduction,
            confidence=self.confidence,
            costs=self.options.costs != (1.0, 1.0),
            present=present,
            alternative=None if best is None else best.point,
            rule=None if best is None else best.rule,
            model=None if best is None else best.model,
            smallest_gap=found.smallest_gap,
            upper_bound=max(family.upper_bound for family in found.families),
            families=tuple(found.families),
            held_out=None if tested is None else self._test(self._settings(tested), tested.judged, found),
        )

    def _settings(self, part: Part) -> dict[str, Setting]:
        return {name: Setting.of(rows, self.options) for name, rows in part.families.items()}

    def _search(self, settings: Mapping[str, Setting], present: Point) -> _Found:
        """Search the families one after the other, each below the smallest gap found so far."""
        target = present.utility - self.margin
        highest = present.gap - max(self.reduction, SAME)
        best: _Alternative | None = None
        families, lowest = [], []
        for name, setting in settings.items():
            if highest < 0.0:
                families.append(Family(name, "refuted", -np.inf, None))
                continue
            known = highest if best is None else best.point.gap - SAME
            family, found, low = _search_family(name, setting, target, highest, known)
            families.append(family)
            lowest.append(low)
            best = found or best
        if best is not None:
            return _Found("found", best, min([best.point.gap, *lowest]), families)
        refuted = all(family.status == "refuted" for family in families)
        proven = present.gap if self.reduction == 0.0 else max(0.0, highest)
        return _Found("refuted" if refuted else "open", None, min([proven, *lowest]), families)

    def _test(self, settings: Mapping[str, Setting], judged: BoolArray, found: _Found) -> Compared | Repeated:
        first = next(iter(settings.values()))
        if found.best is None:
            present = _point(first, judged)
            again = self._search(settings, present)
            bound = max(family.upper_bound for family in again.families)
            return Repeated(len(judged), again.status, present, bound)
        rows = settings[found.best.model].rows
        other = _decided_by(found.best.rule, rows)
        seed = self.options.random_state if isinstance(self.options.random_state, int) else None
        return compare(first, judged, other, margin=self.margin, confidence=self.confidence, seed=seed)


@dataclass(frozen=True)
class _Alternative:
    model: str
    rule: Rule
    point: Point


@dataclass(frozen=True)
class _Found:
    status: Status
    best: _Alternative | None
    smallest_gap: float
    families: Sequence[Family]


def _search_family(
    name: str, setting: Setting, target: float, highest: float, known: float
) -> tuple[Family, _Alternative | None, float]:
    """Return the result for a family, its rule of the smallest gap, and a bound on the gap of every good rule.

    Rules with a gap of at most ``highest`` are alternatives; only those with one of at most ``known`` are new. The
    bound is infinite if it is proven that none of these is smaller than the returned one.
    """
    first = answer_ladder(setting, {*np.linspace(0.0, max(known, 0.0), STEPS).tolist(), highest}, strict=False)
    loosest = first[-1][1]
    best: _Alternative | None = None
    low, high = 0.0, known
    answers = [(tolerance, answer) for tolerance, answer in first if tolerance <= known]
    for _ in range(ROUNDS):
        good = next((rule for _, rule in answers if isinstance(rule, Rule) and _is_good(rule, target)), None)
        if good is not None:
            best = _Alternative(name, good, _point_of(setting, good))
            high = best.point.gap - SAME
        # A rule that is refuted at one tolerance is refuted at every stricter one.
        refuted = [tolerance for tolerance, answer in answers if tolerance <= high and _bound(answer) < target - SAME]
        low = max([low, *refuted])
        if low >= high:
            low = np.inf
            break
        if good is None and not refuted:
            break
        answers = answer_ladder(setting, np.linspace(low, high, STEPS + 1)[1:].tolist(), strict=False)
    if best is not None:
        return Family(name, "found", max(_bound(loosest), best.point.utility), best.point), best, low
    reached = None if isinstance(loosest, NoRule) else _point_of(setting, loosest)
    status: Status = "open"
    if reached is not None and reached.utility >= target - SAME:
        status = "found"
    elif _bound(loosest) < target - SAME:
        status = "refuted"
    return Family(name, status, _bound(loosest), reached), None, low


def _is_good(rule: Rule, target: float) -> bool:
    return rule.solution_.utility >= target - SAME


def _bound(answer: Rule | NoRule) -> float:
    """Return an upper bound on the utility of the rules of a step."""
    if isinstance(answer, NoRule):
        return -np.inf if answer.proven else answer.upper_bound
    return answer.solution_.upper_bound


def _point_of(setting: Setting, rule: Rule) -> Point:
    return Point(rule.solution_.utility, largest_gap(setting, np.array(rule.solution_.values) - setting.system.shift))


def _point(setting: Setting, decided: BoolArray) -> Point:
    utility, values = setting.problem([0.0]).evaluate(decided)
    return Point(utility, largest_gap(setting, values))


def decisions_of(rows: Rows, decisions: Any, rule: Rule | None, options: Options) -> BoolArray:
    """Return the present decisions: those given, those of a rule, or the model's own."""
    if decisions is not None:
        if rule is not None:
            raise InputError("Pass either decisions or rule, not both.")
        return read_decisions(rows.y, decisions, rows.classes[1], ("y", "decisions"))[1]
    if rule is None:
        own: BoolArray = margin_of(rows.p_y, options.costs) > 0.0
        return own
    for name in check_rule(rule).attributes:
        if rows.groups.get(name, rule.groups[name]) != rule.groups[name]:
            raise InputError(
                f"The groups of {name!r} are {list(rows.groups[name])!r} here and {list(rule.groups[name])!r} in the"
                " rule: give p_group and groups in the rule's order."
            )
    if unknown := [name for name in rule.strata if name not in rows.strata]:
        raise InputError(
            f"The rule decides within strata of {unknown[0]!r}, which the criterion does not compare: pass its"
            " decisions instead of the rule."
        )
    return _decided_by(rule, rows)


def _decided_by(rule: Rule, rows: Rows) -> BoolArray:
    """Return the decisions of a rule, which may know other strata than the rows have."""
    plain = {name: array for name, array in rows.p_group.items() if not isinstance(name, Stratified)}
    strata = {name: rows.strata_values[name] for name in rule.strata} or None
    made: BoolArray = rule.decision_function(rows.p_y, plain or None, strata=strata) > 0.0
    return made


def check_linear_in_decisions(criterion: Criterion) -> None:
    """Raise for a criterion whose gap is not linear in the decisions."""
    if criterion.has_levels:
        raise InputError(
            "alternatives does not support PredictiveParity and MinimaxRate, whose bounds are linear only at a level"
            " that is searched for: learn rules at smaller tolerances with learn_rule or frontier (on the command line"
            " with fit), and compare them with the present decisions by audit."
        )


def _families(rows: Rows, p_group: Any, models: Any, criterion: Criterion) -> dict[str, Rows]:
    """Return the rows with the probabilities of each model."""
    found = {OWN: rows}
    if models is None:
        return found
    if not isinstance(models, Mapping):
        raise InputError(f"models must be a dict such as {{'trees': (p_y, p_group)}}; got {shown(models)}.")
    for name, pair in models.items():
        if not isinstance(name, str) or name in found:
            raise InputError(f"Each of models needs a unique name, and {OWN!r} is taken; got {shown(name)}.")
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"models[{name!r}] must be a pair (p_y, p_group); got {shown(pair)}.")
        p_y = read_probabilities(pair[0], f"p_y of {name!r}", shape=(len(rows),))
        given = p_group if pair[1] is None else pair[1]
        found[name] = with_group_probabilities(dataclasses.replace(rows, p_y=p_y), given, criterion)
    return found


def hold_out(held_out: Any, rows: Rows, random_state: Seed) -> NDArray[np.bool_]:
    """Return a mask of the held-out rows: a share of each group and label, or those that are given."""
    if is_number(held_out):
        if not 0.0 <= held_out < 1.0:
            raise InputError(f"held_out must be a share of the rows, at least 0 and below 1; got {shown(held_out)}.")
        if held_out == 0.0:
            return np.zeros(len(rows), dtype=bool)
        assert rows.positive is not None
        cells = [rows.positive.astype(np.intp), *(found.codes for found in rows.attributes.values())]
        return stratified_share(cells, float(held_out), _generator(random_state))
    held = as_column(held_out, "held_out")
    if held.dtype.kind != "b" or held.shape != (len(rows),):
        raise InputError(f"held_out must be a share, or True or False for each of the {len(rows)} rows.")
    if held.all():
        raise InputError("held_out holds out every row: leave some rows to search.")
    return held.astype(bool)


def _generator(random_state: Seed) -> np.random.RandomState:
    if isinstance(random_state, np.random.RandomState):
        return random_state
    seed: np.uint32 = np.random.default_rng(check_seed(random_state)).integers(2**32, dtype=np.uint32)
    return np.random.RandomState(seed)


def check_amount(value: Any, name: str) -> None:
    """Raise if an amount is not a number of at least 0."""
    if not is_number(value) or not 0.0 <= value < np.inf:
        raise InputError(f"{name} must be a number, 0 or above; got {shown(value)}.")


def _name(criterion: Criterion) -> str:
    parts = criterion.parts if isinstance(criterion, Composite) else (criterion,)
    return " & ".join(map(criterion_name, parts))
