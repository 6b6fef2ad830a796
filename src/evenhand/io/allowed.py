"""The types that a saved classifier may name, besides scikit-learn's public estimators, numbers and containers.

Everything else is refused unless the caller names it. What is on this list runs no code of the file's: it is
rebuilt from its attributes. Two of the types, the nodes of trees, are read by compiled code that does not
look where an index leads; :mod:`evenhand.io.trees` looks before anything else does. Left out on purpose are
types whose state compiled code takes on trust and that cannot be looked through (``lightgbm.basic.Booster``,
the search trees of nearest neighbours, support vector machines), and CLIPZeroShot, whose weights are not in the file.
"""

from __future__ import annotations

_EVENHAND = {
    "auxiliary": ("Layout", "Target"),
    "baselines.jiang": ("WassersteinBarycentre",),
    "classifier": ("FairClassifier",),
    "criteria": (
        "Composite",
        "DemographicParity",
        "EqualOpportunity",
        "EqualizedOdds",
        "Intersection",
        "MinimumRate",
        "PredictiveEquality",
        "SelectionBudget",
        "SelectionRatio",
    ),
    "crossfit": ("FoldEnsemble", "Models"),
    "diagnostics": ("Cell", "ClassQuality", "Diagnostics", "Separation"),
    "frontier": ("Frontier", "FrontierPoint"),
    "heldout": ("HeldOut",),
    "inputs": ("Attribute",),
    "io.parts": ("Keyed", "Stored"),
    "models._estimator": ("Head",),
    "models.mlp": ("MLP",),
    "models.resnet": ("ResNet18",),
    "recalibration": ("Recalibration",),
    "sample": ("SensitiveColumns",),
    "search.certified": ("Certified",),
    "search.directions": ("Directions",),
    "search.dual": ("Dual",),
    "search.lines": ("Lines",),
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

# skops trusts every public estimator of scikit-learn; libsvm reads these without a look.
DENIED: frozenset[str] = frozenset(
    f"sklearn.svm._classes.{name}" for name in ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM")
)
