"""A proof that a rule is optimal, as a file that a program of 300 lines checks in exact arithmetic.

``tools/check_certificate.py`` defines what is claimed and what counts as a proof. This module makes the proof: faces of
the half-cube are halved until each box is bounded by multipliers or has few cells. The search itself is not repeated:
with the optimum known from the start, two of its three bounds suffice, and the checker verifies every box.

Which rows are open in a box is decided exactly. Bounds are computed in doubles and used only if they hold with a
margin, so that the checker gets the same answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arguments import check_path
from evenhand.errors import InputError
from evenhand.files import check_outputs, local_path, write_text
from evenhand.inputs import FloatArray
from evenhand.search.arrangement import faces
from evenhand.search.coincidence import share_planes
from evenhand.search.problem import FEASIBILITY_SLACK, Problem, typical_size

SCHEMA = "evenhand-certificate/1"
LARGEST_DIMENSION = 2
MOST_ROWS = 200_000
MOST_BOXES = 50_000
OPEN_IN_CELLS, MOST_OPEN_IN_CELLS = 10, 200
HALVED_IN_VAIN = 6
SMALL = 2.0**-30
ROUNDING = 1e-14
SPARE = 1e-12
STEPS_OF_MULTIPLIERS = 6

Node = int | list[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """A claim that a rule is optimal, and its proof.

    Attributes
    ----------
    claim : dict
        The claim: ``rows``, ``z``, ``utility`` and ``values`` (exact fractions as text), ``lower``, ``upper``,
        ``slack``, ``offset`` and ``scale``.
    faces : list
        For each face of the half-cube its boxes, each followed by its halves: the side that is halved, or the reason
        why the box is not halved: ``["bound", omega, multipliers]`` or ``["cells"]``.
    table : array of shape (n, 2 + K + C)
        The rows: margin, contrasts, gain and effects.
    """

    claim: dict[str, Any]
    faces: list[list[Node]]
    table: FloatArray = field(repr=False)

    @property
    def boxes(self) -> int:
        """The number of boxes in the proof."""
        return sum(map(len, self.faces))

    def __repr__(self) -> str:
        utility = float(Fraction(self.claim["utility"]))
        return f"<Certificate: utility {utility:.6g} is optimal on {len(self.table):,} rows, {self.boxes:,} boxes>"

    def rows_csv(self) -> str:
        """Return the rows as CSV text. Each number reads back exactly."""
        k, c = len(self.claim["z"]), len(self.claim["values"])
        heads = ["margin", *(f"contrast_{j + 1}" for j in range(k)), "gain", *(f"effect_{j + 1}" for j in range(c))]
        lines = (",".join(map(repr, row)) for row in self.table.tolist())
        return "\n".join([",".join(heads), *lines]) + "\n"

    def to_json(self) -> str:
        """Return the claim and the proof as JSON text, with the SHA-256 of the rows."""
        data = {
            "schema": SCHEMA,
            "rows_sha256": hashlib.sha256(self.rows_csv().encode("ascii")).hexdigest(),
            "claim": self.claim,
            "faces": self.faces,
        }
        return json.dumps(data, separators=(",", ":")) + "\n"

    def save(self, path: str | os.PathLike[str], *, rows: str | os.PathLike[str]) -> None:
        """Write the certificate and its table of rows.

        Parameters
        ----------
        path : path
            The certificate, as JSON.
        rows : path
            The table, as CSV.
        """
        targets = {"the certificate": _target(path, "path"), "the rows": _target(rows, "rows")}
        check_outputs(targets, {})
        write_text(targets["the certificate"], self.to_json())
        write_text(targets["the rows"], self.rows_csv())


def _target(path: Any, name: str) -> Path:
    check_path(path, name)
    return local_path(path, write=True)


def has_certificate(problem: Problem) -> bool:
    """Return whether a problem is small enough for certificates."""
    return problem.dimension <= LARGEST_DIMENSION and len(problem.margin) <= MOST_ROWS


def certify(problem: Problem, step: int, z: Sequence[float], utility: float) -> Certificate:
    """Return a certificate that the rule z, of a known utility, is optimal for a step of a problem's bounds.

    Raise if there is none.
    """
    problem = problem.take([step])
    if problem.dimension > 1 and share_planes(problem) is not problem:
        raise InputError(
            "Many of these rows have nearly the same scores, and the search let them share a boundary. In exact"
            " arithmetic they do not, so there is no certificate: round the probabilities, and learn the rule again."
        )
    claim = _claim(problem, z)
    if abs(float(Fraction(claim["utility"])) - utility) > problem.resolution:
        raise InputError(
            "In exact arithmetic this rule decides some rows differently than in doubles, because it is on their"
            " boundary: there is no certificate for it."
        )
    prover = _Prover(problem, claim)
    table = np.column_stack([problem.margin, problem.contrasts, problem.gain, problem.effects])
    return Certificate(claim, [prover.face(*face) for face in faces(problem.dimension)], table)


def _claim(problem: Problem, z: Sequence[float]) -> dict[str, Any]:
    """Return the claim about a rule, computed exactly; raise if exact arithmetic contradicts it."""
    exact_z = [Fraction(value) for value in z]
    decided = np.array(
        [
            Fraction(m) > sum((Fraction(a) * b for a, b in zip(row, exact_z, strict=True)), Fraction(0))
            for m, row in zip(problem.margin.tolist(), problem.contrasts.tolist(), strict=True)
        ]
    )
    values = [_exact_sum(column) for column in problem.effects[decided].T]
    ends = _finite(problem.lower[0]), _finite(problem.upper[0])
    slack = Fraction(FEASIBILITY_SLACK)
    for value, low, high in zip(values, *ends, strict=True):
        if (low is not None and value < Fraction(low) - slack) or (high is not None and value > Fraction(high) + slack):
            raise InputError("In exact arithmetic this rule violates its bounds: there is no certificate for it.")
    return {
        "rows": len(problem.margin),
        "z": [float(value) for value in z],
        "utility": str(Fraction(problem.offset) + _exact_sum(problem.gain[decided])),
        "values": [str(value) for value in values],
        "lower": ends[0],
        "upper": ends[1],
        "slack": FEASIBILITY_SLACK,
        "offset": float(problem.offset),
        "scale": [float(2.0 ** np.round(np.log2(typical_size(column)))) for column in problem.contrasts.T],
    }


def _finite(bounds: FloatArray) -> list[float | None]:
    return [bound if math.isfinite(bound) else None for bound in bounds.tolist()]


def _exact_sum(values: FloatArray) -> Fraction:
    distinct, counts = np.unique(values, return_counts=True)
    pairs = zip(distinct.tolist(), counts.tolist(), strict=True)
    return sum((Fraction(value) * count for value, count in pairs), Fraction(0))


class _Prover:
    """The rows in half-cube coordinates, and the utility that no feasible rule may exceed."""

    def __init__(self, problem: Problem, claim: dict[str, Any]) -> None:
        planes = np.column_stack([problem.margin, -problem.contrasts / np.array(claim["scale"])])
        # Rows with the same scores get the same decision: the leaves of a tree, people with the same features.
        self.planes, place = np.unique(planes, axis=0, return_inverse=True)
        columns = [np.bincount(place.reshape(-1), column, len(self.planes)) for column in problem.table.T]
        self.table: FloatArray = np.column_stack(columns).astype(np.float64)
        self.offset = problem.offset
        self.lower = problem.lower[0] - FEASIBILITY_SLACK
        self.upper = problem.upper[0] + FEASIBILITY_SLACK
        self.known = float(Fraction(claim["utility"]))
        self.quantum = _quantum(problem.gain)
        self.sizes = np.abs(problem.table).sum(axis=0)
        self.boxes = 0

    def face(self, centre: FloatArray, radius: FloatArray) -> list[Node]:
        """Return the boxes of a face, each followed by its halves."""
        sums = np.zeros(self.table.shape[1])
        sums[0] = self.offset
        moving = np.flatnonzero(self.planes.any(axis=1))
        waiting = [(centre, radius, moving, sums, 0)]
        nodes: list[Node] = []
        while waiting:
            centre, radius, before, sums, in_vain = waiting.pop()
            rows, sums = self._classify(centre, radius, before, sums)
            in_vain = in_vain + 1 if len(rows) == len(before) else 0
            node = self._reason(centre, radius, rows, sums, few=in_vain >= HALVED_IN_VAIN)
            nodes.append(node)
            self.boxes += 1
            if self.boxes > MOST_BOXES:
                raise InputError(f"There is no certificate of at most {MOST_BOXES:,} boxes for this rule.")
            if isinstance(node, int):
                half = radius.copy()
                half[node] *= 0.5
                for side in (1.0, -1.0):
                    middle = centre.copy()
                    middle[node] += side * half[node]
                    waiting.append((middle, half, rows, sums, in_vain))
        return nodes

    def _classify(
        self, centre: FloatArray, radius: FloatArray, rows: NDArray[np.intp], sums: FloatArray
    ) -> tuple[NDArray[np.intp], FloatArray]:
        """Return the rows that are open in a box, and the exact sums of those that are surely 1."""
        planes = self.planes[rows]
        value, reach = planes @ centre, np.abs(planes) @ radius
        opened, on = np.abs(value) < reach, value >= reach
        unsure = np.flatnonzero(np.abs(np.abs(value) - reach) <= ROUNDING * (np.abs(planes) @ np.abs(centre) + reach))
        middle, half = [Fraction(c) for c in centre.tolist()], [Fraction(r) for r in radius.tolist()]
        for i in unsure.tolist():
            row = [Fraction(v) for v in planes[i].tolist()]
            exact = sum((v * c for v, c in zip(row, middle, strict=True)), Fraction(0))
            size = sum((abs(v) * r for v, r in zip(row, half, strict=True)), Fraction(0))
            opened[i], on[i] = abs(exact) < size, exact >= size
        return rows[opened], sums + self.table[rows[on]].sum(axis=0)

    def _reason(
        self, centre: FloatArray, radius: FloatArray, rows: NDArray[np.intp], sums: FloatArray, *, few: bool
    ) -> Node:
        """Return the reason why a box is not halved, or the side along which it is halved.

        ``few`` means that its rows may meet in a point, so that halving does not reduce their number.
        """
        table = self.table[rows]
        bound = self._bound(centre, table, sums)
        if bound is not None:
            return bound
        small = radius.max() < SMALL
        if len(rows) <= (MOST_OPEN_IN_CELLS if few or small else OPEN_IN_CELLS):
            return ["cells"]
        if small:
            raise InputError(
                f"The boundaries of {len(rows):,} rows meet in nearly one point: there is no certificate for this rule."
            )
        parts = np.abs(self.planes[rows]) * radius
        return int(np.argmax((parts / parts.sum(axis=1, keepdims=True)).sum(axis=0)))

    def _bound(self, centre: FloatArray, table: FloatArray, sums: FloatArray) -> list[Any] | None:
        """Return multipliers that prove that a box has no better feasible rule, if some are found."""
        n_constraints = table.shape[1] - 1
        low, high = np.minimum(table[:, 1:], 0.0).sum(axis=0), np.maximum(table[:, 1:], 0.0).sum(axis=0)
        for c in range(n_constraints):
            above, below = sums[1 + c] + low[c] > self.upper[c], sums[1 + c] + high[c] < self.lower[c]
            if above or below:
                multipliers = (1.0 if above else -1.0) * np.eye(n_constraints)[c]
                if self._excess(0, multipliers, table, sums)[0] < 0.0:
                    return ["bound", 0, multipliers.tolist()]
        for start in self._starts(centre, n_constraints):
            multipliers = start
            for _ in range(STEPS_OF_MULTIPLIERS):
                multipliers = self._allowed(multipliers)
                excess, slope = self._excess(1, multipliers, table, sums)
                if excess < 0.0:
                    return ["bound", 1, multipliers.tolist()]
                steepness = float(slope @ slope)
                if steepness == 0.0:
                    break
                multipliers = multipliers - (excess + self.quantum) / steepness * slope
        return None

    def _starts(self, centre: FloatArray, n_constraints: int) -> list[FloatArray]:
        """Return initial multipliers: none, and z at the centre if each contrast is a constraint."""
        found = [np.zeros(n_constraints)]
        if centre[0] > 1e-4 and n_constraints == len(centre) - 1:
            found.append(centre[1:] / centre[0])
        return found

    def _allowed(self, multipliers: FloatArray) -> FloatArray:
        """Return multipliers of few digits, without those of infinite bounds."""
        none = ((multipliers > 0.0) & ~np.isfinite(self.upper)) | ((multipliers < 0.0) & ~np.isfinite(self.lower))
        return np.array([0.0 if skip else float(f"{value:.6g}") for value, skip in zip(multipliers, none, strict=True)])

    def _excess(
        self, omega: int, multipliers: FloatArray, table: FloatArray, sums: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return by how much the bound of some multipliers exceeds its limit, and its gradient."""
        prices = omega * table[:, 0] - table[:, 1:] @ multipliers
        chosen = prices > 0.0
        bounds = np.where(multipliers > 0.0, self.upper, np.where(multipliers < 0.0, self.lower, 0.0))
        total = omega * sums[0] + float(multipliers @ (bounds - sums[1:])) + float(prices[chosen].sum())
        largest = omega * (self.sizes[0] + abs(self.offset))
        largest += float(np.abs(multipliers) @ (self.sizes[1:] + np.abs(bounds)))
        needed = omega * (self.known + self.quantum)
        return total + SPARE * largest - needed, bounds - sums[1:] - table[chosen, 1:].sum(axis=0)


def _quantum(gain: FloatArray) -> float:
    """Return the greatest common divisor of the gains: utilities differ by multiples of it."""
    fractions = [Fraction(value) for value in np.unique(np.abs(gain)).tolist() if value]
    denominator = math.lcm(*(f.denominator for f in fractions)) if fractions else 1
    return float(Fraction(math.gcd(*(int(f * denominator) for f in fractions)), denominator))
