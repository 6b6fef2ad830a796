"""The versions that a result was made with, as plain data."""

from __future__ import annotations

import platform
from importlib import metadata

from evenhand._version import __version__


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of evenhand, Python and some packages, by the names of their distributions.

    Examples
    --------
    >>> from evenhand.versions import versions
    >>> list(versions("numpy"))
    ['evenhand', 'python', 'numpy']
    """
    return {
        "evenhand": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages},
    }
