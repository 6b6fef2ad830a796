import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evenhand.errors import EvenhandWarning, InputError, MissingExtraError
from evenhand.paper.datasets import DataError, celeba, load_celeba

ATTRIBUTES = ("5_o_Clock_Shadow", "Attractive", "Bags_Under_Eyes", "Big_Nose", "Male", "Young")
PARTITION = np.array([0] * 12 + [1] * 4 + [2] * 4)
SIGNS = np.random.default_rng(0).integers(0, 2, size=(20, len(ATTRIBUTES))) * 2 - 1
NAMES = [f"{number:06d}.jpg" for number in range(1, 21)]


def write_text_tables(attributes: Path, partition: Path) -> None:
    attributes.parent.mkdir(parents=True, exist_ok=True)
    partition.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{name} " + " ".join(f"{sign:2d}" for sign in signs) for name, signs in zip(NAMES, SIGNS, strict=True)]
    attributes.write_text("\n".join([str(len(NAMES)), " ".join(ATTRIBUTES) + " ", *rows, ""]))
    partition.write_text("".join(f"{name} {part}\n" for name, part in zip(NAMES, PARTITION, strict=True)))


def write_csv_tables(attributes: Path, partition: Path) -> None:
    rows = [",".join([name, *map(str, signs)]) for name, signs in zip(NAMES, SIGNS, strict=True)]
    attributes.write_text("\n".join([",".join(["image_id", *ATTRIBUTES]), *rows, ""]))
    rows = [f"{name},{part}" for name, part in zip(NAMES, PARTITION, strict=True)]
    partition.write_text("\n".join(["image_id,partition", *rows, ""]))


def write_images(directory: Path, *, size=(178, 218), suffix=".jpg", names=NAMES) -> None:
    directory.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for name in names:
        pixels = rng.integers(0, 256, size=(size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save((directory / name).with_suffix(suffix))


@pytest.fixture
def directory(tmp_path):
    write_text_tables(tmp_path / "list_attr_celeba.txt", tmp_path / "list_eval_partition.txt")
    write_images(tmp_path / "img_align_celeba")
    return tmp_path


def assert_is_all_of_it(data, image_directory, suffix=".jpg"):
    assert data.X.tolist() == [str((image_directory / name).with_suffix(suffix)) for name in NAMES]
    assert np.array_equal(data.y, SIGNS[:, ATTRIBUTES.index("Attractive")] == 1)
    assert np.array_equal(data.group == "Male", SIGNS[:, ATTRIBUTES.index("Male")] == 1)
    assert set(data.group.tolist()) == {"Male", "not Male"}
    assert np.array_equal(data.partition, PARTITION)
    assert data.absent == ()


def test_published_layout(directory):
    data = load_celeba(directory)
    assert_is_all_of_it(data, directory / "img_align_celeba")
    X, y, sensitive = data
    assert X is data.X
    assert y.dtype == np.int64
    assert list(sensitive) == ["Male"]
    assert repr(data) == "CelebA(20 images, target: Attractive, sensitive: Male)"


def test_downloaded_folders_layout(tmp_path):
    write_text_tables(tmp_path / "Anno" / "list_attr_celeba.txt", tmp_path / "Eval" / "list_eval_partition.txt")
    write_images(tmp_path / "Img" / "img_align_celeba_png", suffix=".png")
    assert_is_all_of_it(load_celeba(tmp_path), tmp_path / "Img" / "img_align_celeba_png", ".png")


def test_kaggle_layout(tmp_path):
    write_csv_tables(tmp_path / "list_attr_celeba.csv", tmp_path / "list_eval_partition.csv")
    write_images(tmp_path / "img_align_celeba" / "img_align_celeba")
    assert_is_all_of_it(load_celeba(str(tmp_path)), tmp_path / "img_align_celeba" / "img_align_celeba")


def test_images_elsewhere_and_of_another_size(directory, tmp_path_factory):
    small = tmp_path_factory.mktemp("elsewhere") / "small"
    write_images(small, size=(64, 48), suffix=".png")
    data = load_celeba(directory, images=small)
    assert_is_all_of_it(data, small, ".png")
    assert data.image(0).shape == (48, 64, 3)


def test_relative_directory_gives_paths_that_stay_valid(directory, monkeypatch):
    monkeypatch.chdir(directory.parent)
    data = load_celeba(directory.name)
    monkeypatch.chdir("/")
    assert data.image(0).shape == (218, 178, 3)


def test_other_targets_and_several_sensitive_attributes(directory):
    data = load_celeba(directory, target="Big_Nose", sensitive=["Young", "Male"])
    assert np.array_equal(data.y, SIGNS[:, ATTRIBUTES.index("Big_Nose")] == 1)
    assert list(data.sensitive) == ["Young", "Male"]
    assert np.array_equal(data.sensitive["Young"] == "not Young", SIGNS[:, ATTRIBUTES.index("Young")] == -1)


def test_official_split_of_a_directory(directory):
    split = load_celeba(directory).splits()
    assert [part.tolist() for part in split] == [list(range(12)), list(range(12, 16)), list(range(16, 20))]


def test_all_of_celeba_has_the_official_split(tmp_path, monkeypatch):
    sizes = (162_770, 19_867, 19_962)
    names = [f"{number:06d}.jpg" for number in range(1, 202_600)]
    parts = np.repeat([0, 1, 2], sizes).tolist()
    header = "202599\n" + " ".join(f"Attribute_{number}" for number in range(38)) + " Attractive Male\n"
    signs = [" ".join(["-1"] * 38 + pair) for pair in (["-1", " 1"], [" 1", "-1"], [" 1", " 1"])]
    rows = "".join(f"{name} {signs[number % 3]}\n" for number, name in enumerate(names))
    (tmp_path / "list_attr_celeba.txt").write_text(header + rows)
    (tmp_path / "list_eval_partition.txt").write_text(
        "".join(f"{name} {part}\n" for name, part in zip(names, parts, strict=True))
    )
    (tmp_path / "img_align_celeba").mkdir()
    monkeypatch.setattr(celeba, "_image_files", lambda directory: {name[:-4]: name for name in names})
    data = load_celeba(tmp_path)
    assert len(data) == 202_599
    assert tuple(len(part) for part in data.splits()) == sizes
    assert int(data.y.sum()) == 2 * 202_599 // 3
    assert int((data.group == "Male").sum()) == 2 * 202_599 // 3


def test_absent_images_are_left_out_with_a_warning(directory):
    for number in (1, 13, 20):
        (directory / "img_align_celeba" / NAMES[number - 1]).unlink()
    with pytest.warns(EvenhandWarning, match=r"3 of 20 images.*000001\.jpg, 000013\.jpg, 000020\.jpg") as caught:
        data = load_celeba(directory)
    assert caught[0].filename == __file__
    assert data.absent == ("000001.jpg", "000013.jpg", "000020.jpg")
    kept = [row for row in range(20) if row not in (0, 12, 19)]
    assert np.array_equal(data.y, SIGNS[kept, ATTRIBUTES.index("Attractive")] == 1)
    assert [Path(path).name for path in data.X] == [NAMES[row] for row in kept]
    assert [len(part) for part in data.splits()] == [11, 3, 3]


def test_loading_reads_no_image(directory):
    for name in NAMES:
        (directory / "img_align_celeba" / name).write_bytes(b"")
    assert len(load_celeba(directory)) == 20


def test_image_is_its_pixels(tmp_path):
    pixels = np.random.default_rng(2).integers(0, 256, size=(30, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    assert np.array_equal(celeba.read_image(tmp_path / "one.png"), pixels)


@pytest.mark.parametrize(("width", "height"), [(40, 60), (60, 40), (40, 40)])
def test_image_of_a_size_is_the_centre_square(tmp_path, width, height):
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    top, left = (height - 40) // 2, (width - 40) // 2
    pixels[top : top + 40, left : left + 40] = [10, 200, 30]
    Image.fromarray(pixels).save(tmp_path / "one.png")
    small = celeba.read_image(tmp_path / "one.png", size=16)
    assert small.shape == (16, 16, 3)
    assert (small == [10, 200, 30]).all()


def test_grey_image_has_three_channels(tmp_path):
    Image.new("L", (10, 12), 77).save(tmp_path / "grey.png")
    image = celeba.read_image(tmp_path / "grey.png")
    assert image.shape == (12, 10, 3)
    assert (image == 77).all()


def corrupt_some(directory: Path) -> list[str]:
    images = directory / "img_align_celeba"
    (images / NAMES[2]).write_bytes(b"")
    (images / NAMES[5]).write_bytes(b"<html>404</html>")
    whole = (images / NAMES[9]).read_bytes()
    (images / NAMES[9]).write_bytes(whole[: len(whole) // 2])
    return [NAMES[2], NAMES[5], NAMES[9]]


def test_corrupt_image_is_an_error_that_names_it(directory):
    names = corrupt_some(directory)
    data = load_celeba(directory)
    for row, name in zip((2, 5, 9), names, strict=True):
        with pytest.raises(DataError, match=f"{name} is corrupt"):
            data.image(row)
    assert data.image(3).shape == (218, 178, 3)
    assert data.corrupt().tolist() == [2, 5, 9]


def test_verify_leaves_corrupt_images_out_and_names_them(directory):
    names = corrupt_some(directory)
    with pytest.warns(EvenhandWarning, match="3 of 20 images are corrupt.*" + ", ".join(names)) as caught:
        data = load_celeba(directory, verify=True)
    assert caught[0].filename == __file__
    assert len(data) == 17
    assert data.corrupt().size == 0
    kept = [row for row in range(20) if row not in (2, 5, 9)]
    assert np.array_equal(data.partition, PARTITION[kept])


def test_verify_says_nothing_where_all_is_well(directory):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_celeba(directory, verify=True)) == 20


def test_image_that_vanished_is_an_error(directory):
    data = load_celeba(directory)
    (directory / "img_align_celeba" / NAMES[0]).unlink()
    with pytest.raises(DataError, match="no longer exists"):
        data.image(0)


def test_take_keeps_every_column_in_step(directory):
    data = load_celeba(directory)
    part = data.take([19, 0])
    assert part.X.tolist() == [data.X[19], data.X[0]]
    assert part.partition.tolist() == [2, 0]
    assert part.y.tolist() == [data.y[19], data.y[0]]
    assert part.group.tolist() == [data.group[19], data.group[0]]


def test_missing_pillow_names_the_extra(directory, monkeypatch):
    data = load_celeba(directory)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match="Pillow"):
        data.image(0)


def test_size_of_no_pixels_is_refused(directory):
    with pytest.raises(InputError, match="size"):
        load_celeba(directory).image(0, size=0)


def test_directory_that_is_not_there_says_where_celeba_comes_from(tmp_path):
    with pytest.raises(DataError, match=r"(?s)nowhere is not a directory.*non-commercial.*mmlab"):
        load_celeba(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("hidden", "named"),
    [
        (["list_attr_celeba.txt"], r"list_attr_celeba\.txt \(or \.csv\)"),
        (["list_eval_partition.txt"], r"list_eval_partition\.txt \(or \.csv\)"),
        (["img_align_celeba"], "the images' directory img_align_celeba"),
        (["list_attr_celeba.txt", "img_align_celeba"], "list_attr.*, the images' directory img_align_celeba"),
    ],
)
def test_missing_parts_are_named(directory, hidden, named):
    for part in hidden:
        (directory / part).rename(directory / f"hidden_{part}")
    with pytest.raises(DataError, match=f"does not have {named}\\. CelebA is for non-commercial research"):
        load_celeba(directory)


def test_missing_image_directory_is_named(directory):
    with pytest.raises(DataError, match="does not have the directory /nowhere"):
        load_celeba(directory, images="/nowhere")


def test_no_image_at_all_is_an_error(directory):
    for name in NAMES:
        (directory / "img_align_celeba" / name).rename(directory / name)
    with pytest.raises(DataError, match="None of the 20 images"):
        load_celeba(directory)


@pytest.mark.parametrize(("name", "hint"), [("Bag_Under_Eyes", "Bags_Under_Eyes"), ("Zzz", "Attractive, Bags")])
def test_unknown_attribute_is_refused_with_a_hint(directory, name, hint):
    with pytest.raises(InputError, match=f"{name}.*did you mean .*{hint}"):
        load_celeba(directory, target=name)


def test_no_sensitive_attribute_is_refused(directory):
    with pytest.raises(InputError, match="sensitive is empty"):
        load_celeba(directory, sensitive=[])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "first line"),
        (lambda text: "20\n", "no names of attributes"),
        (lambda text: text[: len(text) // 2], r"damaged in line|cut short"),
        (lambda text: "\n".join(text.splitlines()[:-3]), "says 20 rows, but it has 17"),
        (
            lambda text: text.replace("000004.jpg -1", "000004.jpg ??").replace("000004.jpg  1", "000004.jpg ??"),
            "line 6",
        ),
        (lambda text: text.replace("000004.jpg", "000004.jpg 1"), "line 6"),
    ],
)
def test_damaged_attribute_table_is_reported(directory, damage, message):
    table = directory / "list_attr_celeba.txt"
    table.write_text(damage(table.read_text()))
    with pytest.raises(DataError, match=message):
        load_celeba(directory, target="5_o_Clock_Shadow")


def test_binary_table_is_reported(directory):
    (directory / "list_attr_celeba.txt").write_bytes(bytes(range(128, 256)))
    with pytest.raises(DataError, match="damaged"):
        load_celeba(directory)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace("000003.jpg 0", "000003.jpg 7"), "line 3"),
        (lambda text: text.replace("000003.jpg 0\n", ""), r"1 images \(the first is 000003.jpg\)"),
        (lambda text: text[:-3], "damaged in line 20|the first is 000020"),
    ],
)
def test_damaged_partition_table_is_reported(directory, damage, message):
    table = directory / "list_eval_partition.txt"
    table.write_text(damage(table.read_text()))
    with pytest.raises(DataError, match=message):
        load_celeba(directory)
