"""ResNet-18 training through the estimator, which decodes JPEG files, against the bare forward/backward loop.

The bare loop has its batches in memory as tensors of the network's own input size, in the memory layout that decoded
images have (channels last), and does nothing but forward, backward and Adam's step on the same network. Both train on
all cores.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from evenhand.paper.models import ResNet18
from evenhand.paper.models.resnet import ImageNetwork, load_body

IMAGES = 256
BATCH = 64
SIZE = 128
REPEATS = 5


def main() -> None:
    """Print images a second of both, and the median of their ratios."""
    labels = np.arange(IMAGES) % 4
    with tempfile.TemporaryDirectory() as directory:
        paths = _write_images(Path(directory))
        _fit(paths[:BATCH], labels[:BATCH])
        pairs = [(_fit(paths, labels), _bare(labels)) for _ in range(REPEATS)]
    print(f"{IMAGES} JPEG images of 178 x 218, batches of {BATCH}, {SIZE} px, {torch.get_num_threads()} threads")
    for name, seconds in zip(("ResNet18.fit on files", "bare loop in memory"), zip(*pairs, strict=True), strict=True):
        print(f"{name}: {IMAGES / np.median(seconds):.1f} images/s")
    print(f"ratio (median of {REPEATS} pairs): {np.median([bare / ours for ours, bare in pairs]):.2f}")


def _write_images(directory: Path) -> np.ndarray:
    rng = np.random.default_rng(0)
    paths = []
    for number in range(IMAGES):
        # Smooth noise, because JPEG decoding then costs as much as for a photograph.
        small = Image.fromarray(rng.integers(0, 256, size=(14, 11, 3), dtype=np.uint8))
        path = directory / f"{number:06d}.jpg"
        small.resize((178, 218), Image.Resampling.BICUBIC).save(path, quality=90)
        paths.append(str(path))
    return np.array(paths, dtype=object)


def _fit(paths: np.ndarray, labels: np.ndarray) -> float:
    model = ResNet18(weights=None, max_epochs=1, batch_size=BATCH, validation=None, random_state=0)
    started = time.perf_counter()
    model.fit(paths, labels)
    return time.perf_counter() - started


def _bare(labels: np.ndarray) -> float:
    torch.manual_seed(0)
    network = ImageNetwork(load_body(None), [4]).train()
    pixels = torch.randint(0, 256, (BATCH, SIZE, SIZE, 3), dtype=torch.uint8)
    scaled = (pixels.permute(0, 3, 1, 2).float() - network.mean) / network.deviation
    assert scaled.is_contiguous(memory_format=torch.channels_last)
    codes = torch.from_numpy(labels[:BATCH])
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-3, fused=True)
    started = time.perf_counter()
    for _ in range(IMAGES // BATCH):
        optimizer.zero_grad()
        features = network.body(scaled).pooler_output.flatten(1)
        cross_entropy(network.heads[0](features), codes).backward()
        optimizer.step()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
