"""numba's compiler with a disk cache that tolerates damaged, unreadable and full storage.

numba passes on any exception from reading a damaged file or writing to a full disk. Here, such a kernel is
recompiled, and one line on standard error reports it. Only this module uses private parts of numba. If a version of
numba does not have them, its own cache is used unchanged.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba

_CompileResult: Any = object
_FunctionCache: Any = object
_dumps: Any = None
with suppress(ImportError, AttributeError):
    _dumps = importlib.import_module("numba.core.serialize").dumps
    _caching = importlib.import_module("numba.core.caching")
    _CompileResult, _FunctionCache = _caching.CompileResultCacheImpl, _caching.FunctionCache

DAMAGED = "evenhand: the compiled code in {folder} is damaged ({reason}) and is compiled again."
NOT_KEPT = (
    "evenhand: compiled code cannot be cached ({reason}), so every process compiles it again, which takes 10 to 20"
    " seconds. Set NUMBA_CACHE_DIR to a folder that can be written."
)
_said: set[str] = set()


def njit(*, cache: bool = True, allocates: bool = True, **options: Any) -> Callable[[Any], Any]:
    """Return numba's decorator of the same name, with a disk cache whose failures do not end a call.

    With ``allocates=False``, a kernel that creates no arrays compiles faster, without numba's memory manager.
    """
    if not allocates:
        options["_nrt"] = False

    def decorate(function: Any) -> Any:
        kernel = numba.njit(**options)(function)
        # With NUMBA_DISABLE_JIT there is no dispatcher, because numba does not compile.
        if not cache or not hasattr(kernel, "enable_caching"):
            return kernel
        try:
            if _FunctionCache is object or not hasattr(kernel, "_cache"):
                kernel.enable_caching()
            else:
                kernel._cache = _LastingCache(function)
        except (OSError, RuntimeError) as error:
            _say(NOT_KEPT, reason=_short(error))
        return kernel

    return decorate


class _CheckedForm(_CompileResult):  # type: ignore[misc]
    """The compiled form of a kernel with its digest, so that corrupted machine code never runs."""

    def reduce(self, data: Any) -> tuple[bytes, bytes]:
        content: bytes = _dumps(super().reduce(data))
        return hashlib.sha256(content).digest(), content

    def rebuild(self, target_context: Any, reduced_data: tuple[bytes, bytes]) -> Any:
        digest, content = reduced_data
        if hashlib.sha256(content).digest() != digest:
            raise ValueError("its digest does not match")
        return super().rebuild(target_context, pickle.loads(content))


class _LastingCache(_FunctionCache):  # type: ignore[misc]
    """The cache of one kernel. Unreadable entries are compiled again; entries that cannot be written are skipped."""

    _impl_class = _CheckedForm

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        # numba only checks the kernel's own file, but the kernel may call functions of other files.
        stamp = self._cache_file._source_stamp, _digest_of_folder(Path(function.__code__.co_filename).parent)
        self._cache_file._source_stamp = stamp

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # A damaged file can make pickle raise anything.
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:
            _say(DAMAGED, folder=self.cache_path, reason=_short(error))
        # The cause is reported if saving the kernel fails, too.
        with suppress(OSError):
            self.flush()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            self.disable()
            _say(NOT_KEPT, reason=_short(error))


@functools.cache
def _digest_of_folder(folder: Path) -> bytes:
    """Return a digest of all Python files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _say(message: str, **details: str) -> None:
    """Print a line on standard error; each message is printed once per process."""
    if message not in _said:
        _said.add(message)
        print(message.format(**details), file=sys.stderr, flush=True)


class Pointer(numba.types.WrapperAddressProtocol):
    """A kernel that is called through a pointer, so that its callers are not compiled again for each such kernel."""

    def __init__(self, kernel: Any, result: Any, arguments: tuple[Any, ...]) -> None:
        self._signature = result(*arguments)
        kernel.compile(arguments)
        self._compiled = kernel.overloads[arguments]
        wrapper = self._compiled.fndesc.llvm_cfunc_wrapper_name
        self._address = self._compiled.library.get_pointer_to_function(wrapper)

    def __wrapper_address__(self) -> Any:
        return self._address

    def signature(self) -> Any:
        """Return the types of the arguments and of the result."""
        return self._signature
