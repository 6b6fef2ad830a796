"""What sites have in common when they count around a rule: its contrast, and numbers for labels and groups."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.engines.ground import LinearScores
from evenhand.engines.learning import check_plain
from evenhand.engines.line import Breakpoints
from evenhand.engines.schema import Columns, Frame, Schema
from evenhand.errors import InputError
from evenhand.rules import scores
from evenhand.rules.rule import Rule, check_rule
from evenhand.rules.setting import Options
from evenhand.rules.strata import check_unstratified

# Half of the bins are within this part of a step of the first round's cells.
STEPS = 0.5
USUAL_STEP = 2.0**-7
MOST_CONTRASTS = 2


@dataclass(frozen=True, eq=False)
class Site:
    """The contrast of a rule, and numbers for labels and groups that are the same at every site."""

    schema: Schema
    rule: Rule

    @property
    def _fields(self) -> dict[str, int]:
        return {"label": 4, **{f"a{k}": len(groups) + 2 for k, (_, groups) in enumerate(self.schema.observed)}}

    @property
    def n_codes(self) -> int:
        """How many combinations of label and groups there may be."""
        return math.prod(self._fields.values())

    def code_text(self) -> str:
        """Return the number of a row's combination of label and groups as SQL."""
        text = "0"
        for name, size in self._fields.items():
            text = f"({text} * {size} + CAST({name} AS BIGINT))"
        return text

    def codes_of(self, frame: Frame) -> NDArray[np.int64]:
        """Return what :meth:`code_text` computes."""
        found = np.zeros(len(frame["s0"]), dtype=np.int64)
        for name, size in self._fields.items():
            found = found * size + frame[name].astype(np.int64)
        return found

    def fields_of(self, codes: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return the label and the groups of some numbers."""
        found = {}
        for name, size in reversed(self._fields.items()):
            codes, found[name] = np.divmod(codes, size)
        return found

    def empty(self, places: int, weighted: bool) -> NDArray[Any]:
        """Return space for the weight of each code at each of some places."""
        return np.zeros(places * self.n_codes)

    @property
    def dimension(self) -> int:
        """K, the number of contrasts."""
        return len(self.rule.terms)

    @cached_property
    def linear(self) -> LinearScores:
        """The contrasts as linear expressions of the scores."""
        rule, names = self.rule, dict(zip((e.attribute for e in self.schema.scored), self.schema.names, strict=True))
        joint = {entry.attribute: entry.joint for entry in self.schema.scored}
        used = tuple(name for attribute in rule.attributes for name in names[attribute])
        weights, sizes, constant = (np.zeros((len(rule.terms), width)) for width in (len(used), len(used), 2))
        for k, term in enumerate(rule.terms):
            for event, prior, coefficient in zip(rule.events, rule.priors, term.coefficients, strict=True):
                if event.attribute is None:
                    constant[k] += np.array([coefficient, abs(coefficient)]) / prior
                    continue
                for column in scores.event_columns(event, rule.groups, joint=joint[event.attribute]):
                    place = used.index(names[event.attribute][column])
                    weights[k, place] += coefficient / prior
                    sizes[k, place] += abs(coefficient) / prior
        return LinearScores(used, weights, constant[:, 0], sizes, constant[:, 1], rule.costs)


def within_of(rule: Rule) -> float:
    """Return how far from a rule bins are fine."""
    cells = rule.learned_from.get("quantisation")
    step = cells.get("step") if isinstance(cells, dict) else None
    return STEPS * (step if isinstance(step, float) and 0.0 < step < 1.0 else USUAL_STEP)


def tally_of(site: Site, weighted: bool) -> Breakpoints:
    """Return the tally of breakpoints around a site's rule."""
    return Breakpoints(site, weighted, float(site.rule.z[0]), within_of(site.rule))


def check_near(rule: Rule) -> None:
    """Raise :class:`InputError` if rows cannot be counted around a rule."""
    check_rule(rule)
    if rule.criterion is None or rule.tolerance is None:
        raise InputError("near must be a rule with a criterion and a tolerance; this one has none.")
    check_unstratified(rule.strata, "A second round", "learn in memory, with evenhand.learn_rule")
    check_plain(Options(criterion=rule.criterion, costs=rule.costs))
    if not 1 <= len(rule.terms) <= MOST_CONTRASTS:
        raise InputError(
            f"near must be a rule with one or two contrasts (K = 1 or 2), such as demographic parity of two or three"
            f" groups or equalized odds of two; this one has {len(rule.terms)}. Use finer cells for it:"
            " aggregate(..., level=12, max_cells=...)."
        )


def columns_near(columns: Columns, rule: Rule) -> Columns:
    """Return columns with the labels and groups of a rule, which are the same at every site."""
    schema = columns.schema
    names = [name for name, _ in schema.observed]
    for name in rule.attributes:
        if name not in names or name not in {entry.attribute for entry in schema.scored}:
            raise InputError(f"The rule that is near compares groups of {name!r}: name its column and its scores.")
    observed = tuple((name, tuple(rule.groups.get(name, groups))) for name, groups in schema.observed)
    negative, positive = rule.classes
    return dataclasses.replace(
        columns, schema=dataclasses.replace(schema, classes=(negative, positive), observed=observed)
    )
