"""Learning and applying rules inside data engines: :mod:`~evenhand.engines.duckdb`, ``spark`` and ``arrow``.

Each has the same functions: ``learn_rule(data, ...)``, ``apply(rule, data, ...)`` and ``aggregate(data, ...)``, with
names of columns where :func:`evenhand.learn_rule` has arrays. The counts are an :class:`Aggregate`; aggregates can be
added, saved and loaded, so that sites that may not share rows can share counts.
"""

from evenhand.engines.aggregate import Aggregate
from evenhand.engines.learning import ErrorBound
from evenhand.engines.near import NearAggregate

__all__ = ["Aggregate", "ErrorBound", "NearAggregate"]
