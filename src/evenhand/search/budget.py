"""The budget of a search: row visits, boxes and seconds."""

from __future__ import annotations

import time
from functools import cache
from typing import Protocol

import numpy as np

from evenhand.search.kernels.boxes import Boxes
from evenhand.search.kernels.kinds import Kinds, Tally, count_halves
from evenhand.search.problem import Stopped

# Work is counted in row visits, so that results do not depend on how busy the machine is.
VISITS_FOR_THE_PLANE = 1_000_000_000
VISITS_BEYOND = 500_000_000
VISITS_BESIDE = 2.0


class Asked(Protocol):
    """A user's limits; None sets no limit."""

    @property
    def max_nodes(self) -> int | None:
        """Boxes."""

    @property
    def max_visits(self) -> int | None:
        """Row visits."""

    @property
    def max_seconds(self) -> float | str | None:
        """Seconds, or "auto" for a fixed amount of work."""


class Budget:
    """The budget of a search: row visits, boxes and, if a user sets it, seconds."""

    def __init__(self, visits: float, nodes: float, deadline: float, parent: Budget | None = None) -> None:
        self.visits, self.nodes, self.deadline, self.parent = visits, nodes, deadline, parent
        self.stopped: Stopped | None = None

    @classmethod
    def of(cls, options: Asked, dimension: int) -> Budget:
        """Return the budget for a user's options."""
        limit = options.max_seconds
        nodes = np.inf if options.max_nodes is None else options.max_nodes
        visits = np.inf if options.max_visits is None else options.max_visits
        if limit is None or (isinstance(limit, str) and min(visits, nodes) < np.inf):
            return cls(visits, nodes, np.inf)
        if isinstance(limit, str):
            return cls(VISITS_FOR_THE_PLANE if dimension <= 2 else VISITS_BEYOND, nodes, np.inf)
        return cls(min(visits, limit * visits_a_second()), nodes, time.perf_counter() + limit)

    def share(self, part: float) -> Budget:
        """Return a part of the rest; its use counts here, too."""
        return Budget(part * self.visits, max(1.0, part * self.nodes), self.deadline, self)

    def at_most(self, visits: float) -> Budget:
        """Return a part with at most this number of visits."""
        return Budget(min(visits, self.visits), self.nodes, self.deadline, self)

    def spend(self, visits: float, nodes: float) -> None:
        """Subtract what was used."""
        self.visits -= visits
        self.nodes -= nodes
        if self.parent is not None:
            self.parent.spend(visits, nodes)

    def extend(self, seconds: float) -> None:
        """Move the deadline, because time for compiling does not count."""
        self.deadline += seconds
        if self.parent is not None:
            self.parent.extend(seconds)

    def is_spent(self) -> bool:
        """Return whether the budget is spent, and record which limit was reached."""
        if self.visits <= 0.0 or self.nodes <= 0.0 or time.perf_counter() > self.deadline:
            self.stop("work" if self.visits <= 0.0 else "nodes" if self.nodes <= 0.0 else "time")
            return True
        return False

    def stop(self, reason: Stopped | None) -> None:
        """Record why the search ended before its proof."""
        self.stopped = reason
        if self.parent is not None:
            self.parent.stop(reason)


@cache
def visits_a_second() -> float:
    """Return how many rows a core visits in a second, measured once and rounded to a power of two."""
    rng = np.random.default_rng(0)
    planes = rng.normal(size=(20_000, 6))
    n, fastest = len(planes), np.inf
    box, halves = Boxes.room(1, 3, 3, n), Boxes.halves(3, 3, n)
    tally = Tally.of(Kinds(np.arange(n, dtype=np.int32) % 16, np.arange(16, dtype=np.int32)))
    box.centre[0], box.radius[0], box.size[0], box.rows[:] = [1.0, 0.1, 0.1], [0.0, 0.1, 0.1], n, np.arange(n)
    for _ in range(20):
        started = time.thread_time()
        count_halves(planes, box, 0, 1, 0.05, halves, tally)
        fastest = min(fastest, time.thread_time() - started)
    return float(2.0 ** np.round(np.log2(len(planes) / (VISITS_BESIDE * max(fastest, 1e-9)))))
