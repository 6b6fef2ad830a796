"""Calls from a lower package to a higher one.

A module imports only from packages below it. Where a method of a lower package is answered by a higher one, such as
``FairClassifier.report``, the package says here which function answers, and it is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

_ANSWERS: dict[str, str] = {}


def provide(name: str, where: str) -> None:
    """Say which function answers to a name: ``package.module:function``."""
    _ANSWERS[name] = where


def answer(name: str) -> Any:
    """Return the function that answers to a name."""
    module, _, function = _ANSWERS[name].partition(":")
    return getattr(importlib.import_module(module), function)
