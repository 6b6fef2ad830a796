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


@pytest.fixture(scope="session")
def tiny_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP of two thin layers with a tokenizer of single letters, saved as the hub has it."""
    transformers = pytest.importorskip("transformers")
    directory = tmp_path_factory.mktemp("clip")
    letters = [chr(code) for code in range(33, 127)]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = transformers.CLIPTokenizer(vocab=vocabulary, merges=[])
    tokenizer.save_pretrained(directory)
    layers = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config=layers
        | {
            "vocab_size": len(tokens),
            "max_position_embeddings": 40,
            "bos_token_id": vocabulary["<|startoftext|>"],
            "eos_token_id": vocabulary["<|endoftext|>"],
            "pad_token_id": vocabulary["<|endoftext|>"],
        },
        vision_config=layers | {"image_size": 32, "patch_size": 8},
        projection_dim=12,
    )
    torch.manual_seed(0)
    model = transformers.CLIPModel(config)
    # Fresh CLIP weights are so small that every image and every prompt look alike.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8.0)
    model.save_pretrained(directory)
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor.save_pretrained(directory)
    return directory
