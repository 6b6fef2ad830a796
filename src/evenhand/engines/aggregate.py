"""The counts of a table: they can be added, learnt from, saved and loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from evenhand.arguments import Seed
from evenhand.engines.aggregate_file import load, save
from evenhand.engines.cells import CountedCells
from evenhand.engines.learning import ErrorBound, error_bound, learn_from_cells
from evenhand.inputs import Missing
from evenhand.rules.criteria import Criterion, resolve
from evenhand.rules.evidence import EvidenceName
from evenhand.rules.rule import Rule
from evenhand.rules.scores import read_costs
from evenhand.rules.setting import Options
from evenhand.search import Search


@dataclass(frozen=True, eq=False, repr=False)
class Aggregate(CountedCells):
    """The number and weight of the rows that share each quantised score, label and group.

    One is made by ``aggregate`` of :mod:`evenhand.engines.duckdb`, :mod:`~evenhand.engines.spark` or
    :mod:`~evenhand.engines.arrow`, or read by :meth:`load`. ``schema``, ``level``, ``words``, ``weight`` and ``rows``
    are those of :class:`evenhand.engines.cells.CountedCells`.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from evenhand.engines import arrow
    >>> rng = np.random.default_rng(0)
    >>> p, f = rng.random((2, 4000))
    >>> scores = pa.table({"p": p, "f": f, "y": rng.random(4000) < p, "sex": np.where(rng.random(4000) < f, "F", "M")})
    >>> columns = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"F": "f", "M": None}}
    >>> first, second = (arrow.aggregate(part, **columns) for part in (scores[:1000], scores[1000:]))
    >>> both = first + second
    >>> both == arrow.aggregate(scores, **columns), both.n_rows
    (True, 4000)
    >>> rule = both.learn_rule("demographic_parity", tolerance=0.02)
    >>> rule.solution_.status, rule.learned_from["quantisation"]["gap_on_cells"]
    ('found', 0.0)
    """

    def learn_rule(
        self,
        criterion: str | Criterion = "demographic_parity",
        tolerance: float = 0.05,
        *,
        search: str | Search = "certified",
        evidence: EvidenceName = "labels",
        safety: float = 0.0,
        costs: Any = None,
        priors: Any = None,
        missing: Missing = "raise",
        provable: bool = False,
        random_state: Seed = None,
    ) -> Rule:
        """Learn the most accurate rule that meets a criterion on the cells' midpoints.

        ``rule.solution_`` has the utility and the constraints' values on the midpoints. Its status is "found" and its
        upper bound infinite, because a rule of the rows themselves can be better than every rule of the midpoints.
        ``rule.learned_from["quantisation"]`` has bounds on how much the utility and each constraint can differ on the
        rows, and on the distance from the best rule of the midpoints (``gap_on_cells``).

        Parameters
        ----------
        criterion, tolerance, search, evidence, safety, costs, priors, missing, random_state
            As in :func:`evenhand.learn_rule`.
        provable : bool, default=False
            Tighten the bounds until they are proven to hold on the rows themselves.
        """
        options = Options(
            criterion=resolve(criterion),
            search=search,
            evidence=evidence,
            safety=safety,
            costs=read_costs(costs),
            priors=priors,
            missing=missing,
            random_state=random_state,
        )
        return learn_from_cells(self, options, tolerance, provable=provable)

    def error_bound(self, rule: Rule, *, evidence: EvidenceName = "labels") -> ErrorBound:
        """Return how far a rule's utility and rates on the rows can be from those on the cells' midpoints."""
        return error_bound(self, rule, evidence=evidence)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the aggregate as a Parquet file that any tool can read; the file is complete or absent."""
        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Aggregate:
        """Read an aggregate that :meth:`save` wrote. Every field is checked, and nothing is executed."""
        return Aggregate(*load(path))
