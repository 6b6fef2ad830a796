"""A second round of counts for two contrasts: rows by the lines that they are, finely around a rule.

A row turns along a line in the plane of z. Lines are counted by direction and distance from the rule, over the whole
plane (:mod:`distances`), and those that pass near the rule in finer bins. Where no line of any bin with rows can pass
through a place z, it is known how each row is decided there, so the numbers of this rule are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from evenhand.engines import _kernels
from evenhand.engines._near_kernels import MARGIN, place_fine_lines
from evenhand.engines.distances import BINS, HALF, ROW, Grid, Lines, View
from evenhand.engines.exclusion import FAR
from evenhand.engines.ground import Ground
from evenhand.engines.line import UNSURE_FROM
from evenhand.engines.reading import Reader
from evenhand.engines.schema import Frame
from evenhand.engines.site import Site, tally_of, within_of
from evenhand.inputs import FloatArray

# Contrasts this small against their terms, and rows whose level and contrasts are together this small, have a line that
# depends on the order of a sum.
UNSURE_TO, UNSURE_SIZE = 2.0**-20, 2.0**-21
# How much finer bins of distance are near the centre, in bits: then about one row turns in the bins that a place is in.
FEWEST_BITS, MOST_BITS, ROWS_WITHOUT = 3, 12, 14
# There are so many times as many fine bins of direction as of distance.
MORE_DIRECTIONS = 2
REACH = 2.0


@dataclass(frozen=True, eq=False)
class FineLines(Lines):
    """The tally of lines, with ``finer`` more bits of direction and distance for those that pass near the centre."""

    finer: tuple[int, int] = (4, 2)

    @property
    def bits(self) -> int:
        """How many bits of a place are about the fine bin."""
        return sum(self.finer)

    def valid(self, places: NDArray[np.int64]) -> bool:
        """Tell whether rows can have these places."""
        sub, coarse = places & ((1 << self.bits) - 1), places >> self.bits
        distance = coarse % ROW
        line = (coarse >= 0) & (coarse < self.grid.places) & (distance < BINS)
        near = line & (distance >= HALF // 2) & (distance < HALF + HALF // 2)
        apart = (coarse >= self.grid.places) & (coarse < self.grid.slots + 2)
        return bool(((line | apart) & (near | (sub == 0))).all())

    @cached_property
    def form(self) -> _kernels.Form:
        """The margin and the contrasts, along the axes."""
        return self.ground.linear.form(self.view.axes, UNSURE_FROM, UNSURE_TO)

    @property
    def _unsure(self) -> float:
        return UNSURE_SIZE * float(sum(self.ground.linear.costs))

    def places(self, frame: Frame) -> NDArray[np.int64]:
        """Return what :meth:`place` computes."""
        scores, n = self.scores.of(frame)
        places = np.empty(n, dtype=np.int64)
        grid = self.grid.directions, HALF, *self.finer, self._unsure, FAR
        place_fine_lines(scores, self.form, self.view.origin, grid, places)
        return places

    def place(self, dialect: str) -> str:
        """Return the SQL expression of a row's direction and distance, as one number."""
        g, sizes, size, level = self._texts(dialect)
        m, (one, two) = self.ground.linear.margin(dialect), self.finer
        sides, fine, larger = (self.grid.directions // 4) << one, HALF << two, f"abs({g[0]}) >= abs({g[1]})"
        share = f"CASE WHEN {larger} THEN {g[1]} / abs({g[0]}) ELSE {g[0]} / abs({g[1]}) END"
        side = (
            f"CASE WHEN {larger} THEN CASE WHEN {g[0]} < 0 THEN {sides} ELSE 0 END"
            f" WHEN {g[1]} < 0 THEN {3 * sides} ELSE {2 * sides} END"
        )
        unit = f"greatest(abs({g[0]}), abs({g[1]}))"
        direction = f"CAST(least(floor((({share}) + 1) * {0.5 * sides!r}), {sides - 1}) + {side} AS BIGINT)"
        distance = f"CAST(least(floor(({level} / ({unit} + abs({level})) + 1) * {fine}), {2 * fine - 1}) AS BIGINT)"
        whole = f"(({direction} - {direction} % {1 << one}) * {ROW << two} + ({distance} - {distance} % {1 << two})"
        whole += f" * {1 << one})"
        inside = f"{distance} BETWEEN {fine // 2} AND {fine + fine // 2 - 1}"
        sub = f"CASE WHEN {inside} THEN {direction} % {1 << one} * {1 << two} + {distance} % {1 << two} ELSE 0 END"
        never = " AND ".join(f"abs({a}) <= {UNSURE_FROM!r} * {all_}" for a, all_ in zip(g, sizes, strict=True))
        none, loose = (place << self.bits for place in (self.grid.never, self.grid.delicate))
        far = f"{FAR * (1.0 + MARGIN)!r} * {size} + {self._unsure!r}"
        return (
            f"CASE WHEN {never} THEN {none} + CASE WHEN {m} > {self.form.tie!r} THEN {1 << self.bits} ELSE 0 END"
            f" WHEN {size} <= {UNSURE_TO!r} * ({' + '.join(sizes)}) OR {size} + abs({level}) <= {self._unsure!r}"
            f" THEN {loose} + CASE WHEN {level} > {far} THEN {2 << self.bits} WHEN {level} < -({far})"
            f" THEN {1 << self.bits} ELSE 0 END ELSE {whole} + {sub} END"
        )

    def sure(self, places: NDArray[np.int64], codes: NDArray[np.int64], weight: FloatArray) -> FloatArray:
        """Return the weight of the delicate rows that are decided 0, and 1, wherever boxes are; of shape (2, codes)."""
        beyond, n_codes = (places >> self.bits) - self.grid.slots, self.ground.n_codes
        some = beyond >= 0
        found = np.bincount(beyond[some] * n_codes + codes[some], weight[some], 2 * n_codes)
        return found.reshape(2, n_codes).astype(np.float64)

    def lines_of(self, places: NDArray[np.int64]) -> FloatArray:
        """Return what is known about the lines of some places: see :func:`_near_kernels.open_in_boxes`."""
        one, two = self.finer
        sub, (direction, distance) = places & ((1 << self.bits) - 1), np.divmod(places >> self.bits, ROW)
        near = (distance >= HALF // 2) & (distance < HALF + HALF // 2)
        found = np.empty((len(places), 6))
        for some, (a, b) in ((near, (one, two)), (~near, (0, 0))):
            directions = (direction[some] << a) + ((sub[some] >> b) & ((1 << a) - 1))
            distances = (distance[some] << b) + (sub[some] & ((1 << b) - 1))
            found[some] = _known(self.grid.directions << a, directions, HALF << b, distances)
        return found


def _known(sides: int, directions: NDArray[np.int64], half: int, distances: NDArray[np.int64]) -> FloatArray:
    side, slope = np.divmod(directions, sides // 4)
    width = 4.0 / sides
    middle = (2 * slope + 1) * width - 1.0
    first = side < 2
    sign = np.where(side % 2 == 0, 1.0, -1.0)
    # What rounding does to a slope is far below this.
    widths = np.full(len(slope), width * (1.0 + 1e-6) + 1e-9)
    with np.errstate(divide="ignore"):
        low, high = (_distance(distances + k, half) for k in (0, 1))
    return np.column_stack(
        [
            np.where(first, sign, middle),
            np.where(first, middle, sign),
            np.where(first, widths, 0.0),
            np.where(first, 0.0, widths),
            low,
            high,
        ]
    )


def _distance(edge: NDArray[np.int64], half: int) -> FloatArray:
    """Return the distance at edges of bins."""
    share = edge / half - 1.0
    found: FloatArray = share / (1.0 - np.abs(share))
    return found


def lines_of_site(site: Site, weighted: bool, ground: Ground | None = None) -> FineLines:
    """Return the tally of lines around a site's rule; with a ground, the same one for learning."""
    rule = site.rule
    n_rows = rule.learned_from.get("rows")
    rows = n_rows if isinstance(n_rows, int) and n_rows > 0 else 1
    more = int(np.clip(rows.bit_length() - ROWS_WITHOUT, FEWEST_BITS, MOST_BITS))
    # The best rule of so many rows is about this far from that of all rows there could be.
    within = max(within_of(rule), REACH * rows ** (-1.0 / 3.0))
    view = View(np.array(rule.z, dtype=np.float64), within * np.eye(2))
    # A tally needs no more of a ground than a site has.
    coded = cast("Any", site) if ground is None else ground
    grid = Grid.of(rows)
    directions = (MORE_DIRECTIONS * BINS << more) // grid.directions
    return FineLines(coded, view, weighted, grid, finer=(directions.bit_length() - 1, more))


def counted_near(reader: Reader, site: Site) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the words of a site's rows around its rule, in order, and the weight of each."""
    if site.dimension == 1:
        dense = reader.count_dense(tally_of(site, reader.weighted))
        return np.flatnonzero(dense), dense[dense > 0.0]
    words, weight = reader.count(lines_of_site(site, reader.weighted))
    order = np.argsort(words[:, 0])
    order = order[weight[order] > 0.0]
    return words[order, 0], weight[order]
