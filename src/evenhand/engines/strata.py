"""Strata of rows that do not fit in memory: each is learnt from its own rows, and the rules are combined.

One pass counts labels, groups, strata and the model's own decisions. Each stratum is then a table with a filter, which
is read into memory if it fits, and learnt from in the passes of :mod:`exact` otherwise. Where no bound involves two
strata, the best rules of the strata are the best rule of all (:mod:`evenhand.rules.joining`).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.engines.cells import CountedCells
from evenhand.engines.learning import rows_of
from evenhand.engines.schema import Columns
from evenhand.errors import EvenhandWarning, InputError
from evenhand.inputs import FloatArray
from evenhand.rows import Rows
from evenhand.rules.joining import in_each_stratum, in_order, join, stratum_of, texts_of
from evenhand.rules.rule import Rule
from evenhand.rules.setting import Options, Setting

Learn = Callable[[str, Hashable, int], Rule]


def without_strata(columns: Columns) -> Columns:
    """Return the columns of a table whose rows are in one stratum."""
    return dataclasses.replace(columns, schema=dataclasses.replace(columns.schema, strata=()))


def learn_in_strata(atoms: CountedCells, options: Options, tolerance: float, learn: Learn) -> Rule:
    """Return the best rule for all strata.

    Parameters
    ----------
    atoms : CountedCells
        The counts of labels, groups, strata and the model's own decisions.
    options : Options
        The options of learning.
    tolerance : float
        The tolerance.
    learn : callable
        Returns the rule of a stratum, given its column, its value and its number of rows.
    """
    chosen = atoms.schema.unpack(atoms.words, "s0") > 0
    setting = Setting.of(_varied(rows_of(atoms, options), chosen), options)
    if not setting.strata:
        raise InputError(
            "Strata of rows that do not fit in memory are learnt from one by one, but here they depend on each other: a"
            " bound involves several strata, there are two columns of strata, or the objective is an F score. Set a"
            " larger max_in_memory (rows times used columns), or give every part of the criterion the same within=."
        )

    texts = texts_of(setting)

    def learn_one(part: Setting) -> Rule:
        stratum = stratum_of(part)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            rule = learn(*stratum, part.rows.n_rows)
        for warning in said:
            warnings.warn(f"Within {texts[stratum]}: {warning.message}", EvenhandWarning, stacklevel=6)
        # The same events, in the same order, as seen from outside the stratum.
        return dataclasses.replace(rule, events=part.system.events, groups={**rule.groups, **part.groups})

    rules = in_each_stratum(setting, learn_one)
    joined = join(setting, rules, tolerance, counted=_sums(setting, rules))
    n = setting.rows.n_rows
    shares = zip(setting.system.names, setting.counted_priors, strict=True)
    notes: dict[str, Any] = {
        "rows": n,
        "rows_by_event": {name: round(float(share) * n) for name, share in shares},
    }
    readings = [rule.learned_from["reading"] for rule in rules if "reading" in rule.learned_from]
    if len(readings) == len(rules):
        total = {key: sum(reading[key] for reading in readings) for key in ("passes", "rows_brought_back")}
        notes["reading"] = {**total, "passes": total["passes"] + 1}
    return joined.noting(**notes)


def _varied(rows: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """Return atoms whose scores are the model's decisions, with rows of weight 0 so that these vary in each stratum."""
    firsts = {tuple(key): place for place, key in enumerate(zip(*(s.codes for s in rows.strata.values()), strict=True))}
    more = np.repeat(list(firsts.values()), 2)
    found = rows.take(np.concatenate([np.arange(len(rows)), more]))
    assert found.copies is not None
    weight, copies = found.weights.copy(), found.copies.copy()
    weight[len(rows) :], copies[len(rows) :] = 0.0, 0
    p_y = np.concatenate([chosen.astype(np.float64), np.tile([0.0, 1.0], len(firsts))])
    return dataclasses.replace(found, p_y=p_y, sample_weight=weight, copies=copies)


def _sums(setting: Setting, rules: list[Rule]) -> tuple[float, FloatArray]:
    """Return the utility and the values of the strata's rules together; other rows are decided by the model."""
    total = setting.rows.weights.sum()
    utility, offset = 0.0, setting.evidence.offset
    other = np.ones(len(setting.rows), dtype=bool)
    for part, rule in zip(setting.strata, rules, strict=True):
        share = float(part.rows.weights.sum() / total)
        utility += share * rule.solution_.utility
        offset -= share * part.evidence.offset
        name, value = stratum_of(part)
        column = setting.rows.strata[name]
        other &= column.codes != column.groups.index(value)
    if other.any():
        utility += offset + float(setting.evidence.gain[other & (setting.margins > 0.0)].sum())
    found = np.array(in_order(setting, [rule.solution_.values for rule in rules]))
    return utility, found if setting.system.levels else found - setting.system.shift
