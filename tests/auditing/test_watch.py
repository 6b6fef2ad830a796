"""A watch says the same as a count of all rows would, keeps its promise, and can be paused, moved and merged."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import evenhand as eh
from evenhand.auditing import watch_counts
from evenhand.auditing.watch_counts import BLOCKS
from evenhand.errors import WatchFormatError
from evenhand.statistics.sequences import linear_sequences, restart_share
from watching import STREAMS, TOLERANCE, alarms, in_window, since_start


def rows(n, seed=0, gap=0.0, groups="ab"):
    rng = np.random.default_rng(seed)
    group = rng.choice(list(groups), n)
    y = (rng.random(n) < 0.4).astype(int)
    rate = 0.3 + 0.3 * y - gap * (group == groups[-1])
    return rng.random(n) < rate, group, y


def same(first, second):
    return json.loads(first.to_json()) == json.loads(second.to_json())


def test_a_large_gap_is_violated_and_none_at_all_holds():
    decisions, groups, _ = rows(60_000)
    assert eh.Watch("dp", 0.05).update(decisions, groups) == "holds"
    decisions, groups, _ = rows(3000, gap=0.25)
    watch = eh.Watch("dp", 0.05)
    assert watch.update(decisions[:20], groups[:20]) == "undecided"
    assert watch.update(decisions[20:], groups[20:]) == "violated"
    assert watch.since == watch.rows == 3000
    assert watch.changes == ((0, "undecided"), (3000, "violated"))


@pytest.mark.parametrize("criterion", ["dp", "eo", eh.SelectionRatio(0.8) & eh.SelectionBudget(upper=0.6)])
def test_batches_of_any_size_give_the_same_counts_and_gaps(criterion):
    decisions, groups, y = rows(250, gap=0.1, groups="abc")
    at_once, one_by_one = (eh.Watch(criterion, 0.05, window=100, groups=["a", "b", "c"]) for _ in range(2))
    at_once.update(decisions, groups, y)
    for row in zip(decisions, groups, y, strict=True):
        one_by_one.update(*row)
    assert at_once.gaps == one_by_one.gaps
    assert at_once._counts.number == one_by_one._counts.number == 13


def test_the_gap_is_the_difference_of_the_rates_with_the_sequences_of_the_rates():
    decisions, groups, y = rows(5000, gap=0.1)
    watch = eh.Watch("eo", 0.05, confidence=0.9, window=1000, groups=["a", "b"])
    watch.update(decisions, groups, y)
    cells = [(label, group) for label in (0, 1) for group in "ab"]
    for gap, label in zip(watch.gaps, (0, 1), strict=True):
        for estimate, first, share in ((gap.since_start, 0, 1.0), (gap.window, 3800, float(restart_share(20)))):
            chosen = [decisions[first:][(y[first:] == label) & (groups[first:] == g)] for g in "ab"]
            s, n = (np.array([float(f(c)) for c in chosen]) for f in (np.sum, np.size))
            error = 0.1 / 2 / len(cells) * share
            value, low, high = linear_sequences([[1, -1]], s, n, error)
            assert (estimate.value, estimate.lower, estimate.upper) == pytest.approx((value[0], low[0], high[0]))


def test_the_window_has_the_rows_of_the_last_five_blocks_and_those_of_the_present_one():
    decisions, groups, _ = rows(1130)
    watch = eh.Watch("dp", 0.05, window=100, groups=["a", "b"])
    watch.update(decisions, groups)
    assert len(watch._counts.blocks) == BLOCKS + 1
    inside = decisions[1020:], groups[1020:]
    assert watch.gaps[0].window.value == pytest.approx(
        inside[0][inside[1] == "a"].mean() - inside[0][inside[1] == "b"].mean()
    )
    assert watch._counts.start == 52


def test_a_change_shows_in_the_window_and_not_yet_in_the_average():
    watch = eh.Watch("dp", 0.1, window=5000, groups=["a", "b"])
    watch.update(*rows(50_000)[:2])
    assert watch.state == "holds"
    watch.update(*rows(5000, seed=1, gap=0.3)[:2])
    (verdict,) = watch.verdicts
    assert verdict.since_start.value < 0.1 < verdict.window.lower
    assert watch.state == "violated"
    assert eh.Watch("dp", 0.1, window=None).update(*rows(50_000)[:2]) == "holds"


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_a_watch_says_at_every_look_what_the_long_tests_count(stream):
    looks, rows_ = 60, 500
    rng = np.random.default_rng(3)
    cell = rng.choice(len(stream.shares), size=(looks, rows_), p=stream.shares)
    decided = rng.random(cell.shape) < stream.with_gap(0.13)[cell]
    trials = np.array([np.bincount(row, minlength=len(stream.shares)) for row in cell]).cumsum(axis=0)
    successes = np.array(
        [np.bincount(row, weights=d, minlength=len(stream.shares)) for row, d in zip(cell, decided, strict=True)]
    ).cumsum(axis=0)
    wanted = since_start(stream, trials, successes)[0] | in_window(stream, trials, successes, rows_)
    labelled = len(stream.shares) > stream.groups
    watch = eh.Watch("eo" if labelled else "dp", TOLERANCE, groups=list(range(stream.groups)))
    said = [
        watch.update(d, c % stream.groups, c // stream.groups if labelled else None) == "violated"
        for c, d in zip(cell, decided, strict=True)
    ]
    assert said == wanted.tolist()
    assert any(said)
    assert not all(said)


def test_at_the_tolerance_hardly_any_stream_raises_an_alarm():
    found = alarms(STREAMS[0], TOLERANCE, 40, 1000, 50, every=2)
    assert found.watch <= 0.05
    assert found.repeated > found.watch


def test_labels_that_come_late_count_when_they_come():
    decisions, groups, y = rows(3000, gap=0.2)
    ids = [f"row {k}" for k in range(3000)]
    late, known = eh.Watch("eo", 0.05, window=None), eh.Watch("eo", 0.05, window=None)
    known.update(decisions, groups, y)
    first = np.where(np.arange(3000) < 1000, y, -1).astype(object)
    first[1000:] = None
    late.update(decisions, groups, first, ids=ids)
    assert late.waiting == 2000
    late.add_labels([*ids[1000:2000], "nobody"], [*y[1000:2000], 1])
    assert late.waiting == 1000
    late.update(decisions[2000:], groups[2000:], y[2000:], ids=ids[2000:])
    assert late.waiting == 0
    assert late.rows == 3000
    assert late.gaps == known.gaps


def test_labels_that_never_come_are_no_obstacle_to_demographic_parity():
    decisions, groups, _ = rows(1000)
    watch = eh.Watch(eh.DemographicParity() & eh.EqualOpportunity(), 0.05)
    watch.update(decisions, groups, ids=range(1000))
    parity, opportunity = watch.verdicts
    assert parity.since_start.value is not None
    assert opportunity.since_start.value is None
    assert opportunity.state == "undecided"
    again = watch.update(decisions[:5], groups[:5], ids=range(5))
    assert again == watch.state
    assert watch.rows == 1000


def test_several_attributes_groups_and_criteria_share_the_error():
    decisions, groups, y = rows(4000)
    other = np.random.default_rng(5).choice(["x", "y", "z"], 4000)
    crossed = eh.Intersection("sex", "race")
    watch = eh.Watch(eh.DemographicParity() & eh.EqualizedOdds(attribute=crossed) & eh.SelectionBudget(upper=0.9), 0.05)
    watch.update(decisions, pd.DataFrame({"sex": groups, "race": other}), y)
    assert [(v.criterion, v.attribute) for v in watch.verdicts] == [
        ("demographic_parity", "sex"),
        ("demographic_parity", "race"),
        ("equalized_odds", "sex & race"),
        ("selection_budget(0.0, 0.9)", None),
    ]
    system = watch._system()
    assert system.shares.sum() <= 1.0 + 1e-12
    assert len(set(system.events)) == len(system.events) == 2 + 3 + 2 * 6 + 1
    given = eh.Watch("dp", 0.05, groups={"sex": ["a", "b"], "race": ["x", "y", "z"]})
    given.update(decisions, pl.DataFrame({"sex": groups, "race": other}))
    assert given._system().shares.sum() == pytest.approx(1.0)


def test_groups_may_come_one_after_another():
    watch = eh.Watch("dp", 0.05)
    assert watch.update([1, 0], ["a", "a"]) == "undecided"
    assert watch.gaps == ()
    watch.update([1, 0, 1], ["c", "b", "a"])
    assert [gap.name for gap in watch.gaps] == [
        "rate(group=a) - rate(group=b)",
        "rate(group=a) - rate(group=c)",
        "rate(group=b) - rate(group=c)",
    ]
    assert "undecided" in str(watch)


def test_a_watch_goes_on_after_a_pause_as_if_there_had_been_none(tmp_path):
    decisions, groups, y = rows(3000, gap=0.2)
    names = np.arange(3000)
    parts = [slice(k, k + 250) for k in range(0, 3000, 250)]
    criterion = eh.EqualizedOdds(attribute="sex") & eh.SelectionBudget(upper=0.5)
    paused, steady = (eh.Watch(criterion, 0.05, window=500) for _ in range(2))
    path = tmp_path / "watch.json"
    for part in parts:
        given = np.where(names[part] % 3 == 0, np.nan, y[part])
        for watch in (paused, steady):
            watch.update(decisions[part], {"sex": groups[part]}, given, ids=names[part])
        paused.save(path)
        paused = eh.Watch.load(path)
    assert same(paused, steady)
    assert paused.verdicts == steady.verdicts
    assert paused.moments == steady.moments
    assert paused.waiting == steady.waiting == 1000


def test_watches_of_two_sites_add_up():
    decisions, groups, y = rows(4000, gap=0.1)
    options = {"groups": ["a", "b"], "window": 1000}
    everyone, north, south = (eh.Watch("eo", 0.05, **options) for _ in range(3))
    everyone.update(decisions, groups, y)
    north.update(decisions[:1500], groups[:1500], y[:1500])
    south.update(decisions[1500:], groups[1500:], np.where(y[1500:] == 1, 1, None), ids=range(2500))
    both = north + south
    both.add_labels(range(2500), y[1500:])
    assert both.rows == 4000
    assert both.waiting == 0
    assert [g.since_start for g in both.gaps] == [g.since_start for g in everyone.gaps]
    assert [g.since_start for g in (south + north).gaps] == [g.since_start for g in (north + south).gaps]
    window = both.gaps[0].window
    assert window.lower < window.value < window.upper
    with pytest.raises(eh.InputError, match="tolerance"):
        north + eh.Watch("eo", 0.06, **options)
    with pytest.raises(TypeError):
        north + 1


def test_what_is_remembered_does_not_grow_without_end():
    watch = eh.Watch("dp", 0.05, groups=["a", "b"])
    for k in range(530):
        watch.update([k % 2, k % 3 == 0], ["a", "b"])
    assert len(watch.moments) <= 256
    gaps = np.diff([moment.rows for moment in watch.moments])
    assert set(gaps.tolist()) == {8}
    assert len(watch.to_json()) < 60_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([0.2, 0.7], ["a", "b"]), "threshold"),
        (([0.7], ["a"]), "threshold"),
        (([1, 0], ["a", None]), "missing"),
        (([1, 0], ["a"]), "rows"),
        (([1, 0], ["a", "b"], [0, 1, 1]), "y has 3 rows"),
        (([1, 0, 1], ["a", "b", "b"], [0, 1, 2]), "two values"),
        (([1, 0], {"sex": ["a", "b"]}), "counts \\['group'\\]"),
        (([], []), "empty"),
    ],
)
def test_rows_that_cannot_be_counted_are_refused_and_change_nothing(given, message):
    watch = eh.Watch("dp", 0.05)
    watch.update([1, 0], ["a", "b"])
    before = watch.to_json()
    with pytest.raises(eh.InputError, match=message):
        watch.update(*given)
    assert watch.to_json() == before


def test_identifiers_must_identify():
    watch = eh.Watch("eo", 0.05)
    for ids in ([1, 1], [1, None], [1.5, 2], [1]):
        with pytest.raises(eh.InputError, match="ids"):
            watch.update([1, 0], ["a", "b"], ids=ids)


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(eh.InputError, match="did you mean"):
        eh.Watch("dp", 5)
    with pytest.raises(eh.InputError, match="window"):
        eh.Watch("dp", 0.05, window=0)
    with pytest.raises(eh.InputError, match="unknown group 'c'"):
        eh.Watch("dp", 0.05, groups=["a", "b"]).update([1], ["c"])
    with pytest.raises(eh.InputError, match="names the attribute 'age'"):
        eh.Watch(eh.DemographicParity(attribute="age"), 0.05).update([1, 0], {"sex": ["a", "b"]})
    with pytest.raises(eh.InputError, match="groups of 'age'"):
        eh.Watch("dp", 0.05, groups={"age": ["a", "b"]}).update([1, 0], {"sex": ["a", "b"]})
    watch = eh.Watch("dp", 0.05)
    with pytest.raises(eh.InputError, match="identifier"):
        watch.update(np.zeros(300, dtype=int), np.arange(300))
    assert watch.update([1, 0], {"sex": ["a", "b"]}) == "undecided"


def test_only_so_many_rows_wait_and_the_oldest_are_given_up(monkeypatch):
    monkeypatch.setattr(watch_counts, "MOST_WAITING", 5)
    watch, other = eh.Watch("eo", 0.05), eh.Watch("eo", 0.05)
    watch.update([1, 0] * 4, ["a", "b"] * 4, ids=range(8))
    assert list(watch._counts.waiting) == [3, 4, 5, 6, 7]
    other.update([1, 0], ["a", "b"], ids=["x", "y"])
    assert list((watch + other)._counts.waiting) == [5, 6, 7, "x", "y"]


def damaged(data, path, value):
    node = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["format"], "rule"),
        (["version"], 99),
        (["version"], True),
        (["criterion"], {"type": "Nothing"}),
        (["tolerance"], "x"),
        (["window"], 10**30),
        (["rows"], -1),
        (["rows"], 3),
        (["state"], "fine"),
        (["changes"], []),
        (["changes", 0, 1], "fine"),
        (["attributes"], ["sex", "sex"]),
        (["attributes"], None),
        (["cells", 0, 0], "age"),
        (["cells", 0, 1], [1]),
        (["total"], [[1, 2, 0, 0, 0, 0]] * 2),
        (["total", 0, 0], 1.5),
        (["total", 0], [1]),
        (["total"], []),
        (["blocks"], []),
        (["blocks", 0, 0, 0], 10**6),
        (["block", "number"], 0),
        (["waiting"], [["x", 2, 0]]),
        (["waiting"], [["x", 1, 7]]),
        (["waiting"], [["x", 1]]),
        (["waiting"], [[None, 1, 0]]),
        (["moments", 0, 1, 0, 0], None),
        (["moments", 0, 1, 0, 0, 1], "x"),
        (["groups"], 5),
    ],
)
def test_a_damaged_file_is_refused(path, value, tmp_path):
    watch = eh.Watch("eo", 0.05)
    watch.update(*(column[:40] for column in rows(40)), ids=range(40))
    text = damaged(json.loads(watch.to_json()), path, value)
    with pytest.raises(WatchFormatError):
        eh.Watch.from_json(text)


def test_what_is_no_watch_at_all_is_refused(tmp_path):
    for text in ("", "[]", "{", "[" * 100_000, '{"format": "evenhand-watch", "version": 1}', b"{}"):
        with pytest.raises(WatchFormatError):
            eh.Watch.from_json(text)
    with pytest.raises(eh.InputError, match="no such file"):
        eh.Watch.load(tmp_path / "none.json")


@pytest.mark.parametrize("criterion", ["accuracy_parity", eh.MinimumRate("precision", 0.8)])
def test_what_a_watch_cannot_follow_is_refused(criterion):
    with pytest.raises(eh.InputError, match="audit it instead"):
        eh.Watch(criterion, 0.05)


def test_identifiers_and_labels_may_be_numpy_scalars():
    watch = eh.Watch("eo", 0.05)
    for ids in ([np.int64(1), np.int64(2)], np.array([np.int64(3), 4], dtype=object)):
        watch.update([True, False], ["a", "b"], ids=ids)
    assert watch.waiting == 4
    watch.add_labels([np.int64(1), np.int32(4)], [np.int64(1), np.int64(0)])
    assert watch.waiting == 2
    assert same(eh.Watch.from_json(watch.to_json()), watch)


FIRST, SECOND = eh.Event("group", "a"), eh.Event("group", "b")
SUMS = {
    "one group": (((FIRST, 1.0),), [1 / 2]),
    "two groups": (((FIRST, 1.0), (SECOND, -0.5)), [1 / 2, 1 / 2]),
    # Each attribute has half of the error, and everyone counts as one.
    "a group and everyone": (((FIRST, 1.0), (eh.Event(), -1.0)), [1 / 4, 1 / 2]),
    "everyone and a group": (((eh.Event(), 1.0), (FIRST, -1.0)), [1 / 2, 1 / 4]),
    "two labels": (((eh.Event("group", "a", 1), 1.0), (eh.Event("group", "b", 0), -1.0)), [1 / 4, 1 / 4]),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("batches", [1, 7])
def test_a_sum_of_rates_that_names_groups_has_their_sequences(name, batches):
    terms, shares = SUMS[name]
    watch = eh.Watch(eh.LinearConstraint(terms, upper=0.1), 0.05, window=None, groups=["a", "b"])
    decisions, groups, y = rows(700, gap=0.1)
    for part in np.array_split(np.arange(700), batches):
        watch.update(decisions[part], groups[part], y[part])
    inside = [
        np.isin(groups, ["a", "b"] if event.attribute is None else event.group)
        & ((y == event.label) | (event.label is None))
        for event, _ in terms
    ]
    counts = np.array([[some.sum() for some in inside], [decisions[some].sum() for some in inside]], dtype=float)
    matrix = np.array([[coefficient for _, coefficient in terms]])
    value, lower, upper = linear_sequences(matrix, counts[1], counts[0], 0.05 * np.array(shares))
    (gap,), (verdict,) = watch.gaps, watch.verdicts
    found = (gap.since_start.value, gap.since_start.lower, gap.since_start.upper)
    assert found == pytest.approx((value[0], lower[0], upper[0]))
    assert verdict.since_start.upper == pytest.approx(max(0.0, upper[0] - 0.1))
    assert verdict.criterion == str(watch.criterion)
    assert same(eh.Watch.from_json(watch.to_json()), watch)


def test_a_sum_of_rates_waits_for_the_groups_that_it_names():
    watch = eh.Watch(eh.LinearConstraint({FIRST: 1.0}, upper=0.4) & eh.DemographicParity(), 0.05)
    assert watch.update([True] * 50, ["b"] * 50) == "undecided"
    assert watch.verdicts[0].since_start.value is None
    assert watch.update([True] * 50, ["a"] * 50) == "violated"
    assert [verdict.state for verdict in watch.verdicts] == ["violated", "undecided"]
    crossed = eh.Intersection("sex", "race")
    watch = eh.Watch(eh.LinearConstraint({eh.Event(crossed, ("F", "x")): 1.0}, upper=0.4), 0.05)
    watch.update([True], {"sex": ["M"], "race": ["x"]})
    assert watch.update([True] * 50, {"sex": ["F"] * 50, "race": ["x"] * 50}) == "violated"


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (eh.Event("group", "c"), r"names the group 'c' of 'group'; the watch has \['a', 'b'\]"),
        (eh.Event("sex", "a"), r"names sex=a; the data has the attributes \['group'\]"),
    ],
)
def test_a_sum_of_rates_of_an_unknown_group_is_refused(event, message):
    watch = eh.Watch(eh.LinearConstraint({event: 1.0}, upper=0.4), 0.05, groups=["a", "b"])
    with pytest.raises(eh.InputError, match=message):
        watch.update([True], ["a"])
