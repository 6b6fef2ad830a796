"""Check a proof that a rule is optimal: ``python tools/check_certificate.py certificate.json rows.csv``.

This file needs only Python's standard library, and nothing of evenhand. All arithmetic is on integers and fractions: a
double is a fraction whose denominator is a power of two, so nothing is rounded.

The claim. Each row i has a margin m, contrasts g, a gain and effects. A rule z decides 1 where m - z.g > 0. Its utility
is offset + the gains of the rows decided 1, and its values are the sums of their effects. A rule is feasible if
lower - slack <= values <= upper + slack. The claim is that the rule z of the certificate has the stated utility and
values and is feasible, and that no feasible rule has a larger utility. All z on no row's plane are compared
{z : m = z.g}, however narrow their cell is, and z = 0.

The proof. A rule is also a point x = (t, w) with t > 0, z_k = w_k / (t scale_k), on the surface of a half-cube: 2 K + 1
faces. A face is a box. The certificate halves boxes, and each box that is not halved is resolved in one of two ways:

- "bound", with omega 0 or 1 and a multiplier for each constraint. In the box a row is surely 1, surely 0 or open. With
  S and T the sums of gain and effects over the rows surely 1 (S has the offset), every feasible rule in the box has
      omega U <= omega S - lambda.T + sum over open rows of (omega gain - lambda.effects)^+ + lambda.bounds,
  where a positive multiplier takes the upper bound and a negative one the lower bound. With omega = 1, the right side
  must be below the next utility above the claimed one: utilities are multiples of the gains' greatest common divisor.
  With omega = 0 it must be negative: then the box has no feasible rule.
- "cells": the open rows' planes cut the box into cells, each of which is a convex set with its corners. All are
  visited.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import sys
from fractions import Fraction
from pathlib import Path

SCHEMA = "evenhand-certificate/1"
MOST_OPEN_PLANES_IN_CELLS = 200


class Refused(Exception):  # noqa: N818
    """The reason why a claim is not confirmed."""


def exact(value, what):
    """Return a number as an exact fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Refused(f"{what} is not a number: {value!r}")
    try:
        return Fraction(value)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise Refused(f"{what} is not a finite number: {value!r}") from None


def common(fractions):
    """Return the least common denominator."""
    return math.lcm(*(f.denominator for f in fractions))


def whole(fractions, denominator):
    """Return fractions as integers over a common denominator."""
    return [int(f * denominator) for f in fractions]


class Claim:
    """The claim as exact numbers, and the rows as integers."""

    def __init__(self, certificate, table):
        if certificate.get("schema") != SCHEMA:
            raise Refused(f"the schema is not {SCHEMA}")
        claim = certificate["claim"]
        self.z = [exact(v, "z") for v in claim["z"]]
        self.k = len(self.z)
        if self.k not in (1, 2):
            raise Refused("a rule must have one or two numbers z")
        sides = claim["lower"], claim["upper"]
        self.c = len(claim["values"])
        if not all(isinstance(side, list) and len(side) == self.c for side in sides) or self.c == 0:
            raise Refused("lower, upper and values must have a number for each constraint")
        slack = exact(claim["slack"], "slack")
        if slack < 0:
            raise Refused("slack must not be negative")
        lower, upper = ([None if v is None else exact(v, "a bound") for v in side] for side in sides)
        scale = [exact(v, "scale") for v in claim["scale"]]
        if len(scale) != self.k or any(s <= 0 for s in scale):
            raise Refused("scale must have a positive number for each of z")
        rows = [[Fraction(float(v)) for v in row] for row in table]
        if len(rows) != claim["rows"] or any(len(row) != 2 + self.k + self.c for row in rows):
            raise Refused("the table does not have the rows and columns of the claim")
        # Gains, effects and bounds over one denominator; a row of scores over its own, which changes no sign.
        amounts = [row[1 + self.k :] for row in rows]
        offset, utility = exact(claim["offset"], "offset"), exact(claim["utility"], "utility")
        values = [exact(v, "a value") for v in claim["values"]]
        bounds = [b for b in (*lower, *upper) if b is not None]
        d = common([a for row in amounts for a in row] + [offset, utility, slack, *values, *bounds])
        self.amounts, self.values = [tuple(whole(row, d)) for row in amounts], whole(values, d)
        self.offset, self.utility = whole([offset, utility], d)
        self.lower = [None if v is None else int((v - slack) * d) for v in lower]
        self.upper = [None if v is None else int((v + slack) * d) for v in upper]
        self.step = math.gcd(*(row[0] for row in self.amounts)) or 1
        self.levels, self.own, planes = [], [], {}
        for row, amount in zip(rows, self.amounts, strict=True):
            m, g = row[0], row[1 : 1 + self.k]
            v = [m] + [-a / s for a, s in zip(g, scale, strict=True)]
            plane = whole(v, common(v))
            key = tuple(a // (math.gcd(*plane) or 1) for a in plane)  # rows on one plane get the same decision
            planes[key] = tuple(a + b for a, b in zip(planes.get(key, [0] * len(amount)), amount, strict=True))
            self.levels.append(m - sum(a * b for a, b in zip(g, self.z, strict=True)) > 0)
            self.own.append(m > 0)
        self.planes, self.totals = list(planes), list(planes.values())

    def feasible(self, values):
        """Return whether values meet the bounds."""
        return all(
            (low is None or v >= low) and (high is None or v <= high)
            for v, low, high in zip(values, self.lower, self.upper, strict=True)
        )

    def count(self, decisions):
        """Return the utility and the values of some decisions."""
        sums = [self.offset] + [0] * self.c
        for decided, row in zip(decisions, self.amounts, strict=True):
            if decided:
                sums = [a + b for a, b in zip(sums, row, strict=True)]
        return sums[0], sums[1:]

    def check_rule(self):
        """Raise unless the rule has the claimed utility and values and meets the bounds."""
        utility, values = self.count(self.levels)
        if utility != self.utility or values != self.values:
            raise Refused("the rule does not have the claimed utility and values")
        if not self.feasible(values):
            raise Refused("the rule violates its bounds")
        utility, values = self.count(self.own)
        if utility > self.utility and self.feasible(values):
            raise Refused("z = 0 is feasible and better")


def faces(k):
    """Return the faces of the half-cube, each as (lowest, highest) corner."""
    for axis in range(1, k + 1):
        for side in (-1, 1):
            low, high = [0] + [-1] * k, [1] * (k + 1)
            low[axis] = high[axis] = side
            yield low, high
    yield [1] + [-1] * k, [1] * (k + 1)


def classify(claim, low, high, rows, sums):
    """Return which of some rows are open in a box, and the sums with those that are surely 1."""
    centre = [a + b for a, b in zip(low, high, strict=True)]
    reach = [b - a for a, b in zip(low, high, strict=True)]
    planes, amounts, opened, sums = claim.planes, claim.totals, [], list(sums)
    for i in rows:
        value = size = 0
        for v, c, r in zip(planes[i], centre, reach, strict=True):
            value += v * c
            size += abs(v) * r
        if -size < value < size:
            opened.append(i)
        elif value > 0:
            for c, amount in enumerate(amounts[i]):
                sums[c] += amount
    return opened, sums


def check_bound(claim, node, opened, sums):
    """Raise unless the multipliers of a box prove that it has no better feasible rule."""
    omega, multipliers = node[1], [exact(v, "a multiplier") for v in node[2]]
    if omega not in (0, 1) or isinstance(omega, bool) or len(multipliers) != claim.c:
        raise Refused("a bound needs omega 0 or 1, and a multiplier for each constraint")
    d = common(multipliers)
    prices, weight = whole(multipliers, d), omega * d
    total, known = weight * sums[0], {}
    for price, t, low, high in zip(prices, sums[1:], claim.lower, claim.upper, strict=True):
        bound = high if price > 0 else low
        if price != 0 and bound is None:
            raise Refused("a multiplier belongs to an infinite bound")
        total += price * (bound - t) if price else 0
    for i in opened:
        row = claim.totals[i]
        if row not in known:
            known[row] = max(0, weight * row[0] - sum(p * e for p, e in zip(prices, row[1:], strict=True)))
        total += known[row]
    if total >= (weight * (claim.utility + claim.step) if omega else 0):
        raise Refused("a bound does not hold")


def corners(low, high):
    """Return the corners of a box in the order of its edge; two if it is a line."""
    a, *rest = (j for j in range(len(low)) if low[j] != high[j])
    turns = ([low, low], [high, low], [high, high], [low, high]) if rest else ([low], [high])
    found = [list(low) for _ in turns]
    for corner, turn in zip(found, turns, strict=True):
        for axis, side in zip((a, *rest), turn, strict=True):
            corner[axis] = side[axis]
    return found


def cut(cell, values):
    """Return the parts of a convex cell where a plane's values are positive and negative."""
    parts = [], []
    for i, (here, value) in enumerate(zip(cell, values, strict=True)):
        if value >= 0:
            parts[0].append(here)
        if value <= 0:
            parts[1].append(here)
        if len(cell) == 2 and i == 1:
            continue
        there, other = cell[(i + 1) % len(cell)], values[(i + 1) % len(cell)]
        if value * other < 0:
            point = [abs(other) * a + abs(value) * b for a, b in zip(here, there, strict=True)]
            shared = math.gcd(*point)
            for part in parts:
                part.append(tuple(a // shared for a in point))
    return parts


def check_cells(claim, low, high, opened, sums):
    """Raise if a cell of a box is feasible and better."""
    if len(opened) > MOST_OPEN_PLANES_IN_CELLS:
        raise Refused("too many rows are open in a box whose cells must be visited")
    cells = [(corners(low, high), sums)]
    for i in opened:
        found = []
        for cell, state in cells:
            values = [sum(v * x for v, x in zip(claim.planes[i], corner, strict=True)) for corner in cell]
            on = [a + b for a, b in zip(state, claim.totals[i], strict=True)]
            if max(values) > 0 > min(values):
                above, below = cut(cell, values)
                found += [(above, on), (below, state)]
            else:
                found.append((cell, on if max(values) > 0 else state))
        cells = found
    if any(state[0] > claim.utility and claim.feasible(state[1:]) for _, state in cells):
        raise Refused("a cell is feasible and better")


def check_face(claim, face, nodes):
    """Raise unless the nodes, each followed by its halves, cover all of a face; return how many there are."""
    waiting = [(*face, range(len(claim.planes)), [claim.offset] + [0] * claim.c)]
    used = 0
    while waiting:
        low, high, rows, sums = waiting.pop()
        if used == len(nodes):
            raise Refused("a box is left out")
        node, used = nodes[used], used + 1
        opened, sums = classify(claim, low, high, rows, sums)
        if isinstance(node, int) and not isinstance(node, bool):
            if not 0 <= node <= claim.k or low[node] == high[node]:
                raise Refused("a box is halved along a side that it does not have")
            low, high = [2 * a for a in low], [2 * a for a in high]
            middle = (low[node] + high[node]) // 2
            first, second = list(high), list(low)
            first[node] = second[node] = middle
            waiting += [(second, high, opened, sums), (low, first, opened, sums)]
        elif isinstance(node, list) and len(node) == 3 and node[0] == "bound":
            check_bound(claim, node, opened, sums)
        elif node == ["cells"]:
            check_cells(claim, low, high, opened, sums)
        else:
            raise Refused(f"a node is neither a side, a bound nor cells: {str(node)[:40]}")
    if used != len(nodes):
        raise Refused("there are more nodes than boxes")
    return used


def check(certificate, table):
    """Return what is confirmed, in words; raise Refused otherwise. ``table`` has a row of numbers for each row."""
    try:
        claim = Claim(certificate, table)
        claim.check_rule()
        given = certificate["faces"]
        if len(given) != 2 * claim.k + 1:
            raise Refused("the certificate must have a list of nodes for each face")
        boxes = sum(check_face(claim, face, nodes) for face, nodes in zip(faces(claim.k), given, strict=True))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ArithmeticError) as error:
        raise Refused(f"the certificate cannot be read: {type(error).__name__}: {error}") from error
    utility = float(Fraction(certificate["claim"]["utility"]))
    return f"{len(table):,} rows, {boxes:,} boxes: no feasible rule has a utility above {utility!r}, and z has it"


def main(arguments):
    """Check a certificate against a table of rows; return 0 if its claim is confirmed, 1 if it is refused."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        certificate, data = json.loads(Path(arguments[0]).read_text("utf-8")), Path(arguments[1]).read_bytes()
        if hashlib.sha256(data).hexdigest() != certificate["rows_sha256"]:
            raise Refused("this is not the table that the certificate was made for")
        table = list(csv.reader(data.decode("ascii").splitlines()))[1:]
        print("confirmed:", check(certificate, table))
    except (Refused, OSError, ValueError, KeyError, TypeError) as error:
        print(f"refused: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
