"""The paper's data sets, ready for a model: features, labels and sensitive attributes of the same rows."""

from evenhand.paper.datasets import *  # noqa: F403
from evenhand.paper.datasets import __all__ as __all__
