"""The exceptions evenhand raises: each names the cause and the remedy."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar


class EvenhandError(Exception):
    """The base of everything evenhand raises on purpose."""

    multiline: ClassVar[bool] = False


class InputError(EvenhandError, ValueError):
    """The caller's data or options cannot be used as they are."""


class WriteError(EvenhandError, OSError):
    """A file cannot be written: the disk is full, or the place cannot be written to. Nothing was left half-written.

    Parameters
    ----------
    message : str
        The path, the system's reason, and what to do.
    errno : int or None, default=None
        The system's number of the reason.
    """

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class InfeasibleError(EvenhandError, ValueError):
    """No rule of the searched family meets the constraints.

    Parameters
    ----------
    message : str
        What was asked for, and what can be had instead.
    smallest_tolerance : float or None, default=None
        The smallest tolerance that some rule reaches, where the search computed one.
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
    """A saved estimator names types that nobody has said to trust; nothing of it was built.

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
            f"{path} names types that are not read without being asked for: {shown}. If you know them and trust"
            " whoever wrote the file, give them to load as trusted=[...]."
        )
        self.names = tuple(names)


class DisagreementError(EvenhandError):
    """An exported model decides rows otherwise than Python does; nothing was written."""


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
    """Return a module that an extra installs, after importing others beside it, or say what to install.

    ``package`` is what messages call it, where that is not the module's own name.
    """
    try:
        # The package itself first: a part of it may still be there from before.
        for other in (module.partition(".")[0], *others):
            importlib.import_module(other)
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(feature, package or module.partition(".")[0], extra) from None


class EvenhandWarning(UserWarning):
    """Something works, but a reader of the result should know this."""
