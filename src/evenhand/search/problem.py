"""The input and output of a search: arrays in, a point z with its proven utility out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from evenhand.display import Description, Displayed, Table
from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.search.kernels import ladder

if TYPE_CHECKING:
    from evenhand.search.certificate import Certificate

FEASIBILITY_SLACK: float = ladder.FEASIBILITY_SLACK
MOST_REMEMBERED = 1024

Status = Literal["optimal", "gap", "found", "plug-in", "unchanged"]
Stopped = Literal["work", "nodes", "time"]


@dataclass(frozen=True, eq=False)
class Problem:
    """Maximise ``offset + sum_i decision_i gain_i`` over the rules ``decision = [margin - z . contrasts > 0]``.

    Feasible rules have values ``sum_i decision_i effects_i`` between the bounds. The bounds are a ladder, strict to
    loose: one row for each requested tolerance, usually one.

    Parameters
    ----------
    margin : array of shape (n,)
    contrasts : array of shape (n, K)
    gain : array of shape (n,)
    effects : array of shape (n, C)
    lower, upper : arrays of shape (C,) or (steps, C)
    offset : float, default=0
        The utility if every decision is 0.
    mixing : array of shape (C, K), default=None
        Each constraint's density as a combination of the contrasts; the identity if there are as many.
    weight : array of shape (n,), default=None
        The share of each row in a mean; 1 / n by default.
    decider : callable, default=None
        How rules are applied: takes z, returns each row's decision. The reported numbers of a solution are counted on
        these decisions. The default evaluates ``margin - contrasts @ z > 0``.
    divisor : (float, float) or None, default=None
        Makes the utility a quotient: it is divided by the first, plus the second times the weight of the rows decided
        1. Searches need problems without one; :func:`evenhand.search.ratio.solve` converts such problems.
    """

    margin: FloatArray
    contrasts: FloatArray
    gain: FloatArray
    effects: FloatArray
    lower: FloatArray
    upper: FloatArray
    offset: float = 0.0
    mixing: FloatArray | None = None
    weight: FloatArray | None = None
    decider: Callable[[FloatArray], NDArray[np.bool_]] | None = None
    divisor: tuple[float, float] | None = None
    _counted: dict[bytes, tuple[float, FloatArray]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("margin", "contrasts", "gain", "effects"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        for name in ("lower", "upper"):
            object.__setattr__(self, name, np.atleast_2d(np.asarray(getattr(self, name), dtype=np.float64)))
        n, k, c = len(self.margin), self.contrasts.shape[1], self.effects.shape[1]
        if self.weight is None:
            object.__setattr__(self, "weight", np.full(n, 1.0 / max(n, 1)))
        if self.mixing is None:
            if k != c:
                raise InputError(f"A problem with {k} contrasts and {c} constraints needs its mixing matrix.")
            object.__setattr__(self, "mixing", np.eye(k))
        shapes = (
            self.contrasts.shape,
            self.gain.shape,
            self.effects.shape,
            self.lower.shape,
            self.upper.shape,
        )
        steps = len(self.lower)
        if shapes != ((n, k), (n,), (n, c), (steps, c), (steps, c)):
            raise InputError(f"The arrays of a problem have inconsistent shapes: {shapes} for {n} rows.")
        if not all(np.isfinite(a).all() for a in (self.margin, self.contrasts, self.gain, self.effects)):
            raise InputError("A problem's arrays must be finite.")
        if (self.lower[1:] > self.lower[:-1]).any() or (self.upper[1:] < self.upper[:-1]).any():
            raise InputError("The bounds of a problem must go from strict to loose.")

    @property
    def dimension(self) -> int:
        """K, the number of contrasts."""
        return int(self.contrasts.shape[1])

    @property
    def table(self) -> FloatArray:
        """The gains and the effects side by side, of shape (n, 1 + C)."""
        return np.column_stack([self.gain, self.effects])

    @property
    def resolution(self) -> float:
        """The difference of utilities below which a bound counts as reached."""
        return 1e-10 * float(np.abs(self.gain).sum()) / (1.0 if self.divisor is None else self.divisor[0])

    @property
    def basis(self) -> NDArray[np.int64]:
        """For each contrast the index of the constraint whose multiplier it is: itself, or the most similar one."""
        assert self.mixing is not None
        sizes = np.sqrt((self.mixing**2).sum(axis=1))
        nearness = np.abs(self.mixing) / np.where(sizes > 0.0, sizes, 1.0)[:, None]
        exact = (self.mixing[:, None, :] == np.eye(self.dimension)).all(axis=2)
        found: NDArray[np.int64] = np.where(exact, 2.0, nearness).argmax(axis=0).astype(np.int64)
        return found

    def level(self, z: FloatArray) -> FloatArray:
        """Return ``margin - contrasts @ z``, with the same bits for any number of threads."""
        levels: FloatArray = self.margin - np.einsum("ij,j->i", self.contrasts, z)
        return levels

    def slope(self, direction: FloatArray) -> FloatArray:
        """Return how fast the level of each row changes along a direction."""
        slopes: FloatArray = -np.einsum("ij,j->i", self.contrasts, direction)
        return slopes

    def decide(self, z: FloatArray) -> NDArray[np.bool_]:
        """Return the decisions of the rule z, as the rule itself makes them."""
        if self.decider is not None:
            return self.decider(z)
        decisions: NDArray[np.bool_] = self.level(z) > 0.0
        return decisions

    def strictly_inside(self, z: FloatArray) -> bool:
        """Return whether z is 0 or off every row's hyperplane, so that no decision depends on rounding.

        z = 0 is the model's own decisions: nothing is computed there, so nothing is rounded.
        """
        if not z.any():
            return True
        terms = np.ascontiguousarray((self.contrasts * z).T)
        largest = np.abs(self.margin)
        size = largest_of([largest, *np.abs(terms)])
        close = np.flatnonzero(~(np.abs(self.margin - sum(terms)) > ladder.RESOLUTION * size))
        crossed = largest_of(list(np.abs(self.contrasts[close]).T)) > 1e-15 * largest[close]
        return not bool(crossed.any())

    def evaluate(self, decisions: NDArray[np.bool_]) -> tuple[float, FloatArray]:
        """Return the utility and the constraints' values of some decisions, recomputed from the rows."""
        utility = self.offset + float(self.gain[decisions].sum())
        if self.divisor is not None:
            assert self.weight is not None
            utility /= self.divisor[0] + self.divisor[1] * float(self.weight[decisions].sum())
        return utility, self.effects[decisions].sum(axis=0)

    def counted(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Return the utility and the constraints' values of the rule z; results are cached."""
        key = z.tobytes()
        found = self._counted.get(key)
        if found is None:
            if len(self._counted) >= MOST_REMEMBERED:
                self._counted.clear()
            found = self._counted[key] = self.evaluate(self.decide(z))
        return found[0], found[1].copy()

    def excess(self, values: FloatArray, step: int = 0) -> float:
        """Return by how much the values violate the bounds of a step; 0 if they meet them."""
        miss = np.maximum(self.lower[step] - values, values - self.upper[step])
        return float(max(0.0, miss.max(initial=0.0)))

    def take(self, steps: Sequence[int]) -> Problem:
        """Return the same problem with some of its steps."""
        return replace(self, lower=self.lower[steps], upper=self.upper[steps])


@dataclass(frozen=True, repr=False)
class Solution(Displayed):
    """The result of a search for one step of a problem's bounds.

    Attributes
    ----------
    z : tuple of float
        The rule, one number for each contrast.
    utility : float
        Weighted accuracy, or minus the mean cost, recomputed from the rule's decisions.
    values : tuple of float
        The constraints' values, recomputed from the rule's decisions.
    upper_bound : float
        No rule in this family that meets the bounds has a utility above this. Infinite if the search proves nothing.
    status : {"optimal", "gap", "found", "plug-in", "unchanged"}
        "optimal" (nothing better exists), "gap" (nothing better by more than ``gap``), "found" (meets the bounds,
        no claim), "plug-in" (optimal under the model's probabilities; may violate the bounds on counted labels),
        "unchanged" (the model's own decisions meet the bounds and are kept).
    nodes : int
        The number of boxes, lines or rays that were processed.
    seconds : float
        Time spent; ignored when solutions are compared, and not written to JSON.
    stopped : {"work", "nodes", "time"} or None
        What ended the search before its proof: "work", "nodes" or "time"; None if the search was complete. Not written
        to JSON.
    expected_optimum : float or None
        An estimate, not a bound: the expected utility of the best decisions by Theorem 1 if the model's probabilities
        are correct (the linear program of Lemma 1, on some of the rows). ``learn_rule`` sets it if optimality was not
        proven; None otherwise. Not written to JSON.
    asked, used : tuple of (lower, upper), or None
        With ``safety``, the requested bounds of the constraints, and the tightened ones that the rule was learnt
        within.
    prove : callable or None
        The function that :meth:`certificate` calls; the certified search keeps its problem here. Neither pickled nor
        written to JSON.
    """

    z: tuple[float, ...]
    utility: float
    values: tuple[float, ...]
    upper_bound: float
    status: Status
    nodes: int
    seconds: float = field(default=0.0, compare=False)
    stopped: Stopped | None = field(default=None, compare=False)
    expected_optimum: float | None = field(default=None, compare=False)
    asked: tuple[tuple[float, float], ...] | None = None
    used: tuple[tuple[float, float], ...] | None = None
    prove: Callable[[Sequence[float], float], Certificate] | None = field(default=None, compare=False, repr=False)

    @property
    def gap(self) -> float:
        """An upper bound on how much better a rule in this family could be."""
        return max(0.0, self.upper_bound - self.utility)

    def certificate(self) -> Certificate:
        """Return a proof that this solution is optimal, which ``tools/check_certificate.py`` checks.

        The proof is made on request. It is available for optima of the certified search with one or two contrasts and
        at most 200,000 rows, in the process that found them.

        Examples
        --------
        >>> import evenhand as eh
        >>> data = eh.datasets.make_zafar(2000, random_state=0)
        >>> rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion="eo", tolerance=0.05)
        >>> proof = rule.solution_.certificate()
        >>> proof.save("proof.json", rows="rows.csv")  # doctest: +SKIP
        """
        if self.status != "optimal":
            raise InputError(
                f"A certificate proves that a rule is optimal, but the status of this one is {self.status!r}."
            )
        if self.prove is None:
            raise InputError(
                "This solution has no certificate. It exists only if search='certified' found the optimum of one or two"
                " contrasts on at most 200,000 rows, and only in the process that found it: learn the rule again."
            )
        return self.prove(self.z, self.utility)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the problem: a rule that is copied to another process does not include its rows."""
        return {**self.__dict__, "prove": None}

    @property
    def sentence(self) -> str:
        """What was found and proven, in one sentence."""
        claim = {
            "optimal": "optimal: no rule in this family is better",
            "gap": f"no rule in this family is better by more than {self.gap:.4f}",
            "found": "found, without a proof about better rules",
            "plug-in": "optimal if the probabilities are right",
            "unchanged": "the model alone meets the bounds and is left unchanged",
        }[self.status]
        values = max(map(abs, self.values), default=0.0)
        return f"Utility {self.utility:.4f}, largest value of a constraint {values:.4f}; {claim}."

    def __repr__(self) -> str:
        z = ", ".join(f"{value:.4g}" for value in self.z)
        return f"<Solution: {self.status}, utility {self.utility:.4f}, gap {self.gap:.4g}, z = [{z}]>"

    def _describe(self) -> Description:
        rows = [("utility", f"{self.utility:.6f}"), ("no rule exceeds", f"{self.upper_bound:.6f}")]
        rows += [("nodes", f"{self.nodes:,}"), ("seconds", f"{self.seconds:.2f}")]
        rows += [(f"z {place}", f"{value:+.6g}") for place, value in enumerate(self.z)]
        rows += [(f"value of constraint {place}", f"{value:+.6f}") for place, value in enumerate(self.values)]
        return Description(f"Solution: {self.status}", [self.sentence, Table(("", ""), tuple(rows))])


@dataclass(frozen=True)
class NoRule:
    """A step for which the search found no rule.

    Attributes
    ----------
    proven : bool
        Whether it is proven that no rule exists; otherwise the search only ended without one.
    nodes : int
        The number of boxes, lines or rays that were processed.
    upper_bound : float
        No rule in this family that meets the bounds has a utility above this; infinite if nothing is known.
    stopped : {"work", "nodes", "time"} or None
        What ended the search before its proof, as in :class:`Solution`.
    """

    proven: bool
    nodes: int = 0
    upper_bound: float = np.inf
    stopped: Stopped | None = field(default=None, compare=False)


def typical_size(values: FloatArray) -> float:
    """Return the median size of the numbers that are not zero; 1 if all are."""
    sizes = np.abs(values)
    sizes = sizes[sizes > 0.0]
    return float(np.median(sizes)) if sizes.size else 1.0


def largest_of(columns: Sequence[FloatArray]) -> FloatArray:
    """Return the largest number of each row, given as columns: faster than a reduction over short rows."""
    return functools.reduce(np.maximum, columns)


class Search(Protocol):
    """An object that solves a problem, with one result for each step of its bounds."""

    def solve(self, problem: Problem, random_state: Any = None) -> list[Solution | NoRule]:
        """Return the best rule found for each step."""
        ...


def conclude(
    problem: Problem,
    step: int,
    z: FloatArray,
    *,
    upper_bound: float = np.inf,
    status: Status | None = None,
    nodes: int = 0,
    seconds: float = 0.0,
) -> Solution:
    """Return z as a solution: its numbers recomputed from its decisions, its status from its bound."""
    utility, values = problem.counted(z)
    if upper_bound <= utility + problem.resolution:
        upper_bound = utility
    if status is None:
        status = "optimal" if upper_bound == utility else "gap" if np.isfinite(upper_bound) else "found"
    return Solution(
        tuple(map(float, z)), utility, tuple(map(float, values)), float(upper_bound), status, nodes, seconds
    )
