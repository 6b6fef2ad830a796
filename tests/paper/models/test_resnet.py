from __future__ import annotations

import shutil
import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone

from evenhand.errors import EvenhandWarning, InputError
from evenhand.paper.models import ResNet18, find_unreadable
from evenhand.paper.models._images import CentreSquare, ImageFiles
from evenhand.paper.models._net import Net
from evenhand.paper.models.resnet import ImageNetwork, load_body

TINY = {"weights": None, "image_size": 32, "crop": 1.0, "batch_size": 8, "random_state": 0}


def same_parameters(one, other):
    pairs = zip(one.net_.module_.state_dict().items(), other.net_.module_.state_dict().values(), strict=True)
    return all(torch.equal(value, twin) for (_, value), twin in pairs)


def test_the_crop_is_the_papers_128_of_178_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, size=(218, 178, 3), dtype=np.uint8)
    found = CentreSquare(128, 128 / 178, flip=True)(Image.fromarray(pixels), None)
    np.testing.assert_array_equal(found, pixels[45:173, 25:153])
    small = CentreSquare(128, 128 / 178, flip=True)(Image.fromarray(pixels).resize((89, 109)), None)
    assert small.shape == (128, 128, 3)
    assert np.abs(small.astype(float) - found).mean() < np.abs(pixels[:128, :128].astype(float) - found).mean()


def test_half_of_the_images_are_mirrored_while_training_and_none_otherwise(tmp_path):
    pixels = np.zeros((32, 32, 3), dtype=np.uint8)
    pixels[:, :16] = 255
    Image.fromarray(pixels).save(tmp_path / "left.png")
    paths = np.array([str(tmp_path / "left.png")] * 400, dtype=object)
    files = ImageFiles(paths, CentreSquare(32, 1.0, flip=True), workers=2)
    rows = [np.arange(400)]
    plain = next(files.read(rows)).numpy()
    np.testing.assert_array_equal(plain, np.broadcast_to(pixels, plain.shape))
    mirrored = [next(files.read(rows, (7, epoch))).numpy()[:, 0, 0, 0] == 0 for epoch in (0, 0, 1)]
    assert 160 < mirrored[0].sum() < 240
    np.testing.assert_array_equal(mirrored[0], mirrored[1])
    assert (mirrored[0] != mirrored[2]).any()
    never = ImageFiles(paths, CentreSquare(32, 1.0, flip=False), workers=2)
    np.testing.assert_array_equal(next(never.read(rows, (7, 0))).numpy(), plain)


def test_pixels_are_scaled_by_imagenets_mean_and_deviation():
    class Identity(torch.nn.Module):
        def forward(self, X):
            return type("Output", (), {"pooler_output": X})

    network = ImageNetwork(Identity(), [2])
    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    expected = (pixels.numpy() / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    found = network.features(pixels).numpy().reshape(2, 3, 8, 8)
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5)


def test_it_is_a_resnet_18():
    body = load_body(None)
    assert sum(parameter.numel() for parameter in body.parameters()) == 11_176_512
    assert body(torch.zeros(1, 3, 128, 128)).pooler_output.shape == (1, 512, 1, 1)


def test_four_classes_and_two_heads_are_learnt_from_files(faces):
    paths, labels, groups = faces
    four = ResNet18(max_epochs=5, validation=None, **TINY).fit(paths, 2 * labels + groups)
    assert four.classes_.tolist() == [0, 1, 2, 3]
    assert four.score(paths, 2 * labels + groups) > 0.8
    two = ResNet18(max_epochs=5, validation=None, **TINY).fit(paths, np.column_stack([labels, groups]))
    p_label, p_group = two.predict_proba(paths)
    np.testing.assert_allclose(p_label.sum(axis=1), 1.0, atol=1e-12)
    assert np.mean(p_label.argmax(axis=1) == labels) > 0.8
    assert two.head(1).score(np.array(paths), groups) > 0.8
    np.testing.assert_array_equal(two.head(1).predict_proba(paths), p_group)


def test_bits_depend_on_the_seed_alone_and_a_stopped_training_reaches_them(faces, tmp_path, monkeypatch):
    paths, labels, _ = faces
    options = TINY | {"max_epochs": 1, "validation": 0.25}
    whole = ResNet18(workers=1, **options).fit(paths, labels)
    assert same_parameters(whole, ResNet18(workers=3, **options).fit([str(path) for path in paths], labels))
    original, calls = Net.train_step, [0]

    def stop_in_the_second_batch(self, *args, **kwargs):
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Net, "train_step", stop_in_the_second_batch)
        with pytest.raises(KeyboardInterrupt):
            ResNet18(checkpoint=tmp_path, save_every=0.0, **options).fit(paths, labels)
    resumed = ResNet18(checkpoint=tmp_path, **options).fit(paths, labels)
    assert same_parameters(whole, resumed)
    assert list(whole.net_.history) == list(resumed.net_.history)


@pytest.fixture(scope="module")
def saved_resnet(tmp_path_factory):
    from transformers import ResNetConfig, ResNetForImageClassification

    directory = tmp_path_factory.mktemp("weights")
    config = ResNetConfig(depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic")
    model = ResNetForImageClassification(config)
    model.save_pretrained(directory)
    return directory, model.resnet.state_dict()


def test_weights_come_from_a_directory(saved_resnet):
    directory, expected = saved_resnet
    found = load_body(directory).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_weights_come_from_the_hubs_cache(saved_resnet, tmp_path, monkeypatch):
    directory, expected = saved_resnet
    repository = tmp_path / "models--microsoft--resnet-18"
    shutil.copytree(directory, repository / "snapshots" / "0123abcd")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abcd")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    found = load_body("microsoft/resnet-18").state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_without_weights_it_says_that_it_starts_from_scratch(faces, tmp_path, monkeypatch):
    paths, labels, _ = faces
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = ResNet18(**TINY | {"weights": "microsoft/resnet-18"}, max_epochs=1, validation=None)
    with pytest.warns(EvenhandWarning, match="trained from scratch: 'microsoft/resnet-18' is neither"):
        model.fit(paths[:4], labels[:4])


def test_wrong_weights_are_refused(tmp_path):
    from transformers import ResNetConfig, ResNetForImageClassification

    with pytest.raises(InputError, match="there is no directory"):
        load_body(tmp_path / "absent")
    with pytest.raises(InputError, match="no weights that transformers can read"):
        load_body(tmp_path)
    config = ResNetConfig(embedding_size=4, depths=[1, 1], hidden_sizes=[4, 8], layer_type="basic")
    ResNetForImageClassification(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="is not a ResNet-18"):
        load_body(tmp_path)


def test_absent_and_corrupt_images_are_named(faces, tmp_path):
    paths, labels, _ = faces
    whole = paths[0].read_bytes()
    half, text = tmp_path / "half.png", tmp_path / "text.jpg"
    half.write_bytes(whole[: len(whole) // 2])
    text.write_text("not an image")
    model = ResNet18(max_epochs=1, validation=None, **TINY)
    with pytest.raises(InputError, match=r"2 images of one batch cannot be decoded: .*half\.png.*text\.jpg"):
        model.fit([*paths[:4], half, text], [0, 1, 0, 1, 0, 1])
    assert [name for name, _ in find_unreadable([*paths[:4], half, text])] == [str(half), str(text)]
    with pytest.raises(InputError, match=r"1 of 3 images do not exist: .*gone\.png"):
        model.fit([*paths[:2], tmp_path / "gone.png"], [0, 1, 1])
    fitted = model.fit(paths[:4], labels[:4])
    with pytest.raises(InputError, match=r"half\.png"):
        fitted.predict([half])
    with pytest.raises(InputError, match="sequence of file names"):
        fitted.predict(str(paths[0]))
    with pytest.raises(InputError, match="names of image files"):
        fitted.predict(np.zeros((3, 1)))


@pytest.mark.parametrize(("options", "message"), [({"crop": 0.0}, "crop must"), ({"image_size": 8}, "image_size must")])
def test_impossible_options_are_named(faces, options, message):
    paths, labels, _ = faces
    with pytest.raises(InputError, match=message):
        ResNet18(**TINY | options).fit(paths, labels)


def test_memory_does_not_grow_with_the_number_of_images(faces):
    paths = np.array([str(path) for path in faces[0]], dtype=object)

    def peak(n):
        files = ImageFiles(np.resize(paths, n), CentreSquare(64, 1.0, flip=True), workers=2)
        chunks = [np.arange(start, start + 8) for start in range(0, n, 8)]
        tracemalloc.start()
        for _ in files.read(chunks, (0, 0)):
            pass
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(16)
    few, many = peak(64), peak(640)
    assert few > 8 * 64 * 64 * 3
    assert many < 1.5 * few


def test_clones_take_every_option():
    options = {"weights": None, "image_size": 64, "crop": 0.5, "flip": False, "workers": 1, "lr": 0.1}
    assert {key: value for key, value in clone(ResNet18(**options)).get_params().items() if key in options} == options


def test_mixed_precision_learns_the_same_within_its_rounding(faces):
    paths, labels, _ = faces
    options = {"max_epochs": 2, "validation": None, **TINY}
    full, mixed = (ResNet18(mixed_precision=on, **options).fit(paths, labels) for on in (False, True))
    assert mixed.net_.module_.heads[0].weight.dtype == torch.float32
    assert not same_parameters(full, mixed)
    np.testing.assert_allclose(mixed.predict_proba(paths), full.predict_proba(paths), atol=0.2)
