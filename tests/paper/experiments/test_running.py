from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from evenhand.errors import InputError
from evenhand.paper.experiments.running import Kept, Store, Unit, keys_of, run


def make(states, needed, *, value):
    return Kept([{"value": value, "third": 1 / 3}], {"square": np.full(3, value**2)})


def add(states, needed, *, more):
    return Kept([{"sum": float(sum(found.arrays["square"].sum() for found in needed)) + more}])


def fail(states, needed):
    raise RuntimeError("stopped")


UNITS = [
    Unit("one", make, {"value": 1}),
    Unit("two", make, {"value": 2}),
    Unit("sum", add, {"more": 0.5}, ("one", "two")),
]


@pytest.mark.parametrize("jobs", [1, 2])
def test_units_see_what_they_need_and_nothing_is_computed_twice(tmp_path, jobs):
    lines = []
    kept = run(UNITS, Store(tmp_path), jobs=jobs, say=lines.append)
    assert kept["sum"].records == [{"sum": 15.5}]
    assert list(kept) == ["one", "two", "sum"]
    assert len(lines) == 3
    again = []
    found = run(UNITS, Store(tmp_path), say=again.append)
    assert [found[name].records for name in found] == [kept[name].records for name in kept]
    np.testing.assert_array_equal(found["two"].arrays["square"], [4, 4, 4])
    assert again == ["3 of 3 pieces are there already"]
    assert not list((tmp_path / "states").iterdir())


def test_what_was_done_before_a_failure_is_kept(tmp_path):
    with pytest.raises(RuntimeError, match="stopped"):
        run([*UNITS[:2], Unit("bad", fail, {}), UNITS[2]], Store(tmp_path))
    lines = []
    run(UNITS, Store(tmp_path), say=lines.append)
    assert lines[0] == "2 of 3 pieces are there already"


def test_other_options_are_other_files_for_everything_that_follows():
    changed = [Unit("one", make, {"value": 7}), *UNITS[1:]]
    before, after = keys_of(UNITS), keys_of(changed)
    assert {name: before[name] == after[name] for name in before} == {"one": False, "two": True, "sum": False}


def test_a_damaged_piece_is_named(tmp_path):
    run(UNITS, Store(tmp_path))
    next((tmp_path / "units").glob("sum*.json")).write_text('{"records": ')
    with pytest.raises(InputError, match=r"sum-.*damaged.*delete it"):
        run(UNITS, Store(tmp_path))


def blas_threads(states, needed):
    return Kept([{"threads": max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")}])


def test_linear_algebra_has_one_thread_whatever_the_jobs(tmp_path):
    found = [
        run([Unit("one", blas_threads, {}), Unit("two", blas_threads, {})], Store(tmp_path / str(jobs)), jobs=jobs)
        for jobs in (1, 2)
    ]
    assert [kept.records for by_name in found for kept in by_name.values()] == [[{"threads": 1}]] * 4
