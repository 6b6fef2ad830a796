from __future__ import annotations

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.engines import arrow
from evenhand.engines import duckdb as duck
from evenhand.engines import spark as sparks
from evenhand.errors import EvenhandWarning, InfeasibleError, InputError
from scored_rows import HOSTILE, JOINT, NAMES, draw

DP = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"F": "f", "M": None}}
# A search that has no exact way out of core counts cells.
IN_CELLS = {"max_in_memory": 0, "search": "smoothed"}
ENGINES = {"arrow": arrow, "duckdb": duck, "spark": sparks}


@pytest.fixture(params=ENGINES)
def engine(request):
    """Return an engine, and a function that hands it a table in the form it reads."""
    if request.param == "spark":
        session = request.getfixturevalue("spark")
        return sparks, lambda table: session.createDataFrame(table)
    if request.param == "duckdb":
        connection = duckdb.connect()
        return duck, lambda table: connection.from_arrow(table)
    return arrow, lambda table: table


def arrays(table):
    columns = {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in table.column_names}
    joint = np.column_stack([columns[name] for name in JOINT.values()]).reshape(-1, 2, 2)
    return columns, joint


def read(result):
    """Return what an engine's apply gives as an Arrow table."""
    if hasattr(result, "read_all"):
        return result.read_all()
    return result.to_arrow_table() if isinstance(result, duckdb.DuckDBPyRelation) else result.toArrow()


def assert_as_good(rule, exact, decisions, y, groups, criterion, tolerance, weight=None):
    """The rule keeps the tolerance on the rows, reports what is counted there, and costs no more than it states."""
    gaps = {
        "dp": eh.metrics.demographic_parity_difference,
        "eo": eh.metrics.equalized_odds_difference,
    }[criterion]
    assert gaps(y, decisions, sensitive_features=groups, sample_weight=weight) <= tolerance + 1e-9
    assert rule.solution_.utility == pytest.approx(np.average(decisions == y, weights=weight), abs=1e-12)
    stated = rule.learned_from["quantisation"]["utility_error"]
    assert abs(exact.solution_.utility - rule.solution_.utility) <= stated


@pytest.mark.parametrize(
    ("tolerance", "weight", "max_cells"), [(0.05, None, 500_000), (0.02, "w", 500_000), (0.05, None, 2000)]
)
def test_a_rule_of_cells_is_as_good_as_the_one_learnt_in_memory(engine, rows, tolerance, weight, max_cells):
    module, hand_over = engine
    columns, joint = arrays(rows)
    weights = None if weight is None else columns[weight]
    exact = eh.learn_rule(
        columns["y"], columns["sex"], columns["p"], joint, criterion="eo", tolerance=tolerance, sample_weight=weights
    )
    options = {"criterion": "eo", "tolerance": tolerance, "sample_weight": weight, "max_cells": max_cells, **NAMES}
    options |= IN_CELLS
    if max_cells < len(rows):
        with pytest.warns(EvenhandWarning, match=r"steps of 2\^-"):
            rule = module.learn_rule(hand_over(rows), **options)
    else:
        rule = module.learn_rule(hand_over(rows), **options)
    decided = read(module.apply(rule, hand_over(rows)))
    decisions = decided["decision"].to_numpy()
    assert (decisions == rule.decide(columns["p"], joint)).all()
    assert (decided["fair_margin"].to_numpy() == rule.decision_function(columns["p"], joint)).all()
    assert_as_good(rule, exact, decisions, columns["y"], columns["sex"], "eo", tolerance, weights)
    assert rule.learned_from["rows"] == len(rows)
    assert eh.Rule.from_json(rule.to_json()) == rule


def test_every_engine_counts_the_same(rows, spark):
    counted = {
        name: module.aggregate(data, sample_weight="w", **NAMES)
        for (name, module), data in zip(
            ENGINES.items(), [rows, duckdb.from_arrow(rows), spark.createDataFrame(rows)], strict=True
        )
    }
    assert counted["arrow"] == counted["duckdb"]
    assert counted["arrow"] == counted["spark"]


def ways_to_learn(table, session):
    """Return every way in which an engine learns a rule from a table, by name."""
    batches = table.to_batches(max_chunksize=300)
    names = DP
    connection = duckdb.connect()
    halves = [arrow.aggregate(part, **names) for part in (table[:400], table[400:])]
    few = {"max_in_memory": 0}
    return {
        "arrow, read again": lambda **o: arrow.learn_rule(table, **names, **few, **o),
        "arrow, read once": lambda **o: arrow.learn_rule(
            pa.RecordBatchReader.from_batches(table.schema, batches), **names, **few, **o
        ),
        "duckdb": lambda **o: duck.learn_rule(connection.from_arrow(table), **names, **few, **o),
        "spark": lambda **o: sparks.learn_rule(session.createDataFrame(table), **names, **few, **o),
        "counts": lambda **o: sum(halves).learn_rule(**o),
        "counts, proven": lambda **o: sum(halves).learn_rule(provable=True, **o),
    }


def test_no_engine_claims_what_the_rows_themselves_refute(spark):
    """A search over cells proves nothing about raw rows, where an optimum can be better than that of the midpoints."""
    beaten = 0
    for seed in range(16):
        table = draw(800, seed=seed)
        columns, _ = arrays(table)
        p_group = np.column_stack([columns["f"], 1 - columns["f"]])
        best = eh.learn_rule(columns["y"], columns["sex"], columns["p"], p_group, tolerance=0.03).solution_
        assert best.status == "optimal"
        for name, learn in ways_to_learn(table, spark).items():
            if (name == "spark" and seed >= 3) or (name == "counts, proven" and seed >= 6):
                continue
            try:
                rule = learn(tolerance=0.03)
            except InfeasibleError:
                assert name == "counts, proven"
                continue
            found = rule.solution_
            assert found.upper_bound >= best.utility - 1e-12, name
            on_cells = rule.learned_from.get("quantisation")
            assert found.status == ("found" if on_cells else "optimal"), name
            assert (on_cells is not None) == ("counts" in name or "once" in name), name
            if on_cells is not None and on_cells["gap_on_cells"] is not None:
                beaten += on_cells["utility_on_cells"] + on_cells["gap_on_cells"] < best.utility - 1e-9
            plug_in = learn(tolerance=0.03, search="dual").solution_ if seed == 0 and "proven" not in name else None
            assert plug_in is None or (plug_in.status, plug_in.upper_bound) == ("plug-in", np.inf)
    assert beaten > 0


@pytest.mark.parametrize("start", range(0, len(HOSTILE) - 3, 4))
def test_labels_and_groups_may_be_any_text(engine, start):
    module, hand_over = engine
    negative, positive, first, second = HOSTILE[start : start + 4]
    rows = draw(600, seed=start)
    columns, _ = arrays(rows)
    y = np.where(columns["y"] == 1, positive, negative)
    sex = np.where(columns["sex"] == "F", first, second)
    table = pa.table({"p": columns["p"], "f`\\": columns["f"], "y'\"": y, "se\nx": sex})
    names = {"y": "y'\"", "sensitive_features": "se\nx", "p_y": "p", "pos_label": positive}
    rule = module.learn_rule(hand_over(table), **names, p_group={first: "f`\\", second: None}, tolerance=0.03)
    assert rule.classes == (negative, positive)
    p_group = np.column_stack([columns["f"], 1 - columns["f"]])[:, :: 1 if first < second else -1]
    decisions = rule.decide(columns["p"], p_group)
    assert read(module.apply(rule, hand_over(table)))["decision"].to_pylist() == decisions.tolist()
    assert rule.solution_.utility == pytest.approx((decisions == y).mean())
    gap = eh.metrics.demographic_parity_difference(y, decisions, sensitive_features=sex, pos_label=positive)
    assert gap == pytest.approx(abs(rule.solution_.values[0]))


def test_a_missing_group_counts_for_accuracy_alone(engine, rows):
    module, hand_over = engine
    columns, _ = arrays(rows)
    names = {**DP, "sensitive_features": {"sex": "sex_or_null"}}
    with pytest.raises(InputError, match="'sex' is missing in 6"):
        module.learn_rule(hand_over(rows), **names)
    rule = module.learn_rule(hand_over(rows), missing="ignore", tolerance=0.02, **names, **IN_CELLS)
    f = columns["f"]
    exact = eh.learn_rule(
        columns["y"],
        columns["sex_or_null"],
        columns["p"],
        np.column_stack([f, 1 - f]),
        tolerance=0.02,
        missing="ignore",
    )
    decisions = rule.decide(columns["p"], np.column_stack([f, 1 - f]))
    known = np.array([group is not None for group in columns["sex_or_null"]])
    gap = eh.metrics.demographic_parity_difference(
        columns["y"][known], decisions[known], sensitive_features=columns["sex_or_null"][known].astype(str)
    )
    assert gap <= 0.02 + 1e-9
    assert rule.solution_.utility == pytest.approx((decisions == columns["y"]).mean())
    assert abs(exact.solution_.utility - rule.solution_.utility) <= rule.learned_from["quantisation"]["utility_error"]


def test_several_attributes_and_more_than_two_groups(engine, rows):
    module, hand_over = engine
    columns, _ = arrays(rows)
    regions = {"north": "r0", "south": "r1", "west": "r2"}
    names = {
        "y": "y", "sensitive_features": ["sex", "region"], "p_y": "p",
        "p_group": {"sex": {"F": "f", "M": None}, "region": regions},
    }  # fmt: skip
    rule = module.learn_rule(hand_over(rows), tolerance=0.04, **names)
    p_group = {
        "sex": np.column_stack([columns["f"], 1 - columns["f"]]),
        "region": np.column_stack([columns[name] for name in regions.values()]),
    }
    decisions = rule.decide(columns["p"], p_group)
    assert (read(module.apply(rule, hand_over(rows)))["decision"].to_numpy() == decisions).all()
    for attribute in ("sex", "region"):
        gap = eh.metrics.demographic_parity_difference(
            columns["y"], decisions, sensitive_features=columns[attribute]
        )  # fmt: skip
        assert gap <= 0.04 + 1e-9


def test_the_model_is_evidence_where_there_are_no_labels(engine, rows):
    module, hand_over = engine
    columns, joint = arrays(rows)
    names = {"p_y": "p", "p_group": JOINT, "sample_weight": "w"}
    rule = module.learn_rule(hand_over(rows), criterion="eo", tolerance=0.03, evidence="model", **names, **IN_CELLS)
    exact = eh.learn_rule(
        None, None, columns["p"], joint, criterion="eo", tolerance=0.03, evidence="model", sample_weight=columns["w"],
        groups=("F", "M"),
    )  # fmt: skip
    chosen = rule.decide(columns["p"], joint) * columns["w"]
    rates = np.einsum("i,ijk->jk", chosen, joint) / np.einsum("i,ijk->jk", columns["w"], joint)
    assert np.abs(rates[:, 0] - rates[:, 1]).max() <= 0.03 + 1e-9
    assert np.abs(rates[:, 0] - rates[:, 1]) == pytest.approx(np.abs(rule.solution_.values))
    assert abs(exact.solution_.utility - rule.solution_.utility) <= rule.learned_from["quantisation"]["utility_error"]


def test_an_intersection_is_crossed_from_two_columns():
    table = draw(5000, seed=3)
    sex, region = table["f"].to_numpy(), np.column_stack([table[f"r{k}"].to_numpy() for k in range(3)])
    regions = ("north", "south", "west")
    cells, p_group = {}, {}
    for i, s in enumerate(("F", "M")):
        for k, r in enumerate(regions):
            cells[s, r] = f"{s} {r}"
            p_group[f"{s} {r}"] = (sex if i == 0 else 1 - sex) * region[:, k]
    table = pa.table({**{name: table[name] for name in ("p", "y", "sex", "region")}, **p_group})
    crossed = eh.Intersection("sex", "region")
    rule = duck.learn_rule(
        duckdb.from_arrow(table), criterion=eh.DemographicParity(attribute=crossed), tolerance=0.1, y="y",
        sensitive_features=["sex", "region"], p_y="p", p_group={crossed: cells},
    )  # fmt: skip
    decisions = np.asarray(duck.apply(rule, duckdb.from_arrow(table)).fetchnumpy()["decision"])
    both = [f"{s} {r}" for s, r in zip(table["sex"].to_pylist(), table["region"].to_pylist(), strict=True)]
    assert eh.metrics.demographic_parity_difference(table["y"].to_numpy(), decisions, sensitive_features=both) <= 0.1
    assert (decisions == rule.decide(table["p"].to_numpy(), np.column_stack(list(p_group.values())))).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": [0.5, float("nan")]}, "have scores that are not probabilities"),
        ({"p": [0.5, 1.5]}, "have scores that are not probabilities"),
        ({"p": [0.5, None]}, "have scores that are not probabilities"),
        ({"f": [0.5, -0.1]}, "have scores that are not probabilities"),
        ({"f": [0.5, 1.2]}, "have scores that are not probabilities"),
        ({"f": [0.5, float("inf")]}, "have scores that are not probabilities"),
        ({"y": [1, None]}, "a label in 'y' that is missing"),
        ({"y": [2, 3]}, "y must have two values|only the label"),
        ({"sex": ["F", "X"]}, "unknown group in 'sex'"),
        ({"w": [1.0, -1.0]}, "weights that are not numbers"),
        ({"w": [1.0, float("inf")]}, "weights that are not numbers"),
    ],
)
def test_rows_that_cannot_be_used_are_named(engine, rows, change, message):
    module, hand_over = engine
    (name, values), *_ = change.items()
    column = pa.array(values, rows[name].type)
    kept = rows.slice(0, 100)
    changed = kept.set_column(kept.column_names.index(name), name, pa.chunked_array([column, kept[name][2:]]))
    with pytest.raises(InputError, match=message):
        module.learn_rule(hand_over(changed), sample_weight="w", **DP)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p_y": "score"}, "no column 'score'"),
        ({"p_y": None}, "p_y must name the column"),
        ({"p_group": {"F": "f"}}, "a column for each of"),
        ({"p_group": {"F": None, "M": None}}, "a column for each of"),
        ({"p_group": ["f", "m"]}, "p_group must be a dict"),
        ({"sensitive_features": None, "y": "region"}, "y must have two values"),
        ({"pos_label": 7}, "y must have two values"),
        ({"p_group": {1: "f", 2: None}}, "has text values|unknown group"),
        ({"level": 13}, "level must be"),
        ({"max_cells": 1}, "max_cells must be"),
        ({"criterion": "eo"}, "needs p\\(Y,A"),
        ({"p_group": {(0, "F"): "f", (2, "F"): "f"}}, "of both labels"),
    ],
)
def test_what_is_asked_wrongly_is_refused(engine, rows, change, message):
    module, hand_over = engine
    with pytest.raises(InputError, match=message):
        module.learn_rule(hand_over(rows), **{**DP, **change})


@pytest.mark.parametrize("change", [{"p_y": "P"}, {"p_y": "pp"}, {"p_group": {"F": "ff", "M": None}}])
def test_a_misspelt_column_is_an_error_when_a_rule_is_applied(engine, rows, change):
    module, hand_over = engine
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1])
    with pytest.raises(InputError, match=r"The table has no column .* Did you mean"):
        module.apply(rule, hand_over(rows), **{"p_y": "p", "p_group": {"F": "f", "M": None}, **change})


def test_a_tolerance_that_no_rule_keeps_is_said(rows):
    budget = eh.SelectionBudget(lower=0.3, upper=0.3) & eh.MinimumRate("selection_rate", 0.4)
    for options in ({}, {"max_in_memory": 0}, IN_CELLS):
        with pytest.raises(InfeasibleError, match="loosen"):
            arrow.learn_rule(rows, criterion=budget, **options, **DP)


def test_apply_refuses_rows_that_are_no_probabilities_and_taken_names(engine, rows):
    module, hand_over = engine
    rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1])
    names = {"p_y": "p", "p_group": {"F": "f", "M": None}}
    bad = rows.slice(0, 5).set_column(0, "p", pa.array([0.1, 0.2, None, 0.4, 0.5]))
    with pytest.raises(Exception, match=r"probabilities|has no value in row 2"):
        read(module.apply(rule, hand_over(bad), **names))
    over = rows.slice(0, 2).set_column(0, "p", pa.array([0.1, 1.0 + 5e-7]))
    if module is arrow:
        assert read(module.apply(rule, hand_over(over), **names))["decision"].to_pylist()[1] == 1
    else:
        with pytest.raises(Exception, match="least"):
            read(module.apply(rule, hand_over(over), **names))
    with pytest.raises(InputError, match="does not say which column"):
        module.apply(rule, hand_over(rows))
    once = read(module.apply(rule, hand_over(rows.slice(0, 5)), **names))
    with pytest.raises(InputError, match="already has a column 'decision'"):
        module.apply(rule, hand_over(once), **names)
    twice = read(module.apply(rule, hand_over(once), prefix="new_", keep=False, **names))
    assert twice.column_names == ["new_decision", "new_fair_margin", "new_flipped", "new_bias_score_1"]
    p, f = (once[name].to_numpy() for name in ("p", "f"))
    assert twice["new_bias_score_1"].to_numpy() == pytest.approx(rule.bias_scores(p, np.column_stack([f, 1 - f]))[:, 0])


def test_duckdb_reads_a_glob_of_files_within_its_memory(rows, tmp_path):
    for part in range(3):
        pq.write_table(rows.slice(part * 2000, 2000), tmp_path / f"part '{part}'.parquet")
    rule = duck.learn_rule(str(tmp_path / "part*.parquet"), memory_limit="200MB", **DP)
    assert rule.solution_ == arrow.learn_rule(rows, **DP).solution_
    decided = duck.apply(rule, sorted(tmp_path.glob("*.parquet")), memory_limit="200MB")
    assert decided.to_arrow_table()["p"].to_pylist() == rows["p"].to_pylist()
    with pytest.raises(InputError, match="DuckDB cannot do this"):
        duck.learn_rule(str(tmp_path / "none*.parquet"), **DP)


def test_batches_that_can_be_read_once_are_learnt_from_their_counts(rows):
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=500))
    once = arrow.learn_rule(reader, max_in_memory=7000, **DP)
    assert once.learned_from["quantisation"]["recounted"] is False
    assert once.solution_.status == "found"
    again = arrow.learn_rule(lambda: iter(rows.to_batches(max_chunksize=700)), **IN_CELLS, **DP)
    assert again.learned_from["quantisation"]["recounted"] is True
    chunks = arrow.apply(again, iter(rows.to_batches(max_chunksize=700)))
    assert pc.sum(chunks.read_all()["decision"]).as_py() == again.decide(*scores(rows)).sum()
    with pytest.raises(InputError, match="no record batches"):
        arrow.learn_rule([], **DP)
    with pytest.raises(InputError, match="must be Arrow record batches"):
        arrow.learn_rule(3, **DP)


def test_a_lazy_frame_and_a_scanner_are_read_like_the_table(rows):
    expected = arrow.learn_rule(rows, **DP)
    decided = arrow.apply(expected, rows).read_all()
    for data in (polars.from_arrow(rows).lazy(), ds.dataset(rows).scanner(batch_size=700)):
        rule = arrow.learn_rule(data, **DP)
        assert rule.solution_ == expected.solution_
        larger = arrow.learn_rule(data, **DP, max_in_memory=0)
        assert larger.learned_from["reading"]["passes"] == 3
        assert larger.solution_.utility == pytest.approx(expected.solution_.utility, abs=1e-12)
        assert arrow.apply(rule, data).read_all()["decision"].equals(decided["decision"])
    lazy = polars.from_arrow(rows).lazy().filter(polars.col("p") > 2)
    assert arrow.apply(expected, lazy).read_all().num_rows == 0
    nothing = ds.dataset(rows).scanner(filter=pc.field("p") > 2)
    assert arrow.apply(expected, nothing).read_all().num_rows == 0


def test_a_scanner_of_an_iterator_is_read_once(rows):
    scanner = ds.Scanner.from_batches(iter(rows.to_batches(max_chunksize=700)), schema=rows.schema)
    rule = arrow.learn_rule(scanner, **DP, max_in_memory=0)
    assert rule.learned_from["quantisation"]["recounted"] is False
    assert rule.learned_from["rows"] == len(rows)


def scores(table):
    return table["p"].to_numpy(), np.column_stack([table["f"].to_numpy(), 1 - table["f"].to_numpy()])


@pytest.mark.parametrize("first", ["required", "optional"])
def test_batches_that_say_otherwise_which_columns_may_be_empty_are_read(first):
    rows = draw(2000).drop_columns(["sex_or_null"])
    strict = rows.cast(pa.schema([field.with_nullable(False) for field in rows.schema]))
    mixed = [strict.to_batches()[0], rows.to_batches()[0]]
    mixed = mixed if first == "required" else mixed[::-1]
    rule = arrow.learn_rule(lambda: iter(mixed), **DP)
    expected = arrow.apply(rule, pa.concat_tables([rows, rows])).read_all()
    found = arrow.apply(rule, mixed).read_all()
    assert found.to_pydict() == expected.to_pydict()
    assert found.schema.field("p").nullable == (first == "optional")
    empty = rows.set_column(0, rows.field(0), pa.nulls(len(rows), rows.field(0).type))
    with pytest.raises(InputError, match="same columns"):
        arrow.apply(rule, [strict.to_batches()[0], empty.to_batches()[0]]).read_all()


@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars"])
def test_duckdb_reads_frames_that_are_in_memory(kind, rows):
    frame = {"pyarrow": rows, "pandas": rows.to_pandas(), "polars": polars.from_arrow(rows)}[kind]
    rule = duck.learn_rule(frame, **DP, tolerance=0.05)
    assert rule == duck.learn_rule(duckdb.connect().from_arrow(rows), **DP, tolerance=0.05)
    decided = read(duck.apply(rule, frame))
    assert decided["decision"].to_pylist() == read(arrow.apply(rule, rows))["decision"].to_pylist()


def test_groups_that_the_rule_does_not_have_are_refused_when_it_is_applied(engine, rows):
    module, hand = engine
    rule = module.learn_rule(hand(rows), **DP, tolerance=0.1)
    with pytest.raises(InputError, match="must have the groups"):
        module.apply(rule, hand(rows), p_group={"F": "f", "X": None})
