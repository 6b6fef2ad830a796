import csv
import io

import numpy as np
import pandas as pd
import pytest

from evenhand.paper.datasets import _fetch, compas, fetch_compas


@pytest.fixture(scope="module")
def cache(shared_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENHAND_DATA", str(shared_cache))
        yield shared_cache


@pytest.fixture(scope="module")
def data(cache):
    return fetch_compas()


def test_shape_labels_and_group_sizes(data):
    assert data.X.shape == (5_278, 9)
    assert data.X.dtype == np.float64
    assert data.feature_names == (
        "sex=Female",
        "sex=Male",
        "age",
        "juv_fel_count",
        "juv_misd_count",
        "juv_other_count",
        "priors_count",
        "c_charge_degree=F",
        "c_charge_degree=M",
    )
    assert np.bincount(data.y).tolist() == [2_795, 2_483]
    sizes = {
        name: dict(zip(*np.unique(column, return_counts=True), strict=True)) for name, column in data.sensitive.items()
    }
    assert sizes == {
        "race": {"African-American": 3_175, "Caucasian": 2_103},
        "sex": {"Female": 1_031, "Male": 4_247},
    }
    assert int(data.y[data.group == "African-American"].sum()) == 1_661


def test_rows_equal_an_independent_filter_of_the_raw_file(data):
    raw = pd.read_csv(io.BytesIO(_fetch.fetch_raw(compas.RAW)), keep_default_na=False, na_values=[""])
    days = raw["days_b_screening_arrest"]
    kept = raw[
        days.between(-30, 30)
        & (raw["is_recid"] != -1)
        & (raw["c_charge_degree"] != "O")
        & (raw["score_text"] != "N/A")
        & raw["race"].isin(["African-American", "Caucasian"])
    ]
    for name, column in data.frame.items():
        assert kept[name].tolist() == column.tolist()
    numbers = kept[list(compas.COUNTS)]
    expected = (numbers - numbers.mean()) / numbers.std(ddof=0)
    np.testing.assert_allclose(data.X[:, 2:7], expected, atol=1e-12)
    assert np.array_equal(data.X[:, 1] == 1, kept["sex"] == "Male")
    assert np.array_equal(data.X[:, 7] == 1, kept["c_charge_degree"] == "F")


def test_cache_has_no_names_of_people(data, cache):
    assert sorted(path.name for path in cache.iterdir() if path.name.startswith("compas")) == [compas.KEPT_FILE]
    with (cache / compas.KEPT_FILE).open() as lines:
        header, *rows = csv.reader(lines)
    assert set(header) == {*compas.FEATURES, "race", "two_year_recid"}
    assert len(rows) == 5_278
    people = {row[1] for row in csv.reader(_fetch.fetch_raw(compas.RAW).decode().splitlines())}
    assert "miguel hernandez" in people
    assert not people & {cell for row in rows for cell in row}


def test_second_time_needs_no_source(data, cache, monkeypatch):
    def refuse(file):
        raise AssertionError("a source was asked")

    monkeypatch.setattr(compas, "fetch_raw", refuse)
    assert fetch_compas().X.tobytes() == data.X.tobytes()


def test_damaged_cache_is_fetched_again(data, empty_cache):
    empty_cache.mkdir()
    damaged = empty_cache / compas.KEPT_FILE
    damaged.write_bytes(b"sex,age\nMale,1\n")
    assert np.array_equal(fetch_compas().y, data.y)
    assert damaged.stat().st_size > 100_000


def test_raw_file_put_into_the_directory_is_used(data, empty_cache, monkeypatch):
    raw = _fetch.fetch_raw(compas.RAW)
    empty_cache.mkdir()
    (empty_cache / compas.RAW.name).write_bytes(raw)

    def refuse(file):
        raise AssertionError("another source was asked")

    monkeypatch.setattr(_fetch, "_from_site", refuse)
    monkeypatch.setattr(_fetch, "_from_wheel", refuse)
    assert np.array_equal(fetch_compas().X, data.X)


def test_splits_have_the_papers_sizes(data):
    split = data.splits(random_state=0)
    assert [len(part) for part in split] == [3_166, 1_056, 1_056]
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(5_278))
