"""Images that stay on disk: decoded a few batches ahead of the network, then dropped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.errors import InputError, MissingExtraError
from evenhand.inputs import as_column
from evenhand.paper.models._data import Rows

try:
    from PIL import Image
except ModuleNotFoundError as error:
    raise MissingExtraError("evenhand.paper.models", "pillow", "torch") from error

# Called with an RGB image and, while training, a generator that belongs to this row in this epoch.
Transform = Callable[[Image.Image, np.random.Generator | None], NDArray[Any]]

BATCHES_AHEAD = 2
NAMES_SHOWN = 5


def read_paths(X: Any) -> NDArray[np.object_]:
    """Return file names as an object array of text, after checking that every file exists."""
    if isinstance(X, str | Path):
        raise InputError(f"X must be a sequence of file names; got the single name {str(X)!r}.")
    column = as_column(X, "X")
    if column.dtype.kind not in "OU":
        raise InputError(f"X must be the names of image files; got an array of {column.dtype}.")
    paths = np.array([str(path) for path in column], dtype=object)
    absent = [path for path in paths if not Path(path).is_file()]
    if absent:
        raise InputError(f"{len(absent)} of {len(paths)} images do not exist: {_some(absent)}.")
    return paths


def find_unreadable(paths: Any, *, workers: int = 2) -> list[tuple[str, str]]:
    """Decode every image once, and return the name and the reason of each that cannot be decoded.

    Parameters
    ----------
    paths : sequence of file names
        The images.
    workers : int, default=2
        Threads that decode.

    Returns
    -------
    list of (name, reason)
        Empty if all can be decoded.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from evenhand.paper.models import find_unreadable
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = pathlib.Path(directory, "half.jpg")
    ...     _ = path.write_bytes(b"not an image")
    ...     [(pathlib.Path(name).name, reason) for name, reason in find_unreadable([path])]
    [('half.jpg', 'UnidentifiedImageError')]
    """
    names = read_paths(paths)
    with ThreadPoolExecutor(workers) as pool:
        reasons = pool.map(_reason_unreadable, names)
        return [(name, reason) for name, reason in zip(names, reasons, strict=True) if reason is not None]


def _reason_unreadable(path: str) -> str | None:
    try:
        _open(path)
    except Exception as error:
        return type(error).__name__
    return None


def _open(path: str) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


class ImageFiles:
    """Image files as a network's inputs. Memory does not grow with their number.

    Parameters
    ----------
    paths : array of str
        The files.
    transform : callable
        Turns an image into an array; all arrays of one batch have the same shape.
    workers : int
        Threads that decode. Pillow decodes outside the interpreter's lock.
    """

    def __init__(self, paths: NDArray[np.object_], transform: Transform, workers: int) -> None:
        self.paths = paths
        self.transform = transform
        self.workers = workers

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, chunks: Sequence[Rows], augmentation: tuple[int, int] | None = None) -> Iterator[Tensor]:
        """Yield each chunk's images, while the next chunks are being decoded."""
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="evenhand-images")
        try:
            ahead: deque[list[Future[Any]]] = deque()
            for rows in chunks:
                ahead.append([pool.submit(self._load, row, augmentation) for row in rows])
                if len(ahead) > BATCHES_AHEAD:
                    yield self._collect(ahead.popleft())
            while ahead:
                yield self._collect(ahead.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _load(self, row: int, augmentation: tuple[int, int] | None) -> NDArray[Any] | tuple[str, str]:
        generator = None if augmentation is None else np.random.default_rng([*augmentation, row])
        try:
            image = _open(self.paths[row])
        except Exception as error:
            return str(self.paths[row]), type(error).__name__
        return self.transform(image, generator)

    def _collect(self, futures: list[Future[Any]]) -> Tensor:
        images = [future.result() for future in futures]
        broken = [f"{image[0]} ({image[1]})" for image in images if isinstance(image, tuple)]
        if broken:
            raise InputError(
                f"{len(broken)} images of one batch cannot be decoded: {_some(broken)}. "
                "evenhand.paper.models.find_unreadable lists all such images: leave them out."
            )
        return torch.from_numpy(np.stack(images))


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class CentreSquare:
    """The paper's preprocessing: a centre square, resized, and mirrored at random.

    Parameters
    ----------
    size : int
        Pixels of the result's side.
    crop : float
        The square's side as a share of the image's shorter side.
    flip : bool
        Whether half of the images are mirrored while training.
    """

    size: int
    crop: float
    flip: bool

    def __call__(self, image: Image.Image, generator: np.random.Generator | None) -> NDArray[np.uint8]:
        """Return the pixels, of shape (size, size, 3)."""
        side = max(1, round(self.crop * min(image.size)))
        left, top = ((length - side) // 2 for length in image.size)
        square = image.crop((left, top, left + side, top + side))
        if side != self.size:
            square = square.resize((self.size, self.size), Image.Resampling.BILINEAR)
        pixels = np.asarray(square)
        mirrored = self.flip and generator is not None and generator.random() < 0.5
        return np.ascontiguousarray(pixels[:, ::-1]) if mirrored else pixels
