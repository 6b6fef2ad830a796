"""A cache of compiled code that is damaged, unreadable or cannot be written ends no call."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numba import float64, int64
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.core.registry import cpu_target

from evenhand import _compiled
from evenhand.engines import _kernels as engine_kernels
from evenhand.engines import _near_kernels as near_kernels
from evenhand.search.kernels import boxes, branch, bundles, ladder, leaves, margin, planes, sweep

SMALL = """
{before}
from evenhand._compiled import njit

@njit(cache=True, nogil=True)
def twice(x):
    return 2.0 * x

print(twice(3.0), sum(twice.stats.cache_hits.values()))
"""
REAL = """
import evenhand as eh
from evenhand.search.kernels.margin import linear_margin

rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.1])
decisions = rule.decide([0.45, 0.55], [[0.1, 0.9], [0.9, 0.1]])
print(*decisions, sum(linear_margin.stats.cache_hits.values()))
"""


class Pair(NamedTuple):
    scale: float
    least: float


def run(folder: Path, code: str = SMALL, before: str = "", **environment: str) -> tuple[str, list[str]]:
    """Run a script in a process of its own; return what it printed and the lines on standard error."""
    script = folder / "script.py"
    script.write_text(code.replace("{before}", before))
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), **environment}
    done = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True, env=variables)
    return done.stdout.strip(), done.stderr.splitlines()


def cached(folder: Path, suffix: str) -> list[Path]:
    return sorted((folder / "cache").rglob(f"*.{suffix}"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def zero_the_end(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-200] + bytes(200))


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 4),
    "text": lambda path: path.write_text("not a cache"),
    "another pickle": lambda path: path.write_bytes(b"\x80\x04K\x01."),
    "truncated": truncate,
}
CHANGES_OF_DATA = {**DAMAGES, "one byte changed": flip_a_byte, "end is zero": zero_the_end}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder whose cache is filled; each test that damages it leaves it mended."""
    folder = tmp_path_factory.mktemp("filled")
    assert run(folder) == ("6.0 0", [])
    return folder


@pytest.mark.parametrize(
    ("suffix", "damage"), [*(("nbi", name) for name in DAMAGES), *(("nbc", name) for name in CHANGES_OF_DATA)]
)
def test_a_damaged_cache_is_compiled_anew_and_mended(filled, suffix, damage):
    assert cached(filled, suffix)
    for path in cached(filled, suffix):
        CHANGES_OF_DATA[damage](path)
    answer, lines = run(filled)
    assert answer == "6.0 0"
    if (suffix, damage) == ("nbi", "another pickle"):
        assert lines == []  # numba reads it as the index of another version
    else:
        assert len(lines) == 1
        assert "damaged" in lines[0]
        assert str(filled / "cache") in lines[0]
    assert run(filled) == ("6.0 1", [])


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_files_that_cannot_be_read_or_replaced_end_no_call(tmp_path, suffix):
    run(tmp_path)
    for path in cached(tmp_path, suffix):
        path.unlink()
        path.mkdir()
        (path / "occupied").touch()
    answer, lines = run(tmp_path)
    assert answer == "6.0 0"
    assert lines[-1].startswith("evenhand: compiled code cannot be cached (IsADirectoryError")
    assert len(lines) == (2 if suffix == "nbi" else 1)


def test_a_full_disk_ends_no_call(tmp_path):
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    answer, lines = run(tmp_path, before=full)
    assert answer == "6.0 0"
    assert len(lines) == 1
    assert lines[0].startswith("evenhand: compiled code cannot be cached (OSError")


def test_no_folder_that_can_be_written_ends_no_call(tmp_path):
    (tmp_path / "__pycache__").touch()
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file" / "cache")
    answer, lines = run(tmp_path, NUMBA_CACHE_DIR=nowhere, XDG_CACHE_HOME=nowhere, HOME=nowhere)
    assert answer == "6.0 0"
    assert len(lines) == 1
    assert "NUMBA_CACHE_DIR" in lines[0]


def test_without_numbas_private_parts_its_own_cache_is_used(tmp_path):
    before = "import evenhand._compiled as compiled; compiled._FunctionCache = object"
    assert run(tmp_path, before=before) == ("6.0 0", [])
    assert run(tmp_path, before=before) == ("6.0 1", [])


def test_without_numbas_pipeline_kernels_are_compiled_by_its_own(tmp_path):
    before = "import evenhand._compiled as compiled; compiled._CompilerBase = object"
    code = SMALL.replace("print(", "print(twice._compiler.pipeline_class.__module__, ")
    assert run(tmp_path, code, before=before) == ("numba.core.compiler 6.0 0", [])


def test_a_kernel_that_the_faster_pipeline_fails_on_is_compiled_by_numbas_own(monkeypatch):
    tried = []

    def fail(self, *arguments):
        tried.append(arguments)
        raise AttributeError("numba has changed")

    monkeypatch.setattr(_compiled._Resolved, "resolve_function_type", fail)

    @_compiled.njit(cache=False, allocates=False)
    def tripled(x):
        return 3.0 * x

    assert tripled(2.0) == 6.0
    assert tried


def test_what_is_wrong_with_a_kernel_is_still_said():
    @_compiled.njit(cache=False, allocates=False)
    def wrong(x):
        return x.nothing

    with pytest.raises(TypingError, match="nothing"):
        wrong(2.0)


def test_an_operation_on_the_same_types_is_resolved_once_for_all_kernels():
    class Counting:
        calls = 0

        def resolve_function_type(self, func, args, kws):
            self.calls += 1
            return func.get_call_type(context, args, kws)

    context, counting, known = cpu_target.typing_context, Counting(), {}
    context.refresh()
    product = context.resolve_value_type(operator.mul)
    signatures = [
        _compiled._Resolved(counting, known).resolve_function_type(product, arguments, {})
        for arguments in [(float64, float64), (float64, float64), (int64, int64), (float64, float64)]
    ]
    assert [str(each) for each in signatures] == 2 * ["(float64, float64) -> float64"] + [
        "(int64, int64) -> int64",
        "(float64, float64) -> float64",
    ]
    assert counting.calls == 2


def test_kernels_of_loops_take_tuples_and_slices_and_call_other_kernels():
    @_compiled.njit(cache=False, allocates=False)
    def inner(values, pair):
        total = 0.0
        for i in range(values.shape[0]):
            total += max(values[i] * pair.scale, pair.least) / (i + 1)
        return total

    @_compiled.njit(cache=False, allocates=False)
    def outer(table, pair):
        for i in range(table.shape[0]):
            table[i, 0] = inner(table[i, 1:], pair) + inner(table[0], pair)
        return table.shape[0] // 2

    mine = np.random.default_rng(0).normal(size=(3, 4))
    expected = mine.copy()
    for i in range(3):
        both = [np.maximum(2.0 * part, -0.5) / np.arange(1, len(part) + 1) for part in (expected[i, 1:], expected[0])]
        expected[i, 0] = both[0].sum() + both[1].sum()
    assert outer(mine, Pair(2.0, -0.5)) == 1
    np.testing.assert_allclose(mine, expected, rtol=1e-12)


def test_a_kernel_that_creates_arrays_may_use_whole_arrays_and_comprehensions():
    @_compiled.njit(cache=False)
    def whole(table):
        return np.array([row[0] for row in 2.0 * table + 1.0])

    np.testing.assert_array_equal(whole(np.eye(2)), [3.0, 1.0])


def test_calls_inside_have_room_on_the_interpreters_stack():
    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    assert _compiled._call_with_room(depth, 500) == 500
    assert _compiled._call_with_room(lambda n: _compiled._call_with_room(depth, n), 5) == 5
    with pytest.raises(ZeroDivisionError):
        _compiled._call_with_room(lambda n: 1 / n, 0)


def test_kernels_run_uncompiled_where_numba_is_told_not_to_compile(tmp_path):
    code = SMALL.replace("print(twice(3.0), sum(twice.stats.cache_hits.values()))", "print(twice(3.0))")
    assert run(tmp_path, code, NUMBA_DISABLE_JIT="1") == ("6.0", [])


def test_a_search_runs_uncompiled_too(tmp_path):
    code = (
        "import evenhand as eh; d = eh.datasets.make_zafar(60, random_state=0)\n"
        "given = (d.y, d.group, d.p_y, d.p_joint)\n"
        "print(eh.learn_rule(*given, criterion='eo', tolerance=0.3).solution_.status)"
    )
    answer, _ = run(tmp_path, code, NUMBA_DISABLE_JIT="1")
    assert answer == "optimal"


def test_a_rule_decides_with_a_damaged_cache(tmp_path):
    assert run(tmp_path, REAL) == ("1 0 0", [])
    assert run(tmp_path, REAL) == ("1 0 1", [])
    for path in [*cached(tmp_path, "nbi"), *cached(tmp_path, "nbc")]:
        truncate(path)
    answer, lines = run(tmp_path, REAL)
    assert answer == "1 0 0"
    assert len(lines) == 1
    assert "damaged" in lines[0]
    assert run(tmp_path, REAL) == ("1 0 1", [])


CALLER = """
import callee
from evenhand._compiled import njit

@njit(cache=True)
def thrice(x):
    return callee.once(x) + 2.0 * x

print(thrice(3.0), sum(thrice.stats.cache_hits.values()))
"""


def test_a_kernel_is_compiled_anew_when_another_file_of_its_folder_has_changed(tmp_path):
    """numba itself looks at the kernel's own file, and what it calls may be in another."""
    callee = tmp_path / "callee.py"
    callee.write_text("from evenhand._compiled import njit\n\n@njit(cache=True)\ndef once(x):\n    return x\n")
    assert run(tmp_path, CALLER) == ("9.0 0", [])
    assert run(tmp_path, CALLER) == ("9.0 1", [])
    callee.write_text(callee.read_text().replace("return x", "return x + 1.0"))
    assert run(tmp_path, CALLER) == ("10.0 0", [])


POINTED = """
from numba import types
from evenhand._compiled import Pointer, njit

@njit(cache=True)
def once(x):
    return x

@njit(cache=True)
def twice(x):
    return 2.0 * x

@njit(cache=True)
def call(function, x):
    return function(x)

pointers = [Pointer(kernel, types.float64, (types.float64,)) for kernel in (once, twice)]
print(*(call(pointer, 3.0) for pointer in pointers), len(call.signatures), sum(call.stats.cache_hits.values()))
"""


def test_a_kernel_that_calls_through_a_pointer_is_compiled_once_for_all_that_it_points_to(tmp_path):
    assert run(tmp_path, POINTED) == ("3.0 6.0 1 0", [])
    assert run(tmp_path, POINTED) == ("3.0 6.0 1 1", [])


@pytest.mark.parametrize(
    "module",
    [engine_kernels, near_kernels, boxes, branch, bundles, ladder, leaves, margin, planes, sweep],
    ids=lambda m: m.__name__,
)
def test_every_kernel_has_this_cache(module):
    kernels = [value for value in vars(module).values() if isinstance(value, Dispatcher)]
    assert kernels
    assert all(type(kernel._cache) is _compiled._LastingCache for kernel in kernels)
