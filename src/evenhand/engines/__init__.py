"""Learning and applying where the data is: :mod:`~evenhand.engines.duckdb`, ``spark`` and ``arrow``.

Each has the same calls: ``learn_rule(data, ...)``, ``apply(rule, data, ...)`` and ``aggregate(data, ...)``, with names
of columns where :func:`evenhand.learn_rule` has arrays. What they count is an :class:`Aggregate`; these add, save and
load, so that sites that may not share rows can share counts.
"""

from evenhand.engines.aggregate import Aggregate
from evenhand.engines.learning import ErrorBound

__all__ = ["Aggregate", "ErrorBound"]
