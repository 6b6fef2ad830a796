"""How kernels are compiled. Each entry point from Python, and each separate kernel, takes time to compile.

No kernel allocates arrays: its caller passes the working memory. This avoids reference counting and shortens
compilation.
"""

from __future__ import annotations

from typing import Any

from evenhand._compiled import njit

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "allocates": False}

# Called from Python.
kernel = njit(**_OPTIONS, no_cfunc_wrapper=True)

# Called only from other kernels, in several places.
inner = njit(**_OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)

# Called from one place: compiled as a part of the caller.
inlined = njit(**_OPTIONS, no_cfunc_wrapper=True, inline="always")

# Called through a pointer.
pointed_at = njit(**_OPTIONS, no_cpython_wrapper=True)
