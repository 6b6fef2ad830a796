"""The second round of counts, around a rule: counts that add, rules with exact numbers, bounds that hold."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.engines import NearAggregate, arrow, line, near, near_file
from evenhand.engines import duckdb as duck
from evenhand.engines import spark as sparks
from evenhand.errors import AggregateFormatError, InfeasibleError, InputError
from scored_rows import draw

DP = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"F": "f", "M": None}}


def first_round(table, level=5, tolerance=0.03, **names):
    return arrow.aggregate(table, level=level, **{**DP, **names}).learn_rule("demographic_parity", tolerance)


def in_memory(table, weight=None, **options):
    f = table["f"].to_numpy()
    sex, y = table["sex"].to_numpy(zero_copy_only=False), table["y"].to_numpy()
    given = None if weight is None else table[weight].to_numpy()
    return eh.learn_rule(y, sex, table["p"].to_numpy(), np.column_stack([f, 1 - f]), sample_weight=given, **options)


def counted(rule, table, weight=None):
    """Return the accuracy and the gap of a rule on the rows themselves."""
    f, y = table["f"].to_numpy(), table["y"].to_numpy()
    given = np.ones(len(y)) if weight is None else table[weight].to_numpy()
    decided = rule.decide(table["p"].to_numpy(), np.column_stack([f, 1 - f]))
    women = table["sex"].to_numpy(zero_copy_only=False) == "F"
    rates = [np.average(decided[group], weights=given[group]) for group in (women, ~women)]
    return np.average(decided == y, weights=given), rates[0] - rates[1]


@pytest.mark.parametrize("weight", [None, "w"])
def test_counts_around_a_rule_add_and_are_the_same_in_each_engine(weight):
    table = draw(3000, seed=4)
    names = {**DP, "sample_weight": weight}
    rule = first_round(table, sample_weight=weight)
    whole = arrow.aggregate(table, near=rule, **names)
    parts = [arrow.aggregate(table.slice(start, 1000), near=rule, **names) for start in (0, 1000, 2000)]
    together = sum(parts)
    assert together.n_rows == whole.n_rows == 3000
    assert (together.places == whole.places).all()
    assert (together.codes == whole.codes).all()
    np.testing.assert_allclose(together.weight, whole.weight)
    assert together.learn_rule().z == pytest.approx(whole.learn_rule().z)
    other = duck.aggregate(duckdb.connect().from_arrow(table), near=rule, **names)
    assert other.n_rows == 3000
    np.testing.assert_allclose(other.weight.sum(), whole.weight.sum())
    assert other.learn_rule().solution_.utility == pytest.approx(whole.learn_rule().solution_.utility, abs=1e-12)


def test_spark_counts_around_a_rule_as_arrow_does(spark):
    table = draw(1500, seed=5)
    rule = first_round(table)
    found, expected = (
        engine.aggregate(data, near=rule, **DP)
        for engine, data in ((sparks, spark.createDataFrame(table)), (arrow, table))
    )
    assert found.n_rows == expected.n_rows
    assert (found.places == expected.places).all()
    assert (found.weight == expected.weight).all()


@pytest.mark.parametrize("bins", [64, 1024])
def test_no_rule_is_better_than_the_bound_of_the_second_round(bins, monkeypatch):
    for module in (line, near, near_file):
        monkeypatch.setattr(module, "BINS", bins)
    losses, bounds = [], []
    for seed in range(12):
        table = draw(600, seed=seed)
        options = {"tolerance": [0.02, 0.05, 0.1][seed % 3]}
        weight = "w" if seed % 2 else None
        if seed % 4 == 3:  # scores that many rows share
            table = table.set_column(table.column_names.index("p"), "p", pa.array(np.round(table["p"].to_numpy(), 1)))
        rule = first_round(table, 3 + seed % 4, sample_weight=weight, **options)
        sites = [table.slice(0, 250), table.slice(250)]
        found = sum(arrow.aggregate(site, near=rule, **DP, sample_weight=weight) for site in sites).learn_rule()
        best = in_memory(table, weight, **options).solution_.utility
        accuracy, gap = counted(found, table, weight)
        assert found.solution_.utility == pytest.approx(accuracy, abs=1e-12)
        assert abs(gap) <= options["tolerance"] + 1e-12
        assert abs(found.solution_.values[0]) == pytest.approx(abs(gap), abs=1e-12)
        assert found.solution_.utility - 1e-12 <= best <= found.solution_.upper_bound + 1e-12
        assert (found.solution_.status == "optimal") == (found.solution_.gap == 0.0)
        losses.append(best - accuracy)
        bounds.append(found.solution_.gap)
    assert max(losses) > 0.0
    assert np.mean(bounds) > 0.0


def test_the_bound_is_within_ten_times_the_loss_of_rows_like_those_of_the_benchmark(monkeypatch):
    # As many rows in a bin as 60 million have in the bins of the benchmark.
    for module in (line, near, near_file):
        monkeypatch.setattr(module, "BINS", 2048)
    losses, bounds, coarse = [], [], []
    for seed in range(6):
        table = draw(40_000, seed=100 + seed)
        rule = first_round(table, 7, 0.02)
        found = arrow.aggregate(table, near=rule, **DP).learn_rule()
        losses.append(in_memory(table, tolerance=0.02).solution_.utility - found.solution_.utility)
        bounds.append(found.solution_.gap)
        coarse.append(rule.learned_from["quantisation"]["utility_error"])
    assert 0.0 < np.mean(losses) <= np.mean(bounds) <= 10.0 * np.mean(losses)
    assert np.mean(bounds) < 0.05 * np.mean(coarse)


def test_counts_around_a_rule_are_saved_and_loaded(tmp_path):
    table = draw(800, seed=6)
    rule = first_round(table)
    found = arrow.aggregate(table, near=rule, **DP)
    found.save(tmp_path / "near.parquet")
    loaded = NearAggregate.load(tmp_path / "near.parquet")
    assert loaded == found
    assert loaded.learn_rule() == found.learn_rule()
    assert "800 rows" in repr(loaded)
    assert hash(loaded) == hash(found)


def changed(path, *, column=None, **header):
    """Write a file again, with another header or column."""
    stored = pq.read_table(path)
    said = {**json.loads(stored.schema.metadata[b"evenhand"]), **header}
    if column is not None:
        name, values = column
        stored = stored.set_column(stored.column_names.index(name), name, pa.array(values))
    pq.write_table(stored.replace_schema_metadata({b"evenhand": json.dumps(said).encode()}), path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not that of counts"),
        ({"version": 9}, "version 9"),
        ({"bins": 8}, "8 bins"),
        ({"weighted": 1}, "whether rows have weights"),
        ({"rule": {}}, "cannot be read|not"),
        ({"atoms": {"words": [[0]], "weight": [-1.0], "rows": [1]}}, "invalid"),
        ({"atoms": {"words": [[63]], "weight": [1.0], "rows": [1]}}, "out of its range"),
        ({"atoms": {"words": [[4]], "weight": [1.0], "rows": [1]}}, "weight of its labels"),
        ({"column": ("weight", [-1.0])}, "out of its range"),
        ({"column": ("place", [-1])}, "out of its range"),
        ({"column": ("code", [10**6])}, "out of its range"),
    ],
)
def test_a_damaged_file_of_counts_is_refused(tmp_path, change, message):
    table, path = draw(300, seed=7), tmp_path / "near.parquet"
    arrow.aggregate(table, near=first_round(table), **DP).save(path)
    if "column" in change:
        name, (value,) = change["column"]
        stored = pq.read_table(path)
        values = stored[name].to_numpy().copy()
        values[0] = value
        change = {"column": (name, values)}
    changed(path, **change)
    with pytest.raises(AggregateFormatError, match=message):
        NearAggregate.load(path)
    with pytest.raises(InputError, match="no such file"):
        NearAggregate.load(tmp_path / "none.parquet")


def test_what_a_second_round_cannot_count_is_refused():
    table = draw(1000, seed=8)
    rule = first_round(table)
    with pytest.raises(InputError, match="criterion and a tolerance"):
        arrow.aggregate(table, near=eh.Rule(**{**vars(rule), "criterion": None, "tolerance": None}), **DP)
    with pytest.raises(InputError, match="name its column"):
        arrow.aggregate(table, near=rule, **{**DP, "sensitive_features": {"gender": "sex"}, "p_group": None})
    found = arrow.aggregate(table, near=rule, **DP)
    with pytest.raises(InputError, match="cannot be added"):
        found + arrow.aggregate(table, near=first_round(table, 4), **DP)
    with pytest.raises(TypeError):
        found + 1
    with pytest.raises(InputError, match="some sites are missing"):
        arrow.aggregate(table.slice(0, 500), near=rule, **DP).learn_rule()


def test_a_tolerance_that_no_edge_meets_is_an_error(monkeypatch):
    for module in (line, near, near_file):
        monkeypatch.setattr(module, "BINS", 4)
    table = draw(700, seed=1)
    rule = first_round(table, 6, 0.05)
    strict = eh.Rule(**{**vars(rule), "tolerance": 1e-5})
    with pytest.raises(InfeasibleError, match="No rule meets tolerance"):
        arrow.aggregate(table, near=strict, **DP).learn_rule()
