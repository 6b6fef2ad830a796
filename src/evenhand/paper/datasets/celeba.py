"""CelebA from a local directory: attributes are loaded at once, images on request."""

from __future__ import annotations

import difflib
import os
import struct
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import check_flag, check_path, check_text, check_whole
from evenhand.errors import EvenhandWarning, InputError, require
from evenhand.inputs import as_list
from evenhand.paper.datasets._fetch import DataError
from evenhand.paper.datasets.dataset import Split, row_indices, take_columns

ATTRIBUTE_TABLES = ("list_attr_celeba.txt", "list_attr_celeba.csv")
PARTITION_TABLES = ("list_eval_partition.txt", "list_eval_partition.csv")
TABLE_PLACES = (".", "Anno", "Eval", "celeba")
IMAGE_PLACES = (
    "img_align_celeba/img_align_celeba",
    "img_align_celeba",
    "Img/img_align_celeba",
    "celeba/img_align_celeba",
    "img_align_celeba_png",
    "Img/img_align_celeba_png",
)
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
LARGEST_SIDE = 10_000
ORIGIN = (
    "CelebA is for non-commercial research only, so evenhand never downloads it: accept its terms at "
    "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, and unpack its aligned images, attribute table and "
    "evaluation partition there."
)


@dataclass(frozen=True, eq=False, repr=False)
class CelebA:
    """The rows of CelebA whose image exists, which unpack as ``X, y, sensitive = dataset``.

    Parameters
    ----------
    X : ndarray of shape (n,), object
        The path of each row's image, as text. Images are only read by :meth:`image`.
    y : ndarray of shape (n,), int64
        1 if the target attribute is present, else 0.
    sensitive : dict of str to ndarray of shape (n,)
        Each sensitive attribute, as text: ``"Male"`` or ``"not Male"``.
    target : str
        The target attribute.
    partition : ndarray of shape (n,), int8
        The official split: 0 is training, 1 validation, 2 test.
    absent : tuple of str
        The listed images that do not exist.
    """

    X: NDArray[np.object_]
    y: NDArray[np.int64]
    sensitive: dict[str, NDArray[np.str_]]
    target: str
    partition: NDArray[np.int8]
    absent: tuple[str, ...]
    name: str = "celeba"

    def __len__(self) -> int:
        return len(self.y)

    def __iter__(self) -> Iterator[Any]:
        yield from (self.X, self.y, self.sensitive)

    def __repr__(self) -> str:
        return f"CelebA({len(self)} images, target: {self.target}, sensitive: {', '.join(self.sensitive)})"

    @property
    def group(self) -> NDArray[np.str_]:
        """The sensitive attribute that the paper calls A: the first of ``sensitive``."""
        return next(iter(self.sensitive.values()))

    def splits(self) -> Split:
        """Return the rows of the official training, validation and test set."""
        return Split(*(np.flatnonzero(self.partition == part) for part in range(3)))

    def take(self, rows: ArrayLike) -> Self:
        """Return the data set of some rows only, by their numbers or a boolean mask."""
        index = row_indices(rows, len(self))
        return replace(
            self,
            X=self.X[index],
            y=self.y[index],
            sensitive=take_columns(self.sensitive, index),
            partition=self.partition[index],
        )

    def image(self, row: int, size: int | None = None) -> NDArray[np.uint8]:
        """Return one row's image; see :func:`read_image`."""
        check_whole(row, "row", at_least=-len(self), at_most=len(self) - 1)
        return read_image(self.X[row], size)

    def corrupt(self) -> NDArray[np.intp]:
        """Return the rows whose image cannot be decoded, after reading every image once."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return np.flatnonzero(list(pool.map(_is_corrupt, self.X)))


def load_celeba(
    directory: str | os.PathLike[str],
    target: str = "Attractive",
    sensitive: str | Sequence[str] = "Male",
    *,
    images: str | os.PathLike[str] | None = None,
    verify: bool = False,
) -> CelebA:
    r"""Load CelebA's attributes, official split and image paths from a directory.

    Parameters
    ----------
    directory : path
        It has ``list_attr_celeba`` and ``list_eval_partition`` (``.txt`` as published, in ``Anno`` and
        ``Eval`` too, or ``.csv`` as on Kaggle) and the images in ``img_align_celeba``. Images may have any
        size, and may be PNG; rows whose image is absent are left out, and a warning says how many.
    target : str, default="Attractive"
        The attribute to predict.
    sensitive : str or sequence of str, default="Male"
        The sensitive attributes.
    images : path, default=None
        The directory of the images, if it is elsewhere.
    verify : bool, default=False
        Whether to decode every image first, and to leave out the corrupt ones with a warning that names them. This
        takes minutes for all of CelebA; otherwise a corrupt image is an error when it is read.

    Returns
    -------
    CelebA
        202,599 rows (162,770 for training, 19,867 for validation, 19,962 for testing) if all images exist.

    Raises
    ------
    DataError
        A table or all images are missing, or a table is damaged.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> temporary = tempfile.TemporaryDirectory()
    >>> directory = pathlib.Path(temporary.name)
    >>> _ = (directory / "list_attr_celeba.csv").write_text(
    ...     "image_id,Attractive,Male\n000001.jpg,1,-1\n000002.jpg,-1,1\n")
    >>> _ = (directory / "list_eval_partition.csv").write_text(
    ...     "image_id,partition\n000001.jpg,0\n000002.jpg,2\n")
    >>> (directory / "img_align_celeba").mkdir()
    >>> for name in ("000001.jpg", "000002.jpg"):
    ...     (directory / "img_align_celeba" / name).touch()
    >>> celeba = load_celeba(directory)
    >>> celeba
    CelebA(2 images, target: Attractive, sensitive: Male)
    >>> celeba.y, celeba.group
    (array([1, 0]), array(['not Male', 'Male'], dtype='<U8'))
    >>> temporary.cleanup()
    """
    root = check_path(directory, "directory").expanduser().absolute()
    if images is not None:
        check_path(images, "images")
    check_flag(verify, "verify")
    check_text(target, "target", "the name of an attribute")
    if not root.is_dir():
        raise DataError(f"{root} is not a directory. {ORIGIN}")
    attribute_table, partition_table, image_directory = _find_parts(root, images)
    groups = (sensitive,) if isinstance(sensitive, str) else tuple(as_list(sensitive, "sensitive"))
    for group in groups:
        check_text(group, "sensitive", "the name of an attribute, or several")
    if not groups:
        raise InputError("sensitive is empty: name at least one attribute of CelebA.")
    names, present = _read_attributes(attribute_table, (target, *groups))
    partition = _read_partition(partition_table, names)
    files = _image_files(image_directory)
    found = np.array([_stem(name) in files for name in names], dtype=bool)
    if not found.any():
        raise DataError(f"None of the {len(names)} images of {attribute_table} is in {image_directory}. {ORIGIN}")
    kept = np.flatnonzero(found)
    paths = np.array([f"{image_directory}{os.sep}{files[_stem(names[row])]}" for row in kept], dtype=object)
    absent = tuple(names[row] for row in np.flatnonzero(~found))
    if absent:
        _warn_left_out(f"{len(absent)} of {len(names)} images are not in {image_directory}", absent)
    data = CelebA(
        X=paths,
        y=present[kept, 0].astype(np.int64),
        sensitive={
            group: np.where(present[kept, column], group, f"not {group}")
            for column, group in enumerate(groups, start=1)
        },
        target=target,
        partition=partition[kept],
        absent=absent,
    )
    if verify and (corrupt := data.corrupt()).size:
        lost = [Path(data.X[row]).name for row in corrupt]
        _warn_left_out(f"{len(lost)} of {len(data)} images are corrupt", lost)
        data = data.take(np.delete(np.arange(len(data)), corrupt))
    return data


def read_image(path: str | os.PathLike[str], size: int | None = None) -> NDArray[np.uint8]:
    """Return an image as an array of shape (height, width, 3).

    Parameters
    ----------
    path : path
        The image file.
    size : int or None, default=None
        The side of the requested square: the largest square in the middle of the image is scaled to it. ``None`` leaves
        the image unchanged.

    Raises
    ------
    DataError
        The file is missing, corrupt or not an image. The message names it.
    """
    if size is not None:
        check_whole(size, "size (in pixels)", at_least=1, at_most=LARGEST_SIDE)
    Image = require("Reading images", "torch", "PIL.Image", package="Pillow")
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except FileNotFoundError:
        raise DataError(f"The image {os.fspath(path)} no longer exists: load the data set again.") from None
    except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        raise DataError(
            f"The image {os.fspath(path)} is corrupt ({error}): get it again, or leave it out by "
            "load_celeba(..., verify=True)."
        ) from None
    if size is not None:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        square = image.crop((left, top, left + side, top + side))
        image = square.resize((size, size), Image.Resampling.BILINEAR)
    return np.array(image, dtype=np.uint8)


def _find_parts(root: Path, images: str | os.PathLike[str] | None) -> tuple[Path, Path, Path]:
    attributes = _first(root / place / name for name in ATTRIBUTE_TABLES for place in TABLE_PLACES)
    partition = _first(root / place / name for name in PARTITION_TABLES for place in TABLE_PLACES)
    places = [root / place for place in IMAGE_PLACES] if images is None else [Path(images).expanduser()]
    directory = next((place.absolute() for place in places if place.is_dir()), None)
    if attributes is None or partition is None or directory is None:
        parts = {
            "list_attr_celeba.txt (or .csv)": attributes,
            "list_eval_partition.txt (or .csv)": partition,
            "the images' directory img_align_celeba" if images is None else f"the directory {images}": directory,
        }
        missing = [what for what, part in parts.items() if part is None]
        raise DataError(f"{root} does not have {', '.join(missing)}. {ORIGIN}")
    return attributes, partition, directory


def _first(candidates: Iterator[Path]) -> Path | None:
    return next((path for path in candidates if path.is_file()), None)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    separator = "," if path.suffix == ".csv" else None
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if line := line.strip():
                yield number, line.split(separator)


def _read_attributes(path: Path, wanted: Sequence[str]) -> tuple[list[str], NDArray[np.bool_]]:
    rows = _rows(path)
    promised = _count_line(path, rows) if path.suffix == ".txt" else None
    _, header = next(rows, (0, []))
    known = header if promised is not None else header[1:]
    if not known:
        raise DataError(f"{path} is damaged: it has no names of attributes. {ORIGIN}")
    for attribute in wanted:
        if attribute not in known:
            close = difflib.get_close_matches(attribute, known, n=1) or known
            raise InputError(f"{attribute!r} is not an attribute of {path}; did you mean {', '.join(close)}?")
    at = [1 + known.index(attribute) for attribute in wanted]
    width = 1 + len(known)
    meaning = {"1": True, "-1": False, "0": False}
    names, values = [], []
    for number, row in rows:
        if len(row) != width or any(row[column] not in meaning for column in at):
            raise DataError(
                f"{path} is damaged in line {number}: expected a name and {width - 1} values of 1 or -1. {ORIGIN}"
            )
        names.append(row[0])
        values.append([meaning[row[column]] for column in at])
    if promised not in (None, len(names)):
        raise DataError(f"{path} is cut short: its first line says {promised} rows, but it has {len(names)}. {ORIGIN}")
    return names, np.array(values, dtype=np.bool_).reshape(len(names), len(wanted))


def _count_line(path: Path, rows: Iterator[tuple[int, list[str]]]) -> int:
    _, line = next(rows, (0, [""]))
    if len(line) != 1 or not line[0].isdecimal():
        raise DataError(f"{path} is damaged: its first line must be the number of rows. {ORIGIN}")
    return int(line[0])


def _read_partition(path: Path, names: Sequence[str]) -> NDArray[np.int8]:
    parts = {}
    for number, row in _rows(path):
        if number == 1 and path.suffix == ".csv":
            continue
        if len(row) != 2 or row[1] not in ("0", "1", "2"):
            raise DataError(f"{path} is damaged in line {number}: expected a name and 0, 1 or 2. {ORIGIN}")
        parts[row[0]] = int(row[1])
    lacking = [name for name in names if name not in parts]
    if lacking:
        raise DataError(f"{path} has no partition for {len(lacking)} images (the first is {lacking[0]}). {ORIGIN}")
    return np.array([parts[name] for name in names], dtype=np.int8)


def _image_files(directory: Path) -> dict[str, str]:
    with os.scandir(directory) as entries:
        return {_stem(entry.name): entry.name for entry in entries if entry.name.lower().endswith(IMAGE_SUFFIXES)}


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _is_corrupt(path: str) -> bool:
    try:
        read_image(path)
    except DataError:
        return True
    return False


def _warn_left_out(cause: str, names: Sequence[str]) -> None:
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    warnings.warn(f"CelebA: {cause}, and their rows are left out: {shown}", EvenhandWarning, stacklevel=3)
