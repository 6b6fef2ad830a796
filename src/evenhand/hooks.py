"""Calls from a lower package to a higher one.

A module imports only from packages below it. If a method of a lower package is implemented in a higher one, such as
``FairClassifier.report``, the function is registered here and imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_ANSWERS: dict[str, str] = {}


def provide(name: str, where: str) -> None:
    """Register the function for a name, as ``package.module:function``."""
    _ANSWERS[name] = where


def answer(name: str) -> Any:
    """Return the function that is registered for a name."""
    module, _, function = _ANSWERS[name].partition(":")
    return getattr(importlib.import_module(module), function)
