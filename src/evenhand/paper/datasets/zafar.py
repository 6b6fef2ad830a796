"""The paper's synthetic distribution (eq. zafar_synthetic), where p(Y, A | x) is known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from evenhand.arguments import check_flag, check_whole
from evenhand.errors import InputError
from evenhand.inputs import as_float_array
from evenhand.paper.datasets.dataset import Dataset, FloatArray, Indices, Seed, as_generator, row_indices

# Cells in the paper's order: (Y, A) = (1, 0), (1, 1), (0, 0), (0, 1).
CELL_LABEL = np.array([1, 1, 0, 0])
CELL_GROUP = np.array([0, 1, 0, 1])
CELL_MEAN = np.array([[2.0, 0.0], [2.0, 3.0], [-1.0, -3.0], [-1.0, 0.0]])
CELL_SIZE = np.array([500, 100, 100, 500])
VARIANCE, COVARIANCE = 5.0, 1.0
DETERMINANT = VARIANCE**2 - COVARIANCE**2


@dataclass(frozen=True, eq=False, repr=False)
class ZafarDataset(Dataset):
    """A sample of the synthetic distribution, with the true probabilities of its points.

    Parameters
    ----------
    p_joint : ndarray of shape (n, 2, 2)
        The true p(Y = y, A = a | x) of each row; axis 1 is (negative, positive), axis 2 the groups 0 and 1.
    """

    p_joint: FloatArray = field(default_factory=lambda: np.empty((0, 2, 2)))

    @property
    def p_y(self) -> FloatArray:
        """The true p(Y = 1 | x) of each row."""
        return self.p_joint[:, 1, 0] + self.p_joint[:, 1, 1]

    @property
    def p_group(self) -> FloatArray:
        """The true p(A = a | x) of each row, of shape (n, 2)."""
        return self.p_joint[:, 0] + self.p_joint[:, 1]

    def true_joint(self, X: ArrayLike) -> FloatArray:
        """Return the true p(Y, A | x) of any points; see :func:`evenhand.paper.datasets.zafar.true_joint`."""
        return true_joint(X)

    def take(self, rows: ArrayLike) -> Self:
        """Return the data set of some rows only, by their numbers or a boolean mask."""
        return replace(super().take(rows), p_joint=self.p_joint[row_indices(rows, len(self))])


def make_zafar(n: int = 1200, random_state: Seed = None, *, iid: bool = False) -> ZafarDataset:
    """Draw points of the synthetic distribution with Y and A correlated, together with the true p(Y, A | x).

    Each cell is a normal distribution with the covariance [5, 1; 1, 5]. Its mean is [2, 0] for (Y, A) = (1,
    0), [2, 3] for (1, 1), [-1, -3] for (0, 0) and [-1, 0] for (0, 1). Their sizes are as 500 : 100 : 100 :
    500.

    Parameters
    ----------
    n : int, default=1200
        The number of points.
    random_state : int, Generator or None, default=None
        The same integer gives exactly the same points.
    iid : bool, default=False
        Whether each point's cell is also drawn at random. Otherwise the sizes of the cells are exact (500, 100, 100 and
        500 for n = 1200 as in the paper, rounded for other n), and only their order is random.

    Returns
    -------
    ZafarDataset
        ``sensitive`` has ``group``, "0" or "1"; ``p_joint``, ``p_y`` and ``p_group`` are the true probabilities.

    Examples
    --------
    >>> from evenhand.paper.datasets import make_zafar
    >>> data = make_zafar(random_state=0)
    >>> data
    ZafarDataset('zafar', 1200 rows, 2 features, sensitive: group)
    >>> int(((data.y == 1) & (data.group == "0")).sum())
    500
    >>> data.true_joint([[2.0, 0.0]]).round(3)
    array([[[0.029, 0.259],
            [0.66 , 0.052]]])
    """
    check_whole(n, "n", at_least=1)
    check_flag(iid, "iid")
    rng = as_generator(random_state)
    cell = rng.choice(4, size=n, p=CELL_SIZE / CELL_SIZE.sum()) if iid else rng.permutation(_exact_cells(int(n)))
    X = _correlated(rng.standard_normal((n, 2))) + CELL_MEAN[cell]
    y = CELL_LABEL[cell]
    group = np.array(["0", "1"])[CELL_GROUP[cell]]
    return ZafarDataset(
        name="zafar",
        X=X,
        y=y,
        sensitive={"group": group},
        feature_names=("x1", "x2"),
        frame={"x1": X[:, 0], "x2": X[:, 1], "group": group, "y": y},
        description="The synthetic distribution of Zafar et al. (2019), section 5.1.2.",
        p_joint=true_joint(X),
    )


def true_joint(X: ArrayLike) -> FloatArray:
    """Return the true p(Y = y, A = a | x).

    Parameters
    ----------
    X : array-like of shape (n, 2)
        Any points of the plane.

    Returns
    -------
    ndarray of shape (n, 2, 2)
        Axis 1 is (negative, positive), axis 2 the groups 0 and 1. Each row sums to 1.

    Examples
    --------
    >>> true_joint([[0.5, 0.0], [100.0, 0.0]]).sum(axis=(1, 2))
    array([1., 1.])
    """
    x1, x2 = _columns(X)
    joint = np.empty((len(x1), 2, 2))
    # The cells share one covariance, so the quadratic terms cancel and the result is linear in x.
    weight1, weight2 = _precision_times(CELL_MEAN[:, 0], CELL_MEAN[:, 1])
    offset = np.log(CELL_SIZE) - 0.5 * (weight1 * CELL_MEAN[:, 0] + weight2 * CELL_MEAN[:, 1])
    for cell, (y, a) in enumerate(zip(CELL_LABEL, CELL_GROUP, strict=True)):
        joint[:, y, a] = weight1[cell] * x1 + weight2[cell] * x2 + offset[cell]
    joint -= joint.max(axis=(1, 2), keepdims=True)
    np.exp(joint, out=joint)
    joint /= joint.sum(axis=(1, 2), keepdims=True)
    return joint


def cell_density(X: ArrayLike) -> FloatArray:
    """Return the density p(x | Y = y, A = a) of each cell, with the shape and axes of :func:`true_joint`.

    Examples
    --------
    >>> cell_density([[2.0, 0.0]])[0, 1, 0].round(6)  # the height at its mean is 1 / (2 pi sqrt(24))
    np.float64(0.032487)
    """
    x1, x2 = _columns(X)
    density = np.empty((len(x1), 2, 2))
    for y, a, mean in zip(CELL_LABEL, CELL_GROUP, CELL_MEAN, strict=True):
        d1, d2 = x1 - mean[0], x2 - mean[1]
        scaled1, scaled2 = _precision_times(d1, d2)
        density[:, y, a] = np.exp(-0.5 * (d1 * scaled1 + d2 * scaled2)) / (2 * np.pi * np.sqrt(DETERMINANT))
    return density


def _exact_cells(n: int) -> Indices:
    edges = np.rint(np.cumsum(CELL_SIZE) * (n / CELL_SIZE.sum())).astype(np.intp)
    return np.repeat(np.arange(4), np.diff(edges, prepend=0))


def _correlated(noise: FloatArray) -> FloatArray:
    # Column by column, not by a matrix product: the result does not depend on the BLAS or its threads.
    slope = COVARIANCE / np.sqrt(VARIANCE)
    rest = np.sqrt(VARIANCE - slope**2)
    return np.column_stack([np.sqrt(VARIANCE) * noise[:, 0], slope * noise[:, 0] + rest * noise[:, 1]])


def _precision_times(v1: FloatArray, v2: FloatArray) -> tuple[FloatArray, FloatArray]:
    return (VARIANCE * v1 - COVARIANCE * v2) / DETERMINANT, (VARIANCE * v2 - COVARIANCE * v1) / DETERMINANT


def _columns(X: ArrayLike) -> tuple[FloatArray, FloatArray]:
    points = as_float_array(X, "X")
    if points.ndim != 2 or points.shape[1] != 2:
        raise InputError(f"X must have two columns; got an array of shape {points.shape}.")
    if not np.isfinite(points).all():
        raise InputError(f"X must be finite; row {int(np.argmin(np.isfinite(points).all(axis=1)))} is not.")
    return points[:, 0], points[:, 1]
