from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Two busy test workers on two cores would otherwise wait for each other inside every layer."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def faces(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """Sixteen small images: red or blue says the label, the bright half (top or bottom) says the group."""
    from PIL import Image

    directory = tmp_path_factory.mktemp("faces")
    rng = np.random.default_rng(0)
    paths, labels, groups = [], [], []
    for i in range(16):
        label, group = i % 2, i // 2 % 2
        pixels = rng.integers(0, 30, size=(48, 40, 3), dtype=np.uint8)
        half = slice(0, 24) if group else slice(24, 48)
        pixels[half, :, 0 if label else 2] += 200
        path = directory / f"{i:02d}.png"
        Image.fromarray(pixels).save(path)
        paths.append(path)
        labels.append(label)
        groups.append(group)
    return paths, np.array(labels), np.array(groups)
