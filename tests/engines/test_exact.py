"""Learning from the rows themselves: in memory, on the line, in the plane and around a rule."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.engines import arrow, keeping, line, plane, strip
from evenhand.engines import duckdb as duck
from evenhand.engines import spark as sparks
from evenhand.engines.gathering import Gatherer
from evenhand.engines.source import find_columns
from evenhand.engines.strip import pieces
from evenhand.errors import EvenhandWarning, InfeasibleError, InputError
from scored_rows import JOINT, NAMES, draw

DP = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"F": "f", "M": None}}
REGIONS = {"north": "r0", "south": "r1", "west": "r2"}
BOTH = {
    "y": "y", "sensitive_features": ["sex", "region"], "p_y": "p",
    "p_group": {"sex": {"F": "f", "M": None}, "region": REGIONS},
}  # fmt: skip


@pytest.fixture(params=["arrow", "duckdb", "spark"])
def engine(request):
    if request.param == "spark":
        session = request.getfixturevalue("spark")
        return lambda table, **options: sparks.learn_rule(session.createDataFrame(table), **options)
    if request.param == "duckdb":
        return lambda table, **options: duck.learn_rule(duckdb.connect().from_arrow(table), **options)
    return arrow.learn_rule


def with_columns(table, **columns):
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


def scores(table, names):
    """Return p_y and p_group of a table, as learn_rule takes them."""
    arrays = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    sex = np.column_stack([arrays["f"], 1 - arrays["f"]])
    if names is NAMES:
        return arrays, np.column_stack([arrays[name] for name in JOINT.values()]).reshape(-1, 2, 2)
    return arrays, sex if names is DP else {"sex": sex, "region": np.column_stack([arrays[f"r{k}"] for k in range(3)])}


def in_memory(table, names, *, sample_weight=None, **options):
    arrays, p_group = scores(table, names)
    groups = {"sex": arrays["sex"], "region": arrays["region"]} if names is BOTH else {"sex": arrays["sex"]}
    weight = None if sample_weight is None else arrays[sample_weight]
    return eh.learn_rule(arrays["y"], groups, arrays["p"], p_group, sample_weight=weight, **options)


def assert_same(rule, exact, table, names):
    arrays, p_group = scores(table, names)
    assert (rule.decide(arrays["p"], p_group) == exact.decide(arrays["p"], p_group)).all()
    assert rule.solution_.status == exact.solution_.status
    assert rule.solution_.utility == pytest.approx(exact.solution_.utility, abs=1e-12)
    assert rule.solution_.values == pytest.approx(exact.solution_.values, abs=1e-12)
    same = ("rows", "rows_by_event", "evidence")
    assert [rule.learned_from.get(key) for key in same] == [exact.learned_from.get(key) for key in same]
    assert ("safety" in rule.learned_from) == ("safety" in exact.learned_from)
    assert eh.Rule.from_json(rule.to_json()) == rule


@pytest.mark.parametrize(
    ("names", "options"),
    [(DP, {}), (NAMES, {"criterion": "eo", "tolerance": 0.02, "sample_weight": "w"}), (BOTH, {"tolerance": 0.04})],
    ids=["line", "plane", "beyond"],
)
def test_rows_that_fit_in_memory_give_the_rule_of_learn_rule(engine, names, options):
    table = draw(1500, seed=2)
    rule = engine(table, **names, **options)
    exact = in_memory(table, names, **options)
    assert (rule.z == exact.z).all()
    assert_same(rule, exact, table, names)
    assert rule.learned_from["reading"] == {"passes": 1, "rows_brought_back": 1500}


def on_the_line(case):
    """Return a table and options that are hard for a search along the line in some way."""
    table = draw(900, seed=5)
    p, f = table["p"].to_numpy(), table["f"].to_numpy()
    options = {"tolerance": 0.03}
    if case == "weights and costs":
        options |= {"sample_weight": "w", "costs": (1.0, 3.0)}
    elif case == "ties":
        table = with_columns(table, p=np.round(p * 8) / 8, f=np.round(f * 4) / 4)
    elif case == "rows without a breakpoint":
        # f is the share of F, so densities are equal and the contrast is rounding, of both signs.
        share = (table["sex"].to_numpy(zero_copy_only=False) == "F").mean()
        noise = np.where(np.arange(900) % 2, 1e-14, -1e-14) * (np.arange(900) % 5)
        table = with_columns(table, f=np.where(np.arange(900) % 3 == 0, share * (1 + noise), f))
    elif case == "far from zero":
        table = with_columns(table, f=0.4 + 1e-4 * f)
        options["tolerance"] = 0.01
    elif case == "zero is best":
        options["tolerance"] = 0.9
    elif case == "halves":
        table = with_columns(table, p=np.where(np.arange(900) % 4 == 0, 0.5, p))
        options["tolerance"] = 0.2
    return table, options


CASES = ["plain", "weights and costs", "ties", "rows without a breakpoint", "far from zero", "zero is best", "halves"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["arrow", "duckdb"])
def test_the_line_has_the_decisions_of_learn_rule_to_the_bit(name, case):
    table, options = on_the_line(case)
    learn = arrow.learn_rule if name == "arrow" else lambda t, **o: duck.learn_rule(duckdb.connect().from_arrow(t), **o)
    rule = learn(table, max_in_memory=0, **DP, **options)
    assert rule.learned_from["reading"]["passes"] == 3
    assert_same(rule, in_memory(table, DP, **options), table, DP)


def test_spark_walks_the_line_as_learn_rule_does(spark):
    for case in ("weights and costs", "rows without a breakpoint"):
        table, options = on_the_line(case)
        rule = sparks.learn_rule(spark.createDataFrame(table), max_in_memory=0, **DP, **options)
        assert_same(rule, in_memory(table, DP, **options), table, DP)


def test_safety_and_missing_groups_hold_on_the_line():
    table = draw(3000, seed=8)
    for safety in (0.5, 1.0):
        rule = arrow.learn_rule(table, max_in_memory=0, safety=safety, tolerance=0.1, **DP)
        assert_same(rule, in_memory(table, DP, safety=safety, tolerance=0.1), table, DP)
    ties = with_columns(table, p=np.round(table["p"].to_numpy() * 4) / 4, f=np.round(table["f"].to_numpy() * 2) / 2)
    with pytest.raises(InfeasibleError) as caught:
        in_memory(ties, DP, tolerance=0.0)
    options = {"safety": 3.0, "tolerance": 1.2 * caught.value.smallest_tolerance}
    with pytest.warns(EvenhandWarning, match="No rule meets tolerance .* with safety"):
        rule = arrow.learn_rule(ties, max_in_memory=0, **options, **DP)
    with pytest.warns(EvenhandWarning, match="No rule meets tolerance .* with safety"):
        assert_same(rule, in_memory(ties, DP, **options), ties, DP)
    assert rule.solution_.asked == rule.solution_.used
    names = {**DP, "sensitive_features": {"sex": "sex_or_null"}}
    rule = arrow.learn_rule(table, max_in_memory=0, missing="ignore", tolerance=0.02, **names)
    exact = arrow.learn_rule(table, missing="ignore", tolerance=0.02, **names)
    assert (rule.z == exact.z).all()
    assert rule.solution_.status == "optimal"


def test_a_tolerance_that_no_rule_on_the_line_meets_is_an_error():
    table = draw(700, seed=1)
    with pytest.raises(InfeasibleError, match="No rule meets tolerance 0 on these 700 rows") as caught:
        arrow.learn_rule(table, max_in_memory=0, tolerance=0.0, **DP)
    assert 0.0 < caught.value.smallest_tolerance < 0.01


def test_few_rows_are_brought_back_from_the_line():
    table = draw(50_000, seed=3)
    rule = arrow.learn_rule(table, max_in_memory=0, tolerance=0.03, **DP)
    assert rule.learned_from["reading"]["rows_brought_back"] < 500
    assert_same(rule, in_memory(table, DP, tolerance=0.03), table, DP)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_plane_has_the_optimum_of_learn_rule(seed):
    table = draw(20_000, seed=seed)
    if seed == 2:
        table = with_columns(table, p=table["p"].to_numpy() ** 1.5)  # scores that are not calibrated
    options = {"criterion": "eo", "tolerance": [0.03, 0.01, 0.05][seed], "sample_weight": "w" if seed else None}
    exact = in_memory(table, NAMES, **options)
    for learn in (arrow.learn_rule, lambda t, **o: duck.learn_rule(duckdb.connect().from_arrow(t), **o)):
        rule = learn(table, max_in_memory=135_000, **NAMES, **options)
        assert rule.solution_.status == "optimal"
        assert rule.solution_.utility == pytest.approx(exact.solution_.utility, abs=1e-12)
        assert rule.learned_from["reading"]["passes"] >= 2
        arrays, joint = scores(table, NAMES)
        weight = arrays["w"] if seed else None
        right = rule.decide(arrays["p"], joint) == arrays["y"]
        assert np.average(right, weights=weight) == pytest.approx(rule.solution_.utility, abs=1e-12)


def test_a_long_strip_of_the_plane_is_solved_in_pieces(monkeypatch):
    table, numbers = draw(20_000, seed=1), []

    def few(boxes, counts, most):
        found = pieces(boxes, counts, 1000)
        numbers.append(len(found))
        return found

    monkeypatch.setattr(plane, "pieces", few)
    options = {"criterion": "eo", "tolerance": 0.02}
    rule = arrow.learn_rule(table, max_in_memory=135_000, **NAMES, **options)
    assert max(numbers) > 1
    assert rule.learned_from["reading"]["passes"] >= 2 + numbers[-1]
    exact = in_memory(table, NAMES, **options)
    assert rule.solution_.status == "optimal"
    assert rule.solution_.utility == pytest.approx(exact.solution_.utility, abs=1e-12)


def test_rows_that_are_brought_back_are_counted_again_where_they_are_many(monkeypatch):
    monkeypatch.setattr(strip, "FEW_ROWS", 100)
    numbers, counted = [], strip._smaller_parts

    def parts(part, *known):
        found = counted(part, *known)
        numbers.append((len(part.raw), [len(one.raw) for one in found[0]]))
        return found

    monkeypatch.setattr(strip, "_smaller_parts", parts)
    table = draw(20_000, seed=7)
    for options in ({"tolerance": 0.02}, {"tolerance": 0.04, "sample_weight": "w"}):
        rule = arrow.learn_rule(table, max_in_memory=135_000, criterion="eo", **NAMES, **options)
        exact = in_memory(table, NAMES, criterion="eo", **options)
        assert rule.solution_.status == "optimal"
        assert rule.solution_.utility == pytest.approx(exact.solution_.utility, abs=1e-12)
    assert len(numbers) == 2
    assert all(max(parts) < whole for whole, parts in numbers)


@pytest.mark.parametrize("weight", [None, "w"])
def test_rows_kept_while_all_are_counted_need_no_third_pass(weight, monkeypatch):
    table = draw(40_000, seed=5)
    options = {"criterion": "eo", "tolerance": 0.03, "sample_weight": weight, "max_in_memory": 270_000, **NAMES}
    monkeypatch.setattr(keeping, "LARGEST", 32.0)  # few rows say little, so counts leave a large part of the plane
    rule = arrow.learn_rule(table, **options)
    assert rule.learned_from["reading"]["passes"] == 2
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    again = arrow.learn_rule(shuffled, **options)
    assert again.learned_from["reading"] == rule.learned_from["reading"]
    if weight is None:
        assert again.solution_.z == rule.solution_.z
    monkeypatch.setattr(keeping, "LARGEST", 2.0**-6)
    longer = arrow.learn_rule(table, **options)
    assert longer.learned_from["reading"]["passes"] == 3
    exact = in_memory(table, NAMES, criterion="eo", tolerance=0.03, sample_weight=weight)
    for found in (rule, again, longer):
        assert found.solution_.status == "optimal"
        assert found.solution_.utility == pytest.approx(exact.solution_.utility, abs=1e-12)


def test_where_the_model_is_best_in_the_plane_nothing_is_changed():
    table = draw(20_000, seed=1)
    rule = arrow.learn_rule(table, max_in_memory=135_000, criterion="eo", tolerance=0.9, **NAMES)
    assert rule.solution_.status == "optimal"
    exact = in_memory(table, NAMES, criterion="eo", tolerance=0.9)
    assert rule.solution_.utility == pytest.approx(exact.solution_.utility, abs=1e-12)


def test_spark_finds_the_optimum_of_the_plane(spark):
    table = draw(6000, seed=4)
    options = {"criterion": "eo", "tolerance": 0.03, **NAMES}
    rule = sparks.learn_rule(spark.createDataFrame(table), max_in_memory=36_000, **options)
    exact = arrow.learn_rule(table, **options)
    assert (rule.solution_.status, exact.solution_.status) == ("optimal", "optimal")
    assert rule.solution_.utility == pytest.approx(exact.solution_.utility, abs=1e-12)
    assert "reading" in rule.learned_from


def test_beyond_the_plane_a_rule_is_counted_on_all_rows():
    table = draw(30_000, seed=6)
    rule = duck.learn_rule(table, max_in_memory=100_000, tolerance=0.03, **BOTH)
    arrays, p_group = scores(table, BOTH)
    decisions = rule.decide(arrays["p"], p_group)
    assert rule.solution_.status == "found"
    assert rule.solution_.utility == pytest.approx((decisions == arrays["y"]).mean(), abs=1e-12)
    for attribute in ("sex", "region"):
        gap = eh.metrics.demographic_parity_difference(
            arrays["y"], decisions, sensitive_features=arrays[attribute]
        )  # fmt: skip
        assert gap <= 0.03 + 1e-12
    best = in_memory(table, BOTH, tolerance=0.03, search="smoothed")
    assert rule.solution_.utility >= best.solution_.utility - 2e-4
    assert rule.learned_from["reading"]["rows_brought_back"] < 30_000


def test_a_source_that_is_read_once_is_read_in_where_it_fits():
    table = draw(2000)
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=300))
    assert_same(arrow.learn_rule(reader, **DP), in_memory(table, DP), table, DP)
    odd = iter([table.to_batches()[0], draw(10).drop_columns(["w"]).to_batches()[0]])
    with pytest.raises(InputError, match="same columns"):
        arrow.learn_rule(odd, **DP)


def test_an_option_that_there_is_not_is_named_with_the_nearest_one():
    with pytest.raises(InputError, match=r"no option 'max_in_memry'.*max_in_memory"):
        arrow.learn_rule(draw(100), max_in_memry=5, **DP)


@pytest.mark.parametrize("value", [-1, 1.5, "all", None])
def test_what_is_read_in_is_a_whole_number(value):
    with pytest.raises(InputError, match="max_in_memory must be a whole number"):
        arrow.learn_rule(draw(100), max_in_memory=value, **DP)


@pytest.mark.parametrize(("names", "options"), [(DP, {}), (NAMES, {"criterion": "eo"})], ids=["line", "plane"])
def test_a_table_that_changes_between_passes_is_noticed(names, options):
    table, turns = draw(20_000, seed=3), []
    changed, last = table.slice(0, 10_000), 10**6

    def batches():
        turns.append(True)
        return iter((changed if len(turns) >= last else table).to_batches(max_chunksize=5000))

    arrow.learn_rule(batches, max_in_memory=70_000, tolerance=0.03, **names, **options)
    last, turns[:] = len(turns), []
    with pytest.raises(InputError, match="not the same in two passes"):
        arrow.learn_rule(batches, max_in_memory=70_000, tolerance=0.03, **names, **options)


def test_equal_rows_are_put_together_where_they_are_many():
    table = draw(40)
    columns = find_columns(arrow._Batches(table), **DP, sample_weight="w")
    frame = arrow._frame(table.to_batches()[0], columns)
    gatherer = Gatherer(columns, 40)
    for _ in range(10):
        assert gatherer.add(frame)
    found = gatherer.result()
    assert len(found) == 40
    assert found.n_rows == 400
    assert found.weight.sum() == pytest.approx(10 * table["w"].to_numpy().sum())
    small = Gatherer(columns, 15)
    assert not small.add(frame)
    assert small.result() is None


def test_rows_that_are_brought_back_come_in_one_order():
    table = draw(500, seed=9)
    table = with_columns(table, p=np.round(table["p"].to_numpy() * 5) / 5)
    columns = find_columns(arrow._Batches(table), **DP)
    frame = arrow._frame(table.to_batches()[0], columns)
    frames = []
    for order in (np.arange(500), np.random.default_rng(0).permutation(500)):
        gatherer = Gatherer(columns, 1000)
        gatherer.add({name: column[order] for name, column in frame.items()})
        frames.append(gatherer.result().sorted().frame)
    assert all((frames[0][name] == frames[1][name]).all() for name in frames[0])
    assert (np.diff(frames[0]["s0"]) >= 0).all()


class _Few:
    """A choice whose SQL condition leaves all rows, of which it wants a few; it counts those that it sees."""

    loose = True

    def __init__(self):
        self.seen = 0.0

    def where(self, dialect):
        return None

    def keep(self, frame):
        self.seen += frame["n"].sum() if "n" in frame else len(frame["s0"])
        return frame["s0"] > 0.9


def test_each_engine_looks_at_all_rows_that_a_condition_leaves_however_few_it_may_keep(spark):
    table = draw(3000, seed=4)
    sources = {
        "arrow": arrow._Batches(table),
        "duckdb": duck.Table(duckdb.connect().from_arrow(table)),
        "spark": sparks.Table(spark.createDataFrame(table)),
    }
    wanted = np.sort(table["p"].to_numpy()[table["p"].to_numpy() > 0.9])
    for name, source in sources.items():
        columns, choice = find_columns(source, **NAMES), _Few()
        found = source.rows(columns, choice, len(wanted) + 1, ordered=False)
        assert choice.seen == len(table), name
        assert np.sort(found.p_y) == pytest.approx(wanted, abs=0.0), name


@pytest.mark.parametrize("case", CASES)
def test_bins_that_many_rows_share_hide_no_better_rule(case, monkeypatch):
    monkeypatch.setattr(line, "BINS", 64)
    table, options = on_the_line(case)
    for learn in (arrow.learn_rule, duck.learn_rule):
        rule = learn(table, max_in_memory=0, **DP, **options)
        assert_same(rule, in_memory(table, DP, **options), table, DP)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"objective": "f1", "search": "smoothed"}, "objective='f1' needs"),
        (
            {"criterion": eh.MinimaxRate("selection"), "evidence": "both"},
            "A criterion whose level is searched for needs",
        ),
    ],
)
def test_what_needs_the_rows_in_memory_is_refused_for_larger_tables(asked, message):
    table, _ = on_the_line("plain")
    with pytest.raises(InputError, match=message):
        arrow.learn_rule(table, max_in_memory=0, **DP, **asked)
