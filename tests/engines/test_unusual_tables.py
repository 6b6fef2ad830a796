"""Tables on which counts say less than usual: rows of weight 0, few different scores, contrasts that are rounding."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from engine_rows import arrays_of, in_memory
from evenhand.engines import NearAggregate, arrow, exclusion
from evenhand.engines import duckdb as duck
from evenhand.engines.ground import Atoms
from evenhand.engines.near_lines import lines_of_site
from evenhand.engines.opening import ALL_HASHES, Opening, merged_rows
from evenhand.engines.site import Site, columns_near, tally_of
from evenhand.engines.source import find_columns
from evenhand.errors import AggregateFormatError
from scored_rows import JOINT, NAMES, draw

ONE = {**NAMES, "p_group": {"F": "f", "M": None}}
KINDS = [("dp", ONE), ("eo", NAMES)]
pytestmark = pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")


def replaced(table, **columns):
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


def scores_of(rule, table):
    """Return what a rule is applied to: both probabilities, as it was learnt on."""
    arrays, joint = arrays_of(table)
    one = np.column_stack([arrays["f"], 1.0 - arrays["f"]])
    return arrays, one if len(rule.terms) == 1 else joint


def counted(rule, table, weight=None):
    """Return a rule's accuracy and its largest gap, counted on its own decisions."""
    arrays, groups = scores_of(rule, table)
    decided, y, sex = np.asarray(rule.decide(arrays["p"], groups)), arrays["y"], arrays["sex"]
    weight = np.ones(len(y)) if weight is None else arrays[weight]
    parts = [y == 0, y == 1] if len(rule.terms) == 2 else [np.ones(len(y), bool)]
    rates = [[np.average(decided[q & (sex == s)], weights=weight[q & (sex == s)]) for s in "FM"] for q in parts]
    return np.average(decided == y, weights=weight), max(abs(f - m) for f, m in rates)


def known_optimum(table, criterion, tolerance, weight=None):
    if criterion == "eo":
        return in_memory(table, criterion=criterion, tolerance=tolerance, sample_weight=weight).solution_
    arrays, _ = arrays_of(table)
    groups = np.column_stack([arrays["f"], 1.0 - arrays["f"]])
    weights = None if weight is None else arrays[weight]
    given = arrays["y"], {"sex": arrays["sex"]}, arrays["p"], groups
    return eh.learn_rule(*given, criterion=criterion, tolerance=tolerance, sample_weight=weights).solution_


def check_numbers(rule, table, optimum, tolerance, weight=None):
    """Check a rule's own numbers, its bounds, its upper bound, and that it is the optimum if it says so."""
    solution = rule.solution_
    utility, gap = counted(rule, table, weight)
    assert solution.utility == pytest.approx(utility, abs=1e-9)
    assert max(map(abs, solution.values)) == pytest.approx(gap, abs=1e-9)
    assert gap <= tolerance + 1e-9
    assert solution.upper_bound >= optimum.utility - 1e-9
    if solution.status == "optimal":
        assert solution.utility == pytest.approx(optimum.utility, abs=1e-9)


@pytest.mark.parametrize(("criterion", "columns"), KINDS)
@pytest.mark.parametrize("chosen", [False, True])
def test_rows_that_the_model_decides_alike_may_all_weigh_nothing(criterion, columns, chosen):
    table = draw(600, seed=3)
    arrays, _ = arrays_of(table)
    some = (arrays["y"] == 1) & (arrays["sex"] == "F") & ((arrays["p"] > 0.5) == chosen)
    table = replaced(table, w=np.where(some, 0.0, 1.0))
    optimum = known_optimum(table, criterion, 0.1, "w")
    options = {"criterion": criterion, "tolerance": 0.1, "sample_weight": "w", **columns}
    rule = arrow.learn_rule(table, max_in_memory=0, **options)
    assert rule.solution_.status == "optimal"
    check_numbers(rule, table, optimum, 0.1, "w")
    first = arrow.aggregate(table, level=6, sample_weight="w", **columns).learn_rule(criterion, 0.1)
    near = arrow.aggregate(table, near=first, sample_weight="w", **columns).learn_rule()
    check_numbers(near, table, optimum, 0.1, "w")


def test_a_rule_that_was_only_likely_does_not_make_the_model_itself_optimal(monkeypatch):
    real = exclusion.best_inside
    claims = []

    def optimistic(counts, boxes, seed):
        utility, place = real(counts, boxes, seed)
        claims.append(utility + 5.0 / counts.ground.n_rows)
        return claims[-1], place

    monkeypatch.setattr(exclusion, "best_inside", optimistic)
    for seed in range(4):
        table = draw(2000, seed=seed)
        arrays, _ = arrays_of(table)
        decided, y, sex = arrays["p"] > 0.5, arrays["y"], arrays["sex"]
        own = max(abs(np.subtract(*(decided[(y == k) & (sex == s)].mean() for s in "FM"))) for k in (0, 1))
        tolerance = float(own) + 1e-6
        rule = arrow.learn_rule(table, max_in_memory=0, criterion="eo", tolerance=tolerance, **NAMES)
        check_numbers(rule, table, known_optimum(table, "eo", tolerance), tolerance)
    assert claims


def with_base_rates(table, seed, share=0.004):
    """Return rows of which some have the groups' base rates as probabilities, up to rounding."""
    arrays, _ = arrays_of(table)
    rng = np.random.default_rng(seed)
    some, y, female = rng.random(len(table)) < share, arrays["y"], arrays["sex"] == "F"
    p = np.where(some, np.float32(0.5 + 0.4 * rng.random(len(table))), arrays["p"]).astype(float)
    negative, positive = female[y == 0].mean(), female[y == 1].mean()
    parts = [(1 - p) * negative, (1 - p) * (1 - negative), p * positive, p * (1 - positive)]
    joint = {
        name: np.where(some, np.float32(part), arrays[name]) for name, part in zip(JOINT.values(), parts, strict=True)
    }
    f = np.where(some, female.mean() * (1.0 + 1e-9), arrays["f"])
    return replaced(table, p=p, f=f, **joint), some


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("criterion", "columns"), KINDS)
def test_a_second_round_counts_rows_whose_contrasts_are_rounding(criterion, columns, seed):
    table, some = with_base_rates(draw(3000, seed=seed), seed)
    assert some.sum() > 5
    first = arrow.aggregate(table, level=5, **columns).learn_rule(criterion, 0.03)
    counts = arrow.aggregate(table, near=first, **columns)
    rule = counts.learn_rule()
    assert rule.learned_from["second_round"]["unsure"] == 0.0
    check_numbers(rule, table, known_optimum(table, criterion, 0.03), 0.03)


@pytest.mark.parametrize(("criterion", "columns"), KINDS)
def test_sql_places_rows_whose_contrasts_are_rounding_as_the_compiled_loops_do(criterion, columns):
    table, some = with_base_rates(draw(2000, seed=5), 5, share=0.05)
    first = arrow.aggregate(table, level=5, **columns).learn_rule(criterion, 0.05)
    source = duck.Table(table, ordered=True)
    found = columns_near(find_columns(source, **columns), first)
    site = Site(found.schema, first)
    tally = tally_of(site, False) if criterion == "dp" else lines_of_site(site, False)
    rows = source._inner(found)
    text = rows.project(f"{tally.place('duckdb')} AS place").fetchnumpy()["place"]
    frame = {name: np.asarray(column) for name, column in rows.fetchnumpy().items()}
    places = tally.places(frame)
    np.testing.assert_array_equal(np.asarray(text)[some], places[some])
    bits = 0 if criterion == "dp" else tally.bits
    apart = tally.grid.slots << bits if criterion == "eo" else 2 * 65536 + 3
    assert (places[some] >= apart).sum() > 20


@pytest.mark.parametrize(("criterion", "columns"), KINDS)
def test_a_file_whose_bins_have_other_labels_or_groups_is_refused(tmp_path, criterion, columns):
    table, path = draw(2000, seed=1), tmp_path / "near.parquet"
    first = arrow.aggregate(table, level=5, **columns).learn_rule(criterion, 0.05)
    counts = arrow.aggregate(table, near=first, **columns)
    counts.save(path)
    assert NearAggregate.load(path) == counts
    saved = pq.read_table(path)
    codes = saved["code"].to_numpy().copy()
    codes[::2] = codes[0]
    keys = saved["place"].to_numpy() * 1000 + codes
    kept, first_places, inverse = np.unique(keys, return_index=True, return_inverse=True)
    weight = np.bincount(inverse, saved["weight"].to_numpy(), len(kept))
    columns = [saved["place"].take(pa.array(first_places)), pa.array(codes[first_places]), pa.array(weight)]
    changed = pa.table(columns, schema=saved.schema)
    pq.write_table(changed, path)
    with pytest.raises(AggregateFormatError, match="do not have the weight of its labels and groups"):
        NearAggregate.load(path)


def few_scores(n, leaves, seed=0):
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet([1.5, 1.0, 1.0, 1.5], leaves)[rng.integers(0, leaves, n)]
    cell = (rng.random((n, 1)) > joint.cumsum(axis=1)[:, :3]).sum(axis=1)
    columns = {name: joint[:, k] for k, name in enumerate(JOINT.values())}
    rest = {"y": cell // 2, "sex": np.array(["F", "M"])[cell % 2], "w": rng.integers(0, 4, n) / 2}
    return pa.table({"p": joint[:, 2:].sum(axis=1), **columns, **rest})


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize(
    "options",
    [
        {"criterion": "eo", "tolerance": 0.2},
        {"criterion": eh.PredictiveParity(), "tolerance": 0.2},
        {"criterion": "dp", "tolerance": 0.2, "objective": "f1"},
        {"criterion": eh.MinimaxRate("error"), "tolerance": 0.05},
    ],
    ids=["eo", "pp", "f1", "minimax"],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_large_table_with_few_different_rows_is_learnt_from_in_memory(monkeypatch, options, weight, streamed):
    table = few_scores(30_000, 40)
    if not streamed:
        # As in Spark, where rows are counted on the cluster.
        monkeypatch.setattr(duck.Table, "frames", lambda self, columns: None)
    rule = duck.learn_rule(table, max_in_memory=0, sample_weight=weight, **options, **NAMES)
    known = in_memory(table, sample_weight=weight, **options)
    assert rule.solution_.status == known.solution_.status == "optimal"
    assert rule.solution_.utility == pytest.approx(known.solution_.utility, abs=1e-9)
    assert rule.learned_from["rows"] == 30_000
    assert rule.learned_from["rows_by_event"] == known.learned_from["rows_by_event"]
    reading = rule.learned_from["reading"]
    assert reading["passes"] == (1 if streamed else 3)
    assert reading["rows_brought_back"] <= 4 * 40


def test_the_sample_does_not_depend_on_the_order_of_rows_whether_or_not_they_are_merged():
    table = pa.concat_tables([few_scores(6000, 30), few_scores(9000, 9000, seed=1)])
    found = []
    for order in (np.arange(len(table)), np.arange(len(table))[::-1], np.random.default_rng(0).permutation(len(table))):
        source = duck.Table(table.take(pa.array(order)), ordered=True)
        columns = find_columns(source, **NAMES)
        atoms = Atoms(columns.schema, False)
        opening = Opening(columns, atoms, 2000)
        for frame in source.frames(columns):
            for start in range(0, len(table), 700):
                opening.add({name: column[start : start + 700] for name, column in frame.items()})
        assert not opening.complete
        assert 1 < opening._limit < ALL_HASHES
        found.append(opening.sample())
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].rows, other.rows)
        for name, column in found[0].frame.items():
            np.testing.assert_array_equal(column, other.frame[name])
    assert found[0].rows.max() > 1


def test_equal_rows_are_merged_also_where_different_ones_have_the_same_key():
    rng = np.random.default_rng(0)
    for distinct in (1, 3, 40):
        key, score, weight = rng.integers(0, distinct, 200), rng.integers(0, 3, 200) / 2, rng.integers(1, 4, 200) / 2
        parts = [
            (key[some], np.ones(len(some), dtype=np.int64), {"s0": score[some], "w": weight[some]})
            for some in (np.arange(120), np.arange(120, 200))
        ]
        keys, rows, frame = merged_rows(parts)
        found = {(k, s): (n, w) for k, s, n, w in zip(keys, frame["s0"], rows, frame["w"], strict=True)}
        assert len(found) == len(keys)
        pairs = list(zip(key, score, strict=True))
        expected = {one: [p == one for p in pairs] for one in set(pairs)}
        assert found == {one: (sum(mask), weight[mask].sum()) for one, mask in expected.items()}


def test_the_model_itself_is_found_where_no_rule_of_cells_meets_the_bounds():
    rng = np.random.default_rng(1)
    found = 0
    for seed in range(12):
        table = draw(1000, seed=seed)
        # Scores that say nothing about the rows.
        table = replaced(table, y=rng.integers(0, 2, 1000), sex=np.array(["F", "M"])[rng.integers(0, 2, 1000)])
        arrays, _ = arrays_of(table)
        decided, y, sex = arrays["p"] > 0.5, arrays["y"], arrays["sex"]
        own = max(abs(np.subtract(*(decided[(y == k) & (sex == s)].mean() for s in "FM"))) for k in (0, 1))
        options = {"criterion": "eo", "tolerance": float(own) + 1e-6, "search": "smoothed"}
        rule = arrow.learn_rule(table, max_in_memory=0, level=2, **options, **NAMES)
        utility, gap = counted(rule, table)
        assert gap <= options["tolerance"] + 1e-9
        assert rule.solution_.utility == pytest.approx(utility, abs=1e-9)
        found += not any(rule.z)
    assert found
