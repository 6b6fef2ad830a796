"""A second round of counts: rows by their breakpoints, finely around a rule that the first round gave.

Cells of scores say little about the rows that a rule's boundary cuts: a bound from them is about half of these rows'
weight. Breakpoints say where each row turns (:mod:`line`), and their counts add like cells. At every edge of a bin the
numbers of the rule are exact, and between two edges only the rows of one bin change. So the best edge is a rule with
exact numbers, and how much better any other rule can be is bounded by the rows of single bins. That is for one
contrast; for two, rows are counted by their lines (:mod:`near_lines`).

All sites have to use the same priors, because contrasts depend on them: those of the first round's rule, which are the
shares of all sites' rows.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.engines.cells import CountedCells
from evenhand.engines.ground import Ground
from evenhand.engines.learning import rows_of
from evenhand.engines.line import BINS, PLACES_AROUND_A_RULE, Breakpoints, Histogram, infeasible
from evenhand.engines.near_file import load, save
from evenhand.engines.near_lines import lines_of_site
from evenhand.engines.near_plane import NearLines, learn_in_lines
from evenhand.engines.site import Site, tally_of
from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Options
from evenhand.search.problem import conclude

PRIORS_SLACK = 1e-9
INSIDE = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class NearAggregate:
    """The weight of the rows by where they turn around a rule, by label and groups; these counts add.

    One is made by ``aggregate(..., near=rule)`` of an engine, or read by :meth:`load`.

    Parameters
    ----------
    rule : Rule
        The rule that the counts are around.
    atoms : CountedCells
        How many rows have each label, group and decision of the model itself.
    weighted : bool
        Whether rows have weights.
    places, codes : arrays of int
        The bins, and the numbers of the labels and groups, that have rows.
    weight : array of float
        The weight of these rows.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from evenhand.engines import arrow
    >>> rng = np.random.default_rng(0)
    >>> p, f = rng.random((2, 4000))
    >>> scores = pa.table({"p": p, "f": f, "y": rng.random(4000) < p, "sex": np.where(rng.random(4000) < f, "F", "M")})
    >>> columns = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"F": "f", "M": None}}
    >>> sites = scores[:1000], scores[1000:]
    >>> first = sum(arrow.aggregate(site, level=5, **columns) for site in sites)
    >>> rule = first.learn_rule("demographic_parity", tolerance=0.02)
    >>> second = sum(arrow.aggregate(site, near=rule, **columns) for site in sites)
    >>> better = second.learn_rule()
    >>> better.solution_.gap < 0.001 < rule.learned_from["quantisation"]["utility_error"]
    True
    """

    rule: Rule
    atoms: CountedCells
    weighted: bool
    places: NDArray[np.int64]
    codes: NDArray[np.int64]
    weight: FloatArray

    def __add__(self, other: object) -> NearAggregate:
        if not isinstance(other, NearAggregate):
            return NotImplemented
        if (self.rule, self.atoms.schema) != (other.rule, other.atoms.schema) or self.weighted != other.weighted:
            raise InputError(
                "These aggregates cannot be added: they are around different rules, or of different columns."
            )
        n_codes = Site(self.atoms.schema, self.rule).n_codes
        keys = np.concatenate([part.places * n_codes + part.codes for part in (self, other)])
        found, inverse = np.unique(keys, return_inverse=True)
        weight = np.bincount(inverse.reshape(-1), np.concatenate([self.weight, other.weight]), len(found)).astype(float)
        places, codes = np.divmod(found, n_codes)
        return NearAggregate(self.rule, self.atoms + other.atoms, self.weighted, places, codes, weight)

    def __radd__(self, other: object) -> NearAggregate:
        # sum(aggregates) begins with 0.
        return self if other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NearAggregate):
            return NotImplemented
        mine, others = ((p.places, p.codes, p.weight) for p in (self, other))
        return (self.rule, self.atoms, self.weighted) == (other.rule, other.atoms, other.weighted) and all(
            np.array_equal(a, b) for a, b in zip(mine, others, strict=True)
        )

    def __hash__(self) -> int:
        return hash((self.atoms, self.places.tobytes()))

    def __repr__(self) -> str:
        z = ", ".join(f"{one:.6g}" for one in self.rule.z)
        return f"NearAggregate({self.n_rows:,} rows in {len(self.weight):,} bins around z = {z})"

    @property
    def n_rows(self) -> int:
        """The number of rows that were counted."""
        return self.atoms.n_rows

    def learn_rule(self) -> Rule:
        """Learn the best rule whose numbers are known, for the criterion and the tolerance of the rule that is near.

        ``rule.solution_`` has the utility and the constraints' values of the rows themselves, and its ``gap`` is a
        proven bound on how much better any rule of the rows can be: the status is "gap", or "optimal" if it is 0.
        ``rule.learned_from["second_round"]["unsure"]`` is the weight of rows whose decision depends on rounding, nearly
        always 0: the values leave them out, and the utility is the least that there can be.
        """
        rule = self.rule
        assert rule.criterion is not None
        assert rule.tolerance is not None
        options = Options(criterion=rule.criterion, costs=rule.costs, missing="ignore")
        ground = Ground(self.atoms, rows_of(self.atoms, options), options, rule.tolerance)
        if np.abs(ground.setting.priors - np.array(rule.priors)).max() > PRIORS_SLACK:
            raise InputError(
                "The shares of labels and groups are not those of the rule that the counts are around: some sites are"
                " missing, or their rows have changed. Learn from the first round's counts of the same rows again."
            )
        site = Site(self.atoms.schema, rule)
        # The learning has other numbers for labels and groups.
        codes = ground.codes_of({"s0": self.weight, **site.fields_of(self.codes)})
        if site.dimension == 2:
            return learn_in_lines(
                NearLines(lines_of_site(site, self.weighted, ground), self.places, codes, self.weight)
            )
        size = PLACES_AROUND_A_RULE * ground.n_codes
        dense = np.bincount(self.places * ground.n_codes + codes, self.weight, size).astype(np.float64)
        return _best(ground, Histogram(ground, dense), tally_of(site, self.weighted))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the aggregate as a Parquet file that any tool can read; the file is complete or absent."""
        save((self.rule, self.atoms, self.weighted, self.places, self.codes, self.weight), path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> NearAggregate:
        """Read an aggregate that :meth:`save` wrote. Every field is checked, and nothing is executed."""
        return NearAggregate(*load(path))


def _best(ground: Ground, histogram: Histogram, tally: Breakpoints) -> Rule:
    """Return the best edge, or the unchanged model, with the bound on all rules."""
    utilities = histogram.sure_edges()
    utilities[[0, -1]] = -np.inf
    best = int(np.argmax(utilities))
    at_zero = float(ground.at_zero[0]) if ground.meets(ground.at_zero) else -np.inf
    bound = max(float(histogram.most.max()), at_zero)
    if not max(utilities[best], at_zero) > -np.inf:
        raise infeasible(histogram)
    if at_zero >= utilities[best]:
        found = ground.unchanged("optimal" if bound <= at_zero else "gap", upper_bound=max(bound, at_zero))
    else:
        sums = histogram.edges[best].copy()
        sums[0] -= ground.problem.offset
        # One row stands for all that are decided 1.
        whole = ground.problem_of(np.ones(1), np.zeros((1, 1)), sums[None])
        # A row that turns exactly at an edge is in the bin above it: z is a little below.
        z = tally.at(np.array([best - INSIDE]))
        found = ground.rule(whole, conclude(whole, 0, z, upper_bound=bound))
    about = {"bins": 2 * BINS, "within": tally.unit, "unsure": histogram.delicate}
    learned = {**found.learned_from, "second_round": about}
    return dataclasses.replace(found, classes=ground.schema.classes, learned_from=learned)
