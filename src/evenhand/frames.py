"""Results as data frames, in the caller's library."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw

from evenhand.arguments import shown
from evenhand.errors import InputError, MissingExtraError

LIBRARIES = ("pandas", "polars", "pyarrow")


def library_of(*values: Any) -> str | None:
    """Return the name of the library that the first frame or column comes from, or None."""
    for value in values:
        inner = value.values() if isinstance(value, Mapping) else [value]
        for item in inner:
            native = nw.from_native(item, pass_through=True, allow_series=True)
            if isinstance(native, nw.DataFrame | nw.Series):
                name = native.implementation.value
                return name if name in LIBRARIES else None
    return None


def make_frame(columns: Mapping[str, Sequence[Any]], library: str | None, known: str | None) -> Any:
    """Return columns as a frame of the requested library, else of the caller's, else of any installed one."""
    if library is not None and not (isinstance(library, str) and library in LIBRARIES):
        raise InputError(f"library must be one of {list(LIBRARIES)!r}, or None; got {shown(library)}.")
    wanted = library or known
    chosen = wanted or next((name for name in LIBRARIES if importlib.util.find_spec(name)), None)
    if chosen is None or importlib.util.find_spec(chosen) is None:
        raise MissingExtraError("A frame", chosen or "pandas", "all")
    data = {name: list(values) for name, values in columns.items()}
    return nw.from_dict(data, backend=importlib.import_module(chosen)).to_native()
