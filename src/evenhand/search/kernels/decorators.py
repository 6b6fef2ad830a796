"""How kernels are compiled. An entry from Python takes time to compile, and so does each kernel of its own.

No kernel makes arrays: its caller hands in the room that it works in. That keeps the compiler from counting
references, and its work down.
"""

from __future__ import annotations

from typing import Any

from evenhand._compiled import njit

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "allocates": False}

# What Python calls.
kernel = njit(**_OPTIONS, no_cfunc_wrapper=True)

# What other kernels alone call, from several places.
inner = njit(**_OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)

# What is called from one place: it is compiled as a part of its caller.
inlined = njit(**_OPTIONS, no_cfunc_wrapper=True, inline="always")

# What is called through a pointer.
pointed_at = njit(**_OPTIONS, no_cpython_wrapper=True)
