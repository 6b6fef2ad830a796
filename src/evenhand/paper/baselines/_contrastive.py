"""The fair supervised contrastive loss, and the two random views of an image that it compares."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from torch import Tensor
from torch.nn import Module


def fair_contrastive_loss(
    z: Tensor, labels: Tensor, groups: Tensor, *, temperature: float = 0.1, group_normalised: bool = True
) -> Tensor:
    """Return the loss of Park et al. (2022) on unit vectors z of shape (n, p).

    ::

        L_i = - mean_{p in P(i)} log [ exp(z_i . z_p / tau) / sum_{s in N(i)} exp(z_i . z_s / tau) ]

    P(i) has the other rows of i's label, of whatever group. N(i) has the rows of another label *and of i's
    own group*, so that separating groups does not help. Rows without either are not anchors.

    Parameters
    ----------
    z : tensor of shape (n, p)
        The projections, of length one.
    labels, groups : tensors of shape (n,)
        Codes.
    temperature : float, default=0.1
        tau.
    group_normalised : bool, default=True
        Whether every group weighs the same among the positives of an anchor, and every cell (label, group)
        among the anchors (the group-wise normalisation, FSCL+); otherwise every row weighs the same (FSCL).
    """
    n = len(z)
    same_label = labels[:, None] == labels[None, :]
    same_group = groups[:, None] == groups[None, :]
    positive = same_label & ~torch.eye(n, dtype=torch.bool, device=z.device)
    negative = ~same_label & same_group
    similarity = z @ z.T / temperature
    denominator = similarity.masked_fill(~negative, -torch.inf).logsumexp(dim=1, keepdim=True)
    anchors = positive.any(dim=1) & negative.any(dim=1)
    if not anchors.any():
        return 0.0 * z.sum()
    weight = _equal_shares(positive, groups) if group_normalised else positive.float()
    weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-12)
    loss = -(weight * (similarity - denominator).masked_fill(~positive, 0.0)).sum(dim=1)[anchors]
    if not group_normalised:
        return loss.mean()
    cell = labels * (groups.max() + 1) + groups
    sizes = torch.bincount(cell[anchors])
    return (loss / sizes[cell[anchors]]).sum() / (sizes > 0).sum()


def _equal_shares(positive: Tensor, groups: Tensor) -> Tensor:
    """Return weights of the positives such that the groups among them have equal sums in every row."""
    members = torch.nn.functional.one_hot(groups).float()
    counts = (positive.float() @ members).clamp(min=1.0)
    return positive.float() / counts[:, groups]


class ContrastiveLoss(Module):
    """The loss as a criterion: of projections of shape (n, views, p), and codes (label, group)."""

    def __init__(self, temperature: float, group_normalised: bool) -> None:
        super().__init__()
        self.temperature = temperature
        self.group_normalised = group_normalised

    def forward(self, z: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
        """Return the loss of a batch; all views of all rows are compared."""
        views = z.shape[1]
        labels, groups = (codes[:, k].repeat_interleave(views) for k in (0, 1))
        return fair_contrastive_loss(
            z.flatten(0, 1),
            labels,
            groups,
            temperature=self.temperature,
            group_normalised=self.group_normalised,
        )


@dataclass(frozen=True)
class TwoViews:
    """Two random views of an image: crop, mirror, colours, grey, as contrastive learning draws them.

    Parameters
    ----------
    size : int
        Pixels of the result's side.
    """

    size: int

    def __call__(self, image: Image.Image, generator: np.random.Generator | None) -> NDArray[np.uint8]:
        """Return two views, of shape (2, size, size, 3)."""
        generator = np.random.default_rng(0) if generator is None else generator
        return np.stack([self._view(image, generator) for _ in range(2)])

    def _view(self, image: Image.Image, generator: np.random.Generator) -> NDArray[np.uint8]:
        box = _random_box(image.size, generator)
        view = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        if generator.random() < 0.5:
            view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if generator.random() < 0.8:
            view = _jitter(view, generator)
        if generator.random() < 0.2:
            view = view.convert("L").convert("RGB")
        return np.asarray(view)


def _random_box(size: tuple[int, int], generator: np.random.Generator) -> tuple[float, float, float, float]:
    """Return a box with 0.2 to 1 of the image's area and sides in a ratio of 3/4 to 4/3, if that fits."""
    width, height = size
    area = width * height * generator.uniform(0.2, 1.0)
    ratio = math.exp(generator.uniform(math.log(3 / 4), math.log(4 / 3)))
    w, h = min(width, math.sqrt(area * ratio)), min(height, math.sqrt(area / ratio))
    left, top = generator.uniform(0.0, width - w), generator.uniform(0.0, height - h)
    return left, top, left + w, top + h


def _jitter(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhance(image).enhance(generator.uniform(0.6, 1.4))
    hue, saturation, value = image.convert("HSV").split()
    shift = round(255 * generator.uniform(-0.1, 0.1))
    hue = hue.point([(level + shift) % 256 for level in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")
