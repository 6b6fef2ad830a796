from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("fairlearn")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Two busy test workers on two cores would otherwise wait for each other inside every layer."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def biased() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows whose first column carries the label and leaks the group; the groups have unequal sizes."""
    rng = np.random.default_rng(7)
    n = 600
    group = (rng.random(n) < 0.35).astype(int)
    X = rng.normal(size=(n, 3))
    X[:, 0] += 1.2 * group
    y = (X[:, 0] + 0.5 * X[:, 1] + 0.7 * rng.normal(size=n) > 0.6).astype(int)
    return X, y, group
