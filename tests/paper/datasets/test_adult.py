import lzma
import socket
from importlib import resources

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from evenhand.errors import InputError
from evenhand.paper.datasets import DataError, _embed_adult, adult, load_adult


@pytest.fixture(scope="module")
def data():
    return load_adult()


def test_shape_labels_and_group_sizes(data):
    assert data.X.shape == (45_222, 102)
    assert data.X.dtype == np.float64
    assert np.isfinite(data.X).all()
    assert len(data.feature_names) == len(set(data.feature_names)) == 102
    assert data.y.dtype == np.int64
    assert np.bincount(data.y).tolist() == [34_014, 11_208]
    sizes = {
        name: dict(zip(*np.unique(column, return_counts=True), strict=True)) for name, column in data.sensitive.items()
    }
    assert sizes == {
        "sex": {"Female": 14_695, "Male": 30_527},
        "race": {
            "Amer-Indian-Eskimo": 435,
            "Asian-Pac-Islander": 1_303,
            "Black": 4_228,
            "Other": 353,
            "White": 38_903,
        },
    }
    assert [int(data.y[data.group == sex].sum()) for sex in ("Female", "Male")] == [1_669, 9_539]


def test_each_source_column_has_its_number_of_features(data):
    sources = [name.partition("=")[0] for name in data.feature_names]
    assert {name: sources.count(name) for name in data.frame} == {
        "age": 1,
        "workclass": 7,
        "fnlwgt": 1,
        "education": 16,
        "education-num": 1,
        "marital-status": 7,
        "occupation": 14,
        "relationship": 6,
        "race": 5,
        "sex": 0,
        "capital-gain": 1,
        "capital-loss": 1,
        "hours-per-week": 1,
        "native-country": 41,
        "income": 0,
    }


def test_features_equal_those_of_scikit_learn(data):
    frame = data.as_frame("pandas").drop(columns=["sex", "income"])
    texts = [name for name in frame.columns if name not in adult.WHOLE_NUMBERS]
    encoder = ColumnTransformer(
        [
            ("numbers", StandardScaler(), list(adult.WHOLE_NUMBERS)),
            ("texts", OneHotEncoder(sparse_output=False), texts),
        ]
    )
    expected = encoder.fit_transform(frame)
    names = [*adult.WHOLE_NUMBERS]
    for text, values in zip(texts, encoder.named_transformers_["texts"].categories_, strict=True):
        names += [f"{text}={value}" for value in values]
    order = [data.feature_names.index(name) for name in names]
    np.testing.assert_allclose(data.X[:, order], expected, rtol=1e-12, atol=1e-12)


def test_unpacks_at_once(data):
    X, y, sensitive = data
    assert X is data.X
    assert y is data.y
    assert list(sensitive) == ["sex", "race"]


def test_splits_have_the_papers_sizes_and_share_no_row(data):
    split = data.splits(random_state=3)
    assert [len(part) for part in split] == [30_000, 5_000, 10_222]
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(45_222))
    again, other = data.splits(random_state=3), data.splits(random_state=4)
    assert all(np.array_equal(a, b) for a, b in zip(split, again, strict=True))
    assert not np.array_equal(split.train, other.train)
    assert [len(part) for part in data.splits(0, sizes=(10, 0, 5))] == [10, 0, 5]


def test_take_keeps_every_column_in_step(data):
    rows = np.array([7, 45_221, 3])
    part = data.take(rows)
    assert len(part) == 3
    assert np.array_equal(part.X, data.X[rows])
    assert np.array_equal(part.y, data.y[rows])
    assert part.frame["fnlwgt"].tolist() == data.frame["fnlwgt"][rows].tolist()
    assert part.group.tolist() == data.group[rows].tolist()
    women = data.take(data.group == "Female")
    assert set(women.group.tolist()) == {"Female"}
    assert len(women) == 14_695


@pytest.mark.parametrize("sizes", [(1, 2), (1, 2, -1), (0.6, 0.2, 0.2), (40_000, 5_000, 5_000)])
def test_sizes_that_cannot_be_are_refused(data, sizes):
    with pytest.raises(InputError, match="sizes"):
        data.splits(0, sizes=sizes)


@pytest.mark.parametrize("rows", [[45_222], [0.5], [[1, 2]], [True, False]])
def test_rows_that_do_not_exist_are_refused(data, rows):
    with pytest.raises(InputError, match="rows"):
        data.take(rows)


def test_a_part_has_no_split_of_the_papers(data):
    with pytest.raises(InputError, match="sizes="):
        data.take([1, 2, 3]).splits(0)


def test_a_seed_that_is_none_is_refused(data):
    with pytest.raises(InputError, match="random_state"):
        data.splits(random_state=-1)


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_frame_in_the_library_asked_for(data, backend):
    frame = data.as_frame(backend)
    assert type(frame).__module__.startswith(backend)
    assert frame.shape == (45_222, 15)


def test_frame_of_an_unknown_library_is_refused(data):
    with pytest.raises(InputError, match="abacus"):
        data.as_frame("abacus")


def test_loads_without_a_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert len(load_adult().y) == 45_222


def test_loads_the_same_bytes_every_time(data):
    again = load_adult()
    assert again.X.tobytes() == data.X.tobytes()
    assert again.feature_names == data.feature_names


def test_embedded_file_is_what_the_uci_files_give(shared_cache, monkeypatch, capsys):
    monkeypatch.setenv("EVENHAND_DATA", str(shared_cache))
    assert _embed_adult.main([]) == 0
    assert "has the same text" in capsys.readouterr().out


def test_embedding_writes_a_file_and_notices_a_difference(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(_embed_adult, "fetch_raw", lambda file: b"39, ?, <=50K\n28, Private, >50K.\n")
    assert _embed_adult.main([str(tmp_path / "adult.csv.xz")]) == 1
    lines = lzma.decompress((tmp_path / "adult.csv.xz").read_bytes()).decode().splitlines()
    assert lines == [_embed_adult.HEADER, "28,Private,>50K", "28,Private,>50K"]
    assert "DIFFERS" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_damaged_embedded_file_is_reported(monkeypatch, tmp_path, damage):
    content = bytearray((resources.files("evenhand.paper.datasets") / "data" / "adult.csv.xz").read_bytes())
    (tmp_path / "data").mkdir()
    if damage == "flipped":
        content[1000] ^= 1
    elif damage == "cut":
        del content[-10:]
    if damage != "gone":
        (tmp_path / "data" / "adult.csv.xz").write_bytes(content)
    monkeypatch.setattr(adult.resources, "files", lambda package: tmp_path)
    with pytest.raises(DataError, match="again"):
        load_adult()


def test_notice_names_authors_licence_and_changes():
    notice = (resources.files("evenhand.paper.datasets") / "data" / "NOTICE-ADULT").read_text()
    for needed in ("Barry Becker", "Ronny Kohavi", "10.24432/C5XW20", "CC BY 4.0", "Changes made", "45,222"):
        assert needed in notice
