from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.engines import Aggregate, arrow
from evenhand.engines.counter import Counter
from evenhand.engines.schema import Cells
from evenhand.errors import AggregateFormatError, InfeasibleError, InputError
from scored_rows import JOINT, NAMES, draw

DP = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"F": "f", "M": None}}


def test_the_aggregates_of_three_sites_add_to_that_of_all_rows(rows):
    parts = [arrow.aggregate(rows.slice(start, 2000), **NAMES) for start in (0, 2000, 4000)]
    whole = arrow.aggregate(rows, **NAMES)
    assert sum(parts) == whole
    assert parts[2] + parts[0] + parts[1] == whole
    assert whole.n_rows == len(rows)
    assert sum(parts).learn_rule("eo", 0.02).solution_ == whole.learn_rule("eo", 0.02).solution_


def test_a_site_without_a_label_or_a_group_adds_to_the_others(rows):
    names = {**DP, "sensitive_features": ["sex", "region"], "p_group": {"sex": {"F": "f", "M": None}}}
    kept = [rows.filter(pa.compute.equal(rows["y"], label)) for label in (0, 1)]
    kept += [rows.filter(pa.compute.equal(rows["region"], "west"))]
    ones = arrow.aggregate(kept[1], **names)
    assert ones.schema.classes == (None, 1)
    assert ones + arrow.aggregate(kept[0], **names) == arrow.aggregate(rows, **names)
    assert (arrow.aggregate(kept[2], **names) + ones).n_rows == len(kept[2]) + len(kept[1])
    with pytest.raises(InputError, match="only the label 1"):
        ones.learn_rule()


def test_aggregates_of_different_things_do_not_add(rows):
    with pytest.raises(InputError, match="cannot be added"):
        arrow.aggregate(rows, **NAMES) + arrow.aggregate(rows, **DP)
    with pytest.raises(TypeError):
        arrow.aggregate(rows, **DP) + 1


@pytest.mark.parametrize("level", [11, 7, 1])
def test_coarsening_is_exact(rows, level):
    assert arrow.aggregate(rows, **NAMES).coarsen(level) == arrow.aggregate(rows, level=level, **NAMES)
    with pytest.raises(InputError, match="is not available"):
        arrow.aggregate(rows, level=level, **NAMES).coarsen(12)


@pytest.mark.parametrize("max_cells", [100, 1000, 3000, 10_000])
def test_a_counter_never_has_more_cells_than_it_may(rows, max_cells):
    found = arrow.aggregate(rows, max_cells=max_cells, **NAMES)
    assert found.n_cells <= max_cells
    assert found == arrow.aggregate(rows, level=found.level, **NAMES)


def test_more_cells_than_are_allowed_in_the_coarsest_steps_are_refused(rows):
    with pytest.raises(InputError, match="even in the coarsest steps"):
        arrow.aggregate(rows, max_cells=16, **NAMES)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(1, 3), n=st.integers(0, 400), distinct=st.integers(1, 500))
def test_the_counting_loop_equals_numpy(seed, width, n, distinct):
    class Plain:
        def __init__(self):
            self.width = width

        def masks(self, level):
            return np.full(width, -1, dtype=np.int64)

    rng = np.random.default_rng(seed)
    words = rng.integers(-(2**62), 2**62, (distinct, width))[rng.integers(0, distinct, n)]
    payload = rng.integers(0, 9, (n, 2)).astype(float)
    counter = Counter(Plain(), 2)
    for start in range(0, n, 100):
        counter.add(words[start : start + 100], payload[start : start + 100])
    keys, sums, rows = counter.cells()
    wanted, inverse, counts = np.unique(words, axis=0, return_inverse=True, return_counts=True)
    order = np.lexsort(keys.T[::-1])
    assert (keys[order] == wanted).all()
    assert (rows[order] == counts).all()
    for column in range(2):
        assert (sums[order, column] == np.bincount(inverse.reshape(-1), payload[:, column], len(wanted))).all()


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), level=st.integers(1, 12), evidence=st.sampled_from(["labels", "model", "both"]))
def test_no_rule_is_farther_off_on_the_rows_than_its_bound(seed, level, evidence):
    rng = np.random.default_rng(seed)
    table = draw(400, seed=int(rng.integers(2**31)))
    noise = 1 + rng.choice([0.0, 1e-7, 5e-4]) * rng.uniform(-1, 1, 400)
    table = table.set_column(table.column_names.index("p1m"), "p1m", pa.array(table["p1m"].to_numpy() * noise))
    counted = arrow.aggregate(table, level=level, sample_weight="w", **NAMES)
    rule = eh.Rule.from_criterion(
        "eo", groups={"sex": ("F", "M")}, priors=rng.dirichlet(np.ones(4)).reshape(2, 2), z=rng.normal(size=2) * 0.3,
        tolerance=0.1, costs=(1.0, float(rng.choice([1.0, 2.0]))),
    )  # fmt: skip
    bound = counted.error_bound(rule, evidence=evidence)
    joint = np.column_stack([table[name].to_numpy() for name in JOINT.values()]).reshape(-1, 2, 2)
    p, y, w = (table[name].to_numpy() for name in ("p", "y", "w"))
    sex = (table["sex"].to_numpy(zero_copy_only=False) == "M").astype(int)
    on_rows = truth(rule, evidence, p, joint, y, sex, w)
    on_cells = truth(
        rule, evidence, counted.p_y, counted.p_group["sex"], counted.positive.astype(int), counted.codes["sex"],
        counted.weight,
    )  # fmt: skip
    assert abs(on_rows[0] - on_cells[0]) <= bound.utility + 1e-12
    limits = [bound.rates[f"sex={group}, Y={label}"] for label in (0, 1) for group in ("F", "M")]
    assert (np.abs(on_rows[1] - on_cells[1]).reshape(-1) <= np.array(limits) + 1e-12).all()


def truth(rule, evidence, p, joint, y, sex, w):
    """Return the utility and the rates of each (label, group), counted, expected or the mean of both."""
    chosen = (rule.decision_function(p, joint) > 0).astype(float)
    false_positive, false_negative = rule.costs
    found = []
    for kind in ("labels", "model") if evidence == "both" else (evidence,):
        inside = np.eye(4)[2 * y + sex].reshape(-1, 2, 2) if kind == "labels" else joint
        likely = y if kind == "labels" else p
        gain = false_negative * likely - false_positive * (1 - likely)
        offset = w @ (1 - likely) if rule.costs == (1.0, 1.0) else -false_negative * (w @ likely)
        rates = np.einsum("i,ijk->jk", chosen * w, inside) / np.einsum("i,ijk->jk", w, inside)
        found.append(((offset + (chosen * w) @ gain) / w.sum(), rates))
    return np.mean([one[0] for one in found]), np.mean([one[1] for one in found], axis=0)


def test_a_provable_rule_keeps_its_bounds_on_rows_that_were_never_read_again(rows):
    counted = arrow.aggregate(rows, level=10, **NAMES)
    rule = counted.learn_rule("eo", 0.05, provable=True)
    joint = np.column_stack([rows[name].to_numpy() for name in JOINT.values()]).reshape(-1, 2, 2)
    decisions = rule.decide(rows["p"].to_numpy(), joint)
    sex = rows["sex"].to_numpy(zero_copy_only=False)
    assert eh.metrics.equalized_odds_difference(rows["y"].to_numpy(), decisions, sensitive_features=sex) <= 0.05
    with pytest.raises(InfeasibleError, match="No rule is proven to meet"):
        counted.coarsen(3).learn_rule("eo", 0.01, provable=True)


def test_a_single_cell_of_many_rows_is_evidence_enough():
    table = pa.table({"p": [0.2] * 50 + [0.8] * 50, "f": [0.9] * 50 + [0.1] * 50, "y": [0, 1] * 50,
                      "sex": ["F"] * 50 + ["M"] * 50})  # fmt: skip
    rule = arrow.learn_rule(table, tolerance=1.0, **DP)
    assert rule.learned_from["rows_by_event"] == {"sex=F": 50, "sex=M": 50}


def test_saved_aggregates_read_back_to_the_bit(rows, tmp_path):
    place = tmp_path / "site.parquet"
    names = {**NAMES, "sensitive_features": ["sex", "region"], "p_group": {"sex": JOINT}}
    for counted in (
        arrow.aggregate(rows, sample_weight="w", level=7, **names),
        arrow.aggregate(rows, p_y="p", p_group={"F": "f", "M": None}),
        arrow.aggregate(rows.slice(0, 0), **NAMES),
    ):
        counted.save(place)
        assert Aggregate.load(place) == counted
        assert hash(Aggregate.load(place)) == hash(counted)


def test_a_saved_aggregate_is_a_table_that_other_tools_read(rows, tmp_path):
    arrow.aggregate(rows, **DP).save(tmp_path / "site.parquet")
    table = pq.read_table(tmp_path / "site.parquet")
    assert table.column_names == ["deviation_class", "label", "group of sex", "p_y", "s1: p(sex: F)", "weight", "rows"]


def hostile(change):
    """Return a function that writes a file after a change of its table or of its header."""

    def write(table, header, place):
        table, header = change(table, dict(header))
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        pq.write_table(table.replace_schema_metadata({b"evenhand": text}), place)

    return write


def with_column(name, values):
    return hostile(lambda t, h: (t.set_column(t.column_names.index(name), name, values(t)), h))


@pytest.mark.parametrize(
    "write",
    [
        hostile(lambda t, h: (t, {**h, "version": 3})),
        hostile(lambda t, h: (t, {**h, "version": "1"})),
        hostile(lambda t, h: (t, {**h, "format": "other"})),
        hostile(lambda t, h: (t, {**h, "level": 13})),
        hostile(lambda t, h: (t, {**h, "level": 5})),
        hostile(lambda t, h: (t, {**h, "labels": [1, 1]})),
        hostile(lambda t, h: (t, {**h, "labelled": False})),
        hostile(lambda t, h: (t, {**h, "scored": [{}]})),
        hostile(lambda t, h: (t, {**h, "scored": [{"attribute": 3, "groups": ["F", "M"], "joint": False}]})),
        hostile(lambda t, h: (t, {**h, "scored": 7})),
        hostile(lambda t, h: (t, {**h, "observed": [{"attribute": "sex", "groups": ["F", "F"]}]})),
        hostile(lambda t, h: (t, {**h, "observed": [{"attribute": "sex", "groups": ["F", {"a": 1}]}]})),
        hostile(lambda t, h: (t, {key: value for key, value in h.items() if key != "level"})),
        hostile(lambda t, h: (t, b"[" * 100_000)),
        hostile(lambda t, h: (t, b"\xff\xfe")),
        hostile(lambda t, h: (t.drop_columns(["rows"]), h)),
        hostile(lambda t, h: (pa.concat_tables([t, t]), h)),
        with_column("weight", lambda t: pa.array([float("nan")] * len(t))),
        with_column("weight", lambda t: pa.array([-1.0] * len(t))),
        with_column("weight", lambda t: pa.array([None] * len(t), pa.float64())),
        with_column("weight", lambda t: pa.array(["1"] * len(t))),
        with_column("rows", lambda t: pa.array([0] * len(t))),
        with_column("rows", lambda t: pa.array([2**62] * len(t))),
        with_column("p_y", lambda t: pa.array([5000] * len(t), pa.int32())),
        with_column("p_y", lambda t: pa.array([-1] * len(t), pa.int32())),
        with_column("group of sex", lambda t: pa.array([3] * len(t), pa.int32())),
        with_column("label", lambda t: pa.array([3] * len(t), pa.int32())),
        lambda table, header, place: place.write_bytes(b"PAR1 this is no table PAR1"),
        lambda table, header, place: place.write_bytes(b""),
        lambda table, header, place: pq.write_table(table.replace_schema_metadata({}), place),
        lambda table, header, place: place.mkdir(),
    ],
)  # fmt: skip
def test_a_hostile_file_is_refused_with_one_clear_error(write, rows, tmp_path):
    arrow.aggregate(rows.slice(0, 200), level=9, **DP).save(tmp_path / "good.parquet")
    table = pq.read_table(tmp_path / "good.parquet")
    write(table, json.loads(table.schema.metadata[b"evenhand"]), tmp_path / "bad.parquet")
    with pytest.raises(AggregateFormatError, match=r"bad.parquet is not an aggregate that can be read"):
        Aggregate.load(tmp_path / "bad.parquet")


def test_a_truncated_file_and_an_absent_one_are_refused(rows, tmp_path):
    place = tmp_path / "site.parquet"
    arrow.aggregate(rows, **DP).save(place)
    whole = place.read_bytes()
    for size in (4, len(whole) // 2, len(whole) - 1):
        place.write_bytes(whole[:size])
        with pytest.raises(AggregateFormatError, match="not an aggregate"):
            Aggregate.load(place)
    with pytest.raises(InputError, match="no such file"):
        Aggregate.load(tmp_path / "none.parquet")


def test_the_words_hold_every_field_apart(rows):
    groups = {"sex": JOINT, "region": {"north": "r0", "south": "r1", "west": None}}
    counted = arrow.aggregate(rows, **{**NAMES, "sensitive_features": ["sex", "region"], "p_group": groups})
    assert counted.schema.width == 2
    assert Cells(counted.schema, False).width == 2
    assert counted.p_y.min() >= 0.0
    assert counted.p_group["sex"].sum(axis=(1, 2)) == pytest.approx(1.0)
    assert np.bincount(counted.codes["region"], counted.weight).tolist() == [
        rows["region"].to_pylist().count(name) for name in ("north", "south", "west")
    ]


@pytest.mark.parametrize("column", ["y", "sex"])
def test_lists_are_no_labels_and_no_groups(rows, column):
    lists = pa.array([["F"]] * len(rows))
    changed = rows.set_column(rows.column_names.index(column), column, lists)
    with pytest.raises(InputError, match=f"The column '{column}' must contain text, numbers or booleans"):
        arrow.aggregate(changed, **DP)


def test_a_group_that_is_infinite_is_counted_but_not_written(rows, tmp_path):
    sizes = pa.array(np.where(np.arange(len(rows)) % 2, 1.0, np.inf))
    counted = arrow.aggregate(
        rows.append_column("size", sizes), y="y", sensitive_features=["sex", "size"], p_y="p",
        p_group={"sex": {"F": "f", "M": None}},
    )  # fmt: skip
    with pytest.raises(InputError, match="inf cannot be written"):
        counted.save(tmp_path / "counts.parquet")
