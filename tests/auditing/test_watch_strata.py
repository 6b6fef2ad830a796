"""A watch within strata: each stratum's rates have their own part of the error, at all times."""

from __future__ import annotations

import json

import numpy as np
import pytest

import evenhand as eh
from evenhand.auditing.watch_text import headline
from evenhand.errors import WatchFormatError
from evenhand.report.watching import render_watch
from evenhand.statistics.sequences import sequence_at
from watching import ever_outside

JOBS = ("clerk", "driver", "nurse")
INSIDE = eh.DemographicParity(within="job")
STREAMS = {"streams": 200, "looks": 40, "rows": 240}


def rows(n, seed=0, gaps=(0.0, 0.0, 0.0)):
    """Return decisions, sexes and jobs; women are behind by the gap of their job."""
    rng = np.random.default_rng(seed)
    sex, job = rng.choice(["F", "M"], n), rng.integers(0, 3, n)
    decided = rng.random(n) < 0.5 - np.array(gaps)[job] * (sex == "F")
    return decided, sex, np.array(JOBS)[job]


def watched(criterion=INSIDE, tolerance=0.1, **options):
    options = {"groups": ["F", "M"], "strata": JOBS, "window": None} | options
    return eh.Watch(criterion, tolerance, **options)


def ends(decided, sex, job, stratum, group, error):
    mine = (sex == group) & (job == stratum)
    low, high = sequence_at(np.array([float(decided[mine].sum())]), np.array([float(mine.sum())]), error)
    return float(low[0]), float(high[0])


SHARES = {
    "both given": ({}, lambda s, g: 1 / 6),
    "groups given": ({"strata": None}, lambda s, g: 1 / ((s + 1) * (s + 2)) / 2),
    "strata given": ({"groups": None}, lambda s, g: 1 / 3 / ((g + 1) * (g + 2))),
    "none given": ({"groups": None, "strata": None}, lambda s, g: 1 / ((s + 1) * (s + 2)) / ((g + 1) * (g + 2))),
}


@pytest.mark.parametrize("case", SHARES)
def test_every_gap_is_that_of_its_rates_sequences(case):
    options, share = SHARES[case]
    watch = watched(**options)
    decided, sex, job = rows(900)
    watch.update(decided, sex, strata=job)
    assert len(watch.gaps) == 3
    for place, (gap, stratum) in enumerate(zip(watch.gaps, JOBS, strict=True)):
        assert gap.name == f"rate(sex=F, job={stratum}) - rate(sex=M, job={stratum})".replace("sex", "group")
        women = ends(decided, sex, job, stratum, "F", 0.05 * share(place, 0))
        men = ends(decided, sex, job, stratum, "M", 0.05 * share(place, 1))
        assert (gap.since_start.lower, gap.since_start.upper) == pytest.approx((women[0] - men[1], women[1] - men[0]))
    assert watch.verdicts[0].attribute == "group within job"


@pytest.mark.parametrize(
    "criterion",
    [
        INSIDE,
        eh.EqualizedOdds(within="job"),
        INSIDE & eh.DemographicParity(),
        INSIDE & eh.EqualOpportunity(within="town"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"groups": None}, {"strata": None}, {"groups": None, "strata": None}])
def test_all_rates_together_have_at_most_the_whole_error(criterion, options):
    if options.get("strata", JOBS) is not None:
        options = {"strata": {"job": JOBS, "town": (0, 1)} if "town" in criterion.strata else {"job": JOBS}} | options
    watch = watched(criterion, **options)
    decided, sex, job = rows(400)
    columns = {"job": job, "town": np.arange(400) % 2}
    watch.update(decided, sex, decided, strata={name: columns[name] for name in criterion.strata})
    total = watch._system().shares.sum()
    assert total <= 1.0 + 1e-12
    if "groups" not in options and options.get("strata"):
        assert total == pytest.approx(1.0)


def test_a_gap_inside_strata_that_cancels_overall_is_seen():
    gaps = (0.35, -0.35, 0.0)
    overall, inside = watched("demographic_parity", strata=None), watched()
    for day in range(20):
        decided, sex, job = rows(500, day, gaps)
        overall.update(decided, sex)
        inside.update(decided, sex, strata=job)
    assert (overall.state, inside.state) == ("holds", "violated")
    assert "demographic_parity on group within job" in headline(inside)
    assert "group within job" in render_watch(inside)


@pytest.mark.parametrize("strata", [None, (1, "1", 2)])
def test_strata_that_are_equal_as_text_are_told_apart(strata):
    watch = watched(eh.DemographicParity(within="job", thin=30), strata=strata, tolerance=0.25)
    decided, sex, _ = rows(600)
    job = np.array([1, "1", 2, 2, 2, 2], dtype=object)[np.arange(600) // 5 % 6]
    watch.update(decided[:150], sex[:150], strata=job[:150])
    assert set(watch.left_out) == {"job=1", "job='1'"}
    watch.update(decided[150:], sex[150:], strata=np.where(job[150:] == "1", 2, job[150:]))
    assert watch.left_out == ("job='1'",)


def test_strata_with_few_rows_are_not_judged_until_they_have_enough():
    watch = watched(eh.DemographicParity(within="job", thin=30), strata=None, tolerance=0.25)
    decided, sex, job = rows(6000)
    job[20:] = np.where(job[20:] == "nurse", "clerk", job[20:])
    for part in range(0, 6000, 1000):
        some = slice(part, part + 1000)
        watch.update(decided[some], sex[some], strata=job[some])
    assert (watch.state, watch.left_out) == ("holds", ("job=nurse",))
    assert "Not judged, because of few rows: job=nurse." in str(watch)
    assert "Not judged, because of few rows: job=nurse." in render_watch(watch)
    without = watched(INSIDE, strata=None, tolerance=0.25)
    without.update(decided, sex, strata=job)
    assert (without.state, without.left_out) == ("undecided", ())
    watch.update(*(column[:200] for column in rows(200)[:2]), strata=["nurse"] * 200)
    assert (watch.state, watch.left_out) == ("undecided", ())


def test_a_group_that_has_no_rows_in_a_stratum_leaves_it_undecided():
    watch = watched(strata=None, groups=None, tolerance=0.5)
    decided, sex, job = rows(3000)
    sex[job == "nurse"] = "M"
    watch.update(decided, sex, strata=job)
    assert watch.state == "undecided"
    assert watch.gaps[2].since_start.value is None


def test_unknown_strata_are_named_or_count_in_none():
    decided, sex, job = rows(300)
    missing = [None if place == 7 else value for place, value in enumerate(job)]
    with pytest.raises(eh.InputError, match="missing in 1 rows"):
        watched().update(decided, sex, strata=missing)
    with pytest.raises(eh.InputError, match="'nurse' of 'job' is not one of this watch"):
        watched(strata=JOBS[:2]).update(decided, sex, strata=job)
    watch = watched(eh.DemographicParity(within="job", thin=5), strata=JOBS[:2])
    watch.update(decided, sex, strata=missing)
    assert watch.rows == 300
    known = np.isin(job, JOBS[:2]) & (np.arange(300) != 7)
    counted = {cell: watch._counts.total[place, 0, 0] for cell, place in watch._counts.cells.items()}
    assert sum(n for (key, _), n in counted.items() if not isinstance(key, str)) == known.sum()
    assert len(watch.gaps) == 2
    nobody = watched(eh.DemographicParity(within="job", thin=5), strata=None)
    assert nobody.update(decided, sex, strata=[None] * 300) == "undecided"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "dp"}, "strata needs a criterion with within="),
        ({"strata": {"town": ["a"]}}, "strata names 'town'; the criterion has strata of \\['job'\\]"),
        ({"criterion": INSIDE & eh.DemographicParity(within="town")}, "strata must be a dict"),
        ({"strata": []}, "strata of 'job' is empty"),
        ({"strata": ["a", "a"]}, "repeats a value"),
    ],
)
def test_strata_that_cannot_be_meant_are_refused(options, message):
    with pytest.raises(eh.InputError, match=message):
        watched(**options)


def test_update_needs_strata_only_with_within():
    decided, sex, job = rows(50)
    with pytest.raises(eh.InputError, match="pass each row's stratum"):
        watched().update(decided, sex)
    with pytest.raises(eh.InputError, match="strata needs a criterion"):
        watched("dp", strata=None).update(decided, sex, strata=job)
    with pytest.raises(eh.InputError, match="looks like a number or an identifier, not like strata"):
        watched(strata=None).update(np.tile(decided, 10), np.tile(sex, 10), strata=np.arange(500) % 250)


@pytest.mark.parametrize("strata", [None, JOBS])
def test_a_saved_watch_continues_exactly_with_late_labels(strata):
    criterion = eh.EqualizedOdds(within="job", thin=10) & INSIDE
    options = {"strata": strata, "window": 500}
    kept, once = (watched(criterion, **options) for _ in range(2))
    labels = np.random.default_rng(1).random(1200) < 0.5
    for part in range(0, 1200, 300):
        decided, sex, job = rows(300, part)
        ids = np.arange(part, part + 300)
        for watch in (kept, once):
            watch.update(decided, sex, ids=ids, strata=job)
            watch.add_labels(ids[::2], labels[ids[::2]])
        kept = eh.Watch.from_json(kept.to_json())
        assert kept.to_json() == once.to_json()
    assert kept.waiting == 600
    assert kept.verdicts == once.verdicts
    whole = watched(criterion, **options)
    whole.update(*rows(300)[:2], strata=rows(300)[2])
    assert (kept + whole).rows == 1500
    assert json.loads(kept.to_json())["version"] == 2


def test_watches_without_strata_are_written_as_before_and_two_kinds_do_not_add():
    plain = watched("dp", strata=None)
    plain.update(*rows(50)[:2])
    data = json.loads(plain.to_json())
    assert data["version"] == 1
    assert "strata" not in data
    with pytest.raises(eh.InputError, match="one has strata"):
        watched() + watched(strata=JOBS[:2])


@pytest.mark.parametrize("change", ["attributes", "cells", "strata"])
def test_a_changed_file_is_refused(change):
    watch = watched()
    watch.update(*rows(90)[:2], strata=rows(90)[2])
    data = json.loads(watch.to_json())
    if change == "attributes":
        data["attributes"][1]["within"] = "town"
    elif change == "cells":
        data["cells"][-1][1] = "F"
    else:
        data["strata"] = {"job": ["clerk", 4.5, "other"]}
    with pytest.raises(WatchFormatError):
        eh.Watch.from_json(json.dumps(data))


@pytest.mark.parametrize("given", [True, False])
def test_all_rates_of_all_strata_stay_inside_their_sequences_at_all_times(given):
    strata = tuple(range(12))
    watch = watched(groups=["F", "M"] if given else None, strata=strata if given else None)
    decided, sex, _ = rows(480)
    watch.update(decided, sex, strata=np.arange(480) % 12)
    assert ever_outside(watch._system().shares, **STREAMS) <= 0.05


def test_without_a_division_of_the_error_some_rate_would_leave_its_sequence_too_often():
    assert ever_outside(np.ones(24), **STREAMS) > 0.05
