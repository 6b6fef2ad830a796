"""The types that a saved classifier may contain, besides scikit-learn's public estimators, numbers and containers.

All other types are an error unless the caller trusts them. The types on this list run no code of the file: they are
rebuilt from their attributes. Two of them, the nodes of trees, are used by compiled code that does not check indices;
:mod:`evenhand.io.trees` checks them first. Types whose state compiled code uses unchecked, and which cannot be checked
here, are left out (``lightgbm.basic.Booster``, the search trees of nearest neighbours, support vector machines), as is
CLIPZeroShot, whose weights are not in the file.
"""

from __future__ import annotations

_PARITIES = (
    "AccuracyParity",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "PredictiveEquality",
    "PredictiveParity",
    "SelectionRatio",
)
_RATE_BOUNDS = ("LinearConstraint", "MaximumRate", "MinimaxRate", "MinimumRate", "SelectionBudget")
_EVENHAND = {
    "estimator.auxiliary": ("Layout", "Target"),
    "estimator.classifier": ("FairClassifier",),
    "estimator.crossfit": ("FoldEnsemble", "LabelMarginal", "Models"),
    "estimator.diagnostics": ("Cell", "ClassQuality", "Diagnostics", "Separation"),
    "estimator.heldout": ("HeldOut",),
    "estimator.recalibration": ("Recalibration",),
    "estimator.sample": ("SensitiveColumns",),
    "inputs": ("Attribute",),
    "io.parts": ("Keyed", "Stored"),
    "paper.baselines.jiang": ("WassersteinBarycentre",),
    "paper.models._estimator": ("Head",),
    "paper.models.mlp": ("MLP",),
    "paper.models.resnet": ("ResNet18",),
    "rules.criteria": (*_PARITIES, *_RATE_BOUNDS, "Composite", "Intersection"),  # as earlier versions name them
    "rules.criterion": ("Composite",),
    "rules.events": ("Event", "Intersection", "Stratified"),
    "rules.frontier": ("Frontier", "FrontierPoint"),
    "rules.parities": _PARITIES,
    "rules.rate_bounds": _RATE_BOUNDS,
    "rules.setting": ("Options",),
    "search.certified": ("Certified",),
    "search.directions": ("Directions",),
    "search.dual": ("Dual",),
    "search.lines": ("Lines",),
    "search.smoothed": ("Smoothed",),
}
_OTHERS = (
    "builtins.object",
    "collections.OrderedDict",
    "functools.partial",
    "numpy.dtype",
    "numpy.number",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.RepeatedKFold",
    "sklearn.model_selection._split.RepeatedStratifiedKFold",
    "sklearn.model_selection._split.ShuffleSplit",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.model_selection._split.StratifiedShuffleSplit",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils.validation.check_array",
)
ALLOWED: frozenset[str] = frozenset(
    [*_OTHERS, *(f"evenhand.{module}.{name}" for module, names in _EVENHAND.items() for name in names)]
)

# skops trusts every public estimator of scikit-learn, but libsvm uses these unchecked.
DENIED: frozenset[str] = frozenset(
    f"sklearn.svm._classes.{name}" for name in ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM")
)

# Modules of earlier versions, mapped to their present names, so that old files still load.
_MOVED = {
    "auxiliary": "estimator",
    "baselines": "paper",
    "classifier": "estimator",
    "criteria": "rules",
    "crossfit": "estimator",
    "diagnostics": "estimator",
    "frontier": "rules",
    "heldout": "estimator",
    "models": "paper",
    "recalibration": "estimator",
    "sample": "estimator",
}


def present_name(module: str) -> str:
    """Return the present name of a module of evenhand.

    Examples
    --------
    >>> from evenhand.io.allowed import present_name
    >>> present_name("evenhand.models.mlp"), present_name("sklearn.base")
    ('evenhand.paper.models.mlp', 'sklearn.base')
    """
    package, _, rest = module.partition(".")
    first = rest.partition(".")[0]
    return f"evenhand.{_MOVED[first]}.{rest}" if package == "evenhand" and first in _MOVED else module
