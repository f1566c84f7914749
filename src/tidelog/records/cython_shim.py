"""What ``records/record_codec`` sees as ``cython`` where it runs as plain Python: types, idle decorators.

Cython's compiler replaces all of this by its own ``cython``; the interpreter and mypy read this file instead,
so that nothing of Cython is needed to run or to check the code. A pointer stands for the object it points
into: ``bytes`` to read from, a ``bytearray`` to write to, both indexed by position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

compiled = False

bint = bool
uchar = int
uint = int
longlong = int
ulonglong = int
double = float
Py_ssize_t = int
p_uchar = bytearray
p_const_uchar = Any

# Names that only stand in branches for the compiler.
cast: Any = None
address: Any = None
NULL: Any = None
p_int: Any = None
p_longlong: Any = None
Py_buffer = Any
PyBUF_SIMPLE: Any = None
PyBuffer_Release: Any = None
PyObject_GetBuffer: Any = None
memcmp: Any = None
memcpy: Any = None
p_uint: Any = None


def _unchanged(thing: _T) -> _T:
    return thing


class _WithoutGil:
    """Marks functions and blocks that, compiled, let go of the GIL; the interpreter cannot."""

    def __call__(self, thing: _T) -> _T:
        return thing

    def __enter__(self) -> None:
        """Nothing to let go of."""

    def __exit__(self, *_: object) -> None:
        """Nothing to take again."""


nogil = _WithoutGil()
cclass = _unchanged
cfunc = _unchanged
inline = _unchanged
final = _unchanged
no_gc = _unchanged


def exceptval(value: int | None = None, *, check: bool = True) -> Callable[[_T], _T]:
    """How a compiled function tells its caller of an exception; the interpreter has its own way."""
    return _unchanged


def freelist(size: int) -> Callable[[_T], _T]:
    """How many freed objects of a compiled class are kept for reuse."""
    return _unchanged
