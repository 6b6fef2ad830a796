"""numba's compiler, made faster, with a disk cache that tolerates damaged, unreadable and full storage.

numba passes on any exception from reading a damaged file or writing to a full disk. Here, such a kernel is
recompiled, and one line on standard error reports it. Kernels are compiled by numba's own passes (a custom pipeline,
which numba documents), but an operation on the same types is resolved once for all kernels, and passes that leave
every kernel as it is are left out. Only this module uses private parts of numba. If a version of numba does not have
them, its own cache and its own pipeline are used unchanged; so is its pipeline for a kernel that this one fails on.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import operator
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import numba.extending

_CompileResult: Any = object
_FunctionCache: Any = object
_dumps: Any = None
_CompilerBase: Any = object
_Passes: Any = None
_PassManager: Any = None
with suppress(ImportError, AttributeError):
    _dumps = importlib.import_module("numba.core.serialize").dumps
    _caching = importlib.import_module("numba.core.caching")
    _CompileResult, _FunctionCache = _caching.CompileResultCacheImpl, _caching.FunctionCache
with suppress(ImportError, AttributeError):
    _PassManager = importlib.import_module("numba.core.compiler_machinery").PassManager
    _compiler = importlib.import_module("numba.core.compiler")
    _Passes, _CompilerBase = _compiler.DefaultPassBuilder, _compiler.CompilerBase

DAMAGED = "evenhand: the compiled code in {folder} is damaged ({reason}) and is compiled again."
NOT_KEPT = (
    "evenhand: compiled code cannot be cached ({reason}), so every process compiles it again, which takes 10 to 20"
    " seconds. Set NUMBA_CACHE_DIR to a folder that can be written."
)
# numba's passes for expressions on whole arrays, and for functions and comprehensions inside of kernels.
_NOT_FOR_LOOPS = {"NopythonRewrites", "InlineClosureLikes"}
# Options that change neither types nor arithmetic: kernels that differ only in these share what was resolved.
_WRAPPING = {"nogil", "inline", "no_cpython_wrapper", "no_cfunc_wrapper"}
_STACK = 70_000
_said: set[str] = set()


def njit(*, cache: bool = True, allocates: bool = True, **options: Any) -> Callable[[Any], Any]:
    """Return numba's decorator of the same name, with a disk cache whose failures do not end a call.

    With ``allocates=False``, a kernel that creates no arrays and consists of loops over their entries compiles faster,
    without numba's memory manager and without passes for other code.
    """
    if not allocates:
        options["_nrt"] = False
    if _CompilerBase is not object:
        alike = frozenset(item for item in options.items() if item[0] not in _WRAPPING)
        options["pipeline_class"] = _compiler_for(alike, loops=not allocates)

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


class _Resolved:
    """numba's typing context, which remembers how operations on numbers, arrays and tuples were resolved.

    numba resolves an operation at every place where it occurs, several times, by trying all definitions of it.
    """

    def __init__(self, context: Any, known: dict[Any, Any]) -> None:
        self._context, self._known = context, known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def _recall(self, resolve: Any, *key: Any) -> Any:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = resolve()
        return found

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        func = self._context.resolve_value_type(func) if func is operator.getitem else func
        # A kernel is not remembered: it may be in the middle of its compilation.
        if kws or not isinstance(func, numba.types.Function) or not all(_is_plain(each) for each in args):
            return self._context.resolve_function_type(func, args, kws)
        found, implementation = self._known.get((func, tuple(args)), (None, None))
        # Kernels with other options may have replaced the implementation.
        if found is None or func.get_impl_key(found) is not implementation:
            found = self._context.resolve_function_type(func, args, kws)
            if found is not None:
                self._known[func, tuple(args)] = found, func.get_impl_key(found)
        return found

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        resolve = functools.partial(self._context.resolve_setitem, target, index, value)
        plain = _is_plain(target) and _is_plain(index) and _is_plain(value)
        return self._recall(resolve, "setitem", target, index, value) if plain else resolve()

    def resolve_getattr(self, typ: Any, attr: str) -> Any:
        resolve = functools.partial(self._context.resolve_getattr, typ, attr)
        return self._recall(resolve, "getattr", typ, attr) if _is_plain(typ) else resolve()


class _ResolvedAgain(_Resolved):
    """The same for the translation to machine code, which resolves each operation once more."""

    def resolve_value_type(self, val: Any) -> Any:
        found = self._context.resolve_value_type(val)
        return _Remembering(found, self._known) if type(found) is numba.types.Function else found


class _Remembering(numba.types.Function):
    """The type of a function that remembers how its calls were resolved, for kernels with the same options."""

    def __init__(self, function: Any, known: dict[Any, Any]) -> None:
        self._function, self._known = function, known
        super().__init__(function.templates)

    @property
    def key(self) -> Any:
        return *super().key, id(self._known)

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        context = context._context if isinstance(context, _Resolved) else context
        if kws or not all(_is_plain(each) for each in args):
            return self._function.get_call_type(context, args, kws)
        key = self, "call", tuple(args)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._function.get_call_type(context, args, kws)
            self._known[self, "implementation", found.args] = self._function.get_impl_key(found)
        return found

    def get_impl_key(self, sig: Any) -> Any:
        key = self, "implementation", sig.args
        return self._known[key] if key in self._known else self._function.get_impl_key(sig)


# An array expression is compiled as a kernel of its own, with such types: their values are as opaque as a function's.
numba.extending.register_model(_Remembering)(numba.extending.models.OpaqueModel)


def _is_plain(kind: Any) -> bool:
    """Return whether a type is a number, an array of them, an index or a tuple of such: none is refined by its uses."""
    types: Any = numba.types
    if isinstance(kind, types.BaseTuple):
        return all(_is_plain(each) for each in kind)
    if isinstance(kind, types.Array):
        return bool(kind.is_precise())
    return isinstance(kind, types.Number | types.Boolean | types.SliceType)


@functools.cache
def _compiler_for(options: frozenset[Any], loops: bool) -> Any:
    """Return numba's compiler for kernels with these options; ``loops`` says that they are loops over entries."""
    known: dict[Any, Any] = {}
    left_out = _NOT_FOR_LOOPS if loops else set()

    class Compiler(_CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            self.state.typingctx = _Resolved(self.state.typingctx, known)
            # The target context is a copy for this kernel.
            target = self.state.targetctx
            target.typing_context = _ResolvedAgain(target.typing_context, known)
            passes = _PassManager("evenhand")
            for each, description in _Passes.define_nopython_pipeline(self.state).passes:
                if each.__name__ not in left_out:
                    passes.add_pass(each, description)
            passes.finalize()
            return [passes]

        def compile_extra(self, func: Any) -> Any:
            state, faster = self.state, super().compile_extra
            target, typing = state.targetctx, state.targetctx.typing_context
            given = state.library, state.args, state.return_type, state.flags, state.locals
            plain = _compiler.Compiler(state.typingctx, target, *given)
            try:
                return _call_with_room(faster, func)
            except Exception:
                # Another version of numba may work differently. If the kernel is at fault, numba says so.
                target.typing_context = typing
                return plain.compile_extra(func)

    return Compiler


def _call_with_room(function: Any, argument: Any) -> Any:
    """Call a function with free space on the interpreter's stack for all calls inside of it.

    CPython allocates its stack in pieces of 16 KB and frees one as soon as it is empty. A loop that happens to call
    across the end of a piece then allocates and frees one at every turn, which was a tenth of the compiler's time. A
    frame that does not fit into a piece gets a larger one, and the calls inside use the rest of it.
    """
    return function(argument)


_call_with_room.__code__ = _call_with_room.__code__.replace(co_stacksize=_STACK)


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
