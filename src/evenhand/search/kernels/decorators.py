"""How kernels are compiled: with an entry from Python, which takes time to compile, or without."""

from __future__ import annotations

from evenhand._compiled import njit

kernel = njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)

# What other kernels alone call.
inner = njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)

# What is called through a pointer.
pointed_at = njit(cache=True, nogil=True, error_model="numpy", no_cpython_wrapper=True)
