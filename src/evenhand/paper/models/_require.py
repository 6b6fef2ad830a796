"""Packages that only some of the models need, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from evenhand.errors import MissingExtraError


def require(package: str, feature: str) -> Any:
    """Return an imported package, or raise an error that names the extra."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtraError(feature, package, "torch") from error
