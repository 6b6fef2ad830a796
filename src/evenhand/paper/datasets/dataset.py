"""The result of the tabular loaders, and splits of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import check_choice, check_seed, is_whole, shown
from evenhand.errors import InputError
from evenhand.inputs import as_column, as_list

Seed: TypeAlias = int | np.random.Generator | None
FloatArray: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]


class Split(NamedTuple):
    """The row numbers of three parts of a data set that share no row."""

    train: Indices
    validation: Indices
    test: Indices


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A table ready for a model, which unpacks as ``X, y, sensitive = dataset``.

    Parameters
    ----------
    name : str
        The data set's name.
    X : ndarray of shape (n, d), float64
        The features, encoded and scaled.
    y : ndarray of shape (n,), int64
        The labels, 0 or 1.
    sensitive : dict of str to ndarray of shape (n,)
        The sensitive attributes, as readable text. The paper's comes first.
    feature_names : tuple of str
        The columns of ``X``; a one-hot column is called ``"column=value"``.
    frame : mapping of str to ndarray of shape (n,)
        The columns as the source has them, before any encoding, sensitive attributes and label included.
    split_sizes : tuple of three int, or None, default=None
        The paper's numbers of training, validation and test rows.
    description : str, default=""
        Where the data comes from, and under which terms.

    Examples
    --------
    >>> from evenhand.paper.datasets import load_adult
    >>> adult = load_adult()
    >>> adult
    Dataset('adult', 45222 rows, 102 features, sensitive: sex, race)
    >>> X, y, sensitive = adult
    >>> split = adult.splits(random_state=0)
    >>> len(split.train), len(split.validation), len(split.test)
    (30000, 5000, 10222)
    >>> adult.take(split.test)
    Dataset('adult', 10222 rows, 102 features, sensitive: sex, race)
    """

    name: str
    X: FloatArray
    y: NDArray[np.int64]
    sensitive: dict[str, NDArray[np.str_]]
    feature_names: tuple[str, ...]
    frame: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    split_sizes: tuple[int, int, int] | None = None
    description: str = ""

    def __len__(self) -> int:
        return len(self.y)

    def __iter__(self) -> Iterator[Any]:
        yield from (self.X, self.y, self.sensitive)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}, {len(self)} rows, {len(self.feature_names)} features, "
            f"sensitive: {', '.join(self.sensitive)})"
        )

    @property
    def group(self) -> NDArray[np.str_]:
        """The sensitive attribute that the paper calls A: the first of ``sensitive``."""
        return next(iter(self.sensitive.values()))

    def splits(self, random_state: Seed = None, sizes: Sequence[int] | None = None) -> Split:
        """Return the rows of a random training, validation and test set.

        Parameters
        ----------
        random_state : int, Generator or None, default=None
            The same integer gives the same split.
        sizes : sequence of three int, default=None
            The numbers of rows. ``None`` uses the paper's.
        """
        if sizes is None:
            sizes = self.split_sizes
        if sizes is None:
            raise InputError(f"{self!r} has no split in the paper: pass sizes=(train, validation, test).")
        return random_split(len(self), sizes, random_state)

    def take(self, rows: ArrayLike) -> Self:
        """Return the data set of some rows only, by their numbers or a boolean mask."""
        index = row_indices(rows, len(self))
        return replace(
            self,
            X=self.X[index],
            y=self.y[index],
            sensitive=take_columns(self.sensitive, index),
            frame=take_columns(self.frame, index),
            split_sizes=None,
        )

    def as_frame(self, backend: str = "pandas") -> Any:
        """Return the unencoded columns as a data frame.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow", "modin"}, default="pandas"
            The library of the frame. It must be installed.

        Examples
        --------
        >>> from evenhand.paper.datasets import load_adult
        >>> load_adult().as_frame("polars").select("age", "sex", "income").row(0)
        (39, 'Male', '<=50K')
        """
        import narwhals.stable.v2 as nw

        check_choice(backend, "backend", ("pandas", "polars", "pyarrow", "modin"))
        try:
            return nw.from_dict(dict(self.frame), backend=backend).to_native()  # type: ignore[arg-type]
        except ImportError:
            raise InputError(f"as_frame({backend!r}) needs {backend}: pip install {backend}.") from None
        except (TypeError, ValueError) as error:
            raise InputError(f"as_frame cannot use backend={backend!r}: {error}") from None


def random_split(n_rows: int, sizes: Sequence[int], random_state: Seed) -> Split:
    """Return three random, disjoint sets of row numbers of the given sizes."""
    if np.iterable(sizes):
        sizes = as_list(sizes, "sizes")
    if not isinstance(sizes, list) or len(sizes) != 3 or any(not is_whole(size) or size < 0 for size in sizes):
        raise InputError(f"sizes must be three whole numbers (train, validation, test); got {shown(sizes)}.")
    if sum(sizes) > n_rows:
        raise InputError(f"sizes {tuple(sizes)} need {sum(sizes)} rows, but there are {n_rows}.")
    rows = as_generator(random_state).permutation(n_rows).astype(np.intp)
    train, validation, test = np.split(rows[: sum(sizes)], np.cumsum(sizes[:2]))
    return Split(train, validation, test)


def row_indices(rows: ArrayLike, n_rows: int) -> Indices:
    """Return row numbers from row numbers or a boolean mask, after checking that the rows exist."""
    index = as_column(rows, "rows")
    if index.dtype == np.bool_ and index.shape == (n_rows,):
        return np.flatnonzero(index)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise InputError(f"rows must be row numbers or a mask of {n_rows} booleans; got {index.dtype}, {index.shape}.")
    if index.size and not (-n_rows <= index.min() and index.max() < n_rows):
        raise InputError(f"rows go from {index.min()} to {index.max()}, but there are only {n_rows} rows.")
    return index.astype(np.intp)


def take_columns(columns: Mapping[str, NDArray[Any]], index: Indices) -> dict[str, NDArray[Any]]:
    """Return some rows of each column."""
    return {name: column[index] for name, column in columns.items()}


def as_generator(random_state: Seed) -> np.random.Generator:
    """Return the random generator for a seed."""
    if isinstance(random_state, np.random.RandomState):
        raise InputError("random_state must be a whole number >= 0, a Generator or None; got a RandomState.")
    return np.random.default_rng(check_seed(random_state))
