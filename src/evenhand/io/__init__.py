"""Whole fitted estimators in files that execute nothing when they are read (extra ``io``).

A file is a skops archive with three additions: rules as JSON, the trees of boosted models as a few arrays, and the
networks of :mod:`evenhand.paper.models` as safetensors. It contains no pickle, and none is ever read. It contains the
labels, groups and probabilities of the rows that the rule was learnt from, because ``with_tolerance`` and
``frontier()`` need them: protect it as you protect the data.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from evenhand.arguments import check_path, shown
from evenhand.errors import EvenhandError, EvenhandWarning, InputError, ModelFormatError, UntrustedTypesError
from evenhand.files import local_path, whole_or_nothing
from evenhand.inputs import as_list
from evenhand.io.allowed import ALLOWED, DENIED
from evenhand.io.archive import Archive, pack, skops_io
from evenhand.io.earlier import bring_up_to_date
from evenhand.io.parts import put_back, set_aside
from evenhand.io.trees import check_trees

__all__ = ["ALLOWED", "load", "save"]


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Save a fitted estimator of evenhand, with its models, to a file that :func:`load` reads.

    Parameters
    ----------
    estimator : FairClassifier, or another estimator of evenhand
        A fitted estimator.
    path : path
        The file, usually ``.skops``. It is complete or absent.

    Notes
    -----
    A model of a type that :func:`load` does not read by default, such as one of LightGBM, XGBoost or CatBoost, is saved
    with a warning that names the types for ``trusted``. A part without a safe form is an error. The file is read back
    before it is moved into place, so that a file that ``load`` cannot read is an error here.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import evenhand as eh
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = eh.datasets.make_zafar(600, random_state=0)
    >>> fair = eh.FairClassifier(LogisticRegression(), tolerance=0.1, random_state=0)
    >>> fair = fair.fit(data.X, data.y, sensitive_features=data.group)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     eh.io.save(fair, Path(folder) / "fair.skops")
    ...     again = eh.io.load(Path(folder) / "fair.skops")
    >>> bool((again.decision_function(data.X) == fair.decision_function(data.X)).all())
    True
    """
    sio = skops_io()
    check_path(path)
    if not isinstance(estimator, BaseEstimator) or not type(estimator).__module__.startswith("evenhand."):
        raise InputError(
            f"evenhand.io.save saves estimators of evenhand; got a {type(estimator).__name__}."
            " skops.io.dump saves other estimators, and Rule.to_json a rule."
        )
    check_is_fitted(estimator)
    try:
        bare, members = set_aside(estimator)
        tree = sio.dumps(bare)
        extra = _untrusted(Archive(tree), ())
    except EvenhandError:
        raise
    except Exception as error:
        raise InputError(
            f"{type(estimator).__name__} has a part without a safe form ({type(error).__name__}: {_short(error)})."
            " Nothing was written; the rule alone can be saved with rule_.to_json()."
        ) from error
    with whole_or_nothing(path) as temporary:
        pack(temporary, tree, members)
        _check_readable(temporary, extra, type(estimator).__name__)
    if extra:
        warnings.warn(
            f"{Path(path).name} contains types that load reads only if trusted: load(path, trusted={extra!r}).",
            EvenhandWarning,
            stacklevel=2,
        )


def load(path: str | os.PathLike[str], trusted: Iterable[str | type] = ()) -> Any:
    """Return the estimator that :func:`save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : path
        The file.
    trusted : iterable of str or type, default=()
        Further types that may be loaded, by their full names. Add one only if you trust both the type and the
        file's author: such a type runs its own code when it is loaded.

    Notes
    -----
    No code in the file is executed, and no forged tree causes an access outside memory. The classifier may still make
    bad decisions: use a signature to verify the file's author.

    Returns
    -------
    estimator
        It decides exactly as the saved one did, given the same versions of the models' libraries.

    Raises
    ------
    UntrustedTypesError
        The file contains types that are neither in ``evenhand.io.ALLOWED`` nor in ``trusted``; they are listed in
        ``names``. No part of it was loaded.
    ModelFormatError
        The file was not written by :func:`save`, is damaged, or is of a newer version.
    """
    skops_io()
    path = check_path(path)
    names = _names_of(trusted)
    try:
        return _read(local_path(path), names)
    except EvenhandError:
        raise
    except MemoryError:
        raise ModelFormatError(f"{path} needs more memory than is available.") from None
    except Exception as error:
        raise ModelFormatError(f"{path} is damaged: {_short(error) or type(error).__name__}.") from error


def _names_of(trusted: Any) -> list[str]:
    several = isinstance(trusted, Iterable) and not isinstance(trusted, str | bytes)
    names: list[Any] = as_list(trusted, "trusted") if several else [None]
    if not all(isinstance(name, str | type) for name in names):
        raise InputError(f"trusted must be a list of types or of their full names; got {shown(trusted)}.")
    return [name if isinstance(name, str) else f"{name.__module__}.{name.__qualname__}" for name in names]


def _check_readable(path: Path, trusted: Iterable[str], kind: str) -> None:
    """Raise if :func:`load` could not read the written file."""
    try:
        _read(path, trusted)
    except Exception as error:
        raise InputError(
            f"{kind} has a part that load could not read back ({type(error).__name__}: {_short(error)}). Nothing was"
            " written; the rule alone can be saved with rule_.to_json(), and many models with evenhand.export.onnx."
        ) from error


def _read(path: Path, trusted: Iterable[str]) -> Any:
    archive = Archive.open(path).with_present_names()
    if untrusted := _untrusted(archive, trusted):
        raise UntrustedTypesError(str(path), untrusted)
    estimator = skops_io().loads(archive.data, trusted=[*ALLOWED, *trusted])
    put_back(estimator, archive.read)
    bring_up_to_date(estimator)
    check_trees([estimator])
    _check_whole(estimator)
    return estimator


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _untrusted(archive: Archive, trusted: Iterable[str]) -> list[str]:
    """Return the types of an archive that are neither allowed nor trusted by the caller."""
    unknown = set(skops_io().get_untrusted_types(data=archive.data)) - ALLOWED
    return sorted((unknown | (archive.names() & DENIED)) - set(trusted))


def _check_whole(estimator: Any) -> None:
    from evenhand.estimator.classifier import FairClassifier
    from evenhand.rules.mixture import Mixture
    from evenhand.rules.rule import Rule

    if not isinstance(estimator, BaseEstimator) or not type(estimator).__module__.startswith("evenhand."):
        raise ModelFormatError(f"The file contains a {type(estimator).__name__}, not an estimator of evenhand.")
    if isinstance(estimator, FairClassifier) and not isinstance(vars(estimator).get("rule_"), Rule | Mixture):
        raise ModelFormatError("The file contains a classifier without a rule.")
