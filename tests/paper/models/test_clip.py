from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import softmax
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from evenhand.errors import InputError
from evenhand.paper.models import CLIPZeroShot, attribute_prompts

transformers = pytest.importorskip("transformers")

PROMPTS = attribute_prompts({0: "Unattractive", 1: "Attractive"}, {"f": "Female", "m": "Male"})


def test_probabilities_are_the_softmax_of_clips_own_similarities(tiny_clip, faces):
    paths = faces[0]
    found = CLIPZeroShot(model=tiny_clip, prompts=PROMPTS, batch_size=5).predict_proba(paths)
    model = transformers.CLIPModel.from_pretrained(tiny_clip).eval()
    texts = [PROMPTS[pair] for pair in [(0, "f"), (0, "m"), (1, "f"), (1, "m")]]
    tokens = transformers.CLIPTokenizer.from_pretrained(tiny_clip)(texts, padding=True, return_tensors="pt")
    images = [Image.open(path).convert("RGB") for path in paths]
    pixels = transformers.CLIPImageProcessorPil.from_pretrained(tiny_clip)(images=images, return_tensors="pt")
    with torch.no_grad():
        expected = model(**tokens, **pixels).logits_per_image.softmax(dim=1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    assert np.ptp(found, axis=0).max() > 0.01


def test_the_scale_multiplies_the_cosines(tiny_clip, faces):
    paths = faces[0]
    bare = CLIPZeroShot(model=tiny_clip, prompts=PROMPTS, scale=1.0)
    cosines = bare.similarities(paths)
    assert np.abs(cosines).max() <= 1.0 + 1e-6
    np.testing.assert_allclose(bare.predict_proba(paths), softmax(cosines, axis=1), rtol=1e-9)
    learnt = CLIPZeroShot(model=tiny_clip, prompts=PROMPTS).similarities(paths)
    logit_scale = transformers.CLIPModel.from_pretrained(tiny_clip).logit_scale.exp().item()
    np.testing.assert_allclose(learnt, logit_scale * cosines, rtol=1e-6)


def test_the_joint_table_has_the_labels_and_groups_in_order(tiny_clip, faces):
    paths = faces[0]
    shuffled = dict(sorted(PROMPTS.items(), reverse=True))
    clip = CLIPZeroShot(model=tiny_clip, prompts=shuffled)
    assert clip.classes_.tolist() == [(0, "f"), (0, "m"), (1, "f"), (1, "m")]
    assert (clip.labels_, clip.groups_) == ((0, 1), ("f", "m"))
    p, table = clip.predict_proba(paths), clip.joint_proba(paths)
    assert table.shape == (16, 2, 2)
    np.testing.assert_array_equal(table[:, 1, 0], p[:, 2])
    np.testing.assert_allclose(table.sum(axis=(1, 2)), 1.0, atol=1e-12)
    assert clip.predict(paths).tolist() == [clip.classes_[k] for k in p.argmax(axis=1)]
    one = CLIPZeroShot(model=tiny_clip, prompts=PROMPTS).predict_proba(paths)
    np.testing.assert_array_equal(one, p)


def test_it_is_ready_without_fitting_and_travels_without_its_weights(tiny_clip, faces):
    paths = faces[0]
    clip = CLIPZeroShot(model=tiny_clip, prompts=PROMPTS)
    check_is_fitted(clip)
    expected = clip.predict_proba(paths)
    assert len(pickle.dumps(clip)) < 2000
    for copy in (
        clone(clip).fit(paths, np.zeros(16)),
        pickle.loads(pickle.dumps(clip)),
        FrozenEstimator(clip),
    ):
        np.testing.assert_array_equal(copy.predict_proba(paths), expected)
    changed = clip.set_params(prompts={pair: f"{text}, smiling" for pair, text in PROMPTS.items()})
    assert not np.array_equal(changed.predict_proba(paths), expected)


def test_the_default_prompts_are_the_papers():
    from evenhand.paper.models.clip import PAPER_PROMPTS

    assert set(PAPER_PROMPTS.values()) == {
        "a photo of Attractive Male",
        "a photo of Attractive Female",
        "a photo of Unattractive Male",
        "a photo of Unattractive Female",
    }
    assert CLIPZeroShot().groups_ == ("Male", "not Male")


def test_three_groups_are_possible(tiny_clip, faces):
    prompts = attribute_prompts({"no": "sad", "yes": "happy"}, {"x": "child", "y": "adult", "z": "elder"})
    table = CLIPZeroShot(model=tiny_clip, prompts=prompts).joint_proba(faces[0][:2])
    assert table.shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": {(0, "m"): "a", (1, "m"): "b", (0, "f"): "c"}}, r"no prompt for \(1, 'f'\)"),
        ({"prompts": {(0, "m"): "a", (1, "m"): "b", (2, "m"): "c"}}, "two labels"),
        ({"prompts": {"m": "a"}}, "pairs"),
        ({"scale": 0.0}, "scale must be"),
        ({"scale": "learnt"}, "scale must be"),
    ],
)
def test_impossible_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        CLIPZeroShot(**options).fit()


def test_missing_weights_and_broken_images_are_named(tiny_clip, faces, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="CLIP cannot be loaded from 'openai/clip-vit-base-patch32'"):
        CLIPZeroShot().predict_proba(faces[0])
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text(json.dumps({"model_type": "clip"}))
    with pytest.raises(InputError, match=r"CLIP cannot be loaded from .*empty"):
        CLIPZeroShot(model=empty).predict_proba(faces[0])
    long = dict.fromkeys(PROMPTS, 30 * "very ") | {(1, "m"): "a man"}
    with pytest.raises(InputError, match="has 122 tokens; this CLIP reads 40"):
        CLIPZeroShot(model=tiny_clip, prompts=long).predict_proba(faces[0])
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff")
    with pytest.raises(InputError, match=r"broken\.jpg"):
        CLIPZeroShot(model=tiny_clip).predict_proba([broken])
