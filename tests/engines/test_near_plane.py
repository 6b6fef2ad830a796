"""The second round of counts for two contrasts: counts that add, rules with exact numbers, bounds that hold."""

from __future__ import annotations

import dataclasses
import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.engines import NearAggregate, arrow, near_plane
from evenhand.engines import duckdb as duck
from evenhand.engines import spark as sparks
from evenhand.engines._near_kernels import open_in_boxes
from evenhand.engines.distances import BINS, ROW
from evenhand.engines.near_lines import FineLines, lines_of_site
from evenhand.engines.site import Site
from evenhand.errors import AggregateFormatError, InfeasibleError, InputError
from scored_rows import NAMES, draw

REGIONS = {"north": "r0", "south": "r1", "west": "r2"}
KINDS = {
    "eo": NAMES,
    "dp": {"y": "y", "sensitive_features": "region", "p_y": "p", "p_group": REGIONS},
}


def first_round(table, kind="eo", level=5, tolerance=0.05, weight=None):
    return arrow.aggregate(table, level=level, **KINDS[kind], sample_weight=weight).learn_rule(kind, tolerance)


def scores(table, kind):
    columns = np.column_stack([table[name].to_numpy() for name in KINDS[kind]["p_group"].values()])
    return table["p"].to_numpy(), columns.reshape(-1, 2, 2) if kind == "eo" else columns


def in_memory(table, kind, tolerance, weight=None):
    groups = table[KINDS[kind]["sensitive_features"]].to_numpy(zero_copy_only=False)
    given_weight = None if weight is None else table[weight].to_numpy()
    return eh.learn_rule(
        table["y"].to_numpy(), groups, *scores(table, kind), criterion=kind, tolerance=tolerance,
        sample_weight=given_weight,
    )  # fmt: skip


def counted(rule, table, kind, weight=None):
    """Return the accuracy of a rule on the rows themselves, and its largest difference of rates."""
    y, groups = table["y"].to_numpy(), table[KINDS[kind]["sensitive_features"]].to_numpy(zero_copy_only=False)
    w = np.ones(len(y)) if weight is None else table[weight].to_numpy()
    decided = rule.decide(*scores(table, kind))
    parts = [y == label for label in (0, 1)] if kind == "eo" else [np.ones(len(y), dtype=bool)]
    worst = 0.0
    for part in parts:
        rates = [np.average(decided[part & (groups == g)], weights=w[part & (groups == g)]) for g in np.unique(groups)]
        worst = max(worst, max(rates) - min(rates))
    return np.average(decided == y, weights=w), worst


def is_between(found, best):
    solution = found.solution_
    return solution.utility - 1e-12 <= best.solution_.utility <= solution.upper_bound + 1e-12


@pytest.mark.parametrize("kind", ["eo", "dp"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_no_rule_is_better_than_the_bound_and_the_numbers_are_those_of_the_rows(kind, weight):
    gaps = []
    for seed in range(4):
        table, tolerance = draw(500, seed=seed), [0.02, 0.05, 0.1][seed % 3]
        if seed % 4 == 3:  # scores that many rows share
            table = table.set_column(table.column_names.index("p"), "p", pa.array(np.round(table["p"].to_numpy(), 1)))
        rule = first_round(table, kind, 3 + seed % 4, tolerance, weight)
        sites = [table.slice(0, 200), table.slice(200)]
        names = {**KINDS[kind], "sample_weight": weight}
        found = sum(arrow.aggregate(site, near=rule, **names) for site in sites).learn_rule()
        accuracy, gap = counted(found, table, kind, weight)
        assert found.solution_.utility == pytest.approx(accuracy, abs=1e-12)
        assert gap <= tolerance + 1e-9
        assert np.abs(found.solution_.values).max() == pytest.approx(gap, abs=1e-12)
        assert is_between(found, in_memory(table, kind, tolerance, weight))
        assert (found.solution_.status == "optimal") == (found.solution_.gap == 0.0)
        gaps.append(found.solution_.gap)
    assert min(gaps) == 0.0


@st.composite
def coarse_rows(draw_from):
    """Return few rows whose scores are often equal, on the boundary, or without contrast."""
    n = draw_from(st.integers(12, 60))
    rng = np.random.default_rng(draw_from(st.integers(0, 2**20)))
    parts = rng.integers(0, draw_from(st.integers(2, 6)), (n, 4)) + draw_from(st.sampled_from([0.0, 1e-3, 1.0]))
    parts[parts.sum(axis=1) == 0.0] = 1.0
    joint = parts / parts.sum(axis=1, keepdims=True)
    cell = np.concatenate([np.arange(8) % 4, rng.integers(0, 4, n - 8)])
    columns = dict(zip(NAMES["p_group"].values(), joint.T, strict=True))
    sex = np.array(["F", "M"])[cell % 2]
    return pa.table({"p": joint[:, 2:].sum(axis=1), **columns, "y": cell // 2, "sex": sex})


@settings(max_examples=15, deadline=None)
@given(coarse_rows(), st.sampled_from([0.0, 0.1, 0.3]), st.integers(2, 6))
def test_the_bound_holds_for_rows_on_the_boundary(table, tolerance, level):
    rule = eh.Rule(**{**vars(first_round(table, level=level, tolerance=1.0)), "tolerance": tolerance})
    counts = arrow.aggregate(table, near=rule, **NAMES)
    found, error = None, None
    try:
        found = counts.learn_rule()
    except InfeasibleError as raised:
        error = raised
    if found is None:
        assert error.smallest_tolerance > tolerance
        return
    assert is_between(found, in_memory(table, "eo", tolerance))
    assert found.solution_.utility == pytest.approx(counted(found, table, "eo")[0], abs=1e-12)


def test_the_gap_of_rows_like_those_of_the_benchmark_is_a_few_rows():
    table = draw(20_000, seed=100)
    rule = first_round(table, "eo", 5, 0.02)
    found = arrow.aggregate(table, near=rule, **NAMES).learn_rule()
    best = in_memory(table, "eo", 0.02)
    assert is_between(found, best)
    assert found.solution_.gap <= 2.0 / 20_000
    assert rule.learned_from["quantisation"]["utility_error"] > 100 * found.solution_.gap


@pytest.mark.parametrize("weight", [None, "w"])
def test_counts_of_lines_add_and_are_the_same_in_each_engine(weight):
    table = draw(3000, seed=4)
    names = {**NAMES, "sample_weight": weight}
    rule = first_round(table, weight=weight)
    whole = arrow.aggregate(table, near=rule, **names)
    together = sum(arrow.aggregate(table.slice(start, 1000), near=rule, **names) for start in (0, 1000, 2000))
    assert together == whole
    assert together.learn_rule() == whole.learn_rule()
    assert duck.aggregate(duckdb.connect().from_arrow(table), near=rule, **names) == whole


def test_sql_has_the_places_that_numpy_has(spark):
    table = draw(1500, seed=5)
    rule = first_round(table)
    expected = arrow.aggregate(table, near=rule, **NAMES)
    assert sparks.aggregate(spark.createDataFrame(table), near=rule, **NAMES) == expected


def test_duckdb_computes_the_same_places_in_sql():
    table = draw(1500, seed=6)
    rule = first_round(table)
    found = arrow.aggregate(table, near=rule, **NAMES)
    site = Site(found.atoms.schema, rule)
    names = dict(zip(site.schema.names[0], NAMES["p_group"].values(), strict=True))
    inner = table.select(["p", *names.values()]).rename_columns(["s0", *names])
    place = lines_of_site(site, False).place("duckdb")
    counts = duckdb.connect().from_arrow(inner).aggregate(f"{place} AS place, count(*)", place).fetchall()
    expected = np.unique(found.places, return_inverse=True)
    assert dict(counts) == dict(zip(expected[0].tolist(), np.bincount(expected[1], found.weight).tolist(), strict=True))


def test_a_third_round_is_around_the_rule_of_the_second():
    table = draw(4000, seed=9)
    rule = first_round(table, level=3, tolerance=0.02)
    second = arrow.aggregate(table, near=rule, **NAMES).learn_rule()
    third = arrow.aggregate(table, near=second, **NAMES).learn_rule()
    best = in_memory(table, "eo", 0.02)
    assert is_between(second, best)
    assert is_between(third, best)


def test_bins_that_hold_many_rows_give_a_bound_that_holds(monkeypatch):
    monkeypatch.setattr("evenhand.engines.near_lines.MOST_BITS", 0)
    monkeypatch.setattr(near_plane, "MOST_WORK", 20_000)
    for seed in range(4):
        table = draw(2000, seed=seed)
        found = arrow.aggregate(table, near=first_round(table), **NAMES).learn_rule()
        assert is_between(found, in_memory(table, "eo", 0.05))
        assert found.solution_.gap > 0.0


def test_lines_are_saved_and_loaded(tmp_path):
    table, path = draw(800, seed=6), tmp_path / "near.parquet"
    found = arrow.aggregate(table, near=first_round(table), **NAMES)
    found.save(path)
    loaded = NearAggregate.load(path)
    assert loaded == found
    assert loaded.learn_rule() == found.learn_rule()
    stored = pq.read_table(path)
    header = json.loads(stored.schema.metadata[b"evenhand"])
    assert header["version"] == 3
    # Earlier versions have fewer places, which mean the same.
    earlier = {b"evenhand": json.dumps({**header, "version": 2}).encode()}
    pq.write_table(stored.replace_schema_metadata(earlier), path)
    assert NearAggregate.load(path) == found


def beyond_the_bins(places, bits):
    """Return places with the one after the last bin of a direction, where no row can be."""
    return np.concatenate([places[:-1], [places[-1] - places[-1] % (ROW << bits) + (BINS << bits)]])


def finer_than_far_bins(places, bits):
    """Return places with bits of a fine bin where bins are not fine."""
    return np.concatenate([[places[0] + 1], places[1:]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bins": 8}, "8 bins"),
        ({"directions": 4}, "4 directions"),
        ({"finer": [1, 1]}, "finer"),
        ({"place": lambda places, bits: np.concatenate([[-1], places[1:]])}, "out of its range"),
        ({"place": lambda places, bits: np.concatenate([places[:-1], [1 << 60]])}, "out of its range"),
        ({"place": beyond_the_bins}, "out of its range"),
        ({"place": finer_than_far_bins}, "out of its range"),
        ({"place": lambda places, bits: places[::-1].copy()}, "not in order"),
        ({"place": lambda places, bits: (places >> bits).astype(np.int32)}, "columns are not"),
    ],
)
def test_a_damaged_file_of_lines_is_refused(tmp_path, change, message):
    table, path = draw(300, seed=7), tmp_path / "near.parquet"
    found = arrow.aggregate(table, near=first_round(table), **NAMES)
    found.save(path)
    stored = pq.read_table(path)
    said = json.loads(stored.schema.metadata[b"evenhand"])
    if "place" in change:
        bits = lines_of_site(Site(found.atoms.schema, found.rule), False).bits
        stored = stored.set_column(0, "place", pa.array(change["place"](found.places, bits)))
    else:
        said |= change
    pq.write_table(stored.replace_schema_metadata({b"evenhand": json.dumps(said).encode()}), path)
    with pytest.raises(AggregateFormatError, match=message):
        NearAggregate.load(path)


def test_rules_with_three_contrasts_are_refused_by_name():
    table = draw(600, seed=8)
    names = {
        "y": "y", "sensitive_features": ["sex", "region"], "p_y": "p",
        "p_group": {"sex": NAMES["p_group"], "region": REGIONS},
    }  # fmt: skip
    cells = arrow.aggregate(table, level=3, **names)
    rule = cells.learn_rule("demographic_parity", 0.3)
    assert len(rule.terms) == 3
    with pytest.raises(InputError, match=r"one or two contrasts .* this one has 3"):
        arrow.aggregate(table, near=rule, **names)


def test_a_tolerance_that_no_rule_meets_is_an_error():
    table = draw(400, seed=1)
    strict = eh.Rule(**{**vars(first_round(table)), "tolerance": 1e-9})
    with pytest.raises(InfeasibleError, match="No rule meets tolerance 1e-09") as caught:
        arrow.aggregate(table, near=strict, **NAMES).learn_rule()
    assert caught.value.smallest_tolerance > 1e-9


def test_some_sites_must_not_be_missing():
    table = draw(1000, seed=8)
    with pytest.raises(InputError, match="some sites are missing"):
        arrow.aggregate(table.slice(0, 500), near=first_round(table), **NAMES).learn_rule()


def test_the_lines_of_a_bin_are_those_of_its_rows():
    table = draw(2000, seed=3)
    found = arrow.aggregate(table, near=first_round(table), **NAMES)
    tally = lines_of_site(Site(found.atoms.schema, found.rule), False)
    assert isinstance(tally, FineLines)
    names = dict(zip(tally.ground.linear.names, NAMES["p_group"].values(), strict=True))
    frame = {"s0": table["p"].to_numpy(), **{inner: table[name].to_numpy() for inner, name in names.items()}}
    linear = tally.ground.linear.along(tally.view.axes)
    contrasts = np.column_stack([frame[name] for name in linear.names]) @ linear.weights.T + linear.constant
    level = 2.0 * frame["s0"] - 1.0 - contrasts @ tally.view.origin
    size = np.abs(contrasts).max(axis=1)
    lines = tally.lines_of(tally.places(frame))
    scaled, distance = contrasts / size[:, None], level / size
    assert (lines[:, 4] - 1e-9 <= distance).all()
    assert (distance <= lines[:, 5] + 1e-9).all()
    assert (np.abs(scaled[:, 1] - lines[:, 1]) <= lines[:, 2] + 1e-9).all()
    assert (np.abs(scaled[:, 0] - lines[:, 0]) <= lines[:, 3] + 1e-9).all()


@pytest.mark.parametrize("bits", [0, 12])
def test_what_counts_say_about_a_box_holds_for_every_rule_in_it(bits, monkeypatch):
    for name in ("FEWEST_BITS", "MOST_BITS"):
        monkeypatch.setattr(f"evenhand.engines.near_lines.{name}", bits)
    table, rng = draw(2000, seed=11), np.random.default_rng(0)
    found = arrow.aggregate(table, near=first_round(table), **NAMES)
    site = Site(found.atoms.schema, found.rule)
    tally = lines_of_site(site, False)
    lines, n = tally.lines_of(found.places), len(found.places)
    assert (found.places >> tally.bits < tally.grid.places).all()
    middles, radii = rng.uniform(-3.0, 3.0, (60, 2)), 10.0 ** rng.uniform(-6.0, -0.5, (60, 2))
    sure, inside = np.zeros((60, 2, 1)), np.zeros((60, 2, 1))
    open_in_boxes(
        lines, np.zeros(n, dtype=np.int64), found.weight,
        (np.hstack([middles, radii]), np.zeros(60, dtype=np.int64)),
        (np.array([0, n]), np.arange(n, dtype=np.int32), np.zeros((1, 1))),
        np.empty(60 * n, dtype=np.int32), np.zeros(60, dtype=np.int64), sure, inside,
    )  # fmt: skip
    for box in range(60):
        for place in middles[box] + radii[box] * rng.uniform(-1.0, 1.0, (20, 2)):
            terms = zip(found.rule.terms, tally.view.at(place), strict=True)
            moved = tuple(dataclasses.replace(term, z=float(z)) for term, z in terms)
            on = dataclasses.replace(found.rule, terms=moved, solution=None).decide(*scores(table, "eo")).sum()
            assert sure[box, 0, 0] <= on <= sure[box].sum()
    assert (inside[:, 1] == 0.0).any()
    assert (sure[:, 1] < 2000).all()
