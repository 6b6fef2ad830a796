"""The methods that the paper compares with, behind one interface (extra ``experiments``).

Every baseline has ``fit(X, y, *, sensitive_features)``. Its attribute ``needs_sensitive_at_predict`` tells whether
``predict`` also needs ``sensitive_features``; ``paper`` is the paper's short name for it.
"""

from __future__ import annotations

from evenhand.errors import MissingExtraError

try:
    import fairlearn as _fairlearn  # noqa: F401
    import skorch as _skorch  # noqa: F401
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError("evenhand.paper.baselines", str(error.name).partition(".")[0], "experiments") from error

from evenhand.paper.baselines.hardt import GroupThresholds
from evenhand.paper.baselines.jiang import WassersteinBarycentre
from evenhand.paper.baselines.park import FairContrastive
from evenhand.paper.baselines.reductions import Reductions
from evenhand.paper.baselines.zafar import CovarianceBound

__all__ = ["CovarianceBound", "FairContrastive", "GroupThresholds", "Reductions", "WassersteinBarycentre"]
