"""Zero-shot p(Y, A | x) from CLIP: the paper's appendix on CLIP as the auxiliary model."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor
from torch.nn.functional import normalize
from tqdm import tqdm

from evenhand.errors import InputError
from evenhand.inputs import sort_groups
from evenhand.paper.models._data import Examples, chunks_in_order
from evenhand.paper.models._images import ImageFiles, read_paths
from evenhand.paper.models._require import require

FloatArray = NDArray[np.float64]


def attribute_prompts(
    labels: Mapping[Hashable, str],
    groups: Mapping[Hashable, str],
    *,
    template: str = "a photo of {label} {group}",
) -> dict[tuple[Hashable, Hashable], str]:
    """Return one prompt for every pair of a label and a group.

    Parameters
    ----------
    labels : mapping
        The word for each of the two labels.
    groups : mapping
        The word for each group.
    template : str, default="a photo of {label} {group}"
        The prompt.

    Examples
    --------
    >>> from evenhand.paper.models import attribute_prompts
    >>> prompts = attribute_prompts({0: "sad", 1: "happy"}, {"f": "woman", "m": "man"})
    >>> prompts[1, "f"]
    'a photo of happy woman'
    """
    return {
        (label, group): template.format(label=label_word, group=group_word)
        for label, label_word in labels.items()
        for group, group_word in groups.items()
    }


# The paper's four prompts, with the label and group values of evenhand.paper.datasets.load_celeba. (The paper
# prints prompt_01 twice; the second is prompt_00.)
PAPER_PROMPTS = attribute_prompts({0: "Unattractive", 1: "Attractive"}, {"Male": "Male", "not Male": "Female"})


class CLIPZeroShot(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of the joint label (Y, A) that needs no training: CLIP's similarity to a prompt for each.

    ::

        p(Y = i, A = j | x) = exp(sim(x, prompt_ij)) / sum_kl exp(sim(x, prompt_kl))

    It needs no fit, so it can be used as ``auxiliary`` of a FairClassifier: ``classes_`` are pairs (label, group), and
    :meth:`joint_proba` has the shape (n, 2, groups) that ``learn_rule`` takes.

    Parameters
    ----------
    model : path or name on the Hugging Face hub, default="openai/clip-vit-base-patch32"
        A directory that ``save_pretrained`` wrote for the model, its tokenizer and its image processor, or a
        name in the hub's cache.
    prompts : mapping of (label, group) to str, default=None
        One prompt for every pair of two labels and any number of groups; :func:`attribute_prompts` makes
        them. ``None`` means the paper's four, with load_celeba's values.
    scale : float or "model", default="model"
        The factor between the cosine of image and prompt and sim. ``"model"`` is CLIP's own learnt
        ``exp(logit_scale)``, about 100: the similarity that CLIP returns, and the one under which its softmax
        was trained to be a probability. The paper's formula does not specify it; ``1.0`` is the plain cosine, whose
        probabilities are all close to one another.
    batch_size : int, default=64
        Images at a time.
    workers : int, default=2
        Threads that decode images while the network computes.
    local_files_only : bool, default=True
        Whether to avoid the network. False lets transformers download ``model``.
    device : str, default="cpu"
        torch's name of the device.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : array of (label, group)
        The pairs, by label and then by group.
    labels_ : tuple
        The negative and the positive label.
    groups_ : tuple
        The groups.

    Examples
    --------
    >>> from evenhand.paper.models import CLIPZeroShot
    >>> CLIPZeroShot().classes_.tolist()
    [(0, 'Male'), (0, 'not Male'), (1, 'Male'), (1, 'not Male')]
    """

    def __init__(
        self,
        *,
        model: str | Path = "openai/clip-vit-base-patch32",
        prompts: Mapping[tuple[Hashable, Hashable], str] | None = None,
        scale: float | str = "model",
        batch_size: int = 64,
        workers: int = 2,
        local_files_only: bool = True,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.prompts = prompts
        self.scale = scale
        self.batch_size = batch_size
        self.workers = workers
        self.local_files_only = local_files_only
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any = None, y: Any = None) -> CLIPZeroShot:
        """Check the prompts; nothing is trained."""
        self._pairs()
        return self

    @property
    def labels_(self) -> tuple[Hashable, ...]:
        """The negative and the positive label."""
        return self._pairs()[0]

    @property
    def groups_(self) -> tuple[Hashable, ...]:
        """The groups."""
        return self._pairs()[1]

    @property
    def classes_(self) -> NDArray[np.object_]:
        """The pairs (label, group), in the order of the columns of predict_proba."""
        labels, groups, _ = self._pairs()
        pairs = [(label, group) for label in labels for group in groups]
        return np.fromiter(pairs, dtype=object, count=len(pairs))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return p(Y, A | x) as one column for each pair in ``classes_``.

        Parameters
        ----------
        X : sequence of file names
            The images.
        """
        probabilities: FloatArray = softmax(self.similarities(X), axis=1)
        return probabilities

    def joint_proba(self, X: Any) -> FloatArray:
        """Return p(Y, A | x) of shape (n, 2, groups): axis 1 is (negative, positive)."""
        labels, groups, _ = self._pairs()
        return self.predict_proba(X).reshape(-1, len(labels), len(groups))

    def predict(self, X: Any) -> NDArray[np.object_]:
        """Return each image's most probable pair (label, group)."""
        pairs: NDArray[np.object_] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return pairs

    def similarities(self, X: Any) -> FloatArray:
        """Return sim(x, prompt) for each image and prompt, of shape (n, pairs)."""
        model, process, texts = self._load()
        scale = model.logit_scale.exp().item() if self.scale == "model" else float(self.scale)
        images = Examples(ImageFiles(read_paths(X), process, self.workers))
        chunks = chunks_in_order(images.rows, self.batch_size)
        cosines = []
        with torch.no_grad():
            for pixels in tqdm(images.inputs.read(chunks), total=len(chunks), disable=not self.verbose):
                features = model.visual_projection(model.vision_model(pixels.to(self.device)).pooler_output)
                cosines.append((normalize(features) @ texts.T).cpu().numpy())
        return scale * np.concatenate(cosines).astype(np.float64)

    def _load(self) -> tuple[Any, Any, Tensor]:
        prompts = self._pairs()[2]
        key = (str(self.model), tuple(prompts), self.device)
        if getattr(self, "_loaded", (None,))[0] != key:
            self._loaded = (key, *_load_clip(str(self.model), prompts, self.local_files_only, self.device))
        return self._loaded[1:]

    def _pairs(self) -> tuple[tuple[Hashable, ...], tuple[Hashable, ...], list[str]]:
        prompts = PAPER_PROMPTS if self.prompts is None else self.prompts
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in prompts):
            raise InputError("the keys of prompts must be pairs (label, group).")
        labels, groups = (sort_groups({pair[k] for pair in prompts}) for k in (0, 1))
        if len(labels) != 2:
            raise InputError(f"prompts must have two labels; they have {list(labels)!r}.")
        absent = [(label, group) for label in labels for group in groups if (label, group) not in prompts]
        if absent:
            raise InputError(f"prompts has no prompt for {absent[0]!r}: every label and group needs one.")
        if self.scale != "model" and not (isinstance(self.scale, int | float) and self.scale > 0):
            raise InputError(f"scale must be 'model' or a positive number; got {self.scale!r}.")
        return labels, groups, [prompts[label, group] for label in labels for group in groups]

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        # The weights stay in their file: a copy or a pickle loads them again from there.
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.requires_fit = False
        return tags


def _load_clip(name: str, prompts: list[str], local_files_only: bool, device: str) -> tuple[Any, Any, Tensor]:
    transformers = require("transformers", "CLIPZeroShot")
    # Since version 5 the class that works without torchvision has another name.
    processor_class = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    try:
        model = transformers.CLIPModel.from_pretrained(name, local_files_only=local_files_only)
        tokenizer = transformers.CLIPTokenizer.from_pretrained(name, local_files_only=local_files_only)
        processor = processor_class.from_pretrained(name, local_files_only=local_files_only)
    except (OSError, ValueError) as error:
        raise InputError(
            f"CLIP cannot be loaded from {name!r}, which must be a directory that save_pretrained wrote "
            "(model, tokenizer, image processor) or a name in the hub's cache; local_files_only=False "
            f"downloads it. The cause: {str(error).strip().splitlines()[0]}"
        ) from error
    model = model.to(device).eval()
    limit = model.config.text_config.max_position_embeddings
    for prompt in prompts:
        if (length := len(tokenizer(prompt)["input_ids"])) > limit:
            raise InputError(f"the prompt {prompt!r} has {length} tokens; this CLIP reads {limit}: shorten it.")
    tokens = tokenizer(prompts, padding=True, return_tensors="pt")
    names = ("input_ids", "attention_mask")
    with torch.no_grad():
        output = model.text_model(**{name: tokens[name].to(device) for name in names})
        texts = normalize(model.text_projection(output.pooler_output))
    return model, _Processed(processor), texts


class _Processed:
    """CLIP's image processor as a transform."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, image: Image.Image, generator: np.random.Generator | None) -> NDArray[np.float32]:
        pixels: NDArray[np.float32] = self.processor(images=image, return_tensors="np")["pixel_values"][0]
        return pixels.astype(np.float32)
