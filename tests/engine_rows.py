"""Rows with strata, and a rule of them by an engine or in memory."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

import evenhand as eh
from evenhand.engines import arrow
from evenhand.engines import duckdb as duck
from scored_rows import JOINT, draw

JOBS = ("clerk", "it's", "nurse")


def with_jobs(n, seed=0):
    """Return rows with a column of strata as text, and one as numbers."""
    table = draw(n, seed)
    job = (np.arange(n) * 7) % 3
    table = table.append_column("job", pa.array(np.array(JOBS)[job]))
    return table.append_column("floor", pa.array(job + 1))


def arrays_of(table):
    arrays = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    return arrays, np.column_stack([arrays[name] for name in JOINT.values()]).reshape(-1, 2, 2)


def in_memory(table, *, sample_weight=None, **options):
    arrays, joint = arrays_of(table)
    weight = None if sample_weight is None else arrays[sample_weight]
    strata = {name: arrays[name] for name in eh.rules.criteria.resolve(options["criterion"]).strata} or None
    given = arrays["y"], {"sex": arrays["sex"]}, arrays["p"], joint
    return eh.learn_rule(*given, sample_weight=weight, strata=strata, **options)


def learn_by(name, table, **options):
    if name == "arrow":
        return arrow.learn_rule(table, **options)
    return duck.learn_rule(duckdb.connect().from_arrow(table), **options)
