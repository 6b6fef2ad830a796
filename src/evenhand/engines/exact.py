"""Learning from the rows themselves: in memory if they fit, otherwise in passes that fetch few rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.engines.cells import CountedCells
from evenhand.engines.distances import View, scale_of
from evenhand.engines.gathering import RawRows
from evenhand.engines.ground import Ground
from evenhand.engines.learning import rows_of
from evenhand.engines.levels import learn_at_levels
from evenhand.engines.line import learn_on_the_line
from evenhand.engines.neighbourhood import learn_nearby
from evenhand.engines.opening import sample_of
from evenhand.engines.plane import learn_in_the_plane
from evenhand.engines.quotient import learn_quotient
from evenhand.engines.reading import AllRowsError, Reader, TooManyError
from evenhand.engines.schema import Columns
from evenhand.errors import InfeasibleError, InputError
from evenhand.rows import Rows, with_group_probabilities
from evenhand.rules.confidence import check_unweighted, learn_with_confidence
from evenhand.rules.ladder import best_rule, warn_of_thin_cells, without_safety
from evenhand.rules.mixed_confidence import learn_mixture_with_confidence
from evenhand.rules.mixing import best_mixture, check_lots
from evenhand.rules.mixture import Mixture
from evenhand.rules.objective import BALANCED
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Options
from evenhand.search import Certified, NoRule, Smoothed

ROWS_TO_SEARCH = 200_000
# So that bins of distance, which are fine up to 1, are fine in the cubes whose rows fit in memory.
PART_OF_AN_AXIS = 1 / 32


@dataclass(frozen=True)
class Promise:
    """What :func:`evenhand.learn_rule` offers besides the best rule; both need the rows in memory.

    ``randomize`` asks for a mixture of rules, and ``confidence`` for a rule that is certified on a part of the rows.
    """

    randomize: bool = False
    confidence: float | None = None

    def check(self, options: Options, columns: Columns) -> None:
        """Raise if an option cannot be combined with it."""
        if self.randomize:
            check_lots(options.search, options.criterion)
        if self.confidence is not None:
            if columns.y is None or not columns.sensitive:
                raise InputError("confidence tests rules on counted rows: name the columns y and sensitive_features.")
            check_unweighted(columns.weight)

    def check_absent(self) -> None:
        """Raise if it is asked for where the rows do not fit in memory."""
        asked = "randomize=True" if self.randomize else f"confidence={self.confidence}"
        if self.randomize or self.confidence is not None:
            raise InputError(
                f"{asked} needs the rows in memory, and this table has more than max_in_memory allows: set a larger"
                " max_in_memory (rows times used columns), or learn from a random sample of the rows."
            )


def learn_in_memory(raw: RawRows, options: Options, tolerance: float, promise: Promise) -> Rule | Mixture:
    """Return the result of :func:`evenhand.learn_rule` for rows that were read into memory."""
    rows = _all_rows(raw, options)
    if promise.randomize and promise.confidence is not None:
        return learn_mixture_with_confidence(rows, options, tolerance=tolerance, confidence=promise.confidence)
    if promise.randomize:
        return best_mixture(rows, options, tolerance)
    if promise.confidence is not None:
        return learn_with_confidence(rows, options, tolerance=tolerance, confidence=promise.confidence)
    return best_rule(rows, options, tolerance)


def _all_rows(raw: RawRows, options: Options) -> Rows:
    """Return rows that were read into memory as those of :func:`evenhand.learn_rule`."""
    rows = rows_of(raw, options)
    if (raw.rows == 1).all():
        rows = dataclasses.replace(rows, copies=None, sample_weight=rows.sample_weight if raw.weighted else None)
    return with_group_probabilities(rows, raw.p_group, options.criterion)


def can_be_exact(options: Options) -> bool:
    """Return whether rows that do not fit in memory can be learnt from without rounding their scores."""
    return options.evidence == "labels" and isinstance(options.solver, Certified)


def check_larger(options: Options, again: bool) -> None:
    """Raise if the rows have to be in memory for what is asked; ``again`` tells if they can be read repeatedly."""
    target, asked = options.target, f"objective={options.objective!r}"
    if target.name == BALANCED and not (again and options.evidence == "labels"):
        needs = "evidence='labels' and"
    elif options.criterion.strata and not (again and options.evidence == "labels"):
        asked, needs = "A criterion with strata", "evidence='labels' and"
    elif target.is_ratio or options.criterion.has_levels:
        if again and can_be_exact(options):
            return
        asked = asked if target.is_ratio else "A criterion whose level is searched for"
        needs = "evidence='labels', search='certified' and"
    else:
        return
    raise InputError(
        f"{asked} needs {needs} data that can be read more than once, where the rows do not fit in memory: set these,"
        " or a larger max_in_memory (rows times used columns)."
    )


def learn_out_of_core(atoms: CountedCells, reader: Reader, options: Options, tolerance: float) -> Rule | None:
    """Return the best rule for all rows, or None if too many of them would have to be fetched.

    Where few rows are different, all of them are brought back, and they are learnt from in memory.
    """

    def learn(ground: Ground) -> Rule:
        if ground.setting.system.levels:
            return learn_at_levels(ground, _Repeatedly(reader), reader)
        if ground.problem.divisor is not None:
            return learn_quotient(ground, _Repeatedly(reader), sample_of(ground, reader))
        return _learn(ground, reader)

    rule = None
    if not reader.complete:
        try:
            rule = _with_safety(learn, atoms, options, tolerance)
        except TooManyError:
            return None
        except AllRowsError:
            pass
    if rule is None:
        assert reader.sample is not None
        reader.brought = len(reader.sample)
        rule = best_rule(_all_rows(reader.sample, options), options, tolerance)
    learned = {**rule.learned_from, "reading": reader.described(), "columns": reader.columns.remember()}
    return dataclasses.replace(rule, learned_from=learned)


class _Repeatedly:
    """Several searches of the same rows: one that is too large for memory finds a rule, with a bound from counts."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __call__(self, ground: Ground) -> Rule:
        """Return the best rule under linear bounds."""
        try:
            return _learn(ground, self.reader)
        except TooManyError as error:
            if ground.dimension != 2:
                raise
            bound = error.upper_bound
        sample = sample_of(ground, self.reader)
        try:
            rule = learn_nearby(ground, self.reader, _first_view(ground, sample), sample)
        except TooManyError:
            raise TooManyError(bound) from None
        return _with_bound(rule, bound)


def _with_bound(rule: Rule, bound: float) -> Rule:
    """Return a rule that was found, with a bound on every rule's utility."""
    if not np.isfinite(bound):
        return rule
    solution = rule.solution_
    bound = max(bound, solution.utility)
    return dataclasses.replace(rule, solution=dataclasses.replace(solution, upper_bound=bound, status="gap"))


def _learn(ground: Ground, reader: Reader) -> Rule:
    if ground.dimension == 1:
        return learn_on_the_line(ground, reader)
    sample = sample_of(ground, reader)
    if ground.dimension == 2:
        return learn_in_the_plane(ground, reader, sample)
    return learn_nearby(ground, reader, _first_view(ground, sample), sample)


def _first_view(ground: Ground, sample: RawRows) -> View:
    """Return a good rule for some of the rows of a sample, and axes of parts of its contrasts' typical sizes."""
    raw = sample.take(np.arange(0, len(sample), -(-len(sample) // ROWS_TO_SEARCH)))
    margin, contrasts, table = ground.arrays(raw, sampled=True)
    scale = scale_of(contrasts)
    problem = dataclasses.replace(
        ground.problem,
        margin=margin,
        contrasts=contrasts / scale,
        gain=table[:, 0],
        effects=table[:, 1:],
        weight=raw.weight,
        decider=None,
    )
    found = Smoothed().solve(problem, random_state=ground.options.random_state)[0]
    if isinstance(found, NoRule):
        found = Smoothed().closest(problem, random_state=ground.options.random_state)
    return View(np.array(found.z) / scale, np.diag(PART_OF_AN_AXIS / scale))


def _with_safety(learn: Callable[[Ground], Rule], atoms: CountedCells, options: Options, tolerance: float) -> Rule:
    """Learn a rule as :func:`evenhand.rules.ladder.rule_for` does, given a way to learn within some bounds."""

    def ground_of(options: Options) -> Ground:
        found = atoms.crossing(options.criterion.intersections)
        return Ground(found, rows_of(found, options), options, tolerance)

    ground = ground_of(options)
    if options.safety == 0.0 or ground.setting.system.levels:
        return learn(ground)
    warn_of_thin_cells(ground.setting, tolerance)
    if not options.target.is_ratio and ground.meets(ground.at_zero):
        return ground.unchanged("unchanged")
    try:
        return learn(ground)
    except InfeasibleError:
        plain = ground_of(dataclasses.replace(options, safety=0.0))
        return without_safety(ground.setting, learn(plain), tolerance)
