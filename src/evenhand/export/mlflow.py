"""Whole classifiers as MLflow models (extra ``mlflow``): a pyfunc without pickle.

The model's data is the file of :func:`evenhand.io.save`, which executes nothing when it is read. MLflow loads it
through this module.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evenhand import errors, io
from evenhand.arguments import check_path, check_text, shown
from evenhand.errors import InputError
from evenhand.estimator.classifier import FairClassifier
from evenhand.files import local_path
from evenhand.versions import versions

FILE = "fair.skops"
_NEEDED = ("mlflow-skinny", "numpy", "pandas", "scikit-learn", "skops")


class FairModel:
    """The object that MLflow calls: X in, a frame of decisions out."""

    def __init__(self, fair: FairClassifier) -> None:
        self.fair = fair

    def predict(self, X: Any, params: dict[str, Any] | None = None) -> Any:
        """Return a frame with the columns decision, fair_margin and probability of each row."""
        pandas = errors.require("evenhand.export.mlflow", "mlflow", "pandas")
        margin = self.fair.decision_function(X)
        return pandas.DataFrame(
            {
                "decision": self.fair.predict(X),
                "fair_margin": margin,
                "probability": self.fair.predict_proba(X)[:, 1],
            }
        )


def save_model(fair: FairClassifier, path: str | os.PathLike[str], X_sample: Any) -> None:
    """Save a fitted classifier as an MLflow model in a new folder, with its signature and its requirements.

    ``mlflow.pyfunc.load_model(path).predict(X)`` returns the columns decision, fair_margin (above 0 iff the decision is
    ``classes_[1]``) and probability, the base model's P(Y = classes_[1] | x).

    Parameters
    ----------
    fair : FairClassifier
        A fitted classifier; :func:`evenhand.io.load` must be able to read its models without ``trusted``.
    path : path
        The folder, which must not exist yet.
    X_sample : array or frame
        Some rows, for the signature.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import evenhand as eh
    >>> from evenhand.export import mlflow as export
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = eh.datasets.make_zafar(600, random_state=0)
    >>> fair = eh.FairClassifier(LogisticRegression(), criterion="dp", tolerance=0.1, random_state=0)
    >>> fair = fair.fit(data.X, data.y, sensitive_features=data.group)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export.save_model(fair, Path(folder) / "model", data.X)
    ...     again = export.load_classifier(Path(folder) / "model")
    >>> bool((again.predict(data.X) == fair.predict(data.X)).all())
    True
    """
    target = local_path(check_path(path), write=True)
    if target.exists():
        raise InputError(f"{target} exists already: name a new folder for the MLflow model.")
    with tempfile.TemporaryDirectory() as folder, _without_advice():
        _mlflow().pyfunc.save_model(path=str(target), **_parts(fair, Path(folder), X_sample))


def log_model(fair: FairClassifier, name: str, X_sample: Any) -> Any:
    """Log a fitted classifier to the active MLflow run, under a name; return MLflow's ModelInfo.

    See :func:`save_model` for the other parameters.
    """
    check_text(name, "name")
    with tempfile.TemporaryDirectory() as folder, _without_advice():
        return _mlflow().pyfunc.log_model(name=name, **_parts(fair, Path(folder), X_sample))


def load_classifier(path: str | os.PathLike[str]) -> FairClassifier:
    """Return the FairClassifier of a model that :func:`save_model` or :func:`log_model` wrote, from its folder."""
    place = local_path(check_path(path)) / "data" / FILE
    if not place.is_file():
        raise InputError(f"{path} is not an MLflow model of evenhand: data/{FILE} is missing.")
    return _load_pyfunc(str(place)).fair


def _load_pyfunc(path: str) -> FairModel:
    """Return the object that MLflow calls, from the model's data; MLflow requires this name."""
    fair = io.load(Path(path))
    if not isinstance(fair, FairClassifier):
        raise InputError(f"{path} contains a {type(fair).__name__}; a FairClassifier is needed.")
    return FairModel(fair)


def _parts(fair: FairClassifier, folder: Path, X_sample: Any) -> dict[str, Any]:
    """Return the arguments for MLflow: the file, its loader, the signature and the requirements."""
    if not isinstance(fair, FairClassifier):
        raise InputError(f"fair must be a FairClassifier; got {shown(fair)}.")
    if fair.sensitive_at_predict:
        raise InputError(
            "This classifier decides with the sensitive attribute, which MLflow's predict(X) does not pass on: save it"
            " with evenhand.io.save."
        )
    outputs = FairModel(fair).predict(X_sample)
    io.save(fair, folder / FILE)
    # Refused here rather than when it is served: MLflow has no way to pass trusted types.
    io.load(folder / FILE)
    return {
        "loader_module": __name__,
        "data_path": str(folder / FILE),
        "signature": _mlflow().models.infer_signature(X_sample, outputs),
        "pip_requirements": [f"{name}=={version}" for name, version in versions(*_NEEDED).items() if name != "python"],
    }


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Suppress MLflow's advice to store rows of X as an example: they are personal data."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*An input example was not provided")
        yield


def _mlflow() -> Any:
    with warnings.catch_warnings():
        # MLflow warns about its own type hints when it is imported.
        warnings.simplefilter("ignore")
        return errors.require("evenhand.export.mlflow", "mlflow", "mlflow", "mlflow.pyfunc", "mlflow.models")
