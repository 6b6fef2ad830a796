from __future__ import annotations

import importlib.util

from evenhand.search import _compiling

KERNEL = """
from numba import njit

@njit(cache=True)
def double(x):
    return 2 * x
"""


def test_a_kernel_is_announced_when_it_is_compiled_and_not_when_it_is_loaded(tmp_path, capsys):
    path = tmp_path / "small_kernel.py"
    path.write_text(KERNEL)

    def announced(argument):
        spec = importlib.util.spec_from_file_location("small_kernel", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with _compiling.notice_of_compilation(module.double):
            assert module.double(argument) == 2 * argument
            assert module.double(argument) == 2 * argument
        return capsys.readouterr().err.splitlines()

    assert announced(1) == [_compiling.NOTICE]
    assert announced(1) == []
    assert announced(1.5) == [_compiling.NOTICE]
