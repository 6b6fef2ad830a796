from __future__ import annotations

import gc
import importlib.util

import pytest
from numba.core import config

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


def test_several_kernels_are_announced_once(tmp_path, capsys):
    path = tmp_path / "small_kernels.py"
    path.write_text(KERNEL + KERNEL.replace("double", "again"))
    spec = importlib.util.spec_from_file_location("small_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with _compiling.notice_of_compilation(module.again, module.double):
        assert module.double(2) == module.again(2) == 4
    assert capsys.readouterr().err.splitlines() == [_compiling.NOTICE]


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_again_after_compiling_if_it_was_before(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with _compiling.quick_compilation():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_the_compiler_of_other_kernels_is_as_it_was_after_compiling():
    before = config.OPT, config.LOOP_VECTORIZE
    with _compiling.quick_compilation(), _compiling.quick_compilation():
        assert (config.OPT, config.LOOP_VECTORIZE) == (1, 0)
    with pytest.raises(KeyError), _compiling.quick_compilation():
        raise KeyError
    assert before == (config.OPT, config.LOOP_VECTORIZE)
    assert type(config.OPT) is type(before[0])
