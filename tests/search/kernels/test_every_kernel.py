"""Every compiled kernel has a test of its own."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from pathlib import Path

from numba.core.dispatcher import Dispatcher

import kernels
from evenhand.engines import _kernels as engine_kernels
from evenhand.engines import _near_kernels as near_kernels
from evenhand.search import kernels as search_kernels

TESTS = Path(__file__).parents[2]


def compiled_kernels():
    names = [module.name for module in pkgutil.iter_modules(search_kernels.__path__, f"{search_kernels.__name__}.")]
    modules = [engine_kernels, near_kernels, *map(importlib.import_module, names)]
    return {kernels.name_of(value) for m in modules for value in vars(m).values() if isinstance(value, Dispatcher)}


def test_every_kernel_has_a_test_of_its_own():
    for path in [*Path(__file__).parent.glob("test_*.py"), *(TESTS / "engines").glob("test_*kernels.py")]:
        if path != Path(__file__):
            spec = importlib.util.spec_from_file_location(f"again_{path.stem}", path)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
    found = compiled_kernels()
    assert len(found) > 20
    assert found - kernels.COVERED == set()
