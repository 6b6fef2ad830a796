"""The paper's networks as scikit-learn classifiers: MLP, ResNet-18 and zero-shot CLIP (extra ``torch``)."""

from __future__ import annotations

from evenhand.errors import MissingExtraError

try:
    import skorch as _skorch  # noqa: F401
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError("evenhand.paper.models", str(error.name).partition(".")[0], "torch") from error

from evenhand.paper.models._estimator import Head
from evenhand.paper.models._images import find_unreadable
from evenhand.paper.models.clip import CLIPZeroShot, attribute_prompts
from evenhand.paper.models.mlp import MLP
from evenhand.paper.models.resnet import ResNet18

__all__ = ["MLP", "CLIPZeroShot", "Head", "ResNet18", "attribute_prompts", "find_unreadable"]
