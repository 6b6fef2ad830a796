"""The exceptions that evenhand raises. Each message names the cause and the remedy."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar


class EvenhandError(Exception):
    """The base class of evenhand's own exceptions."""

    multiline: ClassVar[bool] = False


class InputError(EvenhandError, ValueError):
    """The data or options cannot be used as they are."""


class WriteError(EvenhandError, OSError):
    """A file cannot be written, because the disk is full or the location is not writable. No partial file is left.

    Parameters
    ----------
    message : str
        The path, the operating system's reason, and the remedy.
    errno : int or None, default=None
        The operating system's error number.
    """

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class InfeasibleError(EvenhandError, ValueError):
    """No rule in the searched family meets the constraints.

    Parameters
    ----------
    message : str
        What was requested, and what is possible instead.
    smallest_tolerance : float or None, default=None
        The smallest tolerance that some rule meets, if the search computed one.
    details : mapping, default={}
        Numbers behind the message, for programs.
    """

    def __init__(
        self,
        message: str,
        *,
        smallest_tolerance: float | None = None,
        details: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.smallest_tolerance = smallest_tolerance
        self.details = dict(details)


class RuleFormatError(EvenhandError, ValueError):
    """A text or file is not a rule that this version can read."""


class ModelFormatError(EvenhandError, ValueError):
    """A file is not a saved estimator that this version can read."""


class UntrustedTypesError(ModelFormatError):
    """A saved estimator contains types that are not trusted. No part of it was loaded.

    Parameters
    ----------
    path : str
        The file.
    names : sequence of str
        The full names of the types.
    """

    def __init__(self, path: str, names: Sequence[str]) -> None:
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        super().__init__(
            f"{path} contains types that are not loaded by default: {shown}. If you know them and trust the"
            " file's author, pass them to load as trusted=[...]."
        )
        self.names = tuple(names)


class DisagreementError(EvenhandError):
    """An exported model decides some rows differently from Python. Nothing was written."""


class AggregateFormatError(EvenhandError, ValueError):
    """A file is not an aggregate that this version can read."""


class WatchFormatError(EvenhandError, ValueError):
    """A text or file is not a watch that this version can read."""


class MissingExtraError(EvenhandError, ImportError):
    """A feature needs a package that is installed by one of evenhand's extras."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(f"{feature} needs {package}: pip install 'evenhand[{extra}]'.")
        self.extra = extra


def require(feature: str, extra: str, module: str, *others: str, package: str | None = None) -> Any:
    """Import a module that an extra installs, together with others, or raise an error that says what to install.

    ``package`` is its name in messages, if that is not the module's own name.
    """
    try:
        # The package first: a submodule may still be imported from before.
        for other in (module.partition(".")[0], *others):
            importlib.import_module(other)
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(feature, package or module.partition(".")[0], extra) from None


class EvenhandWarning(UserWarning):
    """A result is valid, but its reader should know about a limitation."""
