from __future__ import annotations

import numpy as np
import pytest

from evenhand.datasets import Dataset
from evenhand.paper.experiments import splits
from paper.models.conftest import tiny_clip  # noqa: F401

torch = pytest.importorskip("torch")
pytest.importorskip("fairlearn")
pytest.importorskip("altair")

ATTRIBUTES = ("Attractive", "Bags_Under_Eyes", "Big_Nose", "Male", "Young")
ABSENT = ("000005.jpg", "000071.jpg")
ROWS = 96


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def celeba(tmp_path_factory):
    """A directory of CelebA's layout: small images, two of them absent, every cell in every part."""
    from PIL import Image

    directory = tmp_path_factory.mktemp("celeba")
    (directory / "img_align_celeba").mkdir()
    rng = np.random.default_rng(0)
    attributes, partition = [f"{ROWS}", " ".join(ATTRIBUTES)], []
    for number in range(ROWS):
        name = f"{number + 1:06d}.jpg"
        signs = [number % 2, number // 4 % 2, number // 4 % 2, number // 2 % 2, number // 2 % 2]
        attributes.append(f"{name} " + " ".join("1" if sign else "-1" for sign in signs))
        partition.append(f"{name} {(0, 0, 1, 2)[number // 8 % 4]}")
        if name not in ABSENT:
            pixels = rng.integers(0, 60, size=(54, 44, 3), dtype=np.uint8)
            pixels[:, :, 0] += 120 * signs[0]
            pixels[:27, :, 2] += np.uint8(120 * signs[3])
            Image.fromarray(pixels).save(directory / "img_align_celeba" / name)
    (directory / "list_attr_celeba.txt").write_text("\n".join([*attributes, ""]))
    (directory / "list_eval_partition.txt").write_text("\n".join([*partition, ""]))
    return directory


@pytest.fixture
def made_compas(monkeypatch):
    """COMPAS without its file: rows of the same kind, drawn."""
    import evenhand as eh

    drawn = eh.datasets.make_zafar(1500, random_state=0)
    sex = np.where(np.random.default_rng(1).random(1500) + 0.2 * drawn.y > 0.6, "Male", "Female")
    made = Dataset(
        "compas", drawn.X, drawn.y, {"race": drawn.group, "sex": sex}, ("x1", "x2"), split_sizes=(800, 400, 300)
    )
    monkeypatch.setattr(eh.datasets, "fetch_compas", lambda: made)
    splits.dataset.cache_clear()
    yield
    splits.dataset.cache_clear()
